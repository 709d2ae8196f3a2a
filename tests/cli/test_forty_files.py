"""Files as people have them: each works, or ends in one line that says what to do. A page shows the table."""

import gzip
import io
import zipfile
from pathlib import Path

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
WORKS = "works"
SAME = {
    *("commas, UTF-8", "a byte-order mark", "semicolons, Windows-1252", "tabs, UTF-16 (Unicode text of Excel)", "bars"),
    *("blanks and row names, as R writes them", "Excel's line `sep=;`", "lines end in CR LF, blank lines"),
    *("a delimiter at the end of every row", "comment lines above the header", "gzip", "zip", "Excel", "Parquet"),
    *("an index without a name, as pandas writes it", "Feather", "Stata", "the same, without the column"),
}
"""Files that hold the same rows, which the model says by their digest."""

# Words for the page, name of the file, its content, options of ``fit``, and what is said: WORKS and the note or
# warning, or the error. Contents are made when a test needs them.
FILES = [
    ("commas, UTF-8", "t.csv", text, "", WORKS, ""),
    ("a byte-order mark", "t.csv", lambda: text().encode("utf-8-sig"), "", WORKS, ""),
    (
        "semicolons, Windows-1252",
        "t.csv",
        lambda: text(delimiter=";").encode("cp1252"),
        "",
        WORKS,
        "';'-separated, cp1252",
    ),
    (
        "tabs, UTF-16 (Unicode text of Excel)",
        "t.txt",
        lambda: text(delimiter="\t").encode("utf-16"),
        "",
        WORKS,
        "tab-separated",
    ),
    ("bars", "t.txt", lambda: text(delimiter="|"), "", WORKS, "'|'-separated"),
    (
        "blanks and row names, as R writes them",
        "t.txt",
        lambda: text([(i, *r) for i, r in enumerate(ROWS)], NAMES, " "),
        "",
        WORKS,
        "row names",
    ),
    ("Excel's line `sep=;`", "t.csv", lambda: "sep=;\r\n" + text(delimiter=";").replace("\n", "\r\n"), "", WORKS, ""),
    (
        "decimal commas",
        "t.csv",
        lambda: text([(r[0], f"{i % 3},5") for i, r in enumerate(ROWS)], ("a", "cm"), ";"),
        "",
        WORKS,
        "decimal commas in 'cm'",
    ),
    ("lines end in CR LF, blank lines", "t.csv", lambda: text().replace("\n", "\r\n\r\n"), "", WORKS, ""),
    (
        "quoted cells with commas and line ends",
        "t.csv",
        lambda: text([(f'"{a},\n{a}"', b, c) for a, b, c in ROWS]),
        "",
        WORKS,
        "",
    ),
    ("a delimiter at the end of every row", "t.csv", lambda: text().replace("\n", ",\n"), "", WORKS, "1 empty column"),
    ("comment lines above the header", "t.csv", lambda: f"# survey of 2024\n#\n{text()}", "", WORKS, "2 comment lines"),
    ("an index without a name, as pandas writes it", "t.csv", lambda: frame().to_csv(), "", WORKS, "row names"),
    ("gzip", "t.csv.gz", lambda: gzip.compress(text().encode()), "", WORKS, ""),
    ("zip", "t.zip", zipped, "", WORKS, ""),
    ("Excel", "t.xlsx", lambda: saved("to_excel", index=False), "", WORKS, ""),
    ("Parquet", "t.parquet", lambda: saved("to_parquet"), "", WORKS, ""),
    ("Feather", "t.feather", lambda: saved("to_feather"), "", WORKS, ""),
    ("Stata", "t.dta", lambda: saved("to_stata", write_index=False, version=118), "", WORKS, ""),
    ("another alphabet, not UTF-8", "t.csv", lambda: RUSSIAN.encode("cp1251"), "", "--encoding cp1251", ""),
    ("the same, its encoding given", "t.csv", lambda: RUSSIAN.encode("cp1251"), "--encoding cp1251", WORKS, ""),
    ("counts in a column `count`", "t.csv", lambda: "\n".join(["a,b,c,count", *CELLS]), "", WORKS, ""),
    (
        "counts in a column `Freq`",
        "t.csv",
        lambda: "\n".join(["a,b,c,Freq", *CELLS]),
        "",
        "say --count-column Freq if it does",
        "",
    ),
    (
        "the same, the column named",
        "t.csv",
        lambda: "\n".join(["a,b,c,Freq", *CELLS]),
        "--count-column Freq",
        WORKS,
        "",
    ),
    (
        "counts in a column `n`",
        "t.csv",
        lambda: "\n".join(["a,b,c,n", *CELLS]),
        "",
        "--count-column none if it is a variable",
        "",
    ),
    (
        "a column `weight`",
        "t.csv",
        lambda: with_column("weight", [0.5, 1.5, 2] * 20),
        "",
        "say --weight-column weight if it does",
        "",
    ),
    (
        "the same, the column named",
        "t.csv",
        lambda: with_column("weight", [0.5, 1.5, 2] * 20),
        "--weight-column weight",
        WORKS,
        "",
    ),
    ("an identifier", "t.csv", lambda: with_column("id", range(60)), "", "--columns drink,again,place", ""),
    (
        "the same, without the column",
        "t.csv",
        lambda: with_column("id", range(60)),
        "--columns drink,again,place",
        WORKS,
        "",
    ),
    ("numbers", "t.csv", lambda: with_column("age", AGES), "", "--bins age=quantile:4", ""),
    ("the same, cut into levels", "t.csv", lambda: with_column("age", AGES), "--bins age=edges:30,50,70", WORKS, ""),
    ("dates", "t.csv", lambda: with_column("day", DATES), "", "--bins day=width:year", ""),
    ("the same, cut into years", "t.csv", lambda: with_column("day", DATES), "--bins day=width:year", WORKS, ""),
    ("free text", "t.csv", lambda: with_column("note", NOTES), "", "'note' holds free text", ""),
    ("500 levels", "t.csv", lambda: with_column("shop", [f"s{i % 500}" for i in range(2000)]), "", "--allow shop", ""),
    (
        "60 columns",
        "t.csv",
        lambda: text([[i % 2] * 60 for i in range(80)], [f"q{i}" for i in range(60)]),
        "",
        WORKS,
        "",
    ),
    ("one row", "t.csv", lambda: text(ROWS[:1]), "", WORKS, "constant columns"),
    ("one column", "t.csv", lambda: text([r[:1] for r in ROWS], NAMES[:1]), "", WORKS, ""),
    (
        "numbers and words in a column",
        "t.csv",
        lambda: with_column("score", [1, "two", 2.5, "TRUE"] * 15),
        "",
        WORKS,
        "",
    ),
    (
        "NA, null and points for missing cells",
        "t.csv",
        lambda: with_column("g", ["m", "f", "NA", "."] * 15),
        "",
        WORKS,
        "--missing NA",
    ),
    (
        "the same, said so",
        "t.csv",
        lambda: with_column("g", ["m", "f", "NA", "."] * 15),
        "--missing NA --missing . --missing drop",
        WORKS,
        "",
    ),
    (
        "empty cells",
        "t.csv",
        lambda: with_column("g", ["m", "f", ""] * 20),
        "",
        "pass --missing drop to leave out 20 of 60 rows",
        "",
    ),
    ("a constant column", "t.csv", lambda: with_column("year", [2024] * 60), "", WORKS, "constant column"),
    ("two columns of one name", "t.csv", lambda: text(ROWS, ("a", "b", "a")), "", "rename or remove one of them", ""),
    (
        "a row too short",
        "t.csv",
        lambda: f"{text()}thé\n",
        "",
        "line 62: expected 3 cells as in the header, received 1",
        "",
    ),
    (
        "numbers without a header",
        "t.csv",
        lambda: text([(i % 2, i % 3) for i in range(40)], (1, 0)),
        "",
        "add a first line with the names",
        "",
    ),
    ("a header only", "t.csv", lambda: text([]), "", "expected rows below the header", ""),
    ("nothing", "t.csv", lambda: "", "", "received an empty file", ""),
    ("bytes that are no text", "t.csv", lambda: bytes(range(256)) * 4, "", "save it as CSV, .xlsx or .parquet", ""),
    ("JSON", "t.json", lambda: '[{"a": 1}]', "", "received JSON; save it as CSV", ""),
    ("SPSS", "t.sav", lambda: b"$FL2@(#)", "", "received an SPSS file; save it as CSV", ""),
    ("a folder", "t", None, "", "expected at least one file of rows (.parquet or .csv), received none", ""),
]


