"""Compiled loops over rows held as bits, one for each level but the first of every column (Numba, CPU)."""
# pyright: reportConstantRedefinition=false, reportCallIssue=false

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from ...compute.jit import njit

Array = NDArray[Any]

_ONE = np.uint64(1)
_HALVES = np.array(
    [0x00000000FFFFFFFF, 0x0000FFFF0000FFFF, 0x00FF00FF00FF00FF, 0x0F0F0F0F0F0F0F0F, 0x3333333333333333,
     0x5555555555555555], dtype=np.uint64,
)  # fmt: skip
_LENGTH = 16  # words that are transposed side by side, at least
_TILE = 512  # rows that are packed column by column


@intrinsic
def num_bits(_: Any, value: Any) -> Any:  # noqa: ARG001 (Numba passes its type by this name)
    """Number of set bits of a 64-bit word."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), generate


@njit(nogil=True, cache=True)
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


@njit(nogil=True, cache=True)
def bit_level(bits: Array, row: Any, plane: Any, size: Any) -> Any:
    """Rank of a row's level in the column whose bits begin at a plane."""
    for k in range(size - 1):
        if (bits[row, (plane + k) >> 6] >> np.uint64((plane + k) & 63)) & _ONE:
            return k + 1
    return 0


@njit(nogil=True, cache=True)
def unpack_bits(bits: Array, plane: Any, size: Any, out: Array) -> None:
    """Ranks of all rows' levels in one column, (n,)."""
    for r in range(out.shape[0]):
        out[r] = bit_level(bits, r, plane, size)


@njit(nogil=True, cache=True)
def key_bits(bits: Array, planes: Array, sizes: Array, first: Array, keys: Array, out: Array) -> None:
    """Add the keys of the levels of some columns to those of the rows, (n,) uint64; ``keys`` are by number of level."""
    for r in range(out.shape[0]):
        for j in range(planes.shape[0]):
            out[r] += keys[first[j] + bit_level(bits, r, planes[j], sizes[j])]


@njit(nogil=True, cache=True)
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


@njit(nogil=True, cache=True)
def _count_block(flat: Array, masks: Array, sums: Array) -> None:
    """Add the set bits of every word (64, L), all and those under the masks (K, L) of levels, to sums (K, 64, L)."""
    num_levels, _, length = sums.shape
    every = sums[0].reshape(64 * length)
    for i in range(64 * length):
        every[i] += np.int64(num_bits(flat[i]))
    for v in range(1, num_levels):
        mask = masks[v]
        for c in range(64):
            own, line = sums[v, c], flat[c * length : (c + 1) * length]
            for i in range(length):
                own[i] += np.int64(num_bits(line[i] & mask[i]))


@njit(nogil=True, cache=True)
def add_bits(
    levels: Array, bits: Array, words: Array, spots: Array, first: Array, sizes: Array, x: Array, rows: Array,
    begin: Any, end: Any, sign: Any,
) -> None:  # fmt: skip
    """Add the rows of a range, once each, to the counts of levels (n_i, num_levels).

    64 rows at a time are transposed, so that a count is the number of bits of a word. Shapes: words (w,) those to look
    at; spots by number of level, place of its bit c of word w as 64 * w + c.
    """
    num_levels, width = levels.shape[0], words.shape[0]
    side = max(1, min(_LENGTH // max(width, 1), (end - begin + 63) // 64))
    length = side * width
    flat = np.empty(64 * length, dtype=np.uint64)
    sums = np.zeros((num_levels, 64, length), dtype=np.int64)
    totals = np.zeros(num_levels, dtype=np.int64)
    masks = np.empty((num_levels, length), dtype=np.uint64)
    own = np.empty((num_levels, side), dtype=np.uint64)
    for start in range(begin, end, 64 * side):
        flat[:] = np.uint64(0)
        own[:] = np.uint64(0)
        for p in range(start, min(end, start + 64 * side)):
            r, at, place = rows[p], (p - start) >> 6, (p - start) & 63
            line = place * length + at * width
            for w in range(width):
                flat[line + w] = bits[r, words[w]]
            own[x[r], at] |= _ONE << np.uint64(place)
            totals[x[r]] += 1
        for v in range(num_levels):
            for i in range(length):
                masks[v, i] = own[v, i // width]
        _transpose(flat, length)
        _count_block(flat, masks, sums)
    for k in range(first.shape[0]):
        for v in range(num_levels):
            levels[v, first[k]] += sign * totals[v]
        for number in range(first[k] + 1, first[k] + sizes[k]):
            c, w = spots[number] & 63, spots[number] >> 6
            rest = np.int64(0)
            for v in range(num_levels - 1, -1, -1):
                count = np.int64(0)
                for i in range(w, length, width):
                    count += sums[v, c, i]
                if v:
                    rest += count
                else:
                    count -= rest
                levels[v, number] += sign * count
                levels[v, first[k]] -= sign * count
