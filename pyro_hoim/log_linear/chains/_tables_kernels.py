"""Compiled loops of Gibbs sampling from tables (Numba, CPU). Imported when first needed.

A worker moves whole tiles (see :mod:`~pyro_hoim.compute.lanes`): it runs every sweep of one tile, then takes the next.
Arrays that describe the structure come in the tuples of :class:`~._tables_structure.TablesStructure`. Scratch arrays
are [state, lane] or [lane]. Positions are unsigned, which spares the test for negative ones.
"""

# pyright: reportUntypedFunctionDecorator=false, reportMissingParameterType=false, reportUnusedFunction=false
# pyright: reportCallIssue=false, reportArgumentType=false

import numpy as np

from ...compute.jit import njit
from ...compute.lanes import fill
from ...compute.vectors import (
    FEW as LANES,
    add_rows1,
    add_rows4,
    add_rows8,
    as_bits,
    count_at_most,
    exp,
    fused,
    larger,
    load_codes,
    load_few as load,
    log,
    peek,
    poke,
    select_negative,
    splat,
    store,
)

ROOM = 2**14  # entries of the scratch that a processor keeps close by: states times lanes that are drawn together
FEW_LANES = 16  # lanes that are drawn together when all lanes of a tile would need more room
CELLS_ROOM = 2**20  # cells times lanes of a block that is drawn by elimination, likewise
LOWEST = -1e30  # stands for the log weight of impossible states, which are then never drawn
EDGES = 8  # edges whose cells are looked up together


@njit(forceinline=True)
def _place(x, first, begin, end, variables, strides, index, row):
    """index[row + b] = first + sum of stride times code over the given members, for all lanes b."""
    width, num = x.shape[1], end - begin
    start = splat(np.uint32(first))
    if num == 2 or num == 3:
        p, n = peek(variables, begin) * width, splat(np.uint32(peek(strides, begin)))
        q, m = peek(variables, begin + 1) * width, splat(np.uint32(peek(strides, begin + 1)))
        if num == 2:
            for lane in range(0, width, LANES):
                partial = start + n * load_codes(x, p + lane)
                store(index, row + lane, partial + m * load_codes(x, q + lane))
            return
        r, k = peek(variables, begin + 2) * width, splat(np.uint32(peek(strides, begin + 2)))
        for lane in range(0, width, LANES):
            partial = start + n * load_codes(x, p + lane) + m * load_codes(x, q + lane)
            store(index, row + lane, partial + k * load_codes(x, r + lane))
        return
    for lane in range(0, width, LANES):
        total = start
        for j in range(begin, end):
            codes = load_codes(x, variables[j] * width + lane)
            total = total + splat(np.uint32(strides[j])) * codes
        store(index, row + lane, total)


@njit(forceinline=True)
def _log_weights(weights, index, first, step, num, states, rows, span):
    """rows[k, b] = sum over f < num of the table rows at index[first + f * step + b], for states k and lanes b."""
    if num == 0:
        rows[: states * span] = 0
        return
    for lane in range(0, span, LANES):
        for k in range(0, states, 8):
            if states - k > 4:
                add_rows8(weights, k, index, first + lane, step, num, rows, k * span + lane, span)
            else:
                add_rows4(weights, k, index, first + lane, step, num, rows, k * span + lane, span)


@njit(forceinline=True)
def _choose(rows, states, uniform, chosen, tops, begin, span):
    """A state with probability proportional to exp(rows[state, lane]); the rows are overwritten.

    The passes are apart so that the processor always finds independent work.
    """
    # Rows less their maximum, exponentials, cumulative sums, and the state by inversion.
    for lane in range(0, span, LANES):
        top = load(rows, lane)
        for k in range(1, states):
            top = larger(load(rows, k * span + lane), top)
        store(tops, lane, top)
    for k in range(states):
        for lane in range(0, span, LANES):
            entry = k * span + lane
            store(rows, entry, exp(load(rows, entry) - load(tops, lane)))
    for lane in range(0, span, LANES):
        total = load(rows, lane)
        for k in range(1, states):
            total = total + load(rows, k * span + lane)
            store(rows, k * span + lane, total)
        limit = total * load(uniform, begin + lane)
        state = splat(np.uint32(0))
        for k in range(states - 1):
            state = count_at_most(state, load(rows, k * span + lane), limit)
        store(chosen, begin + lane, state)


