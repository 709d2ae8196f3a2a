r"""Penalties on theta: functions added to the negative log-likelihood *of all rows*, in nats.

A penalty is minus the log density of a prior up to a constant, so a penalised fit is a posterior mode: ``L2(1 / s**2)``
is independent normal priors of standard deviation ``s``, ``L1(1 / b)`` Laplace priors of scale ``b``. What a penalty
offers beyond its value, derivatives (:class:`SmoothPenalty`) or a proximal map (:class:`ProximalPenalty`), decides
which solvers take it.

The same numbers in free and in corner coordinates are another penalty. A penalty says by ``coding`` which it acts on,
and the fit works in those coordinates; one without this attribute acts on free ones.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import numpy as np
import torch

from ...errors import check_choice, check_positive, conflict
from ...structure.hypergraph import InteractionHypergraph
from ..auto import Auto
from ..energy import LogLinearEnergy
from .design import Coordinates, own_coordinates

PenaltyCoding = Literal["free", "corner"]


class Penalty(Protocol):
    """What every penalty has: a value in nats."""

    def value(self, theta: np.ndarray, hypergraph: InteractionHypergraph) -> float:
        """The penalty of theta (num_parameters,), in the penalty's coordinates."""
        ...


@runtime_checkable
class SmoothPenalty(Penalty, Protocol):
    """A twice differentiable penalty with a diagonal Hessian."""

    def gradient(self, theta: np.ndarray, hypergraph: InteractionHypergraph) -> np.ndarray:
        """Gradient (num_parameters,)."""
        ...

    def hessian_diagonal(self, theta: np.ndarray, hypergraph: InteractionHypergraph) -> np.ndarray:
        """Diagonal of the Hessian (num_parameters,)."""
        ...


@runtime_checkable
class ProximalPenalty(Penalty, Protocol):
    """A convex penalty whose proximal map has a closed form."""

    def prox(self, theta: np.ndarray, step: float, hypergraph: InteractionHypergraph) -> np.ndarray:
        r"""Minimiser of :math:`\tfrac12 \|x - \theta\|^2 + \mathrm{step} \cdot \mathrm{penalty}(x)`."""
        ...


@runtime_checkable
class CoupledPenalty(Protocol):
    """A smooth penalty that may couple free coordinates, so that its Hessian need not be diagonal."""

    def is_diagonal(self, hypergraph: InteractionHypergraph) -> bool:
        """Whether its Hessian in free coordinates is diagonal for this collection."""
        ...


def coding_of(penalty: Penalty) -> PenaltyCoding:
    """The coordinates that a penalty acts on: what it says, otherwise free ones."""
    return getattr(penalty, "coding", "free")


class GaussianPenalty(ABC):
    """Minus the log density of a normal prior of mean zero up to a constant; its precision says all the rest."""

    @abstractmethod
    def precision(self, hypergraph: InteractionHypergraph) -> np.ndarray:
        """One over the variance of every coordinate (num_parameters,), which are independent."""

    def value(self, theta: np.ndarray, hypergraph: InteractionHypergraph) -> float:
        """The penalty in nats."""
        return 0.5 * float(theta @ self.gradient(theta, hypergraph))

    def gradient(self, theta: np.ndarray, hypergraph: InteractionHypergraph) -> np.ndarray:
        """Gradient (num_parameters,)."""
        return self.precision(hypergraph) * theta

    def hessian_diagonal(self, theta: np.ndarray, hypergraph: InteractionHypergraph) -> np.ndarray:  # noqa: ARG002
        """Diagonal of the Hessian (num_parameters,)."""
        return self.precision(hypergraph)

    def prox(self, theta: np.ndarray, step: float, hypergraph: InteractionHypergraph) -> np.ndarray:
        """Minimiser of half the squared distance from theta plus ``step`` times the penalty."""
        return theta / (1 + step * self.precision(hypergraph))


