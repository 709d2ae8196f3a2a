"""The lattice of hierarchical collections of interactions: which there are, and what can be added."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from ..errors import check_type, out_of_reach
from ..schema import Domain
from ..structure.hypergraph import Edge, InteractionHypergraph

__all__ = ["addable_edges", "hierarchical_collections"]

_MAX_VARIABLES = 5
_Sets = frozenset[tuple[int, ...]]


def addable_edges(hypergraph: InteractionHypergraph) -> tuple[Edge, ...]:
    """Sets that are not in a hierarchical collection while all their proper subsets are, in edge order."""
    check_type(hypergraph, InteractionHypergraph, "hypergraph")
    names = hypergraph.domain.names
    found = _addable(frozenset(hypergraph.edge_indices), len(names))
    return tuple(tuple(names[i] for i in edge) for edge in found)


def hierarchical_collections(domain: Domain) -> tuple[InteractionHypergraph, ...]:
    """All hierarchical collections over at most five variables, by number of sets, then in edge order.

    They are the antichains of non-empty sets, that of the empty antichain (the uniform law) included. Their number is
    the Dedekind number less one: 2, 5, 19, 167 and 7,580 for one to five variables; for six there would be 7,828,353,
    which raises IntractableError. Between them run 1, 5, 31, 453 and 35,511 arrows that add one set.
    """
    check_type(domain, Domain, "domain")
    if len(domain) > _MAX_VARIABLES:
        problem = f"the collections of {len(domain)} variables are out of reach (7,828,353 for six)"
        raise out_of_reach("domain", f"{problem}, the limit is {_MAX_VARIABLES} variables", "use a marginal law")
    layer: set[_Sets] = {frozenset()}
    found: list[_Sets] = []
    while layer:
        found.extend(layer)
        layer = {sets | {edge} for sets in layer for edge in _addable(sets, len(domain))}
    ordered = sorted(sorted(sets, key=_edge_key) for sets in found)
    names = domain.names
    hypergraphs = [InteractionHypergraph(domain, [[names[i] for i in edge] for edge in sets]) for sets in ordered]
    return tuple(sorted(hypergraphs, key=lambda h: (len(h), [_edge_key(edge) for edge in h.edge_indices])))


def _addable(sets: _Sets, num_variables: int) -> list[tuple[int, ...]]:
    """Sets whose facets are all present and which are not, by size, then position."""
    found: list[tuple[int, ...]] = [(i,) for i in range(num_variables) if (i,) not in sets]
    for edge in sorted(sets, key=_edge_key):
        for i in range(edge[-1] + 1, num_variables):
            larger = (*edge, i)
            if larger not in sets and all(facet in sets for facet in itertools.combinations(larger, len(edge))):
                found.append(larger)
    return sorted(found, key=_edge_key)


def _edge_key(edge: Iterable[int]) -> tuple[int, tuple[int, ...]]:
    """Edge order: by size, then by schema positions."""
    positions = tuple(edge)
    return len(positions), positions
