"""The error bar of annealed log Z: how often it and the verdict on it hold, and what is said where there is none."""

import functools
import itertools
import math
import warnings

import numpy as np
import pytest
import torch
from scipy import stats

from pyro_hoim import ConvergenceWarning, Domain, GeneralizedRootEnergy, RootStructure, Variable
from pyro_hoim.annealing import acceptance_ratio, log_mean_weight, weights
from pyro_hoim.generalized_root import ExponentialFamily, PoissonFamily, RootAnnealed, RootAuto
from pyro_hoim.log_linear import AnnealedImportance, LogLinearEnergy, VariableElimination
from pyro_hoim.log_linear.annealed import importance
from pyro_hoim.testing import FALSE_ALARM_RATE, exact_log_partition

from support.hard_models import log_linear_energy, subsets


def spins(scopes, weights, size):
    """Products of spins with weights as interaction tables."""
    products = {scope: functools.reduce(np.multiply.outer, [np.array([-1.0, 1.0])] * len(scope)) for scope in scopes}
    pairs = zip(products.items(), weights, strict=True)
    energy = log_linear_energy([2] * size, {scope: weight * table for (scope, table), weight in pairs})
    return energy.hypergraph, energy.tables


def random_spins(size, num_pairs, num_triples, seed):
    rng = np.random.default_rng(seed)
    scopes = subsets(rng, size, 2, num_pairs) + subsets(rng, size, 3, num_triples)
    return spins(scopes, rng.normal(0, 0.3, len(scopes)), size)


def ising(size, beta):
    index = np.arange(size * size).reshape(size, size).tolist()
    across = [(row[j], row[j + 1]) for row in index for j in range(size - 1)]
    down = [(index[i][j], index[i + 1][j]) for i in range(size - 1) for j in range(size)]
    scopes = sorted(across + down)
    return spins(scopes, [beta] * len(scopes), size * size)


class OneSampler:
    """Perfect samples for a batch of equal tables from one plan, which saves most of the time of many repetitions."""

    def __init__(self, backend):
        self._backend = backend

    def sample(self, model, shape, generator):
        one = LogLinearEnergy(model.hypergraph, model.tables[0])
        return self._backend.sample(one, (*shape, len(model.tables)), generator)


@pytest.fixture
def repeated(monkeypatch):
    """Results of many independent runs as one batch."""
    original = importance.perfect_backend
    monkeypatch.setattr(importance, "perfect_backend", lambda graph: OneSampler(original(graph)))

    def run(graph, tables, repeats, **options):
        with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
            model = LogLinearEnergy(graph, tables.expand(repeats, -1).clone())
            return AnnealedImportance(**options).log_partition(model)

    return run


def most(repeats, rate):
    """Largest number of events of at most this rate that is no false alarm."""
    return stats.binom.ppf(1 - FALSE_ALARM_RATE, repeats, rate)


def assert_honest(result, exact, level=0.99):
    """Misses that are not flagged below 1 %, each limit violated at its rate; returns errors and the verdict."""
    errors = result.value.numpy() - exact
    reliable = result.verdicts.numpy() > 0
    assert np.array_equal(np.isfinite(result.std_error.numpy()), reliable)
    repeats = len(errors)
    assert (np.abs(errors) > 3 * result.std_error.numpy()).sum() <= most(repeats, 0.01)
    assert (result.lower.numpy() > exact).sum() <= most(repeats, 1 - level)
    assert (result.upper.numpy() < exact).sum() <= most(repeats, 1 - level)
    return errors, reliable


