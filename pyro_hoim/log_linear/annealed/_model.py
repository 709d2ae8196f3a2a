"""Log-linear models as annealed runs see them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ...annealing.annealable import Run, Traits
from ...annealing.mode_checks import ModeRuns, Modes
from ...annealing.options import AnnealingOptions
from ...annealing.runs import derived
from ...core.certificate import state_text
from ..chains.gibbs import GibbsChains
from ..energy import LogLinearEnergy
from ..exact import perfect
from ._search import ascend
from .reference import fitted, reference_normaliser


class AnnealedChains(GibbsChains):
    """Chains whose energies are whole."""

    @property
    def log_q(self) -> torch.Tensor:
        return -self.energy


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
