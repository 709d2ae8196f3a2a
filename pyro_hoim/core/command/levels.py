"""Levels of columns that are told beforehand: read from a file, and given to rows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ...data.columns import relabelled
from ...data.csv_file import read_csv, read_text
from ...data.encoding import label_of, level_order
from ...data.observations import Observations
from ...errors import check_names, check_unique, other_domain, refused, unexpected
from ..words import listed

__all__ = ["levels_from_rows", "read_levels", "with_levels"]

_COLUMNS = ["column", "level"]


def read_levels(path: Path) -> dict[str, list[str]]:
    """Levels by column from a JSON object ``{column: [level, ...]}`` or a CSV file with columns ``column,level``."""
    if path.suffix.lower() == ".json":
        try:
            found = json.loads(read_text(path, "a JSON object"))
        except json.JSONDecodeError as error:
            raise refused("levels", f"{path} is not JSON ({error})", code="damaged-file") from None
        if not isinstance(found, dict) or not all(isinstance(v, list) and v for v in found.values()):
            raise unexpected("levels", f'{{"column": ["level", ...]}} in {path}', received="something else")
        levels = {str(name): [label_of(value) for value in values] for name, values in found.items()}
    else:
        table = read_csv(path)
        if list(table.header) != _COLUMNS:
            raise unexpected("levels", f"columns column, level in {path}", received=listed(table.header))
        levels = {}
        for name, level in zip(table.column("column"), table.column("level"), strict=True):
            levels.setdefault(name, []).append(level)
    for name, labels in levels.items():
        check_unique(labels, f"levels column {name!r}")
    return levels


def levels_from_rows(path: Path, rows: Observations, missing: Sequence[str]) -> dict[str, list[str]]:
    """Levels of the columns of some rows together with those of the same columns of a file, in the order of labels."""
    table = read_csv(path)
    shared = [variable for variable in rows.domain if variable.name in table.header]
    if not shared:
        raise other_domain("levels_from", f"columns of the table in {path}", received=listed(table.header))
    return {v.name: sorted({*v.labels, *table.column(v.name)} - {"", *missing}, key=level_order) for v in shared}


def with_levels(rows: Observations, levels: Mapping[str, Sequence[str]], argument: str) -> Observations:
    """The same rows over a domain with the given levels of some columns."""
    check_names(list(levels), rows.domain.names, argument, noun="column")
    variables = [replace(rows.domain[name], labels=tuple(labels)) for name, labels in levels.items()]
    for variable in variables:
        if lost := [label for label in rows.domain[variable.name].labels if label not in variable.labels]:
            problem = f"expected all labels of column {variable.name!r}, but {listed(lost)} of the rows is missing"
            raise refused(argument, problem, code="missing-part")
    return relabelled(rows, variables)
