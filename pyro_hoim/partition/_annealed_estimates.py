"""What weights of annealed runs say about log Z: estimate, honest error, effective size, limits, acceptance ratio."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from scipy import special

__all__ = ["Estimate", "acceptance_ratio", "limits", "log_mean"]

MIN_CHAINS = 16
"""Fewer weights than this cannot show that they are well-behaved."""

_SKEWNESS = 0.3  # of the mean, above which an error bar is not trusted at all
_TAIL_SKEWNESS = 0.2  # the same for weights whose fitted tail has no variance
_TAIL_INDEX = 0.5
_MIN_ESS = 10.0
_MIN_OVERLAP = 20.0


class Estimate(NamedTuple):
    """Log of a mean weight (B,), its standard error, effective number of weights, share of the largest, verdict."""

    value: torch.Tensor
    error: torch.Tensor
    ess: torch.Tensor
    share: torch.Tensor
    is_reliable: torch.Tensor


def log_mean(log_weights: torch.Tensor, per_weight: int = 1) -> Estimate:
    r"""Log of the mean of independent weights (B, M), with a standard error that allows for skewness.

    .. math:: s = \frac{\mathrm{cv}}{\sqrt M} \cdot \frac{t_{M-1}}{3} \left(1 + \frac{19}{18} g_+\right), \qquad
        g = \frac{\text{skewness}}{\sqrt M}

    The factors make three standard errors hold as often as three of a normal law do: the quantile of Student's law
    that belongs to three, and the first-order correction of the t statistic for skewness (Hall), for the side where
    the mean of skewed weights falls short. The verdict is negative where this expansion itself is doubtful: a mean
    whose skewness exceeds 0.3, or 0.2 with a tail fitted as heavier than finite variance allows, fewer than 10
    effective or 16 actual weights.

    Args:
        log_weights: logarithms, (B, M).
        per_weight: chains behind every weight; those of an island share one.

    References:
        Peter Hall, On the removal of skewness by transformation, Journal of the Royal Statistical Society B 54, 1992.
        Jin Zhang and Michael Stephens, A new and efficient estimation method for the generalized Pareto distribution,
        Technometrics 51, 2009.
    """
    count = log_weights.shape[-1]
    top = log_weights.amax(-1, keepdim=True)
    weights = (log_weights - top).exp()
    mean = weights.mean(-1)
    value = mean.log() + top[..., 0]
    share = weights.amax(-1) / (mean * count)
    if count == 1:
        unknown = torch.full_like(value, math.inf)
        return Estimate(value, unknown, torch.ones_like(value), share, torch.zeros_like(value, dtype=torch.bool))
    centred = weights - mean[..., None]
    second = centred.square().mean(-1)
    cv2 = second / mean.square() * (count / (count - 1))
    scale = second.clamp_min(torch.finfo(second.dtype).tiny)
    skewness = (centred.pow(3).mean(-1) / scale.pow(1.5)).clamp_min(0) / math.sqrt(count)
    quantile = float(special.stdtrit(count - 1, special.ndtr(3.0))) / 3
    error = (cv2 / count).sqrt() * quantile * (1 + 19 / 18 * skewness)
    ess = count * per_weight / (1 + cv2 * per_weight)
    rough = cv2 > 1e-20  # equal weights have neither a tail nor a skewness
    doubtful = skewness > _SKEWNESS
    suspects = (skewness > _TAIL_SKEWNESS) & ~doubtful
    if bool(suspects.any()) and count >= 25:
        doubtful = doubtful | (suspects & (_tail_index(weights) > _TAIL_INDEX))
    few = ess < _MIN_ESS if count >= MIN_CHAINS else torch.ones_like(doubtful)
    return Estimate(value, error, ess, share, ~((doubtful & rough) | few))


def _tail_index(weights: torch.Tensor) -> torch.Tensor:
    """Index k of the generalised Pareto law fitted to the largest weights (B,); moments below 1/k are finite."""
    count = weights.shape[-1]
    size = int(min(count / 5, 3 * math.sqrt(count)))
    largest = weights.topk(size + 1, -1).values
    excess = (largest[..., :-1] - largest[..., -1:]).flip(-1).clamp_min(torch.finfo(weights.dtype).tiny)
    grid = 30 + int(math.sqrt(size))
    steps = torch.arange(1, grid + 1, dtype=weights.dtype, device=weights.device)
    quarter = excess[..., int(size / 4 + 0.5) - 1, None]
    slopes = 1 / excess[..., -1:] + (1 - (grid / (steps - 0.5)).sqrt()) / (3 * quarter)
    indices = torch.log1p(-slopes[..., None] * excess[..., None, :]).mean(-1)
    likelihood = size * ((-slopes / indices).log() - indices - 1)
    slope = (torch.softmax(likelihood.nan_to_num(nan=-math.inf), -1) * slopes).sum(-1, keepdim=True)
    index = torch.log1p(-slope * excess).mean(-1)
    return (index * size + 5) / (size + 10)  # shrunk towards one half, as in Pareto-smoothed importance sampling


def acceptance_ratio(forward: torch.Tensor, reverse: torch.Tensor) -> Estimate:
    r"""Log ratio c of normalising constants (B,) from forward and reverse log weights (B, M) of mutual reversals.

    .. math:: \sum_F \sigma(\ell_F - c) = \sum_R \sigma(\ell_R + c)

    Bennett's estimate, the one of least asymptotic variance. Its terms are bounded, so that the error needs overlap
    of the two runs only: at least 20 chains' worth of each in the region where they meet.

    References:
        Charles Bennett, Efficient estimation of free energy differences from Monte Carlo data, Journal of
        Computational Physics 22, 1976, equations (10) to (12).
    """
    count = forward.shape[-1]
    low = torch.minimum(forward.amin(-1), -reverse.amax(-1)) - 1
    high = torch.maximum(forward.amax(-1), -reverse.amin(-1)) + 1
    c = torch.minimum(torch.maximum((forward.mean(-1) - reverse.mean(-1)) / 2, low), high)
    for _ in range(100):
        ahead, behind = torch.sigmoid(forward - c[..., None]), torch.sigmoid(reverse + c[..., None])
        value = ahead.sum(-1) - behind.sum(-1)  # falls in c
        low, high = torch.where(value > 0, c, low), torch.where(value > 0, high, c)
        slope = (ahead * (1 - ahead)).sum(-1) + (behind * (1 - behind)).sum(-1)
        step = c + value / slope.clamp_min(1e-300)
        following = torch.where((step > low) & (step < high), step, (low + high) / 2)
        moved = (following - c).abs().max()
        c = following
        if float(moved) < 1e-13 * (1 + float(c.abs().max())):
            break
    ahead, behind = torch.sigmoid(forward - c[..., None]), torch.sigmoid(reverse + c[..., None])
    spread = sum(part.square().mean(-1) / part.mean(-1).square().clamp_min(1e-300) - 1 for part in (ahead, behind))
    quantile = float(special.stdtrit(max(1, count - 1), special.ndtr(3.0))) / 3
    error = (spread.clamp_min(0) / max(1, count - 1)).sqrt() * quantile  # pyright: ignore[reportAttributeAccessIssue]
    overlap = 2 * torch.minimum(ahead.sum(-1), behind.sum(-1))
    share = torch.maximum(ahead.amax(-1) / ahead.sum(-1), behind.amax(-1) / behind.sum(-1))
    is_reliable = (overlap > _MIN_OVERLAP) & (error < 0.3) & (share < 0.2) & torch.tensor(count >= MIN_CHAINS)
    return Estimate(c, error, overlap, share, is_reliable)


def limits(estimate: Estimate, level: float, trusted: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Lower and upper one-sided limits of the log of the expected weight, each at ``level``.

    Markov's inequality alone gives the lower one where the error is not to be trusted; there the upper is infinite.
    """
    markov = estimate.value + math.log1p(-level)
    normal = float(special.ndtri(level)) * estimate.error
    lower = torch.where(trusted, torch.maximum(markov, estimate.value - normal), markov)
    upper = torch.where(trusted, estimate.value + normal, torch.full_like(markov, math.inf))
    return lower, upper
