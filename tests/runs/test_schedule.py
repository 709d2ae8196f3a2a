"""Schedules of Gibbs samplers: blocks, orders, frequencies, and refusal of what makes no sense."""

import itertools

import networkx as nx
import numpy as np
import pytest

from pyro_hoim import Domain, InteractionHypergraph, IntractableError
from pyro_hoim.runs import GibbsSchedule
from pyro_hoim.structure.elimination_order import block_buckets, bucket_cells
from pyro_hoim.testing import assert_exact_law, raises

GRAPH = InteractionHypergraph(
    Domain.from_cardinalities({"age": 2, "sex": 2, "town": 1, "job": 3, "smoke": 2, "lone": 2}),
    [("age", "sex", "job"), ("job", "smoke"), ("town",)],
    closure=True,
)


def _names(blocks):
    return [tuple(GRAPH.domain.names[i] for i in block) for block in blocks]


# Blocks


def test_sites_are_all_free_variables_in_schema_order():
    assert _names(GibbsSchedule().resolve(GRAPH)) == [("age",), ("sex",), ("job",), ("smoke",), ("lone",)]
    assert _names(GibbsSchedule().resolve(GRAPH, ["sex", "lone"])) == [("age",), ("job",), ("smoke",)]


def test_colour_classes_follow_each_other_and_share_no_interaction():
    blocks = GibbsSchedule("colours").resolve(GRAPH)
    assert sorted(_names(blocks)) == sorted(_names(GibbsSchedule().resolve(GRAPH)))
    order = [name for (name,) in _names(blocks)]
    groups = [[n for n in group if n in order] for group in GRAPH.colouring()]
    assert order == [n for group in groups for n in group]
    for group in groups:
        assert all(b not in GRAPH.neighbours(a) for a, b in itertools.combinations(group, 2))


def test_interactions_are_the_maximal_ones_and_single_variables():
    blocks = _names(GibbsSchedule("interactions").resolve(GRAPH))
    assert set(blocks) == {("age", "sex", "job"), ("job", "smoke"), ("lone",)}
    clamped = _names(GibbsSchedule("interactions").resolve(GRAPH, ["job"]))
    assert set(clamped) == {("age", "sex"), ("smoke",), ("lone",)}


def test_user_blocks_are_sorted_without_repetition_or_clamped_members():
    schedule = GibbsSchedule([["smoke", "age"], ("age", "smoke"), ("sex", "town"), ("job",), ("lone", "job")])
    assert _names(schedule.resolve(GRAPH)) == [("age", "smoke"), ("sex",), ("job",), ("job", "lone")]
    assert _names(schedule.resolve(GRAPH, ["age", "job"])) == [("smoke",), ("sex",), ("lone",)]
    assert GibbsSchedule([["age"]]).resolve(GRAPH, ["sex", "job", "smoke", "lone"]) == ((0,),)


def test_everything_clamped_leaves_no_block_and_an_empty_order():
    for scan in ("sequential", "random"):
        schedule = GibbsSchedule("interactions", scan)
        blocks = schedule.resolve(GRAPH, GRAPH.domain.names)
        assert blocks == ()
        assert schedule.order(GRAPH, blocks, 0, 3, 0).shape == (1, 0)


# Orders


def test_sequential_order_is_one_row_for_all_sweeps():
    schedule = GibbsSchedule("sites")
    blocks = schedule.resolve(GRAPH)
    for first, num in ((0, 1), (7, 100)):
        order = schedule.order(GRAPH, blocks, first, num, seed=3)
        assert (order.dtype, order.tolist()) == (np.int32, [[0, 1, 2, 3, 4]])


@pytest.mark.parametrize("schedule", [GibbsSchedule("sites", "random"), GibbsSchedule(emphasised=[("job", "smoke")])])
def test_orders_depend_on_sweep_and_seed_only(schedule):
    blocks = schedule.resolve(GRAPH)
    whole = schedule.order(GRAPH, blocks, 0, 40, 9)
    parts = [schedule.order(GRAPH, blocks, first, 10, 9) for first in range(0, 40, 10)]
    np.testing.assert_array_equal(whole, np.concatenate(parts))
    assert whole.dtype == np.int32
    assert (whole >= 0).all()
    assert (whole < len(blocks)).all()
    assert schedule.order(GRAPH, blocks, 5, 0, 9).shape[0] == 0
    if schedule.scan == "random":
        assert (whole != schedule.order(GRAPH, blocks, 0, 40, 10)).any()


