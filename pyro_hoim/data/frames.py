"""Data frames of pandas, polars and others: how every function that takes rows reads them, and gives labels back."""

import importlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeGuard, Unpack, runtime_checkable

import numpy as np
import pandas as pd
import torch

from ..errors import InputError, check_choice, check_names, conflict, other_domain, refused, unexpected, wrong_type
from ..schema import Domain, NumberKind, Variable
from .arrow_tables import frame_of, plain_dictionary
from .bins import bin_columns, cuts_of
from .columns import (
    ColumnOptions,
    ColumnRules,
    FrameOptions,
    Write,
    columns_of_numbers,
    encode_columns,
    is_identifier,
    num_seen,
    python_words,
    warn_of_note,
)
from .counts import CountTable, kind_of_table
from .encoding import code_reader, has_levels, label_of, meaning_of
from .observations import Observations
from .readers import Source
from .wide import long_table

__all__ = [
    "DataLike",
    "FrameLike",
    "RowsLike",
    "as_counts",
    "as_frame",
    "as_observations",
    "check_columns",
    "codes_of",
    "column_named",
    "cut_alike",
    "drop_missing",
    "identifier_columns",
    "is_frame",
    "is_source",
    "labels_like",
    "rows_of_frame",
    "rows_seen",
]


# Columns before anything is learned: which name rows instead of describing them.

_SHOWN = 6


def check_columns(data: Observations, *, weighted: bool = False) -> None:
    """Refuse columns that name rows instead of describing them; ``weighted`` as :func:`rows_seen` has it."""
    if columns := identifier_columns(data, weighted=weighted):
        total = rows_seen(data, weighted=weighted)
        shown = ", ".join(f"{name!r} ({levels} levels in {total:g} rows)" for name, levels in columns[:_SHOWN])
        shown += f" and {len(columns) - _SHOWN} more" if len(columns) > _SHOWN else ""
        problem = (
            f"expected columns that describe rows, but {shown} {('is' if len(columns) == 1 else 'are')} (almost) "
            "unique per row, so nothing can be learned about the levels"
        )
        raise refused("columns", problem, "leave such columns out, or group their values")


def rows_seen(data: Observations, *, weighted: bool = False) -> int:
    """How many rows tell of the levels of a column: those of positive weight, whatever their weights add up to.

    ``weighted`` says that what they bear are known to be weights of rows, not whole counts.
    """
    counts = data.counts.numpy()
    return num_seen(counts, len(data.domain), is_weighted=weighted or not data.has_whole_counts)


def identifier_columns(data: Observations, *, weighted: bool = False, seen: int | None = None) -> list[tuple[str, int]]:
    """Columns that name rows, with their numbers of levels; ``weighted`` as :func:`rows_seen` has it.

    ``seen`` is the number of rows where it is known, as of rows of which the different ones are held.

    They have as many levels as there are rows (of more than 20), or more than 1,000 levels with fewer than two rows
    each on average.
    """
    total = rows_seen(data, weighted=weighted) if seen is None else seen
    identifiers = list[tuple[str, int]]()
    for variable, codes in zip(data.domain, data.narrow.T, strict=True):
        levels = len(codes[(codes >= 0) & (data.counts > 0)].unique())
        if is_identifier(levels, variable.cardinality, total):
            identifiers.append((variable.name, levels))
    return identifiers


@runtime_checkable
class _ArrowFrame(Protocol):
    def __arrow_c_stream__(self, requested_schema: object = None) -> object: ...


FrameLike = pd.DataFrame | _ArrowFrame
"""A data frame: of pandas, or of a library whose frames offer the Arrow protocol, such as polars."""


