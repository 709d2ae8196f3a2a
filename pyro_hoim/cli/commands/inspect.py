"""``log-z``, ``interactions`` and ``margins``: look at a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ...budgets import MAX_SWEEPS
from ...core.command.answers import describe_log_z
from ...core.command.margins import margins as margins_of
from ...errors import InputError
from ..asking import JSON, MODEL, FamilyCommand, ask, parse_given
from ..options import SEED, WholeNumber
from ..output import echo_json, say
from ..reading import say_notes

__all__ = ["interactions", "log_z", "margins"]


@click.command("log-z", cls=FamilyCommand)
@MODEL
@JSON
@click.pass_context
def log_z(ctx: click.Context, model: Path, as_json: bool, **_: Any) -> None:
    """Logarithm of the normalising constant of MODEL (balanced coding, or the roots of a grm; in nats).

    Of a model of corner tables that lacks subsets it is that of the corner coding, and the JSON says so.

    Of an estimate also its standard error, one-sided limits, the effective sample size, and the verdict on them.
    """
    family, question = ask(ctx, model)
    if family.log_z is None:
        why = family.hint("log-z")
        problem = f"{model} holds a {family.name}, which has no normalising constant" + (f": {why}" if why else "")
        raise InputError(problem, code="not-normalizable")
    result = family.log_z(question)
    if as_json:
        echo_json({name: value for name, value in result.to_json().items() if name != "coding" or value == "corner"})
    else:
        say(*describe_log_z(result))


@click.command(cls=FamilyCommand)
@MODEL
@click.option("--top", type=WholeNumber(1), metavar="N", help="Only the N strongest.")
@JSON
@click.pass_context
def interactions(ctx: click.Context, model: Path, as_json: bool, **_: Any) -> None:
    """Interactions of MODEL by strength: the root mean square of the balanced table, in nats.

    The coefficient is the entry of largest size, with the levels it stands for. Interactions of a fit without a finite
    maximum-likelihood estimate that are infinite come first; below are the contrasts of levels that are finite.

    The refined information is what the model loses, in nats a row, without the interaction and those that contain it,
    all others fitted again: exact for small models. For large ones it is an upper bound (only the interactions inside
    it are fitted again), estimated from rows drawn from the model, with its standard error; such numbers are marked <=.

    Of a dependency network: which column is predicted from which, with the information gained in nats a row.
    Of a generalized root model: its tuples by coefficient, with the entry of the tensor.
    """
    family, question = ask(ctx, model)
    answer = family.interactions(question)
    if as_json:
        echo_json(answer.json)
    else:
        say(*(answer.lines if answer.json["interactions"] else ["no interactions"]))


@click.command(cls=FamilyCommand)
@MODEL
@click.argument("names", nargs=-1, required=True)
@click.option("--given", multiple=True, metavar="COL=VALUE", help="Fix a column; may be given several times.")
@click.option(
    "--draws",
    type=WholeNumber(100, MAX_SWEEPS),
    default=20_000,
    show_default=True,
    help="Draws, where they are needed.",
)
@click.option("--seed", type=SEED, default=0, show_default=True, help="Seed of the draws.")
@JSON
@click.pass_context
def margins(
    ctx: click.Context, model: Path, names: tuple[str, ...], given: tuple[str, ...], as_json: bool, **_: Any
) -> None:
    """Probabilities of all combinations of the columns NAMES under MODEL, also given others.

    They are exact where the other columns can be summed over; else they are shares of draws, with standard errors.
    """
    family, question = ask(ctx, model)
    fixed = parse_given(given, question.stored.domain, family.data_type)
    answer = margins_of(family, question, names, fixed)
    say_notes(answer.notes)
    if as_json:
        echo_json({**answer.json, "given": dict(text.split("=", 1) for text in given)})
    else:
        say(*answer.lines)
