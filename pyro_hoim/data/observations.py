"""Observations of finite variables: integer codes, counts or weights, and the statistics that models need."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Unpack

import numpy as np
import pandas as pd
import torch

from .._modes import plain_mode
from ..checks import array_of, check_exact_shape
from ..errors import (
    MissingDataError,
    check_names,
    check_type,
    check_unique,
    out_of_range,
    out_of_reach,
    refused,
    size_text,
    unexpected,
    wrong_shape,
    wrong_type,
)
from ..schema import Domain
from .columns import ColumnOptions, ColumnRules, Encoded, encode_columns, warn_of_note
from .counting import check_split, marginal_tables, merge_rows, split_rows
from .files.table_file import CsvColumns, read_table_file
from .readers import (
    Source,
    checked_codes,
    labels_of,
    missing_as_level,
    narrowed,
    row_counts,
    row_position,
    tensor_of_codes,
    warn_of_missing_words,
)
from .wide import long_cells, long_table

_PORTION = 2**14  # rows


class _Made(cached_property[torch.Tensor]):
    """A property that is made when it is asked for, and an argument of a dataclass without a default."""

    def __get__(self, instance: Any, owner: type[Any] | None = None) -> Any:
        if instance is None:  # so that the dataclass sees no default
            raise AttributeError
        return super().__get__(instance, owner)


@dataclass(frozen=True, eq=False)
class Observations:
    r"""Rows (or cells) of a finite domain with their counts or weights; missing cells are kept as -1.

    The constructor takes codes; the ``from_*`` class methods read pandas, NumPy, tensors, dense tables and CSV files.
    The empirical law is :math:`\hat p(x) = \sum_{i: x_i = x} w_i / \sum_i w_i` with counts w. Do not write into them.
    A cell takes one byte where no variable has more than 127 levels, until ``codes`` are asked for.

    Args:
        domain: the variables, all of them finite.
        codes: level positions in schema order, -1 where missing, (N, d), of any type of whole numbers; N may be 0. They
            are held as ``narrow``; as an attribute they are long, made at first use and then kept.
        counts: finite and non-negative, whole or fractional, of a total below 2^53, float64 (N,); one for every row
            when left out.
        is_weighted: whether these are weights, each of one unit that was observed, also where all are whole;
            fractions always are.
        squares: of rows that stand for several observations with weights, the sum of their squared weights, float64
            (N,); left out, every row is one observation.

    Attributes:
        narrow: the codes in the smallest signed type of whole numbers that has those of all variables, (N, d).

    Raises:
        InputError: wrong shape, a code outside -1 ... cardinality - 1, a count that is NaN, infinite or
            negative, or a total from 2^53.
        InputTypeError: codes that are not integers.

    Example:
        >>> data = Observations(Domain.from_cardinalities({"a": 2, "b": 2}), torch.tensor([[0, 1], [1, 1], [0, 1]]))
        >>> data.num_rows, data.total_count, data.unique().counts.tolist()
        (3, 3.0, [2.0, 1.0])
    """

    domain: Domain
    codes: torch.Tensor = _Made(plain_mode()(lambda rows: rows.narrow.long()))  # type: ignore[assignment]
    counts: torch.Tensor = None  # type: ignore[assignment]
    is_weighted: bool = False
    squares: torch.Tensor | None = None
    narrow: torch.Tensor = field(init=False)

    def __post_init__(self) -> None:
        check_type(self.domain, Domain, "Observations domain")
        for variable in self.domain:
            if not variable.is_finite:
                problem = f"variable {variable.name!r} is of kind {variable.kind!r}, not finite"
                raise refused("Observations domain", problem, code="other-domain")
        object.__setattr__(self, "narrow", checked_codes(vars(self).pop("codes"), self.domain))
        object.__setattr__(self, "counts", row_counts(None, self.counts, len(self.narrow), "Observations counts"))
        if self.squares is not None:
            squares = torch.as_tensor(self.squares, dtype=torch.float64)
            if squares.shape != self.counts.shape or not bool((squares.isfinite() & (squares >= 0)).all()):
                raise out_of_range("Observations squares", "one finite number from 0 for every row", received=squares)
            object.__setattr__(self, "squares", squares)

    @classmethod
    def from_pandas(
        cls,
        frame: pd.DataFrame,
        *,
        domain: Domain | None = None,
        count: str | None = "count",
        weights: str | None = None,
        columns: Sequence[str] | int | None = None,
        missing_values: Collection[str] = ("",),
        **rules: Unpack[ColumnRules],
    ) -> Observations:
        """Observations from a data frame, one row per observation or per cell; arguments as those of :meth:`from_csv`.

        Levels of a categorical column are its categories in their order (an ordered one gives an ordinal variable).
        Other columns get the labels present, those that read as numbers first and in numeric order, then text by
        code points. A whole number is labelled without decimals. None, NaN and ``missing_values`` are missing.

        Raises:
            UnknownNameError: a column or, with ``domain``, a label that is not known; the closest are listed.
            InputError: repeated column names, no rows, bad counts; numbers with many values, or more than 100 levels,
                of which nothing was said; or a column that seems to hold counts or weights, likewise.

        Warns:
            DataWarning: columns that were left out, and cut points that were chosen; levels such as ``?`` and ``NA``
                that mostly mean missing; tables read as :func:`long_table` does.

        Example:
            >>> import pandas as pd
            >>> frame = pd.DataFrame({"age": [30, 9, 30], "smoker": ["no", "yes", None]})
            >>> data = Observations.from_pandas(frame)
            >>> data.domain["age"].labels, data.codes.tolist()
            (('9', '30'), [[1, 0], [0, 1], [1, -1]])
        """
        if domain is None and columns is None and count == "count" and weights is None:
            check_type(frame, pd.DataFrame, "from_pandas frame")
            frame = long_table(frame)
        return cls._read(Source.of_frame(frame), domain, count, weights, columns, missing_values, **rules)

    @classmethod
    def from_csv(
        cls,
        path: str | os.PathLike[str] | CsvColumns,
        *,
        domain: Domain | None = None,
        count: str | None = "count",
        weights: str | None = None,
        columns: Sequence[str] | int | None = None,
        missing_values: Collection[str] = ("",),
        sep: str | None = None,
        encoding: str | None = None,
        **rules: Unpack[ColumnRules],
    ) -> Observations:
        r"""Observations from a file with a header, one row per observation or per cell.

        Without a column of counts every row is one observation. Blanks around cells are removed. An empty cell is
        missing and ``?`` is an ordinary level, unless ``missing_values`` says otherwise. Levels are ordered as in
        :meth:`from_pandas`. What files may be is said at :func:`~pyro_hoim.data.read_table_file`.

        Args:
            path: the file, or its cells where they have been read already.
            domain: known variables, whose columns alone are read.
            count: name of the column of whole counts; the default may be absent from the file; None for no such column.
            weights: name of a column of weights, fractions allowed, in place of counts.
            columns: names of the columns to read, or how many from the left; default all but counts and weights.
            missing_values: labels that mean "missing".
            sep: the character between cells; None finds it.
            encoding: of the text; None finds it.
            rules: ``bins``, ``exclude`` and ``allow``, by which columns are cut, left out and taken as they are
                (:func:`~pyro_hoim.data.read_columns`); without a domain.

        Raises:
            InputError: columns as :meth:`from_pandas` refuses them; the file is missing, a folder, empty, without rows,
                no table, ragged (line number given) or has repeated column names; a count is not a whole number or is
                negative, NaN or infinite.
            UnknownNameError: a column or, with ``domain``, a label that is not known; line and closest names are given.
        """
        read = path if isinstance(path, CsvColumns) else read_table_file(path, sep=sep, encoding=encoding)
        if domain is None and columns is None and count == "count" and weights is None:
            read = long_cells(read)
        return cls._read(Source.of_csv(read), domain, count, weights, columns, missing_values, **rules)

    @classmethod
    def from_numpy(
        cls,
        values: Any,
        *,
        names: Sequence[str] | None = None,
        domain: Domain | None = None,
        counts: Any = None,
        weights: Any = None,
        missing_values: Collection[str] = ("",),
    ) -> Observations:
        """Observations from an array of *labels*, (N, d); integer *codes* go through :meth:`from_tensor`.

        Args:
            values: an array or rows of labels, one column per variable; masked cells are missing.
            names: variable names; default the domain's, else x0, x1, ...
            domain: known variables, in the order of the columns unless ``names`` says otherwise.
            counts: whole counts of the rows (N,).
            weights: weights of the rows (N,), fractions allowed; not together with ``counts``.
            missing_values: labels that mean "missing", besides None and NaN.

        Raises:
            InputError: wrong shape, wrong number of names, repeated names, no rows, or bad counts.
            InputTypeError: a data frame, whose names would be lost.
            UnknownNameError: a name or label that is not in ``domain``; the closest are listed.

        Warns:
            DataWarning: as :meth:`from_pandas`; an array of text holds missing cells as the words ``nan`` and ``None``.
        """
        array = _array_of_labels(values)
        if array.ndim != 2:
            raise wrong_shape("from_numpy values", "(rows, variables)", array)
        # Columns are those of the domain in its order, unless names say otherwise.
        if names is None:
            names = domain.names if domain is not None else [f"x{i}" for i in range(array.shape[1])]
        header = [str(name) for name in names]
        if len(header) != array.shape[1]:
            raise unexpected("from_numpy names", f"{array.shape[1]} names", received=len(header), code="wrong-shape")
        check_unique(header, "from_numpy names")
        as_they_are = {} if domain is not None else {"allow": header, "named": header}
        source = Source(header, lambda name: array[:, header.index(name)], "the array", row_position, len(array))
        read = cls._read(source, domain, None, None, None, missing_values, **as_they_are)
        return cls(read.domain, read.narrow, row_counts(counts, weights, len(array)), weights is not None)

    @classmethod
    def _read(
        cls,
        table: Source,
        domain: Domain | None,
        count: str | None,
        weights: str | None,
        columns: Sequence[str] | int | None,
        missing_values: Collection[str],
        **rules: Any,
    ) -> Observations:
        """The rows of a table; warnings of what was left out, and of words for missing that became levels."""
        check_names(rules, [*ColumnRules.__annotations__, "named", "write"], table.reader, noun="option")
        if domain is not None and any(rules.get(name) for name in ("bins", "allow")):
            raise refused("bins, allow", "are of columns whose levels a domain does not say", code="conflict")
        how = ColumnOptions(count, weights, columns, missing_values, **rules)
        encoded = encode_columns(table, domain, how)
        return cls.of_encoded(encoded, weights is not None, is_new=domain is None)

    @classmethod
    def of_encoded(cls, encoded: Encoded, is_weighted: bool, *, is_new: bool = True) -> Observations:
        """The rows of columns that were read; without a domain that was known, with warnings of what was found."""
        domain, codes, counts, _, note, _ = encoded
        if not is_new:
            return cls(domain, codes, counts, is_weighted=is_weighted)
        warn_of_note(note)
        warn_of_missing_words(domain.variables)
        return cls._unchecked(domain, codes, counts, is_weighted)

    @classmethod
    def _unchecked(
        cls,
        domain: Domain,
        codes: torch.Tensor,
        counts: torch.Tensor,
        is_weighted: bool,
        squares: torch.Tensor | None = None,
    ) -> Observations:
        """Observations of what a reader of this package made, or what was made of observations."""
        rows = object.__new__(cls)
        narrow = narrowed(codes, domain.cardinalities)
        vars(rows).update(domain=domain, narrow=narrow, counts=counts, is_weighted=is_weighted, squares=squares)
        return rows

    @classmethod
    def from_tensor(cls, codes: Any, domain: Domain, counts: Any = None, *, weights: Any = None) -> Observations:
        """Observations from integer codes (N, d) in schema order, -1 or masked where missing."""
        tensor = tensor_of_codes(codes)
        tensor = tensor.clone() if tensor.itemsize < 8 else tensor  # long ones are copied when they are narrowed
        parsed = row_counts(counts, weights, len(tensor) if tensor.dim() else 0)
        return cls(domain, tensor, parsed, weights is not None)

    @classmethod
    def from_table(cls, domain: Domain, counts: Any = None, *, weights: Any = None) -> Observations:
        """Observations from a dense table; one row per cell in row-major order, cells of count zero included.

        Whole counts, or weights in place of them, (*cardinalities): axis ``i`` belongs to variable ``i``.
        """
        if (counts is None) == (weights is None):
            raise unexpected("from_table", "exactly one of counts and weights", code="conflict")
        table = array_of(counts if weights is None else weights, "from_table counts")
        check_exact_shape(table, domain.cardinalities, "from_table counts")
        flat = table.reshape(-1)
        codes = np.indices(table.shape).reshape(len(domain), -1).T if len(domain) else np.zeros((1, 0))
        parsed = row_counts(*((flat, None) if weights is None else (None, flat)), flat.size)
        return cls(domain, torch.from_numpy(np.ascontiguousarray(codes, dtype=np.int64)), parsed, weights is not None)

    @property
    def num_rows(self) -> int:
        """Number of rows held; a cell of several observations is one row (see :attr:`total_count`)."""
        return len(self.narrow)

    @cached_property
    def total_count(self) -> float:
        """Sum of the counts or weights."""
        return math.fsum(self.counts.tolist())

    @cached_property
    def missing_by_column(self) -> tuple[int, ...]:
        """Number of missing cells of every variable in the rows held."""
        codes = self.narrow.numpy()
        is_any = codes.size > 0 and codes.min() < 0
        return tuple(np.count_nonzero(codes < 0, axis=0).tolist()) if is_any else (0,) * len(self.domain)

    @property
    def num_missing_cells(self) -> int:
        """Number of missing cells in the rows held."""
        return sum(self.missing_by_column)

    @property
    def has_missing(self) -> bool:
        """Whether any cell is missing."""
        return self.num_missing_cells > 0

    @cached_property
    def has_whole_counts(self) -> bool:
        """Whether every count is a whole number of observations."""
        is_counted = not self.is_weighted and self.squares is None
        return is_counted and bool((self.counts == self.counts.floor()).all())

    @property
    def squared_weights(self) -> torch.Tensor:
        """Sum over the observations of every row of their squared weights, float64 (N,); of counts, the counts."""
        if self.squares is not None:
            return self.squares
        return self.counts if self.has_whole_counts else self.counts.square()

    @property
    def effective_count(self) -> float:
        r"""Kish's effective number of observations, :math:`(\sum_i w_i)^2 / \sum_i w_i^2`; of counts, their total."""
        squares = float(self.squared_weights.sum())
        return self.total_count**2 / squares if squares > 0 else 0.0

    def in_effective_rows(self) -> Observations:
        """Weights in the unit in which they add up to :attr:`effective_count`, and say as much as so many rows.

        What weighs rows against a prior, a penalty or a price of parameters takes them in this unit, so that it does
        not depend on the one that weights come in. Equal weights are counts of one. What was not named as weights, such
        as scikit-learn's ``sample_weight`` (a row of weight two is two rows), stays as it is.
        """
        if not self.is_weighted or not self.total_count > 0:
            return self
        factor = self.effective_count / self.total_count
        return self.replaced(counts=self.counts * factor, squares=self.squared_weights * factor**2)

    def __repr__(self) -> str:
        missing = f", {self.num_missing_cells} missing cells" if self.has_missing else ""
        return f"Observations({len(self.domain)} variables, {self.num_rows} rows, total {self.total_count:g}{missing})"

    def replaced(
        self,
        *,
        domain: Domain | None = None,
        codes: torch.Tensor | None = None,
        counts: torch.Tensor | None = None,
        squares: torch.Tensor | None = None,
    ) -> Observations:
        """The rows with another domain, codes or counts; what is not given stays, and weights stay weights.

        Without ``squares`` beside them, new counts are those of single observations.
        """
        parts = zip((domain, codes, counts), (self.domain, self.narrow, self.counts), strict=True)
        new: list[Any] = [own if given is None else given for given, own in parts]
        own = self.squares if counts is None else None
        return Observations(*new, is_weighted=self.is_weighted, squares=own if squares is None else squares)

    @staticmethod
    def concatenated(parts: Sequence[Observations]) -> Observations:
        """All rows of several observations over one domain; weights where some of them are."""
        names = ("narrow", "counts", "squared_weights")
        codes, counts, squares = (torch.cat([getattr(part, name) for part in parts]) for name in names)
        is_weighted, is_whole = any(part.is_weighted for part in parts), all(part.has_whole_counts for part in parts)
        return Observations(parts[0].domain, codes, counts, is_weighted, None if is_whole else squares)

    def unique(self) -> Observations:
        """Equal rows merged and their counts added, in lexicographic order; count-zero rows dropped; made once."""
        return self._merged

    @cached_property
    @plain_mode()
    def _merged(self) -> Observations:
        others = [] if self.has_whole_counts else [self.squared_weights.numpy()]
        merged = merge_rows(self.narrow.numpy(), self.counts.numpy(), self.domain.cardinalities, *others)
        codes, counts, *squares = map(torch.from_numpy, merged)
        return Observations._unchecked(self.domain, codes, counts, self.is_weighted, *squares)

    def marginal_counts(self, edges: Iterable[Sequence[str]], *, max_cells: int = 2**28) -> torch.Tensor:
        """Marginal counts of several sets of variables, edge after edge; the sufficient statistics of a model.

        Costs one pass over the distinct rows per edge: O(distinct rows x sum of edge sizes).

        Args:
            edges: sets of variable names; the axes of each table follow the edge's own order. The empty edge gives
                the total count.
            max_cells: largest allowed length of the result, a float64 vector of tables, each row-major.

        Raises:
            UnknownNameError: an unknown variable; InputError: one repeated inside an edge.
            MissingDataError: a variable of some edge has missing cells; their number is given.
            IntractableError: the result would be longer than ``max_cells``.
        """
        indices = [self.domain.indices((edge,) if isinstance(edge, str) else edge) for edge in edges]
        check_complete(self, "marginal_counts", {i for edge in indices for i in edge})
        cardinalities = self.domain.cardinalities
        needed = sum(math.prod(cardinalities[i] for i in edge) for edge in indices)
        if needed > max_cells:
            problem = f"{size_text(needed, 'cells')} are needed, more than max_cells={max_cells}"
            raise out_of_reach("marginal_counts", problem, "ask for smaller edges or raise max_cells")
        codes, counts = self._merged.narrow.numpy(), self._merged.counts.numpy()
        return torch.from_numpy(marginal_tables(codes, counts, cardinalities, indices))

    def table(self, *, max_cells: int = 2**28) -> torch.Tensor:
        """Dense table of counts (*cardinalities), float64; errors as :meth:`marginal_counts`."""
        counts = self.marginal_counts([self.domain.names], max_cells=max_cells)
        return counts.reshape(self.domain.cardinalities)

    def entropy(self, names: Sequence[str] | None = None) -> float:
        r"""Entropy of the empirical law of some variables (default all), nats, exact; no joint table is formed.

        .. math:: H = -\sum_x \hat p(x) \log \hat p(x)

        MissingDataError for missing cells among them, InputError for a total count of zero.
        """
        data = self if names is None else self.project(names)
        check_complete(data, "entropy")
        if (total := data.total_count) <= 0:
            raise unexpected("entropy", "a positive total count", received="0", code="empty")
        probs = data.unique().counts / total
        return -math.fsum((probs * probs.log()).tolist()) + 0.0

    def project(self, names: Iterable[str]) -> Observations:
        """The given variables only, in schema order; rows are kept as they are and not merged."""
        wanted = (names,) if isinstance(names, str) else tuple(names)
        codes = self.narrow[:, sorted(self.domain.indices(wanted))]
        return self.replaced(domain=self.domain.project(wanted), codes=codes)

    def drop_missing(self) -> Observations:
        """Rows without a missing cell."""
        return self.rows((self.narrow >= 0).all(1)) if self.has_missing else self

    def rows(self, index: torch.Tensor) -> Observations:
        """Rows at the given positions (M,) long, or where a mask (N,) is true, with their counts."""
        squares = None if self.squares is None else self.squares[index]
        return self.replaced(codes=self.narrow[index], counts=self.counts[index], squares=squares)

    def missing_as_level(self, label: str) -> Observations:
        """Missing cells turned into an ordinary level of that name, which must not be empty.

        The level is added behind the others to every variable that has missing cells, and an ordinal variable then
        becomes nominal. A variable that has the level already keeps its levels and its missing cells join them.
        """
        domain, codes = missing_as_level(self.domain, self.codes, label)
        return self.replaced(domain=domain, codes=codes)

    def split(self, fractions: Sequence[float], seed: int) -> tuple[Observations, ...]:
        """Random disjoint parts of the observations.

        Whole counts are split as single observations without replacement, and a part of a table of cells is again
        cells with counts. Up to 2^20 observations are shuffled, so that a table splits exactly as its expanded rows
        would; of more, and where one part takes all, counts are drawn from their multivariate hypergeometric law,
        at a cost that does not grow with them. With weights a row is a unit and keeps its weight. Part
        ``k`` ends at the rounded cumulated fraction of the observations.

        Args:
            fractions: non-negative, summing to 1 (tolerance 1e-9); a part may be empty.
            seed: non-negative integer, of a NumPy generator; global random state is not touched.

        Example:
            >>> data = Observations.from_table(Domain.from_cardinalities([2, 2]), [[30, 10], [0, 20]])
            >>> [part.total_count for part in data.split([0.5, 0.25, 0.25], seed=0)]
            [30.0, 15.0, 15.0]
        """
        counts, shares = self.counts.numpy(), check_split(fractions, seed)
        parts = split_rows(counts, shares, int(seed), are_weights=not self.has_whole_counts)
        if not self.has_whole_counts:
            return tuple(self.rows(torch.from_numpy(rows)) for rows, _ in parts)
        return tuple(
            self.replaced(codes=self.narrow[torch.from_numpy(rows)], counts=torch.from_numpy(counts))
            for rows, counts in parts
        )

    def code_bytes(self) -> Iterator[bytes]:
        """The bytes of the long codes, row after row, a portion at a time, as digests take them."""
        return (part.long().numpy().tobytes() for part in self.narrow.split(_PORTION))

    def to_pandas(self, *, count: str | None = "count") -> pd.DataFrame:
        """Data frame of labels as categorical columns (ordered for ordinal variables), NaN where missing.

        The column of counts comes last, or not at all with None.
        """
        if count is not None and count in self.domain:
            problem = f"{count!r} is a variable"
            raise refused("to_pandas count", problem, "choose another name or None", code="repeated-name")
        frame = labels_of(self.domain, self.narrow.numpy())
        if count is not None:
            frame[count] = self.counts.numpy().astype(np.int64 if self.has_whole_counts else np.float64)
        return frame


