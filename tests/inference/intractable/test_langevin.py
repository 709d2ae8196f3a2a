"""Langevin steps against their own stationary law on a grid, the posterior, and their contract with Pyro."""

import math
import pickle
from functools import partial
from itertools import pairwise

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.infer import MCMC
from scipy import stats

from pyro_hoim import Domain, HierarchicalLogLinear, InteractionHypergraph, LogLinearStatistics, Variable, to_arviz
from pyro_hoim.errors import HoimError, InputTypeError
from pyro_hoim.generalized_root import GeneralizedRoot, RootStructure, TruncatedPoissonFamily
from pyro_hoim.inference import Langevin, log_linear_model, run_mcmc
from pyro_hoim.log_linear import AnnealedImportance, VariableElimination, normal_prior, statistics_of
from pyro_hoim.testing import FALSE_ALARM_RATE, assert_close, raises

PAIR = InteractionHypergraph.from_order(Domain.from_cardinalities([2, 2]), 2)
ROWS = torch.tensor([[0, 0]] * 9 + [[0, 1]] * 2 + [[1, 0]] * 3 + [[1, 1]] * 8)
DIRECTION = torch.tensor([0.3, -0.4, 1.1], dtype=torch.float64)
GRID = torch.linspace(-1.5, 2.5, 801, dtype=torch.float64)
ZERO = torch.zeros((), dtype=torch.float64)
ANNEALED = AnnealedImportance(num_chains=64, num_temperatures=30)

run = partial(run_mcmc, progress=False)


def strength_of_rows(partition=None, rows=ROWS):
    strength = pyro.sample("strength", dist.Normal(ZERO, 1.0))
    with pyro.plate("rows", len(rows)):
        law = HierarchicalLogLinear(PAIR, strength.unsqueeze(-1) * DIRECTION, partition=partition)
        pyro.sample("x", law, obs=rows)
    pyro.sample("y", dist.Normal(strength, 0.5), obs=torch.tensor(0.4, dtype=torch.float64))


def log_density(strength):
    """Exact log posterior at strengths (S,) up to a constant."""
    law = LogLinearStatistics(PAIR, strength.unsqueeze(-1) * DIRECTION, len(ROWS))
    found = law.log_prob(statistics_of(ROWS, PAIR)) + dist.Normal(strength, 0.5).log_prob(ZERO + 0.4)
    return found - strength.square() / 2


def slope(strength, noise=False):
    """Exact gradient of the log posterior; with ``noise`` the variance of one row's statistic instead."""
    leaf = strength.clone().requires_grad_()
    law = LogLinearStatistics(PAIR, leaf.unsqueeze(-1) * DIRECTION, 1)
    value = law.log_partition.value.sum() if noise else log_density(leaf).sum()
    (found,) = torch.autograd.grad(value, leaf, create_graph=True)
    return (torch.autograd.grad(found.sum(), leaf)[0] if noise else found).detach()


def stationary(step, particles=math.inf):
    """Law on the grid that steps of this size leave invariant, with means over so many independent states."""
    spread = step + step**2 / 4 * len(ROWS) ** 2 / particles * slope(GRID, noise=True)
    mean = GRID + step / 2 * slope(GRID)
    transition = (-(GRID - mean[:, None]).square() / (2 * spread[:, None])).exp()
    transition = transition / transition.sum(1, keepdim=True)
    size = len(GRID)
    equations = torch.cat([(transition.T - torch.eye(size))[1:], torch.ones(1, size)])  # law @ transition = law, sum 1
    return torch.linalg.solve(equations, torch.eye(size, dtype=torch.float64)[-1])


def moments(weights):
    mean = float(weights @ GRID)
    return np.array([mean, float(weights @ (GRID - mean).square())])


def scores(draws, expected):
    """Largest t score of mean and of mean squared distance from it, of draws (chains, draws) by chains."""
    by_chain = torch.stack([draws.mean(1), (draws - expected[0]).square().mean(1)], -1).numpy()
    return float(np.abs((by_chain.mean(0) - expected) / (by_chain.std(0, ddof=1) / np.sqrt(len(by_chain)))).max())


LIMIT = float(stats.t.isf(FALSE_ALARM_RATE / 4, 399))
POSTERIOR = moments(log_density(GRID).softmax(0))


def test_bias_falls_with_the_step():
    """Exactly, by the transition matrix on a grid: halving the step halves the excess of the variance."""
    excess = [moments(stationary(step))[1] / POSTERIOR[1] - 1 for step in (0.1, 0.05, 0.025, 0.0125)]
    assert all(1.8 < large / small < 2.4 for large, small in pairwise(excess)), excess
    noisy = moments(stationary(0.1, particles=8))[1] / POSTERIOR[1] - 1
    assert noisy > 1.5 * excess[0]


