"""Compiled loops of Gibbs sampling from tables (Numba, CPU). Imported when first needed.

A worker moves whole tiles (see :mod:`.lanes`): it runs every sweep of one tile, then takes the next. Arrays that
describe the structure come in the tuples of :class:`~._tables_structure.TablesStructure`. Scratch arrays are
[state, lane] or [lane]. Positions are unsigned, which spares the test for negative ones.
"""
# ruff: noqa: ARG001, D417, PLW0108 (signatures of compiler hooks; arguments that are described in groups)
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUntypedFunctionDecorator=false
# pyright: reportUnknownParameterType=false, reportMissingParameterType=false, reportUnknownArgumentType=false
# pyright: reportUnusedFunction=false, reportCallIssue=false, reportArgumentType=false

from __future__ import annotations

import numpy as np
from numba import njit, types
from numba.extending import overload

from ._tables_rows import add_rows1, add_rows4, add_rows8
from .lanes import exp_lanes, fill_uniform, fill_uniform64, fma

__all__ = ["add_statistics", "run"]


def _fill(r0, r1, r2, r3, u):
    """Uniform numbers in the precision of u."""


@overload(_fill, inline="always")
def _fill_overload(r0, r1, r2, r3, u):
    if u.dtype == types.float32:
        return lambda r0, r1, r2, r3, u: fill_uniform(r0, r1, r2, r3, u)
    return lambda r0, r1, r2, r3, u: fill_uniform64(r0, r1, r2, r3, u)


@njit(nogil=True, error_model="numpy")
def _place(x, first, begin, end, variables, strides, index):
    """index[b] = first + sum of stride times code over the given members."""
    width = index.shape[0]
    start = np.uint32(first)
    if end - begin == 1:
        p, n = x[variables[begin]], np.uint32(strides[begin])
        for b in range(width):
            index[b] = start + n * np.uint32(p[b])
    elif end - begin == 2:
        p, n = x[variables[begin]], np.uint32(strides[begin])
        q, m = x[variables[begin + 1]], np.uint32(strides[begin + 1])
        for b in range(width):
            index[b] = start + n * np.uint32(p[b]) + m * np.uint32(q[b])
    else:
        for b in range(width):
            index[b] = start
        for j in range(begin, end):
            p, n = x[variables[j]], np.uint32(strides[j])
            for b in range(width):
                index[b] += n * np.uint32(p[b])


@njit(nogil=True, error_model="numpy")
def _part(x, part, sites, index):
    """Positions of the rows of a part, (factors, lanes); their number."""
    factor, start, member, variables, strides = sites[3], sites[4], sites[5], sites[6], sites[7]
    begin, end = factor[part], factor[part + 1]
    for f in range(begin, end):
        _place(x, start[f], member[f], member[f + 1], variables, strides, index[f - begin])
    return end - begin


@njit(nogil=True, error_model="numpy")
def _log_weights(weights, index, num, states, out):
    """out[k, b] = sum of the rows at index[:num, b], for all states k; whole groups of four are written."""
    whole, full = states // 8 * 8, (states + 3) // 4 * 4
    if num == 0:
        for k in range(full):
            row = out[k]
            for b in range(row.shape[0]):
                row[b] = 0
        return
    for lane in range(0, out.shape[1], 8):
        for k in range(0, whole, 8):
            add_rows8(weights, index, num, lane, k, out)
        if full == whole + 8:
            add_rows8(weights, index, num, lane, whole, out)
        elif full == whole + 4:
            add_rows4(weights, index, num, lane, whole, out)


@njit(nogil=True, error_model="numpy")
def _choose(log_weights, states, uniform, top, total, z, chosen):
    """chosen[b] = a state with probability proportional to exp(log_weights[:, b]), which are overwritten."""
    width = uniform.shape[0]
    first = log_weights[0]
    for b in range(width):
        top[b] = first[b]
        total[b] = 0
        chosen[b] = 0
    for k in range(1, states):
        row = log_weights[k]
        for b in range(width):
            top[b] = row[b] if row[b] > top[b] else top[b]
    for k in range(states):
        row = log_weights[k]
        for b in range(width):
            z[b] = row[b] - top[b]
        exp_lanes(z, z)
        for b in range(width):
            total[b] += z[b]
            row[b] = total[b]
    for b in range(width):
        total[b] *= uniform[b]
    for k in range(states - 1):
        row = log_weights[k]
        for b in range(width):
            chosen[b] += np.int32(row[b] <= total[b])