@dataclass(frozen=True)
class L2(GaussianPenalty):
    r"""Ridge penalty, :math:`\tfrac{\lambda}{2} \|\theta\|^2`, for a positive ``strength`` lambda.

    The free basis is orthonormal, so there this is the squared norm of the balanced tables and depends on no reference
    level; in the coding "corner" it does. Lambda is one over the variance of the equivalent normal prior.

    Example:
        >>> from pyro_hoim import Domain
        >>> graph = InteractionHypergraph.saturated(Domain.from_cardinalities({"a": 2, "b": 2}))
        >>> theta = np.array([1.0, -2.0, 2.0])
        >>> L2(0.5).value(theta, graph), L2(0.5).gradient(theta, graph).tolist()  # 0.25 * 9
        (2.25, [0.5, -1.0, 1.0])
    """

    strength: float
    coding: PenaltyCoding = "free"

    def __post_init__(self) -> None:
        check_positive(self.strength, "strength")
        check_choice(self.coding, ("free", "corner"), "coding")

    def precision(self, hypergraph: InteractionHypergraph) -> np.ndarray:
        """The strength of every coordinate (num_parameters,)."""
        return np.full(hypergraph.num_parameters, self.strength)

    def value(self, theta: np.ndarray, hypergraph: InteractionHypergraph) -> float:  # noqa: ARG002
        """The penalty in nats."""
        return 0.5 * self.strength * float(theta @ theta)


@dataclass(frozen=True)
class Conjugate:
    r"""Minus the log density of the conjugate prior of fictive rows spread evenly over the cells, up to a constant.

    .. math:: n_0 \big(\log Z(\theta) - s \cdot \theta\big) = n_0 \log Z(\theta)

    since the free statistics s of the uniform distribution are 0. The estimate is that of maximum likelihood with
    ``num_rows`` :math:`n_0` rows more, and always finite. It goes with the likelihood of tables without structural
    zeros.

    References:
        Persi Diaconis and Donald Ylvisaker, Conjugate priors for exponential families, 1979, theorem 1.

    Example:
        >>> from pyro_hoim import Domain, Observations, fit
        >>> data = Observations.from_table(Domain.from_cardinalities({"a": 2, "b": 2}), [[30, 10], [20, 40]])
        >>> result = fit(InteractionHypergraph.saturated(data.domain), data, penalty=Conjugate(4.0))
        >>> round(float(result.coefficients("corner")[-1]), 6)  # a row more in every cell: log(31 * 41 / (11 * 21))
        1.705142
    """

    num_rows: float

    def __post_init__(self) -> None:
        check_positive(self.num_rows, "num_rows")

    def value(self, theta: np.ndarray, hypergraph: InteractionHypergraph) -> float:
        """The penalty in nats; it costs one log Z."""
        model = LogLinearEnergy.from_theta(hypergraph, torch.from_numpy(theta))
        return self.num_rows * float(Auto().log_partition(model).value)


@dataclass(frozen=True)
class _Norm:
    """A norm with a positive strength in nats, of interactions of ``min_order`` variables or more, in a coding."""

    strength: float
    min_order: int = 1
    coding: PenaltyCoding = "free"

    def __post_init__(self) -> None:
        check_positive(self.strength, "strength")
        check_choice(self.coding, ("free", "corner"), "coding")


