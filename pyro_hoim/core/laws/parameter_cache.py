"""Values found once from a tensor of parameters, as long as they hold. Private to the package."""

import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import torch

from ..._modes import plain_mode

_Value = TypeVar("_Value")
_STALE, _BUSY = -1, -2  # in the place of a version: to be examined, being examined
_examining = threading.RLock()


class _Values(dict[str, Any]):
    """Values by name; unlike a plain dictionary, it can be referred to weakly."""


class _OwnValues(threading.local):
    """Values of the thread that asks: a graph is freed by the first backward pass, so no two threads may share one."""

    def __init__(self) -> None:
        self.values = _Values()


class ParameterCache(ABC):
    """A law with what was found from its parameters, which several threads may use at once.

    A change of the parameters in place empties the cache, and values that carry a graph are dropped as soon as a
    backward pass runs through them (their buffers are gone), so that the same law can be differentiated again. Values
    without a graph are kept apart from those with one, of which every thread has its own. They are found outside the
    modes of the moment (:func:`~pyro_hoim._modes.plain_mode`). A copy by pickle starts with an empty cache.
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
        version, self._version = version_of(self.parameters), _BUSY
        self._plain: dict[str, Any] = {}
        self._graph = _OwnValues()
        try:
            self._examine(self.parameters.detach())
        except BaseException:
            version = _STALE  # so that a fault is told every time
            raise
        finally:
            self._version = version

    def look(self) -> None:
        """Take notice of a change of the parameters in place."""
        if version_of(self.parameters) != self._version:
            with _examining:  # other threads wait; a call from _examine goes on
                if self._version not in (version_of(self.parameters), _BUSY):
                    self._forget()

    @property
    def has_graph(self) -> bool:
        """Whether what is found now carries a graph."""
        return self.parameters.requires_grad and torch.is_grad_enabled()

    def _cached(self, name: str, compute: Callable[[], _Value], *, is_plain: bool = False) -> _Value:
        """The value of a name, found at its first use; a plain one never carries a graph."""
        self.look()
        gradients = not is_plain and self.parameters.requires_grad and torch.is_grad_enabled()
        values: dict[str, Any] = self._graph.values if gradients else self._plain
        if (value := values.get(name)) is not None:
            return value
        with plain_mode(self.parameters, gradients=gradients):
            return values.setdefault(name, compute())

    @property
    def _source(self) -> torch.Tensor:
        """The parameters for a value of :meth:`_cached`."""
        return self._watched(self.parameters) if self.has_graph else self.parameters

    def _watched(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor, with a hook that drops this thread's values with a graph when their graph is used up."""
        view = tensor.view_as(tensor) if tensor is self.parameters else tensor
        view.register_hook(partial(_drop, weakref.ref(self._graph.values)))  # pyright: ignore[reportArgumentType]
        return view

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        del state["_version"], state["_plain"], state["_graph"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._forget()


def version_of(tensor: torch.Tensor) -> int:
    """Count of changes in place (inference tensors keep none)."""
    return 0 if tensor.is_inference() else tensor._version


def _drop(values: weakref.ref[_Values], _gradient: torch.Tensor) -> None:
    """Tensor hook: the graph of the cached values was just used up."""
    if (alive := values()) is not None:
        alive.clear()
