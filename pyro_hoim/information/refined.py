"""Refined information: what an interaction adds to a hierarchical collection; decompositions, and the lattice."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from ..core.law import Law
from ..data.frames import DataLike
from ..errors import check_type, conflict, out_of_reach, refused, unexpected
from ..schema import Domain
from ..structure.hypergraph import Edge, InteractionHypergraph
from .projection import Projections, as_projections, check_hypergraph

_MAX_VARIABLES = 5
_Sets = frozenset[tuple[int, ...]]


@dataclass(frozen=True)
class RefinedInformation:
    r"""Refined information from one hierarchical collection to a larger one.

    Attributes:
        collection: the smaller collection.
        added: the sets that the larger one has besides, in edge order; one set in a maximally refined chain.
        value: :math:`D(p_{\mathcal J}; p_{\mathcal I})` in nats, never negative.
    """

    collection: InteractionHypergraph = field(repr=False)
    added: tuple[Edge, ...]
    value: float

    @property
    def edge(self) -> Edge:
        """The set that is added; InputError where not exactly one is."""
        if len(self.added) != 1:
            raise unexpected(
                "edge", "one added set", hint="see the attribute added", received=len(self.added), code="no-method"
            )
        return self.added[0]


@dataclass(frozen=True)
class RefinedInformationTable:
    """Several values of one law, ``steps`` in the order of their chain; iterated in schema order of the added sets."""

    steps: tuple[RefinedInformation, ...] = field(repr=False)

    def __len__(self) -> int:
        return len(self.steps)

    def __iter__(self) -> Iterator[RefinedInformation]:
        def key(step: RefinedInformation) -> tuple[list[tuple[int, tuple[int, ...]]], int]:
            """Added sets in edge order; ties keep the order of the steps."""
            return [_edge_key(step.collection.domain.indices(edge)) for edge in step.added], len(step.collection)

        return iter(sorted(self.steps, key=key))

    def __repr__(self) -> str:
        return f"RefinedInformationTable({len(self)} values, total {self.total:.6g} nats)"

    @property
    def total(self) -> float:
        """Sum of the values, in nats; along a complete chain the divergence of the law from the uniform one."""
        return math.fsum(step.value for step in self.steps)

    def to_pandas(self) -> pd.DataFrame:
        """One row per value, in schema order of the added sets.

        Columns: ``edge`` ("a:b", several sets joined by " + "), ``order`` (size of the largest added set), ``value``
        (nats), ``step`` (position in ``steps``), ``collection`` (its maximal sets; "1" for none).
        """
        # Steps are numbered as in the chain, and shown in schema order.
        number = {id(step): i for i, step in enumerate(self.steps)}
        rows = [
            {
                "edge": " + ".join(":".join(edge) for edge in step.added),
                "order": max((len(edge) for edge in step.added), default=0),
                "value": step.value,
                "step": number[id(step)],
                "collection": " + ".join(":".join(edge) for edge in step.collection.maximal_edges) or "1",
            }
            for step in self
        ]
        return pd.DataFrame(rows, columns=["edge", "order", "value", "step", "collection"])


def refined_information(
    law: Law | DataLike | Projections, collection: InteractionHypergraph, target: Sequence[str] | InteractionHypergraph
) -> RefinedInformation:
    r"""Refined information of a set at a collection, or between two collections, in nats (paper 1, equation 5).

    .. math:: RI_{\mathcal I \to \mathcal J}(p) = D(p_{\mathcal J}; p_{\mathcal I})
        = D(p; p_{\mathcal I}) - D(p; p_{\mathcal J})

    Costs two projections (:func:`~pyro_hoim.information.project`, which may warn), none where ``law`` is a
    :class:`Projections` that knows them. The value is that of the right-hand side, whose error is of second order in
    that of the projections.

    Args:
        law: the law, observations, or projections to take from and to add to.
        collection: the hierarchical collection to start from.
        target: a set of variables S, all of whose proper subsets are in the collection, or a larger hierarchical
            collection.

    Raises:
        InputError: a collection is not hierarchical or has another domain; the set is in it already or cannot be
            added; the larger collection does not contain the smaller one.
        UnknownNameError: a variable is not in the domain.

    Example:
        >>> from pyro_hoim import Domain
        >>> law = Law(Domain.from_cardinalities({"a": 2, "b": 2}), [[0.5, 0.0], [0.0, 0.5]])
        >>> independent = InteractionHypergraph.from_order(law.domain, 1)
        >>> round(refined_information(law, independent, ("a", "b")).value, 6)  # their mutual information
        0.693147
    """
    projections = as_projections(law)
    check_hypergraph(collection, projections.law, "collection")
    # A larger collection as it is, or by one more set.
    if isinstance(target, InteractionHypergraph):
        check_hypergraph(target, projections.law, "target")
        larger = target
        if not set(collection.edge_indices) <= set(larger.edge_indices):
            missing = next(edge for edge in collection.edges if edge not in larger)
            raise conflict(
                "target", f"expected a larger collection, but {':'.join(missing)} is only in the smaller one"
            )
    else:
        larger = _with_edge(collection, target)
    return _step(projections, collection, larger)


def decompose(
    law: Law | DataLike | Projections, chain: Iterable[InteractionHypergraph] | Iterable[Sequence[str]] | None = None
) -> RefinedInformationTable:
    r"""Decompose the divergence from the uniform law along a chain of collections, each value in nats (paper 1, 6).

    .. math:: D(p; u) = \sum_{t=1}^T RI_{\mathcal I_{t-1} \to \mathcal I_t}(p)

    The sum holds for complete chains, from no set to all sets; along any other hierarchical chain the values sum to
    the refined information from its first to its last member. Costs one projection for each member.

    Args:
        law: the law, observations, or projections to take from and to add to.
        chain: collections, each larger than the one before; or sets of variables in the order in which they are added
            to the empty collection; default all sets in edge order.

    Raises:
        InputError: as :func:`refined_information`; or fewer than two collections, or two that are equal.

    Example:
        >>> from pyro_hoim import Domain
        >>> law = Law(Domain.from_cardinalities({"a": 2, "b": 2}), [[0.5, 0.1], [0.1, 0.3]])
        >>> table = decompose(law)
        >>> [(step.added, round(step.value, 4)) for step in table.steps], round(table.total, 4)
        ([((('a',),), 0.0201), ((('b',),), 0.0201), ((('a', 'b'),), 0.1777)], 0.218)
    """
    # Members of the chain, of which each contains the one before.
    projections = as_projections(law)
    if chain is None:
        members: list[InteractionHypergraph] = list(InteractionHypergraph.saturated(projections.law.domain).chain())
    else:
        members = []
        for item in chain:
            if isinstance(item, InteractionHypergraph):
                members.append(item)
            else:
                if not members:
                    members.append(InteractionHypergraph(projections.law.domain))
                members.append(_with_edge(members[-1], item))
    if len(members) < 2:
        raise unexpected("chain", "at least two collections", received=len(members), code="missing-part")
    for member in members:
        check_hypergraph(member, projections.law, "chain")
    for smaller, larger in itertools.pairwise(members):
        if not set(smaller.edge_indices) < set(larger.edge_indices):
            raise conflict("chain", f"expected growing collections, but {larger!r} is not larger than {smaller!r}")
    return RefinedInformationTable(tuple(_step(projections, a, b) for a, b in itertools.pairwise(members)))


def marginal_refined_information(law: Law | DataLike | Projections, edge: Sequence[str]) -> RefinedInformation:
    r"""Refined information of a set at its proper subsets, the smallest collection that allows it, in nats (paper 1).

    .. math:: RI^{\mathrm{marg}}_S = RI_{\mathcal P(S) - S,\, S}

    For two variables it is their mutual information; for one its divergence from the uniform law. It depends on the
    marginal law of S alone and is computed there. Errors as :func:`refined_information`.

    Example:
        >>> from pyro_hoim import Domain
        >>> law = Law(Domain.from_cardinalities({"a": 2, "b": 2}), [[0.4, 0.1], [0.1, 0.4]])
        >>> round(marginal_refined_information(law, ("a", "b")).value, 4)  # the mutual information
        0.1927
    """
    projections = as_projections(law)
    names = _names(projections.law, edge)
    # In the marginal law of the set alone.
    part = projections.marginal(names)
    subsets = [s for k in range(1, len(names)) for s in itertools.combinations(names, k)]
    inner = _step(
        part, InteractionHypergraph(part.law.domain, subsets), InteractionHypergraph.saturated(part.law.domain)
    )
    return RefinedInformation(InteractionHypergraph(projections.law.domain, subsets), (names,), inner.value)


def conditional_refined_information(law: Law | DataLike | Projections, edge: Sequence[str]) -> RefinedInformation:
    r"""Refined information of a set at the largest collection without it: all sets that do not contain it (paper 1, C).

    .. math:: RI^{\mathrm{cond}}_S = RI_{\mathcal P([d]) - \{T : T \supseteq S\},\, S}

    Two variables that are independent given all the others have the value zero. Errors as :func:`refined_information`.

    Example:
        >>> from pyro_hoim import Domain
        >>> domain = Domain.from_cardinalities({"a": 2, "b": 2, "c": 2})
        >>> law = Law(domain, [[[0.32, 0.02], [0.08, 0.08]], [[0.08, 0.08], [0.02, 0.32]]])
        >>> round(marginal_refined_information(law, ("a", "b")).value, 4)
        0.0663
        >>> round(conditional_refined_information(law, ("a", "b")).value, 4)  # independent given c
        0.0
    """
    projections = as_projections(law)
    names = _names(projections.law, edge)
    smaller = InteractionHypergraph.saturated(projections.law.domain).remove_edges([names])
    return _step(projections, smaller, smaller.add_edges([names]))


def all_refined_information(law: Law | DataLike | Projections) -> RefinedInformationTable:
    """Refined information of every set at every hierarchical collection that allows it, in nats (paper 1, figure 3).

    One projection for each collection, of which there are 19 for three variables, 167 for four and 7,580 for five; the
    values number 31, 453 and 35,511, by collection (number of sets, then edge order) and then by added set. More than
    five variables raise IntractableError.

    Example:
        >>> from pyro_hoim import Domain
        >>> law = Law(Domain.from_cardinalities({"a": 2, "b": 2}), [[0.4, 0.1], [0.1, 0.4]])
        >>> all_refined_information(law).to_pandas()[["edge", "collection", "value"]].round(4)
          edge collection   value
        0    a          1  0.0000
        1    a          b  0.0000
        2    b          1  0.0000
        3    b          a  0.0000
        4  a:b      a + b  0.1927
    """
    projections = as_projections(law)
    lattice = {frozenset(h.edges): h for h in hierarchical_collections(projections.law.domain)}
    steps = [
        _step(projections, collection, lattice[edges | {edge}])
        for edges, collection in lattice.items()
        for edge in addable_edges(collection)
    ]
    return RefinedInformationTable(tuple(steps))


def addable_edges(hypergraph: InteractionHypergraph) -> tuple[Edge, ...]:
    """Sets that are not in a hierarchical collection while all their proper subsets are, in edge order.

    Example:
        >>> from pyro_hoim import Domain
        >>> domain = Domain.from_cardinalities({"a": 2, "b": 2, "c": 2})
        >>> addable_edges(InteractionHypergraph.from_formula(domain, "a*b + c"))
        (('a', 'c'), ('b', 'c'))
    """
    check_type(hypergraph, InteractionHypergraph, "hypergraph")
    names = hypergraph.domain.names
    edges = _addable(frozenset(hypergraph.edge_indices), len(names))
    return tuple(tuple(names[i] for i in edge) for edge in edges)


def hierarchical_collections(domain: Domain) -> tuple[InteractionHypergraph, ...]:
    """All hierarchical collections over at most five variables, by number of sets, then in edge order.

    They are the antichains of non-empty sets, that of the empty antichain (the uniform law) included. Their number is
    the Dedekind number less one: 2, 5, 19, 167 and 7,580 for one to five variables; for six there would be 7,828,353,
    which raises IntractableError. Between them run 1, 5, 31, 453 and 35,511 arrows that add one set.

    Example:
        >>> from pyro_hoim import Domain
        >>> found = hierarchical_collections(Domain.from_cardinalities({"a": 2, "b": 2}))
        >>> [collection.edges for collection in found]
        [(), (('a',),), (('b',),), (('a',), ('b',)), (('a',), ('b',), ('a', 'b'))]
    """
    check_type(domain, Domain, "domain")
    if len(domain) > _MAX_VARIABLES:
        problem = f"the collections of {len(domain)} variables are out of reach (7,828,353 for six)"
        raise out_of_reach("domain", f"{problem}, the limit is {_MAX_VARIABLES} variables", "use a marginal law")
    # Layer by layer, each collection once.
    layer: set[_Sets] = {frozenset()}
    collections: list[_Sets] = []
    while layer:
        collections.extend(layer)
        layer = {sets | {edge} for sets in layer for edge in _addable(sets, len(domain))}
    names = domain.names
    hypergraphs = [InteractionHypergraph(domain, [[names[i] for i in edge] for edge in sets]) for sets in collections]
    return tuple(sorted(hypergraphs, key=lambda h: (len(h), [_edge_key(edge) for edge in h.edge_indices])))


def _addable(sets: _Sets, num_variables: int) -> list[tuple[int, ...]]:
    """Sets whose facets are all present and which are not, by size, then position."""
    # A set is tried once, from its first variables.
    edges: list[tuple[int, ...]] = [(i,) for i in range(num_variables) if (i,) not in sets]
    for edge in sorted(sets, key=_edge_key):
        for i in range(edge[-1] + 1, num_variables):
            larger = (*edge, i)
            if larger not in sets and all(facet in sets for facet in itertools.combinations(larger, len(edge))):
                edges.append(larger)
    return sorted(edges, key=_edge_key)


def _edge_key(edge: Iterable[int]) -> tuple[int, tuple[int, ...]]:
    """Edge order: by size, then by schema positions."""
    positions = tuple(edge)
    return len(positions), positions


def _step(
    projections: Projections, smaller: InteractionHypergraph, larger: InteractionHypergraph
) -> RefinedInformation:
    """Difference of the divergences to two checked collections, as one sum so that little is lost to rounding."""
    # Over the support of the law alone.
    p = projections.law.probs.numpy()
    near, far = projections.project(larger).probs.numpy(), projections.project(smaller).probs.numpy()
    support = p > 0
    with np.errstate(divide="ignore"):
        value = math.fsum(p[support] * (np.log(near[support]) - np.log(far[support])))
    present = set(smaller.edges)
    added = tuple(edge for edge in larger.edges if edge not in present)
    return RefinedInformation(smaller, added, max(value, 0.0))  # in this order NaN is not hidden


def _names(law: Law, edge: Sequence[str]) -> Edge:
    names = (edge,) if isinstance(edge, str) else tuple(edge)
    if not names:
        raise unexpected("edge", "at least one variable", received="the empty set", code="empty")
    return tuple(law.domain.names[i] for i in sorted(law.domain.indices(names)))


def _with_edge(collection: InteractionHypergraph, edge: Sequence[str]) -> InteractionHypergraph:
    """The collection with one more set, which must be addable."""
    names = (edge,) if isinstance(edge, str) else tuple(edge)
    positions = tuple(sorted(collection.domain.indices(names)))
    shown = ":".join(names)
    if not positions:
        raise unexpected("edge", "at least one variable", received="the empty set", code="empty")
    # All subsets are there, the set itself is not.
    present = set(collection.edge_indices)
    if positions in present:
        raise refused("edge", f"{shown} is in the collection already", code="repeated-name")
    missing = [
        facet for facet in itertools.combinations(positions, len(positions) - 1) if facet and facet not in present
    ]
    if missing:
        first = ":".join(collection.domain.names[i] for i in missing[0])
        problem = f"{shown} cannot be added while its subset {first} is not in the collection"
        raise refused("edge", problem, "add that first, or give a larger collection", code="missing-part")
    return collection.add_edges([names])
