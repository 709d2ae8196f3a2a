"""Chains of generalized root models: cached scores, determinism, clamping, starts, the hat and bad input."""

import math

import numpy as np
import pytest
import torch

from pyro_hoim import ConvergenceWarning, Domain, InputError
from pyro_hoim.generalized_root import (
    GeneralizedRoot,
    GeneralizedRootEnergy,
    Normalizability,
    RootChains,
    RootStructure,
    draw_from_nodes,
    independent_log_partition,
    independent_samples,
    node_family,
)
from pyro_hoim.generalized_root.chains import gibbs as module
from pyro_hoim.generalized_root.chains._draw_kernels import (
    FACTORIAL,
    LINEAR,
    MAX_PIECES,
    NUM_FIELDS,
    add_side,
    draw_small,
    finish_hat,
    parts,
    side_parameters,
    small_counts,
)
from pyro_hoim.testing import assert_close, raises

from support.root_models import domain_of


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def model(family="poisson", d=4, order=3, scale=0.3, dtype=torch.float64):
    """All terms up to an order; those of reals fall fast enough along every axis and are weak otherwise."""
    chosen = node_family(family, maximum=9) if family == "truncated-poisson" else node_family(family)
    structure = RootStructure.complete(domain_of(d, chosen), order)
    coefficients = scale * torch.randn(structure.num_terms, dtype=dtype, generator=generator(7))
    if chosen.kind != "count":
        for j, _ in structure.keys:
            coefficients[structure.slices[j, 1]] = -2.0 if j == 1 else 0.3
            for size in range(2, j + 1):
                coefficients[structure.slices[j, size]] *= 0.2
    return GeneralizedRootEnergy.from_coefficients(structure, coefficients, chosen)


FAMILIES = ["poisson", "truncated-poisson", "exponential", "gaussian"]


@pytest.mark.parametrize("family", FAMILIES)
def test_cached_scores_are_those_of_the_model(family):
    energy = model(family)
    chains = RootChains(energy, 50, seed=generator(), check=False)

    def compare():
        states = chains.states
        assert_close(chains.log_q(), -energy.energy(states), relative=1e-9)
        assert_close(chains.interaction_score(), energy.interaction_score(states), relative=1e-9)
        tempered = -energy.energy(states) - 0.7 * energy.interaction_score(states)
        assert_close(chains.log_q(beta=0.3), tempered, relative=1e-9)

    compare()
    for beta in (1.0, 0.0, 0.5):
        chains.sweep(2, beta=beta)
        compare()
    chains.set_states(torch.ones(4))
    compare()
    held = chains.state_dict()
    chains.sweep(3)
    chains.load_state_dict(held)
    compare()


def test_negative_control_scores_of_a_stale_cache_differ():
    energy = model()
    chains = RootChains(energy, 5, seed=generator())
    chains._tiles[0][1][0] += 1.0  # a state without its roots
    assert not torch.allclose(chains.log_q(), -energy.energy(chains.states))


@pytest.mark.parametrize("family", FAMILIES)
def test_the_same_seed_gives_the_same_bits_whatever_the_number_of_chains(family):
    energy = model(family)
    few = RootChains(energy, 3, seed=generator(1), check=False)
    many = RootChains(energy, 70, seed=generator(1), check=False)
    other = RootChains(energy, 3, seed=generator(2), check=False)
    for chains in (few, many, other):
        chains.sweep(4)
    assert torch.equal(few.states, many.states[:3])
    assert not torch.equal(few.states, other.states)
    assert len(torch.unique(many.states, dim=0)) > 35  # chains have streams of their own


def test_threads_change_nothing():
    energy, found = model(), []
    before = torch.get_num_threads()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            chains = RootChains(energy, 40, seed=generator(1))
            chains.sweep(30)
            found.append(chains.states)
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*found)


def test_a_generator_leaves_the_global_one_alone_and_none_uses_it():
    energy = model()
    torch.manual_seed(3)
    before = torch.get_rng_state()
    RootChains(energy, 2, seed=generator()).sweep(2)
    draw_from_nodes(energy.family, torch.zeros(5, 2), generator=generator())
    assert torch.equal(before, torch.get_rng_state())
    first = RootChains(energy, 2, seed=None).states
    assert not torch.equal(first, RootChains(energy, 2, seed=None).states)
    torch.manual_seed(3)
    assert torch.equal(first, RootChains(energy, 2, seed=None).states)


def test_sweeps_add_up_and_are_counted():
    energy = model()
    whole, parts_ = (RootChains(energy, 6, seed=generator(1)) for _ in range(2))
    whole.sweep(5, beta=0.5)
    for length in (2, 0, 3):
        parts_.sweep(length, beta=0.5)
    assert torch.equal(whole.states, parts_.states)
    assert whole.num_sweeps == parts_.num_sweeps == 5


