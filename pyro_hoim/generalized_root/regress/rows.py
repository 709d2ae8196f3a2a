"""Rows of root regressions: checked, sparse, by columns and by rows, with the roots of every entry."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, cast, runtime_checkable

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray

from ...errors import check_unique, out_of_reach, refused, size_text, unexpected, wrong_type
from ...schema import Domain, Variable
from ..nodes.families import NodeFamily

__all__ = ["RootRows", "RowSubset", "RowTable", "prepare_rows"]

_LARGEST = 2.0**53


@runtime_checkable
class RowTable(Protocol):
    """Rows that bring their domain along."""

    @property
    def domain(self) -> Domain:
        """The columns."""
        ...

    @property
    def matrix(self) -> Any:
        """The rows, a dense or sparse matrix (n, d)."""
        ...


@dataclass(frozen=True, eq=False)
class RowSubset:
    """A matrix with the domain of its columns."""

    domain: Domain
    matrix: Any


@dataclass(frozen=True, eq=False)
class RootRows:
    """Rows of one data matrix, ready for the regressions of all nodes.

    The matrix by columns (CSC) is ``indptr`` (d + 1,), ``rows`` (nnz,) and ``values`` (nnz,), with the roots T_1 ...
    T_k of its entries (k, nnz), k being ``order``; by rows it is ``row_end`` (n,), ``columns`` (nnz,) and ``row_roots``
    (k, nnz).
    """

    domain: Domain
    family: NodeFamily
    order: int
    num_rows: int
    indptr: NDArray[np.int64]
    rows: NDArray[np.int64]
    values: NDArray[np.float64]
    roots: NDArray[np.float64]
    row_end: NDArray[np.uint32]
    columns: NDArray[np.uint32]
    row_roots: NDArray[np.float64]

    def _entries(self, index: int) -> slice:
        """Places of one column's nonzero entries."""
        return slice(self.indptr[index], self.indptr[index + 1])

    def column_roots(self, index: int) -> NDArray[np.float64]:
        """T_1 ... T_k of one variable in all rows, (n, k)."""
        found, place = np.zeros((self.num_rows, self.order)), self._entries(index)
        found[self.rows[place]] = self.roots[:, place].T
        return found

    def column(self, index: int) -> NDArray[np.float64]:
        """Values of one variable in all rows, (n,)."""
        found, place = np.zeros(self.num_rows), self._entries(index)
        found[self.rows[place]] = self.values[place]
        return found

    @cached_property
    def constant_columns(self) -> dict[str, float]:
        """The one value of columns that hold one in all rows."""
        found: dict[str, float] = {}
        for index, name in enumerate(self.domain.names):
            values = self.values[self._entries(index)]
            if len(values) == 0:
                found[name] = 0.0
            elif len(values) == self.num_rows and bool((values == values[0]).all()):
                found[name] = float(values[0])
        return found

    @cached_property
    def fixed_columns(self) -> dict[str, float]:
        """Columns whose regression has no finite solution: always zero, or always the largest count allowed."""
        edges = (0.0, self.family.largest_value)
        return {name: value for name, value in self.constant_columns.items() if value in edges}

    @cached_property
    def is_fixed(self) -> NDArray[np.bool_]:
        """Which columns are fixed, (d,)."""
        return np.array([name in self.fixed_columns for name in self.domain.names])

    @cached_property
    def matrix(self) -> Any:
        """The values as a SciPy CSR matrix (n, d)."""
        shape = (self.num_rows, len(self.domain))
        return scipy.sparse.csc_matrix((self.values, self.rows, self.indptr), shape=shape).tocsr()

    @cached_property
    def pair_work(self) -> int:
        """Multiplications of one scan of all pairs of columns."""
        counts = np.bincount(self.rows, minlength=self.num_rows).astype(np.int64)
        return int((counts * (counts - 1) // 2).sum())

    @cached_property
    def digest(self) -> str:
        """Digest of columns, family and values."""
        content = hashlib.sha256(json.dumps([self.domain.to_json(), repr(self.family), self.num_rows]).encode())
        for array in (self.indptr, self.rows, self.values):
            content.update(np.ascontiguousarray(array).tobytes())
        return content.hexdigest()[:32]


def prepare_rows(data: Any, family: NodeFamily, order: int, names: Sequence[str] | None = None) -> RootRows:
    """Check a data matrix and lay it out for root regressions.

    Args:
        data: (n, d) SciPy sparse matrix, array or tensor, or an object with ``domain`` and ``matrix``.
        family: node family; its support is checked.
        order: largest root k.
        names: column names; default x0, x1, ... or those of ``data``.

    Raises:
        InputError: not a matrix, no rows or columns, names that do not fit, or a value outside the support; the message
            names the first such value with its row and column.
        InputTypeError: something else than numbers.
        IntractableError: 2^32 nonzero entries or more.
    """
    domain: Domain | None = None
    if isinstance(data, RowTable):
        domain = data.domain
        data = data.matrix
    matrix = _as_csc(data)
    num_rows, width = cast("tuple[int, int]", matrix.shape)
    if num_rows < 1 or width < 1:
        raise unexpected("data", "at least one row and one column", received=f"{num_rows} x {width}", code="empty")
    if names is not None:
        if isinstance(names, str):
            raise wrong_type("names", "a sequence of column names", received="one string")
        if len(names) != width:
            raise unexpected("names", f"one per column ({width})", received=len(names), code="wrong-shape")
        check_unique(list(names), "names")
        domain = Domain(Variable(name, kind=family.kind) for name in names)
    elif domain is None:
        domain = Domain(Variable(f"x{i}", kind=family.kind) for i in range(width))
    if matrix.nnz >= 2**32:
        problem = f"{size_text(matrix.nnz, 'nonzero entries')} exceed the limit of 2^32"
        raise out_of_reach("data", problem, "take fewer columns")
    indptr = matrix.indptr.astype(np.int64)
    rows = matrix.indices.astype(np.int64)
    values = matrix.data.astype(np.float64)
    _check_support(values, rows, indptr, domain, family)
    by_rows = np.lexsort((np.repeat(np.arange(width), np.diff(indptr)), rows))
    counts = np.bincount(rows, minlength=num_rows)
    entries = torch.from_numpy(values)
    roots = np.empty((order, len(values)))
    for j in range(order):
        roots[j] = family.root(entries, j + 1).numpy()
    return RootRows(
        domain,
        family,
        order,
        num_rows,
        indptr,
        rows,
        values,
        roots,
        np.cumsum(counts).astype(np.uint32),
        np.repeat(np.arange(width), np.diff(indptr))[by_rows].astype(np.uint32),
        np.ascontiguousarray(roots[:, by_rows]),
    )


def _as_csc(data: Any) -> Any:
    if isinstance(data, torch.Tensor):
        data = (data.to_dense() if data.layout != torch.strided else data).detach().cpu().numpy()
    if not scipy.sparse.issparse(data):
        data = np.asarray(data)
    if len(data.shape) != 2:
        expected = "a matrix of rows and columns"
        raise unexpected("data", expected, received=f"shape {tuple(data.shape)}", code="wrong-shape")
    if data.dtype.kind not in "biuf":
        raise wrong_type("data", "numbers", received=f"a matrix of {data.dtype}")
    matrix: Any = scipy.sparse.csc_matrix(data, copy=True).astype(np.float64)
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    matrix.sort_indices()
    return matrix


def _check_support(
    values: NDArray[np.float64],
    rows: NDArray[np.int64],
    indptr: NDArray[np.int64],
    domain: Domain,
    family: NodeFamily,
) -> None:
    checks = [(~np.isfinite(values), "finite numbers")]
    if family.is_discrete:
        checks.append(((values < 0) | (values != np.floor(values)), "whole numbers from 0"))
        checks.append((values > _LARGEST, "counts up to 2^53"))
        if family.largest_value < _LARGEST:
            checks.append((values > family.largest_value, f"counts up to the maximum {family.largest_value:g}"))
    elif family.name == "exponential":
        checks.append((values < 0, "numbers from 0"))
    for is_bad, wanted in checks:
        if is_bad.any():
            first = int(np.flatnonzero(is_bad)[0])
            column = domain.names[int(np.searchsorted(indptr, first, side="right")) - 1]
            raise refused(
                "data",
                f"the {family.name} family expects {wanted}, received {values[first]:g} in row {rows[first]} (from 0) "
                f"of column {column!r} ({int(is_bad.sum())} such values)",
            )
