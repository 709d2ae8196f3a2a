"""How every column of a table is read: one rule for data frames, files and commands, and the codes that it gives.

Columns with few levels are read as they are. Numbers with many values are cut into levels or refused; dates, columns
that name rows, free text and empty columns are left out with a note.
"""

from __future__ import annotations

import itertools
import math
import re
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Any, Literal, NamedTuple, TypedDict

import numpy as np
import pandas as pd
import torch

from ..errors import DataWarning, caller_level, check_names, check_type, none_received, refused, unexpected, wrong_type
from ..schema import Domain, Variable
from .bins import Bins, find_bins, is_dates, is_rule
from .counting import code_type
from .encoding import check_alike, encode_column, has_levels, label_of, parse_counts, to_numbers, variable_of
from .files.table_file import CsvColumns
from .readers import Source, asked_columns, check_counting, row_position, seeming_columns

ColumnKind = Literal["labels", "numbers", "date", "id", "text", "count", "weights", "constant", "empty"]
BinRules = str | Mapping[str, str | Bins]
"""How numbers with many values are read: ``refuse``, ``auto``, a rule, or by column a rule, ``*`` for all others."""
Write = Callable[[str, Any], str]
"""Writes an option and its value for a reader, as Python or a command spells them."""


class ColumnRules(TypedDict, total=False):
    """What may be said of columns wherever they are read; see :func:`read_columns`."""

    bins: BinRules
    exclude: Collection[str]
    allow: Collection[str]


class RowOptions(TypedDict, total=False):
    """What may be said of the rows of a data frame whose columns a model knows; see :func:`pyro_hoim.fit`."""

    weights: str | None
    count: str | None
    missing: str | None
    missing_values: Collection[str]


class FrameOptions(ColumnRules, RowOptions, total=False):
    """What may be said of a data frame wherever one is taken; see :func:`pyro_hoim.fit`."""


_EVERY = "*"
_FEW_LEVELS, _FEW_NUMBERS, _MANY_LEVELS = 12, 30, 100
_FEW_ROWS = 20
_MANY_ROWS = 1000  # levels from which on fewer than two rows each make a column one that names rows
_FEW_EACH = 5  # times that one person may be counted
_WORDS = 3  # blanks in an answer of free text, on average
_MOST_CUT, _ROWS_EACH, _MOST_STATES = 5, 5, 2**20  # of columns that are cut without a rule
_FEW_WORDS = 3  # among numbers, as "refused" among ages
_SHOWN = 6
_NUMBER = re.compile(r"-?(0|[1-9]\d*)?(\.\d*)?([eE][-+]?\d+)?")
_TIME = re.compile(r"\d{1,2}:\d\d(:\d\d(\.\d+)?)?|-?\d+ days( [-+]?\d\d:\d\d:\d\d(\.\d+)?)?")
_ID = re.compile(
    r"(.*[\W_])?(id|ids|uuid|guid|row ?names?|row ?n(umbe)?r|index)"
    r"|(case|user|resp(ondent)?|person|patient|subj(ect)?|record|customer|client|order|student|house ?hold|pers)id",
    re.IGNORECASE,
)
_CAMEL_ID = re.compile(r".*[a-z](ID|Id)")


def python_words(name: str, value: Any) -> str:
    """An option as an argument of Python."""
    return f"{name}={value!r}"


@dataclass(frozen=True)
class ColumnReading:
    """How one column of a table is read.

    Attributes:
        name: of the column.
        kind: ``labels``; ``numbers`` with many values, which are cut or refused; ``date``, ``id`` (names rows) and
            ``text``, which are left out; ``count`` or ``weights`` of the rows; ``constant``; ``empty``.
        num_values: different values among the rows.
        num_missing: missing cells.
        is_used: whether the column is a variable.
        reason: why it is not one, or what must be said before it can be; empty for a variable.
        is_refused: whether a fit stops at this column until something is said of it.
        levels: of a variable, in their order.
        order: ``declared`` by an ordered type, ``cuts``, ``numbers`` (labels that are numbers, in their order, but
            taken as unordered) or ``none``.
        cuts: the cut points of numbers or dates: those in use, or of refused numbers those of ``bins="auto"``.
        words: labels that are none among numbers with many values, for which there are no cut points until these are
            said to mean missing.
    """

    name: str
    kind: ColumnKind
    num_values: int
    num_missing: int = 0
    is_used: bool = True
    reason: str = ""
    is_refused: bool = False
    levels: tuple[str, ...] = ()
    order: Literal["declared", "cuts", "numbers", "none"] = "none"
    cuts: Bins | None = None
    words: tuple[str, ...] = ()

    @property
    def num_levels(self) -> int:
        """Number of levels of the variable; 0 where the column is none."""
        return len(self.levels)

    @property
    def is_ordered(self) -> bool:
        """Whether the levels are ordered for the model: by a type that says so, or by cut points."""
        return self.order in ("declared", "cuts")

    @property
    def cut_text(self) -> str:
        """The cut points, such as ``45, 55.5, 66``; empty without any."""
        return "" if self.cuts is None else self.cuts.cut_text


