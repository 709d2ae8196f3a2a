"""Supports of the discrete laws, as PyTorch constraints."""

from __future__ import annotations

import itertools
import math
from functools import lru_cache

import torch
from torch.distributions import constraints

from ..._modes import plain_mode
from ...checks import check_shape
from ...structure.hypergraph import InteractionHypergraph

__all__ = ["MarginalCounts", "StateSpace"]


class StateSpace(constraints.Constraint):
    r"""Vectors (..., d) of level codes, :math:`\prod_k \{0, \dots, I_k - 1\}`, for ``cardinalities`` in schema order.

    They may be integer or floating; :meth:`check` returns (...), NaN and fractions are outside.

    Example:
        >>> StateSpace((2, 3)).check(torch.tensor([[1, 2], [2, 0]])).tolist()
        [True, False]
    """

    is_discrete = True
    event_dim = 1

    def __init__(self, cardinalities: tuple[int, ...]) -> None:
        self.cardinalities = tuple(cardinalities)
        super().__init__()

    def is_level(self, value: torch.Tensor) -> torch.Tensor:
        """Entry by entry, whether it is a code of its variable, shape of ``value``."""
        check_shape(value, (len(self.cardinalities),), "value")
        inside = (value >= 0) & (value < _bounds(self.cardinalities, value.device))
        return inside & (value == value.floor()) if value.is_floating_point() else inside

    def check(self, value: torch.Tensor) -> torch.Tensor:
        """Whether each vector is a state."""
        return self.is_level(value).all(-1)

    def __repr__(self) -> str:
        return f"StateSpace(cardinalities={self.cardinalities})"


class MarginalCounts(constraints.Constraint):
    """Flat marginal tables (..., num_terms) that one table of ``total_count`` non-negative cells could have.

    Checked are the signs, the sum of every table, and that every table agrees with the tables of its facets (the
    linear conditions that tie overlapping margins; they are necessary, for decomposable collections also sufficient).
    Sums may be off by rounding only.

    Args:
        hypergraph: the edges whose tables are listed.
        total_count: number of rows, a number or a tensor that broadcasts with the batch.

    Example:
        >>> from pyro_hoim import Domain
        >>> graph = InteractionHypergraph.from_order(Domain.from_cardinalities({"a": 2, "b": 2}), 1)
        >>> MarginalCounts(graph, 10).check(torch.tensor([[4.0, 6.0, 7.0, 3.0], [4.0, 6.0, 7.0, 4.0]])).tolist()
        [True, False]
    """

    is_discrete = True
    event_dim = 1

    def __init__(self, hypergraph: InteractionHypergraph, total_count: torch.Tensor | float) -> None:
        self.hypergraph = hypergraph
        self.total_count = total_count
        super().__init__()

    def check(self, value: torch.Tensor) -> torch.Tensor:
        """Whether each vector of tables is consistent."""
        expected = self.hypergraph.num_terms
        check_shape(value, (expected,), "value")
        table = value if value.is_floating_point() else value.to(torch.float64)
        total = torch.as_tensor(self.total_count, dtype=table.dtype, device=table.device).unsqueeze(-1)
        source, row, sign, num_rows = _consistency(self.hypergraph)
        source, row, sign = source.to(table.device), row.to(table.device), sign.to(table)
        sums = table.new_zeros((*table.shape[:-1], num_rows)).index_add(-1, row, table[..., source] * sign)
        num_edges = len(self.hypergraph)
        tolerance = 64 * torch.finfo(table.dtype).eps * total.clamp(min=1)
        is_complete = ((sums[..., :num_edges] - total).abs() <= tolerance).all(-1)
        is_consistent = (sums[..., num_edges:].abs() <= tolerance).all(-1)
        return (table >= 0).all(-1) & is_complete & is_consistent

    def __repr__(self) -> str:
        return f"MarginalCounts(num_terms={self.hypergraph.num_terms})"


@lru_cache(maxsize=128)
@plain_mode()
def _bounds(cardinalities: tuple[int, ...], device: torch.device) -> torch.Tensor:
    """Cardinalities as a tensor (d,)."""
    return torch.tensor(cardinalities, dtype=torch.long, device=device)


@lru_cache(maxsize=128)
@plain_mode()
def _consistency(hypergraph: InteractionHypergraph) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, int]:
    """Sparse linear conditions (term, row, sign, number of rows): first the sum of every table, then every facet."""
    source: list[torch.Tensor] = []
    row: list[torch.Tensor] = []
    sign: list[torch.Tensor] = []

    def add(terms: torch.Tensor, rows: torch.Tensor, value: float) -> None:
        source.append(terms)
        row.append(rows)
        sign.append(torch.full((len(terms),), value, dtype=torch.float64))

    slices = hypergraph.term_slices
    for position, where in enumerate(slices.values()):
        terms = torch.arange(where.start, where.stop)
        add(terms, torch.full_like(terms, position), 1.0)
    num_rows = len(hypergraph)
    for edge, shape in zip(hypergraph.edges, hypergraph.edge_shapes, strict=True):
        for facet in itertools.combinations(range(len(edge)), len(edge) - 1):
            where = slices.get(tuple(edge[i] for i in facet))
            if where is None:
                continue
            terms = torch.arange(where.start, where.stop)
            cells = math.prod(shape[i] for i in facet)
            axes = [shape[i] if i in facet else 1 for i in range(len(edge))]
            rows = (num_rows + torch.arange(cells)).reshape(axes).expand(shape).reshape(-1)
            add(torch.arange(slices[edge].start, slices[edge].stop), rows, 1.0)
            add(terms, num_rows + torch.arange(cells), -1.0)
            num_rows += cells
    if not source:
        empty = torch.zeros(0, dtype=torch.long)
        return empty, empty, torch.zeros(0, dtype=torch.float64), 0
    return torch.cat(source), torch.cat(row), torch.cat(sign), num_rows
