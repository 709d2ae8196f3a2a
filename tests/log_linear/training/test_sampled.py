"""Training by weighted chains: weights and counts against enumeration, recovery, interrupts, laws of the contract."""

import dataclasses
import itertools
import math
import time
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from scipy import stats

from pyro_hoim import Domain, InputError, InteractionHypergraph, Observations, Variable
from pyro_hoim.annealing.runs import forward
from pyro_hoim.annealing.weights import log_mean_weight
from pyro_hoim.core.trainer import TrainingReport
from pyro_hoim.data import bits
from pyro_hoim.log_linear import EvidenceRounds, InteractionRidge, SampledTrainer, SampledTraining, parametrization
from pyro_hoim.log_linear.learning._session import checked_recipe
from pyro_hoim.log_linear.search.rounds import trained as fit_of
from pyro_hoim.log_linear.training.sampled import _path, trainer as _sampled_loss, trainer as sampled
from pyro_hoim.log_linear.training.sampled._path import Adam, Coordinates, Problem, SampledPath
from pyro_hoim.log_linear.training.sampled._weighted_chains import (
    Population,
    WeightedChains,
    annealed_population,
    disagreement,
    forest_law,
    law_of_singles,
    network_law,
)
from pyro_hoim.log_linear.training.sampled.trainer import _FromLaw, _judged, _sandwiched, annealed_log_z
from pyro_hoim.log_linear.training.table_trainer import RowMargins
from pyro_hoim.runs.checkpoint import TimeUp, ending_at
from pyro_hoim.testing import (
    FALSE_ALARM_RATE,
    assert_close,
    exact_log_partition,
    exact_statistics,
    exact_table,
    raises,
    random_tables,
    standard_hypergraphs,
    total_variation_bound,
)

from support.calls import noted
from support.hard_models import needle
from support.trainers import check_trainer
from support.transitions import recompute_counts, recompute_energy

CARDS = {"a": 2, "b": 3, "c": 4, "d": 2}
DOMAIN = Domain.from_cardinalities(CARDS)
WEAK = InteractionHypergraph(DOMAIN, [("a",), ("b",), ("a", "b", "c"), ("c", "d")], hierarchical=False)
QUICK = SampledTraining(
    num_chains=500,
    num_iterations=40,
    learning_rate=0.05,
    damping=0.01,
    refresh_every=20,
    refresh_chains=500,
    refresh_temperatures=20,
)


def order(k, domain=DOMAIN):
    return InteractionHypergraph.from_order(domain, k)


def rows(seed=0, mean=8.0, domain=DOMAIN):
    counts = 1 + np.random.default_rng(seed).poisson(mean, domain.cardinalities)
    return Observations.from_table(domain, counts)


def trainer(hypergraph=None, settings=QUICK, penalty=None, evidence=None, **changes):
    return SampledTrainer(
        rows(),
        order(2) if hypergraph is None else hypergraph,
        penalty=penalty,
        settings=dataclasses.replace(settings, **changes),
        evidence=evidence,
    )


def trained(**options):
    made = trainer(**options)
    made.train()
    return made


def chains_of(hypergraph, tables, count=200, seed=1, **changes):
    law = law_of_singles(hypergraph, tables)
    settings = dataclasses.replace(QUICK, num_chains=count, **changes)
    population = Population(law.states(count, np.random.default_rng(seed)), np.full(count, law.log_z))
    return WeightedChains(hypergraph, tables, settings, seed, population)


def equal_states(first, second):
    return first.keys() == second.keys() and all(torch.equal(first[k], second[k]) for k in first)


# The contract


SMALL = {
    name: graph
    for name, graph in standard_hypergraphs().items()
    if name in ("three-way", "no edges", "unmentioned", "one variable", "one state", "not hierarchical")
}


@pytest.mark.parametrize("penalty", [pytest.param(None, marks=pytest.mark.slow), InteractionRidge(1.0)])
def test_the_laws_of_the_contract(penalty):
    # margins are over at most 24 cells, from 20,000 states that are worth a quarter at least; log Z has standard
    # errors of at most 0.02, and 5 of them are allowed
    check_trainer(
        lambda data, graph: SampledTrainer(data, graph, penalty=penalty, settings=QUICK),
        hypergraphs=SMALL,
        margin_tolerance=total_variation_bound(24, 5000),
        loss_tolerance=0.1,
    )


# Weights, gradients and margins against enumeration


@pytest.mark.parametrize("hypergraph", [order(2), order(3), WEAK], ids=["pairs", "triples", "weak"])
def test_weights_grow_by_the_difference_of_energies(hypergraph):
    rng = np.random.default_rng(3)
    tables, after = (random_tables(hypergraph, rng) for _ in range(2))
    chains = chains_of(hypergraph, tables)
    codes = chains.chains.states
    growth = chains.growth(after - tables)
    expected = recompute_energy(hypergraph, tables, codes) - recompute_energy(hypergraph, after, codes)
    assert_close(growth, expected, relative=1e-9, absolute=1e-9)
    before = chains.log_weights.copy()
    chains.move_to(after)
    assert_close(chains.log_weights, before + expected, relative=1e-9, absolute=1e-9)
    assert_close(chains.chains.energy, recompute_energy(hypergraph, after, codes), relative=1e-9, absolute=1e-9)
    weights = np.exp(expected - expected.max())
    eta = recompute_counts(hypergraph, codes, weights / weights.sum())
    assert_close(chains.eta(), eta, relative=1e-9, absolute=1e-12)
    assert_close(chains.effective_size, weights.sum() ** 2 / np.square(weights).sum(), relative=1e-9)


