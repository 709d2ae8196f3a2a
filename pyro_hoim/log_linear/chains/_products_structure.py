r"""Tables of binary variables as sums of weighted products of spins, and the lists that the compiled moves read.

The table of an edge S is :math:`\theta^S_{x_S} = \sum_{T \subseteq S} w^S_T \prod_{i \in T} s_i` with spins
:math:`s_i = 2 x_i - 1` and :math:`w^S_T = 2^{-|S|} \sum_{x_S} \theta^S_{x_S} \prod_{i \in T} s_i`, a Walsh-Hadamard
transform; weights of equal T from different edges add up. The transposed map takes sums of products to counts of
cells.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...structure.hypergraph import InteractionHypergraph

Array = NDArray[Any]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_ZERO = 1e-14  # a product whose weight is below this share of the largest is dropped; rounding leaves such weights
_CHUNK_BITS = 8  # products of a chunk, as a power of two
_PATTERNS = 16  # of zero weights whose lists are kept: a path of models and their differences takes turns


def ragged(rows: Iterable[Sequence[int]]) -> tuple[Ints, Ints]:
    """Rows of different lengths as (first element of each row and the end, all elements)."""
    rows = list(rows)
    first = np.cumsum([0, *(len(row) for row in rows)])
    return first, np.array([i for row in rows for i in row], dtype=np.int64)


def _pick(first: Ints, elements: Ints, keep: Array) -> tuple[Ints, Ints]:
    """The rows of a ragged array where ``keep``."""
    lengths = np.diff(first)
    kept = np.cumsum(np.concatenate([[0], lengths[keep]]))
    return kept, elements[np.repeat(keep, lengths)]


@dataclass(frozen=True)
class _Tables:
    """Edges with the same number of binary members."""

    cells: Ints  # positions of their table entries, (edges, 2^k)
    subsets: Ints  # numbers of their sets T, (edges, 2^k); the empty set is number 0, others follow
    transform: Floats  # products of spins by cell and set, (2^k, 2^k), divided by 2^k


class Products:
    """The products of spins of a structure: all subsets of the edges, ordered by size and position."""

    def __init__(self, hypergraph: InteractionHypergraph) -> None:
        cards = hypergraph.domain.cardinalities
        edges = [tuple(i for i in e if cards[i] == 2) for e in hypergraph.edge_indices]
        found = {t for e in edges for k in range(1, len(e) + 1) for t in itertools.combinations(e, k)}
        self.members = tuple(sorted(found, key=lambda t: (len(t), t)))
        number = {t: k + 1 for k, t in enumerate(self.members)} | {(): 0}
        starts = [s.start for s in hypergraph.term_slices.values()]
        self.num_terms = hypergraph.num_terms
        self.size = len(cards)
        self.incident: tuple[list[int], ...] = tuple([] for _ in cards)
        for k, subset in enumerate(self.members):
            for i in subset:
                self.incident[i].append(k)
        orders = np.searchsorted([len(t) for t in self.members], [1, 2, 3], side="right")
        self.counted = (*ragged(self.members), orders.astype(np.int64))
        self._tables: list[_Tables] = []
        for order in sorted({len(e) for e in edges}):
            which = [k for k, e in enumerate(edges) if len(e) == order]
            masks = np.arange(2**order)
            chosen = [tuple(a for a in range(order) if m >> (order - 1 - a) & 1) for m in masks]
            subsets = np.array([[number[tuple(edges[k][a] for a in c)] for c in chosen] for k in which])
            cells = np.array([starts[k] for k in which])[:, None] + masks
            parity = np.bitwise_count(masks[:, None] & ~masks) % 2  # members of the set (column: cell) at level 0
            transform = (1.0 - 2.0 * parity.T) / 2**order
            self._tables.append(_Tables(cells, subsets, transform))
        flat = np.concatenate([t.subsets.ravel() for t in self._tables] or [np.zeros(0, dtype=np.int64)])
        self._order = np.argsort(flat, kind="stable")
        self._present, self._starts = np.unique(flat[self._order], return_index=True)

    def weights(self, tables: Floats) -> Floats:
        """Weights of all products (rows, 1 + products) from tables (rows, num_terms); the first is the constant."""
        rows = tables.shape[0]
        result = np.zeros((rows, len(self.members) + 1))
        if self._tables:
            parts = [(tables[:, t.cells] @ t.transform).reshape(rows, -1) for t in self._tables]
            flat = np.concatenate(parts, axis=1)[:, self._order]
            result[:, self._present] = np.add.reduceat(flat, self._starts, axis=1)
        return result

    def cells(self, sums: Floats) -> Floats:
        """Counts of cells (rows, num_terms) from sums of products (rows, 1 + products); the first is the total."""
        result = np.zeros((sums.shape[0], self.num_terms))
        for t in self._tables:
            result[:, t.cells] = sums[:, t.subsets] @ t.transform.T
        return result


@lru_cache(maxsize=64)
def products_of(hypergraph: InteractionHypergraph) -> Products:
    """Products of a structure, made once."""
    return Products(hypergraph)


class BlockLists:
    """The fields of all blocks, and the products that enter each (see the compiled moves)."""

    def __init__(self, products: Products, blocks: Sequence[tuple[int, ...]], width: int) -> None:
        field_sizes = [2 ** len(b) - 1 for b in blocks]
        self.num_fields = sum(field_sizes)
        self._field_first = np.cumsum([0, *field_sizes])[:-1].astype(np.int64)
        self._member_first, members = ragged(blocks)
        self._members = members * width
        self.reference_variable = np.full(self.num_fields, -1)
        self.bias = np.full(self.num_fields, -1)
        entries: tuple[list[tuple[int, int, tuple[int, ...]]], ...] = ([], [], [])
        for first, block in zip(self._field_first.tolist(), blocks, strict=True):
            place = {v: k for k, v in enumerate(block)}
            for v, k in place.items():
                self.reference_variable[first + (1 << k) - 1] = v
            for number in sorted({k for v in block for k in products.incident[v]}):
                subset = products.members[number]
                field = first + sum(1 << place[v] for v in subset if v in place) - 1
                others = tuple(v for v in subset if v not in place)
                if others:
                    entries[min(len(others), 3) - 1].append((field, number, others))
                else:
                    self.bias[field] = number
        for found in entries:
            found.sort(key=lambda e: e[:2])
        self._fields = [np.array([e[0] for e in found], dtype=np.int64) for found in entries]
        self._numbers = [np.array([e[1] for e in found], dtype=np.int64) for found in entries]
        self._others = [ragged([v * width for v in e[2]] for e in found) for found in entries]
        self._all = ragged([v * width for v in subset] for subset in products.members)
        self._found: dict[bytes, KeptLists] = {}

    def kept(self, weights: Floats) -> KeptLists:
        """Lists of the products with weights other than zero; the same object while those are the same."""
        size = np.abs(weights[:, 1:]).max(axis=0, initial=0.0)
        keep = size > _ZERO * size.max(initial=0.0)
        key = keep.tobytes()
        found = self._found.get(key)
        if found is None:
            found = self._pick(keep)
            if len(self._found) >= _PATTERNS:
                self._found = {}  # another one, since other threads may look into this
            self._found[key] = found
        return found

    def _pick(self, keep: Array) -> KeptLists:
        lists: list[Array] = [self._field_first, self._member_first, self._members]
        picked: list[Ints] = []
        for fields, numbers, (first, others) in zip(self._fields, self._numbers, self._others, strict=True):
            chosen = keep[numbers]
            starts = np.cumsum(np.concatenate([[0], np.bincount(fields[chosen], minlength=self.num_fields)]))
            row_first, row_others = _pick(first, others, chosen)
            lists += [starts, row_others] if len(lists) < 7 else [starts, row_first, row_others]
            picked.append(numbers[chosen])
        first, members = _pick(*self._all, keep)
        return KeptLists(tuple(lists), self.bias, tuple(picked), np.flatnonzero(keep), first, members, _chunks(first))


@dataclass(frozen=True)
class KeptLists:
    """Lists of the products whose weights are not zero."""

    structure: tuple[Array, ...]  # what the compiled moves read
    bias: Ints  # number of the product that is the bias of every field, or -1
    picked: tuple[Ints, ...]  # numbers of the products in the lists with one, two and more outer spins
    numbers: Ints  # of the products of the energy
    first: Ints  # first member of every product of the energy, and the end
    members: Ints
    chunks: Ints  # rows (first product, end, first member, number of members or 4 for more than three) of the energy

    def fields(self, weights: Floats) -> list[Floats]:
        """Biases and weights of the three lists by field, rows as in ``weights`` (rows, 1 + products)."""
        bias = np.zeros((len(weights), len(self.bias)))
        known = self.bias >= 0
        bias[:, known] = weights[:, self.bias[known] + 1]
        return [bias, *(weights[:, p + 1] for p in self.picked)]


def _chunks(first: Ints) -> Ints:
    """Products of a ragged list, which is ordered by size, in chunks of one size."""
    lengths = np.minimum(np.diff(first), 4)
    rows: list[tuple[int, int, int, int]] = []
    for length in range(1, 5):
        start, end = np.searchsorted(lengths, [length, length + 1]).tolist()
        cuts = [*range(start, end, 2**_CHUNK_BITS), end]
        rows.extend((a, b, int(first[a]), length) for a, b in itertools.pairwise(cuts))
    return np.array(rows, dtype=np.int64).reshape(-1, 4)


def whole_weights(weights: Floats, chunks: Ints) -> tuple[NDArray[np.int32], Floats]:
    """Weights (rows, n) as multiples, int32 (rows, n, 2), of a coarse and a fine unit of their chunk (rows, chunks, 2).

    Sums of multiples within a chunk fit 32 bits, so that integers add up to what float64 would, twice as fast.
    """
    whole = np.zeros((*weights.shape, 2), dtype=np.int32)
    units = np.zeros((len(weights), len(chunks), 2))
    for k, (begin, end) in enumerate(chunks[:, :2].tolist()):
        part = weights[:, begin:end]
        exponent = np.maximum(np.frexp(np.abs(part).sum(axis=1))[1], -900)
        units[:, k, 0] = np.ldexp(1.0, exponent - 30)
        units[:, k, 1] = np.ldexp(1.0, exponent - 61 + _CHUNK_BITS)
        coarse = np.rint(part / units[:, k, :1])
        whole[:, begin:end, 0] = coarse
        whole[:, begin:end, 1] = np.rint((part - coarse * units[:, k, :1]) / units[:, k, 1:])
    return whole, units


@lru_cache(maxsize=64)
def block_lists(hypergraph: InteractionHypergraph, blocks: tuple[tuple[int, ...], ...], width: int) -> BlockLists:
    """Lists of a structure and its blocks, made once."""
    return BlockLists(products_of(hypergraph), blocks, width)
