"""Columns of values to variables and integer codes, and columns of numbers to counts, one column at a time."""

import datetime as dt
import math
import re
import unicodedata
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from numbers import Real
from typing import Any, NamedTuple, cast

import numpy as np
import pandas as pd

from ..errors import (
    DataWarning,
    InputError,
    MissingDataError,
    caller_level,
    check_names,
    check_unique,
    conflict,
    is_whole,
    none_received,
    out_of_range,
    size_text,
    unexpected,
    wrong_type,
)
from ..schema import Variable
from .arrow_tables import coded_column, not_plain
from .counting import code_type

LARGEST_COUNT = 2**53 - 1
"""Largest count, and largest total of counts or weights: above it float64 no longer tells whole numbers apart."""

_LEAST_POWER = 1e16  # the least float that Python writes with an exponent
_MOST_BITS = 2**12
_LABELS = "text, numbers, booleans or categories"
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?([-+]\d\d:?\d\d|Z)?)?")
_MINUTES = re.compile(r"[^:]+:\d\d")  # a time without seconds, which programs do not write
_THOUSANDS = re.compile(r"[-+]?\d{1,3}([,'’ \u00a0\u202f]\d{3})+(\.\d+)?")
_PERCENT = re.compile(r"([-+]?\d+(?:\.\d+)?) ?%")
_DECIMAL_COMMA = re.compile(r"[-+]?\d+,\d{1,2}")
_CLOCK = re.compile(r"(\d\d:\d\d:\d\d)(?:\.(\d{6})0*)?")
_PLAIN_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?(e[-+]([12]?\d)?\d)?")
_POWER = re.compile(r"-?[1-9](\.0|\.\d*[1-9])?e[-+]\d+")
"""Numbers as programs write them beyond some power of ten: ``1e-7`` as ``1e-07``."""


def label_of(value: Any) -> str:
    """Label of one value, the same in frames and files, read whole or piece by piece.

    Text stays as it is, and bytes are text in UTF-8. A whole number has no decimals, and a number of 16 or 32 bits the
    shortest text that is read as it. Dates and times are written ``2020-01-03 10:00:00``, without the time at midnight
    where there is no time zone; durations ``0 days 00:00:01`` as pandas does; all else by ``str``.
    """
    # Text as it is; what is no number of finite value is refused.
    if isinstance(value, str):
        return str(value)  # also of NumPy
    if isinstance(value, bytes | bytearray):
        try:
            return value.decode()
        except UnicodeDecodeError:
            problem = f"the bytes {bytes(value[:20])!r} are no text in UTF-8"
            raise InputError(problem, hint="decode the column first", code="wrong-encoding") from None
    if isinstance(value, Decimal) and value.is_finite():
        return f"{value.normalize() + 0:f}"
    if isinstance(value, Decimal) or (isinstance(value, float | np.floating) and math.isinf(value)):
        raise InputError(expected="a finite value", received=str(value), code="not-finite")
    # Numbers and times in the one form that files have, too.
    if isinstance(value, float | np.floating):
        number = _float_of(value)
        return str(int(number)) if number.is_integer() and abs(number) < _LEAST_POWER else repr(number)
    if isinstance(value, dt.timedelta | np.timedelta64):
        return str(pd.Timedelta(value))
    if isinstance(value, np.datetime64):
        return label_of(pd.Timestamp(value))
    if isinstance(value, dt.datetime):  # also of pandas
        return value.isoformat(" ").removesuffix(" 00:00:00")
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        raise InputError(expected="a number of fewer digits", received=size_text(abs(value)), code="not-finite")
    return str(value)


def _float_of(value: Any) -> float:
    return float(value) if isinstance(value, float) or not isinstance(value, np.floating) else float(str(value))


def values_of(values: Any, dtype: Any = None) -> list[Any]:
    """The values of a list, an array, also of Arrow, or an index, with the width that floats have there.

    ``dtype`` is that of the column where ``values`` are its distinct ones, which may be of a wider type.
    """
    values = values.to_pandas(integer_object_nulls=True) if hasattr(values, "null_count") else values
    dtype = getattr(values, "dtype", None) if dtype is None else dtype
    dtype = getattr(dtype, "numpy_dtype", dtype)  # of pandas' nullable types and those of Arrow
    if isinstance(dtype, np.dtype) and dtype.kind == "f" and dtype.itemsize < 8:
        return list(pd.Series(values).to_numpy(dtype=dtype, na_value=np.nan))
    return list(values)


