"""Elimination orders against an elimination of factors and known widths."""

import itertools
import math
import random

import pytest
from hypothesis import given, settings, strategies as st

from pyro_hoim.log_linear.exact._program import bucket_plan
from pyro_hoim.schema import Domain
from pyro_hoim.structure import InteractionHypergraph, elimination_order
from pyro_hoim.testing import raises


def cost(graph, order):
    """Cells of all tables formed and of the largest, and its width, when factors are eliminated, not a graph."""
    factors = [set(e) for e in graph.edges]
    formed = []
    for name in order:
        joined = {name}.union(*(f for f in factors if name in f))
        factors = [f for f in factors if name not in f] + [joined - {name}]
        formed.append(joined)
    cells = [math.prod(graph.domain[n].cardinality for n in c) for c in formed]
    return sum(cells), max(cells, default=1), max((len(c) for c in formed), default=1) - 1


@given(st.data())
def test_order_covers_and_costs_what_it_says(data):
    size = data.draw(st.integers(0, 7))
    domain = Domain.from_cardinalities([data.draw(st.integers(1, 4)) for _ in range(size)])
    subsets = [s for k in (1, 2, 3) for s in itertools.combinations(domain.names, k)]
    edges = data.draw(st.lists(st.sampled_from(subsets), max_size=9)) if subsets else []
    keep = data.draw(st.lists(st.sampled_from(domain.names), unique=True, max_size=2)) if size else []
    graph = InteractionHypergraph(domain, edges, closure=True)
    result = elimination_order(graph, keep)
    assert sorted(result) == sorted(set(domain.names) - set(keep))
    assert cost(graph, result)[:2] <= cost(graph, tuple(n for n in domain.names if n not in keep))[:2]
    plan = bucket_plan(graph, domain.indices(keep))
    assert plan.total_cells - plan.size(plan.keep) == cost(graph, result)[0]


@pytest.mark.parametrize(("width", "height"), [(4, 4), (5, 5), (8, 8)])
def test_grid_reaches_its_treewidth(width, height):
    name = {(i, j): f"x{i}_{j}" for i in range(height) for j in range(width)}
    domain = Domain.from_cardinalities(dict.fromkeys(name.values(), 2))
    edges = [(name[i, j], name[i, j + 1]) for i in range(height) for j in range(width - 1)]
    edges += [(name[i, j], name[i + 1, j]) for i in range(height - 1) for j in range(width)]
    graph = InteractionHypergraph(domain, edges, closure=True)
    total, _, found = cost(graph, elimination_order(graph))
    assert min(width, height) <= found <= min(width, height) + 2
    assert total <= width * height * 2 ** (width + 1)  # the row-by-row sweep


def naive_greedy(graph, keep, rule):
    """The greedy rules spelt out: score every variable anew in every step."""
    cards = {v.name: v.cardinality for v in graph.domain.variables}
    near = {n: {u for e in graph.edges if n in e for u in e} - {n} for n in graph.domain.names}
    order = []
    while set(near) - keep:

        def score(n):
            fill = sum(u not in near[w] for u, w in itertools.combinations(near[n], 2))
            cells = cards[n] * math.prod(cards[u] for u in near[n])
            return (*rule(fill, cells), -cards[n], graph.domain.index(n))

        best = min(set(near) - keep, key=score)
        around = near.pop(best)
        for u in around:
            near[u] = (near[u] | around) - {u, best}
        order.append(best)
    return tuple(order)


RULES = (
    lambda fill, cells: (fill, cells),
    lambda fill, cells: (cells, fill),
    lambda fill, cells: ((fill + 1) * math.log(cells),),
)


@given(st.integers(0, 2**32 - 1), st.integers(3, 14), st.floats(0.5, 2.5), st.integers(0, 3))
@settings(max_examples=60, deadline=None)
def test_greedy_orders_equal_their_definition(seed, size, density, num_kept):
    rng = random.Random(seed)
    domain = Domain.from_cardinalities([rng.randint(1, 5) for _ in range(size)])
    edges = [rng.sample(domain.names, rng.choice((2, 2, 3))) for _ in range(int(density * size))]
    graph = InteractionHypergraph(domain, edges, closure=True)
    keep = rng.sample(domain.names, num_kept)
    result = elimination_order(graph, keep)
    found, *naive = (cost(graph, o)[:2] for o in (result, *(naive_greedy(graph, set(keep), rule) for rule in RULES)))
    # every greedy candidate is among those compared: the result is one of them, the schema order or Cuthill-McKee's
    assert found <= min(naive)
    assert elimination_order(graph, keep) == result


def test_first_variables_lead_and_the_others_follow_in_a_good_order():
    domain = Domain.from_cardinalities({"hub": 3, **{f"leaf{i}": 5 for i in range(6)}})
    star = InteractionHypergraph(domain, [("hub", f"leaf{i}") for i in range(6)], closure=True)
    result = elimination_order(star, first=["leaf4", "leaf2"])
    assert result[:2] == ("leaf4", "leaf2")
    everything = ("hub", "leaf3", "leaf1", "leaf2", "leaf4", "leaf5")
    assert elimination_order(star, ["leaf0"], first=everything) == everything
    assert cost(star, result)[1] == cost(star, elimination_order(star))[1] == 15
    assert cost(star, elimination_order(star, first=["hub"]))[1] == cost(star, domain.names)[1] == 3 * 5**6


@pytest.mark.parametrize(
    ("keep", "first", "code"),
    [(["x9"], [], "unknown-name"), (["x0"], ["x0"], "conflict"), ([], ["x1"] * 2, "repeated-name")],
)
def test_bad_arguments(keep, first, code):
    graph = InteractionHypergraph.from_order(Domain.from_cardinalities([2, 2, 2]), 1)
    with raises(code):
        elimination_order(graph, keep, first)
