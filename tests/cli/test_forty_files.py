"""Files as people have them: each works, or ends in one line that says what to do. A page shows the table."""

import gzip
import io
import tempfile
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyreadstat
import pytest
from command_line import messages

from pyro_hoim import Observations, load
from pyro_hoim.data.counts import digest

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


def spss():
    """The rows with codes in the place of texts, which value labels name."""
    labels = {name: dict(enumerate(sorted(set(frame()[name])), start=1)) for name in NAMES}
    codes = frame().apply(lambda column: column.map({text: code for code, text in labels[column.name].items()}))
    return through(pyreadstat.write_sav, codes, variable_value_labels=labels)


def sas():
    return through(pyreadstat.write_xport, frame())


def through(write, table, **options):
    """Bytes of what a function writes to a file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t"
        write(table, path, **options)
        return path.read_bytes()


def arff():
    levels = [f"@attribute {name} {{{','.join(sorted(set(frame()[name])))}}}" for name in NAMES]
    return "\n".join(["@relation t", *levels, "@data", *text().splitlines()[1:], ""])


def of_others(name):
    """Bytes that R wrote."""
    return (Path(__file__).parents[1] / "data" / "files_of_others" / name).read_bytes()


DATES = [f"20{10 + i % 14}-0{1 + i % 9}-1{i % 7}" for i in range(200)]
NOTES = [f"we came {i} times and liked it" for i in range(60)]
RUSSIAN = text([("чай" if i % 2 else "кофе", "да" if i % 3 else "нет") for i in range(60)], ("напиток", "ответ"))
SAME = {
    *("commas, UTF-8", "a byte-order mark", "semicolons, Windows-1252", "tabs, UTF-16 (Unicode text of Excel)", "bars"),
    *("blanks and row names, as R writes them", "Excel's line `sep=;`", "lines end in CR LF, blank lines"),
    *("a delimiter at the end of every row", "comment lines above the header", "gzip", "zip", "Excel", "Parquet"),
    *("an index without a name, as pandas writes it", "Feather", "Stata", "the same, without the column"),
    *("SPSS", "SAS transport", "ARFF of Weka"),
    *("an identifier", "free text"),
}
"""Files that hold the same rows, which the model says by their digest."""


class File(NamedTuple):
    """Words for the page, content, or what makes it when a test needs it, name of the file, and options of ``fit``.

    It stops with words of its error, or works and says a note or a warning.
    """

    words: str
    content: str | bytes | Callable[[], str | bytes] | None
    says: str = ""
    options: str = ""
    name: str = "t.csv"
    stops: bool = False


stops = partial(File, stops=True)
NUMBERED = text([(i, *r) for i, r in enumerate(ROWS)], NAMES, " ")
COMMAS = text([(r[0], f"{i % 3},5") for i, r in enumerate(ROWS)], ("a", "cm"), ";")
COUNTED = {name: "\n".join([f"a,b,c,{name}", *CELLS]) for name in ("count", "Freq", "n")}
WEIGHTED, IDENTIFIED = with_column("weight", [0.5, 1.5, 2] * 20), with_column("id", range(60))
AGED, DATED = with_column("age", AGES), with_column("day", DATES)
GAPS = with_column("g", ["m", "f", "NA", "."] * 15)
FILES = [
    File("commas, UTF-8", text()),
    File("a byte-order mark", text().encode("utf-8-sig")),
    File("semicolons, Windows-1252", text(delimiter=";").encode("cp1252"), "';'-separated, cp1252"),
    File("tabs, UTF-16 (Unicode text of Excel)", text(delimiter="\t").encode("utf-16"), "tab-separated", name="t.txt"),
    File("bars", text(delimiter="|"), "'|'-separated", name="t.txt"),
    File("blanks and row names, as R writes them", NUMBERED, "row names", name="t.txt"),
    File("Excel's line `sep=;`", "sep=;\r\n" + text(delimiter=";").replace("\n", "\r\n")),
    File("decimal commas", COMMAS, "decimal commas in 'cm'"),
    File("lines end in CR LF, blank lines", text().replace("\n", "\r\n\r\n")),
    File("quoted cells with commas and line ends", text([(f'"{a},\n{a}"', b, c) for a, b, c in ROWS])),
    File("a delimiter at the end of every row", text().replace("\n", ",\n"), "1 empty column"),
    File("comment lines above the header", f"# survey of 2024\n#\n{text()}", "2 comment lines"),
    File("an index without a name, as pandas writes it", frame().to_csv(), "row names"),
    File("gzip", gzip.compress(text().encode()), name="t.csv.gz"),
    File("zip", zipped, name="t.zip"),
    File("Excel", lambda: saved("to_excel", index=False), name="t.xlsx"),
    File("Parquet", lambda: saved("to_parquet"), name="t.parquet"),
    File("Feather", lambda: saved("to_feather"), name="t.feather"),
    File("Stata", lambda: saved("to_stata", write_index=False, version=118), name="t.dta"),
    stops("another alphabet, not UTF-8", RUSSIAN.encode("cp1251"), "--encoding cp1251"),
    File("the same, its encoding given", RUSSIAN.encode("cp1251"), options="--encoding cp1251"),
    File("counts in a column `count`", COUNTED["count"]),
    stops("counts in a column `Freq`", COUNTED["Freq"], "say --count Freq if it does"),
    File("the same, the column named", COUNTED["Freq"], options="--count Freq"),
    stops("counts in a column `n`", COUNTED["n"], "--count none if it is a variable"),
    stops("a column `weight`", WEIGHTED, "say --weights weight if it does"),
    File("the same, the column named", WEIGHTED, options="--weights weight"),
    File("an identifier", IDENTIFIED, "columns were left out: 'id' (60 levels in 60 rows)"),
    File("the same, without the column", IDENTIFIED, options="--exclude id"),
    stops("numbers", AGED, "write --bins auto to cut age at"),
    File("the same, cut at quantiles", AGED, "numbers were cut into levels: age at", options="--bins auto"),
    File("the same, cut into levels", AGED, options="--bins age=edges:30,50,70"),
    File("dates", DATED, "Write --bins day=width:year to cut dates"),
    File("the same, cut into years", DATED, options="--bins day=width:year"),
    File("free text", with_column("note", NOTES), "'note' holds free text"),
    stops("500 levels", with_column("shop", [f"s{i % 500}" for i in range(2000)]), "--allow shop"),
    File("60 columns", text([[i % 2] * 60 for i in range(80)], [f"q{i}" for i in range(60)])),
    File("one row", text(ROWS[:1]), "constant columns"),
    File("one column", text([r[:1] for r in ROWS], NAMES[:1])),
    File("numbers and words in a column", with_column("score", [1, "two", 2.5, "TRUE"] * 15)),
    File("NA, null and points for missing cells", GAPS, "--missing NA"),
    File("the same, said so", GAPS, options="--missing NA --missing . --missing drop"),
    stops("empty cells", with_column("g", ["m", "f", ""] * 20), "pass --missing drop to leave out 20 of 60 rows"),
    File("a constant column", with_column("year", [2024] * 60), "constant column"),
    stops("two columns of one name", text(ROWS, ("a", "b", "a")), "rename or remove one of them"),
    stops("a row too short", f"{text()}thé\n", "line 62: expected 3 cells as in the header, received 1"),
    stops(
        "numbers without a header", text([(i % 2, i % 3) for i in range(40)], (1, 0)), "add a first line with the names"
    ),
    stops("a header only", text([]), "expected rows below the header"),
    stops("nothing", "", "received an empty file"),
    stops("bytes that are no text", bytes(range(256)) * 4, "save it as CSV, .xlsx or .parquet"),
    stops("JSON", '[{"a": 1}]', "received JSON; save it as CSV", name="t.json"),
    File("SPSS", spss, "read as levels", name="t.sav"),
    stops("SPSS, cut off", b"$FL2@(#)", "damaged .sav file", name="t.sav"),
    File("SAS transport", sas, name="t.xpt"),
    File("a table of R (`xtabs`, `saveRDS`)", of_others("admissions.rds"), "the 24 cells of a table", name="t.rds"),
    stops("an `ftable` of R as text", of_others("ftable.txt"), "an ftable of R; write.csv(", name="t.txt"),
    File("ARFF of Weka", arff, name="t.arff"),
    stops("a folder", None, "expected at least one file of rows (.parquet or .csv), received none", name="t"),
]


@pytest.mark.parametrize("file", FILES, ids=[file.words for file in FILES])
def test_each_file_works_or_says_what_to_do(file, shell):
    if file.content is None:
        Path(file.name).mkdir()
    else:
        content = file.content() if callable(file.content) else file.content
        Path(file.name).write_bytes(content if isinstance(content, bytes) else content.encode())
    if file.stops:
        shell.refused("fit", file.name, *file.options.split(), says=[file.says])
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
        works = "stops" if file.stops else "works"
        lines.append(f"| {file.words} (`{file.name}`) | {works}{command} | {f'`{file.says}`' if file.says else ''} |")
    return "\n".join(lines)


def test_the_page_shows_the_table():
    assert len(FILES) >= 40
    assert _page().replace("'|'", "'\\|'") in PAGE.read_text(encoding="utf-8")
