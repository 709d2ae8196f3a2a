"""Equal runs leave equal model files: what tells of one run, such as its times, stands in ``fit.json`` alone."""

import json
from pathlib import Path

import numpy as np
import pytest

from pyro_hoim import Observations, fit, learn, load

from support.verbs import verb_first

SHORT = ("--num-chains", "2", "--num-draws", "20", "--burn-in", "10")
RUNS = {
    "order": ("labels.csv", "--order", "2"),
    "penalty": ("labels.csv", "--order", "2", "--penalty", "l1:1"),
    "several": ("labels.csv", "--order", "1", "--order", "2", "--split", "0.6,0.4,0"),
    "posterior": ("labels.csv", "--order", "1", "--posterior", *SHORT),
    "select": ("labels.csv", "learn"),
    "structures": ("labels.csv", "structures", *SHORT),
    "network": ("labels.csv", "--model", "dependency-network", "--jobs", "1"),
    "machine": ("labels.csv", "--model", "rbm", "--hidden", "1", "--iterations", "20"),
    "roots": ("counts.csv", "--model", "grm", "--order", "2", "--jobs", "1"),
}


@pytest.fixture(autouse=True)
def tables():
    rng = np.random.default_rng(0)
    a = rng.integers(0, 2, 200)
    b, c = np.where(rng.random(200) < 0.8, a, 1 - a), rng.integers(0, 2, 200)
    for name, columns in (("labels.csv", (a, b, c)), ("counts.csv", (a + c, b + c, c))):
        lines = [",".join(map(str, row)) for row in zip(*columns, strict=True)]
        Path(name).write_text("\n".join(["a,b,c", *lines]) + "\n")


def files(folder):
    paths = [*Path(folder).glob("*.safetensors"), *Path(folder).glob("*.nc")]
    return {path.name: path.read_bytes() for path in paths}


@pytest.mark.filterwarnings("ignore::pyro_hoim.errors.ConvergenceWarning")
@pytest.mark.parametrize("name", RUNS)
def test_equal_runs_leave_equal_files(shell, name):
    first, second = (shell.json(*verb_first(*RUNS[name], "--seed", "3", "--out", out)) for out in ("one", "two"))
    assert files("one") and files("one") == files("two")
    assert first["seconds"] != second["seconds"]  # control: the runs took other times
    load("one")
    assert ("posterior.nc" in files("one")) == (name == "posterior")


def test_equal_learning_in_python_leaves_equal_files():
    rows = Observations.from_csv("labels.csv")
    for name in ("one", "two"):
        learned = learn(rows, rows)
        learned.save(f"{name}-learned")
        fit("a*b + c", rows).save(f"{name}-fitted")
    assert min(entry.seconds for entry in learned.selection.rounds) > 0  # which the file does not tell
    assert "seconds" not in json.dumps(load("one-learned").info)
    for kind in ("learned", "fitted"):
        assert Path(f"one-{kind}").read_bytes() == Path(f"two-{kind}").read_bytes()
    fit("a*b", Observations(rows.domain, rows.codes[1:], rows.counts[1:])).save("other")
    assert Path("other").read_bytes() != Path("one-fitted").read_bytes()  # control