def labels_of_values(place: Any, values: Iterable[Any], *, strip: bool = False) -> list[str]:
    """Labels of values (:func:`label_of`), nothing for what is missing; ``strip`` removes blanks around them."""
    try:
        cells = values_of(values)
        labels = ["" if v is None or v is pd.NA or bool(v != v) else label_of(v) for v in cells]
    except InputError as error:
        raise error.replace(argument=place) from None
    return [label.strip() for label in labels] if strip else labels


def meaning_of(value: Any) -> float | None:
    """The number that a value or a label says, true as 1 and false as 0; None for other text, also ``"01"``."""
    if isinstance(value, str):
        text = value.lower()
        if text in ("true", "false"):
            return float(text == "true")
        return float(text) if _PLAIN_NUMBER.fullmatch(text) else None
    if isinstance(value, np.timedelta64):  # an integer of NumPy
        return None
    is_exact = not isinstance(value, int | np.integer) or abs(int(value)) <= LARGEST_COUNT
    return _float_of(value) if isinstance(value, Real | np.bool_ | Decimal) and is_exact else None


def _moment(text: str) -> pd.Timestamp | None:
    """The time that a text says; None for another text, and where there is no such day."""
    with suppress(ValueError):
        return cast(pd.Timestamp, pd.Timestamp(text)) if _MOMENT.fullmatch(text) else None
    return None


def _time_label(text: str) -> str | None:
    """The label of the time that a text says, in whatever form (``T``, zeros); None for another text."""
    if clock := _CLOCK.fullmatch(text):
        return clock[1] if not int(clock[2] or 0) else f"{clock[1]}.{clock[2]}"
    moment = _moment(text)
    return None if moment is None else label_of(moment)


def _meaning(value: Any) -> float | str | None:
    """The number that a value says, or the label of the time that a text says in another form (``T``, zeros)."""
    label = _time_label(value) if isinstance(value, str) else None
    return meaning_of(value) if label is None else label


def code_reader(variable: Variable) -> Callable[[Any], int | None]:
    """What turns values into codes of a variable: by label, else by the one label of its meaning; None for none."""
    by_label = {label: code for code, label in enumerate(variable.labels)}
    meanings = [_meaning(label) for label in variable.labels]
    times = Counter(meanings)
    by_meaning = {m: code for code, m in enumerate(meanings) if m is not None and times[m] == 1}

    def read(value: Any) -> int | None:
        code, meaning = by_label.get(label_of(value)), _meaning(value)
        return code if code is not None or meaning is None else by_meaning.get(meaning)

    return read


def level_order(label: str) -> tuple[int, float, str]:
    """Sort key of a level: labels that read as finite numbers first, in numeric order, then text by code points."""
    try:
        number = float(label)
    except ValueError:
        return (1, 0.0, label)
    return (0, number, label) if math.isfinite(number) else (1, 0.0, label)


def has_levels(dtype: Any) -> bool:
    """Whether a type says its levels."""
    is_arrow = isinstance(dtype, pd.ArrowDtype) and str(dtype.pyarrow_dtype).startswith("dictionary<")
    return is_arrow or isinstance(dtype, pd.CategoricalDtype)


def factorise(values: Any, where: Any = None) -> tuple[np.ndarray, list[Any], pd.CategoricalDtype | None]:
    """Positions (N,) into distinct values (-1 for None or NaN), those values, and the categorical dtype if any.

    The values may be in an array of Arrow; ``where`` says in messages where they are.
    """
    dtype = getattr(values, "dtype", None)
    # Arrow tells its levels apart itself, categories are known; else pandas finds the distinct values.
    if isinstance(dtype, pd.ArrowDtype) or hasattr(values, "null_count"):
        coded = coded_column(where, values if dtype is None else pd.Series(values))
        if isinstance(coded, tuple):
            positions, distinct, order = coded
            return positions, values_of(distinct), None if order is None else pd.CategoricalDtype(ordered=order)
        values, dtype = coded, coded.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        categorical = pd.Categorical(values)
        return np.array(categorical.codes, dtype=np.int64), values_of(categorical.categories), categorical.dtype
    array = values if isinstance(values, (pd.Series, np.ndarray)) else np.asarray(values, dtype=object)
    try:
        positions, distinct = pd.factorize(array)
    except TypeError:
        if where is None:
            raise
        raise not_plain(where) from None
    return np.asarray(positions, dtype=np.int64), values_of(distinct, dtype), None


def _is_part(value: Any) -> bool:
    """Whether a cell holds something that is no label: a list, an array, bytes, a mapping, a complex number."""
    return isinstance(value, Collection | complex | np.complexfloating) and not isinstance(value, str)


