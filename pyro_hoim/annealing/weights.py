"""What log weights of annealed runs say about log Z: estimate, honest error, effective size, limits, acceptance ratio.

They serve every run whose mean weight is a ratio of normalising constants. In NumPy on one core: the arrays are small.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import special

from ..errors import check_fraction, unexpected, wrong_shape, wrong_type

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

MIN_CHAINS = 16
"""Fewer weights than this cannot show that they are well-behaved."""

_SKEWNESS = 0.3  # of the mean, above which an error bar is not trusted at all
_TAIL_SKEWNESS = 0.2  # the same for weights whose fitted tail has no variance
_TAIL_INDEX = 0.5
_IMPLIED_SKEWNESS = 0.35  # the same for the skewness that the spread of the log weights implies
_LEFT = 3.0  # standard errors by which log weights are skewed to the left beyond doubt
_MAX_SPREAD = 50.0  # a variance of log weights at which nothing is to be hoped for
_HEAVY_SIDE = 1.25
_MIN_ESS = 10.0
_MAX_STEPS = 100  # of the iteration for the acceptance ratio
_MIN_OVERLAP = 20.0  # chains' worth, or the share below where there are few chains
_MIN_OVERLAP_SHARE = 0.6
_STEPS = 26  # bisections of the logarithm of the tilt, to 1e-6 of it
_REACH = 1e5  # largest and smallest tilt, for values of mean one, are this and its inverse
_HIGHEST = 1e15  # a share of ratios is cut here, far beyond what changes a limit
_TINY = 1e-200  # its power 1.5 does not underflow


class WeightEstimate(NamedTuple):
    """Log of a mean weight with an honest error; all arrays (B,)."""

    value: Floats  # logarithm of the mean weight, in nats; low on average, by about half its squared error
    error: Floats  # its standard error
    ess: Floats  # effective number of chains, or chains' worth of overlap
    share: Floats  # of the largest weight
    is_reliable: Flags  # whether the error bar is to be trusted


def log_sum(values: torch.Tensor) -> torch.Tensor:
    """Log of the sum of exponentials over the last axis, which stays with length one; no gradient."""
    if not values.numel():
        return values.logsumexp(-1, keepdim=True)
    return torch.from_numpy(_log_sum(values.cpu().numpy())).to(values.device)


def _log_sum(values: Floats) -> Floats:
    top = values.max(-1, keepdims=True)
    return np.log(np.exp(values - top).sum(-1, keepdims=True)) + top


def island_means(log_weights: Floats, islands: int | None) -> Floats:
    """Log means (B, islands) of log weights (B, chains) over islands of consecutive chains; None: each is its own."""
    if islands is None:
        return log_weights
    parts = log_weights.reshape(len(log_weights), islands, -1)
    return _log_sum(parts)[..., 0] - math.log(parts.shape[-1])


def log_mean_weight(log_weights: Floats, per_weight: int = 1) -> WeightEstimate:
    r"""Log of the mean of independent weights (B, M), with a standard error that allows for skewness.

    .. math:: s = \frac{\mathrm{cv}}{\sqrt M} \cdot \frac{t_{M-1}}{3}
        \left(1 + \frac{19}{18} \Bigl(g_+ + \frac{2 \sqrt 6}{M}\Bigr)\right), \qquad
        g = \frac{\text{skewness}}{\sqrt M}

    The factors make three standard errors hold as often as three of a normal law do: Student's quantile, and Hall's
    first-order correction for skewness on the side where the mean of skewed weights falls short. A sample's skewness is
    small exactly where the large weights were missed, so the error bar takes it two of its standard errors larger, and
    the verdict looks at the variance v of the log weights too (log-normal weights have the skewness :math:`(e^v + 2)
    \sqrt{e^v - 1}`; where log weights lean to the left beyond doubt, v is twice the half variance above their median).
    Not reliable are means whose skewness is above 0.3, above 0.2 with a fitted tail too heavy for a finite variance, or
    above 0.35 as implied, and those of fewer than 10 effective or 16 actual weights. No rule sees a part of the law
    that no weights came from: with a share p of the chains in it, M p should be well above 10.

    Args:
        log_weights: logarithms of the weights (B, M), in nats.
        per_weight: chains behind every weight; those of an island share one.

    Raises:
        InputError: not an array of finite floating-point numbers of this shape, M of at least 1.

    References:
        Peter Hall, On the removal of skewness by transformation, Journal of the Royal Statistical Society B 54, 1992.
        J. Zhang and M. Stephens, A new and efficient estimation method for the generalized Pareto distribution, 2009.

    Example:
        >>> found = log_mean_weight(np.log([[1.0, 3.0] * 50]))
        >>> round(float(found.value[0]), 4), round(float(found.error[0]), 3), bool(found.is_reliable[0])
        (0.6931, 0.054, True)
        >>> [round(float(limit[0]), 3) for limit in one_sided_limits(found, 0.99, found.is_reliable)]
        [0.567, 0.851]
    """
    _check_weights(log_weights, "log_weights")
    count = log_weights.shape[-1]
    top = log_weights.max(-1, keepdims=True)
    weights = np.exp(log_weights - top)
    mean = weights.mean(-1)
    value = np.log(mean) + top[..., 0]
    share = 1 / (mean * count)
    if count == 1:
        return WeightEstimate(value, value + np.inf, np.ones_like(value), share, np.zeros(value.shape, dtype=bool))
    # Moments of the weights, and what the spread of their logarithms implies.
    centred = weights - mean[..., None]
    second = np.square(centred).mean(-1)
    cv2 = second / np.square(mean) * (count / (count - 1))
    skewness = (np.square(centred) * centred).mean(-1) / np.maximum(second, _TINY) ** 1.5
    skewness = np.maximum(skewness, 0) / math.sqrt(count)
    implied = _implied_skewness(log_weights) / math.sqrt(count)
    error = np.sqrt(cv2 / count) * _quantile_factor(count - 1) * (1 + 19 / 18 * (skewness + 2 * math.sqrt(6) / count))
    ess = count * per_weight / (1 + cv2 * per_weight)
    # Whether the error bar is to be trusted.
    doubtful = (skewness > _SKEWNESS) | (implied > _IMPLIED_SKEWNESS)
    suspects = (skewness > _TAIL_SKEWNESS) & ~doubtful
    if count >= 25 and suspects.any():
        doubtful[suspects] = _tail_index(weights[suspects]) > _TAIL_INDEX
    doubtful &= cv2 > 1e-20  # equal weights have neither a tail nor a skewness
    few = (ess < _MIN_ESS) | (count < MIN_CHAINS)
    return WeightEstimate(value, error, ess, share, ~(doubtful | few))


def _check_weights(log_weights: object, argument: str) -> None:
    """Raise unless these are finite log weights (B, M), at least one in a row."""
    if not isinstance(log_weights, np.ndarray) or not np.issubdtype(log_weights.dtype, np.floating):
        raise wrong_type(argument, "an array of log weights", log_weights)
    if log_weights.ndim != 2 or not log_weights.shape[1]:
        raise wrong_shape(argument, "(B, M) with M of at least 1", log_weights)
    if not np.isfinite(log_weights).all():
        raise unexpected(argument, "finite log weights", received="NaN or an infinity", code="not-finite")


def _implied_skewness(log_weights: Floats) -> Floats:
    """Skewness (B,) of log-normal weights whose logarithms spread as those given (B, M) do at their upper side."""
    count = log_weights.shape[-1]
    centred = log_weights - log_weights.mean(-1, keepdims=True)
    squares = np.square(centred)
    second = squares.mean(-1)
    lean = (squares * centred).mean(-1) / np.maximum(second, _TINY) ** 1.5
    is_left = lean < -_LEFT * math.sqrt(6 / count)
    if is_left.any():
        leaning = log_weights[is_left]
        above = np.maximum(leaning - np.median(leaning, -1, keepdims=True), 0)
        second[is_left] = np.minimum(second[is_left], 2 * np.square(above).mean(-1))
    variance = np.minimum(second * count / (count - 1), _MAX_SPREAD)
    return (np.exp(variance) + 2) * np.sqrt(np.expm1(variance))


def _quantile_factor(freedom: int) -> float:
    """The quantile of Student's law that three standard deviations are of the normal law, over three."""
    return float(special.stdtrit(freedom, special.ndtr(3.0))) / 3


