"""A page on what a fit has found: sections of text, tables and figures, for a browser and for a terminal alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import isfinite
from typing import Any, Literal

from .words import BASELINE, against_majority, amount_column, digits, number

_MOST = 500  # rows of a table on a page
_TEXT, _BESIDE = 24, 70  # characters of a cell of text in one line, and of a table that stands beside a picture
_ALIKE = 3  # rows from which on a column that repeats itself is said once


@dataclass(frozen=True)
class Cell:
    """A cell of a table.

    Attributes:
        shown: what a reader sees.
        value: what the file of the table holds, at full precision; None for nothing.
        error: standard error that ``shown`` tells beside the value; the file gives it a column of its own.
    """

    shown: str
    value: str | float | None
    error: float | None = None


def cell(
    value: float | None,
    write: Callable[[float], str] = digits,
    error: float | None = None,
    write_error: Callable[[float], str] = "{:.1g}".format,
    before: str = "",
) -> Cell:
    """A number as ``write`` has it, after some words and before its standard error; a dash for nothing."""
    if value is None:
        return Cell(number(None), None)
    has_error = error is not None and isfinite(error)
    shown = before + write(value) + (f" ± {write_error(error)}" if error is not None and has_error else "")
    return Cell(shown, value, error if has_error else None)


@dataclass(frozen=True)
class Block:
    """One element of a section; ``kind`` says which fields count.

    Attributes:
        kind: what it is.
        text: of a paragraph or heading, description of a figure.
        drawing: a :class:`matplotlib.figure.Figure`.
        narrow: the same for a small screen, where the drawing is wider than that; None for the drawing itself.
        columns: of a table.
        rows: of a table, all of them.
        chosen: row that is marked as the one kept, -1 for none.
        folded: label that a table or a figure is hidden behind, empty to show it.
        first: rows of a table that are shown, where others are hidden behind a label; 0 for all.
        further: label of these others.
        brief: rows of a table that a terminal shows, of a text or heading whether it does.
    """

    kind: Literal["text", "note", "heading", "figure", "table"]
    text: str = ""
    drawing: Any = None
    narrow: Any = None
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[Cell, ...], ...] = ()
    chosen: int = -1
    folded: str = ""
    first: int = 0
    further: str = ""
    brief: int = 0

    @cached_property
    def varying(self) -> tuple[int, ...]:
        """Columns that a reader sees: the first, and those that do not say the same in every row of a longer table."""
        every = range(len(self.columns))
        if len(self.rows) < _ALIKE:
            return tuple(every)
        return tuple(i for i in every if not i or len({row[i].shown for row in self.rows}) > 1)

    @property
    def is_broad(self) -> bool:
        """Whether a table has no room beside a picture."""
        longest = (max((len(row[i].shown) for row in self.rows), default=0) for i in self.varying)
        return sum(min(max(size, 4), _TEXT) + 2 for size in longest) > _BESIDE

    @property
    def told_once(self) -> str:
        """A sentence on the other columns; empty where there are none."""
        nothing = number(None)
        alike = {self.columns[i]: self.rows[0][i].shown for i in range(len(self.columns)) if i not in self.varying}
        same = ", ".join(f"{name} {shown}" for name, shown in alike.items() if shown not in (nothing, ""))
        absent = ", ".join(name for name, shown in alike.items() if shown == nothing)
        told = [f"In every row: {same}." if same else "", f"Not known: {absent}." if absent else ""]
        return " ".join(filter(None, told))

    def parts(self) -> list[tuple[str, int, int]]:
        """Label, first row and end of each table that a page shows; an empty label for one that is not hidden."""
        size = len(self.rows)
        last = min(size, max(self.first, _MOST))
        end = min(self.first, size) or last
        left = f", {size - last:,} more in the file" if last < size else ""
        parts = [(self.folded + (left if self.folded and end == last else ""), 0, end)]
        return [*parts, (f"{self.further} ({last - end:,}{left})", end, last)] if last > end else parts


@dataclass(frozen=True)
class Section:
    """A titled section of a page; its methods append elements.

    Attributes:
        title: its heading.
        blocks: its elements.
        is_folded: whether it opens by a click: what an expert asks, behind what everybody does.

    Example:
        >>> section = Section("Fit")
        >>> section.text("The pairs describe the table.")
        >>> section.table(["part", "rows"], [["train", 80], ["test", 20]])
        >>> [block.kind for block in section.blocks]
        ['text', 'table']
    """

    title: str
    blocks: list[Block] = field(default_factory=list[Block])
    is_folded: bool = False

    def text(self, words: str, brief: bool = False) -> None:
        """A paragraph."""
        self.blocks.append(Block("text", words, brief=int(brief)))

    def note(self, words: str, brief: bool = False) -> None:
        """A paragraph in small grey type."""
        self.blocks.append(Block("note", words, brief=int(brief)))

    def heading(self, words: str, brief: bool = False) -> None:
        """A heading inside a section."""
        self.blocks.append(Block("heading", words, brief=int(brief)))

    def figure(self, drawing: Any, description: str, folded: str = "", narrow: Any = None) -> None:
        """A picture with its description, which is shown below it and read to those who cannot see it."""
        self.blocks.append(Block("figure", description, drawing=drawing, narrow=narrow, folded=folded))

    def table(
        self,
        columns: Sequence[str],
        rows: Iterable[Sequence[Any]],
        *,
        chosen: int = -1,
        folded: str = "",
        first: int = 0,
        further: str = "",
        brief: int = 0,
    ) -> None:
        """A table of cells, or of anything :func:`~pyro_hoim.core.words.number` can write; fields of :class:`Block`."""
        cells = tuple(tuple(c if isinstance(c, Cell) else Cell(number(c), c) for c in row) for row in rows)
        table = Block("table", "", None, None, tuple(columns), cells, chosen, folded, first, further, brief)
        self.blocks.append(table)

    def accuracy_table(self, accuracies: Mapping[str, Mapping[str, Any] | None], has_weights: bool) -> None:
        """How well a column is predicted on each part, beside always guessing its most frequent level."""
        known = {part: accuracy for part, accuracy in accuracies.items() if accuracy is not None}
        if not known:
            return
        judged = list(known.values())[-1]
        against = against_majority(judged)
        hint = " Look at the probabilities of its levels instead (AUC, log loss)." if against else ""
        against = against or f"better{BASELINE} (p = {judged['majority_p_value']:.1g})"
        self.text(f"The prediction of {judged['target']} is {against}.{hint}", brief=True)
        columns = ["part", "accuracy", "always the most frequent", amount_column(has_weights)]
        figures = ("accuracy", "majority_accuracy")
        rows = [[part, *(cell(of[name]) for name in figures), of["rows"]] for part, of in known.items()]
        self.table(columns, rows, brief=len(rows))


@dataclass(frozen=True)
class Page:
    """What a reader is told of a fit.

    Attributes:
        title: heading.
        rows: number of them by part.
        names: of the variables.
        summary: at most five sentences that answer the reader's question.
        warnings: what limits the answer, to be known before trusting it.
        about: sentences on the data.
        sections: in reading order.
        seed: of everything random.
        has_weights: whether the numbers of rows are sums of weights.
        picture: of the answer, a block of a figure; None for none.
    """

    title: str
    rows: Mapping[str, float]
    names: Sequence[str]
    summary: Sequence[str]
    warnings: Sequence[str]
    about: Sequence[str]
    sections: Sequence[Section]
    seed: int
    has_weights: bool = False
    picture: Block | None = None
