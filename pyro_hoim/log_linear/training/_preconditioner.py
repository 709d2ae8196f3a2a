"""Rough inverse Hessian of a penalised loss, from the ridge alone. Private to training."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from ...structure.hypergraph import InteractionHypergraph
from .ridge import InteractionRidge, ar1_precision

Floats = NDArray[np.float64]


class _Group(NamedTuple):
    """Interactions of one shape: positions (E, cells), bases by smooth axis, and the inverse Hessian (E, *shape)."""

    places: NDArray[np.int64]
    bases: tuple[tuple[int, Floats], ...]
    inverse: Floats


def ridge_preconditioner(
    ridge: InteractionRidge, hypergraph: InteractionHypergraph, num_rows: float
) -> Callable[[Floats], Floats] | None:
    r"""Multiplies balanced tables by :math:`(c + \lambda_S K_S / N)^{-1}`, in the eigenbasis of every smooth axis.

    The curvature c of the loss per row is the same everywhere, the mean over interactions of one over the number of
    cells. Strengths of evidence span many orders of magnitude; without this, so would the Hessian.
    """
    strengths = np.array([ridge.strength(edge) for edge in hypergraph.edges])
    if not len(strengths) or (ridge.is_diagonal(hypergraph) and bool((strengths == strengths[0]).all())):
        return None
    curvature = float(np.mean([1 / math.prod(shape) for shape in hypergraph.edge_shapes]))
    kinds: dict[tuple[tuple[int, bool], ...], list[int]] = {}
    for k, edge in enumerate(hypergraph.edges):
        variables = [hypergraph.domain[name] for name in edge]
        kinds.setdefault(tuple((v.cardinality, ridge.is_smooth(edge, v)) for v in variables), []).append(k)
    starts = np.array([where.start for where in hypergraph.term_slices.values()])
    groups: list[_Group] = []
    for kind, members in kinds.items():
        shape = tuple(n for n, _ in kind)
        eigenvalues = np.ones(shape)
        bases: list[tuple[int, Floats]] = []
        for axis, (n, is_smooth) in enumerate(kind):
            if is_smooth:
                values, basis = _axis_basis(n, ridge.smoothness)
                eigenvalues *= values.reshape(-1, *(1 for _ in kind[axis + 1 :]))
                bases.append((axis + 1, basis))
        places = starts[members, None] + np.arange(math.prod(shape))
        scale = (strengths[members] / num_rows).reshape(-1, *(1 for _ in kind))
        groups.append(_Group(places, tuple(bases), 1 / (curvature + scale * eigenvalues)))

    def multiply(values: Floats) -> Floats:
        result = np.empty_like(values)
        for places, axes, inverse in groups:
            tables = values[places].reshape(inverse.shape)
            for axis, basis in axes:
                tables = _along(basis, tables, axis)
            tables = tables * inverse
            for axis, basis in axes:
                tables = _along(basis.T, tables, axis)
            result[places] = tables.reshape(places.shape)
        return result

    return multiply


def _axis_basis(num_levels: int, correlation: float) -> tuple[Floats, Floats]:
    """Eigenvalues (n,) and orthonormal rows (n, n) that diagonalise the precision within tables that sum to zero."""
    contrasts = scipy.linalg.helmert(num_levels)
    values, vectors = np.linalg.eigh(contrasts @ ar1_precision(num_levels, correlation) @ contrasts.T)
    constant = np.full((1, num_levels), num_levels**-0.5)
    return np.concatenate([np.ones(1), values]), np.concatenate([constant, vectors.T @ contrasts])


def _along(matrix: Floats, tables: Floats, axis: int) -> Floats:
    return np.moveaxis(np.tensordot(matrix, tables, (1, axis)), 0, axis)
