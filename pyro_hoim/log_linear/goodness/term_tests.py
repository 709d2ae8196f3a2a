"""A test of every interaction of a fitted model, with p-values adjusted for their number."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from scipy.special import chdtrc
from scipy.stats import false_discovery_control

from ...errors import NonexistentEstimateWarning, check_choice, check_type, out_of_range, unexpected, wrong_shape
from ...structure.hypergraph import Edge, InteractionHypergraph
from ..fitting.fit import fit
from ..fitting.result import CovarianceKind, FitResult
from .goodness_of_fit import likelihood_ratio_test
from .p_values import wald_verdicts
from .rao_scott import design_effects

__all__ = ["Correction", "adjust_p_values", "rough_terms", "term_tests"]

Correction = Literal["benjamini-hochberg", "benjamini-yekutieli", "holm"]
_CORRECTIONS = ("benjamini-hochberg", "benjamini-yekutieli", "holm")


def adjust_p_values(p_values: Sequence[float] | np.ndarray, method: Correction = "benjamini-hochberg") -> np.ndarray:
    r"""P-values adjusted for their number m: reject those at most alpha to control a rate of false rejections at alpha.

    .. math:: \tilde p_{(i)} = \min_{j \ge i} \min\Big(1, \frac{m c}{j} p_{(j)}\Big), \qquad
        \tilde p^{\mathrm{Holm}}_{(i)} = \max_{j \le i} \min\big(1, (m - j + 1)\, p_{(j)}\big)

    Args:
        p_values: numbers from 0 to 1 (m,). NaN, where a test has no p-value, stays and does not count in m.
        method: ``benjamini-hochberg``, c = 1: the expected share of false ones among the rejections, for tests that are
            independent or positively dependent; ``benjamini-yekutieli``, :math:`c = \sum_j 1/j`: the same under any
            dependence; ``holm``: the probability of any false rejection, under any dependence.

    Shape:
        result (m,), in the order given.

    Raises:
        InputError: a number outside [0, 1], more than one dimension, or an unknown method.

    References:
        Yoav Benjamini and Yosef Hochberg, Controlling the false discovery rate, 1995; Yoav Benjamini and Daniel
        Yekutieli, The control of the false discovery rate in multiple testing under dependency, 2001; Sture Holm, A
        simple sequentially rejective multiple test procedure, 1979.

    Example:
        >>> adjust_p_values([0.01, math.nan, 0.04, 0.03]).round(3).tolist()
        [0.03, nan, 0.04, 0.04]
    """
    check_choice(method, _CORRECTIONS, "method")
    values = np.array(p_values, dtype=float)
    if values.ndim != 1:
        raise wrong_shape("p_values", "(m,)", values)
    known = ~np.isnan(values)
    found = values[known]
    if ((found < 0) | (found > 1)).any():
        raise out_of_range(
            "p_values", "numbers from 0 to 1, or NaN", received=f"{found[(found < 0) | (found > 1)][0]:g}"
        )
    if method == "holm":
        order = np.argsort(found, kind="stable")
        steps = np.minimum(1.0, found[order] * np.arange(len(found), 0, -1))
        found[order] = np.maximum.accumulate(steps)
    elif len(found):
        found = false_discovery_control(found, method="bh" if method == "benjamini-hochberg" else "by")
    values[known] = found
    return values


@dataclass(frozen=True)
class _Removal:
    """An interaction that is tested, all that goes with it, and what is left."""

    edge: Edge
    removed: tuple[Edge, ...]
    left: InteractionHypergraph

    @property
    def row(self) -> dict[str, Any]:
        others = [":".join(edge) for edge in self.removed if edge != self.edge]
        return {"term": ":".join(self.edge), "removal": f"with {', '.join(others)}" if others else "alone"}


def term_tests(
    result: FitResult,
    *,
    method: Literal["likelihood-ratio", "wald"] = "likelihood-ratio",
    covariance: CovarianceKind | None = None,
    correction: Correction | None = "benjamini-hochberg",
    terms: Iterable[Sequence[str]] | None = None,
    p_value: Literal["auto", "chi-square"] = "auto",
    num_tables: int = 999,
    seed: int = 0,
) -> pd.DataFrame:
    r"""Test every interaction of a fit against the model without it, with p-values adjusted for their number.

    .. math:: G^2 = 2 (\ell - \ell_{-S}), \qquad
        W = \hat\theta_S^\top \big(\operatorname{Cov} \hat\theta_S\big)^{-1} \hat\theta_S

    An interaction that lies in no other is removed alone, any other together with all that contain it, as the column
    ``removal`` says. Every likelihood-ratio test takes a fit, and up to four seconds where its p-value needs drawn
    tables; Wald tests take none. Where small expected counts move the likelihood ratio, ``auto`` corrects it, tests
    exactly or draws tables (:func:`~pyro_hoim.log_linear.likelihood_ratio_test`); Wald's p-value is then that of the
    coefficients, and its note calls it rough. The columns ``p_value_method`` and ``note`` say which and why.

    Under survey weights neither statistic of a model-based covariance has a chi-square distribution. With a robust
    covariance Wald's statistic has, and the likelihood ratio is corrected by its design effects
    (:func:`~pyro_hoim.log_linear.likelihood_ratio_test`). These need many sampling units beside the degrees of freedom,
    and are called rough where the effective number of rows is small for the expected counts.

    Args:
        result: a converged maximum-likelihood fit without penalty, to complete observations.
        method: ``likelihood-ratio`` or ``wald``.
        covariance: ``model``; ``robust``; what :meth:`FitResult.robust_covariance` gave, such as one of clusters; by
            default ``robust`` of weighted rows, else ``model``.
        correction: of the p-values over the rows of the table (:func:`adjust_p_values`), or None.
        terms: interactions to test; default all of two or more variables.
        p_value: ``auto`` or, whatever the expected counts, ``chi-square``.
        num_tables: tables that are drawn, as in :func:`~pyro_hoim.log_linear.likelihood_ratio_test`.
        seed: of these tables.

    Returns:
        A row for each interaction in their order: term, removal ("alone" or "with ..."), df (of parameters that the
        data identify), statistic, design_effect (of a robust covariance), p_value, p_value_adjusted (with a
        correction), p_value_method (``chi-square``, ``bartlett``, ``exact``, ``conditional``, ``rao-scott`` or None)
        and note.

    Raises:
        InputError: another kind of fit, an unknown term or choice, numbers out of range.
        MissingDataError: a fit to rows with missing cells.
        IntractableError: no covariance (:attr:`FitResult.covariance`), where one is needed.

    Example:
        >>> from pyro_hoim import Domain, InteractionHypergraph, Observations, fit
        >>> domain = Domain.from_cardinalities({"a": 2, "b": 2, "c": 2})
        >>> data = Observations.from_table(domain, [[[40, 41], [20, 19]], [[21, 20], [39, 40]]])
        >>> frame = term_tests(fit(InteractionHypergraph.from_order(domain, 2), data))
        >>> frame["term"].tolist(), (frame["p_value_adjusted"] < 0.05).tolist()
        (['a:b', 'a:c', 'b:c'], [True, False, False])
    """
    check_type(result, FitResult, "result")
    check_choice(method, ("likelihood-ratio", "wald"), "method")
    check_choice(correction, (*_CORRECTIONS, None), "correction")
    check_choice(p_value, ("auto", "chi-square"), "p_value")
    result.complete_data()
    if result.objective != "likelihood" or result.penalty is not None or not result.is_converged:
        found = f"objective {result.objective!r}, penalty {result.penalty!r}, status {result.status!r}"
        expected = "a converged maximum-likelihood fit without penalty"
        raise unexpected("result", expected, received=found, code="no-method")
    if covariance is None:
        covariance = result.usual_covariance
    removals = _removals(result.hypergraph, terms)
    is_model = isinstance(covariance, str) and covariance == "model"
    if method == "wald":
        matrix = result.covariance_of_kind(covariance)
        rows = _walds(result, removals, matrix, p_value)
    else:
        options = {"covariance": covariance, "num_tables": num_tables, "seed": seed}
        rows = [removal.row | _ratio(result, removal, p_value, options) for removal in removals]
    columns = ["term", "removal", "df", "statistic", "p_value", "p_value_method", "note"]
    if not is_model:
        columns.insert(4, "design_effect")
    frame = pd.DataFrame(rows, columns=columns)
    if correction is not None:
        adjusted = adjust_p_values(frame["p_value"].to_numpy(float), correction)
        frame.insert(columns.index("p_value") + 1, "p_value_adjusted", adjusted)
    frame.attrs = {"method": method, "correction": correction}
    return frame


def _removals(graph: InteractionHypergraph, terms: Iterable[Sequence[str]] | None) -> list[_Removal]:
    """What is removed in turn."""
    if terms is None:
        wanted = [edge for edge in graph.edges if len(edge) > 1]
    else:
        wanted = [graph.domain.project((term,) if isinstance(term, str) else term).names for term in terms]
    found: list[_Removal] = []
    for edge in wanted:
        left = graph.remove_edges([edge], hierarchical=graph.is_hierarchical)
        kept = set(left.edges)
        removed = tuple(e for e in graph.edges if e not in kept)
        if any(all(graph.domain[name].cardinality > 1 for name in e) for e in removed):
            found.append(_Removal(edge, removed, left))
    return found


def _without(result: FitResult, removal: _Removal) -> FitResult:
    """The fit of what is left to the same rows, over the same cells."""
    zeros = None if result.possible is None else ~result.possible.reshape(result.hypergraph.domain.cardinalities)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NonexistentEstimateWarning)  # the fit that is tested has warned
        whole = result.restriction
        left = removal.left if whole is None else whole.without(removal.removed, removal.left)
        return fit(left, result.complete_data(), partition=result.partition, structural_zeros=zeros)


def _ratio(result: FitResult, removal: _Removal, p_value: Any, options: dict[str, Any]) -> dict[str, Any]:
    """Likelihood-ratio test."""
    test = likelihood_ratio_test(_without(result, removal), result, p_value, **options)
    return {
        "df": test.df_adjusted,
        "statistic": test.statistic,
        "design_effect": test.design_effect,
        "p_value": test.p_value,
        "p_value_method": test.p_value_method,
        "note": test.p_value_note,
    }


def rough_terms(result: FitResult) -> list[str]:
    """Interactions whose Wald tests :func:`term_tests` calls rough, because the expected counts are small."""
    removals = _removals(result.hypergraph, None)
    tested = [(removal.row["term"], _contrasts(result, removal)) for removal in removals]
    known = [(term, rows) for term, rows in tested if bool(result.is_identified(rows).all())]
    verdicts = wald_verdicts(result, [rows.numpy() for _, rows in known], "auto")
    return [term for (term, _), (is_reliable, _) in zip(known, verdicts, strict=True) if not is_reliable]


def _walds(result: FitResult, removals: Sequence[_Removal], matrix: torch.Tensor, p_value: str) -> list[dict[str, Any]]:
    """Wald's tests, for any covariance; all have the p-values of the coefficients, rough or not."""
    found, known = list[dict[str, Any]](), list[tuple[dict[str, Any], np.ndarray]]()
    for removal in removals:
        contrasts = _contrasts(result, removal)
        effects = design_effects(result, contrasts, matrix)
        row = {**removal.row, "df": len(contrasts), "statistic": math.nan, "p_value": math.nan, "p_value_method": None}
        row["design_effect"] = float(effects.mean()) if len(effects) else math.nan
        found.append(row)
        if not bool(result.is_identified(contrasts).all()):
            row["note"] = "the estimate of the interaction is infinite; use the likelihood ratio"
            continue
        theta = (contrasts @ result.theta).numpy()
        variance = (contrasts @ matrix @ contrasts.T).numpy()
        if np.linalg.matrix_rank(variance, hermitian=True) < len(theta):
            row["note"] = "there are too few sampling units for the degrees of freedom"
            continue
        row["statistic"] = float(theta @ np.linalg.solve(variance, theta))
        known.append((row, contrasts.numpy()))
    verdicts = wald_verdicts(result, [contrasts for _, contrasts in known], p_value)
    for (row, contrasts), (is_reliable, note) in zip(known, verdicts, strict=True):
        row["p_value"], row["p_value_method"] = float(chdtrc(len(contrasts), row["statistic"])), "chi-square"
        row["note"] = note if is_reliable else f"rough: {note}; use the likelihood ratio"
    return found


def _contrasts(result: FitResult, removal: _Removal) -> torch.Tensor:
    """Linear functions of theta (df, num_parameters) that are zero without what is removed."""
    if result.restriction is not None:
        return torch.from_numpy(result.restriction.readings[result.restriction.belongs(removal.removed)])
    slices = result.hypergraph.parameter_slices
    where = list(itertools.chain(*(range(slices[e].start, slices[e].stop) for e in removal.removed)))
    return torch.eye(result.hypergraph.num_parameters, dtype=torch.float64)[where]
