"""Rows in files, read piece by piece: memory holds a few batches, however many rows there are."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import accumulate, chain
from operator import methodcaller
from typing import Any, TypeVar

import numpy as np

from ...schema import Domain
from ..encoding import has_levels
from ..frames import as_frame
from .folds import RowBatch, batch_type
from .labels import ColumnLevels, LabelReader
from .rows import Fold, RowSource, View

__all__ = ["ChunkedRows", "FramePiece", "Piece", "PieceRows", "in_threads"]


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
        kind = batch_type([variable.cardinality for variable in variables])
        names = needed if self.count is None else (*needed, self.count)
        for columns in piece.read(names, self.chunk_rows):
            num_rows = max(map(len, columns), default=0)
            codes = np.empty((len(needed), num_rows), dtype=kind)
            for variable, column, out in zip(variables, columns, codes, strict=False):
                self.labels.code(variable, column, out)
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
    rows, found = 0, dict[str, ColumnLevels]()
    for columns in piece.read(names, chunk_rows):
        rows += max(map(len, columns), default=0)
        for name, column in zip(names, columns, strict=True):
            levels = labels.levels(name, column, name in piece.categorical)
            found[name] = found[name].joined(levels) if name in found else levels
    return rows, found


_MOST_THREADS = 8


@dataclass(frozen=True, eq=False)
class PieceRows(RowSource):
    """Rows in pieces that are read independently of one another.

    Attributes:
        pieces: of rows, in order.
        labels: how cells become labels.
        count: column of counts.
        lengths: rows of every piece; None counts them when they are needed.
    """

    pieces: tuple[Any, ...] = field(kw_only=True)
    labels: LabelReader = field(kw_only=True)
    count: str | None = field(default=None, kw_only=True)
    lengths: tuple[int, ...] | None = field(default=None, kw_only=True)

    @cached_property
    def _reader(self) -> PieceReader:
        return PieceReader(self.whole, self.labels, self.count, self.view, self.chunk_rows)

    @cached_property
    def _starts(self) -> list[int]:
        """Position of the first row of every piece."""
        return [0, *accumulate(self._lengths)][:-1]

    @cached_property
    def _lengths(self) -> Sequence[int]:
        return self._counted() if self.lengths is None else self.lengths

    def piece_starts(self) -> Sequence[int]:
        """Positions of the first rows of the pieces."""
        return self._starts

    @property
    def _has_counts(self) -> bool:
        return self.count is not None

    def _num_all(self) -> int:
        return sum(self._lengths)

    @abstractmethod
    def _counted(self) -> list[int]:
        """Rows of every piece."""


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

    def _counted(self) -> list[int]:
        return [*in_threads(methodcaller("num_rows"), self.pieces)]

    def _partial(self, fold: Fold[T]) -> Iterator[T]:
        work = partial(self._reader.folded, fold=fold, empty=self._empty())
        return in_threads(lambda pair: work(*pair), zip(self.pieces, self._starts, strict=True))

    def piece_batches(self, piece: int) -> Iterator[RowBatch]:
        """The batches of one piece."""
        return self._reader.batches(self.pieces[piece], self._starts[piece])

    def stream(self, function: Callable[[RowBatch], T]) -> Iterator[T]:
        """What a function makes of each batch, in the order of the rows."""
        for piece, start in zip(self.pieces, self._starts, strict=True):
            yield from map(function, self._reader.batches(piece, start))


def in_threads(function: Callable[[Any], T], items: Iterable[Any]) -> Iterator[T]:
    """What a function makes of some items, in their order; a few at a time, and no more are begun after a fault."""
    most = min(_MOST_THREADS, os.cpu_count() or 1)
    waiting = deque[Future[T]]()
    pool = ThreadPoolExecutor(most, "pyro-hoim-rows")
    try:
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) > most:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
