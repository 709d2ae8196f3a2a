"""Reading a CSV file into columns of text, with every fault found before anything is computed."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import islice
from typing import Any, TextIO

from ..budgets import check_size
from ..errors import out_of_reach, refused, unexpected
from .files.source_file import FEWER, MOST_CELLS

__all__ = ["CsvColumns", "comma_note", "csv_rows", "parse_csv"]

_MOST_LINE = 2**24  # characters
_CHUNK = 2**13  # cells that are moved at a time: twice as fast as 2^16, which leave the cache of a processor
_MOST_KNOWN = 2**16  # different cells that are remembered
_POINTER, _TEXT = 8, 64  # bytes of a place for a cell, and of a short text


@dataclass(frozen=True)
class CsvColumns:
    """Columns of a table in a file."""

    path: str  # of the file
    header: tuple[str, ...]  # column names
    columns: tuple[Sequence[str], ...]  # cells of each column as text
    lines: Sequence[int]  # the last line of each row, or its number in the table
    notes: tuple[str, ...] = ()  # sentences on how the file was read, where that is not as it stands there
    # categorical types of columns whose levels the file names
    categories: Mapping[str, Any] = field(default_factory=dict[str, Any])
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


def comma_note(names: Sequence[str]) -> list[str]:
    """What is said of columns with decimal commas."""
    return [f"decimal commas in {', '.join(map(repr, names[:6]))} read as points"] if names else []


def parse_csv(
    path: Any, stream: TextIO, delimiter: str, *, first_line: int = 1, spare: int = 0
) -> tuple[tuple[tuple[str, ...], ...], tuple[int, ...]]:
    """Columns of cells without blanks around them, and lines of the rows below the header of a text.

    Arguments as of :func:`csv_rows`. Cells of the same text are one object, as far as they are remembered.

    Raises:
        InputError: a row that is wider or narrower than the header, or what is no CSV.
        IntractableError: the cells would need more memory than a table may.
    """
    lines: list[int] = []
    found = csv_rows(path, stream, delimiter, first_line, spare, lines)
    width = len(next(found)) + spare
    columns: list[list[str]] = [[] for _ in range(width)]
    known, held = dict[str, str](), 0
    while rows := [*islice(found, max(1, _CHUNK // width))]:
        before = len(known)
        for column, new in zip(columns, zip(*rows, strict=True), strict=True):
            stripped = [*map(str.strip, new)]
            column.extend(map(known.setdefault, stripped, stripped))
        held += _POINTER * len(rows) * (width + 5) + _TEXT * (len(known) - before)
        what = f"its first {len(columns[0]):,} rows of {width:,} columns need"
        check_size(held, _POINTER * MOST_CELLS * 4, "bytes of memory", path, FEWER, what)
        if len(known) > _MOST_KNOWN:
            known = {}
    return tuple(map(tuple, columns)), tuple(lines[1:])


def csv_rows(
    path: Any,
    stream: TextIO,
    delimiter: str,
    first_line: int,
    spare: int | None = None,
    ends: list[int] | None = None,
) -> Iterator[list[str]]:
    """Header and rows of a text whose first line has a number; empty ones are skipped.

    All rows are wider than the header by ``spare`` cells, where it is given; ``ends`` gets the line that each ends in.
    """
    lines = bounded_lines(path, stream, first_line)
    reader = csv.reader(lines, delimiter=delimiter, strict=True, skipinitialspace=delimiter == " ")
    width = 0
    try:
        for row in filter(None, reader):
            if width and len(row) != width:
                expected = f"{width} cells as in the {'rows above' if spare else 'header'}"
                place = f"{path} line {reader.line_num + first_line - 1}"
                raise unexpected(place, expected, received=len(row), code="wrong-shape")
            if ends is not None:
                ends.append(reader.line_num + first_line - 1)
            yield row
            width = width or (0 if spare is None else len(row) + spare)
    except csv.Error as error:
        place = f"{path} line {reader.line_num + first_line - 1}"
        raise refused(place, f"not readable as CSV ({error})", code="damaged-file") from None


def bounded_lines(path: Any, stream: TextIO, first_line: int) -> Iterator[str]:
    """Lines of a text, which are not endless."""
    for number, line in enumerate(iter(partial(stream.readline, _MOST_LINE + 1), ""), first_line):
        if len(line) > _MOST_LINE:
            problem = f"a line of more than {_MOST_LINE} characters"
            raise out_of_reach(f"{path} line {number}", problem, "end the rows with line ends")
        yield line
