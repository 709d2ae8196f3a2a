"""Mean to natural coordinates against enumeration; relative tolerance 1e-10 unless said otherwise."""

import numpy as np
import pytest
import torch
from law_models import flat, table_of, theta_of
from scipy import optimize

from pyro_hoim.errors import InputError, IntractableError
from pyro_hoim.log_linear import Auto, VariableElimination, parametrization
from pyro_hoim.log_linear.laws import natural_parameters
from pyro_hoim.log_linear.laws.natural_parameters import (
    consistent_margins,
    fisher_information,
    interior_margin,
    solve_natural_parameters,
)
from pyro_hoim.schema import Domain
from pyro_hoim.structure import InteractionHypergraph
from pyro_hoim.testing import exact_covariance, exact_statistics, exact_table

PAIRS = InteractionHypergraph.from_order(Domain.from_cardinalities([2, 3, 2]), 2)
CHAIN = PAIRS.remove_edges([("x0", "x2")])
WEAK = InteractionHypergraph(Domain.from_cardinalities([2, 2, 2]), [("x0",), ("x0", "x1", "x2")], hierarchical=False)


def eta_of(hypergraph, theta):
    return flat(hypergraph, table_of(hypergraph, theta))


@pytest.mark.parametrize("scale", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("hypergraph", [PAIRS, CHAIN, WEAK], ids=["pairs", "chain", "weak"])
def test_theta_comes_back_from_its_mean(hypergraph, scale):
    theta = theta_of(hypergraph, seed=1, scale=scale)
    found = solve_natural_parameters(hypergraph, eta_of(hypergraph, theta), Auto())
    # The error of theta is that of eta (1e-10) times the inverse curvature.
    torch.testing.assert_close(found, theta, rtol=0, atol=1e-5 if scale == 3.0 else 1e-7)


@pytest.mark.parametrize("hypergraph", [PAIRS, CHAIN], ids=["pairs", "chain"])
def test_mode_under_a_normal_prior_has_gradient_zero(hypergraph):
    """Also for margins on the boundary, where the plain estimate is infinite."""
    table = np.zeros((2, 3, 2))
    table[0, 0, 0], table[1, 2, 1] = 0.25, 0.75
    eta = flat(hypergraph, table)
    precision = torch.linspace(0.1, 0.5, hypergraph.num_parameters, dtype=torch.float64)
    centre = theta_of(hypergraph, seed=3, scale=0.1)
    theta = solve_natural_parameters(hypergraph, eta, Auto(), precision=precision, centre=centre)
    free = parametrization(hypergraph).free_statistics
    gradient = free(eta) - free(eta_of(hypergraph, theta)) - precision * (theta - centre)
    assert float(gradient.abs().max()) < 1e-9
    if hypergraph is PAIRS:
        with pytest.raises(InputError, match="no theta has these marginals"):
            solve_natural_parameters(hypergraph, eta, Auto())


@pytest.mark.parametrize("max_design", [2**23, 0], ids=["cells", "autograd"])
@pytest.mark.parametrize("hypergraph", [PAIRS, CHAIN, WEAK], ids=["pairs", "chain", "weak"])
def test_information_is_the_covariance_of_the_free_statistics(monkeypatch, hypergraph, max_design):
    monkeypatch.setattr(natural_parameters, "_MAX_DESIGN", max_design)
    theta = theta_of(hypergraph, seed=4)
    codings = parametrization(hypergraph)
    basis = codings.to_tables(torch.eye(hypergraph.num_parameters, dtype=torch.float64)).numpy()
    law = exact_table(hypergraph, codings.to_tables(theta))
    information = fisher_information(hypergraph, theta, VariableElimination())
    expected = basis @ exact_covariance(hypergraph, law) @ basis.T
    np.testing.assert_allclose(information.numpy(), expected, rtol=1e-10, atol=1e-14)
    second_moment = expected + np.outer(*[basis @ exact_statistics(hypergraph, law)] * 2)  # control: not centred
    assert not np.allclose(information.numpy(), second_moment, rtol=1e-3, atol=1e-6)


def test_interior_margin():
    uniform = eta_of(PAIRS, torch.zeros(PAIRS.num_parameters, dtype=torch.float64))
    assert interior_margin(PAIRS, uniform) == pytest.approx(1 / 12, rel=1e-7)
    inside = interior_margin(PAIRS, eta_of(PAIRS, theta_of(PAIRS, seed=5)))
    smallest = table_of(PAIRS, theta_of(PAIRS, seed=5)).min()
    assert inside is not None and inside >= smallest * (1 - 1e-6)  # the law itself is a candidate
    table = np.ones((2, 2, 2)) / 6
    table[0, 0, 0] = table[1, 1, 1] = 0
    binary = InteractionHypergraph.from_order(Domain.from_cardinalities([2, 2, 2]), 2)
    boundary = flat(binary, table)
    assert interior_margin(binary, boundary) == pytest.approx(0, abs=1e-9)
    outside = 1.2 * boundary - 0.2 * eta_of(binary, torch.zeros(6, dtype=torch.float64))
    assert interior_margin(binary, outside) == pytest.approx(-0.2 / 8, rel=1e-7)  # the zeros of the table above, moved
    assert interior_margin(PAIRS, uniform, max_cells=11) is None


def test_only_an_infeasible_program_means_that_no_law_has_the_margins(monkeypatch):
    uniform = eta_of(PAIRS, torch.zeros(PAIRS.num_parameters, dtype=torch.float64))
    contradicting = uniform.clone()
    contradicting[PAIRS.term_slices["x0", "x1"]] = torch.tensor([0.6, 0.0, 0.0, 0.0, 0.0, 0.4], dtype=torch.float64)
    assert interior_margin(PAIRS, contradicting) == -1.0
    for status in (1, 3, 4):
        answer = optimize.OptimizeResult(status=status, x=None)
        monkeypatch.setattr(optimize, "linprog", lambda *_, answer=answer, **__: answer)
        assert interior_margin(PAIRS, uniform) is None


@pytest.mark.parametrize("hypergraph", [PAIRS, CHAIN, WEAK], ids=["pairs", "chain", "weak"])
def test_consistent_margins_are_those_of_one_table(hypergraph):
    """Margins with an error of 1e-7 become those of a (signed) table to 1e-14; as they are, the gap shows."""
    eta = eta_of(hypergraph, theta_of(hypergraph, seed=6))
    cards = hypergraph.domain.cardinalities
    states = np.indices(cards).reshape(len(cards), -1)
    design = np.concatenate(
        [
            np.equal.outer(np.arange(np.prod(shape)), np.ravel_multi_index(tuple(states[list(members)]), shape))
            for members, shape in zip(hypergraph.edge_indices, hypergraph.edge_shapes, strict=True)
        ]
    ).astype(float)

    def gap(margins):
        table = np.linalg.lstsq(design, margins.numpy(), rcond=None)[0]
        return float(np.abs(design @ table - margins.numpy()).max())

    noisy = eta + 1e-7 * torch.from_numpy(np.random.default_rng(7).normal(size=len(eta)))
    found = consistent_margins(hypergraph, noisy)
    assert gap(found) < 1e-14 < 1e-9 < gap(noisy)
    assert consistent_margins(hypergraph, eta.float()).dtype == torch.float64
    torch.testing.assert_close(found, eta, rtol=0, atol=1e-6)
    torch.testing.assert_close(consistent_margins(hypergraph, torch.stack([eta, eta])), torch.stack([eta, eta]))


def test_too_many_parameters_are_refused():
    big = InteractionHypergraph.from_order(Domain.from_cardinalities([40, 40, 40]), 2)
    with pytest.raises(IntractableError, match="the limit is 2000"):
        fisher_information(big, torch.zeros(big.num_parameters, dtype=torch.float64), Auto())
