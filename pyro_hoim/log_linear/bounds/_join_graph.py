"""The join graph of weighted mini-bucket elimination: which tables meet when a variable is summed out, and how often.

Every variable has a bucket, which is divided into mini-buckets so small that their tables fit. A mini-bucket sums the
product of its tables over its variable, to the power of a weight, and passes the result on to the bucket of the
variable in it that is summed next. Mini-buckets of one bucket have a table over what they share. What is added to it in
one is taken away in another: the costs that are shifted between them.
"""

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..._modes import plain_mode
from ...structure.elimination_order import least_fill, neighbour_pairs
from ...structure.hypergraph import InteractionHypergraph

TABLE, MESSAGE, SHIFT = 0, 1, 2
BANDED = -1
"""Number of the reverse Cuthill-McKee order, in which neighbours are near each other: it is good on grids."""
_BLOCK = 256  # cells of a message that are computed together
_MOST_CELLS = 2**62  # of any table, as whole numbers have 64 bits


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


class Division(NamedTuple):
    """Mini-buckets as arrays, in which variables are ranks in the order.

    ``items`` are all tables that meet others: rows (kind, number, start, length), of which ``pool`` has the variables
    and strides from start on. ``nodes`` are mini-buckets: rows (start, length, first input, last input), whose cells
    ``cells`` has, as floating-point numbers; ``inputs`` are rows of ``items``. ``buckets`` are where buckets begin and
    end among the mini-buckets.
    """

    items: NDArray[np.int64]
    pool: NDArray[np.int64]
    nodes: NDArray[np.int64]
    cells: NDArray[np.float64]
    inputs: NDArray[np.int64]
    buckets: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class JoinGraph:
    """Mini-buckets in the order in which variables are summed. Variables that are not in the order are fixed."""

    hypergraph: InteractionHypergraph
    order: NDArray[np.int64]
    division: Division

    def size(self, scope: tuple[int, ...]) -> int:
        """Cells of a table over some variables."""
        cards = self.hypergraph.domain.cardinalities
        return math.prod([cards[v] for v in scope])

    def scope(self, start: int, length: int) -> tuple[int, ...]:
        """Variables of some rows of the pool."""
        return tuple(self.order[self.division.pool[start : start + length, 0]].tolist())

    @cached_property
    def nodes(self) -> tuple[MiniBucket, ...]:
        """The mini-buckets, in order."""
        items = [
            Input(kind, number, self.scope(start, length))
            for kind, number, start, length in self.division.items.tolist()
        ]
        inputs = [items[k] for k in self.division.inputs.tolist()]
        return tuple(
            MiniBucket(self.scope(start, length), tuple(inputs[first:last]))
            for start, length, first, last in self.division.nodes.tolist()
        )

    @cached_property
    def buckets(self) -> tuple[range, ...]:
        """Ranges of mini-buckets that sum one variable."""
        return tuple(range(first, last) for first, last in pairwise(self.division.buckets.tolist()))

    @property
    def largest_cells(self) -> float:
        """Cells of the largest mini-bucket."""
        return float(self.division.cells.max(initial=1.0))

    @property
    def total_cells(self) -> float:
        """Cells of all mini-buckets."""
        return float(self.division.cells.sum())

    @property
    def message_cells(self) -> float:
        """Cells of all messages."""
        levels = tables_of(self.hypergraph).cards[self.order]
        return float((self.division.cells / levels[self.division.pool[self.division.nodes[:, 0], 0]]).sum())

    @property
    def is_exact(self) -> bool:
        """Whether no bucket is divided."""
        return len(self.division.nodes) == len(self.order)


class Tables(NamedTuple):
    """Where the variables of every table begin among ``members``, and where the table itself begins."""

    pointer: NDArray[np.int64]
    members: NDArray[np.int64]
    starts: NDArray[np.int64]
    cards: NDArray[np.int64]


