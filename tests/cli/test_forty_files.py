"""Files as people have them: each works, or ends in one line that says what to do. A page shows the table."""

import gzip
import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
from command_line import messages

from pyro_hoim.data import Observations
from pyro_hoim.data.counts import digest
from pyro_hoim.families import load

PAGE = Path(__file__).resolve().parents[2] / "docs" / "files.md"

ROWS = [("café" if i % 2 else "thé", "yes" if i % 3 else "no", "u" if i % 5 % 2 else "v") for i in range(60)]
NAMES = ("drink", "again", "place")
CELLS = [f"{a},{b},{c},{4 * i + 1}" for i, (a, b, c) in enumerate((a, b, c) for a in "xy" for b in "no" for c in "uv")]
AGES = np.random.default_rng(0).integers(18, 90, 200)


def text(rows=ROWS, names=NAMES, delimiter=","):
    return "\n".join(delimiter.join(map(str, row)) for row in [names, *rows]) + "\n"


def with_column(name, values):
    """The rows, repeated as needed, with a column more."""
    return text([(*ROWS[i % 60], value) for i, value in enumerate(values)], (*NAMES, name))


def frame():
    return pd.DataFrame(ROWS, columns=list(NAMES))


def saved(method, **options):
    """Bytes that a method of a data frame writes."""
    stream = io.BytesIO()
    getattr(frame(), method)(stream, **options)
    return stream.getvalue()


def zipped():
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as held:
        held.writestr("survey.csv", text())
    return stream.getvalue()


DATES = [f"20{10 + i % 14}-0{1 + i % 9}-1{i % 7}" for i in range(200)]
NOTES = [f"we came {i} times and liked it" for i in range(60)]
RUSSIAN = text([("чай" if i % 2 else "кофе", "да" if i % 3 else "нет") for i in range(60)], ("напиток", "ответ"))
SAME = {
    *("commas, UTF-8", "a byte-order mark", "semicolons, Windows-1252", "tabs, UTF-16 (Unicode text of Excel)", "bars"),
    *("blanks and row names, as R writes them", "Excel's line `sep=;`", "lines end in CR LF, blank lines"),
    *("a delimiter at the end of every row", "comment lines above the header", "gzip", "zip", "Excel", "Parquet"),
    *("an index without a name, as pandas writes it", "Feather", "Stata", "the same, without the column"),
}
"""Files that hold the same rows, which the model says by their digest."""


class File(NamedTuple):
    """Words for the page, name of the file, its content, made when a test needs it, and options of ``fit``.

    It stops with words of its error, or works and says a note or a warning.
    """

    words: str
    name: str
    content: Callable[[], str | bytes] | None
    options: str = ""
    stops: str = ""
    says: str = ""


