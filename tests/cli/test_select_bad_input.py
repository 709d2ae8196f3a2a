"""Wrong input of ``fit --select``: exit status 2, one clear line on standard error, nothing written."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyro_hoim.cli import run

GOOD = "a,b,c\n" + "".join(f"{i % 2},{i % 3},{i % 5 % 2}\n" for i in range(60))
UNIQUE = "id,a\n" + "".join(f"{i},{i % 2}\n" for i in range(60))


CASES: list[tuple[str, str, list[str], list[str]]] = [
    ("order one", GOOD, ["--order", "1"], ["--order", "2 to 3", "received 1"]),
    ("order too high", GOOD, ["--order", "4"], ["--order", "2 to 3"]),
    ("edges", GOOD, ["--edges", "a*b"], ["--select", "--edges"]),
    ("posterior", GOOD, ["--posterior"], ["--select", "--posterior"]),
    ("other model", GOOD, ["--model", "grm"], ["grm"]),
    ("heredity", GOOD, ["--heredity", "0"], ["--heredity"]),
    ("heredity above one", GOOD, ["--heredity", "1.5"], ["--heredity"]),
    ("per round", GOOD, ["--per-round", "0"], ["--per-round"]),
    ("trainer", GOOD, ["--trainer", "gibbs"], ["--trainer"]),
    ("unknown target", GOOD, ["--target", "z"], ["unknown variable 'z'"]),
    ("unknown ordinal", GOOD, ["--ordinal", "z"], ["--ordinal", "'z'"]),
    ("no validation", GOOD, ["--split", "0.5,0,0.5"], ["validation part is empty", "--split"]),
    ("empty validation", GOOD, ["--split", "0.9,0.001,0.099"], ["--split", "validation part"]),
    ("unique column", UNIQUE, [], ["'id' (60 levels in 60 rows)", "unique per row", "--columns"]),
    ("one row", "a,b\nx,y\n", [], ["--split", "no row of 1"]),
    ("missing cells", "a,b\nx,\ny,1\nx,1\n", [], ["1 cell", "--missing drop"]),
    ("marginalise", "a,b\nx,\ny,1\nx,1\n", ["--missing", "marginalise"], ["validation", "--missing drop"]),
    ("nothing left", "a,b\nx,\ny,\nz,\n,1\n", ["--missing", "drop"], ["no complete row"]),
    ("resume nothing", GOOD, ["--resume"], ["--resume"]),
]


@pytest.mark.parametrize(("content", "options", "words"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_refused(content: str, options: list[str], words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    Path("table.csv").write_text(content, encoding="utf-8")
    assert run(["fit", "table.csv", "--select", *options]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("pyro-hoim: error: ") and captured.err.count("\n") == 1, captured.err
    for word in words:
        assert word in captured.err, captured.err
    assert [str(p) for p in Path().iterdir()] == ["table.csv"]


def test_refit_and_no_table_need_select(capsys: pytest.CaptureFixture[str]) -> None:
    Path("table.csv").write_text(GOOD, encoding="utf-8")
    assert run(["fit", "table.csv", "--refit"]) == 2
    assert "--refit: belongs to --select" in capsys.readouterr().err
    assert run(["fit", "--select"]) == 2
    assert "--select" in capsys.readouterr().err


def test_control_the_good_table_is_accepted(capsys: pytest.CaptureFixture[str]) -> None:
    Path("table.csv").write_text(GOOD, encoding="utf-8")
    assert run(["fit", "table.csv", "--select", "--out", "out"]) == 0
    assert Path("out/report.html").exists()
    Path("unique.csv").write_text(UNIQUE, encoding="utf-8")
    assert run(["fit", "unique.csv", "--select", "--columns", "a", "--out", "second"]) == 0
    capsys.readouterr()
