"""A page on what a fit has found: sections of text, tables and figures, for a browser and for a terminal alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from .words import BASELINE, against_majority, number, short_edge, shorten

__all__ = ["CELL_WIDTH", "Block", "Hint", "Page", "Section", "edge_cell"]

CELL_WIDTH = 56
"""Characters of a cell that holds names."""


@dataclass(frozen=True)
class Hint:
    """A cell whose text is shortened; the page shows the full text when the pointer rests on it."""

    shown: str
    full: str


@dataclass(frozen=True)
class Block:
    """One element of a section; ``kind`` says which fields count.

    Attributes:
        kind: what it is.
        text: of a paragraph or heading, description of a figure.
        drawing: a :class:`matplotlib.figure.Figure`.
        dpi: dots of it per inch.
        columns: of a table.
        rows: of a table.
        chosen: row that is marked, -1 for none.
        folded: label that a table is hidden behind, empty to show it.
        brief: rows of a table that a terminal shows, of a text or heading whether it does.
    """

    kind: Literal["text", "note", "heading", "figure", "table"]
    text: str = ""
    drawing: Any = None
    dpi: int = 120
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str | Hint, ...], ...] = ()
    chosen: int = -1
    folded: str = ""
    brief: int = 0


@dataclass(frozen=True)
class Section:
    """A titled section of a page; its methods append elements."""

    title: str
    blocks: list[Block] = field(default_factory=list[Block])

    def text(self, words: str) -> None:
        """A paragraph."""
        self.blocks.append(Block("text", words))

    def note(self, words: str, brief: bool = False) -> None:
        """A paragraph in small grey type."""
        self.blocks.append(Block("note", words, brief=int(brief)))

    def heading(self, words: str, brief: bool = False) -> None:
        """A heading inside a section."""
        self.blocks.append(Block("heading", words, brief=int(brief)))

    def figure(self, drawing: Any, description: str, dpi: int = 120) -> None:
        """A picture with its description for those who cannot see it."""
        self.blocks.append(Block("figure", description, drawing=drawing, dpi=dpi))

    def table(
        self,
        columns: Sequence[str],
        rows: Iterable[Sequence[Any]],
        *,
        chosen: int = -1,
        folded: str = "",
        brief: int = 0,
    ) -> None:
        """A table of anything :func:`~pyro_hoim.core.words.number` can write, with the fields of :class:`Block`."""
        cells = tuple(tuple(cell if isinstance(cell, Hint) else number(cell) for cell in row) for row in rows)
        self.blocks.append(
            Block("table", columns=tuple(columns), rows=cells, chosen=chosen, folded=folded, brief=brief)
        )

    def folded_tables(
        self, columns: Sequence[str], rows: Sequence[Sequence[Any]], first: int, label: str, brief: int = 0
    ) -> None:
        """A table of the first rows and, where there are more, one of the others behind a label with their number."""
        self.table(columns, rows[:first], brief=brief)
        if len(rows) > first:
            self.table(columns, rows[first:], folded=f"{label} ({len(rows) - first})")

    def names_in_full(self, labels: Mapping[str, str]) -> None:
        """A table of the names that were shortened, by their labels; nothing where none was."""
        rows = [(label, name) for name, label in labels.items() if label != name]
        if rows:
            self.table(["shortened", "name"], rows, folded=f"Names in full ({len(rows)})")

    def accuracy_table(self, accuracies: Mapping[str, Mapping[str, Any] | None]) -> None:
        """How well a column is predicted on each part, beside always guessing its most frequent level."""
        rows = [
            [
                part,
                shorten(found["target"]),
                f"{found['accuracy']:.4f}",
                f"{found['majority_accuracy']:.4f}",
                against_majority(found).replace(BASELINE, "") or f"better (p = {found['majority_p_value']:.1g})",
                found["rows"],
            ]
            for part, found in accuracies.items()
            if found is not None
        ]
        if rows:
            columns = ["part", "target", "accuracy", "always the most frequent", "compared", "rows"]
            self.table(columns, rows, brief=len(rows))


@dataclass(frozen=True)
class Page:
    """What a reader is told of a fit.

    Attributes:
        title: heading.
        rows: number of them by part.
        names: of the variables.
        summary: sentences that answer the reader's question.
        warnings: what to know before trusting the page.
        about: sentences on the data.
        sections: in reading order.
        seed: of everything random.
    """

    title: str
    rows: Mapping[str, float]
    names: Sequence[str]
    summary: Sequence[str]
    warnings: Sequence[str]
    about: Sequence[str]
    sections: Sequence[Section]
    seed: int


def edge_cell(parts: Sequence[str], between: str = ":", width: int = CELL_WIDTH) -> Hint | str:
    """Names or levels in a table: shortened where they are long, with the full text at hand."""
    full = between.join(parts)
    return full if len(full) <= width else Hint(short_edge(parts, width, between), full)
