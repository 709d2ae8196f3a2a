"""Rows of Excel workbooks, whose parts are measured before one of them is read as XML."""

from __future__ import annotations

import io
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator
from typing import Any

from ...errors import HoimError, out_of_reach, refused
from .source_file import check_ratio, check_size

__all__ = ["read_sheet"]

_MOST_SHEET, _MOST_WHOLE, _MOST_BOOK = 2**29, 2**25, 2**22  # bytes of parts that are read row by row, whole, and first
_CONTENT = "[Content_Types].xml"
_WHOLE = {"xl/sharedStrings.xml", "xl/styles.xml", "xl/theme/theme1.xml", "docProps/core.xml", "docProps/custom.xml"}
_MOST_CELLS, _MOST_ROWS = 2**25, 2**20
_PIECE = 2**14


def read_sheet(path: Any, raw: bytes) -> tuple[str, list[list[Any]], tuple[int, ...], int]:
    """Name, rows of values and their numbers of the first sheet that holds anything, and how many others do.

    Empty rows are left out; a cell without a value, or with an error, is None, and rows end with their last value.

    Raises:
        InputError: a damaged workbook, or openpyxl is not installed.
        IntractableError: parts or cells beyond what is read.
    """
    try:
        from openpyxl import load_workbook
    except ImportError:
        hint = "pip install 'pyro-hoim[excel]'"
        raise refused(path, "an Excel file needs openpyxl", hint, code="no-method") from None
    try:
        _check_parts(path, raw)
        book = load_workbook(io.BytesIO(raw), read_only=True, data_only=True, keep_links=False)
        budget = _Budget(path)
        name, found, lines, others = "", list[list[Any]](), list[int](), 0
        for sheet in book.worksheets:
            sheet.reset_dimensions()  # what a sheet says of its size may be wrong
            for line, row in _rows(sheet, budget):
                if found and sheet.title != name:
                    others += 1
                    break
                name = sheet.title
                found.append(row)
                lines.append(line)
    except HoimError:
        raise
    except Exception as error:  # noqa: BLE001 (a damaged workbook raises what its parts raise)
        problem = f"damaged Excel file ({' '.join(str(error).split())})"
        raise refused(path, problem, "save it again, or as CSV", code="damaged-file") from None
    return name, found, tuple(lines), others


class _Budget:
    """Cells that were seen, also those that only fill a row up to its last one."""

    def __init__(self, path: Any) -> None:
        self.path, self.cells = path, 0

    def add(self, line: int, cells: int) -> None:
        """Count a row; IntractableError where it is too much."""
        self.cells += cells
        if self.cells > _MOST_CELLS or line > _MOST_ROWS:
            problem = f"its first {line} rows hold {self.cells} cells, more than {_MOST_CELLS} or {_MOST_ROWS} rows"
            raise out_of_reach(self.path, problem, "remove empty rows and columns, or save it as CSV")


def _rows(sheet: Any, budget: _Budget) -> Iterator[tuple[int, list[Any]]]:
    """Numbers and values of the rows that hold anything."""
    for line, cells in enumerate(sheet.rows, start=1):
        budget.add(line, len(cells))
        row = [None if cell.data_type == "e" or cell.value == "" else cell.value for cell in cells]
        while row and row[-1] is None:
            row.pop()
        if row:
            yield line, row


def _check_parts(path: Any, raw: bytes) -> None:
    """Refuse a workbook whose parts are too large, or not as long as they say."""
    with zipfile.ZipFile(io.BytesIO(raw)) as held:
        parts = {part.filename: part for part in held.infolist()}
        for part in parts.values():
            _check_part(path, raw, part, _MOST_SHEET)
        check_ratio(path, sum(part.file_size for part in parts.values()), len(raw))
        check_size(f"{path} {_CONTENT}", parts[_CONTENT].file_size, _MOST_BOOK)
        kinds = re.findall(rb"<[^>]*>", held.read(_CONTENT))
    for part in parts.values():
        told = [kind for kind in kinds if part.filename.encode() in kind]
        if any(b"main+xml" in kind for kind in told):
            check_size(f"{path} {part.filename}", part.file_size, _MOST_BOOK)
        elif part.filename in _WHOLE or any(b"sharedStrings" in kind for kind in told):
            check_size(f"{path} {part.filename}", part.file_size, _MOST_WHOLE)


def _check_part(path: Any, raw: bytes, part: zipfile.ZipInfo, most: int) -> None:
    check_size(f"{path} {part.filename}", part.file_size, most)
    if part.flag_bits & 1 or part.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"{part.filename} is encrypted, or packed as Excel does not")
    if _true_size(raw, part) != part.file_size:
        raise ValueError(f"{part.filename} is not as long as it says")


def _true_size(raw: bytes, part: zipfile.ZipInfo) -> int:
    """Bytes of a part once it is unpacked, up to one more than it says."""
    start = part.header_offset + 30 + sum(struct.unpack_from("<HH", raw, part.header_offset + 26))
    stop = start + part.compress_size
    if part.compress_type == zipfile.ZIP_STORED:
        return part.compress_size
    stream, size = zlib.decompressobj(-zlib.MAX_WBITS), 0
    for place in range(start, stop, _PIECE):
        packed = raw[place : min(stop, place + _PIECE)]
        while packed and size <= part.file_size:
            size += len(stream.decompress(packed, 64 * _PIECE))
            packed = stream.unconsumed_tail
    return size
