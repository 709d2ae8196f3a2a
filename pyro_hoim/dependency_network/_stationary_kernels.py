"""Compiled loops of stationary laws (Numba, CPU): a node update of a law, and elimination of states.

A law is a flat array over the joint states, last variable fastest. A fibre of a node is the set of states that differ
in its variable alone; ``levels`` states that lie ``stride`` apart.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..compute.jit import njit

Floats = NDArray[Any]
Ints = NDArray[Any]

_PANEL = 64


@njit(cache=True)
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


@njit(cache=True)
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


@njit(cache=True)
def eliminate_panel(matrix: Floats, low: int, high: int) -> None:
    """Take the states ``low`` to ``high - 1`` out of a chain of ``high`` states, the last one first, in place.

    Afterwards matrix[i, j] of a state j taken out and an earlier i is the expected number of visits to j per step of
    i, and the rows of the states taken out lead to earlier states only. The block of the states before ``low`` still
    lacks the product of the two, which the caller adds. Where a state is never left, entries become infinite or NaN.
    """
    for j in range(high - 1, low - 1, -1):
        leaving = 0.0
        for c in range(j):
            leaving += matrix[j, c]
        for i in range(j):
            share = matrix[i, j] / leaving if leaving > 0.0 else np.inf
            matrix[i, j] = share
            if share > 0.0:
                for c in range(low if i < low else 0, j):
                    matrix[i, c] += share * matrix[j, c]


@njit(cache=True)
def laws_of_visits(matrix: Floats) -> Floats:
    """Stationary law from the expected visits above the diagonal of an eliminated chain."""
    n = len(matrix)
    law = np.zeros(n)
    law[0] = 1.0
    for k in range(n):  # row by row, as the matrix is stored
        if law[k] > 1e200:
            law /= law[k]
        for j in range(k + 1, n):
            law[j] += law[k] * matrix[k, j]
    return law / law.sum()


def stationary_by_elimination(matrix: Floats) -> Floats:
    """Stationary law of a transition matrix (rows sum to one) that leads from every state to state 0; overwrites it.

    States are taken out from the last on, the chain being watched only while it is among the others. No two numbers
    are subtracted, so every probability, however small, is right to some units in the last places, and chains that
    hardly ever leave a set of states are solved as well as any. NaN where the probability of leaving is below the
    range of numbers. Takes 2/3 n^3 operations, nearly all of them in matrix products.
    """
    high = len(matrix)
    with np.errstate(invalid="ignore", over="ignore"):
        while high > 1:
            low = max(1, high - _PANEL)
            eliminate_panel(matrix, low, high)
            matrix[:low, :low] += matrix[:low, low:high] @ matrix[low:high, :low]
            high = low
        return laws_of_visits(matrix)
