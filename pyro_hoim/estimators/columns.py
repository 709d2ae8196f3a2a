"""Columns of a table with levels: learned from the rows of a fit, read from other rows, and given back as values."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch

from ..data.bins import find_bins
from ..data.encoding import encode_column, label_of
from ..data.frames import as_observations
from ..data.observations import Observations
from ..data.readers import row_position
from ..data.roles import seeming_counting, warn_of_missing_words
from ..errors import DataWarning, caller_level, out_of_range, refused
from ..schema import Domain, Variable

__all__ = ["Column", "Columns", "Unknown"]

Unknown = Literal["error", "missing"]
_MOST_LEVELS = 10
"""Distinct whole numbers that are levels as they are."""


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
    def learn(cls, name: str, column: pd.Series, weights: np.ndarray, bins: int | None) -> Column:
        """Levels, or bins, of a column of values with weights (N,)."""
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
                return cls._of_bins(name, column.dtype, numbers[known], weights[known], bins)
        variable, _ = encode_column(name, column, where=row_position)
        distinct = column.cat.categories if isinstance(column.dtype, pd.CategoricalDtype) else column.unique()
        value_of = {label_of(value): value for value in distinct if not pd.isna(value)}
        return cls(variable, _objects(value_of[label] for label in variable.labels), column.dtype)

    @classmethod
    def _of_bins(cls, name: str, dtype: Any, numbers: np.ndarray, weights: np.ndarray, bins: int) -> Column:
        if len(np.unique(numbers)) == 1:
            return cls(Variable(name, (label_of(numbers[0]),), "ordinal"), _objects(numbers[:1]), dtype, np.zeros(0))
        found = find_bins(numbers, f"quantile:{bins}", weights, name=name)
        codes = np.searchsorted(found.cuts, numbers, side="right")
        middle = [_median(numbers[codes == k], weights[codes == k]) for k in range(len(found.labels))]
        return cls(Variable(name, found.labels, "ordinal"), _objects(middle), dtype, np.asarray(found.cuts))

    def read(self, column: pd.Series, unknown: Unknown) -> np.ndarray:
        """Codes (N,) of the values of a column, -1 where missing or, where told so, unknown."""
        name, column = self.variable.name, _hashable(column)
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
    def learn(cls, frame: pd.DataFrame, weights: np.ndarray, bins: int | None) -> Columns:
        """Of a data frame with weights (N,) of its rows."""
        names = [str(name) for name in frame.columns]
        found = tuple(Column.learn(n, frame.iloc[:, i], weights, bins) for i, n in enumerate(names))
        for i, name in enumerate(names):
            if counting := seeming_counting(name, frame.iloc[:, i], where=row_position):
                problem = f"{counting.problem}, and is read as a variable; pass it as sample_weight if it does"
                warnings.warn(DataWarning(problem), stacklevel=caller_level())
        warn_of_missing_words([c.variable for c in found], lambda words: f"put None in place of {', '.join(words)}")
        return cls(found)

    def reading(self) -> dict[str, Any]:
        """How the columns are read, as model files keep it: those that were cut."""
        cuts = {c.variable.name: c.cuts.tolist() for c in self.columns if c.cuts is not None and len(c.cuts)}
        rule = {"kind": "numbers", "rule": "quantiles"}
        return {"bins": {name: {"cuts": points, **rule} for name, points in cuts.items()}} if cuts else {}

    def read(self, frame: pd.DataFrame, unknown: Unknown) -> np.ndarray:
        """Codes (N, d) of the rows of a data frame with these columns in this order."""
        found = [column.read(frame.iloc[:, i], unknown) for i, column in enumerate(self.columns)]
        return np.column_stack(found).astype(np.int64)

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
    held = list(values)
    found = np.empty(len(held), dtype=object)
    for position, value in enumerate(held):
        found[position] = value
    return found


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


def _median(numbers: np.ndarray, weights: np.ndarray) -> float:
    """The smallest number at or below which there is half of the weight."""
    order = np.argsort(numbers, kind="stable")
    shares = np.cumsum(weights[order]) / weights.sum()
    return float(numbers[order][np.searchsorted(shares, 0.5 - 1e-12)])
