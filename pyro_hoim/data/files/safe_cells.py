"""Cells of CSV files that a spreadsheet would run as formulas: told, made safe by an apostrophe, and read back."""

import re
import warnings
from collections.abc import Sequence

import numpy as np
import pandas as pd

from ...errors import DataWarning, caller_level

MARK = "# pyro-hoim safe-csv: an apostrophe stands before cells that a spreadsheet would run"
"""First line of a file with cells that were made safe; without it no reader removes an apostrophe."""

_FIRST = "=+-@\t\r\uff1d\uff0b\uff0d\uff20"
_NUMBER = re.compile(r"[-+]?(?:\d+(?:[.,]\d*)?|[.,]\d+)(?:[eE][-+]?\d+)?|[-+](?:inf)?")


def _may_run(cell: str) -> bool:
    """Whether a spreadsheet would run a cell, or one without the apostrophes before it."""
    core = cell.lstrip("'")
    return core != "" and core[0] in _FIRST and _NUMBER.fullmatch(core) is None


def as_written(cell: str) -> str:
    """A cell with an apostrophe before it if a spreadsheet might run it, also without the apostrophes that it has.

    The latter get one more, so that no two cells are written alike and :func:`restored` finds them again.
    """
    return f"'{cell}" if _may_run(cell) else cell


def restored(cell: str) -> str:
    """The cell that :func:`as_written` wrote so."""
    return cell[1:] if cell.startswith("'") and _may_run(cell) else cell


def safe_rows(rows: Sequence[Sequence[str]], safe: bool) -> tuple[str, Sequence[Sequence[str]], list[str]]:
    """What stands above a table (the mark, or nothing), its rows of text, made safe where asked, and its formulas."""
    risky = [cell for row in rows for cell in row if _may_run(cell)]
    if safe:
        return (f"{MARK}\n" if risky else ""), [[as_written(cell) for cell in row] for row in rows], []
    return "", rows, [cell for cell in risky if not cell.startswith("'")]


def safe_frame(frame: pd.DataFrame, safe: bool) -> tuple[str, pd.DataFrame, list[str]]:
    """As :func:`safe_rows`, of a data frame and the names of its columns."""
    names = [str(name) for name in frame.columns]
    risky, made = [*filter(_may_run, names)], frame.copy() if safe else frame
    for i in range(len(names)):
        column = frame.iloc[:, i]
        if pd.api.types.is_numeric_dtype(column) or pd.api.types.is_datetime64_any_dtype(column):
            continue
        # Only distinct cells are looked at; numbers and dates run nothing.
        codes, distinct = pd.factorize(column)
        cells = [str(cell) for cell in distinct]
        times = np.bincount(codes[codes >= 0], minlength=len(cells)).tolist()
        risky_cells = [cell for cell, number in zip(cells, times, strict=True) for _ in range(number) if _may_run(cell)]
        risky += risky_cells
        if safe and risky_cells:
            # Missing cells have code -1, the last entry.
            written = np.array([*map(as_written, cells), None], dtype=object)
            made.isetitem(i, pd.Series(written[codes], index=frame.index))
    if safe:
        made.columns = [as_written(name) for name in names]
    head, _, formulas = safe_rows([risky], safe)
    return head, made, formulas


def warn_of_formulas(found: Sequence[str], hint: str) -> None:
    """Warn of cells that a spreadsheet would run; ``hint`` is how they are made safe."""
    if found:
        noun = "cell" if len(found) == 1 else "cells"
        problem = f"a spreadsheet would run {len(found)} {noun} of the CSV written, such as {found[0][:40]!r}"
        warnings.warn(DataWarning(f"{problem}; {hint} makes them safe"), stacklevel=caller_level())
