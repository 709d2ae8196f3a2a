"""The rows of a file that the commands on a model work on: those whose labels it knows, or numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

import click
import numpy as np
import pandas as pd
import torch
from scipy import sparse

from ..core.command.reading import Pieces, cut_columns, distinct_rows, read_cells, weighted
from ..core.command.rows import Fractions
from ..core.family import FrameEncoder, Source, Stored, families
from ..core.prediction import extend_rows
from ..core.words import listed, whole
from ..data.bins import cuts_of
from ..data.columns import ColumnOptions, encode_columns
from ..data.counts import CountTable, digest, kind_of_table, read_matrix, read_names, repeated_rows
from ..data.encoding import level_order, parse_counts
from ..data.files.table_file import CsvColumns
from ..data.observations import Observations
from ..data.readers import Source as CellSource
from ..data.sources import RowSource
from ..errors import InputError, MissingDataError, check_names, conflict, refused
from ..families import add_info
from ..runs.container import read_kind
from ..schema import Domain
from .options import WholeNumber
from .output import say

# Which rows of a file a model has seen: ``fit`` leaves its split in the model file, other commands read it.

_Rows = TypeVar("_Rows", Observations, CountTable)
_DIGITS = 32  # of the digest in a model file
_TOLD = {"train": "fitted to", "validation": "that chose between models", "test": "not seen"}


def keep_split(folder: Path, source: Source, fractions: Fractions, seed: int) -> None:
    """Add to every model file of a folder how all rows, in the order of the file, were read and split."""
    rows = source.rows
    split = {
        "fractions": list(fractions),
        "seed": seed,
        "rows": whole(rows.total_count),
        "digest": digest(rows)[:_DIGITS],
    }
    kinds = {family.kind for family in families()}
    for path in sorted(folder.glob("*.safetensors")):
        if read_kind(path) in kinds:  # a posterior over structure is not the file of a model
            add_info(path, {"split": split, **source.kept})


def score_seen(
    info: Mapping[str, Any], rows: _Rows, score: Callable[[_Rows], dict[str, float | None]]
) -> dict[str, dict[str, float | None]] | None:
    """``rows`` and figures of the parts that rows fell into when the model was fitted; None for rows of another file.

    Where rows with missing cells are not those of the split, the complete ones are tried.
    """
    split: dict[str, Any] | None = info.get("split")
    if split is None:
        return None
    if isinstance(rows, Observations) and rows.has_missing and digest(rows)[:_DIGITS] != split["digest"]:
        rows = cast(_Rows, rows.drop_missing())
    if digest(rows)[:_DIGITS] != split["digest"]:
        return None
    parts = zip(_TOLD, cast("tuple[_Rows, ...]", rows.split(split["fractions"], split["seed"])), strict=True)
    return {name: {"rows": whole(part.total_count), **score(part)} for name, part in parts if part.total_count > 0}


def seen_lines(parts: Mapping[str, Mapping[str, float | None]] | None, *labels: str) -> list[str]:
    """Lines for a reader: which rows the model has seen, with some of their figures; none for another file."""
    if parts is None:
        return []
    lines = ["this is the file that the model was fitted from:"]
    for name, found in parts.items():
        shown = ", ".join(_figure(found, label) for label in labels)
        lines.append(f"  {found['rows']:,} rows {_TOLD[name]}: {shown}")
    return lines


def _figure(found: Mapping[str, float | None], label: str) -> str:
    value, error = found[label], found.get(f"{label}_std_error")
    shown = "not available" if value is None else f"{value:.4f}"
    return f"{label.replace('_', '-')} {shown}" + ("" if error is None else f" (standard error {error:.2g})")


# Rows with labels that a model does not know, which are left out, and what is said of them.

_BLOCK = 2**16


@dataclass(frozen=True, eq=False)
class UnseenLabels:
    """Rows of a file that were left out because a label of theirs is no level of the model.

    Attributes:
        rows: observations left out.
        labels: the labels by column.
        is_unseen: which rows of the file they are.
        reader: of rows that are read piece by piece, what reads them again.
    """

    rows: float
    labels: dict[str, list[str]]
    is_unseen: np.ndarray
    reader: KnownRows | None = None

    def to_json(self) -> dict[str, Any]:
        """Their number and labels, as commands print them."""
        rows = int(self.rows) if self.rows.is_integer() else self.rows
        return {"unseen_label_rows": rows, "unseen_labels": self.labels}

    def lines(self, consequence: str) -> list[str]:
        """What a reader has to know; nothing where there are none."""
        if not self.labels:
            return []
        shown = "; ".join(f"{name}: {listed(labels)}" for name, labels in self.labels.items())
        return [
            f"rows left out       {self.rows:g} with a label that the fit did not know ({shown})",
            f"                    The model gives them no probability: {consequence}.",
            "                    fit --levels or --levels-from makes such labels levels of the model.",
        ]

    def spread(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Lines of the rows that were kept, with empty lines for the others, in the order of the file."""
        frame.index = pd.Index(np.flatnonzero(~self.is_unseen))
        return frame.reindex(range(len(self.is_unseen)))


