"""Compiled node log partitions: value, mean and covariance of the root statistics (Numba, CPU).

Rows are independent. Counts up to a few thousand are summed one by one from tables of roots and log factorials; other
ways are in the modules that this one calls. Imported when first needed.
"""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUntypedFunctionDecorator=false
# pyright: reportUnknownParameterType=false, reportMissingParameterType=false, reportUnknownArgumentType=false

from __future__ import annotations

import math

import numpy as np
from numba import njit

__all__ = ["node_values"]

TABLE = 65536
"""Counts below this are tabulated."""
NEGLIGIBLE = 55.0
"""Terms below exp(-55) = 1e-24 of the largest one are left out."""
_MAGIC = 6755399441055744.0  # 1.5 * 2^52: added to a float of moderate size, rounds it into its low bits
_LOG2E, _LN2_HIGH, _LN2_LOW = 1.4426950408889634, 6.93147180369123816490e-01, 1.90821492927058770002e-10


@njit(cache=True, nogil=True, error_model="numpy")
def exponentials(s, w, bits):
    """Write exp(s) into w for s up to 0, to two units of the last place; below exp(-700) it is exp(-700).

    Args:
        s: exponents (n,).
        w: result (n,).
        bits: scratch (n,) of float64.
    """
    scaled = bits.view(np.int64)
    for i in range(s.shape[0]):
        bits[i] = max(s[i], -700.0) * _LOG2E + _MAGIC
    for i in range(s.shape[0]):
        k = bits[i] - _MAGIC
        r = (max(s[i], -700.0) - k * _LN2_HIGH) - k * _LN2_LOW
        p = 1.0 / 6227020800.0
        p = p * r + 1.0 / 479001600.0
        p = p * r + 1.0 / 39916800.0
        p = p * r + 1.0 / 3628800.0
        p = p * r + 1.0 / 362880.0
        p = p * r + 1.0 / 40320.0
        p = p * r + 1.0 / 5040.0
        p = p * r + 1.0 / 720.0
        p = p * r + 1.0 / 120.0
        p = p * r + 1.0 / 24.0
        p = p * r + 1.0 / 6.0
        p = p * r + 0.5
        p = p * r + 1.0
        w[i] = p * r + 1.0
    for i in range(s.shape[0]):
        scaled[i] = (scaled[i] + 1023) << 52
    for i in range(s.shape[0]):
        w[i] *= bits[i]


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract"})
def _dot(a, b):
    total = 0.0
    for i in range(a.shape[0]):
        total += a[i] * b[i]
    return total


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract"})
def _total(a):
    total = 0.0
    for i in range(a.shape[0]):
        total += a[i]
    return total


@njit(cache=True, nogil=True, error_model="numpy")
def moments(s, steps, top, weights, weighted, bits, order, mean, cov):
    """Log of a sum of terms, and mean and covariance of statistics under them.

    Args:
        s: logs of the terms, less the largest of them (n,).
        steps: statistics less their values at the largest term (k, n).
        top: place of the largest term.
        weights: scratch (n,), holds exp(s) afterwards.
        weighted: scratch (n,).
        bits: scratch (n,).
        order: 0 for the sum only, 1 with the mean, 2 with the covariance.
        mean: result (k,), of the differences.
        cov: result (k, k).

    Returns:
        Log of the sum of exp(s).
    """
    exponentials(s, weights, bits)
    rest = _total(weights[:top]) + _total(weights[top + 1 :])
    if order > 0:
        scale = 1.0 / (1.0 + rest)
        k = steps.shape[0]
        for j in range(k):
            mean[j] = _dot(weights, steps[j]) * scale
        if order > 1:
            for i in range(k):
                for x in range(s.shape[0]):
                    weighted[x] = weights[x] * steps[i, x]
                for j in range(i + 1):
                    cov[i, j] = _dot(weighted, steps[j]) * scale
            lost = False
            for i in range(k):
                lost |= cov[i, i] < 64.0 * mean[i] * mean[i]
            if lost:  # the largest term lies far from the mean: sum squares about the mean instead
                for i in range(k):
                    for x in range(s.shape[0]):
                        weighted[x] = weights[x] * (steps[i, x] - mean[i])
                    for j in range(i + 1):
                        total = 0.0
                        for x in range(s.shape[0]):
                            total += weighted[x] * (steps[j, x] - mean[j])
                        cov[i, j] = total * scale
            else:
                for i in range(k):
                    for j in range(i + 1):
                        cov[i, j] -= mean[i] * mean[j]
            for i in range(k):
                for j in range(i):
                    cov[j, i] = cov[i, j]
    return math.log1p(rest)