def test_given_variables_stay():
    energy = model()
    values = torch.arange(8.0)
    chains = RootChains(energy, 8, clamped={"v2": 4, "v0": values}, init=torch.ones(8, 4), seed=generator())
    chains.sweep(5)
    states = chains.states
    assert chains.clamped == ("v0", "v2")
    assert torch.equal(states[:, 0], values.double())
    assert bool((states[:, 2] == 4).all())
    assert_close(chains.log_q(), -energy.energy(states), relative=1e-9)
    everything = RootChains(energy, 2, clamped=dict.fromkeys(energy.domain.names, 2.0), seed=generator())
    everything.sweep(3)
    assert bool((everything.states == 2).all())


def test_small_domains():
    empty = GeneralizedRootEnergy(
        RootStructure.independent(Domain([])), torch.zeros(0, dtype=torch.float64), node_family("poisson")
    )
    chains = RootChains(empty, 3, seed=generator())
    chains.sweep(2)
    assert (chains.states.shape, chains.log_q().tolist()) == ((3, 0), [0.0] * 3)
    one = model(d=1)
    chains = RootChains(one, 2000, seed=generator())
    assert abs(chains.states.mean().item() - sampled_mean(one.coefficients.numpy())) < 5 * math.sqrt(3 / 2000)


def sampled_mean(natural):
    """Mean of a Poisson node by its sum."""
    x = np.arange(200.0)
    log_p = sum(eta * x ** (1 / (j + 1)) for j, eta in enumerate(natural)) - np.cumsum(np.log(np.maximum(x, 1)))
    p = np.exp(log_p - log_p.max())
    return float((p * x).sum() / p.sum())


def test_states_are_float64_and_psi_may_be_float32():
    single = model(dtype=torch.float32)
    double = GeneralizedRootEnergy(single.structure, single.psi.double(), single.family)
    found = [RootChains(energy, 5, seed=generator()) for energy in (single, double)]
    for chains in found:
        chains.sweep(3)
    assert (found[0].states.dtype, found[0].interaction_score().dtype) == (torch.float64, torch.float64)
    assert torch.equal(found[0].states, found[1].states)


@pytest.mark.cuda
def test_states_come_back_on_the_device_of_psi():
    energy = model()
    on_device = energy.to(device=torch.device("cuda"))
    chains = RootChains(on_device, 5, init=torch.ones(4, device="cuda"), seed=generator())
    chains.sweep(2)
    other = RootChains(energy, 5, init=torch.ones(4), seed=generator())
    other.sweep(2)
    assert chains.states.is_cuda and chains.log_q().is_cuda
    assert torch.equal(chains.states.cpu(), other.states)


# The independent member


def test_independent_log_partition_is_a_sum_of_poisson_log_partitions():
    structure = RootStructure.simplified(domain_of(3, node_family("poisson")), [("v0", "v1"), ("v0", "v1", "v2")])
    psi = torch.tensor([0.5, -1.0, 2.0, 3.0, 4.0], dtype=torch.float64, requires_grad=True)
    value = independent_log_partition(GeneralizedRootEnergy(structure, psi, node_family("poisson")))
    assert_close(value, sum(math.exp(a) for a in (0.5, -1.0, 2.0)))
    (grad,) = torch.autograd.grad(value, psi)
    assert_close(grad, [math.exp(0.5), math.exp(-1.0), math.exp(2.0), 0.0, 0.0])


def test_independent_samples_have_their_means():
    structure = RootStructure.simplified(domain_of(2, node_family("poisson")), [("v0", "v1")])
    energy = GeneralizedRootEnergy(structure, torch.tensor([1.0, -1.0, 5.0]), node_family("poisson"))
    draws = independent_samples(energy, 20_000, generator=generator())
    assert draws.dtype == torch.float64
    for column, rate in zip(draws.T, (math.exp(1), math.exp(-1)), strict=True):
        assert abs(column.mean().item() - rate) < 5 * math.sqrt(rate / 20_000)


# The hat


