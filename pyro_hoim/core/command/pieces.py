"""Files of rows that a command reads piece by piece: folders, and files for which a cluster or a chunk is named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ...data.encoding import parse_counts
from ...data.observations import Observations
from ...data.sources import RowSource
from ...data.sources.files import RowFiles
from ...data.sources.opening import HowRead, files_of, opened_rows
from ...errors import IntractableError, conflict
from ..words import option, plural

__all__ = ["Pieces", "distinct_rows", "weighted"]


@dataclass(frozen=True)
class Pieces:
    """How rows are read piece by piece.

    Attributes:
        cluster: address of a scheduler of Dask, or ``local``; None reads here.
        chunk_rows: rows of a batch, at most; None for the default.
        sep: the character between cells of text; None finds it.
        encoding: of text; None finds it.
    """

    cluster: str | None = None
    chunk_rows: int | None = None
    sep: str | None = None
    encoding: str | None = None

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Pieces:
        """From the values of options, of which any may be absent."""
        return cls(*(values.get(name) for name in ("cluster", "chunk_rows", "sep", "encoding")))

    def wanted(self, source: Path | str) -> bool:
        """Whether a file or folder is to be read so."""
        return Path(source).is_dir() or self.cluster is not None or self.chunk_rows is not None

    def check_unused(self, source: str) -> None:
        """Refuse the options where there is no file to read."""
        for name in ("cluster", "chunk_rows"):
            if getattr(self, name) is not None:
                raise conflict(name, f"belongs to files of Parquet or text, received {source}")

    def files(self, source: Path | str) -> RowFiles:
        """The files, judged but not read."""
        return files_of(Path(source), HowRead(cluster=self.cluster, delimiter=self.sep, encoding=self.encoding))

    def opened(self, files: RowFiles, **options: Any) -> RowSource:
        """Their rows, with options of :func:`~pyro_hoim.data.open_rows`; columns are not checked."""
        size = {} if self.chunk_rows is None else {"chunk_rows": self.chunk_rows}
        return opened_rows(files, HowRead(**size, **options, is_checked=False))


def weighted(rows: Observations, weight: str | None, source: Path | str) -> Observations:
    """Rows without a column of weights, their counts times these.

    Counts of rows of equal weight are whole numbers, so sums do not depend on how rows are read.

    Raises:
        InputError: missing or negative weights, or none above zero.
    """
    if weight is None:
        return rows
    (place,) = rows.domain.indices([weight])
    codes, counts = rows.codes[:, place], rows.counts
    labels = [*rows.domain[weight].labels, *([""] if bool((codes < 0).any()) else [])]
    found = parse_counts(labels, name=f"column {weight!r}", where=lambda _: str(source), fractional=True)
    rest = rows.project([name for name in rows.domain.names if name != weight])
    each = torch.as_tensor(found, dtype=torch.float64)[codes]
    return Observations(rest.domain, rest.codes, counts * each, True, counts * each.square())


def distinct_rows(
    rows: RowSource, source: Path | str, weight: str | None = None, notes: Sequence[str] = ()
) -> tuple[Observations, str]:
    """The distinct rows, whose counts are sums of a column of weights if there is one, and a sentence on them.

    Raises:
        IntractableError: they do not fit into memory.
    """
    try:
        found = rows.distinct()
    except IntractableError as error:
        hint = f"take fewer columns ({option('columns')}), or pass open_rows to pyro_hoim.fit or learn, for margins"
        raise error.replace(argument=str(source), hint=hint) from None
    lines = plural(found.total_count, "row")
    if weight is not None:
        found = weighted(found, weight, source).unique()
    told = f"{lines} read piece by piece, {found.num_rows:,} of them different"
    return found, f"{source}: {'; '.join([*notes, told])}"
