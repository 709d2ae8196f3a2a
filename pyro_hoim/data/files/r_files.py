"""Files of R (``saveRDS`` and ``save``): data frames, and tables whose cells become rows with counts.

The package ``rdata`` parses the bytes into a tree of plain values, of which nothing is evaluated. What the tree means
is found here, because its own conversion loses descending sequences, repeated names and missing texts.
"""

import warnings
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ...budgets import check_size
from ...errors import InputError, check_unique, conflict, refused, unexpected, wrong_type
from .source_file import check_cells
from .survey_files import LabelledColumns, Typed

_MOST_BYTES = 2**25  # a million texts, in 14 MB, take rdata a minute
_LATIN1, _UTF8 = 1 << 2, 1 << 3  # flags of texts
_DIGITS = 15  # of numbers that R writes as text
_SAVE = "save the data frame itself, as saveRDS(data, 'data.rds') does"
_CELLS = "save as.table(x), whose cells have names"
_HAVEN = "haven_labelled"


class _Object(NamedTuple):
    """A value of R with what it is: its basic type, its classes, and its attributes."""

    kind: str  # such as INT, REAL, STR, VEC
    value: Any
    classes: tuple[str, ...]
    attributes: Mapping[str, Any]  # objects of the parser

    @property
    def words(self) -> str:
        """What it is, for messages."""
        kinds = {"CLO": "a function", "VEC": "a list", "ENV": "an environment", "NILVALUE": "NULL"}
        if classes := [name for name in self.classes if name != "AsIs"]:
            return f"an object of class {classes[0]!r}"
        return "a matrix" if "dim" in self.attributes else kinds.get(self.kind, "a vector")

    @property
    def is_table(self) -> bool:
        """Whether it is an array of numbers with names for the levels of every dimension."""
        return self.kind in ("INT", "REAL") and "dimnames" in self.attributes and "ftable" not in self.classes

    @property
    def is_frame(self) -> bool:
        """Whether it is a data frame."""
        return self.kind == "VEC" and "data.frame" in self.classes


def r_file(path: Any, raw: bytes, encoding: str | None = None) -> Typed:
    """The one data frame or table in the bytes of an unpacked file; other objects beside it are named in a note."""
    from rdata import parser

    check_size(len(raw), _MOST_BYTES, "bytes", path, "save it as CSV or Parquet", "holds")
    try:
        with warnings.catch_warnings(action="ignore"):
            tree = parser.parse_data(raw, altrep_constructor_dict=_expansions(path, parser), extension=".rds")
    except RecursionError:
        raise refused(path, "holds more objects than are read", _SAVE, "damaged-file") from None
    text = _Texts(path, encoding or tree.extra.encoding)
    # What ``save`` writes is a list of objects with names.
    if not raw.startswith(b"RD"):
        return _read(path, _object(tree.object, text), text)
    objects = {str(text(tag)): _object(value, text) for tag, value in _pairs(tree.object)}
    rows = [name for name, node in objects.items() if node.is_frame or node.is_table]
    if len(rows) > 1:
        names = " and ".join(map(repr, rows[:3]))
        raise conflict(
            path,
            f"holds {len(rows)} data frames and tables, such as {names}",
            f"save one of them: saveRDS({rows[0]}, 'data.rds')",
        )
    if not rows:
        shown = next((node.words for node in objects.values()), "nothing")
        raise unexpected(path, "a data frame or a table of R", received=shown, hint=_SAVE, code="damaged-file")
    columns, categorical, notes = _read(path, objects[rows[0]], text)
    others = [repr(name) for name in objects if name != rows[0]]
    notes = (
        [f"read {rows[0]!r}; {', '.join(others[:3])}{' and more' * (len(others) > 3)} left out", *notes]
        if others
        else notes
    )
    return columns, categorical, notes


def _expansions(path: Any, parser: Any) -> dict[bytes, Callable[[Any], Any]]:
    """What R stores in short: sequences from a start by a step, and texts of numbers."""

    def info(kind: str) -> Any:
        return parser.RObjectInfo(parser.RObjectType[kind], False, False, False, 0, 0)

    def sequence(kind: str) -> Callable[[Any], Any]:
        def made(state: Any) -> Any:
            length, start, step = state.value.tolist()
            check_cells(path, int(length), 1)
            values = start + step * np.arange(int(length))
            return info(kind), values.astype(np.int32) if kind == "INT" else values

        return made

    def texts(state: Any) -> Any:
        numbers, scipen = (part.value for part in state.value)
        return info("STR"), [None if _is_missing(x) else _as_text(x, int(scipen[0])) for x in numbers]

    return {
        **parser.DEFAULT_ALTREP_MAP,
        b"compact_intseq": sequence("INT"),
        b"compact_realseq": sequence("REAL"),
        b"deferred_string": texts,
    }


