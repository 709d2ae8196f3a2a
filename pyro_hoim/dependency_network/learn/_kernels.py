"""Compiled loops of greedy structure learning (Numba, CPU). Imported when first needed.

A leaf is a slot: its table of counts, its rows as a range of a pool, and, where a split could pay, its counts of every
level of every other variable ("levels"). The cheapest partner of every leaf is kept, so that a step looks at each leaf
once. The functions release the interpreter lock and use no parallel runtime. All costs are in nats of all rows. The
phases of :func:`grow` are inlined by Numba: compiled on their own, each with the tuple of all leaves, they take a fifth
more time to compile.
"""
# pyright: reportConstantRedefinition=false

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...compute.jit import njit
from ._row_kernels import (
    add_bits,
    add_levels,
    add_table,
    best_merge,
    clear_table,
    copy_rows,
    fill_counts,
    join_rows,
    leaf_entropy,
    lossless_tables,
    order_rows,
    rate_splits,
    renew_partners,
    split_bits,
    split_rows,
)
from ._rows import Columns, Costs

Array = NDArray[Any]


class Leaves(NamedTuple):
    """Leaves by slot, and their order; of ``free`` slots, as of every stack here, the number comes first."""

    counts: Array
    totals: Array
    entropies: Array
    begin: Array
    end: Array
    held: Array  # position of the leaf's counts of levels, -1 without
    gains: Array
    columns: Array
    partner: Array
    rise: Array
    partner_size: Array
    place: Array
    order: Array
    free: Array


@njit
def _pop(stack: Array) -> Any:
    """Take the last entry."""
    stack[0] -= 1
    return stack[stack[0] + 1]


@njit
def _push(stack: Array, value: Any) -> None:
    """Add an entry."""
    stack[0] += 1
    stack[stack[0]] = value


@njit
def _add(
    levels: Array, columns: Columns, x: Array, rows: Array, shares: Array, begin: Any, end: Any, counts: Array,
    sign: Any,
) -> None:  # fmt: skip
    """Add the rows of a range, of which there are counts by level, to the counts of levels."""
    ids, groups = columns.ids, columns.groups
    if groups.shape[0]:
        add_bits(levels, columns.bits, groups, columns.spots, columns.first, columns.sizes, rows, begin, counts, sign)
    elif ids.shape[0]:  # else there is no column to ask
        add_levels(levels, ids, x, rows, shares, begin, end, sign)


@njit
def _fill(leaves: Leaves, slot: Any, counts: Array, begin: Any, end: Any, table: Array) -> None:
    """Make a leaf of counts and a range of rows."""
    leaves.totals[slot] = fill_counts(leaves.counts[slot], counts)
    leaves.entropies[slot] = leaf_entropy(leaves.counts[slot], leaves.totals[slot], table)
    leaves.begin[slot] = begin
    leaves.end[slot] = end
    leaves.held[slot] = -1


@njit
def _rate(leaves: Leaves, new: Array, levels: Array, columns: Columns, costs: Costs) -> None:
    """Best splits of new leaves."""
    held, gains = leaves.held, leaves.gains
    for c in new:
        for k in range(gains.shape[1]):
            gains[c, k] = np.inf
        if held[c] >= 0:
            rate_splits(levels[held[c]], leaves.entropies[c], columns, costs, gains[c], leaves.columns[c])


@njit
def _best_split(leaves: Leaves, num_leaves: Any, kind_sizes: Array, costs: Costs) -> tuple[float, int, int]:
    """Change of cost, leaf and column of the cheapest split; of equal ones the earlier leaf, then column."""
    order, gains, columns, penalties, tolerance = (
        leaves.order, leaves.gains, leaves.columns, costs.penalties, costs.tolerance
    )  # fmt: skip
    best = np.inf
    chosen, column = -1, -1
    for at in range(num_leaves):
        slot = order[at]
        for k in range(kind_sizes.shape[0]):
            most = num_leaves + kind_sizes[k] - 1
            if gains[slot, k] < np.inf and most < penalties.shape[0]:
                delta = gains[slot, k] + penalties[most] - penalties[num_leaves]
                ties = slot == chosen and columns[slot, k] < column and delta <= best + tolerance
                if delta < best - tolerance or ties:
                    best, chosen, column = delta, slot, columns[slot, k]
    return best, chosen, column


