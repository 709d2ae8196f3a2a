"""Sets of variables that are drawn by elimination: how their tables meet, and covers by sets of low treewidth."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from .elimination_order import elimination_order
from .hypergraph import InteractionHypergraph

__all__ = ["BlockBucket", "block_buckets", "bucket_cells", "low_width_blocks"]

Block = tuple[int, ...]


class BlockBucket(NamedTuple):
    """One step of an elimination within a block: a variable, and those of the block that its message is about."""

    variable: int
    scope: Block


@lru_cache(maxsize=1024)
def block_buckets(hypergraph: InteractionHypergraph, block: Block) -> tuple[BlockBucket, ...]:
    """Buckets of the variables of a block in the order of a good elimination, all other variables given.

    Interactions lose their members outside of the block. Positions are those of the schema; scopes are sorted.
    """
    domain, members = hypergraph.domain, set(block)
    inside = {tuple(v for v in edge if v in members) for edge in hypergraph.edge_indices}
    names = domain.names
    part = InteractionHypergraph(
        domain.project([names[v] for v in block]),
        [tuple(names[v] for v in edge) for edge in inside if edge],
        hierarchical=False,
    )
    # A message meets what is left of the interactions and messages around its variable.
    around: dict[int, set[int]] = {v: set() for v in block}
    for edge in inside:
        for v in edge:
            around[v].update(edge)
    buckets: list[BlockBucket] = []
    for v in domain.indices(elimination_order(part)):
        scope = around.pop(v) - {v}
        for u in scope:
            around[u] = (around[u] | scope) - {v}
        buckets.append(BlockBucket(v, tuple(sorted(scope))))
    return tuple(buckets)


def bucket_cells(buckets: Iterable[BlockBucket], cards: Sequence[int]) -> int:
    """Cells of all tables that are formed when buckets are eliminated."""
    return sum(cards[v] * math.prod(cards[u] for u in scope) for v, scope in buckets)


def low_width_blocks(
    hypergraph: InteractionHypergraph, free: Iterable[int], width: int, max_cells: int
) -> tuple[Block, ...]:
    """Free variables divided into connected blocks whose induced interaction graphs have treewidth at most ``width``.

    Variables of few neighbours are eliminated one by one; where all that are left have more than ``width``, the one of
    most neighbours is put off. What was eliminated are the first blocks, one for every connected part, and what was put
    off is divided in the same way. Tables of the blocks of one round have at most ``max_cells`` cells together, but for
    variables without neighbours. A variable with more than ``width`` neighbours in every round gets a later one.

    References:
        Bozhena Bidyuk and Rina Dechter, On finding minimal w-cutset, UAI 2004 (greedy choices); Firas Hamze and Nando
        de Freitas, From fields to trees, UAI 2004.
    """
    left = set(free)
    around: dict[int, set[int]] = {v: set() for v in left}
    for edge in hypergraph.edge_indices:
        members = left.intersection(edge)
        for v in members:
            around[v] |= members
    for v in left:
        around[v].discard(v)
    blocks: list[Block] = []
    while left:
        chosen = _eliminated({v: around[v] & left for v in left}, hypergraph.domain.cardinalities, width, max_cells)
        blocks += _connected({v: around[v] & chosen for v in chosen})
        left -= chosen
    return tuple(blocks)


def _eliminated(graph: dict[int, set[int]], cards: Sequence[int], width: int, max_cells: int) -> set[int]:
    """Variables that can be eliminated together; the graph is used up."""
    chosen, total = set[int](), 0
    few = [(len(around), v) for v, around in graph.items()]
    many = [(-len(around), v) for v, around in graph.items()]
    heapq.heapify(few)
    heapq.heapify(many)

    def changed(v: int) -> None:
        heapq.heappush(few, (len(graph[v]), v))
        heapq.heappush(many, (-len(graph[v]), v))

    while graph:
        # The variable of fewest neighbours, if its table is small enough.
        while few and (few[0][1] not in graph or len(graph[few[0][1]]) != few[0][0]):
            heapq.heappop(few)
        number, v = few[0] if few else (width + 1, -1)
        if number <= width:
            heapq.heappop(few)
            cells = cards[v] * math.prod(cards[u] for u in graph[v])
            if number and total + cells > max_cells:  # until a neighbour goes
                continue
            total += cells
            chosen.add(v)
            around = graph.pop(v)
            for u in around:
                graph[u] |= around
                graph[u] -= {u, v}
                changed(u)
            continue
        # Else the one of most neighbours waits for another round.
        while many[0][1] not in graph or len(graph[many[0][1]]) != -many[0][0]:
            heapq.heappop(many)
        v = heapq.heappop(many)[1]
        for u in graph.pop(v):
            graph[u].discard(v)
            changed(u)
    return chosen


def _connected(graph: dict[int, set[int]]) -> list[Block]:
    """Connected parts of a graph, each sorted, in the order of their first members."""
    seen, parts = set[int](), list[Block]()
    for first in sorted(graph):
        if first in seen:
            continue
        part, waiting = {first}, [first]
        while waiting:
            new = graph[waiting.pop()] - part
            part |= new
            waiting.extend(new)
        seen |= part
        parts.append(tuple(sorted(part)))
    return parts
