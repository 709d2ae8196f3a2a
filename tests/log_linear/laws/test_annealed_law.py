"""Laws whose log Z is an estimate: what stays exact, what is an estimate, and where estimates are refused."""

import math
import pickle
from dataclasses import dataclass, replace
from functools import partial
from unittest.mock import Mock

import pyro
import pyro.distributions as dist
import pytest
import torch
from law_models import CYCLE, draw_theta, law_of
from pyro.infer import (
    HMC,
    MCMC,
    NUTS,
    SVI,
    Importance,
    JitTrace_ELBO,
    Predictive,
    RandomWalkKernel,
    RenyiELBO,
    ReweightedWakeSleep,
    SMCFilter,
    Trace_ELBO,
    TraceTailAdaptive_ELBO,
    TraceTMC_ELBO,
    config_enumerate,
)
from pyro.infer.autoguide import AutoDelta, AutoNormal
from pyro.infer.importance import vectorized_importance_weights
from pyro.infer.mcmc.util import initialize_model
from pyro.infer.predictive import WeighedPredictive
from pyro.infer.resampler import Resampler
from torch.distributions import kl_divergence

from pyro_hoim import Domain, InputError, InteractionHypergraph, IntractableError, sample_posterior
from pyro_hoim.inference import NUTSSettings, RecordingNUTS
from pyro_hoim.log_linear import (
    AnnealedImportance,
    Auto,
    DiaconisYlvisaker,
    HierarchicalLogLinear,
    LogLinearStatistics,
    VariableElimination,
    normal_prior,
    statistics_of,
)
from pyro_hoim.log_linear.laws.natural_parameters import fisher_information, solve_natural_parameters
from pyro_hoim.testing import assert_close, exact_statistics, exact_table


@dataclass(frozen=True)
class Noisy:
    """Exact results plus noise: an annealed backend whose errors are known and large."""

    noise: float = 0.1
    seed: int | None = None
    burn_in: int = 7
    is_exact = False

    def _draw(self, like):
        if self.seed is None:
            return self.noise * torch.randn(like.shape, dtype=like.dtype)
        generator = torch.Generator().manual_seed(self.seed)
        return self.noise * torch.randn(like.shape, dtype=like.dtype, generator=generator)

    def plan(self, hypergraph, evidence_names=(), keep=()):
        return replace(Auto().plan(hypergraph, evidence_names, keep), feasible=True)

    def log_partition(self, model):
        result = Auto().log_partition(model)
        value = result.value + self._draw(result.value)
        width = torch.full_like(result.value.detach(), self.noise)
        ess, lower, upper = torch.full_like(width, 100.0), value.detach() - 3 * width, value.detach() + 3 * width
        return replace(result, value=value, kind="biased", std_error=width, ess=ess, lower=lower, upper=upper)

    def expectations(self, model):
        eta = Auto().expectations(model)
        return eta + 0.01 * self._draw(eta)

    def sample(self, model, sample_shape=(), generator=None):
        return Auto().sample(model, sample_shape, generator)

    def mode(self, model):
        raise AssertionError("asked for a mode")

    def log_marginal(self, model, names):
        raise AssertionError("asked for a marginal")

    marginal = log_marginal


PAIRS = InteractionHypergraph.from_order(Domain.from_cardinalities([2] * 60), 2)


def laws(partition, *batch):
    theta = draw_theta(CYCLE, *batch)
    return HierarchicalLogLinear(CYCLE, theta, partition=partition), HierarchicalLogLinear(CYCLE, theta)


# One estimate per law


def test_all_log_probabilities_of_a_law_share_one_error():
    pyro.set_rng_seed(1)
    law, exact = laws(Noisy())
    states = law.enumerate_support()
    errors = law.log_prob(states) - exact.log_prob(states)
    assert float(errors.abs().max()) > 1e-3
    assert_close(errors, errors[0].expand(len(states)), absolute=1e-12)
    assert_close(-errors[0], law.log_partition.value - exact.log_partition.value, absolute=1e-12)
    another = HierarchicalLogLinear(CYCLE, law.theta, partition=Noisy())
    assert another.log_partition.value != law.log_partition.value
    assert pickle.loads(pickle.dumps(law)).partition == Noisy()


