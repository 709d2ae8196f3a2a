"""Search for states of high probability of a log-linear model, and annealed runs that begin around them. Private."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from ...annealing.mode_checks import ModeRuns, hamming, pick_modes
from ...annealing.start_rows import rows_for
from ...annealing.verdict import num_steps
from ...runs.schedule import GibbsSchedule
from ...structure.hypergraph import InteractionHypergraph
from ..chains.gibbs import GibbsChains
from . import _runs as annealed_runs
from .reference import reference_normaliser

if TYPE_CHECKING:
    from ...annealing.mode_checks import Modes
    from ...annealing.start_rows import Rows
    from .importance import AnnealedImportance

Codes = NDArray[np.int64]

_STARTS = 256  # of the ascents, at most
_STRONGEST = 16  # interactions whose best cells ascents begin with
_GREEDY = 2  # of these, starts that go on with the next strongest
_SWEEPS = 12  # of an ascent
_COLD = 1000.0  # inverse temperature that leaves nothing to chance
_BLOCK_STARTS = 32  # best states that moves of whole interactions begin with
_BLOCK_SWEEPS = 3
_BLOCK_SHARE = 0.1  # of the look-ups of the forward run that these may take
_BLOCK_STATES = 256  # of one block
_MODES = 16  # told apart
_RUNS = 4  # of them with runs of their own
_FEWEST = 64  # chains of such a run, where there are as many


def ascend(options: AnnealedImportance, run: annealed_runs.Run) -> tuple[torch.Tensor, torch.Tensor]:
    """States (*batch, n, d) at which ascents ended, and their log q (*batch, n).

    They start from chain ends, from overdispersed random states, from the best cells of the strongest interactions, and
    from the rows of the options, which are among the states.
    """
    model, count = run.model, min(_STARTS, max(_FEWEST, options.num_chains))
    batch, d = model.tables.shape[:-1], len(model.hypergraph.domain)
    if not d or not batch.numel():
        return run.ends, run.log_q
    random = np.random.default_rng(annealed_runs.derived(run.seed, 7))
    starts = _starts(run, count, random)
    found, rows = [_searched(options, run, starts)], rows_of(options, model.hypergraph)
    if rows is not None:
        rows = rows.to(model.tables.device).expand(*batch, -1, -1)
        found += [_climbed(options, run, rows, GibbsSchedule(), 0), _searched(options, run, rows)]
    states, log_q = zip(*found, strict=True)
    return torch.cat(states, -2), torch.cat(log_q, -1)


def rows_of(options: AnnealedImportance, graph: InteractionHypergraph) -> torch.Tensor | None:
    """The rows to start from (n, d), where there are any.

    Raises:
        InputError: they are no states of the model.
    """
    if options.starts is None:
        return None
    return rows_for(cast("Rows", options.starts), [k - 1 for k in graph.domain.cardinalities], "AnnealedImportance")


def _searched(
    options: AnnealedImportance, run: annealed_runs.Run, starts: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """States (*batch, n, d) and their log q (*batch, n) after moves of single variables.

    From the best of them whole interactions move as well, where that is cheap; these states are added.
    """
    batch, (count, d) = starts.shape[:-2], starts.shape[-2:]
    states, log_q = _climbed(options, run, starts, GibbsSchedule(), _SWEEPS)
    blocks = _block_schedule(options, run.model.hypergraph, min(_BLOCK_STARTS, count))
    if blocks is None:
        return states, log_q
    best = log_q.argsort(-1, descending=True)[..., :_BLOCK_STARTS, None].expand(*batch, -1, d)
    more, higher = _climbed(options, run, states.gather(-2, best), blocks, _BLOCK_SWEEPS)
    return torch.cat([states, more], -2), torch.cat([log_q, higher], -1)


def _climbed(
    options: AnnealedImportance, run: annealed_runs.Run, starts: torch.Tensor, schedule: GibbsSchedule, sweeps: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """States (*batch, n, d) after sweeps at an inverse temperature near infinity, and their log q (*batch, n)."""
    model = run.model
    cold = annealed_runs.Plain(model.hypergraph, model.tables.double() * _COLD)
    chains = GibbsChains(
        cold,
        starts.shape[-2],
        schedule=schedule,
        init=starts,
        seed=annealed_runs.derived(run.seed, 8),
        engine=options.engine,
    )
    chains.sweep(sweeps)
    return chains.codes, -chains.energy / _COLD


def _starts(run: annealed_runs.Run, count: int, random: np.random.Generator) -> torch.Tensor:
    """Where ascents begin, (*batch, count, d)."""
    model = run.model
    cards = np.array(model.hypergraph.domain.cardinalities, dtype=np.int64)
    batch = model.tables.shape[:-1]
    shape = (batch.numel(), count, len(cards))
    level = np.where(random.random(shape) < random.random((*shape[:2], 1)) ** 2, random.random((*shape[:2], 1)), 2.0)
    level = np.where(level > 1, random.random(shape), level)
    states = np.minimum((level * cards).astype(np.int64), cards - 1)
    ends = run.ends.reshape(shape[0], run.ends.shape[-2], shape[2])
    last = run.log_q.reshape(ends.shape[:2]).argsort(-1, descending=True)[:, : count // 4, None]
    ends = ends.gather(1, last.expand(-1, -1, shape[2])).cpu().numpy()
    states[:, : ends.shape[1]] = ends
    _put_strongest(model, states[:, ends.shape[1] :])
    return torch.from_numpy(states).reshape(*batch, count, shape[2]).to(model.tables.device)


def _put_strongest(model: annealed_runs.Plain, states: Codes) -> None:
    """Give the first of the states (B, n, d) the best cells of the strongest interactions."""
    graph = model.hypergraph
    tables = model.tables.reshape(len(states), model.tables.shape[-1]).cpu().numpy()
    pieces, several, first = _pieces(graph)
    if not several or not len(tables):
        return
    strength = (np.maximum.reduceat(tables, first, -1) - np.minimum.reduceat(tables, first, -1)).max(0)
    order = sorted(several, key=lambda i: -strength[i])
    strongest = order[:_STRONGEST]
    for k, edge in enumerate(strongest[: states.shape[1]]):
        is_free = np.ones(states.shape[-1], dtype=bool)
        path = [edge, *(i for i in order if i != edge)] if k < _GREEDY else [edge]
        for i in path:
            members = list(graph.edge_indices[i])
            if is_free[members].any():
                _put_cell(tables[:, pieces[i]], graph.edge_shapes[i], members, is_free, states[:, k])
                is_free[members] = False
            if not is_free.any():
                break


@lru_cache(maxsize=64)
def _pieces(graph: InteractionHypergraph) -> tuple[list[slice], list[int], Codes]:
    """Where the table of every interaction is, the interactions of several variables, and first places."""
    pieces = [graph.term_slices[edge] for edge in graph.edges]
    several = [i for i, edge in enumerate(graph.edge_indices) if len(edge) > 1]
    return pieces, several, np.array([piece.start for piece in pieces], dtype=np.int64)


def _put_cell(
    table: NDArray[np.floating], shape: tuple[int, ...], members: list[int], is_free: NDArray[np.bool_], states: Codes
) -> None:
    """Give the free members of an interaction, in states (B, d), its best cell that agrees with the others."""
    cells = _cells(shape)
    if is_free[members].all():
        states[:, members] = cells[table.argmax(-1)]
        return
    agree = np.ones((len(states), len(cells)), dtype=bool)
    for place, variable in enumerate(members):
        if not is_free[variable]:
            agree &= cells[:, place] == states[:, variable, None]
    states[:, members] = cells[np.where(agree, table, -math.inf).argmax(-1)]


@lru_cache(maxsize=64)
def _cells(shape: tuple[int, ...]) -> Codes:
    return np.stack(np.unravel_index(np.arange(math.prod(shape)), shape), -1).astype(np.int64)


@lru_cache(maxsize=256)
def _block_schedule(options: AnnealedImportance, graph: InteractionHypergraph, count: int) -> GibbsSchedule | None:
    """The schedule of whole interactions, or None where it takes too long."""
    cards = graph.domain.cardinalities
    touching = [0] * len(cards)
    for edge in graph.edge_indices:
        for i in edge:
            touching[i] += 1
    work = 0
    for block in graph.blocks():
        members = graph.domain.indices(block)
        cells = math.prod(cards[i] for i in members)
        if cells > _BLOCK_STATES:
            return None
        work += cells * sum(touching[i] for i in members)
    steps = options.num_chains * num_steps(options) * options.sweeps_per_step
    forward = steps * sum(levels * number for levels, number in zip(cards, touching, strict=True))
    return GibbsSchedule("interactions") if work * count * _BLOCK_SWEEPS < _BLOCK_SHARE * forward else None


def found_modes(states: torch.Tensor, log_q: torch.Tensor) -> Modes:
    """Modes among states (*batch, n, d) with log q (*batch, n)."""
    flat = states.reshape(-1, *states.shape[-2:]).cpu().numpy()
    return pick_modes(flat, log_q.reshape(len(flat), -1).cpu().numpy(), _MODES, hamming)


def mode_runs(options: AnnealedImportance, run: annealed_runs.Run, modes: Modes) -> ModeRuns:
    """Chains of the model at the best modes, and forward runs from product laws fitted to them."""
    model = run.model
    size = max(1, min(_RUNS, len(modes.states), options.num_chains // _FEWEST))
    count = options.num_chains // size
    rows = model.tables.shape[:-1].numel()
    tables = model.tables.reshape(rows, -1).expand(size, rows, -1)
    many = annealed_runs.Plain(model.hypergraph, tables)
    start = torch.from_numpy(modes.states[:size]).to(tables.device)[:, :, None].expand(-1, -1, count, -1)
    seeds = [annealed_runs.derived(run.seed, purpose) for purpose in (9, 10)]
    common: dict[str, Any] = {"schedule": options.schedule, "engine": options.engine, "precision": options.precision}
    chains = GibbsChains(many, count, init=start, seed=seeds[0], **common)
    chains.sweep(options.burn_in)
    local, local_log_q = chains.codes, -chains.energy
    reference, entropy = _fitted(model.hypergraph, local)
    chains = GibbsChains(many, count, reference=reference, seed=seeds[1], **common)
    log_z0 = reference_normaliser(model.hypergraph, reference)
    log_weights = chains.anneal(run.betas, options.sweeps_per_step) + log_z0[..., None]
    parts = (local, local_log_q, entropy, log_weights, chains.codes)
    return ModeRuns(*(part.cpu().numpy() for part in parts))


def _fitted(graph: InteractionHypergraph, codes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Log weights (..., sum of cardinalities) of the product law of states (..., m, d), and its entropy (...)."""
    cards, count = graph.domain.cardinalities, codes.shape[-2]
    parts, entropy = list[torch.Tensor](), codes.new_zeros(codes.shape[:-2], dtype=torch.float64)
    for levels in sorted(set(cards)):
        at = [i for i, number in enumerate(cards) if number == levels]
        shares = torch.stack([(codes[..., at] == k).sum(-2) for k in range(levels)], -1).double()
        shares = (shares + 1 / levels) / (count + 1)
        entropy = entropy - (shares * shares.log()).sum((-2, -1))
        parts.append(shares.log().flatten(-2))
    order = np.concatenate([np.zeros(0, dtype=np.int64), *_columns(cards)]).argsort()
    return torch.cat(parts, -1)[..., torch.from_numpy(order).to(codes.device)], entropy


def _columns(cards: tuple[int, ...]) -> list[Codes]:
    """Place in the reference of every log weight, in the order of :func:`_fitted`."""
    first = np.cumsum((0, *cards))[:-1]
    return [
        np.concatenate([first[i] + np.arange(levels) for i, number in enumerate(cards) if number == levels])
        for levels in sorted(set(cards))
    ]
