"""Rules for JSON values that come from a file: types, lengths, names, nested; checked whole, before anything is built.

A rule looks at many values at once, so that a list of a million names costs one pass. Private.
"""

import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NoReturn, get_args

from typing_extensions import override

from ..errors import InputError, out_of_reach, refused, unexpected
from ..schema import Domain, Kind

MOST_DEPTH = 64
"""Most lists and objects inside one another."""

MOST_VALUES = 2**23
"""Most values in one text, which hold about half a gigabyte."""

_Parts = Iterator[tuple["Rule", Sequence[Any], Iterable[Any]]]


class Rule(ABC):
    """What JSON values have to be; one about lists or objects tells their form, and the rules of their parts."""

    words: str
    """What is expected, as in a message."""

    @abstractmethod
    def has_form(self, value: Any) -> bool:
        """Whether a value is right, its parts aside."""

    def parts(self, values: Sequence[Any]) -> _Parts:  # noqa: ARG002
        """Rules, each with the parts of all values that it is about, and their keys in a value."""
        yield from ()

    def fits(self, values: Sequence[Any]) -> bool:
        """Whether all values keep the rule."""
        return all(map(self.has_form, values)) and all(rule.fits(parts) for rule, parts, _ in self.parts(values))

    def blame(self, value: Any, where: str) -> NoReturn:
        """Raise :class:`InputError` about the innermost part of a value that breaks the rule."""
        if self.has_form(value):
            for rule, parts, keys in self.parts([value]):
                for key, part in zip(keys, parts, strict=True):
                    rule.check(part, f"{where}[{key!r}]" if where else str(key))
        shown = repr(value) if isinstance(value, str | int | float | None) else "an object"
        shown = f"a list of {len(value)}" if isinstance(value, list) else shown
        raise unexpected(where, self.words, received=shown[:80])

    def check(self, value: Any, where: str = "") -> None:
        """Raise :class:`InputError` about the first part of a value that breaks the rule; ``where`` names the value."""
        if not self.fits([value]):
            self.blame(value, where)


class Leaf(Rule):
    """Values of some types, for which a test holds."""

    def __init__(self, words: str, types: tuple[type, ...], test: Callable[[Any], bool] | None = None) -> None:
        self.words, self.types, self.test = words, types, test

    @override
    def has_form(self, value: Any) -> bool:
        return self.fits([value])

    @override
    def fits(self, values: Sequence[Any]) -> bool:
        for kind in set(map(type, values)):
            if not issubclass(kind, self.types) or (kind is bool and bool not in self.types):
                return False
        return self.test is None or all(map(self.test, values))


class Items(Rule):
    """Lists of values that keep a rule, at least so many of them."""

    def __init__(self, item: Rule, least: int = 0) -> None:
        self.words = f"a list{f' of at least {least}' if least else ''}, each {item.words}"
        self.item, self.least = item, least

    @override
    def has_form(self, value: Any) -> bool:
        return isinstance(value, list) and self.least <= len(value)

    @override
    def parts(self, values: Sequence[Any]) -> _Parts:
        yield self.item, list(chain.from_iterable(values)), chain.from_iterable(map(range, map(len, values)))


class Row(Rule):
    """Lists of a fixed length, with a rule for every place."""

    def __init__(self, *items: Rule) -> None:
        self.words = f"a list of {', '.join(item.words for item in items)}"
        self.items = items

    @override
    def has_form(self, value: Any) -> bool:
        return isinstance(value, list) and len(value) == len(self.items)

    @override
    def parts(self, values: Sequence[Any]) -> _Parts:
        for number, column in enumerate(zip(*values, strict=True)):
            yield self.items[number], column, [number]


class MapOf(Rule):
    """Objects with any keys, whose values keep a rule."""

    def __init__(self, item: Rule) -> None:
        self.words, self.item = f"an object, each entry {item.words}", item

    @override
    def has_form(self, value: Any) -> bool:
        return isinstance(value, Mapping)

    @override
    def parts(self, values: Sequence[Any]) -> _Parts:
        yield self.item, [item for value in values for item in value.values()], chain.from_iterable(values)


class Fields(Rule):
    """Objects with entries that each keep a rule, some of which must be there; whether ``others`` may be there, too."""

    def __init__(
        self, needed: Mapping[str, Rule] | None = None, allowed: Mapping[str, Rule] | None = None, others: bool = False
    ) -> None:
        self.needed, self.others = needed or {}, others
        self.known = {**self.needed, **(allowed or {})}
        self.words = f"an object with {', '.join(map(repr, needed or self.known))}" if self.known else "an object"

    @override
    def has_form(self, value: Any) -> bool:
        is_whole = isinstance(value, Mapping) and self.needed.keys() <= value.keys()
        return is_whole and (self.others or value.keys() <= self.known.keys())

    @override
    def parts(self, values: Sequence[Any]) -> _Parts:
        for name, rule in self.known.items():
            if items := [value[name] for value in values if name in value]:
                yield rule, items, [name]

    @override
    def blame(self, value: Any, where: str) -> NoReturn:
        if isinstance(value, Mapping):
            for name in self.needed:
                if name not in value:
                    raise refused(where or None, f"{name!r} is missing", code="missing-part")
            for name in value:
                if not self.others and name not in self.known:
                    raise refused(where or None, f"an entry {name[:40]!r} is not known", code="unknown-name")
        super().blame(value, where)


