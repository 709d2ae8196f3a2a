"""Refit of the joint model after root regressions were joined: its pseudo-likelihood is maximised anew."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast, get_args

import joblib
import numpy as np
import torch

from ...core.words import in_python, option
from ...errors import ConvergenceWarning, caller_level, check_choice, check_type, refused
from ..energy import GeneralizedRootEnergy
from ..normalizability.check import check_normalizable
from ..structure import RootStructure
from ._regression import (
    ColumnRegression,
    Floats,
    Groups,
    JointRegression,
    NewtonEnd,
    Point,
    Regression,
    Status,
    base_measure,
    jobs_worth,
    newton,
    statistic,
)
from .node import advice
from .options import Refit, RootSettings, checked_settings
from .result import RootFitResult, RootRefitResult, structure_of
from .rows import JointTerm, RootRows, to_contrasts, to_levels

# What a refit solves: the terms of a joint model, their penalties, and the two convex problems over them.

Advance = Callable[[Floats, int], None]

_HALVINGS = 20


class RefitEnd(NamedTuple):
    """Coefficients of all terms, the pseudo-NLL without the base measure, and how they were found."""

    values: Floats
    loss: float
    residual: float
    num_steps: int
    status: Status


@dataclass(frozen=True, eq=False)
class RefitProblem:
    """Sorted terms of a joint model, units, joined values and penalties (F,), nodes, and places of their terms.

    Values are in the units of the rows, the coefficients times ``units``, and of contrasts in place of indicators;
    ``columns`` are the variables of the model. Where there are categories, penalties are those of groups.
    """

    rows: RootRows
    terms: list[JointTerm]
    units: Floats
    joined: Floats
    l1: Floats
    groups: Groups | None
    columns: list[int]
    nodes: list[int]
    singles: list[list[int]]
    tuples: list[list[int]]

    @classmethod
    def of(cls, fit: RootFitResult, rows: RootRows, share: float) -> RefitProblem:
        """Terms of a fit, and of a full model also every root of every column."""
        # Joined coefficients, by key and columns of the rows.
        columns = [rows.domain.index(name) for name in fit.structure.domain.names]
        values: dict[JointTerm, float] = {}
        for key, where in fit.structure.slices.items():
            sets = fit.structure.rows(key).tolist()
            for positions, value in zip(sets, fit.coefficients[where].tolist(), strict=True):
                term = JointTerm(key, tuple(columns[p] for p in positions))
                values[term] = value * rows.unit(key[0], term.positions)
        values = to_contrasts(rows, values)
        if fit.is_full:
            for node in columns:
                for j in rows.single_roots(node, fit.order)[1:]:
                    values.setdefault(JointTerm((j, 1), (node,)), 0.0)
        for node in columns:
            if rows.has_mean(node):
                values.setdefault(JointTerm((2, 1), (node,)), 0.0)
        # Terms, those of one group behind each other, and which of them hold each node.
        node_of = [rows.nodes[unit] for unit in rows.unit_of.tolist()]
        nodes = list(dict.fromkeys(node_of[s] for s in columns))
        groups_of = {term: (term.key, tuple(sorted(node_of[s] for s in term.positions))) for term in values}
        terms = sorted(values, key=lambda term: (groups_of[term], term.positions))
        singles: dict[int, list[int]] = {node: [] for node in nodes}
        tuples: dict[int, list[int]] = {node: [] for node in nodes}
        for m, term in enumerate(terms):
            for node in groups_of[term][1]:
                (singles if term.key[1] == 1 else tuples)[node].append(m)
        # Their penalties.
        is_free = [rows.is_free(term.key, term.positions) for term in terms]
        l1 = [0.0 if is_free[m] else share * fit.l1[term.key[0]] * term.key[1] for m, term in enumerate(terms)]
        groups = _groups(l1, [groups_of[term] for term in terms]) if rows.categories else None
        joined = np.array([values[term] for term in terms])
        units = np.array([rows.unit(term.key[0], term.positions) for term in terms])
        places = list(singles.values()), list(tuples.values())
        return cls(rows, terms, units, joined, np.array(l1), groups, columns, nodes, *places)

    def penalty(self, values: Floats) -> float:
        """What the coefficients of all terms cost."""
        return float(self.l1 @ np.abs(values)) if self.groups is None else self.groups.cost(values)

    def structure(self, values: Floats) -> tuple[RootStructure, torch.Tensor]:
        """Structure of the nonzero terms, and their coefficients."""
        domain = self.rows.domain
        position = {column: i for i, column in enumerate(self.columns)}
        levels = to_levels(self.rows, dict(zip(self.terms, (values / self.units).tolist(), strict=True)))
        keyed = {JointTerm(key, tuple(position[s] for s in places)): value for (key, places), value in levels.items()}
        return structure_of(domain.project([domain.names[s] for s in self.columns]), keyed)

    def independent(self, settings: RootSettings) -> RefitEnd:
        """Independent columns by maximum likelihood."""
        roots = [[1, 2] if self.rows.has_mean(node) else [1] for node in self.nodes]
        for i, node in enumerate(self.nodes):  # of a category all contrasts
            if node in self.rows.category_of:
                roots[i] = list(range(1, 1 + self.rows.num_statistics(node)))
        rest = list[JointTerm](), np.empty(0), list[Floats]()
        tasks = (
            joblib.delayed(_solve_column)(self.rows, node, some, np.zeros(len(some)), *rest, settings)
            for node, some in zip(self.nodes, roots, strict=True)
        )
        places = [ones[: len(some)] for ones, some in zip(self.singles, roots, strict=True)]
        return self._gathered(np.zeros(len(self.terms)), places, tasks, settings.jobs)

    def solve_singles(self, settings: RootSettings) -> RefitEnd:
        """Best terms of single columns, with the joined coefficients of all tuples."""
        tasks = (
            joblib.delayed(_solve_column)(*self._column(i, self.joined), [self.joined[own]], settings)
            for i, own in enumerate(self.singles)
        )
        return self._gathered(self.joined.copy(), self.singles, tasks, settings.jobs)

    def _column(self, i: int, values: Floats) -> tuple[RootRows, int, list[int], Floats, list[JointTerm], Floats]:
        """Arguments of the regression of the i-th column's own terms, with values for those of its tuples."""
        singles, tuples = self.singles[i], self.tuples[i]
        roots = [statistic(self.rows, self.nodes[i], self.terms[m]) for m in singles]
        return self.rows, self.nodes[i], roots, self.l1[singles], [self.terms[m] for m in tuples], values[tuples]

    def _gathered(
        self, values: Floats, places: Sequence[list[int]], tasks: Iterable[Any], jobs: int | None
    ) -> RefitEnd:
        """Ends of the tasks of all columns as one."""
        # Losses of columns add up; the worst of them says how it ended.
        ends: list[RefitEnd] = self._at_work(jobs, tasks)
        worst: Status = "converged"
        for positions, end in zip(places, ends, strict=True):
            values[positions] = end.values
            worst = end.status if end.status != "converged" else worst
        return RefitEnd(
            values,
            math.fsum(end.loss for end in ends),
            max((end.residual for end in ends), default=0.0),
            max((end.num_steps for end in ends), default=0),
            worst,
        )

    def solve_all(
        self, settings: RootSettings, independent: Floats, begin: tuple[Floats, int] | None, advance: Advance | None
    ) -> RefitEnd:
        """Best coefficients of all terms, from the better one of the joined and the independent ones."""
        if not self.terms:
            return RefitEnd(self.joined, 0.0, 0.0, 0, "converged")
        # An interrupted run goes on where it stood.
        joint = JointRegression(self.rows, self.terms, self.l1, settings.jobs, self.groups)
        starts, before = [self.joined, independent], 0
        if begin is not None:
            starts, before = [begin[0]], begin[1]
        after = None if advance is None else lambda point, steps: advance(point.coefficients, before + steps)
        return _minimum(joint, starts, settings, before, after)

    def _at_work(self, jobs: int | None, tasks: Iterable[Any]) -> list[Any]:
        """Results of tasks, one per column, in their order; a surrounding parallel_config may choose processes."""
        workers = jobs_worth(jobs, self.rows.num_rows * len(self.nodes))
        return cast("list[Any]", joblib.Parallel(n_jobs=workers, prefer="threads")(tasks))

    def loss(self, values: Floats, jobs: int | None) -> float:
        """Pseudo-NLL of some coefficients, without the base measure."""
        tasks = (joblib.delayed(self._column_loss)(i, values) for i in range(len(self.nodes)))
        return math.fsum(self._at_work(jobs, tasks))

    def _column_loss(self, i: int, values: Floats) -> float:
        """Mean minus log conditional law of the i-th column, without the base measure."""
        return ColumnRegression(*self._column(i, values)).loss(values[self.singles[i]])

    def normalizable(self, values: Floats, independent: Floats, jobs: int | None) -> tuple[Floats, float, str]:
        """Coefficients of a law with a constant: these, or a point on the way to them where they have none.

        The way begins at independent columns, or at the joined coefficients where their law has a constant and a lower
        loss. The laws with a constant are a convex set, and the loss is a convex function of the coefficients: none on
        the way is worse than the first. With them come the share of the way and what is known of the constant.
        """
        # The laws with a constant are convex: bisect on the way to the optimum.
        verdict = self._verdict(values)
        if verdict != "disproven":
            return values, 1.0, verdict
        first = independent
        if self._verdict(self.joined) == "proven" and self.loss(self.joined, jobs) < self.loss(independent, jobs):
            first = self.joined
        low, high = 0.0, 1.0
        for _ in range(_HALVINGS):
            middle = 0.5 * (low + high)
            if self._verdict(first + middle * (values - first)) == "proven":
                low = middle
            else:
                high = middle
        return first + low * (values - first), low, "proven"

    def _verdict(self, values: Floats) -> str:
        structure, coefficients = self.structure(values)
        return check_normalizable(
            GeneralizedRootEnergy.from_coefficients(structure, coefficients, self.rows.families.at(self.columns))
        ).verdict


