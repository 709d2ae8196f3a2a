"""Sets of the columns of a table: what ties them, where a category is one column of several variables."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from ...schema import Domain, Variable
from ..frames import RootColumns
from ..regress.result import RootTerm


@dataclass(frozen=True)
class ColumnSet:
    """The terms of a set of columns: one, or one for every combination of levels of its categories.

    Attributes:
        names: the columns.
        terms: their coefficients, the largest first.
        strength: root of the sum of the squared coefficients, each times the standard deviations of its roots, so that
            it does not depend on units.
    """

    names: tuple[str, ...]
    terms: tuple[RootTerm, ...]
    strength: float

    @property
    def coefficient(self) -> float | None:
        """The sum of the coefficients over roots; None where levels have coefficients of their own."""
        if len({term.names for term in self.terms}) > 1:
            return None
        return sum(term.coefficient for term in self.terms)


def in_units(term: RootTerm, scales: torch.Tensor | None, domain: Domain) -> RootTerm:
    """A term with the coefficient of roots divided by their standard deviations (d, k), where these are known."""
    if scales is None:
        return term
    unit = math.prod(scales[list(domain.indices(term.names)), term.key[0] - 1].tolist())
    return replace(term, coefficient=term.coefficient * unit)


def sets_by_strength(
    terms: Sequence[RootTerm],
    scales: torch.Tensor | None,
    domain: Domain,
    set_of: Callable[[Sequence[str]], tuple[str, ...]],
) -> list[ColumnSet]:
    """Sets of columns, the strongest first.

    Args:
        terms: of two and more variables.
        scales: standard deviations of the roots of every variable of the domain, (d, k).
        domain: all variables.
        set_of: the columns of some variables.

    Example:
        >>> domain = Domain.from_cardinalities({"c=a": 2, "c=b": 2, "x": 2})
        >>> terms = [RootTerm((2, 2), ("c=a", "x"), -0.3), RootTerm((2, 2), ("c=b", "x"), 0.4)]
        >>> (found,) = sets_by_strength(terms, None, domain, lambda names: ("c", "x"))
        >>> found.names, found.strength, found.coefficient is None
        (('c', 'x'), 0.5, True)
    """
    by_set: dict[tuple[str, ...], list[RootTerm]] = {}
    for term in terms:
        by_set.setdefault(set_of(term.names), []).append(term)
    sets = list[ColumnSet]()
    for names, inside in by_set.items():
        inside.sort(key=lambda term: -abs(term.coefficient))
        squares = [in_units(term, scales, domain).coefficient ** 2 for term in inside]
        sets.append(ColumnSet(names, tuple(inside), math.sqrt(math.fsum(squares))))
    return sorted(sets, key=lambda one: -one.strength)


def levels_of(columns: RootColumns | None, names: Sequence[str]) -> Mapping[str, str]:
    """The level of every category among some variables, by its column."""
    if columns is None:
        return {}
    found = dict[str, str]()
    for name in names:
        column = columns[columns.column_of[name]]
        if column.is_category:
            found[column.name] = column.levels[column.variables.index(name)]
    return found


def columns_domain(columns: RootColumns) -> Domain:
    """The columns of a table as variables: with their labels where they have some, else as numbers."""
    return Domain(
        Variable(column.name, column.levels) if column.levels else Variable(column.name, kind=column.family.kind)
        for column in columns.columns
    )