def test_seeded_backends_repeat_themselves_whatever_the_global_state():
    values = []
    for seed in (1, 2):
        pyro.set_rng_seed(seed)
        values.append(laws(Noisy(seed=5))[0].log_partition.value)
    assert values[0] == values[1]


@pytest.mark.parametrize("shape", [(3,), (4, 3)])
def test_expanded_laws_share_the_estimate_and_tell_its_errors_in_their_shape(shape):
    law, _ = laws(Noisy(), 3)
    result = law.expand(shape).log_partition
    assert result.kind == "biased"
    for name in ("value", "std_error", "ess", "lower", "upper"):
        assert getattr(result, name).shape == torch.Size(shape)
        assert torch.equal(getattr(result, name), getattr(law.log_partition, name).expand(shape))


def test_gradient_is_that_of_the_estimate_and_a_new_graph_makes_a_new_one():
    theta = draw_theta(CYCLE).requires_grad_()
    law = HierarchicalLogLinear(CYCLE, theta, partition=Noisy(0.0))
    value = law.enumerate_support()[5]
    expected = torch.autograd.grad(HierarchicalLogLinear(CYCLE, theta).log_prob(value), theta)[0]
    for _ in range(2):
        assert_close(torch.autograd.grad(law.log_prob(value), theta)[0], expected, absolute=1e-12)


# What stays exact


def test_tables_are_normalised_by_their_own_sum():
    for batch in ((), (2,)):
        law, exact = laws(Noisy(10.0), *batch)
        assert_close(law.log_prob_table, exact_table(CYCLE, exact.energy_model.tables), absolute=1e-10)
        assert_close(law.probs.sum((-4, -3, -2, -1)), torch.ones(batch), absolute=1e-12)
    empty = HierarchicalLogLinear(InteractionHypergraph(Domain(), []), torch.zeros(2, 0), partition=Noisy())
    assert torch.equal(empty.probs, torch.ones(2))
    with pytest.raises(AssertionError):
        assert_close(laws(Noisy(10.0))[0].log_prob(law.enumerate_support()[:, 0]), exact.log_prob_table, absolute=1e-10)


def test_mode_and_marginal_laws_are_exact():
    law, exact = laws(Noisy(10.0), 3)
    assert torch.equal(law.mode, exact.mode)
    kept = law.marginal(["x0", "x2"])
    assert kept.partition == law.partition
    assert_close(kept.log_prob_table, exact.log_prob_table.exp().sum((2, 4)).log(), absolute=1e-10)
    assert_close(law.condition({"x1": 2}).log_prob_table, exact.condition({"x1": 2}).log_prob_table, absolute=1e-10)


def test_what_needs_exactness_says_so_beyond_the_exact_budget():
    law = HierarchicalLogLinear(PAIRS, torch.zeros(PAIRS.num_parameters), partition=Noisy())
    with pytest.raises(IntractableError, match="max_cells"):
        _ = law.mode
    with pytest.raises(IntractableError, match="summing out"):
        law.marginal(["x0"])
    with pytest.raises(IntractableError, match="max_table_cells"):
        _ = law.probs
    with pytest.raises(IntractableError, match="max_enumerated_states"):
        law.enumerate_support()
    assert law.log_pseudo_prob(torch.zeros(60)).shape == ()
    assert law.energy(torch.zeros(60)).shape == ()


def test_newton_steps_use_exact_values():
    table = exact_table(CYCLE, laws(None)[1].energy_model.tables)
    eta = torch.from_numpy(exact_statistics(CYCLE, table))
    expected = solve_natural_parameters(CYCLE, eta, Auto())
    assert torch.equal(solve_natural_parameters(CYCLE, eta, Noisy(10.0)), expected)
    information = fisher_information(CYCLE, expected, Noisy(10.0))
    assert torch.equal(information, fisher_information(CYCLE, expected, Auto()))


