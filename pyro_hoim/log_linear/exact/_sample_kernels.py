"""Compiled loop of perfect sampling (Numba, CPU). Imported when first needed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...compute.jit import njit

Ints = NDArray[Any]
Floats = NDArray[Any]


@njit(nogil=True, cache=True, error_model="numpy")
def trace_back(V: Floats, visits: Ints, outer: Ints, uniforms: Floats, states: Ints, begin: int, end: int) -> None:
    """Draw columns ``begin`` to ``end`` of states (d, n), one variable at a time.

    Args:
        V: values of all nodes.
        visits: rows (variable, levels; place and stride in the first node, in the second; first outer variable of the
            first node, of the second, and the end).
        outer: rows (variable, stride) of the other variables of the nodes.
        uniforms: numbers in [0, 1), (visits, n).
        states: out; zero where a variable has one level.
        begin: first column.
        end: end of the columns.
    """
    count = end - begin
    x, y = np.empty(count, np.int64), np.empty(count, np.int64)
    for k in range(len(visits)):
        variable, levels = visits[k, 0], visits[k, 1]
        x_step, y_step = visits[k, 3], visits[k, 5]
        x[:] = visits[k, 2]
        y[:] = visits[k, 4]
        for j in range(visits[k, 6], visits[k, 7]):
            v, step = outer[j, 0], outer[j, 1]
            for i in range(count):
                x[i] += states[v, begin + i] * step
        for j in range(visits[k, 7], visits[k, 8]):
            v, step = outer[j, 0], outer[j, 1]
            for i in range(count):
                y[i] += states[v, begin + i] * step
        for i in range(count):
            total = 0.0
            for level in range(levels):
                total += np.float64(V[x[i] + level * x_step]) * np.float64(V[y[i] + level * y_step])
            threshold = uniforms[k, begin + i] * total
            total = 0.0
            code = 0
            for level in range(levels - 1):
                total += np.float64(V[x[i] + level * x_step]) * np.float64(V[y[i] + level * y_step])
                code += threshold >= total
            states[variable, begin + i] = code
