"""Files of SPSS, SAS and Stata: codes become the levels that their value labels declare."""

import io
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, cast

import numpy as np
import pandas as pd

from ...errors import check_unique, refused
from ..encoding import label_of
from .source_file import MOST_CELLS, check_bytes, check_cells

Typed = tuple[Mapping[str, Any], Collection[str], Sequence[str]]
"""Columns of pandas or Arrow, names of those whose levels the file says, and notes."""

_STATA_ROWS = 2**16  # rows of Stata that are decoded at a time
_STATA_MISSING = 2147483621  # of Stata: this and the 26 codes above it are missing cells
_MOST_APART = 12  # codes without a label, beside fewer with one; more of them are numbers, of which some have a name
_MOST_ORDERED = 30  # numbers of an ordinal column without labels that are levels

_MOST_DICTIONARY = 2**24  # bytes of SPSS in which names and labels stand
_PATIENCE = 60.0  # seconds for a dictionary
_READ = "read_sav(io.BytesIO(sys.stdin.buffer.read()), metadataonly=True, output_format='dict')"
_TRIAL = f"import io, sys, pyreadstat; pyreadstat.{_READ}"  # as a frame it would import pandas, three times as long

_Labels = Mapping[Any, str]


class LabelledColumns:
    """Columns of a file in which codes have labels, and what is to be said of them in one note."""

    def __init__(self) -> None:
        self.columns: dict[str, Any] = {}
        self.categorical: list[str] = []
        self._labelled: list[str] = []
        self._ordered: list[str] = []
        self._numbers: list[str] = []
        self._missing: dict[str, int] = {}
        self._apart: list[str] = []

    def add(
        self,
        name: str,
        codes: pd.Series,
        labels: _Labels,
        missing: np.ndarray | None = None,
        *,
        is_ordered: bool = False,
    ) -> None:
        """Take a column (N,) of codes, labels of those that are no missing values, and which cells (N,) are missing."""
        if missing is not None and missing.any():
            self._missing[name] = int(missing.sum())
            codes = codes.mask(missing)
        is_number = codes.dtype.kind in "iuf"
        if labels and not is_number:
            codes = codes.mask(codes == "")
        present = pd.unique(codes.dropna())
        apart = sum(code not in labels for code in present)
        # A few names among many numbers do not make levels of them.
        if labels and is_number and apart > max(_MOST_APART, len(labels)):
            self._numbers.append(name)
        elif labels or (is_ordered and is_number and len(present) <= _MOST_ORDERED):
            codes, first = _levels(codes, labels, is_ordered)
            if first:
                self._apart.append(f"codes of {name!r} that share a label are kept apart, such as {first!r}")
            self.categorical.append(name)
            (self._ordered if is_ordered else self._labelled).append(name)
        self.columns[name] = codes

    def add_levels(self, name: str, column: pd.Series) -> None:
        """Take a column (N,) that has its levels, of which nothing is to be said."""
        self.columns[name] = column
        self.categorical.append(name)

    def typed(self) -> Typed:
        """The columns, names of those with levels, and what is to be said of them."""
        notes = list[str]()
        if self._labelled:
            notes.append(f"value labels of {_names(self._labelled)} read as levels")
        if self._ordered:
            notes.append(f"{_names(self._ordered)} read as ordered levels")
        if self._numbers:
            notes.append(f"{_names(self._numbers)} read as numbers, since most of their codes have no label")
        if cells := sum(self._missing.values()):
            notes.append(
                f"{cells:,} user-missing cell{'s' * (cells > 1)} of {_names([*self._missing])} read as missing"
            )
        return self.columns, self.categorical, [*notes, *self._apart]


def _names(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:6])) + (f" and {len(names) - 6} more" if len(names) > 6 else "")


