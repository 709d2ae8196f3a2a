"""Full conditional manifolds, divergence and limit: brute force, the theorems of paper 5, and what must break them."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from network_oracles import random_network

from pyro_hoim import Domain, Observations
from pyro_hoim.core import Law
from pyro_hoim.dependency_network import (
    DecisionGraph,
    DependencyConditionals,
    LeafConditional,
    ModelConditional,
    TableConditional,
    conditional_inference_error,
    fc_limit,
    full_conditional_divergence,
    full_conditionals,
    m_projection,
    node_divergence,
    stationary_law,
)
from pyro_hoim.testing import assert_close, raises

from studies.random_laws import random_dirichlet_law

MIXED = Domain.from_cardinalities({"a": 2, "b": 3, "c": 2})
UNEQUAL = [0.2, 0.5, 0.3]


def law_of(domain, seed, concentration=1.0):
    return random_dirichlet_law(domain, concentration, generator=torch.Generator().manual_seed(seed))


def states(domain):
    return list(itertools.product(*(range(n) for n in domain.cardinalities)))


def conditional(table, state, i):
    """p(x_i | x_-i) by a sum over the fibre."""
    return table[state] / math.fsum(table[(*state[:i], k, *state[i + 1 :])] for k in range(table.shape[i]))


def brute_divergence(p, q, weights):
    """Equation 7, state by state."""
    return math.fsum(
        c * p[x] * (math.log(conditional(p, x, i)) - math.log(conditional(q, x, i)))
        for i, c in enumerate(weights)
        for x in np.ndindex(*p.shape)
        if p[x] > 0
    )


def to_manifold(law, network, i):
    """KL(p || E(theta_i)), state by state."""
    table, theta = law.probs.numpy(), network.full_table(network.nodes[i].variable).numpy()
    return math.fsum(table[x] * (math.log(conditional(table, x, i)) - math.log(theta[x])) for x in states(MIXED))


# Brute force


@pytest.mark.parametrize("weights", [None, UNEQUAL, {"c": 0.3, "a": 0.2, "b": 0.5}])
def test_divergence_is_the_sum_over_states(weights):
    p, q = law_of(MIXED, 1), law_of(MIXED, 2)
    c = [1 / 3] * 3 if weights is None else UNEQUAL
    expected = brute_divergence(p.probs.numpy(), q.probs.numpy(), c)
    assert expected > 0.01
    assert_close(full_conditional_divergence(p, q, weights), expected)
    assert full_conditional_divergence(p, p, weights) == 0.0
    # It is the weighted mean of the divergences from the manifolds of q (6) ...
    manifolds = full_conditionals(q)
    assert_close(fc_limit(p, manifolds, weights).value, expected)
    # ... and no KL divergence, nor symmetric, nor the same for other weights.
    assert abs(full_conditional_divergence(q, p, weights) - expected) > 1e-3
    assert abs(full_conditional_divergence(p, q, [0.6, 0.2, 0.2]) - expected) > 1e-4


def test_node_divergence_is_the_distance_to_the_projection():
    p, network = law_of(MIXED, 3), random_network(MIXED, np.random.default_rng(3))
    for i, node in enumerate(network.nodes):
        expected = to_manifold(p, network, i)
        assert_close(node_divergence(p, node), expected)
        assert_close(p.divergence(m_projection(p, node)), expected)
    found = fc_limit(p, network, UNEQUAL)
    assert_close(found.value, math.fsum(c * node_divergence(p, n) for c, n in zip(UNEQUAL, network.nodes, strict=True)))
    frame = found.to_pandas()
    assert list(frame.index) == ["a", "b", "c"]
    assert_close(frame["share"].sum(), 1.0)
    assert_close(frame["share"]["b"], 0.5 * node_divergence(p, network.node("b")) / found.value)
    assert found.weights == pytest.approx(dict(zip("abc", UNEQUAL, strict=True)))


def test_projection_is_the_product_of_margin_and_conditional():
    p, network = law_of(MIXED, 4), random_network(MIXED, np.random.default_rng(4))
    for i, node in enumerate(network.nodes):
        table, theta = p.probs.numpy(), network.full_table(node.variable).numpy()
        expected = np.zeros_like(table)
        for x in states(MIXED):
            expected[x] = math.fsum(table[(*x[:i], k, *x[i + 1 :])] for k in range(table.shape[i])) * theta[x]
        assert_close(m_projection(p, node).probs, expected)


def test_all_kinds_of_conditionals_are_read():
    p = law_of(MIXED, 5)
    graph = DecisionGraph(MIXED, "b").split(0, "a")
    leaves = torch.tensor([[0.2, 0.3, 0.5], [0.1, 0.1, 0.8]], dtype=torch.float32)
    network = DependencyConditionals(
        [
            TableConditional(MIXED, "a", ["c"], torch.tensor([[0.3, 0.7], [0.6, 0.4]], dtype=torch.float64)),
            LeafConditional(graph, leaves),
            ModelConditional(random_network(MIXED, np.random.default_rng(5)), "c"),
        ]
    )
    assert_close(fc_limit(p, network).value, sum(to_manifold(p, network, i) for i in range(3)) / 3)


def test_observations_stand_for_their_empirical_law():
    generator = np.random.default_rng(6)
    rows = np.column_stack([generator.integers(n, size=40) for n in MIXED.cardinalities])
    data = Observations(MIXED, torch.from_numpy(rows))
    law, network = Law.from_observations(data), random_network(MIXED, generator)
    assert_close(fc_limit(data, network).value, fc_limit(law, network).value)
    assert_close(node_divergence(data, network.node("b")), node_divergence(law, network.node("b")))
    assert_close(m_projection(data, network.node("b")).probs, m_projection(law, network.node("b")).probs)
    settled = stationary_law(network)
    assert_close(
        full_conditional_divergence(data, settled), full_conditional_divergence(law, Law(MIXED, settled.probs))
    )


def test_limit_of_many_variables_needs_no_table():
    """90 variables, 2^90 states: a copy of the first one each, described as fair coins."""
    domain = Domain.from_cardinalities([2] * 90)
    data = Observations(domain, torch.tensor([[0] * 90, [1] * 90, [1] * 90]))
    fair = torch.full((2,), 0.5, dtype=torch.float64)
    network = DependencyConditionals([TableConditional(domain, name, [], fair) for name in domain.names])
    assert_close(fc_limit(data, network).value, math.log(2))


# Zeros


def test_states_that_are_excluded_cost_infinity():
    domain = Domain.from_cardinalities({"a": 2, "b": 2})
    diagonal = Law(domain, [[0.5, 0.0], [0.0, 0.5]])
    inside = Law(domain, [[1.0, 0.0], [0.0, 0.0]])
    full = law_of(domain, 7)
    assert full_conditional_divergence(full, diagonal) == math.inf
    assert full_conditional_divergence(diagonal, inside) == math.inf
    assert full.divergence(diagonal) == math.inf
    # p inside q: both conditionals are known with certainty.
    assert full_conditional_divergence(inside, diagonal) == 0.0
    assert_close(inside.divergence(diagonal), math.log(2))
    copies = full_conditionals(diagonal)
    assert node_divergence(full, copies.node("a")) == math.inf
    assert fc_limit(full, copies).value == math.inf
    assert fc_limit(diagonal, copies).value == 0.0
    # Where the others have probability zero the conditional of a law is uniform.
    assert_close(full_conditionals(inside).node("a").probs, [[1.0, 0.0], [0.5, 0.5]])


# Theorems 1 and 2, equation 9, Bregman form, game


@settings(max_examples=60)
@given(st.integers(0, 10**6), st.floats(-0.2, 1.2), st.sampled_from("abc"))
def test_manifolds_are_flat_in_both_senses(seed, along, name):
    """Theorem 1: mixtures, and normalised geometric means, of members are members; also somewhat beyond the ends."""
    node = random_network(MIXED, np.random.default_rng(seed)).node(name)
    i = MIXED.index(name)
    first, second = (m_projection(law_of(MIXED, seed + k, 5.0), node).probs for k in (1, 2))
    mixture = (1 - along) * first + along * second
    geometric = ((1 - along) * first.log() + along * second.log()).exp()
    theta = m_projection(Law(MIXED, torch.full(MIXED.cardinalities, 1 / 12, dtype=torch.float64)), node).probs
    theta = theta / theta.sum(i, keepdim=True)
    for member in (mixture, geometric / geometric.sum()):
        if bool((member > 0).all()):
            assert_close(member / member.sum(i, keepdim=True), theta, relative=1e-9)
            assert_close(node_divergence(Law(MIXED, member / member.sum()), node), 0.0)
    # Control: a mixture of laws that are not members is none.
    apart = (law_of(MIXED, seed + 1).probs + law_of(MIXED, seed + 2).probs) / 2
    assert node_divergence(Law(MIXED, apart), node) > 1e-6


@settings(max_examples=60)
@given(st.integers(0, 10**6), st.floats(0, 1), st.sampled_from("abc"))
def test_projection_is_linear_and_the_closest_member(seed, along, name):
    """Theorem 2 and the Pythagorean relation KL(p||q) = KL(p||p') + KL(p'||q) for q on the manifold."""
    node = random_network(MIXED, np.random.default_rng(seed)).node(name)
    first, second = law_of(MIXED, seed + 1), law_of(MIXED, seed + 2)
    mixture = Law(MIXED, (1 - along) * first.probs + along * second.probs)
    separately = (1 - along) * m_projection(first, node).probs + along * m_projection(second, node).probs
    assert_close(m_projection(mixture, node).probs, separately)
    projected = m_projection(first, node)
    assert_close(m_projection(projected, node).probs, projected.probs)
    member = m_projection(second, node)
    assert_close(first.divergence(member), first.divergence(projected) + projected.divergence(member), relative=1e-9)
    assert first.divergence(member) >= first.divergence(projected)


@settings(max_examples=100)
@given(st.integers(0, 10**6), st.sampled_from([0.1, 1.0, 10.0]))
def test_full_conditional_divergence_is_at_most_kl(seed, concentration):
    """Equation 9; and the difference is the mean divergence of the laws of all but one variable."""
    p, q = law_of(MIXED, seed, concentration), law_of(MIXED, seed + 1)
    fc, kl = full_conditional_divergence(p, q, UNEQUAL), p.divergence(q)
    assert fc <= kl * (1 + 1e-12)
    rest = math.fsum(
        c * p.marginal(others).divergence(q.marginal(others))
        for c, others in zip(UNEQUAL, (["b", "c"], ["a", "c"], ["a", "b"]), strict=True)
    )
    assert_close(kl - fc, rest, relative=1e-9)


@pytest.mark.parametrize("weights", [[1 / 3] * 3, UNEQUAL])
def test_divergence_is_that_from_manifolds_and_not_from_points(weights):
    """Proof of theorem 6: FC(p || pi) = sum_i c_i KL(p || E_i(pi)); printed is KL(p || pi_i), which is larger."""
    p, network = law_of(MIXED, 14), random_network(MIXED, np.random.default_rng(14))
    settled = Law(MIXED, stationary_law(network, scan=dict(zip("abc", weights, strict=True))).probs)
    fc = full_conditional_divergence(p, settled, weights)

    def mean(parts):
        return math.fsum(c * part for c, part in zip(weights, parts, strict=True))

    assert_close(mean(p.divergence(m_projection(p, node)) for node in full_conditionals(settled).nodes), fc)
    # pi_i is the m-projection of pi onto E(theta_i); even the projection onto E_i(pi), which is pi, is no stand-in.
    printed = mean(p.divergence(m_projection(settled, node)) for node in network.nodes)
    limit = fc_limit(p, network, weights).value
    rest = [p.marginal(names).divergence(settled.marginal(names)) for names in (["b", "c"], ["a", "c"], ["a", "b"])]
    assert_close(printed, limit + mean(rest))
    assert fc < limit < printed
    assert printed > 1.5 * fc


def test_divergence_is_the_bregman_divergence_of_its_function():
    """f and its gradient by automatic differentiation of the definition."""
    p, q = law_of(MIXED, 8), law_of(MIXED, 9)

    def f(table):
        return sum(c * (table * (table / table.sum(i, keepdim=True)).log()).sum() for i, c in enumerate(UNEQUAL))

    variable = q.probs.clone().requires_grad_(True)
    (slope,) = torch.autograd.grad(f(variable), variable)
    logs = sum(c * (q.probs / q.probs.sum(i, keepdim=True)).log() for i, c in enumerate(UNEQUAL))
    assert_close(slope, logs)
    gap = float(f(p.probs) - f(q.probs) - (slope * (p.probs - q.probs)).sum())
    assert_close(full_conditional_divergence(p, q, UNEQUAL), gap)
    # Convex: a chord lies above.
    assert f((p.probs + q.probs) / 2) < (f(p.probs) + f(q.probs)) / 2


def test_maximal_pseudo_likelihood_is_minimal_divergence():
    """Equation 7: the difference between two models is that of their pseudo-log-likelihoods."""
    p = law_of(MIXED, 10)
    models = [law_of(MIXED, seed) for seed in (11, 12)]
    pseudo = [
        float((p.probs.ravel() * full_conditionals(q).log_pseudo_prob(torch.tensor(states(MIXED)))).sum())
        for q in models
    ]
    first, second = (full_conditional_divergence(p, q) for q in models)
    assert_close(first - second, (pseudo[1] - pseudo[0]) / 3)


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.floats(0.01, 1))
def test_stationary_law_is_a_nash_equilibrium(seed, step):
    """Section 3.2: player i pays KL(p || p_i) for p_i on its manifold, the last one sum_i c_i KL(p_i || r) for r.

    No player gains by another choice on its manifold, or in the space of all laws.
    """

    def mixture_cost(choices, last):
        return math.fsum(c * choice.divergence(last) for c, choice in zip(UNEQUAL, choices, strict=True))

    network = random_network(MIXED, np.random.default_rng(seed))
    settled = stationary_law(network, scan=dict(zip("abc", UNEQUAL, strict=True)))
    p = Law(MIXED, settled.probs)
    choices = {node.variable: m_projection(p, node) for node in network.nodes}
    other = law_of(MIXED, seed + 1)
    for name in "abc":
        moved = (1 - step) * choices[name].probs + step * m_projection(other, network.node(name)).probs
        at_rest = p.divergence(choices[name])
        assert p.divergence(Law(MIXED, moved)) >= at_rest - 1e-13
        assert_close(at_rest, node_divergence(p, network.node(name)))
    moved = Law(MIXED, (1 - step) * p.probs + step * other.probs)
    assert mixture_cost(choices.values(), moved) > mixture_cost(choices.values(), p)
    # Off the equilibrium the last player gains by moving to the mean of the projections, one step of the chain.
    choices = [m_projection(other, node) for node in network.nodes]
    mean = Law(MIXED, sum(c * choice.probs for c, choice in zip(UNEQUAL, choices, strict=True)))
    assert mixture_cost(choices, mean) < mixture_cost(choices, other)


# Arguments


PAIR = law_of(Domain.from_cardinalities({"a": 2, "b": 2}), 1)
NOTHING = Observations(MIXED, torch.zeros(0, 3, dtype=torch.long))


@pytest.mark.parametrize(
    ("call", "code", "argument"),
    [
        (lambda p, n: fc_limit([], n), "wrong-type", "p"),
        (lambda p, n: fc_limit(p, p), "wrong-type", "conditionals"),
        (lambda p, n: m_projection(p, "a"), "wrong-type", "node"),
        (lambda p, n: fc_limit(PAIR, n), "other-domain", "node"),
        (lambda p, n: full_conditional_divergence(p, PAIR), "other-domain", "q"),
        (lambda p, n: p.divergence(PAIR), "other-domain", "other"),
        (lambda p, n: fc_limit(p, n, [0.5, 0.5, 0.5]), "out-of-range", "weights"),
        (lambda p, n: full_conditional_divergence(p, p, [0.5, 0.5, 0]), "out-of-range", "weights"),
        (lambda p, n: fc_limit(Observations(MIXED, torch.tensor([[0, -1, 1]])), n), "missing-cells", "p"),
        (lambda p, n: node_divergence(NOTHING, n.node("a")), "empty", "p"),
        (lambda p, n: conditional_inference_error(p, n, ["a", "b", "c"]), "empty", "given"),
    ],
)
def test_bad_arguments_are_refused(call, code, argument):
    with raises(code, argument):
        call(law_of(MIXED, 13), random_network(MIXED, np.random.default_rng(13)))