def _check_cells(name: str, values: Any, where: Callable[[int], str]) -> None:
    for row, value in enumerate(values):
        if _is_part(value):
            hint = "decode it first" if isinstance(value, bytes | bytearray) else "write one column for each part of it"
            raise wrong_type(f"{where(row)}, column {name!r}", _LABELS, value, hint)


def check_alike(words: Collection[str], what: str) -> None:
    """Warn of words that look alike.

    They differ in blanks around them, in how an accent is encoded, or in large and small letters. Single letters that
    do are taken for symbols, as of alleles.
    """
    looks = {word: unicodedata.normalize("NFC", word).strip() for word in words}
    looks = {word: look.casefold() if len(look) > 1 else look for word, look in looks.items()}
    if len(set(looks.values())) == len(looks):
        return
    seen: dict[str, str] = {}
    alike = [(one, word) for word, look in looks.items() if (one := seen.setdefault(look, word)) != word]
    if alike:
        shown = " and ".join(ascii(word) for word in alike[0])
        more = f" ({len(alike)} such pairs)" if len(alike) > 1 else ""
        problem = f"{what}: {shown} look alike and are kept apart{more}; write them alike if they are the same"
        warnings.warn(DataWarning(problem), stacklevel=caller_level())


def levels_of(labels: Iterable[str]) -> list[str]:
    """Different labels of a column without declared levels, in :func:`level_order`.

    A column all of whose texts are numbers or times as a program writes them (``3.0``, ``1e-7``,
    ``2020-01-03T00:00:00.000``) has the labels of these numbers and times, as it has where they are no text: a CSV file
    says no types.
    """
    levels = set(labels)
    typed = {_typed_label(label) for label in levels}
    if None not in typed and len(typed) == len(levels):
        levels = cast(set[str], typed)
    return sorted(levels, key=level_order)


def _typed_label(text: str) -> str | None:
    """The label of the number or time that a text is written as; None where it is another text, such as ``1.50``."""
    if _PLAIN_NUMBER.fullmatch(text):
        is_real = "." in text or "e" in text
        is_canonical = not is_real or repr(float(text)) == text or _POWER.fullmatch(text)
        return label_of(float(text) if is_real else text) if is_canonical else None
    return None if _MINUTES.fullmatch(text) else _time_label(text)


def variable_of(name: str, levels: Sequence[str], *, is_ordered: bool) -> Variable:
    """The variable of the levels that a column has; refused where it has none."""
    if not levels:
        column, hint = f"column {name!r}", "leave the column out or give its domain"
        raise unexpected(column, "at least one level", hint=hint, received="missing cells only", code="empty")
    check_alike(levels, f"column {name!r}")
    return Variable(name, tuple(levels), "ordinal" if is_ordered else "nominal")


def encode_column(
    name: str,
    values: Any,
    *,
    variable: Variable | None = None,
    missing_values: Collection[str] = ("",),
    where: Callable[[int], str],
) -> tuple[Variable, np.ndarray]:
    """Variable and codes (N,), -1 where missing, of one column of values (N,), in the smallest type.

    Without a known variable the levels are the categories of a categorical column in their order (kind ``ordinal`` when
    that is an ordered one), else the labels present, in :func:`level_order`. Missing are None, NaN and
    ``missing_values``; ``where`` gives words for the position of row ``i`` in messages.

    Warns:
        DataWarning: labels that look alike.
    """
    try:
        positions, distinct, dtype = factorise(values)
    except TypeError as error:  # values that cannot be told apart, such as lists
        _check_cells(name, values, where)
        raise wrong_type(f"column {name!r}", _LABELS, received=str(error)) from None
    # Cells that hold several values have no label.
    if any(map(_is_part, distinct)):
        _check_cells(name, values, where)
    labels = labels_of_values(f"column {name!r}", distinct)
    # Levels are the categories, or the labels that are there.
    present = [label for label in labels if label not in missing_values]
    labelled = [(value, label) for value, label in zip(distinct, labels, strict=True) if label not in missing_values]
    # Values of several types that would become one level are refused.
    read = None if variable is None else code_reader(variable)
    flags, others = set[Any](), list[Any]()
    if isinstance(getattr(values, "dtype", None), np.dtypes.ObjectDType) and {bool, np.bool_} & set(map(type, values)):
        # Truth values beside numbers become one level with 0 and 1.
        flags = {bool(value) for value in values if isinstance(value, bool | np.bool_)}
        others = [v for v in values if isinstance(v, Real | Decimal) and not isinstance(v, bool) and v in flags]
    pairs = [(bool(v), v) for v in others if read is None or read(bool(v)) != read(v)][:1]
    first = dict[str, Any]()
    for value, label in labelled:
        if first.setdefault(label, value) is not value and read is None:
            pairs.append((first[label], value))
    for one, other in pairs:
        hint = f"give the column one type, such as frame[{name!r}].astype(str)"
        raise conflict(f"column {name!r}", f"{one!r} and {other!r} are of two types and would become one level", hint)
    if variable is None:
        levels = levels_of(present) if dtype is None else [*dict.fromkeys(present)]
        variable = variable_of(name, levels, is_ordered=dtype is not None and bool(dtype.ordered))
    kind = code_type([variable.cardinality])
    return variable, codes_of_cells(variable, positions, distinct, labels, missing_values, where, kind)


