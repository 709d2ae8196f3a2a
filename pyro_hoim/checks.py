"""Checks of tensors that are arguments; :mod:`pyro_hoim.errors` has those that need no torch."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from .budgets import check_cells
from .errors import MissingDataError, is_whole, out_of_range, refused, unexpected, wrong_shape, wrong_type

__all__ = [
    "array_of",
    "broadcast_shapes",
    "check_below_infinity",
    "check_dense",
    "check_exact_shape",
    "check_finite",
    "check_shape",
    "checked_device",
    "checked_floating",
    "checked_sample_shape",
    "is_hidden",
    "is_transformed",
    "refuse_transforms",
]


def array_of(values: Any, argument: str) -> np.ndarray:
    """Values as an array of NumPy, tensors without their gradient; MissingDataError for cells that a mask hides."""
    if isinstance(values, torch.Tensor):
        tensor = (values.to_dense() if values.layout != torch.strided else values).detach().cpu()
        return (tensor.double() if tensor.dtype is torch.bfloat16 else tensor).numpy()
    if hidden := int(np.ma.count_masked(values)) if isinstance(values, np.ma.MaskedArray) else 0:
        problem = f"{hidden} of {values.size} cells of the array are masked"
        raise MissingDataError(problem, argument=argument, hint="fill them, or leave their rows out")
    try:
        return np.asarray(values)
    except ValueError:
        raise unexpected(argument, "rows of one length", received="others", code="wrong-shape") from None


def broadcast_shapes(*shapes: Sequence[int]) -> torch.Size:
    """As ``torch.broadcast_shapes``, whose first call imports SymPy, which costs a process as much as pandas does.

    Example:
        >>> broadcast_shapes((2,), (3, 1), (1, 1, 1))
        torch.Size([1, 3, 2])
        >>> broadcast_shapes((2,), (3,))
        Traceback (most recent call last):
            ...
        RuntimeError: shapes (2,), (3,) do not broadcast
    """
    if torch.jit.is_tracing():  # sizes are tensors then
        return torch.broadcast_shapes(*shapes)
    sizes = [1] * max(map(len, shapes), default=0)
    for shape in shapes:
        for place, size in enumerate(shape, len(sizes) - len(shape)):
            if size != 1:
                if sizes[place] not in (1, size):
                    raise RuntimeError(f"shapes {', '.join(str(tuple(each)) for each in shapes)} do not broadcast")
                sizes[place] = size
    return torch.Size(sizes)


def check_shape(tensor: torch.Tensor | np.ndarray, event_shape: Sequence[int], argument: str) -> None:
    """Raise :class:`InputError` unless the rightmost dimensions of ``tensor`` equal ``event_shape``."""
    expected = tuple(event_shape)
    received = tuple(tensor.shape)
    if len(received) < len(expected) or received[len(received) - len(expected) :] != expected:
        wanted = f"(..., {', '.join(map(str, expected))})"
        raise wrong_shape(argument, wanted, received)


def check_exact_shape(array: torch.Tensor | np.ndarray, shape: Sequence[int], argument: str) -> None:
    """Raise :class:`InputError` unless an array or a tensor has a shape."""
    if tuple(array.shape) != tuple(shape):
        raise wrong_shape(argument, tuple(shape), array)


def check_dense(tensor: torch.Tensor, argument: str) -> None:
    """Raise :class:`InputTypeError` for a sparse tensor, and for one of the device ``meta``, which has no values.

    Example:
        >>> try:
        ...     check_dense(torch.eye(2).to_sparse(), "theta")
        ... except TypeError as error:
        ...     print(error)
        theta: expected a dense tensor, received torch.sparse_coo
    """
    if tensor.layout != torch.strided:
        raise wrong_type(argument, "a dense tensor", received=tensor.layout)
    if tensor.is_meta:
        raise wrong_type(argument, "a tensor with values", received="one of the device 'meta'")


def checked_floating(value: object, argument: str) -> torch.Tensor:
    """The value, or :class:`InputTypeError` unless it is a dense floating-point tensor."""
    if not isinstance(value, torch.Tensor):
        raise wrong_type(argument, "a floating-point tensor", value)
    if not value.is_floating_point():
        raise wrong_type(argument, "a floating-point tensor", received=value.dtype)
    check_dense(value, argument)
    return value


def checked_device(name: object, argument: str) -> torch.device:
    """The device of a name, or :class:`InputError` where PyTorch knows no such device or this machine has none.

    Example:
        >>> checked_device("cpu", "device")
        device(type='cpu')
        >>> checked_device("gpu", "device")
        Traceback (most recent call last):
            ...
        pyro_hoim.errors.InputError: device: expected a device that PyTorch can use here (cpu...), received 'gpu'
    """
    if not isinstance(name, str | torch.device):
        raise wrong_type(argument, "the name of a device", name)
    try:
        device = torch.device(name)
        float(torch.zeros(1, device=device))
    except (RuntimeError, AssertionError, NotImplementedError, ImportError) as error:
        here = ", ".join(["cpu", *(f"cuda:{k}" for k in range(torch.cuda.device_count()))])
        expected = f"a device that PyTorch can use here ({here})"
        raise unexpected(argument, expected, str(name), code="unknown-choice") from error
    return device


def checked_sample_shape(sample_shape: object, width: int = 1) -> torch.Size:
    """The leading dimensions of draws, refused unless they are a sequence of whole numbers from 0.

    IntractableError for draws of ``width`` cells each that have more than 2^27 cells together.

    Example:
        >>> checked_sample_shape([2, 3])
        torch.Size([2, 3])
    """
    wanted = "a sequence of whole numbers from 0, such as (1000,)"
    if not isinstance(sample_shape, Sequence) or not all(map(is_whole, sample_shape)):
        hint = f"write ({sample_shape},)" if is_whole(sample_shape) else None
        raise wrong_type("sample_shape", wanted, hint=hint, received=repr(sample_shape))
    if any(size < 0 for size in sample_shape):
        raise out_of_range("sample_shape", wanted, sample_shape)
    check_cells(math.prod(map(int, sample_shape)), width, "sample_shape")
    return torch.Size(map(int, sample_shape))


def is_transformed(tensor: torch.Tensor) -> bool:
    """Whether a torch.func transformation (grad, vmap, jvp) looks at the tensor; then only plain PyTorch will do."""
    return bool(torch._C._functorch.is_functorch_wrapped_tensor(tensor))  # pyright: ignore[reportAttributeAccessIssue]


def is_hidden(tensor: torch.Tensor) -> bool:
    """Whether the tensor is inside torch.func.vmap, where no value can be looked at: checks of values are left out."""
    functorch = torch._C._functorch  # pyright: ignore[reportAttributeAccessIssue]
    while functorch.is_functorch_wrapped_tensor(tensor):
        if functorch.is_batchedtensor(tensor):
            return True
        tensor = functorch.get_unwrapped(tensor)
    return False


def refuse_transforms(what: str, *tensors: torch.Tensor) -> None:
    """Raise :class:`InputError` for tensors of root models inside a torch.func transformation."""
    if any(map(is_transformed, tensors)):
        problem = "torch.func transformations cannot go through sums over data-dependent grids"
        hint = "give a batch of psi instead of vmap and use backward() instead of torch.func.grad"
        raise refused(what, problem, hint, code="no-method")


def check_finite(tensor: torch.Tensor, argument: str) -> None:
    """Raise :class:`InputError` if ``tensor`` holds NaN or an infinity, where its values can be looked at."""
    if tensor.is_floating_point() and not is_hidden(tensor):
        _refuse(tensor, ~torch.isfinite(tensor), argument, "finite numbers")


def check_below_infinity(tensor: torch.Tensor, argument: str) -> None:
    """Raise :class:`InputError` if ``tensor`` holds NaN or plus infinity, where its values can be looked at."""
    if not is_hidden(tensor):
        _refuse(tensor, ~(tensor < math.inf), argument, "finite numbers, or minus infinity where cells are impossible")


def _refuse(tensor: torch.Tensor, bad: torch.Tensor, argument: str, expected: str) -> None:
    """Raise :class:`InputError` that names the first entry that is bad."""
    if bool(bad.any()):
        where = tuple(int(i) for i in bad.nonzero()[0])
        received = f"{tensor[where].item()} at index {where} ({int(bad.sum())} such entries)"
        raise unexpected(argument, expected, received=received, code="not-finite")
