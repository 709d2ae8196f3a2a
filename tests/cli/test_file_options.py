"""Cut points, counts and encodings of a fit hold for the files of later commands; nothing is taken silently."""

import json
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pyro_hoim import InteractionHypergraph, load
from pyro_hoim.core.command.rows import warn_of_columns, warn_of_size, warn_of_uniform
from pyro_hoim.data import Bins, Observations, bin_columns
from pyro_hoim.errors import DataWarning

RANDOM = np.random.default_rng(5)
AGE = RANDOM.integers(18, 90, 300)
ILL = np.where(AGE + RANDOM.normal(0, 15, 300) > 60, "y", "n")
PEOPLE = pd.DataFrame({"age": AGE, "sex": RANDOM.choice(["m", "f"], 300), "ill": ILL})
CUT = ("--bins", "age=quantile:3")


def written(name="t.csv", frame=PEOPLE, **options):
    frame.to_csv(name, index=False, **options)
    return name


@pytest.mark.parametrize("family", [["--order", "2"], ["--model", "dependency-network", "--split", "1,0,0"]])
def test_cut_points_serve_raw_numbers_of_other_files(family, shell):
    shell("fit", written(), *family, *CUT, "--out", "o")
    held = load("o").info["reading"]["bins"]["age"]
    cut = bin_columns(PEOPLE, {"age": "quantile:3"})
    assert Bins.from_json(held) == cut.attrs["bins"]["age"]
    assert "was cut at" in Path("o/report.html").read_text(encoding="utf-8")
    new = PEOPLE.head(40).assign(age=[5, 99] * 20)
    written("raw.csv", new)
    written("cut.csv", bin_columns(new, cut.attrs["bins"]))
    for name in ("raw", "cut"):
        shell("predict", "o", f"{name}.csv", "--target", "ill", "--out", f"{name}.out")
    raw, levels = (pd.read_csv(f"{name}.out").drop(columns="age") for name in ("raw", "cut"))
    assert raw.equals(levels)
    assert shell.json("score", "o", "raw.csv")["nll"] == shell.json("score", "o", "cut.csv")["nll"]
    other = shell.json("score", "o", written("other.csv", new.assign(age=50)))  # control: the numbers matter
    assert other["pseudo_nll"] != shell.json("score", "o", "raw.csv")["pseudo_nll"]
    assert shell.json("score", "o", "t.csv")["parts"]["train"]["rows"] == 300  # the rows are known again


def test_gaps_of_a_cut_column_are_completed(shell):
    shell("fit", written(), "--order", "2", *CUT, "--out", "o")
    written("gaps.csv", PEOPLE.head(5).assign(age=[20, None, 30.5, None, 80]))
    filled = shell("sample", "o", "--complete", "gaps.csv").out.splitlines()[1:]
    starts = [start for label in load("o").domain["age"].labels for start in (label, f'"{label}')]
    assert len(filled) == 5
    assert all(line.startswith(tuple(starts)) for line in filled)


def test_counts_and_weights_of_a_fit_are_those_of_its_files(shell):
    cells = PEOPLE.groupby(["sex", "ill"], as_index=False).size().rename(columns={"size": "Freq"})
    shell("fit", written(frame=cells), "--count", "Freq", "--order", "2", "--out", "o")
    assert json.loads(Path("o/fit.json").read_text())["rows"]["train"] == 300
    assert shell.json("score", "o", "t.csv")["rows"] == 300
    written("rows.csv", PEOPLE[["sex", "ill"]])
    nll = shell.json("score", "o", "t.csv")["nll"]
    assert shell.json("score", "o", "rows.csv")["nll"] == pytest.approx(nll, rel=1e-12)
    shell("fit", "t.csv", "--weights", "Freq", "--order", "2", "--out", "w")
    assert shell.json("score", "w", "rows.csv")["nll"] == pytest.approx(nll, rel=1e-9)
    shell("fit", "t.csv", "--count", "none", "--columns", "sex,ill", "--order", "1", "--out", "n")
    assert json.loads(Path("n/fit.json").read_text())["rows"]["train"] == 4


def test_options_that_do_not_fit_are_refused(shell):
    shell.refused("fit", "titanic", "--sep", ";", says=["--sep: belongs to a table of text, received titanic"])
    shell.refused("fit", "titanic", "--count", "Age", says=["--count"])
    written()
    shell.refused("fit", "t.csv", "--bins", "age", says=["--bins: expected auto, RULE or COLUMN=RULE"])
    shell.refused("fit", "t.csv", "--bins", "agee=width:5", says=["--bins: unknown column 'agee'; did you mean 'age'"])
    shell.refused("fit", "t.csv", "--bins", "sex=width:5", says=["line 2: expected a number in column 'sex'"])
    shell.refused("fit", "t.csv", "--allow", "agee", says=["--allow: unknown column 'agee'; did you mean 'age'"])
    shell.refused("fit", "t.csv", "--count", "x", says=["--count: unknown column 'x'"])
    shell.refused("fit", "t.csv", "--count", "age", "--weights", "sex", says=["--weights"])
    shell.refused("fit", "t.csv", "--encoding", "utf-88", says=["--encoding"])
    shell.refused("fit", "t.csv", "--model", "grm", *CUT, says=["--bins: has no use with --model grm"])


def test_embedded_tables_are_files(shell):
    shell("fit", "titanic", "--order", "2", "--out", "o")
    found = shell.json("score", "o", "titanic")
    assert (found["rows"], found["parts"]["train"]["rows"]) == (2201, 2201)


def rows_of(**columns):
    return Observations.from_pandas(pd.DataFrame(columns))


def test_warnings():
    rows = rows_of(a=[0, 1, 0], year=[2024] * 3)
    with pytest.warns(DataWarning, match="constant column, which no interaction can hold: year"):
        warn_of_columns(rows)
    with pytest.warns(DataWarning, match="4 parameters for 3 rows"):
        warn_of_size(rows, 4)
    with pytest.warns(DataWarning, match="the model has no term of year: their levels are taken as equally frequent"):
        warn_of_uniform(InteractionHypergraph(rows.domain, [("a",)]), "the model")
    warn_of_size(rows, 3)
    warn_of_columns(rows.project(["a"]))
    warn_of_uniform(InteractionHypergraph.from_order(rows.domain, 1), "the model")


def test_what_a_hint_says_can_be_pasted_into_a_shell(shell):
    rows = [("the number", "b"), *((f"n{i}", "xy"[i % 2]) for i in range(40))]
    Path("t.csv").write_text("".join(f"{a},{b}\n" for a, b in rows))
    told = shell.refused("fit", "t.csv", "--columns", "the number,b", says=["--allow 'the number'"])
    shell("fit", "t.csv", "--order", "1", *shlex.split(told[told.index("--allow") :])[:2], "--out", "o")
    assert load("o").domain.names == ("the number", "b")
    Path("t.csv").write_text("the age,b\n" + "".join(f"{a},{'xy'[a % 2]}\n" for a in AGE))
    told = shell.refused("fit", "t.csv", says=["--bins auto to cut the age at", "--exclude 'the age' to leave it out"])
    shell("fit", "t.csv", "--order", "1", *shlex.split(told[told.index("--exclude") :])[:2], "--out", "o2")
    assert load("o2").domain.names == ("b",)
