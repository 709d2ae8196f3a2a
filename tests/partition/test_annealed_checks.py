"""What backs the verdict on annealed estimates: states as bounds, limits without assumptions, runs from modes found."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import torch
from scipy import stats

from pyro_hoim.distributions import GeneralizedRoot, HierarchicalLogLinear
from pyro_hoim.errors import ConvergenceWarning, IntractableError
from pyro_hoim.partition import (
    AnnealedImportance,
    LogPartition,
    RootAnnealed,
    Verdict,
    _annealed_result,
    _annealing,
    _root_annealed_result,
    _root_annealed_runs,
    log_mean_weight,
    one_sided_limits,
)
from pyro_hoim.partition._annealed_verdict import Checks, result_of
from pyro_hoim.partition._certificate import Certificate, certificate
from pyro_hoim.partition._mean_limit import log_mean_lower_limit
from pyro_hoim.partition._mode_checks import hamming, pick_modes, root_distance
from pyro_hoim.testing import FALSE_ALARM_RATE
from pyro_hoim.testing.hard_models import (
    condensing_level,
    curie_weiss,
    easy_models,
    is_false_claim,
    mean_field_spins,
    root_counts,
    two_wells,
)

QUICK = {"num_chains": 128, "num_temperatures": 100}


@pytest.fixture
def no_perfect_starts(monkeypatch):
    """Reverse runs begin with tempered runs, as beyond exact methods."""
    monkeypatch.setattr(_annealing, "perfect_backend", lambda _: None)
    monkeypatch.setattr(_root_annealed_runs, "_perfect_states", lambda *_: None)


def run(backend, energy):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return backend.log_partition(energy)


def most(repeats, rate):
    """Largest number of events of at most this rate that is no false alarm."""
    return stats.binom.ppf(1 - FALSE_ALARM_RATE, repeats, rate)


# States as bounds


def enumerated(model):
    cards = model.hypergraph.domain.cardinalities
    states = torch.cartesian_prod(*(torch.arange(k) for k in cards))
    return states, -model.energy(states)


def test_distinct_states_bound_log_z_and_all_of_them_are_log_z():
    model = mean_field_spins(8, -0.3, 1.0, 0.5)
    states, log_q = enumerated(model.energy)
    cards = model.energy.hypergraph.domain.cardinalities
    twice = [states[None, :200], states[None, 100:]], [log_q[None, :200], log_q[None, 100:]]
    whole = certificate(*twice, cards)
    assert whole.is_complete.all()
    assert float(whole.bound[0]) == pytest.approx(model.log_z, abs=1e-12)
    assert float(torch.cat(twice[1], 1).logsumexp(-1)[0]) > model.log_z + 0.01  # the control counts states twice
    part = certificate([states[None, :255]], [log_q[None, :255]], cards)
    assert not part.is_complete.any()
    assert float(part.bound[0]) < model.log_z
    assert part.best_log_q[0] == float(log_q[:255].max())
    assert torch.equal(torch.from_numpy(part.best[0]), states[log_q[:255].argmax()])


def test_states_of_models_beyond_all_integers_are_told_apart():
    generator = torch.Generator().manual_seed(1)
    states = torch.randint(3, (1, 500, 70), generator=generator)
    values = torch.randn(1, 500, dtype=torch.float64, generator=generator)
    once = certificate([states], [values], [3] * 70)
    assert float(once.bound[0]) == pytest.approx(float(values.logsumexp(-1)[0]), abs=1e-12)
    twice = certificate([states, states], [values, values], [3] * 70)
    assert twice.bound[0] == pytest.approx(once.bound[0], abs=1e-12)
    counts = certificate([states.double(), states.double()], [values, values], None)
    assert counts.bound[0] == pytest.approx(once.bound[0], abs=1e-12)


def test_a_model_whose_states_were_all_met_is_known(no_perfect_starts):
    model = mean_field_spins(5, -0.3, 1.0, 0.5)
    result = run(AnnealedImportance(num_chains=512, num_temperatures=20, seed=1), model.energy)
    assert result.verdict == "verified"
    for value in (result.value, result.lower, result.upper, result.lower_bound):
        assert float(value) == pytest.approx(model.log_z, abs=1e-9)
    assert float(result.std_error) < 1e-9
    assert any("every state" in note for note in result.notes)


# Limits without assumptions


@pytest.mark.parametrize("level", [0.8, 0.99])
@pytest.mark.parametrize("draws", [np.random.default_rng(1).gamma(2.0, size=64), np.r_[np.full(3, 1e-9), np.ones(150)]])
def test_limit_of_a_mean_is_the_quantile_of_randomly_weighted_means(level, draws):
    rng = np.random.default_rng(2)
    shares = rng.exponential(size=(100_000, len(draws) + 1))
    means = shares[:, 1:] @ draws / shares.sum(1)
    order = np.sort(means)
    place = (1 - level) * len(means)
    spread = 5 * math.sqrt(level * (1 - level) * len(means))
    low, high = order[int(place * 0.98 - spread)], order[int(place * 1.02 + spread)]
    assert low < np.exp(log_mean_lower_limit(np.log(draws)[None], level))[0] < high


def test_equal_values_leave_what_a_binomial_share_can_hide():
    for count, level in ((16, 0.9), (512, 0.99)):
        limit = log_mean_lower_limit(np.zeros((1, count)), level)[0]
        assert limit == pytest.approx(math.log1p(-level) / count, rel=0.01)


def reverse_runs(share, repeats, count, seed):
    """Weights of a model with log Z = 0 and a mode of some share that no forward run meets; perfect starts."""
    rng = np.random.default_rng(seed)
    noise = rng.normal(0, 0.002, (2, repeats, count))
    ahead = math.log1p(-share) + noise[0]
    behind = np.where(rng.random((repeats, count)) < share, -40.0, -math.log1p(-share)) + noise[1]
    checks = Checks(Certificate.none(repeats), None, np.zeros(repeats))
    like = torch.zeros(repeats, dtype=torch.float64)
    options = AnnealedImportance(num_chains=count, num_temperatures=10)
    cost = options.plan(curie_weiss(4, 1.0).energy.hypergraph)
    words = {"is_reversible": True, "best_states": [""] * repeats, "advice": "", "coding": "balanced"}
    return behind, result_of(
        options, np.zeros(repeats), ahead, behind, start="exact", checks=checks, like=like, cost=cost, **words
    )


@pytest.mark.parametrize("share", [0.001, 0.002, 0.004, 0.02])
def test_limits_hold_whatever_perfect_draws_have_not_met(share):
    repeats = 1000
    behind, result = reverse_runs(share, repeats, 512, seed=3)
    claimed = result.verdicts.numpy() == Verdict.VERIFIED
    errors = np.abs(result.value.numpy())
    assert (result.upper.numpy() < 0).sum() <= most(repeats, 0.01)
    assert (result.lower.numpy() > 0).sum() <= most(repeats, 0.01)
    assert (claimed & (errors > 5 * result.std_error.numpy())).sum() <= most(repeats, 0.01)
    if share < 0.01:  # the control: normal limits and errors fail as often as the mode is missed
        assert claimed.mean() > 0.5
        back = log_mean_weight(behind)
        upper = -one_sided_limits(back, 0.99, back.is_reliable)[0]
        assert (upper < 0).mean() > 0.1
        assert (np.abs(back.value) > 5 * back.error).mean() > 0.1


# Modes


def test_modes_are_the_best_states_far_from_one_another():
    states = np.array([[[0, 0, 0, 0], [0, 0, 0, 1], [1, 1, 1, 1], [1, 1, 1, 1]]])
    modes = pick_modes(states, np.array([[5.0, 6.0, 2.0, 2.0]]), 4, lambda a, b: np.where(hamming(a, b) > 0.3, 1, 0))
    assert modes.states[:, 0].tolist() == [[0, 0, 0, 1], [1, 1, 1, 1]]
    assert modes.log_q[:, 0].tolist() == [6.0, 2.0]
    assert root_distance(np.array([4.0, 0.0]), np.array([100.0, 0.25])) == 0.75


def test_a_mode_that_the_reference_leads_away_from_is_missed_and_said(no_perfect_starts):
    model = curie_weiss(16, 3.0)
    fair = run(AnnealedImportance(num_chains=256, num_temperatures=300, seed=1), model.energy)
    assert fair.verdict == "consistent"  # the control
    assert abs(float(fair.value) - model.log_z) < 5 * float(fair.std_error)
    away = AnnealedImportance(num_chains=256, num_temperatures=300, seed=1, reference=[3.0, -3.0] * 16)
    result = run(away, model.energy)
    assert abs(float(result.sandwich.forward) - model.log_z) > 0.5
    assert result.verdict == "unreliable"
    assert any("missed a mode" in note or "lower bound" in note for note in result.notes)


COUNTEREXAMPLES = {
    "spins, kappa 13.5": lambda: mean_field_spins(30, triple=27.0),
    "spins, kappa 20": lambda: mean_field_spins(30, triple=40.0),
    "two wells": lambda: two_wells(40, 1.5, 3.0, 8.45),
    "condensing level": lambda: condensing_level(18, 12, 0.5),
    "counts": lambda: root_counts(12, -14.0, (math.log(20.0) + 14.0) / 11),
}


@pytest.mark.parametrize("name", COUNTEREXAMPLES)
def test_counterexamples_are_not_believed(name, no_perfect_starts, monkeypatch):
    model = COUNTEREXAMPLES[name]()
    is_root = name == "counts"
    backend = (RootAnnealed if is_root else AnnealedImportance)(**QUICK, seed=1)
    result = run(backend, model.energy)
    assert not is_false_claim(result, model.log_z)
    assert float(result.lower_bound) <= model.log_z + 1e-9 * abs(model.log_z)
    assert float(result.lower) - 1e-6 <= model.log_z <= float(result.upper)
    if name == "condensing level":
        return  # the runs themselves see that they are poor
    assert result.verdict == "unreliable"
    if is_root:
        monkeypatch.setattr(
            _root_annealed_result, "climbed_counts", lambda run: (run.ends, -run.energy.energy(run.ends))
        )
    else:
        monkeypatch.setattr(_annealed_result, "ascend", lambda options, run: (run.ends, run.log_q))
    assert is_false_claim(run(backend, model.energy), model.log_z)  # the control: without the search they are


@pytest.mark.slow
def test_the_largest_counterexample_is_not_believed():
    model = condensing_level(60, 40, 0.14)
    result = run(AnnealedImportance(**QUICK, seed=1), model.energy)
    assert not is_false_claim(result, model.log_z)
    assert float(result.lower_bound) <= model.log_z


def test_easy_models_are_believed(no_perfect_starts):
    results = [(run(AnnealedImportance(**QUICK, seed=1), m.energy), m.log_z) for m in easy_models(40)]
    assert sum(result.verdict == "unreliable" for result, _ in results) <= 2
    assert not any(is_false_claim(result, log_z) for result, log_z in results)


# Log-probabilities above zero


def test_no_state_gets_more_than_probability_one(monkeypatch):
    model = mean_field_spins(30, triple=40.0)
    backend = AnnealedImportance(**QUICK, seed=1, reverse=False)
    law = HierarchicalLogLinear.from_tables(model.energy.hypergraph, model.energy.tables, partition=backend)
    up = torch.ones(30, dtype=torch.long)
    with pytest.warns(ConvergenceWarning):
        assert float(law.log_prob(up)) < 1e-9  # what the search finds becomes the value
    monkeypatch.setattr(_annealed_result, "ascend", lambda options, run: (run.ends, run.log_q))
    blind = HierarchicalLogLinear.from_tables(model.energy.hypergraph, model.energy.tables, partition=backend)
    assert float(blind.log_prob(torch.zeros(2, 30, dtype=torch.long)).max()) <= 0  # the control
    states = torch.stack([1 - up, up])
    with pytest.raises(IntractableError, match=r"\(x0=1, x1=1, .*\) would get the log-probability \+1"):
        blind.log_prob(states)


def test_a_log_probability_within_the_error_stays_a_number():
    value = torch.tensor([1.0, 1.0], dtype=torch.float64)
    cost = AnnealedImportance().plan(curie_weiss(4, 1.0).energy.hypergraph)
    result = LogPartition(value, "biased", torch.tensor([0.1, math.inf]), None, value, value, cost, "", notes=())
    result.check_log_probs(torch.tensor([[0.4, -0.1], [0.49, 0.0]]), str)
    for above in ([[0.4, 0.01]], [[0.51, -1.0]]):
        with pytest.raises(IntractableError, match="log-probability"):
            result.check_log_probs(torch.tensor(above), str)
    result.check_log_probs(torch.tensor([4.0, -1.0]), str, rows=10)
    LogPartition.exact(value, cost).check_log_probs(torch.tensor([4.0, 1.0]), str)  # exact: rounding alone


def test_counts_are_held_to_it_and_densities_are_not(no_perfect_starts, monkeypatch):
    model = root_counts(12, -14.0, (math.log(20.0) + 14.0) / 11)
    monkeypatch.setattr(_root_annealed_result, "climbed_counts", lambda run: (run.ends, -run.energy.energy(run.ends)))
    backend = RootAnnealed(num_chains=64, num_temperatures=20, seed=1, reverse=False)
    law = GeneralizedRoot(model.energy.structure, model.energy.psi, model.energy.family, partition=backend)
    with pytest.raises(IntractableError, match="x0=20, x1=20"):
        law.log_prob(torch.full((12,), 20.0, dtype=torch.float64))
    assert float(law.log_prob(torch.zeros(12, dtype=torch.float64))) < 0.01
