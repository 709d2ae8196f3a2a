"""The result of a fit: parameters, likelihood, how the solver ended, and what follows from them on demand."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch

from ..data import Observations
from ..errors import InputError, IntractableError
from ..models import Coding, LogLinearEnergy, parametrization
from ..partition import PartitionBackend
from ..structure.hypergraph import InteractionHypergraph
from .existence import Face, MLEExistence
from .penalties import Penalty, SmoothPenalty

__all__ = ["FitResult", "HistoryEntry"]

_MAX_COVARIANCE_PARAMETERS = 3000


class HistoryEntry(NamedTuple):
    """One iterate of a fit.

    Attributes:
        iteration: counted from 1.
        train_kl: mean negative log-likelihood of the training rows minus the entropy of their law, in nats; for the
            pseudo-likelihood the mean negative log pseudo-likelihood. The penalty is not included.
        validation_kl: the same of the validation rows, None without them.
        gradient_norm: largest absolute entry of the gradient per row.
    """

    iteration: int
    train_kl: float
    validation_kl: float | None
    gradient_norm: float


@dataclass(frozen=True, eq=False)
class FitResult:
    """A fitted hierarchical log-linear model.

    Attributes:
        hypergraph: the interaction structure.
        theta: free parameters (num_parameters,), float64. Where the estimate is infinite they are a finite member of
            the family whose probabilities differ from the limit by less than 1e-12 (small tables), or the last
            iterate (large ones).
        log_likelihood: of all rows, in nats; None where log Z is out of reach (pseudo-likelihood of a large model).
        log_partition: log Z of the balanced tables, in nats; None likewise. With structural zeros, over possible cells.
        num_rows: number of observations N (the sum of counts).
        status: ``converged``, ``infinite`` (converged towards an infinite estimate), ``max_iterations``, ``stalled``,
            ``early_stopped`` or ``interrupted``.
        num_iterations: iterations of the solver.
        gradient_norm: largest absolute entry of the gradient per row, at the end (at the best iterate after early
            stopping).
        existence: whether the maximum-likelihood estimate is finite; None where the question does not arise
            (penalised fits, pseudo-likelihood).
        objective: ``likelihood`` or ``pseudo-likelihood``.
        method: ``newton``, ``lbfgs`` or ``proximal-gradient``.
        penalty: the penalty, or None.
        partition: the backend used where the table is too large for a dense design.
        data: the observations, or None when sufficient statistics were given.
        margins: observed marginal counts (num_terms,), None for the pseudo-likelihood.
        possible: mask (num_states,) of possible cells, None when all are.
        history: iterates, when a validation set was given or ``keep_history`` was set.
        best_iteration: iteration whose parameters these are, after early stopping.
        validation_kl: validation divergence at these parameters, in nats; None without validation rows.
    """

    hypergraph: InteractionHypergraph
    theta: torch.Tensor = field(repr=False)
    log_likelihood: float | None
    log_partition: float | None
    num_rows: float
    status: str
    num_iterations: int
    gradient_norm: float
    existence: MLEExistence | None
    objective: str
    method: str
    penalty: Penalty | None = None
    partition: PartitionBackend | None = field(default=None, repr=False)
    data: Observations | None = field(default=None, repr=False)
    margins: torch.Tensor | None = field(default=None, repr=False)
    possible: np.ndarray | None = field(default=None, repr=False)
    history: tuple[HistoryEntry, ...] = field(default=(), repr=False)
    best_iteration: int | None = None
    validation_kl: float | None = None
    _face: Face | None = field(default=None, repr=False)
    _design: np.ndarray | None = field(default=None, repr=False)

    @property
    def is_converged(self) -> bool:
        """Whether the solver met its criterion, also when the limit is infinite."""
        return self.status in ("converged", "infinite")

    @cached_property
    def tables(self) -> torch.Tensor:
        """Balanced interaction tables (num_terms,)."""
        return parametrization(self.hypergraph).to_tables(self.theta)

    @cached_property
    def model(self) -> LogLinearEnergy:
        """The fitted energy; impossible cells, if any were declared, are not part of it."""
        return LogLinearEnergy(self.hypergraph, self.tables)

    def coefficients(self, coding: Coding = "free") -> torch.Tensor:
        """Theta in a coding (num(coding),)."""
        return parametrization(self.hypergraph).convert(self.theta, "free", coding, validate=False)

    @property
    def num_cells_fitted(self) -> int:
        """Possible cells that are not fitted as zero."""
        if self._face is not None:
            return int(self._face.cells.sum())
        return self.hypergraph.domain.num_states

    @property
    def num_parameters_fitted(self) -> int:
        """Free parameters that the data identify (all, unless the estimate is infinite or cells are impossible)."""
        return self.hypergraph.num_parameters if self._face is None else self._face.rank

    @cached_property
    def probs(self) -> torch.Tensor:
        """Fitted cell probabilities (num_states,), row-major; zero outside the facial set and in impossible cells.

        Raises:
            IntractableError: the fit did not use a dense design.
        """
        if self._design is None:
            raise IntractableError(
                f"probs: the table has {self.hypergraph.domain.num_states} cells and was fitted without a dense "
                "design; ask the partition backend for marginals instead"
            )
        cells = np.ones(len(self._design), dtype=bool) if self._face is None else self._face.cells
        logits = np.where(cells, self._design @ self.theta.numpy(), -np.inf)
        weights = np.exp(logits - logits.max())
        return torch.from_numpy(weights / weights.sum())

    @cached_property
    def information(self) -> torch.Tensor:
        r"""Fisher information of the free parameters for all rows, :math:`N \operatorname{Cov}_\theta[X]`.

        The Hessian of a smooth penalty is added. On a small table it costs O(cells x parameters^2); otherwise one
        backward pass through the backend for every parameter.

        Shape:
            result (num_parameters, num_parameters).

        Raises:
            InputError: not a fit of the likelihood, or the penalty is not smooth.
            IntractableError: more than 3,000 parameters.
        """
        if self.objective != "likelihood":
            raise InputError(f"covariance: expected a fit of the likelihood, received one of the {self.objective}")
        if self.penalty is not None and not isinstance(self.penalty, SmoothPenalty):
            raise InputError(f"covariance: {self.penalty!r} is not smooth; refit without a penalty or with L2")
        size = self.hypergraph.num_parameters
        if size > _MAX_COVARIANCE_PARAMETERS:
            raise IntractableError(
                f"covariance: {size} parameters, the limit is {_MAX_COVARIANCE_PARAMETERS}; use a posterior instead"
            )
        if self._design is not None:
            probs = self.probs.numpy()
            mean = probs @ self._design
            hessian = torch.from_numpy((self._design * probs[:, None]).T @ self._design - np.outer(mean, mean))
        else:
            hessian = self._backend_hessian()
        information = self.num_rows * hessian
        if isinstance(self.penalty, SmoothPenalty):
            diagonal = self.penalty.hessian_diagonal(self.theta.numpy(), self.hypergraph)
            information = information + torch.diag(torch.from_numpy(diagonal))
        return information

    def _backend_hessian(self) -> torch.Tensor:
        assert self.partition is not None
        coordinates = parametrization(self.hypergraph)
        with torch.enable_grad():
            free = self.theta.clone().requires_grad_()
            model = LogLinearEnergy(self.hypergraph, coordinates.to_tables(free), validate=False)
            value = self.partition.log_partition(model).value
            (gradient,) = torch.autograd.grad(value, free, create_graph=True)
            rows = [torch.autograd.grad(g, free, retain_graph=True)[0] for g in gradient]
        return torch.stack(rows) if rows else torch.zeros(0, 0, dtype=torch.float64)

    @cached_property
    def covariance(self) -> torch.Tensor:
        """Asymptotic covariance of the free parameters, the inverse of :attr:`information`.

        Where the estimate is infinite it is the pseudo-inverse on the facial set: variances of directions that are
        not identified are zero here and reported as infinite by the tables of standard errors.

        Shape:
            result (num_parameters, num_parameters).

        Raises:
            InputError: see :attr:`information`. IntractableError: likewise.
        """
        if self._face is None:
            return torch.linalg.inv(self.information)
        basis = torch.from_numpy(np.ascontiguousarray(self._face.basis))
        return basis @ torch.linalg.inv(basis.T @ self.information @ basis) @ basis.T

    def is_identified(self, contrasts: torch.Tensor) -> torch.Tensor:
        """Whether linear functions of the free parameters are identified by the data.

        Shape:
            contrasts (k, num_parameters); result (k,) of booleans.
        """
        if self._face is None:
            return torch.ones(len(contrasts), dtype=torch.bool)
        basis = torch.from_numpy(np.ascontiguousarray(self._face.basis))
        rest = contrasts - (contrasts @ basis) @ basis.T
        return rest.norm(dim=1) <= 1e-7 * contrasts.norm(dim=1).clamp(min=1e-300)

    def standard_errors(self, coding: Coding = "free") -> torch.Tensor:
        """Standard errors of theta in a coding, infinite where the data do not identify an entry.

        Shape:
            result (num(coding),).

        Raises:
            InputError: see :attr:`information`. IntractableError: likewise.
        """
        contrasts = parametrization(self.hypergraph).matrix("free", coding)
        return self.contrast_errors(contrasts)

    def contrast_errors(self, contrasts: torch.Tensor) -> torch.Tensor:
        """Standard errors of linear functions of the free parameters, infinite where they are not identified.

        Shape:
            contrasts (k, num_parameters); result (k,).
        """
        variances = ((contrasts @ self.covariance) * contrasts).sum(1).clamp(min=0)
        return variances.sqrt().masked_fill(~self.is_identified(contrasts), float("inf"))