@dataclass(frozen=True)
class ColumnOptions:
    """What was asked of the columns of a table; arguments as those of :meth:`Observations.from_csv`.

    Attributes:
        named: columns that are spelled out, which are refused where others would be left out; those of ``columns``,
            where it lists names, by default.
        write: how options are written in messages.
    """

    count: str | None = "count"
    weights: str | None = None
    columns: Sequence[str] | int | None = None
    missing_values: Collection[str] = ("",)
    bins: BinRules = "refuse"
    exclude: Collection[str] = ()
    allow: Collection[str] = ()
    named: Collection[str] | None = None
    write: Write = field(default=python_words, compare=False)

    def __post_init__(self) -> None:
        for name in ("missing_values", "exclude", "allow"):
            if isinstance(getattr(self, name), str):
                what = "labels" if name == "missing_values" else "names of columns"
                raise wrong_type(name, f"a collection of {what}", received=repr(getattr(self, name)))
        expected = "refuse, auto, a rule such as 'quantile:4', or rules by column such as {'age': 'quantile:4'}"
        check_type(self.bins, str | Mapping, "bins", expected)
        if isinstance(self.bins, str) and self.bins not in ("refuse", "auto") and not is_rule(self.bins):
            raise unexpected("bins", expected, self.bins, code="unknown-choice")

    @property
    def rules(self) -> dict[str, str | Bins]:
        """Rules by column."""
        return {} if isinstance(self.bins, str) else {k: v for k, v in self.bins.items() if k != _EVERY}

    @property
    def common_rule(self) -> str | Bins:
        """The rule of numbers with many values that have none of their own, or ``refuse``."""
        return self.bins if isinstance(self.bins, str) else self.bins.get(_EVERY, "refuse")

    @property
    def spoken_of(self) -> Collection[str]:
        """Columns of which it was said how they are read, so that they hold no counts or weights of the rows."""
        return {*self.exclude, *self.allow, *self.rules}

    @property
    def spelled(self) -> Collection[str]:
        """Columns that were asked for by their names."""
        if self.named is not None:
            return self.named
        return tuple(self.columns) if isinstance(self.columns, Iterable) else ()


class Encoded(NamedTuple):
    """What the columns of a table become."""

    domain: Domain
    codes: torch.Tensor
    counts: torch.Tensor
    readings: tuple[ColumnReading, ...] = ()
    note: str = ""
    left_out: str = ""  # the part of the note on columns that are no variables


@dataclass(frozen=True, eq=False)
class _Look:
    """A column as it stands: what it seems to be, and its cells as positions in distinct values, -1 where missing.

    Attributes:
        numbers: of distinct values that are all numbers, these numbers.
        variable: over the values as they are; None where there are too many of them, or a rule cuts them.
    """

    reading: ColumnReading
    positions: np.ndarray
    numbers: np.ndarray | None = None
    variable: Variable | None = None

    def __post_init__(self) -> None:
        kind = code_type([int(self.positions.max()) + 1])  # those of all columns are held together
        object.__setattr__(self, "positions", self.positions.astype(kind, copy=False))


def read_columns(
    table: pd.DataFrame | CsvColumns | Source,
    *,
    bins: BinRules = "refuse",
    exclude: Collection[str] = (),
    allow: Collection[str] = (),
    count: str | None = "count",
    weights: str | None = None,
    columns: Sequence[str] | int | None = None,
    missing_values: Collection[str] = ("",),
) -> tuple[ColumnReading, ...]:
    """How every column of a table would be read, in their order; nothing is refused for what its cells hold.

    Every function that takes a data frame or a file reads by this rule. A column of up to 12 values is taken as it is,
    and so is one that an ordered type describes. Beyond that:

    * numbers of more than 30 values, or more than half as many as rows, are *numbers*: ``bins="auto"`` cuts them at
      quantiles, else they are refused. All get the same number of levels, at most 5 and at least 2: the largest with
      which the rows are 5 times the parameters of all pairs of columns, and all columns together have at most 2^20
      combinations (where two levels each have).
    * dates and times are left out.
    * columns with (almost) as many values as rows are left out: free text, or identifiers. So are whole numbers that
      follow each other, one a row, and columns of more than 30 values with a name such as ``patient_id``. Other whole
      numbers that all differ are numbers.
    * other columns of more than 100 levels are refused.

    A rule in ``bins`` cuts its column whatever it holds, and a column in ``allow`` is taken as it is.

    Args:
        table: a data frame of pandas, or the cells of a file (:func:`~pyro_hoim.data.read_table_file`).
        bins: ``refuse``, ``auto`` or a rule of :func:`~pyro_hoim.data.find_bins` such as ``quantile:4`` for all columns
            that are *numbers*; or by column such a rule, cut points or ``auto``, where ``"*"`` stands for all others
            that are *numbers*.
        exclude: columns that are left out.
        allow: columns that are taken as they are.
        count: column of whole counts; the default may be absent.
        weights: column of weights, in place of counts.
        columns: names of the columns to read, or how many from the left.
        missing_values: labels that mean "missing".

    Raises:
        UnknownNameError: a column that is not there.
        InputError: no rows, or bad counts.

    Example:
        >>> ages = [18 + 7 * i % 61 for i in range(80)]
        >>> frame = pd.DataFrame({"age": ages, "ill": [0, 1] * 40, "id": [f"p{i}" for i in range(80)]})
        >>> [(c.name, c.kind, c.levels, c.is_used) for c in read_columns(frame, bins="auto")][1:]
        [('ill', 'labels', ('0', '1'), True), ('id', 'id', (), False)]
        >>> read_columns(frame, bins="auto")[0].levels
        ('<29', '[29, 42)', '[42, 54)', '[54, 67)', '>=67')
    """
    how = ColumnOptions(count, weights, columns, missing_values, bins, exclude, allow)
    if isinstance(table, pd.DataFrame):
        table = Source.of_frame(table)
    elif isinstance(table, CsvColumns):
        table = Source.of_csv(table)
    return columns_read(table, how)


