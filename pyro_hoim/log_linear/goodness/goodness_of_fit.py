"""Goodness of fit of log-linear models: deviance, Pearson's statistic, degrees of freedom, criteria and tests."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from scipy.special import chdtrc, xlog1py

from ...core.words import at_least
from ...errors import (
    IntractableError,
    NonexistentEstimateWarning,
    check_choice,
    check_type,
    conflict,
    other_domain,
    out_of_range,
    refused,
    unexpected,
    wrong_shape,
)
from ...results.contrasts import step_up
from ...structure.hypergraph import Edge, InteractionHypergraph
from ..auto import Auto
from ..coding import MARGIN_TOLERANCE, parametrization
from ..file import ModelFile
from ..fitting.design import cell_counts, design_entries, design_matrix
from ..fitting.existence import INTERIOR, Face, MLEExistence, cells_outside, identified_directions
from ..fitting.fit import SMALL_ENTRIES, fit
from ..fitting.result import CovarianceKind, FitResult
from ..impossible import ImpossibleStates
from ..restricted.terms import RestrictedInteractions, is_within
from .bootstrap import PValue
from .p_values import (
    NUM_TABLES,
    Comparison,
    contrasts_of,
    corrected_p_value,
    design_effects,
    expected_counts,
    p_value_of,
    possible_cells,
    wald_verdicts,
)

_A_FIT = "the result of fit"
_MAX_STATES = 2**22  # of a table over which impossible states are compared cell by cell


@dataclass(frozen=True, kw_only=True)
class GoodnessOfFit(PValue):
    """How well a fitted model describes the observed table; its p-value is in the inherited fields.

    Attributes:
        deviance: G2, twice the log-likelihood that the model loses against the saturated one.
        pearson: X2, Pearson's statistic.
        df: degrees of freedom of the family, possible cells - 1 - parameters that the possible cells identify.
        df_adjusted: the same on the cells that are not fitted as zero, with the parameters identified there. Where it
            differs from ``df``, this is the one to use.
        log_likelihood: of all rows, nats.
        aic: Akaike's criterion, with the identified parameters; NaN unless the fit is one of maximum likelihood to
            whole counts.
        bic: Schwarz's criterion, with the identified parameters and the number of observations; likewise.
        num_rows: number of observations.
        num_cells: possible cells.
        num_cells_zero: possible cells fitted as zero; None where not computed (large tables).
        num_parameters: free parameters of the family.
        num_parameters_fitted: those that the data identify.
    """

    deviance: float
    pearson: float
    df: int
    df_adjusted: int
    log_likelihood: float
    aic: float
    bic: float
    num_rows: float
    num_cells: int
    num_cells_zero: int | None
    num_parameters: int
    num_parameters_fitted: int


def _log_likelihood(result: FitResult) -> float:
    if result.log_likelihood is None:
        least = result.log_likelihood_bound
        known = "is not known" if least is None else f"is known to be at least {at_least(least)} alone"
        raise refused("result", f"its log-likelihood {known}, because log Z was out of reach", code="no-method")
    return result.log_likelihood


def _floored(statistic: float, total: float) -> float:
    """A statistic, 0 below its own rounding: both are differences of sums over all rows."""
    return 0.0 if abs(statistic) < 1e-12 * total else statistic


def _listed(result: FitResult) -> tuple[float, float] | None:
    """Deviance and Pearson's statistic from a list of cells, without differences of sums over all rows."""
    expected = expected_counts(result)
    if expected is None or result.data is None or result.data.has_missing or not (expected > 0).all():
        return None
    observed = cell_counts(result.data)[possible_cells(result)]
    gaps = observed - expected
    deviance = 2 * float((xlog1py(observed, gaps / expected) - gaps).sum())
    return max(0.0, deviance), float((gaps * (gaps / expected)).sum())