@runtime_checkable
class RowsLike(Protocol):
    """Rows that need not be in memory (:class:`~pyro_hoim.data.RowSource`)."""

    @property
    def domain(self) -> Any:
        """The variables."""
        ...

    def distinct(self, *, max_rows: int | None = None) -> Observations:
        """The distinct rows with their counts."""
        ...

    def observations(self) -> Observations:
        """All rows, in their order."""
        ...

    def marginal_counts(self, edges: Iterable[Sequence[str]]) -> torch.Tensor:
        """Counts of the cells of many sets of variables."""
        ...


DataLike = Observations | FrameLike | RowsLike
"""What functions of rows of finite variables take."""

_KINDS: Mapping[str, type] = {"b": bool, "i": int, "u": int, "f": float}
_ARROW_HINT = "install pyarrow (pip install 'pyro-hoim[parquet]'), or pass a pandas data frame"


def is_frame(data: object) -> TypeGuard[FrameLike]:
    """Whether something is a data frame of pandas, or can be read as one."""
    return isinstance(data, pd.DataFrame | _ArrowFrame) and not isinstance(data, pd.Series)


def is_source(data: object) -> TypeGuard[RowsLike]:
    """Whether something holds rows that need not be in memory."""
    return isinstance(data, RowsLike) and not isinstance(data, Observations | pd.DataFrame)


def as_frame(data: FrameLike, argument: str = "data") -> pd.DataFrame:
    """A data frame of pandas: itself, or a copy of one of polars and other libraries, numbered from 0.

    Dictionaries of Arrow become categories, of which they are the same in another type.

    Raises:
        InputError: a frame of another library, and pyarrow is not installed, or a column of a type that Arrow or
            pandas cannot hold.

    Warns:
        DataWarning: columns whose levels were lost when pandas saved them.
    """
    if isinstance(data, pd.DataFrame):
        coded = [i for i, dtype in enumerate(data.dtypes) if isinstance(dtype, pd.ArrowDtype) and has_levels(dtype)]
        frame = data.copy(deep=False) if coded else data
        for i in coded:
            frame.isetitem(i, pd.Categorical(plain_dictionary(data.iloc[:, i]).to_pandas()))
        return frame
    try:
        arrow: Any = importlib.import_module("pyarrow")
    except ImportError as error:
        library = type(data).__module__.partition(".")[0]
        problem = f"a data frame of {library} is read through pyarrow, which is not installed"
        raise refused(argument, problem, _ARROW_HINT, "missing-part") from error
    return frame_of(argument, _table(data, arrow, argument))


def _table(data: Any, arrow: Any, argument: str) -> Any:
    """A frame of another library as a table of Arrow, whole numbers of 128 bits as their texts."""
    try:
        try:
            return arrow.table(data)
        except arrow.ArrowInvalid:
            polars: Any = importlib.import_module("polars")
            if not isinstance(data, polars.DataFrame):
                raise
            wide = [kind for kind in ("Int128", "UInt128") if hasattr(polars, kind)]
            return arrow.table(data.cast({getattr(polars, kind): polars.String for kind in wide}))
    except (arrow.ArrowException, ImportError, TypeError, ValueError, NotImplementedError) as error:
        problem = f"its columns are not of types that Arrow knows ({' '.join(str(error).split())[:120]})"
        raise refused(argument, problem, "turn them into text or numbers first", code="wrong-type") from None


def column_named(frame: pd.DataFrame, name: str) -> pd.Series | None:
    """The column whose name reads so, also where it is a number; None for none."""
    positions = [i for i, header in enumerate(frame.columns) if str(header) == name]
    return frame.iloc[:, positions[0]] if positions else None


def _of_reader(name: str, value: Any) -> str:
    """An option of the reader of data frames, where a function has none of its own."""
    return f"Observations.from_pandas(frame, {python_words(name, value)})"


