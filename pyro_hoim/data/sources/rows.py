"""Rows that need not be in memory: what is asked of them, and the answers that are alike wherever they lie."""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol, Self, TypeVar

import numpy as np
import torch

from ...budgets import MAX_CELLS, check_cells, check_size
from ...errors import MissingDataError, check_whole, conflict, none_received, wrong_type
from ...schema import Domain
from ..counting import check_split, code_type
from ..observations import Observations
from .folds import DistinctCells, LowestRows, MarginCounts, RowBatch, row_hashes, share_bounds

T = TypeVar("T")


class Fold(Protocol[T]):
    """What is computed from each batch, and joined in any order and grouping to the same value."""

    def __call__(self, batch: RowBatch, /) -> T:
        """The value of a batch, which may be empty."""
        ...

    def combine(self, parts: Iterable[T], /) -> T:
        """The value of several batches together."""
        ...


@dataclass(frozen=True)
class Sum:
    """The sum of integer arrays that a function makes of batches."""

    function: Callable[[RowBatch], np.ndarray]

    def __call__(self, batch: RowBatch) -> np.ndarray:
        """The array of a batch."""
        found = np.asarray(self.function(batch))
        if found.dtype.kind not in "iub":
            hint = "round numbers to multiples of a power of two, whose sums are equal in any order"
            raise wrong_type("fold", "a function that returns integers", received=found.dtype, hint=hint)
        return found.astype(np.int64)

    def combine(self, parts: Iterable[np.ndarray]) -> np.ndarray:
        """The sum."""
        total: Any = 0
        for part in parts:
            total = total + part
        return total


@dataclass(frozen=True)
class View:
    """Which of the rows and columns of a source are looked at."""

    names: tuple[str, ...]  # of the columns, in schema order
    complete: tuple[str, ...] = ()  # columns that rows without a missing cell are wanted of
    shares: tuple[tuple[int, int, int, int], ...] = ()  # rows by their hash: seed, stream, lowest, and the end

    @property
    def needed(self) -> tuple[str, ...]:
        """Columns that are read: those looked at, then others."""
        return (*self.names, *(name for name in self.complete if name not in self.names))

    def applied(self, batch: RowBatch) -> RowBatch:
        """The rows and columns of a batch of the columns needed."""
        is_wanted = np.ones(batch.num_rows, dtype=np.bool_)
        for seed, stream, low, high in self.shares:
            hashes = row_hashes(batch.positions, seed, stream)
            is_wanted &= (hashes >= low) & (hashes < high)
        if self.complete:
            complete = [self.needed.index(name) for name in self.complete]
            is_wanted &= (batch.codes[complete] >= 0).all(0)
        if len(self.names) < len(self.needed):
            batch = batch._replace(codes=batch.codes[: len(self.names)])
        return batch if is_wanted.all() else batch.rows(is_wanted)