def goodness_of_fit(
    result: FitResult,
    p_value: Literal["auto", "chi-square", "exact", "conditional", "bootstrap"] | None = "auto",
    *,
    num_tables: int = NUM_TABLES,
    seed: int = 0,
) -> GoodnessOfFit:
    r"""Deviance, Pearson's statistic, degrees of freedom, p values and information criteria of a fit.

    .. math:: G^2 = 2 \sum_x n_x \log \frac{n_x}{\hat m_x}, \qquad X^2 = \sum_x \frac{(n_x - \hat m_x)^2}{\hat m_x}

    Only observed cells enter: :math:`X^2 = \sum_{n_x > 0} n_x^2 / \hat m_x - N`, because both tables have the total N.
    With small expected counts the mean of G2 exceeds df by at most about :math:`\tfrac16 \sum_x 1 / \hat m_x`. ``auto``
    relies on chi-square where that is at most 0.05 standard deviations :math:`\sqrt{2\,\mathrm{df}}`, where a 5 % test
    has a size below 6 %. Elsewhere the table is compared with those that have the same fitted
    margins: independent draws of them for a decomposable model, else all of them where they are few, or those that
    chains of moves reach. Where fewer than ten of them have as large a statistic, a finer p-value is looked for: over
    all tables, where they are few; by up to a hundred times as many draws; and where none of these is as extreme, by
    chi-square of G2 over Bartlett's factor, if that moves the mean by at most 0.3 standard deviations (without more
    draws if that is below 0.0001). Else the note says that p is smaller still.
    Cost: O(distinct rows x hyperedges), and with ``auto`` a few seconds for drawn tables.

    Args:
        result: a fit to observations.
        p_value: ``chi-square``; ``exact``: the share of tables with the observed margins whose G2 is at least the
            observed one, in independent draws that count the observed table (decomposable models without structural
            zeros); ``conditional``: the same share of any hierarchical model, over all these tables where they are at
            most 5,000, else over chains of moves; ``bootstrap``: the same share for X2 of tables drawn from the fitted
            model, each against its own refit; ``auto`` chooses as above, and computes none of weights that are not
            whole, whose unit the statistics have; None computes none. Only a maximum-likelihood fit has a p-value: it
            is NaN for penalised, early-stopped and pseudo-likelihood fits.
        num_tables: tables that are drawn, at least 99; ``auto`` draws fewer where these would take longer than its two
            seconds, but no fewer than 99, and more, as said above.
        seed: of these tables.

    Raises:
        InputError: the fit was made from sufficient statistics, or its log Z is not known; ``p_value`` is no method,
            ``num_tables`` or ``seed`` is out of range; or a method was asked for that this fit does not have (no list
            of cells, counts that are not whole, a collection that is not hierarchical or not decomposable).
        MissingDataError: a fit to rows with missing cells.

    References:
        Yvonne Bishop, Stephen Fienberg and Paul Holland, Discrete Multivariate Analysis, 1975, sections 4.2 and 3.8;
        Stephen Fienberg and Alessandro Rinaldo, Maximum likelihood estimation in log-linear models, 2012, section 4;
        David Williams, Improved likelihood ratio tests for complete contingency tables, 1976, for the mean of G2;
        Julian Besag and Peter Clifford, Generalized Monte Carlo significance tests, 1989, for chains of moves.

    Example:
        >>> from pyro_hoim import Domain, InteractionHypergraph, Observations, fit
        >>> domain = Domain.from_cardinalities({"a": 2, "b": 2})
        >>> data = Observations.from_table(domain, [[30, 10], [20, 40]])
        >>> quality = goodness_of_fit(fit(InteractionHypergraph.from_order(domain, 1), data))
        >>> round(quality.pearson, 4), quality.df
        (16.6667, 1)
    """
    check_type(result, FitResult, "result", _A_FIT)
    data = result.complete_data()
    log_likelihood = _log_likelihood(result)
    assert result.log_partition is not None
    rows = data.rows(data.counts > 0).unique()
    counts, total = rows.counts, result.num_rows
    # From all cells where these are listed, else from the cells that hold rows.
    listed = _listed(result)
    if listed is None:
        saturated = float(torch.special.xlogy(counts, counts / total).sum())
        expected = total * torch.exp(-result.model.energy(rows.codes) - result.log_partition)
        deviance = _floored(2 * (saturated - log_likelihood), total)
        pearson = _floored(float((counts * (counts / expected)).sum()) - total, total)
    else:
        deviance, pearson = listed
    # Degrees of freedom, of the family and on the cells that are not fitted as zero.
    num_cells = result.num_cells_possible
    fitted = result.num_parameters_fitted
    df, adjusted = num_cells - 1 - result.num_parameters_possible, result.num_cells_fitted - 1 - fitted
    test = p_value_of(Comparison(result, None, deviance, pearson, adjusted), p_value, num_tables, seed)
    # Criteria want a maximum of a likelihood of whole rows.
    is_maximum = result.objective == "likelihood" and result.penalty is None and result.is_converged
    is_maximum = is_maximum and data.has_whole_counts  # else the criteria change with the unit of the weights
    known = result.existence is None or result.existence.num_cells_zero is not None
    return GoodnessOfFit(
        **vars(test),
        deviance=deviance,
        pearson=pearson,
        df=df,
        df_adjusted=adjusted,
        log_likelihood=log_likelihood,
        aic=-2 * log_likelihood + 2 * fitted if is_maximum else math.nan,
        bic=-2 * log_likelihood + math.log(total) * fitted if is_maximum else math.nan,
        num_rows=total,
        num_cells=num_cells,
        num_cells_zero=num_cells - result.num_cells_fitted if known else None,
        num_parameters=result.num_parameters,
        num_parameters_fitted=fitted,
    )


