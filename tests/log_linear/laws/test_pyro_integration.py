"""The log-linear laws as Pyro sites: plates, masks, enumeration, guides, NUTS, prediction.

Every check compares Pyro's result with brute force over all states, or with quadrature over theta.
"""

import math
import subprocess
import sys
import warnings
from functools import partial
from typing import Any

import forkserver
import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from law_models import CYCLE, draw_theta, law_of
from pyro import poutine
from pyro.infer import (
    HMC,
    MCMC,
    NUTS,
    SVI,
    JitTrace_ELBO,
    Predictive,
    Trace_ELBO,
    TraceEnum_ELBO,
    TraceGraph_ELBO,
    config_enumerate,
    infer_discrete,
)
from pyro.infer.autoguide import AutoLaplaceApproximation, AutoNormal
from pyro.infer.inspect import get_model_relations
from pyro.infer.mcmc.util import initialize_model
from pyro.ops.integrator import potential_grad
from torch.distributions import kl_divergence

from pyro_hoim import Domain, InputError, InteractionHypergraph, IntractableError, MixedGibbs, sample_posterior
from pyro_hoim.inference import NUTSSettings, StateIndexReparam, log_linear_model
from pyro_hoim.inference.kernels import PotentialNUTS
from pyro_hoim.log_linear import (
    AnnealedImportance,
    Auto,
    DiaconisYlvisaker,
    Enumeration,
    HierarchicalLogLinear,
    LogLinearStatistics,
    VariableElimination,
    normal_prior,
    statistics_of,
)
from pyro_hoim.log_linear.laws.priors import NormalPotential, known_potential
from pyro_hoim.testing import assert_close, assert_exact_law, count_states, required_draws

PAIR = InteractionHypergraph.saturated(Domain.from_cardinalities({"a": 2, "b": 2}))


@pytest.fixture(autouse=True)
def fresh_pyro():
    pyro.clear_param_store()
    pyro.set_rng_seed(7)
    with pyro.validation_enabled(True):
        yield
    pyro.clear_param_store()


def log_prob_sum(model, *args):
    trace = poutine.trace(model).get_trace(*args)
    trace.compute_log_prob()
    return trace.log_prob_sum(), trace


# Plates, masks, scales


def test_masks():
    law = law_of(CYCLE, 3)
    value = law.sample()
    mask = torch.tensor([True, False, True])
    assert torch.equal(law.mask(mask).log_prob(value), law.log_prob(value) * mask)
    wide = law_of(CYCLE).mask(mask)  # the mask expands the law
    assert wide.batch_shape == (3,)
    assert wide.sample().shape == (3, 4)
    assert wide.enumerate_support().shape == (24, 3, 4)
    assert wide.has_enumerate_support
    other = law_of(CYCLE, 3, seed=2)
    assert_close(kl_divergence(law.mask(mask), other.mask(mask)), kl_divergence(law, other) * mask)


def test_to_event_and_expand_by():
    law = law_of(CYCLE, 3)
    joint = law.to_event(1)
    assert (joint.batch_shape, joint.event_shape) == ((), (3, 4))
    value = joint.sample(torch.Size([2]))
    assert value.shape == (2, 3, 4)
    assert joint.support.event_dim == 2
    assert_close(joint.entropy(), law.entropy().sum())
    assert joint.expand(torch.Size([2])).sample().shape == (2, 3, 4)
    assert law.expand_by([2]).sample().shape == (2, 3, 4)
    assert law.expand_by([2]).to_event(2).log_prob(value).shape == ()
    other = law_of(CYCLE, 3, seed=3)
    assert_close(kl_divergence(joint, other.to_event(1)), kl_divergence(law, other).sum())


def test_validation_switch_is_pyros():
    bad = torch.zeros(CYCLE.num_terms)
    theta = draw_theta(CYCLE)
    with pytest.raises(InputError):
        LogLinearStatistics(CYCLE, theta, 10).log_prob(bad)
    with pyro.validation_enabled(False):
        LogLinearStatistics(CYCLE, theta, 10).log_prob(bad)
        with pytest.raises(InputError):
            LogLinearStatistics(CYCLE, theta, 10, validate_args=True).log_prob(bad)
    with pytest.raises(InputError):
        HierarchicalLogLinear(CYCLE, theta).log_prob(torch.tensor([0, 0, 9, 0]))
    assert HierarchicalLogLinear(CYCLE, theta).log_prob(torch.zeros(4)).isfinite()


