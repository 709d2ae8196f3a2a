"""Node regressions against slow oracles (dense features of every tuple, L-BFGS-B, autograd) and other programs."""

import itertools
import math

import numpy as np
import pytest
import scipy.sparse
import torch
from scipy.optimize import minimize
from scipy.special import gammaln, logsumexp
from sklearn.linear_model import Lasso, LogisticRegression

from pyro_hoim import ConvergenceWarning, CountTable
from pyro_hoim.generalized_root import RootSettings, fit_root_path, fit_roots
from pyro_hoim.generalized_root.nodes.families import PoissonFamily, TruncatedPoissonFamily, node_family
from pyro_hoim.generalized_root.nodes.kernels import evaluate_nodes
from pyro_hoim.generalized_root.regress import _regression
from pyro_hoim.generalized_root.regress._kernels import (
    descend,
    descend_groups,
    descend_matrix,
    scan_pairs,
    screened_columns,
)
from pyro_hoim.generalized_root.regress._regression import Groups, curvature_matrix, grouped_minimum, penalised_minimum
from pyro_hoim.testing import raises

from support.root_models import count_table


def keys_of(order, full=False):
    pairs = [(j, size) for j in range(1, order + 1) for size in (range(1, j + 1) if full else (j,))]
    return sorted(pairs, key=lambda key: (key[1], key[0]))


def dense_features(x, node, order, family, full=False):
    """[(key, others, column)] of every tuple, the constant of (1, 1) first."""
    roots = [family.root(torch.tensor(x, dtype=torch.float64), j).numpy() for j in range(1, order + 1)]
    rest = [t for t in range(x.shape[1]) if t != node]
    return [
        ((j, size), others, np.prod([roots[j - 1][:, t] for t in others], axis=0) * np.ones(len(x)))
        for j, size in keys_of(order, full)
        for others in itertools.combinations(rest, size - 1)
    ]


def count_log_partition(eta, top):
    """log sum exp(sum_j eta_j x^(1/j) - log x!) over x = 0 ... top, and the means of the roots."""
    x = np.arange(top + 1, dtype=float)
    roots = np.stack([x ** (1 / j) for j in range(1, eta.shape[1] + 1)], 1)
    logs = eta @ roots.T - gammaln(x + 1)
    value = logsumexp(logs, 1)
    return value, np.exp(logs - value[:, None]) @ roots


def slow_objective(x, node, order, l1, family, top, full=False):
    """Least objective over all features, by L-BFGS-B of the positive and the negative parts of coefficients."""
    features = dense_features(x, node, order, family, full)
    z = np.stack([column for _, _, column in features], 1)
    roots = np.array([key[0] - 1 for key, _, _ in features])
    penalty = np.array([0.0 if key == (1, 1) else l1 for key, _, _ in features])
    own = family.roots(torch.tensor(x[:, node], dtype=torch.float64), order).numpy()

    def objective(parts):
        c = parts[: len(z.T)] - parts[len(z.T) :]
        eta = np.stack([z[:, roots == j] @ c[roots == j] for j in range(order)], 1)
        value, mean = count_log_partition(eta, top)
        gradient = (z * ((mean - own) / len(x))[:, roots]).sum(0)
        total = (value - (eta * own).sum(1)).mean() + np.tile(penalty, 2) @ parts
        return total, np.concatenate([gradient + penalty, penalty - gradient])

    found = minimize(
        objective, np.zeros(2 * len(features)), jac=True, method="L-BFGS-B", bounds=[(0, None)] * 2 * len(features),
        options={"ftol": 0.0, "gtol": 1e-10, "maxiter": 5000, "maxfun": 20_000},
    )  # fmt: skip
    return found.fun


