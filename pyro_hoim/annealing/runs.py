"""The runs behind annealed importance sampling: paths of temperatures, forward and reverse runs, their starts."""

from __future__ import annotations

import itertools
import math
from typing import Any, Self

import numpy as np
import torch

from .annealable import Annealable
from .weights import log_sum

__all__ = [
    "adaptive_path",
    "forward_run",
    "island_means",
    "resampled",
    "reverse_run",
]

_PIECES = 100  # parts of a path between which weights are looked at, or progress is shown
_MAX_STEPS = 100_000  # of an adaptive path


def forward_run(
    chains: Annealable,
    betas: torch.Tensor,
    sweeps: int,
    *,
    islands: int = 0,
    below: float | None = None,
    generator: torch.Generator | None = None,
    progress: bool = False,
) -> torch.Tensor:
    """Log weights (*batch, chains) of a run through ``betas``; their mean over all chains estimates Z / Z0.

    With ``below`` every one of the ``islands`` (runs of consecutive chains) whose effective share falls below it is
    resampled; its chains then carry the mean weight of the island, which keeps the estimate free of bias.
    """
    if below is None and not progress:
        return chains.anneal(betas, sweeps)
    steps = len(betas) - 1
    ends = [round(steps * k / min(steps, _PIECES)) for k in range(min(steps, _PIECES) + 1)]
    total = betas.new_zeros((), device=chains.energy.device)
    with _bar(steps, progress) as bar:
        for first, last in itertools.pairwise(ends):
            total = total + chains.anneal(betas[first : last + 1], sweeps)
            bar.update(last - first)
            if below is not None and last < steps:
                index, total = resampled(total, islands, below, generator)
                chains.gather(index)
    return total


def _bar(steps: int, progress: bool) -> _Bar:
    if not progress:
        return _Bar()
    from tqdm import tqdm

    return _Bar(tqdm(total=steps, desc="annealing", unit="temperature"))


class _Bar:
    """A progress bar on standard error, or nothing."""

    def __init__(self, bar: Any = None) -> None:
        self._bar = bar

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def update(self, number: int) -> None:
        if self._bar is not None:
            self._bar.update(number)


def reverse_run(chains: Annealable, states: torch.Tensor, betas: torch.Tensor, sweeps: int) -> torch.Tensor:
    """Log weights (*batch, chains) of the reversed run from states of the model's law; their mean estimates Z0 / Z."""
    chains.set_codes(states)
    return chains.anneal(betas.flip(0), sweeps, reverse_order=True)


def island_means(log_weights: torch.Tensor, islands: int) -> torch.Tensor:
    """Log means (*batch, islands) of log weights (*batch, chains) over islands of consecutive chains."""
    parts = log_weights.unflatten(-1, (islands, -1))
    return log_sum(parts)[..., 0] - math.log(parts.shape[-1])


def resampled(
    log_weights: torch.Tensor, islands: int, below: float, generator: torch.Generator | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Systematic resampling inside islands: index of the chain to copy and new log weights, both (*batch, chains).

    Islands whose effective share is at least ``below`` stay as they are.
    """
    parts = log_weights.unflatten(-1, (islands, -1))
    size = parts.shape[-1]
    share = torch.softmax(parts, -1)
    keep = (1 / share.square().sum(-1, keepdim=True)) >= below * size
    offset = torch.rand(*parts.shape[:-1], 1, dtype=torch.float64, generator=generator).to(parts.device)
    points = (torch.arange(size, dtype=torch.float64, device=parts.device) + offset) / size
    picked = torch.searchsorted(share.cumsum(-1), points, right=True).clamp_max(size - 1)
    picked = torch.where(keep, torch.arange(size, device=parts.device), picked)
    start = torch.arange(islands, device=parts.device)[:, None] * size
    means = (log_sum(parts) - math.log(size)).expand_as(parts)
    return (picked + start).flatten(-2), torch.where(keep, parts, means).flatten(-2)


def adaptive_path(chains: Annealable, target: float, sweeps: int, generator: torch.Generator | None) -> torch.Tensor:
    r"""Inverse temperatures (steps + 1,) found by a pilot run of ``chains``, which are moved to the end of it.

    Every step is the longest with a conditional effective sample size of ``target`` times the number of chains, in
    every element of the batch:

    .. math:: \mathrm{CESS} = \frac{(\sum_c W_c u_c)^2}{\sum_c W_c u_c^2}, \quad
        u_c = \exp(\delta (\log f_1(x_c) - \log f_0(x_c)))

    References:
        Yan Zhou, Adam Johansen and John Aston, Toward automatic model comparison: an adaptive sequential Monte Carlo
        approach, Journal of Computational and Graphical Statistics 25, 2016, section 3.3.
    """
    betas = [0.0]
    log_weights = torch.zeros_like(chains.energy)
    while betas[-1] < 1:
        slope = chains.reference_energy - chains.energy
        step = _longest_step(slope, torch.softmax(log_weights, -1), target, 1 - betas[-1])
        following = min(1.0, max(betas[-1] + step, betas[-1] + 1 / _MAX_STEPS))
        log_weights = log_weights + chains.anneal([betas[-1], following], sweeps)
        betas.append(following)
        if following < 1:
            index, log_weights = resampled(log_weights, 1, 0.5, generator)
            chains.gather(index)
    return torch.tensor(betas, dtype=torch.float64)


def _longest_step(slope: torch.Tensor, weights: torch.Tensor, target: float, most: float) -> float:
    """Largest step up to ``most`` whose conditional effective share is at least ``target`` in every batch element."""
    slopes, shares = (slope - slope.amax(-1, keepdim=True)).cpu().numpy(), weights.cpu().numpy()

    def enough(step: float) -> bool:
        growth = np.exp(step * slopes)
        first, second = (shares * growth).sum(-1), (shares * np.square(growth)).sum(-1)
        return bool((np.square(first) >= target * second).all())

    if enough(most):
        return most
    low, high = 0.0, most
    while high - low > 1e-3 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if enough(middle) else (low, middle)
    return low
