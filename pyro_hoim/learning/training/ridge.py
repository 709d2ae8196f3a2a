"""A ridge penalty with a strength of its own for every interaction."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ...errors import InputError, InputTypeError
from ...structure.hypergraph import Edge, InteractionHypergraph

__all__ = ["InteractionRidge"]


@dataclass(frozen=True)
class InteractionRidge:
    r"""Squared norms of balanced interaction tables, each with its own strength; added to the loss of *all* rows.

    .. math:: \mathrm{penalty}(\theta) = \tfrac12 \sum_{S \in \mathcal I} \lambda_S \, \|\theta^S\|^2

    The free basis is orthonormal, so the penalty is the same function of balanced tables and of free coordinates, and
    every method takes either, by their length. It is a normal prior with standard deviation
    :math:`\lambda_S^{-1/2}` for every free coordinate of S. The strength of an interaction is that in ``by_edge``, else
    that of its number of variables in ``by_order``, else ``default``. It is a smooth penalty for
    :func:`~pyro_hoim.learning.fit`, too.

    Args:
        default: strength :math:`\lambda` of interactions that the other arguments do not name; 0 is no penalty.
        by_order: strengths by number of variables.
        by_edge: strengths by set of variables; the order of the names is of no account.

    Raises:
        InputError: a strength that is not finite and non-negative, an order below 1, an empty set of variables, one
            with a repeated name, or the same set twice.
        InputTypeError: an order that is no whole number, or a set of variables that is a string.

    Example:
        >>> ridge = InteractionRidge(1.0, by_order={1: 0.0}, by_edge={("b", "a"): 5.0})
        >>> ridge.strength(("a",)), ridge.strength(("a", "b")), ridge.strength(("a", "c"))
        (0.0, 5.0, 1.0)
    """

    default: float = 0.0
    by_order: Mapping[int, float] = field(default_factory=dict[int, float])
    by_edge: Mapping[Edge, float] = field(default_factory=dict[Edge, float])

    def __post_init__(self) -> None:
        _check_strength(self.default, "default")
        orders: dict[int, float] = {}
        for order, strength in self.by_order.items():
            if isinstance(order, bool) or not isinstance(order, int):
                raise InputTypeError(f"by_order: expected whole numbers as keys, received {order!r}")
            if order < 1:
                raise InputError(f"by_order: expected numbers of variables from 1, received {order}")
            orders[order] = _check_strength(strength, f"by_order[{order}]")
        edges: dict[Edge, float] = {}
        seen: set[frozenset[str]] = set()
        for edge, strength in self.by_edge.items():
            if isinstance(edge, str):
                raise InputTypeError(f"by_edge: expected sets of names as keys, received {edge!r}; write ({edge!r},)")
            names = tuple(edge)
            if not names or len(set(names)) != len(names) or frozenset(names) in seen:
                raise InputError(f"by_edge: expected distinct, non-empty sets of distinct names, received {names!r}")
            seen.add(frozenset(names))
            edges[names] = _check_strength(strength, f"by_edge[{names!r}]")
        object.__setattr__(self, "default", float(self.default))
        object.__setattr__(self, "by_order", orders)
        object.__setattr__(self, "by_edge", edges)

    def __hash__(self) -> int:
        return hash((self.default, frozenset(self.by_order.items()), frozenset(self._by_set.items())))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, InteractionRidge):
            return NotImplemented
        return (self.default, self.by_order, self._by_set) == (other.default, other.by_order, other._by_set)

    @cached_property
    def _by_set(self) -> dict[frozenset[str], float]:
        return {frozenset(edge): strength for edge, strength in self.by_edge.items()}

    @property
    def is_zero(self) -> bool:
        """Whether every strength is zero."""
        return not (self.default or any(self.by_order.values()) or any(self.by_edge.values()))

    def strength(self, edge: Iterable[str]) -> float:
        r"""The strength :math:`\lambda_S` of a set of variables."""
        names = frozenset((edge,) if isinstance(edge, str) else edge)
        found = self._by_set.get(names)
        return self.by_order.get(len(names), self.default) if found is None else found

    def terms(self, hypergraph: InteractionHypergraph) -> np.ndarray:
        """The strength of every entry of the flat tables (num_terms,), float64."""
        return self._spread(hypergraph, [math.prod(shape) for shape in hypergraph.edge_shapes])

    def parameters(self, hypergraph: InteractionHypergraph) -> np.ndarray:
        """The strength of every free coordinate (num_parameters,), float64."""
        return self._spread(hypergraph, [math.prod(n - 1 for n in shape) for shape in hypergraph.edge_shapes])

    def _spread(self, hypergraph: InteractionHypergraph, sizes: list[int]) -> np.ndarray:
        return np.repeat(np.array([self.strength(edge) for edge in hypergraph.edges], dtype=np.float64), sizes)

    def _strengths(self, theta: np.ndarray, hypergraph: InteractionHypergraph) -> np.ndarray:
        """Strengths of balanced tables or free coordinates; a table has more entries than coordinates."""
        if theta.shape == (hypergraph.num_terms,):
            return self.terms(hypergraph)
        if theta.shape == (hypergraph.num_parameters,):
            return self.parameters(hypergraph)
        raise InputError(
            f"theta: expected balanced tables ({hypergraph.num_terms},) or free coordinates "
            f"({hypergraph.num_parameters},), received shape {tuple(theta.shape)}"
        )

    def value(self, theta: np.ndarray, hypergraph: InteractionHypergraph) -> float:
        """The penalty in nats, of balanced tables (num_terms,) or free coordinates (num_parameters,).

        Raises:
            InputError: another length.
        """
        return 0.5 * float(self._strengths(theta, hypergraph) @ np.square(theta))

    def gradient(self, theta: np.ndarray, hypergraph: InteractionHypergraph) -> np.ndarray:
        """Gradient in the coordinates given, balanced tables or free coordinates.

        Raises:
            InputError: another length.
        """
        return self._strengths(theta, hypergraph) * theta

    def hessian_diagonal(self, theta: np.ndarray, hypergraph: InteractionHypergraph) -> np.ndarray:
        """Diagonal of the Hessian, the strengths.

        Raises:
            InputError: another length.
        """
        return self._strengths(theta, hypergraph)

    def prox(self, theta: np.ndarray, step: float, hypergraph: InteractionHypergraph) -> np.ndarray:
        """Minimiser of half the squared distance from theta plus ``step`` times the penalty.

        Raises:
            InputError: another length.
        """
        return theta / (1 + step * self._strengths(theta, hypergraph))

    def scaled(self, factor: float) -> InteractionRidge:
        """The penalty with every strength multiplied.

        Raises:
            InputError: a factor that is not finite and non-negative.
        """
        _check_strength(factor, "factor")
        return InteractionRidge(
            self.default * factor,
            {order: strength * factor for order, strength in self.by_order.items()},
            {edge: strength * factor for edge, strength in self.by_edge.items()},
        )

    def to_json(self) -> dict[str, Any]:
        """JSON-ready description, inverse of :meth:`from_json`."""
        return {
            "default": self.default,
            "by_order": [[order, strength] for order, strength in self.by_order.items()],
            "by_edge": [[list(edge), strength] for edge, strength in self.by_edge.items()],
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> InteractionRidge:
        """Rebuild a penalty from :meth:`to_json`.

        Raises:
            InputError: not such a description.
        """
        try:
            orders = dict(value["by_order"])
            edges = {tuple(edge): strength for edge, strength in value["by_edge"]}
            default = value["default"]
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(
                f"ridge: expected an object with default, by_order and by_edge, received {value!r}"
            ) from error
        return cls(default, orders, edges)


def _check_strength(strength: float, argument: str) -> float:
    if isinstance(strength, bool) or not isinstance(strength, int | float) or not 0 <= strength < math.inf:
        raise InputError(f"{argument}: expected a finite number from 0, received {strength!r}")
    return float(strength)
