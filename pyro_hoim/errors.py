"""Exceptions, warnings and checks of names and numbers, shared by every layer; nothing here imports torch.

A message names the argument, what was expected, what was received and, where there is one, the next step.
Everything a caller can get wrong is a subclass of :class:`ValueError` or :class:`TypeError`.
"""

from __future__ import annotations

import difflib
import math
import numbers
from collections.abc import Iterable, Sequence
from typing import TypeGuard

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
    "check_names",
    "check_unique",
    "is_whole",
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
