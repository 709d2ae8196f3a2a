"""The compiled search of one node, called with arrays alone so that it can run in another process."""

from __future__ import annotations

import math
import time
from typing import NamedTuple

import numpy as np

from ._rows import Columns, Costs

_LARGEST_TABLE = 2**22
_TOLERANCE = 1e-12
_ROUNDING = 1e-14


class Found(NamedTuple):
    """What a search returns: arrays only, so that it travels between processes and into a checkpoint."""

    steps: np.ndarray
    deltas: np.ndarray
    counts: np.ndarray
    seconds: float


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
    ids, first, sizes, missing, kinds, kind_sizes = columns
    known = x < size
    if not known.all():
        ids, weights, x = ids[known], weights[known], x[known]
    total = float(weights.sum())
    table = np.empty(0)
    is_exact = is_whole and not (missing[kinds >= 0] >= 0).any()
    if is_exact and total < _LARGEST_TABLE:
        whole = np.arange(int(total) + 1, dtype=np.float64)
        table = whole * np.log(np.maximum(whole, 1.0))
    rises = np.diff(penalties[1:])
    least_rise = float(rises.min(initial=np.inf)) if len(rises) else 0.0
    # Changes of cost are told apart to the tolerance; of huge counts as finely as rounding allows where that is needed
    # to see what one leaf costs.
    scale = 1 + total * (1 + abs(math.log(total)))
    tolerance = _TOLERANCE * scale
    if least_rise > 0:
        tolerance = max(min(tolerance, least_rise / 4), _ROUNDING * scale)
    # Columns that are never asked need no counts of their levels: the node's own, and those of so many levels (names,
    # row numbers) that no split on them can pay.
    at = np.flatnonzero((kinds >= 0) & (sizes < len(penalties)))
    with_absent = missing[at] >= 0
    ends = np.cumsum(sizes[at] + with_absent)
    if int((sizes + (missing >= 0)).sum()) > 2 * (num_ids := int(ends[-1]) if len(at) else 0):
        begins = ends - sizes[at] - with_absent
        ids = (ids[:, at] + (begins - first[at])).astype(np.int32)
        first, sizes, kinds, missing = begins, sizes[at], kinds[at], np.where(with_absent, ends - 1, -1)
    else:
        at, num_ids = np.arange(len(sizes)), int((sizes + (missing >= 0)).sum())
    steps, deltas, counts = grow(
        Columns(np.ascontiguousarray(ids), first, sizes, missing, kinds, kind_sizes),
        np.ascontiguousarray(x),
        np.ascontiguousarray(weights),
        size,
        num_ids,
        Costs(table, penalties, least_rise, tolerance),
        is_exact,
        num_lossless,
    )
    is_split = steps[:, 0] == 0
    steps[is_split, 2] = at[steps[is_split, 2]]
    return Found(steps, deltas, counts, time.perf_counter() - start)
