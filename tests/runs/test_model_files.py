"""Model files of every kind: what all keep, how they are written, and one clear refusal for what is no such file."""

import json
import os
import pickle

import pytest
import safetensors.torch
import torch
from forged_files import forged

from pyro_hoim.dependency_network import (
    DependencyConditionals,
    NetworkFile,
    TableConditional,
    load_network,
    save_network,
)
from pyro_hoim.errors import InputTypeError, ModelFileError
from pyro_hoim.generalized_root import PoissonFamily, RootFile, RootStructure, load_roots, save_roots
from pyro_hoim.log_linear import ModelFile, load_model, save_model
from pyro_hoim.runs import FORMAT_VERSION
from pyro_hoim.runs.container import read_kind
from pyro_hoim.schema import Domain, Variable
from pyro_hoim.structure import InteractionHypergraph
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


def readers(kind):
    return KINDS[kind][2], read_kind


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
    for read in readers(kind):
        read(good)
    assert read_kind(str(good)) == kind
    for other, (_, _, wrong, _) in KINDS.items():
        if other != kind:
            with pytest.raises(ModelFileError, match=f"kind '{kind}', expected '{other}'; read it with load_[a-z]+$"):
                wrong(good)


@EVERY
def test_the_kind_is_read_without_the_tensors(kind, good, monkeypatch):
    monkeypatch.setattr(torch.Tensor, "clone", lambda *_: pytest.fail("a tensor was read"))
    assert read_kind(good) == kind


# Metadata as they stand in a file, or what is changed in good ones: None takes an entry out.
BAD_METADATA = {
    "no metadata": (None, "not a pyro-hoim model"),
    "foreign": ({"format": "pt"}, "not a pyro-hoim model"),
    "no JSON": ({"pyro-hoim": "{"}, "not readable JSON"),
    "deep": ({"pyro-hoim": "[" * 100_000}, "nested more than 64 levels deep"),
    "huge number": ({"pyro-hoim": '{"format_version": ' + "9" * 5000 + "}"}, "not readable JSON"),
    "list": ({"pyro-hoim": "[]"}, "not a JSON object"),
}
BAD_ENTRIES = {
    "other format": ({"format": "other"}, "format 'other'"),
    "newer": ({"format_version": FORMAT_VERSION + 1, "library_version": "9.1"}, r"version '4'.*9\.1.*version 3"),
    "older": ({"format_version": 1, "library_version": "0.0.9"}, r"version '1'.*version 3; fit the model again"),
    "version zero": ({"format_version": 0}, "version '0'"),
    "version text": ({"format_version": "1"}, "version '1'"),
    "version true": ({"format_version": True}, "version 'True'"),
    "no version": ({"format_version": None}, "version 'None'"),
    "other kind": ({"kind": "root-model"}, "kind 'root-model', expected '[a-z-]+'$"),
    "no domain": ({"domain": None}, r"'domain' is missing|expected an object with domain and terms \('domain'\)"),
    "domain odd": ({"domain": 3}, "do not fit"),
    "info a number": ({"info": 1}, "info: expected an object, received 1"),
    "info not a number": ({"info": {"a": float("nan")}}, "not readable JSON .NaN is no number"),
}


@EVERY
@pytest.mark.parametrize("case", [*BAD_METADATA, *BAD_ENTRIES])
def test_bad_metadata_is_refused_in_one_sentence(kind, case, good):
    header, message = BAD_METADATA.get(case) or BAD_ENTRIES[case]
    with safetensors.safe_open(str(good), framework="pt") as file:
        metadata = {**json.loads(file.metadata()["pyro-hoim"]), **(header or {})}
    if case in BAD_ENTRIES:
        header = {"pyro-hoim": json.dumps({name: value for name, value in metadata.items() if value is not None})}
    good.write_bytes(forged(safetensors.torch.load(good.read_bytes()), header))
    with pytest.raises(ModelFileError, match=message) as caught:
        KINDS[kind][2](good)
    assert "\n" not in str(caught.value) and str(good) in str(caught.value)
    if case == "other kind":
        assert read_kind(good) == "root-model"  # a family that is registered elsewhere may read it


@EVERY
def test_a_kind_that_is_no_word_is_refused(kind, good):
    listed = {"pyro-hoim": json.dumps({"format": "pyro-hoim", "format_version": FORMAT_VERSION, "kind": [kind]})}
    good.write_bytes(forged({}, listed))
    with pytest.raises(ModelFileError, match=rf"kind \"\['{kind}'\]\", expected"):
        read_kind(good)


@EVERY
def test_every_truncation_is_refused(kind, good):
    data = good.read_bytes()
    for length in [*range(0, len(data), 37), len(data) - 1]:
        good.write_bytes(data[:length])
        for read in readers(kind):
            with pytest.raises(ModelFileError, match="damaged or truncated"):
                read(good)


class _Exploit:
    def __reduce__(self):
        return pytest.fail, ("code from a file was executed",)


@EVERY
def test_pickles_are_refused_and_never_executed(kind, tmp_path):
    (tmp_path / "pickle").write_bytes(pickle.dumps(_Exploit()))
    torch.save({"theta": torch.zeros(3), "psi": torch.zeros(3), "probs.0": torch.zeros(2)}, tmp_path / "torch")
    for name in ("pickle", "torch"):
        for read in readers(kind):
            with pytest.raises(ModelFileError, match="damaged"):
                read(tmp_path / name)


@EVERY
def test_absent_files_and_folders_are_refused(kind, tmp_path):
    for read in readers(kind):
        with pytest.raises(ModelFileError, match="no such file"):
            read(tmp_path / "absent")
        with pytest.raises(ModelFileError, match="not a file"):
            read(tmp_path)