def both_sites():
    theta = pyro.sample("theta", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    with pyro.plate("rows", 4):
        pyro.sample("x", HierarchicalLogLinear(PAIR, theta), obs=torch.zeros(4, 2))
    pyro.sample("t", LogLinearStatistics(PAIR, theta, 4), obs=statistics_of(torch.zeros(4, 2), PAIR).float())


def test_model_relations_know_the_sites():
    relations = get_model_relations(both_sites)
    assert relations["sample_sample"] == {"theta": [], "x": ["theta"], "t": ["theta"]}
    assert relations["sample_dist"]["x"] == "HierarchicalLogLinear"
    assert (relations["sample_dist"]["t"], relations["plate_sample"]) == ("LogLinearStatistics", {"rows": ["x"]})
    assert relations["observed"] == ["x", "t"]


# Mixtures


def test_mixture_over_a_batch_of_theta():
    weights = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64)
    components = law_of(CYCLE, 3)
    mixture = dist.MixtureSameFamily(dist.Categorical(weights), components)
    table = (weights[:, None, None, None, None] * components.probs).sum(0)
    states = law_of(CYCLE).enumerate_support()
    assert_close(mixture.log_prob(states).exp(), table.reshape(-1), absolute=1e-12)
    flat = states.double()
    mean = (table.reshape(-1, 1) * flat).sum(0)
    assert_close(mixture.mean, mean)
    assert_close(mixture.variance, (table.reshape(-1, 1) * flat**2).sum(0) - mean**2)
    draws = mixture.sample(torch.Size([required_draws(24, 0.05)]))
    assert_exact_law(count_states(draws, (2, 3, 2, 2)), table.numpy().reshape(-1))
    with pytest.raises(AssertionError):
        assert_exact_law(count_states(draws, (2, 3, 2, 2)), components.probs.mean(0).numpy().reshape(-1))
    with pytest.raises(ValueError, match="support"):
        mixture.log_prob(torch.tensor([0, 3, 0, 0]))


def test_mixture_of_enumerated_components_equals_the_mixture_law():
    theta, weights = draw_theta(CYCLE, 3), torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64)
    rows = law_of(CYCLE).sample(torch.Size([6]))

    @config_enumerate
    def model():
        with pyro.plate("rows", 6):
            component = pyro.sample("component", dist.Categorical(weights))
            pyro.sample("x", HierarchicalLogLinear(CYCLE, theta[component]), obs=rows)

    loss = TraceEnum_ELBO(max_plate_nesting=1).loss(model, lambda: None)
    mixture = dist.MixtureSameFamily(dist.Categorical(weights), HierarchicalLogLinear(CYCLE, theta))
    assert_close(-loss, mixture.log_prob(rows).sum())


# Enumeration


def latent_model(theta, weights, data):
    """A latent state for every row, seen through a normal reading."""
    with pyro.plate("rows", len(data)):
        x = pyro.sample("x", HierarchicalLogLinear(CYCLE, theta), infer={"enumerate": "parallel"})
        pyro.sample("y", dist.Normal(x.to(weights) @ weights, 1.0), obs=data)


def latent_log_likelihood(theta, weights, data):
    """Log-likelihood by summing over all states by hand, (rows,)."""
    law = HierarchicalLogLinear(CYCLE, theta)
    states = law.enumerate_support()
    reading = dist.Normal(states.to(weights) @ weights, 1.0).log_prob(data[:, None])
    return (law.log_prob(states) + reading).logsumexp(-1)


WEIGHTS = torch.tensor([1.0, -0.5, 2.0, 0.3], dtype=torch.float64)
DATA = torch.tensor([0.2, 2.5, -1.0, 1.3, 0.7], dtype=torch.float64)


@pytest.mark.parametrize("expand", [False, True])
def test_trace_enum_elbo_sums_over_a_latent_site_exactly(expand):
    theta = draw_theta(CYCLE).requires_grad_()
    model = config_enumerate(latent_model, "parallel", expand=expand)
    elbo = TraceEnum_ELBO(max_plate_nesting=1)
    loss = elbo.differentiable_loss(model, lambda *args: None, theta, WEIGHTS, DATA)
    expected = latent_log_likelihood(theta, WEIGHTS, DATA).sum()
    assert_close(-loss, expected)
    (actual,) = torch.autograd.grad(loss, theta)
    (gradient,) = torch.autograd.grad(-expected, theta)
    assert_close(actual, gradient, absolute=1e-10)
    wrong = latent_log_likelihood(theta, WEIGHTS.flip(0), DATA).sum()
    with pytest.raises(AssertionError):
        assert_close(-loss, wrong)


