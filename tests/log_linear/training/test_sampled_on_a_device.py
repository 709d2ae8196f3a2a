"""Sampled training whose chains and weights live on a device: a pretended one here, CUDA where there is one."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from other_device import AWAY, pretend
from scipy import stats

from pyro_hoim import Domain, InteractionHypergraph, Observations
from pyro_hoim.annealing import runs
from pyro_hoim.log_linear.training.sampled import trainer as _loss
from pyro_hoim.log_linear.training.sampled._weighted_chains import WeightedChains, drawn, law_of_singles
from pyro_hoim.log_linear.training.sampled.trainer import SampledTrainer, SampledTraining
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
