"""The engine for any finite domain: compiled sums of table rows, many chains per vector instruction (CPU)."""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array

from ...compute.engine import NOTHING, Floats, Ints, Record, Wanted
from ...compute.lanes import SMALL, EnergyChains, balanced_width, later, pieces, run_threads
from ...runs.schedule import MAX_BLOCK_STATES
from ...structure.elimination_order import BlockBucket, block_buckets, first_fit
from ...structure.hypergraph import InteractionHypergraph, row_strides
from ._tables_kernels import add_statistics, run
from .inside import Lists, States

# How the tables of a hypergraph are laid out for single-site and joint Gibbs updates.
#
# A conditional law needs the maximal edges only: the table of every other edge is added into that of one maximal edge
# that contains it (*folded*). For every block and every maximal edge that meets it there is one transposed copy of the
# folded table, with the variables inside the block last, so that the log weights of their joint states are one
# contiguous row. New weights are then two gathers, from terms to cells and from cells to copies.

Places = NDArray[np.int64]


@dataclass(frozen=True)
class TablesStructure:
    """Index arrays of a hypergraph and its blocks; "first ... (n + 1)" ends with the position after the last."""

    num_terms: int
    num_cells: int  # entries of the folded tables of all maximal edges
    folding: csr_array  # cells by terms that are added into them, and by one column more, which stands for zero
    reference_folding: csr_array  # cells by entries of the reference, likewise
    edges: tuple[Ints, Ints, Ints, Ints]  # of maximal edges first cell, first member (n + 1), members and their strides
    num_differences: int  # copies of single binary variables, which come first and hold differences of two cells
    plus: Places  # cell of every entry of the copies; ``num_cells`` stands for zero (padding)
    minus: Places  # cell that is subtracted, for the first ``num_differences`` entries
    sites: tuple[Ints, Ints, Ints, Ints, Ints, Ints, Ints, Ints]  # see :meth:`_Blocks.sites`
    joint: tuple[Ints, Ints, Ints, Ints, Ints, Ints, Ints] | None
    trees: tuple[tuple[Ints, ...], tuple[Ints, Ints, Ints, Ints]] | None  # see :meth:`_Eliminations.arrays`
    reference_start: Ints  # first entry of every variable in the reference
    max_states: int  # largest number of joint states of a block, rounded up to a multiple of 8
    max_factors: int  # largest number of factors of a block, or of a bucket of one that is drawn by elimination
    max_rows: int  # largest number of rows of factors of a bucket
    max_cells: int  # largest number of cells of a block drawn by elimination
    max_levels: int  # of a variable that is drawn by elimination
    max_terms: int  # largest number of rows and messages of a bucket
    visit_reads: int  # of a lane by the longest visit, about


def _ints(values: Sequence[int]) -> Ints:
    return np.array(values, dtype=np.int32)


def _joined(parts: Sequence[NDArray[Any]], dtype: Any = np.int64) -> NDArray[Any]:
    return np.concatenate(parts).astype(dtype) if parts else np.zeros(0, dtype=dtype)


def _hosts(edges: Sequence[tuple[int, ...]], size: int) -> tuple[list[tuple[int, ...]], list[int]]:
    """Maximal edges, with one for every variable that is in no edge, and the maximal edge that holds each edge."""
    maximal: list[tuple[int, ...]] = []
    holding: list[set[int]] = [set() for _ in range(size)]
    host = [0] * len(edges)
    # Largest first, so that what could hold an edge is there before it.
    for e in sorted(range(len(edges)), key=lambda e: -len(edges[e])):
        hosts = set[int].intersection(*(holding[v] for v in edges[e]))
        if hosts:
            host[e] = min(hosts)
            continue
        host[e] = len(maximal)
        for v in edges[e]:
            holding[v].add(len(maximal))
        maximal.append(edges[e])
    maximal.extend((v,) for v in range(size) if not holding[v])
    return maximal, host


def _spread(edge: tuple[int, ...], within: tuple[int, ...], shape: tuple[int, ...]) -> Places:
    """Entry of the table of ``edge`` that every cell of the larger edge ``within`` selects."""
    sizes = [n if v in edge else 1 for v, n in zip(within, shape, strict=True)]
    return np.broadcast_to(np.arange(math.prod(sizes)).reshape(sizes), shape).ravel()


def _fold(
    parts: list[list[tuple[int, tuple[int, ...]]]], maximal: list[tuple[int, ...]], cards: Sequence[int], zero: int
) -> tuple[Places, Places]:
    """Terms of every cell when each maximal edge takes up tables given as (first term, members)."""
    terms: list[Places] = []
    lengths: list[Places] = []
    for edge, taken in zip(maximal, parts, strict=True):
        shape = tuple(cards[v] for v in edge)
        rows = [start + _spread(members, edge, shape) for start, members in taken]
        rows = rows or [np.full(math.prod(shape), zero)]
        terms.append(np.stack(rows, axis=1).ravel())
        lengths.append(np.full(math.prod(shape), len(rows)))
    sizes = _joined(lengths)
    return _joined(terms), np.cumsum(sizes) - sizes