# What is an estimate


def test_moments_come_from_one_estimate_of_eta_and_divergences_are_estimates():
    weak = InteractionHypergraph(CYCLE.domain, [("x0", "x1", "x2"), ("x3",)], hierarchical=False)
    law = law_of(weak, partition=Noisy(30.0))
    exact = HierarchicalLogLinear(weak, law.theta)
    assert law.mean.shape == law.variance.shape == (4,)
    law, exact = laws(Noisy(1e-3), 2)
    assert_close(law.mean, exact.mean, absolute=1e-3)
    assert_close(law.variance, exact.variance, absolute=1e-3)
    assert_close(law.entropy(), exact.entropy(), absolute=1e-2)
    assert not torch.equal(law.entropy(), exact.entropy())
    counts = LogLinearStatistics(CYCLE, law.theta, 10, partition=Noisy(1e-3))
    assert_close(counts.mean, 10 * exact.eta, absolute=1e-2)
    law, exact = laws(Noisy(1e-4))
    other = HierarchicalLogLinear(CYCLE.closure(), draw_theta(CYCLE, seed=3), partition=Noisy(1e-4))
    wider = InteractionHypergraph.from_order(CYCLE.domain, 2)
    other_wide = law_of(wider, seed=4)
    for second in (other, other_wide):
        plain = HierarchicalLogLinear(second.hypergraph, second.theta)
        assert_close(kl_divergence(law, second), kl_divergence(exact, plain), absolute=1e-2)


# Samples


def test_samples_tell_their_burn_in_and_small_tables_of_counts_are_drawn_exactly():
    law, exact = laws(Noisy())
    assert not law.sample_is_exact
    assert law.sample_burn_in == 7
    assert exact.sample_is_exact
    assert exact.sample_burn_in == 0
    assert law.sample((5,)).shape == (5, 4)
    assert law.expand([3]).sample_burn_in == 7
    small = LogLinearStatistics(CYCLE, draw_theta(CYCLE), 50, partition=Noisy(10.0))
    assert small.sample_is_exact
    assert small.sample_burn_in == 0
    pyro.set_rng_seed(0)
    draws = small.sample((4,))
    pyro.set_rng_seed(0)
    assert torch.equal(draws, LogLinearStatistics(CYCLE, draw_theta(CYCLE), 50).sample((4,)))
    large = LogLinearStatistics(PAIRS, torch.zeros(PAIRS.num_parameters), 50, partition=Noisy())
    assert not large.sample_is_exact
    assert large.sample_burn_in == 7


# Where estimates are refused

COUNTS = statistics_of(torch.zeros(1, 4, dtype=torch.long), CYCLE) * 20


def program(partition, counts=COUNTS):
    theta = pyro.sample("theta", normal_prior(CYCLE, 0.5, dtype=torch.float64))
    pyro.sample("counts", LogLinearStatistics(CYCLE, theta, 20, partition=partition), obs=counts)


def rows_program(partition):
    theta = pyro.sample("theta", normal_prior(CYCLE, 0.5, dtype=torch.float64))
    with pyro.plate("rows", 3):
        pyro.sample("x", HierarchicalLogLinear(CYCLE, theta, partition=partition), obs=torch.zeros(3, 4))


def conjugate_program(partition):
    law = DiaconisYlvisaker.uniform(CYCLE, 5.0, dtype=torch.float64, partition=partition)
    pyro.sample("theta", law)


def hand_made_potential(partition):
    def potential(values):
        law = HierarchicalLogLinear(CYCLE, values["theta"], partition=partition)
        return values["theta"].square().sum() - law.log_prob(torch.zeros(4))

    return potential


def log_z_potential(partition):
    def potential(values):
        return HierarchicalLogLinear(CYCLE, values["theta"], partition=partition).log_partition.value

    return potential


