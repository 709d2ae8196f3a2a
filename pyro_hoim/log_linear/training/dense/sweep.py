"""Log Z and all margins of a model over a small domain, in a few passes over its table of states. Private to training.

The sets of variables of a collection are joined two at a time, the pair with the smallest union first, until no two
that are left have a variable in common: a tree whose leaves are the interactions and whose roots are the connected
components of the model. Energies go up the tree by additions that broadcast, probabilities come down it by sums over
axes. A pass over all the states happens only near the root, whatever the number of interactions.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from functools import lru_cache, reduce

import numpy as np

from ....structure.hypergraph import InteractionHypergraph

__all__ = ["SweepPlan", "axes_of_mask", "sweep_plan"]


class SweepPlan:
    """The tree of sums of one collection: where every node lies in the work space and in which steps it is filled.

    Nodes are bit masks over axes, numbered by increasing cardinality so that the innermost loops are long.
    """

    def __init__(self, hypergraph: InteractionHypergraph) -> None:
        cards = hypergraph.domain.cardinalities
        self.axes = tuple(sorted(range(len(cards)), key=lambda v: (cards[v], v)))
        self._sizes = [cards[v] for v in self.axes]
        self._cells: dict[int, int] = {}
        rank = {v: i for i, v in enumerate(self.axes)}
        leaves = [sum(1 << rank[v] for v in edge) for edge in hypergraph.edge_indices]
        plans = [_join(leaves, self.cells, share) for share in (1e-9, -1.0)]  # the smallest union, the least growth
        joins = min(plans, key=lambda plan: sum(self.cells(up) for up, _ in plan))

        self._places: dict[int, int] = {}
        for mask, where in zip(leaves, hypergraph.term_slices.values(), strict=True):
            self._places[mask] = where.start
        self.work_cells = hypergraph.num_terms
        self._steps: list[tuple[int, int, int, int, int, int]] = []
        self._filled = set(leaves)
        parent: dict[int, int] = {}
        for up, down in joins:
            parent[down] = up
            self._expand(down, up)
        self.steps = np.array(self._steps, dtype=np.int64).reshape(-1, 6)
        self.step_cells = sum(a * m * c for _, _, _, a, m, c in self._steps)

        roots = [mask for mask in dict.fromkeys([*leaves, *(up for up, _ in joins)]) if mask not in parent]
        self.roots = [(mask, self._places[mask], self.cells(mask)) for mask in roots]
        self.root_cells = sum(cells for _, _, cells in self.roots)
        number = {mask: i for i, mask in enumerate(roots)}
        component: list[int] = []
        self.first_leaf = [slice(0, 0)] * len(roots)
        for mask, where in zip(leaves, hypergraph.term_slices.values(), strict=True):
            top = mask
            while top in parent:
                top = parent[top]
            component.append(number[top])
            if self.first_leaf[number[top]] == slice(0, 0):
                self.first_leaf[number[top]] = where
        lengths = [where.stop - where.start for where in hypergraph.term_slices.values()]
        self.component = np.repeat(np.array(component, dtype=np.int64), lengths)
        covered = reduce(int.__or__, leaves, 0)
        self.free_states = math.prod(n for i, n in enumerate(self._sizes) if not covered >> i & 1)
        self.order = _transposition(hypergraph, rank)

    def cells(self, mask: int) -> int:
        """Number of cells of a node."""
        found = self._cells.get(mask)
        if found is None:
            found = self._cells[mask] = math.prod(self._sizes[i] for i in axes_of_mask(mask))
        return found

    def shape(self, mask: int) -> tuple[int, ...]:
        """Axis lengths of a node."""
        return tuple(self._sizes[i] for i in axes_of_mask(mask))

    def _place(self, mask: int) -> int:
        if mask not in self._places:
            self._places[mask] = self.work_cells
            self.work_cells += self.cells(mask)
        return self._places[mask]

    def _expand(self, down: int, up: int) -> None:
        """Steps from a node to its parent: one for every run of axes that it lacks, the shortest run first."""
        runs: list[int] = []
        open_run = False
        for i in axes_of_mask(up):
            if down >> i & 1:
                open_run = False
            elif open_run:
                runs[-1] |= 1 << i
            else:
                runs.append(1 << i)
                open_run = True
        runs.sort(key=self.cells)
        here, at = down, self._places[down]
        for run in runs:
            there = here | run
            if there == up:
                place, add = self._place(up), up in self._filled
                self._filled.add(up)
            else:  # between two nodes: a place of its own, whatever nodes there are
                place, add = self.work_cells, False
                self.work_cells += self.cells(there)
            low = (run & -run) - 1
            before, after = self.cells(there & low), self.cells(there & ~low & ~run)
            self._steps.append((int(add), place, at, before, self.cells(run), after))
            here, at = there, place


def axes_of_mask(mask: int) -> list[int]:
    """Numbers of the axes of a mask, increasing."""
    found: list[int] = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return found


def _join(leaves: Sequence[int], cells: Callable[[int], int], share: float) -> list[tuple[int, int]]:
    """Arcs (parent, child) of the tree, every child before its parent becomes a child; pairs of least cells first.

    Counted are the cells of the union and that share of those of both.
    """
    arcs: list[tuple[int, int]] = []
    active: set[int] = set()
    for mask in sorted(leaves, key=lambda m: (m.bit_count(), m)):
        larger = [m for m in leaves if m != mask and m & mask == mask]
        if larger:
            arcs.append((min(larger, key=lambda m: (cells(m), m)), mask))
        else:
            active.add(mask)
    heap: list[tuple[float, int, int, int]] = []

    def offer(first: int, second: int) -> None:
        if first & second:
            union = first | second
            heapq.heappush(heap, (cells(union) + share * (cells(first) + cells(second)), union, first, second))

    ordered = sorted(active)
    for i, first in enumerate(ordered):
        for second in ordered[:i]:
            offer(first, second)
    while heap:
        _, union, first, second = heapq.heappop(heap)
        if first not in active or second not in active:
            continue
        active -= {first, second}
        # A third node inside the union is joined at once: it costs no larger table.
        inside = sorted(m for m in active if m & union == m and m != union)
        active.difference_update(inside)
        arcs.extend((union, m) for m in (first, second, *inside) if m != union)
        for other in sorted(active):
            if other != union:
                offer(union, other)
        active.add(union)
    return arcs


def _transposition(hypergraph: InteractionHypergraph, rank: dict[int, int]) -> np.ndarray:
    """Place in the work space of every entry of the flat tables: the same tables with their axes in order of rank."""
    place = np.empty(hypergraph.num_terms, dtype=np.int64)
    pieces = zip(hypergraph.edge_indices, hypergraph.edge_shapes, hypergraph.term_slices.values(), strict=True)
    for edge, shape, where in pieces:
        axes = sorted(range(len(edge)), key=lambda i: rank[edge[i]])
        stored = np.arange(where.start, where.stop).reshape([shape[i] for i in axes])
        place[where] = stored.transpose(np.argsort(axes)).reshape(-1)
    return place


@lru_cache(maxsize=16)
def sweep_plan(hypergraph: InteractionHypergraph) -> SweepPlan:
    """The :class:`SweepPlan` of a hypergraph; equal hypergraphs share one."""
    return SweepPlan(hypergraph)
