"""Compiled draws from node conditionals, and the random numbers that they take (Numba, CPU)."""

# pyright: reportUntypedFunctionDecorator=false, reportMissingParameterType=false

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ...compute.jit import njit, write
from ...compute.lanes import mix

# Random numbers of single chains for compiled samplers: xoshiro256++, one state per chain.
#
# A state is a row of four words; rows come from :func:`chain_words` and depend on the seed and the chain alone.
#
# References:
#     David Blackman and Sebastiano Vigna, Scrambled linear pseudorandom number generators, 2021.


_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_12, _17, _19, _23, _41, _45 = (np.uint64(n) for n in (12, 17, 19, 23, 41, 45))


def chain_words(seed: int, num_chains: int) -> NDArray[np.uint64]:
    """States (num_chains, 4) that are never all zero."""
    key = mix(np.array([seed % 2**64], dtype=np.uint64) + _GOLDEN)  # arrays wrap around without a warning
    chains = mix((key ^ np.arange(num_chains, dtype=np.uint64)) + _GOLDEN)
    steps = np.arange(1, 5, dtype=np.uint64) * _GOLDEN
    return np.ascontiguousarray(mix(chains[:, None] + steps))


@njit(forceinline=True)
def uniform(words, b):
    """One draw of chain b: the middle of one of 2^52 equal intervals of (0, 1); row b of ``words`` moves on."""
    w0, w1, w2, w3 = words[b, 0], words[b, 1], words[b, 2], words[b, 3]
    total = w0 + w3
    bits = ((total << _23) | (total >> _41)) + w0
    t = w1 << _17
    w2 ^= w0
    w3 ^= w1
    words[b, 1] = w1 ^ w2
    words[b, 0] = w0 ^ w3
    words[b, 2] = w2 ^ t
    words[b, 3] = (w3 << _45) | (w3 >> _19)
    return (np.float64(np.int64(bits >> _12)) + 0.5) * 2.0**-52


@njit(cache=True)
def uniforms(words, chains, out):
    """One draw of each of some chains."""
    for i in range(chains.shape[0]):
        out[i] = uniform(words, chains[i])


@njit
def normal(words, b):
    """One draw of the standard normal law (Box and Muller)."""
    radius = math.sqrt(-2.0 * math.log(uniform(words, b)))
    return radius * math.cos(2.0 * math.pi * uniform(words, b))


# Exact draws from node conditionals by rejection under a piecewise exponential hat.
#
# f(u) = linear u + quadratic u^2 + logarithmic log u + sum_j c_j u^(p_j) - [log Gamma(u + 1)], u >= 0, 0 < p_j < 1
#
# The part C of f without negative c_j is concave and below its tangents; the rest V is convex, decreasing and below its
# chords. So on any interval f is below tangent plus chord, a line, and beyond any point b below the tangent of C there
# plus V(b). A piece of the hat is the exponential of such a line on an interval, or on the integers of one. Pieces that
# waste most are split until a proposal is accepted often enough; the law of the draws does not depend on where they
# are.
#
# A law on the whole real line has two sides, u = x and u = -x. Values are relative to those at an *anchor* near the
# mode, and differences of powers and factorials are taken without cancellation: the logarithm of a ratio of two
# densities has an absolute error near 1e-15 times the numbers that remain in it, not times f itself.
#
# References:
#     David Inouye, Pradeep Ravikumar and Inderjit Dhillon, Generalized root models, 2016, section 4.2 (the bound from
#     tangents and chords); Wally Gilks and Pascal Wild, Adaptive rejection sampling for Gibbs sampling, 1992.


MAX_PIECES = 192
NUM_FIELDS = 14
_LOW, _HIGH, _HEAVY, _LINE, _SLOPE, _LOG_MASS, _GAP, _SIDE = range(8)
_C_LOW, _D_LOW, _V_LOW, _C_HIGH, _D_HIGH, _V_HIGH = range(8, 14)

LINEAR, QUADRATIC, LOGARITHMIC, FACTORIAL, ANCHOR, LOG_ANCHOR, LOG_GAMMA, SHIFT = range(8)
"""Places in the row of numbers that describes a side."""

_LARGEST = 2.0**53
_SLACK = 1e-10  # added to every line, against rounding
_WASTE = 0.25
_ROUNDS = 64
_MAX_PROPOSALS = 10**6
_FROM_STIRLING = 10.0


