"""What the annealed backends of all families share: runs, gradient, verdict and warning."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch

from ..core.autograd import log_z_with_gradient
from ..core.partition import Cost, LogPartition
from ..errors import ConvergenceWarning, out_of_reach
from .annealable import AnnealedModel, Run
from .options import AnnealingOptions
from .runs import derived, drawn_seed, forward, reverse
from .verdict import estimate_of, judged, rows

__all__ = ["AnnealedBackend", "constant"]

_STREAM = 1000  # apart are the random streams of two models of a call


class _Constant(torch.autograd.Function):  # pyright: ignore[reportUntypedBaseClass]
    """Estimated expectations, which depend on the tables but have no derivative."""

    @staticmethod
    def forward(ctx: Any, tables: torch.Tensor, values: torch.Tensor) -> torch.Tensor:  # noqa: ARG004
        return values.view_as(values)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None]:  # noqa: ARG004
        raise out_of_reach(
            "AnnealedImportance",
            "log Z is differentiable once; eta, marginals and second derivatives have no gradient. Use an exact "
            "backend such as Auto() where one is within its budget, or detach() the value",
        )


constant: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = _Constant.apply
"""``values`` as a function of the tables that raises :class:`IntractableError` when it is differentiated."""


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
            found_once = result.value, slopes
            value = log_z_with_gradient(parameters, lambda _: found_once, lambda t: constant(t, slopes))
            result = replace(result, value=value)
        if result.verdict == "unreliable":
            self._warn()
        return result

    def _warn(self) -> None:
        hint = f"see the notes of log_partition; {self._remedies}, or an exact backend with a larger budget"
        warning = ConvergenceWarning("the estimate is unreliable", argument=type(self).__name__, hint=hint)
        warnings.warn(warning, stacklevel=4)
