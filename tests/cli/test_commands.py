"""The commands on good input: what they print, what they leave on disk, and that it agrees with the library."""

import itertools
import json
import math
import re
import subprocess
import sys
from io import StringIO
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest
import torch
from command_line import messages, save_random, stored

from pyro_hoim import Domain, InputError, InteractionHypergraph, Observations, load, load_table
from pyro_hoim.datasets import dataset_files
from pyro_hoim.log_linear import fit, goodness_of_fit, load_model
from pyro_hoim.testing import FALSE_ALARM_RATE, assert_exact_law


def probabilities(model):
    """Joint table by enumeration."""
    states = torch.tensor(list(itertools.product(*(range(n) for n in model.domain.cardinalities))))
    return torch.softmax(-model.energy(states), 0).reshape(model.domain.cardinalities).numpy()


DOCUMENTED_KEYS = {
    *("model", "num_variables", "num_states", "num_interactions", "num_parameters", "edges", "log_partition", "rows"),
    *("kl", "nll", "pseudo_nll", "independent_kl", "seconds", "peak_memory_mb", "seed"),
}


def test_fit_json_agrees_with_the_library(shell):
    result = shell.json("fit", "hair_eye_color", "--order", "2", "--out", "out")
    assert set(result) >= DOCUMENTED_KEYS
    data = load_table("hair_eye_color")
    own = fit(InteractionHypergraph.from_order(data.domain, 2), data)
    assert result["num_variables"] == 3 and result["num_states"] == "32" and result["num_interactions"] == 3
    assert result["edges"][-1] == ["Eye", "Sex"]
    nll = -own.log_likelihood / data.total_count
    assert result["nll"]["train"] == pytest.approx(nll, rel=1e-9)
    assert result["kl"]["train"] == pytest.approx(nll - data.entropy(), rel=1e-7)
    assert 2 * data.total_count * result["kl"]["train"] == pytest.approx(goodness_of_fit(own).deviance, rel=1e-7)
    independent = goodness_of_fit(fit(InteractionHypergraph.from_order(data.domain, 1), data))
    assert 2 * data.total_count * result["independent_kl"]["train"] == pytest.approx(independent.deviance, rel=1e-9)
    assert result["rows"] == {"train": 592.0, "validation": 0, "test": 0}
    assert result["nll"]["test"] is None and result["kl"]["validation"] is None
    assert result["log_partition"]["kind"] == "exact"
    assert result["log_partition"]["value"] == pytest.approx(own.log_partition, rel=1e-9)
    assert json.loads(Path("out/fit.json").read_text())["nll"] == result["nll"]
    assert torch.equal(load_model("out/model.safetensors").theta, own.theta)


def test_folders_are_numbered_and_never_reused(shell):
    for _ in range(2):
        shell("fit", "ucb_admissions", "--order", "1")
    assert sorted(p.name for p in Path().iterdir()) == ["pyro-hoim-ucb_admissions", "pyro-hoim-ucb_admissions-2"]


def test_report_is_self_contained_and_complete(shell):
    text = shell("fit", "czech_autoworkers", "--edges", "smoke*mental*phys + phys*systol + protein + family").out
    page = Path("pyro-hoim-czech_autoworkers/report.html").read_text(encoding="utf-8")
    assert page.count("data:image/svg+xml;base64,") == page.count("<img") + page.count("<source") > 1
    for outside in ("http://", "https://", "<script", "<link", "url("):
        assert outside not in page
    shown = ("In short", "What limits this", "Odds ratios", "Does the model fit?", "How this was made")
    assert all(part in page for part in shown)
    assert "report:" in text and "pyro-hoim-czech_autoworkers/report.html" in text


def test_infinite_estimate_is_reported_not_hidden(shell, monkeypatch):
    monkeypatch.setattr("pyro_hoim.log_linear.goodness.p_values._FINER", 10)  # more tables, as users have them
    captured = shell("fit", "titanic", "--order", "2", "--out", "out", "--json")
    result = json.loads(captured.out)
    assert result["mle_exists"] is False and result["status"] == "infinite"
    assert result["infinite_combinations"] == [{"edge": ["Class", "Age"], "levels": ["Crew", "Child"]}]
    (told,) = messages(captured.err)
    assert "Class=Crew, Age=Child" in told
    record = result["models"][0]
    assert (record["num_parameters"], record["df"]) == (17, 10)
    assert result["num_parameters"] == 17
    test = result["goodness_of_fit"]
    assert (test["df"], test["p_value_method"]) == (10, "conditional")
    assert test["p_value"] == 1 / (test["num_tables"] + 1) < 0.0002  # as far as tables drawn can tell
    assert (test["deviance"], test["p_value"]) == (record["g2"], record["p_value"])
    assert record["g2"] == pytest.approx(116.588, abs=5e-4)
    page = Path("out/report.html").read_text(encoding="utf-8")
    assert "No row has Class=Crew, Age=Child" in page and "10 degrees of freedom, p &lt; " in page


