"""Draws of small counts from their node conditionals: all probabilities are summed, and the law is inverted.

    log p(x) = sum_j eta_j x^(1/j) - log x! + constant,    x = 0, 1, ..., maximum

Beyond any x, steps of log p are at most those with the negative roots left out, which decrease; so a tail is bounded by
a geometric series. What is left out has less than 1e-15 of the mass.
"""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUntypedFunctionDecorator=false
# pyright: reportUnknownParameterType=false, reportMissingParameterType=false, reportUnknownArgumentType=false

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

__all__ = ["TABLE_SIZE", "invert", "small_counts", "sum_small"]

TABLE_SIZE = 128
"""Counts below this are drawn from sums; if the law reaches further, from an envelope."""

_NEGLIGIBLE = 40.0  # nats below the largest probability
_LEAST_DROP = 0.5  # nats per step, from where on a tail is at most 2.6 times its first term


def small_counts(order: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Roots (order, TABLE_SIZE) and minus log factorials (TABLE_SIZE,) of 0, 1, ..., TABLE_SIZE - 1."""
    x = np.arange(TABLE_SIZE, dtype=np.float64)
    roots = np.stack([x ** (1.0 / j) for j in range(1, order + 1)]) if order else np.zeros((0, TABLE_SIZE))
    return roots, np.array([-math.lgamma(value + 1.0) for value in x])


@njit(nogil=True, cache=True, error_model="numpy")
def _drop(eta, roots, x):
    """Lower bound on how much log p falls at each step from x - 1 on."""
    drop = math.log(x) - eta[0]
    for j in range(1, eta.shape[0]):
        if eta[j] > 0.0:
            drop -= eta[j] * (roots[j, x] - roots[j, x - 1])
    return drop


@njit(nogil=True, cache=True, error_model="numpy")
def sum_small(eta, maximum, roots, base, cumulative):
    """Fill the sums of p(0), ..., p(x) up to a common factor; their number, or 0 if the law reaches too far.

    Args:
        eta: natural parameters (k,), finite.
        maximum: largest count, infinite for the Poisson law.
        roots: of :func:`small_counts`.
        base: likewise.
        cumulative: the sums, (TABLE_SIZE,).
    """
    size = roots.shape[1]
    ends = maximum < size
    last = np.int64(maximum) if ends else size - 1
    if not ends and _drop(eta, roots, last) < _LEAST_DROP:
        return 0
    highest = 0.0
    count = last + 1
    cumulative[0] = 0.0
    for x in range(1, last + 1):
        value = base[x]
        for j in range(eta.shape[0]):
            value += eta[j] * roots[j, x]
        cumulative[x] = value
        if value > highest:
            highest = value
        elif value < highest - _NEGLIGIBLE and _drop(eta, roots, x) > _LEAST_DROP:
            count = x
            break
    if count == size and not (ends and last == size - 1):
        return 0
    total = 0.0
    for x in range(count):
        value = cumulative[x] - highest
        if value > -_NEGLIGIBLE:
            total += math.exp(value)
        cumulative[x] = total
    return count


@njit(nogil=True, cache=True, error_model="numpy", inline="always")
def invert(cumulative, count, u):
    """The first x whose sum exceeds the share u of all."""
    target = u * cumulative[count - 1]
    x = 0
    while x < count - 1 and cumulative[x] <= target:
        x += 1
    return x
