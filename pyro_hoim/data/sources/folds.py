"""What is computed from batches of rows: integer arrays whose sums, and sets whose unions, do not depend on order."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from ...errors import out_of_reach
from ..counting import code_type, merge_rows

_HASH_BITS = 53
_MAX_TABLE = 2**21  # complete rows that there can be, up to which all are counted


class RowBatch(NamedTuple):
    """Coded rows that stand together.

    Attributes:
        positions: of the rows among all rows of the source, int64 (n,).
        codes: level positions, column by column, -1 where missing, a signed integer type (d, n).
        counts: how often each row was seen, int64 (n,); None for once each.
    """

    positions: np.ndarray
    codes: np.ndarray
    counts: np.ndarray | None

    @property
    def num_rows(self) -> int:
        """Rows of the batch."""
        return self.codes.shape[1]

    @property
    def weights(self) -> np.ndarray:
        """The counts, also where each is one, int64 (n,)."""
        return np.ones(self.num_rows, dtype=np.int64) if self.counts is None else self.counts

    def rows(self, index: np.ndarray) -> RowBatch:
        """The rows at some positions of the batch, or where a mask is true."""
        counts = None if self.counts is None else self.counts[index]
        return RowBatch(self.positions[index], np.ascontiguousarray(self.codes[:, index]), counts)


def row_hashes(positions: np.ndarray, seed: int, stream: int = 0) -> np.ndarray:
    """Random whole numbers from 0 to 2^53 - 1 of rows by their positions and a seed, int64 (n,).

    The numbers of a counter-based generator (two rounds of SplitMix64 with a key of the seed): they do not depend on
    which rows are asked for together.
    """
    first, second = np.random.SeedSequence([seed, stream]).generate_state(2, np.uint64)
    hashes = positions.astype(np.uint64)
    with np.errstate(over="ignore"):
        for key in (first, second):
            hashes = hashes * np.uint64(0x9E3779B97F4A7C15) + key
            hashes = (hashes ^ (hashes >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            hashes = (hashes ^ (hashes >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            hashes = hashes ^ (hashes >> np.uint64(31))
    return (hashes >> np.uint64(64 - _HASH_BITS)).astype(np.int64)


def share_bounds(fractions: Sequence[float]) -> list[int]:
    """Ends of the hashes of the parts of a split, from 0 to 2^53."""
    cumulated = [math.fsum(fractions[:k]) for k in range(len(fractions))]
    return [*(min(2**_HASH_BITS, math.floor(f * 2**_HASH_BITS + 0.5)) for f in cumulated), 2**_HASH_BITS]


@dataclass(frozen=True)
class MarginCounts:
    """Counts of the cells of sets of columns (positions), set after set, each table row-major; int64 (cells + d,).

    The last d numbers are the missing cells of every column; of a batch with any nothing else is counted.
    """

    cardinalities: tuple[int, ...]
    sets: tuple[tuple[int, ...], ...]

    def __call__(self, batch: RowBatch) -> np.ndarray:
        """The counts of a batch."""
        from ..kernels import count_cells

        # Tables lie one after the other, and behind them the missing cells of every column.
        sizes = [math.prod(self.cardinalities[i] for i in one) for one in self.sets]
        starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        members = np.array([i for one in self.sets for i in one], dtype=np.int64)
        ends = np.cumsum([len(one) for one in self.sets]).astype(np.int64)
        out = np.zeros(int(starts[-1]) + len(self.cardinalities), dtype=np.int64)
        missing = (batch.codes < 0).sum(1)
        if missing.any():
            out[starts[-1] :] = missing
            return out
        counts = np.zeros(0, dtype=np.int64) if batch.counts is None else batch.counts
        count_cells(batch.codes, counts, np.array(self.cardinalities), members, ends, starts[:-1], out)
        return out


class Cells(NamedTuple):
    """Distinct rows in lexicographic order, codes (U, d), and their counts (U,)."""

    codes: np.ndarray
    counts: np.ndarray


class _Found(NamedTuple):
    """Counts of all complete rows that there can be, where these are few, and the other rows that were found."""

    table: np.ndarray
    rest: Cells


@dataclass(frozen=True)
class DistinctCells:
    """Distinct rows of batches with their counts; :class:`~pyro_hoim.errors.IntractableError` beyond ``most``."""

    cardinalities: tuple[int, ...]
    most: int

    def __call__(self, batch: RowBatch) -> _Found:
        """The distinct rows of a batch."""
        if not self._is_table:
            return _Found(np.zeros(0, dtype=np.int64), self._merged(batch.codes.T, batch.weights))
        complete = np.asarray((batch.codes >= 0).all(0))
        full, rest = (batch, None) if complete.all() else (batch.rows(complete), batch.rows(~complete))
        every = (tuple(range(len(self.cardinalities))),)
        table = MarginCounts(self.cardinalities, every)(full)[: math.prod(self.cardinalities)]
        return _Found(table, self._empty() if rest is None else self._merged(rest.codes.T, rest.weights))

    def combine(self, parts: Iterable[_Found]) -> _Found:
        """The distinct rows of several batches."""
        total = _Found(np.zeros(math.prod(self.cardinalities) if self._is_table else 0, dtype=np.int64), self._empty())
        for table, rest in parts:
            if len(rest.counts):
                codes, counts = (np.concatenate(pair) for pair in zip(total.rest, rest, strict=True))
                total = total._replace(rest=self._merged(codes, counts))
            np.add(total.table, table, out=total.table)
        return total

    def cells(self, found: _Found) -> Cells:
        """What was found, in lexicographic order."""
        if not self._is_table:
            return found.rest
        places = np.flatnonzero(found.table)
        codes = np.stack(np.unravel_index(places, self.cardinalities), axis=1)
        return self._merged(
            np.concatenate([codes, found.rest.codes]), np.concatenate([found.table[places], found.rest.counts])
        )

    @property
    def _is_table(self) -> bool:
        return math.prod(self.cardinalities) <= _MAX_TABLE

    def _empty(self) -> Cells:
        return Cells(np.zeros((0, len(self.cardinalities)), dtype=np.int8), np.zeros(0, dtype=np.int64))

    def _merged(self, codes: np.ndarray, counts: np.ndarray) -> Cells:
        distinct, totals = merge_rows(codes, counts, self.cardinalities)  # whole numbers below 2^53 add up exactly
        if len(distinct) > self.most:
            problem = f"there are more than {self.most:,} distinct rows"
            hint = "take fewer columns (project), some of the rows (sample), or margins (marginal_counts)"
            raise out_of_reach("distinct", problem, hint)
        return Cells(distinct.astype(code_type(self.cardinalities)), totals.astype(np.int64))


@dataclass(frozen=True)
class LowestRows:
    """The ``number`` rows of the lowest hashes: a sample without replacement, in the order of the rows."""

    number: int
    seed: int
    stream: int = field(default=2**31)

    def __call__(self, batch: RowBatch) -> tuple[np.ndarray, RowBatch]:
        """Hashes and rows of those of a batch that may be drawn."""
        return self._lowest(row_hashes(batch.positions, self.seed, self.stream), batch)

    def combine(self, parts: Iterable[tuple[np.ndarray, RowBatch]]) -> tuple[np.ndarray, RowBatch]:
        """Hashes and rows of those that are drawn from several batches, of which there is one at least."""
        return reduce(self._joined, parts)

    def _joined(self, one: tuple[np.ndarray, RowBatch], other: tuple[np.ndarray, RowBatch]) -> Any:
        counts = None if one[1].counts is None else np.concatenate([one[1].weights, other[1].weights])
        positions = np.concatenate([one[1].positions, other[1].positions])
        codes = np.concatenate([one[1].codes, other[1].codes], axis=1)
        return self._lowest(np.concatenate([one[0], other[0]]), RowBatch(positions, codes, counts))

    def _lowest(self, hashes: np.ndarray, batch: RowBatch) -> tuple[np.ndarray, RowBatch]:
        if len(hashes) <= self.number:
            return hashes, batch
        order = np.lexsort((batch.positions, hashes))[: self.number]
        return hashes[order], batch.rows(order)
