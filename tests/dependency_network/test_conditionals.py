"""Conditionals of one variable and networks of them, against tables over every joint state."""

import itertools
import json
import math
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from network_oracles import all_states, laws, partition

from pyro_hoim import Domain, InteractionHypergraph, LogLinearEnergy, Observations, Variable
from pyro_hoim.core import ConditionalModel, EnergyModel, Law
from pyro_hoim.dependency_network import (
    ClampedConditional,
    DecisionGraph,
    DependencyConditionals,
    DependencyNetwork,
    LeafConditional,
    Merge,
    ModelConditional,
    NetworkFile,
    NodeConditional,
    PseudoGibbsChains,
    Split,
    TableConditional,
    check_ergodic,
    fc_limit,
    node_divergence,
    predict_network,
    stationary_law,
)
from pyro_hoim.dependency_network.study.scores import network_log_likelihood
from pyro_hoim.errors import InputError, InputTypeError, IntractableError, UnknownNameError
from pyro_hoim.testing import assert_close, enumerate_codes, exact_table, raises

from support.strategies import domains, models

DOMAIN = Domain.from_cardinalities({"a": 2, "b": 3, "c": 2, "d": 1})
EXACT = {"rtol": 1e-10, "atol": 1e-12}


def states(domain):
    return torch.from_numpy(enumerate_codes(domain.cardinalities))


def random_table(domain, variable, parents, seed):
    shape = tuple(domain[name].cardinality for name in (*parents, variable))
    return TableConditional(domain, variable, parents, laws(shape, seed))


def random_leaf(domain, variable, seed):
    """A graph of two rounds of splits and one merge, where the domain has room for them."""
    rng = np.random.default_rng(seed)
    graph = DecisionGraph(domain, variable)
    for name in rng.permutation([n for n in domain.names if n != variable])[:2]:
        graph = graph.split(int(rng.integers(graph.num_leaves)), str(name))
    if graph.num_leaves > 2:
        graph = graph.merge(0, graph.num_leaves - 1)
    return LeafConditional(graph, laws((graph.num_leaves, domain[variable].cardinality), seed))


def random_network(domain, seed=0):
    """Leaf tables and plain tables in turn."""
    nodes = []
    for i, name in enumerate(domain.names):
        others = [n for n in domain.names if n != name]
        if i % 2:
            nodes.append(random_leaf(domain, name, seed + i))
        else:
            nodes.append(random_table(domain, name, others[::-1][:2], seed + i))
    return DependencyConditionals(nodes)


# Conditionals of one variable


def by_loop(node, leaf_of=None):
    """Every state with the row of the table that it selects."""
    domain = node.domain
    for x in itertools.product(*(range(n) for n in domain.cardinalities)):
        if isinstance(node, TableConditional):
            yield x, node.probs[tuple(x[domain.index(p)] for p in node.parents)]
        else:
            yield x, node.probs[int(leaf_of(torch.tensor(x)))]


@given(domains(min_variables=1, max_variables=4, max_states=60), st.integers(0, 1000))
def test_tables_select_the_row_of_their_parents(domain, seed):
    names = list(np.random.default_rng(seed).permutation(domain.names))
    variable, parents = str(names[0]), [str(n) for n in names[1:]]
    for used in (parents, parents[:1], []):
        node = random_table(domain, variable, used, seed)
        expected = torch.stack([row.log() for _, row in by_loop(node)])
        assert torch.equal(node.log_probs(states(domain)), expected)
        assert node.reads == tuple(n for n in domain.names if n in used)


@given(domains(min_variables=1, max_variables=4, max_states=60), st.integers(0, 1000))
def test_leaf_tables_select_the_row_of_the_replayed_leaf(domain, seed):
    node = random_leaf(domain, domain.names[seed % len(domain)], seed)
    expected = torch.stack([row.log() for _, row in by_loop(node, node.graph.leaves)])
    assert torch.equal(node.log_probs(states(domain)), expected)


@pytest.mark.parametrize("kind", ["table", "leaf", "model", "clamped"])
def test_laws_of_a_conditional(kind):
    node = some_node(kind)
    x = states(node.domain)
    assert isinstance(node, NodeConditional)
    found = node.log_probs(x)
    assert found.shape == (len(x), node.domain[node.variable].cardinality)
    torch.testing.assert_close(found.exp().sum(-1), torch.ones(len(x), dtype=torch.float64), **EXACT)
    own = node.domain.index(node.variable)
    broken = x.clone()
    broken[:, own] = 7 if kind != "model" else 0
    assert torch.equal(node.log_probs(broken), found)
    for name in node.domain.names:
        if name not in node.reads and name != node.variable:
            moved = x.clone()
            moved[:, node.domain.index(name)] = 0
            assert torch.equal(node.log_probs(moved), found)
    assert (node.log_probs(x[0]).shape, node.log_probs(x[:0]).shape) == (found.shape[1:], (0, found.shape[1]))
    assert torch.equal(node.log_probs(x.reshape(2, -1, x.shape[1])), found.reshape(2, -1, found.shape[1]))
    copy = pickle.loads(pickle.dumps(node))
    assert torch.equal(copy.log_probs(x), found)
    assert node.variable in repr(node)


def some_node(kind):
    match kind:
        case "table":
            return random_table(DOMAIN, "b", ["c", "a"], 0)
        case "leaf":
            return random_leaf(DOMAIN, "b", 1)
        case "model":
            graph = InteractionHypergraph(DOMAIN, [("a", "b"), ("c",)], closure=True)
            return ModelConditional(LogLinearEnergy(graph, torch.linspace(-1, 1, graph.num_terms).double()), "b")
        case _:
            return ClampedConditional(random_table(DOMAIN, "b", ["c", "a"], 0), {"c": 1})


