"""Rows of root regressions: checked, sparse, by columns and by rows, with the roots of every entry."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse
import torch
from numpy.typing import NDArray

from ...checks import check_exact_shape
from ...data.counts import CountTable
from ...data.encoding import parse_counts, to_numbers
from ...data.frames import RowsLike, as_counts, is_frame, is_source
from ...errors import MissingDataError, out_of_reach, refused, size_text, unexpected, wrong_type
from ...schema import Domain, NumberKind
from ..nodes.families import NodeFamily
from ..nodes.user_family import UserFamily


@dataclass(frozen=True, eq=False)
class RootRows:
    """Rows of one data matrix, ready for the regressions of all nodes.

    The matrix by columns (CSC) is ``indptr`` (d + 1,), ``rows`` (nnz,) and ``values`` (nnz,), with the roots T_1 ...
    T_k of its entries (k, nnz), k being ``order``; by rows it is ``row_end`` (n,), ``columns`` (nnz,) and ``row_roots``
    (k, nnz). Where rows were counted, ``counts`` (n,) says how often each was seen.
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
    counts: NDArray[np.float64] | None = None

    @property
    def total(self) -> int:
        """Number of rows, equal ones too."""
        return self.num_rows if self.counts is None else int(self.counts.sum())

    def counted(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Values of the rows (n, ...), times their counts."""
        return values if self.counts is None else (values.T * self.counts).T

    def _entries(self, index: int) -> slice:
        """Places of one column's nonzero entries."""
        return slice(self.indptr[index], self.indptr[index + 1])

    def column_roots(self, index: int) -> NDArray[np.float64]:
        """T_1 ... T_k of one variable in all rows, (n, k)."""
        roots, entries = np.zeros((self.num_rows, self.order)), self._entries(index)
        roots[self.rows[entries]] = self.roots[:, entries].T
        return roots

    def column(self, index: int) -> NDArray[np.float64]:
        """Values of one variable in all rows, (n,)."""
        values, entries = np.zeros(self.num_rows), self._entries(index)
        values[self.rows[entries]] = self.values[entries]
        return values

    @cached_property
    def constant_columns(self) -> dict[str, float]:
        """The one value of columns that hold one in all rows."""
        constants: dict[str, float] = {}
        for index, name in enumerate(self.domain.names):
            values = self.values[self._entries(index)]
            if len(values) == 0:
                constants[name] = 0.0
            elif len(values) == self.num_rows and bool((values == values[0]).all()):
                constants[name] = float(values[0])
        return constants

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
        if self.counts is not None:
            content.update(self.counts.tobytes())
        return content.hexdigest()[:32]


def prepare_rows(
    data: Any, family: NodeFamily, order: int, names: Sequence[str] | None = None, counts: Any = None
) -> RootRows:
    """Check a data matrix (n, d), as ``fit_roots`` takes it in memory, and lay it out for root regressions.

    Columns are named x0, x1, ... where neither names nor data name them; rows with a count of zero are left out.
    """
    # The door of all rows: numbers in memory, with names.
    if isinstance(names, str):
        raise wrong_type("names", "a sequence of column names", received="one string")
    if is_source(data):
        hint = "read them into a CountTable; fit_roots alone takes rows that lie elsewhere"
        raise wrong_type("data", "numbers in memory", data, hint)
    data = as_counts(data, kind=family.kind) if is_frame(data) else data
    matrix, domain = (data.matrix, data.domain) if isinstance(data, CountTable) else (data, None)
    if names is None and domain is not None:
        names = domain.names
    else:
        domain = None
    table = CountTable.from_matrix(matrix, names, kind=family.kind, source="data")
    # How often each row was seen, whole numbers (n,).
    if counts is not None:
        where = "row {} of counts".format
        counts = parse_counts(np.asarray(counts).ravel(), name="counts", where=where, fractional=False)
        check_exact_shape(counts, (table.num_rows,), "counts")
        table = CountTable.from_matrix(table.matrix[counts > 0], table.domain.names, kind=family.kind, source="data")
        counts = counts[counts > 0]
    # Values in the support of the family.
    num_rows, width = table.num_rows, len(table.domain)
    if num_rows < 1 or width < 1:
        raise unexpected("data", "at least one row and one column", received=f"{num_rows} x {width}", code="empty")
    if np.isfinite(family.largest_value):
        table.check_range(0.0, family.largest_value, f"the {family.name} family")
    sparse: Any = scipy.sparse.csc_matrix(table.matrix)
    if isinstance(family, UserFamily):
        # Values that are possible, and zeros whose roots are zero, for rows are sparse.
        zero = torch.zeros(1, dtype=torch.float64)
        family.check_values(torch.from_numpy(sparse.data), "data")
        if sparse.nnz < math.prod(sparse.shape):
            family.check_values(zero, "data")
        if float(family.root(zero, 1)) != 0.0:
            raise refused("family", f"the statistic of the {family.name} family is not 0 at 0, as regressions need")
    if sparse.nnz >= 2**32:
        problem = f"{size_text(sparse.nnz, 'nonzero entries')} exceed the limit of 2^32"
        raise out_of_reach("data", problem, "take fewer columns")
    # Entries by columns and by rows, with their roots.
    indptr, rows, values = sparse.indptr.astype(np.int64), sparse.indices.astype(np.int64), sparse.data
    columns = np.repeat(np.arange(width), np.diff(indptr))
    by_rows = np.lexsort((columns, rows))
    entries = torch.from_numpy(values)
    roots = np.stack([family.root(entries, j).numpy() for j in range(1, order + 1)])
    return RootRows(
        domain or table.domain,
        family,
        order,
        num_rows,
        indptr,
        rows,
        values,
        roots,
        np.cumsum(np.bincount(rows, minlength=num_rows)).astype(np.uint32),
        columns[by_rows].astype(np.uint32),
        np.ascontiguousarray(roots[:, by_rows]),
        counts,
    )


def counted_numbers(source: RowsLike, kind: NumberKind) -> tuple[CountTable, NDArray[np.float64]]:
    """The distinct rows of a source whose labels are numbers, and how often each was seen."""
    distinct = source.distinct()
    if distinct.has_missing:
        hint = "use drop_missing() first"
        raise MissingDataError(f"{distinct.num_missing_cells} rows with missing cells", argument="data", hint=hint)
    columns = [
        to_numbers(pd.Series(v.labels, dtype=object)).to_numpy(dtype=float)[codes]
        for v, codes in zip(distinct.domain, distinct.codes.T.numpy(), strict=True)
    ]
    table = CountTable.from_matrix(np.stack(columns, 1), distinct.domain.names, kind=kind, source="data")
    return table, distinct.counts.numpy()
