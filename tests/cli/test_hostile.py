"""Awkward tables: each is fitted and what was done to it is said, or is refused in one line."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from pyro_hoim.cli import run


def table(header: str, lines: list[str]) -> str:
    """Write ``t.csv`` and return its name."""
    Path("t.csv").write_text("\n".join([header, *lines]) + "\n", encoding="utf-8")
    return "t.csv"


HALF = [f"{i % 2},{(i // 2) % 3 % 2},{i % 3}" for i in range(60)]
HOLES = [f"{'' if i < 12 else i % 2},{(i // 2) % 2},{i % 3}" for i in range(60)]
REFUSED: list[tuple[str, str | bytes, list[str], str]] = [
    ("one row", "a,b\nx,y\n", [], "--split: no row of 1 falls in the train part; use a larger fraction or more rows"),
    ("empty", "", [], "t.csv: expected a header and rows, received an empty file"),
    ("header only", "a,b\n", [], "t.csv: expected rows below the header, received the header only"),
    ("twice", "a,a\nx,y\n", [], "t.csv header: names must be unique, but 'a' is repeated"),
    ("latin", "a,b\ncaf\xe9,1\n".encode("latin-1"), [], "t.csv line 2: not UTF-8 (byte 0xe9); save the file as UTF-8"),
    ("utf 16", "a,b\nx,1\n".encode("utf-16"), [], "t.csv line 1: not UTF-8 (byte 0xff); save the file as UTF-8"),
    ("semicolons", "a;b\n1;2\n", [], "t.csv: expected cells separated by ',', but the header"),
    ("negative count", "a,count\nx,3\ny,-2\n", [], "t.csv line 3, column 'count': expected a non-negative whole"),
    ("target", "a,b\n" + "x,y\nz,w\n" * 9, ["--target", "c"], "--target: unknown variable 'c'; known: 'a', 'b'"),
    ("open quote", 'a,b\n"1,2\n2,1\n', [], "t.csv line"),
    ("nameless", "a,,c\n1,2,3\n", [], "t.csv: expected a name for every column, received none for column 2"),
    ("all missing", "a,b\n" + ",1\n" * 9, ["--missing", "drop"], "column 'a': expected at least one level"),
    ("unique", "id,a\n" + "".join(f"{i},{i % 2}\n" for i in range(60)), [], "--columns: expected columns that"),
]  # fmt: skip


@pytest.mark.parametrize(("content", "options", "shown"), [c[1:] for c in REFUSED], ids=[c[0] for c in REFUSED])
def test_refused_in_one_line(
    content: str | bytes, options: list[str], shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("t.csv").write_bytes(content if isinstance(content, bytes) else content.encode())
    assert run(["fit", "t.csv", "--select", *options]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith(f"pyro-hoim: error: {shown}"), captured.err
    assert captured.err.count("\n") == 1 and captured.out == ""
    assert [path.name for path in Path().iterdir()] == ["t.csv"]


def test_missing_cells_say_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    source = table("a,b,c", HOLES)
    assert run(["fit", source, "--select"]) == 2
    assert capsys.readouterr().err == (
        "pyro-hoim: error: t: 12 cells are missing; pass --missing drop to leave out 12 of 60 rows\n"
    )
    assert run(["fit", source]) == 2
    assert "12 of 60 rows, or --missing marginalise to sum over them" in capsys.readouterr().err
    assert run(["fit", source, "--select", "--missing", "marginalise"]) == 2
    assert capsys.readouterr().err == (
        "pyro-hoim: error: --missing marginalise: not together with --select, whose validation rows must be complete; "
        "pass --missing drop to leave out 12 of 60 rows, or leave out the columns that miss most by --columns (missing "
        "cells are in a)\n"
    )


@pytest.mark.parametrize("options", [["--select", "--order", "2"], ["--order", "1"]])
def test_dropped_rows_are_told(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    source = table("a,b,c,d", [f"{line},same" for line in HOLES])
    assert run(["fit", source, *options, "--missing", "drop", "--out", "out"]) == 0
    told = "12 rows with missing cells were left out (--missing drop); 48 rows stayed."
    out = capsys.readouterr().out
    assert out.startswith(f"{told}\nConstant column, which no interaction can hold: d.\n")
    found = json.loads(Path("out/fit.json").read_text())
    assert found["dropped_rows"] == 12 and sum(found["rows"].values()) == 48 and found["constant_columns"] == ["d"]
    page = Path("out/report.html").read_text(encoding="utf-8")
    assert told in page and "column, which no interaction can hold: d." in page
    (lead,) = re.findall(r'<p class="lead"[^>]*>([^<]*)</p>', page)
    parts = [f"{count} {part}" for part, count in found["rows"].items() if count]
    assert lead.startswith(" and ".join([", ".join(parts[:-1]), parts[-1]]) if len(parts) > 1 else "48 rows of 4")


def test_nothing_is_told_of_a_plain_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fit", table("a,b,c", HALF), "--order", "1", "--out", "out"]) == 0
    assert capsys.readouterr().out.startswith("The model kept is order 1: 0 interactions")
    assert json.loads(Path("out/fit.json").read_text())["dropped_rows"] == 0


def test_many_columns_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    names = [f"a constant column with a long name, number {i}" for i in range(9)]
    header = ",".join(["a", *(f'"{name}"' for name in names)])
    assert run(["fit", table(header, [f"{i % 2}" + ",same" * 9 for i in range(40)]), "--select", "--out", "out"]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert first.startswith("Constant columns, which no interaction can hold: a constant col") and len(first) < 250
    assert first.endswith(" and 3 more.")
    assert json.loads(Path("out/fit.json").read_text())["constant_columns"] == names


def test_names_that_pictures_and_pages_could_misread(capsys: pytest.CaptureFixture[str]) -> None:
    header = 'first name,"a:b",_hidden,c$d$,"<b>&"'
    lines = [f"l {i % 2},{i % 2},$x$ {i % 3 % 2},{'[u]' if i % 5 else '_v'},{i % 2}" for i in range(120)]
    assert run(["fit", table(header, lines), "--select", "--order", "2", "--out", "out"]) == 0
    assert "first name:a:b" in capsys.readouterr().out
    page = Path("out/report.html").read_text(encoding="utf-8")
    assert page.count("data:image/png") == 3 and "<b>" not in page and "&lt;b&gt;&amp;" in page


def test_levels_absent_from_training(capsys: pytest.CaptureFixture[str]) -> None:
    lines = [f"{'rare' if i in (5, 77) else 'usual'},{i % 2},{i % 3}" for i in range(120)]
    assert run(["fit", table("a,b,c", lines), "--select", "--seed", "2", "--target", "a", "--out", "out"]) == 0
    found = json.loads(Path("out/fit.json").read_text())
    assert all(value is not None for key in ("nll", "kl") for value in found[key].values())
    capsys.readouterr()


def test_an_identifier_is_told_and_fitted_where_that_can_be_done(capsys: pytest.CaptureFixture[str]) -> None:
    source = table("id,a,b", [f"{i},{i % 2},{i % 3}" for i in range(900)])
    assert run(["fit", source, "--order", "1", "--out", "one"]) == 0
    told = "id (900 levels) is (almost) unique per row, like an identifier"
    assert capsys.readouterr().out.startswith(told)
    assert told in Path("one/report.html").read_text(encoding="utf-8")
    assert run(["fit", source, "--order", "2", "--out", "two"]) == 0  # too many parameters to list the cells
    assert json.loads(Path("two/fit.json").read_text())["goodness_of_fit"]["p_value"] is None
    assert run(["fit", source, "--select"]) == 2
    assert "'id' (900 levels in 900 rows)" in capsys.readouterr().err
