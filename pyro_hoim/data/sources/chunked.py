"""Rows in files, read piece by piece: memory holds a few batches, however many rows there are."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property, reduce
from graphlib import CycleError, TopologicalSorter
from itertools import accumulate, chain, pairwise
from operator import methodcaller
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pandas as pd

from ...budgets import check_size
from ...errors import InputError, conflict
from ...schema import Domain, Variable
from ..bins import Bins
from ..counting import code_type
from ..encoding import codes_of_cells, factorise, has_levels, labels_of_values, levels_of, parse_counts, variable_of
from ..frames import as_frame
from .folds import RowBatch
from .rows import Fold, RowSource, View

# Columns of Arrow: which levels they hold, and the codes of their cells.

MAX_FOUND = 2**16
"""Levels of one column that are looked for: with more it names rows, or holds numbers."""
_MAX_RANGE = 2**16


class ColumnLevels(NamedTuple):
    """What some rows hold in one column."""

    labels: frozenset[str]  # the labels seen
    categories: tuple[str, ...] | None  # the levels in their order, where the column has a type that says them
    is_ordered: bool  # whether this order has a meaning

    def joined(self, other: ColumnLevels) -> ColumnLevels:
        """What both parts of one file hold: levels in the order in which they come, as pandas unites its parts.

        Where a part has no type that says them, all are labels seen.
        """
        labels = self.labels | other.labels
        if self.categories is not None and other.categories is not None:
            categories = (*dict.fromkeys((*self.categories, *other.categories)),)
            return ColumnLevels(labels, categories, self.is_ordered and other.is_ordered)
        return ColumnLevels(labels.union(self.categories or (), other.categories or ()), None, False)


def joined_files(name: str, parts: Sequence[ColumnLevels]) -> ColumnLevels:
    """What a column holds in all files, or in all partitions.

    Ordered levels have the order of which every file has a part, such as low, mid, high of a file that has low, high
    and one that has low, mid, high.
    """
    merged = reduce(ColumnLevels.joined, parts)
    orders = [*dict.fromkeys(part.categories for part in parts if part.categories)]
    if not merged.is_ordered or len(orders) < 2:
        return merged
    # Neighbours of all orders make a graph, whose one order has neighbours of theirs alone.
    pairs = {pair for order in orders for pair in pairwise(order)}
    sorter = TopologicalSorter[str]({level: () for order in orders for level in order})
    for before, after in pairs:
        sorter.add(after, before)
    try:
        levels = tuple(sorter.static_order())
        if {*pairwise(levels)} <= pairs:
            return merged._replace(categories=levels)
    except CycleError:
        pass
    shown = " and ".join(" < ".join(order[:6]) for order in orders[:2])
    problem = f"its files say {shown}, which leaves its order open"
    raise conflict(f"column {name!r}", problem, "write the files with one order, or give the domain")


def merged_levels(name: str, found: ColumnLevels, bins: Bins | None = None) -> Variable:
    """The variable of a column: levels as :meth:`~pyro_hoim.Observations.from_pandas` orders them."""
    if bins is not None:
        levels = tuple(label for label in bins.labels if label in found.labels)
        found = found._replace(categories=levels, is_ordered=True)
    levels = levels_of(found.labels) if found.categories is None else found.categories
    check_count(name, len(levels))
    return variable_of(name, levels, is_ordered=found.categories is not None and found.is_ordered)


def check_count(name: str, number: int) -> None:
    """Refuse a column of too many levels."""
    hint = "leave the column out, bin its numbers, or give its domain"
    check_size(number, MAX_FOUND, "levels", f"column {name!r}", hint)


@dataclass(frozen=True)
class LabelReader:
    """How cells become labels."""

    is_file: bool  # whether cells are told apart by their texts alone, as those of files are
    is_text: bool  # whether blanks around labels are removed, as in files of text
    missing_values: tuple[str, ...]  # labels that mean "missing", the empty one among them
    source: str  # what is read, for messages
    # cut points of columns of numbers, whose labels are the levels between them
    bins: Mapping[str, Bins] = field(default_factory=dict[str, Bins])

    def levels(self, name: str, column: Any, is_categorical: bool) -> ColumnLevels:
        """Levels of a column."""
        from ..kernels import mark_values

        positions, distinct, is_ordered = self._parts(name, column)
        texts, seen = self._texts(name, distinct), np.zeros(len(distinct), dtype=np.bool_)
        mark_values(positions, seen)
        labels = frozenset(text for text, one in zip(texts, seen, strict=True) if one) - {*self.missing_values}
        check_count(name, len(labels))
        if not is_categorical or name in self.bins:
            return ColumnLevels(labels, None, False)
        categories = tuple(dict.fromkeys(text for text in texts if text not in self.missing_values))
        return ColumnLevels(labels, categories, is_ordered)

    def code(self, variable: Variable, column: Any, out: np.ndarray) -> None:
        """Write the codes of a column (n,) to a row of a batch, -1 where missing."""
        positions, distinct, _ = self._parts(variable.name, column)
        texts = self._texts(variable.name, distinct)
        values = texts if self.is_file or variable.name in self.bins else distinct
        missing = self.missing_values
        out[:] = codes_of_cells(variable, positions, values, texts, missing, lambda _: self.source, out.dtype)

    def counts(self, name: str, column: Any) -> np.ndarray:
        """Whole counts of a column (n,) int64."""
        if hasattr(column, "to_pylist"):
            column = pd.Series(column.to_pylist(), dtype=object)
        hint = "pass count=None if the column does not say how often rows were seen"
        try:
            numbers = parse_counts(column, name=f"column {name!r}", where=lambda _: self.source, fractional=False)
        except InputError as error:
            raise error.replace(hint=f"{error.hint}; {hint}") from None
        return numbers.astype(np.int64)

    def _parts(self, name: str, column: Any) -> tuple[np.ndarray, Sequence[Any], bool]:
        """Positions (n,) into the values that a column may have, -1 where missing, and whether these have an order."""
        if isinstance(kind := getattr(column, "dtype", None), np.dtype) and kind.kind in "iu":
            low, high = int(column.min()), int(column.max())
            if high - low < _MAX_RANGE and high < 2**63:  # faster than to look for the numbers that there are
                return np.asarray(column, dtype=np.int64) - low, range(low, high + 1), False
        where = f"{self.source} column {name!r}"
        positions, distinct, dtype = factorise(column, where)
        return positions, distinct, dtype is not None and bool(dtype.ordered)

    def _texts(self, name: str, values: Iterable[Any]) -> list[str]:
        where = f"{self.source} column {name!r}"
        texts = labels_of_values(where, values, strip=self.is_text)
        if (bins := self.bins.get(name)) is None:
            return texts
        # Numbers become levels; texts that are levels already stay.
        known = {*bins.labels}
        texts = ["" if text in self.missing_values else text for text in texts]
        levels = bins.apply(["" if text in known else text for text in texts], lambda _: where, name)
        return [text if text in known else level for text, level in zip(texts, levels, strict=True)]


# Pieces of rows, and the coded batches that become of them.

T = TypeVar("T")


class Piece(ABC):
    """Rows that one thread or worker reads."""

    @property
    def categorical(self) -> frozenset[str]:
        """Columns whose type says their levels."""
        return frozenset()

    @abstractmethod
    def num_rows(self) -> int:
        """Number of rows."""

    @abstractmethod
    def read(self, names: Sequence[str], chunk_rows: int) -> Iterator[list[Any]]:
        """Batches of some columns, of pandas or Arrow, in order."""


@dataclass(frozen=True)
class FramePiece(Piece):
    """A data frame of pandas, such as a partition of a larger one."""

    frame: Any

    @property
    def categorical(self) -> frozenset[str]:
        """Columns whose type says their levels."""
        return frozenset(str(name) for name, dtype in self.frame.dtypes.items() if has_levels(dtype))

    def num_rows(self) -> int:
        """Number of rows."""
        return len(self.frame)

    def read(self, names: Sequence[str], chunk_rows: int) -> Iterator[list[Any]]:
        """Batches of some columns, in order."""
        frame = as_frame(self.frame)
        position = {str(name): i for i, name in enumerate(frame.columns)}
        for start in range(0, len(frame), chunk_rows):
            part = frame.iloc[start : start + chunk_rows]
            yield [part.iloc[:, position[name]] for name in names]


@dataclass(frozen=True)
class PieceReader:
    """How the pieces of a source become batches; small enough to be sent to workers."""

    domain: Domain  # all variables
    labels: LabelReader  # how cells become labels
    count: str | None  # column of counts
    view: View  # which rows and columns are looked at
    chunk_rows: int  # rows of a batch, at most

    def batches(self, piece: Piece, start: int) -> Iterator[RowBatch]:
        """Batches of a piece whose first row is at a position."""
        needed = self.view.needed
        variables = [self.domain[name] for name in needed]
        kind = code_type([variable.cardinality for variable in variables])
        names = needed if self.count is None else (*needed, self.count)
        for columns in piece.read(names, self.chunk_rows):
            num_rows = max(map(len, columns), default=0)
            codes = np.empty((len(needed), num_rows), dtype=kind)
            for variable, column, out in zip(variables, columns, codes, strict=False):
                self.labels.code(variable, column, out)
            # Rows keep their positions in the whole source, by which they are drawn and split.
            counts = None if self.count is None else self.labels.counts(self.count, columns[-1])
            positions = np.arange(start, start + num_rows)
            start += num_rows
            yield self.view.applied(RowBatch(positions, codes, counts))

    def folded(self, piece: Piece, start: int, fold: Fold[T], empty: RowBatch) -> T:
        """What a fold makes of a piece."""
        return fold.combine(map(fold, chain([empty], self.batches(piece, start))))

    def mapped(self, piece: Piece, start: int, function: Callable[[RowBatch], T]) -> list[T]:
        """What a function makes of the batches of a piece."""
        return [function(batch) for batch in self.batches(piece, start)]


def piece_levels(
    piece: Piece, names: Sequence[str], labels: LabelReader, chunk_rows: int
) -> tuple[int, dict[str, ColumnLevels]]:
    """Number of rows of a piece, and what its columns hold."""
    rows, levels_of = 0, dict[str, ColumnLevels]()
    for columns in piece.read(names, chunk_rows):
        rows += max(map(len, columns), default=0)
        for name, column in zip(names, columns, strict=True):
            levels = labels.levels(name, column, name in piece.categorical)
            levels_of[name] = levels_of[name].joined(levels) if name in levels_of else levels
    return rows, levels_of


_MOST_THREADS = 8


@dataclass(frozen=True, eq=False)
class PieceRows(RowSource):
    """Rows in pieces that are read independently of one another."""

    pieces: tuple[Any, ...] = field(kw_only=True)  # of rows, in order
    labels: LabelReader = field(kw_only=True)  # how cells become labels
    count: str | None = field(default=None, kw_only=True)  # column of counts
    lengths: tuple[int, ...] | None = field(default=None, kw_only=True)  # rows of every piece, where they are known

    @cached_property
    def _reader(self) -> PieceReader:
        return PieceReader(self.whole, self.labels, self.count, self.view, self.chunk_rows)

    @cached_property
    def _starts(self) -> list[int]:
        """Position of the first row of every piece."""
        return [0, *accumulate(self._lengths)][:-1]

    @cached_property
    def _lengths(self) -> Sequence[int]:
        if self.lengths is not None:
            return self.lengths
        return [*self._run(methodcaller("num_rows"), [(piece,) for piece in self.pieces])]

    def piece_starts(self) -> Sequence[int]:
        """Positions of the first rows of the pieces."""
        return self._starts

    @property
    def _has_counts(self) -> bool:
        return self.count is not None

    def _num_all(self) -> int:
        return sum(self._lengths)

    def _partial(self, fold: Fold[T]) -> Iterator[T]:
        return self._run(self._reader.folded, self._tasks(fold, self._empty()), in_order=False)

    def _tasks(self, *others: Any) -> list[tuple[Any, ...]]:
        return [(piece, start, *others) for piece, start in zip(self.pieces, self._starts, strict=True)]

    @abstractmethod
    def _run(self, function: Callable[..., T], tasks: list[tuple[Any, ...]], in_order: bool = True) -> Iterator[T]:
        """What a function makes of each task, a piece and more."""


@dataclass(frozen=True, eq=False)
class ChunkedRows(PieceRows):
    """Rows of Parquet or CSV files, read in pieces by a few threads; made by :func:`~pyro_hoim.data.open_rows`.

    Example:
        >>> import tempfile, pandas as pd
        >>> from pathlib import Path
        >>> from pyro_hoim.data import open_rows
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     for name, wet in (("a", "yyn"), ("b", "nny")):
        ...         pd.DataFrame({"wet": list(wet), "n": [1, 2, 3]}).to_csv(Path(folder, f"{name}.csv"), index=False)
        ...     rows = open_rows(folder)
        ...     type(rows).__name__, rows.num_rows, rows.marginal_counts([("wet",), ("wet", "n")]).tolist()
        ('ChunkedRows', 6, [3, 3, 1, 1, 1, 1, 1, 1])
    """

    def _run(self, function: Callable[..., T], tasks: list[tuple[Any, ...]], in_order: bool = True) -> Iterator[T]:
        _ = in_order  # threads end about as they begin
        return in_threads(function, tasks)

    def piece_batches(self, piece: int) -> Iterator[RowBatch]:
        """The batches of one piece."""
        return self._reader.batches(self.pieces[piece], self._starts[piece])

    def stream(self, function: Callable[[RowBatch], T]) -> Iterator[T]:
        """What a function makes of each batch, in the order of the rows."""
        for piece, start in zip(self.pieces, self._starts, strict=True):
            yield from map(function, self._reader.batches(piece, start))


def in_threads(function: Callable[..., T], tasks: Iterable[tuple[Any, ...]]) -> Iterator[T]:
    """What a function makes of some tasks, in their order; a few at a time, and no more are begun after a fault."""
    most = min(_MOST_THREADS, os.cpu_count() or 1)
    waiting = deque[Future[T]]()
    pool = ThreadPoolExecutor(most, "pyro-hoim-rows")
    try:
        # A few tasks are ahead of what is taken, so that memory holds a few results.
        for task in tasks:
            waiting.append(pool.submit(function, *task))
            if len(waiting) > most:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
