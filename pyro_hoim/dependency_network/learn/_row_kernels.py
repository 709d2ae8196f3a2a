"""Compiled loops of the search for decision graphs over rows, bits and leaves (Numba, CPU)."""

# pyright: reportConstantRedefinition=false, reportCallIssue=false

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...compute.jit import ALONE, njit
from ...compute.vectors import LANES, add_where, load, load_few, peek, poke, store

# Compiled loops over rows held as bits, one for each level but the first of every column (Numba, CPU).


Array = NDArray[Any]

_ONE = np.uint64(1)
_HALVES = np.array(
    [0x00000000FFFFFFFF, 0x0000FFFF0000FFFF, 0x00FF00FF00FF00FF, 0x0F0F0F0F0F0F0F0F, 0x3333333333333333,
     0x5555555555555555], dtype=np.uint64,
)  # fmt: skip
_TILE = 512  # rows that are packed column by column
_SIDE = 8  # words of a column that are written together
_BATCH = 16  # rows that are added up bit by bit before their sum is counted
_MOST = 255  # such sums that a byte can count


@njit(cache=True)
def pack_bits(codes: Array, ranks: Array, first: Array, planes: Array, bits: Array) -> None:
    """Set the bits of rows.

    Shapes: codes (d, n) from 0; ranks of all levels of all columns, those of column j from first[j]; planes (d,) first
    bit of each column; bits (n, W) uint64.
    """
    num_columns, num_rows = codes.shape
    for start in range(0, num_rows, _TILE):
        for j in range(num_columns):
            column, base, plane = codes[j], first[j], planes[j] - 1
            for r in range(start, min(num_rows, start + _TILE)):
                rank = ranks[base + column[r]]
                if rank > 0:
                    bits[r, (plane + rank) >> 6] |= _ONE << np.uint64((plane + rank) & 63)


@njit(cache=True)
def bit_level(bits: Array, row: Any, plane: Any, size: Any) -> Any:
    """Rank of a row's level in the column whose bits begin at a plane."""
    for k in range(size - 1):
        if (bits[row, (plane + k) >> 6] >> np.uint64((plane + k) & 63)) & _ONE:
            return k + 1
    return 0


@njit(cache=True)
def bit_ranks(bits: Array, plane: Any, size: Any, out: Array) -> None:
    """Ranks of the levels of rows in one column, (n,)."""
    for r in range(out.shape[0]):
        out[r] = bit_level(bits, r, plane, size)


@njit(cache=True)
def key_bits(bits: Array, planes: Array, sizes: Array, first: Array, keys: Array, out: Array) -> None:
    """Add the keys of the levels of some columns to those of the rows, (n,) uint64; ``keys`` are by number of level."""
    for r in range(out.shape[0]):
        for j in range(planes.shape[0]):
            out[r] += keys[first[j] + bit_level(bits, r, planes[j], sizes[j])]


@njit(**ALONE)
def _transpose(flat: Array, width: Any) -> None:
    """Transpose squares of 64 x 64 bits that stand side by side, 64 lines of some width."""
    step = 32
    for stage in range(6):
        half, by, span = _HALVES[stage], np.uint64(step), step * width
        for base in range(0, 64 * width, 2 * span):
            low, high = flat[base : base + span], flat[base + span : base + 2 * span]
            for i in range(span):  # two stretches, so that several words are moved at once
                one, two = low[i], high[i]
                moved = ((one >> by) ^ two) & half
                low[i] = one ^ (moved << by)
                high[i] = two ^ moved
        step >>= 1


