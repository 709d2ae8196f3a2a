"""Columns of a table with levels: learned from the rows of a fit, read from other rows, and given back as values."""

from __future__ import annotations

import math
import warnings
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch

from ..data.bins import Bins, find_bins
from ..data.encoding import encode_column, label_of
from ..data.frames import as_observations
from ..data.observations import Observations
from ..data.readers import row_position, seeming_counting, warn_of_missing_words
from ..errors import DataWarning, caller_level, out_of_range, refused
from ..schema import Domain, Variable

__all__ = ["Column", "Columns", "Unknown"]

Unknown = Literal["error", "missing"]
_MOST_LEVELS = 10
"""Distinct whole numbers that are levels as they are."""
_FEW_ROWS = 16
"""Rows that are read cell by cell, which is faster than column by column."""


@dataclass(frozen=True, eq=False)
class Column:
    """How a column of values is read.

    Attributes:
        variable: its levels.
        values: a value of the column for every level: the level itself, or the median of the numbers in a bin.
        dtype: of the column that it was learned from.
        cuts: points between the bins of numbers, each the smallest number of the upper one; None for labels.
    """

    variable: Variable
    values: np.ndarray
    dtype: Any
    cuts: np.ndarray | None = None

    @classmethod
    def learn(
        cls, name: str, column: pd.Series, weights: np.ndarray, bins: int | None, by_spread: bool = False
    ) -> Column:
        """Levels, or bins, of a column of values with weights (N,); ``by_spread`` as :func:`spread_cuts`."""
        # Numbers that are many, or have fractions, are cut.
        column = _hashable(column)
        numbers = _numbers(column)
        if numbers is not None:
            known = ~np.isnan(numbers)
            if np.isinf(numbers).any():
                raise out_of_range(f"column {name!r}", "finite numbers", received="an infinity")
            has_fractions = bool((numbers[known] != np.floor(numbers[known])).any())
            if has_fractions and bins is None:
                hint = "give bins=5 to cut it at quantiles, or cut it into levels yourself"
                raise refused(f"column {name!r}", "numbers with fractions are no levels", hint, code="wrong-shape")
            if bins is not None and (has_fractions or len(np.unique(numbers[known])) > _MOST_LEVELS):
                return cls._of_bins(name, column.dtype, numbers[known], weights[known], bins, by_spread)
        # Else every value is a level.
        variable, _ = encode_column(name, column, where=row_position)
        distinct = column.cat.categories if isinstance(column.dtype, pd.CategoricalDtype) else column.unique()
        value_of = {label_of(value): value for value in distinct if not pd.isna(value)}
        return cls(variable, _objects(value_of[label] for label in variable.labels), column.dtype)

    @classmethod
    def _of_bins(
        cls, name: str, dtype: Any, numbers: np.ndarray, weights: np.ndarray, bins: int, by_spread: bool
    ) -> Column:
        if len(np.unique(numbers)) == 1:
            return cls(Variable(name, (label_of(numbers[0]),), "ordinal"), _objects(numbers[:1]), dtype, np.zeros(0))
        if by_spread:
            cut = Bins(spread_cuts(numbers, weights, bins), "numbers", "quantiles")
        else:
            cut = find_bins(numbers, f"quantile:{bins}", weights, name=name)
        codes = np.searchsorted(cut.cuts, numbers, side="right")
        middle = [_median(numbers[codes == k], weights[codes == k]) for k in range(len(cut.labels))]
        return cls(Variable(name, cut.labels, "ordinal"), _objects(middle), dtype, np.asarray(cut.cuts))

    def read(self, column: pd.Series, unknown: Unknown) -> np.ndarray:
        """Codes (N,) of the values of a column, -1 where missing or, where told so, unknown."""
        name, column = self.variable.name, _hashable(column)
        # By the cuts of the fit, or by its levels.
        if self.cuts is not None:
            numbers = _numbers(column)
            if numbers is None:
                raise out_of_range(f"column {name!r}", "numbers, as in the fit", received=f"type {column.dtype}")
            return np.where(np.isnan(numbers), -1, np.searchsorted(self.cuts, numbers, side="right"))
        if unknown == "missing":
            levels = set(self.variable.labels)
            lost = [value for value in column.unique() if not pd.isna(value) and label_of(value) not in levels]
            column = column.astype(object).mask(column.isin(lost)) if lost else column
        return encode_column(name, column, variable=self.variable, where=row_position)[1]

    @cached_property
    def _code_of(self) -> dict[Any, int]:
        """Codes by the value that the fit met, as Python's own types."""
        return {cell: code for code, cell in enumerate(self._cells)}

    @cached_property
    def _cells(self) -> list[Any]:
        return [value.item() if isinstance(value, np.generic) else value for value in self.values]

    def read_cells(self, cells: list[Any]) -> list[int] | None:
        """Codes of few cells as :meth:`read` finds them; None where that one has to look at them."""
        if self.cuts is not None:
            if not all(type(cell) in (int, float) for cell in cells):
                return None
            return [-1 if cell != cell else bisect_right(self.cuts, cell) for cell in cells]  # NaN
        try:
            codes = [self._code_of.get(cell, -2) for cell in cells]
        except TypeError:
            return None
        # True equals 1 and is another level, so that types have to agree, too.
        for i, (cell, code) in enumerate(zip(cells, codes, strict=True)):
            if code >= 0 and type(cell) is not type(self._cells[code]):
                return None
            if code == -2:
                if not (cell is None or (type(cell) is float and math.isnan(cell))):
                    return None
                codes[i] = -1
        return codes

    def fill(self, column: pd.Series, codes: np.ndarray) -> pd.Series:
        """A column with values in the place of its missing cells, its type and index kept where they can be."""
        gaps = column.isna().to_numpy() & (codes >= 0)
        if not gaps.any():
            return column.copy()
        values = self.values[codes[gaps]]
        if column.dtype != object and not isinstance(column.dtype, pd.CategoricalDtype):
            values = pd.Series(list(values)).astype(column.dtype).array
        filled = column.copy()
        filled.iloc[np.flatnonzero(gaps)] = values
        return filled

    def give(self, codes: np.ndarray) -> pd.Series:
        """Values (N,) of codes, of the type that the column had where it can hold them."""
        values = pd.Series(list(self.values[codes]), dtype=object)
        if isinstance(self.dtype, pd.CategoricalDtype):
            return pd.Series(pd.Categorical(values, dtype=self.dtype))
        return values if self.dtype == object else values.astype(self.dtype)