@njit
def _stirling(x):
    """Log Gamma(x + 1) minus (x + 1/2) log x - x + log(2 pi) / 2, for x from 10."""
    y = 1.0 / (x * x)
    return (1.0 / 12 - y * (1.0 / 360 - y * (1.0 / 1260 - y * (1.0 / 1680 - y / 1188)))) / x


@njit
def _digamma(y):
    """Derivative of log Gamma at y > 0."""
    result = 0.0
    while y < _FROM_STIRLING:
        result -= 1.0 / y
        y += 1.0
    z = 1.0 / (y * y)
    return (
        result + math.log(y) - 0.5 / y - z * (1.0 / 12 - z * (1.0 / 120 - z * (1.0 / 252 - z * (1.0 / 240 - z / 132))))
    )


@njit(cache=True)
def parts(u, side, coefficients, powers, anchored):
    """C(u) - C(anchor), C'(u) and V(u) - V(anchor) of one side; ``anchored`` has anchor^p_j."""
    # Linear and quadratic terms, as differences from the anchor.
    c = side[ANCHOR]
    concave, slope, convex = 0.0, side[LINEAR] + 2.0 * side[QUADRATIC] * u, 0.0
    ratio = 0.0  # log(u / c)
    has_stirling = side[FACTORIAL] > 0.0 and c > 0.0 and u >= _FROM_STIRLING
    if c > 0.0:
        d = u - c
        linear = side[LINEAR] - side[LOG_ANCHOR] if has_stirling else side[LINEAR]
        concave = d * (linear + side[QUADRATIC] * (u + c))
        if u > 0.0:
            ratio = math.log1p(d / c) if abs(d) < 0.5 * c else math.log(u) - side[LOG_ANCHOR]
    else:
        concave = u * (side[LINEAR] + side[QUADRATIC] * u)
    # Powers: those with a negative coefficient are convex.
    for j in range(coefficients.shape[0]):
        a, p = coefficients[j], powers[j]
        if a == 0.0:
            continue
        if c > 0.0:
            change = anchored[j] * math.expm1(p * ratio) if u > 0.0 else -anchored[j]
            power = anchored[j] + change
        else:
            power = math.pow(u, p)
            change = power
        if a < 0.0:
            convex += a * change
        else:
            concave += a * change
            slope += a * p * power / u if u > 0.0 else math.inf
    # The logarithm, and the factorial by Stirling's series where u and anchor are large.
    if side[LOGARITHMIC] > 0.0:
        concave += side[LOGARITHMIC] * (ratio if c > 0.0 and u > 0.0 else math.log(u))
        slope += side[LOGARITHMIC] / u if u > 0.0 else math.inf
    if side[FACTORIAL] > 0.0:
        if has_stirling:
            concave -= ((u + 0.5) * ratio - (u - c)) + (_stirling(u) - _stirling(c))
            y = 1.0 / (u * u)
            slope -= side[LOG_ANCHOR] + ratio + 0.5 / u - y * (1.0 / 12 - y * (1.0 / 120 - y / 252))
        else:
            concave -= math.lgamma(u + 1.0) - side[LOG_GAMMA]
            slope -= _digamma(u + 1.0)
    return concave, slope, convex


@njit
def _curvature(u, side, coefficients, powers):
    """Roughly C''(u), for u > 0."""
    result = 2.0 * side[QUADRATIC] - side[LOGARITHMIC] / (u * u)
    for j in range(coefficients.shape[0]):
        if coefficients[j] > 0.0:
            p = powers[j]
            result -= coefficients[j] * p * (1.0 - p) * math.pow(u, p - 2.0)
    return result - side[FACTORIAL] / (u + 0.5)


@njit
def _concave_mode(side, coefficients, powers, anchored, highest):
    """Roughly where C is largest on [0, highest]; negative if that is beyond 2^53."""
    # The ends first: C may rise up to the last value, or fall from 0 on.
    side[ANCHOR] = 0.0
    side[LOG_GAMMA] = 0.0
    top = min(highest, _LARGEST)
    if not parts(top, side, coefficients, powers, anchored)[1] < 0.0:
        return highest if highest <= _LARGEST else -1.0
    low = 1e-300
    if parts(low, side, coefficients, powers, anchored)[1] <= 0.0:
        return 0.0
    # Between them Newton's steps in log u, and bisection where these leave the bracket.
    high = top
    u = min(max(math.exp(min(side[LINEAR], 36.0)), 1.0), 0.5 * high) if side[FACTORIAL] > 0.0 else min(1.0, 0.5 * high)
    for _ in range(200):
        slope = parts(u, side, coefficients, powers, anchored)[1]
        curvature = _curvature(u, side, coefficients, powers)
        if abs(slope) < 0.01 * math.sqrt(-curvature):
            break
        if slope > 0.0:
            low = u
        else:
            high = u
        step = -slope / (u * curvature)  # Newton in log u
        proposed = u * math.exp(min(max(step, -700.0), 700.0))
        if not low < proposed < high:
            proposed = math.sqrt(low) * math.sqrt(high)
        if high - low <= 1e-9 * high:
            break
        u = proposed
    return u


