"""Mean to natural coordinates against enumeration; relative tolerance 1e-10 unless said otherwise."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pyro_hoim.distributions.natural_parameters import (
    fisher_information,
    interior_margin,
    solve_natural_parameters,
)
from pyro_hoim.errors import InputError, IntractableError
from pyro_hoim.models import parametrization
from pyro_hoim.partition import Auto
from pyro_hoim.schema import Domain
from pyro_hoim.structure import InteractionHypergraph
from pyro_hoim.testing import exact_covariance, exact_statistics, exact_table

PAIRS = InteractionHypergraph.from_order(Domain.from_cardinalities([2, 3, 2]), 2)
CHAIN = InteractionHypergraph.from_order(Domain.from_cardinalities([2, 3, 2]), 2).remove_edges([("x0", "x2")])
WEAK = InteractionHypergraph(Domain.from_cardinalities([2, 2, 2]), [("x0",), ("x0", "x1", "x2")], hierarchical=False)


def theta_of(hypergraph: InteractionHypergraph, seed: int, scale: float = 1.0) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(scale=scale, size=hypergraph.num_parameters))


def eta_of(hypergraph: InteractionHypergraph, theta: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(
        exact_statistics(hypergraph, exact_table(hypergraph, parametrization(hypergraph).to_tables(theta)))
    )


@pytest.mark.parametrize("scale", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("hypergraph", [PAIRS, CHAIN], ids=["pairs", "chain"])
def test_theta_comes_back_from_its_mean(hypergraph: InteractionHypergraph, scale: float) -> None:
    theta = theta_of(hypergraph, 1, scale)
    found = solve_natural_parameters(hypergraph, eta_of(hypergraph, theta), Auto())
    # The error of theta is that of eta (1e-10) times the inverse curvature.
    torch.testing.assert_close(found, theta, rtol=0, atol=1e-5 if scale == 3.0 else 1e-7)


def test_weak_heredity() -> None:
    theta = theta_of(WEAK, 2)
    found = solve_natural_parameters(WEAK, eta_of(WEAK, theta), Auto())
    torch.testing.assert_close(found, theta, rtol=0, atol=1e-7)


@pytest.mark.parametrize("hypergraph", [PAIRS, CHAIN], ids=["pairs", "chain"])
def test_mode_under_a_normal_prior_has_gradient_zero(hypergraph: InteractionHypergraph) -> None:
    """Also for margins on the boundary, where the plain estimate is infinite."""
    table = np.zeros((2, 3, 2))
    table[0, 0, 0], table[1, 2, 1] = 0.25, 0.75
    with np.errstate(divide="ignore"):
        eta = torch.from_numpy(exact_statistics(hypergraph, np.log(table)))
    precision = torch.linspace(0.1, 0.5, hypergraph.num_parameters, dtype=torch.float64)
    centre = theta_of(hypergraph, 3, 0.1)
    theta = solve_natural_parameters(hypergraph, eta, Auto(), precision=precision, centre=centre)
    free = parametrization(hypergraph).free_statistics
    gradient = free(eta) - free(eta_of(hypergraph, theta)) - precision * (theta - centre)
    assert float(gradient.abs().max()) < 1e-9
    if hypergraph is PAIRS:
        with pytest.raises(InputError, match="no theta has these marginals"):
            solve_natural_parameters(hypergraph, eta, Auto())


def test_information_is_the_covariance_of_the_free_statistics() -> None:
    theta = theta_of(PAIRS, 4)
    codings = parametrization(PAIRS)
    basis = codings.to_tables(torch.eye(PAIRS.num_parameters, dtype=torch.float64)).numpy()
    covariance = exact_covariance(PAIRS, exact_table(PAIRS, codings.to_tables(theta)))
    information = fisher_information(PAIRS, theta, Auto())
    np.testing.assert_allclose(information.numpy(), basis @ covariance @ basis.T, rtol=1e-10, atol=1e-14)


def test_interior_margin() -> None:
    uniform = eta_of(PAIRS, torch.zeros(PAIRS.num_parameters, dtype=torch.float64))
    assert interior_margin(PAIRS, uniform) == pytest.approx(1 / 12, rel=1e-7)
    inside = interior_margin(PAIRS, eta_of(PAIRS, theta_of(PAIRS, 5)))
    smallest = np.exp(exact_table(PAIRS, parametrization(PAIRS).to_tables(theta_of(PAIRS, 5)))).min()
    assert inside is not None and inside >= smallest * (1 - 1e-6)  # the law itself is a candidate
    table = np.ones((2, 2, 2)) / 6
    table[0, 0, 0] = table[1, 1, 1] = 0
    binary = InteractionHypergraph.from_order(Domain.from_cardinalities([2, 2, 2]), 2)
    with np.errstate(divide="ignore"):
        boundary = torch.from_numpy(exact_statistics(binary, np.log(table)))
    assert interior_margin(binary, boundary) == pytest.approx(0, abs=1e-9)
    outside = 1.2 * boundary - 0.2 * eta_of(binary, torch.zeros(6, dtype=torch.float64))
    assert interior_margin(binary, outside) == -1.0
    assert interior_margin(PAIRS, uniform, max_cells=11) is None


def test_too_many_parameters_are_refused() -> None:
    big = InteractionHypergraph.from_order(Domain.from_cardinalities([40, 40, 40]), 2)
    with pytest.raises(IntractableError, match="the limit is 2000"):
        fisher_information(big, torch.zeros(big.num_parameters, dtype=torch.float64), Auto())
