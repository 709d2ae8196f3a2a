r"""Upper bounds of the log partition of count nodes, with gradient and Hessian (Numba; paper 2, equations 15-18).

Counts from 1 are divided into subdomains on which :math:`g(x) = \sum_{j \ge 2} \eta_j x^{1/j}` is convex or concave. A
secant or a tangent is a line above g there, so that sums of the Poisson family bound the mass. With the subdomains held
fixed the lines are linear in eta, and the bound is convex and smooth: its gradient and Hessian are the mean and the
covariance of the statistics, with each root replaced by its own line.
"""

# pyright: reportUntypedFunctionDecorator=false, reportMissingParameterType=false

from __future__ import annotations

import math

import numpy as np

from ...compute.jit import njit

# Compiled search for the places where a node density is not negligible (Numba, CPU).
#
# Densities are written in y = log x. Of the logarithm of the density
#
# .. math:: f(y) = \sum_i c_i e^{p_i y} + q y \;[- \log \Gamma(e^y + 1)]
#
# all stationary points are found: its slope is a sum of exponentials (and, for counts, a linear term), and the zeros of
# such a sum lie between those of a sum with one term less (divide by one exponential, differentiate: Rolle). Between
# stationary points f is monotone, so that the places where it crosses a level are found by bisection and none is
# missed.


COUNT, REAL = 0, 1
_HALF_LOG_TWO_PI = 0.5 * math.log(2.0 * math.pi)


@njit
def _scaled_sum(logs, signs, powers, first, n, y):
    """Sum of sign * exp(log + power * y) over the terms from first, divided by the largest."""
    largest = -np.inf
    for i in range(first, n):
        largest = max(largest, logs[i] + powers[i] * y)
    total = 0.0
    for i in range(first, n):
        total += signs[i] * math.exp(logs[i] + powers[i] * y - largest)
    return total


@njit
def _plain_sum(linear, coefs, powers, y):
    """Linear * y + sum of coefs * exp(powers * y)."""
    total = linear * y
    for i in range(coefs.shape[0]):
        if coefs[i] != 0.0:
            total += coefs[i] * math.exp(powers[i] * y)
    return total


@njit(cache=True)
def sum_zeros(coefs, powers, linear, low, high, out):
    r"""Ascending zeros of :math:`a y + \sum_i c_i e^{p_i y}` with ascending p inside an interval; returns how many."""
    # Terms by ascending power; where there is a linear part, those of the derivative.
    logs, signs, exponents = np.empty(coefs.shape[0] + 1), np.empty(coefs.shape[0] + 1), np.empty(coefs.shape[0] + 1)
    n, is_placed = 0, linear == 0.0
    for i in range(coefs.shape[0]):
        c, p = coefs[i], powers[i]
        if linear != 0.0:  # the chain is that of the derivative, a + sum c p exp(p y)
            if not is_placed and p >= 0.0:
                logs[n], signs[n], exponents[n] = math.log(abs(linear)), math.copysign(1.0, linear), 0.0
                n += 1
                is_placed = True
            c *= p
        if c != 0.0:
            logs[n], signs[n], exponents[n] = math.log(abs(c)), math.copysign(1.0, c), p
            n += 1
    if not is_placed:
        logs[n], signs[n], exponents[n] = math.log(abs(linear)), math.copysign(1.0, linear), 0.0
        n += 1
    zeros, current, count = np.empty(n + 2), np.empty(n + 1), 0
    for level in range(n - 2, -2 if linear != 0.0 else -1, -1):
        # Level t is the sum of the terms from t, each multiplied by the product of p_i - p_s over s < t.
        for i in range(max(level, 0), n):
            current[i] = logs[i]
            for s in range(max(level, 0)):
                current[i] += math.log(exponents[i] - exponents[s])
        # Between the zeros of the sum before there is at most one zero of this sum: bisect.
        new, left = 0, low
        for piece in range(count + 1):
            right = zeros[piece] if piece < count else high
            a, b = left, right
            if level >= 0:
                at_a = _scaled_sum(current, signs, exponents, level, n, a)
                at_b = _scaled_sum(current, signs, exponents, level, n, b)
            else:
                at_a, at_b = _plain_sum(linear, coefs, powers, a), _plain_sum(linear, coefs, powers, b)
            if (at_a < 0.0) != (at_b < 0.0):
                for _ in range(200):
                    middle = 0.5 * (a + b)
                    if middle <= a or middle >= b or b - a < 1e-16 * abs(middle):
                        break
                    if level >= 0:
                        at = _scaled_sum(current, signs, exponents, level, n, middle)
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
            zeros[i] = out[i]
    return count


@njit
def log_density(kind, coefs, powers, q, y):
    """The function f(y) of this module; for counts by Stirling's series, meant for exp(y) from 1,000."""
    total = _plain_sum(q, coefs, powers, y)
    if kind == COUNT:
        x = math.exp(y)
        total -= x * (y - 1.0) + 0.5 * y + _HALF_LOG_TWO_PI + 1.0 / (12.0 * x)
    return total


@njit
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


