"""Exact backends and the energies of models with entries of minus infinity, held to enumeration in NumPy."""

import math

import numpy as np
import pytest
import torch

from pyro_hoim import Domain, InteractionHypergraph, LogLinearEnergy
from pyro_hoim.log_linear import VariableElimination
from pyro_hoim.log_linear.exact import _linear_space as linear_space
from pyro_hoim.testing import assert_close, exact_covariance, exact_log_partition, exact_statistics, exact_table, raises
from pyro_hoim.testing.oracles import log_sum_exp

from support.supports import random_model


def scaled_model(rng, batch=3):
    """A random batch of models, each with a support of its own."""
    model = random_model(rng, (batch,))
    return LogLinearEnergy(model.hypergraph, model.tables * rng.choice([1.0, 10.0, 300.0]))


def check_model(backend, model, rng):
    """Every answer of a backend about a batch of models, against enumeration."""
    graph, tables = model.hypergraph, model.tables
    log_z = exact_log_partition(graph, tables)
    leaf = tables.clone().requires_grad_()
    value = backend.log_partition(LogLinearEnergy(graph, leaf)).value
    assert_close(value, log_z, what="log Z")
    assert_close(backend.log_partition(model).value, log_z, what="log Z without a gradient")
    # Of a model that has no possible state the gradient is zero.
    is_possible = torch.from_numpy(np.isfinite(log_z))
    with np.errstate(invalid="ignore"):
        table = np.nan_to_num(exact_table(graph, tables), nan=-np.inf, neginf=-np.inf)
    (gradient,) = torch.autograd.grad(value.sum(), leaf)
    assert_close(gradient, exact_statistics(graph, table), what="gradient")
    if not bool(is_possible.all()):
        check_refusals(backend, model)
        if not bool(is_possible.any()):
            return
    # The possible ones of the batch.
    model, table = LogLinearEnergy(graph, tables[is_possible]), table[is_possible.numpy()]
    assert_close(backend.expectations(model), exact_statistics(graph, table), what="eta")
    names = tuple(rng.permutation(graph.domain.names)[: rng.integers(0, len(graph.domain) + 1)])
    while not backend.plan(graph, keep=names).feasible:
        names = names[1:]
    axes = [graph.domain.index(name) + 1 for name in names]
    moved = np.moveaxis(table, axes, range(1, len(axes) + 1))
    assert_close(backend.log_marginal(model, names), log_sum_exp(moved, len(graph.domain) - len(names)), what="margin")
    check_states(backend, model, table)
    check_second_derivatives(backend, model, table, rng)
    check_single_precision(backend, model)


def check_states(backend, model, table):
    """Draws are possible, and the mode is a state of the largest probability."""
    draws = backend.sample(model, (200,), generator=torch.Generator().manual_seed(3))
    batch = np.arange(len(table))
    picked = table[(batch[None], *(draws[..., i].numpy() for i in range(draws.shape[-1])))]
    assert np.isfinite(picked).all()
    states, value = backend.mode(model)
    weights = exact_table(model.hypergraph, model.tables, normalised=False)
    assert_close(value, weights.reshape(len(table), -1).max(1), what="weight of the mode")
    assert_close(-model.energy(states), value, what="weight at the mode")


def check_second_derivatives(backend, model, table, rng):
    """Products of the Hessian with a direction are finite, and those of the covariance of the statistics."""

    def log_z(tables):
        return backend.log_partition(LogLinearEnergy(model.hypergraph, tables)).value

    direction = torch.from_numpy(rng.normal(size=model.hypergraph.num_terms))
    _, product = torch.autograd.functional.hvp(log_z, model.tables[0], direction)
    assert_close(product, exact_covariance(model.hypergraph, table[0]) @ direction.numpy(), what="Hessian")


def check_single_precision(backend, model):
    """Log Z and eta of float32 tables, near those of the same tables in float64."""
    single = model.to(dtype=torch.float32)
    value, eta = backend.log_partition(single).value, backend.expectations(single)
    assert value.dtype == eta.dtype == torch.float32
    table = exact_table(model.hypergraph, single.tables.double())
    rounding = 1e-6 * max(1.0, float(single.tables[single.tables.isfinite()].abs().sum()))
    expected = exact_log_partition(model.hypergraph, single.tables.double())
    assert_close(value.double(), expected, absolute=rounding, what="log Z in float32")
    assert_close(eta.double(), exact_statistics(model.hypergraph, table), absolute=rounding, what="eta in float32")


def check_refusals(backend, model):
    """What asks for a state of a model that has none gets one error."""
    with raises("impossible", "model"):
        backend.expectations(model)
    with raises("impossible", "model"):
        backend.mode(model)
    with raises("impossible", "model"):
        backend.sample(model, (2,))
    with raises("impossible", "model"):
        backend.log_marginal(model, model.domain.names[:1])


def test_every_answer_equals_enumeration(backend):
    rng = np.random.default_rng(11)
    for _ in range(35):
        check_model(backend, scaled_model(rng), rng)


def test_every_answer_by_threads_equals_enumeration(monkeypatch):
    monkeypatch.setattr(linear_space, "_LARGE_BUFFER", 0)
    monkeypatch.setattr(linear_space, "_LARGE_STEP", 1)
    rng = np.random.default_rng(13)
    for _ in range(20):
        check_model(VariableElimination(), scaled_model(rng), rng)


def test_values_that_underflow_beside_zeros_are_kept():
    # exp(-100) is below the range of single precision; without it the model would have no state.
    graph = InteractionHypergraph(Domain.from_cardinalities({"a": 3, "b": 2}), [("a",), ("a", "b")], hierarchical=False)
    tables = torch.tensor([0.0, -100.0, -math.inf, -math.inf, -math.inf, 0.0, -50.0, 0.0, 0.0], dtype=torch.float32)
    model = LogLinearEnergy(graph, tables)
    assert_close(VariableElimination().log_partition(model).value, -100.0, relative=1e-6)
    assert_close(VariableElimination().expectations(model)[:3], [0.0, 1.0, 0.0])
    assert VariableElimination().sample(model, (50,)).unique(dim=0).tolist() == [[1, 0]]


@pytest.mark.slow
def test_every_answer_equals_enumeration_in_many_models(backend):
    rng = np.random.default_rng(12)
    for _ in range(400):
        check_model(backend, scaled_model(rng), rng)


@pytest.mark.slow
def test_none_of_a_million_draws_is_impossible(backend):
    rng, number = np.random.default_rng(14), 0
    while number < 50:
        model = scaled_model(rng, batch=1)
        if math.isinf(float(backend.log_partition(model).value)):
            continue
        number += 1
        draws = backend.sample(model, (20_000,), generator=torch.Generator().manual_seed(number))
        assert bool(torch.isfinite(model.energy(draws)).all())
