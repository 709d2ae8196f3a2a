"""Awkward tables: each is fitted and what was done to it is said."""

import json
import re
from pathlib import Path

import pytest

from pyro_hoim.errors import IntractableError

from support.figures import made_figures
from support.verbs import verb_first


def table(header, lines):
    """Write ``t.csv`` and return its name."""
    Path("t.csv").write_text("\n".join([header, *lines]) + "\n", encoding="utf-8")
    return "t.csv"


HALF = [f"{i % 2},{(i // 2) % 3 % 2},{i % 3}" for i in range(60)]
HOLES = [f"{'' if i < 12 else i % 2},{(i // 2) % 2},{i % 3}" for i in range(60)]


def test_missing_cells_say_what_to_do(shell):
    source = table("a,b,c", HOLES)
    assert shell.refused("learn", source) == ("t: 12 cells are missing; pass --missing drop to leave out 12 of 60 rows")
    assert "12 of 60 rows, or --missing marginalise to sum over them" in shell.refused("fit", source)
    assert shell.refused("learn", source, "--missing", "marginalise") == (
        "--missing marginalise: not together with learn, whose validation rows must be complete; "
        "pass --missing drop to leave out 12 of 60 rows, or leave out the columns that miss most by --columns (missing "
        "cells are in a)"
    )


@pytest.mark.parametrize("options", [["learn", "--max-order", "2"], ["--order", "1"]])
def test_dropped_rows_are_told(options, shell):
    source = table("a,b,c,d", [f"{line},same" for line in HOLES])
    told = "12 rows with missing cells were left out (--missing drop); 48 rows stayed."
    out = shell(*verb_first(source, *options, "--missing", "drop", "--out", "out")).out
    assert out.startswith(f"{told}\nConstant column, which no interaction can hold: d.\n")
    found = json.loads(Path("out/fit.json").read_text())
    assert found["dropped_rows"] == 12 and sum(found["rows"].values()) == 48 and found["constant_columns"] == ["d"]
    page = Path("out/report.html").read_text(encoding="utf-8")
    assert told in page and "column, which no interaction can hold: d." in page
    (lead,) = re.findall(r'<p class="lead"[^>]*>([^<]*)</p>', page)
    parts = [f"{count} {part}" for part, count in found["rows"].items() if count]
    assert lead.startswith(" and ".join([", ".join(parts[:-1]), parts[-1]]) if len(parts) > 1 else "48 rows of 4")


def test_nothing_is_told_of_a_plain_table(shell):
    text = shell("fit", table("a,b,c", HALF), "--order", "1", "--out", "out").out
    assert text.startswith("In ") and ", the model has no interaction." in text.splitlines()[0]
    assert json.loads(Path("out/fit.json").read_text())["dropped_rows"] == 0


def test_many_columns_are_counted(shell):
    names = [f"a constant column with a long name, number {i}" for i in range(9)]
    header = ",".join(["a", *(f'"{name}"' for name in names)])
    source = table(header, [f"{i % 2}" + ",same" * 9 for i in range(40)])
    first = shell("learn", source, "--out", "out").out.splitlines()[0]
    assert first.startswith("Constant columns, which no interaction can hold: a constant col") and len(first) < 250
    assert first.endswith(" and 3 more.")
    assert json.loads(Path("out/fit.json").read_text())["constant_columns"] == names


def test_names_that_pictures_and_pages_could_misread(shell):
    header = 'first name,"a:b",_hidden,c$d$,"<b>&"'
    lines = [f"l {i % 2},{i % 2},$x$ {i % 3 % 2},{'[u]' if i % 5 else '_v'},{i % 2}" for i in range(120)]
    with made_figures():
        assert "first name:a:b" in shell("learn", table(header, lines), "--max-order", "2", "--out", "out").out
    page = Path("out/report.html").read_text(encoding="utf-8")
    assert page.count("data:image/svg+xml") == 4 and "<b>" not in page and "&lt;b&gt;&amp;" in page


def test_levels_absent_from_training(shell):
    lines = [f"{'rare' if i in (5, 77) else 'usual'},{i % 2},{i % 3}" for i in range(120)]
    shell("learn", table("a,b,c", lines), "--seed", "2", "--target", "a", "--out", "out")
    found = json.loads(Path("out/fit.json").read_text())
    assert all(value is not None for key in ("nll", "kl") for value in found[key].values())


def test_an_identifier_is_told_and_fitted_where_that_can_be_done(shell):
    lines = [f"{i},{i % 2},{i % 3}" for i in range(900)]
    source = table("id,a,b", lines[:300])
    told = "id (300 levels) is (almost) unique per row, like an identifier"
    note = shell("fit", source, "--order", "1", "--out", "none").err
    assert "left out: 'id' (300 levels in 300 rows)" in note and "--allow id to take a column as it is" in note
    assert shell("fit", source, "--order", "1", "--allow", "id", "--out", "one").out.startswith(told)
    assert told in Path("one/report.html").read_text(encoding="utf-8")
    table("id,a,b", lines)
    shell("fit", source, "--order", "2", "--allow", "id", "--out", "two")  # too many parameters to list the cells
    quality = json.loads(Path("two/fit.json").read_text())["goodness_of_fit"]
    assert quality["p_value"] is None and quality["p_value_note"] == "no degrees of freedom are left"  # of 900 cells
    assert "'id' (900 levels in 900 rows)" in shell.refused("learn", source, "--allow", "id")


