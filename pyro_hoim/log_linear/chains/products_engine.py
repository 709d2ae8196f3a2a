r"""Engine for binary variables: products of spins, moved by compiled code on threads."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ...compute.engine import NOTHING, Floats, Ints, Record, Wanted
from ...compute.lanes import PIECE, EnergyChains, aligned, from_tiles, later, pieces, run_threads, tile_width, to_tiles
from ...compute.vectors import LANES
from ...runs.schedule import MAX_BLOCK_STATES
from ...structure.elimination_order import BlockBucket, block_buckets
from ...structure.hypergraph import InteractionHypergraph
from ._products_kernels import _CHUNK as CHUNK, _REFRESH as REFRESH, move, weighted_sums

# Tables of binary variables as sums of weighted products of spins, and the lists that the compiled moves read.
#
# The table of an edge S is :math:`\theta^S_{x_S} = \sum_{T \subseteq S} w^S_T \prod_{i \in T} s_i` with spins
# :math:`s_i = 2 x_i - 1` and :math:`w^S_T = 2^{-|S|} \sum_{x_S} \theta^S_{x_S} \prod_{i \in T} s_i`, a Walsh-Hadamard
# transform; weights of equal T from different edges add up. The transposed map takes sums of products to counts of
# cells.

Array = NDArray[Any]
Longs = NDArray[np.int64]

_ZERO = 1e-14  # a product whose weight is below this share of the largest is dropped; rounding leaves such weights
_PATTERNS = 16  # of zero weights whose lists are kept: a path of models and their differences takes turns


def ragged(rows: Iterable[Sequence[int]]) -> tuple[Longs, Longs]:
    """Rows of different lengths as (first element of each row and the end, all elements)."""
    rows = list(rows)
    first = np.cumsum([0, *(len(row) for row in rows)])
    return first, np.array([i for row in rows for i in row], dtype=np.int64)


def _pick(first: Longs, elements: Longs, keep: Array) -> tuple[Longs, Longs]:
    """The rows of a ragged array where ``keep``."""
    lengths = np.diff(first)
    kept = np.cumsum(np.concatenate([[0], lengths[keep]]))
    return kept, elements[np.repeat(keep, lengths)]


@dataclass(frozen=True)
class _Tables:
    """Edges with the same number of binary members."""

    cells: Longs  # positions of their table entries, (edges, 2^k)
    subsets: Longs  # numbers of their sets T, (edges, 2^k); the empty set is number 0, others follow
    transform: Floats  # products of spins by cell and set, (2^k, 2^k), divided by 2^k


class Products:
    """The products of spins of a structure: all subsets of the edges, ordered by size and position."""

    def __init__(self, hypergraph: InteractionHypergraph) -> None:
        # Products are the subsets of edges; constants have number 0.
        cards = hypergraph.domain.cardinalities
        edges = [tuple(i for i in e if cards[i] == 2) for e in hypergraph.edge_indices]
        subsets_of_edges = {t for e in edges for k in range(1, len(e) + 1) for t in itertools.combinations(e, k)}
        self.members = tuple(sorted(subsets_of_edges, key=lambda t: (len(t), t)))
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
        # Every table's cells by the products of its spins, for edges of equal size at once.
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
        # Products that several tables have are added up.
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

    def __init__(
        self,
        products: Products,
        blocks: Sequence[tuple[int, ...]],
        width: int,
        forests: Sequence[tuple[BlockBucket, ...]],
    ) -> None:
        # Blocks with buckets are forests: their spins are in the order of these, with fields alone and with the parent.
        blocks = [
            tuple(bucket.variable for bucket in forest) or block for block, forest in zip(blocks, forests, strict=True)
        ]
        field_sizes = [2 * len(f) if f else 2 ** len(b) - 1 for b, f in zip(blocks, forests, strict=True)]
        self.num_fields = sum(field_sizes)
        self._field_first = np.cumsum([0, *field_sizes])[:-1].astype(np.int64)
        self._member_first, members = ragged(blocks)
        self._members = members * width
        self._is_forest = np.array([int(len(f) > 0) for f in forests], dtype=np.int64)
        parents = [
            [block.index(f[k].scope[0]) if f and f[k].scope else -1 for k in range(len(block))]
            for block, f in zip(blocks, forests, strict=True)
        ]
        self._parents = np.array([p for row in parents for p in row], dtype=np.int64)
        self.reference_variable = np.full(self.num_fields, -1)
        self.bias = np.full(self.num_fields, -1)
        entries: tuple[list[tuple[int, int, tuple[int, ...]]], ...] = ([], [], [])
        for first, block, forest in zip(self._field_first.tolist(), blocks, forests, strict=True):
            bit = {v: k for k, v in enumerate(block)}
            for v, k in bit.items():
                self.reference_variable[first + (2 * k if forest else (1 << k) - 1)] = v
            for number in sorted({k for v in block for k in products.incident[v]}):
                subset = products.members[number]
                inside = [bit[v] for v in subset if v in bit]
                field = first + (2 * min(inside) + len(inside) - 1 if forest else sum(1 << k for k in inside) - 1)
                others = tuple(v for v in subset if v not in bit)
                if others:
                    entries[min(len(others), 3) - 1].append((field, number, others))
                else:
                    self.bias[field] = number
        for visits in entries:
            visits.sort(key=lambda e: e[:2])
        self._fields = [np.array([e[0] for e in visits], dtype=np.int64) for visits in entries]
        self._numbers = [np.array([e[1] for e in visits], dtype=np.int64) for visits in entries]
        self._others = [ragged([v * width for v in e[2]] for e in visits) for visits in entries]
        self._all = ragged([v * width for v in subset] for subset in products.members)
        self._found: dict[bytes, KeptLists] = {}

    def kept(self, weights: Floats) -> KeptLists:
        """Lists of the products with weights other than zero; the same object while those are the same."""
        size = np.abs(weights[:, 1:]).max(axis=0, initial=0.0)
        keep = size > _ZERO * size.max(initial=0.0)
        key = keep.tobytes()
        lists = self._found.get(key)
        if lists is None:
            lists = self._pick(keep)
            if len(self._found) >= _PATTERNS:
                self._found = {}  # another one, since other threads may look into this
            self._found[key] = lists
        return lists

    def _pick(self, keep: Array) -> KeptLists:
        lists: list[Array] = [self._field_first, self._member_first, self._members]
        picked: list[Longs] = []
        for fields, numbers, (first, others) in zip(self._fields, self._numbers, self._others, strict=True):
            chosen = keep[numbers]
            starts = np.cumsum(np.concatenate([[0], np.bincount(fields[chosen], minlength=self.num_fields)]))
            row_first, row_others = _pick(first, others, chosen)
            lists += [starts, row_others] if len(lists) < 7 else [starts, row_first, row_others]
            picked.append(numbers[chosen])
        lists += [self._is_forest, self._parents]
        first, members = _pick(*self._all, keep)
        return KeptLists(tuple(lists), self.bias, tuple(picked), np.flatnonzero(keep), first, members)


@dataclass(frozen=True)
class KeptLists:
    """Lists of the products whose weights are not zero."""

    structure: tuple[Array, ...]  # what the compiled moves read
    bias: Longs  # number of the product that is the bias of every field, or -1
    picked: tuple[Longs, ...]  # numbers of the products in the lists with one, two and more outer spins
    numbers: Longs  # of the products of the energy
    first: Longs  # first member of every product of the energy, and the end
    members: Longs

    def fields(self, weights: Floats) -> list[Floats]:
        """Biases and weights of the three lists by field, rows as in ``weights`` (rows, 1 + products)."""
        bias = np.zeros((len(weights), len(self.bias)))
        known = self.bias >= 0
        bias[:, known] = weights[:, self.bias[known] + 1]
        return [bias, *(weights[:, p + 1] for p in self.picked)]


def whole_weights(weights: Floats) -> tuple[NDArray[np.int32], Floats]:
    """Weights (rows, n) as multiples, int32 (rows, n, 2), of a coarse and a fine unit of their chunk (rows, chunks, 2).

    Sums of multiples within a chunk fit 32 bits, so that integers add up to what float64 would, twice as fast.
    """
    whole = np.zeros((*weights.shape, 2), dtype=np.int32)
    starts = range(0, weights.shape[1], CHUNK)
    units = np.zeros((len(weights), len(starts), 2))
    for k, begin in enumerate(starts):
        part = weights[:, begin : begin + CHUNK]
        exponent = np.maximum(np.frexp(np.abs(part).sum(axis=1))[1], -900)
        units[:, k, 0] = np.ldexp(1.0, exponent - 30)
        units[:, k, 1] = np.ldexp(1.0, exponent - 61 + CHUNK.bit_length() - 1)
        coarse = np.rint(part / units[:, k, :1])
        whole[:, begin : begin + CHUNK, 0] = coarse
        whole[:, begin : begin + CHUNK, 1] = np.rint((part - coarse * units[:, k, :1]) / units[:, k, 1:])
    return whole, units


def digit_tables(whole: NDArray[np.int32]) -> tuple[Longs, NDArray[np.uint8], Longs, NDArray[np.int32]]:
    """Tables of digits of the sums of four multiples (rows, n, 2), as the compiled sums read them.

    Returns products, eight after eight, tables of these, the first eight of every chunk and the end, and what the
    numbers of a chunk, which are not negative, lack (rows, chunks, 2). A large multiple stands as several smaller ones
    and spare products have none, so that any four sum up to less than 2^28.
    """
    numbers, values, first = [np.zeros(0, np.int64)], [np.zeros((len(whole), 0, 2), np.int32)], [0]
    for begin in range(0, whole.shape[1], CHUNK):
        part = np.pad(whole[:, begin : begin + CHUNK].astype(np.int64), ((0, 0), (0, 1), (0, 0)))
        times = np.abs(part[..., 0]).max(axis=0, initial=0) // (2**26 - 1) + 1
        times[-1] = -times[:-1].sum() % 8  # the last stands for spare products
        chosen = np.repeat(np.arange(len(times)), times)
        rank = (np.arange(len(chosen)) - np.repeat(np.cumsum(times) - times, times))[:, None]
        part, times = part[:, chosen], times[chosen, None]
        values.append((part * (rank + 1) // times - part * rank // times).astype(np.int32))
        numbers.append(np.minimum(begin + chosen, whole.shape[1] - 1))
        first.append(first[-1] + len(numbers[-1]) // 8)
    # Sums over the sixteen subsets of four, less the least, and their digits.
    fours = np.concatenate(values, axis=1).reshape(len(whole), -1, 2, 4, 2).transpose(3, 0, 1, 4, 2)
    sums = np.zeros((16, *fours.shape[1:]), dtype=np.int32)
    for k in range(4):
        sums[1 << k : 2 << k] = sums[: 1 << k] + fours[k]
    least = sums.min(axis=0)
    sums -= least
    digits = np.empty((*least.shape[:3], 4, 2, 16), dtype=np.uint8)
    for k in range(4):
        digits[:, :, :, k] = np.moveaxis((sums >> 7 * k).astype(np.uint8) & 127, 0, -1)
    lacking = np.add.reduceat(least.sum(axis=3), first[:-1], axis=1, dtype=np.int32)
    return np.concatenate(numbers), digits, np.array(first), lacking


@lru_cache(maxsize=64)
def block_lists(
    hypergraph: InteractionHypergraph, blocks: tuple[tuple[int, ...], ...], width: int, max_listed: int
) -> BlockLists:
    """Lists of a structure and its blocks, made once."""
    forests = [block_buckets(hypergraph, block) if 2 ** len(block) > max_listed else () for block in blocks]
    return BlockLists(products_of(hypergraph), blocks, width, forests)


_MAX_ORDER = 8
_READS_OF_TREES = 8  # of a product by its spin, about


_NO_MOVES = (np.zeros((1, 0), dtype=np.int32), np.zeros((1, 0)), 1)  # of a call that only looks at the energies
_BATCH = 2**18  # weights of temperatures that are made at once: they stay in the cache

# products of the energy where none is recorded; the arrays tell compiled code the types
_NOTHING = (
    np.zeros(0, dtype=np.int64),
    np.zeros((1, 0, 2, 4, 2, 16), dtype=np.uint8),
    np.zeros((1, 0, 2)),
    np.zeros(1),
    np.zeros(1, dtype=np.int64),
    np.zeros((1, 0, 2), dtype=np.int32),
    0,
)


class ProductsEngine(EnergyChains):
    r"""Chains of a model of binary variables, see :class:`~pyro_hoim.compute.engine.Engine`.

    Tables become weights of products of spins (:math:`2^k` for an edge of k variables; those whose weights are zero,
    such as all but the largest of a balanced table, are dropped). A visit costs one fused multiplication per product
    that holds the variable, one random number and one exponential, on many chains at once. Energies are those of
    float64 arithmetic; only inside annealed runs of single sites they follow by differences in between.

    In single precision log odds are off by about 1e-7 times the sum of the absolute weights that enter them, so
    tables with entries of hundreds of nats (states that are all but impossible) want float64.
    """

    def __init__(
        self,
        hypergraph: InteractionHypergraph,
        blocks: Sequence[tuple[int, ...]],
        num_groups: int,
        num_chains: int,
        seed: int,
        dtype: torch.dtype = torch.float32,
        max_listed: int = MAX_BLOCK_STATES,
    ) -> None:
        super().__init__((num_groups, num_chains), seed, max(LANES, tile_width(num_chains)), np.uint8)
        self._dtype = np.dtype(np.float32 if dtype == torch.float32 else np.float64)
        self._size = len(hypergraph.domain)
        self._products = products_of(hypergraph)
        self._lists = block_lists(hypergraph, tuple(tuple(b) for b in blocks), self._width, max_listed)
        self._only_sites = all(len(b) == 1 for b in blocks)
        # An upper bound of what a sweep of a tile reads says where long runs are cut.
        states = max((n for n in (2 ** len(b) for b in blocks) if n <= max_listed), default=_READS_OF_TREES)
        self._sweep = float(self._width * states * (self._size + sum(map(len, hypergraph.edges))))  # reads, at most
        # moves read the words of a tile together; the view that they are saved by shares their memory
        self._rng = aligned(self._random.transpose(1, 0, 2)).view(np.int32)
        self._random = self._rng.view(np.uint32).transpose(1, 0, 2)
        self._law: Array | None = None
        self._model_energy = np.zeros((len(self._rng), self._width))
        self._reference_energy = np.zeros_like(self._model_energy)
        self._levels = np.array(hypergraph.domain.cardinalities, dtype=np.int64)

    @classmethod
    def supports(
        cls,
        hypergraph: InteractionHypergraph,
        blocks: Sequence[tuple[int, ...]] = (),
        max_listed: int = MAX_BLOCK_STATES,
    ) -> bool:
        """Whether variables have at most two levels, edges at most eight variables, and large blocks no cycles."""
        if hypergraph.order > _MAX_ORDER or any(n > 2 for n in hypergraph.domain.cardinalities):
            return False
        large = (tuple(block) for block in blocks if 2 ** len(block) > max_listed)
        return all(len(bucket.scope) <= 1 for block in large for bucket in block_buckets(hypergraph, block))

    def set_weights(self, tables: torch.Tensor, reference: torch.Tensor) -> None:
        self._tables = tables.detach().to(torch.float64).cpu().numpy()
        law = reference.detach().to(torch.float64).cpu().numpy()
        rows = max(len(self._tables), len(law))
        if self._law is None or rows != len(self._middle) or not np.array_equal(law, self._law):
            # Take up log weights of levels (groups or 1, sum of cardinalities)
            ends = np.cumsum(self._levels)
            low, high = law[:, ends - self._levels], law[:, ends - 1]
            half = np.broadcast_to((high - low) / 2, (rows, self._size))
            middle = np.broadcast_to(((high + low) / 2).sum(axis=1), (rows,))
            at_sites = np.zeros((rows, self._lists.num_fields))
            known = self._lists.reference_variable >= 0
            at_sites[:, known] = half[:, self._lists.reference_variable[known]]
            self._law = law.copy()
            # copies: compiled code counts read-only and strided arrays as other types and would be compiled anew
            self._half, self._middle = (np.array(a, order="C") for a in (half, middle))
            self._law_at_sites = np.array(at_sites, dtype=self._dtype, order="C")
        weights = self._weights_of(self._tables)
        self._kept = self._lists.kept(weights)
        self._weights = self._fields(self._kept, weights)
        self._terms = self._terms_of(self._kept, weights)
        self._whole_terms: tuple[Any, ...] | None = None
        self._is_stale = True

    def _fields(self, lists: KeptLists, weights: Array) -> tuple[Array, ...]:
        """Weights (rows, 1 + products) as the conditionals read them, with the reference last."""
        fields = lists.fields(weights)
        return (*(np.array(f, dtype=self._dtype, order="C") for f in fields), self._law_at_sites)

    def _terms_of(self, lists: KeptLists, weights: Array) -> tuple[Array, ...]:
        """The same as energies read them."""
        inner, constant = np.array(weights[:, 1:][:, lists.numbers], order="C"), np.array(weights[:, 0], order="C")
        return (lists.first, lists.members, inner, constant, self._half, self._middle)

    def _whole(self) -> tuple[Any, ...]:
        """Products of the energy by tables of digits of whole numbers, made when energies are first recorded."""
        if self._whole_terms is None:
            _, _, weights, constant, _, _ = self._terms
            whole, units = whole_weights(weights)
            # products start from +1: what is added are the weights of those at -1, twice
            products, digits, first, lacking = digit_tables(whole)
            constants, room = -constant - weights.sum(axis=1), int(np.diff(first).max(initial=0))
            self._whole_terms = (self._kept.numbers[products], digits, 2 * units, constants, first, lacking, room)
        return self._whole_terms

    def _weights_of(self, tables: Array) -> Array:
        """Weights of products (rows of the law, 1 + products) from tables (groups or 1, num_terms)."""
        weights = self._products.weights(tables)
        return np.broadcast_to(weights, (len(self._middle), weights.shape[1]))

    def _written(self, codes: Array) -> Array:
        return aligned(to_tiles(codes.astype(self._dtype) * 2 - 1, self._width))

    def _codes(self) -> Array:
        return from_tiles(self._states > 0, *self._shape).astype(np.uint8)

    def _look_up(self) -> None:
        self._run(*_NO_MOVES)

    def _by_chain(self, lanes: Array) -> torch.Tensor:
        """Values (..., tiles, width) as (..., groups, chains)."""
        rows = lanes.reshape(*lanes.shape[:-2], self._shape[0], self._per_group * self._width)
        return torch.from_numpy(rows[..., : self._shape[1]].copy())

    def energies(self) -> tuple[torch.Tensor, torch.Tensor]:
        self._look()
        return self._by_chain(self._model_energy), self._by_chain(self._reference_energy)

    def _run(
        self,
        order: Array,
        betas: Array,
        sweeps_per_step: int,
        *,
        thin: int = 0,
        is_tracking: bool = False,
        log_weights: Array | None = None,
        counts: Array | None = None,
        energies: Array | None = None,
        codes: Array | None = None,
        num_steps: int = 0,
    ) -> None:
        spins = self._states
        empty = np.zeros((0, 0))
        whole = _NOTHING if energies is None else self._whole()
        laws = self._kept.structure, self._weights, self._terms, whole, self._products.counted
        # What the kernel fills; empty arrays stand for parts that nobody asked for.
        layout, path = (self._per_group, self._shape[1], num_steps), (order, betas, sweeps_per_step, thin)
        out = (
            self._model_energy,
            self._reference_energy,
            empty if log_weights is None else log_weights,
            empty.astype(np.int64) if counts is None else counts,
            np.zeros((0, 0, 0)) if energies is None else energies,
            np.zeros((0, 0, 0, 0), dtype=np.uint8) if codes is None else codes,
        )

        def work(first: int, step: int) -> None:
            move(first, step, spins, self._rng, *laws, layout, path, log_weights is not None, is_tracking, out)

        run_threads(work, len(spins), cost=len(spins) * self._sweep * sweeps_per_step * betas.shape[1])
        self._is_stale = False

    def energies_of(self, tables: torch.Tensor) -> torch.Tensor:
        weights = self._weights_of(tables.detach().to(torch.float64).cpu().numpy())
        terms, self._terms = self._terms, self._terms_of(self._lists.kept(weights), weights)
        self._look_up()
        self._terms, self._is_stale = terms, True  # those of the model are looked at anew when asked for
        return self._by_chain(self._model_energy)

    def sweep(self, order: Ints, num_sweeps: int, beta: Floats, wanted: Wanted = NOTHING) -> Record:
        thin, counts, energies, codes = wanted
        tiles, width = self._model_energy.shape
        records = num_sweeps // thin if thin else 0
        sums = np.zeros((tiles, len(self._products.members)), dtype=np.int64)
        heights = np.zeros((records, tiles, width)) if energies else None
        states = np.empty((records if codes else 0, tiles, width, self._size), dtype=np.uint8)
        # In pieces that end at a record, so that Ctrl-C is answered between them.
        every = max(1, thin)
        for first, last in pieces(num_sweeps, num_sweeps * self._sweep, math.lcm(every, REFRESH)):
            noted = slice(first // every, last // every)
            self._run(
                later(order, first),
                np.array(beta, dtype=np.float64)[:, None],
                last - first,
                thin=thin,
                counts=sums if counts else None,
                energies=None if heights is None else heights[noted],
                codes=states[noted],
            )
        rows = states.reshape(len(states), self._shape[0], self._per_group * width, self._size)
        return Record(
            records,
            self._cells(float(records * self._shape[1]), sums).round() if counts else None,
            None if heights is None else self._by_chain(heights),
            torch.from_numpy(np.ascontiguousarray(rows[:, :, : self._shape[1]])) if codes else None,
        )

    def _cells(self, totals: Array | float, sums: Array) -> torch.Tensor:
        """Counts of cells from the weights of all chains (groups,) and sums of products (tiles, products)."""
        totals_of_products = np.empty((self._shape[0], len(self._products.members) + 1))
        totals_of_products[:, 0] = totals
        totals_of_products[:, 1:] = sums.reshape(self._shape[0], self._per_group, -1).sum(axis=1)
        return torch.from_numpy(self._products.cells(totals_of_products))

    def anneal(
        self, order: Ints, betas: Floats, sweeps_per_step: int, start: torch.Tensor | None = None
    ) -> torch.Tensor:
        if start is not None:
            return self._anneal_from(order, np.asarray(betas, dtype=np.float64), sweeps_per_step, start)
        log_weights = np.zeros(self._model_energy.shape)
        path, steps = np.array(betas, dtype=np.float64)[None], len(betas) - 1
        for first, last in pieces(steps, steps * sweeps_per_step * self._sweep, REFRESH):
            self._run(
                later(order, first * sweeps_per_step),
                path[:, first : last + 1].copy(),
                sweeps_per_step,
                is_tracking=self._only_sites,
                log_weights=log_weights,
            )
        return self._by_chain(log_weights)

    def _anneal_from(
        self, order: NDArray[np.int32], betas: NDArray[np.float64], sweeps_per_step: int, start: torch.Tensor
    ) -> torch.Tensor:
        """The run from other tables: every temperature has weights of its own, which are linear in it."""
        # Weights at beta 0, and what the way to the model adds.
        first = start.detach().to(torch.float64).cpu().numpy()
        base, gap = self._weights_of(first), self._weights_of(self._tables - first)
        # Lists that hold the products of both ends serve every temperature between them.
        state_before = self._kept, self._weights, self._terms
        self._kept = self._lists.kept(np.abs(base) + np.abs(gap))
        both = zip(self._kept.fields(base), self._kept.fields(gap), strict=True)
        fields = [(a[:, None], b[:, None]) for a, b in both]
        inner = self._terms_of(self._lists.kept(gap), gap)
        self._terms = (*inner[:4], np.zeros_like(self._half), np.zeros_like(self._middle))
        log_weights = np.zeros(self._model_energy.shape)
        # Weights of some temperatures at a time, so many that they stay in the cache.
        steps, size = len(betas) - 1, sum(a.size for a, _ in fields)
        most = max(1, _BATCH // max(1, size))
        try:
            for begin, end in pieces(steps, steps * max(sweeps_per_step * self._sweep, PIECE / most)):
                path = betas[begin + 1 : end + 1, None]
                made = ((a + path * b).reshape(len(a) * (end - begin), a.shape[-1]) for a, b in fields)
                self._weights = (*(np.array(f, dtype=self._dtype, order="C") for f in made), self._law_at_sites)
                self._run(
                    later(order, begin * sweeps_per_step),
                    betas[None, begin : end + 1].copy(),
                    sweeps_per_step,
                    log_weights=log_weights,
                    num_steps=end - begin,
                )
        finally:
            self._kept, self._weights, self._terms = state_before
            self._is_stale = True
        return self._by_chain(log_weights)

    def statistics(self, weights: torch.Tensor | None = None) -> torch.Tensor:
        spins = self._states
        lanes = np.zeros(self._model_energy.shape)
        lanes[self._tile, self._lane] = 1.0 if weights is None else weights.detach().cpu().numpy()
        sums = np.zeros((len(spins), len(self._products.members)))
        run_threads(
            lambda first, step: weighted_sums(first, step, spins, lanes, self._products.counted, sums), len(spins)
        )
        return self._cells(lanes.reshape(self._shape[0], -1).sum(axis=1), sums)
