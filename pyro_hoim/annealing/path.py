"""Checks of paths of temperatures."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from ..errors import out_of_range

__all__ = [
    "checked_path",
]


def checked_path(values: Sequence[float]) -> tuple[float, ...]:
    """Temperatures of the user as floats.

    Raises:
        InputError: they do not rise strictly from 0 to 1.
    """
    try:
        path = tuple(float(v) for v in values)
    except (TypeError, ValueError):
        raise out_of_range("temperatures", "numbers that rise from 0 to 1", values) from None
    if len(path) < 2 or path[0] != 0 or path[-1] != 1 or not all(a < b for a, b in itertools.pairwise(path)):
        shown = f"{path[:3]} ... {path[-1:]}" if len(path) > 4 else f"{path}"
        raise out_of_range("temperatures", "inverse temperatures that rise strictly from 0 to 1", received=shown)
    return path
