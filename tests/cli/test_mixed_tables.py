"""Tables of several kinds of columns at the command line: families, labels, and numbers in the table's own units."""

import io
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from pyro_hoim import InputError, load
from pyro_hoim.cli import run
from pyro_hoim.generalized_root import (
    RootFile,
    RootModel,
    RootStructure,
    choose_families,
    load_roots,
    predict_roots,
    save_roots,
)
from pyro_hoim.generalized_root.mixed_table import FamilyWords, frame_of, table_of

MIXED = ["--model", "grm", "--order", "2", "--l1", "0.03", "--family", "auto", "--family", "visits=count"]


def made_frame(num=300):
    """Labels, 0/1, counts, positive and real numbers that share a cause."""
    rng = np.random.default_rng(11)
    z = rng.normal(size=num)
    return pd.DataFrame(
        {
            "smoker": np.where(rng.random(num) < 1 / (1 + np.exp(-z)), "yes", "no"),
            "age": (45 + 10 * z + rng.normal(0, 5, num)).round(1),
            "visits": rng.poisson(np.exp(0.5 * z)),
            "cost": (rng.exponential(np.exp(0.4 * z)) + 0.01).round(2),
        }
    )


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """Folder of a model of four columns, and its rows."""
    folder = tmp_path_factory.mktemp("mixed")
    made_frame().to_csv(folder / "rows.csv", index=False)
    assert run(["fit", str(folder / "rows.csv"), *MIXED, "--out", str(folder / "out")]) == 0
    return folder


@pytest.fixture(scope="module")
def stated(tmp_path_factory):
    """A model file with a category, whose coefficients are stated, with its columns and some rows."""
    folder = tmp_path_factory.mktemp("stated")
    frame = pd.DataFrame(
        {"region": ["north", "south", "west"] * 5, "ill": ["no", "yes", "no"] * 5, "age": np.arange(15) + 30.5}
    )
    columns = choose_families(frame, {"age": "real"})
    structure = RootStructure.mixed(columns.domain, [("region=north", "ill"), ("region=south", "age")])
    values = {("region=north",): 0.2, ("region=south",): -0.1, ("ill",): 0.3, ("age",): -0.02}
    psi = torch.tensor([values.get(names, 0.0) for _, names in structure.names], dtype=torch.float64)
    for place, (key, names) in enumerate(structure.names):
        if key == (2, 2):
            psi[place] = 0.4 if "ill" in names else 0.05
        if key == (2, 1):
            psi[place] = 0.01
    file = RootFile(structure, psi, columns.families, {"frame": columns.to_json()})
    save_roots(folder / "model.safetensors", file)
    frame.to_csv(folder / "rows.csv", index=False)
    return folder, frame, columns


def test_the_choice_is_said_and_kept_in_the_file(fitted, shell):
    shown = shell("fit", str(fitted / "rows.csv"), *MIXED, "--out", "again")
    assert "column smoker: 0/1 (0 = no, 1 = yes), as it has two values" in shown.err
    assert "column visits: count, as it was said to be one" in shown.err
    stored = load_roots(fitted / "out" / "model.safetensors")
    assert stored.columns.names == ("smoker", "age", "visits", "cost")
    assert [column.family.name for column in stored.columns.columns] == [
        "truncated-poisson",
        "gaussian",
        "poisson",
        "exponential",
    ]
    assert Path("again/model.safetensors").read_bytes() == (fitted / "out" / "model.safetensors").read_bytes()
    summary = json.loads((fitted / "out" / "fit.json").read_text())
    assert summary["baselines"]["independent"]["test"] > summary["pseudo_nll"]["test"]


def test_a_plan_names_the_command_that_cuts_no_number(fitted, shell):
    source = str(fitted / "rows.csv")
    words = f"Numbers need not be cut: pyro-hoim learn {source} --numbers families"
    assert words in shell("plan", source).out
    assert words in " ".join(shell.json("plan", source)["notes"])
    made_frame()[["smoker"]].assign(b=["x", "y", "z"] * 100).to_csv("labels.csv", index=False)
    assert "need not be cut" not in shell("plan", "labels.csv").out  # control