def _is_missing(value: Any) -> bool:
    return value is np.ma.masked or bool(value != value)


def _as_text(value: Any, scipen: int) -> str:
    """A number as R writes it: the fewest digits, up to fifteen, and a power of ten where that is shorter."""
    if isinstance(value, int | np.integer):
        return str(value)
    if not np.isfinite(value):
        return "Inf" if value > 0 else "-Inf"
    shortest = (f"{value:.{digits}e}" for digits in range(_DIGITS))
    rounded = float(f"{value:.{_DIGITS - 1}e}")
    power = next(text for text in shortest if float(text) == rounded)
    fixed = f"{Decimal(power):f}"
    return power if len(fixed) > len(power) + scipen else fixed


class _Texts:
    """Texts of R, each of which says its encoding, or has that of the session that wrote the file."""

    def __init__(self, path: Any, encoding: str | None) -> None:
        self._path = path
        self._encoding = encoding or "utf-8"

    def __call__(self, node: Any) -> str | None:
        """A text; None where it is missing."""
        if node is None or isinstance(node, str):
            return node
        if (raw := node.value) is None:
            return None
        name = "utf-8" if node.info.gp & _UTF8 else "latin-1" if node.info.gp & _LATIN1 else self._encoding
        try:
            return raw.decode(name)
        except (UnicodeDecodeError, LookupError):
            hint = "give its encoding, such as encoding='cp1252'"
            raise refused(self._path, f"a text that is not {name}: {raw[:20]!r}", hint, "wrong-encoding") from None


def _pairs(node: Any) -> Iterable[tuple[Any, Any]]:
    """Tags and values of a list of pairs."""
    while node is not None and node.value is not None:
        tag = node.tag.referenced_object or node.tag  # names that came before are referred to
        yield tag.value, node.value[0]
        node = node.value[1]


def _object(node: Any, text: _Texts) -> _Object:
    node = node.referenced_object or node
    attributes = {str(text(tag)): value for tag, value in _pairs(node.attributes)}
    classes = attributes.get("class")
    names = () if classes is None else tuple(str(text(name)) for name in classes.value)
    return _Object(node.info.type.name, node.value, names, attributes)


def _strings(node: Any, text: _Texts) -> list[str | None]:
    """Texts of a vector of texts; refused for anything else."""
    if node is None or node.info.type.name != "STR":
        raise ValueError("texts are missing where R has them")
    return [text(one) for one in node.value]


def _read(path: Any, node: _Object, text: _Texts) -> Typed:
    if node.is_frame:
        return _frame(path, node, text)
    if node.is_table:
        return _table(path, node, text)
    hint = _CELLS if "ftable" in node.classes else _SAVE
    raise unexpected(path, "a data frame or a table of R", received=node.words, hint=hint, code="damaged-file")


def _frame(path: Any, node: _Object, text: _Texts) -> Typed:
    """Columns of a data frame, factors with all their levels."""
    names = [str(name) for name in _strings(node.attributes.get("names"), text)]
    check_unique(names, f"{path} columns", "rename one of them: names(data) <- make.unique(names(data))")
    read = LabelledColumns()
    for name, value in zip(names, node.value, strict=True):
        column = _object(value, text)
        where = f"{path} column {name!r}"
        cells = _column(where, column, text)
        if "levels" in column.attributes and "factor" in column.classes:
            read.add_levels(name, cells)
            continue
        labels = _labels(column, text) if _HAVEN in column.classes else {}
        read.add(name, cells, labels, _user_missing(column, cells, text))
    if len({len(column) for column in read.columns.values()}) > 1:
        raise ValueError("columns of different lengths")
    columns, categorical, notes = read.typed()
    row_names = node.attributes.get("row.names")
    if row_names is not None and row_names.info.type.name == "STR":
        notes = [*notes, "names of rows left out"]
    return columns, categorical, notes


def _column(where: str, column: _Object, text: _Texts) -> pd.Series:
    """Cells (N,) of a column; refused where a cell holds several values."""
    if column.kind not in ("LGL", "INT", "REAL", "STR") or "dim" in column.attributes:
        hint = "turn dates of POSIXlt by as.POSIXct, and leave lists and matrices out"
        raise wrong_type(where, "numbers, texts, truth values, dates or a factor", received=column.words, hint=hint)
    if column.kind == "STR":
        return pd.Series([text(cell) for cell in column.value], dtype=object)
    if "factor" in column.classes:
        return _factor(column, text)
    values, mask = np.ma.getdata(column.value), np.ma.getmaskarray(column.value)
    if column.kind == "LGL":
        return pd.Series(pd.arrays.BooleanArray(values.astype(bool), mask))
    if column.kind == "INT":
        values = pd.Series(pd.arrays.IntegerArray(values, mask))
    elif "integer64" in column.classes:  # whole numbers of 64 bits in the place of real ones, the least of them missing
        whole = pd.Series(values.view(np.int64)).astype("Int64")
        values = whole.mask(whole == np.iinfo(np.int64).min)
    else:
        values = pd.Series(values)
    # Days and seconds since 1970, in the zone that is said.
    if "Date" in column.classes:
        return pd.Series(pd.to_datetime(values.astype("Float64"), unit="D"))
    if "POSIXct" in column.classes:
        times = pd.to_datetime(values.astype("Float64"), unit="s")
        zone = [*_strings(column.attributes["tzone"], text), ""][0] if "tzone" in column.attributes else ""
        return times.dt.tz_localize("UTC").dt.tz_convert(zone) if zone else times
    return values


