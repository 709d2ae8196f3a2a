"""Generalized root models from l1-penalised regressions of every node on all others."""

from __future__ import annotations

import hashlib
import json
import os
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import ConvergenceWarning, InputError, InputTypeError, IntractableError, is_whole, size_text
from ...runs.checkpoint import RunFile
from ..nodes.families import NodeFamily, node_family
from ._run import RegressionRun
from ._space import SearchSpace, checked_candidates, checked_l1, clique_candidates, search_space
from .node import NodeSolution, SolverOptions, advice, check_options, checked_jobs
from .refit import SHARE, Refit, checked_refit, checked_share, warn_refits
from .result import RootFit, Symmetrize, checked_symmetrize
from .rows import RootRows, prepare_rows

__all__ = ["fit_root_path", "fit_roots"]

_MOST_WORK = 10**13
_SCANS = 5


def fit_roots(
    data: Any,
    family: str | NodeFamily = "poisson",
    *,
    order: int = 3,
    l1: float | Mapping[int, float] = 0.01,
    names: Sequence[str] | None = None,
    full: bool = False,
    candidates: Iterable[Iterable[str]] | Mapping[int, Iterable[Iterable[str]]] | None = None,
    stagewise: bool = False,
    symmetrize: Symmetrize = "mean",
    refit: Refit = "none",
    refit_share: float = SHARE,
    tolerance: float = 1e-6,
    max_iterations: int = 500,
    max_work: float = _MOST_WORK,
    jobs: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    resume: bool = False,
    progress: bool = False,
) -> RootFit:
    r"""Learn a generalized root model by l1-penalised regressions of every variable on all others.

    .. math:: \min \frac1n \sum_{i=1}^n \Bigl[A(\eta_{si}) - \sum_{j=1}^k \eta_{jsi} T_j(x_{is})\Bigr]
        + \sum_{(j, \ell) \ne (1, 1)} \lambda_j \sum_{S \ni s} |c_S|, \qquad
        \eta_{jsi} = \sum_\ell \sum_{S \ni s} c_S \prod_{t \in S \setminus s} T_j(x_{it})

    for every node s, exactly, by proximal Newton steps on a working set. Every solution is certified: the subgradient
    is scanned over *all* features, also those never visited. The coefficients c of a tuple at its member nodes are
    joined to one of the joint model (``symmetrize``); its tensor entry is c / l!. Penalties act on the coefficients
    themselves, the convention of the published tables. The joined coefficients are no optimum of anything: on few rows,
    or counts that are more spread than the family's law, they can predict worse than independent columns. ``refit``
    maximises the pseudo-likelihood of the joint model anew.

    Counts up to 2^53 are served. A status of ``stalled`` says that rounding or the edge of the family's domain stops
    the line search. Rounding: from counts of 10^12 on two modes of a conditional law swap within one unit of it. The
    edge: a few spread rows of the exponential family under ``full`` drive an intercept to its end 0, beyond which no
    conditional law exists; a larger penalty, or leaving out ``full``, keeps away from it, more steps do not.

    A scan costs the sum over rows of (nonzero entries)^2 / 2, a Newton step one evaluation of the node log partition
    for every row that a feature of the working set touches. Features are never stored as a matrix.

    Args:
        data: (n, d) rows: SciPy sparse matrix, array, tensor, or an object with ``domain`` and ``matrix``.
        family: ``poisson``, ``exponential``, ``gaussian``, or a family object (truncated Poisson needs its maximum).
        order: largest root k; 1 is the independent model.
        l1: penalty, nats per row, from 0; or one for each root order j from 2 to k.
        names: column names.
        full: all keys (j, l) with l <= j, in place of the strongest interactions l = j alone (equation 4).
        candidates: tuples that may be used, of sizes 2 to k. Sizes of which none is given are searched whole, as far
            as size 3; a mapping from sizes to tuples may hold an empty size. Sizes from 4 on that are not given are
            listed in full where that is possible.
        stagewise: fit order 2 first, then search only the cliques of its joint model's pairs, size by size.
        symmetrize: ``mean``, ``and`` or ``or``; see :class:`~pyro_hoim.generalized_root.RootFit`.
        refit: ``none`` (the published convention), ``singles`` (best terms of single columns beside the joined tuples),
            or ``all`` (best coefficients of all terms found, never worse than independent columns on these rows); see
            :func:`~pyro_hoim.generalized_root.refit_roots`.
        refit_share: share of the penalties that the refit of ``all`` keeps, from 0 to 1.
        tolerance: largest KKT residual of a node. Where the mean of feature x root is beyond 10^4 (huge counts), the
            residual is in units of its 10^-4 part.
        max_iterations: most Newton steps of a node.
        max_work: most multiplications that the scans of all nodes may need.
        jobs: nodes at a time, as ``n_jobs`` of :class:`joblib.Parallel`; default one, or what a surrounding
            :func:`joblib.parallel_config` says, which also chooses processes or a Dask cluster in place of threads.
            The result does not depend on it.
        checkpoint: file with the nodes that are done, rewritten about every 30 seconds and when the run is interrupted.
        resume: continue from ``checkpoint`` if that file exists; rows and arguments must be the same.
        progress: show the nodes that are done on standard error.

    Returns:
        :class:`~pyro_hoim.generalized_root.RootFit`.

    Raises:
        InputError: values outside the family's support (the first one is named with its place), a negative penalty,
            arguments out of range, or a checkpoint of another run.
        InputTypeError: arguments of the wrong type.
        IntractableError: more tuples to list, or more work, than the limits allow; the message has the numbers.
        UnknownNameError: an unknown variable in ``candidates``, or an unknown family.

    Warns:
        ConvergenceWarning: a node's residual, or that of the refit, is above the tolerance; its status says why. Or a
            refit was shortened, because the law of its optimum has no normalising constant.

    Randomness:
        None.

    References:
        Paper 2 (generalized root models), section 4, equations (8) to (14). Cho-Jui Hsieh, Inderjit S. Dhillon, Pradeep
        Ravikumar and Matyas A. Sustik, Sparse inverse covariance matrix estimation using quadratic approximation,
        2011. Robert Tibshirani and others, Strong rules for discarding predictors in lasso-type problems, 2012.

    Example:
        >>> fitted = fit_roots([[2, 1], [0, 0], [1, 3], [3, 2]], order=2, l1=0.01, names=["a", "b"])
        >>> fitted.structure.num_terms, bool((fitted.kkt_residual < 1e-6).all())
        (3, True)
    """
    return _fit(
        data, family, order, [l1], names, full, candidates, stagewise, symmetrize, refit, refit_share,
        SolverOptions(tolerance, max_iterations), max_work, jobs, checkpoint, resume, progress,
    )[0]  # fmt: skip


