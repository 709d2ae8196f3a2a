r"""Norms of theta by dual norm, vertices and faces: l1, groups, overlapped and nuclear; balls and penalties of them.

The unit ball of a norm is the convex hull of its vertices. A linear function over it is minimised at a vertex, where it
is minus the dual norm of its gradient; that is all that Frank-Wolfe needs. A *face* holds a part of theta in few
coordinates, those of the vertices met so far, in which projections and proximal maps are cheap.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cholesky
from scipy.sparse.linalg import eigsh
from typing_extensions import override

from ...errors import (
    check_positive,
    check_type,
    conflict,
    none_received,
    other_domain,
    out_of_reach,
    size_text,
    wrong_shape,
    wrong_type,
)
from ...structure.hypergraph import InteractionHypergraph
from ..tensors.layout import multiplicity, tensor_layout

__all__ = ["Ball", "GroupNorm", "L1Norm", "NormPenalty", "NuclearNorm", "OverlappedNorm"]


Floats = NDArray[np.float64]


def project_magnitudes(magnitudes: Floats, radius: float, weights: Floats) -> Floats:
    r"""Nearest point of :math:`\{m \ge 0 : \sum_k w_k m_k \le r\}` to magnitudes (k,) that are not negative."""
    if float(weights @ magnitudes) <= radius:
        return magnitudes
    ratios = magnitudes / weights
    order = np.argsort(-ratios)
    shifts = (np.cumsum((weights * magnitudes)[order]) - radius) / np.cumsum(weights[order] ** 2)
    last = np.flatnonzero(ratios[order] > shifts)[-1]
    nearest = np.maximum(magnitudes - shifts[last] * weights, 0.0)
    return nearest * min(1.0, radius / float(weights @ nearest))  # of large magnitudes rounding may leave too much


class Face(ABC):
    """A linear space of parts of theta, in orthonormal coordinates (size,) for the inner product of the norm.

    Attributes:
        size: number of coordinates.
    """

    size: int

    @abstractmethod
    def embed(self, coordinates: Floats) -> Floats:
        """The part of theta (num_parameters,)."""

    @abstractmethod
    def basis(self) -> Floats:
        """Matrix (num_parameters, size) of :meth:`embed`."""

    @abstractmethod
    def pull(self, gradient: Floats) -> Floats:
        """Gradient (num_parameters,) in theta as the gradient in the coordinates."""

    @abstractmethod
    def norm(self, coordinates: Floats) -> float:
        """Norm of the part."""

    @abstractmethod
    def dual(self, pulled: Floats) -> float:
        """Largest inner product of a gradient in the coordinates with a point of norm 1 of the face."""

    @abstractmethod
    def project(self, coordinates: Floats, radius: float) -> Floats:
        """Nearest point of the ball."""

    @abstractmethod
    def shrink(self, coordinates: Floats, strength: float) -> Floats:
        """Proximal map of strength times the norm."""

    @abstractmethod
    def widened(self, coordinates: Floats, gradient: Floats, level: float | None) -> tuple[Face, Floats]:
        """A face without what is zero and with vertices along which the gradient is steeper than a level.

        The level is by default the steepest slope along vertices of what is kept. The coordinates are those of the
        same part.
        """


class Norm(ABC):
    """A norm of theta (num_parameters,), with the linear minimiser over its unit ball."""

    part: ClassVar[str]
    """What a part of theta with this norm is called unless the caller names it."""

    @abstractmethod
    def value(self, theta: NDArray[Any]) -> float:
        """The norm."""

    def dual(self, gradient: NDArray[Any]) -> float:  # noqa: ARG002
        """The dual norm: the largest inner product of a gradient with a point of norm 1."""
        raise _no_vertices()

    def vertex(self, gradient: NDArray[Any]) -> Floats:  # noqa: ARG002
        """A vertex of the unit ball with the smallest inner product with a gradient, minus the dual norm."""
        raise _no_vertices()

    def face(self, theta: NDArray[Any]) -> tuple[Face, Floats]:  # noqa: ARG002
        """The smallest face that holds a part of theta, with its coordinates there."""
        raise _no_vertices()

    @abstractmethod
    def check(self, hypergraph: InteractionHypergraph) -> None:
        """Refuse interactions for which the norm is not defined."""


class _Groups(Norm):
    """A weighted sum of Euclidean norms of groups of coordinates, each of which is in one group."""

    @abstractmethod
    def groups(self, num_parameters: int) -> tuple[NDArray[np.int64], Floats]:
        """Number of the group of every coordinate (num_parameters,), and weights of groups (num_groups,)."""

    def _norms(self, theta: NDArray[Any]) -> tuple[Floats, NDArray[np.int64], Floats]:
        vector = np.asarray(theta, dtype=np.float64)
        groups, weights = self.groups(len(vector))
        return np.sqrt(np.bincount(groups, weights=vector**2, minlength=len(weights))), groups, weights

    @override
    def value(self, theta: NDArray[Any]) -> float:
        norms, _, weights = self._norms(theta)
        return float(weights @ norms)

    @override
    def dual(self, gradient: NDArray[Any]) -> float:
        norms, _, weights = self._norms(gradient)
        return float((norms / weights).max(initial=0.0))

    @override
    def vertex(self, gradient: NDArray[Any]) -> Floats:
        vector = np.asarray(gradient, dtype=np.float64)
        norms, groups, weights = self._norms(vector)
        best = int(np.argmax(norms / weights))
        point = np.zeros(len(vector))
        inside = groups == best
        if norms[best] > 0:
            point[inside] = -vector[inside] / (norms[best] * weights[best])
        else:
            point[np.flatnonzero(inside)[0]] = 1 / weights[best]
        return point

    @override
    def face(self, theta: NDArray[Any]) -> tuple[Face, Floats]:
        vector = np.asarray(theta, dtype=np.float64)
        groups, weights = self.groups(len(vector))
        face = _GroupFace(groups, weights, np.unique(groups[vector != 0]))
        return face, face.pull(vector)


class L1Norm(_Groups):
    r"""The l1 norm of theta, which for corner theta is the l1 norm of the strongly symmetric tensor Q.

    .. math:: \|\theta\|_1 = \sum_S |\theta_S| = \sum_{i_1, \dots, i_K} |q_{i_1 \dots i_K}|

    since the tensor has :math:`\#S` equal entries that sum to :math:`\theta_S`. Vertices of the unit ball are the unit
    vectors and their negatives, tensors with the entries :math:`\pm 1/\#S`; the dual norm is the largest modulus.

    References:
        Paper 3, section 3.1.1 and lemma 4.1.

    Example:
        >>> L1Norm().vertex(np.array([0.5, -2.0, 1.0])).tolist(), L1Norm().dual(np.array([0.5, -2.0, 1.0]))
        ([0.0, 1.0, 0.0], 2.0)
    """

    part: ClassVar[str] = "sparse"

    @override
    def groups(self, num_parameters: int) -> tuple[NDArray[np.int64], Floats]:
        return np.arange(num_parameters), np.ones(num_parameters)

    @override
    def check(self, hypergraph: InteractionHypergraph) -> None:
        """Every collection has this norm."""


class GroupNorm(_Groups):
    r"""Sum of the norms of the hyperedges' parameters, :math:`\sum_S \sqrt{p_S}\, \|\theta^S\|` with :math:`p_S` in S.

    In the free coding it does not depend on the reference levels. A vertex is one whole interaction, so that
    Frank-Wolfe learns interactions of variables with any number of levels.

    Args:
        hypergraph: the interactions.

    References:
        Paper 3, chapter 5, asks for categorical variables; the penalty is :class:`~pyro_hoim.log_linear.GroupL2`.

    Example:
        >>> from pyro_hoim import Domain
        >>> norm = GroupNorm(InteractionHypergraph.from_order(Domain.from_cardinalities({"a": 2, "b": 3}), 1))
        >>> round(norm.value(np.array([1.0, 3.0, 4.0])), 6)  # 1 + 5 * sqrt(2), as b has two parameters
        8.071068
    """

    part: ClassVar[str] = "groups"

    def __init__(self, hypergraph: InteractionHypergraph) -> None:
        check_type(hypergraph, InteractionHypergraph, "hypergraph")
        self.hypergraph = hypergraph

    @cached_property
    def _layout(self) -> tuple[NDArray[np.int64], Floats]:
        sizes = [where.stop - where.start for where in self.hypergraph.parameter_slices.values()]
        sizes = np.array([size for size in sizes if size > 0], dtype=np.int64)
        return np.repeat(np.arange(len(sizes)), sizes), np.sqrt(sizes.astype(np.float64))

    @override
    def groups(self, num_parameters: int) -> tuple[NDArray[np.int64], Floats]:
        if num_parameters != self.hypergraph.num_parameters:
            raise wrong_shape("theta", (self.hypergraph.num_parameters,), (num_parameters,))
        return self._layout

    @override
    def check(self, hypergraph: InteractionHypergraph) -> None:
        if hypergraph != self.hypergraph:
            raise other_domain("norm", "groups of the interactions of the loss", received=repr(self.hypergraph))


class _GroupFace(Face):
    """Coordinates of some groups."""

    def __init__(self, groups: NDArray[np.int64], weights: Floats, chosen: NDArray[np.int64]) -> None:
        self._groups, self._weights, self._chosen = groups, weights, chosen
        self._where = np.flatnonzero(np.isin(groups, chosen))
        self._local = np.searchsorted(chosen, groups[self._where])
        self._own = weights[chosen]
        self.size = len(self._where)

    def _norms(self, coordinates: Floats) -> Floats:
        return np.sqrt(np.bincount(self._local, weights=coordinates**2, minlength=len(self._chosen)))

    @override
    def embed(self, coordinates: Floats) -> Floats:
        part = np.zeros(len(self._groups))
        part[self._where] = coordinates
        return part

    @override
    def basis(self) -> Floats:
        columns_of_theta = np.zeros((len(self._groups), self.size))
        columns_of_theta[self._where, np.arange(self.size)] = 1.0
        return columns_of_theta

    @override
    def pull(self, gradient: Floats) -> Floats:
        return gradient[self._where]

    @override
    def norm(self, coordinates: Floats) -> float:
        return float(self._own @ self._norms(coordinates))

    @override
    def dual(self, pulled: Floats) -> float:
        return float((self._norms(pulled) / self._own).max(initial=0.0))

    def _scaled(self, coordinates: Floats, norms: Floats, wanted: Floats) -> Floats:
        factors = np.divide(wanted, norms, out=np.zeros_like(norms), where=norms > 0)
        return coordinates * factors[self._local]

    @override
    def project(self, coordinates: Floats, radius: float) -> Floats:
        norms = self._norms(coordinates)
        return self._scaled(coordinates, norms, project_magnitudes(norms, radius, self._own))

    @override
    def shrink(self, coordinates: Floats, strength: float) -> Floats:
        norms = self._norms(coordinates)
        return self._scaled(coordinates, norms, np.maximum(norms - strength * self._own, 0.0))

    @override
    def widened(self, coordinates: Floats, gradient: Floats, level: float | None) -> tuple[Face, Floats]:
        slopes = np.sqrt(np.bincount(self._groups, weights=gradient**2, minlength=len(self._weights))) / self._weights
        active = self._chosen[self._norms(coordinates) > 0]
        level = float(slopes[active].max(initial=0.0)) if level is None else level
        slopes[active] = 0.0
        steepest = np.argsort(-slopes, kind="stable")[: max(32, len(active))]
        added = steepest[slopes[steepest] > level]
        face = _GroupFace(self._groups, self._weights, np.union1d(active, added))
        return face, face.pull(self.embed(coordinates))


@dataclass(frozen=True)
class Ball:
    """The points of a norm of at most a positive radius: a constraint on a part of theta, as in paper 3, (3.1).

    Raises:
        InputTypeError: what is no norm.
        InputError: a radius that is not positive and finite.

    Example:
        >>> ball = Ball(L1Norm(), 0.5)
        >>> ball.vertex(np.array([0.5, -2.0, 1.0])).tolist(), ball.contains(np.array([0.2, 0.2, -0.2]))
        ([0.0, 0.5, 0.0], False)
    """

    norm: Norm
    radius: float

    def __post_init__(self) -> None:
        check_type(self.norm, Norm, "norm")
        check_positive(self.radius, "radius")

    def vertex(self, gradient: NDArray[Any]) -> Floats:
        """A vertex with the smallest inner product with a gradient (num_parameters,)."""
        return self.radius * self.norm.vertex(gradient)

    def contains(self, theta: NDArray[Any], tolerance: float = 1e-9) -> bool:
        """Whether a part is in the ball, up to a share of the radius."""
        return self.norm.value(theta) <= self.radius * (1 + tolerance)

    @property
    def level(self) -> float | None:
        """Slope from which on a vertex improves the objective; None where that depends on the part."""
        return None

    def prox(self, face: Face, coordinates: Floats, step: float) -> Floats:  # noqa: ARG002
        """The projection."""
        return face.project(coordinates, self.radius)

    def cost(self, norm: float) -> float:  # noqa: ARG002
        """What a part adds to the objective: nothing."""
        return 0.0

    def gap(self, inner: float, norm: float, dual: float, objective: float) -> float:  # noqa: ARG002
        """Share of the duality gap, from gradient times part, norm of the part and dual norm of the gradient."""
        return inner + self.radius * dual


@dataclass(frozen=True)
class NormPenalty:
    r"""A positive strength times a norm, added to the loss per row in nats, as in paper 3, (3.2).

    Raises:
        InputTypeError: what is no norm.
        InputError: a strength that is not positive and finite.

    Example:
        >>> penalty = NormPenalty(L1Norm(), 0.5)
        >>> penalty.cost(L1Norm().value(np.array([0.5, -2.0, 1.5])))  # 0.5 * 4
        2.0
    """

    norm: Norm
    strength: float

    def __post_init__(self) -> None:
        check_type(self.norm, Norm, "norm")
        check_positive(self.strength, "strength")

    @property
    def level(self) -> float | None:
        """The strength."""
        return self.strength

    def prox(self, face: Face, coordinates: Floats, step: float) -> Floats:
        """The proximal map of a step."""
        return face.shrink(coordinates, step * self.strength)

    def cost(self, norm: float) -> float:
        """What a part adds to the objective."""
        return self.strength * norm

    def gap(self, inner: float, norm: float, dual: float, objective: float) -> float:
        r"""Share of the duality gap over the points of norm at most objective / strength.

        The loss is not negative, so no better point has a larger norm; hence the objective exceeds its minimum by at
        most :math:`\langle g, x \rangle + \lambda \|x\| + \max(0, \|g\|_* - \lambda)\, F(x) / \lambda`.
        """
        return inner + self.strength * norm + max(0.0, dual - self.strength) * objective / self.strength


def checked_terms(terms: object, kind: type, argument: str, hypergraph: InteractionHypergraph) -> dict[str, Any]:
    """Balls, or penalties, by the name of their part; a single one gets the name that its norm gives it."""
    wanted = f"{kind.__name__} objects by name, or one"
    if isinstance(terms, kind):
        terms = {terms.norm.part: terms}  # pyright: ignore[reportAttributeAccessIssue]
    if not isinstance(terms, Mapping):
        raise wrong_type(argument, wanted, terms)
    if not terms:
        raise none_received(argument, wanted)
    named = dict[str, Any](terms)
    for name, term in named.items():
        check_type(term, kind, f"{argument}[{name!r}]")
        term.norm.check(hypergraph)
    return named


# The overlapped Schatten-1 norm of strongly symmetric tensors of any order, by one unfolding with few columns.

_MOST_ENTRIES = 2**23
_NARROW = 1e-5  # smallest share of the largest singular value that the Gram matrix is trusted with


class Spectrum(NamedTuple):
    """Singular values (n,) in ascending order with left singular vectors (n, n) of a wide matrix."""

    values: Floats
    vectors: Floats


def spectrum(matrix: Floats, level: float) -> Spectrum:
    """Singular values and left vectors of a wide matrix, as far as they matter above a level.

    They come of the n x n Gram matrix, whose eigenvalues have errors of some 1e-16 of the largest one: singular values
    above ``level`` are off by at most 1e-11 of the largest where the level is at least 1e-5 of it. Below, the matrix
    itself is decomposed.
    """
    values, vectors = np.linalg.eigh(matrix @ matrix.T)
    if level < _NARROW * np.sqrt(max(values[-1], 0.0)):
        vectors, values, _ = np.linalg.svd(matrix, full_matrices=False)
        return Spectrum(values[::-1], vectors[:, ::-1])
    return Spectrum(np.sqrt(np.maximum(values, 0.0)), vectors)


class Unfolding:
    r"""The linear map from corner theta to the mode-1 unfolding of its tensor, with equal columns put together.

    .. math:: (A \theta)_{i, T} = \sqrt{\tau_{K-1,|T|}}\; \theta_{T \cup \{i\}} / \tau_{K, |T \cup \{i\}|}

    The unfolding (n, n^(K-1)) has :math:`\tau_{K-1,|T|}` equal columns for every set T of up to K - 1 variables. One
    column of their length in place of each leaves left singular vectors, singular values and inner products as they
    are, with some n^(K-1) / (K-1)! columns. :math:`A^T A` is the diagonal matrix of :math:`1 / \tau`, so the nearest
    strongly symmetric tensor, and the matrix nearest to any one that the adjoint takes to a given gradient, are
    explicit.

    Args:
        hypergraph: all interactions of up to K variables of n binary ones.

    References:
        Paper 3, section 3.1.2 and lemma 3.1: all modes have this unfolding.
    """

    def __init__(self, hypergraph: InteractionHypergraph) -> None:
        num, order = len(hypergraph.domain), hypergraph.order
        layout = tensor_layout(num, order)
        if order > 2:
            columns = tensor_layout(num, order - 1)
            members, sizes = columns.members.copy(), columns.sizes
            members = np.where(members == num, members[:, :1], members)
        else:
            members, sizes = np.arange(num)[:, None], np.ones(num, dtype=np.int64)
        if num * len(members) > _MOST_ENTRIES:
            problem = f"an unfolding has {size_text(num * len(members), 'entries')}, the limit is {_MOST_ENTRIES}"
            raise out_of_reach("hypergraph", problem, "take a lower order or fewer variables")
        self.index: NDArray[np.int64] = np.ascontiguousarray(layout.index[(slice(None), *members.T)])
        self.shape = self.index.shape
        self.multiplicity: Floats = layout.multiplicity.astype(np.float64)
        self.order = order
        counts = np.array([multiplicity(order - 1, size) for size in range(1, order)], dtype=np.float64)
        self._lengths: Floats = np.sqrt(counts)[sizes - 1]

    def matrix(self, theta: Floats) -> Floats:
        """The unfolding (n, columns) of theta (num_parameters,)."""
        return self._lengths * (theta / self.multiplicity)[self.index]

    def adjoint(self, matrix: Floats) -> Floats:
        """The transpose, from (n, columns) to (num_parameters,)."""
        sums = np.bincount(self.index.ravel(), (matrix * self._lengths).ravel(), len(self.multiplicity))
        return sums / self.multiplicity

    def nearest(self, matrix: Floats) -> Floats:
        """Theta of the strongly symmetric tensor nearest to an unfolding."""
        return self.multiplicity * self.adjoint(matrix)

    def with_adjoint(self, matrix: Floats, gradient: Floats) -> Floats:
        """The matrix nearest to one among those that the adjoint takes to a gradient."""
        return matrix + self.matrix(self.multiplicity * (gradient - self.adjoint(matrix)))

    def nuclear(self, theta: Floats) -> float:
        """Sum of the singular values of the unfolding, all of them to machine precision."""
        return float(np.linalg.svd(self.matrix(theta), compute_uv=False).sum())

    @staticmethod
    def shrink(matrix: Floats, level: float) -> tuple[Floats, int]:
        """The matrix with its singular values lowered by a level, down to zero, and its rank."""
        values, vectors = spectrum(matrix, level)
        return _rescaled(matrix, vectors, values, np.maximum(values - level, 0.0))

    @staticmethod
    def project(matrix: Floats, radius: float) -> tuple[Floats, int]:
        """The nearest matrix whose singular values sum to at most a radius, and its rank."""
        values, vectors = spectrum(matrix, 0.0)
        return _rescaled(matrix, vectors, values, project_magnitudes(values, radius, np.ones(len(values))))


def _rescaled(matrix: Floats, vectors: Floats, values: Floats, wanted: Floats) -> tuple[Floats, int]:
    """The matrix with other singular values."""
    is_positive = wanted > 0
    basis = vectors[:, is_positive]
    return (basis * (wanted[is_positive] / values[is_positive])) @ (basis.T @ matrix), int(is_positive.sum())


class OverlappedNorm(Norm):
    r"""Overlapped Schatten-1 norm of the strongly symmetric tensor of corner theta, K times that of one unfolding.

    .. math:: \|Q\|_{\underline{S_1/1}} = \sum_{m=1}^K \|Q_{(m)}\|_{S_1} = K\, \|Q_{(1)}\|_{S_1}

    For order 2 it is twice :class:`NuclearNorm`. Beyond, the vertices of its
    unit ball among strongly symmetric tensors are not known (paper 3, section 4.3.2), so there is no Frank-Wolfe over
    it; :func:`~pyro_hoim.log_linear.constrained.splitting.douglas_rachford` minimises losses under it.

    Strongly symmetric tensors of low rank are few. From order 3, those of rank 1 are the multiples of
    :math:`1_B \otimes \dots \otimes 1_B` with the indicator :math:`1_B` of a set of variables, because
    :math:`v_i^2 v_j = v_i v_j^2` makes all entries of v equal that are not zero.

    Args:
        hypergraph: all interactions of up to K variables of binary ones, K from 2.

    Raises:
        InputError: other interactions.
        InputTypeError: what is no hypergraph.
        IntractableError: an unfolding beyond 2^23 entries.

    References:
        Paper 3, section 3.1.2 and lemma 3.1.

    Example:
        >>> from pyro_hoim import Domain
        >>> domain = Domain.from_cardinalities({"a": 2, "b": 2, "c": 2})
        >>> norm = OverlappedNorm(InteractionHypergraph.from_order(domain, 3))
        >>> theta = np.array([1.0, 1.0, 1.0, 6.0, 6.0, 6.0, 6.0])  # 27 entries 1: one singular value
        >>> round(norm.value(theta), 6), round(3 * 27**0.5, 6)
        (15.588457, 15.588457)
    """

    part: ClassVar[str] = "low_rank"

    def __init__(self, hypergraph: InteractionHypergraph) -> None:
        check_type(hypergraph, InteractionHypergraph, "hypergraph")
        order = hypergraph.order
        is_whole = order >= 2 and hypergraph == InteractionHypergraph.from_order(hypergraph.domain, order)
        if not is_whole or set(hypergraph.domain.cardinalities) != {2}:
            expected = "all interactions of up to K >= 2 binary variables"
            raise other_domain("hypergraph", expected, received=repr(hypergraph))
        self.hypergraph = hypergraph

    @cached_property
    def unfolding(self) -> Unfolding:
        """The map to one unfolding."""
        return Unfolding(self.hypergraph)

    @override
    def value(self, theta: NDArray[Any]) -> float:
        return self.hypergraph.order * self.unfolding.nuclear(np.asarray(theta, dtype=np.float64))

    @override
    def check(self, hypergraph: InteractionHypergraph) -> None:
        if hypergraph != self.hypergraph:
            raise other_domain("norm", "the interactions of the loss", received=repr(self.hypergraph))


def _no_vertices() -> Exception:
    problem = "the vertices of the ball of the overlapped norm are not known, and neither is its dual norm"
    return conflict("norm", problem, "minimise by douglas_rachford(), or take NuclearNorm for order 2")


# The nuclear norm of the symmetric matrix Q of a pairwise binary model, by its leading eigenvectors.

_DENSE = 50
_SLACK = 1e-10
_ADDED = 6


class TieSet(NamedTuple):
    """Eigenvalues (k,) of largest modulus up to rounding, with their eigenvectors (n, k) as columns."""

    values: Floats
    vectors: Floats


def interaction_matrix(theta: NDArray[Any], *, is_gradient: bool = False) -> Floats:
    """Symmetric matrix (n, n) of corner theta of order 2: singles on the diagonal, half of each pair beside it.

    A gradient in theta has its whole entries there, so that the Frobenius product with a matrix is that of the vectors.
    """
    vector = np.asarray(theta, dtype=np.float64)
    num_parameters = len(vector)
    num = (math.isqrt(8 * num_parameters + 1) - 1) // 2
    if num * (num + 1) // 2 != num_parameters:
        raise wrong_shape("theta", "(n (n + 1) / 2,)", (num_parameters,))
    matrix = np.zeros((num, num))
    rows, columns = _above(num)
    matrix[rows, columns] = vector[num:] if is_gradient else vector[num:] / 2
    matrix += matrix.T
    matrix[np.arange(num), np.arange(num)] = vector[:num]
    return matrix


def _above(num: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Rows and columns of the entries above the diagonal, which to list takes longer than what is done with few."""
    return _few_above(num) if num <= _DENSE else np.triu_indices(num, 1)