@dataclass(frozen=True, kw_only=True)
class LikelihoodRatioTest(PValue):
    """Comparison of two nested models on the same data; its p-value is in the inherited fields.

    Attributes:
        statistic: twice the gain in log-likelihood of the larger model.
        df: difference of their parameters on the possible cells.
        df_adjusted: parameters that the larger model adds on the cells that the smaller does not fit as zero. Those
            that the larger one sends to infinity count: under the smaller model their cells are possible.
        p_value_resolution: step between the values that ``p_value`` can take, and the smallest of them,
            1 / (num_tables + 1); 0 where none are drawn, NaN without a p-value.
        design_effect: mean of the eigenvalues of a robust covariance of what the larger model adds, in units of the
            model's; NaN for that of the model.
    """

    statistic: float
    df: int
    df_adjusted: int
    p_value_resolution: float
    design_effect: float = math.nan


def likelihood_ratio_test(
    small: FitResult,
    big: FitResult,
    p_value: Literal["auto", "chi-square", "exact", "conditional", "bootstrap"] | None = "auto",
    *,
    covariance: CovarianceKind | None = None,
    num_tables: int = NUM_TABLES,
    seed: int = 0,
) -> LikelihoodRatioTest:
    r"""Likelihood-ratio test of a model against a larger one that contains it.

    .. math:: G^2(\mathrm{small} \mid \mathrm{big}) = 2 (\ell_{\mathrm{big}} - \ell_{\mathrm{small}})

    The mean of the statistic differs from df by an amount s that is known to the order of one over counts (Lawley), and
    to which cells in which both models are alike add nothing, however few rows they hold. ``auto`` relies on chi-square
    where s is at most 0.05 standard deviations :math:`\sqrt{2\,\mathrm{df}}`. Beyond that a decomposable small model
    is tested exactly, given its margins, unless that takes long or no table drawn has as large a statistic (as in
    :func:`goodness_of_fit`). Else the
    statistic is divided by Bartlett's factor :math:`1 + s / \mathrm{df}`, up to 0.3 standard deviations. Where s is
    larger, the table is compared with others that have the margins of the small model. Where cells cannot be listed, s
    is taken for :math:`\tfrac16 \sum 1 / \hat m` over the margins of what the larger model adds, which is a part of
    it. A larger model that is saturated is judged as in :func:`goodness_of_fit`.

    Under survey weights the statistic has no chi-square distribution. With a robust covariance V of the larger model it
    is corrected to second order. Let :math:`L \theta` be what the larger model adds, :math:`\delta_j` the eigenvalues
    of :math:`(\operatorname{Cov} L\hat\theta)^{-1} L V L^\top`, :math:`\bar\delta` their mean, the design effect, and
    :math:`1 + a^2 = \overline{\delta^2} / \bar\delta^2`. Then :math:`G^2 / (\bar\delta (1 + a^2))` is compared with
    chi-square of :math:`k / (1 + a^2)` degrees of freedom; :math:`G^2 / \bar\delta` with k is the first order. Where
    the effective number of rows moves the mean by more than 0.05 standard deviations, the note calls the p-value rough.

    Args:
        small: unpenalised maximum-likelihood fit of the null model.
        big: the same of a model with all its interactions and more, to the same data. Fits to sufficient statistics
            are taken for fits to the same data when the margins they share agree.
        p_value: as in :func:`goodness_of_fit`, for this statistic; ``auto`` and ``chi-square`` with another covariance.
        covariance: ``model``; ``robust`` or what :meth:`FitResult.robust_covariance` of the larger model gave, for
            survey weights and clusters; by default ``robust`` of weighted rows, else ``model``.
        num_tables: likewise.
        seed: likewise.

    Raises:
        InputError: models that are not nested, different data or structural zeros, fits that are not maximum-likelihood
            estimates, or what :func:`goodness_of_fit` refuses.

    References:
        Derrick Lawley, A general method for approximating to the distribution of likelihood ratio criteria, 1956, and
        Gauss Cordeiro, Improved likelihood ratio statistics for generalized linear models, 1983, Journal of the Royal
        Statistical Society B 45(3), for the mean of the statistic; Anthony Davison and David Hinkley, Bootstrap Methods
        and their Application, 1997, section 4.2; Jon Rao and Alastair Scott, On chi-squared tests for multiway
        contingency tables with cell proportions estimated from survey data, 1984, sections 2 and 3.

    Example:
        >>> from pyro_hoim import Domain, InteractionHypergraph, Observations, fit
        >>> domain = Domain.from_cardinalities({"a": 2, "b": 2})
        >>> data = Observations.from_table(domain, [[30, 10], [20, 40]])
        >>> one, two = (fit(InteractionHypergraph.from_order(domain, k), data) for k in (1, 2))
        >>> round(likelihood_ratio_test(one, two).statistic, 4)
        17.2609
    """
    for name, result in (("small", small), ("big", big)):
        check_type(result, FitResult, name, _A_FIT)
        _check_maximum(result, name)
    # Both must be nested models of the same rows.
    if small.hypergraph.domain != big.hypergraph.domain:
        raise other_domain("small, big", "models of the same variables")
    surplus = set(small.hypergraph.edges) - set(big.hypergraph.edges)
    if surplus:
        shown = ", ".join(":".join(edge) for edge in sorted(surplus)[:4])
        raise refused("small", f"the models are not nested: {shown} is in small alone", code="other-domain")
    if not is_within(small.restriction or small.hypergraph, big.restriction or big.hypergraph):
        problem = "the models are not nested: big is restricted to tables that small need not have"
        raise refused("small", problem, code="other-domain")
    if small.num_parameters == big.num_parameters:
        raise conflict("big", "expected more interactions than in small, received the same model twice")
    if not _same_data(small, big):
        raise other_domain("small, big", "fits to the same observations")
    if not _same_states(small.structural_zeros, big.structural_zeros):
        raise other_domain("small, big", "fits with the same structural zeros")
    # Of listed cells the statistic is a difference of deviances, in which nothing large cancels.
    listed = _listed(small), _listed(big)
    statistic = 2 * (_log_likelihood(big) - _log_likelihood(small))
    if listed[0] is not None and listed[1] is not None and small.data is big.data:
        statistic = _floored(listed[0][0] - listed[1][0], small.num_rows)
    df = big.num_parameters_possible - small.num_parameters_possible
    adjusted = _df_adjusted(small, big)
    # Under a robust covariance the p-value takes design effects, else the expected counts decide on its method.
    comparison, effect = Comparison(small, big, statistic, math.nan, adjusted), math.nan
    kind = covariance
    if kind is None:
        kind = big.usual_covariance if p_value in ("auto", "chi-square", None) else "model"
    if isinstance(kind, str) and kind == "model":
        test = p_value_of(comparison, p_value, num_tables, seed)
    else:
        try:
            test, effect = corrected_p_value(comparison, big.covariance_of_kind(kind), p_value)
        except IntractableError as error:
            if covariance is not None:
                raise
            test = PValue(p_value_note=f"under weights it takes a robust covariance, and {error.problem}")
    resolution = 1 / (test.num_tables + 1) if test.num_tables else 0.0
    return LikelihoodRatioTest(
        **vars(test),
        statistic=statistic,
        df=df,
        df_adjusted=adjusted,
        p_value_resolution=math.nan if test.p_value_method is None else resolution,
        design_effect=effect,
    )


