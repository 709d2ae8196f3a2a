"""``plan``: how a table is read, what every model of it costs, and which is advised; nothing is fitted."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import click
import pandas as pd

from ...core.command.reading import Pieces, Reading, read_cells
from ...core.command.rows import Missing, Table, parse_columns
from ...data.columns import read_columns
from ...data.encoding import select_columns
from ...datasets.tables import tables
from ...planning import Route, TablePlan, TableSize, plan_of, plan_of_counts, plan_of_readings, size_of_counts
from ..asking import JSON
from ..options import Command
from ..output import echo_json, say, written
from ..reading import fit_file_options, say_notes

__all__ = ["command_of", "counts_in", "plan"]

_MISSING = "drop: plan without the rows that have missing cells; marginalise: with them; LABEL: such cells are missing."


@click.command(cls=Command)
@click.argument("source", metavar="TABLE|FILE")
@click.option("--columns", metavar="NAMES|N", help="Columns to use: names separated by commas, or the first N.")
@fit_file_options
@click.option("--missing", multiple=True, metavar="drop|marginalise|LABEL", help=_MISSING)
@JSON
def plan(source: str, columns: str | None, missing: tuple[str, ...], as_json: bool, **values: Any) -> None:
    """Say how a table will be read, which models are open at what cost, and which is advised. Nothing is fitted.

    TABLE or FILE is as of fit, which takes the advised route where no interactions are given.
    """
    words, reading = Missing.parse(missing), Reading.of(values)
    counts = counts_in(source, columns, values)
    table = _of_labels(source, columns, words, reading) if counts is None else plan_of_counts(counts)
    quoted = shlex.quote(source)
    if not as_json:
        say(*table.text(lambda route: command_of(route, quoted)).split("\n"))
        return
    content = table.to_json()
    commands = [command_of(route, quoted) or None for route in table.routes]
    routes = [{**line, "command": command} for line, command in zip(content["routes"], commands, strict=True)]
    echo_json({**content, "routes": routes})


def _of_labels(source: str, columns: str | None, words: Missing, reading: Reading) -> TablePlan:
    """The plan of a table of labels: of the cells of a file, at which nothing stops, or of rows that are read whole."""
    is_embedded = source in [info.name for info in tables()]
    if reading.pieces.wanted(source) or not (Path(source).is_file() or is_embedded):
        rows = Table.read(source, columns, words.labels, reading)
        say_notes(rows.notes)
        return plan_of(rows.rows, words.policy, is_weighted=rows.is_weighted)
    cells = read_cells(source, reading.sep, reading.encoding)
    say_notes(cells.note)
    count, weights = (None if n == "none" else n for n in (reading.count_column or "count", reading.weight_column))
    readings = read_columns(
        cells,
        bins=reading.bins or "refuse",
        exclude=reading.exclude,
        allow=reading.allow,
        count=None if weights is not None and reading.count_column is None else count,
        weights=weights,
        columns=parse_columns(columns),
        missing_values=("", *words.labels),
    )
    return plan_of_readings(readings, len(cells.lines), words.policy, is_weighted=weights is not None)


def command_of(route: Route, source: str) -> str:
    """The command line of a route; empty where there is none."""
    words = [written(name, value) for name, value in route.options.items()]
    return " ".join(["pyro-hoim", route.verb, source, *words]) if route.verb else ""


def counts_in(
    source: str, columns: str | None, values: Mapping[str, Any], given: Collection[str] = ()
) -> TableSize | None:
    """The size of a file that is a table of counts; None for another, and where options say that it holds labels."""
    is_labelled = bool(given) or any(values.get(name) for name in ("bins", "allow", "exclude", "weights"))
    if is_labelled or not Path(source).is_file() or Pieces.of(values).wanted(source):
        return None
    cells = read_cells(source, values.get("sep"), values.get("encoding"))
    chosen = select_columns(cells.header, parse_columns(columns), exclude=(), source=cells.path)
    frame = pd.DataFrame({name: cells.column(name) for name in chosen})
    return size_of_counts(frame, count=values.get("count") or "count")
