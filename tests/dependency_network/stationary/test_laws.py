"""Exact laws of dependency networks: dense transition matrices, joint laws behind conditionals, and what has none."""

import itertools
import math

import numpy as np
import pytest
import torch
from network_oracles import fixed_law, pair, random_network, update_matrix

from pyro_hoim import ConvergenceWarning, Domain, InputError, InteractionHypergraph, IntractableError
from pyro_hoim.core.law import Law
from pyro_hoim.dependency_network import (
    DecisionGraph,
    DependencyConditionals,
    DependencyNetwork,
    LeafConditional,
    ModelConditional,
    PseudoGibbsChains,
    TableConditional,
    check_ergodic,
    cyclic_laws,
    fc_limit,
    full_conditionals,
    node_divergence,
    stationary_law,
)
from pyro_hoim.log_linear import Enumeration, LogLinearEnergy
from pyro_hoim.testing import assert_close, raises

MIXED = Domain.from_cardinalities({"a": 2, "b": 3, "c": 2, "d": 2})


def conditionals_of(probs):
    return full_conditionals(Law(Domain.from_cardinalities(probs.shape), torch.from_numpy(probs)))


def deterministic(functions):
    """Binary network whose variable i takes the value functions[i](state)."""
    domain = Domain.from_cardinalities([2] * len(functions))
    nodes = []
    for i, name in enumerate(domain.names):
        others = [j for j in range(len(functions)) if j != i]
        table = torch.zeros([2] * len(functions)).double()
        for values in itertools.product(range(2), repeat=len(others)):
            state = dict(zip(others, values, strict=True))
            level = functions[i](state)
            table[(*values, slice(None))] = torch.tensor([1.0 - level, level]).double()
        nodes.append(TableConditional(domain, name, [domain.names[j] for j in others], table))
    return DependencyConditionals(nodes)


# Oracles


@pytest.mark.parametrize("method", ["solve", "power"])
@pytest.mark.parametrize("scan", ["random", {"a": 0.1, "b": 0.2, "c": 0.3, "d": 0.4}])
def test_random_scan_is_the_fixed_law_of_the_mixed_matrix(method, scan):
    network = random_network(MIXED, 3)
    c = dict.fromkeys(MIXED.names, 0.25) if scan == "random" else scan
    matrix = sum(c[name] * update_matrix(network, name) for name in MIXED.names)
    law = stationary_law(network, scan=scan, method=method)
    assert_close(law.probs.ravel(), fixed_law(matrix), relative=1e-11)
    assert (law.method, law.scan.selection) == (method, pytest.approx(c))
    assert law.is_converged
    assert law.residual < 1e-12


@pytest.mark.parametrize("method", ["solve", "power"])
@pytest.mark.parametrize("order", ["sequential", ["c", "a", "d", "b"]])
def test_cyclic_laws_are_the_fixed_laws_of_rotated_sweeps(method, order):
    network = random_network(MIXED, 4)
    names = list(MIXED.names) if order == "sequential" else order
    laws = cyclic_laws(network, order, method=method)
    assert laws.scan.order == tuple(names)
    for k, name in enumerate(names):
        matrix = np.eye(24)
        for later in (*names[k:], *names[:k]):
            matrix = matrix @ update_matrix(network, later)
        expected = fixed_law(matrix)
        assert_close(laws.probs[k].ravel(), expected, relative=1e-11)
        assert_close(laws.before(name).ravel(), expected, relative=1e-11)
        assert_close(laws.after(name), (expected @ update_matrix(network, name)).reshape(2, 3, 2, 2), relative=1e-11)
    assert_close(laws.mean, laws.probs.mean(0))
    sequential = stationary_law(network, scan=order, method=method)
    assert_close(sequential.probs, laws.mean)
    assert sequential.scan == laws.scan


def test_after_an_update_the_conditional_is_the_networks_and_before_it_is_not():
    network = random_network(MIXED, 5)
    laws = cyclic_laws(network)
    for i, name in enumerate(MIXED.names):
        after, before = laws.after(name), laws.before(name)
        assert_close(after / after.sum(i, keepdim=True), network.full_table(name), relative=1e-11)
        assert float((before / before.sum(i, keepdim=True) - network.full_table(name)).abs().max()) > 1e-3


