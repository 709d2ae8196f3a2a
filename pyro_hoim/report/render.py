"""A page of any family as one self-contained HTML file and as plain text for a terminal."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import jinja2

from ..core.figures.drawing import as_data_uri
from ..core.page import Block, Page
from ..core.words import columns_of, listed, plural, shorten

__all__ = ["plain_text", "render_page", "write_page"]

_NAMED = 12
_LINE = 110  # characters at a terminal
_CELLS = (44, 28)  # of them in a cell with names: in the first column, in others
_PACKAGES = ("pyro-hoim", "pyro-ppl", "torch", "arviz", "numpy")


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _rows_text(rows: Mapping[str, float]) -> str:
    """Numbers of rows of the parts that hold some."""
    held = [(part, count) for part, count in rows.items() if count]
    if [part for part, _ in held] == ["train"]:
        return plural(held[0][1], "row")
    words = [plural(count, part, part) for part, count in held]
    noun = "row" if held[-1][1] == 1 else "rows"
    return f"{', '.join(words[:-1])}{' and ' * (len(words) > 1)}{words[-1]} {noun}"


def render_page(page: Page) -> str:
    """HTML of a page, with every picture inside; it loads nothing from elsewhere."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("pyro_hoim.report", "."), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    return environment.get_template("template.html.j2").render(
        page=page,
        subtitle=f"{_rows_text(page.rows)} of {plural(len(page.names), 'variable')}: {listed(page.names, _NAMED)}",
        image=lambda block: as_data_uri(block.drawing, block.dpi),
        provenance=[
            ("seed", str(page.seed)),
            ("Python", platform.python_version()),
            *((name, _version(name)) for name in _PACKAGES),
        ],
    )


def write_page(page: Page, folder: Path) -> None:
    """Write ``report.html`` into an existing folder in one step, so that no half-written page is ever seen."""
    target = folder / "report.html"
    draft = target.with_suffix(".html.part")
    draft.write_text(render_page(page), encoding="utf-8")
    os.replace(draft, target)


def plain_text(page: Page) -> str:
    """The answer and the beginnings of the most important tables of a page."""
    lines = list(page.summary)
    for section in page.sections:
        blocks = [block for block in section.blocks if block.brief]
        if blocks:
            lines += ["", f"{section.title}:", *(line for block in blocks for line in _lines(block))]
    return "\n".join([*lines, *([""] if page.warnings else []), *(f"note: {sentence}" for sentence in page.warnings)])


def _lines(block: Block) -> list[str]:
    """A block at a terminal; columns that make lines too long are left to the page."""
    if block.kind != "table":
        return [f"({block.text})" if block.kind == "note" else block.text]
    cells = [
        [cell if isinstance(cell, str) else shorten(cell.full, _CELLS[k > 0]) for k, cell in enumerate(row)]
        for row in block.rows[: block.brief]
    ]
    for number in range(len(block.columns), 1, -1):
        lines = columns_of(block.columns[:number], [row[:number] for row in cells])
        if len(lines[0]) <= _LINE:
            return lines
    return columns_of(block.columns[:1], [row[:1] for row in cells])
