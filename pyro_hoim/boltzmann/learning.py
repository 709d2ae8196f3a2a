"""Machines learned from rows: by exact gradients, contrastive divergence or persistent chains."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, ClassVar, Literal, NamedTuple, get_args

import numpy as np
import torch
from scipy import optimize

from .._modes import plain_mode
from ..checks import checked_floating
from ..core.laws.expansion import list_states
from ..data.frames import DataLike, as_observations
from ..data.observations import Observations
from ..errors import (
    ConvergenceWarning,
    MissingDataError,
    check_choice,
    check_fraction,
    check_not_negative,
    check_positive,
    check_type,
    check_whole,
    conflict,
    none_received,
    other_domain,
    refused,
    wrong_shape,
)
from ..results.fitted import Fitted
from ..runs.arguments import checked_seed
from ..runs.checkpoint import RunOptions, checked_run, follow, packed, unpacked
from ..runs.container import BOLTZMANN, checksum
from .law import BoltzmannMachine, as_machine, sweep_layers
from .structure import MachineStructure, MarginalEnergy, softplus

# How a machine is learned.

LearningMethod = Literal["pcd", "cd", "exact"]


@dataclass(frozen=True)
class LearningOptions:
    r"""Method, step and length of learning.

    ``exact`` climbs the log-likelihood itself by L-BFGS, with log Z by a sum over a layer or an exact backend. ``cd``
    and ``pcd`` add ``rate`` times an estimate of its gradient,

    .. math:: \langle x_i x_j \rangle_\text{data} - \langle x_i x_j \rangle_\text{chains},

    whose first mean is exact in the hidden units and whose second comes from ``steps`` sweeps of block Gibbs: from the
    rows themselves (``cd``, contrastive divergence: biased, and the optimum is another one), or from chains that are
    kept from step to step (``pcd``: biased by as much as the chains lag behind). The paper's plain gradient is ``cd``
    with ``rate=0.1``, ``momentum=0`` and ``decay=0``.

    Args:
        method: "pcd", "cd" or "exact".
        steps: sweeps k between two steps of the gradient.
        rate: of the gradient, per row.
        iterations: steps of the gradient; at most so many of L-BFGS.
        batch_size: rows of a step, drawn with replacement by their counts; None for all rows at once.
        num_chains: chains of "pcd".
        momentum: share of the former step that is added.
        decay: half of it times the sum of squared weights is taken from the mean log-likelihood; biases are free.
        patience: stop when the score of the validation rows has not risen in so many evaluations, and keep the best
            machine; None runs to the end. There are 100 evaluations along the run, of "exact" one in 50 iterations at
            most.
        scale: standard deviation of the weights at the start; biases start at zero, those of visible variables at the
            log odds of their means.

    Raises:
        InputError: an option outside its range.

    References:
        Hinton (2002), Training products of experts; Tieleman (2008), Training restricted Boltzmann machines using
        approximations to the likelihood gradient. Paper 4, section 3.2.

    Example:
        >>> import torch
        >>> from pyro_hoim import Domain, Observations
        >>> rows = Observations.from_table(Domain.from_cardinalities([2, 2]), torch.tensor([[40, 10], [10, 40]]))
        >>> strict = LearningOptions("exact", decay=100.0)  # hardly any weight, so independence
        >>> fit_machine(rows, 1, strict).law.probs.round(decimals=3).tolist()
        [[0.25, 0.25], [0.25, 0.25]]
    """

    method: LearningMethod = "pcd"
    steps: int = 1
    rate: float = 0.1
    iterations: int = 10_000
    batch_size: int | None = 100
    num_chains: int = 100
    momentum: float = 0.0
    decay: float = 0.0
    patience: int | None = None
    scale: float = 0.1

    def __post_init__(self) -> None:
        check_choice(self.method, get_args(LearningMethod), "method")
        for name in ("steps", "iterations", "num_chains"):
            check_whole(getattr(self, name), name)
        for name in ("batch_size", "patience"):
            if getattr(self, name) is not None:
                check_whole(getattr(self, name), name)
        check_positive(self.rate, "rate")
        check_not_negative(self.decay, "decay")
        check_not_negative(self.scale, "scale")
        if self.momentum != 0:
            check_fraction(self.momentum, "momentum")


# Gradients of the mean log-likelihood of a restricted machine, or estimates of them, as flat tensors like theta.

MAX_CELLS = 2**23
"""Most states of the smaller layer times units of the other one that :func:`model_statistics` lists."""


def layer_statistics(model: MarginalEnergy, rows: torch.Tensor, weights: torch.Tensor | None = None) -> torch.Tensor:
    """Means of v, h and v h over rows (N, n), h given v exactly, as theta is ordered; weights (N,) sum to one."""
    hidden = model.hidden_fields(rows).sigmoid()
    share = rows.new_full((len(rows),), 1 / len(rows)) if weights is None else weights
    pairs = (rows * share.unsqueeze(-1)).mT @ hidden
    return torch.cat([share @ rows, share @ hidden, pairs.flatten()])


def contrastive_gradient(
    model: MarginalEnergy,
    rows: torch.Tensor,
    chains: torch.Tensor,
    steps: int,
    generator: torch.Generator,
    weights: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Data means less those of chains after sweeps, and where the chains (M, n) ended.

    ``weights`` (N,) of rows are those of the chains too where these are the rows.
    """
    ends = sweep_layers(chains, (model.visible_bias, model.hidden_bias, model.weights), steps, generator)
    behind = weights if chains is rows else None
    return layer_statistics(model, rows, weights) - layer_statistics(model, ends, behind), ends