def test_scans_orders_and_selections_settle_at_different_laws():
    """The negative control of the tests above: none of these may be confused."""
    network = random_network(MIXED, 6)
    laws = [
        stationary_law(network),
        stationary_law(network, scan={"a": 0.1, "b": 0.1, "c": 0.1, "d": 0.7}),
        stationary_law(network, scan="sequential"),
        stationary_law(network, scan=["d", "a", "c", "b"]),
    ]
    for first, second in itertools.combinations(laws, 2):
        assert float((first.probs - second.probs).abs().sum()) > 1e-3


@pytest.mark.parametrize("scan", ["random", "sequential"])
@pytest.mark.parametrize("method", ["solve", "power"])
@pytest.mark.parametrize("cards", [[2], [3, 2], [2, 3, 4], [2] * 8])
def test_conditionals_of_a_joint_law_have_it_as_their_law(scan, method, cards, generator):
    hypergraph = InteractionHypergraph.from_order(Domain.from_cardinalities(cards), min(3, len(cards)))
    tables = 0.7 * torch.randn(hypergraph.num_terms, dtype=torch.float64, generator=generator)
    model = LogLinearEnergy(hypergraph, tables)
    joint = Enumeration().marginal(model, hypergraph.domain.names)
    law = stationary_law(DependencyConditionals.from_model(model), scan=scan, method=method)
    assert_close(law.probs, joint, relative=1e-10)


def test_closed_form_of_two_variables():
    """Node b is a fair coin, node a copies b with probability 9/10; by hand."""
    network = pair(torch.tensor([[0.9, 0.1], [0.1, 0.9]], dtype=torch.float64), torch.tensor([0.5, 0.5]).double())
    for share in (0.5, 0.2):
        # u = P(a = b): an update of a sets it to 9/10, an update of b to 1/2.
        agree = share * 0.9 + (1 - share) * 0.5
        expected = np.array([[agree, 1 - agree], [1 - agree, agree]]) / 2
        assert_close(stationary_law(network, scan={"a": share, "b": 1 - share}).probs, expected)
    laws = cyclic_laws(network)
    assert_close(laws.before("a"), [[0.25, 0.25], [0.25, 0.25]])
    assert_close(laws.before("b"), [[0.45, 0.05], [0.05, 0.45]])


def test_small_probabilities_are_right_to_rounding():
    generator = np.random.default_rng(8)
    log_probs = 25 * generator.standard_normal((2, 3, 2, 2))
    probs = np.exp(log_probs - log_probs.max())
    probs /= probs.sum()
    assert probs.min() < 1e-30
    law = stationary_law(conditionals_of(probs), method="solve")
    assert_close(law.probs.numpy() / probs, np.ones_like(probs), relative=1e-10)


def two_modes(size, coupling, field):
    """Joint law of spins on a complete graph: two modes, of unequal weight."""
    total = np.indices([2] * size).sum(0) * 2 - size
    log_probs = coupling * (total**2 - size) / 2 + field * total
    probs = np.exp(log_probs - log_probs.max())
    return probs / probs.sum()


@pytest.mark.parametrize("scan", ["random", "sequential"])
def test_slow_chains_are_solved_by_krylov_steps(scan):
    """Two modes that plain iteration leaves unbalanced for long."""
    probs = two_modes(10, 0.35, 0.02)
    law = stationary_law(conditionals_of(probs), scan=scan, method="power")
    assert law.is_converged
    assert law.num_iterations < 2500
    assert_close(law.probs, probs, relative=1e-8)
    assert_close(law.probs.numpy() / probs, np.ones_like(probs), relative=1e-7)


def test_chains_that_never_seem_to_leave_a_mode_are_eliminated():
    """The chain crosses once in some 10^35 steps. Any mixture of the modes seems to be at rest; one is the law."""
    probs = two_modes(11, 1.5, 0.1)
    weight = probs[np.indices([2] * 11).sum(0) > 5].sum()
    assert 0.85 < weight < 0.95
    law = stationary_law(conditionals_of(probs))
    assert law.method == "solve"
    assert_close(law.probs.numpy() / probs, np.ones_like(probs), relative=1e-9)
    # Control: iteration alone ends at another mixture, with a residual of rounding, and says so.
    with pytest.warns(ConvergenceWarning, match="hardly ever leave some sets of states"):
        wrong = stationary_law(conditionals_of(probs), method="power", max_iterations=2000)
    assert not wrong.is_converged
    assert wrong.residual < 1e-12
    assert float((wrong.probs - torch.from_numpy(probs)).abs().sum()) > 0.1
    assert wrong.error > 0.1


