"""Fitting a hierarchical log-linear model: choice of objective, penalty and solver, and what comes back."""

from __future__ import annotations

import math
import os
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from pyro_hoim.data import Observations
from pyro_hoim.errors import (
    ConvergenceWarning,
    InputError,
    InputTypeError,
    MissingDataError,
    NonexistentEstimateWarning,
    check_finite,
    check_shape,
)
from pyro_hoim.models import LogLinearEnergy, parametrization
from pyro_hoim.partition import Auto, PartitionBackend
from pyro_hoim.structure.hypergraph import InteractionHypergraph

from .design import MAX_DESIGN_ENTRIES, cell_counts, design_entries, design_matrix
from .existence import (
    Face,
    MLEExistence,
    check_impossible_counts,
    check_structural_zeros,
    find_face,
    mle_existence,
)
from .monitor import Checkpoint, Monitor, load_checkpoint
from .objectives import DenseLikelihood, Likelihood, Objective, Penalised, PseudoLikelihood
from .penalties import Penalty, ProximalPenalty, SmoothPenalty
from .result import FitResult
from .solvers import LBFGS, SOLVERS, Newton, Outcome, ProximalGradient

__all__ = ["fit"]

Method = Literal["auto", "newton", "lbfgs", "proximal-gradient"]
ObjectiveName = Literal["likelihood", "pseudo-likelihood"]

_NEWTON_ENTRIES = 2**22
_NEWTON_PARAMETERS = 600
_PUSH = 32.0
"""Forced zeros get at most exp(-32) of the probability together."""


