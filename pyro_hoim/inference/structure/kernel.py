r"""Unnormalised log-densities over theta: the kernel whose integral is the evidence or a constant of a prior.

.. math:: k(\theta) = t \cdot \theta - n \log Z(\theta) - \tfrac12 \sum_i \lambda_i (\theta_i - \mu_i)^2 + g(\theta)

with free statistics t of n rows, real or fictive, and g the log-density of a prior that is neither normal nor
conjugate. Without g the kernel is concave. All arrays are float64.

Posterior means of the probabilities of cells are found by Laplace's expansion,

.. math:: E\,p_x \propto p_x \exp\{(x - \mu) \cdot \delta + \tfrac12 h_x\}, \quad
    h_x = (x - \mu)^\top H^{-1} (x - \mu), \quad \delta = -\tfrac12 H^{-1} n \sum_x p_x h_x (x - \mu)

with statistics x of mean :math:`\mu` at the mode and minus the Hessian H there: the mean of theta is shifted from its
mode by delta, and p is curved. What is left out is of the order of n to the power -2.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit

from ...core.partition import PartitionBackend
from ...errors import refused
from ...log_linear.auto import Auto
from ...log_linear.coding import parametrization
from ...log_linear.energy import LogLinearEnergy
from ...log_linear.fitting.design import design_matrix
from ...log_linear.laws.natural_parameters import fisher_information
from ...structure.hypergraph import InteractionHypergraph

Floats = NDArray[Any]

MAX_CELLS = 2**12
"""Most cells of a table that are listed."""
_MAX_ENTRIES = 2**22
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
    return cells <= MAX_CELLS and cells * hypergraph.num_parameters <= _MAX_ENTRIES


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
            logits = self.design @ theta.T  # cells first: NumPy is slow along short last axes
            top = logits.max(0)
            weights = np.exp(logits - top)
            sums = weights.sum(0)
            return top + np.log(sums), (self.design.T @ (weights / sums)).T
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
        # Rows and the normal part, then the prior by automatic differentiation.
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
                information = self._moments(theta)[-1]
            else:
                information = fisher_information(self.hypergraph, torch.from_numpy(theta), self.partition).numpy()
            curvature = curvature + self.total * information
        if self.log_prior is not None:
            hessian = cast(torch.Tensor, torch.autograd.functional.hessian(self.log_prior, torch.from_numpy(theta)))
            curvature = curvature - hessian.detach().numpy()
        return curvature

    def _moments(self, theta: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        """Logits and probabilities of cells at theta (P,), centred statistics (cells, P), and their covariance."""
        logits = self.design @ theta
        probs = np.exp(logits - logits.max())
        probs /= probs.sum()
        centred = self.design - probs @ self.design
        return logits, probs, centred, centred.T @ (probs[:, None] * centred)

    def mean_cells(self, theta: Floats) -> Floats:
        """Means of the probabilities of cells (cells,) under the law of the kernel, whose mode is theta (P,)."""
        logits, probs, centred, information = self._moments(theta)
        solved = np.linalg.solve(self.total * information + np.diag(self.precision), centred.T)
        leverage = (centred * solved.T).sum(1)
        shift = -0.5 * self.total * (solved @ (probs * leverage))
        logits = logits + centred @ shift + 0.5 * leverage
        means = np.exp(logits - logits.max())
        return means / means.sum()

    @cached_property
    def mode(self) -> Mode:
        """The mode, found once by Newton's method; InputError where none is found."""
        # Compiled Newton steps where the table is small and the prior normal.
        theta = self.centre.copy()
        if self.is_dense and self.log_prior is None:
            chosen = np.ones((1, self.size), dtype=bool)
            modes, _, thetas = newton_batch(self, chosen)
            value, theta = float(modes[0]), thetas[0]
            if not math.isnan(value):
                return Mode(theta, value, np.linalg.cholesky(self.curvature(theta)))
            raise self._no_mode("a step found no larger value")
        # Else damped ones: halved until the kernel rises, but near the mode, where rounding hides that.
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
    from ._kernels import newton_modes

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


