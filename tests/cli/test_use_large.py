"""``predict``, ``sample --complete``, ``score`` and ``interactions`` of models beyond and within exact reach."""

import math
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from command_line import save_random, stored

from pyro_hoim import Domain, InteractionHypergraph, Observations
from pyro_hoim.information.removal import removal_values
from pyro_hoim.log_linear import ModelFile, predict, save_model
from pyro_hoim.testing import assert_exact_law, exact_table, required_draws

LARGE, SMALL = "large.safetensors", "small.safetensors"


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A folder with a model of 2.4e14 states with all pairs and 14 triples, and one of 24 states."""
    folder = tmp_path_factory.mktemp("models")
    cards = [2, 6, 4, 10, 2, 9, 2, 2, 2, 12, 2, 5, 4, 4, 9, 9, 1, 4, 3, 5, 9, 6, 7]
    pairs = InteractionHypergraph.from_order(Domain.from_cardinalities(cards), 2)
    triples = [(f"x{i}", f"x{i + 1}", f"x{i + 2}") for i in range(14)]
    save_random(folder / LARGE, pairs.add_edges(triples), 0.1)
    save_random(folder / SMALL, InteractionHypergraph.from_order(Domain.from_cardinalities([2, 3, 2, 2]), 2), 0.5)
    return folder


@pytest.fixture(autouse=True)
def copies(models, tmp_path):
    """Both models in the folder of a test."""
    shutil.copytree(models, tmp_path, dirs_exist_ok=True)


def write_rows(name, number, missing=None, drop=None):
    """A file with rows over the large model, columns emptied or left out."""
    generator = np.random.default_rng(0)
    domain = stored(LARGE).domain
    frame = pd.DataFrame({v.name: generator.choice(v.labels, number) for v in domain})
    for column in missing or []:
        frame[column] = ""
    frame.drop(columns=[drop] if drop else []).to_csv(name, index=False)
    return frame


def test_predict_with_a_large_model(shell):
    assert stored(LARGE).domain.num_states > 2e14
    write_rows("rows.csv", 300)
    result = shell.json("predict", LARGE, "rows.csv", "--target", "x9")
    data = Observations.from_csv("rows.csv", domain=stored(LARGE).domain)
    expected = predict(stored(LARGE), data, "x9")
    assert result["accuracy"] == expected.accuracy and result["log_loss"] == pytest.approx(expected.log_loss)
    assert result == {**result, "rows": 300, "predicted_rows": 300, "approximate_rows": 0, "kind": "exact"}
    assert set(result["class_accuracy"]) == set(data.domain["x9"].labels)
    out, errors = shell("predict", LARGE, "rows.csv", "--target", "x9", "--out", "found.csv")
    assert "log loss" in out and "300 predictions written to found.csv" in out and errors == ""
    frame = pd.read_csv("found.csv", dtype={"predicted": str})
    assert tuple(frame["predicted"]) == expected.labels_predicted
    np.testing.assert_allclose(frame.filter(like="p(").to_numpy(), expected.probs.numpy(), rtol=1e-12)


def test_predict_with_missing_cells(shell):
    write_rows("few.csv", 5, missing=["x0", "x1", "x4"])
    assert shell.json("predict", LARGE, "few.csv", "--target", "x8")["kind"] == "exact"
    write_rows("many.csv", 5, missing=[f"x{i}" for i in range(2, 20) if i != 8])
    arguments = ["predict", LARGE, "many.csv", "--target", "x8"]
    result = shell.json(*arguments)
    assert result["kind"] == "biased" and result["approximate_rows"] == 5
    assert shell.json(*arguments) == result and shell.json(*arguments, "--seed", "1")["log_loss"] != result["log_loss"]
    _, errors = shell(*arguments)
    assert errors.startswith("pyro-hoim: note: 5 rows were predicted approximately") and errors.count("\n") == 1
    shell.refused(*arguments, "--method", "exact", says=["rows that miss x2, x3", "cells"])


def test_predict_without_the_target_or_with_unknown_levels(shell):
    frame = write_rows("rows.csv", 40)
    write_rows("blind.csv", 40, drop="x3")
    result = shell.json("predict", LARGE, "blind.csv", "--target", "x3")
    assert result["accuracy"] is None and result["log_loss"] is None and result["rows"] == 0
    assert result["predicted_rows"] == 40 and set(result["class_accuracy"].values()) == {None}
    out, _ = shell("predict", LARGE, "blind.csv", "--target", "x3", "--out", "blind-found.csv")
    assert "not available (no row has a known value of the target)" in out
    shell("predict", LARGE, "rows.csv", "--target", "x3", "--out", "found.csv")
    found, blind = (pd.read_csv(name, dtype=str) for name in ("found.csv", "blind-found.csv"))
    pd.testing.assert_frame_equal(found.drop(columns="x3"), blind)
    shell.refused("predict", LARGE, "rows.csv", "--target", "x3", "--out", "found.csv", says=["exists"])
    write_rows("short.csv", 4, drop="x5")
    shell.refused("predict", LARGE, "short.csv", "--target", "x3", says=["'x5'"])
    for column in ("x3", "x4"):
        frame.assign(**{column: "new"}).to_csv("new.csv", index=False)
        shell.refused("predict", LARGE, "new.csv", "--target", "x3", says=["'new'", column, "line 2"])
        result = shell.json("predict", LARGE, "new.csv", "--target", "x3", "--missing", "new")
        assert result["rows"] == (0 if column == "x3" else 40) and result["predicted_rows"] == 40


def test_score_of_a_large_model_reports_the_error_of_log_z(shell):
    write_rows("rows.csv", 50, missing=["x0"])
    shell.refused("score", LARGE, "rows.csv", says=["--method ais"])
    write_rows("wide.csv", 10, missing=["x1", "x3", "x5", "x9", "x14"])  # 58,320 completions of every row
    cheap = ["--method", "ais", "--num-chains", "64", "--num-temperatures", "100"]
    result = shell.json("score", LARGE, "rows.csv", *cheap)
    assert result["log_z_kind"] == "biased" and 0 < result["log_z_std_error"] < 0.2
    assert 20 < result["nll"] < 50
    fewer = shell.json("score", LARGE, "wide.csv", *cheap)
    assert 15 < fewer["nll"] < result["nll"] and fewer["log_z_std_error"] == result["log_z_std_error"]
    assert math.isfinite(result["pseudo_nll"])
    out, _ = shell("score", LARGE, "rows.csv", *cheap)
    assert "log Z = " in out and "+-" in out


def test_completions_have_the_conditional_law(shell):
    Path("holes.csv").write_text("x0,x1,x2,x3,count\n0,,1,,1\n1,2,,0,1\n1,1,1,1,0\n", encoding="utf-8")
    number = required_draws(6, 0.05)
    model = stored(SMALL)
    law = np.exp(exact_table(model.hypergraph, model.tables.numpy()))
    for method in ("exact", "gibbs"):
        name = f"{method}.csv"
        arguments = ["sample", SMALL, "-n", str(number), "--complete", "holes.csv", "--method", method, "--out", name]
        out, errors = shell(*arguments)
        assert out == f"{2 * number:,} rows written to {name}\n"
        assert (errors == "") == (method == "exact") and "2 rows were filled" in (errors or "2 rows were filled")
        frame = pd.read_csv(name)
        assert list(frame.columns) == ["imputation", "x0", "x1", "x2", "x3"]
        first = frame[frame["x0"] == 0]
        assert len(first) == number and set(first["x2"]) == {1}
        counts = np.zeros((3, 2))
        np.add.at(counts, (first["x1"].to_numpy(), first["x3"].to_numpy()), 1)
        cells = law[0, :, 1, :]
        assert_exact_law(counts, cells / cells.sum())
        with pytest.raises(AssertionError):
            assert_exact_law(counts, law[1, :, 0, :] / law[1, :, 0, :].sum())


def test_completions_of_a_large_model(shell):
    frame = write_rows("holes.csv", 6, missing=[f"x{i}" for i in range(3, 20)])
    arguments = ["sample", LARGE, "-n", "1", "--complete", "holes.csv"]
    out, errors = shell(*arguments)
    assert "6 rows were filled approximately" in errors
    Path("filled.csv").write_text(out, encoding="utf-8")
    filled = pd.read_csv("filled.csv", dtype=str)
    assert list(filled.columns) == list(frame.columns) and not filled.isna().any(axis=None)
    for column in ("x0", "x1", "x2", "x20", "x21", "x22"):
        assert filled[column].tolist() == frame[column].tolist()
    best, _ = shell(*arguments, "--most-probable")
    assert best != out and best.count("\n") == 7
    shell.refused(*arguments, "--method", "exact", says=["rows that miss x3"])


def test_options_that_do_not_fit_are_refused(shell):
    Path("holes.csv").write_text("x0,x1,x2,x3\n0,,1,\n", encoding="utf-8")
    complete = ["sample", SMALL, "-n", "1", "--complete", "holes.csv"]
    shell.refused(*complete, "--given", "x0=1", says=["--given", "--complete"])
    shell.refused("sample", SMALL, "-n", "1", "--most-probable", says=["--most-probable", "--complete FILE"])
    shell.refused("sample", SMALL, "-n", "1", "--missing", "?", says=["--missing", "--complete FILE"])
    shell.refused("sample", SMALL, "-n", "0", "--complete", "holes.csv", says=["-n", "at least 1"])
    shell.refused("sample", SMALL, "-n", "2", *complete[4:], "--most-probable", says=["one most probable"])
    shell.refused("sample", SMALL, "-n", "1", "--complete", "none.csv", says=["none.csv", "no such file"])
    shell.refused(*complete, "--out", SMALL, says=["exists"])


def test_interactions_carry_their_refined_information(shell):
    rows = shell.json("interactions", SMALL)["interactions"]
    values = {v.edge: v.value for v in removal_values(stored(SMALL))}
    for row in rows:
        found = row["refined_information"]
        assert set(found) == {"value", "std_error", "kind"} and found["kind"] == "exact" and found["std_error"] == 0
        assert found["value"] == pytest.approx(values[tuple(row["edge"])], rel=1e-6, abs=1e-12)
    assert "refined_information" not in shell.json("interactions", SMALL, "--no-information")["interactions"][0]
    out, _ = shell("interactions", SMALL, "--top", "3")
    head, *lines = out.splitlines()
    assert "information" in head and lines[3] == "... 3 more interactions" and "<=" not in out
    assert lines[4:6] == ["", "Odds ratios, the most certain first"]


def test_interactions_of_a_large_model_are_bounded(shell):
    arguments = ["interactions", LARGE, "--top", "12", "--num-samples", "400"]
    rows = shell.json(*arguments)["interactions"]
    assert len(rows) == 12
    for row in rows:
        found = row["refined_information"]
        assert found["kind"] == "estimated upper bound" and 0 <= found["value"] < 2 and found["std_error"] > 0
    assert shell.json(*arguments)["interactions"] == rows
    assert shell.json(*arguments, "--seed", "1")["interactions"] != rows
    out, _ = shell(*arguments)
    assert out.count("<=") == 12


def test_a_family_of_corner_tables(shell):
    """Every command on its file, against the enumerated law; its interactions have no refined information."""
    domain = Domain.from_cardinalities([2, 3, 2])
    sets = [["x0", "x1"], ["x0", "x1", "x2"]]
    graph = InteractionHypergraph(domain, sets, hierarchical=False, coding="corner")
    theta = torch.tensor([0.5, -1.0, 1.5, 0.7], dtype=torch.float64)
    save_model("corner.safetensors", ModelFile(graph, theta, "corner"))
    table = np.zeros((2, 3, 2))
    table[1, 1], table[1, 2] = 0.5, -1.0
    table[1, 1, 1] += 1.5
    table[1, 2, 1] += 0.7
    psi = float(np.log(np.exp(table).sum()))
    found = shell.json("log-z", "corner.safetensors")
    assert found["value"] == pytest.approx(psi, rel=1e-12) and found["coding"] == "corner"
    rows = pd.DataFrame({"x0": ["1", "0"], "x1": ["1", "2"], "x2": ["1", "0"]})
    rows.to_csv("two.csv", index=False)
    scored = shell.json("score", "corner.safetensors", "two.csv")
    assert scored["nll"] == pytest.approx(psi - (table[1, 1, 1] + table[0, 2, 0]) / 2, rel=1e-12)
    assert shell.json("predict", "corner.safetensors", "two.csv", "--target", "x2")["rows"] == 2
    shell("sample", "corner.safetensors", "-n", "20", "--given", "x0=1", "--out", "drawn.csv")
    assert (pd.read_csv("drawn.csv")["x0"] == 1).all()
    (first, second) = shell.json("interactions", "corner.safetensors")["interactions"]
    assert {tuple(first["edge"]), tuple(second["edge"])} == set(graph.edges) and "refined_information" not in first
    save_model("balanced.safetensors", ModelFile(graph.in_coding("balanced"), theta))
    other = shell.json("log-z", "balanced.safetensors")  # control
    assert "coding" not in other and abs(other["value"] - psi) > 0.01
