"""Pieces of rows in columns of Arrow, and the coded batches that become of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from ...schema import Domain
from ..encoding import factorise, has_levels, labels_of_values
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
    def read(self, names: Sequence[str], chunk_rows: int) -> Iterator[Any]:
        """Batches of Arrow of some columns, in order."""


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

    def read(self, names: Sequence[str], chunk_rows: int) -> Iterator[Any]:
        """Batches of Arrow of some columns, in order."""
        import pyarrow as pa

        position = {str(name): i for i, name in enumerate(self.frame.columns)}
        for start in range(0, len(self.frame), chunk_rows):
            part = self.frame.iloc[start : start + chunk_rows]
            columns = [_array(name, part.iloc[:, position[name]]) for name in names]
            yield pa.RecordBatch.from_arrays(columns, names=list(names))


def _array(name: str, values: pd.Series) -> Any:
    """A column of a data frame: numbers as they are, else labels, by the functions that read data frames."""
    import pyarrow as pa

    if isinstance(values.dtype, np.dtype) and values.dtype.kind in "biuf":
        return pa.array(values, from_pandas=True)
    positions, distinct, dtype = factorise(values)
    labels = pa.array(labels_of_values(f"column {name!r}", distinct), pa.string())
    codes = pa.array(positions, mask=positions < 0)
    return pa.DictionaryArray.from_arrays(codes, labels, ordered=dtype is not None and bool(dtype.ordered))


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
        for table in piece.read(names, self.chunk_rows):
            codes = np.empty((len(needed), table.num_rows), dtype=kind)
            for i, variable in enumerate(variables):
                self.labels.code(variable, table.column(i), codes[i])
            counts = None if self.count is None else self.labels.counts(self.count, table.column(len(needed)))
            positions = np.arange(start, start + table.num_rows)
            start += table.num_rows
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
    for table in piece.read(names, chunk_rows):
        rows += table.num_rows
        for i, name in enumerate(names):
            levels = labels.levels(name, table.column(i), name in piece.categorical)
            found[name] = found[name].joined(levels) if name in found else levels
    return rows, found
