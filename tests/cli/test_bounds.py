"""Log Z between bounds at the command line, against enumeration."""

import json
import math
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from command_line import save_random, stored

from pyro_hoim import Domain, InputError, InteractionHypergraph, LogLinearEnergy
from pyro_hoim.core.command.options import num_bytes, seconds
from pyro_hoim.log_linear.bounds import importance
from pyro_hoim.log_linear.bounds._sweeps import Sweeps
from pyro_hoim.testing import exact_log_partition

from support.calls import noted

BOUNDS = ["--method", "bounds", "--max-cells", "16"]


@pytest.fixture(autouse=True)
def model():
    """A model of eleven columns as a model file, with its log Z by enumeration, and as a file of others."""
    graph = InteractionHypergraph.from_order(Domain.from_cardinalities([2] * 9 + [3] * 2), 2)
    save_random("m.safetensors", graph, 0.6)
    energy = stored("m.safetensors")
    LogLinearEnergy(energy.hypergraph, energy.tables).to_uai("m.uai")
    return energy, float(exact_log_partition(energy.hypergraph, energy.tables))


@pytest.mark.parametrize("name", ["m.safetensors", "m.uai"])
def test_bounds_and_limits_hold_and_the_estimate_lies_between_them(name, model, shell):
    _, exact = model
    found = shell.json("log-z", name, *BOUNDS)
    assert found["lower_bound"] <= found["lower"] <= found["value"] <= found["upper"] <= found["upper_bound"]
    assert found["lower"] <= exact <= found["upper"] and abs(found["value"] - exact) < 5 * found["std_error"] < 0.2
    assert not found["lower"] <= exact + 0.3 <= found["upper"]  # a wrong value would be seen
    assert (found["kind"], found["verdict"]) == ("biased", "verified")
    assert found["method"] == "importance sampling from mini-buckets"
    assert shell.json("log-z", name, *BOUNDS, "--seed", "0") == found  # the default
    other = shell.json("log-z", name, *BOUNDS, "--seed", "1")
    assert other["value"] != found["value"] and other["upper_bound"] == found["upper_bound"]


def test_a_person_sees_both_bounds(shell):
    found = shell.json("log-z", "m.uai", *BOUNDS)
    text, errors = shell("log-z", "m.uai", *BOUNDS)
    lines = text.splitlines()
    assert lines[0].startswith(
        f"log Z = {found['value']:.10g} +- {found['std_error']:.2g} (biased: an estimate between bounds;"
    )
    assert lines[1].endswith(f"{found['lower']:.8g} to {found['upper']:.8g} (95%)")
    assert lines[2].endswith(f"{found['lower_bound']:.8g} to {found['upper_bound']:.8g} (certain)")
    assert re.search(r"[\d.]+ draws$", lines[3]) and lines[4].endswith("verified")
    assert errors == ""  # no line of progress unless standard error is a terminal


def test_the_bounds_so_far_are_shown_on_a_terminal(shell, monkeypatch):
    monkeypatch.setattr("pyro_hoim.cli.asking.is_terminal", lambda: True)
    out, errors = shell("log-z", "m.uai", *BOUNDS, "--json")
    assert re.search(r"log Z between -?[\d.]+ and [\d.]+ \[", errors) and "log Z between" not in out


def test_given_evidence_the_result_file_has_the_estimate(model, shell):
    energy, _ = model
    Path("e.evid").write_text("2 0 1 10 2")
    rest, constant = energy.condition({"x0": 1, "x10": 2})
    exact = float(constant) + float(exact_log_partition(rest.hypergraph, rest.tables))
    found = shell.json("log-z", "m.uai", *BOUNDS, "--evidence", "e.evid", "--out", "z.PR")
    assert found["lower"] <= exact <= found["upper"] < exact + 1
    assert float(Path("z.PR").read_text().split()[1]) == pytest.approx(found["value"] / math.log(10), abs=1e-12)


def test_a_time_limit_leaves_bounds_that_hold(model, shell):
    _, exact = model
    found = shell.json("log-z", "m.uai", "--method", "bounds", "--max-cells", "9", "--time-limit", "0.0001s")
    assert "the time limit of 0.0001 s ended" in found["notes"][-1]
    assert found["lower_bound"] <= exact <= found["upper_bound"]
    longer = shell.json("log-z", "m.uai", "--method", "bounds", "--max-cells", "9", "--time-limit", "10m")
    assert not any("time limit" in note for note in longer["notes"])
    assert longer["upper_bound"] - longer["lower_bound"] < found["upper_bound"] - found["lower_bound"]


