r"""Parametric bootstrap of the goodness of fit: tables drawn from the fitted model, refitted by proportional fitting.

A table of N rows is a multinomial draw from the fitted cell probabilities, so no chain is needed. Its fitted table
follows from the margins of the maximal interactions by iterative proportional fitting that starts at the fitted table
itself, all draws at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_matrix
from scipy.special import xlogy

__all__ = ["MIN_TABLES", "BootstrapStatistics", "bootstrap_cost", "bootstrap_statistics"]

MIN_TABLES = 99
"""Fewest tables that a p-value is computed from: it is then at least 0.01."""

_SAMPLING = 15
"""Cost of drawing a cell, in updates of a cell."""

_MAX_CYCLES = 30
_TOLERANCE = 1e-3
"""Error of a refitted deviance, in standard deviations of chi-square; it moves a p-value by less than 0.0005."""

_CHUNK = 2**18


@dataclass(frozen=True)
class BootstrapStatistics:
    """Statistics of tables drawn from a fitted model, each against its own refit.

    Attributes:
        deviance: G2 of every table.
        pearson: X2 of every table.
        num_unfinished: tables whose refit stopped before its criterion; their statistics are upper limits.

    Shape:
        deviance, pearson (num_tables,).
    """

    deviance: np.ndarray
    pearson: np.ndarray
    num_unfinished: int

    def __len__(self) -> int:
        return len(self.deviance)


def bootstrap_cost(num_cells: int, num_margins: int) -> int:
    """Cell updates that one table takes at least: the draw and two cycles of proportional fitting."""
    return num_cells * (_SAMPLING + 2 * num_margins)


def bootstrap_statistics(
    probs: np.ndarray,
    total: int,
    margins: Sequence[np.ndarray],
    df: int,
    *,
    num_tables: int,
    budget: float,
    seed: int,
) -> BootstrapStatistics:
    r"""Deviance and Pearson's statistic of tables drawn from a fitted model and refitted.

    One cycle of proportional fitting scales the table to the drawn margins of every maximal interaction in turn. The
    scaling by :math:`r_k` lowers the deviance by :math:`2 \sum_k n_k \log r_k`, so that the deviance is known at every
    step; a table is finished when what further cycles may take from it is below a thousandth of
    :math:`\sqrt{2\,\mathrm{df}}`.

    Args:
        probs: positive probabilities of the cells that are not fitted as zero.
        total: rows N of every table.
        margins: for every maximal interaction the number of the marginal cell that each cell belongs to.
        df: degrees of freedom, positive.
        num_tables: tables asked for.
        budget: cell updates after which no further tables are begun; at most twice as many are made.
        seed: of the draws; the same tables come first whatever their number.

    Shape:
        probs (num_cells,); margins (num_cells,) each.

    Returns:
        :class:`BootstrapStatistics` of at most ``num_tables`` tables.

    References:
        Yvonne Bishop, Stephen Fienberg and Paul Holland, Discrete Multivariate Analysis, 1975, section 3.5; Anthony
        Davison and David Hinkley, Bootstrap Methods and their Application, 1997, section 4.2.
    """
    random = np.random.default_rng(seed)
    sums = [csr_matrix((np.ones(len(m)), (m, np.arange(len(m)))), shape=(m.max() + 1, len(m))) for m in margins]
    slowest = len(probs) * (_SAMPLING + _MAX_CYCLES * max(len(margins), 1))
    size = max(1, int(min(num_tables, _CHUNK // len(probs), budget // slowest)))
    tolerance = _TOLERANCE * (2 * df) ** 0.5
    found: list[tuple[np.ndarray, np.ndarray]] = []
    done = unfinished = 0
    spent = 0.0
    while done < num_tables and spent < budget:
        drawn = random.multinomial(total, probs, size=size)[: num_tables - done].T.astype(float)
        deviance, pearson, updates, late = _refit(drawn, total * probs, margins, sums, tolerance)
        found.append((deviance, pearson))
        done += drawn.shape[1]
        spent += updates + _SAMPLING * drawn.size
        unfinished += late
    deviances, pearsons = (np.concatenate(column) for column in zip(*found, strict=True))
    return BootstrapStatistics(deviances, pearsons, unfinished)


def _refit(
    drawn: np.ndarray,
    expected: np.ndarray,
    margins: Sequence[np.ndarray],
    sums: Sequence[csr_matrix],
    tolerance: float,
) -> tuple[np.ndarray, np.ndarray, float, int]:
    """Deviance, Pearson's statistic, updates made and tables left unfinished, of tables as columns (cells, tables)."""
    deviance = 2 * (xlogy(drawn, drawn).sum(0) - np.log(expected) @ drawn)
    pearson = np.empty(drawn.shape[1])
    targets = [matrix @ drawn for matrix in sums]
    fitted = np.repeat(expected[:, None], drawn.shape[1], axis=1)
    active = np.arange(drawn.shape[1])
    before = np.full(len(active), np.inf)
    updates = 0.0
    for _ in range(_MAX_CYCLES):
        gain = np.zeros(len(active))
        for member, matrix, target in zip(margins, sums, targets, strict=True):
            present = matrix @ fitted
            ratio = np.divide(target, present, out=np.zeros_like(target), where=present > 0)
            gain += 2 * xlogy(target, ratio).sum(0)
            fitted *= ratio[member]
            updates += fitted.size
        deviance[active] -= gain
        share = np.divide(gain, before, out=np.zeros_like(gain), where=before > 0).clip(0, 0.999)
        finished = gain * np.maximum(1.0, share / (1 - share)) <= tolerance
        before = gain
        if finished.any():
            pearson[active[finished]] = _pearson(drawn[:, active[finished]], fitted[:, finished])
            kept = ~finished
            active, before, fitted = active[kept], before[kept], fitted[:, kept]
            targets = [target[:, kept] for target in targets]
        if not len(active):
            break
    if len(active):
        pearson[active] = _pearson(drawn[:, active], fitted)
    return deviance, pearson, updates, len(active)


def _pearson(drawn: np.ndarray, fitted: np.ndarray) -> np.ndarray:
    """X2 of tables as columns; the refit has the drawn total."""
    ratio = np.divide(drawn, fitted, out=np.zeros_like(drawn), where=drawn > 0)
    return (drawn * ratio).sum(0) - drawn.sum(0)
