"""Tables as people have them: text, packed or not, and what spreadsheets, data frames and programs write."""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ... import budgets
from ...budgets import check_size
from ...errors import HoimError, check_unique, refused, unexpected
from ..arrow_tables import arrow_library, coded_texts, fields_of, not_plain
from ..counting import code_type
from ..encoding import factorise, labels_of_values
from .r_files import r_file
from .safe_cells import restored
from .source_file import (
    FEWER,
    MOST_CELLS,
    check_bytes,
    check_cells,
    check_ratio,
    is_excel,
    not_empty,
    read_file,
    unpacked,
)
from .survey_files import SURVEYS, Typed, arff_file, is_arff
from .text_format import check_header, comma_numbers, found_encoding, named_columns, text_format

# Columns of text that were read from a file, and the words for their places in it.


@dataclass(frozen=True)
class CsvColumns:
    """Columns of a table in a file."""

    path: str  # of the file
    header: tuple[str, ...]  # column names
    columns: tuple[Sequence[str], ...]  # cells of each column as text
    lines: Sequence[int]  # the last line of each row, or its number in the table
    notes: tuple[str, ...] = ()  # sentences on how the file was read, where that is not as it stands there
    categories: Mapping[str, Any] = field(default_factory=dict[str, Any])  # types of columns whose levels a file names
    unit: str = "line"  # ``line``, or ``row`` where lines have no meaning
    row_names: Sequence[str] = ()  # cells of a first column without a name, which is none of the columns

    @property
    def note(self) -> tuple[str, ...]:
        """The notes as one sentence; nothing where there are none."""
        return (f"{self.path}: {'; '.join(self.notes)}",) if self.notes else ()

    def where(self, row: int) -> str:
        """Words for the position of a row in the file."""
        return f"{self.path} {self.unit} {self.lines[row]}"

    def column(self, name: str) -> Sequence[str]:
        """Cells of one column."""
        return self.columns[self._position[name]]

    @cached_property
    def _position(self) -> dict[str, int]:
        return {name: position for position, name in enumerate(self.header)}


_BLOCK = 2**14  # rows


class _LongColumn(Sequence[str]):
    """Texts of a long column, in blocks of rows: the different texts of a block, and the code of every cell."""

    def __init__(self) -> None:
        self._blocks: list[tuple[np.ndarray, np.ndarray]] = []
        self._open: list[str] = []

    @classmethod
    def of_codes(cls, texts: Sequence[str], codes: np.ndarray) -> Sequence[str]:
        """The texts of codes; those of a short column themselves."""
        if len(codes) < _BLOCK:
            return tuple(map(texts.__getitem__, codes.tolist()))
        column, blocks = cls(), np.split(codes.astype(code_type([len(texts)])), range(_BLOCK, len(codes), _BLOCK))
        shared = np.array(texts, dtype=object)
        column._blocks = [(shared, block) for block in blocks]
        return column

    def extend(self, cells: Iterable[str]) -> None:
        """Add at most as many cells as a block has."""
        self._open.extend(cells)
        if len(self._open) >= _BLOCK:
            self._fold()

    def _fold(self) -> None:
        codes, texts = pd.factorize(np.array(self._open[:_BLOCK], dtype=object))
        self._blocks.append((np.asarray(texts), codes.astype(code_type([len(texts)]))))
        del self._open[:_BLOCK]

    def closed(self) -> Sequence[str]:
        """The column without room for more; the texts of a short one themselves."""
        if not self._blocks:
            return tuple(self._open)
        if self._open:
            self._fold()
        return self

    def __len__(self) -> int:
        return sum(len(codes) for _, codes in self._blocks)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        block, place = divmod(range(len(self))[index], _BLOCK)
        texts, codes = self._blocks[block]
        return texts[codes[place]]

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(texts[codes].tolist() for texts, codes in self._blocks)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.concatenate([texts[codes] for texts, codes in self._blocks]).astype(dtype or object, copy=False)


