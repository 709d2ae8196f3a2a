"""Dirichlet leaves of dependency networks: closed forms, a grid over the pseudo-likelihood, bad input."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from pyro_hoim import Domain, InputError, Observations, load_table, to_arviz
from pyro_hoim.dependency_network import (
    DecisionGraph,
    DependencyConditionals,
    LeafConditional,
    TableConditional,
    learn_network,
    stationary_law,
)
from pyro_hoim.errors import InputTypeError
from pyro_hoim.inference import sample_network_posterior
from pyro_hoim.testing import FALSE_ALARM_RATE, assert_close, raises

DOMAIN = Domain.from_cardinalities({"a": 2, "b": 3, "c": 2})
GRAPHS = (
    DecisionGraph(DOMAIN, "a").split(0, "b").merge(0, 2),
    DecisionGraph(DOMAIN, "b").split(0, "c").split(1, "a"),
    DecisionGraph(DOMAIN, "c"),
)


def network(graphs=GRAPHS):
    """Uniform tables over the graphs."""
    sizes = [(g.num_leaves, g.domain[g.variable].cardinality) for g in graphs]
    tables = [torch.full(size, 1 / size[1], dtype=torch.float64) for size in sizes]
    return DependencyConditionals(map(LeafConditional, graphs, tables))


def table(seed=3):
    return Observations.from_table(DOMAIN, np.random.default_rng(seed).poisson(2.0, (2, 3, 2)).astype(float))


def scores(posterior, means, variances):
    """Largest score of the draws' means and of their mean squares about the means."""
    worst = 0.0
    for name, value in posterior.get_samples().items():
        mean, variance = means[name], variances[name]
        squared = (value - mean).square()
        for found, wanted, spread in ((value, mean, value.std(0)), (squared, variance, squared.std(0))):
            worst = max(worst, float(((found.mean(0) - wanted).abs() / (spread / math.sqrt(len(value)))).max()))
    return worst


def limit(num_numbers):
    return float(stats.norm.isf(FALSE_ALARM_RATE / 2 / num_numbers))


def test_draws_have_the_moments_that_a_grid_over_the_pseudo_likelihood_has():
    """Numerical integration of prior times product of conditionals; rows told of the wrong leaf are found out."""
    domain = Domain.from_cardinalities({"a": 2, "b": 2})
    graphs = DecisionGraph(domain, "a").split(0, "b"), DecisionGraph(domain, "b")
    data = Observations.from_table(domain, [[3.0, 1.0], [2.0, 5.0]])
    grid = torch.linspace(0, 1, 202, dtype=torch.float64)[1:-1]
    alpha = 1.7
    states = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]])
    counts = torch.tensor([3.0, 1.0, 2.0, 5.0], dtype=torch.float64)
    means, variances = {}, {}
    fair = torch.full((2, 2), 0.5, dtype=torch.float64)
    for name, leaf in (("a", 0), ("a", 1), ("b", 0)):
        weights = torch.empty_like(grid)
        for k, share in enumerate(grid):
            nodes = [LeafConditional(graphs[0], fair), LeafConditional(graphs[1], fair[:1])]
            i = domain.index(name)
            probs = nodes[i].probs.clone()
            probs[leaf] = torch.stack([share, 1 - share])
            nodes[i] = nodes[i].with_probs(probs)
            likelihood = (counts * DependencyConditionals(nodes).log_pseudo_prob(states)).sum()
            weights[k] = likelihood + (alpha / 2 - 1) * (share.log() + (1 - share).log())
        weights = weights.softmax(0)
        mean = (weights * grid).sum()
        variance = (weights * (grid - mean).square()).sum()
        means.setdefault(name, []).append(torch.stack([mean, 1 - mean]))
        variances.setdefault(name, []).append(torch.stack([variance, variance]))
    means = {name: torch.stack(value) for name, value in means.items()}
    variances = {name: torch.stack(value) for name, value in variances.items()}
    found = sample_network_posterior(network(graphs), data, alpha, num_draws=5000, seed=1)
    for name in domain.names:
        assert_close(found.means[name], means[name], relative=2e-3)
        assert_close(found.variances[name], variances[name], relative=2e-3)
    assert scores(found, found.means, found.variances) < limit(12)
    turned = {name: value.flip(0) for name, value in found.means.items()}
    assert scores(found, turned, found.variances) > limit(12)
    assert scores(found, found.means, {name: 1.2 * value for name, value in found.variances.items()}) > limit(12)


def test_draws_are_dirichlet_with_the_counts_of_the_leaves():
    """Closed form from counts by hand, and the marginal beta laws by Kolmogorov and Smirnov's test."""
    data = table()
    found = sample_network_posterior(network(), data, 2.0, num_draws=2000, num_chains=2, seed=5)
    assert found.is_exact
    counts = {
        graph.variable: torch.zeros(graph.num_leaves, DOMAIN[graph.variable].cardinality, dtype=torch.float64)
        for graph in GRAPHS
    }
    for row, count in zip(data.codes, data.counts, strict=True):
        for graph in GRAPHS:
            counts[graph.variable][int(graph.leaves(row)), int(row[DOMAIN.index(graph.variable)])] += count
    for name, value in counts.items():
        assert_close(found.concentrations[name], value + 2.0 / value.shape[1])
        assert_close(found.draws[name].sum(-1), torch.ones(found.draws[name].shape[:-1]), relative=1e-12)
        assert_close(found.conditionals.node(name).probs, found.means[name])
    concentration, draws = found.concentrations["b"], found.get_samples()["b"]
    shape = concentration[1, 2].item(), (concentration[1].sum() - concentration[1, 2]).item()
    assert stats.kstest(draws[:, 1, 2].numpy(), stats.beta(*shape).cdf).pvalue > FALSE_ALARM_RATE
    assert stats.kstest(draws[:, 1, 2].numpy(), stats.beta(shape[0] + 2, shape[1]).cdf).pvalue < FALSE_ALARM_RATE
    by_chain = found.get_samples(group_by_chain=True)["b"]
    assert by_chain.shape == (2, 2000, 3, 3)
    assert torch.equal(by_chain.flatten(0, 1), draws)