def test_relabelled_levels_permute_the_table_and_nothing_else():
    node = random_table(DOMAIN, "b", ["c", "a"], 3)
    order = torch.tensor([2, 0, 1])  # the new code of every level of b, as own variable and as parent
    x = states(DOMAIN)
    moved = x.clone()
    moved[:, 1] = order[x[:, 1]]
    twin = TableConditional(DOMAIN, "b", ["c", "a"], node.probs[..., order.argsort()])
    assert torch.equal(twin.log_probs(moved)[:, order], node.log_probs(x))
    child = random_table(DOMAIN, "a", ["b"], 3)
    assert torch.equal(
        TableConditional(DOMAIN, "a", ["b"], child.probs[order.argsort()]).log_probs(moved), child.log_probs(x)
    )


def test_zeros_are_minus_infinity_with_finite_gradients():
    probs = torch.tensor([[0.0, 1.0], [0.25, 0.75]], dtype=torch.float64, requires_grad=True)
    node = TableConditional(Domain.from_cardinalities({"a": 2, "b": 2}), "b", ["a"], probs)
    found = node.log_probs(torch.tensor([[0, 0], [1, 0]]))
    assert found.tolist() == [[-math.inf, 0.0], [math.log(0.25), math.log(0.75)]]
    found[:, 1].sum().backward()
    assert probs.grad.tolist() == [[0.0, 1.0], [0.0, 1 / 0.75]]
    assert node.has_zeros
    assert not random_table(DOMAIN, "b", [], 0).has_zeros


def test_a_variable_of_one_level_has_probability_one():
    node = TableConditional(DOMAIN, "d", ["a"], torch.ones(2, 1))
    assert node.log_probs(states(DOMAIN)).tolist() == [[0.0]] * 12
    leaf = LeafConditional(DecisionGraph(DOMAIN, "d").split(0, "b"), torch.ones(3, 1))
    assert leaf.log_probs(states(DOMAIN)).tolist() == [[0.0]] * 12


def test_precision_follows_the_table():
    node = random_leaf(DOMAIN, "b", 0)
    single = node.to(dtype=torch.float32)
    x = states(DOMAIN)
    assert single.log_probs(x).dtype == torch.float32
    torch.testing.assert_close(single.log_probs(x).double(), node.log_probs(x), rtol=1e-6, atol=1e-6)
    back = single.to(dtype=torch.float64)
    assert torch.equal(back.probs.sum(-1), torch.ones(node.graph.num_leaves, dtype=torch.float64))
    table = TableConditional(DOMAIN, "a", ["b"], torch.tensor([[0.1, 0.9], [0.3, 0.7], [0.6, 0.4]]))
    assert (table.log_probs(x).dtype, table.to(dtype=torch.float64).probs.dtype) == (torch.float32, torch.float64)
    assert some_node("model").to(dtype=torch.float32).log_probs(x).dtype == torch.float32


ROWS = torch.tensor([[0.5, 0.5], [0.5, 0.5], [0.5, 0.5]])


def table_of_a(parents, probs):
    return TableConditional(DOMAIN, "a", parents, probs)


@pytest.mark.parametrize(
    ("call", "code", "argument"),
    [
        (lambda: table_of_a(["b"], ROWS[:2]), "wrong-shape", "probs"),
        (lambda: table_of_a(["b"], ROWS.tolist()), "wrong-type", "probs of 'a'"),
        (lambda: table_of_a(["b"], ROWS.half()), "wrong-type", "probs of 'a'"),
        (lambda: table_of_a(["b"], ROWS.long()), "wrong-type", "probs of 'a'"),
        (lambda: table_of_a(["b"], ROWS + 0.01), "out-of-range", "probs of 'a'"),
        (lambda: table_of_a(["b"], torch.where(torch.eye(3, 2) > 0, 0.4, ROWS)), "out-of-range", "probs of 'a'"),
        (lambda: table_of_a([], torch.tensor([1.5, -0.5])), "out-of-range", "probs of 'a'"),
        (lambda: table_of_a([], torch.tensor([math.nan, 1.0])), "out-of-range", "probs of 'a'"),
        (lambda: table_of_a([], torch.tensor([math.inf, 1.0])), "out-of-range", "probs of 'a'"),
        (lambda: table_of_a(["a"], ROWS[:2]), "other-domain", "parents"),
        (lambda: table_of_a(["b", "b"], ROWS), "repeated-name", "parents"),
        (lambda: table_of_a("b", ROWS), "wrong-type", "parents"),
        (lambda: table_of_a(["z"], ROWS), "unknown-name", "parents"),
        (lambda: TableConditional(DOMAIN, "z", ["b"], ROWS), "unknown-name", None),
        (lambda: TableConditional(["a"], "a", [], ROWS), "wrong-type", "domain"),
        (lambda: LeafConditional("graph", ROWS), "wrong-type", "graph"),
        (lambda: LeafConditional(DecisionGraph(DOMAIN, "a"), ROWS), "wrong-shape", "probs"),
        (lambda: LeafConditional(DecisionGraph(DOMAIN, "a"), ROWS[:1] - 0.1), "out-of-range", "probs of 'a'"),
        (lambda: random_table(DOMAIN, "a", ["b"], 0).log_probs(torch.tensor([0, 3, 0, 0])), "out-of-range", "x"),
        (lambda: random_leaf(DOMAIN, "a", 0).log_probs(torch.tensor([0, 0])), "wrong-shape", "x"),
        (lambda: random_table(DOMAIN, "a", ["b"], 0).condition({"a": 1}), "other-domain", "evidence"),
        (lambda: random_table(DOMAIN, "a", ["b"], 0).condition({"b": 5}), "out-of-range", None),
        (lambda: ModelConditional("model", "a"), "wrong-type", "model"),
        (
            lambda: ModelConditional(LogLinearEnergy(InteractionHypergraph(DOMAIN), torch.zeros(5, 0)), "a"),
            "wrong-shape",
            "model",
        ),
    ],
)
def test_unsuitable_conditionals_are_refused(call, code, argument):
    with raises(code, argument):
        call()


