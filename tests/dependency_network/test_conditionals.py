"""Conditionals of one variable and networks of them, against tables over every joint state."""

import itertools
import math
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from network_oracles import laws

from pyro_hoim.core import ConditionalModel, EnergyModel
from pyro_hoim.dependency_network import (
    ClampedConditional,
    DecisionGraph,
    DependencyConditionals,
    LeafConditional,
    ModelConditional,
    NodeConditional,
    TableConditional,
)
from pyro_hoim.errors import InputError, InputTypeError, IntractableError, UnknownNameError
from pyro_hoim.log_linear import LogLinearEnergy
from pyro_hoim.schema import Domain
from pyro_hoim.structure import InteractionHypergraph
from pyro_hoim.testing import enumerate_codes, exact_table, raises

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
    assert node.log_probs(x[0]).shape == found.shape[1:]
    assert node.log_probs(x[:0]).shape == (0, found.shape[1])
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
    assert table.log_probs(x).dtype == torch.float32
    assert table.to(dtype=torch.float64).probs.dtype == torch.float64
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
    assert table.shape == (2,) * 22
    assert table.untyped_storage().nbytes() == 4 * 8
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
    assert single.log_pseudo_prob(x).dtype == torch.float32
    assert single.full_table("a").dtype == torch.float64
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
