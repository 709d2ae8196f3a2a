"""Kernels of theta and of latent states for laws with impossible states, against a grid and enumeration."""

import math

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.infer import MCMC, NUTS, SVI, Trace_ELBO
from pyro.infer.autoguide import AutoNormal
from pyro.optim import ClippedAdam

from pyro_hoim import Domain, HierarchicalLogLinear, InteractionHypergraph, LogLinearStatistics, MixedGibbs, run_mcmc
from pyro_hoim.inference import Exchange, Langevin
from pyro_hoim.inference.intractable import _sites
from pyro_hoim.log_linear import ImpossibleStates, statistics_of
from pyro_hoim.runs import GibbsSchedule
from pyro_hoim.testing import assert_exact_law, raises

# States (0, 0), (1, 0) and (1, 1), and theta of a alone.
ONE = InteractionHypergraph(Domain.from_cardinalities({"a": 2, "b": 2}), [("a",)], hierarchical=False)
TRIANGLE = ImpossibleStates.of_combinations(ONE.domain, [{"a": 0, "b": 1}])
ROWS = torch.tensor([[0, 0]] * 8 + [[1, 0]] * 10 + [[1, 1]] * 12)


def program(rows, with_rows=True, impossible=TRIANGLE):
    values = pyro.sample("theta", dist.Normal(torch.zeros(1).double(), 1.5).to_event(1))
    if not with_rows:
        law = LogLinearStatistics(ONE, values, len(rows), impossible=impossible)
        pyro.sample("counts", law, obs=statistics_of(rows, ONE))
        return
    with pyro.plate("rows", len(rows)):
        pyro.sample("x", HierarchicalLogLinear(ONE, values, impossible=impossible), obs=rows)


def posterior(weights=(1.0, 2.0)):
    """Mean and standard deviation on a grid; the table of a is minus and plus theta over the root of two."""
    grid = np.linspace(-8, 8, 20001)
    low, high = -grid / math.sqrt(2), grid / math.sqrt(2)
    ones = int(ROWS[:, 0].sum())
    logs = (len(ROWS) - ones) * low + ones * high - grid**2 / (2 * 1.5**2)
    logs -= len(ROWS) * np.log(weights[0] * np.exp(low) + weights[1] * np.exp(high))
    density = np.exp(logs - logs.max()) / np.exp(logs - logs.max()).sum()
    mean = (grid * density).sum()
    return mean, math.sqrt(((grid - mean) ** 2 * density).sum())


@pytest.mark.parametrize("with_rows", [True, False])
@pytest.mark.parametrize("has_perfect_draws", [True, False])
def test_exchange_draws_theta_from_the_posterior_on_the_support(with_rows, has_perfect_draws, monkeypatch):
    if not has_perfect_draws:
        monkeypatch.setattr(_sites.LogLinearSite, "draws_perfectly", lambda self, natural: False)
    run = run_mcmc(
        Exchange(program), 100, burn_in=50, num_chains=16, seed=2, model_args=(ROWS, with_rows), progress=False
    )
    mean, deviation = posterior()
    draws = run.samples["theta"].flatten()
    assert abs(float(draws.mean()) - mean) < 0.25 * deviation
    # Negative control: the posterior of a law that forgets what is impossible.
    assert abs(posterior((2.0, 2.0))[0] - mean) > 0.5 * deviation


@pytest.mark.parametrize("gradient", ["backend", "persistent"])
def test_langevin_steps_stay_near_the_posterior_on_the_support(gradient):
    kernel = Langevin(program, gradient=gradient)
    run = run_mcmc(kernel, 300, burn_in=50, seed=4, model_args=(ROWS,), progress=False)
    mean, deviation = posterior()
    assert abs(float(run.samples["theta"].mean()) - mean) < 0.4 * deviation


