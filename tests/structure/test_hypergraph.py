"""The hypergraph against brute force over all subsets."""

import itertools
import math
import pickle

import networkx as nx
import pytest
import torch
from hypothesis import given, strategies as st

from pyro_hoim.errors import InputError, UnknownNameError
from pyro_hoim.schema import Domain, Variable
from pyro_hoim.structure import InteractionHypergraph
from pyro_hoim.testing import raises

NAMES = "abcdef"


@st.composite
def collections(draw):
    """A domain of up to six variables and an arbitrary list of edges."""
    names = NAMES[: draw(st.integers(0, 6))]
    domain = Domain.from_cardinalities({n: draw(st.integers(1, 4)) for n in names})
    subsets = [s for k in range(1, len(names) + 1) for s in itertools.combinations(names, k)]
    edges = draw(st.lists(st.sampled_from(subsets), max_size=8)) if subsets else []
    return domain, edges


def subsets_of(edges):
    """All non-empty subsets of the edges, by brute force."""
    return {frozenset(s) for e in edges for k in range(1, len(e) + 1) for s in itertools.combinations(e, k)}


@given(collections())
def test_closure_and_layout(case):
    domain, edges = case
    closed = InteractionHypergraph(domain, edges, closure=True)
    assert {frozenset(e) for e in closed.edges} == subsets_of(edges)
    assert closed.is_hierarchical
    assert closed.closure() == closed
    sizes = [math.prod(domain[n].cardinality for n in e) for e in closed.edges]
    assert closed.num_terms == sum(sizes)
    assert closed.num_parameters == sum(math.prod(domain[n].cardinality - 1 for n in e) for e in closed.edges)
    assert [s.stop - s.start for s in closed.term_slices.values()] == sizes
    assert list(closed.edges) == sorted(closed.edges, key=lambda e: (len(e), domain.indices(e)))
    raw = InteractionHypergraph(domain, edges, hierarchical=False)
    assert raw.is_hierarchical == ({frozenset(e) for e in edges} == subsets_of(edges))
    maximal = {frozenset(e) for e in edges}
    maximal = {e for e in maximal if not any(e < f for f in maximal)}
    assert {frozenset(e) for e in raw.maximal_edges} == maximal == {frozenset(e) for e in closed.maximal_edges}


@given(collections())
def test_round_trips_and_graph(case):
    domain, edges = case
    graph = InteractionHypergraph(domain, edges, hierarchical=False)
    assert InteractionHypergraph.from_json(graph.to_json()) == graph
    copy = pickle.loads(pickle.dumps(graph))
    assert copy == graph and hash(copy) == hash(graph)
    adjacent = {frozenset(p) for e in edges for p in itertools.combinations(e, 2)}
    for name in domain.names:
        expected = {n for n in domain.names if frozenset((n, name)) in adjacent and n != name}
        assert set(graph.neighbours(name)) == expected
    classes = graph.colouring()
    assert sorted(n for c in classes for n in c) == sorted(domain.names)
    assert not any(frozenset(p) in adjacent for c in classes for p in itertools.combinations(c, 2))
    for a, b, given_names in graph.conditional_independences():
        assert frozenset((a, b)) not in adjacent
        rest = nx.Graph()
        rest.add_nodes_from(set(domain.names) - set(given_names))
        rest.add_edges_from(tuple(p) for p in adjacent if not p & set(given_names))
        assert not nx.has_path(rest, a, b)


@given(collections())
def test_junction_tree_has_running_intersection(case):
    domain, edges = case
    graph = InteractionHypergraph(domain, edges, closure=True)
    whole = nx.Graph()
    whole.add_nodes_from({n for e in edges for n in e})
    whole.add_edges_from(p for e in edges for p in itertools.combinations(e, 2))
    cliques = {frozenset(c) for c in nx.find_cliques(whole)} if whole else set()
    chordal = all(nx.is_chordal(whole.subgraph(c)) for c in nx.connected_components(whole) if len(c) > 3)
    assert graph.is_graphical == ({frozenset(e) for e in graph.maximal_edges} == cliques)
    assert graph.is_decomposable == (graph.is_graphical and chordal)
    if not graph.is_decomposable:
        with pytest.raises(InputError, match="not decomposable"):
            graph.junction_tree()
        return
    tree = graph.junction_tree()
    assert {frozenset(n.clique) for n in tree} == cliques
    seen = set()
    for node in tree:
        assert set(node.clique) & seen == set(node.separator)
        if node.parent is not None:
            assert set(node.separator) <= set(tree[node.parent].clique)
        seen |= set(node.clique)