def _factor(column: _Object, text: _Texts) -> pd.Series:
    """A factor with all its levels; a level that is NA is a missing cell."""
    levels = _strings(column.attributes["levels"], text)
    codes = np.where(np.ma.getmaskarray(column.value), 0, column.value) - 1
    if len(codes) and not -1 <= int(codes.min()) <= int(codes.max()) < len(levels):
        raise ValueError("a code of a factor without a level")
    known = [i for i, level in enumerate(levels) if level is not None]
    places = np.full(len(levels) + 1, -1)  # the last one is that of code -1
    places[known] = np.arange(len(known))
    is_ordered = "ordered" in column.classes
    return pd.Series(pd.Categorical.from_codes(places[codes], [levels[i] for i in known], ordered=is_ordered))


def _labels(column: _Object, text: _Texts) -> dict[Any, str]:
    """Labels of codes that haven read from SPSS or Stata, without those of missing values."""
    node = column.attributes.get("labels")
    if node is None:
        return {}
    labels = _object(node, text)
    names = _strings(labels.attributes.get("names"), text)
    codes = [text(code) for code in labels.value] if labels.kind == "STR" else np.ma.asarray(labels.value).tolist()
    ends = _missing_values(column, text)
    pairs = zip(codes, names, strict=True)
    return {code: name for code, name in pairs if name and code is not None and code == code and not ends(code)}


def _missing_values(column: _Object, text: _Texts) -> Callable[[Any], bool]:
    """Whether a code is a missing value of SPSS, by what haven keeps of them."""
    values, ends = column.attributes.get("na_values"), column.attributes.get("na_range")
    single = set[Any]() if values is None else {text(v) if values.info.type.name == "STR" else v for v in values.value}
    low, high = (np.inf, -np.inf) if ends is None or ends.info.type.name == "STR" else ends.value.tolist()
    return lambda code: code in single or (not isinstance(code, str) and bool(low <= code <= high))


def _user_missing(column: _Object, cells: pd.Series, text: _Texts) -> np.ndarray | None:
    if not {"na_values", "na_range"} & set(column.attributes):
        return None
    is_missing = _missing_values(column, text)
    return np.array([cell is not None and cell is not pd.NA and is_missing(cell) for cell in cells])


def _table(path: Any, node: _Object, text: _Texts) -> Typed:
    """One row per cell of a table, with its count; the dimensions are variables with all their levels."""
    dimnames = _object(node.attributes["dimnames"], text)
    given = dimnames.attributes.get("names")
    names = [None] * len(dimnames.value) if given is None else _strings(given, text)
    variables = [name or f"Var{i}" for i, name in enumerate(names, start=1)]  # as R calls them
    check_unique([*variables, "count"], f"{path} dimensions", "rename one of them: names(dimnames(x))")
    levels = [_strings(labels, text) for labels in dimnames.value]
    shape = tuple(map(len, levels))
    check_cells(path, int(np.prod(shape, dtype=object)), len(shape) + 1)
    if "dim" not in node.attributes or shape != tuple(node.attributes["dim"].value.tolist()):
        raise ValueError("dimensions of other sizes than their names")
    counts = np.ma.asarray(node.value, dtype=np.float64).filled(np.nan)
    if not ((counts >= 0) & (counts == np.floor(counts))).all():
        problem = "holds a table of shares or of cells without a number, not of counts"
        raise InputError(problem, argument=path, hint="save the counts, as table() and xtabs() make them")
    # Cells are in the order of R, in which the first dimension runs fastest.
    codes = np.unravel_index(np.arange(len(counts)), shape, order="F")
    columns: dict[str, Any] = {
        name: pd.Series(pd.Categorical.from_codes(places, labels))
        for name, places, labels in zip(variables, codes, levels, strict=True)
    }
    note = f"read the {len(counts):,} cells of a table, with their counts"
    return {**columns, "count": pd.Series(counts.astype(np.int64))}, variables, [note]