def test_cells_below_rounding_settle_relative_to_their_size():
    generator = np.random.default_rng(16)
    factors = generator.dirichlet([0.05, 0.05], size=11)
    probs = np.ones(())
    for factor in np.maximum(factors, 1e-4):
        probs = np.multiply.outer(probs, factor / factor.sum())
    probs /= probs.sum()
    assert probs.min() < 1e-20
    law = stationary_law(conditionals_of(probs), method="power")
    assert_close(law.probs.numpy() / probs, np.ones_like(probs), relative=1e-7)


def test_twelve_binary_variables_are_within_budget():
    network = random_network(Domain.from_cardinalities([2] * 12), 9, parents=4)
    law = stationary_law(network)
    assert law.method == "power"
    assert law.num_iterations < 1000
    flat = law.probs
    mixed = sum(flat.sum(i, keepdim=True) * network.full_table(name) for i, name in enumerate(network.domain.names))
    assert float((mixed / 12 - flat).abs().sum()) < 1e-12


# Clamped variables


@pytest.mark.parametrize("scan", ["random", "sequential"])
def test_clamped_variables_leave_the_network_of_the_others(scan):
    network = random_network(MIXED, 10)
    law = stationary_law(network, scan=scan, clamped={"b": 2})
    rest = stationary_law(network.condition({"b": 2}), scan=scan)
    assert (law.domain.names, law.clamped) == (("a", "c", "d"), {"b": 2})
    assert_close(law.probs, rest.probs)
    every = stationary_law(network, scan=scan, clamped={"a": 0, "b": "1", "c": 1, "d": 0})
    assert every.probs.shape == ()
    assert float(every.probs) == 1.0


def test_selection_of_free_variables_is_renormalised():
    network = random_network(MIXED, 11)
    law = stationary_law(network, scan={"a": 0.1, "b": 0.5, "c": 0.1, "d": 0.3}, clamped={"b": 0})
    assert law.scan.selection == pytest.approx({"a": 0.2, "c": 0.2, "d": 0.6})
    other = stationary_law(network, scan={"a": 0.2, "c": 0.2, "d": 0.6}, clamped={"b": 0})
    assert_close(law.probs, other.probs)


def test_variables_of_one_level_need_no_selection_probability():
    """They are updated to no effect, so every user of selection probabilities takes them alike."""
    domain = Domain.from_cardinalities({"a": 2, "c": 1, "b": 3})
    network = random_network(domain, 17)
    given = {"a": 0.4, "b": 0.6}
    law = stationary_law(network, scan=given)
    assert law.scan.selection == pytest.approx({"a": 0.4, "c": 0.0, "b": 0.6})
    assert_close(law.probs, stationary_law(network, scan={"a": 0.2, "c": 0.5, "b": 0.3}).probs)
    assert PseudoGibbsChains(network, 2, scan=given, engine="torch").scan.selection == pytest.approx(given)
    held = DependencyNetwork(network, scan=given)
    assert_close(held.probs, law.probs)
    assert held.condition({"a": 0}).scan.selection == pytest.approx({"c": 0.0, "b": 1.0})
    assert held.condition({"a": 0, "b": 0}).probs.tolist() == [1.0]
    assert fc_limit(law, network, given).value == pytest.approx(
        0.4 * node_divergence(law, network.node("a")) + 0.6 * node_divergence(law, network.node("b"))
    )
    assert fc_limit(law, full_conditionals(law), given).value == pytest.approx(0.0, abs=1e-12)
    assert stationary_law(network, scan=given, clamped={"a": 0, "b": 0}).probs.tolist() == [1.0]


def test_law_of_the_clamped_network_is_not_the_conditional_of_the_law():
    network = random_network(MIXED, 12)
    whole = stationary_law(network).probs[:, 1]
    clamped = stationary_law(network, clamped={"b": 1}).probs
    assert float((whole / whole.sum() - clamped).abs().sum()) > 1e-2
    generator = np.random.default_rng(12)
    joint = generator.dirichlet(np.ones(24)).reshape(2, 3, 2, 2)
    clamped = stationary_law(conditionals_of(joint), clamped={"x1": 1}).probs
    assert_close(clamped, joint[:, 1] / joint[:, 1].sum(), relative=1e-10)


# Zeros


def test_a_network_with_two_closed_sets_names_a_state_of_each():
    copies = deterministic([lambda s: s[1], lambda s: s[0]])
    for scan in ("random", "sequential"):
        with pytest.raises(InputError, match=r"2 closed sets .* around \(x0=0, x1=0\); \(x0=1, x1=1\); where"):
            stationary_law(copies, scan=scan)
    assert_close(stationary_law(copies, clamped={"x0": 1}).probs, [0.0, 1.0])