def check_complete(data: Observations, operation: str, positions: Collection[int] | None = None) -> None:
    """Raise :class:`MissingDataError` if a column, or one at one of the positions, has missing cells."""
    per_column = data.missing_by_column
    columns = [i for i, number in enumerate(per_column) if number and (positions is None or i in positions)]
    if columns:
        cells = sum(per_column[i] for i in columns)
        names = ", ".join(repr(data.domain.names[i]) for i in columns[:6])
        problem = f"{cells} missing cells in {names}{(', ...' if len(columns) > 6 else '')}"
        raise MissingDataError(problem, argument=operation, hint="use drop_missing() or missing_as_level(label) first")


def _array_of_labels(values: Any) -> np.ndarray:
    """Labels as an array, None where they are masked; rows of Python keep the types of their cells."""
    if isinstance(values, pd.DataFrame):
        raise wrong_type("from_numpy values", "an array", values, "use Observations.from_pandas(frame)")
    if isinstance(values, np.ma.MaskedArray):
        labels = values.data.astype(object)
        labels[np.ma.getmaskarray(values)] = None
        return labels
    return array_of(values if hasattr(values, "__array__") else np.array(values, dtype=object), "from_numpy values")


def rows_digest(rows: Observations) -> str:
    """Digest of the law and the number of observations, whatever the order of the rows."""
    merged = rows.unique()
    content = hashlib.sha256(json.dumps(rows.domain.to_json()).encode())
    for part in merged.code_bytes():
        content.update(part)
    content.update(merged.counts.numpy().tobytes())
    return content.hexdigest()[:32]
