"""Rules for JSON values that come from a file: types, lengths, names, nested; checked whole, before anything is built.

A rule looks at many values at once, so that a list of a million names costs one pass. Private.
"""

from __future__ import annotations

import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NoReturn, cast, get_args

from typing_extensions import override

from .. import budgets
from ..errors import refused, unexpected
from ..schema import Domain, Kind

__all__ = [
    "COMMON",
    "DOMAIN",
    "FLAG",
    "MOST_DEPTH",
    "MOST_VALUES",
    "NAME",
    "NAMES",
    "NUMBER",
    "SHARES",
    "TEXT",
    "WHOLE",
    "Either",
    "Fields",
    "Items",
    "Leaf",
    "MapOf",
    "Row",
    "Rule",
    "check_depth",
    "check_known",
    "check_shares",
    "check_size",
    "one_of",
    "optional",
    "parsed",
]

MOST_DEPTH = 64
"""Most lists and objects inside one another."""

MOST_VALUES = 2**23
"""Most values in one text, which hold about half a gigabyte."""


class Rule(ABC):
    """What JSON values have to be."""

    @property
    @abstractmethod
    def words(self) -> str:
        """What is expected, as in a message."""

    @abstractmethod
    def fits(self, values: Sequence[Any]) -> bool:
        """Whether all values keep the rule."""

    def blame(self, value: Any, where: str) -> NoReturn:
        """Raise :class:`InputError` about the innermost part of a value that breaks the rule."""
        shown = repr(value) if isinstance(value, str | int | float | None) else "an object"
        shown = f"a list of {len(value)}" if isinstance(value, list) else shown
        raise unexpected(where, self.words, received=shown[:80])

    def check(self, value: Any, where: str = "") -> None:
        """Raise :class:`InputError` about the first part of a value that breaks the rule; ``where`` names the value."""
        if not self.fits([value]):
            self.blame(value, where)


@dataclass(frozen=True)
class Leaf(Rule):
    """Values of some types, for which a test holds."""

    name: str
    types: tuple[type, ...]
    test: Callable[[Any], bool] | None = None

    @property
    @override
    def words(self) -> str:
        return self.name

    @override
    def fits(self, values: Sequence[Any]) -> bool:
        kinds = set(map(type, values))
        is_right = all(issubclass(kind, self.types) and (kind is not bool or bool in self.types) for kind in kinds)
        return is_right and (self.test is None or all(map(self.test, values)))


@dataclass(frozen=True)
class Items(Rule):
    """Lists of values that keep a rule, of a number of them."""

    item: Rule
    least: int = 0
    most: int | None = None

    @property
    @override
    def words(self) -> str:
        size = f" of {self.least}" if self.least == self.most else f" of at least {self.least}" if self.least else ""
        return f"a list{size}, each {self.item.words}"

    def _is_list(self, value: Any) -> bool:
        return isinstance(value, list) and self.least <= len(value) and (self.most is None or len(value) <= self.most)

    @override
    def fits(self, values: Sequence[Any]) -> bool:
        return all(map(self._is_list, values)) and self.item.fits(list(chain.from_iterable(values)))

    @override
    def blame(self, value: Any, where: str) -> NoReturn:
        if self._is_list(value):
            for place, item in enumerate(value):
                self.item.check(item, f"{where}[{place}]")
        Rule.blame(self, value, where)


@dataclass(frozen=True, init=False)
class Row(Rule):
    """Lists of a fixed length, with a rule for every place."""

    items: tuple[Rule, ...]

    def __init__(self, *items: Rule) -> None:
        object.__setattr__(self, "items", items)

    @property
    @override
    def words(self) -> str:
        return f"a list of {', '.join(item.words for item in self.items)}"

    @override
    def fits(self, values: Sequence[Any]) -> bool:
        is_right = all(isinstance(value, list) and len(value) == len(self.items) for value in values)
        return is_right and all(
            item.fits(column) for item, column in zip(self.items, zip(*values, strict=True), strict=False)
        )

    @override
    def blame(self, value: Any, where: str) -> NoReturn:
        if isinstance(value, list) and len(value) == len(self.items):
            for place, (rule, item) in enumerate(zip(self.items, value, strict=True)):
                rule.check(item, f"{where}[{place}]")
        Rule.blame(self, value, where)