@pytest.mark.parametrize(
    ("natural", "is_discrete"),
    [
        ([5.5, -3.0, 2.0], True),
        ([6.2, -26.9232843398], True),
        ([16.0, -20.0, 4.0], True),
        ([9.0, -300.0, 0.0], True),
        ([-1.0, 3.0, -8.0], False),
        ([-1e-9, -2.0], False),
        ([-1e-4, 200.0], False),
    ],
    ids=str,
)
def test_the_hat_is_above_the_density_everywhere(natural, is_discrete):
    side, anchored = np.zeros(8), np.zeros((1, len(natural)))
    side[LINEAR], side[FACTORIAL] = natural[0], float(is_discrete)
    coefficients = np.array([0.0, *natural[1:]])
    powers = np.array([0.5] + [1 / (j + 1) for j in range(1, len(natural))])
    assert math.isfinite(side_parameters(side, coefficients, powers, anchored[0], math.inf))
    pieces, cumulative = np.zeros((MAX_PIECES, NUM_FIELDS)), np.zeros(MAX_PIECES)
    count = add_side(pieces, 0, 0, side, coefficients, powers, anchored[0], 0.0, math.inf, is_discrete)
    count = finish_hat(pieces, count, side[None], coefficients, powers, anchored, np.zeros(1), is_discrete, cumulative)
    assert count < MAX_PIECES
    ordered = pieces[np.argsort(pieces[:count, 0])]
    step = 1.0 if is_discrete else 0.0
    assert ordered[0, 0] == 0.0 and ordered[-1, 1] == math.inf
    assert np.array_equal(ordered[1:, 0], ordered[:-1, 1] + step)  # pieces leave no gap
    for low, high, heavy, line, slope in pieces[:count, :5]:
        end = high if math.isfinite(high) else low - 40 / slope
        points = np.unique(np.linspace(low, end, 60).round() if is_discrete else np.linspace(low, end, 60))
        for u in points:
            c, _, v = parts(u, side, coefficients, powers, anchored[0])
            assert c + v <= line + slope * (u - heavy)
            assert c + v > -math.inf


def words_for(u):
    """A state of the random numbers of one chain whose next uniform number is u to 2^-52."""
    found = int(u * 2**52) << 12
    return np.array([[0, 1, 2, ((found >> 23) | (found << 41)) % 2**64]], dtype=np.uint64)


@pytest.mark.parametrize("natural", [[math.log(77)], [math.log(70)], [4.2, 2.0, -5.0], [0.2, 93.6]])
@pytest.mark.parametrize("maximum", [130.0, math.inf])
def test_small_counts_are_inverted_up_to_the_end_of_their_tail(natural, maximum):
    x = np.arange(min(maximum, 999.0) + 1)
    logs = sum(eta * x ** (1 / j) for j, eta in enumerate(natural, 1)) - np.array([math.lgamma(v + 1) for v in x])
    weights = np.exp(logs - logs.max())
    above = np.append(np.cumsum(weights[::-1])[::-1] / weights.sum(), 0.0)  # P(X >= x)
    assert above[128] > 1e-13  # the tail that a table of 128 counts does not hold
    for tail in 10.0 ** -np.arange(1, 13.5, 0.5):
        drawn = np.zeros(1)
        draw_small(np.array([natural]), maximum, small_counts(len(natural)), np.zeros(200), words_for(1 - tail), drawn)
        assert above[int(drawn[0]) + 1] - 4e-16 * 16 <= tail <= above[int(drawn[0])] + 4e-16 * 16


# Bad input


def pair_of_reals(*psi):
    family = node_family("exponential")
    structure = RootStructure.simplified(domain_of(2, family), [("v0", "v1")])
    return GeneralizedRootEnergy(structure, torch.tensor(psi, dtype=torch.float64), family)


def test_models_that_cannot_be_normalised_are_refused():
    with raises("not-normalizable", "psi"):
        RootChains(pair_of_reals(-1.0, -1.0, 2.0), 2, seed=generator())
    unbounded = pair_of_reals(-1.0, 1.0, -0.1)
    with raises("not-normalizable", "init"):
        RootChains(unbounded, 2, seed=generator(), check=False)
    chains = RootChains(unbounded, 2, init=torch.ones(2), seed=generator(), check=False)
    with pytest.raises(InputError, match="conditional of 'v1' in chain 0 cannot be normalised"):
        chains.sweep(1, beta=0.0)


def test_what_is_not_known_to_be_normalised_is_sampled_with_a_warning(monkeypatch):
    energy = model("exponential", d=3)
    monkeypatch.setattr(module, "check_normalizable", lambda energy: Normalizability("undecided", "too hard"))
    with pytest.warns(ConvergenceWarning, match="not known whether the model can be normalised .too hard."):
        RootChains(energy, 2, seed=generator())


def test_all_given_rows_are_checked_and_what_is_unknown_is_warned_of_once(monkeypatch):
    energy, seen = model("exponential", d=3), []

    def verdict(rest):
        seen.append(rest)
        is_last = len(seen) == 40
        return Normalizability("disproven", "grows") if is_last and refuse else Normalizability("undecided", "too hard")

    monkeypatch.setattr(module, "check_normalizable", verdict)
    name, refuse = energy.domain.names[0], True
    values = torch.arange(1.0, 41.0).double().flip(0)
    with pytest.raises(InputError, match="cannot be normalised: grows"):
        RootChains(energy, 40, clamped={name: values}, seed=generator())
    seen, refuse = [], False
    with pytest.warns(ConvergenceWarning, match="too hard") as caught:
        RootChains(energy, 40, clamped={name: values}, seed=generator())
    assert len(caught) == 1 and len(seen) == 40
    seen = []
    with pytest.warns(ConvergenceWarning):
        RootChains(energy, 1000, clamped={name: torch.arange(1.0, 1001.0).double()}, seed=generator())
    assert len(seen) == 64