def run_chain(kernel, *arguments, initial=None):
    chain = MCMC(kernel, num_samples=2, warmup_steps=1, disable_progbar=True, initial_params=initial)
    chain.run(*arguments)
    return chain.get_samples()["theta"]


INITIAL = {"theta": torch.zeros(CYCLE.num_parameters, dtype=torch.float64)}
KERNELS = {
    "NUTS": lambda p: run_chain(NUTS(program), p),
    "NUTS of rows": lambda p: run_chain(NUTS(rows_program), p),
    "NUTS of a conjugate prior": lambda p: run_chain(NUTS(conjugate_program), p),
    "NUTS of a potential": lambda p: run_chain(NUTS(potential_fn=hand_made_potential(p)), initial=INITIAL),
    "NUTS of log Z": lambda p: run_chain(NUTS(potential_fn=log_z_potential(p)), initial=INITIAL),
    "own NUTS": lambda p: run_chain(RecordingNUTS(program), p),
    "HMC": lambda p: run_chain(HMC(program, num_steps=2), p),
    "HMC of a potential": lambda p: run_chain(HMC(potential_fn=hand_made_potential(p)), initial=INITIAL),
    "random walk": lambda p: run_chain(RandomWalkKernel(program), p),
    "posterior": lambda p: (
        sample_posterior(
            CYCLE,
            COUNTS,
            total_count=20,
            settings=NUTSSettings(num_draws=4, burn_in=2, num_chains=1),
            partition=p,
            progress=False,
        ).theta
    ),
}


def is_refusal(error):
    """Whether an error, or the one that Pyro wrapped, is ours and says what to do."""
    own = error if isinstance(error, InputError) else error.__cause__
    return isinstance(own, InputError) and all(word in str(own) for word in ("Auto()", "seed=", "SVI", "Langevin"))


@pytest.mark.parametrize("kernel", ["NUTS", "HMC of a potential"])
def test_control_without_the_check_pyro_accepts_it_silently(kernel, unchecked):
    assert torch.isfinite(KERNELS[kernel](Noisy())).all()


@pytest.fixture
def unchecked(monkeypatch):
    for module in ("law", "priors"):
        monkeypatch.setattr(f"pyro_hoim.log_linear.laws.{module}.check_estimate", lambda partition, *_: partition)


def guide(partition):
    pyro.sample("theta", normal_prior(CYCLE, 0.4, dtype=torch.float64))


def prior_program(partition):
    """A program whose prior is weighed; what is observed needs no log Z."""
    theta = pyro.sample("theta", DiaconisYlvisaker.uniform(CYCLE, 5.0, dtype=torch.float64, partition=partition))
    pyro.factor("f", -theta.square().sum())


def filtered(partition):
    class Model:
        def init(self, state):
            state["theta"] = pyro.sample("theta", normal_prior(CYCLE, 0.5, dtype=torch.float64))

        def step(self, state):
            pyro.sample("c", LogLinearStatistics(CYCLE, state["theta"], 20, partition=partition), obs=COUNTS)

    class Proposal:
        def init(self, state):
            guide(partition)

        def step(self, state):
            pass

    smc = SMCFilter(Model(), Proposal(), num_particles=8, max_plate_nesting=0)
    smc.init()
    smc.step()
    return smc.state._log_weights


def loss(elbo):
    return lambda p: torch.as_tensor(elbo.loss(program, guide, p))