def fit_root_path(
    data: Any,
    l1s: Sequence[float | Mapping[int, float]],
    family: str | NodeFamily = "poisson",
    *,
    order: int = 3,
    names: Sequence[str] | None = None,
    full: bool = False,
    candidates: Iterable[Iterable[str]] | Mapping[int, Iterable[Iterable[str]]] | None = None,
    stagewise: bool = False,
    symmetrize: Symmetrize = "mean",
    refit: Refit = "none",
    refit_share: float = SHARE,
    tolerance: float = 1e-6,
    max_iterations: int = 500,
    max_work: float = _MOST_WORK,
    jobs: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    resume: bool = False,
    progress: bool = False,
) -> tuple[RootFit, ...]:
    """Fits for several penalties, each started from the one before (the strong rule chooses the first features).

    Args:
        data: rows, as :func:`fit_roots` takes them.
        l1s: penalties, or mappings from root orders to penalties, best in falling order.
        family: as in :func:`fit_roots`, like all that follows.
        order: largest root k.
        names: column names.
        full: all keys (j, l).
        candidates: tuples that may be used.
        stagewise: search cliques of pairs only; each penalty then starts afresh.
        symmetrize: how nodes are joined.
        refit: whether the joint models are refitted, each by itself.
        refit_share: share of the penalties kept in the refit.
        tolerance: largest KKT residual.
        max_iterations: most Newton steps of a node and penalty.
        max_work: most multiplications of all scans.
        jobs: nodes at a time.
        checkpoint: file with the nodes that are done.
        resume: continue from it.
        progress: show the nodes that are done.

    Returns:
        One :class:`~pyro_hoim.generalized_root.RootFit` per penalty, in the order given; every one is certified
        by itself, so it equals that of :func:`fit_roots` up to the tolerance.

    Raises:
        InputError, InputTypeError, IntractableError, UnknownNameError: as :func:`fit_roots`, or no penalty.

    Warns:
        ConvergenceWarning: a node's residual, or that of a refit, is above the tolerance, or a refit was shortened.

    Example:
        >>> path = fit_root_path([[2, 1], [0, 0], [1, 3], [3, 2]], [1.0, 0.1, 0.01], order=2)
        >>> [fitted.structure.num_terms for fitted in path]
        [2, 3, 3]
    """
    if isinstance(l1s, str) or not isinstance(l1s, Sequence | np.ndarray):
        raise InputTypeError(f"l1s: expected a sequence of penalties, received {type(l1s).__name__}")
    if len(l1s) == 0:
        raise InputError("l1s: expected at least one penalty, received none")
    return _fit(
        data, family, order, list(l1s), names, full, candidates, stagewise, symmetrize, refit, refit_share,
        SolverOptions(tolerance, max_iterations), max_work, jobs, checkpoint, resume, progress,
    )  # fmt: skip


