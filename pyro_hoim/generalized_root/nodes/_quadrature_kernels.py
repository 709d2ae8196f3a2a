"""Compiled sums and quadrature of node densities: small and large counts, numbers (Numba, CPU)."""

# pyright: reportUntypedFunctionDecorator=false, reportMissingParameterType=false

from __future__ import annotations

import math

import numpy as np

from ...compute.jit import njit, write
from .bound_kernels import COUNT, REAL, find_windows
from .integrability_kernels import is_integrable

# Compiled sums of exponentials with their moments, and mixtures of parts (Numba, CPU).


_MAGIC = 6755399441055744.0  # 1.5 * 2^52: added to a float of moderate size, rounds it into its low bits
_LOG2E, _LN2_HIGH, _LN2_LOW = 1.4426950408889634, 6.93147180369123816490e-01, 1.90821492927058770002e-10


@njit
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


@njit(fastmath={"reassoc", "contract"})
def _dot(a, row_a, b, row_b, n):
    total = 0.0
    for i in range(n):
        total += a[row_a, i] * b[row_b, i]
    return total


@njit(fastmath={"reassoc", "contract"})
def _total(a, row, first, last):
    total = 0.0
    for i in range(first, last):
        total += a[row, i]
    return total


@njit
def moments(s, steps, n, top, scratch, order, mean, cov):
    """Log of the sum of n exp(s), s relative to the largest, with mean and covariance of the statistics (k, n).

    ``top`` is the place of the largest term, -1 if it is not among them; order 1 asks for the mean, 2 for both.
    """
    # The log of the sum.
    exponentials(s, n, scratch[0], scratch[2])
    if top < 0:
        whole = _total(scratch, 0, 0, n)
        result = math.log(whole)
    else:  # keeps the digits of a sum that is hardly more than its largest term
        rest = _total(scratch, 0, 0, top) + _total(scratch, 0, top + 1, n)
        whole, result = 1.0 + rest, math.log1p(rest)
    if order == 0:
        return result
    # Means and covariances as sums of products, where these keep their digits.
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


@njit
def merge(old, value, mean, cov, order, part, part_mean, part_cov):
    """Add a part to a mixture of parts (if there is an old one), changing its moments; returns the log of the mass."""
    k = part_mean.shape[0]
    if not old:
        if order > 0:
            write(mean, part_mean)
        if order > 1:
            for i in range(k):
                write(cov[i], part_cov[i])
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


# Compiled quadrature of node densities: large counts and numbers (Numba, CPU).
#
# Both are sums of a smooth function over equally spaced nodes whose ends are negligible. Their error falls
# exponentially with the number of nodes, so that the number is doubled until the result stays; its square then bounds
# what is left. Exponents are taken relative to the largest one, in forms that lose no digits however narrow the density
# is. Where an end is not negligible (counts cut off by a maximum) every count is summed.


_DEPTH = 44.0
_NODES = 4096
_SETTLED = 1e-10
_ROUNDING = 1e-12
_EPSILON = 2.220446049250313e-16
_EXACT = 512.0 * _EPSILON  # of moments of closed forms that lose some digits
_LONGEST = 16777216.0  # counts that are summed one by one where nothing else will do


@njit
def _fill_counts(coefs, powers, centre, tilt, start, step, first, n, s, steps):
    """Exponents and roots at n counts centre + start + i * step, relative to the centre; tilt is the linear slope."""
    k = coefs.shape[0]
    # Powers at the centre, which all differences are relative to.
    heights, log_centre = np.empty(k), math.log(centre)
    for j in range(k):
        heights[j] = math.exp(powers[j] * log_centre)
    for i in range(n):
        at = first + i
        d = start + i * step
        r = d / centre
        log_ratio = math.log1p(r)
        # The factorial: log Gamma by Stirling, its bend by a series near the centre.
        is_near = abs(r) < 0.01
        if is_near:
            bend = r * r * (1 / 2 - r * (1 / 6 - r * (1 / 12 - r * (1 / 20 - r * (1 / 30 - r * (1 / 42 - r / 56))))))
        else:
            bend = (1.0 + r) * log_ratio - r
        total = tilt * d - centre * bend - 0.5 * (log_ratio - r) - r * r / ((1.0 + r) * 12.0 * centre)
        for j in range(k):
            p = powers[j]
            if j == 0:
                steps[0, at] = d
                continue
            # What a power adds beyond its linear part, which the tilt holds.
            change = math.expm1(p * log_ratio)
            steps[j, at] = heights[j] * change
            if coefs[j] != 0.0:
                if is_near:
                    rest = 0.0
                    for m in range(8, 2, -1):
                        rest = (rest + 1.0) * r * (p - m + 1.0) / m
                    rest = (rest + 1.0) * 0.5 * p * (p - 1.0) * r * r
                else:
                    rest = change - p * r
                total += coefs[j] * heights[j] * rest
        s[at] = total


