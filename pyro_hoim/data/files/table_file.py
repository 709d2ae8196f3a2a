"""Tables as people have them: text of any delimiter and encoding, packed or not, Excel, Parquet, Feather and Stata."""

from __future__ import annotations

import io
import os
from dataclasses import replace
from pathlib import Path

from ...errors import unexpected
from ..csv_file import CsvColumns, comma_note, parse_csv
from .packed_file import is_excel, unpacked
from .safe_cells import restored
from .source_file import not_empty, read_file
from .text_format import as_text, comma_numbers, named_columns, text_format
from .typed_file import EXCEL, TYPED, read_typed

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
_SIGNATURES = {
    b"PAR1": ".parquet",
    b"ARROW1": ".feather",
    b"\xff\xff\xff\xff": ".arrows",
    b"%PDF": ".pdf",
    b"\xd0\xcf\x11\xe0": ".xls",
}


def is_text_name(path: str | os.PathLike[str]) -> bool:
    """Whether a file of that name is read as text."""
    return Path(path).suffix.lower() not in (*_OTHERS, *TYPED, ".xlsx", ".xlsm")


def read_table_file(path: str | os.PathLike[str], *, sep: str | None = None, encoding: str | None = None) -> CsvColumns:
    """Columns of a table in a file; InputError names the line of what is wrong in it.

    Text may be packed (gzip, bzip2, xz, zip with one file). Its delimiter is the one that divides header and rows
    alike: comma, semicolon, tab, bar or blanks, also named by Excel's line ``sep=;``. Its encoding is that of a
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
    if kind in _OTHERS:
        hint = "save it as CSV (UTF-8), .xlsx or .parquet"
        raise unexpected(path, "a table", received=_OTHERS[kind], hint=hint, code="damaged-file")
    if kind in TYPED:
        return read_typed(path, raw, kind)
    if is_excel(raw):
        return _of_rows(read_typed(path, raw, EXCEL), False)
    raw = unpacked(path, raw)
    form = text_format(path, lambda: io.BytesIO(raw), sep, encoding)
    stream = as_text(io.BytesIO(raw), form.encoding)
    stream.read(form.place)
    columns, lines = parse_csv(path, stream, form.delimiter, first_line=form.first_line, spare=form.spare)
    if form.is_safe:
        columns = tuple(tuple(map(restored, column)) for column in columns)
    return _of_rows(CsvColumns(str(path), form.header, columns, lines, form.notes), form.delimiter != ",")


def _of_rows(read: CsvColumns, has_commas: bool) -> CsvColumns:
    """The columns that have a name, without row names; the names are checked, and decimal commas become points."""
    path, cells = read.path, read.columns
    if not read.lines:
        raise unexpected(path, "rows below the header", received="the header only", code="empty")
    kept, left_out = named_columns(path, read.header, cells.__getitem__)
    columns = {read.header[i]: cells[i] for i in kept}
    commas = [name for name, column in columns.items() if has_commas and comma_numbers(column)]
    columns |= {name: tuple(cell.replace(",", ".") for cell in columns[name]) for name in commas}
    return replace(
        read,
        header=tuple(columns),
        columns=tuple(columns.values()),
        notes=(*read.notes, *left_out, *comma_note(commas)),
        row_names=cells[0] if 0 not in kept and any(cells[0]) else (),
    )
