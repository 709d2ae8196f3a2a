"""P-values of goodness of fit: by which distribution, and why. Private to :mod:`pyro_hoim.learning.goodness_of_fit`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import chdtrc

from ..errors import InputError
from .bootstrap import MIN_TABLES, bootstrap_cost, bootstrap_statistics
from .conditional_test import conditional_cost, conditional_statistics
from .design import cell_codes
from .result import FitResult

__all__ = ["MAX_MEAN_EXCESS", "NUM_TABLES", "PValue", "chi_square_tail", "p_value_of"]

MAX_MEAN_EXCESS = 0.05
"""Largest excess of the mean of G2 over df, in standard deviations of chi-square, at which that is relied on."""

NUM_TABLES = 999
_MAX_TABLES = 10**6
_BUDGET = 3e8
"""Cell updates of a bootstrap that was not asked for by name: about two seconds."""

_CONDITIONAL_BUDGET = 1.5e7
"""Rows moved by an exact test that was not asked for by name: about two seconds."""

_MIN_MARGIN = 5
_MAX_TOTAL = 2**53
_NONE_OF = {
    "early_stopped": "the fit was stopped early on validation rows",
    "max_iterations": "the fit has not converged",
    "stalled": "the fit has not converged",
    "interrupted": "the fit was interrupted",
}


@dataclass(frozen=True)
class PValue:
    """A p-value and that of Pearson's statistic, see :class:`~pyro_hoim.learning.GoodnessOfFit`."""

    note: str
    """Why this method, or why none."""
    value: float = math.nan
    pearson: float = math.nan
    method: Literal["chi-square", "bootstrap", "exact"] | None = None
    std_error: float = 0.0
    num_tables: int = 0
    statistic: Literal["deviance", "pearson"] | None = None


def chi_square_tail(statistic: float, df: int) -> float:
    """Probability of a larger value; NaN without degrees of freedom."""
    return float(chdtrc(df, max(statistic, 0.0))) if df > 0 else math.nan


