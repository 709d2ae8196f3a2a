"""Which order of the levels of a variable is known, and from where: declared, of numbers, of ranges or of words."""

import json
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from math import inf
from typing import NamedTuple

import numpy as np
import torch

from ..errors import InputError, check_names
from ..schema import Domain, Variable
from .counting import code_type
from .observations import Observations

__all__ = [
    "Order",
    "Place",
    "known_order",
    "ordered_columns",
    "ordinal_orders",
    "place_of",
    "relabelled",
    "required_order",
    "with_ordinal",
]

_MOST_SHOWN = 12  # levels of an order in a sentence
_LONGEST = 80  # characters of a label that may be a range

_SCALES = """
none/zero < lowest/extremely low < very low < low
  < rather low/somewhat low/medium low/moderately low/below average
  < medium/moderate/middle/mid/intermediate/average/normal
  < rather high/somewhat high/medium high/moderately high/above average < high < very high
  < highest/extremely high
never < almost never/hardly ever/very rarely < rarely/seldom < sometimes/occasionally/about half the time
  < often/frequently/usually/regularly < very often/very frequently/almost always/most of the time/nearly always
  < always/all the time
strongly disagree/completely disagree/totally disagree/fully disagree < disagree/mostly disagree
  < somewhat disagree/slightly disagree/tend to disagree/rather disagree/partly disagree
  < neither/neutral/undecided/neither agree nor disagree/neither disagree nor agree/neither nor
  < somewhat agree/slightly agree/tend to agree/rather agree/partly agree < agree/mostly agree
  < strongly agree/completely agree/totally agree/fully agree
very dissatisfied/very unsatisfied/extremely dissatisfied < dissatisfied/unsatisfied/not satisfied
  < somewhat dissatisfied/rather dissatisfied/slightly dissatisfied
  < neither/neutral/neither satisfied nor dissatisfied/neither dissatisfied nor satisfied
  < somewhat satisfied/rather satisfied/slightly satisfied < satisfied < very satisfied/extremely satisfied
very unhappy < unhappy/not happy/not too happy < neither/neutral < pretty happy/rather happy < happy
  < very happy
none/absent/no/not at all < minimal/very mild/trace < mild/slight < moderate < moderately severe
  < severe/serious < very severe/critical/extreme
not at all < several days < more than half the days < nearly every day
very poor/very bad/terrible < poor/bad < fair/acceptable/average/neutral/ok/okay < good < very good
  < excellent/outstanding
xxs < extra small/very small/xs/tiny < small/s < medium/m < large/big/l < extra large/very large/very big/xl
  < xxl/2xl/huge < xxxl/3xl
none < few < some/several < many/most < all
none/not at all < a little/little/a bit/a little bit/slightly < somewhat/some/moderately
  < quite a bit/quite a lot/considerably < a lot/much/very/very much/a great deal < extremely
none < very light < light < moderate/medium < heavy < very heavy
very unlikely/extremely unlikely < unlikely < somewhat unlikely/rather unlikely < neutral/neither
  < somewhat likely/rather likely < likely < very likely/extremely likely
not important/unimportant/not at all important < slightly important/a little important/not very important
  < moderately important/somewhat important/fairly important < important < very important < extremely important
very negative < negative < neutral < positive < very positive
much worse < worse < somewhat worse/slightly worse/a little worse < same/the same/about the same/unchanged
  < somewhat better/slightly better/a little better < better < much better
decreased/decrease < unchanged/stable/same/no change < increased/increase
strongly oppose < oppose < somewhat oppose < neutral/neither < somewhat support/somewhat favor
  < support/favor/favour < strongly support/strongly favor/strongly favour
definitely no/definitely not < no/probably no/probably not < maybe/perhaps/unsure/undecided
  < yes/probably/probably yes < definitely/definitely yes
freezing < very cold < cold < cool < mild < warm < hot < very hot
very weak < weak < moderate/medium < strong < very strong
very slow < slow < moderate/medium/normal < fast < very fast
very short < short < medium/average < tall/long < very tall/very long
very easy < easy < medium/moderate/neutral < hard/difficult < very hard/very difficult
novice/beginner < intermediate < advanced < expert
newborn < infant < toddler < child < adolescent/teenager/teen < young adult < adult < senior/elderly/older adult
young < middle aged/middle age < old < very old
underweight < normal/normal weight/healthy weight < overweight < obese/obesity < severely obese/extremely obese
lower/lower class < lower middle/lower middle class < middle/middle class < upper middle/upper middle class
  < upper/upper class
bronze < silver < gold < platinum
past < present < future
before < during < after
early < middle/mid < late
zero/never < one/once < two/twice < three < four < five < six < seven < eight < nine < ten
first < second < third < fourth < fifth < sixth < seventh < eighth < ninth < tenth
i < ii < iii < iv < v < vi < vii < viii < ix < x
monday/mon < tuesday/tue/tues < wednesday/wed < thursday/thu/thur/thurs < friday/fri < saturday/sat < sunday/sun
january/jan < february/feb < march/mar < april/apr < may < june/jun < july/jul < august/aug < september/sep/sept
  < october/oct < november/nov < december/dec
no/n/false < yes/y/true
"""
"""Common scales, one a line, from lowest to highest; words between slashes stand for one place, so that two of them in
one column have no order.

Not here are words whose order depends on the study: education, grades in letters, smoking, parties.
"""