def test_score_agrees_with_enumeration_also_with_missing_cells(shell):
    shell("fit", "ucb_admissions", "--order", "2", "--out", "out")
    frame = load_table("ucb_admissions").to_pandas()
    frame.to_csv("cells.csv", index=False)
    result = shell.json("score", "out/model.safetensors", "cells.csv")
    table = probabilities(stored("out/model.safetensors"))
    counts = load_table("ucb_admissions").table().numpy()
    nll = -(counts * np.log(table)).sum() / counts.sum()
    assert result["nll"] == pytest.approx(nll, rel=1e-10)
    assert result["kl"] == pytest.approx(
        (counts * np.log(counts / counts.sum() / table)).sum() / counts.sum(), rel=1e-8
    )
    spread = (counts * (-np.log(table) - nll) ** 2).sum() / counts.sum()
    assert result["nll_std_error"] == pytest.approx(np.sqrt(spread / counts.sum()), rel=1e-10)
    domain = load_table("ucb_admissions").domain
    first, second, _ = (v.labels[0] for v in domain)
    names = ",".join(domain.names)
    Path("holes.csv").write_text(f"{names}\n{first},,\n,{second},\n", encoding="utf-8")
    result = shell.json("score", "out", "holes.csv")
    assert result["nll"] == pytest.approx(-(np.log(table[0].sum()) + np.log(table[:, 0].sum())) / 2, rel=1e-10)
    assert result["kl"] is None


def test_predict_agrees_with_enumeration(shell):
    fitted = shell.json("fit", "ucb_admissions", "--order", "2", "--target", "Dept", "--out", "out")
    load_table("ucb_admissions").to_pandas().to_csv("cells.csv", index=False)
    result = shell.json("predict", "out/model.safetensors", "cells.csv", "--target", "Dept")
    axis = load_table("ucb_admissions").domain.index("Dept")
    counts = np.moveaxis(load_table("ucb_admissions").table().numpy(), axis, -1)
    guess = np.moveaxis(probabilities(stored("out/model.safetensors")), axis, -1).argmax(-1)
    right = np.take_along_axis(counts, guess[..., None], -1).sum()
    assert result["accuracy"] == pytest.approx(right / counts.sum(), rel=1e-12)
    assert result["majority_accuracy"] == pytest.approx(counts.sum((0, 1)).max() / counts.sum(), rel=1e-12)
    assert result == {**result, "target": "Dept", "rows": 4526.0}
    assert fitted["accuracy"]["train"]["accuracy"] == pytest.approx(result["accuracy"])


def test_sample_has_the_conditional_law_and_is_reproducible(shell):
    shell("fit", "titanic", "--order", "1", "--out", "out")
    number = "60000"
    arguments = ["sample", "out/model.safetensors", "-n", number, "--given", "Sex=Male", "--seed", "7"]
    shell(*arguments, "--out", "rows.csv")
    assert shell(*arguments).out == Path("rows.csv").read_text(encoding="utf-8")
    frame = pd.read_csv("rows.csv")
    assert list(frame.columns) == ["Class", "Sex", "Age", "Survived"] and set(frame["Sex"]) == {"Male"}
    domain = load_table("titanic").domain
    codes = [frame[v.name].map(v.labels.index).to_numpy() for v in domain if v.name != "Sex"]
    counts = np.zeros((4, 2, 2))
    np.add.at(counts, tuple(codes), 1)
    law = probabilities(stored("out/model.safetensors"))[:, domain["Sex"].code("Male")]
    assert_exact_law(counts.ravel(), (law / law.sum()).ravel())
    with pytest.raises(AssertionError):
        assert_exact_law(counts.ravel(), np.full(16, 1 / 16))


