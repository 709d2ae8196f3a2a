"""The record of an interrupted run: its time, and what differs when it is continued with other options."""

import json
import os
import threading
import time
from pathlib import Path

import click
import pytest

from pyro_hoim import Domain, InputError, Observations
from pyro_hoim.cli.commands.fit import fit, learn
from pyro_hoim.cli.session import session
from pyro_hoim.runs.checkpoint import one_process
from pyro_hoim.runs.container import sealed
from pyro_hoim.testing import raises

ROWS = Observations.from_table(Domain.from_cardinalities([2, 2]), [[3, 1], [0, 2]])
OTHER = Observations.from_table(Domain.from_cardinalities([2, 2]), [[3, 1], [1, 2]])
REFUSED = "checkpoint: search.safetensors belongs to a run with another trainer rows"


def begin(folder, words, rows=ROWS, refused="", keep="x", command=fit):
    """One session of a command; it leaves a checkpoint named ``keep``, or is refused. Returns the time before it."""
    with command.make_context(command.name, ["t.csv", *words]), session(folder, time.perf_counter(), rows) as run:
        if refused:
            _, is_other, found = refused.partition(" belongs to a run with ")
            received = found.split(";")[0] if "=" in found else None
            raise InputError(refused, received=received, code="other-run" if is_other else None)
        if keep:
            (run.checkpoint / keep).write_text("state")
        return run.earlier_seconds


def test_time_of_earlier_sessions_is_added(tmp_path):
    folder = tmp_path / "out"
    assert begin(folder, []) == 0
    record = folder / "checkpoint" / "run.json"
    found = json.loads(record.read_text())
    del found["sha256"]
    found["seconds"], found["since"] = 100.0, found["since"] - 50
    record.write_text(sealed(found, {}))
    # killed: counts up to the last checkpoint, 20 seconds after the record was written
    os.utime(folder / "checkpoint" / "x", (0, found["since"] + 20))
    assert begin(folder, [], keep="") == pytest.approx(120, abs=1e-3)
    # left in an orderly way: counts in full, and nothing is counted twice, however often it is continued
    again = json.loads(record.read_text())
    assert 120 < again["seconds"] < 125
    assert begin(folder, [], keep="") == pytest.approx(again["seconds"], abs=1e-9)
    for _ in range(3):
        assert begin(folder, [], keep="") > again["seconds"]


def test_nothing_is_left_of_a_run_that_computed_nothing(tmp_path):
    with pytest.raises(InputError, match="bad column"):
        begin(tmp_path / "out", [], refused="bad column")
    assert not (tmp_path / "out").exists()
    assert begin(tmp_path / "other", [], keep="x") == 0
    with pytest.raises(InputError, match="bad column"):
        begin(tmp_path / "other", [], refused="bad column")
    assert (tmp_path / "other" / "checkpoint" / "x").exists()  # control: a checkpoint stays


def test_a_folder_that_cannot_be_made_is_one_clear_error(tmp_path):
    (tmp_path / "file").write_text("")
    with raises("no-file", "--out"):
        begin(tmp_path / "file" / "out", [])


def test_options_that_differ_are_named(tmp_path):
    folder = tmp_path / "out"
    begin(folder, ["--refit", "--target", "a"], command=learn)
    with pytest.raises(InputError) as caught:
        begin(folder, ["--seed", "1", "--resume", "--target", "b", "--json"], refused=REFUSED, command=learn)
    assert str(caught.value).startswith(f"--resume: the run in {folder} was started with --refit, --seed 0, and ")
    assert "received no --refit, --seed 1; repeat its options" in str(caught.value)
    with pytest.raises(InputError, match="was started with other rows"):
        begin(folder, ["--refit", "--resume"], rows=OTHER, refused=REFUSED, command=learn)
    with pytest.raises(InputError, match=r"was started by another release of the library \(patience=2, not 1\); start"):
        begin(
            folder, ["--refit"], refused="checkpoint: x belongs to a run with patience=2, not 1; repeat", command=learn
        )
    with pytest.raises(InputError, match=r"^checkpoint: damaged"):  # control: what is no other run stays as it is
        begin(folder, ["--seed", "1"], refused="checkpoint: damaged")
    with pytest.raises(InputError, match="was started with pyro-hoim learn, and received pyro-hoim fit; repeat"):
        begin(folder, ["--resume"], refused=REFUSED)


def test_a_damaged_record_is_named_and_one_that_is_missing_is_no_obstacle(tmp_path):
    folder = tmp_path / "out"
    begin(folder, [])
    record = folder / "checkpoint" / "run.json"
    good = record.read_bytes()
    flipped = [good[:k] + bytes([good[k] ^ 1 << k % 8]) + good[k + 1 :] for k in range(0, len(good), 29)]
    other = good.replace(b'"seconds": ', b'"seconds": 1')
    assert other != good
    for content in (b"", b"[]", b"{}", b'{"seconds": "long", "since": null}', b"\0", good[:-1], other, *flipped):
        record.write_bytes(content)
        with pytest.raises(InputError, match=r"run.json cannot be read, it is damaged; delete it to contin") as caught:
            begin(folder, [])
        assert caught.value.code == "damaged-file"
        assert record.read_bytes() == content and (folder / "checkpoint" / "x").exists()
    record.write_bytes(good)
    assert begin(folder, []) >= 0  # control
    record.unlink()
    assert begin(folder, []) == 0


def test_control_contexts_are_closed():
    assert click.get_current_context(silent=True) is None


# The folder of a fit: one process at a time, complete only where every file is as it was written.

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
