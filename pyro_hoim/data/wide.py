"""Tables of counts in wide form, and variables in an index: made long where they are unmistakable, else refused."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ..errors import DataWarning, caller_level, refused, wrong_type
from .files.table_file import CsvColumns
from .readers import is_count_name, is_counting_name

_SUMS = re.compile(r"all|sums?|totals?|margins?|gesamt|summe|ensemble", re.IGNORECASE)
_MOST_ROWS, _MOST_PLAIN = 2**16, 1000
_NUMBER = re.compile(r"[-+]?\d+(\.\d*)?")


class _Wide(NamedTuple):
    """A table of numbers (n, m) with the levels of its rows and columns, and the labels of sums that were left out."""

    numbers: np.ndarray
    rows: pd.Index
    columns: pd.Index
    sums: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The variables."""
        rows = [str(name) if name is not None else "row" for name in self.rows.names]
        return (*rows, *(str(name) if name is not None else "column" for name in self.columns.names))

    @property
    def shown(self) -> str:
        """What it is, for messages."""
        return f"a cross-tabulation of {' and '.join(map(repr, self.names))}"

    @property
    def is_whole(self) -> bool:
        """Whether all numbers are counts."""
        return bool(((self.numbers >= 0) & (self.numbers == np.floor(self.numbers))).all())

    @property
    def is_unlike_labels(self) -> bool:
        """Whether most numbers of a column differ, as labels of variables do not."""
        return 2 * sum(len(np.unique(column)) for column in self.numbers.T) > self.numbers.size

    @property
    def is_unlike_codes(self) -> bool:
        """Whether several columns hold larger numbers than there are rows, which codes of levels do not reach."""
        return (
            self.is_unlike_labels and self.numbers.shape[1] > 1 and bool((self.numbers.max(0) > len(self.rows)).any())
        )

    @property
    def cut(self) -> str:
        """What leaves out the sums of a frame."""
        rows, columns = (":-1" if is_sum else ":" for *_, is_sum in self._ends())
        return "" if rows == columns == ":" else f".iloc[{rows}, {columns}]"

    def _ends(self) -> list[tuple[bool, bool, bool]]:
        """Of the last row, then of the last column: whether it is named as sums, holds them, and is left out.

        That is so where it holds sums and says so, or both do; shares need only say so.
        """
        named = [_SUMS.fullmatch(_first(labels)) is not None for labels in (self.rows, self.columns)]
        parts = (self.numbers[:-1], self.numbers[-1]), (self.numbers[:, :-1], self.numbers[:, -1])
        equal = [rest.size > 0 and np.allclose(rest.sum(i), last) for i, (rest, last) in enumerate(parts)]
        is_both = all(equal) and min(self.numbers.shape) > 2
        return [(a, b, (a and (b or not self.is_whole)) or is_both) for a, b in zip(named, equal, strict=True)]

    def without_sums(self, argument: str) -> _Wide:
        """Without the last row and column where they hold sums and say so, or both do."""
        table, sums = self, list[str]()
        for i, (labels, (is_named, is_equal, is_sum)) in enumerate(
            zip((self.rows, self.columns), self._ends(), strict=True)
        ):
            if is_named and not is_equal and self.columns.names[0] is not None:
                problem = f"expected sums under {_first(labels)!r} of {self.shown}, received other numbers"
                raise refused(argument, problem, "remove that row or column")
            if is_sum:
                sums.append(_first(labels))
                rest = labels[:-1]
                rest = rest.remove_unused_categories() if isinstance(rest, pd.CategoricalIndex) else rest
                cut = table.numbers[:-1] if i == 0 else table.numbers[:, :-1]
                table = table._replace(numbers=cut, **{("rows", "columns")[i]: rest})
        return table._replace(sums=tuple(sums))

    def long(self) -> pd.DataFrame:
        """One row per cell, with its count."""
        n, m = self.numbers.shape
        rows, columns = (labels.to_frame(index=False) for labels in (self.rows, self.columns))
        rows = rows.take(np.repeat(np.arange(n), m)).reset_index(drop=True)
        columns = columns.take(np.tile(np.arange(m), n)).reset_index(drop=True)
        frame = pd.concat([rows, columns], axis=1)
        return frame.set_axis(list(self.names), axis=1).assign(count=self.numbers.ravel().astype(np.int64))


def _first(labels: pd.Index) -> str:
    """The last label, of several levels the first of it."""
    return str(labels[-1][0] if labels.nlevels > 1 else labels[-1])


