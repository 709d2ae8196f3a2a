"""Gibbs updates in PyTorch: the readable reference, and the form that runs on a GPU."""

from __future__ import annotations

import itertools
import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from ...compute.engine import NOTHING, Floats, Ints, Record, Wanted
from ...structure.cells import cell_index, row_strides
from ...structure.hypergraph import InteractionHypergraph

__all__ = ["TorchEngine"]

Blocks = tuple[tuple[int, ...], ...]


class _Update(NamedTuple):
    """Index arrays of n blocks that share no interaction, padded to F factors, D outside variables, K states.

    A factor is an interaction that meets the block. Padding points at a weight of zero, appended to the tables.
    """

    start: torch.Tensor  # (n, F) position of the factor's table
    variable: torch.Tensor  # (n, F, D) its variables outside the block
    stride: torch.Tensor  # (n, F, D)
    step: torch.Tensor  # (n, F, K) what a state of the block adds to the position
    reference: torch.Tensor  # (n, K, m) positions in the reference tables
    is_state: torch.Tensor  # (n, K)
    state: torch.Tensor  # (n, K, m) codes of the members in every state
    member: torch.Tensor  # (n, m) variables of the block
    radix: torch.Tensor  # (n, m) position of a state from the codes of the members


class TorchEngine:
    """An :class:`~pyro_hoim.compute.engine.Engine` in PyTorch, for any domain and device.

    Consecutive blocks of a sweep that share no interaction are drawn at once for all chains, so a schedule by colour
    classes takes one step per class. One generator serves all chains.
    """

    def __init__(
        self,
        hypergraph: InteractionHypergraph,
        blocks: Blocks,
        num_groups: int,
        num_chains: int,
        seed: int,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        self._hypergraph = hypergraph
        self._blocks = blocks
        self._shape = (num_groups, num_chains)
        self._dtype = dtype
        self._device = torch.device(device)
        self._generator = torch.Generator(self._device).manual_seed(seed)
        cards = hypergraph.domain.cardinalities
        self._code = torch.uint8 if max(cards, default=1) <= 256 else torch.int32
        self._reference_start = [0, *itertools.accumulate(cards)]
        self._update = lru_cache(4096)(self._compile)
        self._batched = lru_cache(64)(self._batches)
        self._meeting = hypergraph.incident
        self._codes: torch.Tensor | None = None
        self._cells = cell_index(hypergraph).flat

    def _batches(self, row: tuple[int, ...]) -> list[tuple[int, ...]]:
        """Consecutive visits joined while no two of them share an interaction or a variable."""
        batches: list[list[int]] = []
        edges, members = set[int](), set[int]()
        for b in row:
            block = self._blocks[b]
            met = set[int]().union(*(self._meeting[i] for i in block))
            if not batches or edges & met or members & set(block):
                batches.append([])
                edges, members = set(), set()
            batches[-1].append(b)
            edges |= met
            members |= set(block)
        return [tuple(batch) for batch in batches]

    def _compile(self, batch: tuple[int, ...]) -> _Update:
        hypergraph, cards = self._hypergraph, self._hypergraph.domain.cardinalities
        starts = [where.start for where in hypergraph.term_slices.values()]
        blocks = [self._blocks[b] for b in batch]
        factors = [sorted(set[int]().union(*(self._meeting[i] for i in block))) for block in blocks]
        n, num_factors = len(blocks), max(map(len, factors))
        depth = max((len(hypergraph.edge_indices[e]) for found in factors for e in found), default=0)
        num_states = max(math.prod(cards[i] for i in block) for block in blocks)
        size = max(map(len, blocks))
        start = np.full((n, num_factors), hypergraph.num_terms)
        variable = np.zeros((n, num_factors, depth), dtype=np.int64)
        stride = np.zeros_like(variable)
        step = np.zeros((n, num_factors, num_states), dtype=np.int64)
        reference = np.full((n, num_states, size), sum(cards))
        is_state = np.zeros((n, num_states), dtype=bool)
        state = np.zeros((n, num_states, size), dtype=np.int64)
        member = np.zeros((n, size), dtype=np.int64)
        radix = np.zeros((n, size), dtype=np.int64)
        for b, (block, found) in enumerate(zip(blocks, factors, strict=True)):
            shape = [cards[i] for i in block]
            codes = np.indices(shape).reshape(len(block), -1).T
            count = len(codes)
            is_state[b, :count] = True
            state[b, :count, : len(block)] = codes
            state[b, :, len(block) :] = state[b, :, :1]  # padded members repeat the first one
            member[b] = [*block, *[block[0]] * (size - len(block))]
            radix[b, : len(block)] = row_strides(shape)
            for k, i in enumerate(block):
                reference[b, :count, k] = self._reference_start[i] + codes[:, k]
            for f, e in enumerate(found):
                start[b, f] = starts[e]
                strides = row_strides(hypergraph.edge_shapes[e])
                for axis, (i, distance) in enumerate(zip(hypergraph.edge_indices[e], strides, strict=True)):
                    if i in block:
                        step[b, f, :count] += distance * codes[:, block.index(i)]
                    else:
                        variable[b, f, axis], stride[b, f, axis] = i, distance
        arrays = (start, variable, stride, step, reference, is_state, state, member, radix)
        return _Update(*(torch.from_numpy(a).to(self._device) for a in arrays))

    def set_weights(self, tables: torch.Tensor, reference: torch.Tensor) -> None:
        groups = self._shape[0]
        tables, reference = tables.to(self._device).double(), reference.to(self._device).double()
        self._exact = tables.expand(groups, -1), reference.expand(groups, -1)
        self._tables = torch.nn.functional.pad(self._exact[0], (0, 1)).to(self._dtype).contiguous()
        self._reference = torch.nn.functional.pad(self._exact[1], (0, 1)).to(self._dtype)
        self._refresh()

    def set_codes(self, codes: torch.Tensor) -> None:
        self._codes = codes.to(self._device, torch.long).clone()
        self._refresh()

    def get_codes(self) -> torch.Tensor:
        return self._states.clone()

    @property
    def _states(self) -> torch.Tensor:
        assert self._codes is not None
        return self._codes

    def _refresh(self) -> None:
        """Energies from the states."""
        if self._codes is None:
            return
        tables, reference = self._exact
        self._energy = self.energies_of(tables)
        levels = self._codes + torch.tensor(self._reference_start[:-1], dtype=torch.long, device=self._device)
        self._reference_energy = -reference.gather(1, levels.flatten(1)).reshape(*self._shape, -1).sum(-1)

    def energies(self) -> tuple[torch.Tensor, torch.Tensor]:
        return self._energy.clone(), self._reference_energy.clone()

    def _draw(self, batch: tuple[int, ...], beta: torch.Tensor) -> None:
        """Draw some blocks of all chains from their conditionals at beta (groups, 1, 1, 1)."""
        update, codes = self._update(batch), self._states
        groups = self._shape[0]
        base = update.start + (codes[:, :, update.variable] * update.stride).sum(-1)  # (groups, chains, n, F)
        cells = base[..., None] + update.step
        offset = torch.arange(groups, device=self._device).reshape(-1, 1, 1, 1, 1) * self._tables.shape[1]
        cells += offset
        model = self._tables.reshape(-1).index_select(0, cells.reshape(-1)).reshape(cells.shape).sum(-2)  # (..., n, K)
        reference = self._reference[:, update.reference].sum(-1)[:, None]  # (groups, 1, n, K)
        log_weights = (beta * model + (1 - beta) * reference).masked_fill(~update.is_state, -math.inf)
        total = (log_weights - log_weights.amax(-1, keepdim=True)).exp_().cumsum(-1)  # softmax is slow on short rows
        shape, device = total.shape[:-1], self._device
        uniform = torch.rand(shape, generator=self._generator, dtype=torch.float64, device=device)
        uniform += 2.0**-54  # never 0, which would draw impossible states
        chosen = (total <= (uniform * total[..., -1])[..., None]).sum(-1, keepdim=True)
        last = update.is_state.sum(-1)[:, None] - 1
        chosen = torch.minimum(chosen, last)  # rounding at the upper end
        before = (codes[:, :, update.member] * update.radix).sum(-1, keepdim=True)
        for energy, weights in ((self._energy, model), (self._reference_energy, reference.expand_as(model))):
            energy -= (weights.gather(-1, chosen) - weights.gather(-1, before)).sum((-1, -2)).double()
        picked = chosen[..., None].expand(*chosen.shape, update.state.shape[-1])
        state = update.state.expand(*chosen.shape[:2], *update.state.shape).gather(3, picked).squeeze(3)
        codes[:, :, update.member.reshape(-1)] = state.flatten(2)

    def _sweep(self, row: NDArray[np.int32], beta: torch.Tensor) -> None:
        for batch in self._batched(tuple(row.tolist())):
            self._draw(batch, beta)

    def sweep(self, order: Ints, num_sweeps: int, beta: Floats, wanted: Wanted = NOTHING) -> Record:
        thin, counts, energies, codes = wanted
        level = torch.as_tensor(beta, dtype=self._dtype, device=self._device).reshape(-1, 1, 1, 1)
        total = torch.zeros(self._shape[0], self._hypergraph.num_terms, dtype=torch.float64, device=self._device)
        records = num_sweeps // thin if thin else 0
        kept_energies = self._energy.new_zeros((records, *self._shape)) if energies else None
        kept_codes = self._states.new_zeros((records, *self._states.shape), dtype=self._code) if codes else None
        for s in range(num_sweeps):
            self._sweep(order[s % len(order)], level)
            if not thin or (s + 1) % thin:
                continue
            if counts:
                total += self.statistics()
            if kept_energies is not None:
                self._refresh()  # the running energies have the precision of the conditionals
                kept_energies[s // thin] = self._energy
            if kept_codes is not None:
                kept_codes[s // thin] = self._states
        self._refresh()
        return Record(records, total if counts else None, kept_energies, kept_codes)

    def energies_of(self, tables: torch.Tensor) -> torch.Tensor:
        rows = tables.to(self._device).double().expand(self._shape[0], -1)
        cells = self._cells(self._states).flatten(1)
        return -rows.gather(1, cells).reshape(*self._shape, -1).sum(-1)

    def _anneal_from(
        self, order: NDArray[np.int32], betas: NDArray[np.float64], sweeps_per_step: int, start: torch.Tensor
    ) -> torch.Tensor:
        """The run from other tables: every temperature is a model of its own."""
        tables, reference = self._exact
        start = start.to(self._device).double()
        gap = tables - start
        weights = torch.zeros_like(self._energy)
        try:
            for k in range(1, len(betas)):
                weights -= float(betas[k] - betas[k - 1]) * self.energies_of(gap)
                self.set_weights(start + float(betas[k]) * gap, reference)
                rows = range((k - 1) * sweeps_per_step, k * sweeps_per_step)
                self.sweep(np.take(order, rows, axis=0, mode="wrap"), sweeps_per_step, np.ones(self._shape[0]))
        finally:
            self.set_weights(tables, reference)
        return weights

    def anneal(
        self, order: Ints, betas: Floats, sweeps_per_step: int, start: torch.Tensor | None = None
    ) -> torch.Tensor:
        if start is not None:
            return self._anneal_from(order, betas, sweeps_per_step, start)
        weights = torch.zeros_like(self._energy)
        row = 0
        for k in range(1, len(betas)):
            weights += (betas[k] - betas[k - 1]) * (self._reference_energy - self._energy)
            level = torch.full((self._shape[0], 1, 1, 1), float(betas[k]), dtype=self._dtype, device=self._device)
            for _ in range(sweeps_per_step):
                self._sweep(order[row % len(order)], level)
                row += 1
        self._refresh()
        return weights

    def statistics(self, weights: torch.Tensor | None = None) -> torch.Tensor:
        cells = self._cells(self._states)
        share = torch.ones_like(self._energy) if weights is None else weights.to(self._energy)
        total = torch.zeros(self._shape[0], self._hypergraph.num_terms, dtype=torch.float64, device=self._device)
        return total.scatter_add_(1, cells.flatten(1), share[..., None].expand(cells.shape).flatten(1))

    def gather(self, index: torch.Tensor) -> None:
        index = index.to(self._device)
        self._codes = self._states.gather(1, index[..., None].expand(self._states.shape))
        self._energy = self._energy.gather(1, index)
        self._reference_energy = self._reference_energy.gather(1, index)

    def state(self) -> dict[str, torch.Tensor]:
        parts = {"codes": self._states, "energy": self._energy, "reference_energy": self._reference_energy}
        return {name: part.clone() for name, part in parts.items()} | {"generator": self._generator.get_state()}

    def load_state(self, state: dict[str, torch.Tensor]) -> None:
        for name in ("codes", "energy", "reference_energy"):
            setattr(self, f"_{name}", state[name].to(self._device).clone())
        self._generator.set_state(state["generator"].cpu())
