"""Labels and levels: what ``fit`` may be told of them beforehand, and rows of a file with labels that a model lacks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
import pandas as pd
import torch

from ..core.prediction import extend_rows
from ..core.words import listed
from ..data.csv_file import read_csv, read_text
from ..data.encoding import label_of, level_order
from ..data.observations import Observations
from ..data.readers import Source, encode_columns
from ..errors import check_names, check_unique, other_domain, refused, unexpected
from ..schema import Domain, Variable

__all__ = ["UnseenLabels", "levels_from_rows", "read_known", "read_levels", "with_levels"]

_COLUMNS = ["column", "level"]


@dataclass(frozen=True, eq=False)
class UnseenLabels:
    """Rows of a file that were left out because a label of theirs is no level of the model.

    Attributes:
        rows: observations left out.
        labels: the labels by column.
        is_unseen: which rows of the file they are.
    """

    rows: float
    labels: dict[str, list[str]]
    is_unseen: np.ndarray

    def to_json(self) -> dict[str, Any]:
        """Their number and labels, as commands print them."""
        rows = int(self.rows) if self.rows.is_integer() else self.rows
        return {"unseen_label_rows": rows, "unseen_labels": self.labels}

    def lines(self, consequence: str) -> list[str]:
        """What a reader has to know; nothing where there are none."""
        if not self.labels:
            return []
        shown = "; ".join(f"{name}: {listed(labels)}" for name, labels in self.labels.items())
        return [
            f"rows left out       {self.rows:g} with a label that the fit did not know ({shown})",
            f"                    The model gives them no probability: {consequence}.",
            "                    fit --levels or --levels-from makes such labels levels of the model.",
        ]

    def note(self, consequence: str) -> None:
        """The same on standard error, where standard output holds rows."""
        for line in self.lines(consequence):
            click.echo(f"pyro-hoim: note: {line}", err=True)

    def spread(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Lines of the rows that were kept, with empty lines for the others, in the order of the file."""
        frame.index = pd.Index(np.flatnonzero(~self.is_unseen))
        return frame.reindex(range(len(self.is_unseen)))


def read_known(
    domain: Domain, file: Path, missing: tuple[str, ...], *, optional: str | None = None
) -> tuple[Observations, UnseenLabels]:
    """The rows of a CSV file whose labels are all levels of the model, and what is to be said of the others.

    Args:
        domain: of the model.
        file: the rows.
        missing: labels of missing cells, besides none.
        optional: a column that the file may leave out; it is missing then.
    """
    table = read_csv(file)
    present = domain
    if optional is not None and optional not in table.header:
        present = domain.project([name for name in domain.names if name != optional])
    is_unseen, labels = np.zeros(len(table.lines), dtype=bool), {}

    def column(name: str) -> np.ndarray:
        cells = np.asarray(table.column(name), dtype=object)
        if name not in present:
            return cells
        is_new = ~np.isin(cells.astype(str), [*present[name].labels, "", *missing])
        if is_new.any():
            labels[name] = sorted(set(cells[is_new]), key=level_order)
            np.logical_or(is_unseen, is_new, out=is_unseen)
            cells = np.where(is_new, "", cells)
        return cells

    held = Source(table.header, column, table.path, table.where, len(table.lines))
    counting = "count" if "count" in table.header else None
    rows = Observations(*encode_columns(held, present, counting, None, None, ("", *missing)))
    if is_unseen.all():
        Observations.from_csv(file, domain=present, missing_values=("", *missing))  # names the first label
    kept = torch.from_numpy(~is_unseen)
    found = UnseenLabels(float(rows.counts[~kept].sum()), labels, is_unseen)
    return extend_rows(Observations(present, rows.codes[kept], rows.counts[kept]), domain), found


def read_levels(path: Path) -> dict[str, list[str]]:
    """Levels by column from a JSON object ``{column: [level, ...]}`` or a CSV file with columns ``column,level``."""
    if path.suffix.lower() == ".json":
        try:
            found = json.loads(read_text(path, "a JSON object"))
        except json.JSONDecodeError as error:
            raise refused("--levels", f"{path} is not JSON ({error})", code="damaged-file") from None
        if not isinstance(found, dict) or not all(isinstance(v, list) and v for v in found.values()):
            raise unexpected("--levels", f'{{"column": ["level", ...]}} in {path}', received="something else")
        levels = {str(name): [label_of(value) for value in values] for name, values in found.items()}
    else:
        table = read_csv(path)
        if list(table.header) != _COLUMNS:
            raise unexpected("--levels", f"columns column, level in {path}", received=listed(table.header))
        levels = {}
        for name, level in zip(table.column("column"), table.column("level"), strict=True):
            levels.setdefault(name, []).append(level)
    for name, labels in levels.items():
        check_unique(labels, f"--levels: column {name!r}")
    return levels


def levels_from_rows(path: Path, rows: Observations, missing: Sequence[str]) -> dict[str, list[str]]:
    """Levels of the columns of some rows together with those of the same columns of a file, in the order of labels."""
    table = read_csv(path)
    shared = [variable for variable in rows.domain if variable.name in table.header]
    if not shared:
        raise other_domain("--levels-from", f"columns of the table in {path}", received=listed(table.header))
    return {v.name: sorted({*v.labels, *table.column(v.name)} - {"", *missing}, key=level_order) for v in shared}


def with_levels(rows: Observations, levels: Mapping[str, Sequence[str]], option: str) -> Observations:
    """The same rows over a domain with the given levels of some columns."""
    check_names(list(levels), rows.domain.names, option, noun="column")
    codes, variables = rows.codes.clone(), list[Variable]()
    for place, variable in enumerate(rows.domain):
        labels = tuple(levels.get(variable.name, variable.labels))
        lost = [label for label in variable.labels if label not in labels]
        if lost:
            problem = f"expected all labels of column {variable.name!r}, but {listed(lost)} of the rows is missing"
            raise refused(option, problem, code="missing-part")
        new = torch.tensor([*(labels.index(label) for label in variable.labels), -1])
        codes[:, place] = new[codes[:, place]]
        variables.append(Variable(variable.name, labels, variable.kind, variable.unit))
    return Observations(Domain(variables), codes, rows.counts)
