"""A run that is killed leaves a checkpoint from which ``--resume`` ends as undisturbed; without one it is refused."""

import json
import signal
from pathlib import Path

import numpy as np
import pytest
from command_line import kill
from safetensors.numpy import load_file

from pyro_hoim.cli import run

from support.verbs import verb_first

OPTIONS = ["czech_autoworkers", "--order", "1", "--posterior", "--num-chains", "2", "--num-draws", "20"]
OPTIONS += ["--burn-in", "15", "--seed", "5", "--out"]


def theta_of(folder):
    """Posterior draws in a finished folder."""
    import xarray

    with xarray.open_dataset(folder / "posterior.nc", group="posterior") as group:
        return np.asarray(group["theta"].values)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Folder of a run that nobody disturbed."""
    folder = tmp_path_factory.mktemp("undisturbed") / "whole"
    assert run(["fit", "--jobs", "1", *OPTIONS, str(folder)]) == 0
    return folder


@pytest.mark.parametrize("how", [pytest.param(signal.SIGKILL, marks=pytest.mark.slow), signal.SIGINT])
def test_killed_run_is_resumed(how, whole, shell):
    jobs = ["--jobs", "2" if how == signal.SIGKILL else "1"]  # one run with its chains in processes, and one without
    first = Path("broken/checkpoint/order-1-chain-0.safetensors")
    kill(["fit", *jobs, *OPTIONS, "broken"], first, how)
    assert not Path("broken/fit.json").exists()
    kept = load_file(str(first))["theta"]
    stamp = first.stat().st_mtime_ns

    shell.refused("fit", *OPTIONS, "broken", says=["--resume"])
    other = shell("fit", *OPTIONS[:-2], "6", "--out", "broken", "--resume", status=2).err
    assert "was started with --seed 5, and received --seed 6" in other
    assert first.stat().st_mtime_ns == stamp

    shell("fit", "--jobs", "1", *OPTIONS, "broken", "--resume")
    assert np.array_equal(theta_of(Path("broken")), theta_of(whole))
    assert np.array_equal(theta_of(Path("broken"))[0], kept)
    broken, undisturbed = (json.loads((folder / "fit.json").read_text()) for folder in (Path("broken"), whole))
    assert broken["posterior"] == {**undisturbed["posterior"], "file": broken["posterior"]["file"]}
    assert not Path("broken/checkpoint").exists()
    shell.refused("fit", *OPTIONS, "broken", "--resume", says=["complete"])


def test_damaged_checkpoint_is_named(shell):
    folder = Path("broken/checkpoint")
    folder.mkdir(parents=True)
    (folder / "order-1-chain-0.safetensors").write_bytes(b"not a checkpoint")
    damaged = shell("fit", *OPTIONS, "broken", "--resume", status=2).err
    assert "drawing 1 posterior, 2 chains of 20 draws each" in damaged
    assert "order-1-chain-0.safetensors is not a readable safetensors file" in damaged


# Nothing to resume

TABLE = "a,b\n" + "x,0\ny,1\nx,1\ny,0\n" * 6
COUNTS = "a,b\n" + "0,1\n3,2\n1,0\n2,2\n" * 6
KINDS = {
    "log-linear": (TABLE, ["--order", "1"]),
    "posterior": (TABLE, ["--order", "1", "--posterior"]),
    "select": (TABLE, ["learn"]),
    "dependency-network": (TABLE, ["--model", "dependency-network"]),
    "grm": (COUNTS, ["--model", "grm"]),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_that_is_new_empty_or_of_something_else(kind, shell):
    content, options = KINDS[kind]
    Path("rows.csv").write_text(content)
    for state in ("does not exist", "is empty"):
        line = shell.refused(*verb_first("rows.csv", *options, "--resume", "--out", "new"))
        assert f"--resume: new {state}, so there is nothing to resume; leave out --resume" in line
        assert Path("new").exists() is (state == "is empty")
        Path("new").mkdir(exist_ok=True)
    (Path("new") / "precious.txt").write_text("mine")
    assert "--resume: new holds no checkpoint" in shell.refused(
        *verb_first("rows.csv", *options, "--resume", "--out", "new")
    )
    assert [path.name for path in Path("new").iterdir()] == ["precious.txt"]


def test_a_run_stopped_before_its_first_checkpoint_starts_anew_and_says_so(shell):
    Path("rows.csv").write_text(TABLE)
    Path("new/checkpoint").mkdir(parents=True)
    (Path("new/checkpoint") / "run.json").write_text(json.dumps({"options": {}, "rows": "", "seconds": 1.0}))
    told = shell("fit", "rows.csv", "--order", "1", "--resume", "--out", "new").err
    assert "was stopped before its first checkpoint; it starts anew" in told
    assert Path("new/fit.json").exists()
