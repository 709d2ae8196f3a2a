"""Compiled search for elimination orders of least fill-in (Numba, CPU)."""
# pyright: reportUntypedFunctionDecorator=false, reportMissingParameterType=false, reportCallIssue=false

import numpy as np

from ..compute.jit import njit, write
from ..compute.vectors import bit_count

_ONE = np.uint64(1)


@njit
def _listed(row, numbers):
    """Write the positions of the bits that are set; their number."""
    count = 0
    for word in range(len(row)):
        bits = row[word]
        while bits:
            low = bits & (~bits + _ONE)
            numbers[count] = 64 * word + bit_count(low - _ONE)
            count += 1
            bits ^= low
    return count


@njit
def _fill(graph, v, clique, numbers):
    """Pairs of neighbours of ``v`` that are not joined; those in ``clique`` are known to be."""
    row = graph[v]
    words = len(row)
    count = _listed(row & ~clique, numbers)
    across = pairs = 0
    for k in range(count):
        other = graph[numbers[k]]
        for word in range(words):
            missing = row[word] & ~other[word]
            across += bit_count(missing & clique[word])
            pairs += bit_count(missing & ~clique[word])
    return across + (pairs - count) // 2


@njit(cache=True)
def order_of_least_fill(pairs, cards, ties, most, order):
    """Write an order of least fill-in, then smallest table, most levels and least tie; cells of the largest table.

    It ends as soon as a table has more cells than ``most``.
    """
    size = len(cards)
    words = (size + 63) // 64
    graph = np.zeros((size, words), dtype=np.uint64)
    for u, w in pairs:
        graph[u, w // 64] |= _ONE << np.uint64(w % 64)
        graph[w, u // 64] |= _ONE << np.uint64(u % 64)
    clique, around = np.zeros(words, dtype=np.uint64), np.empty(size, dtype=np.int64)
    numbers, left = np.empty(size, dtype=np.int64), np.arange(size)
    fill, cells = np.empty(size, dtype=np.int64), np.empty(size)
    for v in range(size):
        fill[v], cells[v] = _fill(graph, v, clique, numbers), cards[v]
        for k in range(_listed(graph[v], numbers)):
            cells[v] *= cards[numbers[k]]
    largest = 1.0
    for turn in range(size):
        # The variable of the lowest score among those left.
        at = 0
        for k in range(1, size - turn):
            v, best = left[k], left[at]
            if fill[v] < fill[best]:
                at = k
            elif fill[v] == fill[best]:
                here, there = (cells[v], -cards[v], ties[v]), (cells[best], -cards[best], ties[best])
                if here < there:
                    at = k
        best = left[at]
        left[at] = left[size - turn - 1]
        order[turn] = best
        largest = max(largest, cells[best])
        if cells[best] > most:
            return largest
        # Other variables lose the pairs of their neighbours that are joined now.
        write(clique, graph[best])
        count = _listed(clique, around)
        for a in range(count):
            u = around[a]
            for b in range(a):
                w = around[b]
                if not graph[u, w // 64] >> np.uint64(w % 64) & _ONE:
                    for k in range(_listed(graph[u] & graph[w] & ~clique, numbers)):
                        fill[numbers[k]] -= 1
        for a in range(count):
            u = around[a]
            for word in range(words):
                graph[u, word] |= clique[word]
            graph[u, u // 64] &= ~(_ONE << np.uint64(u % 64))
            graph[u, best // 64] &= ~(_ONE << np.uint64(best % 64))
        # The neighbours, which are a clique now, are counted anew.
        for a in range(count):
            u = around[a]
            fill[u], cells[u] = _fill(graph, u, clique, numbers), cards[u]
            for k in range(_listed(graph[u], numbers)):
                cells[u] *= cards[numbers[k]]
    return largest