def long_table(
    data: pd.DataFrame | pd.Series,
    is_meant: Callable[[str], bool] = lambda _: False,
    argument: str = "data",
    keep: str = "count=None",
) -> pd.DataFrame:
    """A frame of one row per observation or cell: itself, or made so.

    Cross-tabulations of pandas (their sums are left out), tables of counts whose rows and columns have names alone, and
    counts under a named index become one row per cell with a column ``count``.

    Args:
        data: a data frame, or a series of counts.
        is_meant: whether a name is that of a variable that was asked for.
        argument: name of the data in messages.
        keep: what says that the columns are variables, for messages.

    Raises:
        InputTypeError: a series of anything else.
        InputError: what may be such a table or something else, or holds shares; with the line that makes it long.

    Warns:
        DataWarning: sums that were left out; names that were made up.

    Example:
        >>> frame = pd.DataFrame({"sex": list("ffm"), "ward": list("ABA")})
        >>> long_table(pd.crosstab(frame.sex, frame.ward)).values.tolist()
        [['f', 'A', 1], ['f', 'B', 1], ['m', 'A', 1], ['m', 'B', 0]]
    """
    if isinstance(data, pd.Series):
        # Counts under levels that have names are cells; anything else is no table.
        is_counting = data.name is None or is_count_name(str(data.name)) or data.name in ("proportion", 0)
        is_indexed = all(name is not None for name in data.index.names)
        if not (
            is_counting and is_indexed and pd.api.types.is_numeric_dtype(data) and not pd.api.types.is_bool_dtype(data)
        ):
            hint = "of counts by combination, name the levels of the index: counts.rename_axis(['a', 'b'])"
            raise wrong_type(argument, "Observations or a data frame", data, hint)
        numbers = data.to_numpy(dtype=float, na_value=np.nan)
        if not (np.isfinite(numbers) & (numbers == np.floor(numbers))).all():
            hint = "count without normalize, or pass series.rename('weight').reset_index() with weights='weight'"
            raise refused(argument, "the series holds fractions or gaps, no counts", hint)
        return data.rename("count").reset_index()
    # Counts under an index whose levels are all named need no look at their numbers.
    data = _without_constant(data) if data.columns.nlevels > 1 else data
    header = [str(name) for name in data.columns]
    levels = [name for name in data.index.names if name is not None and str(name) not in header]
    is_indexed = len(levels) == data.index.nlevels
    if len(header) == 1 and is_indexed and (is_count_name(header[0]) or header[0] == "0"):
        return data.rename_axis(columns=None).reset_index()
    # A table of numbers whose columns nobody asked for may be a cross-tabulation.
    table = _table_of(data, is_indexed)
    is_long = table is None or any(is_meant(str(name)) for name in table.columns)
    wide = None if is_long or table is None else _numbers_of(table, argument, keep)
    if wide is None or table is None:
        return with_index(data, is_meant) if levels else data
    is_named, is_asked = data.columns.names[0] is not None, any(map(is_meant, wide.names))
    frame = "frame" if table is data else f"frame.set_index({_listed(table.index.names)})"
    stacked = f"{frame}{wide.cut}.stack()"
    # Shares are refused, with the line that makes weights of them.
    if not wide.is_whole:
        if not (wide.is_unlike_labels and (is_named or _are_shares(wide.numbers))):
            return data
        problem = f"seems to be {wide.shown} that holds shares or other fractions, no counts"
        line = f"{stacked}.rename('weight').reset_index() with weights='weight'"
        raise refused(argument, problem, f"make it of counts, without normalize, or pass {line}")
    # Counts are made long where names or sizes of the numbers leave no doubt, and refused where they do.
    wide = wide.without_sums(argument)
    if not (is_named or wide.is_unlike_codes or wide.sums):
        return data
    names = "" if is_named else f".rename_axis({_listed([*table.index.names, 'column'])})"
    hint = f"make it long, {stacked}{names}.rename('count').reset_index(), or say {keep} if its columns are variables"
    if is_named and not (wide.is_unlike_labels or is_asked or wide.sums):
        raise refused(argument, f"may be {wide.shown}", hint)
    if not is_named and (is_indexed or table is not data):
        raise refused(argument, f"seems to be {wide.shown}", hint)
    if wide.sums or not is_named:
        left_out = f", without the sums under {' and '.join(map(repr, wide.sums))}" if wide.sums else ""
        note = f"read as {wide.shown}, {wide.numbers.sum():.17g} rows in {wide.numbers.size} cells{left_out}"
        warnings.warn(DataWarning(f"{argument}: {note}"), stacklevel=caller_level())
    return wide.long()


def _without_constant(data: pd.DataFrame) -> pd.DataFrame:
    """The frame without levels of its columns that have one value and no name, as ``pivot_table`` makes them."""
    names = data.columns.names
    spare = [i for i, name in enumerate(names) if name is None and len(data.columns.unique(i)) == 1]
    if not spare or len(spare) == len(names):
        return data
    return data.droplevel(spare, axis=1)


def with_index(data: pd.DataFrame, is_meant: Callable[[str], bool]) -> pd.DataFrame:
    """The frame with those levels of its index as columns that are meant, or that repeat, and no columns yet.

    Warns:
        DataWarning: levels that nobody named, but that repeat, as names of rows do not.
    """
    header = [str(name) for name in data.columns]
    levels = [name for name in data.index.names if name is not None and str(name) not in header]
    repeated = [n for n in levels if not is_meant(str(n)) and data.index.get_level_values(n).duplicated().any()]
    if repeated:
        problem = f"{', '.join(map(repr, repeated))} of the index, which repeats, is read as a column"
        warnings.warn(DataWarning(f"{problem}; reset_index(drop=True) leaves it out"), stacklevel=caller_level())
    asked = [name for name in levels if name in repeated or is_meant(str(name))]
    return data.reset_index(level=asked) if asked else data


