"""Settings of a posterior within a study."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..errors import check_whole
from ..inference.kernels import NUTSSettings
from ..log_linear.named_priors import Prior

__all__ = ["PosteriorSettings"]


@dataclass(frozen=True)
class PosteriorSettings(NUTSSettings):
    """How posteriors are sampled: :class:`~pyro_hoim.inference.NUTSSettings`, by default 500 transitions of burn-in.

    Attributes:
        prior: of the free parameters; any but ``none``.
        jobs: chains at a time; beyond one, each is drawn in a process of its own. None takes one per core where the
            chains have 4,000 transitions or more together, and one elsewhere.
    """

    burn_in: int | None = 500
    prior: Prior = field(default_factory=lambda: Prior("normal", 1.0))
    jobs: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.jobs is not None:
            check_whole(self.jobs, "jobs")
