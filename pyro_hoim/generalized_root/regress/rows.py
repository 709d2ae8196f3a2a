"""Rows of root regressions: checked, sparse, by columns and by rows, with the roots of every entry."""

import hashlib
import itertools
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, cast

import numpy as np
import pandas as pd
import scipy.sparse
import torch
from numpy.typing import NDArray

from ...checks import check_exact_shape
from ...data.counts import CountTable
from ...data.encoding import parse_counts, to_numbers
from ...data.frames import RowsLike, as_counts, is_frame, is_source
from ...errors import MissingDataError, conflict, out_of_range, out_of_reach, refused, size_text, unexpected, wrong_type
from ...schema import Domain, NumberKind, Variable
from ..nodes.columns import Families, NodeFamilies
from ..nodes.families import GaussianFamily, IndicatorFamily, NodeFamily
from ..nodes.user_family import UserFamily

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_ROUNDING = 1e-9  # of the mean of a root


@dataclass(frozen=True, eq=False)
class Category:
    r"""One category in some rows, and contrasts of its levels in place of indicators.

    The indicators of a category with shares p of the rows are replaced by the functions of its level that have mean 0,
    variance 1 and no correlation in the rows. They span all functions of the level but the constants, so that one
    redundant parameter of every group is gone; and the Euclidean norm of the coefficients of a group is the standard
    deviation of what it adds to a natural parameter, whatever basis of contrasts is taken and whatever level is a
    reference. Coefficients c of indicators and :math:`\gamma` of contrasts U (K, q) are

    .. math:: c = U \gamma, \quad \gamma = U^\top \operatorname{diag}(p)\, c, \quad
        U^\top \operatorname{diag}(p)\, U = I, \quad p^\top U = 0, \quad \lVert\gamma\rVert^2 = \sum_k p_k c_k^2.

    Attributes:
        name: of the category.
        places: of its indicators among the variables (K,).
        shares: of its levels in the rows learned from (K,); a level that was not seen there has none.
        codes: level of every row (n,).
    """

    name: str
    places: Integers
    shares: Floats
    codes: Integers

    @cached_property
    def contrasts(self) -> Floats:
        """Values of the contrasts (K, q), one fewer than levels that were seen; 0 for a level that was not seen."""
        seen = np.flatnonzero(self.shares > 0)
        table = np.zeros((len(self.shares), max(0, len(seen) - 1)))
        if len(seen) < 2:
            return table
        # The reflection that takes the last unit vector to the roots of the shares: its other columns are orthogonal.
        root = np.sqrt(self.shares[seen] / self.shares[seen].sum())
        normal = root.copy()
        normal[-1] += 1.0
        reflection = np.eye(len(seen)) - np.outer(normal, normal) * (2.0 / (normal @ normal))
        table[seen] = reflection[:, :-1] / root[:, None]
        return table

    @cached_property
    def weighted(self) -> Floats:
        """What takes coefficients of indicators to those of contrasts, (q, K)."""
        return self.contrasts.T * self.shares

    @property
    def num_contrasts(self) -> int:
        """How many contrasts there are."""
        return self.contrasts.shape[1]

    @property
    def columns(self) -> Integers:
        """The places of the variables that hold its contrasts in the rows (q,)."""
        return self.places[: self.num_contrasts]

    @cached_property
    def values(self) -> Floats:
        """Contrasts of all rows (n, q)."""
        return self.contrasts[self.codes]


