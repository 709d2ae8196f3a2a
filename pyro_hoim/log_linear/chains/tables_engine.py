"""The engine for any finite domain: compiled sums of table rows, many chains per vector instruction (CPU)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ...compute.engine import NOTHING, Floats, Ints, Record, Wanted
from ...compute.lanes import SMALL, balanced_width, from_tiles, lane_seeds, later, pieces, run_threads, to_tiles
from ...structure.hypergraph import InteractionHypergraph
from ._tables_kernels import add_statistics, run
from ._tables_structure import tables_structure

__all__ = ["TablesEngine"]

_NO_VISITS = np.zeros((1, 0), dtype=np.int32)
_LOOK = (False, False, False, True)  # leave energies and record nothing


class TablesEngine:
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
    ) -> None:
        self._structure = tables_structure(hypergraph, tuple(tuple(b) for b in blocks))
        self._shape = (num_groups, num_chains)
        self._size = len(hypergraph.domain)
        self._real = np.float32 if dtype == torch.float32 else np.float64
        self._code = np.uint8 if max(hypergraph.domain.cardinalities, default=1) <= 256 else np.int32
        self._width = balanced_width(num_groups, num_chains, torch.get_num_threads())
        self._visit = self._width * max(1, self._structure.max_factors) * self._structure.max_states  # reads, at most
        self._per_group = -(-num_chains // self._width)
        self._random = lane_seeds(seed, num_groups, num_chains, self._width)
        self._tiles: NDArray[Any] | None = None
        self._energy = np.zeros(self._shape)
        self._reference_energy = np.zeros(self._shape)
        self._is_stale = False

    def set_weights(self, tables: torch.Tensor, reference: torch.Tensor) -> None:
        structure, base = self._structure, _padded(reference)
        self._cells, self._weights = self._copies(tables)
        self._reference_cells = np.zeros((1, 0))
        if base.any():
            rows = base[:, structure.reference_terms]
            self._reference_cells = np.add.reduceat(rows, structure.reference_starts, axis=1)
        self._reference = np.ascontiguousarray(base[:, :-1], dtype=self._real)
        self._reference_energy = np.zeros(self._shape)
        self._is_stale = True

    def _folded(self, tables: torch.Tensor) -> NDArray[np.float64]:
        """Tables (rows, num_terms) added into those of maximal interactions (rows, cells)."""
        structure, given = self._structure, _padded(tables)
        if not structure.num_cells:
            return np.zeros((len(given), 0))
        return np.add.reduceat(given[:, structure.cell_terms], structure.cell_starts, axis=1)

    def _copies(self, tables: torch.Tensor) -> tuple[NDArray[np.float64], NDArray[Any]]:
        """Folded tables (rows, cells), and the copies of them (rows, entries) that visits read."""
        structure, folded = self._structure, self._folded(tables)
        cells = np.concatenate([folded, np.zeros((len(folded), 1))], axis=1)
        weights = cells[:, structure.plus]
        weights[:, : structure.num_differences] -= cells[:, structure.minus]
        return folded, np.ascontiguousarray(weights, dtype=self._real)  # picking columns transposes the memory

    def set_codes(self, codes: torch.Tensor) -> None:
        self._tiles = to_tiles(codes.cpu().numpy().astype(self._code), self._width)
        self._is_stale = True

    def _codes(self) -> NDArray[Any]:
        assert self._tiles is not None
        return from_tiles(self._tiles, *self._shape)

    def get_codes(self) -> torch.Tensor:
        return torch.from_numpy(self._codes().astype(np.int64))

    def energies(self) -> tuple[torch.Tensor, torch.Tensor]:
        self._look()
        return torch.from_numpy(self._energy.copy()), torch.from_numpy(self._reference_energy.copy())

    def _look(self) -> None:
        """Bring the energies up to date; moves only mark them as stale, since not every one is asked for."""
        if self._is_stale and self._tiles is not None:
            self._run(_NO_VISITS, np.zeros((0, self._shape[0])), 0, parts=_LOOK)
        self._is_stale = False

    def energies_of(self, tables: torch.Tensor) -> torch.Tensor:
        kept = self._cells, self._reference_cells, self._energy
        self._cells, self._reference_cells, self._energy = self._folded(tables), np.zeros((1, 0)), np.zeros(self._shape)
        self._run(_NO_VISITS, np.zeros((0, self._shape[0])), 0, parts=_LOOK)
        found = self._energy
        self._cells, self._reference_cells, self._energy = kept
        return torch.from_numpy(found)

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
        structure, none = self._structure, np.zeros((1, 0), dtype=self._real)
        counts = np.zeros((1, 1, 0), dtype=np.int32) if counts is None else counts
        base = self._reference_cells if start is None else start[0]
        gap = np.zeros((1, 0)) if growth is None else self._cells - base if base.size else self._cells
        sizes = structure.max_states, structure.max_factors
        law = self._weights, none if start is None else start[1], self._reference
        path = (
            np.ascontiguousarray(order, dtype=np.int32),
            np.ascontiguousarray(betas, dtype=self._real),
            np.zeros(0) if growth is None else growth,
            num_sweeps,
            thin,
        )
        arguments = structure.sites, structure.joint, structure.edges, sizes, structure.reference_start, law
        lookups = self._cells, self._reference_cells, gap
        out = (
            np.zeros((0, 0)) if log_weights is None else log_weights,
            np.zeros((0, 0, 0)) if energies is None else energies,
            np.zeros((0, 0, 0, 0), dtype=self._code) if codes is None else codes,
            self._energy,
            self._reference_energy,
        )

        def work(copy: int, *part: int) -> None:
            run(self._tiles, self._random, self._shape, part, *arguments, lookups, path, parts, counts[copy], out)

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
        copies = 1 if num_groups >= 4 * workers else workers
        whole = np.int32 if num_records * num_chains < 2**31 else np.int64
        kept_counts = np.zeros((copies if counts else 1, num_groups, self._structure.num_cells), dtype=whole)
        kept_energies = np.zeros((num_records if energies else 0, num_groups, num_chains))
        kept_codes = np.zeros((num_records if codes else 0, num_groups, num_chains, self._size), dtype=self._code)
        self._is_stale = self._is_stale or num_sweeps > 0
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
            own = later(order, first * sweeps_per_step)
            self._run(own, *path, growth=growth[first:last], start=base, log_weights=log_weights)
        return torch.from_numpy(log_weights)

    def _terms(self, cells: NDArray[np.float64]) -> torch.Tensor:
        """Sums over the cells that each term was added into, (groups, num_terms)."""
        structure = self._structure
        lengths = np.diff(structure.cell_starts, append=len(structure.cell_terms))
        result = np.zeros((len(cells), structure.num_terms))
        for total, row in zip(result, cells, strict=True):
            spread = np.repeat(row, lengths)
            total[:] = np.bincount(structure.cell_terms, spread, structure.num_terms + 1)[:-1]
        return torch.from_numpy(result)

    def statistics(self, weights: torch.Tensor | None = None) -> torch.Tensor:
        num_groups, num_chains = self._shape
        shares = np.ones(self._shape) if weights is None else np.ascontiguousarray(weights.cpu().double().numpy())
        cells = np.zeros((num_groups, self._structure.num_cells))

        edges = self._structure.edges
        parts = 1 if num_groups > 1 else min(torch.get_num_threads(), len(edges[0])) or 1  # of the edges of a group

        def work(first: int, step: int) -> None:
            for k in range(first, num_groups * parts, step):
                g, part = divmod(k, parts)
                tile = g * self._per_group
                add_statistics(self._tiles, num_chains, tile, edges, part, parts, shares[g], cells[g])

        run_threads(work, num_groups * parts)
        return self._terms(cells)

    def gather(self, index: torch.Tensor) -> None:
        places = index.cpu().numpy()
        self._tiles = to_tiles(np.take_along_axis(self._codes(), places[:, :, None], axis=1), self._width)
        if self._is_stale:
            return
        self._energy = np.take_along_axis(self._energy, places, axis=1)
        self._reference_energy = np.take_along_axis(self._reference_energy, places, axis=1)

    def state(self) -> dict[str, torch.Tensor]:
        self._look()
        num_groups, num_chains = self._shape
        random = self._random.reshape(4, num_groups, -1)[:, :, :num_chains].astype(np.int64)
        return {
            "codes": torch.from_numpy(self._codes()),
            "energy": torch.from_numpy(self._energy.copy()),
            "reference_energy": torch.from_numpy(self._reference_energy.copy()),
            "random": torch.from_numpy(random),
        }

    def load_state(self, state: dict[str, torch.Tensor]) -> None:
        num_groups, num_chains = self._shape
        self.set_codes(state["codes"])
        self._energy = state["energy"].cpu().numpy().copy()
        self._reference_energy = state["reference_energy"].cpu().numpy().copy()
        random = self._random.reshape(4, num_groups, -1)
        random[:, :, :num_chains] = state["random"].cpu().numpy().astype(np.uint32)
        self._is_stale = False


def _padded(values: torch.Tensor) -> NDArray[np.float64]:
    """Rows as float64 with a zero at the end."""
    rows = values.detach().cpu().double().numpy()
    return np.concatenate([rows, np.zeros((len(rows), 1))], axis=1)