@njit
def _fill_lossless(
    leaves: Leaves, num_leaves: Any, num_lossless: Any, spare: Array, stops: Array, counts: Array, table: Array
) -> None:
    """Leaves of the lossless source in place of all; they differ in every column: no split can pay before a merge."""
    order, free, room = leaves.order, leaves.free, leaves.totals.shape[0]
    for at in range(num_leaves):
        if leaves.held[order[at]] >= 0:
            _push(spare, leaves.held[order[at]])
            leaves.held[order[at]] = -1
    free[0] = room - num_lossless
    for slot in range(room):
        free[slot + 1] = room - 1 - slot
    for slot in range(num_lossless):
        order[slot] = slot
        _fill(leaves, slot, counts[slot], stops[slot - 1] if slot else 0, stops[slot], table)


@njit
def _longer(steps: Array, deltas: Array) -> tuple[Array, Array]:
    """Room for twice as many steps."""
    number = steps.shape[0]
    more, longer = np.empty((2 * number, 3), dtype=np.int64), np.empty(2 * number)
    for at in range(number):
        longer[at] = deltas[at]
        for k in range(3):
            more[at, k] = steps[at, k]
    return more, longer


@njit
def _packed(leaves: Leaves, num_leaves: Any, pool: Array, shares: Array, needed: Any) -> tuple[Array, Array, Any]:
    """The rows of the leaves in a pool with room for as many again and those needed, and their end."""
    order, begin, end = leaves.order, leaves.begin, leaves.end
    live = 0
    for at in range(num_leaves):
        live += end[order[at]] - begin[order[at]]
    wider = np.empty(2 * live + needed, dtype=np.int32)
    wider_shares = np.empty(2 * live + needed)
    used = 0
    for at in range(num_leaves):
        slot = order[at]
        length = end[slot] - begin[slot]
        copy_rows(wider, wider_shares, used, pool, shares, begin[slot], end[slot])
        begin[slot], end[slot] = used, used + length
        used += length
    return wider, wider_shares, used


@njit
def _more_levels(levels: Array, spare: Array, widest: Any) -> tuple[Array, Array]:
    """Room for twice as many counts of levels and those of one split."""
    former = levels.shape[0]
    more = np.empty((2 * former + widest, levels.shape[1], levels.shape[2]))
    for at in range(former):
        add_table(more[at], levels[at], 0.0, 1.0)
    more_spare = np.empty(more.shape[0] + 1, dtype=np.int64)
    for at in range(spare[0] + 1):
        more_spare[at] = spare[at]
    for at in range(former, more.shape[0]):
        _push(more_spare, at)
    return more, more_spare


@njit
def _merge_levels(
    leaves: Leaves, low: Any, high: Any, c: Any, levels: Array, spare: Array, columns: Columns, x: Array, pool: Array,
    shares: Array, least_rise: Any,
) -> None:  # fmt: skip
    """Counts of levels of a merged leaf: of both leaves, of one of them and the rows of the other, or of the rows."""
    begin, end, levels_of, counts = leaves.begin, leaves.end, leaves.held, leaves.counts
    levels_of[c] = -1
    if levels_of[low] >= 0 and levels_of[high] >= 0:
        add_table(levels[levels_of[low]], levels[levels_of[high]], 1.0, 1.0)
    elif levels_of[low] >= 0:
        _add(levels[levels_of[low]], columns, x, pool, shares, begin[high], end[high], counts[high], 1.0)
    elif levels_of[high] >= 0:
        _add(levels[levels_of[high]], columns, x, pool, shares, begin[low], end[low], counts[low], 1.0)
    elif leaves.entropies[c] > least_rise:
        levels_of[c] = _pop(spare)
        clear_table(levels[levels_of[c]])
        _add(levels[levels_of[c]], columns, x, pool, shares, begin[low], end[low], counts[low], 1.0)
        _add(levels[levels_of[c]], columns, x, pool, shares, begin[high], end[high], counts[high], 1.0)
    if levels_of[low] >= 0:
        levels_of[c] = levels_of[low]
        if levels_of[high] >= 0:
            _push(spare, levels_of[high])
    elif levels_of[high] >= 0:
        levels_of[c] = levels_of[high]