def test_a_spread_of_many_rows_holds_the_extremes_of_every_column():
    rows = np.random.default_rng(0).uniform(size=(1000, 3))
    rows = rows[np.lexsort(rows.T[::-1])]
    found = module._spread(rows)
    assert 64 <= len(found) <= 70
    np.testing.assert_array_equal(found.min(0), rows.min(0))
    np.testing.assert_array_equal(found.max(0), rows.max(0))


def test_a_law_is_sampled_by_its_model():
    energy = model("poisson", d=3)
    law = GeneralizedRoot(energy.structure, energy.psi, energy.family)
    for call in (
        lambda source: RootChains(source, 5, clamped={energy.domain.names[0]: 2}, seed=generator()).states,
        lambda source: independent_samples(source, 5, generator=generator()),
    ):
        assert torch.equal(call(law), call(energy))


def test_given_values_may_make_a_model_normalisable():
    energy = pair_of_reals(-1.0, -1.0, 1.5)
    with raises("not-normalizable", "psi"):
        RootChains(energy, 2, seed=generator())
    chains = RootChains(energy, 2, clamped={"v0": 4.0}, seed=generator())
    chains.sweep(3)
    assert bool(torch.isfinite(chains.log_q()).all())


@pytest.mark.parametrize(
    ("family", "natural"),
    [
        *(("poisson", natural) for natural in ([[1.0], [60.0]], [math.nan], [math.inf], [0.0, math.nan])),
        *(("exponential", natural) for natural in ([0.0], [1.0, -1.0], [0.0, 0.0, 1.0])),
        *(("gaussian", natural) for natural in ([0.0], [1.0, -1.0], [0.0, 0.0, 1.0])),
    ],
)
def test_natural_parameters_without_a_law_are_refused(family, natural):
    with raises("not-normalizable", "natural"):
        draw_from_nodes(node_family(family), torch.tensor(natural))


def test_bad_arguments():
    energy = model()
    for code, argument, source, options in (
        ("wrong-type", "energy", "model", {}),
        ("wrong-shape", "energy", energy.expand((2,)), {}),
        ("unknown-name", None, energy, {"clamped": {"v9": 1.0}}),
        ("wrong-type", "clamped", energy, {"clamped": [1.0]}),
        ("out-of-range", "clamped['v0']", energy, {"clamped": {"v0": -1.0}}),
        ("wrong-shape", "clamped['v0']", energy, {"clamped": {"v0": torch.zeros(3)}}),
        ("out-of-range", "init", energy, {"init": torch.full((4,), 0.5)}),
        ("wrong-shape", "init", energy, {"init": torch.zeros(3)}),
        ("wrong-shape", "init", energy, {"init": torch.zeros(3, 4)}),
        ("wrong-type", "init", energy, {"init": [0.0] * 4}),
    ):
        with raises(code, argument):
            RootChains(source, 2, **options)
    with raises("out-of-range", "num_chains"):
        RootChains(energy, 0)
    chains = RootChains(energy, 2)
    for beta in (-0.1, 1.5, math.nan):
        with raises("out-of-range", "beta"):
            chains.sweep(1, beta=beta)
    with raises("out-of-range", "num_sweeps"):
        chains.sweep(-1)


def test_chains_that_are_told_another_model_are_chains_of_it():
    """From equal states and streams, states and scores are those of chains made for it; other terms are refused."""
    energy = model("truncated-poisson")
    other = GeneralizedRootEnergy(energy.structure, -0.5 * energy.psi, energy.family)
    start = torch.ones(4, dtype=torch.float64)
    chains, fresh = RootChains(energy, 10, init=start, seed=3), RootChains(other, 10, init=start, seed=3)
    chains.set_model(other)
    for both in (chains, fresh):
        both.sweep(3)
    assert torch.equal(chains.states, fresh.states)
    assert torch.equal(chains.log_q(), fresh.log_q())
    with pytest.raises(InputError, match="the terms and the family of the chains"):
        chains.set_model(model("truncated-poisson", order=2))
    with pytest.raises(InputError, match="no batch"):
        chains.set_model(GeneralizedRootEnergy(energy.structure, energy.psi.expand(2, -1), energy.family))
