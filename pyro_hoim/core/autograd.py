"""Log Z in autograd: for backends that find eta along the way, and where all terms of a sum are impossible."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from ..checks import is_hidden

Evaluate = Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]


def is_recorded(tables: torch.Tensor) -> bool:
    """Whether work outside PyTorch has to stand in a record: autograd's for a gradient, or that of a traced program.

    Without an operation of its own, what compiled loops find would be a constant of the traced function.
    """
    return torch.jit.is_tracing() or (torch.is_grad_enabled() and tables.requires_grad)


def may_have_zeros(tables: torch.Tensor) -> bool:
    """Whether an entry is minus infinity; True where values cannot be looked at, or are not finite otherwise."""
    return torch.jit.is_tracing() or is_hidden(tables) or not math.isfinite(float(tables.detach().sum()))


def log_sum_exp(logs: torch.Tensor, dim: int | tuple[int, ...] = -1) -> torch.Tensor:
    """As ``torch.logsumexp``, with a gradient of zero, where that is NaN, of terms that all are minus infinity."""
    is_zero = logs.amax(dim, keepdim=True) == -math.inf
    total = torch.logsumexp(logs.masked_fill(is_zero, 0.0), dim, keepdim=True).masked_fill(is_zero, -math.inf)
    return total.squeeze(dim)


def log_softmax(logs: torch.Tensor) -> torch.Tensor:
    """As ``torch.log_softmax`` over the last dimension, minus infinity where that is NaN as all of it is."""
    is_zero = logs.amax(-1, keepdim=True) == -math.inf
    return torch.log_softmax(logs.masked_fill(is_zero, 0.0), -1).masked_fill(is_zero, -math.inf)


class _LogZ(torch.autograd.Function):  # pyright: ignore[reportUntypedBaseClass]
    """Log Z (*batch) of parameters (*batch, num_terms), saved together with its gradient (*batch, num_terms)."""

    @staticmethod
    def forward(
        ctx: Any, tables: torch.Tensor, evaluate: Evaluate, eta: Callable[[torch.Tensor], torch.Tensor]
    ) -> torch.Tensor:
        values, found = evaluate(tables.detach())
        ctx.eta = eta
        ctx.save_for_backward(tables, found)
        return values

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        tables, found = ctx.saved_tensors
        if torch.is_grad_enabled() and tables.requires_grad:  # the gradient will be differentiated in its turn
            found = ctx.eta(tables)
        return grads[0].unsqueeze(-1) * found, None, None


_apply: Callable[..., torch.Tensor] = _LogZ.apply


def log_z_with_gradient(
    tables: torch.Tensor, evaluate: Evaluate, eta: Callable[[torch.Tensor], torch.Tensor]
) -> torch.Tensor:
    """Log Z (*batch) whose gradient is the eta that ``evaluate`` returns with it.

    ``evaluate`` maps tables (*batch, num_terms) to log Z and eta without a graph; ``eta`` is differentiable and called
    for derivatives of the gradient only.
    """
    return _apply(tables, evaluate, eta)
