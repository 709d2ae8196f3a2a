"""Chains in processes: the same draws, checkpoints of those that are done, and no process that outlives its parent."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
import torch

from pyro_hoim import Domain, InteractionHypergraph, Observations, to_arviz
from pyro_hoim.runs import RunOptions
from pyro_hoim.study import PosteriorSettings, analysis, run_posterior
from pyro_hoim.testing import raises

DOMAIN = Domain.from_cardinalities([2, 2, 2])
HYPERGRAPH = InteractionHypergraph.from_order(DOMAIN, 2)
ROWS = Observations(DOMAIN, torch.randint(0, 2, (80, 3), generator=torch.Generator().manual_seed(0)))
SETTINGS = PosteriorSettings(num_chains=3, num_draws=12, burn_in=8)

PROGRAM = """
import sys, torch
sys.path.insert(0, {tests!r})
from test_posterior_chains import HYPERGRAPH, ROWS
from pyro_hoim.interop.arviz import to_arviz
from pyro_hoim.runs import RunOptions
from pyro_hoim.study import PosteriorSettings, analysis, run_posterior
settings = PosteriorSettings(num_chains=3, num_draws=600, burn_in=100, jobs=2)
run_posterior(HYPERGRAPH, ROWS, settings, seed=1, run=RunOptions({folder!r}))
"""


def drawn(jobs, folder=None, *, resume=False):
    """A short run."""
    return run_posterior(HYPERGRAPH, ROWS, replace(SETTINGS, jobs=jobs), seed=1, run=RunOptions(folder, resume))


@pytest.mark.filterwarnings("ignore::pyro_hoim.errors.ConvergenceWarning")
def test_processes_change_no_draw_and_leave_the_same_checkpoints(tmp_path, monkeypatch, capfd):
    here, apart = drawn(1, tmp_path / "one"), drawn(2, tmp_path / "two")
    assert (here.theta == apart.theta).all() and here.num_divergences == apart.num_divergences
    assert capfd.readouterr().err == ""
    names = [sorted(path.name for path in (tmp_path / folder).iterdir()) for folder in ("one", "two")]
    assert names[0] == names[1] == [f"model-chain-{number}.safetensors" for number in range(3)]
    stamps = {path: path.stat().st_mtime_ns for path in (tmp_path / "two").iterdir()}
    (tmp_path / "two" / "model-chain-1.safetensors").unlink()
    asked = list[Any]()
    monkeypatch.setattr(joblib, "Parallel", lambda **options: asked.append(options))
    again = drawn(2, tmp_path / "two", resume=True)  # the one chain that is missing needs no process
    assert (again.theta == here.theta).all() and not asked
    kept = {path for path, stamp in stamps.items() if path.stat().st_mtime_ns == stamp}
    assert {path.name for path in kept} == {"model-chain-0.safetensors", "model-chain-2.safetensors"}


@pytest.mark.filterwarnings("ignore::pyro_hoim.errors.ConvergenceWarning")
def test_short_chains_stay_in_one_process(monkeypatch):
    def refuse(**options):
        raise AssertionError(options)

    monkeypatch.setattr(joblib, "Parallel", refuse)
    monkeypatch.setattr(joblib, "cpu_count", lambda: 2)
    drawn(None)
    monkeypatch.setattr("pyro_hoim.study.posterior._LEAST_TRANSITIONS", 60)
    with pytest.raises(AssertionError, match="'n_jobs': 2"):
        drawn(None)
    monkeypatch.setattr(joblib, "cpu_count", lambda: 1)
    drawn(None)


@pytest.mark.parametrize("jobs", [0, -1, True, "2"])
def test_wrong_numbers_of_jobs_are_named(jobs):
    with raises("out-of-range", "jobs"):
        PosteriorSettings(jobs=jobs)


def children_of(process):
    """Processes whose parent this is."""
    found = set[int]()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue  # it has ended
        if int(fields[1]) == process and fields[0] != "Z":
            found.add(int(stat.parent.name))
    return found


@pytest.mark.slow  # a run of the command is killed in every test run
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs the processes of Linux")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_no_process_outlives_its_parent(how, tmp_path):
    program = PROGRAM.format(tests=str(Path(__file__).parent), folder=str(tmp_path / "checkpoint"))
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    first = tmp_path / "checkpoint"
    deadline = time.monotonic() + 120
    while not list(first.glob("*.safetensors")) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    children = children_of(process.pid)
    assert len(children) >= 2
    os.kill(process.pid, how)
    _, told = process.communicate(timeout=60)
    assert process.returncode == -how and (how == signal.SIGKILL or b"KeyboardInterrupt" in told)
    deadline = time.monotonic() + 20
    while any(Path(f"/proc/{child}").exists() for child in children) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not [child for child in children if Path(f"/proc/{child}").exists()]
    assert not list(first.glob("*.part")) or how == signal.SIGKILL


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="HDF5 says there itself, in many lines, what is full")
def test_a_posterior_without_room_is_refused_before_it_is_written(tmp_path):
    resource = pytest.importorskip("resource")
    data = to_arviz({"theta": np.zeros((2, 40000))})
    (place := tmp_path / "draft").touch()
    former = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2**19, former[1]))
        with pytest.raises(OSError, match="too large"):
            analysis._reserve(place, data)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, former)
    assert not place.stat().st_size
    analysis._reserve(place, data)
    assert place.stat().st_size > 2**19