@njit
def _fill_reals(coefs, powers, centre, start, step, first, n, s, steps):
    """Exponents (with the Jacobian) and powers at logs centre + start + i * step, relative to the centre."""
    k = coefs.shape[0]
    for j in range(k):
        height = math.exp(powers[j] * centre)
        for i in range(n):
            steps[j, first + i] = height * math.expm1(powers[j] * (start + i * step))
    for i in range(n):
        total = start + i * step
        for j in range(k):
            if coefs[j] != 0.0:
                total += coefs[j] * steps[j, first + i]
        s[first + i] = total


@njit
def _fill(kind, coefs, powers, centre, tilt, start, step, first, n, s, steps):
    if kind == COUNT:
        _fill_counts(coefs, powers, centre, tilt, start, step, first, n, s, steps)
    else:
        _fill_reals(coefs, powers, centre, start, step, first, n, s, steps)


@njit
def _trapezoid(kind, coefs, powers, centre, tilt, left, right, share, order, part_mean, part_cov):
    """Log of the integral between negligible ends, with moments, and how much doubling the nodes changed it last."""
    k = coefs.shape[0]
    s, steps, scratch = np.empty(_NODES + 1), np.empty((k, _NODES + 1)), np.empty((3, _NODES + 1))
    # A bare 0 or 32 would be a type of its own, for which all that is called compiles anew.
    n, start, value, other, change = np.int64(32), np.int64(0), 0.0, 0.0, np.inf
    while n <= _NODES:
        step = (right - left) / n
        if n == 32:
            _fill(kind, coefs, powers, centre, tilt, left, step, start, n, s, steps)
        else:
            half = n // 2
            _fill(kind, coefs, powers, centre, tilt, left + step, 2.0 * step, half, half, s, steps)
        new = moments(s, steps, n, np.int64(-1), scratch, order, part_mean, part_cov) + math.log(step)
        second = 0.0
        for i in range(n):
            second += scratch[0, i] * steps[0, i] * steps[0, i]
        second *= step
        weight = math.exp(min(0.0, share + new))
        change = max(weight * abs(new - value), abs(second - other) / second) if n > 32 else np.inf
        value, other = new, second
        if change < _SETTLED:
            break
        n *= 2
    return value, change


@njit
def _deepened(coefs, powers, centre, tilt, end, first):
    """The end of a window of counts (relative to its centre), moved to where the density has fallen by the depth."""
    s, steps = np.empty(1), np.empty((coefs.shape[0], 1))
    _fill_counts(coefs, powers, centre, tilt, end, 1.0, np.int64(0), np.int64(1), s, steps)
    height = s[0]
    while height > -_DEPTH and centre + 1.25 * end > first:
        _fill_counts(coefs, powers, centre, tilt, 1.25 * end, 1.0, np.int64(0), np.int64(1), s, steps)
        if s[0] >= height:
            break
        height = s[0]
        end *= 1.25
    return end


@njit
def _log_slope(coefs, powers, x):
    """Slope of the log density of counts at x."""
    total = -math.log(x) - 0.5 / x + 1.0 / (12.0 * x * x)
    for j in range(coefs.shape[0]):
        total += coefs[j] * powers[j] * x ** (powers[j] - 1.0)
    return total