@pytest.mark.parametrize("method", ["solve", "power"])
@pytest.mark.parametrize("scan", ["random", "sequential"])
def test_states_that_are_left_for_ever_have_probability_zero(scan, method):
    either = deterministic([lambda s: 1, lambda s: s[0]])
    assert_close(stationary_law(either, scan=scan, method=method).probs, [[0, 0], [0, 1]], relative=1e-9)


@pytest.mark.parametrize("method", ["solve", "power"])
def test_periodic_sweeps_have_laws(method):
    """x0 becomes the opposite of x1, then x1 becomes x0: every sweep flips both."""
    opposite = deterministic([lambda s: 1 - s[1], lambda s: s[0]])
    laws = cyclic_laws(opposite, method=method)
    assert_close(laws.before("x0"), [[0.5, 0.0], [0.0, 0.5]])
    assert_close(laws.before("x1"), [[0.0, 0.5], [0.5, 0.0]])
    assert_close(stationary_law(opposite, method=method).probs, np.full((2, 2), 0.25))


@pytest.mark.parametrize("slip", [1e-4, 1e-10, 1e-17])
def test_nearly_periodic_sweeps_settle(slip):
    """Every sweep flips both, but for a slip: iteration without half steps would go round for ever."""
    flip = torch.tensor([[slip, 1 - slip], [1 - slip, slip]], dtype=torch.float64)
    laws = cyclic_laws(pair(flip, flip.flip(0)), method="power")
    assert laws.is_converged
    assert laws.num_iterations < 500
    assert_close(laws.before("a"), [[(1 - slip) / 2, slip / 2], [slip / 2, (1 - slip) / 2]])
    assert_close(laws.before("b"), [[slip / 2, (1 - slip) / 2], [(1 - slip) / 2, slip / 2]])


def test_closed_sets_of_a_sweep_are_found_beyond_those_of_single_updates():
    """Single updates connect all states; the parity of three variables survives a sweep and splits it in two."""
    turn = deterministic([lambda s: 1 - s[2], lambda s: s[0], lambda s: 1 - s[1]])
    updates = [update_matrix(turn, name) for name in turn.domain.names]
    for scan, matrix in (("random", sum(updates)), ("sequential", np.linalg.multi_dot(updates))):
        reach = np.linalg.matrix_power(np.eye(8) + matrix, 8) > 0
        sets = [np.flatnonzero(row) for row in reach]
        closed = {tuple(inside) for inside in sets if all(tuple(sets[x]) == tuple(inside) for x in inside)}
        found = check_ergodic(turn, scan=scan)
        assert (found.num_closed, found.num_transient) == (len(closed), 8 - sum(map(len, closed)))
        with raises("no-method", "conditionals"):
            stationary_law(turn, scan=scan)


# Arguments


EQUAL = {"a": 0.25, "b": 0.25, "c": 0.25, "d": 0.25}


@pytest.mark.parametrize(
    ("call", "code", "argument"),
    [
        (lambda n: stationary_law([]), "wrong-type", "conditionals"),
        (lambda n: stationary_law(n, scan="zigzag"), "unknown-choice", "scan"),
        (lambda n: stationary_law(n, scan=3), "unknown-choice", "scan"),
        (lambda n: cyclic_laws(n, "random"), "conflict", "scan"),
        (lambda n: cyclic_laws(n, ["a", "b", "c"]), "missing-part", "scan"),
        (lambda n: cyclic_laws(n, ["a", "b", "c", "d", "a"]), "repeated-name", "scan"),
        (lambda n: cyclic_laws(n, ["a", "b", "c", "e"]), "unknown-name", "scan"),
        (lambda n: cyclic_laws(n).before("e"), "unknown-name", None),
        (lambda n: stationary_law(n, clamped={"b": 3}), "out-of-range", None),
        (lambda n: stationary_law(n, scan=[0.25] * 4), "unknown-name", "scan"),
        (lambda n: stationary_law(n, scan={"a": 1.0}), "out-of-range", "scan"),
        (lambda n: stationary_law(n, scan={**EQUAL, "a": -1, "b": 1.5}), "out-of-range", "scan"),
        (lambda n: stationary_law(n, scan={**EQUAL, "a": 0.45}), "out-of-range", "scan"),
        (lambda n: stationary_law(n, scan={"a": 0.5, "z": 0.5}), "unknown-name", "scan"),
        *(
            (lambda n, w=wrong: stationary_law(n, scan={**EQUAL, "a": w}, clamped={"a": 0}), "out-of-range", "scan")
            for wrong in ("x", True, float("nan"), math.inf)
        ),
        (lambda n: stationary_law(n, clamped=["a"]), "wrong-type", "clamped"),
        (lambda n: stationary_law(n, method="magic"), "unknown-choice", "method"),
        (lambda n: stationary_law(n, max_iterations=0), "out-of-range", "max_iterations"),
        (lambda n: stationary_law(n, max_states="many"), "wrong-type", "max_states"),
        (lambda n: stationary_law(n, max_states=True), "wrong-type", "max_states"),
    ],
)
def test_bad_arguments_are_refused(call, code, argument):
    with raises(code, argument):
        call(random_network(MIXED, 13))


