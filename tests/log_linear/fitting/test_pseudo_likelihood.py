"""The log pseudo-likelihood as a function against conditionals of the joint table, by automatic differentiation."""

import functools
import math
from typing import Any, Literal

import numpy as np
import pyro
import pytest
import torch
from law_models import corner_indicators

from pyro_hoim import Domain, InteractionHypergraph, LogLinearEnergy, Observations, fit
from pyro_hoim.log_linear import L2, ImpossibleStates, LogLinearPseudoLikelihood, normal_prior, parametrization
from pyro_hoim.log_linear.fitting import objectives
from pyro_hoim.log_linear.fitting.design import Coordinates, cell_counts, design_matrix
from pyro_hoim.log_linear.fitting.objectives import Penalised, PseudoLikelihood
from pyro_hoim.log_linear.fitting.solvers import lbfgs
from pyro_hoim.testing import raises

MODELS = {
    "pairs 2 3 2": ([2, 3, 2], 2),
    "saturated 3 2 2": ([3, 2, 2], 3),
    "one variable": ([4], 1),
    "independent": ([2, 2, 3], 1),
    "a column of one level": ([2, 1, 3], 2),
}


def case(name: str, rows: int = 40) -> tuple[InteractionHypergraph, Observations, np.ndarray]:
    levels, order = MODELS[name]
    hypergraph = InteractionHypergraph.from_order(Domain.from_cardinalities(levels), order)
    rng = np.random.default_rng(3)
    counts = rng.multinomial(rows, rng.dirichlet(np.ones(math.prod(levels)))).reshape(levels)
    theta = 0.7 * rng.standard_normal(hypergraph.num_parameters)
    return hypergraph, Observations.from_table(hypergraph.domain, counts.astype(float)), theta


def by_cell(hypergraph: InteractionHypergraph, theta: torch.Tensor) -> torch.Tensor:
    """Sum of the log conditionals of every cell, from the whole joint table."""
    logits = (torch.from_numpy(design_matrix(hypergraph).copy()) @ theta).reshape(hypergraph.domain.cardinalities)
    return torch.stack([logits - logits.logsumexp(i, keepdim=True) for i in range(logits.ndim)]).sum(0).reshape(-1)


@pytest.mark.parametrize("name", MODELS)
def test_value_and_derivatives_are_those_of_the_joint_table(name: str) -> None:
    hypergraph, data, theta = case(name)
    counts = torch.from_numpy(cell_counts(data))
    likelihood = LogLinearPseudoLikelihood(hypergraph, data)
    at = torch.from_numpy(theta)

    def naive(theta: torch.Tensor) -> torch.Tensor:
        return by_cell(hypergraph, theta) @ counts

    tolerance: dict[str, Any] = {"rtol": 1e-10, "atol": 1e-10}
    value, gradient = likelihood.value_and_gradient(theta)
    np.testing.assert_allclose(value, naive(at).item(), **tolerance)
    np.testing.assert_allclose(likelihood.log_prob(theta), value, **tolerance)
    slope = torch.func.grad(naive)(at).numpy()
    np.testing.assert_allclose(gradient, slope, **tolerance)
    np.testing.assert_allclose(likelihood.gradient(theta), slope, **tolerance)
    hessian = torch.func.jacrev(torch.func.grad(naive))(at).numpy()
    np.testing.assert_allclose(likelihood.hessian(theta), hessian, **tolerance)
    scores = torch.func.jacrev(lambda theta: by_cell(hypergraph, theta))(at)[counts > 0].numpy()
    np.testing.assert_allclose(likelihood.row_scores(theta), scores, **tolerance)
    np.testing.assert_array_equal(likelihood.weights, counts[counts > 0])
    np.testing.assert_allclose(likelihood.weights @ scores, gradient, **tolerance)
    # Control: the likelihood's Hessian is another one, as soon as columns interact.
    probs = torch.softmax(torch.from_numpy(design_matrix(hypergraph) @ theta), 0).numpy()
    covariance = np.cov(design_matrix(hypergraph).T, aweights=probs, ddof=0).reshape(hessian.shape)
    interacts = any(sum(levels > 1 for levels in shape) > 1 for shape in hypergraph.edge_shapes)
    assert np.allclose(hessian, -data.total_count * covariance) is not interacts


