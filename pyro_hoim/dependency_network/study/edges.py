"""What the nodes of a dependency network gain from the variables that they read."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from ...data.frames import DataLike, as_observations
from ...data.observations import Observations
from ...errors import InputTypeError, check_type, none_received, other_domain
from ...schema import Domain
from ..conditionals import DependencyConditionals
from ..decision_graph import DecisionGraph, Split
from ..node_conditionals import LeafConditional

__all__ = ["DependencyEdge", "GraphInformation", "edge_information"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class DependencyEdge:
    """One variable that the conditional of another one reads.

    Attributes:
        parent: the variable that is read.
        child: the variable whose conditional reads it.
        value: information on the child that its graph gained by asking the parent, nats per row.
        num_splits: how often the graph asks the parent.

    Example:
        >>> from pyro_hoim import Domain
        >>> from pyro_hoim.dependency_network import learn_network
        >>> rows = Observations.from_table(Domain.from_cardinalities({"a": 2, "b": 2}), [[40, 10], [10, 40]])
        >>> edges, _ = edge_information(learn_network(rows).conditionals, rows)
        >>> (edges[0].parent, edges[0].child), round(edges[0].value, 4), edges[0].num_splits
        (('a', 'b'), 0.1927, 1)
    """

    parent: str
    child: str
    value: float
    num_splits: int


@dataclass(frozen=True, eq=False)
class GraphInformation:
    r"""How a decision graph came to know its variable, found by replaying it on rows; in nats per row.

    .. math:: H(X_i) - H(X_i \mid Y_i) = \sum_{\text{splits}} \Delta_s - \sum_{\text{merges}} \Delta_m

    Attributes:
        edges: one per variable that is asked, in schema order; a value is the sum over the splits on it.
        entropy: empirical entropy of the variable, :math:`H(X_i)`.
        conditional_entropy: empirical :math:`H(X_i \\mid Y_i)`.
        merged: information given up by all merges.
        counts: weights of the rows by leaf and level, (num_leaves, cardinality) float64.

    Example:
        >>> from pyro_hoim import Domain
        >>> from pyro_hoim.dependency_network import learn_network
        >>> rows = Observations.from_table(Domain.from_cardinalities({"a": 2, "b": 2}), [[40, 10], [10, 40]])
        >>> _, graphs = edge_information(learn_network(rows).conditionals, rows)
        >>> round(graphs[0].entropy, 4), round(graphs[0].gain, 4), graphs[0].counts.tolist()
        (0.6931, 0.1927, [[40.0, 10.0], [10.0, 40.0]])
    """

    edges: tuple[DependencyEdge, ...]
    entropy: float
    conditional_entropy: float
    merged: float
    counts: torch.Tensor

    @property
    def gain(self) -> float:
        r"""What the graph knows of its variable, :math:`H(X_i) - H(X_i \mid Y_i)`."""
        return self.entropy - self.conditional_entropy


def edge_information(
    conditionals: DependencyConditionals, rows: DataLike
) -> tuple[tuple[DependencyEdge, ...], tuple[GraphInformation, ...]]:
    """Directed edges of a network of decision graphs, most informative first, and what every graph knows.

    A value tells how much a node learned from a parent when its graph asked for it, one after the other: of two
    parents that tell the same, the one asked first gets the credit, and what only both together tell goes to the last.

    Args:
        conditionals: the network.
        rows: the rows it was learned from, or others. A row without a cell that is asked goes to every child with the
            child's share of the rows that have it, as in learning.

    Raises:
        InputTypeError: no network, no observations, or a conditional that is no decision graph.
        InputError: another domain, or no row in which some variable is known.

    Example:
        >>> from pyro_hoim import Domain
        >>> from pyro_hoim.dependency_network import learn_network
        >>> rows = Observations.from_table(Domain.from_cardinalities({"a": 2, "b": 2}), [[40, 10], [10, 40]])
        >>> apart = learn_network(rows, max_leaves=1).conditionals
        >>> edges, graphs = edge_information(apart, rows)
        >>> edges, graphs[0].gain
        ((), 0.0)
    """
    check_type(conditionals, DependencyConditionals, "conditionals")
    rows = as_observations(rows, domain=conditionals.domain, argument="rows")
    for node in conditionals.nodes:
        if not isinstance(node, LeafConditional):
            problem = f"expected decision graphs, but that of {node.variable!r} is a {type(node).__name__}"
            raise InputTypeError(problem, argument="conditionals")
    merged = rows.unique()
    found = tuple(_graph_information(n.graph, merged) for n in conditionals.nodes if isinstance(n, LeafConditional))
    return sorted_edges(found, conditionals.domain), found


def _graph_information(graph: DecisionGraph, rows: Observations) -> GraphInformation:
    """Replay one decision graph on rows; InputError for another domain, or where the variable is never known."""
    domain = graph.domain
    if rows.domain != domain:
        raise other_domain("rows", "the variables and labels of the network's domain")
    column = domain.index(graph.variable)
    kept = ((rows.codes[:, column] >= 0) & (rows.counts > 0)).numpy()
    codes, weight = rows.codes.numpy()[kept], rows.counts.double().numpy()[kept]
    if not len(weight):
        raise none_received("rows", f"rows in which {graph.variable!r} is known")
    size = domain[graph.variable].cardinality
    row, leaf, num_leaves = np.arange(len(weight)), np.zeros(len(weight), dtype=np.int64), 1
    level = codes[:, column]
    own, split_tables = _tally(level, weight, size), list[Floats]()
    for operation in graph.operations:
        if isinstance(operation, Split):
            width = domain[operation.on].cardinality
            here = leaf == operation.leaf
            seen = codes[row[here], domain.index(operation.on)]
            known = seen >= 0
            into, children, shares = row[here], seen.copy(), weight[here]
            if not known.all():
                into, children, shares = _share_out(into, seen, shares, width)
            split_tables.append(_tally(children * size + level[into], shares, width * size).reshape(width, size))
            rest = leaf[~here]
            row = np.concatenate([row[~here], into])
            weight = np.concatenate([weight[~here], shares])
            leaf = np.concatenate([rest - (rest > operation.leaf), num_leaves - 1 + children])
            num_leaves += width - 1
        else:
            leaf = np.where(leaf == operation.second, operation.first, leaf - (leaf > operation.second))
            num_leaves -= 1
    return information_of_tables(graph, own, split_tables)


def information_of_tables(graph: DecisionGraph, own: Floats, split_tables: Iterable[Floats]) -> GraphInformation:
    """What a graph knows, from the counts of its variable and those of the leaves that each split makes.

    Shapes: own (n_i,); of every split in turn (levels of the variable asked, n_i).
    """
    total, tables = float(own.sum()), iter(split_tables)
    gained, asked, merged = dict.fromkeys(graph.reads, 0.0), dict.fromkeys(graph.reads, 0), 0.0
    leaves: list[Floats] = [own]
    for operation in graph.operations:
        if isinstance(operation, Split):
            found = next(tables)
            gained[operation.on] += (_spread(found.sum(0)) - sum(map(_spread, found))) / total
            asked[operation.on] += 1
            leaves.pop(operation.leaf)
            leaves.extend(found)
        else:
            one, two = leaves[operation.first], leaves.pop(operation.second)
            merged += (_spread(one + two) - _spread(one) - _spread(two)) / total
            leaves[operation.first] = one + two
    counts = np.stack(leaves)
    return GraphInformation(
        tuple(DependencyEdge(name, graph.variable, max(gained[name], 0.0), asked[name]) for name in graph.reads),
        _spread(own) / total,
        sum(map(_spread, counts)) / total,
        merged,
        torch.from_numpy(counts),
    )


def sorted_edges(graphs: Iterable[GraphInformation], domain: Domain) -> tuple[DependencyEdge, ...]:
    """Edges of all graphs, most informative first."""
    place = domain.index
    edges = (edge for graph in graphs for edge in graph.edges)
    return tuple(sorted(edges, key=lambda e: (-e.value, place(e.parent), place(e.child))))


def _share_out(
    rows: NDArray[np.int64], seen: NDArray[np.int64], weight: Floats, width: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats]:
    """Rows without the variable of a split, spread over its levels in proportion to the rows that have it."""
    known = seen >= 0
    shares = _tally(seen[known], weight[known], width)
    shares = shares / shares.sum() if shares.sum() > 0 else np.full(width, 1 / width)
    levels = np.flatnonzero(shares)
    into = np.repeat(rows[~known], len(levels))
    children = np.tile(levels, int((~known).sum()))
    spread = np.repeat(weight[~known], len(levels)) * shares[children]
    return (
        np.concatenate([rows[known], into]),
        np.concatenate([seen[known], children]),
        np.concatenate([weight[known], spread]),
    )


def _tally(index: NDArray[np.int64], weight: Floats, size: int) -> Floats:
    return np.bincount(index, weights=weight, minlength=size).astype(np.float64)


def _spread(counts: Sequence[float] | Floats) -> float:
    """Total weight times the entropy of a table of counts, nats."""
    values = np.asarray(counts, dtype=np.float64)
    values = values[values > 0]
    total = float(values.sum())
    return total * math.log(total) - float((values * np.log(values)).sum()) if total > 0 else 0.0
