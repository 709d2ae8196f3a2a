"""Commands on models beyond and within exact reach: estimates are asked for, tell their error, and agree with exact."""

import json
import math
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from command_line import save_random, stored
from other_device import AWAY, pretend

from pyro_hoim import Domain, InputError, InteractionHypergraph
from pyro_hoim.core import LogPartition
from pyro_hoim.log_linear import AnnealedImportance, Auto, ModelFile, load_model, save_model
from pyro_hoim.testing import assert_exact_law, exact_table, required_draws

from support.calls import noted

CHEAP = ["--method", "ais", "--num-chains", "64", "--num-temperatures", "100"]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A folder with a model of 60 variables that all interact, and one of six that is easily enumerated."""
    folder = tmp_path_factory.mktemp("models")
    for name, cards, scale in (("large", [2] * 60, 0.05), ("small", [2, 3, 2, 2, 3, 2], 0.3)):
        graph = InteractionHypergraph.from_order(Domain.from_cardinalities(cards), 2)
        save_random(folder / f"{name}.safetensors", graph, scale)
    return folder


@pytest.fixture(autouse=True)
def copies(models, tmp_path):
    """Both models in the folder of a test."""
    shutil.copytree(models, tmp_path, dirs_exist_ok=True)


# log-z


def test_estimates_have_to_be_asked_for(shell):
    for method in ([], ["--method", "auto"], ["--method", "exact"]):
        shell.refused("log-z", "large.safetensors", *method, says=["cells", "the budget is", "--method ais"])
    shell.refused("score", "large.safetensors", rows_of("large.safetensors"), says=["--method ais"])


def test_log_z_beyond_exact_reach(shell):
    result = shell.json("log-z", "large.safetensors", *CHEAP)
    bounds = {"lower", "upper", "lower_bound", "upper_bound"}
    assert {"value", "std_error", "kind", "ess", "verdict", "notes", "method"} | bounds == set(result)
    assert result["upper_bound"] is None
    assert result["kind"] == "biased" and result["verdict"] == "consistent"
    assert 0 < result["std_error"] < 0.2 and 32 < result["ess"] <= 64
    assert result["lower"] < result["value"] < result["upper"]
    assert any("tempered" in note for note in result["notes"])
    text, errors = shell("log-z", "large.safetensors", *CHEAP)
    assert f"log Z = {result['value']:.10g} +- {result['std_error']:.2g} (biased" in text
    for words in ("limits", "effective sample size", "verdict                consistent", "note: "):
        assert words in text
    assert errors == ""  # no progress bar unless standard error is a terminal


def test_log_z_within_reach_agrees_with_enumeration(shell):
    result = shell.json("log-z", "small.safetensors", "--method", "ais", "--seed", "3")
    exact = shell.json("log-z", "small.safetensors")
    energy = stored("small.safetensors")
    unnormalised = exact_table(energy.hypergraph, energy.tables, normalised=False)
    assert exact["value"] == pytest.approx(np.log(np.exp(unnormalised).sum()), rel=1e-12)
    assert exact == {**exact, "std_error": 0.0, "ess": None, "verdict": "verified", "notes": []}
    assert abs(result["value"] - exact["value"]) < 4 * result["std_error"]
    assert abs(result["value"] + 0.05 - exact["value"]) > 4 * result["std_error"]  # a wrong value would be seen
    assert shell.json("log-z", "small.safetensors", "--method", "ais", "--seed", "3") == result
    assert shell.json("log-z", "small.safetensors", "--method", "ais", "--seed", "4") != result
    adaptive = ["log-z", "small.safetensors", "--method", "ais", "--temperatures", "adaptive"]
    found = shell.json(*adaptive)
    assert abs(found["value"] - exact["value"]) < 4 * found["std_error"]


def test_chains_of_another_device(shell):
    """The device is a pretended one; an estimate there has another value with the same seed, and agrees."""
    asked = ["log-z", "small.safetensors", *CHEAP[:-1], "25"]
    here = shell.json(*asked)
    assert shell.json(*asked, "--device", "cpu") == here
    exact = shell.json("log-z", "small.safetensors")["value"]
    with pretend() as waits:
        away = shell.json(*asked, "--device", str(AWAY))
    assert waits and away["value"] != here["value"]
    assert abs(away["value"] - exact) < 5 * away["std_error"] and away["verdict"] == here["verdict"]


def test_an_estimate_without_error_bar_says_so(shell):
    save_random("cold.safetensors", InteractionHypergraph.from_order(Domain.from_cardinalities([2] * 60), 2), 2.0)
    cold = ["log-z", "cold.safetensors", "--method", "ais", "--num-chains", "32", "--num-temperatures", "3"]
    result = shell.json(*cold)
    assert result["verdict"] == "unreliable" and result["std_error"] is None
    assert result["value"] is not None and "--num-temperatures" in result["notes"][0]
    assert "num_temperatures" not in " ".join(result["notes"])
    text, errors = shell(*cold)
    assert "+- unknown" in text and "verdict                unreliable" in text and "note: " in text
    assert errors.startswith("pyro-hoim: warning: ") and errors.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--num-chains", "100"], ["--num-chains", "--method ais"]),
        (["--num-temperatures", "5"], ["--num-temperatures", "--method ais"]),
        (["--seed", "5", "--method", "exact"], ["--seed", "--method ais"]),
        ([*CHEAP[:3], "0"], ["--num-chains"]),
        ([*CHEAP[:5], "0"], ["--num-temperatures", "1 to"]),
        ([*CHEAP[:5], "hot"], ["--num-temperatures", "'hot'"]),
        ([*CHEAP, "--temperatures", "adaptive"], ["--num-temperatures: cannot be combined with --temperatures"]),
        ([*CHEAP, "--seed", "-1"], ["--seed"]),
        (["--method", "mcmc"], ["mcmc", "ais"]),
        (["--device", "cpu"], ["--device", "--method ais"]),
        ([*CHEAP, "--device", "gpu"], ["--device", "'gpu'", "cpu"]),
        ([*CHEAP, "--device", "meta"], ["--device", "'meta'", "cpu"]),
        ([*CHEAP, "--device", "cuda:99"], ["--device", "'cuda:99'", "cpu"]),
    ],
)
def test_wrong_options(options, words, shell):
    shell.refused("log-z", "small.safetensors", *options, says=words)
    shell.refused("score", "small.safetensors", rows_of("small.safetensors"), *options, says=words)


# score


def rows_of(model):
    """A file with four rows for a model."""
    domain = load_model(model).hypergraph.domain
    rows = [",".join(v.labels[(i + k) % v.cardinality] for k, v in enumerate(domain)) for i in (0, 1, 1, 2)]
    Path("rows.csv").write_text("\n".join([",".join(domain.names), *rows]) + "\n", encoding="utf-8")
    return "rows.csv"


def test_score_with_an_estimated_constant(shell):
    exact = shell.json("score", "small.safetensors", rows_of("small.safetensors"))
    assert exact["log_z_std_error"] == 0 and exact["log_z_kind"] == "exact"
    result = shell.json("score", "small.safetensors", "rows.csv", *CHEAP)
    log_z = shell.json("log-z", "small.safetensors", *CHEAP)
    assert result["log_z_std_error"] == log_z["std_error"] > 0 and result["log_z_kind"] == "biased"
    assert result["log_z_verdict"] == "verified" and result["log_z_notes"] == log_z["notes"]
    shift = log_z["value"] - shell.json("log-z", "small.safetensors")["value"]
    assert result["nll"] - exact["nll"] == pytest.approx(shift, abs=1e-12)
    assert result["kl"] - exact["kl"] == pytest.approx(shift, abs=1e-12)
    assert result["nll_std_error"] == pytest.approx(exact["nll_std_error"])
    assert result["pseudo_nll"] == exact["pseudo_nll"]
    far = shell.json("score", "large.safetensors", rows_of("large.safetensors"), *CHEAP)
    assert far["nll"] > 0 and far["log_z_std_error"] > 0
    text, _ = shell("score", "large.safetensors", "rows.csv", *CHEAP)
    assert "NLL per row" in text and "verdict                consistent" in text


# the estimate that a file holds


def keep_estimate(path, **changes):
    """Put an estimate of log Z into a model file, as a fit does."""
    file = load_model(path)
    kept = AnnealedImportance(num_chains=64, num_temperatures=200, seed=5).log_partition(stored(path)).to_json()
    info = {"log_partition": {**kept, **changes}}
    save_model(path, ModelFile(file.hypergraph, file.theta, file.coding, info=info))
    return kept


def test_the_estimate_in_the_file_is_used_and_said(shell):
    kept = keep_estimate("large.safetensors")
    result = shell.json("log-z", "large.safetensors")
    assert result["method"] == f"{kept['method']}, as the model file holds it"
    assert {name: result[name] for name in ("value", "std_error", "lower", "upper", "ess", "kind", "verdict")} == {
        name: kept[name] for name in ("value", "std_error", "lower", "upper", "ess", "kind", "verdict")
    }
    scored = shell.json("score", "large.safetensors", rows_of("large.safetensors"))
    energy = stored("large.safetensors")
    rows = torch.tensor([[(i + k) % n for k, n in enumerate(energy.domain.cardinalities)] for i in (0, 1, 1, 2)])
    assert scored["nll"] == pytest.approx(kept["value"] + float(energy.energy(rows).mean()), rel=1e-12)
    assert scored["log_z_std_error"] == kept["std_error"] and scored["log_z_method"] == result["method"]
    text, _ = shell("score", "large.safetensors", "rows.csv")
    assert "as the model file holds it" in text and "verdict                consistent" in text
    fresh = shell.json("score", "large.safetensors", "rows.csv", *CHEAP)
    assert fresh["log_z_method"] == kept["method"] and fresh["nll"] != scored["nll"]
    shell.refused("score", "large.safetensors", "rows.csv", "--method", "exact", says=["the budget is"])


def test_an_exact_log_z_is_preferred_to_the_estimate_in_the_file(shell):
    before = shell.json("score", "small.safetensors", rows_of("small.safetensors"))
    keep_estimate("small.safetensors", value=0.0)
    assert shell.json("score", "small.safetensors", "rows.csv") == before


@pytest.mark.parametrize("changes", [{"verdict": "perfect"}, {"value": "low"}, {"ess": []}])
def test_an_entry_that_is_no_log_z_is_refused(changes, shell, monkeypatch):
    with pytest.raises(InputError, match="log_partition: expected"):
        keep_estimate("large.safetensors", **changes)
    with monkeypatch.context() as patch:  # a file of another program
        patch.setattr(ModelFile, "__post_init__", lambda _: None)
        keep_estimate("large.safetensors", **changes)
    shell.refused("log-z", "large.safetensors", says=["log_partition: expected"])


def test_infinite_errors_come_back():
    file = AnnealedImportance(num_chains=64, num_temperatures=50, seed=1).log_partition(stored("small.safetensors"))
    without = {**file.to_json(), "std_error": None, "lower": None, "upper": None}
    found = LogPartition.from_json(without)
    assert [float(x) for x in (found.std_error, found.lower, found.upper)] == [math.inf, -math.inf, math.inf]
    assert found.to_json() == without


# sample


def test_sample_beyond_exact_reach_is_by_gibbs_and_says_so(shell):
    options = ["sample", "large.safetensors", "-n", "40", "--given", "x3=1", "--given", "x10=0", "--burn-in", "20"]
    text, errors = shell(*options)
    assert re.search(r"approximate.* Gibbs .*20 sweeps", errors) and errors.count("\n") == 1
    Path("drawn.csv").write_text(text, encoding="utf-8")
    frame = pd.read_csv("drawn.csv")
    assert frame.shape == (40, 60) and set(frame["x3"]) == {1} and set(frame["x10"]) == {0}
    assert frame["x0"].nunique() == 2
    assert shell(*options)[0] == text and shell(*options, "--seed", "1")[0] != text
    shell.refused(*options[:-2], "--method", "exact", says=["the budget is", "--method gibbs"])


def test_enough_given_columns_make_the_draws_exact_again(shell):
    given = [word for i in range(45) for word in ("--given", f"x{i}=1")]
    text, errors = shell("sample", "large.safetensors", "-n", "3", *given)
    assert errors == "" and text.count("\n") == 4


def test_gibbs_rows_have_the_conditional_law(shell):
    number = required_draws(36, 0.03)
    options = ["sample", "small.safetensors", "-n", str(number), "--given", "x2=1", "--given", "x5=0"]
    shell(*options, "--method", "gibbs", "--burn-in", "20", "--out", "rows.csv")
    frame = pd.read_csv("rows.csv")
    counts = np.zeros((2, 3, 2, 3))
    np.add.at(counts, tuple(frame[name].to_numpy() for name in ("x0", "x1", "x3", "x4")), 1)
    energy = stored("small.safetensors")
    law = np.exp(exact_table(energy.hypergraph, energy.tables))[:, :, 1, :, :, 0]
    assert_exact_law(counts.ravel(), (law / law.sum()).ravel())
    wrong = np.exp(0.9 * np.log(law))
    with pytest.raises(AssertionError):
        assert_exact_law(counts.ravel(), (wrong / wrong.sum()).ravel())
    exact, errors = shell("sample", "small.safetensors", "-n", "5")
    assert errors == ""
    assert shell("sample", "small.safetensors", "-n", "5", "--method", "exact")[0] == exact


def test_burn_in_belongs_to_gibbs(shell):
    options = ["sample", "small.safetensors", "-n", "1", "--burn-in"]
    shell.refused(*options, "5", "--method", "exact", says=["--burn-in", "--method gibbs"])
    shell.refused(*options, "-5", says=["--burn-in"])


# Progress


def test_progress_is_shown_on_a_terminal_only(shell, monkeypatch):
    monkeypatch.setattr("pyro_hoim.cli.asking.is_terminal", lambda: True)
    text, errors = shell("log-z", "small.safetensors", *CHEAP, "--json")
    assert "annealing" in errors and json.loads(text)["verdict"] == "verified"
    text, errors = shell("sample", "small.safetensors", "-n", "2000", "--method", "gibbs", "--burn-in", "1")
    assert "gibbs" in errors and text.count("\n") == 2001


def test_the_command_runs_what_the_library_runs(shell):
    result = shell.json("log-z", "small.safetensors", *CHEAP, "--seed", "9")
    backend = AnnealedImportance(num_chains=64, num_temperatures=100, seed=9)
    own = backend.log_partition(stored("small.safetensors"))
    assert result["value"] == float(own.value) and result["lower"] == float(own.lower)
    assert math.isclose(float(Auto().log_partition(stored("small.safetensors")).value), result["value"], abs_tol=0.5)


@pytest.mark.parametrize("method", ["ais", "auto"])
def test_scores_look_for_modes_from_the_rows(method, monkeypatch, shell):
    calls = noted(monkeypatch, AnnealedImportance, "log_partition")
    header = ",".join(stored("small.safetensors").domain.names)
    labels = [[0, 2, 1, 0, 1, 1], [1, 0, 0, 0, 2, 0], [0, 2, 1, 0, 1, 1]]
    lines = [",".join(map(str, row)) for row in labels]
    Path("rows.csv").write_text("\n".join([header, *lines, ",2,1,0,1,0"]) + "\n")
    options = [*CHEAP, "--seed", "1"] if method == "ais" else []
    result = shell.json("score", "small.safetensors", "rows.csv", *options)
    assert result["rows"] == 4
    given = [backend.starts for backend, _ in calls]
    assert given == ([((0, 2, 1, 0, 1, 1), (1, 0, 0, 0, 2, 0))] if method == "ais" else [])