def test_nuts_draws_theta_from_the_posterior_on_the_support():
    mean, deviation = posterior()
    pyro.set_rng_seed(3)
    run = MCMC(NUTS(program), num_samples=300, warmup_steps=60, disable_progbar=True)
    run.run(ROWS, False)
    draws = run.get_samples()["theta"][:, 0]
    error = deviation * 4 / math.sqrt(300 / 3)
    assert abs(float(draws.mean()) - mean) < error
    assert abs(float(draws.std()) - deviation) < error
    assert abs(posterior((2.0, 2.0))[0] - mean) > 2 * error  # the control, as above


def test_variational_inference_finds_the_posterior_on_the_support():
    mean, deviation = posterior()
    pyro.set_rng_seed(5)
    pyro.clear_param_store()
    guide = AutoNormal(program, init_scale=0.2)
    svi = SVI(program, guide, ClippedAdam({"lr": 0.05, "lrd": 0.97}), Trace_ELBO(num_particles=2))
    for _ in range(150):
        svi.step(ROWS, False)
    fitted = guide._get_loc_and_scale("theta")
    assert abs(float(fitted[0].detach()) - mean) < deviation / 3
    assert abs(float(fitted[1].detach()) / deviation - 1) < 0.2
    pyro.clear_param_store()


# A latent state with one of three indicators set, of which single sites are not connected.

INDICATORS = Domain.from_cardinalities(dict.fromkeys("abc", 2))
SUMS = np.indices((2,) * 3).sum(0)
NOISE = torch.tensor([0.3, 0.9, -0.4], dtype=torch.float64)


def latent(**options):
    graph = InteractionHypergraph.from_order(INDICATORS, 1)
    law = HierarchicalLogLinear(graph, torch.linspace(-1, 1, 3).double(), impossible=SUMS != 1)
    x = pyro.sample("x", law)
    with pyro.plate("columns", 3):
        pyro.sample("y", dist.Normal(x.double(), 0.8), obs=NOISE)


def test_mixed_gibbs_visits_possible_states_by_blocks_that_connect_them():
    states = torch.from_numpy(np.argwhere(SUMS == 1))
    theta = torch.linspace(-1, 1, 3).double() / math.sqrt(2)
    logs = (theta * (2 * states - 1)).sum(-1) + dist.Normal(states.double(), 0.8).log_prob(NOISE).sum(-1)
    probs = torch.softmax(logs, 0).numpy()
    drawn = (
        run_mcmc(MixedGibbs(latent), 200, burn_in=10, num_chains=2, seed=1, progress=False)
        .samples["x"]
        .reshape(-1, 3)
        .long()
    )
    counts = (drawn[:, None] == states).all(-1).sum(0).numpy()
    assert counts.sum() == len(drawn)  # no impossible state
    assert_exact_law(counts, probs)


def test_mixed_gibbs_refuses_blocks_that_do_not_connect_and_starts_that_are_impossible():
    sites = GibbsSchedule(blocks=[(name,) for name in "abc"])
    with raises("impossible", "site 'x'"):
        run_mcmc(MixedGibbs(latent, schedule=sites), 2, burn_in=0, seed=0, progress=False)
    with raises("impossible", "initial_params['x']"):
        start = {"x": torch.tensor([[1, 1, 0]])}
        run_mcmc(MixedGibbs(latent), 2, burn_in=0, num_chains=1, seed=0, initial_params=start, progress=False)


def test_kernels_of_theta_refuse_a_batch_of_supports():
    graph = InteractionHypergraph.saturated(ONE.domain)
    law = HierarchicalLogLinear(graph, torch.zeros(3).double(), impossible=TRIANGLE)
    given = law.condition({"a": torch.tensor([0, 1])})

    def batch():
        values = pyro.sample("theta", dist.Normal(torch.zeros(2, 1).double(), 1.0).to_event(2))
        with pyro.plate("rows", 2):
            law = HierarchicalLogLinear(given.hypergraph, values, impossible=given.impossible)
            pyro.sample("x", law, obs=torch.tensor([[0], [1]]))

    with raises("impossible", "site 'x'"):
        run_mcmc(Exchange(batch), 2, burn_in=0, seed=0, progress=False)
