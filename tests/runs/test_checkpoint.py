"""Checkpoints: whole or absent, never another run's, one clear error for each fault; Ctrl-C is held back."""

import json
import os
import signal
import threading
import time
import zlib
from pathlib import Path

import pytest
import safetensors.torch
import torch

from pyro_hoim.errors import InputError
from pyro_hoim.families import load
from pyro_hoim.log_linear import GibbsChains, LogLinearEnergy, load_model
from pyro_hoim.runs import sample_chains
from pyro_hoim.runs.checkpoint import DeferredInterrupt, RunFile, check_equal
from pyro_hoim.schema import Domain
from pyro_hoim.structure import InteractionHypergraph
from pyro_hoim.testing import raises

TENSORS = {
    "a": torch.arange(6).reshape(2, 3),
    "b": torch.tensor([0.5, float("nan")], dtype=torch.float64),
    "none": torch.zeros(0, 4),
    "one": torch.tensor(7, dtype=torch.uint8),
}
SETTINGS = {"kind": "chains", "thin": 2, "record": ("energy",), "model digest": "aa"}


def written(path):
    file = RunFile(path)
    assert file.start(SETTINGS) is None
    file.write(TENSORS)
    return path


def model():
    hypergraph = InteractionHypergraph.from_order(Domain.from_cardinalities({"a": 2, "b": 3}), 2)
    return LogLinearEnergy(hypergraph, torch.full((hypergraph.num_terms,), 0.3))


# Files


def test_tensors_come_back_and_nothing_else_is_left(tmp_path):
    path = written(tmp_path / "run")
    found = RunFile(path, resume=True).start(SETTINGS)
    assert found is not None and found.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert found[name].dtype == tensor.dtype and found[name].shape == tensor.shape
        assert torch.equal(found[name].nan_to_num(), tensor.nan_to_num())
    assert [p.name for p in tmp_path.iterdir()] == ["run"]


def test_a_file_that_is_not_there_starts_a_run(tmp_path):
    assert RunFile(tmp_path / "run", resume=True).start(SETTINGS) is None


def test_a_fault_while_writing_keeps_the_last_file(tmp_path, monkeypatch):
    path = written(tmp_path / "run")
    before = path.read_bytes()
    file = RunFile(path, resume=True)
    file.start(SETTINGS)

    def broken(tensors, name, metadata):
        Path(name).write_bytes(b"half")
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(safetensors.torch, "save_file", broken)
        with pytest.raises(InputError, match=r"run: cannot be written .*No space left"):
            file.write({"a": torch.zeros(2)})
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["run"]
    file.write({"a": torch.ones(2)})
    assert [p.name for p in tmp_path.iterdir()] == ["run"]


def test_large_files_are_written_less_often(tmp_path, monkeypatch):
    monkeypatch.setattr(RunFile, "SECONDS", 1e-6)
    file = RunFile(tmp_path / "run")
    file.start(SETTINGS)
    time.sleep(1e-3)
    assert file.is_due
    original = safetensors.torch.save_file

    def slow(*args, **options):
        time.sleep(0.2)
        original(*args, **options)

    monkeypatch.setattr(safetensors.torch, "save_file", slow)
    file.write(TENSORS)
    assert not file.is_due
    assert 1.9 < file._due - time.monotonic() < 60


@pytest.mark.parametrize("keep", [0, 4, 100, -1])
def test_truncated_file_is_named(keep, tmp_path):
    path = written(tmp_path / "run")
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(InputError, match=r"run is not a readable .*truncated; delete it to start again"):
        RunFile(path, resume=True).start(SETTINGS)


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        (None, "is a safetensors file, but not a pyro-hoim checkpoint"),
        ({"pyro-hoim": "{}"}, "is a safetensors file, but not a pyro-hoim checkpoint"),
        ({"pyro-hoim-run": "[1]"}, "entry 'pyro-hoim-run' is not a JSON object"),
        ({"pyro-hoim-run": "{"}, "entry 'pyro-hoim-run' is not readable JSON"),
        ({"pyro-hoim-run": json.dumps({"format_version": 2})}, "format version '2' .*reads version 3; delete it"),
        ({"pyro-hoim-run": json.dumps({"format_version": 3})}, "is damaged: its contents"),
    ],
)
def test_files_of_other_programs_and_releases_are_refused(metadata, message, tmp_path):
    path = tmp_path / "run"
    safetensors.torch.save_file(TENSORS, str(path), metadata=metadata)
    with pytest.raises(InputError, match=message):
        RunFile(path, resume=True).start(SETTINGS)


