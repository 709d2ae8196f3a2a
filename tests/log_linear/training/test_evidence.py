"""Strengths by the evidence: against its direct maximisation, on data without structure, and step by step."""

import itertools
import math

import numpy as np
import pytest
import scipy.linalg
import scipy.optimize
import torch

from pyro_hoim.data import Observations
from pyro_hoim.log_linear import (
    EvidenceRounds,
    ExactTrainer,
    InteractionRidge,
    PseudoTrainer,
    Stopping,
    parametrization,
    updated_ridge,
)
from pyro_hoim.log_linear.training.ridge import num_effective
from pyro_hoim.schema import Domain, Variable
from pyro_hoim.structure import InteractionHypergraph
from pyro_hoim.testing import assert_close, raises


def domain(kind="nominal", **cardinalities):
    return Domain([Variable(name, tuple(map(str, range(n))), kind) for name, n in cardinalities.items()])


def precision(n, r):
    """Inverse of the covariance itself."""
    return np.linalg.inv(scipy.linalg.toeplitz(r ** np.arange(n)))


def frequencies(rows, graph):
    return (rows.marginal_counts(graph.edges) / rows.total_count).numpy()


class TwoVariables:
    """The saturated model of two ordinal variables, enumerated: its law, and the Laplace approximation of evidence."""

    shape = (4, 5)

    def __init__(self, correlation):
        self.graph = InteractionHypergraph.saturated(domain("ordinal", a=4, b=5))
        contrasts = [scipy.linalg.helmert(n).T for n in self.shape]
        ones = [np.ones((n, 1)) / math.sqrt(n) for n in self.shape]
        scale = [math.sqrt(n) for n in reversed(self.shape)]
        singles = [np.kron(contrasts[0], ones[1]) * scale[0], np.kron(ones[0], contrasts[1]) * scale[1]]
        self.design = np.concatenate([*singles, np.kron(*contrasts)], 1)
        self.pair = slice(7, 19)
        axes = [c.T @ precision(n, correlation) @ c for n, c in zip(self.shape, contrasts, strict=True)]
        self.precision = np.kron(*axes)

    def prior(self, strength):
        result = np.eye(19)
        result[self.pair, self.pair] = strength * self.precision
        return result

    def law(self, theta):
        law = np.exp(self.design @ theta)
        return law / law.sum()

    def rows(self, theta, num_rows):
        """Expected counts, rounded."""
        counts = np.round(num_rows * self.law(theta)).reshape(self.shape)
        return Observations.from_table(self.graph.domain, counts)

    def log_evidence(self, counts, strength):
        """By Newton's method on all 19 coordinates, and the curvature at the optimum."""
        theta, prior, total = np.zeros(19), self.prior(strength), counts.sum()
        for _ in range(100):
            p = self.law(theta)
            mean = self.design.T @ p
            hessian = total * (self.design.T @ (p[:, None] * self.design) - np.outer(mean, mean)) + prior
            gradient = self.design.T @ (total * p - counts) + prior @ theta
            theta = theta - np.linalg.solve(hessian, gradient)
        value = counts @ np.log(self.law(theta)) - 0.5 * theta @ prior @ theta
        return value + 0.5 * (np.linalg.slogdet(prior)[1] - np.linalg.slogdet(hessian)[1])

    def best_strength(self, counts):
        found = scipy.optimize.minimize_scalar(
            lambda u: -self.log_evidence(counts, math.exp(u)),
            bounds=(-3, 15),
            method="bounded",
            options={"xatol": 1e-6},
        )
        return math.exp(found.x)


def fixed_point(rows, graph, ridge, num_steps=30, is_certain=False):
    """Whole steps; ``is_certain`` counts all parameters as if the rows determined them."""
    margins = frequencies(rows, graph)
    for _ in range(num_steps):
        trainer = ExactTrainer(rows, graph, penalty=ridge, stopping=Stopping(tolerance=1e-9, max_iterations=5000))
        trainer.train()
        found = updated_ridge(ridge, graph, trainer.tables.numpy(), margins, rows.total_count, damping=1.0)
        effective = num_effective(ridge, graph, margins, rows.total_count)["a", "b"]
        ridge = found
        if is_certain:
            strength = ridge.strength(("a", "b")) * 12 / effective
            ridge = InteractionRidge(1.0, {1: 1.0, 2: strength}, smoothness=ridge.smoothness)
    return ridge.strength(("a", "b")), effective


