"""Refit of the joint model after root regressions were joined: its pseudo-likelihood is maximised anew."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, get_args

import numpy as np

from ...errors import ConvergenceWarning, check_choice, check_type, refused
from ._joint import base_measure
from ._refit_problem import Advance, RefitProblem
from ._regression import Floats
from .node import advice
from .options import Refit, RootSettings, checked_settings
from .result import RootFitResult, RootRefitResult
from .rows import RootRows

__all__ = ["refit_roots", "refit_rows", "warn_refits"]


def refit_roots(
    fit: RootFitResult, data: Any, refit: Refit = "all", settings: RootSettings | None = None
) -> RootFitResult:
    r"""Maximise the pseudo-likelihood of a joint model anew, over its single columns or over all its terms.

    .. math:: \min_c \frac1n \sum_{i, s} \Bigl[A(\eta_{si}) - \sum_j \eta_{jsi} T_j(x_{is})\Bigr]
        + r \sum_{(j, \ell) \ne (1, 1)} \ell \lambda_j \sum_S |c_S|

    ``singles`` keeps the coefficients of all tuples and refits the terms of single columns, one column at a time, with
    r = 1. ``all`` refits every term of the model under a share r of the regressions' penalties, the members of a tuple
    sharing its coefficient. Both problems are convex and solved by proximal Newton steps. Independent columns are among
    the models that ``all`` compares, so that its pseudo-likelihood on the rows is never below theirs.

    Where the law of an optimum has no normalising constant, it is not returned. All coefficients, for ``singles`` those
    of the tuples too, then stop on the straight way to it, from independent columns or from the joined regressions:
    the status is ``shortened``, a warning names the share ``way``, and that share may be next to nothing.

    Args:
        fit: whose structure, penalties and tolerance are used; ``fit`` itself stays as it is.
        data: rows to fit, with the columns of ``fit``; in general those it was learned from.
        refit: ``singles`` or ``all``; ``none`` returns the joined regressions.
        settings: ``refit_share``, which is r of ``all``, ``max_iterations`` and ``jobs``; the tolerance is the fit's.

    Returns:
        A result with :attr:`refit` set, its confirmed model refitted too. Tuples whose coefficient becomes zero are
        left out.

    Raises:
        InputError: unknown refit, other columns, values outside the support, a column that is fixed in these rows and
            not in the model, or one that is fixed in the model and has another value in these rows.
        InputTypeError: arguments of the wrong type.
        IntractableError: ``all`` needs more memory than the limit.

    Warns:
        ConvergenceWarning: the largest subgradient is above the tolerance, or the refit was shortened.

    References:
        Holger Höfling and Robert Tibshirani, Estimation of sparse binary pairwise Markov networks using
        pseudo-likelihoods, 2009. Nicolai Meinshausen, Relaxed lasso, 2007.

    Example:
        >>> from pyro_hoim import fit_roots
        >>> x = [[2, 1], [0, 0], [1, 3], [3, 2], [9, 8], [0, 1]]
        >>> fitted = refit_roots(fit_roots(x, order=2), x)
        >>> fitted.refit.pseudo_nll < fitted.refit.joined_pseudo_nll
        True
    """
    check_type(fit, RootFitResult, "fit")
    check_choice(refit, get_args(Refit), "refit")
    settings = replace(checked_settings(settings), tolerance=fit.tolerance)
    rows = fit.rows(data)
    new = [name for name in rows.fixed_columns if name not in fit.fixed_columns]
    if new:
        problem = (
            f"column {new[0]!r} has the value {rows.fixed_columns[new[0]]:g} in all rows, where no finite coefficient "
            "fits best, but is part of the model"
        )
        raise refused("data", problem, code="other-domain")
    for name, value in fit.fixed_columns.items():
        column = rows.column(rows.domain.index(name))
        other = np.flatnonzero(column != value)
        if len(other):
            problem = (
                f"column {name!r} is fixed at {value:g} in the fit, received {column[other[0]]:g} in row {other[0]} "
                f"(from 0; {len(other)} such rows): they are impossible whatever the coefficients. Learn the "
                "regressions from these rows, or leave such rows out"
            )
            raise refused("data", problem, code="impossible")
    found = refit_rows(fit.joined(), rows, refit, settings)
    warn_refits([found], 2)
    if fit.confirmed is None or refit == "none":
        return found
    confirmed = refit_rows(fit.confirmed.joined(), rows, refit, settings)
    warn_refits([confirmed], 2)
    return replace(found, confirmed=confirmed)


def refit_rows(
    fit: RootFitResult,
    rows: RootRows,
    refit: Refit,
    settings: RootSettings,
    begin: Callable[[int], tuple[Floats, int] | None] | None = None,
    advance: Advance | None = None,
) -> RootFitResult:
    """Refit joined regressions on prepared rows of the same columns.

    ``begin`` gives coefficients, so many, and number of steps of an interrupted run of ``all``, if there was one;
    ``advance`` is called with such.
    """
    if refit == "none":
        return fit
    start = time.perf_counter()
    kept = float(settings.refit_share) if refit == "all" else 1.0
    problem = RefitProblem.of(fit, rows, kept)
    alone = problem.independent(settings)
    if refit == "singles":
        end = problem.solve_singles(settings)
    else:
        end = problem.solve_all(settings, alone.values, None if begin is None else begin(len(alone.values)), advance)
    values, way, verdict = problem.normalizable(end.values, alone.values, settings.jobs)
    loss = end.loss if way == 1.0 else problem.loss(values, settings.jobs)
    constant = base_measure(rows, problem.nodes)
    structure, coefficients = problem.structure(values)
    told = RootRefitResult(
        refit,
        kept,
        end.status if way == 1.0 or end.status != "converged" else "shortened",
        way,
        verdict,
        loss + float(problem.l1 @ np.abs(values)) + constant,
        loss + constant,
        problem.loss(problem.joined, settings.jobs) + constant,
        alone.loss + constant,
        end.residual,
        end.num_steps,
        time.perf_counter() - start,
    )
    psi = coefficients / structure.multiplicity
    return replace(fit, structure=structure, psi=psi, refit=told, seconds=fit.seconds + told.seconds)


def warn_refits(fits: Sequence[RootFitResult], stacklevel: int) -> None:
    """Warn of refits whose residual is above the tolerance, and of those that stop short of the optimum."""
    for fit in fits:
        told = fit.refit
        if told is None:
            continue
        penalties = "l1 or refit_share" if told.method == "all" else "l1"
        if not told.is_converged:
            warnings.warn(
                f"the refit of {told.method!r} has not converged (residual {told.kkt_residual:.1e}, "
                f"tolerance {fit.tolerance:.1e}, {told.status}); {advice(told.status, penalties, fit.is_full)}",
                ConvergenceWarning,
                stacklevel=stacklevel + 1,
            )
        if told.way < 1.0:
            other = "" if told.method == "all" else ", or refit 'all'"
            warnings.warn(
                f"the refit of {told.method!r} was shortened: the law of its optimum has no normalising constant, and "
                f"the coefficients go the share way={told.way:.2g} of the distance to it; raise {penalties}{other}",
                ConvergenceWarning,
                stacklevel=stacklevel + 1,
            )
