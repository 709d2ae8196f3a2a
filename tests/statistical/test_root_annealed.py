"""The error bar of annealed log Z of generalized root models: how often it holds."""

from __future__ import annotations

import itertools
import math
import warnings

import numpy as np
import pytest
import torch
from scipy import stats

from pyro_hoim.errors import ConvergenceWarning
from pyro_hoim.generalized_root import (
    ExponentialFamily,
    GeneralizedRootEnergy,
    PoissonFamily,
    RootAnnealed,
    RootAuto,
    RootStructure,
)
from pyro_hoim.schema import Domain, Variable
from pyro_hoim.testing import FALSE_ALARM_RATE


def complete(family, size, order, scale, seed):
    """All sets of up to ``order`` variables with random entries; single terms of reals outweigh them."""
    domain = Domain([Variable(f"v{i}", kind=family.kind) for i in range(size)])
    sets = [s for r in range(2, order + 1) for s in itertools.combinations(domain.names, r)]
    structure = RootStructure.simplified(domain, sets)
    psi = np.random.default_rng(seed).normal(0, scale, structure.num_terms)
    if not family.is_discrete:
        psi[:size] = -1.5
    return structure, torch.tensor(psi), family


def steps_for(model, spread):
    """Temperatures with which log weights of chains that mix vary by ``spread``: U falls by as much over all steps."""
    structure, psi, family = model
    alone = psi.clone()
    alone[: len(structure.domain)] = 0
    ends = [RootAuto().expectations(GeneralizedRootEnergy(structure, p, family)) for p in (psi, psi - alone)]
    return max(10, math.ceil(float(alone @ (structure.multiplicity * (ends[0] - ends[1]))) / spread))


def repeated(model, repeats, **options):
    """Independent runs as one batch: every element has random streams of its own."""
    structure, psi, family = model
    energy = GeneralizedRootEnergy(structure, psi.expand(repeats, -1).clone(), family)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        result = RootAnnealed(**options).log_partition(energy)
    exact = float(RootAuto().log_partition(GeneralizedRootEnergy(structure, psi, family)).value)
    return result, exact


def most(repeats, rate):
    """Largest number of events of at most this rate that is no false alarm."""
    return stats.binom.ppf(1 - FALSE_ALARM_RATE, repeats, rate)


def assert_honest(result, exact, level=0.99):
    """Misses that are not flagged below 1 %, each limit violated at its rate; returns errors and the verdict."""
    errors, reliable = result.value.numpy() - exact, (result.verdicts.numpy() > 0)
    repeats = len(errors)
    assert np.array_equal(np.isfinite(result.std_error.numpy()), reliable)
    assert (np.abs(errors) > 3 * result.std_error.numpy()).sum() <= most(repeats, 0.01)
    assert (result.lower.numpy() > exact).sum() <= most(repeats, 1 - level)
    assert (result.upper.numpy() < exact).sum() <= most(repeats, 1 - level)
    return errors, reliable


def check(model, repeats, **options):
    """Coverage, no waste, and the control that half the bar fails."""
    result, exact = repeated(model, repeats, **options)
    errors, reliable = assert_honest(result, exact)
    assert reliable.mean() > 0.9
    bars = result.std_error.numpy()[reliable]
    assert np.median(bars) < 2 * np.sqrt(np.mean(errors[reliable] ** 2))
    assert (np.abs(errors[reliable]) > bars).sum() > most(len(bars), 0.01)  # the control: a third of three bars


def test_error_bars_of_counts_hold():
    model = complete(PoissonFamily(), 3, 3, 0.2, seed=1)
    check(model, 150, num_chains=64, num_temperatures=steps_for(model, 0.05), seed=1, reverse=False)


def test_what_is_hopeless_is_flagged():
    """Two steps to a law far away: most runs are refused, and those that are not keep their bars."""
    structure, _, family = complete(PoissonFamily(), 3, 3, 0.0, seed=7)
    psi = torch.tensor([-0.5, -0.5, -0.5, 0.6, 0.6, 0.6, 0.3], dtype=torch.float64)
    result, exact = repeated((structure, psi, family), 60, num_chains=64, num_temperatures=2, seed=1, reverse=False)
    _, reliable = assert_honest(result, exact)
    assert reliable.mean() < 0.5
    assert np.abs(result.value.numpy() - exact).max() > 0.25


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "scale", "options"),
    [
        (PoissonFamily(), 0.2, {}),
        (PoissonFamily(), 0.2, {"combine": True}),
        (PoissonFamily(), 0.4, {"num_temperatures": 60}),
        (ExponentialFamily(), 0.1, {"reverse": False}),
        (ExponentialFamily(), 0.1, {"num_temperatures": 10}),
    ],
)
def test_error_bars_hold_in_many_runs(family, scale, options):
    defaults = {"num_chains": 128, "num_temperatures": 20, "seed": 5, "burn_in": 30}
    check(complete(family, 3, 3, scale, seed=3), 300, **{**defaults, **options})
