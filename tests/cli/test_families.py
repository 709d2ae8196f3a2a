"""A family of models that the library does not know gets every command by one registration."""

import importlib.util
import io
import json
import math
import sys
from pathlib import Path

import forkserver
import pandas as pd
import pytest
import torch
from command_line import messages

from pyro_hoim import (
    CountTable,
    DependencyNetwork,
    GeneralizedRoot,
    HierarchicalLogLinear,
    InteractionHypergraph,
    LogLinearEnergy,
    Observations,
    fit,
    fit_roots,
    impute,
    learn_network,
    load,
    predict,
    sample,
    save,
    score,
)
from pyro_hoim.core import family, register
from pyro_hoim.core.family import register_installed
from pyro_hoim.errors import FamilyWarning, InputError
from pyro_hoim.families import families
from pyro_hoim.testing import FALSE_ALARM_RATE, raises

from support.calls import noted

SOURCE = Path(__file__).parents[1] / "toy_family" / "bernoulli_mixture.py"


def _toy():
    spec = importlib.util.spec_from_file_location(SOURCE.stem, SOURCE)
    module = sys.modules[SOURCE.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


toy = _toy()


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    """The toy family beside the others, in a folder with a table of two kinds of rows."""
    generator = torch.Generator().manual_seed(0)
    probs = torch.tensor([[0.9, 0.9, 0.2], [0.1, 0.2, 0.2]])[torch.randint(2, (300,), generator=generator)]
    rows = torch.bernoulli(probs, generator=generator).long().tolist()
    Path("t.csv").write_text("a,b,c\n" + "".join(",".join(map(str, row)) + "\n" for row in rows), encoding="utf-8")
    monkeypatch.setattr(family, "_FAMILIES", dict(family._FAMILIES))
    register(toy.FAMILY)


def law(model):
    """Every row with its probability, by enumeration of components."""
    found = {}
    for row in torch.cartesian_prod(*[torch.arange(2)] * len(model.domain)).tolist():
        each = [
            w * math.prod(p if x else 1 - p for p, x in zip(ps, row, strict=True))
            for w, ps in zip(model.weights.tolist(), model.probs.tolist(), strict=True)
        ]
        found[tuple(row)] = math.fsum(each)
    return found


def test_fit_page_and_files(shell):
    found = shell.json("fit", "t.csv", "--model", "mixture", "--out", "o")
    inside = json.loads(json.dumps(found).replace('"o/', '"'))
    assert json.loads(Path("o/fit.json").read_text(encoding="utf-8")) == inside
    assert found["constant_columns"] == [] and found["seed"] == 0 and len(found["weights"]) == 2
    page = Path("o/report.html").read_text(encoding="utf-8")
    assert "Mixture of t" in page and "<h2>Components</h2>" in page and f"{found['nll']['test']:.4f}" in page
    text = shell("fit", "t.csv", "--model", "mixture", "--out", "p").out
    (line,) = [line for line in text.splitlines() if line.split()[:2] == ["test", "mixture"]]
    assert f"{found['nll']['test']:.4f}" in line and "p/report.html" in text
    assert Path("o/model.safetensors").read_bytes()[-64:] == Path("p/model.safetensors").read_bytes()[-64:]
    model = toy.Mixture.load("o/model.safetensors")
    assert math.fsum(law(model).values()) == pytest.approx(1, abs=1e-12)
    assert found["nll"]["train"] < 3 * math.log(2)  # two of the columns depend


def test_score_predict_and_interactions_agree_with_enumeration(shell):
    fitted = shell.json("fit", "t.csv", "--model", "mixture", "--out", "o")
    probs = law(toy.Mixture.load("o/model.safetensors"))
    Path("r.csv").write_text("a,b,c\n1,,0\n0,1,1\n", encoding="utf-8")
    rows = [probs[1, 0, 0] + probs[1, 1, 0], probs[0, 1, 1]]
    found = shell.json("score", "o", "r.csv")
    assert found["nll"] == pytest.approx(-sum(map(math.log, rows)) / 2, abs=1e-12) and found["parts"] is None
    parts = shell.json("score", "o", "t.csv")["parts"]
    assert {name: part["nll"] for name, part in parts.items()} == {n: v for n, v in fitted["nll"].items() if v}
    assert "NLL per row" in shell("score", "o", "t.csv").out
    assert shell.json("predict", "o", "r.csv", "--target", "b", "--out", "b.csv")["accuracy"] in (0.0, 1.0)
    first = pd.read_csv("b.csv").iloc[0]
    assert first["p(1)"] == pytest.approx(probs[1, 1, 0] / rows[0], abs=1e-12)
    means = [sum(p for row, p in probs.items() if row[i]) for i in range(3)]
    both = sum(p for row, p in probs.items() if row[0] and row[1])
    strongest = shell.json("interactions", "o", "--top", "1")["interactions"]
    assert strongest == [{"edge": ["a", "b"], "value": pytest.approx(both - means[0] * means[1], abs=1e-12)}]
    assert shell("interactions", "o").out.splitlines()[1].startswith("a:b")


def test_sample_has_the_law(shell):
    shell.json("fit", "t.csv", "--model", "mixture", "--out", "o")
    probs = law(toy.Mixture.load("o/model.safetensors"))
    number = 20_000
    frame = pd.read_csv(io.StringIO(shell("sample", "o", "-n", str(number), "--given", "c=1").out))
    assert set(frame["c"]) == {1}
    total = sum(p for row, p in probs.items() if row[2])
    shares = frame.groupby(["a", "b"]).size().div(number)
    distance = 0.5 * sum(abs(shares.get(row[:2], 0.0) - p / total) for row, p in probs.items() if row[2])
    limit = 0.5 * math.sqrt(3 / number) + math.sqrt(math.log(1 / FALSE_ALARM_RATE) / (2 * number))
    assert distance < limit
    even = 0.5 * sum(abs(0.25 - p / total) for row, p in probs.items() if row[2])  # control: independent columns
    assert even > 2 * limit


def test_an_interrupted_fit_is_continued(shell, monkeypatch):
    words = ("fit", "t.csv", "--model", "mixture", "--components", "3", "--out")
    whole = shell.json(*words, "o")
    calls = noted(monkeypatch, toy.Mixture, "step", 37)
    shell(*words, "p", status=130)
    assert not Path("p/fit.json").exists()
    found = shell.json(*words, "p", "--resume")
    assert len(calls) == 37 + 70  # from the last checkpoint, at step 30
    assert found["weights"] == whole["weights"] and found["nll"] == whole["nll"]


def test_its_options_are_its_own(shell):
    for words, message in (
        (
            ("fit", "t.csv", "--components", "1"),
            "--components: belongs to --model mixture, received --model log-linear",
        ),
        (("fit", "t.csv", "--model", "mixture", "--alpha", "2"), "--alpha: belongs to --model dependency-network, "),
        (("fit", "t.csv", "--model", "mixture", "--prior", "unit"), "its components have one fictive row each"),
        (("fit", "t.csv", "--model", "mixture", "--components", "0"), "--components: expected a whole number from 1 "),
    ):
        assert message in shell.refused(*words)
    shell("fit", "t.csv", "--model", "mixture", "--out", "o")
    for words, message in (
        (("score", "o", "t.csv", "--method", "ais"), "--method: not for a mixture of independent columns"),
        (("sample", "o", "-n", "1", "--complete", "t.csv"), "--complete: not for a mixture of independent columns"),
        (("log-z", "o"), "which has no normalising constant: its probabilities sum to one"),
        (("sample", "o", "-n", "1", "--given", "a=7"), "unknown label '7'"),
    ):
        assert message in shell.refused(*words)
    assert "--components" in shell("fit", "--help").out and "mixture" in shell("fit", "--help").out


def test_a_kind_that_is_not_registered_is_refused(shell, monkeypatch):
    shell("fit", "t.csv", "--model", "mixture", "--out", "o")
    monkeypatch.delitem(family._FAMILIES, toy.KIND)
    assert "holds a model of kind 'bernoulli-mixture', expected 'hierarchical" in shell.refused("score", "o", "t.csv")


def test_a_name_is_registered_once():
    assert [known.short for known in families()] == ["log-linear", "dependency-network", "grm", "rbm", "mixture"]
    with pytest.raises(InputError, match="registered already"):
        register(toy.FAMILY)


def _package(folder, name, value):
    """An installed distribution with one entry point."""
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(f"[pyro_hoim.families]\n{name} = {value}\n", encoding="utf-8")


def test_installed_packages_register_families(tmp_path, monkeypatch, shell):
    monkeypatch.delitem(family._FAMILIES, toy.KIND)
    assert "mixture" not in shell("fit", "--help").out
    monkeypatch.syspath_prepend(tmp_path)
    _package(tmp_path, "mixtures", "bernoulli_mixture:FAMILY")
    register_installed()
    assert shell.json("fit", "t.csv", "--model", "mixture", "--out", "o")["num_variables"] == 3


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("no_such_module:FAMILY", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("bernoulli_mixture:KIND", "bernoulli_mixture:KIND: expected a Family, received str"),
        ("bernoulli_mixture:FAMILY", "'mixture' of kind 'bernoulli-mixture' is registered already"),
    ],
)
def test_a_broken_family_is_one_line_and_leaves_the_others(tmp_path, monkeypatch, value, problem):
    monkeypatch.syspath_prepend(tmp_path)
    _package(tmp_path, "broken", value)
    with pytest.warns(FamilyWarning) as found:
        register_installed()
    (line,) = (str(warning.message) for warning in found)
    assert line.startswith("the family 'broken' of the package broken is left out") and problem in line
    assert "\n" not in line and len(families()) == 5


