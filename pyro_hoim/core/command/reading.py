"""How a file of rows is read: its delimiter and encoding, its column of counts, and its columns cut into levels."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from ...data.bins import Bins, edge_bins, find_bins, parse_bins
from ...data.columns import ColumnOptions
from ...data.encoding import parse_counts, select_columns
from ...data.files.table_file import CsvColumns, read_table_file
from ...data.observations import Observations
from ...data.readers import Counting, Source, check_counting, check_levels_told, missing_sentence
from ...data.sources import RowSource
from ...data.sources.files import RowFiles
from ...data.sources.opening import HowRead, files_of, opened_rows
from ...datasets.embedded import load_table, tables
from ...errors import IntractableError, check_names, conflict, unexpected
from ..words import option, plural

# Files of rows that a command reads piece by piece: folders, and files for which a cluster or a chunk is named.


@dataclass(frozen=True)
class Pieces:
    """How rows are read piece by piece.

    Attributes:
        cluster: address of a scheduler of Dask, or ``local``; None reads here.
        chunk_rows: rows of a batch, at most; None for the default.
        sep: the character between cells of text; None finds it.
        encoding: of text; None finds it.
    """

    cluster: str | None = None
    chunk_rows: int | None = None
    sep: str | None = None
    encoding: str | None = None

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Pieces:
        """From the values of options, of which any may be absent."""
        return cls(*(values.get(name) for name in ("cluster", "chunk_rows", "sep", "encoding")))

    def wanted(self, source: Path | str) -> bool:
        """Whether a file or folder is to be read so."""
        return Path(source).is_dir() or self.cluster is not None or self.chunk_rows is not None

    def check_unused(self, source: str) -> None:
        """Refuse the options where there is no file to read."""
        for name in ("cluster", "chunk_rows"):
            if getattr(self, name) is not None:
                raise conflict(name, f"belongs to files of Parquet or text, received {source}")

    def files(self, source: Path | str) -> RowFiles:
        """The files, judged but not read."""
        return files_of(Path(source), HowRead(cluster=self.cluster, sep=self.sep, encoding=self.encoding))

    def opened(self, files: RowFiles, **options: Any) -> RowSource:
        """Their rows, with options of :func:`~pyro_hoim.data.open_rows`; columns are not checked."""
        size = {} if self.chunk_rows is None else {"chunk_rows": self.chunk_rows}
        return opened_rows(files, HowRead(**size, **options, is_checked=False))


def weighted(rows: Observations, weight: str | None, source: Path | str) -> Observations:
    """Rows without a column of weights, their counts times these.

    Counts of rows of equal weight are whole numbers, so sums do not depend on how rows are read.

    Raises:
        InputError: missing or negative weights, or none above zero.
    """
    if weight is None:
        return rows
    (place,) = rows.domain.indices([weight])
    codes, counts = rows.narrow[:, place].long(), rows.counts
    labels = [*rows.domain[weight].labels, *([""] if bool((codes < 0).any()) else [])]
    found = parse_counts(labels, name=f"column {weight!r}", where=lambda _: str(source), fractional=True)
    rest = rows.project([name for name in rows.domain.names if name != weight])
    each = torch.as_tensor(found, dtype=torch.float64)[codes]
    return Observations(rest.domain, rest.narrow, counts * each, True, counts * each.square())


def distinct_rows(
    rows: RowSource, source: Path | str, weight: str | None = None, notes: Sequence[str] = ()
) -> tuple[Observations, str]:
    """The distinct rows, whose counts are sums of a column of weights if there is one, and a sentence on them.

    Raises:
        IntractableError: they do not fit into memory.
    """
    try:
        found = rows.distinct()
    except IntractableError as error:
        hint = f"take fewer columns ({option('columns')}), or pass open_rows to pyro_hoim.fit or learn, for margins"
        raise error.replace(argument=str(source), hint=hint) from None
    lines = plural(found.total_count, "row")
    if weight is not None:
        found = weighted(found, weight, source).unique()
    told = f"{lines} read piece by piece, {found.num_rows:,} of them different"
    return found, f"{source}: {'; '.join([*notes, told])}"


_NONE = "none"


@dataclass(frozen=True)
class Reading:
    """What was asked of a file of rows.

    Attributes:
        sep: the character between cells; None finds it.
        encoding: of the text; None finds it.
        count_column: name of the column of whole counts, or ``none`` for no such column.
        weight_column: name of the column of weights, or ``none``.
        bins: rules by column, ``*`` for all others.
        allow: columns that are taken as they are.
        exclude: columns that are left out.
        pieces: how a folder is read, and a file for which that was asked.
    """

    sep: str | None = None
    encoding: str | None = None
    count_column: str | None = None
    weight_column: str | None = None
    bins: Mapping[str, str] = field(default_factory=dict[str, str])
    allow: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    pieces: Pieces = field(default_factory=Pieces)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Reading:
        """From the values of options, of which any may be absent."""
        count, weight = (values.get(name) for name in ("count", "weights"))
        if count not in (None, _NONE) and weight not in (None, _NONE):
            raise conflict("weights", f"cannot be combined with {option('count')}", "give one of them")
        allow, exclude = (
            tuple(name.strip() for text in values.get(argument) or () for name in text.split(","))
            for argument in ("allow", "exclude")
        )
        bins = parse_bins(values.get("bins") or ())
        return cls(values.get("sep"), values.get("encoding"), count, weight, bins, allow, exclude, Pieces.of(values))

    def columns(
        self,
        missing: Collection[str] = (),
        *,
        count: str | None = None,
        weights: str | None = None,
        chosen: Sequence[str] | int | None = None,
        named: Collection[str] = (),
    ) -> ColumnOptions:
        """What is asked of the columns of a table; those ``chosen`` by name and those ``named`` are spelled out."""
        spelled = {*named, *(chosen if isinstance(chosen, list) else ())}
        how: dict[str, Any] = {"bins": self.bins, "exclude": self.exclude, "allow": self.allow}
        return ColumnOptions(count, weights, chosen, ("", *missing), **how, named=spelled, write=_written)

    def check_unused(self, source: str) -> None:
        """Refuse options on how a file is read where there is no file."""
        given = {"sep": self.sep, "encoding": self.encoding, "count": self.count_column, "weights": self.weight_column}
        for name, value in given.items():
            if value not in (None, _NONE):
                raise conflict(name, f"belongs to a table of text, received {source}")
        self.pieces.check_unused(source)

    def in_pieces(
        self, source: str, chosen: Any, missing: Collection[str]
    ) -> tuple[Observations, str, dict[str, Bins], int | None]:
        """The distinct rows of a source that is read piece by piece, a sentence on them, the cut points, and how many.

        The number of rows is None where they bear counts.
        """
        files = self.pieces.files(source)
        is_open = chosen is None and self.count_column is None and self.weight_column is None
        if is_open and (wide := files.wide_table(option("count", _NONE))) is not None:
            return Observations.from_csv(wide, missing_values=("", *missing)), "".join(wide.note), {}, None
        # Which columns count rows, and which are variables.
        header = files.header
        weight = None if self.weight_column == _NONE else self.weight_column
        check_names([] if weight is None else [weight], header, "weights", noun="column")
        plain = "count" if "count" in header and weight is None else None
        count = {None: plain, _NONE: None}.get(self.count_column, self.count_column)
        counting = [name for name in (count, weight) if name is not None]
        check_names(self.exclude, header, "exclude", noun="column")
        without = [*counting, *self.exclude]
        names = list(select_columns(header, chosen, exclude=without, source=source))
        if "*" in self.bins:
            hint = f"give edges, such as {option('bins', f'{names[0]}=edges:20,40,60')}"
            raise unexpected("bins", "edges by column, for rows that are read piece by piece", self.bins["*"], hint)
        cuts = {name: edge_bins(rule, name) for name, rule in self.bins.items()}
        columns = names if weight is None else [*names, weight]
        # Blocks are read when they are asked for, so that mistakes above cost nothing.
        rows = self.pieces.opened(files, columns=columns, count=count, missing_values=missing, bins=cuts)
        if not counting:
            given = chosen if isinstance(chosen, list) else ()
            check_levels_told((v for v in rows.domain if v.name not in given), source, self._say)
        distinct, note = distinct_rows(rows, source, weight, files.notes)
        return distinct, note, cuts, None if count is not None else rows.num_rows

    def _say(self, found: Counting) -> str | None:
        """How to say what a column is; None where that was said."""
        is_count = found.role == "count"
        if (self.count_column if is_count else self.weight_column) is not None:
            return None
        argument = "count" if is_count else "weights"
        return f"say {option(argument, found.name)} if it does, {option(argument, _NONE)} if it is a variable"

    def check_chosen(self, chosen: Sequence[str] | int | None) -> None:
        """Refuse a column that is chosen by name and left out."""
        if both := [name for name in chosen if name in self.exclude] if isinstance(chosen, Sequence) else []:
            raise conflict("exclude", f"column {both[0]!r} is asked for by {option('columns')} and left out")

    def check_numbers(self, choice: str) -> None:
        """Refuse options that rows of numbers, which a ``choice`` keeps, have no use for."""
        for name, value in {"weights": self.weight_column, "bins": self.bins, "allow": self.allow}.items():
            if value:
                raise conflict(name, f"has no use with {choice}, which takes numbers as they are")
        self.pieces.check_unused(choice)

    def counting(self, table: CsvColumns, chosen: Collection[str] = ()) -> tuple[str | None, str | None]:
        """Names of the column of counts and of that of weights; a column that may be one and was not named stops.

        Columns that were ``chosen`` by name are taken as variables.
        """
        count = None if self.count_column == _NONE else self.count_column
        weight = None if self.weight_column == _NONE else self.weight_column
        for argument, name in (("count", count), ("weights", weight)):
            if name is not None:
                check_names([name], table.header, argument, noun="column")
        if count is not None or weight is not None:
            return count, weight
        if self.count_column is None and "count" in table.header:
            return "count", None
        check_counting(Source.of_csv(table), {*chosen, *self.columns().spoken_of}, self._say)
        return None, None


def _written(name: str, value: Any) -> str:
    """An option of columns; that there are none is a word of its own, and words for missing are given one by one."""
    if name == "missing_values":
        return " ".join(option("missing", word) for word in value if word)
    return option(name, _NONE if value is None else value)


def cut_columns(
    table: CsvColumns, bins: Mapping[str, str | Bins], missing: Collection[str] = (), counting: str | None = None
) -> tuple[CsvColumns, dict[str, Bins]]:
    """A table with columns cut into ordered levels, and the cut points; labels that mean missing are left empty."""
    check_names(list(bins), table.header, "bins", noun="column")
    columns, categories, cuts = list(table.columns), dict(table.categories), dict[str, Bins]()
    weights = None
    if bins and counting is not None:
        weights = parse_counts(table.column(counting), name=f"column {counting!r}", where=table.where, fractional=True)
    for name, rule in bins.items():
        cells = ["" if cell in missing else cell for cell in table.column(name)]
        how = rule if isinstance(rule, Bins) else find_bins(cells, rule, weights, where=table.where, name=name)
        labels = how.apply(cells, table.where, name)
        used = set(labels)
        columns[table.header.index(name)] = tuple(labels)
        categories[name] = pd.CategoricalDtype([label for label in how.labels if label in used], ordered=True)
        cuts[name] = how
    return replace(table, columns=tuple(columns), categories=categories), cuts


def cells_of(data: Observations, name: str) -> CsvColumns:
    """A table in memory as if it had been read."""
    frame = data.to_pandas(count=None)
    header = tuple(str(column) for column in frame.columns)
    columns = [tuple(frame[column].astype(object).fillna("")) for column in frame.columns]
    types = dict(zip(header, frame.dtypes, strict=True))
    if not bool((data.counts == 1).all()):
        header, columns = (*header, "count"), [*columns, tuple(f"{count:.17g}" for count in data.counts.tolist())]
    return CsvColumns(name, header, tuple(columns), tuple(range(1, data.num_rows + 1)), (), types, "row")


def read_cells(source: Path | str, sep: str | None = None, encoding: str | None = None) -> CsvColumns:
    """Cells of a file, or of an embedded table where no file has that name."""
    embedded = [info.name for info in tables()]
    if str(source) in embedded and not Path(source).exists():
        Reading(sep, encoding).check_unused(str(source))
        return cells_of(load_table(str(source)), str(source))
    return read_table_file(source, sep=sep, encoding=encoding)


def missing_words(rows: Observations) -> str | None:
    """A sentence on labels that mostly mean missing and are levels."""

    def remedy(words: Sequence[str]) -> str:
        return f"{' '.join(option('missing', word) for word in words)} makes them missing"

    return missing_sentence(rows.domain.variables, remedy)
