"""A device that is not there: tensors whose values lie on the CPU and which behave as if they were elsewhere.

Code that runs here on the device ``AWAY`` makes no tensor on the CPU where one on the device is needed: operations on
tensors of two devices raise the error of PyTorch, generators must belong to the device, NumPy views are refused.
Transfers and whatever waits for a value are counted, as on a GPU they would hold up the program. Values, autograd and
random numbers are those of the CPU, so that results can be compared bit by bit. It is called "meta", because a build of
PyTorch without CUDA knows no other device that autograd runs on.

    with pretend() as waits:
        tables = tables.to(AWAY)
        ...
        assert not waits
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self
from unittest import mock

import numpy as np
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing

AWAY = torch.device("meta")
_ATEN = torch.ops.aten
_INDEXED = {_ATEN.index.Tensor, _ATEN.index_put_.default, _ATEN.index_put.default, _ATEN._index_put_impl_.default}
_VALUES = {_ATEN._local_scalar_dense.default, _ATEN.equal.default}
_SHAPED_BY_VALUES = {
    _ATEN.nonzero.default,
    _ATEN.masked_select.default,
    _ATEN._unique2.default,
    _ATEN.unique_dim.default,
    _ATEN.repeat_interleave.Tensor,
}
_Generator = torch.Generator


def _is_away(device: Any) -> bool:
    return device is not None and torch.device(device).type == AWAY.type


def _tensors(tree: Any) -> Iterator[torch.Tensor]:
    """Tensors of nested arguments, by less work than PyTorch's own trees."""
    if isinstance(tree, torch.Tensor):
        yield tree
    elif isinstance(tree, list | tuple | dict):
        for part in tree.values() if isinstance(tree, dict) else tree:
            yield from _tensors(part)


def _mapped(function: Callable[[torch.Tensor], torch.Tensor], tree: Any) -> Any:
    """The same with all of its tensors mapped."""
    if isinstance(tree, torch.Tensor):
        return function(tree)
    if isinstance(tree, dict):
        return {name: _mapped(function, part) for name, part in tree.items()}
    return type(tree)(_mapped(function, part) for part in tree) if isinstance(tree, list | tuple) else tree


def _without_lists(index: Any) -> Any:
    """An index with tensors for its lists, of which PyTorch would make some past the modes."""
    if isinstance(index, list | np.ndarray):
        return torch.as_tensor(index) if len(index) else torch.zeros(0, dtype=torch.long)
    return tuple(map(_without_lists, index)) if isinstance(index, tuple) else index


class Away(torch.Tensor):
    """A tensor on the device; ``inside`` has its values."""

    inside: torch.Tensor

    @staticmethod
    def __new__(cls, inside: torch.Tensor) -> Self:
        made = torch.Tensor._make_wrapper_subclass(
            cls,
            inside.shape,
            strides=inside.stride(),
            storage_offset=inside.storage_offset(),
            dtype=inside.dtype,
            layout=inside.layout,
            device=AWAY,
        )
        made.inside = inside
        return made

    @property
    def is_meta(self) -> bool:
        return False  # it has values

    def __getitem__(self, index: Any) -> torch.Tensor:
        return super().__getitem__(_without_lists(index))

    def __setitem__(self, index: Any, value: Any) -> None:
        super().__setitem__(_without_lists(index), value)

    def new_tensor(self, data: Any, **kwargs: Any) -> torch.Tensor:
        return torch.tensor(data, **{"dtype": self.dtype, "device": self.device, **kwargs})

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def __repr__(self) -> str:
        return f"Away({self.inside!r})"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with _Device(Counter()):
            return func(*args, **(kwargs or {}))


class _Random(_Generator):
    """A generator that remembers its device."""

    def __new__(cls, device: Any = "cpu") -> Any:
        made = super().__new__(cls, "cpu")
        made.own = torch.device(device)
        return made

    def __init__(self, device: Any = "cpu") -> None:
        pass

    @property
    def device(self) -> torch.device:
        return self.own


class _Device(TorchDispatchMode):
    """Does on the CPU what is asked of the device."""

    def __init__(self, waits: Counter[str]) -> None:
        super().__init__()
        self.waits = waits

    def _check(self, func: Any, args: Any, tensors: list[torch.Tensor], away: list[Away], is_away: bool) -> None:
        """Refuse operations on two devices, and count what waits for a value."""
        assert not any(_is_away(t.device) for t in tensors if not isinstance(t, Away)), f"made past the modes: {func}"
        here = [t for t in tensors if not isinstance(t, Away) and t.dim()]
        if func in (_ATEN._to_copy.default, _ATEN.copy_.default):
            if (away if func is _ATEN._to_copy.default and not is_away else here) or len(away) not in (0, len(tensors)):
                self.waits["transfer"] += 1
        elif away and here:
            is_index = func in _INDEXED and isinstance(args[0], Away)
            if not is_index or (len(args) > 2 and any(t is args[2] for t in here)):
                raise RuntimeError(f"Expected all tensors to be on the same device, found {AWAY} and cpu in {func}")
            self.waits["transfer of an index"] += 1
        if away and (func in _VALUES or func in _SHAPED_BY_VALUES):
            self.waits[str(func)] += 1
        if away and func in _INDEXED and any(i is not None and i.dtype in (torch.bool, torch.uint8) for i in args[1]):
            self.waits["index by a mask"] += 1

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        tensors = list(_tensors((args, kwargs)))
        away = [t for t in tensors if isinstance(t, Away)]
        if func is _ATEN.copy_.default:
            is_away = isinstance(args[0], Away)
        elif kwargs.get("device") is not None:
            is_away = _is_away(kwargs["device"])
            kwargs["device"] = torch.device("cpu") if is_away else kwargs["device"]
        else:
            is_away = bool(away)
        self._check(func, args, tensors, away, is_away)
        inner = _mapped(lambda t: t.inside if isinstance(t, Away) else t, (args, kwargs)) if away else (args, kwargs)
        out = func(*inner[0], **inner[1])
        if func in _VALUES or not is_away:
            return out
        out = _mapped(Away, out)
        if func is _ATEN._to_copy.default or not away:
            return out
        return return_and_correct_aliasing(func, args, kwargs, out)


class _Generators(TorchFunctionMode):
    """Generators must be of the device of what they draw."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        generator = (kwargs or {}).get("generator")
        if generator is not None:
            first = next((t for t in args if isinstance(t, torch.Tensor)), None)
            device = torch.device(kwargs.get("device") or ("cpu" if first is None else first.device))
            if device.type != generator.device.type:
                raise RuntimeError(f"Expected a {device} device type for generator but found {generator.device}")
        return func(*args, **(kwargs or {}))


def _sent(make: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """``torch.tensor`` and its like, which pass by both modes."""

    def made(*args: Any, **kwargs: Any) -> torch.Tensor:
        if not _is_away(kwargs.get("device")):
            return make(*args, **kwargs)
        return make(*args, **{**kwargs, "device": "cpu"}).to(AWAY)

    return made


@contextmanager
def pretend() -> Iterator[Counter[str]]:
    """The device is there; what had to wait for a transfer or a value is counted."""
    waits: Counter[str] = Counter()
    with (
        mock.patch("torch.Generator", _Random),
        mock.patch("torch.tensor", _sent(torch.tensor)),
        mock.patch("torch.as_tensor", _sent(torch.as_tensor)),
        mock.patch("pyro_hoim._modes._is_in_mode", return_value=False),  # the device is a mode, not to be left
        _Generators(),
        _Device(waits),
    ):
        yield waits
