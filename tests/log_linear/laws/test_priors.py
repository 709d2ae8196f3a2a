"""The conjugate prior against closed forms, gamma functions, quadrature and enumeration; natural parameters."""

import itertools
import math
import pickle

import networkx as nx
import numpy as np
import pyro
import pytest
import torch
from law_models import flat, table_of, theta_of
from pyro.infer import MCMC, NUTS, SVI, Predictive, Trace_ELBO
from pyro.infer.autoguide import AutoLaplaceApproximation
from pyro.ops.stats import effective_sample_size
from scipy import optimize, special, stats

from pyro_hoim import Domain, InputError, InteractionHypergraph, IntractableError, Observations
from pyro_hoim.errors import MissingDataError
from pyro_hoim.log_linear import (
    Auto,
    DiaconisYlvisaker,
    Enumeration,
    LogLinearStatistics,
    VariableElimination,
    parametrization,
)
from pyro_hoim.log_linear.laws import hyper_dirichlet, natural_parameters, priors
from pyro_hoim.log_linear.laws.natural_parameters import (
    consistent_margins,
    fisher_information,
    interior_margin,
    solve_natural_parameters,
)
from pyro_hoim.testing import (
    FALSE_ALARM_RATE,
    exact_covariance,
    exact_log_partition,
    exact_statistics,
    exact_table,
    raises,
)

from support.calls import noted

Double = torch.float64


def graph(cards, *edges):
    """Closure of edges written as strings of variable letters."""
    names = "abcdefghijklm"[: len(cards)]
    domain = Domain.from_cardinalities(dict(zip(names, cards, strict=True)))
    return InteractionHypergraph(domain, map(tuple, edges), closure=True)


SATURATED = graph([2, 3], "ab")
CHAIN = graph([2, 3, 2], "ab", "bc")
CYCLE = graph([2, 2, 3], "ab", "ac", "bc")  # graphical closure is the triangle: no closed form


def random_law(hypergraph, seed):
    """Table of a random member of the family."""
    return table_of(hypergraph, theta_of(hypergraph, seed=seed, scale=0.6))


def counts_of(hypergraph, seed, total):
    law = random_law(hypergraph, seed)
    return np.random.default_rng(seed).multinomial(total, law.ravel()).reshape(law.shape).astype(float)


# Conjugate prior: density


@pytest.mark.parametrize("hypergraph", [SATURATED, CHAIN, CYCLE], ids=["saturated", "chain", "cycle"])
def test_log_prob_equals_enumeration(hypergraph):
    s = flat(hypergraph, random_law(hypergraph, 2))
    prior = DiaconisYlvisaker(hypergraph, s, 3.5)
    theta = theta_of(hypergraph, 4, seed=3)
    tables = parametrization(hypergraph).to_tables(theta)
    expected = 3.5 * ((tables @ s).numpy() - exact_log_partition(hypergraph, tables))
    if not prior.unnormalised:
        expected = expected - prior.log_normaliser.item()
    np.testing.assert_allclose(prior.log_prob(theta).numpy(), expected, rtol=1e-10)
    assert prior.unnormalised == (hypergraph is CYCLE) and prior.sample_is_exact == (hypergraph is not CYCLE)


@pytest.mark.parametrize("hypergraph", [SATURATED, CHAIN, CYCLE], ids=["saturated", "chain", "cycle"])
def test_prior_times_likelihood_is_proportional_to_the_posterior(hypergraph):
    prior = DiaconisYlvisaker(hypergraph, flat(hypergraph, random_law(hypergraph, 4)), 1.5)
    table = counts_of(hypergraph, 5, 40)
    data = flat(hypergraph, table)
    posterior = prior.posterior(data, 40)
    expected = (1.5 * prior.mean_statistics + data) / 41.5
    torch.testing.assert_close(posterior.mean_statistics, expected, rtol=1e-12, atol=0)
    assert posterior.prior_sample_size.item() == 41.5
    theta = theta_of(hypergraph, 4, seed=6)
    likelihood = LogLinearStatistics(hypergraph, theta, 40).log_prob(data)
    constant = prior.log_prob(theta) + likelihood - posterior.log_prob(theta)
    torch.testing.assert_close(constant, constant[:1].expand(4), rtol=1e-10, atol=1e-10)
    if not prior.unnormalised:
        marginal = prior.log_marginal_likelihood(data, 40)
        torch.testing.assert_close(constant[0], marginal, rtol=1e-10, atol=1e-10)


def test_posterior_of_observations_equals_that_of_counts():
    table = counts_of(CHAIN, 7, 25)
    observations = Observations.from_table(CHAIN.domain, table)
    prior = DiaconisYlvisaker.uniform(CHAIN, 2.0, dtype=Double)
    by_counts = prior.posterior(flat(CHAIN, table), 25)
    by_rows = prior.posterior(observations)
    torch.testing.assert_close(by_rows.mean_statistics, by_counts.mean_statistics, rtol=1e-12, atol=0)
    values = prior.log_marginal_likelihood(observations), prior.log_marginal_likelihood(flat(CHAIN, table), 25)
    assert values[0].item() == pytest.approx(values[1].item(), rel=1e-12)


# Closed forms