@njit
def _mode(u, side, coefficients, powers, anchored, highest):
    """The largest mode of f by Newton's method from that of C; that of C if there is none.

    Only the number of pieces depends on whether this succeeds.
    """
    start = u
    for _ in range(30):
        slope = parts(u, side, coefficients, powers, anchored)[1]
        curvature = _curvature(u, side, coefficients, powers)
        for j in range(coefficients.shape[0]):
            if coefficients[j] < 0.0:
                p = powers[j]
                step = coefficients[j] * p * math.pow(u, p - 1.0)
                slope += step
                curvature += step * (p - 1.0) / u
        if not curvature < 0.0:
            return start
        if abs(slope) < 0.05 * math.sqrt(-curvature):
            return u
        u -= slope / curvature
        if not 0.0 < u <= highest:
            return start
    return start


@njit(cache=True)
def side_parameters(side, coefficients, powers, anchored, highest):
    """Choose the anchor of a side and set what depends on it; f at the anchor, or NaN if the mode is beyond 2^53."""
    mode = _concave_mode(side, coefficients, powers, anchored, highest)
    if mode < 0.0:
        return math.nan
    value = 0.0
    if mode > 0.0:
        mode = _mode(mode, side, coefficients, powers, anchored, highest)
        c, _, v = parts(mode, side, coefficients, powers, anchored)
        value = c + v
    if (side[FACTORIAL] > 0.0 and mode < 2.0 * _FROM_STIRLING) or side[LOGARITHMIC] > 0.0:
        side[SHIFT] = mode
        return 0.0
    side[ANCHOR], side[SHIFT] = mode, mode
    if mode > 0.0:
        side[LOG_ANCHOR] = math.log(mode)
        side[LOG_GAMMA] = math.lgamma(mode + 1.0) if side[FACTORIAL] > 0.0 else 0.0
        for j in range(coefficients.shape[0]):
            anchored[j] = math.pow(mode, powers[j])
    return value


@njit
def _log_sum(slope, length, is_discrete):
    """Log of the integral of exp(slope t) over 0..length, slope <= 0; or of its sum over ``length`` integers from 0."""
    total = slope * length
    if slope == 0.0:
        return math.log(length)
    share = math.log(-math.expm1(total)) if total > -1e300 else 0.0
    return share - (math.log(-math.expm1(slope)) if is_discrete else math.log(-slope))


@njit
def _bound(piece, side, coefficients, powers, anchored, offset, is_discrete):
    """Line, mass and gap of a piece whose ends are known."""
    # A piece of one value, and a tail, which lies below its tangent at the left end.
    low, high = piece[_LOW], piece[_HIGH]
    c_low, d_low, v_low = piece[_C_LOW], piece[_D_LOW], piece[_V_LOW]
    if low == high:
        piece[_HEAVY], piece[_SLOPE], piece[_GAP] = low, 0.0, 0.0
        piece[_LINE] = c_low + v_low + offset + _SLACK
        piece[_LOG_MASS] = piece[_LINE]
        return
    if high == math.inf:
        piece[_HEAVY], piece[_SLOPE] = low, d_low
        piece[_LINE] = c_low + v_low + offset + _SLACK
        piece[_LOG_MASS] = piece[_LINE] + _log_sum(d_low, math.inf, is_discrete)
        further = low - 1.0 / d_low
        c, _, v = parts(further, side, coefficients, powers, anchored)
        piece[_GAP] = c_low + v_low - 1.0 - (c + v)
        return
    # Else the chord of V, and the tangent of C where the sum of both is about flat.
    width = high - low
    chord = (piece[_V_HIGH] - v_low) / width
    slope_low, slope_high = d_low + chord, piece[_D_HIGH] + chord
    touch = low + 0.5 * width
    if slope_high > 0.0:
        touch = high - min(0.5 * width, 1.0 / slope_high)
    elif slope_low < 0.0:
        touch = low + min(0.5 * width, -1.0 / slope_low)
    c, d, v = parts(touch, side, coefficients, powers, anchored)
    # How far the line is above f, at the ends and where it touches.
    slope = d + chord
    at_low = c + d * (low - touch) + v_low
    at_high = c + d * (high - touch) + piece[_V_HIGH]
    gap = v_low + chord * (touch - low) - v
    if slope <= 0.0:
        heavy, line = low, at_low
        gap = max(gap, at_low - (c_low + v_low))
    else:
        heavy, line = high, at_high
        gap = max(gap, at_high - (piece[_C_HIGH] + piece[_V_HIGH]))
    if -3.0 < slope * width < 3.0:
        gap = max(gap, at_low - (c_low + v_low), at_high - (piece[_C_HIGH] + piece[_V_HIGH]))
    piece[_HEAVY], piece[_SLOPE], piece[_GAP] = heavy, slope, gap
    piece[_LINE] = line + offset + _SLACK
    piece[_LOG_MASS] = piece[_LINE] + _log_sum(-abs(slope), width + 1.0 if is_discrete else width, is_discrete)