def columns_read(table: Source, how: ColumnOptions) -> tuple[ColumnReading, ...]:
    """What :func:`read_columns` gives, with options that are written for their reader."""
    names, _, counting, is_told = asked_columns(
        table.header, table.name, None, how.columns, how.count, how.weights, how.exclude
    )
    if not table.num_rows:
        raise none_received(table.name, "at least one row")
    seeming = [] if is_told else list(seeming_columns(table, how.spoken_of))
    counted = {column.name: column for column in seeming if column.name in names}
    shares = _shares(table, counting, counting == how.weights)
    looks = _looks(table, [name for name in names if name not in counted], how, shares)
    readings = {look.reading.name: look.reading for look in _cut(looks, how, shares)}
    # In the order of the table, with the columns that are no variables.
    for name, column in counted.items():
        reason = f"{column.problem}; {how.write(column.role, name)} if it does, {how.write('count', None)} if not"
        readings[name] = ColumnReading(name, column.role, 0, 0, False, reason, is_refused=True)  # type: ignore[arg-type]
    if counting is not None:
        role = "weights" if counting == how.weights else "count"
        readings[counting] = ColumnReading(counting, role, 0, 0, False, f"holds the {role} of the rows")
    for name in how.exclude:
        readings[name] = ColumnReading(name, "labels", 0, 0, False, "excluded")
    return tuple(readings[name] for name in table.header if name in readings)


def left_out_of_numbers(table: Source, names: Iterable[str]) -> dict[str, ColumnReading]:
    """Columns that the rule of :func:`read_columns` leaves out, so that they are none of a table of numbers."""
    how, counts = ColumnOptions(count=None), np.ones(table.num_rows)
    readings = (_look(name, table, how, counts, table.num_rows).reading for name in names)
    return {reading.name: reading for reading in readings if not (reading.is_used or reading.is_refused)}


def whole_numbers(cells: pd.Series) -> np.ndarray | None:
    """The cells as whole numbers from 0, (N,); None where some are none, or a type says that they are labels."""
    if isinstance(cells.dtype, pd.CategoricalDtype) or pd.api.types.is_bool_dtype(cells.dtype):
        return None
    values = to_numbers(cells).to_numpy(dtype=float, na_value=np.nan)
    is_whole = np.isfinite(values).all() and not (values < 0).any() and not (values != np.floor(values)).any()
    return values if is_whole else None


def columns_of_numbers(table: Source, how: ColumnOptions) -> tuple[list[str], str]:
    """Names of the columns that are read as numbers, and a note on those that the rule leaves out.

    Columns that were asked for by name are taken as they are.

    Raises:
        UnknownNameError: a column that is not there.
        InputError: no column is left.
    """
    names, *_ = asked_columns(table.header, table.name, None, how.columns, how.count, how.weights, how.exclude)
    left_out = left_out_of_numbers(table, [name for name in names if name not in how.spelled]) if table.num_rows else {}
    if not left_out:
        return names, ""
    reasons = _listed(f"{name!r} {reading.reason}" for name, reading in left_out.items())
    ways = f"write {how.write('columns', list(left_out)[:1])} and the names of the others to take a column as it is"
    if len(left_out) == len(names):
        raise refused(table.name, f"no column of numbers is left, because {reasons}", ways)
    return [name for name in names if name not in left_out], f"columns were left out: {reasons}"


