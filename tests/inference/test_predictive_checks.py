"""Replicates against the exact law, and checks whose answer is known."""

import numpy as np
import pytest
import torch
from scipy import stats

from pyro_hoim import Domain, InteractionHypergraph, Observations
from pyro_hoim.inference import Replicates, posterior_predictive, predictive_check, prior_predictive
from pyro_hoim.log_linear import DiaconisYlvisaker, normal_prior, parametrization
from pyro_hoim.testing import FALSE_ALARM_RATE, chi_square_p_value, exact_statistics, exact_table, raises

DOMAIN = Domain.from_cardinalities({"a": 2, "b": 3, "c": 2})
PAIRS = InteractionHypergraph.from_order(DOMAIN, 2)
MAIN = InteractionHypergraph.from_order(DOMAIN, 1)


def theta_of(hypergraph, seed):
    return torch.from_numpy(np.random.default_rng(seed).normal(scale=0.7, size=hypergraph.num_parameters))


def law_of(hypergraph, theta):
    return np.exp(exact_table(hypergraph, parametrization(hypergraph).to_tables(theta)))


def p_value(observed, probs):
    return float(chi_square_p_value(observed, probs)[0])


def by_hand(counts, expected, rows):
    """Replicates of a one-variable table with given counts."""
    hypergraph = InteractionHypergraph.from_order(Domain.from_cardinalities([len(expected)]), 1)
    table = torch.tensor(counts, dtype=torch.float64)
    theta = torch.zeros(len(counts), hypergraph.num_parameters, dtype=torch.float64)
    means = torch.tensor(expected, dtype=torch.float64).expand_as(table)
    return Replicates(hypergraph, theta, rows, "cells", table, means)


def test_replicates_follow_the_law():
    theta = theta_of(PAIRS, 1)
    replicates = posterior_predictive(PAIRS, theta.expand(20_000, -1), 5, seed=3)
    assert replicates.counts.shape == (20_000, 12)
    assert bool((replicates.counts.sum(1) == 5).all())
    law = law_of(PAIRS, theta).ravel()
    np.testing.assert_allclose(replicates.expected[0].numpy(), 5 * law, rtol=1e-10)
    total = replicates.counts.sum(0).numpy()
    assert p_value(total, law) > FALSE_ALARM_RATE
    wrong = law_of(PAIRS, theta * (torch.arange(PAIRS.num_parameters) > 0))
    assert p_value(total, wrong) < FALSE_ALARM_RATE
    # Counts of one data set are those of independent rows: the variance of a cell is binomial.
    cell = replicates.counts[:, 0].numpy()
    observed = np.bincount(cell.astype(int), minlength=6)
    assert p_value(observed, stats.binom(5, law[0]).pmf(np.arange(6))) > FALSE_ALARM_RATE


def test_margins_are_the_expected_ones():
    theta = torch.stack([theta_of(PAIRS, seed) for seed in range(3)])
    replicates = posterior_predictive(PAIRS, theta, 1000, level="margins", seed=1)
    eta = exact_statistics(PAIRS, np.log(law_of(PAIRS, theta)))
    np.testing.assert_allclose(replicates.expected.numpy(), 1000 * eta, rtol=1e-10)
    margins = replicates.counts
    for edge, part in PAIRS.term_slices.items():
        assert bool((margins[:, part].sum(1) == 1000).all()), edge


def test_seeds_and_global_state():
    theta = theta_of(PAIRS, 1).expand(4, -1)
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    first = posterior_predictive(PAIRS, theta, 50, seed=7)
    drawn = prior_predictive(PAIRS, normal_prior(PAIRS), 50, num_draws=4, seed=7)
    assert torch.equal(before, torch.random.get_rng_state())
    torch.manual_seed(6)
    assert torch.equal(first.counts, posterior_predictive(PAIRS, theta, 50, seed=7).counts)
    assert torch.equal(drawn.counts, prior_predictive(PAIRS, normal_prior(PAIRS), 50, num_draws=4, seed=7).counts)
    assert not torch.equal(first.counts, posterior_predictive(PAIRS, theta, 50, seed=8).counts)


def test_discrepancies_and_p_value_by_hand():
    replicates = by_hand([[6.0, 4.0], [5.0, 5.0], [9.0, 1.0], [4.0, 6.0]], [5.0, 5.0], 10)
    observed = torch.tensor([4.0, 6.0], dtype=torch.float64)
    pearson = predictive_check(replicates, observed, "pearson")
    assert pearson.observed.tolist() == pytest.approx([0.4] * 4)
    assert pearson.replicated.tolist() == pytest.approx([0.4, 0.0, 6.4, 0.4])
    assert pearson.p_value == pytest.approx((0.5 + 0 + 1 + 0.5) / 4)
    assert pearson.std_error == pytest.approx(0.25)
    deviance = predictive_check(replicates, observed)
    assert deviance.observed[0].item() == pytest.approx(8 * np.log(0.8) + 12 * np.log(1.2))
    first_cell = predictive_check(replicates, observed, lambda counts, expected: counts[:, 0])
    assert first_cell.p_value == pytest.approx((1 + 1 + 1 + 0.5) / 4)


