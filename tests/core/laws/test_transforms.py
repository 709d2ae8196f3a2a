"""torch.func transformations of distributions: equal to a batch and to backward(), or refused by name."""

import pyro
import pytest
import torch
from torch.func import grad, hessian, jacrev, jvp, vmap

from pyro_hoim import Domain, InputError, InteractionHypergraph, Variable
from pyro_hoim.generalized_root import GeneralizedRoot, PoissonFamily, RootStructure, TruncatedPoissonFamily
from pyro_hoim.log_linear import (
    AnnealedImportance,
    Enumeration,
    HierarchicalLogLinear,
    LogLinearStatistics,
    VariableElimination,
    normal_prior,
    parametrization,
)
from pyro_hoim.testing import assert_close, exact_log_partition

GRAPH = InteractionHypergraph.from_order(Domain.from_cardinalities([2, 3, 2]), 2)
THETA = torch.randn(5, GRAPH.num_parameters, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
ROWS = torch.tensor([[1, 2, 0], [0, 0, 1]])
MAPS = parametrization(GRAPH)


def by_enumeration(theta):
    """Log-probability of ROWS (num_rows, batch) from the oracle's log Z."""
    tables = MAPS.to_tables(theta)
    return MAPS.statistics(ROWS) @ tables.T - torch.as_tensor(exact_log_partition(GRAPH, tables))


@pytest.mark.parametrize("coding", ["free", "corner", "balanced"])
@pytest.mark.parametrize("is_validating", [True, False])
@pytest.mark.parametrize("partition", [Enumeration(), VariableElimination()], ids=["enumeration", "elimination"])
def test_vmap_over_parameters(coding, is_validating, partition):
    theta = MAPS.convert(THETA, "free", coding)
    for validate_args in (None, is_validating):

        def log_prob(t, validate_args=validate_args):
            return HierarchicalLogLinear(
                GRAPH, t, coding=coding, partition=partition, validate_args=validate_args
            ).log_prob(ROWS)

        with pyro.validation_enabled(is_validating):
            assert_close(vmap(log_prob)(theta), by_enumeration(THETA).T, absolute=1e-10)
            outer = theta.clone().requires_grad_()  # autograd around vmap
            (found,) = torch.autograd.grad(vmap(log_prob)(outer).sum(), outer)
            assert_close(vmap(grad(lambda t: log_prob(t).sum()))(theta), found, absolute=1e-9)
            assert_close(grad(lambda t: vmap(log_prob)(t).sum())(theta), found, absolute=1e-9)


def test_vmap_over_rows_and_over_statistics():
    law = HierarchicalLogLinear(GRAPH, THETA[0], validate_args=True)
    assert torch.equal(vmap(law.log_prob)(ROWS), law.log_prob(ROWS))
    both = vmap(lambda t, x: HierarchicalLogLinear(GRAPH, t, validate_args=True).log_prob(x))(THETA[:2], ROWS)
    assert_close(both, by_enumeration(THETA[:2]).diagonal(), absolute=1e-10)
    counts = MAPS.statistics(ROWS).sum(0)
    found = vmap(lambda t: LogLinearStatistics(GRAPH, t, total_count=2).log_prob(counts))(THETA)
    assert_close(found, by_enumeration(THETA).sum(0), absolute=1e-10)
    scales = torch.rand(5, len(GRAPH), dtype=torch.float64) + 0.5
    prior = vmap(lambda s, t: normal_prior(GRAPH, s).log_prob(t))(scales, THETA)
    assert_close(prior, normal_prior(GRAPH, scales).log_prob(THETA), absolute=1e-12)


def test_derivatives_of_one_law():
    def total(t):
        return HierarchicalLogLinear(GRAPH, t).log_prob(ROWS).sum()

    theta = THETA[0].clone().requires_grad_()
    (expected,) = torch.autograd.grad(by_enumerated_sum(theta), theta, create_graph=True)
    assert_close(grad(total)(THETA[0]), expected.detach(), absolute=1e-10)
    assert_close(jacrev(total)(THETA[0]), expected.detach(), absolute=1e-10)
    second = torch.stack([torch.autograd.grad(e, theta, retain_graph=True)[0] for e in expected])
    assert_close(hessian(total)(THETA[0]), second, absolute=1e-9)
    value, slope = jvp(total, (THETA[0],), (THETA[1],))
    assert_close(value, by_enumeration(THETA[:1]).sum(), absolute=1e-10)
    assert_close(slope, (expected * THETA[1]).sum(), absolute=1e-9)


def by_enumerated_sum(theta):
    """Log-probability of ROWS in plain PyTorch over all states."""
    states = torch.cartesian_prod(*(torch.arange(n) for n in GRAPH.domain.cardinalities))
    tables = MAPS.to_tables(theta)
    return (MAPS.statistics(ROWS) @ tables - (MAPS.statistics(states) @ tables).logsumexp(0)).sum()


def test_theta_that_is_not_finite_gives_nan_where_it_cannot_be_refused():
    theta = THETA.clone()
    theta[1, 0], theta[3, 2] = torch.nan, torch.inf
    found = vmap(lambda t: HierarchicalLogLinear(GRAPH, t).log_prob(ROWS))(theta)
    assert torch.isnan(found).all(1).tolist() == [False, True, False, True, False]
    assert_close(found[[0, 2, 4]], by_enumeration(THETA[[0, 2, 4]]).T, absolute=1e-10)
    with pytest.raises(InputError, match="theta: expected finite"):
        HierarchicalLogLinear(GRAPH, theta)


def test_estimates_are_refused_by_name():
    backend = AnnealedImportance(num_chains=8, seed=0)
    with pytest.raises(InputError, match=r"torch.func transformations cannot go through sampling"):
        vmap(lambda t: HierarchicalLogLinear(GRAPH, t, partition=backend).log_prob(ROWS))(THETA)


# Generalized root models

COUNTS = RootStructure.complete(Domain([Variable(name, kind="count") for name in "ab"]), 2)
PSI = torch.tensor([[-0.1, 0.2, 0.1, 0.2, -0.2]] * 3, dtype=torch.float64)
VALUES = torch.tensor([[1.0, 2.0], [0.0, 3.0]])


@pytest.mark.parametrize("is_validating", [True, False])
@pytest.mark.parametrize("quantity", ["log_prob", "log_pseudo_prob"])
@pytest.mark.parametrize("family", [PoissonFamily(), TruncatedPoissonFamily(3)], ids=lambda family: family.name)
def test_root_models_are_refused_by_name(family, quantity, is_validating):
    def total(psi):
        return getattr(GeneralizedRoot(COUNTS, psi, family), quantity)(VALUES).sum()

    calls = [
        lambda: vmap(total)(PSI),
        lambda: grad(total)(PSI[0]),
        lambda: vmap(grad(total))(PSI),
        lambda: hessian(total)(PSI[0]),
        lambda: jvp(total, (PSI[0],), (PSI[0],)),
    ]
    for call in calls:
        with (
            pyro.validation_enabled(is_validating),
            pytest.raises(InputError, match=r"torch.func transformations.*give a batch of psi instead of vmap"),
        ):
            call()
    psi = PSI.clone().requires_grad_()
    total(psi[:, None]).backward()  # what the message says
    assert psi.grad is not None and bool(torch.isfinite(psi.grad).all())


def test_energies_of_root_models_are_plain_pytorch():
    def energy(psi):
        return GeneralizedRoot(COUNTS, psi, PoissonFamily()).energy(VALUES)

    expected = GeneralizedRoot(COUNTS, PSI[:, None], PoissonFamily()).energy(VALUES)
    assert_close(vmap(energy)(PSI), expected, absolute=1e-12)
    psi = PSI[0].clone().requires_grad_()
    assert_close(
        grad(lambda p: energy(p).sum())(PSI[0]), torch.autograd.grad(energy(psi).sum(), psi)[0], absolute=1e-12
    )


def test_control_a_batch_in_another_order_is_seen():
    found = vmap(lambda t: HierarchicalLogLinear(GRAPH, t).log_prob(ROWS))(THETA.flip(0))
    assert float((found - by_enumeration(THETA).T).abs().max()) > 0.1
