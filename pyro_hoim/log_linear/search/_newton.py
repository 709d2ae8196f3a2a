"""Maximum likelihood of multinomial logistic laws over patterns, and the same with one statistic moved."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
_STEPS, _HALVINGS = 60, 30
_DONE = 1e-5  # nats that another step would bring
_FLAT = 1e-3  # rows of information: a direction of an infinite estimate has less by then
_FIRST, _STRENGTHS, _EVIDENCE_STEPS = 0.25, (0.02, 2.0), 3  # of ridges that rows choose
_RANK = 1e-10  # of the largest eigenvalue


@dataclass(frozen=True)
class Maximum:
    """A fit of parameters (q,) to statistics (P, r, q), which may be of less than full rank.

    Attributes:
        design: the statistics.
        counts: rows of every pattern and level (P, r).
        parameters: (q,).
        probs: of the levels in every pattern (P, r).
        value: the log-likelihood, without the ridge.
        penalised: the log-likelihood less the ridge.
    """

    design: Floats
    counts: Floats
    parameters: Floats
    probs: Floats
    value: float
    penalised: float

    def tilted(self, direction: Floats, target: float) -> tuple[float, float, float]:
        """The fit with one more statistic (P, r), whose total is ``target`` in place of the one seen.

        Returns what the log-likelihood rises by, the parameter of the statistic, and the root of the ratio of the
        determinants of both informations. Parameters of infinite estimates stay. The target must lie between the total
        seen and its expectation in this fit.
        """
        totals = self.counts.sum(1)
        values, vectors = np.linalg.eigh(information(self.design, totals, self.probs))
        moving = vectors[:, values > _FLAT]
        design = np.concatenate([self.design @ moving, direction[:, :, None]], 2)
        seen = np.einsum("pr,prq->q", self.counts, design)
        seen[-1] = target
        offset = self.design @ self.parameters
        found, probs, rise = _climbed(design, totals, seen, offset, 0.0)
        with_it = information(design, totals, probs)
        without = information(design[:, :, :-1], totals, self.probs)
        ratio = np.linalg.slogdet(with_it)[1] - np.linalg.slogdet(without)[1]
        return rise, float(found[-1]), math.exp(min(ratio, 1400.0) / 2)


def score_statistic(null: Maximum, added: Floats) -> float:
    """The score test of further statistics (P, r, k) beside those of a fit: chi-square of k degrees in the limit."""
    totals, num = null.counts.sum(1), null.design.shape[2]
    both = information(np.concatenate([null.design, added], 2), totals, null.probs)
    excess = np.einsum("pr,prk->k", null.counts - totals[:, None] * null.probs, added)
    inverse = np.linalg.pinv(both[:num, :num], hermitian=True)
    own = both[num:, num:] - both[num:, :num] @ inverse @ both[:num, num:]
    return float(excess @ np.linalg.pinv(own, hermitian=True) @ excess)


def maximised(design: Floats, counts: Floats, ridge: float | Floats = 0.0, start: Floats | None = None) -> Maximum:
    """The parameters of highest likelihood less half the ridge (of all, or of each) times their squares."""
    totals, seen = counts.sum(1), np.einsum("pr,prq->q", counts, design)
    offset = np.zeros(counts.shape)
    found, probs, _ = _climbed(design, totals, seen, offset, ridge, start)
    eta = design @ found
    value = float(found @ seen - totals @ _log_sum(eta))
    return Maximum(design, counts, found, probs, value, value - float(found @ (ridge * found)) / 2)


def evidence_strength(
    design: Floats, counts: Floats, is_random: NDArray[np.bool_], ridge: float
) -> tuple[float, Floats]:
    """The ridge of some parameters that their evidence chooses, beside a given one of the others, and the last fit.

    Steps of MacKay: the number of parameters that the rows determine over the squared length of all.
    """
    totals, strength, found = counts.sum(1), _FIRST, None
    for _ in range(_EVIDENCE_STEPS):
        held = np.where(is_random, strength, ridge)
        fit = maximised(design, counts, held, found)
        found = fit.parameters
        curvature = information(design, totals, fit.probs) + np.diag(held)
        determined = is_random.sum() - strength * np.linalg.inv(curvature).diagonal()[is_random].sum()
        strength = float(np.clip(determined / max(float((found[is_random] ** 2).sum()), 1e-300), *_STRENGTHS))
    assert found is not None
    return strength, found


def _climbed(
    design: Floats,
    totals: Floats,
    seen: Floats,
    offset: Floats,
    ridge: float | Floats,
    start: Floats | None = None,
) -> tuple[Floats, Floats, float]:
    """Parameters, probabilities and the rise of the objective from zero, by Newton's steps, halved where they fail."""
    base = float(totals @ _log_sum(offset))

    def objective(parameters: Floats, eta: Floats) -> float:
        held = float(parameters @ (ridge * parameters)) / 2
        return float(parameters @ seen - totals @ _log_sum(eta)) + base - held

    found = np.zeros(design.shape[2]) if start is None else start
    eta = offset + design @ found
    value, probs = objective(found, eta), _softmax(eta)
    for _ in range(_STEPS):
        slope = seen - np.einsum("p,pr,prq->q", totals, probs, design) - ridge * found
        curvature = information(design, totals, probs)
        curvature[np.diag_indices_from(curvature)] += ridge
        scale = max(float(curvature.diagonal().max(initial=0.0)), 1e-300)
        curvature[np.diag_indices_from(curvature)] += _RANK * scale
        step = np.linalg.solve(curvature, slope)
        gain = float(slope @ step) / 2
        if not gain > _DONE:
            break
        for _ in range(_HALVINGS):
            trial = found + step
            eta = offset + design @ trial
            new = objective(trial, eta)
            if new >= value:
                break
            step = step / 2
        else:
            break
        rise, value, found, probs = new - value, new, trial, _softmax(eta)
        if rise < _DONE:
            break
    return found, probs, value


def information(design: Floats, totals: Floats, probs: Floats) -> Floats:
    """Covariance of the statistics (q, q), summed over the rows."""
    mean = np.einsum("pr,prq->pq", probs, design)
    centred = (design - mean[:, None]) * np.sqrt(totals[:, None] * probs)[:, :, None]
    flat = centred.reshape(-1, design.shape[2])
    return flat.T @ flat


def _log_sum(eta: Floats) -> Floats:
    most = eta.max(1)
    return most + np.log(np.exp(eta - most[:, None]).sum(1))


def _softmax(eta: Floats) -> Floats:
    parts = np.exp(eta - eta.max(1, keepdims=True))
    return parts / parts.sum(1, keepdims=True)
