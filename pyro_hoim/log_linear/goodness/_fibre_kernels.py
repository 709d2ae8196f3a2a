"""Compiled walks over the tables with given margins, and their enumeration (Numba, CPU)."""
# pyright: reportConstantRedefinition=false

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...compute.jit import njit

WINDOW = 32
"""Most steps along a move from which the next table is drawn."""

MAX_LEVELS = 16
"""Most levels of a block that one circuit passes."""

Array = NDArray[Any]


@njit(nogil=True, cache=True, inline="always")
def _below(state: Array, limit: Any) -> Any:
    """A whole number below a limit (at most 2^31) by splitmix64; sums and products wrap around."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    z = state[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return np.int64(((z >> np.uint64(32)) * np.uint64(limit)) >> np.uint64(32))


@njit(nogil=True, cache=True, inline="always")
def _other_level(state: Array, offsets: Array, start: Any, size: Any, passed: Array, num: Any) -> Any:
    """Offset of a level of a block that is none of those passed; the first one passed is that of the cell."""
    while True:
        r = _below(state, size - 1)
        if offsets[start + r] >= passed[0]:
            r += 1
        value = offsets[start + r]
        is_new = True
        for a in range(1, num):
            is_new = is_new and passed[a] != value
        if is_new:
            return value


@njit(nogil=True, cache=True, inline="always")
def _line(
    state: Array, x: Any, shape: Array, of_block: Array, sizes: Array, offsets: Array, at: Array, ends: Array
) -> Any:
    """Cells of a random signed move through a cell: half of their number; those that gain come first in ``ends``.

    The move is the product of a circuit in the first two blocks and a difference in each other block.
    """
    num_blocks, first, longest = shape[0], shape[1], shape[2]
    length = 2
    while length < longest and _below(state, 5) < 2:
        length += 1
    for b in range(num_blocks):
        at[b, 0] = of_block[first + b, x]
    base = x
    for b in range(num_blocks):
        base -= at[b, 0]
        for a in range(1, length if b < 2 and num_blocks > 1 else 2):
            at[b, a] = _other_level(state, offsets, sizes[first + b, 0], sizes[first + b, 1], at[b], a)
    if num_blocks == 1:
        ends[0, 0], ends[1, 0] = x, base + at[0, 1]
        return 1
    half = 0
    for a in range(length):
        following = a + 1 if a + 1 < length else 0
        ends[0, half] = base + at[0, a] + at[1, a]
        ends[1, half] = base + at[0, a] + at[1, following]
        half += 1
    for b in range(2, num_blocks):
        for i in range(half):
            up, down = ends[0, i], ends[1, i]
            ends[0, half + i], ends[1, half + i] = down + at[b, 1], up + at[b, 1]
            ends[0, i], ends[1, i] = up + at[b, 0], down + at[b, 0]
        half *= 2
    return half


@njit(nogil=True, cache=True, inline="always")
def _step(state: Array, n: Array, ends: Array, half: Any, low: Any, high: Any, occupied: Any, weights: Array) -> Any:
    """How far to go along a move: drawn from the law on the line, times the chance that the line is proposed."""
    full, at_low, at_high, now = 2 * half, 2 * half, 2 * half, 0
    for i in range(half):
        gains, loses = n[ends[0, i]], n[ends[1, i]]
        at_low -= gains == -low
        at_high -= loses == high
        now += (gains > 0) + (loses > 0)
    offset = _below(state, WINDOW)
    first, last = max(low, -offset), min(high, WINDOW - 1 - offset)
    weights[-first] = 1.0
    for d in range(last):
        ratio = 1.0
        for i in range(half):
            ratio *= (n[ends[1, i]] - d) / (n[ends[0, i]] + d + 1)
        weights[d + 1 - first] = weights[d - first] * ratio
    for d in range(0, first, -1):
        ratio = 1.0
        for i in range(half):
            ratio *= (n[ends[0, i]] + d) / (n[ends[1, i]] - d + 1)
        weights[d - 1 - first] = weights[d - first] * ratio
    total = 0.0
    for d in range(first, last + 1):
        here = at_low if d == low else at_high if d == high else full
        weights[d - first] *= here / (occupied - now + here)
        total += weights[d - first]
    left = (_below(state, 2**31) + 0.5) / 2**31 * total
    for d in range(first, last):
        left -= weights[d - first]
        if left < 0:
            return d
    return last


@njit(nogil=True, cache=True)
def walk(
    n: Array,
    num_steps: Any,
    state: Array,
    allowed: Array,
    shapes: Array,
    of_block: Array,
    sizes: Array,
    offsets: Array,
) -> Any:
    """Move a table of counts (num_cells,) int64 in place; the number of moves made.

    A structure of blocks, an occupied cell and other levels of the blocks are drawn uniformly, which proposes a line of
    tables; the next table is drawn on it so that tables weigh as the product of 1 / n!.
    """
    listed, where = np.empty(n.shape[0], dtype=np.int64), np.empty(n.shape[0], dtype=np.int64)
    occupied = 0
    for x in range(n.shape[0]):
        if n[x] > 0:
            listed[occupied], where[x] = x, occupied
            occupied += 1
    most = 1
    for s in range(shapes.shape[0]):
        most = max(most, shapes[s, 0])
    at = np.empty((most, MAX_LEVELS), dtype=np.int64)
    ends = np.empty((2, MAX_LEVELS * 2 ** max(0, most - 2)), dtype=np.int64)
    weights = np.empty(WINDOW)
    num_moves = 0
    for _ in range(num_steps):
        shape = shapes[_below(state, shapes.shape[0])]
        half = _line(state, listed[_below(state, occupied)], shape, of_block, sizes, offsets, at, ends)
        low, high = n[ends[0, 0]], n[ends[1, 0]]
        for i in range(half):
            up, down = ends[0, i], ends[1, i]
            low, high = min(low, n[up]), min(high, n[down])
            if not (allowed[up] and allowed[down]):
                low, high = 0, 0
            if low + high == 0:
                break
        if low + high == 0:
            continue
        d = _step(state, n, ends, half, -low, high, occupied, weights)
        if d == 0:
            continue
        num_moves += 1
        for side in range(2):
            for i in range(half):
                x = ends[side, i]
                before = n[x]
                n[x] += d if side == 0 else -d
                if before == 0:
                    listed[occupied], where[x] = x, occupied
                    occupied += 1
                elif n[x] == 0:
                    occupied -= 1
                    listed[where[x]] = listed[occupied]
                    where[listed[occupied]] = where[x]
    return num_moves


@njit(nogil=True, cache=True)
def chains(
    start: Array,
    num_steps: Any,
    state: Array,
    allowed: Array,
    shapes: Array,
    of_block: Array,
    sizes: Array,
    offsets: Array,
    out: Array,
) -> None:
    """Ends (num_chains, num_cells) of chains that leave the same table one after the other."""
    for c in range(out.shape[0]):
        out[c] = start
        walk(out[c], num_steps, state, allowed, shapes, of_block, sizes, offsets)


@njit(nogil=True, cache=True)
def enumerate_tables(left: Array, group: Array, is_last: Array, out: Array, max_nodes: Any) -> Any:
    """All tables with given margins, cell by cell; their number, or -1 where there are too many to go through.

    ``left`` (num_groups,) are the margins, ``group`` (num_cells, num_margins) says to which a cell adds, ``is_last``
    whether it is the last to do so, ``out`` takes the tables (max_tables, num_cells).
    """
    num_cells, num_margins = group.shape
    table, top = np.zeros(num_cells, dtype=np.int64), np.empty(num_cells, dtype=np.int64)
    found, nodes, c, is_new = 0, 0, 0, True
    while c >= 0:
        if c == num_cells:
            if found == out.shape[0]:
                return -1
            out[found] = table
            found += 1
            c, is_new = c - 1, False
            continue
        if is_new:
            nodes += 1
            if nodes > max_nodes:
                return -1
            low, high = np.int64(0), left[group[c, 0]]
            for m in range(num_margins):
                high = min(high, left[group[c, m]])
                if is_last[c, m]:
                    low = max(low, left[group[c, m]])
            value = low
            top[c] = high
        else:
            value = table[c] + 1
            for m in range(num_margins):
                left[group[c, m]] += table[c]
        if value > top[c]:
            table[c] = 0
            c, is_new = c - 1, False
            continue
        table[c] = value
        for m in range(num_margins):
            left[group[c, m]] -= value
        c, is_new = c + 1, True
    return found