def _tail_index(weights: Floats) -> Floats:
    """Index k of the generalised Pareto law fitted to the largest weights (B,); moments below 1/k are finite."""
    count = weights.shape[-1]
    size = int(min(count / 5, 3 * math.sqrt(count)))
    largest = np.sort(weights, -1)[..., -size - 1 :]
    excess = np.maximum(largest[..., 1:] - largest[..., :1], _TINY)
    grid = 30 + int(math.sqrt(size))
    quarter = excess[..., int(size / 4 + 0.5) - 1, None]
    with np.errstate(all="ignore"):
        slopes = 1 / excess[..., -1:] + (1 - np.sqrt(grid / (np.arange(grid) + 0.5))) / (3 * quarter)
        indices = np.log1p(-slopes[..., None] * excess[..., None, :]).mean(-1)
        likelihood = np.nan_to_num(size * (np.log(-slopes / indices) - indices - 1), nan=-np.inf)
        slope = (special.softmax(likelihood, -1) * slopes).sum(-1, keepdims=True)
        index = np.log1p(-slope * excess).mean(-1)
    return np.nan_to_num((index * size + 5) / (size + 10), nan=np.inf)  # shrunk towards one half, as is usual


def acceptance_ratio(forward: Floats, reverse: Floats) -> WeightEstimate:
    r"""Log ratio c of normalising constants (B,) from forward and reverse log weights (B, M) of mutual reversals.

    .. math:: \sum_F \sigma(\ell_F - c) = \sum_R \sigma(\ell_R + c)

    Bennett's estimate, the one of least asymptotic variance. Its terms are bounded, so that the error needs overlap
    of the two runs only: at least 20 chains' worth of each in the region where they meet, or 60 % of fewer chains.

    Args:
        forward: log weights (B, M) of runs from the first law to the second, in nats.
        reverse: those of as many runs back.

    Returns:
        The log of the second constant over the first; not reliable unless solved to 1e-12 within 100 steps.

    Raises:
        InputError: as of :func:`log_mean_weight`, or shapes that differ.

    References:
        Charles Bennett, Efficient estimation of free energy differences from Monte Carlo data, 1976, (10) to (12).

    Example:
        >>> found = acceptance_ratio(np.full((1, 100), 0.5), np.full((1, 100), -0.5))
        >>> round(float(found.value[0]), 9), float(found.error[0])
        (0.5, 0.0)
    """
    _check_weights(forward, "forward")
    _check_weights(reverse, "reverse")
    if forward.shape != reverse.shape:
        expected = f"the shape of forward, {forward.shape}"
        raise unexpected("reverse", expected, received=reverse.shape, code="wrong-shape")
    count = forward.shape[-1]
    # A bracket, then Newton steps that stay in it.
    low = np.minimum(forward.min(-1), -reverse.max(-1)) - 1
    high = np.maximum(forward.max(-1), -reverse.min(-1)) + 1
    c = np.clip((forward.mean(-1) - reverse.mean(-1)) / 2, low, high)
    is_solved = np.zeros(c.shape, dtype=bool)
    for _ in range(_MAX_STEPS):
        ahead, behind = special.expit(forward - c[..., None]), special.expit(reverse + c[..., None])
        value = ahead.sum(-1) - behind.sum(-1)  # falls in c
        low, high = np.where(value > 0, c, low), np.where(value > 0, high, c)
        slope = (ahead * (1 - ahead)).sum(-1) + (behind * (1 - behind)).sum(-1)
        step = c + value / np.maximum(slope, _TINY)
        following = np.where((step > low) & (step < high), step, (low + high) / 2)
        is_solved = np.abs(following - c) < 1e-12 * (1 + np.abs(c))
        c = following
        if is_solved.all():
            break
    ahead, behind = special.expit(forward - c[..., None]), special.expit(reverse + c[..., None])
    # Error and overlap at the solution.
    spread = _relative_variance(ahead) + _relative_variance(behind)
    error = np.sqrt(spread / max(1, count - 1)) * _quantile_factor(max(1, count - 1))
    overlap = 2 * np.minimum(ahead.sum(-1), behind.sum(-1))
    share = np.maximum(*(part.max(-1) / np.maximum(part.sum(-1), _TINY) for part in (ahead, behind)))
    is_met = overlap > min(_MIN_OVERLAP, _MIN_OVERLAP_SHARE * count)
    is_reliable = is_solved & is_met & (error < 0.3) & (share < 0.2) & (count >= MIN_CHAINS)
    return WeightEstimate(c, error, overlap, share, is_reliable)


