"""A search in a process of its own is killed or interrupted from outside, and continued."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from search_models import DOMAIN, same

from pyro_hoim.data import Observations
from pyro_hoim.log_linear import ExactTrainer, SelectionOptions, Stopping, select
from pyro_hoim.runs import RunOptions
from pyro_hoim.structure import InteractionHypergraph

OPTIONS = SelectionOptions(score="J", per_round=1, patience=99)


class Slow(ExactTrainer):
    """Takes its time, so that a signal comes in the middle of a round."""

    seconds = 0.0

    def train(self):
        time.sleep(self.seconds)
        return super().train()


def parts():
    generator = torch.Generator().manual_seed(4)
    shape = DOMAIN.cardinalities
    return [Observations.from_table(DOMAIN, torch.randint(5, 40, shape, generator=generator)) for _ in "ab"]


def search(seconds, **options):
    train, validation = parts()
    trainer = Slow(train, InteractionHypergraph.from_order(train.domain, 1), stopping=Stopping(max_iterations=9))
    trainer.seconds = seconds
    return select(train, validation, trainer, OPTIONS, run=RunOptions(**options))


@pytest.mark.slow  # a search of the command is killed in every run of the tests
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_signal_costs_the_round_that_was_under_way(tmp_path, number):
    path = tmp_path / "run"
    code = (
        "import importlib.util, signal, sys\n"
        f"sys.path.append({str(Path(__file__).parent)!r})\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        f"spec = importlib.util.spec_from_file_location('child', {str(Path(__file__))!r})\n"
        "child = importlib.util.module_from_spec(spec)\n"
        "spec.loader.exec_module(child)\n"
        f"child.search(0.3, checkpoint={str(path)!r})\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not path.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.7)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode != 0
    assert ("KeyboardInterrupt" in errors) == (number == signal.SIGINT)
    whole, found = search(0.0), search(0.0, checkpoint=path, resume=True)
    assert len(whole.rounds) == 12
    same(found, whole)
    assert found.rounds[1].seconds > 0.3  # finished rounds are those of the first process
    assert found.rounds[-1].seconds < 0.3