def test_the_row_that_is_no_law_is_named():
    with pytest.raises(InputError, match=r"probs of 'a': .* row \(0, 0\) sums to 0\.999996"):
        table_of_a(["c", "b"], torch.full((2, 3, 2), 0.5) - 2e-6)
    with pytest.raises(InputError, match=r"leaf 2 sums to 0\.5"):
        LeafConditional(DecisionGraph(DOMAIN, "d").split(0, "b"), torch.tensor([[1.0], [1.0], [0.5]]))


def test_control_sums_within_rounding_are_accepted():
    probs = torch.full((3, 2), 0.5) - 4e-7
    assert TableConditional(DOMAIN, "a", ["b"], probs).probs is probs
    with pytest.raises(InputError, match=r"sums to"):
        TableConditional(DOMAIN, "a", ["b"], probs.double())


# Networks


@given(domains(min_variables=1, max_variables=4, max_states=60), st.integers(0, 1000))
def test_pseudo_probability_is_the_product_of_the_selected_entries(domain, seed):
    network = random_network(domain, seed)
    x = states(domain)
    expected = torch.zeros(len(x), len(domain), dtype=torch.float64)
    for i, node in enumerate(network.nodes):
        rows = by_loop(node, getattr(getattr(node, "graph", None), "leaves", None))
        expected[:, i] = torch.stack([row[state[i]].log() for state, row in rows])
    assert torch.equal(network.log_conditionals(x), expected)
    assert torch.equal(network.log_pseudo_prob(x), expected.sum(-1))
    # The same numbers from the full tables, whose axis i sums to one.
    for i, name in enumerate(domain.names):
        table = network.full_table(name)
        assert tuple(table.shape) == domain.cardinalities
        torch.testing.assert_close(table.reshape(-1), expected[:, i].exp(), **EXACT)
        torch.testing.assert_close(table.sum(i), torch.ones_like(table.sum(i)), **EXACT)
    assert not any(node.has_zeros for node in network.nodes)


@given(models())
def test_conditionals_of_a_model_are_those_of_its_law(random_model):
    graph = random_model.hypergraph
    model = LogLinearEnergy(graph, random_model.tables)
    network = DependencyConditionals.from_model(model)
    law = torch.from_numpy(exact_table(graph, model.tables))
    for i, name in enumerate(graph.domain.names):
        torch.testing.assert_close(network.full_table(name), torch.softmax(law, i), **EXACT)
    x = states(graph.domain)
    torch.testing.assert_close(network.log_pseudo_prob(x), model.log_pseudo_prob(x), **EXACT)
    assert not any(node.has_zeros for node in network.nodes)
    assert set(network.edges) == {(s, t) for e in graph.edges for s in e for t in e if s != t}


def test_structure_of_a_network():
    nodes = [random_table(DOMAIN, "c", ["b", "a"], 1), random_table(DOMAIN, "a", ["c"], 2), random_leaf(DOMAIN, "b", 3)]
    last = TableConditional(DOMAIN, "d", [], torch.ones(1))
    network = DependencyConditionals([*nodes, last])
    assert [node.variable for node in network.nodes] == ["a", "b", "c", "d"]
    assert network.node("c") is nodes[0]
    assert network.domain == DOMAIN
    into_b = tuple((name, "b") for name in nodes[2].reads)
    assert network.edges == (("c", "a"), *into_b, ("a", "c"), ("b", "c"))
    assert isinstance(network, ConditionalModel)
    assert not isinstance(network, EnergyModel)
    assert repr(network) == f"DependencyConditionals(4 variables, {len(network.edges)} edges)"
    x = states(DOMAIN)
    assert torch.equal(network.block_conditional(["c"], x), nodes[0].log_probs(x))
    copy = pickle.loads(pickle.dumps(network))
    assert torch.equal(copy.log_pseudo_prob(x), network.log_pseudo_prob(x))


def test_zeros_are_named():
    table = TableConditional(DOMAIN, "a", ["b"], torch.tensor([[0.0, 1.0], [0.5, 0.5], [0.5, 0.5]]))
    nodes = [table, random_leaf(DOMAIN, "b", 0), random_table(DOMAIN, "c", [], 0)]
    network = DependencyConditionals([*nodes, TableConditional(DOMAIN, "d", [], torch.ones(1))])
    assert [node.variable for node in network.nodes if node.has_zeros] == ["a"]
    x = torch.tensor([[0, 0, 1, 0], [1, 0, 1, 0]])
    assert network.log_pseudo_prob(x)[0] == -math.inf
    assert torch.isfinite(network.log_pseudo_prob(x)[1])

    class Silent:
        domain, variable, reads = DOMAIN, "a", ()

        def log_probs(self, x):
            return torch.full((*x.shape[:-1], 2), math.log(0.5))

    class Outspoken(Silent):
        has_zeros = False

    assert not DependencyConditionals([Outspoken(), *nodes[1:], network.node("d")]).node("a").has_zeros
    with pytest.raises(InputTypeError, match="received Silent"):
        DependencyConditionals([Silent(), *nodes[1:], network.node("d")])


def excluding(seed):
    """A model whose table over all columns excludes states at random, as whole fibres of single columns."""
    domain = Domain.from_cardinalities({"a": 2, "b": 3, "c": 2})
    rng = np.random.default_rng(seed)
    log_weights = np.where(rng.random((2, 3, 2)) < 0.6, -math.inf, rng.normal(size=(2, 3, 2)))
    log_weights[seed % 2, :, 0] = -math.inf
    log_weights[1 - seed % 2, 0] = 0.0
    graph = InteractionHypergraph(domain, [domain.names], hierarchical=False)
    return LogLinearEnergy(graph, torch.from_numpy(log_weights.reshape(-1).copy())), log_weights


