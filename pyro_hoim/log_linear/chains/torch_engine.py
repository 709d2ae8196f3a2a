"""Gibbs updates in PyTorch: the readable reference, and the form that runs on a GPU."""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Callable, Hashable, Sequence
from functools import cached_property, lru_cache, partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..._modes import plain_mode
from ...compute.engine import NOTHING, Floats, Ints, Record, Wanted
from ...runs.schedule import MAX_BLOCK_STATES
from ...structure.hypergraph import InteractionHypergraph
from .listing import Lists
from .torch_elimination import Levels, levels_of
from .torch_updates import Blocks, Places, Update, places_of_edges, steps, update_of

# Kernels that are launched together: CUDA graphs, where the device has them.

_logger = logging.getLogger("pyro_hoim")
_MAX_GRAPHS = 16  # kept by one engine; the memory of their intermediate results is shared
_USES = 2  # times that a function runs before it is captured


class Graphs:
    """Runs functions of tensors that stay where they are; on CUDA all but the first two runs are replays.

    A function takes no arguments and gives nothing: it reads and writes tensors whose memory stays, draws no random
    numbers and looks at no value. It runs as it is where the device has no graphs, or a capture fails.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._captured: dict[Hashable, Callable[[], None]] = {}
        self._uses: dict[Hashable, int] = {}
        self._pool: Any = None
        self.is_on = device.type == "cuda"

    def run(self, key: Hashable, function: Callable[[], None]) -> None:
        """Run the function, which is always the same for equal keys."""
        if not self.is_on:
            function()
            return
        replay = self._captured.get(key)
        if replay is None and self._is_due(key):
            replay = self._captured[key] = self._capture(function)
        (replay or function)()

    def forget(self) -> None:
        """Capture anew, because a tensor moved."""
        self._captured.clear()
        self._uses.clear()

    def _is_due(self, key: Hashable) -> bool:
        """Whether a function that was not captured has run often enough, and there is room."""
        if len(self._captured) >= _MAX_GRAPHS:
            return False
        if len(self._uses) > 64 * _MAX_GRAPHS:  # visits in random order never come back
            self._uses.clear()
        self._uses[key] = self._uses.get(key, 0) + 1
        return self._uses[key] > _USES

    def _capture(self, function: Callable[[], None]) -> Callable[[], None]:
        """Record the kernels of a function, which is not run."""
        try:
            return self._recorded(function)
        except RuntimeError as error:
            self.is_on = False
            _logger.info("CUDA graphs are off, because a capture failed: %s", error)
            return function

    def _recorded(self, function: Callable[[], None]) -> Callable[[], None]:
        with torch.cuda.device(self._device):
            if self._pool is None:
                self._pool = torch.cuda.graph_pool_handle()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
                function()
        return graph.replay


_MAX_CELLS = {"cpu": 2**18}  # looked up at once: what fits into the cache of a core
_MAX_CELLS_ELSEWHERE = 2**26
_MAX_UNIFORMS = 2**28  # drawn at once
_BUCKETS = 64  # of every cell on a device where many chains count at once
_MAX_BUCKETS = 2**26  # of all cells
_LEAST = 2.0**-26  # a random number of zero would draw impossible states


class TorchEngine:
    """An :class:`~pyro_hoim.compute.engine.Engine` in PyTorch, for any domain and device.

    Visits of a sweep that share no interaction are drawn at once for all chains: a schedule by colour classes takes one
    step per class, and one by sites as many as a visit has others to wait for. States, random numbers, energies and
    counts stay on the device, and nothing waits for it between two calls. On CUDA the kernels of a sweep are replayed
    as one graph. One generator serves all chains.
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
        max_listed: int = MAX_BLOCK_STATES,
        lists: Lists | None = None,
    ) -> None:
        self._hypergraph = hypergraph
        self._blocks = blocks
        self._shape = (num_groups, num_chains)
        self._dtype = dtype
        self._device = torch.device(device)
        self._generator = torch.Generator(self._device).manual_seed(seed)
        self._max_cells = _MAX_CELLS.get(self._device.type, _MAX_CELLS_ELSEWHERE)
        cards = hypergraph.domain.cardinalities
        self._lists = lists or (None,) * len(blocks)
        # Joint states of blocks that are drawn from a list of them, 0 of the others.
        sizes = [math.prod(cards[i] for i in block) for block in blocks]
        self._num_states = [
            (size if size <= max_listed else 0) if states is None else len(states)
            for size, states in zip(sizes, self._lists, strict=True)
        ]
        self._code = torch.uint8 if max(cards, default=1) <= 256 else torch.int32
        is_small = num_groups * (hypergraph.num_terms + 1) < 2**31
        self._index = torch.int32 if is_small else torch.long
        self._update = lru_cache(4096)(self._compile)
        self._levels_of = lru_cache(4096)(self._compile_levels)
        self._planned = lru_cache(64)(self._plan)
        self._graphs = Graphs(self._device)
        # Memory that stays, so that captured kernels find it.
        self._tables = self._zeros(num_groups, hypergraph.num_terms + 1)
        self._reference = self._zeros(num_groups, sum(cards) + 1)
        self._exact = tuple(torch.zeros_like(part, dtype=torch.float64) for part in (self._tables, self._reference))
        self._beta = self._zeros(num_groups, 1)
        # Codes (d, groups, chains): chains are innermost.
        self._codes = torch.zeros(len(cards), *self._shape, dtype=self._code, device=self._device)
        self._uniform = self._zeros(0)
        self._slope = self._zeros(*self._shape, dtype=torch.float64)
        groups = torch.arange(num_groups, dtype=self._index, device=self._device)[:, None]
        self._offset = groups * self._tables.shape[1]
        levels = torch.tensor([0, *itertools.accumulate(cards)][:-1], dtype=torch.long)
        self._levels = levels.to(self._device)[:, None, None] + groups.long() * self._reference.shape[1]

    def _zeros(self, *shape: int, dtype: torch.dtype | None = None) -> torch.Tensor:
        return torch.zeros(shape, dtype=dtype or self._dtype, device=self._device)

    # Structure

    def _plan(self, row: tuple[int, ...]) -> list[tuple[int, ...]]:
        """Visits of a sweep that are drawn at once."""
        size = self._shape[0] * self._shape[1]
        return list(steps(self._hypergraph, self._blocks, row, size, self._max_cells, self._num_states))

    def _compile(self, batch: tuple[int, ...]) -> Update:
        blocks, lists = tuple(self._blocks[b] for b in batch), tuple(self._lists[b] for b in batch)
        return update_of(self._hypergraph, blocks, self._index, self._device, lists=lists)

    def _compile_levels(self, visit: int) -> Levels:
        return levels_of(self._hypergraph, self._blocks[visit], self._index, self._device)

    def _num_draws(self, batch: tuple[int, ...]) -> int:
        """Random numbers that some visits take: one each, or one for every variable that is drawn by elimination."""
        return sum(1 if self._num_states[b] else len(self._blocks[b]) for b in batch)

    @cached_property
    @plain_mode()
    def _edges(self) -> list[Places]:
        """The cells of all interactions, in parts."""
        count, each = len(self._hypergraph.edges), max(1, self._max_cells // (self._shape[0] * self._shape[1]))
        parts = [range(k, min(count, k + each)) for k in range(0, count, each)]
        return [places_of_edges(self._hypergraph, part, self._index, self._device) for part in parts]

    # Weights and states

    def set_weights(self, tables: torch.Tensor, reference: torch.Tensor) -> None:
        for exact, target, given in zip(self._exact, (self._tables, self._reference), (tables, reference), strict=True):
            exact[:, :-1].copy_(given.to(exact))
            target.copy_(exact)

    def set_codes(self, codes: torch.Tensor) -> None:
        self._codes.copy_(codes.to(self._device).movedim(2, 0))

    def get_codes(self) -> torch.Tensor:
        return self._codes.movedim(0, 2).long().contiguous()

    def energies(self) -> tuple[torch.Tensor, torch.Tensor]:
        tables, reference = self._exact
        return self._energies_of(tables), -reference.take(self._codes + self._levels).sum(0)

    def energies_of(self, tables: torch.Tensor) -> torch.Tensor:
        rows = torch.nn.functional.pad(tables.to(self._exact[0]), (0, 1)).expand_as(self._exact[0])
        return self._energies_of(rows)

    def _energies_of(self, tables: torch.Tensor) -> torch.Tensor:
        """Energies (groups, chains) under tables (groups, num_terms + 1)."""
        flat, total = tables.reshape(-1), self._zeros(*self._shape, dtype=torch.float64)
        for places in self._edges:
            cells = places(self._codes, self._offset)
            total -= flat.index_select(0, cells.reshape(-1)).reshape(cells.shape).sum(0)
        return total

    # Moves

    def _draw(self, batch: tuple[int, ...], uniform: torch.Tensor, is_tempered: bool) -> None:
        """Draw some blocks of all chains from their conditionals with uniform numbers (n, groups, chains)."""
        groups, chains = self._shape
        if not self._num_states[batch[0]]:
            self._draw_by_elimination(self._levels_of(batch[0]), uniform, is_tempered)
            return
        update = self._update(batch)
        each = update.step[..., 0, 0].numel() * groups
        size = max(1, self._max_cells // max(1, each))
        for first in range(0, chains, size):
            where = slice(first, min(chains, first + size))
            self._draw_chains(update, self._codes[..., where], uniform[..., where], is_tempered)

    def _draw_by_elimination(self, levels: Levels, uniform: torch.Tensor, is_tempered: bool) -> None:
        """Draw a block of low treewidth of all chains with uniform numbers (variables, groups, chains)."""
        law = self._tables.reshape(-1), self._offset, self._reference
        groups, chains = self._shape
        size = max(1, self._max_cells // max(1, levels.num_cells * groups))
        for first in range(0, chains, size):
            where = slice(first, min(chains, first + size))
            levels.draw(self._codes[..., where], uniform[..., where], law, self._beta if is_tempered else None)

    def _draw_chains(self, update: Update, codes: torch.Tensor, uniform: torch.Tensor, is_tempered: bool) -> None:
        """The same for some of the chains, whose codes (d, groups, chains) are replaced."""
        # Log weights of all states: sums over the factors of each block.
        n, num_factors, num_states = update.step.shape[:3]
        base = update.places(codes, self._offset).reshape(n, num_factors, 1, *codes.shape[1:])
        cells = base + update.step  # (n, F, K, groups, chains)
        log_weights = self._tables.reshape(-1).index_select(0, cells.reshape(-1)).reshape(cells.shape).sum(1)
        if is_tempered:
            reference = self._reference[:, update.reference].sum(-1).movedim(0, -1)[..., None]  # (n, K, groups, 1)
            log_weights = self._beta * log_weights + (1 - self._beta) * reference
        if update.not_state is not None:
            log_weights = log_weights.masked_fill(update.not_state, -torch.inf)
        # The state, by inversion.
        if num_states == 2:
            chosen = uniform >= torch.sigmoid(log_weights[:, 0] - log_weights[:, 1])
        else:
            total = (log_weights - log_weights.amax(1, keepdim=True)).exp_().cumsum(1)  # softmax is slow on short rows
            chosen = (total <= (uniform * total[:, -1])[:, None]).sum(1)
        if len(update.members) == 1:
            codes.index_copy_(0, update.members[0], chosen.to(codes.dtype))
            return
        # Joint states as codes of the members.
        at = (chosen + update.first).reshape(-1)
        for members, state in zip(update.members, update.state, strict=True):
            codes.index_copy_(0, members, state.index_select(0, at).reshape(chosen.shape))

    def _sweep(self, row: tuple[int, ...], is_tempered: bool) -> None:
        """A sweep at the inverse temperatures that are set."""
        for first, batches in self._segments(row):
            self._draw_uniforms(sum(map(self._num_draws, batches)))
            self._graphs.run((row, first, is_tempered), partial(self._draw_all, batches, is_tempered))

    def _segments(self, row: tuple[int, ...]) -> list[tuple[int, list[tuple[int, ...]]]]:
        """Steps of a sweep with few enough random numbers, and the number of the first one."""
        limit = max(1, _MAX_UNIFORMS // max(1, self._shape[0] * self._shape[1]))
        segments: list[tuple[int, list[tuple[int, ...]]]] = []
        room = 0
        for k, batch in enumerate(self._planned(row)):
            if self._num_draws(batch) > room:
                segments.append((k, []))
                room = limit
            segments[-1][1].append(batch)
            room -= self._num_draws(batch)
        return segments

    def _draw_uniforms(self, count: int) -> None:
        """Fill the first random numbers (count, groups, chains)."""
        if len(self._uniform) < count:
            self._graphs.forget()  # captured kernels read the old memory
            self._uniform = self._zeros(count, *self._shape)
        self._uniform[:count].uniform_(generator=self._generator).clamp_(min=_LEAST)

    def _draw_all(self, batches: Sequence[tuple[int, ...]], is_tempered: bool) -> None:
        first = 0
        for batch in batches:
            count = self._num_draws(batch)
            self._draw(batch, self._uniform[first : first + count], is_tempered)
            first += count

    def _set_beta(self, beta: Floats) -> bool:
        """Take inverse temperatures (groups,); whether one differs from 1."""
        if (beta == beta[0]).all():
            self._beta.fill_(float(beta[0]))  # without a copy from the host
        else:
            self._beta.copy_(torch.from_numpy(beta)[:, None])
        return bool((beta != 1).any())

    def sweep(self, order: Ints, num_sweeps: int, beta: Floats, wanted: Wanted = NOTHING) -> Record:
        thin, counts, energies, codes = wanted
        is_tempered, rows = self._set_beta(beta), _tuples(order)
        total = self._zeros(self._shape[0], self._hypergraph.num_terms, dtype=torch.float64)
        records = num_sweeps // thin if thin else 0
        kept_energies = self._zeros(records, *self._shape, dtype=torch.float64) if energies else None
        kept_codes = self._codes.new_zeros(records, *self._shape, len(self._codes)) if codes else None
        for s in range(num_sweeps):
            self._sweep(rows[s % len(rows)], is_tempered)
            if not thin or (s + 1) % thin:
                continue
            if counts:
                total += self.statistics()
            if kept_energies is not None:
                kept_energies[s // thin] = self._energies_of(self._exact[0])
            if kept_codes is not None:
                kept_codes[s // thin] = self._codes.movedim(0, 2)
        return Record(records, total if counts else None, kept_energies, kept_codes)

    def _anneal_from(
        self, order: NDArray[np.int32], betas: NDArray[np.float64], sweeps_per_step: int, start: torch.Tensor
    ) -> torch.Tensor:
        """The run from other tables: every temperature is a model of its own."""
        tables, reference = (part[:, :-1].clone() for part in self._exact)
        start = start.to(tables)
        gap = tables - start
        weights, rows = torch.zeros_like(self._slope), _tuples(order)
        try:
            for k in range(1, len(betas)):
                weights -= float(betas[k] - betas[k - 1]) * self.energies_of(gap)
                self.set_weights(start + float(betas[k]) * gap, reference)
                for s in range((k - 1) * sweeps_per_step, k * sweeps_per_step):
                    self._sweep(rows[s % len(rows)], is_tempered=False)
        finally:
            self.set_weights(tables, reference)
        return weights

    def _set_slope(self) -> None:
        """Note what log weights grow by per unit of beta."""
        energy, reference_energy = self.energies()
        self._slope.copy_(reference_energy - energy)

    def anneal(
        self, order: Ints, betas: Floats, sweeps_per_step: int, start: torch.Tensor | None = None
    ) -> torch.Tensor:
        if start is not None:
            return self._anneal_from(order, betas, sweeps_per_step, start)
        weights, rows = torch.zeros_like(self._slope), _tuples(order)
        visit = itertools.cycle(rows)
        for k in range(1, len(betas)):
            self._graphs.run("slope", self._set_slope)
            weights += float(betas[k] - betas[k - 1]) * self._slope
            is_tempered = self._set_beta(np.full(self._shape[0], betas[k]))
            for _ in range(sweeps_per_step):
                self._sweep(next(visit), is_tempered)
        return weights

    def statistics(self, weights: torch.Tensor | None = None) -> torch.Tensor:
        width = 1  # chains that count at once rarely meet in a bucket
        if self._device.type != "cpu":
            width = max(1, min(_BUCKETS, _MAX_BUCKETS // self._tables.numel()))
        total = self._zeros(self._tables.numel() * width, dtype=torch.float64)
        share = torch.ones_like(self._slope) if weights is None else weights.to(self._slope)
        bucket = torch.arange(self._shape[1], device=self._device) % width
        for places in self._edges:
            cells = places(self._codes, self._offset).long() * width + bucket
            total.scatter_add_(0, cells.reshape(-1), share.expand_as(cells).reshape(-1))
        return total.reshape(self._shape[0], -1, width).sum(-1)[:, :-1].contiguous()

    def gather(self, index: torch.Tensor) -> None:
        where = index.to(self._device).expand_as(self._codes)
        self._codes.copy_(self._codes.gather(2, where))

    # Checkpoints

    def state(self) -> dict[str, torch.Tensor]:
        return {"codes": self.get_codes(), "generator": self._generator.get_state()}

    def load_state(self, state: dict[str, torch.Tensor]) -> None:
        self.set_codes(state["codes"])
        self._generator.set_state(state["generator"].cpu())


def _tuples(order: Ints) -> list[tuple[int, ...]]:
    return [tuple(row) for row in order.tolist()]
