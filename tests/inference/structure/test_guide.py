"""The guide of structures: laws of indicators, conditional normals, gradients, and posteriors that are known."""

import itertools

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.infer import SVI, Trace_ELBO
from pyro.optim import ClippedAdam

from pyro_hoim import InteractionHypergraph, LogLinearStatistics, Observations
from pyro_hoim.inference import enumerate_structures, structure_model
from pyro_hoim.inference.structure.guides.guide import (
    AutoStructure,
    Heredity,
    SequentialStructure,
    StructureELBO,
    present_normal,
)
from pyro_hoim.inference.structure.prior import StructurePrior
from pyro_hoim.log_linear import HierarchicalLogLinear
from pyro_hoim.schema import Domain
from pyro_hoim.testing import assert_exact_law, raises

SPACES = {
    "three": (3, {}),
    "four": (4, {"max_order": 3}),
    "some heredity": (4, {"max_order": 3, "heredity": 0.3}),
    "pairs": (3, {"space": "pairwise"}),
}


def _prior(d, **options):
    return StructurePrior(Domain.from_cardinalities([2] * d), **options)


def _law(name, *, is_chained=True):
    d, options = SPACES[name]
    heredity = Heredity(_prior(d, **options).space)
    rng = np.random.default_rng(1)
    num = heredity.space.num_free
    weights = torch.from_numpy(rng.normal(size=(num, num))) if is_chained else None
    return SequentialStructure(heredity, torch.from_numpy(rng.normal(size=num)), weights)


@pytest.mark.parametrize("name", SPACES)
@pytest.mark.parametrize("is_chained", [True, False])
def test_indicators_are_members_and_their_probabilities_sum_to_one(name, is_chained):
    law = _law(name, is_chained=is_chained)
    every = torch.tensor(list(itertools.product([0.0, 1.0], repeat=law.event_shape[0])), dtype=torch.float64)
    probs = law.log_prob(every).exp()
    assert float(probs.sum()) == pytest.approx(1, abs=1e-12)
    assert torch.equal(probs > 0, law.support.check(every))


def test_draws_have_the_law_of_the_indicators_and_control_the_law_without_their_dependence():
    law = _law("three")
    members = _prior(3).enumerate_support().double()
    torch.manual_seed(2)
    drawn = law.sample(torch.Size([20_000]))
    counts = (drawn.unsqueeze(1) == members).all(-1).sum(0).numpy()
    assert counts.sum() == 20_000
    assert_exact_law(counts, law.log_prob(members).exp().numpy())
    alone = SequentialStructure(law.heredity, law.bias)
    with pytest.raises(AssertionError):
        assert_exact_law(counts, alone.log_prob(members).exp().numpy())


def test_the_normal_law_of_present_coordinates_is_the_joint_one_given_zeros():
    rng = np.random.default_rng(3)
    factor = np.tril(rng.normal(size=(4, 4))) + 2 * np.eye(4)
    mean = rng.normal(size=4)
    covariance = np.linalg.inv(factor @ factor.T)
    here, gone = [0, 2], [1, 3]
    gain = covariance[np.ix_(here, gone)] @ np.linalg.inv(covariance[np.ix_(gone, gone)])
    wanted_mean = mean[here] - gain @ mean[gone]
    wanted_covariance = covariance[np.ix_(here, here)] - gain @ covariance[np.ix_(gone, here)]
    absent = torch.tensor([5.0, 6.0, 7.0, 8.0], dtype=torch.float64), torch.tensor([0.5, 1.5, 2.5, 3.5]).double()
    law = present_normal(
        torch.from_numpy(mean), torch.from_numpy(factor), *absent, torch.tensor([1.0, 0.0, 1.0, 0.0]).double()
    )
    np.testing.assert_allclose(law.mean[here], wanted_mean, rtol=1e-10)
    np.testing.assert_allclose(law.covariance_matrix[here][:, here], wanted_covariance, rtol=1e-10)
    np.testing.assert_allclose(law.mean[gone], [6.0, 8.0], rtol=1e-12)
    np.testing.assert_allclose(law.stddev[gone], [1.5, 3.5], rtol=1e-10)
    np.testing.assert_allclose(law.covariance_matrix[here][:, gone], 0, atol=1e-12)


