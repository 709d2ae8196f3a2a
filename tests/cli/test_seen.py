"""Held-out figures by default, rows that a model has seen, and accuracies beside always guessing one level."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest

from pyro_hoim import Observations
from pyro_hoim.families import add_info
from pyro_hoim.log_linear import LogLinearEnergy, load_model, predict

from support.verbs import verb_first

NETWORK = ["--model", "dependency-network"]
GRM = ["--model", "grm", "--order", "2", "--jobs", "1"]


def write(name="rows.csv", number=100, seed=0, *, gaps=0):
    """A file of three columns, the third a coin; returns its lines."""
    rng = np.random.default_rng(seed)
    a, coin = rng.integers(0, 3, number), rng.integers(0, 2, number)
    b = np.where(rng.random(number) < 0.7, a, rng.integers(0, 3, number))
    lines = ["a,b,coin", *(f"{x},{y},{z}" for x, y, z in zip(a, b, coin, strict=True))]
    for i in range(1, gaps + 1):
        lines[i] = "," + lines[i].split(",", 1)[1]
    Path(name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return lines


@pytest.mark.parametrize("family", [NETWORK, GRM])
def test_the_page_rests_on_rows_that_were_not_learned_from(family, shell):
    write()
    assert "On the test rows" in shell("fit", "rows.csv", *family, "--out", "out").out
    assert json.loads(Path("out/fit.json").read_text())["rows"] == {"train": 80, "validation": 0, "test": 20}
    # Control: where all rows are learned from, the page says that too.
    told = shell("fit", "rows.csv", *family, "--split", "1,0,0", "--out", "all").out
    assert "These are the rows it was fitted to" in told


@pytest.mark.parametrize(
    ("family", "key"),
    [(NETWORK, "pseudo_nll"), (GRM, "pseudo_nll"), (["--order", "2", "--split", "0.5,0.2,0.3"], "nll")],
)
def test_score_says_which_rows_were_seen(family, key, shell):
    lines = write()
    fitted = shell.json("fit", "rows.csv", *family, "--out", "out")
    found = shell.json("score", "out", "rows.csv")
    held = {name: rows for name, rows in fitted["rows"].items() if rows}
    assert {name: part["rows"] for name, part in found["parts"].items()} == held
    for name, part in found["parts"].items():
        assert part[key] == pytest.approx(fitted[key][name], rel=1e-9)
    told = shell("score", "out", "rows.csv").out
    assert "this is the file that the model was fitted from" in told
    assert f"{held['train']} rows fitted to" in told
    # Control: the same rows in another order are not recognised, nor are others.
    Path("other.csv").write_text("\n".join([lines[0], *lines[:0:-1]]) + "\n", encoding="utf-8")
    assert shell.json("score", "out", "other.csv")["parts"] is None
    write("new.csv", seed=1)
    assert shell.json("score", "out", "new.csv")["parts"] is None
    assert "fitted from" not in shell("score", "out", "new.csv").out


@pytest.mark.parametrize("family", [NETWORK, ["learn"]])
def test_predict_says_which_rows_were_seen(family, shell):
    write(number=300)
    fitted = shell.json(*verb_first("rows.csv", *family, "--target", "b", "--out", "out"))
    found = shell.json("predict", "out", "rows.csv", "--target", "b")["parts"]
    accuracies = {name: part["accuracy"] for name, part in found.items()}
    assert accuracies == {name: part["accuracy"] for name, part in fitted["accuracy"].items() if part}


@pytest.mark.parametrize("policy", ["drop", "marginalise"])
def test_rows_with_gaps_are_recognised(policy, shell):
    write(gaps=10)
    fitted = shell.json("fit", "rows.csv", *NETWORK, "--missing", policy, "--out", "out")
    found = shell.json("score", "out", "rows.csv")["parts"]
    assert sum(part["rows"] for part in found.values()) == (90 if policy == "drop" else 100)
    assert found["test"]["pseudo_nll"] == pytest.approx(fitted["pseudo_nll"]["test"], rel=1e-6)


def test_a_file_without_a_split_says_nothing(shell):
    write()
    shell.json("fit", "rows.csv", "--order", "1", "--out", "out")
    add_info("out/model.safetensors", {"split": None})
    assert shell.json("score", "out", "rows.csv")["parts"] is None


def test_a_coin_is_predicted_no_better_than_by_its_more_frequent_side(shell):
    write(number=400)
    fitted = shell.json("fit", "rows.csv", "--order", "2", "--target", "coin", "--out", "out")
    stored = load_model("out/model.safetensors")
    rows = Observations.from_csv("rows.csv", domain=stored.hypergraph.domain)
    table = predict(LogLinearEnergy.from_theta(stored.hypergraph, stored.theta, stored.coding), rows, "coin").confusion
    most = int(table.sum(1).argmax())
    right, wrong = int(table[1 - most, 1 - most]), int(table[most, 1 - most])
    expected = binomtest(right, right + wrong, alternative="greater").pvalue if right + wrong else 1.0
    assert fitted["accuracy"]["train"]["majority_p_value"] == pytest.approx(expected, rel=1e-9)
    assert expected > 0.05
    for command in (
        ["fit", "rows.csv", "--order", "2", "--target", "coin"],
        ["predict", "out", "rows.csv", "--target"],
    ):
        told = shell(*([*command, "coin"] if command[0] == "predict" else command)).out
        assert "no better" in told or "not shown to be better" in told
    # Control: a column that is told by another.
    assert "always guessing" not in shell("predict", "out", "rows.csv", "--target", "b").out


@pytest.mark.parametrize("options", [["--order", "2"], ["learn"]], ids=["given", "learned"])
def test_score_leads_with_the_gain_that_the_fit_reports(options, shell):
    write(number=400)
    fitted = shell.json(*verb_first("rows.csv", *options, "--split", "0.5,0.2,0.3", "--out", "out"))
    found = shell.json("score", "out", "rows.csv")
    for part in ("train", "validation", "test"):
        for key in ("gain", "gain_std_error"):
            assert found["parts"][part][key] == pytest.approx(fitted[key][part], rel=1e-6)
    weights = {name: part["rows"] for name, part in found["parts"].items()}
    mean = sum(weights[name] * part["gain"] for name, part in found["parts"].items()) / sum(weights.values())
    assert found["gain"] == pytest.approx(mean, rel=1e-9)
    text = shell("score", "out", "rows.csv").out
    assert text.startswith(f"On the file's rows the model gains {found['gain']:.3f} nats per row over independent")
    assert f"(standard error {found['gain_std_error']:.3f})" in text and "KL" not in text
    assert f"gain {found['parts']['test']['gain']:.4f}" in text
    # Control: a file of another source has neither parts nor the frequencies of the columns.
    write("other.csv", 50, seed=1)
    assert "parts" in found and shell.json("score", "out", "other.csv")["parts"] is None
    model = Path("out/model.safetensors")
    assert "independent" in load_model(model).info
    add_info(model, {"independent": None})
    assert "over independent columns is not known" in shell("score", "out", "other.csv").out


def test_score_of_a_network_leads_with_the_gain_that_the_fit_reports(shell):
    write(number=400)
    fitted = shell.json("fit", "rows.csv", *NETWORK, "--split", "0.5,0.2,0.3", "--out", "out")
    found = shell.json("score", "out", "rows.csv")
    for part in ("train", "validation", "test"):
        for key in ("gain", "gain_std_error"):
            assert found["parts"][part][key] == pytest.approx(fitted[key][part], rel=1e-9)
    text = shell("score", "out", "rows.csv").out
    assert text.startswith(f"On the file's rows the network gains {found['gain']:.3f} nats per row in log pseudo-lik")
    assert f"gain {found['parts']['test']['gain']:.4f}" in text
    # Control: a file without the columns' probabilities.
    add_info("out/model.safetensors", {"independent": None})
    assert shell.json("score", "out", "rows.csv")["gain"] is None
    assert "over independent columns is not known" in shell("score", "out", "rows.csv").out


@pytest.mark.parametrize("family", ["poisson", "truncated-poisson", "exponential", "gaussian"])
def test_score_of_a_root_model_leads_with_the_gain_that_the_fit_reports(family, shell):
    rng = np.random.default_rng(3)
    rows = rng.poisson(2 + 3 * rng.integers(0, 2, (120, 1)), (120, 3))
    values = rows.clip(max=9) if "poisson" in family else rows + rng.exponential(1.0, rows.shape)
    pd.DataFrame(values, columns=list("abc")).to_csv("rows.csv", index=False)
    options = ["--model", "grm", "--family", family, *(["--maximum", "9"] if family == "truncated-poisson" else [])]
    fitted = shell.json("fit", "rows.csv", *options, "--split", "0.6,0,0.4", "--out", "out")
    found = shell.json("score", "out", "rows.csv")
    for part in ("train", "test"):
        for key in ("gain", "gain_std_error"):
            assert found["parts"][part][key] == pytest.approx(fitted[key][part], rel=1e-6, abs=1e-12)
    assert shell("score", "out", "rows.csv").out.startswith("On the file's rows the model gains")
    # Control: other rows have another gain.
    pd.DataFrame(values[:40], columns=list("abc")).to_csv("other.csv", index=False)
    other = shell.json("score", "out", "other.csv")
    assert other["parts"] is None and other["gain"] != pytest.approx(found["gain"], rel=1e-3)
