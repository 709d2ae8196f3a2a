"""A ridge penalty with a strength of its own for every interaction."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, lru_cache
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import scipy
import torch
from numpy.typing import NDArray

from ...checks import check_exact_shape
from ...errors import (
    check_not_negative,
    check_positive,
    check_type,
    check_whole,
    is_real,
    is_whole,
    out_of_range,
    refused,
    unexpected,
    wrong_type,
)
from ...schema import Variable
from ...structure.hypergraph import Edge, InteractionHypergraph
from ..coding import parametrization
from ..fitting.penalties import GaussianPenalty

Floats = NDArray[np.float64]


class _Plan(NamedTuple):
    """What a ridge is on one collection: strengths (num_terms,) and (num_parameters,), and the smooth axes."""

    terms: Floats
    parameters: Floats
    axes: NDArray[np.int64]


_SHOWN = 3  # sets of variables in a repr


@dataclass(frozen=True)
class InteractionRidge(GaussianPenalty):
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
        # Strengths by number of variables, then by set.
        orders: dict[int, float] = {}
        for order, strength in self.by_order.items():
            if not is_whole(order):
                raise wrong_type("by_order", "whole numbers as keys", received=repr(order))
            if order < 1:
                raise out_of_range("by_order", "numbers of variables from 1", received=order)
            orders[order] = _check_strength(strength, f"by_order[{order}]")
        # Two orders of the same names are one set.
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
        strength_of_set = self._by_set.get(names)
        return self.by_order.get(len(names), self.default) if strength_of_set is None else strength_of_set

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

    def gradient(self, theta: np.ndarray, hypergraph: InteractionHypergraph) -> np.ndarray:
        r"""Gradient in the coordinates given; of tables :math:`\lambda_S K_S \theta^S`, not balanced where smooth."""
        are_tables = self._are_tables(theta, hypergraph)
        plan = _plan(self, hypergraph)
        if not len(plan.axes):
            return (plan.terms if are_tables else plan.parameters) * theta
        from ._dense_kernels import apply_precision

        codings = parametrization(hypergraph)
        if are_tables:
            tables = np.array(theta, dtype=np.float64)
        else:
            tables = codings.to_tables(torch.from_numpy(np.array(theta, dtype=np.float64)), "free").numpy()
        apply_precision(plan.axes, self.smoothness, tables)
        tables *= plan.terms
        return tables if are_tables else codings.free_statistics(torch.from_numpy(tables)).numpy()

    def majorant(self, hypergraph: InteractionHypergraph, *, are_tables: bool) -> np.ndarray:
        r"""A diagonal, of tables or of free coordinates, that is nowhere below the Hessian.

        Along a smooth axis with correlation r no eigenvalue of the precision is above :math:`(1 + r) / (1 - r)`.
        """
        strengths = (self.terms if are_tables else self.parameters)(hypergraph)
        largest = (1 + self.smoothness) / (1 - self.smoothness)
        for edge, where in (hypergraph.term_slices if are_tables else hypergraph.parameter_slices).items():
            strengths[where] *= largest ** sum(self.is_smooth(edge, hypergraph.domain[name]) for name in edge)
        return strengths

    def precision(self, hypergraph: InteractionHypergraph) -> np.ndarray:
        """The strengths of free coordinates (num_parameters,), where tables are not smooth; else InputError."""
        if not self.is_diagonal(hypergraph):
            ties = f"smoothness={self.smoothness:g} ties levels of ordinal variables"
            lost = "the diagonal Hessian that Newton's method and covariances need does not exist"
            problem = f"{ties}, and {lost}, nor does the closed form of a proximal map; fit with method='lbfgs'"
            raise refused("penalty", problem, code="no-method")
        return self.parameters(hypergraph)

    def updated(self, strengths: Mapping[Edge, float]) -> InteractionRidge:
        """The penalty with other strengths for some sets of variables."""
        by_set = {frozenset(edge): (edge, strength) for edge, strength in self.by_edge.items()}
        by_set.update((frozenset(edge), (edge, strength)) for edge, strength in strengths.items())
        return replace(self, by_edge=dict(by_set.values()))

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


def edge_axes(hypergraph: InteractionHypergraph) -> np.ndarray:
    """Axes of all tables as (position of the table, entries before, length, entries after), for centring."""
    axes = [
        (where.start, math.prod(shape[:k]), shape[k], math.prod(shape[k + 1 :]))
        for where, shape in zip(hypergraph.term_slices.values(), hypergraph.edge_shapes, strict=True)
        for k in range(len(shape))
    ]
    return np.array(axes, dtype=np.int64).reshape(-1, 4)


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


# Rough inverse Hessian of a penalised loss, from the ridge alone.


class _Group(NamedTuple):
    """Interactions of one shape: positions (E, cells), bases by smooth axis, and the inverse Hessian (E, *shape)."""

    places: NDArray[np.int64]
    bases: tuple[tuple[int, Floats], ...]
    inverse: Floats


def ridge_preconditioner(
    ridge: InteractionRidge, hypergraph: InteractionHypergraph, num_rows: float
) -> Callable[[Floats], Floats] | None:
    r"""Multiplies balanced tables by :math:`(c + \lambda_S K_S / N)^{-1}`, in the eigenbasis of every smooth axis.

    The curvature c of the loss per row is the same everywhere, the mean over interactions of one over the number of
    cells. Strengths of evidence span many orders of magnitude; without this, so would the Hessian.
    """
    # One strength for all interactions: the loss is as even as it gets.
    strengths = np.array([ridge.strength(edge) for edge in hypergraph.edges])
    if not len(strengths) or (ridge.is_diagonal(hypergraph) and bool((strengths == strengths[0]).all())):
        return None
    curvature = float(np.mean([1 / math.prod(shape) for shape in hypergraph.edge_shapes]))
    # Interactions of one shape share eigenvalues, and are multiplied together.
    kinds: dict[tuple[tuple[int, bool], ...], list[int]] = {}
    for k, edge in enumerate(hypergraph.edges):
        variables = [hypergraph.domain[name] for name in edge]
        kinds.setdefault(tuple((v.cardinality, ridge.is_smooth(edge, v)) for v in variables), []).append(k)
    # The inverse in the eigenbasis of every smooth axis; the others need none.
    starts = np.array([where.start for where in hypergraph.term_slices.values()])
    groups: list[_Group] = []
    for kind, members in kinds.items():
        shape = tuple(n for n, _ in kind)
        eigenvalues = np.ones(shape)
        bases: list[tuple[int, Floats]] = []
        for axis, (n, is_smooth) in enumerate(kind):
            if is_smooth:
                values, basis = _axis_basis(n, ridge.smoothness)
                eigenvalues *= values.reshape(-1, *(1 for _ in kind[axis + 1 :]))
                bases.append((axis + 1, basis))
        places = starts[members, None] + np.arange(math.prod(shape))
        scale = (strengths[members] / num_rows).reshape(-1, *(1 for _ in kind))
        groups.append(_Group(places, tuple(bases), 1 / (curvature + scale * eigenvalues)))

    def multiply(values: Floats) -> Floats:
        result = np.empty_like(values)
        for places, axes, inverse in groups:
            tables = values[places].reshape(inverse.shape)
            for axis, basis in axes:
                tables = _along(basis, tables, axis)
            tables = tables * inverse
            for axis, basis in axes:
                tables = _along(basis.T, tables, axis)
            result[places] = tables.reshape(places.shape)
        return result

    return multiply


@lru_cache(maxsize=256)
def _axis_basis(num_levels: int, correlation: float) -> tuple[Floats, Floats]:
    """Eigenvalues (n,) and orthonormal rows (n, n) that diagonalise the precision within tables that sum to zero."""
    contrasts = scipy.linalg.helmert(num_levels)
    values, vectors = np.linalg.eigh(contrasts @ ar1_precision(num_levels, correlation) @ contrasts.T)
    constant = np.full((1, num_levels), num_levels**-0.5)
    return np.concatenate([np.ones(1), values]), np.concatenate([constant, vectors.T @ contrasts])


def _along(matrix: Floats, tables: Floats, axis: int) -> Floats:
    return np.moveaxis(np.tensordot(matrix, tables, (1, axis)), 0, axis)


# Strengths of a ridge from the training rows themselves: the fixed point of the evidence.

_LEAST, _LARGEST = 0.05, 1e6  # strengths


@dataclass(frozen=True)
class EvidenceRounds:
    """How often the strengths of a ridge are moved towards the maximum of the evidence, and how far each time.

    Raises:
        InputError: a number of rounds that is no whole number from 0, or a damping outside (0, 1].

    Example:
        >>> from pyro_hoim import Domain, Observations
        >>> from pyro_hoim.log_linear import ExactTrainer
        >>> rows = Observations.from_table(Domain.from_cardinalities({"a": 2, "b": 2}), [[30, 10], [20, 40]])
        >>> graph = InteractionHypergraph.saturated(rows.domain)
        >>> trainer = ExactTrainer(rows, graph, penalty=InteractionRidge(20.0), evidence=EvidenceRounds(2))
        >>> trainer.train().status, round(trainer.penalty.strength(("a", "b")), 2)  # the rows want less than 20
        ('converged', 3.58)
    """

    num_rounds: int = 0
    damping: float = 0.5

    def __post_init__(self) -> None:
        check_whole(self.num_rounds, "evidence_rounds", 0)
        object.__setattr__(self, "damping", check_damping(self.damping, "evidence_damping"))


def updated_ridge(
    ridge: InteractionRidge,
    hypergraph: InteractionHypergraph,
    tables: Floats,
    margins_data: Floats,
    num_rows: float,
    *,
    damping: float = 0.5,
    pseudo: bool = False,
) -> InteractionRidge:
    r"""One step of the fixed point of the evidence, for interactions of two or more variables.

    .. math:: \lambda_S \leftarrow \lambda_S^{1 - d} \Big( \frac{\gamma_S}{b_S^\top K_S b_S} \Big)^d, \qquad
        \gamma_S = \sum_c \sum_k \frac{1}{\prod_{i \in S} I_i} \frac{h_c}{h_c + \lambda_S k}

    The ridge is read as a normal prior. At the strengths that maximise the probability of the rows, the parameters
    integrated out by a normal approximation around the fitted tables b, the expected and the fitted squared norm agree.
    The effective number of parameters :math:`\gamma_S` is approximated by a diagonal curvature: cell c has the
    curvature :math:`h_c`, its number of rows, and every free coordinate the mean over the cells; k runs over the
    eigenvalues of :math:`K_S` within balanced tables. No validation rows are needed. Interactions that the rows do not
    support receive strengths that grow from step to step; the tables must be refitted in between. Single variables keep
    their strengths.

    Args:
        ridge: the penalty that the tables were fitted with.
        hypergraph: the collection.
        tables: balanced tables of the fit (num_terms,).
        margins_data: frequencies of the cells of every interaction among the rows (num_terms,).
        num_rows: number of rows, with multiplicity.
        damping: share d of the step that is made, on the logarithmic scale; 1 is the whole step.
        pseudo: whether the tables maximise the pseudo-likelihood, which counts a row once for every variable of an
            interaction; the strength is then that many times the precision of the prior.

    Returns:
        The ridge with new strengths, from 0.05 to 1e6; so a strength of zero does not stay zero.

    Raises:
        InputError: a damping outside (0, 1], no rows, or wrong lengths.
        InputTypeError: no InteractionRidge.

    References:
        David MacKay, Bayesian interpolation, 1992, section 4; Michael Tipping, Sparse Bayesian learning and the
        relevance vector machine, 2001, section 2.

    Example:
        >>> from pyro_hoim import Domain, Observations
        >>> rows = Observations.from_table(Domain.from_cardinalities({"a": 2, "b": 2}), [[30, 10], [20, 40]])
        >>> graph = InteractionHypergraph.saturated(rows.domain)
        >>> margins = (rows.marginal_counts(graph.edges) / 100).numpy()
        >>> tables = np.array([-0.2, 0.2, 0.0, 0.0, 0.45, -0.45, -0.45, 0.45])
        >>> found = updated_ridge(InteractionRidge(1.0), graph, tables, margins, 100, damping=1.0)
        >>> round(found.strength(("a", "b")), 3)
        1.174
    """
    check_type(ridge, InteractionRidge, "ridge")
    check_damping(damping, "damping")
    check_exact_shape(tables, (hypergraph.num_terms,), "tables")
    effective = num_effective(ridge, hypergraph, margins_data, num_rows, pseudo=pseudo)
    unit = replace(ridge, default=1.0, by_order={}, by_edge={})
    squares = tables * unit.gradient(tables, hypergraph)
    strengths: dict[Edge, float] = {}
    for edge, where in hypergraph.term_slices.items():
        if len(edge) < 2 or not effective[edge]:
            continue
        norm, goal = float(squares[where].sum()), _LARGEST
        weight = len(edge) if pseudo else 1
        if norm > 0:
            goal = min(max(weight * effective[edge] / norm, _LEAST), _LARGEST)
        strength = ridge.strength(edge) ** (1 - damping) * goal**damping
        strengths[edge] = min(max(strength, _LEAST), _LARGEST)
    return ridge.updated(strengths)


def num_effective(
    ridge: InteractionRidge,
    hypergraph: InteractionHypergraph,
    margins_data: Floats,
    num_rows: float,
    *,
    pseudo: bool = False,
) -> dict[Edge, float]:
    r"""Effective number of parameters :math:`\gamma_S` of every interaction; see :func:`updated_ridge`."""
    check_exact_shape(margins_data, (hypergraph.num_terms,), "margins_data")
    check_positive(num_rows, "num_rows")
    result: dict[Edge, float] = {}
    for edge, where in hypergraph.term_slices.items():
        rows, num_cells = np.unique(np.round(num_rows * margins_data[where], 9), return_counts=True)
        strength = ridge.strength(edge) / (len(edge) if pseudo else 1)
        eigenvalues, multiplicities = _spectrum(ridge, hypergraph, edge)
        prior = strength * eigenvalues
        seen = rows > 0
        shares = rows[seen, None] / (rows[seen, None] + prior)
        result[edge] = float(num_cells[seen] @ shares @ multiplicities) / (where.stop - where.start)
    return result


def check_damping(damping: object, argument: str) -> float:
    """Raise unless a number above 0 and at most 1."""
    if not is_real(damping) or not 0 < damping <= 1:
        raise out_of_range(argument, "a number above 0, at most 1", damping)
    return float(damping)


def _spectrum(ridge: InteractionRidge, hypergraph: InteractionHypergraph, edge: Edge) -> tuple[Floats, Floats]:
    """Distinct eigenvalues of the precision of balanced tables, and how often each occurs."""
    eigenvalues, multiplicity = np.ones(1), 1
    for name in edge:
        variable = hypergraph.domain[name]
        if ridge.is_smooth(edge, variable):
            axis = _axis_basis(variable.cardinality, ridge.smoothness)[0][1:]  # the first is of constants
            eigenvalues = np.multiply.outer(eigenvalues, axis).reshape(-1)
        else:
            multiplicity *= variable.cardinality - 1
    return eigenvalues, np.full(len(eigenvalues), float(multiplicity))
