"""Reading a CSV file into columns of text, with every fault found before anything is computed."""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ..errors import check_unique, refused, unexpected
from .files.source_file import MOST_BYTES, read_file

__all__ = ["CsvColumns", "check_header", "parse_csv", "read_bytes", "read_csv", "read_text"]

_INK = re.compile(rb"\S")
_MOST_TEXT = 2**28  # bytes of a text that is read as a whole


@dataclass(frozen=True)
class CsvColumns:
    """Columns of a table in a file.

    Attributes:
        path: of the file.
        header: column names.
        columns: cells of each column as text.
        lines: the last line of each row, or its number in the table.
        notes: sentences on how the file was read, where that is not as it stands there.
        categories: categorical types of columns whose levels the file names.
        unit: ``line``, or ``row`` where lines have no meaning.
    """

    path: str
    header: tuple[str, ...]
    columns: tuple[Sequence[str], ...]
    lines: tuple[int, ...]
    notes: tuple[str, ...] = ()
    categories: Mapping[str, Any] = field(default_factory=dict[str, Any])
    unit: str = "line"

    @property
    def note(self) -> tuple[str, ...]:
        """The notes as one sentence; nothing where there are none."""
        return (f"{self.path}: {'; '.join(self.notes)}",) if self.notes else ()

    def where(self, row: int) -> str:
        """Words for the position of a row in the file."""
        return f"{self.path} {self.unit} {self.lines[row]}"

    def column(self, name: str) -> Sequence[str]:
        """Cells of one column."""
        return self.columns[self.header.index(name)]


def read_bytes(path: str | os.PathLike[str], expected: str = "a CSV file", most: int = MOST_BYTES) -> bytes:
    """Content of a file that is not empty; see :func:`read_file`."""
    raw = read_file(path, expected, most)
    if not _INK.search(raw):
        wanted = "a header and rows" if expected == "a CSV file" else expected
        raise unexpected(path, wanted, received="an empty file", code="empty")
    return raw


def read_text(path: str | os.PathLike[str], expected: str = "a CSV file") -> str:
    """Text of a UTF-8 file, with or without a byte-order mark; ``expected`` says in messages what it should be."""
    raw = read_bytes(path, expected, _MOST_TEXT)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        problem = f"not UTF-8 (byte 0x{raw[error.start]:02x})"
        raise refused(f"{path} line {line}", problem, "save the file as UTF-8", code="damaged-file") from None
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        hint = f"this is not {expected}"
        raise unexpected(f"{path} line {line}", "text", hint=hint, received="a zero byte", code="damaged-file")
    return text


def read_csv(path: str | os.PathLike[str], *, delimiter: str = ",") -> CsvColumns:
    """Columns of a UTF-8 CSV file with one header line; InputError names the line of what is wrong in it.

    Blanks around a cell are removed and lines without any character are skipped; cells may be quoted with ``"``.
    """
    judge = partial(check_header, path, delimiter=delimiter)
    header, rows, lines = parse_csv(path, read_text(path), delimiter, judge)
    if not rows:
        raise unexpected(path, "rows below the header", received="the header only", code="empty")
    columns = tuple(tuple(map(str.strip, column)) for column in zip(*rows, strict=True))
    return CsvColumns(str(path), header, columns, lines)


def parse_csv(
    path: str | os.PathLike[str],
    text: str,
    delimiter: str,
    judge: Callable[[tuple[str, ...]], None] | None = None,
    *,
    first_line: int = 1,
    spare: int = 0,
) -> tuple[tuple[str, ...], list[list[str]], tuple[int, ...]]:
    """Header, rows and their lines of a text; InputError for a row that is wider or narrower than the header.

    All rows are wider than the header by ``spare`` cells; ``first_line`` is the number of the first line, and ``judge``
    refuses headers before anything below is looked at.
    """
    stream = io.StringIO(text, newline="")
    reader = csv.reader(stream, delimiter=delimiter, strict=True, skipinitialspace=delimiter == " ")
    header: tuple[str, ...] = ()
    rows: list[list[str]] = []
    lines: list[int] = []
    width = 0
    try:
        for cells in reader:
            if not cells:
                continue
            if not header:
                header = tuple(cell.strip() for cell in cells)
                if judge is not None:
                    judge(header)
                width = len(header) + spare
                continue
            if len(cells) != width:
                expected = f"{width} cells as in the {'rows above' if spare else 'header'}"
                place = f"{path} line {reader.line_num + first_line - 1}"
                raise unexpected(place, expected, received=len(cells), code="wrong-shape")
            rows.append(cells)
            lines.append(reader.line_num + first_line - 1)
    except csv.Error as error:
        place = f"{path} line {reader.line_num + first_line - 1}"
        raise refused(place, f"not readable as CSV ({error})", code="damaged-file") from None
    return header, rows, tuple(lines)


def check_header(path: str | os.PathLike[str], header: tuple[str, ...], delimiter: str) -> None:
    """Raise :class:`InputError` for an unnamed or repeated column, or a header cut by another delimiter."""
    for position, name in enumerate(header, start=1):
        if not name:
            found = f"none for column {position}"
            raise unexpected(path, "a name for every column", received=found, code="missing-part")
    check_unique(header, f"{path} header")
    if len(header) == 1:
        for other in (";", "\t", ",", "|"):
            if other != delimiter and other in header[0]:
                problem = f"expected cells separated by {delimiter!r}, but the header has one cell and holds {other!r}"
                raise refused(path, problem, f"pass delimiter={other!r} or convert the file", code="wrong-delimiter")
