"""Maximum likelihood of the law of one variable given others, a multinomial logistic one, and with statistics moved."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import block_diag
from scipy.special import softmax

Floats = NDArray[np.float64]
_STEPS, _HALVINGS = 60, 30
_DONE = 1e-5  # nats that another step would bring
_FLAT = 1e-3  # rows of information: a direction of an infinite estimate has less by then
_FIRST, _STRENGTHS, _EVIDENCE_STEPS = 0.25, (0.02, 2.0), 3  # of ridges that rows choose
_RANK = 1e-10  # of the largest eigenvalue


@dataclass(frozen=True, eq=False)
class Design:
    """Statistics of patterns and levels, which may be of less than full rank: products, never written out.

    A part has columns (P, f) of the patterns and contrasts (r, c) of the levels. Its f c statistics are their products,
    and its parameters are in the order of columns, then of contrasts.
    """

    parts: tuple[tuple[Floats, Floats], ...]

    def __add__(self, other: Design) -> Design:
        return Design(self.parts + other.parts)

    @cached_property
    def starts(self) -> list[int]:
        """First parameter of every part, and the end."""
        return np.cumsum([0, *(x.shape[1] * c.shape[1] for x, c in self.parts)]).tolist()

    def __len__(self) -> int:
        return self.starts[-1]

    def scores(self, parameters: Floats) -> Floats:
        """Sums of the statistics times parameters, (P, r)."""
        total: Floats | float = 0.0
        for (x, c), start in zip(self.parts, self.starts, strict=False):
            total = total + (x @ parameters[start : start + x.shape[1] * c.shape[1]].reshape(-1, c.shape[1])) @ c.T
        return np.asarray(total)

    def totals(self, weights: Floats) -> Floats:
        """Sums of the statistics (q,) over cells with weights (P, r)."""
        return np.concatenate([(x.T @ (weights @ c)).ravel() for x, c in self.parts])

    def information(self, totals: Floats, probs: Floats) -> Floats:
        """Covariance of the statistics (q, q), summed over rows: so many (P,) of every pattern."""
        roots = np.sqrt(totals[:, None] * probs)[:, :, None]
        spread = [roots * (c - (probs @ c)[:, None]) for _, c in self.parts]
        result = np.empty((len(self), len(self)))
        for i, (x, c) in enumerate(self.parts):
            for j in range(i, len(self.parts)):
                other, width = self.parts[j][0], self.parts[j][1].shape[1]
                covariance = spread[i].transpose(0, 2, 1) @ spread[j]
                begin, end = self.starts[j : j + 2]
                for a in range(c.shape[1]):
                    weighted = (other[:, :, None] * covariance[:, a, None, :]).reshape(len(x), other.shape[1] * width)
                    result[self.starts[i] + a : self.starts[i + 1] : c.shape[1], begin:end] = x.T @ weighted
                result[begin:end, self.starts[i] : self.starts[i + 1]] = result[
                    self.starts[i] : self.starts[i + 1], begin:end
                ].T
        return result


@dataclass(frozen=True, eq=False)
class Maximum:
    """A fit of parameters (q,) to the statistics of patterns, where levels were counted (P, r)."""

    design: Design
    counts: Floats
    parameters: Floats
    probs: Floats  # of the levels in every pattern (P, r)
    value: float  # the log-likelihood, without the ridge
    penalised: float  # less the ridge
    coarser: Maximum | None = None  # the same fit where patterns of equal statistics are one

    def refined(self, design: Design, counts: Floats) -> Maximum:
        """This fit with the same statistics for patterns that are divided further."""
        probs = softmax(design.scores(self.parameters), 1)
        return Maximum(design, counts, self.parameters, probs, self.value, self.penalised, self)

    @cached_property
    def _eigen(self) -> tuple[Floats, Floats]:
        """Eigenvalues and eigenvectors of the information."""
        if self.coarser is not None:
            return self.coarser._eigen
        values, vectors = np.linalg.eigh(self.design.information(self.counts.sum(1), self.probs))
        return values, vectors

    def tilted(self, direction: Design, target: float) -> tuple[float, float, float]:
        """The fit with one more statistic, whose total is ``target`` in place of the one seen.

        Returns what the log-likelihood rises by, the parameter of the statistic, and the root of the ratio of the
        determinants of both informations. Parameters of infinite estimates stay. The target must lie between the total
        seen and its expectation in this fit.
        """
        totals, (values, vectors) = self.counts.sum(1), self._eigen
        is_moving = values > _FLAT
        basis = np.asarray(block_diag(vectors[:, is_moving], 1.0))
        design = self.design + direction
        seen = np.append(self.design.totals(self.counts), target)
        offset = self.design.scores(self.parameters)
        parameters, probs, rise = _climbed(design, totals, seen, offset, 0.0, basis=basis)
        with_it = basis.T @ design.information(totals, probs) @ basis
        ratio = np.linalg.slogdet(with_it)[1] - np.log(values[is_moving]).sum()
        return rise, float(parameters[-1]), math.exp(min(ratio, 1400.0) / 2)

    def score_statistic(self, added: Design) -> float:
        """The score test of further statistics: chi-square of as many degrees of freedom in the limit.

        Parameters of infinite estimates stay, and directions without information do not count, of which rounding would
        decide; that makes the statistic no larger.
        """
        totals, num, (values, vectors) = self.counts.sum(1), len(self.design), self._eigen
        both = (self.design + added).information(totals, self.probs)
        excess = added.totals(self.counts - totals[:, None] * self.probs)
        is_moving = values > _FLAT
        shared = vectors[:, is_moving].T @ both[:num, num:]
        adjusted = both[num:, num:] - shared.T @ (shared / values[is_moving, None])
        values, vectors = np.linalg.eigh(adjusted)
        return float(((excess @ vectors[:, values > _FLAT]) ** 2 / values[values > _FLAT]).sum())


def maximised(design: Design, counts: Floats, ridge: float | Floats = 0.0, start: Floats | None = None) -> Maximum:
    """The parameters of highest likelihood less half the ridge (of all, or of each) times their squares."""
    totals, seen = counts.sum(1), design.totals(counts)
    solution, probs, _ = _climbed(design, totals, seen, np.zeros(counts.shape), ridge, start)
    value = float(solution @ seen - totals @ _log_sum(design.scores(solution)))
    return Maximum(design, counts, solution, probs, value, value - float(solution @ (ridge * solution)) / 2)


def evidence_strength(
    design: Design, counts: Floats, is_random: NDArray[np.bool_], ridge: float
) -> tuple[float, Floats]:
    """The ridge of some parameters that their evidence chooses, beside a given one of the others, and the last fit.

    Steps of MacKay: the number of parameters that the rows determine over the squared length of all.
    """
    totals, strength, solution = counts.sum(1), _FIRST, None
    for _ in range(_EVIDENCE_STEPS):
        ridges = np.where(is_random, strength, ridge)
        fit = maximised(design, counts, ridges, solution)
        solution = fit.parameters
        curvature = design.information(totals, fit.probs) + np.diag(ridges)
        determined = is_random.sum() - strength * np.linalg.inv(curvature).diagonal()[is_random].sum()
        strength = float(np.clip(determined / max(float((solution[is_random] ** 2).sum()), 1e-300), *_STRENGTHS))
    assert solution is not None
    return strength, solution


def _climbed(
    design: Design,
    totals: Floats,
    seen: Floats,
    offset: Floats,
    ridge: float | Floats,
    start: Floats | None = None,
    basis: Floats | None = None,
) -> tuple[Floats, Floats, float]:
    """Parameters, probabilities and the rise of the objective from zero, by Newton's steps, halved where they fail.

    With a basis (q, m) parameters stay in its span.
    """
    base = float(totals @ _log_sum(offset))

    def objective(parameters: Floats, eta: Floats) -> float:
        penalty = float(parameters @ (ridge * parameters)) / 2
        return float(parameters @ seen - totals @ _log_sum(eta)) + base - penalty

    # Newton's steps on a curvature that is raised by rounding's share, until one promises next to nothing.
    solution = np.zeros(len(design)) if start is None else start
    eta = offset + design.scores(solution)
    value, probs = objective(solution, eta), softmax(eta, 1)
    for _ in range(_STEPS):
        slope = seen - design.totals(totals[:, None] * probs) - ridge * solution
        curvature = design.information(totals, probs)
        curvature[np.diag_indices_from(curvature)] += ridge
        if basis is not None:
            slope, curvature = basis.T @ slope, basis.T @ curvature @ basis
        scale = max(float(curvature.diagonal().max(initial=0.0)), 1e-300)
        curvature[np.diag_indices_from(curvature)] += _RANK * scale
        step = np.linalg.solve(curvature, slope)
        gain = float(slope @ step) / 2
        if not gain > _DONE:
            break
        step = step if basis is None else basis @ step
        for _ in range(_HALVINGS):
            trial = solution + step
            eta = offset + design.scores(trial)
            new = objective(trial, eta)
            if new >= value:
                break
            step = step / 2
        else:
            break
        rise, value, solution, probs = new - value, new, trial, softmax(eta, 1)
        if rise < _DONE:
            break
    return solution, probs, value


def _log_sum(eta: Floats) -> Floats:
    most = eta.max(1)
    return most + np.log(np.exp(eta - most[:, None]).sum(1))
