"""Machines learned from rows."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import torch

from ...checks import checked_floating
from ...data.frames import DataLike, as_observations
from ...data.observations import Observations
from ...errors import (
    ConvergenceWarning,
    MissingDataError,
    check_type,
    conflict,
    none_received,
    other_domain,
    wrong_shape,
)
from ...results.fitted import Fitted
from ...runs.arguments import checked_seed
from ...runs.jobs import follow
from ...runs.options import RunOptions, checked_run
from ...runs.seal import checksum
from ..law import BoltzmannMachine
from ..restricted import as_machine
from ..structure import MachineStructure
from .job import LearningJob, Rows
from .options import LearningMethod, LearningOptions

__all__ = ["MachineResult", "check_method", "fit_machine"]


@dataclass(frozen=True, eq=False, repr=False)
class MachineResult(Fitted):
    """A learned machine and how it came about.

    Attributes:
        law: the machine, float64; a :class:`~pyro_hoim.RestrictedBoltzmannMachine` where it is restricted.
        options: how it was learned.
        curve: iteration, score of up to 1,000 of the most frequent training rows, and of the validation rows or None.
        score_name: what the scores are, means a row in nats: ``log-likelihood`` where log Z is a small sum, else
            ``pseudo-log-likelihood``.
        converged: of "exact" whether the gradient vanished, of the others None: nothing tells when they have.
        iterations: steps that were made.
        num_rows: total count of the training rows.
        seconds: of learning, earlier sessions included.

    Example:
        >>> from pyro_hoim import Domain, Observations
        >>> rows = Observations.from_table(Domain.from_cardinalities([2, 2]), torch.tensor([[40, 10], [10, 40]]))
        >>> found = fit_machine(rows, 1, LearningOptions("exact", iterations=200))
        >>> found.score_name, round(found.curve[-1][1], 4)  # 0.8 log 0.4 + 0.2 log 0.1
        ('log-likelihood', -1.1935)
    """

    law: BoltzmannMachine
    options: LearningOptions
    curve: tuple[tuple[int, float, float | None], ...]
    score_name: str
    converged: bool | None
    iterations: int
    num_rows: float
    seconds: float


def fit_machine(
    data: DataLike,
    hidden: int | Sequence[str] | MachineStructure,
    options: LearningOptions | None = None,
    *,
    validation: DataLike | None = None,
    start: torch.Tensor | None = None,
    seed: int = 0,
    run: RunOptions | None = None,
) -> MachineResult:
    r"""Learn a machine with hidden units from rows of binary variables.

    The log-likelihood is not concave where there are hidden units: the result depends on ``seed``, and any method ends
    near one of many optima. "exact" costs one sum over the smaller layer and one pass over the distinct rows for every
    evaluation; "cd" and "pcd" cost O(``batch_size`` n m ``steps``) a step, whatever the size of the machine.

    Args:
        data: rows without missing cells; a tensor becomes one by ``Observations.from_tensor``.
        hidden: units of a restricted machine, by number or names, or a structure of any edges (method "exact" only).
        options: method, step and length; ``LearningOptions()`` when None.
        validation: rows that are scored along the way, and stop the run where ``patience`` says so.
        start: theta (num_parameters,) to begin with; weights near zero when None.
        seed: of weights, rows and chains; from 0 to 2^63 - 1.
        run: checkpoint, continuation and progress bar.

    Raises:
        InputError: no rows, rows that are not binary, of another domain, or fewer units than zero; ``cd`` or ``pcd``
            for edges within a layer; ``patience`` without validation rows; a checkpoint of another run; a
            rate at which theta does not stay finite.
        MissingDataError: missing cells.
        IntractableError: "exact" beyond its budget, with the size.

    Warns:
        ConvergenceWarning: "exact" stopped before its gradient vanished; rows that a machine can fit without end, such
            as a few rows of many variables, send weights to infinity.

    Randomness:
        A generator of its own from ``seed``; the same arguments give the same bits, interrupted or not.

    References:
        Paper 4, section 3.2.

    Example:
        >>> from pyro_hoim import Domain, Observations
        >>> rows = Observations.from_table(Domain.from_cardinalities([2, 2]), torch.tensor([[40, 10], [10, 40]]))
        >>> found = fit_machine(rows, 1, LearningOptions("exact", iterations=200))
        >>> found.converged, found.law.probs.round(decimals=3).tolist()
        (True, [[0.4, 0.1], [0.1, 0.4]])
    """
    options = LearningOptions() if options is None else options
    check_type(options, LearningOptions, "options")
    run, seed = checked_run(run), checked_seed(seed)
    data = as_observations(data)
    rows = _checked_rows(data, "data")
    structure = hidden if isinstance(hidden, MachineStructure) else MachineStructure.restricted(data.domain, hidden)
    if structure.domain != data.domain:
        raise other_domain("hidden", "a structure over the variables of the rows")
    check_method(structure, options.method)
    held = None if validation is None else _checked_rows(validation, "validation", data)
    if options.patience is not None and held is None:
        raise conflict("patience", "stops by rows of validation, and there are none", "give validation=...")
    theta = (
        _start(structure, rows, options, seed) if start is None else checked_floating(start, "start").detach().double()
    )
    if theta.shape != (structure.num_parameters,):
        raise wrong_shape("start", (structure.num_parameters,), theta)
    job = LearningJob(structure, theta, (rows, held), options, seed)
    digests = {"rows digest": checksum(rows._asdict()), "start digest": checksum({"theta": theta})}
    digests["validation rows digest"] = "" if held is None else checksum(held._asdict())
    names = {"variables": structure.names, "edges digest": structure.edges}
    seconds = follow(
        job, {**asdict(options), **names, **digests, "seed": seed}, run.file(), run.progress, ("learning", "step")
    )
    progress = job.progress
    if options.method == "exact" and not progress.is_converged and not job.is_stale:
        problem = f"the gradient has not vanished after {options.iterations} iterations"
        hint = "allow more iterations, or a decay where weights grow without end"
        warnings.warn(ConvergenceWarning(problem, argument="fit_machine", hint=hint), stacklevel=2)
    return MachineResult(
        law=as_machine(structure, progress.best),
        options=options,
        curve=tuple((int(at or 0), float(train or 0.0), score) for at, train, score in progress.curve),
        score_name="log-likelihood" if job.has_likelihood else "pseudo-log-likelihood",
        converged=progress.is_converged if options.method == "exact" else None,
        iterations=int(progress.curve[-1][0] or 0),
        num_rows=data.total_count,
        seconds=seconds,
    )


def _checked_rows(data: DataLike, argument: str, like: Observations | None = None) -> Rows:
    """Distinct rows with shares; refused where there are none, some cells are missing, or the domain differs."""
    data = as_observations(data, domain=None if like is None else like.domain, argument=argument)
    if like is not None and data.domain != like.domain:
        raise other_domain(argument, "the variables of the training rows")
    if data.has_missing:
        problem = f"{data.num_missing_cells} cells are missing, and learning needs complete rows"
        raise MissingDataError(problem, argument=argument, hint="drop_missing() leaves out their rows")
    if not data.total_count > 0:
        raise none_received(argument, "at least one row")
    merged = data.unique()
    return Rows(merged.codes.double(), merged.counts.double() / merged.total_count)


def check_method(structure: MachineStructure, method: LearningMethod) -> None:
    """Refuse a method that a structure is too large for, or has edges for which there is none, before any work."""
    if method == "exact":
        layers = structure.graph.layers
        if layers is None or layers.num_states > BoltzmannMachine.max_layer_states:
            theta = torch.zeros(structure.num_parameters, dtype=torch.float64)
            _ = BoltzmannMachine(structure, theta).log_partition
    elif not structure.is_restricted:
        hint = 'learn it by method="exact"'
        raise conflict("method", f"{method!r} needs a restricted machine, without edges in a layer", hint)


def _start(structure: MachineStructure, rows: Rows, options: LearningOptions, seed: int) -> torch.Tensor:
    """Small random weights, and biases of the visible variables at their log odds, means kept from 0 and 1 by 1e-3."""
    generator = torch.Generator().manual_seed((seed + 1) % 2**63)
    theta = torch.zeros(structure.num_parameters, dtype=torch.float64)
    mean = (rows.shares @ rows.values).clamp(1e-3, 1 - 1e-3)
    theta[: structure.num_visible] = mean.logit()
    size = len(structure.names)
    theta[size:] = options.scale * torch.randn(structure.num_parameters - size, generator=generator, dtype=theta.dtype)
    return theta
