"""Messages of the library reach a person in the words of the command line."""

from pathlib import Path

import click
import pytest

from pyro_hoim.cli import cli
from pyro_hoim.cli.wording import error_message, warning_message
from pyro_hoim.errors import ConvergenceWarning, IntractableError, UnknownNameError, out_of_range, refused

ENCODED = refused("t.csv", "not utf-8 (byte 0xff)", "give its encoding, such as encoding='x'", code="wrong-encoding")
TAKEN = refused("checkpoint", "run exists", "pass resume=True to continue", code="existing-file")
BUDGET = IntractableError("9e9 cells, the budget is 100", hint="raise VariableElimination(max_cells=...)")
NO_LAWS = refused("trainer", "has no marginal laws", "use the trainer 'sampled' or the score 'J'", code="over-budget")


@pytest.mark.parametrize(
    ("command", "error", "shown"),
    [
        ("fit", out_of_range("max_order", "at least 1", 0), "--order: expected at least 1, received 0"),
        ("learn", out_of_range("per_round", "1 or\n more", 0), "--per-round: expected 1 or more, received 0"),
        (
            "fit",
            UnknownNameError("unknown column 'q'", argument="columns of t.csv"),
            "--columns of t.csv: unknown column 'q'",
        ),
        ("sample", out_of_range("number", "at least 1", 0), "-n: expected at least 1, received 0"),
        ("learn", NO_LAWS, "--trainer: has no marginal laws; use --trainer sampled"),
        (
            "fit",
            ENCODED,
            (
                "t.csv: not utf-8 (byte 0xff); give its encoding, such as --encoding cp1251 or cp850, "
                "or save the file as UTF-8"
            ),
        ),
        ("fit", TAKEN, "checkpoint: run exists; pass --resume to continue that run, or choose another name"),
        ("log-z", BUDGET, "9e9 cells, the budget is 100; use --method ais"),
        ("fit", BUDGET, "9e9 cells, the budget is 100; use fewer --columns or a lower --order"),
        ("interactions", BUDGET, "9e9 cells, the budget is 100; leave it out with --no-information"),
        ("log-z", BUDGET.replace(hint="--given fixes columns"), "9e9 cells, the budget is 100; --given fixes columns"),
        # what names no option of the command stays as it is
        ("tables", out_of_range("max_order", "at least 1", 0), "max_order: expected at least 1, received 0"),
        ("fit", refused("order.csv", "no such file"), "order.csv: no such file"),
        ("fit", refused("seed.csv line 3", "expected 2 cells"), "seed.csv line 3: expected 2 cells"),
    ],
)
def test_arguments_and_hints_become_options(command, error, shown):
    found = cli.get_command(click.Context(cli), command)
    assert error_message(error, found) == shown


def test_every_command_on_models_says_what_to_do_where_a_computation_is_too_large():
    others = "sample", "score", "predict", "log-z", "interactions", "margins", "compare"
    for name in ("fit", "learn", "structures", *others):
        command = cli.get_command(click.Context(cli), name)
        told = error_message(BUDGET, command).removeprefix("9e9 cells, the budget is 100; ")
        options = {word for p in command.get_params(click.Context(command)) for word in (*p.opts, *p.secondary_opts)}
        named = {word.strip(",") for word in told.split() if word.startswith("--")}
        assert named <= options and (named or name == "margins")
        assert not {"VariableElimination", "max_cells"} & set(told.replace("(", " ").split())


def test_the_error_is_the_last_line_after_warnings(shell):
    names = [f"x{i}" for i in range(40)]
    rows = ["0," + ",".join(str((i >> j % 5) & 1) for j in range(39)) for i in range(32)]
    Path("wide.csv").write_text("\n".join([",".join(names), *rows]) + "\n", encoding="utf-8")
    lines = shell("fit", "wide.csv", "--order", "2", "--posterior", "--out", "o", status=2).err.splitlines()
    assert any("warning: constant column" in line for line in lines[:-1])
    assert [line.startswith("pyro-hoim: error: ") for line in lines] == [False] * (len(lines) - 1) + [True]
    assert "--columns" in lines[-1] and not Path("o").exists()


def test_a_file_may_have_the_name_of_an_option():
    found = cli.get_command(click.Context(cli), "sample")
    error = refused("out", "no model")
    assert error_message(error, found) == "--out: no model"
    assert error_message(error, found, ["out", "-n", "2"]) == "out: no model"


def test_warnings_of_estimates_name_the_options():
    for method in ("AnnealedImportance", "RootAnnealed"):
        warning = ConvergenceWarning("the estimate is unreliable", argument=method, hint="use block moves")
        shown = "--method ais: the estimate is unreliable; use more --temperatures or --chains"
        assert warning_message(warning) == shown
    assert warning_message(ConvergenceWarning("not\nsettled", hint="wait")) == "not settled; wait"