def _groups(l1: Sequence[float], groups_of: Sequence[object]) -> Groups:
    """Groups of terms with the root of their sizes; terms without a penalty are alone."""
    starts, penalties = [0], list[float]()
    for m, penalty in enumerate(l1):
        if m and penalty and groups_of[m] == groups_of[m - 1]:
            starts[-1] = m + 1
        else:
            starts.append(m + 1)
            penalties.append(penalty)
    ends = np.array(starts, dtype=np.int64)
    return Groups(ends, np.array(penalties) * np.sqrt(np.diff(ends)))


def _minimum(
    regression: Regression,
    starts: Sequence[Floats],
    settings: RootSettings,
    before: int = 0,
    advance: Callable[[Point, int], None] | None = None,
) -> RefitEnd:
    """The minimum, from the best start; where none is finite, the first start as it is."""
    # The best start, and Newton's steps if that is finite.
    objectives = [regression.objective(start) for start in starts]
    best = min(range(len(starts)), key=lambda i: objectives[i] if math.isfinite(objectives[i]) else math.inf)
    end = NewtonEnd(regression.point(starts[best]), 0, "stalled")
    if math.isfinite(end.point.objective):
        end = newton(regression, end.point, settings.tolerance, settings.max_iterations - before, advance)
    point = end.point
    loss = point.objective - regression.penalty(point.coefficients)
    residual = float(regression.violations(point).max())
    return RefitEnd(point.coefficients, loss, residual, before + end.num_steps, end.status)


