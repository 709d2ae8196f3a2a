"""Known cells of probability zero: an error where rows are drawn, no prediction where rows are predicted."""

import itertools
import json
import math
import shlex
from pathlib import Path

import pandas as pd
import pytest

from pyro_hoim import fit
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


def test_chains_that_do_not_reach_every_state_are_told_once(shell, monkeypatch):
    """Thirteen columns in one half of their levels, too many states for a block of chains, drawn in three portions."""
    names = [f"c{k:02d}" for k in range(13)]
    rows = pd.DataFrame([[2 * (k % 2) + k // 2 % 2] * 13 for k in range(48)], columns=names)
    halves = [(k, m) for k, m in itertools.product(range(4), repeat=2) if k // 2 != m // 2]
    zeros = [{a: k, b: m} for a, b in itertools.pairwise(names) for k, m in halves]
    fit(" + ".join(names), rows, structural_zeros=zeros).save("halves.safetensors")
    monkeypatch.setattr("pyro_hoim.study.command.family._PORTION", 5)
    shown = shell("sample", "halves.safetensors", "-n", "15", "--method", "gibbs")
    assert shown.err.count("do not reach every possible state") == 1
    assert all(len({int(cell) // 2 for cell in line.split(",")}) == 1 for line in shown.out.splitlines()[1:])


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


HEALTH = """sex,pregnant,"seen, when",count
female,no,"never, yet",30
female,yes,"never, yet",12
female,no,once,9
female,yes,once,4
male,no,"never, yet",25
male,no,once,14
"""


def test_levels_that_are_impossible_together_are_said(shell):
    Path("health.csv").write_text(HEALTH)
    zeros = ("--structural-zeros", "sex=male,pregnant=yes")
    found = shell.json("fit", "health.csv", "--order", "1", *zeros, "--out", "m")
    # Six cells are possible, whose law has three parameters; "seen" has two of the degrees of freedom.
    assert (found["num_parameters"], found["goodness_of_fit"]["df"]) == (3, 2) and found["status"] == "converged"
    every = [f"{s},{p},{w}" for s in ("female", "male") for p in ("no", "yes") for w in ('"never, yet"', "once")]
    Path("every.csv").write_text("\n".join(['sex,pregnant,"seen, when"', *every]) + "\n")
    assert shell.json("score", "m/model.safetensors", "every.csv")["impossible_rows"] == 2
    drawn = shell("sample", "m/model.safetensors", "-n", "300").out.splitlines()
    assert any(row.startswith("female,yes") for row in drawn) and not any(row.startswith("male,yes") for row in drawn)
    told = shell.refused("sample", "m/model.safetensors", "-n", "3", "--given", "sex=male", "--given", "pregnant=yes")
    assert "probability zero in the model; give other values" in told
    # The control: the independent columns that know no zero expect pregnant men.
    free = shell.json("fit", "health.csv", "--order", "1", "--out", "free")
    # Where a fit found the zero itself, another prior has none.
    shell("fit", "health.csv", "--order", "2", "--out", "pairs")
    told = shell.refused("sample", "pairs", "-n", "3", "--given", "sex=male", "--given", "pregnant=yes")
    assert told.endswith("give other values, or fit with --prior unit")
    assert free["goodness_of_fit"]["deviance"] > found["goodness_of_fit"]["deviance"] + 10
    # A label may hold a comma, and a column may be named again for more of its levels.
    both = ("--structural-zeros", " seen, when = never, yet , seen, when=once, sex = male ,pregnant= yes ")
    again = shell.json("fit", "health.csv", "--order", "1", *both, "--out", "again")
    assert again["goodness_of_fit"]["deviance"] == pytest.approx(found["goodness_of_fit"]["deviance"], abs=1e-9)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("sex=female,pregnant=yes",), "16 rows of data hold what is marked as impossible: (sex=female, pregnant=yes)"),
        (("sex",), "--structural-zeros: expected COL=LEVEL,..., received 'sex'; column 'sex' lacks its level"),
        (("sex=male,pregnant",), "received 'sex=male,pregnant'; column 'pregnant' lacks its level"),
        (("sex=, pregnant = yes",), "column 'sex' lacks its level"),
        (("sx=male",), "unknown variable 'sx'; did you mean 'sex'"),
        (("sex=male,pregant=yes",), "--structural-zeros: unknown variable 'pregant'; did you mean 'pregnant'"),
        (("sex=male, left=yes",), "--structural-zeros: unknown variable 'left'; known: 'sex'"),
        (("sex=male pregnant=yes",), "received 'sex=male pregnant=yes'; put a comma between the columns"),
        (('sex="male"',), "a level of 'sex', received '\"male\"'; write it without quotation marks"),
        (("sex=mael",), "--structural-zeros, column 'sex': unknown label 'mael'"),
        (("sex=male,pregnant=yes", "--prior", "conjugate:4"), "--prior: conjugate spreads rows over all cells"),
        (("sex=male,pregnant=yes", "--penalty", "l1:1"), "fits all interactions within norm balls"),
    ],
)
def test_zeros_that_cannot_be_taken_are_refused_in_a_line(words, expected, shell):
    Path("health.csv").write_text(HEALTH)
    assert expected in shell.refused("fit", "health.csv", "--structural-zeros", *words, "--out", "m")
    assert "belongs to pyro-hoim fit" in shell.refused("learn", "health.csv", "--structural-zeros", "sex=male")


def test_a_plan_and_the_first_line_of_a_fit_count_without_the_zeros(shell):
    """Six of eight rows are possible; the control plans and fits without zeros, and counts all."""
    Path("health.csv").write_text(HEALTH)
    zeros = ("--structural-zeros", "sex=male,pregnant=yes")
    plan = shell.json("plan", "health.csv", *zeros)
    pairs, learned = (next(r for r in plan["routes"] if r["name"] == name) for name in ("pairs", "learn"))
    assert "sex=male,pregnant=yes" in pairs["command"]
    assert not learned["is_open"]
    assert "rows possible" not in shell("plan", "health.csv").out
    for words, number in ((zeros, 6), ((), 8)):
        told = shell("fit", "health.csv", "--order", "1", *words, "--out", f"m{number}").err
        assert f", {number} possible rows" in told
    # The command that the plan gives runs as it stands.
    words = shlex.split(pairs["command"])[1:]
    assert shell.json(*words, "--out", "again")["num_parameters"] == 5
    assert "5 parameters, 6 of 8 rows possible" in shell("plan", "health.csv", *zeros).out


@pytest.mark.parametrize("words", ["sx=male", "sex", "sex=mael", "sex=male pregnant=yes"])
def test_a_plan_refuses_zeros_as_a_fit_does(words, shell):
    Path("health.csv").write_text(HEALTH)
    zeros = ("--structural-zeros", words)
    assert shell.refused("plan", "health.csv", *zeros) == shell.refused("fit", "health.csv", *zeros, "--out", "m")


def test_missing_cells_and_posteriors_leave_out_what_is_impossible(shell):
    Path("health.csv").write_text(HEALTH.replace("male,no,once,14", "male,,once,14"))
    zeros = ("--structural-zeros", "sex=male,pregnant=yes")
    shell.json("fit", "health.csv", "--order", "2", *zeros, "--missing", "marginalise", "--out", "m")
    Path("rows.csv").write_text('sex,pregnant,"seen, when"\nmale,,once\n')
    predicted = shell.json("predict", "m/model.safetensors", "rows.csv", "--target", "pregnant", "--out", "out.csv")
    assert predicted["predicted_rows"] == 1 and pd.read_csv("out.csv")["p(yes)"].tolist() == [0.0]
    Path("health.csv").write_text(HEALTH)
    chains = ("--posterior", "--num-chains", "2", "--num-draws", "60", "--burn-in", "60", "--jobs", "1")
    shell.json("fit", "health.csv", "--order", "1", *zeros, *chains, "--out", "p")
    import arviz

    tables = arviz.from_netcdf("p/posterior.nc")["posterior_predictive"]["table"].to_numpy()
    assert (tables[:, :, 1, 1] == 0).all() and (tables.sum((2, 3, 4)) == 94).all()


CREW, GIRLS = "Class=Crew,Age=Child", "Class=1st,Sex=Female,Age=Child"


@pytest.mark.parametrize("prior", [(), ("--prior", "normal:1")])
@pytest.mark.parametrize(("zeros", "number"), [((CREW,), 17), ((CREW, GIRLS), 17), ((), 18)])
def test_the_first_line_of_a_fit_counts_the_parameters_that_its_tables_count(zeros, number, prior, shell):
    """Three cells without girls of the first class still identify all pairs."""
    lines = [line for line in shell("data", "titanic").out.splitlines() if not line.startswith("1st,Female,Child")]
    Path("t.csv").write_text("\n".join(lines))
    options = [text for zero in zeros for text in ("--structural-zeros", zero)]
    shown = shell("fit", "t.csv", "--order", "2", *options, *prior, "--out", "o")
    assert f"fitting order 2: {number} parameters, " in shown.err
    fitted = json.loads(Path("o/fit.json").read_text())
    if zeros or prior:  # of an infinite estimate the rows identify fewer, which no one knows before the fit
        assert fitted["num_parameters"] == number
