"""``plan``: how a table is read, what every model of it costs, and which is advised; nothing is fitted."""

import shlex
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click
import pandas as pd

from ...core.command.options import LABELLED, STRUCTURAL_ZEROS, parse_zeros
from ...core.command.reading import Pieces, Reading, read_cells
from ...core.command.rows import Missing, Table, parse_columns
from ...data.columns import columns_read
from ...data.encoding import select_columns
from ...data.files.table_file import CsvColumns
from ...data.readers import Source
from ...data.wide import long_cells
from ...datasets.embedded import tables
from ...errors import check_names
from ...planning import Route, TablePlan, TableSize, counted, plan_of, plan_of_counts, plan_of_readings, size_of_counts
from ..options import JSON, Command
from ..output import echo_json, say, written
from ..reading import fit_file_options, say_notes

_MISSING = "drop: plan without the rows that have missing cells; marginalise: with them; LABEL: such cells are missing."
READING = (
    *("columns", "sep", "encoding", "cluster", "chunk_rows", "count", "weights"),
    *("bins", "allow", "exclude", "missing"),
)
"""Options on how a table is read, in the order in which a command repeats them."""
_GIVEN = (*READING, *(option.name for option in LABELLED if option.name not in READING), "split", "seed")
_SEVERAL = ("bins", "allow", "exclude", STRUCTURAL_ZEROS.name, *(option.name for option in LABELLED if option.multiple))


@click.command(cls=Command)
@click.argument("source", metavar="TABLE|FILE")
@click.option("--columns", metavar="NAMES|N", help="Columns to use: names separated by commas, or the first N.")
@fit_file_options
@click.option("--missing", multiple=True, metavar="drop|marginalise|LABEL", help=_MISSING)
@click.option("--structural-zeros", multiple=True, metavar=STRUCTURAL_ZEROS.metavar, help=STRUCTURAL_ZEROS.help)
@JSON
def plan(source: str, as_json: bool, **values: Any) -> None:
    """Say how a table will be read, which models are open at what cost, and which is advised. Nothing is fitted.

    TABLE or FILE is as of fit, which takes the advised route where no interactions are given.
    """
    words, reading, columns = Missing.parse(values["missing"]), Reading.of(values), values["columns"]
    # A file that is read whole is read once: its cells say whether they are counts, and what every column is.
    cells = cells_of_file(source, values)
    given = {name for name in ("missing", STRUCTURAL_ZEROS.name) if values[name]}
    counts = None if cells is None else counts_in(cells, columns, values, given)
    table = None if counts is None else plan_of_counts(counts)
    if table is None or not table["roots"].is_open:
        no_counts = TableSize.no_counts if table is None else table["roots"].reason
        table = _of_labels(source, values, words, reading, cells, no_counts)
    if not as_json:
        say(*table.text(lambda route: command_of(route, source, values, table.assumed)).split("\n"))
        return
    content = table.to_json()
    commands = [command_of(route, source, values, table.assumed) or None for route in table.routes]
    routes = [
        {**{name: value for name, value in line.items() if name != "call"}, "command": command}
        for line, command in zip(content["routes"], commands, strict=True)
    ]
    echo_json({**content, "routes": routes})


def _of_labels(
    source: str, values: Mapping[str, Any], words: Missing, reading: Reading, cells: CsvColumns | None, no_counts: str
) -> TablePlan:
    """The plan of a table of labels: of the cells of a file, at which nothing stops, or of rows that are read whole."""
    columns, texts = values["columns"], values[STRUCTURAL_ZEROS.name]
    zeros = partial(parse_zeros, texts) if texts else None
    if cells is None and source in [info.name for info in tables()] and not reading.pieces.wanted(source):
        cells = read_cells(source, reading.sep, reading.encoding)
    if cells is None:
        rows = Table.read(source, columns, words.labels, reading)
        say_notes(rows.notes)
        combinations = None if zeros is None else zeros(rows.rows.domain)
        return plan_of(rows.rows, words.policy, is_weighted=rows.is_weighted, zeros=combinations)
    if (columns, reading.count_column, reading.weight_column) == (None, None, None):
        cells = long_cells(cells)
    say_notes(cells.note)
    count, weights = (None if n == "none" else n for n in (reading.count_column or "count", reading.weight_column))
    count = None if weights is not None and reading.count_column is None else count
    how = reading.columns(words.labels, count=count, weights=weights, chosen=parse_columns(columns))
    readings = columns_read(Source.of_csv(cells), how)
    total = counted(readings, cells.column)
    size = TableSize({}, len(cells.lines), total, is_weighted=weights is not None, no_counts=no_counts)
    table = plan_of_readings(readings, size, words.policy, zeros=zeros)
    if size.is_weighted or total is not None or not any(one.kind == "numbers" for one in readings):
        return table
    command = f"pyro-hoim learn {shlex.quote(source)} --numbers families"
    note = f"Numbers need not be cut: {command} gives every column a family of its own."
    return replace(table, notes=(*table.notes, note))


def given_options(values: Mapping[str, Any], names: Collection[str] = _GIVEN) -> list[tuple[str, Any]]:
    """Those options among ``values`` that were typed, in the order of ``names``, each as often as it was typed."""
    given: list[tuple[str, Any]] = []
    for name in names:
        value = values.get(name)
        each: list[Any] = [*(value or ())] if name in _SEVERAL else [value]
        given += [(name, one) for one in each if one is not None and (name, one) != ("seed", 0)]
    return given


def command_of(route: Route, source: str, values: Mapping[str, Any], assumed: Mapping[str, Any]) -> str:
    """The command line of a route, with what was typed on the rows; empty where there is none.

    Args:
        route: whose verb and options it has.
        source: table or file.
        values: of options, by name, of which any may be absent.
        assumed: options on the reading that nothing was said of, as the plan takes them.
    """
    if not route.verb:
        return ""
    names = (*_GIVEN, STRUCTURAL_ZEROS.name) if route.verb == "fit" and "model" not in route.options else _GIVEN
    options = [*given_options(values, names), *assumed.items(), *route.options.items()]
    return " ".join(["pyro-hoim", route.verb, shlex.quote(source), *(written(name, value) for name, value in options)])


def cells_of_file(source: str, values: Mapping[str, Any]) -> CsvColumns | None:
    """The cells of a file that is read whole; None for a folder, an embedded table, and rows in pieces."""
    if not Path(source).is_file() or Pieces.of(values).wanted(source):
        return None
    return read_cells(source, values.get("sep"), values.get("encoding"))


def counts_in(
    cells: CsvColumns, columns: str | None, values: Mapping[str, Any], given: Collection[str] = ()
) -> TableSize | None:
    """The size of a file that is a table of counts; None for another, and where options say that it holds labels."""
    if given or any(values.get(name) for name in ("bins", "allow", "weights")):
        return None
    exclude = Reading.of(values).exclude
    check_names(exclude, cells.header, "exclude", noun="column")
    chosen = select_columns(cells.header, parse_columns(columns), exclude=(), source=cells.path)
    frame = pd.DataFrame({name: cells.column(name) for name in chosen if name not in exclude})
    return size_of_counts(frame, count=values.get("count") or "count")
