"""Numbers and dates cut into ordered levels: the cut points are found once and serve new rows as well."""

from __future__ import annotations

import datetime as dt
import math
import re
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import pandas as pd

from ..errors import (
    InputError,
    check_names,
    check_type,
    check_unique,
    conflict,
    none_received,
    out_of_range,
    refused,
    unexpected,
)
from .encoding import is_empty, to_numbers
from .readers import row_position

_MOST_LEVELS = 1000
_RULES = "quantile:4, spread:32, width:5 or edges:0,10,20"
_RULE = re.compile(r"(quantile|spread|width|edges):.+")
_MOST_DAYS = 1e7
_PERIODS = {"week": "W", "month": "M", "quarter": "Q", "year": "Y"}
_DATE = re.compile(r"\d{4}-\d{1,2}-\d{1,2}(?:[ T].*)?|\d{1,2}[./]\d{1,2}[./]\d{4}")
_FORMATS = ("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y")


@dataclass(frozen=True)
class Bins:
    """Cut points of one column, each the smallest value of its upper level.

    Attributes:
        cuts: increasing numbers; of dates, days since 1970-01-01.
        kind: what the column holds.
        rule: how the cut points were asked for, such as ``quantile:4``.
    """

    cuts: tuple[float, ...]
    kind: Literal["numbers", "dates"] = "numbers"
    rule: str = ""

    def __post_init__(self) -> None:
        if not self.cuts:
            raise none_received("cuts", "at least one cut point")
        if any(not math.isfinite(cut) for cut in self.cuts) or list(self.cuts) != sorted(set(self.cuts)):
            raise unexpected("cuts", "finite numbers, each larger than the one before", self.cuts)
        if self.kind == "dates" and max(map(abs, self.cuts)) > _MOST_DAYS:
            raise out_of_range("cuts", f"at most {_MOST_DAYS:.0f} days from 1970", self.cuts)

    @property
    def labels(self) -> tuple[str, ...]:
        """The levels, lowest first."""
        texts = [self._text(cut) for cut in self.cuts]
        between = [f"[{low}, {high})" for low, high in pairwise(texts)]
        return (f"<{texts[0]}", *between, f">={texts[-1]}")

    def label(self, value: float) -> str:
        """The level of a number, or of days since 1970-01-01."""
        return self.labels[bisect_right(self.cuts, value)]

    def apply(self, values: Any, where: Callable[[int], str] = row_position, name: str = "") -> list[str]:
        """Levels of values or their text, empty where missing; InputError for what is no number or date."""
        labels = np.array([*self.labels, ""], dtype=object)
        return list(labels[self.codes(values, where, name)])

    def codes(self, values: Any, where: Callable[[int], str] = row_position, name: str = "") -> np.ndarray:
        """Positions (N,) among the levels, -1 where missing, of values as :meth:`apply` takes them."""
        numbers = self.numbers(values, where, name)
        return np.where(np.isnan(numbers), -1, np.searchsorted(self.cuts, numbers, side="right"))

    def numbers(self, values: Any, where: Callable[[int], str] = row_position, name: str = "") -> np.ndarray:
        """Numbers, or days since 1970-01-01 (N,), NaN where missing, of values as :meth:`apply` takes them."""
        return _numbers(values, self.kind, where, name)

    def to_json(self) -> dict[str, Any]:
        """What a model file keeps."""
        return {"cuts": list(self.cuts), "kind": self.kind, "rule": self.rule}

    @classmethod
    def from_json(cls, held: Mapping[str, Any]) -> Bins:
        """From what a model file keeps."""
        return cls(tuple(map(float, held["cuts"])), held["kind"], str(held["rule"]))

    def sentence(self, name: str) -> str:
        """What a reader has to know."""
        return f"{name} was cut at {self.cut_text} ({self.rule})"

    @property
    def cut_text(self) -> str:
        """The cut points, separated by commas."""
        return ", ".join(self._text(cut) for cut in self.cuts)

    def _text(self, cut: float) -> str:
        if self.kind == "dates":
            return str(np.datetime64(round(cut * 86400), "s")).removesuffix("T00:00:00")
        return str(int(cut)) if cut.is_integer() and abs(cut) < 1e15 else repr(cut)


