"""Interactions of one variable with each of the others, fitted to what the others say about it alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize
from scipy.sparse import block_diag, csr_matrix, eye

from ..schema import Domain
from ..structure.hypergraph import InteractionHypergraph
from .energy import LogLinearEnergy

__all__ = ["ClassInteractions", "fit_conditional", "fit_scored", "number_prior"]

_MOST_ITERATIONS = 1000
_TOLERANCE = 1e-7  # of the largest entry of the gradient per row, in units of the curvature
_ROUGH = 1e-4  # likewise, where fits are compared
_FREEDOMS = (0.5, 0.1), (2.0, 0.1), (1.0, 1.0)
"""Walk and spread of numbers: nearly linear, smooth, and every level by itself."""
_DENSE = 2**16  # entries of a matrix below which products of a sparse one take longer
_LEAST_SCORED = 4  # levels: of three there is little for a line to say
_PARTS, _SMALL = 5, 3e5  # of rows that are left out, and cells times classes of a table of which every part is


@dataclass(frozen=True, eq=False)
class ClassInteractions:
    r"""A joint distribution of a class and columns that are independent given the class.

    .. math:: q(x, y) \propto \exp\Big(\theta_y + \sum_i \theta^i_{x_i y}\Big) \prod_i s_i(x_i)

    With all columns known, the class has the distribution of a multinomial logistic regression on indicators of the
    levels. A missing cell is summed over level by level, with the shares :math:`s_i` of its column, which is the exact
    marginal of this joint distribution.

    Attributes:
        intercept: :math:`\theta_y` (C,).
        tables: :math:`\theta^i`, (K_i, C) for every column; like the intercept they sum to zero over the classes.
        log_shares: :math:`\log s_i`, (K_i,) for every column.
        is_converged: whether the solver met its criterion.
        num_iterations: of the solver.
    """

    intercept: np.ndarray
    tables: tuple[np.ndarray, ...]
    log_shares: tuple[np.ndarray, ...]
    is_converged: bool
    num_iterations: int

    @cached_property
    def _rows(self) -> tuple[np.ndarray, np.ndarray]:
        """Tables below one another, each with a last row for a missing cell, and where the next one begins (d,)."""
        parts = [
            np.vstack([table, np.logaddexp.reduce(table + shares[:, None], 0)])
            for table, shares in zip(self.tables, self.log_shares, strict=True)
        ]
        return np.vstack(parts), np.cumsum([len(part) for part in parts])

    def log_probs(self, codes: np.ndarray) -> np.ndarray:
        """Log probabilities (N, C) of the class given codes (N, d) of the columns, -1 where missing."""
        rows, ends = self._rows
        starts = np.concatenate([[0], ends[:-1]])
        positions = np.where(codes < 0, ends - 1, codes + starts)
        logits = np.tile(self.intercept, (len(codes), 1))
        for i in range(codes.shape[1]):
            logits += rows[positions[:, i]]
        return logits - np.logaddexp.reduce(logits, 1, keepdims=True)

    def energy(self, domain: Domain) -> LogLinearEnergy:
        """The joint distribution as a log-linear model of the columns and the class, which is the last variable."""
        *names, target = domain.names
        graph = InteractionHypergraph(domain, [(target,), *((name, target) for name in names)], closure=True)
        terms = torch.zeros(graph.num_terms, dtype=torch.float64)
        terms[graph.term_slices[target,]] = torch.from_numpy(self.intercept)
        for name, table, shares in zip(names, self.tables, self.log_shares, strict=True):
            terms[graph.term_slices[name,]] = torch.from_numpy(shares)
            terms[graph.term_slices[name, target]] = torch.from_numpy(table).flatten()
        return LogLinearEnergy(graph, terms)


def number_prior(numbers: np.ndarray, shares: np.ndarray, walk: float, spread: float) -> np.ndarray:
    r"""A factor of the prior covariance of the interactions of a class with the levels of a number.

    .. math:: \theta_k = \beta z_k + w_k + u_k, \quad \beta \sim N(0, 1), \quad
        w_k - w_{k - 1} \sim N(0, \sigma^2 / (K - 1)), \quad u_k \sim N(0, \tau^2)

    Here :math:`z_k` are the numbers of the levels in units of their standard deviation, so that :math:`\beta` alone is
    logistic regression on scaled numbers. The walk lets neighbours differ little, however many levels there are, and
    the last term lets every level differ from all others.

    Args:
        numbers: of the levels in increasing order (K,), such as means of the rows.
        shares: of the rows (K,), that sum to one.
        walk: :math:`\sigma`.
        spread: :math:`\tau`, positive.

    Returns:
        A factor F (K, R), where F F' is the covariance of :math:`\theta` of one class.
    """
    size = len(numbers)
    deviations = numbers - shares @ numbers
    scale = np.sqrt(shares @ deviations**2)
    parts = [spread * np.eye(size)]
    if scale > 0:
        steps = np.tril(np.ones((size, size)))[:, 1:] * (walk / np.sqrt(size - 1))
        parts += [(deviations / scale)[:, None], steps - shares @ steps]
    return np.hstack(parts)


def fit_conditional(
    codes: np.ndarray,
    classes: np.ndarray,
    sizes: Sequence[int],
    weights: np.ndarray,
    priors: Sequence[float | np.ndarray],
    tolerance: float = _TOLERANCE,
) -> ClassInteractions:
    r"""Maximise the conditional likelihood of a class given columns, less a penalty.

    .. math:: \sum_n w_n \log q(y_n \mid x_n) - \tfrac12 \sum_i \lambda_i \lVert \theta^i \rVert^2

    Missing cells of a row are summed over, as in :class:`ClassInteractions`, of whose columns the shares are those of
    the rows with one row more that is spread evenly over the levels. Log Z is not needed. A step costs N d C
    operations, by L-BFGS in coordinates that are scaled by the curvature at zero.

    Args:
        codes: of the columns (N, d), -1 where missing.
        classes: codes of the class (N,).
        sizes: numbers of levels of the d columns, then of the class.
        weights: of the rows (N,), positive.
        priors: of every column the strength :math:`\lambda_i`, 0 for none, or a factor F (K_i, R) of a prior
            covariance: then :math:`\theta^i = F z` and the penalty is that of z at strength 1. The intercept has none.
        tolerance: of the largest entry of the gradient per row, in units of the curvature.
    """
    rows = _Rows.of(codes, classes, sizes, weights)
    # Parameters of missing cells follow from others: their rows of the factor are zero.
    factors: list[Any] = [
        np.pad(p, ((0, 1), (0, 0))) if isinstance(p, np.ndarray) else eye(size + 1, size)
        for size, p in zip(sizes[:-1], priors, strict=True)
    ]
    factor: Any = block_diag([*factors, eye(1)], format="csr")
    adjoint: Any = factor.T.tocsr()  # which takes longer than a step where the table is small
    strengths = [
        np.full(f.shape[1], 1.0 if isinstance(p, np.ndarray) else p) for f, p in zip(factors, priors, strict=True)
    ]
    ridge = np.concatenate([*strengths, [0.0]])[:, None]
    # The classes' shares alone are where it begins; steps are in units of the curvature there.
    totals = np.append(rows.totals, rows.total)
    spread = (rows.basis**2 * (rows.class_shares * (1 - rows.class_shares))[:, None]).sum(0)
    curvature = np.maximum((adjoint.power(2) @ totals)[:, None] * spread + ridge, 1e-8 * rows.total)
    scale = curvature**-0.5
    start = np.zeros_like(scale)
    start[-1] = np.log(rows.class_shares) @ rows.basis / scale[-1]
    if math.prod(factor.shape) <= _DENSE:
        factor, adjoint = factor.toarray(), adjoint.toarray()

    def loss(scaled: np.ndarray) -> tuple[float, np.ndarray]:
        point = scaled.reshape(scale.shape) * scale
        value, gradient = rows.loss(factor @ point)
        value += 0.5 * float((ridge * point**2).sum())
        gradient = (adjoint @ gradient + ridge * point) * scale
        return value / rows.total, gradient.ravel() / rows.total

    options = {"maxiter": _MOST_ITERATIONS, "maxfun": 2 * _MOST_ITERATIONS, "gtol": tolerance, "ftol": 1e-7 * tolerance}
    solution = minimize(loss, start.ravel(), jac=True, method="L-BFGS-B", options=options | {"maxcor": 20})
    # Tables of the classes again.
    theta = factor @ (solution.x.reshape(scale.shape) * scale) @ rows.basis.T
    tables = tuple(theta[first : last - 1] for first, last in zip(rows.starts, rows.ends, strict=True))
    return ClassInteractions(theta[-1], tables, rows.log_shares, solution.status != 1, int(solution.nit))


def fit_scored(
    codes: np.ndarray,
    classes: np.ndarray,
    sizes: Sequence[int],
    weights: np.ndarray,
    strengths: Sequence[float],
    scores: Sequence[np.ndarray | None],
) -> ClassInteractions:
    """As :func:`fit_conditional`, with priors of :func:`number_prior` for columns of four levels or more with scores.

    How far levels may leave the line of their numbers is chosen by the likelihood of rows that are left out: one of
    three settings for all columns. Equal rows are left out together. All fifths of a small table are left out in turn,
    of a large one the first alone.

    Args:
        codes: as of :func:`fit_conditional`, likewise the following.
        classes: codes of the class (N,).
        sizes: numbers of levels.
        weights: of the rows.
        strengths: of the columns; the covariance of a column with scores is divided by it.
        scores: numbers of the levels of every column (K_i,), None for labels.
    """
    # Shares of the levels, by which the numbers are scaled.
    factors = list[Any]()
    is_scored = [s is not None and size >= _LEAST_SCORED for s, size in zip(scores, sizes[:-1], strict=True)]
    if not any(is_scored):
        return fit_conditional(codes, classes, sizes, weights, strengths)
    for walk, spread in _FREEDOMS:
        priors = list[Any](strengths)
        for i in np.flatnonzero(is_scored).tolist():
            is_known = codes[:, i] >= 0
            totals = np.bincount(codes[is_known, i], weights[is_known], sizes[i])
            numbers: Any = scores[i]
            priors[i] = number_prior(numbers, totals / totals.sum(), walk, spread) / np.sqrt(strengths[i])
        factors.append(priors)
    # Rows by the part of the table that they are left out with.
    cells = np.unique(codes, axis=0, return_inverse=True)[1].ravel()
    part = np.random.default_rng(0).permutation(cells.max() + 1)[cells] % _PARTS
    size = codes.size * (sizes[-1] - 1)
    losses = np.zeros(len(factors))
    for left_out in range(_PARTS if size <= _SMALL else 1):
        is_left_out = part == left_out
        is_fitted = ~is_left_out & (weights > 0)
        if len(np.unique(classes[is_fitted])) < sizes[-1]:
            continue  # a class that is left out as a whole
        for i, priors in enumerate(factors):
            rows = codes[is_fitted], classes[is_fitted], sizes, weights[is_fitted]
            log_probs = fit_conditional(*rows, priors, tolerance=_ROUGH).log_probs(codes[is_left_out])
            chosen = np.take_along_axis(log_probs, classes[is_left_out, None], 1)[:, 0]
            losses[i] -= chosen @ weights[is_left_out]
    return fit_conditional(codes, classes, sizes, weights, factors[int(losses.argmin())])


@dataclass(frozen=True, eq=False)
class _Rows:
    """Rows of a fit as indicators of their cells; a missing cell is that of a further level, the last of its column.

    Parameters (P + 1, C - 1) have a row for every level and one for the intercept, in the orthonormal ``basis``
    (C, C - 1) of what sums to zero over the classes. Those of missing cells follow from others.
    """

    indicators: csr_matrix
    transposed: csr_matrix
    answers: np.ndarray
    weights: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    log_shares: tuple[np.ndarray, ...]
    basis: np.ndarray

    @classmethod
    def of(cls, codes: np.ndarray, classes: np.ndarray, sizes: Sequence[int], weights: np.ndarray) -> _Rows:
        """Of what :func:`fit_conditional` takes."""
        *levels, num_classes = sizes
        ends = np.cumsum([size + 1 for size in levels])
        starts = np.concatenate([[0], ends[:-1]])
        positions = np.where(codes < 0, ends - 1, codes + starts)
        limits = np.arange(0, codes.size + 1, codes.shape[1])
        indicators = csr_matrix((np.ones(codes.size), positions.ravel(), limits), (len(codes), int(ends[-1])))
        transposed = indicators.T.tocsr()
        totals = np.split(transposed @ weights, ends[:-1])
        shares = tuple(np.log((part[:-1] + 1 / (len(part) - 1)) / (part[:-1].sum() + 1)) for part in totals)
        basis = np.linalg.qr(np.eye(num_classes) - 1 / num_classes)[0][:, : num_classes - 1]
        return cls(indicators, transposed, np.eye(num_classes)[:, classes], weights, starts, ends, shares, basis)

    @cached_property
    def total(self) -> float:
        """Weight of all rows."""
        return float(self.weights.sum())

    @cached_property
    def totals(self) -> np.ndarray:
        """Weight of the rows of every indicator (P,)."""
        return self.transposed @ self.weights

    @cached_property
    def class_shares(self) -> np.ndarray:
        """Shares of the classes (C,)."""
        return self.answers @ self.weights / self.total

    @cached_property
    def gaps(self) -> list[int]:
        """Columns of which some row has no cell."""
        return np.flatnonzero(self.totals[self.ends - 1] > 0).tolist()

    def loss(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        """Minus the log-likelihood of the classes, and its gradient (P + 1, C - 1)."""
        # A missing cell says what its levels say together.
        filled, sums = theta.copy(), list[tuple[slice, int, np.ndarray]]()
        for i in self.gaps:
            part, last = slice(self.starts[i], self.ends[i] - 1), self.ends[i] - 1
            terms = theta[part] @ self.basis.T + self.log_shares[i][:, None]
            values = np.logaddexp.reduce(terms, 0)
            filled[last] = values @ self.basis
            sums.append((part, last, np.exp(terms - values)))
        logits = self.basis @ (self.indicators @ filled[:-1] + filled[-1]).T
        log_probs = logits - np.logaddexp.reduce(logits, 0)
        residuals = self.basis.T @ (self.weights * (np.exp(log_probs) - self.answers))
        gradient = np.vstack([self.transposed @ residuals.T, residuals.sum(1)])
        # So its gradient is shared among them.
        for part, last, portions in sums:
            gradient[part] += portions * (self.basis @ gradient[last]) @ self.basis
            gradient[last] = 0.0
        return -float((log_probs * self.answers).sum(0) @ self.weights), gradient
