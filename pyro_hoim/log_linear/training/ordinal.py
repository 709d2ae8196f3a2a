"""Precision of ordinal axes under a ridge, and its spectrum. Private to training."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

__all__ = ["ar1_precision", "contrast_spectrum"]

Floats = NDArray[np.float64]


def ar1_precision(num_levels: int, correlation: float) -> Floats:
    """Inverse covariance (n, n) of a stationary AR(1) sequence of unit variance; the identity for correlation 0."""
    matrix = (1 + correlation**2) * np.eye(num_levels, dtype=np.float64)
    if num_levels:
        matrix[0, 0] = matrix[-1, -1] = 1.0
    matrix -= correlation * (np.eye(num_levels, k=1) + np.eye(num_levels, k=-1))
    matrix /= 1 - correlation**2
    return matrix


@lru_cache(maxsize=256)
def contrast_spectrum(num_levels: int, correlation: float) -> Floats:
    """Eigenvalues (n - 1,) of the precision within tables that sum to zero along the axis."""
    contrasts = scipy.linalg.helmert(num_levels)
    matrix = contrasts @ ar1_precision(num_levels, correlation) @ contrasts.T
    return np.linalg.eigvalsh(matrix).astype(np.float64)
