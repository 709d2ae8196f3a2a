"""Decision graphs against partitions of all joint states that are split and united as sets, state by state."""

import json
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from network_oracles import all_states, partition

from pyro_hoim.dependency_network import DecisionGraph, Merge, Split
from pyro_hoim.errors import InputError
from pyro_hoim.schema import Domain, Variable
from pyro_hoim.testing import enumerate_codes, raises

from support.strategies import domains

DOMAIN = Domain.from_cardinalities({"a": 2, "b": 3, "c": 2, "d": 1})


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


def states(domain):
    return torch.from_numpy(enumerate_codes(domain.cardinalities))


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
    assert graph.leaves(x).tolist() == [0, 1, 0, 2]
    assert graph.operations == (Split(0, "b"), Split(1, "c"), Merge(0, 2))
    assert graph.to_json() == {"variable": "a", "operations": [["split", 0, "b"], ["split", 1, "c"], ["merge", 0, 2]]}
    assert repr(graph) == "DecisionGraph('a', num_leaves=3, reads=('b', 'c'))"


def test_graphs_are_immutable_and_differ_by_what_they_hold():
    root = DecisionGraph(DOMAIN, "a")
    longer = root.split(0, "b")
    assert root.operations == ()
    assert root.num_leaves == 1
    other_domain = Domain.from_cardinalities({"a": 2, "b": 3, "c": 3, "d": 1})
    assert len({root, longer, DecisionGraph(DOMAIN, "c"), DecisionGraph(other_domain, "a"), longer.merge(0, 2)}) == 5
    assert root != "graph"
    with pytest.raises(ValueError, match="read-only"):
        longer.compiled.children[0] = 5


def test_a_split_on_a_variable_of_one_level_changes_no_leaf():
    graph = DecisionGraph(DOMAIN, "a").split(0, "d")
    assert graph.num_leaves == 1
    assert graph.leaves(states(DOMAIN)).tolist() == [0] * 12
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
