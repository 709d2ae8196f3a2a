"""Second moments of the indicators of being above elements, and these indicators as a matrix."""

from __future__ import annotations

import torch

from .poset import Poset


def second_moments(poset: Poset, probs: torch.Tensor, where: torch.Tensor) -> torch.Tensor:
    """Probability of being above or equal to both of two elements, (*batch, m, m), for all pairs of positions (m,)."""
    if poset.variables is not None:
        return poset.sums(probs, "above")[..., where[:, None] | where[None, :]]
    rows = indicators(poset, where).to(probs)
    return (rows * probs.unsqueeze(-2)) @ rows.T


def indicators(poset: Poset, where: torch.Tensor) -> torch.Tensor:
    """Rows (m, n) in float64: 1 at the elements above or equal to each of some positions."""
    units = torch.zeros(len(where), len(poset), dtype=torch.float64)
    units[torch.arange(len(where)), where] = 1.0
    return poset.sums(units)