VECTORIZED = {"num_samples": 4, "max_plate_nesting": 0}
WEIGHTS = {
    "Importance": lambda p: torch.stack(Importance(program, num_samples=4).run(p).log_weights),
    "Importance of a prior": lambda p: torch.stack(Importance(prior_program, guide, 4).run(p).log_weights),
    "vectorized weights": lambda p: vectorized_importance_weights(program, guide, p, **VECTORIZED)[0],
    "WeighedPredictive": lambda p: WeighedPredictive(program, guide=guide, num_samples=4)(p).log_weights,
    "WeighedPredictive in parallel": lambda p: (
        WeighedPredictive(program, guide=guide, num_samples=4, parallel=True)(p).log_weights
    ),
    "RenyiELBO": loss(RenyiELBO(num_particles=2)),
    "ReweightedWakeSleep": lambda p: torch.as_tensor(
        ReweightedWakeSleep(num_particles=2, model_has_params=False).loss(program, guide, p)[1]
    ),
    "TraceTailAdaptive_ELBO": lambda p: torch.as_tensor(
        TraceTailAdaptive_ELBO(num_particles=2, vectorize_particles=True, max_plate_nesting=0).loss_and_grads(
            program, AutoNormal(program), p
        )
    ),
    "TraceTMC_ELBO": lambda p: torch.as_tensor(
        TraceTMC_ELBO(max_plate_nesting=0).loss(program, config_enumerate(guide, "parallel", num_samples=3), p)
    ),
    "SMCFilter": filtered,
    "Resampler": lambda p: Resampler(partial(guide, p), num_guide_samples=4, max_plate_nesting=0).sample(
        partial(program, p), 2
    )["theta"],
}


@pytest.mark.filterwarnings("ignore::pyro_hoim.errors.ConvergenceWarning")
@pytest.mark.parametrize("use", [*KERNELS, *WEIGHTS])
def test_inference_that_compares_log_probabilities_refuses_random_ones(use):
    run = {**KERNELS, **WEIGHTS}[use]
    pyro.set_rng_seed(0)
    with pytest.raises(ValueError, match="without a seed") as caught:
        run(Noisy())
    assert is_refusal(caught.value)
    for accepted in (Auto(), VariableElimination(), Noisy(seed=3)):
        found = run(accepted)
        assert not found.isnan().any()
        assert use in WEIGHTS or torch.isfinite(found).all()


@pytest.mark.usefixtures("unchecked")
def test_control_without_the_check_the_mean_weight_is_too_large():
    """Z-hat without bias: log Z-hat ~ N(-s^2/2, s^2) has E[Z-hat^-N] = Z^-N exp(N (N + 1) s^2 / 2); here N s = 2."""
    noise, rows, draws = 0.1, 20, 2000

    def fixed(partition):
        theta = torch.zeros(CYCLE.num_parameters, dtype=torch.float64)
        pyro.sample("counts", LogLinearStatistics(CYCLE, theta, rows, partition=partition), obs=COUNTS)

    weights = torch.stack(Importance(fixed, num_samples=draws).run(Noisy(noise)).log_weights) - noise**2 / 2 * rows
    exact = Importance(fixed, num_samples=1).run(Auto()).log_weights[0]
    excess = torch.logsumexp(weights, 0) - math.log(draws) - exact
    assert excess > 1  # (N s)^2 / 2 = 2 nats in expectation; the mean of a lognormal comes out low


def test_the_message_names_the_kernel_also_of_a_potential_made_outside():
    for make, name in ((NUTS, "Pyro's NUTS"), (HMC, "Pyro's HMC"), (RandomWalkKernel, "Pyro's RandomWalkKernel")):
        with pytest.raises(ValueError, match=name):
            run_chain(make(program), Noisy())
    _, potential, transforms, trace = initialize_model(program, (Noisy(),))
    assert torch.isfinite(potential(INITIAL))
    with pytest.raises(ValueError, match="without a seed"):
        run_chain(NUTS(potential_fn=potential, transforms=transforms), initial=INITIAL)
    assert trace.nodes["counts"]["is_observed"]


def test_compiled_programs_refuse_estimates_seeded_or_not():
    for partition in (Noisy(), Noisy(seed=1)):
        with pytest.raises(ValueError, match=r"jit_compile=False|without a seed"):
            run_chain(NUTS(program, jit_compile=True, ignore_jit_warnings=True), partition)
        pyro.clear_param_store()
        model = partial(program, partition)
        svi = SVI(model, AutoDelta(model), pyro.optim.Adam({"lr": 0.1}), JitTrace_ELBO(ignore_jit_warnings=True))
        with pytest.raises(ValueError, match="jit_compile=False"):
            svi.step()