def _fit(
    data: Any,
    family: str | NodeFamily,
    order: int,
    l1s: Sequence[float | Mapping[int, float]],
    names: Sequence[str] | None,
    full: bool,
    candidates: Any,
    stagewise: bool,
    symmetrize: Symmetrize,
    refit: Refit,
    refit_share: float,
    options: SolverOptions,
    max_work: float,
    jobs: int | None,
    checkpoint: str | os.PathLike[str] | None,
    resume: bool,
    progress: bool,
) -> tuple[RootFit, ...]:
    start = time.perf_counter()
    kind = checked_family(family)
    checked_order(order)
    penalties = [checked_l1(l1, order, "l1" if len(l1s) == 1 else f"l1s[{i}]") for i, l1 in enumerate(l1s)]
    way = checked_symmetrize(symmetrize)
    checked_refit(refit)
    share = checked_share(refit_share)
    check_options(options)
    checked_jobs(jobs)
    if resume and checkpoint is None:
        raise InputError("resume: expected the path of a checkpoint, received none; pass checkpoint=...")
    rows = prepare_rows(data, kind, max(order, 1), names)
    listed = checked_candidates(candidates, rows.domain, order)
    stages = [order] if not stagewise or order < 3 else list(range(2, order + 1))
    count = len(rows.domain)
    spaces = [search_space(count, stages[0], penalty, full, listed) for penalty in penalties[:1]]
    spaces += [spaces[0].with_l1(_key_penalties(spaces[0], penalty)) for penalty in penalties[1:]]
    _check_work(rows, spaces[0], len(penalties), max_work)
    file = None if checkpoint is None else RunFile(checkpoint, resume)
    candidates_text = json.dumps({str(size): tuples.tolist() for size, tuples in sorted(listed.items())})
    settings: dict[str, Any] = {
        "order": order,
        "l1": [{str(j): value for j, value in penalty.items()} for penalty in penalties],
        "full": bool(full),
        "stagewise": bool(stagewise),
        "symmetrize": way if stagewise else None,  # which pairs the next stage builds on
        "tolerance": options.tolerance,
        "max_iterations": options.max_iterations,
        "candidates digest": hashlib.sha256(candidates_text.encode()).hexdigest()[:32],
    }
    run = RegressionRun(rows, options, checked_jobs(jobs), bool(progress), file, settings)
    if len(stages) == 1:
        solved = run.solve("all", spaces)
        by_penalty = [[found[i] for found in solved] for i in range(len(penalties))]
    else:
        by_penalty = [
            _stages(run, stages, penalty, space, full, listed, way, f"{i}")
            for i, (penalty, space) in enumerate(zip(penalties, spaces, strict=True))
        ]
    seconds = time.perf_counter() - start
    fits = [
        RootFit.from_solutions(rows, solutions, penalty, way, options.tolerance, full, seconds)
        for solutions, penalty in zip(by_penalty, penalties, strict=True)
    ]
    _warn(fits)
    if refit != "none":
        fits = [run.refit(fitted, refit, share, f"{i}") for i, fitted in enumerate(fits)]
        warn_refits(fits, 3)
    return tuple(fits)


