"""P-values of goodness of fit: by which distribution, and why. Private to :mod:`pyro_hoim.learning.goodness_of_fit`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import chdtrc

from ..errors import InputError
from .bootstrap import MIN_TABLES, bootstrap_cost, bootstrap_statistics
from .design import cell_codes
from .result import FitResult

__all__ = ["MAX_MEAN_EXCESS", "NUM_TABLES", "PValue", "chi_square_tail", "p_value_of"]

MAX_MEAN_EXCESS = 0.05
"""Largest excess of the mean of G2 over df, in standard deviations of chi-square, at which that is relied on."""

NUM_TABLES = 999
_MAX_TABLES = 10**6
_BUDGET = 3e8
"""Cell updates of a bootstrap that was not asked for by name: about two seconds."""

_MAX_TOTAL = 2**53
_NONE_OF = {
    "early_stopped": "the fit was stopped early on validation rows",
    "max_iterations": "the fit has not converged",
    "stalled": "the fit has not converged",
    "interrupted": "the fit was interrupted",
}


@dataclass(frozen=True)
class PValue:
    """P-values of deviance and Pearson's statistic, see :class:`~pyro_hoim.learning.GoodnessOfFit`."""

    note: str
    """Why this method, or why none."""
    deviance: float = math.nan
    pearson: float = math.nan
    method: Literal["chi-square", "bootstrap"] | None = None
    std_error: float = 0.0
    num_tables: int = 0


def chi_square_tail(statistic: float, df: int) -> float:
    """Probability of a larger value; NaN without degrees of freedom."""
    return float(chdtrc(df, max(statistic, 0.0))) if df > 0 else math.nan


def p_value_of(
    result: FitResult, deviance: float, pearson: float, df: int, how: str | None, num_tables: int, seed: int
) -> PValue:
    """P-values by the method asked for, or by the one that the expected counts allow.

    Raises:
        InputError: an unknown method, numbers out of range, or a bootstrap that cannot be had.
    """
    if how not in ("auto", "chi-square", "bootstrap", None):
        raise InputError(f"p_value: expected 'auto', 'chi-square', 'bootstrap' or None, received {how!r}")
    for name, value, low, high in (("num_tables", num_tables, MIN_TABLES, _MAX_TABLES), ("seed", seed, 0, 2**63 - 1)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or not low <= value <= high:
            raise InputError(f"{name}: expected a whole number from {low} to {high}, received {value!r}")
    if how is None:
        return PValue("none was asked for")
    if result.objective != "likelihood" or result.penalty is not None or not result.is_converged:
        return PValue(_why_no_maximum(result))
    if df <= 0:
        return PValue("no degrees of freedom are left")
    by_chi_square = (chi_square_tail(deviance, df), chi_square_tail(pearson, df), "chi-square")
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
    if refusal is not None or expected is None:
        if how == "bootstrap":
            raise InputError(f"p_value: no bootstrap, because {refusal}; use 'chi-square' or None")
        return PValue(
            f"{reason}, too much for the chi-square distribution, and there is no bootstrap, because {refusal}"
        )
    return _bootstrap(result, expected, (deviance, pearson, df), reason, num_tables, seed, bounded=how == "auto")


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
    """Shares of drawn tables with statistics at least as large, the observed table among them."""
    deviance, pearson, df = observed
    graph = result.hypergraph
    codes, cards = cell_codes(graph)[_cells(result)], graph.domain.cardinalities
    members = [list(graph.domain.indices(edge)) for edge in graph.maximal_edges]
    margins = [np.asarray(np.ravel_multi_index(tuple(codes[:, m].T), [cards[i] for i in m])) for m in members]
    least = MIN_TABLES * bootstrap_cost(len(expected), len(margins))
    too_long = PValue(
        f"{reason}, too much for the chi-square distribution, and a bootstrap of {MIN_TABLES} tables would take longer "
        "than about two seconds"
    )
    if bounded and least > _BUDGET:
        return too_long
    drawn = bootstrap_statistics(
        expected / expected.sum(),
        int(result.num_rows),
        margins,
        df,
        num_tables=num_tables,
        budget=_BUDGET if bounded else math.inf,
        seed=int(seed),
    )
    size = len(drawn)
    if size < MIN_TABLES:
        return too_long
    values = [
        (1 + int((column >= statistic - 1e-9 * (1 + abs(statistic))).sum())) / (size + 1)
        for column, statistic in ((drawn.deviance, deviance), (drawn.pearson, pearson))
    ]
    late = f"; {drawn.num_unfinished} refits were cut short, which can only raise the p-value of G\N{SUPERSCRIPT TWO}"
    return PValue(
        f"{reason}{late if drawn.num_unfinished else ''}",
        values[0],
        values[1],
        "bootstrap",
        math.sqrt(values[0] * (1 - values[0]) / size),
        size,
    )
