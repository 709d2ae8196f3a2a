"""``learn``: what it prints and writes, what it does with awkward tables, and how it is resumed."""

import json
import re
import signal
from pathlib import Path

import numpy as np
import pytest
from command_line import kill
from safetensors.numpy import load_file

from pyro_hoim import Observations
from pyro_hoim.log_linear import LogLinearEnergy, SampledTraining, load_model, score_rows
from pyro_hoim.log_linear.learning import _session as _learn_trainers
from pyro_hoim.runs.container import sealed


def rows_of(number, columns=5, seed=0):
    """Coins, of which the second follows the first, and the fifth is the exclusive or of the third and fourth."""
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 2, (number, columns))
    x[:, 1] = np.where(rng.random(number) < 0.85, x[:, 0], 1 - x[:, 0])
    if columns > 4:
        x[:, 4] = np.where(rng.random(number) < 0.85, x[:, 2] ^ x[:, 3], rng.integers(0, 2, number))
    return x.astype(str).tolist()


def write(name, rows, header=None):
    """Write a CSV file and return its name."""
    names = header or [f"v{i}" for i in range(len(rows[0]))]
    Path(name).write_text("\n".join(",".join(line) for line in [names, *rows]) + "\n", encoding="utf-8")
    return name


def test_json_and_files(shell):
    source = write("coins.csv", rows_of(2000))
    found = shell.json("learn", source, "--target", "v4", "--out", "out")
    edges = {tuple(edge) for edge in found["edges"]}
    assert {edge for edge in edges if len(edge) > 1} == {("v0", "v1"), ("v2", "v3", "v4")}
    assert found["predictive"]["num_interactions"] > found["num_interactions"]  # control: nothing is pruned there
    assert found["structure"]["num_kept"] == 2 and found["structure"]["num_rejected"] > 10
    assert [test["edge"] for test in found["structure"]["tests"] if test["is_kept"]] == [
        line["edge"] for line in sorted(found["structure"]["tests"], key=lambda line: -line["gain"])[:2]
    ]
    listed = shell.json("interactions", "out")["interactions"]
    shared = {"edge", "value", "coefficient", "levels", "refined_information"}
    assert set(found["interactions"][0]) == shared | {"ridge"} and shared <= set(listed[0])
    there = {tuple(line["edge"]): line for line in listed}
    for line in found["interactions"]:
        other = there[tuple(line["edge"])]
        assert line["value"] == pytest.approx(other["value"], abs=1e-12) and line["levels"] == other["levels"]
        assert line["refined_information"]["kind"] == other["refined_information"]["kind"] == "exact"
    assert found["rows"] == {"train": 700, "validation": 300, "test": 1000}
    assert found["log_partition"]["kind"] == "exact" and found["log_partition"]["std_error"] == 0
    assert found["num_interactions"] == sum(len(edge) > 1 for edge in found["edges"]) < len(found["edges"])
    assert found["num_states"] == "32"
    # 85 % of the pairs agree: log 2 - H(0.85); the triple is right with probability 0.925.
    expected = 2 * np.log(2) + sum(p * np.log(p) for p in (0.85, 0.15, 0.925, 0.075))
    assert found["gain"]["test"] == pytest.approx(expected, abs=0.05)
    assert found["accuracy"]["test"]["accuracy"] == pytest.approx(0.925, abs=0.04)
    for key in ("kl", "nll", "pseudo_nll", "independent_kl"):
        assert set(found[key]) == {"train", "validation", "test"}
    for part in ("train", "validation", "test"):
        assert found["kl"][part] == pytest.approx(found["independent_kl"][part] - found["gain"][part], abs=1e-9)
        assert 0 < found["gain_std_error"][part] < 0.1 and 0 < found["predictive"]["gain_std_error"][part] < 0.1
    assert found["selection"]["rounds"][0]["num_interactions"] == 0
    assert found["seconds"] > 0 and found["peak_memory_mb"] > 50 and found["seed"] == 0
    assert json.loads(Path("out/fit.json").read_text()) == json.loads(json.dumps(found).replace('"out/', '"'))
    documented = set(re.findall(r"`(\w+)`", (Path(__file__).parents[2] / "docs/api/cli.md").read_text("utf-8")))
    inner = (found["selection"], found["log_partition"], found["interactions"][0], found["selection"]["rounds"][0])
    inner += (found["structure"], found["structure"]["tests"][0], found["predictive"])
    for keys in (found, *inner):
        assert {key for key in keys if not key.endswith("_std_error")} <= documented, set(keys) - documented
    page = Path("out/report.html").read_text(encoding="utf-8")
    assert "v2:v3:v4" in page and "data:image/svg+xml" in page and "The search" in page
    assert not Path("out/checkpoint").exists()
    model = load_model("out/model.safetensors")
    test = Observations.from_csv(source, domain=model.hypergraph.domain).split([0.35, 0.15, 0.5], 0)[2]
    energy = LogLinearEnergy.from_theta(model.hypergraph, model.theta, model.coding)
    assert score_rows(energy, test).nll == pytest.approx(found["nll"]["test"], rel=1e-9)
    assert model.info["role"] == "structure" and len(model.info["tests"]) == len(found["structure"]["tests"])
    richer = load_model("out/predictive.safetensors")
    energy = LogLinearEnergy.from_theta(richer.hypergraph, richer.theta, richer.coding)
    nll = score_rows(energy, test).nll
    assert richer.info["role"] == "predictive" and nll == pytest.approx(found["predictive"]["nll"]["test"], rel=1e-9)
    assert found["nll"]["test"] - nll == pytest.approx(found["predictive"]["advantage"]["test"], rel=1e-6, abs=1e-12)


