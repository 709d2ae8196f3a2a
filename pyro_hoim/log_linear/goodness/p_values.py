"""P-values of tests of log-linear models: by which distribution, and why."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import chdtrc

from ...errors import check_choice, out_of_range, refused
from ...structure.hypergraph import Edge, InteractionHypergraph
from ..auto import Auto
from ..fitting.design import cell_counts
from ..fitting.result import FitResult
from ..restricted.terms import RestrictedInteractions
from .bootstrap import MIN_TABLES, PValue, bootstrap_cost, drawn_statistics, marginal_cells, multinomial_tables

MAX_MEAN_EXCESS = 0.05
"""Largest excess of the mean of G2 over df, in standard deviations of chi-square, at which that is relied on."""

SMALLER = "p is smaller than can be told from tables drawn"
"""How the note of a p-value ends that is only known to be smaller."""

_MAX_CORRECTED = 0.3  # likewise where that mean is corrected by Bartlett's factor

NUM_TABLES = 999
_MAX_TABLES = 10**6
_FINER = 100  # times as many tables are drawn where few are as extreme
_FEW = 10  # such tables, the observed one among them
_RESOLVED = 1e-4  # p-values below which more tables would not help
_BUDGET = 3e8  # cell updates of a bootstrap that was not asked for by name: about two seconds
_ROW = 20  # cost of moving a row to draw a table given its margins, in cell updates
_MAX_SHIFT_COST = 4e9
_MAX_TOTAL = 2**53
_EXACTLY, _MOST, _ABOUT = (
    f"{verb} the mean of G\N{SUPERSCRIPT TWO} by{size}"
    for verb, size in (("move", ""), ("raise", " up to"), ("move", " about"))
)
_NONE_OF = {"early_stopped": "the fit was stopped early on validation rows", "interrupted": "the fit was interrupted"}


@dataclass(frozen=True)
class Comparison:
    """A fitted model and a larger one, and the statistics of the test between them."""

    result: FitResult
    larger: FitResult | None
    """None for the saturated model."""
    deviance: float
    pearson: float
    """NaN beside a larger model that is not saturated."""
    df: int

    @cached_property
    def cells(self) -> np.ndarray:
        """Mask of the cells that the smaller model does not fit as zero."""
        return possible_cells(self.result)

    @cached_property
    def expected(self) -> np.ndarray | None:
        """Expected counts of these cells, None where they are too many to be listed."""
        return expected_counts(self.result)

    @cached_property
    def is_saturated(self) -> bool:
        """Whether the test is one of goodness of fit, by whatever larger model it is stated."""
        if self.larger is None:
            return True
        return self.result.num_cells_fitted - 1 - self.result.num_parameters_fitted == self.df

    @property
    def is_exact(self) -> bool:
        """Whether tables with the margins that the smaller model fits can be drawn independently."""
        return self.result.hypergraph.is_decomposable and self.result.structural_zeros is None


def _by_chi_square(test: Comparison, reason: str, factor: float = 1.0) -> PValue:
    """P-values by the chi-square distribution, of the statistic over Bartlett's factor."""
    values = (test.deviance / factor, test.pearson)
    deviance, pearson = (float(chdtrc(test.df, np.maximum(value, 0.0))) for value in values)
    return PValue(
        p_value_note=reason,
        p_value=deviance,
        p_value_pearson=pearson,
        p_value_method="chi-square" if factor == 1 else "bartlett",
        p_value_statistic="deviance",
    )