@dataclass(frozen=True, eq=False)
class RootSample:
    """Values of the rows that a model was estimated from, by columns, and how often each row was seen.

    Arrays are those of :class:`RootRows`, without the roots.
    """

    indptr: NDArray[np.int64]
    rows: NDArray[np.int64]
    values: NDArray[np.float64]
    num_rows: int
    counts: NDArray[np.float64] | None

    def column(self, index: int) -> NDArray[np.float64]:
        """Values of one variable in all rows, (n,)."""
        column, entries = np.zeros(self.num_rows), slice(self.indptr[index], self.indptr[index + 1])
        column[self.rows[entries]] = self.values[entries]
        return column

    def columns(self, positions: Sequence[int]) -> torch.Tensor:
        """Values of some variables in all rows, (n, m)."""
        columns = np.array([self.column(s) for s in positions])
        return torch.from_numpy(columns.reshape(len(positions), self.num_rows).T)

    @property
    def weights(self) -> NDArray[np.float64]:
        """How often each row was seen, (n,)."""
        return np.ones(self.num_rows) if self.counts is None else self.counts

    def typical(self, families: NodeFamilies) -> NDArray[np.float64]:
        """Lower median of every column, (d,), the mode of 0/1 columns; of a category its most frequent level."""
        medians = np.empty(len(families))
        for index in range(len(families)):
            column = self.column(index)
            order = np.argsort(column, kind="stable")
            below = np.cumsum(self.weights[order])
            medians[index] = column[order[np.searchsorted(below, below[-1] / 2)]]
        for block in families.blocks:
            shares = [self.weights @ self.column(index) for index in block]
            medians[block] = np.arange(len(block)) == np.argmax(shares)
        return medians


