"""A family of models that the library does not know gets every command by one registration."""

from __future__ import annotations

import importlib.util
import io
import json
import math
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd
import pytest
import torch

from pyro_hoim.cli import run
from pyro_hoim.cli.families import families
from pyro_hoim.core import family, register
from pyro_hoim.errors import InputError
from pyro_hoim.testing import FALSE_ALARM_RATE

SOURCE = Path(__file__).parents[1] / "toy_family" / "bernoulli_mixture.py"


def _toy() -> ModuleType:
    spec = importlib.util.spec_from_file_location(SOURCE.stem, SOURCE)
    assert spec is not None and spec.loader is not None
    module = sys.modules[SOURCE.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


toy = _toy()


@pytest.fixture(autouse=True)
def registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The toy family beside the others, in a folder with a table of two kinds of rows."""
    monkeypatch.chdir(tmp_path)
    generator = torch.Generator().manual_seed(0)
    probs = torch.tensor([[0.9, 0.9, 0.2], [0.1, 0.2, 0.2]])[torch.randint(2, (300,), generator=generator)]
    rows = torch.bernoulli(probs, generator=generator).long().tolist()
    Path("t.csv").write_text("a,b,c\n" + "".join(",".join(map(str, row)) + "\n" for row in rows), encoding="utf-8")
    monkeypatch.setattr(family, "_FAMILIES", dict(family._FAMILIES))
    register(toy.FAMILY)


def answered(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert run([*words, "--json"]) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


def said(capsys: pytest.CaptureFixture[str], *words: str, status: int = 0) -> str:
    assert run(list(words)) == status
    captured = capsys.readouterr()
    return captured.err if status else captured.out


def law(model: Any) -> dict[tuple[int, ...], float]:
    """Every row with its probability, by enumeration of components."""
    found: dict[tuple[int, ...], float] = {}
    for row in torch.cartesian_prod(*[torch.arange(2)] * len(model.domain)).tolist():
        each = [
            w * math.prod(p if x else 1 - p for p, x in zip(ps, row, strict=True))
            for w, ps in zip(model.weights.tolist(), model.probs.tolist(), strict=True)
        ]
        found[tuple(row)] = math.fsum(each)
    return found


def test_fit_page_and_files(capsys: pytest.CaptureFixture[str]) -> None:
    found = answered(capsys, "fit", "t.csv", "--model", "mixture", "--out", "o")
    assert json.loads(Path("o/fit.json").read_text(encoding="utf-8")) == found
    assert found["constant_columns"] == [] and found["seed"] == 0 and len(found["weights"]) == 2
    page = Path("o/report.html").read_text(encoding="utf-8")
    assert "Mixture of t" in page and "<h2>Components</h2>" in page and f"{found['nll']['test']:.4f}" in page
    text = said(capsys, "fit", "t.csv", "--model", "mixture", "--out", "p")
    assert f"NLL of test: {found['nll']['test']:.4f} nats a row." in text and "p/report.html" in text
    assert Path("o/model.safetensors").read_bytes()[-64:] == Path("p/model.safetensors").read_bytes()[-64:]
    model = toy.load(Path("o/model.safetensors")).model
    assert math.fsum(law(model).values()) == pytest.approx(1, abs=1e-12)
    assert found["nll"]["train"] < 3 * math.log(2)  # two of the columns depend


def test_score_predict_and_interactions_agree_with_enumeration(capsys: pytest.CaptureFixture[str]) -> None:
    fitted = answered(capsys, "fit", "t.csv", "--model", "mixture", "--out", "o")
    probs = law(toy.load(Path("o/model.safetensors")).model)
    Path("r.csv").write_text("a,b,c\n1,,0\n0,1,1\n", encoding="utf-8")
    rows = [probs[1, 0, 0] + probs[1, 1, 0], probs[0, 1, 1]]
    found = answered(capsys, "score", "o", "r.csv")
    assert found["nll"] == pytest.approx(-sum(map(math.log, rows)) / 2, abs=1e-12) and found["parts"] is None
    parts = answered(capsys, "score", "o", "t.csv")["parts"]
    assert {name: part["nll"] for name, part in parts.items()} == {n: v for n, v in fitted["nll"].items() if v}
    assert "NLL per row" in said(capsys, "score", "o", "t.csv")
    assert answered(capsys, "predict", "o", "r.csv", "--target", "b", "--out", "b.csv")["accuracy"] in (0.0, 1.0)
    first = pd.read_csv("b.csv").iloc[0]
    assert first["p(1)"] == pytest.approx(probs[1, 1, 0] / rows[0], abs=1e-12)
    means = [sum(p for row, p in probs.items() if row[i]) for i in range(3)]
    both = sum(p for row, p in probs.items() if row[0] and row[1])
    strongest = answered(capsys, "interactions", "o", "--top", "1")["interactions"]
    assert strongest == [{"edge": ["a", "b"], "value": pytest.approx(both - means[0] * means[1], abs=1e-12)}]
    assert said(capsys, "interactions", "o").splitlines()[1].startswith("a:b")


def test_sample_has_the_law(capsys: pytest.CaptureFixture[str]) -> None:
    answered(capsys, "fit", "t.csv", "--model", "mixture", "--out", "o")
    probs = law(toy.load(Path("o/model.safetensors")).model)
    number = 20_000
    frame = pd.read_csv(io.StringIO(said(capsys, "sample", "o", "-n", str(number), "--given", "c=1")))
    assert set(frame["c"]) == {1}
    total = sum(p for row, p in probs.items() if row[2])
    shares = frame.groupby(["a", "b"]).size().div(number)
    distance = 0.5 * sum(abs(shares.get(row[:2], 0.0) - p / total) for row, p in probs.items() if row[2])
    limit = 0.5 * math.sqrt(3 / number) + math.sqrt(math.log(1 / FALSE_ALARM_RATE) / (2 * number))
    assert distance < limit
    even = 0.5 * sum(abs(0.25 - p / total) for row, p in probs.items() if row[2])  # control: independent columns
    assert even > 2 * limit


def test_an_interrupted_fit_is_continued(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("fit", "t.csv", "--model", "mixture", "--components", "3", "--out")
    whole = answered(capsys, *words, "o")
    step, calls = toy.Mixture.step, []

    def interrupted(self: Any, rows: Any) -> Any:
        calls.append(1)
        if len(calls) == 37:
            raise KeyboardInterrupt
        return step(self, rows)

    monkeypatch.setattr(toy.Mixture, "step", interrupted)
    assert run([*words, "p"]) == 130
    assert not Path("p/fit.json").exists()
    found = answered(capsys, *words, "p", "--resume")
    assert len(calls) == 37 + 70  # from the last checkpoint, at step 30
    assert found["weights"] == whole["weights"] and found["nll"] == whole["nll"]


def test_its_options_are_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    for words, message in (
        (
            ("fit", "t.csv", "--components", "1"),
            "--components: belongs to --model mixture, received --model log-linear",
        ),
        (("fit", "t.csv", "--model", "mixture", "--alpha", "2"), "--alpha: belongs to --model dependency-network, "),
        (("fit", "t.csv", "--model", "mixture", "--prior", "unit"), "its components have one fictive row each"),
        (("fit", "t.csv", "--model", "mixture", "--components", "0"), "--components: expected a whole number from 1 "),
    ):
        assert message in said(capsys, *words, status=2)
    said(capsys, "fit", "t.csv", "--model", "mixture", "--out", "o")
    for words, message in (
        (("score", "o", "t.csv", "--method", "ais"), "--method: not for a mixture of independent columns"),
        (("sample", "o", "-n", "1", "--complete", "t.csv"), "--complete: not for a mixture of independent columns"),
        (("log-z", "o"), "which has no normalising constant: its probabilities sum to one"),
        (("sample", "o", "-n", "1", "--given", "a=7"), "unknown label '7'"),
    ):
        assert message in said(capsys, *words, status=2)
    assert "--components" in said(capsys, "fit", "--help") and "mixture" in said(capsys, "fit", "--help")


def test_a_kind_that_is_not_registered_is_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said(capsys, "fit", "t.csv", "--model", "mixture", "--out", "o")
    monkeypatch.delitem(family._FAMILIES, "mixture")
    assert "holds a model of kind 'bernoulli-mixture', expected 'hierarchical" in said(
        capsys, "score", "o", "t.csv", status=2
    )


def test_a_name_is_registered_once() -> None:
    assert [known.short for known in families()] == ["log-linear", "dependency-network", "grm", "mixture"]
    with pytest.raises(InputError, match="registered already"):
        register(toy.FAMILY)
