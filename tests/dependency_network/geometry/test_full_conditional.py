"""Full conditional manifolds, divergence and limit: brute force, the theorems of paper 5, and what must break them."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from network_oracles import PAIR, pair, random_network
from scipy.stats import chi2

from pyro_hoim import Domain, InputError, Observations
from pyro_hoim.core import Law
from pyro_hoim.dependency_network import (
    DecisionGraph,
    DependencyConditionals,
    LeafConditional,
    ModelConditional,
    TableConditional,
    check_ergodic,
    conditional_inference_error,
    cyclic_laws,
    fc_limit,
    full_conditional_divergence,
    full_conditionals,
    learn_network,
    m_projection,
    node_divergence,
    stationary_law,
)
from pyro_hoim.testing import FALSE_ALARM_RATE, assert_close, raises

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
    nodes = [
        TableConditional(MIXED, "a", ["c"], torch.tensor([[0.3, 0.7], [0.6, 0.4]], dtype=torch.float64)),
        LeafConditional(graph, leaves),
        ModelConditional(random_network(MIXED, np.random.default_rng(5)), "c"),
    ]
    network = DependencyConditionals(nodes)
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
    assert (fc_limit(full, copies).value, fc_limit(diagonal, copies).value) == (math.inf, 0.0)
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


LAW_OF_PAIR = law_of(Domain.from_cardinalities({"a": 2, "b": 2}), 1)
NOTHING = Observations(MIXED, torch.zeros(0, 3, dtype=torch.long))


@pytest.mark.parametrize(
    ("call", "code", "argument"),
    [
        (lambda p, n: fc_limit([], n), "wrong-type", "p"),
        (lambda p, n: fc_limit(p, p), "wrong-type", "conditionals"),
        (lambda p, n: m_projection(p, "a"), "wrong-type", "node"),
        (lambda p, n: fc_limit(LAW_OF_PAIR, n), "other-domain", "node"),
        (lambda p, n: full_conditional_divergence(p, LAW_OF_PAIR), "other-domain", "q"),
        (lambda p, n: p.divergence(LAW_OF_PAIR), "other-domain", "other"),
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


# Theorem 3, FC_c(p || pi_c) <= sum_i c_i KL(p || E(theta_i)), on more than 1,000 random networks and laws
#
# The entropies of p are the same on both sides, and what is left is linear in p. So the theorem holds for every law if
# and only if it holds in every state x: sum_i c_i log theta_i(x_i | x_-i) <= sum_i c_i log pi_c(x_i | x_-i). Both forms
# are tested: the first through the public functions, the second as the largest difference over all states.


THREE = Domain.from_cardinalities([2, 2, 2])


def network_of(domain, generator, concentration, num_parents):
    return random_network(domain, generator, concentration, num_parents, floor=1e-9)


SHAPES = [list(cards) for size in (2, 3, 4) for cards in itertools.product((2, 3), repeat=size)]


@st.composite
def networks(draw):
    """Two to four variables of two or three levels, tables from flat to nearly deterministic; and a generator."""
    cards = SHAPES[draw(st.integers(0, len(SHAPES) - 1))]
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    concentration = generator.choice([0.05, 0.3, 1.0, 4.0])
    num_parents = generator.integers(1, len(cards))
    return network_of(Domain.from_cardinalities(cards), generator, concentration, num_parents), generator


def random_data(domain, generator):
    """A law of any kind: all cells positive, sparse, or that of a few rows."""
    size = domain.num_states
    kind = generator.integers(3)
    if kind == 2:
        probs = generator.multinomial(generator.integers(1, 30), np.full(size, 1 / size)).astype(float)
    else:
        probs = generator.dirichlet(np.full(size, 1.0 if kind == 0 else 0.1))
    return Law(domain, torch.from_numpy(probs / probs.sum()).reshape(domain.cardinalities))


def log_tables(network):
    return [network.full_table(name).log().numpy() for name in network.domain.names]


def excess(logs, probs, weights):
    """Largest excess over all laws p of FC(p || probs) over the FC-limit: its value in the worst state, in nats."""
    table = probs.numpy()
    total = np.zeros_like(table)
    for i, (log_theta, weight) in enumerate(zip(logs, weights, strict=True)):
        total += weight * (log_theta - np.log(table) + np.log(table.sum(i, keepdims=True)))
    return float(total.max())


@given(networks())
def test_theorem_3_on_random_networks_and_all_laws(case):
    network, generator = case
    domain = network.domain
    unequal = generator.dirichlet(np.full(len(domain), 1.0)) + 0.01
    p = random_data(domain, generator)
    divergences = np.array(list(fc_limit(p, network).nodes.values()))
    logs = log_tables(network)
    for weights in (np.full(len(domain), 1 / len(domain)), unequal / unequal.sum()):
        settled = stationary_law(network, scan=dict(zip(network.domain.names, weights.tolist(), strict=True)))
        limit = float(weights @ divergences)
        assert math.isfinite(limit)
        assert full_conditional_divergence(p, settled, weights.tolist()) <= limit * (1 + 1e-10) + 1e-12
        assert excess(logs, settled.probs, weights) <= 1e-10


@given(networks())
def test_the_bound_is_attained_by_consistent_conditionals_only(case):
    """Conditionals of a law q: pi is q, and both sides are FC(p || q) for every p."""
    network, generator = case
    domain = network.domain
    q = Law(domain, stationary_law(network).probs)
    p = random_data(domain, generator)
    genuine = full_conditionals(q)
    settled = stationary_law(genuine)
    assert_close(settled.probs, q.probs)
    limit = fc_limit(p, genuine).value
    assert_close(full_conditional_divergence(p, settled), limit, relative=1e-9)
    assert_close(full_conditional_divergence(p, q), limit, relative=1e-9)


# Negative controls: what the theorem does not say is seen to be false.


def broken(concentration, law_of_network, weights=(1 / 3, 1 / 3, 1 / 3)):
    """Number of 100 networks that break the bound for some law p by more than 1e-6 nats, and the largest excess."""
    found = [
        excess(log_tables(network), law_of_network(network), weights)
        for network in (network_of(THREE, np.random.default_rng(seed), concentration, 2) for seed in range(100))
    ]
    return sum(e > 1e-6 for e in found), max(found)


def test_other_selection_probabilities_break_the_bound():
    number, worst = broken(1.0, lambda n: stationary_law(n, scan={"x0": 0.7, "x1": 0.2, "x2": 0.1}).probs)
    assert number >= 90
    assert worst > 0.1
    number, worst = broken(1.0, lambda n: stationary_law(n).probs)
    assert number == 0
    assert worst <= 1e-10


def test_the_sequential_law_breaks_the_bound():
    number, worst = broken(1.0, lambda n: stationary_law(n, scan="sequential").probs)
    assert number >= 80
    assert worst > 0.5


def test_states_that_are_left_for_ever_break_the_bound():
    """The theorem assumes ergodicity: once both are 1 they stay, and a law at (0, 0) has a finite limit, log 2."""

    def settled_and_limit(back):
        stay = torch.tensor([[0.5, 0.5], [back, 1 - back]], dtype=torch.float64)
        network = pair(stay, stay)
        start = Law(PAIR, [[1.0, 0.0], [0.0, 0.0]])
        divergence = full_conditional_divergence(start, stationary_law(network))
        return check_ergodic(network).is_ergodic, divergence, fc_limit(start, network).value

    ergodic, divergence, limit = settled_and_limit(0.0)
    assert not ergodic
    assert divergence == math.inf
    assert_close(limit, math.log(2))
    ergodic, divergence, limit = settled_and_limit(1e-9)  # the control: hardly any way back is enough
    assert ergodic
    assert divergence <= limit * (1 + 1e-10)
    assert_close(limit, math.log(2))


@pytest.mark.parametrize("scan", ["random", "sequential"])
def test_a_law_that_breaks_the_bound_breaks_it_in_the_public_functions(scan):
    """The worst state of a network, taken for p: FC exceeds the FC-limit by the excess, to rounding."""
    network = network_of(THREE, np.random.default_rng(28), 1.0, 2)
    settled = stationary_law(network, scan={"x0": 0.7, "x1": 0.2, "x2": 0.1} if scan == "random" else scan)
    points = [Law(THREE, point.reshape(2, 2, 2)) for point in torch.eye(8, dtype=torch.float64)]
    gaps = [full_conditional_divergence(p, settled) - fc_limit(p, network).value for p in points]
    assert max(gaps) > 0.01
    assert_close(max(gaps), excess(log_tables(network), settled.probs, [1 / 3] * 3))


def test_with_two_variables_the_scans_agree():
    """Updates are projections, so half and half of both orders is the random scan's law; three are needed above."""
    domain = Domain.from_cardinalities([3, 2])
    for seed in range(20):
        network = network_of(domain, np.random.default_rng(seed), 0.5, 1)
        assert_close(stationary_law(network).probs, stationary_law(network, scan="sequential").probs)


