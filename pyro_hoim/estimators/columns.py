"""Columns of a table with levels: learned from the rows of a fit, read from other rows, and given back as values."""

from __future__ import annotations

import math
import warnings
from bisect import bisect_right
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch

from ..core.words import listed, plural
from ..data.bins import Bins
from ..data.columns import ColumnOptions, ColumnReading, encode_columns, numbers_without, warn_of_note
from ..data.encoding import code_reader, encode_column, label_of, meaning_of
from ..data.frames import as_observations
from ..data.observations import Observations
from ..data.readers import Source, row_position, seeming_counting, warn_of_missing_words
from ..errors import DataWarning, caller_level
from ..schema import Domain, Variable

Unknown = Literal["error", "missing"]
_FEW_ROWS = 16
"""Rows that are read cell by cell, which is faster than column by column."""


@dataclass(frozen=True, eq=False)
class Column:
    """How a column of values is read.

    Attributes:
        variable: its levels.
        position: of the column in the table.
        values: a value of the column for every level: the level itself, or the median of the cells between cut points.
        dtype: of the column that it was learned from.
        missing_values: labels that mean "missing".
        cuts: points between the levels; None for labels.
        scores: numbers of the levels (K,), where the column holds numbers or its levels are ordered: means of the rows
            between cut points, the numbers themselves, or positions. None for other labels.
    """

    variable: Variable
    position: int
    values: np.ndarray
    dtype: Any
    missing_values: Collection[str] = ("",)
    cuts: Bins | None = None
    scores: np.ndarray | None = None

    @classmethod
    def learn(
        cls,
        position: int,
        column: pd.Series,
        reading: ColumnReading,
        variable: Variable,
        codes: np.ndarray,
        weights: np.ndarray,
        missing_values: Collection[str],
    ) -> Column:
        """What a column (N,) of codes (N,) and weights (N,) is by the rule of all readers."""
        levels = range(variable.cardinality)
        how: dict[str, Any] = {"dtype": column.dtype, "missing_values": missing_values, "cuts": reading.cuts}
        if reading.cuts is None:
            distinct = column.cat.categories if isinstance(column.dtype, pd.CategoricalDtype) else column.unique()
            value_of = {label_of(value): value for value in distinct if not pd.isna(value)}
            scores = None
            if reading.order == "declared":
                scores = np.array(levels, dtype=float)
            elif reading.order == "numbers" and _numbers(column) is not None:
                scores = np.array([float(label) for label in variable.labels])
            values = _objects(value_of.get(label, label) for label in variable.labels)
            return cls(variable, position, values, scores=scores, **how)
        # Between cut points: the cell in the middle, and the mean.
        rows = [np.flatnonzero(codes == level) for level in levels]
        numbers = reading.cuts.numbers(_without_words(column, missing_values), name=variable.name)
        values = _objects(column.iloc[part[_median(numbers[part], weights[part])]] for part in rows)
        scores = np.array([np.average(numbers[part], weights=weights[part]) for part in rows])
        return cls(variable, position, values, scores=scores, **how)

    def read(self, column: pd.Series, unknown: Unknown) -> tuple[np.ndarray, int, int]:
        """Codes (N,) of the values of a column, -1 where missing, and how many cells have a level the fit did not meet.

        Where such cells are not refused, numbers have the level below them, or the lowest one, and others are missing.
        They are counted one after the other.
        """
        name, column = self.variable.name, _hashable(column)
        # By the cuts of the fit, or by its levels.
        if self.cuts is not None:
            labels = np.array([*self.cuts.labels, None], dtype=object)
            column = pd.Series(labels[self.cuts.codes(_without_words(column, self.missing_values), row_position, name)])
        column, moved, lost = (column, 0, 0) if unknown == "error" else self._met(column)
        options: dict[str, Any] = {"missing_values": self.missing_values, "where": row_position}
        return encode_column(name, column, variable=self.variable, **options)[1], moved, lost

    def _met(self, column: pd.Series) -> tuple[pd.Series, int, int]:
        """A column whose cells have levels of the fit or none, and how many had another one, as :meth:`read` counts."""
        labels: dict[Any, str | None] = {}
        for value in column.unique():
            is_missing = pd.isna(value) or label_of(value) in self.missing_values
            if not is_missing and self._code_reader(value) is None:
                labels[value] = self._lower(value)
        if not labels:
            return column, 0, 0
        is_unmet = column.isin(list(labels)).to_numpy()
        cells = column.to_numpy(dtype=object, copy=True)
        cells[is_unmet] = _objects(labels[value] for value in cells[is_unmet])
        moved = sum(label is not None for label in cells[is_unmet])
        return pd.Series(cells), moved, int(is_unmet.sum()) - moved

    @cached_property
    def _code_reader(self) -> Any:
        return code_reader(self.variable)

    @cached_property
    def _level_numbers(self) -> list[float] | None:
        """Increasing numbers of the levels, of those between cut points their positions; None for other labels."""
        if self.cuts is not None:
            return [self.cuts.labels.index(label) for label in self.variable.labels]
        return None if self.scores is None or self.variable.kind == "ordinal" else self.scores.tolist()

    def _lower(self, value: Any) -> str | None:
        """The level below a number, or the lowest one; None for another value, and in a column of other labels."""
        if self._level_numbers is None:
            return None
        number = meaning_of(value) if self.cuts is None else self.cuts.labels.index(value)
        if number is None:
            return None
        return self.variable.labels[max(0, bisect_right(self._level_numbers, number) - 1)]

    @cached_property
    def _code_of(self) -> dict[Any, int]:
        """Codes by the value that the fit met, as Python's own types."""
        return {cell: code for code, cell in enumerate(self._cells)}

    @cached_property
    def _cells(self) -> list[Any]:
        return [value.item() if isinstance(value, np.generic) else value for value in self.values]

    @cached_property
    def _code_between(self) -> list[int]:
        """Codes between cut points; -2 where the fit met none."""
        assert self.cuts is not None
        codes = {label: code for code, label in enumerate(self.variable.labels)}
        return [codes.get(label, -2) for label in self.cuts.labels]

    def read_cells(self, cells: list[Any]) -> list[int] | None:
        """Codes of few cells as :meth:`read` finds them; None where that one has to look at them."""
        if any(word != "" for word in self.missing_values):
            return None
        if self.cuts is not None:
            if not all(type(cell) in (int, float) and not math.isinf(cell) for cell in cells):
                return None
            between, cuts = self._code_between, self.cuts.cuts
            codes = [-1 if cell != cell else between[bisect_right(cuts, cell)] for cell in cells]  # NaN
            return None if -2 in codes else codes
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
        is_gap = column.isna() | column.astype(object).isin([*self.missing_values])
        gaps = is_gap.to_numpy(dtype=bool) & (codes >= 0)
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
    """The columns of a table that are variables, in order.

    Attributes:
        columns: of the variables.
        readings: how every column of the table was read, also those that were left out.
        names: of all columns of the table.
    """

    columns: tuple[Column, ...]
    readings: tuple[ColumnReading, ...]
    names: tuple[str, ...]

    @classmethod
    def learn(cls, frame: pd.DataFrame, weights: np.ndarray, options: ColumnOptions) -> tuple[Columns, np.ndarray]:
        """The columns of a data frame with weights (N,) of its rows, and the codes (N, d) of these.

        Warns:
            DataWarning: columns that were left out, that seem to hold counts, or words that mostly mean missing.
        """
        frame = frame.set_axis([str(name) for name in frame.columns], axis=1)
        for i, name in enumerate(frame.columns):
            cells = frame.iloc[:, i]
            if (texts := _hashable(cells)) is not cells:
                frame.isetitem(i, texts)
            if name not in options.exclude and (
                counting := seeming_counting(name, frame.iloc[:, i], where=row_position)
            ):
                problem = f"{counting.problem}, and is read as a variable; pass it as sample_weight if it does"
                warnings.warn(DataWarning(problem), stacklevel=caller_level())
        # Every reader of frames asks the same rule, to which the weights are a column of the table.
        weight_name = "weights"
        while weight_name in frame.columns:
            weight_name += "_"
        source = Source.of_frame(frame.assign(**{weight_name: weights}))
        encoded = encode_columns(source, None, replace(options, count=None, weights=weight_name))
        warn_of_note(encoded.left_out)
        warn_of_missing_words(list(encoded.domain))
        # What the columns that are left become again.
        codes, readings = encoded.codes.long().numpy(), {reading.name: reading for reading in encoded.readings}
        positions = {name: i for i, name in enumerate(frame.columns)}
        columns = tuple(
            Column.learn(
                positions[variable.name],
                frame.iloc[:, positions[variable.name]],
                readings[variable.name],
                variable,
                codes[:, i],
                weights,
                options.missing_values,
            )
            for i, variable in enumerate(encoded.domain)
        )
        return cls(columns, encoded.readings, tuple(frame.columns)), codes

    def reading(self) -> dict[str, Any]:
        """How the columns are read, as model files keep it: those that were cut."""
        cuts = {c.variable.name: c.cuts.to_json() for c in self.columns if c.cuts is not None}
        return {"bins": cuts} if cuts else {}

    def read(self, frame: pd.DataFrame, unknown: Unknown) -> np.ndarray:
        """Codes (N, d) of the rows of a data frame with the columns of the fit in their order.

        Warns:
            DataWarning: cells with levels that the fit did not meet, by column.
        """
        cells = frame.to_numpy(dtype=object).T.tolist() if len(frame) <= _FEW_ROWS else None
        codes, moved, lost = list[Any](), list[str](), list[str]()
        for column in self.columns:
            read = None if cells is None else column.read_cells(cells[column.position])
            if read is None:
                given = frame.iloc[:, column.position]
                read, *numbers = column.read(given, unknown)
                for number, names in zip(numbers, (moved, lost), strict=True):
                    if number:
                        every = "all " if number > 1 and number == given.notna().sum() else ""
                        names.append(f"{every}{plural(number, 'cell')} of {column.variable.name!r}")
            codes.append(read)
        # One warning of what the fit did not meet.
        sentences = [f"labels that the fit did not meet are taken for missing: {listed(lost)}"] if lost else []
        if moved:
            sentence = "numbers that the fit did not meet are read as the level below them, or as the lowest one"
            sentences.append(f"{sentence}: {listed(moved)}. If they are codes, write them as text")
        if sentences:
            warnings.warn(DataWarning("; ".join(sentences)), stacklevel=caller_level())
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


