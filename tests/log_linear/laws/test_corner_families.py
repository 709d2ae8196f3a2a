"""Laws of corner tables on any collection of sets, against sums over all states that are written here."""

import io
import math
import pickle

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from law_models import corner_indicators
from pyro.infer import MCMC, NUTS, SVI, Trace_ELBO
from pyro.infer.autoguide import AutoNormal
from torch.distributions import kl_divergence

from pyro_hoim import Domain, InputError, InteractionHypergraph, sample_posterior
from pyro_hoim.inference import NUTSSettings
from pyro_hoim.log_linear import (
    AnnealedImportance,
    Enumeration,
    GibbsChains,
    HierarchicalLogLinear,
    LogLinearEnergy,
    LogLinearStatistics,
    MatrixEnumeration,
    VariableElimination,
    log_partition,
    parametrization,
    statistics_of,
)
from pyro_hoim.testing import assert_close, assert_exact_law, count_states, raises

BINARY, MIXED = [2] * 5, [2, 3, 2, 4]


def collection(cards, seed, number=6):
    """Random sets of variables, in corner coding; seldom closed under subsets."""
    rng = np.random.default_rng(seed)
    domain = Domain.from_cardinalities(cards)
    sizes = rng.integers(1, len(cards) + 1, number)
    edges = [rng.choice(domain.names, size, replace=False).tolist() for size in sizes]
    edges.append([domain.names[0], domain.names[-1], domain.names[1]])
    return InteractionHypergraph(domain, edges, hierarchical=False, coding="corner")


def draw(graph, *batch, seed=0):
    rng = np.random.default_rng(seed)
    return torch.from_numpy(rng.normal(size=(*batch, graph.num_parameters)))


def exponents(graph, theta):
    """Sum of the theta^S at the sets S none of whose levels is 0, of every state: (*cardinalities)."""
    return (corner_indicators(graph) @ np.asarray(theta)).reshape(graph.domain.cardinalities)


def log_probs(graph, theta):
    table = exponents(graph, theta)
    return table - np.log(np.exp(table).sum())


CASES = [collection(cards, seed) for cards in (BINARY, MIXED) for seed in range(4)]


@pytest.mark.parametrize("graph", CASES, ids=lambda g: f"{g.domain.cardinalities} {len(g)}")
def test_law_and_marginal_laws_are_those_of_the_definition(graph):
    assert not graph.is_hierarchical and graph.coding == "corner"
    theta = draw(graph)
    law = HierarchicalLogLinear(graph, theta)
    expected = log_probs(graph, theta)
    assert_close(law.log_prob_table, expected, absolute=1e-12)
    states = law.enumerate_support()
    assert_close(law.log_prob(states), expected.ravel(), absolute=1e-12)
    assert law.coding == "corner" and law.hypergraph == graph
    probs = np.exp(expected)
    assert_close(law.entropy(), -(probs * expected).sum(), relative=1e-12)
    assert expected[tuple(law.mode.tolist())] == expected.max()
    for edge, where in graph.term_slices.items():
        others = tuple(i for i, name in enumerate(graph.domain.names) if name not in edge)
        assert_close(law.eta[where], probs.sum(others).ravel(), absolute=1e-12)
    # Control: balanced tables on the same sets are another family.
    other = HierarchicalLogLinear(graph.in_coding("balanced"), theta)
    assert float((other.log_prob_table - law.log_prob_table).abs().max()) > 0.05
    theta, names = draw(graph), graph.domain.names
    law = HierarchicalLogLinear(graph, theta)
    probs = np.exp(log_probs(graph, theta))
    for kept in (names[:2], names[1:], (names[0], names[-1])):
        gone = tuple(i for i, name in enumerate(names) if name not in kept)
        assert_close(law.marginal(kept).probs, probs.sum(gone), relative=1e-10)


def test_the_coding_of_theta_says_the_family():
    graph = CASES[0]
    plain, theta = graph.in_coding("balanced"), draw(graph)
    assert plain != graph and plain.coding == "balanced" and plain.in_coding("corner") == graph
    assert HierarchicalLogLinear(plain, theta, coding="corner").hypergraph == graph
    assert LogLinearEnergy.from_theta(plain, theta, "corner").hypergraph == graph
    for coding in ("free", "balanced"):
        with raises("no-method"):
            HierarchicalLogLinear(graph, theta, coding=coding)
    full = graph.closure()
    assert full.coding == "balanced" and full.in_coding("corner") is full