def model_statistics(model: MarginalEnergy) -> tuple[torch.Tensor, torch.Tensor]:
    """Log Z of a restricted machine, and means of v, h and v h under it as theta is ordered; both exact."""
    # The smaller layer is listed, the other one summed out.
    b, c, weights = model.visible_bias, model.hidden_bias, model.weights
    is_flipped = len(c) > len(b)
    listed, summed, matrix = (b, c, weights) if is_flipped else (c, b, weights.mT)
    states = _states(len(listed), b.device).to(b.dtype)
    fields = summed + states @ matrix
    scores = states @ listed + softplus(fields).sum(-1)
    shares = scores.softmax(-1)
    means = fields.sigmoid() * shares.unsqueeze(-1)
    first, second, pairs = shares @ states, means.sum(0), states.mT @ means
    parts = (first, second, pairs) if is_flipped else (second, first, pairs.mT)
    return scores.logsumexp(-1), torch.cat([part.flatten() for part in parts])


@lru_cache(maxsize=16)
@plain_mode()
def _states(size: int, device: torch.device) -> torch.Tensor:
    return list_states([2] * size, device)


# Learning in steps, which can be interrupted and continued with the same bits.

_EVALUATIONS = 100
_ROWS = 1000  # of a score along the way
_LAYER = 2**12  # states up to which the score is the log-likelihood
_CLIMB = 50  # iterations of L-BFGS in one piece, which ends with its memory
_TOLERANCE = 1e-6  # of the largest entry of the gradient, nats a row


class Rows(NamedTuple):
    """Distinct rows (N, n) as numbers, and their shares (N,), which sum to one."""

    values: torch.Tensor
    shares: torch.Tensor

    def first(self) -> Rows:
        """The most frequent rows, for a score along the way."""
        best = self.shares.argsort(descending=True, stable=True)[:_ROWS]
        return Rows(self.values[best], self.shares[best] / self.shares[best].sum())


@dataclass
class Progress:
    """How far learning has come: theta, what is remembered between steps, and scores along the way."""

    theta: torch.Tensor
    velocity: torch.Tensor
    chains: torch.Tensor
    best: torch.Tensor
    curve: list[list[float | None]]
    is_converged: bool = False


