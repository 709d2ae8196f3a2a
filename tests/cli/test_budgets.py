"""Commands that ask for too much are refused in one line before any work: number, budget and option."""

import itertools
import math
import random
import resource
import signal
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from command_line import save_random

from pyro_hoim import Domain, InteractionHypergraph
from pyro_hoim.log_linear import ModelFile, parametrization, save_model
from pyro_hoim.structure import hypergraph as cells
from pyro_hoim.study.command import fit as fit_command, learn


@pytest.fixture(autouse=True)
def net():
    """A command that hangs ends the test, and memory that it has taken shows; neither is a measurement of speed."""
    signal.alarm(120)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    signal.alarm(0)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300 * 1024


def table(num_columns, num_rows=40):
    """A file of two levels a column, and its name."""
    draw = random.Random(1)
    lines = [
        [f"v{i}" for i in range(num_columns)],
        *([draw.choice("ab") for _ in range(num_columns)] for _ in range(num_rows)),
    ]
    Path("t.csv").write_text("\n".join(map(",".join, lines)) + "\n", encoding="utf-8")
    return "t.csv"


def model(name="m.safetensors", num=4):
    """A model of pairs of two-level columns, and its file."""
    save_random(name, InteractionHypergraph.from_order(Domain.from_cardinalities([2] * num), 2), 0.3)
    return name


@pytest.mark.parametrize(
    ("num_columns", "options", "says"),
    [
        (60, ("--order", "60"), ("--order: there are about 1.15e+18 sets of up to 60 of 60", "4,194,304", "use learn")),
        (300, ("--order", "3"), ("--order: there are 4,500,250 sets of up to 3 of 300", "--columns", "--edges")),
        (60, ("--edges", "*".join(f"v{i}" for i in range(60))), ("about 1.15e+18 sets", "1,048,576", "in --edges")),
        (60, ("--edges", ":".join(f"v{i}" for i in range(60))), ("--edges: the closure", "about 1.15e+18 sets")),
        (
            60,
            ("--order", "4"),
            (
                "--order: exact inference is out of reach",
                f"{sum(math.comb(60, k) * 2**k for k in range(1, 5)):,} entries",
                "2,097,152",
                "use learn",
            ),
        ),
        (
            6,
            ("--posterior", "--num-draws", "10000000"),
            ("--num-draws: 40,000,000", "cells", "134,217,728", "fewer --num-draws"),
        ),
        (6, ("--posterior", "--burn-in", "1000000000000"), ("--burn-in: expected", "10000000")),
        (6, ("--posterior", "--jobs", "1000000000"), ("--jobs: expected", "256")),
        (6, ("--model", "rbm", "--hidden", "1000000000"), ("--hidden: they have 6,000,000,000 edges", "4,194,304")),
        (6, ("--model", "rbm", "--steps", "1000000000000"), ("--steps: expected", "10000000")),
    ],
)
def test_fits_are_refused_before_any_work(num_columns, options, says, shell, monkeypatch):
    monkeypatch.setattr(learn, "MAX_SAMPLED_ENTRIES", 2**21)
    shell.refused("fit", table(num_columns), *options, "--out", "out", says=says, progress=True)


def test_a_column_of_too_many_levels_is_refused_by_name(shell, monkeypatch):
    monkeypatch.setattr(cells, "MAX_LEVELS", 19)
    Path("t.csv").write_text("a,b\n" + "\n".join(f"l{i % 20},{i % 2}" for i in range(80)) + "\n", encoding="utf-8")
    says = ("variable 'a': it has 20 levels, more than the budget of 19", "--columns", "--bins")
    for order in ("1", "2"):
        shell.refused("fit", "t.csv", "--allow", "a", "--order", order, says=says, progress=True)
    monkeypatch.setattr(cells, "MAX_LEVELS", 20)
    shell("fit", "t.csv", "--allow", "a", "--order", "1", "--out", "out")