def test_orders_may_name_clamped_variables():
    network = random_network(MIXED, 13)
    laws = cyclic_laws(network, ["d", "b", "a", "c"], clamped={"b": 0})
    assert laws.scan.order == ("d", "a", "c")
    assert_close(laws.probs, cyclic_laws(network, ["d", "a", "c"], clamped={"b": 0}).probs)


def test_large_laws_are_refused_before_any_work():
    network = random_network(Domain.from_cardinalities([2] * 17), 14, parents=1)
    with pytest.raises(
        IntractableError, match=r"a table of 131072 cells.*, the budget is max_states=65536; raise max_states"
    ):
        stationary_law(network)
    with pytest.raises(IntractableError, match="solve takes at most 4096 states, received 8192"):
        stationary_law(network, method="solve", clamped=dict.fromkeys(network.domain.names[:4], 0))
    assert stationary_law(network, clamped=dict.fromkeys(network.domain.names[:8], 0)).probs.shape == (2,) * 9


def test_an_iteration_that_is_cut_short_says_so():
    """Two variables that copy each other: the slowest mode alone is left, and its geometric series is the error."""
    copies = torch.tensor([[[0.98, 0.02], [0.05, 0.95]], [[0.97, 0.03], [0.03, 0.97]]], dtype=torch.float64)
    network = pair(*copies)
    with pytest.warns(ConvergenceWarning, match="did not settle within 16 iterations"):
        law = stationary_law(network, method="power", max_iterations=10)
    assert not law.is_converged
    exact = stationary_law(network, method="solve")
    assert law.error == pytest.approx(float((law.probs - exact.probs).abs().sum()), rel=1e-6) and law.error > 0.01


# Ergodicity: networks with known faults, and eigenvalues of transition matrices


LABELLED = Domain.from_labels({"a": ["no", "yes"], "b": ["no", "yes"]})
COPY, NEGATE = torch.eye(2), torch.eye(2).flip(0)
scans = pytest.mark.parametrize("scan", ["random", "sequential"])


def labelled(of_a, of_b):
    """Two variables that read each other."""
    return pair(of_a, of_b, LABELLED)


def absorbing():
    """Once both are yes they stay."""
    stay = torch.tensor([[0.5, 0.5], [0.0, 1.0]])
    return labelled(stay, stay)


@scans
def test_positive_networks_of_any_size_are_ergodic(scan):
    domain = Domain.from_cardinalities([3] * 200)
    probs = torch.tensor([[0.2, 0.3, 0.5]] * 3)
    names = domain.names
    nodes = [TableConditional(domain, names[i], [names[i - 1]], probs) for i in range(200)]
    found = check_ergodic(DependencyConditionals(nodes), scan=scan)
    assert (found.is_ergodic, found.has_unique_law, found.method, found.zero_nodes) == (True, True, "positive", ())
    assert found.message == "the chain is ergodic"
    hypergraph = InteractionHypergraph.from_order(domain.project(names[:40]), 2)
    model = DependencyConditionals.from_model(LogLinearEnergy(hypergraph, torch.zeros(hypergraph.num_terms)))
    assert check_ergodic(model, scan=scan).is_ergodic