def test_four_cycle_is_graphical_but_not_decomposable():
    domain = Domain.from_cardinalities([2] * 4)
    cycle = InteractionHypergraph(domain, [("x0", "x1"), ("x1", "x2"), ("x2", "x3"), ("x0", "x3")], closure=True)
    assert cycle.is_graphical and not cycle.is_decomposable
    triangle = InteractionHypergraph(domain, [("x0", "x1"), ("x1", "x2"), ("x0", "x2")], closure=True)
    assert not triangle.is_graphical


@pytest.mark.parametrize(
    ("formula", "edges"),
    [
        ("a*b + c", ["a", "b", "c", "ab"]),
        ("a*b*c", ["a", "b", "c", "ab", "ac", "bc", "abc"]),
        ("(a + b + c)^2", ["a", "b", "c", "ab", "ac", "bc"]),
        (".^2", ["a", "b", "c", "d", "ab", "ac", "ad", "bc", "bd", "cd"]),
        ("a + b + a:b", ["a", "b", "ab"]),
        ("1", []),
        ("1 + a", ["a"]),
        ("`a`*(b + c)", ["a", "b", "c", "ab", "ac"]),
        ("(a+b):(a+c) + a + b + c", ["a", "b", "c", "ab", "ac", "bc"]),
    ],
)
def test_formula(formula, edges):
    domain = Domain.from_cardinalities(dict.fromkeys("abcd", 2))
    assert InteractionHypergraph.from_formula(domain, formula).edges == tuple(tuple(e) for e in edges)


def test_formula_with_unusual_names():
    domain = Domain.from_cardinalities({"native-country": 2, "hours per week": 2, "stalk.root?": 2})
    graph = InteractionHypergraph.from_formula(domain, "native-country*`hours per week` + stalk.root?")
    assert ("native-country", "hours per week") in graph and len(graph) == 4


@pytest.mark.parametrize(
    ("formula", "message"),
    [
        ("a:b", "not closed under subsets; missing a, b"),
        ("a +", "received the end"),
        ("a ** b", "received '\\*'"),
        ("(a", r"expected \), received the end"),
        ("a^0", "positive whole number"),
        ("a^b", "positive whole number"),
        ("", "at least one term"),
        ("a $ b", "unexpected character '\\$' at position 2"),
        ("a b", "expected an operator or the end, received 'b'"),
        ("2", "expected a variable name, received '2'"),
    ],
)
def test_formula_errors(formula, message):
    domain = Domain.from_cardinalities({"a": 2, "b": 2})
    with pytest.raises(InputError, match=message):
        InteractionHypergraph.from_formula(domain, formula)


@pytest.mark.parametrize(
    ("edges", "code", "argument"),
    [
        ([("phys", "phys")], "repeated-name", None),
        ([()], "empty", "edges"),
        (["smoke"], "wrong-type", "edges"),
        ([5], "wrong-type", "edges"),
        (5, "wrong-type", "edges"),
        ([("smoke", "mental")], "missing-part", "edges"),
    ],
)
def test_bad_edges_are_refused(edges, code, argument):
    with raises(code, argument):
        InteractionHypergraph(Domain.from_cardinalities({"smoke": 2, "mental": 2, "phys": 2}), edges)


def test_bad_domains_orders_and_names_are_refused_with_a_next_step():
    domain, wide = Domain.from_cardinalities({"smoke": 2, "mental": 2, "phys": 2}), Domain.from_cardinalities([2] * 30)
    with pytest.raises(UnknownNameError, match="unknown variable 'smoek'; did you mean 'smoke'"):
        InteractionHypergraph(domain, [("smoek",)])
    with raises("wrong-type", "domain"):
        InteractionHypergraph(("smoke",), [])
    with pytest.raises(InputError, match="has no cardinality"):
        InteractionHypergraph(Domain([Variable("n", kind="count")]))
    for order in (0, 4, -1, True, 1.0):
        with raises("out-of-range", "order"):
            InteractionHypergraph.from_order(domain, order)
    with raises("over-budget", "edges"):
        InteractionHypergraph(wide, [wide.names], closure=True)
    assert InteractionHypergraph(wide, [wide.names], hierarchical=False).maximal_edges == (wide.names,)


