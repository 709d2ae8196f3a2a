"""What lies beside a page: tables at full precision, pictures, and where they come from, without local paths."""

import csv
import hashlib
import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from pyro_hoim import load_table
from pyro_hoim.cli import run
from pyro_hoim.core.page import Page, Section, cell
from pyro_hoim.core.words import fixed, plain
from pyro_hoim.data.counts import digest
from pyro_hoim.report import plain_text, provenance, render_page, write_page
from pyro_hoim.report.render import picture


def drawing():
    figure = Figure()
    figure.add_subplot().plot([1, 2], [-3, 4])
    return figure


def page_of(*sections):
    return Page("A page", {"train": 3.0}, ["a", "b"], ["Answer."], [], [], sections, seed=5)


def a_page():
    section = Section("Größen & gains (4)")
    rows = [["a", 1 / 3, cell(-2 / 3, fixed, 0.0123), None, True, -math.inf, "x"] for _ in range(3)]
    rows[1][1], rows[2][1] = 1e-300, 12
    section.table(["name", "value", "gain", "missing", "flag", "limit", "same"], rows, brief=3, chosen=1)
    section.heading("Pictures (2)")
    section.figure(drawing(), "First.")
    section.figure(drawing(), "Second", folded="Another picture")
    other = Section("Größen & gains (4)")
    other.table(["number"], [[k] for k in range(700)], first=10, further="Further numbers")
    return page_of(section, other)


def test_tables_hold_every_number_as_it_is(tmp_path):
    write_page(a_page(), tmp_path)
    names = sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file())
    stem = "groen-gains"
    pictures = [f"figures/{stem}-pictures-2.svg", f"figures/{stem}-pictures.svg"]
    assert names == [*pictures, "report.html", f"tables/{stem}-2.csv", f"tables/{stem}.csv"]
    with open(tmp_path / "tables/groen-gains.csv", encoding="utf-8", newline="") as file:
        head, *rows = csv.reader(file)
    assert head == ["name", "value", "gain", "gain SE", "missing", "flag", "limit", "same"]
    assert [float(row[1]) for row in rows] == [1 / 3, 1e-300, 12]
    assert rows[0][2:] == [repr(-2 / 3), "0.0123", "", "true", "-inf", "x"]
    assert len((tmp_path / "tables/groen-gains-2.csv").read_text().splitlines()) == 701
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert all(f'href="{name}"' in html for name in names if name != "report.html")
    assert 'href="tables' not in render_page(a_page())  # nothing lies beside a page that is not written
    assert "Further numbers (490, 200 more in the file)" in html and ">1.0e−300<" in html


def test_what_every_row_says_is_said_once():
    page = a_page()
    html, text = render_page(page), plain_text(page)
    told = "In every row: gain -0.6667 ± 0.01, flag yes, limit −∞, same x. Not known: missing."
    assert html.count(told) == 1 and f"({plain(told)})" in text
    assert '<th scope="col" class="number">value</th>' in html and ">same</th>" not in html
    assert html.count('class="kept"') == html.count(">kept</span>") == 1
    section = Section("Two")
    section.table(["name", "same"], [["a", "x"], ["b", "x"]])
    assert ">same</th>" in render_page(page_of(section))  # control: a table of two rows is shown as it is


def test_a_page_without_rows_names_its_variables():
    page = Page("A model", {"train": 0.0}, ["a", "b"], ["Answer."], [], [], [], 0)
    assert ">2 columns: a, b</p>" in render_page(page)


def test_equal_pictures_have_equal_bytes_and_large_clouds_are_pixels():
    assert picture(drawing()).svg == picture(drawing()).svg
    sizes = {}
    for number in (400, 4000):
        figure = Figure()
        figure.add_subplot().scatter(*np.random.default_rng(0).random((2, number)))
        found = picture(figure)
        sizes[number] = len(found.svg)
        assert (b"<image" in found.svg) is (number == 4000) and found.width > found.height > 100
        assert not re.search(rb"<dc:date>|/home|/work", found.svg.lower())
    assert sizes[4000] < 5 * sizes[400]


def test_provenance_says_what_a_repetition_needs(tmp_path, monkeypatch):
    rows = load_table("ucb_admissions")
    file = tmp_path / "rows.csv"
    file.write_bytes(b"a,b\n1,2\n")
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    split = {"train": 0.75, "validation": 0.0, "test": 0.25}
    found = provenance(rows, name="x", source=file, command="pyro-hoim fit rows.csv", split=split, seed=0)
    assert found["date"] == "1970-01-02T00:00:00Z" and found["seed"] == 0 and found["split"] == split
    assert found["data"] == {
        "name": "x",
        "file": "rows.csv",
        "sha256 of the file": hashlib.sha256(b"a,b\n1,2\n").hexdigest(),
        "sha256 of the encoded rows": digest(rows),
    }
    assert set(found["versions"]) >= {"Python", "pyro-hoim", "torch", "pyro-ppl"}
    page = render_page(a_page(), found)
    for words in ("pyro-hoim fit rows.csv", digest(rows), "1970-01-02T00:00:00Z", "train 0.75, test 0.25"):
        assert words in page
    assert page == render_page(a_page(), found)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    assert provenance()["date"] == "1970-01-01T00:00:00Z" and "data" not in provenance()
    monkeypatch.delenv("SOURCE_DATE_EPOCH")
    assert provenance()["date"] > "2020"


def test_other_rows_have_another_digest():
    rows = load_table("ucb_admissions")
    assert digest(rows) == digest(load_table("ucb_admissions")) and len(digest(rows)) == 64
    assert digest(rows) != digest(rows.project(rows.domain.names[:2])) != digest(rows.split((0.5, 0, 0.5), 0)[0])


@pytest.mark.parametrize("family", ["log-linear", "dependency-network", "grm", "rbm"])
def test_no_file_of_a_fit_names_a_folder_of_the_machine(family, tmp_path, monkeypatch, capsys):
    home = tmp_path / "secret place"
    home.mkdir()
    source, out = home / "rows.csv", home / "out"
    numbers = np.random.default_rng(0).integers(0, 2, (40, 3))
    np.savetxt(source, numbers, delimiter=",", header="a,b,c", comments="", fmt="%d")
    extra = {"grm": ["--order", "2"], "rbm": ["--hidden", "1", "--iterations", "5"]}.get(family, [])
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    assert run(["fit", str(source), "--model", family, *extra, "--out", str(out), "--seed", "7"]) == 0
    files = [path for path in out.rglob("*") if path.is_file()]
    assert {path.name for path in files} >= {"report.html", "fit.json", "model.safetensors"}
    words = [word.encode() for word in (str(tmp_path), "secret place", str(Path.home()))]
    named = [path.name for path in files if any(word in path.read_bytes() for word in words)]
    assert not named
    assert str(home) in capsys.readouterr().out  # control: a reader is told where the files are
    made = json.loads((out / "fit.json").read_text(encoding="utf-8"))
    assert (made["model"], made["report"]) == ("model.safetensors", "report.html")
    words = f"fit rows.csv --model {family} {' '.join(extra)}".split()
    assert sorted(made["provenance"]["command"].split()) == sorted(["pyro-hoim", *words, "--out", "out", "--seed", "7"])
    assert made["provenance"]["date"] == "1970-01-02T00:00:00Z" and made["provenance"]["seed"] == 7
    assert made["provenance"]["data"]["sha256 of the file"] == hashlib.sha256(source.read_bytes()).hexdigest()
