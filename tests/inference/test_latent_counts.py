"""Latent bounded counts: enumeration in TraceEnum_ELBO and infer_discrete, Gibbs draws in MixedGibbs; oracle: sums."""

import itertools

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.infer import TraceEnum_ELBO, config_enumerate

from pyro_hoim import Domain, InputError, IntractableError, MixedGibbs, Variable, run_mcmc
from pyro_hoim.generalized_root import (
    GeneralizedRoot,
    IndicatorFamily,
    PoissonFamily,
    RootStructure,
    TruncatedPoissonFamily,
)
from pyro_hoim.testing import assert_close, assert_exact_law, count_states

FAMILY = TruncatedPoissonFamily(2)
DOMAIN = Domain([Variable(name, kind="count") for name in "abc"])
STRUCTURE = RootStructure.complete(DOMAIN, 2)
PSI = torch.tensor([0.3, -0.2, 0.5, 0.1, 0.2, -0.3, 0.4, -0.5, 0.2], dtype=torch.float64)
WEIGHTS = torch.tensor([1.0, -0.5, 0.3], dtype=torch.float64)
STATES = torch.tensor(list(itertools.product(range(3), repeat=3)), dtype=torch.float64)


def law_of(psi=PSI, family=FAMILY):
    return GeneralizedRoot(STRUCTURE, psi, family)


LAW = law_of()


def program(data, law=LAW):
    with pyro.plate("rows", len(data)):
        x = pyro.sample("x", law)
        pyro.sample("y", dist.Normal(x @ WEIGHTS, 0.7), obs=data)
    return x


def joint(data, psi=PSI):
    """Log joint density of every state and datum (27, rows), by the energy and a sum over all states."""
    minus_energy = -law_of(psi).energy_model.energy(STATES)
    log_prior = minus_energy - minus_energy.logsumexp(0)
    return log_prior[:, None] + dist.Normal((STATES @ WEIGHTS)[:, None], 0.7).log_prob(data)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_state_once(dtype):
    law = law_of(torch.stack([PSI, -PSI]).to(dtype)).expand((3, 2))
    assert law.has_enumerate_support and law.support.is_discrete
    flat = law.enumerate_support(expand=False)
    assert flat.shape == (27, 1, 1, 3) and flat.dtype == dtype and torch.equal(flat[:, 0, 0].double(), STATES)
    full = law.enumerate_support()
    assert full.shape == (27, 3, 2, 3) and bool((full == flat).all())
    assert_close(law.log_prob(full).logsumexp(0), torch.zeros(3, 2), absolute=1e-5 if dtype == torch.float32 else 1e-12)


def test_what_has_no_end_or_too_many_states_says_so():
    counts = law_of(PSI.where(STRUCTURE.multiplicity == 1, -0.1), PoissonFamily())
    assert not counts.has_enumerate_support
    with pytest.raises(InputError, match=r"enumerate_support: expected .* bounded counts.*TruncatedPoissonFamily"):
        counts.enumerate_support()
    large = law_of(family=TruncatedPoissonFamily(40))
    assert not large.has_enumerate_support
    with pytest.raises(IntractableError, match=r"68921 .*max_enumerated_states"):
        large.enumerate_support()


def test_sums_in_an_elbo_are_those_of_enumeration():
    data = torch.tensor([0.4, -1.0, 2.2], dtype=torch.float64)
    psi = PSI.clone().requires_grad_()
    elbo = TraceEnum_ELBO(max_plate_nesting=1)
    loss = elbo.differentiable_loss(config_enumerate(lambda: program(data, law_of(psi))), lambda: None)
    expected = joint(data, psi).logsumexp(0).sum()
    assert_close(-loss, expected, absolute=1e-10)
    gradients = [torch.autograd.grad(value, psi)[0] for value in (-loss, expected)]
    assert_close(*gradients, absolute=1e-9)


def draws(model, num_draws):
    pyro.set_rng_seed(11)
    return run_mcmc(MixedGibbs(model), num_draws, burn_in=1, num_chains=1, progress=False).get_samples()["x"]


def test_mixed_gibbs_draws_from_the_posterior():
    """Without continuous sites and with one element, draws are independent ones from the full conditional."""
    data = torch.full((300,), 0.4, dtype=torch.float64)
    found = draws(lambda: program(data), 120).reshape(-1, 3)
    posterior = joint(data[:1])[:, 0].softmax(0)
    assert_exact_law(count_states(found.long(), (3, 3, 3)), posterior)
    with pytest.raises(AssertionError):  # the control: the prior
        assert_exact_law(count_states(found.long(), (3, 3, 3)), LAW.log_prob(STATES).exp())


def test_mixed_gibbs_moves_psi_and_counts():
    data = torch.tensor([0.4, -1.0, 2.2], dtype=torch.float64)

    def model():
        shift = pyro.sample("shift", dist.Normal(torch.zeros((), dtype=torch.float64), 0.3))
        return program(data, law_of(PSI + shift))

    pyro.set_rng_seed(3)
    kernel = MixedGibbs(model, {"max_tree_depth": 2, "step_size": 0.2, "adapt_step_size": False})
    found = run_mcmc(kernel, 12, burn_in=2, num_chains=1, progress=False).get_samples()
    assert found["x"].shape[-2:] == (3, 3) and bool(LAW.support.check(found["x"]).all())
    assert len(found["shift"].unique()) > 5 and len(found["x"].reshape(-1, 9).unique(dim=0)) > 5


@pytest.mark.parametrize(
    "families",
    [
        [TruncatedPoissonFamily(2), TruncatedPoissonFamily(1), TruncatedPoissonFamily(3)],
        [IndicatorFamily("level"), TruncatedPoissonFamily(2), IndicatorFamily("level")],
    ],
    ids=["maxima", "category"],
)
def test_latent_variables_of_several_families_are_summed_and_drawn(families):
    structure = RootStructure.simplified(DOMAIN, [("a", "b"), ("b", "c")])
    law = GeneralizedRoot(structure, PSI[: structure.num_terms], families)
    data = torch.full((300,), 0.9, dtype=torch.float64)
    states = law.enumerate_support()
    assert len(states) == (24 if families[0].name != "indicator" else 6)
    weights = law.log_prob(states) + dist.Normal(states @ WEIGHTS, 0.7).log_prob(data[0])
    loss = TraceEnum_ELBO(max_plate_nesting=1).loss(config_enumerate(lambda: program(data, law)), lambda: None)
    assert -loss == pytest.approx(300 * weights.logsumexp(0).item(), rel=1e-10)
    found = draws(lambda: program(data, law), 60).reshape(-1, 1, 3)
    codes = (found == states).all(-1).double().sum(0)
    assert_exact_law(codes, weights.softmax(0))
    with pytest.raises(AssertionError):  # the control: the prior
        assert_exact_law(codes, law.log_prob(states).exp())
