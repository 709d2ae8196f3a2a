"""The hyper-Dirichlet closed forms against Dirichlet laws with Jacobians, gamma functions and quadrature.

Relative tolerance 1e-10 for identities, 1e-8 for quadrature.
"""

import itertools
import math

import numpy as np
import pytest
import torch
from law_models import flat, table_of, theta_of
from scipy import special, stats

from pyro_hoim.log_linear import parametrization
from pyro_hoim.log_linear.laws import hyper_dirichlet
from pyro_hoim.schema import Domain
from pyro_hoim.structure import InteractionHypergraph
from pyro_hoim.testing import FALSE_ALARM_RATE, exact_table

# Cardinalities, cliques in an order with the running-intersection property, and their separators.
CASES = {
    "one binary": ([2], [(0,)], []),
    "one of two": ([2, 3], [(1,)], []),
    "three levels": ([3], [(0,)], []),
    "saturated pair": ([2, 2], [(0, 1)], []),
    "saturated triple": ([2, 3, 2], [(0, 1, 2)], []),
    "independent": ([2, 3, 2], [(0,), (1,), (2,)], []),
    "chain": ([2, 3, 2], [(0, 1), (1, 2)], [(1,)]),
    "chain and free": ([2, 2, 3, 2], [(0, 1), (1, 2)], [(1,)]),
    "star": ([2, 2, 2, 3], [(0, 3), (1, 3), (2, 3)], [(3,), (3,)]),
    "two triangles": ([2, 2, 3, 2], [(0, 1, 2), (1, 2, 3)], [(1, 2)]),
    "two components": ([2, 3, 2, 2], [(0, 2), (1, 3)], []),
    "one-state variable": ([2, 1, 3], [(0, 1), (1, 2)], [(1,)]),
    "no edges": ([2, 3], [], []),
}


def make(case):
    cards, cliques, separators = CASES[case]
    domain = Domain.from_cardinalities(cards)
    return InteractionHypergraph(domain, [[f"x{i}" for i in c] for c in cliques], closure=True), cliques, separators


def pseudo_table(hypergraph, seed, size):
    """A decomposable law times ``size``, uniform over the variables in no edge."""
    return size * table_of(hypergraph, theta_of(hypergraph, seed=seed))


def margin(table, axes):
    return table.sum(axis=tuple(i for i in range(table.ndim) if i not in axes))


def log_density(hypergraph, counts, size, theta):
    """Conjugate kernel by enumeration minus the closed-form constant."""
    tables = parametrization(hypergraph).to_tables(theta)
    unnormalised = torch.from_numpy(exact_table(hypergraph, tables, normalised=False))
    log_z = torch.logsumexp(unnormalised.flatten(theta.dim() - 1), -1)
    log_c = hyper_dirichlet.log_normaliser(hypergraph, counts, torch.tensor(size, dtype=torch.float64))
    return ((tables * counts).sum(-1) - size * log_z - log_c).numpy()


@pytest.mark.parametrize("case", CASES)
def test_jacobian_equals_the_determinant_of_the_coding_matrix(case):
    hypergraph, _, _ = make(case)
    matrix = parametrization(hypergraph).matrix("free", "corner")
    expected = torch.linalg.slogdet(matrix).logabsdet.item() if matrix.numel() else 0.0
    assert hyper_dirichlet.log_jacobian(hypergraph) == pytest.approx(expected, rel=1e-10, abs=1e-12)


@pytest.mark.parametrize("case", CASES)
def test_constant_equals_gamma_functions_of_cliques_and_separators(case):
    hypergraph, cliques, separators = make(case)
    size = 3.7
    table = pseudo_table(hypergraph, 1, size)

    def log_beta(axes):
        return special.gammaln(margin(table, axes)).sum() - special.gammaln(size)

    covered = {i for c in cliques for i in c}
    uncovered = sum(math.log(n) for i, n in enumerate(table.shape) if i not in covered)
    expected = sum(map(log_beta, cliques)) - sum(map(log_beta, separators)) - size * uncovered
    expected -= hyper_dirichlet.log_jacobian(hypergraph)
    total = torch.tensor(size, dtype=torch.float64)
    value = hyper_dirichlet.log_normaliser(hypergraph, flat(hypergraph, table), total)
    assert value.item() == pytest.approx(expected, rel=1e-10, abs=1e-10)


