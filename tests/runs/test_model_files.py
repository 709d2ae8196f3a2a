"""Model files of every kind: what all keep, how they are written, and who reads them."""

import os

import pytest
import torch

from pyro_hoim import DependencyConditionals, Domain, InteractionHypergraph, Variable
from pyro_hoim.dependency_network import NetworkFile, TableConditional, load_network, save_network
from pyro_hoim.errors import InputTypeError, ModelFileError
from pyro_hoim.generalized_root import PoissonFamily, RootFile, RootStructure, load_roots, save_roots
from pyro_hoim.log_linear import ModelFile, load_model, save_model
from pyro_hoim.runs.container import read_kind
from pyro_hoim.testing import raises

DOMAIN = Domain.from_cardinalities({"a": 2, "b": 3})
COUNTS = Domain([Variable("größe", kind="count"), Variable("b", kind="count")])
NUMBERS = torch.linspace(-1, 1, 5)


def log_linear(*notes):
    return ModelFile(InteractionHypergraph.saturated(DOMAIN), NUMBERS, "free", *notes)


def network(*notes):
    tables = [TableConditional(DOMAIN, v.name, [], torch.ones(v.cardinality) / v.cardinality) for v in DOMAIN]
    return NetworkFile(DependencyConditionals(tables), *notes)


def roots(*notes):
    return RootFile(RootStructure.complete(COUNTS, 2), NUMBERS, PoissonFamily(), *notes)


# What makes the contents of a file, writes and reads them, and the name of a tensor that it takes itself.
KINDS = {
    "hierarchical-log-linear": (log_linear, save_model, load_model, "theta"),
    "dependency-network": (network, save_network, load_network, "probs.0"),
    "generalized-root": (roots, save_roots, load_roots, "psi"),
}
EVERY = pytest.mark.parametrize("kind", KINDS)
INFO = {"rows": 12, "nested": {"ünï": [1, 2.5, None, True, "x"]}, "pair": (1, 2), "large": 2**70}


@pytest.fixture
def good(kind, tmp_path):
    """A good file of the kind."""
    make, save, *_ = KINDS[kind]
    save(tmp_path / "good", make())
    return tmp_path / "good"


# Writing


@EVERY
def test_notes_and_tensors_are_kept_to_the_bytes(kind, tmp_path):
    make, save, load, _ = KINDS[kind]
    extra = torch.arange(6).reshape(2, 3).T
    save(tmp_path / "m", make(INFO, {"draws": extra}))
    found, written = load(tmp_path / "m"), (tmp_path / "m").read_bytes()
    assert found.info == {**INFO, "pair": [1, 2]}
    assert torch.equal(found.tensors["draws"], extra)
    (tmp_path / "m").write_bytes(b"\xff" * 4096)  # what was read does not hold the file
    save(str(tmp_path / "again"), found)
    assert (tmp_path / "again").read_bytes() == written
    assert sorted(os.listdir(tmp_path)) == ["again", "m"]


@EVERY
def test_writing_replaces_in_one_step(kind, good, monkeypatch):
    make, save, *_ = KINDS[kind]
    old = good.read_bytes()
    save(good, make(INFO))
    new = good.read_bytes()
    assert new != old and os.listdir(good.parent) == ["good"]

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ModelFileError, match=r"No space left"):
        save(good, make())
    assert good.read_bytes() == new and os.listdir(good.parent) == ["good"]


@EVERY
def test_writing_refuses_a_missing_folder_a_folder_and_something_else(kind, tmp_path):
    make, save, *_ = KINDS[kind]
    with pytest.raises(ModelFileError, match=r"folder .*absent does not exist"):
        save(tmp_path / "absent" / "m", make())
    with pytest.raises(ModelFileError, match=r"is a folder"):
        save(tmp_path, make())
    with pytest.raises(InputTypeError, match=rf"expected a {type(make()).__name__}, received dict"):
        save(tmp_path / "m", {})
    assert os.listdir(tmp_path) == []


@EVERY
@pytest.mark.parametrize(
    ("info", "tensors", "code", "argument"),
    [
        ([1], {}, "wrong-type", "info"),
        ({"a": float("inf")}, {}, "invalid-value", "info['a']"),
        ({"a": float("nan")}, {}, "invalid-value", "info['a']"),
        ({"a": torch.zeros(1)}, {}, "invalid-value", "info['a']"),
        ({"a": [{1: 2}]}, {}, "wrong-type", "info['a'][0]"),
        ({}, {"x": [1.0]}, "wrong-type", "tensors['x']"),
        ({}, None, "repeated-name", "tensors"),
    ],
)
def test_unsuitable_notes_are_refused(kind, info, tensors, code, argument):
    make, *_, taken = KINDS[kind]
    with raises(code, argument):
        make(info, {taken: NUMBERS} if tensors is None else tensors)


# Reading


@EVERY
def test_control_the_whole_file_is_read_by_its_reader_alone(kind, good):
    KINDS[kind][2](good)
    assert read_kind(str(good)) == kind
    for other, (_, _, wrong, _) in KINDS.items():
        if other != kind:
            with pytest.raises(ModelFileError, match=f"kind '{kind}', expected '{other}'; read it with load_[a-z]+$"):
                wrong(good)


@EVERY
def test_the_kind_is_read_without_the_tensors(kind, good, monkeypatch):
    monkeypatch.setattr(torch.Tensor, "clone", lambda *_: pytest.fail("a tensor was read"))
    assert read_kind(good) == kind
