"""The compiled search of one node, called with arrays alone so that it can run in another process."""

import math
import time
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ._rows import Columns, Costs

_LARGEST_TABLE = 2**22
_TOLERANCE = 1e-12
_ROUNDING = 1e-14


class Found(NamedTuple):
    """What a search returns: arrays only, so that it travels between processes and into a checkpoint.

    Beside the steps and the counts of the last leaves, the counts of the leaves that every split made, in turn.
    """

    steps: np.ndarray
    deltas: np.ndarray
    counts: np.ndarray
    tables: np.ndarray
    seconds: float


@lru_cache(maxsize=1)
def _whole_logs(total: int) -> np.ndarray:
    """Whole numbers times their logarithms up to a total."""
    whole = np.arange(total + 1, dtype=np.float64)
    return whole * np.log(np.maximum(whole, 1.0))


def bit_places(first: np.ndarray, sizes: np.ndarray, planes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Groups of eight words that hold some columns, and where among their bits that of each of their levels stands."""
    # Levels have bits one after the other, but for the first of every column, which is never looked up.
    spots = np.arange(int(sizes.sum())) + np.repeat(planes - 1 - first, sizes)
    spots[first] = 0
    used = np.delete(spots, first)
    groups = np.unique(used >> 9)
    return groups, (np.searchsorted(groups, spots >> 9) << 9) + (spots & 511)


def search(
    columns: Columns,
    weights: np.ndarray,
    x: np.ndarray,
    size: int,
    penalties: np.ndarray,
    is_whole: bool,
    num_lossless: int,
) -> Found:
    """Run the compiled search of one node, wherever this process is."""
    from ._kernels import grow

    start = time.perf_counter()
    ids, first, sizes, missing, kinds, kind_sizes, bits, planes, lines = columns[:9]
    # Rows without the node's own cell say nothing of it.
    known = x < size
    if not known.all():
        ids, weights, x = ids[known], weights[known], x[known]
    total = float(weights.sum())
    is_exact = is_whole and not (missing[kinds >= 0] >= 0).any()
    # Changes of cost are told apart to the tolerance, of huge counts as finely as rounding allows.
    table = _whole_logs(int(total)) if is_exact and total < _LARGEST_TABLE else np.empty(0)
    # Below the least rise of the penalty no split can pay.
    rises = np.diff(penalties[1:])
    least_rise = float(rises.min(initial=np.inf)) if len(rises) else 0.0
    scale = 1 + total * (1 + abs(math.log(total)))
    tolerance = _TOLERANCE * scale
    if least_rise > 0:
        tolerance = max(min(tolerance, least_rise / 4), _ROUNDING * scale)
    costs = Costs(table, penalties, least_rise, tolerance)
    # Columns that are never asked need no counts of their levels: the node's own, and those of so many levels (names,
    # row numbers) that no split on them can pay.
    at = np.flatnonzero((kinds >= 0) & (sizes < len(penalties)))
    with_absent = missing[at] >= 0
    ends = np.cumsum(sizes[at] + with_absent)
    if int((sizes + (missing >= 0)).sum()) > 2 * (num_ids := int(ends[-1]) if len(at) else 0):
        begins = ends - sizes[at] - with_absent
        ids = (ids[:, at] + (begins - first[at])).astype(np.int32)
        first, sizes, kinds, missing = begins, sizes[at], kinds[at], np.where(with_absent, ends - 1, -1)
        planes = planes[at]
    else:
        at, num_ids = np.arange(len(sizes)), int((sizes + (missing >= 0)).sum())
    # The compiled search gets contiguous arrays alone; columns are renumbered back afterwards.
    groups, spots = bit_places(first, sizes, planes) if len(bits) else (np.zeros(0, np.int64), np.zeros(0, np.int64))
    ids, planes, x, weights = map(np.ascontiguousarray, (ids, planes, x, weights))
    searched = Columns(ids, first, sizes, missing, kinds, kind_sizes, bits, planes, lines, groups, spots)
    steps, deltas, counts, tables = grow(searched, x, weights, size, num_ids, costs, is_exact, num_lossless)
    is_split = steps[:, 0] == 0
    steps[is_split, 2] = at[steps[is_split, 2]]
    return Found(steps, deltas, counts, tables, time.perf_counter() - start)
