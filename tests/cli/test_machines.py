"""Boltzmann machines at the command line, against sums over all states."""

import itertools
import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from forged_files import change

from pyro_hoim import InputError, Observations, impute, load, predict, sample, save, score
from pyro_hoim.boltzmann import BoltzmannMachine, LearningOptions, fit_machine, load_machine
from pyro_hoim.boltzmann.learning import LearningJob
from pyro_hoim.families import add_info
from pyro_hoim.runs.checkpoint import RunFile
from pyro_hoim.testing import assert_exact_law

from support.calls import noted

COMMON = ("fit", "t.csv", "--model", "rbm", "--iterations", "300")
FIT = (*COMMON, "--method", "exact", "--decay", "0.005", "--hidden", "2")
CHAINS = (*COMMON, "--hidden", "2")


@pytest.fixture(autouse=True)
def table():
    """Four columns of which three agree more often than not, one named as a hidden unit would be."""
    generator = torch.Generator().manual_seed(0)
    same = torch.rand(400, 1, generator=generator) < 0.5
    flips = torch.rand(400, 4, generator=generator) < torch.tensor([0.1, 0.15, 0.2, 0.5])
    rows = (same ^ flips).long().tolist()
    text = "h1,b,c,d\n" + "".join(",".join("yes" if x else "no" for x in row) + "\n" for row in rows)
    Path("t.csv").write_text(text, encoding="utf-8")


def law_of(path):
    """Probability of every row of labels, by sums over visible and hidden states in plain Python."""
    file = load_machine(path)
    names, theta = file.structure.names, file.theta.tolist()
    place = {name: i for i, name in enumerate(names)}
    found = {}
    for state in itertools.product((0, 1), repeat=len(names)):
        energy = sum(t * x for t, x in zip(theta, state, strict=False))
        for k, (a, b) in enumerate(file.structure.edges):
            energy += theta[len(names) + k] * state[place[a]] * state[place[b]]
        row = tuple(("no", "yes")[x] for x in state[:4])
        found[row] = found.get(row, 0.0) + math.exp(energy)
    return found


def test_every_answer_agrees_with_enumeration(shell):
    fitted = shell.json(*FIT, "--target", "b", "--out", "o")
    weights = law_of("o/model.safetensors")
    total = math.fsum(weights.values())
    assert fitted["num_hidden"] == 2 and fitted["num_parameters"] == 4 + 2 + 8 and fitted["num_interactions"] == 8
    assert fitted["log_partition"]["kind"] == "exact"
    assert fitted["log_partition"]["value"] == pytest.approx(math.log(total), abs=1e-10)
    assert fitted["method"] == "exact" and fitted["converged"] and fitted["iterations"] <= 300
    rows = pd.read_csv("t.csv")
    nll = [-math.log(weights[tuple(row)] / total) for row in rows.itertuples(index=False)]
    found = shell.json("score", "o", "t.csv")
    assert found["nll"] == pytest.approx(np.mean(nll), abs=1e-10)
    assert found["nll_std_error"] == pytest.approx(np.std(nll) / 20, abs=1e-10)
    shares = rows.value_counts(normalize=True)
    assert found["kl"] == pytest.approx(np.mean(nll) + float((shares * np.log(shares)).sum()), abs=1e-10)
    assert {name: part["nll"] for name, part in found["parts"].items()} == {n: v for n, v in fitted["nll"].items() if v}
    assert found["gain"] > 0.2 and fitted["gain"]["test"] > 0.1
    conditionals = 0.0
    for row in rows.itertuples(index=False):
        for i in range(4):
            both = [weights[(*row[:i], level, *row[i + 1 :])] for level in ("no", "yes")]
            conditionals -= math.log(weights[tuple(row)] / sum(both))
    assert found["pseudo_nll"] == pytest.approx(conditionals / 400, abs=1e-10)
    assert shell.json("log-z", "o")["value"] == pytest.approx(math.log(total), abs=1e-10)
    annealed = shell.json("log-z", "o", "--method", "ais", "--num-chains", "64", "--num-temperatures", "100")
    assert annealed["kind"] == "biased" and abs(annealed["value"] - math.log(total)) < 5 * annealed["std_error"]
    log_q = {tuple(i for i in range(4) if row[i] == "yes"): math.log(w) for row, w in weights.items()}
    strongest = shell.json("interactions", "o", "--top", "4")
    assert strongest["largest_order"] == 4
    names = ["h1", "b", "c", "d"]
    for entry in strongest["interactions"]:
        edge = [names.index(name) for name in entry["edge"]]
        subsets = [part for k in range(len(edge) + 1) for part in itertools.combinations(sorted(edge), k)]
        value = sum((-1) ** (len(edge) - len(part)) * log_q[part] for part in subsets)
        assert entry["value"] == pytest.approx(value, abs=1e-9)


