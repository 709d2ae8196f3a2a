"""Compiled loops over many small models of one table (Numba, CPU). Imported when first needed."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ...compute.jit import njit, write

# Modes of many log-linear posteriors over one table by Newton's method (Numba, CPU). Imported when first needed.

_FLAGS = {"reassoc", "contract", "nsz"}
_MAX_STEPS, _MAX_HALVINGS = 200, 60
_DECREMENT = 1e-14


@njit(fastmath=_FLAGS)
def log_laws(design: NDArray[np.float64], theta: NDArray[np.float64], probs: NDArray[np.float64]) -> float:
    """Log Z of theta (P,) over cells with statistics (P, C); fills their probabilities (C,)."""
    probs[:] = 0.0
    for j in range(len(theta)):
        for c in range(len(probs)):
            probs[c] += theta[j] * design[j, c]
    top = probs[0]
    for c in range(len(probs)):
        top = max(top, probs[c])
    total = 0.0
    for c in range(len(probs)):
        probs[c] = math.exp(probs[c] - top)
        total += probs[c]
    for c in range(len(probs)):
        probs[c] /= total
    return top + math.log(total)


@njit(fastmath=_FLAGS)
def cholesky_in_place(matrix: NDArray[np.float64]) -> float:
    """Lower factor of a symmetric matrix in its lower half; its log determinant, NaN unless positive definite."""
    log_det = 0.0
    for i in range(len(matrix)):
        for j in range(i + 1):
            value = matrix[i, j]
            for k in range(j):
                value -= matrix[i, k] * matrix[j, k]
            if i == j:
                if not value > 0.0:
                    return math.nan
                matrix[i, i] = math.sqrt(value)
                log_det += math.log(value)
            else:
                matrix[i, j] = value / matrix[j, j]
    return log_det


@njit(cache=True, fastmath=_FLAGS)
def newton_modes(
    design: NDArray[np.float64],
    chosen: NDArray[np.bool_],
    target: NDArray[np.float64],
    total: float,
    precision: NDArray[np.float64],
    centre: NDArray[np.float64],
    theta: NDArray[np.float64],
    log_det: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Largest value (M,) of t theta - n log Z - sum of precision (theta - centre)^2 / 2 over chosen coordinates.

    ``design`` (P, C) holds the statistics of the cells, ``chosen`` (M, P) the coordinates of every model; the others
    are 0. Fills theta (M, P), where it starts from, and the log determinants (M,) of minus the Hessian there. A value
    is NaN where no maximum was found.
    """
    num, cells = len(chosen), design.shape[1]
    values = np.empty(num)
    probs = np.empty(cells)
    for m in range(num):
        # The coordinates of this model side by side, and the value where they start.
        index = np.flatnonzero(chosen[m])
        size = len(index)
        part = np.empty((size, cells))
        point, mean, step = np.empty(size), np.empty(size), np.empty(size)
        for i in range(size):
            write(part[i], design[index[i]])
            point[i] = theta[m, index[i]]
        centred = np.empty((size, cells))
        hessian, trial = np.empty((size, size)), np.empty(size)
        log_z = log_laws(part, point, probs)
        value = -total * log_z
        for i in range(size):
            off = point[i] - centre[index[i]]
            value += target[index[i]] * point[i] - 0.5 * precision[index[i]] * off * off
        is_done = False
        log_det[m] = 0.0
        # Newton steps until one no longer promises anything.
        for _ in range(_MAX_STEPS):
            for i in range(size):
                mean[i] = 0.0
                for c in range(cells):
                    mean[i] += probs[c] * part[i, c]
                for c in range(cells):
                    centred[i, c] = part[i, c] - mean[i]
                off = point[i] - centre[index[i]]
                trial[i] = target[index[i]] - total * mean[i] - precision[index[i]] * off
                step[i] = trial[i]
            # Minus the Hessian: the covariance of the statistics, and the precision of the prior.
            for i in range(size):
                for j in range(i + 1):
                    entry = 0.0
                    for c in range(cells):
                        entry += probs[c] * centred[i, c] * centred[j, c]
                    hessian[i, j] = total * entry
                hessian[i, i] += precision[index[i]]
            log_det[m] = cholesky_in_place(hessian)
            if math.isnan(log_det[m]):
                break
            # The step solves by the factor, forward and backward.
            for i in range(size):
                for k in range(i):
                    step[i] -= hessian[i, k] * step[k]
                step[i] /= hessian[i, i]
            for i in range(size - 1, -1, -1):
                for k in range(i + 1, size):
                    step[i] -= hessian[k, i] * step[k]
                step[i] /= hessian[i, i]
            slope = 0.0
            for i in range(size):
                slope += trial[i] * step[i]
            # Near the maximum the value no longer resolves a step, and full steps are safe.
            is_done = slope <= _DECREMENT
            is_safe = slope <= 1e-11 * (1.0 + abs(value))
            share, value_there = 1.0, value
            # Halved until the value rises enough.
            for _halving in range(_MAX_HALVINGS):
                for i in range(size):
                    trial[i] = point[i] + share * step[i]
                log_z = log_laws(part, trial, probs)
                value_there = -total * log_z
                for i in range(size):
                    off = trial[i] - centre[index[i]]
                    value_there += target[index[i]] * trial[i] - 0.5 * precision[index[i]] * off * off
                if is_safe or value_there >= value + 1e-4 * share * slope:
                    break
                share *= 0.5
            value = value_there
            write(point, trial)
            if is_done:
                break
        for i in range(size):
            theta[m, index[i]] = point[i]
        values[m] = value if is_done else math.nan
    return values


# Perfect elimination of many small graphs (Numba, CPU). Imported when first needed.


@njit(cache=True)
def eliminate_graphs(
    pairs: NDArray[np.bool_], ends: NDArray[np.int64], num_variables: int, closed: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Size of the largest clique of each chordal graph (M,), -1 for others; fills the sets of eliminations (M, d).

    Row k of ``pairs`` says which pairs, with positions ``ends`` (P, 2), are adjacent. A vertex whose remaining
    neighbours are a clique is taken away until none is left; ``closed`` gets the bit set of these neighbours with the
    vertex, at the place of the vertex, and 0 where the elimination stopped.
    """
    num = len(pairs)
    largest = np.zeros(num, dtype=np.int64)
    around = np.zeros(num_variables, dtype=np.int64)
    one = np.int64(1)
    for k in range(num):
        # Neighbours of every vertex as bits.
        around[:] = 0
        for j in range(len(ends)):
            if pairs[k, j]:
                around[ends[j, 0]] |= one << ends[j, 1]
                around[ends[j, 1]] |= one << ends[j, 0]
        left = (one << num_variables) - one
        closed[k] = 0
        is_moving = True
        # The first vertex whose remaining neighbours are a clique goes; without one the graph is not chordal.
        while left != 0 and is_moving:
            is_moving = False
            for v in range(num_variables):
                if (left >> v) & one == 0:
                    continue
                near = around[v] & left
                is_clique, size = True, 1
                for u in range(num_variables):
                    if (near >> u) & one:
                        size += 1
                        if near & ~(around[u] | (one << u)):
                            is_clique = False
                            break
                if is_clique:
                    closed[k, v] = near | (one << v)
                    largest[k] = max(largest[k], size)
                    left ^= one << v
                    is_moving = True
                    break
        if left != 0:
            largest[k] = -1
    return largest
