"""Sampled training on a device, by whole interactions, and scores of parents in a directed network."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from other_device import AWAY, pretend
from scipy import stats

from pyro_hoim import Domain, InputError, InteractionHypergraph, Observations
from pyro_hoim.annealing import runs
from pyro_hoim.log_linear import ExactTrainer, InteractionRidge, SampledTrainer, SampledTraining
from pyro_hoim.log_linear.training.sampled import trainer as _loss
from pyro_hoim.log_linear.training.sampled._kernels import parent_scores
from pyro_hoim.log_linear.training.sampled._weighted_chains import WeightedChains, drawn, law_of_singles, schedule_of
from pyro_hoim.testing import (
    FALSE_ALARM_RATE,
    exact_log_partition,
    exact_statistics,
    exact_table,
    raises,
    random_tables,
)

DOMAIN = Domain.from_cardinalities({"a": 2, "b": 3, "c": 2})
GRAPH = InteractionHypergraph.from_order(DOMAIN, 2)
SETTINGS = SampledTraining(
    num_chains=300,
    num_iterations=30,
    learning_rate=0.1,
    damping=0.01,
    refresh_every=30,
    refresh_chains=100,
    refresh_temperatures=5,
    margin_states=300,
    loss_standard_error=0.5,
    engine="torch",
)
PLACES = ["away", pytest.param("cuda", marks=pytest.mark.cuda)]


def _made(settings):
    """Chains away from the law of their weights."""
    first, second = (random_tables(GRAPH, np.random.default_rng(seed)) for seed in (3, 4))
    law = law_of_singles(GRAPH, first)
    chains = WeightedChains(GRAPH, law.tables, settings, 1, drawn(law, 300, 2))
    chains.move_to(1.5 * second)
    return chains, first


def _asked(chains, tables):
    """Everything that a training step asks of chains, and what they come to."""
    growth = chains.growth(tables)
    found = [chains.eta(), growth, chains.spread(growth), chains.effective_size, chains.log_weights.copy()]
    chains.grow(0.5 * growth)
    found += [chains.effective_size, chains.log_weights.copy(), chains.resample(), chains.log_weights.copy()]
    return [*found, chains.population.codes, chains.population.log_z]


def test_weights_on_a_device_are_those_of_the_cpu():
    wanted = _asked(*_made(dataclasses.replace(SETTINGS, resample_below=1.0)))
    with pretend():
        chains, tables = _made(dataclasses.replace(SETTINGS, resample_below=1.0, device=str(AWAY)))
        assert chains.growth(tables).device == AWAY
        found = [part.cpu() if isinstance(part, torch.Tensor) else part for part in _asked(chains, tables)]
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=1e-9, atol=1e-12)
    assert _made(SETTINGS)[0].growth(tables).device.type == "cpu"


def test_a_step_waits_a_few_times():
    """Transfers and looks at values of a step do not grow with chains or interactions."""
    with pretend() as waits:
        chains, tables = _made(dataclasses.replace(SETTINGS, device=str(AWAY)))
        chains.chains.sweep(2)
        waits.clear()
        _ = chains.spread(chains.growth(tables)), chains.eta(), chains.effective_size
        chains.set_tables(tables)
        chains.chains.sweep(2)
    assert 0 < sum(waits.values()) <= 10, waits


def _trained(device):
    counts = 1 + np.random.default_rng(0).poisson(8.0, DOMAIN.cardinalities)
    counts[0, 0] += 60
    rows = Observations.from_table(DOMAIN, counts)
    made = SampledTrainer(rows, GRAPH, settings=dataclasses.replace(SETTINGS, device=device))
    report, log_z, margins = made.train(), made.log_partition(), made.margins([("a", "b")])
    return made, rows, report, log_z, margins


@pytest.mark.parametrize("where", PLACES)
def test_training_reaches_the_margins_of_the_rows(where, monkeypatch):
    for module, name, value in ((_loss, "_FIRST", (100, 10)), (_loss, "_ASCENT", 2), (runs, "_TEMPERED", 1)):
        monkeypatch.setattr(module, name, value)  # thousands of sweeps elsewhere
    if where == "away":
        with pretend():
            made, rows, report, log_z, margins = _trained(str(AWAY))
    else:
        made, rows, report, log_z, margins = _trained("cuda:0")
    assert report.status == "max_iterations"
    goal = rows.marginal_counts(GRAPH.edges).numpy() / rows.total_count
    eta = exact_statistics(GRAPH, exact_table(GRAPH, made.tables))
    limit = stats.norm.isf(FALSE_ALARM_RATE / 2 / len(goal)) * 0.5 / math.sqrt(300)
    assert np.abs(eta - goal).max() < limit
    assert (
        np.abs(exact_statistics(GRAPH, exact_table(GRAPH, 0 * np.asarray(made.tables))) - goal).max() > limit
    )  # control
    exact = float(exact_log_partition(GRAPH, made.tables))
    assert abs(float(log_z.value) - exact) < 6 * float(log_z.std_error)
    assert log_z.value.device.type == "cpu" and margins.sample_size > 0


def test_devices_that_are_refused():
    for name in ("gpu", "meta", "cuda:99"):
        with raises("unknown-choice", "device"):
            SampledTraining(device=name)
    with raises("wrong-type", "device"):
        SampledTraining(device=0)


# Whole interactions, and new ones more often


WIDE = Domain.from_cardinalities({"a": 2, "b": 3, "c": 2, "wide": 3000})
PAIRS = InteractionHypergraph(WIDE, [("a", "b"), ("b", "c"), ("b", "wide")], closure=True)


def test_schedules_and_refused_options():
    assert schedule_of(PAIRS, SampledTraining()).resolve(PAIRS) == ((0,), (1,), (2,), (3,))
    whole = schedule_of(PAIRS, SampledTraining(blocks="interactions"), [("a", "b")])
    assert whole.resolve(PAIRS) == ((0, 1), (1, 2), (3,))  # 9,000 states of b and wide are no block
    assert whole.emphasised == ()
    new = schedule_of(PAIRS, SampledTraining(blocks="interactions", emphasis=0.5), [("a", "b")])
    assert new.emphasised == (("a", "b"),)
    assert new.order(PAIRS, new.resolve(PAIRS), 0, 2, 0).tolist() == [[0, 1], [0, 2]]
    for options in ({"blocks": "colours"}, {"emphasis": 0.0}, {"emphasis": 1.0}):
        with pytest.raises(InputError):
            SampledTraining(**options)


def rows():
    table = [[[40, 41], [10, 9], [5, 12]], [[11, 10], [39, 40], [20, 3]]]
    return Observations.from_table(Domain.from_cardinalities({"a": 2, "b": 3, "c": 2}), table)


@pytest.mark.parametrize("options", [{"blocks": "interactions"}, {"blocks": "interactions", "emphasis": 0.5}])
def test_the_optimum_is_that_of_exact_gradients(options):
    data, ridge = rows(), InteractionRidge(1.0, by_order={1: 0.05})
    pairs = InteractionHypergraph.from_order(data.domain, 2)
    exact = ExactTrainer(data, pairs, penalty=ridge)
    exact.train()
    settings = SampledTraining(num_chains=2000, num_iterations=300, refresh_every=None, restart=False, **options)
    trainer = SampledTrainer(data, InteractionHypergraph.from_order(data.domain, 1), penalty=ridge, settings=settings)
    trainer.train()
    trainer.restructure(pairs)
    trainer.train()
    judge = ExactTrainer(data, pairs)
    judge.load_state_dict({"tables": trainer.tables})
    best, alone = exact.loss(data).value, exact_loss_of_singles(data)
    assert best <= judge.loss(data).value < best + 0.05 * (alone - best)  # control: independent columns are far


def exact_loss_of_singles(data):
    alone = ExactTrainer(data, InteractionHypergraph.from_order(data.domain, 1))
    alone.train()
    return alone.loss(data).value


def test_a_state_knows_what_was_added():
    data, ridge = rows(), InteractionRidge(1.0, by_order={1: 0.05})
    settings = SampledTraining(
        num_chains=64, num_iterations=3, refresh_every=None, restart=False, blocks="interactions", emphasis=0.5
    )
    first = SampledTrainer(data, InteractionHypergraph.from_order(data.domain, 1), penalty=ridge, settings=settings)
    first.train()
    first.restructure(InteractionHypergraph(data.domain, [("a", "b")], closure=True).add_edges([("c",)]))
    first.restructure(first.hypergraph.add_edges([("b", "c")]))
    state = first.state_dict()
    other = SampledTrainer(data, first.hypergraph, penalty=ridge, settings=settings)
    other.load_state_dict(state)
    assert other.state_dict()["added"].tolist() == [False, False, False, False, True]
    for trainer in (first, other):
        trainer.train()
    assert torch.equal(first.tables, other.tables)


# Scores of parents


CARDS = (2, 3, 4, 1)


def left_out(codes, counts, child, parents, fitted, prior):
    """Sum over observations of the log-probability of the child given the others with equal parents, and a prior."""
    total = 0.0
    observations = [row for row, count in zip(codes.tolist(), counts.tolist(), strict=True) for _ in range(int(count))]
    for n, row in enumerate(observations):
        state = [row[j] for j in parents]
        alike = [o for m, o in enumerate(observations) if m != n and [o[j] for j in parents] == state]
        equal = sum(o[child] == row[child] for o in alike)
        cell = 0
        for j in parents[:-1]:
            cell = cell * CARDS[j] + row[j]
        total += math.log((equal + prior * fitted[cell, row[child]]) / (len(alike) + prior))
    return total


def scores(codes, counts, child, parents, free, fitted, prior, max_cells=4096):
    cells = np.zeros(len(codes), dtype=np.int64)
    for j in parents:
        cells = cells * CARDS[j] + codes[:, j]
    columns = np.ascontiguousarray(codes.T, dtype=np.int32)
    return parent_scores(columns, np.array(CARDS), counts, child, cells, fitted, prior, np.array(free), max_cells)


@pytest.mark.parametrize("parents", [(), (1,)])
def test_scores_are_those_of_rows_left_out(parents):
    random = np.random.default_rng(len(parents))
    codes = random.integers(0, CARDS, (30, 4))
    counts = random.integers(1, 4, 30).astype(np.float64)
    fitted = random.dirichlet([2.0, 2.0], math.prod(CARDS[j] for j in parents))
    found = scores(codes, counts, 0, parents, [2, 3], fitted, 1.5)
    assert found[0] == pytest.approx(left_out(codes, counts, 0, (*parents, 2), fitted, 1.5), abs=1e-10)
    assert found[1] == -math.inf  # one level says nothing
    other = left_out(codes, counts, 0, (*parents, 2), fitted, 3.0)  # control
    assert abs(found[0] - other) > 0.1


def test_families_that_are_too_large_are_left_out():
    codes = np.random.default_rng(0).integers(0, CARDS, (30, 4))
    fitted = np.full((1, 2), 0.5)
    found = scores(codes, np.ones(30), 0, (), [1, 2], fitted, 1.0, max_cells=6)
    assert found[0] > -math.inf and found[1] == -math.inf
    assert len(scores(codes, np.ones(30), 0, (), np.zeros(0, dtype=np.int64), fitted, 1.0)) == 0
