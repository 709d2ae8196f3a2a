"""Dependency networks at the command line: what is printed and written agrees with the library; bad input is named."""

import json
import re
from pathlib import Path
from unittest.mock import Mock

import pandas as pd
import pytest
import torch

from pyro_hoim import Domain, Observations, load_table
from pyro_hoim.cli import run
from pyro_hoim.dependency_network import (
    DependencyConditionals,
    NetworkFile,
    TableConditional,
    fc_limit,
    learn_network,
    load_network,
    save_network,
    stationary_law,
)
from pyro_hoim.testing import assert_exact_law

FAMILY = ["--model", "dependency-network"]
NETWORK = [*FAMILY, "--split", "1,0,0"]


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """Folder of a network of the Czech autoworkers, and the table as a file beside it."""
    folder = tmp_path_factory.mktemp("network")
    load_table("czech_autoworkers").to_pandas().to_csv(folder / "rows.csv", index=False)
    assert run(["fit", str(folder / "rows.csv"), *NETWORK, "--target", "smoke", "--out", str(folder / "out")]) == 0
    return folder


# Good input


def test_fit_prints_what_the_library_finds(shell):
    found = shell.json(
        "fit", "czech_autoworkers", *FAMILY, "--split", "0.6,0.1,0.3", "--seed", "3", "--target", "smoke"
    )
    rows = load_table("czech_autoworkers")
    parts = dict(zip(("train", "validation", "test"), rows.split((0.6, 0.1, 0.3), 3), strict=True))
    network = learn_network(parts["train"]).conditionals
    law = stationary_law(network).probs
    assert found["num_interactions"] == len(network.edges)
    assert sorted(map(tuple, found["edges"])) == sorted(network.edges)
    assert [e["edge"] for e in found["interactions"]] == found["edges"]
    assert found["num_states"] == "64" and found["log_partition"] is None and found["has_unique_law"] is True
    for name, part in parts.items():
        weight = part.counts / part.total_count
        assert found["rows"][name] == part.total_count
        pseudo = -float((weight * network.log_pseudo_prob(part.codes)).sum())
        assert found["pseudo_nll"][name] == pytest.approx(pseudo, abs=1e-10)
        nll = -float((weight * law[tuple(part.codes.T)].log()).sum())
        assert found["nll"][name] == pytest.approx(nll, abs=1e-10)
        assert found["kl"][name] == pytest.approx(nll - part.entropy(), abs=1e-10)
        assert found["fc_limit"][name] == pytest.approx(fc_limit(part, network).value, abs=1e-12)
        assert found["fc"][name] <= found["fc_limit"][name]
        right = network.node("smoke").log_probs(part.codes).argmax(-1) == part.codes[:, 0]
        assert found["accuracy"][name]["accuracy"] == pytest.approx(float((weight * right).sum()), abs=1e-12)
        assert sum(n["nll"][name] for n in found["nodes"]) == pytest.approx(pseudo, abs=1e-10)
    inside = json.loads(json.dumps(found).replace('"pyro-hoim-czech_autoworkers/', '"'))
    assert json.loads(Path("pyro-hoim-czech_autoworkers/fit.json").read_text()) == inside
    assert load_network(found["model"]).conditionals.edges == network.edges
    assert Path(found["report"]).read_text().count("data:image/svg+xml") == 9
    assert not Path("pyro-hoim-czech_autoworkers/checkpoint").exists()


def test_options_of_learning_reach_the_learner(shell):
    options = ["--alpha", "0", "--max-leaves", "2", "--lossless", "--jobs", "1"]
    found = shell.json("fit", "czech_autoworkers", *NETWORK, *options)
    learned = learn_network(load_table("czech_autoworkers"), alpha=0.0, max_leaves=2, lossless=True)
    assert found["alpha"] == 0.0
    assert [n["num_leaves"] for n in found["nodes"]] == [n.num_leaves for n in learned.nodes]
    stored = load_network(found["model"]).conditionals
    for node, other in zip(stored.nodes, learned.conditionals.nodes, strict=True):
        assert torch.equal(node.probs, other.probs)


def test_text_names_scores_arrows_and_files(fitted, shell):
    out = shell("fit", str(fitted / "rows.csv"), *NETWORK, "--out", "again").out
    assert "network  1,841  0.4090" in out
    assert re.search("mental +phys +0", out)
    assert "report: again/report.html" in out


