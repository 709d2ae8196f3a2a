"""Annealed log Z of generalized root models against known constants, and the choice of a backend."""

import itertools
import math
import pickle
import warnings
from dataclasses import replace

import pytest
import torch

from pyro_hoim.errors import ConvergenceWarning, IntractableError
from pyro_hoim.generalized_root import (
    ExponentialFamily,
    GaussianClosedForm,
    GeneralizedRootEnergy,
    IndependentClosedForm,
    PoissonFamily,
    RootAnnealed,
    RootAuto,
    RootBackend,
    RootEnumeration,
    RootStructure,
)
from pyro_hoim.testing import assert_close, raises

from support.root_models import blocks_energy, chain_energy, domain_of, random_energy, simplified_energy

QUICK = RootAnnealed(num_chains=128, num_temperatures=40, seed=3, burn_in=20)


def within(result, exact, errors=5.0):
    """A false alarm of five errors of a skewness-corrected bar is rarer than one in a million."""
    assert result.verdict != "unreliable", result.notes
    assert abs(float(result.value) - float(exact)) < errors * float(result.std_error)
    assert float(result.lower) < float(result.value) < float(result.upper)
    return float(result.std_error)


@pytest.mark.parametrize("name", ["poisson", "truncated", "exponential", "gaussian"])
@pytest.mark.parametrize("order", [2, 3])
def test_three_variables_within_the_error_bar(name, order):
    energy = random_energy(name, 3, order, seed=order, scale=0.1)
    exact = RootAuto().log_partition(energy).value
    result = QUICK.log_partition(energy)
    error = within(result, exact)
    assert error < 0.1
    assert (result.kind, result.coding) == ("biased", "root")
    is_perfect = name in ("poisson", "truncated") or (name == "gaussian" and order == 2)
    assert result.sandwich.start == ("exact" if is_perfect else "tempered")
    assert any("tempered" in note for note in result.notes) != is_perfect
    psi = torch.where(energy.structure.multiplicity > 1, 2 * energy.psi, energy.psi)  # the control: twice as strong
    control = RootAuto().log_partition(GeneralizedRootEnergy(energy.structure, psi, energy.family)).value
    assert abs(float(result.value) - float(control)) > 5 * float(result.sandwich.forward_error)


@pytest.mark.parametrize("name", ["poisson", "gaussian"])
def test_ten_variables_in_a_chain(name):
    energy = chain_energy(name, 10, seed=1, scale=0.15)
    exact = RootAuto().log_partition(energy).value  # sums along the chain, or the closed form
    within(replace(QUICK, num_chains=64).log_partition(energy), exact)


@pytest.mark.parametrize("name", ["poisson", "exponential"])
def test_ten_variables_in_blocks(name):
    energy = blocks_energy(name, 5, 2, seed=2)
    exact = RootAuto().log_partition(energy).value
    quick = replace(QUICK, num_chains=64, reverse=False)  # all at once, blind to the blocks
    within(quick.log_partition(energy), exact)


def test_a_hundred_counts_in_blocks():
    energy = blocks_energy("poisson", 50, 2, seed=3, scale=0.05)
    exact = RootAuto().log_partition(energy).value
    result = replace(QUICK, num_chains=64, num_temperatures=30, reverse=False).log_partition(energy)
    assert within(result, exact) < 0.2


def test_combined_runs_and_a_wide_law():
    energy = random_energy("poisson", 3, 3, seed=7, scale=0.3)
    exact = RootAuto().log_partition(energy).value
    plain = within(QUICK.log_partition(energy), exact)
    both = within(replace(QUICK, combine=True).log_partition(energy), exact)
    assert both < 1.5 * plain
    adaptive = replace(QUICK, temperatures="adaptive", conditional_ess=0.99)
    within(adaptive.log_partition(energy), exact)
    resampled = replace(QUICK, num_chains=512, resample_below=0.5, reverse=False)
    within(resampled.log_partition(energy), exact)


@pytest.mark.fixed_seed  # not every random model is far away
def test_what_the_weights_do_not_support_is_said():
    """One step from the independent member to a law far away."""
    energy = random_energy("poisson", 3, 3, seed=7, scale=0.5)
    blind = RootAnnealed(num_chains=64, temperatures=[0.0, 1.0], seed=1, reverse=False)
    with pytest.warns(ConvergenceWarning, match="the estimate is unreliable"):
        result = blind.log_partition(energy)
    assert result.verdict == "unreliable"
    assert float(result.std_error) == float("inf")
    assert any("weights are uneven" in note for note in result.notes)


