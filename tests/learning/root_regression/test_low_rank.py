"""Low-rank tensors: entries, gradient, against the free pairs and against the energy."""

import itertools
import math

import numpy as np
import pytest
import scipy.optimize
import torch

from pyro_hoim.data import CountTable
from pyro_hoim.errors import ConvergenceWarning, InputError, InputTypeError, IntractableError
from pyro_hoim.learning.root_regression import fit_low_rank_roots, fit_roots
from pyro_hoim.learning.root_regression.low_rank import _Problem, _weights
from pyro_hoim.models.generalized_root import GeneralizedRootEnergy
from pyro_hoim.models.node_families import PoissonFamily
from pyro_hoim.models.root_structure import RootStructure


def count_table(seed=0, num_rows=80, width=4):
    rng = np.random.default_rng(seed)
    hidden = rng.gamma(0.8, 1.2, (num_rows, 2))
    return rng.poisson(hidden @ rng.random((2, width)) + 0.2).astype(float)


def test_gradient_by_differences():
    torch.manual_seed(0)
    weights = {j: _weights(2, j, "both") for j in (2, 3, 4)}
    problem = _Problem(PoissonFamily(), torch.from_numpy(count_table()), weights, 4, 0.3)
    problem.chunk = 17  # several chunks, the last one smaller
    flat = 0.2 * torch.randn(4 + 4 * (4 + 2 + 4), dtype=torch.float64).numpy()
    _, gradient = problem(flat)
    for i in range(0, len(flat), 5):
        step = np.zeros_like(flat)
        step[i] = 1e-5
        slope = (problem(flat + step)[0] - problem(flat - step)[0]) / 2e-5
        assert gradient[i] == pytest.approx(slope, abs=1e-7)


@pytest.mark.parametrize("order", [2, 3, 4])
def test_entries_and_pseudo_likelihood_are_those_of_the_energy(order):
    x = count_table(1)
    with pytest.warns(ConvergenceWarning, match="low-rank fit stopped"):
        fitted = fit_low_rank_roots(x, order=order, rank=2, max_iterations=15, num_starts=1)
    names = fitted.domain.names
    terms = {(j, j): list(itertools.combinations(names, j)) for j in range(1, order + 1)}
    structure = RootStructure(fitted.domain, terms)
    psi = fitted.entries(structure)
    for (key, term), value in zip(structure.names, psi.tolist(), strict=True):
        place = [names.index(name) for name in term]
        if key != (1, 1):
            expected = sum(
                float(w) * math.prod(theta[place].tolist())
                for w, theta in zip(fitted.signs[key[0]], fitted.factors[key[0]], strict=True)
            )
            assert value == pytest.approx(expected, abs=1e-13)
    energy = GeneralizedRootEnergy(structure, psi, fitted.family)
    torch.testing.assert_close(
        fitted.log_pseudo_prob(x), energy.log_pseudo_prob(torch.from_numpy(x)), rtol=0, atol=1e-9
    )


def test_enough_factors_reach_the_optimum_of_free_pairs():
    """Three negative pairs are no positive square, whose pairs have a positive product; signed squares have them."""
    thrice = np.array([np.bincount(places, minlength=3) for places in itertools.product(range(3), repeat=3)])
    more = np.array(list(itertools.product([0, 0, 1], repeat=3)))  # as often as independent counts are
    x = (thrice[:, None] + more).reshape(-1, 3).astype(float)  # every pair of columns is equally negative
    fitted = fit_low_rank_roots(x, order=2, rank=2, l2=0.0, tolerance=1e-4, num_starts=1)
    rows = torch.from_numpy(x)
    structure = RootStructure.simplified(fitted.domain, [(f"x{i}", f"x{j}") for j in range(3) for i in range(j)])

    def loss(flat):
        psi = torch.tensor(flat, dtype=torch.float64, requires_grad=True)
        value = -GeneralizedRootEnergy(structure, psi, PoissonFamily(), validate=False).log_pseudo_prob(rows).mean()
        value.backward()
        return float(value.detach()), psi.grad.numpy()

    best = scipy.optimize.minimize(loss, np.zeros(structure.num_terms), jac=True, method="BFGS", options={"gtol": 1e-8})
    assert -float(fitted.log_pseudo_prob(x).mean()) == pytest.approx(best.fun, abs=1e-6)
    poor = fit_low_rank_roots(x, order=2, rank=1, signs="positive", l2=0.0, tolerance=2e-3, num_starts=1)  # control
    assert -float(poor.log_pseudo_prob(x).mean()) > best.fun + 1e-4