def as_observations(
    data: DataLike,
    *,
    domain: Domain | None = None,
    weights: str | None = None,
    count: str | None = "count",
    columns: Sequence[str] | int | None = None,
    missing_values: Collection[str] = ("",),
    absent: Collection[str] = (),
    argument: str = "data",
    named: Collection[str] | None = None,
    write: Write = _of_reader,
    **rules: Unpack[ColumnRules],
) -> Observations:
    """Rows of finite variables: observations as they are, data frames by :meth:`Observations.from_pandas`.

    Of rows that need not be in memory (:class:`~pyro_hoim.data.RowSource`) these are the distinct ones with their
    counts, where they fit.

    With a domain, columns may stand in any order and others are ignored; a number, a boolean and their text are read
    as the label of the same meaning: 1, 1.0 and True as ``"1"``, or as ``"True"``. Where the levels of a variable lie
    between cut points, numbers and dates are cut at these.

    Args:
        data: observations, a data frame, rows that need not be in memory, or counts under a named index of pandas.
        domain: variables of a known model.
        weights: column of weights, fractions allowed, in place of counts.
        count: column of whole counts; the default may be absent, and is no column of counts where the domain has it.
        columns: names of the columns to read, or how many from the left; default all but counts and weights.
        missing_values: labels that mean "missing", besides None, NaN, NaT and NA.
        absent: variables of the domain whose columns may be absent; their cells are missing.
        argument: name of the data in messages.
        named: columns that are spelled out, and are not left out for what they hold; those of ``columns`` by default.
        write: how options are written in messages.
        rules: as of :meth:`Observations.from_pandas`, without a domain.

    Raises:
        InputTypeError: neither observations nor a data frame.
        UnknownNameError: a column or, with ``domain``, a label that is not known; the closest are listed.
        InputError: as :meth:`Observations.from_pandas`.
        IntractableError: too many distinct rows for memory.
    """
    if isinstance(data, Observations):
        return data
    data = long_table(data, argument=argument) if isinstance(data, pd.Series) else data
    if not is_frame(data):
        if is_source(data):
            return data.distinct()
        makers = {"ndarray": "from_numpy(rows)", "Tensor": "from_tensor(codes, domain)"}
        hint = makers.get(type(data).__name__, "from_pandas, from_csv, from_numpy, from_tensor or from_table")
        expected = "Observations or a data frame"
        raise wrong_type(argument, expected, data, f"make them with Observations.{hint}")
    # Without a domain the columns say their levels, and must not name rows.
    frame = as_frame(data, argument)
    how: dict[str, Any] = {"columns": columns, "missing_values": missing_values}
    if domain is None:
        if count == "count" and weights is None and columns is None:
            frame = long_table(frame)
        options = ColumnOptions(count, weights, **how, **rules, named=named, write=write)
        return Observations.of_encoded(encode_columns(Source.of_frame(frame), None, options), weights is not None)
    # Of a known domain other columns are ignored, and absent ones are missing in every row.
    if count == "count" and weights is None and "count" not in domain:
        frame = long_table(frame, lambda name: name in domain, argument)
    present, count = _known_columns(frame, domain, count, absent, argument)
    frame = cut_alike(frame, present, missing_values)
    read = Observations.from_pandas(frame, domain=present, count=count, weights=weights, **how)
    if present == domain or columns is not None:
        return read
    codes = torch.full((read.num_rows, len(domain)), -1, dtype=read.narrow.dtype)
    codes[:, list(domain.indices(present.names))] = read.narrow
    return read.replaced(domain=domain, codes=codes)


def cut_alike(frame: pd.DataFrame, domain: Domain, missing_values: Collection[str] = ()) -> pd.DataFrame:
    """A data frame with its columns cut as those of a domain were, unless they hold these levels."""
    cuts = {variable.name: cut for variable in domain if (cut := cuts_of(variable.labels)) is not None}
    frame = frame.set_axis([str(name) for name in frame.columns], axis=1) if cuts else frame
    for name in list(cuts):
        column = column_named(frame, name)
        words = {"", *missing_values}
        if column is None or set(column.dropna().astype(str)) <= {*domain[name].labels, *words}:
            del cuts[name]
        elif not pd.api.types.is_numeric_dtype(column.dtype):
            frame = frame.assign(**{name: column.astype(object).mask(column.astype(object).isin(words))})
    return bin_columns(frame, cuts) if cuts else frame


