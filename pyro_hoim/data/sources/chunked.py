"""Rows in files, read piece by piece: memory holds a few batches, however many rows there are."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import accumulate
from operator import methodcaller
from typing import Any, TypeVar

from .folds import RowBatch
from .labels import LabelReader
from .pieces import PieceReader
from .rows import Fold, RowSource

__all__ = ["ChunkedRows", "PieceRows", "in_threads"]

T = TypeVar("T")
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
