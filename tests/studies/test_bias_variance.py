"""Bias and variance of Boltzmann machines: gradients by autograd, laws by enumeration, sentences of the paper."""

import itertools
import json
import math

import numpy as np
import pytest
import torch
from scipy import stats

from pyro_hoim import Domain, InteractionHypergraph, Observations
from pyro_hoim.annealing import runs as annealed_runs
from pyro_hoim.log_linear import AnnealedImportance, LogLinearEnergy, MachineTraining, train_machine
from pyro_hoim.testing import FALSE_ALARM_RATE, exact_log_partition, exact_table, random_tables

from studies.bias_variance import (
    HIDDEN,
    ORDERS,
    SIZES,
    Design,
    Machine,
    divergence,
    learn,
    learn_by_samples,
    limit,
    num_parameters,
    run,
    sample,
    true_law,
)
from studies.bias_variance_figures import read_table
from support.transitions import sweep_matrix

SMALL = Design(num_variables=6, steps=300, reference_rows=10_000)


def _codes(n):
    """Levels of all cells (2^n, n); variable i is bit i, as in the compiled steps."""
    return torch.tensor([[cell >> i & 1 for i in range(n)] for cell in range(2**n)], dtype=torch.float64)


def _interactions(theta, n, k):
    """Log probabilities of all cells, written out."""
    sets = [s for size in range(1, k + 1) for s in itertools.combinations(range(n), size)]
    energy = sum(t * _codes(n)[:, list(s)].prod(1) for t, s in zip(theta, sets, strict=True))
    return energy.log_softmax(0)


def _hidden(weights, visible, hidden, n):
    """The same of hidden units, by the sum over their states."""
    v, h = _codes(n), _codes(len(hidden))
    joint = (v @ visible)[:, None] + (h @ hidden)[None] + v @ weights.T @ h.T
    return joint.logsumexp(1).log_softmax(0)


def _descend(law, parameters, target, design):
    """Plain gradient steps by autograd."""
    for _ in range(design.steps):
        for value in parameters:
            value.requires_grad_(True)
        loss = -(torch.from_numpy(target) * law(*parameters)).sum()
        gradients = torch.autograd.grad(loss, parameters)
        parameters = [(value - design.rate * g).detach() for value, g in zip(parameters, gradients, strict=True)]
    return law(*parameters).numpy()


@pytest.mark.parametrize("order", [1, 2, 4])
def test_steps_of_interactions_are_those_of_autograd(order):
    design = Design(num_variables=4, steps=20, rate=0.5)
    target = true_law(design)
    number = num_parameters(Machine("hbm", order), 4)
    expected = _descend(
        lambda t: _interactions(t, 4, order), [torch.zeros(number, dtype=torch.float64)], target, design
    )
    found = learn(Machine("hbm", order), target, design)
    assert np.abs(found - expected).max() < 1e-12
    assert (
        np.abs(learn(Machine("hbm", order), target, Design(num_variables=4, steps=19, rate=0.5)) - found).max() > 1e-4
    )


def test_steps_of_interactions_are_those_of_the_library():
    design = Design(num_variables=6, steps=40)
    domain = Domain.from_cardinalities([2] * 6)
    rows = Observations.from_table(domain, np.rint(500 * sample(design, 500, 0)).astype(int).reshape([2] * 6))
    found = train_machine(rows, 3, training=MachineTraining(num_iterations=40)).law.log_prob_table.reshape(-1).numpy()
    assert np.abs(learn(Machine("hbm", 3), sample(design, 500, 0), design) - found).max() < 1e-12


@pytest.mark.parametrize("kind", ["gibbs", "cd"])
def test_machines_learned_from_samples_are_near_those_of_exact_gradients(kind):
    design = Design(num_variables=4, steps=150, rate=0.5, num_samples=2000, num_temperatures=50)
    rows, exact = sample(design, 200, 1), {"gibbs": Machine("hbm", 2), "cd": Machine("hbm", 1)}[kind]
    found = learn_by_samples(Machine(kind, 2 if kind == "gibbs" else 0), rows, 200, design, 200, 1)
    assert np.exp(found.log_probs).sum() == pytest.approx(1, abs=1e-9)
    assert divergence(np.exp(learn(exact, rows, design)), found.log_probs) < 2e-3
    assert divergence(np.exp(learn(Machine("hbm", 4), rows, design)), found.log_probs) > 1e-2  # the control
    assert abs(found.log_z_error) < 0.05


