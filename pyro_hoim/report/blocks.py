"""Building blocks of a report page: text, tables and figures, and how numbers are written."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from matplotlib.figure import Figure

from ..errors import rounded_power
from .figures.drawing import as_data_uri
from .words import against_majority, short_edge, shorten

__all__ = [
    "CELL_WIDTH",
    "Block",
    "Hint",
    "Part",
    "accuracy_table",
    "edge_cell",
    "figure",
    "heading",
    "note",
    "num_states_text",
    "number",
    "table",
    "text",
]

CELL_WIDTH = 56
"""Characters of a cell that holds names."""


@dataclass(frozen=True)
class Hint:
    """A cell whose text is shortened; the page shows the full text when the pointer rests on it."""

    shown: str
    full: str


@dataclass(frozen=True)
class Block:
    """One element of a page; ``kind`` says which fields count."""

    kind: Literal["text", "note", "heading", "figure", "table"]
    text: str = ""
    source: str = ""
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str | Hint, ...], ...] = ()
    chosen: int = -1
    folded: str = ""


@dataclass(frozen=True)
class Part:
    """A titled section of a page."""

    title: str
    blocks: list[Block] = field(default_factory=list)


def text(words: str) -> Block:
    """A paragraph."""
    return Block("text", words)


def note(words: str) -> Block:
    """A paragraph in small grey type."""
    return Block("note", words)


def heading(words: str) -> Block:
    """A heading inside a part."""
    return Block("heading", words)


def figure(drawing: Figure, description: str, dpi: int = 120) -> Block:
    """A picture with its description for those who cannot see it."""
    return Block("figure", description, source=as_data_uri(drawing, dpi))


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, chosen: int = -1, folded: str = "") -> Block:
    """A table of anything :func:`number` can write; ``chosen`` marks a row, ``folded`` hides it behind that label."""
    cells = tuple(tuple(cell if isinstance(cell, Hint) else number(cell) for cell in row) for row in rows)
    return Block("table", columns=tuple(columns), rows=cells, chosen=chosen, folded=folded)


def accuracy_table(accuracies: Mapping[str, Mapping[str, Any]]) -> Block:
    """How well a column is predicted on each part, beside always guessing its most frequent level."""
    rows = [
        [
            part,
            shorten(found["target"]),
            f"{found['accuracy']:.4f}",
            f"{found['majority_accuracy']:.4f}",
            against_majority(found) or f"better (p = {found['majority_p_value']:.1g})",
            found["rows"],
        ]
        for part, found in accuracies.items()
    ]
    return table(["part", "target", "accuracy", "always the most frequent", "compared", "rows"], rows)


def edge_cell(parts: Sequence[str], between: str = ":", width: int = CELL_WIDTH) -> Hint | str:
    """Names or levels in a table: shortened where they are long, with the full text at hand."""
    full = between.join(parts)
    return full if len(full) <= width else Hint(short_edge(parts, width, between), full)


def number(value: Any) -> str:
    """A number as a person writes it: four significant digits, whole numbers whole, a dash for nothing."""
    if value is None:
        return "–"
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "yes" if value else "no"
    value = float(value)
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}".replace("-", "−")
    size = abs(value)
    if size >= 1000:
        shown = f"{value:,.1f}"
    elif size >= 100:
        shown = f"{value:.2f}"
    elif size >= 1e-4:
        shown = f"{value:.3f}" if size >= 0.1 else f"{value:.2g}"
    else:
        shown = f"{value:.1e}"
    return shown.replace("-", "−")


def num_states_text(num_states: int) -> str:
    """Two significant digits, ``2.4e14``; whole numbers below a million are written out."""
    if num_states < 10**6:
        return str(num_states)
    mantissa, exponent = rounded_power(num_states, 1)
    return f"{mantissa}e{exponent}"
