"""One function that opens rows wherever they lie."""

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, Unpack, cast

import numpy as np
import pandas as pd

from ...errors import (
    check_names,
    check_type,
    check_unique,
    check_whole,
    conflict,
    none_received,
    unexpected,
    wrong_type,
)
from ...schema import Domain
from ..bins import Bins, edge_bins
from ..columns import (
    BinRules,
    ColumnOptions,
    ColumnRules,
    cells_seen,
    cuts_of_counts,
    judged_levels,
    python_words,
    warn_of_note,
)
from ..frames import FrameLike, as_observations, is_frame
from ..observations import Observations
from ..readers import Counting, asked_columns, check_levels_told, warn_of_missing_words
from ..wide import long_table
from .chunked import ChunkedRows, ColumnLevels, LabelReader, in_threads, joined_files, merged_levels, piece_levels
from .cluster import DaskRows, connected, is_dask, of_piece, partitions_of, run_tasks
from .files import RowFiles, open_files
from .folds import RowBatch
from .rows import MemoryRows, RowSource, View


def open_rows(
    data: Any,
    *,
    domain: Domain | None = None,
    columns: Sequence[str] | int | None = None,
    count: str | None = "count",
    missing_values: Collection[str] = ("",),
    chunk_rows: int = 2**18,
    cluster: Any = None,
    sep: str | None = None,
    encoding: str | None = None,
    **rules: Unpack[ColumnRules],
) -> RowSource:
    """Rows of finite variables, wherever they lie, of which any number is read piece by piece.

    Files are read as :meth:`~pyro_hoim.Observations.from_csv` reads one whole: the same encoding, delimiter, columns,
    row names left out, decimal commas and labels. Without a domain one pass finds the levels of every column, ordered
    as there: of a column with a categorical type the categories in the order in which the pieces bring them, else the
    labels seen. Ordered categories of several files have the one order that all of these are parts of.

    Args:
        data: observations or a data frame in memory; a file or a folder of Parquet or CSV files with one header, or a
            list of files; a data frame of Dask, or an array of Dask (N, d) of labels.
        domain: known variables, whose columns alone are read; no pass looks for levels.
        columns: names of the columns to read, or how many from the left; default all but the counts.
        count: name of the column of whole counts; the default may be absent; None for no such column.
        missing_values: labels that mean "missing", besides empty cells, None and NaN.
        chunk_rows: rows of a batch, at most. A batch and what its cells were read from need about
            ``chunk_rows * columns * 10`` bytes, once for each of at most eight threads.
        cluster: where the pieces are read: the address of a scheduler of ``dask.distributed``, a ``Client``, or
            ``"local"`` for threads of this machine; None for files reads them here, for Dask as ``"local"``.
        sep: of text, the character between cells; None finds it.
        encoding: of text; None finds it.
        rules: ``bins``, ``exclude`` and ``allow`` as of :func:`~pyro_hoim.data.read_columns`, without a domain. Of
            what is read piece by piece, rules that look at the rows cost two passes more.

    Returns:
        :class:`~pyro_hoim.data.RowSource`.

    Raises:
        InputError: nothing that is read; a damaged file; files of several kinds, of other columns, or whose orders of
            levels leave open which of two comes first; no rows; a cluster without workers; columns as
            :meth:`~pyro_hoim.Observations.from_pandas` refuses them; pyarrow or Dask is not installed (extra
            ``large``).
        UnknownNameError: an unknown column; a label that the domain lacks is refused when it is read.
        IntractableError: a column of more than 65,536 levels.

    Example:
        >>> source = open_rows(pd.DataFrame({"a": list("xyxx"), "b": list("0110")}))
        >>> source.domain.cardinalities
        (2, 2)
    """
    check_names(rules, list(ColumnRules.__annotations__), "open_rows", noun="option")
    return opened_rows(
        data, HowRead(domain, columns, count, missing_values, chunk_rows, cluster, sep, encoding, **rules)
    )