def _check_maximum(result: FitResult, argument: str) -> None:
    if result.objective != "likelihood" or result.penalty is not None or not result.is_converged:
        received = f"objective {result.objective!r}, penalty {result.penalty!r}, status {result.status!r}"
        expected = "a converged maximum-likelihood fit without penalty"
        raise unexpected(argument, expected, received=received, code="no-method")


def _df_adjusted(small: FitResult, big: FitResult) -> int:
    """Parameters that the larger model adds on the cells that the smaller one does not fit as zero."""
    if big._design is not None:
        design = big._design if big.restriction is None else big._design @ big.restriction.basis
        cells = np.ones(len(design), dtype=bool) if small._face is None else small._face.cells
        return identified_directions(design, cells).shape[1] - small.num_parameters_fitted
    if small.status == "converged":
        return big.num_parameters_possible - small.num_parameters_possible
    return big.num_parameters_fitted - small.num_parameters_fitted


def _same_states(first: ImpossibleStates | None, second: ImpossibleStates | None) -> bool:
    """Whether two collections of states are the same, in tables of the same variables or in those of other ones."""
    if first is None or second is None:
        return first is second
    graph = first.structure
    if graph == second.structure:
        return torch.equal(first.excluded, second.excluded)
    if graph.domain.num_states > _MAX_STATES:
        return False
    return np.array_equal(cells_outside(first), cells_outside(second))