def test_is_immutable():
    graph = InteractionHypergraph.from_order(Domain.from_cardinalities([2, 2]), 1)
    with pytest.raises(AttributeError, match="immutable"):
        graph.edges = ()


def test_heredity_and_chain():
    domain = Domain.from_cardinalities(dict.fromkeys("abc", 2))
    graph = InteractionHypergraph(domain, [tuple("ab"), tuple("ac"), ("c",)], hierarchical=False)
    assert graph.heredity_score("abc") == 2 / 3
    assert graph.heredity_score("bc") == 1 / 2
    assert graph.heredity_score("b") == 1.0
    chain = InteractionHypergraph.from_order(domain, 2).chain()
    assert [len(g) for g in chain] == list(range(7))
    assert all(g.is_hierarchical for g in chain)


def test_derived_structures():
    domain = Domain.from_cardinalities(dict.fromkeys("abcd", 2))
    graph = InteractionHypergraph.from_formula(domain, "a*b*c + c*d")
    assert graph.restrict("c").edges == (("a",), ("b",), ("d",), ("a", "b"))
    assert graph.project("acd").edges == (("a",), ("c",), ("d",), ("a", "c"), ("c", "d"))
    assert graph.remove_edges([("a", "b")]).edges == InteractionHypergraph.from_formula(domain, "a*c + b*c + c*d").edges
    assert graph.add_edges([("a", "d")]).maximal_edges == (("a", "d"), ("c", "d"), ("a", "b", "c"))
    with pytest.raises(InputError, match="a:d is not an edge"):
        graph.remove_edges([("a", "d")])
    assert graph.components() == (("a", "b", "c", "d"),)
    assert InteractionHypergraph.from_formula(domain, "a*b + d").components() == (("a", "b"), ("c",), ("d",))
    assert InteractionHypergraph.from_formula(domain, "a*b + d").blocks() == (("d",), ("a", "b"), ("c",))


def test_spread_repeats_values_over_the_coordinates_of_their_edges():
    graph = InteractionHypergraph.from_formula(Domain.from_cardinalities({"a": 2, "b": 3, "c": 1}), "a*b + c")
    assert graph.edges == (("a",), ("b",), ("c",), ("a", "b"))
    values = torch.arange(8).reshape(2, 1, 4)
    assert graph.spread(values).tolist() == [[[0, 1, 1, 3, 3]], [[4, 5, 5, 7, 7]]]
    assert graph.spread(values.bool()).dtype == torch.bool
    assert InteractionHypergraph(graph.domain, []).spread(torch.ones(3, 0)).shape == (3, 0)
    with torch.inference_mode():
        graph.spread(torch.ones(4))
    weights = torch.ones(4, requires_grad=True)
    graph.spread(weights).sum().backward()
    assert weights.grad is not None and weights.grad.tolist() == [1.0, 2.0, 0.0, 2.0]
    assert torch.func.vmap(graph.spread)(values[:, 0]).tolist() == graph.spread(values[:, 0]).tolist()
    for bad, code in ((torch.ones(3), "wrong-shape"), (torch.ones(()), "wrong-shape"), ([1.0] * 4, "wrong-type")):
        with raises(code, "per_edge"):
            graph.spread(bad)


def test_empty_domain():
    graph = InteractionHypergraph.saturated(Domain())
    assert graph.edges == () and graph.num_terms == 0 and graph.order == 0
    assert graph.components() == () and graph.colouring() == () and graph.junction_tree() == ()
    assert graph.is_decomposable and graph.is_hierarchical


def test_wrong_json_is_refused():
    odd = {"domain": [], "edges": [], "coding": "cornr"}  # not silently the other family
    for value in ({}, "x", {"domain": []}, {"domain": 3, "edges": []}, odd):
        with pytest.raises(InputError, match="expected"):
            InteractionHypergraph.from_json(value)


def test_huge_powers_are_refused_before_any_work():
    domain = Domain.from_cardinalities([2] * 40)
    for formula in (".^12", "(.^3)^4"):
        with raises("over-budget"):
            InteractionHypergraph.from_formula(domain, formula)
    assert len(InteractionHypergraph.from_formula(domain, ".^3")) == 40 + 780 + 9880
    assert len(InteractionHypergraph.from_formula(domain, "(x0 + x1*x2)^2")) == 7
