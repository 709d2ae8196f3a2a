"""Every exact backend, held to the public conformance suite, and the suite held to a backend that is wrong."""

import dataclasses
import itertools
import pickle

import numpy as np
import pytest
import torch
from torch.autograd.gradcheck import GradcheckError

from pyro_hoim.core import PartitionBackend
from pyro_hoim.log_linear import VariableElimination
from pyro_hoim.log_linear.energy import LogLinearEnergy
from pyro_hoim.schema import Domain
from pyro_hoim.structure import InteractionHypergraph
from pyro_hoim.testing import (
    BACKEND_CHECKS,
    BackendCase,
    assert_close,
    check_backend,
    exact_covariance,
    exact_table,
    random_tables,
    standard_hypergraphs,
)


def test_backend_conforms(backend):
    assert isinstance(backend, PartitionBackend)
    if getattr(backend, "max_cells", None) != 9:
        check_backend(backend)
        return
    checks = [check for check in BACKEND_CHECKS if check.__name__ != "check_marginals"]  # of more than nine cells
    for check, hypergraph in itertools.product(checks, standard_hypergraphs().values()):
        check(BackendCase(backend, hypergraph, scale=1.0))


def test_exact_results_are_verified(backend):
    result = backend.log_partition(BackendCase(backend, standard_hypergraphs()["cycle"]).model())
    assert (result.verdict, result.notes, result.sandwich) == ("verified", (), None)


class DropsAnInteraction(VariableElimination):
    """Negative control: forgets the last interaction table."""

    def log_partition(self, model):
        return super().log_partition(_dropped(model))

    def expectations(self, model):
        return super().expectations(_dropped(model))

    def log_marginal(self, model, names):
        return super().log_marginal(_dropped(model), names)

    def sample(self, model, sample_shape=(), generator=None):
        return super().sample(_dropped(model), sample_shape, generator)

    def mode(self, model):
        return super().mode(_dropped(model))


def _dropped(model):
    keep = model.tables.new_ones(model.hypergraph.num_terms)
    keep[list(model.hypergraph.term_slices.values())[-1]] = 0
    return LogLinearEnergy(model.hypergraph, model.tables * keep)


@pytest.mark.parametrize(
    "check", [c for c in BACKEND_CHECKS if c.__name__ not in ("check_batch",)], ids=lambda c: c.__name__
)
def test_suite_finds_a_dropped_interaction(check):
    case = BackendCase(DropsAnInteraction(), standard_hypergraphs()["three-way"], scale=1.0)
    with pytest.raises(AssertionError):
        check(case)


def test_backends_are_values(backend):
    options = {field.name: getattr(backend, field.name) for field in dataclasses.fields(backend)}
    other = type(backend)(**options)
    assert pickle.loads(pickle.dumps(backend)) == backend == other
    assert hash(backend) == hash(other)
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(backend, next(iter(options)), None)


# Derivatives of log Z, eta and marginals

HYPERGRAPH = InteractionHypergraph(
    Domain.from_cardinalities({"a": 2, "b": 3, "c": 2, "d": 2}), [("a", "b"), ("b", "c", "d")], closure=True
)


def _tables(scale=1.0):
    return torch.as_tensor(random_tables(HYPERGRAPH, np.random.default_rng(5), scale=scale))


def _log_z(backend):
    return lambda tables: backend.log_partition(LogLinearEnergy(HYPERGRAPH, tables)).value


def _eta(backend):
    return lambda tables: backend.expectations(LogLinearEnergy(HYPERGRAPH, tables))


def test_gradcheck_of_log_z_and_eta(backend):
    tables = _tables().requires_grad_()
    assert torch.autograd.gradcheck(_log_z(backend), (tables,))
    assert torch.autograd.gradgradcheck(_log_z(backend), (tables,))
    assert torch.autograd.gradcheck(_eta(backend), (tables,))
    assert torch.autograd.gradgradcheck(_eta(backend), (tables,))


def test_control_a_gradient_without_its_graph_has_no_second_derivative():
    def detached(tables):
        return (_eta(VariableElimination())(tables.detach()) * tables).sum()

    with pytest.raises(GradcheckError):
        torch.autograd.gradgradcheck(detached, (_tables().requires_grad_(),))


def test_gradcheck_of_marginals(backend):
    tables = _tables().requires_grad_()

    def log_marginal(value):
        return backend.log_marginal(LogLinearEnergy(HYPERGRAPH, value), ("d", "a"))

    assert torch.autograd.gradcheck(log_marginal, (tables,))
    assert torch.autograd.gradgradcheck(log_marginal, (tables,))


@pytest.mark.parametrize("scale", [0.0, 1.0, 30.0])
def test_jacobian_of_eta_is_the_covariance(backend, scale):
    tables = _tables(scale)
    covariance = exact_covariance(HYPERGRAPH, exact_table(HYPERGRAPH, tables))
    assert_close(torch.autograd.functional.jacobian(_eta(backend), tables), covariance)


def test_batched_gradients_do_not_mix(backend):
    tables = torch.stack([_tables(), 2 * _tables()]).requires_grad_()
    (gradient,) = torch.autograd.grad(_log_z(backend)(tables)[0], tables)
    assert_close(gradient[0], _eta(backend)(tables[0].detach()))
    assert not gradient[1].any()


def test_no_graph_is_kept_without_need(backend):
    model = LogLinearEnergy(HYPERGRAPH, _tables().requires_grad_())
    with torch.no_grad():
        assert not backend.log_partition(model).value.requires_grad
        assert not backend.expectations(model).requires_grad
    assert backend.log_partition(model).value.requires_grad
    assert not backend.sample(model).requires_grad
    assert not backend.mode(model)[1].requires_grad