@dataclass(frozen=True, eq=False)
class KnownRows:
    """Rows that are read piece by piece, and which level of a model each label of theirs is.

    Attributes:
        domain: of the model.
        source: over the labels that the rows have.
        codes: by column of the source, the code in the model of every code: -1 for missing, -2 for none.
        path: of the rows.
        weight: column of weights, which the source has beside those of the model.
    """

    domain: Domain
    source: RowSource
    codes: tuple[np.ndarray, ...]
    path: Path
    weight: str | None = None

    @classmethod
    def opened(
        cls,
        domain: Domain,
        path: Path,
        pieces: Pieces,
        missing: Sequence[str],
        optional: Sequence[str],
        reading: Mapping[str, Any],
    ) -> KnownRows:
        """The rows of a folder or file; ``optional`` columns may be absent, columns are cut as is ``reading``."""
        # Columns of counts and weights are those of the fit, unless they are variables.
        count = reading.get("count_column", "count")
        files = pieces.files(path)
        header = files.header
        names = [name for name in domain.names if name in header or name not in optional]
        weight = reading.get("weight_column")
        weight = weight if weight in header and weight not in domain else None
        used = count if count in header and count not in domain and weight is None else None
        bins = {name: cut for name in names if (cut := cuts_of(domain[name].labels)) is not None}
        cuts = {name: cut for name, cut in bins.items() if cut.kind == "numbers"}
        columns = names if weight is None else [*names, weight]
        rows = pieces.opened(files, columns=columns, count=used, missing_values=missing, bins=cuts)
        # A code of the piece stands for that of the model: -1 is missing, -2 no level of it.
        codes: list[np.ndarray] = []
        for variable in (v for v in rows.domain if v.name != weight):
            labels: Sequence[str] = variable.labels
            known = domain[variable.name].labels
            if variable.name in bins.keys() - cuts and not {*labels} <= {*known}:
                labels = bins[variable.name].apply(labels, name=variable.name)
            code_of = {label: code for code, label in enumerate(known)}
            codes.append(np.array([*(code_of.get(label, -2 if label else -1) for label in labels), -1]))
        return cls(domain, rows, tuple(codes), path, weight)

    def distinct(self) -> tuple[Observations, UnseenLabels]:
        """The distinct rows all of whose labels are levels of the model, and what is to be said of the others."""
        rows, _ = distinct_rows(self.source, self.path, self.weight)
        found, is_unseen = self.coded(rows)
        labels = self.unseen_labels()
        if not found.num_rows and labels:
            name = next(iter(labels))
            check_names(labels[name][:1], self.domain[name].labels, f"{self.path}, column {name!r}", noun="label")
        return found.unique(), UnseenLabels(float(rows.counts[is_unseen].sum()), labels, is_unseen.numpy(), self)

    def unseen_labels(self) -> dict[str, list[str]]:
        """Labels that are no level of the model, by column."""
        return {
            variable.name: sorted(np.array(variable.labels)[codes[:-1] == -2].tolist(), key=level_order)
            for variable, codes in zip(self._domain, self.codes, strict=True)
            if (codes == -2).any()
        }

    @property
    def _domain(self) -> Domain:
        """The variables of the source that the model has."""
        names = self.source.domain.names
        return self.source.domain.project([name for name in names if name != self.weight])

    def blocks(self) -> Iterator[Observations]:
        """The rows in their order, 65,536 at a time wherever they lie and however they are read."""
        waiting = list[Observations]()
        for batch in self.source.batches():
            codes = torch.from_numpy(np.ascontiguousarray(batch.codes.T))
            rows = Observations(self.source.domain, codes, torch.from_numpy(batch.weights.astype(np.float64)))
            waiting.append(weighted(rows, self.weight, self.path))
            while sum(part.num_rows for part in waiting) >= _BLOCK:
                whole = Observations.concatenated(waiting)
                yield whole.rows(torch.arange(_BLOCK))
                waiting = [whole.rows(torch.arange(_BLOCK, whole.num_rows))]
        if sum(part.num_rows for part in waiting):
            yield Observations.concatenated(waiting)

    def coded(self, rows: Observations) -> tuple[Observations, torch.Tensor]:
        """Rows of the source as rows of the model, those with other labels left out, and which these are."""
        columns = [codes[rows.narrow[:, i].numpy()] for i, codes in enumerate(self.codes)]
        codes = torch.from_numpy(np.stack(columns, axis=1).astype(np.int64))
        is_unseen = (codes == -2).any(1)
        present = self.domain.project(self._domain.names)
        order = [self._domain.names.index(name) for name in present.names]
        kept = rows.rows(~is_unseen).replaced(domain=present, codes=codes[~is_unseen][:, order])
        return extend_rows(kept, self.domain), is_unseen


