"""Compiled loops of pseudo-Gibbs sampling from decision graphs and tables (Numba, CPU). Imported when first needed.

A worker moves whole tiles (see :mod:`~pyro_hoim.compute.lanes`) of states [variable, lane], with a last row of zeros
that the leaves ask. The program is that of :class:`~.engines.WalkerProgram`. Positions are unsigned, which
spares the test for negative ones.
"""

# pyright: reportUntypedFunctionDecorator=false, reportMissingParameterType=false, reportUnusedFunction=false
# pyright: reportCallIssue=false, reportArgumentType=false

import numpy as np

from ...compute.jit import ALONE, njit
from ...compute.lanes import fill


@njit(**ALONE, forceinline=True)
def _walk(x, code, nodes, depth):
    """Lead all lanes from the nodes in ``nodes`` to their leaves, one question at a time."""
    one = np.uint64(1)
    for _ in range(depth):
        moved = np.uint32(0)
        for b in range(nodes.shape[0]):
            here = nodes[b]
            asked = x[np.uint64(code[np.uint64(here)]), b]
            below = code[np.uint64(here) + one + np.uint64(asked)]
            moved |= here ^ below
            nodes[b] = below
        if moved == 0:
            break


@njit(**ALONE, forceinline=True)
def _level(cuts, others, first, levels, u):
    """A level of the law that begins at ``first``, from one uniform number."""
    scaled = u * cuts.dtype.type(levels)
    slot = np.uint32(np.int64(scaled))
    if slot >= levels:
        slot = np.uint32(levels - np.uint32(1))
    at = np.uint64(first) + np.uint64(slot)
    return slot if scaled - cuts.dtype.type(slot) < cuts[at] else others[at]


@njit(**ALONE, forceinline=True)
def _count(x, edges, num_kept, counts):
    """Add one to the cell of every edge that each of the first lanes is in."""
    first, member, variables, strides = edges
    for e in range(first.shape[0]):
        for b in range(num_kept):
            cell = first[e]
            for j in range(member[e], member[e + 1]):
                cell += strides[j] * np.int64(x[variables[j], b])
            counts[cell] += 1


@njit(cache=True)
def run(tiles, random, num_chains, work, program, drawn, picks, path, edges, counts, codes):
    """Make updates in the tiles work = (first, end, step), states (tiles, d + 1, width), and note what is asked for.

    ``picks`` has the cuts and others of the law that a lane picks its variable from, or is None in a sequential scan,
    which goes on at place ``path[0]`` of ``drawn``; then come the number of updates and those between two notes. counts
    (cells,) and codes (records, chains, d) may be empty.
    """
    code, roots, depths, levels, cuts, others = program
    first, num_updates, thin = path
    width = tiles.shape[2]
    num_drawn, num_rows = drawn.shape[0], tiles.shape[1] - 1
    u, w = np.empty(width, dtype=cuts.dtype), np.empty(width, dtype=cuts.dtype)
    nodes, chosen = np.empty(width, dtype=np.uint32), np.empty(width, dtype=np.uint32)
    two = np.uint64(2)
    deepest = np.int64(0)
    for k in range(num_drawn):
        deepest = max(deepest, depths[k])
    for tile in range(work[0], work[1], work[2]):
        chain = tile * width
        num_kept = min(width, num_chains - chain)
        x = tiles[tile]
        r0, r1, r2, r3 = (random[0, tile], random[1, tile], random[2, tile], random[3, tile])
        # All lanes of a tile are led together, so that their states stay in the cache.
        next_variable, record, wait = first, 0, thin
        for _ in range(num_updates):
            fill(r0, r1, r2, r3, u)
            if picks is None:
                k = next_variable
                next_variable = k + 1 if k + 1 < num_drawn else 0
                nodes[:] = roots[k]
                _walk(x, code, nodes, depths[k])
                target, size = x[drawn[k]], levels[k]
                for b in range(width):
                    leaf = code[np.uint64(nodes[b]) + two]
                    target[b] = _level(cuts, others, leaf, size, u[b])
            else:
                fill(r0, r1, r2, r3, w)
                for b in range(width):
                    chosen[b] = _level(picks[0], picks[1], np.uint32(0), np.uint32(num_drawn), w[b])
                    nodes[b] = roots[np.uint64(chosen[b])]
                _walk(x, code, nodes, deepest)
                for b in range(width):
                    k = np.uint64(chosen[b])
                    leaf = code[np.uint64(nodes[b]) + two]
                    x[np.uint64(drawn[k]), b] = _level(cuts, others, leaf, levels[k], u[b])
            if thin == 0:
                continue
            wait -= 1
            if wait > 0:
                continue
            wait = thin
            if counts.shape[0] > 0:
                _count(x, edges, num_kept, counts)
            if codes.shape[0] > 0:
                for v in range(num_rows):
                    for b in range(num_kept):
                        codes[record, chain + b, v] = x[v, b]
            record += 1