# Integrals of kernels by draws: a path in the number of rows, and one bridge to a Student law.
#
# For a kernel of n rows with mean statistics s the log-integral C has the derivative
#
# .. math:: \frac{d \log C}{d n} = E_n\big[s \cdot \theta - \log Z(\theta)\big]
#
# and C is nearly that of a normal law for large n. Particles follow n down from there to where it is wanted, and
# quadrature in log n sums the derivative. The expectation has a control of mean zero that follows by parts, :math:`n
# (\theta - m) \cdot (s - \eta(\theta)) + P`: it takes away nearly all variance, because the kernel is quadratic around
# its mode m and linear far away. Particles move by Hamiltonian steps in coordinates in which their own covariance is
# the identity.

_RUNS, _PARTICLES, _CHAINS = 16, 64, 128
"""Independent runs; particles of each on a path, chains of each at a bridge."""
_LEAPFROGS = 6
_NEARLY_NORMAL = 0.8
"""Effective share of normal draws at the largest n."""
_NODES, _WARM, _KEPT = 4.0, 12, 6
"""Nodes of the quadrature per unit of log n; moves at each, and moves after these whose states count."""
_FEWEST_NODES = 4
_BURN_IN, _DRAWS = 60, 30
"""Moves before and with draws of a bridge."""
_FREEDOM = 8.0
_LARGEST_ERROR, _REPEATS = 0.014, 7
"""Standard error above which paths are followed again, and how often at most; nats."""


def anneal(kernel: LogKernel, rng: np.random.Generator) -> tuple[float, float]:
    """Log-integral of a kernel of rows alone (no prior) by the path above, again where its standard error is large.

    Both are returned.

    References:
        Andrew Gelman and Xiao-Li Meng, Simulating normalizing constants: from importance sampling to bridge sampling to
        path sampling, Statistical Science 13, 1998, section 3.
    """
    if not kernel.size:
        return kernel.mode.value, 0.0
    ends = _followed(kernel, rng)
    for _ in range(_REPEATS):
        if _mean_of_runs(ends)[1] <= _LARGEST_ERROR:
            break
        ends = np.concatenate([ends, _followed(kernel, rng)])
    return _mean_of_runs(ends)


def _followed(kernel: LogKernel, rng: np.random.Generator) -> Floats:
    """Estimates of the log-integral by independent runs, (runs,)."""
    particles, constants = _normal_start(kernel, rng)
    # Quadrature of the derivative in the logarithm of the number of rows, from nearly normal down to the kernel.
    largest = particles.kernel.total
    width = math.log(largest / kernel.total)
    places, weights = np.polynomial.legendre.leggauss(max(_FEWEST_NODES, math.ceil(_NODES * width)))
    ends = constants
    for position, weight in zip(places[::-1], weights[::-1], strict=True):
        total = kernel.total * math.exp(0.5 * width * (1 + position))
        particles.follow(kernel.scaled(total))
        ends = ends + 0.5 * width * weight * total * _mean_energy(particles)
    return ends