def _same_data(small: FitResult, big: FitResult) -> bool:
    """Whether both fits saw the same rows; of fits to sufficient statistics, the same margins up to rounding."""
    if small.data is not None and small.data is big.data:
        return True
    if small.data is not None and big.data is not None:
        a, b = small.data.unique(), big.data.unique()
        return torch.equal(a.codes, b.codes) and torch.allclose(a.counts, b.counts, rtol=MARGIN_TOLERANCE, atol=0)
    margins = [
        result.margins if result.data is None else result.complete_data().marginal_counts(result.hypergraph.edges)
        for result in (small, big)
    ]
    assert margins[0] is not None
    assert margins[1] is not None
    common = torch.cat([margins[1][big.hypergraph.term_slices[edge]] for edge in small.hypergraph.edges])
    tolerance = MARGIN_TOLERANCE * big.num_rows
    return abs(small.num_rows - big.num_rows) <= tolerance and bool(((margins[0] - common).abs() <= tolerance).all())


# A test of every interaction of a fitted model, with p-values adjusted for their number.

Correction = Literal["benjamini-hochberg", "benjamini-yekutieli", "holm"]
_WITHIN = 1e-9  # of one, the cosine of a direction and a subspace that holds it
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
    # Tests without a p-value do not count.
    known = ~np.isnan(values)
    adjusted = values[known]
    if ((adjusted < 0) | (adjusted > 1)).any():
        raise out_of_range(
            "p_values", "numbers from 0 to 1, or NaN", received=f"{adjusted[(adjusted < 0) | (adjusted > 1)][0]:g}"
        )
    if method == "holm":
        order = np.argsort(adjusted, kind="stable")
        steps = np.minimum(1.0, adjusted[order] * np.arange(len(adjusted), 0, -1))
        adjusted[order] = np.maximum.accumulate(steps)
    else:
        price = 1.0 if method == "benjamini-hochberg" else float((1 / np.arange(1, len(adjusted) + 1)).sum())
        adjusted = step_up(adjusted, price=price)
    values[known] = adjusted
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
    # What is tested, and under which covariance.
    result.complete_data()
    _check_maximum(result, "result")
    if covariance is None:
        covariance = result.usual_covariance
    removals = _removals(result.hypergraph, terms)
    is_model = isinstance(covariance, str) and covariance == "model"
    # One row for each interaction.
    if method == "wald":
        matrix = result.covariance_of_kind(covariance)
        rows = _walds(result, removals, matrix, p_value)
    else:
        rows = list[dict[str, Any]]()
        for removal in removals:
            test = likelihood_ratio_test(
                _without(result, removal), result, p_value, covariance=covariance, num_tables=num_tables, seed=seed
            )
            row = {"df": test.df_adjusted, "note": test.p_value_note}
            row |= {name: getattr(test, name) for name in ("statistic", "design_effect", "p_value", "p_value_method")}
            rows.append(removal.row | row)
    # The table, with p-values adjusted for its rows.
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
    removals: list[_Removal] = []
    for edge in wanted:
        left = graph.remove_edges([edge], hierarchical=graph.is_hierarchical)
        remaining = set(left.edges)
        removed = tuple(e for e in graph.edges if e not in remaining)
        if any(all(graph.domain[name].cardinality > 1 for name in e) for e in removed):
            removals.append(_Removal(edge, removed, left))
    return removals