@njit
def _span(width, states):
    """Lanes that are drawn together, so that their rows stay in the cache."""
    return width if states * width <= ROOM else FEW_LANES


@njit(forceinline=True)
def _draw_binary(x, target, weights, num, difference, beta, scratch):
    """Draw a binary variable whose positions are in the scratch; ``difference`` is that of the reference."""
    rows, index, uniform = scratch[:3]
    width = x.shape[1]
    one = beta.dtype.type(1)
    if num == 0:
        rows[:width] = 0
    else:
        for lane in range(0, width, LANES):
            add_rows1(weights, 0, index, lane, width, num, rows, lane, 0)
    minus, added, ones = (splat(-beta[0]), splat((beta[0] - one) * difference), splat(one))
    for lane in range(0, width, LANES):
        odds, u = exp(fused(minus, load(rows, lane), added)), load(uniform, lane)
        store(x, target + lane, count_at_most(splat(np.uint32(0)), fused(u, odds, u), ones))


@njit(forceinline=True)
def _draw_site(x, visit, sites, weights, reference, start, beta, scratch):
    """Draw one variable given all others; uniform numbers are in the scratch."""
    rows, index, uniform, chosen, tops = scratch
    variables, states_of, part_of, factor, first, member, outer, strides = sites
    states, part = states_of[visit], part_of[visit]
    begin, num = factor[part], factor[part + 1] - factor[part]
    width = x.shape[1]
    target = variables[visit] * width
    r = start[variables[visit]]
    # Where the rows of the tables that meet the variable begin.
    for f in range(num):
        e = begin + f
        _place(x, first[e], member[e], member[e + 1], outer, strides, index, f * width)
    if states == 2:
        _draw_binary(x, target, weights, num, reference[r + 1] - reference[r], beta, scratch)
        return
    # More levels: log weights, mixed with the reference away from beta 1.
    span = _span(width, states)
    for lane in range(0, width, span):
        _log_weights(weights, index, lane, width, num, states, rows, span)
        if beta[0] != 1:
            scale, rest = splat(beta[0]), beta.dtype.type(1) - beta[0]
            for k in range(states):
                added = splat(rest * reference[r + k])
                for entry in range(k * span, (k + 1) * span, LANES):
                    store(rows, entry, fused(scale, load(rows, entry), added))
        _choose(rows, states, uniform, chosen, tops, lane, span)
    for lane in range(0, width, LANES):
        store(x, target + lane, load(chosen, lane))


@njit
def _draw_block(x, visit, sites, joint, weights, reference, start, beta, scratch, sums):
    """Draw the variables of a block jointly given all others; uniform numbers are in the scratch."""
    rows, index, uniform, chosen, tops = scratch
    states_of, part_of, factor, first, member, outer, strides = sites[1:]
    part_states, part_map, maps, block, level_start, members, levels = joint
    states = states_of[visit]
    width = x.shape[1]
    scale, rest = splat(beta[0]), beta.dtype.type(1) - beta[0]
    # Where the rows of the tables that meet the block begin.
    begin = factor[part_of[visit]]
    for e in range(begin, factor[part_of[visit + 1]]):
        _place(x, first[e], member[e], member[e + 1], outer, strides, index, (e - begin) * width)
    span = _span(width, states)
    for lane in range(0, width, span):
        # The reference of every joint state, to which the parts of the block are added.
        for s in range(states):
            added = rest - rest
            for j in range(block[visit], block[visit + 1]):
                level = levels[level_start[visit] + (j - block[visit]) * states + s]
                added += rest * reference[start[members[j]] + level]
            for entry in range(s * span, (s + 1) * span, LANES):
                store(sums, entry, splat(added))
        for part in range(part_of[visit], part_of[visit + 1]):
            row, num = ((factor[part] - begin) * width + lane, factor[part + 1] - factor[part])
            _log_weights(weights, index, row, width, num, part_states[part], rows, span)
            for s in range(states):
                source = maps[part_map[part] + s] * span
                for b in range(0, span, LANES):
                    entry = s * span + b
                    store(sums, entry, fused(scale, load(rows, source + b), load(sums, entry)))
        _choose(sums, states, uniform, chosen, tops, lane, span)
    # The joint state as levels of the members.
    for j in range(block[visit], block[visit + 1]):
        codes, first_level = (x[members[j]], level_start[visit] + (j - block[visit]) * states)
        for b in range(width):
            codes[b] = levels[first_level + chosen[b]]