class LearningJob:
    """A run as :func:`~pyro_hoim.runs.checkpoint.follow` knows it."""

    burn_in = 0

    def __init__(
        self,
        structure: MachineStructure,
        theta: torch.Tensor,
        parts: tuple[Rows, Rows | None],
        options: LearningOptions,
        seed: int,
    ) -> None:
        self.structure, self.options = structure, options
        self._rows, validation = parts
        self._shown = self._rows.first(), None if validation is None else validation.first()
        self._generator = torch.Generator().manual_seed(seed)
        self.done, self.total = 0, options.iterations
        # Scores are taken at a hundred places of the run, and first at the start.
        least = _CLIMB if options.method == "exact" else 1
        self._stride = max(least, -(-options.iterations // _EVALUATIONS))
        chains = torch.zeros(0, structure.num_visible, dtype=theta.dtype)
        if options.method == "pcd":
            chains = self._drawn(options.num_chains)
        self.progress = Progress(theta, torch.zeros_like(theta), chains, theta, [])
        layers = structure.graph.layers
        self.has_likelihood = layers is not None and layers.num_states <= min(_LAYER, BoltzmannMachine.max_layer_states)
        self._note()

    def _drawn(self, number: int) -> torch.Tensor:
        """Rows drawn with replacement by their shares, (number, n)."""
        index = self._rows.shares.multinomial(number, replacement=True, generator=self._generator)
        return self._rows.values[index]

    @torch.no_grad()
    def _score(self, rows: Rows, theta: torch.Tensor) -> float:
        """Mean log-likelihood where log Z costs little, else pseudo-log-likelihood; nats a row."""
        law = BoltzmannMachine(self.structure, theta, validate_args=False)
        scores = law.log_prob(rows.values) if self.has_likelihood else law.log_pseudo_prob(rows.values)
        return float((scores * rows.shares).sum())

    def _note(self) -> None:
        """Keep the scores of this moment, and the machine where it is the best so far."""
        progress = self.progress
        train, validation = (None if rows is None else self._score(rows, progress.theta) for rows in self._shown)
        former = [entry[2] for entry in progress.curve if entry[2] is not None]
        progress.curve.append([self.done, train, validation])
        if self.options.patience is None or validation is None or validation > max(former, default=-np.inf):
            progress.best = progress.theta

    @property
    def is_stale(self) -> bool:
        """Whether the score of the validation rows has stopped rising."""
        values = [entry[2] for entry in self.progress.curve if entry[2] is not None]
        patience = self.options.patience
        return patience is not None and bool(values) and len(values) - 1 - int(np.argmax(values)) >= patience

    def advance(self) -> int:
        """A hundredth of the run."""
        number = min(self._stride, self.total - self.done)
        if self.options.method == "exact":
            self._climb(number)
        else:
            for _ in range(number):
                self._step()
        self.done += number
        self._note()
        is_over = self.progress.is_converged or self.is_stale
        self.done -= number
        return self.total - self.done if is_over else number

    @torch.no_grad()
    def _step(self) -> None:
        """One step along an estimate of the gradient."""
        options, progress = self.options, self.progress
        # Rows of this step, and chains: kept ones, or these rows.
        model = MarginalEnergy(self.structure, progress.theta, validate=False)
        rows, weights = self._rows if options.batch_size is None else (self._drawn(options.batch_size), None)
        chains = progress.chains if options.method == "pcd" else rows
        gradient, ends = contrastive_gradient(model, rows, chains, options.steps, self._generator, weights)
        if options.method == "pcd":
            progress.chains = ends
        # Momentum and decay, which leaves biases free.
        gradient[len(self.structure.names) :] -= options.decay * progress.theta[len(self.structure.names) :]
        progress.velocity = options.momentum * progress.velocity + gradient
        progress.theta = progress.theta + options.rate * progress.velocity
        if not bool(torch.isfinite(progress.theta).all()):
            problem = f"learning diverged, theta is not finite after {self.done} to {self.done + self._stride} steps"
            raise refused("rate", problem, "take a smaller rate or decay", code="not-finite")

    def _climb(self, number: int) -> None:
        """Iterations of L-BFGS on minus the mean log-likelihood."""
        start, decay = len(self.structure.names), self.options.decay

        def value_and_gradient(vector: np.ndarray) -> tuple[float, np.ndarray]:
            theta = torch.from_numpy(vector.copy())
            value, gradient = self._likelihood(theta)
            gradient[start:] -= decay * theta[start:]
            return 0.5 * decay * float(theta[start:].square().sum()) - value, -gradient.numpy()

        bounds: dict[str, Any] = {"maxiter": number, "gtol": _TOLERANCE, "ftol": 0.0, "maxls": 40, "maxcor": 30}
        at = self.progress.theta.numpy()
        optimum = optimize.minimize(value_and_gradient, at, jac=True, method="L-BFGS-B", options=bounds)
        self.progress.theta = torch.from_numpy(np.asarray(optimum.x, dtype=np.float64))
        self.progress.is_converged = float(np.abs(optimum.jac).max(initial=0.0)) <= _TOLERANCE

    def _likelihood(self, theta: torch.Tensor) -> tuple[float, torch.Tensor]:
        """Mean log-likelihood of the rows and its gradient: in closed form of restricted machines, else by autograd."""
        # In closed form where a layer is small, else by differentiating the law.
        rows, structure = self._rows, self.structure
        layers = sorted((structure.num_visible, structure.num_hidden))
        if structure.is_restricted and 2 ** layers[0] * layers[1] <= MAX_CELLS:
            model = MarginalEnergy(structure, theta, validate=False)
            log_z, means = model_statistics(model)
            value = -(model.energy(rows.values, validate=False) * rows.shares).sum() - log_z
            return float(value), layer_statistics(model, rows.values, rows.shares) - means
        theta = theta.clone().requires_grad_()
        law = BoltzmannMachine(structure, theta, validate_args=False)
        value = (law.log_prob(rows.values) * rows.shares).sum()
        return float(value.detach()), torch.autograd.grad(value, theta)[0]

    def state(self) -> dict[str, torch.Tensor]:
        """Everything to continue from."""
        progress = self.progress
        tensors = {name: getattr(progress, name).clone() for name in ("theta", "velocity", "chains", "best")}
        record = {"curve": progress.curve, "is_converged": progress.is_converged}
        return {**tensors, "generator": self._generator.get_state(), "kept": packed(record)}

    def load_state(self, state: Mapping[str, torch.Tensor]) -> None:
        """Continue from :meth:`state`."""
        self._generator.set_state(state["generator"])
        record = unpacked(state["kept"])
        tensors = {name: state[name] for name in ("theta", "velocity", "chains", "best")}
        self.progress = Progress(**tensors, **record)


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
    """

    model_kind: ClassVar[str] = BOLTZMANN

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
    # Rows, structure and method have to fit each other before anything is learned.
    run, seed = checked_run(run), checked_seed(seed)
    data = as_observations(data)
    rows = _checked_rows(data, "data")
    structure = hidden if isinstance(hidden, MachineStructure) else MachineStructure.restricted(data.domain, hidden)
    if structure.domain != data.domain:
        raise other_domain("hidden", "a structure over the variables of the rows")
    check_method(structure, options.method)
    judges = None if validation is None else _checked_rows(validation, "validation", data)
    if options.patience is not None and judges is None:
        raise conflict("patience", "stops by rows of validation, and there are none", "give validation=...")
    # Where learning begins, and the run, which can be taken up from its checkpoint.
    theta = (
        _start(structure, rows, options, seed) if start is None else checked_floating(start, "start").detach().double()
    )
    if theta.shape != (structure.num_parameters,):
        raise wrong_shape("start", (structure.num_parameters,), theta)
    job = LearningJob(structure, theta, (rows, judges), options, seed)
    digests = {"rows digest": checksum(rows._asdict()), "start digest": checksum({"theta": theta})}
    digests["validation rows digest"] = "" if judges is None else checksum(judges._asdict())
    names = {"variables": structure.names, "edges digest": structure.edges}
    seconds = follow(
        job, {**asdict(options), **names, **digests, "seed": seed}, run.file(), run.progress, ("learning", "step")
    )
    # Exact gradients tell whether they have vanished; estimates do not.
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
    # Independent columns are where learning begins, with weights that break the symmetry of hidden units.
    mean = (rows.shares @ rows.values).clamp(1e-3, 1 - 1e-3)
    theta[: structure.num_visible] = mean.logit()
    size = len(structure.names)
    theta[size:] = options.scale * torch.randn(structure.num_parameters - size, generator=generator, dtype=theta.dtype)
    return theta
