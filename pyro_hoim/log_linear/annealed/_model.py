"""Log-linear models as annealed runs see them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ...annealing.annealable import Run, Traits
from ...annealing.mode_checks import THIN, ModeRuns
from ...annealing.options import AnnealingOptions
from ...annealing.runs import derived
from ...core.certificate import state_text
from ..chains.gibbs import GibbsChains
from ..energy import LogLinearEnergy
from ..exact import perfect
from ._search import ascend
from .reference import ProductLaws, fitted, reference_normaliser

Numbers = NDArray[np.generic]


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

    def moved(
        self, run: Run, starts: Numbers, sweeps: int, looks: int, stream: int
    ) -> tuple[Numbers, NDArray[np.float64]]:
        init = torch.from_numpy(starts).to(self.energy.device)
        seed = derived(run.seed, 20 + stream)
        chains = AnnealedChains(self.energy, starts.shape[-2], init=init, seed=seed, **self.own)
        states, log_q = list[Numbers](), list[NDArray[np.float64]]()
        for look in range(looks):
            chains.sweep(THIN if look else sweeps)
            states.append(chains.states.cpu().numpy())
            log_q.append(chains.log_q.cpu().numpy())
        return np.stack(states), np.stack(log_q)

    def fitted(self, states: Numbers) -> ProductLaws:
        return ProductLaws.of(self.energy.hypergraph, states)

    def mode_runs(self, run: Run, starts: Numbers) -> ModeRuns:
        graph, options = self.energy.hypergraph, self.options
        many, count = self.energy.expand((len(starts), *self.energy.batch_shape)), starts.shape[-2]
        init = torch.from_numpy(starts).to(many.device)
        chains = AnnealedChains(many, count, init=init, seed=derived(run.seed, 9), **self.own)
        chains.sweep(options.burn_in)
        reference = fitted(graph, chains.states)
        chains = AnnealedChains(many, count, reference=reference, seed=derived(run.seed, 10), **self.own)
        log_z0 = reference_normaliser(graph, reference)
        log_weights = chains.anneal(run.betas, options.sweeps_per_step) + log_z0[..., None]
        return ModeRuns(*(part.cpu().numpy() for part in (log_weights, chains.states, chains.log_q)))

    def describe(self, state: NDArray[np.generic]) -> str:
        domain = self.energy.domain
        return state_text(domain.names, [v.labels[int(i)] for v, i in zip(domain, state, strict=True)])
