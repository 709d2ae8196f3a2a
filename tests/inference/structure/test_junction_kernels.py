"""Sums over rooted junction trees and draws from them against graphs listed one by one."""

import itertools

import networkx as nx
import numpy as np
import pytest

from pyro_hoim.inference.structure.drawn._junction_kernels import draw_graphs, sum_trees
from pyro_hoim.testing import assert_exact_law


def _places(d):
    """Numbers of sets of variables in base 3."""
    return np.array([sum(3**i for i in range(d) if mask >> i & 1) for mask in range(2**d)])


def _listed(d, cliques, separators):
    """Log weight and number of rooted junction trees of every chordal graph, by the neighbours of its variables."""
    pairs = list(itertools.combinations(range(d), 2))
    found = {}
    for chosen in itertools.chain.from_iterable(itertools.combinations(pairs, k) for k in range(len(pairs) + 1)):
        graph = nx.Graph(chosen)
        graph.add_nodes_from(range(d))
        if not nx.is_chordal(graph):
            continue
        sets = [sum(1 << v for v in clique) for clique in nx.find_cliques(graph)]
        overlaps = list(itertools.combinations(range(len(sets)), 2))
        trees = []
        for links in itertools.combinations(overlaps, len(sets) - 1):
            tree = nx.Graph(links)
            tree.add_nodes_from(range(len(sets)))
            if nx.is_connected(tree):
                trees.append([sets[a] & sets[b] for a, b in links])
        largest = max(sum(s.bit_count() for s in tree) for tree in trees)
        best = [tree for tree in trees if sum(s.bit_count() for s in tree) == largest]
        weight = sum(cliques[c] for c in sets) - sum(separators[s] for s in best[0])
        key = tuple(1 << v | sum(1 << u for u in graph[v]) for v in range(d))
        found[key] = float(weight), len(best) * len(sets)
    return found


def _weights(d, seed):
    rng = np.random.default_rng(seed)
    return rng.normal(scale=2, size=2**d), rng.normal(size=2**d)


@pytest.mark.parametrize(("d", "num_graphs"), [(1, 1), (2, 2), (3, 8), (4, 61)])
def test_sums_run_over_all_rooted_trees(d, num_graphs):
    cliques, separators = _weights(d, d)
    listed = _listed(d, cliques, separators)
    places = _places(d)
    total = sum_trees(places, cliques, separators)[0][2 * places[-1]]
    wanted = np.logaddexp.reduce([weight + np.log(copies) for weight, copies in listed.values()])
    assert len(listed) == num_graphs
    assert total == pytest.approx(wanted, rel=1e-12)


def test_large_cliques_can_be_forbidden():
    cliques, separators = _weights(4, 1)
    cliques[[mask.bit_count() > 2 for mask in range(16)]] = -np.inf
    listed = _listed(4, cliques, separators)
    total = sum_trees(_places(4), cliques, separators)[0][2 * _places(4)[-1]]
    finite = [weight + np.log(copies) for weight, copies in listed.values() if np.isfinite(weight)]
    assert len(finite) < len(listed)
    assert total == pytest.approx(np.logaddexp.reduce(finite), rel=1e-12)


def _drawn(d, num_draws):
    cliques, separators = _weights(d, d)
    places = _places(d)
    uniforms = np.random.default_rng(3).random((num_draws, 3 * d))
    neighbours = np.zeros((num_draws, d), dtype=np.int64)
    scores, copies = np.zeros(num_draws), np.zeros(num_draws)
    sums = sum_trees(places, cliques, separators)
    draw_graphs(places, cliques, separators, sums, uniforms, neighbours, scores, copies)
    return neighbours, scores, copies


def test_draws_have_the_law_of_rooted_trees_and_control_that_of_graphs():
    neighbours, scores, copies = _drawn(4, 40_000)
    listed = _listed(4, *_weights(4, 4))
    position = {key: k for k, key in enumerate(listed)}
    rows = [tuple(row) for row in neighbours.tolist()]
    for row, score, log_copies in zip(rows[:2_000], scores, copies, strict=False):
        weight, number = listed[row]
        assert score == pytest.approx(weight, rel=1e-10, abs=1e-10)
        assert np.exp(log_copies) == pytest.approx(number, rel=1e-10)
    counts = np.bincount([position[row] for row in rows], minlength=len(listed))
    logs = np.array([weight for weight, _ in listed.values()])
    numbers = np.array([number for _, number in listed.values()])
    trees, graphs = numbers * np.exp(logs), np.exp(logs)
    assert_exact_law(counts, trees / trees.sum())
    with pytest.raises(AssertionError):
        assert_exact_law(counts, graphs / graphs.sum())


def test_one_variable_has_one_graph():
    neighbours, _, copies = _drawn(1, 3)
    assert neighbours.tolist() == [[1], [1], [1]] and copies.tolist() == [0.0, 0.0, 0.0]
