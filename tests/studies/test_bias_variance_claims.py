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
from pyro_hoim.testing import FALSE_ALARM_RATE, exact_log_partition, exact_table, random_tables

from studies.bias_variance import (
    HIDDEN,
    ORDERS,
    SIZES,
    Design,
    Machine,
    divergence,
    learn,
    limit,
    num_parameters,
    sample,
    true_law,
)
from studies.bias_variance_figures import read_table
from support.transitions import sweep_matrix

WHOLE = read_table().set_index(["kind", "complexity", "num_rows"])
HBM, RBM, MLE = (WHOLE.loc[kind] for kind in ("hbm", "rbm", "mle"))
TABLE = WHOLE.loc[["hbm", "rbm"]]


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


# Sentences on figures 3 to 9, in the table of the run at the paper's size.


def test_the_table_is_that_of_this_program():
    """Samples and parameters are those of the paper; one machine and sample size are learned anew."""
    assert TABLE["repeats"].eq(24).all() and TABLE["num_finite"].eq(24).all() and WHOLE.index.is_unique
    for frame, levels in ((HBM, ORDERS), (RBM, HIDDEN), (MLE, range(1, 9))):
        assert sorted(frame.index) == list(itertools.product(levels, SIZES))
    law, design = true_law(Design()), Design()
    found = [divergence(law, learn(Machine("rbm", 0), sample(design, 500, r), design, 500, r)) for r in range(24)]
    row = RBM.loc[(0, 500)]
    assert np.mean(found) == pytest.approx(row["total"], rel=1e-4)
    assert np.std(found, ddof=1) / math.sqrt(24) == pytest.approx(row["total_error"], rel=1e-4)
    assert np.abs(HBM["remainder"]).max() < 1e-8
    assert np.abs(RBM["remainder"]).max() > 1e-2  # the control: no exponential family


def _correlation(frame, num_rows):
    at = frame.xs(num_rows, level="num_rows")
    return stats.spearmanr(at["num_parameters"], at["variance"]).statistic


def test_variance_falls_with_rows_and_grows_with_parameters():
    """ "A positive correlation between the number of model parameters and variance and an inverse relationship"."""
    for _, frame in TABLE.groupby(["kind", "complexity"]):
        assert (np.diff(frame["variance"]) < 0).all()
    for _, frame in HBM.loc[(slice(None), SIZES[2:]), :].groupby("num_rows"):
        assert (np.diff(frame["variance"].sort_index())[:7] > 0).all()  # orders from 8 on differ by few parameters
    assert (np.diff(HBM.xs(50, level="num_rows")["variance"])[:8] > 0).all()
    assert _correlation(RBM, 50) > 0.99 and _correlation(RBM, 50_000) < 0.5  # not so for many rows
    assert min(_correlation(RBM, size) for size in SIZES[:-2]) > 0.85


def test_bias_at_the_paper_s_size_falls_for_orders_and_hardly_for_hidden_units():
    """ "Surprisingly, the bias does not show any clear correlation"; and "in a similar order of magnitude"."""
    orders, units = (frame["bias"].groupby("complexity").first() for frame in (HBM, RBM))
    assert (np.diff(orders) < 0).all() and orders[1] > 0.18 and orders[7] < 0.01
    assert units.max() / units.min() < 1.03
    left = [(1023 - num_parameters(Machine("hbm", k), 10)) / (1023 - 10) for k in ORDERS]
    assert np.abs(orders / orders[1] - left).max() < 0.05  # a straight line in the number of parameters


def test_finite_estimates_of_many_rows_have_the_expected_variance_at_the_paper_s_size():
    found = MLE.xs(50_000, level="num_rows").loc[1:6]
    ratio = 2 * 50_000 / found["num_parameters"]
    assert ((found["variance"] * ratio - 1).abs() < 4 * found["variance_error"] * ratio).all()
    assert MLE.loc[(slice(3, 8), [10, 30, 50]), "num_finite"].eq(0).all()
    stopped = HBM.xs(50_000, level="num_rows").loc[6]
    assert abs(stopped["variance"] * ratio[6] - 1) > 4 * stopped["variance_error"] * ratio[6]  # the control


def test_higher_orders_have_no_lower_error_with_few_rows():
    """ "For small sample size, HBM has shown to have produced a lower error": at equal parameters it is larger."""
    many, few = HBM.loc[(3, 50)], RBM.loc[(15, 50)]
    assert many["num_parameters"] == few["num_parameters"] == 175
    error = stats.norm.isf(FALSE_ALARM_RATE) * math.hypot(many["total_error"], few["total_error"])
    assert many["total"] - few["total"] > error and many["variance"] - few["variance"] > error
    assert HBM.loc[(3, 50_000), "total"] < RBM.loc[(15, 50_000), "total"]  # the control: it is so with many


def test_hidden_units_have_the_lower_variance_with_many_rows():
    """ "RBM has shown to be much more effective at reducing the variance with a larger sample size"."""
    assert RBM.loc[(15, 50_000), "variance"] < HBM.loc[(3, 50_000), "variance"] / 3
    two, four = HBM.loc[(2, 50_000)], RBM.loc[(4, 50_000)]  # 55 and 54 parameters: the same
    assert abs(two["variance"] - four["variance"]) < 2 * math.hypot(two["variance_error"], four["variance_error"])


def test_bias_is_the_larger_part_with_many_rows_but_for_high_orders():
    """ "For a larger sample size, the error from the bias is more much dominate"; totals of one order of magnitude."""
    many = TABLE.xs(50_000, level="num_rows")
    assert (many.loc["rbm", "bias"] > 100 * many.loc["rbm", "variance"]).all()
    share = many.loc["hbm", "bias"] / many.loc["hbm", "variance"]
    assert (share[:5] > 1).all() and (share[5:] < 1).all()
    assert many["total"].max() / many["total"].min() < 3
    few = TABLE.xs(50, level="num_rows")["total"]
    assert few.max() / few.min() > 20  # the control
