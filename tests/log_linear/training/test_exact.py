"""Descents by exact gradients and by pseudo-likelihood: gradients, optima against other fits, laws of the contract."""

import functools
import itertools
import math
import types

import numpy as np
import pytest
import scipy.optimize
import torch

from pyro_hoim import Domain, InteractionHypergraph, IntractableError, Observations, load_table
from pyro_hoim.compute import lanes
from pyro_hoim.datasets import load_breast_cancer, load_mushroom
from pyro_hoim.log_linear import (
    L1,
    L2,
    AnnealedImportance,
    Enumeration,
    EvidenceRounds,
    ExactTrainer,
    InteractionRidge,
    LogLinearEnergy,
    PseudoTrainer,
    Refined,
    SampledTrainer,
    ScoreContext,
    Stopping,
    VariableElimination,
    fit,
    parametrization,
    updated_ridge,
)
from pyro_hoim.log_linear.fitting import _pseudo_kernels
from pyro_hoim.log_linear.fitting.objectives import ConditionalLayout, PseudoRows
from pyro_hoim.log_linear.fitting.solvers import Point, gradient_descent, lbfgs
from pyro_hoim.log_linear.training.exact import BackendEngine, DenseEngine, choose_engine, sweep_plan
from pyro_hoim.testing import (
    assert_close,
    enumerate_codes,
    exact_log_partition,
    exact_statistics,
    exact_table,
    raises,
    random_tables,
    standard_hypergraphs,
)

from support.trainers import check_trainer

CARDS = {"a": 2, "b": 3, "c": 4, "d": 2}
DOMAIN = Domain.from_cardinalities(CARDS)
WEAK = InteractionHypergraph(DOMAIN, [("a",), ("b",), ("a", "b", "c"), ("c", "d")], hierarchical=False)


def order(k, domain=DOMAIN):
    return InteractionHypergraph.from_order(domain, k)


def rows(seed=0, mean=8.0, domain=DOMAIN, low=1):
    counts = low + np.random.default_rng(seed).poisson(mean, domain.cardinalities)
    return Observations.from_table(domain, counts)


KINDS = pytest.mark.parametrize("kind", [ExactTrainer, PseudoTrainer, functools.partial(PseudoTrainer, masked=True)])


def tight(data, hypergraph, max_iterations=5000, kind=ExactTrainer, **options):
    trainer = kind(data, hypergraph, stopping=Stopping(1e-9, max_iterations), **options)
    report = trainer.train()
    assert report.status == "converged"
    assert report.gradient_norm <= 1e-9
    return trainer


# The dense sweep


def many_hypergraphs():
    rng = np.random.default_rng(7)
    cases = dict(standard_hypergraphs())
    for number in range(12):
        d = int(rng.integers(3, 8))
        domain = Domain.from_cardinalities([int(n) for n in rng.integers(1, 5, d)])
        edges = {
            tuple(domain.names[i] for i in sorted(rng.choice(d, int(rng.integers(1, min(d, 5) + 1)), replace=False)))
            for _ in range(int(rng.integers(1, 15)))
        }
        cases[f"random {number}"] = InteractionHypergraph(domain, edges, hierarchical=False)
    return cases


@pytest.mark.parametrize("scale", [0.0, 1.0, 30.0])
def test_the_sweep_equals_enumeration(scale):
    for name, graph in many_hypergraphs().items():
        for balanced in (True, False):
            tables = random_tables(graph, np.random.default_rng(1), scale=scale, balanced=balanced)
            log_z, eta = DenseEngine(graph).evaluate(tables)
            assert_close(log_z, exact_log_partition(graph, tables), relative=1e-12, what=name)
            assert_close(eta, exact_statistics(graph, exact_table(graph, tables)), relative=1e-11, what=name)


def test_the_sweep_leaves_out_states_of_minus_infinity():
    graph = order(2)
    tables = random_tables(graph, np.random.default_rng(2))
    where = graph.term_slices["b", "c"]
    tables[where.start + 5] = -math.inf
    log_z, eta = DenseEngine(graph).evaluate(tables)
    assert_close(log_z, exact_log_partition(graph, tables), relative=1e-12)
    assert eta[where.start + 5] == 0.0
    tables[graph.term_slices["a",]] = -math.inf
    assert DenseEngine(graph).evaluate(tables)[0] == -math.inf
    assert math.isnan(DenseEngine(graph).evaluate(np.full(graph.num_terms, math.nan))[0])


def test_the_sweep_passes_over_few_tables_of_full_size():
    domain = Domain.from_cardinalities([2, 6, 4, 10, 2, 9, 2, 2, 2, 12])
    plan = sweep_plan(order(3, domain))
    assert plan.root_cells == domain.num_states
    assert plan.step_cells < 8 * domain.num_states  # 175 interactions
    apart = InteractionHypergraph(domain, [("x0", "x1"), ("x3",)], closure=True)
    assert sweep_plan(apart).root_cells == 12 + 10


@pytest.mark.parametrize("engine", [DenseEngine, lambda graph: BackendEngine(graph, VariableElimination())])
def test_margins_of_any_sets_equal_enumeration(engine):
    for name, graph in many_hypergraphs().items():
        d = len(graph.domain)
        tables = random_tables(graph, np.random.default_rng(3))
        law = np.exp(exact_table(graph, tables))
        edges = [e for k in range(min(d, 4) + 1) for e in itertools.combinations(range(d), k)] + [tuple(range(d))]
        found = engine(graph).margins(tables, edges)
        for edge, margin in zip(edges, found, strict=True):
            expected = law.sum(tuple(i for i in range(d) if i not in edge))
            assert margin.shape == expected.shape
            assert_close(margin, expected, relative=1e-11, what=f"{name} {edge}")