def test_random_scan_visits_are_independent_and_uniform():
    """Frequencies of pairs: within a sweep, in the next sweep at every offset of 4 and 8 visits."""
    domain = Domain.from_cardinalities([2] * 20)
    graph = InteractionHypergraph.from_order(domain, 1)
    schedule = GibbsSchedule("sites", "random")
    blocks = schedule.resolve(graph)
    order = schedule.order(graph, blocks, 0, 6000, 1)
    assert order.shape == (6000, 20)
    assert_exact_law(np.bincount(order.reshape(-1), minlength=20), np.full(20, 1 / 20))
    coarse = order % 4
    neighbours = np.bincount((4 * coarse[:, ::2] + coarse[:, 1::2]).reshape(-1), minlength=16)
    assert_exact_law(neighbours, np.full(16, 1 / 16), what="consecutive visits")
    for offset in (0, 4, 8):
        first, second = coarse[0::2, offset:], coarse[1::2, : 20 - offset]
        pairs = np.bincount((4 * first + second).reshape(-1), minlength=16)
        assert_exact_law(pairs, np.full(16, 1 / 16), what=f"visits of two sweeps, {offset} apart")
    repeated = np.concatenate([coarse[:1], coarse[:-1]])
    with pytest.raises(AssertionError):  # control: a scan that repeats the one before
        assert_exact_law(np.bincount((4 * repeated[1:] + coarse[:-1]).reshape(-1), minlength=16), np.full(16, 1 / 16))


@pytest.mark.parametrize("emphasis", [0.2, 0.5, 0.8])
def test_random_emphasis_is_the_share_of_visits(emphasis):
    schedule = GibbsSchedule("sites", "random", emphasised=[("job", "smoke")], emphasis=emphasis)
    blocks = schedule.resolve(GRAPH)
    order = schedule.order(GRAPH, blocks, 0, 4000, 2)
    law = np.array([(1 - emphasis) / 3] * 2 + [emphasis / 2] * 2 + [(1 - emphasis) / 3])
    counts = np.bincount(order.reshape(-1), minlength=5)
    assert_exact_law(counts, law)
    with pytest.raises(AssertionError):
        assert_exact_law(counts, np.full(5, 0.2))


@pytest.mark.parametrize("emphasis", [0.25, 0.4, 0.5, 0.75, 0.9])
def test_sequential_emphasis_visits_all_new_blocks_and_the_others_in_turns(emphasis):
    """The share is met within the rounding of one visit of a sweep, of which one at least goes to the others."""
    schedule = GibbsSchedule("sites", emphasised=[("job", "smoke")], emphasis=emphasis)
    blocks = schedule.resolve(GRAPH)
    order = schedule.order(GRAPH, blocks, 0, 30, 0)
    for row in order:
        assert {2, 3} <= set(row.tolist())
    counts = np.bincount(order.reshape(-1), minlength=5)
    assert counts[2] == counts[3]
    assert np.ptp(counts[[0, 1, 4]]) <= 1
    assert counts[[0, 1, 4]].min() > 0
    share = counts[[2, 3]].sum() / counts.sum()
    assert abs(share - min(emphasis, 2 / 3)) <= 0.5 / order.shape[1]


def test_emphasis_of_blocks_that_contain_an_interaction():
    schedule = GibbsSchedule("interactions", emphasised=[("age", "sex")], emphasis=0.5)
    blocks = schedule.resolve(GRAPH)
    new = _names(blocks).index(("age", "sex", "job"))
    counts = np.bincount(schedule.order(GRAPH, blocks, 0, 10, 0).reshape(-1), minlength=3)
    assert counts[new] == 10
    assert counts.sum() == 20


@pytest.mark.parametrize("scan", ["sequential", "random"])
def test_emphasis_of_all_or_no_block_is_none(scan):
    everything = GibbsSchedule(scan=scan, emphasised=[GRAPH.domain.names])
    plain = GibbsSchedule(scan=scan)
    blocks = plain.resolve(GRAPH)
    np.testing.assert_array_equal(
        everything.order(GRAPH, blocks, 3, 5, 1), plain.order(GRAPH, blocks, 3, 5, 1), strict=True
    )
    none = GibbsSchedule([("age", "job"), ("sex", "smoke"), ("lone",)], scan, emphasised=[("age", "sex")])
    assert set(none.order(GRAPH, none.resolve(GRAPH), 0, 50, 1).reshape(-1).tolist()) == {0, 1, 2}


