"""Labels that training never saw: counted where rows are scored and predicted, levels where ``fit`` is told of them."""

import json
import math
from pathlib import Path

import pandas as pd
import pytest

from pyro_hoim.log_linear import load_model

ROWS = "a,b\n" + "x,u\n" * 6 + "x,v\n" * 2 + "y,u\n" * 3 + "y,v\n" * 4


@pytest.fixture(autouse=True)
def folder():
    Path("rows.csv").write_text(ROWS, encoding="utf-8")
    Path("new.csv").write_text("a,b,count\nx,u,2\nz,u,3\nx,v,1\ny,w,1\nz,w,1\n", encoding="utf-8")
    Path("known.csv").write_text("a,b,count\nx,u,2\nx,v,1\n", encoding="utf-8")


MODELS = {"log-linear": [], "dependency-network": ["--model", "dependency-network", "--split", "1,0,0"]}
UNSEEN = {"unseen_label_rows": 5, "unseen_labels": {"a": ["z"], "b": ["w"]}}


@pytest.mark.parametrize("options", MODELS.values(), ids=list(MODELS))
def test_rows_with_unseen_labels_are_counted_and_left_out(options, shell):
    shell("fit", "rows.csv", *options, "--out", "model")
    found = shell.json("score", "model", "new.csv")
    assert {name: found[name] for name in UNSEEN} == UNSEEN and found["rows"] == 3
    known = shell.json("score", "model", "known.csv")
    assert found == {**known, **UNSEEN}
    assert known["unseen_label_rows"] == 0 and known["unseen_labels"] == {}
    text = shell("score", "model", "new.csv").out
    assert "rows left out       5 with a label that the fit did not know (a: z; b: w)" in text
    assert "would be infinite" in text and "--levels-from" in text
    assert "left out" not in shell("score", "model", "known.csv").out
    predicted = shell.json("predict", "model", "new.csv", "--target", "b")
    same = shell.json("predict", "model", "known.csv", "--target", "b")
    assert predicted == {**same, **UNSEEN}


def test_predictions_stand_beside_the_rows_of_the_file(shell):
    shell("fit", "rows.csv", "--out", "model")
    text = shell("predict", "model", "new.csv", "--target", "b", "--out", "found.csv").out
    assert "they have no prediction" in text and "2 predictions written" in text
    frame = pd.read_csv("found.csv", skip_blank_lines=False)
    assert frame["predicted"].isna().tolist() == [False, True, False, True, True]
    assert frame.loc[0, "p(u)"] == pytest.approx(6 / 8) and frame.loc[2, "p(u)"] == pytest.approx(6 / 8)


@pytest.mark.parametrize("options", MODELS.values(), ids=list(MODELS))
def test_rows_with_unseen_labels_are_not_completed(options, shell):
    shell("fit", "rows.csv", *options, "--out", "model")
    Path("gaps.csv").write_text("a,b\nx,\nz,\n,v\ny,w\n", encoding="utf-8")
    Path("known_gaps.csv").write_text("a,b\nx,\n,v\n", encoding="utf-8")
    found = shell("sample", "model", "-n", "1", "--complete", "gaps.csv")
    assert "rows left out       2 with a label that the fit did not know (a: z; b: w)" in found.err
    assert "they are not completed and not written" in found.err and "left out" not in found.out
    same = shell("sample", "model", "-n", "1", "--complete", "known_gaps.csv")
    assert same.out == found.out and "left out" not in same.err
    Path("other.csv").write_text("a,b\nz,\n", encoding="utf-8")
    assert "'z'" in shell.refused("sample", "model", "-n", "1", "--complete", "other.csv")


def test_a_file_of_unseen_labels_only_is_refused(shell):
    shell("fit", "rows.csv", "--out", "model")
    Path("other.csv").write_text("a,b\nz,u\nx,w\n", encoding="utf-8")
    words = shell.refused("score", "model", "other.csv")
    assert "line 2" in words and "'z'" in words


def levels_json():
    Path("levels.json").write_text(json.dumps({"a": ["z", "y", "x"], "b": ["u", "v", "w"]}), encoding="utf-8")
    return ["--levels", "levels.json"]


def levels_csv():
    lines = ["column,level", "a,z", "a,y", "a,x", "b,u", "b,v", "b,w"]
    Path("levels.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return ["--levels", "levels.csv"]


@pytest.mark.parametrize(
    ("make", "labels"),
    [
        (levels_json, ("z", "y", "x")),
        (levels_csv, ("z", "y", "x")),
        (lambda: ["--levels-from", "new.csv"], tuple("xyz")),
    ],
    ids=["json", "csv", "rows"],
)
def test_levels_given_at_fit_have_a_probability_under_a_prior(make, labels, shell):
    """Oracle: under conjugate:N of the saturated model, cell probabilities are (count + N / 9) / (rows + N)."""
    options = ["--order", "2", "--prior", "conjugate:9", "--out", "model"]
    text = shell("fit", "rows.csv", *make(), *options).out
    assert "Levels that no row has: a=z, b=w." in text and "probability zero" in text
    assert load_model("model/model.safetensors").hypergraph.domain["a"].labels == labels
    found = shell.json("score", "model", "new.csv")
    probability = {"xu": 7 / 24, "zu": 1 / 24, "xv": 3 / 24, "yw": 1 / 24, "zw": 1 / 24}
    weights = {"xu": 2, "zu": 3, "xv": 1, "yw": 1, "zw": 1}
    nll = -sum(weights[cell] * math.log(p) for cell, p in probability.items()) / 8
    assert found["unseen_label_rows"] == 0 and found["rows"] == 8 and found["nll"] == pytest.approx(nll, rel=1e-6)


def test_without_a_prior_rows_of_a_given_level_are_impossible(shell):
    shell("fit", "rows.csv", *levels_json(), "--order", "1", "--out", "model")
    found = shell.json("score", "model", "new.csv")
    assert found["unseen_label_rows"] == 0 and found["impossible_rows"] == 5 and found["nll"] is None


def test_a_network_smooths_given_levels(shell):
    options = [*MODELS["dependency-network"], *levels_json(), "--out", "model"]
    shell("fit", "rows.csv", *options)
    found = shell.json("score", "model", "new.csv")
    assert found["rows"] == 8 and found["unseen_label_rows"] == 0 and math.isfinite(found["pseudo_nll"])


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{"a": ["x"]}', "'a', but y of the rows is missing"),
        ('{"c": ["x"]}', "'c'"),
        ('{"a": ["x", "y", "x"]}', "'x'"),
        ('["x"]', 'expected {"column": ["level", ...]}'),
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ('{"a": [' + "9" * 5000 + "]}", "is not JSON"),
    ],
)
def test_bad_levels_are_refused(content, words, shell):
    Path("levels.json").write_text(content, encoding="utf-8")
    error = shell.refused("fit", "rows.csv", "--levels", "levels.json")
    assert words in error and "--levels" in error


def test_other_levels_files_are_refused(shell):
    Path("levels.csv").write_text("name,label\na,x\n", encoding="utf-8")
    assert "column, level" in shell.refused("fit", "rows.csv", "--levels", "levels.csv")
    Path("far.csv").write_text("q\n1\n", encoding="utf-8")
    assert "expected columns of the table" in shell.refused("fit", "rows.csv", "--levels-from", "far.csv")
    error = shell.refused("fit", "rows.csv", "--model", "grm", "--levels", "levels.csv")
    assert "--levels: belongs to --model" in error
