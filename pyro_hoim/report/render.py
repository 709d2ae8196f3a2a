"""A page of any family: one self-contained HTML file with its tables and pictures beside it, or text for a terminal."""

from __future__ import annotations

import base64
import io
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import jinja2
import matplotlib as mpl
import numpy as np
from matplotlib.collections import Collection
from matplotlib.figure import Figure

from ..atomic import made_folder, write_file
from ..core.page import Block, Cell, Page
from ..core.words import columns_of, option, plain, plural, shorten
from ..data.files.safe_cells import warn_of_formulas
from ..errors import visible
from .origin import provenance as made_now, provenance_lines
from .tables import csv_text

_NAMED = 6
_LIMITS = 3  # sentences on what limits the answer, beside which further ones are folded
_LINE = 110  # characters at a terminal
_CELLS = (44, 36)  # of them in a cell of text: in the first column, in others
_STEM = 60  # characters of a file's name
_MOST_POINTS = 500  # of a cloud that stays a drawing; larger ones are pixels
_STYLE: dict[Any, Any] = {"svg.hashsalt": "pyro_hoim", "svg.fonttype": "path"}


# Pictures as SVG: sharp at every size, readable without fonts, the same bytes for the same picture.


@dataclass(frozen=True)
class Picture:
    """A picture as SVG with its size in pixels of a page."""

    svg: bytes
    width: int
    height: int

    @property
    def address(self) -> str:
        """A ``data:`` address that holds the whole picture."""
        return "data:image/svg+xml;base64," + base64.b64encode(self.svg).decode("ascii")


def picture(figure: Figure) -> Picture:
    """SVG of a figure, which loads nothing and names no machine or time."""
    # Many points as an image, else the page grows by megabytes.
    for cloud in figure.findobj(Collection):
        if len(np.asarray(cloud.get_offsets())) > _MOST_POINTS:
            cloud.set_rasterized(True)
    buffer = io.BytesIO()
    with mpl.rc_context(_STYLE):
        figure.savefig(
            buffer,
            format="svg",
            dpi=150,
            bbox_inches="tight",
            pad_inches=0.02,
            facecolor="white",
            metadata={"Date": None, "Creator": None},
        )
    # Points of the file as pixels of the page.
    svg = buffer.getvalue()
    width, height = (float(size) * 4 / 3 for size in re.findall(rb'(?:width|height)="([\d.]+)pt"', svg)[:2])
    return Picture(svg, round(width), round(height))


# The page around them, as HTML and as text.


def _rows_text(rows: Mapping[str, float], has_weights: bool) -> str:
    """Numbers of rows of the parts that hold some, empty where there are none."""
    filled = [(part, count) for part, count in rows.items() if count]
    if not filled:
        return ""
    if has_weights:
        parts = [f"{count:g}{f' ({part})' if len(filled) > 1 else ''}" for part, count in filled]
        return f"Rows with weights that add up to {', '.join(parts)},"
    if [part for part, _ in filled] == ["train"]:
        return plural(filled[0][1], "row")
    words = [plural(count, part, part) for part, count in filled]
    noun = "row" if filled[-1][1] == 1 else "rows"
    return f"{', '.join(words[:-1])}{' and ' * (len(words) > 1)}{words[-1]} {noun}"


def slug(words: str) -> str:
    """Words as a part of an address or of a file's name; what stands in parentheses is left out.

    Example:
        >>> slug("Observed against fitted cells (20)")
        'observed-against-fitted-cells'
    """
    plain = unicodedata.normalize("NFKD", re.sub(r"\([^)]*\)", "", words)).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", plain)[:_STEM].strip("-") or "part"


def _unique(stem: str, taken: set[str]) -> str:
    """The stem, numbered where another has it."""
    name, number = stem, 1
    while name in taken:
        number += 1
        name = f"{stem}-{number}"
    taken.add(name)
    return name


def file_names(page: Page) -> dict[int, str]:
    """Files of the tables and pictures of a page, by the ``id`` of their blocks: named by section and heading."""
    names: dict[int, str] = {} if page.picture is None else {id(page.picture): "figures/in-short.svg"}
    taken: dict[str, set[str]] = {"table": set(), "figure": {"in-short"}}
    for section in page.sections:
        stem = slug(section.title)
        for block in section.blocks:
            if block.kind == "heading":
                stem = slug(f"{section.title} {block.text}")
            elif block.kind in taken:
                folder, end = ("tables", "csv") if block.kind == "table" else ("figures", "svg")
                names[id(block)] = f"{folder}/{_unique(stem, taken[block.kind])}.{end}"
    return names