def test_other_inference_takes_fresh_randomness():
    pyro.set_rng_seed(0)
    pyro.clear_param_store()
    for guide in (AutoNormal(program), AutoDelta(program)):
        svi = SVI(program, guide, pyro.optim.Adam({"lr": 0.1}), Trace_ELBO(num_particles=2))
        assert all(torch.isfinite(torch.tensor(svi.step(Noisy()))) for _ in range(3))
    thetas = {"theta": draw_theta(CYCLE, 6)}
    assert Predictive(program, thetas)(Noisy(), None)["counts"].shape == (6, CYCLE.num_terms)
    assert torch.isfinite(hand_made_potential(Noisy())(INITIAL))


def test_an_estimate_made_before_is_a_constant_and_passes():
    fixed = law_of(CYCLE, partition=Noisy())
    _ = fixed.log_partition

    def model():
        weight = pyro.sample("theta", dist.Normal(0.0, 1.0))
        pyro.factor("data", weight * fixed.log_prob(torch.zeros(4)))

    assert torch.isfinite(run_chain(NUTS(model))).all()


def test_exact_backends_never_look_at_the_stack(monkeypatch):
    monkeypatch.setattr("pyro_hoim.core.laws.traces._enclosing_inference", Mock(side_effect=AssertionError("looked")))
    for partition in (Auto(), VariableElimination(), Noisy(seed=1)):
        laws(partition)[0].log_prob(torch.zeros(4))
        DiaconisYlvisaker.uniform(CYCLE, 5.0, partition=partition).log_prob(draw_theta(CYCLE).float())
    with pytest.raises(AssertionError, match="looked"):
        laws(Noisy())[0].log_prob(torch.zeros(4))


# The annealed backend itself

FEW = AnnealedImportance(num_chains=256, num_temperatures=50)


def test_automatic_choice_is_exact_where_it_can_be():
    fallback = Auto(annealed=FEW)
    law, exact = laws(fallback)
    assert law.sample_is_exact
    assert (law.sample_burn_in, law.log_partition.kind) == (0, "exact")
    assert law.log_partition.value == exact.log_partition.value
    assert torch.equal(law.mode, exact.mode)
    assert torch.isfinite(KERNELS["NUTS"](fallback)).all()
    large = HierarchicalLogLinear(PAIRS, 0.05 * draw_theta(PAIRS), partition=fallback)
    assert not large.sample_is_exact
    assert (large.sample_burn_in, large.log_partition.kind) == (FEW.burn_in, "biased")
    with pytest.raises(ValueError, match="without a seed"):
        run_chain(NUTS(potential_fn=partial(large_potential, fallback)), initial={"theta": draw_theta(PAIRS)})


def large_potential(partition, values):
    return -HierarchicalLogLinear(PAIRS, values["theta"], partition=partition).log_prob(torch.zeros(60))


def test_laws_beyond_exact_reach():
    pyro.set_rng_seed(0)
    theta = (0.05 * draw_theta(PAIRS, 2)).requires_grad_()
    law = HierarchicalLogLinear(PAIRS, theta, partition=FEW)
    rows = law.sample((3,))
    assert rows.shape == (3, 2, 60)
    value = law.log_prob(rows)
    result = law.expand((3, 2)).log_partition
    assert_close(value + law.energy(rows), -result.value, absolute=1e-9)
    assert result.std_error.shape == result.ess.shape == result.verdicts.shape == (3, 2)
    assert bool(result.verdicts.all())
    (gradient,) = torch.autograd.grad(value.sum(), theta)
    assert gradient.shape == theta.shape
    assert torch.isfinite(gradient).all()
    with torch.no_grad():
        both = HierarchicalLogLinear(PAIRS, theta.detach(), partition=FEW).expand((4, 2)).log_partition
    assert both.sandwich is not None
    assert both.sandwich.gap.shape == (4, 2)
    for name in ("mode", "probs"):
        with pytest.raises(IntractableError):
            getattr(law, name)
    with pytest.raises(IntractableError, match="summing out"):
        law.marginal(["x0"])
    weights = law.condition({f"x{i}": 0 for i in range(55)})
    assert_close(weights.probs.sum((-1, -2, -3, -4, -5)), torch.ones(2), absolute=1e-9)


