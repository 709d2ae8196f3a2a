"""Draws of small counts from their node conditionals: probabilities are summed from 0 until the draw is certain.

    log p(x) = sum_j eta_j x^(1/j) - log x! + constant,    x = 0, 1, ..., maximum

Beyond any x, steps of log p are at most those with the negative roots left out, which decrease; so what is left of the
sum is at most a geometric series. Inversion ends where the answer is the same for all values that the whole sum may
have, at the latest where less than 1e-17 of it is left.
"""
# pyright: reportUntypedFunctionDecorator=false, reportMissingParameterType=false

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ...compute.jit import njit
from ._random_kernels import uniform

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


@njit(nogil=True, cache=True, error_model="numpy", inline="always")
def _first_above(cumulative, last, target):
    """The first position whose sum exceeds the target, ``last`` if none does; found from the end."""
    x = last
    while x > 0 and cumulative[x - 1] > target:
        x -= 1
    return x


@njit(nogil=True, cache=True, error_model="numpy")
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


@njit(nogil=True, cache=True, error_model="numpy")
def draw_small(natural, maximum, small, cumulative, words, drawn):
    """In every chain the smallest x with p(0) + ... + p(x) > u for a uniform u, or -1 if the law reaches too far.

    ``natural`` is (chains, k), ``cumulative`` memory (TABLE_SIZE,), ``words`` (chains, 4), and ``drawn`` the result.
    """
    roots, steps, base, logs = small
    order, size = natural.shape[1], base.shape[0]
    ends = maximum < size
    last = np.int64(maximum) if ends else size - 1
    for b in range(natural.shape[0]):
        drawn[b] = -1.0
        drop = logs[last] - natural[b, 0]
        for j in range(1, order):
            drop -= max(natural[b, j], 0.0) * steps[j, last]
        if not (ends or drop > 0.5):
            continue
        u = uniform(words, b)
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
                found = _first_above(cumulative, x, at_most)
                if found == 0 or cumulative[found - 1] <= u * total:
                    drawn[b] = found
                    break
            if x == last:
                drawn[b] = _invert_beyond(natural[b], maximum, size, weight, cumulative, u)
