"""Merging, marginal tables and splits against counting by hand."""

import itertools
import math
from collections import Counter
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.stats import chi2, hypergeom, norm

from pyro_hoim.data import counting as module
from pyro_hoim.data.counting import (
    distinct_rows,
    drawn_without_replacement,
    hypergeometric,
    marginal_tables,
    merge_rows,
    split_rows,
)
from pyro_hoim.testing import FALSE_ALARM_RATE

from support.strategies import coded_rows, counted


@given(coded_rows(missing=True), st.booleans())
def test_merge_rows(case, wide):
    codes, counts, cardinalities = case
    if wide:  # more states than a 64-bit key holds
        codes, cardinalities = (
            np.concatenate([codes, np.zeros((len(codes), 70), np.int64)], 1),
            (*cardinalities, *[1] * 70),
        )
    merged, totals = merge_rows(codes, counts, cardinalities)
    expected = counted(codes, counts)
    assert merged.tolist() == [list(row) for row in sorted(expected)]
    assert totals.tolist() == [expected[row] for row in sorted(expected)]


@given(coded_rows(missing=True))
def test_distinct_rows(case):
    codes, _, cardinalities = case
    first, inverse = distinct_rows(codes.astype(np.int8), cardinalities)
    distinct, places = np.unique(codes, axis=0, return_inverse=True)
    assert (codes[first].tolist(), inverse.tolist()) == (distinct.tolist(), places.reshape(-1).tolist())


def by_hand(codes, counts, cardinalities, edges):
    """Marginal counts by enumerating the cells of every edge."""
    flat = []
    for edge in edges:
        margin = counted(codes[:, list(edge)], counts)
        flat += [margin[cell] for cell in itertools.product(*(range(cardinalities[i]) for i in edge))]
    return flat


@given(coded_rows(), st.data(), st.sampled_from([0, 2**24]))
def test_marginal_tables(case, data, many):
    codes, counts, cardinalities = case
    subset = st.lists(st.integers(0, len(cardinalities) - 1), unique=True)  # any order, the empty set too
    edges = data.draw(st.lists(subset, max_size=4))
    if len({len(edge) for edge in edges}) == 1 and edges[0]:
        edges = data.draw(st.sampled_from([edges, np.array(edges)]))  # sets of one size
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_MANY_LOOK_UPS", many)  # counted by bits, or row by row
        received = marginal_tables(codes, counts, cardinalities, edges)
    assert (received.dtype, received.tolist()) == (np.float64, by_hand(codes, counts, cardinalities, edges))


def test_marginal_tables_control_transposed_axes():
    """The comparison above sees axes in the wrong order."""
    codes, counts, cardinalities = np.array([[0, 2], [1, 0]]), np.array([3.0, 1.0]), (2, 3)
    received = marginal_tables(codes, counts, cardinalities, [(0, 1)])
    assert received.tolist() != by_hand(codes, counts, cardinalities, [(1, 0)])


@given(coded_rows(), st.lists(st.integers(1, 5), min_size=1, max_size=4), st.integers(0, 3))
def test_split_is_the_split_of_the_expanded_rows(case, shares, seed):
    codes, counts, _ = case
    fractions = [s / sum(shares) for s in shares]
    expanded = np.repeat(codes, counts.astype(int), axis=0)
    parts = split_rows(counts, fractions, seed)
    expected = split_rows(np.ones(len(expanded)), fractions, seed)
    assert len(parts) == len(expected) == len(fractions)
    for (rows, part), (single, ones) in zip(parts, expected, strict=True):
        assert counted(codes[rows], part) == counted(expanded[single], ones)
        assert (part > 0).all() or len(expanded) == len(codes)
    total = sum((counted(codes[rows], part) for rows, part in parts), Counter())
    assert total == counted(codes, counts)


@pytest.mark.parametrize(
    ("n", "fractions", "sizes"),
    [
        (8124, (0.35, 0.15, 0.5), (2843, 1219, 4062)),
        (10, (1.0,), (10,)),
        (10, (1.0, 0.0, 0.0), (10, 0, 0)),
        (3, (0.5, 0.5), (2, 1)),
        (7, (0.1,) * 10, (1, 0, 1, 1, 1, 0, 1, 1, 0, 1)),
        (0, (0.5, 0.5), (0, 0)),
    ],
)
def test_split_sizes(n, fractions, sizes):
    parts = split_rows(np.ones(n), fractions, 0)
    assert tuple(len(rows) for rows, _ in parts) == sizes
    assert sorted(np.concatenate([rows for rows, _ in parts]).tolist()) == list(range(n))


