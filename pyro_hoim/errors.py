"""Exceptions, warnings and argument checks shared by every layer.

A message names the argument, what was expected, what was received and, where there is one, the next step.
Everything a caller can get wrong is a subclass of :class:`ValueError` or :class:`TypeError`.
"""

from __future__ import annotations

import difflib
import math
import numbers
from collections.abc import Iterable, Sequence
from typing import TypeGuard

import torch

__all__ = [
    "ConvergenceWarning",
    "HoimError",
    "InputError",
    "InputTypeError",
    "IntractableError",
    "MissingDataError",
    "ModelFileError",
    "NonexistentEstimateWarning",
    "UnknownNameError",
    "check_finite",
    "check_names",
    "check_shape",
    "check_unique",
    "checked_sample_shape",
    "is_hidden",
    "is_transformed",
    "is_whole",
    "refuse_transforms",
    "rounded_power",
    "size_text",
]


class HoimError(Exception):
    """Base class of every exception raised on purpose by this library."""


class InputError(HoimError, ValueError):
    """An argument has a value that cannot be used; nothing was computed."""


class InputTypeError(HoimError, TypeError):
    """An argument has a type that cannot be used; nothing was computed."""


class UnknownNameError(InputError):
    """A variable or level name is not in the domain; the closest known names are listed."""


class MissingDataError(InputError):
    """Observations hold missing cells and the operation was not told what to do with them."""


class IntractableError(HoimError, ValueError):
    """An exact computation would exceed its budget, the quantity does not exist, or an estimate of it is contradicted.

    The message states the required cells, the budget and the option that raises it.
    """


class ModelFileError(InputError):
    """A model file is unreadable, damaged, of another program or of another format version."""


class ConvergenceWarning(UserWarning):
    """An iterative method stopped before its criterion was met; the result carries the status."""


class NonexistentEstimateWarning(UserWarning):
    """The maximum-likelihood estimate has infinite components; the result names the combinations."""


def is_whole(value: object) -> TypeGuard[int]:
    """Whether a value is an integer, of Python or of NumPy, and no boolean.

    Example:
        >>> is_whole(3), is_whole(3.0), is_whole(True)
        (True, False, False)
    """
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def size_text(number: int, unit: str = "") -> str:
    """A whole number from 0 in words for a message, of any size; from 10^18 on with three digits.

    Example:
        >>> size_text(1024), size_text(2**31, "cells"), size_text(2**1100, "cells")
        ('1024', '2147483648 cells (about 2.15e+09)', 'about 1.36e+331 cells')
    """
    suffix = f" {unit}" if unit else ""
    if number < 10**6:
        return f"{number}{suffix}"
    if number < 10**18:
        return f"{number}{suffix} (about {number:.3g})"
    mantissa, exponent = rounded_power(number, 2)
    return f"about {mantissa}e+{exponent}{suffix}"


def rounded_power(number: int, digits: int) -> tuple[str, int]:
    """Mantissa with some digits after the point, and power of ten, of a whole number from 1 of any size.

    Python prints no integer of more than 4,300 digits and turns none above 10^308 into a float; this does without.

    Example:
        >>> rounded_power(2**20_000, 2), rounded_power(9_999, 1)
        (('3.98', 6020), ('1.0', 4))
    """
    logarithm = math.log10(number)
    exponent = math.floor(logarithm)
    mantissa = f"{10 ** (logarithm - exponent):.{digits}f}"
    return (mantissa, exponent) if float(mantissa) < 10 else (f"{1:.{digits}f}", exponent + 1)


def check_unique(names: Sequence[str], argument: str) -> None:
    """Raise :class:`InputError` if a name occurs twice."""
    seen: set[str] = set()
    repeated = sorted({str(n) for n in names if n in seen or seen.add(n)})
    if repeated:
        raise InputError(f"{argument}: names must be unique, but {', '.join(map(repr, repeated))} is repeated")


def check_names(names: Iterable[str], known: Sequence[str], argument: str, noun: str = "variable") -> None:
    """Raise :class:`UnknownNameError` for the first name that is not known, listing the closest ones."""
    for name in names:
        if name not in known:
            close = difflib.get_close_matches(str(name), [str(k) for k in known], n=3, cutoff=0.5)
            shown = close or [str(k) for k in known[:6]]
            hint = ("did you mean " if close else "known: ") + ", ".join(map(repr, shown))
            if not close and len(known) > len(shown):
                hint += ", ..."
            raise UnknownNameError(f"{argument}: unknown {noun} {name!r}; {hint}")


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
