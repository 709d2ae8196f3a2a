"""``log-z``, ``interactions`` and ``tables``: look at a model or at the embedded data."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from ...datasets.tables import tables as tables_of_library
from ...errors import refused
from ...information.interaction_values import RemovalValue, removal_values
from ...log_linear.infinite import with_infinite
from ...log_linear.scores import interaction_table
from ...report.blocks import number
from ...report.infinite import finite_contrast_lines
from ...report.words import fixed, short_edge
from ..methods import LOG_Z_OPTIONS, describe_log_z, log_z_of
from ..model import JSON, MODEL, energy_of, is_network, is_roots, read_model
from ..options import SEED, WholeNumber
from ..output import echo_json

__all__ = ["interactions", "log_z", "tables"]

_EDGE, _LEVELS = 48, 32  # characters


@click.command("log-z")
@MODEL
@LOG_Z_OPTIONS
@JSON
def log_z(
    model: Path, method: str, chains: int | None, temperatures: str | None, seed: int | None, as_json: bool
) -> None:
    """Logarithm of the normalising constant of MODEL (balanced coding, or the roots of a grm; in nats).

    Of an estimate also its standard error, one-sided limits, the effective sample size, and the verdict on them.
    """
    if is_network(model):
        from ..by_family.network_use import refuse_log_z

        refuse_log_z(model)
    if is_roots(model):
        from ..by_family.grm_use import root_log_z

        result = root_log_z(model, method, chains, temperatures, seed)
    else:
        result = log_z_of(read_model(model), method, chains, temperatures, seed)
    if as_json:
        echo_json({name: value for name, value in result.to_json().items() if name != "coding"})
    else:
        click.echo("\n".join(describe_log_z(result)))


@click.command()
@MODEL
@click.option("--top", type=WholeNumber(1), metavar="N", help="Only the N strongest.")
@click.option(
    "--information/--no-information",
    default=True,
    show_default=True,
    help="Also find what the model loses without each interaction.",
)
@click.option(
    "--samples",
    type=WholeNumber(100),
    default=4096,
    show_default=True,
    metavar="N",
    help="Rows drawn from a large model to estimate that loss.",
)
@click.option("--seed", type=SEED, default=0, show_default=True, help="Seed of those rows.")
@JSON
def interactions(model: Path, top: int | None, information: bool, samples: int, seed: int, as_json: bool) -> None:
    """Interactions of MODEL by strength: the root mean square of the balanced table, in nats.

    The coefficient is the entry of largest size, with the levels it stands for. Interactions of a fit without a finite
    maximum-likelihood estimate that are infinite come first; below are the contrasts of levels that are finite.

    The refined information is what the model loses, in nats a row, without the interaction and those that contain it,
    all others fitted again: exact for small models. For large ones it is an upper bound (only the interactions inside
    it are fitted again), estimated from rows drawn from the model, with its standard error; such numbers are marked <=.

    Of a dependency network: who reads whom, with the information in nats a row that the reader's graph gained from it.
    Of a generalized root model: its tuples by coefficient, with the entry of the tensor.
    """
    if is_network(model):
        from ..by_family.network_use import network_interactions

        _check_not_given("for a dependency network, whose file holds what its edges are worth")
        network_interactions(model, top, as_json)
        return
    if is_roots(model):
        from ..by_family.grm_use import root_interactions

        _check_not_given("for a generalized root model, whose tuples are sorted by coefficient")
        root_interactions(model, top, as_json)
        return
    stored = read_model(model)
    energy = energy_of(stored)
    rows: list[dict[str, Any]] = with_infinite(interaction_table(energy), stored.info.get("infinite_interactions", []))[
        :top
    ]
    if information:
        wanted = [row["edge"] for row in rows]
        values = removal_values(energy, wanted, num_samples=samples, seed=seed) if rows else []
        rows = [{**row, "refined_information": _information(v)} for row, v in zip(rows, values, strict=True)]
    if as_json:
        echo_json({"interactions": rows})
        return
    if not rows:
        click.echo("no interactions")
        return
    names = [short_edge(row["edge"], _EDGE) for row in rows]
    width = max(len(n) for n in [*names, "interaction"])
    heading = f"{'information':>18}  " if information else ""
    click.echo(f"{'interaction':<{width}}  strength  coefficient  {heading}levels")
    for name, row in zip(names, rows, strict=True):
        shown = f"{fixed(row['value']):>8}  {fixed(row['coefficient'], sign=True):>11}"
        if row["is_infinite"]:
            shown = f"{'infinite':>8}  {number(row['coefficient']):>11}"
        if information:
            shown += f"  {_information_text(row['refined_information']):>18}"
        click.echo(f"{name:<{width}}  {shown}  {short_edge(row['levels'], _LEVELS)}")
    for line in finite_contrast_lines(rows):
        click.echo(line)


def _check_not_given(reason: str) -> None:
    """Refuse the options of removal values where these do not exist."""
    context = click.get_current_context()
    for option in ("information", "samples", "seed"):
        if context.get_parameter_source(option) is ParameterSource.COMMANDLINE:
            raise refused(f"--{option}", f"not {reason}")


def _information(value: RemovalValue) -> dict[str, Any]:
    """The JSON object of a removal value."""
    return {"value": value.value, "std_error": value.std_error, "kind": value.kind}


def _information_text(value: dict[str, Any]) -> str:
    """The number, with <= and its error where it is an estimated bound."""
    if value["kind"] == "exact":
        return fixed(value["value"], 5)
    error = f"{value['std_error']:.1g}" if math.isfinite(value["std_error"]) else "?"
    return f"<={fixed(value['value'])} +-{error}"


@click.command()
@JSON
def tables(as_json: bool) -> None:
    """List the published tables that come with the library."""
    found = tables_of_library()
    if as_json:
        keys = ("name", "title", "shape", "total", "source", "licence", "note")
        echo_json({"tables": [{key: getattr(info, key) for key in keys} for info in found]})
        return
    for info in found:
        shape = " x ".join(map(str, info.shape))
        click.echo(f"{info.name:<20}{shape:<30}n = {info.total:<7}{info.title}")
