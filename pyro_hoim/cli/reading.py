"""The rows of a file that the commands on a model work on: those whose labels it knows, or numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import click
import numpy as np
import torch
from scipy import sparse

from ..core.command.reading import Pieces, cut_columns, read_cells
from ..core.prediction import extend_rows
from ..data.bins import Bins
from ..data.count_files import read_matrix, read_names
from ..data.counts import CountTable
from ..data.csv_file import CsvColumns
from ..data.encoding import level_order
from ..data.observations import Observations
from ..data.readers import Source, encode_columns
from ..errors import check_names, conflict
from ..schema import Domain, NumberKind
from .options import WholeNumber
from .output import say
from .unseen import KnownRows, UnseenLabels

__all__ = ["file_options", "fit_file_options", "read_counts", "read_known", "say_notes"]


_BINS = (
    "Cut a column of numbers or dates into ordered levels: quantile:4 (as many rows in each), width:5 (units; of dates "
    "days, or week, month, quarter, year) or edges:0,10,20. The cut points are kept in the model."
)
_CLUSTER = (
    "Read FILE, or the files of a folder, on a cluster of Dask: the address of its scheduler, such as "
    "tcp://host:8786, or local for threads of this machine."
)
_CHUNK = "Read FILE piece by piece, N rows at a time, as a folder of Parquet or CSV files is.  [default: 262144]"


def file_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Options on how a file is read, for a command that takes one."""
    for name, metavar, what in (
        ("--encoding", "NAME", "Encoding of a text FILE, such as cp1252 or utf-16.  [default: found]"),
        ("--sep", "CHAR", "Character between the cells of a text FILE, or tab.  [default: found]"),
    ):
        command = click.option(name, metavar=metavar, help=what)(command)
    command = click.option("--chunk-rows", type=WholeNumber(1), metavar="N", help=_CHUNK)(command)
    return click.option("--cluster", metavar="ADDRESS", help=_CLUSTER)(command)


def fit_file_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Options on how the rows of a fit are read."""
    counts = (
        ("--count-column", "Column that says how often its row was seen; none: no such column.  [default: count]"),
        ("--weight-column", "Column of weights of the rows, fractions allowed; none: no such column."),
    )
    several = (
        ("--allow", "NAME", "Take this column as it is, although it looks like an identifier, free text or numbers."),
        (
            "--bins",
            "COL=RULE",
            _BINS,
        ),
    )
    for name, metavar, what in several:
        command = click.option(name, multiple=True, metavar=metavar, help=what)(command)
    for name, what in reversed(counts):
        command = click.option(name, metavar="NAME|none", help=what)(command)
    return file_options(command)


def say_notes(notes: Sequence[str]) -> None:
    """Say on standard error how a file was read."""
    for note in notes:
        say(f"pyro-hoim: note: {note}", err=True)


def _cells(file: Path, values: Mapping[str, Any]) -> CsvColumns:
    """Cells of a file or of an embedded table, with what was found told."""
    table = read_cells(file, values.get("sep"), values.get("encoding"))
    say_notes(table.note)
    return table


def read_known(
    domain: Domain,
    file: Path,
    values: Mapping[str, Any],
    *,
    optional: Sequence[str] = (),
    reading: Mapping[str, Any] | None = None,
) -> tuple[Observations, UnseenLabels]:
    """The rows of a file whose labels are all levels of the model, and what is to be said of the others.

    Columns that the fit cut into levels are cut in the same way, as ``reading`` says, unless they hold these levels.

    Args:
        domain: of the model.
        file: a file, or the name of an embedded table.
        values: of options; cells with a label among ``missing`` are missing.
        optional: columns that the file may leave out, whose cells are missing then.
        reading: what the model keeps of how its own rows were read.
    """
    missing: tuple[str, ...] = tuple(values.get("missing") or ())
    reading = reading or {}
    pieces = Pieces.of(values)
    if pieces.wanted(file) and Path(file).exists():
        return KnownRows.opened(domain, file, pieces, missing, optional, reading).distinct()
    table = _cells(file, values)
    bins = {name: Bins.from_json(cut) for name, cut in reading.get("bins", {}).items() if name in table.header}
    raw = {name: cut for name, cut in bins.items() if not {*table.column(name)} <= {*domain[name].labels, "", *missing}}
    table = replace(cut_columns(table, raw, missing)[0], categories={})
    absent = {name for name in optional if name not in table.header}
    present = domain.project([name for name in domain.names if name not in absent]) if absent else domain
    is_unseen, labels = np.zeros(len(table.lines), dtype=bool), {}

    def column(name: str) -> np.ndarray:
        cells = np.asarray(table.column(name), dtype=object)
        if name not in present:
            return cells
        is_new = ~np.isin(cells.astype(str), [*present[name].labels, "", *missing])
        if is_new.any():
            labels[name] = sorted(set(cells[is_new]), key=level_order)
            np.logical_or(is_unseen, is_new, out=is_unseen)
            cells = np.where(is_new, "", cells)
        return cells

    source = Source(table.header, column, table.path, table.where, len(table.lines))
    names = [reading.get(name) for name in ("count_column", "weight_column")]
    count, weights = (name if name in table.header and name not in domain else None for name in names)
    if count is None and weights is None and "count" in table.header and "count" not in domain:
        count = "count"
    read = encode_columns(source, present, count, weights, None, ("", *missing))
    rows = Observations(*read, is_weighted=weights is not None)
    if is_unseen.all():  # name the first label
        Observations.from_csv(table, domain=present, count=count, weights=weights, missing_values=("", *missing))
    is_kept = torch.from_numpy(~is_unseen)
    unseen = UnseenLabels(float(rows.counts[~is_kept].sum()), labels, is_unseen)
    return extend_rows(rows.rows(is_kept), domain), unseen


def read_counts(
    domain: Domain,
    file: Path,
    vocab: Path | None,
    optional: Sequence[str] = (),
    values: Mapping[str, Any] | None = None,
) -> tuple[CountTable, set[str]]:
    """Rows of a file with the columns of a model, in their order, and which of the optional ones are absent, here zero.

    Other columns of the file are ignored; ``vocab`` names those of a ``.npz`` file, and ``values`` are of options.
    """
    kind = cast(NumberKind, next((v.kind for v in domain), "count"))
    if file.suffix == ".npz":
        matrix = read_matrix(file)
        header = read_names(file, vocab, int(matrix.shape[1]))
        read = partial(CountTable.from_matrix, matrix, header, source=str(file))
    elif vocab is not None:
        raise conflict("--vocab", f"belongs to a .npz file, received {file}, whose header names its columns")
    else:
        cells = _cells(file, values or {})
        header = cells.header
        read = partial(CountTable.from_csv, cells)
    known = set(header)
    absent = [name for name in domain.names if name not in known]
    wanted = [name for name in absent if name not in optional]
    if wanted:
        check_names(wanted[:1], header, str(file), noun="column", problem="the table lacks")
    present = [name for name in domain.names if name in known]
    if not present:
        return CountTable.from_matrix(np.zeros((0, len(domain))), domain.names, kind=kind), set(absent)
    table = read(kind=kind, columns=present)
    if not absent:
        return table, set()
    empty = np.zeros((table.num_rows, len(absent)))
    is_sparse = kind == "count"
    joined = sparse.hstack([sparse.csr_matrix(table.matrix), empty]) if is_sparse else np.hstack([table.matrix, empty])
    table_of_model = CountTable.from_matrix(joined, [*present, *absent], kind=kind, source=str(file))
    return table_of_model.columns(domain.names), set(absent)
