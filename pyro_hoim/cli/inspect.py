"""``log-z``, ``interactions`` and ``tables``: look at a model or at the embedded data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..analysis import interaction_table
from ..datasets import tables as tables_of_library
from .methods import LOG_Z_OPTIONS, describe_log_z, log_z_of
from .output import echo_json, log_partition_json
from .use import JSON, MODEL, energy_of, read_model

__all__ = ["interactions", "log_z", "tables"]


@click.command("log-z", short_help="Normalising constant of a model.")
@MODEL
@LOG_Z_OPTIONS
@JSON
def log_z(
    model: Path, method: str, chains: int | None, temperatures: str | None, seed: int | None, as_json: bool
) -> None:
    """Logarithm of the normalising constant of MODEL (balanced coding, in nats).

    With --method ais also its standard error, one-sided limits, the effective sample size, and whether to trust it.
    """
    result = log_z_of(energy_of(read_model(model)), method, chains, temperatures, seed)
    if as_json:
        echo_json(
            {
                **(log_partition_json(result) or {}),
                "ess": None if result.ess is None else float(result.ess),
                "is_reliable": bool(result.is_reliable),
                "notes": list(result.notes),
                "method": result.method,
            }
        )
    else:
        click.echo("\n".join(describe_log_z(result)))


@click.command(short_help="Interactions of a model and how strong they are.")
@MODEL
@click.option("--top", type=click.IntRange(1), metavar="N", help="Only the N strongest.")
@JSON
def interactions(model: Path, top: int | None, as_json: bool) -> None:
    """Interactions of MODEL by strength: the root mean square of the balanced table, in nats.

    The coefficient is the entry of largest size, with the levels it stands for. Coefficients of a fit without a finite
    maximum-likelihood estimate that the data do not determine come last and are marked infinite.
    """
    stored = read_model(model)
    infinite = {tuple(edge) for edge in stored.info.get("infinite_interactions", [])}
    rows = interaction_table(energy_of(stored))
    marked: list[dict[str, Any]] = [{**row, "is_infinite": tuple(row["edge"]) in infinite} for row in rows]
    rows = sorted(marked, key=lambda row: row["is_infinite"])[:top]
    if as_json:
        echo_json({"interactions": rows})
        return
    if not rows:
        click.echo("no interactions")
        return
    names = [":".join(row["edge"]) for row in rows]
    width = max(len(n) for n in [*names, "interaction"])
    click.echo(f"{'interaction':<{width}}  strength  coefficient  levels")
    for name, row in zip(names, rows, strict=True):
        shown = f"{row['value']:8.4f}  {row['coefficient']:+11.4f}"
        if row["is_infinite"]:
            shown = f"{'infinite':>8}  {'infinite':>11}"
        click.echo(f"{name:<{width}}  {shown}  {':'.join(row['levels'])}")


@click.command(short_help="The embedded data sets.")
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