@dataclass(frozen=True)
class MapOf(Rule):
    """Objects with any keys, whose values keep a rule."""

    item: Rule

    @property
    @override
    def words(self) -> str:
        return f"an object, each entry {self.item.words}"

    @override
    def fits(self, values: Sequence[Any]) -> bool:
        is_right = all(isinstance(value, Mapping) for value in values)
        return is_right and self.item.fits(list(chain.from_iterable(value.values() for value in values)))

    @override
    def blame(self, value: Any, where: str) -> NoReturn:
        if isinstance(value, Mapping):
            for key, item in cast("Mapping[str, Any]", value).items():
                self.item.check(item, f"{where}[{key!r}]")
        Rule.blame(self, value, where)


@dataclass(frozen=True)
class Fields(Rule):
    """Objects with entries that each keep a rule, some of which must be there; whether ``others`` may be there, too."""

    needed: Mapping[str, Rule] = field(default_factory=dict[str, Rule])
    allowed: Mapping[str, Rule] = field(default_factory=dict[str, Rule])
    others: bool = False

    @property
    @override
    def words(self) -> str:
        names = ", ".join(map(repr, self.needed or self.allowed))
        return f"an object with {names}" if names else "an object"

    @override
    def fits(self, values: Sequence[Any]) -> bool:
        if not all(isinstance(value, Mapping) for value in values):
            return False
        known = {**self.needed, **self.allowed}
        names = set(chain.from_iterable(values))
        if not all(name in value for value in values for name in self.needed) or not (self.others or names <= {*known}):
            return False
        return all(
            rule.fits([value[name] for value in values if name in value])
            for name, rule in known.items()
            if name in names
        )

    @override
    def blame(self, value: Any, where: str) -> NoReturn:
        if isinstance(value, Mapping):
            entries = cast("Mapping[str, Any]", value)
            for name, rule in {**self.needed, **self.allowed}.items():
                if name in entries:
                    rule.check(entries[name], f"{where}[{name!r}]" if where else name)
                elif name in self.needed:
                    raise refused(where or None, f"{name!r} is missing", code="missing-part")
            strange = [name for name in entries if name not in self.needed and name not in self.allowed]
            if strange and not self.others:
                raise refused(where or None, f"an entry {strange[0][:40]!r} is not known", code="unknown-name")
        Rule.blame(self, value, where)


@dataclass(frozen=True, init=False)
class Either(Rule):
    """Values that keep one of several rules."""

    rules: tuple[Rule, ...]

    def __init__(self, *rules: Rule) -> None:
        object.__setattr__(self, "rules", rules)

    @property
    @override
    def words(self) -> str:
        return " or ".join(rule.words for rule in self.rules)

    @override
    def fits(self, values: Sequence[Any]) -> bool:
        if any(rule.fits(values) for rule in self.rules):
            return True
        return len(values) > 1 and all(any(rule.fits([value]) for rule in self.rules) for value in values)


def one_of(*names: str) -> Leaf:
    """One of some texts."""
    return Leaf(" or ".join(map(repr, names)), (str,), lambda value: value in names)


def optional(rule: Rule) -> Either:
    """The same, or null."""
    return Either(rule, Leaf("null", (type(None),)))


TEXT = Leaf("a text", (str,))
NAME = Leaf("a non-empty text", (str,), bool)
NAMES = Items(NAME)
FLAG = Leaf("true or false", (bool,))
WHOLE = Leaf("a whole number from 0", (int,), lambda value: value >= 0)
NUMBER = Leaf("a finite number", (int, float), lambda value: abs(value) <= sys.float_info.max)

