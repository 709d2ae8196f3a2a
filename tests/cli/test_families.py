"""A family of models that the library does not know gets ``fit`` by one registration."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from pyro_hoim import InputError, Observations
from pyro_hoim.cli import run
from pyro_hoim.cli.families import families
from pyro_hoim.cli.labelled import LABELLED, read_labelled
from pyro_hoim.cli.reading import ALL_TRAIN, Table
from pyro_hoim.core import Asked, Family, Option, Request, Study, family, register


@dataclass(frozen=True)
class Shares:
    """Independent columns: the share of every level."""

    asked: Asked

    def read(self) -> Table:
        """The table."""
        return read_labelled(self.asked)[0]

    def complete(self, source: Table) -> Table:
        """The same rows."""
        return source

    def split(self, source: Table) -> tuple[float, float, float]:
        """All rows are used."""
        return ALL_TRAIN

    def run(self, request: Request) -> Study:
        """Count, and leave a page."""
        rows: Observations = request.parts["train"]
        shares: dict[str, list[float]] = {}
        for column, variable in enumerate(rows.domain):
            counts = torch.bincount(rows.codes[:, column], rows.counts, variable.cardinality) + self.asked["pseudo"]
            shares[variable.name] = (counts / counts.sum()).tolist()
        (request.folder / "report.html").write_text(str(shares), encoding="utf-8")
        return Study({"shares": shares}, "shares of " + ", ".join(shares), {"page": "report.html"})


PSEUDO = Option("pseudo", "Pseudo-count of every level.", kind="number", high=100, default=0.0, is_shown=True)
FAMILY = Family("toy-shares", "table of shares", "shares", (PSEUDO, *LABELLED), Shares)


@pytest.fixture(autouse=True)
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The toy family beside the others, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_text("a,b\nx,1\nx,2\ny,1\nx,1\n", encoding="utf-8")
    monkeypatch.setattr(family, "_FAMILIES", dict(family._FAMILIES))
    register(FAMILY)


def test_a_registered_family_is_fitted(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fit", "t.csv", "--model", "shares", "--pseudo", "1", "--out", "o", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["shares"] == {"a": [4 / 6, 2 / 6], "b": [4 / 6, 2 / 6]}
    assert found["constant_columns"] == [] and found["seed"] == 0
    assert json.loads(Path("o/fit.json").read_text(encoding="utf-8")) == found
    assert run(["fit", "t.csv", "--model", "shares", "--out", "p"]) == 0
    assert "shares of a, b" in capsys.readouterr().out and Path("p/report.html").exists()
    assert run(["fit", "--help"]) == 0
    text = capsys.readouterr().out
    assert "--pseudo" in text and "shares" in text


def test_its_options_are_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fit", "t.csv", "--pseudo", "1"]) == 2
    assert "--pseudo: belongs to --model shares, received --model log-linear" in capsys.readouterr().err
    assert run(["fit", "t.csv", "--model", "shares", "--alpha", "2"]) == 2
    assert "--alpha: belongs to --model dependency-network, received --model shares" in capsys.readouterr().err
    assert run(["fit", "t.csv", "--model", "shares", "--pseudo", "101"]) == 2
    assert "--pseudo: expected a number from 0, up to 100, received 101" in capsys.readouterr().err
    assert not Path("o").exists()


def test_a_name_is_registered_once() -> None:
    assert [known.short for known in families()] == ["log-linear", "dependency-network", "grm", "shares"]
    with pytest.raises(InputError, match="registered already"):
        register(FAMILY)
