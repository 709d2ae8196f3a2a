"""The ridge by interaction, its strengths by the evidence, and tables carried over to another collection."""

import itertools
import json
import math
import pickle
from dataclasses import replace

import numpy as np
import pytest
import scipy.linalg
import scipy.optimize
import torch

from pyro_hoim import Domain, InputError, InteractionHypergraph, Observations, Variable
from pyro_hoim.log_linear import (
    L2,
    Enumeration,
    EvidenceRounds,
    ExactTrainer,
    InteractionRidge,
    PseudoTrainer,
    Stopping,
    fit,
    parametrization,
    updated_ridge,
)
from pyro_hoim.log_linear.fitting.penalties import ProximalPenalty, SmoothPenalty
from pyro_hoim.log_linear.training import table_trainer
from pyro_hoim.log_linear.training.ridge import num_effective, ridge_preconditioner
from pyro_hoim.log_linear.training.table_trainer import restructured_tables
from pyro_hoim.testing import assert_close, raises, random_tables

DOMAIN = Domain.from_cardinalities({"a": 2, "b": 3, "c": 2})
RIDGE = InteractionRidge(1.0, by_order={1: 0.0, 2: 3.0}, by_edge={("b", "a"): 5.0, ("c",): 0.5})


def order(k):
    return InteractionHypergraph.from_order(DOMAIN, k)


def test_the_most_specific_strength_holds():
    strengths = {"a": 0.0, "b": 0.0, "c": 0.5, "ab": 5.0, "ac": 3.0, "bc": 3.0, "abc": 1.0}
    assert {name: RIDGE.strength(tuple(name)) for name in strengths} == strengths
    assert RIDGE.strength(("b", "a")) == RIDGE.strength(("a", "b"))
    assert not RIDGE.is_zero
    assert InteractionRidge().is_zero
    assert InteractionRidge(by_order={3: 0}).is_zero


def test_curvature_and_prox():
    graph = order(3)
    theta = np.random.default_rng(1).standard_normal(graph.num_parameters)
    assert_close(RIDGE.hessian_diagonal(theta, graph) * theta, RIDGE.gradient(theta, graph), relative=1e-14)
    near = RIDGE.prox(theta, 0.3, graph)
    assert_close(near - theta + 0.3 * RIDGE.gradient(near, graph), 0 * theta, relative=0, absolute=1e-13)


def test_a_fit_takes_it_as_any_ridge():
    data = Observations.from_table(DOMAIN, np.random.default_rng(2).integers(1, 30, (2, 3, 2)))
    graph = order(2)
    assert isinstance(RIDGE, SmoothPenalty)
    assert isinstance(RIDGE, ProximalPenalty)
    plain, same = fit(graph, data, penalty=L2(4.0)), fit(graph, data, penalty=InteractionRidge(4.0))
    assert_close(same.theta, plain.theta, relative=1e-9, absolute=1e-11)
    # The optimality condition: N (model margins - observed margins) = - strengths * tables, in every table.
    result = fit(graph, data, penalty=RIDGE)
    eta = Enumeration().expectations(result.model)
    difference = data.total_count * eta - data.marginal_counts(graph.edges)
    gradient = parametrization(graph).free_statistics(difference)
    expected = -RIDGE.gradient(result.theta.numpy(), graph)
    assert_close(gradient, expected, relative=1e-6, absolute=1e-6)


@pytest.mark.parametrize("bad", [-1.0, float("nan"), float("inf"), True, "1"])
def test_wrong_strengths_are_refused(bad):
    options = {"default": {"default": bad}, "by_order[2]": {"by_order": {2: bad}}, "smoothness": {"smoothness": bad}}
    for argument, option in (options | {"by_edge[('a',)]": {"by_edge": {("a",): bad}}}).items():
        with raises("out-of-range", argument):
            InteractionRidge(**option)