@pytest.mark.parametrize("step", [0.2, 0.05])
def test_draws_have_the_law_of_their_step(step):
    """And not the posterior where the step is large; the control for the small step has the wrong posterior."""
    kernel = Langevin(strength_of_rows, step_size=step, preconditioner="none")
    found = run(kernel, 100, burn_in=100, num_chains=400, seed=1).samples["strength"]
    assert scores(found, moments(stationary(step))) < LIMIT
    if step == 0.2:
        assert scores(found, POSTERIOR) > LIMIT
    other = moments((log_density(GRID) - dist.Normal(GRID, 0.5).log_prob(ZERO + 0.4)).softmax(0))
    assert scores(found, other) > LIMIT


# So few states are wanted for their noise; that an estimate from them may be poor is said to users by a warning.
@pytest.mark.filterwarnings("ignore:AnnealedImportance. the estimate is unreliable")
@pytest.mark.parametrize(
    ("partition", "options", "states"),
    [
        (ANNEALED, {}, 64),
        (ANNEALED, {"gradient": "backend"}, 64),
        (None, {"gradient": "persistent", "num_particles": 64}, 64),
        (None, {"gradient": "persistent", "num_particles": 16}, 16),
    ],
)
def test_estimated_gradients(partition, options, states):
    """The noise of so many states shows as the grid says it does; a quarter of them and, of 16, no noise are not it."""
    step = 0.1
    kernel = Langevin(strength_of_rows, step_size=step, preconditioner="none", **options)
    found = run(kernel, 40, burn_in=40, num_chains=400, seed=2, model_args=(partition,)).samples["strength"]
    assert scores(found, moments(stationary(step, particles=states))) < LIMIT
    for other in (states / 4, math.inf)[: 1 if states == 64 else 2]:
        assert scores(found, moments(stationary(step, particles=other))) > LIMIT


def test_mean_statistics_are_those_of_enumeration():
    """By the backend exactly, by 30 sets of kept chains within their noise; means of other parameters fail."""
    from pyro_hoim.inference.intractable._kernel import IntractableProgram

    pairs = InteractionHypergraph.from_order(Domain.from_cardinalities([2, 3]), 2)
    rows = torch.tensor([[0, 0], [1, 2], [1, 1]])

    def levels():
        theta = pyro.sample("theta", normal_prior(pairs, dtype=torch.float64))
        with pyro.plate("rows", 3):
            pyro.sample("x", HierarchicalLogLinear(pairs, theta), obs=rows)

    for program in (levels, counted):
        read = IntractableProgram(program, (), {}, None)
        site = read.sites["x"]
        pyro.set_rng_seed(3)
        found = read.evaluate(read.random_points(2))
        natural, data = found.naturals["x"], found.data["x"]
        exact = site.backend_means(natural.flatten(0, 1))
        assert exact is not None
        if program is levels:
            law = HierarchicalLogLinear(pairs, natural.flatten(0, 1).requires_grad_())
            (slope_of_log_z,) = torch.autograd.grad(law.log_partition.value.sum(), law.theta)
            assert_close(exact, slope_of_log_z)
        else:
            energy = site.energy(natural.flatten(0, 1))
            states = torch.cartesian_prod(torch.arange(6.0), torch.arange(6.0)).double()
            weights = (-energy.energy(states.unsqueeze(1))).softmax(0)
            assert_close(exact, (weights.unsqueeze(-1) * site.statistics(states).unsqueeze(1)).sum(0), relative=1e-9)
        sets = []
        for seed in range(30):
            kept = site.particles(site, natural, data, 20, seed)
            kept.means(natural, 100)  # forget the rows
            sets.append(kept.means(natural, 10).flatten(0, 1))
        means = torch.stack(sets)
        error = means.std(0) / math.sqrt(len(means))
        limit = float(stats.t.isf(FALSE_ALARM_RATE / 2 / exact.numel(), len(means) - 1))
        assert float(((means.mean(0) - exact).abs() / error).max()) < limit
        assert float(((means.mean(0).flip(0) - exact).abs() / error).max()) > limit


COUNTED = RootStructure.complete(Domain([Variable(name, kind="count") for name in "ab"]), 2)


def counted():
    psi = pyro.sample("psi", dist.Normal(torch.zeros(COUNTED.num_terms, dtype=torch.float64), 0.3).to_event(1))
    with pyro.plate("rows", 3):
        rows = torch.tensor([[0.0, 1.0], [2.0, 2.0], [1.0, 4.0]], dtype=torch.float64)
        pyro.sample("x", GeneralizedRoot(COUNTED, psi, TruncatedPoissonFamily(5)), obs=rows)


