"""What annealed runs move: chains on a path of laws, whatever their model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch

__all__ = ["Annealable"]


class Annealable(Protocol):
    """Chains with cached energies at both ends of a path; a batch of parameters comes first in every shape."""

    @property
    def energy(self) -> torch.Tensor:
        """Minus log q at beta 1 (*batch, chains), nats."""
        ...

    @property
    def reference_energy(self) -> torch.Tensor:
        """Minus log q at beta 0 (*batch, chains), nats."""
        ...

    def anneal(
        self, betas: torch.Tensor | Sequence[float], sweeps: int = 1, /, *, reverse_order: bool = False
    ) -> torch.Tensor:
        """Log weights (*batch, chains) of a path of temperatures, each change followed by sweeps."""
        ...

    def gather(self, index: torch.Tensor, /) -> None:
        """Replace the states of the chains by those of the chains named (*batch, chains)."""
        ...

    def set_codes(self, states: torch.Tensor, /) -> None:
        """Replace all states (*batch, chains, d)."""
        ...
