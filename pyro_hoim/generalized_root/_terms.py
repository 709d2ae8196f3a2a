"""Checks of the terms of a root structure. Private to :mod:`pyro_hoim.generalized_root`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

import numpy as np
import numpy.typing as npt

from ..errors import InputError, InputTypeError, check_unique, is_whole
from ..schema import Domain

Key = tuple[int, int]
Positions = npt.NDArray[np.int64]

LARGEST_SET = 170
"""Variables of a set: 171! is beyond the largest number."""


def set_names(given: object, argument: str) -> tuple[str, ...]:
    """A set of variables as a tuple of names."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise InputTypeError(f"{argument}: expected sequences of variable names, received {given!r}")
    names = tuple(cast("Iterable[str]", given))
    check_unique(names, argument)
    return names


def check_key(key: object) -> Key:
    """A key (j, l) with 1 <= l <= j, or an error."""
    items: Sequence[object] = cast("tuple[object, ...]", key) if isinstance(key, tuple) else ()
    if len(items) != 2 or not all(is_whole(item) for item in items):
        raise InputError(f"terms: expected keys (j, l) of two whole numbers, received {key!r}")
    j, length = cast("Key", items)
    if not 1 <= length <= j:
        raise InputError(f"terms: expected keys (j, l) with 1 <= l <= j, received {key!r}")
    if length > LARGEST_SET:
        raise InputError(
            f"terms: expected sets of up to {LARGEST_SET} variables, for which l! is a number, received {key!r}"
        )
    return j, length


def named_positions(domain: Domain, key: Key, tuples: object) -> Positions:
    """Schema positions (m, l) of sets of names."""
    if isinstance(tuples, str) or not isinstance(tuples, Iterable):
        raise InputTypeError(f"terms[{key}]: expected sequences of variable names, received {tuples!r}")
    rows: list[tuple[int, ...]] = []
    for given in cast("Iterable[object]", tuples):
        names = set_names(given, f"terms[{key}]")
        if len(names) != key[1]:
            raise InputError(f"terms[{key}]: expected sets of {key[1]} variables, received {names!r}")
        rows.append(domain.indices(names))
    return np.array(rows, dtype=np.int64).reshape(len(rows), key[1])


def sorted_rows(domain: Domain, key: Key, rows: Positions) -> Positions:
    """Positions with rows sorted, inside and among each other; refuses repeated positions and rows."""
    ordered = np.sort(rows, axis=1)
    ordered = np.ascontiguousarray(ordered[np.lexsort(ordered.T[::-1])])
    repeated = (ordered[:, 1:] == ordered[:, :-1]).any(axis=1)
    if repeated.any():
        shown = ":".join(domain.names[i] for i in ordered[repeated.argmax()])
        raise InputError(f"terms[{key}]: the variables of a set must be distinct, received {shown}")
    same = (ordered[1:] == ordered[:-1]).all(axis=1)
    if same.any():
        shown = ":".join(domain.names[i] for i in ordered[same.argmax()])
        raise InputError(f"terms[{key}]: sets must be unique, but {shown} is repeated")
    ordered.setflags(write=False)
    return ordered