@dataclass(frozen=True, eq=False)
class RootRows:
    """Rows of one data matrix, ready for the regressions of all nodes.

    The matrix by columns (CSC) is ``indptr`` (d + 1,), ``rows`` (nnz,) and ``values`` (nnz,), with the roots T_1 ...
    T_k of its entries (k, nnz), k being ``order``; by rows it is ``row_end`` (n,), ``columns`` (nnz,) and ``row_roots``
    (k, nnz). Where rows were counted, ``counts`` (n,) says how often each was seen.

    Where columns have several families, roots are standardised: divided by ``scales`` (d, k), their standard deviations
    in the rows learned from. Coefficients of regressions are then those of standardised roots, which are ``unit`` times
    those of the model. Of one family they are the model's, and ``scales`` is None.

    The indicators of a category give way to its contrasts (:mod:`.categories`), one fewer than levels: the columns of
    the first indicators hold them, those of the others are empty. The scale of an indicator is the root of its share.
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
    categories: tuple[Category, ...] = ()

    @property
    def total(self) -> int:
        """Number of rows, equal ones too."""
        return self.num_rows if self.counts is None else int(self.counts.sum())

    @cached_property
    def largest_roots(self) -> list[float]:
        """Largest modulus of T_1 ... T_k in the rows."""
        largest = np.maximum(self.roots.max(1, initial=0.0), -self.roots.min(1, initial=0.0))
        return cast("list[float]", largest.tolist())

    def counted(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Values of the rows (n, ...), times their counts."""
        return values if self.counts is None else (values.T * self.counts).T

    def unit(self, root: int, positions: Iterable[int]) -> float:
        """Coefficient of standardised roots over that of the roots themselves, of a set of columns."""
        if self.scales is None:
            return 1.0
        return math.prod(self.scales[s, root - 1].item() for s in positions if s not in self.category_of)

    @cached_property
    def category_of(self) -> dict[int, Category]:
        """The category of every indicator, by its place."""
        return {place: category for category in self.categories for place in category.places.tolist()}

    @cached_property
    def nodes(self) -> tuple[int, ...]:
        """What has a regression of its own: every category, by its first indicator, and every other variable."""
        firsts = {category.places[0] for category in self.categories}
        return tuple(s for s in range(len(self.domain)) if s not in self.category_of or s in firsts)

    @cached_property
    def unit_of(self) -> NDArray[np.int64]:
        """Number of the node of every variable, (d,)."""
        numbers = {node: number for number, node in enumerate(self.nodes)}
        inside = {s: int(category.places[0]) for s, category in self.category_of.items()}
        return np.array([numbers[inside.get(s, s)] for s in range(len(self.domain))], dtype=np.int64)

    @cached_property
    def units(self) -> Domain:
        """The nodes as variables; a category has its own name."""
        if not self.categories:
            return self.domain
        each = [self.category_of[s].name if s in self.category_of else self.domain.names[s] for s in self.nodes]
        return Domain(Variable(name, kind="real") for name in each)

    @cached_property
    def features(self) -> tuple[NDArray[np.int64], ...]:
        """The columns of every node that regressions of others take; of a fixed one none."""
        return tuple(
            self.category_of[s].columns if s in self.category_of else np.array([s] if not self.is_fixed[s] else [], int)
            for s in self.nodes
        )

    def is_fixed_node(self, index: int) -> bool:
        """Whether a node's regression has no finite solution; a category's has where two of its levels occur."""
        if index not in self.category_of:
            return bool(self.is_fixed[index])
        return bool(self.is_fixed[self.category_of[index].places].all())

    def num_statistics(self, index: int) -> int:
        """Natural parameters of a node: one for every root, and of a category one for every contrast."""
        return self.category_of[index].num_contrasts if index in self.category_of else self.order

    def has_mean(self, index: int) -> bool:
        """Whether a column has the unpenalised term (2, 1), which gives a Gaussian one beside others its mean."""
        return self.families.common is None and self.families[index].name == GaussianFamily.name

    def is_free(self, key: tuple[int, int], positions: Sequence[int]) -> bool:
        """Whether a term costs nothing: the linear term of a column, and what gives a Gaussian one its mean."""
        return key == (1, 1) or (key == (2, 1) and self.has_mean(positions[0]))

    def has_root(self, node: int, others: NDArray[np.int64], root: int) -> NDArray[np.bool_]:
        """Whether sets of a node and others (m, l - 1), of several families, have terms of a root.

        That is, whether the term is a function of its own (:meth:`NodeFamilies.full_roots`).
        """
        if root == others.shape[1] + 1:
            return np.ones(len(others), dtype=bool)
        # Sets with the same families have the same roots.
        alike, inverse = np.unique(np.sort(self._family_numbers[others], axis=1), axis=0, return_inverse=True)
        firsts = [int(places[0]) for _, places in self.families.groups]
        has_root = [root in self.families.full_roots([node, *(firsts[k] for k in one)], root) for one in alike.tolist()]
        return np.array(has_root, dtype=bool)[inverse.reshape(-1)]

    @cached_property
    def _family_numbers(self) -> NDArray[np.int64]:
        """Number of the family of every variable, (d,)."""
        numbers = np.empty(len(self.domain), np.int64)
        for k, (_, places) in enumerate(self.families.groups):
            numbers[places] = k
        return numbers

    def single_roots(self, index: int, order: int) -> range:
        """Roots of a column's own terms in a full model up to an order; of a category one for each level."""
        return range(1, order + 1) if self.families.common is not None else self.families.full_roots([index], order)

    def start_alone(self, index: int, means: NDArray[np.float64]) -> NDArray[np.float64]:
        """Coefficients of a column's unpenalised terms, were it independent; from the means of its roots (k,)."""
        if index in self.category_of:
            shares = self.category_of[index].shares
            return self.category_of[index].weighted @ np.log(np.where(shares > 0, shares, 1.0))
        if self.scales is not None and self.has_mean(index):
            scales = self.scales[index, :2]
            square, mean = means[:2] * scales
            variance = max(square - mean**2, 1e-12 * square)
            return np.array([-0.5, mean]) / variance * scales
        unit = self.unit(1, [index])
        first = torch.tensor(means[0] * unit, dtype=torch.float64)
        return np.array([float(self.families[index].base_natural(first)) * unit])

    def _entries(self, index: int) -> slice:
        """Places of one column's nonzero entries."""
        return slice(self.indptr[index], self.indptr[index + 1])

    def column_roots(self, index: int) -> NDArray[np.float64]:
        """T_1 ... T_k of one variable in all rows, (n, k); of a category its contrasts (n, q)."""
        if index in self.category_of:
            return self.category_of[index].values
        roots, entries = np.zeros((self.num_rows, self.order)), self._entries(index)
        roots[self.rows[entries]] = self.roots[:, entries].T
        return roots

    def column(self, index: int) -> NDArray[np.float64]:
        """Values of one variable in all rows, (n,)."""
        if index in self.category_of:
            category = self.category_of[index]
            return (category.places[category.codes] == index).astype(np.float64)
        values, entries = np.zeros(self.num_rows), self._entries(index)
        values[self.rows[entries]] = self.values[entries]
        return values

    @cached_property
    def constant_columns(self) -> dict[str, float]:
        """The one value of columns that hold one in all rows."""
        constants: dict[str, float] = {}
        for index, name in enumerate(self.domain.names):
            values = self.values[self._entries(index)]
            if index in self.category_of:
                values = np.ones(int(self.column(index).sum()))
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
        matrix: Any = scipy.sparse.csc_matrix((self.values, self.rows, self.indptr), shape=shape).tocsr()
        if not self.categories:
            return matrix
        # Indicators in place of contrasts.
        is_number = np.array([s not in self.category_of for s in range(len(self.domain))], dtype=np.float64)
        matrix = matrix @ scipy.sparse.diags(is_number)
        for category in self.categories:
            places = (np.arange(self.num_rows), category.places[category.codes])
            matrix = matrix + scipy.sparse.csr_matrix((np.ones(self.num_rows), places), shape=shape)
        matrix.eliminate_zeros()
        return matrix

    def part(self, index: NDArray[np.int64]) -> tuple[Any, tuple[str, ...] | None]:
        """Some rows, as regressions of the same columns take them, with the names of the columns."""
        if self.families.common is None:  # a table has columns of one kind
            return self.matrix[index], self.domain.names
        return CountTable(self.domain, self.matrix[index]), None

    @property
    def sample(self) -> RootSample:
        """The values alone, which a result keeps."""
        if not self.categories:
            return RootSample(self.indptr, self.rows, self.values, self.num_rows, self.counts)
        whole = self.matrix.tocsc()  # with indicators in place of contrasts
        places = whole.indptr.astype(np.int64), whole.indices.astype(np.int64)
        return RootSample(*places, whole.data, self.num_rows, self.counts)

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
    categories = _categories(sparse, families, table.domain, counts, scales)
    if categories:
        sparse = _with_contrasts(sparse, categories)
    # Entries by columns and by rows, with their roots.
    num_rows, width = table.num_rows, len(table.domain)
    indptr, rows, values = sparse.indptr.astype(np.int64), sparse.indices.astype(np.int64), sparse.data
    columns = np.repeat(np.arange(width), np.diff(indptr))
    by_rows = np.lexsort((columns, rows))
    roots = np.empty((order, len(values)))
    for one, places in families.groups:
        is_inside = slice(None) if families.common is not None else np.isin(columns, places)
        entries = torch.from_numpy(values[is_inside])
        for j in range(1, order + 1):  # contrasts are their own roots
            roots[j - 1, is_inside] = entries if isinstance(one, IndicatorFamily) else one.root(entries, j).numpy()
    if families.common is None:
        if scales is None:
            times = np.ones(num_rows) if counts is None else counts
            # Standard deviations (d, k) of the roots (k, nnz) of every column; 1 where rounding alone moves a root.
            scales, total, weights = np.ones((width, len(roots))), times.sum(), times[rows]
            zeros = total - np.bincount(columns, weights, width)
            for j, root in enumerate(roots):
                # Two passes, for means may be far from zero.
                means = np.bincount(columns, weights * root, width) / total
                squares = np.bincount(columns, weights * (root - means[columns]) ** 2, width) + zeros * means**2
                spread = np.sqrt(squares / total)
                scales[:, j] = np.where(spread > _ROUNDING * np.abs(means), spread, 1.0)
            for category in categories:
                scales[category.places] = np.sqrt(category.shares)[:, None]
        divisors = scales.copy()
        for category in categories:
            divisors[category.places] = 1.0
        roots /= divisors.T[:, columns]
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
        categories,
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


