"""The last step of root regressions: which of the sets that they found all rows confirm, each beside the others."""

from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from ...errors import CostWarning, caller_level, check_fraction, check_not_negative, check_type
from ...results.confirmation import Hypotheses, kept_first
from ...structure.hypergraph import Edge
from ._regression import Integers
from ._set_tests import RootSearch, RootSetTester
from ._space import checked_candidates
from .options import Refit, RootSettings, checked_settings
from .refit import refit_rows, warn_refits
from .result import RootConfirmation, RootFitResult
from .rows import RootRows

__all__ = ["confirm_roots", "confirm_rows", "with_confirmed"]

_LEAST_GAIN = 2.0  # nats over all rows
_MOST_SECONDS = 60.0  # of tests that are made by default
_SECONDS = 5e-7  # of a row and two sets of one column, very roughly


def confirm_roots(
    fit: RootFitResult,
    data: Any,
    *,
    false_discovery_rate: float = 0.1,
    least_gain: float = _LEAST_GAIN,
    settings: RootSettings | None = None,
) -> RootFitResult:
    r"""Find which sets of a learned root model all rows confirm, each beside the others.

    .. math:: p(x_s \mid x_{-s}) \propto \exp\Bigl(h_s(x_s) + \sum_j T_j(x_s)
        \sum_{S \ni s} c_S \prod_{t \in S \setminus s} T_j(x_t)\Bigr)

    An l1 penalty that predicts well keeps many sets that are absent. Here the sets that the regressions found are
    tested on all rows. The base measure :math:`h_s` is free, one parameter for every value that the column takes (of
    more than 24 values, for groups of neighbours): columns of any law, overdispersed ones as well, are independent
    under the null. The tail of the sum over rows of the set's product of roots, *conditional on how often each value
    occurs and on the statistics of the other sets and of the subsets of the set*, is a double saddle-point
    approximation, good to the smallest counts. Each member's law gives a p-value, and the largest of them counts, so
    that one member's law alone, where it does not hold, confirms nothing.

    The procedure of Benjamini and Hochberg, with sizes sharing the rate equally, is over all sets of the columns that
    vary, whether they were found or not, or over those of ``settings.candidates`` where every size is listed: this pays
    for the regressions having looked at the same rows. Sets enter, the strongest of their columns first, and leave
    where they are not confirmed beside the others, until nothing changes, as in :func:`~pyro_hoim.log_linear.confirm`.

    Args:
        fit: the model whose sets are tested; with ``symmetrize='mean'`` it proposes more of them than with ``'and'``.
        data: the rows that it was learned from, or others with the same columns.
        false_discovery_rate: share of the kept sets that are absent from the law of the rows, on average at most,
            where p-values are not adversely dependent; between 0 and 1.
        least_gain: nats over all rows that a kept set must raise the log-likelihood of each member given the rest by.
        settings: ``candidates``, and how a refit is done, where ``fit`` has one.

    Returns:
        The model of the confirmed sets, estimated as ``fit`` was, with :attr:`RootFitResult.confirmation`.

    Raises:
        InputError: numbers out of range, other columns, or values outside the support.
        InputTypeError: arguments of the wrong type.

    Warns:
        ConvergenceWarning: as :func:`~pyro_hoim.generalized_root.refit_roots`.

    References:
        Yoav Benjamini and Yosef Hochberg, Controlling the false discovery rate, 1995; Ib Skovgaard, Saddlepoint
        expansions for conditional distributions, 1987; Zhuoran Yang, Yang Ning and Han Liu, On semiparametric
        exponential family graphical models, 2018 (the free base measure).

    Example:
        >>> import numpy as np
        >>> from pyro_hoim import fit_roots
        >>> x = np.random.default_rng(0).poisson(1.0, (300, 3))
        >>> x[:, 1] += x[:, 0]
        >>> found = fit_roots(x, order=2)
        >>> found.num_interactions, confirm_roots(found, x).num_interactions
        (2, 1)
    """
    # The door; the tolerance is that of the fit.
    check_type(fit, RootFitResult, "fit")
    check_fraction(false_discovery_rate, "false_discovery_rate")
    check_not_negative(least_gain, "least_gain")
    settings = replace(checked_settings(settings), tolerance=fit.tolerance, false_discovery_rate=false_discovery_rate)
    rows = fit.rows(data, fit.order)
    listed = checked_candidates(settings.candidates, rows.domain, fit.order)
    confirmed = confirm_rows(fit, rows, listed, settings, least_gain)
    warn_refits([confirmed], 2)
    return confirmed


def with_confirmed(
    fit: RootFitResult, rows: RootRows, listed: Mapping[int, Integers], settings: RootSettings
) -> RootFitResult:
    """A fit with its confirmed model, unless none is asked for or tests would take much longer than the regressions."""
    # Tests take a time that grows with rows and with pairs of sets at a column.
    if settings.false_discovery_rate is None:
        return fit
    degrees = Counter(name for _, names in fit.structure.names if len(names) > 1 for name in names)
    seconds = _SECONDS * rows.num_rows * sum(degree**2 for degree in degrees.values())
    if seconds > _MOST_SECONDS:
        problem = (
            f"the {fit.num_interactions:,} sets that the regressions found were not tested, which would take up to "
            f"{seconds / 60:.2g} minutes or so; call confirm_roots(fit, data), raise l1, or pass "
            "RootSettings(false_discovery_rate=None)"
        )
        warnings.warn(CostWarning(problem), stacklevel=caller_level())
        return fit
    return replace(fit, confirmed=confirm_rows(fit, rows, listed, settings))


def confirm_rows(
    fit: RootFitResult,
    rows: RootRows,
    listed: Mapping[int, Integers],
    settings: RootSettings,
    least_gain: float = _LEAST_GAIN,
) -> RootFitResult:
    """The confirmed model of prepared rows of the same columns, at the rate of the settings.

    Candidates are listed by size, as positions (m, size).
    """
    begin, rate = time.perf_counter(), settings.false_discovery_rate or 0.0
    # Hypotheses: all sets of the columns that vary, or the candidates where those of every size are listed.
    keys: dict[Edge, list[int]] = {}
    for (root, size), names in fit.structure.names:
        if size > 1:
            keys.setdefault(names, []).append(root)
    varying = [name for name in fit.structure.domain.names if name not in rows.constant_columns]
    allowed: list[frozenset[str]] | None = None
    if set(listed) == set(range(2, fit.order + 1)):
        names_of = rows.domain.names
        allowed = [frozenset(names_of[i] for i in positions) for sets in listed.values() for positions in sets]
    hypotheses = Hypotheses(varying, fit.order, allowed, rate)
    # The search among the sets that were found, and the model of those that it keeps.
    proposed = [names for names in keys if names in hypotheses]
    search = RootSearch(RootSetTester(rows, keys, min(1.0, 2 * rate)), hypotheses, least_gain, proposed)
    search.run()
    confirmation = RootConfirmation(kept_first(search.verdict(edge) for edge in proposed), rate)
    method = "none" if fit.refit is None else cast("Refit", fit.refit.method)
    refitted = refit_rows(fit.restricted(search.kept), rows, method, settings)
    return replace(refitted, confirmation=confirmation, seconds=fit.seconds + time.perf_counter() - begin)
