"""Checks of the terms of a root structure. Private to :mod:`pyro_hoim.generalized_root`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

import numpy as np
import numpy.typing as npt

from ..errors import check_unique, is_whole, refused, unexpected, wrong_type
from ..schema import Domain

Key = tuple[int, int]
Positions = npt.NDArray[np.int64]

LARGEST_SET = 170
"""Variables of a set: 171! is beyond the largest number."""


def set_names(given: object, argument: str) -> tuple[str, ...]:
    """A set of variables as a tuple of names."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise wrong_type(argument, "sequences of variable names", received=repr(given))
    names = tuple(cast("Iterable[str]", given))
    check_unique(names, argument)
    return names


def check_key(key: object) -> Key:
    """A key (j, l) with 1 <= l <= j, or an error."""
    items: Sequence[object] = cast("tuple[object, ...]", key) if isinstance(key, tuple) else ()
    if len(items) != 2 or not all(is_whole(item) for item in items):
        raise unexpected("terms", "keys (j, l) of two whole numbers", key)
    j, length = cast("Key", items)
    if not 1 <= length <= j:
        raise unexpected("terms", "keys (j, l) with 1 <= l <= j", key)
    if length > LARGEST_SET:
        raise unexpected("terms", f"sets of up to {LARGEST_SET} variables, for which l! is a number", key)
    return j, length


def named_positions(domain: Domain, key: Key, tuples: object) -> Positions:
    """Schema positions (m, l) of sets of names."""
    if isinstance(tuples, str) or not isinstance(tuples, Iterable):
        raise wrong_type(f"terms[{key}]", "sequences of variable names", received=repr(tuples))
    rows: list[tuple[int, ...]] = []
    for given in cast("Iterable[object]", tuples):
        names = set_names(given, f"terms[{key}]")
        if len(names) != key[1]:
            raise unexpected(f"terms[{key}]", f"sets of {key[1]} variables", names)
        rows.append(domain.indices(names))
    return np.array(rows, dtype=np.int64).reshape(len(rows), key[1])


def sorted_rows(domain: Domain, key: Key, rows: Positions) -> Positions:
    """Positions with rows sorted, inside and among each other; refuses repeated positions and rows."""
    ordered = np.sort(rows, axis=1)
    ordered = np.ascontiguousarray(ordered[np.lexsort(ordered.T[::-1])])
    repeated = (ordered[:, 1:] == ordered[:, :-1]).any(axis=1)
    if repeated.any():
        shown = ":".join(domain.names[i] for i in ordered[repeated.argmax()])
        problem = f"the variables of a set must be distinct, received {shown}"
        raise refused(f"terms[{key}]", problem, code="repeated-name")
    same = (ordered[1:] == ordered[:-1]).all(axis=1)
    if same.any():
        shown = ":".join(domain.names[i] for i in ordered[same.argmax()])
        raise refused(f"terms[{key}]", f"sets must be unique, but {shown} is repeated", code="repeated-name")
    ordered.setflags(write=False)
    return ordered