@njit
def _end(pieces, i, which, u, side, coefficients, powers, anchored):
    c, d, v = parts(u, side, coefficients, powers, anchored)
    if which == 0:
        pieces[i, _LOW], pieces[i, _C_LOW], pieces[i, _D_LOW], pieces[i, _V_LOW] = u, c, d, v
    else:
        pieces[i, _HIGH], pieces[i, _C_HIGH], pieces[i, _D_HIGH], pieces[i, _V_HIGH] = u, c, d, v


@njit(cache=True)
def add_side(pieces, count, number, side, coefficients, powers, anchored, offset, highest, is_discrete):
    """Append the first pieces of a side, [0, highest]; the number of pieces then."""
    # Ends of pieces lie a few spreads around the mode.
    mode = side[SHIFT]
    if mode > 0.0:
        scale = 1.0 / math.sqrt(-_curvature(mode, side, coefficients, powers))
    else:
        slope = parts(0.0, side, coefficients, powers, anchored)[1]
        scale = -1.0 / slope if slope < 0.0 else 1.0
    low = 0.0
    for end in (mode - 2.0 * scale, mode, mode + 2.0 * scale, mode + 5.0 * scale):
        cut = math.floor(end) if is_discrete else end
        if low < cut < highest:
            pieces[count, _SIDE] = number
            _end(pieces, count, 0, low, side, coefficients, powers, anchored)
            _end(pieces, count, 1, cut, side, coefficients, powers, anchored)
            _bound(pieces[count], side, coefficients, powers, anchored, offset, is_discrete)
            count += 1
            low = cut + 1.0 if is_discrete else cut
    pieces[count, _SIDE] = number
    _end(pieces, count, 0, low, side, coefficients, powers, anchored)
    # The last piece: a tail where there is no largest value.
    if highest == math.inf:
        pieces[count, _HIGH] = math.inf
        if not pieces[count, _D_LOW] < 0.0:  # the tail begins where C falls
            start = max(2.0 * low, 1.0)
            while not parts(start, side, coefficients, powers, anchored)[1] < 0.0:
                start *= 2.0
            start = math.floor(start)
            _end(pieces, count, 1, start, side, coefficients, powers, anchored)
            _bound(pieces[count], side, coefficients, powers, anchored, offset, is_discrete)
            count += 1
            pieces[count, _SIDE], pieces[count, _HIGH] = number, math.inf
            _end(pieces, count, 0, start + 1.0 if is_discrete else start, side, coefficients, powers, anchored)
    else:
        _end(pieces, count, 1, highest, side, coefficients, powers, anchored)
    _bound(pieces[count], side, coefficients, powers, anchored, offset, is_discrete)
    return count + 1