@pytest.mark.parametrize("backend", [MatrixEnumeration(), Enumeration(), VariableElimination()], ids=repr)
@pytest.mark.parametrize("graph", [CASES[1], CASES[5]], ids=["binary", "levels"])
def test_backends_agree_with_the_definition(graph, backend):
    theta = draw(graph, 2).requires_grad_()
    tables = [exponents(graph, t) for t in theta.detach()]
    law = HierarchicalLogLinear(graph, theta, partition=backend)
    found = law.log_partition
    assert found.coding == "corner"
    assert_close(found.value, [np.log(np.exp(t).sum()) for t in tables], relative=1e-12)
    (gradient,) = torch.autograd.grad(found.value.sum(), theta)
    step = 1e-5
    for k in (0, graph.num_parameters - 1):
        moved = [theta.detach()[0] + sign * step * torch.eye(graph.num_parameters)[k].double() for sign in (1, -1)]
        up, down = (np.log(np.exp(exponents(graph, t)).sum()) for t in moved)
        assert_close(gradient[0, k], (up - down) / (2 * step), absolute=1e-8)
    assert law.mode.shape == (2, len(graph.domain))


@pytest.mark.parametrize("graph", [CASES[2], CASES[6]], ids=["binary", "levels"])
@pytest.mark.parametrize("level", [0, 1])
def test_conditional_law_is_a_corner_law_of_what_is_left(graph, level):
    theta = draw(graph)
    first, last = graph.domain.names[0], graph.domain.names[-1]
    law = HierarchicalLogLinear(graph, theta)
    found = law.condition({first: level, last: level})
    table = np.moveaxis(log_probs(graph, theta), -1, 1)[level, level]
    assert_close(found.log_prob_table, table - np.log(np.exp(table).sum()), absolute=1e-12)
    assert found.coding == "corner"
    assert found.hypergraph.is_hierarchical or found.hypergraph.coding == "corner"
    assert set(found.hypergraph.edges) == {tuple(n for n in e if n not in (first, last)) for e in graph.edges} - {()}
    rows = torch.tensor([0, 1, 1])
    several = law.condition({first: rows})
    for row, one in enumerate(rows):
        assert_close(several.log_prob_table[row], law.condition({first: int(one)}).log_prob_table, absolute=1e-12)


def test_divergence_between_families():
    graph, theta = CASES[3], draw(CASES[3])
    corner = HierarchicalLogLinear(graph, theta)
    other = HierarchicalLogLinear(graph.in_coding("balanced"), draw(graph, seed=1))
    for p, q in ((corner, other), (other, corner)):
        a, b = p.log_prob_table, q.log_prob_table
        assert_close(kl_divergence(p, q), (a.exp() * (a - b)).sum(), relative=1e-10)
    assert abs(float(kl_divergence(corner, HierarchicalLogLinear(graph, theta)))) < 1e-12


def test_copies_batches_and_single_precision():
    graph, theta = CASES[4], draw(CASES[4], 3)
    law = HierarchicalLogLinear(graph, theta)
    states = torch.from_numpy(np.argwhere(np.ones(graph.domain.cardinalities)))
    expected = np.stack([log_probs(graph, t).ravel() for t in theta], -1)
    assert_close(law.log_prob(states[:, None]), expected, absolute=1e-12)
    assert_close(law.expand([2, 3]).log_prob(states[:, None, None])[:, 1], expected, absolute=1e-12)
    again = pickle.load(io.BytesIO(pickle.dumps(law)))
    assert again.hypergraph == graph and again.hypergraph.coding == "corner"
    assert_close(again.log_prob(states[:, None]), expected, absolute=1e-12)
    single = HierarchicalLogLinear(graph, theta.float())
    assert single.log_prob(states[:, None]).dtype == torch.float32
    assert_close(single.log_prob(states[:, None]).double(), expected, absolute=1e-4)


def test_statistics_of_rows():
    graph, theta = CASES[5], draw(CASES[5])
    law = HierarchicalLogLinear(graph, theta)
    torch.manual_seed(1)
    rows = law.sample((40,))
    counted = LogLinearStatistics(graph, theta, 40)
    found = counted.log_prob(statistics_of(rows, graph))
    assert_close(found, sum(log_probs(graph, theta)[tuple(row)] for row in rows.tolist()), relative=1e-12)
    assert counted.coding == "corner"


