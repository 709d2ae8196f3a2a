"""Compiled counting of weighted states in the margins of many sets (Numba, CPU). Imported when first needed.

Sets are laid out as by the other kernels: first cell and first member (one more than sets), positions and strides.
"""
# pyright: reportUntypedFunctionDecorator=false, reportUnknownParameterType=false, reportMissingParameterType=false

from __future__ import annotations

import numpy as np

from ....compute.jit import njit

_LANES = 2048  # states whose cells are looked up together


@njit(nogil=True, cache=True, error_model="numpy")
def add_margins(codes, weights, first, members, variables, strides, begin, step, total):
    """Add the weights (N,) of states, codes (d, N), to their cells of every ``step``-th set from ``begin``."""
    num = codes.shape[1]
    index = np.empty(_LANES, dtype=np.int64)
    for start in range(0, num, _LANES):
        size = min(_LANES, num - start)
        for e in range(begin, first.shape[0], step):
            index[:size] = first[e]
            for j in range(members[e], members[e + 1]):
                column, stride = codes[variables[j]], strides[j]
                for b in range(size):
                    index[b] += stride * np.int64(column[start + b])
            for b in range(size):
                total[index[b]] += weights[start + b]
