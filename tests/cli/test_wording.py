"""Messages of the library reach a person in the words of the command line."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from pyro_hoim.cli import cli, run
from pyro_hoim.cli.wording import error_message, warning_message
from pyro_hoim.errors import ConvergenceWarning, HoimError, IntractableError, UnknownNameError, out_of_range, refused

GOOD = "a,b,c\n" + "".join(f"{i % 2},{i % 3},{i % 5 % 2}\n" for i in range(60))

DELIMITED = refused("t.csv", "expected cells separated by ','", "pass delimiter=';'", code="wrong-delimiter")
TAKEN = refused("checkpoint", "run exists", "pass resume=True to continue", code="existing-file")
BUDGET = IntractableError("9e9 cells, the budget is 100", hint="raise VariableElimination(max_cells=...)")
NO_LAWS = refused("trainer", "has no marginal laws", "use the trainer 'sampled' or the score 'J'", code="over-budget")


@pytest.mark.parametrize(
    ("command", "error", "shown"),
    [
        ("fit", out_of_range("max_order", "at least 1", 0), "--order: expected at least 1, received 0"),
        ("fit", out_of_range("per_round", "1 or\n more", 0), "--per-round: expected 1 or more, received 0"),
        (
            "fit",
            UnknownNameError("unknown column 'q'", argument="columns of t.csv"),
            "--columns of t.csv: unknown column 'q'",
        ),
        ("sample", out_of_range("number", "at least 1", 0), "-n: expected at least 1, received 0"),
        ("fit", NO_LAWS, "--trainer: has no marginal laws; use --trainer sampled"),
        ("fit", DELIMITED, "t.csv: expected cells separated by ','; convert the file to commas"),
        ("fit", TAKEN, "checkpoint: run exists; pass --resume to continue that run, or choose another name"),
        ("log-z", BUDGET, "9e9 cells, the budget is 100"),
        ("log-z", BUDGET.replace(hint="--given fixes columns"), "9e9 cells, the budget is 100; --given fixes columns"),
        # what names no option of the command stays as it is
        ("tables", out_of_range("max_order", "at least 1", 0), "max_order: expected at least 1, received 0"),
        ("fit", refused("order.csv", "no such file"), "order.csv: no such file"),
        ("fit", refused("seed.csv line 3", "expected 2 cells"), "seed.csv line 3: expected 2 cells"),
    ],
)
def test_arguments_and_hints_become_options(command: str, error: HoimError, shown: str) -> None:
    found = cli.get_command(click.Context(cli), command)  # type: ignore[attr-defined]
    assert error_message(error, found) == shown


def test_a_file_may_have_the_name_of_an_option() -> None:
    found = cli.get_command(click.Context(cli), "sample")  # type: ignore[attr-defined]
    error = refused("out", "no model")
    assert error_message(error, found) == "--out: no model"
    assert error_message(error, found, ["out", "-n", "2"]) == "out: no model"


def test_warnings_of_estimates_name_the_options() -> None:
    for method in ("AnnealedImportance", "RootAnnealed"):
        warning = ConvergenceWarning("the estimate is unreliable", argument=method, hint="use block moves")
        shown = "--method ais: the estimate is unreliable; use more --temperatures or --chains"
        assert warning_message(warning) == shown
    assert warning_message(ConvergenceWarning("not\nsettled", hint="wait")) == "not settled; wait"


CASES: list[tuple[list[str], str]] = [
    (["--seed", "x"], "--seed: expected a whole number from 0 to 2147483647, received 'x'"),
    (["--seed", "1.5"], "--seed: expected a whole number from 0 to 2147483647, received 1.5"),
    (["--seed", "-1"], "--seed: expected a whole number from 0 to 2147483647, received -1"),
    (["--order", "many"], "--order: expected a whole number, received 'many'"),
    (["--select", "--order", "9"], "--order: with --select expected 2 to 3 (the number of variables)"),
    (["--select", "--per-round", "0"], "--per-round: expected a whole number of at least 1, received 0"),
    (["--select", "--heredity", "nan"], "--heredity: expected a number above 0, up to 1, received 'nan'"),
    (["--select", "--heredity", "0"], "--heredity: expected a number above 0, up to 1, received 0"),
    (["--trainer", "gibbs"], "--trainer: 'gibbs' is not one of 'auto', 'exact', 'sampled', 'pseudo-likelihood'"),
    (["--columns", "0"], "--columns: expected a number from 1 to 3 for t.csv, received 0"),
    (["--columns", "a,a"], "--columns: names must be unique, but 'a' is repeated"),
    (["--posterior", "--chains", "0"], "--chains: expected a whole number from 1 to 64, received 0"),
]


@pytest.mark.parametrize(("options", "shown"), CASES, ids=[" ".join(c[0]) for c in CASES])
def test_one_line_names_the_option(
    options: list[str], shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_text(GOOD, encoding="utf-8")
    assert run(["fit", "t.csv", *options]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith(f"pyro-hoim: error: {shown}") and captured.err.count("\n") == 1
    assert captured.out == "" and [path.name for path in Path().iterdir()] == ["t.csv"]


def test_numbers_of_other_commands(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, shown in [
        (["sample", "m", "-n", "0"], "-n: expected a whole number of at least 1, received 0"),
        (["sample", "m", "-n", "x"], "-n: expected a whole number of at least 1, received 'x'"),
        (["interactions", "m", "--top", "0"], "--top: expected a whole number of at least 1, received 0"),
        (["log-z", "m", "--chains", "0"], "--chains: expected a whole number of at least 1, received 0"),
    ]:
        assert run(arguments) == 2
        assert capsys.readouterr().err == f"pyro-hoim: error: {shown}\n"