@pytest.mark.parametrize("command", ["learn", "fit"])
def test_a_refusal_of_numbers_says_how_they_are_kept(command, fitted, shell):
    refusal = shell.refused(command, str(fitted / "rows.csv"))
    assert "write --bins auto to cut age" in refusal
    assert refusal.rstrip().endswith("or learn with --numbers families to keep all values, in a root model")


def test_columns_that_may_be_codes_are_asked_for(fitted, shell):
    said = shell.refused("fit", str(fitted / "rows.csv"), "--model", "grm", "--family", "auto", progress=True)
    assert said.startswith("--family: columns may be codes") and "'visits' holds" in said
    assert "--family visits=category" in said and "families=" not in said


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["gamma"], "--family: expected poisson, truncated-poisson, exponential, gaussian, auto, or COL=FAMILY"),
        (["auto", "poisson"], "auto and poisson cannot both be the family"),
        (["age=real", "age=count"], "column 'age' has two families"),
        (["auto", "old=real"], "--family: unknown column 'old'"),
        (["smoker=count"], "column 'smoker': expected numbers"),
        (["visits=bounded:1"], "--family of 'visits': expected a column of two values"),
        (["visits=amount"], "--family of 'visits': expected binary, category, count"),
    ],
)
def test_wrong_words_of_families(words, says, fitted, shell):
    options = [word for text in words for word in ("--family", text)]
    said = shell.refused("fit", str(fitted / "rows.csv"), "--model", "grm", *options, progress=True)
    assert says in said


def test_words_of_families():
    alone = FamilyWords.parse(["age=real"], None)
    assert (alone.default, alone.one, alone.of(["age", "n"])) == ("auto", None, {"age": "real"})
    both = FamilyWords.parse(["truncated-poisson", "age=real"], 4)
    assert both.of(["age", "n"]) == {"n": "bounded:4", "age": "real"}
    assert FamilyWords.parse([], None).one.name == "poisson"
    with pytest.raises(InputError, match="COL=bounded:3"):
        FamilyWords.parse(["age=real"], 3)


def test_scores_and_predictions_are_those_of_the_library(fitted, shell):
    stored, frame = load_roots(fitted / "out" / "model.safetensors"), made_frame()
    model, table = RootModel.from_file(stored), table_of(stored.columns, frame, "rows")
    found = shell.json("score", str(fitted / "out"), str(fitted / "rows.csv"))
    assert found["pseudo_nll"] == pytest.approx(-model.log_pseudo_prob(table).mean())
    assert found["gain"] > 0 and found["log_z_kind"] == "exact" and found["kl"] is None
    assert found["parts"]["train"]["rows"] == 240
    # Labels: accuracy beside the majority, probabilities under the labels.
    labels = shell.json("predict", str(fitted / "out"), str(fitted / "rows.csv"), "--target", "smoker")
    expected = predict_roots(model, table, "smoker")
    assert expected.labels == ("no", "yes")
    assert labels["accuracy"] == expected.accuracy and labels["log_loss"] == expected.log_loss
    assert labels["majority_accuracy"] == pytest.approx(frame["smoker"].value_counts(normalize=True).max())
    assert set(labels["class_accuracy"]) == {"no", "yes"}
    # Numbers: in the units of the table, with intervals.
    out = Path("predicted.csv")
    numbers = shell.json("predict", str(fitted / "out"), str(fitted / "rows.csv"), "--target", "age", "--out", str(out))
    written = pd.read_csv(out)
    assert written["mean"].mean() == pytest.approx(frame["age"].mean(), abs=1.5)
    assert numbers["rmse"] == pytest.approx(np.sqrt(((written["mean"] - frame["age"]) ** 2).mean()))
    inside = written["lower"].le(frame["age"]) & frame["age"].le(written["upper"])
    assert numbers["coverage"] == pytest.approx(inside.mean()) and numbers["level"] == 0.95
    assert numbers["rmse"] < numbers["mean_rmse"]
    loaded = load(fitted / "out").predict(frame, "age")
    assert loaded["lower"].to_numpy() == pytest.approx(written["lower"].to_numpy())
    # Without its column, the same.
    frame.drop(columns="age").to_csv("unknown.csv", index=False)
    shell("predict", str(fitted / "out"), "unknown.csv", "--target", "age", "--out", "unknown_out.csv")
    assert pd.read_csv("unknown_out.csv")["mean"].to_numpy() == pytest.approx(written["mean"].to_numpy())