def test_two_latent_sites_are_enumerated_in_parallel():
    theta, second = draw_theta(PAIR), draw_theta(PAIR, 2, 2, seed=1)

    @config_enumerate
    def model():
        x = pyro.sample("x", HierarchicalLogLinear(PAIR, theta))
        y = pyro.sample("y", HierarchicalLogLinear(PAIR, second[x[..., 0], x[..., 1]]))
        pyro.sample("z", dist.Normal((x + 2 * y).sum(-1).double(), 1.0), obs=torch.tensor(2.0, dtype=torch.float64))

    loss = TraceEnum_ELBO(max_plate_nesting=0).loss(model, lambda: None)
    states = HierarchicalLogLinear(PAIR, theta).enumerate_support()
    total = []
    for x in states:
        for y in states:
            z = dist.Normal((x + 2 * y).sum().double(), 1.0).log_prob(torch.tensor(2.0, dtype=torch.float64))
            log_y = HierarchicalLogLinear(PAIR, second[x[0], x[1]]).log_prob(y)
            total.append(HierarchicalLogLinear(PAIR, theta).log_prob(x) + log_y + z)
    assert_close(-loss, torch.stack(total).logsumexp(0))


def test_enumerated_guide():
    theta, guide_theta = draw_theta(PAIR), draw_theta(PAIR, seed=5)

    def model():
        pyro.sample("x", HierarchicalLogLinear(PAIR, theta))

    @config_enumerate
    def guide():
        pyro.sample("x", HierarchicalLogLinear(PAIR, guide_theta))

    loss = TraceEnum_ELBO(max_plate_nesting=0).loss(model, guide)
    assert_close(loss, kl_divergence(HierarchicalLogLinear(PAIR, guide_theta), HierarchicalLogLinear(PAIR, theta)))


def test_nuts_marginalises_a_latent_site():
    theta = draw_theta(CYCLE)

    def model():
        shift = pyro.sample("shift", dist.Normal(torch.zeros((), dtype=torch.float64), 1.0))
        with pyro.plate("rows", len(DATA)):
            x = pyro.sample("x", HierarchicalLogLinear(CYCLE, theta))
            pyro.sample("y", dist.Normal(x.to(WEIGHTS) @ WEIGHTS + shift, 1.0), obs=DATA)

    _, potential, _, _ = initialize_model(model, max_plate_nesting=1)
    for shift in (-1.0, 0.0, 2.0):
        value = torch.tensor(shift, dtype=torch.float64)
        prior = dist.Normal(torch.zeros((), dtype=torch.float64), 1.0).log_prob(value)
        expected = prior + latent_log_likelihood(theta, WEIGHTS, DATA - value).sum()
        assert_close(-potential({"shift": value}), expected)
    mcmc = MCMC(NUTS(model, max_plate_nesting=1), num_samples=5, warmup_steps=5, disable_progbar=True)
    mcmc.run()
    assert set(mcmc.get_samples()) == {"shift"}


@pytest.mark.parametrize("temperature", [0, 1])
def test_infer_discrete(temperature):
    theta = draw_theta(CYCLE)
    law = HierarchicalLogLinear(CYCLE, theta)
    states = law.enumerate_support()
    rows = required_draws(24, 0.1) if temperature else 3
    data = torch.full((rows,), 1.3, dtype=torch.float64)

    def model():
        with pyro.plate("rows", rows):
            x = pyro.sample("x", law)
            pyro.sample("y", dist.Normal(x.to(WEIGHTS) @ WEIGHTS, 1.0), obs=data)
        return x

    def infer(model):
        return infer_discrete(config_enumerate(model), first_available_dim=-2, temperature=temperature)()

    # Pyro 1.9.2 cannot do it for any site with event dimensions; StateIndexReparam can.
    with pytest.raises(ValueError, match="Invalid tensor shape"):
        infer(model)
    drawn = infer(poutine.reparam(model, config={"x": StateIndexReparam()}))
    posterior = (law.log_prob(states) + dist.Normal(states.to(WEIGHTS) @ WEIGHTS, 1.0).log_prob(data[0])).softmax(0)
    if temperature:
        assert_exact_law(count_states(drawn, (2, 3, 2, 2)), posterior.numpy())
        with pytest.raises(AssertionError):
            assert_exact_law(count_states(drawn, (2, 3, 2, 2)), law.probs.numpy().reshape(-1))
    else:
        assert torch.equal(drawn, states[posterior.argmax()].expand(rows, 4))


