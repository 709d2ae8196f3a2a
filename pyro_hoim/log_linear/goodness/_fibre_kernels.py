"""Compiled walks over the tables with given margins, and their enumeration (Numba, CPU)."""
# pyright: reportConstantRedefinition=false

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...compute.jit import njit, write

WINDOW = 32
"""Most steps along a move from which the next table is drawn."""

MAX_LEVELS = 16
"""Most levels of a block that one circuit passes."""

Array = NDArray[Any]


@njit(forceinline=True)
def _below(state: Array, limit: Any) -> Any:
    """A whole number below a limit (at most 2^31) by splitmix64; sums and products wrap around."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    z = state[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return np.int64(((z >> np.uint64(32)) * np.uint64(limit)) >> np.uint64(32))


@njit
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


@njit
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
    return _cells(base, num_blocks, length, at, ends)


@njit
def _cells(base: Any, num_blocks: Any, length: Any, at: Array, ends: Array) -> Any:
    """Cells of a move from the levels of its blocks and what the cells have besides; half of their number."""
    if num_blocks == 1:
        ends[0, 0], ends[1, 0] = base + at[0, 0], base + at[0, 1]
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


@njit
def _row(state: Array, n: Array, cells: Array, part: Array, other: Array, key: Any, back: Any) -> Any:
    """Cell of a random row that is a key apart from two parts, or -1; how many rows are that, and how many another."""
    cell, total, total_back = np.int64(-1), np.int64(0), np.int64(0)
    for x in cells:
        rest = x - part[x] - other[x]
        if rest == key:
            total += n[x]
            if total == n[x] or _below(state, total) < n[x]:
                cell = x
        if rest == back:
            total_back += n[x]
    return cell, total, total_back


@njit
def _exchange(
    state: Array,
    n: Array,
    cells: Array,
    total: Any,
    allowed: Array,
    shape: Array,
    of_block: Array,
    at: Array,
    ends: Array,
) -> Any:
    """Half the number of cells of a move by one row that is found among the rows, or 0 where it is not accepted.

    A row is drawn, then one that differs in two blocks, then others that differ from a cell of the move in one block,
    until all levels are known; the rest of the cells that lose must hold rows. From the other end the same move back
    is found by the rows with both levels of the last block exchanged. A sum of rows over the levels of a block is the
    same at both ends, so the chances to find the rows differ by the rows found and by these sums (``odds``).
    """
    num_blocks, first, longest = shape[0], shape[1], shape[2]
    length, last, none = 2, num_blocks - 1, of_block[of_block.shape[0] - 1]
    while length < longest and _below(state, 5) < 2:
        length += 1
    # A random row, whose cell the move goes through.
    left, x = _below(state, total), np.int64(-1)
    for i in range(cells.shape[0]):
        x = cells[i]
        left -= n[x]
        if left < 0:
            break
    base = x
    for b in range(num_blocks):
        at[b, 0] = of_block[first + b, x]
        base -= at[b, 0]
    # A second row that differs in two blocks.
    key = x - at[min(1, last - 1), 0] - at[last, 0]
    y, _, _ = _row(state, n, cells, of_block[first + min(1, last - 1)], of_block[first + last], key, -1)
    for b in range(min(1, last - 1), last + 1, max(1, last - 1)):
        at[b, 1] = of_block[first + b, y]
        if at[b, 1] == at[b, 0]:
            return 0
    # Rows that show the other levels of each further block, and of the circuit.
    odds = 1.0
    if num_blocks > 2:
        shift = at[last, 1] - at[last, 0]
        odds = (n[x + shift] + 1) / n[x] * ((n[y - shift] + 1) / n[y])
        for j in range(2, last):
            key = x - at[1, 0] + at[1, 1] - at[j, 0]
            z, here, back = _row(state, n, cells, of_block[first + j], none, key, key + shift)
            if z < 0 or back == 0 or of_block[first + j, z] == at[j, 0]:
                return 0
            at[j, 1] = of_block[first + j, z]
            odds *= (n[z + shift] + 1) / n[z] * (here / back)
        for a in range(1, length):
            for b in range(2 if a + 1 < length else 1):
                sign = 1 if b == 0 else -1
                key = x - at[0, 0] - at[1, 0] + (at[1, a] if b == 0 else at[0, a] + shift)
                z, here, back = _row(state, n, cells, of_block[first + b], none, key, key + sign * shift)
                if z < 0 or back == 0:
                    return 0
                level = of_block[first + b, z]
                for i in range(a + b):
                    if at[b, i] == level:
                        return 0
                at[b, a + b] = level
                odds *= (n[z + sign * shift] + 1) / n[z] * (here / back)
    # Every cell that loses must hold a row, and every other one may gain.
    half = _cells(base, num_blocks, length, at, ends)
    for i in range(half):
        up, down = ends[0, i], ends[1, i]
        if n[up] == 0 or not allowed[down]:
            return 0
        odds *= n[up] / (n[down] + 1) if num_blocks > 2 else 1.0
    return half if odds >= 1 or _below(state, 2**31) < odds * 2**31 else 0


@njit
def _step(state: Array, n: Array, ends: Array, half: Any, low: Any, high: Any, occupied: Any, weights: Array) -> Any:
    """How far to go along a move: drawn from the law on the line, times the chance that the line is proposed."""
    # At an end of the line a cell empties, so that the line is proposed from there less often.
    full, at_low, at_high, now = 2 * half, 2 * half, 2 * half, 0
    for i in range(half):
        gains, loses = n[ends[0, i]], n[ends[1, i]]
        at_low -= gains == -low
        at_high -= loses == high
        now += (gains > 0) + (loses > 0)
    # A window on the line that holds the present table.
    offset = _below(state, WINDOW)
    first, last = max(low, -offset), min(high, WINDOW - 1 - offset)
    # Weights of the tables in it, by ratios from one to the next.
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
    # Times the chance that each proposes this line; then a draw.
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


@njit
def _moved(n: Array, d: Any, ends: Array, half: Any, listed: Array, where: Array, occupied: Any) -> Any:
    """Move by a number of rows, and keep the list of occupied cells; their number."""
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
    return occupied


@njit(cache=True)
def walk(
    n: Array,
    num_steps: Any,
    state: Array,
    allowed: Array,
    shapes: Array,
    of_block: Array,
    sizes: Array,
    offsets: Array,
    is_sparse: Any,
) -> Any:
    """Move a table of counts (num_cells,) int64 in place; the number of moves made.

    A structure of blocks, an occupied cell and other levels of the blocks are drawn uniformly, which proposes a line of
    tables; the next table is drawn on it so that tables weigh as the product of 1 / n!. In sparse tables, whose random
    cells hold no rows, every other move on average is found among the rows.
    """
    # The occupied cells, listed, and room for the largest move.
    listed, where = np.empty(n.shape[0], dtype=np.int64), np.empty(n.shape[0], dtype=np.int64)
    occupied, total = 0, n.sum()
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
        # In sparse tables moves are found among the rows.
        shape = shapes[_below(state, shapes.shape[0])]
        if is_sparse and shape[0] > 1 and _below(state, 2) == 0:
            half = _exchange(state, n, listed[:occupied], total, allowed, shape, of_block, at, ends)
            if half > 0:
                num_moves += 1
                occupied = _moved(n, -1, ends, half, listed, where, occupied)
            continue
        # A line through an occupied cell; how far it goes both ways.
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
        occupied = _moved(n, d, ends, half, listed, where, occupied)
    return num_moves


@njit(cache=True)
def chains(
    start: Array,
    num_steps: Any,
    state: Array,
    allowed: Array,
    shapes: Array,
    of_block: Array,
    sizes: Array,
    offsets: Array,
    is_sparse: Any,
    out: Array,
) -> Any:
    """Ends (num_chains, num_cells) of chains that leave the same table in turn; the number of moves made."""
    num_moves = 0
    for c in range(out.shape[0]):
        write(out[c], start)
        num_moves += walk(out[c], num_steps, state, allowed, shapes, of_block, sizes, offsets, is_sparse)
    return num_moves


@njit(cache=True)
def enumerate_tables(left: Array, group: Array, is_last: Array, out: Array, max_nodes: Any) -> Any:
    """All tables with given margins, cell by cell; their number, or -1 where there are too many to go through.

    ``left`` (num_groups,) are the margins, ``group`` (num_cells, num_margins) says to which a cell adds, ``is_last``
    whether it is the last to do so, ``out`` takes the tables (max_tables, num_cells).
    """
    num_cells, num_margins = group.shape
    # Depth first: a cell takes its least value on the way down, the next one on the way back.
    table, top = np.zeros(num_cells, dtype=np.int64), np.empty(num_cells, dtype=np.int64)
    num_tables, nodes, c, is_new = 0, 0, 0, True
    while c >= 0:
        if c == num_cells:
            if num_tables == out.shape[0]:
                return -1
            write(out[num_tables], table)
            num_tables += 1
            c, is_new = c - 1, False
            continue
        # The margins bound the value; the last cell of a margin has no choice.
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
    return num_tables
