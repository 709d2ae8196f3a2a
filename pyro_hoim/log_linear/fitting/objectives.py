r"""Objectives of a fit: mean losses over rows in nats, as functions of the free parameters.

An objective evaluates its value and gradient; one that also has an exact Hessian says so with ``has_hessian``. Solvers
see only this interface, so objective, penalty and solver combine freely; what does not fit together is refused by
:func:`~pyro_hoim.log_linear.fitting.arguments.choose_method` before any work.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import torch
from scipy.linalg import get_blas_funcs

from ...core.partition import PartitionBackend
from ...data.observations import Observations
from ...errors import InputError, refused
from ...structure.hypergraph import InteractionHypergraph
from ..coding import parametrization
from ..energy import LogLinearEnergy
from .penalties import Penalty, SmoothPenalty

__all__ = [
    "DenseLikelihood",
    "Likelihood",
    "Objective",
    "Penalised",
    "PseudoLikelihood",
    "WithFictiveRows",
    "missing_hessian",
]

(_symmetric_product,) = get_blas_funcs(("syrk",), dtype=np.float64)


class Objective(Protocol):
    """A convex mean loss over rows.

    Attributes:
        name: ``likelihood`` or ``pseudo-likelihood``.
        has_hessian: whether ``hessian`` may be called; solvers with ``needs_hessian`` take no other objective.
        loss: the value evaluated last without any penalty.

    Laws: ``evaluate`` returns the value in nats per row and its gradient; ``hessian`` (when ``has_hessian``) is that at
    the parameters evaluated last.
    """

    name: str
    has_hessian: bool
    loss: float

    def evaluate(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        """Value and gradient at free parameters (num_parameters,)."""
        ...

    def hessian(self) -> np.ndarray:
        """Hessian (num_parameters, num_parameters) at the parameters evaluated last; its upper triangle is read."""
        ...


class DenseLikelihood:
    r"""Mean negative log-likelihood of a small table, with its exact Hessian.

    .. math:: f(\theta) = \log Z(\theta) - \theta \cdot t, \qquad
        \nabla f = \mathrm{E}_\theta[X] - t, \qquad \nabla^2 f = \mathrm{Cov}_\theta[X]

    with :math:`X` the free statistics of a cell and t their empirical mean. An evaluation costs two products with the
    design, the Hessian one symmetric product: O(cells x parameters^2).

    Args:
        design: statistics of the cells that can occur, (cells, parameters).
        statistics: empirical means t (parameters,).

    References:
        James Enouen and Mahito Sugiyama, A Complete Decomposition of KL Error using Refined Information and Mode
        Interaction Selection, 2024, section 4.2.
    """

    name = "likelihood"
    title = "the likelihood on a dense design"
    has_hessian = True

    def __init__(self, design: np.ndarray, statistics: np.ndarray) -> None:
        self.design = design
        self.statistics = statistics
        self.loss = float("nan")
        self.probs = np.empty(0)
        self._mean = np.empty(0)

    def evaluate(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        """Value and gradient at parameters (parameters,)."""
        logits = self.design @ theta
        top = logits.max()
        weights = np.exp(logits - top)
        total = weights.sum()
        self.probs = weights / total
        self._mean = self.probs @ self.design
        self.loss = float(top + np.log(total) - theta @ self.statistics)
        return self.loss, self._mean - self.statistics

    def hessian(self) -> np.ndarray:
        """Covariance of the statistics at the parameters evaluated last, its upper triangle."""
        if not self.design.shape[1]:
            return np.zeros((0, 0))  # BLAS would complain about a matrix without rows on standard output
        scaled = self.design * np.sqrt(self.probs)[:, None]
        # The transposed C-ordered matrix is Fortran-ordered, as BLAS wants it; only the upper triangle is filled.
        covariance = _symmetric_product(1.0, scaled.T, trans=0, lower=0)
        covariance -= self._mean[:, None] * self._mean
        return covariance


class Likelihood:
    """Mean negative log-likelihood through a partition backend, exact where the backend is.

    One evaluation is one log partition function and one sweep of autograd, whatever the number of rows.

    Args:
        hypergraph: the interaction structure.
        statistics: empirical means of the free statistics (num_parameters,).
        partition: the backend.
    """

    name = "likelihood"
    title = "the likelihood through a partition backend"
    has_hessian = False

    def __init__(self, hypergraph: InteractionHypergraph, statistics: np.ndarray, partition: PartitionBackend) -> None:
        self.hypergraph = hypergraph
        self.statistics = statistics
        self.partition = partition
        self.loss = float("nan")
        self._coordinates = parametrization(hypergraph)

    def evaluate(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        """Value and gradient at free parameters (num_parameters,)."""
        free = torch.from_numpy(theta)
        with torch.enable_grad():
            tables = self._coordinates.to_tables(free).requires_grad_()
            value = self.partition.log_partition(LogLinearEnergy(self.hypergraph, tables, validate=False)).value
            (eta,) = torch.autograd.grad(value, tables)
        gradient = self._coordinates.free_statistics(eta).numpy() - self.statistics
        self.loss = float(value.detach()) - float(theta @ self.statistics)
        return self.loss, gradient

    def hessian(self) -> np.ndarray:
        """Not offered: its entries are marginals of unions of two hyperedges."""
        raise InputError(missing_hessian(type(self)))


class PseudoLikelihood:
    r"""Mean negative log pseudo-likelihood, :math:`-\tfrac1N \sum_n \sum_i \log q(x_{n,i} \mid x_{n,-i})`.

    It needs no partition function; one evaluation costs O(distinct rows x hyperedges x cardinality). Its minimiser is
    consistent, and equals the maximum-likelihood estimate for independent and saturated models.

    Args:
        hypergraph: the interaction structure.
        rows: complete rows with counts.

    References:
        Julian Besag, Statistical analysis of non-lattice data, 1975, equation (3).
    """

    name = "pseudo-likelihood"
    title = "the pseudo-likelihood"
    has_hessian = False

    def __init__(self, hypergraph: InteractionHypergraph, rows: Observations) -> None:
        distinct = rows.unique()
        self.hypergraph = hypergraph
        self.loss = float("nan")
        self._codes = distinct.codes
        self._weights = distinct.counts / distinct.counts.sum()
        self._coordinates = parametrization(hypergraph)

    def evaluate(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        """Value and gradient at free parameters (num_parameters,)."""
        with torch.enable_grad():
            free = torch.from_numpy(theta).clone().requires_grad_()
            value = self._loss(free)
            (gradient,) = torch.autograd.grad(value, free)
        self.loss = float(value.detach())
        return self.loss, gradient.numpy()

    def hessian(self) -> np.ndarray:
        """Not offered."""
        raise InputError(missing_hessian(type(self)))

    def value(self, theta: np.ndarray) -> float:
        """The mean loss at free parameters (num_parameters,), without a gradient."""
        with torch.no_grad():
            return float(self._loss(torch.from_numpy(theta)))

    def _loss(self, free: torch.Tensor) -> torch.Tensor:
        model = LogLinearEnergy(self.hypergraph, self._coordinates.to_tables(free), validate=False)
        return -(self._weights @ model.log_pseudo_prob(self._codes))


class Penalised:
    """An objective plus a smooth penalty divided by the number of rows.

    Args:
        objective: the mean loss.
        penalty: a smooth penalty on all rows.
        hypergraph: the interaction structure.
        total_count: number of rows N.
    """

    def __init__(
        self, objective: Objective, penalty: Penalty, hypergraph: InteractionHypergraph, total_count: float
    ) -> None:
        if not isinstance(penalty, SmoothPenalty):
            raise refused("penalty", f"{penalty!r} is not smooth", "use method='proximal-gradient'", code="no-method")
        self.name = objective.name
        self.has_hessian = objective.has_hessian
        self.loss = float("nan")
        self._objective = objective
        self._value = penalty.value
        self._penalty = penalty
        self._hypergraph = hypergraph
        self._weight = 1 / total_count
        self._theta = np.empty(0)

    def evaluate(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        """Value and gradient at free parameters (num_parameters,)."""
        value, gradient = self._objective.evaluate(theta)
        self.loss = self._objective.loss
        self._theta = theta
        value += self._weight * self._value(theta, self._hypergraph)
        return value, gradient + self._weight * self._penalty.gradient(theta, self._hypergraph)

    def hessian(self) -> np.ndarray:
        """Hessian at the parameters evaluated last."""
        hessian = self._objective.hessian()
        diagonal = self._penalty.hessian_diagonal(self._theta, self._hypergraph)
        hessian[np.diag_indices_from(hessian)] += self._weight * diagonal
        return hessian


class WithFictiveRows:
    """A mean negative log-likelihood plus that of fictive rows spread evenly over the cells, per observed row.

    Args:
        objective: the mean loss of the observed rows.
        share: fictive rows for each observed one.
    """

    def __init__(self, objective: DenseLikelihood | Likelihood, share: float) -> None:
        self.name = objective.name
        self.has_hessian = objective.has_hessian
        self.loss = float("nan")
        self._objective = objective
        self._share = share

    def evaluate(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        """Value and gradient at free parameters (num_parameters,)."""
        value, gradient = self._objective.evaluate(theta)
        self.loss = self._objective.loss
        statistics = self._objective.statistics
        log_z = self.loss + float(theta @ statistics)
        return value + self._share * log_z, gradient + self._share * (gradient + statistics)

    def hessian(self) -> np.ndarray:
        """Hessian at the parameters evaluated last."""
        return (1 + self._share) * self._objective.hessian()


def missing_hessian(objective: type[DenseLikelihood | Likelihood | PseudoLikelihood]) -> str:
    """The sentence about a solver that needs the Hessian of an objective that has none."""
    return f"method: 'newton' needs a Hessian, which {objective.title} does not offer; use 'lbfgs'"