def test_a_site_too_large_to_enumerate_is_refused_unless_it_is_left_to_sampling():
    large = InteractionHypergraph(Domain.from_cardinalities([2] * 18), [("x0", "x1")], closure=True)

    def run(**infer):
        model = config_enumerate(lambda: pyro.sample("x", law_of(large), infer=infer))
        return poutine.enum(model, first_available_dim=-1)()

    with pytest.raises(IntractableError, match="received 262144 states"):
        run()
    assert run(enumerate=None).shape == (18,)


# Variational inference


def theta_model(counts, total):
    theta = pyro.sample("theta", dist.Normal(torch.zeros(3, dtype=torch.float64), 1.0).to_event(1))
    pyro.sample("t", LogLinearStatistics(PAIR, theta, total), obs=counts)


COUNTS = statistics_of(
    torch.tensor([[0, 0]] * 9 + [[0, 1]] * 2 + [[1, 0]] * 4 + [[1, 1]] * 10), PAIR
)  # the table ((9, 2), (4, 10))


def test_svi_gradient_is_the_exact_one():
    start = draw_theta(PAIR)

    def model():
        theta = pyro.param("theta", start.clone())
        pyro.sample("t", LogLinearStatistics(PAIR, theta, 25), obs=COUNTS)

    for elbo in (Trace_ELBO(), TraceGraph_ELBO(), TraceEnum_ELBO(strict_enumeration_warning=False)):
        pyro.clear_param_store()
        elbo.loss_and_grads(model, lambda: None)
        theta = start.clone().requires_grad_()
        (expected,) = torch.autograd.grad(-LogLinearStatistics(PAIR, theta, 25).log_prob(COUNTS), theta)
        assert_close(pyro.param("theta").grad, expected, absolute=1e-12)


def posterior_mode_and_covariance():
    """Newton's method on the log posterior of theta_model by autograd of the enumerated law."""
    states = HierarchicalLogLinear(PAIR, torch.zeros(3, dtype=torch.float64)).enumerate_support()
    cells = COUNTS[4:]

    def log_joint(theta):
        table = HierarchicalLogLinear(PAIR, theta).log_prob(states)
        return (cells * table).sum() - 0.5 * (theta**2).sum()

    theta = torch.zeros(3, dtype=torch.float64)
    for _ in range(20):
        gradient = torch.autograd.functional.jacobian(log_joint, theta)
        hessian = torch.autograd.functional.hessian(log_joint, theta)
        theta = theta - torch.linalg.solve(hessian, gradient)
    return theta, torch.linalg.inv(-torch.autograd.functional.hessian(log_joint, theta))


@pytest.mark.usefixtures("float64")
def test_auto_laplace_approximation():
    mode, covariance = posterior_mode_and_covariance()
    guide = AutoLaplaceApproximation(theta_model)
    svi = SVI(theta_model, guide, pyro.optim.Adam({"lr": 0.05}), Trace_ELBO())
    for _ in range(250):
        svi.step(COUNTS, 25)
    normal = guide.laplace_approximation(COUNTS, 25).get_posterior()
    assert_close(normal.mean, mode, relative=1e-3, absolute=1e-3)
    assert_close(normal.covariance_matrix, covariance, relative=1e-2, absolute=1e-3)
    assert guide.laplace_approximation(COUNTS, 25)(COUNTS, 25)["theta"].shape == (3,)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("vectorize", [False, True])
def test_auto_normal_with_vectorised_particles(vectorize):
    def model(rows):
        theta = pyro.sample("theta", dist.Normal(torch.zeros(3), 1.0).to_event(1))
        with pyro.plate("rows", len(rows)):
            pyro.sample("x", HierarchicalLogLinear(PAIR, theta), obs=rows)

    rows = law_of(PAIR).sample(torch.Size([12]))
    guide = AutoNormal(model, init_scale=0.2)
    elbo = Trace_ELBO(num_particles=4, vectorize_particles=vectorize, max_plate_nesting=1)
    svi = SVI(model, guide, pyro.optim.Adam({"lr": 0.02}), elbo)
    losses = [svi.step(rows) for _ in range(60)]
    assert all(math.isfinite(loss) for loss in losses)
    assert np.mean(losses[-10:]) < np.mean(losses[:10])
    drawn = Predictive(model, guide=guide, num_samples=7, return_sites=("theta", "x"))(rows)
    assert drawn["theta"].reshape(7, -1).shape == (7, 3)


