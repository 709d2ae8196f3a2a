"""Rows as the compiled search wants them: merged, with levels numbered by what the rows say of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from ...data.frames import DataLike, as_observations
from ...data.observations import Observations
from ...errors import none_received, refused

_REFINEMENTS = 3


class Columns(NamedTuple):
    """Columns of rows for the compiled search.

    Shapes: ids (U, d) numbers of levels over all columns (a column with missing cells has one more, ``missing``);
    first, sizes, missing and kinds (d,), kind -1 for a column not to be asked; kind_sizes their number of levels.
    """

    ids: np.ndarray
    first: np.ndarray
    sizes: np.ndarray
    missing: np.ndarray
    kinds: np.ndarray
    kind_sizes: np.ndarray


class Costs(NamedTuple):
    """Whole numbers times their logarithms (or none), penalties (max_leaves + 1,) by leaves, their least rise."""

    table: np.ndarray
    penalties: np.ndarray
    least_rise: float
    tolerance: float


@dataclass(frozen=True, eq=False)
class PreparedRows:
    """Distinct rows, their levels numbered anew, one numbering over all columns.

    Within a column frequent levels come first and equally frequent ones in the order of a colour that depends on the
    rows alone, so that neither the order of rows nor that of labels can decide between equally good steps. A column
    with missing cells has one more number, its last.

    Shapes: ids (U, d) int32 of the levels, weights (U,), 64-bit keys of the rows (U,); first, sizes and missing (d,):
    first number, levels and number of the missing cells of each column, -1 without any. ``ranks`` holds, for every
    column, the place of each level in the new order.
    """

    ids: np.ndarray
    weights: np.ndarray
    keys: np.ndarray
    first: np.ndarray
    sizes: np.ndarray
    missing: np.ndarray
    ranks: tuple[np.ndarray, ...]
    is_whole: bool

    @classmethod
    def from_rows(cls, rows: Observations) -> PreparedRows:
        """Merge and number rows that :func:`checked_rows` let pass."""
        from ._row_kernels import level_colours, row_keys

        is_whole = rows.has_whole_counts
        if (
            not is_whole
        ):  # equal rows are added in the order of their weights, so that the order of rows leaves no trace
            rows = rows.rows(torch.argsort(rows.counts, stable=True))
        merged = rows.unique()
        codes, weights = merged.codes.numpy(), merged.counts.numpy()
        sizes = np.array(rows.domain.cardinalities, dtype=np.int64)
        starts = np.concatenate([[0], np.cumsum(sizes)])
        colours = level_colours(codes, weights.view(np.uint64), starts, _REFINEMENTS)
        units = np.rint(weights / weights.max() * 2.0**20).astype(np.int64)
        absent: np.ndarray = np.asarray((codes < 0).any(axis=0))
        ranks: list[np.ndarray] = []
        ids = np.empty(codes.shape, dtype=np.int32)
        first = np.empty(len(sizes), dtype=np.int64)
        missing = np.full(len(sizes), -1, dtype=np.int64)
        used = 0
        for j, size in enumerate(sizes):
            column = codes[:, j]
            frequency = np.zeros(size + 1, dtype=np.int64)
            np.add.at(frequency, column, units)  # -1 is the last
            order = np.lexsort((colours[starts[j] : starts[j + 1]], -frequency[:size]))
            rank = np.empty(size + 1, dtype=np.int64)
            rank[order] = np.arange(size)
            rank[size] = size
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
        return cls(ids, weights, keys, first, sizes, missing, tuple(ranks), is_whole)

    def columns(self, chosen: Sequence[int]) -> PreparedRows:
        """Some columns only, their levels numbered without gaps; rows are kept as they are."""
        from ._row_kernels import row_keys

        at = np.asarray(chosen, dtype=np.int64)
        sizes, with_absent = self.sizes[at], self.missing[at] >= 0
        ends = np.cumsum(sizes + with_absent)
        first = ends - sizes - with_absent
        ids = np.ascontiguousarray(self.ids[:, at] + (first - self.first[at]), dtype=np.int32)
        keys = np.zeros(len(ids), dtype=np.uint64)
        row_keys(ids, keys, 1)
        ranks = tuple(self.ranks[j] for j in chosen)
        missing = np.where(with_absent, ends - 1, -1)
        return PreparedRows(ids, self.weights, keys, first, sizes, missing, ranks, self.is_whole)


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
