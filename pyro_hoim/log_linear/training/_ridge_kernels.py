"""Compiled loop of the ordinal ridge (Numba, CPU). Imported when first needed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...compute.jit import njit


@njit(nogil=True, cache=True, error_model="numpy")
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