def encode_columns(table: Source, domain: Domain | None, how: ColumnOptions) -> Encoded:
    """Domain, codes (N, d) and counts (N,) of a table, with how its columns were read and a note on what was left out.

    With a domain its columns are read over its levels, and no rule applies.
    """
    names, domain, counting, is_told = asked_columns(
        table.header, table.name, domain, how.columns, how.count, how.weights, how.exclude
    )
    if table.num_rows == 0:
        raise none_received(table.name, "at least one row")
    if not is_told:
        check_counting(table, how.spoken_of)
    check_alike(names, f"names of {table.name}")
    counts = _shares(table, counting, counting == how.weights)
    if domain is not None:
        options: dict[str, Any] = {"missing_values": how.missing_values, "where": table.where}
        codes = [encode_column(n, table.column(n), variable=domain[n], **options)[1] for n in names]
        return Encoded(domain, _tensor(codes), torch.from_numpy(counts))
    # Without one the rule says what every column is, and columns are cut, left out or refused by it.
    looks = _cut(_looks(table, names, how, counts), how, counts)
    left_out, note = _decided([look.reading for look in looks], how, table.name)
    used = [look for look in looks if look.reading.is_used]
    variables = [look.variable for look in used if look.variable is not None]
    codes = _tensor([look.positions for look in used])
    readings = tuple(look.reading for look in looks)
    return Encoded(Domain(variables), codes, torch.from_numpy(counts), readings, note, left_out)


def warn_of_note(note: str) -> None:
    """Warn of what was left out or cut.

    Warns:
        DataWarning: the note, where there is one.
    """
    if note:
        warnings.warn(DataWarning(note), stacklevel=caller_level())


def _tensor(codes: Sequence[np.ndarray]) -> torch.Tensor:
    return torch.from_numpy(np.stack(codes).T.copy())


def _shares(table: Source, counting: str | None, is_weight: bool) -> np.ndarray:
    """How often every row was seen, or how much it weighs, (N,)."""
    if counting is None:
        return np.ones(table.num_rows)
    cells = table.column(counting)
    return parse_counts(cells, name=f"column {counting!r}", where=table.where, fractional=is_weight)


# What a column is, by its type, its values and, where these leave it open, its name.


def _looks(table: Source, names: Sequence[str], how: ColumnOptions, counts: np.ndarray) -> list[_Look]:
    """All columns as they stand."""
    for argument in ("allow", "exclude"):
        check_names(list(getattr(how, argument)), table.header, argument, noun="column")
    check_names(list(how.rules), table.header, "bins", noun="column")
    is_weighted = how.weights is not None
    total = num_seen(counts, len(names), is_weighted=is_weighted)
    return [_look(name, table, how, counts, total) for name in names]


def num_seen(counts: np.ndarray, num_columns: int, *, is_weighted: bool) -> int:
    """How many rows tell of the levels of a column: those of positive weight, whatever their weights add up to."""
    rows = int((counts > 0).sum())
    if is_weighted or not bool((counts == np.floor(counts)).all()):
        return rows
    return cells_seen(rows, float(counts.sum()), num_columns)


def cells_seen(rows: float, total: float, columns: int) -> int:
    """How many rows cells with counts stand for, at least: persons with a count of their own are few each."""
    return int(max(rows, total / (_FEW_EACH if columns > 1 else 2)))


def _look(name: str, table: Source, how: ColumnOptions, counts: np.ndarray, total: int) -> _Look:
    """One column as it stands."""
    values = table.column(name)
    rule = how.rules.get(name, "auto" if name in how.rules else None)
    if rule is not None and rule != "auto":
        return _by_rule(name, table, how, counts, rule)
    dtype = getattr(values, "dtype", None)
    # Columns of numbers with many values, which need no labels.
    if name not in how.allow and pd.api.types.is_numeric_dtype(dtype) and not pd.api.types.is_bool_dtype(dtype):
        numbers = numbers_without(pd.Series(values).to_numpy(dtype=float, na_value=math.nan), how.missing_values)
        if np.isinf(numbers).any():
            encode_column(name, values, where=table.where)  # refuses them
        distinct, positions = _distinct(numbers)
        seen = len(np.unique(positions[(positions >= 0) & (counts > 0)]))
        if rule == "auto" or _are_many(seen, total):
            return _look_of_numbers(name, distinct, positions, seen, total)
    # Else labels, which say what they are.
    is_empty = bool(np.all(pd.isna(pd.Series(values)))) or not _any_label(values, how.missing_values)
    if is_empty and name not in how.allow:
        reading = ColumnReading(name, "empty", 0, table.num_rows, False, "has missing cells only")
        return _Look(reading, np.full(table.num_rows, -1))
    options: dict[str, Any] = {"missing_values": how.missing_values, "where": table.where}
    variable, positions = encode_column(name, values, **options)
    present = np.unique(positions[(positions >= 0) & (counts > 0)])
    labels = [variable.labels[code] for code in present]
    numbers = np.array([float(label) for label in variable.labels]) if all(map(is_number, variable.labels)) else None
    missing = int((positions < 0).sum())
    if name in how.allow:
        kind, reason, is_refused = "labels", "", False
    else:
        traits = Traits(name, total, variable.cardinality, variable.kind == "ordinal", _declares_levels(dtype))
        kind, reason, is_refused = kind_of(labels, traits)
    if rule == "auto" and numbers is not None:
        kind, reason, is_refused = "numbers", _many_numbers(len(labels)), True
    if kind == "numbers" and numbers is None:
        words = tuple(label for label in labels if not is_number(label))
        reading = ColumnReading(name, kind, len(labels), missing, False, reason, is_refused, words=words)
        return _Look(reading, positions)
    if kind == "numbers":
        assert numbers is not None
        return _look_of_numbers(name, numbers, positions, len(labels), total, kind)
    is_used = kind in ("labels", "constant") and not is_refused
    order = "declared" if variable.kind == "ordinal" else "numbers" if numbers is not None else "none"
    levels = variable.labels if is_used else ()
    reading = ColumnReading(name, kind, len(labels), missing, is_used, reason, is_refused, levels, order)
    return _Look(reading, positions, numbers, variable)


