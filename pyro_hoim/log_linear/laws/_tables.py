"""Work on the flat tables of a law: reading them from the user, extending them, summing variables out."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import Any

import torch

from ...errors import out_of_reach, refused, size_text
from ...schema import Domain
from ...structure.hypergraph import InteractionHypergraph
from ..coding import parametrization
from ..energy import LogLinearEnergy
from ._law import Law
from .backends import check_estimate, exact_backend

_Names = tuple[str, ...]
_MAX_TERMS = 2**22


def log_prob_cells(law: Law) -> torch.Tensor:
    """Log-probability of every cell (*law batch, *cardinalities); where log Z is not exact, by the sum of the cells."""
    cards, batch = law.hypergraph.domain.cardinalities, law.batch_shape
    ones = (*batch, *(1,) * len(cards))
    total = (-law.log_partition.value if law.draws_exactly else law.tables.new_zeros(batch)).reshape(ones)
    for where, members in zip(law.hypergraph.term_slices.values(), law.hypergraph.edge_indices, strict=True):
        shape = [n if i in members else 1 for i, n in enumerate(cards)]
        total = total + law.tables[..., where].reshape((*batch, *shape))
    if not law.draws_exactly:
        flat = total.expand((*batch, *cards)).reshape((*batch, -1)) if cards else total.unsqueeze(-1)
        total = total - flat.logsumexp(-1).reshape(ones)
    return total.expand((*batch, *cards))


def extended_expectations(law: Law, edges: Iterable[tuple[str, ...]]) -> tuple[torch.Tensor, Mapping[_Names, slice]]:
    """Eta (*law batch, num_terms) of the hypergraph with more edges (zero tables there), and its slices."""
    source = law.hypergraph
    extended = source.add_edges(edges, hierarchical=False)
    check_estimate(law.partition, extended)
    tables = parametrization(source).lift(law.tables, extended)
    return law.partition.expectations(LogLinearEnergy(extended, tables)), extended.term_slices


def flatten_tables(hypergraph: InteractionHypergraph, tables: Mapping[Sequence[str] | str, Any]) -> torch.Tensor:
    """Flat tables from ``{edge: table}``; edges left out are zero."""
    given: dict[tuple[str, ...], torch.Tensor] = {}
    for key, table in tables.items():
        names = (key,) if isinstance(key, str) else tuple(key)
        positions = hypergraph.domain.indices(names)
        if list(positions) != sorted(positions):
            raise refused("tables", f"edge {names!r} is not in schema order, which is the order of its table's axes")
        if names not in hypergraph.term_slices:
            problem = f"{':'.join(names)} is not an edge of the hypergraph"
            raise refused("tables", problem, "add it or leave it out", code="unknown-name")
        given[names] = torch.as_tensor(table)
    floating = [t.dtype for t in given.values() if t.is_floating_point()]
    dtype = reduce(torch.promote_types, floating) if floating else torch.get_default_dtype()
    device = next((t.device for t in given.values()), torch.device("cpu"))
    shapes = zip(hypergraph.edges, hypergraph.edge_shapes, strict=True)
    zeros = {edge: torch.zeros(shape, dtype=dtype, device=device) for edge, shape in shapes if edge not in given}
    return parametrization(hypergraph).join({**zeros, **{edge: table.to(dtype) for edge, table in given.items()}})


def marginal_tables(law: Law, names: Iterable[str]) -> tuple[InteractionHypergraph, torch.Tensor]:
    """Structure and balanced tables (*law batch, num_terms) of the law of some variables."""
    source = law.hypergraph
    kept = source.domain.project(names)
    parts = _eliminated_components(source, kept)
    boundaries = [boundary for _, boundary in parts if boundary]
    terms = sum(math.prod(1 + source.domain[n].cardinality for n in boundary) for boundary in boundaries)
    if terms > _MAX_TERMS:
        problem = f"its tables on the boundaries have {size_text(terms, 'cells')}, the limit is {_MAX_TERMS}"
        raise out_of_reach("marginal", problem, "keep more variables")
    simplices = {s for b in boundaries for k in range(1, len(b) + 1) for s in itertools.combinations(b, k)}
    edges = {*source.project(kept.names).edges, *simplices}
    target = InteractionHypergraph(kept, edges, hierarchical=source.is_hierarchical)
    tables, slices = law.tables, source.term_slices
    pieces = {e: tables[..., slices[e]] for e in target.edges if e in slices}
    for component, boundary in parts:
        if boundary:
            for edge, table in _boundary_tables(law, component, boundary).items():
                pieces[edge] = pieces[edge] + table if edge in pieces else table
    return target, torch.cat([pieces[e] for e in target.edges], -1) if target.edges else tables[..., :0]


def _boundary_tables(law: Law, component: _Names, boundary: _Names) -> dict[_Names, torch.Tensor]:
    """Balanced tables on all subsets of a boundary that summing out one component leaves, {edge: flat}."""
    source = law.hypergraph
    domain = source.domain.project((*component, *boundary))
    touched = [e for e in source.edges if not set(e).isdisjoint(component)]
    part = InteractionHypergraph(domain, touched, hierarchical=False)
    backend = exact_backend(law.partition)  # a law of its own: no error bar could be passed on
    cost = backend.plan(part, keep=boundary)
    if not cost.feasible:
        problem = f"summing out {', '.join(map(repr, component[:6]))}: {cost.reason}"
        raise out_of_reach("marginal", problem, cost.hint)
    tables = torch.cat([law.tables[..., source.term_slices[e]] for e in part.edges], -1)
    table = backend.log_marginal(LogLinearEnergy(part, tables), boundary)
    simplex = InteractionHypergraph.saturated(source.domain.project(boundary))
    full = table.reshape((*law.batch_shape, -1))
    flat = torch.cat([full.new_zeros((*law.batch_shape, simplex.num_terms - full.shape[-1])), full], -1)
    balanced, _ = parametrization(simplex).purify(flat)
    return {edge: balanced[..., where] for edge, where in simplex.term_slices.items()}


def _eliminated_components(hypergraph: InteractionHypergraph, kept: Domain) -> list[tuple[_Names, _Names]]:
    """Connected components of the variables that are not kept, each with its neighbours among the kept ones."""
    parts: list[tuple[_Names, _Names]] = []
    for component in hypergraph.restrict(kept.names).components():
        near = {other for name in component for other in hypergraph.neighbours(name) if other in kept}
        parts.append((component, tuple(name for name in kept.names if name in near)))
    return parts
