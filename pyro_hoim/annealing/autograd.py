"""Estimated log Z in autograd: one derivative, the estimated eta; a clear refusal of a second one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..core.autograd import log_z_with_gradient
from ..errors import out_of_reach

__all__ = ["constant", "log_z_with_eta"]


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


def log_z_with_eta(tables: torch.Tensor, values: torch.Tensor, eta: torch.Tensor) -> torch.Tensor:
    """Log Z ``values`` (*batch) as a function of the tables with gradient ``eta``."""
    return log_z_with_gradient(tables, lambda _: (values, eta), lambda t: constant(t, eta))