@pytest.mark.parametrize(
    ("call", "code", "argument"),
    [
        (lambda: InteractionRidge(by_order={0: 1.0}), "out-of-range", "by_order"),
        (lambda: InteractionRidge(by_order={"2": 1.0}), "wrong-type", "by_order"),
        (lambda: InteractionRidge(by_edge={"ab": 1.0}), "wrong-type", "by_edge"),
        (lambda: InteractionRidge(by_edge={(): 1.0}), "invalid-value", "by_edge"),
        (lambda: InteractionRidge(by_edge={("a", "a"): 1.0}), "invalid-value", "by_edge"),
        (lambda: InteractionRidge(by_edge={("a", "b"): 1.0, ("b", "a"): 2.0}), "invalid-value", "by_edge"),
        (lambda: InteractionRidge(1.0, smoothness=1.0), "out-of-range", "smoothness"),
        (lambda: InteractionRidge(1.0, smoothness=1.5), "out-of-range", "smoothness"),
        (lambda: InteractionRidge(1.0, smooth_singles=1), "wrong-type", "smooth_singles"),
        (lambda: RIDGE.value(np.zeros(3), order(2)), "wrong-shape", "theta"),
        (lambda: InteractionRidge.from_json({"default": 1.0}), "invalid-value", "ridge"),
    ],
)
def test_wrong_options_are_refused(call, code, argument):
    with raises(code, argument):
        call()


def test_tables_carried_over_keep_what_is_common():
    small, large = order(1).add_edges([("a", "c")]), order(3)
    tables = torch.from_numpy(random_tables(small, np.random.default_rng(3), batch_shape=(2,)))
    carried = restructured_tables(tables, small, large)
    for edge, where in large.term_slices.items():
        expected = tables[:, small.term_slices[edge]] if edge in small.term_slices else 0 * carried[:, where]
        assert torch.equal(carried[:, where], expected)
    assert torch.equal(restructured_tables(carried, large, small), tables)
    assert torch.equal(restructured_tables(tables, small, small), tables)
    with raises("other-domain", "hypergraph"):
        restructured_tables(tables, small, InteractionHypergraph(Domain.from_cardinalities({"a": 2}), [("a",)]))
    with raises("wrong-shape", "tables"):
        restructured_tables(tables[:, :-1], small, large)


# Ordinal smoothness

ORDINAL = Domain(
    [
        Variable("a", ("u", "v", "w"), "nominal"),
        Variable("b", ("0", "1", "2", "3"), "ordinal"),
        Variable("c", ("0", "1"), "ordinal"),
        Variable("d", ("0", "1", "2", "3", "4"), "ordinal"),
    ]
)
SMOOTH = InteractionRidge(1.5, by_order={1: 0.3}, by_edge={("d", "b"): 4.0}, smoothness=0.9)


def ordinal(k):
    return InteractionHypergraph.from_order(ORDINAL, k)


def dense_precision(ridge, graph):
    """All strengths and Kronecker products written out, from the inverse of the covariance itself."""
    blocks = []
    for edge in graph.edges:
        block = np.eye(1)
        for name in edge:
            n = ORDINAL[name].cardinality
            axis = np.eye(n)
            if name in "bd" and (len(edge) > 1 or ridge.smooth_singles):
                axis = np.linalg.inv(scipy.linalg.toeplitz(ridge.smoothness ** np.arange(n)))
            block = np.kron(block, axis)
        blocks.append(ridge.strength(edge) * block)
    return scipy.linalg.block_diag(*blocks)


@pytest.mark.parametrize("singles", [False, True])
@pytest.mark.parametrize("smoothness", [0.0, 0.3, 0.9, 0.99])
def test_smooth_value_and_gradient_equal_those_of_the_dense_precision(smoothness, singles):
    graph = ordinal(4)
    ridge = replace(SMOOTH, smoothness=smoothness, smooth_singles=singles)
    dense = dense_precision(ridge, graph)
    raw = np.random.default_rng(0).standard_normal(graph.num_terms)
    before = raw.copy()
    assert_close(ridge.gradient(raw, graph), dense @ raw, relative=1e-10, absolute=1e-9)
    assert np.array_equal(raw, before)
    assert_close(ridge.value(raw, graph), 0.5 * raw @ dense @ raw, relative=1e-12)
    tables = random_tables(graph, np.random.default_rng(1))
    theta = parametrization(graph).convert(torch.from_numpy(tables), "balanced", "free").numpy()
    basis = parametrization(graph).matrix("free", "balanced").numpy()
    assert_close(ridge.value(theta, graph), ridge.value(tables, graph), relative=1e-11)
    assert_close(ridge.gradient(theta, graph), basis.T @ dense @ tables, relative=1e-9, absolute=1e-8)
    # Negative control: without smoothness, or with the other choice for single variables, it is another penalty.
    others = [replace(ridge, smoothness=0.0), replace(ridge, smooth_singles=not singles)]
    for other in others if smoothness else [replace(ridge, smoothness=0.3)]:
        assert np.abs(other.gradient(tables, graph) - ridge.gradient(tables, graph)).max() > 1e-2


