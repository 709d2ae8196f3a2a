r"""Engine for binary variables: products of spins, moved by compiled code on threads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ...compute.engine import NOTHING, Floats, Ints, Record, Wanted
from ...compute.lanes import PIECE, aligned, from_tiles, lane_seeds, later, pieces, run_threads, tile_width, to_tiles
from ...compute.vectors import LANES
from ...structure.hypergraph import InteractionHypergraph
from ._products_kernels import _REFRESH as REFRESH, move
from ._products_structure import KeptLists, block_lists, products_of, whole_weights
from ._sums_kernels import weighted_sums

__all__ = ["ProductsEngine"]

_MAX_ORDER = 8

Array = NDArray[Any]

_NO_MOVES = (np.zeros((1, 0), dtype=np.int32), np.zeros((1, 0)), 1)  # of a call that only looks at the energies
_BATCH = 2**18  # weights of temperatures that are made at once: they stay in the cache

# products of the energy where none is recorded; the arrays tell compiled code the types
_NOTHING = (
    np.zeros((0, 4), dtype=np.int64),
    np.zeros(0, dtype=np.int64),
    np.zeros((1, 0, 2), dtype=np.int32),
    np.zeros((1, 0, 2)),
    np.zeros(1),
    np.zeros(0, dtype=np.int64),
)


class ProductsEngine:
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
    ) -> None:
        self._shape = num_groups, num_chains
        self._width = max(LANES, tile_width(num_chains))
        self._per_group = -(-num_chains // self._width)
        self._dtype = np.dtype(np.float32 if dtype == torch.float32 else np.float64)
        self._size = len(hypergraph.domain)
        self._products = products_of(hypergraph)
        self._lists = block_lists(hypergraph, tuple(tuple(b) for b in blocks), self._width)
        self._only_sites = all(len(b) == 1 for b in blocks)
        states = 2 ** max(map(len, blocks), default=1)
        self._sweep = float(self._width * states * (self._size + sum(map(len, hypergraph.edges))))  # reads, at most
        seeds = lane_seeds(seed, num_groups, num_chains, self._width)
        self._rng = aligned(seeds.transpose(1, 0, 2)).view(np.int32)
        tiles = num_groups * self._per_group
        self._spins: Array | None = None
        self._law: Array | None = None
        self._is_stale = True
        self._model_energy = np.zeros((tiles, self._width))
        self._reference_energy = np.zeros((tiles, self._width))
        place = np.arange(num_chains)
        self._tile = np.arange(num_groups)[:, None] * self._per_group + place // self._width
        self._lane = place % self._width
        self._levels = np.array(hypergraph.domain.cardinalities, dtype=np.int64)

    @classmethod
    def supports(cls, hypergraph: InteractionHypergraph) -> bool:
        """Whether all variables have at most two levels and no edge has more than eight variables."""
        return hypergraph.order <= _MAX_ORDER and all(n <= 2 for n in hypergraph.domain.cardinalities)

    def set_weights(self, tables: torch.Tensor, reference: torch.Tensor) -> None:
        self._tables = tables.detach().to(torch.float64).cpu().numpy()
        law = reference.detach().to(torch.float64).cpu().numpy()
        rows = max(len(self._tables), len(law))
        if self._law is None or rows != len(self._middle) or not np.array_equal(law, self._law):
            self._set_law(law, rows)
        weights = self._weights_of(self._tables)
        self._kept = self._lists.kept(weights)
        self._weights = self._fields(self._kept, weights)
        self._terms = self._terms_of(self._kept, weights)
        self._whole_terms: tuple[Array, ...] | None = None
        self._is_stale = True

    def _set_law(self, law: Array, rows: int) -> None:
        """Take up log weights of levels (groups or 1, sum of cardinalities)."""
        ends = np.cumsum(self._levels)
        low, high = law[:, ends - self._levels], law[:, ends - 1]
        half = np.broadcast_to((high - low) / 2, (rows, self._size))
        middle = np.broadcast_to(((high + low) / 2).sum(axis=1), (rows,))
        at_sites = np.zeros((rows, self._lists.num_fields))
        known = self._lists.reference_variable >= 0
        at_sites[:, known] = half[:, self._lists.reference_variable[known]]
        self._law = law.copy()
        # copies, because compiled code counts read-only and strided arrays as other types and would be compiled anew
        self._half, self._middle = (np.array(a, order="C") for a in (half, middle))
        self._law_at_sites = np.array(at_sites, dtype=self._dtype, order="C")

    def _fields(self, kept: KeptLists, weights: Array) -> tuple[Array, ...]:
        """Weights (rows, 1 + products) as the conditionals read them, with the reference last."""
        fields = kept.fields(weights)
        return (*(np.array(f, dtype=self._dtype, order="C") for f in fields), self._law_at_sites)

    def _terms_of(self, kept: KeptLists, weights: Array) -> tuple[Array, ...]:
        """The same as energies read them."""
        inner, constant = np.array(weights[:, 1:][:, kept.numbers], order="C"), np.array(weights[:, 0], order="C")
        return (kept.first, kept.members, inner, constant, self._half, self._middle)

    def _whole(self) -> tuple[Array, ...]:
        """Products of the energy in whole numbers, made when energies are first recorded."""
        if self._whole_terms is None:
            first, members, weights, constant, _, _ = self._terms
            kept = self._kept
            whole, units = whole_weights(weights, kept.chunks)
            # products start from +1: what is added are the weights of those at -1, twice
            self._whole_terms = (kept.chunks, members, whole, 2 * units, -constant - weights.sum(axis=1), first)
        return self._whole_terms

    def _weights_of(self, tables: Array) -> Array:
        """Weights of products (rows of the law, 1 + products) from tables (groups or 1, num_terms)."""
        weights = self._products.weights(tables)
        return np.broadcast_to(weights, (len(self._middle), weights.shape[1]))

    def set_codes(self, codes: torch.Tensor) -> None:
        self._spins = aligned(to_tiles(codes.cpu().numpy().astype(self._dtype) * 2 - 1, self._width))
        self._is_stale = True

    def _look(self) -> None:
        """Bring the energies up to date; new weights and states only mark them, since not every one is asked for."""
        if self._is_stale:
            self._run(*_NO_MOVES)

    @property
    def _states(self) -> Array:
        if self._spins is None:
            raise RuntimeError("engine: no states yet; set_codes comes first")
        return self._spins

    def _codes(self) -> Array:
        return from_tiles(self._states > 0, *self._shape)

    def get_codes(self) -> torch.Tensor:
        return torch.from_numpy(self._codes().astype(np.int64))

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
        own, self._terms = self._terms, self._terms_of(self._lists.kept(weights), weights)
        self._run(*_NO_MOVES)
        self._terms, self._is_stale = own, True  # those of the model are looked at anew when asked for
        return self._by_chain(self._model_energy)

    def sweep(self, order: Ints, num_sweeps: int, beta: Floats, wanted: Wanted = NOTHING) -> Record:
        thin, counts, energies, codes = wanted
        tiles, width = self._model_energy.shape
        records = num_sweeps // thin if thin else 0
        sums = np.zeros((tiles, len(self._products.members)), dtype=np.int64)
        heights = np.zeros((records, tiles, width)) if energies else None
        states = np.zeros((records if codes else 0, tiles, self._size, width), dtype=np.uint8)
        is_tracking = energies and records > 0 and self._only_sites and thin < 4 and self._dtype == np.float64
        every = max(1, thin)
        for first, last in pieces(num_sweeps, num_sweeps * self._sweep, math.lcm(every, REFRESH)):
            noted = slice(first // every, last // every)
            self._run(
                np.require(later(order, first), np.int32, ["C", "W"]),
                np.array(beta, dtype=np.float64)[:, None],
                last - first,
                thin=thin,
                is_tracking=is_tracking,
                counts=sums if counts else None,
                energies=None if heights is None else heights[noted],
                codes=states[noted],
            )
        return Record(
            records,
            self._cells(float(records * self._shape[1]), sums).round() if counts else None,
            None if heights is None else self._by_chain(heights),
            torch.from_numpy(np.ascontiguousarray(states.transpose(0, 1, 3, 2)[:, self._tile, self._lane]))
            if codes
            else None,
        )

    def _cells(self, totals: Array | float, sums: Array) -> torch.Tensor:
        """Counts of cells from the weights of all chains (groups,) and sums of products (tiles, products)."""
        found = np.empty((self._shape[0], len(self._products.members) + 1))
        found[:, 0] = totals
        found[:, 1:] = sums.reshape(self._shape[0], self._per_group, -1).sum(axis=1)
        return torch.from_numpy(self._products.cells(found))

    def anneal(
        self, order: Ints, betas: Floats, sweeps_per_step: int, start: torch.Tensor | None = None
    ) -> torch.Tensor:
        if start is not None:
            return self._anneal_from(order, np.asarray(betas, dtype=np.float64), sweeps_per_step, start)
        log_weights = np.zeros(self._model_energy.shape)
        path, steps = np.array(betas, dtype=np.float64)[None], len(betas) - 1
        for first, last in pieces(steps, steps * sweeps_per_step * self._sweep, REFRESH):
            self._run(
                np.require(later(order, first * sweeps_per_step), np.int32, ["C", "W"]),
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
        first = start.detach().to(torch.float64).cpu().numpy()
        base, gap = self._weights_of(first), self._weights_of(self._tables - first)
        own = self._kept, self._weights, self._terms
        self._kept = self._lists.kept(np.abs(base) + np.abs(gap))
        both = zip(self._kept.fields(base), self._kept.fields(gap), strict=True)
        fields = [(a[:, None], b[:, None]) for a, b in both]
        inner = self._terms_of(self._lists.kept(gap), gap)
        self._terms = (*inner[:4], np.zeros_like(self._half), np.zeros_like(self._middle))
        log_weights = np.zeros(self._model_energy.shape)
        steps, size = len(betas) - 1, sum(a.size for a, _ in fields)
        most = max(1, _BATCH // max(1, size))
        try:
            for begin, end in pieces(steps, steps * max(sweeps_per_step * self._sweep, PIECE / most)):
                path = betas[begin + 1 : end + 1, None]
                made = ((a + path * b).reshape(len(a) * (end - begin), a.shape[-1]) for a, b in fields)
                self._weights = (*(np.array(f, dtype=self._dtype, order="C") for f in made), self._law_at_sites)
                self._run(
                    np.require(later(order, begin * sweeps_per_step), np.int32, ["C", "W"]),
                    betas[None, begin : end + 1].copy(),
                    sweeps_per_step,
                    log_weights=log_weights,
                    num_steps=end - begin,
                )
        finally:
            self._kept, self._weights, self._terms = own
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

    def gather(self, index: torch.Tensor) -> None:
        chain = index.cpu().numpy()
        tile = np.arange(self._shape[0])[:, None] * self._per_group + chain // self._width
        lane = chain % self._width
        spins = self._states
        spins[self._tile, :, self._lane] = spins[tile, :, lane]
        for values in () if self._is_stale else (self._model_energy, self._reference_energy):
            values[self._tile, self._lane] = values[tile, lane]

    def state(self) -> dict[str, torch.Tensor]:
        words = self._rng.transpose(0, 2, 1)[self._tile, self._lane]
        return {
            "codes": torch.from_numpy(self._codes().astype(np.uint8)),
            "random": torch.from_numpy(words.astype(np.int32)),
        }

    def load_state(self, state: dict[str, torch.Tensor]) -> None:
        self._rng[self._tile, :, self._lane] = state["random"].cpu().numpy()
        self.set_codes(state["codes"])