# A program whose posterior is known: a normal likelihood of theta, which the guide can follow exactly

QUADRATIC = _prior(3, inclusion=0.4)
_RNG = np.random.default_rng(5)
DESIGN = torch.from_numpy(_RNG.normal(size=(30, QUADRATIC.largest.num_parameters)))
TARGET = torch.from_numpy(_RNG.normal(size=30)) + DESIGN[:, 4]
PRIOR_SCALE = 0.7


def quadratic():
    """Linear regression on theta with absent coefficients; a scale of its own stands beside it."""
    gamma = pyro.sample("gamma", QUADRATIC)
    zeros = torch.zeros(QUADRATIC.largest.num_parameters, dtype=torch.float64)
    theta = pyro.sample("theta", dist.Normal(zeros, PRIOR_SCALE).to_event(1))
    mean = (theta * QUADRATIC.parameter_mask(gamma)) @ DESIGN.T
    pyro.sample("y", dist.Normal(mean, 1.0).to_event(1), obs=TARGET)


def _exact():
    """Inclusion probabilities and log evidence of the program above."""
    members = QUADRATIC.enumerate_support().double()
    logs = []
    for gamma in members:
        columns = DESIGN * QUADRATIC.parameter_mask(gamma)
        covariance = torch.eye(30, dtype=torch.float64) + PRIOR_SCALE**2 * columns @ columns.T
        law = torch.distributions.MultivariateNormal(torch.zeros(30, dtype=torch.float64), covariance)
        logs.append(law.log_prob(TARGET) + QUADRATIC.log_prob(gamma))
    total = torch.stack(logs).logsumexp(0)
    return (torch.stack(logs) - total).exp() @ members, float(total)


def _fitted(gradient, num_steps, dependence="autoregressive", **options):
    """The guide after some steps from a seed, and its mean loss."""
    with torch.random.fork_rng():
        guide, svi = _stepped(gradient, num_steps, dependence, **options)
        return guide, float(np.mean([svi.evaluate_loss() for _ in range(300)]))


def _stepped(gradient, num_steps, dependence, **options):
    torch.manual_seed(1)
    pyro.clear_param_store()
    guide = AutoStructure(quadratic, dependence=dependence)
    optimiser = ClippedAdam({"lr": 0.05, "lrd": 0.02 ** (1 / num_steps)})
    svi = SVI(quadratic, guide, optimiser, guide.elbo(gradient=gradient, **options))
    for _ in range(num_steps):
        svi.step()
    return guide, svi


def test_a_sum_over_members_finds_the_posterior_where_it_is_in_reach():
    inclusion, log_evidence = _exact()
    guide, loss = _fitted("enumerate", 600)
    assert -0.05 < loss + log_evidence < 0.2
    np.testing.assert_allclose(guide.inclusion(), inclusion, atol=0.05)


@pytest.mark.slow
def test_gradients_of_draws_find_the_same():
    inclusion, _ = _exact()
    guide, _ = _fitted("score", 1500)
    np.testing.assert_allclose(guide.inclusion(), inclusion, atol=0.05)