def dense_subgradient(x, node, order, l1, family, log_partition, coefficients, full=False):
    """Distance of the subgradient from zero over every feature, by autograd of the objective written out."""
    features = dense_features(x, node, order, family, full)
    values = torch.tensor([coefficients.get((key, others), 0.0) for key, others, _ in features], dtype=torch.float64)
    values.requires_grad_()
    own = family.roots(torch.tensor(x[:, node], dtype=torch.float64), order)
    z = torch.tensor(np.stack([column for _, _, column in features], 1))
    roots = torch.tensor([key[0] - 1 for key, _, _ in features])
    eta = torch.stack([(z * values)[:, roots == j].sum(1) for j in range(order)], 1)
    smooth = (log_partition(eta) - (eta * own).sum(1)).mean()
    (g,) = torch.autograd.grad(smooth, values)
    c = values.detach()
    penalty = torch.tensor([0.0 if key == (1, 1) else l1 for key, _, _ in features], dtype=torch.float64)
    distance = torch.where(c != 0, (g + penalty * c.sign()).abs(), (g.abs() - penalty).clamp(min=0))
    return float(distance.max()), float(smooth.detach() + (penalty * c.abs()).sum())


def node_coefficients(fitted, name):
    """{(key, positions of the others): coefficient} of one node's regression."""
    index = fitted.domain.names.index
    node = fitted.nodes[index(name)]
    found = {(term.key, tuple(index(n) for n in term.names if n != name)): term.coefficient for term in node.terms}
    return found | {((1, 1), ()): node.intercept}


def count_sum(top):
    """log partition of counts 0 ... top as a function of torch parameters (rows, k), summed term by term."""

    def log_partition(eta):
        x = torch.arange(top + 1, dtype=torch.float64)
        roots = torch.stack([x ** (1 / j) for j in range(1, eta.shape[1] + 1)], 1)
        return torch.logsumexp(eta @ roots.T - torch.lgamma(x + 1), 1)

    return log_partition


def quadrature(low, high, power, roots_of, num=4001):
    """log partition by the trapezoid rule in y, where x = y^power makes the roots smooth at 0."""
    y = torch.linspace(low, high, num, dtype=torch.float64)
    log_weight = (power * y.abs() ** (power - 1) * (high - low) / (num - 1)).log()

    def log_partition(eta):
        return torch.logsumexp(eta @ roots_of(y)[:, : eta.shape[1]].T + log_weight, 1)

    return log_partition


SMOOTH = {
    "exponential": quadrature(0.0, 2.2, 6, lambda y: torch.stack([y**6, y**3, y**2], 1)),
    "gaussian": quadrature(-3.4, 3.4, 3, lambda y: torch.stack([y**6, y**3, y**2], 1)),
}


CASES = {
    "pairs": (PoissonFamily(), 2, 0.02, False, 25),
    "triples": (PoissonFamily(), 3, 0.02, False, 25),
    "weak penalty": (PoissonFamily(), 3, 0.003, False, 25),
    "all keys": (PoissonFamily(), 3, 0.02, True, 25),
    "four": (PoissonFamily(), 4, 0.02, False, 25),
    "truncated": (TruncatedPoissonFamily(3), 3, 0.02, False, 3),
}


@pytest.mark.parametrize("case", CASES)
def test_objective_is_the_least_and_every_subgradient_holds(case):
    """Another optimiser over all features, and autograd of the objective written out, over every feature."""
    family, order, l1, full, top = CASES[case]
    x = np.minimum(count_table(1, 80, 5), top)
    fitted = fit_roots(x, family, order=order, l1=l1, full=full)
    assert fitted.is_converged
    num_interactions = 0
    for node in range(x.shape[1]):
        mine = node_coefficients(fitted, f"x{node}")
        residual, objective = dense_subgradient(x, node, order, l1, family, count_sum(top), mine, full)
        assert residual < 1.1e-6
        assert fitted.nodes[node].kkt_residual == pytest.approx(residual, abs=1e-8)
        assert fitted.nodes[node].objective == pytest.approx(objective, abs=1e-12)
        num_interactions += len(mine) - 1
        if node == 0:
            best = slow_objective(x, node, order, l1, family, top, full)
            assert objective <= best + 1e-11
            assert objective == pytest.approx(best, abs=1e-5)
    assert num_interactions > 5


