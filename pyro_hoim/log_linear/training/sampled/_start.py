"""Laws with known constants that sampled training and its annealed runs start from. Private to training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import networkx as nx
import numpy as np
import torch
from numpy.typing import NDArray

from ....data.observations import Observations
from ....structure.hypergraph import InteractionHypergraph
from ...coding import parametrization
from ...fitting.design import cell_numbers
from ..tables import RowMargins, restructured_tables

Floats = NDArray[np.float64]
_PRIOR = 0.5  # counts per level in a network
_MAX_PARENTS = 3
_PROMISING = 128  # variables that the first pass leaves for the next parents
_MAX_FAMILY = 4096  # cells of a variable and its parents
_LEAST_GAIN = 1.0  # nats per level, over all rows, that a parent must bring


class _Draw(NamedTuple):
    """A variable, those that it is drawn given, and log weights (states of these, levels)."""

    variable: int
    parents: tuple[int, ...]
    log_weights: Floats


class StartLaw(NamedTuple):
    """A law within a collection whose constant is known and from which states are drawn exactly."""

    hypergraph: InteractionHypergraph
    tables: Floats
    log_z: float
    draws: tuple[_Draw, ...]

    def states(self, count: int, random: np.random.Generator) -> torch.Tensor:
        """Independent states, long (count, d)."""
        codes = np.zeros((count, len(self.draws)), dtype=np.int64)
        cards = self.hypergraph.domain.cardinalities
        for variable, parents, log_weights in self.draws:
            weights = np.exp(log_weights - log_weights.max(1, keepdims=True)).cumsum(1)
            rows = weights[cell_numbers(codes, parents, cards)]
            uniform = random.random(count) * rows[:, -1]
            codes[:, variable] = (uniform[:, None] >= rows[:, :-1]).sum(1)
        return torch.from_numpy(codes)

    def padded(self, hypergraph: InteractionHypergraph, tables: Floats) -> Floats:
        """Tables of a smaller collection in the layout of this one."""
        if hypergraph == self.hypergraph:
            return tables
        return restructured_tables(torch.from_numpy(tables), hypergraph, self.hypergraph).numpy()

    def balanced(self) -> Floats:
        """Balanced tables (num_terms,) of a forest, with every subset of whose edges in the collection."""
        hypergraph = self.hypergraph
        inside = InteractionHypergraph(
            hypergraph.domain,
            [e for e, where in hypergraph.term_slices.items() if self.tables[where].any()],
            closure=True,
        )
        raw = restructured_tables(torch.from_numpy(self.tables), hypergraph, inside)
        pure = parametrization(inside).purify(raw)[0]
        return restructured_tables(pure, inside, hypergraph).numpy()


def law_of_singles(hypergraph: InteractionHypergraph, tables: Floats) -> StartLaw:
    """The independent law with the single-variable tables of a model; uniform where a variable has none."""
    where, kept, draws, log_z = hypergraph.term_slices, np.zeros(hypergraph.num_terms), list[_Draw](), 0.0
    for i, (name, levels) in enumerate(zip(hypergraph.domain.names, hypergraph.domain.cardinalities, strict=True)):
        weights = tables[where[(name,)]] if (name,) in where else np.zeros(levels)
        if (name,) in where:
            kept[where[(name,)]] = weights
        draws.append(_Draw(i, (), weights[None].copy()))
        log_z += float(np.logaddexp.reduce(weights))
    return StartLaw(hypergraph, kept, log_z, tuple(draws))


def forest_law(
    margins: RowMargins, hypergraph: InteractionHypergraph, smoothing: float = 0.5, *, pairs: bool = True
) -> StartLaw:
    r"""The forest among the pairs of a collection that is most likely given the rows (Chow and Liu), smoothed.

    .. math:: \log q(x) = \sum_i \log q(x_i \mid x_{\pi(i)}), \qquad
        q(x_i \mid x_j) = \frac{n(x_i, x_j) + a I_i q(x_i)}{n(x_j) + a I_i}, \qquad
        q(x_i) = \frac{n(x_i) + a}{n + a I_i}

    It maximises the sum of mutual informations. Pairs count whose variables are in the collection alone, too; variables
    without a single-variable interaction are uniform and independent. No probability is zero.
    """
    names, cards, slices = hypergraph.domain.names, hypergraph.domain.cardinalities, hypergraph.term_slices
    total, frequencies = margins.rows.total_count, margins(hypergraph)
    tables = np.zeros(hypergraph.num_terms)
    single: dict[int, Floats] = {}
    for i, name in enumerate(names):
        if (name,) in slices:
            counts = total * frequencies[slices[(name,)]] + smoothing
            single[i] = counts / counts.sum()
    counts_of: dict[tuple[int, int], Floats] = {}
    if pairs:
        for members, edge in zip(hypergraph.edge_indices, hypergraph.edges, strict=True):
            if len(members) == 2 and all(i in single and cards[i] > 1 for i in members):
                i, j = members
                counts_of[i, j] = total * frequencies[slices[edge]].reshape(cards[i], cards[j])
    draws: list[_Draw] = []
    log_z = 0.0
    for i, parent in _walk(len(names), counts_of):
        if parent < 0:
            weights = np.log(single[i])[None] if i in single else np.zeros((1, cards[i]))
            log_z += float(np.logaddexp.reduce(weights[0]))
            if i in single:
                tables[slices[(names[i],)]] += weights[0]
        else:
            pair = (min(i, parent), max(i, parent))
            counts = counts_of[pair] if parent < i else counts_of[pair].T
            prior = smoothing * cards[i]
            weights = np.log((counts + prior * single[i]) / (counts.sum(1, keepdims=True) + prior))
            tables[slices[names[pair[0]], names[pair[1]]]] += (weights if parent < i else weights.T).reshape(-1)
        draws.append(_Draw(i, () if parent < 0 else (parent,), weights))
    return StartLaw(hypergraph, tables, log_z, tuple(draws))


def network_law(rows: Observations, hypergraph: InteractionHypergraph, forest: StartLaw) -> StartLaw:
    r"""A directed network of up to three parents per variable, close to the rows; in a larger collection.

    .. math:: q(x_i \mid x_P) = \frac{n(x_i, x_P) + a I_i \, q(x_i \mid x_{P \setminus \{j\}})}{n(x_P) + a I_i}

    Variables come in the order of the forest. Each takes the parent j among its predecessors, with which the rows are
    most probable when each is left out, as long as that helps; the second and third among the 128 that did best as the
    first. The families join the collection. It lies much closer to a fitted law than a forest, so that annealed runs
    from it are short and their weights even.
    """
    from ....compute.lanes import run_threads

    names, cards = rows.domain.names, rows.domain.cardinalities
    parents, order = _Parents(rows), [draw.variable for draw in forest.draws]
    found: dict[int, _Draw] = {}

    def search(first: int, step: int) -> None:
        for k in range(first, len(order), step):
            found[k] = parents.draw(order[k], order[:k])

    run_threads(search, len(order), cost=parents.cost)
    draws = [found[k] for k in range(len(order))]
    families = [tuple(sorted((draw.variable, *draw.parents))) for draw in draws]
    joint = InteractionHypergraph(
        rows.domain,
        list(dict.fromkeys([*hypergraph.edges, *(tuple(names[i] for i in family) for family in families)])),
        hierarchical=False,
    )
    tables = np.zeros(joint.num_terms)
    for family, draw in zip(families, draws, strict=True):
        given = (*draw.parents, draw.variable)
        table = draw.log_weights.reshape([cards[j] for j in given])
        where = joint.term_slices[tuple(names[i] for i in family)]
        tables[where] += np.transpose(table, [given.index(i) for i in family]).reshape(-1)
    return StartLaw(joint, tables, 0.0, tuple(draws))


class _Parents:
    """Rows that parents of variables are looked for in."""

    def __init__(self, rows: Observations) -> None:
        self._cards, self._counts = rows.domain.cardinalities, rows.counts.numpy().astype(np.float64)
        self._codes = rows.codes.numpy()
        self._columns = np.ascontiguousarray(self._codes.T, dtype=np.int32)

    @property
    def cost(self) -> float:
        """Look-ups that the draws of all variables take, about."""
        return self._codes.size * len(self._cards) / 2

    def draw(self, i: int, placed: Sequence[int]) -> _Draw:
        """A variable given those of the ``placed`` ones that make the rows most probable."""
        from ._kernels import parent_scores

        cards, codes, counts = self._cards, self._codes, self._counts
        levels, prior, sizes = cards[i], _PRIOR * cards[i], np.array(cards, dtype=np.int64)
        alone = np.bincount(codes[:, i], counts, levels) + _PRIOR
        fitted = (alone / alone.sum())[None]
        parents: tuple[int, ...] = ()
        cells = np.zeros(len(codes), dtype=np.int64)
        best = float(counts @ np.log(fitted[0, codes[:, i]]))
        free = np.array(placed, dtype=np.int64)
        while len(parents) < _MAX_PARENTS:
            scores = parent_scores(self._columns, sizes, counts, i, cells, fitted, prior, free, _MAX_FAMILY)
            if not len(free) or scores.max() <= best + _LEAST_GAIN * levels:
                break
            j, best = int(free[scores.argmax()]), float(scores.max())
            free = free[np.sort(np.argsort(-scores, kind="stable")[:_PROMISING])]
            free = free[free != j]
            parents, cells = (*parents, j), cells * cards[j] + codes[:, j]
            table = np.bincount(cells * levels + codes[:, i], counts, len(fitted) * cards[j] * levels)
            table = table.reshape(-1, levels)
            before = prior * np.repeat(fitted, cards[j], axis=0)
            fitted = (table + before) / (table.sum(1) + prior)[:, None]
        return _Draw(i, parents, np.log(fitted))


def _information(counts: Floats) -> float:
    """Mutual information in nats of a table of counts."""
    probs = counts / counts.sum()
    product = np.outer(probs.sum(1), probs.sum(0))
    seen = probs > 0
    return float((probs[seen] * np.log(probs[seen] / product[seen])).sum())


def _walk(count: int, counts_of: dict[tuple[int, int], Floats]) -> list[tuple[int, int]]:
    """Nodes with their parents (-1 for none), parents first, of the forest with most mutual information (Kruskal)."""
    joined, forest = nx.Graph(), nx.Graph()
    for graph in (joined, forest):
        graph.add_nodes_from(range(count))
    gains = sorted((pair, _information(counts)) for pair, counts in counts_of.items())
    joined.add_weighted_edges_from((*pair, gain) for pair, gain in gains if gain > 0)
    forest.add_edges_from(nx.maximum_spanning_edges(joined, data=False))
    parents: dict[int, int] = {}
    for first in range(count):
        if first not in parents:
            parents[first] = -1
            arcs = nx.dfs_edges(forest, first, sort_neighbors=lambda nodes: list(nodes)[::-1])
            parents.update((child, parent) for parent, child in arcs)
    return list(parents.items())
