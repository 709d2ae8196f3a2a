"""The rows of a file that the commands on a model work on: those whose labels it knows, or numbers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import torch
from scipy import sparse

from ..core.prediction import extend_rows
from ..core.words import listed
from ..data.count_files import read_matrix, read_names
from ..data.counts import CountTable
from ..data.csv_file import read_csv
from ..data.encoding import level_order
from ..data.observations import Observations
from ..data.readers import Source, encode_columns
from ..errors import check_names, conflict
from ..schema import Domain, NumberKind

__all__ = ["UnseenLabels", "read_counts", "read_known"]


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

    def spread(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Lines of the rows that were kept, with empty lines for the others, in the order of the file."""
        frame.index = pd.Index(np.flatnonzero(~self.is_unseen))
        return frame.reindex(range(len(self.is_unseen)))


def read_known(
    domain: Domain, file: Path, missing: tuple[str, ...], *, optional: str | None = None
) -> tuple[Observations, UnseenLabels]:
    """The rows of a CSV file whose labels are all levels of the model, and what is to be said of the others.

    Cells with a label among ``missing`` are missing, and the optional column where the file leaves it out.
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


def read_counts(domain: Domain, file: Path, vocab: Path | None, optional: str | None = None) -> tuple[CountTable, bool]:
    """Rows of a file with the columns of a model, in their order, and whether the optional one, else zero, is there.

    Other columns of the file are ignored; ``vocab`` names those of a ``.npz`` file.
    """
    kind = cast(NumberKind, next((v.kind for v in domain), "count"))
    if file.suffix == ".npz":
        matrix = read_matrix(file)
        header = read_names(file, vocab, int(matrix.shape[1]))
        read = partial(CountTable.from_matrix, matrix, header, source=str(file))
    elif vocab is not None:
        raise conflict("--vocab", f"belongs to a .npz file, received {file}, whose header names its columns")
    else:
        cells = read_csv(file)
        header = cells.header
        read = partial(CountTable.from_csv, cells)
    known = set(header)
    absent = [name for name in domain.names if name not in known]
    wanted = [name for name in absent if name != optional]
    if wanted:
        check_names(wanted[:1], header, str(file), noun="column")
    held = [name for name in domain.names if name in known]
    if not held:
        return CountTable.from_matrix(np.zeros((0, len(domain))), domain.names, kind=kind), False
    table = read(kind=kind, columns=held)
    if not absent:
        return table, True
    empty = np.zeros((table.num_rows, len(absent)))
    is_sparse = kind == "count"
    joined = sparse.hstack([sparse.csr_matrix(table.matrix), empty]) if is_sparse else np.hstack([table.matrix, empty])
    return CountTable.from_matrix(joined, [*held, *absent], kind=kind, source=str(file)).columns(domain.names), False
