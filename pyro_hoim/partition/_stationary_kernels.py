"""Compiled loops of stationary laws (Numba, CPU): a node update of a law, and elimination of states.

A law is a flat array over the joint states, last variable fastest. A fibre of a node is the set of states that differ
in its variable alone; ``levels`` states that lie ``stride`` apart.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

__all__ = ["mix_updates", "stationary_by_elimination", "update_node"]

Floats = NDArray[Any]
Ints = NDArray[Any]


@njit(nogil=True, cache=True)
def update_node(law: Floats, table: Floats, levels: int, stride: int) -> None:
    """Replace a law by its m-projection, the mass of every fibre times the node's table, in place."""
    block = levels * stride
    for start in range(0, len(law), block):
        for first in range(start, start + stride):
            mass = 0.0
            for x in range(first, first + block, stride):
                mass += law[x]
            for x in range(first, first + block, stride):
                law[x] = mass * table[x]


@njit(nogil=True, cache=True)
def mix_updates(law: Floats, tables: Floats, levels: Ints, strides: Ints, weights: Floats) -> Floats:
    """Weighted mean of the m-projections of a law onto all nodes: one step of the random scan."""
    result = np.zeros_like(law)
    for i in range(len(tables)):
        table, stride, weight = tables[i], strides[i], weights[i]
        block = levels[i] * stride
        for start in range(0, len(law), block):
            for first in range(start, start + stride):
                mass = 0.0
                for x in range(first, first + block, stride):
                    mass += law[x]
                mass *= weight
                for x in range(first, first + block, stride):
                    result[x] += mass * table[x]
    return result


@njit(nogil=True, cache=True)
def stationary_by_elimination(matrix: Floats) -> Floats:
    """Stationary law of a transition matrix (rows sum to one) that leads from every state to state 0; overwrites it.

    States are taken out from the last on, the chain being watched only while it is among the others. No two numbers
    are subtracted, so every probability, however small, is right to a few units in the last places. NaN where the
    probability of leaving a state is below the range of numbers.
    """
    n = len(matrix)
    for k in range(n - 1, 0, -1):
        leaving = 0.0
        for j in range(k):
            leaving += matrix[k, j]
        if leaving == 0.0:
            return np.full(n, np.nan)
        for i in range(k):
            share = matrix[i, k] / leaving
            matrix[i, k] = share
            if share > 0.0:
                for j in range(k):
                    matrix[i, j] += share * matrix[k, j]
    law = np.zeros(n)
    law[0] = 1.0
    for k in range(1, n):
        for i in range(k):
            law[k] += law[i] * matrix[i, k]
        if law[k] > 1e200:
            law[: k + 1] /= law[k]
    return law / law.sum()
