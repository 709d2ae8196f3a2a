"""A lower limit of the mean of positive values that allows for values not seen. Private to the package."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import special

Floats = NDArray[np.float64]

_STEPS = 26  # bisections of the logarithm of the tilt, to 1e-6 of it
_REACH = 1e5  # largest and smallest tilt, for values of mean one, are this and its inverse
_HIGHEST = 1e15  # a share of ratios is cut here, far beyond what changes a limit


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