# Optima


@pytest.mark.parametrize(("kind", "objective"), [(ExactTrainer, "likelihood"), (PseudoTrainer, "pseudo-likelihood")])
@pytest.mark.parametrize("k", [1, 2, 3])
def test_same_optimum_as_a_fit_with_ridge(k, kind, objective):
    data = load_table("czech_autoworkers")
    graph = order(k, data.domain)
    expected = fit(graph, data, objective=objective, penalty=L2(2.0), stopping=Stopping(tolerance=1e-8))
    trainer = tight(data, graph, kind=kind, penalty=InteractionRidge(2.0))
    theta = parametrization(graph).convert(trainer.tables, "balanced", "free")
    assert_close(theta, expected.theta, relative=1e-6, absolute=1e-6)
    assert torch.equal(tight(data, graph, kind=kind, penalty=L2(2.0)).tables, trainer.tables)
    # Negative controls: half the strength is another optimum, and so is that of the other objective.
    other = tight(data, graph, kind=kind, penalty=InteractionRidge(1.0))
    assert float((other.tables - trainer.tables).abs().max()) > 1e-4
    if kind is ExactTrainer:
        assert (trainer.loss(data).kind, trainer.loss(data).std_error) == ("exact", 0)
        assert_close(trainer.loss(data).value, -expected.log_likelihood / data.total_count, relative=1e-9)
    elif k > 1:
        exact = tight(data, graph, penalty=InteractionRidge(2.0))
        assert float((exact.tables - trainer.tables).abs().max()) > 1e-4


def test_same_optimum_through_elimination_and_by_plain_descent():
    data = rows()
    ridge = InteractionRidge(1.0, by_order={3: 4.0})
    dense = tight(data, order(3), penalty=ridge)
    assert isinstance(dense._engine, DenseEngine)
    other = tight(data, order(3), penalty=ridge, partition=VariableElimination())
    assert isinstance(other._engine, BackendEngine)
    assert_close(other.tables, dense.tables, relative=1e-6, absolute=1e-7)
    slow = tight(data, order(3), penalty=ridge, method="gradient", max_iterations=20_000)
    assert_close(slow.tables, dense.tables, relative=1e-6, absolute=1e-6)


def test_non_hierarchical_collection_against_a_direct_optimum():
    data = rows(1)
    trainer = tight(data, WEAK, penalty=InteractionRidge(0.5))
    codings = parametrization(WEAK)
    size = math.prod(CARDS.values())
    states = torch.from_numpy(enumerate_codes(DOMAIN.cardinalities))
    design = codings.free_statistics(codings.statistics(states)).numpy()
    counts = data.table().numpy().reshape(size)

    def objective(theta):
        logits = design @ theta
        log_z = np.logaddexp.reduce(logits)
        gradient = counts.sum() * (np.exp(logits - log_z) @ design) - counts @ design + 0.5 * theta
        return counts.sum() * log_z - counts @ logits + 0.25 * theta @ theta, gradient

    found = scipy.optimize.minimize(objective, np.zeros(WEAK.num_parameters), jac=True, method="BFGS")
    theta = codings.convert(trainer.tables, "balanced", "free").numpy()
    assert_close(theta, found.x, relative=1e-5, absolute=1e-5)
    assert objective(theta)[0] <= found.fun + 1e-9 * abs(found.fun)
    # Negative control: the closure has a better optimum, so the subsets' parts are not there by accident.
    closed = tight(data, WEAK.closure(), penalty=InteractionRidge(0.5))
    assert closed.loss(data).value < trainer.loss(data).value - 1e-4


def test_gradient_equals_finite_differences_of_the_penalised_loss():
    data, ridge = rows(2), InteractionRidge(1.0, by_edge={("c", "d"): 20.0})
    trainer = ExactTrainer(data, WEAK, penalty=ridge)
    codings = parametrization(WEAK)
    theta = np.random.default_rng(4).standard_normal(WEAK.num_parameters)

    def value(theta):
        tables = codings.to_tables(torch.from_numpy(theta), "free").numpy()
        trainer.load_state_dict({"tables": torch.from_numpy(tables)})
        return trainer.loss(data).value + ridge.value(theta, WEAK) / data.total_count

    step = 1e-5
    moves = step * np.eye(len(theta))
    slopes = [(value(theta + m) - value(theta - m)) / (2 * step) for m in moves]
    tables = codings.to_tables(torch.from_numpy(theta), "free").numpy()
    goal = trainer._frequencies(data)
    log_z, eta = trainer._engine.evaluate(tables)
    gradient = trainer._penalised(tables, log_z - tables @ goal, eta - goal).gradient
    assert_close(codings.free_statistics(torch.from_numpy(gradient)), slopes, relative=1e-7, absolute=1e-8)
    centred = codings.eta_to_pi(torch.from_numpy(eta - goal)).numpy()
    assert_close(gradient, centred + ridge.gradient(tables, WEAK) / data.total_count, relative=1e-12, absolute=1e-14)


def test_one_gradient_step_is_the_published_one():
    data = rows(3)
    graph = order(2)
    trainer = ExactTrainer(data, graph, method="gradient", stopping=Stopping(max_iterations=1))
    before = trainer.tables
    eta = torch.from_numpy(exact_statistics(graph, exact_table(graph, before)))
    target = data.marginal_counts(graph.edges) / data.total_count
    report = trainer.train()
    assert (report.status, report.num_iterations) == ("max_iterations", 1)
    expected = before - 0.5 * parametrization(graph).eta_to_pi(eta - target)
    assert_close(trainer.tables, expected, relative=1e-12, absolute=1e-13)


