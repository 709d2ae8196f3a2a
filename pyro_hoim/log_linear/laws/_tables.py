"""Work on the flat tables of a law: reading them from the user, extending them, summing variables out."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from pyro.distributions.util import broadcast_shape

from ...core.laws.expansion import check_cells
from ...errors import out_of_reach, refused
from ...schema import Domain
from ...structure.hypergraph import InteractionHypergraph
from ..coding import parametrization
from ..energy import LogLinearEnergy
from ._law import Law
from .backends import check_estimate, exact_backend

_Names = tuple[str, ...]


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


def extended_expectations(
    law: Law, edges: Iterable[tuple[str, ...]]
) -> tuple[InteractionHypergraph, torch.Tensor, Mapping[tuple[str, ...], slice]]:
    """Hypergraph with more edges (zero tables there), its eta (*law batch, num_terms) and its slices."""
    source = law.hypergraph
    extended = source.add_edges(edges, hierarchical=False)
    tables = law.tables
    zero = tables.new_zeros(law.batch_shape)
    slices = source.term_slices
    pieces = [
        tables[..., slices[e]] if e in slices else zero.unsqueeze(-1).expand((*zero.shape, math.prod(shape)))
        for e, shape in zip(extended.edges, extended.edge_shapes, strict=True)
    ]
    check_estimate(law.partition, extended)
    eta = law.partition.expectations(LogLinearEnergy(extended, torch.cat(pieces, -1)))
    return extended, eta, extended.term_slices


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
    dtype = torch.get_default_dtype()
    floating = [t for t in given.values() if t.is_floating_point()]
    if floating:
        dtype = floating[0].dtype
        for table in floating[1:]:
            dtype = torch.promote_types(dtype, table.dtype)
    device = next((t.device for t in given.values()), torch.device("cpu"))
    batch = torch.Size()
    for names, table in given.items():
        shape = hypergraph.edge_shapes[hypergraph.edges.index(names)]
        if table.dim() < len(shape) or table.shape[table.dim() - len(shape) :] != shape:
            raise refused("tables", f"edge {names!r} expects shape (..., *{shape}), received {tuple(table.shape)}")
        batch = torch.Size(broadcast_shape(batch, table.shape[: table.dim() - len(shape)]))
    pieces = []
    for names, shape in zip(hypergraph.edges, hypergraph.edge_shapes, strict=True):
        table = given.get(names, torch.zeros(shape, device=device)).to(dtype)
        pieces.append(table.expand((*batch, *shape)).reshape((*batch, math.prod(shape))))
    return torch.cat(pieces, -1) if pieces else torch.zeros((*batch, 0), dtype=dtype, device=device)


def marginal_tables(law: Law, names: Iterable[str], max_terms: int) -> tuple[InteractionHypergraph, torch.Tensor]:
    """Structure and balanced tables (*law batch, num_terms) of the law of some variables."""
    source = law.hypergraph
    kept = source.domain.project(names)
    parts = _eliminated_components(source, kept)
    boundaries = [boundary for _, boundary in parts if boundary]
    terms = sum(math.prod(1 + source.domain[n].cardinality for n in boundary) for boundary in boundaries)
    check_cells(terms, max_terms, "marginal: the tables on the boundaries", "max_terms")
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


def _eliminated_components(
    hypergraph: InteractionHypergraph, kept: Domain
) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Connected components of the variables that are not kept, each with its neighbours among the kept ones."""
    position = hypergraph.domain.index
    left = [name for name in hypergraph.domain.names if name not in kept]
    seen: set[str] = set()
    parts: list[tuple[tuple[str, ...], tuple[str, ...]]] = []
    for start in left:
        if start in seen:
            continue
        component, boundary, queue = {start}, set[str](), [start]
        while queue:
            for other in hypergraph.neighbours(queue.pop()):
                if other in kept:
                    boundary.add(other)
                elif other not in component:
                    component.add(other)
                    queue.append(other)
        seen |= component
        parts.append((tuple(sorted(component, key=position)), tuple(sorted(boundary, key=position))))
    return parts