def comma_note(names: Sequence[str]) -> list[str]:
    """What is said of columns with decimal commas."""
    return [f"decimal commas in {', '.join(map(repr, names[:6]))} read as points"] if names else []


# Parquet, Arrow (Feather) and Excel, judged by what their libraries report, or decoded up to a limit.

_MOST_SHEET, _MOST_WHOLE = 2**29, 2**25  # bytes of parts of Excel that are read row by row, and whole
_CONTENT = "[Content_Types].xml"
_MOST_CELLS, _MOST_ROWS = 2**25, 2**20  # of Excel
_FEWER = "remove empty rows and columns, or save it as CSV"


def read_typed(path: Any, raw: bytes, kind: str, encoding: str | None = None) -> CsvColumns:
    """The columns in the bytes of a file of ``.xlsx`` or a kind of ``TYPED``; categorical ones keep their levels."""
    try:
        return _excel(path, raw) if kind == ".xlsx" else _cells(path, *TYPED[kind](path, raw, encoding))
    except HoimError:
        raise
    except ImportError:
        # What is missing is an extra of this package.
        package = _PACKAGES.get(kind, "pyarrow")
        hint = f"pip install 'pyro-hoim[{_EXTRAS.get(package, 'files')}]'"
        raise refused(path, f"a {kind} file needs {package}", hint, code="no-method") from None
    except NotImplementedError as error:  # also of Arrow
        problem = f"holds what its reader does not know ({' '.join(str(error).split())[:80]})"
        raise refused(path, problem, "save these columns as text or numbers", code="wrong-type") from None
    except Exception as error:  # noqa: BLE001 (a damaged file raises what its reader raises)
        if isinstance(error, TypeError) and b"pandas.interval" in raw:
            problem = "holds categories that are intervals, which pandas writes to Feather and nothing reads there"
            raise refused(path, problem, "save them as text, such as frame[name].astype(str)", "wrong-type") from None
        if "encoding" in str(error):  # of pyreadstat
            hint = "give its encoding, such as encoding='cp1252'"
            raise refused(path, "holds texts that are not in the encoding it says", hint, "wrong-encoding") from None
        problem = f"damaged {kind} file ({' '.join(str(error).split())[:80]})"
        raise refused(path, problem, "save it again, or as CSV", code="damaged-file") from None


def _cells(
    path: Any, columns_read: Mapping[str, Any], categorical: Collection[str], notes: Sequence[str] = ()
) -> CsvColumns:
    num_rows = max(map(len, columns_read.values()), default=0)
    if not num_rows:
        raise unexpected(path, "columns and rows", received=f"{len(columns_read)} and {num_rows}", code="empty")
    columns: list[Sequence[str]] = []
    levels: dict[str, pd.CategoricalDtype] = {}
    # Cells become text by their distinct values; types that say levels keep them.
    for name, column in columns_read.items():
        where = f"{path} column {name!r}"
        codes, distinct, dtype = factorise(column, where)
        labels = labels_of_values(where, distinct)
        columns.append(_LongColumn.of_codes([*labels, ""], codes))
        if dtype is not None and name in categorical:
            check_unique(labels, f"{where} categories")
            levels[name] = pd.CategoricalDtype(labels, dtype.ordered)
    return CsvColumns(str(path), (*columns_read,), tuple(columns), range(1, num_rows + 1), tuple(notes), levels, "row")


def _parquet(path: Any, raw: bytes, _: str | None) -> Typed:
    from pyarrow import parquet

    pa = arrow_library()
    file = parquet.ParquetFile(pa.BufferReader(raw))
    size = file.metadata
    fields = _flat_fields(path, file.schema_arrow)
    texts = fields[-1]  # mostly codes in the file, and kept so
    groups = [size.row_group(i) for i in range(size.num_row_groups)]
    check_cells(path, max(size.num_rows, sum(group.num_rows for group in groups)), size.num_columns)
    check_bytes(path, sum(max(0, group.total_byte_size) for group in groups))
    return _rows(parquet.ParquetFile(pa.BufferReader(raw), read_dictionary=coded_texts(texts, size)).read(), *fields)


