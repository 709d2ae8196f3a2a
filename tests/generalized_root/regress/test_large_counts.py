"""Root regressions whose quadratic models are ill-conditioned: counts of millions and beyond."""

import numpy as np
import pytest

from pyro_hoim.data import CountTable
from pyro_hoim.errors import ConvergenceWarning
from pyro_hoim.generalized_root import fit_roots
from pyro_hoim.generalized_root.regress._kernels import descend
from pyro_hoim.generalized_root.regress._regression import curvature_matrix, penalised_minimum
from pyro_hoim.testing import raises


def uniform_counts(top):
    rng = np.random.default_rng(0)
    return np.stack([rng.integers(0, high, 50) for high in (5, 10**6, int(top))], 1).astype(float)


def quadratic(seed, size=12):
    """A model with condition number 1e10: columns that are powers of one variable, in very different units."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(0.5, 1.0, 60)
    features = np.stack([x**p for p in range(size)], 1) * 10.0 ** rng.uniform(-2, 2, size)
    target = np.sin(5 * x)
    return features, -features.T @ target / 60, features.T @ features / 60


def violation(slope, l1, point):
    at_zero = np.maximum(np.abs(slope) - l1, 0.0)
    return float(np.where(point != 0, np.abs(slope + l1 * np.sign(point)), at_zero).max())


@pytest.mark.parametrize("seed", range(5))
def test_ill_conditioned_models_are_solved_exactly_where_coordinate_descent_is_not(seed):
    features, gradients, curvature = quadratic(seed)
    size = len(gradients)
    l1 = np.full(size, 1e-5)
    l1[0] = 0.0
    coefficients = np.random.default_rng(seed).normal(size=size)
    gradients = gradients + curvature @ coefficients
    starts, places = np.arange(size + 1) * 60, np.tile(np.arange(60), size)
    orders, weights = np.zeros(size, np.int64), np.full((60, 1, 1), 1 / 60)
    columns = (starts, places, np.ascontiguousarray(features.T).reshape(-1), orders)
    np.testing.assert_allclose(curvature_matrix(*columns, weights), curvature, rtol=1e-12)
    step = np.empty(size)
    descend(*columns, gradients, weights, l1, coefficients, 1e-9, 1000, step)
    assert violation(gradients + curvature @ step, l1, coefficients + step) > 1e-8  # negative control
    found = penalised_minimum(gradients, curvature, l1, coefficients, step, 1e-9)
    slope = gradients + curvature @ found
    assert violation(slope, l1, coefficients + found) < 1e-8


def test_curvature_matrix_with_several_roots_against_dense_products():
    rng = np.random.default_rng(3)
    dense, orders = rng.normal(size=(7, 4)), np.array([0, 1, 1, 2])
    dense[rng.random((7, 4)) < 0.4] = 0.0
    factors = rng.normal(size=(7, 3, 3))
    hessians = factors @ factors.transpose(0, 2, 1)
    places = [np.flatnonzero(dense[:, f]) for f in range(4)]
    starts = np.concatenate([[0], np.cumsum([len(p) for p in places])])
    values = np.concatenate([dense[p, f] for f, p in enumerate(places)])
    found = curvature_matrix(starts, np.concatenate(places), values, orders, hessians)
    expected = np.einsum("nf,ng,nfg->fg", dense, dense, hessians[:, orders[:, None], orders])
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("order", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_counts_of_ten_millions_converge(order):
    fitted = fit_roots(uniform_counts(1e7), "poisson", order=order, l1=0.01)
    assert {node.status for node in fitted.nodes} == {"converged"}
    assert float(fitted.kkt_residual.max()) <= 1e-6


@pytest.mark.slow
def test_counts_of_millions_of_millions_end_and_say_where_rounding_stops_them():
    """Two of the three columns are solved; of the third, two modes 10^12 apart swap within one unit of rounding."""
    with pytest.warns(ConvergenceWarning, match="x2"):
        fitted = fit_roots(uniform_counts(1e12), "poisson", order=2, l1=0.01)
    assert [node.status for node in fitted.nodes] == ["converged", "converged", "stalled"]
    assert float(fitted.kkt_residual.max()) < 0.1


@pytest.mark.slow
def test_steps_that_creep_along_a_kink_are_given_up():
    """Between two modes 10^14 apart the line search halves its step ever more often; without the rule 206 steps."""
    random = np.random.default_rng(2)
    rate = random.gamma(3.0, 2.0, (40, 1))
    counts = random.poisson(np.concatenate([rate, rate + 1, np.full((40, 1), 4.0)], axis=1)) * 10**14
    train = CountTable.from_matrix(counts).split([0.8, 0, 0.2], 0)[0]
    with pytest.warns(ConvergenceWarning, match="x2"):
        fitted = fit_roots(train, l1=0.01)
    assert [node.status for node in fitted.nodes] == ["converged", "converged", "stalled"]
    assert fitted.nodes[2].num_steps < 150


def test_counts_beyond_the_whole_numbers_of_a_float_are_refused():
    with raises("out-of-range", "data, row 1 (counted from 0), column 'x0'"):
        fit_roots(np.array([[1.0, 2.0], [1e16, 3.0], [0.0, 1.0]]), "poisson")
