"""Columns of Arrow: which levels they hold, and the codes of their cells."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ...budgets import check_size
from ...errors import InputError, conflict
from ...schema import Variable
from ..bins import Bins
from ..encoding import codes_of_cells, factorise, labels_of_values, levels_of, parse_counts, variable_of

__all__ = ["MAX_FOUND", "ColumnLevels", "LabelReader", "joined_files", "merged_levels"]

MAX_FOUND = 2**16
"""Levels of one column that are looked for: with more it names rows, or holds numbers."""
_MAX_RANGE = 2**16


class ColumnLevels(NamedTuple):
    """What some rows hold in one column."""

    labels: frozenset[str]  # the labels seen
    categories: tuple[str, ...] | None  # the levels in their order, where the column has a type that says them
    is_ordered: bool  # whether this order has a meaning

    def joined(self, other: ColumnLevels) -> ColumnLevels:
        """What both parts of one file hold: levels in the order in which they come, as pandas unites its parts.

        Where a part has no type that says them, all are labels seen.
        """
        labels = self.labels | other.labels
        if self.categories is not None and other.categories is not None:
            categories = (*dict.fromkeys((*self.categories, *other.categories)),)
            return ColumnLevels(labels, categories, self.is_ordered and other.is_ordered)
        return ColumnLevels(labels.union(self.categories or (), other.categories or ()), None, False)


def joined_files(name: str, parts: Sequence[ColumnLevels]) -> ColumnLevels:
    """What a column holds in all files, or in all partitions.

    Ordered levels have the order of which every file has a part, such as low, mid, high of a file that has low, high
    and one that has low, mid, high.

    Raises:
        InputError: orders that contradict each other, or leave open which of two levels comes first.
    """
    merged = reduce(ColumnLevels.joined, parts)
    orders = [*dict.fromkeys(part.categories for part in parts if part.categories)]
    if not merged.is_ordered or len(orders) < 2:
        return merged
    pairs = {pair for order in orders for pair in pairwise(order)}
    sorter = TopologicalSorter[str]({level: () for order in orders for level in order})
    for before, after in pairs:
        sorter.add(after, before)
    try:
        levels = tuple(sorter.static_order())
        if {*pairwise(levels)} <= pairs:
            return merged._replace(categories=levels)
    except CycleError:
        pass
    shown = " and ".join(" < ".join(order[:6]) for order in orders[:2])
    problem = f"its files say {shown}, which leaves its order open"
    raise conflict(f"column {name!r}", problem, "write the files with one order, or give the domain")


def merged_levels(name: str, found: ColumnLevels, bins: Bins | None = None) -> Variable:
    """The variable of a column: levels as :meth:`~pyro_hoim.Observations.from_pandas` orders them.

    Raises:
        InputError: missing cells only.
        IntractableError: more levels than are looked for.
    """
    if bins is not None:
        levels = tuple(label for label in bins.labels if label in found.labels)
        found = found._replace(categories=levels, is_ordered=True)
    levels = levels_of(found.labels) if found.categories is None else found.categories
    check_count(name, len(levels))
    return variable_of(name, levels, is_ordered=found.categories is not None and found.is_ordered)


def check_count(name: str, number: int) -> None:
    """Refuse a column of too many levels."""
    hint = "leave the column out, bin its numbers, or give its domain"
    check_size(number, MAX_FOUND, "levels", f"column {name!r}", hint)


@dataclass(frozen=True)
class LabelReader:
    """How cells become labels."""

    is_file: bool  # whether cells are told apart by their texts alone, as those of files are
    is_text: bool  # whether blanks around labels are removed, as in files of text
    missing_values: tuple[str, ...]  # labels that mean "missing", the empty one among them
    source: str  # what is read, for messages
    # cut points of columns of numbers, whose labels are the levels between them
    bins: Mapping[str, Bins] = field(default_factory=dict[str, Bins])

    def levels(self, name: str, column: Any, is_categorical: bool) -> ColumnLevels:
        """Levels of a column."""
        from .row_kernels import mark_values

        positions, distinct, is_ordered = self._parts(name, column)
        texts, seen = self._texts(name, distinct), np.zeros(len(distinct), dtype=np.bool_)
        mark_values(positions, seen)
        labels = frozenset(text for text, one in zip(texts, seen, strict=True) if one) - {*self.missing_values}
        check_count(name, len(labels))
        if not is_categorical or name in self.bins:
            return ColumnLevels(labels, None, False)
        categories = tuple(dict.fromkeys(text for text in texts if text not in self.missing_values))
        return ColumnLevels(labels, categories, is_ordered)

    def code(self, variable: Variable, column: Any, out: np.ndarray) -> None:
        """Write the codes of a column (n,) to a row of a batch, -1 where missing."""
        positions, distinct, _ = self._parts(variable.name, column)
        texts = self._texts(variable.name, distinct)
        values = texts if self.is_file or variable.name in self.bins else distinct
        missing = self.missing_values
        out[:] = codes_of_cells(variable, positions, values, texts, missing, lambda _: self.source, out.dtype)

    def counts(self, name: str, column: Any) -> np.ndarray:
        """Whole counts of a column (n,) int64."""
        if hasattr(column, "to_pylist"):
            column = pd.Series(column.to_pylist(), dtype=object)
        hint = "pass count=None if the column does not say how often rows were seen"
        try:
            numbers = parse_counts(column, name=f"column {name!r}", where=lambda _: self.source, fractional=False)
        except InputError as error:
            raise error.replace(hint=f"{error.hint}; {hint}") from None
        return numbers.astype(np.int64)

    def _parts(self, name: str, column: Any) -> tuple[np.ndarray, Sequence[Any], bool]:
        """Positions (n,) into the values that a column may have, -1 where missing, and whether these have an order."""
        if isinstance(kind := getattr(column, "dtype", None), np.dtype) and kind.kind in "iu":
            low, high = int(column.min()), int(column.max())
            if high - low < _MAX_RANGE and high < 2**63:  # faster than to look for the numbers that there are
                return np.asarray(column, dtype=np.int64) - low, range(low, high + 1), False
        place = f"{self.source} column {name!r}"
        positions, distinct, dtype = factorise(column, place)
        return positions, distinct, dtype is not None and bool(dtype.ordered)

    def _texts(self, name: str, values: Iterable[Any]) -> list[str]:
        place = f"{self.source} column {name!r}"
        texts = labels_of_values(place, values, strip=self.is_text)
        if name not in self.bins:
            return texts
        return _cut(["" if text in self.missing_values else text for text in texts], self.bins[name], place, name)


def _cut(texts: list[str], bins: Bins, place: str, name: str) -> list[str]:
    """Levels of numbers; texts that are levels already stay."""
    levels = {*bins.labels}
    found = bins.apply(["" if text in levels else text for text in texts], lambda _: place, name)
    return [text if text in levels else level for text, level in zip(texts, found, strict=True)]