def test_odds_ratios_that_nobody_can_tell_do_not_end_a_fit(shell, monkeypatch):
    """An infinite estimate of a large table may leave it open what the data identify; the rest of the page stands."""

    def out_of_reach(*_):
        raise IntractableError("too large to tell what the data identify")

    shell("fit", "titanic", "--out", "whole")
    monkeypatch.setattr("pyro_hoim.log_linear.fitting.result.FitResult.contrast_errors", out_of_reach)
    monkeypatch.setattr("pyro_hoim.study.analysis.uncertainty", lambda *_: None)
    shell("fit", "titanic", "--out", "part")
    heads = [Path(name, "tables/odds-ratios.csv").read_text().splitlines()[0] for name in ("whole", "part")]
    assert ["lower,upper" in head for head in heads] == [True, False]
    page = Path("part/report.html").read_text(encoding="utf-8")
    assert "The odds ratios have no intervals." in page and "too large to tell what the data identify" in page
    assert all(Path(name, "model.safetensors").exists() for name in ("whole", "part"))


UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u2028\u202a-\u202e\u2066-\u2069]")


def test_what_a_terminal_obeys_is_shown_escaped(shell):
    """Names, labels, notes, tables, pages and errors of a file whose names and labels hold controls."""
    folder, names = Path("a\x1b[31m b"), ["a\u202eb", '"c\x1b[2Jd"', '"two\nlines"']
    levels = [("y", "x\u2066"), ("m", "\x9b1m"), ("o", "\x07")]
    lines = [",".join([*(pair[i % (k + 2) > 0] for k, pair in enumerate(levels)), "same\u202e"]) for i in range(60)]
    folder.mkdir()
    source = folder / "t\u202e.csv"
    source.write_text("\n".join([",".join([*names, "constant\x1b[0m"]), *lines]) + "\n", encoding="utf-8")
    told = shell("fit", str(source), "--order", "2", "--out", str(folder / "out"))
    assert r"\u202e" in told.out and r"two\nlines" in told.out and r"constant\x1b[0m" in told.out + told.err
    shown = [told.out, told.err]
    model = str(folder / "out")
    for words in (["interactions", model], ["score", model, str(source)], ["margins", model, "a\u202eb"]):
        found = shell(*words)
        shown += [found.out, found.err]
    found = shell("interactions", model, "--json").out
    shown.append(found)
    assert any("a\u202eb" in term["edge"] for term in json.loads(found)["interactions"])  # read back as it is
    shown.append(shell.refused("score", model, f"{folder}/none\nhere.csv"))
    assert r"none\nhere.csv: no such file" in shown[-1]
    shown += [shell.refused("sample", model, "-n", "1", "--given", "c\x1b[2J=x")]
    shown.append((folder / "out/report.html").read_text(encoding="utf-8"))
    assert r"two\nlines" in shown[-1]
    for text in shown:
        assert not UNSEEN.search(text), UNSEEN.search(text)
    assert UNSEEN.search(shell("sample", model, "-n", "20").out)  # a file keeps its cells as they are
    tables = [path.read_text(encoding="utf-8") for path in (folder / "out/tables").iterdir()]
    assert any("a\u202eb" in text for text in tables)


def test_cells_that_a_spreadsheet_would_run(shell):
    """They are counted in one line, made safe by an option, and files made safe are read back by every command."""
    labels = ["=1+1", "'=1+1", "-1", ""]
    source = table("=a,b,c", [f"{labels[i % 3]},{i % 2},{(i // 2) % 3 % 2}" for i in range(60)])
    told = shell("fit", source, "--order", "1", "--out", "out").err
    assert told.count("a spreadsheet would run") == 1 and "; --safe-csv makes them safe" in told
    assert "a spreadsheet" not in shell("report", "out", "--out", "page", "--safe-csv").err
    model = "out/model.safetensors"
    raw = shell("sample", model, "-n", "30")
    number = len(re.findall("^=", raw.out, flags=re.MULTILINE))
    assert f"pyro-hoim: warning: a spreadsheet would run {number} cells of the CSV written, such as '=" in raw.err
    safe = shell("sample", model, "-n", "30", "--safe-csv", "--out", "s.csv")
    assert "a spreadsheet" not in safe.err and "30 rows written to s.csv" in safe.out
    text = Path("s.csv").read_text(encoding="utf-8")
    assert not re.findall("^=", text, flags=re.MULTILINE) and text.count("\n''=") and text.count("\n'=") > 1
    Path("r.csv").write_text(raw.out, encoding="utf-8")
    assert shell.json("score", model, "s.csv")["nll"] == shell.json("score", model, "r.csv")["nll"]
    shell("predict", model, "s.csv", "--target", "b", "--out", "p.csv", "--safe-csv")
    shell("predict", model, "r.csv", "--target", "b", "--out", "q.csv")
    predicted = [Path(name).read_text(encoding="utf-8") for name in ("p.csv", "q.csv")]
    assert [line.removeprefix("'") for line in predicted[0].splitlines()[1:]] == predicted[1].splitlines()
    shell("sample", model, "--complete", "s.csv", "--out", "c.csv", "--safe-csv")
    assert Path("c.csv").read_text(encoding="utf-8") == text
