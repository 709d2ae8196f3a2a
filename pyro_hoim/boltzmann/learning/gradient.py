"""Gradients of the mean log-likelihood of a restricted machine, or estimates of them, as flat tensors like theta."""

from __future__ import annotations

from functools import lru_cache

import torch

from ..._modes import plain_mode
from ...core.laws.expansion import list_states
from ..energy import MarginalEnergy
from ..layers import softplus
from ..restricted import sweep_layers

__all__ = ["MAX_CELLS", "contrastive_gradient", "layer_statistics", "model_statistics"]

MAX_CELLS = 2**23
"""Most states of the smaller layer times units of the other one that :func:`model_statistics` lists."""


def layer_statistics(model: MarginalEnergy, rows: torch.Tensor, weights: torch.Tensor | None = None) -> torch.Tensor:
    """Means of v, h and v h over rows (N, n), h given v exactly, as theta is ordered; weights (N,) sum to one."""
    hidden = model.hidden_fields(rows).sigmoid()
    share = rows.new_full((len(rows),), 1 / len(rows)) if weights is None else weights
    pairs = (rows * share.unsqueeze(-1)).mT @ hidden
    return torch.cat([share @ rows, share @ hidden, pairs.flatten()])


def contrastive_gradient(
    model: MarginalEnergy,
    rows: torch.Tensor,
    chains: torch.Tensor,
    steps: int,
    generator: torch.Generator,
    weights: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Data means less those of chains after sweeps, and where the chains (M, n) ended.

    ``weights`` (N,) of rows are those of the chains too where these are the rows.
    """
    ends = sweep_layers(chains, (model.visible_bias, model.hidden_bias, model.weights), steps, generator)
    behind = weights if chains is rows else None
    return layer_statistics(model, rows, weights) - layer_statistics(model, ends, behind), ends


def model_statistics(model: MarginalEnergy) -> tuple[torch.Tensor, torch.Tensor]:
    """Log Z of a restricted machine, and means of v, h and v h under it as theta is ordered; both exact."""
    b, c, weights = model.visible_bias, model.hidden_bias, model.weights
    is_flipped = len(c) > len(b)
    listed, summed, matrix = (b, c, weights) if is_flipped else (c, b, weights.mT)
    states = _states(len(listed), b.device).to(b.dtype)
    fields = summed + states @ matrix
    scores = states @ listed + softplus(fields).sum(-1)
    shares = scores.softmax(-1)
    means = fields.sigmoid() * shares.unsqueeze(-1)
    first, second, pairs = shares @ states, means.sum(0), states.mT @ means
    parts = (first, second, pairs) if is_flipped else (second, first, pairs.mT)
    return scores.logsumexp(-1), torch.cat([part.flatten() for part in parts])


@lru_cache(maxsize=16)
@plain_mode()
def _states(size: int, device: torch.device) -> torch.Tensor:
    return list_states([2] * size, device)
