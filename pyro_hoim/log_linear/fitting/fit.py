"""Fitting a hierarchical log-linear model: choice of objective, penalty and solver, and what comes back."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import numpy as np
import torch

from ...core.partition import PartitionBackend
from ...data.observations import Observations
from ...errors import ConvergenceWarning, NonexistentEstimateWarning, refused, unexpected
from ...structure.hypergraph import InteractionHypergraph
from ..auto import Auto
from ..energy import LogLinearEnergy
from .arguments import check_data, check_options, check_validation, choose_method, starting_point
from .design import MAX_DESIGN_ENTRIES, cell_counts, design_entries
from .existence import check_impossible_counts, check_structural_zeros
from .monitor import Checkpoint, Monitor
from .objectives import DenseLikelihood, Likelihood, Objective, Penalised, WithFictiveRows
from .penalties import Conjugate, Penalty, ProximalPenalty, SmoothPenalty
from .problems import Problem, dense_problem, general_problem, pseudo_problem
from .result import FitResult
from .solvers import SOLVERS, Outcome, Prox

__all__ = ["fit"]

Method = Literal["auto", "newton", "lbfgs", "proximal-gradient", "gradient"]
ObjectiveName = Literal["likelihood", "pseudo-likelihood"]


def fit(
    hypergraph: InteractionHypergraph,
    data: Observations | torch.Tensor,
    *,
    method: Method = "auto",
    objective: ObjectiveName = "likelihood",
    penalty: Penalty | None = None,
    tolerance: float | None = None,
    max_iterations: int | None = None,
    partition: PartitionBackend | None = None,
    validation: Observations | None = None,
    early_stopping: bool = False,
    patience: int = 20,
    structural_zeros: np.ndarray | torch.Tensor | None = None,
    start: torch.Tensor | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    resume: bool = False,
    keep_history: bool = False,
    progress: bool = False,
) -> FitResult:
    r"""Fit theta of a hierarchical log-linear model by (penalised) maximum likelihood or pseudo-likelihood.

    .. math:: \max_\theta \; N \big(\theta \cdot \eta_{\mathrm{data}} - \log Z(\theta)\big) - \mathrm{penalty}(\theta)

    The cost of a step does not depend on N: the data enter through their marginal counts. Small tables use a dense
    design and Newton's method; large ones exact gradients through a partition backend and L-BFGS. Existence of the
    maximum-likelihood estimate is always examined; where it is infinite, the fit is its limit, the extended estimate.
    Ctrl-C ends a fit early: the best iterate so far comes back with the status ``interrupted``; before the first
    iterate KeyboardInterrupt is raised.

    Args:
        hypergraph: the interaction structure.
        data: complete observations, or flat marginal counts in the layout of ``hypergraph.term_slices``.
        method: ``newton`` (exact Hessian, dense design), ``lbfgs``, ``proximal-gradient`` (penalties that are not
            smooth), ``gradient`` (the paper's fixed step of 0.5) or ``auto``: proximal gradient for penalties that are
            not smooth; Newton for the likelihood when cells times parameters are at most 2^23, parameters at most
            600, no backend was given and the fit does not stop early; else L-BFGS.
        objective: ``likelihood`` or ``pseudo-likelihood`` (which needs observations, and no log Z).
        penalty: added to the negative log-likelihood of all rows, in nats: ``L2``, ``L1``, ``GroupL2``, ``Conjugate``
            (of the likelihood without structural zeros) or ``InteractionRidge``.
        tolerance: largest allowed entry of the gradient per row; default 1e-9 for Newton, 1e-6 otherwise.
        max_iterations: default 100 for Newton, 5,000 otherwise.
        partition: backend for log Z and its gradient; default ``Auto()``, or the dense design when it is small.
        validation: rows whose mean loss is recorded at every iteration.
        early_stopping: stop when the validation loss has not improved for ``patience`` iterations, and return the
            parameters that were best; the status is ``early_stopped`` unless they are those of the last iteration.
        patience: see ``early_stopping``.
        structural_zeros: mask of impossible cells, of the table's shape; small tables only.
        start: free parameters to start from; default zero, or for ``newton`` and ``lbfgs`` on a dense design a weighted
            least-squares fit of the log counts.
        checkpoint: model file in which the parameters are kept, every 30 seconds and on Ctrl-C.
        resume: start from ``checkpoint`` if that file exists.
        keep_history: keep every iterate's losses without validation rows, too.
        progress: show a progress bar on standard error.

    Returns:
        :class:`FitResult`. Its ``status`` says how the fit ended.

    Raises:
        MissingDataError: missing cells in ``data`` or ``validation``.
        InputError: arguments that do not fit together, another domain, no observations.
        InputTypeError: arguments of the wrong type.
        IntractableError: no feasible way to log Z, with the cells needed and the option that raises the budget.

    Warns:
        ConvergenceWarning: the criterion was not met and the fit did not stop early.
        NonexistentEstimateWarning: the estimate is infinite; the offending combinations are named.

    References:
        James Enouen and Mahito Sugiyama, A Complete Decomposition of KL Error using Refined Information and Mode
        Interaction Selection, 2024, section 4.2 and table 4; Yvonne Bishop, Stephen Fienberg and Paul Holland,
        Discrete Multivariate Analysis, 1975, chapter 3.

    Example:
        >>> from pyro_hoim.schema import Domain
        >>> domain = Domain.from_cardinalities({"a": 2, "b": 2})
        >>> data = Observations.from_table(domain, [[30, 10], [20, 40]])
        >>> result = fit(InteractionHypergraph.saturated(domain), data)
        >>> result.status, round(float(result.coefficients("corner")[-1]), 6)  # log(30 * 40 / (10 * 20))
        ('converged', 1.791759)
    """
    check_data(hypergraph, data, "data")
    check_options(objective, tolerance, max_iterations, patience, penalty, partition)
    check_validation(hypergraph, validation, early_stopping)
    is_dense, chosen = choose_method(hypergraph, data, method, objective, penalty, partition, early_stopping)
    possible = _checked_possible(hypergraph, data, structural_zeros, is_dense, penalty, validation)
    if objective == "likelihood" and not is_dense:
        partition = Auto() if partition is None else partition
        partition.plan(hypergraph).check()
    begin = starting_point(hypergraph, start, checkpoint, resume)
    if objective == "pseudo-likelihood":
        assert isinstance(data, Observations)
        problem = pseudo_problem(hypergraph, data, begin, penalty)
    elif is_dense and isinstance(data, Observations):
        problem = dense_problem(hypergraph, data, possible, begin, penalty, early_stopping or chosen == "gradient")
    else:
        problem = general_problem(hypergraph, data, begin, penalty, None if is_dense else partition)
    solver = SOLVERS[chosen]()
    target, prox = _penalised(problem, penalty, solver.needs_prox)
    tolerance = (1e-9 if chosen == "newton" else 1e-6) if tolerance is None else tolerance
    max_iterations = (100 if chosen == "newton" else 5000) if max_iterations is None else max_iterations

    monitor = Monitor(
        train_entropy=_entropy(problem, problem.rows) if keep_history or validation is not None else 0.0,
        validation=None if validation is None else problem.held_out(validation),
        validation_entropy=_entropy(problem, validation),
        patience=patience if early_stopping else None,
        lift=problem.lift if problem.reduced else None,
        checkpoint=None if checkpoint is None else Checkpoint(checkpoint, hypergraph),
        keep_history=keep_history,
        progress=progress,
        max_iterations=max_iterations,
    )
    last = _run(solver.solve, problem, target, tolerance, max_iterations, monitor, prox)
    outcome, best = _kept(problem, target, last, monitor if early_stopping else None)
    _warn(problem, outcome, chosen, tolerance, early_stopping)
    theta = torch.from_numpy(np.ascontiguousarray(problem.limit(problem.lift(outcome.theta))))
    log_likelihood, log_partition = _likelihood(problem, theta, outcome.loss, partition)
    return FitResult(
        hypergraph=hypergraph,
        theta=theta,
        log_likelihood=log_likelihood,
        log_partition=log_partition,
        num_rows=problem.num_rows,
        status=outcome.status,
        num_iterations=outcome.num_iterations,
        gradient_norm=outcome.gradient_norm,
        existence=problem.existence,
        objective=objective,
        method=chosen,
        penalty=penalty,
        partition=partition,
        data=problem.rows,
        margins=problem.margins,
        possible=possible,
        history=tuple(monitor.history),
        best_iteration=best,
        validation_kl=monitor.history[-1 if best is None else best - 1].validation_kl if monitor.history else None,
        _face=problem.face,
        _design=problem.design,
    )


def _checked_possible(
    hypergraph: InteractionHypergraph,
    data: Observations | torch.Tensor,
    structural_zeros: np.ndarray | torch.Tensor | None,
    is_dense: bool,
    penalty: Penalty | None,
    validation: Observations | None,
) -> np.ndarray | None:
    """Mask of the possible cells, if what else was asked for goes together with structural zeros."""
    possible = check_structural_zeros(hypergraph, structural_zeros)
    if possible is None:
        return None
    if isinstance(penalty, Conjugate):
        raise refused("penalty", "Conjugate spreads rows over all cells, received structural_zeros", "use L2")
    if not (is_dense and isinstance(data, Observations)):
        expected = (
            f"observations of a table whose design has at most {MAX_DESIGN_ENTRIES} entries and no partition backend"
        )
        raise unexpected("structural_zeros", expected, hint=f"this one has {design_entries(hypergraph):.4g}")
    if validation is not None:
        check_impossible_counts(cell_counts(validation), possible, "validation")
    return possible


def _penalised(problem: Problem, penalty: Penalty | None, needs_prox: bool) -> tuple[Objective, Prox | None]:
    """The objective with its penalty, and the proximal step of one that is not smooth."""
    target = problem.objective
    if needs_prox:
        assert isinstance(penalty, ProximalPenalty)
        return target, lambda theta, step: penalty.prox(theta, step / problem.num_rows, problem.hypergraph)
    if isinstance(penalty, SmoothPenalty):
        return Penalised(target, penalty, problem.hypergraph, problem.num_rows), None
    if isinstance(penalty, Conjugate):
        assert isinstance(target, DenseLikelihood | Likelihood)
        return WithFictiveRows(target, penalty.num_rows / problem.num_rows), None
    return target, None


def _entropy(problem: Problem, rows: Observations | None) -> float:
    """Entropy of rows; 0 for the pseudo-likelihood and for sufficient statistics."""
    return 0.0 if rows is None or problem.objective.name != "likelihood" else rows.entropy()


def _evaluated(target: Objective, theta: np.ndarray, num_iterations: int, status: str) -> Outcome:
    _, gradient = target.evaluate(theta)
    norm = float(np.abs(gradient).max()) if gradient.size else 0.0
    return Outcome(theta, target.loss, norm, num_iterations, status)


def _kept(problem: Problem, target: Objective, last: Outcome, monitor: Monitor | None) -> tuple[Outcome, int | None]:
    """The outcome at the parameters that are kept; with a monitor that stops early, those of its best iteration."""
    outcome, best = last, None
    if monitor is not None and monitor.best_theta is not None:
        best = monitor.best_iteration
        is_early = last.status == "stopped" or (last.status == "converged" and best != last.num_iterations)
        status = "early_stopped" if is_early else last.status
        outcome = _evaluated(target, problem.lower(monitor.best_theta), last.num_iterations, status)
    if outcome.status == "converged" and problem.is_infinite:
        outcome = replace(outcome, status="infinite")
    return outcome, best


def _run(
    solve: Callable[..., Outcome],
    problem: Problem,
    target: Objective,
    tolerance: float,
    max_iterations: int,
    monitor: Monitor,
    prox: Prox | None,
) -> Outcome:
    """Run the solver; an interrupt ends it with the iterate that is worth keeping, if there is one."""
    try:
        with monitor:
            return solve(target, problem.start, tolerance, max_iterations, monitor, prox)
    except KeyboardInterrupt:
        if monitor.kept is None:
            raise
        return _evaluated(target, problem.lower(monitor.kept), monitor.last_iteration, "interrupted")


def _likelihood(
    problem: Problem, theta: torch.Tensor, loss: float, partition: PartitionBackend | None
) -> tuple[float | None, float | None]:
    """Log-likelihood of all rows and log Z; after a pseudo-likelihood fit only where log Z is within reach."""
    if problem.objective.name == "likelihood":
        return -problem.num_rows * loss, loss + float(theta.numpy() @ problem.free_mean)
    backend = Auto() if partition is None else partition
    if problem.rows is None or not backend.plan(problem.hypergraph).feasible:
        return None, None
    model = LogLinearEnergy.from_theta(problem.hypergraph, theta)
    log_partition = float(backend.log_partition(model).value)
    energy = float(problem.rows.counts @ model.energy(problem.rows.codes))
    return -energy - problem.num_rows * log_partition, log_partition


def _warn(problem: Problem, outcome: Outcome, method: str, tolerance: float, early_stopping: bool) -> None:
    if problem.is_infinite and problem.existence is not None and (outcome.status == "infinite" or not early_stopping):
        warnings.warn(problem.existence.describe(), NonexistentEstimateWarning, stacklevel=3)
    if outcome.status not in ("converged", "infinite", "early_stopped"):
        warnings.warn(
            f"fit: {outcome.status} after {outcome.num_iterations} iterations of {method}, gradient "
            f"{outcome.gradient_norm:.2g} per row, tolerance {tolerance:.2g}; "
            "raise max_iterations or tolerance, or add a penalty",
            ConvergenceWarning,
            stacklevel=3,
        )