@pytest.mark.parametrize(
    ("hypergraph", "cliques", "separators"), [(SATURATED, [()], []), (CHAIN, [(2,), (0,)], [(0, 2)])]
)
def test_marginal_likelihood_is_hyper_dirichlet(hypergraph, cliques, separators):
    """Products of Dirichlet multinomials of cliques over those of separators, each given by the axes summed out."""
    law, counts, size = random_law(hypergraph, 10), counts_of(hypergraph, 11, 30), 2.2

    def term(axes):
        alpha, n = size * law.sum(axes), counts.sum(axes)
        change = special.gammaln(alpha + n).sum() - special.gammaln(alpha).sum()
        return change + special.gammaln(alpha.sum()) - special.gammaln((alpha + n).sum())

    wrong = sum(map(term, cliques))
    expected = wrong - sum(map(term, separators))
    prior = DiaconisYlvisaker(hypergraph, flat(hypergraph, law), size)
    value = prior.log_marginal_likelihood(flat(hypergraph, counts), 30).item()
    assert value == pytest.approx(expected, rel=1e-8)
    assert not separators or abs(value - wrong) > 1.0  # control: ignoring the separator is another law


@pytest.mark.parametrize("hypergraph", [SATURATED, CHAIN], ids=["saturated", "chain"])
def test_marginal_likelihood_is_the_product_of_predictive_probabilities(hypergraph):
    """Row after row: p(next row) is the law with the current mean statistics, as E[p(x)] factorises over the tree."""
    prior = DiaconisYlvisaker(hypergraph, flat(hypergraph, random_law(hypergraph, 12)), 1.3)
    rows = np.argwhere(np.ones(hypergraph.domain.cardinalities))[[0, 3, 3, 5, 1, 0]]
    current, total = prior, 0.0
    for row in rows:
        one = np.zeros(hypergraph.domain.cardinalities)
        one[tuple(row)] = 1.0
        total += exact_table(hypergraph, parametrization(hypergraph).to_tables(current.mode))[tuple(row)]
        current = current.posterior(flat(hypergraph, one), 1)
    whole = np.zeros(hypergraph.domain.cardinalities)
    np.add.at(whole, tuple(rows.T), 1.0)
    value = prior.log_marginal_likelihood(flat(hypergraph, whole), len(rows))
    assert value.item() == pytest.approx(total, rel=1e-8)


def test_saturated_mean_is_that_of_the_dirichlet():
    law, size = random_law(SATURATED, 13), 1.7
    prior = DiaconisYlvisaker(SATURATED, flat(SATURATED, law), size)
    expected = special.digamma(size * law.ravel())
    shown = exact_table(SATURATED, parametrization(SATURATED).to_tables(prior.mean), normalised=False).ravel()
    np.testing.assert_allclose(shown - shown.mean(), expected - expected.mean(), rtol=1e-8, atol=1e-10)


def test_marginal_likelihood_without_closed_form_is_refused():
    prior = DiaconisYlvisaker.uniform(CYCLE, 1.0, dtype=Double)
    data = flat(CYCLE, counts_of(CYCLE, 1, 3))
    for quantity in (lambda: prior.log_marginal_likelihood(data, 3), lambda: prior.mean):
        with pytest.raises(IntractableError, match="decomposable"):
            quantity()


# Mode and samples


@pytest.mark.parametrize("hypergraph", [SATURATED, CHAIN, CYCLE], ids=["saturated", "chain", "cycle"])
def test_mode_solves_the_mean_equation(hypergraph):
    s = flat(hypergraph, random_law(hypergraph, 17))
    prior = DiaconisYlvisaker(hypergraph, s, 2.0)
    law = exact_table(hypergraph, parametrization(hypergraph).to_tables(prior.mode))
    np.testing.assert_allclose(exact_statistics(hypergraph, law), s.numpy(), rtol=1e-8, atol=1e-10)
    theta = prior.mode.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(prior.log_prob(theta), theta)
    assert float(gradient.abs().max()) < 1e-8
    assert bool((prior.log_prob(prior.mode + 0.1 * theta_of(hypergraph, 4, seed=1)) < prior.log_prob(prior.mode)).all())


def test_exact_samples_have_the_stated_mean():
    """E[eta] = s and E[theta] = mean: every coordinate's z score at the stated rate; a shifted mean must fail."""
    prior = DiaconisYlvisaker(CHAIN, flat(CHAIN, random_law(CHAIN, 18)), 6.0)
    torch.manual_seed(5)
    theta = prior.sample((40_000,))
    assert theta.shape == (40_000, CHAIN.num_parameters)
    eta = torch.from_numpy(exact_statistics(CHAIN, exact_table(CHAIN, parametrization(CHAIN).to_tables(theta))))
    threshold = stats.norm.isf(FALSE_ALARM_RATE / 2 / (eta.shape[1] + theta.shape[1]))
    for values, mean in ((eta, prior.mean_statistics), (theta, prior.mean)):
        error = values.std(0) / math.sqrt(len(values))
        assert float(((values.mean(0) - mean) / error).abs().max()) < threshold
        assert float(((values.mean(0) - mean * 1.05) / error).abs().max()) > threshold


def test_proposal_is_normal_at_the_mode():
    prior = DiaconisYlvisaker(CYCLE, flat(CYCLE, random_law(CYCLE, 19)), 3.0)
    codings = parametrization(CYCLE)
    torch.manual_seed(6)
    theta = prior.sample((50_000,))
    basis = codings.to_tables(torch.eye(CYCLE.num_parameters, dtype=Double)).numpy()
    information = basis @ exact_covariance(CYCLE, exact_table(CYCLE, codings.to_tables(prior.mode))) @ basis.T
    # Whitened by the oracle's factor the draws are standard normal.
    factor = np.linalg.cholesky(3.0 * information)
    white = (theta - prior.mode).numpy() @ factor
    p_values = [stats.kstest(column, stats.norm.cdf, method="asymp").pvalue for column in white.T]
    assert min(p_values) > FALSE_ALARM_RATE / len(p_values)
    control = [stats.kstest(1.1 * column, stats.norm.cdf, method="asymp").pvalue for column in white.T]
    assert min(control) < FALSE_ALARM_RATE / len(p_values)


