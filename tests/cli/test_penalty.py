"""``--prior`` and ``--penalty``: finite estimates and fits within norm balls, files, pages and what is refused."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from pyro_hoim import InteractionHypergraph, Observations, load_table
from pyro_hoim.log_linear import Prior, PseudoLikelihoodLoss, SymmetricInteractionTensor, fit, load_model
from pyro_hoim.runs.checkpoint import RunFile
from pyro_hoim.study import constrained as record

from support.verbs import verb_first


@pytest.mark.parametrize("text", ["unit", "normal:2", "ridge:0.25", "conjugate:1"])
def test_estimates_are_the_finite_mode_under_the_prior(text, shell):
    result = shell.json("fit", "titanic", "--order", "2", "--prior", text, "--out", "out")
    assert result["prior"] == text and result["status"] == "converged" and not result["infinite_combinations"]
    assert result["num_parameters"] == 18 and result["goodness_of_fit"]["p_value_method"] is None
    data = load_table("titanic")
    graph = InteractionHypergraph.from_order(data.domain, 2)
    stored = load_model("out/model.safetensors")
    expected = fit(graph, data, penalty=Prior.parse(text).penalty(graph))
    assert float((stored.theta - expected.theta).abs().max()) < 1e-9
    assert stored.info["prior"] == text and stored.info["infinite_interactions"] == []


def test_without_a_prior_estimates_are_those_of_maximum_likelihood(shell):
    for options in ((), ("--prior", "none")):
        result = shell.json("fit", "titanic", "--order", "2", *options, "--out", f"out{len(options)}")
        assert result["prior"] == "none" and result["status"] == "infinite"


def test_the_report_says_which_prior(shell):
    text = shell("fit", "titanic", "--order", "2", "--prior", "ridge:4", "--out", "out").out
    assert "pulled towards no association by independent normal priors with standard deviation 0.5." in text
    assert "because the fit is penalised" in text and "infinite" not in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["titanic", "--prior", "flat"], "--prior: expected none, unit, normal:S, ridge:S or conjugate:N"),
        (["titanic", "--prior", "normal:0"], "--prior: expected none, unit, normal:S, ridge:S or conjugate:N"),
        (["titanic", "--posterior", "--prior", "none"], "--prior: a posterior needs a proper prior, received none"),
        (["titanic", "learn", "--prior", "conjugate:1"], "--prior: a search needs unit, normal:S or ridge:S"),
        (["titanic", "--model", "dependency-network", "--prior", "unit"], "the Dirichlet prior of --alpha"),
        (["titanic", "--model", "grm", "--prior", "unit"], "its coefficients are held back by --l1"),
    ],
)
def test_one_clear_error_of_a_prior(options, message, shell):
    assert message in shell.refused(*verb_first(*options, "--out", "out"))


def test_a_search_keeps_the_strengths_of_the_prior(shell):
    options = ["titanic", "learn", "--max-order", "2", "--trainer", "exact", "--split", "0.6,0.4,0"]
    result = shell.json(*verb_first(*options, "--prior", "ridge:3", "--out", "out"))
    assert result["prior"] == "ridge:3"
    assert {row["ridge"] for row in result["interactions"]} == {3.0}
    free = shell.json(*verb_first(*options, "--out", "free"))
    assert free["prior"] is None and {row["ridge"] for row in free["interactions"]} != {3.0}  # control: the rows choose


def test_rows_with_missing_cells_have_a_mode_too(shell, tmp_path):
    (tmp_path / "rows.csv").write_text("a,b,count\nx,u,9\nx,,3\ny,v,6\ny,,5\n", encoding="utf-8")
    result = shell.json("fit", "rows.csv", "--order", "2", "--missing", "marginalise", "--prior", "normal:1")
    assert result["status"] == "converged" and result["prior"] == "normal:1"


TABLE = "a,b,c,count\n0,0,0,14\n0,0,1,3\n0,1,0,4\n0,1,1,9\n1,0,0,12\n1,0,1,5\n1,1,0,3\n1,1,1,11\n"


@pytest.fixture
def table():
    Path("t.csv").write_text(TABLE, encoding="utf-8")
    return "t.csv"


def tensors(folder):
    """The parts of a model file, its order, and the loss at their sum with its gradient."""
    model = load_model(f"{folder}/model.safetensors")
    assert model.coding == "corner"
    num, order = len(model.hypergraph.domain), model.hypergraph.order
    parts = {name: SymmetricInteractionTensor(part, num, order) for name, part in model.tensors.items()}
    torch.testing.assert_close(sum(part.theta for part in parts.values()), model.theta, rtol=0, atol=0)
    loss = PseudoLikelihoodLoss(Observations.from_csv("t.csv"), order)
    return parts, loss.value_and_gradient(model.theta.numpy())


@pytest.mark.parametrize("order", [2, 3])
def test_sparse_fits_are_optimal_and_within_their_radius(order, shell, table):
    found = shell.json("fit", table, "--penalty", "l1:1.5", "--order", str(order), "--out", "out")
    told = found["penalty"]
    parts, (value, gradient) = tensors("out")
    theta = parts["part_sparse"].theta.numpy()
    assert told["objective"] == pytest.approx(value, rel=1e-12)
    assert np.abs(theta).sum() == pytest.approx(1.5, rel=1e-9) == told["parts"][0]["norm"]
    steepest = np.abs(gradient).max()  # optimal: theta is where the gradient is steepest, and against it
    assert gradient @ theta + 1.5 * steepest == pytest.approx(0, abs=1e-6)
    assert 0 <= told["gap"] <= 1e-7 * value
    assert told["num_nonzero"] == np.count_nonzero(theta) < len(theta)
    stored = load_model("out/model.safetensors").info["penalty"]
    assert (told["order"], told["status"], told["text"]) == (order, "converged", "l1:1.5")
    assert (found["status"], stored) == ("converged", "l1:1.5")
    assert told["parts"][0]["multiplier"] == pytest.approx(steepest, rel=1e-6)


@pytest.mark.parametrize("order", [2, 3])
def test_radii_of_low_rank_parts_are_of_the_overlapped_norm(order, shell, table):
    options = ["fit", table, "--order", str(order), "--penalty"]
    found = shell.json(*options, "sparse-low-rank:0.5,1.2", "--out", "out")
    told = found["penalty"]
    parts, (value, _) = tensors("out")
    assert [part["part"] for part in told["parts"]] == ["sparse", "low_rank"]
    assert float(parts["part_low_rank"].overlapped_norm()) == pytest.approx(1.2, rel=1e-6)
    assert float(parts["part_sparse"].l1_norm()) == pytest.approx(0.5, rel=1e-6)
    assert [part["norm"] for part in told["parts"]] == pytest.approx([0.5, 1.2], rel=1e-6)
    values = torch.linalg.svdvals(parts["part_low_rank"].unfolding())
    assert told["singular_values"] == pytest.approx(values.tolist(), abs=1e-12)
    assert order * sum(told["singular_values"]) == pytest.approx(1.2, rel=1e-6)
    assert told["objective"] == pytest.approx(value, rel=1e-12)
    only = shell.json(*options, "low-rank:1.2", "--out", "only")["penalty"]
    assert only["objective"] > told["objective"] and only["num_nonzero"] is None  # the sparse part is at work
    wide = shell.json(*options, "low-rank:1.5", "--out", "wide")["penalty"]
    gain, slope = only["objective"] - wide["objective"], only["parts"][0]["multiplier"]
    assert 0.7 * 0.3 * slope < gain < 0.3 * slope + 1e-6  # convex in the radius, with the multiplier as slope


def test_a_wide_ball_is_the_unconstrained_fit(shell, table):
    shell.json("fit", table, "--penalty", "l1:500", "--out", "out")
    _, (_, gradient) = tensors("out")
    assert np.abs(gradient).max() < 1e-4


def test_the_model_answers_every_command_and_the_page_shows_it(shell, table):
    found = shell.json("fit", table, "--penalty", "sparse-low-rank:0.5,1", "--target", "a", "--out", "out")
    assert json.loads(Path("out/fit.json").read_text()) == json.loads(json.dumps(found).replace('"out/', '"'))
    assert found["accuracy"]["train"]["target"] == "a"
    page = Path("out/report.html").read_text(encoding="utf-8")
    words = ("Sparse and low-rank parts", "Singular values", "Duality gap", "low-rank part")
    assert all(word in page for word in words)
    model = "out/model.safetensors"
    rows = shell("sample", model, "-n", "5", "--seed", "1").out.splitlines()
    assert rows[0] == "a,b,c" and len(rows) == 6
    scored = shell.json("score", model, table)
    assert scored["nll"] == pytest.approx(found["nll"]["train"], rel=1e-10)
    predicted = shell.json("predict", model, table, "--target", "a")["accuracy"]
    assert predicted == pytest.approx(found["accuracy"]["train"]["accuracy"])
    listed = shell.json("interactions", model)
    assert {tuple(row["edge"]) for row in listed["interactions"]} >= {("a", "b"), ("a", "c"), ("b", "c")}
    documented = set(re.findall(r"`(\w+)`", (Path(__file__).parents[2] / "docs/api/cli.md").read_text("utf-8")))
    told = found["penalty"]
    assert set(told) | set(told["parts"][0]) <= documented


def test_a_run_that_was_interrupted_goes_on(shell, table, monkeypatch):
    monkeypatch.setattr(record, "_CHUNK", 2)
    monkeypatch.setattr(RunFile, "SECONDS", 0.0)
    write, calls = RunFile.write, []

    def interrupted(self, tensors):
        write(self, tensors)
        if self.path.name == "penalty.safetensors":
            calls.append(tensors)
            if len(calls) == 1:
                raise KeyboardInterrupt

    monkeypatch.setattr(RunFile, "write", interrupted)
    for text in ("sparse-low-rank:0.5,1.2", "low-rank:1.2"):
        fit = ["fit", table, "--order", "3"]
        options = [*fit, "--penalty", text, "--out"]
        calls.clear()
        shell(*options, "broken", status=130)
        assert not Path("broken/fit.json").exists()
        told = shell.refused(*fit, "--penalty", "low-rank:2", "--out", "broken", "--resume", progress=True)
        assert f"was started with --penalty {text}, and received --penalty low-rank:2" in told
        monkeypatch.setattr(record, "_CHUNK", 250)
        shell(*options, "broken", "--resume")
        shell(*options, "whole")
        broken, whole = (json.loads(Path(name, "fit.json").read_text())["penalty"] for name in ("broken", "whole"))
        assert broken["status"] == whole["status"] == "converged"
        assert broken["objective"] == pytest.approx(whole["objective"], abs=2 * whole["gap"] + 2 * broken["gap"])
        assert not Path("broken/checkpoint").exists()
        for name in ("broken", "whole"):
            Path(name).rename(f"{name}-{text[0]}")
        monkeypatch.setattr(record, "_CHUNK", 2)


@pytest.mark.parametrize(
    "text", ["l1", "l1:", "l1:x", "l1:1,2", "sparse-low-rank:1", "nuclear:1", "l1:0", "low-rank:-1", "l1:nan", "l1:inf"]
)
def test_malformed_and_empty_balls(text, shell, table):
    told = shell.refused("fit", table, "--penalty", text, "--out", "out")
    assert told == (
        f"--penalty: expected l1:A, low-rank:B or sparse-low-rank:A,B with positive radii A and B, received {text!r}"
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--order", "4"], "--order: expected 2 to 3 (the number of variables) with --penalty l1:1, received 4"),
        (["--order", "1"], "--order: expected 2 to 3 (the number of variables) with --penalty l1:1, received 1"),
        (["--edges", "a*b"], "received --edges, which gives single interactions"),
        (["--posterior"], "received --posterior, which draws a posterior"),
        (["--prior", "unit"], "received --prior, which makes estimates finite in another way"),
        (["--num-draws", "20"], "--num-draws: has no use with --penalty l1:1"),
        (["--jobs", "2"], "--jobs: has no use with --penalty l1:1"),
        (["--split", "0.5,0.2,0.3"], "--split: --penalty l1:1 has no use for validation rows"),
        (["--model", "grm"], "--penalty"),
    ],
)
def test_one_clear_error(options, message, shell, table):
    assert message in shell.refused("fit", table, "--penalty", "l1:1", *options, "--out", "out")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (TABLE.replace("1,1,1,11", "2,1,1,11"), "--penalty: expected binary variables, received 'a' with 3 levels"),
        ("a,b\n0,0\n0,1\n", "--penalty: expected binary variables, received 'a' with 1 level"),
        ("a\n0\n1\n", "--penalty: expected a table of two columns or more, received 1"),
        ("a,b\n0,0\n0,1\n1,\n", "missing"),
    ],
)
def test_rows_that_are_refused(content, message, shell):
    Path("t.csv").write_text(content, encoding="utf-8")
    assert message in shell.refused("fit", "t.csv", "--penalty", "l1:1", "--missing", "marginalise", "--out", "out")


def test_too_many_columns_for_log_z(shell):
    rows = torch.randint(0, 2, (40, 60), generator=torch.Generator().manual_seed(0)).tolist()
    head = ",".join(f"v{i}" for i in range(60))
    Path("t.csv").write_text("\n".join([head, *(",".join(map(str, row)) for row in rows)]), encoding="utf-8")
    told = shell.refused("fit", "t.csv", "--penalty", "l1:1", "--out", "out")
    assert "log Z of the fit by --penalty l1:1" in told and "use fewer --columns or a lower --order" in told
