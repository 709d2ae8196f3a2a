"""The guide of structures: laws of indicators, conditional normals, gradients, and posteriors that are known."""

import itertools
import math
import pickle
from typing import Any, cast

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.infer import HMC, SVI, Trace_ELBO
from pyro.optim import ClippedAdam
from scipy import stats

from pyro_hoim import Domain, InteractionHypergraph, LogLinearStatistics, Observations, run_mcmc
from pyro_hoim.inference import MixedGibbs, StructurePrior, enumerate_structures, structure_model
from pyro_hoim.inference.mixed import _sites as sites
from pyro_hoim.inference.structure.guide import (
    AutoStructure,
    Heredity,
    SequentialStructure,
    StructureELBO,
    present_normal,
)
from pyro_hoim.log_linear import DiaconisYlvisaker, HierarchicalLogLinear, statistics_of
from pyro_hoim.log_linear.fitting.design import design_matrix
from pyro_hoim.testing import FALSE_ALARM_RATE, assert_exact_law, raises

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


def random_rows(seed):
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


def guide_by_score(program, num_steps, seed):
    """The guide after some steps by gradients of the score."""
    pyro.set_rng_seed(seed)
    pyro.clear_param_store()
    guide = AutoStructure(program)
    svi = SVI(program, guide, ClippedAdam({"lr": 0.05, "lrd": 0.02 ** (1 / num_steps)}), guide.elbo(gradient="score"))
    for _ in range(num_steps):
        svi.step()
    return guide


def bound_of(program, guide):
    """The bound of the evidence, the mean of 20,480 draws."""
    loss = guide.elbo(512, gradient="score")
    return -float(np.mean([loss.loss(program, guide) for _ in range(40)]))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_random_programs_have_the_inclusion_and_the_evidence_of_the_list(seed):
    data = random_rows(seed)
    structures = StructurePrior(data.domain, space="pairwise")
    listed = enumerate_structures(data, "unit", structures)
    total = float((listed.log_evidence + structures.probs.log()).logsumexp(0))
    program = structure_model(data, structures)
    with torch.random.fork_rng():
        guide = guide_by_score(program, 2_500, seed)
        bound = bound_of(program, guide)
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
            drawn = torch.stack([_gradients(guide, loss_of_draws(32, gradient="score")) for _ in range(100)])
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
    losses = [float(svi.step()) for _ in range(100)]
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


# The program of collections and theta


def rows_of(counts, *cards):
    return Observations.from_table(Domain.from_cardinalities(cards), np.array(counts).reshape(cards))


TWO = rows_of([6, 2, 3, 4], 2, 2)
THREE = rows_of([6, 2, 3, 4, 1, 5, 4, 7], 2, 2, 2)
MIXED = rows_of([6, 2, 3, 4, 1, 5, 4, 7, 0, 2, 3, 1], 2, 3, 2)


def hmc(program):
    """Five steps of fixed length."""
    return HMC(program, step_size=cast(Any, 0.4), num_steps=5, adapt_step_size=False)


def log_density(program, gamma, theta):
    """Log joint density of the sites of a program at given values."""
    given = pyro.poutine.condition(program, data={"gamma": gamma, "theta": theta})
    return torch.as_tensor(pyro.poutine.trace(given).get_trace().log_prob_sum())


def values_of(program):
    """What one run with a seed draws and returns."""
    with pyro.poutine.seed(rng_seed=1):
        nodes = dict(pyro.poutine.trace(program).get_trace().nodes)
    return {name: nodes[name]["value"] for name in ("gamma", "theta", "_RETURN")}


