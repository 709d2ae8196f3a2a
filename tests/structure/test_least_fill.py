"""Compiled elimination orders against their definition, by sets of neighbours."""

import itertools
import math

import numpy as np
import pytest

from pyro_hoim import Domain, InteractionHypergraph
from pyro_hoim.structure.least_fill import least_fill, neighbour_pairs


def random_graph(seed):
    rng = np.random.default_rng(seed)
    size = int(rng.integers(2, 90))  # more than one word of bits
    cards = tuple(rng.integers(1, 4, size).tolist())
    domain = Domain.from_cardinalities(cards)
    pairs = [p for p in itertools.combinations(domain.names, 2) if rng.random() < 2.5 / size]
    return InteractionHypergraph(domain, pairs, hierarchical=False), cards


def scores(around, cards):
    """Fill-in, cells of the table and minus levels of every variable."""
    return {
        v: (
            sum(u not in around[w] for u, w in itertools.combinations(others, 2)),
            cards[v] * math.prod(cards[u] for u in others),
            -cards[v],
        )
        for v, others in around.items()
    }


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("is_random", [False, True])
def test_every_variable_has_the_least_score_of_those_left(seed, is_random):
    graph, cards = random_graph(seed)
    pairs, variables = neighbour_pairs(graph), list(range(len(cards)))
    order, largest = least_fill(pairs, cards, variables, np.random.default_rng(seed) if is_random else None)
    assert sorted(order) == variables
    around = {v: set() for v in variables}
    for u, w in pairs.tolist():
        around[u].add(w)
        around[w].add(u)
    cells = 1
    for v in order:
        known = scores(around, cards)
        assert known[v] == min(known.values())
        if not is_random:
            assert v == min(u for u, score in known.items() if score == known[v])
        cells = max(cells, known[v][1])
        others = around.pop(v)
        for u in others:
            around[u] = (around[u] | others) - {u, v}
    assert largest == cells


def test_random_ties_give_other_orders_of_the_same_kind():
    pairs = np.array([(k, k + 1) for k in range(8)])  # a path
    orders = {tuple(least_fill(pairs, (2,) * 9, list(range(9)), np.random.default_rng(k))[0]) for k in range(5)}
    assert len(orders) > 1


def test_an_order_ends_at_a_table_beyond_the_limit():
    pairs = np.array(list(itertools.combinations(range(6), 2)))
    assert least_fill(pairs, (2,) * 6, list(range(6)))[1] == 64
    assert least_fill(pairs, (2,) * 6, list(range(6)), most=8)[1] > 8
