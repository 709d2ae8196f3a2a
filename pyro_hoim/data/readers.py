"""From named columns of values to a domain, codes and counts: what every reader of observations has in common."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
import torch

from ..errors import InputError, InputTypeError, check_names
from ..schema import Domain, Variable
from .encoding import encode_column, parse_counts, select_columns

__all__ = ["encode_columns", "row_counts", "row_position"]


def row_position(row: int) -> str:
    """Words for the position of a row that has no line number."""
    return f"row {row} (counted from 0)"


def row_counts(counts: Any, weights: Any, num_rows: int) -> torch.Tensor:
    """Validated counts from at most one of whole counts and weights; ones from neither.

    Shape:
        counts and weights (num_rows,); returned (num_rows,), float64.

    Raises:
        InputError: both are given, wrong shape, or an entry that :func:`parse_counts` refuses.
    """
    if counts is not None and weights is not None:
        raise InputError("counts, weights: expected at most one of them, received both")
    if counts is None and weights is None:
        return torch.ones(num_rows, dtype=torch.float64)
    name, given = ("counts", np.asarray(counts)) if weights is None else ("weights", np.asarray(weights))
    if given.shape != (num_rows,):
        raise InputError(f"{name}: expected shape ({num_rows},), received {given.shape}")
    return torch.from_numpy(parse_counts(given, name=name, where=row_position, fractional=weights is not None))


def encode_columns(
    header: Sequence[str],
    column: Callable[[str], Any],
    *,
    source: str,
    where: Callable[[int], str],
    num_rows: int,
    domain: Domain | None,
    count: str | None,
    weights: str | None,
    columns: Sequence[str] | int | None,
    missing_values: Collection[str],
) -> tuple[Domain, torch.Tensor, torch.Tensor]:
    """Domain, codes and counts of a table given by its column names and a function that returns a column.

    Args:
        header: names of all columns, unique.
        column: values of a column by its name.
        source: what is read, for messages.
        where: words for the position of row ``i``, for messages.
        num_rows: number of rows N.
        domain: known variables; their columns are read and others are ignored.
        count: name of the column of whole counts, or None.
        weights: name of the column of weights, or None.
        columns: names to read, or how many from the left, or None for all.
        missing_values: labels that mean "missing".

    Shape:
        returned codes (N, d) long; counts (N,) float64.

    Raises:
        UnknownNameError: an unknown column or label.
        InputError: no rows, no variables, both ``count`` and ``weights``, or bad counts.
        InputTypeError: ``missing_values`` is a single string.
    """
    if isinstance(missing_values, str):
        raise InputTypeError(f"missing_values: expected a collection of labels, received {missing_values!r}")
    if count is not None and weights is not None:
        raise InputError(
            f"count, weights: expected at most one of them, received columns {count!r} and {weights!r}; "
            "pass count=None to read it as a variable"
        )
    counting = weights if count is None else count
    if counting is not None:
        check_names([counting], header, f"{'weights' if count is None else 'count'} of {source}", noun="column")
    if num_rows == 0:
        raise InputError(f"{source}: expected at least one row, received none")
    exclude = () if counting is None else (counting,)
    if domain is None:
        names = select_columns(header, columns, exclude=exclude, source=source)
    else:
        if columns is not None:
            domain = domain.project(select_columns(domain.names, columns, exclude=(), source="the domain"))
        names = list(domain.names)
        check_names(names, [name for name in header if name not in exclude], source, noun="column")
    if not names:
        raise InputError(f"{source}: expected at least one variable besides the counts, received none")
    counts = np.ones(num_rows)
    if counting is not None:
        counts = parse_counts(column(counting), name=f"column {counting!r}", where=where, fractional=count is None)
    variables: list[Variable] = []
    codes = np.empty((len(names), num_rows), dtype=np.int64)
    for i, name in enumerate(names):
        known = None if domain is None else domain[name]
        variable, codes[i] = encode_column(
            name, column(name), variable=known, missing_values=missing_values, where=where
        )
        variables.append(variable)
    return Domain(variables) if domain is None else domain, torch.from_numpy(codes.T.copy()), torch.from_numpy(counts)
