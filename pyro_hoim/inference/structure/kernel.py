r"""Unnormalised log-densities over theta: the kernel whose integral is the evidence or a constant of a prior.

.. math:: k(\theta) = t \cdot \theta - n \log Z(\theta) - \tfrac12 \sum_i \lambda_i (\theta_i - \mu_i)^2 + g(\theta)

with free statistics t of n rows, real or fictive, and g the log-density of a prior that is neither normal nor
conjugate. Without g the kernel is concave. All arrays are float64.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from ...core.partition import PartitionBackend
from ...errors import refused
from ...log_linear.auto import Auto
from ...log_linear.coding import parametrization
from ...log_linear.energy import LogLinearEnergy
from ...log_linear.fitting.design import design_matrix
from ...log_linear.laws.natural_parameters import fisher_information
from ...structure.hypergraph import InteractionHypergraph

__all__ = ["LogKernel", "Mode", "is_dense", "newton_batch"]

Floats = NDArray[Any]

_MAX_CELLS, _MAX_ENTRIES = 2**12, 2**22
_MAX_STEPS, _DECREMENT = 200, 1e-12


@dataclass(frozen=True, eq=False)
class Mode:
    """Where a kernel is largest.

    Attributes:
        theta: the place, (P,).
        value: the kernel there.
        factor: lower Cholesky factor of minus the Hessian there, (P, P).
    """

    theta: Floats
    value: float
    factor: Floats

    @property
    def log_det(self) -> float:
        """Log determinant of minus the Hessian."""
        return 2 * float(np.log(np.diag(self.factor)).sum())

    @property
    def log_integral(self) -> float:
        """Laplace's approximation of the log of the integral of the kernel, nats."""
        return self.value + 0.5 * len(self.theta) * math.log(2 * math.pi) - 0.5 * self.log_det


def is_dense(hypergraph: InteractionHypergraph) -> bool:
    """Whether a table is small enough for sums over its cells by one matrix of statistics."""
    cells = hypergraph.domain.num_states
    return cells <= _MAX_CELLS and cells * hypergraph.num_parameters <= _MAX_ENTRIES