@pytest.mark.parametrize(("words", "name", "content", "options", "outcome", "said"), FILES, ids=[f[0] for f in FILES])
def test_each_file_works_or_says_what_to_do(words, name, content, options, outcome, said, shell):
    if content is None:
        Path(name).mkdir()
    else:
        held = content()
        Path(name).write_bytes(held if isinstance(held, bytes) else held.encode())
    if outcome != WORKS:
        shell.refused("fit", name, *options.split(), says=[outcome])
        return
    shown = shell("fit", name, "--order", "1", *options.split(), "--out", "out", "--json")
    told = messages(shown.err)
    assert len(told) == bool(said), told
    assert not said or said in told[0]
    is_same = load("out").info["split"]["digest"] == digest(Observations.from_pandas(frame()))[:32]
    assert is_same is (words in SAME)


def _page():
    """The table of the page."""
    lines = ["| file | `pyro-hoim fit` | what it says |", "|---|---|---|"]
    for words, name, _, options, outcome, said in FILES:
        command = f" with `{options}`" if options else ""
        works = outcome == WORKS
        shown = said if works else outcome
        lines.append(
            f"| {words} (`{name}`) | {'works' if works else 'stops'}{command} | {f'`{shown}`' if shown else ''} |"
        )
    return "\n".join(lines)


def test_the_page_shows_the_table():
    assert len(FILES) >= 40
    assert _page().replace("'|'", "'\\|'") in PAGE.read_text(encoding="utf-8")