def has_fractions(column: pd.Series) -> bool:
    """Whether a column holds different numbers, of which some have fractions: other rows have numbers between these."""
    numbers = _numbers(column)
    if numbers is None or np.isinf(numbers).any():
        return False
    known = np.unique(numbers[~np.isnan(numbers)])
    return len(known) > 1 and bool((known != np.floor(known)).any())


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


def _without_words(column: pd.Series, missing_values: Collection[str]) -> Any:
    """A column of numbers or dates without words for missing."""
    if pd.api.types.is_numeric_dtype(column.dtype):
        return numbers_without(column.to_numpy(dtype=float, na_value=math.nan), missing_values)
    column = column.astype(object)  # types of Arrow are compared with no words
    return column.mask(column.isin([*missing_values]))


def _numbers(column: pd.Series) -> np.ndarray | None:
    """The numbers of a column (N,), NaN where missing; None for one that holds anything else, or truth values."""
    if column.dtype == object:
        if pd.api.types.infer_dtype(column, skipna=True) not in ("integer", "floating", "mixed-integer-float"):
            return None
    elif not pd.api.types.is_numeric_dtype(column.dtype) or pd.api.types.is_bool_dtype(column.dtype):
        return None
    return column.to_numpy(dtype=float, na_value=np.nan)


def _median(numbers: np.ndarray, weights: np.ndarray) -> int:
    """The position of the smallest number at or below which there is half of the weight."""
    order = np.argsort(numbers, kind="stable")
    shares = np.cumsum(weights[order]) / weights.sum()
    return int(order[np.searchsorted(shares, 0.5 - 1e-12)])
