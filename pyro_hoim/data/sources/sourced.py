"""Rows that do not fit into memory, for work that needs their margins and some of the rows themselves."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
import torch
from typing_extensions import override

from ..._modes import plain_mode
from ...budgets import HELD_CELLS, MAX_CELLS
from ...errors import IntractableError, none_received
from ...schema import Domain
from ..frames import RowsLike
from ..observations import Observations
from .rows import RowSource

_MOST_ROWS = 2**20  # of the sample


@dataclass(frozen=True, eq=False)
class SourcedRows(Observations):
    """Rows of sources: a sample of them, whose counts add up to their number, and the margins of all of them.

    ``codes`` and ``counts`` are those of the sample, which does not depend on where the rows lie or how they are read.
    Marginal counts are those of all rows, in one pass for all sets that were not asked for before.
    """

    sources: tuple[RowSource, ...] = ()

    @classmethod
    def of(cls, *sources: RowSource) -> Self:
        """Complete rows of sources over one domain."""
        domain = sources[0].domain
        # Every source gives about as many rows, with counts that add up to all of its own.
        most = min(_MOST_ROWS, _num_held(domain))
        samples = [source.sample(max(1, most // len(sources)), seed=0) for source in sources]
        totals = [source.total_count for source in sources]
        parts = [(sample, total) for sample, total in zip(samples, totals, strict=True) if total > 0]
        if not parts:
            raise none_received("data", "at least one observation")
        codes = torch.cat([sample.narrow for sample, _ in parts])
        counts = torch.cat([sample.counts * (total / sample.total_count) for sample, total in parts])
        rows = cls(domain, codes, counts, sources=sources)
        rows.marginal_counts([(name,) for name in domain.names])  # says where cells are missing
        return rows

    @cached_property
    def has_whole_counts(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Every row counts once; it is the sample that stands for more rows than it has."""
        return True

    @cached_property
    def total_count(self) -> float:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Number of all rows."""
        return math.fsum(source.total_count for source in self.sources)

    @cached_property
    @plain_mode()
    def held(self) -> Observations:
        """The sample as observations of their own, not of all rows."""
        return self.replaced(counts=self.counts * (self.num_rows / self.total_count))

    @override
    def unique(self) -> Self:
        return self

    @cached_property
    def _known(self) -> dict[tuple[str, ...], np.ndarray]:
        """Tables counted before."""
        return {}

    @override
    def marginal_counts(self, edges: Iterable[Sequence[str]], *, max_cells: int = MAX_CELLS) -> torch.Tensor:
        wanted = [(edge,) if isinstance(edge, str) else tuple(edge) for edge in edges]
        new = list(dict.fromkeys(edge for edge in wanted if edge not in self._known))
        if new:
            total = sum(source.marginal_counts(new, max_cells=max_cells).numpy() for source in self.sources)
            sizes = [math.prod(self.domain[name].cardinality for name in edge) for edge in new]
            self._known.update(zip(new, np.split(np.asarray(total), np.cumsum(sizes)[:-1]), strict=True))
        parts = [self._known[edge] for edge in wanted]
        return torch.from_numpy(np.concatenate([np.zeros(0), *parts]))

    @override
    def split(self, fractions: Sequence[float], seed: int) -> tuple[Self, ...]:
        parts = [source.split(fractions, seed) for source in self.sources]
        return tuple(type(self).of(*part) for part in zip(*parts, strict=True))


def rows_of(source: RowSource) -> Observations:
    """The distinct rows of a source, or where these are more than 2^25 cells, a sample and the margins of all.

    Which of both does not depend on where the rows lie.
    """
    distinct = few_rows(source)
    return SourcedRows.of(source) if distinct is None else distinct


def few_rows(source: RowsLike) -> Observations | None:
    """The distinct rows of a source, None where these are more than 2^25 cells."""
    try:
        return source.distinct(max_rows=_num_held(source.domain))
    except IntractableError:
        return None


def _num_held(domain: Domain) -> int:
    """The most rows that are held."""
    return HELD_CELLS // max(1, len(domain))


def held_rows(rows: Observations) -> Observations:
    """Rows as they are, or a sample of them where they are not in memory."""
    return rows.held if isinstance(rows, SourcedRows) else rows