@njit(forceinline=True)
def _collect(x, b, lane, span, sites, buckets, weights, index, rows):
    """Rows of the parts of bucket b that depend on variables outside of the block, for ``span`` lanes from one on."""
    factor, first, member, outer, strides = sites[3:]
    part_of, part_states = buckets[5], buckets[6]
    width, target = x.shape[1], 0
    for part in range(part_of[2 * b], part_of[2 * b + 1]):
        begin, num = factor[part], factor[part + 1] - factor[part]
        for f in range(num):
            e = begin + f
            for at in range(0, span, LANES):
                total = splat(np.uint32(first[e]))
                for j in range(member[e], member[e + 1]):
                    codes = load_codes(x, outer[j] * width + lane + at)
                    total = total + splat(np.uint32(strides[j])) * codes
                store(index, f * span + at, total)
        states = part_states[part]
        if states < 0:  # differences of the two levels of a variable: the lower level of the two weighs nothing
            zero = splat(weights.dtype.type(0))
            for at in range(0, span, LANES):
                add_rows1(weights, 0, index, at, span, num, rows, target + at, 0)
                gap = load(rows, target + at)
                store(rows, target + at, zero - larger(gap, zero))
                store(rows, target + span + at, zero - larger(zero - gap, zero))
            target += 2 * span
            continue
        for at in range(0, span, LANES):
            for k in range(0, states, 8):
                if states - k > 4:
                    add_rows8(weights, k, index, at, span, num, rows, target + k * span + at, span)
                else:
                    add_rows4(weights, k, index, at, span, num, rows, target + k * span + at, span)
        target += (states + 3) // 4 * 4 * span


@njit(forceinline=True)
def _log_weights_of(b, q, k, span, terms, weights, rows, cells, beta, added, values, where):
    """Put the log weights of cell q of bucket b, of level k, into row k of the values."""
    term_of, source, start, maps = terms
    # Tables within the block are the same for all lanes; of the others it is noted where they are.
    constant, begin, middle, end = added, term_of[3 * b + 1], term_of[3 * b + 2], term_of[3 * b + 3]
    for t in range(term_of[3 * b], begin):
        constant += beta[0] * weights[source[t] + maps[start[t] + q]]
    for t in range(begin, end):
        where[t - begin] = (source[t] + maps[start[t] + q]) * span
    same, scale, lowest = splat(constant), splat(beta[0]), splat(weights.dtype.type(LOWEST))
    for at in range(0, span, LANES):
        total = splat(weights.dtype.type(0))
        for t in range(middle - begin):
            total = total + load(rows, where[t] + at)
        total = fused(scale, total, same)
        for t in range(middle - begin, end - begin):
            total = total + load(cells, where[t] + at)
        store(values, k * span + at, larger(total, lowest))