def test_gradient_is_the_estimated_expectation():
    energy = random_energy("poisson", 3, 2, seed=4)
    psi = energy.psi.clone().requires_grad_(True)
    model = GeneralizedRootEnergy(energy.structure, psi, energy.family)
    value = QUICK.log_partition(model).value
    (slope,) = torch.autograd.grad(value, psi, create_graph=True)
    expectations = QUICK.expectations(energy)
    assert_close(slope, energy.structure.multiplicity * expectations, relative=1e-12)
    with pytest.raises(IntractableError, match="differentiable once"):
        torch.autograd.grad(slope.sum(), psi)
    exact, states = RootAuto().expectations(energy), QUICK.sample(energy, (2000,), torch.Generator().manual_seed(1))
    spread = energy.statistics(states).std(0)
    assert bool(((expectations - exact).abs() < 6 * spread / 128**0.5).all())
    assert bool(((energy.statistics(states).mean(0) - exact).abs() < 6 * spread / 2000**0.5).all())
    mean, variance = QUICK.moments(energy)
    true_mean, true_variance = RootAuto().moments(energy)
    assert bool(((mean - true_mean).abs() < 6 * (true_variance / 128).sqrt()).all())
    assert bool(((variance / true_variance).log().abs() < 1.5).all())


def test_randomness():
    energy = random_energy("poisson", 2, 2, seed=4, batch=(2,))
    first, again = QUICK.log_partition(energy), QUICK.log_partition(energy)
    assert torch.equal(first.value, again.value)
    assert first.value.shape == (2,)
    state = torch.get_rng_state()
    QUICK.log_partition(energy)
    QUICK.sample(energy, (3,), torch.Generator().manual_seed(0))
    assert torch.equal(state, torch.get_rng_state())
    fresh = replace(QUICK, seed=None)
    torch.manual_seed(0)
    one = fresh.log_partition(energy).value
    assert not torch.equal(one, fresh.log_partition(energy).value)
    torch.manual_seed(0)
    assert torch.equal(one, fresh.log_partition(energy).value)
    assert pickle.loads(pickle.dumps(QUICK)) == QUICK
    assert hash(QUICK) == hash(replace(QUICK))


def test_small_shapes():
    nothing = GeneralizedRootEnergy(
        RootStructure.independent(domain_of(2, PoissonFamily())), torch.zeros(0, 2), PoissonFamily()
    )
    assert (QUICK.log_partition(nothing).value.shape, QUICK.expectations(nothing).shape) == ((0,), (0, 2))
    assert (QUICK.moments(nothing)[0].shape, QUICK.sample(nothing, (3,)).shape) == ((0, 2), (3, 0, 2))
    single = GeneralizedRootEnergy(nothing.structure, torch.tensor([0.0, 0.5]), PoissonFamily())
    assert QUICK.sample(single, ()).shape == (2,)
    result = QUICK.log_partition(single)
    assert result.value.dtype == torch.float32
    assert_close(result.value, 1 + torch.tensor(0.5).exp(), relative=1e-6)


# The choice


def test_decision_table():
    names = ("v0", "v1", "v2", "v3", "v4", "v5")
    sets = [names[:3], names[:2], names[1:3], (names[0], names[2])]
    energy = simplified_energy(PoissonFamily(), 6, sets, [0.05] * 10)
    structure = energy.structure
    chosen = RootAuto().select(energy)
    assert [(part, type(backend)) for part, backend in chosen] == [
        (names[:3], RootEnumeration),
        (names[3:], IndependentClosedForm),
    ]
    assert all(isinstance(backend, RootBackend) for _, backend in chosen)
    cost = RootAuto().plan(structure, PoissonFamily())
    assert cost.feasible
    assert cost.method == "enumeration + independent closed form"
    assert "2 components" in cost.reason
    small = RootEnumeration(max_cells=50)
    refused = RootAuto(small)
    assert not refused.plan(structure, PoissonFamily()).feasible
    for action in (refused.log_partition, refused.expectations, refused.select, refused.sample, refused.moments):
        with pytest.raises(
            IntractableError, match=r"component of 3 variables .* \d+ cells.*max_cells=50.*RootAnnealed"
        ):
            action(energy)
    estimated = RootAuto(small, QUICK)
    assert estimated.plan(structure, PoissonFamily()).method == "annealed importance sampling + independent closed form"
    assert not estimated.is_exact
    assert not estimated.is_exact_for(energy)
    assert RootAuto(annealed=QUICK).is_exact_for(energy)
    assert [type(backend) for _, backend in estimated.select(energy)] == [RootAnnealed, IndependentClosedForm]
    result, exact = estimated.log_partition(energy), RootAuto().log_partition(energy)
    assert -math.inf < float(result.lower_bound) <= float(exact.value) + 1e-9
    within(result, exact.value)
    assert result.sandwich is not None
    assert (exact.std_error, exact.verdict) == (0.0, "verified")
    assert RootAuto().draws_exactly(energy)
    assert not estimated.draws_exactly(energy)
    assert not refused.draws_exactly(energy)


