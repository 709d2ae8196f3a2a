"""Interactions of one variable with each of the others, fitted to what the others say about it alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from scipy.optimize import minimize
from scipy.sparse import csr_matrix

from ..schema import Domain
from ..structure.hypergraph import InteractionHypergraph
from .energy import LogLinearEnergy

__all__ = ["ClassInteractions", "fit_conditional"]

_MOST_ITERATIONS = 1000
_TOLERANCE = 1e-7  # of the largest entry of the gradient per row, in units of the curvature


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


def fit_conditional(
    codes: np.ndarray, classes: np.ndarray, sizes: Sequence[int], weights: np.ndarray, strengths: Sequence[float]
) -> ClassInteractions:
    r"""Maximise the conditional likelihood of a class given columns, less a ridge penalty.

    .. math:: \sum_n w_n \log q(y_n \mid x_n) - \tfrac12 \sum_i \lambda_i \lVert \theta^i \rVert^2

    Missing cells of a row are summed over, as in :class:`ClassInteractions`, of whose columns the shares are those of
    the rows with one row more that is spread evenly over the levels. Log Z is not needed. A step costs N d C
    operations, by L-BFGS in coordinates that are scaled by the curvature at zero.

    Args:
        codes: of the columns (N, d), -1 where missing.
        classes: codes of the class (N,).
        sizes: numbers of levels of the d columns, then of the class.
        weights: of the rows (N,), positive.
        strengths: :math:`\lambda_i` of the d columns, 0 for none; the intercept has none.
    """
    rows = _Rows.of(codes, classes, sizes, weights)
    # The classes' shares alone are where it begins; steps are in units of the curvature there.
    ridge = np.concatenate([np.repeat(strengths, rows.ends - rows.starts), [0.0]])[:, None]
    totals = np.append(rows.totals, rows.total)[:, None]
    spread = (rows.basis**2 * (rows.class_shares * (1 - rows.class_shares))[:, None]).sum(0)
    curvature = np.maximum(totals * spread + ridge, 1e-8 * rows.total)[rows.is_free]
    scale = curvature**-0.5
    start = np.zeros_like(scale)
    start[-1] = np.log(rows.class_shares) @ rows.basis / scale[-1]

    def loss(scaled: np.ndarray) -> tuple[float, np.ndarray]:
        theta = np.zeros((len(rows.is_free), scale.shape[1]))
        theta[rows.is_free] = scaled.reshape(scale.shape) * scale
        value, gradient = rows.loss(theta)
        value += 0.5 * float((ridge * theta**2).sum())
        gradient = (gradient + ridge * theta)[rows.is_free] * scale
        return value / rows.total, gradient.ravel() / rows.total

    options = {"maxiter": _MOST_ITERATIONS, "maxfun": 2 * _MOST_ITERATIONS, "gtol": _TOLERANCE, "ftol": 1e-14}
    solution = minimize(loss, start.ravel(), jac=True, method="L-BFGS-B", options=options | {"maxcor": 20})
    # Tables of the classes again.
    theta = np.zeros((len(rows.is_free), scale.shape[1]))
    theta[rows.is_free] = solution.x.reshape(scale.shape) * scale
    theta = theta @ rows.basis.T
    tables = tuple(theta[first : last - 1] for first, last in zip(rows.starts, rows.ends, strict=True))
    return ClassInteractions(theta[-1], tables, rows.log_shares, solution.status != 1, int(solution.nit))


@dataclass(frozen=True, eq=False)
class _Rows:
    """Rows of a fit as indicators of their cells; a missing cell is that of a further level, the last of its column.

    Parameters (P + 1, C - 1) have a row for every level and one for the intercept, in the orthonormal ``basis``
    (C, C - 1) of what sums to zero over the classes. Those of missing cells follow from others and are not free.
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
    def is_free(self) -> np.ndarray:
        """Which rows of the parameters (P + 1,) are free."""
        mask = np.ones(self.ends[-1] + 1, dtype=bool)
        mask[self.ends - 1] = False
        return mask

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
