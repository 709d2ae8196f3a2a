"""Learning of machines: gradients against enumeration, exact optima, persistent chains, continued runs."""

import itertools
import math
import warnings

import numpy as np
import pytest
import torch
from machines import domain, marginal_scores, random_theta, restricted, structures

from pyro_hoim import Domain, Observations
from pyro_hoim.boltzmann import (
    LearningOptions,
    MachineStructure,
    MarginalEnergy,
    RestrictedBoltzmannMachine,
    fit_machine,
)
from pyro_hoim.boltzmann.learning import LearningJob, contrastive_gradient, layer_statistics, model_statistics
from pyro_hoim.errors import ConvergenceWarning, MissingDataError
from pyro_hoim.runs import RunOptions
from pyro_hoim.runs.checkpoint import RunFile
from pyro_hoim.testing import FALSE_ALARM_RATE, assert_close, raises

STRUCTURE = MachineStructure.restricted(domain(4), 2)


def rows_of(law, number, seed=0):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Observations.from_tensor(law.sample((number,)), law.domain)


def teacher(n=5, m=2, scale=3.0):
    """A machine whose columns are on half of the time, by the biases, and depend on one another."""
    weights = scale * torch.cos(1.3 * torch.outer(torch.arange(1.0, n + 1), torch.arange(2.0, m + 2))).double()
    return RestrictedBoltzmannMachine(domain(n), -weights.sum(1) / 2, -weights.sum(0) / 2, weights)


def log_likelihood(law, rows):
    merged = rows.unique()
    return float((law.log_prob(merged.codes) * merged.counts).sum() / merged.total_count)


# Gradients


def enumerated(theta, shares, steps):
    """Mean statistics of rows with given shares of the 2^n states, h exact, and of chains after k sweeps from there."""
    n, m = 4, 2
    b, c, w = (part.numpy() for part in (theta[:n], theta[n : n + m], theta[n + m :].reshape(n, m)))
    visible = np.array(list(itertools.product((0, 1), repeat=n)), dtype=float)
    hidden = np.array(list(itertools.product((0, 1), repeat=m)), dtype=float)
    joint = np.exp(visible @ b[:, None] + hidden @ c + visible @ w @ hidden.T)
    up, down = joint / joint.sum(1, keepdims=True), joint / joint.sum(0)
    law = joint.sum(1) / joint.sum()

    def means(weights):
        pairs = weights[:, None, None, None] * up[:, :, None, None] * visible[:, None, :, None] * hidden[:, None, :]
        share = (weights[:, None] * up).sum(0)
        return np.concatenate([weights @ visible, share @ hidden, pairs.sum((0, 1)).ravel()])

    ends = shares @ np.linalg.matrix_power(up @ down.T, steps)
    return means(shares), means(ends), means(law)


@pytest.mark.parametrize("steps", [1, 3])
def test_the_estimate_of_the_gradient_has_the_enumerated_mean(steps):
    theta = random_theta(STRUCTURE, scale=1.5, seed=2)
    shares = torch.softmax(torch.linspace(-1, 1, 16).double()[torch.arange(16) * 5 % 16], 0)
    data, chains, _ = enumerated(theta, shares.numpy(), steps)
    other = enumerated(theta, shares.numpy(), 4 - steps)[1]
    model, states = (
        MarginalEnergy(STRUCTURE, theta),
        torch.tensor(list(itertools.product((0.0, 1.0), repeat=4))).double(),
    )
    assert_close(layer_statistics(model, states, shares), data, what="data term")
    generator = torch.Generator().manual_seed(4)
    rows = states[shares.multinomial(200_000, replacement=True, generator=generator)]
    found, ends = contrastive_gradient(model, rows, rows, steps, generator)
    # Hoeffding: every statistic of a row lies in [0, 1], two means of 200,000
    limit = 2 * math.sqrt(math.log(4 * len(theta) / FALSE_ALARM_RATE) / (2 * len(rows)))
    assert np.abs(found.numpy() - (data - chains)).max() < limit
    assert np.abs(found.numpy() - (data - other)).max() > limit  # control: another number of sweeps
    assert set(ends.unique().tolist()) == {0.0, 1.0}


def test_rows_with_shares_count_as_often_in_the_chains_that_start_there():
    theta = random_theta(STRUCTURE, scale=1.5, seed=2)
    shares = torch.softmax(torch.linspace(-3, 3, 16).double()[torch.arange(16) * 5 % 16], 0)
    data, chains, _ = enumerated(theta, shares.numpy(), 1)
    even = enumerated(theta, np.full(16, 1 / 16), 1)[1]
    states = torch.tensor(list(itertools.product((0.0, 1.0), repeat=4))).double().repeat(5000, 1)
    weights, generator = shares.repeat(5000) / 5000, torch.Generator().manual_seed(5)
    found, _ = contrastive_gradient(MarginalEnergy(STRUCTURE, theta), states, states, 1, generator, weights)
    # Hoeffding for weighted sums of statistics in [0, 1]
    limit = math.sqrt(float(weights.square().sum()) * math.log(2 * len(theta) / FALSE_ALARM_RATE) / 2)
    assert np.abs(found.numpy() - (data - chains)).max() < limit
    assert np.abs(found.numpy() - (data - even)).max() > limit  # control: all chains count alike


