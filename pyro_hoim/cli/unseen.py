"""Rows with labels that a model does not know, which are left out, and what is said of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from ..core.command.reading import Pieces, distinct_rows, weighted
from ..core.prediction import extend_rows
from ..core.words import listed
from ..data.bins import Bins
from ..data.encoding import level_order
from ..data.observations import Observations
from ..data.sources import RowSource
from ..errors import check_names
from ..schema import Domain

__all__ = ["KnownRows", "UnseenLabels"]

_BLOCK = 2**16


@dataclass(frozen=True, eq=False)
class UnseenLabels:
    """Rows of a file that were left out because a label of theirs is no level of the model.

    Attributes:
        rows: observations left out.
        labels: the labels by column.
        is_unseen: which rows of the file they are.
        reader: of rows that are read piece by piece, what reads them again.
    """

    rows: float
    labels: dict[str, list[str]]
    is_unseen: np.ndarray
    reader: KnownRows | None = None

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


@dataclass(frozen=True, eq=False)
class KnownRows:
    """Rows that are read piece by piece, and which level of a model each label of theirs is.

    Attributes:
        domain: of the model.
        source: over the labels that the rows have.
        codes: by column of the source, the code in the model of every code: -1 for missing, -2 for none.
        path: of the rows.
        weight: column of weights, which the source has beside those of the model.
    """

    domain: Domain
    source: RowSource
    codes: tuple[np.ndarray, ...]
    path: Path
    weight: str | None = None

    @classmethod
    def opened(
        cls,
        domain: Domain,
        path: Path,
        pieces: Pieces,
        missing: Sequence[str],
        optional: Sequence[str],
        reading: Mapping[str, Any],
    ) -> KnownRows:
        """The rows of a folder or file; ``optional`` columns may be absent, columns are cut as is ``reading``."""
        count = reading.get("count_column", "count")
        files = pieces.files(path)
        header = files.header
        names = [name for name in domain.names if name in header or name not in optional]
        weight = reading.get("weight_column")
        weight = weight if weight in header and weight not in domain else None
        used = count if count in header and count not in domain and weight is None else None
        bins = {name: Bins.from_json(cut) for name, cut in reading.get("bins", {}).items() if name in names}
        cuts = {name: cut for name, cut in bins.items() if cut.kind == "numbers"}
        columns = names if weight is None else [*names, weight]
        rows = pieces.opened(files, columns=columns, count=used, missing_values=missing, bins=cuts)
        codes: list[np.ndarray] = []
        for variable in (v for v in rows.domain if v.name != weight):
            labels: Sequence[str] = variable.labels
            known = domain[variable.name].labels
            if variable.name in bins.keys() - cuts and not {*labels} <= {*known}:
                labels = bins[variable.name].apply(labels, name=variable.name)
            code_of = {label: code for code, label in enumerate(known)}
            codes.append(np.array([*(code_of.get(label, -2 if label else -1) for label in labels), -1]))
        return cls(domain, rows, tuple(codes), path, weight)

    def distinct(self) -> tuple[Observations, UnseenLabels]:
        """The distinct rows all of whose labels are levels of the model, and what is to be said of the others."""
        rows, _ = distinct_rows(self.source, self.path, self.weight)
        found, is_unseen = self.coded(rows)
        labels = self.unseen_labels()
        if not len(found.codes) and labels:
            name = next(iter(labels))
            check_names(labels[name][:1], self.domain[name].labels, f"{self.path}, column {name!r}", noun="label")
        return found.unique(), UnseenLabels(float(rows.counts[is_unseen].sum()), labels, is_unseen.numpy(), self)

    def unseen_labels(self) -> dict[str, list[str]]:
        """Labels that are no level of the model, by column."""
        return {
            variable.name: sorted(np.array(variable.labels)[codes[:-1] == -2].tolist(), key=level_order)
            for variable, codes in zip(self._domain, self.codes, strict=True)
            if (codes == -2).any()
        }

    @property
    def _domain(self) -> Domain:
        """The variables of the source that the model has."""
        names = self.source.domain.names
        return self.source.domain.project([name for name in names if name != self.weight])

    def blocks(self) -> Iterator[Observations]:
        """The rows in their order, 65,536 at a time wherever they lie and however they are read."""
        waiting = list[Observations]()
        for batch in self.source.batches():
            codes = torch.from_numpy(batch.codes.T.astype(np.int64))
            rows = Observations(self.source.domain, codes, torch.from_numpy(batch.weights.astype(np.float64)))
            waiting.append(weighted(rows, self.weight, self.path))
            while sum(part.num_rows for part in waiting) >= _BLOCK:
                whole = Observations.concatenated(waiting)
                yield whole.rows(torch.arange(_BLOCK))
                waiting = [whole.rows(torch.arange(_BLOCK, whole.num_rows))]
        if sum(part.num_rows for part in waiting):
            yield Observations.concatenated(waiting)

    def coded(self, rows: Observations) -> tuple[Observations, torch.Tensor]:
        """Rows of the source as rows of the model, those with other labels left out, and which these are."""
        columns = [codes[rows.codes[:, i].numpy()] for i, codes in enumerate(self.codes)]
        codes = torch.from_numpy(np.stack(columns, axis=1).astype(np.int64))
        is_unseen = (codes == -2).any(1)
        present = self.domain.project(self._domain.names)
        order = [self._domain.names.index(name) for name in present.names]
        kept = rows.rows(~is_unseen).replaced(domain=present, codes=codes[~is_unseen][:, order])
        return extend_rows(kept, self.domain), is_unseen
