"""Compiled weighted sums of products of spins (Numba, CPU). Imported when the first engine is made."""
# pyright: reportUntypedFunctionDecorator=false, reportMissingParameterType=false, reportCallIssue=false
# pyright: reportOperatorIssue=false

from __future__ import annotations

import numpy as np

from ...compute.jit import njit
from ...compute.vectors import LANES, broadcast, fused, load, peek, poke, store, widen


@njit(nogil=True, error_model="numpy", forceinline=True)
def _put(out, place, lanes, total):
    """Put the sum of the lanes of a vector into out; lanes is (16,) scratch."""
    store(lanes, 0, total)
    a, b, c, d = peek(lanes, 0), peek(lanes, 1), peek(lanes, 2), peek(lanes, 3)
    for k in range(4, LANES, 4):
        a += peek(lanes, k)
        b += peek(lanes, k + 1)
        c += peek(lanes, k + 2)
        d += peek(lanes, k + 3)
    poke(out, place, (a + b) + (c + d))


@njit(nogil=True, cache=True, error_model="numpy")
def weighted_sums(first, step, x, lane_weights, cells, out):
    """Put into out[tile, k] the sum over lanes of weight times the product of spins k of a tile, in float64.

    x is (tiles, d, width) with a width of whole vectors, the weights (tiles, width); products of one, two and three
    spins come first.
    """
    num_tiles, _, width = x.shape
    cell_first, member, orders = cells
    lanes = np.empty(LANES, np.float64)
    num = out.shape[1]
    for tile in range(first, num_tiles, step):
        xt, weights = x[tile], lane_weights[tile]
        base = tile * num
        m = 0
        for k in range(orders[0]):
            a = peek(member, m) * width
            total = broadcast(lanes, 0.0)
            for start in range(0, width, LANES):
                total = fused(load(weights, start), widen(load(xt, a + start)), total)
            _put(out, base + k, lanes, total)
            m += 1
        for k in range(orders[0], orders[1]):
            a, b = peek(member, m) * width, peek(member, m + 1) * width
            total = broadcast(lanes, 0.0)
            for start in range(0, width, LANES):
                product = load(xt, a + start) * load(xt, b + start)
                total = fused(load(weights, start), widen(product), total)
            _put(out, base + k, lanes, total)
            m += 2
        for k in range(orders[1], num):
            total = broadcast(lanes, 0.0)
            begin, end = peek(cell_first, k), peek(cell_first, k + 1)
            for start in range(0, width, LANES):
                product = load(xt, peek(member, begin) * width + start)
                for i in range(begin + 1, end):
                    product = product * load(xt, peek(member, i) * width + start)
                total = fused(load(weights, start), widen(product), total)
            _put(out, base + k, lanes, total)
