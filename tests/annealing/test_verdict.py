"""Weights of annealed runs, the verdict on their estimates, and options that both backends check alike."""

import functools
import itertools
import math
import warnings

import numpy as np
import pytest
import torch
from scipy import stats

from pyro_hoim.annealing import acceptance_ratio, log_mean_weight, one_sided_limits, weights
from pyro_hoim.annealing.backend import Checks, Weights, result_of
from pyro_hoim.annealing.mode_checks import explored, hamming, pick_modes, root_distance
from pyro_hoim.annealing.runs import Traits, chosen_rows, resampled
from pyro_hoim.annealing.weights import island_means, log_mean_lower_limit
from pyro_hoim.core import LogPartition, Verdict
from pyro_hoim.core.partition import Certificate, certificate
from pyro_hoim.errors import ConvergenceWarning, InputError, IntractableError
from pyro_hoim.generalized_root import (
    ExponentialFamily,
    GeneralizedRoot,
    GeneralizedRootEnergy,
    RootAnnealed,
    RootEnumeration,
    RootStructure,
    TruncatedPoissonFamily,
)
from pyro_hoim.generalized_root.annealed import AnnealedRoot
from pyro_hoim.log_linear import AnnealedImportance, HierarchicalLogLinear, LogLinearEnergy
from pyro_hoim.log_linear.annealed import importance
from pyro_hoim.log_linear.annealed.importance import AnnealedLogLinear, ProductLaws
from pyro_hoim.schema import Domain, Variable
from pyro_hoim.testing import FALSE_ALARM_RATE, raises

from support.hard_models import (
    broad_phase,
    condensate_and_dimers,
    condensing_level,
    curie_weiss,
    log_linear_energy,
    mean_field_spins,
    root_counts,
    shuffled,
    two_wells,
)
from support.hard_suite import easy_models, is_false_claim

QUICK = {"num_chains": 128, "num_temperatures": 100}


@pytest.fixture
def no_perfect_starts(monkeypatch):
    """Reverse runs begin with tempered runs, as beyond exact methods."""
    monkeypatch.setattr(importance, "perfect_backend", lambda _: None)
    monkeypatch.setattr(AnnealedRoot, "perfect_states", lambda *_: None)


def run(backend, energy):
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
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
    checks = Checks(Certificate.none(repeats), None, np.zeros(repeats), ("",) * repeats)
    like = torch.zeros(repeats, dtype=torch.float64)
    options = AnnealedImportance(num_chains=count, num_temperatures=10)
    cost = options.plan(curie_weiss(4, 1.0).energy.hypergraph)
    traits = Traits("balanced", "", hamming, conditional_error=0.0)
    return behind, result_of(options, traits, Weights(np.zeros(repeats), ahead, behind), checks, like, cost)


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
    order = np.array([[5.0, 6.0, 2.0, 2.0]])
    places, found = pick_modes(states, order, 4, lambda a, b: np.where(hamming(a, b) > 0.3, 1, 0))
    assert places[:, 0].tolist() == [1, 2]
    assert found.all()
    assert not pick_modes(states, order - np.inf, 1, hamming)[1].any()  # the control: nothing to choose from
    assert root_distance(np.array([4.0, 0.0]), np.array([100.0, 0.25])) == 0.75


def test_every_phase_stands_for_its_own_width():
    """Uniform laws on 4, 4 and 1 of ten levels, the last the most probable; chains from one state go to two of them."""
    size, widths, level = 12, np.array([4, 4, 1]), np.array([0.0, -2.0, 5.0])
    rng, firsts = np.random.default_rng(1), np.array([0, 4, 8])

    def moved(starts, /, sweeps, looks, stream):
        phase = np.searchsorted(firsts, starts[..., :1], side="right") - 1
        phase = np.where(starts[..., :1] == 9, rng.integers(0, 2, phase.shape), phase)
        drawn = (rng.random((looks, *starts.shape)) * widths[phase]).astype(np.int64) + firsts[phase]
        drawn = np.where(stream == 0, starts, drawn)
        return drawn, np.broadcast_to(level[phase[..., 0]], drawn.shape[:-1])

    graph = log_linear_energy([10] * size, {(i,): np.zeros(10) for i in range(size)}).hypergraph
    starts = np.repeat(np.array([9, 8])[None, :, None], size, -1)
    fitted = functools.partial(ProductLaws.of, graph)
    found = explored(starts, moved, fitted, 512, hamming, np.random.default_rng(2))
    exact = (size * np.log(widths) + level).tolist()
    assert found.ceiling[:, 0].tolist() == pytest.approx(exact, abs=1.5)
    # The control: one law for chains of both phases would stand for more than either.
    both = moved(np.full((1, 400, size), 9), 0, 4, 1)[0].reshape(1, 1, -1, size)
    assert float(-ProductLaws.of(graph, both).log_prob(both).mean()) - 2.0 > exact[0] + 3


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
    "broad phase among peaks": lambda: broad_phase(14, 40, 12, 5.0),
    "dimers, levels shuffled": lambda: shuffled(condensate_and_dimers(14, 40, 1.3, 1.5, 4.0), 0),
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
    kind = AnnealedRoot if is_root else AnnealedLogLinear
    monkeypatch.setattr(kind, "ascend", lambda _, run: (run.ends, run.log_q))
    assert is_false_claim(run(backend, model.energy), model.log_z)  # the control: without the search they are