class _Particles:
    """Particles (runs, particles, P) under a kernel, with the step size that they are moved by."""

    def __init__(self, kernel: LogKernel, theta: Floats, rng: np.random.Generator) -> None:
        self.kernel, self.theta, self.kept, self._rng, self._step = kernel, theta, theta, rng, 0.5
        self._here: tuple[Floats, Floats] | None = None  # values and gradients at theta, where a move has left them
        self.num_leapfrogs = _LEAPFROGS

    def follow(self, kernel: LogKernel) -> None:
        """Go over to a kernel of other rows with the same means; the last states are kept."""
        self.spread(kernel, 2 * math.log(max(self.kernel.total / kernel.total, 1.0)))
        for _ in range(_WARM):
            self.move()
        self.keep(_KEPT)

    def spread(self, kernel: LogKernel, high: float) -> None:
        """The particles, drawn out from the mode, by up to exp(high), until the control of the energy has mean 0."""
        centre, off = kernel.mode.theta, self.theta - kernel.mode.theta
        low = 0.0
        for _ in range(8):
            middle = 0.5 * (low + high)
            moved = math.exp(middle) * off
            _, means = kernel.log_z((centre + moved).reshape(-1, kernel.size))
            slope = means.reshape(moved.shape) - kernel.target / kernel.total
            is_narrow = kernel.total * float((moved * slope).sum(-1).mean()) < kernel.size
            low, high = (middle, high) if is_narrow else (low, middle)
        self.theta, self.kernel, self._here = centre + math.exp(0.5 * (low + high)) * off, kernel, None

    def keep(self, num: int) -> None:
        """Move some times and keep these states, (runs, num x particles, P)."""
        states: list[Floats] = []
        for _ in range(num):
            self.move()
            states.append(self.theta)
        self.kept = np.concatenate(states, 1)

    def move(self) -> None:
        """One Hamiltonian move of every particle, with the covariance of all particles as the inverse mass."""
        flat = np.asfortranarray(self.theta.reshape(-1, self.kernel.size))  # whose long axis NumPy goes along
        scale = np.linalg.cholesky(_covariance(flat))
        momentum = np.asfortranarray(self._rng.standard_normal(flat.shape))
        step = self._step * (0.6 + 0.8 * self._rng.random((len(flat), 1)))
        # Leapfrog steps in coordinates in which the particles are spread alike.
        before = value, gradient = self.kernel.evaluate(flat) if self._here is None else self._here
        start = value - 0.5 * np.square(momentum).sum(1)
        moved, slope = flat, (scale.T @ gradient.T).T
        for _ in range(self.num_leapfrogs):
            momentum = momentum + 0.5 * step * slope
            moved = moved + step * (scale @ momentum.T).T
            value, gradient = self.kernel.evaluate(moved)
            slope = (scale.T @ gradient.T).T
            momentum = momentum + 0.5 * step * slope
        accepted = np.log(self._rng.random(len(flat))) < value - 0.5 * np.square(momentum).sum(1) - start
        self.theta = np.where(accepted[:, None], moved, flat).reshape(self.theta.shape)
        self._here = np.where(accepted, value, before[0]), np.where(accepted[:, None], gradient, before[1])
        # One number for thousands of particles: what each adds to it does not matter for its own law.
        self._step *= 1.1 if accepted.mean() > 0.85 else 0.9


def _mean_energy(particles: _Particles) -> Floats:
    """Expectation (runs,) of log Z - s theta, with the control."""
    kernel, theta = particles.kernel, particles.kept
    log_z, means = (x.reshape(*theta.shape[:-1], -1) for x in kernel.log_z(theta.reshape(-1, kernel.size)))
    centre = kernel.target / kernel.total
    energy = log_z[..., 0] - theta @ centre
    control = kernel.total * ((theta - kernel.mode.theta) * (centre - means)).sum(-1) + kernel.size
    slope = np.mean((energy - energy.mean()) * control) / np.mean(np.square(control))
    return (energy - slope * control).mean(1)


def _mean_of_runs(ends: Floats) -> tuple[float, float]:
    """Mean of independent estimates of a logarithm, and its standard error."""
    return float(ends.mean()), float(ends.std(ddof=1) / math.sqrt(len(ends)))


def _values_of(kernel: LogKernel, theta: Floats) -> Floats:
    """Log kernel of particles (runs, particles, P)."""
    return kernel.evaluate(theta.reshape(-1, kernel.size))[0].reshape(theta.shape[:-1])