def _arrow(path: Any, raw: bytes, _: str | None) -> Typed:
    """A file or a stream of Arrow, decoded batch by batch up to the limits; Feather of version 2 is such a file."""
    pa = arrow_library()
    if raw.startswith(b"FEA1"):
        raise refused(path, "a Feather file of version 1", "save it again, or as Parquet", code="file-version")
    if raw.startswith(b"ARROW1"):
        reader = pa.ipc.open_file(pa.BufferReader(raw))
        check_cells(path, reader.count_rows(), len(reader.schema))
        batches: Iterable[Any] = map(reader.get_batch, range(reader.num_record_batches))
    else:
        batches = reader = pa.ipc.open_stream(pa.BufferReader(raw))
    # Batches share buffers and dictionaries, each of which is counted once.
    fields, parts = _flat_fields(path, reader.schema), list[Any]()
    rows, sizes = 0, dict[int, int]()
    for batch in batches:
        rows += batch.num_rows
        check_cells(path, rows, len(reader.schema))
        for column in batch.columns:
            parted = column.dictionary.buffers() if pa.types.is_dictionary(column.type) else ()
            sizes |= {buffer.address: buffer.size for buffer in (*column.buffers(), *parted) if buffer is not None}
        check_bytes(path, sum(sizes.values()))
        batch.validate(full=True)  # pandas follows wrong offsets and codes out of its memory
        parts.append(batch)
    return _rows(pa.Table.from_batches(parts, reader.schema), *fields)


def _rows(table: Any, fields: Mapping[str, str], categorical: frozenset[str], _: Any) -> Typed:
    return {name: table.column(field) for name, field in fields.items()}, categorical, ()


def _flat_fields(path: Any, schema: Any) -> tuple[Mapping[str, str], frozenset[str], Sequence[str]]:
    """Fields of a table, refused where cells hold several values, of which a few bytes may say billions."""
    pa = arrow_library()
    for column in schema:
        kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        if getattr(kind, "extension_name", "") == "pandas.interval":  # two numbers, which are one label
            continue
        kind = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
        if pa.types.is_nested(kind) or pa.types.is_run_end_encoded(kind):
            raise not_plain(f"{path} column {column.name!r}")
    return fields_of(path, schema)


def _excel(path: Any, raw: bytes) -> CsvColumns:
    """The first sheet of a workbook that holds anything, without empty rows and columns.

    A cell without a value, or with an error, is empty.
    """
    from openpyxl import load_workbook

    # The first sheet that holds anything; others are only counted, so that the note can say so.
    # Refuse a workbook whose parts are too large, or not as long as they say. Sheets are read row by row; all
    # other parts of XML are read whole, also under the names that openpyxl reports.
    from openpyxl.reader.excel import ExcelReader

    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        check_ratio(path, sum(part.file_size for part in archive.infolist()), len(raw))
        check_bytes(f"{path} {_CONTENT}", archive.getinfo(_CONTENT).file_size, _MOST_WHOLE)
        reader: Any = ExcelReader(io.BytesIO(raw), read_only=True)
        reader.read_manifest()
        names = {True: set[str](), False: set[str]()}
        for one in reader.package.Override:
            names[one.ContentType.endswith("worksheet+xml")].add(one.PartName.lstrip("/"))
        for part in archive.infolist():
            is_sheet = part.filename in names[True] - names[False]
            is_read = part.filename in names[False] or part.filename.endswith((".xml", ".rels"))
            most = _MOST_WHOLE if is_read and not is_sheet else _MOST_SHEET
            check_bytes(f"{path} {part.filename}", part.file_size, most)
            if part.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise ValueError(f"{part.filename} is packed as Excel does not")
        if (damaged := archive.testzip()) is not None:  # piece by piece, up to the length that a part says
            raise ValueError(f"{damaged} is not as long as it says")
    book = load_workbook(io.BytesIO(raw), read_only=True, data_only=True, keep_links=False)
    name, rows, lines, others, cells = "", list[list[Any]](), list[int](), 0, 0
    for sheet in book.worksheets:
        sheet.reset_dimensions()  # what a sheet says of its size may be wrong
        for line, row in enumerate(sheet.rows, start=1):
            cells += len(row)  # also those that only fill a row up to its last one
            budgets.check_size(line, _MOST_ROWS, "rows", path, _FEWER, "holds")
            budgets.check_size(cells, _MOST_CELLS, "cells", path, _FEWER, "holds")
            values = [None if cell.data_type == "e" or cell.value == "" else cell.value for cell in row]
            while values and values[-1] is None:
                values.pop()
            if values and rows and sheet.title != name:
                others += 1
                break
            if values:
                name = sheet.title
                rows.append(values)
                lines.append(line)
    if not rows:
        raise unexpected(path, "a header and rows", received="empty sheets", code="empty")
    # Without empty columns; the first row is the header.
    filled = (column for column in zip_longest(*rows) if any(value is not None for value in column))
    labels = [labels_of_values(path, column, strip=True) for column in filled]
    header, columns = tuple(column[0] for column in labels), tuple(tuple(column[1:]) for column in labels)
    check_header(path, header, zip(*columns, strict=True))
    notes = (f"read the sheet {name!r}, the first of {others + 1}",) if others else ()
    return CsvColumns(str(path), header, columns, tuple(lines[1:]), notes, unit="row")