class LogKernel:
    """The kernel above: values, gradients, mode.

    Args:
        hypergraph: the interactions.
        target: free statistics t, (P,).
        total: n, from 0.
        precision: of the normal part, (P,); none when None.
        centre: of the normal part, (P,); zero when None.
        log_prior: log-density g of tensors (..., P), twice differentiable; none when None.
        partition: exact backend for tables that are not small; ``Auto()`` when None.
    """

    def __init__(
        self,
        hypergraph: InteractionHypergraph,
        target: Floats,
        total: float,
        *,
        precision: Floats | None = None,
        centre: Floats | None = None,
        log_prior: Callable[[torch.Tensor], torch.Tensor] | None = None,
        partition: PartitionBackend | None = None,
    ) -> None:
        zero = np.zeros(hypergraph.num_parameters)
        self.hypergraph, self.target, self.total = hypergraph, np.asarray(target, dtype=np.float64), float(total)
        self.precision = zero if precision is None else np.asarray(precision, dtype=np.float64)
        self.centre = zero if centre is None else np.asarray(centre, dtype=np.float64)
        self.log_prior = log_prior
        self.partition = Auto() if partition is None else partition
        self.is_dense = is_dense(hypergraph)

    @property
    def size(self) -> int:
        """Number of parameters P."""
        return len(self.target)

    def scaled(self, total: float) -> LogKernel:
        """The kernel of n times as many rows with the same means, t / n; for kernels without a prior."""
        target = self.target * (total / self.total)
        return LogKernel(self.hypergraph, target, total, partition=self.partition)

    def restricted(self, chosen: NDArray[np.bool_]) -> LogKernel:
        """The kernel over some coordinates, the others zero, on the same table."""
        new = copy.copy(self)
        new.__dict__.pop("mode", None)
        new.target, new.precision, new.centre = self.target[chosen], self.precision[chosen], self.centre[chosen]
        new.__dict__["design"] = self.design[:, chosen]
        return new

    @cached_property
    def design(self) -> Floats:
        """Statistics of every cell, (cells, P)."""
        return design_matrix(self.hypergraph)

    def log_z(self, theta: Floats) -> tuple[Floats, Floats]:
        """Log Z (R,) and the means of the statistics (R, P) at theta (R, P)."""
        if self.is_dense:
            logits = theta @ self.design.T
            top = logits.max(1, keepdims=True)
            weights = np.exp(logits - top)
            sums = weights.sum(1, keepdims=True)
            return (top + np.log(sums))[:, 0], (weights / sums) @ self.design
        with torch.no_grad():
            model = LogLinearEnergy.from_theta(self.hypergraph, torch.from_numpy(theta), validate=False)
            value = self.partition.log_partition(model).value
            means = parametrization(self.hypergraph).free_statistics(self.partition.expectations(model))
        return value.numpy(), means.numpy()

    def value(self, theta: Floats) -> float:
        """Value at one theta (P,), without its gradient."""
        if self.is_dense:
            logits = self.design @ theta
            top = logits.max()
            log_z = top + math.log(np.exp(logits - top).sum())
        else:
            model = LogLinearEnergy.from_theta(self.hypergraph, torch.from_numpy(theta), validate=False)
            log_z = float(self.partition.log_partition(model).value)
        off = theta - self.centre
        value = float(theta @ self.target - self.total * log_z - 0.5 * (self.precision @ (off * off)))
        return value if self.log_prior is None else value + float(self.log_prior(torch.from_numpy(theta)))

    def evaluate(self, theta: Floats) -> tuple[Floats, Floats]:
        """Values (R,) and gradients (R, P) at theta (R, P)."""
        log_z, means = self.log_z(theta)
        off = theta - self.centre
        value = theta @ self.target - self.total * log_z - 0.5 * np.square(off) @ self.precision
        gradient = self.target - self.total * means - self.precision * off
        if self.log_prior is not None:
            point = torch.from_numpy(theta).requires_grad_()
            with torch.enable_grad():
                extra = self.log_prior(point)
                (slope,) = torch.autograd.grad(extra.sum(), point)
            value, gradient = value + extra.detach().numpy(), gradient + slope.numpy()
        return value, gradient

    def curvature(self, theta: Floats) -> Floats:
        """Minus the Hessian (P, P) at theta (P,)."""
        curvature = np.diag(self.precision)
        if self.total:
            if self.is_dense:
                logits = self.design @ theta
                probs = np.exp(logits - logits.max())
                probs /= probs.sum()
                centred = self.design - probs @ self.design
                information = centred.T @ (probs[:, None] * centred)
            else:
                information = fisher_information(self.hypergraph, torch.from_numpy(theta), self.partition).numpy()
            curvature = curvature + self.total * information
        if self.log_prior is not None:
            hessian = cast(torch.Tensor, torch.autograd.functional.hessian(self.log_prior, torch.from_numpy(theta)))
            curvature = curvature - hessian.detach().numpy()
        return curvature

    @cached_property
    def mode(self) -> Mode:
        """The mode, found once by Newton's method; InputError where none is found."""
        theta = self.centre.copy()
        if self.is_dense and self.log_prior is None:
            chosen = np.ones((1, self.size), dtype=bool)
            found, _, thetas = newton_batch(self, chosen)
            value, theta = float(found[0]), thetas[0]
            if not math.isnan(value):
                return Mode(theta, value, np.linalg.cholesky(self.curvature(theta)))
            raise self._no_mode("a step found no larger value")
        values, gradients = self.evaluate(theta[None])
        value, gradient = float(values[0]), gradients[0]
        for _ in range(_MAX_STEPS):
            factor = self._factor(theta)
            step = np.linalg.solve(factor.T, np.linalg.solve(factor, gradient))
            slope, share = float(gradient @ step), 1.0
            is_safe = slope <= 1e-11 * (1 + abs(value))
            while share > 1e-12:
                values, gradients = self.evaluate((theta + share * step)[None])
                if is_safe or values[0] >= value + 1e-4 * share * slope:
                    break
                share /= 2
            theta, value, gradient = theta + share * step, float(values[0]), gradients[0]
            if slope <= _DECREMENT:
                return Mode(theta, value, self._factor(theta))
        raise self._no_mode(f"{_MAX_STEPS} steps did not settle")

    def _factor(self, theta: Floats) -> Floats:
        """Cholesky factor of minus the Hessian; damped until there is one where a prior is not log-concave."""
        curvature = self.curvature(theta)
        damping = 0.0
        for _ in range(60):
            try:
                return np.linalg.cholesky(curvature + damping * np.eye(self.size))
            except np.linalg.LinAlgError:
                damping = max(2 * damping, 1e-6 * float(np.abs(np.diag(curvature)).max()))
        raise self._no_mode("the Hessian is not finite")

    def _no_mode(self, why: str) -> Exception:
        problem = f"no mode of the posterior of {self.hypergraph!r} was found: {why}"
        return refused("prior", problem, "take a prior with more weight, or a smaller collection", "impossible")


def newton_batch(kernel: LogKernel, chosen: NDArray[np.bool_]) -> tuple[Floats, Floats, Floats]:
    """Values (M,), Laplace log-integrals (M,) and modes (M, P) of kernels in which only some coordinates are not zero.

    ``chosen`` (M, P) says which, of the coordinates of a dense kernel without g. NaN where no mode was found.
    """
    from ._newton_kernels import newton_modes

    design = np.ascontiguousarray(kernel.design.T)
    theta = np.where(chosen, kernel.centre, 0.0)
    log_det = np.empty(len(chosen))
    values = newton_modes(
        design,
        np.ascontiguousarray(chosen),
        kernel.target,
        kernel.total,
        kernel.precision,
        kernel.centre,
        theta,
        log_det,
    )
    return values, values + 0.5 * chosen.sum(1) * math.log(2 * math.pi) - 0.5 * log_det, theta