def rows_of_frame(
    data: DataLike, options: FrameOptions, *, argument: str = "data", domain: Domain | None = None
) -> Any:
    """Rows of a data frame as options say, and rows that are no data frame as they are.

    Raises:
        InputError: as :func:`as_observations`; options that belong to a data frame, of other rows; no complete row.
    """
    check_names(options, list(FrameOptions.__annotations__), argument, noun="option")
    data = long_table(data, argument=argument) if isinstance(data, pd.Series) else data
    if not is_frame(data):
        if options:
            problem = f"{', '.join(options)} can only be said of a data frame"
            raise conflict(argument, problem, "observations hold their own counts, levels and missing cells")
        return data
    how: dict[str, Any] = {name: value for name, value in options.items() if name != "missing"}
    policy = options.get("missing")
    check_choice(policy, (None, "drop", "marginalise"), "missing")
    if domain is None:
        rows = as_observations(data, argument=argument, write=python_words, **how)
    else:
        known = {name: value for name, value in how.items() if name not in ColumnRules.__annotations__}
        rows = as_observations(data, domain=domain, argument=argument, **known)
    return drop_missing(rows, argument) if policy == "drop" and rows.has_missing else rows


def drop_missing(rows: Observations, argument: str) -> Observations:
    """The complete rows, of which there must be one."""
    complete = rows.drop_missing()
    if not complete.total_count > 0:
        raise unexpected(argument, "at least one row without missing cells", received="none", code="empty")
    return complete


def as_counts(
    data: CountTable | FrameLike,
    *,
    domain: Domain | None = None,
    kind: NumberKind = "count",
    count: str | None = "count",
    columns: Sequence[str] | int | None = None,
    exclude: Collection[str] = (),
    absent: Collection[str] = (),
    argument: str = "data",
) -> CountTable:
    """Rows of numbers: a table as it is, data frames by :meth:`CountTable.from_pandas`.

    Arguments as :func:`as_observations`; ``kind`` is that of the variables without a domain. Columns that are absent
    are zero. Without a domain, columns that the rule of :func:`read_columns` leaves out are none.

    Warns:
        DataWarning: which columns were left out.

    Raises:
        InputTypeError: neither a table of numbers nor a data frame.
        UnknownNameError, InputError, MissingDataError: as :meth:`CountTable.from_pandas`.
    """
    if isinstance(data, CountTable):
        return data
    if not is_frame(data):
        hint = "make a table with CountTable.from_matrix(numbers, names)"
        raise wrong_type(argument, "CountTable or a data frame", data, hint)
    frame = as_frame(data, argument)
    # Of a known domain other columns are ignored, and absent ones are zero.
    if domain is None:
        how = ColumnOptions(count, columns=columns, exclude=exclude)
        names, note = columns_of_numbers(Source.of_frame(frame), how)
        warn_of_note(note)
        return CountTable.from_pandas(frame, kind=kind, count=count, columns=names)
    if any(variable.is_finite for variable in domain):
        raise other_domain("domain", "variables of numbers", received="variables with labels")
    present, count = _known_columns(frame, domain, count, absent, argument)
    kind = kind_of_table(domain)
    domain = Domain(Variable(name, kind=kind) for name in domain.names)  # a table has columns of one kind
    read = CountTable.from_pandas(frame, kind=kind, count=count, columns=list(present.names))
    if present.names == domain.names:
        return CountTable(domain, read.matrix, read.source)
    values = np.zeros((read.num_rows, len(domain)))
    values[:, list(domain.indices(present.names))] = read.to_array()
    return CountTable(domain, values, read.source)