_BINS = (
    "Cut a column of numbers or dates into ordered levels: quantile:4 (as many rows in each), width:5 (units; of dates "
    "days, or week, month, quarter, year) or edges:0,10,20; auto cuts all numbers of many values at quantiles, and "
    "a RULE without a column cuts them by it. The cut points are kept in the model."
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
        ("--count", "Column that says how often its row was seen; none: no such column.  [default: count]"),
        ("--weights", "Column of weights of the rows, fractions allowed; none: no such column."),
    )
    several = (
        ("--allow", "NAME", "Take this column as it is, although it looks like an identifier, free text or numbers."),
        ("--exclude", "NAME", "Leave this column out; several with commas."),
        ("--bins", "auto|RULE|COL=RULE", _BINS),
    )
    # Decorators apply from the last to the first: the help is in reading order.
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
    # Columns of numbers are cut as those of the fit were.
    table = _cells(file, values)
    bins = {v.name: cut for v in domain if v.name in table.header and (cut := cuts_of(v.labels)) is not None}
    raw = {name: cut for name, cut in bins.items() if not {*table.column(name)} <= {*domain[name].labels, "", *missing}}
    table = replace(cut_columns(table, raw, missing)[0], categories={})
    absent = {name for name in optional if name not in table.header}
    present = domain.project([name for name in domain.names if name not in absent]) if absent else domain
    # Rows with a label that is no level of the model are found on the way, and left out.
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

    source = CellSource(table.header, column, table.path, table.where, len(table.lines))
    names = [reading.get(name) for name in ("count_column", "weight_column")]
    count, weights = (name if name in table.header and name not in domain else None for name in names)
    if count is None and weights is None and "count" in table.header and "count" not in domain:
        count = "count"
    how = ColumnOptions(count, weights, missing_values=("", *missing))
    _, codes, counts, *_ = encode_columns(source, present, how)
    rows = Observations(present, codes, counts, is_weighted=weights is not None)
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
    kind = kind_of_table(domain)
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
    # Columns of the model that the file lacks are zero where they may be absent.
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


def read_encoded(
    stored: Stored, encoder: FrameEncoder, file: Path, values: Mapping[str, Any], optional: Sequence[str] = ()
) -> tuple[CountTable, set[str]]:
    """Rows of a file for a model whose variables stand for columns with labels.

    Also which of the ``optional`` columns the file lacks, whose values are then of no account.
    """
    if file.suffix == ".npz":
        raise refused(file, "the model has columns with labels, which a .npz file does not hold", code="wrong-type")
    if values.get("vocab") is not None:
        raise conflict("--vocab", f"belongs to a .npz file, received {file}, whose header names its columns")
    cells = _cells(file, values)
    names = [name for name in encoder.names if name in cells.header]
    absent = {name for name in optional if name not in names}
    frame = pd.DataFrame({name: list(cells.column(name)) for name in names}, dtype=object)
    try:
        matrix = encoder.encode(frame, sorted(absent))
    except MissingDataError as error:
        raise error.replace(argument=str(file), hint="fill them, or leave these rows out of the file") from None
    except InputError as error:
        where = "" if error.argument in (None, "data") else f", {error.argument}"
        raise error.replace(argument=f"{file}{where}") from None
    # A row is one observation, or as many as its count says.
    count = (stored.info.get("reading") or {}).get("count_column", "count")
    if count in cells.header and count not in encoder.names:
        times = parse_counts(cells.column(count), name=f"column {count!r}", where=cells.where, fractional=False)
        matrix = matrix[repeated_rows(times, matrix, str(file))]
    kind, domain = kind_of_table(stored.domain), stored.domain
    return CountTable.from_matrix(matrix, domain.names, kind=kind, source=str(file)), absent