def test_score_agrees_with_the_fit(fitted, shell):
    fit = json.loads((fitted / "out" / "fit.json").read_text())
    found = shell.json("score", str(fitted / "out"), str(fitted / "rows.csv"))
    for key in ("nll", "kl", "pseudo_nll", "fc", "fc_limit"):
        assert found[key] == pytest.approx(fit[key]["train"], abs=1e-12)
    assert (found["rows"], found["impossible_rows"]) == (1841, 0)


def test_predict_is_the_conditional_itself(fitted, shell):
    network = load_network(fitted / "out" / "model.safetensors").conditionals
    rows = Observations.from_csv(fitted / "rows.csv", domain=network.domain)
    found = shell.json("predict", str(fitted / "out"), str(fitted / "rows.csv"), "--target", "phys", "--out", "p.csv")
    log_probs = network.node("phys").log_probs(rows.codes)
    right = log_probs.argmax(-1) == rows.codes[:, 2]
    assert found["accuracy"] == pytest.approx(float((right * rows.counts).sum()) / 1841, abs=1e-12)
    assert found["kind"] == "exact"
    written = pd.read_csv("p.csv")
    assert written["p(y)"].to_numpy() == pytest.approx(
        log_probs.exp()[:, rows.domain["phys"].labels.index("y")].numpy()
    )


def test_interactions_are_directed_with_what_the_reader_gains(fitted, shell):
    fit = json.loads((fitted / "out" / "fit.json").read_text())
    every = shell.json("interactions", str(fitted / "out"))
    assert (every["interactions"], every["left_out"]) == (fit["interactions"], 0)
    two = shell.json("interactions", str(fitted / "out"), "--top", "2")  # two of six pairs, both ways
    assert (two["interactions"], two["left_out"]) == (fit["interactions"][:4], 4)
    assert {tuple(row["edge"]) for row in two["odds_ratios"]["rows"]} < {
        tuple(row["edge"]) for row in every["odds_ratios"]["rows"]
    }
    first = fit["interactions"][0]
    line = shell("interactions", str(fitted / "out"), "--top", "1").out.splitlines()[1]
    assert line.split() == [first["edge"][0], "->", first["edge"][1], f"{first['value']:.4f}"]


@pytest.mark.parametrize("method", ["exact", "gibbs"])
def test_sampled_rows_follow_the_clamped_law(fitted, method, shell):
    given = ["--given", "smoke=y", "--given", "mental=n", "--given", "systol=y", "--given", "protein=n"]
    options = ["-n", "4000", *given, "--method", method, "--seed", "7", "--out", "r.csv"]
    told = shell("sample", str(fitted / "out"), *options).err
    assert ("200 sweeps of burn-in, no thinning" in told) == (method == "gibbs")
    network = load_network(fitted / "out" / "model.safetensors").conditionals
    drawn = Observations.from_csv("r.csv", domain=network.domain)
    clamped = {"smoke": "y", "mental": "n", "systol": "y", "protein": "n"}
    code = network.domain.encode_state(clamped)
    assert all(bool((drawn.codes[:, network.domain.index(n)] == c).all()) for n, c in code.items())
    counts = drawn.marginal_counts([("phys", "family")])
    assert_exact_law(counts.long(), stationary_law(network, clamped=clamped).probs.flatten())


def test_clamping_every_column_gives_it_back(fitted, shell):
    given = [w for n in ("smoke", "mental", "phys", "systol", "protein", "family") for w in ("--given", f"{n}=y")]
    assert shell("sample", str(fitted / "out"), "-n", "2", *given).out.splitlines()[1:] == ["y,y,y,y,y,y"] * 2


def test_missing_cells_of_a_file_are_filled_scored_and_predicted(fitted, shell):
    Path("gaps.csv").write_text("smoke,mental,phys,systol,protein,family\ny,,,y,n,n\nn,y,y,n,y,y\n")
    told = shell("sample", str(fitted / "out"), "-n", "3", "--complete", "gaps.csv", "--out", "full.csv").err
    assert "1 row was filled approximately" in told
    full = pd.read_csv("full.csv")
    assert (full["imputation"].tolist(), full["systol"].tolist()) == ([1, 1, 2, 2, 3, 3], ["y", "n"] * 3)
    found = shell.json("score", str(fitted / "out"), "gaps.csv")
    law = stationary_law(load_network(fitted / "out" / "model.safetensors").conditionals)
    states = [
        law.domain.encode_state(dict(zip(law.domain.names, words, strict=True))) for words in ("yyyynn", "nyynyy")
    ]
    index = [tuple(state.values()) for state in states]
    nll = -float(law.probs[index[0][0], :, :, *index[0][3:]].sum().log() + law.probs[index[1]].log()) / 2
    assert found["nll"] == pytest.approx(nll, abs=1e-10) and found["kl"] is None
    found = shell.json("predict", str(fitted / "out"), "gaps.csv", "--target", "phys")
    assert (found["predicted_rows"], found["approximate_rows"]) == (2, 1)


