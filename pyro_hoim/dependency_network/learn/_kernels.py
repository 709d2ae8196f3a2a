"""Compiled loops of greedy structure learning (Numba, CPU). Imported when first needed.

A leaf is a slot: its table of counts, its rows as a range of a pool, and, where a split could pay, its counts of every
level of every other variable ("levels"). The cheapest partner of every leaf is kept, so that a step looks at each leaf
once. The functions release the interpreter lock and use no parallel runtime. All costs are in nats of all rows.
"""
# pyright: reportConstantRedefinition=false

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...compute.jit import njit
from ._merge_kernels import best_merge, leaf_entropy, renew_partners
from ._row_kernels import (
    add_levels,
    add_table,
    clear_table,
    copy_rows,
    fill_counts,
    join_rows,
    lossless_tables,
    rate_splits,
    split_rows,
)

Array = NDArray[Any]


@njit(nogil=True, cache=True)
def grow(
    ids: Array,
    x: Array,
    weights: Array,
    num_levels: Any,
    first: Array,
    sizes: Array,
    missing: Array,
    kinds: Array,
    kind_sizes: Array,
    num_ids: Any,
    table: Array,
    penalties: Array,
    least_rise: Any,
    max_leaves: Any,
    tolerance: Any,
    is_exact: Any,
    num_lossless: Any,
) -> tuple[Array, Array, Array]:
    """Greedy search from one leaf; steps (num_steps, 3), their changes of cost, the final tables, and lossless costs.

    Shapes: ids (U, d) numbers of levels over all columns (a column with missing cells has one more, ``missing``); x and
    weights (U,); first, sizes, missing and kinds (d,), kind -1 for a column not to be asked; penalties
    (max_leaves + 1,) by number of leaves. A step is (0, leaf, column), (1, first leaf, second leaf) or (2, 0, 0): start
    again from the lossless source of ``num_lossless`` leaves, considered where that is positive. ``is_exact`` says that
    weights are whole and no cell is missing; ``least_rise`` is the least that one more leaf adds to the penalty.
    """
    num_rows = x.shape[0]
    num_kinds = kind_sizes.shape[0]
    widest = 1
    for k in range(num_kinds):
        widest = max(widest, kind_sizes[k])
    room = max(max_leaves, 1) + widest + 2
    # Leaves by slot.
    counts = np.zeros((room, num_levels))
    totals = np.zeros(room)
    entropies = np.zeros(room)
    begin = np.zeros(room, dtype=np.int64)
    end = np.zeros(room, dtype=np.int64)
    held = np.full(room, -1, dtype=np.int64)  # position of the leaf's counts of levels, -1 without
    gains = np.full((room, num_kinds), np.inf)
    columns = np.full((room, num_kinds), -1, dtype=np.int64)
    partner = np.full(room, -1, dtype=np.int64)
    rise = np.full(room, np.inf)
    partner_size = np.full(room, -1.0)
    place = np.zeros(room, dtype=np.int64)
    order = np.zeros(room, dtype=np.int64)
    free = np.arange(room - 1, -1, -1)
    num_free = room
    # Counts of levels.
    levels = np.zeros((8, num_levels, num_ids))
    spare_levels = np.arange(7, -1, -1)
    num_spare = 8
    # Rows.
    pool = np.arange(num_rows).astype(np.int32)
    shares = weights.copy()
    pool_end = num_rows
    spare_rows = np.empty(num_rows, dtype=np.int32)
    spare_weights = np.empty(num_rows)
    seen = np.full(0 if is_exact else num_rows, -1, dtype=np.int64)

    steps = np.empty((64, 3), dtype=np.int64)
    deltas = np.empty(64)
    num_steps = 0
    low, high, gone = -1, -1, (-1, -1)
    lossless_cost = np.inf
    if num_lossless > 0:
        _, _, _, found = lossless_tables(ids, x, pool, shares, first, sizes, missing, kinds, num_levels)
        lossless_cost = penalties[num_lossless]
        for leaf in range(num_lossless):
            lossless_cost += leaf_entropy(found[leaf], fill_counts(counts[leaf], found[leaf]), table)
            clear_table(counts[leaf : leaf + 1])

    num_free -= 1
    root = free[num_free]
    for r in range(num_rows):
        counts[root, x[r]] += weights[r]
    totals[root] = fill_counts(counts[root], counts[root])
    entropies[root] = leaf_entropy(counts[root], totals[root], table)
    end[root] = num_rows
    order[0] = root
    num_leaves = 1
    cost = entropies[root] + penalties[1]
    new = np.full(1, root)
    if entropies[root] > least_rise:
        num_spare -= 1
        held[root] = spare_levels[num_spare]
        add_levels(levels[held[root]], ids, x, pool, shares, 0, num_rows, 1.0)

    while True:
        for c in new:
            for k in range(num_kinds):
                gains[c, k] = np.inf
            if held[c] >= 0:
                rate_splits(
                    levels[held[c]], entropies[c], first, sizes, missing, kinds, table, tolerance, gains[c], columns[c]
                )
        for at in range(num_leaves):
            place[order[at]] = at
        renew_partners(
            new, order, place, num_leaves, counts, totals, entropies, partner, rise, partner_size, table, tolerance
        )
        # The cheapest step; of equal ones a merge, then the earlier leaf, then the earlier column.
        best = np.inf
        chosen, column = -1, -1
        for at in range(num_leaves):
            slot = order[at]
            for k in range(num_kinds):
                if gains[slot, k] < np.inf and num_leaves + kind_sizes[k] - 1 <= max_leaves:
                    delta = gains[slot, k] + penalties[num_leaves + kind_sizes[k] - 1] - penalties[num_leaves]
                    ties = slot == chosen and columns[slot, k] < column and delta <= best + tolerance
                    if delta < best - tolerance or ties:
                        best, chosen, column = delta, slot, columns[slot, k]
        one = best_merge(order, num_leaves, counts, totals, entropies, partner, rise, partner_size, table, tolerance)
        merged = rise[one] + penalties[num_leaves - 1] - penalties[num_leaves] if one >= 0 else np.inf
        is_merge = one >= 0 and merged <= best + tolerance
        if is_merge:
            best = merged
        jumps = lossless_cost < cost + min(best, 0.0) - tolerance
        if not jumps and not best < -tolerance:
            break
        if num_steps == steps.shape[0]:
            more, longer = np.empty((2 * num_steps, 3), dtype=np.int64), np.empty(2 * num_steps)
            for at in range(num_steps):
                longer[at] = deltas[at]
                for k in range(3):
                    more[at, k] = steps[at, k]
            steps, deltas = more, longer

        if jumps:
            steps[num_steps, 0], steps[num_steps, 1], steps[num_steps, 2] = 2, 0, 0
            deltas[num_steps] = lossless_cost - cost
            num_steps += 1
            cost = lossless_cost
            lossless_cost = np.inf
            for at in range(num_leaves):
                if held[order[at]] >= 0:
                    spare_levels[num_spare] = held[order[at]]
                    num_spare += 1
                    held[order[at]] = -1
            every = np.arange(num_rows).astype(np.int32)
            pool, shares, stops, found = lossless_tables(
                ids, x, every, weights.copy(), first, sizes, missing, kinds, num_levels
            )
            pool_end = pool.shape[0]
            num_leaves = num_lossless
            num_free = room - num_leaves
            new = np.arange(num_leaves)
            for slot in range(room):
                free[slot] = room - 1 - slot
            for slot in range(num_leaves):
                order[slot] = slot
                totals[slot] = fill_counts(counts[slot], found[slot])
                entropies[slot] = leaf_entropy(counts[slot], totals[slot], table)
                begin[slot] = stops[slot - 1] if slot else 0
                end[slot] = stops[slot]
                held[slot] = -1  # the leaves differ in every column: no split can pay before a merge
            continue

        live = 0
        for at in range(num_leaves):
            live += end[order[at]] - begin[order[at]]
        if is_merge:
            low, high = one, partner[one]
            if place[low] > place[high]:
                low, high = high, low
            needed = end[low] - begin[low] + end[high] - begin[high]
        else:
            needed = end[chosen] - begin[chosen]
            if missing[column] >= 0:
                for p in range(begin[chosen], end[chosen]):
                    if ids[pool[p], column] == missing[column]:
                        needed += sizes[column]
        if needed > spare_rows.shape[0]:
            spare_rows = np.empty(2 * needed, dtype=np.int32)
            spare_weights = np.empty(2 * needed)
        if pool_end + needed > pool.shape[0]:
            wider = np.empty(2 * live + needed, dtype=np.int32)
            wider_shares = np.empty(2 * live + needed)
            used = 0
            for at in range(num_leaves):
                slot = order[at]
                length = end[slot] - begin[slot]
                copy_rows(wider, wider_shares, used, pool, shares, begin[slot], end[slot])
                begin[slot], end[slot] = used, used + length
                used += length
            pool, shares, pool_end = wider, wider_shares, used
        most = num_spare - (1 if is_merge else sizes[column])
        if most < 0:
            former = levels.shape[0]
            more_levels = np.empty((2 * former + widest, num_levels, num_ids))
            for at in range(former):
                add_table(more_levels[at], levels[at], 0.0, 1.0)
            levels = more_levels
            more_spare = np.empty(levels.shape[0], dtype=np.int64)
            for at in range(num_spare):
                more_spare[at] = spare_levels[at]
            for at in range(former, levels.shape[0]):
                more_spare[num_spare] = at
                num_spare += 1
            spare_levels = more_spare

        deltas[num_steps] = best
        cost += best
        if is_merge:
            steps[num_steps, 0], steps[num_steps, 1], steps[num_steps, 2] = 1, place[low], place[high]
            num_steps += 1
            num_free -= 1
            c = free[num_free]
            new = np.full(1, c)
            for level in range(num_levels):
                counts[c, level] = counts[low, level] + counts[high, level]
            totals[c] = totals[low] + totals[high]
            entropies[c] = leaf_entropy(counts[c], totals[c], table)
            # Counts of levels: of both leaves, of one of them and the rows of the other, or of the rows.
            held[c] = -1
            if held[low] >= 0 and held[high] >= 0:
                add_table(levels[held[low]], levels[held[high]], 1.0, 1.0)
            elif held[low] >= 0:
                add_levels(levels[held[low]], ids, x, pool, shares, begin[high], end[high], 1.0)
            elif held[high] >= 0:
                add_levels(levels[held[high]], ids, x, pool, shares, begin[low], end[low], 1.0)
            elif entropies[c] > least_rise:
                num_spare -= 1
                held[c] = spare_levels[num_spare]
                clear_table(levels[held[c]])
                add_levels(levels[held[c]], ids, x, pool, shares, begin[low], end[low], 1.0)
                add_levels(levels[held[c]], ids, x, pool, shares, begin[high], end[high], 1.0)
            if held[low] >= 0:
                held[c] = held[low]
                if held[high] >= 0:
                    spare_levels[num_spare] = held[high]
                    num_spare += 1
            elif held[high] >= 0:
                held[c] = held[high]
            if is_exact and end[low] == begin[high]:
                begin[c], end[c] = begin[low], end[high]
            elif is_exact and end[high] == begin[low]:
                begin[c], end[c] = begin[high], end[low]
            else:
                if is_exact:
                    length = end[low] - begin[low]
                    copy_rows(pool, shares, pool_end, pool, shares, begin[low], end[low])
                    copy_rows(pool, shares, pool_end + length, pool, shares, begin[high], end[high])
                    length = needed
                else:
                    length = join_rows(
                        pool, shares, begin[low], end[low], begin[high], end[high], spare_rows, spare_weights, seen
                    )
                    copy_rows(pool, shares, pool_end, spare_rows, spare_weights, 0, length)
                begin[c], end[c] = pool_end, pool_end + length
                pool_end += length
            order[place[low]] = c
            for at in range(place[high], num_leaves - 1):
                order[at] = order[at + 1]
            num_leaves -= 1
            gone = (low, high)
        else:
            steps[num_steps, 0], steps[num_steps, 1], steps[num_steps, 2] = 0, place[chosen], column
            num_steps += 1
            parts = sizes[column]
            new = np.empty(parts, dtype=np.int64)
            tables = np.zeros((parts, num_levels))
            stop = split_rows(
                ids, x, pool, shares, begin[chosen], end[chosen], column, first[column], parts, missing[column],
                spare_rows, spare_weights, tables,
            )  # fmt: skip
            length = stop[parts - 1]
            at = begin[chosen]
            if length > end[chosen] - begin[chosen]:
                at = pool_end
                pool_end += length
            copy_rows(pool, shares, at, spare_rows, spare_weights, 0, length)
            largest, small = 0, 0
            for part in range(parts):
                num_free -= 1
                c = free[num_free]
                new[part] = c
                totals[c] = fill_counts(counts[c], tables[part])
                entropies[c] = leaf_entropy(counts[c], totals[c], table)
                begin[c] = at + (stop[part - 1] if part else 0)
                end[c] = at + stop[part]
                held[c] = -1
                if end[c] - begin[c] > end[new[largest]] - begin[new[largest]]:
                    largest = part
            heir = new[largest]
            for part in range(parts):
                c = new[part]
                if part != largest and entropies[c] <= least_rise:
                    small += end[c] - begin[c]
            # The largest child takes the parent's counts of levels less those of the others, where that is less work.
            inherits = (
                is_exact and held[chosen] >= 0 and entropies[heir] > least_rise and small < end[heir] - begin[heir]
            )
            for part in range(parts):
                c = new[part]
                if entropies[c] > least_rise and not (inherits and part == largest):
                    num_spare -= 1
                    held[c] = spare_levels[num_spare]
                    clear_table(levels[held[c]])
                    add_levels(levels[held[c]], ids, x, pool, shares, begin[c], end[c], 1.0)
                    if inherits:
                        add_table(levels[held[chosen]], levels[held[c]], 1.0, -1.0)
                elif inherits and part != largest:
                    add_levels(levels[held[chosen]], ids, x, pool, shares, begin[c], end[c], -1.0)
            if inherits:
                held[heir] = held[chosen]
            elif held[chosen] >= 0:
                spare_levels[num_spare] = held[chosen]
                num_spare += 1
            for at in range(place[chosen], num_leaves - 1):
                order[at] = order[at + 1]
            for part in range(parts):
                order[num_leaves - 1 + part] = new[part]
            num_leaves += parts - 1
            gone = (chosen, chosen)
        for at in range(num_leaves):
            slot = order[at]
            if partner[slot] == gone[0] or partner[slot] == gone[1]:
                partner[slot] = -1
        for slot in gone:
            held[slot] = -1
        free[num_free] = gone[0]
        num_free += 1
        if gone[1] != gone[0]:
            free[num_free] = gone[1]
            num_free += 1

    final = np.empty((num_leaves, num_levels))
    for at in range(num_leaves):
        fill_counts(final[at], counts[order[at]])
    return steps[:num_steps].copy(), deltas[:num_steps].copy(), final