def _declares_levels(dtype: Any) -> bool:
    """Whether a type declares the levels of its column; readers list numbers beside the words of some labels."""
    if not isinstance(dtype, pd.CategoricalDtype):
        return has_levels(dtype)
    return len({isinstance(level, Real) and not isinstance(level, bool) for level in dtype.categories}) < 2


def _any_label(values: Any, missing_values: Collection[str]) -> bool:
    """Whether some cell of text is none of the words for missing; columns of other types hold something."""
    if all(isinstance(value, str) for value in itertools.islice(values, _SHOWN)):
        return any(not isinstance(value, str) or value not in missing_values for value in values)
    return True


def _look_of_numbers(
    name: str, numbers: np.ndarray, positions: np.ndarray, seen: int, total: int, kind: str | None = None
) -> _Look:
    """A column of numbers with many values, or of numbers that name rows."""
    missing = int((positions < 0).sum())
    if kind is None and _name_rows(name, numbers, seen, total):
        reading = ColumnReading(name, "id", seen, missing, False, _as_identifier(seen, total))
    else:
        reading = ColumnReading(name, "numbers", seen, missing, False, _many_numbers(seen), is_refused=True)
    return _Look(reading, positions, numbers)


def _distinct(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Distinct numbers in increasing order, and the positions (N,) of numbers among them, -1 for NaN."""
    distinct, positions = np.unique(numbers, return_inverse=True)
    known = distinct[~np.isnan(distinct)]
    return known, np.where(positions < len(known), positions, -1)


def numbers_without(numbers: np.ndarray, missing_values: Collection[str]) -> np.ndarray:
    """Numbers without those whose labels mean missing."""
    for word in missing_values:
        if is_number(word) and label_of(float(word)) == word:
            numbers = np.where(numbers == float(word), math.nan, numbers)
    return numbers


class Traits(NamedTuple):
    """What is known of a column beside its levels."""

    name: str
    total: float
    cardinality: int
    is_ordered: bool = False
    is_declared: bool = False


def kind_of(labels: Sequence[str], traits: Traits) -> tuple[ColumnKind, str, bool]:
    """What a column of these levels is, why it is not read as it is, and whether that is for the user to decide."""
    name, total, cardinality, is_ordered, is_declared = traits
    levels = len(labels)
    if levels <= 1:
        return "constant", "", False
    if levels <= _FEW_LEVELS or is_ordered:
        return "labels", "", False
    # Dates and numbers may be cut into levels, unless a type declares levels.
    if not is_declared and (is_dates(labels) or all(map(_TIME.fullmatch, labels))):
        return "date", f"holds {levels:,} dates", False
    if not is_declared and all(map(is_number, labels)) and _are_many(levels, total):
        numbers = np.array([float(label) for label in labels])
        if _name_rows(name, numbers, levels, total):
            return "id", _as_identifier(levels, total), False
        return "numbers", _many_numbers(levels), True
    words = [label for label in labels if not is_number(label)]
    if not is_declared and len(words) <= _FEW_WORDS and _are_many(levels - len(words), total):
        return "numbers", f"{_many_numbers(levels - len(words))} and {_listed(map(repr, words), ' and ')}", True
    # Labels that hardly repeat say nothing about other rows.
    is_rare = is_identifier(levels, cardinality, total) or (levels > _FEW_ROWS and 2 * levels > total)
    blanks = sum(label.count(" ") for label in labels) / levels
    if (is_rare or levels > _MANY_LEVELS) and blanks >= _WORDS:
        return "text", f"holds free text ({_shortened(labels[0])!r})", False
    if is_rare or (levels > _FEW_NUMBERS and _is_id_name(name)):
        return "id", _as_identifier(levels, total), False
    return "labels", (f"has {levels:,} levels" if levels > _MANY_LEVELS else ""), levels > _MANY_LEVELS


def is_identifier(levels: int, cardinality: int, total: float) -> bool:
    """Whether a column has as many levels as there are rows, or many levels with fewer than two rows each."""
    return levels >= total > _FEW_ROWS or (cardinality > _MANY_ROWS and total < 2 * levels)


def _are_many(values: int, total: float) -> bool:
    """Whether numbers have too many values to be levels."""
    return values > _FEW_LEVELS and values > min(_FEW_NUMBERS, total / 2)


def _name_rows(name: str, numbers: np.ndarray, levels: int, total: float) -> bool:
    """Whether whole numbers name rows: they follow each other, one a row, or the column is called so."""
    if not bool((numbers == np.floor(numbers)).all()):
        return False
    is_dense = numbers.max() - numbers.min() < 2 * len(numbers)
    return (is_dense and is_identifier(levels, levels, total)) or _is_id_name(name)


def _is_id_name(name: str) -> bool:
    return bool(_ID.fullmatch(name) or _CAMEL_ID.fullmatch(name))


def is_number(text: str) -> bool:
    """Whether a text is a number and no code such as ``007``."""
    return bool(_NUMBER.fullmatch(text)) and any(map(str.isdigit, text)) and math.isfinite(float(text))


def _many_numbers(levels: int) -> str:
    return f"holds {levels:,} different numbers"


def _as_identifier(levels: int, total: float) -> str:
    if 2 * levels <= total:
        return f"({levels:,} levels in {total:,} rows) is an identifier by its name"
    return f"({levels:,} levels in {total:,} rows) is (almost) unique per row, like an identifier"


def _shortened(text: str) -> str:
    return text if len(text) <= 28 else f"{text[:16].rstrip()}…{text[-10:].lstrip()}"


# Numbers become levels between cut points.


def _by_rule(name: str, table: Source, how: ColumnOptions, counts: np.ndarray, rule: str | Bins) -> _Look:
    """A column that is cut by a rule of its own."""
    values = table.column(name)
    if pd.api.types.is_numeric_dtype(dtype := getattr(values, "dtype", None)) and not pd.api.types.is_bool_dtype(dtype):
        numbers = pd.Series(values).to_numpy(dtype=float, na_value=math.nan)
        cells = pd.Series(numbers_without(numbers, how.missing_values))
    else:
        cells = pd.Series(values, dtype=object).reset_index(drop=True)
        cells = cells.mask(cells.map(lambda cell: isinstance(cell, str) and cell in how.missing_values))
    cuts = _cuts(cells, rule, counts, name, table.where)
    positions = cuts.codes(cells, table.where, name)
    kind = "date" if cuts.kind == "dates" else "numbers"
    return _levels_cut(_Look(ColumnReading(name, kind, cells.nunique()), positions), cuts)


def _cuts(
    values: Any, rule: str | Bins, counts: np.ndarray, name: str, where: Callable[[int], str] = row_position
) -> Bins:
    """The cut points that a rule gives, or is."""
    return rule if isinstance(rule, Bins) else find_bins(values, rule, counts, where=where, name=name)


def _levels_cut(look: _Look, cuts: Bins) -> _Look:
    """A column whose positions are those of all levels of cut points, over the levels that some row has."""
    present = np.unique(look.positions[look.positions >= 0])
    codes = np.full(len(cuts.labels) + 1, -1)
    codes[present] = np.arange(len(present))
    levels = tuple(cuts.labels[i] for i in present)
    reading = replace(
        look.reading,
        is_used=True,
        is_refused=False,
        reason="",
        levels=levels,
        order="cuts",
        cuts=cuts,
        num_missing=int((look.positions < 0).sum()),
    )
    return _Look(reading, codes[look.positions], None, Variable(look.reading.name, levels, "ordinal"))


def _cut(looks: Sequence[_Look], how: ColumnOptions, counts: np.ndarray) -> list[_Look]:
    """Columns with numbers of many values cut, or with the cut points that they would get."""
    many = [look for look in looks if look.numbers is not None and _is_cut(look.reading)]
    if not many:
        return list(looks)
    others = [look.reading.num_levels for look in looks if look.reading.is_used]
    total = num_seen(counts, len(looks), is_weighted=how.weights is not None)
    levels = num_cut_levels(total, others, len(many))
    cut = list[_Look]()
    for look in looks:
        if look.numbers is None or not _is_cut(look.reading):
            cut.append(look)
            continue
        known = look.positions >= 0
        shares = np.bincount(look.positions[known], counts[known], len(look.numbers))
        rule = how.rules.get(look.reading.name, how.common_rule)
        is_open = rule in ("auto", "refuse")
        cuts = _cuts(look.numbers, f"quantile:{levels}" if is_open else rule, shares, look.reading.name)
        if rule != "refuse":
            codes = np.searchsorted(cuts.cuts, look.numbers, side="right")
            positions = np.where(known, codes[look.positions], -1)
            cut.append(_levels_cut(replace(look, positions=positions), cuts))
        else:
            cut.append(replace(look, reading=replace(look.reading, cuts=cuts)))
    return cut


def cuts_of_counts(
    counts_of: Mapping[Variable, np.ndarray], total: int, how: ColumnOptions
) -> tuple[dict[str, Bins], str]:
    """Cut points of columns of numbers whose levels are counted, as of the rows themselves, with a note on them.

    Args:
        counts_of: variables as they were read, with the number of rows (K,) of every level.
        total: as :func:`num_seen` of the rows.
        how: what was asked of the columns.
    """
    cuts, others, many = dict[str, Bins](), list[int](), dict[str, tuple[np.ndarray, np.ndarray]]()
    for variable, counts in counts_of.items():
        name, rule = variable.name, how.rules.get(variable.name, "auto" if variable.name in how.rules else None)
        labels = [label for label, count in zip(variable.labels, counts, strict=True) if count > 0]
        traits = Traits(name, total, variable.cardinality, variable.kind == "ordinal")
        kind, _, is_refused = ("labels", "", False) if name in how.allow else kind_of(labels, traits)
        is_numeric = all(map(is_number, variable.labels))
        if isinstance(rule, str) and rule != "auto":
            cuts[name] = find_bins(pd.Series(variable.labels, dtype=object), rule, counts, name=name)
            others.append(len({*cuts[name].apply(pd.Series(labels, dtype=object), row_position, name)}))
        elif is_numeric and name not in how.allow and (rule == "auto" or kind == "numbers"):
            numbers = np.array([float(label) for label in variable.labels])
            order = np.argsort(numbers)
            many[name] = (numbers[order], counts[order])
        elif kind in ("labels", "constant") and not is_refused:
            others.append(len(labels))
    # All that have no rule of their own get the same number of levels.
    levels = num_cut_levels(total, others, len(many))
    for name, (numbers, counts) in many.items():
        rule = how.rules.get(name, how.common_rule)
        cuts[name] = _cuts(numbers, f"quantile:{levels}" if rule == "auto" else rule, counts, name)
    points = _listed((f"{name} at {cuts[name].cut_text}" for name in many), " and ")
    return cuts, f"numbers were cut into levels: {points}" if many else ""


def _is_cut(reading: ColumnReading) -> bool:
    return reading.kind == "numbers" and reading.is_refused


def num_cut_levels(total: float, others: Sequence[int], number: int) -> int:
    """Levels of each of ``number`` columns that are cut without a rule, beside columns of known numbers of levels.

    The largest number from 2 to 5 with which the parameters of all pairs of columns are at most a fifth of the rows,
    and all columns together have at most 2^20 combinations where two levels each have no more.
    """

    def num_pairs(levels: int) -> float:
        sizes = [size - 1 for size in others] + [levels - 1] * number
        return (sum(sizes) ** 2 - sum(size**2 for size in sizes)) / 2

    log_others = sum(math.log2(max(size, 1)) for size in others)
    is_small = log_others + number <= math.log2(_MOST_STATES)
    for levels in range(_MOST_CUT, 2, -1):
        fits = not is_small or log_others + number * math.log2(levels) <= math.log2(_MOST_STATES)
        if fits and _ROWS_EACH * num_pairs(levels) <= total:
            return levels
    return 2


def judged_levels(
    variables: Mapping[Variable, Sequence[str]],
    total: Callable[[], float],
    how: ColumnOptions,
    source: str,
    empty: Mapping[str, int] | None = None,
) -> tuple[list[str], str]:
    """Names of the variables that are used of those of rows that were read already, and a note on the others.

    Args:
        variables: with the levels that rows have.
        total: number of rows, asked only where it may matter.
        how: what was asked of the columns.
        source: of the rows, in messages.
        empty: columns that have missing cells only, and how many.

    Raises:
        InputError: as :func:`encode_columns`.
    """
    reason = "has missing cells only"
    readings = [ColumnReading(name, "empty", 0, cells, False, reason) for name, cells in (empty or {}).items()]
    for variable, labels in variables.items():
        is_free = variable.name in how.allow or variable.name in how.rules or len(labels) <= _FEW_LEVELS
        traits = None if is_free else Traits(variable.name, total(), variable.cardinality, variable.kind == "ordinal")
        kind, reason, is_refused = ("labels", "", False) if traits is None else kind_of(labels, traits)
        is_used = kind in ("labels", "constant") and not is_refused
        readings.append(
            ColumnReading(variable.name, kind, len(labels), 0, is_used, reason, is_refused, variable.labels)
        )
    _, note = _decided(readings, how, source)
    return [reading.name for reading in readings if reading.is_used], note


# What follows: an error that names every column that stops a fit, or a note on what was left out.


def _decided(readings: Sequence[ColumnReading], how: ColumnOptions, source: str) -> tuple[str, str]:
    """Notes on columns that were left out, and on all that were left out or cut.

    Refused is what the user has to decide, and a table of which nothing is left.
    """
    spelled = [reading for reading in readings if reading.name in how.spelled]
    for reading in spelled if any(reading.kind != "empty" for reading in readings) else readings:
        if reading.kind == "empty":
            variable_of(reading.name, [], is_ordered=False)  # refuses it
    wrong = [reading for reading in spelled if not reading.is_used and not reading.is_refused]
    if wrong or any(reading.is_refused for reading in readings):
        raise _refusal([r for r in readings if r.is_refused or r in wrong], readings, how, source)
    left_out = [reading for reading in readings if not reading.is_used]
    reasons = _listed(f"{reading.name!r} {reading.reason}" for reading in left_out)
    known = [reading.name for reading in left_out if reading.kind in ("id", "text")]
    allowed = f"write {how.write('allow', (known or [r.name for r in left_out])[:1])} to take a column as it is"
    if left_out and len(left_out) == len(readings):
        raise refused(source, f"no column is left to learn from, because {reasons}", allowed)
    sentences = [f"columns were left out: {reasons}"] if left_out else []
    if dates := [reading.name for reading in left_out if reading.kind == "date"]:
        sentences.append(f"write {_dates_cut(how, dates[0])} to cut dates")
    sentences += [allowed] if known else []
    on_left_out = _joined(sentences)
    # Cut points that nobody asked for one by one.
    cut = [r for r in readings if r.order == "cuts" and how.rules.get(r.name, "auto") == "auto"]
    if cut:
        points = _listed((f"{reading.name} at {reading.cut_text}" for reading in cut), " and ")
        sentences.append(f"numbers were cut into levels: {points}")
    return on_left_out, _joined(sentences)


def _joined(sentences: Sequence[str]) -> str:
    """Sentences of a note, which has no capital letter where it begins."""
    return ". ".join(sentence if i == 0 else sentence[0].upper() + sentence[1:] for i, sentence in enumerate(sentences))


def _refusal(
    bad: Sequence[ColumnReading], readings: Sequence[ColumnReading], how: ColumnOptions, source: str
) -> Exception:
    """The error that names every column that has to be decided on, with the ways on."""
    reasons = [f"{reading.name!r} {reading.reason}" for reading in bad[:_SHOWN]]
    if len(bad) > _SHOWN:
        reasons.append(f"likewise {', '.join(repr(reading.name) for reading in bad[_SHOWN:])}")
    ways = list[str]()
    words = list(dict.fromkeys(word for reading in bad for word in reading.words))
    if words:
        ways.append(f"{how.write('missing_values', ['', *words])} if these words mean that a number is missing")
    numbers = [reading for reading in bad if reading.kind == "numbers" and not reading.words]
    if numbers:
        points = _listed((f"{reading.name} at {reading.cut_text}" for reading in numbers), " and ")
        is_known = all(reading.cuts is not None for reading in numbers)
        by_hand = f"{how.write('bins', {numbers[0].name: 'edges:A,B,C'})} to cut a column at these numbers"
        ways.append(f"{how.write('bins', 'auto')} to cut {points}" if is_known else by_hand)
    dates = [reading for reading in bad if reading.kind == "date"]
    if dates:
        ways.append(f"{_dates_cut(how, dates[0].name)} to cut dates")
    names = [reading.name for reading in bad]
    if len(bad) < sum(reading.is_used or reading in bad for reading in readings):
        named = [name for name in names if name in how.spelled]
        leave = f"other columns than {_listed(named, ' and ')}"
        them = "it" if len(bad) == 1 else "them"
        ways.append(leave if named else f"{how.write('exclude', names)} to leave {them} out")
    ways.append(f"{how.write('allow', names[:1])} to take a column as it is")
    if numbers:
        of_command = f"learn with {how.write('numbers', 'families')}"
        call = "hoim.learn(frame, numbers='families')" if how.write is python_words else of_command
        ways.append(f"{call} to keep all values, in a root model")
    problem = f"expected columns that describe rows by few levels, but {', '.join(reasons)}"
    return refused(source, problem, f"write {_listed(ways, ', or ')}")


def _dates_cut(how: ColumnOptions, name: str) -> str:
    """What cuts a column of dates; in Python one argument holds this beside what was said of all other columns."""
    others = {} if how.common_rule == "refuse" or how.write is not python_words else {_EVERY: how.common_rule}
    return how.write("bins", {**others, **(how.rules if others else {}), name: "width:year"})


def _listed(texts: Iterable[str], last: str = ", ") -> str:
    """At most six texts, the last one joined by a word of its own, or how many more there are."""
    every = list(texts)
    if len(every) > _SHOWN:
        return ", ".join(every[:_SHOWN]) + f" and {len(every) - _SHOWN} more"
    return last.join([", ".join(every[:-1]), every[-1]] if len(every) > 1 else every)
