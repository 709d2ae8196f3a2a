"""Known cells of probability zero: an error where rows are drawn, no prediction where rows are predicted."""

import math
from pathlib import Path

import pandas as pd
import pytest

from pyro_hoim.cli import run

ROWS = "Class,Sex,Age,Survived\nCrew,Male,Child,No\n1st,Male,Adult,Yes\nCrew,Male,Adult,Yes\n"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Pairs of titanic, in which no child was of the crew."""
    folder = tmp_path_factory.mktemp("titanic")
    assert run(["fit", "titanic", "--order", "2", "--out", str(folder / "m"), "--json"]) == 0
    return str(folder / "m" / "model.safetensors")


@pytest.fixture(autouse=True)
def rows():
    Path("rows.csv").write_text(ROWS)


def test_rows_are_not_drawn_given_what_cannot_be(model, shell):
    told = shell.refused("sample", model, "-n", "3", "--given", "Class=Crew", "--given", "Age=Child")
    assert "--given: Class=Crew, Age=Child has probability zero in the model" in told
    # The control.
    assert shell("sample", model, "-n", "3", "--given", "Class=Crew", "--given", "Age=Adult").out.count("Crew") == 3


def test_such_rows_are_not_completed(model, shell):
    Path("gaps.csv").write_text("Class,Sex,Age,Survived\nCrew,,Child,No\n1st,Male,Adult,\n")
    shown = shell("sample", model, "-n", "1", "--complete", "gaps.csv")
    assert "not filled: 1 row whose known cells have probability zero together" in shown.err
    first, second = shown.out.splitlines()[1:]
    assert first == "Crew,,Child,No" and second in ("1st,Male,Adult,No", "1st,Male,Adult,Yes")


def test_a_row_whose_other_cells_cannot_be_gets_no_prediction(model, shell):
    found = shell.json("predict", model, "rows.csv", "--target", "Survived", "--out", "out.csv")
    assert (found["rows"], found["predicted_rows"], found["impossible_rows"], found["kind"]) == (2, 2, 1, "exact")
    assert math.isfinite(found["log_loss"])
    written = pd.read_csv("out.csv")
    assert written["predicted"].isna().tolist() == [True, False, False]
    assert written["p(No)"].isna().tolist() == [True, False, False]
    assert written["is_exact"].tolist() == [False, True, True]


def test_the_target_itself_may_be_what_cannot_be(model, shell):
    found = shell.json("predict", model, "rows.csv", "--target", "Age")
    assert (found["predicted_rows"], found["impossible_rows"]) == (3, 0)


def test_a_reader_is_told_how_many(model, shell):
    told = shell("predict", model, "rows.csv", "--target", "Survived").out
    assert "not predicted      1 row whose other cells have probability zero together" in told


def test_a_column_of_which_every_level_is_excluded(shell):
    """a=0 was never seen with b=1, and a=1 never with c=1: given b=1 and c=1 nothing is left for a."""
    lines = [f"{a},{b},{c}" for a in "01" for b in "01" for c in "01" if (a, b) != ("0", "1") and (a, c) != ("1", "1")]
    Path("t.csv").write_text("a,b,c\n" + "\n".join(lines * 5) + "\n")
    shell("fit", "t.csv", "--edges", "a*b + a*c", "--out", "m")
    told = shell.refused("sample", "m", "-n", "2", "--given", "b=1", "--given", "c=1")
    assert "b=1, c=1 has probability zero" in told
