"""Learning in steps, which can be interrupted and continued with the same bits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy import optimize

from ...errors import refused
from ...runs.checkpoint import packed, unpacked
from ..energy import MarginalEnergy
from ..law import BoltzmannMachine
from ..structure import MachineStructure
from .gradient import MAX_CELLS, contrastive_gradient, layer_statistics, model_statistics
from .options import LearningOptions

__all__ = ["LearningJob", "Rows"]

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
    """A run as :func:`~pyro_hoim.runs.jobs.follow` knows it."""

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
        found = law.log_prob(rows.values) if self.has_likelihood else law.log_pseudo_prob(rows.values)
        return float((found * rows.shares).sum())

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
        model = MarginalEnergy(self.structure, progress.theta, validate=False)
        rows, weights = self._rows if options.batch_size is None else (self._drawn(options.batch_size), None)
        chains = progress.chains if options.method == "pcd" else rows
        gradient, ends = contrastive_gradient(model, rows, chains, options.steps, self._generator, weights)
        if options.method == "pcd":
            progress.chains = ends
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
        found = optimize.minimize(value_and_gradient, at, jac=True, method="L-BFGS-B", options=bounds)
        self.progress.theta = torch.from_numpy(np.asarray(found.x, dtype=np.float64))
        self.progress.is_converged = float(np.abs(found.jac).max(initial=0.0)) <= _TOLERANCE

    def _likelihood(self, theta: torch.Tensor) -> tuple[float, torch.Tensor]:
        """Mean log-likelihood of the rows and its gradient: in closed form of restricted machines, else by autograd."""
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
        kept = {"curve": progress.curve, "is_converged": progress.is_converged}
        return {**tensors, "generator": self._generator.get_state(), "kept": packed(kept)}

    def load_state(self, state: Mapping[str, torch.Tensor]) -> None:
        """Continue from :meth:`state`."""
        self._generator.set_state(state["generator"])
        kept = unpacked(state["kept"])
        tensors = {name: state[name] for name in ("theta", "velocity", "chains", "best")}
        self.progress = Progress(**tensors, **kept)
