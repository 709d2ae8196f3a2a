"""What the system refuses is one line and exit status 2, and signals end a command in order."""

import ctypes
import errno
import gc
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from unittest.mock import Mock

import pandas as pd
import pytest

from pyro_hoim import atomic, fit, load_table
from pyro_hoim.cli import main, run
from pyro_hoim.cli.commands import data as data_commands, fit as fit_command
from pyro_hoim.cli.system import signals_received
from pyro_hoim.runs.checkpoint import DeferredInterrupt
from pyro_hoim.testing import raises


@pytest.fixture(autouse=True)
def _model():
    fit("Admit * Gender", load_table("ucb_admissions")).save("m")


def written():
    """All files here."""
    return sorted(str(path) for path in Path().rglob("*") if path.is_file())


COMMANDS = [
    ["fit", "ucb_admissions", "--order", "1", "--order", "2", "--out", "new"],
    pytest.param(["learn", "ucb_admissions", "--out", "new"], marks=pytest.mark.slow),
    ["sample", "m", "-n", "3", "--out", "new.csv"],
    ["predict", "m", "ucb_admissions", "--target", "Admit", "--out", "new.csv"],
    ["report", "m", "--out", "new"],
    ["data", "titanic", "--out", "new.csv"],
]


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: f"{words[0]}-{len(words)}")
def test_a_full_disk_at_any_write_is_one_line_and_leaves_no_cut_file(every, words, shell, monkeypatch):
    left, real = [0], os.fsync

    def full(file):
        left[0] -= 1
        if left[0] == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(file)

    monkeypatch.setattr(atomic.os, "fsync", full)
    shell(*words)
    total, whole = -left[0], {name: Path(name).read_bytes().count(b"\n") for name in written()}
    assert total > 0
    for n in {1, total} | set(range(1, total + 1, max(1, (every - 1) * total // 2))):
        remove("new", "new.csv")
        left[0] = n
        lines = [line for line in shell(*words, status=2).err.splitlines() if not line.startswith("[")]
        assert len(lines) == 1 and "No space left on device" in lines[0]
        assert not [name for name in written() if name.endswith((".part", "new/fit.json"))]
        texts = [name for name in written() if name.endswith((".csv", ".html"))]
        assert all(Path(name).read_bytes().count(b"\n") == whole[name] for name in texts)
        if words[0] in ("fit", "learn") and Path("new/checkpoint").exists():
            shell(*words, "--resume")
            assert set(whole) == set(written())
        else:
            assert not Path("new").exists() and not Path("new.csv").exists()


def remove(*names):
    """Remove files and folders that there may be."""
    for name in names:
        if Path(name).is_dir():
            shutil.rmtree(name)
        else:
            Path(name).unlink(missing_ok=True)


def test_a_standard_output_that_refuses_is_named(monkeypatch, capsys):
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert run(["sample", "m", "-n", "2"]) == 2
        with pytest.raises(OSError, match="No space"):
            full.flush()
        os.dup2(os.open(os.devnull, os.O_WRONLY), full.fileno())
    assert capsys.readouterr().err == (
        "pyro-hoim: error: standard output: cannot be written (No space left on device)\n"
    )


def test_a_pipe_without_a_reader_ends_a_command_without_a_word(monkeypatch, capsys):
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w") as pipe:
        monkeypatch.setattr(sys, "stdout", pipe)
        assert run(["data", "titanic"]) == 141
        os.dup2(os.open(os.devnull, os.O_WRONLY), writer)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (PermissionError(errno.EACCES, "Permission denied", "rows.csv"), "rows.csv: Permission denied"),
        (OSError(errno.EIO, "Input/output error"), "Input/output error"),
        (MemoryError("Unable to allocate"), "data: not enough memory; use a machine with more memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), "data: not enough memory; use a machine with"),
        (RecursionError("maximum recursion depth"), "data: the input is nested too deeply; simplify it"),
    ],
)
def test_what_the_system_refuses_is_one_line(error, says, monkeypatch, shell):
    monkeypatch.setattr(data_commands, "load_table", Mock(side_effect=error))
    assert says in shell.refused("data", "titanic")


@pytest.mark.parametrize("error", [RuntimeError("a mistake"), ZeroDivisionError(), AssertionError()])
def test_control_mistakes_in_the_program_keep_their_trace(error, monkeypatch):
    monkeypatch.setattr(data_commands, "load_table", Mock(side_effect=error))
    with pytest.raises(type(error)):
        run(["data", "titanic"])


def test_the_stage_and_a_smaller_option_are_said_where_memory_is_short(monkeypatch, shell):
    monkeypatch.setattr(fit_command, "plain_text", Mock(side_effect=MemoryError))
    shown = shell("fit", "ucb_admissions", "--order", "1", status=2)
    assert "fit: not enough memory while writing the report; use fewer --columns" in shown.err


def test_a_working_directory_that_was_deleted_is_named(tmp_path, monkeypatch, shell):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    shown = shell("data", "titanic", "--out", "a.csv", status=2)
    monkeypatch.chdir(tmp_path)
    assert shown.err == "pyro-hoim: error: the working directory: No such file or directory\n"


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
@pytest.mark.parametrize("is_held", [False, True])
def test_signals_interrupt_a_command_also_between_steps(number, status, is_held, monkeypatch, capsys):
    done = []

    def work(_):
        with DeferredInterrupt() as interrupt:
            if not is_held:
                raise AssertionError if interrupt.is_pending else KeyError
            signal.raise_signal(number)
            done.append("step")
            interrupt.deliver()
            done.append("never")

    def plain(_):
        signal.raise_signal(number)

    monkeypatch.setattr(data_commands, "load_table", work if is_held else plain)
    ignored = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # by nohup, for one
    try:
        before = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
        assert run(["data", "titanic"]) == status
        assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == before
    finally:
        signal.signal(signal.SIGHUP, ignored)
    assert capsys.readouterr().err.strip() == "pyro-hoim: interrupted" and done == ["step"] * is_held


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_while_compiled_code_calls_python_is_not_lost(number):
    calling = ctypes.CFUNCTYPE(None)(lambda: signal.raise_signal(number))

    def work():
        calling()
        done.append("went on")
        time.sleep(5)
        done.append("never")

    done = []
    with pytest.raises(KeyboardInterrupt), signals_received():
        work()
    assert done == ["went on"]


@pytest.fixture
def _own_thresholds():
    """Searches for garbage as before, which a command makes rarer in its process."""
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


@pytest.mark.usefixtures("_own_thresholds")
def test_processes_of_a_command_say_nothing_of_locks_that_killed_ones_left(monkeypatch):
    def warning(words):
        command = [sys.executable, "-c", f"import warnings; warnings.warn({words!r})"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stderr

    monkeypatch.setenv("PYTHONWARNINGS", "ignore:mine")
    assert "leaked" in warning("resource_tracker: leaked")
    with pytest.raises(SystemExit):
        main(["--version"])
    assert [warning("resource_tracker: leaked"), warning("mine")] == ["", ""]
    assert "other" in warning("other")


@pytest.mark.usefixtures("_own_thresholds")
def test_a_process_searches_rarely_for_garbage_and_ends_without_a_search(monkeypatch):
    monkeypatch.setenv("PYTHONWARNINGS", "")
    gc.unfreeze()  # what the tests froze at their start
    gc.set_threshold(700, 11, 12)
    with pytest.raises(SystemExit):
        main(["--help"])
    assert gc.get_threshold() == (100_000, 11, 12)
    assert gc.get_freeze_count() > 10_000


@pytest.mark.parametrize(
    ("redirection", "status", "says"),
    [
        ("> /dev/full", 2, "standard output: cannot be written (No space left on device)"),
        (">&-", 2, "standard output: cannot be written (Bad file descriptor)"),
        ("2>&- > out", 0, ""),
        ("2> /dev/full > out", 0, ""),
    ],
)
def test_streams_of_a_process_that_are_full_or_closed(redirection, status, says):
    command = f"{sys.executable} -c 'from pyro_hoim.cli import main; main([\"--help\"])' {redirection}"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (status, f"pyro-hoim: error: {says}\n" if says else "")


def test_labels_that_have_no_utf8_make_no_model():
    with raises("invalid-value", "Variable 'a'"):
        fit("a", pd.DataFrame({"a": ["\ud800", "b"] * 5}, dtype=object))