_BETWEEN = re.compile(r"<(?P<first>[^<>,]+)|>=(?P<last>[^<>,]+)|\[(?P<low>[^,]+), (?P<high>[^,)]+)\)")


def cuts_of(labels: Sequence[str]) -> Bins | None:
    """The cut points between which levels lie, which the labels say; None where one of them is no such level.

    Example:
        >>> cuts_of(("<20", "[20, 30)", ">=40")).cuts, cuts_of(("low", ">=40"))
        ((20.0, 30.0, 40.0), None)
    """
    matches = [_BETWEEN.fullmatch(label) for label in labels]
    words = {word for match in matches if match is not None for word in match.groups() if word is not None}
    if not words or None in matches:
        return None
    kind: Literal["numbers", "dates"] = "dates" if is_dates(words) else "numbers"
    try:
        cuts = Bins(tuple(sorted(set(_numbers([*words], kind, row_position, "").tolist()))), kind)
    except InputError:
        return None
    return cuts if {*labels} <= {*cuts.labels} else None


def parse_bins(words: Sequence[str]) -> dict[str, str]:
    """Rules by column from ``COLUMN=RULE``, and from ``auto`` or ``RULE`` that of all others, under ``*``."""
    rules: dict[str, str] = {}
    for text in words:
        if text == "auto" or is_rule(text):
            if rules.setdefault("*", text) != text:
                raise conflict("bins", f"{rules['*']} and {text} cannot both be the rule of all columns")
            continue
        name, equals, rule = text.rpartition("=")
        if not equals or not name.strip():
            raise unexpected("bins", f"auto, RULE or COLUMN=RULE, the rule being {_RULES}", text)
        if name.strip() in rules:
            raise refused("bins", f"column {name.strip()!r} is cut twice", code="repeated-name")
        rules[name.strip()] = rule.strip()
    return rules


def is_rule(text: str) -> bool:
    """Whether a text is a rule of :func:`find_bins` by its first word, and no name of a column with a rule."""
    return bool(_RULE.fullmatch(text)) and "=" not in text


def edge_bins(rule: str, name: str) -> Bins:
    """Numbers to cut a column at, of a rule that needs no look at the rows."""
    method, _, text = rule.partition(":")
    words = text.split(",")
    if method != "edges" or is_dates(words):
        expected = "numbers to cut at, such as edges:0,10,20, for rows that are read piece by piece"
        raise unexpected(f"bins of {name!r}", expected, rule, code="unknown-choice")
    return Bins(tuple(_edges(words, "numbers", rule, name)), "numbers", rule)