def test_smoothness_leaves_nominal_short_and_single_axes_alone():
    graph = InteractionHypergraph(ORDINAL, [("b",), ("d",), ("a", "c")], hierarchical=False)
    theta = np.random.default_rng(2).standard_normal(graph.num_terms)
    plain = replace(SMOOTH, smoothness=0.0)
    assert SMOOTH.is_diagonal(graph)
    assert not replace(SMOOTH, smooth_singles=True).is_diagonal(graph)
    assert np.array_equal(SMOOTH.gradient(theta, graph), plain.gradient(theta, graph))
    theta = theta[: graph.num_parameters]
    assert np.array_equal(SMOOTH.prox(theta, 0.3, graph), plain.prox(theta, 0.3, graph))
    assert np.array_equal(SMOOTH.terms(ordinal(3)), plain.terms(ordinal(3)))
    assert np.array_equal(SMOOTH.parameters(ordinal(3)), plain.parameters(ordinal(3)))


def test_what_a_smooth_ridge_does_not_have_is_refused_and_what_it_hands_out_copied():
    graph = ordinal(2)
    with pytest.raises(InputError, match="proximal map"):
        SMOOTH.prox(np.zeros(graph.num_parameters), 1.0, graph)
    with pytest.raises(InputError, match="fit with method='lbfgs'"):
        SMOOTH.hessian_diagonal(np.zeros(graph.num_parameters), graph)
    data = Observations.from_table(ORDINAL, np.random.default_rng(6).integers(1, 9, (3, 4, 2, 5)))
    with pytest.raises(InputError, match="fit with method='lbfgs'"):
        fit(graph, data, penalty=SMOOTH, method="newton")
    assert fit(graph, data, penalty=SMOOTH).method == "lbfgs"
    assert fit(graph, data, penalty=replace(SMOOTH, smoothness=0.0)).method == "newton"
    for found in (SMOOTH.terms(graph), SMOOTH.parameters(graph)):
        found += 1.0
    assert SMOOTH.terms(graph)[0] == SMOOTH.parameters(graph)[0] == 0.3


def test_a_fit_and_a_trainer_agree_under_smoothness():
    data = Observations.from_table(ORDINAL, np.random.default_rng(3).poisson(0.7, (3, 4, 2, 5)))
    graph = ordinal(2)
    result = fit(graph, data, penalty=SMOOTH, method="lbfgs", stopping=Stopping(tolerance=1e-7))
    trainer = ExactTrainer(data, graph, penalty=SMOOTH, stopping=Stopping(tolerance=1e-10))
    assert trainer.train().status == "converged"
    tables = parametrization(graph).to_tables(result.theta)
    # A gradient of 1e-7 per row over the smallest curvature, 0.3 / N, of N = 87 rows.
    assert_close(trainer.tables, tables, relative=0, absolute=3e-5)
    # The optimality condition, with the dense precision.
    difference = data.total_count * trainer.margins(graph.edges).probs - data.marginal_counts(graph.edges)
    slope = difference.numpy() + dense_precision(SMOOTH, graph) @ trainer.tables.numpy()
    free = parametrization(graph).free_statistics(torch.from_numpy(slope)).numpy()
    assert np.abs(free).max() < 1e-6 * data.total_count
    plain = ExactTrainer(data, graph, penalty=replace(SMOOTH, smoothness=0.0), stopping=Stopping(tolerance=1e-10))
    plain.train()
    assert float((plain.tables - trainer.tables).abs().max()) > 0.05