@dataclass
class _Problem:
    """Everything a solver run needs, in the coordinates it works in."""

    objective: Objective
    start: np.ndarray
    existence: MLEExistence | None = None
    face: Face | None = None
    reduced: bool = False
    design: np.ndarray | None = None

    def lift(self, theta: np.ndarray) -> np.ndarray:
        """Free parameters from the solver's coordinates."""
        return self.face.basis @ theta if self.reduced and self.face is not None else theta


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
    Ctrl-C ends a fit early: the best iterate so far comes back with the status ``interrupted``.

    Args:
        hypergraph: the interaction structure.
        data: complete observations, or flat marginal counts in the layout of ``hypergraph.term_slices``.
        method: ``newton`` (exact Hessian, dense design), ``lbfgs``, ``proximal-gradient`` (penalties that are not
            smooth) or ``auto``: proximal gradient for such penalties; Newton for the likelihood when cells times
            parameters are at most 2^22, parameters at most 600, no backend was given and the fit does not stop early;
            else L-BFGS.
        objective: ``likelihood`` or ``pseudo-likelihood`` (which needs observations, and no log Z).
        penalty: added to the negative log-likelihood of all rows, in nats: ``L2``, ``L1`` or ``GroupL2``.
        tolerance: largest allowed entry of the gradient per row; default 1e-9 for Newton, 1e-6 otherwise.
        max_iterations: default 100 for Newton, 5,000 otherwise.
        partition: backend for log Z and its gradient; default ``Auto()``, or the dense design when it is small.
        validation: rows whose mean loss is recorded at every iteration.
        early_stopping: stop when the validation loss has not improved for ``patience`` iterations, and return the
            parameters that were best.
        patience: see ``early_stopping``.
        structural_zeros: mask of impossible cells, of the table's shape; small tables only.
        start: free parameters to start from; default zero, or a weighted least-squares fit of the log counts.
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
        ConvergenceWarning: the criterion was not met.
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
    _check_data(hypergraph, data, "data")
    _check_options(objective, tolerance, max_iterations, patience, penalty)
    if validation is not None:
        if not isinstance(validation, Observations):
            raise InputTypeError(f"validation: expected Observations, received {type(validation).__name__}")
        _check_data(hypergraph, validation, "validation")
    if early_stopping and validation is None:
        raise InputError("early_stopping: expected validation rows, received none; pass validation=...")
    if partition is not None and not isinstance(partition, PartitionBackend):
        raise InputTypeError(f"partition: expected a partition backend, received {type(partition).__name__}")
    is_dense, method = _choose(hypergraph, data, method, objective, penalty, partition, early_stopping)
    possible = check_structural_zeros(hypergraph, structural_zeros)
    if possible is not None and not (is_dense and isinstance(data, Observations)):
        raise InputError(
            f"structural_zeros: expected observations of a table whose design has at most {MAX_DESIGN_ENTRIES} entries "
            f"and no partition backend; this one has {design_entries(hypergraph):.4g}"
        )
    if objective == "likelihood" and not is_dense:
        partition = Auto() if partition is None else partition
        partition.plan(hypergraph).check()
    begin = _start(hypergraph, start, checkpoint, resume)

    rows = data if isinstance(data, Observations) else None
    num_rows = _total(hypergraph, data)
    margins = None
    free_mean = np.empty(0)
    if objective == "likelihood":
        if is_dense and rows is not None:
            problem, free_mean = _dense_problem(hypergraph, rows, num_rows, possible, begin, penalty, early_stopping)
        else:
            margins = data if rows is None else rows.marginal_counts(hypergraph.edges)
            margins = margins.to(torch.float64)
            free_mean = parametrization(hypergraph).free_statistics(margins).numpy() / num_rows
            existence = mle_existence(hypergraph, margins) if penalty is None else None
            zero = np.zeros(hypergraph.num_parameters) if begin is None else begin
            if is_dense:
                design = design_matrix(hypergraph)
                problem = _Problem(DenseLikelihood(design, free_mean), zero, existence, design=design)
            else:
                assert partition is not None
                problem = _Problem(Likelihood(hypergraph, free_mean, partition), zero, existence)
    else:
        assert rows is not None
        zero = np.zeros(hypergraph.num_parameters) if begin is None else begin
        problem = _Problem(PseudoLikelihood(hypergraph, rows), zero)

    target = problem.objective
    if isinstance(penalty, SmoothPenalty) and method != "proximal-gradient":
        target = Penalised(target, penalty, hypergraph, num_rows)
    solver = SOLVERS[method]()
    tolerance = (1e-9 if method == "newton" else 1e-6) if tolerance is None else tolerance
    max_iterations = (100 if method == "newton" else 5000) if max_iterations is None else max_iterations
    prox = None
    if isinstance(penalty, ProximalPenalty) and solver.needs_prox:
        shrink = penalty.prox

        def prox(theta: np.ndarray, step: float) -> np.ndarray:
            return shrink(theta, step / num_rows, hypergraph)

    is_followed = validation is not None or checkpoint is not None or keep_history or progress
    monitor = None
    interrupted = False
    if is_followed or not is_dense:
        monitor = _monitor(
            hypergraph,
            problem,
            objective,
            rows if keep_history or validation is not None else None,
            free_mean,
            validation,
            patience if early_stopping else None,
            checkpoint,
            keep_history,
            progress,
            max_iterations,
        )
        try:
            with monitor:
                outcome = solver.solve(target, problem.start, tolerance, max_iterations, monitor, prox)
        except KeyboardInterrupt:
            interrupted = True
            if monitor.kept is None:
                raise
            outcome = Outcome(monitor.kept, math.nan, math.nan, monitor.last_iteration, "interrupted")
    else:
        outcome = solver.solve(target, problem.start, tolerance, max_iterations, None, prox)
    return _finish(
        hypergraph, problem, target, outcome, monitor, interrupted, early_stopping, free_mean, num_rows, method, objective,
        penalty, partition, rows, margins, possible, tolerance,
    )  # fmt: skip


def _check_data(hypergraph: InteractionHypergraph, data: Observations | torch.Tensor, argument: str) -> None:
    if not isinstance(hypergraph, InteractionHypergraph):
        raise InputTypeError(f"hypergraph: expected an InteractionHypergraph, received {type(hypergraph).__name__}")
    if isinstance(data, Observations):
        if data.domain != hypergraph.domain:
            raise InputError(
                f"{argument}: expected the variables and levels of the hypergraph, {hypergraph.domain.names}, received "
                f"{data.domain.names}; project the data or build the hypergraph on data.domain"
            )
        if data.has_missing:
            raise MissingDataError(
                f"{argument}: {data.num_missing_cells} missing cells; call drop_missing() or missing_as_level(label) first"
            )
        if not data.total_count > 0:
            raise InputError(f"{argument}: expected at least one observation, received a total count of 0")
        return
    if not isinstance(data, torch.Tensor) or not data.is_floating_point():
        received = f"dtype {data.dtype}" if isinstance(data, torch.Tensor) else type(data).__name__
        raise InputTypeError(f"{argument}: expected Observations or a floating-point tensor of marginal counts, received {received}")
    check_shape(data, (hypergraph.num_terms,), argument)
    check_finite(data, argument)
    if data.ndim != 1:
        raise InputError(f"{argument}: expected shape ({hypergraph.num_terms},), received {tuple(data.shape)}")
    if not hypergraph.edges:
        raise InputError(f"{argument}: expected observations, because a model without interactions has no margins")
    if bool((data < 0).any()):
        raise InputError(f"{argument}: expected non-negative marginal counts, received {float(data.min()):g}")
    totals = torch.stack([data[where].sum() for where in hypergraph.term_slices.values()])
    if float(totals.max() - totals.min()) > 1e-8 * float(totals.max()):
        raise InputError(
            f"{argument}: expected every margin to sum to the number of rows, received sums from "
            f"{float(totals.min()):g} to {float(totals.max()):g}"
        )
    if not float(totals.max()) > 0:
        raise InputError(f"{argument}: expected at least one observation, received a total count of 0")