def decoyed_needle(size=18, height=22.0, decoys=5):
    """One state of weight exp(height) among equal ones, behind larger cells that another table takes back."""
    flat, against = np.zeros((2,) * size), np.zeros((2,) * (size - 1))
    rng = np.random.default_rng(1)
    planted, *others = (tuple(rng.integers(0, 2, size).tolist()) for _ in range(1 + decoys))
    flat[planted] = height
    for decoy in others:
        flat[decoy], against[decoy[:-1]] = height + 2, -2 * height
    energy = log_linear_energy([2] * size, {tuple(range(size)): flat, tuple(range(size - 1)): against})
    rest = [height, *[2 - height, -2 * height] * decoys]  # the planted state, decoys and their neighbours; all others
    return energy, torch.tensor(planted), float(np.logaddexp.reduce([math.log(2**size - 1 - 2 * decoys), *rest]))


@pytest.mark.fixed_seed  # of the control: a chain meets the planted state in one run of about fifty
def test_a_mode_that_only_the_rows_hold_is_found_from_them(no_perfect_starts):
    energy, planted, log_z = decoyed_needle()
    options = {"num_chains": 32, "num_temperatures": 20, "burn_in": 10, "seed": 1}
    blind = run(AnnealedImportance(**options), energy)
    assert blind.verdict == "consistent"  # the control
    assert is_false_claim(blind, log_z)
    near = planted.clone()
    near[3] = 1 - near[3]
    others = torch.randint(2, (40, 18), generator=torch.Generator().manual_seed(1))
    for row in (planted, near):  # states met, and ascents
        found = run(AnnealedImportance(**options, starts=torch.cat([others, row[None]])), energy)
        assert found.verdict == "unreliable"
        assert 22.0 <= float(found.lower_bound) <= log_z
        assert float(found.value) == pytest.approx(log_z, abs=1e-3)
        state = ", ".join(f"x{i}={k}" for i, k in enumerate(planted.tolist()[:12]))
        assert any(f"the state ({state}, ...) alone" in note for note in found.notes)
    elsewhere = run(AnnealedImportance(**options, starts=others), energy)
    for name in ("value", "std_error", "lower", "upper"):  # rows change no random number of the runs
        assert torch.equal(getattr(elsewhere, name), getattr(blind, name))


def test_a_mode_of_counts_that_only_the_rows_hold_is_found_from_them(no_perfect_starts):
    names = ("a", "b", "c", "d")  # the first three rise together; the last, while it is not zero, keeps them down
    structure = RootStructure.simplified(
        Domain([Variable(n, kind="count") for n in names]), itertools.combinations(names, 2)
    )
    psi = torch.tensor([-25.0, -25.0, -25.0, -1.0, 13.65, 13.65, -40.0, 13.65, -40.0, -40.0], dtype=torch.float64)
    energy = GeneralizedRootEnergy(structure, psi, TruncatedPoissonFamily(20))
    log_z = float(RootEnumeration().log_partition(energy).value)
    blind = run(RootAnnealed(**QUICK, seed=1), energy)
    assert blind.verdict == "consistent"  # the control
    assert is_false_claim(blind, log_z)
    for row in ([9, 9, 9, 0], [20, 17, 15, 0]):  # the mode itself, and one that leads there
        found = run(RootAnnealed(**QUICK, seed=1, starts=[[0, 0, 0, 1], row]), energy)
        assert not is_false_claim(found, log_z)
        assert found.verdict == "unreliable"
        assert float(blind.value) + 1 < float(found.lower_bound) <= log_z + 1e-9
        assert any("d=0) alone has log q" in note for note in found.notes)
    reals = RootStructure.simplified(Domain([Variable("a", kind="positive")]), [])
    densities = GeneralizedRootEnergy(reals, -psi[:1].abs(), ExponentialFamily())
    with pytest.raises(InputError, match="densities bound nothing"):
        RootAnnealed(starts=[[1.0]]).log_partition(densities)


