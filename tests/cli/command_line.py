"""Runs commands as a person does, and reads what they print and write."""

import json
import os
import signal
from pathlib import Path

import forkserver
import pytest
import torch

from pyro_hoim.cli import run
from pyro_hoim.log_linear import LogLinearEnergy, ModelFile, load_model, save_model


def messages(err):
    """Lines of standard error without those that tell of progress, which depend on the speed of the machine."""
    return [line for line in err.splitlines() if not line.startswith("[")]


class CommandLine:
    """The commands of one test; every call forgets what was printed before it."""

    def __init__(self, capture):
        self._capture = capture

    def __call__(self, *words, status=0):
        """Standard output and error of a command that ends with the status."""
        self._capture.readouterr()
        found = run(list(words))
        shown = self._capture.readouterr()
        assert found == status, shown.err
        return shown

    def json(self, *words):
        """The one JSON object that a command prints with ``--json``."""
        out = self(*words, "--json").out
        assert out.count("\n") == 1
        return json.loads(out, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))

    def refused(self, *words, says=(), progress=False):
        """The one line of an error, after lines of progress only where said; nothing is on standard output or disk."""
        before = sorted(Path().rglob("*"))
        shown = self(*words, status=2)
        lines = messages(shown.err) if progress else shown.err.splitlines()
        assert shown.out == "" and len(lines) == 1, shown.err
        assert lines[0].startswith("pyro-hoim: error: "), shown.err
        assert all(word in lines[0] for word in says), shown.err
        assert sorted(Path().rglob("*")) == before
        return lines[0].removeprefix("pyro-hoim: error: ")


def kill(words, first, how, prelude=""):
    """Run a command in a process of its own and end it by a signal once its first checkpoint is there."""
    process = forkserver.start(f"{prelude}from pyro_hoim.cli import main; main({words!r})", Path("output"))
    forkserver.wait_for(first.exists, process, 240)
    os.kill(process.pid, how)
    process.join(60)
    assert process.exitcode == (130 if how == signal.SIGINT else -9)


def save_random(path, hypergraph, scale):
    """A model file with random parameters."""
    generator = torch.Generator().manual_seed(1)
    theta = scale * torch.randn(hypergraph.num_parameters, generator=generator, dtype=torch.float64)
    save_model(path, ModelFile(hypergraph, theta))


def stored(path):
    """Energy of a model file."""
    file = load_model(path)
    return LogLinearEnergy.from_theta(file.hypergraph, file.theta, file.coding)