@njit(forceinline=True)
def _send(b, span, buckets, terms, weights, reference, r, beta, rows, cells, values, where):
    """Fill what bucket b is drawn by, and its message; r is where the reference of its variable begins.

    Of a binary variable this is the probability of its lower level, else the cumulative weights of all.
    """
    states, num_outer, cell, message = buckets[2][b], buckets[3][b], buckets[4][2 * b], buckets[4][2 * b + 1]
    one, lowest = beta.dtype.type(1), splat(weights.dtype.type(LOWEST))
    ones, zero, rest = splat(one), splat(one - one), one - beta[0]
    for s in range(num_outer):
        for k in range(states):
            added = rest * reference[r + k]
            _log_weights_of(b, s * states + k, k, span, terms, weights, rows, cells, beta, added, values, where)
        for at in range(0, span, LANES):
            if states == 2:
                low, high = load(values, at), load(values, span + at)
                gap, top = low - high, larger(low, high)
                apart = larger(gap, zero)
                rare = exp(gap - apart - apart)
                total = ones + rare
                share = ones / total
                store(cells, (cell + s) * span + at, select_negative(as_bits(gap), rare * share, share))
            else:
                top, first = load(values, at), (cell + s * states) * span + at
                for k in range(1, states):
                    top = larger(load(values, k * span + at), top)
                total = zero
                for k in range(states):
                    total = total + exp(load(values, k * span + at) - top)
                    store(cells, first + k * span, total)
            if num_outer > 1:
                store(cells, (message + s) * span + at, top + log(total))
    # Messages less their maxima, so that they do not grow with the block.
    if num_outer == 1:
        return
    for at in range(0, span, LANES):
        top = lowest
        for s in range(num_outer):
            top = larger(load(cells, (message + s) * span + at), top)
        for s in range(num_outer):
            entry = (message + s) * span + at
            store(cells, entry, load(cells, entry) - top)


@njit(forceinline=True)
def _descend(x, b, lane, span, buckets, lanes, uniform, cells, index, tops):
    """Draw the variable of bucket b given those that its message was about; lanes is (0, 1, 2, ...)."""
    states, cell = buckets[2][b], buckets[4][2 * b]
    scope_of, scope, strides = buckets[7], buckets[8], buckets[9]
    width = x.shape[1]
    target = buckets[1][b] * width + lane
    for at in range(0, span, LANES):
        entry = splat(np.uint32(cell * span)) + load(lanes, at)
        for j in range(scope_of[b], scope_of[b + 1]):
            entry = entry + splat(np.uint32(strides[j] * span)) * load_codes(x, scope[j] * width + lane + at)
        store(index, at, entry)
    none = splat(np.uint32(0))
    for at in range(0, span, LANES):
        if states == 2:
            add_rows1(cells, 0, index, at, 0, 1, tops, at, 0)
            store(x, target + at, count_at_most(none, load(tops, at), load(uniform, at)))
            continue
        add_rows1(cells, (states - 1) * span, index, at, 0, 1, tops, at, 0)
        limit, chosen = load(tops, at) * load(uniform, at), none
        for k in range(states - 1):
            add_rows1(cells, k * span, index, at, 0, 1, tops, at, 0)
            chosen = count_at_most(chosen, load(tops, at), limit)
        store(x, target + at, chosen)