def _r(path: Any, raw: bytes, encoding: str | None) -> Typed:
    return r_file(path, unpacked(path, raw), encoding)


def _arff(path: Any, raw: bytes, encoding: str | None) -> Typed:
    name, _ = found_encoding(path, lambda: io.BytesIO(raw), encoding)
    return arff_file(path, raw.decode(name))


TYPED: dict[str, Callable[[Any, bytes, str | None], Typed]] = {
    **dict.fromkeys((".parquet", ".pq"), _parquet),
    **dict.fromkeys((".feather", ".arrow", ".arrows", ".ipc"), _arrow),
    **dict.fromkeys((".rds", ".rda", ".rdata"), _r),
    ".arff": _arff,
    **SURVEYS,
}
"""Readers by the ends of names of files."""
_PACKAGES = {
    ".xlsx": "openpyxl",
    ".arff": "liac-arff",
    **dict.fromkeys((".rds", ".rda", ".rdata"), "rdata"),
    **dict.fromkeys(SURVEYS, "pyreadstat"),
}
_EXTRAS = {"openpyxl": "excel", "pyarrow": "parquet"}


_OTHERS = {
    **dict.fromkeys((".json", ".jsonl", ".ndjson"), "JSON"),
    **dict.fromkeys((".npz", ".npy"), "a NumPy file"),
    ".sas7bcat": "a catalogue of SAS formats, which holds no rows",
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
    b"$FL2": ".sav",
    b"$FL3": ".zsav",
    b"<stata_dta>": ".dta",
    b"HEADER RECORD*******LIB": ".xpt",
    _OLD_EXCEL: ".xls",
}


_HEAD = 2**16  # bytes that tell ARFF from other text
_CHUNK = 2**13  # cells that are moved at a time: twice as fast as 2^16, which leave the cache of a processor
_MOST_KNOWN = 2**16  # different cells that are remembered
_POINTER, _TEXT = 8, 64  # bytes of a place for a cell, and of a short text


def is_text_name(path: str | os.PathLike[str]) -> bool:
    """Whether a file of that name is read as text."""
    return Path(path).suffix.lower() not in (*_OTHERS, *TYPED, ".xlsx", ".xlsm")


