"""Rows in memory behind the protocol of rows that need not be."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

import numpy as np

from ...errors import conflict
from ..observations import Observations
from .folds import RowBatch, batch_type
from .rows import Fold, RowSource, View

__all__ = ["MemoryRows"]

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class MemoryRows(RowSource):
    """Observations as a source of rows; made by :func:`~pyro_hoim.data.open_rows` and :meth:`of`.

    Example:
        >>> import torch
        >>> from pyro_hoim import Domain
        >>> rows = MemoryRows.of(Observations(Domain.from_cardinalities([2]), torch.tensor([[0], [1], [1]])))
        >>> rows.num_rows, [part.num_rows for part in rows.split([0.5, 0.5], seed=1)]
        (3, [2, 1])
    """

    data: Observations = field(kw_only=True)

    @classmethod
    def of(cls, data: Observations, *, chunk_rows: int = 2**18) -> MemoryRows:
        """The rows of observations; InputError for weights that are not whole."""
        if not data.has_whole_counts:
            problem = "rows of fractional weights are in memory already, and sums of fractions depend on their order"
            raise conflict("data", problem, "use the observations themselves")
        return cls(data.domain, data=data, view=View(data.domain.names), chunk_rows=chunk_rows)

    @property
    def _has_counts(self) -> bool:
        return self._is_counted

    @cached_property
    def _is_counted(self) -> bool:
        return bool((self.data.counts != 1).any())

    def _num_all(self) -> int:
        return self.data.num_rows

    def _partial(self, fold: Fold[T]) -> Iterator[T]:
        return self.stream(fold)

    def piece_starts(self) -> Sequence[int]:
        """Positions of the first rows of the pieces."""
        return range(0, self.data.num_rows, self.chunk_rows)

    def piece_batches(self, piece: int) -> Iterator[RowBatch]:
        """The batches of one piece."""
        yield self._batch(self.piece_starts()[piece])

    def stream(self, function: Callable[[RowBatch], T]) -> Iterator[T]:
        """What a function makes of each batch, in the order of the rows."""
        for start in self.piece_starts():
            yield function(self._batch(start))

    def _batch(self, start: int) -> RowBatch:
        """The rows from a position on."""
        columns = list(self.whole.indices(self.view.needed))
        kind = batch_type([self.whole.cardinalities[i] for i in columns])
        piece = slice(start, start + self.chunk_rows)
        part = np.ascontiguousarray(self.data.codes.numpy()[piece][:, columns].T.astype(kind))
        counts = self.data.counts.numpy()[piece].astype(np.int64) if self._has_counts else None
        return self.view.applied(RowBatch(np.arange(start, start + part.shape[1]), part, counts))