DOMAIN = Items(
    Fields(
        {
            "name": NAME,
            "labels": Items(TEXT),
            "kind": one_of(*get_args(Kind)),
            "unit": optional(TEXT),
        }
    )
)
"""What :meth:`pyro_hoim.Domain.to_json` gives."""

SHARES = MapOf(Items(Leaf("a number from 0 to 1", (int, float), lambda value: 0 <= value <= 1), 1))
"""Frequencies of the levels by variable."""

_SEED = Leaf("a whole number", (int,))
_SPLIT = {"fractions": Items(NUMBER, 3, 3), "seed": _SEED, "rows": NUMBER, "digest": TEXT}
_BINS = Fields({"cuts": Items(NUMBER, 1), "kind": one_of("numbers", "dates"), "rule": TEXT})
_READING = {"bins": MapOf(_BINS), "count_column": optional(TEXT), "weight_column": optional(TEXT)}
_GROUP = {"name": NAME, "columns": Items(NAME, 2), "levels": Items(Items(WHOLE), 2), "labels": Items(TEXT, 2)}
_GROUP["kind"] = one_of(*get_args(Kind))
COMMON: Mapping[str, Rule] = {
    "rows": optional(Leaf("a finite number from 0", (int, float), lambda value: 0 <= value <= sys.float_info.max)),
    "seed": _SEED,
    "split": optional(Fields(_SPLIT)),
    "reading": optional(Fields({}, _READING, others=True)),
    "joined": optional(Fields({"domain": DOMAIN, "groups": Items(Fields(_GROUP))})),
}
"""Entries of the information that the library reads of every family."""


def check_depth(value: Any, where: str) -> None:
    """Raise :class:`InputError` for lists and objects of a JSON text that are nested too deep."""
    level = [value] if type(value) in (dict, list) else []
    for _ in range(MOST_DEPTH):
        if not level:
            return
        items = chain.from_iterable(item.values() if type(item) is dict else item for item in level)
        level = [item for item in items if type(item) is list or type(item) is dict]
    if level:
        raise refused(where, f"is nested more than {MOST_DEPTH} levels deep", code="over-budget")


def check_shares(shares: Mapping[str, Sequence[float]], domain: Domain, where: str) -> None:
    """Raise :class:`InputError` unless every variable, and no other, has a number for each of its levels."""
    if set(shares) != set(domain.names):
        raise refused(where, "its names are not those of the variables", code="other-domain")
    for variable in domain:
        if len(shares[variable.name]) != variable.cardinality:
            expected = f"{variable.cardinality} numbers, one for every level"
            found = len(shares[variable.name])
            raise unexpected(f"{where}[{variable.name!r}]", expected, received=found, code="wrong-shape")


def check_known(cells: Mapping[str, Sequence[str]], domain: Domain, where: str) -> None:
    """Raise :class:`InputError` unless ``edge`` names variables of which ``levels`` are labels."""
    edge, levels = cells["edge"], cells["levels"]
    domain.indices(edge)
    if len(edge) != len(levels):
        raise refused(where, "has not one level for every variable", code="wrong-shape")
    for name, level in zip(edge, levels, strict=True):
        domain[name].code(level)


def check_size(text: str, where: str) -> None:
    """Raise :class:`IntractableError` for a JSON text of too many values, before any is made."""
    count = text.count(",") + text.count("[") + text.count("{")
    budgets.check_size(count, MOST_VALUES, "values", where, "keep large contents as tensors", "holds up to")


def parsed(text: str, where: str) -> Any:
    """The value of a JSON text; InputError for one that is none, too deep, or with a name that comes twice."""
    check_size(text, where)
    try:
        value = json.loads(text, parse_constant=_no_constant, object_pairs_hook=_object)
    except RecursionError as error:
        raise refused(where, f"is nested more than {MOST_DEPTH} levels deep", code="over-budget") from error
    except ValueError as error:
        raise refused(where, f"is not readable JSON ({error})", code="damaged-file") from error
    check_depth(value, where)
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name comes twice in an object")
    return found