@pytest.mark.fixed_seed  # of the control, which halves the bar
@pytest.mark.parametrize("scale", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("options", [{}, {"reverse": False}, {"combine": True}])
def test_error_bars_hold(repeated, scale, options):
    graph, tables = random_spins(10, 15, 15, seed=5)
    tables = tables * scale
    result = repeated(graph, tables, 300, num_chains=128, num_temperatures=60, seed=11, **options)
    exact = float(exact_log_partition(graph, tables))
    errors, reliable = assert_honest(result, exact)
    if scale <= 1:
        assert reliable.mean() > 0.97
        bars = result.std_error.numpy()[reliable]
        if options.get("reverse", True):
            bars = np.sqrt(bars**2 - 1 / 128**2)  # without the allowance for what perfect draws cannot have seen
        assert np.median(bars) < 2 * np.sqrt(np.mean(errors**2))  # not by being wide
        assert (np.abs(errors[reliable]) > 1.5 * bars).sum() > most(300, 0.01)  # the control: half the bar fails


def test_level_of_the_limits_is_kept(repeated):
    graph, tables = random_spins(10, 15, 15, seed=5)
    result = repeated(graph, tables, 300, num_chains=128, num_temperatures=60, seed=12, level=0.8)
    exact = float(exact_log_partition(graph, tables))
    assert_honest(result, exact, level=0.8)
    assert (result.lower.numpy() > exact).sum() + (result.upper.numpy() < exact).sum() > most(300, 0.01)


@pytest.mark.parametrize("beta", [0.4407, 0.6, 1.0])
def test_ising_at_and_below_the_critical_temperature(repeated, beta):
    graph, tables = ising(12, beta)
    exact = float(VariableElimination().log_partition(LogLinearEnergy(graph, tables)).value)
    options = {"num_chains": 256, "num_temperatures": 50 if beta == 1.0 else 150, "reference": "uniform", "seed": 1}
    result = repeated(graph, tables, 4, **options)
    assert_honest(result, exact)
    blind = repeated(graph, tables, 4, **options, reverse=False)
    assert_honest(blind, exact)
    if beta == 1.0:  # domain walls freeze in: the weights are useless and the result has to say so
        assert not bool(result.verdicts.any())
        assert not bool(blind.verdicts.any())
        assert bool((result.upper - result.lower > 5).all())
        assert np.abs(result.sandwich.forward.numpy() - exact).max() > 0.3
    both = repeated(graph, tables, 4, **options, combine=True)
    assert_honest(both, exact)


def test_two_modes_of_different_depth(repeated):
    """A ferromagnet in a field along the path favours one mode early, the model the other: forward runs miss it."""
    size = 12
    scopes = [(i,) for i in range(size)] + [(i, j) for i in range(size) for j in range(i)]
    scopes = [tuple(sorted(s)) for s in scopes] + [tuple(range(size))]
    graph, tables = spins(scopes, [0.05] * size + [0.4] * (len(scopes) - size - 1) + [0.0], size)
    tables = tables.clone()
    tables[graph.term_slices[tuple(graph.domain.names)].start] = 12.0  # the state with all spins down
    exact = float(exact_log_partition(graph, tables))
    forward = repeated(graph, tables, 20, num_chains=64, num_temperatures=30, seed=2, reverse=False)
    result = repeated(graph, tables, 20, num_chains=64, num_temperatures=30, seed=2)
    assert_honest(result, exact)
    assert_honest(repeated(graph, tables, 20, num_chains=64, num_temperatures=30, seed=2, combine=True), exact)
    missed = np.abs(forward.value.numpy() - exact) > 0.1
    assert missed.any()
    assert not bool((result.verdicts.numpy() > 0)[missed].any())


@pytest.mark.slow
@pytest.mark.parametrize("scale", [0.3, 1.0, 3.0])
def test_error_bars_hold_on_twenty_variables(repeated, scale):
    graph, tables = random_spins(20, 40, 40, seed=5)
    tables = tables * scale
    exact = float(exact_log_partition(graph, tables))
    missed = 0
    for block in range(20):
        result = repeated(graph, tables, 50, seed=1000 + block)
        missed += int((np.abs(result.value.numpy() - exact) > 3 * result.std_error.numpy()).sum())
    assert missed <= 10


# Generalized root models


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


def repeat_roots(model, repeats, **options):
    """Independent runs as one batch: every element has random streams of its own."""
    structure, psi, family = model
    energy = GeneralizedRootEnergy(structure, psi.expand(repeats, -1).clone(), family)
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        result = RootAnnealed(**options).log_partition(energy)
    exact = float(RootAuto().log_partition(GeneralizedRootEnergy(structure, psi, family)).value)
    return result, exact


def check(model, repeats, **options):
    """Coverage, no waste, and the control that half the bar fails."""
    result, exact = repeat_roots(model, repeats, **options)
    errors, reliable = assert_honest(result, exact)
    assert reliable.mean() > 0.9
    bars = result.std_error.numpy()[reliable]
    assert np.median(bars) < 2 * np.sqrt(np.mean(errors[reliable] ** 2))
    assert (np.abs(errors[reliable]) > bars).sum() > most(len(bars), 0.01)  # the control: a third of three bars


def test_error_bars_of_counts_hold():
    model = complete(PoissonFamily(), 3, 3, 0.2, seed=1)
    check(model, 150, num_chains=64, num_temperatures=steps_for(model, 0.05), seed=1, reverse=False)


def test_hopeless_runs_of_counts_are_flagged():
    """Two steps to a law far away: most runs are refused, and those that are not keep their bars."""
    structure, _, family = complete(PoissonFamily(), 3, 3, 0.0, seed=7)
    psi = torch.tensor([-0.5, -0.5, -0.5, 0.6, 0.6, 0.6, 0.3], dtype=torch.float64)
    result, exact = repeat_roots((structure, psi, family), 60, num_chains=64, num_temperatures=2, seed=1, reverse=False)
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


# The verdict on weights


def normal(deviation):
    return lambda rng, shape: rng.normal(-(deviation**2) / 2, deviation, shape)


def student(freedom, scale, highest=20.0):
    """Scaled Student variables cut off at a height, without which their weights have no mean."""
    law = stats.t(freedom)
    at = np.linspace(-60, highest, 800_001)
    mean = np.trapezoid(np.exp(scale * at) * law.pdf(at), at) + np.exp(scale * highest) * law.sf(highest)
    return lambda rng, shape: scale * np.minimum(law.rvs(shape, random_state=rng), highest) - np.log(mean)


def mixture(share, height, below=0.3, above=0.5):
    """A share of the chains has larger weights."""
    mean = (1 - share) * np.exp(below**2 / 2) + share * np.exp(height + above**2 / 2)

    def draw(rng, shape):
        high = height + above * rng.normal(size=shape)
        return np.where(rng.random(shape) < share, high, below * rng.normal(size=shape)) - np.log(mean)

    return draw


def pareto(index):
    """Weights with finite moments below ``index``."""
    return lambda rng, shape: rng.exponential(1 / index, shape) + np.log1p(-1 / index)


def gamma(shape_parameter):
    """Weights with a tail lighter than log-normal: their logarithms lean to the left."""
    return lambda rng, shape: np.log(rng.gamma(shape_parameter, 1 / shape_parameter, shape))


def judged(draw, count, repeats, seed):
    """How many of repeated estimates are called reliable, and how many of those miss by more than three errors."""
    found = log_mean_weight(draw(np.random.default_rng(seed), (repeats, count)))
    missed = np.abs(found.value) > 3 * found.error
    return int(found.is_reliable.sum()), int((missed & found.is_reliable).sum())


def is_too_often(missed, repeats, rate=0.01):
    """Whether the Clopper-Pearson limit of the rate of misses lies above the one promised."""
    return missed > 0 and stats.beta.ppf(FALSE_ALARM_RATE, missed, repeats - missed + 1) > rate


@pytest.mark.parametrize("count", [16, 64, 512])
def test_reliable_bars_of_log_normal_weights_hold(count, monkeypatch):
    """For log weights of any spread taken together: an unreliable spread is called reliable too rarely to count."""

    repeats = 3000 if count == 512 else 8000

    def all_of(deviations):
        found = [judged(normal(s), count, repeats, seed) for seed, s in enumerate(deviations)]
        return np.sum(found, axis=0)

    reliable, missed = all_of((0.3, 1.0, 1.5, 2.0))
    assert reliable > 0.8 * repeats
    assert not is_too_often(missed, reliable)
    wide = (1.0, 1.5) if count == 16 else (1.5, 2.0)
    reliable, missed = all_of(wide)
    assert not is_too_often(missed, reliable)
    assert reliable < 20
    # The control: the skewness of the sample alone is small where the large weights were missed.
    monkeypatch.setattr(weights, "_implied_skewness", lambda log_weights: np.zeros(len(log_weights)))
    reliable, missed = all_of(wide)
    assert is_too_often(missed, reliable)


@pytest.mark.parametrize(
    ("draw", "count", "least"),
    [
        (student(10, 0.2), 16, 0.8),
        (student(10, 0.5), 64, 0.6),
        (student(5, 0.2), 512, 0.9),
        (mixture(0.02, 1.0), 512, 0.6),
        (mixture(0.2, 1.0), 128, 0.7),
        (mixture(0.2, 2.0), 512, 0.95),
        (mixture(0.5, 1.0), 128, 0.9),
        (pareto(10), 64, 0.6),
        (pareto(5), 512, 0.9),
        (gamma(1), 512, 0.95),
    ],
)
def test_reliable_bars_of_other_weights_hold(draw, count, least):
    reliable, missed = judged(draw, count, 5000, seed=count)
    assert not is_too_often(missed, reliable)
    assert reliable >= 5000 * least


@pytest.mark.parametrize(
    ("deviation", "count", "least"),
    [(0.3, 16, 0.8), (0.3, 64, 0.95), (0.1**0.5, 512, 0.99), (0.5**0.5, 512, 0.95), (1.0, 512, 0.8)],
)
def test_good_weights_stay_reliable(deviation, count, least):
    reliable, missed = judged(normal(deviation), count, 4000, seed=1)
    assert reliable >= 4000 * least
    assert not is_too_often(missed, 4000)


def test_bars_of_wide_weights_fail_without_the_verdict():
    found = log_mean_weight(normal(10**0.5)(np.random.default_rng(4), (2000, 512)))
    missed = np.abs(found.value) > 3 * found.error
    assert (missed & found.is_reliable).mean() < 0.01
    assert missed.mean() > 0.05  # control


@pytest.mark.parametrize("count", [16, 24, 40])
def test_few_equal_weights_overlap_enough(count):
    rng = np.random.default_rng(count)
    forward, reverse = (rng.normal(-0.005, 0.1, (2000, count)) for _ in range(2))
    found = acceptance_ratio(forward, reverse)
    assert found.is_reliable.mean() > 0.99
    assert not is_too_often(int((np.abs(found.value) > 3 * found.error)[found.is_reliable].sum()), 2000)
    apart = acceptance_ratio(*(rng.normal(-8.0, 4.0, (2000, count)) for _ in range(2)))  # the control
    assert apart.is_reliable.mean() < 0.01
    assert not acceptance_ratio(forward[:, :15], reverse[:, :15]).is_reliable.any()
