"""Estimated log Z in autograd: one derivative, the estimated eta; a clear refusal of a second one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

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


class _LogZ(torch.autograd.Function):  # pyright: ignore[reportUntypedBaseClass]
    """Log Z (*batch) of tables (*batch, num_terms) whose gradient is eta (*batch, num_terms)."""

    @staticmethod
    def forward(ctx: Any, tables: torch.Tensor, values: torch.Tensor, eta: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(tables, eta)
        return values.view_as(values)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        tables, eta = ctx.saved_tensors
        if torch.is_grad_enabled() and tables.requires_grad:  # the gradient may be differentiated in its turn
            eta = constant(tables, eta)
        return grads[0].unsqueeze(-1) * eta, None, None


log_z_with_eta: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor] = _LogZ.apply
"""Log Z ``values`` (*batch) as a function of the tables, with gradient ``eta``; both were computed without a graph."""

constant: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = _Constant.apply
"""``values`` as a function of the tables that raises :class:`IntractableError` when it is differentiated."""