@njit
def _united(kind, coefs, powers, weights, floors, low, high, ends, peaks):
    """Windows of the density and of that times its first statistic squared, united; returns how many."""
    # Windows of either function, each joined with those found before that it overlaps.
    k = coefs.shape[0]
    more_ends, more_peaks = np.empty((k + 4, 2)), np.empty((k + 4, 2))
    count = 0
    for which in range(2):
        num, _ = find_windows(
            kind, coefs, powers, weights[which], low, high, _DEPTH, floors[which], more_ends, more_peaks
        )
        for w in range(num):
            a, b = more_ends[w, 0], more_ends[w, 1]
            top, height = more_peaks[w, 0], more_peaks[w, 1] - (weights[which] - weights[0]) * more_peaks[w, 0]
            is_own = 1.0 if which == 0 else 0.0
            num_windows = 0
            for old in range(count):
                if ends[old, 1] < a or ends[old, 0] > b:
                    ends[num_windows, 0], ends[num_windows, 1] = ends[old, 0], ends[old, 1]
                    peaks[num_windows, 0], peaks[num_windows, 1], peaks[num_windows, 2] = (
                        peaks[old, 0],
                        peaks[old, 1],
                        peaks[old, 2],
                    )
                    num_windows += 1
                    continue
                a, b = min(a, ends[old, 0]), max(b, ends[old, 1])
                if peaks[old, 2] > is_own or (peaks[old, 2] == is_own and peaks[old, 1] > height):
                    top, height, is_own = peaks[old, 0], peaks[old, 1], peaks[old, 2]
            ends[num_windows, 0], ends[num_windows, 1] = a, b
            peaks[num_windows, 0], peaks[num_windows, 1], peaks[num_windows, 2] = top, height, is_own
            count = num_windows + 1
    return count


@njit
def add_far_counts(coefs, powers, first, last, floors, order, value, mean, cov):
    """Add the counts from first to last to a mixture of the smaller ones; returns log of the sum and relative error."""
    k = coefs.shape[0]
    # How far out counts may matter: beyond, the slope is negative for good.
    low = math.log(first)
    high = low
    while high < 709.0:
        slope = coefs[0] - high
        for j in range(1, k):
            slope += max(coefs[j], 0.0) * powers[j] * math.exp((powers[j] - 1.0) * high)
        if slope < -1.0:
            break
        high += 0.25
    if high >= 709.0:
        return np.inf, 0.0
    high = min(high + 1.0, math.log(last))
    if high <= low:
        high = low
    # Windows in y = log x, one after the other.
    ends, peaks = np.empty((2 * k + 8, 2)), np.empty((2 * k + 8, 3))
    count = _united(COUNT, coefs, powers, np.array([0.0, 2.0]), floors, low, high, ends, peaks)
    part_mean, part_cov = np.zeros(k), np.zeros((k, k))
    error = _ROUNDING
    for w in range(count):
        terms = 0.0
        for j in range(k):
            terms += abs(coefs[j]) * math.exp(powers[j] * peaks[w, 0])
        terms += math.exp(peaks[w, 0]) * peaks[w, 0]
        # Ends relative to the centre; a window that the range cuts off is summed count by count.
        is_cut = ends[w, 0] <= low or ends[w, 1] >= math.log(last)
        is_peak = peaks[w, 2] == 1.0 and low < peaks[w, 0] < high
        centre = math.exp(peaks[w, 0])
        left, right = math.expm1(ends[w, 0] - peaks[w, 0]) * centre, math.expm1(ends[w, 1] - peaks[w, 0]) * centre
        change = np.inf
        tilt = 0.0 if is_peak else _log_slope(coefs, powers, centre)
        if not is_cut:
            if is_peak and ends[w, 1] - ends[w, 0] < 1e-8:  # narrower than the digits of y can tell
                curve = 1.0 / centre
                for j in range(1, k):
                    curve -= coefs[j] * powers[j] * (powers[j] - 1.0) * math.exp((powers[j] - 2.0) * peaks[w, 0])
                right = 10.0 / math.sqrt(curve)
                left = -right
            elif left < 0.0 < right:
                left = _deepened(coefs, powers, centre, tilt, left, first)
                right = min(_deepened(coefs, powers, centre, tilt, right, first), last - centre)
            # Long windows by trapezoidal sums, if these settle.
            if right - left > 256.0:
                total, change = _trapezoid(
                    COUNT, coefs, powers, centre, tilt, left, right, peaks[w, 1] - value, order, part_mean, part_cov
                )
                if change < 1e-7 or right - left > _LONGEST:
                    for j in range(k):
                        part_mean[j] += math.exp(powers[j] * peaks[w, 0])
                    error = max(error, change * change if change < 1e-7 else change)
                    error += _EPSILON * terms * math.exp(-abs(value - peaks[w, 1] - total))
                    value = merge(np.bool_(True), value, mean, cov, order, peaks[w, 1] + total, part_mean, part_cov)
                    continue
        if right - left > _LONGEST:
            return value, np.inf
        # Short windows, and what did not settle, count by count.
        x, end = max(first, math.floor(centre + left)), min(last, math.ceil(centre + right))
        s, steps, scratch = np.empty(_NODES), np.empty((k, _NODES)), np.empty((3, _NODES))
        while x <= end:
            n = int(min(float(_NODES), end - x + 1.0))
            _fill_counts(coefs, powers, centre, tilt, x - centre, 1.0, np.int64(0), n, s, steps)
            total = moments(s, steps, n, np.int64(-1), scratch, order, part_mean, part_cov)
            for j in range(k):
                part_mean[j] += math.exp(powers[j] * peaks[w, 0])
            error = max(error, _EPSILON * terms * math.exp(-abs(value - peaks[w, 1] - total)))
            value = merge(np.bool_(True), value, mean, cov, order, peaks[w, 1] + total, part_mean, part_cov)
            x += n
    return value, error


