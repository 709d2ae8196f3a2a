"""Matrices of counts and of real numbers: one precision, one layout, and the place of a stored value."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy import sparse

from ..errors import wrong_shape, wrong_type


def as_numbers(matrix: Any, source: str) -> Any:
    """A copy as two-dimensional array or SciPy CSR matrix of float64, checked for being numbers only."""
    if isinstance(matrix, torch.Tensor):
        matrix = (matrix.to_dense() if matrix.layout != torch.strided else matrix).detach().cpu().numpy()
    found = matrix if sparse.issparse(matrix) else np.asarray(matrix)
    if found.dtype.kind not in "biuf":
        raise wrong_type(source, "numbers", received=f"an array of {found.dtype}")
    if found.ndim != 2:
        raise wrong_shape(source, "(rows, variables)", found)
    if sparse.issparse(found):
        return sparse.csr_matrix(found).astype(np.float64)
    return found.astype(np.float64)


def place(matrix: Any, position: int) -> tuple[int, int]:
    """Row and column of a stored value."""
    if sparse.issparse(matrix):
        row = int(np.searchsorted(matrix.indptr, position, side="right")) - 1
        return row, int(matrix.indices[position])
    return int(position // matrix.shape[1]), int(position % matrix.shape[1])


def as_counts(matrix: Any) -> sparse.csr_matrix:
    """CSR matrix without repeated or zero entries, indices sorted; a CSR matrix is changed in place."""
    found = sparse.csr_matrix(matrix)
    found.sum_duplicates()
    found.eliminate_zeros()
    return found


def as_dense(matrix: Any) -> np.ndarray:
    """The numbers of a sparse or dense matrix as an array."""
    return matrix.toarray() if sparse.issparse(matrix) else matrix