def test_seeds_make_samples_reproducible():
    for hypergraph in (CHAIN, CYCLE):
        prior = DiaconisYlvisaker.uniform(hypergraph, 2.0, dtype=Double)
        pyro.set_rng_seed(1)
        first = prior.sample((3,))
        pyro.set_rng_seed(1)
        assert torch.equal(first, prior.sample((3,)))


# Propriety and other bad input


def no_three_way_boundary():
    """Positive margins of a 2^3 table that no positive table has: two opposite cells are zero (Haberman)."""
    table = np.ones((2, 2, 2)) / 6
    table[0, 0, 0] = table[1, 1, 1] = 0
    return flat(graph([2, 2, 2], "ab", "ac", "bc"), table)


def test_improper_priors_and_margins_of_no_law_are_refused():
    pairs = graph([2, 2, 2], "ab", "ac", "bc")
    boundary = no_three_way_boundary()
    assert bool((boundary > 0).all())
    with pytest.raises(InputError, match=r"interior.*has a zero"):
        DiaconisYlvisaker(pairs, boundary, 1.0)
    inside = 0.99 * boundary + 0.01 * DiaconisYlvisaker.uniform(pairs, 1.0, dtype=Double).mean_statistics
    assert DiaconisYlvisaker(pairs, inside, 1.0).is_proper is True
    # The same margins are harmless where the pair (b, c) is not modelled.
    chain = graph([2, 2, 2], "ab", "ac")
    assert DiaconisYlvisaker(chain, boundary[: chain.num_terms], 1.0).is_proper is True
    zero = np.array([[0.5, 0.0, 0.1], [0.2, 0.1, 0.1]])
    with pytest.raises(InputError, match="a:b has probability zero"):
        DiaconisYlvisaker(SATURATED, flat(SATURATED, zero), 1.0)
    for size in (0.0, -1.0):
        with raises("out-of-range", "prior_sample_size"):
            DiaconisYlvisaker.uniform(SATURATED, size)
    # Pairwise consistent margins outside the polytope: three variables that all disagree pairwise.
    disagree = torch.tensor([0.02, 0.48, 0.48, 0.02], dtype=Double)
    s = torch.cat([torch.full((6,), 0.5, dtype=Double), disagree, disagree, disagree])
    with pytest.raises(InputError, match="no table has these margins"):
        DiaconisYlvisaker(pairs, s, 1.0)


def test_single_precision_is_no_contradiction():
    """Margins that agree up to rounding are interior, whatever the law; boundary and outside are still refused."""
    pairs = graph([3, 3, 2], "ab", "ac", "bc")
    for seed in range(10):
        s = flat(pairs, random_law(pairs, 100 + seed)).float()
        prior = DiaconisYlvisaker(pairs, s, 1.0)
        assert prior.is_proper is True and prior.mode.dtype == torch.float32
        law = exact_table(pairs, parametrization(pairs).to_tables(prior.mode.double()))
        np.testing.assert_allclose(exact_statistics(pairs, law), s.numpy(), rtol=0, atol=1e-5)
    binary = graph([2, 2, 2], "ab", "ac", "bc")
    boundary = no_three_way_boundary()
    with pytest.raises(InputError, match=r"has a zero to the precision of torch.float32"):
        DiaconisYlvisaker(binary, boundary.float(), 1.0)
    outside = 1.01 * boundary - 0.01 * DiaconisYlvisaker.uniform(binary, 1.0, dtype=Double).mean_statistics
    with pytest.raises(InputError, match="no table has these margins"):
        DiaconisYlvisaker(binary, outside.float(), 1.0)


def test_propriety_is_unknown_beyond_the_linear_program_and_where_that_fails(monkeypatch):
    names = "abcdefghijklm"
    cycle = graph([2] * 13, *(names[i] + names[(i + 1) % 13] for i in range(13)))
    uniform = DiaconisYlvisaker.uniform(cycle, 1.0, dtype=Double)
    assert uniform.is_proper is True
    given = DiaconisYlvisaker(cycle, uniform.mean_statistics, 1.0)
    assert given.is_proper is None and given.posterior(2 * given.mean_statistics, 2).is_proper is None
    assert float(given.mode.abs().max()) < 1e-8
    gave_up = optimize.OptimizeResult(status=4, x=None)
    monkeypatch.setattr(optimize, "linprog", lambda *_, **__: gave_up)
    assert DiaconisYlvisaker(CYCLE, flat(CYCLE, random_law(CYCLE, 3)), 1.0).is_proper is None


def test_inconsistent_arguments_are_refused():
    s = DiaconisYlvisaker.uniform(CHAIN, 1.0, dtype=Double).mean_statistics
    shifted, wrong = s.clone(), s.clone()
    shifted[0], shifted[1], wrong[4] = 0.6, 0.4, math.inf
    with pytest.raises(InputError, match="sums to 2, not 1"):
        DiaconisYlvisaker(CHAIN, torch.cat([2 * s[:2], s[2:]]), 1.0)
    with pytest.raises(InputError, match=r"tables of a and a:b that differ by 0.1 over a"):
        DiaconisYlvisaker(CHAIN, shifted, 1.0)
    for graph, mean, size, code, argument in (
        (CHAIN, s[:3], 1.0, "wrong-shape", "mean_statistics"),
        (CHAIN, wrong, 1.0, "not-finite", "mean_statistics"),
        (CHAIN, wrong.nan_to_num(posinf=math.nan), 1.0, "not-finite", "mean_statistics"),
        (CHAIN, s, None, "wrong-type", "prior_sample_size"),
        (CHAIN, s, math.nan, "not-finite", "prior_sample_size"),
        (CHAIN, s, math.inf, "not-finite", "prior_sample_size"),
        (CHAIN, torch.ones(CHAIN.num_terms, dtype=torch.long), 1.0, "wrong-type", "mean_statistics"),
        ("a*b", s, 1.0, "wrong-type", "hypergraph"),
    ):
        with raises(code, argument):
            DiaconisYlvisaker(graph, mean, size)


