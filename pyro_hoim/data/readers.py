"""From named columns of values to a domain, codes and counts: what every reader of observations has in common."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch

from ..budgets import MAX_COLUMNS, check_size
from ..checks import array_of, check_exact_shape
from ..errors import (
    MissingDataError,
    check_names,
    check_type,
    check_unique,
    none_received,
    out_of_range,
    unexpected,
    wrong_shape,
    wrong_type,
)
from ..schema import Domain, Variable
from .csv_file import CsvColumns
from .encoding import check_alike, encode_column, parse_counts, select_columns
from .roles import MOST_CELLS, MOST_WAYS, Counting, counted_cells, is_counting_name, mostly_differ, seeming_counting

__all__ = [
    "Source",
    "asked_columns",
    "check_complete",
    "check_counting",
    "checked_codes",
    "encode_columns",
    "labels_of",
    "missing_as_level",
    "row_counts",
    "row_position",
    "tensor_of_codes",
]

_FRAME = "the frame"
_INTEGER_TYPES = (torch.uint8, torch.int8, torch.uint16, torch.int16, torch.uint32, torch.int32, torch.int64)


def row_position(row: int) -> str:
    """Words for the position of a row that has no line number."""
    return f"row {row} (counted from 0)"


def row_counts(counts: Any, weights: Any, num_rows: int, name: str | None = None) -> torch.Tensor:
    """Validated counts (num_rows,) float64 from at most one of whole counts and weights; ones from neither."""
    if counts is not None and weights is not None:
        raise unexpected("counts, weights", "at most one of them", received="both", code="conflict")
    if counts is None and weights is None:
        return torch.ones(num_rows, dtype=torch.float64)
    name = name or ("counts" if weights is None else "weights")
    given = array_of(counts if weights is None else weights, name)
    check_exact_shape(given, (num_rows,), name)
    return torch.from_numpy(parse_counts(given, name=name, where=row_position, fractional=weights is not None))


class Source(NamedTuple):
    """A table to read: unique column names, a column by its name, and words for messages."""

    header: Sequence[str]
    column: Callable[[str], Any]
    name: str
    where: Callable[[int], str]
    num_rows: int

    @property
    def reader(self) -> str:
        """What reads it, for messages."""
        return "from_pandas(frame" if self.name == _FRAME else "from_csv(path"

    @classmethod
    def of_csv(cls, table: CsvColumns) -> Source:
        """A file that was read."""

        def column(name: str) -> Any:
            cells, dtype = table.column(name), table.categories.get(name)
            return cells if dtype is None else pd.Categorical([cell or None for cell in cells], dtype=dtype)

        return cls(table.header, column, table.path, table.where, len(table.lines))

    @classmethod
    def of_frame(cls, frame: Any) -> Source:
        """A data frame."""
        check_type(frame, pd.DataFrame, "from_pandas frame")
        header = [str(name) for name in frame.columns]
        check_unique(header, "from_pandas columns")
        position = {name: i for i, name in enumerate(header)}
        return cls(header, lambda name: frame.iloc[:, position[name]], _FRAME, row_position, len(frame))


def check_counting(
    table: Source, chosen: Collection[str] = (), say: Callable[[Counting], str | None] | None = None
) -> None:
    """Refuse columns that seem to hold counts or weights and were neither ``chosen`` as variables nor named as such.

    Args:
        table: whose columns of counts and weights were not named.
        chosen: columns that are variables.
        say: how to go on, in words; None for a role that was spoken of. By default by the reader of the table.
    """
    for name in table.header:
        if name in chosen or not (is_counting_name(name) or name == "0"):  # "0" is what pandas calls sizes of groups
            continue
        others = [other for other in table.header if other != name]

        def others_differ(others: Sequence[str] = others) -> bool:
            return mostly_differ(pd.DataFrame({i: table.column(other) for i, other in enumerate(others)}))

        if name == "0" and any(map(str.isdigit, others)):
            continue
        if counting := seeming_counting(name, table.column(name), others_differ, table.where):
            _refuse_counting(table, counting, say)
    if 2 < len(table.header) <= 1 + MOST_WAYS and table.num_rows <= MOST_CELLS:
        counting = counted_cells({name: table.column(name) for name in table.header})
        if counting is not None and counting.name not in chosen:
            _refuse_counting(table, counting, say)


def _refuse_counting(table: Source, found: Counting, say: Callable[[Counting], str | None] | None) -> None:
    told = f"pass Observations.{table.reader}, {found.role}={found.name!r}) if it does, with count=None if it does not"
    told = told if say is None else say(found)
    if told is not None:
        raise found.error(table.name, told)


def asked_columns(
    header: Sequence[str],
    source: str,
    domain: Domain | None,
    columns: Sequence[str] | int | None,
    count: str | None,
    weights: str | None = None,
) -> tuple[list[str], Domain | None, str | None, bool]:
    """Names of the variables to read of a table with a header, their domain if it is known, and the column of counts.

    Arguments as those of :meth:`Observations.from_csv`. Last comes whether it was said which columns hold what.
    """
    is_told = (domain, weights, columns) != (None, None, None) or count != "count" or "count" in header
    is_variable = "count" not in header or weights == "count" or (domain is not None and "count" in domain)
    count = None if count == "count" and is_variable else count
    if count is not None and weights is not None:
        hint = "pass count=None to read it as a variable"
        received = f"columns {count!r} and {weights!r}"
        raise unexpected("count, weights", "at most one of them", hint=hint, received=received, code="conflict")
    counting = weights if count is None else count
    exclude = () if counting is None else (counting,)
    check_names(exclude, header, f"{'weights' if count is None else 'count'} of {source}", noun="column")
    if domain is None:
        names = select_columns(header, columns, exclude=exclude, source=source)
    else:
        if columns is not None:
            domain = domain.project(select_columns(domain.names, columns, exclude=(), source="the domain"))
        names = list(domain.names)
        others = [name for name in header if name not in exclude]
        check_names(names, others, source, noun="column", problem="the table lacks")
    if not names:
        raise none_received(source, "at least one variable besides the counts")
    check_size(len(names), MAX_COLUMNS, "columns", source, "name those to read, as columns")
    return names, domain, counting, is_told


def encode_columns(
    table: Source,
    domain: Domain | None,
    count: str | None,
    weights: str | None,
    columns: Sequence[str] | int | None,
    missing_values: Collection[str],
) -> tuple[Domain, torch.Tensor, torch.Tensor]:
    """Domain, codes (N, d) and counts (N,) of a table; arguments as those of :meth:`Observations.from_csv`."""
    header, column, source, where, num_rows = table
    if isinstance(missing_values, str):
        raise wrong_type("missing_values", "a collection of labels", received=repr(missing_values))
    names, domain, counting, is_told = asked_columns(header, source, domain, columns, count, weights)
    if num_rows == 0:
        raise none_received(source, "at least one row")
    if not is_told:
        check_counting(table)
    check_alike(names, f"names of {source}")
    counts = np.ones(num_rows)
    if counting is not None:
        where_counted, is_weight = f"column {counting!r}", counting == weights
        counts = parse_counts(column(counting), name=where_counted, where=where, fractional=is_weight)
    variables: list[Variable] = []
    codes = np.empty((len(names), num_rows), dtype=np.int64)
    for i, name in enumerate(names):
        known = None if domain is None else domain[name]
        variable, codes[i] = encode_column(
            name, column(name), variable=known, missing_values=missing_values, where=where
        )
        variables.append(variable)
    return Domain(variables) if domain is None else domain, torch.from_numpy(codes.T.copy()), torch.from_numpy(counts)


def tensor_of_codes(codes: Any) -> torch.Tensor:
    """Codes as a tensor, -1 where they are masked."""
    if not isinstance(codes, np.ma.MaskedArray):
        try:
            return torch.as_tensor(codes)
        except (TypeError, ValueError, RuntimeError):
            raise wrong_type("Observations codes", "integers", codes) from None
    held = torch.as_tensor(codes.data)
    is_hidden = torch.from_numpy(np.ma.getmaskarray(codes))
    return held.long().masked_fill(is_hidden, -1) if held.dtype in _INTEGER_TYPES else held


def checked_codes(codes: Any, domain: Domain) -> torch.Tensor:
    """Codes of whole rows (N, d) on the CPU, dtype long, refused unless integers from -1 to cardinality - 1."""
    codes = tensor_of_codes(codes)
    if codes.dtype not in _INTEGER_TYPES:
        raise wrong_type("Observations codes", "integers", received=codes.dtype)
    if codes.dim() != 2 or codes.shape[1] != len(domain):
        raise wrong_shape("Observations codes", f"(rows, {len(domain)})", codes)
    codes = codes.detach().to(device="cpu", dtype=torch.long)
    if len(domain) and len(codes):
        outside = (codes < -1) | (codes >= torch.tensor(domain.cardinalities))
        if bool(outside.any()):
            row, column = (int(i) for i in outside.nonzero()[0])
            variable = domain.variables[column]
            raise out_of_range(
                f"Observations codes: {row_position(row)}, variable {variable.name!r}",
                f"a code from 0 to {variable.cardinality - 1}, or -1 for missing",
                received=int(codes[row, column]),
            )
    return codes


def check_complete(codes: torch.Tensor, domain: Domain, positions: Sequence[int], operation: str) -> None:
    """Raise :class:`MissingDataError` if a column at one of the positions has missing cells."""
    per_column = (codes < 0).sum(0)
    columns = [i for i in positions if int(per_column[i])]
    if columns:
        cells = sum(int(per_column[i]) for i in columns)
        names = ", ".join(repr(domain.names[i]) for i in columns[:6])
        problem = f"{cells} missing cells in {names}{(', ...' if len(columns) > 6 else '')}"
        raise MissingDataError(problem, argument=operation, hint="use drop_missing() or missing_as_level(label) first")


def missing_as_level(domain: Domain, codes: torch.Tensor, label: str) -> tuple[Domain, torch.Tensor]:
    """Domain and codes with the missing cells as a level of that name, behind the others where it is new."""
    if not isinstance(label, str) or not label:
        raise unexpected("missing_as_level label", "a non-empty string", label, code="empty")
    codes = codes.clone()
    variables: list[Variable] = []
    for i, variable in enumerate(domain):
        missing = codes[:, i] < 0
        if bool(missing.any()):
            if label not in variable.labels:
                variable = replace(variable, labels=(*variable.labels, label), kind="nominal")
            codes[missing, i] = variable.code(label)
        variables.append(variable)
    return Domain(variables), codes


def labels_of(domain: Domain, codes: np.ndarray) -> pd.DataFrame:
    """Data frame of labels as categorical columns, NaN where missing."""
    columns: Mapping[str, Any] = {
        variable.name: pd.Categorical.from_codes(
            codes[:, i], categories=list(variable.labels), ordered=variable.kind == "ordinal"
        )
        for i, variable in enumerate(domain)
    }
    return pd.DataFrame(columns, index=range(len(codes)))
