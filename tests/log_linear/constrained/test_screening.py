"""Interaction screening against the definition in products of signs, and its gradient at the law of theta."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from pyro_hoim.data import Observations
from pyro_hoim.log_linear.constrained.losses import InteractionScreeningLoss, Loss, PseudoLikelihoodLoss
from pyro_hoim.schema import Domain

CASES = [(3, 2), (5, 2), (4, 3), (5, 4), (4, 4)]


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
