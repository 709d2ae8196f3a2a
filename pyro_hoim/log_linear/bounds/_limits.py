r"""Limits of the mean of independent weights that hold for their number, by betting against means.

Whoever begins with one unit and always stakes the share c of it on the next weight being above :math:`\mu` has

.. math:: K_n(\mu) = \prod_{i=1}^n \Bigl(1 - c + c \frac{w_i}{\mu}\Bigr)

after n weights. Where :math:`\mu` is at least the mean of the weights, the expectation of this is at most one, so that
it ever reaches :math:`1 / \delta` with a probability of at most :math:`\delta` (Ville's inequality): means against
which so much was won are refuted, at whatever n one looks. Averages over stakes c are such capitals, too.

References:
    Ian Waudby-Smith and Aaditya Ramdas, Estimating means of bounded random variables by betting, Journal of the Royal
    Statistical Society B 86, 2024.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_STAKES = 0.5 ** np.arange(17)  # each half of the one before, down to what a hundred thousand weights call for
_WIDEST = 40.0  # nats from the mean within which limits are looked for
_HALVINGS = 24  # of that distance


def _log_capital(ratios: Floats, priors: Floats) -> float:
    """Log of the average capital over stakes, where each gains its share of ``ratios`` (n,), none below -1."""
    # Products of eight factors at a time need fewer logarithms; they end in zero or infinity only far from any limit.
    parts = np.concatenate([ratios, np.zeros(-len(ratios) % 8)]).reshape(8, -1)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore", under="ignore"):
        logs = [np.log((1.0 + stake * parts).prod(0)).sum() for stake in _STAKES[: len(priors)]]
    return float(np.logaddexp.reduce(np.nan_to_num(logs, nan=-np.inf, posinf=np.inf, neginf=-np.inf) + np.log(priors)))


def _last_refuted(near: float, far: float, is_refuted: Callable[[float], bool]) -> float:
    """The point closest to ``near`` known to be refuted, by halving, where all beyond it towards ``far`` are."""
    if not is_refuted(far):
        return math.nan
    for _ in range(_HALVINGS):
        middle = (near + far) / 2
        near, far = (near, middle) if is_refuted(middle) else (middle, far)
    return far


def lower_limit(streams: Sequence[Floats], failing: float) -> float:
    """Log of a mean that is above that of the weights with a probability of at most ``failing``; -inf where none is.

    Args:
        streams: logarithms of non-negative weights, independent, all of one mean, each stream (n,); every one has the
            same share of the first capital, and an empty one keeps it.
        failing: between 0 and 1.
    """
    tops = [float(logs.max(initial=-math.inf)) for logs in streams]
    if max(tops, default=-math.inf) == -math.inf:
        return -math.inf
    means = [t + math.log(np.exp(logs - t).mean()) for logs, t in zip(streams, tops, strict=True) if t > -math.inf]
    priors = np.full(len(_STAKES), 1 / len(_STAKES))

    def is_refuted(log_mean: float) -> bool:
        capitals = [_log_capital(np.exp(logs - log_mean) - 1.0, priors) if len(logs) else 0.0 for logs in streams]
        return float(np.logaddexp.reduce(capitals)) - math.log(len(streams)) >= -math.log(failing)

    limit = _last_refuted(max(means), max(means) - _WIDEST, is_refuted)
    return -math.inf if math.isnan(limit) else limit


def upper_limit(log_shares: Floats, failing: float) -> float:
    r"""Log of a mean that is below that of shares with a probability of at most ``failing``, at most 0.

    Stakes are on shares being below the mean: :math:`\prod_i (1 + c (\mu - w_i))`. Half of the capital has the stake
    one, which is the best while hardly any share is large.

    Args:
        log_shares: logarithms (n,) of independent weights between 0 and 1.
        failing: between 0 and 1.
    """
    shares, number = np.exp(np.minimum(log_shares, 0.0)), 12
    priors = np.array([0.5, *np.full(number, 0.5 / number)])

    def is_refuted(log_mean: float) -> bool:
        mean = math.exp(log_mean)
        return _log_capital(mean - shares, priors) >= -math.log(failing)

    # Nothing refutes the mean of the shares, nor a mean that would show in less than one of them.
    near = math.log(max(float(shares.mean()), 1 / (3 * len(shares)))) if len(shares) else 0.0
    limit = _last_refuted(min(near, 0.0), 0.0, is_refuted)
    return 0.0 if math.isnan(limit) else limit