def _relative_variance(values: Floats) -> Floats:
    """Variance over squared mean (B,) of positive values (B, M)."""
    return values.var(-1) / np.maximum(np.square(values.mean(-1)), _TINY)


def one_sided_limits(estimate: WeightEstimate, level: float, trusted: Flags) -> tuple[Floats, Floats]:
    """Lower and upper one-sided limits (B,), in nats, of the log of the expected weight, each at ``level``.

    Markov's inequality alone gives the lower one where the error is not to be trusted; there the upper is infinite.
    The upper one lies on the side where means of skewed weights fall short, and is a quarter wider for it.

    Args:
        estimate: of the mean weight.
        level: of each limit, refused unless between 0 and 1.
        trusted: where the error bar is to be trusted (B,), such as ``estimate.is_reliable``.

    Example:
        >>> found = WeightEstimate(*np.array([[0.0], [0.1], [100.0], [0.02]]), np.array([True]))
        >>> [round(float(limit[0]), 4) for limit in one_sided_limits(found, 0.99, np.array([True]))]
        [-0.2326, 0.2908]
        >>> [round(float(limit[0]), 4) for limit in one_sided_limits(found, 0.99, np.array([False]))]  # log 0.01
        [-4.6052, inf]
    """
    check_fraction(level, "level")
    markov = estimate.value + math.log1p(-level)
    normal = float(special.ndtri(level)) * estimate.error
    lower = np.where(trusted, np.maximum(markov, estimate.value - normal), markov)
    return lower, np.where(trusted, estimate.value + _HEAVY_SIDE * normal, np.inf)