def _known_columns(
    frame: pd.DataFrame, domain: Domain, count: str | None, absent: Collection[str], argument: str
) -> tuple[Domain, str | None]:
    """The variables of a domain whose columns a frame has, and its column of counts; others must be ``absent``."""
    header = [str(name) for name in frame.columns]
    # A name that is nearly that of a column is likely one that was misspelt.
    lacking = [name for name in domain.names if name not in header and name not in absent]
    if lacking:
        try:
            check_names(lacking, header, argument, noun="column")
        except InputError as error:
            shown = ", ".join(map(repr, lacking[:6])) + (", ..." if len(lacking) > 6 else "")
            problem = f"the data frame lacks column{'s' * (len(lacking) > 1)} {shown} of the model"
            hint = error.hint if (error.hint or "").startswith("did you mean") else None
            hint = hint or "add it, with missing cells where nothing is known"
            raise error.replace(problem=problem, hint=hint) from None
    present = [name for name in domain.names if name in header]
    return domain.project(present), None if count in domain else count


def codes_of(values: Mapping[str, Any], domain: Domain, argument: str) -> dict[str, int]:
    """Codes of labels given as text, numbers or booleans, by the names of their variables.

    Raises:
        UnknownNameError: an unknown variable or label; the closest are listed.
        InputError: a value that is missing.
        InputTypeError: several values of one variable.
    """
    check_names(values, domain.names, argument)
    codes: dict[str, int] = {}
    for name, value in values.items():
        if isinstance(value, Collection) and not isinstance(value, str | bytes):
            raise wrong_type(f"{argument}, column {name!r}", "one label", received=repr(value))
        if pd.isna(value):
            raise unexpected(f"{argument}, column {name!r}", "a label", value)
        code = code_reader(domain[name])(value)
        if code is None:
            check_names([label_of(value)], domain[name].labels, f"{argument}, column {name!r}", noun="label")
        codes[name] = code  # type: ignore[assignment]
    return codes


def labels_like(codes: Iterable[int], variable: Variable, column: pd.Series) -> pd.Series:
    """Labels of codes (N,), -1 for missing, as the values of a column that was read with the variable.

    Its type is kept where it can be: whole numbers and booleans with a missing cell become the nullable type of
    pandas, and a category that is new joins the others.

    Returns:
        A series (N,) numbered from 0.
    """
    # Values of the column by their codes, as the column writes them.
    dtype: Any = column.dtype
    known_values = dtype.categories if isinstance(dtype, pd.CategoricalDtype) else column.drop_duplicates().dropna()
    read = code_reader(variable)
    values = {code: value for value in known_values if (code := read(value)) is not None}
    is_number = pd.api.types.is_numeric_dtype(dtype)  # booleans too
    is_text = pd.api.types.is_object_dtype(dtype) or isinstance(dtype, pd.StringDtype | pd.CategoricalDtype)
    is_kept = is_number or is_text
    # Levels that the column does not have are written in its type where it can hold them.
    positions = np.fromiter(codes, dtype=np.int64)
    new = [code for code in np.unique(positions).tolist() if code >= 0 and code not in values]
    for code in new:
        label = variable.labels[code]
        number = meaning_of(label) if is_number else None
        is_kept &= not is_number or (number is not None and (number.is_integer() or dtype.kind == "f"))
        values[code] = label if number is None or not is_kept else _KINDS[dtype.kind](number)
    chosen = pd.Series([values.get(code) for code in positions.tolist()], dtype=object)
    if isinstance(dtype, pd.CategoricalDtype):
        categories = [*known_values, *(values[code] for code in new)]
        return pd.Series(pd.Categorical(chosen, categories=categories, ordered=bool(dtype.ordered)))
    if not is_kept:
        return chosen
    if isinstance(dtype, np.dtype) and bool((positions < 0).any()):
        dtype = {"b": "boolean", "i": "Int64", "u": "Int64"}.get(dtype.kind, dtype)
    return chosen.astype(dtype)