def test_rows_of_a_batch_belong_to_every_element(no_perfect_starts):
    model = mean_field_spins(12, -0.3, 1.0, 0.5)
    states, log_q = enumerated(model.energy)
    both = LogLinearEnergy(model.energy.hypergraph, torch.stack([model.energy.tables, 0 * model.energy.tables]))
    chosen = states[log_q.argsort()[:200]]  # that no run meets
    options = {"num_chains": 16, "num_temperatures": 5, "seed": 1, "reverse": False}
    without, found = (run(AnnealedImportance(**options, starts=s), both) for s in (None, chosen))
    assert float(found.lower_bound[1]) >= math.log(200)
    assert bool((found.lower_bound > without.lower_bound).all())
    assert bool((found.lower_bound <= torch.tensor([model.log_z, 12 * math.log(2)]) + 1e-12).all())


def test_rows_are_chosen_by_weight_and_evenly_whatever_their_order():
    rows = torch.cartesian_prod(*[torch.arange(3)] * 7)
    counts = torch.ones(len(rows))
    counts[1000:1100] = 5
    chosen = chosen_rows(rows, counts)
    assert len(chosen) == len(chosen.unique(dim=0)) == 256
    strides = torch.tensor([3**k for k in range(6, -1, -1)])
    places = (chosen @ strides).tolist()
    assert set(range(1000, 1100)) <= set(places)
    assert places == sorted(places)
    assert max(np.diff(places)) < 3**7 / 128 + 1
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(1))
    assert torch.equal(chosen_rows(rows[order], counts[order]), chosen)
    repeated = torch.repeat_interleave(rows, counts.long(), 0)
    assert torch.equal(chosen_rows(repeated), chosen)
    narrow = chosen_rows(rows.to(torch.int8), counts)
    assert narrow.dtype == torch.long and torch.equal(narrow, chosen)
    few, large = torch.tensor([[1, 2**53], [0, 3], [1, 2**53]]), torch.zeros(4, 0)
    assert chosen_rows(few).tolist() == [[0, 3], [1, 2**53]] and chosen_rows(large).shape == (1, 0)
    assert AnnealedImportance(starts=repeated) == AnnealedImportance(starts=chosen)


def test_starts_that_are_no_states_of_the_model_are_refused():
    counts = root_counts(4, -1.0, 0.1).energy
    limited = GeneralizedRootEnergy(counts.structure, counts.psi, TruncatedPoissonFamily(3))
    for backend, energy, starts, code in (
        (AnnealedImportance, curie_weiss(4, 1.0).energy, [[0, 1]], "wrong-shape"),
        (AnnealedImportance, curie_weiss(4, 1.0).energy, [[0, 1, 2, 0]], "out-of-range"),
        (RootAnnealed, counts, [[1, 2]], "wrong-shape"),
        (RootAnnealed, limited, [[1, 4, 0, 0]], "out-of-range"),
    ):
        with raises(code, f"{backend.__name__} starts"):
            backend(starts=starts).log_partition(energy)


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
    monkeypatch.setattr(AnnealedLogLinear, "ascend", lambda _, run: (run.ends, run.log_q))
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
    monkeypatch.setattr(AnnealedRoot, "ascend", lambda _, run: (run.ends, run.log_q))
    backend = RootAnnealed(num_chains=64, num_temperatures=20, seed=1, reverse=False)
    law = GeneralizedRoot(model.energy.structure, model.energy.psi, model.energy.family, partition=backend)
    with pytest.raises(IntractableError, match="x0=20, x1=20"):
        law.log_prob(torch.full((12,), 20.0, dtype=torch.float64))
    assert float(law.log_prob(torch.zeros(12, dtype=torch.float64))) < 0.01


# Weights


Z_LIMIT = -stats.norm.ppf(FALSE_ALARM_RATE / 2)