# Learning with it

WHEEL = InteractionHypergraph(
    Domain.from_cardinalities([2] * 20),
    [
        *((f"x{i}", f"x{(i + 1) % 20}") for i in range(20)),
        *((f"x{i}", f"x{(i + 5) % 20}") for i in range(0, 20, 2)),
        ("x0", "x1", "x5"),
        ("x10", "x11", "x15"),
    ],
    closure=True,
)


@pytest.mark.fixed_seed  # of gradients whose noise is not bounded here
@pytest.mark.parametrize("guide", [AutoDelta, AutoNormal])
def test_variational_inference_recovers_a_known_model(guide):
    """Twenty variables; the data are the exact expected counts of 10,000 rows, so that theta itself is the optimum."""
    pyro.set_rng_seed(1)
    pyro.clear_param_store()
    rows, steps = 10_000, 100
    truth = 0.5 * draw_theta(WHEEL)
    counts = rows * HierarchicalLogLinear(WHEEL, truth).eta
    backend = AnnealedImportance(num_chains=1024, num_temperatures=20)

    def model():
        theta = pyro.sample("theta", normal_prior(WHEEL, 10.0, dtype=torch.float64))
        pyro.sample("counts", LogLinearStatistics(WHEEL, theta, rows, partition=backend), obs=counts)

    options = {"init_scale": 0.02} if guide is AutoNormal else {}
    fitted = guide(model, init_loc_fn=lambda site: torch.zeros_like(truth), **options)
    svi = SVI(model, fitted, pyro.optim.ClippedAdam({"lr": 0.08, "lrd": 0.02 ** (1 / steps)}), Trace_ELBO())
    for _ in range(steps):
        svi.step()
    found = fitted.median()["theta"].detach()
    spread = (rows * fisher_information(WHEEL, truth, Auto()).diagonal()).rsqrt()
    assert float(((found - truth) / spread).abs().max()) < 5  # in standard deviations of the posterior
    assert float((truth / spread).abs().max()) > 50  # where it started
    assert float(((found - 1.2 * truth) / spread).abs().max()) > 5
    if guide is AutoNormal:
        ratio = fitted.scales.theta.detach() / spread
        assert 0.4 < float(ratio.min()) < float(ratio.max()) < 2.5


def langevin(partition, counts, num_steps=40):
    """Thirty-two stochastic-gradient Langevin chains in a plain loop; the noise is the same in every call."""
    generator = torch.Generator().manual_seed(0)
    prior, step = normal_prior(CYCLE, 0.5, dtype=torch.float64), 0.02
    theta = torch.zeros(32, CYCLE.num_parameters, dtype=torch.float64)
    for _ in range(num_steps):
        theta.requires_grad_()
        law = LogLinearStatistics(CYCLE, theta, 20, partition=partition)
        (gradient,) = torch.autograd.grad((prior.log_prob(theta) + law.log_prob(counts)).sum(), theta)
        noise = torch.randn(theta.shape, generator=generator, dtype=theta.dtype)
        theta = theta.detach() + step / 2 * gradient + step**0.5 * noise
    return theta


def test_stochastic_gradient_langevin_follows_the_exact_one():
    """The posterior is log-concave, so chains with the same noise keep together when their gradients agree."""
    pyro.set_rng_seed(2)
    exact, annealed = langevin(Auto(), COUNTS), langevin(FEW, COUNTS)
    width = exact.std(0)

    def distance(chains):
        return float(((chains - exact) / width).square().mean().sqrt())

    assert distance(annealed) < 0.1
    other = 20 * statistics_of(torch.tensor([[1, 0, 0, 0]]), CYCLE)
    assert distance(langevin(Auto(), other)) > 0.5