@lru_cache(maxsize=1)
def _template() -> jinja2.Template:
    """The template of all pages, compiled once."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("pyro_hoim.report", "."),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: visible(value) if type(value) is str else value,
    )
    environment.filters["shown"] = _shown
    return environment.get_template("template.html.j2")


def render_page(
    page: Page, provenance: Mapping[str, Any] | None = None, pictures: Mapping[int, Picture] | None = None
) -> str:
    """HTML of a page, with every picture inside; it loads nothing from elsewhere.

    Args:
        page: what to show.
        provenance: as :func:`~pyro_hoim.report.provenance` makes it; by default versions, date and the page's seed.
        pictures: of the blocks, by their ``id``, of a page whose tables and pictures lie beside it; without them they
            are drawn and nothing is linked.

    Example:
        >>> page = Page("Survey", {"train": 40}, ["sex", "age"], ["One pair matters."], [], [], [], 0)
        >>> html = render_page(page)
        >>> "<h1>Survey</h1>" in html, "40 rows of 2 columns: sex, age" in html, "<script src" in html
        (True, True, False)
    """
    files = {} if pictures is None else file_names(page)
    taken: set[str] = {"in-short", "what-limits-this", "how-this-was-made"}
    anchors = [_unique(slug(section.title), taken) for section in page.sections]
    by_section = {id(section): anchor for section, anchor in zip(page.sections, anchors, strict=True)}
    names = list(page.names)
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    rows = _rows_text(page.rows, page.has_weights)
    return _template().render(
        page=page,
        most=_LIMITS,
        anchors=anchors,
        anchor=lambda section: by_section[id(section)],
        grouped=_grouped,
        subtitle=f"{rows}{' of ' * bool(rows)}{plural(len(names), 'column')}: {', '.join(names[:_NAMED])}{more}",
        drawn=lambda block: picture(block.drawing) if pictures is None else pictures[id(block)],
        narrow=lambda block: block.narrow and picture(block.narrow),
        file=lambda block: files.get(id(block), ""),
        provenance=provenance_lines(provenance or made_now(seed=page.seed)),
    )


def _grouped(blocks: Sequence[Block]) -> list[list[Block]]:
    """Blocks one by one, pictures that follow each other together: they stand side by side where there is room."""
    groups = list[list[Block]]()
    for block in blocks:
        is_beside = block.kind == "figure" and not block.folded
        if is_beside and groups and groups[-1][0].kind == "figure" and not groups[-1][0].folded:
            groups[-1].append(block)
        else:
            groups.append([block])
    return groups


def _shown(cell: Cell) -> str:
    """Text of a cell, with true minus signs in numbers."""
    return cell.shown if isinstance(cell.value, str) else cell.shown.replace("-", "−")


def write_page(
    page: Page, folder: Path, provenance: Mapping[str, Any] | None = None, *, safe_csv: bool = False
) -> None:
    """Write ``report.html``, ``tables`` and ``figures`` into a folder that exists.

    The page is written last, and every file in one step, so that no half-written one is ever seen. Tables are CSV files
    with all rows and columns at full precision, pictures are SVG; the page links to them and holds the pictures itself.

    Args:
        page: what to show.
        folder: where to; files of the same names are replaced.
        provenance: as of :func:`render_page`.
        safe_csv: write an apostrophe before cells of the tables that a spreadsheet would run.

    Warns:
        DataWarning: with the number of such cells, where they are written as they are.

    Example:
        >>> import tempfile
        >>> from pyro_hoim.core.page import Section
        >>> section = Section("Interactions")
        >>> section.table(["term", "gain"], [["sex:age", 0.25]])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_page(Page("Survey", {}, ["sex", "age"], [], [], [], [section], 0), Path(folder))
        ...     print((Path(folder) / "tables" / "interactions.csv").read_text().split())
        ['term,gain', 'sex:age,0.25']
    """
    pictures: dict[int, Picture] = {}
    formulas: list[str] = []
    blocks = {id(block): block for section in page.sections for block in section.blocks}
    blocks |= {} if page.picture is None else {id(page.picture): page.picture}
    for key, name in file_names(page).items():
        target = folder / name
        if blocks[key].kind != "table":
            pictures[key] = picture(blocks[key].drawing)
        text, risky = csv_text(blocks[key], safe_csv) if blocks[key].kind == "table" else ("", [])
        formulas += risky
        with made_folder(target.parent):
            write_file(target, pictures[key].svg if key in pictures else text)
    write_file(folder / "report.html", render_page(page, provenance, pictures))
    warn_of_formulas(formulas, option("safe_csv", True))


def plain_text(page: Page) -> str:
    """The answer and the beginnings of the most important tables of a page.

    Example:
        >>> from pyro_hoim.core.page import Section
        >>> section = Section("Interactions")
        >>> section.table(["term", "gain"], [["sex:age", 0.25]], brief=1)
        >>> print(plain_text(Page("Survey", {}, ["sex", "age"], ["One pair matters."], [], [], [section], 0)))
        One pair matters.
        <BLANKLINE>
        Interactions:
        term      gain
        sex:age  0.250
    """
    lines = [plain(sentence) for sentence in page.summary]
    lines += ["", "What limits this:", *map(plain, page.warnings)] if page.warnings else []
    for section in page.sections:
        blocks = [block for block in section.blocks if block.brief and not section.is_folded]
        if blocks:
            lines += ["", f"{section.title}:", *(line for block in blocks for line in _lines(block))]
    return "\n".join(lines)


def _lines(block: Block) -> list[str]:
    """A block at a terminal; columns that make lines too long are left to the page."""
    if block.kind != "table":
        return [plain(f"({block.text})" if block.kind == "note" else block.text)]
    head = [block.columns[i] for i in block.varying]
    cells = [[shorten(plain(row[i].shown), _CELLS[i > 0]) for i in block.varying] for row in block.rows[: block.brief]]
    told = [plain(f"({block.told_once})")] if block.told_once else []
    for number in range(len(head), 1, -1):
        lines = columns_of(head[:number], [row[:number] for row in cells])
        if len(lines[0]) <= _LINE:
            return [*lines, *told]
    return [*columns_of(head[:1], [row[:1] for row in cells]), *told]