def test_negative_controls_of_the_subgradient_oracle():
    """A coefficient off by 1e-4, one dropped, and the penalty of another problem are all seen."""
    x = count_table(1, 80, 5)
    mine = node_coefficients(fit_roots(x, order=3, l1=0.02), "x0")
    assert len(mine) > 2
    key = next(k for k in mine if k != ((1, 1), ()))

    def residual(coefficients, l1=0.02, order=3):
        return dense_subgradient(x, 0, order, l1, PoissonFamily(), count_sum(25), coefficients)[0]

    assert residual(mine) < 1.1e-6
    assert residual(mine | {key: mine[key] + 1e-4}) > 1e-5
    assert residual({k: v for k, v in mine.items() if k != key}) > 1e-4
    assert residual(mine, l1=0.0201) > 5e-5
    assert residual(node_coefficients(fit_roots(x, order=2, l1=0.02), "x0"), order=2) < 1.1e-6


@pytest.mark.parametrize("l1", [0.01, 0.005, 0.002])
def test_binary_pairs_are_l1_logistic_regression(l1):
    """Poisson truncated at 1, k = 2: log x! = 0 and every root of a bit is the bit, so eta = psi_1 + sum of pairs."""
    x = np.minimum(count_table(3, 250, 6), 1.0)
    fitted = fit_roots(x, TruncatedPoissonFamily(1), order=2, l1=l1, settings=RootSettings(tolerance=1e-10))
    for node in range(6):
        others = [t for t in range(6) if t != node]
        # No penalty on the intercept: saga; C is the inverse of n times ours.
        peer = LogisticRegression(C=1 / (250 * l1), l1_ratio=1.0, solver="saga", tol=1e-13, max_iter=200_000)
        peer.fit(x[:, others], x[:, node])
        mine = node_coefficients(fitted, f"x{node}")
        np.testing.assert_allclose([mine.get(((2, 2), (t,)), 0.0) for t in others], peer.coef_[0], rtol=0, atol=1e-6)
        assert mine[(1, 1), ()] == pytest.approx(peer.intercept_[0], abs=1e-6)


def test_gaussian_pairs_are_the_lasso():
    """Given eta_1 = -1 / (2 v), the coefficients times v minimise |x - z b|^2 / 2n + l1 |b|: the Lasso, whatever v."""
    rng = np.random.default_rng(4)
    x = rng.normal(size=(200, 6)) @ (np.eye(6) + 0.4 * rng.normal(size=(6, 6)))
    fitted = fit_roots(x, "gaussian", order=2, l1=0.1, settings=RootSettings(tolerance=1e-9))
    assert fitted.structure.domain.variables[0].kind == "real"
    for node in range(6):
        others = [t for t in range(6) if t != node]
        mine = node_coefficients(fitted, f"x{node}")
        variance = -0.5 / mine[(1, 1), ()]
        found = np.array([mine.get(((2, 2), (t,)), 0.0) for t in others]) * variance
        peer = Lasso(alpha=0.1, fit_intercept=False, tol=1e-14, max_iter=10**6).fit(x[:, others], x[:, node])
        np.testing.assert_allclose(found, peer.coef_, rtol=0, atol=1e-7)
        rest = ((x[:, node] - x[:, others] @ found) ** 2).mean()
        assert variance == pytest.approx(rest + 2 * 0.1 * np.abs(found).sum(), abs=1e-7)  # d/dv of the objective is 0


@pytest.mark.parametrize(("name", "order"), [("exponential", 2), ("exponential", 3), ("gaussian", 3)])
def test_continuous_families_satisfy_the_optimality_conditions(name, order):
    family = node_family(name)
    rng = np.random.default_rng(5)
    hidden = rng.normal(size=(120, 1))
    x = hidden * rng.normal(size=(1, 4)) + rng.normal(size=(120, 4))
    if name == "exponential":
        x = np.abs(x) + 0.05
    fitted = fit_roots(x, family, order=order, l1=0.02)
    assert fitted.is_converged
    for node in range(2):
        mine = node_coefficients(fitted, f"x{node}")
        residual, objective = dense_subgradient(x, node, order, 0.02, family, SMOOTH[name], mine)
        assert residual < 2e-6
        assert objective == pytest.approx(fitted.nodes[node].objective, abs=1e-6)


