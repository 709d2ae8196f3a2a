"""Proposals of unconstrained parameters: their shape, and how warm-up scales it."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import optimize
from typing_extensions import override

from ...errors import out_of_reach
from ._program import IntractableProgram, Values

ProposalName = Literal["pseudo-likelihood", "autoregressive", "adaptive"]

_BEST = 2.38
_TARGET = 0.234
_DECAY = 0.6
_GAIN = 2.0
_HALVES = (4, 3, 2, 1)
_LEAST_STEPS = 8
_MOST_PARAMETERS = 2000
_STEPS = {torch.float64: 1e-4, torch.float32: 1e-2}
_AT_ONCE = 64
_LEAST_SHARE = 1e-8
_FIRST_SCALE = 0.1
_WIDER = 1.1
_MOST_LOG_SCALE = 5.0


class Coordinates:
    """Values of the sites that move as one vector (C, P) of float64, and back."""

    def __init__(self, program: IntractableProgram) -> None:
        self._program = program
        self.size = sum(program.shapes[name].numel() for name in program.moved)

    def flat(self, points: Values) -> torch.Tensor:
        """Vectors of points."""
        parts = [points[name].double().reshape(len(points[name]), -1) for name in self._program.moved]
        return torch.cat(parts, -1)

    def points(self, vectors: torch.Tensor, others: Values) -> Values:
        """Points of vectors, with the sites that do not move as in ``others``."""
        sizes = [self._program.shapes[name].numel() for name in self._program.moved]
        found = dict(others)
        for name, part in zip(self._program.moved, vectors.split(sizes, -1), strict=True):
            shape = (len(vectors), *self._program.shapes[name])
            found[name] = part.reshape(shape).to(self._program.dtypes[name])
        return found


class RandomWalk:
    r"""Steps :math:`s\,(2.38 / \sqrt P)\,L\,\epsilon` with a scale s that warm-up tunes to an acceptance of 0.234.

    Args:
        covariance: :math:`L L^\top`, (P, P).
        warmup_steps: transitions of warm-up; where the covariance is learned from them (Haario, Saksman and Tamminen,
            2001) it is found anew at 1/16, 1/8, ... 1/2 of them, from the draws since the last time. None keeps it.
    """

    def __init__(self, covariance: torch.Tensor, warmup_steps: int | None = None) -> None:
        self._size = len(covariance)
        self._factor = torch.linalg.cholesky(covariance)
        self._learns = [] if warmup_steps is None else sorted({max(_LEAST_STEPS, warmup_steps >> k) for k in _HALVES})
        self._log_scale = math.log(_FIRST_SCALE) if self._learns else 0.0
        self._steps = self._since = 0
        self._kept: list[torch.Tensor] = []

    @property
    def scale(self) -> float:
        """The present scale s."""
        return math.exp(self._log_scale)

    @property
    def _width(self) -> float:
        """Standard deviation of a step in units of the shape."""
        return self.scale * _BEST / math.sqrt(self._size)

    def propose(self, vectors: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Proposals from vectors (C, P), and what their density adds to the log ratio, (C,)."""
        noise = torch.randn(vectors.shape, dtype=torch.float64) @ self._factor.mT
        return vectors + self._width * noise, torch.zeros(len(vectors), dtype=torch.float64)

    def adapt(self, acceptance: float, vectors: torch.Tensor) -> None:
        """Learn from one transition of warm-up: its mean acceptance and where the chains are, (C, P)."""
        self._steps, self._since = self._steps + 1, self._since + 1
        change = (acceptance - _TARGET) * _GAIN / self._since**_DECAY
        self._log_scale = min(self._log_scale + change, _MOST_LOG_SCALE)
        if not self._learns:
            return
        self._kept.append(vectors)
        if self._steps >= self._learns[0]:
            draws = torch.cat(self._kept)
            if len(draws) > self._size:
                self._factor = torch.linalg.cholesky(definite(torch.cov(draws.mT).reshape(self._size, self._size)))
                self._log_scale, self._since = 0.0, 0
            self._kept.clear()
            self._learns.pop(0)