@njit
def _split(pieces, i, count, side, coefficients, powers, anchored, offset, is_discrete):
    """Cut a piece in two, the second at the end of the list; whether there was room between its ends."""
    low, high = pieces[i, _LOW], pieces[i, _HIGH]
    if high == math.inf:
        cut = low - 2.0 / pieces[i, _SLOPE]
    elif low == 0.0 and pieces[i, _V_HIGH] != pieces[i, _V_LOW]:
        cut = high / 16.0
    elif high > 8.0 * low > 0.0:
        cut = math.sqrt(low) * math.sqrt(high)
    else:
        cut = low + 0.5 * (high - low)
    if is_discrete:
        cut = min(max(math.floor(cut), low), high - 1.0)
    elif not low < cut < high:
        pieces[i, _GAP] = 0.0
        return False
    write(pieces[count], pieces[i])
    _end(pieces, i, 1, cut, side, coefficients, powers, anchored)
    if is_discrete:
        _end(pieces, count, 0, cut + 1.0, side, coefficients, powers, anchored)
    else:
        pieces[count, _LOW], pieces[count, _C_LOW] = cut, pieces[i, _C_HIGH]
        pieces[count, _D_LOW], pieces[count, _V_LOW] = pieces[i, _D_HIGH], pieces[i, _V_HIGH]
    _bound(pieces[i], side, coefficients, powers, anchored, offset, is_discrete)
    _bound(pieces[count], side, coefficients, powers, anchored, offset, is_discrete)
    return True


@njit(cache=True)
def finish_hat(pieces, count, sides, coefficients, powers, anchored, offsets, is_discrete, cumulative):
    """Split pieces until at most about a quarter of the hat is waste, and sum their masses; the number of pieces."""
    # Split what wastes most, until the whole wastes little.
    for _ in range(_ROUNDS):
        top = -math.inf
        for i in range(count):
            top = max(top, pieces[i, _LOG_MASS])
        total, waste = 0.0, 0.0
        for i in range(count):
            mass = math.exp(pieces[i, _LOG_MASS] - top)
            total += mass
            lost = -math.expm1(-0.5 * max(pieces[i, _GAP], 0.0)) * mass
            cumulative[i] = lost
            waste += lost
        if waste <= _WASTE * total:
            break
        least = 0.5 * _WASTE * total / count
        num_before = count
        for i in range(num_before):
            if cumulative[i] > least and count < MAX_PIECES and pieces[i, _HIGH] > pieces[i, _LOW]:
                s = np.int64(pieces[i, _SIDE])
                if _split(pieces, i, count, sides[s], coefficients, powers, anchored[s], offsets[s], is_discrete):
                    count += 1
        if count == num_before:
            break
    # Cumulative masses are what a piece is drawn by.
    top = -math.inf
    for i in range(count):
        top = max(top, pieces[i, _LOG_MASS])
    total = 0.0
    for i in range(count):
        total += math.exp(pieces[i, _LOG_MASS] - top)
        cumulative[i] = total
    return count


@njit
def draw_under_hat(pieces, count, sides, coefficients, powers, anchored, offsets, is_discrete, cumulative, words, b):
    """One draw: (number of its side, u); the number is -1 if nothing was accepted, which no law makes happen."""
    for _ in range(_MAX_PROPOSALS):
        target = uniform(words, b) * cumulative[count - 1]
        i = 0
        while i < count - 1 and cumulative[i] <= target:
            i += 1
        low, high, slope, heavy = pieces[i, _LOW], pieces[i, _HIGH], pieces[i, _SLOPE], pieces[i, _HEAVY]
        falling = -abs(slope)
        length = high - low + 1.0 if is_discrete else high - low
        if falling == 0.0:
            away = uniform(words, b) * length
        else:
            away = math.log1p(uniform(words, b) * math.expm1(falling * length)) / falling
        if is_discrete:
            away = math.floor(away)
        away = min(away, high - low)
        u = heavy - away if slope > 0.0 else heavy + away
        s = np.int64(pieces[i, _SIDE])
        c, _, v = parts(u, sides[s], coefficients, powers, anchored[s])
        if math.log(uniform(words, b)) <= c + v + offsets[s] - (pieces[i, _LINE] + falling * away):
            return s, u
    return -1, math.nan


# Draws of small counts from their node conditionals: probabilities are summed from 0 until the draw is certain.
#
# log p(x) = sum_j eta_j x^(1/j) - log x! + constant, x = 0, 1, ..., maximum
#
# Beyond any x, steps of log p are at most those with the negative roots left out, which decrease; so what is left of
# the sum is at most a geometric series. Inversion ends where the answer is the same for all values that the whole sum
# may have, at the latest where less than 1e-17 of it is left.


TABLE_SIZE = 128
"""Counts below this are drawn from sums; if much of the law lies further out, from a hat."""

