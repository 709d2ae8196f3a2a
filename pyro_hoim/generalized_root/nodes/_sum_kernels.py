"""Compiled sums of exponentials with their moments, and mixtures of parts (Numba, CPU)."""
# pyright: reportUntypedFunctionDecorator=false, reportMissingParameterType=false

import math

import numpy as np

from ...compute.jit import njit

_MAGIC = 6755399441055744.0  # 1.5 * 2^52: added to a float of moderate size, rounds it into its low bits
_LOG2E, _LN2_HIGH, _LN2_LOW = 1.4426950408889634, 6.93147180369123816490e-01, 1.90821492927058770002e-10


@njit(cache=True, nogil=True, error_model="numpy")
def exponentials(s, n, w, bits):
    """Write exp of the first n of s up to 700 into w, to two units of the last place; exp(-700) below -700."""
    scaled = bits.view(np.int64)
    for i in range(n):
        bits[i] = max(s[i], -700.0) * _LOG2E + _MAGIC
    for i in range(n):
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
    for i in range(n):
        scaled[i] = (scaled[i] + 1023) << 52
    for i in range(n):
        w[i] *= bits[i]


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract"})
def _dot(a, row_a, b, row_b, n):
    total = 0.0
    for i in range(n):
        total += a[row_a, i] * b[row_b, i]
    return total


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract"})
def _total(a, row, first, last):
    total = 0.0
    for i in range(first, last):
        total += a[row, i]
    return total


@njit(cache=True, nogil=True, error_model="numpy")
def moments(s, steps, n, top, scratch, order, mean, cov):
    """Log of the sum of n exp(s), s relative to the largest, with mean and covariance of the statistics (k, n).

    ``top`` is the place of the largest term, -1 if it is not among them; order 1 asks for the mean, 2 for both.
    """
    exponentials(s, n, scratch[0], scratch[2])
    if top < 0:
        whole = _total(scratch, 0, 0, n)
        result = math.log(whole)
    else:  # keeps the digits of a sum that is hardly more than its largest term
        rest = _total(scratch, 0, 0, top) + _total(scratch, 0, top + 1, n)
        whole, result = 1.0 + rest, math.log1p(rest)
    if order == 0:
        return result
    scale = 1.0 / whole
    k = steps.shape[0]
    for j in range(k):
        mean[j] = _dot(scratch, 0, steps, j, n) * scale
    if order == 1:
        return result
    is_lost = False
    for i in range(k):
        for x in range(n):
            scratch[1, x] = scratch[0, x] * steps[i, x]
        for j in range(i + 1):
            cov[i, j] = _dot(scratch, 1, steps, j, n) * scale - mean[i] * mean[j]
        is_lost |= cov[i, i] < 63.0 * mean[i] * mean[i]
    if is_lost:  # the reference lies far from the mean: sum products of distances from the mean instead
        for i in range(k):
            for j in range(i + 1):
                total = 0.0
                for x in range(n):
                    total += scratch[0, x] * (steps[i, x] - mean[i]) * (steps[j, x] - mean[j])
                cov[i, j] = total * scale
    for i in range(k):
        for j in range(i):
            cov[j, i] = cov[i, j]
    return result


@njit(cache=True, nogil=True, error_model="numpy")
def merge(old, value, mean, cov, order, part, part_mean, part_cov):
    """Add a part to a mixture of parts (if there is an old one), changing its moments; returns the log of the mass."""
    k = part_mean.shape[0]
    if not old:
        if order > 0:
            mean[:] = part_mean
        if order > 1:
            cov[:] = part_cov
        return part
    if part == -np.inf:
        return value
    total = max(value, part) + math.log1p(math.exp(-abs(value - part)))
    if order > 0:
        share, new = math.exp(value - total), math.exp(part - total)
        if order > 1:
            for i in range(k):
                for j in range(k):
                    between = (part_mean[i] - mean[i]) * (part_mean[j] - mean[j])
                    cov[i, j] = share * cov[i, j] + new * part_cov[i, j] + share * new * between
        for j in range(k):
            gap = part_mean[j] - mean[j]
            mean[j] = mean[j] + new * gap if new < share else part_mean[j] - share * gap
    return total
