"""Rows as the compiled search wants them: merged, with levels numbered by what the rows say of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch

from ...data.frames import DataLike, as_observations
from ...data.observations import Observations
from ...data.sources.folds import batch_type
from ...errors import none_received, refused

_REFINEMENTS = 3
_LEAST_BITS = 64  # from which on bits are faster than numbers of levels


class Columns(NamedTuple):
    """Columns of rows for the compiled search.

    Shapes: ids (U, d) numbers of levels over all columns (a column with missing cells has one more, ``missing``);
    first, sizes, missing and kinds (d,), kind -1 for a column not to be asked; kind_sizes their number of levels; bits
    (U, W) uint64 of all levels but the first of every column, or (0, 0); planes (d,) first bit of each column; words
    (w,) that hold a column; spots by number of level, its bit c of the w-th of these words as 64 * w + c.
    """

    ids: np.ndarray
    first: np.ndarray
    sizes: np.ndarray
    missing: np.ndarray
    kinds: np.ndarray
    kind_sizes: np.ndarray
    bits: np.ndarray
    planes: np.ndarray
    words: np.ndarray
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
    weight one, they are held as bits too, or as bits alone, and equal rows stay apart.

    Shapes: ids (U, d) int32 of the levels or (0, d), weights (U,), 64-bit keys of the rows (U,); first, sizes and
    missing (d,): first number, levels and number of the missing cells of each column, -1 without any; bits (U, W) or
    (0, 0), and planes (d,), the first bit of each column. ``ranks`` holds, for every column, the place of each level in
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

    @classmethod
    def from_rows(cls, rows: Observations) -> PreparedRows:
        """Merge and number rows that :func:`checked_rows` let pass."""
        from ._row_kernels import level_colours, pack_bits, row_keys

        is_whole = rows.has_whole_counts
        if not is_whole:  # equal rows are added by their weights, so that the order of rows leaves no trace
            rows = rows.rows(torch.argsort(rows.counts, stable=True))
        merged = rows.unique()
        codes, weights = merged.codes.numpy(), merged.counts.numpy()
        sizes = np.array(rows.domain.cardinalities, dtype=np.int64)
        starts = np.concatenate([[0], np.cumsum(sizes)])
        colours = level_colours(codes, weights.view(np.uint64), starts, _REFINEMENTS)
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
        bits = np.zeros((0, 0), dtype=np.uint64)
        if is_whole and not absent.any() and _LEAST_BITS <= 64 * num_words <= 8 * len(sizes) and (weights == 1).all():
            bits = np.zeros((len(ids), num_words), dtype=np.uint64)
            flat = np.concatenate([np.arange(size) for size in sizes])
            places = np.ascontiguousarray((ids - first).T.astype(batch_type(sizes.tolist())))
            pack_bits(places, flat, first, planes, bits)
        return cls(ids, weights, keys, first, sizes, missing, tuple(ranks), is_whole, bits, planes)

    @property
    def num_rows(self) -> int:
        """Rows that are held."""
        return len(self.weights)

    def own(self, column: int) -> np.ndarray:
        """Ranks of the rows' levels in one column, int32 (U,); its number of levels where missing."""
        from ._row_kernels import unpack_bits

        if len(self.ids):
            return self.ids[:, column] - np.int32(self.first[column])
        found = np.empty(self.num_rows, dtype=np.int32)
        unpack_bits(self.bits, self.planes[column], self.sizes[column], found)
        return found

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
        if len(ids):
            keys = np.zeros(len(ids), dtype=np.uint64)
            row_keys(ids, keys, 1)
        else:
            keys = bit_keys(self.bits, planes, sizes, first)
        ranks = tuple(self.ranks[j] for j in chosen)
        missing = np.where(with_absent, ends - 1, -1)
        options = (missing, ranks, self.is_whole, self.bits, planes)
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
            if len(self.ids):
                keys = np.zeros(len(self.ids), dtype=np.uint64)
                row_keys(np.ascontiguousarray(self.ids[:, part]), keys, 1)
            else:
                keys = bit_keys(self.bits, self.planes[part], self.sizes[part], self.first[part])
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


def bit_keys(bits: np.ndarray, planes: np.ndarray, sizes: np.ndarray, first: np.ndarray) -> np.ndarray:
    """64-bit keys of rows held as bits by the numbers of some columns, as :func:`row_keys` gives them."""
    from ._row_kernels import key_bits, row_keys

    number = int((first + sizes).max(initial=0))
    of_level, keys = np.zeros(number, dtype=np.uint64), np.zeros(len(bits), dtype=np.uint64)
    row_keys(np.arange(number)[:, None], of_level, 1)
    key_bits(bits, planes, sizes, first, of_level, keys)
    return keys


def sum_log(counts: np.ndarray) -> float:
    """Sum of positive counts times their logarithms, in the order of their size."""
    held = np.sort(counts[counts > 0])
    return float((held * np.log(held)).sum())


def checked_rows(rows: DataLike) -> Observations:
    """The rows, or an error that says why nothing can be learned from them."""
    rows = as_observations(rows, argument="rows")
    if not len(rows.domain):
        raise none_received("rows", "at least one variable")
    if not rows.total_count > 0:
        raise none_received("rows", "at least one observation")
    seen = ((rows.codes >= 0) & (rows.counts > 0)[:, None]).any(0)
    if not bool(seen.all()):
        name = rows.domain.names[int((~seen).long().argmax())]
        problem = f"expected a value of variable {name!r} in some row, but it is missing in all"
        raise refused("rows", problem, code="missing-part")
    return rows
