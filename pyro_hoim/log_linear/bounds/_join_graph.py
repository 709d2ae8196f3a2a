"""The join graph of weighted mini-bucket elimination: which tables meet when a variable is summed out, and how often.

Every variable has a bucket, which is divided into mini-buckets so small that their tables fit. A mini-bucket sums the
product of its tables over its variable, to the power of a weight, and passes the result on to the bucket of the
variable in it that is summed next. Mini-buckets of one bucket have a table over what they share. What is added to it in
one is taken away in another: the costs that are shifted between them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..._modes import plain_mode
from ...structure.hypergraph import InteractionHypergraph, row_strides
from ...structure.least_fill import least_fill, neighbour_pairs

TABLE, MESSAGE, SHIFT = 0, 1, 2
_BLOCK = 256  # cells of a message that are computed together


class Input(NamedTuple):
    """A table that meets others: what it is, which one, and its variables, the slowest first."""

    kind: int
    number: int
    scope: tuple[int, ...]


@dataclass(frozen=True)
class MiniBucket:
    """The tables of one mini-bucket and its variables: the one that is summed, then the others as they are summed."""

    scope: tuple[int, ...]
    inputs: tuple[Input, ...]


@dataclass(frozen=True)
class JoinGraph:
    """Mini-buckets in the order in which variables are summed; ``buckets`` are ranges of them."""

    hypergraph: InteractionHypergraph
    nodes: tuple[MiniBucket, ...]
    buckets: tuple[range, ...]

    def size(self, scope: tuple[int, ...]) -> int:
        """Cells of a table over some variables."""
        cards = self.hypergraph.domain.cardinalities
        return math.prod([cards[v] for v in scope])

    @property
    def largest_cells(self) -> int:
        """Cells of the largest mini-bucket."""
        return max((self.size(node.scope) for node in self.nodes), default=1)

    @property
    def total_cells(self) -> int:
        """Cells of all mini-buckets."""
        return sum(self.size(node.scope) for node in self.nodes)

    @property
    def is_exact(self) -> bool:
        """Whether no bucket is divided."""
        return len(self.nodes) == len(self.buckets)

    def __hash__(self) -> int:
        return hash((self.hypergraph, self.nodes))


def _divided(inputs: list[Input], cards: tuple[int, ...], max_cells: int) -> list[list[Input]]:
    """Inputs of a bucket in groups of at most so many cells: the largest first, each where it adds the fewest cells."""

    def cells(scope: Iterable[int]) -> int:
        return math.prod([cards[v] for v in scope])

    scopes, sizes, groups = list[set[int]](), list[int](), list[list[Input]]()
    for item in sorted(inputs, key=lambda item: -cells(item.scope)):
        grown = [cells(scope.union(item.scope)) for scope in scopes]
        fitting = [k for k, size in enumerate(grown) if size <= max_cells]
        if fitting:
            best = min(fitting, key=lambda k: grown[k] / sizes[k])
            scopes[best].update(item.scope)
            sizes[best] = grown[best]
            groups[best].append(item)
        else:
            scopes.append(set(item.scope))
            sizes.append(cells(item.scope))
            groups.append([item])
    return groups or [[]]


@lru_cache(maxsize=64)
@plain_mode()
def join_graph(hypergraph: InteractionHypergraph, max_cells: int, number: int = 0) -> JoinGraph:
    """Mini-buckets of at most ``max_cells`` cells where interactions allow, by one of many orders of least fill-in."""
    cards = hypergraph.domain.cardinalities
    random = np.random.default_rng(number) if number else None
    order, _ = least_fill(neighbour_pairs(hypergraph), cards, list(range(len(cards))), random)
    rank = {v: k for k, v in enumerate(order)}
    # Interactions, then messages, wait in the bucket of their first variable.
    waiting: list[list[Input]] = [[] for _ in cards]
    for position, edge in enumerate(hypergraph.edge_indices):
        waiting[min(edge, key=rank.__getitem__)].append(Input(TABLE, position, edge))
    nodes, buckets, num_shifts = list[MiniBucket](), list[range](), 0
    for v in order:
        groups = _divided(waiting[v], cards, max_cells)
        scopes = [{v}.union(*(item.scope for item in group)) for group in groups]
        common = tuple(sorted(set.intersection(*scopes), key=rank.__getitem__))
        start = len(nodes)
        for group, scope in zip(groups, scopes, strict=True):
            if len(groups) > 1:
                group.append(Input(SHIFT, num_shifts, common))
                num_shifts += 1
            rest = tuple(sorted(scope - {v}, key=rank.__getitem__))
            if rest:
                waiting[rest[0]].append(Input(MESSAGE, len(nodes), rest))
            nodes.append(MiniBucket((v, *rest), tuple(group)))
        buckets.append(range(start, len(nodes)))
    return JoinGraph(hypergraph, tuple(nodes), tuple(buckets))


class Program(NamedTuple):
    """A join graph as arrays, which compiled loops read; all numbers stand in one buffer: tables, shifts, messages.

    ``nodes`` has a row for every mini-bucket: levels, cells of the message, cells of a block, place of the message,
    first and last input, first and last outer loop, and where what is passed back is kept. ``inputs`` has a row for
    every table: place, stride of the summed variable, form, place of its index, kind, cells. ``loops`` are levels of
    the outer loops, ``strides`` those of inputs in them, (inputs, loops). ``places`` are where a block's cells stand in
    inputs that are neither constant nor contiguous there. ``pointer`` leads from an input to its rows (variable,
    stride) in ``walk``, without the variable that is summed.
    """

    nodes: NDArray[np.int64]
    inputs: NDArray[np.int64]
    loops: NDArray[np.int64]
    strides: NDArray[np.int64]
    places: NDArray[np.uint32]
    buckets: NDArray[np.int64]
    roots: NDArray[np.int64]
    variables: NDArray[np.int64]
    pointer: NDArray[np.int64]
    walk: NDArray[np.int64]


@dataclass(frozen=True)
class Compiled:
    """A program, the cells of its buffer, those kept of beliefs, and numbers of one block."""

    program: Program
    num_terms: int
    num_shifts: int
    num_values: int
    num_kept: int
    num_block: int
    places: tuple[dict[int, int], dict[int, int], dict[int, int]]

    def place(self, item: Input) -> int:
        """Where a table stands in the buffer."""
        return self.places[item.kind][item.number]


def _inner(scope: tuple[int, ...], cards: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Variables of a message that are looped over outside, and those whose joint levels make a block."""
    cut, cells = len(scope), 1
    while cut and cells * cards[scope[cut - 1]] <= _BLOCK:
        cut -= 1
        cells *= cards[scope[cut]]
    return scope[:cut], scope[cut:]


