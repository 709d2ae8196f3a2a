"""Cells that a spreadsheet would run: which they are, and that readers undo how they are made safe."""

import csv
import io
import warnings

import pandas as pd
import pytest
from hypothesis import example, given, settings, strategies as st

from pyro_hoim import Observations
from pyro_hoim.core.page import Page, Section
from pyro_hoim.data.files.safe_cells import MARK, as_written, restored, safe_frame, safe_rows, warn_of_formulas
from pyro_hoim.errors import DataWarning
from pyro_hoim.report import write_page

CELLS = st.text(st.sampled_from("'=+-@\t\r\uff1dab1.5eE "), max_size=6) | st.text(max_size=4)


@pytest.mark.parametrize(
    "cell", ["=1+1", "=cmd|' /C calc'!A0", "+1+1", "-1+1", "@SUM(A1)", "\t=1", "\r=1", "\uff1d1", "--", "-5%"]
)
def test_formulas_are_found(cell):
    assert safe_rows([[cell]], False)[2] == [cell] and as_written(cell) == f"'{cell}"
    with pytest.warns(DataWarning, match=r"a spreadsheet would run 1 cell of the CSV written, such as .*; do so makes"):
        warn_of_formulas([cell], "do so")


@pytest.mark.parametrize(
    "cell", ["", "a", "a=1", "-1.5", "+3", "-.5e-3", "1e9", "-1,5", "-", "+", "-inf", "'", "'a", "''", "'-1"]
)
def test_numbers_and_plain_text_are_no_danger(cell):
    assert safe_rows([[cell]], False)[2] == [] and as_written(cell) == cell == restored(cell)
    with warnings.catch_warnings(action="error"):
        warn_of_formulas([], "")


@settings(max_examples=60)
@given(CELLS, CELLS)
@example("=1", "'=1")
@example("'=1", "''=1")
def test_writing_is_injective_and_undone(one, other):
    assert restored(as_written(one)) == one
    assert (as_written(one) == as_written(other)) is (one == other)
    assert safe_rows([[as_written(one)]], False)[2] == []


def table(labels):
    """A file of a column of labels and one of numbers, made safe, and the labels that are read from it."""
    frame = pd.DataFrame({"=name": labels, "n": [-1.5] * len(labels)})
    head, written, found = safe_frame(frame, True)
    assert found == [] and list(written["n"]) == list(frame["n"])
    return head + written.to_csv(index=False, lineterminator="\n")


LABELS = st.text(st.sampled_from("'=+-@ab1"), min_size=1, max_size=5)


@pytest.mark.filterwarnings("ignore:levels like others")
@settings(max_examples=30)
@given(st.lists(LABELS, min_size=2, max_size=5, unique=True))
def test_files_made_safe_are_read_back(tmp_path_factory, labels):
    path = tmp_path_factory.mktemp("safe") / "t.csv"
    path.write_text(table(labels), encoding="utf-8")
    read = Observations.from_csv(path)
    assert (read.domain.names[0], read.to_pandas()["=name"].astype(str).tolist()) == ("=name", labels)


def test_files_without_the_mark_are_read_as_they_are(tmp_path):
    path = tmp_path / "t.csv"
    text = table(["=1+1", "'=1"])
    assert text.startswith(MARK)
    path.write_text(text.partition("\n")[2], encoding="utf-8")
    assert Observations.from_csv(path).domain["'=name"].labels == ("''=1", "'=1+1")
    path.write_text(f"# {MARK}\n" + text.partition("\n")[2], encoding="utf-8")
    assert Observations.from_csv(path).domain["'=name"].labels == ("''=1", "'=1+1")


def test_a_spreadsheet_that_saves_the_file_keeps_the_mark(tmp_path):
    path = tmp_path / "t.csv"
    first, _, rest = table(["=1+1", "'=1"]).partition("\n")
    path.write_text(f"{first};\n" + rest.replace(",", ";"), encoding="utf-8")
    assert Observations.from_csv(path).domain["=name"].labels == ("'=1", "=1+1")


def test_frames_count_every_cell_and_stay_as_they_are():
    frame = pd.DataFrame(
        {"a": pd.Categorical(["=1", "x", None, "=1"]), "b": [-1, -2, -3, -4], "c": ["+a", "", "b", "-2"]}
    )
    head, same, found = safe_frame(frame, False)
    assert head == "" and same is frame and sorted(found) == ["+a", "=1", "=1"]
    before = frame.copy()
    head, made, found = safe_frame(frame, True)
    assert head == f"{MARK}\n" and found == [] and frame.equals(before)
    rows = list(csv.reader(io.StringIO(made.to_csv(index=False))))
    assert rows == [["a", "b", "c"], ["'=1", "-1", "'+a"], ["x", "-2", ""], ["", "-3", "b"], ["'=1", "-4", "-2"]]
    assert safe_frame(frame[["b"]], True)[0] == ""


def test_tables_of_a_page(tmp_path):
    section = Section("Terms")
    section.table(["term", "gain"], [["=sex:age", -0.25]])
    page = Page("Survey", {}, ["=sex", "age"], [], [], [], [section], 0)
    with pytest.warns(DataWarning, match="would run 1 cell of the CSV written, such as '=sex:age'; safe_csv=True"):
        write_page(page, tmp_path)
    assert (tmp_path / "tables/terms.csv").read_text() == "term,gain\n=sex:age,-0.25\n"
    write_page(page, tmp_path, safe_csv=True)
    assert (tmp_path / "tables/terms.csv").read_text() == f"{MARK}\nterm,gain\n'=sex:age,-0.25\n"