@njit(nogil=True, error_model="numpy")
def _draw_site(x, visit, sites, weights, reference, start, beta, scratch):
    """Draw one variable given all others; uniform numbers are in the scratch."""
    rows, index, uniform, top, total, z, chosen = scratch
    variable, states = sites[0][visit], sites[1][visit]
    codes = x[variable]
    width = codes.shape[0]
    r = start[variable]
    one = uniform.dtype.type(1)
    rest = one - beta
    num = _part(x, sites[2][visit], sites, index)
    if states == 2:
        difference = rows[0]
        if num == 0:
            for b in range(width):
                difference[b] = 0
        else:
            for lane in range(0, width, 8):
                add_rows1(weights, index, num, lane, 0, rows)
        if beta == one:
            for b in range(width):
                z[b] = -difference[b]
        else:
            added = rest * (reference[r] - reference[r + 1])
            for b in range(width):
                z[b] = fma(-beta, difference[b], added)
        exp_lanes(z, z)
        for b in range(width):
            codes[b] = fma(uniform[b], z[b], uniform[b]) < one
        return
    _log_weights(weights, index, num, states, rows)
    if beta != one:
        for k in range(states):
            row, added = rows[k], rest * reference[r + k]
            for b in range(width):
                row[b] = fma(beta, row[b], added)
    _choose(rows, states, uniform, top, total, z, chosen)
    for b in range(width):
        codes[b] = chosen[b]


@njit(nogil=True, error_model="numpy")
def _draw_block(x, visit, sites, joint, weights, reference, start, beta, scratch, block_rows):
    """Draw the variables of a block jointly given all others; uniform numbers are in the scratch."""
    rows, index, uniform, top, total, z, chosen = scratch
    part_states, part_map, maps, member, level_start, members, levels = joint
    states = sites[1][visit]
    width = uniform.shape[0]
    begin, end = member[visit], member[visit + 1]
    rest = uniform.dtype.type(1) - beta
    for s in range(states):
        added = uniform.dtype.type(0)
        if rest != 0:
            for j in range(begin, end):
                level = levels[level_start[visit] + (j - begin) * states + s]
                added += rest * reference[start[members[j]] + level]
        row = block_rows[s]
        for b in range(width):
            row[b] = added
    for part in range(sites[2][visit], sites[2][visit + 1]):
        num = _part(x, part, sites, index)
        _log_weights(weights, index, num, part_states[part], rows)
        for s in range(states):
            row, source = block_rows[s], rows[maps[part_map[part] + s]]
            for b in range(width):
                row[b] = fma(beta, source[b], row[b])
    _choose(block_rows, states, uniform, top, total, z, chosen)
    for j in range(begin, end):
        codes, first = x[members[j]], level_start[visit] + (j - begin) * states
        for b in range(width):
            codes[b] = levels[first + chosen[b]]


@njit(nogil=True, error_model="numpy")
def _look(x, edges, cells, index, total, counts, num_counted):
    """total[b] = sum of the cells that a state selects; one is added to those of the first lanes in ``counts``."""
    first, member, variables, strides = edges
    width = index.shape[0]
    for b in range(width):
        total[b] = 0.0
    for e in range(first.shape[0]):
        _place(x, first[e], member[e], member[e + 1], variables, strides, index)
        for b in range(width):
            total[b] += cells[index[b]]
        for b in range(num_counted):
            counts[index[b]] += 1


