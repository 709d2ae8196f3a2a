"""Multinomial tables of compiled code against the binomial law of every cell, by both of its ways to draw."""

import numpy as np
import pytest
from scipy import stats

from pyro_hoim.inference.intractable._table_kernels import draw_tables
from pyro_hoim.testing import assert_exact_law

NUM_TABLES = 40_000


def tables(total, probs, seed):
    logits = np.log(probs)[None].repeat(NUM_TABLES, 0)
    words = np.random.default_rng(seed).integers(0, 2**63, NUM_TABLES).astype(np.uint64)
    counts = np.empty_like(logits)
    draw_tables(logits, np.full(NUM_TABLES, float(total)), words, counts)
    assert bool((counts >= 0).all()) and bool((counts.sum(1) == total).all())
    return counts.astype(np.int64)


@pytest.mark.parametrize(
    ("total", "probs"),
    [
        (1, [0.5, 0.2, 0.3]),  # one by one
        (3, [0.01] * 20 + [0.8]),  # one by one among many
        (30, [0.1, 0.6, 0.3]),  # inversion, and above one half
        (60, [0.4, 0.35, 0.25]),  # rejection
        (1841, [0.02, 0.9, 0.08]),
        (200_000, [0.3, 0.0002, 0.6998]),
    ],
)
def test_every_cell_is_binomial(total, probs):
    """The control is the law of one row more."""
    counts = tables(total, np.array(probs), total)
    for cell in {0, 1, len(probs) - 1}:
        support = np.arange(total + 1)
        seen = np.bincount(counts[:, cell], minlength=total + 1)
        assert_exact_law(seen, stats.binom.pmf(support, total, probs[cell]))
    if total < 100:
        with pytest.raises(AssertionError):
            assert_exact_law(seen, stats.binom.pmf(support, total, probs[cell] * (1 - 0.5 / total)))


def test_cells_depend_on_each_other_as_they_should():
    """Two cells of three are negatively correlated; a joint law of small tables in full."""
    counts = tables(4, np.array([0.2, 0.5, 0.3]), 5)
    seen, law = np.zeros((5, 5)), np.zeros((5, 5))
    np.add.at(seen, (counts[:, 0], counts[:, 1]), 1)
    for a in range(5):
        for b in range(5 - a):
            law[a, b] = stats.multinomial.pmf([a, b, 4 - a - b], 4, [0.2, 0.5, 0.3])
    assert_exact_law(seen.astype(np.int64), law)


def test_no_rows_and_an_impossible_cell():
    assert not tables(0, np.array([0.5, 0.5]), 1).any()
    with np.errstate(divide="ignore"):
        counts = tables(50, np.array([0.0, 0.4, 0.6, 0.0]), 2)
    assert not counts[:, 0].any() and not counts[:, 3].any()
