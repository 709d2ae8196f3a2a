"""Counting rows: merging equal ones, marginal tables by weighted bin counts, and random splits."""

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from ..errors import out_of_range, wrong_type
from .bits import LevelBits, Sets, laid_out

# Counts drawn without replacement from cells of any size: the split of a table whose rows are never written out.

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
    # The hat: flat around the mode, exponential beyond.
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
    # Deviances of the cells from independence, which are small where numbers are huge.
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


_LARGEST_KEY = 2**62
_MANY_LOOK_UPS = 2**24  # rows times tables above which compiled code is worth its import
_MOST_UNITS = 2**20  # observations of a table that are shuffled one by one


def code_type(cardinalities: Sequence[int]) -> Any:
    """The smallest signed type of the codes of all columns, and of one more."""
    largest = max(cardinalities, default=1)
    return np.int8 if largest < 2**7 else np.int16 if largest < 2**15 else np.int32


def merge_rows(
    codes: np.ndarray, counts: np.ndarray, cardinalities: Sequence[int], *others: np.ndarray
) -> tuple[np.ndarray, ...]:
    """Distinct rows (U, d) of codes in lexicographic order, with their counts added (U,); count zero is dropped.

    Other figures of the rows are added likewise.
    """
    is_positive = counts > 0
    if not is_positive.all():
        codes, counts, others = codes[is_positive], counts[is_positive], tuple(o[is_positive] for o in others)
    first, inverse = distinct_rows(codes, cardinalities)
    each = (counts, *others)
    sums = (np.bincount(inverse, weights=figures, minlength=len(first)) for figures in each)
    return codes[first], *(figures.astype(np.float64, copy=False) for figures in sums)  # of no rows they are integers


def distinct_rows(codes: np.ndarray, cardinalities: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Positions (U,) of distinct rows of codes (N, d) in lexicographic order, and which of them each row is, (N,)."""
    # Rows as few large numbers each, of which the first counts most: they sort fast and take little memory.
    keys, sizes = [np.zeros(len(codes), dtype=np.int64)], 1
    for i, n in enumerate(cardinalities):
        if sizes * (n + 1) >= _LARGEST_KEY:
            keys, sizes = [np.zeros(len(codes), dtype=np.int64), *keys], 1
        keys[0] *= n + 1
        keys[0] += codes[:, i] + 1
        sizes *= n + 1
    order = np.lexsort(keys)
    is_new = np.ones(len(codes), dtype=bool)
    if len(codes):
        is_new[1:] = np.any([np.diff(key[order]) != 0 for key in keys], axis=0)
    first, inverse = order[is_new], np.empty(len(codes), dtype=np.int64)
    inverse[order] = np.cumsum(is_new) - 1
    return first, inverse


def marginal_tables(codes: np.ndarray, counts: np.ndarray, cardinalities: Sequence[int], edges: Sets) -> np.ndarray:
    """Marginal counts of complete rows (U, d), edge after edge of schema positions, each table row-major."""
    columns = np.ascontiguousarray(codes.T, dtype=np.min_scalar_type(max(cardinalities, default=1)))
    sizes = np.diff(laid_out(cardinalities, edges)[0])

    def by_rows(some: Sets | list[Any]) -> Iterator[np.ndarray]:
        for edge in some:
            cell = np.zeros(len(codes), dtype=np.int64)
            for i in edge:
                cell *= cardinalities[i]
                cell += columns[i]
            yield np.bincount(cell, weights=counts, minlength=math.prod(cardinalities[i] for i in edge))

    # Many small tables are counted by bits, with compiled code.
    tables = by_rows(edges)
    if len(edges) * len(codes) >= _MANY_LOOK_UPS and LevelBits.serves(counts):
        bits = LevelBits(columns, cardinalities, counts)
        if bits.is_fast(int(sizes.max(initial=0))):
            return bits.cells(edges)
        tables = bits.margins_beside(edges, by_rows)
    flat = np.zeros(sizes.sum())
    start = 0
    for table, size in zip(tables, sizes, strict=True):
        flat[start : start + size] = table
        start += size
    return flat


def check_split(fractions: Sequence[float], seed: int) -> list[float]:
    """Fractions of a split as floats, refused unless they sum to 1 (to 1e-9) and the seed is a whole number from 0."""
    shares = [float(f) for f in fractions]
    if not shares or any(not (0 <= f <= 1) for f in shares) or abs(math.fsum(shares) - 1) > 1e-9:
        raise out_of_range("split fractions", "numbers from 0 to 1 that sum to 1", received=shares)
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)):
        raise wrong_type("split seed", "an integer", received=repr(seed))
    if seed < 0:
        raise out_of_range("split seed", "a non-negative integer", received=seed)
    return shares


def split_rows(
    counts: np.ndarray, fractions: Sequence[float], seed: int, *, are_weights: bool = False
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Random disjoint parts as (row positions, counts) pairs.

    Whole counts are split as single observations: by shuffling up to 2^20 of them, else by drawing the counts of each
    part. A row stays whole where counts are weights, as fractions are. Where every count is one, rows of a part come in
    shuffled order, else in the order of the table.
    """
    is_single, is_whole = bool((counts == 1).all()), bool((counts == np.floor(counts)).all())
    is_table = is_whole and not (is_single or are_weights)
    total = int(counts.sum()) if is_table else len(counts)
    # Parts end at rounded shares of the units, which are rows or single observations.
    cumulated = [math.fsum(fractions[: k + 1]) for k in range(len(fractions) - 1)]
    ends = [0, *(min(total, math.floor(f * total + 0.5)) for f in cumulated), total]  # near 2^53 a half is lost
    random = np.random.default_rng(seed)
    # Cells with counts are split observation by observation, without writing these out.
    if is_table:
        tables = _drawn if total > _MOST_UNITS or total in np.diff(ends) else _shuffled
        drawn = tables(counts.astype(np.int64), ends, random)
        return [(rows, part[rows].astype(float)) for part in drawn for rows in [np.flatnonzero(part)]]
    units = random.permutation(len(counts))
    return [(chosen, counts[chosen]) for chosen in (units[start:stop] for start, stop in pairwise(ends))]


def _shuffled(counts: np.ndarray, ends: Sequence[int], random: np.random.Generator) -> list[np.ndarray]:
    """Counts of every part from a permutation of all observations."""
    units = random.permutation(np.repeat(np.arange(len(counts)), counts))
    return [np.bincount(units[start:stop], minlength=len(counts)) for start, stop in pairwise(ends)]


def _drawn(counts: np.ndarray, ends: Sequence[int], random: np.random.Generator) -> list[np.ndarray]:
    """Counts of every part, drawn from what the parts before it left."""
    parts: list[np.ndarray] = []
    for start, stop in pairwise(ends):
        parts.append(drawn_without_replacement(counts, stop - start, random))
        counts = counts - parts[-1]
    return parts