def reverse_divergence(graph, pi, log_p):
    """D(q; p) of pi tables, by the formula of the joint law: the sum of pi^S times the uniform law of the others."""
    cards = graph.domain.cardinalities
    law = torch.full(cards, 1 / math.prod(cards), dtype=torch.float64)
    for where, members in zip(graph.term_slices.values(), graph.edge_indices, strict=True):
        others = math.prod(n for i, n in enumerate(cards) if i not in members)
        law = law + pi[where].reshape([n if i in members else 1 for i, n in enumerate(cards)]) / others
    return (law * (law.log() - log_p)).sum()


def test_dual_gradient_of_the_reverse_divergence():
    """Paper 1, A.3: the purified gradient of D(q; p) in pi is theta - theta_train; unpurified, it is another."""
    domain = Domain.from_cardinalities({"a": 2, "b": 3, "c": 2})
    graph = InteractionHypergraph.saturated(domain)
    codings = parametrization(graph)
    ours, theirs = (torch.from_numpy(random_tables(graph, np.random.default_rng(s))) for s in (5, 6))
    log_q, log_p = (torch.from_numpy(exact_table(graph, tables.numpy())) for tables in (ours, theirs))
    pi = codings.eta_to_pi(torch.from_numpy(exact_statistics(graph, log_q.numpy()))).requires_grad_()
    divergence = reverse_divergence(graph, pi, log_p)
    assert_close(divergence.detach(), (log_q.exp() * (log_q - log_p)).sum(), relative=1e-12)

    (raw,) = torch.autograd.grad(divergence, pi)
    assert_close(codings.eta_to_pi(raw), ours - theirs, relative=1e-10, absolute=1e-11)
    # Negative control: the gradient that is not purified holds the tables of all subsets, too.
    assert float((raw - (ours - theirs)).abs().max()) > 0.1

    # The same by finite differences within balanced tables, where no purification is needed.
    step = 1e-5  # of five points, whose error goes with its fourth power: some states have small probabilities
    moves = codings.to_tables(step * torch.eye(graph.num_parameters, dtype=torch.float64), "free")
    centre = pi.detach()

    def rise(move):
        ahead, behind = (reverse_divergence(graph, centre + sign * move, log_p) for sign in (1, -1))
        return float(ahead - behind)

    slopes = [(8 * rise(m) - rise(2 * m)) / (12 * step) for m in moves]
    found = codings.to_tables(torch.tensor(slopes, dtype=torch.float64), "free")
    assert_close(found, ours - theirs, relative=1e-6, absolute=1e-7)


# Going from one collection to another


def test_growing_and_shrinking_ends_where_a_new_trainer_does():
    data, ridge = rows(4), InteractionRidge(1.0)
    trainer = ExactTrainer(data, order(1), penalty=ridge, stopping=Stopping(tolerance=1e-9))
    for graph in (order(1), order(2), order(3), WEAK, order(2)):
        trainer.restructure(graph)
        assert trainer.train().status == "converged"
    assert_close(trainer.tables, tight(data, order(2), penalty=ridge).tables, relative=1e-6, absolute=1e-7)
    assert trainer.train().num_iterations == 0


@pytest.mark.parametrize("kind", [ExactTrainer, PseudoTrainer])
def test_validation_rows_stop_a_call_at_their_best(kind):
    data = load_table("czech_autoworkers")
    train, validation = data.split([0.1, 0.9], 0)
    graph = InteractionHypergraph.saturated(data.domain)
    stopping = Stopping(patience=5, max_iterations=5000)
    trainer = kind(train, graph, method="gradient", validation=validation, stopping=stopping)
    report = trainer.train()
    assert report.num_iterations < 5000
    assert "validation" in report.notes[-1]
    best = trainer.loss(validation).value
    free = kind(train, graph, method="gradient", stopping=Stopping(max_iterations=report.num_iterations))
    free.train()
    assert free.loss(validation).value > best
    assert free.loss(train).value < trainer.loss(train).value


# What goes wrong


@pytest.mark.parametrize("kind", [ExactTrainer, PseudoTrainer])
def test_a_step_too_large_is_reported_and_leaves_sound_tables(kind):
    data = rows(5)
    trainer = kind(data, order(3), method="gradient", step=1e4, stopping=Stopping(max_iterations=50))
    before = trainer.loss(data).value
    report = trainer.train()
    assert report.status == "diverged"
    assert "step" in report.notes[0]
    assert torch.isfinite(trainer.tables).all()
    assert trainer.loss(data).value <= before + 1e-12


@pytest.mark.parametrize("method", ["lbfgs", "gradient"])
def test_values_that_are_not_finite_are_met_with_sound_tables(method):
    def evaluate(tables):
        value = float(tables @ tables) if tables[0] > 0.5 else math.nan
        return Point(tables, value, value, 2 * tables)

    start = np.array([3.0, -4.0])
    solve = lbfgs if method == "lbfgs" else functools.partial(gradient_descent, step=0.2)
    found = solve(evaluate, evaluate(start), 1e-6, 1000, lambda *_: False)
    assert found.status != "converged"
    assert found.notes
    assert found.point.theta[0] > 0.5
    assert found.point.value < start @ start
    assert (found.status == "diverged") == (method == "gradient")
    trainer = ExactTrainer(rows(), order(1), method=method)
    trainer._losses = lambda: (lambda tables: Point(tables, math.inf, math.inf, tables), None)
    assert trainer.train().status == "diverged"


