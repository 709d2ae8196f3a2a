"""``predict``, ``sample --complete``, ``score`` and ``interactions`` of models beyond and within exact reach."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from pyro_hoim.cli import run
from pyro_hoim.data import Observations
from pyro_hoim.information.interaction_values import removal_values
from pyro_hoim.log_linear import LogLinearEnergy, ModelFile, load_model, save_model
from pyro_hoim.log_linear.predictions import predict
from pyro_hoim.schema import Domain
from pyro_hoim.structure import InteractionHypergraph
from pyro_hoim.testing import assert_exact_law, exact_table, required_draws

LARGE, SMALL = "large.safetensors", "small.safetensors"


@pytest.fixture(autouse=True)
def models() -> None:
    """A model of 2.4e14 states with all pairs and 40 triples, and one of 24 states."""
    cards = [2, 6, 4, 10, 2, 9, 2, 2, 2, 12, 2, 5, 4, 4, 9, 9, 1, 4, 3, 5, 9, 6, 7]
    pairs = InteractionHypergraph.from_order(Domain.from_cardinalities(cards), 2)
    triples = [(f"x{i}", f"x{i + 1}", f"x{i + 2}") for i in range(14)]
    for path, graph, scale in (
        (LARGE, pairs.add_edges(triples), 0.1),
        (SMALL, InteractionHypergraph.from_order(Domain.from_cardinalities([2, 3, 2, 2]), 2), 0.5),
    ):
        generator = torch.Generator().manual_seed(1)
        theta = scale * torch.randn(graph.num_parameters, generator=generator, dtype=torch.float64)
        save_model(path, ModelFile(graph, theta))


def stored(path: str) -> LogLinearEnergy:
    file = load_model(path)
    return LogLinearEnergy.from_theta(file.hypergraph, file.theta, file.coding)


def call(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:
    assert run(arguments) == 0
    return capsys.readouterr()


def call_json(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    out, _ = call([*arguments, "--json"], capsys)
    assert out.count("\n") == 1
    return json.loads(out, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))


def check_refused(arguments: list[str], words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("pyro-hoim: error: ") and captured.err.count("\n") == 1, captured.err
    assert all(word in captured.err for word in words), captured.err


def write_rows(name: str, number: int, missing: list[str] | None = None, drop: str | None = None) -> pd.DataFrame:
    """A file with rows over the large model, columns emptied or left out."""
    generator = np.random.default_rng(0)
    domain = stored(LARGE).domain
    frame = pd.DataFrame({v.name: generator.choice(v.labels, number) for v in domain})
    for column in missing or []:
        frame[column] = ""
    frame.drop(columns=[drop] if drop else []).to_csv(name, index=False)
    return frame


def test_predict_with_a_large_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert stored(LARGE).domain.num_states > 2e14
    write_rows("rows.csv", 300)
    result = call_json(["predict", LARGE, "rows.csv", "--target", "x9"], capsys)
    data = Observations.from_csv("rows.csv", domain=stored(LARGE).domain)
    expected = predict(stored(LARGE), data, "x9")
    assert result["accuracy"] == expected.accuracy and result["log_loss"] == pytest.approx(expected.log_loss)
    assert result == {**result, "rows": 300, "predicted_rows": 300, "approximate_rows": 0, "kind": "exact"}
    assert set(result["class_accuracy"]) == set(data.domain["x9"].labels)
    out, errors = call(["predict", LARGE, "rows.csv", "--target", "x9", "--out", "found.csv"], capsys)
    assert "log loss" in out and "300 predictions written to found.csv" in out and errors == ""
    frame = pd.read_csv("found.csv", dtype={"predicted": str})
    assert tuple(frame["predicted"]) == expected.labels_predicted
    np.testing.assert_allclose(frame.filter(like="p(").to_numpy(), expected.probs.numpy(), rtol=1e-12)


def test_predict_with_missing_cells(capsys: pytest.CaptureFixture[str]) -> None:
    write_rows("few.csv", 5, missing=["x0", "x1", "x4"])
    assert call_json(["predict", LARGE, "few.csv", "--target", "x8"], capsys)["kind"] == "exact"
    write_rows("many.csv", 5, missing=[f"x{i}" for i in range(2, 20) if i != 8])
    arguments = ["predict", LARGE, "many.csv", "--target", "x8"]
    result = call_json(arguments, capsys)
    assert result["kind"] == "biased" and result["approximate_rows"] == 5
    assert call_json(arguments, capsys) == result
    assert call_json([*arguments, "--seed", "1"], capsys)["log_loss"] != result["log_loss"]
    _, errors = call(arguments, capsys)
    assert errors.startswith("pyro-hoim: note: 5 rows miss so many cells") and errors.count("\n") == 1
    check_refused([*arguments, "--method", "exact"], ["rows that miss x2, x3", "cells"], capsys)


def test_predict_without_the_target_or_with_unknown_levels(capsys: pytest.CaptureFixture[str]) -> None:
    frame = write_rows("rows.csv", 40)
    write_rows("blind.csv", 40, drop="x3")
    result = call_json(["predict", LARGE, "blind.csv", "--target", "x3"], capsys)
    assert result["accuracy"] is None and result["log_loss"] is None and result["rows"] == 0
    assert result["predicted_rows"] == 40 and set(result["class_accuracy"].values()) == {None}
    out, _ = call(["predict", LARGE, "blind.csv", "--target", "x3", "--out", "blind-found.csv"], capsys)
    assert "not available (no row has a known value of the target)" in out
    call(["predict", LARGE, "rows.csv", "--target", "x3", "--out", "found.csv"], capsys)
    assert Path("found.csv").read_text("utf-8") == Path("blind-found.csv").read_text("utf-8")
    check_refused(["predict", LARGE, "rows.csv", "--target", "x3", "--out", "found.csv"], ["exists"], capsys)
    write_rows("short.csv", 4, drop="x5")
    check_refused(["predict", LARGE, "short.csv", "--target", "x3"], ["'x5'"], capsys)
    for column in ("x3", "x4"):
        frame.assign(**{column: "new"}).to_csv("new.csv", index=False)
        check_refused(["predict", LARGE, "new.csv", "--target", "x3"], ["'new'", column, "line 2"], capsys)
        result = call_json(["predict", LARGE, "new.csv", "--target", "x3", "--missing", "new"], capsys)
        assert result["rows"] == (0 if column == "x3" else 40) and result["predicted_rows"] == 40


def test_score_of_a_large_model_reports_the_error_of_log_z(capsys: pytest.CaptureFixture[str]) -> None:
    write_rows("rows.csv", 50, missing=["x0"])
    check_refused(["score", LARGE, "rows.csv"], ["--method ais"], capsys)
    write_rows("wide.csv", 10, missing=["x1", "x3", "x5", "x9", "x14"])  # 58,320 completions of every row
    cheap = ["--method", "ais", "--chains", "64", "--temperatures", "100"]
    result = call_json(["score", LARGE, "rows.csv", *cheap], capsys)
    assert result["log_z_kind"] == "biased" and 0 < result["log_z_std_error"] < 0.2
    assert 20 < result["nll"] < 50
    fewer = call_json(["score", LARGE, "wide.csv", *cheap], capsys)
    assert 15 < fewer["nll"] < result["nll"] and fewer["log_z_std_error"] == result["log_z_std_error"]
    assert math.isfinite(result["pseudo_nll"])
    out, _ = call(["score", LARGE, "rows.csv", *cheap], capsys)
    assert "log Z = " in out and "+-" in out


def test_completions_have_the_conditional_law(capsys: pytest.CaptureFixture[str]) -> None:
    Path("holes.csv").write_text("x0,x1,x2,x3,count\n0,,1,,1\n1,2,,0,1\n1,1,1,1,0\n", encoding="utf-8")
    number = required_draws(6, 0.05)
    model = stored(SMALL)
    law = np.exp(exact_table(model.hypergraph, model.tables.numpy()))
    for method in ("exact", "gibbs"):
        name = f"{method}.csv"
        arguments = ["sample", SMALL, "-n", str(number), "--complete", "holes.csv", "--method", method, "--out", name]
        out, errors = call(arguments, capsys)
        assert out == f"{2 * number:,} rows written to {name}\n"
        assert (errors == "") == (method == "exact") and "2 rows miss" in (errors or "2 rows miss")
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


def test_completions_of_a_large_model(capsys: pytest.CaptureFixture[str]) -> None:
    frame = write_rows("holes.csv", 6, missing=[f"x{i}" for i in range(3, 20)])
    arguments = ["sample", LARGE, "-n", "1", "--complete", "holes.csv"]
    out, errors = call(arguments, capsys)
    assert "6 rows miss so many cells that they are filled approximately" in errors
    Path("filled.csv").write_text(out, encoding="utf-8")
    filled = pd.read_csv("filled.csv", dtype=str)
    assert list(filled.columns) == list(frame.columns) and not filled.isna().any(axis=None)
    for column in ("x0", "x1", "x2", "x20", "x21", "x22"):
        assert filled[column].tolist() == frame[column].tolist()
    best, _ = call([*arguments, "--most-probable"], capsys)
    assert best != out and best.count("\n") == 7
    check_refused([*arguments, "--method", "exact"], ["rows that miss x3"], capsys)


def test_options_that_do_not_fit_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    Path("holes.csv").write_text("x0,x1,x2,x3\n0,,1,\n", encoding="utf-8")
    complete = ["sample", SMALL, "-n", "1", "--complete", "holes.csv"]
    check_refused([*complete, "--given", "x0=1"], ["--given", "--complete"], capsys)
    check_refused(["sample", SMALL, "-n", "1", "--most-probable"], ["--most-probable", "--complete FILE"], capsys)
    check_refused(["sample", SMALL, "-n", "1", "--missing", "?"], ["--missing", "--complete FILE"], capsys)
    check_refused(["sample", SMALL, "-n", "0", "--complete", "holes.csv"], ["-n", "at least 1"], capsys)
    check_refused(["sample", SMALL, "-n", "2", *complete[4:], "--most-probable"], ["one most probable"], capsys)
    check_refused(["sample", SMALL, "-n", "1", "--complete", "none.csv"], ["none.csv", "no such file"], capsys)
    check_refused([*complete, "--out", SMALL], ["exists"], capsys)


def test_interactions_carry_their_refined_information(capsys: pytest.CaptureFixture[str]) -> None:
    rows = call_json(["interactions", SMALL], capsys)["interactions"]
    values = {v.edge: v.value for v in removal_values(stored(SMALL))}
    for row in rows:
        found = row["refined_information"]
        assert set(found) == {"value", "std_error", "kind"} and found["kind"] == "exact" and found["std_error"] == 0
        assert found["value"] == pytest.approx(values[tuple(row["edge"])], rel=1e-6, abs=1e-12)
    assert (
        "refined_information" not in call_json(["interactions", SMALL, "--no-information"], capsys)["interactions"][0]
    )
    out, _ = call(["interactions", SMALL, "--top", "3"], capsys)
    assert "information" in out.splitlines()[0] and out.count("\n") == 4 and "<=" not in out


def test_interactions_of_a_large_model_are_bounded(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["interactions", LARGE, "--top", "12", "--samples", "400"]
    rows = call_json(arguments, capsys)["interactions"]
    assert len(rows) == 12
    for row in rows:
        found = row["refined_information"]
        assert found["kind"] == "estimated upper bound" and 0 <= found["value"] < 2 and found["std_error"] > 0
    assert call_json(arguments, capsys)["interactions"] == rows
    assert call_json([*arguments, "--seed", "1"], capsys)["interactions"] != rows
    out, _ = call(arguments, capsys)
    assert out.count("<=") == 12
