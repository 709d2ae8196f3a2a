"""Laws of independent columns: densities and estimates against SciPy, statsmodels and closed forms."""

import math

import numpy as np
import pytest
import scipy.stats
import statsmodels.api as sm
from scipy import sparse

from pyro_hoim.data import CountTable
from pyro_hoim.generalized_root import ExponentialFamily, GaussianFamily, PoissonFamily, TruncatedPoissonFamily
from pyro_hoim.generalized_root.study.baselines import BASELINES, _negative_binomial_size, fit_independent
from pyro_hoim.testing import raises

COUNTS = np.random.default_rng(0).negative_binomial([0.3, 2.0, 40.0], [0.1, 0.5, 0.9], size=(200, 3))
REALS = np.random.default_rng(1).gamma(2.0, 1.5, size=(100, 2))


def fitted(values, kind, family):
    table = CountTable.from_matrix(values, kind=family.kind)
    return table, fit_independent(table, kind, family)


# Densities


def test_negative_binomial_densities():
    table, law = fitted(COUNTS, "negative-binomial", PoissonFamily())
    size, mean = np.asarray(law.second), COUNTS.mean(0)
    assert np.isfinite(size).all()
    expected = scipy.stats.nbinom.logpmf(COUNTS, size, size / (size + mean)).sum(1)
    assert law.log_prob(table) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize(
    ("values", "kind", "family", "expected"),
    [
        (COUNTS, "poisson", PoissonFamily(), scipy.stats.poisson.logpmf(COUNTS, COUNTS.mean(0))),
        (REALS, "exponential", ExponentialFamily(), scipy.stats.expon.logpdf(REALS, scale=REALS.mean(0))),
        (REALS, "normal", GaussianFamily(), scipy.stats.norm.logpdf(REALS, REALS.mean(0), REALS.std(0))),
    ],
)
def test_densities(values, kind, family, expected):
    table, law = fitted(values, kind, family)
    assert law.log_prob(table) == pytest.approx(expected.sum(1), rel=1e-12)


@pytest.mark.parametrize("maximum", [1, 2, 7])
def test_truncated_poisson_matches_the_mean(maximum):
    values = np.minimum(COUNTS, maximum)
    table, law = fitted(values, "truncated-poisson", TruncatedPoissonFamily(maximum))
    every = np.arange(maximum + 1)
    for column in range(values.shape[1]):
        probs = np.exp(law.log_density(np.full(maximum + 1, column), every.astype(float)))
        assert probs.sum() == pytest.approx(1, abs=1e-12)
        assert probs @ every == pytest.approx(values[:, column].mean(), rel=1e-9)
    weights = np.array([[r**x / math.factorial(x) for x in every] for r in law.first])
    expected = np.log(weights / weights.sum(1, keepdims=True))[np.arange(3), values].sum(1)
    assert law.log_prob(table) == pytest.approx(expected, rel=1e-10)


# Estimates


@pytest.mark.parametrize("column", range(2))
def test_negative_binomial_agrees_with_statsmodels(column):
    values = COUNTS[:, column].astype(float)
    peer = sm.NegativeBinomial(values, np.ones(len(values))).fit(disp=0)
    size, mean = _negative_binomial_size(values), values.mean()
    best = float(scipy.stats.nbinom.logpmf(values, size, size / (size + mean)).sum())
    assert best >= peer.llf - 1e-9
    assert best == pytest.approx(peer.llf, rel=1e-6)
    assert size == pytest.approx(1 / peer.params[1], rel=1e-2)


def test_no_other_size_is_more_likely():
    for column in range(3):
        values = COUNTS[:, column].astype(float)
        best, mean = _negative_binomial_size(values), values.mean()

        def log_likelihood(size, values=values, mean=mean):
            return float(scipy.stats.nbinom.logpmf(values, size, size / (size + mean)).sum())

        assert all(log_likelihood(best) > log_likelihood(best * factor) for factor in (0.5, 0.99, 1.01, 2.0))


@pytest.mark.parametrize("values", [[0, 0, 0], [2, 2, 2], [0, 1, 0, 1], [1, 2, 3]])
def test_without_overdispersion_the_law_is_poisson(values):
    assert _negative_binomial_size(np.array(values, dtype=float)) == math.inf
    column = np.array(values)[:, None]
    table, law = fitted(column, "negative-binomial", PoissonFamily())
    assert law.log_prob(table) == pytest.approx(fitted(column, "poisson", PoissonFamily())[1].log_prob(table))
    # Control: one larger count makes it overdispersed.
    assert _negative_binomial_size(np.array([*values, 30.0])) < math.inf


def test_huge_counts_have_a_size():
    values = np.array([1e7, 2e7, 5e6, 0.0])
    size, mean = _negative_binomial_size(values), values.mean()
    best = scipy.stats.nbinom.logpmf(values, size, size / (size + mean)).sum()
    assert best > scipy.stats.nbinom.logpmf(values, 1.01 * size, 1.01 * size / (1.01 * size + mean)).sum()


# Edges


def test_a_column_of_zeros_allows_nothing_else():
    train = CountTable.from_matrix([[0, 1], [0, 3]])
    later = CountTable.from_matrix([[0, 2], [1, 2]])
    for kind in BASELINES["poisson"]:
        found = fit_independent(train, kind, PoissonFamily()).log_prob(later)
        assert np.isfinite(found[0])
        assert found[1] == -math.inf
    family = TruncatedPoissonFamily(3)
    full = fit_independent(CountTable.from_matrix([[3], [3]]), "truncated-poisson", family)
    assert full.log_prob(CountTable.from_matrix([[3], [2]])).tolist() == [0.0, -math.inf]
    for kind, reals in (("exponential", ExponentialFamily()), ("normal", GaussianFamily())):
        law = fit_independent(CountTable.from_matrix([[0.0], [0.0]], kind=reals.kind), kind, reals)
        assert law.log_prob(CountTable.from_matrix([[0.0], [1.0]], kind=reals.kind)).tolist() == [0.0, -math.inf]


def test_sparse_and_dense_rows_agree():
    mixed = COUNTS * (np.random.default_rng(2).random(COUNTS.shape) < 0.2)
    table = CountTable.from_matrix(sparse.csr_matrix(mixed))
    for kind in BASELINES["poisson"]:
        law = fit_independent(table, kind, PoissonFamily())
        each = [law.log_density(np.full(len(mixed), s), mixed[:, s].astype(float)) for s in range(3)]
        assert law.log_prob(table) == pytest.approx(np.sum(each, axis=0), rel=1e-12)


def test_bad_arguments():
    table = CountTable.from_matrix(COUNTS)
    with raises("unknown-choice", "kind"):
        fit_independent(table, "binomial", PoissonFamily())
    with raises("empty", "table"):
        fit_independent(CountTable.from_matrix(np.zeros((0, 1))), "poisson", PoissonFamily())
    with raises("other-domain", "table"):
        fit_independent(table, "poisson", PoissonFamily()).log_prob(table.columns(2))
