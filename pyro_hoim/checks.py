"""Checks of tensors that are arguments; :mod:`pyro_hoim.errors` has those that need no torch."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from .errors import InputError, InputTypeError, is_whole

__all__ = [
    "check_finite",
    "check_shape",
    "checked_sample_shape",
    "is_hidden",
    "is_transformed",
    "refuse_transforms",
]


def check_shape(tensor: torch.Tensor, event_shape: Sequence[int], argument: str) -> None:
    """Raise :class:`InputError` unless the rightmost dimensions of ``tensor`` equal ``event_shape``."""
    expected = tuple(event_shape)
    received = tuple(tensor.shape)
    if len(received) < len(expected) or received[len(received) - len(expected) :] != expected:
        wanted = "(..., " + ", ".join(map(str, expected)) + ")"
        raise InputError(f"{argument}: expected shape {wanted}, received {received}")


def checked_sample_shape(sample_shape: object) -> torch.Size:
    """The leading dimensions of draws, refused unless they are a sequence of whole numbers from 0.

    Raises:
        InputTypeError: no sequence, or entries that are not whole numbers.
        InputError: a negative size.

    Example:
        >>> checked_sample_shape([2, 3])
        torch.Size([2, 3])
    """
    wanted = f"sample_shape: expected a sequence of whole numbers from 0, such as (1000,), received {sample_shape!r}"
    if not isinstance(sample_shape, Sequence) or not all(map(is_whole, sample_shape)):
        raise InputTypeError(wanted + (f"; write ({sample_shape},)" if is_whole(sample_shape) else ""))
    if any(size < 0 for size in sample_shape):
        raise InputError(wanted)
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
        raise InputError(
            f"{what}: torch.func transformations cannot go through sums over data-dependent grids; give a batch of psi "
            "instead of vmap and use backward() instead of torch.func.grad"
        )


def check_finite(tensor: torch.Tensor, argument: str) -> None:
    """Raise :class:`InputError` if ``tensor`` holds NaN or an infinity, where its values can be looked at."""
    if tensor.is_floating_point() and not is_hidden(tensor):
        bad = ~torch.isfinite(tensor)
        if bool(bad.any()):
            where = tuple(int(i) for i in bad.nonzero()[0])
            raise InputError(
                f"{argument}: expected finite numbers, received {tensor[where].item()} at index {where} "
                f"({int(bad.sum())} such entries)"
            )