def test_a_gradient_is_the_difference_of_eta():
    graph, data = order(2), rows()
    tables = random_tables(graph, np.random.default_rng(4)) * 0.3
    codes = torch.from_numpy(np.random.default_rng(5).integers(0, [2, 3, 4, 2], (50, 4)))
    made = trainer()
    made.load_state_dict({**made.state_dict(), "tables": torch.from_numpy(tables)})
    goal = data.marginal_counts(graph.edges).numpy() / data.total_count
    problem = Problem(graph, goal, made._starts(), Coordinates(graph, None, data.total_count))
    path = SampledPath(problem, QUICK, tables, Population(codes, np.zeros(50)), 0)
    difference = goal - recompute_counts(graph, codes, np.full(50, 1 / 50))
    assert_close(path._gradient(), difference, relative=1e-9, absolute=1e-12)
    coordinates = Coordinates(WEAK, None, data.total_count)
    eta = np.random.default_rng(6).random(WEAK.num_terms)
    free = parametrization(WEAK).free_statistics(torch.from_numpy(eta)).numpy()
    assert_close(coordinates.gradient(eta), free, relative=1e-9, absolute=1e-12)


def test_resampling_keeps_the_weighted_mean():
    graph = order(2)
    tables = random_tables(graph, np.random.default_rng(6))
    chains = chains_of(graph, np.zeros_like(tables), count=4000)
    chains.move_to(3 * tables)
    before = chains.eta()
    assert chains.effective_size < 2000
    assert chains.resample()
    assert np.ptp(chains.log_weights) == 0
    # systematic resampling gives every chain its expected number of copies, up to one
    assert np.abs(chains.eta() - before).max() < 200 / 4000
    assert not chains.resample()


STARTS = {
    "singles": lambda graph, tables: law_of_singles(graph, tables),
    "independent": lambda graph, tables: forest_law(RowMargins(rows()), graph, pairs=False),
    "forest": lambda graph, tables: forest_law(RowMargins(rows()), graph),
    "network": lambda graph, tables: network_law(rows(), graph, forest_law(RowMargins(rows()), graph)),
}


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("scale", [0.5, 1.5])
def test_log_z_of_an_annealed_population(scale, start):
    graph = order(3)
    tables = scale * random_tables(graph, np.random.default_rng(7))
    law = STARTS[start](graph, tables)
    settings = dataclasses.replace(QUICK, refresh_temperatures=100)
    annealed = annealed_population(graph, tables, settings, (law,), 1, 4000)
    # 4,000 chains whose weights vary little; the error is the spread of the weights over sqrt(4000), times at most 5
    assert annealed.effective_size > 2000
    assert abs(annealed.log_z - float(exact_log_partition(graph, tables))) < 5 / math.sqrt(2000)


# Laws that runs start from