class Either(Rule):
    """Values that keep one of several rules."""

    def __init__(self, *rules: Rule) -> None:
        self.words, self.rules = " or ".join(rule.words for rule in rules), rules

    @override
    def has_form(self, value: Any) -> bool:
        return any(rule.fits([value]) for rule in self.rules)

    @override
    def fits(self, values: Sequence[Any]) -> bool:
        return any(rule.fits(values) for rule in self.rules) or (len(values) > 1 and super().fits(values))


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
POSITIVE = Leaf("a positive number", (int, float), lambda value: 0 < value <= sys.float_info.max)

DOMAIN = Items(Fields({"name": NAME, "labels": Items(TEXT), "kind": one_of(*get_args(Kind)), "unit": optional(TEXT)}))
"""What :meth:`pyro_hoim.Domain.to_json` gives."""

SHARES = MapOf(Items(Leaf("a number from 0 to 1", (int, float), lambda value: 0 <= value <= 1), 1))
"""Frequencies of the levels by variable."""

_SEED = Leaf("a whole number", (int,))
_SPLIT = {"fractions": Row(NUMBER, NUMBER, NUMBER), "seed": _SEED, "rows": NUMBER, "digest": TEXT}
_BINS = Fields({"cuts": Items(NUMBER, 1), "kind": one_of("numbers", "dates"), "rule": TEXT})
_READING = {"bins": MapOf(_BINS), "count_column": optional(TEXT), "weight_column": optional(TEXT)}
_GROUP = {"name": NAME, "columns": Items(NAME, 2), "levels": Items(Items(WHOLE), 2), "labels": Items(TEXT, 2)}
_GROUP["kind"] = one_of(*get_args(Kind))
_BROKEN = Fields({"probability": NUMBER, "rows": NUMBER, "shares": Items(Items(NUMBER, 1), 2)})
COMMON: Mapping[str, Rule] = {
    "rows": optional(Leaf("a finite number from 0", (int, float), lambda value: 0 <= value <= sys.float_info.max)),
    "seed": _SEED,
    "split": optional(Fields(_SPLIT)),
    "reading": optional(Fields({}, _READING, others=True)),
    "joined": optional(Fields({"domain": DOMAIN, "groups": Items(Fields(_GROUP, {"broken": _BROKEN}))})),
}
"""Entries of the information that the library reads of every family."""


def check_shares(shares: Mapping[str, Sequence[float]], domain: Domain, where: str) -> None:
    """Raise :class:`InputError` unless every variable, and no other, has a number for each of its levels."""
    if set(shares) != set(domain.names):
        raise refused(where, "its names are not those of the variables", code="other-domain")
    for variable in domain:
        if len(shares[variable.name]) != variable.cardinality:
            expected, received = f"{variable.cardinality} numbers, one for every level", len(shares[variable.name])
            raise unexpected(f"{where}[{variable.name!r}]", expected, received=received, code="wrong-shape")


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
    if count > MOST_VALUES:
        problem = f"holds up to {count:,} values, more than the budget of {MOST_VALUES:,}"
        raise out_of_reach(where, problem, "keep large contents as tensors")


def parsed(text: str, where: str) -> Any:
    """The value of a JSON text; InputError for one that is none, too deep, or with a name that comes twice."""
    check_size(text, where)
    try:
        value = json.loads(text, parse_constant=_no_constant, object_pairs_hook=_object)
    except RecursionError as error:
        raise too_deep(where) from error
    except ValueError as error:
        raise refused(where, f"is not readable JSON ({error})", code="damaged-file") from error
    # Level by level and not by recursion, for which a text may be too deep.
    level: list[Any] = [[value]]
    for _ in range(MOST_DEPTH + 1):
        items = chain.from_iterable(item.values() if type(item) is dict else item for item in level)
        level = [item for item in items if type(item) is list or type(item) is dict]
        if not level:
            return value
    raise too_deep(where)


def too_deep(where: str) -> InputError:
    """The error about lists and objects that are nested too deep."""
    return refused(where, f"is nested more than {MOST_DEPTH} levels deep", code="over-budget")


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) < len(pairs):
        raise ValueError("a name comes twice in an object")
    return entries


# Coefficients and odds ratios that model files keep.

COEFFICIENT: dict[str, Rule] = {
    "term": TEXT,
    "levels": TEXT,
    "sign": Leaf("-1, 0 or 1", (int,), lambda value: abs(value) <= 1),
    **dict.fromkeys(("estimate", "std_error"), optional(NUMBER)),
}
"""A row of a table of coefficients."""

CONTRASTS = Fields(
    {
        "level": NUMBER,
        "notes": Items(TEXT),
        "has_errors": FLAG,
        "has_tests": FLAG,
        "rows": Items(
            Fields({**COEFFICIENT, **dict.fromkeys(("limit", "p_value"), optional(NUMBER))}, {"exists": FLAG})
        ),
    },
    {"is_crude": FLAG, "num_searched": WHOLE},
)
"""Log odds ratios."""
