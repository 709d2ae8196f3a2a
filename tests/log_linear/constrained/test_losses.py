"""Losses of binary rows against the joint table, the free coding and differences; screening by products of signs."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from pyro_hoim.data import Observations
from pyro_hoim.errors import InputError, InputTypeError
from pyro_hoim.log_linear import LogLinearPseudoLikelihood, parametrization
from pyro_hoim.log_linear.constrained import losses
from pyro_hoim.log_linear.constrained.losses import InteractionScreeningLoss, Loss, PseudoLikelihoodLoss, Restriction
from pyro_hoim.schema import Domain
from pyro_hoim.testing import raises

CASES = [(3, 2), (5, 2), (4, 3), (5, 4), (4, 4)]


def rows(num: int, count: int = 60, seed: int = 0) -> Observations:
    rng = np.random.default_rng(seed)
    codes = (rng.random((count, num)) < rng.uniform(0.3, 0.7, num)).astype(int)
    domain = Domain.from_cardinalities({f"x{i}": 2 for i in range(num)})
    return Observations.from_tensor(torch.from_numpy(codes), domain)


def by_table(data: Observations, order: int, theta: np.ndarray) -> float:
    """The loss from the joint table, whose log probabilities are summed over one variable at a time."""
    num = len(data.domain)
    sets = [edge for k in range(1, order + 1) for edge in itertools.combinations(range(num), k)]
    logits = np.zeros((2,) * num)
    for cell in itertools.product((0, 1), repeat=num):
        logits[cell] = sum(t for t, edge in zip(theta, sets, strict=True) if all(cell[i] for i in edge))
    conditionals = sum(logits - np.logaddexp.reduce(logits, i, keepdims=True) for i in range(num))
    table = data.table().numpy()
    return -float((table * conditionals).sum() / table.sum())


@pytest.mark.parametrize(("num", "order"), CASES)
def test_value_is_that_of_the_joint_table_and_of_the_free_coding(num: int, order: int) -> None:
    data = rows(num)
    loss = PseudoLikelihoodLoss(data, order)
    theta = np.random.default_rng(1).standard_normal(loss.num_parameters)
    np.testing.assert_allclose(loss.value(theta), by_table(data, order, theta), rtol=1e-12)
    free = parametrization(loss.hypergraph).convert(torch.from_numpy(theta), "corner", "free").numpy()
    other = LogLinearPseudoLikelihood(loss.hypergraph, data)
    np.testing.assert_allclose(loss.value(theta), -other.log_prob(free) / loss.num_rows, rtol=1e-12)
    matrix = parametrization(loss.hypergraph).matrix("corner", "free").numpy()
    value, gradient = loss.value_and_gradient(theta)
    np.testing.assert_allclose(value, loss.value(theta), rtol=1e-14)
    np.testing.assert_allclose(gradient, -matrix.T @ other.gradient(free) / loss.num_rows, rtol=1e-10, atol=1e-13)
    hessian = -matrix.T @ other.hessian(free) @ matrix / loss.num_rows
    direction = np.random.default_rng(2).standard_normal(loss.num_parameters)
    np.testing.assert_allclose(loss.product(theta, direction), hessian @ direction, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize(("num", "order"), [(5, 2), (5, 3)])
def test_restrictions_are_the_loss_along_directions(num: int, order: int) -> None:
    loss = PseudoLikelihoodLoss(rows(num), order)
    rng = np.random.default_rng(3)
    theta, moves = rng.standard_normal(loss.num_parameters), rng.standard_normal((2, loss.num_parameters))
    plane, steps = loss.restrict(theta, moves), np.array([0.3, -0.7])
    assert isinstance(loss, Loss)
    assert isinstance(plane, Restriction)
    found = plane.derivatives(steps)
    at = theta + steps @ moves
    np.testing.assert_allclose([found.value, plane.value(steps)], loss.value(at), rtol=1e-13)
    np.testing.assert_allclose(found.gradient, moves @ loss.value_and_gradient(at)[1], rtol=1e-10)
    products = [[a @ loss.product(at, b) for b in moves] for a in moves]
    np.testing.assert_allclose(found.hessian, products, rtol=1e-10)


def test_rows_in_blocks_give_the_same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    data = rows(5)
    whole = PseudoLikelihoodLoss(data, 3)
    monkeypatch.setattr(losses, "_KEPT_ENTRIES", 0)
    monkeypatch.setattr(losses, "_BLOCK_ENTRIES", 100)
    parts = PseudoLikelihoodLoss(data, 3)
    assert parts._kept is None and len(list(parts._blocks())) > 3
    theta = np.random.default_rng(1).standard_normal(whole.num_parameters)
    for a, b in zip(whole.value_and_gradient(theta), parts.value_and_gradient(theta), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-15)


def test_large_logits_neither_overflow_nor_lose_their_value() -> None:
    data = Observations.from_table(Domain.from_cardinalities({"a": 2, "b": 2}), [[0, 0], [0, 1]])
    value, gradient = PseudoLikelihoodLoss(data, 2).value_and_gradient(np.array([-1000.0, 40.0, 0.0]))
    assert value == pytest.approx(1000 + np.exp(-40.0), rel=1e-15)
    np.testing.assert_allclose(gradient, [-1, -np.exp(-40.0), -1])


def test_paper_3_table_1_2_minimises_the_loss() -> None:
    """Table 1.2; the exact optimum differs from the printed theta in the fourth digit."""
    domain = Domain.from_cardinalities({"x": 2, "y": 2, "z": 2})
    data = Observations.from_table(domain, [[[983, 2105], [4172, 1849]], [[11, 612], [60, 208]]])
    loss = PseudoLikelihoodLoss(data, 2)
    optimum = np.array([-3.6612, 1.4631, 0.7823, -0.4238, 1.1981, -0.8035]) * [1, 1, 1, 2, 2, 2]
    printed = np.array([-3.6605, 1.4626, 0.7821, -0.4238, 1.1982, -0.8032]) * [1, 1, 1, 2, 2, 2]
    assert abs(loss.value_and_gradient(optimum)[1]).max() < 5e-5  # half a unit of the last digit, by the Hessian
    assert 0 < loss.value(printed) - loss.value(optimum) < 1e-6
    control = loss.value_and_gradient(optimum * [1, 1, 1, 0.5, 0.5, 0.5])[1]
    assert abs(control).max() > 1e-2


def test_what_cannot_be_a_loss_is_refused_by_name() -> None:
    data = rows(3)
    with pytest.raises(InputError, match="expected binary variables, received 'b' with 3 levels"):
        PseudoLikelihoodLoss(Observations.from_table(Domain.from_cardinalities({"a": 2, "b": 3}), [[1, 2, 3]] * 2), 2)
    for levels in (3, 1):
        domain = Domain.from_cardinalities({"a": 2, "b": levels})
        with raises("other-domain", "data"):
            PseudoLikelihoodLoss(Observations.from_table(domain, [[1] * levels] * 2), 2)
    for order in (1, 4, 2.0):
        with raises("out-of-range", "order"):
            PseudoLikelihoodLoss(data, order)  # pyright: ignore[reportArgumentType]
    with raises("out-of-range", "data"):
        PseudoLikelihoodLoss(rows(1), 2)
    with raises("empty", "data"):
        PseudoLikelihoodLoss(data.rows(torch.zeros(0, dtype=torch.int64)), 2)
    with raises("missing-cells", "data"):
        PseudoLikelihoodLoss(Observations.from_tensor(torch.tensor([[0, -1, 1]]), data.domain), 2)
    with raises("wrong-shape", "theta"):
        PseudoLikelihoodLoss(data, 2).value(np.zeros(5))
    with pytest.raises(InputTypeError, match="data: expected Observations"):
        PseudoLikelihoodLoss([[0, 1]], 2)  # pyright: ignore[reportArgumentType]


# Interaction screening


def cells(num: int) -> np.ndarray:
    return np.array(list(itertools.product((0, 1), repeat=num)))


def sets(num: int, order: int) -> list[tuple[int, ...]]:
    return [edge for k in range(1, order + 1) for edge in itertools.combinations(range(num), k)]


def table(weights: np.ndarray) -> Observations:
    num = int(np.log2(len(weights)))
    domain = Domain.from_cardinalities({f"x{i}": 2 for i in range(num)})
    return Observations.from_table(domain, weights=weights.reshape((2,) * num))


def by_signs(weights: np.ndarray, order: int, couplings: np.ndarray) -> float:
    """The published objective: for every node the mean of exp(-sum of its couplings times products of signs)."""
    num = int(np.log2(len(weights)))
    signs = 2 * cells(num) - 1
    total = 0.0
    for node in range(num):
        terms = [
            c * signs[:, edge].prod(1) for c, edge in zip(couplings, sets(num, order), strict=True) if node in edge
        ]
        total += float(weights @ np.exp(-np.sum(terms, 0)))
    return total / float(weights.sum())


def corner(couplings: np.ndarray, num: int, order: int) -> np.ndarray:
    """Corner theta of couplings of signs, by expanding the products of 2 x - 1."""
    edges = sets(num, order)
    theta = dict.fromkeys(edges, 0.0)
    for c, edge in zip(couplings, edges, strict=True):
        for k in range(1, len(edge) + 1):
            for part in itertools.combinations(edge, k):
                theta[part] += c * 2**k * (-1) ** (len(edge) - k)
    return np.array(list(theta.values()))


@pytest.mark.parametrize(("num", "order"), CASES)
def test_screening_is_the_published_objective_of_products_of_signs(num: int, order: int) -> None:
    rng = np.random.default_rng(0)
    weights = rng.random(2**num)
    loss = InteractionScreeningLoss(table(weights), order)
    assert isinstance(loss, Loss)
    couplings = rng.standard_normal(loss.num_parameters)
    theta = corner(couplings, num, order)
    oracle = by_signs(weights, order, couplings)
    np.testing.assert_allclose(loss.value(theta), oracle, rtol=1e-12)
    value, gradient = loss.value_and_gradient(theta)
    np.testing.assert_allclose(value, oracle, rtol=1e-12)
    direction, width = rng.standard_normal(loss.num_parameters), 1e-5
    ahead, behind = (loss.value_and_gradient(theta + sign * width * direction) for sign in (1, -1))
    np.testing.assert_allclose(gradient @ direction, (ahead[0] - behind[0]) / (2 * width), rtol=1e-7)
    product = loss.product(theta, direction)
    np.testing.assert_allclose(product, (ahead[1] - behind[1]) / (2 * width), rtol=1e-6, atol=1e-6 * abs(product).max())
    halved = by_signs(weights, order, couplings / 2)
    assert abs(halved / oracle - 1) > 1e-2  # control: monomials without centring have half the logit


@pytest.mark.parametrize(("num", "order"), CASES)
def test_the_expected_gradient_vanishes_at_the_law_of_theta(num: int, order: int) -> None:
    rng = np.random.default_rng(1)
    theta = rng.standard_normal(len(sets(num, order)))
    logits = sum(t * cells(num)[:, edge].prod(1) for t, edge in zip(theta, sets(num, order), strict=True))
    data = table(np.exp(logits - np.max(logits)))
    for kind in (InteractionScreeningLoss, PseudoLikelihoodLoss):
        loss = kind(data, order)
        assert np.abs(loss.value_and_gradient(theta)[1]).max() < 1e-13
        assert np.abs(loss.value_and_gradient(1.05 * theta)[1]).max() > 1e-3  # control: another temperature
    # At the law of theta every term is the sum over both levels of the square roots of their probabilities' product.
    probs = np.exp(logits) / np.exp(logits).sum()
    joint = probs.reshape((2,) * num)
    oracle = sum(2 * np.sqrt(joint.take(0, i) * joint.take(1, i)).sum() for i in range(num))
    np.testing.assert_allclose(InteractionScreeningLoss(data, order).value(theta), oracle, rtol=1e-12)


def test_screening_of_extreme_theta_is_infinite_and_restrictions_are_convex() -> None:
    loss = InteractionScreeningLoss(table(np.ones(8)), 3)
    assert loss.value(np.zeros(7)) == 3.0
    assert loss.value(np.full(7, 1e4)) == np.inf
    plane = loss.restrict(np.zeros(7), torch.eye(7).numpy()[:2].astype(float))
    assert np.linalg.eigvalsh(plane.derivatives(np.array([0.3, -0.2])).hessian).min() > 0