def test_gaussian_rows():
    closed = random_energy("gaussian", 3, 2, seed=1)
    assert [type(b) for _, b in RootAuto().select(closed)] == [GaussianClosedForm]
    rooted = random_energy("gaussian", 2, 3, seed=1)
    assert [type(b) for _, b in RootAuto().select(rooted)] == [RootEnumeration]
    assert not RootAuto().draws_exactly(rooted)
    with pytest.raises(IntractableError, match="no sample"):
        RootAuto().sample(rooted, (2,))
    assert RootAuto(annealed=QUICK).sample(rooted, (2,)).shape == (2, 2)


def test_several_components_in_any_order():
    """Variables of different components interleave in the schema; results come back in its order."""
    sets, psi = [("v0", "v3"), ("v2", "v4")], torch.linspace(-0.4, 0.4, 7, dtype=torch.float64)
    energy = simplified_energy(PoissonFamily(), 5, sets, psi.tolist())
    auto, whole = RootAuto(), RootEnumeration()
    assert_close(auto.log_partition(energy).value, whole.log_partition(energy).value, relative=1e-9)
    assert_close(auto.expectations(energy), whole.expectations(energy), relative=1e-8)
    for found, expected in zip(auto.moments(energy), whole.moments(energy), strict=True):
        assert_close(found, expected, relative=1e-8)
    draws = auto.sample(energy, (4000,), torch.Generator().manual_seed(0))
    mean, variance = auto.moments(energy)
    assert bool(((draws.mean(0) - mean).abs() < 6 * (variance / 4000).sqrt()).all())
    assert "v1" in [part for part, _ in auto.select(energy)][-1]


def test_a_thick_graph_is_refused_at_once():
    names = domain_of(200, PoissonFamily()).names
    energy = simplified_energy(PoissonFamily(), 200, itertools.combinations(names, 2), [0.0] * 20_100)
    with pytest.raises(IntractableError, match="component of 200 variables"):
        RootAuto().log_partition(energy)
    assert RootAuto(annealed=QUICK).plan_energy(energy).feasible


def test_undecided_models_need_leave(monkeypatch):
    from pyro_hoim.generalized_root.exact import base as root_base
    from pyro_hoim.generalized_root.normalizability.check import Normalizability

    monkeypatch.setattr(root_base, "check_normalizable", lambda energy: Normalizability("undecided", "for the test"))
    energy = random_energy("exponential", 2, 2, seed=1)
    for backend in (RootAuto(), RootEnumeration(), QUICK, RootAuto(annealed=QUICK)):
        with pytest.raises(IntractableError, match="undecided: for the test"):
            backend.log_partition(energy)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for backend in (RootAuto(allow_undecided=True), RootEnumeration(allow_undecided=True)):
            assert backend.log_partition(energy).kind == "exact"
        allowed = RootAuto(RootEnumeration(max_cells=10), QUICK, allow_undecided=True)
        assert allowed.log_partition(energy).kind == "biased"


def test_options_of_the_choice_are_checked():
    with raises("wrong-type", "RootAuto annealed"):
        RootAuto(annealed=RootEnumeration())
    with raises("wrong-type", "RootAuto enumeration"):
        RootAuto(QUICK)
    wild = simplified_energy(ExponentialFamily(), 2, [("v0", "v1")], [-1.0, -1.0, 2.0])
    with raises("not-normalizable", "psi"):
        QUICK.log_partition(wild)
    broken = GeneralizedRootEnergy(wild.structure, torch.full((3,), float("nan")), ExponentialFamily(), validate=False)
    with raises("not-finite", "psi"):
        QUICK.log_partition(broken)