def _stages(
    run: RegressionRun,
    stages: Sequence[int],
    penalty: Mapping[int, float],
    space: SearchSpace,
    full: bool,
    listed: Mapping[int, NDArray[np.int64]],
    symmetrize: Symmetrize,
    name: str,
) -> list[NodeSolution]:
    """Fit order 2, then add the cliques of its pairs, size by size."""
    rows = run.rows
    solutions = [found[0] for found in run.solve(f"{name}.{stages[0]}", [space])]
    for order in stages[1:]:
        fitted = RootFit.from_solutions(rows, solutions, penalty, symmetrize, run.options.tolerance, full, 0.0)
        pairs = [rows.domain.indices(term.names) for term in fitted.terms() if term.key[1] == 2]
        graph = np.array(sorted(set(pairs)), dtype=np.int64).reshape(-1, 2)
        lists = {size: listed.get(size, clique_candidates(graph, size)) for size in range(3, order + 1)}
        if 2 in listed:
            lists[2] = listed[2]
        larger = search_space(len(rows.domain), order, penalty, full, lists)
        solutions = [found[0] for found in run.solve(f"{name}.{order}", [larger], solutions)]
    return solutions


def checked_family(family: Any) -> NodeFamily:
    """A node family, or one by its name."""
    if isinstance(family, NodeFamily):
        return family
    if not isinstance(family, str):
        raise InputTypeError(f"family: expected a name or a node family, received {type(family).__name__}")
    return node_family(family)


def checked_order(order: Any) -> None:
    """Raise unless the order is a whole number from 1."""
    if not is_whole(order):
        raise InputTypeError(f"order: expected a whole number, received {order!r}")
    if order < 1:
        raise InputError(f"order: expected a whole number from 1, received {order}")


def _key_penalties(space: SearchSpace, penalty: Mapping[int, float]) -> list[float]:
    return [0.0 if key == (1, 1) else penalty[key[0]] for key in space.keys]


def _check_work(rows: RootRows, space: SearchSpace, num_penalties: int, limit: float) -> None:
    """Refuse scans that would not come to an end."""
    scanned = sum(size == 3 and 3 not in space.listed for _, size in space.keys)
    work = rows.pair_work * scanned
    for size, tuples in space.listed.items():
        mean = float(rows.entries_per_column.mean())
        work += int(len(tuples) * size / len(rows.domain) * mean) * sum(s == size for _, s in space.keys)
    total = work * len(rows.domain) * _SCANS * num_penalties
    if total > limit:
        raise IntractableError(
            f"order: scans of all tuples of {len(rows.domain)} columns and {rows.num_rows} rows would take "
            f"{size_text(total, 'multiplications')}, about {total / 1e9 / 3600:.2g} hours; the limit is "
            f"max_work={limit:.2g}. Give candidates, pass stagewise=True, take fewer columns, or raise max_work"
        )


def _warn(fits: Sequence[RootFit]) -> None:
    for fitted in fits:
        bad = [node for node in fitted.nodes if node.status not in ("converged", "fixed")]
        if bad:
            worst = max(bad, key=lambda node: node.kkt_residual)
            warnings.warn(
                f"{len(bad)} of {len(fitted.nodes)} root regressions have not converged; the worst is "
                f"{worst.variable!r} (residual {worst.kkt_residual:.1e}, tolerance {fitted.tolerance:.1e}, "
                f"{worst.status}); {advice(worst.status, 'l1', fitted.is_full)}",
                ConvergenceWarning,
                stacklevel=4,
            )
