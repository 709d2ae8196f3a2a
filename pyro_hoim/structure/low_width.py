"""Sets of variables that are drawn by elimination: how their tables meet, and covers by sets of low treewidth."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from .elimination_order import elimination_order
from .hypergraph import InteractionHypergraph

Block = tuple[int, ...]
_MOST_ROUNDS = 8


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
    """Connected blocks that cover the free variables, with induced interaction graphs of treewidth at most ``width``.

    In a round variables of few neighbours are eliminated one by one; where all that are left have more than ``width``,
    the one of most neighbours is left out. The connected parts of what was eliminated are blocks, whose tables have at
    most ``max_cells`` cells together, but for variables without neighbours. Another round follows as long as variables
    are in no block; it leaves out those that are in one first, so that blocks of different rounds overlap: what no
    block moves together would mix as slowly as single variables do. Parts that lie in an earlier block are dropped.
    What is left after eight rounds are blocks of one variable.

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
    covered = set[int]()
    blocks: list[Block] = []
    blocks_with: dict[int, list[set[int]]] = {v: [] for v in left}
    for _ in range(_MOST_ROUNDS):
        graph = {v: set(others) for v, others in around.items()}
        chosen = _eliminated(graph, covered, hypergraph.domain.cardinalities, width, max_cells)
        parts = _connected({v: around[v] & chosen for v in chosen})
        new = [part for part in parts if not any(set(part) <= block for block in blocks_with[part[0]])]
        for part in new:
            members = set(part)
            for v in part:
                blocks_with[v].append(members)
        blocks += new
        covered |= chosen
        if covered == left:
            break
    return (*blocks, *((v,) for v in sorted(left - covered)))


def _eliminated(
    graph: dict[int, set[int]], covered: set[int], cards: Sequence[int], width: int, max_cells: int
) -> set[int]:
    """Variables that can be eliminated together; the graph is used up, and covered variables are left out first."""
    chosen, total = set[int](), 0

    beside = {v for v, others in graph.items() if not others <= covered}  # ties keep these with what is in no block

    def rank(v: int) -> tuple[bool, int, bool, int]:
        return v not in covered, -len(graph[v]), v in beside, v

    # Heaps of the variables of few neighbours, and of all; ranks in the latter are brought up to date at the top.
    few = [(len(others), v) for v, others in graph.items() if len(others) <= width]
    many = [rank(v) for v in graph]
    heapq.heapify(few)
    heapq.heapify(many)
    while graph:
        while few and (few[0][1] not in graph or len(graph[few[0][1]]) != few[0][0]):
            heapq.heappop(few)
        if few:
            # The variable of fewest neighbours, if its table is small enough; else it waits until a neighbour goes.
            number, v = heapq.heappop(few)
            cells = cards[v] * math.prod(cards[u] for u in graph[v])
            if number and total + cells > max_cells:
                continue
            total += cells
            chosen.add(v)
            around = graph.pop(v)
            added = around
        else:
            while (v := many[0][-1]) not in graph or rank(v) != many[0]:
                heapq.heappop(many)
                if v in graph:
                    heapq.heappush(many, rank(v))
            around, added = graph.pop(v), set[int]()
        for u in around:
            before = len(graph[u])
            graph[u] |= added
            graph[u] -= {u, v}
            if len(graph[u]) <= width:
                heapq.heappush(few, (len(graph[u]), u))
            if len(graph[u]) > before:
                heapq.heappush(many, rank(u))
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