# Refusal


@pytest.mark.parametrize(
    ("arguments", "clamped", "code", "argument"),
    [
        ({"blocks": "edges"}, None, "unknown-choice", "blocks"),
        ({"blocks": "width:0"}, None, "out-of-range", "blocks"),
        ({"blocks": "width:two"}, None, "out-of-range", "blocks"),
        ({"blocks": "width:19"}, None, "out-of-range", "blocks"),
        ({"blocks": ["age"]}, None, "wrong-type", "blocks"),
        ({"blocks": 3}, None, "wrong-type", "blocks"),
        ({"blocks": [()]}, None, "empty", "blocks"),
        ({"scan": "zigzag"}, None, "unknown-choice", "scan"),
        ({"emphasis": 0.0}, None, "out-of-range", "emphasis"),
        ({"emphasis": 1.0}, None, "out-of-range", "emphasis"),
        ({"emphasis": float("nan")}, None, "out-of-range", "emphasis"),
        ({"emphasis": "x"}, None, "out-of-range", "emphasis"),
        ({"emphasised": "ab"}, None, "wrong-type", "emphasised"),
        ({"emphasised": [()]}, None, "empty", "emphasised"),
        ({"blocks": [("age", "smokes")]}, (), "unknown-name", "blocks"),
        ({"emphasised": [("jobs",)]}, (), "unknown-name", "emphasised"),
        ({}, ("agee",), "unknown-name", "clamped"),
        ({"blocks": [("age", "age")]}, (), "repeated-name", None),
        ({"blocks": [("age",)]}, ("sex",), "missing-part", "blocks"),
    ],
)
def test_bad_schedules_are_refused(arguments, clamped, code, argument):
    """Most when they are made, the others against a hypergraph."""
    if clamped is None:
        with raises(code, argument):
            GibbsSchedule(**arguments)
    else:
        made = GibbsSchedule(**arguments)
        with raises(code, argument):
            made.resolve(GRAPH, clamped)


def test_too_large_blocks_are_refused_with_numbers():
    """Twenty-one binary variables that all interact form a table of 2^21 cells, and one more for every message."""
    names = [f"x{k}" for k in range(21)]
    graph = InteractionHypergraph(
        Domain.from_cardinalities([2] * 21), itertools.combinations(names, 2), hierarchical=False
    )
    with pytest.raises(IntractableError, match=r"2097152 joint states .* takes tables of 4194302 cells .* 1048576"):
        GibbsSchedule([names]).resolve(graph)
    assert GibbsSchedule([names[:12], names[9:]]).resolve(graph) == (tuple(range(12)), tuple(range(9, 21)))
    path = InteractionHypergraph(graph.domain, itertools.pairwise(names), hierarchical=False)
    assert GibbsSchedule([names]).resolve(path) == (tuple(range(21)),)


# Blocks of low treewidth


def _treewidth_at_most(graph, block, width):
    """Whether some elimination order of the induced graph has no more neighbours than that at any step."""
    induced = nx.Graph()
    induced.add_nodes_from(block)
    for edge in graph.edge_indices:
        induced.add_edges_from(itertools.combinations([v for v in edge if v in set(block)], 2))
    found, _ = nx.algorithms.approximation.treewidth_min_fill_in(induced)
    return found <= width and (width > 1 or nx.is_forest(induced)) and nx.is_connected(induced)


def _grid(side, *more):
    names = [[f"x{i}.{j}" for j in range(side)] for i in range(side)]
    edges = [(names[i][j], names[i][j + 1]) for i in range(side) for j in range(side - 1)]
    edges += [(names[i][j], names[i + 1][j]) for i in range(side - 1) for j in range(side)]
    domain = Domain.from_cardinalities(dict.fromkeys(itertools.chain(*names), 2))
    return InteractionHypergraph(domain, [*edges, *more], hierarchical=False)


