"""Search for probable states of a root model of counts, and annealed runs that begin around them. Private."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np
import torch

from ...annealing.mode_checks import ModeRuns, Modes, pick_modes, root_distance
from ...annealing.start_rows import rows_for
from ...errors import refused
from ..energy import GeneralizedRootEnergy
from ..nodes.log_partition import node_log_partition
from ._runs import AnnealedRun, Annealer, derived

if TYPE_CHECKING:
    from ...annealing.start_rows import Rows
    from .importance import RootAnnealed

_ENDS = 16  # chain ends that ascents begin with, and as many rows
_LARGEST = 2**14  # count that all variables start from together
_ROUNDS = 6  # of an ascent
_NEAR = 3  # counts up and down that a move looks at
_MODES = 8  # told apart
_RUNS = 4  # of them with runs of their own
_FEWEST = 64  # chains of such a run, where there are as many


def rows_of(options: RootAnnealed, energy: GeneralizedRootEnergy) -> torch.Tensor | None:
    """The rows to start from (n, d), float64, where there are any.

    Raises:
        InputError: they are no states of the model, or the model is one of densities.
    """
    if options.starts is None:
        return None
    if not energy.family.is_discrete:
        problem = "densities bound nothing, so that rows help with counts only"
        raise refused("RootAnnealed starts", problem, "leave them out")
    largest = [energy.family.largest_value] * len(energy.domain)
    return rows_for(cast("Rows", options.starts), largest, "RootAnnealed").double()


def climbed_counts(run: AnnealedRun, rows: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """States (n, d) at which ascents in one variable at a time ended, and their log q (n,).

    They start from chain ends, from states with all counts alike, on a geometric grid, and from the best of the rows
    (m, d), all of which are among the states.
    """
    energy = run.energy
    largest = min(energy.family.largest_value, float(_LARGEST))
    levels = torch.tensor([0.0, *(2.0**k for k in range(15) if 2.0**k <= largest)], dtype=torch.float64)
    seen = run.ends[:0] if rows is None else rows
    best, better = (energy.energy(part, validate=False).argsort()[:_ENDS] for part in (run.ends, seen))
    states = torch.cat([run.ends[best], levels[:, None].expand(-1, run.ends.shape[-1]), seen[better]]).clone()
    grid = torch.unique(torch.cat([levels, (1.5 * levels).floor()]))
    for round_number in range(_ROUNDS):
        before = states.clone()
        for s in range(states.shape[-1]):
            natural = energy.node_natural(states, validate=False)[:, s]
            steps = torch.arange(-_NEAR, _NEAR + 1, dtype=torch.float64)
            tried = states[:, s, None] + steps
            if round_number % 2 == 0:
                tried = torch.cat([tried, grid.expand(len(states), -1)], 1)
            tried = tried.clamp(0, energy.family.largest_value)
            score = energy.family.log_base(tried)
            for j in range(1, energy.order + 1):
                score = score + natural[:, None, j - 1] * energy.family.root(tried, j)
            states[:, s] = tried.gather(1, score.argmax(1, keepdim=True))[:, 0]
        if torch.equal(before, states):
            break
    states = torch.cat([states, seen])
    return states, -energy.energy(states, validate=False)


def count_modes(states: torch.Tensor, log_q: torch.Tensor) -> Modes:
    """Modes among states (n, d) with log q (n,), for a batch of one."""
    return pick_modes(states.numpy()[None], log_q.numpy()[None], _MODES, root_distance)


def count_mode_runs(options: RootAnnealed, run: AnnealedRun, modes: Modes) -> ModeRuns:
    """Chains of the model at the best modes, and forward runs from independent members fitted to them."""
    size = max(1, min(_RUNS, len(modes.states), options.num_chains // _FEWEST))
    count = options.num_chains // size
    parts = [_run_from(options, run, torch.from_numpy(modes.states[k, 0]), count, k) for k in range(size)]
    return ModeRuns(*(np.stack(column)[:, None] for column in zip(*parts, strict=True)))


def _run_from(
    options: RootAnnealed, run: AnnealedRun, mode: torch.Tensor, count: int, number: int
) -> tuple[np.ndarray, ...]:
    """The fields of :class:`ModeRuns` for one mode."""
    energy: GeneralizedRootEnergy = run.energy
    chains = Annealer(energy, count, derived(run.seed, 20 + 2 * number)).chains
    chains.set_states(mode.expand(count, -1))
    chains.sweep(options.burn_in)
    local = chains.states
    natural = energy.node_natural(local, validate=False).mean(0)
    score = energy.family.log_base(local)
    for j in range(1, energy.order + 1):
        score = score + natural[:, j - 1] * energy.family.root(local, j)
    entropy = (node_log_partition(energy.family, natural) - score).sum(-1).mean()
    annealer = Annealer(energy, count, derived(run.seed, 21 + 2 * number), natural)
    log_weights = annealer.anneal(run.betas, options.sweeps_per_step) + annealer.log_z0
    found = (local, -energy.energy(local, validate=False), entropy, log_weights, annealer.chains.states)
    return tuple(part.numpy() for part in found)