def _random_rows(seed):
    """Rows of a random law of the pairs of four or five variables, half of which interact."""
    rng = np.random.default_rng(seed)
    domain = Domain.from_cardinalities(rng.choice([2, 2, 3], size=4 + seed % 2).tolist())
    graph = InteractionHypergraph.from_order(domain, 2)
    pairs = rng.integers(0, 2, len(graph) - len(domain))
    theta = torch.from_numpy(rng.normal(scale=0.6, size=graph.num_parameters))
    theta = theta * graph.spread(torch.from_numpy(np.concatenate([np.ones(len(domain)), pairs])))
    probs = HierarchicalLogLinear(graph, theta).probs.reshape(-1).numpy()
    counts = rng.multinomial(int(rng.integers(100, 400)), probs / probs.sum())
    return Observations.from_table(domain, counts.reshape(domain.cardinalities))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_random_programs_have_the_inclusion_and_the_evidence_of_the_list(seed):
    data = _random_rows(seed)
    structures = StructurePrior(data.domain, space="pairwise")
    listed = enumerate_structures(data, "unit", structures)
    total = float((listed.log_evidence + structures.probs.log()).logsumexp(0))
    program, num_steps = structure_model(data, structures), 2_500
    with torch.random.fork_rng():
        pyro.set_rng_seed(seed)
        pyro.clear_param_store()
        guide = AutoStructure(program)
        optimiser = ClippedAdam({"lr": 0.05, "lrd": 0.02 ** (1 / num_steps)})
        svi = SVI(program, guide, optimiser, guide.elbo(gradient="score"))
        for _ in range(num_steps):
            svi.step()
        loss = guide.elbo(512, gradient="score")
        bound = -float(np.mean([loss.loss(program, guide) for _ in range(40)]))
    assert float((guide.inclusion() - listed.inclusion.mean).abs().max()) < 0.05
    assert -0.1 < total - bound < 0.2  # the evidence of the list is Laplace's
    sparse = StructurePrior(data.domain, space="pairwise", inclusion=0.2)  # a control
    other = enumerate_structures(data, "unit", sparse).inclusion.mean
    assert float((guide.inclusion() - other).abs().max()) > 0.05


def _gradients(guide, loss):
    guide.zero_grad()
    loss.loss_and_grads(quadratic, guide)
    return dict(guide.named_parameters())["bias_unconstrained"].grad.clone()


class _Unscored(StructureELBO):
    """A control: the law of the indicators is not differentiated."""

    def _bounds(self, *args):
        bound, log_q, is_sum = super()._bounds(*args)
        return bound, log_q.detach(), is_sum


def test_gradients_of_draws_are_unbiased_and_control_without_the_score_is_not():
    with torch.random.fork_rng():
        guide, _ = _stepped("enumerate", 5, "autoregressive")
        torch.manual_seed(3)
        sums = torch.stack([_gradients(guide, guide.elbo(gradient="enumerate")) for _ in range(30)])
        state = torch.get_rng_state()
        for loss_of_draws, is_right in ((StructureELBO, True), (_Unscored, False)):
            torch.set_rng_state(state)
            drawn = torch.stack([_gradients(guide, loss_of_draws(32, gradient="score")) for _ in range(200)])
            error = (sums.var(0) / len(sums) + drawn.var(0) / len(drawn)).sqrt()
            scores = (sums.mean(0) - drawn.mean(0)).abs() / error
            assert (float(scores.max()) < 5.5) is is_right


def test_other_continuous_sites_and_plates_are_part_of_the_guide():
    prior = _prior(2)
    graph = prior.largest
    counts = LogLinearStatistics(graph, torch.tensor([0.1, -0.2, 0.4], dtype=torch.float64), 2000).mean

    def program():
        scale = pyro.sample("scale", dist.Gamma(torch.tensor(2.0).double(), torch.tensor(2.0).double()))
        gamma = pyro.sample("gamma", prior)
        zeros = torch.zeros(graph.num_parameters, dtype=torch.float64)
        theta = pyro.sample("theta", dist.Normal(zeros, 1.0).to_event(1))
        with pyro.plate("groups", 2):
            shift = pyro.sample("shift", dist.Normal(torch.zeros(2).double(), scale))
        where = theta * prior.parameter_mask(gamma)
        law = LogLinearStatistics(graph, where, 2000, validate_args=False)
        pyro.sample("counts", law, obs=counts)
        with pyro.plate("seen", 2):
            pyro.sample("y", dist.Normal(shift, 1.0), obs=torch.tensor([0.5, 1.0]).double())

    torch.manual_seed(0)
    pyro.clear_param_store()
    guide = AutoStructure(program)
    svi = SVI(program, guide, ClippedAdam({"lr": 0.05}), guide.elbo(8))
    losses = [float(svi.step()) for _ in range(300)]
    drawn = guide()
    assert np.isfinite(losses).all() and np.mean(losses[-20:]) < losses[0]
    assert drawn["shift"].shape == (2,) and drawn["theta"].shape == (3,) and float(drawn["scale"].detach()) > 0
    assert float(guide.inclusion()[0]) > 0.9
    assert np.isfinite(SVI(program, guide, ClippedAdam({"lr": 0.0}), Trace_ELBO()).evaluate_loss())