def _levels(codes: pd.Series, labels: _Labels, is_ordered: bool) -> tuple[pd.Series, str]:
    """Codes as levels, also those without a row or without a label, and the first that bears its code behind its text.

    So do all of several codes with one text.
    """
    values = sorted({*codes.dropna().unique().tolist(), *labels})
    code_texts = [label_of(value) for value in values]
    texts = [labels.get(value, "") or code for value, code in zip(values, code_texts, strict=True)]
    apart = ""
    while repeated := {text for text, times in Counter(texts).items() if times > 1}:
        apart = apart or next(
            f"{text} ({code})" for text, code in zip(texts, code_texts, strict=True) if text in repeated
        )
        texts = [f"{text} ({code})" if text in repeated else text for text, code in zip(texts, code_texts, strict=True)]
    places = pd.Index(values).get_indexer(pd.Index(codes))
    return pd.Series(pd.Categorical.from_codes(places, texts, ordered=is_ordered)), apart


def stata(path: Any, raw: bytes, _: str | None = None) -> Typed:
    """A Stata file; columns with value labels get them as levels, in the order of their codes, which asserts none."""
    # Rows are decoded in portions, up to the limit; labels stand behind them.
    parts, rows = list[pd.DataFrame](), 0
    with cast(Any, pd.read_stata(io.BytesIO(raw), chunksize=_STATA_ROWS, convert_categoricals=False)) as reader:
        for part in reader:
            rows += len(part)
            check_cells(path, rows, part.shape[1])
            parts.append(part)
        labels, names = reader.value_labels(), vars(reader)["_lbllist"]
    frame = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
    header = [str(name).strip() for name in frame.columns]
    check_unique(header, f"{path} columns")
    frame.columns = header
    # Labels of missing cells (.a to .z) are those of codes above all others.
    read = LabelledColumns()
    for name, key in zip(header, names[: len(header)], strict=True):
        column = cast(pd.Series, frame[name])
        known = {code: text for code, text in labels.get(key, {}).items() if code < _STATA_MISSING}
        read.add(name, column, known if column.dtype.kind in "iuf" else {})
    return read.typed()


