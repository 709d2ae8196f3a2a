"""Sampled training against exact optima, and laws with modes that chains can miss."""

import math

import numpy as np
import pytest
import torch
from scipy import optimize, stats

from pyro_hoim import Domain, InteractionHypergraph, Observations
from pyro_hoim.log_linear import InteractionRidge, LogLinearEnergy, SampledTrainer, SampledTraining, parametrization
from pyro_hoim.log_linear.training.sampled._weighted_chains import Population, annealed_population
from pyro_hoim.log_linear.training.sampled.trainer import annealed_log_z
from pyro_hoim.testing import FALSE_ALARM_RATE, exact_log_partition, exact_statistics, exact_table, random_tables

DOMAIN = Domain.from_cardinalities({"a": 2, "b": 3, "c": 3, "d": 2})
PAIRS = InteractionHypergraph.from_order(DOMAIN, 2)
WEAK = InteractionHypergraph(DOMAIN, [("a",), ("b",), ("a", "b"), ("b", "c", "d")], hierarchical=False)
CHAINS = 4000


def sample(graph, seed, size):
    rng = np.random.default_rng(seed)
    law = np.exp(exact_table(graph, random_tables(graph, rng)))
    return Observations.from_table(DOMAIN, rng.multinomial(size, law.reshape(-1)).reshape(law.shape))


def raw_optimum(data, graph, ridge):
    """Tables that minimise the mean loss plus a ridge on raw tables, by enumeration."""
    goal = data.marginal_counts(graph.edges).numpy() / data.total_count
    strengths = ridge.terms(graph) / data.total_count

    def value(tables):
        loss = float(exact_log_partition(graph, tables)) - tables @ goal
        eta = exact_statistics(graph, exact_table(graph, tables))
        return loss + 0.5 * float(strengths @ tables**2), eta - goal + strengths * tables

    found = optimize.minimize(value, np.zeros(graph.num_terms), jac=True, method="L-BFGS-B", tol=1e-14)
    assert np.abs(value(found.x)[1]).max() < 1e-5
    return found.x


def limits(eta):
    """What the sampling error of one gradient may do to eta; averaging over iterations only makes it less."""
    quantile = stats.norm.isf(FALSE_ALARM_RATE / 2 / len(eta))
    return quantile * np.sqrt(eta * (1 - eta) / CHAINS) + 1e-4


@pytest.mark.parametrize("strength", [2.0, 100.0])
def test_a_fit_reaches_the_optimum_of_the_ridge(strength):
    data = sample(PAIRS, 1, 400)
    eta, wrong = (
        exact_statistics(PAIRS, exact_table(PAIRS, raw_optimum(data, PAIRS, InteractionRidge(s))))
        for s in (strength, 5 * strength)
    )
    settings = SampledTraining(num_chains=CHAINS, num_iterations=300, learning_rate=0.05, damping=0.01)
    trainer = SampledTrainer(data, PAIRS, penalty=InteractionRidge(strength), settings=settings)
    report = trainer.train()
    found = exact_statistics(PAIRS, exact_table(PAIRS, trainer.tables))
    assert report.status == "max_iterations"
    assert (np.abs(found - eta) <= limits(eta)).all()
    if strength == 100.0:  # negative control: another strength is told apart
        assert (np.abs(found - wrong) > limits(wrong)).any()


@pytest.mark.parametrize("penalty", [InteractionRidge(20.0), InteractionRidge(4.0, {1: 0.0, 3: 60.0})], ids=str)
def test_balanced_optima_are_stationary(penalty):
    """The exact proximal residual at the end is within the sampling error of a gradient."""
    data, graph = sample(PAIRS, 2, 400), WEAK
    settings = SampledTraining(num_chains=CHAINS, num_iterations=300, learning_rate=0.05, damping=0.01)
    trainer = SampledTrainer(data, graph, penalty=penalty, settings=settings)
    trainer.train()
    codings = parametrization(graph)
    theta = codings.from_tables(trainer.tables).numpy()
    goal = data.marginal_counts(graph.edges) / data.total_count

    def residual(tables):
        eta = torch.from_numpy(exact_statistics(graph, exact_table(graph, tables)))
        ascent = codings.free_statistics(goal - eta).numpy()
        x = codings.from_tables(tables).numpy()
        return np.abs(penalty.prox(x + ascent, 1 / data.total_count, graph) - x).max()

    # free statistics are projections on orthonormal contrasts: an entry's variance is at most the largest of eta's
    limit = stats.norm.isf(FALSE_ALARM_RATE / 2 / len(theta)) * 0.5 / math.sqrt(CHAINS)
    assert residual(trainer.tables) < limit
    assert residual(torch.zeros_like(trainer.tables)) > limit  # negative control


# Modes that the data do not have

SPINS = Domain.from_cardinalities([2] * 8)
ALL_PAIRS = InteractionHypergraph.from_order(SPINS, 2)
RIDGE = InteractionRidge(0.1)
PATTERNS = torch.tensor([[0, 1] * 4, [1, 0] * 4])


