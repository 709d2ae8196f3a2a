"""Compiled loops over leaves: entropies, and the cheapest leaf to merge every leaf with (Numba, CPU)."""
# pyright: reportConstantRedefinition=false

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

__all__ = ["leaf_entropy", "merge_wins", "renew_partners", "xlogx"]

_SAME = 1e-9  # relative difference of two row counts that are taken as equal

Array = NDArray[Any]


@njit(nogil=True, cache=True)
def xlogx(value: Any, table: Array) -> Any:
    """Value times its logarithm, looked up where there is a table of whole numbers."""
    if table.shape[0] > 0:
        return table[np.int64(value)]
    return value * math.log(value) if value > 0 else 0.0


@njit(nogil=True, cache=True)
def leaf_entropy(counts: Array, total: Any, table: Array) -> Any:
    """Entropy of the counts of a leaf times their sum."""
    value = xlogx(total, table)
    for x in range(counts.shape[0]):
        value -= xlogx(counts[x], table)
    return value


@njit(nogil=True, cache=True)
def _union(counts: Array, totals: Array, entropies: Array, a: Any, b: Any, table: Array) -> Any:
    """What the entropy rises by when two leaves become one."""
    value = xlogx(totals[a] + totals[b], table)
    for x in range(counts.shape[1]):
        value -= xlogx(counts[a, x] + counts[b, x], table)
    return value - entropies[a] - entropies[b]


@njit(nogil=True, cache=True)
def merge_wins(delta: Any, size: Any, best: Any, best_size: Any, tolerance: Any) -> bool:
    """Whether a merge comes before another: it costs less or, at the same cost, joins more rows."""
    if delta < best - tolerance:
        return True
    return delta <= best + tolerance and size > best_size * (1 + _SAME)


@njit(nogil=True, cache=True)
def _best_partner(
    a: Any,
    order: Array,
    num_leaves: Any,
    counts: Array,
    totals: Array,
    entropies: Array,
    partner: Array,
    rise: Array,
    partner_size: Array,
    table: Array,
    tolerance: Any,
) -> None:
    partner[a] = -1
    rise[a] = np.inf
    partner_size[a] = -1.0
    for at in range(num_leaves):
        b = order[at]
        if b != a:
            delta = _union(counts, totals, entropies, a, b, table)
            if partner[a] < 0 or merge_wins(delta, totals[b], rise[a], partner_size[a], tolerance):
                partner[a], rise[a], partner_size[a] = b, delta, totals[b]


@njit(nogil=True, cache=True)
def renew_partners(
    new: Array,
    order: Array,
    place: Array,
    num_leaves: Any,
    counts: Array,
    totals: Array,
    entropies: Array,
    partner: Array,
    rise: Array,
    partner_size: Array,
    table: Array,
    tolerance: Any,
) -> None:
    """Partners after leaves were replaced by new ones; a leaf that lost its partner has partner -1 and its old rise."""
    is_new = np.zeros(num_leaves, dtype=np.bool_)
    for c in new:
        is_new[place[c]] = True
    for c in new:
        partner[c] = -1
        rise[c] = np.inf
        partner_size[c] = -1.0
        for at in range(num_leaves):
            b = order[at]
            if b == c:
                continue
            delta = _union(counts, totals, entropies, c, b, table)
            if partner[c] < 0 or merge_wins(delta, totals[b], rise[c], partner_size[c], tolerance):
                partner[c], rise[c], partner_size[c] = b, delta, totals[b]
            if is_new[at]:
                continue
            if merge_wins(delta, totals[c], rise[b], partner_size[b], tolerance) or (
                partner[b] >= 0
                and place[c] < place[partner[b]]
                and not merge_wins(rise[b], partner_size[b], delta, totals[c], tolerance)
            ):
                partner[b], rise[b], partner_size[b] = c, delta, totals[c]
    for at in range(num_leaves):
        b = order[at]
        if partner[b] < 0 and not is_new[at]:
            _best_partner(
                b, order, num_leaves, counts, totals, entropies, partner, rise, partner_size, table, tolerance
            )