@njit
def find_windows(kind, coefs, powers, q, low, high, depth, floor, ends, peaks):
    """Intervals of y outside which f is below its maximum, or a floor known from elsewhere, by more than a depth.

    Returns how many, and the maximum; fills ``ends`` from left to right and ``peaks``, place and value of each maximum.
    """
    # Between stationary points f is monotone.
    knots, zeros = np.empty(coefs.shape[0] + 6), np.empty(coefs.shape[0] + 4)
    num_zeros = _stationary(kind, coefs, powers, q, low, high, zeros)
    knots[0] = low
    for i in range(num_zeros):
        knots[i + 1] = zeros[i]
    knots[num_zeros + 1] = high
    best = -np.inf
    for i in range(num_zeros + 2):
        best = max(best, log_density(kind, coefs, powers, q, knots[i]))
    # Places where f crosses the level, from left to right, by bisection.
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


_LARGEST = 1e15
LARGEST_COUNT = 1e5
"""Largest count of rows whose regression may use bounds."""
_STEEPEST = 14.0  # of a line: beyond a rate of a million the sum is called infinite
_EXACT = 2  # counts of a subdomain that are summed one by one
_LEAST_SHARE = 0.1  # of the way to a place of splitting from either end


@njit
def _line_sums(slope, low, high, out):
    """Log sum of exp(slope x) / x! over counts from low to high, and mean and variance of x under these terms."""
    if slope > _STEEPEST and high > LARGEST_COUNT:
        out[0], out[1], out[2] = np.inf, 0.0, 0.0
        return
    # Terms upwards and downwards from the largest one, until the rest is negligible.
    rate = math.exp(slope)
    top = min(max(math.floor(rate), low), high)
    total, first, second = 1.0, 0.0, 0.0
    term, x = 1.0, top
    while x < high:
        x += 1.0
        ratio = rate / x
        term *= ratio
        d = x - top
        total += term
        first += term * d
        second += term * d * d
        if term * d * d < 1e-18 * (1.0 - ratio) * (1.0 + second):
            break
    term, x = 1.0, top
    while x > low:
        ratio = x / rate
        x -= 1.0
        term *= ratio
        d = x - top
        total += term
        first += term * d
        second += term * d * d
        if term * d * d < 1e-18 * (1.0 - ratio) * (1.0 + second):
            break
    # Moments about the largest term become those about the mean.
    shift = first / total
    out[0] = slope * top - math.lgamma(top + 1.0) + math.log(total)
    out[1] = top + shift
    out[2] = max(second / total - shift * shift, 0.0)


@njit
def _lines(eta, low, high, is_upper, is_tail, lines):
    """Lines (k, 2), constant and slope, of the roots on a subdomain: their sum is above g, or below it."""
    k = eta.shape[0]
    middle = low + 1.0 if is_tail else 0.5 * (low + high)
    curvature = 0.0
    at_low, at_high = eta[0] * low - math.lgamma(low + 1.0), eta[0] * high - math.lgamma(high + 1.0)
    for j in range(1, k):
        power = 1.0 / (j + 1)
        curvature -= eta[j] * power * (1.0 - power) * middle**power
        at_low += eta[j] * low**power
        at_high += eta[j] * high**power if not is_tail else 0.0
    is_tangent = (curvature < 0.0) == is_upper
    contact = low if is_tail or at_low >= at_high else high
    lines[0, 0], lines[0, 1] = 0.0, 1.0
    for j in range(1, k):
        power = 1.0 / (j + 1)
        if is_tangent:
            lines[j, 1] = power * contact ** (power - 1.0)
        elif is_tail:
            lines[j, 1] = 0.0
        else:
            lines[j, 1] = (high**power - low**power) / (high - low) if high > low else 0.0
        lines[j, 0] = contact**power - lines[j, 1] * contact


@njit
def _side(eta, low, high, is_upper, is_tail, lines, found):
    """Bound of the log mass of a subdomain, with mean and variance of x under the line; fills lines and found (3,)."""
    _lines(eta, low, high, is_upper, is_tail, lines)
    constant, slope = 0.0, 0.0
    for j in range(eta.shape[0]):
        constant += eta[j] * lines[j, 0]
        slope += eta[j] * lines[j, 1]
    _line_sums(slope, low, high, found)
    found[0] += constant


@njit
def _gap(eta, low, high, is_tail, lines, found):
    """Log of upper less lower mass of a subdomain."""
    if high - low < _EXACT:
        return -np.inf
    _side(eta, low, high, True, is_tail, lines, found)
    upper = found[0]
    if upper == np.inf:
        return upper
    _side(eta, low, high, False, is_tail, lines, found)
    share = -math.expm1(min(found[0] - upper, 0.0))
    return upper + math.log(share) if share > 0.0 else -np.inf


