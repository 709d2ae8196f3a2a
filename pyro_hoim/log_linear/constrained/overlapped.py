"""The overlapped Schatten-1 norm of strongly symmetric tensors of any order, by one unfolding with few columns."""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from ...errors import check_type, conflict, other_domain, out_of_reach, size_text
from ...structure.hypergraph import InteractionHypergraph
from ..tensors.coefficients import multiplicity
from ..tensors.layout import tensor_layout
from .norms import Face, Norm, project_magnitudes

__all__ = ["OverlappedNorm", "Spectrum", "Unfolding", "spectrum"]

Floats = NDArray[np.float64]
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

    Raises:
        IntractableError: more than 2^23 entries, or more dense ones than a layout of tensors may have.

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
    kept = wanted > 0
    basis = vectors[:, kept]
    return (basis * (wanted[kept] / values[kept])) @ (basis.T @ matrix), int(kept.sum())


class OverlappedNorm(Norm):
    r"""Overlapped Schatten-1 norm of the strongly symmetric tensor of corner theta, K times that of one unfolding.

    .. math:: \|Q\|_{\underline{S_1/1}} = \sum_{m=1}^K \|Q_{(m)}\|_{S_1} = K\, \|Q_{(1)}\|_{S_1}

    For order 2 it is twice :class:`~pyro_hoim.log_linear.constrained.nuclear.NuclearNorm`. Beyond, the vertices of its
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
    def dual(self, gradient: NDArray[Any]) -> float:
        raise _no_vertices()

    @override
    def vertex(self, gradient: NDArray[Any]) -> Floats:
        raise _no_vertices()

    @override
    def face(self, theta: NDArray[Any]) -> tuple[Face, Floats]:
        raise _no_vertices()

    @override
    def check(self, hypergraph: InteractionHypergraph) -> None:
        if hypergraph != self.hypergraph:
            raise other_domain("norm", "the interactions of the loss", received=repr(self.hypergraph))


def _no_vertices() -> Exception:
    problem = "the vertices of the ball of the overlapped norm are not known, and neither is its dual norm"
    return conflict("norm", problem, "minimise by douglas_rachford(), or take NuclearNorm for order 2")