def _categories(
    sparse: Any,
    families: NodeFamilies,
    domain: Domain,
    counts: NDArray[np.float64] | None,
    scales: NDArray[np.float64] | None,
) -> tuple[Category, ...]:
    """The categories of the columns of a CSC matrix, refused unless every row has one indicator of each."""
    categories: list[Category] = []
    for places in families.blocks:
        inside = sparse[:, places].tocsr()
        inside.eliminate_zeros()
        name = cast("IndicatorFamily", families[int(places[0])]).category
        bad = np.flatnonzero(np.diff(inside.indptr) != 1)
        if len(bad):
            where = f"data, row {bad[0]} (counted from 0)"
            expected = f"one indicator of the category {name!r} that is 1, and others that are 0"
            raise out_of_range(where, expected, received=f"{np.diff(inside.indptr)[bad[0]]} that are 1")
        codes = inside.indices.astype(np.int64)
        shares = np.bincount(codes, counts, len(places)) if scales is None else scales[places, 0] ** 2
        categories.append(Category(name, places.astype(np.int64), shares / shares.sum(), codes))
    # Sets are named by categories and other variables.
    numbers = {name for name, one in zip(domain.names, families, strict=True) if not isinstance(one, IndicatorFamily)}
    for category in categories:
        if category.name in numbers:
            problem = f"{category.name!r} is the name of a category and of a column beside it"
            raise conflict("family", problem, "name the category otherwise")
    return tuple(categories)