@pytest.mark.usefixtures("float64")
@pytest.mark.slow
def test_auto_normal_agrees_with_quadrature():
    guide = AutoNormal(theta_model, init_scale=0.3)
    svi = SVI(theta_model, guide, pyro.optim.ClippedAdam({"lr": 0.03, "lrd": 0.995}), Trace_ELBO(num_particles=4))
    for _ in range(500):
        svi.step(COUNTS, 25)
    axis = torch.linspace(-4, 4, 61, dtype=torch.float64)
    grid = torch.cartesian_prod(axis, axis, axis)
    log_joint = LogLinearStatistics(PAIR, grid, 25).log_prob(COUNTS) - 0.5 * (grid**2).sum(-1)
    mean = (log_joint.softmax(0)[:, None] * grid).sum(0)  # by quadrature
    assert float((guide.median()["theta"] - mean).abs().max()) < 0.1  # mean field on a nearly normal posterior


def test_score_function_gradient_of_a_sampled_latent_site_is_unbiased():
    start = draw_theta(PAIR)
    value = torch.tensor([0.4, -1.0, 0.7, 2.0], dtype=torch.float64).reshape(2, 2)

    def model():
        x = pyro.sample("x", HierarchicalLogLinear(PAIR, torch.zeros(3, dtype=torch.float64)))
        pyro.factor("f", value[x[..., 0], x[..., 1]])

    def guide():
        pyro.sample("x", HierarchicalLogLinear(PAIR, pyro.param("theta", start)))

    theta = start.clone().requires_grad_()
    law = HierarchicalLogLinear(PAIR, theta)
    exact = (law.probs * (law.log_prob_table - value - math.log(0.25))).sum()
    (expected,) = torch.autograd.grad(exact, theta)
    particles = 20_000
    elbo = Trace_ELBO(num_particles=particles, vectorize_particles=True, max_plate_nesting=0)
    elbo.loss_and_grads(model, guide)
    # score-function terms are bounded by 5 x 1.5 in absolute value here, so 6 standard errors are at most 0.32
    assert float((pyro.param("theta").grad - expected).abs().max()) < 6 * 7.5 / math.sqrt(particles)


# Sites with more states than are listed


def latent_site():
    t = pyro.sample("t", dist.Normal(0.0, 1.0))
    x = pyro.sample("x", HierarchicalLogLinear(CYCLE, draw_theta(CYCLE).float() + t))
    pyro.sample("y", dist.Normal(x.float().sum(-1), 1.0), obs=torch.tensor(3.0))


def guide_of_t():
    pyro.sample("t", dist.Normal(0.0, 1.0))


def run_kernel(kernel):
    MCMC(kernel, 2, warmup_steps=1, disable_progbar=True).run()


SUMS = {
    "NUTS": lambda: run_kernel(NUTS(latent_site)),
    "HMC": lambda: run_kernel(HMC(latent_site)),
    "TraceEnum_ELBO": lambda: TraceEnum_ELBO(max_plate_nesting=0).loss(config_enumerate(latent_site), guide_of_t),
}


@pytest.mark.parametrize("use", SUMS)
def test_a_site_too_large_to_sum_over_names_the_limit_and_the_way_out(use, monkeypatch):
    SUMS[use]()  # 24 states
    monkeypatch.setattr(HierarchicalLogLinear, "max_enumerated_states", 23)
    with pytest.raises(IntractableError, match=r"max_enumerated_states=23, received 24 states.*MixedGibbs\(model\)"):
        SUMS[use]()
    run_kernel(MixedGibbs(latent_site))


def test_a_large_site_that_the_guide_draws_is_not_summed_over(monkeypatch):
    monkeypatch.setattr(HierarchicalLogLinear, "max_enumerated_states", 23)

    def guide():
        guide_of_t()
        pyro.sample("x", HierarchicalLogLinear(CYCLE, torch.zeros(CYCLE.num_parameters)))

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "TraceEnum_ELBO found no sample sites")
        assert math.isfinite(TraceEnum_ELBO(max_plate_nesting=0).loss(latent_site, guide))
    replayed = config_enumerate(latent_site)
    assert math.isfinite(Trace_ELBO().loss(replayed, guide))