def codes_of_cells(
    variable: Variable,
    positions: np.ndarray,
    values: Iterable[Any],
    labels: Sequence[str],
    missing_values: Collection[str],
    where: Callable[[int], str],
    dtype: Any,
) -> np.ndarray:
    """Codes (N,) of cells at positions (N,) of distinct values with their labels, -1 where missing."""
    by_label = {label: code for code, label in enumerate(variable.labels)}
    # A code for every distinct value, by its label, else by what it means.
    table = np.full(len(labels) + 1, -1, dtype=dtype)  # the last one is that of position -1, of missing cells
    table[:-1] = [-1 if label in missing_values else by_label.get(label, -2) for label in labels]
    if (table == -2).any():  # labels of another type or spelling, which are read by what they mean
        read = code_reader(variable)
        for i, value in enumerate(values):
            if table[i] == -2 and (code := read(value)) is not None:
                table[i] = code
    codes = table[positions]
    if (table == -2).any() and (codes == -2).any():  # an unused category is not an observation
        row = int(np.argmax(codes == -2))
        label = labels[int(positions[row])]
        check_names([label], variable.labels, f"{where(row)}, column {variable.name!r}", noun="label")
    return codes


def to_numbers(given: Any) -> pd.Series:
    """Numbers of a column of anything, missing where a cell holds none."""
    try:
        return pd.Series(pd.to_numeric(given, errors="coerce"))
    except (TypeError, UnicodeError):  # types, tensors of one number and halves of surrogate pairs are not coerced
        plain = given.map(lambda cell: cell if isinstance(cell, Real | Decimal | str) and str(cell).isascii() else None)
        return pd.Series(pd.to_numeric(plain, errors="coerce"))


def _numbers(values: Any, name: str) -> tuple[Any, np.ndarray]:
    """A column, and its numbers (N,), NaN where it holds none; dates, durations and complex numbers are refused."""
    if np.iscomplexobj(values):
        raise wrong_type(name, "real numbers", received="complex ones")
    given = pd.Series(values)
    if isinstance(values, np.ndarray) and values.dtype.kind in "iuf":
        return given, values.astype(np.float64)
    if given.dtype.kind in "mM" or isinstance(given.dtype, pd.PeriodDtype):
        raise wrong_type(name, "numbers", received=given.dtype)
    try:
        return given, to_numbers(given).to_numpy(dtype=float, na_value=np.nan)
    except OverflowError:
        raise out_of_range(name, "numbers below 1.8e+308", received="a larger one") from None


class OddCount(NamedTuple):
    """The first cell of a column that is no count or weight: its row, how it is shown, and what to do."""

    row: int
    shown: str
    remedy: str
    is_fraction: bool


def odd_count(cells: pd.Series, numbers: np.ndarray, *, fractional: bool) -> OddCount | None:
    """The first cell that is no count, or no weight where it may be ``fractional``; None where all are."""
    with np.errstate(invalid="ignore"):
        is_bad = ~np.isfinite(numbers) | (numbers < 0)
        is_part = np.isfinite(numbers) & (numbers != np.floor(numbers)) & (numbers > 0) & (not fractional)
    if not (is_bad | is_part).any():
        return None
    # The first cell that is none, and what would make it one.
    row = int(np.flatnonzero(is_bad | is_part)[0])
    cell = cells.iloc[row]
    shown = repr(cell) if isinstance(cell, str) else str(cell)
    if is_part[row]:
        remedy = "pass the column as weights= if fractions are meant"
    elif how := _marked(cell)[1]:
        remedy = f"write {_marked(cell)[0]}, {how}"
    elif is_empty(cells.iloc[[row]])[0]:
        remedy = "write 0 where nothing was seen, or leave the row out"
    else:
        remedy = "mend the cell, or leave the row out"
    return OddCount(row, shown, remedy, bool(is_part[row]))


