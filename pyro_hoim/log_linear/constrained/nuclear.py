"""The nuclear norm of the symmetric matrix Q of a pairwise binary model, by its leading eigenvectors."""

from __future__ import annotations

import math
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cholesky
from scipy.sparse.linalg import eigsh
from typing_extensions import override

from ...errors import other_domain, out_of_reach, wrong_shape
from ...structure.hypergraph import InteractionHypergraph
from .norms import Face, Norm, project_magnitudes

__all__ = ["NuclearNorm", "TieSet", "interaction_matrix", "leading_eigenvectors"]

Floats = NDArray[np.float64]
_DENSE = 50
_SLACK = 1e-10
_ADDED = 6


class TieSet(NamedTuple):
    """Eigenvalues (k,) of largest modulus up to rounding, with their eigenvectors (n, k) as columns."""

    values: Floats
    vectors: Floats


def _size(num_parameters: int) -> int:
    num = (math.isqrt(8 * num_parameters + 1) - 1) // 2
    if num * (num + 1) // 2 != num_parameters:
        raise wrong_shape("theta", "(n (n + 1) / 2,)", (num_parameters,))
    return num


def interaction_matrix(theta: NDArray[Any], *, is_gradient: bool = False) -> Floats:
    """Symmetric matrix (n, n) of corner theta of order 2: singles on the diagonal, half of each pair beside it.

    A gradient in theta has its whole entries there, so that the Frobenius product with a matrix is that of the vectors.
    """
    vector = np.asarray(theta, dtype=np.float64)
    num = _size(len(vector))
    found = np.zeros((num, num))
    rows, columns = np.triu_indices(num, 1)
    found[rows, columns] = vector[num:] if is_gradient else vector[num:] / 2
    found += found.T
    found[np.arange(num), np.arange(num)] = vector[:num]
    return found


def _theta_of(matrix: Floats) -> Floats:
    """Inverse of :func:`interaction_matrix`, of the upper triangle."""
    return np.concatenate([np.diag(matrix), 2 * matrix[np.triu_indices(len(matrix), 1)]])


def _packed(matrix: Floats) -> Floats:
    """Diagonal and entries above it, these times the root of 2, so that the vectors' inner product is Frobenius'."""
    rows, columns = np.triu_indices(len(matrix), 1)
    above = (matrix[rows, columns] + matrix[columns, rows]) / math.sqrt(2)
    return np.concatenate([np.diag(matrix), above])


def leading_eigenvectors(matrix: Floats, number: int = 1) -> tuple[Floats, Floats]:
    """Eigenvalues (k,) of largest modulus of a symmetric matrix (n, n), largest first, and eigenvectors (n, k).

    Above 50 rows by Lanczos iterations, from a fixed start and to machine precision; that no eigenvalue of larger
    modulus was missed is proven by two Cholesky factorisations, up to a relative 1e-10.

    Raises:
        IntractableError: a larger eigenvalue was missed from three starts.
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
        matrix = interaction_matrix(gradient, is_gradient=True)
        number = 2
        while True:
            values, vectors = leading_eigenvectors(matrix, number)
            tied = np.abs(values) >= (1 - tolerance) * np.abs(values[0])
            if not tied.all() or number >= len(matrix) - 1:
                return TieSet(values[tied], vectors[:, tied])
            number = min(2 * number, len(matrix) - (len(matrix) > _DENSE))

    @override
    def face(self, theta: NDArray[Any]) -> tuple[Face, Floats]:
        matrix, number = interaction_matrix(theta), 8
        while True:
            values, vectors = leading_eigenvectors(matrix, number)
            kept = np.abs(values) > 1e-12 * np.abs(values[0])
            if not kept.all() or number >= len(matrix) - 1:
                return _EigenFace(np.ascontiguousarray(vectors[:, kept])), _packed(np.diag(values[kept]))
            number = min(2 * number, len(matrix) - (len(matrix) > _DENSE))

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
        found = np.zeros((self._rank, self._rank))
        found[np.triu_indices(self._rank, 1)] = coordinates[self._rank :] / math.sqrt(2)
        found += found.T
        found[np.diag_indices(self._rank)] = coordinates[: self._rank]
        return found

    @override
    def embed(self, coordinates: Floats) -> Floats:
        return _theta_of(self._vectors @ self._small(coordinates) @ self._vectors.T)

    @override
    def basis(self) -> Floats:
        rows, columns = np.triu_indices(self._rank, 1)
        rows, columns = np.append(np.arange(self._rank), rows), np.append(np.arange(self._rank), columns)
        left, right = self._vectors[:, rows], self._vectors[:, columns]
        first, second = np.triu_indices(len(left), 1)
        found = np.concatenate([left * right, left[first] * right[second] + left[second] * right[first]])
        found[:, self._rank :] *= math.sqrt(2)
        return found

    @override
    def pull(self, gradient: Floats) -> Floats:
        return _packed(self._vectors.T @ interaction_matrix(gradient, is_gradient=True) @ self._vectors)

    @override
    def norm(self, coordinates: Floats) -> float:
        return float(np.abs(np.linalg.eigvalsh(self._small(coordinates))).sum())

    @override
    def dual(self, pulled: Floats) -> float:
        return float(np.abs(np.linalg.eigvalsh(self._small(pulled))).max(initial=0.0))

    def _mapped(self, coordinates: Floats, radius: float | None, strength: float) -> Floats:
        values, vectors = np.linalg.eigh(self._small(coordinates))
        moduli = np.abs(values)
        if radius is None:
            wanted = np.maximum(moduli - strength, 0.0)
        else:
            wanted = project_magnitudes(moduli, radius, np.ones(len(moduli)))
        return _packed((vectors * np.copysign(wanted, values)) @ vectors.T)

    @override
    def project(self, coordinates: Floats, radius: float) -> Floats:
        return self._mapped(coordinates, radius, 0.0)

    @override
    def shrink(self, coordinates: Floats, strength: float) -> Floats:
        return self._mapped(coordinates, None, strength)

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
