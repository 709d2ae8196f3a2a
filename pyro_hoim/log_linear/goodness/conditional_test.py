r"""Tables of a decomposable model drawn given the margins that it fits, for exact tests of that model."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...data.observations import Observations
from ...errors import out_of_reach, size_text
from ...structure.hypergraph import InteractionHypergraph
from ..fitting.design import cell_numbers

__all__ = ["conditional_cost", "conditional_tables"]

_MOST_VALUES = 2**26


def conditional_cost(hypergraph: InteractionHypergraph, data: Observations) -> float:
    """Rows that are moved for one table, and cells that are read."""
    return data.total_count * len(hypergraph.junction_tree()) + hypergraph.domain.num_states / 8


def conditional_tables(
    hypergraph: InteractionHypergraph, data: Observations, cells: np.ndarray, seed: int
) -> Callable[[int], np.ndarray]:
    """Tables (cells in the mask, size) drawn given the observed margins of the cliques, by moving every row.

    IntractableError for more than 2^26 values of rows.

    References:
        Alan Agresti, A survey of exact inference for contingency tables, 1992, section 3; Steffen Lauritzen, Graphical
        Models, 1996, section 4.4.
    """
    domain = hypergraph.domain
    cards = domain.cardinalities
    if (values := int(data.total_count) * len(domain)) > _MOST_VALUES:
        problem = f"an exact test moves every row, {size_text(values, 'values')}, more than {_MOST_VALUES}"
        raise out_of_reach("p_value", problem, "use 'chi-square' or 'bootstrap'")
    rows = data.unique()  # the same tables whatever the order of the rows
    codes = np.repeat(rows.codes.numpy(), rows.counts.numpy().astype(np.int64), axis=0)
    steps: list[tuple[list[int], list[int], np.ndarray]] = []
    for node in hypergraph.junction_tree():
        separator = list(domain.indices(node.separator))
        added = [i for i in domain.indices(node.clique) if i not in separator]
        order = np.argsort(cell_numbers(codes, separator, cards), kind="stable")
        steps.append((separator, added, codes[order][:, added]))
    random = np.random.default_rng(seed)
    covered = {i for _, added, _ in steps for i in added}

    def draw(size: int) -> np.ndarray:
        tables = np.empty((int(cells.sum()), size))
        for number in range(size):
            drawn = np.zeros_like(codes)
            for i in set(range(len(cards))) - covered:
                drawn[:, i] = random.permutation(codes[:, i])
            for separator, added, dealt in steps:
                order = np.argsort(cell_numbers(drawn, separator, cards) + random.random(len(drawn)))
                drawn[order[:, None], added] = dealt
            states = cell_numbers(drawn, range(len(cards)), cards)
            tables[:, number] = np.bincount(states, minlength=len(cells))[cells]
        return tables

    return draw