def test_unknown_labels_and_bad_cells_are_named(fitted, shell):
    frame = made_frame().astype(object)
    frame.loc[2, "smoker"] = "perhaps"
    frame.to_csv("bad.csv", index=False)
    said = shell.refused("score", str(fitted / "out"), "bad.csv")
    assert "bad.csv" in said and "'perhaps'" in said and "smoker" in said
    frame = made_frame().astype(object)
    frame.loc[1, "visits"] = 0.5
    frame.to_csv("bad.csv", index=False)
    assert "column 'visits'" in shell.refused("score", str(fitted / "out"), "bad.csv")
    frame.loc[1, "visits"] = None
    frame.to_csv("bad.csv", index=False)
    said = shell.refused("score", str(fitted / "out"), "bad.csv")
    assert "'visits' (1)" in said and "exclude=" not in said and "dropna" not in said
    made_frame().drop(columns="cost").to_csv("bad.csv", index=False)
    assert "'cost'" in shell.refused("predict", str(fitted / "out"), "bad.csv", "--target", "age")


def test_rows_are_drawn_with_labels(stated, shell):
    folder, _, _ = stated
    shown = shell("sample", str(folder), "-n", "60", "--given", "region=south", "--given", "ill=yes")
    drawn = pd.read_csv(io.StringIO(shown.out))
    assert list(drawn) == ["region", "ill", "age"]
    assert set(drawn["region"]) == {"south"} and set(drawn["ill"]) == {"yes"}
    assert abs(drawn["age"].mean() - 40) < 40  # years, not distances from the origin
    shown = shell("sample", str(folder), "-n", "40", "--given", "age=33.5")
    drawn = pd.read_csv(io.StringIO(shown.out))
    assert set(drawn["region"]) <= {"north", "south", "west"} and drawn["age"].tolist() == [33.5] * 40
    said = shell.refused("sample", str(folder), "-n", "1", "--given", "region=noth")
    assert "'north'" in said and "noth" in said
    assert shell.refused("sample", str(folder), "-n", "1", "--given", "age=old").startswith(
        "--given age=old: expected a number"
    )


def test_a_category_is_one_column_everywhere(stated, shell):
    folder, frame, columns = stated
    found = shell.json("predict", str(folder), str(folder / "rows.csv"), "--target", "region")
    model = RootModel.from_file(load_roots(folder / "model.safetensors"))
    expected = predict_roots(model, table_of(columns, frame, "rows"), "region")
    assert expected.labels == ("north", "south", "west")
    assert (found["accuracy"], found["log_loss"]) == (expected.accuracy, pytest.approx(expected.log_loss))
    listed = shell.json("interactions", str(folder))["interactions"]
    assert {tuple(row["edge"]) for row in listed} == {("region", "ill"), ("region", "age")}
    assert {row["levels"]["region"] for row in listed} == {"north", "south"}
    top = shell("interactions", str(folder), "--top", "1").out
    assert "region=north:ill" in top and "1 more interaction" in top
    loaded = load(folder).predict(frame, "region")
    assert loaded["p(north)"].to_numpy() == pytest.approx(expected.probs[:, 0].numpy())
    assert load(folder).sample(3, given={"region": "west"})["region"].tolist() == ["west"] * 3


def test_json_of_a_fit_names_columns_and_levels(shell):
    frame = made_frame(200).assign(region=np.array(["north", "south", "west"])[np.arange(200) % 3])
    frame.to_csv("rows.csv", index=False)
    found = shell.json("fit", "rows.csv", *MIXED, "--out", "out")
    names = set(frame)
    assert all(set(edge) <= names for edge in found["edges"]) and len(found["edges"]) == found["num_interactions"]
    terms = [*found["singles"], *found["interactions"]]
    assert all(
        set(term["edge"]) <= names and ("region" in term["levels"]) == ("region" in term["edge"]) for term in terms
    )
    assert {"north", "south", "west"} == {t["levels"]["region"] for t in found["singles"] if t["edge"] == ["region"]}
    assert "region=" not in json.dumps([terms, found["edges"]])  # no name of an indicator


