"""Variables and domains: names, kinds, levels and units, in a fixed order.

The order of the variables in a :class:`Domain` is the *schema order*; it orders names inside a hyperedge, axes of
an interaction table and columns of encoded observations everywhere in the library.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, SupportsIndex, get_args

from .budgets import MAX_LABELS, check_size
from .errors import (
    InputError,
    check_choice,
    check_names,
    check_type,
    check_unique,
    conflict,
    out_of_range,
    unexpected,
    wrong_type,
)

__all__ = ["Domain", "Kind", "NumberKind", "Variable"]

NumberKind = Literal["count", "positive", "real"]
"""Kinds without labels: whole numbers from 0, real numbers from 0, and all real numbers."""

Kind = Literal["nominal", "ordinal", "count", "positive", "real"]


@dataclass(frozen=True)
class Variable:
    """One variable of a domain.

    Args:
        name: non-empty name, unique within a domain.
        labels: the levels of a finite variable in code order (code ``i`` is ``labels[i]``), unique strings;
            empty for the kinds ``count``, ``positive`` and ``real``.
        kind: ``nominal`` (default), ``ordinal`` (label order is meaningful), ``count`` (0, 1, 2, ...), ``positive``
            (real numbers from 0) or ``real``.
        unit: physical unit, for display only.

    Raises:
        InputError: empty name, unknown kind, no labels for a finite variable, labels for an infinite one,
            repeated labels, or half of a surrogate pair in a name or a label, which no file could hold.

    Example:
        >>> Variable("smoke", ("y", "n")).cardinality
        2
    """

    name: str
    labels: tuple[str, ...] = ()
    kind: Kind = "nominal"
    unit: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise unexpected("Variable name", "a non-empty string", self.name)
        check_choice(self.kind, get_args(Kind), f"Variable {self.name!r} kind")
        # Labels are texts that a file can hold, each once.
        if isinstance(self.labels, str):
            raise wrong_type(f"Variable {self.name!r} labels", "a sequence of strings", received="a string")
        labels = tuple(self.labels)
        wrong = [label for label in labels if not isinstance(label, str)]
        if wrong:
            raise wrong_type(f"Variable {self.name!r} labels", "strings", received=repr(wrong[0]))
        object.__setattr__(self, "labels", labels)
        for word in (self.name, *labels, self.unit or ""):
            if not word.isascii() and re.search("[\ud800-\udfff]", word):
                raise unexpected(f"Variable {self.name!r}", "names and labels that UTF-8 can hold", word)
        check_unique(labels, f"Variable {self.name!r} labels")
        # A finite variable has labels, and no other one.
        if self.is_finite and not labels:
            raise conflict(f"Variable {self.name!r}", f"a {self.kind} variable needs at least one label")
        if not self.is_finite and labels:
            raise conflict(f"Variable {self.name!r}", f"a {self.kind} variable takes no labels")

    @property
    def is_finite(self) -> bool:
        """Whether the variable has a finite set of levels."""
        return self.kind in ("nominal", "ordinal")

    @property
    def cardinality(self) -> int:
        """Number of levels; InputError for a variable that is not finite."""
        if not self.is_finite:
            raise InputError(f"variable {self.name!r} is of kind {self.kind!r} and has no cardinality")
        return len(self.labels)

    def code(self, label: str) -> int:
        """Code of a label; UnknownNameError lists the closest labels."""
        check_names([label], self.labels, f"variable {self.name!r}", noun="label")
        return self.labels.index(label)

    def to_json(self) -> dict[str, Any]:
        """JSON-ready description, inverse of :meth:`from_json`."""
        return {"name": self.name, "labels": list(self.labels), "kind": self.kind, "unit": self.unit}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Variable:
        """Rebuild a variable from :meth:`to_json`; InputError for anything else."""
        expected = "an object with name, labels and kind"
        try:
            labels, unit = value["labels"], value.get("unit")
            if isinstance(labels, list | tuple) and isinstance(unit, str | None):
                return cls(value["name"], tuple(labels), value.get("kind", "nominal"), unit)
        except (KeyError, TypeError, AttributeError) as error:
            raise unexpected("variable", expected, value) from error
        raise unexpected("variable", f"{expected}, the labels a list and the unit a text", value)


@dataclass(frozen=True)
class Domain:
    """An ordered tuple of variables with unique names, the schema order; it may be empty.

    Example:
        >>> domain = Domain.from_cardinalities({"a": 2, "b": 3})
        >>> domain.names, domain.cardinalities, domain.num_states
        (('a', 'b'), (2, 3), 6)
    """

    variables: tuple[Variable, ...]

    def __init__(self, variables: Iterable[Variable] = ()) -> None:
        object.__setattr__(self, "variables", tuple(variables))
        for variable in self.variables:
            if not isinstance(variable, Variable):
                raise wrong_type("Domain variables", "Variable objects", received=repr(variable))
        check_unique(self.names, "Domain variables")

    @classmethod
    def from_cardinalities(cls, cardinalities: Mapping[str, int] | Sequence[int]) -> Domain:
        """Domain of nominal variables with labels ``"0"``, ``"1"``, ..., at most 2^24; a sequence is x0, x1, ..."""
        items = (
            cardinalities.items()
            if isinstance(cardinalities, Mapping)
            else ((f"x{i}", n) for i, n in enumerate(cardinalities))
        )
        variables: list[Variable] = []
        for name, size in items:
            where = f"cardinality of {name!r}"
            try:
                levels = range(operator.index(size))
            except TypeError as error:
                raise wrong_type(where, "a whole number", received=repr(size)) from error
            check_size(levels.stop, MAX_LABELS, "levels", where, "merge levels")
            variables.append(Variable(name, tuple(str(i) for i in levels)))
        return cls(variables)

    @classmethod
    def from_labels(cls, labels: Mapping[str, Sequence[str]]) -> Domain:
        """Domain of nominal variables from ``{name: labels}``."""
        return cls(Variable(name, tuple(levels)) for name, levels in labels.items())

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Variable names in schema order."""
        return tuple(v.name for v in self.variables)

    @cached_property
    def cardinalities(self) -> tuple[int, ...]:
        """Number of levels of each variable, in schema order; every variable must be finite."""
        return tuple(v.cardinality for v in self.variables)

    @cached_property
    def num_states(self) -> int:
        """Number of joint states, an exact Python integer (1 for the empty domain)."""
        return math.prod(self.cardinalities)

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.names)}

    def __len__(self) -> int:
        return len(self.variables)

    def __iter__(self) -> Iterator[Variable]:
        return iter(self.variables)

    def __contains__(self, name: object) -> bool:
        return name in self._positions

    def __getitem__(self, name: str) -> Variable:
        return self.variables[self.index(name)]

    def index(self, name: str) -> int:
        """Schema position of a variable; UnknownNameError lists the closest names."""
        if name not in self._positions:
            check_names([name], self.names, "domain")
        return self._positions[name]

    def indices(self, names: Iterable[str]) -> tuple[int, ...]:
        """Schema positions of several variables, in the order given; unknown and repeated names are refused."""
        wanted, known = tuple(names), self._positions
        if not known.keys() >= {*wanted}:
            check_names(wanted, self.names, "domain")
        if len({*wanted}) < len(wanted):
            check_unique(wanted, "variable names")
        return tuple(map(known.__getitem__, wanted))

    def project(self, names: Iterable[str]) -> Domain:
        """Domain of the given variables, in schema order whatever the order given."""
        return Domain(self.variables[i] for i in sorted(self.indices(names)))

    def encode_state(self, state: Mapping[str, str | SupportsIndex]) -> dict[str, int]:
        """Codes of a partial state given as ``{name: label or code}``; anything else is refused.

        A code is anything that stands for a whole number: an int, a NumPy integer, an integer tensor of one element.
        """
        check_type(state, Mapping, "state", "a mapping from names to labels or codes")
        codes: dict[str, int] = {}
        for name, value in state.items():
            variable = self[name]
            if isinstance(value, str):
                codes[name] = variable.code(value)
                continue
            try:
                code = -1 if isinstance(value, bool) else operator.index(value)
            except TypeError:
                code = -1
            if not 0 <= code < variable.cardinality:
                expected = f"a label or a code from 0 to {variable.cardinality - 1}"
                raise out_of_range(f"variable {name!r}", expected, value)
            codes[name] = code
        return codes

    def to_json(self) -> list[dict[str, Any]]:
        """JSON-ready description, inverse of :meth:`from_json`."""
        return [v.to_json() for v in self.variables]

    @classmethod
    def from_json(cls, value: Iterable[Mapping[str, Any]]) -> Domain:
        """Rebuild a domain from :meth:`to_json`; InputError for anything else."""
        if isinstance(value, str | Mapping) or not isinstance(value, Iterable):
            raise unexpected("domain", "a list of variables", value)
        return cls(map(Variable.from_json, value))