@pytest.mark.parametrize("seed", range(8))
def test_scores_of_impossible_states_are_those_of_the_model(seed):
    """Against the table of log weights: minus infinity beside others that leave no level possible, never a law."""
    model, log_weights = excluding(seed)
    network, x = DependencyConditionals.from_model(model), states(model.domain)
    wanted = []
    for i, name in enumerate(model.domain.names):
        total = np.logaddexp.reduce(log_weights, axis=i, keepdims=True)
        table = np.where(log_weights == -math.inf, -math.inf, log_weights - np.where(np.isfinite(total), total, 0.0))
        wanted.append(torch.from_numpy(table.reshape(-1)))
        laws_of = torch.from_numpy(np.moveaxis(table, i, -1).copy())
        at = tuple(x[:, j] for j in range(3) if j != i)
        torch.testing.assert_close(network.block_conditional([name], x), laws_of[at], **EXACT)
        clamped = network.condition({n: 0 for n in model.domain.names if n != name})
        torch.testing.assert_close(clamped.node(name).log_probs(torch.tensor([0])), laws_of[0, 0], **EXACT)
        # Chains draw from a law there, too, and leave such states.
        assert_close(network.node(name).update_log_probs(x).exp().sum(-1), torch.ones(len(x)).double())
        # What is asked of a row.
        rows = Observations.from_tensor(x, model.domain)
        prediction = predict_network(network, rows, name)
        assert torch.equal(prediction.is_predicted, torch.isfinite(laws_of[at]).any(-1))
        assert node_divergence(rows, network.node(name)) == math.inf
    torch.testing.assert_close(network.log_conditionals(x), torch.stack(wanted, -1), **EXACT)
    pseudo = torch.stack(wanted, -1).sum(-1)
    torch.testing.assert_close(network.log_pseudo_prob(x), pseudo, **EXACT)
    torch.testing.assert_close(DependencyNetwork(network).log_pseudo_prob(x), pseudo, **EXACT)
    scored = network_log_likelihood(network, Observations.from_tensor(x, model.domain), pseudo=True)
    torch.testing.assert_close(scored.values, pseudo, **EXACT)


def test_known_cells_that_are_impossible_together_predict_nothing():
    """Columns b and c are never 1 together, whatever a is; the cell of d, which the law of a reads, is missing."""
    domain = Domain.from_cardinalities({"a": 2, "b": 2, "c": 2, "d": 2})
    graph = InteractionHypergraph(domain, [("a", "d"), ("a", "b", "c")], hierarchical=False)
    tables = torch.tensor([0.3, 0.0, 0.0, 0.5] + [0.0, 0.0, 0.0, -math.inf] * 2, dtype=torch.float64)
    network = DependencyConditionals.from_model(LogLinearEnergy(graph, tables))
    rows = Observations.from_tensor(torch.tensor([[1, 1, 1, -1], [1, 0, 1, -1]]), domain)
    prediction = predict_network(network, rows, "a")
    assert prediction.is_predicted.tolist() == [False, True]
    assert_close(prediction.probs[1].sum(), 1.0)
    scored = network_log_likelihood(network, rows, pseudo=True).values
    assert scored[0] == -math.inf
    assert math.isfinite(scored[1])


def test_networks_that_are_none_are_refused():
    a, b, c, d = random_network(DOMAIN).nodes
    other = random_table(Domain.from_cardinalities({"a": 2, "b": 3, "c": 3, "d": 1}), "d", ["c"], 0)
    for nodes, code in [
        ([a, b, c, "d"], "wrong-type"),
        ([a, b, c, other], "other-domain"),
        ([a, b, c, d, a], "repeated-name"),
        ([a, b, d], "missing-part"),
    ]:
        with raises(code, "nodes"):
            DependencyConditionals(nodes)
    with raises("wrong-type", "model"):
        DependencyConditionals.from_model(3)


def test_only_single_variables_have_a_conditional():
    network, x = random_network(DOMAIN), states(DOMAIN)
    for call, code in (
        (lambda: network.block_conditional(["a", "b"], x), "wrong-shape"),
        (lambda: network.block_conditional([], x), "wrong-shape"),
        (lambda: network.block_conditional(["z"], x), "unknown-name"),
        (lambda: network.block_conditional("a", x), "wrong-type"),
        (lambda: network.log_pseudo_prob(torch.tensor([0, 3, 0, 0])), "out-of-range"),
        (lambda: network.log_pseudo_prob(torch.tensor([-1, 0, 0, 0])), "out-of-range"),
        (lambda: network.full_table("z"), "unknown-name"),
    ):
        with raises(code):
            call()


def test_full_tables_have_a_limit_and_read_only_what_they_need():
    def chain(size):
        domain = Domain.from_cardinalities([2] * size)
        before = [[domain.names[i - 1]] if i else [] for i in range(size)]
        return DependencyConditionals(
            random_table(domain, name, parents, i)
            for i, (name, parents) in enumerate(zip(domain.names, before, strict=True))
        )

    table = chain(22).full_table("x1")
    assert (table.shape, table.untyped_storage().nbytes()) == ((2,) * 22, 4 * 8)
    torch.testing.assert_close(table[(0, slice(None), *[0] * 20)], laws((2, 2), 1)[0], **EXACT)
    with pytest.raises(IntractableError, match=r"8388608 joint states .* exceed the limit of 4194304"):
        chain(23).full_table("x1")


def test_tables_of_many_cells_are_made_in_pieces(monkeypatch):
    network = random_network(DOMAIN)
    whole = [network.full_table(name) for name in DOMAIN.names]
    monkeypatch.setattr("pyro_hoim.dependency_network.conditionals._CHUNK", 5)
    assert all(torch.equal(network.full_table(n), table) for n, table in zip(DOMAIN.names, whole, strict=True))