def test_interactions_and_log_z(shell):
    shell("fit", "czech_autoworkers", "--order", "2", "--out", "out")
    rows = shell.json("interactions", "out/model.safetensors", "--top", "5")["interactions"]
    assert len(rows) == 5 and [r["value"] for r in rows] == sorted((r["value"] for r in rows), reverse=True)
    model = stored("out/model.safetensors")
    for row in rows:
        table = model.tables[model.hypergraph.term_slices[tuple(row["edge"])]]
        assert row["value"] == pytest.approx(float(table.square().mean().sqrt()))
        assert abs(row["coefficient"]) == pytest.approx(float(table.abs().max()))
    result = shell.json("log-z", "out/model.safetensors", "--method", "exact")
    states = torch.tensor(list(itertools.product(range(2), repeat=6)))
    assert result["value"] == pytest.approx(float(torch.logsumexp(-model.energy(states), 0)), rel=1e-12)
    assert result == {**result, "kind": "exact", "std_error": 0.0, "lower": result["value"], "upper": result["value"]}
    names = [t["name"] for t in shell.json("tables")["tables"]]
    assert names == ["czech_autoworkers", "rochdale", "ucb_admissions", "titanic", "hair_eye_color", "three_features"]


def test_split_columns_and_validation(shell):
    options = ["--columns", "smoke,mental,phys", "--split", "0.35,0.15,0.5", "--seed", "3"]
    result = shell.json("fit", "czech_autoworkers", "--order", "2", *options, "--out", "a")
    assert result["num_variables"] == 3 and sum(result["rows"].values()) == 1841
    assert result["rows"]["test"] == pytest.approx(0.5 * 1841, abs=1)
    assert result["status"] in ("early_stopped", "converged")
    for part in ("train", "validation", "test"):
        assert result["kl"][part] > 0 and result["nll"][part] > 0
    again = shell.json("fit", "czech_autoworkers", "--order", "2", *options, "--out", "b")
    assert again["nll"] == result["nll"]
    other = shell.json("fit", "czech_autoworkers", "--order", "2", *options[:-1], "4", "--out", "c")
    assert other["nll"] != result["nll"]


