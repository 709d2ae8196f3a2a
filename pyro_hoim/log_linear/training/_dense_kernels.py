"""Compiled loops over axes of tables: dense sweep, centring, ordinal ridge (Numba, CPU). Imported when first needed."""

# pyright: reportConstantRedefinition=false

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...compute.jit import njit

_FLAGS = {"reassoc", "contract", "nsz"}


@njit(cache=True, fastmath=_FLAGS)
def scatter_up(steps: NDArray[np.int64], work: NDArray[Any]) -> None:
    """Spread nodes over the axes that their parents have more: parent (A, M, C) = or += child (A, C).

    A row of ``steps`` is (whether to add, position of the parent, position of the child, A, M, C).
    """
    for k in range(len(steps)):
        add, up, down, num_a, num_m, num_c = steps[k]
        if num_c == 1:
            for a in range(num_a):
                value = work[down + a]
                at = up + a * num_m
                if add:
                    for m in range(num_m):
                        work[at + m] += value
                else:
                    for m in range(num_m):
                        work[at + m] = value
        else:
            for a in range(num_a):
                source = down + a * num_c
                for m in range(num_m):
                    at = up + (a * num_m + m) * num_c
                    if add:
                        for c in range(num_c):
                            work[at + c] += work[source + c]
                    else:
                        for c in range(num_c):
                            work[at + c] = work[source + c]


@njit(cache=True, fastmath=_FLAGS)
def gather_down(steps: NDArray[np.int64], work: NDArray[Any]) -> None:
    """The same steps in reverse: child (A, C) = sum over M of parent (A, M, C)."""
    for k in range(len(steps) - 1, -1, -1):
        _, up, down, num_a, num_m, num_c = steps[k]
        if num_c == 1:
            for a in range(num_a):
                at = up + a * num_m
                total = 0.0
                for m in range(num_m):
                    total += work[at + m]
                work[down + a] = total
        else:
            for a in range(num_a):
                target = down + a * num_c
                at = up + a * num_m * num_c
                for c in range(num_c):
                    work[target + c] = work[at + c]
                for _ in range(1, num_m):
                    at += num_c
                    for c in range(num_c):
                        work[target + c] += work[at + c]


@njit(cache=True)
def centre(axes: NDArray[np.int64], values: NDArray[Any]) -> None:
    """Subtract means along axes, in place; a row of ``axes`` is (position of the table, A, M, C)."""
    for k in range(len(axes)):
        start, num_a, num_m, num_c = axes[k]
        for a in range(num_a):
            for c in range(num_c):
                at = start + a * num_m * num_c + c
                total = 0.0
                for m in range(num_m):
                    total += values[at + m * num_c]
                total /= num_m
                for m in range(num_m):
                    values[at + m * num_c] -= total


@njit(cache=True)
def apply_precision(axes: NDArray[np.int64], correlation: float, values: NDArray[np.float64]) -> None:
    """Multiply by the precision of a stationary AR(1) sequence along axes, in place.

    A row of ``axes`` is (position of the table, A, M, C): the M levels of the axis lie C entries apart, M from 2.
    """
    scale = 1 / (1 - correlation * correlation)
    inner = scale * (1 + correlation * correlation)
    off = -scale * correlation
    for k in range(len(axes)):
        start, num_a, num_m, num_c = axes[k]
        for a in range(num_a):
            for c in range(num_c):
                at = start + a * num_m * num_c + c
                before = values[at]
                here = values[at + num_c]
                values[at] = scale * before + off * here
                for _ in range(num_m - 2):
                    at += num_c
                    after = values[at + num_c]
                    values[at] = inner * here + off * (before + after)
                    before = here
                    here = after
                values[at + num_c] = scale * here + off * before