# The sequential scan has an identity instead.


@given(networks())
def test_sequential_identity(case):
    """Mean of KL(p || E(theta_i)) = mean of KL(p || E_i(pi^i)), pi^i the law just before node i is updated."""
    network, generator = case
    domain = network.domain
    order = [str(name) for name in generator.permutation(domain.names)]
    laws = cyclic_laws(network, order)
    p = random_data(domain, generator)
    left = math.fsum(node_divergence(p, network.node(name)) for name in domain.names)

    def right(law_at):
        return math.fsum(
            node_divergence(p, full_conditionals(Law(domain, law_at(name))).node(name)) for name in domain.names
        )

    assert_close(right(laws.before), left, relative=1e-9)
    # Just after its update a node has the network's own conditional, so each term is the same by itself.
    assert_close(right(laws.after), left, relative=1e-9)
    for name in domain.names:
        after = full_conditionals(Law(domain, laws.after(name))).node(name)
        assert_close(node_divergence(p, after), node_divergence(p, network.node(name)), relative=1e-9)


def test_sequential_identity_needs_the_right_laws():
    network = network_of(THREE, np.random.default_rng(28), 1.0, 2)
    laws = cyclic_laws(network)
    p = random_dirichlet_law(THREE, generator=torch.Generator().manual_seed(1))
    left = math.fsum(node_divergence(p, node) for node in network.nodes)
    wrong = [
        lambda name: laws.mean,
        lambda name: laws.probs[0],
        lambda name: laws.probs[(laws.scan.order.index(name) + 2) % 3],
        lambda name: stationary_law(network).probs,
    ]
    for law_at in wrong:
        right = math.fsum(
            node_divergence(p, full_conditionals(Law(THREE, law_at(name))).node(name)) for name in THREE.names
        )
        assert abs(right - left) > 1e-3
    terms = [
        node_divergence(p, full_conditionals(Law(THREE, laws.before(name))).node(name))
        - node_divergence(p, network.node(name))
        for name in THREE.names
    ]
    assert max(abs(term) for term in terms) > 1e-2  # the sum is the identity, not its terms


