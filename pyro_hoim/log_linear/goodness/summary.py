"""What a log-linear model consists of and how well it describes its rows: tables of coefficients, and figures."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping

import numpy as np
import pandas as pd
import torch

from ...core.scores import Figures
from ...core.words import plural
from ...data.order import ordinal_orders
from ...errors import HoimError, check_choice
from ...structure.hypergraph import InteractionHypergraph
from ..coding import (
    Coding,
    Reference,
    check_corner,
    entry_labels,
    parametrization,
    reference_codes,
    reference_matrix,
    to_reference,
)
from ..file import ModelFile
from ..fitting.result import CovarianceKind, FitResult
from ..fitting.tables import coefficient_table
from ..infinite import contrast_signs, has_cheap_covariance
from ..restricted.interactions import RestrictedInteractions
from .goodness_of_fit import goodness_of_fit
from .odds_ratios import (
    Contrasts,
    comparisons,
    contrasts_of_file,
    contrasts_of_fit,
    limits_of,
    notes_on_errors,
    strongest_first,
    with_level,
)

_TERMS = (
    "coefficients of the terms, in nats: whole tables against the first level, on average over the levels of others; "
    "linear ones for a step of 1 of the scores"
)


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
    # What the coefficients mean.
    graph = result.hypergraph
    coding = _coding(graph, coding)
    check_corner(coding, reference)
    notes = [_meaning(coding, reference)]
    if result.restriction is not None:
        notes = [_TERMS, *(f"order of {name}: {order}" for name, order in result.restriction.orders.items())]
    # Estimates with their errors, where a covariance is at hand.
    problem = "" if has_cheap_covariance(result) else "this fit has none, or they would take minutes"
    frame = None
    if not problem:
        try:
            frame = coefficient_table(result, coding=coding, level=level, covariance=covariance, reference=reference)
        except HoimError as error:  # a penalty that is not smooth, singular information
            problem = error.problem or str(error)
    if frame is None:
        notes.append(f"no standard errors: {problem}")
        frame = _estimates(graph, result.coefficients(coding, reference), coding, reference)
        if (restriction := result.restriction) is not None:
            estimate = restriction.readings @ result.theta.numpy()
            frame = pd.DataFrame({"term": restriction.terms, "levels": restriction.levels, "estimate": estimate})
    else:
        frame = frame.rename(columns={"interaction": "term"})
        notes += with_level(notes_on_errors(result, covariance), level)
        _mark_infinite(result, coding, frame, reference)
        lost = int((~np.isfinite(frame["estimate"])).sum())
        if lost:
            without = "lack combinations of levels that they compare; a prior makes them finite"
            notes.append(f"{plural(lost, 'coefficient is', 'coefficients are')} not finite: the rows {without}")
        if result.penalty is not None:
            frame = frame.drop(columns=["z", "p_value"])
    # Infinite odds ratios have a finite limit, which their estimates do not say.
    contrasts = None
    if (coding == "corner" or result.restriction is not None) and np.isinf(frame["estimate"]).any():
        contrasts = contrasts_of_fit(result, level=level, covariance=covariance, reference=reference)
    return _finished(frame, graph, coding, notes, result.restriction, _ends(contrasts, level), reference)


def _ends(contrasts: Contrasts | None, level: float) -> dict[tuple[str, str], tuple[float, float]]:
    """Ends of the intervals of log odds ratios, by term and levels in words."""
    if contrasts is None or not contrasts.has_errors:
        return {}
    names = zip(contrasts.rows["term"], contrasts.rows["levels"], strict=True)
    return dict(zip(names, zip(*limits_of(contrasts, level), strict=True), strict=True))


def model_summary(
    file: ModelFile, coding: Coding | None = None, reference: Reference | None = None, level: float = 0.95
) -> pd.DataFrame:
    """Coefficients of a model without the rows that it was estimated from, as :func:`fit_summary`, no tests."""
    graph = file.hypergraph
    coding = _coding(graph, coding)
    check_corner(coding, reference)
    theta = parametrization(graph).convert(file.theta, file.coding, coding)
    if reference is not None:
        theta = to_reference(graph, theta, reference)
    notes = [_meaning(coding, reference), "no standard errors: a model file does not hold them"]
    if file.info.get("ridge", {}).get("smoothness", 0) > 0:
        orders = ordinal_orders(graph.domain)
        alike = "neighbouring levels of {} are taken to be alike: {}"
        notes += [alike.format(name, order.shown) for name, order in orders.items()]
    infinite = [":".join(row["edge"]) for row in file.info.get("infinite_interactions", [])]
    if infinite:
        notes.append(f"infinite in the fit, finite stand-ins here: {', '.join(infinite)}")
    contrasts = contrasts_of_file(file, reference) if coding == "corner" else None
    if contrasts is not None and contrasts.has_errors:
        notes[1:2] = with_level(contrasts.notes[1:], level)
    frame = _estimates(graph, theta, coding, reference)
    return _finished(frame, graph, coding, notes, None, _ends(contrasts, level), reference)


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


def _mark_infinite(result: FitResult, coding: Coding, frame: pd.DataFrame, reference: Reference | None = None) -> None:
    """Put infinity, or NaN, for what the rows do not identify."""
    # Estimates without an error have no tests either.
    gone = ~np.isfinite(frame["std_error"].to_numpy())
    if not gone.any():
        return
    frame.loc[gone, ["estimate", "lower", "upper", "z", "p_value"]] = math.nan
    if result.restriction is not None:
        contrasts = result.restriction.readings
    elif reference is not None:
        contrasts = reference_matrix(result.hypergraph, result.coding, reference).numpy()
    else:
        contrasts = parametrization(result.hypergraph).matrix(result.coding, coding).numpy()
    signs = contrast_signs(result, contrasts[gone])
    frame.loc[gone, "estimate"] = np.where(signs == 0, math.nan, np.copysign(math.inf, signs))


def _finished(
    frame: pd.DataFrame,
    graph: InteractionHypergraph,
    coding: Coding,
    notes: list[str],
    restriction: RestrictedInteractions | None,
    ends: Mapping[tuple[str, str], tuple[float, float]],
    reference: Reference | None,
) -> pd.DataFrame:
    """The columns in their order, with odds ratios; interactions first, the strongest before the others.

    Of balanced tables the entries without a first level.
    """
    joint = [edge for edge in graph.edges if len(edge) > 1]
    if restriction is None:
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
        is_joint = restriction.belongs(joint).tolist()
        factor, is_free = [1.0 if is_part else math.nan for is_part in is_joint], [True] * len(is_joint)
        words = [restriction.comparisons[i] for i in np.flatnonzero(is_joint)]
    # Odds ratios with their intervals, where estimates or what a file keeps have them.
    frame = frame.copy()
    nothing = np.full(len(frame), math.nan)
    low, high = (frame[name].to_numpy() * factor if name in frame else nothing.copy() for name in ("lower", "upper"))
    for row, of_row in zip(np.flatnonzero(is_joint), words, strict=bool(words)):
        low[row], high[row] = ends.get((frame["term"].iloc[row], of_row), (low[row], high[row]))
    with np.errstate(over="ignore"):
        frame["odds_ratio"] = np.exp(frame["estimate"].to_numpy() * factor)
        frame["or_lower"], frame["or_upper"] = np.exp(low), np.exp(high)
    # Interactions by strength, then single columns.
    are_free, are_joint = np.array(is_free, dtype=bool), np.array(is_joint, dtype=bool)
    chosen = np.flatnonzero(are_free & are_joint)
    estimate, scale = frame["estimate"].to_numpy(), np.nan_to_num(np.array(factor), nan=1.0)
    if "lower" in frame:
        given = [frame[name].to_numpy() * scale for name in ("lower", "upper")]
        low, high = (np.where(np.isnan(end), of, end) for end, of in zip((low, high), given, strict=True))
    chosen = chosen[strongest_first(estimate[chosen], low[chosen], high[chosen])]
    order = [*chosen, *np.flatnonzero(are_free & ~are_joint)]
    names = ["term", "levels", "odds_ratio", "or_lower", "or_upper"]
    names += ["estimate", "std_error", "lower", "upper", "z", "p_value"]
    gone = {"odds_ratio", "or_lower", "or_upper"} if not np.isfinite(factor).any() else set[str]()
    gone |= (
        {"or_lower", "or_upper"}
        if not (np.isfinite(frame["or_lower"]) | np.isfinite(frame["or_upper"])).any()
        else set()
    )
    frame = frame.iloc[order][[name for name in names if name in frame and name not in gone]].reset_index(drop=True)
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
    how = [] if result.objective == "likelihood" else [result.objective]
    how += [] if result.penalty is None else [f"penalty {result.penalty!r}"]
    return Figures(
        num_variables=len(graph.domain),
        num_interactions=graph.num_interactions,
        num_parameters=result.num_parameters_fitted,
        num_rows=result.num_rows,
        has_weights=result.data is not None and not result.data.has_whole_counts,
        log_likelihood=result.log_likelihood,
        deviance=deviance,
        df=df,
        is_maximum=is_maximum(result),
        status=result.status,
        method=", ".join(how),
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
        status=info.get("status", ""),
        is_maximum=info.get("is_maximum", False),
    )