@pytest.mark.parametrize(("kind", "width"), [("trees", 1), ("width:1", 1), ("width:2", 2), ("width:4", 4)])
def test_blocks_of_low_treewidth_cover_the_variables(kind, width):
    """The treewidth is bounded by networkx; a grid of 12 x 12 has treewidth 12, its parts have no more than asked."""
    graph = _grid(12, ("x0.0", "x5.5", "x11.11"))
    schedule = GibbsSchedule(kind)
    blocks = schedule.resolve(graph)
    assert {v for block in blocks for v in block} == set(range(144))
    assert all(_treewidth_at_most(graph, block, width) for block in blocks)
    assert max(map(len, blocks)) > 144 // 3
    assert not any(set(later) <= set(earlier) for earlier, later in itertools.combinations(blocks, 2))
    assert not _treewidth_at_most(graph, range(144), width)  # control
    clamped = schedule.resolve(graph, [f"x{i}.6" for i in range(12)])
    assert {v for block in clamped for v in block} == {v for v in range(144) if v % 12 != 6}
    assert schedule.max_listed == 16 and GibbsSchedule().max_listed == 4096


def test_all_neighbours_of_a_ring_are_in_one_tree():
    """Two trees that overlap: no strong interaction holds a variable back in both."""
    domain = Domain.from_cardinalities([2] * 9)
    pairs = [*itertools.pairwise(domain.names), ("x0", "x8")]
    ring = InteractionHypergraph(domain, pairs, hierarchical=False)
    blocks = GibbsSchedule("trees").resolve(ring)
    assert len(blocks) == 2 and all(len(block) == 8 for block in blocks)
    assert all(any(set(pair) <= set(block) for block in blocks) for pair in ring.edge_indices)


def test_variables_that_all_interact_are_pairs_for_eight_rounds():
    graph = InteractionHypergraph.from_order(Domain.from_cardinalities([2] * 30), 2)
    blocks = GibbsSchedule("trees").resolve(graph)
    assert [len(block) for block in blocks] == [2] * 8 + [1] * 14
    assert {v for block in blocks for v in block} == set(range(30))


def test_one_tree_is_one_block():
    domain = Domain.from_cardinalities([2, 3, 1, 4, 2, 2])
    graph = InteractionHypergraph(domain, [("x0", "x1"), ("x1", "x3"), ("x2", "x3"), ("x1", "x4")], hierarchical=False)
    assert GibbsSchedule("trees").resolve(graph) == ((0, 1, 3, 4), (5,))
    assert GibbsSchedule("trees").resolve(graph, ["x1"]) == ((0,), (3,), (4,), (5,))
    triangle = InteractionHypergraph(domain, [("x0", "x1", "x4")], hierarchical=False)
    assert GibbsSchedule("trees").resolve(triangle, ["x3", "x5"]) == ((1, 4), (0, 4))
    assert GibbsSchedule("width:2").resolve(triangle, ["x3", "x5"]) == ((0, 1, 4),)


def test_tables_of_blocks_of_low_treewidth_stay_within_the_limit():
    """Two variables of 2,000 levels that interact are no tree within 2^20 cells; they are in two blocks."""
    domain = Domain.from_cardinalities([2000, 2000, 2, 2])
    graph = InteractionHypergraph(domain, [("x0", "x1"), ("x1", "x2"), ("x2", "x3")], hierarchical=False)
    blocks = GibbsSchedule("trees").resolve(graph)
    assert {v for block in blocks for v in block} == {0, 1, 2, 3} and len(blocks) == 2
    assert all(bucket_cells(block_buckets(graph, block), domain.cardinalities) <= 2**20 for block in blocks)
    assert bucket_cells(block_buckets(graph, (0, 1)), domain.cardinalities) > 2**20


def test_buckets_are_those_of_an_elimination():
    """Every interaction and every message lies in the bucket of its first variable to go."""
    graph = _grid(4, ("x0.0", "x1.2", "x3.3"))
    block = tuple(range(1, 16))
    buckets = block_buckets(graph, block)
    order = [bucket.variable for bucket in buckets]
    assert sorted(order) == list(block)
    inside = [{v for v in edge if v in block} for edge in graph.edge_indices] + [set(b.scope) for b in buckets]
    for members in filter(None, inside):
        first = min(members, key=order.index)
        bucket = buckets[order.index(first)]
        assert members <= {first, *bucket.scope}