def _marked(cell: Any) -> tuple[Any, str]:
    """A number as a program writes it, and what is other than in the cell; cells without such marks as they are."""
    text = cell.strip() if isinstance(cell, str) else ""
    if _DECIMAL_COMMA.fullmatch(text):
        return text.replace(",", "."), "with a decimal point"
    if percent := _PERCENT.fullmatch(text):
        return percent[1], "without the sign"
    if _THOUSANDS.fullmatch(text):
        return re.sub(r"[^-+\d.]", "", text), "without marks between thousands"
    return cell, ""


def plain_numbers(cells: pd.Series, marked: bool = True) -> np.ndarray:
    """Numbers (N,) of cells, also of those ``marked`` by commas; NaN where there is none."""
    numbers = to_numbers(cells.map(lambda cell: _marked(cell)[0]) if marked else cells)
    return numbers.to_numpy(dtype=float, na_value=np.nan)


def is_empty(cells: pd.Series) -> np.ndarray:
    """Which cells (N,) hold nothing."""
    is_blank = [isinstance(cell, str) and not cell.strip() for cell in cells]
    return cells.isna().to_numpy() | np.array(is_blank, dtype=bool)


def parse_counts(values: Any, *, name: str, where: Callable[[int], str], fractional: bool) -> np.ndarray:
    """Counts, or weights where they may be ``fractional``, of one column (N,) of numbers or their text, float64.

    Their total is at most 2^53 - 1, so that whole ones add up exactly in any order.
    """
    given, numbers = _numbers(values, name)
    if odd := odd_count(given, numbers, fractional=fractional):
        expected = "a finite non-negative number" if fractional else "a non-negative whole number"
        raise out_of_range(f"{where(odd.row)}, {name}", expected, hint=odd.remedy, received=odd.shown)
    with np.errstate(over="ignore"):
        total = float(numbers.sum())
    if total > LARGEST_COUNT:
        received = f"{total:.17g}, most of it in {where(int(numbers.argmax()))}"
        hint = "divide them all by one number"
        raise out_of_range(name, f"a total of at most {LARGEST_COUNT}", hint=hint, received=received)
    return numbers + 0.0  # -0.0 becomes 0.0


def parse_numbers(columns: Mapping[str, Any], *, source: str, where: Callable[[int], str]) -> np.ndarray:
    """Columns of numbers or their text as an array (N, d) float64; empty cells and text are refused."""
    parsed: list[np.ndarray] = []
    gaps: dict[str, int] = {}
    for name, values in columns.items():
        given, numbers = _numbers(values, f"column {name!r}")
        # Text is refused at once, gaps are counted over all columns.
        unknown = np.isnan(numbers)
        if unknown.any():
            text = np.flatnonzero(unknown & ~is_empty(given))
            if len(text):
                row = int(text[0])
                hint = f"leave column {name!r} out where it holds no numbers, or ask for the other columns by name"
                raise out_of_range(f"{where(row)}, column {name!r}", "a number", given.iloc[row], hint=hint)
            gaps[name] = int(unknown.sum())
        parsed.append(numbers)
    if gaps:
        cells, names = sum(gaps.values()), ", ".join(map(repr, list(gaps)[:6]))
        names += ", ..." * (len(gaps) > 6)
        shown = f"{cells} empty cell{'s' * (cells != 1)} in column{'s' * (len(gaps) != 1)} {names}"
        problem = f"{shown}; numbers must be complete, fill the cells or leave their rows out"
        raise MissingDataError(problem, argument=source)
    return np.column_stack(parsed)


def select_columns(
    header: Sequence[str], columns: Sequence[str] | int | None, *, exclude: Collection[str], source: str
) -> list[str]:
    """Names of the variables to read: those asked for, or as many from the left, never those to ``exclude``."""
    available = [name for name in header if name not in exclude]
    if columns is None:
        return available
    if isinstance(columns, str) or not (is_whole(columns) or isinstance(columns, Iterable)):
        raise wrong_type("columns", "a sequence of names or a number", received=repr(columns))
    # A number takes columns from the left, names are taken as they are.
    if is_whole(columns):
        if not 1 <= columns <= len(available):
            raise out_of_range("columns", f"a number from 1 to {len(available)} for {source}", received=columns)
        return available[: int(columns)]
    wanted = list(cast("Sequence[str]", columns))
    if not wanted:
        raise none_received("columns", "at least one name")
    check_unique(wanted, "columns")
    check_names(wanted, header, f"columns of {source}", noun="column")
    counting = [name for name in wanted if name in exclude]
    if counting:
        problem = f"{counting[0]!r} holds the counts or weights of {source} and cannot also be a variable"
        raise conflict("columns", problem)
    return wanted
