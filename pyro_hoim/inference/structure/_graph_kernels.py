"""Perfect elimination of many small graphs (Numba, CPU). Imported when first needed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...compute.jit import njit


@njit(nogil=True, cache=True)
def eliminate_graphs(
    pairs: NDArray[np.bool_], ends: NDArray[np.int64], num_variables: int, closed: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Size of the largest clique of each chordal graph (M,), -1 for others; fills the sets of eliminations (M, d).

    Row k of ``pairs`` says which pairs, with positions ``ends`` (P, 2), are adjacent. A vertex whose remaining
    neighbours are a clique is taken away until none is left; ``closed`` gets the bit set of these neighbours with the
    vertex, at the place of the vertex, and 0 where the elimination stopped.
    """
    num = len(pairs)
    largest = np.zeros(num, dtype=np.int64)
    around = np.zeros(num_variables, dtype=np.int64)
    one = np.int64(1)
    for k in range(num):
        around[:] = 0
        for j in range(len(ends)):
            if pairs[k, j]:
                around[ends[j, 0]] |= one << ends[j, 1]
                around[ends[j, 1]] |= one << ends[j, 0]
        left = (one << num_variables) - one
        closed[k] = 0
        found = True
        while left != 0 and found:
            found = False
            for v in range(num_variables):
                if (left >> v) & one == 0:
                    continue
                near = around[v] & left
                is_clique, size = True, 1
                for u in range(num_variables):
                    if (near >> u) & one:
                        size += 1
                        if near & ~(around[u] | (one << u)):
                            is_clique = False
                            break
                if is_clique:
                    closed[k, v] = near | (one << v)
                    largest[k] = max(largest[k], size)
                    left ^= one << v
                    found = True
                    break
        if left != 0:
            largest[k] = -1
    return largest