@pytest.mark.parametrize(
    ("engine", "cards"),
    [("products", [2] * 4), ("tables", [2] * 4), ("tables", [2, 3, 4]), ("torch", [3, 2, 2])],
    ids=str,
)
def test_chains_from_the_exact_law_stay_there(engine, cards):
    graph = collection(cards, 8)
    theta = draw(graph, seed=3)
    law = HierarchicalLogLinear(graph, theta)
    torch.manual_seed(5)
    start = law.sample((20_000,))
    model = LogLinearEnergy.from_theta(graph, theta)
    chains = GibbsChains(model, len(start), init=start, seed=2, engine=engine)
    chains.sweep(1)
    assert_exact_law(count_states(chains.states, graph.domain.cardinalities), law.probs.flatten())
    # Control: chains of balanced tables on the same sets leave the law.
    wrong = GibbsChains(LogLinearEnergy.from_theta(graph.in_coding("balanced"), theta), len(start), init=start, seed=2)
    wrong.sweep(1)
    with pytest.raises(AssertionError):
        assert_exact_law(count_states(wrong.states, graph.domain.cardinalities), law.probs.flatten())


def test_annealed_estimates_agree_with_the_exact_sum():
    graph = collection([2] * 6, 4, 8)
    theta = draw(graph, 3, seed=2)
    exact = [np.log(np.exp(exponents(graph, t)).sum()) for t in theta]
    law = HierarchicalLogLinear(
        graph, theta, partition=AnnealedImportance(num_chains=512, num_temperatures=100, seed=3)
    )
    found = law.log_partition
    assert found.coding == "corner" and found.kind != "exact"
    z = (found.value - torch.tensor(exact)) / found.std_error
    assert float(z.abs().max()) < 5
    psi, mean = law.log_partition_in("corner"), law.log_partition_in("balanced")
    assert torch.equal(psi.value, found.value)
    constant = torch.tensor([exponents(graph, t).mean() for t in theta])
    assert_close(found.value - mean.value, constant, absolute=1e-12)
    assert_close(mean.upper - mean.lower, found.upper - found.lower, absolute=1e-12)
    assert torch.equal(torch.as_tensor(mean.std_error), torch.as_tensor(found.std_error))
    assert found.sandwich is not None and mean.sandwich is not None
    assert_close(mean.sandwich.gap, found.sandwich.gap, absolute=1e-12)
    assert_close(found.sandwich.forward - mean.sandwich.forward, constant, absolute=1e-12)
    # Control: the balanced number is not the corner one.
    assert float(((mean.value - torch.tensor(exact)) / found.std_error).abs().max()) > 5


# Log Z in a coding


@pytest.mark.parametrize("graph", [*CASES[::3], *(g.closure() for g in CASES[::3])], ids=repr)
def test_log_partition_in_every_coding(graph):
    theta = draw(graph, 2).requires_grad_()
    model = LogLinearEnergy.from_theta(graph, theta, "corner")
    log_p = torch.from_numpy(np.stack([log_probs(graph, t) for t in theta.detach()]))
    psi = log_partition(model, "corner")
    assert psi.coding == "corner"
    assert_close(psi.value, -log_p.flatten(1)[:, 0], relative=1e-12)
    balanced = log_partition(model, "free")
    assert balanced.coding == "balanced" == log_partition(model, "balanced").coding
    assert_close(balanced.value, -log_p.flatten(1).mean(1), relative=1e-12)
    assert_close(log_partition(model).value, (psi if graph.coding == "corner" else balanced).value, relative=1e-12)
    for cell in (psi.lower, psi.upper):
        assert_close(cell, psi.value, absolute=0)
    (gradient,) = torch.autograd.grad(psi.value.sum(), theta)
    eta = HierarchicalLogLinear(graph, theta.detach(), coding="corner").eta
    assert_close(gradient, parametrization(graph).corner_statistics(eta), absolute=1e-10)
    with raises("unknown-choice", "coding"):
        log_partition(model, "effects")


def test_log_partition_of_tables_that_are_not_reduced():
    graph = CASES[4].closure()
    rng = np.random.default_rng(1)
    model = LogLinearEnergy(graph, torch.from_numpy(rng.normal(size=graph.num_terms)))
    log_p = -model.energy(torch.from_numpy(np.argwhere(np.ones(graph.domain.cardinalities))))
    log_p = log_p - log_p.logsumexp(0)
    assert_close(log_partition(model, "corner").value, -log_p[0], relative=1e-12)
    assert_close(log_partition(model).value, -log_p.mean(), relative=1e-12)


