"""Second derivatives as tensors whose own derivatives, which nobody computes, are refused and not left out."""

from __future__ import annotations

from typing import Any

import torch

from ...errors import refused

__all__ = ["LastDerivative"]


class LastDerivative(torch.autograd.Function):
    """A tensor that depends on another one; differentiating it with respect to that raises :class:`InputError`."""

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor, of: torch.Tensor, argument: str) -> torch.Tensor:
        """The value itself."""
        del of
        ctx.argument = argument
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Refused."""
        del grad_outputs
        raise refused(ctx.argument, "third derivatives are not computed", code="no-method")