@dataclass(frozen=True)
class HowRead:
    """The arguments of :func:`open_rows`."""

    domain: Domain | None = None
    columns: Sequence[str] | int | None = None
    count: str | None = "count"
    missing_values: Collection[str] = ("",)
    chunk_rows: int = 2**18
    cluster: Any = None
    sep: str | None = None
    encoding: str | None = None
    bins: BinRules = "refuse"
    exclude: Collection[str] = ()
    allow: Collection[str] = ()
    is_checked: bool = True  # whether columns are refused that name rows, or that seem to hold counts or weights

    @property
    def rules(self) -> Mapping[str, str | Bins]:
        """Rules by column."""
        return {} if isinstance(self.bins, str) else self.bins


def opened_rows(data: Any, how: HowRead) -> RowSource:
    """The rows of :func:`open_rows`."""
    check_whole(how.chunk_rows, "chunk_rows")
    if isinstance(how.missing_values, str):
        raise wrong_type("missing_values", "a collection of labels", received=repr(how.missing_values))
    domain, columns, count = how.domain, how.columns, how.count
    # What is in memory is read at once.
    data = long_table(data) if isinstance(data, pd.Series) else data
    if isinstance(data, Observations) or (is_frame(data) and not is_dask(data)):
        if isinstance(data, Observations) and how.rules:
            raise conflict("bins", "cut columns of numbers, and observations have levels")
        rules = {"bins": how.bins, "exclude": how.exclude, "allow": how.allow, "write": python_words}
        rows = as_observations(
            cast(FrameLike, data),
            domain=domain,
            count=count,
            columns=columns,
            missing_values=how.missing_values,
            **({} if domain is not None else rules),  # type: ignore[arg-type]
        )
        return MemoryRows.of(rows, chunk_rows=how.chunk_rows)
    # Pieces of Dask, or of files; a small table in wide form is made long as a whole.
    missing = tuple(sorted({"", *how.missing_values}))
    asked = ColumnOptions(columns=columns, bins=how.bins, exclude=how.exclude, allow=how.allow)
    is_open_rule = asked.common_rule != "refuse" or any(map(_looks_at_rows, asked.rules.values()))
    if is_open_rule and domain is not None:
        hint = "give edges, such as {'age': 'edges:20,40,60'}"
        raise unexpected("bins", "edges by column, for levels that are known", how.bins, hint)
    known = {name: rule for name, rule in asked.rules.items() if not _looks_at_rows(rule)}
    cuts = {name: edge_bins(rule, name) if isinstance(rule, str) else rule for name, rule in known.items()}
    if is_dask(data):
        labels = LabelReader(False, False, missing, "the rows", cuts)
        client = connected(how.cluster)
        (pieces, header), again = partitions_of(data), data
    else:
        files = data if isinstance(data, RowFiles) else files_of(data, how)
        is_open = how.is_checked and domain is None and columns is None and count == "count"
        if is_open and (wide := files.wide_table()) is not None:
            rows = Observations.from_csv(wide, missing_values=missing)
            return MemoryRows.of(rows, chunk_rows=how.chunk_rows)
        labels = LabelReader(True, files.is_text, missing, files.source, cuts)
        pieces, header, client, again = files.pieces, list(files.header), files.client, files
    check_unique(header, f"columns of {labels.source}")
    # Levels that are not known are found in one pass, with what speaks against columns.
    names, domain, count, is_told = asked_columns(header, labels.source, domain, columns, count, exclude=how.exclude)
    options: dict[str, Any] = {"pieces": tuple(pieces), "labels": labels, "count": count, "chunk_rows": how.chunk_rows}
    check_names(list(cuts), header, "bins", noun="column")
    if domain is None:
        levels_of, options["lengths"] = _found(pieces, names, labels, how.chunk_rows, client)
        empty = {name: sum(options["lengths"]) for name, levels in levels_of.items() if not levels.labels}
        empty = empty if how.is_checked and len(empty) < len(names) else {}
        read = {name: levels for name, levels in levels_of.items() if name not in empty}
        domain = Domain(merged_levels(name, levels, cuts.get(name)) for name, levels in read.items())
        if is_open_rule:  # what looks at the rows needs their counts, and then the levels are read anew
            rows = _rows_of(domain, options, client)
            counts = rows.fold(partial(_level_counts, sizes=domain.cardinalities))
            parts = np.split(counts, np.cumsum(domain.cardinalities)[:-1])
            total = cells_seen(sum(options["lengths"]), rows.total_count, len(names))
            bins = {**asked.rules, **cuts, "*": asked.common_rule}
            points, note = cuts_of_counts(dict(zip(domain, parts, strict=True)), total, replace(asked, bins=bins))
            warn_of_note(note)
            return opened_rows(again, replace(how, bins=cuts | points))
        if how.is_checked and not is_told:
            check_levels_told(domain.variables, labels.source, _say)
        if how.is_checked:
            domain = _judged(domain, how, options, client, empty)
            warn_of_missing_words(domain.variables)
    return _rows_of(domain, options, client)