@njit
def _merge_rows(
    leaves: Leaves, low: Any, high: Any, c: Any, pool: Array, shares: Array, pool_end: Any, spare_rows: Array,
    spare_weights: Array, seen: Array, is_exact: Any, has_bits: Any,
) -> int:  # fmt: skip
    """Rows of a merged leaf, those held as bits by level; the end of the pool."""
    begin, end, counts = leaves.begin, leaves.end, leaves.counts
    if has_bits:
        begin[c], end[c] = pool_end, pool_end
        one, two = begin[low], begin[high]
        for v in range(counts.shape[1]):
            more, others = np.int64(counts[low, v]), np.int64(counts[high, v])
            copy_rows(pool, shares, end[c], pool, shares, one, one + more)
            copy_rows(pool, shares, end[c] + more, pool, shares, two, two + others)
            end[c] += more + others
            one += more
            two += others
        return int(end[c])
    if is_exact and end[low] == begin[high]:
        begin[c], end[c] = begin[low], end[high]
        return pool_end
    if is_exact and end[high] == begin[low]:
        begin[c], end[c] = begin[high], end[low]
        return pool_end
    if is_exact:
        length = end[low] - begin[low]
        copy_rows(pool, shares, pool_end, pool, shares, begin[low], end[low])
        copy_rows(pool, shares, pool_end + length, pool, shares, begin[high], end[high])
        length += end[high] - begin[high]
    else:
        length = join_rows(pool, shares, begin[low], end[low], begin[high], end[high], spare_rows, spare_weights, seen)
        copy_rows(pool, shares, pool_end, spare_rows, spare_weights, 0, length)
    begin[c], end[c] = pool_end, pool_end + length
    return pool_end + length


@njit
def _split(
    leaves: Leaves, chosen: Any, column: Any, columns: Columns, x: Array, levels: Array, pool: Array, shares: Array,
    pool_end: Any, spare_rows: Array, spare_weights: Array, table: Array, has_bits: Any,
) -> tuple[Array, int]:  # fmt: skip
    """Children of a leaf with their rows; their slots and the end of the pool."""
    parts, at, end = columns.sizes[column], leaves.begin[chosen], leaves.end[chosen]
    tables = np.zeros((parts, levels.shape[1]))
    if has_bits:  # whole numbers, which the counts of levels hold exactly
        for part in range(parts):
            for v in range(levels.shape[1]):
                tables[part, v] = levels[leaves.held[chosen], v, columns.first[column] + part]
        stop = split_bits(columns.lines, columns.planes[column], parts, pool, at, end, spare_rows)
    else:
        stop = split_rows(columns, x, pool, shares, at, end, column, spare_rows, spare_weights, tables)
        length = stop[parts - 1]
        if length > end - at:
            at = pool_end
            pool_end += length
        copy_rows(pool, shares, at, spare_rows, spare_weights, 0, length)
    new = np.empty(parts, dtype=np.int64)
    for part in range(parts):
        new[part] = _pop(leaves.free)
        _fill(leaves, new[part], tables[part], at + (stop[part - 1] if part else 0), at + stop[part], table)
    return new, pool_end


@njit
def _split_levels(
    leaves: Leaves, chosen: Any, new: Array, levels: Array, spare: Array, columns: Columns, x: Array, pool: Array,
    shares: Array, least_rise: Any, is_exact: Any,
) -> None:  # fmt: skip
    """Counts of levels of the children of a leaf.

    The largest child takes the parent's less those of the others, where that is less work.
    """
    begin, end, levels_of, entropies, counts = (
        leaves.begin, leaves.end, leaves.held, leaves.entropies, leaves.counts
    )  # fmt: skip
    heir, small = new[0], 0
    for c in new:
        if end[c] - begin[c] > end[heir] - begin[heir]:
            heir = c
    for c in new:
        if c != heir and entropies[c] <= least_rise:
            small += end[c] - begin[c]
    inherits = is_exact and levels_of[chosen] >= 0 and entropies[heir] > least_rise and small < end[heir] - begin[heir]
    for c in new:
        if entropies[c] > least_rise and not (inherits and c == heir):
            levels_of[c] = _pop(spare)
            clear_table(levels[levels_of[c]])
            _add(levels[levels_of[c]], columns, x, pool, shares, begin[c], end[c], counts[c], 1.0)
            if inherits:
                add_table(levels[levels_of[chosen]], levels[levels_of[c]], 1.0, -1.0)
        elif inherits and c != heir:
            _add(levels[levels_of[chosen]], columns, x, pool, shares, begin[c], end[c], counts[c], -1.0)
    if inherits:
        levels_of[heir] = levels_of[chosen]
    elif levels_of[chosen] >= 0:
        _push(spare, levels_of[chosen])


