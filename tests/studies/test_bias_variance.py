"""Bias and variance of Boltzmann machines: gradients by autograd, laws by enumeration, sentences of the paper."""

import itertools
import json

import numpy as np
import pytest
import torch

from pyro_hoim import Domain, Observations
from pyro_hoim.log_linear import MachineTraining, train_machine

from studies.bias_variance import (
    HIDDEN,
    ORDERS,
    SIZES,
    Design,
    Machine,
    divergence,
    learn,
    learn_by_samples,
    num_parameters,
    run,
    sample,
    true_law,
)

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
