"""What the annealed backends of all families share: runs, gradient, verdict and warning."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from ..core.partition import Cost, LogPartition
from ..errors import ConvergenceWarning
from .annealable import AnnealedModel, Run
from .autograd import log_z_with_eta
from .options import AnnealingOptions
from .runs import derived, drawn_seed, forward, reverse
from .verdict import estimate_of, judged, rows

__all__ = ["AnnealedBackend"]

_STREAM = 1000  # apart are the random streams of two models of a call


@dataclass(frozen=True)
class AnnealedBackend(AnnealingOptions):
    """Annealed importance sampling by the engine, for a family that gives :class:`AnnealedModel`."""

    _remedies: ClassVar[str] = "use more temperatures or resampling"

    @property
    def is_exact(self) -> bool:
        """Always false: results are random estimates."""
        return False

    def _forward(self, models: Sequence[AnnealedModel]) -> list[Run]:
        """One forward run for each model; without a seed in the options a fresh one is drawn."""
        seed = drawn_seed(None) if self.seed is None else self.seed
        return [forward(model, derived(seed, i * _STREAM)) for i, model in enumerate(models)]

    def _weighted(self, models: Sequence[AnnealedModel]) -> list[Run]:
        """Forward runs, with a warning where their weights are degenerate."""
        found = self._forward(models)
        if not all(bool(estimate_of(self, rows(run.log_weights)).is_reliable.all()) for run in found):
            self._warn()
        return found

    def _estimated(
        self,
        models: Sequence[AnnealedModel],
        parameters: torch.Tensor,
        cost: Cost,
        slope: Callable[[Sequence[Run]], torch.Tensor],
    ) -> LogPartition:
        """Log Z of all models together, differentiable in parameters (*batch, num_terms) with the slope of the runs."""
        differentiable = torch.is_grad_enabled() and parameters.requires_grad
        found = self._forward(models)
        slopes = slope(found) if differentiable else None
        wanted = self.combine or (not differentiable if self.reverse == "auto" else self.reverse)
        like = parameters.detach().new_zeros(parameters.shape[:-1])
        result = judged(found, [reverse(run) for run in found] if wanted else None, like, cost)
        if slopes is not None:
            result = replace(result, value=log_z_with_eta(parameters, result.value, slopes))
        if result.verdict == "unreliable":
            self._warn()
        return result

    def _warn(self) -> None:
        hint = f"see the notes of log_partition; {self._remedies}, or an exact backend with a larger budget"
        warning = ConvergenceWarning("the estimate is unreliable", argument=type(self).__name__, hint=hint)
        warnings.warn(warning, stacklevel=4)