def _program(*, prior, name="theta", discrete=False):
    def program():
        size = 3
        if prior is not None:
            pyro.sample("gamma", prior)
            size = prior.largest.num_parameters
        if discrete:
            pyro.sample("k", dist.Bernoulli(0.5))
        pyro.sample(name, dist.Normal(torch.zeros(size).double(), 1.0).to_event(1))

    return program


@pytest.mark.parametrize(("num_particles", "expected"), [(15, 15), (16, 64)])
def test_sums_are_taken_where_draws_are_no_cheaper(num_particles, expected):
    prior, seen = _prior(4, space="pairwise"), set[int]()

    def program():
        gamma = pyro.sample("gamma", prior)
        seen.add(gamma.numel() // 6)
        pyro.sample("theta", dist.Normal(torch.zeros(prior.largest.num_parameters).double(), 1.0).to_event(1))

    pyro.clear_param_store()
    guide = AutoStructure(program)
    guide.elbo(num_particles).loss(program, guide)
    assert expected in seen and not {15, 16, 64} - {expected} & seen


def _in_a_plate():
    with pyro.plate("groups", 2):
        _program(prior=_prior(2))()


def test_parameters_whose_prior_has_no_moments():
    prior = _prior(2)

    def program():
        gamma = pyro.sample("gamma", prior)
        theta = pyro.sample("theta", dist.Cauchy(torch.zeros(3).double(), 1.0).to_event(1))
        law = LogLinearStatistics(prior.largest, theta * prior.parameter_mask(gamma), 20, validate_args=False)
        pyro.sample("counts", law, obs=torch.tensor([9.0, 11.0, 10.0, 10.0, 5.0, 4.0, 5.0, 6.0]).double())

    pyro.clear_param_store()
    torch.manual_seed(0)
    guide = AutoStructure(program)
    assert np.isfinite(guide.elbo().loss(program, guide))


@pytest.mark.parametrize(
    ("program", "code"),
    [
        (_in_a_plate, "wrong-shape"),
        (_program(prior=None), "missing-part"),
        (_program(prior=_prior(2), name="other"), "missing-part"),
        (_program(prior=_prior(3, space="graphical")), "no-method"),
        (_program(prior=_prior(2), discrete=True), "no-method"),
    ],
    ids=["in a plate", "no structure", "no parameters", "graphical", "discrete"],
)
def test_programs_that_the_guide_cannot_follow(program, code):
    with raises(code, "model"):
        AutoStructure(program)()


def test_bad_options():
    with raises("unknown-choice", "dependence"):
        AutoStructure(quadratic, dependence="full")
    with raises("wrong-type", "model"):
        AutoStructure(3)
    with raises("no-method", "gradient"):
        StructureELBO(gradient="relaxed")
    with raises("unknown-choice", "gradient"):
        StructureELBO(gradient="hard")
    with raises("out-of-range", "num_particles"):
        StructureELBO(1)
    big = AutoStructure(_program(prior=_prior(5, space="hierarchical")))
    with raises("over-budget", "gradient"):
        big.elbo(gradient="enumerate").loss(_program(prior=_prior(5)), big)
    with raises("wrong-type", "guide"):
        StructureELBO().loss(quadratic, quadratic)