@pytest.mark.parametrize("space", ["hierarchical", "pairwise", "decomposable"])
def test_the_density_is_that_of_sums_over_cells(space):
    prior = StructurePrior(MIXED.domain, space=space, inclusion=0.3)
    program, rng = structure_model(MIXED, prior), np.random.default_rng(1)
    design, counts = design_matrix(prior.largest), MIXED.table().numpy().reshape(-1)
    scales = np.concatenate(
        [
            np.full(int(np.prod([c - 1 for c in cards])), math.sqrt(math.prod(cards)))
            for cards in prior.largest.edge_shapes
        ]
    )
    members = prior.enumerate_support().double()
    sizes = members[:, : prior.space.num_free].sum(1)
    weights = 0.3**sizes * 0.7 ** (prior.space.num_free - sizes)
    for gamma, weight in zip(members, weights / weights.sum(), strict=True):
        theta = rng.normal(size=design.shape[1])
        mask = np.concatenate([np.ones(4), *([g] * n for g, n in zip(gamma.tolist(), (2, 1, 2, 2), strict=False))])
        logits = design @ (theta * mask)
        rows = counts @ (logits - np.log(np.exp(logits).sum()))
        wanted = math.log(weight) + stats.norm.logpdf(theta, scale=scales).sum() + rows
        assert float(log_density(program, gamma, torch.from_numpy(theta))) == pytest.approx(wanted, rel=1e-12)
        single = float(log_density(program, gamma.float(), torch.from_numpy(theta)))
        assert single == pytest.approx(wanted, rel=1e-6)


def test_masks_of_the_largest_collection_are_its_parts():
    prior = StructurePrior(MIXED.domain)
    largest, rng = prior.largest, np.random.default_rng(2)
    for gamma in prior.enumerate_support().double():
        theta, mask = torch.from_numpy(rng.normal(size=largest.num_parameters)), prior.parameter_mask(gamma)
        ones = torch.cat([torch.ones(3, dtype=torch.float64), gamma])
        assert torch.equal(mask, largest.spread(ones))
        whole = LogLinearStatistics(largest, theta * mask, 38).log_prob(statistics_of(MIXED, largest))
        part = prior.hypergraph_of(gamma)
        own = LogLinearStatistics(part, theta[mask == 1], 38).log_prob(statistics_of(MIXED, part))
        assert float(whole) == pytest.approx(float(own), rel=1e-12)


def test_other_priors_weights_no_rows_and_copies():
    prior = StructurePrior(TWO.domain)
    theta = torch.tensor([0.3, -0.2, 0.5], dtype=torch.float64)
    wide = torch.distributions.StudentT(4.0, torch.zeros(3).double(), 2.0)
    law = torch.distributions.Independent(wide, 1)
    for given in (law, lambda _: law):
        difference = log_density(structure_model(TWO, prior, given), torch.ones(1), theta)
        difference = difference - log_density(structure_model(TWO, prior, "normal:2"), torch.ones(1), theta)
        wanted = law.log_prob(theta) - torch.distributions.Normal(0.0, 2.0).log_prob(theta).sum()
        assert float(difference) == pytest.approx(float(wanted), rel=1e-6)
    none = Observations(TWO.domain, torch.zeros(0, 2, dtype=torch.long))
    wanted = math.log(0.5) + float(torch.distributions.Normal(0.0, 0.5).log_prob(theta).sum())
    assert float(log_density(structure_model(none, prior, 0.5), torch.ones(1), theta)) == pytest.approx(
        wanted, rel=1e-6
    )
    half = Observations.from_table(TWO.domain, weights=TWO.table() / 3)
    values = [log_density(structure_model(data), torch.ones(1), theta) for data in (none, half, TWO)]
    assert 3 * float(values[1] - values[0]) == pytest.approx(float(values[2] - values[0]), rel=1e-6)
    flat = structure_model(rows_of([1, 2], 2, 1))
    assert values_of(flat)["theta"].shape == (1,) and flat.structure_prior.event_shape == (1,)
    program = structure_model(MIXED)
    first, second = (values_of(made) for made in (program, pickle.loads(pickle.dumps(program))))
    assert all(torch.equal(first[name], second[name]) for name in ("gamma", "theta", "_RETURN"))
    assert torch.equal(first["_RETURN"], first["theta"] * program.structure_prior.parameter_mask(first["gamma"]))


# Methods