def test_rows_with_missing_cells_teach_too(shell):
    rows = load_table("rochdale")
    each = torch.repeat_interleave(rows.codes, rows.counts.long(), 0)
    gaps = torch.rand(each.shape, generator=torch.Generator().manual_seed(0)) < 0.1
    frame = Observations.from_tensor(torch.where(gaps, -1, each), rows.domain).to_pandas(count=None)
    frame.to_csv("gaps.csv", index=False)
    line = shell.refused("fit", "gaps.csv", *NETWORK)
    assert "--missing drop to leave out" in line
    assert "or --missing marginalise" in line
    found = shell.json(
        "fit", "gaps.csv", *FAMILY, "--columns", "4", "--missing", "marginalise", "--split", "0.5,0.2,0.3"
    )
    assert found["rows"] == {"train": 333, "validation": 132, "test": 200} and found["kl"]["train"] is None
    assert found["nll"]["test"] > 0 and found["fc_limit"]["train"] is None


def test_an_interrupted_run_is_continued(shell, monkeypatch):
    arguments = ["fit", "czech_autoworkers", *NETWORK, "--out", "run"]
    with monkeypatch.context() as patch:
        interrupted = Mock(side_effect=KeyboardInterrupt)
        patch.setattr("pyro_hoim.dependency_network.study.analysis.edge_information", interrupted)
        shell(*arguments, status=130)
    assert Path("run/checkpoint/network.safetensors").exists()
    line = shell.refused(*arguments, "--resume", "--max-leaves", "2", progress=True)
    assert "started with no --max-leaves" in line
    shell(*arguments, "--resume")
    learned = learn_network(load_table("czech_autoworkers"))
    assert load_network("run/model.safetensors").conditionals.edges == learned.conditionals.edges


# Sensible answers


def test_constant_columns_and_few_rows_are_learned(shell):
    Path("rows.csv").write_text("a,b,c\n" + "".join(f"{k % 7},x,{'uv'[k % 2]}\n" for k in range(8)))
    found = shell.json("fit", "rows.csv", *NETWORK)
    assert found["constant_columns"] == ["b"]
    assert [n["num_leaves"] for n in found["nodes"]] == [1, 1, 1]
    assert found["num_interactions"] == 0 and found["pseudo_nll"]["train"] > 0


def test_a_network_that_settles_nowhere_is_learned_but_not_sampled(shell):
    Path("rows.csv").write_text("a,b\n" + "no,no\nyes,yes\n" * 50)
    found = shell.json("fit", "rows.csv", *NETWORK, "--alpha", "0", "--out", "out")
    assert found["has_unique_law"] is False and found["nll"]["train"] is None and found["pseudo_nll"]["train"] == 0.0
    assert "Rows cannot be drawn from this network" in Path("out/report.html").read_text()
    line = shell.refused("sample", "out", "-n", "2")
    assert line == (
        "out: no single limiting law: the chain cannot go between a=no, b=no; a=yes, b=yes; "
        "fit again with an --alpha above 0"
    )
    line = shell.refused("sample", "out", "-n", "2", "--given", "a=no", "--given", "b=yes")
    assert (
        line == "--given: a=no, b=yes has probability zero in the law of the network; fit again with an --alpha above 0"
    )
    found = shell.json("score", "out", "rows.csv")
    assert found["nll"] is None
    Path("other.csv").write_text("a,b\nno,yes\n")
    found = shell.json("score", "out", "other.csv")
    assert found["pseudo_nll"] is None and found["impossible_rows"] == 1


