"""Messages of the library reach a person in the words of the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyro_hoim.cli import cli, run
from pyro_hoim.cli.wording import in_option_words

GOOD = "a,b,c\n" + "".join(f"{i % 2},{i % 3},{i % 5 % 2}\n" for i in range(60))

BUDGET = (
    "elimination needs a table of 9e9 cells, the budget is max_cells=100 and 16 slices do not suffice; raise "
    "VariableElimination(max_cells=...) or (max_slices=...), or use fewer interactions. Enumeration of 9e9 states "
    "exceeds max_states=50; for an estimate with an error bar, ask for it with Auto(annealed=AnnealedImportance())"
)
SAID = (
    "elimination needs a table of 9e9 cells, the budget is 100 and 16 slices do not suffice. Enumeration of 9e9 states "
    "exceeds the budget of 50"
)


@pytest.mark.parametrize(
    ("command", "message", "shown"),
    [
        ("fit", "max_order: expected at least 1, received 0", "--order: expected at least 1, received 0"),
        ("fit", "per_round: expected 1 or more,\n received 0", "--per-round: expected 1 or more, received 0"),
        (
            "fit",
            "columns: names must be unique, but 'a' is repeated",
            "--columns: names must be unique, but 'a' is repeated",
        ),
        (
            "fit",
            "columns of t.csv: unknown column 'q'; known: 'a'",
            "--columns of t.csv: unknown column 'q'; known: 'a'",
        ),
        (
            "fit",
            "trainer: 'pseudo-likelihood' has no marginal laws; use the trainer 'sampled' or the score 'J'",
            "--trainer: 'pseudo-likelihood' has no marginal laws; use --trainer sampled",
        ),
        ("fit", "t.csv: pass delimiter=';' or convert the file", "t.csv: convert the file to commas"),
        ("log-z", f"{BUDGET}. At the command line: --method ais", f"{SAID}. At the command line: --method ais"),
        ("log-z", "use num_chains of at least 16", "use --chains of at least 16"),
        ("sample", "number: expected at least 1, received 0", "-n: expected at least 1, received 0"),
        # what names no option of the command stays as it is
        ("tables", "max_order: expected at least 1, received 0", "max_order: expected at least 1, received 0"),
        ("fit", "columns: 'id' (60 levels) is unique per row", "columns: 'id' (60 levels) is unique per row"),
        ("fit", "order.csv: no such file", "order.csv: no such file"),
        ("fit", "seed.csv line 3: expected 2 cells", "seed.csv line 3: expected 2 cells"),
    ],
)
def test_names_of_arguments_become_options(command: str, message: str, shown: str) -> None:
    import click

    found = cli.get_command(click.Context(cli), command)  # type: ignore[attr-defined]
    assert in_option_words(message, found) == shown


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