def test_misfit_is_found_and_a_right_model_is_not_blamed():
    """Rows of the pairs model: the independence model fails, the pairs model passes."""
    theta = theta_of(PAIRS, 2)
    law = law_of(PAIRS, theta)
    table = np.random.default_rng(4).multinomial(2000, law.ravel()).reshape(law.shape)
    observed = Observations.from_table(DOMAIN, table)
    right = posterior_predictive(PAIRS, theta.expand(2000, -1), 2000)
    margins = torch.from_numpy(exact_statistics(MAIN, np.log(table / table.sum())))
    independent = DiaconisYlvisaker(MAIN, margins, 2000.0).mode
    wrong = posterior_predictive(MAIN, independent.expand(2000, -1), 2000)
    for discrepancy in ("deviance", "pearson"):
        assert 0.001 < predictive_check(right, observed, discrepancy).p_value < 0.999
        assert predictive_check(wrong, observed, discrepancy).p_value == 0.0


def test_prior_predictive_of_the_uniform_dirichlet():
    """With a uniform prior on the probability of a level every count from 0 to N has probability 1 / (N + 1)."""
    hypergraph = InteractionHypergraph.from_order(Domain.from_cardinalities([2]), 1)
    prior = DiaconisYlvisaker.uniform(hypergraph, 2.0, dtype=torch.float64)
    counts = prior_predictive(hypergraph, prior, 9, num_draws=20_000, seed=2).counts[:, 0].long()
    observed = np.bincount(counts.numpy(), minlength=10)
    assert p_value(observed, np.full(10, 0.1)) > FALSE_ALARM_RATE
    wider = DiaconisYlvisaker.uniform(hypergraph, 2.5, dtype=torch.float64)
    other = prior_predictive(hypergraph, wider, 9, num_draws=20_000, seed=2).counts[:, 0].long()
    assert p_value(np.bincount(other.numpy(), minlength=10), np.full(10, 0.1)) < FALSE_ALARM_RATE


THETA = theta_of(PAIRS, 1).expand(4, -1)
TEN = posterior_predictive(PAIRS, THETA, 10)
GAPS = Observations.from_tensor(torch.tensor([[0, -1, 1]] * 10), DOMAIN)
ROWS = Observations.from_tensor(torch.zeros(10, 3, dtype=torch.long), DOMAIN)


@pytest.mark.parametrize(
    ("call", "code", "argument"),
    [
        (lambda: posterior_predictive(PAIRS, THETA, 10, level="rows"), "unknown-choice", "level"),
        (lambda: posterior_predictive(PAIRS, THETA, 0), "out-of-range", "total_count"),
        (lambda: posterior_predictive(PAIRS, THETA, 2.5), "out-of-range", "total_count"),
        (lambda: posterior_predictive(PAIRS, THETA, -1), "out-of-range", "total_count"),
        (lambda: posterior_predictive(PAIRS, THETA, True), "out-of-range", "total_count"),
        (lambda: posterior_predictive(PAIRS, THETA[:, :3], 10), "wrong-shape", "theta"),
        (lambda: posterior_predictive(PAIRS, THETA[:0], 10), "wrong-shape", "theta"),
        (lambda: posterior_predictive(PAIRS, [[0.0]], 10), "wrong-type", "theta"),
        (lambda: posterior_predictive(PAIRS, THETA, 10, max_cells=40), "over-budget", None),
        (lambda: prior_predictive(PAIRS, DiaconisYlvisaker.uniform(PAIRS, 1.0), 10), "no-method", "prior"),
        (lambda: prior_predictive(PAIRS, normal_prior(PAIRS), 10, num_draws=0), "out-of-range", "num_draws"),
        (lambda: predictive_check(TEN, torch.ones(12, dtype=torch.float64)), "other-domain", "observed"),
        (lambda: predictive_check(TEN, torch.ones(3)), "wrong-shape", "observed"),
        (lambda: predictive_check(TEN, [1, 2]), "wrong-type", "observed"),
        (lambda: predictive_check(TEN, GAPS), "missing-cells", None),
        (lambda: predictive_check(TEN, ROWS, "chi"), "unknown-choice", "discrepancy"),
        (lambda: predictive_check(TEN, ROWS, lambda n, m: n), "wrong-shape", "discrepancy"),
    ],
)
def test_bad_input(call, code, argument):
    with raises(code=code, argument=argument):
        call()
