"""Visible and hidden binary variables and the edges between them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import torch

from .._modes import plain_mode
from ..budgets import MAX_SETS, check_size
from ..errors import (
    check_names,
    check_type,
    check_unique,
    check_whole,
    conflict,
    is_whole,
    out_of_range,
    refused,
    unexpected,
)
from ..schema import Domain, Variable
from ..structure.hypergraph import InteractionHypergraph
from .layers import PairGraph

__all__ = ["MachineStructure", "check_edges"]

_FEWER = "use fewer hidden units or columns"
_KEPT = 2**14  # edges of a structure that is remembered


@dataclass(frozen=True)
class MachineStructure:
    r"""The graph of a Boltzmann machine: n visible and m hidden variables of two levels each, and edges between any.

    Parameters are in corner coding, one bias a variable and one weight an edge, so that each pair counts once:

    .. math:: \log q(x) = \sum_i b_i x_i + \sum_{\{i,j\}} w_{ij} x_i x_j, \qquad x = (v, h) \in \{0, 1\}^{n+m}

    theta is flat: visible biases, hidden biases, then weights by the positions of their ends, the visible variables
    first. That is the corner coding of :attr:`hypergraph`, so that the joint law is an ordinary pairwise log-linear
    one.

    Args:
        domain: the visible variables; code 1 is "on".
        hidden: number of hidden units, then called ``h1``, ``h2``, ..., or their names.
        edges: pairs of names of any two variables.

    Raises:
        InputError: a visible variable without exactly two levels; a hidden unit with the name of another variable; an
            edge that is no pair, or that comes twice.
        UnknownNameError: an edge with an unknown name.

    References:
        Paper 4, equations (1) to (3); (1) counts every pair twice as printed, here it counts once.

    Example:
        >>> structure = MachineStructure(Domain.from_cardinalities({"a": 2, "b": 2}), 1, [("a", "b"), ("b", "h1")])
        >>> structure.hypergraph.edges
        (('a',), ('b',), ('h1',), ('a', 'b'), ('b', 'h1'))
    """

    domain: Domain
    hidden: Any = 0
    edges: Any = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "hidden", _hidden_names(self.domain, self.hidden))
        object.__setattr__(self, "edges", self._sorted(self.edges))

    @classmethod
    def restricted(cls, domain: Domain, hidden: int | Sequence[str]) -> MachineStructure:
        """Every visible variable joined to every hidden unit, and no others."""
        check_type(domain, Domain, "domain")
        if is_whole(hidden) and hidden <= MAX_SETS:
            check_edges(len(domain), hidden)
        names = _hidden_names(domain, hidden)
        return (_restricted if len(domain) * len(names) <= _KEPT else _restricted.__wrapped__)(domain, names)

    @classmethod
    def layered(cls, domain: Domain, *sizes: int) -> MachineStructure:
        """Layers of hidden units, each joined to the layer before it, the first to the visible variables."""
        names = _hidden_names(domain, sum(check_whole(size, "sizes", 0) for size in sizes))
        check_edges(len(domain), *sizes)
        ends = list(itertools.accumulate(sizes, initial=0))
        layers = [domain.names, *(names[a:b] for a, b in itertools.pairwise(ends))]
        pairs = [pair for low, high in itertools.pairwise(layers) for pair in itertools.product(low, high)]
        return cls(domain, names, pairs)

    def _sorted(self, edges: Iterable[Sequence[str]]) -> tuple[tuple[str, str], ...]:
        names = self.names
        place = {name: i for i, name in enumerate(names)}
        found: list[tuple[int, int]] = []
        check_type(edges, Iterable, "edges", "pairs of names")
        for edge in edges:
            if not isinstance(edge, Sequence) or isinstance(edge, str) or len(edge) != 2:
                raise unexpected("edges", "pairs of names", edge)
            if not (edge[0] in place and edge[1] in place):
                check_names(edge, names, "edges")
            first, second = sorted(place[name] for name in edge)
            if first == second:
                raise unexpected("edges", "pairs of two variables", tuple(edge))
            found.append((first, second))
        if len(set(found)) < len(found):
            twice = next(pair for k, pair in enumerate(found) if pair in found[:k])
            raise refused("edges", f"{tuple(names[i] for i in twice)!r} comes twice; each pair counts once")
        return tuple((names[i], names[j]) for i, j in sorted(found))

    @property
    def names(self) -> tuple[str, ...]:
        """All variables, the visible ones first."""
        return (*self.domain.names, *self.hidden)

    @property
    def num_visible(self) -> int:
        """Visible variables."""
        return len(self.domain)

    @property
    def num_hidden(self) -> int:
        """Hidden units."""
        return len(self.hidden)

    @property
    def num_parameters(self) -> int:
        """Length of theta."""
        return len(self.names) + len(self.edges)

    @cached_property
    def is_restricted(self) -> bool:
        """Whether the edges are those of a restricted machine."""
        return self.edges == tuple(itertools.product(self.domain.names, self.hidden))

    @cached_property
    def graph(self) -> PairGraph:
        """All variables with their edges, by position."""
        place = {name: i for i, name in enumerate(self.names)}
        return PairGraph(self.names, tuple((place[a], place[b]) for a, b in self.edges))

    @cached_property
    def hidden_graph(self) -> PairGraph:
        """The hidden units with the edges among them."""
        n = self.num_visible
        return PairGraph(self.hidden, tuple((i - n, j - n) for i, j in self.graph.pairs if i >= n))

    @cached_property
    @plain_mode()
    def places(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Positions in theta of the weights among visible, between visible and hidden, and among hidden variables."""
        n, d = self.num_visible, len(self.names)
        kinds = [(i >= n) + (j >= n) for i, j in self.graph.pairs]
        first, second, third = (torch.tensor([d + k for k, kind in enumerate(kinds) if kind == s]) for s in range(3))
        return first.long(), second.long(), third.long()

    @cached_property
    def hypergraph(self) -> InteractionHypergraph:
        """Collection of the joint law: all single variables and the edges."""
        domain = Domain([*self.domain, *(Variable(name, ("0", "1")) for name in self.hidden)])
        return InteractionHypergraph(domain, [*((name,) for name in self.names), *self.edges])

    def theta_of(self, values: Mapping[str | tuple[str, str], float | torch.Tensor]) -> torch.Tensor:
        """Theta (*batch, num_parameters) from biases by name and weights by pair of names; others are zero.

        Raises:
            InputError: an entry that is neither a variable nor an edge.
        """
        places = {**{name: i for i, name in enumerate(self.names)}}
        at: dict[Any, int] = {**places, **{edge: len(places) + k for k, edge in enumerate(self.edges)}}
        tensors = {key: torch.as_tensor(value) for key, value in values.items()}
        dtype = next((t.dtype for t in tensors.values() if t.is_floating_point()), torch.get_default_dtype())
        columns = [torch.zeros((), dtype=dtype)] * self.num_parameters
        for key, value in tensors.items():
            place = at.get(key, at.get(key[::-1] if isinstance(key, tuple) else key))
            if place is None:
                raise refused("values", f"{key!r} is neither a variable nor an edge", code="unknown-name")
            columns[place] = value.to(dtype)
        return torch.stack(torch.broadcast_tensors(*columns), -1) if columns else torch.zeros(0, dtype=dtype)

    def __repr__(self) -> str:
        return f"MachineStructure({self.num_visible} visible, {self.num_hidden} hidden, {len(self.edges)} edges)"


