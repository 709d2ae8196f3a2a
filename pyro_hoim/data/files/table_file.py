"""Tables as people have them: text of any delimiter and encoding, packed or not, Excel, Parquet, Feather and Stata."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from ...budgets import check_size
from ...errors import unexpected
from ..csv_file import CsvColumns, comma_note
from .safe_cells import restored
from .source_file import FEWER, MOST_CELLS, is_excel, not_empty, read_file, unpacked
from .text_format import comma_numbers, named_columns, text_format
from .typed_file import TYPED, read_typed

__all__ = ["is_text_name", "read_table_file"]

_OTHERS = {
    **dict.fromkeys((".json", ".jsonl", ".ndjson"), "JSON"),
    **dict.fromkeys((".sav", ".zsav", ".por"), "an SPSS file"),
    **dict.fromkeys((".rds", ".rda", ".rdata"), "an R file"),
    **dict.fromkeys((".npz", ".npy"), "a NumPy file"),
    ".sas7bdat": "a SAS file",
    ".xls": "an Excel file of the years before 2007",
    ".ods": "an OpenDocument file",
    ".pdf": "a PDF file",
    ".safetensors": "a model file",
}
_OLD_EXCEL = b"\xd0\xcf\x11\xe0"
_SIGNATURES = {
    b"PAR1": ".parquet",
    b"ARROW1": ".feather",
    b"\xff\xff\xff\xff": ".arrows",
    b"%PDF": ".pdf",
    _OLD_EXCEL: ".xls",
}


_CHUNK = 2**13  # cells that are moved at a time: twice as fast as 2^16, which leave the cache of a processor
_MOST_KNOWN = 2**16  # different cells that are remembered
_POINTER, _TEXT = 8, 64  # bytes of a place for a cell, and of a short text


def is_text_name(path: str | os.PathLike[str]) -> bool:
    """Whether a file of that name is read as text."""
    return Path(path).suffix.lower() not in (*_OTHERS, *TYPED, ".xlsx", ".xlsm")


def read_table_file(path: str | os.PathLike[str], *, sep: str | None = None, encoding: str | None = None) -> CsvColumns:
    """Columns of a table in a file; InputError names the line of what is wrong in it.

    Text may be packed (gzip, bzip2, xz, zip with one file, zstd, lz4). Its delimiter is the one that divides header and
    rows alike: comma, semicolon, tab, bar or blanks, also named by Excel's line ``sep=;``. Its encoding is that of a
    byte-order mark, else UTF-8, else Windows-1252. Decimal commas become points where commas do not divide cells.
    Comment lines above the header (``#``), row numbers under no name and empty last columns are left out. What differs
    from comma and UTF-8 is said in ``notes``.

    Args:
        path: the file. By its name Parquet or Arrow, such as Feather (extra ``parquet``), Excel (extra ``excel``, its
            first sheet that holds anything) or Stata; else text.
        sep: the character between cells, or ``tab``; None finds it.
        encoding: of the text, a name that Python knows; None finds it.

    Raises:
        InputError: no table, or one with a fault: the line and what to do are named.
    """
    raw = not_empty(path, read_file(path, "a CSV file"))
    kind = next((suffix for mark, suffix in _SIGNATURES.items() if raw.startswith(mark)), Path(path).suffix.lower())
    if kind in _OTHERS and (kind != ".xls" or raw.startswith(_OLD_EXCEL)):  # many programs call other tables so
        hint = "save it as CSV (UTF-8), .xlsx or .parquet"
        raise unexpected(path, "a table", received=_OTHERS[kind], hint=hint, code="damaged-file")
    if kind in TYPED:
        return read_typed(path, raw, kind)
    if is_excel(raw):
        return _of_rows(read_typed(path, raw, ".xlsx"), False)
    raw = unpacked(path, raw)
    form = text_format(path, lambda: io.BytesIO(raw), sep, encoding)
    columns, lines = _columns(path, form.rows(path, io.BytesIO(raw)), len(form.header))
    if form.is_safe:
        columns = tuple(tuple(map(restored, column)) for column in columns)
    return _of_rows(CsvColumns(str(path), form.header, columns, lines, form.notes), form.delimiter != ",")


def _columns(
    path: Any, rows: Iterator[tuple[int, list[str]]], width: int
) -> tuple[tuple[tuple[str, ...], ...], tuple[int, ...]]:
    """Columns of cells without blanks around them, and lines of the rows.

    Cells of one text are one object, as far as they are remembered.

    Raises:
        IntractableError: the cells would need more memory than a table may.
    """
    columns, lines = [list[str]() for _ in range(width)], list[int]()
    known, held = dict[str, str](), 0
    while part := [*islice(rows, max(1, _CHUNK // width))]:
        ends, cells = zip(*part, strict=True)
        lines.extend(ends)
        before = len(known)
        for column, new in zip(columns, zip(*cells, strict=True), strict=True):
            stripped = [*map(str.strip, new)]
            column.extend(map(known.setdefault, stripped, stripped))
        held += _POINTER * len(part) * (width + 5) + _TEXT * (len(known) - before)
        what = f"its first {len(lines):,} rows of {width:,} columns need"
        check_size(held, _POINTER * MOST_CELLS * 4, "bytes of memory", path, FEWER, what)
        if len(known) > _MOST_KNOWN:
            known = {}
    return tuple(map(tuple, columns)), tuple(lines)


def _of_rows(read: CsvColumns, has_commas: bool) -> CsvColumns:
    """The columns that have a name, without row names; the names are checked, and decimal commas become points."""
    path, cells = read.path, read.columns
    if not read.lines:
        raise unexpected(path, "rows below the header", received="the header only", code="empty")
    places, left_out = named_columns(path, read.header, cells.__getitem__)
    columns = {name: cells[i] for name, i in places.items()}
    commas = [name for name, column in columns.items() if has_commas and comma_numbers(column)]
    columns |= {name: tuple(cell.replace(",", ".") for cell in columns[name]) for name in commas}
    return replace(
        read,
        header=tuple(columns),
        columns=tuple(columns.values()),
        notes=(*read.notes, *left_out, *comma_note(commas)),
        row_names=cells[0] if 0 not in places.values() and any(cells[0]) else (),
    )