@njit
def _add_half_line(coefs, powers, sign, has_part, order, value, mean, cov):
    """Add the integral over the numbers from 0 to a mixture of parts; returns log of the mass and relative error."""
    k = coefs.shape[0]
    # Windows of the density in y = log x; its Jacobian has weight 1.
    lead = 0
    while coefs[lead] == 0.0:
        lead += 1
    ends, peaks = np.empty((2 * k + 8, 2)), np.empty((2 * k + 8, 3))
    weights, floors = np.array([1.0, 1.0 + 2.0 * powers[0]]), np.array([-np.inf, -np.inf])
    count = _united(REAL, coefs, powers, weights, floors, -800.0, 700.0 / powers[lead], ends, peaks)
    # Each is a part of the mixture; on the negative side x changes its sign.
    part_mean, part_cov = np.zeros(k), np.zeros((k, k))
    error = _ROUNDING
    for w in range(count):
        left, right = ends[w, 0] - peaks[w, 0], ends[w, 1] - peaks[w, 0]
        total, change = _trapezoid(REAL, coefs, powers, peaks[w, 0], 0.0, left, right, 0.0, order, part_mean, part_cov)
        error = max(error, change * change if change < 1e-7 else change)
        if has_part:
            terms = 0.0
            for j in range(k):
                terms += abs(coefs[j]) * math.exp(powers[j] * peaks[w, 0])
            error += _EPSILON * terms * math.exp(-abs(value - peaks[w, 1] - total))
        for j in range(k):
            part_mean[j] += math.exp(powers[j] * peaks[w, 0])
        if sign < 0.0 and k > 1:
            part_mean[1] = -part_mean[1]
            for j in range(k):
                if j != 1:
                    part_cov[1, j] = -part_cov[1, j]
                    part_cov[j, 1] = -part_cov[j, 1]
        value = merge(has_part, value, mean, cov, order, peaks[w, 1] + total, part_mean, part_cov)
        has_part = True
    return value, error


@njit
def _gaussian(eta, order, mean, cov):
    """Closed form for k = 1 and 2; returns the value."""
    slope = eta[1] if eta.shape[0] > 1 else 0.0
    variance = -0.5 / eta[0]
    centre = slope * variance
    if order > 0:
        mean[0] = centre * centre + variance
        if eta.shape[0] > 1:
            mean[1] = centre
    if order > 1:
        cov[0, 0] = 2.0 * variance * (variance + 2.0 * centre * centre)
        if eta.shape[0] > 1:
            cov[0, 1] = cov[1, 0] = 2.0 * centre * variance
            cov[1, 1] = variance
    return 0.5 * (math.log(2.0 * math.pi * variance) + slope * centre)