# The way to the closure, and what is refused


def test_lifted_to_the_closure_the_law_is_the_same():
    graph, theta = CASES[6], draw(CASES[6])
    lifted = LogLinearEnergy.from_theta(graph, theta).on_closure()
    assert lifted.hypergraph == graph.closure()
    law = HierarchicalLogLinear.from_tables(lifted.hypergraph, lifted.tables)
    assert_close(law.log_prob_table, log_probs(graph, theta), absolute=1e-12)
    codings = parametrization(graph)
    assert_close(codings.from_tables(codings.corner_tables(theta)), theta, absolute=0)


def test_conversions_that_leave_the_family_are_refused():
    graph = CASES[0]
    codings, theta = parametrization(graph), draw(graph)
    for call in (
        lambda: codings.convert(theta, "corner", "free"),
        lambda: codings.convert(theta, "corner", "balanced"),
        lambda: codings.to_tables(theta, "free"),
        lambda: codings.free_statistics(codings.corner_tables(theta)),
        lambda: codings.purify(codings.corner_tables(theta)),
        lambda: codings.num("balanced"),
        lambda: parametrization(graph.in_coding("balanced")).convert(theta, "free", "corner"),
    ):
        with pytest.raises(InputError, match=r"closure of a collection that is not hierarchical.*closure\(\)"):
            call()
    with pytest.raises(InputError, match=r"corner tables \(zero where a level is 0\).*at a level 0.*closure"):
        codings.from_tables(torch.ones(graph.num_terms))
    with raises("unknown-choice", "coding"):
        graph.in_coding("effects")
    assert_close(codings.convert(theta, "corner", "corner"), theta, absolute=0)


# As a Pyro site


def test_a_posterior_over_such_a_law_by_nuts_and_svi():
    """With 2,000 rows the posterior is near a normal law about the estimate, whose score is zero."""
    domain = Domain.from_cardinalities([2, 2, 3])
    edges = [["x0", "x1"], ["x1", "x2"], ["x0", "x1", "x2"]]
    graph = InteractionHypergraph(domain, edges, hierarchical=False, coding="corner")
    truth = torch.tensor([0.8, -0.6, 0.5, 1.0, -0.7], dtype=torch.float64)
    pyro.set_rng_seed(4)
    counts = statistics_of(HierarchicalLogLinear(graph, truth).sample((2000,)), graph)

    def program():
        theta = pyro.sample("theta", dist.Normal(torch.zeros(5).double(), 2.0).to_event(1))
        pyro.sample("rows", LogLinearStatistics(graph, theta, 2000, coding="corner"), obs=counts)

    mcmc = MCMC(NUTS(program), num_samples=60, warmup_steps=40, disable_progbar=True)
    mcmc.run()
    drawn = mcmc.get_samples()["theta"]
    indicators = corner_indicators(graph)
    observed = parametrization(graph).corner_statistics(counts).numpy()
    mode = np.zeros(5)
    for _ in range(30):  # Newton's method on the definition
        probs = np.exp(indicators @ mode)
        probs /= probs.sum()
        mean = probs @ indicators
        information = 2000 * ((indicators - mean) * probs[:, None]).T @ (indicators - mean) + np.eye(5) / 4
        mode += np.linalg.solve(information, observed - 2000 * mean - mode / 4)
    deviation = np.sqrt(np.diag(np.linalg.inv(information)))
    assert (np.abs(drawn.mean(0).numpy() - mode) < 0.5 * deviation).all()
    assert (np.abs(np.log(drawn.std(0).numpy() / deviation)) < 0.5).all()
    assert (np.abs(mode - np.zeros(5)) > 2 * deviation).any()  # control: the prior's mean is far
    drawn = sample_posterior(
        graph, counts, 2.0, NUTSSettings(num_chains=1, num_draws=60, burn_in=10), total_count=2000
    ).theta[0]
    assert (np.abs(drawn.mean(0).numpy() - mode) < 0.5 * deviation).all()
    guide = AutoNormal(program, init_scale=0.05)
    svi = SVI(program, guide, pyro.optim.Adam({"lr": 0.1}), Trace_ELBO())
    pyro.clear_param_store()
    losses = [svi.step() for _ in range(40)]
    assert math.isfinite(losses[-1]) and losses[-1] < losses[0]
    assert (np.abs(guide.median()["theta"].detach().numpy() - mode) < 3 * deviation).all()
