"""Columns before anything is learned: which name rows instead of describing them."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import refused
from .observations import Observations
from .order import place_of

__all__ = [
    "cells_seen",
    "check_columns",
    "identifier_columns",
    "names_rows",
    "place_of",
    "refuse_identifiers",
    "rows_seen",
]

_FEW_ROWS = 20
_MANY_LEVELS = 1000
_SHOWN = 6
_FEW_EACH = 5  # times that one person may be counted


def check_columns(data: Observations, *, weighted: bool = False) -> None:
    """Refuse columns that name rows instead of describing them; ``weighted`` as :func:`rows_seen` has it."""
    _refuse(identifier_columns(data, weighted=weighted), rows_seen(data, weighted=weighted))


def names_rows(levels: Sequence[tuple[str, int]], total: float) -> list[tuple[str, int]]:
    """Columns that name rows, of the names of columns and their numbers of levels that were seen."""
    return [(name, number) for name, number in levels if _names_rows(number, number, total)]


def refuse_identifiers(levels: Sequence[tuple[str, int]], total: float) -> None:
    """As :func:`check_columns`, of the names of columns and their numbers of levels that were seen."""
    _refuse(names_rows(levels, total), total)


def _refuse(found: Sequence[tuple[str, int]], total: float) -> None:
    bad = [f"{name!r} ({levels} levels in {total:g} rows)" for name, levels in found]
    if bad:
        shown = ", ".join(bad[:_SHOWN]) + (f" and {len(bad) - _SHOWN} more" if len(bad) > _SHOWN else "")
        problem = (
            f"expected columns that describe rows, but {shown} {('is' if len(bad) == 1 else 'are')} (almost) unique "
            "per row, so nothing can be learned about the levels"
        )
        raise refused("columns", problem, "leave such columns out, or group their values")


def _names_rows(levels: int, cardinality: int, total: float) -> bool:
    return levels >= total > _FEW_ROWS or (cardinality > _MANY_LEVELS and total < 2 * levels)


def rows_seen(data: Observations, *, weighted: bool = False) -> int:
    """How many rows tell of the levels of a column: those of positive weight, whatever their weights add up to.

    Args:
        data: the rows.
        weighted: whether what they bear are known to be weights of rows, not whole counts.
    """
    rows = int((data.counts > 0).sum())
    return rows if weighted or not data.has_whole_counts else cells_seen(rows, data.total_count, len(data.domain))


def cells_seen(rows: float, total: float, columns: int) -> int:
    """How many rows cells with counts stand for, at least: persons with a count of their own are few each."""
    return int(max(rows, total / (_FEW_EACH if columns > 1 else 2)))


def identifier_columns(data: Observations, *, weighted: bool = False, seen: int | None = None) -> list[tuple[str, int]]:
    """Columns that name rows, with their numbers of levels; ``weighted`` as :func:`rows_seen` has it.

    ``seen`` is the number of rows where it is known, as of rows of which the different ones are held.

    They have as many levels as there are rows (of more than 20), or more than 1,000 levels with fewer than two rows
    each on average.
    """
    total = rows_seen(data, weighted=weighted) if seen is None else seen
    found = list[tuple[str, int]]()
    for variable, codes in zip(data.domain, data.codes.T, strict=True):
        levels = len(codes[(codes >= 0) & (data.counts > 0)].unique())
        if _names_rows(levels, variable.cardinality, total):
            found.append((variable.name, levels))
    return found