def test_bad_data_are_refused():
    prior = DiaconisYlvisaker.uniform(CHAIN, 1.0, dtype=Double)
    counts = flat(CHAIN, counts_of(CHAIN, 1, 6))
    complete = Observations.from_table(CHAIN.domain, counts_of(CHAIN, 1, 6))
    with pytest.raises(MissingDataError):
        prior.posterior(Observations.from_tensor(torch.tensor([[0, -1, 1]]), CHAIN.domain))
    with pytest.raises(InputError, match="sums to 6, not 7"):
        prior.posterior(counts, 7)
    for data, total, code, argument in (
        (counts, None, "out-of-range", "total_count"),
        (-counts, -6, "out-of-range", "data"),
        (counts[:4], 6, "wrong-shape", "data"),
        ([1, 2], None, "wrong-type", "data"),
        (complete, 6, "conflict", "total_count"),
    ):
        with raises(code, argument):
            prior.posterior(data, total)
    with raises("other-domain", "observations"):
        DiaconisYlvisaker.uniform(SATURATED, 1.0).posterior(complete)
    for value, code in ((torch.full_like(prior.mode, math.nan), "not-finite"), (prior.mode[:3], "wrong-shape")):
        with raises(code, "value"):
            prior.log_prob(value)


# Pyro's contract


