"""How the tables of a hypergraph are laid out for single-site and joint Gibbs updates. Private to the sampling package.

A conditional law needs the maximal edges only: the table of every other edge is added into that of one maximal edge
that contains it (*folded*). For every block and every maximal edge that meets it there is one transposed copy of the
folded table, with the variables inside the block last, so that the log weights of their joint states are one
contiguous row. New weights are then two gathers, from terms to cells and from cells to copies.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...structure.cells import row_strides
from ...structure.hypergraph import InteractionHypergraph

Ints = NDArray[np.int32]
Places = NDArray[np.int64]


@dataclass(frozen=True)
class TablesStructure:
    """Index arrays of a hypergraph and its blocks; "first ... (n + 1)" ends with the position after the last."""

    num_terms: int
    num_cells: int  # entries of the folded tables of all maximal edges
    cell_terms: Places  # terms added into the cells, one cell after the other; ``num_terms`` stands for zero
    cell_starts: Places  # position of the first term of every cell
    reference_terms: Places  # entries of the reference added into the cells, likewise
    reference_starts: Places
    edges: tuple[Ints, Ints, Ints, Ints]  # of maximal edges first cell, first member (n + 1), members and their strides
    num_differences: int  # copies of single binary variables, which come first and hold differences of two cells
    plus: Places  # cell of every entry of the copies; ``num_cells`` stands for zero (padding)
    minus: Places  # cell that is subtracted, for the first ``num_differences`` entries
    sites: tuple[Ints, Ints, Ints, Ints, Ints, Ints, Ints, Ints]  # see :meth:`_Blocks.sites`
    joint: tuple[Ints, Ints, Ints, Ints, Ints, Ints, Ints] | None
    reference_start: Ints  # first entry of every variable in the reference
    max_states: int  # largest number of joint states of a block, rounded up to a multiple of 8
    max_factors: int  # largest number of factors of a block


def _ints(values: Sequence[int]) -> Ints:
    return np.array(values, dtype=np.int32)


def _joined(parts: Sequence[NDArray[Any]], dtype: Any = np.int64) -> NDArray[Any]:
    return np.concatenate(parts).astype(dtype) if parts else np.zeros(0, dtype=dtype)


def _hosts(edges: Sequence[tuple[int, ...]], size: int) -> tuple[list[tuple[int, ...]], list[int]]:
    """Maximal edges, with one for every variable that is in no edge, and the maximal edge that holds each edge."""
    maximal: list[tuple[int, ...]] = []
    holding: list[set[int]] = [set() for _ in range(size)]
    host = [0] * len(edges)
    for e in sorted(range(len(edges)), key=lambda e: -len(edges[e])):
        found = set[int].intersection(*(holding[v] for v in edges[e]))
        if found:
            host[e] = min(found)
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


@lru_cache(maxsize=4096)
def _copy(shape: tuple[int, ...], inside: tuple[int, ...]) -> tuple[Places, tuple[int, ...]]:
    """Entries of a table with the axes ``inside`` last, rows padded to a multiple of 4 by -1; strides of the others."""
    outside = [j for j in range(len(shape)) if j not in inside]
    width = math.prod(shape[j] for j in inside)
    rows = np.arange(math.prod(shape)).reshape(shape).transpose(*outside, *inside).reshape(-1, width)
    padded = np.full((len(rows), -(-width // 4) * 4), -1)
    padded[:, :width] = rows
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
        self.found: dict[tuple[int, tuple[int, ...], bool], tuple[bool, int, tuple[int, ...]]] = {}
        self.sizes = [0, 0]

    def place(self, edge: int, inside: tuple[int, ...], difference: bool) -> tuple[bool, int, tuple[int, ...]]:
        """Whether the copy is one of differences, its first entry among its kind, and the strides outside."""
        key = (edge, inside, difference)
        found = self.found.get(key)
        if found is None:
            first = self.sizes[not difference]
            if difference:
                high, low, strides = _difference(self.shapes[edge], inside[0])
                self.differences.append((high, low, self.starts[edge]))
                self.sizes[0] += len(high)
            else:
                entries, strides = _copy(self.shapes[edge], inside)
                self.plain.append((entries, self.starts[edge]))
                self.sizes[1] += len(entries)
            found = self.found[key] = difference, first, strides
        return found

    def cells(self) -> tuple[Places, Places]:
        """Cells that are added and subtracted."""
        zero = self.starts[-1]
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
    ) -> None:
        self.blocks, self.maximal, self.cards = blocks, maximal, cards
        self.copies, self.levels, self.maps = _Copies(maximal, cards), _Levels(), _Levels()
        self.visit_part, self.part_factor, self.factor_member = [0], [0], [0]
        self.factors: list[tuple[bool, int]] = []
        self.outer: list[int] = []
        self.outer_strides: list[int] = []
        self.part_states: list[int] = []
        self.part_map: list[int] = []
        self.block_levels: list[int] = []
        for block in blocks:
            self._add(block, sorted({m for v in block for m in holding[v]}))
        self.states = [math.prod(cards[v] for v in block) for block in blocks]

    def _add(self, block: tuple[int, ...], meeting: list[int]) -> None:
        """A block and the maximal edges that meet it."""
        shape = tuple(self.cards[v] for v in block)
        is_joint, difference = len(block) > 1, shape == (2,)
        inside_of: dict[tuple[int, ...], list[int]] = {} if is_joint else {block: []}
        for m in meeting:
            inside_of.setdefault(tuple(v for v in block if v in self.maximal[m]), []).append(m)
        for inside, edges in sorted(inside_of.items()):
            for m in edges:
                edge = self.maximal[m]
                kind, first, strides = self.copies.place(m, tuple(edge.index(v) for v in inside), difference)
                self.factors.append((kind, first))
                self.outer.extend(v for v in edge if v not in inside)
                self.outer_strides.extend(strides)
                self.factor_member.append(len(self.outer))
            self.part_factor.append(len(self.factors))
            self.part_states.append(math.prod(self.cards[v] for v in inside))
            axes = tuple(block.index(v) for v in inside)
            spread = partial(_spread, axes, tuple(range(len(shape))), shape)
            self.part_map.append(self.maps.start((shape, axes), spread) if is_joint else 0)
        self.visit_part.append(len(self.part_factor) - 1)
        self.block_levels.append(self.levels.start(shape, np.indices(shape).ravel) if is_joint else 0)

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
        """How parts make up joint states of blocks; None where all blocks are single variables."""
        if all(len(block) == 1 for block in self.blocks):
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


@lru_cache(maxsize=32)
def tables_structure(hypergraph: InteractionHypergraph, blocks: tuple[tuple[int, ...], ...]) -> TablesStructure:
    """The layout for a hypergraph and blocks of schema positions; equal arguments share one."""
    cards = hypergraph.domain.cardinalities
    given = hypergraph.edge_indices
    maximal, host = _hosts(given, len(cards))
    taken: list[list[tuple[int, tuple[int, ...]]]] = [[] for _ in maximal]
    for members, where, h in zip(given, hypergraph.term_slices.values(), host, strict=True):
        taken[h].append((where.start, members))
    cell_terms, cell_starts = _fold(taken, maximal, cards, hypergraph.num_terms)

    holding: list[list[int]] = [[] for _ in cards]
    for m, edge in enumerate(maximal):
        for v in edge:
            holding[v].append(m)
    reference_start = list(itertools.accumulate(cards, initial=0))
    singles: list[list[tuple[int, tuple[int, ...]]]] = [[] for _ in maximal]
    for v, edges in enumerate(holding):
        singles[edges[0]].append((reference_start[v], (v,)))
    reference_terms, reference_starts = _fold(singles, maximal, cards, reference_start[-1])

    covered = {v for edge in given for v in edge}
    listed = _Blocks(blocks, maximal, [edges if v in covered else [] for v, edges in enumerate(holding)], cards)
    copies, part_factor = listed.copies, listed.part_factor
    plus, minus = copies.cells()
    ends = itertools.accumulate(map(len, maximal), initial=0)
    return TablesStructure(
        num_terms=hypergraph.num_terms,
        num_cells=copies.starts[-1],
        cell_terms=cell_terms,
        cell_starts=cell_starts,
        reference_terms=reference_terms,
        reference_starts=reference_starts,
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
        reference_start=_ints(reference_start[:-1]),
        max_states=-(-max(listed.states, default=1) // 8) * 8,
        max_factors=max((part_factor[b] - part_factor[a] for a, b in itertools.pairwise(listed.visit_part)), default=0),
    )