@pytest.mark.parametrize(("owner", "name"), [(Sweeps, "passes"), (importance, "independent")])
def test_ctrl_c_leaves_the_bounds_so_far(owner, name, model, shell, monkeypatch):
    """An interrupt in the passes after the first ones, or in the draws after the first of them."""
    _, exact = model
    words = ["log-z", "m.uai", "--method", "bounds", "--max-cells", "9", "--time-limit", "10m"]
    with monkeypatch.context() as patch:
        calls = noted(patch, owner, name, 6)
        patch.setattr("pyro_hoim.log_linear.bounds.importance.CHUNK", 2**6)
        found = shell.json(*words)
    assert len(calls) >= 6 and any("interrupted" in note for note in found["notes"])
    assert exact - 20 < found["lower_bound"] <= exact <= found["upper_bound"] < exact + 20
    assert not any("interrupted" in note for note in shell.json(*words)["notes"])  # control


def test_larger_mini_buckets_are_tighter_and_the_largest_are_exact(model, shell):
    _, exact = model
    wide, narrow, whole = (
        shell.json("log-z", "m.uai", "--method", "bounds", "--max-cells", size) for size in ("9", "128", "10000")
    )
    assert wide["upper_bound"] - wide["lower_bound"] > narrow["upper_bound"] - narrow["lower_bound"] > 1e-3
    assert whole["upper_bound"] == pytest.approx(exact, abs=1e-9) == whole["lower_bound"]


def test_no_possible_state_has_no_estimate(shell):
    Path("z.uai").write_text("MARKOV 2  2 2  1  2 0 1   4  0 0 0 0")
    found = shell.json("log-z", "z.uai", "--method", "bounds")
    assert found["is_zero"] is True and found["value"] is None


def test_a_few_draws_warn_in_the_words_of_the_command(shell):
    save_random("cold.safetensors", InteractionHypergraph.from_order(Domain.from_cardinalities([2] * 40), 2), 1.5)
    words = ["log-z", "cold.safetensors", "--method", "bounds", "--max-cells", "8", "--time-limit", "0.01s"]
    found, errors = shell(*words, "--json")
    assert errors.startswith("pyro-hoim: warning: --method bounds: few draws") and "--max-cells" in errors
    assert errors.count("\n") == 1
    result = json.loads(found)
    assert result["std_error"] is None and result["verdict"] == "unreliable"
    assert result["lower_bound"] <= result["value"] <= result["upper_bound"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ([*BOUNDS, "--num-chains", "8"], ["--num-chains: belongs to --method ais, received --method bounds"]),
        ([*BOUNDS, "--temperatures", "adaptive"], ["--temperatures: belongs to --method ais"]),
        ([*BOUNDS, "--device", "cpu"], ["--device: belongs to --method ais"]),
        (["--time-limit", "5s"], ["--time-limit: belongs to --method bounds, received --method auto"]),
        (["--method", "ais", "--max-cells", "4"], ["--max-cells: belongs to", "received --method ais"]),
        (["--method", "ais", "--memory-limit", "4"], ["--memory-limit: belongs to", "received --method ais"]),
        (["--method", "bounds", "--max-cells", "0"], ["--max-cells", "1 to"]),
        (["--method", "bounds", "--max-cells", "8"], ["an interaction has 9 cells", "raise --max-cells"]),
        (
            [*BOUNDS, "--memory-limit", "10B"],
            ["bytes", "the budget is 10", "raise --memory-limit, for no --max-cells fits"],
        ),
        ([*BOUNDS, "--memory-limit", "plenty"], ["--memory-limit: expected a size above 0", "'plenty'"]),
        ([*BOUNDS, "--memory-limit", "0GiB"], ["--memory-limit: expected a size above 0"]),
        ([*BOUNDS, "--time-limit", "soon"], ["--time-limit: expected a time above 0", "'soon'"]),
        ([*BOUNDS, "--seed", "-1"], ["--seed"]),
    ],
)
def test_wrong_options(options, says, shell):
    Path("r.csv").write_text(",".join(f"x{k}" for k in range(11)) + "\n" + ",".join("0" * 11) + "\n")
    shell.refused("log-z", "m.safetensors", *options, says=says)
    shell.refused("score", "m.safetensors", "r.csv", *options, says=says)


def test_a_refusal_of_too_little_memory_names_cells_that_fit(shell):
    save_random("pairs.safetensors", InteractionHypergraph.from_order(Domain.from_cardinalities([2] * 30), 2), 0.1)
    Path("r.csv").write_text(",".join(f"x{k}" for k in range(30)) + "\n" + ",".join("0" * 30) + "\n")
    budget = ["--method", "bounds", "--memory-limit", "32MiB"]
    for words in (["log-z", "pairs.safetensors"], ["score", "pairs.safetensors", "r.csv"]):
        line = shell.refused(*words, *budget, says=["raise --memory-limit, or lower --max-cells to "])
        cells = int(line.rpartition(" ")[2])
        assert "max_" not in line and "BucketImportance" not in line
        found = shell.json(*words, *budget, "--max-cells", str(cells), "--time-limit", "0.01s")
        assert found.get("method", found.get("log_z_method")) is not None
        shell.refused(*words, *budget, "--max-cells", str(2 * cells), says=["--memory-limit"])  # control: twice as many


