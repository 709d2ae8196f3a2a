"""Law of one column given all others with a free base measure: maximum likelihood, and with one statistic moved.

The base measure is one parameter for every value that the column takes, so that the column's own law is any law; a
feature of the other columns tilts it by a coefficient times feature times root of the value.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve

Floats = NDArray[np.float64]

_STEPS, _HALVINGS = 60, 30
_DONE = 1e-5  # nats that another step would bring
_FLAT = 1e-3  # rows of information: a direction of an infinite estimate has less by then
_RANK = 1e-10  # of the largest diagonal element


class Moments(NamedTuple):
    """Mean (s,) and covariance (s, s) of the statistics of a law."""

    mean: Floats
    covariance: Floats


class Tilted(NamedTuple):
    """What the log-likelihood rises by, the parameter of the statistic, and the root of the ratio of informations."""

    rise: float
    psi: float
    information: float


@dataclass(frozen=True, eq=False)
class ConditionalLaw:
    """Rows of a column given patterns of its features.

    Args:
        counts: rows of every pattern and value (P, r).
        features: of the patterns (P, q).
        scores: root of every value, for each feature (q, r).
    """

    counts: Floats
    features: Floats
    scores: Floats

    @cached_property
    def _groups(self) -> list[NDArray[np.intp]]:
        """Places of the features of equal scores."""
        found: dict[bytes, list[int]] = {}
        for i, score in enumerate(self.scores):
            found.setdefault(score.tobytes(), []).append(i)
        return [np.array(places) for places in found.values()]

    @cached_property
    def totals(self) -> Floats:
        """Rows of every pattern (P,)."""
        return self.counts.sum(1)

    @cached_property
    def statistics(self) -> Floats:
        """Rows of every value but the first, and sums of feature times root over the rows, (r - 1 + q,)."""
        products = (self.features * (self.counts @ self.scores.T)).sum(0)
        return np.concatenate([self.counts.sum(0)[1:], products])

    @property
    def start(self) -> Floats:
        """Parameters of the column's own law, without features."""
        levels = np.log(self.counts.sum(0))
        return np.concatenate([levels[1:] - levels[0], np.zeros(len(self.scores))])

    def log_weights(self, parameters: Floats) -> tuple[Floats, float]:
        """Probabilities of the values in every pattern (P, r), and the sum over rows of the log of their sum."""
        free = self.counts.shape[1] - 1
        eta = (self.features * parameters[free:]) @ self.scores
        eta[:, 1:] += parameters[:free]
        top = eta.max(1)
        weights = np.exp(eta - top[:, None])
        sums = weights.sum(1)
        return weights / sums[:, None], float(self.totals @ (top + np.log(sums)))

    def moments(self, probs: Floats) -> Moments:
        """Mean (s,) and covariance (s, s) of the statistics."""
        totals, free = self.totals, probs.shape[1] - 1
        weighted = totals[:, None] * probs
        inner = probs @ self.scores.T  # (P, q)
        levels = weighted.sum(0)[1:]
        mean = np.concatenate([levels, (self.features * inner * totals[:, None]).sum(0)])
        found = np.zeros((len(mean), len(mean)))
        found[:free, :free] = np.diag(levels) - probs[:, 1:].T @ weighted[:, 1:]
        crossed = weighted[:, 1:].T @ self.features * self.scores[:, 1:].T
        crossed -= weighted[:, 1:].T @ (self.features * inner)
        found[:free, free:], found[free:, :free] = crossed, crossed.T
        for rows, columns in itertools.product(self._groups, repeat=2):
            a, b = rows[0], columns[0]
            spread = (probs @ (self.scores[a] * self.scores[b]) - inner[:, a] * inner[:, b]) * totals
            block = self.features[:, rows].T @ (spread[:, None] * self.features[:, columns])
            found[np.ix_(free + rows, free + columns)] = block
        return Moments(mean, found)

    def maximised(self, statistics: Floats, start: Floats, basis: Floats | None = None) -> tuple[Floats, float]:
        """Parameters of largest likelihood for some totals of the statistics, on a linear space through the start.

        Also that log-likelihood.
        """
        found = start
        probs, log_sum = self.log_weights(found)
        value = float(found @ statistics) - log_sum
        for _ in range(_STEPS):
            mean, curvature = self.moments(probs)
            slope = statistics - mean
            if basis is not None:
                slope, curvature = basis.T @ slope, basis.T @ curvature @ basis
            step = _solved(curvature, slope)
            gain = float(slope @ step) / 2
            if not _DONE < gain < math.inf:
                break
            step = step if basis is None else basis @ step
            for _ in range(_HALVINGS):
                trial = found + step
                probs, log_sum = self.log_weights(trial)
                new = float(trial @ statistics) - log_sum
                if new >= value:
                    break
                step = step / 2
            else:
                break
            rise, value, found = new - value, new, trial
            if rise < _DONE:
                break
        return found, value

    def is_inside(self, parameters: Floats) -> bool:
        """Whether the statistics vary in every direction at some parameters, so that Newton's steps may start there."""
        return bool(np.linalg.eigvalsh(self.moments(self.log_weights(parameters)[0]).covariance)[0] > _FLAT)

    def squared_score(self, null: Moments) -> float:
        """The score test of the last statistic: chi-square of one degree of freedom in the limit."""
        before = null.covariance
        along = before[-1, -1] - before[-1, :-1] @ _solved(before[:-1, :-1], before[:-1, -1])
        return float((self.statistics[-1] - null.mean[-1]) ** 2 / max(along, 1e-300))

    def tilted(self, parameters: Floats, null: Moments, target: float, start: Floats | None = None) -> Tilted:
        """The last statistic's total moved to a target, from parameters without it; with parameters to start from."""
        before = null.covariance[:-1, :-1]
        values, vectors = np.linalg.eigh(before)
        moving = vectors[:, values > _FLAT]
        basis = np.zeros((len(parameters), moving.shape[1] + 1))
        basis[:-1, :-1], basis[-1, -1] = moving, 1.0
        statistics = np.append(self.statistics[:-1], target)
        value = float(parameters @ statistics) - self.log_weights(parameters)[1]
        is_near = start is not None and moving.shape[1] == len(before) and self.is_inside(start)
        found, most = self.maximised(statistics, start if start is not None and is_near else parameters, basis)
        _, after = self.moments(self.log_weights(found)[0])
        ratio = np.linalg.slogdet(basis.T @ after @ basis)[1] - np.linalg.slogdet(moving.T @ before @ moving)[1]
        return Tilted(most - value, float(found[-1]), math.exp(min(ratio, 1400.0) / 2))


def _solved(curvature: Floats, slope: Floats) -> Floats:
    scale = max(float(curvature.diagonal().max(initial=0.0)), 1e-300)
    curvature = curvature + _RANK * scale * np.eye(len(slope))
    try:
        return cho_solve(cho_factor(curvature), slope)
    except LinAlgError:
        return cast("Floats", np.linalg.lstsq(curvature, slope, rcond=None)[0])
