"""A run that is killed leaves a checkpoint, and ``--resume`` ends with what an undisturbed run gives."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import forkserver
import numpy as np
import pytest
from safetensors.numpy import load_file

from pyro_hoim.cli import run

OPTIONS = ["czech_autoworkers", "--order", "1", "--posterior", "--chains", "3", "--draws", "30", "--burn-in", "20"]
OPTIONS += ["--seed", "5", "--out"]


def theta_of(folder: Path) -> np.ndarray:
    """Posterior draws in a finished folder."""
    import xarray

    with xarray.open_dataset(folder / "posterior.nc", group="posterior") as group:
        return np.asarray(group["theta"].values)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a run that nobody disturbed."""
    folder = tmp_path_factory.mktemp("undisturbed") / "whole"
    assert run(["fit", "--jobs", "1", *OPTIONS, str(folder)]) == 0
    return folder


@pytest.mark.parametrize("how", [pytest.param(signal.SIGKILL, marks=pytest.mark.slow), signal.SIGINT])
def test_killed_run_is_resumed(
    how: signal.Signals,
    whole: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    jobs = ["--jobs", "2" if how == signal.SIGKILL else "1"]  # one run with its chains in processes, and one without
    program = f"from pyro_hoim.cli import main; main({['fit', *jobs, *OPTIONS, 'broken']!r})"
    process = forkserver.start(program, tmp_path / "output")
    first = Path("broken/checkpoint/order-1-chain-0.safetensors")
    deadline = time.monotonic() + 120
    while not first.exists() and process.is_alive() and time.monotonic() < deadline:
        time.sleep(0.005)
    os.kill(process.pid, how)
    process.join(60)
    assert process.exitcode == (130 if how == signal.SIGINT else -9)
    assert not Path("broken/fit.json").exists()
    kept = load_file(str(first))["theta"]
    stamp = first.stat().st_mtime_ns

    assert run(["fit", *OPTIONS, "broken"]) == 2
    assert "--resume" in capfd.readouterr().err
    assert run(["fit", *OPTIONS[:-2], "6", "--out", "broken", "--resume"]) == 2
    assert "was started with --seed 5, and received --seed 6" in capfd.readouterr().err
    assert first.stat().st_mtime_ns == stamp

    assert run(["fit", "--jobs", "1", *OPTIONS, "broken", "--resume"]) == 0
    capfd.readouterr()
    assert np.array_equal(theta_of(Path("broken")), theta_of(whole))
    assert np.array_equal(theta_of(Path("broken"))[0], kept)
    broken, undisturbed = (json.loads((folder / "fit.json").read_text()) for folder in (Path("broken"), whole))
    assert broken["posterior"] == {**undisturbed["posterior"], "file": broken["posterior"]["file"]}
    assert not Path("broken/checkpoint").exists()
    assert run(["fit", *OPTIONS, "broken", "--resume"]) == 2
    assert "complete" in capfd.readouterr().err


def test_damaged_checkpoint_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = Path("broken/checkpoint")
    folder.mkdir(parents=True)
    (folder / "order-1-chain-0.safetensors").write_bytes(b"not a checkpoint")
    assert run(["fit", *OPTIONS, "broken", "--resume"]) == 2
    assert "order-1-chain-0.safetensors cannot be read" in capfd.readouterr().err
    Path("other").mkdir()
    (Path("other") / "file").write_text("mine")
    assert run(["fit", *OPTIONS, "other", "--resume"]) == 2
    assert "holds no checkpoint" in capfd.readouterr().err