# Bad input


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--order", "2"], "--order: belongs to --model log-linear or grm, received --model dependency-network"),
        (["--edges", "smoke*phys"], "--edges: belongs to --model log-linear, received --model dependency-network"),
        (["--penalty", "l1:1"], "--penalty: expected 'mdl', 'aic' or 'ebic', received 'l1:1'"),
        (["--posterior"], "--posterior: belongs to --model log-linear, received --model dependency-network"),
        (["--heredity", "0.5"], "--heredity: belongs to pyro-hoim learn"),
        (["--num-draws", "100"], "--num-draws: belongs to --model log-linear, received --model dependency-network"),
        (["--target", "smok"], "--target: unknown variable 'smok'; did you mean 'smoke'"),
        (["--alpha", "-1"], "--alpha: expected a number from 0, up to 1e+06, received -1"),
        (["--alpha", "nan"], "--alpha: expected a number from 0, up to 1e+06, received 'nan'"),
        (["--max-leaves", "0"], "--max-leaves: expected a whole number of at least 1, received 0"),
        (["--jobs", "0"], "--jobs: expected a whole number from 1 to 256, received 0"),
    ],
)
def test_wrong_options_of_fit_are_named(words, message, shell):
    assert shell.refused("fit", "czech_autoworkers", *NETWORK, *words) == message


def test_options_of_networks_are_refused_elsewhere(shell):
    for option in (["--alpha", "2"], ["--max-leaves", "3"], ["--lossless"]):
        line = shell.refused("fit", "czech_autoworkers", *option)
        assert line == f"{option[0]}: belongs to --model dependency-network, received --model log-linear"
    line = shell.refused("fit", "czech_autoworkers", "--jobs", "1")
    assert line == "--jobs: of a log-linear model belongs to --posterior"
    line = shell.refused("fit", "czech_autoworkers", "--model", "grm")
    assert line == "czech_autoworkers: no such file, nor one of the data sets of counts classic3"


def test_columns_that_name_rows_are_left_out_unless_they_are_asked_for(shell):
    Path("rows.csv").write_text("id,a\n" + "".join(f"{k},{k % 2}\n" for k in range(30)))
    assert "columns were left out: 'id' (30 levels in 30 rows)" in shell("fit", "rows.csv", *NETWORK).err
    assert "'id' (30 levels in 30 rows)" in shell.refused("fit", "rows.csv", *NETWORK, "--columns", "id,a")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["log-z", "OUT"], "which has no normalising constant: its conditionals need not belong to one joint law"),
        (["score", "OUT", "ROWS", "--method", "ais"], "--method ais: estimates log Z, which a dependency network"),
        (["score", "OUT", "ROWS", "--num-chains", "5"], "--num-chains: not for a dependency network; it has no log Z"),
        (["predict", "OUT", "ROWS", "--target", "x"], "--target: unknown variable 'x'"),
        (["sample", "OUT", "-n", "1", "--given", "smoke"], "--given: expected COL=VALUE, received 'smoke'"),
        (["sample", "OUT", "-n", "1", "--given", "smoke=z"], "unknown label 'z'"),
        (
            ["sample", "OUT", "-n", "1", "--complete", "ROWS", "--most-probable"],
            "--most-probable: not for a dependency network; it does not hold the joint law",
        ),
        (["interactions", "OUT", "--num-samples", "500"], "--num-samples: not for a dependency network"),
    ],
)
def test_wrong_use_of_a_network_is_named(words, message, fitted, shell):
    paths = {"OUT": str(fitted / "out"), "ROWS": str(fitted / "rows.csv")}
    assert message in shell.refused(*[paths.get(word, word) for word in words])


def test_large_networks_are_drawn_approximately_or_refused(shell):
    domain = Domain.from_cardinalities({f"x{i}": 2 for i in range(17)})
    fair = torch.tensor([0.5, 0.5])
    network = DependencyConditionals(TableConditional(domain, name, [], fair) for name in domain.names)
    save_network("wide.safetensors", NetworkFile(network))
    line = shell.refused("sample", "wide.safetensors", "-n", "1", "--method", "exact")
    assert "131072 states, the limit is 65536" in line
    assert "3 sweeps of burn-in" in shell("sample", "wide.safetensors", "-n", "2", "--burn-in", "3").err
    Path("row.csv").write_text(",".join(domain.names) + "\n" + ",".join("0" * 17) + "\n")
    found = shell.json("score", "wide.safetensors", "row.csv")
    assert found["nll"] is None
    assert found["pseudo_nll"] == pytest.approx(17 * torch.log(torch.tensor(2.0)).item(), abs=1e-6)
    told = shell.refused("score", "wide.safetensors", "row.csv", "--method", "exact")
    assert "it has 131,072 states, at most 65,536" in told
    assert shell.json("interactions", "wide.safetensors") == {"interactions": [], "left_out": 0, "odds_ratios": None}
