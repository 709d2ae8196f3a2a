"""Settings of a posterior within a study."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..inference.kernels import NUTSSettings
from ..log_linear.named_priors import Prior

__all__ = ["PosteriorSettings"]


@dataclass(frozen=True)
class PosteriorSettings(NUTSSettings):
    """How posteriors are sampled: :class:`~pyro_hoim.inference.NUTSSettings`, by default 500 transitions of burn-in.

    Attributes:
        prior: of the free parameters; any but ``none``.
    """

    burn_in: int | None = 500
    prior: Prior = field(default_factory=lambda: Prior("normal", 1.0))
