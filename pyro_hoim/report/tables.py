"""Tables of a page as CSV: every row and column, numbers at full precision, as a program reads them."""

import csv
import io

from ..core.page import Block, Cell
from ..data.files.safe_cells import safe_rows


def csv_text(block: Block, safe: bool = False) -> tuple[str, list[str]]:
    """The rows of a table with a header, and its cells that a spreadsheet would run, where they are not made safe.

    Errors told beside a value have columns of their own, with ``SE`` behind.
    """
    has_error = [any(row[i].error is not None for row in block.rows) for i in range(len(block.columns))]
    names = zip(block.columns, has_error, strict=True)
    rows = [[field for name, also in names for field in ([name, f"{name} SE"] if also else [name])]]
    for row in block.rows:
        cells = zip(row, has_error, strict=True)
        rows.append([field for cell, also in cells for field in _fields(cell, also)])
    head, written, found = safe_rows(rows, safe)
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows(written)
    return head + buffer.getvalue(), found


def _fields(cell: Cell, has_error: bool) -> list[str]:
    return [_written(cell.value), _written(cell.error)] if has_error else [_written(cell.value)]


def _written(value: str | float | None) -> str:
    """Text as it is, a number as Python reads it back, nothing for nothing and for NaN."""
    if value is None or value != value:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, str) else repr(float(value) if not isinstance(value, int) else value)