_NEGLIGIBLE = 1e-17
_HIGHEST = 600.0  # nats above p(0)


def small_counts(order: int) -> tuple[NDArray[np.float64], ...]:
    """For x = 0, ..., TABLE_SIZE - 1: roots (order, x), their steps to x + 1 (order, x), -log x! and log(x + 1)."""
    x = np.arange(TABLE_SIZE + 1, dtype=np.float64)
    roots = np.stack([x ** (1.0 / j) for j in range(1, order + 1)]) if order else np.zeros((0, TABLE_SIZE + 1))
    base = np.array([-math.lgamma(value + 1.0) for value in x])
    return np.ascontiguousarray(roots[:, :-1]), np.diff(roots), base[:-1].copy(), np.log(x[1:])


@njit(forceinline=True)
def _first_above(cumulative, last, target):
    """The first position whose sum exceeds the target, ``last`` if none does; found from the end."""
    x = last
    while x > 0 and cumulative[x - 1] > target:
        x -= 1
    return x


@njit
def _invert_beyond(eta, maximum, size, weight, cumulative, u):
    """The smallest x with p(0) + ... + p(x) > u, from the sums below ``size`` and those further out.

    The same u goes on: the answer is not settled only where u is large, and new numbers would change the law.
    """
    order, whole = eta.shape[0], cumulative[size - 1]
    for is_whole in (False, True):  # first the whole sum, then the place
        target, total, term, x = u * whole, cumulative[size - 1], weight, size
        if is_whole and target < total:
            return float(_first_above(cumulative, size - 1, target))
        while x <= maximum:
            change, highest = eta[0] - math.log(x), eta[0] - math.log(x + 1.0)
            for j in range(1, order):
                power, here = 1.0 / (j + 1), math.pow(x, 1.0 / (j + 1))
                change += eta[j] * (here - math.pow(x - 1.0, power))
                highest += max(eta[j], 0.0) * (math.pow(x + 1.0, power) - here)
            term *= math.exp(change)
            total += term
            if (is_whole and total > target) or (highest < 0.0 and term <= -_NEGLIGIBLE * total * math.expm1(highest)):
                break
            x += 1
        whole = total
    return float(min(x, maximum))


@njit(cache=True)
def draw_small(natural, maximum, small, cumulative, words, drawn):
    """In every chain the smallest x with p(0) + ... + p(x) > u for a uniform u, or -1 if the law reaches too far.

    ``natural`` is (chains, k), ``cumulative`` memory (TABLE_SIZE,), ``words`` (chains, 4), and ``drawn`` the result.
    """
    roots, steps, base, logs = small
    order, size = natural.shape[1], base.shape[0]
    ends = maximum < size
    last = np.int64(maximum) if ends else size - 1
    for b in range(natural.shape[0]):
        # A chain whose law reaches beyond the table keeps -1.
        drawn[b] = -1.0
        drop = logs[last] - natural[b, 0]
        for j in range(1, order):
            drop -= max(natural[b, j], 0.0) * steps[j, last]
        if not (ends or drop > 0.5):
            continue
        u = uniform(words, b)
        # Sum from 0; the draw is settled where no value that the rest may have changes it.
        total = 0.0
        for x in range(last + 1):
            value, drop = base[x], logs[x] - natural[b, 0]
            for j in range(order):
                value += natural[b, j] * roots[j, x]
            for j in range(1, order):
                drop -= max(natural[b, j], 0.0) * steps[j, x]
            if not value <= _HIGHEST:
                break
            weight = math.exp(value) if x > 0 else 1.0
            total += weight
            cumulative[x] = total
            if x == last and ends:
                drawn[b] = _first_above(cumulative, x, u * total)
                break
            if not drop > 0.0:
                continue
            # exp(-drop) bounds all further ratios, and is at most 1 / (1 + drop).
            left = weight / drop if drop < 1.0 else weight / math.expm1(drop)
            if left <= _NEGLIGIBLE * total:
                drawn[b] = _first_above(cumulative, x, u * total)
                break
            at_most = u * (total + left)
            if at_most < total:
                value_at_most = _first_above(cumulative, x, at_most)
                if value_at_most == 0 or cumulative[value_at_most - 1] <= u * total:
                    drawn[b] = value_at_most
                    break
            if x == last:
                drawn[b] = _invert_beyond(natural[b], maximum, size, weight, cumulative, u)
