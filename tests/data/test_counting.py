"""Merging, marginal tables and splits against counting by hand."""

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, strategies as st

from pyro_hoim.data.counting import marginal_tables, merge_rows, split_rows


@st.composite
def tables(draw, *, missing=False):
    """Rows of up to four variables with whole counts."""
    cardinalities = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    row = st.tuples(*(st.integers(-1 if missing else 0, n - 1) for n in cardinalities))
    rows = draw(st.lists(row, max_size=12))
    counts = draw(st.lists(st.integers(0, 5), min_size=len(rows), max_size=len(rows)))
    codes = np.array(rows, dtype=np.int64).reshape(len(rows), len(cardinalities))
    return codes, np.array(counts, dtype=float), tuple(cardinalities)


def counted(codes, counts):
    """Total count of each distinct row, by a dictionary."""
    total = Counter()
    for row, count in zip(codes.tolist(), counts.tolist(), strict=True):
        total[tuple(row)] += count
    return +total


@given(tables(missing=True), st.booleans())
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


def by_hand(codes, counts, cardinalities, edges):
    """Marginal counts by enumerating the cells of every edge."""
    flat = []
    for edge in edges:
        margin = counted(codes[:, list(edge)], counts)
        flat += [margin[cell] for cell in itertools.product(*(range(cardinalities[i]) for i in edge))]
    return flat


@given(tables(), st.data())
def test_marginal_tables(case, data):
    codes, counts, cardinalities = case
    subset = st.lists(st.integers(0, len(cardinalities) - 1), unique=True)  # any order, the empty set too
    edges = data.draw(st.lists(subset, max_size=4))
    received = marginal_tables(codes, counts, cardinalities, edges)
    assert received.dtype == np.float64
    assert received.tolist() == by_hand(codes, counts, cardinalities, edges)


def test_marginal_tables_control_transposed_axes():
    """The comparison above sees axes in the wrong order."""
    codes, counts, cardinalities = np.array([[0, 2], [1, 0]]), np.array([3.0, 1.0]), (2, 3)
    received = marginal_tables(codes, counts, cardinalities, [(0, 1)])
    assert received.tolist() != by_hand(codes, counts, cardinalities, [(1, 0)])


@given(tables(), st.lists(st.integers(1, 5), min_size=1, max_size=4), st.integers(0, 3))
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

    assert first(3) == first(3)
    assert first(3) != first(4)
    assert first(3) != list(range(25))