def _check_options(
    objective: str, tolerance: float | None, max_iterations: int | None, patience: int, penalty: Penalty | None
) -> None:
    if objective not in ("likelihood", "pseudo-likelihood"):
        raise InputError(f"objective: expected 'likelihood' or 'pseudo-likelihood', received {objective!r}")
    if tolerance is not None and not 0 < tolerance < math.inf:
        raise InputError(f"tolerance: expected a positive number, received {tolerance!r}")
    for name, value in (("max_iterations", max_iterations), ("patience", patience)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise InputError(f"{name}: expected a whole number from 1, received {value!r}")
    if penalty is not None and not isinstance(penalty, SmoothPenalty | ProximalPenalty):
        raise InputTypeError(f"penalty: expected L2, L1, GroupL2 or None, received {penalty!r}")


def _choose(
    hypergraph: InteractionHypergraph,
    data: Observations | torch.Tensor,
    method: str,
    objective: str,
    penalty: Penalty | None,
    partition: PartitionBackend | None,
    early_stopping: bool,
) -> tuple[bool, str]:
    """Whether a dense design is used, and the method."""
    if method not in ("auto", *SOLVERS):
        names = ", ".join(map(repr, ("auto", *SOLVERS)))
        raise InputError(f"method: expected one of {names}, received {method!r}")
    entries = design_entries(hypergraph)
    is_smooth = penalty is None or isinstance(penalty, SmoothPenalty)
    likelihood = objective == "likelihood"
    if not likelihood and not isinstance(data, Observations):
        raise InputError("objective: the pseudo-likelihood needs observations, received marginal counts")
    small = entries <= _NEWTON_ENTRIES and hypergraph.num_parameters <= _NEWTON_PARAMETERS
    if method == "auto":
        if not is_smooth:
            method = "proximal-gradient"
        elif likelihood and small and partition is None and not early_stopping:
            method = "newton"
        else:
            method = "lbfgs"
    if method == "newton":
        if not likelihood:
            raise InputError("method: 'newton' needs a Hessian, which the pseudo-likelihood does not offer; use 'lbfgs'")
        if partition is not None:
            raise InputError("partition: 'newton' works on a dense design and takes no backend; use method='lbfgs'")
        if entries > MAX_DESIGN_ENTRIES:
            design_matrix(hypergraph)  # raises with the numbers
        if not is_smooth:
            raise InputError(f"penalty: 'newton' needs a smooth penalty, received {penalty!r}; use 'proximal-gradient'")
        return True, method
    if method == "lbfgs" and not is_smooth:
        raise InputError(f"penalty: 'lbfgs' needs a smooth penalty, received {penalty!r}; use 'proximal-gradient'")
    if method == "proximal-gradient" and not isinstance(penalty, ProximalPenalty):
        raise InputError(f"method: 'proximal-gradient' needs a penalty with a proximal map, received {penalty!r}; use 'lbfgs'")
    return likelihood and partition is None and entries <= _NEWTON_ENTRIES, method


def _start(
    hypergraph: InteractionHypergraph,
    start: torch.Tensor | None,
    checkpoint: str | os.PathLike[str] | None,
    resume: bool,
) -> np.ndarray | None:
    if resume and checkpoint is None:
        raise InputError("resume: expected the path of a checkpoint, received none; pass checkpoint=...")
    if checkpoint is not None and not Path(checkpoint).parent.is_dir():
        raise InputError(f"checkpoint: the folder {Path(checkpoint).parent} does not exist; create it first")
    if resume and checkpoint is not None and Path(checkpoint).exists():
        return load_checkpoint(checkpoint, hypergraph)
    if start is None:
        return None
    if not isinstance(start, torch.Tensor) or not start.is_floating_point():
        raise InputTypeError("start: expected a floating-point tensor of free parameters")
    if tuple(start.shape) != (hypergraph.num_parameters,):
        raise InputError(f"start: expected shape ({hypergraph.num_parameters},), received {tuple(start.shape)}")
    check_finite(start, "start")
    return start.detach().to("cpu", torch.float64).numpy().copy()


def _total(hypergraph: InteractionHypergraph, data: Observations | torch.Tensor) -> float:
    if isinstance(data, Observations):
        return data.total_count
    return float(data[next(iter(hypergraph.term_slices.values()))].sum())


def _dense_problem(
    hypergraph: InteractionHypergraph,
    rows: Observations,
    num_rows: float,
    possible: np.ndarray | None,
    begin: np.ndarray | None,
    penalty: Penalty | None,
    early_stopping: bool,
) -> tuple[_Problem, np.ndarray]:
    """Likelihood on a dense design, restricted to the facial set when the estimate is infinite."""
    design = design_matrix(hypergraph)
    counts = cell_counts(rows)
    check_impossible_counts(counts, possible)
    free_mean = counts @ design / num_rows
    existence, face = None, None
    if penalty is None:
        if possible is None and counts.min() > 0:
            existence, face = find_face(hypergraph, design, counts, None, torch.empty(0))
        else:
            margins = rows.marginal_counts(hypergraph.edges)
            existence, face = find_face(hypergraph, design, counts, possible, margins)
    elif possible is not None:
        face = Face(possible, hypergraph.num_parameters, np.eye(hypergraph.num_parameters), np.zeros(design.shape[1]))
    reduced = penalty is None and face is not None and not early_stopping
    if face is not None and (reduced or possible is not None):
        cells = face.cells if reduced else np.asarray(possible)
        used, counts, mean = design[cells], counts[cells], free_mean
        if reduced:
            used, mean = used @ face.basis, free_mean @ face.basis
            begin = None if begin is None else begin @ face.basis
    else:
        used, mean = design, free_mean
    if early_stopping:
        face = None if possible is None else face
        zero = np.zeros(used.shape[1])
        start = zero if begin is None else begin
    else:
        start = _least_squares(used, counts, num_rows) if begin is None else begin
    return _Problem(DenseLikelihood(used, mean), start, existence, face, reduced, design), free_mean


def _least_squares(design: np.ndarray, counts: np.ndarray, num_rows: float) -> np.ndarray:
    """One step of iteratively reweighted least squares from means half-way between the counts and their average."""
    means = (counts + num_rows / len(counts)) / 2
    target = np.log(means) + counts / means
    probs = means / means.sum()
    start = DenseLikelihood(design, probs @ design)
    start.probs, start._mean = probs, start.statistics
    right = (probs * target) @ design - float(probs @ target) * start.statistics
    hessian = start.hessian()
    hessian[np.diag_indices_from(hessian)] += 1e-9
    hessian = np.triu(hessian) + np.triu(hessian, 1).T
    return np.linalg.solve(hessian, right) if len(right) else right


def _monitor(
    hypergraph: InteractionHypergraph,
    problem: _Problem,
    objective: str,
    rows: Observations | None,
    free_mean: np.ndarray,
    validation: Observations | None,
    patience: int | None,
    checkpoint: str | os.PathLike[str] | None,
    keep_history: bool,
    progress: bool,
    max_iterations: int,
) -> Monitor:
    held_out, validation_entropy, train_entropy = None, 0.0, 0.0
    likelihood = objective == "likelihood"
    if rows is not None and likelihood:
        train_entropy = rows.entropy()
    if validation is not None:
        if likelihood:
            margins = validation.marginal_counts(hypergraph.edges)
            other = parametrization(hypergraph).free_statistics(margins).numpy() / validation.total_count
            validation_entropy = validation.entropy()
            difference = free_mean - other

            def held_out(theta: np.ndarray, own_loss: float) -> float:
                return own_loss + float(theta @ difference)

        else:
            held_out = problem.objective.held_out(free_mean, validation)
    return Monitor(
        train_entropy=train_entropy,
        validation=held_out,
        validation_entropy=validation_entropy,
        patience=patience,
        lift=problem.lift if problem.reduced else None,
        checkpoint=None if checkpoint is None else Checkpoint(checkpoint, hypergraph),
        keep_history=keep_history,
        progress=progress,
        max_iterations=max_iterations,
    )


def _finish(
    hypergraph: InteractionHypergraph,
    problem: _Problem,
    target: Objective,
    outcome: Outcome,
    monitor: Monitor | None,
    interrupted: bool,
    early_stopping: bool,
    free_mean: np.ndarray,
    num_rows: float,
    method: str,
    objective: str,
    penalty: Penalty | None,
    partition: PartitionBackend | None,
    rows: Observations | None,
    margins: torch.Tensor | None,
    possible: np.ndarray | None,
    tolerance: float,
) -> FitResult:
    theta, loss, norm, status = outcome.theta, outcome.loss, outcome.gradient_norm, outcome.status
    best_iteration, validation_kl = None, None
    if early_stopping and monitor is not None and monitor.best_theta is not None:
        status = "early_stopped" if status == "stopped" else status
        theta, best_iteration, validation_kl = monitor.best_theta, monitor.best_iteration, monitor.best_validation
    elif monitor is not None and monitor.history and monitor.history[-1].validation_kl is not None:
        validation_kl = monitor.history[-1].validation_kl
    if best_iteration is not None or interrupted:
        inner = theta @ problem.face.basis if interrupted and problem.reduced and problem.face is not None else theta
        _, gradient = target.evaluate(inner)
        loss, norm = target.loss, float(np.abs(gradient).max()) if gradient.size else 0.0
        theta = inner
    theta = problem.lift(theta)
    existence = problem.existence
    is_infinite = existence is not None and existence.exists is False
    if problem.reduced and is_infinite and problem.face is not None and problem.design is not None:
        theta = _pushed(theta, problem.design, problem.face, possible)
    if status == "converged" and is_infinite:
        status = "infinite"
    log_partition: float | None = None
    log_likelihood: float | None = None
    if objective == "likelihood":
        log_partition = loss + float(theta @ free_mean)
        log_likelihood = -num_rows * loss
    else:
        backend = Auto() if partition is None else partition
        if rows is not None and backend.plan(hypergraph).feasible:
            free = torch.from_numpy(theta)
            model = LogLinearEnergy.from_theta(hypergraph, free)
            log_partition = float(backend.log_partition(model).value)
            log_likelihood = -float(rows.counts @ model.energy(rows.codes)) - num_rows * log_partition
    if not early_stopping:
        if is_infinite and existence is not None:
            warnings.warn(existence.describe(), NonexistentEstimateWarning, stacklevel=3)
        if status not in ("converged", "infinite"):
            warnings.warn(
                f"fit: {status} after {outcome.num_iterations} iterations of {method}, gradient {norm:.2g} per row, "
                f"tolerance {tolerance:.2g}; raise max_iterations or tolerance, or add a penalty",
                ConvergenceWarning,
                stacklevel=3,
            )
    return FitResult(
        hypergraph=hypergraph,
        theta=torch.from_numpy(np.ascontiguousarray(theta)),
        log_likelihood=log_likelihood,
        log_partition=log_partition,
        num_rows=num_rows,
        status=status,
        num_iterations=outcome.num_iterations,
        gradient_norm=norm,
        existence=existence,
        objective=objective,
        method=method,
        penalty=penalty,
        partition=partition,
        data=rows,
        margins=margins,
        possible=possible,
        history=() if monitor is None else tuple(monitor.history),
        best_iteration=best_iteration,
        validation_kl=validation_kl,
        _face=problem.face,
        _design=problem.design,
    )


def _pushed(theta: np.ndarray, design: np.ndarray, face: Face, possible: np.ndarray | None) -> np.ndarray:
    """Free parameters moved along the direction of recession until the forced zeros are negligible."""
    logits = design @ theta
    forced = ~face.cells if possible is None else possible & ~face.cells
    if not forced.any():
        return theta
    log_z = float(np.logaddexp.reduce(logits[face.cells]))
    loss = (design @ face.recession) - float((design @ face.recession)[face.cells].mean())
    excess = logits[forced] - log_z + math.log(int(forced.sum())) + _PUSH
    scale = float((excess / np.maximum(-loss[forced], 1e-6)).max())
    return theta + max(scale, 0.0) * face.recession
