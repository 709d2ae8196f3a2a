"""A ridge penalty with a strength of its own for every interaction."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, lru_cache
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
import torch
from numpy.typing import NDArray

from ...errors import check_not_negative, is_whole, out_of_range, refused, unexpected, wrong_type
from ...schema import Variable
from ...structure.hypergraph import Edge, InteractionHypergraph
from ..coding import parametrization
from .tables import edge_axes

__all__ = ["InteractionRidge", "ar1_precision", "contrast_spectrum"]

Floats = NDArray[np.float64]


class _Plan(NamedTuple):
    """What a ridge is on one collection: strengths (num_terms,) and (num_parameters,), and the smooth axes."""

    terms: Floats
    parameters: Floats
    axes: NDArray[np.int64]


_SHOWN = 3  # sets of variables in a repr


@dataclass(frozen=True)
class InteractionRidge:
    r"""Squared norms of balanced interaction tables, each with its own strength; added to the loss of *all* rows.

    .. math:: \mathrm{penalty}(\theta) = \tfrac12 \sum_{S \in \mathcal I} \lambda_S \,
        (\theta^S)^\top K_S \, \theta^S, \qquad K_S = \bigotimes_{i \in S} K_i

    The free basis is orthonormal, so the penalty is the same function of balanced tables (num_terms,) and of free
    coordinates (num_parameters,), and every method takes either. Without smoothness every :math:`K_S` is the identity:
    a normal prior with standard deviation :math:`\lambda_S^{-1/2}`. With smoothness r the entries of neighbouring
    levels of an ordinal variable of three levels or more are tied: :math:`K_i` is the tridiagonal precision of a
    stationary first-order autoregression with correlation r and unit variance, :math:`(1 - r^2)^{-1}` times 1 (at the
    ends) or :math:`1 + r^2` on the diagonal and -r beside it; its Hessian is then not diagonal, and Newton's method,
    covariances and proximal maps refuse it. The strength of an interaction is that in ``by_edge``, else that of its
    number of variables in ``by_order``, else ``default``.

    Args:
        default: strength :math:`\lambda` of interactions that the other arguments do not name; 0 is no penalty.
        by_order: strengths by number of variables.
        by_edge: strengths by set of variables; the order of the names is of no account.
        smoothness: correlation r of neighbouring levels of ordinal variables, from 0 (none) to below 1.
        smooth_singles: whether the tables of single variables are smooth, too.

    Raises:
        InputError: a strength that is not finite and non-negative, an order below 1, an empty set of variables, one
            with a repeated name, the same set twice, a smoothness out of range, or parameters of another length.
        InputTypeError: an order that is no whole number, a set of variables that is a string, or ``smooth_singles``
            that is not True or False.

    References:
        Havard Rue and Leonhard Held, Gaussian Markov Random Fields, 2005, section 1.1.1.

    Example:
        >>> ridge = InteractionRidge(1.0, by_order={1: 0.0}, by_edge={("b", "a"): 5.0})
        >>> ridge.strength(("a",)), ridge.strength(("a", "b")), ridge.strength(("a", "c"))
        (0.0, 5.0, 1.0)
    """

    default: float = 0.0
    by_order: Mapping[int, float] = field(default_factory=dict[int, float])
    by_edge: Mapping[Edge, float] = field(default_factory=dict[Edge, float])
    smoothness: float = 0.0
    smooth_singles: bool = False

    def __post_init__(self) -> None:
        _check_strength(self.default, "default")
        orders: dict[int, float] = {}
        for order, strength in self.by_order.items():
            if not is_whole(order):
                raise wrong_type("by_order", "whole numbers as keys", received=repr(order))
            if order < 1:
                raise out_of_range("by_order", "numbers of variables from 1", received=order)
            orders[order] = _check_strength(strength, f"by_order[{order}]")
        edges: dict[Edge, float] = {}
        seen: set[frozenset[str]] = set()
        for edge, strength in self.by_edge.items():
            if isinstance(edge, str):
                raise wrong_type("by_edge", "sets of names as keys", hint=f"write ({edge!r},)", received=repr(edge))
            names = tuple(edge)
            if not names or len(set(names)) != len(names) or frozenset(names) in seen:
                raise unexpected("by_edge", "distinct, non-empty sets of distinct names", names)
            seen.add(frozenset(names))
            edges[names] = _check_strength(strength, f"by_edge[{names!r}]")
        if _check_strength(self.smoothness, "smoothness") >= 1:
            raise out_of_range("smoothness", "a correlation from 0 to below 1", self.smoothness)
        if not isinstance(self.smooth_singles, bool):
            raise wrong_type("smooth_singles", "True or False", received=repr(self.smooth_singles))
        object.__setattr__(self, "default", float(self.default))
        object.__setattr__(self, "by_order", orders)
        object.__setattr__(self, "by_edge", edges)
        object.__setattr__(self, "smoothness", float(self.smoothness))

    def __repr__(self) -> str:
        """The arguments that are none of the defaults; of many sets the first."""
        sets = [f"{edge!r}: {strength!r}" for edge, strength in islice(self.by_edge.items(), _SHOWN)]
        more = f", ... ({len(self.by_edge)} sets)" if len(self.by_edge) > _SHOWN else ""
        words = [
            f"default={self.default!r}" if self.default else "",
            f"by_order={self.by_order!r}" if self.by_order else "",
            f"by_edge={{{', '.join(sets)}{more}}}" if sets else "",
            f"smoothness={self.smoothness!r}" if self.smoothness else "",
            "smooth_singles=True" if self.smooth_singles else "",
        ]
        return f"{type(self).__name__}({', '.join(filter(None, words))})"

    def __getstate__(self) -> dict[str, Any]:
        return {entry.name: getattr(self, entry.name) for entry in fields(self)}  # nothing that is cached

    @cached_property
    def _content(self) -> tuple[object, ...]:
        """What makes two of them equal."""
        strengths = (self.default, frozenset(self.by_order.items()), frozenset(self._by_set.items()))
        return (*strengths, self.smoothness, self.smooth_singles)

    def __hash__(self) -> int:
        return hash(self._content)

    def __eq__(self, other: object) -> bool:
        return self._content == other._content if isinstance(other, InteractionRidge) else NotImplemented

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

    def is_smooth(self, edge: Edge, variable: Variable) -> bool:
        """Whether the precision of an interaction ties neighbouring levels of one of its variables."""
        is_tied = self.smoothness > 0 and (len(edge) > 1 or self.smooth_singles)
        return is_tied and variable.kind == "ordinal" and variable.cardinality > 2

    def is_diagonal(self, hypergraph: InteractionHypergraph) -> bool:
        """Whether no interaction of a collection is smooth along an axis: every precision is the identity."""
        return not len(_plan(self, hypergraph).axes)

    def terms(self, hypergraph: InteractionHypergraph) -> np.ndarray:
        """The strength of every entry of the flat tables (num_terms,), float64, without smoothness."""
        return _plan(self, hypergraph).terms.copy()

    def parameters(self, hypergraph: InteractionHypergraph) -> np.ndarray:
        """The strength of every free coordinate (num_parameters,), float64, without smoothness."""
        return _plan(self, hypergraph).parameters.copy()

    def _are_tables(self, theta: np.ndarray, hypergraph: InteractionHypergraph) -> bool:
        """Whether these are tables and not free coordinates; a table has more entries than coordinates."""
        if theta.shape == (hypergraph.num_terms,):
            return True
        if theta.shape == (hypergraph.num_parameters,):
            return False
        expected = f"balanced tables ({hypergraph.num_terms},) or free coordinates ({hypergraph.num_parameters},)"
        raise unexpected("theta", expected, received=f"shape {tuple(theta.shape)}", code="wrong-shape")

    def value(self, theta: np.ndarray, hypergraph: InteractionHypergraph) -> float:
        """The penalty in nats."""
        return 0.5 * float(theta @ self.gradient(theta, hypergraph))

    def gradient(self, theta: np.ndarray, hypergraph: InteractionHypergraph) -> np.ndarray:
        r"""Gradient in the coordinates given; of tables :math:`\lambda_S K_S \theta^S`, not balanced where smooth."""
        are_tables = self._are_tables(theta, hypergraph)
        plan = _plan(self, hypergraph)
        if not len(plan.axes):
            return (plan.terms if are_tables else plan.parameters) * theta
        from .dense.kernels import apply_precision

        codings = parametrization(hypergraph)
        if are_tables:
            tables = np.array(theta, dtype=np.float64)
        else:
            tables = codings.to_tables(torch.from_numpy(np.array(theta, dtype=np.float64)), "free").numpy()
        apply_precision(plan.axes, self.smoothness, tables)
        tables *= plan.terms
        return tables if are_tables else codings.free_statistics(torch.from_numpy(tables)).numpy()

    def hessian_diagonal(self, theta: np.ndarray, hypergraph: InteractionHypergraph) -> np.ndarray:  # noqa: ARG002
        """Diagonal of the Hessian in free coordinates, the strengths; refused where tables are smooth."""
        needed = "the diagonal Hessian that Newton's method and covariances need does not exist"
        return self._diagonal(hypergraph, f"{needed}; fit with method='lbfgs'").copy()

    def prox(self, theta: np.ndarray, step: float, hypergraph: InteractionHypergraph) -> np.ndarray:
        """Minimiser of half the squared distance from free coordinates plus ``step`` times the penalty."""
        return theta / (
            1 + step * self._diagonal(hypergraph, "its proximal map has no closed form; use method='lbfgs'")
        )

    def _diagonal(self, hypergraph: InteractionHypergraph, reason: str) -> np.ndarray:
        """Strengths of free coordinates, where they are all of the precision."""
        if not self.is_diagonal(hypergraph):
            problem = f"smoothness={self.smoothness:g} ties levels of ordinal variables, and {reason}"
            raise refused("penalty", problem, code="no-method")
        return _plan(self, hypergraph).parameters

    def updated(self, strengths: Mapping[Edge, float]) -> InteractionRidge:
        """The penalty with other strengths for some sets of variables."""
        found = {frozenset(edge): (edge, strength) for edge, strength in self.by_edge.items()}
        found.update((frozenset(edge), (edge, strength)) for edge, strength in strengths.items())
        return replace(self, by_edge=dict(found.values()))

    def to_json(self) -> dict[str, Any]:
        """JSON-ready description, inverse of :meth:`from_json`."""
        return {
            "default": self.default,
            "by_order": [[order, strength] for order, strength in self.by_order.items()],
            "by_edge": [[list(edge), strength] for edge, strength in self.by_edge.items()],
            "smoothness": self.smoothness,
            "smooth_singles": self.smooth_singles,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> InteractionRidge:
        """Inverse of :meth:`to_json`; InputError where the value is no such description."""
        try:
            orders = dict(value["by_order"])
            edges = {tuple(edge): strength for edge, strength in value["by_edge"]}
            default = value["default"]
            smoothness, smooth_singles = value.get("smoothness", 0.0), value.get("smooth_singles", False)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise unexpected("ridge", "an object with default, by_order and by_edge", value) from error
        return cls(default, orders, edges, smoothness, smooth_singles)


@lru_cache(maxsize=8)
def _plan(ridge: InteractionRidge, hypergraph: InteractionHypergraph) -> _Plan:
    """What a ridge is on one of the collections used last."""
    strengths = np.array([ridge.strength(edge) for edge in hypergraph.edges], dtype=np.float64)
    num_terms = [math.prod(shape) for shape in hypergraph.edge_shapes]
    num_free = [math.prod(n - 1 for n in shape) for shape in hypergraph.edge_shapes]
    smooth = [ridge.is_smooth(edge, hypergraph.domain[name]) for edge in hypergraph.edges for name in edge]
    axes = edge_axes(hypergraph)[np.array(smooth, dtype=bool)]
    return _Plan(np.repeat(strengths, num_terms), np.repeat(strengths, num_free), axes)


def _check_strength(strength: float, argument: str) -> float:
    check_not_negative(strength, argument)
    return float(strength)


def ar1_precision(num_levels: int, correlation: float) -> Floats:
    """Inverse covariance (n, n) of a stationary AR(1) sequence of unit variance; the identity for correlation 0."""
    matrix = (1 + correlation**2) * np.eye(num_levels, dtype=np.float64)
    if num_levels:
        matrix[0, 0] = matrix[-1, -1] = 1.0
    matrix -= correlation * (np.eye(num_levels, k=1) + np.eye(num_levels, k=-1))
    matrix /= 1 - correlation**2
    return matrix


@lru_cache(maxsize=256)
def contrast_spectrum(num_levels: int, correlation: float) -> Floats:
    """Eigenvalues (n - 1,) of the precision within tables that sum to zero along the axis."""
    contrasts = scipy.linalg.helmert(num_levels)
    matrix = contrasts @ ar1_precision(num_levels, correlation) @ contrasts.T
    return np.linalg.eigvalsh(matrix).astype(np.float64)