def test_one_factor_is_recovered():
    """Counts drawn by Gibbs sampling from pairs of rank one: the products of the factors are found."""
    rng = np.random.default_rng(3)
    theta = np.array([0.6, 0.5, 0.7, -0.4])
    x = np.ones((2000, 4))
    levels = np.arange(40)
    base = -np.cumsum(np.log(np.maximum(levels, 1)))
    for _ in range(40):
        for s in range(4):
            rest = np.sqrt(np.delete(x, s, 1)) @ np.delete(theta, s)
            logs = -0.3 * levels + 2 * theta[s] * rest[:, None] * np.sqrt(levels) + base
            probs = np.exp(logs - logs.max(1, keepdims=True))
            probs /= probs.sum(1, keepdims=True)
            x[:, s] = (probs.cumsum(1) < rng.random((2000, 1))).sum(1)
    fitted = fit_low_rank_roots(x, order=2, rank=1, signs="positive", l2=0.0, tolerance=1e-5)
    assert fitted.status == "converged"
    products = (fitted.factors[2].T @ fitted.factors[2]).numpy()
    np.testing.assert_allclose(
        products[np.triu_indices(4, 1)], np.outer(theta, theta)[np.triu_indices(4, 1)], atol=0.09
    )
    np.testing.assert_allclose(fitted.intercepts.numpy(), -0.3, atol=0.2)


def test_order_one_and_fixed_columns():
    x = count_table(4)
    alone = fit_low_rank_roots(x, order=1)
    np.testing.assert_allclose(alone.intercepts.numpy(), np.log(x.mean(0)), atol=1e-6)
    with_zero = CountTable.from_matrix(np.insert(x, 1, 0.0, axis=1), ["a", "none", "b", "c", "d"])
    fitted = fit_low_rank_roots(with_zero, order=2, l2=0.1)
    assert fitted.domain.names == ("a", "b", "c", "d")
    plain = fit_low_rank_roots(x, order=2, l2=0.1)
    torch.testing.assert_close(fitted.log_pseudo_prob(with_zero), plain.log_pseudo_prob(x), rtol=0, atol=1e-9)
    wrong = with_zero.to_array().copy()
    wrong[0, 1] = 2.0
    assert fitted.log_pseudo_prob(CountTable.from_matrix(wrong, with_zero.domain.names))[0] == -math.inf


def test_same_generator_same_fit_and_global_state_is_left_alone():
    x = count_table(5)
    state = torch.get_rng_state()
    fits = [
        fit_low_rank_roots(x, order=2, l2=0.05, tolerance=1e-4, generator=torch.Generator().manual_seed(7))
        for _ in range(2)
    ]
    assert torch.equal(state, torch.get_rng_state())
    assert torch.equal(fits[0].factors[2], fits[1].factors[2])
    assert list(fits[0].objectives) == sorted(fits[0].objectives)
    assert fits[0].objective < -fit_roots(x, order=1).log_pseudo_prob(x).mean()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"rank": 0}, InputError, "rank: expected a whole number from 1"),
        ({"rank": 1.5}, InputTypeError, "rank: expected a whole number"),
        ({"rank": {2: 1}}, InputError, "for each root from 2 to 3"),
        ({"signs": "negative"}, InputError, "signs"),
        ({"l2": -1.0}, InputError, "l2"),
        ({"l2": "1"}, InputTypeError, "l2"),
        ({"tolerance": 0.0}, InputError, "tolerance"),
        ({"num_starts": 0}, InputError, "num_starts"),
        ({"max_cells": 10}, IntractableError, "960 cells.*max_cells=10"),
    ],
)
def test_bad_arguments(arguments, error, message):
    with pytest.raises(error, match=message):
        fit_low_rank_roots(count_table(), **arguments)


def test_rows_without_a_free_column_are_refused():
    with pytest.raises(InputError, match="only columns that are fixed"):
        fit_low_rank_roots(np.zeros((5, 2)), order=2)