@pytest.mark.parametrize("hypergraph", [CHAIN, CYCLE], ids=["chain", "cycle"])
def test_batches_and_expansion(hypergraph):
    s = torch.stack([flat(hypergraph, random_law(hypergraph, i)) for i in range(3)])
    n0 = torch.tensor([[1.0], [2.5]], dtype=Double)
    prior = DiaconisYlvisaker(hypergraph, s, n0)
    assert prior.batch_shape == (2, 3) and prior.event_shape == (hypergraph.num_parameters,)
    assert prior.infer_shapes(hypergraph=hypergraph, mean_statistics=s.shape, prior_sample_size=n0.shape) == (
        prior.batch_shape,
        prior.event_shape,
    )
    theta = theta_of(hypergraph, 24, seed=8).reshape(4, 2, 3, -1)
    value = prior.log_prob(theta)
    assert value.shape == (4, 2, 3)
    for i, j in itertools.product(range(2), range(3)):
        single = DiaconisYlvisaker(hypergraph, s[j], n0[i, 0])
        torch.testing.assert_close(single.log_prob(theta[:, i, j]), value[:, i, j], rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(single.mode, prior.mode[i, j], rtol=1e-10, atol=1e-12)
    assert prior.sample((5,)).shape == (5, 2, 3, hypergraph.num_parameters)
    wide = prior.expand((7, 2, 3))
    assert wide.batch_shape == (7, 2, 3) and type(wide) is DiaconisYlvisaker
    torch.testing.assert_close(wide.log_prob(theta[:1]), value[:1].expand(7, 2, 3))
    assert wide.sample().shape == (7, 2, 3, hypergraph.num_parameters)
    again = pickle.loads(pickle.dumps(prior))
    torch.testing.assert_close(again.log_prob(theta), value, rtol=1e-12, atol=0)
    with pytest.raises(InputError, match="cannot be expanded"):
        prior.expand((2, 4))


def test_constants_are_found_once(monkeypatch):
    """The junction tree, log C and the mode are kept, also by expansion, until s changes in place or has a graph."""
    trees = noted(monkeypatch, nx, "maximum_spanning_tree")
    found = noted(monkeypatch, priors, "log_normaliser")
    chain = graph([2, 3, 2], "ab", "bc")
    s = flat(chain, random_law(chain, 24)).clone()
    prior = DiaconisYlvisaker(chain, s, 2.0)
    theta = theta_of(chain, 3, seed=10)
    with torch.inference_mode():
        first = prior.log_prob(theta)
    first = prior.log_prob(theta.clone().requires_grad_()).detach()
    found.clear()
    prior = DiaconisYlvisaker(chain, s, 2.0)
    assert torch.equal(prior.expand((3,)).log_prob(theta), first) and torch.equal(prior.log_prob(theta), first)
    assert len(trees) == len(found) == 1
    assert set(chain.__getstate__()) == {"domain", "edge_indices", "coding"}
    assert isinstance(chain.junction_tree(), tuple)
    assert prior.expand((3,)).mode.data_ptr() == prior.mode.data_ptr()
    s.copy_(flat(chain, random_law(chain, 25)))  # control: what is kept must follow a change
    changed = DiaconisYlvisaker(chain, s.clone(), 2.0)
    assert not torch.equal(prior.log_prob(theta), first)
    assert torch.equal(prior.log_prob(theta), changed.log_prob(theta)) and torch.equal(prior.mode, changed.mode)
    size = torch.tensor(2.0, dtype=Double, requires_grad=True)
    graphed = DiaconisYlvisaker(chain, s, size)
    slopes = [torch.autograd.grad(graphed.log_prob(theta).sum(), size)[0] for _ in range(2)]
    assert torch.equal(*slopes)


def test_proposal_is_found_once_for_all_expansions(monkeypatch):
    prior = DiaconisYlvisaker.uniform(CYCLE, 2.0, dtype=Double)
    solved = noted(monkeypatch, priors, "solve_natural_parameters")
    assert prior.expand((4,)).sample().shape == prior.expand((4,)).sample().shape == (4, CYCLE.num_parameters)
    assert len(solved) == 1


def test_another_backend_is_used():
    prior = DiaconisYlvisaker.uniform(CYCLE, 2.0, dtype=Double).with_partition(Enumeration(max_states=2))
    assert prior.is_proper is True and prior.partition == Enumeration(max_states=2)
    with pytest.raises(IntractableError, match="budget"):
        prior.log_prob(torch.zeros(CYCLE.num_parameters, dtype=Double))


def test_gradients():
    s = flat(CHAIN, random_law(CHAIN, 20)).requires_grad_()
    n0 = torch.tensor(2.0, dtype=Double, requires_grad=True)
    theta = theta_of(CHAIN, 1, seed=9)[0].requires_grad_()

    def density(value, size):
        return DiaconisYlvisaker(CHAIN, s, size).log_prob(value)

    assert torch.autograd.gradcheck(density, (theta, n0))
    assert torch.autograd.gradgradcheck(density, (theta, n0))


def test_single_precision_of_densities_and_marginal_likelihoods():
    prior = DiaconisYlvisaker.uniform(CHAIN, 2.0)
    value = prior.log_prob(torch.zeros(CHAIN.num_parameters))
    exact = DiaconisYlvisaker.uniform(CHAIN, 2.0, dtype=Double)
    reference = exact.log_prob(torch.zeros(CHAIN.num_parameters, dtype=Double)).item()
    assert value.dtype == prior.sample().dtype == prior.mode.dtype == torch.float32
    assert value.item() == pytest.approx(reference, rel=1e-5)
    double = prior.to(dtype=Double)
    assert double.mode.dtype == Double and double.is_proper is True
    assert double.log_prob(torch.zeros(CHAIN.num_parameters, dtype=Double)).item() == pytest.approx(reference, rel=1e-6)
    # The double-precision value rounded once, at N = 1,966; the difference of rounded constants is off by more.
    counts = flat(CHAIN, counts_of(CHAIN, 26, 1966))
    value = prior.log_marginal_likelihood(counts.float(), 1966)
    table = DiaconisYlvisaker.uniform(CHAIN, 2.0, dtype=Double).log_marginal_likelihood(counts, 1966)
    half_unit = np.spacing(np.float32(abs(table.item()))) / 2 + 1e-6  # and the rounding of s
    assert value.dtype == torch.float32 and abs(value.item() - table.item()) <= half_unit
    naive = prior.posterior(counts.float(), 1966).log_normaliser - prior.log_normaliser
    assert abs(naive.item() - table.item()) > half_unit


def test_variational_guides():
    """A guide needs the prior's support and a first value; the Laplace approximation finds the posterior's mode."""
    prior = DiaconisYlvisaker.uniform(CYCLE, 4.0, dtype=Double)
    data = flat(CYCLE, counts_of(CYCLE, 23, 30))

    def model():
        theta = pyro.sample("theta", prior)
        pyro.sample("rows", LogLinearStatistics(CYCLE, theta, 30), obs=data)

    pyro.clear_param_store()
    pyro.set_rng_seed(0)
    guide = AutoLaplaceApproximation(model)
    svi = SVI(model, guide, pyro.optim.Adam({"lr": 0.05}), Trace_ELBO())
    for _ in range(250):
        svi.step()
    torch.testing.assert_close(guide.loc.detach(), prior.posterior(data, 30).mode, rtol=0, atol=1e-3)


def test_prior_predictive_in_a_plate():
    prior = DiaconisYlvisaker.uniform(CHAIN, 2.0, dtype=Double)

    def model():
        with pyro.plate("groups", 3):
            theta = pyro.sample("theta", prior)
            pyro.sample("counts", LogLinearStatistics(CHAIN, theta, 10))

    pyro.set_rng_seed(0)
    draws = Predictive(model, num_samples=4)()
    assert draws["theta"].shape[-2:] == (3, CHAIN.num_parameters)
    assert draws["counts"].shape[-2:] == (3, CHAIN.num_terms)


def nuts_statistics(prior, data, total, seed):
    """Posterior mean of eta by NUTS and its Monte Carlo standard error."""
    hypergraph = prior.hypergraph

    def model():
        theta = pyro.sample("theta", prior)
        pyro.sample("rows", LogLinearStatistics(hypergraph, theta, total), obs=data)

    pyro.set_rng_seed(seed)
    mcmc = MCMC(NUTS(model, max_tree_depth=5), num_samples=200, warmup_steps=80, disable_progbar=True)
    mcmc.run()
    theta = mcmc.get_samples()["theta"]
    law = exact_table(hypergraph, parametrization(hypergraph).to_tables(theta))
    eta = torch.from_numpy(exact_statistics(hypergraph, law))
    size = effective_sample_size(eta.unsqueeze(0), chain_dim=0, sample_dim=1)
    return eta.mean(0), eta.std(0) / size.clamp(max=len(eta)).sqrt()


@pytest.mark.slow
@pytest.mark.parametrize("hypergraph", [CHAIN, CYCLE], ids=["chain", "cycle"])
def test_nuts_mean_of_eta_is_the_posterior_mean(hypergraph):
    """E[eta | data] = (n0 s + t) / (n0 + N), also where the prior's constant and exact draws are unknown."""
    prior = DiaconisYlvisaker(hypergraph, flat(hypergraph, random_law(hypergraph, 21)), 8.0)
    data = flat(hypergraph, counts_of(hypergraph, 22, 20))
    mean, error = nuts_statistics(prior, data, 20, seed=4)
    expected = prior.posterior(data, 20).mean_statistics
    assert float(((mean - expected) / error).abs().max()) < 4
    # Control: the posterior that forgets the prior's own size.
    assert float(((mean - data / 20) / error).abs().max()) > 4


# The hyper-Dirichlet closed forms


# Cardinalities, cliques in an order with the running-intersection property, and their separators.
CASES = {
    "one binary": ([2], [(0,)], []),
    "one of two": ([2, 3], [(1,)], []),
    "three levels": ([3], [(0,)], []),
    "saturated pair": ([2, 2], [(0, 1)], []),
    "saturated triple": ([2, 3, 2], [(0, 1, 2)], []),
    "independent": ([2, 3, 2], [(0,), (1,), (2,)], []),
    "chain": ([2, 3, 2], [(0, 1), (1, 2)], [(1,)]),
    "chain and free": ([2, 2, 3, 2], [(0, 1), (1, 2)], [(1,)]),
    "star": ([2, 2, 2, 3], [(0, 3), (1, 3), (2, 3)], [(3,), (3,)]),
    "two triangles": ([2, 2, 3, 2], [(0, 1, 2), (1, 2, 3)], [(1, 2)]),
    "two components": ([2, 3, 2, 2], [(0, 2), (1, 3)], []),
    "one-state variable": ([2, 1, 3], [(0, 1), (1, 2)], [(1,)]),
    "no edges": ([2, 3], [], []),
}


def make(case):
    cards, cliques, separators = CASES[case]
    domain = Domain.from_cardinalities(cards)
    return InteractionHypergraph(domain, [[f"x{i}" for i in c] for c in cliques], closure=True), cliques, separators


def pseudo_table(hypergraph, seed, size):
    """A decomposable law times ``size``, uniform over the variables in no edge."""
    return size * table_of(hypergraph, theta_of(hypergraph, seed=seed))


def margin(table, axes):
    return table.sum(axis=tuple(i for i in range(table.ndim) if i not in axes))


def log_densities(hypergraph, counts, sizes, theta):
    """Conjugate kernel by enumeration minus the closed-form constant, at each of some total pseudo-counts."""
    tables = parametrization(hypergraph).to_tables(theta)
    unnormalised = torch.from_numpy(exact_table(hypergraph, tables, normalised=False))
    log_z = torch.logsumexp(unnormalised.flatten(theta.dim() - 1), -1)
    log_c = [hyper_dirichlet.log_normaliser(hypergraph, counts, torch.tensor(n, dtype=torch.float64)) for n in sizes]
    return [((tables * counts).sum(-1) - n * log_z - c).numpy() for n, c in zip(sizes, log_c, strict=True)]


@pytest.mark.parametrize("case", CASES)
def test_jacobian_equals_the_determinant_of_the_coding_matrix(case):
    hypergraph, _, _ = make(case)
    matrix = parametrization(hypergraph).matrix("free", "corner")
    expected = torch.linalg.slogdet(matrix).logabsdet.item() if matrix.numel() else 0.0
    assert hyper_dirichlet.log_jacobian(hypergraph) == pytest.approx(expected, rel=1e-10, abs=1e-12)


@pytest.mark.parametrize("case", CASES)
def test_constant_equals_gamma_functions_of_cliques_and_separators(case):
    hypergraph, cliques, separators = make(case)
    size = 3.7
    table = pseudo_table(hypergraph, 1, size)

    def log_beta(axes):
        return special.gammaln(margin(table, axes)).sum() - special.gammaln(size)

    covered = {i for c in cliques for i in c}
    uncovered = sum(math.log(n) for i, n in enumerate(table.shape) if i not in covered)
    expected = sum(map(log_beta, cliques)) - sum(map(log_beta, separators)) - size * uncovered
    expected -= hyper_dirichlet.log_jacobian(hypergraph)
    total = torch.tensor(size, dtype=torch.float64)
    value = hyper_dirichlet.log_normaliser(hypergraph, flat(hypergraph, table), total)
    assert value.item() == pytest.approx(expected, rel=1e-10, abs=1e-10)


@pytest.mark.parametrize(
    "case", ["saturated pair", "saturated triple", "chain", "chain and free", "star", "two triangles", "two components"]
)
def test_density_equals_dirichlet_conditionals_with_jacobian(case):
    """Pointwise: product of Dirichlet densities of the conditional tables times the autograd Jacobian."""
    hypergraph, cliques, _ = make(case)
    size = 4.2
    table = pseudo_table(hypergraph, 3, size)
    codings = parametrization(hypergraph)

    def conditionals(theta):
        """Vectors p(residual | separator cell) with their Dirichlet parameters, cliques in order."""
        logits = torch.zeros(table.shape, dtype=torch.float64)
        for edge, part in codings.split(codings.to_tables(theta)).items():
            shape = [n if f"x{i}" in edge else 1 for i, n in enumerate(table.shape)]
            logits = logits + part.reshape(shape)
        probs = torch.softmax(logits.flatten(), 0).reshape(table.shape)
        vectors, seen = [], set[int]()
        for clique in cliques:
            others = [i for i in range(table.ndim) if i not in clique]
            joint = probs.sum(others) if others else probs
            alpha = margin(table, clique)
            given = [k for k, i in enumerate(clique) if i in seen]
            for cell in itertools.product(*(range(joint.shape[k]) for k in given)):
                index = [slice(None)] * joint.dim()
                for k, code in zip(given, cell, strict=True):
                    index[k] = code
                part = joint[tuple(index)].flatten()
                vectors.append((part / part.sum(), alpha[tuple(index)].ravel()))
            seen |= set(clique)
        return vectors

    theta = theta_of(hypergraph, seed=4)
    expected = sum(stats.dirichlet.logpdf(p.numpy() / p.numpy().sum(), alpha) for p, alpha in conditionals(theta))
    jacobian = torch.autograd.functional.jacobian(lambda t: torch.cat([p[:-1] for p, _ in conditionals(t)]), theta)
    expected += torch.linalg.slogdet(jacobian).logabsdet.item()
    counts = flat(hypergraph, table)
    assert log_densities(hypergraph, counts, [size], theta)[0] == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize(
    ("case", "half_width", "step"),
    [
        ("one binary", 40.0, 0.1),
        ("one of two", 60.0, 0.25),
        ("three levels", 60.0, 0.25),
        ("saturated pair", 24.0, 0.4),
    ],
)
def test_density_integrates_to_one(case, half_width, step):
    """Trapezoidal sums, which converge exponentially for analytic integrands that decay."""
    hypergraph, _, _ = make(case)
    table = 1 + np.random.default_rng(5).random(hypergraph.domain.cardinalities)
    size = table.sum()
    axis = torch.arange(-half_width, half_width + step / 2, step, dtype=torch.float64)
    grid = torch.cartesian_prod(*[axis] * hypergraph.num_parameters).reshape(-1, hypergraph.num_parameters)
    densities = log_densities(hypergraph, flat(hypergraph, table), [size, 1.01 * size], grid)
    whole, off = (np.exp(values).sum() * step**hypergraph.num_parameters for values in densities)
    assert whole == pytest.approx(1.0, abs=1e-8)
    assert abs(off - 1) > 1e-4  # control: the same sum with another total pseudo-count is far from one


def test_mean_tables():
    hypergraph, _, _ = make("two triangles")
    table = pseudo_table(hypergraph, 6, 2.0)
    counts = flat(hypergraph, table)
    # The mean of theta is the gradient of log C in the pseudo-counts: d log C / d (B^T alpha) at fixed n0.
    moving = counts.clone().requires_grad_()
    hyper_dirichlet.log_normaliser(hypergraph, moving, torch.tensor(2.0, dtype=torch.float64)).backward()
    gradient = moving.grad
    assert gradient is not None
    # Directions inside the space of consistent margins of total zero: differences of two joint tables.
    rng = np.random.default_rng(7)
    tables = hyper_dirichlet.clique_tables(hypergraph, counts, torch.digamma)
    for _ in range(5):
        other = flat(hypergraph, 2.0 * rng.dirichlet(np.ones(table.size)).reshape(table.shape))
        direction = other - counts
        assert float(gradient @ direction) == pytest.approx(float(tables @ direction), rel=1e-10, abs=1e-10)


def beta_p_value(values, a, b):
    """Kolmogorov-Smirnov on values of Beta(a, b), of which those below the range of floats are known by order alone."""
    law, least = stats.beta(a, b), 1e-300
    ranks, is_below = law.cdf(values), values < least
    ranks[is_below] = law.cdf(least) * np.random.default_rng(9).random(int(is_below.sum()))
    return float(stats.kstest(ranks, "uniform", method="asymp").pvalue)


@pytest.mark.parametrize("case", ["saturated pair", "chain", "two triangles"])
def test_samples_follow_the_beta_marginals(case):
    """Every clique cell is Beta(alpha, n0 - alpha), Kolmogorov-Smirnov at the stated rate; a wrong n0 must fail."""
    hypergraph, cliques, _ = make(case)
    size = 30.0  # large enough that no probability rounds to one, which would be a point mass
    table = pseudo_table(hypergraph, 8, size)
    torch.manual_seed(20)
    draws = hyper_dirichlet.sample_tables(hypergraph, flat(hypergraph, table), (20_000,))
    assert draws.shape == (20_000, hypergraph.num_terms)
    probs = np.exp(exact_table(hypergraph, draws))
    p_values, controls = [], []
    for clique in cliques:
        alpha = margin(table, clique)
        axes = tuple(i + 1 for i in range(table.ndim) if i not in clique)
        values = probs.sum(axis=axes).reshape(len(probs), -1)
        for value, a in zip(values.T, alpha.ravel(), strict=True):
            p_values.append(beta_p_value(value, a, size - a))
            controls.append(beta_p_value(value, 1.2 * a, 1.2 * (size - a)))
    assert min(p_values) > FALSE_ALARM_RATE / len(p_values)
    assert min(controls) < FALSE_ALARM_RATE / len(p_values)


def test_samples_of_tiny_pseudo_counts_are_finite():
    hypergraph, _, _ = make("chain")
    counts = flat(hypergraph, pseudo_table(hypergraph, 9, 1e-3))
    torch.manual_seed(1)
    draws = hyper_dirichlet.sample_tables(hypergraph, counts, (200,))
    assert bool(torch.isfinite(draws).all())
    assert float(draws.min()) < -1000  # the naive log of a gamma draw would be minus infinity


# Mean to natural coordinates


PAIRS = InteractionHypergraph.from_order(Domain.from_cardinalities([2, 3, 2]), 2)
TREE = PAIRS.remove_edges([("x0", "x2")])
WEAK = InteractionHypergraph(Domain.from_cardinalities([2, 2, 2]), [("x0",), ("x0", "x1", "x2")], hierarchical=False)


def eta_of(hypergraph, theta):
    return flat(hypergraph, table_of(hypergraph, theta))


@pytest.mark.parametrize("scale", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("hypergraph", [PAIRS, TREE, WEAK], ids=["pairs", "chain", "weak"])
def test_theta_comes_back_from_its_mean(hypergraph, scale):
    theta = theta_of(hypergraph, seed=1, scale=scale)
    found = solve_natural_parameters(hypergraph, eta_of(hypergraph, theta), Auto())
    # The error of theta is that of eta (1e-10) times the inverse curvature.
    torch.testing.assert_close(found, theta, rtol=0, atol=1e-5 if scale == 3.0 else 1e-7)


@pytest.mark.parametrize("hypergraph", [PAIRS, TREE], ids=["pairs", "chain"])
def test_mode_under_a_normal_prior_has_gradient_zero(hypergraph):
    """Also for margins on the boundary, where the plain estimate is infinite."""
    table = np.zeros((2, 3, 2))
    table[0, 0, 0], table[1, 2, 1] = 0.25, 0.75
    eta = flat(hypergraph, table)
    precision = torch.linspace(0.1, 0.5, hypergraph.num_parameters, dtype=torch.float64)
    centre = theta_of(hypergraph, seed=3, scale=0.1)
    theta = solve_natural_parameters(hypergraph, eta, Auto(), precision=precision, centre=centre)
    free = parametrization(hypergraph).free_statistics
    gradient = free(eta) - free(eta_of(hypergraph, theta)) - precision * (theta - centre)
    assert float(gradient.abs().max()) < 1e-9
    if hypergraph is PAIRS:
        with pytest.raises(InputError, match="no theta has these marginals"):
            solve_natural_parameters(hypergraph, eta, Auto())


@pytest.mark.parametrize("max_design", [2**23, 0], ids=["cells", "autograd"])
@pytest.mark.parametrize("hypergraph", [PAIRS, TREE, WEAK], ids=["pairs", "chain", "weak"])
def test_information_is_the_covariance_of_the_free_statistics(monkeypatch, hypergraph, max_design):
    monkeypatch.setattr(natural_parameters, "_MAX_DESIGN", max_design)
    theta = theta_of(hypergraph, seed=4)
    codings = parametrization(hypergraph)
    basis = codings.to_tables(torch.eye(hypergraph.num_parameters, dtype=torch.float64)).numpy()
    law = exact_table(hypergraph, codings.to_tables(theta))
    information = fisher_information(hypergraph, theta, VariableElimination())
    expected = basis @ exact_covariance(hypergraph, law) @ basis.T
    np.testing.assert_allclose(information.numpy(), expected, rtol=1e-10, atol=1e-14)
    second_moment = expected + np.outer(*[basis @ exact_statistics(hypergraph, law)] * 2)  # control: not centred
    assert not np.allclose(information.numpy(), second_moment, rtol=1e-3, atol=1e-6)


def test_interior_margin(monkeypatch):
    uniform = eta_of(PAIRS, torch.zeros(PAIRS.num_parameters, dtype=torch.float64))
    assert interior_margin(PAIRS, uniform) == pytest.approx(1 / 12, rel=1e-7)
    inside = interior_margin(PAIRS, eta_of(PAIRS, theta_of(PAIRS, seed=5)))
    smallest = table_of(PAIRS, theta_of(PAIRS, seed=5)).min()
    assert inside is not None and inside >= smallest * (1 - 1e-6)  # the law itself is a candidate
    table = np.ones((2, 2, 2)) / 6
    table[0, 0, 0] = table[1, 1, 1] = 0
    binary = InteractionHypergraph.from_order(Domain.from_cardinalities([2, 2, 2]), 2)
    boundary = flat(binary, table)
    assert interior_margin(binary, boundary) == pytest.approx(0, abs=1e-9)
    outside = 1.2 * boundary - 0.2 * eta_of(binary, torch.zeros(6, dtype=torch.float64))
    assert interior_margin(binary, outside) == pytest.approx(-0.2 / 8, rel=1e-7)  # the zeros of the table above, moved
    assert interior_margin(PAIRS, uniform, max_cells=11) is None
    contradicting = uniform.clone()
    contradicting[PAIRS.term_slices["x0", "x1"]] = torch.tensor([0.6, 0.0, 0.0, 0.0, 0.0, 0.4], dtype=torch.float64)
    assert interior_margin(PAIRS, contradicting) == -1.0
    for status in (1, 3, 4):
        answer = optimize.OptimizeResult(status=status, x=None)
        monkeypatch.setattr(optimize, "linprog", lambda *_, answer=answer, **__: answer)
        assert interior_margin(PAIRS, uniform) is None


@pytest.mark.parametrize("hypergraph", [PAIRS, TREE, WEAK], ids=["pairs", "chain", "weak"])
def test_consistent_margins_are_those_of_one_table(hypergraph):
    """Margins with an error of 1e-7 become those of a (signed) table to 1e-14; as they are, the gap shows."""
    eta = eta_of(hypergraph, theta_of(hypergraph, seed=6))
    cards = hypergraph.domain.cardinalities
    states = np.indices(cards).reshape(len(cards), -1)
    design = np.concatenate(
        [
            np.equal.outer(np.arange(np.prod(shape)), np.ravel_multi_index(tuple(states[list(members)]), shape))
            for members, shape in zip(hypergraph.edge_indices, hypergraph.edge_shapes, strict=True)
        ]
    ).astype(float)

    def gap(margins):
        table = np.linalg.lstsq(design, margins.numpy(), rcond=None)[0]
        return float(np.abs(design @ table - margins.numpy()).max())

    noisy = eta + 1e-7 * torch.from_numpy(np.random.default_rng(7).normal(size=len(eta)))
    found = consistent_margins(hypergraph, noisy)
    assert gap(found) < 1e-14 < 1e-9 < gap(noisy)
    assert consistent_margins(hypergraph, eta.float()).dtype == torch.float64
    torch.testing.assert_close(found, eta, rtol=0, atol=1e-6)
    torch.testing.assert_close(consistent_margins(hypergraph, torch.stack([eta, eta])), torch.stack([eta, eta]))


def test_too_many_parameters_are_refused():
    big = InteractionHypergraph.from_order(Domain.from_cardinalities([40, 40, 40]), 2)
    with pytest.raises(IntractableError, match="the limit is 2000"):
        fisher_information(big, torch.zeros(big.num_parameters, dtype=torch.float64), Auto())