@njit(cache=True, nogil=True, error_model="numpy")
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


@njit(cache=True, nogil=True, error_model="numpy")
def _scan(eta, tables, have, limit, s):
    """Logs of the terms from 0 to where the rest is negligible, also for E x^2.

    Returns:
        counts scanned; counts tabulated; whether the rest is negligible; place of the largest term; the largest log
        of term times x^2.
    """
    k = eta.shape[0]
    first, best, best2, top = 0, -np.inf, -np.inf, 0
    while first < limit:
        end = min(limit, max(2 * first, first + 16))
        if end > have:
            have = _extend(tables, have, min(limit, max(end, 2 * have)))
        part = s[first:end]
        part[:] = -tables[k, first:end]
        for j in range(k):
            slope = eta[j]
            row = tables[j, first:end]
            for x in range(end - first):
                part[x] += slope * row[x]
        double = tables[k + 1, first:end]
        for x in range(end - first):
            if part[x] > best:
                best, top = part[x], first + x
            best2 = max(best2, part[x] + double[x])
        first = end
        last = end - 1
        slope = eta[0] - 0.5 * tables[k + 1, last] + 2.0 / last
        for j in range(1, k):
            slope += max(eta[j], 0.0) * (tables[j, last] - tables[j, last - 1])
        if slope < -0.03 and s[last] + tables[k + 1, last] < best2 - NEGLIGIBLE:
            return first, have, True, top, best2
    return first, have, False, top, best2


@njit(cache=True, nogil=True, error_model="numpy")
def node_values(code, maximum, eta, order, value, mean, cov):
    """Node log partition, its gradient and Hessian for many rows, written into given arrays.

    Args:
        code: 0 Poisson, 1 truncated Poisson, 2 exponential, 3 Gaussian (``NodeFamily.code``).
        maximum: largest count of the truncated Poisson family (``NodeFamily.largest_value``).
        eta: natural parameters (n, k) float64, C-contiguous.
        order: 0 for values only, 1 with the mean, 2 with the covariance too.
        value: result (n,); infinite where the density cannot be normalised, NaN where a parameter is not finite.
        mean: result (n, k), E T_j; untouched if order is 0.
        cov: result (n, k, k), Cov(T_i, T_j); untouched if order is below 2.
    """
    n, k = eta.shape
    limit = int(min(float(TABLE), maximum + 1.0))
    tables = np.empty((k + 2, TABLE))
    s, w, weighted, bits, steps = (
        np.empty(TABLE),
        np.empty(TABLE),
        np.empty(TABLE),
        np.empty(TABLE),
        np.empty(k * TABLE),
    )
    have = 0
    for row in range(n):
        end, have, is_whole, top, _ = _scan(eta[row], tables, have, limit, s)
        if code > 1 or not (is_whole or maximum < TABLE):
            value[row] = np.nan
            continue
        low = 0
        height = s[top]
        while end > 256 and s[low] < height - NEGLIGIBLE - 10.0:
            low += 1
        terms = s[low:end]
        size = end - low
        for x in range(size):
            terms[x] -= height
        some = steps[: k * size].reshape((k, size))
        if order > 0:
            for j in range(k):
                at = tables[j, top]
                source, target = tables[j, low:end], some[j]
                for x in range(size):
                    target[x] = source[x] - at
        value[row] = height + moments(
            terms, some, top - low, w[:size], weighted[:size], bits[:size], order, mean[row], cov[row]
        )
        if order > 0:
            for j in range(k):
                mean[row, j] += tables[j, top]