def two_groups():
    """Balanced tables with four modes: the spins of even and those of odd positions agree among themselves."""
    tables = torch.zeros(ALL_PAIRS.num_terms, dtype=torch.float64)
    for edge, where in ALL_PAIRS.term_slices.items():
        i, j = (SPINS.index(name) for name in edge) if len(edge) == 2 else (0, 1)
        if (i - j) % 2 == 0:
            tables[where] = 2 * torch.tensor([1.0, -1.0, -1.0, 1.0], dtype=torch.float64)
    return tables


def two_patterns():
    """Rows of two of the four modes, those in which even and odd positions differ."""
    return Observations(SPINS, PATTERNS, torch.tensor([500.0, 500.0]))


def distance(trainer):
    """Total variation between the law of the tables and that of the rows."""
    law = np.exp(exact_table(ALL_PAIRS, trainer.tables))
    return 0.5 * float(np.abs(law - two_patterns().table().numpy() / 1000).sum())


def trained(tables=None, population=None, is_calm=False, **options):
    settings = SampledTraining(num_chains=2000, num_iterations=150, learning_rate=0.05, damping=0.01, **options)
    trainer = SampledTrainer(two_patterns(), ALL_PAIRS, penalty=RIDGE, settings=settings)
    if tables is not None:
        trainer.load_state_dict({**trainer.state_dict(), "tables": tables})
    if population is not None:
        state = {"codes": population.codes, "log_weights": torch.from_numpy(population.log_weights)}
        state["doubt"] = torch.tensor([not is_calm, False])
        trainer.load_state_dict({**trainer.state_dict(), **state})
    return trainer, trainer.train()


def test_weighted_chains_remove_spurious_modes_and_persistent_ones_do_not():
    start = two_groups()
    persistent, _ = trained(start, chains="persistent", restart=False)
    assert distance(persistent) > 0.3  # they started at the rows and never left their modes
    for options in ({"restart": True}, {"restart": False}):
        weighted, report = trained(start, **options)
        assert report.status == "max_iterations"
        assert distance(weighted) < 0.1


def test_a_spoiled_population_is_refreshed():
    """Chains that are all in modes of the data see no reason to change the tables; a fresh population does."""
    start = two_groups()
    log_z = float(exact_log_partition(ALL_PAIRS, start))  # that of two modes of four is less by log 2
    spoiled = Population(PATTERNS.repeat(1000, 1), np.full(2000, log_z - math.log(2)))
    refreshed, report = trained(start, spoiled, restart=False, refresh_every=25)
    assert any("a fresh annealed population differed" in note for note in report.notes)
    assert distance(refreshed) < 0.1
    doubted, report = trained(start, spoiled, is_calm=True, restart="doubt")
    assert distance(doubted) < 0.1
    assert report.num_iterations >= 150  # the path from the start, after the shorter one met an objection
    blind, report = trained(start, spoiled, restart=False, refresh_every=None)  # negative control
    assert report.notes == ()
    assert distance(blind) > 0.3


def test_log_z_is_unreliable_where_a_wide_law_finds_more():
    """A start close to the rows sees the two modes of the rows, with a small error bar; the wide one sees all four."""
    model = LogLinearEnergy(ALL_PAIRS, two_groups())
    trainer = SampledTrainer(two_patterns(), ALL_PAIRS, settings=SampledTraining(chains="weighted"))
    starts, exact = trainer._starts(), float(exact_log_partition(ALL_PAIRS, two_groups()))
    blind, _ = annealed_log_z(model, trainer.settings, starts[:1], 0)  # negative control
    assert blind.verdict == "consistent"
    assert abs(float(blind.value) - (exact - math.log(2))) < 0.1
    found, _ = annealed_log_z(model, trainer.settings, starts, 0)
    assert abs(float(found.value) - exact) < 0.1
    assert found.verdict == "unreliable"
    assert any("far from the rows" in note for note in found.notes)
    wide, _ = annealed_log_z(model, trainer.settings, starts[1:], 0)
    assert wide.verdict == "consistent"
    assert abs(float(wide.value) - exact) < 0.1


def test_a_fresh_population_holds_modes_of_either_start():
    model, settings = two_groups(), SampledTraining()
    starts = SampledTrainer(two_patterns(), ALL_PAIRS, settings=settings)._starts()

    def share(used):
        found = annealed_population(ALL_PAIRS, model.numpy(), settings, used, 0, 2000)
        weights = np.exp(found.log_weights - found.log_weights.max())
        same = (found.codes[:, 0] == found.codes[:, 1]).numpy()  # modes that the rows do not have
        return float(weights[same].sum() / weights.sum())

    assert share(starts[:1]) < 0.05  # negative control
    assert share(starts) > 0.1
    assert abs(share(starts[1:]) - 0.5) < 0.1
