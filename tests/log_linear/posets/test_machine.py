"""Higher-order Boltzmann machines: exact and sampled training against each other, resumption, temperature, refusals."""

import importlib
import math
import signal

import numpy as np
import pytest
import torch

from pyro_hoim import Domain, GibbsChains, Observations
from pyro_hoim.information import bias_variance
from pyro_hoim.log_linear import MachineTraining, Poset, PosetLaw, gradient_steps, m_projection, train_machine
from pyro_hoim.runs import RunOptions
from pyro_hoim.testing import FALSE_ALARM_RATE, assert_close, raises

from studies.random_laws import random_uniform_law

DOMAIN = Domain.from_cardinalities({"a": 2, "b": 2, "c": 2, "d": 2})
LATTICE = Poset.boolean_lattice(DOMAIN)
WEAK = [("a",), ("b", "c"), ("a", "b", "d"), ("c", "d")]
COLLECTIONS = {"order 1": 1, "order 2": 2, "order 4": 4, "any": WEAK}


def rows(num=300, seed=1):
    law = random_uniform_law(DOMAIN, generator=torch.Generator().manual_seed(seed))
    counts = np.random.default_rng(seed).multinomial(num, law.probs.numpy().ravel())
    return Observations.from_table(DOMAIN, counts.reshape(2, 2, 2, 2))


def empirical(data):
    return data.table().reshape(-1) / data.total_count


@pytest.mark.parametrize("name", COLLECTIONS)
def test_machines_are_the_estimates_of_their_collection(name):
    data = rows()
    machine = train_machine(data, COLLECTIONS[name], method="newton")
    law, p = machine.law, empirical(data)
    eta = LATTICE.sums(p, "above")[LATTICE.indices(machine.hypergraph.edges)]
    assert law.coding == "corner"
    assert_close(LATTICE.sums(law.probs.reshape(-1), "above")[LATTICE.indices(machine.hypergraph.edges)], eta)
    whole = PosetLaw.from_probs(LATTICE, law.probs.reshape(-1))
    where = LATTICE.indices(machine.hypergraph.edges) - 1
    assert_close(whole.theta[where], machine.theta, relative=1e-9)
    outside = np.setdiff1d(np.arange(15), where.numpy())
    assert_close(whole.theta[outside], torch.zeros(len(outside)), relative=1e-9)
    assert machine.gradient_norm < 1e-11
    # equation (6): log Z is minus theta of the bottom, minus the log-probability of the empty state
    assert machine.log_partition.kind == "exact"
    assert_close(machine.log_partition.value, -law.log_prob(torch.zeros(4, dtype=torch.long)))


@pytest.mark.parametrize("name", ["order 2", "any"])
def test_plain_steps_are_the_recursion_and_go_to_the_estimate(name):
    data = rows()
    training = MachineTraining(num_iterations=3, learning_rate=0.1)
    machine = train_machine(data, COLLECTIONS[name], training=training)
    edges = machine.hypergraph.edges
    p = empirical(data).tolist()
    target = [sum(q for x, q in zip(LATTICE.elements, p, strict=True) if set(e) <= set(x)) for e in edges]
    theta = [0.0] * len(edges)
    for _ in range(3):  # by sums over states
        weights = [
            math.exp(sum(t for e, t in zip(edges, theta, strict=True) if set(e) <= set(x))) for x in LATTICE.elements
        ]
        eta = [
            sum(w for x, w in zip(LATTICE.elements, weights, strict=True) if set(e) <= set(x)) / sum(weights)
            for e in edges
        ]
        theta = [t + 0.1 * (g - h) for t, g, h in zip(theta, target, eta, strict=True)]
    assert_close(machine.theta, theta)
    assert machine.num_iterations == 3
    long = train_machine(data, COLLECTIONS[name], training=MachineTraining(num_iterations=4000, learning_rate=1.0))
    assert_close(long.theta, train_machine(data, COLLECTIONS[name], method="newton").theta, relative=1e-5)


def test_many_data_sets_take_their_steps_together():
    data = [rows(seed=seed) for seed in range(3)]
    etas = torch.stack([LATTICE.sums(empirical(one), "above") for one in data])
    members = LATTICE.up_to(2)
    together = gradient_steps(LATTICE, members, etas[:, LATTICE.indices(members)], num_iterations=70)
    for one, theta in zip(data, together, strict=True):
        assert_close(theta, train_machine(one, 2, training=MachineTraining(num_iterations=70)).theta)
    onward = gradient_steps(LATTICE, members, etas[:, LATTICE.indices(members)], num_iterations=30)
    onward = gradient_steps(LATTICE, members, etas[:, LATTICE.indices(members)], num_iterations=40, theta=onward)
    assert torch.equal(onward, together)
    tree = Poset(["r", "x", "y"], [("r", "x"), ("x", "y")])
    p = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)
    theta = gradient_steps(tree, ["y"], tree.sums(p, "above")[2:], learning_rate=1.0, num_iterations=300)
    assert_close(theta, m_projection(tree, p, ["y"]).theta, relative=1e-8)


