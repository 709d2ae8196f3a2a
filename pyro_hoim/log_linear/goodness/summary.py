"""What a log-linear model consists of and how well it describes its rows: tables of coefficients, and figures."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy.special import ndtr, ndtri

from ...core.scores import Figures
from ...core.words import at_least, plural
from ...data.order import ordinal_orders
from ...errors import HoimError, check_choice
from ...results.contrasts import (
    STORED_LEVEL,
    Contrasts,
    do_not_exist,
    limits_of,
    rows_from_json,
    rows_to_json,
    strongest_first,
    with_level,
)
from ...structure.hypergraph import InteractionHypergraph
from ..coding import Coding, Reference, check_corner, entry_labels, parametrization, reference_codes, to_reference
from ..file import ModelFile, conditional_words
from ..fitting.existence import UNDECIDED
from ..fitting.result import CovarianceKind, FitResult
from ..fitting.tables import coefficient_table
from ..infinite import contrast_signs, covariance_problem
from .goodness_of_fit import goodness_of_fit
from .odds_ratios import (
    are_possible_in_file,
    check_reference,
    comparisons,
    contrasts_of_file,
    contrasts_of_fit,
    notes_on_errors,
    once_per_fit,
)

_TERMS = (
    "coefficients of the terms, in nats: whole tables against the first level, on average over the levels of others; "
    "linear ones for a step of 1 of the scores"
)
_MOST_STORED = 5000
_OBJECTIVES = {"bound": "bound of the likelihood"}
_NO_ERRORS = "a model file does not hold them"
_OTHER_ERRORS = "the model file keeps those in {} coding against the first levels alone"


def fit_summary(
    result: FitResult,
    *,
    level: float = 0.95,
    coding: Coding | None = None,
    covariance: CovarianceKind | None = None,
    reference: Reference | None = None,
) -> pd.DataFrame:
    """Coefficients of a fit with Wald tests and intervals.

    Args:
        result: a fit.
        level: coverage of the intervals.
        coding: of the coefficients. ``corner``, the default, compares with the first level of every variable, as
            treatment contrasts do: coefficients of pairs are log odds ratios (given the first levels of what modifies
            them). A collection that lacks subsets has ``balanced`` ones, deviations that sum to zero. Restricted
            interactions have the coefficients of their terms (:func:`~pyro_hoim.log_linear.coefficient_table`).
        covariance: ``model``, ``robust``, or what :meth:`FitResult.robust_covariance` gave; by default ``robust`` of
            weighted rows, else ``model``, as of :func:`~pyro_hoim.log_linear.term_tests`.
        reference: levels to compare with in place of the first, labels or codes by variable.

    Returns:
        One row for every free coefficient, interactions first, in the order of ``odds_ratios``: ``term``, ``levels``,
        ``odds_ratio`` with its interval ``or_lower`` and ``or_upper`` (in corner coding of every interaction, else of
        pairs of binary columns), ``estimate`` and, where the fit has them, ``std_error``, ``lower``, ``upper``, ``z``
        and ``p_value`` (no tests of penalised fits). An estimate that the rows send to infinity is infinite where its
        sign is certain, else NaN; neither has an interval, but an infinite odds ratio has one finite limit.
    """
    coefficients = coefficients_of_fit(result, coding=coding, covariance=covariance, reference=reference)
    # Infinite odds ratios have a finite limit, which their estimates do not say.
    contrasts = None
    if coefficients.has_infinite:
        contrasts = contrasts_of_fit(result, level=level, covariance=covariance, reference=reference)
    return _table(coefficients, result.hypergraph, level, contrasts, reference)


@dataclass(frozen=True, eq=False)
class Coefficients:
    """Coefficients of a model, from which tables of any level are made.

    Attributes:
        rows: ``term``, ``levels``, ``estimate`` (infinite where its sign is certain, NaN where it is not identified)
            and ``std_error``, infinite of these and NaN without errors.
        compared: of the terms of a formula the comparison in words, empty for a single column; None of whole tables.
        coding: of the coefficients.
        notes: what they rest on.
        has_errors: whether there are standard errors.
        has_tests: whether these are tests, too.
    """

    rows: pd.DataFrame
    compared: Sequence[str] | None
    coding: Coding
    notes: tuple[str, ...]
    has_errors: bool
    has_tests: bool

    @property
    def has_infinite(self) -> bool:
        """Whether there are infinite log odds ratios."""
        are_ratios = self.coding == "corner" or self.compared is not None
        return are_ratios and bool(np.isinf(self.rows["estimate"]).any())

    def to_json(self) -> dict[str, Any]:
        """What a model file keeps, inverse of :meth:`from_json`."""
        flags = {"has_errors": self.has_errors, "has_tests": self.has_tests}
        compared = None if self.compared is None else list(self.compared)
        rows = rows_to_json(self.rows, ("estimate", "std_error"))
        return {"coding": self.coding, "notes": list(self.notes), **flags, "compared": compared, "rows": rows}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Coefficients:
        """Coefficients as a model file keeps them."""
        rows = pd.DataFrame(rows_from_json(value["rows"], ("estimate", "std_error")).to_dict("list"))
        if value["has_errors"]:
            rows["std_error"] = rows["std_error"].fillna(math.inf)
        flags = value["has_errors"], value["has_tests"]
        return cls(rows, value["compared"], value["coding"], tuple(value["notes"]), *flags)


@once_per_fit
def coefficients_of_fit(
    result: FitResult,
    *,
    coding: Coding | None = None,
    covariance: CovarianceKind | None = None,
    reference: Reference | None = None,
) -> Coefficients:
    """Coefficients of a fit with standard errors where it has them; arguments as of :func:`fit_summary`."""
    # What the coefficients mean; what was asked for is refused where it does not exist.
    graph, restriction = result.hypergraph, result.restriction
    check_reference(reference, restriction is not None)
    if covariance is not None:
        result.covariance_of_kind(covariance)
    coding = _coding(graph, coding)
    check_corner(coding, reference)
    notes, compared = [_meaning(coding, reference)], None
    if restriction is not None:
        notes = [_TERMS, *(f"order of {name}: {order}" for name, order in restriction.orders.items())]
        is_joint = restriction.belongs([edge for edge in graph.edges if len(edge) > 1])
        compared = [words if joint else "" for words, joint in zip(restriction.comparisons, is_joint, strict=True)]
    notes += [] if result.is_support_known else [UNDECIDED]
    if result.log_likelihood_bound is not None:
        least = f"{at_least(result.log_likelihood_bound)} nats or more"
        notes.append(f"the estimates maximise a lower bound of the log-likelihood, which is {least}")
    # Estimates with their errors, where a covariance is at hand.
    problem = covariance_problem(result)
    frame = None
    if not problem:
        try:
            frame = coefficient_table(result, coding=coding, covariance=covariance, reference=reference)
        except HoimError as error:  # a penalty that is not smooth, singular information
            problem = error.problem or str(error)
    if frame is None:
        notes.append(f"no standard errors: {problem}")
        rows = _estimates(graph, result.coefficients(coding, reference), coding, reference)
        if restriction is not None:
            estimate = restriction.readings @ result.theta.numpy()
            rows = pd.DataFrame({"term": restriction.terms, "levels": restriction.levels, "estimate": estimate})
        if result.structural_zeros is not None:
            exists = result._is_possible_comparison(_functions(result, coding, reference)).numpy()
            rows.loc[~exists, "estimate"] = math.nan
            notes += _absent(rows, exists)
        return Coefficients(rows.assign(std_error=math.nan), compared, coding, tuple(notes), False, False)
    rows = frame.rename(columns={"interaction": "term"}).drop(columns=["z", "p_value", "lower", "upper"])
    notes += notes_on_errors(result, covariance)
    exists = np.ones(len(rows), dtype=bool)
    if result.structural_zeros is not None:
        exists = result._is_possible_comparison(_functions(result, coding, reference)).numpy()
        rows.loc[~exists, ["estimate", "std_error"]] = math.nan, math.inf
        notes += _absent(rows, exists)
    _mark_infinite(result, coding, rows, exists, reference)
    if lost := int((~np.isfinite(rows["estimate"][exists])).sum()):
        without = "the rows lack combinations of levels that they compare; a prior makes them finite"
        notes.append(f"{plural(lost, 'coefficient is', 'coefficients are')} not finite: {without}")
    return Coefficients(rows, compared, coding, tuple(notes), True, result.penalty is None)


def model_summary(
    file: ModelFile, coding: Coding | None = None, reference: Reference | None = None, level: float = 0.95
) -> pd.DataFrame:
    """Coefficients of a model from its file: those that it keeps of a fit, else estimates without errors."""
    graph, stored = file.hypergraph, file.info.get("coefficients")
    check_reference(reference, file.info.get("is_restricted", False))
    if stored is not None and reference is None and (coding is None or coding == stored["coding"]):
        coefficients = Coefficients.from_json(stored)
        return _table(coefficients, graph, level, contrasts_of_file(file) if coefficients.has_infinite else None, None)
    coding = _coding(graph, coding)
    check_corner(coding, reference)
    theta = parametrization(graph).convert(file.theta, file.coding, coding)
    if reference is not None:
        theta = to_reference(graph, theta, reference)
    why = conditional_words(file) or _NO_ERRORS if stored is None else _OTHER_ERRORS.format(stored["coding"])
    notes = [_meaning(coding, reference), f"no standard errors: {why}"]
    if file.info.get("ridge", {}).get("smoothness", 0) > 0:
        orders = ordinal_orders(graph.domain)
        alike = "neighbouring levels of {} are taken to be alike: {}"
        notes += [alike.format(name, order.shown) for name, order in orders.items()]
    entries = file.info.get("infinite_interactions", [])
    infinite = [":".join(row["edge"]) for row in entries if not row.get("is_declared")]
    if infinite:
        notes.append(f"infinite in the fit, finite stand-ins here: {', '.join(infinite)}")
    # A learned model has errors of its interactions alone.
    contrasts = contrasts_of_file(file, reference) if coding == "corner" else None
    if contrasts is not None and contrasts.has_errors:
        notes[1:2] = contrasts.notes[1:]
    rows = _estimates(graph, theta, coding, reference).assign(std_error=math.nan)
    if file.structural_zeros is not None:
        exists = are_possible_in_file(file, _functions(file, coding, reference))
        rows.loc[~exists, "estimate"] = math.nan
        notes += _absent(rows, exists)
    return _table(Coefficients(rows, None, coding, tuple(notes), False, False), graph, level, contrasts, reference)


def answers_of_fit(result: FitResult) -> dict[str, Any]:
    """What a model file keeps so that its tables are those of the fit, without the rows."""
    if result.hypergraph.num_parameters > _MOST_STORED:
        return {}
    contrasts = contrasts_of_fit(result, level=STORED_LEVEL)
    return {"coefficients": coefficients_of_fit(result).to_json(), "odds_ratios": contrasts.to_json()}


def _table(
    coefficients: Coefficients,
    graph: InteractionHypergraph,
    level: float,
    contrasts: Contrasts | None,
    reference: Reference | None,
) -> pd.DataFrame:
    """Wald tests and intervals of a level, then the columns in their order."""
    columns = {name: values.to_numpy() for name, values in coefficients.rows.items()}
    estimate, error = columns["estimate"], columns.pop("std_error")
    if coefficients.has_errors:
        is_known = np.isfinite(error)
        width = float(ndtri((1 + level) / 2)) * np.where(is_known, error, math.nan)
        columns |= {"std_error": error, "lower": estimate - width, "upper": estimate + width}
        if coefficients.has_tests:
            z = np.full(len(error), math.nan)
            np.divide(estimate, error, out=z, where=is_known & (error > 0))
            columns |= {"z": z, "p_value": 2 * ndtr(-np.abs(z))}
    return _finished(columns, graph, coefficients, level, _ends(contrasts, level), reference)


def _ends(contrasts: Contrasts | None, level: float) -> dict[tuple[str, str], tuple[float, float]]:
    """Ends of the intervals of log odds ratios, by term and levels in words."""
    if contrasts is None or not contrasts.has_errors:
        return {}
    names = zip(contrasts.rows["term"], contrasts.rows["levels"], strict=True)
    return dict(zip(names, zip(*limits_of(contrasts, level), strict=True), strict=True))


def _coding(graph: InteractionHypergraph, coding: Coding | None) -> Coding:
    """The coding asked for; corner by default, balanced where the collection has no corner coordinates."""
    if coding is None:
        return "corner" if graph.coding == "corner" or graph.is_hierarchical else "balanced"
    check_choice(coding, ("corner", "balanced", "free"), "coding")
    return coding


def _meaning(coding: Coding, reference: Reference | None = None) -> str:
    named = ", ".join(f"{name} {level}" for name, level in (reference or {}).items())
    against = f"{named}, and the first level of other variables" if named else "the first level of every variable"
    meanings = {
        "corner": f"coefficients against {against} (corner coding), in nats",
        "balanced": "coefficients that sum to zero over the levels of every variable (balanced coding), in nats",
        "free": "coordinates of the balanced tables in an orthonormal basis (free coding), in nats",
    }
    return meanings[coding]


def _estimates(
    graph: InteractionHypergraph, theta: torch.Tensor, coding: Coding, reference: Reference | None = None
) -> pd.DataFrame:
    """Terms, levels and estimates in the order of theta."""
    terms, combinations = entry_labels(graph, coding, reference)
    levels = [", ".join(combination) for combination in combinations]
    return pd.DataFrame({"term": terms, "levels": levels, "estimate": theta.numpy()})


def _functions(
    model: FitResult | ModelFile, coding: Coding, reference: Reference | None
) -> Callable[[torch.Tensor], torch.Tensor]:
    """Coefficients (*batch, k) as linear functions of theta (*batch, num_parameters) in the coding of the family."""
    graph, restriction = model.hypergraph, model.restriction if isinstance(model, FitResult) else None
    coordinates = parametrization(graph)

    def values(theta: torch.Tensor) -> torch.Tensor:
        if restriction is not None:
            return theta @ torch.from_numpy(restriction.readings).T
        if reference is not None:
            return to_reference(graph, theta, reference, coordinates.coding)
        return coordinates.convert(theta, coordinates.coding, coding)

    return values


def _absent(rows: pd.DataFrame, exists: np.ndarray) -> list[str]:
    """A note on the coefficients that compare what is declared impossible, where there are such."""
    absent = [f"{rows['term'].iloc[row]} {rows['levels'].iloc[row]}" for row in np.flatnonzero(~exists)]
    return [do_not_exist(absent, "coefficient")] if absent else []


def _mark_infinite(
    result: FitResult, coding: Coding, frame: pd.DataFrame, exists: np.ndarray, reference: Reference | None = None
) -> None:
    """Put infinity, or NaN, for what the rows do not identify of what exists."""
    gone = ~np.isfinite(frame["std_error"].to_numpy()) & exists
    if not gone.any():
        return
    units = torch.eye(result.hypergraph.num_parameters, dtype=torch.float64)
    signs = contrast_signs(result, _functions(result, coding, reference)(units).T.numpy()[gone])
    frame.loc[gone, "estimate"] = np.where(signs == 0, math.nan, np.copysign(math.inf, signs))


def _finished(
    columns: dict[Any, np.ndarray],
    graph: InteractionHypergraph,
    coefficients: Coefficients,
    level: float,
    ends: Mapping[tuple[str, str], tuple[float, float]],
    reference: Reference | None,
) -> pd.DataFrame:
    """The columns in their order, with odds ratios; interactions first, the strongest before the others.

    Of balanced tables the entries without a first level.
    """
    coding, compared = coefficients.coding, coefficients.compared
    if compared is None:
        # What turns coefficients of interactions into log odds ratios, NaN for the others, and which of them are free.
        shapes = dict(zip(graph.edges, graph.edge_shapes, strict=True))
        factor, is_free, is_joint = list[float](), list[bool](), list[bool]()
        for edge, shape in shapes.items():
            codes = itertools.product(*(range(n) for n in shape)) if coding == "balanced" else None
            size = math.prod(shape if coding == "balanced" else (n - 1 for n in shape))
            value = {"corner": 1.0, "balanced": 4.0, "free": 2.0}[coding]
            has_ratio = len(edge) > 1 if coding == "corner" else shape == (2, 2)
            factor += [value if has_ratio else math.nan] * size
            is_free += [True] * size if codes is None else [0 not in code for code in codes]
            is_joint += [len(edge) > 1] * size
        words = comparisons(graph, reference_codes(graph.domain, reference))[1] if coding == "corner" else []
    else:
        is_joint = [bool(comparison) for comparison in compared]
        factor, is_free = [1.0 if is_part else math.nan for is_part in is_joint], [True] * len(is_joint)
        words = [comparison for comparison in compared if comparison]
    # Odds ratios with their intervals, where estimates or what a file keeps have them.
    terms, estimate = columns["term"], columns["estimate"]
    nothing = np.full(len(terms), math.nan)
    low, high = (columns[name] * factor if name in columns else nothing.copy() for name in ("lower", "upper"))
    for row, of_row in zip(np.flatnonzero(is_joint), words, strict=bool(words)):
        low[row], high[row] = ends.get((terms[row], of_row), (low[row], high[row]))
    with np.errstate(over="ignore"):
        columns |= {"odds_ratio": np.exp(estimate * factor), "or_lower": np.exp(low), "or_upper": np.exp(high)}
    # Interactions by strength, then single columns.
    are_free, are_joint = np.array(is_free, dtype=bool), np.array(is_joint, dtype=bool)
    chosen = np.flatnonzero(are_free & are_joint)
    scale = np.nan_to_num(np.array(factor), nan=1.0)
    if "lower" in columns:
        given = [columns[name] * scale for name in ("lower", "upper")]
        low, high = (np.where(np.isnan(end), of, end) for end, of in zip((low, high), given, strict=True))
    chosen = chosen[strongest_first(estimate[chosen], low[chosen], high[chosen])]
    order = [*chosen, *np.flatnonzero(are_free & ~are_joint)]
    names = ["term", "levels", "odds_ratio", "or_lower", "or_upper"]
    names += ["estimate", "std_error", "lower", "upper", "z", "p_value"]
    gone = {"odds_ratio", "or_lower", "or_upper"} if not np.isfinite(factor).any() else set[str]()
    if not (np.isfinite(columns["or_lower"]) | np.isfinite(columns["or_upper"])).any():
        gone |= {"or_lower", "or_upper"}
    frame = pd.DataFrame({name: columns[name][order] for name in names if name in columns and name not in gone})
    notes = with_level(coefficients.notes, level)
    frame.attrs = {"notes": notes, "coding": coding, "hidden": ["lower", "upper", "z"] if "or_lower" in frame else []}
    return frame


def is_maximum(fit: FitResult) -> bool:
    """Whether AIC, BIC and likelihood-ratio tests apply: the likelihood of whole rows, maximised."""
    is_whole = fit.data is None or fit.data.has_whole_counts
    return is_whole and fit.objective == "likelihood" and fit.penalty is None and fit.is_converged


def fit_figures(result: FitResult) -> Figures:
    """How large a fitted model is, and how well it describes the rows that it was fitted to."""
    graph = result.hypergraph
    # Only a maximum of a likelihood of complete rows has a test of its fit.
    deviance = df = None
    if is_maximum(result) and result.data is not None and not result.data.has_missing:
        test = goodness_of_fit(result, p_value=None)
        deviance, df = test.deviance, test.df_adjusted
    how = [] if result.objective == "likelihood" else [_OBJECTIVES.get(result.objective, result.objective)]
    how += [] if result.penalty is None else [f"penalty {result.penalty!r}"]
    how += [] if result.is_support_known else ["known zeros, perhaps not all"]
    return Figures(
        num_variables=len(graph.domain),
        num_interactions=graph.num_interactions,
        num_parameters=result.num_parameters_fitted,
        num_rows=result.num_rows,
        has_weights=result.data is not None and not result.data.has_whole_counts,
        log_likelihood=result.log_likelihood,
        log_likelihood_bound=result.log_likelihood_bound,
        deviance=deviance,
        df=df,
        is_maximum=is_maximum(result),
        status=result.status,
        method=", ".join(how),
        zeros="" if result.structural_zeros is None else result.structural_zeros.words(),
    )


def model_figures(file: ModelFile) -> Figures:
    """The same of a model from its file, as far as the file says."""
    graph, info = file.hypergraph, file.info
    return Figures(
        num_variables=len(graph.domain),
        num_interactions=len([edge for edge in info.get("learned_edges", graph.edges) if len(edge) > 1]),
        num_parameters=info.get("num_parameters", graph.num_parameters),
        num_rows=info.get("rows"),
        log_likelihood=info.get("log_likelihood"),
        log_likelihood_bound=info.get("log_likelihood_bound"),
        status=info.get("status", ""),
        is_maximum=info.get("is_maximum", False),
        zeros="" if file.structural_zeros is None else file.structural_zeros.words(),
    )
