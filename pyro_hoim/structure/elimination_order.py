"""Elimination orders: in which sequence to sum variables out, and what the largest table then costs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import reverse_cuthill_mckee

from ..errors import InputError
from .hypergraph import InteractionHypergraph

__all__ = ["EliminationOrder", "elimination_order"]


@dataclass(frozen=True)
class EliminationOrder:
    """A sequence of variables to sum out and its cost.

    Attributes:
        order: the variables in the order of elimination.
        cliques: for every step the variables of the table that is formed (the eliminated one included), in schema
            order.
        width: number of variables of the largest table, less one (the induced width).
        largest_cells: cells of the largest table formed.
        total_cells: cells of all tables formed.
    """

    order: tuple[str, ...]
    cliques: tuple[tuple[str, ...], ...]
    width: int
    largest_cells: int
    total_cells: int


def _greedy(
    adjacency: list[set[int]], logs: list[float], keep: frozenset[int], score: Callable[[int, float], tuple[float, ...]]
) -> list[int]:
    """Eliminate, one by one, the variable of the lowest score (fill-in count, log size of the table formed)."""
    graph = [set(n) for n in adjacency]
    left = [v for v in range(len(graph)) if v not in keep]
    fill: dict[int, int] = {}
    order: list[int] = []
    dirty = set(left)
    while left:
        for v in dirty:
            around = graph[v]
            size = len(around)
            present = sum(len(graph[u] & around) for u in around) // 2
            fill[v] = size * (size - 1) // 2 - present
        best = min(left, key=lambda v: (*score(fill[v], logs[v] + sum(logs[u] for u in graph[v])), v))
        left.remove(best)
        around = graph[best]
        for u in around:
            graph[u].discard(best)
        touched = set(around)
        for u, w in itertools.combinations(around, 2):
            if w not in graph[u]:
                graph[u].add(w)
                graph[w].add(u)
        for u in around:
            touched |= graph[u]
        dirty = touched & set(left)
        order.append(best)
    return order


def _replay(hypergraph: InteractionHypergraph, adjacency: list[set[int]], order: list[int]) -> EliminationOrder:
    """Cliques and cost of a given order."""
    graph = [set(n) for n in adjacency]
    cards = hypergraph.domain.cardinalities
    names = hypergraph.domain.names
    cliques: list[tuple[int, ...]] = []
    for v in order:
        around = graph[v]
        cliques.append(tuple(sorted(around | {v})))
        for u in around:
            graph[u] |= around
            graph[u] -= {u, v}
    sizes = [math.prod(cards[u] for u in clique) for clique in cliques]
    return EliminationOrder(
        order=tuple(names[v] for v in order),
        cliques=tuple(tuple(names[u] for u in clique) for clique in cliques),
        width=max((len(clique) for clique in cliques), default=0) - 1 if cliques else 0,
        largest_cells=max(sizes, default=1),
        total_cells=sum(sizes),
    )


def elimination_order(
    hypergraph: InteractionHypergraph, keep: Iterable[str] = (), *, order: Iterable[str] | None = None
) -> EliminationOrder:
    """A good order in which to sum out all variables except ``keep``, with its exact cost.

    Finding the best order is NP-hard. Candidates are three greedy rules (least fill-in, then smallest table; smallest
    table, then least fill-in; fill-in weighted by table size), the schema order and the reverse Cuthill-McKee order,
    which are good on grids and chains. The candidate that forms the fewest cells is returned, ties going to the
    smaller largest table. Deterministic; costs O(d^2) set operations.

    Args:
        hypergraph: the interactions.
        keep: variables that stay; they are in no step's elimination but may be in its table.
        order: measure this order instead of searching for one.

    Returns:
        The order, the table of every step and the cost.

    Raises:
        UnknownNameError: a name is not in the domain.
        InputError: ``order`` is not a permutation of the variables to eliminate.

    Example:
        >>> from pyro_hoim.schema import Domain
        >>> domain = Domain.from_cardinalities([2] * 5)
        >>> chain = InteractionHypergraph(domain, zip(domain.names, domain.names[1:]), closure=True)
        >>> elimination_order(chain).largest_cells
        4
    """
    kept = frozenset(hypergraph.domain.indices(keep))
    size = len(hypergraph.domain)
    adjacency: list[set[int]] = [set() for _ in range(size)]
    for edge in hypergraph.edge_indices:
        for v in edge:
            adjacency[v].update(edge)
    for v in range(size):
        adjacency[v].discard(v)
    if order is not None:
        given = list(hypergraph.domain.indices(order))
        if sorted(given) != sorted(set(range(size)) - kept):
            raise InputError("order: expected each variable that is not kept exactly once")
        return _replay(hypergraph, adjacency, given)
    logs = [math.log(n) for n in hypergraph.domain.cardinalities]
    rules: tuple[Callable[[int, float], tuple[float, ...]], ...] = (
        lambda fill, cells: (fill, cells),
        lambda fill, cells: (cells, fill),
        lambda fill, cells: ((fill + 1) * cells,),
    )
    candidates = [_greedy(adjacency, logs, kept, rule) for rule in rules]
    sweep = [v for v in range(size) if v not in kept]
    candidates.append(sweep)
    if size > 2:
        rows, columns = zip(*((v, u) for v in range(size) for u in (v, *adjacency[v])), strict=True)
        graph = csr_array((np.ones(len(rows)), (rows, columns)), shape=(size, size))
        candidates.append([int(v) for v in reverse_cuthill_mckee(graph, symmetric_mode=True) if v not in kept])
    measured = [_replay(hypergraph, adjacency, candidate) for candidate in candidates]
    return min(measured, key=lambda c: (c.total_cells, c.largest_cells))