def test_path_equals_single_fits():
    x = count_table(6, 200, 7)
    l1s = [0.2, 0.05, 0.02, 0.005]
    path = fit_root_path(x, l1s, order=3, settings=RootSettings(tolerance=1e-8))
    for l1, fitted in zip(l1s, path, strict=True):
        single = fit_roots(x, order=3, l1=l1, settings=RootSettings(tolerance=1e-8))
        assert fitted.is_converged
        torch.testing.assert_close(fitted.objective, single.objective, rtol=0, atol=1e-9)
        big = {t.names: t.coefficient for t in single.terms()}
        for term in fitted.terms():
            assert term.coefficient == pytest.approx(big.get(term.names, 0.0), abs=1e-4)
    sizes = [fitted.structure.num_terms for fitted in path]
    assert sizes == sorted(sizes)
    assert sizes[0] < sizes[-1]


def test_orders_of_rows_and_columns_do_not_matter():
    x = count_table(7, 200, 6)
    rng = np.random.default_rng(0)
    names = [f"w{i}" for i in range(6)]

    def terms(x, names):
        fitted = fit_roots(x, order=3, l1=0.01, names=names, settings=RootSettings(tolerance=1e-9))
        return {frozenset(t.names): t.coefficient for t in fitted.terms()}

    expected = terms(x, names)
    assert len(expected) > 10
    assert terms(x[rng.permutation(200)], names) == pytest.approx(expected, abs=1e-6)
    columns = rng.permutation(6)
    assert terms(x[:, columns], [names[i] for i in columns]) == pytest.approx(expected, abs=1e-6)


def test_zero_penalty_is_maximum_likelihood():
    """Without a penalty the gradient vanishes and two bits have their log odds ratio."""
    bits = np.repeat([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]], [40, 10, 20, 30], axis=0)
    fitted = fit_roots(bits, TruncatedPoissonFamily(1), order=2, l1=0.0, settings=RootSettings(tolerance=1e-10))
    (pair,) = fitted.terms((2, 2))
    assert pair.coefficient == pytest.approx(math.log(40 * 30 / (10 * 20)), abs=1e-7)
    assert fitted.psi[-1].item() == pytest.approx(pair.coefficient / 2, abs=1e-15)


def bits(num_rows=250, width=8):
    rng = np.random.default_rng(3)
    hidden = rng.normal(size=(num_rows, 2))
    return (hidden @ rng.normal(size=(2, width)) + rng.normal(size=(num_rows, width)) > 0.3).astype(float)


@pytest.mark.slow  # skglm compiles for about 20 s; the same comparison with scikit-learn runs in every test run
def test_pairs_of_bits_are_skglms_logistic_regression():
    from skglm.datafits import Logistic
    from skglm.estimators import GeneralizedLinearEstimator
    from skglm.penalties import L1
    from skglm.solvers import ProxNewton

    x = bits()
    num_columns = x.shape[1]
    found = num_nonzero = 0
    for l1 in (0.02, 0.005, 0.001):
        fitted = fit_roots(x, TruncatedPoissonFamily(1), order=2, l1=l1, settings=RootSettings(tolerance=1e-10))
        for node in range(num_columns):
            others = [t for t in range(num_columns) if t != node]
            solver = ProxNewton(fit_intercept=True, tol=1e-12, max_iter=1000)
            peer = GeneralizedLinearEstimator(Logistic(), L1(l1), solver)
            peer.fit(np.asfortranarray(x[:, others]), 2 * x[:, node] - 1)
            mine = np.zeros(num_columns)
            for term in fitted.nodes[node].terms:
                (other,) = set(term.names) - {f"x{node}"}
                mine[int(other.removeprefix("x"))] = term.coefficient
            np.testing.assert_allclose(mine[others], np.ravel(peer.coef_), rtol=0, atol=1e-6)
            assert fitted.nodes[node].intercept == pytest.approx(float(np.ravel(peer.intercept_)[0]), abs=1e-6)
            found += int((mine != 0).sum())
            num_nonzero += int((np.ravel(peer.coef_) != 0).sum())
            control = GeneralizedLinearEstimator(Logistic(), L1(1.01 * l1), solver)
            control.fit(np.asfortranarray(x[:, others]), 2 * x[:, node] - 1)
            assert np.abs(mine[others] - np.ravel(control.coef_)).max() > 1e-5  # control: another penalty, other values
    assert found == num_nonzero > 100