def _places(inner: tuple[tuple[int, int], ...]) -> NDArray[np.int64]:
    """Where the cells of a block stand in an input, from strides and levels of the block's variables."""
    where = np.zeros(1, dtype=np.int64)
    for stride, levels in inner:
        where = np.add.outer(where, stride * np.arange(levels)).ravel()
    return where


@lru_cache(maxsize=64)
@plain_mode()
def compiled(graph: JoinGraph) -> Compiled:
    """The arrays of a join graph."""
    hypergraph = graph.hypergraph
    cards, num_terms = hypergraph.domain.cardinalities, hypergraph.num_terms
    tables = {k: where.start for k, where in enumerate(hypergraph.term_slices.values())}
    # Places of shifts and messages behind the tables.
    end = num_terms
    shifts, messages = dict[int, int](), dict[int, int]()
    for node in graph.nodes:
        for item in node.inputs:
            if item.kind == SHIFT:
                shifts[item.number] = end
                end += graph.size(item.scope)
    for number, node in enumerate(graph.nodes):
        messages[number] = end
        end += graph.size(node.scope[1:])
    places = tables, messages, shifts
    num_shifts = sum(graph.size(item.scope) for node in graph.nodes for item in node.inputs if item.kind == SHIFT)
    pointer, walk = [0], list[tuple[int, int]]()
    rows, inputs, loops = list[tuple[int, ...]](), list[tuple[int, ...]](), list[int]()
    strides, pieces = list[list[int]](), list[NDArray[np.uint32]]()
    known, num_index, num_kept, num_block = dict[tuple[tuple[int, int], ...], tuple[int, int]](), 0, 0, 1
    split = {k for bucket in graph.buckets if len(bucket) > 1 for k in bucket}
    for number, node in enumerate(graph.nodes):
        variable, rest = node.scope[0], node.scope[1:]
        outer, inner = _inner(rest, cards)
        first, loop = len(inputs), len(loops)
        loops += [cards[u] for u in outer]
        block = math.prod(cards[u] for u in inner)
        for item in node.inputs:
            shape = [cards[u] for u in item.scope]
            step = dict(zip(item.scope, row_strides(shape), strict=True))
            key = tuple((step.get(u, 0), cards[u]) for u in inner)
            if key not in known:
                where = _places(key)
                form = 0 if not where.any() else 1 if np.array_equal(where, np.arange(block)) else 2
                known[key] = form, num_index if form == 2 else 0
                if form == 2:
                    pieces.append(where.astype(np.uint32))
                    num_index += block
            form, position = known[key]
            start = places[item.kind][item.number]
            inputs.append((start, step.get(variable, 0), form, position, item.kind, math.prod(shape)))
            strides.append([step.get(u, 0) for u in outer])
            walk += [(u, step[u]) for u in item.scope if u != variable]
            pointer.append(len(walk))
        cells = graph.size(rest)
        passed = num_kept if number in split else -1
        num_kept += cells if number in split else 0
        num_block = max(num_block, block * cards[variable])
        rows.append((cards[variable], cells, block, messages[number], first, len(inputs), loop, len(loops), passed))
    width = max(map(len, strides), default=0)
    table = np.zeros((len(strides), max(width, 1)), dtype=np.int64)
    for k, row in enumerate(strides):
        table[k, : len(row)] = row
    program = Program(
        np.array(rows, dtype=np.int64).reshape(-1, 9),
        np.array(inputs, dtype=np.int64).reshape(-1, 6),
        np.array([*loops, 1], dtype=np.int64),
        table,
        np.concatenate(pieces) if pieces else np.zeros(1, dtype=np.uint32),
        np.array([0, *(bucket.stop for bucket in graph.buckets)], dtype=np.int64),
        np.array([k for k, node in enumerate(graph.nodes) if len(node.scope) == 1], dtype=np.int64),
        np.array([node.scope[0] for node in graph.nodes], dtype=np.int64),
        np.array(pointer, dtype=np.int64),
        np.array(walk, dtype=np.int64).reshape(-1, 2),
    )
    return Compiled(program, num_terms, num_shifts, end, num_kept, num_block, places)