@njit(nogil=True, cache=True, error_model="numpy")
def run(
    tiles,
    random,
    shape,
    work,
    sites,
    joint,
    edges,
    sizes,
    weights,
    reference,
    start,
    model_cells,
    reference_cells,
    order,
    betas,
    growth,
    num_sweeps,
    thin,
    parts,
    log_weights,
    counts,
    energies,
    codes,
    energy,
    reference_energy,
):
    """Run sweeps of some tiles, note what is asked for, and leave their energies.

    Args:
        tiles: states (tiles, d, width).
        random: states of xoshiro128 (4, tiles, width).
        shape: numbers of groups and chains.
        work: first tile, end and step.
        sites, joint, edges: structure; ``joint`` is None when every block is one variable.
        sizes: rows of the scratch for states and for factors.
        weights: copies of the tables (groups or 1, entries) in the precision of the conditionals.
        reference: log weights (groups or 1, entries), likewise; ``start`` is the first of every variable.
        start: see reference.
        model_cells, reference_cells: folded tables (groups or 1, cells), float64.
        order: visits (rows, visits).
        betas: (steps, groups), in the precision of the conditionals.
        growth: change of beta before every step (steps,), for log weights; empty without them.
        num_sweeps: sweeps in every step.
        thin: sweeps between records; 0 for none.
        parts: whether to record counts, energies and codes.
        log_weights: (groups, chains), added to.
        counts: (groups, cells), added to.
        energies: (records, groups, chains).
        codes: (records, groups, chains, d).
        energy, reference_energy: (groups, chains), written in the end.
    """
    num_groups, num_chains = shape
    width = tiles.shape[2]
    per_group = tiles.shape[0] // num_groups
    rows = np.empty((sizes[0], width), dtype=weights.dtype)
    index = np.empty((max(sizes[1], 1), width), dtype=np.uint32)
    uniform = np.empty(width, dtype=weights.dtype)
    top = np.empty(width, dtype=weights.dtype)
    total = np.empty(width, dtype=weights.dtype)
    z = np.empty(width, dtype=weights.dtype)
    chosen = np.empty(width, dtype=np.uint32)
    sums = np.empty(width, dtype=np.float64)
    others = np.empty(width, dtype=np.float64)
    scratch = (rows, index, uniform, top, total, z, chosen)
    block_rows = rows if joint is None else np.empty((sizes[0], width), dtype=weights.dtype)
    for tile in range(work[0], work[1], work[2]):
        group = tile // per_group
        chain = (tile % per_group) * width
        num_kept = min(width, num_chains - chain)
        x = tiles[tile]
        own = weights[group % weights.shape[0]]
        own_reference = reference[group % reference.shape[0]]
        cells = model_cells[group % model_cells.shape[0]]
        base = reference_cells[group % reference_cells.shape[0]]
        r0, r1, r2, r3 = random[0, tile], random[1, tile], random[2, tile], random[3, tile]
        done, record = 0, 0
        for step in range(betas.shape[0]):
            if growth.shape[0]:
                _look(x, edges, cells, index[0], sums, counts[0], 0)
                _look(x, edges, base, index[0], others, counts[0], 0)
                for b in range(num_kept):
                    log_weights[group, chain + b] += growth[step] * (sums[b] - others[b])
            beta = betas[step, group]
            for _ in range(num_sweeps):
                row = order[done % order.shape[0]]
                for v in range(row.shape[0]):
                    visit = row[v]
                    _fill(r0, r1, r2, r3, uniform)
                    if joint is None or joint[3][visit + 1] == joint[3][visit] + 1:
                        _draw_site(x, visit, sites, own, own_reference, start, beta, scratch)
                    elif joint is not None:
                        _draw_block(x, visit, sites, joint, own, own_reference, start, beta, scratch, block_rows)
                done += 1
                if thin == 0 or done % thin != 0:
                    continue
                if parts[0] or parts[1]:
                    _look(x, edges, cells, index[0], sums, counts[group % counts.shape[0]], num_kept if parts[0] else 0)
                if parts[1]:
                    for b in range(num_kept):
                        energies[record, group, chain + b] = -sums[b]
                if parts[2]:
                    for v in range(x.shape[0]):
                        for b in range(num_kept):
                            codes[record, group, chain + b, v] = x[v, b]
                record += 1
        _look(x, edges, cells, index[0], sums, counts[0], 0)
        _look(x, edges, base, index[0], others, counts[0], 0)
        for b in range(num_kept):
            energy[group, chain + b] = -sums[b]
            reference_energy[group, chain + b] = -others[b]


@njit(nogil=True, cache=True, error_model="numpy")
def add_statistics(tiles, num_chains, begin, end, edges, shares, total):
    """Add the share of every chain (chains,) of one group to the cells it is in; tiles ``begin`` to ``end``."""
    first, member, variables, strides = edges
    width = tiles.shape[2]
    index = np.empty(width, dtype=np.uint32)
    for tile in range(begin, end):
        chain = (tile - begin) * width
        num_kept = min(width, num_chains - chain)
        x = tiles[tile]
        for e in range(first.shape[0]):
            _place(x, first[e], member[e], member[e + 1], variables, strides, index)
            for b in range(num_kept):
                total[index[b]] += shares[chain + b]
