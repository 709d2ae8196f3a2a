"""What is said of weighted rows does not depend on the unit of their weights, and equal weights say nothing."""

import numpy as np
import pytest
import statsmodels.api as sm
import torch
from scipy.stats import binom

import pyro_hoim as hoim
from pyro_hoim.core.prediction import Prediction
from pyro_hoim.core.scores import mean_over_rows
from pyro_hoim.dependency_network import learn_network
from pyro_hoim.inference import enumerate_structures
from pyro_hoim.log_linear.scores import prediction_accuracy, score_rows

RNG = np.random.default_rng(11)
A, C = RNG.integers(0, 2, (2, 400))
B = np.where(RNG.random(400) < 0.62, A, 1 - A)
DOMAIN = hoim.Domain.from_cardinalities({"a": 2, "b": 2, "c": 2})
CODES = torch.from_numpy(np.column_stack([A, B, C]))
WEIGHTS = torch.from_numpy(RNG.integers(1, 9, 400).astype(float))
GRAPH = hoim.InteractionHypergraph.from_order(DOMAIN, 2)
MODEL = hoim.LogLinearEnergy.from_theta(GRAPH, torch.tensor([0.1, 0.0, -0.2, 0.8, 0.1, 0.1], dtype=torch.float64))
ALONE = hoim.LogLinearEnergy.from_theta(GRAPH, torch.tensor([0.2, 0.3, -0.1, 0.0, 0.0, 0.0], dtype=torch.float64))


def scores(rows):
    found = score_rows(MODEL, rows, reference=ALONE)
    return [found.nll, found.nll_std_error, found.gain, found.gain_std_error, found.kl]


def learned(rows):
    found = hoim.learn(*rows.split([0.7, 0.3], 0))
    return [found.structure.hypergraph.num_parameters, *found.tables.tolist(), *found.structure.tables.tolist()]


def network(rows):
    found = learn_network(rows)
    return [p for name in DOMAIN.names for p in found.conditionals.node(name).probs.flatten().tolist()]


FIGURES = {
    "scores": scores,
    "accuracy": lambda rows: list(prediction_accuracy(MODEL, rows, "b").values())[1:4],
    "errors": lambda rows: hoim.fit(GRAPH, rows).standard_errors("corner", "robust").tolist(),
    "learn": learned,
    "network": network,
    "structures": lambda rows: enumerate_structures(rows).inclusion.mean.tolist(),
}


@pytest.mark.parametrize("name", FIGURES)
def test_the_unit_of_weights_says_nothing(name):
    figures = FIGURES[name]
    weighted = figures(hoim.Observations(DOMAIN, CODES, WEIGHTS, True))
    assert figures(hoim.Observations(DOMAIN, CODES, WEIGHTS / 7, True)) == pytest.approx(weighted, rel=1e-6)
    merged = hoim.Observations(DOMAIN, CODES, 3 * WEIGHTS, True)
    if name != "learn":  # which parts do not split merged rows alike
        close = 1e-3 if name == "errors" else 1e-6  # of merged rows n / (n - 1) takes the effective number
        assert figures(merged.unique()) == pytest.approx(weighted, rel=close)
    equal = figures(hoim.Observations(DOMAIN, CODES, torch.full((400,), 5.0), True))
    assert equal == pytest.approx(figures(hoim.Observations(DOMAIN, CODES)), rel=1e-6)
    # Control: more counts say more.
    counts = [figures(hoim.Observations(DOMAIN, CODES, WEIGHTS * k)) for k in (1, 30)]
    assert counts[1] != pytest.approx(counts[0], rel=1e-3, abs=0)


def test_errors_of_weighted_means_are_those_of_a_robust_regression():
    values = torch.from_numpy(np.random.default_rng(13).normal(size=400))
    rows = hoim.Observations(DOMAIN, CODES, WEIGHTS, True)
    mean, error = mean_over_rows(values, rows.counts, rows.squared_weights)
    fit = sm.WLS(values.numpy(), np.ones(400), weights=WEIGHTS.numpy()).fit(cov_type="HC0")
    assert (mean, error) == pytest.approx((fit.params[0], fit.bse[0]), rel=1e-10)
    assert rows.effective_count == pytest.approx(rows.unique().effective_count, rel=1e-12) != rows.total_count
    alike = hoim.Observations(DOMAIN, torch.zeros(400, 3).long(), torch.full((400,), 2.5))
    assert alike.unique().effective_count == alike.effective_count == 400  # counts that add up to a whole number


def against_majority(right, weights, *, are_weights=True):
    """The p-value where rows of one level are predicted rightly or not, and all of the other, more frequent one are."""
    size = len(weights)
    truth = torch.cat([torch.from_numpy(right).long(), torch.zeros(1, dtype=torch.long)])
    codes = torch.ones(size + 1, dtype=torch.long)
    codes[-1] = 0
    counts = torch.from_numpy(np.append(weights, 10 * weights.sum()))
    log_probs = torch.eye(2, dtype=torch.float64)[codes].log()
    is_exact, none = torch.ones(size + 1, dtype=torch.bool), torch.zeros(size + 1, 2)
    squares = counts.square() if are_weights else None
    return Prediction("t", ("0", "1"), log_probs, none, is_exact, truth, counts, squares).majority_p_value


def test_accuracies_of_weighted_rows_are_tested_at_their_level():
    rng = np.random.default_rng(12)  # its own: tests run in any order
    right = rng.random((1000, 80)) < 0.5
    weights = rng.gamma(2.0, size=(1000, 80))
    p = np.array([against_majority(*table) for table in zip(right, weights, strict=True)])
    assert 0.03 < (p <= 0.05).mean() < 0.065
    tripled = [against_majority(r, 3 * w.round(), are_weights=False) for r, w in zip(right, weights, strict=True)]
    assert (np.array(tripled) <= 0.05).mean() > 0.15  # control: weights taken for rows
    for table in right[:20]:
        expected = binom.sf(table.sum() - 1, len(table), 0.5)
        assert against_majority(table, np.full(80, 7.0)) == pytest.approx(expected, rel=1e-9)