@dataclass(frozen=True, eq=False)
class Columns:
    """The columns of a table, in order."""

    columns: tuple[Column, ...]

    @classmethod
    def learn(cls, frame: pd.DataFrame, weights: np.ndarray, bins: int | None, by_spread: bool = False) -> Columns:
        """Of a data frame with weights (N,) of its rows."""
        names = [str(name) for name in frame.columns]
        columns = tuple(Column.learn(n, frame.iloc[:, i], weights, bins, by_spread) for i, n in enumerate(names))
        for i, name in enumerate(names):
            if counting := seeming_counting(name, frame.iloc[:, i], where=row_position):
                problem = f"{counting.problem}, and is read as a variable; pass it as sample_weight if it does"
                warnings.warn(DataWarning(problem), stacklevel=caller_level())
        warn_of_missing_words([c.variable for c in columns], lambda words: f"put None in place of {', '.join(words)}")
        return cls(columns)

    def reading(self) -> dict[str, Any]:
        """How the columns are read, as model files keep it: those that were cut."""
        cuts = {c.variable.name: c.cuts.tolist() for c in self.columns if c.cuts is not None and len(c.cuts)}
        rule = {"kind": "numbers", "rule": "quantiles"}
        return {"bins": {name: {"cuts": points, **rule} for name, points in cuts.items()}} if cuts else {}

    def read(self, frame: pd.DataFrame, unknown: Unknown) -> np.ndarray:
        """Codes (N, d) of the rows of a data frame with these columns in this order."""
        cells = frame.to_numpy(dtype=object).T.tolist() if len(frame) <= _FEW_ROWS else None
        codes = list[Any]()
        for i, column in enumerate(self.columns):
            read = None if cells is None else column.read_cells(cells[i])
            codes.append(column.read(frame.iloc[:, i], unknown) if read is None else read)
        return np.column_stack(codes).astype(np.int64)

    def observations(self, codes: np.ndarray, weights: np.ndarray | None = None, more: Variable | None = None) -> Any:
        """Rows of codes (N, d), or (N, d + 1) with a further variable."""
        variables = [column.variable for column in self.columns]
        domain = Domain(variables if more is None else [*variables, more])
        counts = torch.ones(len(codes), dtype=torch.float64) if weights is None else torch.from_numpy(weights)
        return Observations(domain, torch.from_numpy(codes), counts)

    def codes_of(self, frame: pd.DataFrame) -> np.ndarray:
        """Codes (N, d) of a data frame of labels."""
        domain = Domain(column.variable for column in self.columns)
        return as_observations(frame, domain=domain, count=None, missing_values=()).codes.numpy()


