"""Precision of ordinal axes under a ridge: which axes are smooth, and its spectrum. Private to training."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from ...schema import Variable
from ...structure.hypergraph import InteractionHypergraph

__all__ = ["ar1_precision", "contrast_spectrum", "is_smooth_axis", "precision_diagonal", "smooth_axes"]

Floats = NDArray[np.float64]


def is_smooth_axis(variable: Variable) -> bool:
    """Whether neighbouring levels are tied: an ordinal variable of three levels or more."""
    return variable.kind == "ordinal" and variable.cardinality > 2


def ar1_precision(num_levels: int, correlation: float) -> Floats:
    """Inverse covariance (n, n) of a stationary AR(1) sequence of unit variance; the identity for correlation 0."""
    matrix = (1 + correlation**2) * np.eye(num_levels, dtype=np.float64)
    if num_levels:
        matrix[0, 0] = matrix[-1, -1] = 1.0
    matrix -= correlation * (np.eye(num_levels, k=1) + np.eye(num_levels, k=-1))
    matrix /= 1 - correlation**2
    return matrix


def smooth_axes(hypergraph: InteractionHypergraph, min_order: int) -> NDArray[np.int64]:
    """Smooth axes of all tables of ``min_order`` or more variables: (position, entries before, length, after)."""
    found = [
        (where.start, math.prod(shape[:k]), shape[k], math.prod(shape[k + 1 :]))
        for (edge, where), shape in zip(hypergraph.term_slices.items(), hypergraph.edge_shapes, strict=True)
        if len(edge) >= min_order
        for k, name in enumerate(edge)
        if is_smooth_axis(hypergraph.domain[name])
    ]
    return np.array(found, dtype=np.int64).reshape(-1, 4)


def precision_diagonal(hypergraph: InteractionHypergraph, axes: NDArray[np.int64], correlation: float) -> Floats:
    """Diagonal (num_terms,) of the precision of all tables, strength one."""
    diagonal = np.ones(hypergraph.num_terms)
    for start, num_a, num_m, num_c in axes.tolist():
        table = diagonal[start : start + num_a * num_m * num_c].reshape(num_a, num_m, num_c)
        table *= np.diag(ar1_precision(num_m, correlation))[:, None]
    return diagonal


@lru_cache(maxsize=256)
def contrast_spectrum(num_levels: int, correlation: float) -> Floats:
    """Eigenvalues (n - 1,) of the precision within tables that sum to zero along the axis."""
    contrasts = scipy.linalg.helmert(num_levels)
    matrix = contrasts @ ar1_precision(num_levels, correlation) @ contrasts.T
    return np.linalg.eigvalsh(matrix).astype(np.float64)
