"""Compiled loops over leaves: entropies, and the cheapest leaf to merge every leaf with (Numba, CPU)."""
# pyright: reportConstantRedefinition=false

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...compute.jit import njit

_LOST = -1  # no partner, or one that has just gone
_UNKNOWN = -2  # to be searched for, no better than the one before
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
    """Partners after leaves were replaced by new ones.

    A leaf that has just lost its partner comes with partner -1 and its old rise and size; where no new leaf is as good,
    it leaves with partner -2 and these as a bound.
    """
    is_merge = new.shape[0] == 1
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
            # Of equally good partners the earlier one. A merge stands no later than the leaves it was made of, so it
            # also follows an equally good partner that is gone.
            follows = is_merge and partner[b] == _LOST if partner[b] < 0 else place[c] < place[partner[b]]
            if merge_wins(delta, totals[c], rise[b], partner_size[b], tolerance) or (
                follows and not merge_wins(rise[b], partner_size[b], delta, totals[c], tolerance)
            ):
                partner[b], rise[b], partner_size[b] = c, delta, totals[c]
    for at in range(num_leaves):
        b = order[at]
        if partner[b] == _LOST and not is_new[at]:
            partner[b] = _UNKNOWN


@njit(nogil=True, cache=True)
def best_merge(
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
) -> int:
    """The leaf whose merge with its partner comes first, -1 where there is one leaf.

    What a leaf without a known partner had before bounds what it can have now, so it is searched for a new one only
    when that bound comes first.
    """
    while True:
        one, size = -1, -1.0
        for at in range(num_leaves):
            slot = order[at]
            if partner[slot] != _LOST:
                together = totals[slot] + partner_size[slot]
                if one < 0 or merge_wins(rise[slot], together, rise[one], size, tolerance):
                    one, size = slot, together
        if one < 0 or partner[one] >= 0:
            return one
        _best_partner(one, order, num_leaves, counts, totals, entropies, partner, rise, partner_size, table, tolerance)
