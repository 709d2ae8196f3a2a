"""Compiled loops that count cells of rows that pass by, and mark the values that they hold (Numba, CPU).

Rows come column by column; a tile of them stays in the cache while all sets are counted. All functions release the
interpreter lock and use no parallel runtime.
"""
# pyright: reportConstantRedefinition=false

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...compute.jit import njit

Ints = NDArray[Any]

_TILE = 2048


@njit(nogil=True, cache=True)
def count_cells(codes: Ints, counts: Ints, sizes: Ints, members: Ints, ends: Ints, starts: Ints, out: Ints) -> None:
    """Add the rows to the tables of many sets.

    Shapes: codes (d, n) from 0; counts (n,), or (0,) for one each; sizes (d,); members of all sets one after another,
    those of set s end before ends[s]; the table of set s, row-major, starts at starts[s] of out. Neighbours of one
    length that differ in their last member share the cell numbers of the others.
    """
    # A tile of the rows is counted for all sets while it lies in the cache.
    num_rows = codes.shape[1]
    prefix = np.empty(_TILE, dtype=np.int64)
    for first in range(0, num_rows, _TILE):
        last = min(num_rows, first + _TILE)
        before, width = 0, -1
        for s in range(len(ends)):
            begin = ends[s - 1] if s else 0
            end = ends[s]
            base = starts[s]
            if end == begin:
                for i in range(first, last):
                    out[base] += counts[i] if len(counts) else 1
                width = 0
                continue
            # Neighbours that differ in their last variable alone share the cell numbers of the others.
            is_shared = width == end - begin
            if is_shared:
                for j in range(width - 1):
                    is_shared = is_shared and members[begin + j] == members[before + j]
            before, width = begin, end - begin
            size = sizes[members[end - 1]]
            if not is_shared:
                for i in range(last - first):
                    prefix[i] = 0
                for j in range(begin, end - 1):
                    column, n = codes[members[j]], sizes[members[j]]
                    for i in range(last - first):
                        prefix[i] = prefix[i] * n + column[first + i]
            column = codes[members[end - 1]]
            if len(counts):
                for i in range(last - first):
                    out[base + prefix[i] * size + column[first + i]] += counts[first + i]
            else:
                for i in range(last - first):
                    out[base + prefix[i] * size + column[first + i]] += 1


@njit(nogil=True, cache=True)
def mark_values(positions: Ints, seen: Ints) -> None:
    """Set seen[v] of every position v (n,); -1 for missing cells."""
    for i in range(len(positions)):
        if positions[i] >= 0:
            seen[positions[i]] = True