def test_tabulated_networks_are_the_same_networks():
    graph = InteractionHypergraph(DOMAIN, [("a", "b"), ("b", "c")], closure=True)
    model = LogLinearEnergy(graph, torch.linspace(-2, 2, graph.num_terms).double())
    network = DependencyConditionals([random_leaf(DOMAIN, "a", 0), *DependencyConditionals.from_model(model).nodes[1:]])
    tables = network.tabulated()
    x = states(DOMAIN)
    assert tables.nodes[0] is network.nodes[0]
    assert all(isinstance(node, TableConditional) for node in tables.nodes[1:])
    torch.testing.assert_close(tables.log_conditionals(x), network.log_conditionals(x), **EXACT)
    assert tables.edges == network.edges
    kept = network.tabulated(max_cells=11)  # b given a and c has 12 entries
    assert [type(node) for node in kept.nodes] == [
        LeafConditional,
        ModelConditional,
        TableConditional,
        TableConditional,
    ]


@given(domains(min_variables=1, max_variables=4, max_states=60), st.integers(0, 1000), st.data())
def test_clamped_networks_are_slices(domain, seed, data):
    tables = random_network(domain, seed)
    wrapped = DependencyConditionals(ModelConditional(tables, name) for name in domain.names)
    fixed = data.draw(st.sets(st.sampled_from(domain.names)))
    evidence = {name: data.draw(st.integers(0, domain[name].cardinality - 1)) for name in sorted(fixed)}
    where = tuple(evidence.get(name, slice(None)) for name in domain.names)
    for network in (tables, wrapped):
        rest = network.condition({name: str(code) for name, code in evidence.items()})
        assert rest.domain.names == tuple(name for name in domain.names if name not in evidence)
        for name in rest.domain.names:
            torch.testing.assert_close(rest.full_table(name), network.full_table(name)[where], **EXACT)
        assert all((parent, child) in network.edges for parent, child in rest.edges)


def test_clamping_every_variable_leaves_the_empty_network():
    rest = random_network(DOMAIN).condition({"a": 0, "b": 1, "c": 0, "d": 0})
    assert rest.domain == Domain()
    assert rest.nodes == rest.edges == ()
    assert rest.log_pseudo_prob(torch.zeros(5, 0)).tolist() == [0.0] * 5
    with pytest.raises(InputError, match="from 0 to 1, received 2"):
        random_network(DOMAIN).condition({"a": 2})
    with pytest.raises(UnknownNameError, match="'z'"):
        random_network(DOMAIN).condition({"z": 0})


def test_gradients_reach_every_table():
    domain = Domain.from_cardinalities({"a": 2, "b": 3})
    first, second = laws((3, 2)).requires_grad_(), laws((2, 3)).requires_grad_()
    network = DependencyConditionals(
        [TableConditional(domain, "a", ["b"], first), LeafConditional(DecisionGraph(domain, "b").split(0, "a"), second)]
    )
    x = torch.tensor([[0, 2], [0, 2], [1, 0]])
    network.log_pseudo_prob(x).sum().backward()
    expected = torch.zeros(3, 2, dtype=torch.float64)
    expected[2, 0], expected[0, 1] = 2 / first[2, 0], 1 / first[0, 1]
    torch.testing.assert_close(first.grad, expected.detach(), **EXACT)
    assert second.grad is not None
    assert torch.equal((second.grad > 0).nonzero(), torch.tensor([[0, 2], [1, 0]]))


def test_precisions_of_nodes_are_promoted_and_moved():
    network = random_network(DOMAIN)
    x = states(DOMAIN)
    mixed = DependencyConditionals([network.nodes[0].to(dtype=torch.float32), *network.nodes[1:]])
    assert mixed.log_conditionals(x).dtype == torch.float64
    single = network.to(dtype=torch.float32)
    assert (single.log_pseudo_prob(x).dtype, single.full_table("a").dtype) == (torch.float32, torch.float64)
    torch.testing.assert_close(single.full_table("a").sum(0), torch.ones(3, 2, 1).double(), **EXACT)

    class Fixed:
        domain, variable, reads, has_zeros = DOMAIN, "a", (), False

        def log_probs(self, x):
            return torch.full((*x.shape[:-1], 2), math.log(0.5))

    with pytest.raises(InputTypeError, match="of 'a' has no method 'to'"):
        DependencyConditionals([Fixed(), *network.nodes[1:]]).to(dtype=torch.float32)


def test_control_a_swapped_parent_order_is_seen():
    node = random_table(DOMAIN, "d", [], 0), random_table(DOMAIN, "a", ["b", "c"], 0)
    swapped = TableConditional(DOMAIN, "a", ["c", "b"], node[1].probs.transpose(0, 1))
    x = states(DOMAIN)
    assert torch.equal(swapped.log_probs(x), node[1].log_probs(x))
    wrong = TableConditional(DOMAIN, "a", ["c", "b"], node[1].probs.reshape(2, 3, 2))
    assert not torch.equal(wrong.log_probs(x), node[1].log_probs(x))


# Decision graphs


def graph_strategy(max_operations=12):
    """Graphs over random domains by random operations; empty leaves and splits on one level occur."""

    @st.composite
    def build(draw):
        domain = draw(domains(min_variables=1, max_variables=4, max_states=60))
        variable = draw(st.sampled_from(domain.names))
        others = [name for name in domain.names if name != variable]
        graph = DecisionGraph(domain, variable)
        for _ in range(draw(st.integers(0, max_operations))):
            can_merge = graph.num_leaves > 1
            if others and (not can_merge or draw(st.booleans())):
                graph = graph.split(draw(st.integers(0, graph.num_leaves - 1)), draw(st.sampled_from(others)))
            elif can_merge:
                first, second = sorted(
                    draw(st.lists(st.integers(0, graph.num_leaves - 1), min_size=2, max_size=2, unique=True))
                )
                graph = graph.merge(first, second)
        return graph

    return build()


@given(graph_strategy())
def test_leaves_are_those_of_the_partition_on_every_state(graph):
    leaves = partition(graph.domain, graph.operations)
    assert graph.num_leaves == len(leaves)
    expected = [next(y for y, leaf in enumerate(leaves) if x in leaf) for x in all_states(graph.domain)]
    assert graph.leaves(states(graph.domain)).tolist() == expected
    assert graph.compiled.leaves(states(graph.domain)).tolist() == expected
    assert [walk(graph.compiled, state) for state in all_states(graph.domain)] == expected


