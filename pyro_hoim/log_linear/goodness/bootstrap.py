"""A p-value, and statistics of tables drawn under a fitted model, each refitted by proportional fitting."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.sparse import csr_matrix
from scipy.special import xlogy

from ...structure.hypergraph import InteractionHypergraph
from ..fitting.design import cell_codes, cell_numbers

MIN_TABLES = 99
"""Fewest tables that a p-value is computed from: it is then at least 0.01."""

_SAMPLING = 15  # cost of drawing a cell, in updates of a cell
_MAX_CYCLES = 30
_TOLERANCE = 1e-3  # of a refitted deviance, in standard deviations of chi-square; moves a p-value by less than 0.0005
_CHUNK = 2**18
_PILOT = 20  # tables whose refits tell what one costs


@dataclass(frozen=True, kw_only=True)
class PValue:
    """A p-value and how it was found.

    Attributes:
        p_value: NaN where there is none, and :attr:`p_value_note` says why.
        p_value_statistic: what it is the p-value of: the deviance, or Pearson's statistic (a ``bootstrap`` against the
            saturated model).
        p_value_pearson: of Pearson's statistic, by the same method, or by drawn tables beside ``bartlett``; NaN beside
            a larger model, or without such tables.
        p_value_method: ``chi-square`` with ``df_adjusted``, ``bartlett`` (the same of the statistic over Bartlett's
            factor), ``exact``, ``conditional``, ``bootstrap``, ``rao-scott`` (of a test with a robust covariance), or
            None without a p-value.
        p_value_std_error: Monte Carlo standard error of ``p_value``; 0 where no tables are drawn.
        num_tables: tables drawn, or 0.
        p_value_note: how the method was chosen, or why there is no p-value, in words.
    """

    p_value_note: str
    p_value: float = math.nan
    p_value_pearson: float = math.nan
    p_value_method: Literal["chi-square", "bartlett", "exact", "conditional", "bootstrap", "rao-scott"] | None = None
    p_value_std_error: float = 0.0
    num_tables: int = 0
    p_value_statistic: Literal["deviance", "pearson"] | None = None


def marginal_cells(graph: InteractionHypergraph, cells: np.ndarray) -> list[np.ndarray]:
    """Of every maximal interaction, the number of the marginal cell that each cell in a mask belongs to."""
    codes, cards = cell_codes(graph)[cells], graph.domain.cardinalities
    return [cell_numbers(codes, graph.domain.indices(edge), cards) for edge in graph.maximal_edges]


@dataclass(frozen=True)
class DrawnStatistics:
    """Statistics of the observed table, then of tables drawn from a fitted model, each against its own refit."""

    deviance: np.ndarray  # (1 + tables,), against the saturated model or a larger one
    pearson: np.ndarray  # (1 + tables,), against the saturated model
    num_unfinished: int  # tables with a refit that stopped before its criterion

    def __len__(self) -> int:
        return len(self.deviance) - 1


def bootstrap_cost(num_cells: int, num_margins: int) -> int:
    """Cell updates that one table takes at least: the draw and two cycles of proportional fitting."""
    return num_cells * (_SAMPLING + 2 * num_margins)


def multinomial_tables(expected: np.ndarray, total: int, seed: int) -> Callable[[int], np.ndarray]:
    """Tables of a number of rows drawn from expected counts (num_cells,), as columns (num_cells, size)."""
    random, probs = np.random.default_rng(seed), expected / expected.sum()
    return lambda size: random.multinomial(total, probs, size=size).T.astype(float)


def drawn_statistics(
    draw: Callable[[int], np.ndarray],
    observed: np.ndarray,
    expected: np.ndarray,
    margins: Sequence[np.ndarray],
    larger: Sequence[np.ndarray] | None,
    df: int,
    *,
    num_tables: int,
    budget: float,
    drawing: float | None = None,
) -> DrawnStatistics:
    r"""Deviance and Pearson's statistic of drawn tables, refitted.

    One cycle of proportional fitting scales the table to the drawn margins of every maximal interaction in turn. The
    scaling by :math:`r_k` lowers the deviance by :math:`2 \sum_k n_k \log r_k`, so that the deviance is known at every
    step; a table is finished when what further cycles may take from it is below a thousandth of
    :math:`\sqrt{2\,\mathrm{df}}`.

    How many tables fit into a budget of cell updates is told from tables that do not count: if those that count
    decided when to stop, their ranks would depend on it.

    Shape:
        observed, expected (num_cells,); margins, larger (num_cells,) each; drawn tables (num_cells, size).

    References:
        Yvonne Bishop, Stephen Fienberg and Paul Holland, Discrete Multivariate Analysis, 1975, section 3.5; Anthony
        Davison and David Hinkley, Bootstrap Methods and their Application, 1997, section 4.2.
    """
    models = [_Margins(of) for of in (margins, larger) if of is not None]
    drawing = _SAMPLING * len(expected) if drawing is None else drawing
    tolerance = _TOLERANCE * (2 * df) ** 0.5

    def compared(drawn: np.ndarray) -> tuple[np.ndarray, np.ndarray, float, np.ndarray]:
        deviance, pearson, updates, is_late = _refit(drawn, expected, models[0], tolerance)
        if len(models) > 1:
            lower, _, more, also = _refit(drawn, expected, models[1], tolerance)
            deviance, updates, is_late = deviance - lower, updates + more, is_late | also
        return deviance, pearson, updates, is_late

    # How many tables the budget allows, told by tables that do not count.
    if budget < math.inf:
        is_refitted = any(len(model.members) for model in models)
        refit = compared(draw(_PILOT))[2] / _PILOT if is_refitted else 0.0
        num_tables = min(num_tables, int(budget // (drawing + refit)))
    # The observed table first, then those that are drawn.
    size, parts = max(1, _CHUNK // len(expected)), [compared(observed[:, None].astype(float))]
    parts += [compared(draw(min(size, num_tables - start))) for start in range(0, num_tables, size)]
    deviances, pearsons, late = (np.concatenate([part[i] for part in parts]) for i in (0, 1, 3))
    return DrawnStatistics(deviances, pearsons, int(late.sum()))


class _Margins:
    """Marginal cell of every cell, and the sums over them, for the maximal interactions of a model."""

    def __init__(self, members: Sequence[np.ndarray]) -> None:
        self.members = members
        self.sums = [
            csr_matrix((np.ones(len(m)), (m, np.arange(len(m)))), shape=(m.max() + 1, len(m))) for m in members
        ]


def _refit(
    drawn: np.ndarray, expected: np.ndarray, model: _Margins, tolerance: float
) -> tuple[np.ndarray, np.ndarray, float, np.ndarray]:
    """Deviance, Pearson's statistic, updates made and who was left unfinished, of tables as columns (cells, tables)."""
    # Proportional fitting from the expected counts lowers every deviance by a known gain.
    deviance = 2 * xlogy(drawn, drawn / expected[:, None]).sum(0)  # no difference of large numbers
    pearson = np.empty(drawn.shape[1])
    targets = [matrix @ drawn for matrix in model.sums]
    fitted = np.repeat(expected[:, None], drawn.shape[1], axis=1)
    active = np.arange(drawn.shape[1])
    before = np.full(len(active), np.inf)
    updates = 0.0
    for _ in range(_MAX_CYCLES):
        gain = np.zeros(len(active))
        for member, matrix, target in zip(model.members, model.sums, targets, strict=True):
            present = matrix @ fitted
            ratio = np.divide(target, present, out=np.zeros_like(target), where=present > 0)
            gain += 2 * xlogy(target, ratio).sum(0)
            fitted *= ratio[member]
            updates += fitted.size
        deviance[active] -= gain
        share = np.divide(gain, before, out=np.zeros_like(gain), where=before > 0).clip(0, 0.999)
        # A table is done where a geometric sum of further gains is below the tolerance.
        finished = gain * np.maximum(1.0, share / (1 - share)) <= tolerance
        before = gain
        if finished.any():
            pearson[active[finished]] = _pearson(drawn[:, active[finished]], fitted[:, finished])
            unfinished = ~finished
            active, before, fitted = active[unfinished], before[unfinished], fitted[:, unfinished]
            targets = [target[:, unfinished] for target in targets]
        if not len(active):
            break
    if len(active):
        pearson[active] = _pearson(drawn[:, active], fitted)
    is_late = np.zeros(drawn.shape[1], dtype=bool)
    is_late[active] = True
    return deviance, pearson, updates, is_late


def _pearson(drawn: np.ndarray, fitted: np.ndarray) -> np.ndarray:
    """X2 of tables as columns; the refit has the drawn total."""
    ratio = np.divide(drawn, fitted, out=np.zeros_like(drawn), where=drawn > 0)
    return (drawn * ratio).sum(0) - drawn.sum(0)