def test_text_names_what_was_learned(shell):
    captured = shell("learn", write("coins.csv", rows_of(2000)), "--refit", "--out", "out")
    assert captured.out.startswith("In ") and "\nWhat limits this:\n" in captured.out
    assert "\nOn the test rows the model gains " in captured.out
    assert " nats per row over independent columns (standard error 0.0" in captured.out
    assert "v2:v3:v4" in captured.out and "gain" in captured.out and "out/report.html" in captured.out
    assert "training and validation rows together" in captured.out
    assert "round 1" in captured.err and "round 1" not in captured.out
    kept = json.loads(Path("out/fit.json").read_text())["num_interactions"]
    assert f"training the structure of {kept} interactions" in captured.err
    stages = ["learning from 700 rows, judged on 300 rows", "round 0", "kept round", "training once more", "log Z"]
    places = [captured.err.find(words) for words in [*stages, "scoring the rows", "writing the report"]]
    assert places == sorted(places) and places[0] >= 0
    assert len(captured.out.splitlines()) < 50


def test_other_commands_take_the_model(shell):
    source = write("coins.csv", rows_of(600))
    shell.json("learn", source, "--out", "out")
    for words in (f"score out {source}", f"predict out {source} --target v1", "log-z out", "interactions out"):
        assert shell(*words.split()).out
    assert shell("sample", "out", "-n", "3").out


def test_maximum_order_and_seed(shell):
    source = write("coins.csv", rows_of(800))
    pairs = shell.json("learn", source, "--max-order", "2", "--out", "a")
    assert max(map(len, pairs["edges"])) == 2
    again = shell.json("learn", source, "--max-order", "2", "--out", "b")
    assert again["nll"] == pairs["nll"]
    other = shell.json("learn", source, "--max-order", "2", "--seed", "1", "--out", "c")
    assert other["nll"] != pairs["nll"]


def test_constant_columns_and_levels_absent_from_training(shell):
    rows = [[*line, "same", "rare" if i == 7 else "usual"] for i, line in enumerate(rows_of(400))]
    found = shell.json("learn", write("t.csv", rows), "--out", "out")
    assert found["num_variables"] == 7
    assert all("v5" not in edge for edge in found["edges"])
    assert found["constant_columns"] == ["v5"]
    assert all(value is not None for part in ("nll", "kl") for value in found[part].values())


def test_all_rows_equal(shell):
    found = shell.json("learn", write("t.csv", [["x", "y"]] * 30), "--out", "out")
    assert found["num_interactions"] == 0 and found["nll"]["test"] == 0 and found["gain"]["test"] == 0


FEW = (
    "import functools\n"
    "from pyro_hoim.log_linear.learning import _session as _learn_trainers\n"
    "from pyro_hoim.log_linear import SampledTraining\n"
    "_learn_trainers.SampledTraining = functools.partial(SampledTraining, num_chains=300, num_iterations=60)\n"
)


@pytest.fixture
def few_chains(monkeypatch):
    """Chains and steps of sampled training that are enough to see what the command does with them."""
    monkeypatch.setattr(_learn_trainers, "SampledTraining", SampledTraining)  # which undoes the next line
    exec(FEW, {})


