"""Compiled loops that count cells of rows (Numba, CPU). Imported when first needed.

All functions release the interpreter lock and use no parallel runtime.
"""
# pyright: reportConstantRedefinition=false

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..compute.jit import njit

Floats = NDArray[Any]
Ints = NDArray[Any]


# Cells of rows that pass by, column by column: a tile of them stays in the cache while all sets are counted.

_TILE = 2048


@njit(cache=True)
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


@njit(cache=True)
def mark_values(positions: Ints, seen: Ints) -> None:
    """Set seen[v] of every position v (n,); -1 for missing cells."""
    for i in range(len(positions)):
        if positions[i] >= 0:
            seen[positions[i]] = True


# Cells of distinct rows in memory. The sets come in lexicographic order, so that neighbours share a prefix, whose
# distinct cells are numbered once, by first occurrence. A set then costs one pass over the rows whatever the number of
# cells that it could have, because no buffer is longer than (distinct rows) x (largest cardinality).


@njit(cache=True)
def cell_sums(columns: Ints, counts: Floats, cardinalities: Ints, sets: Ints, out: Floats) -> None:
    """Per set: the sum of c log c over the cells, and the number of those that are occupied.

    Shapes: columns (d, U), counts (U,), sets (m, k) in lexicographic order, out (m, 2).
    """
    # Room for one cell of every row and level; a row is numbered by its cell in the first variables of a set.
    num_sets, order = sets.shape
    num_rows = counts.shape[0]
    widest = 1
    for n in cardinalities:
        widest = max(widest, n)
    length = num_rows * widest
    prefix = np.zeros((order, num_rows), dtype=np.int32)  # prefix[j]: cell number of the first j variables
    occupied = np.ones(order, dtype=np.int64)
    number = np.full(length, -1, dtype=np.int32)
    used = np.empty(num_rows, dtype=np.int64)
    sums = np.zeros(length)
    for s in range(num_sets):
        # Sets come in lexicographic order, so that the cells of leading variables that are shared stay numbered.
        shared = 0
        if s > 0:
            while shared < order - 1 and sets[s, shared] == sets[s - 1, shared]:
                shared += 1
        for j in range(shared, order - 1):
            column = columns[sets[s, j]]
            n = cardinalities[sets[s, j]]
            num_found = 0
            for i in range(num_rows):
                cell = np.int64(prefix[j, i]) * n + column[i]
                if number[cell] < 0:
                    number[cell] = num_found
                    used[num_found] = cell
                    num_found += 1
                prefix[j + 1, i] = number[cell]
            for i in range(num_found):
                number[used[i]] = -1
            occupied[j + 1] = num_found
        # The last variable is not numbered: its cells are added up where they lie.
        column = columns[sets[s, order - 1]]
        n = cardinalities[sets[s, order - 1]]
        last = prefix[order - 1]
        num_cells = occupied[order - 1] * n
        for i in range(num_rows):
            sums[np.int64(last[i]) * n + column[i]] += counts[i]
        if num_cells > num_rows:  # fewer rows than cells: visit the occupied ones through the rows
            num_found = 0
            for i in range(num_rows):
                cell = np.int64(last[i]) * n + column[i]
                if sums[cell] > 0:
                    used[num_found] = cell
                    num_found += 1
                    number[cell] = 0
            distinct = 0
            for i in range(num_found):
                if number[used[i]] == 0:
                    number[used[i]] = -1
                    used[distinct] = used[i]
                    distinct += 1
        else:
            distinct = 0
            for cell in range(num_cells):
                if sums[cell] > 0:
                    used[distinct] = cell
                    distinct += 1
        # The sum over occupied cells, which are empty again for the next set.
        value = 0.0
        for i in range(distinct):
            c = sums[used[i]]
            value += c * math.log(c)
        out[s, 0] = value
        out[s, 1] = distinct
        for i in range(distinct):
            sums[used[i]] = 0.0