def test_limited_memory_reaches_small_gradients_of_ill_conditioned_losses():
    scales = np.logspace(-2, 2, 40)

    def evaluate(x):
        value = 1e3 + float((scales * (np.cosh(x - 1) - 1)).sum())  # differences drown in rounding early
        return Point(x, value, value, scales * np.sinh(x - 1))

    found = lbfgs(evaluate, evaluate(np.zeros(40)), 1e-10, 3000, lambda *_: False)
    assert found.status == "converged"
    x = found.point.theta
    assert_close(x, np.ones(40), relative=1e-7)


def test_out_of_reach_is_refused_and_the_trainer_stays_as_it_was():
    domain = Domain.from_cardinalities([2] * 60)
    data = Observations(domain, torch.randint(0, 2, (50, 60), generator=torch.Generator().manual_seed(0)))
    chain = InteractionHypergraph(domain, list(itertools.pairwise(domain.names)), closure=True)
    trainer = ExactTrainer(data, chain, penalty=InteractionRidge(1.0))
    assert isinstance(trainer._engine, BackendEngine)
    assert trainer.train().status == "converged"
    before = trainer.tables
    with pytest.raises(IntractableError, match=r"dense sweep needs about 1\.15e\+18 cells"):
        trainer.restructure(order(2, domain))
    assert trainer.hypergraph == chain
    assert torch.equal(trainer.tables, before)
    assert trainer.train().num_iterations == 0
    apart = InteractionHypergraph(domain, [(n,) for n in domain.names] + [("x0", "x1"), ("x5", "x9")])
    assert isinstance(choose_engine(apart), DenseEngine)  # small components of a large domain
    trainer.restructure(apart)
    assert_close(trainer.tables[apart.term_slices["x0", "x1"]], before[chain.term_slices["x0", "x1"]], relative=0)


def test_elimination_is_chosen_where_it_is_far_cheaper():
    domain = Domain.from_cardinalities([2] * 16)
    chain = InteractionHypergraph(domain, list(itertools.pairwise(domain.names)), closure=True)
    chosen = choose_engine(chain)
    assert isinstance(chosen, BackendEngine)
    assert isinstance(choose_engine(order(2, domain)), DenseEngine)
    tables = random_tables(chain, np.random.default_rng(11))
    (log_z, eta), (expected, other) = chosen.evaluate(tables), DenseEngine(chain).evaluate(tables)
    assert_close(log_z, expected, relative=1e-12)
    assert_close(eta, other, relative=1e-11)


NONE = InteractionRidge()
OTHER, UNKNOWN = Domain.from_cardinalities({"a": 2}), InteractionRidge(1.0, by_edge={("a", "nobody"): 5.0})
HOLES = Observations(DOMAIN, torch.tensor([[0, -1, 0, 0]]))


def state(make, **changes):
    trainer = make(rows(), order(1))
    trainer.load_state_dict({**trainer.state_dict(), **changes})


def new_penalty(make, penalty):
    trainer = make(rows(), order(1))
    try:
        trainer.penalty = penalty
    finally:
        assert trainer.penalty is None


@pytest.mark.parametrize("make", [ExactTrainer, PseudoTrainer, SampledTrainer])
@pytest.mark.parametrize(
    ("call", "code", "argument"),
    [
        (lambda make: make(rows().codes, order(1)), "wrong-type", "rows"),
        (lambda make: make(rows(domain=OTHER), order(1)), "other-domain", "rows"),
        (lambda make: make(HOLES, order(1)), "missing-cells", "rows"),
        (lambda make: make(rows(), order(1), penalty=L1(1.0)), "wrong-type", "penalty"),
        (lambda make: make(rows(), order(1), penalty=UNKNOWN), "unknown-name", "penalty by_edge"),
        (lambda make: new_penalty(make, L1(1.0)), "wrong-type", "penalty"),
        (lambda make: new_penalty(make, UNKNOWN), "unknown-name", "penalty by_edge"),
        (lambda make: make(rows(), order(1), evidence=2), "wrong-type", "evidence"),
        (lambda make: make(rows(), order(1), evidence=EvidenceRounds(1)), "conflict", "evidence_rounds"),
        (lambda make: make(rows(), order(1), penalty=NONE, evidence=EvidenceRounds(1)), "conflict", "evidence_rounds"),
        (lambda make: make(rows(), order(1)).restructure(order(1, OTHER)), "other-domain", "hypergraph"),
        (lambda make: make(rows(), order(1)).margins([("nobody",)]), "unknown-name", None),
        (lambda make: make(rows(), order(1)).margins(["ab"]), "wrong-type", "edges"),
        (lambda make: make(rows(), order(1)).loss(rows(domain=OTHER)), "other-domain", "rows"),
        (lambda make: state(make, tables=torch.zeros(3)), "wrong-shape", "state"),
        (lambda make: state(make, tables=torch.full((11,), math.nan)), "not-finite", "state"),
        (lambda make: state(make, tables=1.0 + torch.zeros(11)), "invalid-value", "state"),
        (lambda make: state(make, strengths=torch.ones(4)), "conflict", "state"),
        (lambda make: state(make, strengths="x"), "wrong-shape", "state"),
    ],
)
def test_wrong_arguments_of_all_trainers(make, call, code, argument):
    with raises(code, argument):
        call(make)