def p_value_of(
    result: FitResult, deviance: float, pearson: float, df: int, how: str | None, num_tables: int, seed: int
) -> PValue:
    """P-values by the method asked for, or by the one that the expected counts allow.

    Raises:
        InputError: an unknown method, numbers out of range, or a method that cannot be had.
    """
    if how not in ("auto", "chi-square", "exact", "bootstrap", None):
        raise InputError(f"p_value: expected 'auto', 'chi-square', 'exact', 'bootstrap' or None, received {how!r}")
    for name, value, low, high in (("num_tables", num_tables, MIN_TABLES, _MAX_TABLES), ("seed", seed, 0, 2**63 - 1)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or not low <= value <= high:
            raise InputError(f"{name}: expected a whole number from {low} to {high}, received {value!r}")
    if how is None:
        return PValue("none was asked for")
    if result.objective != "likelihood" or result.penalty is not None or not result.is_converged:
        return PValue(_why_no_maximum(result))
    if df <= 0:
        return PValue("no degrees of freedom are left")
    by_chi_square = (chi_square_tail(deviance, df), chi_square_tail(pearson, df), "chi-square", 0.0, 0, "deviance")
    if how == "chi-square":
        return PValue("it was asked for", *by_chi_square)
    expected = _expected(result)
    if how == "auto":
        if expected is None:
            return PValue("the table is too large to list its expected counts")
        excess = float((1 / expected).sum()) / (6 * math.sqrt(2 * df))
        if excess <= MAX_MEAN_EXCESS:
            return PValue(f"{_excess_text(excess)} (limit {MAX_MEAN_EXCESS})", *by_chi_square)
        reason = f"{_excess_text(excess)} (limit {MAX_MEAN_EXCESS})"
    else:
        reason = "it was asked for"
    refusal = _refusal(result, expected)
    graph = result.hypergraph
    if refusal is None and how == "exact" and not (graph.is_decomposable and result.possible is None):
        refusal = "the model is not decomposable, or has structural zeros"
    if refusal is not None or expected is None:
        if how != "auto":
            raise InputError(f"p_value: no method {how!r}, because {refusal}; use 'chi-square' or None")
        return PValue(f"{reason}, too much for the chi-square distribution, and {refusal}")
    observed = (deviance, pearson, df)
    if how == "exact" or (how == "auto" and graph.is_decomposable and result.possible is None):
        return _exact(result, expected, observed, reason, num_tables, seed, bounded=how == "auto")
    return _bootstrap(result, expected, observed, reason, num_tables, seed, bounded=how == "auto")


def _exact(
    result: FitResult,
    expected: np.ndarray,
    observed: tuple[float, float, int],
    reason: str,
    num_tables: int,
    seed: int,
    *,
    bounded: bool,
) -> PValue:
    """P-values given the margins that the model fits, which leave nothing unknown."""
    data = result.complete_data()
    if bounded:
        num_tables = min(num_tables, int(_CONDITIONAL_BUDGET / conditional_cost(result.hypergraph, data)))
    if num_tables < MIN_TABLES:
        return _too_long(reason, "an exact test")
    all_cells = np.zeros(result.hypergraph.domain.num_states)
    all_cells[_cells(result)] = expected
    drawn = conditional_statistics(result.hypergraph, data, all_cells, num_tables=num_tables, seed=int(seed))
    return _counted(drawn, observed, "exact", reason)


def _too_long(reason: str, what: str) -> PValue:
    return PValue(
        f"{reason}, too much for the chi-square distribution, and {what} with {MIN_TABLES} tables would take longer "
        "than about two seconds"
    )


def _counted(
    drawn: tuple[np.ndarray, np.ndarray],
    observed: tuple[float, float, int],
    method: Literal["bootstrap", "exact"],
    note: str,
) -> PValue:
    """Shares of drawn tables with statistics at least as large, the observed table among them."""
    size = len(drawn[0])
    values = [
        (1 + int((column >= statistic - 1e-9 * (1 + abs(statistic))).sum())) / (size + 1)
        for column, statistic in zip(drawn, observed[:2], strict=True)
    ]
    value, statistic = (values[1], "pearson") if method == "bootstrap" else (values[0], "deviance")
    return PValue(note, value, values[1], method, math.sqrt(value * (1 - value) / size), size, statistic)


def _why_no_maximum(result: FitResult) -> str:
    """Why a fit is not one of maximum likelihood."""
    if result.objective != "likelihood":
        return f"the fit is one of the {result.objective}"
    if result.penalty is not None:
        return "the fit is penalised"
    return _NONE_OF.get(result.status, "the fit has not converged")


def _excess_text(excess: float) -> str:
    shown = f"{excess:.2g}" if excess < 100 else "more than 100"
    return f"small expected counts raise the mean of G\N{SUPERSCRIPT TWO} by up to {shown} standard deviations"


def _cells(result: FitResult) -> np.ndarray:
    """Mask of the cells that are not fitted as zero."""
    if result._face is not None:
        return result._face.cells
    return np.ones(result.hypergraph.domain.num_states, dtype=bool)


def _expected(result: FitResult) -> np.ndarray | None:
    """Expected counts of the cells that are not fitted as zero; None without a list of cells."""
    if result._design is None:
        return None
    return result.num_rows * result.probs.numpy()[_cells(result)]


def _refusal(result: FitResult, expected: np.ndarray | None) -> str | None:
    """Why tables of this model cannot be drawn and refitted."""
    if expected is None:
        return "the cells are too many to be listed"
    if not result.hypergraph.is_hierarchical:
        return "the collection is not hierarchical"
    if result.num_rows % 1 or result.num_rows > _MAX_TOTAL or bool((result.complete_data().counts % 1 != 0).any()):
        return "the counts are not whole numbers"
    return None


def _bootstrap(
    result: FitResult,
    expected: np.ndarray,
    observed: tuple[float, float, int],
    reason: str,
    num_tables: int,
    seed: int,
    *,
    bounded: bool,
) -> PValue:
    """P-values by tables drawn from the fitted model, where its margins are not sparse."""
    df, graph = observed[2], result.hypergraph
    codes, cards = cell_codes(graph)[_cells(result)], graph.domain.cardinalities
    members = [list(graph.domain.indices(edge)) for edge in graph.maximal_edges]
    margins = [np.asarray(np.ravel_multi_index(tuple(codes[:, m].T), [cards[i] for i in m])) for m in members]
    if bounded:
        smallest = min(float(np.bincount(m, expected)[np.unique(m)].min()) for m in margins)
        if smallest < _MIN_MARGIN:
            return PValue(
                f"{reason}, too much for the chi-square distribution, and some fitted margins hold fewer than "
                f"{_MIN_MARGIN} rows ({smallest:.3g}), too few for a bootstrap"
            )
        if MIN_TABLES * bootstrap_cost(len(expected), len(margins)) > _BUDGET:
            return _too_long(reason, "a bootstrap")
    drawn = bootstrap_statistics(
        expected / expected.sum(),
        int(result.num_rows),
        margins,
        df,
        num_tables=num_tables,
        budget=_BUDGET if bounded else math.inf,
        seed=int(seed),
    )
    if len(drawn) < MIN_TABLES:
        return _too_long(reason, "a bootstrap")
    late = f"; {drawn.num_unfinished} refits were cut short" if drawn.num_unfinished else ""
    return _counted((drawn.deviance, drawn.pearson), observed, "bootstrap", reason + late)