def _objects(values: Any) -> np.ndarray:
    """A one-dimensional array of objects."""
    cells = list(values)
    objects = np.empty(len(cells), dtype=object)
    for position, value in enumerate(cells):
        objects[position] = value
    return objects


def _hashable(column: pd.Series) -> pd.Series:
    """The column, objects that are neither text nor number and cannot be compared as text."""
    if column.dtype != object:
        return column
    try:
        pd.factorize(column)
    except TypeError:
        return column.map(lambda value: value if np.ndim(value) == 0 and pd.isna(value) else label_of(value))
    return column


def _numbers(column: pd.Series) -> np.ndarray | None:
    """The numbers of a column (N,), NaN where missing; None for one that holds anything else, or truth values."""
    if column.dtype == object:
        if pd.api.types.infer_dtype(column, skipna=True) not in ("integer", "floating", "mixed-integer-float"):
            return None
    elif not pd.api.types.is_numeric_dtype(column.dtype) or pd.api.types.is_bool_dtype(column.dtype):
        return None
    return column.to_numpy(dtype=float, na_value=np.nan)


def spread_cuts(numbers: np.ndarray, weights: np.ndarray, bins: int) -> tuple[float, ...]:
    """Cut points of numbers of at least two values: up to ``bins`` levels of about the same weight.

    A value that has more weight than its level should have is a level of its own, and the others share what is left:
    of a column of zeros with few other numbers these are told apart, which quantiles of all rows do not do.

    Example:
        >>> numbers = np.array([0] * 90 + [1, 2, 3, 4, 5, 6, 7, 8, 9, 10])
        >>> spread_cuts(numbers, np.ones(100), 3)
        (1.0, 6.0)
    """
    # Values that are levels of their own, until the share of the others is as large as any of these.
    values, places = np.unique(numbers, return_inverse=True)
    sizes = np.bincount(places, weights)
    is_heavy = np.zeros(len(values), dtype=bool)
    while not is_heavy.all() and is_heavy.sum() < bins:
        share = sizes[~is_heavy].sum() / (bins - is_heavy.sum())
        heavier = ~is_heavy & (sizes > share)
        if not heavier.any():
            break
        is_heavy |= heavier
    # Others are cut where the middle of a value's weight passes a multiple of the share.
    light = np.where(is_heavy, 0.0, sizes)
    share = max(light.sum() / max(bins - is_heavy.sum(), 1), np.finfo(float).tiny)
    part = ((np.cumsum(light) - light / 2) / share).astype(int)
    is_cut = is_heavy[1:] | is_heavy[:-1] | (part[1:] > part[:-1])
    cuts = values[1:][is_cut]
    return tuple(map(float, cuts)) or (float(values[-1]),)


def _median(numbers: np.ndarray, weights: np.ndarray) -> float:
    """The smallest number at or below which there is half of the weight."""
    order = np.argsort(numbers, kind="stable")
    shares = np.cumsum(weights[order]) / weights.sum()
    return float(numbers[order][np.searchsorted(shares, 0.5 - 1e-12)])
