"""Closed classes of states of a chain that changes one variable at a time: what it can never leave."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components

Floats = NDArray[Any]
Ints = NDArray[Any]


def closed_classes(
    tables: Floats, levels: Sequence[int], strides: Sequence[int], order: Sequence[int] | None
) -> tuple[Ints, NDArray[Any]]:
    """One state of every closed class, rising, and whether a state is in one; tables (num_nodes, num_states)."""
    size = tables.shape[1]
    if bool((tables > 0).all()):
        return np.zeros(1, dtype=np.int64), np.ones(size, dtype=bool)
    heads: list[Ints] = []
    tails: list[Ints] = []
    sequence = range(len(tables)) if order is None else order
    for phase, node in enumerate(sequence):
        first, second = _moves(tables[node], levels[node], strides[node])
        offset, onward = (0, 0) if order is None else (phase * size, (phase + 1) % len(order) * size)
        tails.append(first + offset)
        heads.append(second + onward)
    tail, head = np.concatenate(tails), np.concatenate(heads)
    total = size * (1 if order is None else len(order))
    graph = csr_matrix((np.ones(len(tail), dtype=np.int8), (tail, head)), shape=(total, total))
    number, label = connected_components(graph, directed=True, connection="strong")
    is_closed = np.ones(number, dtype=bool)
    is_closed[label[tail[label[tail] != label[head]]]] = False
    start = label[:size]  # every class of a sweep holds states of its beginning
    members = np.full(number, size, dtype=np.int64)
    np.minimum.at(members, start, np.arange(size))
    return np.sort(members[is_closed]), is_closed[start]


def _moves(table: Floats, levels: int, stride: int) -> tuple[Ints, Ints]:
    """Pairs (from, to) of states that one update of a node may join, (num_pairs,) each."""
    grid = np.arange(len(table)).reshape(-1, levels, stride)
    tail, head = np.broadcast_arrays(grid[:, :, None, :], grid[:, None, :, :])
    kept = table[head.ravel()] > 0
    return tail.ravel()[kept], head.ravel()[kept]