def test_split_keeps_rows_of_fractional_weight_whole():
    weights = np.array([0.5, 2.0, 0.0, 1.5])
    parts = split_rows(weights, (0.5, 0.5), 1)
    assert [len(rows) for rows, _ in parts] == [2, 2]
    assert all((weights[rows] == part).all() for rows, part in parts)


def test_split_depends_on_the_seed_alone():
    def first(seed):
        return split_rows(np.ones(50), (0.5, 0.5), seed)[0][0].tolist()

    assert first(3) == first(3) and first(3) != first(4) and first(3) != list(range(25))


# Counts drawn without replacement: against enumeration, exact ratios of whole numbers, and totals up to 2^53.

LARGEST = 2**53 - 1


def p_value(draws, probs):
    """Chi-square of draws (N, k) against a law on tuples; cells of small expectation are pooled."""
    seen = dict.fromkeys(probs, 0)
    for draw in draws:
        seen[tuple(int(value) for value in draw)] += 1
    size = len(draws)
    large = [key for key, prob in probs.items() if size * prob >= 100]
    observed, expected = [seen[key] for key in large], [size * probs[key] for key in large]
    rest = size - sum(expected)
    if rest >= 1:
        observed, expected = [*observed, size - sum(observed)], [*expected, rest]
    statistic = sum((o - e) ** 2 / e for o, e in zip(observed, expected, strict=True))
    return chi2.sf(statistic, len(expected) - 1)


@pytest.mark.parametrize(
    ("good", "bad", "size"), [(5, 7, 4), (100, 3, 50), (1, 1, 1), (900, 1100, 350), (150, 400, 500)]
)
def test_log_probabilities_are_those_of_enumeration(good, bad, size):
    for value in range(max(0, size - bad), min(size, good) + 1):
        exact = math.log(Fraction(math.comb(good, value) * math.comb(bad, size - value), math.comb(good + bad, size)))
        assert abs(module._log_probability(value, good, bad, size) - exact) < 1e-11 * (1 - exact)


