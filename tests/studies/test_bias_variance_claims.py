"""Sentences of Luo and Sugiyama (2019) one by one, on laws of few variables; what is false is shown to be so."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy import stats

from pyro_hoim import Domain, InteractionHypergraph
from pyro_hoim.annealing import runs as annealed_runs
from pyro_hoim.log_linear import AnnealedImportance, LogLinearEnergy
from pyro_hoim.testing import FALSE_ALARM_RATE, exact_log_partition, exact_table, random_tables, sweep_matrix

from studies.bias_variance import (
    Design,
    Machine,
    divergence,
    learn,
    limit,
    num_parameters,
    sample,
    true_law,
)


def _biases(law):
    return [divergence(law, limit(k, law)) for k in range(1, 7)]


# "Surprisingly, the bias does not show any clear correlation between the number of model parameters and the sample
# size": the bias is no function of the sample, and falls with the number of parameters in every law.


def test_bias_falls_with_the_number_of_parameters():
    """The numbers of one law that were known before, and what is expected of all."""
    draws = torch.rand(64, generator=torch.Generator().manual_seed(3)).double()
    assert [round(bias, 3) for bias in _biases((draws / draws.sum()).numpy())[:3]] == [0.238, 0.155, 0.063]
    found = np.array([_biases(true_law(Design(num_variables=6, seed=seed))) for seed in range(60)])
    assert (np.diff(found) < 0).all() and found[:, -1].max() < 1e-9
    # Cells are nearly independent, so that every parameter takes an equal share of the divergence from independence.
    left = np.array([63 - num_parameters(Machine("hbm", k), 6) for k in range(1, 7)]) / 63
    expected = (math.log(2) - 0.5) * left
    error = stats.norm.isf(FALSE_ALARM_RATE) * found.std(0) / math.sqrt(60)
    assert (np.abs(found.mean(0) - expected)[:3] < error[:3] + 0.006).all()
    constant = np.full(6, found.mean())
    assert (np.abs(found.mean(0) - constant)[:4] > error[:4] + 0.006).sum() >= 3  # the control: the paper's sentence


# "An inverse relationship between the sample size and variance": near parameters / 2N where N is large.


def _sandwich(law, order):
    """Twice the rows times the variance for many rows: trace of the inverse Fisher information and the covariance."""
    n = len(law).bit_length() - 1
    best = np.exp(limit(order, law))
    cells = np.arange(len(law))
    sets = [s for s in range(1, len(law)) if s.bit_count() <= order]
    signs = np.array([[1.0 - 2.0 * ((cell & s).bit_count() % 2) for s in sets] for cell in cells])
    assert n >= order
    covariances = [(signs * p[:, None]).T @ signs - np.outer(p @ signs, p @ signs) for p in (best, law)]
    return float(np.trace(np.linalg.solve(*covariances)))


@pytest.mark.parametrize("order", [1, 2, 3])
def test_variance_of_many_rows_is_parameters_over_twice_their_number(order):
    design, num_rows, repeats = Design(num_variables=5), 50_000, 100
    law = true_law(design)
    best = np.exp(limit(order, law))
    found = [divergence(best, limit(order, sample(design, num_rows, r))) for r in range(repeats)]
    mean, number = 2 * num_rows * float(np.mean(found)), num_parameters(Machine("hbm", order), 5)
    expected = _sandwich(law, order)
    error = stats.norm.isf(FALSE_ALARM_RATE / 2) * 2 * num_rows * float(np.std(found)) / math.sqrt(repeats)
    assert abs(mean - expected) < error
    assert abs(expected / number - 1) < 0.15  # the law is not in the family: not exactly one
    assert abs(mean - 2 * number) > error  # the control: parameters / N


def test_expected_variance_is_the_number_of_parameters_where_the_law_is_in_the_family():
    law = true_law(Design(num_variables=5))
    assert _sandwich(np.exp(limit(2, law)), 2) == pytest.approx(15, abs=1e-7)
    assert abs(_sandwich(law, 2) - 15) > 1e-3  # the control


# The maximum-likelihood estimate that the decomposition asks for has infinite variance; 10,000 steps have not.


def test_variance_of_the_estimate_is_infinite_at_empty_margins_and_grows_with_the_logarithm_of_the_steps():
    design = Design(num_variables=6)
    law, rows = true_law(design), sample(design, 30, 0)
    for order in (3, 6):
        assert math.isinf(divergence(law, limit(order, rows)))
    assert math.isfinite(divergence(law, limit(1, rows)))
    found = [
        divergence(law, learn(Machine("hbm", 6), rows, Design(num_variables=6, steps=steps)))
        for steps in (10**3, 10**4, 10**5)
    ]
    # The probability of a cell that was not seen falls as the inverse of the number of steps, never faster.
    unseen = float(law[rows == 0].sum())
    growth = np.diff(found)
    assert (growth > 0.5 * unseen * math.log(10)).all() and (growth < 1.5 * math.log(10)).all()
    full = [learn(Machine("hbm", 1), rows, Design(num_variables=6, steps=steps)) for steps in (10**4, 10**5)]
    assert np.abs(np.diff(full, axis=0)).max() < 1e-9  # the control: a finite estimate stands still


# "Var(r_AIS) ~ 1 / MK" (Neal), and what the annealed estimate adds to the reported errors.


GRAPH = InteractionHypergraph.from_order(Domain.from_cardinalities([2] * 5), 3)
TABLES = random_tables(GRAPH, np.random.default_rng(5), balanced=False)


def _weight_variance(num_temperatures, beta_of_sweeps=1.0):
    """Variance of w / r of annealed runs from the uniform law, by pushing the weighted law through exact sweeps."""
    gain = exact_table(GRAPH, TABLES).reshape(-1) + math.log(32)
    mass, reference = np.full(32, 1 / 32), np.zeros(10)
    betas = np.linspace(0, 1, num_temperatures + 1)
    blocks = [(name,) for name in GRAPH.domain.names]
    for before, after in itertools.pairwise(betas):
        mass = mass * np.exp(2 * (after - before) * gain)
        mass = mass @ sweep_matrix(GRAPH, TABLES, blocks, beta=beta_of_sweeps * after, reference=reference)
    return float(mass.sum()) - 1


def test_variance_of_annealed_ratios_falls_as_runs_times_temperatures():
    """M K Var(r_AIS) / r^2: exact for K to 256 and one run, and by the library's runs of M chains."""
    exact = {k: k * _weight_variance(k) for k in (2, 64, 128, 256)}
    assert exact[128] / exact[256] == pytest.approx(1, abs=0.02)
    assert abs(exact[2] / exact[256] - 1) > 0.2  # not so with few temperatures: the control
    model, groups, log_r = LogLinearEnergy(GRAPH, torch.from_numpy(TABLES)), 500, _log_ratio()
    for runs, temperatures in ((16, 64), (64, 64), (16, 256)):
        backend = AnnealedImportance(
            num_chains=runs * groups, num_temperatures=temperatures, reverse=False, reference="uniform"
        )
        weights = annealed_runs.forward(backend._annealed(model), 5).log_weights.double().reshape(groups, runs)
        ratios = (weights - log_r).exp().mean(1)
        found = runs * temperatures * float(ratios.var())
        error = stats.norm.isf(FALSE_ALARM_RATE) * float((ratios - ratios.mean()).square().std()) / math.sqrt(groups)
        assert abs(found - exact[temperatures]) < runs * temperatures * error
        assert abs(found - 2 * exact[temperatures]) > runs * temperatures * error  # the control


def _log_ratio():
    return float(exact_log_partition(GRAPH, TABLES)) - 5 * math.log(2)


def test_annealed_log_z_adds_variance_to_reported_errors_and_lowers_their_mean():
    """A reported divergence contains log Z: its estimate adds Var(r_AIS) / r^2, and takes half of that off the mean."""
    runs, temperatures, groups = 64, 16, 2000
    model = LogLinearEnergy(GRAPH, torch.from_numpy(TABLES))
    backend = AnnealedImportance(
        num_chains=runs * groups, num_temperatures=temperatures, reverse=False, reference="uniform"
    )
    weights = annealed_runs.forward(backend._annealed(model), 6).log_weights.double().reshape(groups, runs)
    shift = weights.logsumexp(1) - math.log(runs) - _log_ratio()
    added = _weight_variance(temperatures) / runs
    error = stats.norm.isf(FALSE_ALARM_RATE / 2) * float(shift.std()) / math.sqrt(groups)
    assert abs(float(shift.mean()) + added / 2) < error + added**2
    assert float(shift.mean()) < -error / 2  # low on average, so that the reported mean error is too
    assert float(shift.var()) == pytest.approx(added, rel=0.2)