# Compilation


def test_jit_elbo_and_traced_log_prob():
    def model(counts):
        theta = pyro.param("theta", lambda: draw_theta(PAIR))
        pyro.sample("t", LogLinearStatistics(PAIR, theta, 25), obs=counts)

    with pyro.validation_enabled(False):
        plain = Trace_ELBO().loss(model, lambda counts: None, COUNTS)
        jit = JitTrace_ELBO(ignore_jit_warnings=True)
        assert_close(jit.loss(model, lambda counts: None, COUNTS), plain)
        assert_close(jit.loss_and_grads(model, lambda counts: None, COUNTS), plain)


# Prediction


def test_predictive_draws_follow_each_posterior_draw():
    theta = torch.tensor([[20.0, 20.0, 0.0], [-20.0, -20.0, 0.0]], dtype=torch.float64)  # two certain states
    sure = HierarchicalLogLinear(PAIR, theta).mode.unsqueeze(1).expand(2, 11, 2)

    def model():
        parameters = pyro.sample("theta", dist.Normal(torch.zeros(3, dtype=torch.float64), 1.0).to_event(1))
        pyro.sample("t", LogLinearStatistics(PAIR, parameters, 25))
        with pyro.plate("rows", 11):
            return pyro.sample("x", HierarchicalLogLinear(PAIR, parameters))

    for parallel in (False, True):  # Pyro counts event dimensions as plates, so the plate's dimension has to be there
        drawn = Predictive(model, {"theta": theta.unsqueeze(1) if parallel else theta}, parallel=parallel)()
        assert torch.equal(drawn["x"], sure)
        assert_close(drawn["t"].reshape(2, -1), 25 * HierarchicalLogLinear(PAIR, theta).eta.round())


# NUTS


def test_rows_and_statistics_give_nuts_the_same_potential():
    rows = torch.tensor([[0, 0]] * 9 + [[0, 1]] * 2 + [[1, 0]] * 4 + [[1, 1]] * 10)

    def row_model():
        theta = pyro.sample("theta", dist.Normal(torch.zeros(3, dtype=torch.float64), 1.0).to_event(1))
        with pyro.plate("rows", len(rows)):
            pyro.sample("x", HierarchicalLogLinear(PAIR, theta), obs=rows)

    _, by_rows, _, _ = initialize_model(row_model)
    _, by_counts, _, _ = initialize_model(theta_model, model_args=(COUNTS, 25))
    for seed in range(3):
        point = {"theta": draw_theta(PAIR, seed=seed)}
        assert_close(by_rows(point), by_counts(point))


def test_nuts_treats_an_overflow_as_a_divergence():
    kernel = NUTS(theta_model, step_size=1e200, adapt_step_size=False, adapt_mass_matrix=False)
    mcmc = MCMC(kernel, num_samples=5, warmup_steps=0, disable_progbar=True)
    mcmc.run(COUNTS, 25)
    assert len(mcmc.diagnostics()["divergences"]["chain 0"]) == 5
    assert mcmc.get_samples()["theta"].isfinite().all()


PARALLEL_CHAINS = """
import sys
import warnings
import torch
import torch.multiprocessing as mp

mp.cpu_count = lambda: 4  # so that Pyro really runs two chains at once
import pyro
import pyro.distributions as dist
from pyro.infer import MCMC, NUTS
from pyro_hoim.log_linear import HierarchicalLogLinear, LogLinearStatistics
from pyro_hoim.schema import Domain
from pyro_hoim.structure import InteractionHypergraph

SMALL, LARGE = (InteractionHypergraph.from_order(Domain.from_cardinalities([2] * d), 2) for d in (3, 17))


def model(t):
    theta = pyro.sample("theta", dist.Normal(torch.zeros(6, dtype=torch.float64), 1.0).to_event(1))
    pyro.sample("t", LogLinearStatistics(SMALL, theta, 50), obs=t)


if __name__ == "__main__":
    torch.set_num_threads(2)
    pyro.set_rng_seed(0)
    law = LogLinearStatistics(SMALL, torch.zeros(6, dtype=torch.float64), 50)
    HierarchicalLogLinear(LARGE, torch.zeros(153)).log_prob(torch.zeros(17))  # works in threads in the parent
    mcmc = MCMC(NUTS(model), num_samples=5, warmup_steps=5, num_chains=2, disable_progbar=True, mp_context=sys.argv[1])
    assert type(mcmc.sampler).__name__ == "_MultiSampler"
    mcmc.run(law.sample())
    print(tuple(mcmc.get_samples(group_by_chain=True)["theta"].shape))
"""