def _sums(
    states: States,
    block: tuple[int, ...],
    tables: Sequence[tuple[int, tuple[int, ...]]],
    cards: Sequence[int],
    zero: int,
) -> tuple[Places, Places]:
    """Terms whose sum is that of tables within a block, given as (first term, members), in some of its joint states."""
    codes = np.array(states, dtype=np.int64).reshape(len(states), len(block))
    rows = [np.full(len(states), zero)]
    for start, members in tables:
        columns = tuple(codes[:, block.index(v)] for v in members)
        rows.append(start + np.ravel_multi_index(columns, tuple(cards[v] for v in members)))
    return np.stack(rows, axis=1).ravel(), np.arange(len(states)) * len(rows)


@lru_cache(maxsize=4096)
def _copy(
    shape: tuple[int, ...], inside: tuple[int, ...], states: tuple[int, ...] | None = None
) -> tuple[Places, tuple[int, ...]]:
    """Entries of a table with the axes ``inside`` last, rows padded to a multiple of 4 by -1; strides of the others.

    Rows hold all joint states of what is inside, or those that are given.
    """
    outside = [j for j in range(len(shape)) if j not in inside]
    width = math.prod(shape[j] for j in inside)
    rows = np.arange(math.prod(shape)).reshape(shape).transpose(*outside, *inside).reshape(-1, width)
    rows = rows if states is None else rows[:, list(states)]
    padded = np.full((len(rows), -(-rows.shape[1] // 4) * 4), -1)
    padded[:, : rows.shape[1]] = rows
    outer = row_strides([shape[j] for j in outside])
    return padded.ravel(), tuple(n * padded.shape[1] for n in outer)


@lru_cache(maxsize=4096)
def _difference(shape: tuple[int, ...], axis: int) -> tuple[Places, Places, tuple[int, ...]]:
    """Entries where the binary variable of an axis is 1 and where it is 0, and the strides of the other axes."""
    rows = np.moveaxis(np.arange(math.prod(shape)).reshape(shape), axis, -1).reshape(-1, 2)
    return rows[:, 1].copy(), rows[:, 0].copy(), row_strides(shape[:axis] + shape[axis + 1 :])


class _Copies:
    """The transposed copies, one for each maximal edge and set of variables inside a block."""

    def __init__(self, maximal: list[tuple[int, ...]], cards: Sequence[int]) -> None:
        self.shapes = [tuple(cards[v] for v in edge) for edge in maximal]
        self.starts = list(itertools.accumulate(map(math.prod, self.shapes), initial=0))
        self.differences: list[tuple[Places, Places, int]] = []
        self.plain: list[tuple[Places, int]] = []
        self.found: dict[Any, tuple[bool, int, tuple[int, ...]]] = {}
        self.sizes = [0, 0]
        self.num_cells = self.starts[-1]  # with sums of tables, which follow the tables

    def add_sums(self, count: int) -> int:
        """The first entry of a copy of so many further cells, sums of tables."""
        first = self.sizes[1]
        entries = _copy((count,), (0,))[0]
        self.plain.append((entries, self.num_cells))
        self.num_cells += count
        self.sizes[1] += len(entries)
        return first

    def place(
        self, edge: int, inside: tuple[int, ...], difference: bool, states: tuple[int, ...] | None = None
    ) -> tuple[bool, int, tuple[int, ...]]:
        """Whether the copy is one of differences, its first entry among its kind, and the strides outside.

        The states are those of the members inside that a row holds, None for all.
        """
        key = (edge, inside, difference, states)
        entry = self.found.get(key)
        if entry is None:
            first = self.sizes[not difference]
            if difference:
                high, low, strides = _difference(self.shapes[edge], inside[0])
                self.differences.append((high, low, self.starts[edge]))
                self.sizes[0] += len(high)
            else:
                entries, strides = _copy(self.shapes[edge], inside, states)
                self.plain.append((entries, self.starts[edge]))
                self.sizes[1] += len(entries)
            entry = self.found[key] = difference, first, strides
        return entry

    def cells(self) -> tuple[Places, Places]:
        """Cells that are added and subtracted."""
        zero = self.num_cells
        plus = [high + start for high, _, start in self.differences]
        plus += [np.where(entries < 0, zero, entries + start) for entries, start in self.plain]
        return _joined(plus), _joined([low + start for _, low, start in self.differences])


class _Levels:
    """Arrays of levels and maps of joint states, one after the other; those of equal keys are shared."""

    def __init__(self) -> None:
        self.arrays: list[NDArray[Any]] = []
        self.found: dict[Any, int] = {}
        self.size = 0

    def start(self, key: Any, made: Callable[[], NDArray[Any]]) -> int:
        """Where the array of a key begins."""
        if key not in self.found:
            self.found[key] = self.size
            self.arrays.append(made())
            self.size += self.arrays[-1].size
        return self.found[key]


class _Blocks:
    """The blocks with their parts (members that share edges) and the factors of these, one after the other."""

    def __init__(
        self,
        blocks: tuple[tuple[int, ...], ...],
        maximal: list[tuple[int, ...]],
        holding: list[list[int]],
        cards: Sequence[int],
        buckets: Sequence[tuple[BlockBucket, ...]],
        lists: Sequence[States | None],
    ) -> None:
        self.blocks, self.maximal, self.cards = blocks, maximal, cards
        self.copies, self.levels, self.maps = _Copies(maximal, cards), _Levels(), _Levels()
        self.sums: list[tuple[States, tuple[int, ...], list[int]]] = []  # states of a block, its members, edges within
        self.visit_part, self.part_factor, self.factor_member = [0], [0], [0]
        self.factors: list[tuple[bool, int]] = []
        self.outer: list[int] = []
        self.outer_strides: list[int] = []
        self.part_states: list[int] = []
        self.part_map: list[int] = []
        self.block_levels: list[int] = []
        self.trees = _Eliminations(self)
        for block, steps, states in zip(blocks, buckets, lists, strict=True):
            meeting = sorted({m for v in block for m in holding[v]})
            if steps:
                self.trees.add(block, steps, meeting)
                continue
            if states is None:
                self._add(block, meeting)
            else:
                self._add_possible(block, states, meeting)
            self.trees.pass_over()
        self.is_listed = [not steps for steps in buckets]
        numbers = [
            math.prod(cards[v] for v in block) if states is None else len(states)
            for block, states in zip(blocks, lists, strict=True)
        ]
        self.states = [n if listed else 0 for n, listed in zip(numbers, self.is_listed, strict=True)]

    def _add_possible(self, block: tuple[int, ...], states: States, meeting: list[int]) -> None:
        """A block of which some joint states are listed, and the maximal edges that meet it."""
        codes = np.array(states, dtype=np.int64).reshape(len(states), len(block))
        column_of = {v: k for k, v in enumerate(block)}
        # Edges within the block are the same for all states of the others: their sum is one entry for every state.
        within = [m for m in meeting if set(self.maximal[m]) <= set(block)]
        if within:
            self.factors.append((False, self.copies.add_sums(len(states))))
            self.sums.append((states, block, within))
            self.factor_member.append(len(self.outer))
            self.part_factor.append(len(self.factors))
            self.part_states.append(len(states))
            self.part_map.append(self.maps.start(len(states), partial(np.arange, len(states))))
        # The others by what they share with the block, as where all states are listed.
        beyond: dict[tuple[int, ...], list[int]] = {}
        for m in meeting:
            if m not in within:
                beyond.setdefault(tuple(v for v in block if v in self.maximal[m]), []).append(m)
        for inside, edges in sorted(beyond.items()):
            columns = tuple(codes[:, column_of[v]] for v in inside)
            shape = tuple(self.cards[v] for v in inside)
            distinct, number = np.unique(np.ravel_multi_index(columns, shape), return_inverse=True)
            self.add_part(inside, edges, False, tuple(distinct.tolist()))
            self.part_map.append(self.maps.start(number.tobytes(), partial(number.ravel)))
        self.visit_part.append(len(self.part_factor) - 1)
        self.block_levels.append(self.levels.start(states, codes.T.ravel))

    def _add(self, block: tuple[int, ...], meeting: list[int]) -> None:
        """A block and the maximal edges that meet it."""
        # Members that share edges are a part; an edge enters once, with the part that it holds.
        shape = tuple(self.cards[v] for v in block)
        is_joint, difference = len(block) > 1, shape == (2,)
        inside_of: dict[tuple[int, ...], list[int]] = {} if is_joint else {block: []}
        for m in meeting:
            inside_of.setdefault(tuple(v for v in block if v in self.maximal[m]), []).append(m)
        for inside, edges in sorted(inside_of.items()):
            self.add_part(inside, edges, difference)
            axes = tuple(block.index(v) for v in inside)
            spread = partial(_spread, axes, tuple(range(len(shape))), shape)
            self.part_map.append(self.maps.start((shape, axes), spread) if is_joint else 0)
        self.visit_part.append(len(self.part_factor) - 1)
        self.block_levels.append(self.levels.start(shape, np.indices(shape).ravel) if is_joint else 0)

    def add_part(
        self, inside: tuple[int, ...], edges: Sequence[int], difference: bool, states: tuple[int, ...] | None = None
    ) -> None:
        """Members of a block that some maximal edges share, with one factor for each of these.

        The states are numbers of the joint states of the members that matter, None for all.
        """
        for m in edges:
            edge = self.maximal[m]
            kind, first, strides = self.copies.place(m, tuple(edge.index(v) for v in inside), difference, states)
            self.factors.append((kind, first))
            self.outer.extend(v for v in edge if v not in inside)
            self.outer_strides.extend(strides)
            self.factor_member.append(len(self.outer))
        self.part_factor.append(len(self.factors))
        self.part_states.append(math.prod(self.cards[v] for v in inside) if states is None else len(states))

    def max_factors(self) -> int:
        """Largest number of factors of a block that is drawn from the list of its states."""
        first = [self.part_factor[part] for part in self.visit_part]
        lengths = zip(itertools.pairwise(first), self.is_listed, strict=True)
        return max((b - a for (a, b), listed in lengths if listed), default=0)

    def sites(self, num_differences: int) -> tuple[Ints, Ints, Ints, Ints, Ints, Ints, Ints, Ints]:
        """Variables, states and parts of blocks, factors of parts, and of these first entry and outer variables."""
        return (
            _ints([block[0] for block in self.blocks]),
            _ints(self.states),
            _ints(self.visit_part),  # first part of every block (n + 1)
            _ints(self.part_factor),  # first factor of every part (n + 1)
            _ints([first if kind else num_differences + first for kind, first in self.factors]),  # all outer codes 0
            _ints(self.factor_member),  # first outer variable of every factor (n + 1)
            _ints(self.outer),
            _ints(self.outer_strides),
        )

    def joint(self) -> tuple[Ints, Ints, Ints, Ints, Ints, Ints, Ints] | None:
        """How parts make up joint states of listed blocks; None where all blocks are single variables."""
        if all(len(block) == 1 for block in self.blocks) and all(self.is_listed):
            return None
        return (
            _ints(self.part_states),
            _ints(self.part_map),  # start of the map of every part
            _joined(self.maps.arrays, np.int32),  # state of a part by joint state of its block
            _ints(list(itertools.accumulate(map(len, self.blocks), initial=0))),  # first member of every block (n + 1)
            _ints(self.block_levels),  # start of the levels of every block
            _ints([v for block in self.blocks for v in block]),
            _joined(self.levels.arrays, np.int32),  # levels of the members by joint state
        )


class _Eliminations:
    """Buckets of the blocks that are drawn by elimination, and the terms whose sums their log weights are.

    The cells of a bucket are the joint states of its scope and, last, of its variable. A term adds a table within the
    block, the rows of a part of it, which depend on the variables outside, or a message.
    """

    def __init__(self, blocks: _Blocks) -> None:
        self.blocks, self.maps = blocks, _Levels()
        self.first, self.variables, self.states, self.outer, self.places = [0], [], [], [], list[int]()
        self.part_of, self.part_states, self.room = list[int](), list[int](), list[int]()
        self.scope_of, self.scope, self.strides = [0], list[int](), list[int]()
        self.term_of, self.term_map = [0], list[int]()
        self.source: list[tuple[bool, int]] = []  # and whether it is a place among the plain copies
        self.max_rows = self.max_factors = self.max_reads = self.max_terms = 0

    def pass_over(self) -> None:
        """A block that is drawn from the list of its states."""
        self.first.append(len(self.variables))
        self.room.append(1)

    def add(self, block: tuple[int, ...], steps: Sequence[BlockBucket], meeting: Sequence[int]) -> None:
        """A block with its buckets and the maximal edges that meet it."""
        # Every edge is in the bucket of the first of its members to go.
        cards, maximal = self.blocks.cards, self.blocks.maximal
        rank = {step.variable: k for k, step in enumerate(steps)}
        edges: list[dict[tuple[int, ...], list[int]]] = [{} for _ in steps]
        for m in meeting:
            inside = tuple(v for v in block if v in maximal[m])
            edges[min(rank[v] for v in inside)].setdefault(inside, []).append(m)
        # Cells to draw from, then messages, whose places serve others once they were read.
        outer = [math.prod(cards[u] for u in scope) for _, scope in steps]
        stored = [1 if cards[v] == 2 else cards[v] for v, _ in steps]
        first = list(itertools.accumulate((n * m for n, m in zip(outer, stored, strict=True)), initial=0))
        reader = [min((rank[u] for u in scope), default=-1) for _, scope in steps]
        message = np.zeros(len(steps), dtype=np.int64)
        births = [k if reader[k] >= 0 else -1 for k in range(len(steps))]
        self.room.append(first_fit(births, reader, outer, first[-1], message))
        received: list[list[tuple[int, tuple[int, ...]]]] = [[] for _ in steps]
        reads = 0
        for k, (variable, scope) in enumerate(steps):
            self.variables.append(variable)
            self.states.append(cards[variable])
            self.outer.append(outer[k])
            self.places += [first[k], int(message[k])]
            self.scope += scope
            self.strides += (n * stored[k] for n in row_strides([cards[u] for u in scope]))
            self.scope_of.append(len(self.scope))
            if scope:
                received[reader[k]].append((int(message[k]), scope))
            reads += outer[k] * cards[variable] * (4 + self._add_terms((*scope, variable), edges[k], received[k]))
        self.max_reads = max(self.max_reads, reads)
        self.first.append(len(self.variables))
        self.blocks.visit_part.append(len(self.blocks.part_factor) - 1)
        self.blocks.block_levels.append(0)

    def _add_terms(
        self,
        axes: tuple[int, ...],
        parts: dict[tuple[int, ...], list[int]],
        received: Sequence[tuple[int, tuple[int, ...]]],
    ) -> int:
        """Terms of a bucket: tables within the block, rows, and messages; how many reads they are for a cell."""
        blocks, row, reads = self.blocks, 0, 0
        self.part_of.append(len(blocks.part_factor) - 1)
        within = [(inside, m) for inside, edges in sorted(parts.items()) for m in edges if blocks.maximal[m] == inside]
        for inside, m in within:
            first = blocks.copies.place(m, tuple(range(len(inside))), False)[1]
            self._add_term(axes, inside, first, is_copy=True)
        self.term_of.append(len(self.source))
        for inside, edges in sorted(parts.items()):
            beyond = [m for m in edges if blocks.maximal[m] != inside]
            if beyond:
                states = math.prod(blocks.cards[v] for v in inside)
                difference = len(inside) == 1 and states == 2
                self.part_states += [0] * (len(blocks.part_factor) - 1 - len(self.part_states))
                blocks.add_part(inside, beyond, difference)
                blocks.part_map.append(0)
                self.part_states.append(-2 if difference else states)
                self._add_term(axes, inside, row)
                row += 2 if difference else -(-states // 4) * 4
                self.max_factors, reads = max(self.max_factors, len(beyond)), reads + len(beyond)
        self.part_of.append(len(blocks.part_factor) - 1)
        self.max_rows = max(self.max_rows, row)
        self.term_of.append(len(self.source))
        for message, scope in received:
            self._add_term(axes, scope, message)
        self.term_of.append(len(self.source))
        self.max_terms = max(self.max_terms, len(self.source) - self.term_of[-3])
        return len(within) + reads + len(received)

    def _add_term(self, axes: tuple[int, ...], inside: tuple[int, ...], source: int, is_copy: bool = False) -> None:
        """A term that is a table over some of the axes of the cells."""
        shape = tuple(self.blocks.cards[v] for v in axes)
        chosen = tuple(axes.index(v) for v in inside)

        def places() -> Places:
            codes = np.indices(shape).reshape(len(shape), -1)
            strides = row_strides([shape[k] for k in chosen])
            return np.array(strides, dtype=np.int64) @ codes[list(chosen)]

        self.source.append((is_copy, source))
        self.term_map.append(self.maps.start((shape, chosen), places))

    def arrays(self, num_differences: int) -> tuple[tuple[Ints, ...], tuple[Ints, Ints, Ints, Ints]] | None:
        """Buckets and their terms as compiled code reads them; None without any."""
        if not self.variables:
            return None
        buckets = (
            _ints(self.first),  # first bucket of every block (n + 1)
            _ints(self.variables),
            _ints(self.states),
            _ints(self.outer),  # joint states of the scopes
            _ints(self.places),  # first cell of every bucket, and of its message
            _ints(self.part_of),  # first part of every bucket, and the end
            _ints(self.part_states),
            _ints(self.scope_of),  # first variable of every scope (n + 1)
            _ints(self.scope),
            _ints(self.strides),
            _ints(self.room),  # cells of every block
        )
        terms = (
            _ints(self.term_of),  # of every bucket first table, first row, first message (3 n + 1)
            _ints([num_differences + cell if is_copy else cell for is_copy, cell in self.source]),
            _ints(self.term_map),
            _joined(self.maps.arrays, np.int32),
        )
        return buckets, terms


@lru_cache(maxsize=32)
def tables_structure(
    hypergraph: InteractionHypergraph,
    blocks: tuple[tuple[int, ...], ...],
    max_listed: int = MAX_BLOCK_STATES,
    lists: Lists | None = None,
) -> TablesStructure:
    """The layout for a hypergraph and blocks of schema positions; equal arguments share one.

    Blocks are drawn from the lists of their possible states, where there are any; others of more than ``max_listed``
    joint states by elimination.
    """
    cards = hypergraph.domain.cardinalities
    given = hypergraph.edge_indices
    # Conditionals read maximal edges only: all other tables are added into one that contains them.
    maximal, host = _hosts(given, len(cards))
    taken: list[list[tuple[int, tuple[int, ...]]]] = [[] for _ in maximal]
    for members, where, h in zip(given, hypergraph.term_slices.values(), host, strict=True):
        taken[h].append((where.start, members))
    cell_terms, cell_starts = _fold(taken, maximal, cards, hypergraph.num_terms)

    holding: list[list[int]] = [[] for _ in cards]
    for m, edge in enumerate(maximal):
        for v in edge:
            holding[v].append(m)
    # The reference is folded the same way, into the first maximal edge of every variable.
    reference_start = list(itertools.accumulate(cards, initial=0))
    singles: list[list[tuple[int, tuple[int, ...]]]] = [[] for _ in maximal]
    for v, edges in enumerate(holding):
        singles[edges[0]].append((reference_start[v], (v,)))
    reference_terms, reference_starts = _fold(singles, maximal, cards, reference_start[-1])

    # Blocks read transposed copies, in which the states of a block stand in one row.
    covered = {v for edge in given for v in edge}
    lists = lists or (None,) * len(blocks)
    buckets = [
        block_buckets(hypergraph, block) if s is None and math.prod(cards[v] for v in block) > max_listed else ()
        for block, s in zip(blocks, lists, strict=True)
    ]
    met = [edges if v in covered else [] for v, edges in enumerate(holding)]
    listed = _Blocks(blocks, maximal, met, cards, buckets, lists)
    copies, trees = listed.copies, listed.trees
    max_states = -(-max(listed.states, default=1) // 8) * 8
    max_factors = listed.max_factors()
    # All as flat arrays, which compiled code reads.
    plus, minus = copies.cells()
    for states, block, within in listed.sums:
        tables = [table for m in within for table in taken[m]]
        more, starts = _sums(states, block, tables, cards, hypergraph.num_terms)
        cell_starts = np.concatenate([cell_starts, len(cell_terms) + starts])
        cell_terms = np.concatenate([cell_terms, more])
        reference_starts = np.concatenate([reference_starts, len(reference_terms) + np.arange(len(states))])
        reference_terms = np.concatenate([reference_terms, np.full(len(states), reference_start[-1])])
    ends = itertools.accumulate(map(len, maximal), initial=0)
    return TablesStructure(
        num_terms=hypergraph.num_terms,
        num_cells=copies.num_cells,
        folding=_folding(cell_terms, cell_starts, hypergraph.num_terms),
        reference_folding=_folding(reference_terms, reference_starts, reference_start[-1]),
        edges=(
            _ints(copies.starts[:-1]),
            _ints(list(ends)),
            _ints([v for edge in maximal for v in edge]),
            _ints([n for shape in copies.shapes for n in row_strides(shape)]),
        ),
        num_differences=len(minus),
        plus=plus,
        minus=minus,
        sites=listed.sites(len(minus)),
        joint=listed.joint(),
        trees=trees.arrays(len(minus)),
        reference_start=_ints(reference_start[:-1]),
        max_states=max_states,
        max_factors=max(max_factors, trees.max_factors),
        max_rows=trees.max_rows,
        max_cells=max(trees.room, default=0),
        max_levels=max(trees.states, default=0),
        max_terms=trees.max_terms,
        visit_reads=max(max(1, max_factors) * max_states, trees.max_reads),
    )


_NO_VISITS = np.zeros((1, 0), dtype=np.int32)
_LOOK = (False, False, False, True)  # leave energies and record nothing


def _folding(terms: Places, starts: Places, num_terms: int) -> csr_array:
    """Cells by terms, whose entries say what is added into a cell."""
    return csr_array((np.ones(len(terms)), terms, np.append(starts, len(terms))), shape=(len(starts), num_terms + 1))


class TablesEngine(EnergyChains):
    """Gibbs chains of a log-linear model with tables over any finite domain; see ``Engine``.

    A visit costs one read of a table row per maximal interaction that meets the block. Tables of smaller interactions
    are added into those of larger ones when the weights are set. Recorded energies are sums of float64 tables, not
    differences, so that nothing drifts. Chains lie in tiles whose width changes no result.
    """

    def __init__(
        self,
        hypergraph: InteractionHypergraph,
        blocks: tuple[tuple[int, ...], ...],
        num_groups: int,
        num_chains: int,
        seed: int,
        dtype: torch.dtype = torch.float32,
        max_listed: int = MAX_BLOCK_STATES,
        lists: Lists | None = None,
    ) -> None:
        width = balanced_width(num_groups, num_chains, torch.get_num_threads())
        code = np.uint8 if max(hypergraph.domain.cardinalities, default=1) <= 256 else np.int32
        super().__init__((num_groups, num_chains), seed, width, code)
        self._structure = tables_structure(hypergraph, tuple(tuple(b) for b in blocks), max_listed, lists)
        self._size = len(hypergraph.domain)
        self._real = np.float32 if dtype == torch.float32 else np.float64
        self._visit = width * self._structure.visit_reads  # reads, at most
        self._energy = np.zeros(self._shape)
        self._reference_energy = np.zeros(self._shape)

    def set_weights(self, tables: torch.Tensor, reference: torch.Tensor) -> None:
        structure, base = self._structure, _padded(reference)
        self._cells, self._weights = self._copies(tables)
        self._reference_cells = np.zeros((1, 0))
        if base.any():
            self._reference_cells = np.ascontiguousarray((structure.reference_folding @ base.T).T)
        self._reference = np.ascontiguousarray(base[:, :-1], dtype=self._real)
        self._reference_energy = np.zeros(self._shape)
        self._is_stale = True

    def _folded(self, tables: torch.Tensor) -> NDArray[np.float64]:
        """Tables (rows, num_terms) added into those of maximal interactions (rows, cells)."""
        return np.ascontiguousarray((self._structure.folding @ _padded(tables).T).T)

    def _copies(self, tables: torch.Tensor) -> tuple[NDArray[np.float64], NDArray[Any]]:
        """Folded tables (rows, cells), and the copies of them (rows, entries) that visits read."""
        structure, folded = self._structure, self._folded(tables)
        cells = np.concatenate([folded, np.zeros((len(folded), 1))], axis=1)
        weights = cells.take(structure.plus, axis=1)
        with np.errstate(invalid="ignore"):  # where both levels are impossible, which no chain ever looks up
            weights[:, : structure.num_differences] -= cells.take(structure.minus, axis=1)
        return folded, weights.astype(self._real)

    def energies(self) -> tuple[torch.Tensor, torch.Tensor]:
        self._look()
        return torch.from_numpy(self._energy.copy()), torch.from_numpy(self._reference_energy.copy())

    def _look_up(self) -> None:
        self._run(_NO_VISITS, np.zeros((0, self._shape[0])), 0, parts=_LOOK)

    def energies_of(self, tables: torch.Tensor) -> torch.Tensor:
        before = self._cells, self._reference_cells, self._energy
        self._cells, self._reference_cells, self._energy = self._folded(tables), np.zeros((1, 0)), np.zeros(self._shape)
        self._look_up()
        energy = self._energy
        self._cells, self._reference_cells, self._energy = before
        return torch.from_numpy(energy)

    def _run(
        self,
        order: NDArray[np.int32],
        betas: NDArray[np.float64],
        num_sweeps: int,
        *,
        growth: NDArray[np.float64] | None = None,
        start: tuple[NDArray[np.float64], NDArray[Any]] | None = None,
        thin: int = 0,
        parts: tuple[bool, bool, bool, bool] = (False, False, False, False),
        log_weights: NDArray[np.float64] | None = None,
        counts: NDArray[Any] | None = None,
        energies: NDArray[np.float64] | None = None,
        codes: NDArray[Any] | None = None,
    ) -> None:
        """Run the kernel on all tiles; ``counts`` is (copies, groups, cells), one copy per worker or one for all.

        ``start`` has the copies of tables at beta 0 that stand in place of the reference.
        """
        states, structure, none = self._states, self._structure, np.zeros((1, 0), dtype=self._real)
        counts = np.zeros((1, 1, 0), dtype=np.int32) if counts is None else counts
        base = self._reference_cells if start is None else start[0]
        # Annealed weights grow by the gap between the model and what stands at beta 0.
        gap = np.zeros((1, 0)) if growth is None else self._cells - base if base.size else self._cells
        sizes = structure.max_states, structure.max_factors, structure.max_rows, structure.max_cells
        sizes = *sizes, structure.max_levels, structure.max_terms
        law = self._weights, none if start is None else start[1], self._reference
        path = (
            order,
            np.ascontiguousarray(betas, dtype=self._real),
            np.zeros(0) if growth is None else growth,
            num_sweeps,
            thin,
        )
        # What the kernel reads, and what it fills; empty arrays stand for parts that nobody asked for.
        arguments = structure.sites, structure.joint, structure.trees, structure.edges, sizes
        arguments = *arguments, structure.reference_start, law
        lookups = self._cells, self._reference_cells, gap
        out = (
            np.zeros((0, 0)) if log_weights is None else log_weights,
            np.zeros((0, 0, 0)) if energies is None else energies,
            np.zeros((0, 0, 0, 0), dtype=self._code) if codes is None else codes,
            self._energy,
            self._reference_energy,
        )

        def work(copy: int, *part: int) -> None:
            run(states, self._random, self._shape, part, *arguments, lookups, path, parts, counts[copy], out)

        # Counts are summed per worker, or, of many groups, group by group without a second copy.
        num_groups, per_group = self._shape[0], self._per_group
        visits = num_groups * per_group * max(1, order.shape[1] * len(betas) * num_sweeps)
        workers = 1 if visits < SMALL else torch.get_num_threads()
        cost = float(visits) * self._visit

        def groups(first: int, step: int) -> None:
            for group in range(first, num_groups, step):
                work(0, group * per_group, (group + 1) * per_group, 1)

        def tiles(first: int, step: int) -> None:
            work(first % len(counts), first, num_groups * per_group, step)

        if parts[0] and len(counts) == 1:  # no two workers may have tiles of one group
            run_threads(groups, num_groups, workers, cost)
        else:
            run_threads(tiles, num_groups * per_group, min(workers, len(counts)) if parts[0] else workers, cost)

    def sweep(self, order: Ints, num_sweeps: int, beta: Floats, wanted: Wanted = NOTHING) -> Record:
        thin, counts, energies, codes = wanted
        num_groups, num_chains = self._shape
        num_records = num_sweeps // thin if thin else 0
        workers = torch.get_num_threads()
        # Few groups need a copy of the counts per worker, since two workers would add to one cell.
        copies = 1 if num_groups >= 4 * workers else workers
        whole = np.int32 if num_records * num_chains < 2**31 else np.int64
        kept_counts = np.zeros((copies if counts else 1, num_groups, self._structure.num_cells), dtype=whole)
        kept_energies = np.zeros((num_records if energies else 0, num_groups, num_chains))
        kept_codes = np.zeros((num_records if codes else 0, num_groups, num_chains, self._size), dtype=self._code)
        self._is_stale = self._is_stale or num_sweeps > 0
        # In pieces that end at a record, so that Ctrl-C is answered between them.
        every = max(1, thin)
        for first, last in pieces(num_sweeps, float(num_sweeps) * order.shape[1] * self._visit, every):
            records = slice(first // every, last // every)
            self._run(
                later(order, first),
                np.asarray(beta, dtype=np.float64)[None],
                last - first,
                thin=thin,
                parts=(counts, energies, codes, False),
                counts=kept_counts,
                energies=kept_energies[records],
                codes=kept_codes[records],
            )
        return Record(
            num_records,
            self._terms(kept_counts.sum(0, dtype=np.float64)) if counts else None,
            torch.from_numpy(kept_energies) if energies else None,
            torch.from_numpy(kept_codes) if codes else None,
        )

    def anneal(
        self, order: Ints, betas: Floats, sweeps_per_step: int, start: torch.Tensor | None = None
    ) -> torch.Tensor:
        log_weights = np.zeros(self._shape)
        levels = np.repeat(np.asarray(betas, dtype=np.float64)[1:, None], self._shape[0], axis=1)
        growth = np.diff(np.asarray(betas, dtype=np.float64))
        base = None if start is None else self._copies(start)
        self._is_stale = True
        for first, last in pieces(len(growth), float(len(growth)) * sweeps_per_step * order.shape[1] * self._visit):
            path = levels[first:last], sweeps_per_step
            visits = later(order, first * sweeps_per_step)
            self._run(visits, *path, growth=growth[first:last], start=base, log_weights=log_weights)
        return torch.from_numpy(log_weights)

    def _terms(self, cells: NDArray[np.float64]) -> torch.Tensor:
        """Sums over the cells that each term was added into, (groups, num_terms)."""
        return torch.from_numpy(np.ascontiguousarray((self._structure.folding.T @ cells.T)[:-1].T))

    def statistics(self, weights: torch.Tensor | None = None) -> torch.Tensor:
        states, (num_groups, num_chains) = self._states, self._shape
        shares = np.ones(self._shape) if weights is None else np.ascontiguousarray(weights.cpu().double().numpy())
        cells = np.zeros((num_groups, self._structure.num_cells))

        edges = self._structure.edges
        parts = 1 if num_groups > 1 else min(torch.get_num_threads(), len(edges[0])) or 1  # of the edges of a group

        def work(first: int, step: int) -> None:
            for k in range(first, num_groups * parts, step):
                g, part = divmod(k, parts)
                tile = g * self._per_group
                add_statistics(states, num_chains, tile, edges, part, parts, shares[g], cells[g])

        run_threads(work, num_groups * parts)
        return self._terms(cells)


def _padded(values: torch.Tensor) -> NDArray[np.float64]:
    """Rows as float64 with a zero at the end."""
    rows = values.detach().cpu().double().numpy()
    return np.concatenate([rows, np.zeros((len(rows), 1))], axis=1)