def _readstat(path: Any, raw: bytes, encoding: str | None, kind: str) -> Typed:
    """A file of SPSS or SAS; a file says its rows and the width of its cells before any of them is decoded."""
    import pyreadstat

    if b"ENCRYPTED" in raw[:36]:
        raise refused(path, "is encrypted with a password", "open it in SPSS and save it without one", "damaged-file")
    read: Callable[..., tuple[pd.DataFrame, Any]] = getattr(pyreadstat, f"read_{kind}")
    how: dict[str, Any] = {} if encoding is None or kind == "por" else {"encoding": encoding}
    if kind == "sav":
        _check_dictionary(path, raw)
    _, about = read(io.BytesIO(raw), metadataonly=True, **how)
    check_unique(about.column_names, f"{path} columns")
    num_columns, rows = len(about.column_names), about.number_rows or 0
    check_cells(path, rows, num_columns)
    check_bytes(path, rows * sum(about.variable_storage_width.values()))
    # Where it does not say its rows, no more are read than may be; codes of missing values come as they are.
    how |= {"row_limit": MOST_CELLS // max(1, num_columns) + 1, "dates_as_pandas_datetime": True}
    frame, about = read(io.BytesIO(raw), **how, **({"user_missing": True} if kind == "sav" else {}))
    check_cells(path, len(frame), num_columns)
    labelled = LabelledColumns()
    for name in about.column_names:
        column, ranges = cast(pd.Series, frame[name]), about.missing_ranges.get(name, ())
        labels = {code: text for code, text in about.variable_value_labels.get(name, {}).items() if text}
        if kind == "por":  # whose reader does not say which codes are missing values
            labels = {code: labels[code] for code in column.dropna().unique() if code in labels}
        labels = {code: text for code, text in labels.items() if not _is_within(code, ranges)}
        missing = np.array([_is_within(value, ranges) for value in column]) if ranges else None
        labelled.add(name, column, labels, missing, is_ordered=about.variable_measure.get(name) == "ordinal")
    columns, categorical, notes = labelled.typed()
    if kind == "por" and categorical:
        notes = [*notes, "levels that no row has left out, which a .por file does not tell from missing values"]
    return columns, categorical, notes


def _check_dictionary(path: Any, raw: bytes) -> None:
    """Refuse a file of SPSS whose damaged dictionary ends the process that reads it by pyreadstat 1.3.7."""
    if not sys.executable or getattr(sys, "frozen", False):
        return
    trial, head = [sys.executable, "-c", _TRIAL], raw[:_MOST_DICTIONARY]
    try:
        status = subprocess.run(trial, input=head, capture_output=True, check=False, timeout=_PATIENCE).returncode  # noqa: S603
    except subprocess.TimeoutExpired:
        status = None
    if status not in (0, 1):  # with 1 its reader says what is wrong, also in this process
        raise refused(path, "damaged .sav file (its dictionary)", "save it again, or as CSV", "damaged-file")


def _is_within(value: Any, ranges: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a code is a missing value, by the ranges of these, which have equal ends for a single one."""
    return any(isinstance(value, str) == isinstance(r["lo"], str) and r["lo"] <= value <= r["hi"] for r in ranges)


SURVEYS: dict[str, Callable[[Any, bytes, str | None], Typed]] = {
    **dict.fromkeys((".sav", ".zsav"), partial(_readstat, kind="sav")),
    ".por": partial(_readstat, kind="por"),
    ".sas7bdat": partial(_readstat, kind="sas7bdat"),
    ".xpt": partial(_readstat, kind="xport"),
    ".dta": stata,
}
"""Readers by the ends of names of files."""


# Weka's ARFF: attributes and their declared levels above rows of cells, dense or sparse.

_ARFF = re.compile(r"(?:\s*%[^\r\n]*[\r\n]+)*\s*@relation\s", re.I)
_DATA = re.compile(r"^[ \t]*@data\b[^\r\n]*", re.I | re.M)
_ATTRIBUTE = re.compile(r"""([ \t]*@attribute)\s+('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[^\s{]+)\s*(.*)""", re.I)
_WEIGHTS = re.compile(r"^[^{%\r\n][^\r\n]*,\s*\{[^{}\r\n]*\}[ \t]*$", re.M)
_OTHER_TYPES = {"date": "STRING", "integer": "NUMERIC"}  # of Weka, which takes 3.5 for an integer


def is_arff(head: str) -> bool:
    """Whether a text begins as ARFF."""
    return _ARFF.match(head) is not None


def arff_file(path: Any, text: str) -> Typed:
    """The columns of a text; nominal attributes have the levels that they declare, in no order."""
    import arff

    # How many cells there may be, before any is read.
    data = _DATA.search(text)
    head, rows = (text, "") if data is None else (text[: data.start()], text[data.end() :])
    lines = [_attribute(line) for line in head.splitlines()]
    check_cells(path, rows.count("\n") + rows.count("\r") + 1, sum("@attribute" in line.lower() for line in lines))
    if weights := _WEIGHTS.search(rows):
        problem = f"has weights of rows in braces ({weights[0][-20:].strip()})"
        raise refused(path, problem, "make them an attribute, such as weight, and name it as weights", "damaged-file")
    try:
        read = arff.loads("\n".join([*lines, "@DATA"]) + rows)
    except arff.ArffException as error:
        problem = f"damaged .arff file ({' '.join(str(error).split())[:120]})"
        raise refused(path, problem, "save it again, or as CSV", code="damaged-file") from None
    # Levels are those that an attribute lists.
    columns = [*zip(*read["data"], strict=True)] or [()] * len(read["attributes"])
    typed = dict[str, Any]()
    categorical = list[str]()
    for (name, kind), cells in zip(read["attributes"], columns, strict=True):
        if isinstance(kind, list):
            typed[name] = pd.Series(pd.Categorical(cells, categories=kind))
            categorical.append(name)
        else:
            typed[name] = pd.Series(cells, dtype=object if kind == "STRING" else float)
    return typed, categorical, ()


def _attribute(line: str) -> str:
    """A line of the header, with a blank between its parts and a type that the parser knows."""
    match = _ATTRIBUTE.match(line)
    if match is None:
        return line
    word, name, kind = match.groups()
    return f"{word.strip()} {name} {_OTHER_TYPES.get(kind.split()[0].lower() if kind else '', kind)}"