def test_missing_cells_dropped_or_marginalised(shell):
    rows = ["a,b", *["x,0"] * 30, *["x,1"] * 10, *["y,0"] * 10, *["y,1"] * 30, *["x,"] * 40, *["y,?"] * 3]
    Path("holes.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    common = ["fit", "holes.csv", "--order", "2"]
    dropped = shell.json(*common, "--missing", "?", "--missing", "drop", "--out", "a")
    assert dropped["rows"]["train"] == 80
    summed = shell.json(*common, "--missing", "?", "--missing", "marginalise", "--out", "b")
    assert summed["rows"]["train"] == 123 and summed["kl"]["train"] is None
    table = probabilities(stored("b/model.safetensors"))
    assert table.sum(1) == pytest.approx([80 / 123, 43 / 123], abs=1e-6)
    assert table[0] / table[0].sum() == pytest.approx([0.75, 0.25], abs=1e-6)
    level = shell.json(*common, "--missing", "drop", "--out", "c")
    assert level["num_states"] == "6" and level["rows"]["train"] == 83


def test_one_column_and_a_constant_column(shell):
    Path("one.csv").write_text("a,b\nx,k\ny,k\nx,k\n", encoding="utf-8")
    result = shell.json("fit", "one.csv", "--out", "a")
    assert result["num_states"] == "2" and result["num_parameters"] == 1
    result = shell.json("fit", "one.csv", "--columns", "a", "--out", "b")
    assert result["num_variables"] == 1 and result["edges"] == [["a"]]


def test_help_and_version(shell):
    text = shell("--help").out
    for command in ("fit", "sample", "score", "predict", "log-z", "interactions", "tables"):
        assert command in text
        shell(command, "--help")
    assert "Usage" in shell().out


@pytest.mark.fixed_seed  # moving the seeds of a process imports PyTorch
def test_the_list_of_commands_needs_no_torch():
    program = """
import sys
from pyro_hoim.cli import run
assert run(["--help"]) == 0
assert not {"torch", "numpy", "numba"} & set(sys.modules)
import numpy
assert "numpy" in sys.modules  # the control
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "fit           Fit a model to a table and write a report." in done.stdout


def same(value, expected):
    """Whether a number of JSON is that of Python, null standing for what is not finite."""
    return value == expected if math.isfinite(expected) else value is None


@pytest.mark.parametrize(
    ("table", "options"),
    [
        ("czech_autoworkers", ["--order", "2"]),
        ("titanic", ["--order", "2"]),
        ("hair_eye_color", ["learn"]),
        ("czech_autoworkers", ["--model", "dependency-network"]),
    ],
    ids=["pairs", "infinite", "learned", "network"],
)
def test_interactions_show_the_odds_ratios_of_python(table, options, shell):
    verb = [word for word in options if word == "learn"] or ["fit"]
    shell(*verb, table, *(word for word in options if word != "learn"), "--out", "out")
    expected = load("out").odds_ratios()
    fast = [] if "--model" in options else ["--no-information"]
    found = shell.json("interactions", "out", *fast)["odds_ratios"]
    assert found["level"] == 0.95 and found["left_out"] == 0 and found["notes"] == expected.attrs["notes"]
    for row, of_python in zip(found["rows"], expected.to_dict("records"), strict=True):
        assert ":".join(row["edge"]) == of_python["term"] and row["levels"] == of_python["levels"]
        names = [name for name in expected.columns if name not in ("term", "levels")]
        assert all(same(row[name], of_python[name]) for name in names)
        assert row["is_infinite"] == math.isinf(of_python["odds_ratio"])
    # On a terminal the same, of five interactions with the rest counted.
    terms = list(dict.fromkeys(expected["term"]))
    cut = shell.json("interactions", "out", "--top", "2", *fast)["odds_ratios"]
    assert cut["rows"] == [row for row in found["rows"] if ":".join(row["edge"]) in terms[:2]]
    assert cut["left_out"] == max(0, len(terms) - 2)
    text = shell("interactions", "out", "--top", "2", *fast).out.split("Odds ratios, the most certain first\n")[1]
    assert expected["levels"].iloc[0][:40] in text
    assert len(terms) < 3 or f"... {len(terms) - 2} more interaction" in text
    assert str(expected).split("\n")[1] in shell("interactions", "out", *fast).out


def test_the_level_of_odds_ratios_and_models_without(shell):
    shell("fit", "czech_autoworkers", "--order", "2", "--out", "out")
    found = shell.json("interactions", "out", "--no-information", "--level", "0.5")["odds_ratios"]
    expected = load("out").odds_ratios(0.5)
    assert found["level"] == 0.5 and found["rows"][0]["lower"] == expected["lower"].iloc[0]
    assert "(50% intervals" in shell("interactions", "out", "--no-information", "--level", "0.5").out
    Path("few.csv").write_text("a,b,c\n" + "0,0,1\n1,1,1\n0,1,0\n1,1,0\n" * 20, encoding="utf-8")
    shell("fit", "few.csv", "--model", "rbm", "--iterations", "50", "--hidden", "2", "--out", "machine")
    assert shell.json("interactions", "machine")["odds_ratios"] is None
    assert "(no odds ratios: a " in shell("interactions", "machine").out


def test_impossible_rows_make_scores_infinite_not_arbitrary(shell):
    fitted = shell.json("fit", "titanic", "--order", "2", "--out", "out")
    assert fitted["impossible_rows"]["train"] == 0 and fitted["nll"]["train"] > 0
    Path("crew.csv").write_text("Class,Sex,Age,Survived\nCrew,Male,Child,No\nCrew,Male,Adult,No\n", encoding="utf-8")
    result = shell.json("score", "out", "crew.csv")
    assert result["impossible_rows"] == 1 and result["nll"] is None and result["rows"] == 2
    assert "infinite" in shell("score", "out", "crew.csv").out
    rows = shell.json("interactions", "out")["interactions"]
    marked = {":".join(row["edge"]) for row in rows if row["is_infinite"]}
    assert marked == {"Class", "Age", "Class:Age"}
    for is_joint in (True, False):  # infinite ones first, of interactions and then of single columns
        flags = [row["is_infinite"] for row in rows if (len(row["edge"]) > 1) is is_joint]
        assert flags == sorted(flags, reverse=True)
    (pair,) = [row for row in rows if row["edge"] == ["Class", "Age"]]
    assert (pair["value"], pair["levels"], pair["num_identified"]) == (None, ["Crew", "Child"], 2)
    assert len(pair["finite_contrasts"]) == 3
    told = shell("interactions", "out", "--no-information").out
    assert "Class:Age  Class 3rd to 1st, Age Child to Adult: +2.3276 +- 0.4384" in told
    stopped = shell.json("fit", "titanic", "--order", "2", "--split", "0.5,0.25,0.25", "--out", "stopped")
    assert stopped["impossible_rows"] == {"train": 0, "validation": 0, "test": 0}
    assert all(stopped["kl"][part] < 1 for part in ("train", "validation", "test"))


def test_missing_labels_of_embedded_tables(shell):
    result = shell.json("fit", "titanic", "--missing", "Crew", "--missing", "drop", "--order", "1")
    assert result["rows"]["train"] == 2201 - 885 and result["num_states"] == "24"


def test_pseudo_likelihood_of_rows_with_missing_cells(shell):
    shell("fit", "ucb_admissions", "--order", "2", "--out", "out")
    table = probabilities(stored("out/model.safetensors"))
    domain = load_table("ucb_admissions").domain
    labels = [v.labels for v in domain]
    Path("rows.csv").write_text(f"{','.join(domain.names)}\n{labels[0][0]},{labels[1][1]},\n", encoding="utf-8")
    result = shell.json("score", "out", "rows.csv")
    pair = table.sum(2)
    expected = np.log(pair[0, 1] / pair[:, 1].sum()) + np.log(pair[0, 1] / pair[0].sum())
    assert result["pseudo_nll"] == pytest.approx(-expected, rel=1e-10)


def test_model_with_a_variable_named_count(shell):
    from pyro_hoim.log_linear import ModelFile, save_model
    from pyro_hoim.schema import Domain

    graph = InteractionHypergraph.from_order(Domain.from_cardinalities({"count": 2}), 1)
    save_model(Path("odd.safetensors"), ModelFile(graph, torch.zeros(1, dtype=torch.float64)))
    assert shell("sample", "odd.safetensors", "-n", "2").out.startswith("count\n")


def test_any_formula_is_a_file_name(shell):
    Path("odd.csv").write_text("a/b,c\nx,1\ny,0\nx,0\ny,1\nx,1\n", encoding="utf-8")
    formula = " + ".join(["`a/b`*c"] * 40)
    options = ["--posterior", "--num-chains", "1", "--num-draws", "20", "--burn-in", "10"]
    shell("fit", "odd.csv", "--edges", formula, *options, "--out", "out")
    assert Path("out/posterior.nc").exists()


def test_every_key_is_documented(shell):
    page = Path(__file__).parents[2] / "docs" / "api" / "cli.md"
    text = page.read_text(encoding="utf-8")
    documented, others = (
        set(re.findall(r"`([a-z_0-9]+)`", part)) for part in (text, text.partition("### The other commands")[2])
    )
    options = ["--posterior", "--num-chains", "2", "--num-draws", "60", "--burn-in", "20", "--target", "Admit"]
    fitted = shell.json("fit", "ucb_admissions", *options, "--out", "out")
    load_table("ucb_admissions").to_pandas().to_csv("cells.csv", index=False)
    results = [
        fitted,
        fitted["models"][0],
        fitted["goodness_of_fit"],
        fitted["posterior"],
        fitted["accuracy"]["train"],
        shell.json("score", "out", "cells.csv"),
        shell.json("predict", "out", "cells.csv", "--target", "Admit"),
        shell.json("log-z", "out"),
        shell.json("interactions", "out")["interactions"][0],
    ]
    used = {key for result in results for key in result} - {"name", "log_likelihood"}
    assert used <= documented, used - documented
    used = {key for result in results[5:7] for key in result}
    assert used <= others, used - others
    assert set(fitted) >= DOCUMENTED_KEYS


def test_the_main_job_keeps_to_the_columns_asked_for(shell):
    options = ["--columns", "2", "--num-chains", "2", "--num-draws", "60", "--burn-in", "20", "--out", "out"]
    result = shell.json("fit", *options)
    assert [record["name"] for record in result["models"]] == ["order 1", "order 2"]


def test_a_cut_list_of_impossible_combinations_is_one_for_readers_alone(shell, monkeypatch):
    monkeypatch.setattr("pyro_hoim.log_linear.fitting.existence._LISTED", 1)
    Path("diagonal.csv").write_text("a,b\nx,0\ny,1\nz,2\nx,0\n", encoding="utf-8")
    result = shell.json("fit", "diagonal.csv", "--order", "2", "--out", "out")
    assert len(result["infinite_combinations"]) == 1 and result["num_infinite_combinations"] == 6
    Path("other.csv").write_text("a,b\nx,1\nx,2\ny,0\ny,2\nz,0\nz,1\n", encoding="utf-8")
    assert shell.json("score", "out", "other.csv")["impossible_rows"] == 6


def test_an_error_after_the_folder_was_made_takes_it_away_again(shell, monkeypatch):
    monkeypatch.setattr("pyro_hoim.study.command.fit.analyse_request", Mock(side_effect=InputError("refused late")))
    assert "refused late" in shell.refused("fit", "titanic", "--out", "new", progress=True) and not Path("new").exists()
    kept = Path("kept/checkpoint")
    kept.mkdir(parents=True)
    (kept / "chain").write_text("hours of work", encoding="utf-8")
    shell("fit", "titanic", "--out", "kept", "--resume", status=2)
    assert (kept / "chain").exists()


def test_memory_is_null_where_the_system_does_not_tell(monkeypatch):
    from pyro_hoim.cli.output import peak_memory_mb

    assert (peak_memory_mb() or 0) > 10
    monkeypatch.setitem(sys.modules, "resource", None)
    assert peak_memory_mb() is None


# Marginal tables of every family, data as CSV, predictions beside the rows of a file, and accuracies of targets.

NAMES = ["a", "b", "c", "d"]


def table_of(energy):
    """Joint table by enumeration."""
    sizes = energy.domain.cardinalities
    states = torch.tensor(list(itertools.product(*map(range, sizes))))
    return torch.softmax(-energy.energy(states), 0).reshape(sizes).numpy()


def test_margins_agree_with_enumeration(shell):
    domain = Domain.from_cardinalities({"a": 2, "b": 3, "c": 2, "d": 2})
    save_random("m.safetensors", InteractionHypergraph.from_order(domain, 3), 1.0)
    joint = table_of(stored("m.safetensors"))
    found = shell.json("margins", "m.safetensors", "c", "a")
    assert found["kind"] == "exact" and found["names"] == ["c", "a"]
    expected = {(str(c), str(a)): joint.sum((1, 3))[a, c] for a in range(2) for c in range(2)}
    assert {tuple(cell["levels"]): cell["probability"] for cell in found["cells"]} == pytest.approx(expected, rel=1e-12)
    given = shell.json("margins", "m.safetensors", "b", "--given", "d=1", "--given", "a=0")
    part = joint[0, :, :, 1].sum(1)
    assert [cell["probability"] for cell in given["cells"]] == pytest.approx(list(part / part.sum()), rel=1e-12)
    wrong = joint[1, :, :, 1].sum(1)  # the control
    assert [cell["probability"] for cell in given["cells"]] != pytest.approx(list(wrong / wrong.sum()), rel=1e-3)
    assert given["given"] == {"d": "1", "a": "0"}
    lines = shell("margins", "m.safetensors", "b").out.splitlines()
    assert lines[0].split() == ["b", "probability"] and len(lines) == 4


def test_margins_of_a_fit_by_pairs_are_those_of_the_rows(shell):
    shell("fit", "czech_autoworkers", "--out", "o")
    cells = shell.json("margins", "o", "smoke", "phys")["cells"]
    counts = load_table("czech_autoworkers").to_pandas().groupby(["smoke", "phys"], observed=True)["count"].sum()
    for cell in cells:
        assert cell["probability"] == pytest.approx(counts[tuple(cell["levels"])] / 1841, abs=1e-7)


@pytest.mark.parametrize("model", ["dependency-network", "rbm"])
def test_margins_of_other_families_of_labels_add_up(model, shell):
    rows = [f"{i % 2},{i * i % 3 % 2},{i * 7 % 5 % 2}" for i in range(60)]
    Path("t.csv").write_text("a,b,c\n" + "\n".join(rows) + "\n", encoding="utf-8")
    options = ["--method", "exact", "--hidden", "1", "--iterations", "30"] if model == "rbm" else []
    shell("fit", "t.csv", "--model", model, *options, "--out", "o")
    both = {tuple(c["levels"]): c["probability"] for c in shell.json("margins", "o", "a", "b")["cells"]}
    one = {c["levels"][0]: c["probability"] for c in shell.json("margins", "o", "a")["cells"]}
    for level, p in one.items():
        assert sum(q for key, q in both.items() if key[0] == level) == pytest.approx(p, rel=1e-9)
        rest = shell.json("margins", "o", "b", "--given", f"a={level}")["cells"]
        assert [c["probability"] for c in rest] == pytest.approx([both[level, c["levels"][0]] / p for c in rest])
    # Columns one by one have shares of draws.
    found = shell.json("margins", "o", "--num-draws", "4000", "--given", "a=1")
    assert found["kind"] == "estimate" and found["draws"] == 4000
    assert found["columns"][0]["probabilities"] == [0.0, 1.0]
    for column in found["columns"][1:]:
        (pair,) = [shell.json("margins", "o", column["name"], "--given", "a=1")["cells"]]
        for p, error, cell in zip(column["probabilities"], column["std_errors"], pair, strict=True):
            assert p == pytest.approx(cell["probability"], abs=4.5 * error + 0.01)
    assert "most probable state" in shell.refused("mode", "o")


def test_margins_of_counts_are_shares_of_draws_with_errors(shell):
    generator = np.random.default_rng(3)
    frame = pd.DataFrame(np.minimum(generator.poisson(1.0, (80, 2)), 3), columns=["u", "v"])
    frame.to_csv("c.csv", index=False)
    fit = ["fit", "c.csv", "--model", "grm", "--family", "truncated-poisson", "--maximum", "3"]
    shell(*fit, "--split", "1,0,0", "--order", "1", "--l1", "0", "--out", "o")
    shown = shell("margins", "o", "u", "--num-draws", "4000", "--json")
    assert "shares of 4,000 draws" in shown.err and shown.err.count("\n") == 1
    found = shell.json("margins", "o", "u", "--num-draws", "4000")
    shares = {int(cell["levels"][0]): cell["probability"] for cell in found["cells"]}
    assert found["kind"] == "estimate" and sum(shares.values()) == pytest.approx(1)
    probs = []
    for u in range(4):
        each = []
        for v in range(4):
            Path("one.csv").write_text(f"u,v\n{u},{v}\n", encoding="utf-8")
            each.append(np.exp(-shell.json("score", "o", "one.csv")["nll"]))
        probs.append(sum(each))
    assert sum(probs) == pytest.approx(1, abs=1e-6)
    width = math.sqrt(math.log(8 / FALSE_ALARM_RATE) / (2 * 4000))  # Hoeffding, four shares
    assert all(abs(shares.get(u, 0.0) - probs[u]) < width for u in range(4))
    assert not all(abs(shares.get(u, 0.0) - 0.25) < width for u in range(4))  # the control
    cell = found["cells"][0]
    assert cell["std_error"] == pytest.approx((cell["probability"] * (1 - cell["probability"]) / 4000) ** 0.5)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["smok"], "NAMES: unknown variable 'smok'; did you mean 'smoke'"),
        (["smoke", "smoke"], "NAMES: names must be unique, but 'smoke' is repeated"),
        (["smoke", "--given", "smoke=y"], "--given: fixes 'smoke', whose distribution is asked for"),
        (["smoke", "--given", "phys"], "--given: expected COL=VALUE, received 'phys'"),
        (["smoke", "--given", "phys=maybe"], "'maybe'"),
        (["smoke", "--num-draws", "5"], "--num-draws: expected a whole number from 100 to 10000000, received 5"),
    ],
)
def test_wrong_margins_are_refused(words, told, shell):
    save_random("m.safetensors", InteractionHypergraph.from_order(load_table("czech_autoworkers").domain, 1), 1.0)
    assert told in shell.refused("margins", "m.safetensors", *words)


def test_embedded_tables_are_written_and_read_back(shell):
    for name in ("czech_autoworkers", "titanic"):
        table = load_table(name)
        frame = pd.read_csv(StringIO(shell("data", name).out), dtype=dict.fromkeys(table.domain.names, str))
        again = Observations.from_pandas(frame, count="count", domain=table.domain)
        assert torch.equal(again.table(), table.table())
    shell("data", "titanic", "--out", "t.csv")
    assert Path("t.csv").read_text(encoding="utf-8") == shell("data", "titanic").out
    assert "exists" in shell.refused("data", "titanic", "--out", "t.csv")
    assert shell.refused("data", "titanc") == "NAME: unknown data set 'titanc'; did you mean 'titanic'"
    names = [info["name"] for info in shell.json("tables")["public"]]
    assert names == [info.name for info in dataset_files()]
    assert "mushroom" in shell("tables").out


def test_a_public_data_set_that_is_not_there_is_one_line(shell, monkeypatch, tmp_path):
    monkeypatch.setenv("PYRO_HOIM_DATA", str(tmp_path))
    line = shell.refused("data", "mushroom")
    assert "expected mushroom.csv or agaricus-lepiota.data in the folder" in line and "to download it" in line


def test_predictions_stand_beside_the_columns_of_the_file(shell):
    shell("fit", "czech_autoworkers", "--order", "1", "--out", "o")
    Path("r.csv").write_text(
        "id,smoke,mental,phys,systol,protein,family\n7,y,n,y,y,n,y\n8,n,y,,y,n,y\n", encoding="utf-8"
    )
    shell("predict", "o", "r.csv", "--target", "smoke", "--out", "p.csv")
    frame, rows = pd.read_csv("p.csv"), pd.read_csv("r.csv")
    pd.testing.assert_frame_equal(frame[list(rows.columns)], rows)
    assert list(frame.columns[7:]) == ["predicted", "p(y)", "p(n)", "is_exact"]
    assert "has a column 'predicted' already" in shell.refused(
        "predict", "o", "p.csv", "--target", "smoke", "--out", "q"
    )


def test_several_targets_are_predicted_in_one_call(shell):
    shell("fit", "czech_autoworkers", "--out", "o")
    both = shell.json("predict", "o", "czech_autoworkers", "--target", "smoke", "--target", "phys", "--out", "p.csv")
    for name in ("smoke", "phys"):
        assert both["targets"][name] == shell.json("predict", "o", "czech_autoworkers", "--target", name)
    frame = pd.read_csv("p.csv")
    assert {"smoke: predicted", "phys: predicted", "phys: p(y)"} <= set(frame.columns) and len(frame) == 64
    text = shell("predict", "o", "czech_autoworkers", "--target", "smoke", "--target", "phys").out
    assert text.count("majority accuracy") == 2
    Path("short.csv").write_text("mental,systol,protein,family\ny,n,y,n\n", encoding="utf-8")
    absent = shell.json("predict", "o", "short.csv", "--target", "smoke", "--target", "phys")
    assert all(found["predicted_rows"] == 1 and found["rows"] == 0 for found in absent["targets"].values())
    assert "'smoke' is repeated" in shell.refused("predict", "o", "short.csv", "--target", "smoke", "--target", "smoke")
    assert "'smok'" in shell.refused("predict", "o", "short.csv", "--target", "phys", "--target", "smok")


def test_embedded_tables_stand_for_files(shell):
    shell("fit", "czech_autoworkers", "--order", "1", "--out", "o")
    shell("data", "czech_autoworkers", "--out", "t.csv")
    assert shell.json("score", "o", "czech_autoworkers") == shell.json("score", "o", "t.csv")
    rows = shell("sample", "o", "--complete", "czech_autoworkers").out
    assert rows.count("\n") == 1 + 1841


FAMILIES = {"log-linear": ("--order", "2"), "dependency-network": ("--model", "dependency-network")}


@pytest.mark.parametrize("words", FAMILIES.values(), ids=FAMILIES)
def test_each_target_has_the_accuracy_that_it_has_alone(words, shell):
    data = ("fit", "ucb_admissions", *words, "--split", "0.7,0,0.3")
    both = shell.json(*data, "--target", "Admit", "--target", "Dept", "--out", "both")
    assert list(both["targets"]) == ["Admit", "Dept"] and "accuracy" not in both
    for name in ("Admit", "Dept"):
        alone = shell.json(*data, "--target", name, "--out", name)
        assert "targets" not in alone and both["targets"][name]["validation"] is None
        for part in ("train", "test"):
            assert both["targets"][name][part] == pytest.approx(alone["accuracy"][part])
    assert both["targets"]["Admit"]["test"]["accuracy"] != both["targets"]["Dept"]["test"]["accuracy"]  # control
    assert "Prediction of several columns" in Path("both/report.html").read_text(encoding="utf-8")


def test_wrong_targets_are_refused_before_any_work(shell):
    given = ("fit", "ucb_admissions", "--target", "Admit", "--target")
    shell.refused(*given, "Admit", says=["'Admit' is repeated", "--target"])
    shell.refused(*given, "Depp", says=["--target: unknown column 'Depp'; did you mean 'Dept'"])