@pytest.mark.parametrize(
    ("good", "bad", "size"),
    [
        (2**51, 2**52, 2**50 + 7),
        (2**52, 2**52 - 1, 2**52),
        (10**15, 3, 10**14),
        (40, 2**53 - 50, 2**51),
        (10**9, 7, 10**9),
    ],
)
def test_log_probabilities_of_large_totals_have_the_exact_ratios(good, bad, size):
    low, high = max(0, size - bad), min(size, good)
    mode = (size + 1) * (good + 1) // (good + bad + 2)
    spread = math.isqrt(size * good * bad * (good + bad - size) // (good + bad) ** 3) + 1
    log_probability = module._log_probability
    for start in (mode, mode - 3 * spread, mode + 3 * spread):
        for value in range(max(low, start), min(high, start + 3)):
            ratio = Fraction((good - value) * (size - value), (value + 1) * (bad - size + value + 1))
            found = log_probability(value + 1, good, bad, size) - log_probability(value, good, bad, size)
            assert abs(found - math.log1p(ratio - 1)) < 2e-7


@pytest.mark.parametrize("total", [2_000_000_000, LARGEST])
def test_log_probabilities_of_large_totals_have_the_height_of_the_limit(total):
    """The local limit theorem: the error of the normal density at the mode is of order 1/variance."""
    good, size = total // 3, total // 5
    variance = size * (good / total) * (1 - good / total) * (1 - size / total)
    height = module._log_probability((size + 1) * (good + 1) // (total + 2), good, total - good, size)
    assert abs(height + 0.5 * math.log(2 * math.pi * variance)) < 2 / variance + 1e-7


def test_draws_have_the_law_and_a_control_has_not():
    random = np.random.default_rng(1)
    draws = [(hypergeometric(8, 12, 7, random),) for _ in range(20_000)]
    probs = {(x,): float(hypergeom.pmf(x, 20, 8, 7)) for x in range(8)}
    assert p_value(draws, probs) > FALSE_ALARM_RATE
    replaced = {(x,): math.comb(7, x) * 0.4**x * 0.6 ** (7 - x) for x in range(8)}  # with replacement
    assert p_value(draws, replaced) < FALSE_ALARM_RATE


def test_halving_draws_the_multivariate_law(monkeypatch):
    """Every split by our own draws: cells as small as enumeration needs."""
    monkeypatch.setattr(module, "_NUMPY_LIMIT", 1)
    counts, size = np.array([3, 0, 2, 4]), 4
    law = {
        h: math.prod(math.comb(int(n), k) for n, k in zip(counts, h, strict=True)) / math.comb(9, size)
        for h in product(*(range(n + 1) for n in counts))
        if sum(h) == size
    }
    random = np.random.default_rng(2)
    draws = [drawn_without_replacement(counts, size, random) for _ in range(20_000)]
    assert p_value(draws, law) > FALSE_ALARM_RATE
    wrong = {h: prob * (2 if h[0] > 1 else 1) for h, prob in law.items()}
    assert p_value(draws, {h: prob / sum(wrong.values()) for h, prob in wrong.items()}) < FALSE_ALARM_RATE


def test_draws_of_the_largest_totals_have_the_quantiles_of_the_limit():
    """A total of 2^53 - 1: uniform quantiles of the normal limit, whose error is of order 1e-7."""
    random = np.random.default_rng(3)
    good, size = LARGEST // 3, LARGEST // 4
    variance = size * (good / LARGEST) * (1 - good / LARGEST) * (1 - size / LARGEST)
    found = np.array([hypergeometric(good, LARGEST - good, size, random) - good * size // LARGEST for _ in range(5000)])

    def tested(deviation):
        cells = np.bincount((norm.cdf(found / deviation) * 10).astype(int), minlength=10)
        return chi2.sf(float(((cells - 500) ** 2 / 500).sum()), 9)

    assert tested(math.sqrt(variance)) > FALSE_ALARM_RATE
    assert tested(math.sqrt(variance) * 1.15) < FALSE_ALARM_RATE  # as of draws from another size
    assert len(set((found % 1000).tolist())) > 900  # whole numbers, not multiples of a rounding


@pytest.mark.parametrize("total", [2**20 + 1, 10**9, 10**12, LARGEST])
def test_a_large_table_is_split_exactly(total):
    shares = np.array([0, 1, 2, 3, 50, 0.5, 900, 44])
    counts = np.floor(shares / shares.sum() * (total - 10)).astype(np.int64)
    counts[1] += total - counts.sum()
    parts = split_rows(counts.astype(float), (0.35, 0.15, 0.5), 5)
    sizes = [int(part.sum()) for _, part in parts]
    ends = [math.floor(0.35 * total + 0.5), math.floor(0.5 * total + 0.5), total]
    assert sizes == np.diff([0, *ends]).tolist()
    together = np.zeros(len(counts), dtype=np.int64)
    for rows, part in parts:
        assert (part > 0).all()
        together[rows] += part.astype(np.int64)
    assert (together == counts).all()
    again = split_rows(counts.astype(float), (0.35, 0.15, 0.5), 5)
    assert all((a[1] == b[1]).all() for a, b in zip(parts, again, strict=True))
    assert not (parts[0][1][:5] == split_rows(counts.astype(float), (0.35, 0.15, 0.5), 6)[0][1][:5]).all()


def test_no_part_but_one_takes_the_table_as_it_is():
    counts = np.array([4e15, 0, 5.0])
    (rows, part), *others = split_rows(counts, (1.0, 0.0, 0.0), 0)
    assert rows.tolist() == [0, 2]
    assert part.tolist() == [4e15, 5.0]
    assert [len(rows) for rows, _ in others] == [0, 0]


@pytest.mark.parametrize("total", [2**52 + 1, LARGEST])
@pytest.mark.parametrize("fractions", [(1.0, 0.0), (0.5, 0.5, 0.0)])
def test_a_half_that_is_lost_to_rounding_takes_no_part_beyond_the_total(total, fractions):
    counts = np.array([total - 5.0, 5.0])
    parts = split_rows(counts, fractions, seed=0)
    found = sum(np.bincount(rows, part, minlength=2) for rows, part in parts)
    assert found.tolist() == counts.tolist() and not len(parts[-1][0])
