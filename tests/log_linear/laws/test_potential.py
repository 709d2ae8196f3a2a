"""The potential that NUTS evaluates is that of the Pyro program, and so are its draws."""

import math
from functools import partial
from typing import Any

import pyro
import pytest
import torch
from pyro import distributions as dist
from pyro.infer.mcmc.util import initialize_model
from pyro.ops.integrator import potential_grad

from pyro_hoim.inference import NUTSSettings, log_linear_model, sample_posterior
from pyro_hoim.inference.kernels import PotentialNUTS
from pyro_hoim.log_linear import (
    AnnealedImportance,
    Auto,
    DiaconisYlvisaker,
    Enumeration,
    VariableElimination,
    normal_prior,
    statistics_of,
)
from pyro_hoim.log_linear.laws.priors import NormalPotential, known_potential
from pyro_hoim.schema import Domain
from pyro_hoim.structure import InteractionHypergraph
from pyro_hoim.testing import assert_close

HYPERGRAPH = InteractionHypergraph.from_order(Domain.from_cardinalities([2, 3, 2, 2]), 2)
ROWS = torch.stack(
    [torch.randint(0, n, (150,), generator=torch.Generator().manual_seed(n)) for n in (2, 3, 2, 2)], dim=1
)
COUNTS = statistics_of(ROWS, HYPERGRAPH).double()
PRIORS = {
    "normal": normal_prior(HYPERGRAPH, {1: 3.0, 2: 0.5}, dtype=torch.float64),
    "conjugate": DiaconisYlvisaker.uniform(HYPERGRAPH, torch.tensor(4.0, dtype=torch.float64)),
}


def model_of(prior, backend):
    """The documented Pyro program."""
    if isinstance(prior, DiaconisYlvisaker):
        return partial(pyro.sample, "theta", prior.posterior(COUNTS, 150.0))
    return partial(log_linear_model, HYPERGRAPH, prior, COUNTS, 150.0, backend)


def of_pyro(prior, backend):
    """Potential that Pyro makes of the program."""
    return initialize_model(model_of(prior, backend))[1]


@pytest.mark.parametrize("backend", [Auto(), Enumeration(), VariableElimination()])
@pytest.mark.parametrize("name", PRIORS)
def test_potential_and_gradient_are_those_of_the_program(name, backend):
    prior = PRIORS[name].with_partition(backend) if name == "conjugate" else PRIORS[name]
    found = known_potential(HYPERGRAPH, prior, COUNTS, 150.0, backend)
    assert found is not None
    expected = of_pyro(prior, backend)
    generator = torch.Generator().manual_seed(1)
    for scale in (0.0, 0.1, 1.0, 10.0):
        theta = scale * torch.randn(HYPERGRAPH.num_parameters, generator=generator, dtype=torch.float64)
        (slope, value), (known_slope, known) = (potential_grad(f, {"theta": theta}) for f in (found, expected))
        assert_close(value, known, relative=1e-10)
        assert_close(slope["theta"], known_slope["theta"], relative=1e-10, absolute=1e-10)


@pytest.mark.parametrize("value", [math.nan, math.inf, 1e200])
def test_diverged_theta_has_no_energy(value):
    potential = NormalPotential(HYPERGRAPH, PRIORS["normal"], COUNTS, 150.0, Auto())
    theta = torch.full((HYPERGRAPH.num_parameters,), value, dtype=torch.float64)
    with pyro.validation_enabled(False):
        found = potential_grad(potential, {"theta": theta})
        expected = potential_grad(of_pyro(PRIORS["normal"], Auto()), {"theta": theta})
    assert bool(found[1].isnan()) and bool(expected[1].isnan())
    assert bool(found[0]["theta"].isnan().all())


def test_other_priors_and_estimates_are_left_to_pyro():
    cauchy = dist.Cauchy(torch.zeros(HYPERGRAPH.num_parameters).double(), 1.0).to_event(1)
    assert known_potential(HYPERGRAPH, cauchy, COUNTS, 150.0, Auto()) is None
    annealed = AnnealedImportance(seed=0)
    assert known_potential(HYPERGRAPH, PRIORS["normal"], COUNTS, 150.0, annealed) is None


@pytest.mark.filterwarnings("ignore:posterior:pyro_hoim.errors.ConvergenceWarning")  # six draws
@pytest.mark.parametrize("name", PRIORS)
@pytest.mark.parametrize("metric", ["laplace", "adapt"])
def test_draws_are_those_of_the_program(name, metric, monkeypatch):
    settings = NUTSSettings(num_draws=6, burn_in=6, num_chains=2)
    options = {"settings": settings, "seed": 3, "progress": False}
    draw = partial(sample_posterior, HYPERGRAPH, COUNTS, PRIORS[name], total_count=150, metric=metric, **options)
    fast = draw()
    used = list[Any]()

    def traced(*_):
        used.append(None)

    monkeypatch.setattr("pyro_hoim.inference.posterior.known_potential", traced)
    slow = draw()
    assert used and isinstance(slow.run.kernel, PotentialNUTS)
    assert torch.equal(fast.theta, slow.theta)
    assert fast.run.diagnostics()["sample_stats"] == slow.run.diagnostics()["sample_stats"]