@pytest.mark.parametrize(
    "case", ["saturated pair", "saturated triple", "chain", "chain and free", "star", "two triangles", "two components"]
)
def test_density_equals_dirichlet_conditionals_with_jacobian(case):
    """Pointwise: product of Dirichlet densities of the conditional tables times the autograd Jacobian."""
    hypergraph, cliques, _ = make(case)
    size = 4.2
    table = pseudo_table(hypergraph, 3, size)
    codings = parametrization(hypergraph)

    def conditionals(theta):
        """Vectors p(residual | separator cell) with their Dirichlet parameters, cliques in order."""
        logits = torch.zeros(table.shape, dtype=torch.float64)
        for edge, part in codings.split(codings.to_tables(theta)).items():
            shape = [n if f"x{i}" in edge else 1 for i, n in enumerate(table.shape)]
            logits = logits + part.reshape(shape)
        probs = torch.softmax(logits.flatten(), 0).reshape(table.shape)
        vectors, seen = [], set[int]()
        for clique in cliques:
            others = [i for i in range(table.ndim) if i not in clique]
            joint = probs.sum(others) if others else probs
            alpha = margin(table, clique)
            given = [k for k, i in enumerate(clique) if i in seen]
            for cell in itertools.product(*(range(joint.shape[k]) for k in given)):
                index = [slice(None)] * joint.dim()
                for k, code in zip(given, cell, strict=True):
                    index[k] = code
                part = joint[tuple(index)].flatten()
                vectors.append((part / part.sum(), alpha[tuple(index)].ravel()))
            seen |= set(clique)
        return vectors

    theta = theta_of(hypergraph, seed=4)
    expected = sum(stats.dirichlet.logpdf(p.numpy() / p.numpy().sum(), alpha) for p, alpha in conditionals(theta))
    jacobian = torch.autograd.functional.jacobian(lambda t: torch.cat([p[:-1] for p, _ in conditionals(t)]), theta)
    expected += torch.linalg.slogdet(jacobian).logabsdet.item()
    counts = flat(hypergraph, table)
    assert log_density(hypergraph, counts, size, theta) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize(
    ("case", "half_width", "step"),
    [
        ("one binary", 40.0, 0.1),
        ("one of two", 60.0, 0.25),
        ("three levels", 60.0, 0.25),
        ("saturated pair", 24.0, 0.4),
    ],
)
def test_density_integrates_to_one(case, half_width, step):
    """Trapezoidal sums, which converge exponentially for analytic integrands that decay."""
    hypergraph, _, _ = make(case)
    table = np.ones([v.cardinality for v in hypergraph.domain]) + np.random.default_rng(5).random(
        [v.cardinality for v in hypergraph.domain]
    )
    size = table.sum()
    axis = torch.arange(-half_width, half_width + step / 2, step, dtype=torch.float64)
    grid = torch.cartesian_prod(*[axis] * hypergraph.num_parameters).reshape(-1, hypergraph.num_parameters)
    density = np.exp(log_density(hypergraph, flat(hypergraph, table), size, grid))
    assert density.sum() * step**hypergraph.num_parameters == pytest.approx(1.0, abs=1e-8)
    # Control: the same sum with another total pseudo-count is far from one.
    off = np.exp(log_density(hypergraph, flat(hypergraph, table), 1.01 * size, grid))
    assert abs(off.sum() * step**hypergraph.num_parameters - 1) > 1e-4


def test_mean_tables():
    hypergraph, _, _ = make("two triangles")
    table = pseudo_table(hypergraph, 6, 2.0)
    counts = flat(hypergraph, table)
    # The mean of theta is the gradient of log C in the pseudo-counts: d log C / d (B^T alpha) at fixed n0.
    moving = counts.clone().requires_grad_()
    hyper_dirichlet.log_normaliser(hypergraph, moving, torch.tensor(2.0, dtype=torch.float64)).backward()
    gradient = moving.grad
    assert gradient is not None
    # Directions inside the space of consistent margins of total zero: differences of two joint tables.
    rng = np.random.default_rng(7)
    tables = hyper_dirichlet.clique_tables(hypergraph, counts, torch.digamma)
    for _ in range(5):
        other = flat(hypergraph, 2.0 * rng.dirichlet(np.ones(table.size)).reshape(table.shape))
        direction = other - counts
        assert float(gradient @ direction) == pytest.approx(float(tables @ direction), rel=1e-10, abs=1e-10)


def beta_p_value(values, a, b):
    """Kolmogorov-Smirnov on values of Beta(a, b), of which those below the range of floats are known by order alone."""
    law, least = stats.beta(a, b), 1e-300
    ranks, is_below = law.cdf(values), values < least
    ranks[is_below] = law.cdf(least) * np.random.default_rng(9).random(int(is_below.sum()))
    return float(stats.kstest(ranks, "uniform").pvalue)


@pytest.mark.parametrize("case", ["saturated pair", "chain", "two triangles"])
def test_samples_follow_the_beta_marginals(case):
    """Every clique cell is Beta(alpha, n0 - alpha), Kolmogorov-Smirnov at the stated rate; a wrong n0 must fail."""
    hypergraph, cliques, _ = make(case)
    size = 30.0  # large enough that no probability rounds to one, which would be a point mass
    table = pseudo_table(hypergraph, 8, size)
    torch.manual_seed(20)
    draws = hyper_dirichlet.sample_tables(hypergraph, flat(hypergraph, table), (20_000,))
    assert draws.shape == (20_000, hypergraph.num_terms)
    probs = np.exp(exact_table(hypergraph, draws))
    p_values, controls = [], []
    for clique in cliques:
        alpha = margin(table, clique)
        axes = tuple(i + 1 for i in range(table.ndim) if i not in clique)
        values = probs.sum(axis=axes).reshape(len(probs), -1)
        for value, a in zip(values.T, alpha.ravel(), strict=True):
            p_values.append(beta_p_value(value, a, size - a))
            controls.append(beta_p_value(value, 1.2 * a, 1.2 * (size - a)))
    assert min(p_values) > FALSE_ALARM_RATE / len(p_values)
    assert min(controls) < FALSE_ALARM_RATE / len(p_values)


def test_samples_of_tiny_pseudo_counts_are_finite():
    hypergraph, _, _ = make("chain")
    counts = flat(hypergraph, pseudo_table(hypergraph, 9, 1e-3))
    torch.manual_seed(1)
    draws = hyper_dirichlet.sample_tables(hypergraph, counts, (200,))
    assert bool(torch.isfinite(draws).all())
    assert float(draws.min()) < -1000  # the naive log of a gamma draw would be minus infinity
