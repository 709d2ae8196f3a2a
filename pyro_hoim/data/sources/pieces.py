"""Pieces of rows, and the coded batches that become of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeVar

import numpy as np

from ...schema import Domain
from ..encoding import has_levels
from ..frames import as_frame
from .folds import RowBatch, batch_type
from .labels import ColumnLevels, LabelReader
from .rows import Fold, View

__all__ = ["FramePiece", "Piece", "PieceReader"]

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
