r"""A collection of interactions whose tables lie in a linear subspace."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from ...checks import check_exact_shape
from ...data.order import Order
from ...errors import check_type, refused
from ...structure.hypergraph import Edge, InteractionHypergraph

_RANK_TOLERANCE = 1e-9


@dataclass(frozen=True, eq=False)
class RestrictedInteractions:
    r"""Interactions whose theta is a linear function of fewer coefficients.

    .. math:: \theta = D \beta

    :func:`~pyro_hoim.log_linear.restricted_interactions` makes them from a formula such as ``linear(a):linear(b)``, and
    :func:`~pyro_hoim.log_linear.fit` takes them in the place of a collection. Columns of D that depend on earlier ones
    are left out.

    Args:
        hypergraph: the interactions, closed under subsets.
        terms: of the coefficients, such as "linear(a):b".
        levels: of the coefficients, such as "2"; empty for one of all levels.
        directions: D, in the free coding.
        orders: by variable the order of the levels that its scores go by.
        comparisons: what each coefficient compares, in words, such as "per step of a, b=2 vs 1"; by default its level.

    Attributes:
        hypergraph, terms, levels, directions, orders, comparisons: as given, without dependent columns.

    Shape:
        directions (num_parameters of the hypergraph, number of coefficients).

    Raises:
        InputError: a collection that is not hierarchical, or another shape.
    """

    hypergraph: InteractionHypergraph
    terms: tuple[str, ...]
    levels: tuple[str, ...]
    directions: np.ndarray
    orders: Mapping[str, Order] = field(default_factory=dict[str, Order])
    comparisons: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_type(self.hypergraph, InteractionHypergraph, "hypergraph")
        if not self.hypergraph.is_hierarchical:
            raise refused("hypergraph", "expected a collection closed under subsets", "use its closure()", "no-method")
        directions = np.asarray(self.directions, dtype=float)
        check_exact_shape(directions, (self.hypergraph.num_parameters, len(self.terms)), "directions")
        independent, basis = list[int](), np.zeros((len(directions), 0))
        for column, direction in enumerate(directions.T):
            rest = direction - basis @ (basis.T @ direction)
            rest -= basis @ (basis.T @ rest)
            length = float(np.linalg.norm(rest))
            if length > _RANK_TOLERANCE * max(float(np.linalg.norm(direction)), 1e-300):
                independent.append(column)
                basis = np.column_stack([basis, rest / length])
        words = self.comparisons or self.levels
        object.__setattr__(self, "comparisons", tuple(words[i] for i in independent))
        object.__setattr__(self, "terms", tuple(self.terms[i] for i in independent))
        object.__setattr__(self, "levels", tuple(self.levels[i] for i in independent))
        object.__setattr__(self, "directions", directions[:, independent])

    def __repr__(self) -> str:
        free, whole = self.num_parameters, self.hypergraph.num_parameters
        return f"RestrictedInteractions({free} coefficients of {whole} parameters of {self.hypergraph!r})"

    @classmethod
    def whole(cls, hypergraph: InteractionHypergraph) -> RestrictedInteractions:
        """All of theta of a collection, as if it were restricted; the coefficients are its coordinates."""
        size = hypergraph.num_parameters
        return cls(hypergraph, ("theta",) * size, tuple(map(str, range(size))), np.eye(size))

    @property
    def num_parameters(self) -> int:
        """Number of free coefficients."""
        return self.directions.shape[1]

    @cached_property
    def basis(self) -> np.ndarray:
        """Orthonormal basis of the subspace (num_parameters of the hypergraph, number of coefficients)."""
        return np.linalg.qr(self.directions)[0]

    @cached_property
    def readings(self) -> np.ndarray:
        """Linear functions of theta (number of coefficients, num_parameters) that give the coefficients."""
        return np.linalg.pinv(self.directions)

    def embedded(self, other: RestrictedInteractions) -> np.ndarray:
        """Basis of another subspace, over some of these interactions, in this theta (num_parameters, its size)."""
        result = np.zeros((self.hypergraph.num_parameters, other.num_parameters))
        for edge, where in other.hypergraph.parameter_slices.items():
            result[self.hypergraph.parameter_slices[edge]] = other.basis[where]
        return result

    def holds(self, other: RestrictedInteractions) -> bool:
        """Whether every model of the other, over the same variables, is one of these."""
        if not set(other.hypergraph.edges) <= set(self.hypergraph.edges):
            return False
        basis = self.embedded(other)
        return bool(np.abs(basis - self.basis @ (self.basis.T @ basis)).max(initial=0.0) < 1e-8)

    def belongs(self, edges: Iterable[Edge]) -> np.ndarray:
        """Mask of the coefficients that have a part in one of the interactions."""
        rows = np.zeros(len(self.directions), dtype=bool)
        for edge in edges:
            rows[self.hypergraph.parameter_slices[edge]] = True
        return (self.directions[rows] != 0).any(0)

    def without(self, edges: Iterable[Edge], left: InteractionHypergraph) -> RestrictedInteractions:
        """What is left of the collection, without the coefficients of removed interactions."""
        remaining = ~self.belongs(edges)
        slices = self.hypergraph.parameter_slices
        rows = [np.arange(slices[edge].start, slices[edge].stop) for edge in left.edges]
        where, columns = np.concatenate([np.zeros(0, dtype=np.int64), *rows]), np.flatnonzero(remaining)
        terms, levels, words = (tuple(of[i] for i in columns) for of in (self.terms, self.levels, self.comparisons))
        return RestrictedInteractions(left, terms, levels, self.directions[where][:, columns], self.orders, words)


Interactions = InteractionHypergraph | RestrictedInteractions
"""What a log-linear model may be fitted with."""


def graph_of(interactions: Interactions) -> InteractionHypergraph:
    """The sets of variables that interact."""
    return interactions.hypergraph if isinstance(interactions, RestrictedInteractions) else interactions


def is_within(small: Interactions, big: Interactions) -> bool:
    """Whether every model of the first, over the same variables, is one of the second."""
    if isinstance(small, InteractionHypergraph) and isinstance(big, InteractionHypergraph):
        return set(small.edges) <= set(big.edges)
    lesser, greater = (
        inner if isinstance(inner, RestrictedInteractions) else RestrictedInteractions.whole(inner)
        for inner in (small, big)
    )
    return greater.holds(lesser)