@dataclass(frozen=True, eq=False)
class RowSource(ABC):
    """Rows of finite variables wherever they lie: in memory, in files read piece by piece, or on a cluster.

    All three give the same bits: what is computed from them are whole numbers, which add up alike in any order.
    :func:`~pyro_hoim.data.open_rows` makes one. A source reads its rows anew for every question; :meth:`distinct`
    brings them into memory once, where few of them differ.

    Args:
        whole: all variables that can be looked at, with their levels.
        view: which rows and columns are looked at.
        chunk_rows: rows of a batch, at most.

    Example:
        >>> from pyro_hoim.data import MemoryRows
        >>> domain = Domain.from_cardinalities({"a": 2, "b": 2, "c": 3})
        >>> rows = MemoryRows.of(Observations(domain, torch.tensor([[0, 1, 2], [1, 1, 0], [0, 1, 2]])))
        >>> rows.marginal_counts([("a", "b"), ("c",)]).tolist()  # in one pass over the rows
        [0, 2, 0, 1, 1, 0, 2]
        >>> rows.distinct().counts.tolist(), rows.fold(lambda batch: batch.codes.sum(1)).tolist()
        ([2.0, 1.0], [1, 3, 4])
    """

    whole: Domain
    view: View = field(kw_only=True)
    chunk_rows: int = field(default=2**18, kw_only=True)

    @cached_property
    def domain(self) -> Domain:
        """The variables looked at."""
        return self.whole.project(self.view.names)

    @cached_property
    def num_rows(self) -> int:
        """Number of rows looked at; of files and views it may cost a pass."""
        if self.view == View(self.whole.names):
            return self._num_all()
        return int(self._on(self.domain.names[:1]).fold(lambda batch: np.array(batch.num_rows)))

    @cached_property
    def total_count(self) -> float:
        """Sum of the counts of the rows."""
        return float(self._on(self.domain.names[:1]).fold(lambda batch: np.array(batch.weights.sum())))

    @cached_property
    def num_missing_cells(self) -> int:
        """Number of missing cells; it costs a pass."""
        return int(self.fold(lambda batch: np.array((batch.codes < 0).sum())))

    def fold(self, function: Callable[[RowBatch], np.ndarray]) -> np.ndarray:
        """Sum over batches of what a function makes of each: an array of integers of one shape, also of no rows.

        On a cluster the function is sent to the workers, so it must be one that can be pickled (cloudpickle).
        """
        return self.reduce(Sum(function))

    def reduce(self, fold: Fold[T]) -> T:
        """What a fold makes of all batches, in one pass."""
        return fold.combine(itertools.chain([fold(self._empty())], self._partial(fold)))

    def batches(self) -> Iterator[RowBatch]:
        """The rows in their order, a piece of at most ``chunk_rows`` at a time."""
        return self.stream(itself)

    def marginal_counts(self, edges: Iterable[Sequence[str]], *, max_cells: int = MAX_CELLS) -> torch.Tensor:
        """Counts of the cells of many sets of variables in one pass over the rows, long, set after set.

        Each thread or worker holds one table of all cells, 8 bytes each, beside one batch of rows.

        Args:
            edges: sets of names; the axes of each table follow the set's own order.
            max_cells: largest allowed number of cells of all tables.

        Raises:
            UnknownNameError: an unknown variable; InputError: one repeated inside a set.
            MissingDataError: a variable of some set has missing cells; their number is given.
            IntractableError: more than ``max_cells`` cells.
        """
        # Only the columns of the sets are read.
        wanted = [(edge,) if isinstance(edge, str) else tuple(edge) for edge in edges]
        used = {name for edge in wanted for name in edge if self.domain.indices(edge) is not None}
        check_size(self.num_cells(wanted), max_cells, "cells", "marginal_counts", "ask for fewer or smaller sets")
        part = self._on(self.domain.project(used).names) if used else self
        sets = tuple(part.domain.indices(edge) for edge in wanted)
        totals = part.reduce(Sum(MarginCounts(part.domain.cardinalities, sets)))
        counts, missing = np.split(totals, [len(totals) - len(part.domain)])
        if used and missing.any():
            names = ", ".join(repr(name) for name, n in zip(part.domain.names, missing, strict=True) if n)
            hint = "use drop_missing() first"
            raise MissingDataError(f"{missing.sum()} missing cells in {names}", argument="marginal_counts", hint=hint)
        return torch.from_numpy(counts.copy())

    def num_cells(self, edges: Iterable[Sequence[str]]) -> int:
        """Number of cells of the tables of some sets: 8 bytes each while :meth:`marginal_counts` runs."""
        return sum(math.prod(self.domain[name].cardinality for name in edge) for edge in edges)

    def distinct(self, *, max_rows: int | None = None) -> Observations:
        """The distinct rows with their counts, in lexicographic order, with which everything works at once.

        Args:
            max_rows: the most that may be held; by default as many as fit 2^27 cells.

        Raises:
            IntractableError: there are more.
        """
        budget = MAX_CELLS // max(1, len(self.domain)) if max_rows is None else check_whole(max_rows, "max_rows")
        fold = DistinctCells(self.domain.cardinalities, budget)
        cells = fold.cells(self.reduce(fold))
        return Observations(self.domain, torch.from_numpy(cells.codes), torch.from_numpy(cells.counts))

    def sample(self, number: int, seed: int) -> Observations:
        """Some rows drawn without replacement, in their order, at the cost of a pass; all rows where there are fewer.

        They are the rows of the smallest hashes of position and seed, so they do not depend on how rows are read.
        """
        check_cells(check_whole(number, "number"), len(self.domain), "number", noun="rows")
        _, batch = self.reduce(LowestRows(number, check_whole(seed, "seed", 0)))
        return self._observed(batch.rows(np.argsort(batch.positions)))

    def minibatches(self, size: int, seed: int, *, per_piece: int = 1) -> Iterator[Observations]:
        r"""Random rows without end, weighted so that sums over them estimate those over all rows without bias.

        .. math:: \mathrm{E} \Big[\frac Nm \sum_{k=1}^m f(x_{i_k})\Big] = \sum_{n=1}^N f(x_n)

        A piece of the source (a group of rows of Parquet, a file of text, a partition of Dask, ``chunk_rows`` rows in
        memory) is drawn with the probability of its share of the N rows, then m rows of it with replacement: every row
        is as likely as any other. One pass counts the pieces, then a batch costs the reading of one piece. Rows of one
        piece may be alike, which is no bias but a larger spread: its variance has a part that is that of the mean of a
        piece, and does not fall with m. Gradients of steps with such batches are unbiased; what an optimiser makes of
        them after finitely many steps is not (its error falls with the step size). Which rows are drawn depends on how
        the source is cut into pieces.

        Args:
            size: rows of a batch, m.
            seed: a whole number from 0.
            per_piece: batches that are drawn from a piece before another one is; their rows are from that piece alone.

        Returns:
            Batches, every row with the count N / m.

        Raises:
            InputError: numbers out of range, or no rows.

        Example:
            >>> from pyro_hoim.data import MemoryRows
            >>> domain = Domain.from_cardinalities({"a": 2, "b": 2})
            >>> rows = MemoryRows.of(Observations(domain, torch.tensor([[0, 1], [1, 1], [0, 1], [0, 0]])))
            >>> batch = next(rows.minibatches(2, seed=1))
            >>> batch.num_rows, batch.counts.tolist(), batch.total_count
            (2, [2.0, 2.0], 4.0)
        """
        check_cells(check_whole(size, "size"), len(self.domain), "size", noun="rows")
        check_whole(per_piece, "per_piece")
        return drawn_batches(self, size, np.random.default_rng(check_whole(seed, "seed", 0)), per_piece)

    def observations(self) -> Observations:
        """All rows in memory, in their order; IntractableError for more than 2^27 cells."""
        check_cells(self.num_rows, len(self.domain), "observations", "use distinct() or sample()", "rows")
        parts = [*self.batches()] or [self._empty()]
        codes = np.concatenate([part.codes for part in parts], axis=1)
        counts = None if parts[0].counts is None else np.concatenate([part.weights for part in parts])
        return self._observed(RowBatch(np.zeros(0, dtype=np.int64), codes, counts))

    def split(self, fractions: Sequence[float], seed: int) -> tuple[Self, ...]:
        """Random disjoint parts of the rows, of about the sizes given: every row falls into one by its hash.

        Args:
            fractions: non-negative, summing to 1 (tolerance 1e-9).
            seed: a whole number from 0.

        Raises:
            InputError: rows with counts, of which each would fall into one part as a whole.
        """
        shares = check_split(fractions, seed)
        if self._has_counts:
            hint = "bring it into memory with distinct() and split that"
            raise conflict("split", "a table of cells with counts is split observation by observation", hint)
        ends, stream = share_bounds(shares), len(self.view.shares)
        views = [(*self.view.shares, (int(seed), stream, *pair)) for pair in itertools.pairwise(ends)]
        return tuple(replace(self, view=replace(self.view, shares=shares)) for shares in views)

    def drop_missing(self) -> Self:
        """The rows without a missing cell in the variables looked at."""
        names = dict.fromkeys([*self.view.complete, *self.view.names])
        return replace(self, view=replace(self.view, complete=tuple(names)))

    def project(self, names: Iterable[str]) -> Self:
        """The given variables only, in schema order; no other column is read."""
        wanted = (names,) if isinstance(names, str) else tuple(names)
        if not wanted:
            raise none_received("names", "at least one variable")
        return self._on(self.domain.project(wanted).names)

    def _on(self, names: tuple[str, ...]) -> Self:
        return replace(self, view=replace(self.view, names=names))

    def _observed(self, batch: RowBatch) -> Observations:
        codes = torch.from_numpy(np.ascontiguousarray(batch.codes.T))
        return Observations(self.domain, codes, None if batch.counts is None else torch.from_numpy(batch.counts))  # type: ignore[arg-type]

    def _empty(self) -> RowBatch:
        codes = np.zeros((len(self.domain), 0), dtype=code_type(self.domain.cardinalities))
        none = np.zeros(0, dtype=np.int64)
        return RowBatch(none, codes, none if self._has_counts else None)

    @property
    @abstractmethod
    def _has_counts(self) -> bool:
        """Whether rows have counts."""

    @abstractmethod
    def _num_all(self) -> int:
        """Number of rows without a view."""

    @abstractmethod
    def _partial(self, fold: Fold[T]) -> Iterator[T]:
        """Values of a fold of parts of the rows, in any order and grouping."""

    @abstractmethod
    def piece_starts(self) -> Sequence[int]:
        """Positions of the first rows of the pieces."""

    @abstractmethod
    def piece_batches(self, piece: int) -> Iterable[RowBatch]:
        """The batches of one piece."""

    @abstractmethod
    def stream(self, function: Callable[[RowBatch], T]) -> Iterator[T]:
        """What a function makes of each batch, in the order of the rows."""


