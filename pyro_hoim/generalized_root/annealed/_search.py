"""Search for probable states of a root model of counts."""

from __future__ import annotations

import torch

from ..energy import GeneralizedRootEnergy

_ENDS = 16  # chain ends that ascents begin with, and as many rows
_LARGEST = 2**14  # count that all variables start from together
_ROUNDS = 6  # of an ascent
_NEAR = 3  # counts up and down that a move looks at


def climbed_counts(energy: GeneralizedRootEnergy, ends: torch.Tensor, rows: torch.Tensor | None) -> torch.Tensor:
    """States (n, d) at which ascents in one variable at a time ended.

    They start from chain ends, from states with all counts alike, on a geometric grid, and from the best of the rows
    (m, d), all of which are among the states.
    """
    largest = min(energy.family.largest_value, float(_LARGEST))
    levels = torch.tensor([0.0, *(2.0**k for k in range(15) if 2.0**k <= largest)], dtype=torch.float64)
    seen = ends[:0] if rows is None else rows
    best, better = (energy.energy(part, validate=False).argsort()[:_ENDS] for part in (ends, seen))
    states = torch.cat([ends[best], levels[:, None].expand(-1, ends.shape[-1]), seen[better]]).clone()
    grid = torch.unique(torch.cat([levels, (1.5 * levels).floor()]))
    for round_number in range(_ROUNDS):
        before = states.clone()
        for s in range(states.shape[-1]):
            natural = energy.node_natural(states, validate=False)[:, s]
            steps = torch.arange(-_NEAR, _NEAR + 1, dtype=torch.float64)
            tried = states[:, s, None] + steps
            if round_number % 2 == 0:
                tried = torch.cat([tried, grid.expand(len(states), -1)], 1)
            tried = tried.clamp(0, energy.family.largest_value)
            score = energy.family.log_base(tried)
            for j in range(1, energy.order + 1):
                score = score + natural[:, None, j - 1] * energy.family.root(tried, j)
            states[:, s] = tried.gather(1, score.argmax(1, keepdim=True))[:, 0]
        if torch.equal(before, states):
            break
    return torch.cat([states, seen])
