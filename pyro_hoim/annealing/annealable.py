"""What can be annealed: chains on a path of laws, and a model that says how they begin and where to look."""
# ruff: noqa: D102  the methods are described once, in the classes

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from .mode_checks import Distance, Law, ModeRuns
from .options import AnnealingOptions

__all__ = ["Annealable", "AnnealedModel", "Run", "Traits"]


class Annealable(Protocol):
    """Chains on the path; a batch of B models comes first in every shape.

    ``log_q`` (B, chains), nats, is that of the model, ``slope`` (B, chains) log q less log q0. ``states`` and
    ``set_states`` read and replace all states (B, chains, d); ``gather`` gives every chain the state of the chain
    named, index (B, chains). ``sweep`` moves at beta 1. ``anneal`` gives the log weights (B, chains) of a path, each
    change followed by sweeps.
    """

    @property
    def states(self) -> torch.Tensor: ...

    @property
    def log_q(self) -> torch.Tensor: ...

    @property
    def slope(self) -> torch.Tensor: ...

    def sweep(self, num_sweeps: int, /) -> object: ...

    def anneal(
        self, betas: torch.Tensor | Sequence[float], sweeps: int = 1, /, *, reverse_order: bool = False
    ) -> torch.Tensor: ...

    def gather(self, index: torch.Tensor, /) -> None: ...

    def set_states(self, states: torch.Tensor, /) -> None: ...


@dataclass(frozen=True)
class Traits:
    """What the engine has to know of a family."""

    coding: str  # of the models
    advice: str  # what a reader of an unreliable result may try
    distance: Distance  # of two states
    conditional_error: float  # relative error of the probabilities that chains draw from
    cardinalities: tuple[int, ...] | None = None  # levels of every variable; None of counts, which have no end
    is_reversible: bool = True  # whether a reverse run makes the very sweeps of the forward run, in reverse


class AnnealedModel(Protocol):
    """B models of one structure, without a graph, with the options of their runs.

    ``log_z0`` (B,) is log Z, nats, of the reference law from which ``begin`` draws chains. ``perfect_states`` are
    independent states of the models (B, num_chains, d), None where no exact method has them quickly. ``ascend`` gives
    states (B, n, d) at which ascents from the ends of a run and from other starts ended, with their log q (B, n); None
    of densities. ``moved`` moves chains of the model, from states (B, n, d), by ``sweeps``, and gives their states
    (looks, B, n, d) and log q at several looks, four sweeps apart; ``stream`` tells its random numbers from those of
    other calls. ``fitted`` are the product laws of states (J, B, n, d). ``mode_runs`` moves chains on from states
    (K, B, m, d) and makes forward runs from references fitted to these. ``describe`` puts a state (d,) in words.
    """

    @property
    def options(self) -> AnnealingOptions: ...

    @property
    def traits(self) -> Traits: ...

    @property
    def log_z0(self) -> torch.Tensor: ...

    def begin(self, num_chains: int, seed: int) -> Annealable: ...

    def perfect_states(self, seed: int) -> torch.Tensor | None: ...

    def ascend(self, run: Run) -> tuple[torch.Tensor, torch.Tensor] | None: ...

    def moved(
        self, run: Run, starts: NDArray[np.generic], sweeps: int, looks: int, stream: int
    ) -> tuple[NDArray[np.generic], NDArray[np.float64]]: ...

    def fitted(self, states: NDArray[np.generic]) -> Law: ...

    def mode_runs(self, run: Run, starts: NDArray[np.generic]) -> ModeRuns: ...

    def describe(self, state: NDArray[np.generic]) -> str: ...


class Run(NamedTuple):
    """A forward run; a reverse run takes over its chains."""

    model: AnnealedModel
    chains: Annealable
    ends: torch.Tensor  # (B, chains, d)
    log_q: torch.Tensor  # of the ends, (B, chains)
    slope: torch.Tensor  # log q - log q0 of the ends, (B, chains)
    log_weights: torch.Tensor  # (B, chains)
    betas: torch.Tensor  # (steps + 1,)
    seed: int