@pytest.mark.parametrize("levels", [[2, 2, 2, 2], [2, 3, 2, 3]], ids=str)
@pytest.mark.parametrize("missing", [False, True], ids=["hierarchical", "subsets missing"])
def test_corner_theta_against_sums_over_one_variable(levels: list[int], missing: bool) -> None:
    """Every conditional from the definition: theta^S counts where no level of S is 0."""
    domain = Domain.from_cardinalities(levels)
    edges = [["x0", "x1"], ["x1", "x2", "x3"], ["x3"]]
    graph = InteractionHypergraph(domain, edges, closure=not missing, hierarchical=not missing)
    rng = np.random.default_rng(2)
    rows = np.stack([rng.integers(n, size=30) for n in levels], 1)
    data = Observations(domain, torch.from_numpy(rows))
    theta = rng.normal(size=graph.num_parameters)

    exponents, expected = (corner_indicators(graph) @ theta).reshape(levels), 0.0
    for row in rows.tolist():
        for i, level in enumerate(row):
            each = exponents[(*row[:i], slice(None), *row[i + 1 :])]
            expected += each[level] - np.logaddexp.reduce(each)
    likelihood = LogLinearPseudoLikelihood(graph, data, coding="corner")
    assert likelihood.coding == "corner" and (likelihood.hypergraph.coding == "corner") is missing
    np.testing.assert_allclose(likelihood.log_prob(theta), expected, rtol=1e-12)
    gradient, step = likelihood.gradient(theta), 1e-6
    for k, unit in enumerate(np.eye(graph.num_parameters)):
        slope = (likelihood.log_prob(theta + step * unit) - likelihood.log_prob(theta - step * unit)) / (2 * step)
        np.testing.assert_allclose(gradient[k], slope, atol=1e-6)
        slope = (likelihood.gradient(theta + step * unit) - likelihood.gradient(theta - step * unit)) / (2 * step)
        np.testing.assert_allclose(likelihood.hessian(theta)[k], slope, atol=1e-6)
    np.testing.assert_allclose(likelihood.weights @ likelihood.row_scores(theta), gradient, atol=1e-10)
    free = LogLinearPseudoLikelihood(graph, data)  # control: the same numbers are another theta there
    assert abs(free.log_prob(theta) - expected) > 0.1
    with raises("unknown-choice", "coding"):
        LogLinearPseudoLikelihood(graph, data, coding="balanced")  # pyright: ignore[reportArgumentType]
    if missing:
        with raises("no-method"):
            LogLinearPseudoLikelihood(graph.in_coding("corner"), data, coding="free")