@pytest.mark.parametrize("ridge", [RIDGE, replace(SMOOTH, smooth_singles=True)], ids=["plain", "smooth"])
def test_round_trips(ridge):
    assert InteractionRidge.from_json(json.loads(json.dumps(ridge.to_json()))) == ridge
    graph = ordinal(2)
    ridge.value(np.zeros(graph.num_terms), graph)
    copied = pickle.loads(pickle.dumps(ridge))
    assert copied == ridge
    assert hash(copied) == hash(ridge)
    assert ridge != SMOOTH
    assert replace(SMOOTH, smoothness=0.5) != SMOOTH
    assert hash(InteractionRidge(by_edge={("a", "b"): 1.0})) == hash(InteractionRidge(by_edge={("b", "a"): 1.0}))
    old = {"default": 1.0, "by_order": [], "by_edge": []}
    assert InteractionRidge.from_json(old) == InteractionRidge(1.0) != InteractionRidge(2.0)


def test_preconditioner_is_the_inverse_within_balanced_tables(monkeypatch):
    graph, num_rows = ordinal(3), 50.0
    multiply = ridge_preconditioner(SMOOTH, graph, num_rows)
    curvature = np.mean([1 / (where.stop - where.start) for where in graph.term_slices.values()])
    basis = parametrization(graph).matrix("free", "balanced").numpy()
    whole = curvature * np.eye(graph.num_terms) + dense_precision(SMOOTH, graph) / num_rows
    tables = random_tables(graph, np.random.default_rng(4))
    expected = basis @ np.linalg.solve(basis.T @ whole @ basis, basis.T @ tables)
    assert_close(multiply(tables), expected, relative=1e-8, absolute=1e-8)
    assert ridge_preconditioner(InteractionRidge(2.0), graph, num_rows) is None
    # What it is for: strengths that span many orders of magnitude.
    data = Observations.from_table(ORDINAL, np.random.default_rng(5).poisson(0.7, (3, 4, 2, 5)))
    ridge = replace(SMOOTH, by_edge={("a", "b"): 1e4, ("c", "d"): 1e3, ("a", "d"): 0.05})
    trainers = [ExactTrainer(data, ordinal(2), penalty=ridge, stopping=Stopping(tolerance=1e-8)) for _ in range(2)]
    steps = [trainers[0].train().num_iterations]
    monkeypatch.setattr(table_trainer, "ridge_preconditioner", lambda *_: None)
    steps.append(trainers[1].train().num_iterations)
    assert_close(trainers[0].tables, trainers[1].tables, relative=1e-4, absolute=1e-5)
    assert steps[0] < 0.6 * steps[1]


# Strengths by the evidence


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


def test_bounds_hold_and_wrong_arguments_are_refused():
    assert step(InteractionRidge(0.0)).strength(("a", "b")) == 0.05
    assert step(InteractionRidge(1e9), 0.01).strength(("a", "b")) == 1e6
    names = domain(a=2, b=3)
    graph = InteractionHypergraph.saturated(names)
    rows = Observations.from_table(names, np.ones((2, 3)))
    found = updated_ridge(
        InteractionRidge(1.0), graph, np.zeros(graph.num_terms), frequencies(rows, graph), 6, damping=1.0
    )
    assert found.strength(("a", "b")) == 1e6
    good = (InteractionRidge(1.0), graph, np.zeros(graph.num_terms), np.full(graph.num_terms, 0.1), 10.0)
    cases = [(0, 1.0, "wrong-type", "ridge"), (2, np.zeros(3), "wrong-shape", "tables")]
    cases += [(3, np.zeros(3), "wrong-shape", "margins_data"), (4, 0, "out-of-range", "num_rows")]
    for place, bad, code, argument in cases:
        with raises(code, argument):
            updated_ridge(*good[:place], bad, *good[place + 1 :])
    for damping in (0, 1.5, True, "1"):
        with raises("out-of-range", "damping"):
            updated_ridge(*good, damping=damping)


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