def test_rows_with_missing_cells(shell):
    shell.json(*FIT, "--out", "o")
    weights = law_of("o/model.safetensors")
    Path("r.csv").write_text("h1,b,c,d\nyes,,no,yes\nno,no,,\n", encoding="utf-8")
    total = math.fsum(weights.values())
    first = {level: weights["yes", level, "no", "yes"] for level in ("no", "yes")}
    second = [w for row, w in weights.items() if row[:2] == ("no", "no")]
    nll = -(math.log(sum(first.values()) / total) + math.log(sum(second) / total)) / 2
    found = shell.json("score", "o", "r.csv")
    assert found["nll"] == pytest.approx(nll, abs=1e-10) and found["kl"] is None
    shell.json("predict", "o", "r.csv", "--target", "b", "--out", "b.csv")
    frame = pd.read_csv("b.csv")
    assert frame["p(yes)"][0] == pytest.approx(first["yes"] / sum(first.values()), abs=1e-10)
    shell("sample", "o", "--complete", "r.csv", "-n", "3000", "--out", "f.csv")
    frame = pd.read_csv("f.csv")
    drawn = frame[(frame["h1"] == "yes")]["b"].eq("yes").sum()
    assert_exact_law([3000 - drawn, drawn], [first["no"] / sum(first.values()), first["yes"] / sum(first.values())])


def test_samples_follow_the_law_given_a_column(shell):
    shell.json(*FIT, "--out", "o")
    weights = law_of("o/model.safetensors")
    shell("sample", "o", "-n", "20000", "--given", "c=yes", "--out", "s.csv")
    counts = pd.read_csv("s.csv").value_counts(["h1", "b", "d"])
    cells = list(itertools.product(("no", "yes"), repeat=3))
    probs = np.array([weights[a, b, "yes", d] for a, b, d in cells])
    drawn = [counts.get(cell, 0) for cell in cells]
    assert_exact_law(drawn, probs / probs.sum())
    free = np.array([weights[a, b, "yes", d] + weights[a, b, "no", d] for a, b, d in cells])
    with pytest.raises(AssertionError):  # control: the law without the given column
        assert_exact_law(drawn, free / free.sum())
    text = shell("sample", "o", "-n", "5", "--method", "gibbs", "--burn-in", "3")
    assert "burnt in by 3 sweeps" in text.err and len(text.out.splitlines()) == 6


def test_page_and_file(shell):
    text = shell(*FIT, "--split", "0.6,0.2,0.2", "--out", "o").out
    assert "test rows the machine gains" in text and "What limits this:" in text
    page = Path("o/report.html").read_text(encoding="utf-8")
    for words in (
        "Boltzmann machine of t",
        "<h2>Weights</h2>",
        "<h2>How it was learned</h2>",
        "log-likelihoods are exact",
        "validation",
    ):
        assert words in page
    assert page.count("data:image/svg+xml") >= 2
    assert json.loads(Path("o/fit.json").read_text(encoding="utf-8"))["independent_kl"]["test"] > 0


