r"""Compiled search for the places where a node density is not negligible (Numba, CPU).

Densities are written in y = log x. Of the logarithm of the density

.. math:: f(y) = \sum_i c_i e^{p_i y} + q y \;[- \log \Gamma(e^y + 1)]

all stationary points are found: its slope is a sum of exponentials (and, for counts, a linear term), and the zeros of
such a sum lie between those of a sum with one term less (divide by one exponential, differentiate: Rolle). Between
stationary points f is monotone, so that the places where it crosses a level are found by bisection and none is missed.
"""
# pyright: reportUntypedFunctionDecorator=false, reportMissingParameterType=false

import math

import numpy as np

from ...compute.jit import njit

COUNT, REAL = 0, 1
_HALF_LOG_TWO_PI = 0.5 * math.log(2.0 * math.pi)


@njit(cache=True, nogil=True, error_model="numpy")
def _scaled_sum(logs, signs, powers, first, n, y):
    """Sum of sign * exp(log + power * y) over the terms from first, divided by the largest."""
    largest = -np.inf
    for i in range(first, n):
        largest = max(largest, logs[i] + powers[i] * y)
    total = 0.0
    for i in range(first, n):
        total += signs[i] * math.exp(logs[i] + powers[i] * y - largest)
    return total


@njit(cache=True, nogil=True, error_model="numpy")
def _plain_sum(linear, coefs, powers, y):
    """Linear * y + sum of coefs * exp(powers * y)."""
    total = linear * y
    for i in range(coefs.shape[0]):
        if coefs[i] != 0.0:
            total += coefs[i] * math.exp(powers[i] * y)
    return total


@njit(cache=True, nogil=True, error_model="numpy")
def sum_zeros(coefs, powers, linear, low, high, out):
    r"""Ascending zeros of :math:`a y + \sum_i c_i e^{p_i y}` with ascending p inside an interval; returns how many."""
    logs, signs, kept = np.empty(coefs.shape[0] + 1), np.empty(coefs.shape[0] + 1), np.empty(coefs.shape[0] + 1)
    n, is_placed = 0, linear == 0.0
    for i in range(coefs.shape[0]):
        c, p = coefs[i], powers[i]
        if linear != 0.0:  # the chain is that of the derivative, a + sum c p exp(p y)
            if not is_placed and p >= 0.0:
                logs[n], signs[n], kept[n] = math.log(abs(linear)), math.copysign(1.0, linear), 0.0
                n += 1
                is_placed = True
            c *= p
        if c != 0.0:
            logs[n], signs[n], kept[n] = math.log(abs(c)), math.copysign(1.0, c), p
            n += 1
    if not is_placed:
        logs[n], signs[n], kept[n] = math.log(abs(linear)), math.copysign(1.0, linear), 0.0
        n += 1
    found, current, count = np.empty(n + 2), np.empty(n + 1), 0
    for level in range(n - 2, -2 if linear != 0.0 else -1, -1):
        # Level t is the sum of the terms from t, each multiplied by the product of p_i - p_s over s < t.
        for i in range(max(level, 0), n):
            current[i] = logs[i]
            for s in range(max(level, 0)):
                current[i] += math.log(kept[i] - kept[s])
        new, left = 0, low
        for piece in range(count + 1):
            right = found[piece] if piece < count else high
            a, b = left, right
            if level >= 0:
                at_a = _scaled_sum(current, signs, kept, level, n, a)
                at_b = _scaled_sum(current, signs, kept, level, n, b)
            else:
                at_a, at_b = _plain_sum(linear, coefs, powers, a), _plain_sum(linear, coefs, powers, b)
            if (at_a < 0.0) != (at_b < 0.0):
                for _ in range(200):
                    middle = 0.5 * (a + b)
                    if middle <= a or middle >= b or b - a < 1e-16 * abs(middle):
                        break
                    if level >= 0:
                        at = _scaled_sum(current, signs, kept, level, n, middle)
                    else:
                        at = _plain_sum(linear, coefs, powers, middle)
                    if (at < 0.0) == (at_a < 0.0):
                        a = middle
                    else:
                        b = middle
                out[new] = 0.5 * (a + b)
                new += 1
            left = right
        count = new
        for i in range(count):
            found[i] = out[i]
    return count


@njit(cache=True, nogil=True, error_model="numpy")
def log_density(kind, coefs, powers, q, y):
    """The function f(y) of this module; for counts by Stirling's series, meant for exp(y) from 1,000."""
    total = _plain_sum(q, coefs, powers, y)
    if kind == COUNT:
        x = math.exp(y)
        total -= x * (y - 1.0) + 0.5 * y + _HALF_LOG_TWO_PI + 1.0 / (12.0 * x)
    return total


@njit(cache=True, nogil=True, error_model="numpy")
def _stationary(kind, coefs, powers, q, low, high, out):
    """Places between low and high where the slope of f changes its sign; for counts of f - q y per unit of x."""
    k = coefs.shape[0]
    if kind == COUNT:
        c, p = np.empty(k + 2), np.empty(k + 2)
        c[0], p[0], c[1], p[1] = 1.0 / 12.0, -2.0, q - 0.5, -1.0
        for j in range(k):
            c[k + 1 - j], p[k + 1 - j] = coefs[j] * powers[j], powers[j] - 1.0
        return sum_zeros(c, p, -1.0, low, high, out)
    c, p = np.empty(k + 1), np.empty(k + 1)
    c[0], p[0] = q, 0.0
    for j in range(k):
        c[k - j], p[k - j] = coefs[j] * powers[j], powers[j]
    return sum_zeros(c, p, 0.0, low, high, out)


@njit(cache=True, nogil=True, error_model="numpy")
def find_windows(kind, coefs, powers, q, low, high, depth, floor, ends, peaks):
    """Intervals of y outside which f is below its maximum, or a floor known from elsewhere, by more than a depth.

    Returns how many, and the maximum; fills ``ends`` from left to right and ``peaks``, place and value of each maximum.
    """
    knots, zeros = np.empty(coefs.shape[0] + 6), np.empty(coefs.shape[0] + 4)
    num_zeros = _stationary(kind, coefs, powers, q, low, high, zeros)
    knots[0] = low
    for i in range(num_zeros):
        knots[i + 1] = zeros[i]
    knots[num_zeros + 1] = high
    best = -np.inf
    for i in range(num_zeros + 2):
        best = max(best, log_density(kind, coefs, powers, q, knots[i]))
    level = max(best, floor) - depth
    count, is_open = 0, False
    for i in range(num_zeros + 2):
        at = log_density(kind, coefs, powers, q, knots[i])
        if i > 0:
            before = log_density(kind, coefs, powers, q, knots[i - 1])
            if (before < level) != (at < level):
                a, b = knots[i - 1], knots[i]
                middle = b
                for _ in range(200):
                    middle = 0.5 * (a + b)
                    height = log_density(kind, coefs, powers, q, middle)
                    if (height < level) == (before < level):
                        a = middle
                    else:
                        b = middle
                    if abs(height - level) < 1.0:
                        break
                if is_open:
                    ends[count, 1] = middle
                    count += 1
                    is_open = False
                else:
                    ends[count, 0], peaks[count, 1] = middle, -np.inf
                    is_open = True
        elif at >= level:
            ends[count, 0], peaks[count, 1] = low, -np.inf
            is_open = True
        if is_open and at > peaks[count, 1]:
            peaks[count, 0], peaks[count, 1] = knots[i], at
    if is_open:
        ends[count, 1] = high
        count += 1
    return count, best