def test_the_command_has_the_families_of_installed_packages(tmp_path):
    _package(tmp_path, "mixtures", "bernoulli_mixture:FAMILY")
    _package(tmp_path, "broken", "no_such_module:FAMILY")
    paths = [str(tmp_path), str(SOURCE.parent)]
    program = f"import sys; sys.path += {paths}; from pyro_hoim.cli import main; main()"
    shown = forkserver.run(program, tmp_path / "shown", "fit", "--help")
    assert "grm|rbm|mixture]" in shown and "--components" in shown
    (told,) = [line for line in messages(shown) if line.startswith("pyro-hoim: warning")]
    assert told.startswith("pyro-hoim: warning: the family 'broken' of the package broken")


def _fitted(kind):
    """What a fit or learning returns, and rows."""
    rows = Observations.from_csv("t.csv")
    if kind == "mixture":
        return toy.Mixture(rows.domain, torch.tensor([0.4, 0.6]), torch.full((2, 3), 0.3)).step(rows), rows
    if kind == "network":
        return learn_network(rows), rows
    if kind == "log-linear":
        return fit(InteractionHypergraph.from_order(rows.domain, 2), rows), rows
    counts = CountTable.from_matrix(torch.poisson(torch.full((200, 2), 2.0)).numpy(), names=["a", "b"])
    return fit_roots(counts, "poisson", order=2, l1=0.5), counts