def itself(batch: RowBatch) -> RowBatch:
    """A batch as it is."""
    return batch


def drawn_batches(rows: RowSource, size: int, random: np.random.Generator, per_piece: int) -> Iterator[Observations]:
    """Batches without end; see :meth:`RowSource.minibatches`."""
    # One pass counts the observations of every piece.
    starts = np.asarray(rows.piece_starts(), dtype=np.int64)
    totals = np.zeros(len(starts))
    for first, total in rows.stream(_first_and_total):
        if len(first):
            totals[np.searchsorted(starts, first[0], "right") - 1] += total
    whole = totals.sum()
    if not whole > 0:
        raise none_received("minibatches", "at least one observation")
    while True:
        # A piece by its share, then rows of it by their counts.
        piece = int(random.choice(len(totals), p=totals / whole))
        parts = [*rows.piece_batches(piece)]
        codes = np.concatenate([part.codes for part in parts], axis=1)
        shares = np.cumsum(np.concatenate([part.weights for part in parts]))
        for _ in range(per_piece):
            picked = np.searchsorted(shares, random.integers(0, shares[-1], size), "right")
            chosen = torch.from_numpy(np.ascontiguousarray(codes[:, picked].T))
            yield Observations.from_tensor(chosen, rows.domain, weights=np.full(size, whole / size))


def _first_and_total(batch: RowBatch) -> tuple[np.ndarray, int]:
    return batch.positions[:1], int(batch.weights.sum())


# Rows in memory behind the protocol of rows that need not be.


@dataclass(frozen=True, eq=False)
class MemoryRows(RowSource):
    """Observations as a source of rows; made by :func:`~pyro_hoim.data.open_rows` and :meth:`of`."""

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
        kind = code_type([self.whole.cardinalities[i] for i in columns])
        piece = slice(start, start + self.chunk_rows)
        part = np.ascontiguousarray(self.data.narrow.numpy()[piece][:, columns].T.astype(kind, copy=False))
        counts = self.data.counts.numpy()[piece].astype(np.int64) if self._has_counts else None
        return self.view.applied(RowBatch(np.arange(start, start + part.shape[1]), part, counts))
