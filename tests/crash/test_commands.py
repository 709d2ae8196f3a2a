"""Long commands that are interrupted: killed, out of space, twice at a time; what is resumed ends as undisturbed.

A folder is complete or can be continued to the same bits, and no half-written file is left.
"""

import errno
import json
import math
import os
import signal
import time
from pathlib import Path

import forkserver
import numpy as np
import pytest

from pyro_hoim.runs import checkpoint
from pyro_hoim.runs.checkpoint import RunFile

from support.verbs import verb_first

ROWS = "a,b,c\n" + "x,0,u\ny,1,v\nx,1,u\ny,0,u\nx,0,v\nx,1,v\n" * 12
COUNTS = "a,b,c\n" + "0,1,2\n3,2,0\n1,0,1\n2,2,4\n0,0,1\n" * 8
CHAINS = ["--num-chains", "2", "--num-draws", "20", "--burn-in", "10"]
COMMANDS = {
    "fit": ["rows.csv", "--order", "2"],
    "posterior": ["rows.csv", "--order", "1", "--posterior", *CHAINS, "--jobs", "1"],
    "penalty": ["rows.csv", "--order", "2", "--penalty", "l1:1"],
    "structures": ["rows.csv", "structures", *CHAINS],
    "select": ["rows.csv", "learn"],
    "network": ["rows.csv", "--model", "dependency-network"],
    "roots": ["counts.csv", "--model", "grm"],
    "machine": ["rows.csv", "--model", "rbm", "--hidden", "2", "--iterations", "300"],
}
SHORT, SLOW = ("machine",), pytest.mark.slow
TIMES = ("seconds", "stage_seconds", "earlier_sessions", "peak_memory_mb", "provenance", "files")
AT_ONCE = "from pyro_hoim.runs.checkpoint import RunFile; RunFile.SECONDS = 0.0; "


@pytest.fixture(autouse=True)
def kept_at_once(monkeypatch, tmp_path):
    """Write checkpoints whenever that is possible, however long the last one took."""
    monkeypatch.setattr(RunFile, "SECONDS", 0.0)
    monkeypatch.setattr(checkpoint, "_LARGEST_SHARE", math.inf)
    (tmp_path / "rows.csv").write_text(ROWS)
    (tmp_path / "counts.csv").write_text(COUNTS)


def fit(kind, folder, *options):
    return verb_first(*COMMANDS[kind], "--seed", "3", "--out", folder, *options)


def timeless(value):
    """A summary without what tells of time and place."""
    if isinstance(value, dict):
        return {key: timeless(entry) for key, entry in value.items() if key not in TIMES}
    return [timeless(entry) for entry in value] if isinstance(value, list) else value


def flat(value, name=""):
    """Numbers and words by their place."""
    if isinstance(value, dict | list):
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        return {place: leaf for key, entry in pairs for place, leaf in flat(entry, f"{name}.{key}").items()}
    return {name: value}


def check_same(one, other):
    """The same bytes of models and the same numbers."""
    folders = [Path(one), Path(other)]
    names = [sorted(path.relative_to(folder) for path in folder.rglob("*")) for folder in folders]
    assert names[0] == names[1]
    for name in names[0]:
        if name.suffix == ".safetensors":
            assert (folders[0] / name).read_bytes() == (folders[1] / name).read_bytes(), name
    found, wanted = (flat(timeless(json.loads((folder / "fit.json").read_text()))) for folder in folders)
    assert found.keys() == wanted.keys()
    for name, value in found.items():
        if name not in (".model", ".report") and not str(value).startswith(one):
            assert value == wanted[name], name


def check_left(folder):
    """Nothing half-written, and no summary of a run that did not end."""
    folder = Path(folder)
    assert not [p.name for p in folder.rglob("*") if p.name.endswith((".part", ".tmp"))]
    assert not (folder / "fit.json").exists()


def go_on(shell, kind, folder):
    """Continue what was begun; start anew where nothing was."""
    begun = Path(folder).is_dir() and (Path(folder) / "checkpoint").is_dir()
    return shell(*fit(kind, folder, *(["--resume"] if begun else [])))


# In this process


class Moments:
    """Counts what is written to the disk; at one moment something happens in its place."""

    def __init__(self, monkeypatch):
        self.count, self.at, self.event = 0, None, None
        self._sync = os.fsync
        monkeypatch.setattr(os, "fsync", self)

    def __call__(self, file):
        self.count += 1
        if self.count == self.at:
            raise self.event
        self._sync(file)

    def set(self, at, event):
        self.count, self.at, self.event = 0, at, event