def _solve_column(
    rows: RootRows,
    node: int,
    roots: list[int],
    l1: Floats,
    terms: list[JointTerm],
    coefficients: Floats,
    starts: list[Floats],
    settings: RootSettings,
) -> RefitEnd:
    """Best own terms of a column; the base family's parameter is a start where all conditional laws exist."""
    column = ColumnRegression(rows, node, roots, l1, terms, coefficients)
    base = np.zeros(len(roots))
    alone = rows.start_alone(node, column.linear)
    base[: len(alone)] = alone
    return _minimum(column, [*starts, base], settings)


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
    # Other rows may fix a column that the model has free, or contradict one that it fixes.
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
    # The confirmed model is refitted beside the whole one.
    refitted = refit_rows(fit.joined(), rows, refit, settings)
    warn_refits([refitted])
    if fit.confirmed is None or refit == "none":
        return refitted
    confirmed = refit_rows(fit.confirmed.joined(), rows, refit, settings)
    warn_refits([confirmed])
    return replace(refitted, confirmed=confirmed)


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
    share = float(settings.refit_share) if refit == "all" else 1.0
    problem = RefitProblem.of(fit, rows, share)
    # Independent columns are a start, and what the refit is compared with.
    alone = problem.independent(settings)
    if refit == "singles":
        end = problem.solve_singles(settings)
    else:
        end = problem.solve_all(settings, alone.values, None if begin is None else begin(len(alone.values)), advance)
    # An optimum without a normalising constant is approached as far as there is one.
    values, way, verdict = problem.normalizable(end.values, alone.values, settings.jobs)
    loss = end.loss if way == 1.0 else problem.loss(values, settings.jobs)
    constant = base_measure(rows, problem.nodes)
    structure, coefficients = problem.structure(values)
    record = RootRefitResult(
        refit,
        share,
        end.status if way == 1.0 or end.status != "converged" else "shortened",
        way,
        verdict,
        loss + problem.penalty(values) + constant,
        loss + constant,
        problem.loss(problem.joined, settings.jobs) + constant,
        alone.loss + constant,
        end.residual,
        end.num_steps,
        time.perf_counter() - start,
    )
    psi = coefficients / structure.multiplicity
    seconds = fit.seconds + record.seconds
    return replace(fit, structure=structure, psi=psi, refit=record, seconds=seconds, training=rows.sample)


def warn_refits(fits: Sequence[RootFitResult]) -> None:
    """Warn of refits whose residual is above the tolerance, and of those that stop short of the optimum."""
    for fit in fits:
        record = fit.refit
        if record is None:
            continue
        penalties = option("l1") + in_python(" or refit_share" if record.method == "all" else "")
        if not record.is_converged:
            warnings.warn(
                f"the refit of {record.method!r} has not converged (residual {record.kkt_residual:.1e}, "
                f"tolerance {fit.tolerance:.1e}, {record.status}); {advice(record.status, penalties, fit.is_full)}",
                ConvergenceWarning,
                stacklevel=caller_level(),
            )
        if record.way < 1.0:
            other = "" if record.method == "all" else ", or refit 'all'"
            share = in_python(f"the share way={record.way:.2g}", f"{100 * record.way:.2g} %")
            warnings.warn(
                f"the refit of {record.method!r} was shortened: the law of its optimum has no normalising constant, "
                f"and the coefficients go {share} of the distance to it; "
                f"raise {penalties}{other}",
                ConvergenceWarning,
                stacklevel=caller_level(),
            )