@pytest.mark.parametrize("kind", ["log-linear", "network", "roots", "mixture"])
def test_models_of_every_family_are_kept_and_used_alike(kind):
    torch.manual_seed(0)
    found, rows = _fitted(kind)
    save(found, "m.safetensors")
    stored = load("m.safetensors")
    assert stored.domain.names == rows.domain.names and stored.kind in {known.kind for known in families()}
    save(stored, "again.safetensors")
    assert Path("again.safetensors").read_bytes() == Path("m.safetensors").read_bytes()
    scores = score(found, rows)
    assert scores == score(stored, rows) and scores["rows"] == rows.total_count
    pd.testing.assert_frame_equal(sample(found, 5, seed=1), sample(stored, 5, seed=1))
    assert not sample(found, 50, seed=1).equals(sample(found, 50, seed=2))
    given = {"a": 1} if kind == "roots" else {"a": "1"}
    assert set(map(int, sample(stored, 9, given)["a"])) == {1} and list(sample(stored, 1)) == list(rows.domain.names)
    assert len(predict(found, rows, "b")) == (200 if kind == "roots" else len(rows.codes))
    if kind in ("roots", "mixture"):
        with raises(code="no-method", argument="impute"):
            impute(stored, rows)
    else:
        gaps = Observations.from_pandas(pd.DataFrame({"a": ["1", "0"]}), domain=rows.domain.project(["a"]))
        filled = impute(stored, gaps, 3, seed=1)
        assert filled["imputation"].tolist() == [1, 1, 2, 2, 3, 3] and filled["a"].tolist() == ["1", "0"] * 3
        assert not filled.isna().any(axis=None)