@pytest.mark.parametrize(
    ("options", "code", "argument"),
    [
        ({"partition": AnnealedImportance()}, "invalid-value", "partition"),
        ({"partition": "auto"}, "wrong-type", "partition"),
        ({"method": "newton"}, "unknown-choice", "method"),
        ({"step": 0.0}, "out-of-range", "step"),
        ({"stopping": 5}, "wrong-type", "stopping"),
        ({"validation": rows(domain=OTHER)}, "other-domain", "validation"),
    ],
)
@pytest.mark.parametrize("make", [ExactTrainer, PseudoTrainer])
def test_wrong_options_of_a_descent(make, options, code, argument):
    with raises(code, argument):
        make(rows(), order(1), **options)


def test_margins_of_nothing():
    trainer = ExactTrainer(rows(), order(1))
    assert trainer.margins([]).probs.shape == (0,)
    assert trainer.margins([()]).probs.tolist() == [1.0]


# The contract


START = InteractionRidge(1.0, by_order={1: 0.05})
RIDGE = {"method": "gradient", "stopping": Stopping(max_iterations=20), "penalty": InteractionRidge(1.0)}
ROUNDS = {"stopping": Stopping(max_iterations=200), "penalty": START, "evidence": EvidenceRounds(2)}


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (ExactTrainer, {"partition": Enumeration()}),
        (PseudoTrainer, {"masked": True}),
        *((kind, options) for kind in (ExactTrainer, PseudoTrainer) for options in ({}, RIDGE, ROUNDS)),
    ],
)
def test_laws_of_a_trainer(kind, options):
    check_trainer(functools.partial(kind, **options))


class _Forgetful(ExactTrainer):
    """Negative control: loses all tables on the way to another collection."""

    def restructure(self, hypergraph):
        super().restructure(hypergraph)
        self._tables = 0 * self._tables


class _Unbalanced(ExactTrainer):
    """Negative control: tables that are not centred."""

    def train(self):
        report = super().train()
        self._tables = self._tables + 0.1
        return report


class _Stale(ExactTrainer):
    """Negative control: margins and log Z of the tables before training."""

    def train(self):
        before = self._tables
        report, engine = super().train(), self._engine
        self._engine = types.SimpleNamespace(
            evaluate=lambda _: engine.evaluate(before),
            log_partition=lambda _: engine.log_partition(before),
            margins=lambda _, edges: engine.margins(before, edges),
        )
        return report


class _Likelihood(PseudoTrainer):
    """Negative control: calls the likelihood a pseudo-likelihood."""

    def loss(self, rows):
        frequencies = rows.marginal_counts(self.hypergraph.edges) / rows.total_count
        likelihood = self.log_partition().value - self.tables @ frequencies
        return super().loss(rows)._replace(value=float(likelihood))


class _Seedless(ExactTrainer):
    """Negative control: depends on global random state, and on how often it was made."""

    def train(self):
        report = super().train()
        self._tables = self._tables * (1 + 0.01 * float(torch.rand(())))
        return report


@pytest.mark.parametrize(
    ("kind", "failing"),
    [
        (_Forgetful, ["check_restructure"]),
        (_Unbalanced, ["check_balanced"]),
        (_Stale, ["check_margins", "check_loss", "check_log_partition"]),
        (_Seedless, ["check_determinism", "check_state"]),
        (_Likelihood, ["check_loss"]),
    ],
)
def test_broken_trainers_fail_the_laws(kind, failing):
    graphs = {name: standard_hypergraphs()[name] for name in ("cycle",)}
    with pytest.raises(AssertionError) as caught:
        check_trainer(kind, hypergraphs=graphs)
    for name in failing:
        assert name in str(caught.value)


# Rounds of evidence


@KINDS
def test_rounds_of_evidence_are_fits_with_updated_strengths_in_between(kind):
    counts = rows(11).table().numpy()
    counts[1, 2], counts[:, :, 3, 0] = 0, 0  # left out by masking
    data, graph, pseudo = Observations.from_table(DOMAIN, counts), order(2), kind is not ExactTrainer
    trainer = kind(data, graph, penalty=START, evidence=EvidenceRounds(num_rounds=3, damping=0.7))
    report = trainer.train()
    ridge, margins = START, (data.marginal_counts(graph.edges) / data.total_count).numpy()
    manual = kind(data, graph, penalty=START)
    manual.train()
    for _ in range(3):
        tables = manual.tables.numpy()
        ridge = updated_ridge(ridge, graph, tables, margins, data.total_count, damping=0.7, pseudo=pseudo)
        manual.penalty = ridge
        last = manual.train()
    assert report.status == last.status == "converged"
    assert torch.equal(trainer.tables, manual.tables)
    assert [trainer.penalty.strength(e) for e in graph.edges] == [ridge.strength(e) for e in graph.edges]
    assert trainer.penalty.strength(("a", "b")) != START.strength(("a", "b"))
    assert trainer.penalty_given == START
    effective = sum(trainer.num_effective().values())
    expected = f"3 rounds of evidence: about {effective:.1f} of {graph.num_parameters} parameters are effective"
    assert report.notes == (expected,)
    assert 0 < effective < graph.num_parameters
    assert report.num_iterations > last.num_iterations


