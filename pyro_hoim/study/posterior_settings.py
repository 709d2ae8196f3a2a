"""Settings of a posterior within a study."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..log_linear.named_priors import Prior

__all__ = [
    "PosteriorSettings",
]


@dataclass(frozen=True)
class PosteriorSettings:
    """How posteriors are sampled.

    Attributes:
        num_chains: chains.
        num_draws: draws kept of each.
        num_warmup: transitions before them.
        prior: of the free parameters; any but ``none``.
    """

    num_chains: int = 4
    num_draws: int = 1000
    num_warmup: int = 500
    prior: Prior = field(default_factory=lambda: Prior("normal", 1.0))