def _with_contrasts(sparse: Any, categories: Sequence[Category]) -> Any:
    """A CSC matrix with contrasts, in all rows, in place of indicators."""
    num_rows, width = sparse.shape
    parts = [(sparse.indices[a:b], sparse.data[a:b]) for a, b in itertools.pairwise(sparse.indptr)]
    for category in categories:
        for place in category.places.tolist():
            parts[place] = np.empty(0, np.int64), np.empty(0)
        for column, values in zip(category.columns.tolist(), category.values.T, strict=True):
            parts[column] = np.arange(num_rows), values
    ends = np.concatenate([[0], np.cumsum([len(rows) for rows, _ in parts])])
    rows, values = (np.concatenate(part) for part in zip(*parts, strict=True))
    return scipy.sparse.csc_matrix((values.astype(np.float64), rows, ends), shape=(num_rows, width))


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


# Terms of joint models over the columns of rows, and those over contrasts of categories in place of indicators.


class JointTerm(NamedTuple):
    """One term of a joint model: its key (j, l) and the sorted positions of its columns in the rows."""

    key: tuple[int, int]
    positions: tuple[int, ...]


Values = Mapping[JointTerm, float]


def to_contrasts(rows: RootRows, values: Values) -> dict[JointTerm, float]:
    """Terms of contrasts from those of indicators; what a category's mean over its levels holds is left out."""
    return _converted(rows, values, is_inverse=False) if rows.categories else dict(values)


def to_levels(rows: RootRows, values: Values) -> dict[JointTerm, float]:
    """Terms of indicators, of all levels that were seen, from those of contrasts: their means over levels are zero."""
    return _converted(rows, values, is_inverse=True) if rows.categories else dict(values)


def _converted(rows: RootRows, values: Values, is_inverse: bool) -> dict[JointTerm, float]:
    """Terms over levels (inverse) or contrasts, from those of the other."""
    # Tables of all terms of the same nodes, one axis for each.
    tables: dict[tuple[tuple[int, int], tuple[int, ...]], Floats] = {}
    for (key, positions), value in values.items():
        pairs = sorted((rows.nodes[rows.unit_of[s]], s) for s in positions)
        nodes, cell = tuple(node for node, _ in pairs), list[int]()
        for node, s in pairs:
            cell.append(int(np.searchsorted(rows.category_of[s].places, s)) if node in rows.category_of else 0)
        if (key, nodes) not in tables:
            categories = [rows.category_of.get(node) for node in nodes]
            sizes = [1 if c is None else c.num_contrasts if is_inverse else len(c.places) for c in categories]
            tables[key, nodes] = np.zeros(sizes)
        tables[key, nodes][tuple(cell)] = value
    # Every axis of a category is changed alone.
    converted: dict[JointTerm, float] = {}
    for (key, nodes), before in tables.items():
        table, places = before, list[list[int]]()
        for axis, node in enumerate(nodes):
            category = rows.category_of.get(node)
            if category is None:
                places.append([node])
                continue
            seen = category.shares > 0
            matrix = category.contrasts[seen] if is_inverse else category.weighted
            table = np.moveaxis(np.tensordot(matrix, table, (1, axis)), 0, axis)
            places.append((category.places[seen] if is_inverse else category.columns).tolist())
        for inside, value in zip(itertools.product(*places), table.reshape(-1).tolist(), strict=True):
            converted[JointTerm(key, tuple(sorted(inside)))] = value
    return converted