def _listed(names: Sequence[Any]) -> str:
    return repr(str(names[0]) if len(names) == 1 else [str(name) for name in names])


def _table_of(data: pd.DataFrame, is_indexed: bool) -> pd.DataFrame | None:
    """The frame under an index of its rows' levels, where it may be a table of numbers; None where it cannot."""
    is_named = all(name is not None for name in data.columns.names)
    most = _MOST_ROWS if is_named else _MOST_PLAIN
    if not 0 < len(data) <= most or not 0 < len(data.columns) <= most:
        return None
    is_row_names = data.index.nlevels == 1 and all(isinstance(label, str) for label in data.index)
    if not is_named:
        counting = [name for name in map(str, data.columns) if is_counting_name(name) and not _SUMS.fullmatch(name)]
        if counting or data.shape[1] < 2:
            return None
    # Levels of the rows are in the index,
    if is_indexed or (is_row_names and not is_named):
        is_numbers = not is_indexed and all(map(_NUMBER.fullmatch, data.index))
        return None if is_numbers or not data.index.is_unique else data
    if not isinstance(data.index, pd.RangeIndex):
        return None
    # or in the first columns, as many as tell the rows apart.
    texts = [not pd.api.types.is_numeric_dtype(data.iloc[:, i].dtype) for i in range(data.shape[1])]
    if not (is_named or texts[0]):
        return None
    for number in range(max(1, texts.index(False) if False in texts else len(texts)), len(texts)):
        keys = data.iloc[:, :number].astype(str)
        if not keys.duplicated().any() and not (keys == "").any(axis=None):
            names = [name[0] if isinstance(name, tuple) else name for name in data.columns[:number]]
            return data.set_index(list(data.columns[:number])).rename_axis(index=names)
    return None


def _numbers_of(table: pd.DataFrame, argument: str, keep: str) -> _Wide | None:
    """The numbers of a table, None where a cell is none; empty cells of one that has names are refused."""
    dtypes = [table.iloc[:, i].dtype for i in range(table.shape[1])]
    if not all(pd.api.types.is_numeric_dtype(dtype) and not pd.api.types.is_bool_dtype(dtype) for dtype in dtypes):
        return None
    numbers = table.to_numpy(dtype=float, na_value=np.nan)
    wide = _Wide(numbers, table.index, table.columns)
    if not np.isfinite(numbers).all():
        # Empty cells of what is a table of counts otherwise may mean zero or unknown.
        known = wide._replace(numbers=np.nan_to_num(numbers))
        is_named = table.columns.names[0] is not None
        if not known.is_whole or not (known.is_unlike_labels if is_named else known.is_unlike_codes):
            return None
        problem = f"seems to be {wide.shown} with empty cells"
        raise refused(argument, problem, f"pass frame.fillna(0) if nothing was seen there, {keep} if it is none")
    return wide


def _are_shares(numbers: np.ndarray) -> bool:
    """Whether numbers add up to 1 or 100 over the table, its rows or its columns."""
    sums = (numbers.sum(keepdims=True).ravel(), numbers.sum(0), numbers.sum(1))
    return bool((numbers >= 0).all()) and any(np.allclose(one, total) for one in sums for total in (1, 100))


def long_cells(table: CsvColumns, keep: str = "count=None") -> CsvColumns:
    """As :func:`long_table`, of the cells of a file; notes instead of warnings."""
    if not 0 < len(table.lines) <= _MOST_PLAIN or not 0 < len(table.header) <= _MOST_PLAIN or table.categories:
        return table
    if not all(not column[0] or _NUMBER.fullmatch(column[0]) for column in table.columns[1:]):
        return table
    # The file as a frame, with numbers where a column holds nothing else.
    columns: dict[str, Any] = {}
    for name, cells in zip(table.header, table.columns, strict=True):
        is_numbers = any(cells) and all(not cell or _NUMBER.fullmatch(cell) for cell in cells)
        columns[name] = pd.to_numeric(pd.Series(cells)) if is_numbers else pd.Series(cells, dtype=object)
    frame = pd.DataFrame(columns)
    if table.row_names:
        frame.index = pd.Index(table.row_names, dtype=object)
    # What a frame would warn of is a note of the file.
    with warnings.catch_warnings(record=True, action="always") as caught:
        long = long_table(frame, argument=table.path, keep=keep)
    if long is frame:
        return table
    notes = (
        *(note for note in table.notes if "row names" not in note),
        *(str(one.message).partition(": ")[2] for one in caught),
    )
    cells = tuple(tuple(map(str, long[name])) for name in long.columns)
    header = tuple(map(str, long.columns))
    return replace(table, header=header, columns=cells, lines=tuple(range(1, len(long) + 1)), notes=notes, unit="cell")