def _looks_at_rows(rule: str | Bins) -> bool:
    """Whether a rule needs to know how often a column has its values."""
    return isinstance(rule, str) and not rule.startswith("edges:")


def _level_counts(batch: RowBatch, sizes: Sequence[int]) -> np.ndarray:
    """How often rows of a batch have each level of each column, one column after the other."""
    known = [codes >= 0 for codes in batch.codes]
    counts = [
        np.bincount(codes[is_known], batch.weights[is_known], size)
        for codes, is_known, size in zip(batch.codes, known, sizes, strict=True)
    ]
    return np.rint(np.concatenate(counts)).astype(np.int64) if counts else np.zeros(0, dtype=np.int64)


def _rows_of(domain: Domain, options: Mapping[str, Any], client: Any) -> RowSource:
    """The rows over a domain."""
    options = {**options, "view": View(domain.names)}
    return ChunkedRows(domain, **options) if client is None else DaskRows(domain, client=client, **options)


def _judged(domain: Domain, how: HowRead, options: Mapping[str, Any], client: Any, empty: Mapping[str, int]) -> Domain:
    """The variables without the columns that are left out; refused where one has to be decided on."""
    lengths = sum(options["lengths"])

    def total() -> float:
        # Rows may be cells of many observations; the sum of their counts costs a pass, so it is asked for only here.
        rows = _rows_of(domain, options, client)
        return lengths if options["count"] is None else cells_seen(lengths, rows.total_count, len(domain))

    asked = ColumnOptions(columns=how.columns, bins=how.bins, exclude=how.exclude, allow=how.allow)
    names, note = judged_levels({v: v.labels for v in domain}, cache(total), asked, options["labels"].source, empty)
    warn_of_note(note)
    return domain.project(names)


def files_of(data: Any, how: HowRead) -> RowFiles:
    """The files that a path stands for, judged but not read; they may be opened in place of their path."""
    check_type(data, str | os.PathLike | list | tuple, "data", "observations, a data frame, or a path")
    client = None if how.cluster is None else connected(how.cluster)
    return open_files(data, how.sep, how.encoding, partial(_run, client), client)


def _run(client: Any, function: Callable[..., Any], tasks: Sequence[tuple[Any, ...]]) -> Iterator[Any]:
    if client is not None:
        return run_tasks(client, function, tasks, in_order=True)
    return in_threads(function, tasks)


def _say(found: Counting) -> str:
    """How to say what a column is that seems to hold counts or weights."""
    hint = f"name columns, or pass count={found.name!r}" if found.role == "count" else "name the columns to read"
    return f"{hint}; count=None takes all as they are"


def _found(
    pieces: Sequence[Any], names: Sequence[str], labels: LabelReader, chunk_rows: int, client: Any
) -> tuple[dict[str, ColumnLevels], tuple[int, ...]]:
    """What the columns of all pieces hold, and how many rows each has, in one pass."""
    tasks = [(piece, names, labels, chunk_rows) for piece in pieces]
    parts: Iterator[tuple[int, dict[str, ColumnLevels]]] = _run(client, partial(of_piece, piece_levels), tasks)
    lengths: list[int] = []
    # Pieces of one file continue its levels; files must agree on theirs.
    by_file: dict[str, dict[Any, ColumnLevels]] = {name: {} for name in names}  # of every file
    for position, (piece, (rows, column_levels)) in enumerate(zip(pieces, parts, strict=True)):
        lengths.append(rows)
        file = getattr(piece, "path", position)
        for name, levels in column_levels.items():
            by_file[name][file] = by_file[name][file].joined(levels) if file in by_file[name] else levels
    if not sum(lengths):
        raise none_received(labels.source, "at least one row")
    return {name: joined_files(name, [*by_file[name].values()]) for name in names}, tuple(lengths)