def _normal_start(kernel: LogKernel, rng: np.random.Generator) -> tuple[_Particles, Floats]:
    """Particles at so many rows that the kernel is nearly normal, and its log-integral (runs,) there, by a bridge."""
    mode = kernel.mode
    noise = rng.standard_normal((_RUNS, _KEPT * _PARTICLES, kernel.size))
    factor = 1.0
    # More rows until draws of the normal law at the mode weigh nearly the same.
    while True:
        level = kernel.scaled(kernel.total * factor)
        draws = mode.theta + _unwhitened(mode, noise) / math.sqrt(factor)
        gap = partial(_gap_to_normal, level, mode, factor)
        if _effective(gap(draws)) > _NEARLY_NORMAL:
            particles = _Particles(level, draws[:, :_PARTICLES], rng)
            particles.num_leapfrogs = max(_LEAPFROGS, kernel.size // 2)  # shorter ones do not reach long tails
            particles.follow(level)
            return particles, _solve_bridge(gap(particles.kept), gap(draws))
        factor *= 2


def _gap_to_normal(kernel: LogKernel, mode: Mode, factor: float, theta: Floats) -> Floats:
    """Log kernel less the log-density of the normal law at the mode of ``factor`` times fewer rows."""
    whitened = (theta - mode.theta) @ mode.factor * math.sqrt(factor)
    constant = 0.5 * mode.log_det + 0.5 * kernel.size * (math.log(factor) - math.log(2 * math.pi))
    return _values_of(kernel, theta) - constant + 0.5 * np.square(whitened).sum(-1)


def _unwhitened(mode: Mode, noise: Floats) -> Floats:
    """Standard draws (..., P) with the inverse curvature at a mode as their covariance."""
    size = noise.shape[-1]
    return np.linalg.solve(mode.factor.T, noise.reshape(-1, size).T).T.reshape(noise.shape)


def _effective(log_weights: Floats) -> float:
    """Smallest effective share of the particles of a run."""
    weights = np.exp(log_weights - log_weights.max(1, keepdims=True))
    return float((weights.sum(1) ** 2 / np.square(weights).sum(1)).min() / weights.shape[1])


def _covariance(flat: Floats) -> Floats:
    """Covariance (P, P) of draws (R, P)."""
    centred = flat - flat.mean(0)
    return centred.T @ centred / (len(flat) - 1)


def bridge(kernel: LogKernel, rng: np.random.Generator) -> tuple[float, float]:
    r"""Log-integral of a kernel with a prior, and its error, by the optimal bridge from its draws to a Student law.

    .. math:: r = \frac{N_2^{-1} \sum_j q(\tilde\theta_j) / (s_1 q + s_2 r g)}
        {N_1^{-1} \sum_i g(\theta_i) / (s_1 q + s_2 r g)}

    solved by iteration. Chains start at Student draws around the mode; one half of them gives mean and covariance of
    the proposal g, the other enters the estimate, the mean over groups of chains. The standard error is that mean's.

    References:
        Xiao-Li Meng and Wing Hung Wong, Simulating ratios of normalizing constants via a simple identity, Statistica
        Sinica 6, 1996, section 3.
    """
    if not kernel.size:
        return kernel.mode.value, 0.0
    start = kernel.mode.theta + _unwhitened(kernel.mode, _student((2 * _RUNS, _CHAINS, kernel.size), rng))
    particles = _Particles(kernel, start, rng)
    for _ in range(_BURN_IN):
        particles.move()
    particles.keep(_DRAWS)
    # One half of the chains shapes the proposal, the other is bridged to it.
    fitted, draws = particles.kept[:_RUNS].reshape(-1, kernel.size), particles.kept[_RUNS:]
    mean, scale = fitted.mean(0), np.linalg.cholesky(_covariance(fitted))
    proposals = mean + _student(draws.shape, rng) @ scale.T
    gaps = [_values_of(kernel, points) - _log_student(points, mean, scale) for points in (draws, proposals)]
    return _mean_of_runs(_solve_bridge(*gaps))


def _student(shape: tuple[int, ...], rng: np.random.Generator) -> Floats:
    """Standard multivariate Student draws (..., P)."""
    return rng.standard_normal(shape) / np.sqrt(rng.chisquare(_FREEDOM, shape[:-1]) / _FREEDOM)[..., None]


def _log_student(points: Floats, mean: Floats, scale: Floats) -> Floats:
    """Log-density (...) of the Student law with a lower factor of its scale at points (..., P)."""
    size, sums = len(mean), _FREEDOM + len(mean)
    whitened = np.linalg.solve(scale, (points - mean).reshape(-1, size).T)
    squares = np.square(whitened).sum(0).reshape(points.shape[:-1])
    constant = math.lgamma(sums / 2) - math.lgamma(_FREEDOM / 2) - 0.5 * size * math.log(_FREEDOM * math.pi)
    constant -= float(np.log(np.diag(scale)).sum())
    return constant - 0.5 * sums * np.log1p(squares / _FREEDOM)


def _solve_bridge(inside: Floats, outside: Floats) -> Floats:
    """Log ratio (runs,) of the integrals of q and g from log q - log g at draws of q and at draws of g (runs, draws).

    The root of an increasing function of the log ratio r, found by bisection: the logistic function of the gaps, summed
    over both kinds of draws, is the number of draws of q.
    """
    odds = math.log(inside.shape[1] / outside.shape[1])
    both = np.concatenate([inside, outside], 1) + odds
    low, high = both.min(1) - 40.0, both.max(1) + 40.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        is_low = expit(both - middle[:, None]).sum(1) > inside.shape[1]
        low, high = np.where(is_low, middle, low), np.where(is_low, high, middle)
    return 0.5 * (low + high)