_PHRASES = tuple(
    (re.compile(pattern), sign)
    for pattern, sign in (
        (r"(?:\bor\b|\band\b|&) ?(?:more|over|above|older|higher|greater|up|upwards?|later|longer)\b|\bplus\b", "+"),
        (r"(?:\bor\b|\band\b|&) ?(?:less|fewer|under|below|younger|lower|smaller|earlier|shorter)\b", "↓"),
        (r"\b(?:less|fewer|lower|smaller|younger) than or equal to\b|\b(?:up to|at most|no more than|maximum)\b", "<="),
        (r"\b(?:more|greater|higher|larger|older) than or equal to\b|\b(?:at least|no less than|minimum)\b", ">="),
        (r"\b(?:less|fewer|lower|smaller|younger|shorter) than\b|\b(?:under|below)\b", "<"),
        (r"\b(?:more|greater|higher|larger|older|longer) than\b|\b(?:over|above)\b", ">"),
        (r"\b(?:to|through|thru)\b|\.\.+", "-"),
        (r"=<", "<="),
        (r"=>", ">="),
    )
)
"""Words of ranges and the signs that stand for them."""

_CURRENCY = "$€£¥"
_AMOUNT = (
    rf"[-+]?[{_CURRENCY}]?[ ]?(?:[1-9]\d{{0,2}}(?:[,' ]\d{{3}})+|\d+)(?:\.\d+)?(?:e[-+]?\d+)?(?:st|nd|rd|th)?"
    r"(?:[ ]?(?:k|thousand|million|bn|billion)\b)?"
)
_UNIT = r"(?:[^\W\d_]|[%°/])(?:[^\W\d_]|[ %°/.]|(?<=m)[23])*"
_INFINITE = r"[-+]?inf(?:inity)?"
_END = rf"{_AMOUNT}|{_INFINITE}"
_POINT = re.compile(rf"(?P<low>{_AMOUNT}) ?(?P<unit>{_UNIT})?")
_BETWEEN = re.compile(
    rf"(?:>=?|from|between)? ?(?P<low>{_END}) ?(?P<inner>{_UNIT})?? ?(?:-|\band\b|&) ?(?:<=?)? ?(?P<high>{_END})"
    rf" ?(?P<unit>{_UNIT})?"
)
_AROUND = re.compile(rf"(?P<low>{_END}) ?<=? ?(?P<unit>[^\W\d_]+) ?<=? ?(?P<high>{_END})")
_BELOW = re.compile(
    rf"<=? ?(?P<high>{_AMOUNT}) ?(?P<unit>{_UNIT})?"
    rf"|(?P<high_2>{_AMOUNT}) ?(?P<unit_2>{_UNIT})?? ?↓ ?(?P<unit_3>{_UNIT})?"
)
_ABOVE = re.compile(
    rf"(?:>=?|from) ?(?P<low>{_AMOUNT}) ?(?P<unit>{_UNIT})?"
    rf"|(?P<low_2>{_AMOUNT}) ?(?P<unit_2>{_UNIT})?? ?\+ ?(?P<unit_3>{_UNIT})?"
)
_PLAIN = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?"
_INTERVAL = re.compile(
    rf"[\[\](] ?(?P<low>{_PLAIN}|{_INFINITE}) ?[,;] ?(?P<high>{_PLAIN}|{_INFINITE}) ?[\[\])]"
    rf" ?(?P<unit>{_UNIT})?"
)
_PREFIX = re.compile(r"(?P<prefix>[^\W\d_][^\W\d_ ]*(?: [^\W\d_]+)*?) ?[:=]? ?(?=[-+<>≥≤(\[$€£¥\d.])")
_COUNTED = re.compile(
    "age|aged|ages|class|day|decile|dose|grade|level|month|phase|q"
    "|quarter|quartile|quintile|rank|round|score|stage|step|tertile|time|visit|wave|week|year"
)
"""Nouns that are counted: of ``stage 2`` the number says a place, of ``region 2`` it does not."""
_DATE = re.compile(
    r"\d{4}(?:-?q[1-4]|-(?:0[1-9]|1[0-2])|-w\d\d|-\d\d-\d\d(?:[t ]\d\d:\d\d(?::\d\d)?)?)|\d\d:\d\d(?::\d\d)?"
)
_IMPLIED = frozenset(("%", "age", "aged", "old", "y", "year", "yr"))
_DECIMALS = re.compile(r"\d\.(\d+)")
_FACTORS = {"k": 1e3, "thousand": 1e3, "million": 1e6, "bn": 1e9, "billion": 1e9}