@njit(cache=True)
def turn_bits(bits: Array, num_rows: Any, lines: Array) -> None:
    """Rows of bits (n and more, W) as lines (64 W, words) of the bits of one place in all rows."""
    width = bits.shape[1]
    flat = np.empty(64 * _SIDE * width, dtype=np.uint64)
    for start in range(0, num_rows, 64 * _SIDE):
        stop = min(num_rows, start + 64 * _SIDE)
        flat[:] = np.uint64(0)
        for r in range(start, stop):
            line = ((r - start) & 63) * _SIDE * width + ((r - start) >> 6)
            for w in range(width):
                flat[line + w * _SIDE] = bits[r, w]
        _transpose(flat, _SIDE * width)
        for c in range(64):
            for w in range(width):
                for k in range((stop - start + 63) // 64):
                    lines[64 * w + c, (start >> 6) + k] = flat[(c * width + w) * _SIDE + k]


@njit(**ALONE, forceinline=True)
def _sum(a: Any, b: Any, c: Any) -> Any:
    """Sum of three bits in every place, its low bits and its high ones."""
    odd = a ^ b
    return odd ^ c, (a & b) | (odd & c)


@njit(**ALONE, forceinline=True)
def _sum_eight(bits: Any, at: Any, start: Any, ones: Any, twos: Any, fours: Any) -> Any:
    """Add eight rows that begin at places of the bits; what is carried are the eights."""
    ones, one = _sum(ones, load_few(bits, peek(at, start)), load_few(bits, peek(at, start + 1)))
    ones, two = _sum(ones, load_few(bits, peek(at, start + 2)), load_few(bits, peek(at, start + 3)))
    twos, four = _sum(twos, one, two)
    ones, one = _sum(ones, load_few(bits, peek(at, start + 4)), load_few(bits, peek(at, start + 5)))
    ones, two = _sum(ones, load_few(bits, peek(at, start + 6)), load_few(bits, peek(at, start + 7)))
    twos, one = _sum(twos, one, two)
    fours, eights = _sum(fours, four, one)
    return ones, twos, fours, eights


@njit(**ALONE)
def _count_places(bits: Any, rows: Any, begin: Any, end: Any, word: Any, empty: Any, sums: Any) -> None:
    """Put into sums (512,) how many rows of a range have each bit of eight words, from a word of the row on.

    Sixteen rows at a time are added up in every place, by sums and carries of single bits (Mula, Kurz and Lemire,
    Faster population counts using AVX2 instructions, The Computer Journal 61, 2018), and what is carried is counted in
    bytes. ``empty`` is where eight words of zeros begin.
    """
    number = 0
    at, carried = np.empty(_BATCH, dtype=np.int64), np.empty((5, _SIDE), dtype=np.uint64)
    bytes_of, one = np.zeros(64 * _SIDE, dtype=np.uint8), np.uint8(1)
    first = load_few(bits, empty)
    ones, twos, fours, eights = first, first, first, first
    for start in range(begin, end, _BATCH):
        for i in range(_BATCH):
            poke(at, i, peek(rows, start + i) * bits.shape[1] + word if start + i < end else empty)
        ones, twos, fours, low = _sum_eight(bits, at, 0, ones, twos, fours)
        ones, twos, fours, high = _sum_eight(bits, at, 8, ones, twos, fours)
        eights, sixteens = _sum(eights, low, high)
        store(carried, 4 * _SIDE, sixteens)
        for w in range(_SIDE):
            chosen = peek(carried, 4 * _SIDE + w)
            for half in range(0, 64, LANES):
                first_lane = 64 * w + half
                store(bytes_of, first_lane, add_where(load(bytes_of, first_lane), one, chosen, np.uint64(half)))
        number += 1
        if number == _MOST:
            for c in range(64 * _SIDE):
                sums[c] += _BATCH * np.int64(bytes_of[c])
                bytes_of[c] = 0
            number = 0
    store(carried, 0, ones)
    store(carried, _SIDE, twos)
    store(carried, 2 * _SIDE, fours)
    store(carried, 3 * _SIDE, eights)
    for c in range(64 * _SIDE):
        total = _BATCH * np.int64(bytes_of[c])
        for k in range(4):
            total += np.int64((carried[k, c >> 6] >> np.uint64(c & 63)) & _ONE) << k
        sums[c] += total


@njit(cache=True)
def add_bits(
    levels: Array, bits: Array, groups: Array, spots: Array, first: Array, sizes: Array, rows: Array, begin: Any,
    counts: Array, sign: Any,
) -> None:  # fmt: skip
    """Add rows, once each, to the counts of levels (n_i, num_levels).

    Rows stand by the node's own level, of which there are ``counts``, from ``begin`` on. Shapes: groups (g,) of eight
    words to look at; spots by number of level, place of its bit among those of the groups.
    """
    sums = np.empty(64 * _SIDE * groups.shape[0], dtype=np.int64)
    empty = bits.shape[0] * bits.shape[1] - _SIDE
    for v in range(levels.shape[0]):
        end = begin + np.int64(counts[v])
        sums[:] = 0
        for g in range(groups.shape[0]):
            part = sums[64 * _SIDE * g : 64 * _SIDE * (g + 1)]
            _count_places(bits, rows, begin, end, _SIDE * groups[g], empty, part)
        for k in range(first.shape[0]):
            rest = end - begin
            for number in range(first[k] + 1, first[k] + sizes[k]):
                count = sums[spots[number]]
                levels[v, number] += sign * count
                rest -= count
            levels[v, first[k]] += sign * rest
        begin = end


@njit(cache=True)
def order_rows(x: Array, counts: Array) -> Array:
    """Rows by level, of which there are ``counts``, and by number."""
    rows, at = np.empty(x.shape[0], dtype=np.int32), np.zeros(counts.shape[0], dtype=np.int64)
    for v in range(1, counts.shape[0]):
        at[v] = at[v - 1] + np.int64(counts[v - 1])
    for r in range(x.shape[0]):
        rows[at[x[r]]] = r
        at[x[r]] += 1
    return rows


@njit(cache=True)
def split_bits(lines: Array, plane: Any, size: Any, rows: Array, begin: Any, end: Any, spare: Array) -> Array:
    """Order rows of a range by the level of the column whose bits begin at a plane, stably; ends of levels (size,)."""
    stop = np.empty(size, dtype=np.int64)
    last = end
    # Level by level from the last: rows that have its bit leave, the others move up.
    for level in range(size - 1, 0, -1):
        stop[level] = last - begin
        line = lines[plane + level - 1]
        left, taken = begin, 0
        for p in range(begin, last):
            r = rows[p]
            bit = np.int64((line[r >> 6] >> np.uint64(r & 63)) & _ONE)
            rows[left] = r
            spare[taken] = r
            left += 1 - bit
            taken += bit
        for p in range(taken):
            rows[left + p] = spare[p]
        last = left
    stop[0] = last - begin
    return stop


# Compiled loops over leaves: entropies, and the cheapest leaf to merge every leaf with (Numba, CPU).


_LOST = -1  # no partner, or one that has just gone
_UNKNOWN = -2  # to be searched for, no better than the one before
_SAME = 1e-9  # relative difference of two row counts that are taken as equal


@njit(**ALONE)
def xlogx(value: Any, table: Array) -> Any:
    """Value times its logarithm, looked up where there is a table of whole numbers."""
    if table.shape[0] > 0:
        return table[np.int64(value)]
    return value * math.log(value) if value > 0 else 0.0


@njit(**ALONE)
def leaf_entropy(counts: Array, total: Any, table: Array) -> Any:
    """Entropy of the counts of a leaf times their sum."""
    value = xlogx(total, table)
    for x in range(counts.shape[0]):
        value -= xlogx(counts[x], table)
    return value


@njit(**ALONE)
def _union(leaves: Any, a: Any, b: Any, table: Array) -> Any:
    """What the entropy rises by when two leaves become one."""
    counts = leaves.counts
    value = xlogx(leaves.totals[a] + leaves.totals[b], table)
    for x in range(counts.shape[1]):
        value -= xlogx(counts[a, x] + counts[b, x], table)
    return value - leaves.entropies[a] - leaves.entropies[b]


@njit(**ALONE)
def merge_wins(delta: Any, size: Any, best: Any, best_size: Any, tolerance: Any) -> bool:
    """Whether a merge comes before another: it costs less or, at the same cost, joins more rows."""
    if delta < best - tolerance:
        return True
    return delta <= best + tolerance and size > best_size * (1 + _SAME)


@njit(**ALONE)
def _offer(leaves: Any, a: Any, b: Any, delta: Any, tolerance: Any) -> None:
    """Make a leaf the partner of another one that has none, or a worse one."""
    partner, rise, size = leaves.partner, leaves.rise, leaves.partner_size
    if partner[a] < 0 or merge_wins(delta, leaves.totals[b], rise[a], size[a], tolerance):
        partner[a], rise[a], size[a] = b, delta, leaves.totals[b]


@njit(**ALONE)
def renew_partners(leaves: Any, new: Array, num_leaves: Any, table: Array, tolerance: Any) -> None:
    """Partners after leaves were replaced by new ones.

    A leaf that has just lost its partner comes with partner -1 and its old rise and size; where no new leaf is as good,
    it leaves with partner -2 and these as a bound.
    """
    order, position, totals = leaves.order, leaves.place, leaves.totals
    partner, rise, partner_size = leaves.partner, leaves.rise, leaves.partner_size
    is_merge = new.shape[0] == 1
    is_new = np.zeros(num_leaves, dtype=np.bool_)
    for c in new:
        is_new[position[c]] = True
    for c in new:
        partner[c] = _LOST
        rise[c] = np.inf
        partner_size[c] = -1.0
        for at in range(num_leaves):
            b = order[at]
            if b == c:
                continue
            delta = _union(leaves, c, b, table)
            _offer(leaves, c, b, delta, tolerance)
            if is_new[at]:
                continue
            # Of equally good partners the earlier one. A merge stands no later than the leaves it was made of, so it
            # also follows an equally good partner that is gone.
            follows = is_merge and partner[b] == _LOST if partner[b] < 0 else position[c] < position[partner[b]]
            if merge_wins(delta, totals[c], rise[b], partner_size[b], tolerance) or (
                follows and not merge_wins(rise[b], partner_size[b], delta, totals[c], tolerance)
            ):
                partner[b], rise[b], partner_size[b] = c, delta, totals[c]
    # What no new leaf replaced is searched for when its bound comes first.
    for at in range(num_leaves):
        b = order[at]
        if partner[b] == _LOST and not is_new[at]:
            partner[b] = _UNKNOWN


@njit(**ALONE)
def best_merge(leaves: Any, num_leaves: Any, table: Array, tolerance: Any) -> int:
    """The leaf whose merge with its partner comes first, -1 where there is one leaf.

    What a leaf without a known partner had before bounds what it can have now, so it is searched for a new one only
    when that bound comes first.
    """
    order, partner, rise, partner_size = leaves.order, leaves.partner, leaves.rise, leaves.partner_size
    while True:
        one, size = -1, -1.0
        for at in range(num_leaves):
            slot = order[at]
            if partner[slot] != _LOST:
                together = leaves.totals[slot] + partner_size[slot]
                if one < 0 or merge_wins(rise[slot], together, rise[one], size, tolerance):
                    one, size = slot, together
        if one < 0 or partner[one] >= 0:
            return one
        partner[one], rise[one], partner_size[one] = _LOST, np.inf, -1.0
        for at in range(num_leaves):
            if order[at] != one:
                _offer(leaves, one, order[at], _union(leaves, one, order[at], table), tolerance)


# Compiled loops over rows: counts of levels, splits, the lossless source, keys (Numba, CPU).


_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@njit(**ALONE)
def clear_table(target: Array) -> None:
    """Zeros."""
    for a in range(target.shape[0]):
        for b in range(target.shape[1]):
            target[a, b] = 0.0


@njit(**ALONE)
def add_table(target: Array, source: Array, keep: Any, factor: Any) -> None:
    """Write ``keep`` times the target (0 or 1; what is not kept is not read) plus ``factor`` times the source."""
    for a in range(target.shape[0]):
        for b in range(target.shape[1]):
            target[a, b] = factor * source[a, b] + (target[a, b] if keep > 0 else 0.0)


@njit(**ALONE)
def fill_counts(target: Array, source: Array) -> Any:
    """Copy the counts of a leaf; their sum."""
    total = 0.0
    for x in range(source.shape[0]):
        target[x] = source[x]
        total += source[x]
    return total


@njit(**ALONE)
def copy_rows(
    rows: Array, weights: Array, at: Any, from_rows: Array, from_weights: Array, begin: Any, end: Any
) -> None:
    """Copy rows with their weights, if there are any, to a place that does not overlap."""
    for p in range(begin, end):
        rows[at + p - begin] = from_rows[p]
    if from_weights.shape[0] > 0:
        for p in range(begin, end):
            weights[at + p - begin] = from_weights[p]


@njit(**ALONE)
def add_levels(
    levels: Array, ids: Array, x: Array, rows: Array, weights: Array, begin: Any, end: Any, sign: Any
) -> None:
    """Add the rows of a range to the counts of levels (n_i, num_levels)."""
    num_columns = ids.shape[1]
    for p in range(begin, end):
        r = rows[p]
        weight = sign * weights[p]
        own = levels[x[r]]
        for k in range(num_columns):
            own[ids[r, k]] += weight


@njit(**ALONE)
def rate_splits(levels: Array, entropy: Any, columns: Any, costs: Any, gains: Array, chosen: Array) -> None:
    """Best change of entropy by a split, one per kind of column (columns with equally many levels are one kind)."""
    first, sizes, missing, kinds, table = columns.first, columns.sizes, columns.missing, columns.kinds, costs.table
    num_levels = levels.shape[0]
    for kind in range(gains.shape[0]):
        gains[kind] = np.inf
        chosen[kind] = -1
    absent = np.zeros(num_levels)
    for k in range(sizes.shape[0]):
        kind = kinds[k]
        if kind < 0:
            continue
        begin, size = first[k], sizes[k]
        # Rows without the cell go to every child with its share of the others.
        with_absent = False
        known = 0.0
        if missing[k] >= 0:
            for x in range(num_levels):
                absent[x] = levels[x, missing[k]]
                with_absent = with_absent or absent[x] > 0
            if with_absent:
                for c in range(begin, begin + size):
                    for x in range(num_levels):
                        known += levels[x, c]
                if known <= 0:
                    continue
        value = 0.0
        for c in range(begin, begin + size):
            share = 0.0
            if with_absent:
                for x in range(num_levels):
                    share += levels[x, c]
                share /= known
            total = 0.0
            for x in range(num_levels):
                count = levels[x, c]
                if with_absent:
                    count += share * absent[x]
                total += count
                value -= xlogx(count, table)
            value += xlogx(total, table)
        if value - entropy < gains[kind] - costs.tolerance:
            gains[kind] = value - entropy
            chosen[kind] = k


@njit(**ALONE)
def split_rows(
    columns: Any, x: Array, rows: Array, weights: Array, begin: Any, end: Any, column: Any,
    spare_rows: Array, spare_weights: Array, counts: Array,
) -> Array:  # fmt: skip
    """Rows of a leaf by the level of one column, into the spare arrays; ends of the children (size,).

    A row without that cell goes to every child with the child's share of the rows that have it (Quinlan, C4.5, 1993).
    Counts (size, n_i) receives the tables of the children. Where there are no ids, bits hold the column from a plane.
    """
    ids, bits, plane = columns.ids, columns.bits, columns.planes[column]
    first, size, missing = columns.first[column], columns.sizes[column], columns.missing[column]
    in_bits = ids.shape[0] == 0
    # How many rows every child gets, and its share of those without the cell.
    number = np.zeros(size + 1, dtype=np.int64)
    known = np.zeros(size)
    absent = 0
    for p in range(begin, end):
        level = first + bit_level(bits, rows[p], plane, size) if in_bits else ids[rows[p], column]
        if level == missing:
            absent += 1
        else:
            number[level - first] += 1
            known[level - first] += weights[p]
    share = np.zeros(size)
    total = 0.0
    for c in range(size):
        total += known[c]
    if absent:
        for c in range(size):
            share[c] = known[c] / total if total > 0 else 1.0 / size
    # The rows in the order of the children.
    at = np.zeros(size, dtype=np.int64)
    stop = np.empty(size, dtype=np.int64)
    length = 0
    for c in range(size):
        at[c] = length
        length += number[c] + (absent if share[c] > 0 else 0)
        stop[c] = length
    clear_table(counts)
    for p in range(begin, end):
        r = rows[p]
        level = first + bit_level(bits, r, plane, size) if in_bits else ids[r, column]
        if level == missing:
            for c in range(size):
                if share[c] > 0:
                    spare_rows[at[c]], spare_weights[at[c]] = r, weights[p] * share[c]
                    counts[c, x[r]] += weights[p] * share[c]
                    at[c] += 1
        else:
            c = level - first
            spare_rows[at[c]], spare_weights[at[c]] = r, weights[p]
            counts[c, x[r]] += weights[p]
            at[c] += 1
    return stop


@njit(**ALONE)
def join_rows(
    rows: Array, weights: Array, begin_a: Any, end_a: Any, begin_b: Any, end_b: Any,
    spare_rows: Array, spare_weights: Array, seen: Array,
) -> int:  # fmt: skip
    """Rows of two leaves into the spare arrays, a row in parts of both becoming one; their number."""
    length = 0
    for p in range(begin_a, end_a):
        spare_rows[length], spare_weights[length] = rows[p], weights[p]
        seen[rows[p]] = length
        length += 1
    for p in range(begin_b, end_b):
        at = seen[rows[p]]
        if at >= 0:
            spare_weights[at] += weights[p]
        else:
            spare_rows[length], spare_weights[length] = rows[p], weights[p]
            length += 1
    for p in range(begin_a, end_a):
        seen[rows[p]] = -1
    return length


@njit(**ALONE)
def lossless_tables(
    columns: Any, x: Array, rows: Array, weights: Array, num_levels: Any
) -> tuple[Array, Array, Array, Array]:
    """Rows sorted into the leaves of the lossless source: rows, weights, ends of the leaves and their tables.

    The leaves are those of a tree that asks every column in turn, in lexicographic order of the levels.
    """
    sizes, missing = columns.sizes, columns.missing
    stops = np.full(1, rows.shape[0])
    counts = np.zeros((1, num_levels))
    for p in range(rows.shape[0]):
        counts[0, x[rows[p]]] += weights[p]
    for k in range(sizes.shape[0]):
        if columns.kinds[k] < 0:
            continue
        size = sizes[k]
        room = rows.shape[0]
        if missing[k] >= 0:
            for p in range(rows.shape[0]):
                if columns.ids[rows[p], k] == missing[k]:
                    room += size
        new_rows = np.empty(room, dtype=rows.dtype)
        new_weights = np.empty(room)
        new_stops = np.empty(stops.shape[0] * size, dtype=np.int64)
        new_counts = np.zeros((stops.shape[0] * size, num_levels))
        begin, used = 0, 0
        for leaf in range(stops.shape[0]):
            tables = new_counts[leaf * size : (leaf + 1) * size]
            stop = split_rows(
                columns, x, rows, weights, begin, stops[leaf], k, new_rows[used:], new_weights[used:], tables
            )
            for c in range(size):
                new_stops[leaf * size + c] = used + stop[c]
            begin = stops[leaf]
            used += stop[size - 1]
        rows, weights, stops, counts = new_rows[:used].copy(), new_weights[:used].copy(), new_stops, new_counts
    return rows, weights, stops, counts


@njit(**ALONE)
def _mix(value: Any) -> Any:
    """Bits of a 64-bit number stirred (the finaliser of SplitMix64)."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


@njit(cache=True)
def add_colours(codes: Array, weights: Array, starts: Array, colours: Array, renewed: Array) -> None:
    """Add what rows say of the colours of levels to ``renewed``: a row is the levels' colours, a level the rows'.

    Shapes: codes (U, d) with -1 for missing, weights (U,) uint64, starts (d + 1,) first number of each column's levels;
    colours (starts[d],) uint64.
    """
    num_rows, num_columns = codes.shape
    for r in range(num_rows):
        row = _mix(weights[r] + _GOLDEN)
        for j in range(num_columns):
            if codes[r, j] >= 0:
                row += _mix(colours[starts[j] + codes[r, j]] + _GOLDEN * np.uint64(j + 1))
        row = _mix(row)
        for j in range(num_columns):
            if codes[r, j] >= 0:
                renewed[starts[j] + codes[r, j]] += row


@njit(cache=True)
def row_keys(ids: Array, out: Array, sign: Any) -> None:
    """Add a 64-bit key of every entry of ids (U, m) to its row's of out (U,) uint64, or take it away."""
    for r in range(ids.shape[0]):
        for k in range(ids.shape[1]):
            key = _mix(np.uint64(ids[r, k]) * _GOLDEN + _GOLDEN)
            out[r] = out[r] + key if sign > 0 else out[r] - key
