"""The interaction hypergraph: which sets of variables have an interaction table of their own.

Everything else in the library is laid out by it: interaction tables are stored one after the other in the order of
:attr:`InteractionHypergraph.edges`, each table with its axes in schema order and its last axis fastest.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import lazy_loader
import numpy as np
import torch

from .._modes import plain_mode
from ..budgets import MAX_ENTRIES, MAX_LEVELS, MAX_SETS, check_size, num_sets
from ..checks import broadcast_shapes, check_shape, is_hidden
from ..errors import (
    check_choice,
    check_type,
    check_unique,
    check_whole,
    out_of_range,
    refused,
    unexpected,
    visible,
    wrong_type,
)
from ..schema import Domain
from .formula import parse_formula

if TYPE_CHECKING:
    import networkx as nx
else:  # graphs of a command on a model are seldom asked for
    nx = lazy_loader.load("networkx")

Edge = tuple[str, ...]
FamilyCoding = Literal["balanced", "corner"]
_FEWER = "name fewer or smaller sets, or let learn() search for them"


class JunctionTreeNode(NamedTuple):
    """A clique of a junction tree, listed after its parent; names are in schema order."""

    clique: Edge
    separator: Edge  # the variables shared with the parent clique
    parent: int | None  # position of the parent in the list, or None for a root


class InteractionHypergraph:
    r"""An immutable collection of non-empty variable sets (hyperedges) over a finite domain.

    The collection :math:`\mathcal I` says which interaction tables :math:`\theta^S` the energy
    :math:`-\sum_{S \in \mathcal I} \theta^S_{x_S}` has. It is *hierarchical* when every non-empty subset of an edge
    is an edge. The empty set, whose "table" is the normalising constant, is never listed.

    Args:
        domain: the finite variables, whose order is the schema order.
        edges: iterable of variable sets; repeated sets are merged, the order given does not matter.
        closure: add every missing non-empty subset.
        hierarchical: refuse a collection that is not closed under subsets (default). With ``False`` such a
            collection is kept as it is (weak heredity), and ``coding`` defines its family.
        coding: which tables a collection that lacks subsets has, because these are two families: "balanced" ones,
            whose fibres sum to zero (default), or "corner" ones, which vanish where a level is 0. A hierarchical
            collection has the same family in both, so there it makes no difference and reads "balanced".

    Attributes:
        domain: the domain.
        coding: "corner" for a collection that lacks subsets and has corner tables, otherwise "balanced".
        edges: the edges as tuples of names in schema order, ordered by size, then by schema positions.

    Raises:
        UnknownNameError: a name is not in the domain.
        InputError: an empty edge, a name repeated inside an edge, a variable that is not finite, or a collection
            that is not closed under subsets while ``closure`` is False and ``hierarchical`` is True; another coding.
        IntractableError: more than 2^22 sets, those of a closure counted before they are made.

    References:
        James Enouen and Mahito Sugiyama, A Complete Decomposition of KL Error using Refined Information and Mode
        Interaction Selection, 2024, section 3.3 and equation (8).

    Example:
        >>> domain = Domain.from_cardinalities({"a": 2, "b": 3, "c": 2})
        >>> hypergraph = InteractionHypergraph(domain, [("b", "a"), ("c",)], closure=True)
        >>> hypergraph.edges
        (('a',), ('b',), ('c',), ('a', 'b'))
        >>> hypergraph.num_terms, hypergraph.num_parameters
        (13, 6)
    """

    domain: Domain
    edges: tuple[Edge, ...]
    coding: FamilyCoding

    def __init__(
        self,
        domain: Domain,
        edges: Iterable[Iterable[str]] = (),
        *,
        closure: bool = False,
        hierarchical: bool = True,
        coding: FamilyCoding = "balanced",
    ) -> None:
        check_type(domain, Domain, "domain")
        check_choice(coding, ("balanced", "corner"), "coding")
        _ = domain.cardinalities  # refuses variables that are not finite
        # Sets of names as sorted positions in the schema.
        positions: set[tuple[int, ...]] = set()
        check_type(edges, Iterable, "edges", "sets of names")
        for edge in edges:
            if isinstance(edge, str):
                raise wrong_type("edges", "sets of names", hint=f"write ({edge!r},)", received=f"the string {edge!r}")
            if not isinstance(edge, Iterable):
                raise wrong_type("edges", "sets of names", edge)
            names = tuple(edge)
            if not names:
                problem = "the empty set is not an edge; its term is the normalising constant"
                raise refused("edges", problem, code="empty")
            if len({*names}) < len(names):
                check_unique(names, f"edge {names!r}")
            positions.add(tuple(sorted(domain.indices(names))))
            if len(positions) > MAX_SETS:
                check_size(len(positions), MAX_SETS, "sets", "edges", _FEWER, "there are at least")
        # Missing subsets are added, or refused where they are asked for.
        if closure:
            hint = "use smaller edges, or hierarchical=False to keep the collection as it is"
            size = sum(2 ** len(e) - 1 for e in positions)
            check_size(size, MAX_SETS, "sets", "edges", hint, "the closure may have up to")
            positions = {s for e in positions for k in range(1, len(e) + 1) for s in itertools.combinations(e, k)}
            self.__dict__["is_hierarchical"] = True
        self._set(domain, tuple(sorted(positions, key=_by_size)), coding)
        if hierarchical and not self.is_hierarchical:
            missing = self.closure()._index_set - self._index_set
            shown = ", ".join(":".join(self._names(e)) for e in sorted(missing, key=_by_size)[:4])
            more = ", ..." if len(missing) > 4 else ""
            problem = (
                f"not closed under subsets; missing {shown}{more} ({len(missing)} in all). Pass closure=True to add "
                "them, or hierarchical=False to keep the collection as it is"
            )
            raise refused("edges", problem, code="missing-part")

    def _set(self, domain: Domain, edge_indices: tuple[tuple[int, ...], ...], coding: FamilyCoding) -> None:
        """Fill the slots from edges that are already sorted."""
        values = self.__dict__
        values["domain"] = domain
        values["edge_indices"] = edge_indices
        values["edges"] = tuple(map(self._names, edge_indices))
        values["_hash"] = hash((domain.names, domain.cardinalities, edge_indices))
        values["coding"] = "corner" if coding == "corner" and not self.is_hierarchical else "balanced"

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("an InteractionHypergraph is immutable")

    def __getstate__(self) -> dict[str, Any]:
        return {"domain": self.domain, "edge_indices": self.edge_indices, "coding": self.coding}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._set(**state)

    def __hash__(self) -> int:
        return self.__dict__["_hash"]

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, InteractionHypergraph):
            return NotImplemented
        is_alike = self.edge_indices == other.edge_indices and self.coding == other.coding
        return is_alike and self.domain == other.domain

    def __len__(self) -> int:
        return len(self.edges)

    def __contains__(self, edge: object) -> bool:
        if isinstance(edge, str) or not isinstance(edge, Iterable):
            return False
        names = set(edge)
        return (
            all(name in self.domain for name in names) and tuple(sorted(self.domain.indices(names))) in self._index_set
        )

    def __repr__(self) -> str:
        text = " + ".join(":".join(e) for e in self.maximal_edges[:8]) or "1"
        more = f" + ... ({len(self.maximal_edges)} maximal)" if len(self.maximal_edges) > 8 else ""
        coding = ", corner coding" if self.coding == "corner" else ""
        return f"InteractionHypergraph({len(self.domain)} variables, {len(self)} edges: {visible(text)}{more}{coding})"

    @classmethod
    def from_order(cls, domain: Domain, order: int) -> InteractionHypergraph:
        """All sets of one to ``order`` variables (the "k-body" model); refused out of range, and above 2^22 sets."""
        check_type(domain, Domain, "domain")
        check_whole(order, "order", 1, len(domain))
        unit, hint = f"sets of up to {order} of {len(domain)} variables", f"take a lower order, {_FEWER}"
        check_size(num_sets(len(domain), order), MAX_SETS, unit, "order", hint, "there are")
        _ = domain.cardinalities  # refuses variables that are not finite
        edges = tuple(e for k in range(1, order + 1) for e in itertools.combinations(range(len(domain)), k))
        made = object.__new__(cls)
        made.__dict__["is_hierarchical"] = True
        made._set(domain, edges, "balanced")
        return made

    @classmethod
    def saturated(cls, domain: Domain) -> InteractionHypergraph:
        """All non-empty sets of variables."""
        return cls(domain, [domain.names] if len(domain) else [], closure=True)

    @classmethod
    def from_formula(
        cls, domain: Domain, formula: str, *, closure: bool = False, hierarchical: bool = True
    ) -> InteractionHypergraph:
        """Edges from a formula such as ``"smoke*mental + phys*systol"``; refused as in the constructor.

        ``+`` is union, ``a*b`` is a, b and their pair, ``a:b`` the pair alone, ``(a + b + c)^2`` all sets of up to
        two, ``- a:b`` leaves out the pair and all sets that contain it, ``.`` is all variables, ``1`` nothing. Unusual
        names go between backquotes.
        """
        sets = parse_formula(formula, domain.names, closure=closure)
        return cls(domain, sets, closure=closure, hierarchical=hierarchical)

    edge_indices: tuple[tuple[int, ...], ...]
    """The edges as tuples of schema positions."""

    @cached_property
    def _index_set(self) -> frozenset[tuple[int, ...]]:
        return frozenset(self.edge_indices)

    @cached_property
    def incident(self) -> tuple[set[int], ...]:
        """Numbers of the edges that hold each variable, in schema order."""
        numbers = tuple(set[int]() for _ in self.domain)
        for number, edge in enumerate(self.edge_indices):
            for i in edge:
                numbers[i].add(number)
        return numbers

    @cached_property
    def edge_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shape of every interaction table, axes in schema order."""
        cards = self.domain.cardinalities
        return tuple(tuple(cards[i] for i in e) for e in self.edge_indices)

    @cached_property
    def term_slices(self) -> Mapping[Edge, slice]:
        """Position of every edge's table in a flat vector of tables (theta balanced, eta, pi)."""
        return _slices(self.edges, [math.prod(shape) for shape in self.edge_shapes])

    @cached_property
    def parameter_slices(self) -> Mapping[Edge, slice]:
        """Position of every edge's free parameters in a flat vector of free or corner coordinates."""
        return _slices(self.edges, [math.prod(n - 1 for n in shape) for shape in self.edge_shapes])

    @cached_property
    def num_terms(self) -> int:
        r"""Number of table entries, :math:`\sum_S \prod_{k \in S} I_k`."""
        return sum(math.prod(shape) for shape in self.edge_shapes)

    @cached_property
    def num_parameters(self) -> int:
        r"""Number of free parameters, :math:`\sum_S \prod_{k \in S} (I_k - 1)`."""
        return sum(math.prod(n - 1 for n in shape) for shape in self.edge_shapes)

    @cached_property
    def num_interactions(self) -> int:
        """Number of hyperedges of two and more variables; ``len`` counts single variables and the empty set, too."""
        return sum(len(edge) > 1 for edge in self.edges)

    @cached_property
    def _edge_of_parameter(self) -> np.ndarray:
        sizes = [part.stop - part.start for part in self.parameter_slices.values()]
        return np.repeat(np.arange(len(sizes)), sizes)

    def spread(self, per_edge: torch.Tensor) -> torch.Tensor:
        """Values of the edges (*batch, len(self)), each repeated over its free parameters (*batch, num_parameters).

        Such as scales of a prior and weights of a penalty.
        """
        check_type(per_edge, torch.Tensor, "per_edge", "a tensor")
        check_shape(per_edge, (len(self),), "per_edge")
        return per_edge.index_select(-1, torch.from_numpy(self._edge_of_parameter).to(per_edge.device))

    @cached_property
    def order(self) -> int:
        """Size of the largest edge; 0 without edges."""
        return max((len(e) for e in self.edge_indices), default=0)

    @cached_property
    def is_hierarchical(self) -> bool:
        """Whether every non-empty subset of an edge is an edge."""
        return all(s in self._index_set for e in self.edge_indices for s in _facets(e))

    @cached_property
    def maximal_edges(self) -> tuple[Edge, ...]:
        """Edges that lie in no other edge (the generating class), in edge order."""
        if self.is_hierarchical:
            covered = {s for e in self.edge_indices for s in _facets(e)}
            return tuple(self._names(e) for e in self.edge_indices if e not in covered)
        sets = [frozenset(e) for e in self.edge_indices]
        return tuple(
            self._names(e) for e, s in zip(self.edge_indices, sets, strict=True) if not any(s < t for t in sets)
        )

    def closure(self) -> InteractionHypergraph:
        """The smallest hierarchical collection that contains this one."""
        return InteractionHypergraph(self.domain, self.edges, closure=True)

    def in_coding(self, coding: FamilyCoding) -> InteractionHypergraph:
        """The same sets, whose family a coding defines: another family if subsets are missing, otherwise this one."""
        check_choice(coding, ("balanced", "corner"), "coding")
        if coding == self.coding or self.is_hierarchical:
            return self
        return InteractionHypergraph(self.domain, self.edges, hierarchical=False, coding=coding)

    def heredity_score(self, names: Iterable[str]) -> float:
        r"""Share of facets that are edges, :math:`\omega(S) / |S|` (paper 1, equation 8); 1 for a single variable."""
        edge = tuple(sorted(self.domain.indices(names)))
        if not edge:
            raise unexpected("names", "at least one variable", code="empty")
        return sum(s in self._index_set or not s for s in itertools.combinations(edge, len(edge) - 1)) / len(edge)

    def chain(self) -> tuple[InteractionHypergraph, ...]:
        """Chain from no edge to this collection, adding one edge at a time in edge order (paper 1, section 3.3).

        IntractableError where its collections have more than 2^22 sets together: beyond 2,895 edges.
        """
        size, what = len(self.edges), "the collections of the chain have"
        check_size(size * (size + 1) // 2, MAX_SETS, "sets", "chain", "take fewer edges", what)
        return tuple(self._part(self.edge_indices[:k]) for k in range(len(self.edges) + 1))

    def add_edges(
        self, edges: Iterable[Iterable[str]], *, closure: bool = False, hierarchical: bool = True
    ) -> InteractionHypergraph:
        """This collection with more edges; arguments as in the constructor."""
        added = [*self.edges, *edges]
        return InteractionHypergraph(self.domain, added, closure=closure, hierarchical=hierarchical, coding=self.coding)

    def remove_edges(self, edges: Iterable[Iterable[str]], *, hierarchical: bool = True) -> InteractionHypergraph:
        """This collection without the given edges and, when ``hierarchical``, without their supersets."""
        gone = [frozenset(self.domain.indices(e)) for e in edges]
        for edge in gone:
            if tuple(sorted(edge)) not in self._index_set:
                problem = f"{':'.join(self._names(sorted(edge)))} is not an edge of the collection"
                raise refused("edges", problem, code="unknown-name")
        left = tuple(
            e for e in self.edge_indices if not any(g.issubset(e) and (hierarchical or len(g) == len(e)) for g in gone)
        )
        if hierarchical and not self.is_hierarchical:  # which the constructor decides on
            return InteractionHypergraph(self.domain, map(self._names, left), coding=self.coding)
        return self._part(left)

    def _part(self, edge_indices: tuple[tuple[int, ...], ...]) -> InteractionHypergraph:
        """Some edges of this collection, in its order, which need no checks."""
        part = object.__new__(InteractionHypergraph)
        part._set(self.domain, edge_indices, self.coding)
        return part

    @cached_property
    def _graph(self) -> nx.Graph[int]:
        """Interaction graph over schema positions; two variables are adjacent when an edge holds both."""
        graph: nx.Graph[int] = nx.Graph()
        graph.add_nodes_from(range(len(self.domain)))
        for edge in self.edge_indices:
            graph.add_edges_from(itertools.combinations(edge, 2))
        return graph

    def _names(self, indices: Iterable[int]) -> Edge:
        names = self.domain.names
        return tuple(names[i] for i in indices)

    def neighbours(self, name: str) -> Edge:
        """Variables that share an edge with ``name``, in schema order."""
        return self._names(sorted(self._graph.neighbors(self.domain.index(name))))

    @cached_property
    def cliques(self) -> tuple[Edge, ...]:
        """Maximal cliques of the interaction graph over the variables that occur in an edge, in edge order."""
        graph = self._graph.subgraph({i for e in self.edge_indices for i in e})
        members = sorted((tuple(sorted(clique)) for clique in nx.find_cliques(graph)), key=_by_size)
        return tuple(self._names(clique) for clique in members)

    @cached_property
    def is_graphical(self) -> bool:
        """Whether the collection is hierarchical and its maximal edges are the cliques of its graph."""
        return self.is_hierarchical and set(self.maximal_edges) == set(self.cliques)

    @cached_property
    def is_decomposable(self) -> bool:
        """Whether the collection is graphical with a chordal graph, so that the estimate has a closed form."""
        return self.is_graphical and all(
            nx.is_chordal(self._graph.subgraph(c)) for c in nx.connected_components(self._graph) if len(c) > 3
        )

    def junction_tree(self) -> tuple[JunctionTreeNode, ...]:
        """Cliques of a decomposable collection in an order with the running-intersection property; built once."""
        if not self.is_decomposable:
            problem = "the collection is not decomposable"
            raise refused("junction_tree", problem, "see is_graphical and is_decomposable", code="missing-part")
        return self._junction_tree

    @cached_property
    def _junction_tree(self) -> tuple[JunctionTreeNode, ...]:
        cliques = [frozenset(self.domain.indices(c)) for c in self.cliques]
        # A spanning tree of largest separators has the running-intersection property.
        tree: nx.Graph[int] = nx.Graph()
        tree.add_nodes_from(range(len(cliques)))
        for i, j in itertools.combinations(range(len(cliques)), 2):
            if shared := cliques[i] & cliques[j]:
                tree.add_edge(i, j, weight=len(shared))
        tree = nx.maximum_spanning_tree(tree)
        nodes: list[JunctionTreeNode] = []
        number_of: dict[int | None, int] = {}
        for component in sorted(map(sorted, nx.connected_components(tree))):
            for parent, child in [(None, component[0]), *nx.bfs_edges(tree, component[0])]:
                shared = frozenset[int]() if parent is None else cliques[child] & cliques[parent]
                number_of[child] = len(nodes)
                clique, separator = self._names(sorted(cliques[child])), self._names(sorted(shared))
                nodes.append(JunctionTreeNode(clique, separator, number_of.get(parent)))
        return tuple(nodes)

    def components(self) -> tuple[Edge, ...]:
        """Connected components of the interaction graph; a variable without neighbours is one of its own."""
        parts = sorted(map(sorted, nx.connected_components(self._graph)))
        return tuple(self._names(part) for part in parts)

    def blocks(self) -> tuple[Edge, ...]:
        """Maximal edges, then single variables that occur in no edge: units that a sampler updates as a whole."""
        covered = {i for e in self.edge_indices for i in e}
        return self.maximal_edges + tuple((n,) for i, n in enumerate(self.domain.names) if i not in covered)

    def colouring(self) -> tuple[Edge, ...]:
        """Classes of variables no two of which share an edge (greedy, largest degree first)."""
        classes: dict[int, list[int]] = {}
        for index, colour in sorted(nx.greedy_color(self._graph, strategy="largest_first").items()):
            classes.setdefault(colour, []).append(index)
        return tuple(self._names(classes[c]) for c in sorted(classes))

    def conditional_independences(self) -> tuple[tuple[str, str, Edge], ...]:
        """Triples (a, b, given) of variables that no edge joins, with a smallest set that separates them."""
        triples: list[tuple[str, str, Edge]] = []
        for a, b in itertools.combinations(range(len(self.domain)), 2):
            if not self._graph.has_edge(a, b):
                joined = nx.has_path(self._graph, a, b)
                given = nx.minimum_node_cut(self._graph, a, b) if joined else set[int]()
                triples.append((self.domain.names[a], self.domain.names[b], self._names(sorted(given))))
        return tuple(triples)

    def project(self, names: Iterable[str]) -> InteractionHypergraph:
        """The edges inside a set of variables, over the projected domain."""
        domain = self.domain.project(names)
        inside = [e for e in self.edges if all(n in domain for n in e)]
        return InteractionHypergraph(domain, inside, hierarchical=self.is_hierarchical, coding=self.coding)

    def restrict(self, evidence: Iterable[str]) -> InteractionHypergraph:
        """The structure that is left when some variables are fixed: every edge less those variables."""
        fixed = set(self._names(self.domain.indices(evidence)))
        domain = Domain(v for v in self.domain if v.name not in fixed)
        left = {tuple(n for n in e if n not in fixed) for e in self.edges}
        return InteractionHypergraph(domain, left - {()}, hierarchical=self.is_hierarchical, coding=self.coding)

    def to_json(self) -> dict[str, Any]:
        """JSON-ready description with the domain and a ``coding`` of "corner", inverse of :meth:`from_json`."""
        entries = {"domain": self.domain.to_json(), "edges": [list(e) for e in self.edges]}
        return entries | ({"coding": "corner"} if self.coding == "corner" else {})

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> InteractionHypergraph:
        """Rebuild a collection from :meth:`to_json`; InputError for anything else."""
        wanted = "an object with domain and edges"
        if not isinstance(value, Mapping):
            raise unexpected("hypergraph", wanted, value, code="wrong-type")
        for key in ("domain", "edges"):
            if key not in value:
                raise unexpected("hypergraph", f"{wanted}, {key!r} is missing", code="missing-part")
        # What a file may say wrong is refused by name.
        named = value.get("coding", "balanced")
        if not isinstance(value["edges"], list | tuple) or not {*map(type, value["edges"])} <= {list, tuple}:
            raise unexpected("hypergraph", f"{wanted}, the edges a list of lists of names", code="wrong-type")
        check_choice(named, ("balanced", "corner", "free"), "coding")  # model files say that of theta
        coding: FamilyCoding = "corner" if named == "corner" else "balanced"
        return cls(Domain.from_json(value["domain"]), value["edges"], hierarchical=False, coding=coding)


def _by_size(edge: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
    """The order of edges."""
    return len(edge), edge


def _facets(edge: tuple[int, ...]) -> Iterable[tuple[int, ...]]:
    """Non-empty subsets with one element fewer."""
    return itertools.combinations(edge, len(edge) - 1) if len(edge) > 1 else ()


def _slices(edges: Sequence[Edge], sizes: Sequence[int]) -> dict[Edge, slice]:
    """Consecutive slices of the given sizes."""
    ends = list(itertools.accumulate(sizes))
    return {edge: slice(end - size, end) for edge, size, end in zip(edges, sizes, ends, strict=True)}


# Positions of table entries selected by joint states.


def row_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides in entries."""
    return tuple(math.prod(shape[j + 1 :]) for j in range(len(shape)))


def check_tables(hypergraph: InteractionHypergraph) -> None:
    """Refuse tables of more than 2^27 entries, or of a variable of more than 2^13 levels, before they are made.

    Example:
        >>> from pyro_hoim import Domain
        >>> check_tables(InteractionHypergraph.saturated(Domain.from_cardinalities([2] * 4)))
        >>> check_tables(InteractionHypergraph.saturated(Domain.from_cardinalities([8193])))
        Traceback (most recent call last):
            ...
        pyro_hoim.errors.IntractableError: variable 'x0': it has 8,193 levels, more than the budget of ...
    """
    hint = "use smaller interactions or fewer levels"
    what = "its interaction tables have"
    check_size(hypergraph.num_terms, MAX_ENTRIES, "entries", "hypergraph", hint, what)
    for variable in hypergraph.domain:
        if variable.cardinality > MAX_LEVELS and hypergraph.incident[hypergraph.domain.index(variable.name)]:
            hint, where = "merge rare levels, or leave it out", f"variable {variable.name!r}"
            check_size(variable.cardinality, MAX_LEVELS, "levels", where, hint)


def check_codes(x: torch.Tensor, domain: Domain, argument: str = "x", columns: list[int] | None = None) -> torch.Tensor:
    """Codes as a long tensor (*sample, d), refused unless every one is a level of its variable, where that can be seen.

    ``columns`` are the positions that are read; the others may hold anything and come back as they are (truncated).
    """
    check_type(x, torch.Tensor, argument, "a tensor of codes")
    if x.dtype == torch.bool or x.is_complex():
        raise wrong_type(argument, "whole-number codes", received=f"dtype {x.dtype}")
    check_shape(x, (len(domain),), argument)
    # Only the columns that are read must be levels.
    codes = x.long()
    if is_hidden(x):
        return codes
    read, given = (codes, x) if columns is None else (codes[..., columns], x[..., columns])
    cards = torch.tensor(domain.cardinalities, device=x.device)
    wrong = (read < 0) | (read >= (cards if columns is None else cards[columns]))
    if x.is_floating_point():
        wrong = wrong | (read != given)
    if bool(wrong.any()):
        where = tuple(int(i) for i in wrong.nonzero()[0])
        position = where[-1] if columns is None else columns[where[-1]]
        variable = domain.variables[position]
        expected = f"codes from 0 to {variable.cardinality - 1} for variable {variable.name!r}"
        raise out_of_range(argument, expected, received=f"{given[where].item()} at index {(*where[:-1], position)}")
    return codes


def evidence_codes(
    domain: Domain, evidence: Mapping[str, Any], batch_shape: Sequence[int]
) -> tuple[dict[str, int | torch.Tensor], torch.Size]:
    """Codes of fixed variables, and the shape of them all and the batch together.

    A label or code gives a number, a tensor with dimensions a long tensor, which must broadcast with the batch.
    """
    check_type(evidence, Mapping, "evidence", "a mapping from names to labels or codes")
    tensors = {name: value for name, value in evidence.items() if isinstance(value, torch.Tensor) and value.ndim}
    codes: dict[str, int | torch.Tensor] = dict(
        domain.encode_state({name: value for name, value in evidence.items() if name not in tensors})
    )
    shape = torch.Size(batch_shape)
    for name, value in tensors.items():
        codes[name] = check_codes(value[..., None], domain.project([name]), f"evidence of {name!r}").squeeze(-1)
        try:
            shape = broadcast_shapes(shape, value.shape)
        except RuntimeError:
            expected = f"a shape that broadcasts with {tuple(shape)}, the batch shape and the evidence before it"
            argument, received = f"evidence of {name!r}", tuple(value.shape)
            raise unexpected(argument, expected, received=received, code="wrong-shape") from None
    return codes, shape


def gather_slices(table: torch.Tensor, num_batch: int, codes: Sequence[torch.Tensor | None]) -> torch.Tensor:
    """Slices of tables (*batch, *axes) at codes of some axes, broadcast with the batch; None for an axis that stays."""
    batch, sizes = table.shape[:num_batch], table.shape[num_batch:]
    fixed = {axis: code.to(table.device) for axis, code in enumerate(codes) if code is not None}
    free = [axis for axis, code in enumerate(codes) if code is None]
    num_free, num_fixed = math.prod(sizes[axis] for axis in free), math.prod(sizes[axis] for axis in fixed)
    if not fixed:
        return table.reshape(*batch, num_free)
    order = [*range(num_batch), *(num_batch + axis for axis in (*fixed, *free))]
    flat = table.permute(order).reshape(batch.numel() * num_fixed, num_free)
    index = torch.arange(batch.numel(), device=table.device).reshape(batch)
    for axis, code in fixed.items():
        index = index * sizes[axis] + code
    return flat.index_select(0, index.reshape(-1)).reshape(*index.shape, num_free)


_KEPT_BLOCK_ENTRIES = 2**16
_KEPT_BLOCKS = 1024


class _Layout(NamedTuple):
    """Position of a cell as ``offsets + sum_j strides[j] * codes[variables[j]]``, per hyperedge."""

    offsets: torch.Tensor
    variables: list[torch.Tensor]
    strides: list[torch.Tensor]

    def __call__(self, codes: torch.Tensor) -> torch.Tensor:
        index = self.offsets.expand(*codes.shape[:-1], len(self.offsets))
        for variable, stride in zip(self.variables, self.strides, strict=True):
            index = index + codes.index_select(-1, variable) * stride
        return index


class CellIndex:
    """Flat position, in the layout of tables, of the cell that a state selects in every hyperedge."""

    def __init__(self, hypergraph: InteractionHypergraph) -> None:
        self._cardinalities = hypergraph.domain.cardinalities
        self._edges = [
            (where.start, members, row_strides(shape))
            for where, members, shape in zip(
                hypergraph.term_slices.values(), hypergraph.edge_indices, hypergraph.edge_shapes, strict=True
            )
        ]
        self._layouts: dict[torch.device, _Layout] = {}
        self._blocks: dict[tuple[tuple[int, ...], torch.device], tuple[_Layout, torch.Tensor]] = {}

    @staticmethod
    @plain_mode()
    def _layout(
        edges: list[tuple[int, tuple[int, ...], tuple[int, ...]]], fixed: set[int], device: torch.device
    ) -> _Layout:
        """Layout of some hyperedges, leaving out the contribution of some variables."""
        axes = [
            [(i, n) for i, n in zip(members, strides, strict=True) if i not in fixed] for _, members, strides in edges
        ]
        depth = max((len(a) for a in axes), default=0)
        padded = [a + [(0, 0)] * (depth - len(a)) for a in axes]  # stride zero adds nothing
        return _Layout(
            torch.tensor([start for start, _, _ in edges], dtype=torch.long, device=device),
            [torch.tensor([a[j][0] for a in padded], dtype=torch.long, device=device) for j in range(depth)],
            [torch.tensor([a[j][1] for a in padded], dtype=torch.long, device=device) for j in range(depth)],
        )

    def flat(self, codes: torch.Tensor) -> torch.Tensor:
        """Positions (*sample, num_edges) for codes (*sample, d); the codes are not checked."""
        layout = self._layouts.get(codes.device)
        if layout is None:
            layout = self._layouts[codes.device] = self._layout(self._edges, set(), codes.device)
        return layout(codes)

    def block(self, codes: torch.Tensor, positions: tuple[int, ...]) -> tuple[torch.Tensor, torch.Tensor]:
        """Positions of the cells of the hyperedges that meet a block, for every state of the block.

        The part set by the variables outside the block, (*sample, edges), and the part added by every state of the
        block in row-major order, (states, edges).
        """
        key = (positions, codes.device)
        cells = self._blocks.get(key)
        if cells is None:
            inside = set(positions)
            edges = [edge for edge in self._edges if inside.intersection(edge[1])]
            layout = self._layout(edges, inside, codes.device)
            with plain_mode():
                strides = [dict(zip(members, steps, strict=True)) for _, members, steps in edges]
                weights = np.array([[s.get(i, 0) for s in strides] for i in positions], dtype=np.int64)
                shape = [self._cardinalities[i] for i in positions]
                states = np.indices(shape).reshape(len(shape), math.prod(shape)).T
                added = torch.from_numpy(states @ weights.reshape(len(shape), len(edges))).to(codes.device)
            cells = layout, added
            if added.numel() <= _KEPT_BLOCK_ENTRIES and len(self._blocks) < _KEPT_BLOCKS:
                self._blocks[key] = cells
        layout, added = cells
        return layout(codes), added


@lru_cache(maxsize=64)
@plain_mode()
def cell_index(hypergraph: InteractionHypergraph) -> CellIndex:
    """The :class:`CellIndex` of a hypergraph; equal hypergraphs share one."""
    return CellIndex(hypergraph)
