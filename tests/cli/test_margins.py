"""Marginal tables of every family, data as CSV, predictions beside the rows of a file, and accuracies of targets."""

import itertools
import math
from io import StringIO
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from command_line import save_random, stored

from pyro_hoim import InteractionHypergraph, Observations, load_table
from pyro_hoim.datasets import dataset_files
from pyro_hoim.schema import Domain
from pyro_hoim.testing import FALSE_ALARM_RATE

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
