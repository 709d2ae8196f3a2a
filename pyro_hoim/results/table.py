"""Tables of results: data frames that a person can read when they are printed."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from typing import Any

import pandas as pd
from typing_extensions import override

from ..core.words import columns_of, fixed, listed, short_edge, shorten
from ..errors import visible

_LINE = 110  # characters
_LEAST = 20  # characters of a column of words
_PRINTED, _SHOWN = 60, 20  # rows
_SMALLEST_P = 1e-4
_WHOLE = ("rows", "parameters", "df", "deviance_df", "test_df")
_COMPARED = (
    "log_likelihood",
    "log_likelihood_bound",
    "log_pseudo_likelihood",
    "AIC",
    "BIC",
    "deviance",
    "statistic",
)  # by differences


class SummaryTable(pd.DataFrame):
    """A data frame of results; ``attrs["notes"]`` are shown below it, ``attrs["hidden"]`` only where a line has room.

    Printed, it has at most 110 characters in a line and 60 rows, numbers have four decimals, infinite estimates read
    "inf", and estimates of no certain sign "not identified".

    Example:
        >>> table = SummaryTable({"term": ["a:b"], "estimate": [1.791759], "p_value": [1e-9]})
        >>> table.attrs["notes"] = ["the first level of every variable is the reference"]
        >>> table
        term  estimate  p_value
        a:b     1.7918  <0.0001
        (the first level of every variable is the reference)
    """

    @property
    @override
    def _constructor(self) -> type[SummaryTable]:
        return SummaryTable

    @override
    def __repr__(self) -> str:
        shown, notes = _without_notes(self)
        shown, hidden = _narrowed(shown.head(_PRINTED), shown.attrs.get("hidden", ()))
        lines = _blocks(*_cells(shown))
        if len(self) > _PRINTED:
            lines.append(f"... {len(self) - _PRINTED} more")
        notes += [f"columns that are not printed: {', '.join(hidden)}"] if hidden else []
        return "\n".join([*lines, *(f"({visible(note)})" for note in notes)])

    __str__ = __repr__

    def _repr_html_(self) -> str:
        return html_of(self)


def html_of(frame: pd.DataFrame, heading: str = "") -> str:
    """HTML of at most 20 rows and the notes below, in the colours of the page that it stands in; wide ones scroll."""
    frame, own_notes = _without_notes(frame)
    header, rows = _cells(frame.head(_SHOWN), math.inf)
    is_word = _are_words(_with_index(frame))
    style = ["text-align:left;" if word else "text-align:right;" for word in is_word]

    def line(tag: str, cells: Sequence[str]) -> str:
        return (
            "<tr>"
            + "".join(
                f'<{tag} style="{how}padding:0.15em 0.6em;white-space:nowrap">{html.escape(visible(cell))}</{tag}>'
                for how, cell in zip(style, cells, strict=True)
            )
            + "</tr>"
        )

    # The table scrolls by itself, whatever the notebook does.
    parts = ['<div style="overflow-x:auto;max-width:100%">']
    if heading:
        parts.append(f'<p style="margin:0 0 0.4em;font-weight:bold">{html.escape(visible(heading))}</p>')
    body = "".join(line("td", row) for row in rows)
    parts.append(f"<table><thead>{line('th', header)}</thead><tbody>{body}</tbody></table>")
    more = [f"... {len(frame) - _SHOWN} more"] if len(frame) > _SHOWN else []
    notes = [*more, *own_notes]
    parts += [
        f'<p style="margin:0.2em 0;opacity:0.75;font-size:smaller">{html.escape(visible(note))}</p>' for note in notes
    ]
    return "".join([*parts, "</div>"])


def _without_notes(frame: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """The frame without its column of notes, and all notes in full, those of rows after the terms that they are of."""
    notes = list(frame.attrs.get("notes", ()))
    if not {"term", "note"} <= set(frame.columns):
        return frame, notes
    of_rows = pd.DataFrame(frame[frame["note"].notna() & (frame["note"] != "")])
    grouped = of_rows.groupby("note", sort=False)["term"]
    told = [f"{'all' if len(terms) == len(frame) > 1 else listed(list(terms))}: {note}" for note, terms in grouped]
    return frame.drop(columns="note"), [*notes, *told]


def _narrowed(frame: pd.DataFrame, hidden: Sequence[str]) -> tuple[pd.DataFrame, list[str]]:
    """A frame without some columns where its lines would be too long; and these columns."""
    names = [name for name in hidden if name in frame.columns]
    if not names or "levels" not in frame.columns:
        return frame, []
    columns = {str(name): [cell_text(name, value) for value in frame[name]] for name in frame.columns}
    sizes = [max([len(name), *map(len, cells)]) for name, cells in columns.items()]
    if sum(sizes) + 2 * (len(sizes) - 1) <= _LINE:
        return frame, []
    return frame.drop(columns=names), names


def _are_words(frame: pd.DataFrame) -> list[bool]:
    """Which columns hold no numbers."""
    return [not pd.api.types.is_numeric_dtype(kind) for kind in frame.dtypes]


def _with_index(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with an index that says something as its first column."""
    return frame if isinstance(frame.index, pd.RangeIndex) else frame.reset_index(names=[frame.index.name or ""])