def bound_rows():
    """Rows in which "b" depends on "a", "c" on both together and "d" on "c": seven bound rows to a free one."""
    counts = np.zeros(DOMAIN.cardinalities)
    for a, b, c, d in np.ndindex(counts.shape):
        bound = (b == a, c == (a + b) % 4, d == c // 2)
        counts[a, b, c, d] = np.prod([7 if is_bound else 1 for is_bound in bound])
    return Observations.from_table(DOMAIN, counts)


def skewed_rows(seed=0, size=300):
    """Rows of a law with strong interactions up to order three."""
    law = np.exp(exact_table(order(3), 1.5 * random_tables(order(3), np.random.default_rng(seed))))
    counts = np.random.default_rng(seed + 1).multinomial(size, law.reshape(-1) / law.sum())
    return Observations.from_table(DOMAIN, counts.reshape(law.shape))


GAPS = InteractionHypergraph(
    DOMAIN, [("a",), ("b",), ("c",), ("a", "b"), ("b", "c"), ("c", "d"), ("a", "b", "c")], hierarchical=False
)


@pytest.mark.parametrize("graph", [order(1), order(2), GAPS, WEAK], ids=["singles", "pairs", "gaps", "weak"])
@pytest.mark.parametrize("kind", ["independent", "forest", "network"])
def test_start_laws_have_their_constant_and_are_drawn_exactly(graph, kind):
    data = bound_rows()
    law = forest_law(RowMargins(data), graph, pairs=kind != "independent")
    if kind == "network":
        law = network_law(data, graph, law)
        assert set(graph.edges) <= set(law.hypergraph.edges)
        assert any(len(draw.parents) > 1 for draw in law.draws)
    assert_close(law.log_z, float(exact_log_partition(law.hypergraph, law.tables)), absolute=1e-10)
    probs = np.exp(exact_table(law.hypergraph, law.tables))
    codes = law.states(20_000, np.random.default_rng(3)).numpy()
    counts = np.bincount(np.ravel_multi_index(codes.T, DOMAIN.cardinalities), minlength=probs.size)
    limit = total_variation_bound(probs.size, 20_000)
    assert 0.5 * np.abs(counts / 20_000 - probs.reshape(-1)).sum() < limit
    singles = forest_law(RowMargins(data), graph, pairs=False)
    if len(law.draws) != sum(not draw.parents for draw in law.draws):  # negative control
        other = np.exp(exact_table(singles.hypergraph, singles.tables)).reshape(-1)
        assert 0.5 * np.abs(counts / 20_000 - other).sum() > limit


def test_a_forest_is_the_best_among_all():
    """Against all 16 spanning trees of four variables, by the likelihood of the smoothed fits."""
    data = skewed_rows(5)
    pairs = [e for e in order(2).edges if len(e) == 2]

    def value(law):
        return float(law.tables @ (data.marginal_counts(law.hypergraph.edges).numpy()))

    found = {}
    for kept in itertools.combinations(pairs, 3):
        graph = InteractionHypergraph(DOMAIN, [(n,) for n in DOMAIN.names] + list(kept), hierarchical=False)
        law = forest_law(RowMargins(data), graph, smoothing=1e-6)
        if sum(bool(draw.parents) for draw in law.draws) == 3:
            found[kept] = value(law)
    assert len(found) == 16
    best = forest_law(RowMargins(data), order(2), smoothing=1e-6)
    assert_close(value(best), max(found.values()), absolute=1e-3)
    assert sorted(found.values())[-2] < max(found.values()) - 1e-2


def test_annealing_from_the_law_itself_has_no_variance_and_a_forest_balances():
    data, graph = skewed_rows(), order(2)
    forest = forest_law(RowMargins(data), graph)
    wide = forest_law(RowMargins(data), graph, pairs=False)
    settings = dataclasses.replace(QUICK, refresh_temperatures=10)
    found = annealed_population(graph, forest.balanced(), settings, (forest,), 0, 500)
    assert_close(found.log_weights, np.full(500, float(exact_log_partition(graph, forest.balanced()))), absolute=1e-9)
    other = annealed_population(graph, forest.balanced(), settings, (wide,), 0, 500)  # control
    assert np.ptp(other.log_weights) > 0.1
    law = forest_law(RowMargins(skewed_rows()), order(2))
    balanced = law.balanced()
    assert_close(exact_table(order(2), balanced), exact_table(order(2), law.tables), absolute=1e-10)
    assert_close(parametrization(order(2)).purify(torch.from_numpy(balanced))[0], balanced, absolute=1e-10)


def test_a_network_is_closer_than_a_forest_and_adds_no_parents_to_noise():
    data = skewed_rows(size=3000)
    law = forest_law(RowMargins(data), order(2))
    network = network_law(data, order(2), law)

    def divergence(start):
        truth = data.table().numpy() / data.total_count
        seen = truth > 0
        return float((truth[seen] * (np.log(truth[seen]) - exact_table(start.hypergraph, start.tables)[seen])).sum())

    assert divergence(network) < 0.7 * divergence(law)
    noise = Observations(DOMAIN, torch.from_numpy(np.random.default_rng(0).integers(0, [2, 3, 4, 2], (3000, 4))))
    quiet = network_law(noise, order(2), forest_law(RowMargins(noise), order(2)))
    assert not any(draw.parents for draw in quiet.draws)
    # the best of many columns of noise gains something in any case
    wide = Domain.from_cardinalities({f"v{i}": 2 for i in range(60)})
    noise = Observations(wide, torch.from_numpy(np.random.default_rng(0).integers(0, 2, (500, 60))))
    quiet = network_law(noise, order(1, wide), forest_law(RowMargins(noise), order(1, wide)))
    assert sum(len(draw.parents) for draw in quiet.draws) <= 6


@pytest.mark.parametrize("start", ["network", "tree", "independent"])
def test_training_starts_from_any_law(start):
    made = trainer(start=start, num_iterations=150, num_chains=2000)
    assert made.train().status == "max_iterations"
    goal = rows().marginal_counts(order(2).edges).numpy() / rows().total_count
    eta = exact_statistics(order(2), exact_table(order(2), made.tables))
    assert np.abs(eta - goal).max() < stats.norm.isf(FALSE_ALARM_RATE / 2 / len(goal)) * 0.5 / math.sqrt(2000)
    exact = float(exact_log_partition(order(2), made.tables))
    assert abs(float(made.log_partition().value) - exact) < 6 * 0.02


@pytest.mark.parametrize("counted", [128, 6, 0])
def test_margins_are_frequencies_of_the_states(monkeypatch, counted):
    monkeypatch.setattr(bits, "_PASSES", counted)  # cells counted one by one, or added up together
    made = trained(margin_states=3000)
    sets = [("a",), ("d", "b"), ("a", "b", "c", "d"), (), ("a", "b", "c")]
    probs, size = made.margins(sets)
    codes = made._margin_states()[0].codes
    assert codes.shape == (4, 3000)
    start = 0
    for members in ([0], [1, 3], [0, 1, 2, 3], [], [0, 1, 2]):
        shape = [list(CARDS.values())[i] for i in members]
        table = np.zeros(shape)
        cells = np.ravel_multi_index([codes[i].astype(int) for i in members], shape) if members else np.zeros(3000, int)
        np.add.at(table.reshape(-1), cells, 1 / 3000)
        assert_close(probs[start : start + table.size], table.reshape(-1), relative=1e-9, absolute=1e-12)
        start += table.size
    assert start == len(probs)
    assert 100 < size < 3000.001
    assert torch.equal(made.margins(sets).probs, probs)


def test_margins_after_interactions_left():
    made = trained(num_iterations=100, num_chains=2000)
    kept = InteractionHypergraph(DOMAIN, [("a",), ("b",), ("c",), ("d",), ("a", "b")])
    made.restructure(kept)
    check_margin_of_a_and_b(made)


def check_margin_of_a_and_b(made):
    probs, size = made.margins([("a", "b")])
    law = np.exp(exact_table(made.hypergraph, made.tables)).sum((2, 3)).reshape(-1)
    assert 0.5 * np.abs(probs.numpy() - law).sum() < total_variation_bound(6, int(size))
    return size


def test_margins_of_few_effective_chains_are_annealed():
    made = trained()
    count = len(made._population.codes)
    lopsided = np.where(np.arange(count) == 0, 0.0, -100.0)
    made.load_state_dict({**made.state_dict(), "log_weights": torch.from_numpy(lopsided)})
    assert check_margin_of_a_and_b(made) > 50


# Pieces


def test_steps_of_adam():
    rng = np.random.default_rng(0)
    gradients = rng.normal(size=(5, 3))
    adam = Adam(3, 0.1)
    mean, square = np.zeros(3), np.zeros(3)
    for t, g in enumerate(gradients, 1):
        direction, metric = adam.step(g)
        mean, square = 0.9 * mean + 0.1 * g, 0.999 * square + 0.001 * g * g
        assert_close(direction, mean / (1 - 0.9**t), relative=1e-12)
        assert_close(metric, 1 / (np.sqrt(square / (1 - 0.999**t)) + 0.1), relative=1e-12)
    adam.forget_direction()
    assert_close(adam.step(gradients[0])[0], gradients[0], relative=1e-12)


def test_a_ridge_acts_on_raw_or_on_balanced_tables():
    raw, free = (Coordinates(g, InteractionRidge(2.0, {1: 0.0}), 4.0) for g in (order(2), WEAK))
    assert raw.is_raw
    assert not free.is_raw
    x = np.ones(raw.size)
    shrunk = raw.step(x, np.zeros_like(x), np.full_like(x, 0.5))
    assert set(shrunk[: sum(CARDS.values())]) == {1.0}
    assert_close(shrunk[sum(CARDS.values()) :], np.full(raw.size - sum(CARDS.values()), 1 / 1.25), relative=1e-12)
    assert Coordinates(order(2), InteractionRidge(2.0), 4.0).residual(x, np.zeros_like(x)) == 0.5


def test_disagreement_of_populations():
    rng = np.random.default_rng(2)
    graph = order(2, Domain.from_cardinalities([2, 2, 2]))
    first, second = (Population(torch.from_numpy(rng.integers(0, 2, (2000, 3))), np.zeros(2000)) for _ in range(2))
    distance, is_off = disagreement(first, second, graph)
    assert distance < 0.1
    assert not is_off
    spoiled = Population(first.codes[:, [0, 0, 2]], first.log_weights)  # only a pair can show it
    distance, is_off = disagreement(spoiled, second, graph)
    joint = torch.bincount(2 * second.codes[:, 0] + second.codes[:, 1], minlength=4).double() / 2000
    other = torch.bincount(3 * first.codes[:, 0], minlength=4).double() / 2000
    assert_close(distance, float((joint - other).abs().sum() / 2), relative=1e-9)
    assert is_off
    assert Population(torch.zeros(3, 1), np.array([0.0, 0.0, -1000.0])).effective_size == 2.0


@pytest.mark.parametrize(
    ("is_missing", "drift", "is_even", "is_off"),
    [
        (False, 0.0, True, False),
        (False, 4.0, True, False),  # absolute weights of many variables drift
        (False, 4.0, False, True),
        (True, math.log(2.0), True, True),
        (True, 4.0, True, True),  # a mode that was missed shows in the laws of pairs, whatever its weight
        (True, 4.0, False, True),
    ],
)
def test_a_check_tells_a_missed_mode_from_weights_that_drift(monkeypatch, is_missing, drift, is_even, is_off):
    graph = order(2)
    problem = Problem(graph, np.zeros(graph.num_terms), trainer(graph)._starts(), Coordinates(graph, None, 100.0))
    path = SampledPath(problem, QUICK, np.zeros(graph.num_terms), None, 0)
    modes = torch.arange(2000)[:, None].expand(-1, len(CARDS)) % 2  # all levels alike
    before = Population(modes * (not is_missing), np.zeros(2000))
    fresh = Population(modes, np.full(2000, drift), is_even)
    monkeypatch.setattr(path, "_annealed", lambda *_: fresh)
    assert path._compared(before, 1).is_off == is_off


def test_a_smooth_ridge_acts_like_its_gradient():
    """Steps stay at the optimum and never leave it further away, also when they are long."""
    levels = [Variable("a", kind="ordinal", labels=tuple("12345")), Variable("b", kind="ordinal", labels=tuple("1234"))]
    domain = Domain([*levels, *Domain.from_cardinalities({"c": 2})])
    ridge = InteractionRidge(300.0, smoothness=0.9)
    rng = np.random.default_rng(0)
    for graph in (order(2, domain), InteractionHypergraph(domain, [("a", "b")], hierarchical=False)):
        coordinates = Coordinates(graph, ridge, 10.0)
        hessian = np.stack([ridge.gradient(unit, graph) / 10 for unit in np.eye(coordinates.size)])
        pull = rng.normal(size=coordinates.size)
        best = np.linalg.solve(hessian, pull)
        sizes = np.full_like(pull, 5.0)
        assert_close(coordinates.step(best, pull, sizes), best, relative=1e-8, absolute=1e-10)
        assert coordinates.residual(best, pull) < 1e-8
        x = best + rng.normal(size=best.shape)
        for _ in range(50):
            new = coordinates.step(x, pull, sizes)
            assert (new - best) @ hessian @ (new - best) < (x - best) @ hessian @ (x - best)
            x = new


def test_rounds_of_evidence():
    options = {"penalty": InteractionRidge(1.0, {1: 0.05}), "evidence": EvidenceRounds(2), "num_iterations": 100}
    made = trainer(**options)
    report = made.train()
    assert report.num_iterations == 300
    assert "parameters are effective" in report.notes[-1]
    assert made.penalty.strength(("a",)) == 0.05
    strengths = {edge: made.penalty.strength(edge) for edge in order(2).edges if len(edge) == 2}
    assert all(value > 1 for value in strengths.values())  # the rows are independent
    other = trainer(**options)
    other.load_state_dict(made.state_dict())
    assert other.penalty == made.penalty
    for each in (made, other):
        each.train()
    assert equal_states(made.state_dict(), other.state_dict())
    made.penalty = InteractionRidge(3.0)
    assert made.penalty == InteractionRidge(3.0)


def test_a_union_weighs_populations_by_what_they_stand_for():
    first = Population(torch.zeros(300, 1, dtype=torch.long), np.full(300, math.log(2.0)))
    second = Population(torch.ones(100, 1, dtype=torch.long), np.full(100, math.log(6.0)))
    union = first.joined(second)
    assert_close(union.log_z, math.log(3.0), relative=1e-12)
    states = union.resampled(1000, np.random.default_rng(0))
    assert abs(int(states.codes.sum()) - 500) <= 1
    assert_close(states.log_weights, np.full(1000, math.log(3.0)), relative=1e-12)


@pytest.mark.parametrize("graph", [order(2), WEAK], ids=["raw", "free"])
def test_plain_steps_follow_the_gradient(graph):
    data, codes = rows(), torch.from_numpy(np.random.default_rng(5).integers(0, [2, 3, 4, 2], (50, 4)))
    goal = data.marginal_counts(graph.edges).numpy() / data.total_count
    coordinates, made = Coordinates(graph, None, data.total_count), trainer(graph)
    moved = {}
    for name in ("gradient", "adam"):
        settings = dataclasses.replace(QUICK, optimiser=name, max_change=1e9, refresh_every=None)
        problem = Problem(graph, goal, made._starts(), coordinates)
        path = SampledPath(problem, settings, np.zeros(graph.num_terms), Population(codes, np.zeros(50)), 0)
        assert path._step(0.5)
        moved[name] = path._x
    eta = recompute_counts(graph, codes, np.full(50, 1 / 50))
    assert_close(moved["gradient"], 0.5 * coordinates.gradient(goal - eta), relative=1e-9, absolute=1e-12)
    assert np.abs(moved["adam"] - moved["gradient"]).max() > 0.01  # control


def test_more_chains_may_polish():
    made = trained(restart=False)
    made.settings = dataclasses.replace(made.settings, num_chains=1200, damping=2e-4)
    made.train()
    assert len(made._population.codes) == 1200


# Determinism, state, interrupts


@pytest.mark.parametrize("restart", [True, False, "doubt"])
def test_a_loaded_trainer_goes_on_alike(restart):
    first, second = (trainer(restart=restart) for _ in range(2))
    first.train()
    second.load_state_dict({k: v.clone() for k, v in first.state_dict().items()})
    assert torch.equal(first.margins([("a", "b")]).probs, second.margins([("a", "b")]).probs)
    for made in (first, second):
        made.restructure(order(3))
        made.train()
    assert equal_states(first.state_dict(), second.state_dict())
    assert first.loss(rows()) == second.loss(rows())


def test_a_call_goes_on_for_less_while_nothing_objects(monkeypatch):
    """Half the steps after interactions joined and a quarter else; a check that objects costs the whole path again."""
    paths, original = [], SampledPath.__init__

    def noted(self, problem, settings, *rest, is_start=False, gives_up=False):
        paths.append((settings.num_iterations, is_start))
        original(self, problem, settings, *rest, is_start=is_start, gives_up=gives_up)

    monkeypatch.setattr(SampledPath, "__init__", noted)
    made = trainer(restart="doubt")
    for graph in (order(2), order(2), order(3), order(2)):
        made.restructure(graph)
        made.train()
    assert paths == [(40, True), (10, False), (20, False), (10, False)]
    monkeypatch.setattr(_path, "disagreement", lambda *_: (1.0, True))
    made.train()
    made.train()
    assert paths[4:] == [(10, False), (40, True), (40, True)]


@pytest.mark.parametrize(("evenness", "columns", "second"), [(0.95, 4, 10), (0.85, 4, 40), (0.0, 4, 40), (0.0, 50, 10)])
def test_fits_of_a_search_go_on_where_annealed_weights_were_even_or_columns_are_many(
    evenness, columns, second, monkeypatch
):
    codes = torch.randint(2, (60, columns), generator=torch.Generator().manual_seed(0))
    rows = Observations(Domain.from_cardinalities([2] * columns), codes)
    recipe = checked_recipe(rows, "sampled", 0, None, 2, 0, progress=False)
    names = rows.domain.names
    graph = InteractionHypergraph(rows.domain, [*((name,) for name in names), names[:2]])
    made = recipe.trainer(rows, graph, InteractionRidge(1.0))
    short = {"num_chains": 64, "num_iterations": 40, "refresh_every": 20, "refresh_chains": 64}
    made.settings = dataclasses.replace(made.settings, **short, refresh_temperatures=10)
    original = SampledPath._compared
    monkeypatch.setattr(
        SampledPath, "_compared", lambda *given: original(*given)._replace(is_off=False, evenness=evenness)
    )
    assert [made.train().num_iterations for _ in range(2)] == [40, second]


@pytest.mark.parametrize(
    ("trainer_name", "sampling", "edges", "expected"),
    [
        ("auto", None, [(i, i + 1) for i in range(39)], "exact"),
        ("auto", None, list(itertools.combinations(range(40), 2)), "sampled"),
        ("auto", SampledTraining(), [(i, i + 1) for i in range(39)], "sampled"),
        ("sampled", None, [(i, i + 1) for i in range(39)], "sampled"),
    ],
)
def test_the_last_fit_is_exact_where_nothing_else_was_asked_for_and_elimination_is_cheap(
    trainer_name, sampling, edges, expected
):
    codes = torch.randint(2, (60, 40), generator=torch.Generator().manual_seed(0))
    rows = Observations(Domain.from_cardinalities([2] * 40), codes)
    recipe = checked_recipe(rows, trainer_name, 0, None, 2, 0, progress=False, sampling=sampling)
    names = rows.domain.names
    pairs = [tuple(names[i] for i in edge) for edge in edges]
    graph = InteractionHypergraph(rows.domain, [*((name,) for name in names), *pairs])
    assert (recipe.name, recipe.last(graph).name) == ("sampled", expected)


@pytest.mark.parametrize("error", [0.01, math.inf])
def test_a_call_that_went_on_is_made_again_where_log_z_has_no_error_bar(error, monkeypatch):
    made = trainer(restart="doubt", penalty=InteractionRidge(1.0), evidence=EvidenceRounds(1))
    made.train()
    paths = noted(monkeypatch, SampledPath, "__init__")
    made.train()
    strengths, log_z = made.penalty, made.log_partition()
    monkeypatch.setattr(
        type(made), "_forward_log_z", lambda _: dataclasses.replace(log_z, std_error=torch.tensor(error))
    )
    again = made.retrained()
    assert made.penalty == strengths
    assert (again is not None) == math.isinf(error)
    made.train()
    assert made.penalty != strengths
    mended = [4, 4, 4]  # short paths; then the whole one, and short ones again
    lengths = [settings.num_iterations for _, _, settings, *_ in paths]
    assert lengths == ([10, 10, *mended, 40, *mended, 40, 10] if math.isinf(error) else [10] * 4)


def without_error_bar(number, monkeypatch, made):
    """A trainer whose first so many estimates of log Z have no error bar, and what makes its paths."""
    left = [number]

    def doubted(model, settings, *rest):
        found, _ = annealed_log_z(model, settings, *rest)
        left[0] -= 1
        if left[0] < 0:
            return found, None
        return dataclasses.replace(found, std_error=torch.tensor(math.inf)), Population(made._population.codes, far)

    far = np.full(QUICK.num_chains, 50.0)  # such weights leave nothing of the other chains
    monkeypatch.setattr(sampled, "annealed_log_z", doubted)
    return noted(monkeypatch, SampledPath, "__init__")


@pytest.mark.parametrize("number", range(5))
def test_training_goes_on_while_log_z_has_no_error_bar(number, monkeypatch):
    made = trainer()
    made.train()
    before = {k: v.clone() for k, v in made.state_dict().items()}
    paths = without_error_bar(number, monkeypatch, made)
    report = made.retrained()
    count = QUICK.num_chains
    chains = [len(population.codes) for _, _, _, _, population, *_ in paths]
    assert chains == [2 * count] * min(number, 3)  # with the states that the runs found
    assert equal_states(made.state_dict(), before) == (number == 0)
    if number == 0:
        assert report is None
    else:
        assert report.num_iterations >= 4 * min(number, 3)
        assert report.notes[-1].startswith(f"training went on {min(number, 3)} times")
        assert report.notes[-1].endswith("none yet") == (number > 3)


def test_an_interrupt_while_training_goes_on_leaves_the_trainer_as_it_was(monkeypatch):
    made = trainer()
    made.train()
    before = {k: v.clone() for k, v in made.state_dict().items()}
    without_error_bar(3, monkeypatch, made)
    noted(monkeypatch, WeightedChains, "eta", 7)
    with pytest.raises(KeyboardInterrupt):
        made.retrained()
    assert equal_states(made.state_dict(), before)


def test_a_report_is_that_of_all_paths_that_there_was_time_for(monkeypatch):
    made, plain = trainer(), trainer()
    monkeypatch.setattr(SampledTrainer, "retrained", Mock(side_effect=TimeUp))
    assert fit_of(made) == plain.train()
    assert equal_states(made.state_dict(), plain.state_dict())
    made, plain = trainer(), trainer()
    report, again = plain.train(), TrainingReport("diverged", 7, 0.5, ("a note",))
    monkeypatch.setattr(SampledTrainer, "retrained", lambda _: again)
    whole = fit_of(made)
    assert (whole.status, whole.num_iterations, whole.gradient_norm) == ("diverged", report.num_iterations + 7, 0.5)
    assert whole.notes == (*report.notes, "a note")


def test_checks_are_rare_and_coarse_while_nothing_objects(monkeypatch):
    runs, original = [], _path.annealed_population

    def noted(graph, tables, settings, *rest):
        runs.append(settings.refresh_temperatures)
        return dataclasses.replace(original(graph, tables, settings, *rest), is_even=runs[-1] >= even_from)

    monkeypatch.setattr(_path, "annealed_population", noted)
    long = {"num_iterations": 160, "refresh_every": 10}
    even_from = 0
    trained(**long)  # after steps 10, 30, 70, 110, 150 and 160
    assert runs == [5] * 5 + [20]
    runs.clear()
    even_from = 10
    trained(**long)  # the first check is made again with twice the temperatures, which do from then on
    assert runs == [5] + [10] * 5 + [20]
    runs.clear()
    even_from = 100
    trained(**long)  # uneven weights say little: checks are whole and frequent
    assert runs == [5, 10] + [20] * 16
    runs.clear()
    answers = iter([False, True, True])  # the second check objects, and so does a whole one in its place
    monkeypatch.setattr(_path, "disagreement", lambda *_: (1.0, next(answers, False)))
    even_from = 0
    trained(**long)  # after steps 10, 30, 40, 50, 60, 70, 90, 130 and 160
    assert runs == [5, 5] + [20] * 8
    runs.clear()
    monkeypatch.setattr(_path, "disagreement", lambda *_: (1.0, True))
    trained(**long)  # every ten steps, and a round of 25 steps after each final check that objects
    assert runs == [5] + [20] * (15 + 7)


def test_training_is_given_up_when_the_time_is_over():
    made = trained(restart=False)
    before = {k: v.clone() for k, v in made.state_dict().items()}
    with ending_at(time.monotonic() - 1), pytest.raises(TimeUp):
        made.train()
    assert equal_states(made.state_dict(), before)
    with ending_at(time.monotonic() + 1000):
        made.train()
    assert not equal_states(made.state_dict(), before)  # control


def test_seeds_matter():
    first, second, other = (trainer(seed=s) for s in (0, 0, 1))
    for made in (first, second, other):
        made.train()
    assert torch.equal(first.tables, second.tables)
    assert not torch.equal(first.tables, other.tables)


def test_questions_change_nothing():
    asked, quiet = trainer(restart=False), trainer(restart=False)
    asked.margins([("a", "b")])
    for made in (asked, quiet):
        made.train()
    asked.margins([("a", "c")])
    asked.loss(rows(1))
    asked.log_partition()
    for made in (asked, quiet):
        made.train()
    assert equal_states(asked.state_dict(), quiet.state_dict())


@pytest.mark.parametrize("restart", [True, False, "doubt"])
def test_an_interrupt_leaves_the_trainer_as_it_was(restart, monkeypatch):
    made, undisturbed = trainer(restart=restart), trainer(restart=restart)
    for each in (made, undisturbed):
        each.train()
    before = {k: v.clone() for k, v in made.state_dict().items()}
    with monkeypatch.context() as patch:
        noted(patch, WeightedChains, "eta", 7)
        with pytest.raises(KeyboardInterrupt):
            made.train()
    assert equal_states(made.state_dict(), before)
    for each in (made, undisturbed):
        each.train()
    assert equal_states(made.state_dict(), undisturbed.state_dict())


# Divergence


def test_an_absurd_rate_is_recovered_from_or_reported_and_an_ordinary_one_needs_nothing():
    wild = {"max_change": 1e9, "damping": 1e-3, "num_iterations": 200, "num_chains": 1000}
    recovered = trainer(learning_rate=3e2, penalty=InteractionRidge(1.0), **wild)
    start = recovered.loss(rows()).value
    report = recovered.train()
    assert report.status == "max_iterations"
    assert any("went back to its last sound parameters" in note for note in report.notes)
    assert recovered.loss(rows()).value < start
    lost = trainer(learning_rate=1e12, **wild)
    first = lost._forest().balanced()
    report = lost.train()
    assert report.status == "diverged"
    assert any("diverged" in note for note in report.notes)
    assert_close(lost.tables, first, relative=1e-9, absolute=1e-12)  # the law of the start was the last sound one
    assert math.isfinite(lost.loss(rows()).value)
    report = trainer(num_iterations=200, num_chains=1000).train()
    assert (report.status, report.notes, report.num_iterations) == ("max_iterations", (), 200)


# Log Z


def test_log_z_has_an_error_bar_a_sandwich_and_a_budget():
    made = trained(num_iterations=100, loss_standard_error=0.005)
    exact = float(exact_log_partition(order(2), made.tables))
    loss = made.loss(rows())
    assert loss.kind == "estimated"
    assert 0 < loss.std_error <= 0.005
    result = made.log_partition()
    assert (result.kind, float(result.std_error)) == ("biased", loss.std_error)
    # a standard error that holds as a normal one does up to three of them; at 1e-6 it is allowed twice as many
    assert abs(float(result.value) - exact) < 6 * loss.std_error
    assert abs(float(result.sandwich.gap)) < 6 * math.hypot(
        float(result.sandwich.forward_error), float(result.sandwich.reverse_error)
    )
    assert not any("no reverse run" in note for note in result.notes)
    assert made.loss(rows()) == loss
    made = trained(loss_standard_error=1e-9, loss_budget=1)
    result = made.log_partition()
    assert float(result.std_error) > 1e-9
    assert any("raise loss_budget" in note for note in result.notes)


def run_of(made):
    """A forward run of a trainer's model from its first start, and the verdict on it alone."""
    run = forward(_FromLaw.of(made._model, made.settings, made._starts()[0], (1024, 500)), 0)
    return run, _judged(run, (), [states_met(run)])


def states_met(run, above=-math.inf):
    """Two states, each with a log q that is so much above the estimate of log Z of a run."""
    states = torch.stack([torch.zeros(4, dtype=torch.long), torch.ones(4, dtype=torch.long)])[None]
    value = float(log_mean_weight((run.log_weights + run.model.log_z0).numpy()).value[0])
    return states, torch.full((1, 2), value + max(above, -1e3), dtype=torch.float64)


def test_a_refused_error_bar_leaves_no_upper_limit_and_states_met_bound_from_below():
    """Where a run from a wider law, or the reverse run, disagrees, the limits of the forward run mean nothing."""
    run, good = run_of(trained())
    value = float(good.value)
    assert float(good.lower) < value < float(good.upper) < math.inf  # control: runs that agree
    wider = [run._replace(log_weights=torch.full((1, 64), value + more - float(run.model.log_z0))) for more in (20, 0)]
    ahead, behind = (log_mean_weight(np.full((1, 64), number)) for number in (value, 20 - value))
    contradicted, disagreeing = _judged(run, wider[:1], [states_met(run)]), _sandwiched(good, ahead, behind)
    for found in (contradicted, disagreeing):
        assert (found.verdict, found.upper.item()) == ("unreliable", math.inf)
    assert float(contradicted.value) == pytest.approx(value + 20.0)
    assert float(contradicted.lower) == float(good.lower)  # that of a run without bias holds all the same
    assert float(disagreeing.lower) == pytest.approx(value + math.log(0.01), abs=1e-12)  # Markov at 99 %
    near = _judged(run, wider[1:], [states_met(run)])
    assert (near.value, near.std_error, near.verdict) == (good.value, good.std_error, "consistent")

    def bounded(above):
        return _judged(run, (), [states_met(run, above)])

    low = bounded(-5.0)  # control: a bound below the estimate changes nothing
    assert low.verdict == "consistent" and float(low.value) == float(good.value)
    assert float(low.lower_bound) == pytest.approx(float(good.value) - 5 + math.log(2), abs=1e-9)
    high = bounded(5.0)
    assert high.verdict == "unreliable" and float(high.upper) == math.inf
    assert float(high.lower) == float(high.value) == pytest.approx(float(good.value) + 5 + math.log(2), abs=1e-9)
    assert any("lower bound of log Z" in note for note in high.notes)
    within = bounded(float(good.std_error) - math.log(2))
    assert within.verdict == "consistent"
    assert float(within.value) == pytest.approx(float(good.value) + float(good.std_error), abs=1e-9)


# Options


SWEEPS = {"sweeps_per_step": 2, "progress": True}
PLAIN = {"optimiser": "gradient", "learning_rate": 0.5}


@pytest.mark.parametrize(
    "options", [{"chains": "persistent"}, {"engine": "torch"}, {"precision": torch.float64}, SWEEPS, PLAIN], ids=str
)
def test_options_reach_the_same_law(options):
    made = trainer(order(2), num_iterations=150, num_chains=1000, penalty=InteractionRidge(1.0), **options)
    made.restructure(order(3))
    report = made.train()
    assert report.status == "max_iterations"
    goal = rows().marginal_counts(order(2).edges).numpy() / rows().total_count
    eta = exact_statistics(order(2), exact_table(order(3), made.tables))
    # a ridge of 1 on about 430 rows moves eta by a few thousandths; 1,000 chains have errors of 0.016 at most
    limit = stats.norm.isf(FALSE_ALARM_RATE / 2 / len(goal)) * 0.5 / math.sqrt(1000) + 0.01
    assert np.abs(eta - goal).max() < limit


def test_settings_that_are_refused():
    wrong = {"num_chains": 2, "num_iterations": 0, "learning_rate": 0.0, "damping": math.inf, "average": 0.0}
    wrong |= {"restart": "never"}
    wrong |= {"resample_below": 1.5, "warm_up": 1.0, "refresh_every": 0, "seed": 2**62, "sweeps_per_step": True}
    for name, value in wrong.items():
        with raises("out-of-range", name):
            SampledTraining(**{name: value})
    with raises("out-of-range", "num_iterations"):
        SampledTraining(num_iterations=True)
    for name in ("chains", "start", "optimiser"):
        with raises("unknown-choice", name):
            SampledTraining(**{name: "tempered"})


def test_arguments_that_are_refused():
    with raises("wrong-type", "settings"):
        SampledTrainer(rows(), order(2), settings=3)
    made = trainer()
    lopsided = {**made.state_dict(), "log_weights": torch.zeros(3)}
    for state, words in ((trainer(order(3)).state_dict(), "tables of shape .*restructure"), (lopsided, "log_weights")):
        with pytest.raises(InputError, match=f"state: expected {words}") as caught:
            made.load_state_dict(state)
        assert caught.value.code == "wrong-shape"
    made.penalty = InteractionRidge(1.0, by_edge={("a", "b"): 2.0})
    assert made.penalty.strength(("b", "a")) == 2.0


@pytest.mark.fixed_seed  # of the control: a chain meets the state in a few runs of a hundred
def test_log_z_is_held_to_the_rows_and_to_ascents_from_them(monkeypatch):
    monkeypatch.setattr(_sampled_loss, "_FIRST", (32, 20))
    model = needle(18, 22.0, seed=1)
    graph, tables = model.energy.hypergraph, model.energy.tables
    planted = torch.tensor(np.unravel_index(int(tables.argmax()), (2,) * 18))
    starts = (law_of_singles(graph, tables.numpy()),)
    blind, ends = annealed_log_z(model.energy, SampledTraining(), starts, 0)
    assert ends is None
    assert blind.verdict == "consistent"  # the control
    assert float(blind.value) < model.log_z - 9
    near = planted.clone()
    near[0] = 1 - near[0]
    for row in (planted, near):
        found, ends = annealed_log_z(model.energy, SampledTraining(), starts, 0, row[None])
        assert ends.codes.shape == (SampledTraining().num_chains, 18)
        assert found.verdict == "unreliable"
        assert 22.0 <= float(found.lower_bound) <= model.log_z
        assert float(found.value) == pytest.approx(model.log_z, abs=1e-3)
        assert any(f"the state (x0={int(planted[0])}, x1={int(planted[1])}," in note for note in found.notes)


def test_trainers_hold_log_z_to_their_rows(monkeypatch):
    calls = noted(monkeypatch, sampled, "annealed_log_z")
    rows = Observations.from_tensor([[0, 1], [1, 1], [0, 1], [1, 0]], Domain.from_cardinalities([2, 2]), [1, 2, 3, 0])
    trainer = SampledTrainer(rows, InteractionHypergraph.saturated(rows.domain))
    trainer.loss(rows)
    assert [arguments[4].tolist() for arguments in calls] == [[[0, 1], [1, 1]]]