def test_preconditioned_steps_inflate_the_variance_as_the_formula_says():
    """Main effects of many rows have a posterior that is nearly normal; without noise the factor is 1 / (1 - s / 4)."""
    main = InteractionHypergraph.from_order(Domain.from_cardinalities([2, 2]), 1)
    counts = torch.tensor([3000.0, 1000.0, 2000.0, 2000.0], dtype=torch.float64)
    program = partial(log_linear_model, main, normal_prior(main, dtype=torch.float64), counts, 4000)
    grid = torch.linspace(-1.2, -0.3, 4001, dtype=torch.float64)
    table = torch.stack([grid, -grid], -1) / 2**0.5
    density = table @ counts[[1, 0]] - 4000 * table.logsumexp(-1) - grid.square() / 2
    weights = density.softmax(0)
    variance = float(weights @ (grid - weights @ grid).square())
    for step in (1.0, 0.3):
        theta = run(Langevin(program, step_size=step), 300, burn_in=50, num_chains=400, seed=4).samples["theta"][..., 0]
        by_chain = (theta - theta.mean()).square().mean(1)
        error = float(by_chain.std()) / 20
        assert abs(float(by_chain.mean()) - variance / (1 - step / 4)) < LIMIT * error
        assert abs(float(by_chain.mean()) - variance) > LIMIT * error


def test_an_annealed_law_is_preconditioned_by_the_exact_one_where_that_is_cheap():
    """The same shape of steps, from rows and from counts, as for the law with an exact backend."""
    factors = []
    for partition in (ANNEALED, None):
        for with_rows in (True, False):

            def program(partition=partition, with_rows=with_rows):
                if with_rows:
                    strength_of_rows(partition)
                    return
                strength = pyro.sample("strength", dist.Normal(ZERO, 1.0))
                theta, counts = strength.unsqueeze(-1) * DIRECTION, statistics_of(ROWS, PAIR)
                pyro.sample("counts", LogLinearStatistics(PAIR, theta, len(ROWS), partition=partition), obs=counts)
                pyro.sample("y", dist.Normal(strength, 0.5), obs=torch.tensor(0.4, dtype=torch.float64))

            pyro.set_rng_seed(1)
            kernel = Langevin(program)
            kernel.setup(0)
            factors.append(kernel._set_up().factor)
    for factor in factors[1:]:
        assert_close(factor, factors[0], relative=1e-6)


def test_steps_that_fall():
    kernel = Langevin(strength_of_rows, step_size=0.2, decay=0.5)
    steps = run(kernel, 30, burn_in=10, num_chains=2, seed=1).sample_stats["step_size"]
    assert_close(steps[0], 0.2 * (1 + torch.arange(30, dtype=torch.float64) / 10) ** -0.5)
    assert torch.equal(steps[0], steps[1])


def test_moves_out_of_the_support_are_not_made():
    """Steps a million times too large run away until the density is zero: those moves are counted, and not made."""
    result = run(Langevin(strength_of_rows, step_size=1e6), 60, burn_in=0, num_chains=3, seed=1)
    assert bool(torch.isfinite(result.samples["strength"]).all())
    diverging = result.sample_stats["diverging"].bool()
    assert result.num_divergences == int(diverging.sum()) > 0
    stays = result.samples["strength"][:, 1:] == result.samples["strength"][:, :-1]
    assert torch.equal(stays, diverging[:, 1:])
    assert run(Langevin(strength_of_rows), 60, burn_in=0, num_chains=3, seed=1).num_divergences == 0


def test_without_rows_the_posterior_is_the_prior():
    program = partial(log_linear_model, PAIR, normal_prior(PAIR, dtype=torch.float64), torch.zeros(8).double(), 0)
    kernel = Langevin(program, step_size=0.2, gradient="persistent", num_particles=4)
    found = run(kernel, 200, burn_in=50, num_chains=400, seed=5).samples["theta"][..., 2]
    assert scores(found, np.array([0.0, 1 / (1 - 0.2 / 4)])) < LIMIT
    assert scores(found, np.array([0.0, 1.2])) > LIMIT


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_constrained_sites_keep_their_dtype_and_jacobian(dtype):
    """A positive strength against quadrature in its logarithm; the control forgets the Jacobian."""
    counts = statistics_of(ROWS, PAIR)

    def positive():
        strength = pyro.sample("strength", dist.Exponential(torch.ones((), dtype=dtype)))
        law = LogLinearStatistics(PAIR, strength.unsqueeze(-1) * DIRECTION.to(dtype), len(ROWS))
        pyro.sample("counts", law, obs=counts.to(dtype))

    draws = run(Langevin(positive, step_size=0.01), 400, burn_in=300, num_chains=400, seed=6).samples["strength"]
    assert draws.dtype == dtype and bool((draws > 0).all())
    grid = torch.linspace(-12, 3, 20001, dtype=torch.float64)
    likelihood = LogLinearStatistics(PAIR, grid.exp().unsqueeze(-1) * DIRECTION, len(ROWS)).log_prob(counts)
    density = likelihood - grid.exp() + grid
    # Cut from below, since visits far out there are so rare that no error bar knows of them.
    logs, cut = draws.double().log().clamp(min=-1.5), grid.clamp(min=-1.5)
    for weights, is_right in ((density.softmax(0), True), ((density - grid).softmax(0), False)):
        mean = float(weights @ cut)
        variance = float(weights @ (cut - mean).square())
        assert (scores(logs, np.array([mean, variance])) < LIMIT) is is_right


