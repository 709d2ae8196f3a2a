"""``log-z``, ``interactions`` and ``tables``: look at a model or at the embedded data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ...core.command.answers import describe_log_z
from ...datasets.tables import tables as tables_of_library
from ...errors import InputError
from ..asking import JSON, MODEL, FamilyCommand, ask
from ..options import Command, WholeNumber
from ..output import echo_json

__all__ = ["interactions", "log_z", "tables"]


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
        click.echo("\n".join(describe_log_z(result)))


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

    Of a dependency network: who reads whom, with the information in nats a row that the reader's graph gained from it.
    Of a generalized root model: its tuples by coefficient, with the entry of the tensor.
    """
    family, question = ask(ctx, model)
    answer = family.interactions(question)
    if as_json:
        echo_json(answer.json)
    else:
        click.echo("\n".join(answer.lines) if answer.json["interactions"] else "no interactions")


@click.command(cls=Command)
@JSON
def tables(as_json: bool) -> None:
    """List the published tables that come with the library."""
    keys = ("name", "title", "source", "licence", "note")
    found: list[dict[str, Any]] = [
        {
            **{key: getattr(info, key) for key in keys},
            "shape": [len(labels) for labels in info.labels.values()],
            "total": sum(info.counts),
        }
        for info in tables_of_library()
    ]
    if as_json:
        echo_json({"tables": found})
        return
    for info in found:
        shape = " x ".join(map(str, info["shape"]))
        click.echo(f"{info['name']:<20}{shape:<30}n = {info['total']:<7}{info['title']}")
