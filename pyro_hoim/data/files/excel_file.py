"""Rows of Excel workbooks, whose parts are measured before one of them is read as XML."""

from __future__ import annotations

import io
import zipfile
from typing import Any

from ... import budgets
from ...errors import HoimError, refused
from .source_file import check_ratio, check_size

__all__ = ["read_sheet"]

_MOST_SHEET, _MOST_WHOLE = 2**29, 2**25  # bytes of parts that are read row by row, and whole
_CONTENT = "[Content_Types].xml"
_MOST_CELLS, _MOST_ROWS = 2**25, 2**20
_FEWER = "remove empty rows and columns, or save it as CSV"


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
        name, found, lines, others, cells = "", list[list[Any]](), list[int](), 0, 0
        for sheet in book.worksheets:
            sheet.reset_dimensions()  # what a sheet says of its size may be wrong
            for line, row in enumerate(sheet.rows, start=1):
                cells += len(row)  # also those that only fill a row up to its last one
                budgets.check_size(line, _MOST_ROWS, "rows", path, _FEWER, "holds")
                budgets.check_size(cells, _MOST_CELLS, "cells", path, _FEWER, "holds")
                values = [None if cell.data_type == "e" or cell.value == "" else cell.value for cell in row]
                while values and values[-1] is None:
                    values.pop()
                if values and found and sheet.title != name:
                    others += 1
                    break
                if values:
                    name = sheet.title
                    found.append(values)
                    lines.append(line)
    except HoimError:
        raise
    except Exception as error:  # noqa: BLE001 (a damaged workbook raises what its parts raise)
        problem = f"damaged Excel file ({' '.join(str(error).split())})"
        raise refused(path, problem, "save it again, or as CSV", code="damaged-file") from None
    return name, found, tuple(lines), others


def _check_parts(path: Any, raw: bytes) -> None:
    """Refuse a workbook whose parts are too large, or not as long as they say.

    Sheets are read row by row; all other parts of XML are read whole, also under the names that openpyxl reports.
    """
    from openpyxl.reader.excel import ExcelReader

    with zipfile.ZipFile(io.BytesIO(raw)) as held:
        check_ratio(path, sum(part.file_size for part in held.infolist()), len(raw))
        check_size(f"{path} {_CONTENT}", held.getinfo(_CONTENT).file_size, _MOST_WHOLE)
        reader: Any = ExcelReader(io.BytesIO(raw), read_only=True)
        reader.read_manifest()
        told = {True: set[str](), False: set[str]()}
        for one in reader.package.Override:
            told[one.ContentType.endswith("worksheet+xml")].add(one.PartName.lstrip("/"))
        for part in held.infolist():
            is_sheet = part.filename in told[True] - told[False]
            is_read = part.filename in told[False] or part.filename.endswith((".xml", ".rels"))
            most = _MOST_WHOLE if is_read and not is_sheet else _MOST_SHEET
            check_size(f"{path} {part.filename}", part.file_size, most)
            if part.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise ValueError(f"{part.filename} is packed as Excel does not")
        if (damaged := held.testzip()) is not None:  # piece by piece, up to the length that a part says
            raise ValueError(f"{damaged} is not as long as it says")
