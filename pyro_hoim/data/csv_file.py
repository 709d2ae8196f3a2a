"""Columns of text that were read from a file, and the words for their places in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

__all__ = ["CsvColumns", "comma_note"]


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


def comma_note(names: Sequence[str]) -> list[str]:
    """What is said of columns with decimal commas."""
    return [f"decimal commas in {', '.join(map(repr, names[:6]))} read as points"] if names else []
