"""Exact minimum of a quadratic model with an l1 penalty, for models that coordinate descent does not solve."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import scipy.linalg
import scipy.sparse
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_RIDGE = 1e-13  # of the diagonal; covariances at large means are singular within rounding


def curvature_matrix(starts: Integers, places: Integers, values: Floats, orders: Integers, hessians: Floats) -> Floats:
    """Hessian (F, F) of an objective in its coefficients."""
    rows, k, _ = hessians.shape
    lines = places * k + np.repeat(orders, np.diff(starts))
    features: Any = scipy.sparse.csc_matrix((values, lines, starts), shape=(rows * k, len(orders)))
    blocks: Any = scipy.sparse.bsr_matrix((hessians, np.arange(rows), np.arange(rows + 1)), shape=(rows * k, rows * k))
    return cast("Floats", (features.T @ (blocks @ features)).toarray())


def penalised_minimum(
    gradients: Floats, curvature: Floats, l1: Floats, coefficients: Floats, start: Floats, tolerance: float
) -> Floats:
    r"""Step s that minimises :math:`g \cdot s + \tfrac12 s^T H s + \sum_f \lambda_f |c_f + s_f|`.

    Signs are guessed and corrected one change at a time (feature-sign search): given the signs the minimum is that of a
    quadratic; on the way to it the best of the points where a coefficient becomes zero is taken. Ends at the minimum
    whatever the condition of H, to which 1e-13 of its diagonal is added.

    References:
        Honglak Lee, Alexis Battle, Rajat Raina and Andrew Y. Ng, Efficient sparse coding algorithms, 2006.
    """
    scale = np.sqrt(np.maximum(np.diag(curvature), 0.0))
    is_free = scale > 0.0
    scale[~is_free] = 1.0
    matrix = curvature / scale[:, None] / scale
    matrix[np.diag_indices_from(matrix)] += _RIDGE
    slopes, penalties = gradients / scale, l1 / scale
    origin = coefficients * scale
    point = np.where(is_free, (coefficients + start) * scale, origin)
    limits = tolerance / scale

    def value(at: Floats) -> float:
        move = at - origin
        return float(slopes @ move + 0.5 * move @ (matrix @ move) + penalties @ np.abs(at))

    signs = np.sign(point)
    active = is_free & ((point != 0.0) | (l1 == 0.0))
    for _ in range(20 * len(point) + 20):
        inside = np.flatnonzero(active)
        wanted = -(slopes + penalties * signs) + matrix[:, ~active] @ (origin - point)[~active]
        target = point.copy()
        target[inside] = origin[inside] + _solved(matrix[np.ix_(inside, inside)], wanted[inside])
        crossing = inside[(penalties[inside] > 0.0) & (target[inside] * signs[inside] < 0.0)]
        if len(crossing):
            shares = np.unique(np.clip(point[crossing] / (point[crossing] - target[crossing]), 0.0, 1.0))
            trials = [_between(point, target, share, crossing) for share in (*shares, 1.0)]
            point = min(trials, key=value)
        else:
            point = target
        signs = np.sign(point)
        active = is_free & ((point != 0.0) | (l1 == 0.0))
        if len(crossing):
            continue
        slope = slopes + matrix @ (point - origin)
        excess = np.where(active | ~is_free, -np.inf, np.abs(slope) - penalties - limits)
        if not len(excess) or excess.max() <= 0.0:
            break
        new = int(np.argmax(excess))
        active[new] = True
        signs[new] = -np.sign(slope[new])
    return np.where(is_free, point / scale - coefficients, 0.0)


def _between(start: Floats, end: Floats, share: float, crossing: Integers) -> Floats:
    """A point on the way; what crosses zero just there is zero."""
    found = start + share * (end - start)
    distance = np.abs(end - start)[crossing]
    found[crossing[np.abs(found[crossing]) <= 1e-14 * distance]] = 0.0
    return found


def _solved(matrix: Floats, right: Floats) -> Floats:
    """Solution of a system with a unit diagonal; by least squares where rounding has made it indefinite."""
    if not len(right):
        return right
    try:
        factor = scipy.linalg.cho_factor(matrix)
    except np.linalg.LinAlgError:
        return cast("Floats", np.linalg.lstsq(matrix, right, rcond=1e-12)[0])
    found = scipy.linalg.cho_solve(factor, right)
    return cast("Floats", found + scipy.linalg.cho_solve(factor, right - matrix @ found))
