r"""Formulas with scores of ordered categories, symmetry and diagonals, as linear subspaces of theta.

===================  ===================================================================================================
factor of a term     tables that it allows
===================  ===================================================================================================
``a``                any
``linear(a)``        proportional to scores of the levels, 1, 2, ... by default, in their order (below)
``symmetric(a, b)``  symmetric ones of two variables with the same levels: with both variables, quasi-symmetry
``diagonal(a, b)``   any on the diagonal, zero off it: with both variables, quasi-independence
``tied(a, b)``       those of ``symmetric(a, b)`` and one table for both variables: complete symmetry; a term of its own
===================  ===================================================================================================

The factors of a term are multiplied: ``linear(a):linear(b)`` is linear-by-linear (uniform) association with the tables
:math:`\beta (u_i - \bar u)(v_j - \bar v)`, so that

.. math:: \log \frac{q_{ij}\, q_{i'j'}}{q_{ij'}\, q_{i'j}} = \beta (u_i - u_{i'})(v_j - v_{j'})

and ``linear(a):b`` gives every level of b a slope along the scores of a (column effects). Spaces of terms over the same
variables are added. Sets of variables that only functions name are restricted; subsets that no term names have any
table, so that ``linear(a):linear(b)`` keeps the single variables a and b whole, and ``linear(a)*linear(b)`` does not.

Scores go by the order of the levels, which is that of :func:`~pyro_hoim.data.order.known_order`: of an ordinal variable
the declared one, else that of numbers, ranges of numbers, dates, or words of a common scale. Where none is known the
formula is refused, unless ``linear(a, labels)`` or scores by label say a number for each level.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce

import numpy as np

from ...checks import check_exact_shape
from ...data.frames import DataLike, as_observations
from ...data.order import Order, required_order
from ...errors import HoimError, check_names, check_type, conflict, refused, unexpected, wrong_type
from ...schema import Domain, Variable
from ...structure.formula import FunctionTerm, parse_terms
from ...structure.hypergraph import Edge, InteractionHypergraph
from ..coding import level_contrasts

__all__ = ["interactions_of", "midranks", "restricted_interactions"]

FUNCTIONS = {"linear": 1, "symmetric": 2, "diagonal": 2, "tied": 2}
"""Functions of a formula and the number of their variables."""

Scores = Mapping[str, Sequence[float] | Mapping[str, float] | str]
"""By variable: numbers in the order of the levels, numbers by label, or "labels"."""

_Part = tuple[Edge, list[tuple[str, str, str]], np.ndarray]
"""Variables; term, level and comparison of the columns; free coordinates (n - 1 of every variable, columns)."""


def midranks(data: DataLike, name: str) -> list[float]:
    """Scores of the levels of a variable: the mean rank of its rows in each, of all rows from 1 to N.

    Args:
        data: rows, whose weights count.
        name: a variable.

    Returns:
        The scores in the order of the levels, as ``linear(name)`` takes them.

    Raises:
        UnknownNameError: an unknown variable.
        InputError: a variable whose levels have no known order.
        MissingDataError: it has missing cells.

    References:
        Alan Agresti, Categorical Data Analysis, 2013, section 3.4.4.

    Example:
        >>> from pyro_hoim import Domain, Observations
        >>> data = Observations.from_table(Domain.from_cardinalities({"a": 3}), [2, 4, 4])
        >>> midranks(data, "a")
        [1.5, 4.5, 8.5]
    """
    rows = as_observations(data)
    variable = rows.domain[name]
    places = [variable.labels.index(label) for label in required_order(variable, "midranks").labels]
    counts = rows.marginal_counts([(name,)]).numpy()[places]
    return (np.cumsum(counts) - counts + (counts + 1) / 2).tolist()


def interactions_of(
    domain: Domain, formula: str, *, scores: Scores | None = None
) -> InteractionHypergraph | RestrictedInteractions:
    """The interactions of a formula, closed under subsets; restricted ones where it has functions.

    Arguments and errors are those of :func:`restricted_interactions`.

    Example:
        >>> domain = Domain.from_cardinalities({"a": 3, "b": 4})
        >>> type(interactions_of(domain, "a*b")).__name__, type(interactions_of(domain, "linear(a):b")).__name__
        ('InteractionHypergraph', 'RestrictedInteractions')
    """
    check_type(domain, Domain, "domain")
    terms = parse_terms(formula, domain.names, FUNCTIONS, closure=True)
    if any(isinstance(factor, FunctionTerm) for term in terms for factor in term):
        return restricted_interactions(domain, formula, scores=scores)
    return InteractionHypergraph.from_formula(domain, formula, closure=True)


def score_names(domain: Domain, formula: str) -> set[str]:
    """The variables of a formula that have scores."""
    factors = [f for term in parse_terms(formula, domain.names, FUNCTIONS, closure=True) for f in term]
    return {f.variables[0] for f in factors if isinstance(f, FunctionTerm) and f.function == "linear"}


def restricted_interactions(domain: Domain, formula: str, *, scores: Scores | None = None) -> RestrictedInteractions:
    r"""The interactions of a formula with functions, such as ``a*c + linear(a):linear(b)`` (see the module).

    Args:
        domain: the finite variables.
        formula: as of :meth:`InteractionHypergraph.from_formula`, closed under subsets, with the functions above.
        scores: of the levels of ``linear(name)``: a number for each, from the lowest level to the highest; numbers by
            label; or "labels" for the labels read as numbers; 1, 2, ... by default. ``linear(a, 1, 2, 4)`` and
            ``linear(a, labels)`` say them in the formula.

    Raises:
        InputError: a formula that cannot be read; a variable twice in a term; scores that are no finite numbers, of
            another number than the levels or all equal; levels whose order is needed and not known; two variables with
            other levels; ``tied`` beside factors.
        UnknownNameError: an unknown variable, function or label.

    References:
        Leo Goodman, Simple models for the analysis of association in cross-classifications having ordered categories,
        1979; Alan Agresti, Categorical Data Analysis, 2013, sections 10.4 and 11.4.

    Example:
        >>> domain = Domain.from_cardinalities({"a": 3, "b": 4})
        >>> found = restricted_interactions(domain, "linear(a):linear(b)")
        >>> list(zip(found.terms, found.levels))
        [('a', '1'), ('a', '2'), ('b', '1'), ('b', '2'), ('b', '3'), ('linear(a):linear(b)', '')]
    """
    check_type(domain, Domain, "domain")
    given = dict(scores or {})
    check_names(given, domain.names, "scores")
    orders: dict[str, Order] = {}
    terms = parse_terms(formula, domain.names, FUNCTIONS, closure=True)
    whole, parts = set[frozenset[str]](), list[tuple[frozenset[str], list[_Part]]]()
    # Terms without functions are whole interactions; the others give columns.
    for term in sorted(terms, key=lambda term: sorted(map(str, term))):
        factors = sorted(term, key=lambda factor: min(domain.indices(_variables(factor))))
        names = [name for factor in factors for name in _variables(factor)]
        if len(set(names)) < len(names):
            shown = ":".join(map(str, factors))
            raise conflict(f"formula {formula!r}", f"a variable occurs twice in {shown}", "write every variable once")
        if not any(isinstance(factor, FunctionTerm) for factor in factors):
            whole.add(frozenset(names))
        elif any(isinstance(factor, FunctionTerm) and factor.function == "tied" for factor in factors):
            if len(factors) > 1:
                raise conflict(f"formula {formula!r}", f"{factors[0]} is no factor", "use symmetric(...)")
            parts.append((frozenset(names), _tied(domain, factors[0])))
        else:
            tables = [_factor(domain, factor, given, orders) for factor in factors]
            parts.append((frozenset(names), [reduce(lambda a, b: _product(domain, a, b), tables)]))
    # Closed under subsets, and what no term restricts has all of its columns.
    hypergraph = InteractionHypergraph(domain, [*whole, *(names for names, _ in parts)], closure=True)
    restricted = {frozenset(edge) for _, part in parts for edge, _, _ in part} - whole
    for edge in hypergraph.edges:
        if frozenset(edge) not in restricted:
            tables = [_factor(domain, name, given, orders) for name in edge]
            parts.append((frozenset(edge), [reduce(lambda a, b: _product(domain, a, b), tables)]))
    # The columns of all terms, those of whole interactions first, in the order of the interactions.
    order = {frozenset(edge): number for number, edge in enumerate(hypergraph.edges)}
    columns, names = list[np.ndarray](), list[tuple[str, str, str]]()
    for _, part in sorted(parts, key=lambda part: (order[part[0]], len(part[1]))):
        block = np.zeros((hypergraph.num_parameters, len(part[0][1])))
        for edge, _, coordinates in part:
            block[hypergraph.parameter_slices[edge]] += coordinates.reshape(-1, coordinates.shape[-1])
        columns.append(block)
        names += part[0][1]
    directions = np.column_stack([np.zeros((hypergraph.num_parameters, 0)), *columns])
    terms, levels, words = (tuple(name[k] for name in names) for k in range(3))
    return replace(RestrictedInteractions(hypergraph, terms, levels, directions, comparisons=words), orders=orders)


def _variables(factor: str | FunctionTerm) -> tuple[str, ...]:
    return factor.variables if isinstance(factor, FunctionTerm) else (factor,)


def _factor(domain: Domain, factor: str | FunctionTerm, scores: Scores, orders: dict[str, Order]) -> _Part:
    """Free coordinates of the tables that a factor of a term allows; the order that scores went by is added."""
    if not isinstance(factor, FunctionTerm):
        labels = domain[factor].labels
        names = [(factor, label, f"{factor}={label} vs {labels[0]}") for label in labels[1:]]
        return (factor,), names, level_contrasts(len(labels)).T[:, 1:]
    # Scores make one column; other functions pair two variables.
    if factor.function == "linear":
        (name,) = factor.variables
        values = _scores(domain[name], factor, factor.arguments or scores.get(name, ()), orders)
        return (name,), [(str(factor), "", f"per step of {name}")], level_contrasts(len(values)).T @ values[:, None]
    first, second, labels = _alike(domain, factor)
    # Cells, or pairs of cells with equal parameters, in the free basis of the pair.
    contrasts = level_contrasts(len(labels)).T
    if factor.function == "diagonal":
        pairs = [(i, i) for i in range(len(labels))]
        names = [(str(factor), label, f"{first}={second}={label} vs unequal levels") for label in labels]
    else:
        pairs = [(i, j) for i in range(1, len(labels)) for j in range(i, len(labels))]
        steps = [[f"{name}={label} vs {labels[0]}" for label in labels] for name in (first, second)]
        words = [f"{steps[0][i]}, {steps[1][j]}" + (" (or exchanged)" if i != j else "") for i, j in pairs]
        names = [(str(factor), f"{labels[i]},{labels[j]}", word) for (i, j), word in zip(pairs, words, strict=True)]
    columns = [np.outer(contrasts[:, i], contrasts[:, j]) for i, j in pairs]
    columns = [column if i == j else column + column.T for column, (i, j) in zip(columns, pairs, strict=True)]
    return (first, second), names, np.stack(columns, -1)


def _tied(domain: Domain, factor: str | FunctionTerm) -> list[_Part]:
    """The same columns for both variables, and zeros for the pair, then those of the symmetric pair."""
    assert isinstance(factor, FunctionTerm)
    first, second, labels = _alike(domain, factor)
    edge, pair_names, pair = _factor(domain, factor._replace(function="symmetric"), {}, {})
    alone = [(str(factor), label, f"{first} or {second}={label} vs {labels[0]}") for label in labels[1:]]
    names = [*alone, *((str(factor), label, words) for _, label, words in pair_names)]
    number = len(labels) - 1
    single = np.column_stack([level_contrasts(len(labels)).T[:, 1:], np.zeros((number, pair.shape[-1]))])
    joint = np.concatenate([np.zeros((number, number, number)), pair], -1)
    return [((first,), names, single), ((second,), names, single), (edge, names, joint)]


def _alike(domain: Domain, factor: FunctionTerm) -> tuple[str, str, tuple[str, ...]]:
    """Both variables of a function in schema order, and the levels that they share."""
    first, second = sorted(factor.variables, key=domain.index)
    if factor.arguments:
        raise unexpected(str(factor), "two variables alone", received=factor.arguments)
    if first == second or domain[first].labels != domain[second].labels:
        problem = f"{first!r} and {second!r} must be two variables with the same levels in the same order"
        raise refused(str(factor), problem, code="other-domain")
    return first, second, domain[first].labels


def _scores(
    variable: Variable,
    factor: FunctionTerm,
    given: Sequence[float] | Mapping[str, float] | str,
    orders: dict[str, Order],
) -> np.ndarray:
    """Scores of the levels of a variable as they are stored."""
    labels, where = variable.labels, f"scores of {variable.name!r}"
    if isinstance(given, str) and given != "labels":
        raise unexpected(where, "numbers, or 'labels'", given, code="unknown-choice")
    # Numbers by label, by position, or read from the labels.
    try:
        if isinstance(given, str):
            values = np.array([float(label) for label in labels])
        elif isinstance(given, Mapping):
            check_names(given, labels, where, noun="label")
            values = np.array([given[label] for label in labels if label in given], dtype=float)
        else:
            values = np.asarray(given if len(given) else range(1, len(labels) + 1), dtype=float)
    except (TypeError, ValueError) as error:
        if isinstance(error, HoimError):
            raise
        if isinstance(given, str):
            raise refused(where, f"labels that are no numbers: {str(error).rpartition(': ')[2]}") from error
        raise wrong_type(where, "numbers", given) from error
    if values.shape != (len(labels),):
        raise unexpected(where, f"{len(labels)} numbers, one a level", received=values.size, code="wrong-shape")
    if not np.isfinite(values).all() or (len(values) > 1 and math.isclose(values.min(), values.max())):
        raise refused(where, f"finite numbers that are not all equal are needed, received {values.tolist()}")
    # The order that the scores themselves state, or that of the levels.
    if isinstance(given, str | Mapping):
        source = "by the labels as numbers" if given == "labels" else "by their scores"
        order = Order(tuple(labels[i] for i in np.argsort(values, kind="stable")), source)
    else:
        order = required_order(variable, str(factor))
        values = values[[order.labels.index(label) for label in labels]]
        if len(given):
            numbers = ", ".join(f"{score:g}" for score in given)
            order = Order(order.labels, f"{order.source}; scores {numbers}")
    orders.setdefault(variable.name, order)
    return values


def _product(domain: Domain, first: _Part, second: _Part) -> _Part:
    """The products of the tables of two factors over different variables, axes in schema order."""
    names = first[0] + second[0]
    product = np.multiply.outer(first[2], second[2])  # axes and columns of the first, then of the second
    product = np.moveaxis(product, first[2].ndim - 1, -2)
    order = sorted(range(len(names)), key=lambda axis: domain.index(names[axis]))
    columns = [
        (f"{a}:{b}", ",".join(filter(None, (i, j))), f"{before}, {after}")
        for a, i, before in first[1]
        for b, j, after in second[1]
    ]
    product = product.reshape(*product.shape[:-2], len(columns)).transpose(*order, len(names))
    return tuple(names[axis] for axis in order), columns, product


# A collection of interactions whose tables lie in a linear subspace.

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
