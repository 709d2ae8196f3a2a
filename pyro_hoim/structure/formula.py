"""A small formula language for hyperedge collections: ``smoke*mental + phys:systol + (a + b + c)^2 - a:b``.

Operators, binding tightest first: ``^k`` (products of up to k of the terms), ``:`` (product of sets), ``*``
(both factors and their product), ``+`` (union) and ``-`` (what stands before it without these sets and without those
that contain them, so that a hierarchical collection stays one; ``- a`` leaves out the variable). ``.`` is the sum of
all variables, ``1`` no interaction; unusual names are in backquotes. A hyphen inside a known name belongs to the name.
R's leading ``~`` may be written; the left side ``count ~`` of :func:`split_formula` names a column of counts.

Functions of variables, such as ``linear(a)`` or ``symmetric(a, b)``, are factors like names (:func:`parse_terms`).
"""

import itertools
import math
import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from ..budgets import MAX_FORMULA_SETS, MAX_UNIONS, check_size, num_sets
from ..errors import InputError, check_names, out_of_reach, refused, unexpected

_SMALLER = "use a smaller power, or products of fewer variables"
_MAX_CHARACTERS = 2**20
_SHOWN = 160  # characters of a formula in a message
_MAX_DEPTH = 64  # of parentheses, each of which takes five calls
_PIECE = 8  # variables of a set that take the memory and the time of one set of the budgets
_MAX_COMPARED = 2**26  # sets looked up for those behind a minus: some seconds
_TOKEN = re.compile(r"\s*(?:`(?P<quoted>[^`]+)`|(?P<name>[^\W\d][\w.?-]*)|(?P<number>\d+)|(?P<symbol>[-+*:^().,~]))")


class FunctionTerm(NamedTuple):
    """A function of variables in a formula: ``linear(a, 1, 2, 4)``; other arguments are numbers or one word."""

    function: str
    variables: tuple[str, ...]
    arguments: tuple[float, ...] | str = ()

    def __str__(self) -> str:
        return f"{self.function}({', '.join(self.variables)})"


_Terms = frozenset[frozenset[str | FunctionTerm]]


def split_formula(text: str) -> tuple[str | None, str]:
    """The name on the left of ``~``, None where there is none, and the right side."""
    tokens = _tokens(text)
    if len(tokens) > 1 and tokens[0][0] == "name" and tokens[1] == ("symbol", "~"):
        return tokens[0][1], text.partition("~")[2].strip()
    return None, text.strip().removeprefix("~").strip()


def _place(text: str) -> str:
    """How messages name a formula; of a long one they show the ends."""
    return f"formula {text if len(text) <= _SHOWN else f'{text[: _SHOWN // 2]} ... {text[-_SHOWN // 2 :]}'!r}"


def _tokens(text: str, names: Collection[str] = ()) -> list[tuple[str, str]]:
    """Split a formula into (kind, text) pairs; an unknown name ends before a hyphen where a known one does."""
    if len(text) > _MAX_CHARACTERS:
        problem = f"it has {len(text)} characters, the limit is {_MAX_CHARACTERS}"
        raise out_of_reach("formula", problem, "write powers, such as (a + b + c)^2")
    # A hyphen inside a known name belongs to the name.
    tokens: list[tuple[str, str]] = []
    position = 0
    stripped = text.rstrip()
    while position < len(stripped):
        match = _TOKEN.match(stripped, position)
        if match is None:
            rest = stripped[position:].lstrip()
            raise refused(_place(text), f"unexpected character {rest[0]!r} at position {len(text) - len(rest)}")
        kind = match.lastgroup or ""
        token, position = match.group(kind), match.end()
        if kind == "name" and token not in names:
            ends = [i for i, letter in enumerate(token) if letter == "-" and token[:i] in names]
            token, position = (token[: ends[-1]], match.start(kind) + ends[-1]) if ends else (token, position)
        tokens.append(("name" if kind == "quoted" else kind, token))
    return tokens


