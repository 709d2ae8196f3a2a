"""Annealed log-likelihoods of restricted machines against exact ones, as far as their stated errors allow."""

import math

import pytest
import torch
from machines import domain, random_theta, restricted

from pyro_hoim import AnnealedImportance, Observations
from pyro_hoim.boltzmann import MachineStructure
from pyro_hoim.runs import GibbsSchedule


def machines(number):
    """Machines of 8 to 16 visible and 3 to 12 hidden units, weights from weak to strong."""
    for k in range(number):
        structure = MachineStructure.restricted(domain(8 + 2 * (k % 5)), 3 + k % 10)
        yield structure, random_theta(structure, scale=(0.3, 0.6, 1.0, 1.5)[k % 4], seed=k)


def log_likelihoods(structure, theta, seed, path=1.0):
    """Exact mean log-likelihood of 50 rows of the machine, the annealed one with its error, and its limits."""
    exact = restricted(structure, theta)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        rows = Observations.from_tensor(exact.sample((50,)), exact.domain)
    backend = AnnealedImportance(
        num_chains=128, num_temperatures=300, seed=seed, reverse=False, schedule=GibbsSchedule("colours")
    )
    annealed = restricted(structure, path * theta, partition=backend)
    result = annealed.log_partition
    # on the rows of the exact machine: only log Z may differ
    difference = float(exact.log_partition.value - result.value)
    found = float((-exact.free_energy(rows.codes) - result.value).mean())
    assert found == pytest.approx(float(exact.log_prob(rows.codes).mean()) + difference, abs=1e-9)
    return difference, float(result.std_error), result.verdict


def scores(number, path=1.0):
    found = [log_likelihoods(*pair, seed=k, path=path) for k, pair in enumerate(machines(number))]
    believed = [(d, e) for d, e, verdict in found if verdict != "unreliable"]
    return [abs(d) / e for d, e in believed], len(believed)


def check(found, number):
    """No estimate that calls itself reliable is off by five of its errors, and two thirds are within one and a half."""
    values, believed = found
    assert believed >= 0.9 * number
    assert max(values) < 5
    assert sum(value < 1.5 for value in values) > 2 * len(values) / 3
    return math.sqrt(sum(value**2 for value in values) / len(values))


def test_annealed_log_likelihoods_are_within_their_error_on_a_hundred_machines():
    size = check(scores(100), 100)
    assert size < 1.5  # root mean square of the errors in their own units


def test_control_machines_with_weights_off_by_a_twentieth_are_not():
    with pytest.raises(AssertionError):
        check(scores(8, path=1.05), 8)