@scans
def test_two_closed_classes_are_named_and_refused(scan):
    found = check_ergodic(labelled(COPY, COPY), scan=scan)
    assert (found.is_ergodic, found.has_unique_law, found.method) == (False, False, "enumeration")
    assert (found.num_closed, found.zero_nodes) == (2, ("a", "b"))
    assert (found.closed_states, found.num_transient) == (({"a": "no", "b": "no"}, {"a": "yes", "b": "yes"}), 2)
    assert found.transient_states == ({"a": "no", "b": "yes"}, {"a": "yes", "b": "no"})
    with pytest.raises(
        InputError,
        match="no single limiting law: the chain cannot go between a=no, b=no; a=yes, b=yes; smooth the conditionals "
        "of 'a', 'b', or pass check=False",
    ):
        PseudoGibbsChains(labelled(COPY, COPY), 4, scan=scan)
    chains = PseudoGibbsChains(
        labelled(COPY, COPY), 4, scan=scan, init=torch.tensor([0, 1]), check=False, engine="torch"
    )
    chains.sweep(20)
    assert bool((chains.states[:, 0] == chains.states[:, 1]).all())


@scans
def test_an_absorbing_state_is_named_and_reached(scan):
    found = check_ergodic(absorbing(), scan=scan)
    assert (found.is_ergodic, found.has_unique_law, found.num_closed) == (False, True, 1)
    assert (found.closed_states, found.num_transient) == (({"a": "yes", "b": "yes"},), 3)
    assert found.transient_states[0] == {"a": "no", "b": "no"}
    assert found.message == (
        "the chain has a single limiting law; 3 states have probability zero in it, such as a=no, b=no"
    )
    chains = PseudoGibbsChains(absorbing(), 50, scan=scan, engine="torch")
    chains.sweep(300)
    assert chains.states.tolist() == [[1, 1]] * 50


def test_a_periodic_sequential_scan_is_refused_and_the_random_scan_is_not():
    conditionals = labelled(COPY, NEGATE)
    found = check_ergodic(conditionals, scan="sequential")
    assert (found.is_ergodic, found.has_unique_law, found.period, found.num_closed) == (False, False, 2, 1)
    with pytest.raises(
        InputError,
        match=r"the sequential scan is periodic: from a=no, b=yes it comes back every 2 sweeps only; "
        r"stationary_law\(scan='sequential'\) gives the mean of its cyclic laws; to sample, use the random scan",
    ):
        PseudoGibbsChains(conditionals, 4, scan="sequential")
    law = stationary_law(conditionals, scan="sequential")  # which the message promises
    assert law.probs.tolist() == [[0.25, 0.25], [0.25, 0.25]]
    chains = PseudoGibbsChains(
        conditionals, 1, scan="sequential", init=torch.tensor([0, 1]), check=False, engine="torch"
    )
    record = chains.sweep(4, thin=1, states=True)
    assert record.states[:, 0].tolist() == [[1, 0], [0, 1], [1, 0], [0, 1]]
    found = check_ergodic(conditionals, scan="random")
    assert (found.is_ergodic, found.period, found.num_transient) == (True, 1, 0)
    PseudoGibbsChains(conditionals, 4, engine="torch")


@scans
def test_a_level_that_is_never_drawn_leaves_transient_states(scan):
    conditionals = labelled(torch.tensor([[0.5, 0.5], [0.3, 0.7]]), torch.tensor([[1.0, 0.0], [1.0, 0.0]]))
    found = check_ergodic(conditionals, scan=scan)
    assert (found.is_ergodic, found.has_unique_law, found.zero_nodes) == (False, True, ("b",))
    assert found.transient_states == ({"a": "no", "b": "yes"}, {"a": "yes", "b": "yes"})


def sparse_network(seed):
    """Three variables with many zero probabilities; two are decision graphs."""
    rng = np.random.default_rng(seed)
    domain = Domain.from_cardinalities({"a": 2, "b": 3, "c": 2})

    def laws(*shape):
        weights = rng.random(shape) * (rng.random(shape) < rng.choice([0.4, 0.6, 0.9]))
        weights[weights.sum(-1) == 0] = np.eye(shape[-1])[rng.integers(shape[-1])]
        return torch.from_numpy(weights / weights.sum(-1, keepdims=True))

    of_a = DecisionGraph(domain, "a").split(0, "b").split(0, "c").merge(0, 3)
    of_c = DecisionGraph(domain, "c").split(0, "a").split(0, "b")
    nodes = [
        LeafConditional(of_a, laws(of_a.num_leaves, 2)),
        TableConditional(domain, "b", ["a", "c"], laws(2, 2, 3)),
        LeafConditional(of_c, laws(of_c.num_leaves, 2)),
    ]
    return DependencyConditionals(nodes)


