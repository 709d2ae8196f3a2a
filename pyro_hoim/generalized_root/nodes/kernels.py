"""Node log partitions of many rows: value, mean and covariance of the root statistics (Numba, CPU).

Counts up to a few thousand are summed one by one from tables of roots and log factorials. Rows that reach larger
counts, and real values, go to the kernels of :mod:`._quadrature_kernels`, which are compiled when first needed.
"""
# pyright: reportUntypedFunctionDecorator=false, reportMissingParameterType=false

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ...compute.jit import njit
from ...errors import out_of_reach
from ._quadrature_kernels import add_far_counts, moments, number_values
from .families import IndicatorFamily, NodeFamily
from .user_family import UserFamily, user_moments

Floats = NDArray[np.float64]

TABLE = 4096
"""Counts below this are tabulated."""
_ROWS = 4096  # at about 0.1 ms each, of real values
NEGLIGIBLE = 45.0
"""Terms below exp(-45) = 3e-20 of the largest one are left out."""
_EPSILON = 2.220446049250313e-16


@njit
def _extend(tables, have, need):
    """Fill the tables of roots, log factorials and twice the logs of counts from ``have`` to ``need``."""
    k = tables.shape[0] - 2
    for x in range(have, need):
        number = float(x)
        for j in range(k):
            tables[j, x] = number ** (1.0 / (j + 1))
        if k > 1:
            tables[1, x] = math.sqrt(number)
        if k > 2:
            tables[2, x] = round(tables[2, x]) if round(tables[2, x]) ** 3 == number else tables[2, x]
        tables[k, x] = math.lgamma(number + 1.0)
        tables[k + 1, x] = 2.0 * math.log(number) if x > 0 else -1e300
    return max(have, need)


@njit(fastmath={"nnan", "nsz", "reassoc"})
def _largest(s, tables, row, first, end):
    """Largest entry from first to end, of s and of s plus a row of the tables."""
    highest, highest2 = s[first], s[first] + tables[row, first]
    for x in range(first, end):
        highest = max(highest, s[x])
        highest2 = max(highest2, s[x] + tables[row, x])
    return highest, highest2