@dataclass(frozen=True)
class L1(_Norm):
    r"""Lasso penalty, :math:`\lambda \|\theta\|_1` over sets of ``min_order`` variables or more, in a coding.

    For binary variables a coordinate is a whole interaction. With more levels free coordinates depend on the basis of
    contrasts, corner ones (``coding="corner"``) on the reference level; :class:`GroupL2` in the free coding depends on
    neither. In corner coordinates of binary variables this is the penalty of paper 3, equation (3.2): the l1 norm of
    the strongly symmetric tensor is that of corner theta. Its estimate is another one than in free coordinates.

    Example:
        >>> from pyro_hoim import Domain
        >>> graph = InteractionHypergraph.from_order(Domain.from_cardinalities({"a": 2, "b": 2, "c": 2}), 2)
        >>> theta = np.array([9.0, 9.0, 9.0, 0.5, -2.0, 1.0])
        >>> penalty = L1(2.0, min_order=2)
        >>> penalty.value(theta, graph), penalty.prox(theta, 0.25, graph).tolist()  # 2 * 3.5
        (7.0, [9.0, 9.0, 9.0, 0.0, -1.5, 0.5])
    """

    def _weights(self, hypergraph: InteractionHypergraph) -> np.ndarray:
        weights = np.full(hypergraph.num_parameters, float(self.strength))
        for edge, where in hypergraph.parameter_slices.items():
            if len(edge) < self.min_order:
                weights[where] = 0.0
        return weights

    def value(self, theta: np.ndarray, hypergraph: InteractionHypergraph) -> float:
        """The penalty in nats."""
        return float(self._weights(hypergraph) @ np.abs(theta))

    def prox(self, theta: np.ndarray, step: float, hypergraph: InteractionHypergraph) -> np.ndarray:
        """Soft thresholding of every coordinate."""
        return np.sign(theta) * np.maximum(np.abs(theta) - step * self._weights(hypergraph), 0.0)


@dataclass(frozen=True)
class GroupL2(_Norm):
    r"""Group lasso over hyperedges, :math:`\lambda \sum_S \sqrt{p_S}\, \|\theta^S\|` with :math:`p_S` parameters in S.

    Whole interactions of ``min_order`` variables or more become zero. The norm of a balanced table (the coding "free")
    does not depend on the basis, that of a corner table depends on the reference levels. Subsets of a zero interaction
    are penalised on their own, so heredity is not enforced.

    Example:
        >>> from pyro_hoim import Domain
        >>> graph = InteractionHypergraph.from_order(Domain.from_cardinalities({"a": 2, "b": 3}), 2)
        >>> theta = np.array([9.0, 9.0, 9.0, 3.0, 4.0])  # one of a, two of b, two of a:b
        >>> penalty = GroupL2(1.0, min_order=2)
        >>> round(penalty.value(theta, graph), 6), penalty.prox(theta, 4.0, graph).tolist()  # sqrt(2) * 5
        (7.071068, [9.0, 9.0, 9.0, 0.0, 0.0])
    """

    def _groups(self, hypergraph: InteractionHypergraph) -> list[tuple[slice, float]]:
        return [
            (where, self.strength * (where.stop - where.start) ** 0.5)
            for edge, where in hypergraph.parameter_slices.items()
            if len(edge) >= self.min_order
        ]

    def value(self, theta: np.ndarray, hypergraph: InteractionHypergraph) -> float:
        """The penalty in nats."""
        return float(sum(weight * np.linalg.norm(theta[where]) for where, weight in self._groups(hypergraph)))

    def prox(self, theta: np.ndarray, step: float, hypergraph: InteractionHypergraph) -> np.ndarray:
        """Shrinks the norm of every hyperedge's block."""
        result = theta.copy()
        for where, weight in self._groups(hypergraph):
            norm = float(np.linalg.norm(theta[where]))
            result[where] *= max(0.0, 1 - step * weight / norm) if norm > 0 else 0.0
        return result


def working_coordinates(hypergraph: InteractionHypergraph, penalty: Penalty | None) -> Coordinates:
    """The coordinates in which a penalty has its closed forms; refused where the family has no such coordinates."""
    of_family = own_coordinates(hypergraph)
    if penalty is None:
        return of_family
    coding = coding_of(penalty)
    if of_family.coding == "corner" and (isinstance(penalty, Conjugate) or coding != "corner"):
        problem = f"the collection lacks subsets and has corner tables, {penalty!r} acts on free coordinates"
        raise conflict("penalty", problem, "use L1, L2 or GroupL2 with coding='corner', or fit the closure")
    if coding == "corner" and not hypergraph.is_hierarchical and of_family.coding != "corner":
        problem = f"the collection lacks subsets and has balanced tables, {penalty!r} acts on corner coordinates"
        raise conflict("penalty", problem, "fit hypergraph.in_coding('corner'), another family, or the closure")
    return Coordinates(hypergraph, coding)