@njit
def _draw_by_elimination(x, visit, sites, law, random, scratch, room):
    """Draw a block by messages up its buckets and draws against their order; lanes move some at a time.

    The random numbers of a lane are one for every variable, in the order of the draws.
    """
    buckets, terms, weights, reference, start, beta = law
    index, uniform, tops = scratch[1], scratch[2], scratch[4]
    rows, cells, lanes, values, where = room
    r0, r1, r2, r3 = random
    first, last = buckets[0][visit], buckets[0][visit + 1]
    width = x.shape[1]
    most = max(LANES, CELLS_ROOM // buckets[10][visit] // LANES * LANES)
    for lane in range(0, width, most):
        span = min(most, width - lane)
        for b in range(first, last):
            _collect(x, b, lane, span, sites, buckets, weights, index, rows)
            _send(b, span, buckets, terms, weights, reference, start[buckets[1][b]], beta, rows, cells, values, where)
        end = lane + span
        for b in range(last - 1, first - 1, -1):
            fill(r0[lane:end], r1[lane:end], r2[lane:end], r3[lane:end], uniform[:span])
            _descend(x, b, lane, span, buckets, lanes, uniform, cells, index, tops)


@njit(forceinline=True)
def _tally(num, index, width, cells, total, counts, num_counted):
    """Add the cells of ``num`` edges to the total of every counted lane, and one to their counts, edges in turn.

    Counting goes from edge to edge, since adding twice in a row to one cell would wait.
    """
    for b in range(num_counted):
        partial = 0.0
        for f in range(num):
            cell = peek(index, f * width + b)
            partial += peek(cells, cell)
            poke(counts, cell, peek(counts, cell) + np.int32(1))
        poke(total, b, peek(total, b) + partial)


@njit
def _look(x, edges, cells, index, total, partial, counts, num_counted):
    """total[b] = sum of the cells that a state selects; of the first lanes alone, if these are counted in ``counts``.

    Some edges are taken together.
    """
    first, member, variables, strides = edges
    width = x.shape[1]
    for lane in range(0, width, LANES):
        store(total, lane, splat(0.0))
    for begin in range(0, first.shape[0], EDGES):
        num = min(EDGES, first.shape[0] - begin)
        for f in range(num):
            e = begin + f
            _place(x, first[e], member[e], member[e + 1], variables, strides, index, f * width)
        if num_counted > 0 and num == EDGES:  # a number that the compiler knows
            _tally(EDGES, index, width, cells, total, counts, num_counted)
        elif num_counted > 0:
            _tally(num, index, width, cells, total, counts, num_counted)
        else:
            for lane in range(0, width, LANES):
                add_rows1(cells, 0, index, lane, width, num, partial, lane, 0)
                store(total, lane, load(total, lane) + load(partial, lane))


@njit
def _mix(first, second, share, result):
    """Fill ``result`` with first + share * (second - first)."""
    for k in range(result.shape[0]):
        result[k] = first[k] + share * (second[k] - first[k])


@njit(cache=True)
def run(tiles, random, shape, work, sites, joint, trees, edges, sizes, start, law, lookups, path, parts, counts, out):
    """Run sweeps of the tiles work = (first, end, step), note what is asked for, and leave their energies.

    The law is (weights, weights at beta 0 or none, reference), with rows for every group or one for all, as have the
    cells to be looked up: of the model, the reference, and the gap between both ends. The path is (order, betas (steps,
    groups), their growth (steps,), sweeps per step, sweeps between records). Parts says whether counts (groups, cells),
    energies (records, groups, chains), codes (records, groups, chains, d) and the last energies are wanted; out is (log
    weights (groups, chains), energies, codes, last energies, those of the reference). Trees are the buckets and the
    terms of blocks that are drawn by elimination, or none.
    """
    weights, start_weights, reference = law
    model_cells, reference_cells, gap_cells = lookups
    order, betas, growth, num_sweeps, thin = path
    log_weights, energies, codes, energy, reference_energy = out
    # Memory for one tile at a time.
    num_groups, num_chains = shape
    width = tiles.shape[2]
    per_group = tiles.shape[0] // num_groups
    room = max(ROOM, sizes[0] * FEW_LANES)
    rows = np.empty(room, dtype=weights.dtype)
    index = np.empty(max(sizes[1], EDGES) * width, dtype=np.uint32)
    uniform, tops = (np.empty(width, dtype=weights.dtype), np.empty(width, dtype=weights.dtype))
    scratch = (rows, index, uniform, np.empty(width, dtype=np.uint32), tops)
    block_rows = rows if joint is None else np.empty(room, dtype=weights.dtype)
    own_rows = np.empty(sizes[2] * width, dtype=weights.dtype)
    cells_here = np.empty(max(CELLS_ROOM, sizes[3] * LANES) if trees is not None else 0, dtype=weights.dtype)
    values = np.empty(sizes[4] * width, dtype=weights.dtype)
    own_room = own_rows, cells_here, np.arange(width).astype(np.uint32), values, np.empty(sizes[5], dtype=np.int64)
    sums, partial = np.empty(width, dtype=np.float64), np.empty(width, dtype=np.float64)
    is_mixed = start_weights.shape[1] > 0
    mixed, level = np.empty(start_weights.shape[1], dtype=weights.dtype), np.ones(1, dtype=weights.dtype)
    # The law of a tile's group.
    for tile in range(work[0], work[1], work[2]):
        group = tile // per_group
        chain = (tile % per_group) * width
        num_kept = min(width, num_chains - chain)
        x = tiles[tile]
        weights_here = mixed if is_mixed else weights[group % weights.shape[0]]
        own_reference = reference[group % reference.shape[0]]
        cells = model_cells[group % model_cells.shape[0]]
        base = reference_cells[group % reference_cells.shape[0]]
        gap = gap_cells[group % gap_cells.shape[0]]
        r0, r1, r2, r3 = (random[0, tile], random[1, tile], random[2, tile], random[3, tile])
        done, record = 0, 0
        for step in range(betas.shape[0] + 1):
            is_last = step == betas.shape[0]
            # Log weights grow before every step; after the last one the energies are left.
            num_looks = (min(base.shape[0], 1) + 1) * int(parts[3]) if is_last else min(growth.shape[0], 1)
            for look in range(num_looks):
                looked = (base if look else cells) if is_last else gap
                # a bare 0 would be a type of its own and compile everything twice
                _look(x, edges, looked, index, sums, partial, counts[0], np.int64(0))
                for b in range(num_kept):
                    if not is_last:
                        log_weights[group, chain + b] += growth[step] * sums[b]
                    elif look:
                        reference_energy[group, chain + b] = -sums[b]
                    else:
                        energy[group, chain + b] = -sums[b]
            if is_last:
                break
            # Weights between the two ends, or the inverse temperature.
            if is_mixed:
                _mix(
                    start_weights[group % start_weights.shape[0]],
                    weights[group % weights.shape[0]],
                    betas[step, group],
                    weights_here,
                )
            else:
                level[0] = betas[step, group]
            # Sweeps, with what was asked for at a record.
            for _ in range(num_sweeps):
                row = order[done % order.shape[0]]
                for v in range(row.shape[0]):
                    visit = row[v]
                    if trees is not None and trees[0][0][visit + 1] > trees[0][0][visit]:
                        law_here = trees[0], trees[1], weights_here, own_reference, start, level
                        _draw_by_elimination(x, visit, sites, law_here, (r0, r1, r2, r3), scratch, own_room)
                        continue
                    fill(r0, r1, r2, r3, uniform)
                    if joint is None or joint[3][visit + 1] == joint[3][visit] + 1:
                        _draw_site(x, visit, sites, weights_here, own_reference, start, level, scratch)
                    elif joint is not None:
                        _draw_block(
                            x, visit, sites, joint, weights_here, own_reference, start, level, scratch, block_rows
                        )
                done += 1
                if thin == 0 or done % thin != 0:
                    continue
                if parts[0] or parts[1]:
                    _look(
                        x,
                        edges,
                        cells,
                        index,
                        sums,
                        partial,
                        counts[group % counts.shape[0]],
                        num_kept if parts[0] else 0,
                    )
                if parts[1]:
                    for b in range(num_kept):
                        energies[record, group, chain + b] = -sums[b]
                if parts[2]:
                    for v in range(x.shape[0]):
                        for b in range(num_kept):
                            codes[record, group, chain + b, v] = x[v, b]
                record += 1


@njit(cache=True)
def add_statistics(tiles, num_chains, tile, edges, begin, step, shares, total):
    """Add the share of every chain (chains,) of one group to the cells it is in, for every ``step``-th edge.

    The tiles of the group begin at ``tile``. Edges have cells of their own; two are taken together, since adding
    twice in a row to one cell would wait.
    """
    first, member, variables, strides = edges
    num, width = first.shape[0], tiles.shape[2]
    low, high = np.empty(width, dtype=np.uint32), np.empty(width, dtype=np.uint32)
    for chain in range(0, num_chains, width):
        num_kept = min(width, num_chains - chain)
        x = tiles[tile + chain // width]
        for e in range(begin, num, 2 * step):
            f = e + step
            _place(x, first[e], member[e], member[e + 1], variables, strides, low, np.int64(0))
            if f < num:
                _place(x, first[f], member[f], member[f + 1], variables, strides, high, np.int64(0))
                for b in range(num_kept):
                    total[low[b]] += shares[chain + b]
                    total[high[b]] += shares[chain + b]
            else:
                for b in range(num_kept):
                    total[low[b]] += shares[chain + b]
