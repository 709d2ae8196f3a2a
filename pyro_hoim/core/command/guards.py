"""Judging rows before any work: what stops a fit, with what to say to go on, and what is only worth a warning."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence

import numpy as np

from ...data.bins import is_dates
from ...data.columns import identifier_columns, rows_seen
from ...data.observations import Observations
from ...data.order import Order
from ...errors import DataWarning, caller_level, check_names, refused
from ...structure.hypergraph import InteractionHypergraph
from ..words import listed, option, plural, rows_text, shorten

__all__ = ["check_rows", "warn_of_columns", "warn_of_ranks", "warn_of_size", "warn_of_uniform"]

_MOST_DATES = 12
_MOST_NUMBERS = 30
_MOST_LEVELS = 100
_FEW_LEVELS = 20
_WORDS = 3  # blanks in an answer of free text, on average
_SHOWN = 6


def check_rows(
    rows: Observations, allow: Sequence[str] = (), *, seen: int | None = None, weighted: bool = False
) -> None:
    """Refuse columns whose levels say nothing or cannot be learned.

    These are identifiers, dates and numbers that nearly all differ, free text, and more than 100 levels; columns that
    are allowed by name pass. ``seen`` is the number of rows that were read, where only different ones are held; rows of
    weights that are ``weighted`` count once each.

    Raises:
        UnknownNameError: an allowed column that is not there.
        InputError: such columns, each with the reason, and what to do about them.
    """
    names = rows.domain.names
    check_names(list(allow), names, "allow", noun="column")
    identifiers = dict(identifier_columns(rows, weighted=weighted, seen=seen))
    total = rows_seen(rows, weighted=weighted) if seen is None else seen
    faults = {name: _fault(rows, name, total, name in identifiers) for name in names if name not in allow}
    bad = {name: fault for name, fault in faults.items() if fault is not None}
    if bad:
        reasons = [f"{name!r} {words}" for name, (words, _) in list(bad.items())[:_SHOWN]]
        more = f", and {len(bad) - _SHOWN} more are no better" if len(bad) > _SHOWN else ""
        problem = f"expected columns that describe rows by few levels, but {', '.join(reasons)}{more}"
        raise refused("columns", problem, _way_on([n for n in names if n not in bad], bad))


def warn_of_columns(rows: Observations) -> None:
    """Warn of constant columns.

    Warns:
        DataWarning: columns with one level.
    """
    constant = [name for name in rows.domain.names if len(_held(rows, name)) < 2]
    if constant:
        noun = "constant column" + "s" * (len(constant) > 1)
        warnings.warn(
            DataWarning(f"{noun}, which no interaction can hold: {listed(constant)}"), stacklevel=caller_level()
        )


def _way_on(good: Sequence[str], bad: dict[str, tuple[str, str | None]]) -> str:
    """What to say to go on."""
    names = ",".join(good)
    leave = option("columns", names) if good and len(names) <= 160 else f"{option('columns')} with the others"
    ways = [f"leave them out ({leave})"]
    rules = [option("bins", f"{name}={rule}") for name, (_, rule) in bad.items() if rule is not None]
    if rules:
        ways.append(f"cut numbers and dates into levels ({' '.join(rules[:6])}{' ...' if len(rules) > 6 else ''})")
    return f"{', '.join(ways)}, or keep a column as it is ({option('allow', next(iter(bad)))})"


def _held(rows: Observations, name: str) -> np.ndarray:
    codes = rows.codes[:, rows.domain.index(name)].numpy()
    return np.unique(codes[(codes >= 0) & (rows.counts.numpy() > 0)])


def _fault(rows: Observations, name: str, total: int, is_identifier: bool) -> tuple[str, str | None] | None:
    """Why a column should not be taken as it is, and a rule that would cut it into levels; None where it may be."""
    variable = rows.domain[name]
    labels = [variable.labels[code] for code in _held(rows, name)]
    levels = len(labels)
    if levels <= _MOST_DATES or variable.kind == "ordinal":
        return None
    if is_dates(labels):
        return f"holds {levels:,} dates", "width:year"
    if levels > min(_MOST_NUMBERS, total / 2) and all(map(_is_number, labels)):
        if is_identifier and _are_row_numbers(labels):
            return f"({levels:,} levels in {total:,} rows) is unique per row, like an identifier", None
        return f"holds {levels:,} different numbers", "quantile:4"
    if is_identifier or (levels > _FEW_LEVELS and 2 * levels > total):
        blanks = sum(label.count(" ") for label in labels) / levels
        if blanks >= _WORDS:
            return f"holds free text ({shorten(labels[0])!r})", None
        return f"({levels:,} levels in {total:,} rows) is (almost) unique per row, like an identifier", None
    return (f"has {levels:,} levels", None) if levels > _MOST_LEVELS else None


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _are_row_numbers(labels: Sequence[str]) -> bool:
    """Whether whole numbers follow each other without large gaps."""
    numbers = sorted(map(float, labels))
    return all(number.is_integer() for number in numbers) and numbers[-1] - numbers[0] < 2 * len(numbers)


def warn_of_ranks(orders: Mapping[str, Order]) -> None:
    """Warn of levels that are numbers not equally far apart, of which scores are the ranks."""
    for name, order in orders.items():
        if order.has_gaps:
            told = f"the levels {listed(order.labels)} of {name!r} are not equally far apart, and linear({name}) takes"
            told += f" their ranks; linear({name}, labels) takes the numbers"
            warnings.warn(DataWarning(told), stacklevel=caller_level())


def warn_of_size(rows: Observations, num_parameters: int, hint: str = "") -> None:
    """Warn where a model has more parameters than there are rows; ``hint`` says what to use.

    Warns:
        DataWarning: with both numbers.
    """
    if num_parameters > (rows.total_count if rows.has_whole_counts else rows.num_rows):
        hint = hint or f"{option('prior', 'unit')}, a lower {option('order')} or fewer {option('columns')}"
        sizes = f"{plural(num_parameters, 'parameter')} for {rows_text(rows)}"
        told = f"{sizes}: estimates will be poor or infinite; use {hint}"
        warnings.warn(DataWarning(told), stacklevel=caller_level())


def warn_of_uniform(graph: InteractionHypergraph, name: str) -> None:
    """Warn of the columns that a model, known by a name, has no term of.

    Warns:
        DataWarning: with these columns.
    """
    absent = [column for column in graph.domain.names if (column,) not in graph]
    if absent:
        told = f"{name} has no term of {listed(absent, _SHOWN)}: their levels are taken as equally frequent; add the"
        told += f" terms, or leave the columns out by {option('columns')}"
        warnings.warn(DataWarning(told), stacklevel=caller_level())