def test_the_temperature_divides_theta():
    data = rows()
    cold = train_machine(data, 2, training=MachineTraining(num_iterations=200))
    warm = train_machine(data, 2, training=MachineTraining(num_iterations=200, learning_rate=0.4, temperature=2.0))
    # theta / C moves by rate / C times the gradient at theta / C
    twice = train_machine(data, 2, training=MachineTraining(num_iterations=200, learning_rate=0.2))
    assert_close(warm.theta / 2.0, twice.theta)
    assert not torch.allclose(warm.theta / 2.0, cold.theta)
    assert_close(warm.law.theta, warm.theta / 2.0)


def test_finite_steps_stay_finite_where_the_estimate_is_not():
    data = Observations.from_table(DOMAIN, np.eye(4).reshape(2, 2, 2, 2))
    with raises("impossible", "data"):
        train_machine(data, 2, method="newton")
    machine = train_machine(data, 2, training=MachineTraining(num_iterations=100))
    truth = random_uniform_law(DOMAIN, generator=torch.Generator().manual_seed(1))
    projection = train_machine(truth, 2, method="newton").law
    result = bias_variance(truth, projection, machine.law)
    assert math.isfinite(result.variance) and abs(float(result.remainder)) < 1e-8 and result.note is None
    limit = m_projection(LATTICE, data.table().reshape(-1), LATTICE.up_to(2)).probs
    infinite = bias_variance(truth, projection, limit.reshape(2, 2, 2, 2).log())
    assert math.isinf(infinite.variance) and infinite.num_infinite == 1


def test_a_law_is_projected_with_each_method():
    truth = random_uniform_law(DOMAIN, generator=torch.Generator().manual_seed(2))
    newton = train_machine(truth, 2, method="newton")
    expected = m_projection(LATTICE, truth.probs.reshape(-1), newton.hypergraph.edges)
    assert_close(newton.theta, expected.theta)
    long = train_machine(truth, 2, training=MachineTraining(num_iterations=4000, learning_rate=1.0))
    assert_close(long.theta, newton.theta, relative=1e-4)


SMALL = MachineTraining(
    num_iterations=150, num_chains=2000, start="persistent", learning_rate=0.5, num_temperatures=100
)


@pytest.mark.parametrize("start", ["rows", "persistent"])
def test_gibbs_training_is_the_exact_path_up_to_sampling(start):
    """Differences of theta are sums of steps times noise that forgets; with the wrong temperature they are larger."""
    data = rows()
    training = MachineTraining(
        num_iterations=200, num_chains=4000, burn_in=5, start=start, num_temperatures=200, seed=3
    )
    sampled = train_machine(data, WEAK, method="gibbs", training=training)
    exact = train_machine(data, WEAK, training=training)
    # every step adds 0.1 times a mean of 4,000 indicators; the map contracts, so this is a bound on their sum
    spread = 0.1 * math.sqrt(training.num_iterations * 0.25 / training.num_chains)
    limit = spread * math.sqrt(2 * math.log(2 * len(WEAK) / FALSE_ALARM_RATE))
    difference = float((sampled.theta - exact.theta).abs().max())
    assert difference < limit
    wrong = train_machine(data, WEAK, method="gibbs", training=MachineTraining(**vars(training) | {"temperature": 2.0}))
    assert float((wrong.theta - exact.theta).abs().max()) > limit
    warm = train_machine(data, WEAK, training=MachineTraining(**vars(training) | {"temperature": 2.0}))
    assert float((wrong.theta - warm.theta).abs().max()) < limit
    # equation (8), from log Z of the uniform law
    found, model = sampled.log_partition, sampled.law.energy_model
    states = sampled.law.enumerate_support(expand=False)
    pairs = zip(sampled.hypergraph.edges, sampled.theta, strict=True)
    energies = -sum(t * states[:, DOMAIN.indices(e)].prod(-1) for e, t in pairs)
    assert found.coding == "corner" and found.kind != "exact"
    assert abs(float(found.value - (-energies).logsumexp(0))) < 6 * float(found.std_error)
    assert_close(model.energy(states) - model.energy(states[0]), energies, relative=1e-9)


