"""Counts drawn without replacement from cells of any size: the split of a table whose rows are never written out."""

from __future__ import annotations

import math

import numpy as np

__all__ = ["drawn_without_replacement", "hypergeometric"]

_NUMPY_LIMIT = 10**9
"""NumPy draws from fewer than this; its log-factorials are accurate to about 1e-5 there, and worse above."""


def drawn_without_replacement(counts: np.ndarray, size: int, random: np.random.Generator) -> np.ndarray:
    r"""How many of ``size`` units drawn without replacement come from every cell, (C,) int64.

    .. math:: p(h) = \prod_c \binom{n_c}{h_c} \Big/ \binom{\sum_c n_c}{\sum_c h_c}

    Cells are halved until their total is below 10^9: the share of the left half is hypergeometric, and each half is
    drawn from its own share. Below, NumPy's product of marginals is used. ``counts`` are int64 and sum below 2^63.
    """
    total = int(counts.sum())
    if size == 0 or total == size:
        return counts * (size > 0)
    if len(counts) == 1:
        return np.array([size])
    if total < _NUMPY_LIMIT:
        return random.multivariate_hypergeometric(counts, size, method="marginals")
    middle = len(counts) // 2
    left = int(counts[:middle].sum())
    share = hypergeometric(left, total - left, size, random)
    halves = (counts[:middle], share), (counts[middle:], size - share)
    return np.concatenate([drawn_without_replacement(part, number, random) for part, number in halves])


def hypergeometric(good: int, bad: int, size: int, random: np.random.Generator) -> int:
    r"""Number of good units among ``size`` drawn without replacement from good and bad ones.

    Rejection from the hat :math:`p_m \min(1, e^{1 - p_m |x - m|})` of a log-concave law with mode m, at most five
    trials in the mean. The law is exact but for rounding of the log-probability, below 1e-7 for totals up to 2^53.

    References:
        Luc Devroye, A simple generator for discrete log-concave distributions, 1987; Catherine Loader, Fast and
        accurate computation of binomial probabilities, 2000.
    """
    low, high = max(0, size - bad), min(size, good)
    if low == high:
        return low
    mode = (size + 1) * (good + 1) // (good + bad + 2)
    peak = _log_probability(mode, good, bad, size)
    height = math.exp(peak)
    width = 1 + height / 2
    while True:
        if random.random() <= width / (1 + width):
            distance, bound = random.random() * width / height, 1.0
        else:
            tail = random.standard_exponential()
            distance, bound = (width + tail) / height, math.exp(-tail)
        step = math.floor(distance + 0.5)
        value = mode + (step if random.random() < 0.5 else -step)
        if low <= value <= high:
            ratio = math.exp(_log_probability(value, good, bad, size) - peak)
            if random.random() * bound <= ratio:
                return value


def _log_probability(value: int, good: int, bad: int, size: int) -> float:
    """Log-probability of ``value`` good units: deviances of the four cells, and remainders of Stirling's formula."""
    total = good + bad
    difference = value * total - good * size  # of a cell from its expectation, times the total; exact in whole numbers
    log_prob = 0.0
    for cell, row, column, sign in (
        (value, good, size, 1),
        (good - value, good, total - size, -1),
        (size - value, bad, size, -1),
        (bad - size + value, bad, total - size, 1),
    ):
        expected = row * column / total
        part = sign * difference / (row * column)
        log_prob -= expected * ((1 + part) * math.log1p(part) - part if cell else 1.0) + _remainder(cell)
    return log_prob + sum(map(_remainder, (good, bad, size, total - size))) - _remainder(total)


def _remainder(number: int) -> float:
    """Remainder log n! - n log n + n."""
    if number < 100:
        return math.lgamma(number + 1) - (number * math.log(number) - number if number else 0.0)
    inverse = 1 / number
    return 0.5 * math.log(2 * math.pi * number) + inverse * (1 / 12 - inverse**2 * (1 / 360 - inverse**2 / 1260))
