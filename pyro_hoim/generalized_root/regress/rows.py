"""Rows of root regressions: checked, sparse, by columns and by rows, with the roots of every entry."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
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
from ...schema import Domain, NumberKind, Variable
from ..nodes.columns import Families, NodeFamilies
from ..nodes.families import GaussianFamily, NodeFamily
from ..nodes.user_family import UserFamily

_ROUNDING = 1e-9  # of the mean of a root


@dataclass(frozen=True, eq=False)
class RootRows:
    """Rows of one data matrix, ready for the regressions of all nodes.

    The matrix by columns (CSC) is ``indptr`` (d + 1,), ``rows`` (nnz,) and ``values`` (nnz,), with the roots T_1 ...
    T_k of its entries (k, nnz), k being ``order``; by rows it is ``row_end`` (n,), ``columns`` (nnz,) and ``row_roots``
    (k, nnz). Where rows were counted, ``counts`` (n,) says how often each was seen.

    Where columns have several families, roots are standardised: divided by ``scales`` (d, k), their standard deviations
    in the rows learned from. Coefficients of regressions are then those of standardised roots, which are ``unit`` times
    those of the model. Of one family they are the model's, and ``scales`` is None.
    """

    domain: Domain
    families: NodeFamilies
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
    scales: NDArray[np.float64] | None = None

    @property
    def total(self) -> int:
        """Number of rows, equal ones too."""
        return self.num_rows if self.counts is None else int(self.counts.sum())

    def counted(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Values of the rows (n, ...), times their counts."""
        return values if self.counts is None else (values.T * self.counts).T

    def unit(self, root: int, positions: Iterable[int]) -> float:
        """Coefficient of standardised roots over that of the roots themselves, of a set of columns."""
        return 1.0 if self.scales is None else math.prod(self.scales[list(positions), root - 1].tolist())

    def has_mean(self, index: int) -> bool:
        """Whether a column has the unpenalised term (2, 1), which gives a Gaussian one beside others its mean."""
        return self.families.common is None and self.families[index].name == GaussianFamily.name

    def start_alone(self, index: int, means: NDArray[np.float64]) -> NDArray[np.float64]:
        """Coefficients of a column's unpenalised terms, were it independent; from the means of its roots (k,)."""
        scales = np.ones(self.order) if self.scales is None else self.scales[index]
        if self.has_mean(index):
            square, mean = means[:2] * scales[:2]
            variance = max(square - mean**2, 1e-12 * square)
            return np.array([-0.5, mean]) / variance * scales[:2]
        first = torch.tensor(means[0] * scales[0], dtype=torch.float64)
        return np.array([float(self.families[index].base_natural(first)) * scales[0]])

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
        """Columns whose regression has no finite solution: always zero, or always the largest count allowed.

        One of a Gaussian column that has a mean is without a variance, whatever its value.
        """
        places = {name: index for index, name in enumerate(self.domain.names)}
        return {
            name: value
            for name, value in self.constant_columns.items()
            if value in (0.0, self.families.largest_values[places[name]]) or self.has_mean(places[name])
        }

    @cached_property
    def is_fixed(self) -> NDArray[np.bool_]:
        """Which columns are fixed, (d,)."""
        return np.array([name in self.fixed_columns for name in self.domain.names])

    @cached_property
    def matrix(self) -> Any:
        """The values as a SciPy CSR matrix (n, d)."""
        shape = (self.num_rows, len(self.domain))
        return scipy.sparse.csc_matrix((self.values, self.rows, self.indptr), shape=shape).tocsr()

    def part(self, index: NDArray[np.int64]) -> tuple[Any, tuple[str, ...] | None]:
        """Some rows, as regressions of the same columns take them, with the names of the columns."""
        if self.families.common is None:  # a table has columns of one kind
            return self.matrix[index], self.domain.names
        return CountTable(self.domain, self.matrix[index]), None

    @cached_property
    def pair_work(self) -> int:
        """Multiplications of one scan of all pairs of columns."""
        counts = np.bincount(self.rows, minlength=self.num_rows).astype(np.int64)
        return int((counts * (counts - 1) // 2).sum())

    @cached_property
    def digest(self) -> str:
        """Digest of columns, family and values."""
        content = hashlib.sha256(json.dumps([self.domain.to_json(), repr(self.families), self.num_rows]).encode())
        for array in (self.indptr, self.rows, self.values):
            content.update(np.ascontiguousarray(array).tobytes())
        if self.counts is not None:
            content.update(self.counts.tobytes())
        return content.hexdigest()[:32]


def prepare_rows(
    data: Any,
    family: Families,
    order: int,
    names: Sequence[str] | None = None,
    counts: Any = None,
    scales: NDArray[np.float64] | None = None,
) -> RootRows:
    """Check a data matrix (n, d), as ``fit_roots`` takes it in memory, and lay it out for root regressions.

    Columns are named x0, x1, ... where neither names nor data name them; rows with a count of zero are left out. Roots
    of several families are standardised by ``scales``, by default those of the rows.
    """
    # The door of all rows: numbers in memory, with names.
    if isinstance(names, str):
        raise wrong_type("names", "a sequence of column names", received="one string")
    if is_source(data):
        hint = "read them into a CountTable; fit_roots alone takes rows that lie elsewhere"
        raise wrong_type("data", "numbers in memory", data, hint)
    kind = kind_of_numbers(family)
    data = as_counts(data, kind=kind) if is_frame(data) else data
    matrix, domain = (data.matrix, data.domain) if isinstance(data, CountTable) else (data, None)
    if names is None and domain is not None:
        names = domain.names
    else:
        domain = None
    if names is not None and not isinstance(family, NodeFamily):  # names first, for values depend on their families
        NodeFamilies.of(family, Domain(Variable(str(name), kind=kind) for name in dict.fromkeys(names)))
    table = CountTable.from_matrix(matrix, names, kind=kind, source="data")
    # How often each row was seen, whole numbers (n,).
    if counts is not None:
        where = "row {} of counts".format
        counts = parse_counts(np.asarray(counts).ravel(), name="counts", where=where, fractional=False)
        check_exact_shape(counts, (table.num_rows,), "counts")
        table = CountTable.from_matrix(table.matrix[counts > 0], table.domain.names, kind=kind, source="data")
        counts = counts[counts > 0]
    # Values in the support of the family of their column.
    families = NodeFamilies.of(family, table.domain)
    if families.common is None:
        pairs = zip(table.domain.names, families, strict=True)
        domain, order = Domain(Variable(name, kind=one.kind) for name, one in pairs), max(order, 2)
    sparse = _checked_values(table, families)
    # Entries by columns and by rows, with their roots.
    num_rows, width = table.num_rows, len(table.domain)
    indptr, rows, values = sparse.indptr.astype(np.int64), sparse.indices.astype(np.int64), sparse.data
    columns = np.repeat(np.arange(width), np.diff(indptr))
    by_rows = np.lexsort((columns, rows))
    roots = np.empty((order, len(values)))
    for one, places in families.groups:
        is_inside = slice(None) if families.common is not None else np.isin(columns, places)
        entries = torch.from_numpy(values[is_inside])
        for j in range(1, order + 1):
            roots[j - 1, is_inside] = one.root(entries, j).numpy()
    if families.common is None:
        if scales is None:
            times = np.ones(num_rows) if counts is None else counts
            scales = _standard_deviations(roots, rows, columns, width, times)
        roots /= scales.T[:, columns]
    return RootRows(
        domain or table.domain,
        families,
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
        scales,
    )


def kind_of_numbers(family: Families) -> NumberKind:
    """Kind of the values of a family, or of several; of several kinds the one that holds all, ``real``."""
    each = [family] if isinstance(family, NodeFamily) else family.values() if isinstance(family, Mapping) else family
    kinds: set[NumberKind] = {one.kind for one in each}
    return kinds.pop() if len(kinds) == 1 else "real"


def _checked_values(table: CountTable, families: NodeFamilies) -> Any:
    """The values as a SciPy CSC matrix, refused unless each is in the support of the family of its column."""
    if table.num_rows < 1 or len(table.domain) < 1:
        shape = f"{table.num_rows} x {len(table.domain)}"
        raise unexpected("data", "at least one row and one column", received=shape, code="empty")
    sparse: Any = scipy.sparse.csc_matrix(table.matrix)
    names = table.domain.names
    for family, places in families.groups:
        # Columns of one kind, whose faults a table of that kind names.
        part, inside = table, sparse
        if families.common is None:
            chosen = [names[i] for i in places]
            part = CountTable.from_matrix(table.matrix[:, places], chosen, kind=family.kind, source="data")
            inside = sparse[:, places]
        if np.isfinite(family.largest_value):
            part.check_range(0.0, family.largest_value, f"the {family.name} family")
        if isinstance(family, UserFamily):
            # Values that are possible, and zeros whose roots are zero, for rows are sparse.
            zero = torch.zeros(1, dtype=torch.float64)
            family.check_values(torch.from_numpy(inside.data), "data")
            if inside.nnz < math.prod(inside.shape):
                family.check_values(zero, "data")
            if float(family.root(zero, 1)) != 0.0:
                problem = f"the statistic of the {family.name} family is not 0 at 0, as regressions need"
                raise refused("family", problem)
    if sparse.nnz >= 2**32:
        problem = f"{size_text(sparse.nnz, 'nonzero entries')} exceed the limit of 2^32"
        raise out_of_reach("data", problem, "take fewer columns")
    return sparse


def _standard_deviations(
    roots: NDArray[np.float64],
    rows: NDArray[np.int64],
    columns: NDArray[np.int64],
    width: int,
    counts: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Standard deviations (d, k) of the roots (k, nnz) of every column; 1 where rounding alone moves a root."""
    scales, total, weights = np.ones((width, len(roots))), counts.sum(), counts[rows]
    zeros = total - np.bincount(columns, weights, width)
    for j, root in enumerate(roots):
        # Two passes, for means may be far from zero.
        means = np.bincount(columns, weights * root, width) / total
        squares = np.bincount(columns, weights * (root - means[columns]) ** 2, width) + zeros * means**2
        spread = np.sqrt(squares / total)
        scales[:, j] = np.where(spread > _ROUNDING * np.abs(means), spread, 1.0)
    return scales


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