def _without(result: FitResult, removal: _Removal) -> FitResult:
    """The fit of what is left to the same rows, over the same cells."""
    # The fit that is tested has warned.
    with warnings.catch_warnings(action="ignore", category=NonexistentEstimateWarning):
        whole = result.restriction
        left = removal.left if whole is None else whole.without(removal.removed, removal.left)
        return fit(left, result.complete_data(), partition=result.partition, structural_zeros=result.structural_zeros)


def rough_terms(result: FitResult) -> list[str]:
    """Interactions whose Wald tests :func:`term_tests` calls rough, because the expected counts are small."""
    removals = _removals(result.hypergraph, None)
    tested = [(removal.row["term"], _contrasts(result, removal)) for removal in removals]
    known = [(term, rows) for term, rows in tested if len(rows) and bool(result.is_identified(rows).all())]
    verdicts = wald_verdicts(result, [rows.numpy() for _, rows in known], "auto")
    return [term for (term, _), (is_reliable, _) in zip(known, verdicts, strict=True) if not is_reliable]


def _walds(result: FitResult, removals: Sequence[_Removal], matrix: torch.Tensor, p_value: str) -> list[dict[str, Any]]:
    """Wald's tests, for any covariance; all have the p-values of the coefficients, rough or not."""
    rows, known = list[dict[str, Any]](), list[tuple[dict[str, Any], np.ndarray]]()
    # Wald's statistics, where the estimates are finite and their covariance has full rank.
    for removal in removals:
        contrasts = _contrasts(result, removal)
        unknown = dict.fromkeys(("statistic", "design_effect", "p_value"), math.nan)
        row = {**removal.row, "df": len(contrasts), **unknown, "p_value_method": None}
        rows.append(row)
        if not len(contrasts):
            row["note"] = "structural zeros leave nothing of the interaction to test"
            continue
        effects = design_effects(result, contrasts, matrix)
        row["design_effect"] = float(effects.mean()) if len(effects) else math.nan
        if not bool(result.is_identified(contrasts).all()):
            lost = "the estimate of the interaction is infinite"
            if result.status != "infinite":  # of a table too large to tell what its possible cells identify
                lost = "structural zeros leave part of the interaction without an estimate"
            row["note"] = f"{lost}; use the likelihood ratio"
            continue
        theta = (contrasts @ result.theta).numpy()
        variance = (contrasts @ matrix @ contrasts.T).numpy()
        if np.linalg.matrix_rank(variance, hermitian=True) < len(theta):
            row["note"] = "there are too few sampling units for the degrees of freedom"
            continue
        row["statistic"] = float(theta @ np.linalg.solve(variance, theta))
        known.append((row, contrasts.numpy()))
    # Whether chi-square holds is decided for all of them at once: they share the design.
    verdicts = wald_verdicts(result, [contrasts for _, contrasts in known], p_value)
    for (row, contrasts), (is_reliable, note) in zip(known, verdicts, strict=True):
        row["p_value"], row["p_value_method"] = float(chdtrc(len(contrasts), row["statistic"])), "chi-square"
        row["note"] = note if is_reliable else f"rough: {note}; use the likelihood ratio"
    return rows


def _contrasts(result: FitResult, removal: _Removal) -> torch.Tensor:
    """Linear functions of theta (df, num_parameters) that are zero without what is removed, and not by that alone.

    Beside structural zeros they are those that the possible cells identify, as many as a likelihood ratio tests.
    """
    if result.restriction is None:
        contrasts = contrasts_of(result.hypergraph, removal.removed)
    else:
        contrasts = torch.from_numpy(result.restriction.readings[result.restriction.belongs(removal.removed)])
    basis = result.identified_by_possible
    if basis is None or bool(result._is_within(contrasts, basis).all()):
        return contrasts
    functions = torch.linalg.qr(result._allowed(contrasts).T)[0].T
    turn, cosines, _ = torch.linalg.svd(functions @ basis, full_matrices=False)
    return turn[:, cosines > 1 - _WITHIN].T @ functions