def test_an_interrupted_fit_is_continued(shell, monkeypatch):
    whole = shell.json(*CHAINS, "--out", "o")
    assert whole["method"] == "pcd" and whole["converged"] is None
    monkeypatch.setattr(RunFile, "SECONDS", 0.0)
    calls = noted(monkeypatch, LearningJob, "advance", 40)
    shell(*CHAINS, "--out", "p", status=130)
    found = shell.json(*CHAINS, "--out", "p", "--resume")
    assert 40 < len(calls) <= 140 and found["nll"] == whole["nll"]
    assert Path("o/model.safetensors").read_bytes() == Path("p/model.safetensors").read_bytes()


def test_no_hidden_units_is_the_independent_model(shell):
    found = shell.json(*FIT[:-1], "0", "--out", "o")
    assert found["converged"] and found["num_interactions"] == 0 and abs(found["gain"]["train"]) < 1e-3
    assert shell.json("interactions", "o")["interactions"][0]["value"] == pytest.approx(0, abs=1e-10)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((*FIT[:-1], "-1"), "--hidden: expected a whole number of at least 0, received -1"),
        (
            ("fit", "hair_eye_color", "--model", "rbm"),
            "variable 'Hair': expected exactly two levels, received 4 levels",
        ),
        ((*FIT, "--rate", "1"), "--rate: belongs to cd and pcd, received --method exact"),
        ((*FIT, "--order", "2"), "--order"),
        (("fit", "w.csv", "--model", "rbm", "--method", "exact", "--hidden", "30"), "1073741824 states"),
    ],
)
def test_bad_input_is_one_line(shell, words, message):
    names = [f"x{i}" for i in range(40)]
    lines = [",".join(names), ",".join("0" * 40), ",".join("1" * 40)]
    Path("w.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    found = shell(*words, status=2)
    assert message in found.err and len(found.err.strip().splitlines()) == 1 and found.out == ""


def test_what_is_beyond_exact_reach_is_estimated_and_says_so(shell, monkeypatch):
    from pyro_hoim.boltzmann import command as analysis
    from pyro_hoim.log_linear import AnnealedImportance

    exact = shell.json(*CHAINS, "--out", "o")["log_partition"]["value"]
    monkeypatch.setattr(BoltzmannMachine, "max_layer_states", 2)
    monkeypatch.setattr(analysis, "AnnealedImportance", lambda **o: AnnealedImportance(64, 100, **o))
    found = shell.json(*CHAINS, "--out", "p")
    result = found["log_partition"]
    assert result["kind"] == "biased" and abs(result["value"] - exact) < 5 * result["std_error"]
    assert shell.json("log-z", "p")["value"] == result["value"]  # that of the file
    assert "1 hidden" not in shell("score", "p", "t.csv").out
    page = Path("p/report.html").read_text(encoding="utf-8")
    assert "log-likelihoods are annealed, " in page
    assert "4 states" in shell("log-z", "p", "--method", "exact", status=2).err


@pytest.mark.parametrize("shares", [[0.5, 0.5], "x", [2.0, -1.0, 0.5, 0.5], {"b": [0.5]}, [0.0, 0.5, 0.5, 0.5]])
def test_shares_that_no_fit_wrote_are_refused(shell, shares):
    rows = Observations.from_csv("t.csv")
    save(fit_machine(rows, 0, LearningOptions("exact")), "m")
    with pytest.raises(InputError, match="independent"):
        add_info("m", {"independent": shares})
    change("m", lambda header, _: header["info"].update(independent=shares))
    found = shell("score", "m", "t.csv", status=2)
    assert "independent" in found.err and len(found.err.strip().splitlines()) == 1


def test_python_uses_the_same_answers(tmp_path):
    rows = Observations.from_csv("t.csv")
    found = fit_machine(rows, ["u", "w"], LearningOptions("exact", decay=0.01))
    save(found, tmp_path / "m")
    stored = load(tmp_path / "m")
    law = stored.model.law()
    merged = rows.unique()
    nll = -float((law.log_prob(merged.codes) * merged.counts).sum()) / 400
    assert score(found.law, rows)["nll"] == pytest.approx(nll, abs=1e-9)
    assert len(sample(law, 3, {"b": "yes"})) == 3 and len(predict(stored, rows, "c")) == len(rows.codes)
    assert len(impute(law, rows, 2)) == 2 * len(rows.codes)