def test_in_pyros_mcmc_and_arviz():
    pyro.set_rng_seed(13)
    mcmc = MCMC(Langevin(strength_of_rows), num_samples=300, warmup_steps=50, disable_progbar=True)
    mcmc.run()
    draws = mcmc.get_samples()["strength"]
    assert draws.shape == (300,) and draws.dtype == torch.float64
    assert mcmc.diagnostics()["is_exact"] == {"chain 0": False}
    assert to_arviz(mcmc)["sample_stats"]["step_size"].shape == (1, 300)
    result = run(Langevin(strength_of_rows), 20, burn_in=20, num_chains=3, seed=1)
    assert not to_arviz(result)["sample_stats"]["is_exact"].any()
    kernel = Langevin(strength_of_rows)
    kernel.setup(0)
    assert kernel.is_exact is False


def test_a_seed_decides_everything():
    kernel = partial(Langevin, strength_of_rows, gradient="persistent", num_particles=8)
    first = run(kernel(), 20, num_chains=4, seed=5).samples["strength"]
    assert torch.equal(first, run(pickle.loads(pickle.dumps(kernel())), 20, num_chains=4, seed=5).samples["strength"])
    assert not torch.equal(first, run(kernel(), 20, num_chains=4, seed=6).samples["strength"])


def beyond(partition=None, with_rows=True):
    large = InteractionHypergraph.from_order(Domain.from_cardinalities([2] * 40), 2)
    strength = pyro.sample("strength", dist.Normal(ZERO, 0.1))
    theta = strength.unsqueeze(-1) * torch.ones(large.num_parameters, dtype=torch.float64)
    rows = torch.zeros(3, 40, dtype=torch.long)
    if with_rows:
        with pyro.plate("rows", 3):
            pyro.sample("x", HierarchicalLogLinear(large, theta, partition=partition), obs=rows)
    else:
        pyro.sample("x", LogLinearStatistics(large, theta, 3), obs=statistics_of(rows, large))


@pytest.mark.parametrize("with_rows", [True, False])
def test_beyond_reach_there_are_chains(with_rows):
    options = {} if with_rows else {"preconditioner": "none", "step_size": 1e-4}
    result = run(Langevin(partial(beyond, None, with_rows), num_particles=4, **options), 3, num_chains=2, seed=1)
    assert bool(torch.isfinite(result.samples["strength"]).all())


@pytest.mark.parametrize(
    ("program", "options", "match"),
    [
        (beyond, {"gradient": "backend"}, "gradient='persistent'"),
        (partial(beyond, VariableElimination(), False), {}, "preconditioner='none'"),
        (beyond, {"num_particles": 2**26}, "take fewer chains"),
        (lambda: pyro.sample("z", dist.Normal(ZERO, 1.0)), {}, "use NUTS"),
    ],
)
def test_programs_that_are_refused(program, options, match):
    with pytest.raises(HoimError, match=match):
        run(Langevin(program, **options), 2, num_chains=2, seed=1)


@pytest.mark.parametrize(
    ("options", "code", "argument"),
    [
        ({"step_size": 0.0}, "out-of-range", "step_size"),
        ({"decay": 1.5}, "out-of-range", "decay"),
        ({"gradient": "exact"}, "unknown-choice", "gradient"),
        ({"preconditioner": "adaptive"}, "unknown-choice", "preconditioner"),
        ({"num_particles": 0}, "out-of-range", "num_particles"),
        ({"num_sweeps": 0}, "out-of-range", "num_sweeps"),
        ({"num_chains": 0}, "out-of-range", "num_chains"),
    ],
)
def test_arguments_that_are_refused(options, code, argument):
    with raises(code, argument):
        Langevin(strength_of_rows, **options)


def test_no_program_is_refused():
    with pytest.raises(InputTypeError, match="a Pyro program"):
        Langevin(3)