def test_machines_beyond_listing_count_in_the_chains():
    """Twenty-two variables, whose states are not listed: eta of the chains is that of counted tables."""
    domain = Domain.from_cardinalities([2] * 22)
    codes = torch.randint(0, 2, (50, 22), generator=torch.Generator().manual_seed(4))
    data = Observations(domain, codes)
    edges = [("x0",), ("x1", "x5"), ("x3", "x4", "x21")]
    edges = [tuple(domain.names[int(name[1:])] for name in edge) for edge in edges]
    training = MachineTraining(num_iterations=30, num_chains=500, start="persistent", learning_rate=0.5)
    machine = train_machine(data, edges, method="gibbs", training=training)
    wanted = torch.stack([codes[:, domain.indices(e)].double().prod(-1).mean() for e in machine.hypergraph.edges])
    chains = GibbsChains(machine.law.energy_model, 4000, seed=1)
    chains.sweep(30)
    eta = torch.stack([chains.states[:, domain.indices(e)].double().prod(-1).mean() for e in machine.hypergraph.edges])
    start = torch.tensor([0.5, 0.25, 0.125], dtype=torch.float64)
    assert float((eta - wanted).abs().max()) < 0.5 * float((start - wanted).abs().max())
    with raises("over-budget", "variables"):
        train_machine(data, edges)


@pytest.mark.parametrize("method", ["gradient", "gibbs"])
def test_an_interrupted_run_continues_with_the_same_bits(tmp_path, monkeypatch, method):
    data = rows()
    whole = train_machine(data, 2, method=method, training=SMALL)
    calls = []
    name = {"gradient": "_ExactSteps", "gibbs": "_GibbsSteps"}[method]
    steps = getattr(importlib.import_module("pyro_hoim.log_linear.posets.machine"), name)
    advance = steps.advance

    def interrupted(job):
        calls.append(job.done)
        if len(calls) == 2:
            signal.raise_signal(signal.SIGINT)
        return advance(job)

    run = RunOptions(checkpoint=tmp_path / "machine.safetensors")
    monkeypatch.setattr(steps, "advance", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train_machine(data, 2, method=method, training=SMALL, run=run)
    monkeypatch.undo()
    assert calls == [0, 50]
    resumed = RunOptions(checkpoint=run.checkpoint, resume=True)
    again = train_machine(data, 2, method=method, training=SMALL, run=resumed)
    assert torch.equal(again.theta, whole.theta) and again.gradient_norm == whole.gradient_norm
    with raises("other-run", "checkpoint"):
        train_machine(rows(seed=5), 2, method=method, training=SMALL, run=resumed)
    with raises("existing-file", "checkpoint"):
        train_machine(data, 2, method=method, training=SMALL, run=run)


def test_progress_is_shown_where_it_is_asked_for(capsys):
    training = MachineTraining(num_iterations=60)
    train_machine(rows(), 2, training=training)
    assert capsys.readouterr().err == ""
    train_machine(rows(), 2, training=training, run=RunOptions(progress=True))
    shown = capsys.readouterr().err
    assert "0/60" in shown and "step" in shown


def test_refusals():
    data = rows()
    for code, argument, call in (
        (
            "invalid-value",
            "data",
            lambda: train_machine(Observations.from_table(Domain.from_cardinalities([2, 3]), np.ones((2, 3))), 1),
        ),
        ("out-of-range", "order", lambda: train_machine(data, 5)),
        ("empty", "collection", lambda: train_machine(data, [])),
        ("unknown-choice", "method", lambda: train_machine(data, 2, method="exact")),
        ("wrong-type", "data", lambda: train_machine(torch.zeros(4), 2)),
        ("unknown-name", None, lambda: train_machine(data, [("z",)])),
        ("empty", "data", lambda: train_machine(Observations.from_table(DOMAIN, np.zeros((2, 2, 2, 2))), 2)),
        (
            "over-budget",
            "variables",
            lambda: train_machine(
                Observations(Domain.from_cardinalities([2] * 25), torch.zeros(3, 25, dtype=torch.long)), 1
            ),
        ),
    ):
        with raises(code, argument):
            call()
    for name in ("learning_rate", "num_iterations", "temperature", "num_chains", "burn_in", "num_temperatures"):
        with raises("out-of-range", name):
            MachineTraining(**{name: 0})
    with raises("unknown-choice", "start"):
        MachineTraining(start="data")
    with raises("invalid-value", "members"):
        gradient_steps(LATTICE, [()], torch.zeros(1))
    with raises("repeated-name", "members"):
        gradient_steps(LATTICE, [("a",), ("a",)], torch.zeros(2))
    with raises("wrong-shape", "eta"):
        gradient_steps(LATTICE, [("a",)], torch.zeros(2))