def test_scores_and_predictions_of_any_family_are_those_of_the_command(shell):
    found, rows = _fitted("log-linear")
    save(found, "m.safetensors")
    printed = shell.json("score", "m.safetensors", "t.csv")
    assert {name: value for name, value in score(found, rows).items() if name in printed} == {
        name: value for name, value in printed.items() if name in score(found, rows)
    }
    law = HierarchicalLogLinear(found.hypergraph, found.theta)
    assert score(found, rows)["nll"] == pytest.approx(-float(law.log_prob(rows.codes).mean()), abs=1e-12)
    energy = LogLinearEnergy.from_theta(found.hypergraph, found.theta)  # purified on its way, which rounds
    assert score(law, rows)["nll"] == pytest.approx(score(energy, rows)["nll"], rel=1e-14)
    network = learn_network(rows)
    assert score(DependencyNetwork(network), rows)["pseudo_nll"] == score(network, rows)["pseudo_nll"]
    roots, counts = _fitted("roots")
    energy = roots.energy()
    site = GeneralizedRoot(energy.structure, energy.psi, energy.family)
    assert score(site, counts)["pseudo_nll"] == score(energy, counts)["pseudo_nll"]


def test_what_cannot_be_asked_is_refused():
    found, rows = _fitted("log-linear")
    counts = CountTable.from_matrix(torch.ones(3, 2).numpy(), names=["a", "b"])
    for asked, code, argument in (
        (lambda: score("m.safetensors", rows), "wrong-type", "model"),
        (lambda: score(found, counts), "wrong-type", "rows"),
        (lambda: score(found, rows.drop_missing().project(["a"]), depth=3), "unknown-name", "options"),
        (lambda: score(found, rows, method="guess"), "unknown-choice", "method"),
        (lambda: score(found, rows, missing="drop"), "conflict", "rows"),  # it says how a data frame is read
        (lambda: sample(found, 3, complete="rows.csv"), "unknown-name", "options"),
        (lambda: score(found, rows, num_chains=0), "out-of-range", "num_chains"),
        (lambda: score(found, rows, num_chains=64), "conflict", "num_chains"),
        (lambda: predict(found, rows, "z"), "unknown-name", "target"),
        (lambda: sample(found, 0), "out-of-range", "number"),
        (lambda: sample(found, 1, {"z": "1"}), "unknown-name", "given"),
        (lambda: impute(found, rows, 0), "out-of-range", "number"),
    ):
        with raises(code=code, argument=argument):
            asked()


def test_options_are_named_as_arguments_in_python():
    found, rows = _fitted("log-linear")
    with pytest.raises(InputError, match="belongs to method='ais', received method='auto'"):
        score(found, rows, num_chains=64)
    assert sample(found, 2, method="gibbs").attrs["notes"][0].endswith("compare with a longer burn_in")