def test_margins_of_columns_that_are_fixed_or_real_are_refused_before_draws(stated, shell, monkeypatch):
    folder, _, _ = stated
    found = shell.json("margins", str(folder), "region", "--given", "ill=yes", "--num-draws", "200")
    assert sum(cell["probability"] for cell in found["cells"]) == pytest.approx(1.0)
    monkeypatch.setattr("pyro_hoim.core.command.answers._draws", lambda *_: pytest.fail("drew rows"))
    said = shell.refused("margins", str(folder), "region", "--given", "region=north")
    assert said == "--given: fixes 'region', whose distribution is asked for"
    said = shell.refused("margins", str(folder), "region", "age")
    assert said.endswith("columns of real numbers have no table of probabilities; draw rows by sample")


def test_margins_of_categories_whose_codes_are_written_with_decimals(shell):
    frame = pd.DataFrame({"grade": [1.0, 2.0, 3.0] * 5, "ill": [0.0, 1.0, 1.0] * 5})
    columns = choose_families(frame, {"grade": "category"})
    structure = RootStructure.mixed(columns.domain, [])
    psi = torch.zeros(structure.num_terms, dtype=torch.float64)
    save_roots("model.safetensors", RootFile(structure, psi, columns.families, {"frame": columns.to_json()}))
    cells = shell.json("margins", "model.safetensors", "grade", "ill", "--num-draws", "1000")["cells"]
    assert {tuple(cell["levels"]) for cell in cells} == {(grade, ill) for grade in "123" for ill in "01"}
    assert shell.refused("margins", "model.safetensors").endswith("no table of levels; name some columns")


def test_log_z_out_of_reach_is_said_in_options_alone(shell):
    names = [f"v{i}" for i in range(30)]
    columns = choose_families(pd.DataFrame({name: ["no", "yes"] * 9 for name in names}))
    structure = RootStructure.complete(columns.domain, 2)
    file = RootFile(structure, torch.zeros(structure.num_terms) + 0.01, columns.families, {"frame": columns.to_json()})
    save_roots("dense.safetensors", file)
    said = shell.refused("log-z", "dense.safetensors")
    assert "--method ais estimates log Z" in said and "Root" not in said


def test_log_z_names_how_it_was_found(stated, fitted, shell):
    assert "(exact, " in shell("log-z", str(fitted / "out")).out
    assert shell.json("log-z", str(stated[0]))["method"]


def test_cells_of_a_file_are_numbers_where_all_are(tmp_path):
    from pyro_hoim.data.files.table_file import read_table_file

    path = tmp_path / "cells.csv"
    path.write_text("whole,part,code,text,gap\n1,1,007,a,1\n2,2.5,010,b,\n3,3,3,1,2\n")
    cells = read_table_file(path)
    frame = frame_of(cells, cells.header)
    assert [str(dtype) for dtype in frame.dtypes] == ["int64", "float64", "object", "object", "float64"]
    assert frame["gap"].isna().tolist() == [False, True, False]


def test_counted_rows_of_a_mixed_table(shell):
    frame = made_frame(120)
    frame.assign(count=2).to_csv("counted.csv", index=False)
    pd.concat([frame.loc[i:i] for i in range(120) for _ in range(2)]).to_csv("long.csv", index=False)
    options = [*MIXED, "--split", "1,0,0"]
    both = [shell.json("fit", name, *options, "--out", name[:-4]) for name in ("counted.csv", "long.csv")]
    assert both[0]["rows"] == both[1]["rows"] and both[0]["rows"]["train"] == 240
    assert both[0]["pseudo_nll"]["train"] == pytest.approx(both[1]["pseudo_nll"]["train"])
    scored = [shell.json("score", "counted", name) for name in ("counted.csv", "long.csv")]
    assert scored[0]["pseudo_nll"] == pytest.approx(scored[1]["pseudo_nll"]) and scored[0]["rows"] == 240
