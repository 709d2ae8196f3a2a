r"""The finite end of the interval of an infinite log odds ratio, by its profile likelihood.

Where the likelihood rises without end along a contrast :math:`k \cdot \theta \to \infty`, the values c that a
likelihood-ratio test does not reject are those above

.. math:: c^* : \quad 2 \left( \sup_\theta \ell(\theta) - \sup_{k \cdot \theta = c} \ell(\theta) \right)
    = \chi^2_{1, \gamma}
"""

from __future__ import annotations

import math

import numpy as np
import scipy
from scipy.special import ndtr, ndtri

from ..fitting.result import FitResult

_MAX_WORK = 2**21  # cells times squared parameters, one Newton step
_MAX_CONTRASTS = 20
_MAX_STEPS = 60
_FAR = 40.0  # nats


def profile_limits(result: FitResult, contrasts: np.ndarray, signs: np.ndarray, level: float) -> np.ndarray:
    """Finite limits and p-values (k, 2) of infinite functions (k, num_parameters) of theta; NaN where there are none.

    The p-value is that of the likelihood-ratio test of zero. Weights count as Kish's effective number of rows.

    References:
        David Venzon and Suresh Moolgavkar, A method for computing profile-likelihood-based confidence intervals, 1988.
    """
    limits = np.full((len(signs), 2), math.nan)
    design = result._design
    has_missing = result.data is not None and result.data.has_missing
    if design is None or has_missing or result.penalty is not None or result.objective != "likelihood":
        return limits
    cells = np.ones(len(design), dtype=bool) if result.possible is None else result.possible
    space = np.eye(design.shape[1]) if result.restriction is None else result.restriction.basis
    if cells.sum() * space.shape[1] ** 2 > _MAX_WORK:
        return limits
    # The likelihood needs the fitted statistics alone, which are those of the rows.
    design, statistics = design[cells] @ space, result.mean_statistics.numpy() @ space
    probs = result.probs.numpy()
    best = float((probs[probs > 0] * np.log(probs[probs > 0])).sum())
    for row in np.flatnonzero(signs)[:_MAX_CONTRASTS]:
        profile = _Profile(design, statistics, signs[row] * (contrasts[row] @ space))
        scale, threshold = 2 * result.effective_num_rows, float(ndtri((1 + level) / 2)) ** 2

        def excess(value: float, profile: _Profile = profile, scale: float = scale, less: float = threshold) -> float:
            return scale * (best - profile.loglikelihood(value)) - less

        low = -1.0
        while excess(low) < 0 and low > -_FAR:
            low *= 2
        high = low + 1.0
        while excess(high) > 0 and high < _FAR:
            high += 2.0
        if excess(low) > 0 > excess(high):
            limits[row, 0] = signs[row] * scipy.optimize.brentq(excess, low, high, xtol=1e-9)
            limits[row, 1] = 2 * float(ndtr(-math.sqrt(max(0.0, excess(0.0) + threshold))))
    return limits


class _Profile:
    """The mean log-likelihood at the best theta with a given value of one contrast, which starts where it ended."""

    def __init__(self, design: np.ndarray, statistics: np.ndarray, contrast: np.ndarray) -> None:
        length = float(np.linalg.norm(contrast))
        rest = np.linalg.svd(contrast[None] / length)[2][1:].T
        self.along, self.design = design @ contrast / length**2, design @ rest
        self.along_statistic, self.statistics = float(statistics @ contrast) / length**2, statistics @ rest
        self.free = np.zeros(rest.shape[1])

    def _at(self, value: float, free: np.ndarray) -> tuple[float, np.ndarray]:
        """Mean log-likelihood and probabilities of the cells."""
        logits = value * self.along + self.design @ free
        top = float(logits.max(initial=-math.inf))
        weights = np.exp(logits - top)
        log_z = top + math.log(weights.sum())
        return value * self.along_statistic + float(self.statistics @ free) - log_z, np.exp(logits - log_z)

    def loglikelihood(self, value: float) -> float:
        """Maximum over the other directions, in which it may be a supremum: Newton's steps, halved until they rise."""
        free, (best, probs) = self.free, self._at(value, self.free)
        for _ in range(_MAX_STEPS):
            mean = probs @ self.design
            gradient = self.statistics - mean
            hessian = (self.design * probs[:, None]).T @ self.design - np.outer(mean, mean)
            ridge = 1e-12 * max(float(np.trace(hessian)), 1e-12)
            step = np.linalg.solve(hessian + ridge * np.eye(len(free)), gradient)
            rise = float(gradient @ step)
            if rise < 1e-11:
                break
            length = 1.0
            while length > 1e-6:
                moved = free + length * step
                level, other = self._at(value, moved)
                if level > best:
                    free, best, probs = moved, level, other
                    break
                length /= 2
            else:
                break
        self.free = free
        return best