def test_below_the_budget_of_sampled_gradients_sizes_are_said_before_the_work(shell, monkeypatch):
    monkeypatch.setattr(learn, "MAX_SAMPLED_ENTRIES", 9_860_480)

    monkeypatch.setattr(learn, "fit_collection", Mock(side_effect=KeyboardInterrupt))
    err = shell("fit", table(60), "--order", "2", "--out", "out", status=130).err
    assert "fitting 40 rows by sampled gradients: 1,770 interactions, 1,830 parameters" in err


def test_all_sets_are_counted_and_not_made(shell, monkeypatch):
    made = []
    monkeypatch.setattr(InteractionHypergraph, "_set", lambda *args: made.append(args))
    shell.refused("fit", table(60), "--order", "7", says=("--order",), progress=True)
    monkeypatch.setattr(fit_command, "MAX_SETS", 2**60)
    monkeypatch.setattr(learn, "MAX_SAMPLED_ENTRIES", 0)
    shell.refused(
        "fit",
        table(60),
        "--order",
        "5",
        says=(f"{sum(math.comb(60, k) * 2**k for k in range(1, 6)):,} entries",),
        progress=True,
    )
    assert not made


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("sample", "-n", "2000000000"), ("-n: 2,000,000,000", "8,000,000,000 cells", "134,217,728", "smaller -n")),
        (("sample", "-n", "2000000000", "--method", "gibbs"), ("-n: 2,000,000,000", "134,217,728")),
        (("sample", "-n", "2000000000", "--complete", "t.csv"), ("--complete: 80,000,000,000", "134,217,728")),
        (("sample", "-n", "20000000", "--complete", "t.csv"), ("--complete: 800,000,000", "134,217,728", "smaller -n")),
        (("sample", "-n", "3", "--method", "gibbs", "--burn-in", "10000000000"), ("--burn-in", "10000000")),
        (
            ("log-z", "--method", "ais", "--num-chains", "100000000"),
            ("--num-chains: 100,000,000", "400,000,000 cells", "fewer"),
        ),
        (("log-z", "--method", "ais", "--num-temperatures", "100000000000"), ("--num-temperatures", "10000000")),
        (("interactions", "--num-samples", "10000000000"), ("--num-samples", "10000000")),
        (("margins", "x0", "--num-draws", "10000000000"), ("--num-draws", "10000000")),
    ],
)
def test_draws_and_chains_are_refused_before_they_are_made(words, says, shell):
    name, *options = words
    Path("t.csv").write_text("x0,x1,x2,x3\n" + "0,1,0,\n" * 40, encoding="utf-8")
    shell.refused(name, model(), *options, says=says)


def test_just_below_the_budget_rows_are_drawn(shell, monkeypatch):
    monkeypatch.setattr("pyro_hoim.budgets.MAX_CELLS", 400)
    assert shell("sample", model(), "-n", "100").out.count("\n") == 101
    shell.refused(
        "sample", model(), "-n", "101", says=("-n: 101 rows of 4 cells are 404 cells, more than the budget of 400",)
    )
    shell("log-z", model(), "--method", "ais", "--num-chains", "100", "--num-temperatures", "4")
    shell.refused(
        "log-z", model(), "--method", "ais", "--num-chains", "101", says=("--num-chains: 101 chains of 4 cells",)
    )


def test_a_small_file_of_a_large_table_is_refused_by_every_command(shell, monkeypatch):
    domain = Domain.from_cardinalities([2] * 34)
    graph = InteractionHypergraph(domain, [domain.names], hierarchical=False)
    with monkeypatch.context() as patched:
        patched.setattr(cells, "MAX_ENTRIES", 2**40)
        save_model("m.safetensors", ModelFile(graph, torch.ones(1, dtype=torch.float64)))
        parametrization.cache_clear()
    rows = [",".join(domain.names), ",".join("01"[i % 2] for i in range(34))]
    Path("t.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    says = ("m.safetensors", "17,179,869,184 entries", "134,217,728")
    commands = (("log-z",), ("sample", "-n", "3"), ("interactions",), ("margins", "x0"))
    for name, *options in itertools.chain(commands, [("predict", "t.csv", "--target", "x0"), ("score", "t.csv")]):
        shell.refused(name, "m.safetensors", *options, says=says)