def sweep_matrix(conditionals, names, scan):
    """Transition matrix of a sequential sweep, or of one update at random."""
    steps = [update_matrix(conditionals, name) for name in names]
    return np.linalg.multi_dot(steps) if scan == "sequential" else np.mean(steps, 0)


@pytest.mark.fixed_seed  # these networks show every kind of verdict
@scans
def test_verdicts_agree_with_eigenvalues(scan):
    """Eigenvalues of modulus one are one for each closed class, or as many as its period."""
    seen = set()
    for seed in range(150):
        conditionals = sparse_network(seed)
        found = check_ergodic(conditionals, scan=["c", "a", "b"] if scan == "sequential" else scan)
        matrix = sweep_matrix(conditionals, "cab", scan)
        values = np.linalg.eigvals(matrix)
        num_one = int((np.abs(values - 1) < 1e-8).sum())
        num_modulus = int((np.abs(values) > 1 - 1e-8).sum())
        assert (found.num_closed, found.has_unique_law) == (num_one, num_modulus == 1)
        assert (found.period == 1) == (num_modulus == num_one)
        limit = np.linalg.matrix_power((matrix + np.eye(12)) / 2, 2**20)
        num_transient = int((limit.max(0) < 1e-9).sum())
        assert found.num_transient == num_transient
        for named, is_transient in ((found.transient_states, True), (found.closed_states, False)):
            for state in named:
                codes = conditionals.domain.encode_state(state)
                place = np.ravel_multi_index([codes[n] for n in "abc"], conditionals.domain.cardinalities)
                assert (limit.max(0)[place] < 1e-9) == is_transient
        assert found.is_ergodic == (num_modulus == 1 and num_transient == 0)
        small = check_ergodic(conditionals, scan=scan, max_states=1)  # as if there were too many states
        assert small.method in ("positive", "common state", "undecided")
        if small.method != "undecided":
            assert found.has_unique_law
        seen.add((found.has_unique_law, bool(num_transient), found.period, small.method))
    assert len(seen) >= (6 if scan == "sequential" else 4), seen
    assert {method for *_, method in seen} == {"positive", "common state", "undecided"}


def chain_of(num, probs):
    """Every variable reads the one before it, the first one the last."""
    domain = Domain.from_cardinalities([2] * num)
    return DependencyConditionals(
        TableConditional(domain, domain.names[i], [domain.names[i - 1]], probs) for i in range(num)
    )


def test_large_networks_are_decided_by_a_common_state_or_not_at_all():
    common = chain_of(60, torch.tensor([[0.5, 0.5], [1.0, 0.0]]))  # 0 is always possible
    found = check_ergodic(common)
    assert (found.is_ergodic, found.has_unique_law, found.method) == (None, True, "common state")
    PseudoGibbsChains(common, 2, engine="torch")
    domain = Domain.from_cardinalities([2] * 60)
    nodes = [TableConditional(domain, "x0", [], torch.tensor([0.5, 0.5]))]
    nodes += [TableConditional(domain, f"x{i}", [f"x{i - 1}"], COPY) for i in range(1, 60)]
    assert check_ergodic(DependencyConditionals(nodes)).method == "common state"  # once x0 is settled the others are
    copies = chain_of(60, COPY)
    found = check_ergodic(copies)
    assert (found.is_ergodic, found.has_unique_law, found.method) == (None, None, "undecided")
    assert found.zero_nodes == copies.domain.names
    with pytest.warns(ConvergenceWarning, match="not known whether.*'x0', 'x1'.*zero probabilities"):
        PseudoGibbsChains(copies, 2, engine="torch")
    assert check_ergodic(chain_of(8, COPY)).num_closed == 2  # the control: small enough to see that it is not


def test_foreign_conditionals_are_looked_at_too():
    always = TableConditional(LABELLED, "a", [], torch.tensor([1.0, 0.0]))
    sure = ModelConditional(DependencyConditionals([always, TableConditional(LABELLED, "b", ["a"], COPY)]), "a")
    found = check_ergodic(DependencyConditionals([sure, TableConditional(LABELLED, "b", ["a"], COPY)]))
    assert found.closed_states == ({"a": "no", "b": "no"},)
    assert found.has_unique_law