def test_the_exact_gradient_is_the_data_term_less_the_mean_under_the_law():
    theta = random_theta(STRUCTURE, scale=1.5, seed=2).requires_grad_()
    rows = torch.tensor([[0, 1, 1, 0], [1, 1, 0, 0], [1, 1, 0, 0]])
    shares = np.bincount((rows.numpy() @ [8, 4, 2, 1]), minlength=16) / 3
    (slope,) = torch.autograd.grad(restricted(STRUCTURE, theta).log_prob(rows).mean(), theta)
    data, _, law = enumerated(theta.detach(), shares, 1)
    assert_close(slope, data - law)


@pytest.mark.parametrize("size", [2, 4, 0, 6])
def test_means_under_the_law_are_the_gradient_of_log_z(size):
    structure = MachineStructure.restricted(domain(4), size)
    theta = random_theta(structure, scale=2.0).requires_grad_()
    log_z = restricted(structure, theta).log_partition.value
    found, means = model_statistics(MarginalEnergy(structure, theta.detach()))
    assert_close(found, log_z)
    assert_close(means, torch.autograd.grad(log_z, theta)[0])


# Optima


def test_without_hidden_units_the_optimum_is_the_independent_law():
    rows = rows_of(teacher(), 400)
    found = fit_machine(rows, 0, LearningOptions("exact"))
    assert found.converged and isinstance(found.law, RestrictedBoltzmannMachine)
    mean = rows.codes.double().mean(0)
    assert_close(found.law.visible_bias, mean.logit(), relative=1e-5)


def test_exact_learning_finds_an_optimum_and_persistent_chains_come_near():
    law = teacher()
    rows = rows_of(law, 3000)
    exact = fit_machine(rows, 2, LearningOptions("exact", iterations=1000, scale=0.5), seed=3)
    assert exact.converged and exact.score_name == "log-likelihood"
    best, independent = (
        log_likelihood(exact.law, rows),
        log_likelihood(fit_machine(rows, 0, LearningOptions("exact")).law, rows),
    )
    assert best > log_likelihood(law, rows) > independent + 0.05
    options = LearningOptions("pcd", iterations=5000, scale=0.5)
    found = fit_machine(rows, 2, options, seed=3)
    assert found.converged is None and found.iterations == 5000 and len(found.curve) == 101
    reached = log_likelihood(found.law, rows)
    assert reached > independent + 0.8 * (best - independent)
    assert found.curve[-1][1] == pytest.approx(reached, abs=1e-9)  # all distinct rows are shown
    # control: without a gradient nothing is learned
    still = fit_machine(rows, 2, LearningOptions("pcd", iterations=100, rate=1e-9, scale=0.5), seed=3)
    assert log_likelihood(still.law, rows) < independent


def test_layered_machines_are_learned_by_exact_gradients():
    structure = MachineStructure.layered(domain(4), 2, 1)
    counts = torch.zeros(2, 2, 2, 2)
    counts[0, 0, 0, 0] = counts[0, 1, 1, 1] = counts[1, 0, 1, 0] = 100
    rows = Observations.from_table(domain(4), counts)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = fit_machine(rows, structure, LearningOptions("exact", iterations=60, decay=0.01, scale=0.5))
    assert found.law.structure == structure and found.curve[-1][1] > found.curve[0][1] + 0.05
    scores = marginal_scores(structure, found.law.theta)
    merged = rows.unique()
    exact = scores[tuple(merged.codes.T.numpy())] - np.log(np.exp(scores).sum())
    assert found.curve[-1][1] == pytest.approx(float((exact * merged.counts.numpy()).sum() / 300), abs=1e-9)


def test_decay_keeps_weights_small_and_what_cannot_converge_is_said():
    rows = Observations.from_tensor(torch.tensor([[0, 0, 1], [1, 1, 0]]), domain(3))
    with pytest.warns(ConvergenceWarning, match="the gradient has not vanished after 5 iterations"):
        free = fit_machine(rows, 1, LearningOptions("exact", iterations=5, scale=1.0))
    assert free.converged is False
    sizes = [
        float(fit_machine(rows, 1, LearningOptions("exact", decay=decay, scale=1.0)).law.weights.square().sum())
        for decay in (0.01, 0.1)
    ]
    assert sizes[0] > sizes[1]


# Runs