class Autoregression(RandomWalk):
    r"""Steps :math:`m + \sqrt{1 - b^2} (\theta - m) + b L \epsilon` with a width b that warm-up tunes.

    They leave a normal law about the mode m invariant, a little wider than the Laplace approximation, so that the ratio
    is that of the posterior to this law: nearly constant where there are many rows.
    """

    def __init__(self, mode: torch.Tensor, covariance: torch.Tensor) -> None:
        super().__init__(_WIDER**2 * covariance)
        self._mode = mode

    @property
    @override
    def _width(self) -> float:
        return min(super()._width, 1.0)

    @override
    def propose(self, vectors: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        away, width = vectors - self._mode, self._width
        noise = torch.randn(vectors.shape, dtype=torch.float64) @ self._factor.mT
        proposed = math.sqrt(1 - width**2) * away + width * noise
        return self._mode + proposed, self._depth(proposed) - self._depth(away)

    def _depth(self, away: torch.Tensor) -> torch.Tensor:
        """Minus the log density of the law that is left invariant, up to a constant, (C,)."""
        return torch.linalg.solve_triangular(self._factor, away.mT, upper=False).square().sum(0) / 2


def learned_walk(size: int, warmup_steps: int) -> RandomWalk:
    """Steps of equal size in every direction, from which warm-up learns."""
    return RandomWalk(torch.eye(size, dtype=torch.float64), warmup_steps)


def laplace(program: IntractableProgram, coordinates: Coordinates, start: Values) -> tuple[torch.Tensor, torch.Tensor]:
    """Mode (P,) of the surrogate posterior from the first of the points ``start``, and inverse curvature (P, P)."""
    if coordinates.size > _MOST_PARAMETERS:
        problem = f"{coordinates.size} parameters, the curvature is found of at most {_MOST_PARAMETERS}"
        raise out_of_reach("proposal", problem, "use proposal='adaptive' (Langevin: preconditioner='none')")
    first = {name: value[:1] for name, value in start.items()}

    def evaluate(vectors: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.enable_grad():
            leaf = vectors.clone().requires_grad_()
            others = {name: value.expand(len(vectors), *value.shape[1:]) for name, value in first.items()}
            value = program.surrogate(coordinates.points(leaf, others))
            (slope,) = torch.autograd.grad(value.sum(), leaf)
        return value.detach(), slope

    def objective(vector: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        value, slope = evaluate(torch.from_numpy(vector).unsqueeze(0))
        if not bool(torch.isfinite(value)) or not bool(torch.isfinite(slope).all()):
            return 1e300, np.zeros_like(vector)
        return -float(value), -slope[0].numpy()

    found = optimize.minimize(objective, coordinates.flat(first)[0].numpy(), jac=True, method="L-BFGS-B")
    mode = torch.from_numpy(np.asarray(found.x, dtype=np.float64))
    step = max(_STEPS.get(program.dtypes[name], 1e-2) for name in program.moved)
    around = step * torch.eye(len(mode), dtype=torch.float64)
    both = torch.cat([mode + around, mode - around])
    up, down = torch.cat([evaluate(part)[1] for part in both.split(_AT_ONCE)]).split(len(mode))
    return mode, _inverse_curvature((down - up) / (2 * step))


def _inverse_curvature(curvature: torch.Tensor) -> torch.Tensor:
    """Inverse of minus a Hessian (P, P) that rounding made uneven, positive definite."""
    curvature = (curvature + curvature.mT) / 2
    if not bool(torch.isfinite(curvature).all()):
        return torch.eye(len(curvature), dtype=torch.float64)
    values, vectors = torch.linalg.eigh(curvature)
    # Where the surrogate is flat or turns up it says nothing of the spread: one is that of unconstrained priors.
    values = torch.where(values > _LEAST_SHARE * values.abs().max().clamp(min=1.0), values, torch.ones_like(values))
    return (vectors / values) @ vectors.mT


def definite(covariance: torch.Tensor) -> torch.Tensor:
    """A covariance with its smallest variances raised so that it has a Cholesky factor."""
    spread = covariance.diagonal().mean().clamp(min=1e-12)
    return covariance + 1e-6 * spread * torch.eye(len(covariance), dtype=torch.float64)