def test_seeds_fix_the_draws_and_leave_the_global_generator_alone():
    state = torch.random.get_rng_state()
    first, second, third = (sample_network_posterior(network(), table(), num_draws=5, seed=s).draws for s in (1, 1, 2))
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(first["a"], third["a"])
    assert torch.equal(torch.random.get_rng_state(), state)


def test_without_rows_the_draws_are_those_of_the_prior():
    """Also with a prior so weak that a gamma of its shape is often below the least double."""
    none = Observations(DOMAIN, torch.zeros(0, 3, dtype=torch.long))
    for alpha in (1e-300, 1e300):
        draws = sample_network_posterior(network(), none, alpha, num_draws=5).draws
        assert all(bool((value.sum(-1) - 1).abs().max() < 1e-12) for value in draws.values())
    for alpha in (3.0, 1e-3):
        found = sample_network_posterior(network(), none, alpha, seed=2)
        assert torch.equal(found.concentrations["a"], torch.full((2, 2), alpha / 2, dtype=torch.float64))
        assert all(bool(torch.isfinite(value).all()) for value in found.draws.values())
        assert scores(found, found.means, found.variances) < limit(2 * (4 + 9 + 2))


def test_a_variable_of_one_level_has_probability_one():
    domain = Domain.from_cardinalities({"a": 1, "b": 2})
    graphs = DecisionGraph(domain, "a").split(0, "b"), DecisionGraph(domain, "b").split(0, "a")
    found = sample_network_posterior(network(graphs), Observations(domain, torch.tensor([[0, 1]])), num_draws=3)
    assert torch.equal(found.draws["a"], torch.ones(4, 3, 2, 1, dtype=torch.float64))


def test_learned_networks_keep_their_prior_and_their_tables():
    data = load_table("czech_autoworkers")
    learned = learn_network(data, alpha=4.0)
    found = sample_network_posterior(learned, data, num_draws=10)
    assert found.alpha == 4.0
    for node, counts in zip(learned.conditionals.nodes, learned.counts, strict=True):
        assert_close(found.means[node.variable], node.probs)
        assert_close(found.concentrations[node.variable], counts + 4.0 / counts.shape[1])
    assert sample_network_posterior(learn_network(data, alpha=0.0), data, num_draws=1).alpha == 1.0
    law = stationary_law(found.network(7))
    assert_close(law.probs.sum(), 1.0)
    assert torch.equal(found.network(13).node("smoke").probs, found.draws["smoke"][1, 3])


def test_draws_open_in_arviz():
    found = sample_network_posterior(network(), table(), num_draws=6, num_chains=3)
    data = to_arviz(found)
    assert data.posterior["b"].shape == (3, 6, 3, 3)
    assert bool(data.sample_stats["is_exact"].all())
    assert np.array_equal(data.posterior["a"].values, found.draws["a"].numpy())


def test_rows_without_the_variable_are_left_out_and_rows_without_a_parent_refused():
    data = Observations(DOMAIN, torch.tensor([[0, 1, -1], [1, 1, 1]]), torch.tensor([2.5, 1.0]))
    asks_nothing = network((DecisionGraph(DOMAIN, "a").split(0, "b"), DecisionGraph(DOMAIN, "b"), GRAPHS[2]))
    found = sample_network_posterior(asks_nothing, data, 2.0, num_draws=1)
    assert found.concentrations["c"].tolist() == [[1.0, 2.0]]
    assert found.concentrations["a"].tolist() == [[1.0, 1.0], [3.5, 2.0], [1.0, 1.0]]
    with raises("missing-cells", "data"):
        sample_network_posterior(network(), data)


def test_what_has_no_dirichlet_leaves_is_refused_with_what_is_possible():
    other = Domain.from_cardinalities({"a": 2, "b": 2})
    fair = torch.full((2, 2), 0.5)
    tables = DependencyConditionals(
        [TableConditional(other, "a", ["b"], fair), TableConditional(other, "b", ["a"], fair)]
    )
    with pytest.raises(InputError, match=r"TableConditional, whose posterior is not Dirichlet.*learn_network finds"):
        sample_network_posterior(tables, Observations(other, torch.tensor([[0, 1]])))
    with raises("other-domain", "data"):
        sample_network_posterior(network(), Observations(other, torch.tensor([[0, 1]])))
    for alpha in (0.0, -1.0, math.nan, 1e-308, 1e308):
        with raises("out-of-range", "alpha"):
            sample_network_posterior(network(), table(), alpha)
    with raises("out-of-range", "num_draws"):
        sample_network_posterior(network(), table(), num_draws=0)
    with pytest.raises(InputTypeError):
        sample_network_posterior(GRAPHS[0], table())
    with pytest.raises(InputTypeError):
        sample_network_posterior(network(), torch.zeros(2, 3))
    with raises("out-of-range", "draw"):
        sample_network_posterior(network(), table(), num_draws=2, num_chains=1).network(2)