@pytest.mark.parametrize("kind", [name if name in SHORT else pytest.param(name, marks=SLOW) for name in COMMANDS])
def test_any_write_may_be_the_last(kind, shell, monkeypatch):
    moments = Moments(monkeypatch)
    shell(*fit(kind, "whole"))
    total = moments.count
    random = np.random.default_rng(5)
    events = {130: KeyboardInterrupt(), 2: OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))}
    for status, event in events.items():
        at = int(random.integers(1, total + 1))
        moments.set(at, event)
        shown = shell(*fit(kind, f"broken-{status}"), status=status).err
        assert ("No space left" in shown) is (status == 2), shown
        if Path(f"broken-{status}").exists():
            check_left(f"broken-{status}")
        moments.set(None, None)
        go_on(shell, kind, f"broken-{status}")
        check_same(f"broken-{status}", "whole")


# Processes of their own

HOLD = (
    "import time; from pathlib import Path; import pyro_hoim.cli.commands.fit as command; "
    "command.files_in = lambda folder: (Path('held').touch(), time.sleep(120)); "
)


def test_a_second_process_is_refused_and_a_killed_one_is_no_obstacle(shell):
    words = fit("machine", "broken")
    process = forkserver.start(f"{HOLD}{AT_ONCE}from pyro_hoim.cli import main; main({words!r})", Path("output"))
    assert forkserver.wait_for(Path("held").exists, process), Path("output").read_text()
    before = {path: path.read_bytes() for path in Path("broken").rglob("*") if path.is_file()}
    told = shell(*words, "--resume", status=2).err.splitlines()
    wanted = (
        f"--out: another process ({process.pid}) is at work in broken; wait for it to end, or choose another folder"
    )
    assert [line for line in told if "error" in line] == [f"pyro-hoim: error: {wanted}"]
    assert "is not empty" in shell(*words, status=2).err
    assert {path: path.read_bytes() for path in Path("broken").rglob("*") if path.is_file()} == before
    os.kill(process.pid, signal.SIGKILL)
    process.join(60)
    assert not Path("broken/fit.json").exists()
    shell(*words, "--resume")
    shell(*fit("machine", "whole"))
    check_same("broken", "whole")


def ended(words, how, delay):
    """Run a command in a process that ends by a signal after some seconds, or by a limit of the size of files."""
    limit = f"import resource as r; r.setrlimit(r.RLIMIT_FSIZE, {(how, how)}); " if delay is None else ""
    process = forkserver.start(f"{AT_ONCE}{limit}from pyro_hoim.cli import main; main({words!r})", Path("output"))
    if delay is not None:
        process.join(delay)
        if process.is_alive():
            os.kill(process.pid, how)
    process.join(120)
    return process.exitcode


@pytest.mark.slow
@pytest.mark.parametrize("kind", COMMANDS)
def test_twenty_random_moments(kind, shell):
    """Five moments each of kill -9, SIGTERM, SIGINT and a disk that is full."""
    start = time.monotonic()
    assert ended(fit(kind, "whole"), signal.SIGKILL, 120) == 0, Path("output").read_text()
    duration = time.monotonic() - start
    largest = max(path.stat().st_size for path in Path("whole").rglob("*") if path.is_file())
    random = np.random.default_rng(7)
    for number, how in enumerate([signal.SIGKILL, signal.SIGTERM, signal.SIGINT, "full"] * 5):
        folder = f"broken-{number}"
        if how == "full":
            status = ended(fit(kind, folder), int(random.integers(largest)), None)
            assert status == 2, Path("output").read_text()
        else:
            status = ended(fit(kind, folder), how, float(random.uniform(0, duration)))
            allowed = {signal.SIGKILL: (-9,), signal.SIGTERM: (143, -15), signal.SIGINT: (130, -2)}[how]
            assert status in (0, *allowed), Path("output").read_text()
        text = Path("output").read_text()
        assert "Traceback" not in text, text
        if status == 0 or (Path(folder) / "fit.json").exists():
            check_same(folder, "whole")
            continue
        if how != signal.SIGKILL and Path(folder).exists():
            check_left(folder)
        go_on(shell, kind, folder)
        check_same(folder, "whole")