# Large counts


def uniform_counts(top):
    rng = np.random.default_rng(0)
    return np.stack([rng.integers(0, high, 50) for high in (5, 10**6, int(top))], 1).astype(float)


def quadratic(seed, size=12, spread=2):
    """A nearly singular model: columns that are powers of one variable, in units that differ by powers of ten."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(0.5, 1.0, 60)
    features = np.stack([x**p for p in range(size)], 1) * 10.0 ** rng.uniform(-spread, spread, size)
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
    columns = (starts, places, np.ascontiguousarray(features.T).reshape(-1))
    np.testing.assert_allclose(curvature_matrix(*columns, weights), curvature, rtol=1e-12)
    step = np.empty(size)
    descend(*columns, orders, gradients, weights, l1, coefficients, 1e-9, 1000, step)
    assert violation(gradients + curvature @ step, l1, coefficients + step) > 1e-8  # negative control
    found = penalised_minimum(gradients, curvature, l1, coefficients, step, 1e-9)
    slope = gradients + curvature @ found
    assert violation(slope, l1, coefficients + found) < 1e-8


@pytest.mark.parametrize("seed", range(5))
def test_descents_through_rows_and_by_their_matrix_reach_one_minimum(seed):
    rng = np.random.default_rng(seed)
    size, rows, k = 20, 200, 2
    orders = rng.integers(0, k, size)
    roots = rng.normal(size=(rows, k, k))
    hessians = roots @ roots.transpose(0, 2, 1) / rows
    features = rng.normal(size=(size, rows)) * (rng.random((size, rows)) < 0.5)
    starts = np.concatenate([[0], np.cumsum((features != 0).sum(1))])
    places, values = np.nonzero(features)[1], features[features != 0]
    # The matrix of dense features is that of sparse ones.
    curvature = _regression._curvature(features, orders, hessians)
    lines = places * k + np.repeat(orders, np.diff(starts))
    np.testing.assert_allclose(curvature, curvature_matrix(starts, lines, values, hessians), rtol=0, atol=1e-13)
    gradients, coefficients, l1 = rng.normal(size=size), rng.normal(size=size), np.full(size, 0.5)
    l1[0] = 0.0
    steps = np.empty((3, size))
    descend(starts, places, values, orders, gradients, hessians, l1, coefficients, 1e-10, 1000, steps[0])
    assert descend_matrix(curvature, gradients, l1, coefficients, 1e-10, 1000, steps[1]) < 1000
    assert descend_matrix(curvature, gradients, l1, coefficients, 1e-10, 1, steps[2]) == 1
    for step in steps[:2]:
        assert violation(gradients + curvature @ step, l1, coefficients + step) < 1e-8
    assert violation(gradients + curvature @ steps[2], l1, coefficients + steps[2]) > 1e-8  # negative control
    assert 0 < (coefficients + steps[1] == 0).sum() < size


@pytest.mark.parametrize("order", [2, 3])
def test_dense_features_change_no_solution(order, monkeypatch):
    rng = np.random.default_rng(0)
    factor = rng.normal(size=(400, 1))
    table = (factor * rng.normal(size=10) + rng.normal(size=(400, 10)) > 0).astype(np.int64)
    fits = []
    for share in (_regression._DENSE, 2.0):  # the second is never reached
        monkeypatch.setattr(_regression, "_DENSE", share)
        settings = RootSettings(false_discovery_rate=None, tolerance=1e-9)
        fits.append(fit_roots(table, TruncatedPoissonFamily(1), order=order, l1=0.02, settings=settings))
    assert fits[0].num_interactions == fits[1].num_interactions > 5
    for one, two in zip(fits[0].nodes, fits[1].nodes, strict=True):
        assert one.kkt_residual <= 1e-9 >= two.kkt_residual
        assert one.objective == pytest.approx(two.objective, abs=1e-12)


def test_binary_columns_have_the_moments_of_their_family():
    eta = np.concatenate([np.zeros((1, 2)), np.random.default_rng(0).normal(size=(200, 2)) * 12])
    results = []
    for evaluate in (_regression.evaluate_binary, lambda *rest: evaluate_nodes(TruncatedPoissonFamily(1), *rest)):
        results.append((np.empty(201), np.empty((201, 2)), np.empty((201, 2, 2))))
        evaluate(eta, 2, *results[-1])
    for one, two in zip(*results, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("seed", range(5))
def test_ill_conditioned_models_of_groups_are_solved_where_descent_is_not(seed):
    features, gradients, curvature = quadratic(seed, spread=0)
    size = len(gradients)
    ends = np.array([0, 1, 4, 5, 9, size])
    groups = Groups(ends, np.array([0.0, 1e-3, 1e-3, 1e-3, 2e-3]))
    coefficients = np.random.default_rng(seed).normal(size=size)
    gradients = gradients + curvature @ coefficients
    columns = np.arange(size + 1) * 60, np.tile(np.arange(60), size), np.ascontiguousarray(features.T).reshape(-1)

    def furthest(step):
        return float(groups.violations(coefficients + step, gradients + curvature @ step).max())

    step = np.empty(size)
    weights = np.full((60, 1, 1), 1 / 60)
    descend_groups(*columns, *(ends, groups.penalties), gradients, weights, coefficients, 1e-9, 1000, step)
    assert furthest(step) > 1e-8  # negative control
    assert furthest(grouped_minimum(gradients, curvature, groups, coefficients, step, 1e-9)) < 1e-8


def test_groups_of_one_have_the_minimum_of_the_l1_penalty():
    for seed in range(5):
        features, gradients, curvature = quadratic(seed, size=6)
        l1 = np.full(6, 1e-3)
        coefficients = np.random.default_rng(seed).normal(size=6)
        gradients = gradients + curvature @ coefficients
        given = coefficients, np.zeros(6), 1e-12
        step = grouped_minimum(gradients, curvature, Groups(np.arange(7), l1), *given)
        exact = penalised_minimum(gradients, curvature, l1, *given)
        np.testing.assert_allclose(features @ step, features @ exact, atol=1e-8)
        assert ((coefficients + step == 0) == (coefficients + exact == 0)).all()
        assert (coefficients + step == 0).any()


@pytest.mark.parametrize("present", [0.6, 0.02])  # dense and sparse
def test_curvature_matrix_with_several_roots_against_dense_products(present):
    rng = np.random.default_rng(3)
    num = 400
    dense, orders = rng.normal(size=(num, 4)), np.array([0, 1, 1, 2])
    dense[rng.random((num, 4)) >= present] = 0.0
    factors = rng.normal(size=(num, 3, 3))
    hessians = factors @ factors.transpose(0, 2, 1)
    places = [np.flatnonzero(dense[:, f]) for f in range(4)]
    starts = np.concatenate([[0], np.cumsum([len(p) for p in places])])
    values = np.concatenate([dense[p, f] for f, p in enumerate(places)])
    lines = np.concatenate([p * 3 + order for p, order in zip(places, orders, strict=True)])
    found = curvature_matrix(starts, lines, values, hessians)
    expected = np.einsum("nf,ng,nfg->fg", dense, dense, hessians[:, orders[:, None], orders])
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


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


# Upper bounds, and the published stop


BOUND = {"objective": "upper-bound", "stop": "published"}


def counts():
    rng = np.random.default_rng(5)
    hidden = rng.gamma(1.5, 1.0, (150, 1))
    return rng.poisson(hidden * [1.0, 2.0, 0.5, 1.5]).astype(float)


def fit(**options):
    return fit_roots(counts(), order=3, l1=0.02, settings=RootSettings(**options))


def distance(one, other):
    """Largest difference of the coefficients of two fits."""
    values = [{(term.key, term.names): term.coefficient for term in found.terms()} for found in (one, other)]
    return max(abs(values[0].get(name, 0.0) - values[1].get(name, 0.0)) for name in {*values[0], *values[1]})


def test_the_minimum_of_the_bound_is_above_the_optimum_and_nears_it():
    exact, near = fit(tolerance=1e-8), fit(objective="upper-bound", num_subdomains=20)
    far = fit(num_subdomains=2, **BOUND)
    for fitted in (near, far):
        assert (fitted.objective >= exact.objective - 1e-10).all()
    assert near.is_converged and float((near.objective - exact.objective).sum()) < 1e-6
    assert float((far.objective - exact.objective).sum()) > 1e-3
    assert distance(near, exact) < 1e-4 < 1e-2 < distance(far, exact)  # the latter is the control


def test_the_published_stop_ends_before_the_optimum_and_says_so():
    exact, early = fit(tolerance=1e-8), fit(stop="published")
    assert {node.status for node in early.nodes} == {"stopped"} and not early.is_converged
    above = early.objective - exact.objective
    assert (above >= -1e-12).all() and (above < 1e-4 * exact.objective.abs()).all()
    assert float(above.max()) > 1e-9 and float(early.kkt_residual.max()) > 1e-6
    assert torch.equal(early.psi, fit(stop="published", tolerance=1e-12).psi)  # the tolerance plays no part


def test_options_that_do_not_go_together_are_refused_before_any_work():
    with raises("conflict", "objective"):
        fit_roots([[0.5, 1.0]], "exponential", settings=RootSettings(objective="upper-bound"))
    with raises("over-budget", "objective"):
        fit_roots([[2e5], [1.0]], settings=RootSettings(objective="upper-bound"))
    for option in ({"objective": "upper-bounds"}, {"stop": "publishd"}):
        with pytest.raises(ValueError, match=next(iter(option))):
            RootSettings(**option)
    with pytest.raises(ValueError, match="num_subdomains"):
        RootSettings(num_subdomains=0)


# Scans of pairs


def problem(seed):
    """Sparse roots (n, p) by rows and residuals (n,), some of them zero."""
    rng = np.random.default_rng(seed)
    dense = rng.gamma(1.0, 1.0, (60, 25)) * (rng.random((60, 25)) < rng.uniform(0.02, 0.6, 25))
    residuals = rng.normal(0.0, rng.choice([0.01, 1.0], 60)) * (rng.random(60) < 0.8)
    return dense, residuals


def scanned(dense, residuals, skipped, threshold):
    rows = scipy.sparse.csr_matrix(dense)
    sparse = rows.indptr[1:].astype(np.uint32), rows.indices.astype(np.uint32), rows.data
    *sparse, kept = screened_columns(*sparse, residuals, dense.shape[1], skipped, threshold)
    first, second, sums = scan_pairs(*sparse, residuals, max(1, len(kept)), -1, threshold)
    return {(int(kept[a]), int(kept[b])): value for a, b, value in zip(first, second, sums, strict=True)}, kept


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("threshold", [0.0, 0.5, 2.0, 5.0, 1e3])
def test_screened_scans_find_what_all_sums_show(seed, threshold):
    dense, residuals = problem(seed)
    sums = np.einsum("n,nt,nr->tr", residuals, dense, dense)
    wanted = {
        (t, r): sums[t, r]
        for t in range(25)
        for r in range(t + 1, 25)
        if abs(sums[t, r]) > threshold and 7 not in (t, r)
    }
    found, kept = scanned(dense, residuals, 7, threshold)
    assert found.keys() == wanted.keys() and 7 not in kept
    np.testing.assert_allclose([found[pair] for pair in wanted], list(wanted.values()), rtol=1e-12)


def test_control_columns_are_left_out_and_some_of_the_rest_are_needed():
    dense, residuals = problem(1)
    found, kept = scanned(dense, residuals, 7, 5.0)
    assert found and len(kept) < 24
    needed = {t for pair in found for t in pair}
    assert needed <= set(kept.tolist())
    assert scanned(dense, residuals, min(needed), 5.0)[0].keys() != found.keys()