@njit
def _scan(eta, tables, have, limit, s):
    """Logs of the terms from 0 to where the rest is negligible, also for E x^2; returns what the caller unpacks."""
    k = eta.shape[0]
    first, best, best2, top = np.int64(0), -np.inf, -np.inf, np.int64(0)
    # Blocks of counts, each a quarter longer than what lies before it.
    while first < limit:
        end = min(limit, first + max(32, first // 4))
        if end > have:
            have = _extend(tables, have, min(limit, max(end, 2 * have)))
        if k == 3:  # the usual order, in one pass
            one, two, three = eta[0], eta[1], eta[2]
            for x in range(first, end):
                s[x] = one * tables[0, x] + two * tables[1, x] + three * tables[2, x] - tables[3, x]
        else:
            for x in range(first, end):
                s[x] = eta[0] * tables[0, x] - tables[k, x]
            for j in range(1, k):
                for x in range(first, end):
                    s[x] += eta[j] * tables[j, x]
        # The largest term, of Z and of E x^2.
        highest, highest2 = _largest(s, tables, k + 1, first, end)
        best2 = max(best2, highest2)
        if highest > best:
            best, top = highest, first
            while s[top] < highest:
                top += 1
        first = end
        last = end - 1
        # Over where the slope is negative for good and the terms are negligible.
        slope = eta[0] - 0.5 * tables[k + 1, last] + 2.0 / last
        for j in range(1, k):
            slope += max(eta[j], 0.0) * (tables[j, last] - tables[j, last - 1])
        if slope < -0.03 and s[last] + tables[k + 1, last] < best2 - NEGLIGIBLE:
            while s[first - 1] + tables[k + 1, first - 1] < best2 - NEGLIGIBLE - 4.0 and first - 1 > top:
                first -= 1
            return first, have, True, top, best2
    return first, have, False, top, best2


@njit(cache=True)
def count_values(eta, limit, order, value, mean, cov, error, floors):
    """Sums over counts below a limit at eta (n, k); floors (n, 2): NaN where the sum is complete, else largest logs."""
    n, k = eta.shape
    tables = np.empty((k + 2, limit))
    s, steps, scratch = np.empty(limit), np.empty((k, limit)), np.empty((3, limit))
    no_mean, no_cov = np.empty(k), np.empty((k, k))
    have = np.int64(0)  # a bare 0 would be a type of its own, for which all that is called compiles anew
    for row in range(n):
        row_mean = mean[row] if order > 0 else no_mean
        row_cov = cov[row] if order > 1 else no_cov
        floors[row, 0] = floors[row, 1] = np.nan
        size_of = 0.0
        for j in range(k):
            size_of += abs(eta[row, j])
        # Parameters that are no numbers have no law.
        if not math.isfinite(size_of):
            value[row], error[row] = np.nan, np.nan
            row_mean[:], row_cov[:] = np.nan, np.nan
            continue
        # Terms that matter, relative to the largest.
        end, have, is_whole, top, best2 = _scan(eta[row], tables, have, limit, s)
        low, height = 0, s[top]
        while end > 256 and s[low] < height - NEGLIGIBLE - 10.0:
            low += 1
        size = end - low
        for x in range(size):
            s[x] = s[x + low] - height
        # Statistics relative to those of the largest term.
        scale = tables[k, top]
        for j in range(k):
            at = tables[j, top]
            scale += abs(eta[row, j]) * at
            if order > 0:
                for x in range(size):
                    steps[j, x] = tables[j, x + low] - at
        value[row] = height + moments(s, steps, size, top - low, scratch, order, row_mean, row_cov)
        if order > 0:
            for j in range(k):
                row_mean[j] += tables[j, top]
        # Rounding grows with the terms; what is cut off is left to the sums of far counts.
        error[row] = _EPSILON * (8.0 + scale)
        if not is_whole:
            floors[row, 0], floors[row, 1] = height, best2


@njit(cache=True)
def far_values(eta, powers, maximum, order, value, mean, cov, error, floors):
    """Add larger counts to the rows whose sum is not complete."""
    k = eta.shape[1]
    no_mean, no_cov = np.empty(k), np.empty((k, k))
    for row in range(eta.shape[0]):
        if not math.isnan(floors[row, 0]):
            row_mean = mean[row] if order > 0 else no_mean
            row_cov = cov[row] if order > 1 else no_cov
            value[row], error[row] = add_far_counts(
                eta[row],
                powers,
                float(TABLE),
                maximum,
                floors[row],
                order,
                value[row],
                row_mean,
                row_cov,
            )


def evaluate_nodes(family: NodeFamily, eta: Floats, order: int, value: Floats, mean: Floats, cov: Floats) -> Floats:
    """Node log partition, its gradient and Hessian for many rows, written into given arrays; the relative errors (n,).

    Args:
        family: one of the library's, or a user's.
        eta: natural parameters (n, k) float64, C-contiguous.
        order: 0 for values only, 1 with the mean, 2 with the covariance too.
        value: result (n,); infinite where the density cannot be normalised, NaN where a parameter is not finite.
        mean: result (n, k), E T_j; of any shape and untouched if order is 0.
        cov: result (n, k, k), Cov(T_i, T_j); of any shape with three dimensions and untouched if order is below 2.
    """
    if type(family) is IndicatorFamily:
        problem = (
            f"an indicator of the category {family.category!r} has no law of its own, only all of them together have"
        )
        raise out_of_reach("family", problem, "a 0/1 column is a TruncatedPoissonFamily(1)", code="no-method")
    if isinstance(family, UserFamily):
        return user_moments(family, eta, order, value, mean, cov)
    code, maximum, error = family.code, family.largest_value, np.empty(len(eta))
    for first in range(0, len(eta), _ROWS):  # compiled code answers no Ctrl-C before it returns
        rows = slice(first, first + _ROWS)
        error[rows] = _evaluated(code, maximum, eta[rows], order, value[rows], mean[rows], cov[rows])
    return error


def _evaluated(code: int, maximum: float, eta: Floats, order: int, value: Floats, mean: Floats, cov: Floats) -> Floats:
    """:func:`evaluate_nodes` of few rows."""
    k = eta.shape[1]
    error, floors = np.zeros(eta.shape[0]), np.empty((eta.shape[0], 2))
    powers = (2.0 if code == 3 else 1.0) / np.arange(1, k + 1)
    if code > 1:
        number_values(code, eta, powers, order, value, mean, cov, error)
        return error
    limit = int(min(float(TABLE), maximum + 1.0))
    count_values(eta, limit, order, value, mean, cov, error, floors)
    if maximum >= TABLE and not np.isnan(floors[:, 0]).all():
        far_values(eta, powers, maximum, order, value, mean, cov, error, floors)
    return error