def assert_inclusion(data, num_draws, num_chains=4):
    """Draws of MixedGibbs include what the list does, up to their error, and not what another prior includes."""
    kernel = MixedGibbs(structure_model(data), hmc)
    run = run_mcmc(kernel, num_draws, burn_in=20, num_chains=num_chains, seed=1, progress=False)
    gamma = run.samples["gamma"].double()
    length = math.isqrt(num_draws)
    batches = gamma[:, : num_draws // length * length].unflatten(1, (-1, length)).mean(2).flatten(0, 1)
    error = batches.std(0) / math.sqrt(len(batches))
    size = gamma.shape[-1]
    limit = stats.t.isf(FALSE_ALARM_RATE / 2 / size, len(batches) - 1)
    for inclusion, method, is_right in ((0.5, "bridge", True), (0.9, "laplace", False)):
        structures = StructurePrior(data.domain, inclusion=inclusion)
        wanted = enumerate_structures(data, "unit", structures, method=cast(Any, method)).inclusion.mean
        assert bool(((batches.mean(0) - wanted).abs() < limit * error + 0.005).all()) is is_right
    assert kernel.evaluation == {"gamma": "rows together"}


def test_mixed_gibbs_agrees_with_the_list_of_two_variables():
    assert_inclusion(TWO, 49)


@pytest.mark.slow
@pytest.mark.parametrize("most", [512, 2], ids=["together", "one by one"])
def test_mixed_gibbs_agrees_with_the_list_of_three_variables(most, monkeypatch):
    monkeypatch.setattr(sites, "_MAX_TOGETHER", most)
    assert_inclusion(THREE, 1_500)


def test_mixed_gibbs_moves_indicators_one_by_one_where_collections_are_many():
    wide = rows_of([1] * 32, 2, 2, 2, 2, 2)
    spaces = [("hierarchical", 26), ("pairwise", 10)]
    for space, visits in spaces:
        program = structure_model(wide, StructurePrior(wide.domain, space=space))
        kernel = MixedGibbs(program, hmc)
        kernel.setup(0)
        (site,) = kernel._sites
        assert len(site.visits) == visits and all(len(visit.candidates) == 2 for visit in site.visits)
    graphs = structure_model(wide, StructurePrior(wide.domain, space="graphical"))
    kernel = MixedGibbs(graphs, hmc)
    kernel.setup(0)
    assert [len(visit.candidates) for visit in kernel._sites[0].visits] == [1_024]


def test_the_guide_follows_the_program():
    program = structure_model(TWO)
    structures = enumerate_structures(TWO, "unit", method="bridge")
    total = float((structures.log_evidence + structures.structure_prior.probs.log()).logsumexp(0))
    with torch.random.fork_rng():
        pyro.set_rng_seed(1)
        pyro.clear_param_store()
        guide = AutoStructure(program)
        svi = SVI(program, guide, ClippedAdam({"lr": 0.05, "lrd": 0.99}), guide.elbo())
        for _ in range(120):
            svi.step()
        loss = np.mean([svi.evaluate_loss() for _ in range(100)])
    assert -0.05 < loss + total < 0.2
    assert float(guide.inclusion()[0]) == pytest.approx(structures.inclusion["x0", "x1"], abs=0.05)


def test_bad_input():
    with raises("conflict", "prior"):
        structure_model(TWO, prior="conjugate:1")
    with raises("conflict", "prior"):
        structure_model(TWO, prior=lambda h: DiaconisYlvisaker.uniform(h, 1.0))
    with raises("conflict", "prior"):
        structure_model(TWO, prior="none")
    with raises("wrong-type", "structure_prior"):
        structure_model(TWO, "unit")
    with raises("wrong-type", "partition"):
        structure_model(TWO, partition="exact")
    with raises("wrong-type", None):
        structure_model([[0, 1]])
    with raises("other-domain", "data"):
        structure_model(TWO, StructurePrior(THREE.domain))
    with raises("out-of-range", "data"):
        structure_model(Observations.from_table(TWO.domain, weights=TWO.table() / 2))
    with raises("missing-cells"):
        structure_model(Observations.from_tensor(torch.tensor([[0, -1]]), TWO.domain))
    with raises("wrong-shape", "prior"):
        structure_model(TWO, prior=torch.distributions.Normal(torch.zeros(2), 1.0))
