"""Forward and reverse runs of annealed importance sampling over generalized root models."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

import torch

from ...annealing import runs as annealing
from ...annealing.seeds import derived, drawn_seed
from ...errors import IntractableError, out_of_reach
from ..chains.draws import draw_from_nodes, independent_log_partition
from ..chains.gibbs import RootChains
from ..energy import GeneralizedRootEnergy
from ..exact.closed_form import GaussianClosedForm
from ..exact.enumeration import RootEnumeration
from ..nodes.log_partition import node_log_partition

if TYPE_CHECKING:
    from .importance import RootAnnealed

_TEMPERED = 4  # temperatures of the run that stands in for perfect samples, per temperature of the estimate
_PERFECT_CELLS = 2**18  # of a table from which perfect samples are drawn
_STREAM = 1000  # apart are the random streams of two elements of a batch


class Annealer:
    r"""Chains of one model, from the independent member on, in the form that the runs of ``runs`` move.

    The path of unnormalised laws is :math:`q_0(x) \exp(\beta U(x))` with U the terms of two or more variables. With
    other natural parameters ``single`` (d, k) for the independent member, these turn into the model's along the path.
    """

    def __init__(
        self, energy: GeneralizedRootEnergy, num_chains: int, seed: int, single: torch.Tensor | None = None
    ) -> None:
        random = torch.Generator().manual_seed(seed)
        start = None
        if single is not None:
            single = single.detach().cpu().double()
            start = draw_from_nodes(energy.family, single.expand(num_chains, -1, -1), generator=random)
        self.chains = RootChains(energy, num_chains, start=start, generator=random, check=False)
        self._single, self._own = single, self.chains.single_terms

    @property
    def log_z0(self) -> float:
        """Log Z of the independent member that the path begins with."""
        natural = self._own if self._single is None else self._single
        return float(node_log_partition(self.chains.energy.family, natural).sum())

    @property
    def energy(self) -> torch.Tensor:
        """Minus log q at beta 1, up to what both ends of the path share (chains,)."""
        return -self.chains.interaction_score()

    @property
    def reference_energy(self) -> torch.Tensor:
        """Minus log q at beta 0, up to the same (chains,)."""
        return torch.zeros(self.chains.num_chains, dtype=torch.float64)

    def anneal(
        self, betas: torch.Tensor | Sequence[float], sweeps: int = 1, *, reverse_order: bool = False
    ) -> torch.Tensor:
        """Log weights (chains,) of a path of temperatures, each change followed by sweeps."""
        total = torch.zeros(self.chains.num_chains, dtype=torch.float64)
        for before, beta in itertools.pairwise(torch.as_tensor(betas, dtype=torch.float64).tolist()):
            total += (beta - before) * (self.chains.interaction_score() + self._single_score())
            if self._single is not None:
                self.chains.set_single_terms(torch.lerp(self._single, self._own, beta))
            self.chains.sweep(sweeps, beta, reverse_order=reverse_order)
        return total

    def _single_score(self) -> torch.Tensor | float:
        """What changes with beta in the terms of single variables (chains,)."""
        if self._single is None:
            return 0.0
        family, states = self.chains.energy.family, self.chains.states.cpu().double()
        change = self._own - self._single
        return sum((family.root(states, j + 1) @ change[:, j] for j in range(change.shape[1])), torch.tensor(0.0))

    def gather(self, index: torch.Tensor) -> None:
        """Replace the states of the chains by those of the chains named (chains,)."""
        self.chains.set_states(self.chains.states[index])

    def set_codes(self, states: torch.Tensor) -> None:
        """Replace all states (chains, d)."""
        self.chains.set_states(states)


@dataclass(frozen=True)
class AnnealedRun:
    """A forward run of one model: chains, states at its end (chains, d), log weights (chains,), log Z0, path, seed."""

    energy: GeneralizedRootEnergy
    annealer: Annealer
    ends: torch.Tensor
    log_weights: torch.Tensor
    log_z0: float
    betas: torch.Tensor
    seed: int

    @property
    def shares(self) -> torch.Tensor:
        """Normalised weights (chains,)."""
        return torch.softmax(self.log_weights, -1)

    def expectations(self) -> torch.Tensor:
        """Self-normalised means of the statistics of all terms (num_terms,)."""
        return self.shares @ self.energy.statistics(self.annealer.chains.states, validate=False)

    def moments(self) -> torch.Tensor:
        """Self-normalised means and variances of the variables (2, d)."""
        states = self.annealer.chains.states
        mean = self.shares @ states
        return torch.stack([mean, self.shares @ (states - mean).square()])


def path_of(options: RootAnnealed, energy: GeneralizedRootEnergy, seed: int) -> torch.Tensor:
    """Inverse temperatures (steps + 1,): those given, or those that a pilot run finds."""
    if options.temperatures is None:
        return torch.linspace(0, 1, options.num_temperatures + 1, dtype=torch.float64)
    if not isinstance(options.temperatures, str):
        return torch.tensor(options.temperatures, dtype=torch.float64)
    pilot = Annealer(energy, options.num_chains, derived(seed, 2))
    random = torch.Generator().manual_seed(derived(seed, 3))
    return annealing.adaptive_path(pilot, options.conditional_ess, options.sweeps_per_step, random)


def forward(options: RootAnnealed, energies: Sequence[GeneralizedRootEnergy]) -> list[AnnealedRun]:
    """One forward run for each model; without a seed in the options a fresh one is drawn."""
    seed = drawn_seed(None) if options.seed is None else options.seed
    runs: list[AnnealedRun] = []
    for row, energy in enumerate(energies):
        own = derived(seed, row * _STREAM)
        betas = path_of(options, energy, own)
        annealer = Annealer(energy, options.num_chains, own)
        log_weights = annealing.forward_run(
            annealer,
            betas,
            options.sweeps_per_step,
            islands=options.islands,
            below=options.resample_below,
            generator=torch.Generator().manual_seed(derived(own, 1)),
            progress=options.progress,
        )
        runs.append(
            AnnealedRun(
                energy,
                annealer,
                annealer.chains.states,
                log_weights,
                float(independent_log_partition(energy)),
                betas,
                own,
            )
        )
    return runs


class RootReverse(NamedTuple):
    """Log weights (chains,) of a reverse run, where it started (chains, d), and how that was drawn."""

    log_weights: torch.Tensor
    states: torch.Tensor
    start: Literal["exact", "tempered"]


def reverse(options: RootAnnealed, run: AnnealedRun) -> RootReverse:
    """A reverse run, which takes over the chains of the forward run.

    Raises:
        IntractableError: both runs are to be combined and there are no perfect samples.
    """
    random = torch.Generator().manual_seed(derived(run.seed, 4))
    states = _perfect_states(run.energy, options.num_chains, random)
    start: Literal["exact", "tempered"] = "tempered" if states is None else "exact"
    if states is None:
        if options.combine:
            problem = "needs perfect samples, which the closed form and enumeration cannot give for this model"
            raise out_of_reach("RootAnnealed combine", problem, "use combine=False", code="no-method")
        states = _tempered_states(options, run)
    run.annealer.set_codes(states)
    log_weights = run.annealer.anneal(run.betas.flip(0), options.sweeps_per_step, reverse_order=True)
    return RootReverse(log_weights, states, start)


def _perfect_states(energy: GeneralizedRootEnergy, number: int, random: torch.Generator) -> torch.Tensor | None:
    """Independent states (number, d) of a model within quick reach of an exact method, or None."""
    closed = GaussianClosedForm(allow_undecided=True)
    if closed.plan(energy.structure, energy.family).feasible:
        return closed.sample(energy, (number,), random)
    listed = RootEnumeration(max_cells=_PERFECT_CELLS, allow_undecided=True)
    if energy.family.is_discrete and listed.plan(energy.structure, energy.family).feasible:
        try:
            return listed.sample(energy, (number,), random)
        except IntractableError:  # wide windows
            return None
    return None


def _tempered_states(options: RootAnnealed, run: AnnealedRun) -> torch.Tensor:
    """States (chains, d) of a longer annealed run, resampled by weight and moved on at beta 1."""
    annealer = Annealer(run.energy, options.num_chains, derived(run.seed, 5))
    parts = torch.arange(_TEMPERED, dtype=torch.float64) / _TEMPERED
    steps = run.betas[:-1, None] + run.betas.diff()[:, None] * parts
    log_weights = annealer.anneal(torch.cat([steps.reshape(-1), run.betas[-1:]]), options.sweeps_per_step)
    random = torch.Generator().manual_seed(derived(run.seed, 6))
    annealer.gather(annealing.resampled(log_weights, 1, 1.0, random)[0])
    annealer.chains.sweep(options.burn_in)
    return annealer.chains.states
