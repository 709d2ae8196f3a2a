"""Ten mixtures of columns, and the smallest tables, pass every check of a law, against sums and integrals."""

import functools
import warnings

import numpy as np
import pyro
import pytest
import torch
from pyro.infer import MCMC, NUTS

from pyro_hoim import ConvergenceWarning
from pyro_hoim.generalized_root import GeneralizedRoot, GeneralizedRootEnergy, RootChains
from pyro_hoim.inference import NUTSSettings, sample_root_posterior
from pyro_hoim.testing import DISTRIBUTION_CHECKS, DistributionCase, assert_close, assert_exact_law

from support.mixed_roots import EDGES, TEN, brute_force, in_units, log_density, mixed_axes, mixed_energy, mixed_states

LAWS = pytest.mark.parametrize("name", ["finite", *TEN, *EDGES])


@functools.cache
def law_case(name):
    """The case of a mixture: two sets of parameters, and log densities by the definition."""
    energy = in_units(mixed_energy(name, batch=(2,)))
    axes = mixed_axes(energy)
    tables = []
    for psi in energy.psi:
        one = GeneralizedRootEnergy(energy.structure, psi, energy.families)
        columns, dims = [], len(axes)
        for number, axis in enumerate(axes):
            columns += [column.reshape([-1 if number == t else 1 for t in range(dims)]) for column in axis.values.T]
        sizes = [len(axis.values) for axis in axes]
        tables.append(np.broadcast_to(log_density(one, columns), sizes) - brute_force(one)[0])

    def make(psi, validate_args=None):
        return GeneralizedRoot(energy.structure, psi, energy.families, validate_args=validate_args)

    return DistributionCase(make, energy.psi, np.stack(tables), {"structure": energy.structure}, axes, "psi")


@pytest.mark.parametrize("check", DISTRIBUTION_CHECKS, ids=lambda check: check.__name__)
@LAWS
def test_laws_of_mixtures_pass_the_conformance_suite(name, check):
    check(law_case(name))


DRAWN_BY_CHAINS = [
    *("bounded-exponential", "category-poisson-gaussian", "poisson-exponential", "cubic-numbers", "every-kind")
]


@pytest.mark.parametrize("name", DRAWN_BY_CHAINS)
def test_gibbs_chains_visit_cells_as_often_as_integrals_say(name):
    case = law_case(name)
    energy = in_units(mixed_energy(name, batch=(2,)))
    one = GeneralizedRootEnergy(energy.structure, energy.psi[0], energy.families)
    chains = RootChains(one, 5000, seed=11)
    chains.sweep(12)
    counts = case.counts(chains.states)
    probs = [case.cell_probs(member) for member in (0, 1)]
    assert_exact_law(counts, probs[0] / probs[0].sum())
    with pytest.raises(AssertionError, match="chi-square"):  # the control: parameters of the other one
        assert_exact_law(counts, probs[1] / probs[1].sum())


def test_laws_drawn_by_chains_are_named():
    chained = {name for name in TEN if not law_case(name).make().sample_is_exact}
    assert chained == set(DRAWN_BY_CHAINS)


# Inference


@pytest.mark.parametrize("name", ["binary-gaussian", "binary-poisson", "category-gaussian", "poisson-exponential"])
def test_nuts_over_parameters_follows_the_posterior_by_definition(name):
    energy = mixed_energy(name)
    torch.manual_seed(3)
    rows = GeneralizedRoot(energy.structure, energy.psi, energy.families).sample((40,))
    size = energy.structure.num_terms

    def program():
        theta = pyro.sample("theta", pyro.distributions.Normal(torch.zeros(size).double(), 0.5).to_event(1))
        with pyro.plate("rows", len(rows)):
            pyro.sample("x", GeneralizedRoot(energy.structure, energy.psi + theta, energy.families), obs=rows)

    pyro.set_rng_seed(5)
    kernel = NUTS(program, step_size=0.02, adapt_step_size=False, max_tree_depth=2)
    start = {"theta": torch.zeros(size, dtype=torch.float64)}
    mcmc = MCMC(kernel, 4, warmup_steps=0, initial_params=start, disable_progbar=True)
    mcmc.run()
    draws = mcmc.get_samples()["theta"]
    assert len(draws.unique(dim=0)) > 1
    potential = kernel.potential_fn
    assert potential is not None
    shares = []
    for theta in draws[-2:]:
        one = GeneralizedRootEnergy(energy.structure, energy.psi + theta, energy.families)
        total = log_density(one, list(rows.T.numpy())).sum() - len(rows) * brute_force(one)[0]
        prior = float(torch.distributions.Normal(0.0, 0.5).log_prob(theta).sum())
        assert float(potential({"theta": theta})) == pytest.approx(-total - prior, abs=1e-6)
        shares.append(total)
    assert abs(shares[0] - shares[1]) > 1e-4  # the control: the posterior is not flat where it was looked at


@pytest.mark.parametrize("name", TEN)
def test_pseudo_posteriors_have_the_mode_and_curvature_of_their_definition(name):
    energy = mixed_energy(name)
    rows = mixed_states(energy, 30, seed=2)
    settings = NUTSSettings(num_draws=4, burn_in=4, num_chains=2, max_tree_depth=1)
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):  # short chains
        posterior = sample_root_posterior(
            energy.structure, rows, energy.families, 1.0, settings, calibrate=False, progress=False
        )
    assert bool(torch.isfinite(posterior.psi).all())
    psi = posterior.mode.clone().requires_grad_(True)
    model = GeneralizedRootEnergy(energy.structure, psi, energy.families)
    value = model.log_pseudo_prob(rows).sum() - model.coefficients.square().sum() / 2
    (slope,) = torch.autograd.grad(value, psi, create_graph=True)
    curvature = torch.stack([torch.autograd.grad(part, psi, retain_graph=True)[0] for part in slope])
    covariance = torch.linalg.inv(-curvature)
    step = covariance @ slope.detach()  # what is left to the mode, in standard deviations
    assert float((step / covariance.diagonal().sqrt()).abs().max()) < 1e-5
    assert_close(posterior.covariance, covariance, relative=1e-6)