def walk(compiled, state):
    """The walk as the documentation tells it, with its promise about the order of nodes."""
    node = 0
    while compiled.variables[node] >= 0:
        child = compiled.children[compiled.offsets[node] + state[compiled.variables[node]]]
        assert child > node
        node = child
    return int(compiled.offsets[node])


@given(graph_strategy())
def test_compiled_arrays_have_one_leaf_per_number_and_one_child_per_level(graph):
    compiled = graph.compiled
    inner = compiled.variables >= 0
    assert sorted(compiled.offsets[~inner].tolist()) == list(range(graph.num_leaves))
    sizes = np.array(graph.domain.cardinalities)[compiled.variables[inner]]
    assert compiled.offsets[inner].tolist() == (np.cumsum(sizes) - sizes).tolist()
    assert compiled.children.shape == (sizes.sum(),)
    assert {a.dtype for a in (compiled.variables, compiled.offsets, compiled.children)} == {np.dtype(np.int32)}
    # A united node is shared, so every node but the root is somebody's child.
    assert set(compiled.children.tolist()) == set(range(1, len(compiled.variables)))


@given(graph_strategy())
def test_neither_walk_reads_more_than_it_says(graph):
    x = states(graph.domain)
    unread = [i for i, name in enumerate(graph.domain.names) if name not in graph.reads]
    assert graph.domain.index(graph.variable) in unread
    broken = x.clone()
    broken[:, unread] = -1
    assert torch.equal(graph.leaves(broken), graph.leaves(x))
    assert torch.equal(graph.compiled.leaves(broken), graph.leaves(x))


@given(graph_strategy(), st.randoms(use_true_random=False))
def test_relabelled_levels_permute_leaves_and_nothing_else(graph, random):
    domain = graph.domain
    maps = [random.sample(range(n), n) for n in domain.cardinalities]

    def image(leaf):
        return {tuple(m[code] for m, code in zip(maps, state, strict=True)) for state in leaf}

    # The same operations on the same sets, numbered in the relabelled domain.
    renumbered = []
    where = [0]  # number in the relabelled graph of every leaf
    for operation in graph.operations:
        if isinstance(operation, Split):
            levels = maps[domain.index(operation.on)]
            moved = where.pop(operation.leaf)
            renumbered.append(Split(moved, operation.on))
            where = [n - (n > moved) for n in where]
            where += [len(where) + level for level in levels]
        else:
            second, first = where.pop(operation.second), where[operation.first]
            renumbered.append(Merge(min(first, second), max(first, second)))
            where[operation.first] = min(first, second)
            where = [n - (n > max(first, second)) for n in where]
    twin = DecisionGraph(domain, graph.variable, renumbered)
    theirs = partition(domain, twin.operations)
    assert sorted(where) == list(range(graph.num_leaves))
    assert [theirs[n] for n in where] == [image(leaf) for leaf in partition(domain, graph.operations)]
    x = states(domain)
    relabelled = torch.stack([torch.tensor(m)[x[:, i]] for i, m in enumerate(maps)], -1)
    assert torch.equal(twin.leaves(relabelled), torch.tensor(where)[graph.leaves(x)])


@given(graph_strategy(), st.data())
def test_conditioned_graph_has_the_leaves_of_the_states_with_the_evidence(graph, data):
    domain = graph.domain
    others = [name for name in domain.names if name != graph.variable]
    fixed = data.draw(st.sets(st.sampled_from(others))) if others else set()
    evidence = {name: data.draw(st.integers(0, domain[name].cardinality - 1)) for name in sorted(fixed)}
    rest, source = graph.condition(evidence)
    assert rest.domain.names == tuple(name for name in domain.names if name not in evidence)
    assert len(set(source)) == len(source) == rest.num_leaves
    x = states(domain)
    kept = torch.ones(len(x), dtype=torch.bool)
    for name, code in evidence.items():
        kept &= x[:, domain.index(name)] == code
    slim = x[kept][:, list(domain.indices(rest.domain.names))]
    assert torch.equal(torch.tensor(source)[rest.leaves(slim)], graph.leaves(x)[kept])


@given(graph_strategy())
def test_json_round_trip_and_equality(graph):
    found = DecisionGraph.from_json(graph.domain, json.loads(json.dumps(graph.to_json())))
    assert found == graph
    assert hash(found) == hash(graph)
    assert found.operations == graph.operations
    assert pickle.loads(pickle.dumps(graph)) == graph
    assert DecisionGraph(graph.domain, graph.variable, graph.operations) == graph


def test_the_paper_s_numbers_of_leaves_by_hand():
    graph = DecisionGraph(DOMAIN, "a")
    assert (graph.num_leaves, graph.num_parameters, graph.reads) == (1, 1, ())
    graph = graph.split(0, "b")  # b = 0, 1, 2
    assert graph.leaves(torch.tensor([[0, 0, 0, 0], [0, 1, 0, 0], [0, 2, 0, 0]])).tolist() == [0, 1, 2]
    graph = graph.split(1, "c")  # b = 0; b = 2; b = 1 and c = 0; b = 1 and c = 1
    x = torch.tensor([[0, 0, 1, 0], [0, 2, 1, 0], [0, 1, 0, 0], [0, 1, 1, 0]])
    assert graph.leaves(x).tolist() == [0, 1, 2, 3]
    assert (graph.num_leaves, graph.num_parameters, graph.reads) == (4, 4, ("b", "c"))
    graph = graph.merge(0, 2)
    assert (graph.leaves(x).tolist(), graph.operations) == ([0, 1, 0, 2], (Split(0, "b"), Split(1, "c"), Merge(0, 2)))
    assert graph.to_json() == {"variable": "a", "operations": [["split", 0, "b"], ["split", 1, "c"], ["merge", 0, 2]]}
    assert repr(graph) == "DecisionGraph('a', num_leaves=3, reads=('b', 'c'))"