@KINDS
def test_strengths_go_on_with_the_state_and_leave_with_their_interaction(kind):
    data, options = rows(12), {"penalty": START, "evidence": EvidenceRounds(2)}
    first, second = (kind(data, order(2), **options) for _ in range(2))
    assert set(first.state_dict()) == {"tables"}
    first.train()
    second.load_state_dict(first.state_dict())
    assert [second.penalty.strength(e) for e in order(2).edges] == [first.penalty.strength(e) for e in order(2).edges]
    smaller, larger = order(1).add_edges([("a", "b")]), order(3)
    kept = first.penalty.strength(("a", "b"))
    for trainer in (first, second):
        trainer.restructure(smaller)
        assert trainer.penalty.strength(("a", "b")) == kept
        trainer.restructure(larger)
        assert trainer.penalty.strength(("a", "b")) == kept
        assert trainer.penalty.strength(("c", "d")) == trainer.penalty.strength(("a", "b", "c")) == 1.0
        trainer.train()
    assert torch.equal(first.tables, second.tables)
    # Negative control: without the strengths a resumed trainer goes another way.
    third = kind(data, larger, **options)
    third.load_state_dict({"tables": second.tables})
    fourth = kind(data, larger, **options)
    fourth.load_state_dict(second.state_dict())
    for trainer in (third, fourth):
        trainer.train()
    assert float((third.tables - fourth.tables).abs().max()) > 1e-4
    fourth.load_state_dict({"tables": second.tables})
    assert fourth.penalty == START


def test_a_new_penalty_holds_from_the_next_call():
    data = rows(13)
    trainer = ExactTrainer(data, order(2), stopping=Stopping(tolerance=1e-9))
    assert trainer.penalty is None
    trainer.penalty = L2(3.0)
    assert trainer.penalty == trainer.penalty_given == InteractionRidge(3.0)
    trainer.train()
    assert_close(trainer.tables, tight(data, order(2), penalty=L2(3.0)).tables, relative=1e-6, absolute=1e-8)


@pytest.mark.parametrize(
    ("call", "code", "argument"),
    [
        *((lambda bad=bad: EvidenceRounds(bad), "out-of-range", "evidence_rounds") for bad in (-1, 1.5, True)),
        (lambda: EvidenceRounds(1, damping=0.0), "out-of-range", "evidence_damping"),
        (lambda: started(torch.ones(3)), "wrong-shape", "state"),
        (lambda: started(-torch.ones(4)), "out-of-range", "state"),
        (lambda: started(torch.full((4,), math.nan)), "not-finite", "state"),
        (lambda: started("x"), "wrong-shape", "state"),
    ],
)
def test_wrong_rounds_and_strengths_are_refused(call, code, argument):
    with raises(code, argument):
        call()


def started(strengths):
    state(functools.partial(ExactTrainer, penalty=START), strengths=strengths)


@pytest.mark.usefixtures("shared_data")
def test_breast_cancer_gains_from_evidence_and_from_smoothness():
    """Gain over independence on held-out rows, all pairs: 0.27 nats with fixed strengths, then 0.63 and 0.80."""
    data = load_breast_cancer()
    train, _, test = data.split([0.35, 0.15, 0.5], 0)
    graph = order(2, data.domain)
    gains = {}
    for name, rounds, smoothness in (("fixed", 0, 0.0), ("evidence", 4, 0.0), ("both", 4, 0.9)):
        ridge = InteractionRidge(1.0, by_order={1: 0.05}, smoothness=smoothness)
        trainer = ExactTrainer(
            train, graph, penalty=ridge, evidence=EvidenceRounds(num_rounds=rounds), stopping=Stopping(tolerance=1e-4)
        )
        trainer.train()
        independent = ExactTrainer(train, order(1, data.domain)).loss(test).value
        gains[name] = independent - trainer.loss(test).value
    assert gains["evidence"] > gains["fixed"] + 0.1
    assert gains["both"] > gains["evidence"] + 0.05


# Training by pseudo-likelihood


def likelihood(trainer, data):
    """Mean negative log-likelihood of rows under the tables of a trainer."""
    frequencies = (data.marginal_counts(trainer.hypergraph.edges) / data.total_count).double()
    return float(trainer.log_partition().value - trainer.tables @ frequencies)


def graphs():
    found = {name: graph for name, graph in standard_hypergraphs().items() if len(graph.domain)}
    wide = Domain.from_cardinalities({"a": 5, "b": 2, "c": 1, "d": 3, "e": 2})
    return found | {"weak": WEAK, "wide": order(4, wide)}


# The compiled loss


def by_autograd(graph, data, theta):
    """Mean negative log pseudo-likelihood at free parameters and its gradient, from the energy's conditionals."""
    free = torch.from_numpy(theta).clone().requires_grad_()
    model = LogLinearEnergy(graph, parametrization(graph).to_tables(free), validate=False)
    value = -(data.counts @ model.log_pseudo_prob(data.codes)) / data.total_count
    return float(value.detach()), torch.autograd.grad(value, free)[0].numpy()


def check_against_autograd(graph, data, tables, relative, what=""):
    """The compiled loss, its value alone and its gradient."""
    codings, layout, kernel = parametrization(graph), ConditionalLayout(graph), PseudoRows(data)
    theta = codings.convert(torch.from_numpy(tables), "balanced", "free").numpy()
    expected, slopes = by_autograd(graph, data, theta)
    loss, gradient = kernel.evaluate(layout, tables)
    assert_close(loss, expected, relative=relative, what=what)
    assert_close(kernel.value(layout, tables), expected, relative=relative, what=what)
    free = codings.free_statistics(torch.from_numpy(gradient))
    assert_close(free, slopes, relative=1e-11, absolute=1e-12, what=what)
    return lambda others: kernel.value(layout, others) - expected