def find_bins(
    values: Any, rule: str, weights: Any = None, *, where: Callable[[int], str] = row_position, name: str = "column"
) -> Bins:
    """Cut points of a column by a rule.

    Args:
        values: numbers or dates, or their text; missing ones do not count.
        rule: ``quantile:K``, K levels of about the same number of rows, cut at values; ``spread:K``, likewise, but a
            value that has more rows than its level should have is a level of its own and the others share what is left,
            so that of many zeros and few other numbers these are told apart; ``width:W``, levels W units (of dates:
            days) wide that begin at multiples of W, or ``width:week``, ``month``, ``quarter``, ``year`` of dates;
            ``edges:A,B,...``, the cut points themselves.
        weights: of the rows (N,), which quantiles respect; ones by default.
        where: words for the position of a row in messages.
        name: of the column, in messages.

    Raises:
        InputError: another rule, a value that is no number or date, or a rule that leaves one level, or too many.

    Example:
        >>> find_bins([1, 2, 3, 4, 5, 6], "quantile:2").labels
        ('<4', '>=4')
    """
    # Numbers, or days of dates, of the rows that have one.
    kind: Literal["numbers", "dates"] = "dates" if is_dates(values) else "numbers"
    numbers = _numbers(values, kind, where, name)
    is_held = ~np.isnan(numbers)
    shares = np.ones(len(numbers)) if weights is None else np.asarray(weights, dtype=float)
    numbers, shares = numbers[is_held], shares[is_held]
    if not len(numbers) or not shares.sum() > 0:
        raise none_received(f"bins of {name!r}", "at least one value")
    # What the rule asks for.
    method, _, text = rule.partition(":")
    if method == "quantile":
        # Values that leave shares below them as near as possible to 1/K, 2/K, ..
        parts = _number(text, rule, name, whole=True)
        distinct, places = np.unique(numbers, return_inverse=True)
        counts = np.bincount(places, shares)
        below = np.concatenate([[0.0], np.cumsum(counts)[:-1]]) / counts.sum()
        nearest = {int(np.argmin(abs(below - k / parts))) for k in range(1, int(parts))}
        cuts = [float(distinct[i]) for i in sorted(nearest) if i > 0]
    elif method == "spread":
        # Levels of about the same weight, frequent values on their own.
        levels = int(_number(text, rule, name, whole=True))
        # Values that are levels of their own, until the share of the others is as large as any of these.
        values, places = np.unique(numbers, return_inverse=True)
        sizes = np.bincount(places, shares)
        is_heavy = np.zeros(len(values), dtype=bool)
        while not is_heavy.all() and is_heavy.sum() < levels:
            share = sizes[~is_heavy].sum() / (levels - is_heavy.sum())
            heavier = ~is_heavy & (sizes > share)
            if not heavier.any():
                break
            is_heavy |= heavier
        # Others are cut where the middle of a value's weight passes a multiple of the share.
        light = np.where(is_heavy, 0.0, sizes)
        share = max(light.sum() / max(levels - is_heavy.sum(), 1), np.finfo(float).tiny)
        part = ((np.cumsum(light) - light / 2) / share).astype(int)
        is_cut = is_heavy[1:] | is_heavy[:-1] | (part[1:] > part[:-1])
        cuts = list(map(float, values[1:][is_cut] if is_cut.any() else values[1:][-1:]))
    elif method == "width" and text in _PERIODS and kind == "dates":
        # First days of the weeks, months, quarters or years that begin among the dates.
        low, high = (pd.Timestamp(round(day * 86400), unit="s") for day in (numbers.min(), numbers.max()))
        if not (pd.Timestamp.min < low and high < pd.Timestamp.max):
            received = f"{low.year} to {high.year}"
            raise out_of_range("bins", "dates from 1678 to 2261, to be cut by periods", received=received)
        starts = pd.period_range(low, high, freq=_PERIODS[text]).start_time
        cuts = [float(start.value // 10**9 / 86400) for start in starts[1:]]
    elif method == "width":
        # Multiples of the width above the smallest value, up to the largest.
        width = _number(text, rule, name)
        with np.errstate(over="ignore"):
            low, high = np.floor([numbers.min() / width, numbers.max() / width])
        if not high - low <= _MOST_LEVELS:
            received = f"{high - low + 1:.15g} by width:{width:g}"
            raise out_of_range("bins", f"at most {_MOST_LEVELS} levels", received=received)
        first, last = int(low) + 1, int(high)
        cuts = [float(f"{k * width:.12g}") for k in range(first, last + 1)]
    elif method == "edges":
        cuts = _edges(text.split(","), kind, rule, name)
    else:
        raise unexpected(f"bins of {name!r}", _RULES, rule, code="unknown-choice")
    # One level says nothing, and too many cannot be learned.
    if not cuts:
        hint = "leave the column out, or use other edges" if method == "edges" else "use more levels, or give edges"
        raise refused(f"bins of {name!r}", f"{rule} leaves one level of values from {numbers.min():g} on", hint)
    if len(cuts) >= _MOST_LEVELS:
        raise out_of_range(f"bins of {name!r}", f"at most {_MOST_LEVELS} levels", received=f"{len(cuts) + 1} by {rule}")
    return Bins(tuple(cuts), kind, rule)


def _number(text: str, rule: str, name: str, whole: bool = False) -> float:
    """The number of a rule."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0) or (whole and (value < 2 or not value.is_integer())):
        expected = "a whole number of levels of at least 2" if whole else "a positive width"
        raise unexpected(f"bins of {name!r}", f"{expected} behind the colon", rule)
    if whole and value > _MOST_LEVELS:
        raise out_of_range(f"bins of {name!r}", f"at most {_MOST_LEVELS} levels", rule)
    return value


def _edges(words: Sequence[str], kind: Literal["numbers", "dates"], rule: str, name: str) -> list[float]:
    """Cut points that were written."""
    edges = _numbers([word.strip() for word in words], kind, lambda i: f"bins of {name!r} edge {i + 1}", name)
    if np.isnan(edges).any() or list(edges) != sorted(set(edges.tolist())):
        raise unexpected(f"bins of {name!r}", "edges in increasing order", rule)
    return edges.tolist()


def is_dates(values: Any) -> bool:
    """Whether there are dates, or texts all of which look like them."""
    if pd.api.types.is_datetime64_any_dtype(values) or isinstance(getattr(values, "dtype", None), pd.PeriodDtype):
        return True
    texts = {value for value in values if isinstance(value, str) and value.strip()}
    dates = (value for value in values if isinstance(value, dt.date | pd.Period))  # a moment is a date, too
    has_dates = any(value is not pd.NaT for value in dates)
    return bool(texts or has_dates) and all(_DATE.fullmatch(text.strip()) for text in texts)


def _numbers(values: Any, kind: str, where: Callable[[int], str], name: str) -> np.ndarray:
    """Numbers, or days since 1970-01-01, (N,) float64; NaN where missing."""
    dtype = getattr(values, "dtype", None)
    if kind == "numbers" and isinstance(dtype, np.dtype) and dtype.kind in "iuf":
        numbers = np.asarray(values, dtype=float)
        if not np.isinf(numbers).any():
            return numbers
    given = pd.Series(values, dtype=object)  # of text pandas would make UTF-8 at once
    is_held = ~is_empty(given)
    present = given[is_held]
    values_present = _days(present, name) if kind == "dates" else to_numbers(present).astype(float)
    numbers = np.full(len(given), math.nan)
    numbers[is_held] = values_present.to_numpy(dtype=float, na_value=math.nan)
    # The first cell that is neither empty nor a number is named.
    bad = is_held & ~np.isfinite(numbers)
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        expected = f"a {'date' if kind == 'dates' else 'number'} in column {name!r}, which is cut into levels"
        raise unexpected(where(row), expected, given.iloc[row])
    return numbers


def _days(present: Any, name: str) -> pd.Series:
    """Days since 1970-01-01 of dates, read in the one order of day and month that fits them all."""
    present = present.map(lambda day: day.start_time if isinstance(day, pd.Period) else day)
    parsed = pd.to_datetime(present, format="ISO8601", errors="coerce", utc=True)
    if parsed.isna().any():
        texts = pd.Series([str(value).strip() for value in present], present.index, dtype=object)
        # Other forms than that of ISO: only one may fit all cells, or both in the same way.
        dates = (pd.to_datetime(texts, format=form, errors="coerce", utc=True) for form in _FORMATS)
        fitting = [days for days in dates if not days.isna().any()]
        if len(fitting) > 1 and not fitting[0].equals(fitting[1]):
            hint = "write dates as 2024-12-31"
            raise refused(f"column {name!r}", "day and month of its dates can be read in two ways", hint)
        parsed = fitting[0] if fitting else parsed
    instants = parsed.to_numpy(dtype="datetime64[us]")
    return pd.Series((instants - np.datetime64(0, "us")) / np.timedelta64(1, "D"))


def bin_columns(frame: pd.DataFrame, bins: Mapping[str, str | Bins]) -> pd.DataFrame:
    """A data frame with columns of numbers or dates cut into ordered levels.

    The cut points are kept in ``frame.attrs["bins"]``, which cuts another frame in the same way.

    Args:
        frame: the rows; it is not changed.
        bins: by column a rule of :func:`find_bins`, or cut points.

    Raises:
        UnknownNameError: no such column; InputError: as :func:`find_bins`.

    Example:
        >>> binned = bin_columns(pd.DataFrame({"age": [21, 34, 58, 71]}), {"age": "edges:30,60"})
        >>> binned["age"].tolist()
        ['<30', '[30, 60)', '[30, 60)', '>=60']
    """
    check_type(frame, pd.DataFrame, "frame")
    names = [str(name) for name in frame.columns]
    check_names(list(bins), names, "bins", noun="column")
    check_unique([name for name in names if name in bins], "frame columns")
    binned = frame.copy()
    cuts: dict[str, Bins] = {}
    # Cut points are found, or those of another frame are used.
    for name, rule in bins.items():
        cuts[name] = rule if isinstance(rule, Bins) else find_bins(frame[name], rule, name=name)
        labels = cuts[name].apply(frame[name], name=name)
        binned[name] = pd.Categorical([label or None for label in labels], cuts[name].labels, ordered=True)
    binned.attrs["bins"] = cuts
    return binned
