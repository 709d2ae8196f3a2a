"""Values found once from a tensor of parameters, as long as they hold. Private to the package."""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import torch

__all__ = ["ParameterCache", "version_of"]

_Value = TypeVar("_Value")
_STALE = -1


class ParameterCache(ABC):
    """A law with what was found from its parameters.

    A change of the parameters in place empties the cache, and values that carry a graph are dropped as soon as a
    backward pass runs through them (their buffers are gone), so that the same law can be differentiated again. Values
    without a graph are kept apart from those with one. A copy by pickle starts with an empty cache.
    """

    @property
    @abstractmethod
    def parameters(self) -> torch.Tensor:
        """The tensor that the values depend on."""

    @abstractmethod
    def _examine(self, values: torch.Tensor) -> None:
        """Look at the values of the parameters, at the start and after a change in place; the cache is empty."""

    def _forget(self) -> None:
        """Empty the cache and look at the parameters."""
        self._version = version_of(self.parameters)
        self._plain: dict[str, Any] = {}
        self._graph: dict[str, Any] = {}
        try:
            self._examine(self.parameters.detach())
        except BaseException:
            self._version = _STALE  # so that a fault is told every time
            raise

    def look(self) -> None:
        """Take notice of a change of the parameters in place."""
        if version_of(self.parameters) != self._version:
            self._forget()

    @property
    def has_graph(self) -> bool:
        """Whether what is found now carries a graph."""
        return self.parameters.requires_grad and torch.is_grad_enabled()

    def _cached(self, name: str, compute: Callable[[], _Value]) -> _Value:
        self.look()
        return _kept(self._graph if self.has_graph else self._plain, name, compute)

    def _cached_plain(self, name: str, compute: Callable[[], _Value]) -> _Value:
        """A value that never carries a graph."""
        self.look()
        return _kept(self._plain, name, compute)

    def _watched(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor, with a hook that drops the values with a graph when their graph is used up."""
        own = tensor.view_as(tensor) if tensor is self.parameters else tensor
        own.register_hook(partial(_drop_graph, weakref.ref(self)))  # pyright: ignore[reportArgumentType]
        return own

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        del state["_version"], state["_plain"], state["_graph"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._forget()


def _kept(values: dict[str, Any], name: str, compute: Callable[[], _Value]) -> _Value:
    if name not in values:
        values[name] = compute()
    return values[name]


def version_of(tensor: torch.Tensor) -> int:
    """Count of changes in place (inference tensors keep none)."""
    return 0 if tensor.is_inference() else tensor._version


def _drop_graph(law: weakref.ref[ParameterCache], _gradient: torch.Tensor) -> None:
    """Tensor hook: the graph of the cached values was just used up."""
    if (alive := law()) is not None:
        alive._graph.clear()
