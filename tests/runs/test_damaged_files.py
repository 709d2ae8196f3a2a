"""Damaged model files of every kind: one clear refusal, and nothing in them is executed."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from pyro_hoim.dependency_network import (
    DependencyConditionals,
    NetworkFile,
    TableConditional,
    load_network,
    save_network,
)
from pyro_hoim.errors import ModelFileError
from pyro_hoim.generalized_root import PoissonFamily, RootFile, RootStructure, load_roots, save_roots
from pyro_hoim.log_linear import ModelFile, load_model, save_model
from pyro_hoim.runs.container import read_kind
from pyro_hoim.schema import Domain, Variable
from pyro_hoim.structure import InteractionHypergraph

DOMAIN = Domain.from_cardinalities({"a": 2, "b": 3})
COUNTS = Domain([Variable("größe", kind="count"), Variable("b", kind="count")])


def _save_log_linear(path: Path) -> None:
    save_model(path, ModelFile(InteractionHypergraph.saturated(DOMAIN), torch.linspace(-1, 1, 5)))


def _save_network(path: Path) -> None:
    tables = [TableConditional(DOMAIN, v.name, [], torch.ones(v.cardinality) / v.cardinality) for v in DOMAIN]
    save_network(path, NetworkFile(DependencyConditionals(tables)))


def _save_roots(path: Path) -> None:
    save_roots(path, RootFile(RootStructure.complete(COUNTS, 2), torch.linspace(-1, 1, 5), PoissonFamily()))


KINDS = {
    "hierarchical-log-linear": (_save_log_linear, load_model),
    "dependency-network": (_save_network, load_network),
    "generalized-root": (_save_roots, load_roots),
}
EVERY = pytest.mark.parametrize("kind", KINDS)


def _tools(kind: str, folder: Path) -> tuple[Path, tuple[Callable[[Path], Any], ...]]:
    """A good file and the functions that read it."""
    save, load = KINDS[kind]
    save(folder / "good")
    return folder / "good", (load, read_kind)


@EVERY
def test_control_the_whole_file_is_read_by_its_reader_alone(kind: str, tmp_path: Path) -> None:
    good, (load, tell) = _tools(kind, tmp_path)
    load(good)
    assert tell(good) == kind
    for other, (_, wrong) in KINDS.items():
        if other != kind:
            with pytest.raises(ModelFileError, match=f"kind '{kind}', expected '{other}'; read it with"):
                wrong(good)


@EVERY
def test_every_truncation_is_refused(kind: str, tmp_path: Path) -> None:
    good, readers = _tools(kind, tmp_path)
    data = good.read_bytes()
    for length in [*range(0, len(data), 37), len(data) - 1]:
        (tmp_path / "short").write_bytes(data[:length])
        for read in readers:
            with pytest.raises(ModelFileError, match="damaged or truncated"):
                read(tmp_path / "short")


class _Exploit:
    def __reduce__(self) -> tuple[Any, ...]:
        return pytest.fail, ("code from a file was executed",)


@EVERY
def test_pickles_are_refused_and_never_executed(kind: str, tmp_path: Path) -> None:
    _, readers = _tools(kind, tmp_path)
    (tmp_path / "pickle").write_bytes(pickle.dumps(_Exploit()))
    torch.save({"theta": torch.zeros(3), "psi": torch.zeros(3), "probs.0": torch.zeros(2)}, tmp_path / "torch")
    for name in ("pickle", "torch"):
        for read in readers:
            with pytest.raises(ModelFileError, match="damaged"):
                read(tmp_path / name)


@EVERY
def test_absent_files_and_folders_are_refused(kind: str, tmp_path: Path) -> None:
    for read in _tools(kind, tmp_path)[1]:
        with pytest.raises(ModelFileError, match="no such file"):
            read(tmp_path / "absent")
        with pytest.raises(ModelFileError, match="not a file"):
            read(tmp_path)