@njit
def _replace(leaves: Leaves, num_leaves: Any, first: Any, second: Any, new: Array) -> int:
    """Put a merged leaf in the place of the first, or children of one leaf at the end; the number of leaves."""
    order, position, partner = leaves.order, leaves.place, leaves.partner
    if first != second:
        order[position[first]] = new[0]
    for at in range(position[second], num_leaves - 1):
        order[at] = order[at + 1]
    num_leaves -= 1
    if first == second:
        for c in new:
            order[num_leaves] = c
            num_leaves += 1
    for at in range(num_leaves):
        slot = order[at]
        if partner[slot] == first or partner[slot] == second:
            partner[slot] = -1
    leaves.held[first] = leaves.held[second] = -1
    _push(leaves.free, first)
    if second != first:
        _push(leaves.free, second)
    return num_leaves


@njit
def _kept(tables: Array, number: Any, new: Array, counts: Array) -> tuple[Array, int]:
    """Tables of the leaves that splits made, with those of another split, and their number."""
    if number + new.shape[0] > tables.shape[0]:
        tables = np.concatenate((tables, np.empty((tables.shape[0] + new.shape[0], tables.shape[1]))))
    for c in new:
        fill_counts(tables[number], counts[c])
        number += 1
    return tables, number


@njit(cache=True)
def grow(
    columns: Columns,
    x: Array,
    weights: Array,
    num_levels: Any,
    num_ids: Any,
    costs: Costs,
    is_exact: Any,
    num_lossless: Any,
) -> tuple[Array, Array, Array, Array]:
    """Greedy search from one leaf; steps (num_steps, 3), their changes of cost, final tables, those of all splits.

    Shapes: x and weights (U,). A step is (0, leaf, column), (1, first leaf, second leaf) or (2, 0, 0): start again from
    the lossless source of ``num_lossless`` leaves, considered where that is positive. ``is_exact`` says that weights
    are whole and no cell is missing.
    """
    ids, sizes, missing, kind_sizes = columns.ids, columns.sizes, columns.missing, columns.kind_sizes
    table, penalties, least_rise, tolerance = costs
    num_rows, num_kinds, widest = x.shape[0], kind_sizes.shape[0], 1
    for k in range(num_kinds):
        widest = max(widest, kind_sizes[k])
    room = max(penalties.shape[0] - 1, 1) + widest + 2
    leaves = Leaves(
        np.zeros((room, num_levels)), np.zeros(room), np.zeros(room),
        np.zeros(room, dtype=np.int64), np.zeros(room, dtype=np.int64), np.full(room, -1, dtype=np.int64),
        np.full((room, num_kinds), np.inf), np.full((room, num_kinds), -1, dtype=np.int64),
        np.full(room, -1, dtype=np.int64), np.full(room, np.inf), np.full(room, -1.0),
        np.zeros(room, dtype=np.int64), np.zeros(room, dtype=np.int64), np.arange(room, -1, -1),
    )  # fmt: skip
    counts, totals, entropies, begin, end, levels_of = leaves[:6]
    partner, rise, position, order, free = leaves.partner, leaves.rise, leaves.place, leaves.order, leaves.free
    levels, spare = np.zeros((8, num_levels, num_ids)), np.arange(8, -1, -1)
    spare_rows, spare_weights = np.empty(num_rows, dtype=np.int32), np.empty(num_rows)
    seen = np.full(0 if is_exact else num_rows, -1, dtype=np.int64)
    steps, deltas, tables = np.empty((64, 3), dtype=np.int64), np.empty(64), np.empty((64, num_levels))
    num_steps, num_tables, lossless_cost = 0, 0, np.inf

    # One leaf with all rows, those held as bits by level and without weights.
    has_bits, root = columns.lines.shape[0] > 0, _pop(free)
    for r in range(num_rows):
        counts[root, x[r]] += weights[r]
    every = order_rows(x, counts[root]) if has_bits else np.arange(num_rows).astype(np.int32)
    pool, shares, pool_end = every.copy(), weights[:0].copy() if has_bits else weights.copy(), num_rows
    if num_lossless > 0:
        _, _, _, lossless = lossless_tables(columns, x, every, weights, num_levels)
        lossless_cost = penalties[num_lossless]
        for leaf in range(num_lossless):
            lossless_cost += leaf_entropy(lossless[leaf], fill_counts(lossless[leaf], lossless[leaf]), table)
    _fill(leaves, root, counts[root], 0, num_rows, table)
    order[0] = root
    num_leaves, cost, new = 1, entropies[root] + penalties[1], np.full(1, root)
    if entropies[root] > least_rise:
        levels_of[root] = _pop(spare)
        _add(levels[levels_of[root]], columns, x, pool, shares, 0, num_rows, counts[root], 1.0)

    # Step after step, until none lowers the cost.
    while True:
        _rate(leaves, new, levels, columns, costs)
        for at in range(num_leaves):
            position[order[at]] = at
        renew_partners(leaves, new, num_leaves, table, tolerance)
        # The cheapest step, of equal ones a merge.
        best, low, column = _best_split(leaves, num_leaves, kind_sizes, costs)
        high = low
        one = best_merge(leaves, num_leaves, table, tolerance)
        merged = rise[one] + penalties[num_leaves - 1] - penalties[num_leaves] if one >= 0 else np.inf
        is_merge = one >= 0 and merged <= best + tolerance
        best = merged if is_merge else best
        jumps = lossless_cost < cost + min(best, 0.0) - tolerance
        if not jumps and not best < -tolerance:
            break
        if num_steps == steps.shape[0]:
            steps, deltas = _longer(steps, deltas)
        if jumps:
            steps[num_steps, 0], steps[num_steps, 1], steps[num_steps, 2] = 2, 0, 0
            deltas[num_steps] = lossless_cost - cost
            num_steps += 1
            cost, lossless_cost = lossless_cost, np.inf
            pool, shares, stops, lossless = lossless_tables(columns, x, every, weights, num_levels)
            if has_bits:
                shares = shares[:0].copy()
            _fill_lossless(leaves, num_leaves, num_lossless, spare, stops, lossless, table)
            pool_end, num_leaves, new = pool.shape[0], num_lossless, np.arange(num_lossless)
            continue

        # Room for the rows and the counts of levels that the step makes.
        if is_merge:
            low, high = one, partner[one]
            if position[low] > position[high]:
                low, high = high, low
            needed = end[low] - begin[low] + end[high] - begin[high]
        else:
            needed = end[low] - begin[low]
            if missing[column] >= 0:
                for p in range(begin[low], end[low]):
                    if ids[pool[p], column] == missing[column]:
                        needed += sizes[column]
        if needed > spare_rows.shape[0]:
            spare_rows, spare_weights = np.empty(2 * needed, dtype=np.int32), np.empty(2 * needed)
        if pool_end + needed > pool.shape[0]:
            pool, shares, pool_end = _packed(leaves, num_leaves, pool, shares, needed)
        if spare[0] < (1 if is_merge else sizes[column]):
            levels, spare = _more_levels(levels, spare, widest)

        # The step itself.
        deltas[num_steps] = best
        cost += best
        steps[num_steps, 0] = 1 if is_merge else 0
        steps[num_steps, 1], steps[num_steps, 2] = position[low], position[high] if is_merge else column
        num_steps += 1
        if is_merge:
            c = _pop(free)
            new = np.full(1, c)
            for level in range(num_levels):
                counts[c, level] = counts[low, level] + counts[high, level]
            totals[c] = totals[low] + totals[high]
            entropies[c] = leaf_entropy(counts[c], totals[c], table)
            _merge_levels(leaves, low, high, c, levels, spare, columns, x, pool, shares, least_rise)
            pool_end = _merge_rows(
                leaves, low, high, c, pool, shares, pool_end, spare_rows, spare_weights, seen, is_exact, has_bits
            )
        else:
            new, pool_end = _split(
                leaves, low, column, columns, x, levels, pool, shares, pool_end, spare_rows, spare_weights, table,
                has_bits,
            )  # fmt: skip
            _split_levels(leaves, low, new, levels, spare, columns, x, pool, shares, least_rise, is_exact)
            tables, num_tables = _kept(tables, num_tables, new, counts)
        num_leaves = _replace(leaves, num_leaves, low, high, new)

    final = np.empty((num_leaves, num_levels))
    for at in range(num_leaves):
        fill_counts(final[at], counts[order[at]])
    return steps[:num_steps].copy(), deltas[:num_steps].copy(), final, tables[:num_tables].copy()