def test_graphs_are_immutable_and_differ_by_what_they_hold():
    root = DecisionGraph(DOMAIN, "a")
    longer = root.split(0, "b")
    assert (root.operations, root.num_leaves) == ((), 1)
    other_domain = Domain.from_cardinalities({"a": 2, "b": 3, "c": 3, "d": 1})
    assert len({root, longer, DecisionGraph(DOMAIN, "c"), DecisionGraph(other_domain, "a"), longer.merge(0, 2)}) == 5
    assert root != "graph"
    with pytest.raises(ValueError, match="read-only"):
        longer.compiled.children[0] = 5


def test_a_split_on_a_variable_of_one_level_changes_no_leaf():
    graph = DecisionGraph(DOMAIN, "a").split(0, "d")
    assert (graph.num_leaves, graph.leaves(states(DOMAIN)).tolist()) == (1, [0] * 12)
    assert DecisionGraph(DOMAIN, "d").num_parameters == 0


def test_shapes_and_types_of_states():
    graph = DecisionGraph(DOMAIN, "a").split(0, "b")
    for x in (states(DOMAIN).reshape(3, 4, 4), states(DOMAIN).double().reshape(3, 4, 4), states(DOMAIN).to(torch.int8)):
        assert torch.equal(graph.leaves(x).flatten(), states(DOMAIN)[:, 1])
        assert graph.leaves(x).shape == x.shape[:-1]
    assert graph.leaves(torch.tensor([0, 2, 0, 0])).tolist() == 2
    assert graph.leaves(torch.zeros(0, 4, dtype=torch.long)).shape == (0,)


def test_long_sequences_stay_fast_to_build_and_walk():
    domain = Domain.from_cardinalities([2] * 12)
    graph = DecisionGraph(domain, "x0")
    for name in domain.names[1:]:
        for _ in range(graph.num_leaves):
            graph = graph.split(0, name)
    assert graph.num_leaves == 2**11
    assert len(graph.operations) == 2**11 - 1
    x = torch.randint(2, (500, 12), generator=torch.Generator().manual_seed(0))
    assert torch.equal(graph.leaves(x), (x[:, 1:] * 2 ** torch.arange(10, -1, -1)).sum(-1))


def stored(*operations):
    return {"variable": "a", "operations": [*operations]}


@pytest.mark.parametrize(
    ("call", "code", "argument"),
    [
        (lambda g: g.split(0, "a"), "other-domain", "on"),
        (lambda g: g.split(3, "b"), "out-of-range", "leaf"),
        (lambda g: g.split(-1, "b"), "out-of-range", "leaf"),
        (lambda g: g.split(0, "z"), "unknown-name", None),
        (lambda g: g.split(0.5, "b"), "wrong-type", "leaf"),
        (lambda g: g.split(True, "b"), "out-of-range", "leaf"),
        (lambda g: g.merge(1, 1), "out-of-range", "first, second"),
        (lambda g: g.merge(2, 1), "out-of-range", "first, second"),
        (lambda g: g.merge(0, 3), "out-of-range", "second"),
        (lambda g: g.condition({"a": 0}), "other-domain", "evidence"),
        (lambda g: g.condition({"b": 3}), "out-of-range", None),
        (lambda g: g.leaves(torch.tensor([0, 3, 0, 0])), "out-of-range", "x"),
        (lambda g: g.leaves(torch.tensor([0, 0, 0])), "wrong-shape", "x"),
        (lambda g: g.leaves([0, 0, 0, 0]), "wrong-type", "x"),
        (lambda g: DecisionGraph(DOMAIN, "z"), "unknown-name", None),
        (lambda g: DecisionGraph(["a"], "a"), "wrong-type", "domain"),
        (lambda g: DecisionGraph(DOMAIN, "a", [Split(0, "b"), ("merge", 0)]), "wrong-type", "operations[1] operation"),
        (lambda g: DecisionGraph(DOMAIN, "a", [Merge(0, 1)]), "out-of-range", "operations[0] second"),
        (lambda g: DecisionGraph(Domain([Variable("n", kind="count")]), "n"), None, None),
        (lambda g: DecisionGraph.from_json(DOMAIN, {"variable": "a"}), "wrong-type", "decision graph"),
        (lambda g: DecisionGraph.from_json(DOMAIN, {"variable": "a", "operations": 3}), "wrong-type", "decision graph"),
        (lambda g: DecisionGraph.from_json(DOMAIN, stored(["split", "0", "b"])), "unknown-choice", "operations"),
        (lambda g: DecisionGraph.from_json(DOMAIN, stored(["grow", 0, "b"])), "unknown-choice", "operations"),
    ],
)
def test_unsuitable_arguments_are_refused(call, code, argument):
    graph = DecisionGraph(DOMAIN, "a").split(0, "b")
    with raises(code, argument) if code else pytest.raises(InputError, match="no cardinality"):
        call(graph)


def test_control_a_wrong_number_of_a_leaf_is_seen():
    """The comparison with the partition tells apart two graphs that differ in one number."""
    graph = DecisionGraph(DOMAIN, "a").split(0, "b").split(1, "c")
    wrong = DecisionGraph(DOMAIN, "a").split(0, "b").split(0, "c")
    leaves = partition(DOMAIN, graph.operations)
    expected = [next(y for y, leaf in enumerate(leaves) if x in leaf) for x in all_states(DOMAIN)]
    assert graph.leaves(states(DOMAIN)).tolist() == expected
    assert wrong.leaves(states(DOMAIN)).tolist() != expected


# Batches


WIDE = Domain.from_labels({"a": "xy", "b": "uvw", "c": "pq"})
STATES = torch.tensor(list(itertools.product(range(2), range(3), range(2))))


def normalised(values):
    return values / values.sum(-1, keepdim=True)


