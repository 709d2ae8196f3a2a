"""Rows as the compiled search wants them: merged, with levels numbered by what the rows say of them."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np
import torch

from ...budgets import check_size
from ...data.columns import FrameOptions
from ...data.counting import code_type
from ...data.frames import DataLike, as_observations, rows_of_frame
from ...data.observations import Observations
from ...data.sources import RowBatch, RowSource
from ...errors import IntractableError, none_received, refused
from ...results.contrasts import table_of_two
from ...schema import Domain

_REFINEMENTS, _AT_ONCE = 3, 2**12  # of colours, and rows whose codes are made at a time for them
_LEAST_BITS = 64  # from which on bits are faster than numbers of levels


class Columns(NamedTuple):
    """Columns of rows for the compiled search.

    Shapes: ids (U, d) numbers of levels over all columns (a column with missing cells has one more, ``missing``);
    first, sizes, missing and kinds (d,), kind -1 for a column not to be asked; kind_sizes their number of levels; bits
    (U and more, W) uint64 of all levels but the first of every column, or (0, 0); planes (d,) first bit of each
    column; lines (64 W, words) the same bits by place; groups (g,) of eight words that hold a column; spots by number
    of level, its bit among those of the groups.
    """

    ids: np.ndarray
    first: np.ndarray
    sizes: np.ndarray
    missing: np.ndarray
    kinds: np.ndarray
    kind_sizes: np.ndarray
    bits: np.ndarray
    planes: np.ndarray
    lines: np.ndarray
    groups: np.ndarray
    spots: np.ndarray


class Costs(NamedTuple):
    """Whole numbers times their logarithms (or none), penalties (max_leaves + 1,) by leaves, their least rise."""

    table: np.ndarray
    penalties: np.ndarray
    least_rise: float
    tolerance: float


@dataclass(frozen=True, eq=False)
class PreparedRows:
    """Rows for the search, their levels numbered anew, one numbering over all columns.

    Within a column frequent levels come first and equally frequent ones in the order of a colour that depends on the
    rows alone, so that neither the order of rows nor that of labels can decide between equally good steps. A column
    with missing cells has one more number, its last. Distinct rows have ids and weights; where all of many rows have
    weight one, they are held as bits, and equal rows stay apart.

    Shapes: ids (U, d) int32 of the levels or (0, d), weights (U,), 64-bit keys of the rows (U,); first, sizes and
    missing (d,): first number, levels and number of the missing cells of each column, -1 without any; bits (U, W) and
    at least eight words of zeros, or (0, 0); planes (d,), the first bit of each column; lines (64 W, words), the
    bits of all rows by place. ``ranks`` holds, for every column, the place of each level in
    the new order.
    """

    ids: np.ndarray
    weights: np.ndarray
    keys: np.ndarray
    first: np.ndarray
    sizes: np.ndarray
    missing: np.ndarray
    ranks: tuple[np.ndarray, ...]
    is_whole: bool
    bits: np.ndarray
    planes: np.ndarray
    lines: np.ndarray

    @classmethod
    def from_rows(cls, rows: Observations) -> PreparedRows:
        """Merge and number rows that :func:`checked_rows` let pass."""
        from ._row_kernels import pack_bits, row_keys

        is_whole = rows.has_whole_counts
        if not is_whole:  # equal rows are added by their weights, so that the order of rows leaves no trace
            rows = rows.rows(torch.argsort(rows.counts, stable=True))
        merged = rows.unique()
        codes, weights = merged.narrow.long().numpy(), merged.counts.numpy()
        sizes = np.array(rows.domain.cardinalities, dtype=np.int64)
        starts = np.concatenate([[0], np.cumsum(sizes)])
        colours = _colours(lambda: [(codes, weights)], starts)
        units = weights.astype(np.int64) if is_whole else np.rint(weights / weights.max() * 2.0**20).astype(np.int64)
        absent: np.ndarray = np.asarray((codes < 0).any(axis=0))
        # Levels get numbers over all columns, in the order that the rows give them.
        ranks: list[np.ndarray] = []
        ids = np.empty(codes.shape, dtype=np.int32)
        first = np.empty(len(sizes), dtype=np.int64)
        missing = np.full(len(sizes), -1, dtype=np.int64)
        used = 0
        for j, size in enumerate(sizes):
            column = codes[:, j]
            frequency = np.zeros(size + 1, dtype=np.int64)
            np.add.at(frequency, column, units)  # -1 is the last
            rank = np.append(level_ranks(frequency[:size], colours[starts[j] : starts[j + 1]]), size)
            ranks.append(rank[:size])
            ids[:, j] = used + rank[column]
            first[j] = used
            used += int(size)
            if absent[j]:
                missing[j] = used
                used += 1
        if not (is_whole and not absent.any()):  # sums of fractions depend on the order of rows
            order = np.lexsort(ids.T[::-1])
            ids, weights = ids[order], weights[order]
        keys = np.zeros(len(ids), dtype=np.uint64)
        row_keys(ids, keys, 1)
        # Many complete rows of weight one are counted faster as bits.
        planes, num_words = bit_planes(sizes)
        bits = lines = np.zeros((0, 0), dtype=np.uint64)
        if is_whole and not absent.any() and _LEAST_BITS <= 64 * num_words <= 8 * len(sizes) and (weights == 1).all():
            bits = no_bits(len(ids), num_words)
            flat = np.concatenate([np.arange(size) for size in sizes])
            places = np.ascontiguousarray((ids - first).T.astype(code_type(sizes.tolist())))
            pack_bits(places, flat, first, planes, bits)
            lines, ids = by_place(bits, len(ids)), ids[:0].copy()
        return cls(ids, weights, keys, first, sizes, missing, tuple(ranks), is_whole, bits, planes, lines)

    @property
    def num_rows(self) -> int:
        """Rows that are held."""
        return len(self.weights)

    def own(self, column: int) -> np.ndarray:
        """Ranks of the rows' levels in one column, int32 (U,); its number of levels where missing."""
        if not len(self.bits):
            return self.ids[:, column] - np.int32(self.first[column])
        ranks = np.zeros(self.num_rows, dtype=np.int32)
        for level, line in enumerate(self._lines_of(column), 1):
            has_level = np.unpackbits(line.view(np.uint8), count=self.num_rows, bitorder="little")
            ranks += has_level if level == 1 else level * has_level.astype(np.int32)
        return ranks

    def _lines_of(self, column: int) -> np.ndarray:
        """Bits of all rows, one line for each level of a column but the first."""
        return self.lines[self.planes[column] : self.planes[column] + self.sizes[column] - 1]

    def table(self, one: int, two: int, scale: float) -> np.ndarray:
        """Counts of the levels of two columns, by rank, of rows that have both; in units of a scale."""
        shape = int(self.sizes[one]), int(self.sizes[two])
        if not len(self.bits):
            return table_of_two(self.own(one), self.own(two), self.weights * scale, shape)
        counts = np.empty(shape)
        rows, columns = self._lines_of(one), self._lines_of(two)
        counts[1:, 1:] = [[np.bitwise_count(a & b).sum() for b in columns] for a in rows]
        counts[1:, 0] = np.bitwise_count(rows).sum(1, dtype=np.int64) - counts[1:, 1:].sum(1)
        counts[0, 1:] = np.bitwise_count(columns).sum(1, dtype=np.int64) - counts[1:, 1:].sum(0)
        counts[0, 0] = self.num_rows - counts[1:].sum() - counts[0, 1:].sum()
        return scale * counts

    def level_counts(self, column: int) -> np.ndarray:
        """Weight of the rows at every level of a column, by rank."""
        size = int(self.sizes[column])
        if not len(self.bits):
            ranks = self.own(column)
            return np.bincount(ranks, self.weights, size + 1)[:size]
        counts = np.bitwise_count(self._lines_of(column)).sum(1, dtype=np.int64)
        return np.concatenate([[self.num_rows - counts.sum()], counts]).astype(np.float64)

    def columns(self, chosen: Sequence[int]) -> PreparedRows:
        """Some columns only, their levels numbered without gaps; rows are kept as they are."""
        from ._row_kernels import row_keys

        # Numbers of levels without the gaps of columns that are left out.
        at = np.asarray(chosen, dtype=np.int64)
        sizes, with_absent = self.sizes[at], self.missing[at] >= 0
        ends = np.cumsum(sizes + with_absent)
        first = ends - sizes - with_absent
        ids = np.ascontiguousarray(self.ids[:, at] + (first - self.first[at]), dtype=np.int32)
        planes = self.planes[at]
        if len(self.bits):
            keys = bit_keys(self.bits, self.num_rows, planes, sizes, first)
        else:
            keys = np.zeros(len(ids), dtype=np.uint64)
            row_keys(ids, keys, 1)
        ranks = tuple(self.ranks[j] for j in chosen)
        missing = np.where(with_absent, ends - 1, -1)
        options = (missing, ranks, self.is_whole, self.bits, planes, self.lines)
        return PreparedRows(ids, self.weights, keys, first, sizes, *options)

    @cached_property
    def _twins(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows that agree with others in the second half of the columns, and in the first.

        No other rows can agree in all columns but one of the other half.
        """
        from ._row_kernels import row_keys

        # Keys of half of the columns tell which rows can agree at all.
        half, num_columns = len(self.sizes) // 2, len(self.sizes)
        twins: list[np.ndarray] = []
        for part in (slice(half, num_columns), slice(0, half)):
            if len(self.bits):
                keys = bit_keys(self.bits, self.num_rows, self.planes[part], self.sizes[part], self.first[part])
            else:
                keys = np.zeros(len(self.ids), dtype=np.uint64)
                row_keys(np.ascontiguousarray(self.ids[:, part]), keys, 1)
            _, group, number = np.unique(keys, return_inverse=True, return_counts=True)
            twins.append(np.flatnonzero(number[group] > 1))
        return twins[0], twins[1]

    def entropy_given(self, x: np.ndarray, size: int, total: float, column: int | None) -> float | None:
        """Empirical conditional entropy of ranks given all but one column; None where cells of these are missing.

        Rows that agree in these with rows of the same level alone have nothing to add.
        """
        from ._row_kernels import row_keys

        if any(missing >= 0 for k, missing in enumerate(self.missing) if k != column):
            return None
        # Rows are compared without the column: its key is taken away.
        at = np.arange(self.num_rows) if column is None else self._twins[int(column >= len(self.sizes) // 2)]
        at = at[x[at] < size]
        keys, x, weights = self.keys[at], x[at], self.weights[at]
        if column is not None:
            row_keys((x.astype(np.int64) + self.first[column])[:, None], keys, -1)
        # Only groups of several levels have an entropy.
        groups, group = np.unique(keys, return_inverse=True)
        joint = np.bincount(group * size + x, weights=weights, minlength=len(groups) * size).reshape(-1, size)
        joint = joint[(joint > 0).sum(1) > 1]
        return max((sum_log(joint.sum(1)) - sum_log(joint)) / total, 0.0)


def level_ranks(frequency: np.ndarray, colours: np.ndarray) -> np.ndarray:
    """Place of every level of a column: frequent ones first, equally frequent ones by colour."""
    rank = np.empty(len(frequency), dtype=np.int64)
    rank[np.lexsort((colours, -frequency))] = np.arange(len(frequency))
    return rank


def bit_planes(sizes: np.ndarray) -> tuple[np.ndarray, int]:
    """First bit of every column, and the words of a row."""
    ends = np.cumsum(sizes - 1)
    return ends - (sizes - 1), int(-(-ends[-1] // 64)) if len(ends) else 0


def no_bits(num_rows: int, num_words: int) -> np.ndarray:
    """Zeros for the bits of rows, and for at least eight words more."""
    return np.zeros((num_rows - (-8 // num_words), num_words), dtype=np.uint64)


def by_place(bits: np.ndarray, num_rows: int) -> np.ndarray:
    """Bits of rows as lines of the bits of one place in all rows."""
    from ._row_kernels import turn_bits

    lines = np.empty((64 * bits.shape[1], -(-num_rows // 64)), dtype=np.uint64)
    turn_bits(bits, num_rows, lines)
    return lines


def bit_keys(bits: np.ndarray, num_rows: int, planes: np.ndarray, sizes: np.ndarray, first: np.ndarray) -> np.ndarray:
    """64-bit keys of rows held as bits by the numbers of some columns, as :func:`row_keys` gives them."""
    from ._row_kernels import key_bits, row_keys

    number = int((first + sizes).max(initial=0))
    of_level, keys = np.zeros(number, dtype=np.uint64), np.zeros(num_rows, dtype=np.uint64)
    row_keys(np.arange(number)[:, None], of_level, 1)
    key_bits(bits, planes, sizes, first, of_level, keys)
    return keys


def sum_log(counts: np.ndarray) -> float:
    """Sum of positive counts times their logarithms, in the order of their size."""
    held = np.sort(counts[counts > 0])
    return float((held * np.log(held)).sum())


def checked_rows(rows: DataLike, options: FrameOptions | None = None) -> Observations:
    """The rows, data frames as ``options`` say, or an error that says why nothing can be learned from them."""
    rows = as_observations(rows_of_frame(rows, options or {}, argument="rows"), argument="rows")
    if not len(rows.domain):
        raise none_received("rows", "at least one variable")
    if not rows.total_count > 0:
        raise none_received("rows", "at least one observation")
    seen = (rows.narrow[rows.counts > 0] >= 0).any(0)
    if not bool(seen.all()):
        name = rows.domain.names[int((~seen).long().argmax())]
        problem = f"expected a value of variable {name!r} in some row, but it is missing in all"
        raise refused("rows", problem, code="missing-part")
    return rows


# Rows that lie anywhere, brought into memory: distinct rows with counts, or every row as bits.

MAX_SOURCE_BYTES = 2**33
"""Bytes that the rows of a source may take as bits, with their keys and the row numbers of every search at a time."""

_PER_ROW = 32  # weights, keys and their order
_PER_SEARCH = 24  # row numbers of a search, those of its merged leaves, and its own levels
_FEW = 16  # rows for each distinct one, from which on the distinct ones are searched


@dataclass(frozen=True, eq=False)
class SourceRows:
    """What learning needs of a source: the rows for the search, its variables, their number, and a digest."""

    prepared: PreparedRows
    domain: Domain
    total_count: float
    digest: str


def _count_levels(batch: RowBatch, cardinalities: Sequence[int]) -> np.ndarray:
    """Rows of a batch, those with a count other than one, and for every column its missing cells and levels."""
    counted = 0 if batch.counts is None else int((batch.counts != 1).sum())
    columns = zip(batch.codes, cardinalities, strict=True)
    parts = [np.bincount(column.astype(np.int64) + 1, minlength=size + 1) for column, size in columns]
    return np.concatenate([[batch.num_rows, counted], *parts])


def read_source(source: RowSource, *, lossless: bool, jobs: int) -> SourceRows | Observations:
    """The rows of a source: every row as bits, or the distinct ones.

    These are taken where cells are missing, rows have counts, few rows differ, the lossless source is asked for, or all
    rows do not fit.

    Raises:
        IntractableError: more distinct rows, or more bytes, than the budgets allow.
    """
    domain = source.domain
    sizes = np.array(domain.cardinalities, dtype=np.int64)
    # A first pass counts the levels: it says whether rows can be held as bits, and in which order.
    levels_seen = source.fold(partial(_count_levels, cardinalities=domain.cardinalities))
    num_rows, num_counted = int(levels_seen[0]), int(levels_seen[1])
    if not num_rows:
        raise none_received("rows", "at least one observation")
    by_column = np.split(levels_seen[2:], np.cumsum(sizes + 1)[:-1])
    planes, num_words = bit_planes(sizes)
    is_apart = not (num_counted or lossless or any(column[0] for column in by_column))
    if not is_apart or math.prod(domain.cardinalities) * _FEW <= num_rows:
        return checked_rows(source.distinct())
    # Every row as bits, in one budget with what the searches need.
    needed = num_rows * (16 * num_words + _PER_ROW + _PER_SEARCH * max(1, jobs))
    if needed > MAX_SOURCE_BYTES:
        with suppress(IntractableError):  # refused below, with the bytes
            return checked_rows(source.distinct())
    hint = "take fewer columns (project), a sample of the rows (sample), or fewer jobs"
    check_size(needed, MAX_SOURCE_BYTES, "bytes", "rows", hint, f"as bits, {num_rows:,} rows take")
    first = np.cumsum(sizes) - sizes
    none = [np.zeros(int(size), dtype=np.uint64) for size in sizes]
    ranks = [level_ranks(column[1:], colours_of) for column, colours_of in zip(by_column, none, strict=True)]
    bits = _packed(source, ranks, num_rows, planes, num_words)
    # Few distinct rows are searched with counts, which is quicker than bits.
    keys = bit_keys(bits, num_rows, planes, sizes, first)
    _, at, number = np.unique(keys, return_index=True, return_counts=True)
    if len(at) * _FEW <= num_rows:
        return checked_rows(_observed(domain, ranks, bits[at], planes, number))
    # Levels of equal frequency are ordered by what the rows say of them, as in memory.
    if any(len(seen) > len(np.unique(seen)) for column in by_column for seen in [column[1:][column[1:] > 0]]):
        starts = np.concatenate([[0], np.cumsum(sizes)])

        def parts() -> Iterator[tuple[np.ndarray, np.ndarray]]:
            for begin in range(0, len(at), _AT_ONCE):
                chosen = slice(begin, begin + _AT_ONCE)
                yield _codes(ranks, bits[at[chosen]], planes), number[chosen].astype(np.float64)

        colours = np.split(_colours(parts, starts), starts[1:-1])
        renewed = [level_ranks(column[1:], colours_of) for column, colours_of in zip(by_column, colours, strict=True)]
        if any((one != other).any() for one, other in zip(ranks, renewed, strict=True)):
            ranks = renewed
            bits = _packed(source, ranks, num_rows, planes, num_words)
            keys = bit_keys(bits, num_rows, planes, sizes, first)
    ids = np.empty((0, len(sizes)), dtype=np.int32)
    missing = np.full(len(sizes), -1, dtype=np.int64)
    weights = np.ones(num_rows)
    lines = by_place(bits, num_rows)
    prepared = PreparedRows(ids, weights, keys, first, sizes, missing, tuple(ranks), True, bits, planes, lines)
    return SourceRows(prepared, domain, float(num_rows), _digest(domain, num_rows, keys))


def _packed(
    source: RowSource, ranks: list[np.ndarray], num_rows: int, planes: np.ndarray, num_words: int
) -> np.ndarray:
    """All rows as bits, in a pass."""
    from ._row_kernels import pack_bits

    bits = no_bits(num_rows, num_words)
    flat = np.concatenate(ranks)
    first = np.cumsum([0, *(len(rank) for rank in ranks[:-1])])
    at = 0
    for batch in source.batches():
        pack_bits(np.ascontiguousarray(batch.codes), flat, first, planes, bits[at : at + batch.num_rows])
        at += batch.num_rows
    return bits


def _observed(
    domain: Domain, ranks: list[np.ndarray], bits: np.ndarray, planes: np.ndarray, number: np.ndarray
) -> Observations:
    """Rows held as bits with their counts, as observations."""
    codes = torch.from_numpy(_codes(ranks, bits, planes))
    return Observations(domain, codes, torch.from_numpy(number.astype(np.float64)))


def _codes(ranks: list[np.ndarray], bits: np.ndarray, planes: np.ndarray) -> np.ndarray:
    """Codes (rows, d) of rows held as bits."""
    from ._row_kernels import bit_ranks

    codes, column = np.empty((len(bits), len(ranks)), dtype=np.int64), np.empty(len(bits), dtype=np.int64)
    for j, rank in enumerate(ranks):
        bit_ranks(bits, planes[j], len(rank), column)
        codes[:, j] = np.argsort(rank)[column]
    return codes


def _colours(parts: Callable[[], Iterable[tuple[np.ndarray, np.ndarray]]], starts: np.ndarray) -> np.ndarray:
    """A number for every level that depends on which rows have it and not on how levels or rows are numbered.

    Parts are codes and weights of distinct rows, by turns, since those of all may not fit. Colours are refined: a row
    is the levels' colours, a level the rows'.
    """
    from ._row_kernels import add_colours

    colours = np.zeros(starts[-1], dtype=np.uint64)
    for _ in range(_REFINEMENTS):
        renewed = np.zeros_like(colours)
        for codes, weights in parts():
            add_colours(codes, weights.view(np.uint64), starts, colours, renewed)
        colours = renewed
    return colours


def _digest(domain: Domain, num_rows: int, keys: np.ndarray) -> str:
    """Digest of the variables and the rows, whatever their order."""
    content = hashlib.sha256(json.dumps([domain.to_json(), num_rows]).encode())
    content.update(np.sort(keys).tobytes())
    return content.hexdigest()[:32]