def test_budgets_of_exact_sums_and_a_refusal_that_names_what_is_left(shell):
    domain = Domain.from_cardinalities([2] * 30)
    save_random("pairs.safetensors", InteractionHypergraph.from_order(domain, 2), 0.1)
    for method in ([], ["--method", "exact"]):
        words = ["log-z", "pairs.safetensors", *method]
        says = ["the budget is 4", "--method ais estimates", "--method bounds estimates it between bounds"]
        shell.refused(*words, "--max-cells", "4", says=says)
        shell.refused(*words, "--memory-limit", "1KiB", says=["the budget is 1024", "--method bounds"])
    chain = InteractionHypergraph(domain, zip(domain.names, domain.names[1:], strict=False), closure=True)
    save_random("chain.safetensors", chain, 0.1)
    found = shell.json("log-z", "chain.safetensors", "--max-cells", "4")  # control: pairs are enough
    assert found == shell.json("log-z", "chain.safetensors") and found["kind"] == "exact"


@pytest.mark.parametrize(
    ("budget", "number"), [(("--max-cells", "1"), None), (("--max-cells", "4"), None), (("--memory-limit", "200"), 200)]
)
def test_budgets_hold_for_models_however_small(budget, number, shell):
    """All pairs of five columns: 32 states, whose table conditioning avoids; nothing sums it in 200 bytes."""
    domain = Domain.from_cardinalities([2] * 5)
    save_random("pairs.safetensors", InteractionHypergraph.from_order(domain, 2), 0.1)
    plain = shell.json("log-z", "pairs.safetensors")
    if number is None:
        found = shell.json("log-z", "pairs.safetensors", *budget)
        assert (found["kind"], found["method"] == plain["method"]) == ("exact", False)
        assert found["value"] == pytest.approx(plain["value"], abs=1e-12)
    else:
        shell.refused("log-z", "pairs.safetensors", *budget, says=[f"the budget is {number}", "--method bounds"])
    roomy = shell.json("log-z", "pairs.safetensors", "--max-cells", "4096", "--memory-limit", "8GiB")
    assert roomy == plain  # control


def test_score_between_bounds(shell, model):
    _, exact = model
    Path("r.csv").write_text(",".join(f"x{k}" for k in range(11)) + "\n" + ("0," * 10 + "1\n") * 3)
    by_sum = shell.json("score", "m.safetensors", "r.csv")
    found = shell.json("score", "m.safetensors", "r.csv", *BOUNDS)
    log_z = shell.json("log-z", "m.safetensors", *BOUNDS)
    assert found["nll"] - by_sum["nll"] == pytest.approx(log_z["value"] - exact, abs=1e-9)
    assert found["log_z_std_error"] == log_z["std_error"] and found["log_z_kind"] == "biased"
    assert "(certain)" in shell("score", "m.safetensors", "r.csv", *BOUNDS).out


def test_families_without_bounds_say_so(shell):
    rows = np.random.default_rng(0).poisson(1.0, size=(60, 3))
    pd.DataFrame(rows, columns=["p", "q", "r"]).to_csv("counts.csv", index=False)
    shell("fit", "counts.csv", "--model", "grm", "--l1", "0.1", "--out", "grm")
    pd.DataFrame(rows > 0, columns=["p", "q", "r"]).to_csv("binary.csv", index=False)
    shell("fit", "binary.csv", "--model", "rbm", "--hidden", "1", "--iterations", "2", "--out", "rbm")
    shell("fit", "titanic", "--model", "dependency-network", "--out", "network")
    for name in ("grm", "rbm"):
        shell.refused("log-z", name, "--method", "bounds", says=["--method", "has no bounds", "--method ais"])
        shell.refused("log-z", name, "--method", "bounds", "--max-cells", "8", says=["--max-cells: not for a "])
    shell.refused("log-z", "network", "--method", "bounds", says=["no normalising constant"])
    shell.refused("score", "network", "titanic", "--method", "bounds", says=["does not have", "leave it out"])


@pytest.mark.parametrize(
    ("text", "number"),
    [("1", 1), ("1000000", 10**6), ("12B", 12), ("1.5KiB", 1536), ("500MiB", 500 * 2**20), (" 8GiB ", 2**33)],
)
def test_sizes_are_read_in_units(text, number):
    assert num_bytes(text) == number
    assert num_bytes(None) is None


@pytest.mark.parametrize("text", ["", "0", "-1", "8 GiB", "8GB", "0.1B", "nan", "1e9", "GiB"])
def test_control_other_sizes_are_refused(text):
    with pytest.raises(InputError, match="memory_limit: expected a size above 0"):
        num_bytes(text)


@pytest.mark.parametrize(("text", "number"), [("90", 90), ("90s", 90), ("5m", 300), ("1.5h", 5400), (None, None)])
def test_times_are_read_in_units(text, number):
    assert seconds(text) == number
