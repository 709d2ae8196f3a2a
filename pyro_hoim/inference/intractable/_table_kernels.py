"""Compiled draws of tables of counts: multinomial laws, one table per row (Numba, CPU). Imported when first needed.

References:
    Wolfgang Hörmann, The generation of binomial random variates, Journal of Statistical Computation and Simulation 46,
    1993 (transformed rejection, algorithm BTRS); Guy Steele, Doug Lea and Christine Flood, Fast splittable pseudorandom
    number generators, 2014 (splitmix64).
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUntypedFunctionDecorator=false
# pyright: reportUnknownParameterType=false, reportMissingParameterType=false, reportUnknownArgumentType=false

from __future__ import annotations

import math

import numpy as np

from ...compute.jit import njit

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_30, _27, _31, _12 = (np.uint64(n) for n in (30, 27, 31, 12))
_SMALL_MEAN = 10.0
# What Stirling's formula for log k! leaves out, for k below ten.
_LEFT_OUT = np.array(
    [math.lgamma(k + 1) - ((k + 0.5) * math.log(k + 1) - (k + 1) + 0.5 * math.log(2 * math.pi)) for k in range(10)]
)


@njit(forceinline=True)
def _uniform(words, g):
    """The middle of one of 2^52 equal intervals of (0, 1); word g moves on."""
    words[g] += _GOLDEN
    word = words[g]
    word = (word ^ (word >> _30)) * _FIRST
    word = (word ^ (word >> _27)) * _SECOND
    word ^= word >> _31
    return (np.float64(np.int64(word >> _12)) + 0.5) * 2.0**-52


@njit
def _stirling(k):
    """What Stirling's formula for log k! leaves out."""
    if k < 10.0:
        return _LEFT_OUT[np.int64(k)]
    inverse = 1.0 / (k + 1.0)
    square = inverse * inverse
    return (1.0 / 12 - (1.0 / 360 - square / 1260) * square) * inverse


@njit
def _by_inversion(words, g, n, p):
    """One binomial draw of small mean: probabilities summed up to a uniform number."""
    odds = p / (1.0 - p)
    share = math.exp(n * math.log1p(-p))
    left = _uniform(words, g)
    k = 0.0
    while left > share and k < n:
        left -= share
        k += 1.0
        share *= odds * (n - k + 1.0) / k
    return k


@njit
def _by_rejection(words, g, n, p):
    """One binomial draw by transformed rejection, for p up to one half and n p of ten and more."""
    # A hat around the mode, under which most proposals are accepted at once.
    spread = math.sqrt(n * p * (1.0 - p))
    b = 1.15 + 2.53 * spread
    a = -0.0873 + 0.0248 * b + 0.01 * p
    centre = n * p + 0.5
    bound = 0.92 - 4.2 / b
    while True:
        u = _uniform(words, g) - 0.5
        v = _uniform(words, g)
        room = 0.5 - abs(u)
        k = math.floor((2.0 * a / room + b) * u + centre)
        if room >= 0.07 and v <= bound:
            return k
        if k < 0.0 or k > n:
            continue
        # The others by the exact ratio to the mode.
        odds = p / (1.0 - p)
        mode = math.floor((n + 1.0) * p)
        v = math.log(v * (2.83 + 5.1 / b) * spread / (a / (room * room) + b))
        top = (mode + 0.5) * math.log((mode + 1.0) / (odds * (n - mode + 1.0)))
        top += (n + 1.0) * math.log((n - mode + 1.0) / (n - k + 1.0))
        top += (k + 0.5) * math.log(odds * (n - k + 1.0) / (k + 1.0))
        if v <= top + _stirling(mode) + _stirling(n - mode) - _stirling(k) - _stirling(n - k):
            return k


@njit
def _binomial(words, g, n, p):
    """One binomial draw."""
    if n <= 0.0 or p <= 0.0:
        return 0.0
    if p >= 1.0:
        return n
    small = min(p, 1.0 - p)
    k = _by_inversion(words, g, n, small) if n * small < _SMALL_MEAN else _by_rejection(words, g, n, small)
    return k if p <= 0.5 else n - k


@njit(cache=True)
def draw_tables(logits, totals, words, counts):
    """Fill counts (G, K) with multinomial tables of given totals (G,) and log weights (G, K); words (G,) move on.

    Each cell is binomial given those before it: its share of the mass that is left. Few rows are drawn one by one.
    """
    num_tables, num_cells = logits.shape
    mass = np.empty(num_cells + 1)
    for g in range(num_tables):
        # The mass of every cell with all after it.
        top = logits[g, 0]
        for i in range(1, num_cells):
            top = max(top, logits[g, i])
        mass[num_cells] = 0.0
        for i in range(num_cells - 1, -1, -1):
            mass[i] = mass[i + 1] + math.exp(logits[g, i] - top)
        left = totals[g]
        if 4.0 * left < num_cells:
            counts[g, :] = 0.0
            while left > 0.0:
                # Few rows: each by a search for its cell.
                threshold = _uniform(words, g) * mass[0]
                low, high = 0, num_cells - 1
                while low < high:  # the last cell whose mass with all after it is above the threshold
                    middle = (low + high + 1) // 2
                    if mass[middle] > threshold:
                        low = middle
                    else:
                        high = middle - 1
                counts[g, low] += 1.0
                left -= 1.0
            continue
        # Many rows: one binomial draw a cell.
        for i in range(num_cells - 1):
            count = 0.0
            if left > 0.0 and mass[i] > 0.0:
                count = _binomial(words, g, left, (mass[i] - mass[i + 1]) / mass[i])
            counts[g, i] = count
            left -= count
        counts[g, num_cells - 1] = left