def p_value_of(test: Comparison, how: str | None, num_tables: int, seed: int) -> PValue:
    """P-values by the method asked for, or by the one that the expected counts allow."""
    check_choice(how, ("auto", "chi-square", "exact", "conditional", "bootstrap", None), "p_value")
    for name, value, low, high in (("num_tables", num_tables, MIN_TABLES, _MAX_TABLES), ("seed", seed, 0, 2**63 - 1)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or not low <= value <= high:
            raise out_of_range(name, f"a whole number from {low} to {high}", value)
    # What has no p-value by any method, and chi-square where it is asked for.
    result = test.result
    if how is None:
        return PValue(p_value_note="none was asked for")
    if result.objective != "likelihood":
        what = "a bound of the likelihood" if result.objective == "bound" else f"the {result.objective}"
        return PValue(p_value_note=f"the fit is one of {what}")
    if result.penalty is not None:
        return PValue(p_value_note="the fit is penalised")
    if not result.is_converged:
        return PValue(p_value_note=_NONE_OF.get(result.status, "the fit has not converged"))
    if test.df <= 0:
        return PValue(p_value_note="no degrees of freedom are left")
    reason, corrected = "it was asked for", None
    if how == "chi-square":
        return _by_chi_square(test, reason)
    # Chi-square where the expected counts move the mean of G2 little; else Bartlett's factor is at hand.
    expected = test.expected
    if how == "auto":
        if expected is None and test.larger is None:
            return PValue(p_value_note="the table is too large to list its expected counts")
        if result.data is not None and result.data.has_missing:
            return PValue(
                p_value_note="of rows with missing cells it is not known where the chi-square distribution holds"
            )
        if result.data is not None and not result.data.has_whole_counts:
            unit = "G\N{SUPERSCRIPT TWO} has the unit of the weights, and the counts are not whole numbers of rows"
            return PValue(p_value_note=f"{unit}: a test against a larger model takes covariance='robust'")
        excess, reason = _mean_excess(test, expected)
        if abs(excess) <= MAX_MEAN_EXCESS:
            return _by_chi_square(test, reason)
        if expected is not None and not test.is_saturated:
            corrected = _by_bartlett(test, excess, reason)
    # Whether tables can be drawn, and what is left where they cannot.
    refusal = _refusal(test)
    if refusal is None and how == "exact" and not test.is_exact:
        refusal = "the model is not decomposable, or has structural zeros"
    if refusal is not None or expected is None:
        if how != "auto":
            problem = f"no method {how!r}, because {refusal}"
            raise refused("p_value", problem, "use 'chi-square' or None", code="no-method")
        if expected is not None and test.is_saturated:
            corrected = _by_tail(test)
        if corrected is not None and result.data is None and (test.is_exact or test.is_saturated):
            return replace(corrected, p_value_note=f"rough: {corrected.p_value_note}; {refusal}")
        return corrected or _none(reason, refusal)
    if corrected is not None and not test.is_exact:
        return corrected

    # Tables, more of them where few are as extreme as the observed one.
    def drawn(size: int) -> PValue:
        return _by_tables(test, how, reason, size, int(seed), is_enough=corrected is not None)

    def tail() -> PValue | None:
        return (_by_tail(test) if test.is_saturated else None) or corrected

    by_tables = drawn(num_tables)
    if how != "auto":
        return by_tables
    if by_tables.p_value_method == "exact" and _num_extreme(by_tables) < _FEW and _is_listed(test):
        return _by_moves(test, reason, num_tables, int(seed), is_bounded=True)
    return _in_two_rounds(by_tables, drawn, tail, num_tables)


def _in_two_rounds(
    first: PValue, drawn: Callable[[int], PValue], tail: Callable[[], PValue | None], num_tables: int
) -> PValue:
    """The p-value of the first tables, or where few of them are as extreme that of 100 times as many.

    It keeps its level: let p1 and p2 be valid p-values, c the least p1 that is reported, and p = p1 where p1 >= c, else
    p2. For a < c, p <= a is within p2 <= a; for a >= c it is within p1 <= a, as every p1 < c is. So P(p <= a) <= a,
    however p1 and p2 depend on each other: here p2 counts the first tables too. A list of all tables is another p2. So
    is Bartlett's factor where at most the observed table is as extreme, down to one over the tables of p2, whatever
    that factor is worth; below, and where it spares the second round, the level is that of Bartlett's factor.
    """
    if _num_extreme(first) >= _FEW:
        return first
    corrected, drawn_value = tail(), first
    if corrected is not None and first.num_tables and math.isnan(corrected.p_value_pearson):
        corrected = replace(corrected, p_value_pearson=first.p_value_pearson)
    is_hopeless = corrected is not None and corrected.p_value < _RESOLVED and _num_extreme(first) <= 1
    if first.num_tables >= num_tables and not is_hopeless:  # not cut short by the budget
        drawn_value = drawn(_FINER * (num_tables + 1) - 1)
    # By drawn tables where one is as extreme, else by Bartlett's factor, else with a word that p is smaller
    if drawn_value.p_value_method is not None and _num_extreme(drawn_value) > 1:
        return drawn_value
    if corrected is None:
        return replace(drawn_value, p_value_note=f"{drawn_value.p_value_note}; {SMALLER}")
    if not drawn_value.num_tables:
        return corrected
    note = f"none of {drawn_value.num_tables:,} tables drawn has as large a statistic; {corrected.p_value_note}"
    return replace(corrected, p_value_note=note)


def _num_extreme(value: PValue) -> float:
    """How many tables drawn, the observed one among them, are as extreme; of a p-value without drawn tables many."""
    if value.p_value_method is None:
        return 0
    return round(value.p_value * (value.num_tables + 1)) if value.num_tables else math.inf


def _by_bartlett(test: Comparison, excess: float, reason: str) -> PValue | None:
    """By chi-square of the statistic over Bartlett's factor, where that is relied on."""
    if abs(excess) > _MAX_CORRECTED:
        return None
    factor = 1 + excess * math.sqrt(2 / test.df)
    return _by_chi_square(test, f"{reason}, which Bartlett's factor, {factor:.3g}, undoes", factor)


def _by_tail(test: Comparison) -> PValue | None:
    """The same of a test against the saturated model."""
    design = test.result._design
    if design is None or test.expected is None or saturated_cost(*design.shape) > _MAX_SHIFT_COST:
        return None
    shift = saturated_shift(_design_of(test.result, test.cells), test.expected)
    value = _by_bartlett(test, *_excess(shift, test.df))
    return None if value is None else replace(value, p_value_pearson=math.nan)  # it moves by another amount


def _by_tables(test: Comparison, how: str, reason: str, num_tables: int, seed: int, *, is_enough: bool) -> PValue:
    """By tables that are drawn, listed or reached by moves; the latter only where nothing else is at hand."""
    is_bounded, value = how == "auto", None
    if how in ("exact", "bootstrap") or (is_bounded and test.is_exact):
        method = "bootstrap" if how == "bootstrap" else "exact"
        value = _by_drawing(test, method, reason, num_tables, seed, is_bounded=is_bounded)
    if value is None or (value.p_value_method is None and not is_enough):
        value = _by_moves(test, reason, num_tables, seed, is_bounded=is_bounded)
    return value


def _mean_excess(test: Comparison, expected: np.ndarray | None) -> tuple[float, str]:
    """Most by which the mean of G2 exceeds df, in standard deviations of chi-square, and a sentence that says so.

    Beside the saturated model it is a bound, of two other models their difference: cells in which both are alike do
    not count, however few rows they hold. Where cells cannot be listed it is known by its largest part alone.
    """
    designs = None if expected is None or test.is_saturated else _designs(test, expected)
    if expected is not None and designs is not None:
        return _excess(mean_shift(*designs, expected), test.df)
    if expected is not None and test.is_saturated:
        counts = expected
    else:  # expected counts of the margins of what the larger model adds
        assert test.larger is not None
        counts = _added_margins(test.result, set(test.larger.hypergraph.edges) - set(test.result.hypergraph.edges))
    return _excess(float((1 / counts).sum()) / 6, test.df, _MOST if test.is_saturated else _ABOUT)


def _excess(shift: float, df: int, how: str = _EXACTLY) -> tuple[float, str]:
    """A shift of the mean in standard deviations of chi-square, and a sentence that says so."""
    excess = shift / math.sqrt(2 * df)
    shown = f"{how} {excess:.2g}" if excess < 100 else "may move the mean of G\N{SUPERSCRIPT TWO} by more than 100"
    return excess, f"small expected counts {shown} standard deviations (limit {MAX_MEAN_EXCESS})"


def asymptotic_verdict(test: Comparison, how: str | None) -> tuple[bool, str]:
    """Whether a chi-square distribution is relied on for the effective number of rows, and why."""
    if how != "auto":
        return how is not None, "it was asked for" if how else "none was asked for"
    expected = test.expected
    share = test.result.effective_num_rows / test.result.num_rows
    return _verdict(*_mean_excess(test, None if expected is None else expected * share))


def wald_verdicts(result: FitResult, contrasts: Sequence[np.ndarray], how: str | None) -> list[tuple[bool, str]]:
    """The same of Wald's tests that linear functions (df, num_parameters) of theta, which the data identify, vanish."""
    if how != "auto" or not len(contrasts):
        return [(True, "it was asked for")] * len(contrasts)
    design, expected = result._design, expected_counts(result)
    most, basis = max(map(len, contrasts)), None if result.restriction is None else result.restriction.basis
    if design is None or expected is None or shift_cost(len(expected), design.shape[1], most) > _MAX_SHIFT_COST:
        slices = result.hypergraph.parameter_slices
        tested = [{e for e, at in slices.items() if np.abs(rows[:, at]).max(initial=0.0) > 0} for rows in contrasts]
        shifts = [float((1 / _added_margins(result, edges)).sum()) / 6 for edges in tested]
        how_known = _ABOUT
    else:
        rows = [np.pad(of if basis is None else of @ basis, ((0, 0), (1, 0))) for of in contrasts]
        counts = expected * result.effective_num_rows / result.num_rows
        shifts, how_known = mean_shifts(_design_of(result, possible_cells(result)), rows, counts), _EXACTLY
    return [_verdict(*_excess(s, len(of), how_known)) for s, of in zip(shifts, contrasts, strict=True)]


def _verdict(excess: float, reason: str) -> tuple[bool, str]:
    is_reliable = abs(excess) <= MAX_MEAN_EXCESS
    return is_reliable, reason if is_reliable else f"{reason}, too much for the chi-square distribution"


def _designs(test: Comparison, expected: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Designs of both models on the cells, with the constant; None where there are none, or too large ones."""
    assert test.larger is not None
    designs = list[np.ndarray]()
    for fitted in (test.result, test.larger):
        if fitted._design is None or shift_cost(len(expected), fitted._design.shape[1], test.df) > _MAX_SHIFT_COST:
            return None
        designs.append(_design_of(fitted, test.cells))
    return designs[0], designs[1]


def _design_of(fitted: FitResult, cells: np.ndarray) -> np.ndarray:
    """Design on some cells, with the constant."""
    assert fitted._design is not None
    used = fitted._design[cells]
    used = used if fitted.restriction is None else used @ fitted.restriction.basis
    return np.column_stack([np.ones(len(used)), used])


def _added_margins(result: FitResult, added: set[Edge]) -> np.ndarray:
    """Expected counts of the cells of the largest of these margins that are not fitted as zero."""
    edges = [edge for edge in added if not any(set(edge) < set(other) for other in added)]
    backend = Auto() if result.partition is None else result.partition
    logs = [backend.log_marginal(result.model, edge).flatten() for edge in edges]
    counts = result.effective_num_rows * np.exp(torch.cat(logs).numpy())
    return counts[counts > 0]


def _by_drawing(
    test: Comparison,
    method: Literal["bootstrap", "exact"],
    reason: str,
    num_tables: int,
    seed: int,
    *,
    is_bounded: bool,
) -> PValue:
    """P-values by tables drawn given the margins that the model fits, or from the fitted model."""
    from .fibre import conditional_cost, conditional_tables  # imports Numba

    # What is drawn, and what one table costs.
    graph, cells, expected = test.result.hypergraph, test.cells, test.expected
    assert expected is not None
    data, margins, draw, drawing = test.result.complete_data(), list[np.ndarray](), None, None
    larger = None if test.larger is None or test.is_saturated else marginal_cells(test.larger.hypergraph, cells)
    if method == "exact":
        drawing = _ROW * conditional_cost(graph, data)
    else:
        margins = marginal_cells(graph, cells)
        draw = multinomial_tables(expected, int(test.result.num_rows), seed)
    least = bootstrap_cost(len(expected), len(margins) + len(larger or ())) if drawing is None else drawing
    name = "an exact test" if method == "exact" else "a bootstrap"
    too_long = _none(reason, f"{name} with {MIN_TABLES} tables would take longer than about two seconds")
    if is_bounded and MIN_TABLES * least > _BUDGET:
        return too_long
    # The statistics of as many tables as the budget allows.
    statistics = drawn_statistics(
        conditional_tables(graph, data, cells, seed) if draw is None else draw,
        cell_counts(data)[cells],
        expected,
        margins,
        larger,
        test.df,
        num_tables=num_tables,
        budget=_BUDGET if is_bounded else math.inf,
        drawing=drawing,
    )
    if len(statistics) < MIN_TABLES:
        return too_long
    # Shares of tables with statistics at least as large as those of the observed one, which is among them
    statistic = "pearson" if method == "bootstrap" and test.larger is None else "deviance"
    values = {
        name: float((column >= column[0] - 1e-9 * (1 + abs(column[0]))).mean())
        for name, column in (("deviance", statistics.deviance), ("pearson", statistics.pearson))
    }
    value, size = values[statistic], len(statistics)
    late = f"; {statistics.num_unfinished} refits were cut short" if statistics.num_unfinished else ""
    return PValue(
        p_value_note=reason + late,
        p_value=value,
        p_value_pearson=values["pearson"],
        p_value_method=method,
        p_value_std_error=math.sqrt(value * (1 - value) / size),
        num_tables=size,
        p_value_statistic=statistic,
    )


def _is_listed(test: Comparison) -> bool:
    """Whether the tables with the margins that the model fits are few enough to be listed."""
    from .fibre import listed_tables  # imports Numba

    margins = marginal_cells(test.result.hypergraph, np.ones(len(test.cells), dtype=bool))
    return listed_tables(cell_counts(test.result.complete_data()), _means(test) > 0, margins) is not None


def _by_moves(test: Comparison, reason: str, num_tables: int, seed: int, *, is_bounded: bool) -> PValue:
    """P-values among the tables with the margins that the model fits, listed or reached by moves."""
    from .fibre import conditional_p_value  # imports Numba

    result, larger = test.result, None if test.is_saturated else test.larger
    value, _ = conditional_p_value(
        result.hypergraph,
        None if larger is None else larger.hypergraph,  # against the saturated model no larger one is refitted
        cell_counts(result.complete_data()),
        _means(test),
        test.df,
        possible=result.possible,
        num_tables=num_tables,
        seed=seed,
        budget=_BUDGET if is_bounded else math.inf,
    )
    return replace(value, p_value_note=f"{reason}; {value.p_value_note}")


def _means(test: Comparison) -> np.ndarray:
    """Expected counts of all cells, zero where the model fits none."""
    means = np.zeros(len(test.cells))
    means[test.cells] = test.expected
    return means


def _none(reason: str, why: str | None) -> PValue:
    return PValue(p_value_note=f"{reason}, too much for the chi-square distribution, and {why}")


def possible_cells(result: FitResult) -> np.ndarray:
    """Mask of the cells that are not fitted as zero."""
    if result._face is not None:
        return result._face.cells
    probs = _cell_probs(result)
    return np.ones(result.hypergraph.domain.num_states, dtype=bool) if probs is None else probs > 0


def expected_counts(result: FitResult) -> np.ndarray | None:
    """Expected counts of the cells that are not fitted as zero; None without a list of cells."""
    probs = _cell_probs(result)
    return None if probs is None else result.num_rows * probs[possible_cells(result)]


def _cell_probs(result: FitResult) -> np.ndarray | None:
    """Fitted probabilities of all cells; None where they are too many, or were never listed without log Z."""
    return result.probs.numpy() if result.has_cells else None


def _refusal(test: Comparison) -> str | None:
    """Why tables of this model cannot be drawn and refitted."""
    result = test.result
    if test.expected is None:
        return "the cells are too many to be listed"
    if not all(fitted.hypergraph.is_hierarchical for fitted in (result, test.larger) if fitted is not None):
        return "the collection is not hierarchical"
    if result.restriction is not None or (test.larger is not None and test.larger.restriction is not None):
        return "drawn tables are not refitted to restricted interactions"
    if result.data is None:
        return "exact tests and drawn tables take the rows"
    if result.data.has_missing:
        return "the fit is not one to complete rows"
    if result.num_rows % 1 or result.num_rows > _MAX_TOTAL or not result.data.has_whole_counts:
        return "the counts are not whole numbers of rows"
    return None


# Likelihood-ratio tests under survey weights, corrected by their design effects.


def contrasts_of(hypergraph: InteractionHypergraph, edges: Iterable[Edge]) -> torch.Tensor:
    """The parameters of some interactions as linear functions of theta (k, num_parameters)."""
    slices = hypergraph.parameter_slices
    where = [i for edge in edges for i in range(slices[edge].start, slices[edge].stop)]
    return torch.eye(hypergraph.num_parameters, dtype=torch.float64)[where]


def contrasts_between(small: FitResult, big: FitResult) -> torch.Tensor:
    """Linear functions of theta of the larger of two nested models (df, num_parameters) that vanish in the smaller."""
    if small.restriction is None and big.restriction is None:
        return contrasts_of(big.hypergraph, [e for e in big.hypergraph.edges if e not in set(small.hypergraph.edges)])
    lesser, greater = (r.restriction or RestrictedInteractions.whole(r.hypergraph) for r in (small, big))
    within = greater.basis.T @ greater.embedded(lesser)
    across = np.linalg.svd(within)[0][:, lesser.num_parameters :]
    return torch.from_numpy((greater.basis @ across).T.copy())


def design_effects(result: FitResult, contrasts: torch.Tensor, covariance: torch.Tensor) -> np.ndarray:
    """Eigenvalues of a covariance of linear functions in units of the model's, over what the data identify."""
    model_based, other = ((contrasts @ matrix @ contrasts.T).numpy() for matrix in (result.covariance, covariance))
    values, vectors = np.linalg.eigh(model_based)
    is_identified = values > 1e-10 * values.max(initial=0.0)
    scaled = vectors[:, is_identified] / np.sqrt(values[is_identified])
    return np.linalg.eigvalsh(scaled.T @ other @ scaled)


def corrected_p_value(test: Comparison, covariance: torch.Tensor, how: str | None) -> tuple[PValue, float]:
    """P-value of a likelihood ratio with the correction of second order, and the mean design effect."""
    check_choice(how, ("auto", "chi-square", None), "p_value")
    assert test.larger is not None
    effects = design_effects(test.larger, contrasts_between(test.result, test.larger), covariance)
    if not len(effects):
        return PValue(p_value_note="the data do not identify what the larger model adds"), math.nan
    mean = float(effects.mean())
    if len(effects) < test.df:
        return PValue(p_value_note="the larger model has infinite estimates, whose covariance is not known"), mean
    is_reliable, note = asymptotic_verdict(test, how)
    if how is None:
        return PValue(p_value_note=note), mean
    if not is_reliable:  # nothing else is known for weights; as of Wald's tests beside it
        note = f"rough: {note}"
    spread = float(np.square(effects).mean()) / mean**2
    p_value = float(chdtrc(len(effects) / spread, max(test.deviance, 0.0) / (mean * spread)))
    return PValue(p_value_note=note, p_value=p_value, p_value_method="rao-scott", p_value_statistic="deviance"), mean


# By how much small expected counts move the mean of a likelihood ratio away from its degrees of freedom.

Floats = NDArray[np.float64]
_RANK = 1e-9


def shift_cost(num_cells: int, num_parameters: int, df: int) -> float:
    """Operations of :func:`mean_shift`."""
    return num_cells * float(num_parameters + 1) ** 2 * (df + 4)


def mean_shift(small: Floats, large: Floats, expected: Floats) -> float:
    r"""Mean of the likelihood ratio of two nested models less its degrees of freedom, to the order of one over counts.

    .. math:: \frac1{12} \sum_{x, y} m_x m_y \big(3 z_{xx} z_{xy} z_{yy} + 2 z_{xy}^3\big)
        - \frac14 \sum_x m_x z_{xx}^2, \qquad z = X (X^\top \operatorname{diag}(m) X)^{-1} X^\top

    of the larger model less the same of the smaller one. It is zero in the limit of many rows, and its ratio to the
    degrees of freedom is Bartlett's factor less one.

    Args:
        small: a design whose columns span what the smaller model can express, the constant among them, (num_cells, q).
        large: the same of the larger model, (num_cells, p).
        expected: expected counts under the smaller model, positive, (num_cells,).

    References:
        Derrick Lawley, A general method for approximating to the distribution of likelihood ratio criteria, 1956;
        Peter McCullagh and John Nelder, Generalized Linear Models, 1989, section 15.2; David Williams, Improved
        likelihood ratio tests for complete contingency tables, 1976, for two-way tables.
    """
    root = np.sqrt(expected)[:, None]
    basis = _basis(small * root)
    rest = large * root
    for _ in range(2):  # once more for what rounding leaves
        rest = rest - basis @ (basis.T @ rest)
    added = _basis(rest, float(np.linalg.norm(large * root)))
    return _difference(basis / root, added / root, expected)


def mean_shifts(large: Floats, contrasts: Iterable[Floats], expected: Floats) -> Iterator[float]:
    """The same of one larger model and smaller ones, in which linear functions of its parameters are zero.

    Args:
        large: a design (num_cells, p), the constant among its columns.
        contrasts: of every smaller model the functions (df, p); their values are determined by the law on the cells.
        expected: expected counts, positive, (num_cells,).
    """
    root = np.sqrt(expected)[:, None]
    left, values, right = np.linalg.svd(large * root, full_matrices=False)
    is_large = values > _RANK * float(values.max(initial=0.0))
    basis, coordinates = left[:, is_large] / root, right[is_large].T / values[is_large]
    for functions in contrasts:
        turn = np.linalg.svd((functions @ coordinates).T)[0]
        yield _difference(basis @ turn[:, len(functions) :], basis @ turn[:, : len(functions)], expected)


def saturated_cost(num_cells: int, num_parameters: int) -> float:
    """Operations of :func:`saturated_shift`."""
    return num_cells * (num_parameters + 1.0) * min(num_cells, (num_parameters + 1) ** 2)


def saturated_shift(small: Floats, expected: Floats) -> float:
    r"""The same beside the saturated model: :math:`\tfrac16 \sum_x 1 / m_x` less Lawley's sums for the smaller model.

    Args:
        small: a design whose columns span what the smaller model can express, the constant among them, (num_cells, q).
        expected: expected counts under it, positive, (num_cells,).
    """
    root = np.sqrt(expected)[:, None]
    basis = _basis(small * root) / root
    diagonal = np.square(basis).sum(1)
    through = (expected * diagonal) @ basis
    if len(basis) <= basis.shape[1] ** 2:
        cubes = sum(float(m * (expected @ (basis @ row) ** 3)) for m, row in zip(expected, basis, strict=True))
    else:
        cubes = sum(float(np.square((basis * (expected * column)[:, None]).T @ basis).sum()) for column in basis.T)
    whole = 3 * float(through @ through) + 2 * cubes - 3 * float((expected * diagonal**2).sum())
    return float((1 / expected).sum()) / 6 - whole / 12


def _difference(small: Floats, added: Floats, expected: Floats) -> float:
    """Lawley's sums for both bases together, less those for the first alone; orthonormal with the counts as weights."""
    diagonal = np.square(small).sum(1)
    whole = diagonal + np.square(added).sum(1)
    squares = float((expected * (whole**2 - diagonal**2)).sum())
    through = np.concatenate([(expected * whole) @ small, (expected * whole) @ added])
    chains = float(through @ through) - float(np.square((expected * diagonal) @ small).sum())
    cubes = 0.0
    for column in added.T:  # the sums over cells of products of three columns, at least one of them added
        weighted = expected * column
        cubes += 3 * float(np.square((small * weighted[:, None]).T @ small).sum())
        pairs = added * weighted[:, None]
        cubes += 3 * float(np.square(small.T @ pairs).sum()) + float(np.square(added.T @ pairs).sum())
    return (3 * chains + 2 * cubes - 3 * squares) / 12


def _basis(columns: Floats, scale: float | None = None) -> Floats:
    """Orthonormal columns that span those given, without directions that are rounding alone."""
    left, values, _ = np.linalg.svd(columns, full_matrices=False)
    return left[:, values > _RANK * (scale or float(values.max(initial=0.0)))]