def log_mean_lower_limit(log_values: Floats, level: float) -> Floats:
    r"""Log of a lower limit, at ``level``, of the mean of the positive law that ``log_values`` (B, M) are draws of.

    .. math:: c: \quad P\Bigl(\sum_{i=0}^M D_i z_i < c\Bigr) = 1 - \mathrm{level}, \qquad z_0 = 0, \quad
        D \sim \mathrm{Dirichlet}(1, \dots, 1)

    The share of the law between neighbouring order statistics z is distributed as one of the D, and counts with the
    smaller value. The probability comes from a saddle point (Lugannani and Rice), to about one per cent of itself.

    References:
        Erik Learned-Miller and Philip Thomas, A new confidence interval for the mean of a bounded random variable,
        2019. My Phan, Philip Thomas and Erik Learned-Miller, Towards practical mean bounds for small samples, 2021.
    """
    scale = log_values.max(-1, keepdims=True)
    values = np.exp(log_values - scale)
    mean = values.mean(-1, keepdims=True)
    values = np.concatenate([np.zeros_like(mean), values / mean], -1)
    # Bisection of the tilt at which the tail has the wanted probability.
    low = np.full_like(mean, -np.log(_REACH))
    high = -low
    for _ in range(_STEPS):
        middle = (low + high) / 2
        is_beyond = _tail(values, np.exp(middle))[0] < 1 - level
        low, high = np.where(is_beyond, low, middle), np.where(is_beyond, middle, high)
    limit = _tail(values, np.exp(high))[1]
    return (np.log(limit * mean) + scale)[..., 0]


def _tail(values: Floats, tilt: Floats) -> tuple[Floats, Floats]:
    """Probability that the randomly weighted mean of values (B, M + 1) is below the c of a tilt (B, 1), and this c."""
    count = values.shape[-1]
    shrunk = 1 / (1 + values * tilt)
    share = shrunk.mean(-1, keepdims=True)
    c = (1 - share) / (tilt * share)
    slope = tilt * share
    exponent = count * np.log(share) - np.log(shrunk).sum(-1, keepdims=True)
    r = -np.sqrt(np.maximum(2 * exponent, 1e-12))
    curvature = np.square((values - c) * shrunk / share).sum(-1, keepdims=True)
    u = -slope * np.sqrt(np.minimum(curvature, _HIGHEST))
    density = np.exp(-r * r / 2) / np.sqrt(2 * np.pi)
    return special.ndtr(r) + density * (1 / r - 1 / u), c
