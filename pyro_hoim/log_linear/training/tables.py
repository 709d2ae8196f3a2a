"""What every trainer does with tables: begin, carry over, centre, and count them among rows. Private to training."""

from __future__ import annotations

import math

import numpy as np
import torch

from ...data.observations import Observations
from ...errors import other_domain, wrong_shape
from ...structure.hypergraph import Edge, InteractionHypergraph

__all__ = ["RowMargins", "edge_axes", "initial_tables", "restructured_tables"]


def restructured_tables(
    tables: torch.Tensor, source: InteractionHypergraph, target: InteractionHypergraph
) -> torch.Tensor:
    """Tables in the layout of another collection: common interactions keep theirs, new ones are zero.

    Balanced tables stay balanced. It serves any vector with an entry per table entry, such as moments.
    """
    if target.domain != source.domain:
        expected = f"a collection over the variables {source.domain.names} and their levels"
        received = f"one over {target.domain.names} or other levels"
        raise other_domain("hypergraph", expected, hint="make a new trainer", received=received)
    if tables.shape[-1] != source.num_terms:
        raise wrong_shape("tables", f"(..., {source.num_terms})", tables)
    result = tables.new_zeros(*tables.shape[:-1], target.num_terms)
    here = source.term_slices
    for edge, where in target.term_slices.items():
        if edge in here:
            result[..., where] = tables[..., here[edge]]
    return result


def initial_tables(rows: Observations, hypergraph: InteractionHypergraph) -> torch.Tensor:
    """Tables that training begins with: those of single variables from their counts plus one half, the others zero."""
    tables = torch.zeros(hypergraph.num_terms, dtype=torch.float64)
    single = {edge: where for edge, where in hypergraph.term_slices.items() if len(edge) == 1}
    logs = (rows.marginal_counts(single) + 0.5).log()
    for where, own in zip(single.values(), logs.split([w.stop - w.start for w in single.values()]), strict=True):
        tables[where] = own - own.mean()
    return tables


class RowMargins:
    """Marginal laws of rows, counted once for every set of variables."""

    def __init__(self, rows: Observations) -> None:
        self.rows = rows
        self._known: dict[Edge, np.ndarray] = {}

    def __call__(self, hypergraph: InteractionHypergraph) -> np.ndarray:
        """Frequencies (num_terms,) of the cells of every interaction."""
        new = [edge for edge in hypergraph.edges if edge not in self._known]
        if new:
            counts = self.rows.marginal_counts(new).numpy() / self.rows.total_count
            sizes = [math.prod(self.rows.domain[name].cardinality for name in edge) for edge in new]
            self._known.update(zip(new, np.split(counts, np.cumsum(sizes)[:-1]), strict=True))
        return np.concatenate([np.zeros(0), *(self._known[edge] for edge in hypergraph.edges)])


def edge_axes(hypergraph: InteractionHypergraph) -> np.ndarray:
    """Axes of all tables as (position of the table, entries before, length, entries after), for centring."""
    found = [
        (where.start, math.prod(shape[:k]), shape[k], math.prod(shape[k + 1 :]))
        for where, shape in zip(hypergraph.term_slices.values(), hypergraph.edge_shapes, strict=True)
        for k in range(len(shape))
    ]
    return np.array(found, dtype=np.int64).reshape(-1, 4)