def tables(dtype=torch.float64):
    """Batches (2, 1), (3,) and none of the tables of a given b, c; of b given a; and of the leaves of c."""
    generator = torch.Generator().manual_seed(0)
    shapes = {"a": (2, 1, 3, 2, 2), "b": (3, 2, 3), "c": (2, 2)}
    return {n: normalised(torch.rand(s, generator=generator, dtype=dtype) + 0.1) for n, s in shapes.items()}


def network(found):
    of_c = LeafConditional(DecisionGraph(WIDE, "c").split(0, "a"), found["c"])
    read = {"a": ["b", "c"], "b": ["a"]}
    return DependencyConditionals([of_c, *(TableConditional(WIDE, n, read[n], found[n]) for n in read)])


def element(found, i, k):
    return network({"a": found["a"][i, 0], "b": found["b"][k], "c": found["c"]})


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_pseudo_likelihoods_are_those_of_every_element(dtype):
    found = tables(dtype)
    law = DependencyNetwork(network(found))
    assert law.batch_shape == network(found).batch_shape == (2, 3)
    assert DependencyNetwork.infer_shapes(conditionals=network(found)) == ((2, 3), (3,))
    rows = STATES[:, None, None]
    values = law.log_pseudo_prob(rows)
    assert values.shape == (12, 2, 3) and values.dtype == dtype
    conditionals = law.conditionals.node("a").log_probs(rows)
    for i, k in itertools.product(range(2), range(3)):
        one = element(found, i, k)
        assert_close(values[:, i, k], one.log_pseudo_prob(STATES), absolute=1e-6 if dtype == torch.float32 else 1e-12)
        assert torch.equal(conditionals[:, i, 0], one.node("a").log_probs(STATES))
    assert float((values[:, 0] - values[:, 1]).abs().max()) > 0.01  # the control: elements differ
    assert torch.equal(law.expand((4, 2, 3)).log_pseudo_prob(rows[:, None]), values[:, None].expand(12, 4, 2, 3))


def test_gradients_reach_every_table_of_a_batch():
    found = {name: value.requires_grad_() for name, value in tables().items()}
    batched = torch.autograd.grad(network(found).log_pseudo_prob(STATES[:, None, None]).sum(), list(found.values()))
    total = sum(element(found, i, k).log_pseudo_prob(STATES).sum() for i in range(2) for k in range(3))
    for gradient, expected in zip(batched, torch.autograd.grad(total, list(found.values())), strict=True):
        assert_close(gradient, expected, absolute=1e-10)


@pytest.mark.parametrize(
    "evidence",
    [
        {"b": torch.tensor([[0, 2, 1]])},
        {"a": torch.tensor([[1], [0]]), "b": 2},
        {"a": "y", "c": torch.tensor(1)},
        {"a": torch.randint(2, (4, 2, 3), generator=torch.Generator().manual_seed(1))},
    ],
)
def test_clamped_rows_are_those_of_single_values(evidence):
    found = tables()
    law = DependencyNetwork(network(found)).condition(evidence)
    assert law.batch_shape[-2:] == (2, 3)
    left = [name for name in WIDE.names if name not in evidence]
    x = torch.tensor(list(itertools.product(*(range(WIDE[name].cardinality) for name in left))))
    values = law.log_pseudo_prob(x.reshape(len(x), *(1 for _ in law.batch_shape), len(left)))
    for where in itertools.product(*map(range, law.batch_shape)):
        state = {
            name: int(code.expand(law.batch_shape)[where]) if isinstance(code, torch.Tensor) else code
            for name, code in evidence.items()
        }
        expected = element(found, *where[-2:]).condition(state).log_pseudo_prob(x)
        assert_close(values[(slice(None), *where)], expected, absolute=1e-12)


def test_rows_of_evidence_for_a_single_network():
    one = element(tables(), 0, 1)
    codes = torch.tensor([1, 0, 1])
    law = DependencyNetwork(one).condition({"a": codes})
    assert law.batch_shape == (3,)
    x = torch.tensor([2, 1])
    for row, code in enumerate(codes.tolist()):
        assert_close(law.log_pseudo_prob(x)[row], one.condition({"a": code}).log_pseudo_prob(x), absolute=1e-12)


CALLS = {
    "log_prob": lambda n: DependencyNetwork(n).log_prob(STATES[0]),
    "sample": lambda n: DependencyNetwork(n).sample(),
    "log_prob_table": lambda n: DependencyNetwork(n).probs,
    "mean": lambda n: DependencyNetwork(n).mean,
    "mode": lambda n: DependencyNetwork(n).mode,
    "entropy": lambda n: DependencyNetwork(n).entropy(),
    "marginal": lambda n: DependencyNetwork(n).marginal(["a"]),
    "full_table": lambda n: n.full_table("a"),
    "tabulated": lambda n: n.tabulated(),
    "conditionals": lambda n: PseudoGibbsChains(n, 4),
    "conditionals ": lambda n: check_ergodic(n),
    "conditionals  ": lambda n: stationary_law(n),
    "conditionals   ": lambda n: NetworkFile(n),
    "node": lambda n: fc_limit(Law(WIDE, torch.full((2, 3, 2), 1 / 12, dtype=torch.float64)), n),
}


@pytest.mark.parametrize("what", CALLS)
def test_what_needs_one_network_says_so(what):
    with pytest.raises(InputError, match=rf"{what.strip()}: expected one .*batch of shape \(2,"):
        CALLS[what](network(tables()))


def test_wrong_batches():
    found = tables()
    node = TableConditional(WIDE, "b", ["a"], found["b"])
    for argument, call in {
        "probs": lambda: node.with_probs(found["b"].transpose(1, 2)),
        "nodes": lambda: network({**found, "a": found["a"][:, 0]}),
        "x": lambda: node.log_probs(STATES[:2]),
        "evidence of 'a'": lambda: node.condition({"a": torch.zeros(2).long()}),
    }.items():
        with raises("wrong-shape", argument):
            call()