@pytest.mark.parametrize("scale", [0.0, 1.0, 30.0])
def test_loss_and_gradient_equal_those_of_autograd(scale):
    for name, graph in graphs().items():
        tables = random_tables(graph, np.random.default_rng(2), scale=scale)
        difference = check_against_autograd(graph, rows(1, 4.0, graph.domain, low=0), tables, 1e-11, name)
        if scale == 1.0 and name == "three-way":  # negative control: one table in another order
            where = graph.term_slices["a", "b"]
            tables[where] = tables[where][::-1]
            assert abs(difference(tables)) > 1e-3


def test_many_rows_fill_several_blocks():
    domain = Domain.from_cardinalities([2, 3, 2, 4, 2, 5, 3, 2])
    codes = np.random.default_rng(3).integers(0, domain.cardinalities, (2000, 8))
    data = Observations(domain, torch.from_numpy(codes))
    assert len(data.unique().codes) > 600
    graph = order(3, domain)
    check_against_autograd(graph, data, random_tables(graph, np.random.default_rng(4), scale=0.5), 1e-12)


# Masking


def sparse_rows():
    """Level 2 of b never occurs with level 1 of a, and level 3 of c never with level 0 of d."""
    counts = 1 + np.random.default_rng(8).poisson(4.0, DOMAIN.cardinalities)
    counts[1, 2] = 0
    counts[:, :, 3, 0] = 0
    return Observations.from_table(DOMAIN, counts)


def masked_law(trainer):
    table = exact_table(trainer.hypergraph, trainer.tables)
    table[1, 2] = -math.inf
    table[:, :, 3, 0] = -math.inf
    return table - np.log(np.exp(table).sum())


def test_masked_conditionals_are_those_of_the_law_without_the_excluded_states():
    data = sparse_rows()
    trainer = PseudoTrainer(data, order(2), masked=True, penalty=InteractionRidge(0.1))
    assert trainer.train().status == "converged"
    law = masked_law(trainer)
    counts = data.table().numpy()
    seen = counts > 0
    expected = 0.0
    for axis in range(4):
        margin = np.logaddexp.reduce(law, axis, keepdims=True)
        terms = np.broadcast_to(margin, law.shape)[seen] - law[seen]
        expected += float(counts[seen] @ terms) / counts.sum()
    assert_close(trainer.loss(data).value, expected, relative=1e-10)
    expected = -float(counts[seen] @ law[seen]) / counts.sum()
    assert_close(likelihood(trainer, data), expected, relative=1e-10)
    probs = trainer.margins([("a", "b"), ("c", "d")]).probs
    assert_close(probs[:6], np.exp(law).sum((2, 3)).reshape(-1), relative=1e-10, absolute=1e-14)
    assert probs[5] == 0.0
    assert "left out" in trainer.log_partition().notes[0]


def test_rows_with_an_excluded_combination_lose_infinitely_much_only_when_masked():
    data = sparse_rows()
    codes = torch.tensor([[0, 0, 0, 0], [1, 2, 0, 1]])
    other = Observations(DOMAIN, codes)
    masked = PseudoTrainer(data, order(2), masked=True, penalty=InteractionRidge(0.1))
    plain = PseudoTrainer(data, order(2), masked=False, penalty=InteractionRidge(0.1))
    for trainer in (masked, plain):
        trainer.train()
        assert math.isfinite(trainer.loss(data).value)
    assert masked.loss(other).value == math.inf
    assert math.isfinite(plain.loss(other).value)
    assert masked.loss(data).value < plain.loss(data).value
    masked.restructure(order(1))  # single variables exclude nothing
    assert math.isfinite(masked.loss(other).value)


def test_masking_changes_nothing_where_every_combination_occurs():
    data = rows(9, 6.0)
    trainers = [PseudoTrainer(data, order(3), masked=masked) for masked in (True, False)]
    for trainer in trainers:
        trainer.train()
    assert torch.equal(trainers[0].tables, trainers[1].tables)
    with raises("wrong-type", "masked"):
        PseudoTrainer(rows(), order(1), masked=1)


def test_masked_gradient_equals_finite_differences():
    data = sparse_rows()
    trainer = PseudoTrainer(data, order(2), masked=True)
    graph, codings = trainer.hypergraph, parametrization(trainer.hypergraph)
    theta = 0.5 * np.random.default_rng(10).standard_normal(graph.num_parameters)

    def value(theta):
        tables = codings.to_tables(torch.from_numpy(theta), "free").numpy()
        return trainer._pseudo_rows(data).value(trainer._layout, trainer._effective(tables))

    step = 1e-5
    slopes = [(value(theta + m) - value(theta - m)) / (2 * step) for m in step * np.eye(len(theta))]
    tables = codings.to_tables(torch.from_numpy(theta), "free").numpy()
    _, gradient = trainer._pseudo_rows(data).evaluate(trainer._layout, trainer._effective(tables))
    free = codings.free_statistics(torch.from_numpy(gradient)).numpy()
    assert_close(free, slopes, relative=1e-6, absolute=1e-8)
    _, unmasked = trainer._pseudo_rows(data).evaluate(trainer._layout, tables)  # negative control
    assert np.abs(codings.free_statistics(torch.from_numpy(unmasked)).numpy() - slopes).max() > 1e-3


# Reach and arguments