@pytest.mark.parametrize("number", [0, 1, 3])
def test_steps_of_hidden_units_are_those_of_autograd(number):
    design = Design(num_variables=4, steps=20, rate=0.5, spread=1.0)
    target = true_law(design)
    weights = torch.from_numpy(np.random.default_rng([0, number, 7]).normal(size=(number, 4)))
    zeros = [torch.zeros(4, dtype=torch.float64), torch.zeros(number, dtype=torch.float64)]
    expected = _descend(lambda w, b, c: _hidden(w, b, c, 4), [weights, *zeros], target, design)
    found = learn(Machine("rbm", number), target, design, 7)
    assert np.abs(found - expected).max() < 1e-12
    assert (np.abs(learn(Machine("rbm", number), target, design, 8) - found).max() > 1e-4) == (number > 0)


def test_parameters_that_leave_the_range_of_numbers_are_an_error():
    with pytest.raises(FloatingPointError, match="left the range of numbers"):
        learn(Machine("rbm", 3), true_law(Design(num_variables=4)), Design(num_variables=4, steps=50, rate=1e5))


def test_sizes_and_parameters_are_the_papers():
    assert SIZES == (10, 30, 50, 100, 300, 500, 1000, 3000, 5000, 10_000, 30_000, 50_000)
    sizes = [num_parameters(Machine("hbm", k), 10) for k in ORDERS]
    assert sizes == [10, 55, 175, 385, 637, 847, 967, 1012, 1022, 1023]
    assert [num_parameters(Machine("rbm", m), 10) for m in (HIDDEN[0], 1, HIDDEN[-1])] == [10, 21, 175]
    law = true_law(Design())
    assert law.shape == (1024,) and law.sum() == pytest.approx(1, abs=1e-15)
    rows = sample(Design(), 500, 3) * 500
    assert rows.sum() == pytest.approx(500) and np.array_equal(rows, rows.round())
    assert not np.array_equal(sample(Design(), 500, 4) * 500, rows)


def test_a_run_goes_on_where_it_was_stopped(tmp_path):
    machines = [Machine("hbm", 2), Machine("mle", 2), Machine("rbm", 3)]
    options = {"repeats": 3, "design": SMALL, "progress": False}
    whole = run(tmp_path / "whole", machines, [30, 300], **options)
    run(tmp_path / "parts", machines[2:], [300], **options)
    text = (tmp_path / "parts").read_text(encoding="utf-8")
    (tmp_path / "parts").write_text(text[: text.rfind("{") + 40], encoding="utf-8")  # killed within the last line
    run(tmp_path / "parts", machines[:2], [300], **{**options, "repeats": 1})
    parts = run(tmp_path / "parts", machines, [30, 300], **options)
    assert whole.equals(parts) and len(whole) == 6
    lines = (tmp_path / "parts").read_text(encoding="utf-8").splitlines()
    keys = [
        tuple(json.loads(line).get(name) for name in ("kind", "complexity", "num_rows", "repeat")) for line in lines
    ]
    assert len(set(keys)) == len(keys) == 1 + 3 + 6 * 3
    with pytest.raises(ValueError, match="give another file"):
        run(tmp_path / "parts", machines, [30], **{**options, "design": Design(num_variables=6, steps=200)})


def test_total_error_is_bias_and_variance_for_interactions_after_any_number_of_steps_and_not_for_hidden_units(tmp_path):
    machines = [Machine("hbm", k) for k in range(1, 7)] + [Machine("rbm", m) for m in (0, 4)]
    found = run(tmp_path / "r", machines, [20, 2000], repeats=4, design=SMALL, progress=False)
    remainder = found.set_index(["kind", "complexity"])["remainder"].abs()
    assert remainder["hbm"].max() < 1e-8
    assert remainder["rbm", 4].min() > 1e-5  # the control: a reference that is no projection


# Sentences of Luo and Sugiyama (2019) one by one, on laws of few variables; what is false is shown to be so.

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