@pytest.mark.filterwarnings("ignore::pyro_hoim.errors.ConvergenceWarning")  # whether 200 iterations are enough
@pytest.mark.parametrize("method", ["pcd", "cd", "exact"])
def test_an_interrupted_run_ends_with_the_same_bits(tmp_path, monkeypatch, method):
    rows = rows_of(teacher(), 100)
    options = LearningOptions(method, iterations=200, batch_size=None if method == "cd" else 20, momentum=0.5)
    whole = fit_machine(rows, 2, options, seed=5)
    monkeypatch.setattr(RunFile, "SECONDS", 0.0)
    advance, calls = LearningJob.advance, []

    def interrupted(self):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return advance(self)

    monkeypatch.setattr(LearningJob, "advance", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fit_machine(rows, 2, options, seed=5, run=RunOptions(tmp_path / "run"))
    found = fit_machine(rows, 2, options, seed=5, run=RunOptions(tmp_path / "run", resume=True))
    assert torch.equal(found.law.theta, whole.law.theta) and found.curve == whole.curve
    with raises("other-run", "checkpoint"):
        fit_machine(rows, 3, options, seed=5, run=RunOptions(tmp_path / "run", resume=True))


def test_validation_stops_a_run_and_keeps_the_best_machine():
    law = teacher(n=8, scale=1.0)
    rows, held = rows_of(law, 20), rows_of(law, 200, seed=1)
    options = LearningOptions("cd", iterations=20_000, rate=0.5, batch_size=None, patience=5)
    found = fit_machine(rows, 4, options, validation=held)
    assert found.iterations < 20_000
    scores = [score for _, _, score in found.curve]
    assert int(np.argmax(scores)) == len(scores) - 6
    assert log_likelihood(found.law, held) == pytest.approx(max(scores), abs=1e-9)


def test_larger_machines_are_scored_by_the_pseudo_likelihood():
    rows = rows_of(teacher(n=16), 60)
    found = fit_machine(rows, 16, LearningOptions(iterations=20))
    assert found.score_name == "pseudo-log-likelihood"
    merged = rows.unique()
    exact = (found.law.log_pseudo_prob(merged.codes) * merged.counts).sum() / 60
    assert found.curve[-1][1] == pytest.approx(float(exact))


def test_a_start_is_where_learning_begins():
    rows = rows_of(teacher(), 100)
    start = random_theta(MachineStructure.restricted(domain(5), 2))
    found = fit_machine(rows, 2, LearningOptions("cd", iterations=1, rate=1e-12), start=start)
    assert_close(found.law.theta, start)


@pytest.mark.parametrize("method", ["cd", "pcd"])
def test_a_rate_that_diverges_is_named(method):
    with raises("not-finite", "rate"):
        fit_machine(rows_of(teacher(), 10), 1, LearningOptions(method, rate=100, decay=1, iterations=500))


def test_bad_input_has_one_clear_error():
    rows = rows_of(teacher(), 10)
    three = Observations.from_tensor(torch.tensor([[0, 2]]), Domain.from_cardinalities({"a": 2, "b": 3}))
    with raises("out-of-range", "variable 'b'"):
        fit_machine(three, 2)
    with raises("out-of-range", "hidden"):
        fit_machine(rows, -1)
    with raises("conflict", "hidden"):
        fit_machine(rows, ["v0"])
    with raises("empty", "data"):
        fit_machine(rows.rows(torch.zeros(0, dtype=torch.long)), 1)
    missing = Observations.from_tensor(torch.tensor([[0, -1]]), domain(2))
    with pytest.raises(MissingDataError, match="1 cells"):
        fit_machine(missing, 1)
    with raises("other-domain", "validation"):
        fit_machine(rows, 1, validation=Observations.from_tensor(torch.zeros(1, 2, dtype=torch.long), domain(2)))
    with raises("other-domain", "hidden"):
        fit_machine(rows, structures()["restricted"])
    with raises("conflict", "method"):
        fit_machine(rows, MachineStructure.layered(domain(5), 1, 1))
    with raises("conflict", "patience"):
        fit_machine(rows, 1, LearningOptions(patience=3))
    with raises("wrong-shape", "start"):
        fit_machine(rows, 1, start=torch.zeros(3))
    with raises("wrong-type", "options"):
        fit_machine(rows, 1, "exact")
    for seed in (-1, 2**63):
        with raises("out-of-range", "seed"):
            fit_machine(rows, 1, seed=seed)
    many = Observations.from_tensor(torch.zeros(1, 40, dtype=torch.long), domain(40))
    with pytest.raises(Exception, match="30 units, so 1073741824 states"):
        fit_machine(many, 30, LearningOptions("exact"))
    for name, value in (
        ("method", "ml"),
        ("steps", 0),
        ("rate", 0.0),
        ("momentum", 1.0),
        ("batch_size", 0),
        ("decay", -1),
    ):
        with raises("unknown-choice" if name == "method" else "out-of-range", name):
            LearningOptions(**{name: value})


@pytest.mark.parametrize("start", [[1.0], "x", torch.zeros(3, dtype=torch.long)])
def test_starts_that_are_no_tensors_of_numbers_are_refused(start):
    rows = Observations.from_table(domain(2), [[3, 1], [2, 4]])
    with raises("wrong-type", "start"):
        fit_machine(rows, 1, start=start)