# Conditional inference


@settings(max_examples=60)
@given(networks())
def test_divergence_of_a_node_is_the_mean_over_the_given_variables(case):
    """Equation 21; and theorem 3 for every clamped network."""
    network, generator = case
    domain = network.domain
    names = [str(name) for name in generator.permutation(domain.names)[: generator.integers(1, len(domain))]]
    weights = generator.dirichlet(np.full(len(domain), 1.0)) + 0.01
    weights /= weights.sum()
    p = random_data(domain, generator)
    found = conditional_inference_error(p, network, names, weights.tolist())
    assert found.domain == domain.project(names)
    assert_close(found.probs, p.marginal(names).probs)
    for name, mean in found.node_means.items():
        assert_close(mean, node_divergence(p, network.node(name)), relative=1e-9)
    possible = found.probs > 0
    fc, kl, limits = found.fc[possible], found.kl[possible], found.limits[possible]
    assert bool((fc <= limits * (1 + 1e-10) + 1e-12).all())
    assert bool((fc <= kl * (1 + 1e-10) + 1e-12).all())
    assert bool(torch.isnan(found.limits[~possible]).all())
    share = sum(weights[domain.index(name)] for name in found.node_limits)
    mixed = sum(weights[domain.index(name)] / share * limit for name, limit in found.node_limits.items())
    assert_close(mixed[possible], limits, relative=1e-9)


