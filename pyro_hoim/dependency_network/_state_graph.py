"""Possible moves of a chain that changes one variable at a time, and the states that it never leaves."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components

Ints = NDArray[Any]
Positive = Sequence[NDArray[np.bool_]]


def _moves(positive: Positive, cards: Sequence[int]) -> Iterator[tuple[Ints, Ints]]:
    """From and to numbers of all possible updates, by variable."""
    strides = [math.prod(cards[k + 1 :]) for k in range(len(cards))]
    for possible, stride, levels in zip(positive, strides, cards, strict=True):
        source, level = possible.nonzero()
        yield source, source + (level - source // stride % levels) * stride


def move_graph(positive: Positive, cards: Sequence[int], order: Sequence[int] | None) -> Any:
    """Possible moves as a sparse matrix: between states, or between (place in the order, state) where there is one.

    ``positive`` says whether every level of a variable is possible at every state, (num_states, levels) by variable, of
    which the last moves fastest. States of several combinations of clamped values may stand one after the other; no
    move joins them.
    """
    size, pairs = len(positive[0]), list(_moves(positive, cards))
    count = 1 if order is None else len(order)
    visits = [pairs[i] for i in (range(len(pairs)) if order is None else order)]
    source = np.concatenate([s + k % count * size for k, (s, _) in enumerate(visits)])
    target = np.concatenate([t + (k + 1) % count * size for k, (_, t) in enumerate(visits)])
    return csr_matrix((np.ones(len(source), dtype=np.int8), (source, target)), shape=(size * count, size * count))


def closed_classes(graph: Any, num_states: int) -> Ints:
    """Number of the closed class of every state (num_states,), rising with its first state; -1 for transient states."""
    count, label = connected_components(graph, directed=True, connection="strong")
    edges = graph.tocoo()
    is_closed = np.ones(count, dtype=bool)
    is_closed[label[edges.row][label[edges.row] != label[edges.col]]] = False
    start = label[:num_states]  # every class of a sweep holds states of its beginning
    first = np.full(count, num_states, dtype=np.int64)
    np.minimum.at(first, start, np.arange(num_states))
    closed = np.flatnonzero(is_closed)
    number = np.full(count, -1, dtype=np.int64)
    number[closed[first[closed].argsort()]] = np.arange(len(closed))
    return number[start]