@njit
def _subdomains(eta, maximum, wanted, ends, is_tail, gaps, lines, bounds):
    """Ends (most, 2) of subdomains: intervals of constant concavity, and splits of the one with the largest gap."""
    k = eta.shape[0]
    # Zeros of the second derivative of g, times x squared.
    coefs, powers, zeros = np.empty(k - 1), np.empty(k - 1), np.empty(k + 4)
    for j in range(1, k):  # by ascending power
        power = 1.0 / (j + 1)
        coefs[k - 1 - j], powers[k - 1 - j] = eta[j] * power * (1.0 - power), power
    last = min(maximum, _LARGEST)
    num_zeros = 0
    if k > 2:
        num_zeros = sum_zeros(coefs, powers, 0.0, 0.0, math.log(last), zeros)
    # Intervals of constant concavity with whole numbers at their ends.
    count, low = 0, 1.0
    for i in range(num_zeros + 1):
        high = math.floor(math.exp(zeros[i])) if i < num_zeros else last
        if high >= low:
            ends[count, 0], ends[count, 1] = low, high
            is_tail[count] = i == num_zeros and last < maximum
            count += 1
        low = max(low, high + 1.0)
    for i in range(count):
        gaps[i] = _gap(eta, ends[i, 0], ends[i, 1], is_tail[i], lines, bounds)
    # Split where the gap is largest, nearer to the end with more of the mass.
    while count < wanted:
        worst = 0
        for i in range(count):
            if gaps[i] > gaps[worst]:
                worst = i
        if gaps[worst] == -np.inf:
            break
        low, high = ends[worst, 0], ends[worst, 1]
        if is_tail[worst]:
            cut = 4.0 * low
        else:
            fall = eta[0] * (high - low) - math.lgamma(high + 1.0) + math.lgamma(low + 1.0)
            for j in range(1, k):
                fall += eta[j] * (high ** (1.0 / (j + 1)) - low ** (1.0 / (j + 1)))
            share = 1.0 / (1.0 + math.exp(-min(max(fall, -700.0), 700.0)))  # of the density at the upper end
            share = _LEAST_SHARE + (1.0 - 2.0 * _LEAST_SHARE) * share
            cut = min(max(math.floor(low + share * (high - low)) + 1.0, low + 1.0), high)
        ends[count, 0], ends[count, 1], is_tail[count] = cut, high, is_tail[worst]
        ends[worst, 1], is_tail[worst] = cut - 1.0, False
        for i in (worst, count):
            gaps[i] = _gap(eta, ends[i, 0], ends[i, 1], is_tail[i], lines, bounds)
        count += 1
    return count


@njit(cache=True)
def bound_counts(eta, maximum, wanted, order, value, mean, cov):
    """Upper bounds (n,) of A at eta (n, k), gradients (n, k) and Hessians (n, k, k) as far as order 2 asks."""
    n, k = eta.shape
    most = wanted + k + 2
    ends, is_tail, gaps = np.empty((most, 2)), np.empty(most, np.bool_), np.empty(most)
    lines, logs, means = np.empty((k, 2)), np.empty(most), np.empty((most, k))
    slopes, spreads, bounds = np.empty((most, k)), np.empty(most), np.empty(3)
    for row in range(n):
        # Subdomains with their upper lines.
        count = _subdomains(eta[row], maximum, wanted, ends, is_tail, gaps, lines, bounds)
        largest = 0.0
        for i in range(count):
            low, high = ends[i, 0], ends[i, 1]
            _side(eta[row], low, high, True, is_tail[i], lines, bounds)
            if not is_tail[i] and high - low == 1.0:  # a secant is exact there
                _exact_pair(eta[row], low, high, lines, bounds)
            logs[i], spreads[i] = bounds[0], bounds[2]
            for j in range(k):
                means[i, j] = lines[j, 0] + lines[j, 1] * bounds[1]
                slopes[i, j] = lines[j, 1]
            largest = max(largest, logs[i])
        if largest == np.inf:
            value[row] = np.inf
            continue
        # The value is the log of the sum of their masses.
        total = math.exp(-largest)  # of the count 0, whose statistics are 0
        for i in range(count):
            logs[i] = math.exp(logs[i] - largest)
            total += logs[i]
        value[row] = largest + math.log(total)
        if order == 0:
            continue
        for j in range(k):
            mean[row, j] = 0.0
            for i in range(count):
                mean[row, j] += logs[i] / total * means[i, j]
        # Covariance: between subdomains, and along the lines inside each.
        if order == 1:
            continue
        for j in range(k):
            for m in range(k):
                cov[row, j, m] = math.exp(-largest) / total * mean[row, j] * mean[row, m]
                for i in range(count):
                    between = (means[i, j] - mean[row, j]) * (means[i, m] - mean[row, m])
                    cov[row, j, m] += logs[i] / total * (between + slopes[i, j] * slopes[i, m] * spreads[i])


@njit
def _exact_pair(eta, low, high, lines, found):
    """The mass of two counts next to each other by their secant, which is exact."""
    slope, constant = 0.0, 0.0
    for j in range(eta.shape[0]):
        power = 1.0 / (j + 1)
        lines[j, 1] = high**power - low**power
        lines[j, 0] = low**power - lines[j, 1] * low
        slope += eta[j] * lines[j, 1]
        constant += eta[j] * lines[j, 0]
    _line_sums(slope, low, high, found)
    found[0] += constant
