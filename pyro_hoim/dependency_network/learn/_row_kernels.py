"""Compiled loops over rows: counts of levels, splits, the lossless source, keys (Numba, CPU)."""
# pyright: reportConstantRedefinition=false

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...compute.jit import njit
from ._bit_kernels import bit_level
from ._merge_kernels import xlogx

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)

Array = NDArray[Any]


@njit(nogil=True, cache=True)
def clear_table(target: Array) -> None:
    """Zeros."""
    for a in range(target.shape[0]):
        for b in range(target.shape[1]):
            target[a, b] = 0.0


@njit(nogil=True, cache=True)
def add_table(target: Array, source: Array, keep: Any, factor: Any) -> None:
    """Write ``keep`` times the target (0 or 1; what is not kept is not read) plus ``factor`` times the source."""
    for a in range(target.shape[0]):
        for b in range(target.shape[1]):
            target[a, b] = factor * source[a, b] + (target[a, b] if keep > 0 else 0.0)


@njit(nogil=True, cache=True)
def fill_counts(target: Array, source: Array) -> Any:
    """Copy the counts of a leaf; their sum."""
    total = 0.0
    for x in range(source.shape[0]):
        target[x] = source[x]
        total += source[x]
    return total


@njit(nogil=True, cache=True)
def copy_rows(
    rows: Array, weights: Array, at: Any, from_rows: Array, from_weights: Array, begin: Any, end: Any
) -> None:
    """Copy rows with their weights to a place that does not overlap."""
    for p in range(begin, end):
        rows[at + p - begin] = from_rows[p]
        weights[at + p - begin] = from_weights[p]


@njit(nogil=True, cache=True)
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


@njit(nogil=True, cache=True)
def rate_splits(
    levels: Array,
    entropy: Any,
    first: Array,
    sizes: Array,
    missing: Array,
    kinds: Array,
    table: Array,
    tolerance: Any,
    gains: Array,
    columns: Array,
) -> None:
    """Best change of entropy by a split, one per kind of column (columns with equally many levels are one kind)."""
    num_levels = levels.shape[0]
    for kind in range(gains.shape[0]):
        gains[kind] = np.inf
        columns[kind] = -1
    absent = np.zeros(num_levels)
    for k in range(sizes.shape[0]):
        kind = kinds[k]
        if kind < 0:
            continue
        begin, size = first[k], sizes[k]
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
        if value - entropy < gains[kind] - tolerance:
            gains[kind] = value - entropy
            columns[kind] = k


@njit(nogil=True, cache=True)
def split_rows(
    ids: Array,
    x: Array,
    rows: Array,
    weights: Array,
    begin: Any,
    end: Any,
    column: Any,
    first: Any,
    size: Any,
    missing: Any,
    spare_rows: Array,
    spare_weights: Array,
    counts: Array,
    bits: Array,
    plane: Any,
) -> Array:
    """Rows of a leaf by the level of one column, into the spare arrays; ends of the children (size,).

    A row without that cell goes to every child with the child's share of the rows that have it (Quinlan, C4.5, 1993).
    Counts (size, n_i) receives the tables of the children. Where there are no ids, bits hold the column from a plane.
    """
    in_bits = ids.shape[0] == 0
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


@njit(nogil=True, cache=True)
def join_rows(
    rows: Array,
    weights: Array,
    begin_a: Any,
    end_a: Any,
    begin_b: Any,
    end_b: Any,
    spare_rows: Array,
    spare_weights: Array,
    seen: Array,
) -> int:
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


@njit(nogil=True, cache=True)
def lossless_tables(
    ids: Array,
    x: Array,
    rows: Array,
    weights: Array,
    first: Array,
    sizes: Array,
    missing: Array,
    kinds: Array,
    num_levels: Any,
) -> tuple[Array, Array, Array, Array]:
    """Rows sorted into the leaves of the lossless source: rows, weights, ends of the leaves and their tables.

    The leaves are those of a tree that asks every column in turn, in lexicographic order of the levels.
    """
    stops = np.full(1, rows.shape[0])
    no_bits = np.empty((0, 0), dtype=np.uint64)
    counts = np.zeros((1, num_levels))
    for p in range(rows.shape[0]):
        counts[0, x[rows[p]]] += weights[p]
    for k in range(sizes.shape[0]):
        if kinds[k] < 0:
            continue
        size = sizes[k]
        room = rows.shape[0]
        if missing[k] >= 0:
            for p in range(rows.shape[0]):
                if ids[rows[p], k] == missing[k]:
                    room += size
        new_rows = np.empty(room, dtype=rows.dtype)
        new_weights = np.empty(room)
        new_stops = np.empty(stops.shape[0] * size, dtype=np.int64)
        new_counts = np.zeros((stops.shape[0] * size, num_levels))
        begin, used = 0, 0
        for leaf in range(stops.shape[0]):
            stop = split_rows(
                ids, x, rows, weights, begin, stops[leaf], k, first[k], size, missing[k],
                new_rows[used:], new_weights[used:], new_counts[leaf * size : (leaf + 1) * size], no_bits, 0,
            )  # fmt: skip
            for c in range(size):
                new_stops[leaf * size + c] = used + stop[c]
            begin = stops[leaf]
            used += stop[size - 1]
        rows, weights, stops, counts = new_rows[:used].copy(), new_weights[:used].copy(), new_stops, new_counts
    return rows, weights, stops, counts


@njit(nogil=True, cache=True)
def _mix(value: Any) -> Any:
    """Bits of a 64-bit number stirred (the finaliser of SplitMix64)."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


@njit(nogil=True, cache=True)
def level_colours(codes: Array, weights: Array, starts: Array, rounds: Any) -> Array:
    """A number for every level that depends on which rows have it and not on how levels or rows are numbered.

    Colour refinement: a row is the levels' colours, a level the rows'. Shapes: codes (U, d) with -1 for missing,
    weights (U,) uint64, starts (d + 1,) first number of each column's levels; returned (starts[d],) uint64.
    """
    num_rows, num_columns = codes.shape
    colours = np.zeros(starts[num_columns], dtype=np.uint64)
    for _ in range(rounds):
        renewed = np.zeros(starts[num_columns], dtype=np.uint64)
        for r in range(num_rows):
            row = _mix(weights[r] + _GOLDEN)
            for j in range(num_columns):
                if codes[r, j] >= 0:
                    row += _mix(colours[starts[j] + codes[r, j]] + _GOLDEN * np.uint64(j + 1))
            row = _mix(row)
            for j in range(num_columns):
                if codes[r, j] >= 0:
                    renewed[starts[j] + codes[r, j]] += row
        colours = renewed
    return colours


@njit(nogil=True, cache=True)
def level_key(number: Any) -> Any:
    """A 64-bit key of the number of a level."""
    return _mix(np.uint64(number) * _GOLDEN + _GOLDEN)


@njit(nogil=True, cache=True)
def row_keys(ids: Array, out: Array, sign: Any) -> None:
    """Add a 64-bit key of every entry of ids (U, m) to its row's of out (U,) uint64, or take it away."""
    for r in range(ids.shape[0]):
        for k in range(ids.shape[1]):
            key = level_key(ids[r, k])
            out[r] = out[r] + key if sign > 0 else out[r] - key