def _hidden_names(domain: Domain, hidden: int | Sequence[str]) -> tuple[str, ...]:
    """Names of hidden units; refused where they are those of visible variables."""
    check_type(domain, Domain, "domain")
    for variable in domain:
        if not variable.is_finite or variable.cardinality != 2:
            levels = f"{variable.cardinality} levels" if variable.is_finite else f"kind {variable.kind}"
            hint = "a Boltzmann machine has binary variables; code others by columns of two levels"
            raise out_of_range(f"variable {variable.name!r}", "exactly two levels", hint=hint, received=levels)
    if isinstance(hidden, str):
        raise unexpected("hidden", "a number or names", hidden, code="wrong-type")
    if isinstance(hidden, Sequence):
        names = tuple(hidden)
        for name in names:
            if not isinstance(name, str) or not name:
                raise unexpected("hidden", "names that are non-empty strings", name, code="wrong-type")
        check_unique(names, "hidden")
    else:
        check_size(check_whole(hidden, "hidden", 0), MAX_SETS, "units", "hidden", _FEWER, "there are")
        names = tuple(f"h{k + 1}" for k in range(hidden))
    for name in names:
        if name in domain:
            hint = "give the hidden units names of their own, hidden=[...]"
            raise conflict("hidden", f"the hidden unit {name!r} has the name of a visible variable", hint)
    return names


def check_edges(*sizes: int) -> None:
    """Refuse layers of too many edges, each joined to the next, before their units have names.

    Example:
        >>> check_edges(16, 10**6)
        Traceback (most recent call last):
            ...
        pyro_hoim.errors.IntractableError: hidden: they have 16,000,000 edges, more than the budget ...
    """
    edges = sum(low * high for low, high in itertools.pairwise(sizes))
    check_size(edges, MAX_SETS, "edges", "hidden", _FEWER, "they have")


@lru_cache(maxsize=64)
def _restricted(domain: Domain, hidden: tuple[str, ...]) -> MachineStructure:
    check_edges(len(domain), len(hidden))
    return MachineStructure(domain, hidden, tuple(itertools.product(domain.names, hidden)))
