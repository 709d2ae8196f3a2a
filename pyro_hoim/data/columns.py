"""Columns before anything is learned: which cannot be, and which have levels in an order."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

import torch

from ..errors import check_names, refused
from ..schema import Domain, Variable
from .observations import Observations

__all__ = [
    "check_columns",
    "identifier_columns",
    "ordered_columns",
    "place_of",
    "refuse_identifiers",
    "relabelled",
    "rows_seen",
    "with_ordinal",
]

_FEW_ROWS = 20
_MANY_LEVELS = 1000
_SHOWN = 6
_NUMBER = r"[-+]?\d+(?:\.\d+)?"
_RANGE = re.compile(rf"[\[(]?\s*({_NUMBER})\s*(?:-|–|to|,|\.\.)\s*({_NUMBER})\s*[\])]?")
_BELOW = re.compile(rf"(?:<=?|under|up to)\s*({_NUMBER})")
_ABOVE = re.compile(rf"(?:>=?|over|from)\s*({_NUMBER})|({_NUMBER})\s*\+")


def check_columns(data: Observations, *, weighted: bool = False) -> None:
    """Refuse columns that name rows instead of describing them; ``weighted`` as :func:`rows_seen` has it."""
    _refuse(identifier_columns(data, weighted=weighted), rows_seen(data, weighted=weighted))


def refuse_identifiers(levels: Sequence[tuple[str, int]], total: float) -> None:
    """As :func:`check_columns`, of the names of columns and their numbers of levels that were seen."""
    _refuse([(name, number) for name, number in levels if _names_rows(number, number, total)], total)


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

    Whole counts that vary, or those of one column alone, are of cells that were seen so often; they are halved, since
    persons may be counted twice each.

    Args:
        data: the rows.
        weighted: whether what they bear are known to be weights of rows.
    """
    counts = data.counts[data.counts > 0]
    rows = len(counts)
    is_cells = data.has_whole_counts and (len(data.domain) == 1 or bool((counts != counts[:1]).any()))
    return max(rows, int(data.total_count / 2)) if is_cells and not weighted else rows


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


def place_of(label: str) -> float | None:
    """Where a label stands on the number line; None for words."""
    text = label.strip().lower()
    if re.fullmatch(_NUMBER, text):
        return float(text)
    if found := _RANGE.fullmatch(text):
        low, high = float(found[1]), float(found[2])
        return (low + high) / 2 if low <= high else None
    if found := _BELOW.fullmatch(text):
        return float(found[1]) - 1e-9 * max(1.0, abs(float(found[1])))
    if found := _ABOVE.fullmatch(text):
        value = float(found[1] or found[2])
        return value + 1e-9 * max(1.0, abs(value))
    return None


def ordered_columns(data: Observations) -> tuple[str, ...]:
    """Nominal variables of three levels or more whose labels are all numbers or ranges of numbers, all different."""
    found: list[str] = []
    for variable in data.domain:
        places = [place_of(label) for label in variable.labels]
        if variable.kind == "nominal" and len(places) > 2 and None not in places and len(set(places)) == len(places):
            found.append(variable.name)
    return tuple(found)


def with_ordinal(data: Observations, names: Sequence[str]) -> Observations:
    """The same rows with some variables ordinal: numbers and ranges in their order, words as they are."""
    check_names(list(names), data.domain.names, "names", noun="column")
    variables: list[Variable] = []
    for name in names:
        places = {label: place_of(label) for label in data.domain[name].labels}
        labels = places if None in places.values() else sorted(places, key=lambda label: places[label] or 0.0)
        variables.append(replace(data.domain[name], labels=tuple(labels), kind="ordinal"))
    return relabelled(data, variables)


def relabelled(data: Observations, variables: Iterable[Variable]) -> Observations:
    """The same rows with some columns over other levels; cells whose label is none of these are missing."""
    known = {variable.name: variable for variable in variables}
    codes = data.codes.clone()
    for column, old in enumerate(data.domain):
        place = {label: code for code, label in enumerate(known.get(old.name, old).labels)}
        codes[:, column] = torch.tensor([*(place.get(label, -1) for label in old.labels), -1])[codes[:, column]]
    return Observations(Domain(known.get(old.name, old) for old in data.domain), codes, data.counts)
