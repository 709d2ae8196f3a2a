"""Derivatives of log Z and of eta: gradcheck, covariance, and the formula for the third cumulant by differences."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pyro_hoim.log_linear.energy import LogLinearEnergy
from pyro_hoim.schema import Domain
from pyro_hoim.structure import InteractionHypergraph
from pyro_hoim.testing import assert_close, exact_covariance, exact_table, random_tables

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