@lru_cache(maxsize=_DENSE + 1)
def _few_above(num: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    rows, columns = np.triu_indices(num, 1)
    rows.setflags(write=False)
    columns.setflags(write=False)
    return rows, columns


def _theta_of(matrix: Floats) -> Floats:
    """Inverse of :func:`interaction_matrix`, of the upper triangle."""
    return np.concatenate([np.diag(matrix), 2 * matrix[_above(len(matrix))]])


def _packed(matrix: Floats) -> Floats:
    """Diagonal and entries above it, these times the root of 2, so that the vectors' inner product is Frobenius'."""
    rows, columns = _above(len(matrix))
    above = (matrix[rows, columns] + matrix[columns, rows]) / math.sqrt(2)
    return np.concatenate([np.diag(matrix), above])


def leading_eigenvectors(matrix: Floats, number: int = 1) -> tuple[Floats, Floats]:
    """Eigenvalues (k,) of largest modulus of a symmetric matrix (n, n), largest first, and eigenvectors (n, k).

    Above 50 rows by Lanczos iterations, from a fixed start and to machine precision; that no eigenvalue of larger
    modulus was missed is proven by two Cholesky factorisations, up to a relative 1e-10.
    """
    num = len(matrix)
    if num <= _DENSE:
        values, vectors = np.linalg.eigh(matrix)
        order = np.argsort(-np.abs(values), kind="stable")[:number]
        return values[order], vectors[:, order]
    if not matrix.any():
        return np.zeros(min(number, num)), np.eye(num)[:, :number]
    for seed in range(3):
        start = np.random.default_rng(seed).standard_normal(num)
        values, vectors = eigsh(matrix, k=min(number, num - 1), which="LM", v0=start, ncv=min(num, 2 * number + 20))
        order = np.argsort(-np.abs(values), kind="stable")
        if _is_bound(matrix, float(np.abs(values).max())):
            return values[order], vectors[:, order]
    raise out_of_reach("gradient", "Lanczos iterations missed the eigenvalue of largest modulus", code="no-method")


def _largest_eigenvectors(matrix: Floats, number: int, share: float) -> tuple[Floats, Floats]:
    """Eigenvalues whose modulus is at least a share of the largest, and eigenvectors; ``number`` are tried first."""
    while True:
        values, vectors = leading_eigenvectors(matrix, number)
        is_large = np.abs(values) >= share * np.abs(values[0])
        if not is_large.all() or number >= len(matrix) - 1:
            return values[is_large], vectors[:, is_large]
        number = min(2 * number, len(matrix) - (len(matrix) > _DENSE))


def _is_bound(matrix: Floats, modulus: float) -> bool:
    """Whether no eigenvalue exceeds a modulus by more than a relative 1e-10."""
    limit = modulus * (1 + _SLACK) * np.eye(len(matrix))
    try:
        cholesky(limit - matrix, check_finite=False)
        cholesky(limit + matrix, check_finite=False)
    except LinAlgError:
        return False
    return True


class NuclearNorm(Norm):
    r"""Sum of the moduli of the eigenvalues of the symmetric matrix Q of a pairwise binary model.

    .. math:: \|Q\|_{S_1} = \sum_i |\sigma_i(Q)|, \qquad q_{ii} = \theta_i, \quad q_{ij} = \theta_{ij} / 2

    Vertices of the unit ball are :math:`\pm u u^T` for unit vectors u; the dual norm is the largest modulus of an
    eigenvalue. The overlapped norm of paper 3 is twice this one for order 2, where chapter 4 leaves the factor out.

    References:
        Paper 3, sections 3.1.2 and 4.3.1, algorithm 3.

    Example:
        >>> gradient = np.array([0.0, 0.0, 1.0])  # of two variables, whose matrix has the eigenvalues 1 and -1
        >>> NuclearNorm().dual(gradient), len(NuclearNorm().tie_set(gradient).values)
        (1.0, 2)
    """

    part: ClassVar[str] = "low_rank"

    @override
    def value(self, theta: NDArray[Any]) -> float:
        return float(np.abs(np.linalg.eigvalsh(interaction_matrix(theta))).sum())

    @override
    def dual(self, gradient: NDArray[Any]) -> float:
        values, _ = leading_eigenvectors(interaction_matrix(gradient, is_gradient=True))
        return float(np.abs(values).max(initial=0.0))

    @override
    def vertex(self, gradient: NDArray[Any]) -> Floats:
        values, vectors = leading_eigenvectors(interaction_matrix(gradient, is_gradient=True))
        return -np.copysign(1.0, values[0]) * _theta_of(np.outer(vectors[:, 0], vectors[:, 0]))

    def tie_set(self, gradient: NDArray[Any], tolerance: float = 1e-9) -> TieSet:
        r"""The set :math:`J(\sigma)` of paper 3: all eigenvalues whose modulus is the largest, up to a share of it.

        Minus the sign of each times the outer square of its eigenvector is a vertex that minimises the same linear
        function, and so is every convex combination.
        """
        return TieSet(*_largest_eigenvectors(interaction_matrix(gradient, is_gradient=True), 2, 1 - tolerance))

    @override
    def face(self, theta: NDArray[Any]) -> tuple[Face, Floats]:
        values, vectors = _largest_eigenvectors(interaction_matrix(theta), 8, 1e-12)
        is_nonzero = values != 0
        return _EigenFace(np.ascontiguousarray(vectors[:, is_nonzero])), _packed(np.diag(values[is_nonzero]))

    @override
    def check(self, hypergraph: InteractionHypergraph) -> None:
        size = len(hypergraph.domain)
        is_pairwise = hypergraph.num_parameters == len(hypergraph) == size * (size + 1) // 2 and hypergraph.order == 2
        if not is_pairwise:
            expected = "all single variables and pairs of binary variables"
            hint = "the nuclear norm is that of a symmetric matrix; use an l1 ball for other orders"
            raise other_domain("norm", expected, hint=hint, received=repr(hypergraph))


class _EigenFace(Face):
    """Symmetric matrices U C U' with an orthonormal basis U (n, r); the coordinates are C, packed."""

    def __init__(self, basis: Floats) -> None:
        self._vectors = basis
        self._rank = basis.shape[1]
        self.size = self._rank * (self._rank + 1) // 2

    def _small(self, coordinates: Floats) -> Floats:
        matrix = np.zeros((self._rank, self._rank))
        matrix[_above(self._rank)] = coordinates[self._rank :] / math.sqrt(2)
        matrix += matrix.T
        np.fill_diagonal(matrix, coordinates[: self._rank])
        return matrix

    @override
    def embed(self, coordinates: Floats) -> Floats:
        return _theta_of(self._vectors @ self._small(coordinates) @ self._vectors.T)

    @override
    def basis(self) -> Floats:
        rows, columns = _above(self._rank)
        rows, columns = np.append(np.arange(self._rank), rows), np.append(np.arange(self._rank), columns)
        left, right = self._vectors[:, rows], self._vectors[:, columns]
        first, second = _above(len(left))
        columns_of_theta = np.concatenate([left * right, left[first] * right[second] + left[second] * right[first]])
        columns_of_theta[:, self._rank :] *= math.sqrt(2)
        return columns_of_theta

    @override
    def pull(self, gradient: Floats) -> Floats:
        return _packed(self._vectors.T @ interaction_matrix(gradient, is_gradient=True) @ self._vectors)

    @override
    def norm(self, coordinates: Floats) -> float:
        return float(np.abs(np.linalg.eigvalsh(self._small(coordinates))).sum())

    @override
    def dual(self, pulled: Floats) -> float:
        return float(np.abs(np.linalg.eigvalsh(self._small(pulled))).max(initial=0.0))

    def _mapped(self, coordinates: Floats, moduli: Callable[[Floats], Floats]) -> Floats:
        """The matrix with other moduli of its eigenvalues."""
        values, vectors = np.linalg.eigh(self._small(coordinates))
        return _packed((vectors * np.copysign(moduli(np.abs(values)), values)) @ vectors.T)

    @override
    def project(self, coordinates: Floats, radius: float) -> Floats:
        return self._mapped(coordinates, lambda moduli: project_magnitudes(moduli, radius, np.ones(len(moduli))))

    @override
    def shrink(self, coordinates: Floats, strength: float) -> Floats:
        return self._mapped(coordinates, lambda moduli: np.maximum(moduli - strength, 0.0))

    @override
    def widened(self, coordinates: Floats, gradient: Floats, level: float | None) -> tuple[Face, Floats]:
        values, vectors = np.linalg.eigh(self._small(coordinates))
        is_large = np.abs(values) > 1e-12 * np.abs(values).max(initial=0.0)
        basis = self._vectors @ vectors[:, is_large]
        if level is None:
            face = _EigenFace(basis)
            level = face.dual(face.pull(gradient))
        slopes, steep = leading_eigenvectors(interaction_matrix(gradient, is_gradient=True), _ADDED)
        fresh = steep[:, np.abs(slopes) > level]
        left, scales, _ = np.linalg.svd(fresh - basis @ (basis.T @ fresh), full_matrices=False)
        left = left[:, scales > 1e-8]
        left, _ = np.linalg.qr(left - basis @ (basis.T @ left))  # once more, for orthogonality to rounding
        basis = np.concatenate([basis, left], 1)
        small = np.zeros((basis.shape[1],) * 2)
        small[: int(is_large.sum()), : int(is_large.sum())] = np.diag(values[is_large])
        return _EigenFace(np.ascontiguousarray(basis)), _packed(small)