FILES = [
    File("commas, UTF-8", "t.csv", text),
    File("a byte-order mark", "t.csv", lambda: text().encode("utf-8-sig")),
    File(
        "semicolons, Windows-1252", "t.csv", lambda: text(delimiter=";").encode("cp1252"), says="';'-separated, cp1252"
    ),
    File(
        "tabs, UTF-16 (Unicode text of Excel)",
        "t.txt",
        lambda: text(delimiter="\t").encode("utf-16"),
        says="tab-separated",
    ),
    File("bars", "t.txt", lambda: text(delimiter="|"), says="'|'-separated"),
    File(
        "blanks and row names, as R writes them",
        "t.txt",
        lambda: text([(i, *r) for i, r in enumerate(ROWS)], NAMES, " "),
        says="row names",
    ),
    File("Excel's line `sep=;`", "t.csv", lambda: "sep=;\r\n" + text(delimiter=";").replace("\n", "\r\n")),
    File(
        "decimal commas",
        "t.csv",
        lambda: text([(r[0], f"{i % 3},5") for i, r in enumerate(ROWS)], ("a", "cm"), ";"),
        says="decimal commas in 'cm'",
    ),
    File("lines end in CR LF, blank lines", "t.csv", lambda: text().replace("\n", "\r\n\r\n")),
    File("quoted cells with commas and line ends", "t.csv", lambda: text([(f'"{a},\n{a}"', b, c) for a, b, c in ROWS])),
    File("a delimiter at the end of every row", "t.csv", lambda: text().replace("\n", ",\n"), says="1 empty column"),
    File("comment lines above the header", "t.csv", lambda: f"# survey of 2024\n#\n{text()}", says="2 comment lines"),
    File("an index without a name, as pandas writes it", "t.csv", lambda: frame().to_csv(), says="row names"),
    File("gzip", "t.csv.gz", lambda: gzip.compress(text().encode())),
    File("zip", "t.zip", zipped),
    File("Excel", "t.xlsx", lambda: saved("to_excel", index=False)),
    File("Parquet", "t.parquet", lambda: saved("to_parquet")),
    File("Feather", "t.feather", lambda: saved("to_feather")),
    File("Stata", "t.dta", lambda: saved("to_stata", write_index=False, version=118)),
    File("another alphabet, not UTF-8", "t.csv", lambda: RUSSIAN.encode("cp1251"), stops="--encoding cp1251"),
    File("the same, its encoding given", "t.csv", lambda: RUSSIAN.encode("cp1251"), options="--encoding cp1251"),
    File("counts in a column `count`", "t.csv", lambda: "\n".join(["a,b,c,count", *CELLS])),
    File(
        "counts in a column `Freq`",
        "t.csv",
        lambda: "\n".join(["a,b,c,Freq", *CELLS]),
        stops="say --count Freq if it does",
    ),
    File("the same, the column named", "t.csv", lambda: "\n".join(["a,b,c,Freq", *CELLS]), options="--count Freq"),
    File(
        "counts in a column `n`",
        "t.csv",
        lambda: "\n".join(["a,b,c,n", *CELLS]),
        stops="--count none if it is a variable",
    ),
    File(
        "a column `weight`",
        "t.csv",
        lambda: with_column("weight", [0.5, 1.5, 2] * 20),
        stops="say --weights weight if it does",
    ),
    File(
        "the same, the column named",
        "t.csv",
        lambda: with_column("weight", [0.5, 1.5, 2] * 20),
        options="--weights weight",
    ),
    File("an identifier", "t.csv", lambda: with_column("id", range(60)), stops="--columns drink,again,place"),
    File(
        "the same, without the column",
        "t.csv",
        lambda: with_column("id", range(60)),
        options="--columns drink,again,place",
    ),
    File("numbers", "t.csv", lambda: with_column("age", AGES), stops="--bins age=quantile:4"),
    File("the same, cut into levels", "t.csv", lambda: with_column("age", AGES), options="--bins age=edges:30,50,70"),
    File("dates", "t.csv", lambda: with_column("day", DATES), stops="--bins day=width:year"),
    File("the same, cut into years", "t.csv", lambda: with_column("day", DATES), options="--bins day=width:year"),
    File("free text", "t.csv", lambda: with_column("note", NOTES), stops="'note' holds free text"),
    File(
        "500 levels", "t.csv", lambda: with_column("shop", [f"s{i % 500}" for i in range(2000)]), stops="--allow shop"
    ),
    File("60 columns", "t.csv", lambda: text([[i % 2] * 60 for i in range(80)], [f"q{i}" for i in range(60)])),
    File("one row", "t.csv", lambda: text(ROWS[:1]), says="constant columns"),
    File("one column", "t.csv", lambda: text([r[:1] for r in ROWS], NAMES[:1])),
    File("numbers and words in a column", "t.csv", lambda: with_column("score", [1, "two", 2.5, "TRUE"] * 15)),
    File(
        "NA, null and points for missing cells",
        "t.csv",
        lambda: with_column("g", ["m", "f", "NA", "."] * 15),
        says="--missing NA",
    ),
    File(
        "the same, said so",
        "t.csv",
        lambda: with_column("g", ["m", "f", "NA", "."] * 15),
        options="--missing NA --missing . --missing drop",
    ),
    File(
        "empty cells",
        "t.csv",
        lambda: with_column("g", ["m", "f", ""] * 20),
        stops="pass --missing drop to leave out 20 of 60 rows",
    ),
    File("a constant column", "t.csv", lambda: with_column("year", [2024] * 60), says="constant column"),
    File("two columns of one name", "t.csv", lambda: text(ROWS, ("a", "b", "a")), stops="rename or remove one of them"),
    File(
        "a row too short",
        "t.csv",
        lambda: f"{text()}thé\n",
        stops="line 62: expected 3 cells as in the header, received 1",
    ),
    File(
        "numbers without a header",
        "t.csv",
        lambda: text([(i % 2, i % 3) for i in range(40)], (1, 0)),
        stops="add a first line with the names",
    ),
    File("a header only", "t.csv", lambda: text([]), stops="expected rows below the header"),
    File("nothing", "t.csv", lambda: "", stops="received an empty file"),
    File("bytes that are no text", "t.csv", lambda: bytes(range(256)) * 4, stops="save it as CSV, .xlsx or .parquet"),
    File("JSON", "t.json", lambda: '[{"a": 1}]', stops="received JSON; save it as CSV"),
    File("SPSS", "t.sav", lambda: b"$FL2@(#)", stops="received an SPSS file; save it as CSV"),
    File("a folder", "t", None, stops="expected at least one file of rows (.parquet or .csv), received none"),
]


@pytest.mark.parametrize("file", FILES, ids=[file.words for file in FILES])
def test_each_file_works_or_says_what_to_do(file, shell):
    if file.content is None:
        Path(file.name).mkdir()
    else:
        content = file.content()
        Path(file.name).write_bytes(content if isinstance(content, bytes) else content.encode())
    if file.stops:
        shell.refused("fit", file.name, *file.options.split(), says=[file.stops])
        return
    shown = shell("fit", file.name, "--order", "1", *file.options.split(), "--out", "out", "--json")
    told = messages(shown.err)
    assert len(told) == bool(file.says), told
    assert not file.says or file.says in told[0]
    is_same = load("out").info["split"]["digest"] == digest(Observations.from_pandas(frame()))[:32]
    assert is_same is (file.words in SAME)


def _page():
    """The table of the page."""
    lines = ["| file | `pyro-hoim fit` | what it says |", "|---|---|---|"]
    for file in FILES:
        command = f" with `{file.options}`" if file.options else ""
        works, shown = "stops" if file.stops else "works", file.stops or file.says
        lines.append(f"| {file.words} (`{file.name}`) | {works}{command} | {f'`{shown}`' if shown else ''} |")
    return "\n".join(lines)


def test_the_page_shows_the_table():
    assert len(FILES) >= 40
    assert _page().replace("'|'", "'\\|'") in PAGE.read_text(encoding="utf-8")