@pytest.mark.parametrize("settings", ["short", pytest.param("default", marks=pytest.mark.slow)])
def test_too_large_for_exact_inference_is_sampled(settings, shell, request):
    if settings == "short":
        request.getfixturevalue("few_chains")
    source = write("wide.csv", rows_of(300, 28))
    found = shell.json("fit", source, "--order", "2", "--out", "out")
    assert found["trainer"] == "sampled" and found["selection"] is None
    assert found["log_partition"]["kind"] != "exact" and found["log_partition"]["std_error"] <= 0.02
    assert found["num_interactions"] == 378 and found["gain"]["train"] > 0.3
    assert "estimated from Markov chains" in Path("out/report.html").read_text(encoding="utf-8")


@pytest.mark.usefixtures("few_chains")
@pytest.mark.parametrize("how", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_killed_run_is_resumed(how, shell):
    source = write("coins.csv", rows_of(500))
    options = ["learn", source, "--trainer", "sampled", "--max-order", "2", "--out"]
    kill([*options, "broken"], Path("broken/checkpoint/search.safetensors"), how, FEW)
    assert not Path("broken/fit.json").exists()

    assert "--resume" in shell.refused(*options, "broken")
    record = json.loads(Path("broken/checkpoint/run.json").read_text())
    del record["sha256"]
    told = shell.refused(*options, "broken", "--resume", "--seed", "1", progress=True)
    assert "--resume: the run in broken was started with --seed 0, and received --seed 1;" in told
    Path("broken/checkpoint/run.json").write_text(sealed({**record, "seconds": 1000.0}, {}))
    shell(*options, "broken", "--resume")
    shell(*options, "whole")
    first_theta, second_theta = (load_file(f"{name}/model.safetensors")["theta"] for name in ("broken", "whole"))
    assert np.array_equal(first_theta, second_theta)
    broken, whole = (json.loads(Path(name, "fit.json").read_text()) for name in ("broken", "whole"))
    assert broken["seconds"] > 1000 > whole["seconds"] and broken["stage_seconds"]["earlier_sessions"] >= 1000
    assert "earlier_sessions" not in whole["stage_seconds"]
    for found in (broken, whole):  # the rest is reading the rows and writing the page: as long as the machine likes
        assert {"search", "training", "log_z", "scores"} <= set(found["stage_seconds"])
        assert min(found["stage_seconds"].values()) > 0 and sum(found["stage_seconds"].values()) < found["seconds"]
    page = Path("broken/report.html").read_text("utf-8")
    assert f"earlier sessions {broken['stage_seconds']['earlier_sessions']:.1f} s" in page
    assert "complete" in shell.refused(*options, "broken", "--resume")


def test_a_run_that_its_time_limit_ended_is_complete_and_goes_on(shell):
    source = write("coins.csv", rows_of(2000))
    command = ["learn", source, "--target", "v4", "--seed", "3"]
    cut = shell.json(*command, "--out", "out", "--time-limit", "0.000001m")
    assert (cut["selection"]["status"], cut["num_interactions"], cut["structure"]) == ("time limit", 0, None)
    assert any(note.startswith("the time limit of 6e-05 s ended the search") for note in cut["notes"])
    assert "the time limit was reached" in Path("out/report.html").read_text(encoding="utf-8")
    assert load_model("out/model.safetensors").hypergraph.order == 1
    shell.refused(*command, "--out", "out", says=["--resume"])
    whole = shell.json(*command, "--out", "out", "--resume", "--time-limit", "2h")
    undisturbed = shell.json(*command, "--out", "whole")
    for name in ("edges", "notes", "structure", "gain"):
        assert whole[name] == undisturbed[name]
    assert whole["selection"]["status"] == undisturbed["selection"]["status"] != "time limit"
    assert not Path("out/checkpoint").exists()
    shell.refused(*command, "--out", "out", "--resume", says=["complete"])


@pytest.mark.parametrize("time", ["0", "0m", "5 minutes", "-3s", "1e3", ""])
def test_times_that_are_none_are_refused(shell, time):
    source = write("coins.csv", rows_of(50))
    shell.refused("learn", source, "--time-limit", time, says=["--time-limit", "90s, 5m or 2h"])
    assert not list(Path().glob("pyro-hoim-*"))