@pytest.mark.parametrize("correlation", [0.0, 0.8])
@pytest.mark.parametrize(
    ("num_rows", "strength", "accuracy"), [(1e6, 400.0, 1e-3), (4e5, 400.0, 1e-3), (2e4, 20.0, 5e-3)]
)
def test_fixed_point_is_the_maximum_of_the_laplace_evidence(correlation, num_rows, strength, accuracy):
    """Within 0.1 % where the law is nearly flat, as the diagonal curvature assumes, 0.5 % where it is less so."""
    case = TwoVariables(correlation)
    draw = np.random.default_rng(1).standard_normal(12)
    draw *= math.sqrt(12 / (draw @ draw))  # of the length that the prior expects
    theta = np.zeros(19)
    theta[case.pair] = np.linalg.solve(np.linalg.cholesky(case.precision * strength).T, draw)
    rows = case.rows(theta, num_rows)
    start = InteractionRidge(1.0, by_order={1: 1.0}, smoothness=correlation)
    found, effective = fixed_point(rows, case.graph, start)
    best = case.best_strength(rows.table().numpy().reshape(-1))
    assert abs(found / best - 1) < accuracy
    assert strength < best < 2 * strength  # rows without sampling noise look weaker than they are, by 1 / curvature
    assert 6 < effective < 12
    # Negative control: as if nothing were uncertain.
    certain, _ = fixed_point(rows, case.graph, start, 15, is_certain=True)
    assert abs(certain / best - 1) > accuracy