@njit
def _steep_root(a, b, order, mean, cov):
    r"""Moments of u^2 and u of density 2 u exp(-a u^2 - b u) by ratios of its integrals, b^2 >= 4 a; the log of Z.

    With :math:`U_n = \int_0^\infty u^n e^{-a u^2 - b u} du`, integration by parts gives
    :math:`U_n / U_{n - 1} = n / (b + 2 a U_{n + 1} / U_n)`, a continued fraction of positive parts.
    """
    # From far out, where the ratio is nearly its own successor, down to 1.
    t = 0.5 * b / math.sqrt(a) if a > 0.0 else np.inf
    n = 24 + int(160.0 / (t * t))
    above = 2.0 * n / (b + math.sqrt(b * b + 8.0 * a * n))
    ratios = np.empty(6)
    while n > 0:
        above = n / (b + 2.0 * a * above)
        if n < 6:
            ratios[n] = above
        n -= 1
    if order > 0:
        mean[0], mean[1] = ratios[2] * ratios[3], ratios[2]
    if order > 1:
        cov[1, 1] = ratios[2] * (ratios[3] - ratios[2])
        cov[0, 1] = cov[1, 0] = ratios[2] * ratios[3] * (ratios[4] - ratios[2])
        cov[0, 0] = ratios[2] * ratios[3] * (ratios[4] * ratios[5] - ratios[2] * ratios[3])
    return math.log(2.0 * ratios[1]) - math.log(b + 2.0 * a * ratios[1])


@njit
def _exponential(eta, order, mean, cov):
    """Closed form for k = 1 and 2, of the root u of a number: 2 u exp(eta_1 u^2 + eta_2 u); the value and its error."""
    # A plain exponential law, and roots that fall steeply.
    a, slope = -eta[0], eta[1] if eta.shape[0] > 1 else 0.0
    if eta.shape[0] == 1:
        if order > 0:
            mean[0] = 1.0 / a
        if order > 1:
            cov[0, 0] = 1.0 / (a * a)
        return -math.log(a), _EXACT
    root = math.sqrt(a)
    if slope < 0.0 and -slope >= 2.0 * root:
        return _steep_root(a, -slope, order, mean, cov), _EXACT
    # Else (m + w) exp(-w^2) over w from -m, in w = root * u - m: incomplete moments of a normal law.
    m = 0.5 * slope / root
    edge = 0.5 * math.exp(-m * m)
    normal = np.empty(6)
    normal[0], normal[1] = 0.5 * math.sqrt(math.pi) * math.erfc(-m), edge
    for n in range(2, 6):
        edge *= -m
        normal[n] = edge + 0.5 * (n - 1) * normal[n - 2]
    mass = m * normal[0] + normal[1]
    first = (m * normal[1] + normal[2]) / mass
    if order > 0:
        mean[1] = (m + first) / root
        mean[0] = (m * m + 2.0 * m * first + (m * normal[2] + normal[3]) / mass) / a
    if order > 1:
        second, third = (m * normal[2] + normal[3]) / mass, (m * normal[3] + normal[4]) / mass
        spread, skew = second - first * first, third - first * second
        rest = (m * normal[4] + normal[5]) / mass - second * second
        cov[1, 1] = spread / a
        cov[0, 1] = cov[1, 0] = (2.0 * m * spread + skew) / (a * root)
        cov[0, 0] = (4.0 * m * m * spread + 4.0 * m * skew + rest) / (a * a)
    return m * m + math.log(2.0 * mass) - math.log(a), _EXACT + 4.0 * _EPSILON * m * m


@njit(cache=True)
def number_values(code, eta, powers, order, value, mean, cov, error):
    """Integrals of the exponential (code 2) and Gaussian (code 3) families at eta (n, k), written into the results."""
    n, k = eta.shape
    no_mean, no_cov, coefs = np.empty(k), np.empty((k, k)), np.empty(k)
    for row in range(n):
        row_mean = mean[row] if order > 0 else no_mean
        row_cov = cov[row] if order > 1 else no_cov
        size = 0.0
        for j in range(k):
            size += abs(eta[row, j])
            coefs[j] = eta[row, j]
        # Rows without a law, and those with a closed form.
        if not (math.isfinite(size) and is_integrable(code, eta[row])):
            value[row] = np.inf if math.isfinite(size) else np.nan
            error[row] = np.nan
            row_mean[:], row_cov[:] = np.nan, np.nan
            continue
        if code == 3 and k <= 2:
            value[row], error[row] = _gaussian(eta[row], order, row_mean, row_cov), 4.0 * _EPSILON
            continue
        if code == 2 and k <= 2:
            value[row], error[row] = _exponential(eta[row], order, row_mean, row_cov)
            continue
        # Else the half lines one after the other.
        total, worst = 0.0, 0.0
        for half in range(2 if code == 3 else 1):
            if half == 1:
                coefs[1] = -coefs[1]
            total, other = _add_half_line(coefs, powers, 1.0 - 2.0 * half, half == 1, order, total, row_mean, row_cov)
            worst = max(worst, other)
        value[row], error[row] = total, worst
