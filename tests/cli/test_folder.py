"""The folder of a fit: one process at a time, complete only where every file is as it was written."""

import json
import os
import threading
from pathlib import Path

import pytest

from pyro_hoim.runs.checkpoint import one_process
from pyro_hoim.testing import raises

TABLE = "a,b\n" + "x,0\ny,1\nx,1\ny,0\n" * 6
FIT = ["fit", "rows.csv", "--order", "1", "--out", "out"]


@pytest.fixture
def table():
    Path("rows.csv").write_text(TABLE)


# Complete or not


def test_files_that_were_changed_after_a_fit_are_named(shell, table):
    shell(*FIT)
    folder = Path("out")
    summary = json.loads((folder / "fit.json").read_text())
    written = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()} - {"fit.json"}
    assert summary["files"].keys() == written and {"model.safetensors", "report.html"} <= written
    again = [*FIT, "--resume"]
    assert "the run in out is complete; leave out" in shell.refused(*again)
    model, page = folder / "model.safetensors", folder / "report.html"
    kept, text = model.read_bytes(), page.read_bytes()
    for content in (kept[:-1], kept[:-1] + bytes([kept[-1] ^ 1])):
        model.write_bytes(content)
        assert "out was complete, but model.safetensors was changed" in shell.refused(*again)
    model.unlink()
    page.write_bytes(b"")
    told = shell.refused(*again)
    assert "was complete, but model.safetensors is missing, report.html was changed; leave out --resume" in told
    for words in (["sample", "out"], ["log-z", "out"], ["interactions", "out"]):
        assert "out holds a complete fit, but model.safetensors is missing" in shell.refused(*words)
    model.write_bytes(kept)
    page.write_bytes(text)
    assert "the run in out is complete; leave out" in shell.refused(*again)
    for content in ("", "[]", '{"files": 3}', '{"files": {"model.safetensors": 3}}', "\0"):
        (folder / "fit.json").write_text(content)
        assert "the run in out was complete, but" in shell.refused(*again)


# One process at a time


def test_a_second_run_in_the_folder_is_refused_while_the_first_works(shell, table):
    Path("out/checkpoint").mkdir(parents=True)
    Path("out/checkpoint/chain").write_text("")
    with one_process(Path("out/checkpoint/lock"), "x", "y"):
        told = shell.refused(*FIT, "--resume", progress=True)
    hint = "wait for it to end, or choose another folder"
    assert told == f"--out: another process ({os.getpid()}) is at work in out; {hint}"
    Path("out/checkpoint/lock").write_text("\n1\n")  # left by a process that was killed
    Path("out/checkpoint/chain").unlink()
    shell(*FIT, "--resume")
    assert sorted(Path("out").iterdir()) == sorted(p for p in Path("out").iterdir() if p.name != "checkpoint")


def test_of_many_threads_one_holds_the_lock(tmp_path):
    path, inside, refusals, most = tmp_path / "a" / "lock", [], [], []

    def work():
        for _ in range(50):
            try:
                with one_process(path, "x", "y"):
                    inside.append(1)
                    most.append(len(inside))
                    inside.pop()
            except ValueError as error:
                refusals.append(error.code)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(most) == {1} and set(refusals) <= {"conflict"} and len(most) + len(refusals) == 200


def test_the_lock_goes_with_the_block(tmp_path):
    path = tmp_path / "a" / "lock"

    def work():
        with one_process(path, "x", "y"):
            with raises("conflict", "other"), one_process(path, "other", "y"):
                pass
            raise ZeroDivisionError

    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            work()
    with one_process(path, "x", "y"):
        pass


def test_a_link_in_place_of_the_lock_is_not_followed(tmp_path):
    kept, lock = tmp_path / "kept", tmp_path / "lock"
    kept.write_text("precious")
    for target in (kept, tmp_path / "missing" / "lock"):
        lock.symlink_to(target)
        with pytest.raises(OSError, match="symbolic links"), one_process(lock, "x", "y"):
            pass
        lock.unlink()
    assert kept.read_text() == "precious"