@pytest.mark.fixed_seed  # the strengths are those of one table
def test_useless_interactions_are_priced_out_and_a_real_one_stays():
    names = domain(a=3, b=4, c=3, d=2)
    rng = np.random.default_rng(3)
    codes = rng.integers(0, [3, 4, 3, 2], (400, 4))
    bound = rng.random(400) < 0.6
    codes[bound, 1] = codes[bound, 0]
    rows = Observations(names, torch.from_numpy(codes))
    graph = InteractionHypergraph.from_order(names, 3)
    trainer = ExactTrainer(
        rows, graph, penalty=InteractionRidge(1.0, by_order={1: 0.05}), evidence=EvidenceRounds(num_rounds=12)
    )
    trainer.train()
    strengths = {edge: trainer.penalty.strength(edge) for edge in graph.edges if len(edge) > 1}
    real = strengths.pop(("a", "b"))
    assert real < 5
    assert min(strengths.values()) > 5 * real
    assert sorted(strengths.values())[len(strengths) // 2] > 1000 * real
    effective = trainer.num_effective()
    assert effective["a", "b"] > 5
    assert sum(effective[edge] for edge in strengths) < 0.2 * sum(
        math.prod(names[n].cardinality - 1 for n in edge) for edge in strengths
    )


@pytest.mark.parametrize("kind", ["nominal", "ordinal"])
def test_effective_parameters_equal_the_formula_written_out(kind):
    names = domain(kind, a=2, b=3, c=4)
    graph = InteractionHypergraph.saturated(names)
    rows = Observations.from_table(names, np.random.default_rng(4).integers(0, 5, (2, 3, 4)))
    ridge = InteractionRidge(3.0, by_order={2: 0.7}, smoothness=0.9)
    found = num_effective(ridge, graph, frequencies(rows, graph), rows.total_count)
    assert list(found) == list(graph.edges)
    for edge in graph.edges:
        factors = []
        for name in edge:
            n = names[name].cardinality
            is_smooth = kind == "ordinal" and n > 2 and len(edge) > 1
            contrasts = scipy.linalg.helmert(n)
            factors.append(contrasts @ (precision(n, 0.9) if is_smooth else np.eye(n)) @ contrasts.T)
        whole = factors[0]
        for factor in factors[1:]:
            whole = np.kron(whole, factor)
        counts = rows.marginal_counts([edge]).numpy()
        expected = sum(
            h / (h + ridge.strength(edge) * k) for h, k in itertools.product(counts, np.linalg.eigvalsh(whole))
        )
        assert_close(found[edge], expected / len(counts), relative=1e-10)


def step(ridge, damping=0.5):
    names = domain(a=2, b=3, c=1)
    graph = InteractionHypergraph.saturated(names)
    rows = Observations.from_table(names, np.arange(6).reshape(2, 3, 1) + 2)
    tables = np.zeros(graph.num_terms)
    tables[graph.term_slices["a", "b"]] = [0.5, -0.2, -0.3, -0.5, 0.2, 0.3]
    return updated_ridge(ridge, graph, tables, frequencies(rows, graph), rows.total_count, damping=damping)


def test_a_damped_step_is_the_geometric_mean_and_only_pairs_move():
    ridge = InteractionRidge(4.0, by_order={1: 0.3}, by_edge={("b", "a"): 2.0, ("x", "y"): 9.0})
    whole, half = step(ridge, 1.0), step(ridge, 0.5)
    counts = np.arange(6) + 2.0
    expected = 2 / 6 * (counts / (counts + 2.0)).sum() / 0.76
    assert_close(whole.strength(("a", "b")), expected, relative=1e-12)
    assert_close(half.strength(("a", "b")), math.sqrt(2.0 * expected), relative=1e-12)
    assert whole.strength(("a",)) == 0.3
    assert whole.strength(("x", "y")) == 9.0
    assert whole.strength(("a", "c")) == 4.0  # no free parameters


def test_bounds_hold_and_tables_of_zero_go_to_the_ceiling():
    assert step(InteractionRidge(0.0)).strength(("a", "b")) == 0.05
    assert step(InteractionRidge(1e9), 0.01).strength(("a", "b")) == 1e6
    names = domain(a=2, b=3)
    graph = InteractionHypergraph.saturated(names)
    rows = Observations.from_table(names, np.ones((2, 3)))
    found = updated_ridge(
        InteractionRidge(1.0), graph, np.zeros(graph.num_terms), frequencies(rows, graph), 6, damping=1.0
    )
    assert found.strength(("a", "b")) == 1e6


def test_pseudo_likelihood_counts_a_row_once_for_every_variable():
    """With weak interactions the right strength is the number of variables times that of the likelihood."""
    names = domain(a=3, b=4, c=3)
    rng = np.random.default_rng(6)
    graph = InteractionHypergraph.from_order(names, 2)
    tables = torch.from_numpy(0.15 * rng.standard_normal(graph.num_terms))
    theta = parametrization(graph).free_statistics(tables)
    table = parametrization(graph).to_tables(theta)
    log_law = sum(
        table[where].reshape([n if name in edge else 1 for name, n in zip("abc", (3, 4, 3), strict=True)])
        for edge, where in graph.term_slices.items()
    )
    rows = Observations.from_table(
        names, np.round(5000 * torch.softmax(log_law.reshape(-1), 0).numpy().reshape(3, 4, 3))
    )
    options = {"penalty": InteractionRidge(1.0, by_order={1: 0.05}), "evidence": EvidenceRounds(40)}
    exact, pseudo = ExactTrainer(rows, graph, **options), PseudoTrainer(rows, graph, **options)
    exact.train()
    pseudo.train()
    for edge in graph.edges[3:]:
        assert abs(pseudo.penalty.strength(edge) / (2 * exact.penalty.strength(edge)) - 1) < 0.1
    difference = float((pseudo.tables - exact.tables).abs().max())
    # Negative control: the strengths of the likelihood itself leave the tables further away.
    plain = PseudoTrainer(rows, graph, penalty=exact.penalty)
    plain.train()
    assert difference < 0.5 * float((plain.tables - exact.tables).abs().max())


def test_wrong_arguments():
    names = domain(a=2, b=3)
    graph = InteractionHypergraph.saturated(names)
    good = (InteractionRidge(1.0), graph, np.zeros(graph.num_terms), np.full(graph.num_terms, 0.1), 10.0)
    cases = [(0, 1.0, "wrong-type", "ridge"), (2, np.zeros(3), "wrong-shape", "tables")]
    cases += [(3, np.zeros(3), "wrong-shape", "margins_data"), (4, 0, "out-of-range", "num_rows")]
    for place, bad, code, argument in cases:
        with raises(code, argument):
            updated_ridge(*good[:place], bad, *good[place + 1 :])
    for damping in (0, 1.5, True, "1"):
        with raises("out-of-range", "damping"):
            updated_ridge(*good, damping=damping)