def test_resampling_inside_islands_keeps_the_mean():
    generator = torch.Generator().manual_seed(1)
    log_weights = torch.randn(3, 64, dtype=torch.float64, generator=generator) * 2
    index, after = resampled(log_weights, 4, 1.0, generator)
    assert np.allclose(island_means(after.numpy(), 4), island_means(log_weights.numpy(), 4))
    assert torch.equal(index // 16, torch.arange(64).div(16, rounding_mode="floor").expand(3, 64))
    share = torch.softmax(log_weights.reshape(3, 4, 16), -1).reshape(3, 64)
    copies = torch.zeros(3, 64, dtype=torch.float64).scatter_add_(1, index, torch.ones(3, 64, dtype=torch.float64))
    assert bool(((copies - 16 * share).abs() < 1).all())  # systematic: within one of the expected number
    kept, same = resampled(log_weights, 4, 1e-9, generator)
    assert torch.equal(kept, torch.arange(64).expand(3, 64))
    assert torch.equal(same, log_weights)


def test_resampling_has_the_expected_number_of_copies():
    log_weights = torch.tensor([[0.0, 1.0, 2.0, -1.0]], dtype=torch.float64).expand(20_000, 4)
    index, _ = resampled(log_weights, 1, 1.0, torch.Generator().manual_seed(2))
    copies = torch.stack([(index == k).double().sum(-1) for k in range(4)], -1)
    share = torch.softmax(log_weights[0], -1)
    assert bool(((copies.mean(0) - 4 * share).abs() < Z_LIMIT * copies.std(0) / 20_000**0.5 + 1e-12).all())


def test_equal_weights_leave_no_error_and_a_ratio_that_was_not_solved_is_not_reliable(monkeypatch):
    found = log_mean_weight(np.full((1, 32), 2.0))
    assert (found.value[0], found.error[0], found.ess[0]) == (2.0, 0.0, 32)
    assert bool(found.is_reliable[0])
    rng = np.random.default_rng(5)
    forward, reverse = 2.5 + rng.standard_normal((2, 500)), -3.5 + rng.standard_normal((2, 500))
    found = weights.acceptance_ratio(forward, reverse)
    assert found.is_reliable.all()  # control: enough steps
    assert np.abs(found.value - 3.0).max() < 6 * found.error.max()
    monkeypatch.setattr(weights, "_MAX_STEPS", 2)
    assert not weights.acceptance_ratio(forward, reverse).is_reliable.any()


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        ([0.0, 1.0], "wrong-type"),
        (np.zeros(20), "wrong-shape"),
        (np.zeros((2, 0)), "wrong-shape"),
        (np.full((1, 20), np.nan), "not-finite"),
    ],
)
def test_weights_that_are_refused(bad, code):
    good = np.zeros((1, 20))
    with raises(code, "log_weights"):
        log_mean_weight(bad)
    with raises(code, "reverse"):
        acceptance_ratio(good, bad)
    with raises("wrong-shape", "reverse"):
        acceptance_ratio(good, good[:, 1:])
    with raises("out-of-range", "level"):
        weights.one_sided_limits(log_mean_weight(good), 1, np.ones(1, dtype=bool))


# Options


PATHS = [(0.0, 0.5), (0.1, 1.0), (0.0, 0.6, 0.5, 1.0), (0.0, -0.5, 1.0), (0.0, math.nan, 1.0), (0.0,)]
BAD = [
    *(({"num_chains": value}, "num_chains", "out-of-range") for value in (0, 2.5, True)),
    *(({"num_temperatures": value}, "num_temperatures", "out-of-range") for value in (0, 10**9)),
    ({"sweeps_per_step": 0}, "sweeps_per_step", "out-of-range"),
    *(({"temperatures": path}, None, "out-of-range") for path in PATHS),
    ({"temperatures": 3}, None, "wrong-type"),
    ({"temperatures": "cosy"}, "temperatures", "unknown-choice"),
    *(({"conditional_ess": value}, "conditional_ess", "out-of-range") for value in (1.0, 0, "x")),
    *(({"level": value}, "level", "out-of-range") for value in (0.0, 1.0)),
    *(({"resample_below": value}, "resample_below", "out-of-range") for value in ("x", 0.0, 2.0)),
    ({"resample_below": 0.5, "islands": 8}, "islands", "out-of-range"),
    ({"resample_below": 0.5, "num_chains": 100}, "islands", "out-of-range"),
    ({"reverse": "perhaps"}, "reverse", "unknown-choice"),
    ({"combine": True, "reverse": False}, "combine", "conflict"),
    ({"combine": True, "resample_below": 0.5}, "combine", "conflict"),
    *(({"seed": value}, "seed", "out-of-range") for value in (-1, 2**62)),
    ({"burn_in": -1}, "burn_in", "out-of-range"),
    *(({"starts": rows}, "starts", "wrong-shape") for rows in ([0, 1], torch.zeros(0, 4))),
    *(({"starts": [[0, cell]]}, "starts", "missing-cells") for cell in (-1, math.nan, 0.5, 2.0**60)),
    *(({"starts": rows}, "starts", "wrong-type") for rows in ("rows", torch.ones(2, 2, dtype=torch.bool))),
]


@pytest.mark.parametrize("backend", [AnnealedImportance, RootAnnealed])
@pytest.mark.parametrize(("options", "name", "code"), BAD)
def test_bad_options(backend, options, name, code):
    with raises(code, f"{backend.__name__} {name}" if name else "temperatures"):
        backend(**options)


def test_values_at_the_ends_are_taken():
    assert RootAnnealed(resample_below=1, islands=16, seed=2**62 - 1, burn_in=0).num_groups == 16
    assert AnnealedImportance(temperatures=[0, 0.5, 1]).num_steps == 2
    assert AnnealedImportance(temperatures="adaptive").num_steps == 1000
