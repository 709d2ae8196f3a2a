"""Gibbs updates in PyTorch: the readable reference, and the form that runs on a GPU."""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import cached_property, lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from ..._modes import plain_mode
from ...compute.engine import NOTHING, Floats, Ints, Record, Wanted
from ...runs.schedule import MAX_BLOCK_STATES
from ...structure.elimination_order import BlockBucket, block_buckets
from ...structure.hypergraph import InteractionHypergraph, row_strides
from .inside import Lists

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
        # Steps of a sweep with few enough random numbers, and the number of the first one.
        limit = max(1, _MAX_UNIFORMS // max(1, self._shape[0] * self._shape[1]))
        segments: list[tuple[int, list[tuple[int, ...]]]] = []
        room = 0
        for k, batch in enumerate(self._planned(row)):
            if self._num_draws(batch) > room:
                segments.append((k, []))
                room = limit
            segments[-1][1].append(batch)
            room -= self._num_draws(batch)
        for first, batches in segments:
            self._draw_uniforms(sum(map(self._num_draws, batches)))
            self._graphs.run((row, first, is_tempered), partial(self._draw_all, batches, is_tempered))

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


# Blocks of low treewidth drawn by elimination in PyTorch: buckets that wait for no other are done together.

_LOWEST = -1e30  # stands for the log weight of impossible states, which are then never drawn


class Level(NamedTuple):
    """n buckets of equal shape whose messages wait for none of the others.

    Cells of a bucket are the states of its scope (outer) and, last, of its variable.
    """

    update: Update  # tables that meet the buckets, K = outer * states
    shape: tuple[int, int]  # outer, states
    received: torch.Tensor | None  # (n, R, K) positions of messages from earlier levels; the last one is zero
    sent: slice  # positions of the messages, n * outer
    variables: torch.Tensor  # (n,)
    scope: tuple[torch.Tensor, ...]  # variables (n,) of the scope
    strides: tuple[int, ...]
    drawn: slice  # positions of the random numbers


class Levels(NamedTuple):
    """The levels of a block, leaves first, and the number of cells of all messages."""

    levels: tuple[Level, ...]
    num_messages: int
    num_cells: int
    num_draws: int

    def draw(
        self,
        codes: torch.Tensor,
        uniform: torch.Tensor,
        law: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
        beta: torch.Tensor | None,
    ) -> None:
        """Replace the codes (d, groups, chains) of a block by draws with uniform numbers (variables, groups, chains).

        The law is tables, flat, with the offsets of the groups (groups, 1), and reference log weights; at beta None it
        is that of the tables alone.
        """
        tables, offset, base = law
        messages = uniform.new_zeros(self.num_messages + 1, *codes.shape[1:])
        shares: list[torch.Tensor] = []
        # Messages up, with the cumulative weights of the levels given the scopes.
        for level in self.levels:
            n, num_factors, num_cells = level.update.step.shape[:3]
            places = level.update.places(codes, offset).reshape(n, num_factors, 1, *codes.shape[1:])
            cells = places + level.update.step
            weights = tables.index_select(0, cells.reshape(-1)).reshape(cells.shape).sum(1)
            if beta is not None:
                reference = base[:, level.update.reference].sum(-1).movedim(0, -1)[..., None]
                weights = beta * weights + (1 - beta) * reference
            if level.received is not None:
                taken = messages.index_select(0, level.received.reshape(-1))
                weights = weights + taken.reshape(n, -1, num_cells, *codes.shape[1:]).sum(1)
            weights = weights.clamp(min=_LOWEST).unflatten(1, level.shape)
            top = weights.amax(2, keepdim=True)
            total = (weights - top).exp_().cumsum(2)
            shares.append(total)
            if level.shape[0] > 1:
                message = top.squeeze(2) + total[:, :, -1].log()
                messages[level.sent] = (message - message.amax(1, keepdim=True)).flatten(0, 1)
        # Draws against the order.
        for level, total in zip(reversed(self.levels), reversed(shares), strict=True):
            row = torch.zeros_like(total[:, 0, 0], dtype=torch.long)
            for variables, stride in zip(level.scope, level.strides, strict=True):
                row = row + codes.index_select(0, variables).long() * stride
            picked = total.gather(1, row[:, None, None].expand(-1, 1, level.shape[1], -1, -1)).squeeze(1)
            chosen = (picked <= (uniform[level.drawn] * picked[:, -1])[:, None]).sum(1)
            codes.index_copy_(0, level.variables, chosen.to(codes.dtype))


def levels_of(
    hypergraph: InteractionHypergraph, block: tuple[int, ...], dtype: torch.dtype, device: torch.device
) -> Levels:
    """Index arrays by which a block is drawn."""
    buckets, cards = block_buckets(hypergraph, block), hypergraph.domain.cardinalities
    rank = {bucket.variable: k for k, bucket in enumerate(buckets)}
    # Tables go to the bucket of the first of their members to go, messages to that of the first of their scope.
    factors: list[list[int]] = [[] for _ in buckets]
    for e in sorted({e for v in block for e in hypergraph.incident[v]}):
        factors[min(rank[v] for v in hypergraph.edge_indices[e] if v in rank)].append(e)
    senders: list[list[int]] = [[] for _ in buckets]
    height = [0] * len(buckets)
    for k, bucket in enumerate(buckets):
        height[k] = 1 + max((height[j] for j in senders[k]), default=-1)
        if bucket.scope:
            senders[min(rank[u] for u in bucket.scope)].append(k)
    shapes = [(math.prod(cards[u] for u in b.scope), cards[b.variable]) for b in buckets]
    groups: dict[tuple[int, tuple[int, ...]], list[int]] = {}
    for k, (variable, scope) in enumerate(buckets):
        groups.setdefault((height[k], tuple(cards[u] for u in (*scope, variable))), []).append(k)
    # Messages in the order in which they are sent.
    first = dict[int, int]()
    num_messages = num_draws = 0
    levels: list[Level] = []
    for _, members in sorted(groups.items()):
        begin, shape = num_messages, shapes[members[0]]
        for k in members:
            first[k] = num_messages
            num_messages += shape[0] if shape[0] > 1 else 0
        chosen = [buckets[k] for k in members]
        axes = [(*b.scope, b.variable) for b in chosen]
        scopes = torch.tensor([b.scope for b in chosen], dtype=torch.long).reshape(len(chosen), -1)
        levels.append(
            Level(
                update_of(hypergraph, tuple(axes), dtype, device, [factors[k] for k in members]),
                shape,
                _received([senders[k] for k in members], axes, buckets, first, cards),
                slice(begin, num_messages),
                torch.tensor([b.variable for b in chosen]).to(device),
                tuple(scopes.to(device).unbind(1)),
                row_strides([cards[u] for u in chosen[0].scope]),
                slice(num_draws, num_draws + len(members)),
            )
        )
        num_draws += len(members)
    at_end = [
        level if level.received is None else level._replace(received=level.received.to(device) % (num_messages + 1))
        for level in levels
    ]
    return Levels(tuple(at_end), num_messages, sum(a * b for a, b in shapes), num_draws)


def _received(
    senders: Sequence[Sequence[int]],
    axes: Sequence[tuple[int, ...]],
    buckets: Sequence[BlockBucket],
    first: dict[int, int],
    cards: Sequence[int],
) -> torch.Tensor | None:
    """Positions (n, R, K) of the cells of messages to buckets; -1 where one has fewer than R."""
    most = max(map(len, senders))
    if not most:
        return None
    rows: list[torch.Tensor] = []
    for given, variables in zip(senders, axes, strict=True):
        codes = torch.cartesian_prod(*(torch.arange(cards[v]) for v in variables)).reshape(-1, len(variables))
        row = torch.full((most, len(codes)), -1)
        for j, k in enumerate(given):
            scope = buckets[k].scope
            row[j] = first[k]
            for u, stride in zip(scope, row_strides([cards[u] for u in scope]), strict=True):
                row[j] += stride * codes[:, variables.index(u)]
        rows.append(row)
    return torch.stack(rows)


# What the PyTorch engine looks up: steps of a sweep, and the index arrays of blocks that are drawn at once.

Blocks = tuple[tuple[int, ...], ...]
_SPLIT = 2**12  # chains from which blocks of unequal numbers of states are not padded to one


class Places(NamedTuple):
    """Positions in the tables, as ``start + sum_j stride[j] * code[variable[j]]``, and how many there are."""

    start: torch.Tensor  # (n,)
    variable: tuple[torch.Tensor, ...]  # D times (n,)
    stride: tuple[torch.Tensor, ...]  # D times (n, 1, 1)

    def __call__(self, codes: torch.Tensor, offset: torch.Tensor) -> torch.Tensor:
        """Positions (n, groups, chains) of codes (d, groups, chains); ``offset`` (groups, 1) is added."""
        index = (self.start[:, None, None] + offset).expand(-1, -1, codes.shape[2])
        for variable, stride in zip(self.variable, self.stride, strict=True):
            index = index + codes.index_select(0, variable) * stride
        return index


class Update(NamedTuple):
    """Index arrays of n blocks that share no interaction, padded to F factors and K states.

    A factor is an interaction that meets the block. Padding points at a weight of zero, appended to the tables.
    """

    places: Places  # of n * F factors
    step: torch.Tensor  # (n, F, K, 1, 1) what a state of the block adds to the position
    reference: torch.Tensor  # (n, K, m) positions in the reference tables
    not_state: torch.Tensor | None  # (n, K, 1, 1) padding among the states; None where there is none
    state: torch.Tensor  # (m, n * K) codes of the members in every state
    first: torch.Tensor  # (n, 1, 1) position of a block's first state there
    members: torch.Tensor  # (m, n) variables of the blocks


def steps(
    hypergraph: InteractionHypergraph,
    blocks: Blocks,
    row: Sequence[int],
    num_chains: int,
    max_cells: int,
    num_states: Sequence[int],
) -> Iterator[tuple[int, ...]]:
    """Visits of a sweep in steps that share no interaction and no variable, with the same result as one by one.

    A visit joins the first step after all earlier visits that it must wait for. A step of more than ``max_cells``
    look-ups is made in parts; a block that is not drawn from the list of its states, with a number of them of zero, is
    a part of its own.
    """
    meeting = hypergraph.incident
    visits_by_step: list[list[int]] = []
    last: dict[tuple[bool, int], int] = {}
    # A visit waits for those that touch one of its interactions or variables.
    for b in row:
        met = {(True, e) for i in blocks[b] for e in meeting[i]} | {(False, i) for i in blocks[b]}
        step = 1 + max((last.get(thing, -1) for thing in met), default=-1)
        last.update(dict.fromkeys(met, step))
        if step == len(visits_by_step):
            visits_by_step.append([])
        visits_by_step[step].append(b)

    levels = num_states.__getitem__
    # Parts of equal numbers of states where there are many chains, and within the bound.
    for step_visits in visits_by_step:
        yield from ((b,) for b in step_visits if not num_states[b])
        visits = [b for b in step_visits if num_states[b]]
        parts = [visits] if visits else []
        if num_chains >= _SPLIT:
            parts = [list(part) for _, part in itertools.groupby(sorted(visits, key=levels), key=levels)]
        for part in parts:
            num_factors = max(len({e for i in blocks[b] for e in meeting[i]}) for b in part)
            each = max(1, num_factors) * max(map(levels, part)) * num_chains
            size = max(1, max_cells // each)
            yield from (tuple(part[k : k + size]) for k in range(0, len(part), size))


def places_of_edges(
    hypergraph: InteractionHypergraph, edges: range, dtype: torch.dtype, device: torch.device
) -> Places:
    """Positions of the cells that a state selects in some interactions."""
    starts = [where.start for where in hypergraph.term_slices.values()]
    members = [
        list(zip(hypergraph.edge_indices[e], row_strides(hypergraph.edge_shapes[e]), strict=True)) for e in edges
    ]
    return _places([starts[e] for e in edges], members, dtype, device)


def _places(
    starts: list[int], members: list[list[tuple[int, int]]], dtype: torch.dtype, device: torch.device
) -> Places:
    """From (variable, stride) of every table."""
    depth = max(map(len, members), default=0)
    padded = np.zeros((2, depth, len(starts)), dtype=np.int64)  # a stride of zero adds nothing
    for k, pairs in enumerate(members):
        for j, pair in enumerate(pairs):
            padded[:, j, k] = pair
    variable, stride = torch.from_numpy(padded).to(device)
    return Places(
        torch.tensor(starts, dtype=dtype).to(device), tuple(variable), tuple(stride.to(dtype)[..., None, None])
    )


def update_of(
    hypergraph: InteractionHypergraph,
    blocks: Blocks,
    dtype: torch.dtype,
    device: torch.device,
    factors: list[list[int]] | None = None,
    lists: Lists | None = None,
) -> Update:
    """Index arrays of blocks that share no interaction.

    Where ``factors`` says which interactions each block meets, the blocks are buckets: the reference is that of their
    last variables alone. ``lists`` are the possible joint states of blocks of which not all are.
    """
    # Sizes of the largest block, to which the others are padded.
    cards, meeting = hypergraph.domain.cardinalities, hypergraph.incident
    starts = [where.start for where in hypergraph.term_slices.values()]
    first_level = [0, *itertools.accumulate(cards)]
    is_bucket = factors is not None
    if factors is None:
        factors = [sorted({e for i in block for e in meeting[i]}) for block in blocks]
    n, num_factors, size = len(blocks), max(map(len, factors)), max(map(len, blocks))
    listed = [
        np.indices([cards[i] for i in block]).reshape(len(block), -1) if states is None else np.array(states).T
        for block, states in zip(blocks, lists or (None,) * n, strict=True)
    ]
    num_states = max(codes.shape[1] for codes in listed)
    # Padding: factors point at the appended weight of zero, a stride of zero adds nothing.
    start = np.full((n, num_factors), hypergraph.num_terms)
    outside: list[list[tuple[int, int]]] = [[] for _ in range(n * num_factors)]
    step = np.zeros((n, num_factors, num_states), dtype=np.int64)
    reference = np.full((n, num_states, size), sum(cards))
    is_state = np.zeros((n, num_states), dtype=bool)
    state = np.zeros((size, n, num_states), dtype=np.int64)
    members = np.zeros((size, n), dtype=np.int64)
    # A factor's position has a part of the states outside the block and a step for every state of it.
    for b, (block, edges, codes) in enumerate(zip(blocks, factors, listed, strict=True)):
        count = codes.shape[1]
        is_state[b, :count] = True
        state[: len(block), b, :count] = codes
        state[len(block) :, b, :count] = codes[0]  # padded members repeat the first one
        members[:, b] = [*block, *[block[0]] * (size - len(block))]
        for k, i in enumerate(block):
            if is_bucket and k < len(block) - 1:
                continue
            reference[b, :count, k] = first_level[i] + codes[k]
        for f, e in enumerate(edges):
            start[b, f] = starts[e]
            for i, stride in zip(hypergraph.edge_indices[e], row_strides(hypergraph.edge_shapes[e]), strict=True):
                if i in block:
                    step[b, f, :count] += stride * codes[block.index(i)]
                else:
                    outside[b * num_factors + f].append((i, stride))

    def there(values: np.ndarray, kind: torch.dtype = torch.long) -> torch.Tensor:
        return torch.from_numpy(values).to(device, kind)

    return Update(
        _places(start.reshape(-1).tolist(), outside, dtype, device),
        there(step, dtype)[..., None, None],
        there(reference),
        None if is_state.all() else there(~is_state, torch.bool)[..., None, None],
        there(state.reshape(size, -1), torch.int32 if max(cards) > 256 else torch.uint8),
        there(np.arange(n) * num_states)[:, None, None],
        there(members),
    )