@dataclass(frozen=True)
class Order:
    """An order of the levels of a variable.

    Attributes:
        labels: from the lowest to the highest.
        source: what says so, in words.
        numbers: what the labels say, where each is one number.
    """

    labels: tuple[str, ...]
    source: str
    numbers: tuple[float, ...] | None = None

    @property
    def has_gaps(self) -> bool:
        """Whether the labels are numbers that ranks do not replace, since they are not equally far apart."""
        steps = np.diff(self.numbers or ())
        return len(steps) > 1 and not np.allclose(steps, steps[0])

    @property
    def shown(self) -> str:
        """The levels, of many the lowest and the highest; in quotes where they have signs of their own."""
        shown = self.labels
        if re.search("[<>]", "".join(shown)):
            shown = tuple(f"'{label}'" for label in shown)
        if len(shown) > _MOST_SHOWN:
            shown = (*shown[: _MOST_SHOWN // 2], f"({len(shown) - _MOST_SHOWN} more)", *shown[-_MOST_SHOWN // 2 :])
        return " < ".join(shown)

    def __str__(self) -> str:
        ranks = f"; the ranks 1 to {len(self.labels)} are used, not the numbers" if self.has_gaps else ""
        return f"{self.shown} ({self.source}{ranks})"


class Place(NamedTuple):
    """Where a label stands: the lowest and the highest number that it says, and their unit."""

    low: float
    high: float
    unit: str = ""


def place_of(label: str) -> Place | None:
    """Where a label stands on the number line; None for words."""
    if len(label) > _LONGEST:
        return None
    # One spelling of signs, blanks and currencies.
    text = unicodedata.normalize("NFKC", label.replace("…", "..")).casefold()
    text = text.translate({ord(sign): "-" for sign in "‐‑‒–—−~"})
    text = text.replace("≤", "<=").replace("⩽", "<=").replace("≥", ">=").replace("⩾", ">=").replace("∞", "inf")
    text = " ".join(text.replace("’", "'").split())
    if re.search(rf"[{_CURRENCY}]", text):
        text = re.sub(r"(?<=\d) ?m\b", " million", text)  # else metres, or months
    # Words of ranges become signs.
    for pattern, sign in _PHRASES:
        text = pattern.sub(sign, text)
    text = " ".join(text.split())
    # A noun before the number is part of the unit, if it is one that is counted.
    reading = _read(text)
    if reading is None and (prefix := _PREFIX.match(text)):
        reading, noun = _read(text[prefix.end() :]), prefix["prefix"]
        if reading is None or (reading.low == reading.high and not _COUNTED.fullmatch(noun)):
            return None
        reading = reading._replace(unit=f"{noun} {reading.unit}".strip())
    return reading and reading._replace(unit=" ".join(word for word in map(_singular, reading.unit.split()) if word))


def _singular(noun: str) -> str:
    """A unit as it is compared: years and percent are not said of every level."""
    word = noun.rstrip("s.")
    return "" if word in _IMPLIED else word


def _read(text: str) -> Place | None:
    """Where a text of numbers, signs and a unit stands."""
    for pattern in (_POINT, _INTERVAL, _BETWEEN, _AROUND, _BELOW, _ABOVE):
        if match := pattern.fullmatch(text):
            break
    else:
        return None
    # Alternatives of a pattern have names of their own for the same part.
    parts: dict[str, str] = {}
    for name, part in match.groupdict(default="").items():
        parts[name.partition("_")[0]] = parts.get(name.partition("_")[0], "") or part.strip()
    unit, inner = (parts.get(name, "") for name in ("unit", "inner"))
    if inner and unit not in ("", inner, f"{inner}s"):
        return None
    if pattern is _POINT:
        value = _number(parts["low"])
        return Place(value, value, unit)
    # Ends that are not written are infinite.
    low = _number(parts["low"]) if "low" in parts else -inf
    high = _number(parts["high"]) if "high" in parts else inf
    factor = _factor(parts.get("high", ""))
    if "low" in parts and _factor(parts["low"]) == 1 and low * factor <= high:  # 10-20k
        low *= factor
    return Place(low, high, unit or inner) if low <= high and low < inf and high > -inf else None


def _factor(amount: str) -> float:
    word = re.search(r"[a-z]+$", amount)
    return _FACTORS.get(word[0], 1.0) if word else 1.0


def _number(amount: str) -> float:
    """The number that an amount says: ``$10,000``, ``10k``, ``2nd``, ``-inf``."""
    if "inf" in amount:
        return -inf if amount.startswith("-") else inf
    plain = re.match(r"[-+]?\d*\.?\d+\.?(?:e[-+]?\d+)?", re.sub(rf"[{_CURRENCY},' ]", "", amount))
    return float(plain[0] if plain else amount) * _factor(amount)


def known_order(variable: Variable) -> Order | None:
    """The order of the levels of a finite variable, None where nothing says one.

    An ordinal variable declares it. Else numbers and ranges of numbers (``5-9``, ``<18``, ``65+``, ``(0, 3]``) that do
    not lie in one another say it, dates as ISO writes them, and words of one common scale (``low``, ``medium``,
    ``high``; ``never`` to ``always``; months). Two levels have the order in which they stand, if no other is known.
    """
    labels = variable.labels
    by_place = _by_place(labels)
    if variable.kind == "ordinal":
        return Order(labels, "declared", by_place.numbers if by_place and by_place.labels == labels else None)
    order = by_place or _by_date(labels) or _by_scale(labels)
    if order is None and len(labels) < 3:
        return Order(labels, "as the two levels stand" if len(labels) == 2 else "one level")
    return order


def _by_place(labels: Sequence[str]) -> Order | None:
    """The order of numbers and ranges."""
    places: dict[str, Place] = {}
    for label in labels:
        position = place_of(label)
        if position is None:
            return None
        places[label] = position
    if len({position.unit for position in places.values() if position[:2] != (0, 0)}) > 1:  # nothing has no unit
        return None
    # Ranges that lie in one another have no order.
    ranked = sorted(labels, key=lambda label: places[label][:2])
    if not all(_is_below(places[one], places[two]) for one, two in pairwise(ranked)):
        return None
    if all(position.low == position.high for position in places.values()):
        decimals = {(fraction[1] if (fraction := _DECIMALS.search(label)) else "") for label in labels}
        if len({*map(len, decimals)}) > 1 and any(len(part) > 1 and part.endswith("0") for part in decimals):
            return None  # versions (3.9, 3.10), or thousands (500, 1.000)
        return Order(tuple(ranked), "numbers", tuple(places[label].low for label in ranked))
    return Order(tuple(ranked), "ranges of numbers")


def _is_below(one: Place, two: Place) -> bool:
    """Whether a place comes before another that begins no earlier; neither lies within the other, but at an end."""
    if one[:2] == two[:2] or two.high < one.high:
        return False
    is_open = one.low == -inf or one.low == one.high  # <20 and <40, or 5 and 5+
    return (one.low < two.low or is_open) and (one.high < two.high or two.high == inf or two.low == two.high)


def _by_date(labels: Sequence[str]) -> Order | None:
    """The order of dates and times of one format, which is that of their text."""
    texts = [label.strip().casefold() for label in labels]
    formats = {re.sub(r"\d", "0", text) for text in texts}
    if len(formats) > 1 or len(set(texts)) < len(texts) or not all(map(_DATE.fullmatch, texts)):
        return None
    return Order(tuple(sorted(labels, key=str.casefold)), "dates")


@lru_cache(1)
def _scales() -> tuple[dict[str, int], ...]:
    """The places of the words of every common scale."""
    return tuple(
        {word: rank for rank, words in enumerate(scale.split(" < ")) for word in words.split("/")}
        for scale in _SCALES.replace("\n  <", " <").strip().split("\n")
    )


def _by_scale(labels: Sequence[str]) -> Order | None:
    """The order of words of common scales, where all that hold them agree."""
    # Words without case, signs and what all labels share.
    words = [re.sub(r"(?<=[a-z])(?=[A-Z])", " ", unicodedata.normalize("NFKC", label)).casefold() for label in labels]
    words = [" ".join(re.sub(r"[^\w]|_", " ", word).split()) for word in words]
    split = [word.split() or [""] for word in words]
    if len({parts[0] for parts in split}) == 1 and _COUNTED.fullmatch(split[0][0]):  # stage I, stage II
        words = [" ".join(parts[1:]) for parts in split]
    elif len({parts[-1] for parts in split}) == 1 and not any(word in scale for scale in _scales() for word in words):
        words = [" ".join(parts[:-1]) for parts in split]  # low risk, high risk
    # Scales that hold all words must agree on their order.
    orders: set[tuple[str, ...]] = set()
    for scale in _scales():
        places = [scale.get(word, -1) for word in words]
        if -1 not in places and len(set(places)) == len(places):
            orders.add(tuple(labels[i] for i in sorted(range(len(labels)), key=places.__getitem__)))
    return Order(orders.pop(), "a common scale") if len(orders) == 1 else None


def required_order(variable: Variable, where: str) -> Order:
    """The order of the levels of a variable, for ``where`` it is used; refused where none is known."""
    order = known_order(variable)
    if order is None:
        name, labels = variable.name, list(variable.labels)
        shown = Order(variable.labels, "").shown
        raise InputError(
            f"nothing says the order of the levels of {name!r}; as they stand it would be {shown}",
            argument=where,
            received=json.dumps({name: labels}, ensure_ascii=False),
            hint=f"say it, in the right order: pd.Categorical(frame[{name!r}], categories={labels!r}, ordered=True)",
            code="unknown-order",
        )
    return order


def ordinal_orders(domain: Domain) -> dict[str, Order]:
    """The orders of ordinal variables of three levels or more, by name; an order of two says nothing of neighbours."""
    variables = [v for v in domain if v.kind == "ordinal" and v.cardinality > 2]
    return {variable.name: required_order(variable, variable.name) for variable in variables}


def ordered_columns(data: Observations) -> tuple[str, ...]:
    """Nominal variables of three levels or more whose order is known: of numbers, ranges, dates or a common scale."""
    nominal = [variable for variable in data.domain if variable.kind == "nominal" and variable.cardinality > 2]
    return tuple(variable.name for variable in nominal if known_order(variable) is not None)


def with_ordinal(data: Observations, names: Sequence[str]) -> Observations:
    """The same rows with some variables ordinal, their levels in the order that is known of them.

    Raises:
        UnknownNameError: an unknown name.
        InputError: a variable of which no order is known.
    """
    check_names(list(names), data.domain.names, "names", noun="column")
    variables = [data.domain[name] for name in names]
    orders = [required_order(variable, "ordinal").labels for variable in variables]
    return relabelled(
        data, [replace(v, labels=labels, kind="ordinal") for v, labels in zip(variables, orders, strict=True)]
    )


def relabelled(data: Observations, variables: Iterable[Variable]) -> Observations:
    """The same rows with some columns over other levels; cells whose label is none of these are missing."""
    known = {variable.name: variable for variable in variables}
    domain = Domain(known.get(old.name, old) for old in data.domain)
    codes = np.empty(data.narrow.shape, dtype=code_type(domain.cardinalities))
    for column, (old, new) in enumerate(zip(data.domain, domain, strict=True)):
        code_of = {label: code for code, label in enumerate(new.labels)}
        code_of_code = np.array([*(code_of.get(label, -1) for label in old.labels), -1])
        codes[:, column] = code_of_code[data.narrow[:, column].numpy()]
    return data.replaced(domain=domain, codes=torch.from_numpy(codes))