def test_large_domains_train_and_refuse_what_needs_log_z():
    domain = Domain.from_cardinalities([2] * 40)
    generator = torch.Generator().manual_seed(0)
    data = Observations(domain, torch.randint(0, 2, (80, 40), generator=generator))
    trainer = PseudoTrainer(data, order(2, domain), penalty=InteractionRidge(5.0))
    assert trainer.train().status == "converged"
    assert trainer.log_partition() is None
    with pytest.raises(IntractableError, match="out of exact reach"):
        trainer.margins([("x0",)])
    assert math.isfinite(trainer.loss(data).value)
    chain = InteractionHypergraph(domain, list(itertools.pairwise(domain.names)), closure=True)
    trainer.restructure(chain)
    assert trainer.log_partition().kind == "exact"
    assert_close(trainer.margins([("x0", "x39")]).probs.sum(), 1.0, relative=1e-12)
    masked = PseudoTrainer(sparse_rows(), order(2), masked=True, partition=VariableElimination())
    assert masked.log_partition() is None
    with pytest.raises(IntractableError, match="backend"):
        masked.margins([("a",)])


def test_a_component_beyond_the_range_of_floats_is_refused_in_words():
    names = [f"x{i}" for i in range(1100)]
    domain = Domain.from_cardinalities(dict.fromkeys(names, 2))
    rows = Observations(domain, torch.zeros(3, len(names), dtype=torch.long))
    block = list(itertools.combinations(names[:50], 2))
    hypergraph = InteractionHypergraph(domain, [*itertools.pairwise(names), *block], closure=True)
    trainer = PseudoTrainer(rows, hypergraph)
    assert trainer.log_partition() is None
    with pytest.raises(IntractableError, match=r"out of exact reach .* needs about \d\.\d\de\+\d+ cells"):
        trainer.margins([("x0",)])
    with pytest.raises(IntractableError, match="score 'refined'"):
        Refined()([("x0", "x2")], ScoreContext(rows, trainer))


# The contract


@pytest.mark.usefixtures("shared_data")
def test_mushroom_many_body_rows_of_table_4():
    """Pseudo-likelihood is worse than the likelihood by far on two bodies, as published, and better than one body."""
    data = load_mushroom()
    data = data.project(data.domain.names[:10])
    _, rest = data.split([0.5, 0.5], 0)
    train, validation = rest.split([0.7, 0.3], 0)
    entropy = validation.entropy()
    trainer = PseudoTrainer(train, order(1, data.domain))
    one = likelihood(trainer, validation) - entropy
    assert 4.4 < one < 4.8  # published: 4.6062
    trainer = PseudoTrainer(train, order(2, data.domain), validation=validation, stopping=Stopping(max_iterations=100))
    trainer.train()
    pseudo = likelihood(trainer, validation) - entropy
    exact = ExactTrainer(train, order(2, data.domain), validation=validation, stopping=Stopping(max_iterations=60))
    exact.train()
    assert exact.loss(validation).value - entropy < pseudo < one


def test_rows_in_pieces_have_the_bits_of_one_go(monkeypatch):
    """Between two pieces Ctrl-C is answered."""
    random = np.random.default_rng(0)
    graph = InteractionHypergraph.from_order(Domain.from_cardinalities([2, 3, 4, 5, 3]), 3)
    cells = torch.cartesian_prod(*(torch.arange(size) for size in (2, 3, 4, 5, 3)))
    rows = PseudoRows(Observations(graph.domain, cells.repeat(3, 1)))
    rows._codes, rows._weights = np.tile(rows._codes, (6, 1))[:2000], random.random(2000)
    layout, tables = ConditionalLayout(graph), random.normal(size=graph.num_terms)
    loss, gradient = rows.evaluate(layout, tables)
    calls = []
    compiled = _pseudo_kernels.conditionals
    monkeypatch.setattr(lanes, "PIECE", 2.0**16)
    counted = lambda codes, *more: (calls.append(len(codes)), compiled(codes, *more))[1]  # noqa: E731
    monkeypatch.setattr(_pseudo_kernels, "conditionals", counted)
    again, same = rows.evaluate(layout, tables)
    assert calls == [256] * 7 + [208]
    assert again == loss
    np.testing.assert_array_equal(same, gradient)


@pytest.mark.parametrize("num_columns", [16, 20])
def test_products_of_matrices_sum_pairs_of_binary_columns_as_the_kernel_does(num_columns, monkeypatch):
    rng = np.random.default_rng(num_columns)
    domain = Domain.from_cardinalities([2] * num_columns)
    edges = [e for e in itertools.combinations(domain.names, 2) if rng.random() < 0.7]
    graph = InteractionHypergraph(domain, [*((name,) for name in domain.names), *edges])
    codes, counts = torch.from_numpy(rng.integers(0, 2, (300, num_columns))), torch.from_numpy(rng.random(300))
    rows, layout = PseudoRows(Observations(domain, codes, counts)), ConditionalLayout(graph)
    assert layout.is_ising
    monkeypatch.setattr("pyro_hoim.log_linear.fitting.objectives._CELLS", 100 * num_columns)  # in pieces
    tables = [scale * rng.normal(size=graph.num_terms) for scale in (0.1, 30.0)]
    tables.append(np.where(np.arange(graph.num_terms) == graph.num_terms - 1, -np.inf, tables[0]))
    results = [(rows.value(layout, entries), *rows.evaluate(layout, entries)) for entries in tables]
    layout.is_ising = False
    for entries, (value, loss, gradient) in zip(tables, results, strict=True):
        kernel = rows.evaluate(layout, entries)
        assert value == loss == pytest.approx(kernel[0], rel=1e-13)
        if np.isfinite(value):
            np.testing.assert_allclose(gradient, kernel[1], rtol=0, atol=1e-14)
    assert [np.isfinite(value) for value, _, _ in results] == [True, True, False]  # impossible entries are the kernel's