def _cells(frame: pd.DataFrame, width: float = _LINE) -> tuple[list[str], list[list[str]]]:
    """Header and cells of a frame as text, those of words shortened where lines are too long."""
    frame = _with_index(frame)
    names = list(frame.columns)
    main = "estimate" if "estimate" in names else "odds_ratio"  # of which one says what is not identified
    columns = [[visible(cell_text("estimate" if name == main else name, v)) for v in frame[name]] for name in names]
    words = [k for k, is_word in enumerate(_are_words(frame)) if is_word]
    # Columns of words share the room that numbers leave; what no share brings into fewer lines is not shortened for it.
    sizes = [max([len(str(name)), *map(len, column)]) for name, column in zip(names, columns, strict=True)]
    longest = max((sizes[k] for k in words), default=0)

    def num_blocks(share: int) -> int:
        return _num_blocks([min(size, share) if k in words else size for k, size in enumerate(sizes)], width)

    least = num_blocks(min(longest, _LEAST))
    share = next((share for share in range(longest, _LEAST, -1) if num_blocks(share) <= least), min(longest, _LEAST))
    # Terms lose whole names, other words their ends.
    for k in words:
        columns[k] = [
            (
                short_edge(cell.split(":"), share)
                if str(names[k]) == "term" and len(cell) > share
                else shorten(cell, share)
            )
            for cell in columns[k]
        ]
        if k:  # columns_of puts all columns but the first to the right
            size = max([len(str(names[k])), *map(len, columns[k])])
            columns[k] = [cell.ljust(size) for cell in columns[k]]
    sizes = [max([0, *map(len, columns[k])]) if k in words else 0 for k in range(len(names))]
    header = [str(name).ljust(size) for name, size in zip(names, sizes, strict=True)]
    return header, [list(row) for row in zip(*columns, strict=True)]


def _num_blocks(sizes: Sequence[int], width: float) -> int:
    """Number of blocks of lines that columns of these sizes need, the first one in each of them."""
    count, used = 1, sizes[0] if sizes else 0
    for size in sizes[1:]:
        if used + 2 + size > width and used > sizes[0]:
            count, used = count + 1, sizes[0]
        used += 2 + size
    return count


def _blocks(header: list[str], rows: list[list[str]]) -> list[str]:
    """Aligned lines; columns that do not fit follow below, beside the first one again."""
    start, lines = 1, list[str]()
    while not lines or start < len(header):
        end = len(header)
        while True:
            columns = [0, *range(start, end)]
            block = columns_of([header[k] for k in columns], [[row[k] for k in columns] for row in rows])
            if len(block[0].rstrip()) <= _LINE or end <= start + 1:
                break
            end -= 1
        lines += ["", *block] if lines else block
        start = end
    return [line.rstrip() for line in lines]


def cell_text(name: object, value: Any) -> str:
    """A cell: four decimals, whole numbers whole, nothing for what is not known."""
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value))
    if value is None or isinstance(value, (str, bool)) or not isinstance(value, (int, float)):
        return "" if value is None or value is pd.NA else str(value)
    # What is no number says why, or nothing.
    if math.isnan(value):
        return "not identified" if name == "estimate" else ""
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    if isinstance(value, int):
        return str(value)
    # Each kind of column has its digits.
    if "p_value" in str(name):
        return fixed(value) if value >= _SMALLEST_P else "<0.0001"
    if value == int(value) and abs(value) < 1e15 and name in _WHOLE:
        return str(int(value))
    if name in _COMPARED:
        return fixed(value, 4 if abs(value) < 1e5 else 2)
    return fixed(value) if abs(value) < 1e5 else f"{value:.4g}"