@scans
def test_clamped_networks_are_judged_for_every_combination(scan):
    domain = Domain.from_labels({"a": ["no", "yes"], "b": ["no", "yes"], "s": ["free", "tied"]})
    half = torch.full((2,), 0.5)
    tied = torch.stack([half.expand(2, 2), COPY])  # (s, other, own)
    nodes = [
        TableConditional(domain, "a", ["s", "b"], tied),
        TableConditional(domain, "b", ["s", "a"], tied),
        TableConditional(domain, "s", [], half),
    ]
    conditionals = DependencyConditionals(nodes)
    assert check_ergodic(conditionals, scan=scan).is_ergodic
    assert check_ergodic(conditionals, {"s": "free"}, scan=scan).is_ergodic
    for value in ("tied", torch.tensor([0, 1, 0])):
        found = check_ergodic(conditionals, {"s": value}, scan=scan)
        assert (found.has_unique_law, found.num_closed) == (False, 2)
        assert found.closed_states[0] == {"a": "no", "b": "no", "s": "tied"}
        with pytest.raises(InputError, match="cannot go between a=no, b=no, s=tied; a=yes, b=yes, s=tied"):
            PseudoGibbsChains(conditionals, 3, scan=scan, clamped={"s": value})


@pytest.mark.fixed_seed  # these networks show every kind of verdict
def test_many_combinations_are_judged_like_each_by_itself():
    """All rows in one graph, against one row at a time."""
    rng = np.random.default_rng(3)
    domain = Domain.from_cardinalities({"a": 2, "b": 3, "c": 2, "s": 40})

    def laws(*shape):
        weights = rng.random(shape) * (rng.random(shape) < 0.5)
        weights[weights.sum(-1) == 0] = np.eye(shape[-1])[0]
        return torch.from_numpy(weights / weights.sum(-1, keepdims=True))

    nodes = [
        TableConditional(domain, "a", ["s", "b"], laws(40, 3, 2)),
        TableConditional(domain, "b", ["s", "a", "c"], laws(40, 2, 2, 3)),
        TableConditional(domain, "c", ["s", "b"], laws(40, 3, 2)),
        TableConditional(domain, "s", [], torch.full((40,), 1 / 40, dtype=torch.float64)),
    ]
    conditionals = DependencyConditionals(nodes)
    single = [check_ergodic(conditionals, {"s": s}) for s in range(40)]
    assert {found.num_closed for found in single} >= {1, 2}
    together = check_ergodic(conditionals, {"s": torch.arange(40)})
    assert together.num_closed == max(found.num_closed or 0 for found in single)
    assert together.num_transient == sum(found.num_transient or 0 for found in single)
    first = next(found for found in single if found.num_closed == together.num_closed)
    assert together.closed_states == first.closed_states
    transient = [state for found in single for state in found.transient_states]
    assert together.transient_states == tuple(transient[:3])
    unique = [s for s, found in enumerate(single) if found.has_unique_law]
    assert 0 < len(unique) < 40
    assert check_ergodic(conditionals, {"s": torch.tensor(unique)}).has_unique_law
    assert not check_ergodic(conditionals, {"s": torch.arange(40)}).has_unique_law


@pytest.mark.parametrize("num", [2, 60])
def test_evidence_of_probability_zero_is_refused(num):
    """Small networks by enumeration, large ones by the conditional of a clamped variable."""
    domain = Domain.from_cardinalities([2] * num)
    positive = torch.tensor([[0.5, 0.5], [0.3, 0.7]])
    nodes = [TableConditional(domain, "x0", [], torch.tensor([1.0, 0.0]))]
    nodes += [TableConditional(domain, f"x{i}", [f"x{i - 1}"], positive) for i in range(1, num)]
    conditionals = DependencyConditionals(nodes)
    with pytest.raises(InputError, match=r"clamped: x0=1 has probability zero.*pass check=False"):
        PseudoGibbsChains(conditionals, 3, clamped={"x0": 1})
    with pytest.raises(InputError, match="clamped: x0=1"):
        PseudoGibbsChains(conditionals, 2, clamped={"x0": [0, 1]})
    every = {name: int(i == 0) for i, name in enumerate(domain.names)}
    with pytest.raises(InputError, match="clamped: x0=1"):
        PseudoGibbsChains(conditionals, 3, clamped=every)
    chains = PseudoGibbsChains(conditionals, 3, clamped={"x0": 1}, check=False, engine="torch")
    chains.sweep(2)
    assert chains.states[:, 0].tolist() == [1, 1, 1]
    assert not check_ergodic(conditionals, {"x0": 0}).impossible
    assert not check_ergodic(conditionals, {"x1": 1}).impossible


def test_bad_arguments():
    with raises("unknown-choice", "scan"):
        check_ergodic(absorbing(), scan="cyclic")