@pytest.mark.parametrize("coding", ["free", "corner"])
@pytest.mark.parametrize("name", MODELS)
def test_a_preconditioner_is_the_inverse_of_the_blocks_of_independent_rows(
    name: str, coding: Literal["free", "corner"], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Rows in which the variables are independent: their blocks of the Hessian are known where theta says so, too.
    hypergraph, *_ = case(name)
    rng = np.random.default_rng(8)
    counts = [rng.integers(1, 6, size=k) for k in hypergraph.domain.cardinalities]
    shares = [count / count.sum() for count in counts]
    data = Observations.from_table(hypergraph.domain, functools.reduce(np.multiply.outer, counts))
    codings = parametrization(hypergraph)
    tables = torch.zeros(hypergraph.num_terms, dtype=torch.float64)
    for i, share in enumerate(shares):
        tables[hypergraph.term_slices[hypergraph.domain.names[i],]] = torch.from_numpy(np.log(share))
    theta = codings.purify(tables)[0]
    theta = codings.convert(theta, "balanced", coding).numpy()
    objective = PseudoLikelihood(hypergraph, data, Coordinates(hypergraph, coding))
    step, size = 1e-5, hypergraph.num_parameters
    slopes = [objective.evaluate(theta + sign * step * unit).gradient for unit in np.eye(size) for sign in (1, -1)]
    hessian = (np.array(slopes[::2]) - np.array(slopes[1::2])) / (2 * step)
    precision = rng.random(size)
    inverse = np.column_stack([objective.preconditioner(precision)(unit) for unit in np.eye(size)])
    expected = np.zeros((size, size))
    for where in hypergraph.parameter_slices.values():
        expected[where, where] = np.linalg.inv(hessian[where, where] + np.diag(precision[where]))
    assert inverse == pytest.approx(expected, abs=1e-6)
    monkeypatch.setattr(objectives, "_MOST_IN_BLOCK", 0)
    diagonal = np.column_stack([objective.preconditioner(precision)(unit) for unit in np.eye(size)])
    assert diagonal == pytest.approx(np.diag(1 / (np.diag(hessian) + precision)), abs=1e-6)
    assert size == 1 or coding == "free" or abs(diagonal - inverse).max() > 1e-3  # control


def test_an_even_hessian_needs_few_steps() -> None:
    rng = np.random.default_rng(2)
    shares = np.array([0.6, 0.3, 0.06, 0.02, 0.01, 0.005, 0.005])
    codes = rng.choice(7, size=(3000, 6), p=shares)
    codes[:, 1] = np.where(rng.random(3000) < 0.5, codes[:, 0], codes[:, 1])
    data = Observations.from_numpy(codes)
    graph = InteractionHypergraph.from_order(data.domain, 2)
    target = PseudoLikelihood(graph, data)
    penalised = Penalised(target, L2(1.0), graph, data.total_count)
    start = penalised.evaluate(np.zeros(graph.num_parameters))
    even = target.preconditioner(np.full(graph.num_parameters, 1 / 3000))
    with_it, without = (lbfgs(penalised.evaluate, start, 1e-6, 5000, lambda *_: False, p) for p in (even, None))
    assert with_it.status == without.status == "converged"
    assert abs(with_it.point.theta - without.point.theta).max() < 1e-2
    assert 2 * with_it.num_iterations < without.num_iterations


def test_collections_that_are_not_hierarchical_and_fractional_weights() -> None:
    domain = Domain.from_cardinalities([2, 3, 2])
    hypergraph = InteractionHypergraph(domain, [domain.names], hierarchical=False)
    weights = np.random.default_rng(1).random(12).reshape(2, 3, 2)
    likelihood = LogLinearPseudoLikelihood(hypergraph, Observations.from_table(domain, weights=weights))
    theta = torch.tensor([0.4, -0.9], dtype=torch.float64)
    counts = torch.from_numpy(weights).reshape(-1)
    hessian = torch.func.jacrev(torch.func.grad(lambda theta: by_cell(hypergraph, theta) @ counts))(theta)
    np.testing.assert_allclose(likelihood.hessian(theta.numpy()), hessian, rtol=1e-10)
    np.testing.assert_allclose(likelihood.weights @ likelihood.row_scores(theta.numpy()), likelihood.gradient(theta))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_factor_of_a_program_has_the_gradient_in_its_own_dtype(dtype: torch.dtype) -> None:
    hypergraph, data, at = case("pairs 2 3 2")
    likelihood = LogLinearPseudoLikelihood(hypergraph, data)
    theta = torch.from_numpy(at).to(dtype).requires_grad_()

    def program() -> None:
        value = pyro.sample("theta", normal_prior(hypergraph, dtype=dtype))
        pyro.factor("rows", likelihood(value))

    trace = pyro.poutine.trace(pyro.poutine.condition(program, {"theta": theta})).get_trace()
    term = trace.nodes["rows"]["fn"].log_factor
    (slope,) = torch.autograd.grad(term, theta)
    assert term.dtype == slope.dtype == dtype
    rtol = 1e-12 if dtype == torch.float64 else 1e-5
    np.testing.assert_allclose(slope, likelihood.gradient(theta.detach().numpy()), rtol=rtol, atol=rtol)
    hessian = torch.autograd.functional.hessian(lambda theta: likelihood(theta) + theta @ theta, theta.detach())
    expected = likelihood.hessian(theta.detach().numpy()) + 2 * np.eye(len(at))
    np.testing.assert_allclose(hessian, expected, rtol=10 * rtol, atol=10 * rtol)


def test_products_with_the_hessian_are_right_and_third_derivatives_refused() -> None:
    hypergraph, data, at = case("pairs 2 3 2")
    likelihood = LogLinearPseudoLikelihood(hypergraph, data)
    theta, way = torch.from_numpy(at), torch.linspace(-1, 2, len(at), dtype=torch.float64)
    expected = likelihood.hessian(at) @ way.numpy()
    for product in (torch.autograd.functional.hvp, torch.autograd.functional.vhp):
        np.testing.assert_allclose(product(likelihood, theta, way)[1], expected, rtol=1e-12)
    leaf = theta.requires_grad_()
    (slope,) = torch.autograd.grad(likelihood(leaf) + (leaf**4).sum(), leaf, create_graph=True)
    (second,) = torch.autograd.grad(slope @ way, leaf, create_graph=True)
    with raises("no-method", "theta"):
        torch.autograd.grad(second.sum(), leaf)


def test_without_rows_it_is_zero() -> None:
    hypergraph, _, theta = case("pairs 2 3 2")
    likelihood = LogLinearPseudoLikelihood(hypergraph, Observations.from_table(hypergraph.domain, np.zeros((2, 3, 2))))
    assert likelihood.log_prob(theta) == 0
    assert not likelihood.gradient(theta).any()
    assert not likelihood.hessian(theta).any()
    assert likelihood.row_scores(theta).shape == (0, hypergraph.num_parameters)


PAIRS, DATA, THETA = case("pairs 2 3 2")


def test_bad_input(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = Observations(PAIRS.domain, torch.tensor([[0, -1, 1]]))
    with raises("missing-cells", "data"):
        LogLinearPseudoLikelihood(PAIRS, missing)
    with raises("other-domain", "data"):
        LogLinearPseudoLikelihood(PAIRS, case("one variable")[1])
    with raises("wrong-type", "data"):
        LogLinearPseudoLikelihood(PAIRS, DATA.table())  # type: ignore[arg-type]
    with raises("wrong-type", "hypergraph"):
        LogLinearPseudoLikelihood("a*b", DATA)  # type: ignore[arg-type]
    likelihood = LogLinearPseudoLikelihood(PAIRS, DATA)
    for method in (likelihood.log_prob, likelihood.gradient, likelihood.hessian, likelihood.row_scores):
        with raises("wrong-shape", "theta"):
            method(THETA[:2])
    with raises("wrong-type", "theta"):
        likelihood(torch.zeros(len(THETA), dtype=torch.long))
    monkeypatch.setattr("pyro_hoim.log_linear.fitting.pseudo_likelihood._MOST_BYTES", 100)
    for method in (likelihood.hessian, likelihood.row_scores):
        with raises("over-budget", "data"):
            method(THETA)


def test_derivatives_leave_out_impossible_states():
    """Finite differences on possible states, and the robust errors of a saturated model, which are the likelihood's."""
    domain = Domain.from_cardinalities({"a": 3, "b": 2, "c": 2})
    states = ImpossibleStates.of_combinations(domain, [{"a": 0, "b": 1}, {"a": 2, "c": 0}])
    table = np.arange(1.0, 13).reshape(3, 2, 2)
    table[0, 1] = table[2, :, 0] = 0
    data, graph = Observations.from_table(domain, table), InteractionHypergraph.from_order(domain, 2)
    target = LogLinearPseudoLikelihood(graph, data, impossible=states)
    theta, step = np.random.default_rng(0).normal(size=graph.num_parameters), 1e-5
    units = step * np.eye(len(theta))
    slopes = [(target.log_prob(theta + unit) - target.log_prob(theta - unit)) / (2 * step) for unit in units]
    np.testing.assert_allclose(target.gradient(theta), slopes, atol=1e-6)
    np.testing.assert_allclose(target.weights @ target.row_scores(theta), slopes, atol=1e-6)
    curves = [(target.gradient(theta + unit) - target.gradient(theta - unit)) / (2 * step) for unit in units]
    np.testing.assert_allclose(target.hessian(theta), curves, atol=1e-5)
    # The control: the same rows where everything is possible.
    assert abs(LogLinearPseudoLikelihood(graph, data).gradient(theta) - slopes).max() > 0.1
    # A conditional of q is that of the law on possible states.
    energy = states.applied(LogLinearEnergy.from_theta(graph, torch.from_numpy(theta)))
    rows = data.rows(data.counts > 0)
    assert target.log_prob(theta) == pytest.approx(float(rows.counts @ energy.log_pseudo_prob(rows.codes)), rel=1e-12)
    full = InteractionHypergraph.saturated(domain)
    errors = [
        fit(full, data, structural_zeros=states, objective=objective).standard_errors("corner", "robust")
        for objective in ("likelihood", "pseudo-likelihood")
    ]
    assert torch.isfinite(errors[0]).any() and torch.equal(torch.isfinite(errors[0]), torch.isfinite(errors[1]))
    known = torch.isfinite(errors[0])
    torch.testing.assert_close(errors[1][known], errors[0][known], rtol=1e-4, atol=0)
