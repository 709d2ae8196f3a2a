"""Paper 1, table 4, on the mushroom data: exact gradients, early-stopped on validation rows, and selection."""

import numpy as np
import pytest

from pyro_hoim.datasets import load_mushroom
from pyro_hoim.log_linear import ExactTrainer, Gain, InteractionRidge, SelectionOptions, Stopping, fit, select
from pyro_hoim.structure import InteractionHypergraph

pytestmark = pytest.mark.usefixtures("shared_data")

PUBLISHED = {1: 4.6062, 2: 0.8281}
PUBLISHED_SELECTED = 0.2359
PARAMETERS = {1: 41, 2: 729, 3: 6873}


def mushroom(columns=10):
    data = load_mushroom()
    return data.project(data.domain.names[:columns])


def split(seed):
    _, rest = mushroom().split([0.5, 0.5], seed)
    return rest.split([0.7, 0.3], seed)


def early_stopped(order, seed, method="auto", **limits):
    train, validation = split(seed)
    hypergraph = InteractionHypergraph.from_order(train.domain, order)
    assert (hypergraph.domain.num_states, hypergraph.num_parameters) == (829_440, PARAMETERS[order])
    return fit(hypergraph, train, method=method, validation=validation, stopping=Stopping(**{"patience": 20, **limits}))


@pytest.mark.fixed_seed  # the mean over ten splits
def test_one_body_lies_within_the_spread_over_splits():
    values = [early_stopped(1, seed).validation_kl for seed in range(10)]
    assert np.mean(values) == pytest.approx(4.59, abs=0.01)
    assert abs(PUBLISHED[1] - np.mean(values)) < 2 * np.std(values, ddof=1)
    assert abs(PUBLISHED[2] - np.mean(values)) > 20 * np.std(values, ddof=1)  # control: the next row is far away


@pytest.mark.filterwarnings("ignore::pyro_hoim.errors.ConvergenceWarning")
def test_two_body_passes_the_published_value_and_its_estimate_is_infinite():
    # The published 0.8281 is where plain gradient descent is after about 1,000 steps (the slow test below). Run on, the
    # same model reaches about 0.61, so a short run here must already be below.
    result = early_stopped(2, 0, max_iterations=60)
    assert result.validation_kl < PUBLISHED[2]
    existence = result.existence
    assert (existence.exists, existence.kind) == (False, "zero margin")
    train = result.data
    for combination in existence.offending[:50]:
        columns = [train.domain.index(n) for n in combination.edge]
        codes = [train.domain[n].code(v) for n, v in zip(combination.edge, combination.levels, strict=True)]
        assert not bool((train.codes[:, columns] == train.codes.new_tensor(codes)).all(1).any())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pyro_hoim.errors.ConvergenceWarning")
def test_two_body_gradient_descent_gives_the_published_value():
    options = {"method": "gradient", "max_iterations": 1000, "patience": 1000}
    values = [early_stopped(2, seed, **options).validation_kl for seed in range(4)]
    assert abs(PUBLISHED[2] - np.mean(values)) < 2 * np.std(values, ddof=1)


@pytest.mark.slow
@pytest.mark.parametrize(("order", "expected"), [(2, 0.61), (3, 0.42)])
def test_converged_early_stopping(order, expected):
    values = [early_stopped(order, seed).validation_kl for seed in range(4)]
    assert abs(expected - np.mean(values)) < 2 * np.std(values, ddof=1)


def selected(seed, **options):
    train, validation = split(seed)
    begin = InteractionHypergraph.from_order(train.domain, 1)
    ridge = InteractionRidge(0.1, by_order={1: 0.0})
    trainer = ExactTrainer(train, begin, penalty=ridge, stopping=Stopping(max_iterations=60, tolerance=1e-4))
    return select(train, validation, trainer, SelectionOptions(**options))


def test_selection_beats_all_pairs_and_all_triples():
    found = selected(0, score="J-per-parameter")
    train, validation = split(0)
    many_body = {}
    for order in (2, 3):
        hypergraph = InteractionHypergraph.from_order(train.domain, order)
        trainer = ExactTrainer(train, hypergraph, validation=validation, stopping=Stopping(patience=10))
        trainer.train()
        many_body[order] = trainer.loss(validation).value - validation.entropy()
    assert found.best.validation_kl < many_body[3] < many_body[2] < PUBLISHED[2]
    assert found.best.num_parameters < PARAMETERS[3] / 2
    assert found.status == "stopped early"
    assert 0 < found.best_round == len(found.rounds) - 2


@pytest.mark.slow
def test_gain_stops_by_itself_with_few_parameters():
    found = selected(0, score=Gain(search_cost=False))
    assert (found.status, found.best_round) == ("exhausted", len(found.rounds) - 1)
    # rounding decides between sets of nearly equal gain, so the path differs from machine to machine
    assert found.best.num_parameters < PARAMETERS[3] / 2
    assert found.best.validation_kl < 0.5
    assert selected(0, score="gain").best.num_parameters < found.best.num_parameters


@pytest.mark.fixed_seed  # the mean over ten splits
def test_the_published_value_is_what_only_the_law_of_all_rows_reaches():
    # Not reproduced: a sample of 1,219 rows differs from the law of all 8,124 rows, its own among them, by about as
    # much as the published validation KL of a model that was trained on 2,843 other rows.
    data = mushroom()
    everything = data.unique()
    law = {tuple(c): n for c, n in zip(everything.codes.tolist(), everything.counts.tolist(), strict=True)}
    floors = []
    for seed in range(10):
        _, validation = split(seed)
        rows = validation.unique()
        probs = np.array([law[tuple(codes)] for codes in rows.codes.tolist()]) / data.total_count
        floors.append(float(-(rows.counts.numpy() @ np.log(probs)) / rows.total_count - validation.entropy()))
    assert np.mean(floors) == pytest.approx(0.236, abs=0.001)
    assert abs(PUBLISHED_SELECTED - np.mean(floors)) < np.std(floors, ddof=1)


@pytest.mark.slow
def test_selection_over_splits():
    values = [selected(seed, score="J-per-parameter", patience=3).best.validation_kl for seed in range(5)]
    assert abs(0.370 - np.mean(values)) < 2 * np.std(values, ddof=1)