def test_conditional_inference_names_the_state_for_which_there_is_no_law():
    domain = Domain.from_labels({"a": ["0", "1"], "b": ["0", "1"], "s": ["free", "tied"]})
    tied = torch.stack([torch.full((2, 2), 0.5), torch.eye(2)]).double()
    nodes = [
        TableConditional(domain, "a", ["s", "b"], tied),
        TableConditional(domain, "b", ["s", "a"], tied),
        TableConditional(domain, "s", [], torch.tensor([0.5, 0.5]).double()),
    ]
    network = DependencyConditionals(nodes)
    p = Law(domain, torch.full((2, 2, 2), 1 / 8).double())
    with pytest.raises(InputError, match=r"2 closed sets .* \(given s=tied\)$"):
        conditional_inference_error(p, network, ["s"])
    part = p.marginal(["a", "b"])  # the limit needs no law
    assert [fc_limit(part, network.condition({"s": s})).value for s in (0, 1)] == [0.0, math.inf]


def test_conditional_inference_beside_the_conditional_of_the_stationary_law():
    """pi'(x | x_C) is another law than pi(x | x_C), unless the conditionals are consistent."""
    domain = Domain.from_cardinalities({"a": 2, "b": 2, "c": 3})
    generator = np.random.default_rng(3)
    genuine = Law(domain, torch.from_numpy(generator.dirichlet(np.ones(12)).reshape(2, 2, 3)))
    exact = conditional_inference_error(genuine, full_conditionals(genuine), ["b"])
    assert_close(exact.kl, [0.0, 0.0])
    assert_close(exact.limits, [0.0, 0.0])
    network = network_of(domain, generator, 1.0, 2)
    whole = Law(domain, stationary_law(network).probs)
    found = conditional_inference_error(whole, network, ["b"])
    for level in range(2):
        part = whole.probs[:, level] / whole.probs[:, level].sum()
        clamped = stationary_law(network, clamped={"b": level}).probs
        gap = float((part * (part / clamped).log()).sum())
        assert gap > 1e-4
        assert_close(found.kl[level], gap, relative=1e-8)
    frame = found.to_pandas()
    assert list(frame) == ["b", "prob", "limit", "fc", "kl"]
    assert frame["prob"].is_monotonic_decreasing
    assert_close(frame["prob"].sum(), 1.0)


PAIRED = 0.5 * np.einsum("t,tabcde->abcde", [1, 1, -1, 1], np.stack([
    (2 * np.indices((2,) * 5) - 1)[i] * (2 * np.indices((2,) * 5) - 1)[j] for i, j in ((0, 1), (1, 2), (2, 3), (0, 4))
]))  # fmt: skip
PARITY = np.log(np.where(np.indices((2, 2, 2)).sum(0) % 2 == 0, 0.95, 0.05))


@pytest.mark.parametrize(
    ("scores", "is_lossless", "contexts"), [(PAIRED, False, 16), (PARITY, True, 4), (PARITY, False, 4)]
)
def test_learned_manifolds_come_to_the_rows(scores, is_lossless, contexts):
    """Theorem 5: twice N times the divergence of a node is at most chi-square where its source holds its parents.

    The control is a parity without the lossless source among the candidates: no single split pays.
    """
    probs = np.exp(scores) / np.exp(scores).sum()
    found = []
    for number in (10**3, 10**6):
        counts = np.random.default_rng([7, number]).multinomial(number, probs.ravel()).reshape(probs.shape)
        rows = Observations.from_table(Domain.from_cardinalities(probs.shape), counts)
        network = learn_network(rows, alpha=0.0, lossless=is_lossless).conditionals
        found.append(2 * number * max(node_divergence(rows, node) for node in network.nodes))
    limit = chi2.isf(FALSE_ALARM_RATE / probs.ndim, contexts)
    if scores is PARITY and not is_lossless:
        assert found[0] > 10 * limit and found[1] > 10_000 * limit
    else:
        assert max(found) < limit