def test_other_settings_are_refused(tmp_path):
    path = written(tmp_path / "run")
    for change in ({"record": ("energy", "codes")}, {"model digest": "bb"}, {"new": 5}):
        with raises("other-run", "checkpoint"):
            RunFile(path, resume=True).start({**SETTINGS, **change})
    with pytest.raises(InputError, match="a run with thin=2, not 1; repeat that run's arguments"):
        RunFile(path, resume=True).start({**SETTINGS, "thin": 1})


def test_bad_places_are_refused(tmp_path):
    written(tmp_path / "run")
    with pytest.raises(InputError, match="exists; pass resume=True to continue that run, or choose another name"):
        RunFile(tmp_path / "run")
    places = [(tmp_path, "no-file"), (tmp_path / "none" / "run", "no-file"), (3, "wrong-type")]
    for place, code in places:
        with raises(code, "checkpoint"):
            RunFile(place, resume=True)


@pytest.mark.parametrize("opened", [RunFile, load, load_model])
def test_what_the_system_refuses_of_a_name_is_an_error_of_the_library(opened):
    with pytest.raises(InputError, match=r"x: cannot be (read|written) \(File name too long\)"):
        opened("x" * 300)


@pytest.mark.parametrize("place", ["os.fsync", "safetensors.torch.save_file"])
def test_a_second_interrupt_while_saving_keeps_the_last_file(place, tmp_path, monkeypatch):
    """The first is held back, and answered by a checkpoint; the second acts at once, within that."""
    before = written(tmp_path / "run").read_bytes()
    file = RunFile(tmp_path / "run", resume=True)
    file.start(SETTINGS)

    def interrupt(*_, **__):
        os.kill(os.getpid(), signal.SIGINT)

    def save():
        with DeferredInterrupt() as held:
            interrupt()
            assert held.is_pending
            file.write({"a": torch.ones(1000)})

    monkeypatch.setattr(place, interrupt)
    with pytest.raises(KeyboardInterrupt):
        save()
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    assert file.path.read_bytes() == before


def test_arrays_are_compared_by_their_bytes():
    check_equal(TENSORS, {name: tensor.clone() for name, tensor in TENSORS.items()})  # NaN is equal to itself
    one = torch.zeros(8, dtype=torch.uint8)
    other = torch.tensor([*bytes.fromhex("410671db01"), 0, 0, 0], dtype=torch.uint8)
    assert zlib.crc32(one.numpy()) == zlib.crc32(other.numpy())  # a checksum of 32 bits would take both for equal
    wrong = [(one, other), (torch.tensor(0.0), torch.tensor(-0.0)), (one, one[:-1]), (one, one.view(torch.int8))]
    for a, b in wrong:
        with pytest.raises(ValueError, match="the entry 'x' is not of this run"):
            check_equal({"x": a}, {"x": b})
    with pytest.raises(KeyError):
        check_equal({}, {"x": one})


# Interruption


def test_interrupt_is_held_back_and_then_delivered():
    before = signal.getsignal(signal.SIGINT)
    steps = []

    def work():
        with DeferredInterrupt() as interrupt:
            os.kill(os.getpid(), signal.SIGINT)
            steps.append("still running")
            assert interrupt.is_pending
            interrupt.deliver()
            steps.append("never")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert steps == ["still running"] and signal.getsignal(signal.SIGINT) is before


def test_interrupt_in_the_last_step_is_not_lost():
    with pytest.raises(KeyboardInterrupt), DeferredInterrupt():
        os.kill(os.getpid(), signal.SIGINT)


def test_second_interrupt_acts_at_once():
    steps = []

    def work():
        with DeferredInterrupt():
            for k in range(3):
                os.kill(os.getpid(), signal.SIGINT)
                steps.append(k)

    with pytest.raises(KeyboardInterrupt):
        work()
    assert steps == [0]


def test_handlers_of_others_are_called_and_put_back():
    called = []
    former = signal.signal(signal.SIGINT, lambda number, frame: called.append(number))
    try:
        with DeferredInterrupt() as interrupt:
            os.kill(os.getpid(), signal.SIGINT)
            assert called == []
            interrupt.deliver()
            assert called == [signal.SIGINT] and not interrupt.is_pending
        assert signal.getsignal(signal.SIGINT) is not interrupt._note
    finally:
        signal.signal(signal.SIGINT, former)


def test_runs_in_other_threads_leave_handlers_alone():
    results = []
    thread = threading.Thread(target=lambda: results.append(sample_chains(GibbsChains(model(), 3), 20)))
    thread.start()
    thread.join(60)
    assert len(results) == 1
