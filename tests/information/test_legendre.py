"""Equation 12 of paper 1, D(p; q) = phi(p) + psi(q) - eta(p) . theta(q), with the sign of phi that makes it true."""

import numpy as np
import pytest
import torch

from pyro_hoim import Domain, InteractionHypergraph
from pyro_hoim.log_linear import HierarchicalLogLinear, log_partition, parametrization
from pyro_hoim.testing import assert_close

from studies.random_laws import random_dirichlet_law

MIXED = Domain.from_cardinalities({"a": 2, "b": 3, "c": 2})
FAMILIES = [InteractionHypergraph.from_order(MIXED, 2), InteractionHypergraph.saturated(MIXED)]


def both_sides(graph, coding, seed):
    """D(p; q) cell by cell, phi(p) = sum p log p, and psi(q) - eta(p) . theta(q) in a coding."""
    rng = torch.Generator().manual_seed(seed)
    law = random_dirichlet_law(MIXED, generator=rng)
    codings = parametrization(graph)
    theta = torch.randn(codings.num(coding), generator=rng, dtype=torch.float64)
    if coding == "balanced":
        theta = codings.purify(theta)[0]
    model = HierarchicalLogLinear(graph, theta, coding=coding)
    p = law.probs.numpy()
    q = model.log_prob(torch.tensor(list(np.ndindex(*p.shape)))).reshape(p.shape).numpy()
    eta = torch.cat([law.marginal(edge).probs.ravel() for edge in graph.edges])
    psi = float(log_partition(model.energy_model, coding).value)
    inner = float(codings.mean_statistics(eta, coding) @ theta)
    return float((p * (np.log(p) - q)).sum()), float((p * np.log(p)).sum()), psi - inner


@pytest.mark.parametrize("coding", ["free", "corner", "balanced"])
@pytest.mark.parametrize("graph", FAMILIES, ids=["pairs", "saturated"])
def test_divergence_is_the_sum_of_two_potentials_less_a_product(graph, coding):
    divergence, phi, rest = both_sides(graph, coding, seed=7)
    assert divergence > 0.1
    assert_close(phi + rest, divergence)
    # As printed phi is "negative entropy", but with the formula of the entropy, - sum p log p.
    assert abs(-phi + rest - divergence) > 1


def test_potentials_of_one_distribution_are_conjugate():
    """phi(q) + psi(q) = eta(q) . theta(q), with theta the gradient of phi: by differences of cell probabilities."""
    q = random_dirichlet_law(MIXED, 5.0, generator=torch.Generator().manual_seed(8)).probs.ravel()
    theta = (q / q[0]).log()[1:]  # one-hot basis without the first cell, equation 10
    psi = -q[0].log()
    phi = (q * q.log()).sum()
    assert_close(phi + psi, (q[1:] * theta).sum())
    eta = q[1:].clone().requires_grad_(True)
    cells = torch.cat([1 - eta.sum()[None], eta])
    (slope,) = torch.autograd.grad((cells * cells.log()).sum(), eta)
    assert_close(slope, theta)
    (printed,) = torch.autograd.grad(-(cells * cells.log()).sum(), eta)
    assert float((printed - theta).abs().max()) > 1  # the control: the printed sign turns theta round