@pytest.mark.parametrize("context", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])  # imports all three times
def test_chains_in_parallel_processes(context, tmp_path):
    if context == "fork":
        written = forkserver.run(PARALLEL_CHAINS, tmp_path / "output", context)
    else:
        script = tmp_path / "chains.py"
        script.write_text(PARALLEL_CHAINS)
        written = subprocess.check_output([sys.executable, str(script), context], text=True, timeout=300)
    assert written.strip().splitlines()[-1] == "(2, 5, 6)"


# Potentials


HYPERGRAPH = InteractionHypergraph.from_order(Domain.from_cardinalities([2, 3, 2, 2]), 2)
ROWS = torch.stack(
    [torch.randint(0, n, (150,), generator=torch.Generator().manual_seed(n)) for n in (2, 3, 2, 2)], dim=1
)
TABLE = statistics_of(ROWS, HYPERGRAPH).double()
PRIORS = {
    "normal": normal_prior(HYPERGRAPH, {1: 3.0, 2: 0.5}, dtype=torch.float64),
    "conjugate": DiaconisYlvisaker.uniform(HYPERGRAPH, torch.tensor(4.0, dtype=torch.float64)),
}


def model_of(prior, backend):
    """The documented Pyro program."""
    if isinstance(prior, DiaconisYlvisaker):
        return partial(pyro.sample, "theta", prior.posterior(TABLE, 150.0))
    return partial(log_linear_model, HYPERGRAPH, prior, TABLE, 150.0, backend)


def of_pyro(prior, backend):
    """Potential that Pyro makes of the program."""
    return initialize_model(model_of(prior, backend))[1]


@pytest.mark.parametrize("backend", [Auto(), Enumeration(), VariableElimination()])
@pytest.mark.parametrize("name", PRIORS)
def test_potential_and_gradient_are_those_of_the_program(name, backend):
    prior = PRIORS[name].with_partition(backend) if name == "conjugate" else PRIORS[name]
    found = known_potential(HYPERGRAPH, prior, TABLE, 150.0, backend)
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
    potential = NormalPotential(HYPERGRAPH, PRIORS["normal"], TABLE, 150.0, Auto())
    theta = torch.full((HYPERGRAPH.num_parameters,), value, dtype=torch.float64)
    with pyro.validation_enabled(False):
        found = potential_grad(potential, {"theta": theta})
        expected = potential_grad(of_pyro(PRIORS["normal"], Auto()), {"theta": theta})
    assert bool(found[1].isnan()) and bool(expected[1].isnan())
    assert bool(found[0]["theta"].isnan().all())


def test_other_priors_and_estimates_are_left_to_pyro():
    cauchy = dist.Cauchy(torch.zeros(HYPERGRAPH.num_parameters).double(), 1.0).to_event(1)
    assert known_potential(HYPERGRAPH, cauchy, TABLE, 150.0, Auto()) is None
    annealed = AnnealedImportance(seed=0)
    assert known_potential(HYPERGRAPH, PRIORS["normal"], TABLE, 150.0, annealed) is None


@pytest.mark.filterwarnings("ignore:posterior:pyro_hoim.errors.ConvergenceWarning")  # six draws
@pytest.mark.parametrize("name", PRIORS)
@pytest.mark.parametrize("metric", ["laplace", "adapt"])
def test_draws_are_those_of_the_program(name, metric, monkeypatch):
    settings = NUTSSettings(num_draws=6, burn_in=6, num_chains=2)
    options = {"settings": settings, "seed": 3, "progress": False}
    draw = partial(sample_posterior, HYPERGRAPH, TABLE, PRIORS[name], total_count=150, metric=metric, **options)
    fast = draw()
    used = list[Any]()

    def traced(*_):
        used.append(None)

    monkeypatch.setattr("pyro_hoim.inference.posterior.known_potential", traced)
    slow = draw()
    assert used and isinstance(slow.run.kernel, PotentialNUTS)
    assert torch.equal(fast.theta, slow.theta)
    assert fast.run.diagnostics()["sample_stats"] == slow.run.diagnostics()["sample_stats"]