@lru_cache(maxsize=64)
def tables_of(hypergraph: InteractionHypergraph) -> Tables:
    """The tables of a hypergraph as arrays, and the levels of all variables."""
    edges = hypergraph.edge_indices
    parts = (
        np.cumsum([0, *map(len, edges)]),
        [v for edge in edges for v in edge],
        [where.start for where in hypergraph.term_slices.values()],
        hypergraph.domain.cardinalities,
    )
    return Tables(*(np.array(part, dtype=np.int64) for part in parts))


@lru_cache(maxsize=64)
@plain_mode()
def join_graph(
    hypergraph: InteractionHypergraph, max_cells: int, number: int = 0, fixed: tuple[int, ...] = ()
) -> JoinGraph:
    """Mini-buckets of at most ``max_cells`` cells where interactions allow, by one of many orders.

    Orders are of least fill-in, with random ties from number 1 on, or a banded one (number :data:`BANDED`). The tables
    of a bucket are divided the largest first, each to the mini-bucket whose cells it multiplies the least. Variables
    that are ``fixed`` are not summed.
    """
    from ._graph_kernels import divided

    cards, tables = hypergraph.domain.cardinalities, tables_of(hypergraph)
    free, pairs = sorted(set(range(len(cards))).difference(fixed)), neighbour_pairs(hypergraph)
    if number == BANDED:
        ends = np.concatenate([pairs, pairs[:, ::-1]]).T
        near = sparse.csr_array((np.ones(len(ends[0])), tuple(ends)), shape=(len(cards), len(cards)))
        ranked = sparse.csgraph.reverse_cuthill_mckee(near, symmetric_mode=True)
        order = ranked[np.isin(ranked, free)].astype(np.int64)
    else:
        random = np.random.default_rng(number) if number else None
        order = np.array(least_fill(pairs, cards, free, random)[0], dtype=np.int64)
    parts = divided(tables.pointer, tables.members, tables.cards, order, float(min(max_cells, _MOST_CELLS)))
    return JoinGraph(hypergraph, order, Division(*parts))


class Program(NamedTuple):
    """A join graph as arrays, which compiled loops read; all numbers stand in one buffer: tables, shifts, messages.

    ``nodes`` has a row for every mini-bucket: levels, cells of the message, cells of a block, place of the message,
    first and last input, first and last outer loop, and where what is passed back is kept. ``inputs`` has a row for
    every table: place, stride of the summed variable, form, place of its index, kind, cells, number. ``loops`` are
    levels of the outer loops, ``strides`` those of inputs in them, (inputs, loops). ``places`` are where a block's
    cells stand in inputs that are neither constant nor contiguous there. ``pointer`` leads from an input to its rows
    (variable, stride) in ``walk``, without the variable that is summed.
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
    starts: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]

    def place(self, item: Input) -> int:
        """Where a table stands in the buffer."""
        return int(self.starts[item.kind][item.number])


@lru_cache(maxsize=64)
@plain_mode()
def compiled(graph: JoinGraph) -> Compiled:
    """The arrays of a join graph."""
    from ._graph_kernels import arranged

    hypergraph, order, division = graph.hypergraph, graph.order, graph.division
    tables = tables_of(hypergraph)
    parts = division.items, division.pool, division.nodes, division.inputs, division.buckets
    (nodes, inputs, loops, strides, places, walk, pointer), sizes = arranged(
        *parts, tables.cards[order], tables.starts, hypergraph.num_terms, _BLOCK
    )
    walk[:, 0] = order[walk[:, 0]]
    roots = np.flatnonzero(division.nodes[:, 1] == 1)
    variables = order[division.pool[division.nodes[:, 0], 0]]
    program = Program(nodes, inputs, loops, strides, places, division.buckets, roots, variables, pointer, walk)
    shifts = inputs[inputs[:, 4] == SHIFT, 0]
    return Compiled(program, *sizes, starts=(tables.starts, nodes[:, 3], shifts))
