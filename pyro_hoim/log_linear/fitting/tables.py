"""Tables of a fit, as data frames: coefficients, conditional odds ratios, expected counts and adjusted residuals."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import torch
from scipy.special import ndtr, ndtri

from ...core.prediction import beside_figures
from ...errors import check_fraction, conflict, out_of_reach, size_text, unexpected
from ..coding import Coding, Reference, entry_labels, parametrization
from .design import cell_codes, cell_counts
from .result import CovarianceKind, FitResult

_MAX_CELLS = 2**20


def _quantile(level: float) -> float:
    check_fraction(level, "level")
    return float(ndtri((1 + level) / 2))


def _wald(estimate: torch.Tensor, error: torch.Tensor, level: float) -> dict[str, np.ndarray]:
    """The figures estimate, std_error, z, p_value, lower and upper; without an error the interval is the whole line."""
    width = _quantile(level) * error
    identified = torch.isfinite(error)
    z = torch.where(identified & (error > 0), estimate / error, torch.nan)
    figures = {
        "estimate": estimate,
        "std_error": error,
        "z": z,
        "p_value": 2 * torch.from_numpy(ndtr(-np.abs(z.numpy()))),
        "lower": estimate - width,
        "upper": estimate + width,
    }
    return {name: values.numpy() for name, values in figures.items()}


def coefficient_table(
    result: FitResult,
    *,
    coding: Coding = "corner",
    level: float = 0.95,
    covariance: CovarianceKind | None = None,
    reference: Reference | None = None,
) -> pd.DataFrame:
    """Coefficients with standard errors and Wald intervals.

    Args:
        result: a fit of the likelihood.
        coding: ``corner`` (treatment contrasts against one level, the first by default), ``balanced`` (deviations that
            sum to zero over every axis) or ``free`` (see :class:`~pyro_hoim.log_linear.Parametrization`).
        level: coverage of the interval.
        covariance: ``model``, ``robust``, or what :meth:`FitResult.robust_covariance` gave; by default ``robust`` of
            weighted rows, else ``model``.
        reference: levels to compare with in the corner coding, labels or codes by variable
            (:func:`~pyro_hoim.log_linear.to_reference`).

    Returns:
        One row per coefficient: interaction, levels (labels), estimate, std_error, z, p_value, lower, upper. An
        estimate at infinity has an infinite std_error; its finite value stands for the limit. The frame's ``attrs`` say
        the coding of the coefficients and the penalty, with the coding that it acts on. Restricted interactions have
        the coefficients of their terms, in any coding: levels of whole tables are compared with the first one in
        balanced tables, and the coefficient of ``linear(a):linear(b)`` is that of the products of the scores.

    Raises:
        InputError: unknown coding or level; reference levels of another coding or of restricted interactions; see
            :attr:`FitResult.information`.

    Example:
        >>> from pyro_hoim import Domain, InteractionHypergraph, Observations, fit
        >>> domain = Domain.from_cardinalities({"a": 2, "b": 2})
        >>> data = Observations.from_table(domain, [[30, 10], [20, 40]])
        >>> frame = coefficient_table(fit(InteractionHypergraph.saturated(domain), data))
        >>> frame["interaction"].tolist(), frame["estimate"].round(3).tolist()
        (['a', 'b', 'a:b'], [-0.405, -1.099, 1.792])
    """
    _quantile(level)
    if (restriction := result.restriction) is not None:
        if reference is not None:
            raise conflict("reference", "restricted interactions have the coefficients of their terms")
        readings = torch.from_numpy(restriction.readings)
        named = {"interaction": list(restriction.terms), "levels": list(restriction.levels)}
        error = result.contrast_errors(readings, covariance)
        table = pd.DataFrame({**named, **_wald(readings @ result.theta, error, level)})
        table.attrs = {"coding": "restricted", "penalty": None}
        return table
    estimate = result.coefficients(coding, reference)
    interactions, combinations = entry_labels(result.hypergraph, coding, reference)
    levels = [", ".join(combination) for combination in combinations]
    error = result.standard_errors(coding, covariance, reference)
    table = pd.DataFrame({"interaction": interactions, "levels": levels, **_wald(estimate, error, level)})
    table.attrs = {"coding": coding, "penalty": None if result.penalty is None else repr(result.penalty)}
    return table


def odds_ratio_table(
    result: FitResult,
    first: str,
    second: str,
    *,
    first_levels: tuple[str | int, str | int] | None = None,
    second_levels: tuple[str | int, str | int] | None = None,
    given: Mapping[str, str | int] | None = None,
    level: float = 0.95,
    covariance: CovarianceKind | None = None,
) -> pd.DataFrame:
    r"""Conditional log odds ratios of two variables given all others, with Wald intervals.

    .. math:: \log \frac{q(a_1 b_1 \mid r)\, q(a_0 b_0 \mid r)}{q(a_1 b_0 \mid r)\, q(a_0 b_1 \mid r)}

    They depend only on the variables that share a hyperedge with both, the *modifiers*; one row per configuration of
    those.

    Args:
        result: a fit of the likelihood.
        first: a variable a.
        second: another variable b.
        first_levels: reference and level, labels or codes; default: level 0 against each of the others.
        second_levels: likewise.
        given: levels at which to hold modifiers; the others run over all their levels.
        level: coverage of the interval.
        covariance: as in :func:`coefficient_table`.

    Returns:
        Columns: the two pairs of levels ("reference -> level"), one per modifier, log_odds_ratio, std_error, z,
        p_value, lower, upper and odds_ratio. A variable with the name of one of these is called ``name (column)``;
        ``attrs["columns"]`` says what each variable is called.

    Raises:
        UnknownNameError: an unknown variable or label.
        InputError: the same variable or level twice, or ``given`` holds a variable that is no modifier.

    Example:
        >>> from pyro_hoim import Domain, InteractionHypergraph, Observations, fit
        >>> rows = Observations.from_table(Domain.from_cardinalities({"a": 2, "b": 2}), [[30, 10], [20, 40]])
        >>> frame = odds_ratio_table(fit(InteractionHypergraph.saturated(rows.domain), rows), "a", "b")
        >>> frame[["odds_ratio", "std_error"]].round(4).values.tolist()  # 30 * 40 / (10 * 20)
        [[6.0, 0.4564]]
    """
    _quantile(level)
    graph, domain = result.hypergraph, result.hypergraph.domain
    domain.indices((first, second))
    fixed = domain.encode_state(given or {})
    pairs = [_pairs(result, name, chosen) for name, chosen in ((first, first_levels), (second, second_levels))]
    # Only interactions of both variables count, and the levels of what else is in them.
    joint = [edge for edge in graph.edges if first in edge and second in edge]
    modifiers = sorted({n for edge in joint for n in edge} - {first, second}, key=domain.index)
    for name in fixed:
        if name not in modifiers:
            problem = f"{name!r} does not modify the odds ratio of {first!r} and {second!r}; modifiers: {modifiers}"
            raise conflict("given", problem)
    grids = [[fixed[n]] if n in fixed else range(domain[n].cardinality) for n in modifiers]
    # Every log odds ratio is a linear function of theta.
    records: list[Mapping[str, str]] = []
    contrasts: list[np.ndarray] = []
    for (a0, a1), (b0, b1), rest in itertools.product(pairs[0], pairs[1], itertools.product(*grids)):
        tables = np.zeros(graph.num_terms)
        for a, b, sign in ((a1, b1, 1), (a0, b0, 1), (a1, b0, -1), (a0, b1, -1)):
            state = {first: a, second: b, **dict(zip(modifiers, rest, strict=True))}
            for edge in joint:
                shape = [domain[n].cardinality for n in edge]
                index = np.ravel_multi_index([state[n] for n in edge], shape)
                tables[graph.term_slices[edge].start + int(index)] += sign
        contrasts.append(tables)
        labels = (domain[first].labels, domain[second].labels)
        records.append(
            {first: f"{labels[0][a0]} -> {labels[0][a1]}", second: f"{labels[1][b0]} -> {labels[1][b1]}"}
            | {n: domain[n].labels[c] for n, c in zip(modifiers, rest, strict=True)}
        )
    # Intervals are made on the scale of logarithms.
    functions = parametrization(graph).mean_statistics(torch.from_numpy(np.array(contrasts)))
    estimate = functions @ result.theta
    figures = _wald(estimate, result.contrast_errors(functions, covariance), level)
    figures = {"log_odds_ratio": figures.pop("estimate"), **figures}
    with np.errstate(over="ignore"):
        figures |= {name: np.exp(figures[name]) for name in ("lower", "upper")}
        figures["odds_ratio"] = np.exp(figures["log_odds_ratio"])
    return beside_figures({name: [record[name] for record in records] for name in records[0]}, figures)


def _pairs(result: FitResult, name: str, chosen: tuple[str | int, str | int] | None) -> Sequence[tuple[int, int]]:
    domain = result.hypergraph.domain
    if chosen is None:
        if domain[name].cardinality < 2:
            raise unexpected(f"variable {name!r}", "at least two levels, it has one", code="no-method")
        return [(0, c) for c in range(1, domain[name].cardinality)]
    if isinstance(chosen, str) or len(chosen) != 2:
        raise unexpected(f"levels of {name!r}", "(reference, level)", chosen, code="wrong-shape")
    reference, other = (domain.encode_state({name: value})[name] for value in chosen)
    if reference == other:
        raise unexpected(f"levels of {name!r}", "two different levels", chosen, code="repeated-name")
    return [(reference, other)]


def cell_table(result: FitResult) -> pd.DataFrame:
    r"""Observed and expected counts of every cell with Pearson and adjusted residuals.

    .. math:: r_x = \frac{n_x - \hat m_x}{\sqrt{\hat m_x}}, \qquad
        r^*_x = \frac{n_x - \hat m_x}{\sqrt{\hat m_x (1 - h_x)}}

    with h the leverage of the cell. Adjusted residuals are about standard normal when the model holds. A cell that the
    model fits perfectly by construction has none (NaN).

    Args:
        result: an unpenalised fit of the likelihood to observations of a small table.

    Returns:
        One row per possible cell, row-major: one column of labels per variable, then observed, expected, residual
        and adjusted_residual. Variables of these names are called as in :func:`odds_ratio_table`. Cells fitted as zero
        have expectation 0 and no residuals.

    Raises:
        InputError: a fit to sufficient statistics, a penalised one, or not of the likelihood.
        MissingDataError: a fit to rows with missing cells.
        IntractableError: more than 2^20 cells, or a fit without a dense design.

    References:
        Shelby Haberman, The analysis of residuals in cross-classified tables, 1973, equation (6).

    Example:
        >>> from pyro_hoim import Domain, InteractionHypergraph, Observations, fit
        >>> rows = Observations.from_table(Domain.from_cardinalities({"a": 2, "b": 2}), [[30, 10], [20, 40]])
        >>> frame = cell_table(fit(InteractionHypergraph.from_order(rows.domain, 1), rows))
        >>> frame["expected"].round(6).tolist(), frame["adjusted_residual"].round(4).tolist()
        ([20.0, 20.0, 30.0, 30.0], [4.0825, -4.0825, -4.0825, 4.0825])
    """
    data = result.complete_data()
    if result.penalty is not None:
        raise unexpected("result", "a fit without penalty", result.penalty, code="no-method")
    domain = result.hypergraph.domain
    if domain.num_states > _MAX_CELLS:
        raise out_of_reach("cell_table", f"{size_text(domain.num_states, 'cells')}; the limit is {_MAX_CELLS}")
    if not result.is_listed:
        problem = (
            f"the fit did not list its {size_text(domain.num_states, 'cells')}, because with "
            f"{result.hypergraph.num_parameters} parameters they are too many"
        )
        raise out_of_reach("cell_table", problem, "use fewer interactions or levels")
    # The leverage of a cell: how far its own count moves its fitted value.
    observed = cell_counts(data)
    probs = result.probs.numpy()
    expected = result.num_rows * probs
    centred = result._design - probs @ result._design
    covariance = result.covariance.numpy()
    leverage = probs + expected * ((centred @ covariance) * centred).sum(1)
    # Cells fitted as zero, or perfectly, have no adjusted residual.
    cells = np.ones(domain.num_states, dtype=bool) if result.possible is None else result.possible
    with np.errstate(divide="ignore", invalid="ignore"):
        residual = np.where(probs > 0, (observed - expected) / np.sqrt(expected), np.nan)
        free = (probs > 0) & (1 - leverage > 1e-8)
        adjusted = np.where(free, residual / np.sqrt(1 - leverage), np.nan)
    codes = cell_codes(result.hypergraph)[cells]
    columns: dict[str, object] = {
        v.name: pd.Categorical.from_codes(codes[:, i], categories=list(v.labels)) for i, v in enumerate(domain)
    }
    figures = {"observed": observed, "expected": expected, "residual": residual, "adjusted_residual": adjusted}
    return beside_figures(columns, {name: values[cells] for name, values in figures.items()})
