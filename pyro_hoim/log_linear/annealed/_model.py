"""Log-linear models as annealed runs see them, and the search for their states of high probability."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ...annealing.annealable import Run, Traits
from ...annealing.mode_checks import ModeRuns, Modes
from ...annealing.options import AnnealingOptions
from ...annealing.runs import derived
from ...core.certificate import state_text
from ...runs.schedule import GibbsSchedule
from ...structure.hypergraph import InteractionHypergraph
from ..chains.gibbs import EngineName, GibbsChains
from ..energy import LogLinearEnergy
from ..exact import perfect
from .reference import fitted, reference_normaliser

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
_FEWEST = 64  # starts, where there are as many chains


class AnnealedChains(GibbsChains):
    """Chains whose energies, at both ends of a path, are whole."""

    @property
    def log_q(self) -> torch.Tensor:
        return -self.energy

    @property
    def slope(self) -> torch.Tensor:
        return self.reference_energy - self.energy


@dataclass(frozen=True)
class AnnealedLogLinear:
    """Tables (B, num_terms) without a graph, log weights of the reference law (B, levels) or (levels,).

    ``own`` are arguments of all chains: schedule, engine, precision.
    """

    energy: LogLinearEnergy
    reference: torch.Tensor
    options: AnnealingOptions
    traits: Traits
    own: dict[str, Any]

    @property
    def log_z0(self) -> torch.Tensor:
        return reference_normaliser(self.energy.hypergraph, self.reference).expand(self.energy.batch_shape)

    def begin(self, num_chains: int, seed: int) -> AnnealedChains:
        return AnnealedChains(self.energy, num_chains, reference=self.reference, seed=seed, **self.own)

    def perfect_states(self, seed: int) -> torch.Tensor | None:
        exact = perfect.perfect_backend(self.energy.hypergraph)
        if exact is None:
            return None
        random = torch.Generator(self.energy.device).manual_seed(seed)
        return exact.sample(self.energy, (self.options.num_chains,), random).movedim(0, -2)

    def ascend(self, run: Run) -> tuple[torch.Tensor, torch.Tensor]:
        return ascend(self.energy, run, self.own["engine"])

    def mode_runs(self, run: Run, modes: Modes, size: tuple[int, int]) -> ModeRuns:
        graph, options, (number, count) = self.energy.hypergraph, self.options, size
        many = self.energy.expand((number, *self.energy.batch_shape))
        start = torch.from_numpy(modes.states[:number]).to(many.device)[:, :, None].expand(-1, -1, count, -1)
        chains = AnnealedChains(many, count, init=start, seed=derived(run.seed, 9), **self.own)
        chains.sweep(options.burn_in)
        local, local_log_q = chains.states, chains.log_q
        reference, entropy = fitted(graph, local)
        chains = AnnealedChains(many, count, reference=reference, seed=derived(run.seed, 10), **self.own)
        log_z0 = reference_normaliser(graph, reference)
        log_weights = chains.anneal(run.betas, options.sweeps_per_step) + log_z0[..., None]
        parts = (local, local_log_q, entropy, log_weights, chains.states)
        return ModeRuns(*(part.cpu().numpy() for part in parts))

    def describe(self, state: NDArray[np.generic]) -> str:
        domain = self.energy.domain
        return state_text(domain.names, [v.labels[int(i)] for v, i in zip(domain, state, strict=True)])


def ascend(model: LogLinearEnergy, run: Run, engine: EngineName) -> tuple[torch.Tensor, torch.Tensor]:
    """States (B, n, d) at which ascents ended, and their log q (B, n).

    They start from chain ends, from overdispersed random states, from the best cells of the strongest interactions, and
    from the rows of the options, which are among the states.
    """
    options, graph = run.model.options, model.hypergraph
    if not len(graph.domain) or not len(model.tables):
        return run.ends, run.log_q
    cold = LogLinearEnergy(graph, model.tables.double() * _COLD, validate=False)
    steps = options.num_chains * options.num_steps * options.sweeps_per_step

    def climbed(starts: torch.Tensor, schedule: GibbsSchedule, sweeps: int) -> tuple[torch.Tensor, torch.Tensor]:
        """States and log q after sweeps at an inverse temperature near infinity."""
        seed = derived(run.seed, 8)
        chains = GibbsChains(cold, starts.shape[-2], schedule=schedule, init=starts, seed=seed, engine=engine)
        chains.sweep(sweeps)
        return chains.states, -chains.energy / _COLD

    def searched(starts: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """After moves of single variables, and from the best of these after moves of interactions, where cheap."""
        states, log_q = climbed(starts, GibbsSchedule(), _SWEEPS)
        if not _is_cheap(graph, steps, min(_BLOCK_STARTS, starts.shape[-2])):
            return [(states, log_q)]
        best = log_q.argsort(-1, descending=True)[..., :_BLOCK_STARTS, None].expand(-1, -1, states.shape[-1])
        return [(states, log_q), climbed(states.gather(-2, best), GibbsSchedule("interactions"), _BLOCK_SWEEPS)]

    found = searched(_starts(model, run, min(_STARTS, max(_FEWEST, options.num_chains))))
    rows = options.rows_within([k - 1 for k in graph.domain.cardinalities])
    if rows is not None:
        rows = rows.to(model.device).expand(len(model.tables), -1, -1)
        found += [climbed(rows, GibbsSchedule(), 0), *searched(rows)]
    return torch.cat([states for states, _ in found], -2), torch.cat([log_q for _, log_q in found], -1)


def _starts(model: LogLinearEnergy, run: Run, count: int) -> torch.Tensor:
    """Where ascents begin, (B, count, d)."""
    random = np.random.default_rng(derived(run.seed, 7))
    cards = np.array(model.domain.cardinalities, dtype=np.int64)
    shape = (len(run.ends), count, len(cards))
    level = np.where(random.random(shape) < random.random((*shape[:2], 1)) ** 2, random.random((*shape[:2], 1)), 2.0)
    level = np.where(level > 1, random.random(shape), level)
    states = np.minimum((level * cards).astype(np.int64), cards - 1)
    last = run.log_q.argsort(-1, descending=True)[:, : count // 4, None]
    ends = run.ends.gather(1, last.expand(-1, -1, shape[2])).cpu().numpy()
    states[:, : ends.shape[1]] = ends
    _put_strongest(model, states[:, ends.shape[1] :])
    return torch.from_numpy(states).to(model.device)


def _put_strongest(model: LogLinearEnergy, states: Codes) -> None:
    """Give the first of the states (B, n, d) the best cells of the strongest interactions."""
    graph = model.hypergraph
    tables = model.tables.cpu().numpy()
    several = [i for i, edge in enumerate(graph.edge_indices) if len(edge) > 1]
    if not several or not len(tables):
        return
    pieces = list(graph.term_slices.values())
    first = [piece.start for piece in pieces]
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


def _put_cell(
    table: NDArray[np.floating], shape: tuple[int, ...], members: list[int], is_free: NDArray[np.bool_], states: Codes
) -> None:
    """Give the free members of an interaction, in states (B, d), its best cell that agrees with the others."""
    cells = _cells(shape)
    agree = np.ones((len(states), len(cells)), dtype=bool)
    for place, variable in enumerate(members):
        if not is_free[variable]:
            agree &= cells[:, place] == states[:, variable, None]
    states[:, members] = cells[np.where(agree, table, -math.inf).argmax(-1)]


@lru_cache(maxsize=64)
def _cells(shape: tuple[int, ...]) -> Codes:
    return np.stack(np.unravel_index(np.arange(math.prod(shape)), shape), -1).astype(np.int64)


@lru_cache(maxsize=256)
def _is_cheap(graph: InteractionHypergraph, steps: int, count: int) -> bool:
    """Whether moves of whole interactions take few look-ups against so many sweeps of a forward run."""
    cards = graph.domain.cardinalities
    touching = [len(edges) for edges in graph.incident]
    work = 0
    for block in graph.blocks():
        members = graph.domain.indices(block)
        cells = math.prod(cards[i] for i in members)
        if cells > _BLOCK_STATES:
            return False
        work += cells * sum(touching[i] for i in members)
    forward = steps * sum(levels * number for levels, number in zip(cards, touching, strict=True))
    return work * count * _BLOCK_SWEEPS < _BLOCK_SHARE * forward