# Likelihood-ratio tests of models from files, which hold no rows.

_PRECISION = 1e-6  # of the means of statistics at an estimate, per row


def ratio_test_of_files(small: ModelFile, big: ModelFile) -> LikelihoodRatioTest:
    r"""Likelihood-ratio test of two models from files of maximum-likelihood estimates from the same complete rows.

    At its estimate a model expects the observed means of its statistics. So the files hold all that the rule for
    p-values by chi-square or Bartlett's factor asks for: expected counts, and what the parameters of either model can
    express. Exact tests and drawn tables take the rows.

    Args:
        small: the null model.
        big: a model with all its interactions and more.

    Raises:
        InputError: a file does not tell of a maximum-likelihood estimate from complete rows, or which tables
            the functions of its formula allow; models that are not nested, or of other structural zeros.
        IntractableError: the margins of a model are out of reach.
    """
    for file in (small, big):
        if not file.info.get("is_maximum"):
            problem_of_file = "a file does not tell of a maximum-likelihood estimate from whole counts"
            raise refused("models", f"{problem_of_file}; a test of weighted rows takes the rows", code="no-method")
        if file.info.get("is_restricted") and "directions" not in file.tensors:  # of an earlier version
            problem = "its file does not say which tables the functions of its formula allow"
            raise refused("models", problem, code="no-method")
    if not set(small.hypergraph.edges) <= set(big.hypergraph.edges):
        raise refused("models", "neither holds all interactions of the other", code="no-method")
    larger = _remembered(big)
    assert larger.margins is not None
    slices = big.hypergraph.term_slices
    shared = torch.cat([larger.margins[slices[edge]] for edge in small.hypergraph.edges])
    return likelihood_ratio_test(replace(_remembered(small), margins=shared), larger)


def restriction_of(file: ModelFile) -> RestrictedInteractions | None:
    """The directions that the formula of a file allows; None where it allows all, or the file does not say them."""
    if "directions" not in file.tensors or not file.info.get("is_restricted"):
        return None
    directions = file.tensors["directions"].numpy()
    names = ("",) * (directions.shape[1] if directions.ndim == 2 else 0)
    return RestrictedInteractions(file.hypergraph, names, names, directions)


def _remembered(file: ModelFile) -> FitResult:
    """The fit that a file was written from, without its rows."""
    graph, info, coordinates = file.hypergraph, file.info, parametrization(file.hypergraph)
    # At its estimate a model expects the observed margins.
    theta = coordinates.convert(file.theta, file.coding, coordinates.coding)
    energy, total = file.energy, float(info["rows"])
    log_z = float(Auto().log_partition(energy).value)
    totals, slices = total * Auto().expectations(energy).detach(), energy.hypergraph.term_slices
    margins = torch.cat([totals[slices[edge]] for edge in graph.edges])
    design = design_matrix(graph) if design_entries(graph) <= SMALL_ENTRIES else None
    # Directions that the formula allows, and cells that the estimate gives no probability.
    existence, face, restriction = INTERIOR, None, restriction_of(file)
    space = None if restriction is None else restriction.basis
    if file.impossible is not None:
        lost = graph.num_parameters - int(info["num_parameters"])
        existence = MLEExistence(False, "unknown", num_parameters_lost=lost)
        if design is not None:
            cells = cells_outside(file.impossible)
            face = Face(cells, identified_directions(design, cells, space), np.zeros(len(theta)))
    # The likelihood of complete rows follows from the margins; another one tells of missing cells.
    tables = file.finite.tables
    expected = float(margins @ tables) - total * log_z  # of complete rows
    slack = total * _PRECISION * (1 + float(tables.abs().sum()))
    if abs(expected - info["log_likelihood"]) > slack:
        raise refused("models", "of rows with missing cells it is not known where the chi-square distribution holds")
    return FitResult(
        hypergraph=graph,
        theta=theta,
        log_likelihood=float(info["log_likelihood"]),
        log_partition=log_z,
        num_rows=total,
        status=info["status"],
        num_iterations=0,
        gradient_norm=0.0,
        existence=existence,
        objective="likelihood",
        method="auto",
        partition=None if design is not None else Auto(),
        margins=margins,
        structural_zeros=file.structural_zeros,
        impossible=file.impossible,
        restriction=restriction,
        _face=face,
        _design=design,
    )
