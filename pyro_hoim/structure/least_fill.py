"""Elimination orders of least fill-in by compiled code: bounds and cutsets try tens of them for one model.

They are those of the first rule of :func:`~pyro_hoim.structure.elimination_order.elimination_order`, twenty times as
fast, with ties broken at random on request. That function tries other rules as well, once for a model, and does not
wait for Numba to be imported.
"""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from .hypergraph import InteractionHypergraph


@lru_cache(maxsize=64)
def neighbour_pairs(hypergraph: InteractionHypergraph) -> NDArray[np.int64]:
    """Pairs of variables (n, 2) that share an interaction, each once."""
    pairs = {pair for edge in hypergraph.edge_indices for pair in combinations(sorted(edge), 2)}
    return np.array(sorted(pairs), dtype=np.int64).reshape(-1, 2)


def least_fill(
    pairs: NDArray[np.int64],
    cards: tuple[int, ...],
    variables: list[int],
    random: np.random.Generator | None = None,
    most: float = math.inf,
) -> tuple[list[int], float]:
    """Some variables in an order of least fill-in, then smallest table, and the cells of the largest table.

    Ties go to the variable of the most levels, then to the first in the list, or to any if ``random`` is given. With
    ``most`` the order ends as soon as a table has more cells.
    """
    from ._order_kernels import order_of_least_fill

    number = np.full(len(cards), -1, dtype=np.int64)
    number[variables] = np.arange(len(variables))
    inside = number[pairs]
    inside = inside[(inside >= 0).all(1)]
    ties = np.arange(len(variables)) if random is None else random.permutation(len(variables))
    order = np.zeros(len(variables), dtype=np.int64)
    levels = np.array([cards[v] for v in variables], dtype=np.int64)
    largest = float(order_of_least_fill(inside, levels, ties, float(most), order))
    return [variables[k] for k in order.tolist()], largest