def read_table_file(path: str | os.PathLike[str], *, sep: str | None = None, encoding: str | None = None) -> CsvColumns:
    r"""Columns of a table in a file; InputError names the line of what is wrong in it.

    Text may be packed (gzip, bzip2, xz, zip with one file, zstd, lz4). Its delimiter is the one that divides header and
    rows alike: comma, semicolon, tab, bar or blanks, also named by Excel's line ``sep=;``. Its encoding is that of a
    byte-order mark, else UTF-8, else Windows-1252. Decimal commas become points where commas do not divide cells.
    Comment lines above the header (``#``), row numbers under no name and empty last columns are left out. What differs
    from comma and UTF-8 is said in ``notes``.

    Args:
        path: the file. By its name Parquet or Arrow, such as Feather (extra ``parquet``), Excel (extra ``excel``, its
            first sheet that holds anything), SPSS, SAS, R or ARFF (extra ``files``), or Stata; else text.
        sep: the character between cells, or ``tab``; None finds it.
        encoding: of the text, a name that Python knows; None finds it, or takes what the file says.

    Raises:
        InputError: no table, or one with a fault: the line and what to do are named.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = Path(folder, "trips.csv").write_text("to;hours\nOslo;7,5\nRome;3,0\n")
        ...     table = read_table_file(Path(folder, "trips.csv"))
        >>> table.header, table.notes
        (('to', 'hours'), ("read as ';'-separated", "decimal commas in 'hours' read as points"))
    """
    # What the file is by its first bytes, else by its name.
    raw = not_empty(path, read_file(path, "a CSV file"))
    kind = next((suffix for mark, suffix in _SIGNATURES.items() if raw.startswith(mark)), Path(path).suffix.lower())
    if kind in _OTHERS and (kind != ".xls" or raw.startswith(_OLD_EXCEL)):  # many programs call other tables so
        hint = "save it as CSV (UTF-8), .xlsx or .parquet"
        raise unexpected(path, "a table", received=_OTHERS[kind], hint=hint, code="damaged-file")
    if kind in TYPED:
        return read_typed(path, raw, kind, encoding)
    if is_excel(raw):
        return _of_rows(read_typed(path, raw, ".xlsx"), False)
    # Text: its format first, then all cells.
    raw = unpacked(path, raw)
    if is_arff(raw[:_HEAD].decode("latin-1").removeprefix("\xef\xbb\xbf")):
        return read_typed(path, raw, ".arff", encoding)
    form = text_format(path, lambda: io.BytesIO(raw), sep, encoding)
    columns, lines = _columns(path, form.rows(path, io.BytesIO(raw)), len(form.header))
    if form.is_safe:
        columns = tuple(tuple(map(restored, column)) for column in columns)
    return _of_rows(CsvColumns(str(path), form.header, columns, lines, form.notes), form.delimiter != ",")


def _columns(
    path: Any, rows: Iterator[tuple[int, list[str]]], width: int
) -> tuple[tuple[Sequence[str], ...], tuple[int, ...]]:
    """Columns of cells without blanks around them, and lines of the rows.

    Cells of one text are one object, as far as they are remembered.
    """
    # Rows are turned into columns in portions that stay in the cache of the processor.
    columns, lines = [_LongColumn() for _ in range(width)], list[int]()
    known, size = dict[str, str](), 0
    while part := [*islice(rows, max(1, _CHUNK // width))]:
        ends, cells = zip(*part, strict=True)
        lines.extend(ends)
        before = len(known)
        for column, new in zip(columns, zip(*cells, strict=True), strict=True):
            stripped = [*map(str.strip, new)]
            column.extend(map(known.setdefault, stripped, stripped))
        size += _POINTER * len(part) * (width + 5) + _TEXT * (len(known) - before)
        what = f"its first {len(lines):,} rows of {width:,} columns need"
        check_size(size, _POINTER * MOST_CELLS * 4, "bytes of memory", path, FEWER, what)
        if len(known) > _MOST_KNOWN:
            known = {}
    return tuple(column.closed() for column in columns), tuple(lines)


def _of_rows(read: CsvColumns, has_commas: bool) -> CsvColumns:
    """The columns that have a name, without row names; the names are checked, and decimal commas become points."""
    path, cells = read.path, read.columns
    if not read.lines:
        raise unexpected(path, "rows below the header", received="the header only", code="empty")
    # Which columns have a name, and which of them have decimal commas.
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