class _Parser:
    """Recursive descent over the tokens; every rule returns a set of variable sets."""

    def __init__(self, text: str, names: Sequence[str], closure: bool, functions: Mapping[str, int]) -> None:
        self.where = _place(text)
        self.names = names
        self.known = frozenset(names)
        self.functions = functions
        self.closure = closure
        self.tokens = _tokens(text, self.known)
        self.next = 0
        self.made = self.compared = self.depth = 0  # unions of sets, comparisons and open parentheses so far

    def parse(self) -> _Terms:
        if not self.tokens:
            hint = "write 1 for a model without interactions"
            raise unexpected(self.where, "at least one term", hint=hint, code="empty")
        self.accept("~")
        terms = self.sum()
        if self.next < len(self.tokens):
            if self.tokens[self.next] == ("symbol", "~"):
                problem = "a log-linear model has no response, so nothing stands on the left of ~"
                hint = "write the right side alone, and name a column of counts apart"
                raise refused(self.where, problem, hint)
            raise self.unexpected("an operator or the end")
        return terms

    def unexpected(self, wanted: str) -> InputError:
        received = repr(self.tokens[self.next][1]) if self.next < len(self.tokens) else "the end"
        return unexpected(self.where, wanted, received=received)

    def accept(self, symbol: str) -> bool:
        if self.next < len(self.tokens) and self.tokens[self.next] == ("symbol", symbol):
            self.next += 1
            return True
        return False

    def sum(self) -> _Terms:
        """Products that are added or removed, from left to right."""
        terms, added = self.product(), set[frozenset[str | FunctionTerm]]()  # what + adds is joined at once
        while (is_added := self.accept("+")) or self.accept("-"):
            other = self.product()
            if is_added:
                added |= other
            else:
                terms, added = self.without(terms | added, other), set()
        return terms | added

    def product(self, symbol: str = "*") -> _Terms:
        """Factors of one operator: unions of a set of each (``:``), or of each of some factors (``*``)."""
        is_crossed = symbol == "*"
        factors = list[_Terms]()
        while not factors or self.accept(symbol):
            factors.append(self.product(":") if is_crossed else self.power())
        sets = [frozenset[str | FunctionTerm]().union(*factor) for factor in factors]
        if sum(map(len, sets)) == len(frozenset().union(*sets)):  # then no two of the sets are equal
            self.check_size(math.prod(len(factor) + is_crossed for factor in factors) - is_crossed)
        terms = factors[0]
        for factor in factors[1:]:
            unions = self.unions(terms, factor)
            terms = terms | factor | unions if is_crossed else unions
        return terms

    def unions(self, first: _Terms, second: _Terms) -> _Terms:
        """All unions of a set of the first with a set of the second; refused where there are too many."""
        pieces = -(-sum(max(map(len, terms), default=0) for terms in (first, second)) // _PIECE)
        self.made += len(first) * len(second) * pieces
        unit = "sets" if pieces == 1 else f"sets of {_PIECE} variables"
        check_size(self.made, MAX_UNIONS, f"unions of {unit}", self.where, _SMALLER, "its products take")
        made = set[frozenset[str | FunctionTerm]]()
        for one in first:
            made.update(one | other for other in second)
            self.check_size(len(made) * pieces, unit)
        return frozenset(made)

    def without(self, terms: _Terms, removed: _Terms) -> _Terms:
        """Terms without the sets that contain a removed one; of a closed collection their other subsets stay."""
        holding = defaultdict[str | FunctionTerm, set[frozenset[str | FunctionTerm]]](set)
        for term in terms:
            for name in term:
                holding[name].add(term)
        self.compared += sum(min(len(holding[name]) for name in gone) for gone in removed)
        check_size(self.compared, _MAX_COMPARED, "sets", self.where, "list what stays", "its minus signs compare")
        # Small sets first; what contains them goes, what they had of it stays where the collection is closed.
        left = set(terms)
        for gone in sorted(removed, key=lambda gone: (len(gone), sorted(map(str, gone)))):
            larger = set[frozenset[str | FunctionTerm]].intersection(*(holding[name] for name in gone))
            if not larger:
                problem = f"there is no {':'.join(sorted(map(str, gone)))} to remove"
                raise refused(self.where, problem, code="unknown-name")
            if self.closure:  # subsets of the terms, so that something holds what is gone only if a term did
                facets = {term - {name} for term in larger & left for name in gone} - {frozenset()}
                for term in facets - left:
                    for name in term:
                        holding[name].add(term)
                left |= facets
                self.check_size(len(left))
            left -= larger
        return frozenset(left)

    def power(self) -> _Terms:
        terms = self.atom()
        while self.accept("^"):
            kind, exponent = self.tokens[self.next] if self.next < len(self.tokens) else ("", "0")
            if kind != "number" or not exponent.strip("0"):
                raise self.unexpected("a positive whole number after ^")
            self.next += 1
            terms = self.raise_to(terms, min(int(exponent.lstrip("0")[:10]), len(self.names)))
        return terms

    def raise_to(self, base: _Terms, exponent: int) -> _Terms:
        """Unions of up to ``exponent`` of the sets; refused when there would be millions."""
        if all(len(term) == 1 for term in base):
            self.check_size(num_sets(len(base), exponent))
            names = [next(iter(term)) for term in base]
            return frozenset(frozenset(c) for k in range(1, exponent + 1) for c in itertools.combinations(names, k))
        terms = base
        for _ in range(exponent - 1):
            terms = terms | self.unions(terms, base)
        return terms

    def check_size(self, size: int, unit: str = "sets") -> None:
        check_size(size, MAX_FORMULA_SETS, unit, self.where, _SMALLER, "it stands for")

    def atom(self) -> _Terms:
        if self.accept("("):
            self.depth += 1
            check_size(self.depth, _MAX_DEPTH, "parentheses", self.where, "write fewer", "inside one another are")
            terms = self.sum()
            if not self.accept(")"):
                raise self.unexpected(")")
            self.depth -= 1
            return terms
        if self.accept("."):
            return frozenset(frozenset([name]) for name in self.names)
        # A function, a variable, or the model without interactions.
        if self.next < len(self.tokens):
            kind, token = self.tokens[self.next]
            if kind == "name" and self.tokens[self.next + 1 : self.next + 2] == [("symbol", "(")]:
                return frozenset([frozenset([self.function(token)])])
            if kind == "name":
                return frozenset([frozenset([self.name()])])
            if (kind, token) == ("number", "1"):
                self.next += 1
                return frozenset()
        raise self.unexpected("a variable name")

    def name(self) -> str:
        """The variable that comes next."""
        kind, token = self.tokens[self.next] if self.next < len(self.tokens) else ("", "")
        if kind != "name":
            raise self.unexpected("a variable name")
        if token not in self.known:
            check_names([token], self.names, self.where)
        self.next += 1
        return token

    def function(self, name: str) -> FunctionTerm:
        """A function with its variables, and numbers or a word behind them."""
        if not self.functions:
            hint = "log_linear.restricted_interactions reads such formulas"
            raise refused(self.where, f"a collection of interactions has no {name}(...)", hint, "no-method")
        check_names([name], tuple(self.functions), self.where, "function")
        self.next += 2
        variables = [self.name()]
        while len(variables) < self.functions[name]:
            if not self.accept(","):
                raise self.unexpected(f"{self.functions[name]} variables in {name}(...)")
            variables.append(self.name())
        # Numbers, or one word.
        word, numbers = "", list[float]()
        while not word and self.accept(","):
            kind, token = self.tokens[self.next] if self.next < len(self.tokens) else ("", "")
            if kind == "name" and not numbers:
                word, self.next = token, self.next + 1
            else:
                numbers.append(self.number())
        if not self.accept(")"):
            raise self.unexpected(")")
        return FunctionTerm(name, tuple(variables), word or tuple(numbers))

    def number(self) -> float:
        """A decimal number, whose sign and point are symbols."""
        sign, parts = (-1.0 if self.accept("-") else 1.0), list[str]()
        while not parts or self.accept("."):
            kind, token = self.tokens[self.next] if self.next < len(self.tokens) else ("", "")
            if kind != "number" or len(parts) == 2:
                raise self.unexpected("a number")
            parts.append(token)
            self.next += 1
        value = sign * float(".".join(parts))
        if math.isinf(value):
            raise unexpected(self.where, "finite numbers", received=value, code="not-finite")
        return value


def parse_formula(text: str, names: Sequence[str], *, closure: bool = False) -> frozenset[frozenset[str]]:
    """Set of variable sets that a formula (see the module) stands for; others are refused.

    With ``closure`` the subsets of every set belong to the collection although they are not listed: then
    ``a:b:c - a:b`` leaves ``a:c`` and ``b:c``.
    """
    terms = _Parser(text, names, closure, {}).parse()
    return frozenset(frozenset(map(str, term)) for term in terms)


def parse_terms(text: str, names: Sequence[str], functions: Mapping[str, int], *, closure: bool = False) -> _Terms:
    """As :func:`parse_formula`, with functions of so many variables as factors of the terms."""
    return _Parser(text, names, closure, functions).parse()
