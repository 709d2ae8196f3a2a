"""Solvers of convex fits: Newton, L-BFGS, accelerated proximal gradient and plain gradient descent.

A solver declares what it needs (``needs_hessian``, ``needs_prox``), starts from given parameters and reports every
iterate to a :class:`Monitor`, which may stop it. None of them knows a model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from scipy.linalg import get_lapack_funcs
from scipy.optimize import minimize

from .objectives import Objective

__all__ = ["LBFGS", "SOLVERS", "GradientDescent", "Newton", "Outcome", "ProximalGradient", "Solver"]

(_solve_positive,) = get_lapack_funcs(("posv",), dtype=np.float64)

Report = Callable[[int, np.ndarray, float, float], bool]
"""Called with (iteration, theta, loss without penalty, largest entry of the gradient); True stops the solver."""

Prox = Callable[[np.ndarray, float], np.ndarray]


@dataclass(frozen=True)
class Outcome:
    """Where a solver ended.

    Attributes:
        theta: parameters of the last iterate (num_parameters,).
        loss: mean loss there without penalty, in nats per row.
        gradient_norm: largest absolute entry of the gradient (of the gradient mapping for a proximal solver).
        num_iterations: iterations made.
        status: ``converged``, ``max_iterations``, ``stopped`` (by the report) or ``stalled`` (no further decrease).
    """

    theta: np.ndarray
    loss: float
    gradient_norm: float
    num_iterations: int
    status: str


class Solver(Protocol):
    """Minimises an objective from a start."""

    needs_hessian: bool
    needs_prox: bool

    def solve(
        self,
        objective: Objective,
        start: np.ndarray,
        tolerance: float,
        max_iterations: int,
        report: Report | None = None,
        prox: Prox | None = None,
    ) -> Outcome:
        """Iterate until the gradient is below the tolerance in every entry."""
        ...


def _largest(gradient: np.ndarray) -> float:
    return float(np.abs(gradient).max()) if gradient.size else 0.0


class Newton:
    """Newton's method with the exact Hessian and a backtracking line search; converges quadratically."""

    needs_hessian = True
    needs_prox = False

    def solve(
        self,
        objective: Objective,
        start: np.ndarray,
        tolerance: float,
        max_iterations: int,
        report: Report | None = None,
        prox: Prox | None = None,  # noqa: ARG002
    ) -> Outcome:
        """See :class:`Solver`."""
        theta = start
        value, gradient = objective.evaluate(theta)
        norm = _largest(gradient)
        for iteration in range(max_iterations + 1):
            if iteration and report is not None and report(iteration, theta, objective.loss, norm):
                return Outcome(theta, objective.loss, norm, iteration, "stopped")
            if norm <= tolerance:
                return Outcome(theta, objective.loss, norm, iteration, "converged")
            if iteration == max_iterations:
                break
            hessian = objective.hessian()
            _, direction, info = _solve_positive(hessian, gradient, lower=0)
            if info != 0:  # singular to rounding: the step of least norm
                full = objective.hessian()
                full = np.triu(full) + np.triu(full, 1).T
                direction = np.linalg.lstsq(full, gradient, rcond=1e-12)[0]
            decrease = float(gradient @ direction)
            step, slack = 1.0, 1e-14 * (1 + abs(value))
            for _ in range(40):
                trial = theta - step * direction
                new_value, new_gradient = objective.evaluate(trial)
                if new_value <= value - 1e-4 * step * decrease + slack:
                    break
                step /= 2
            else:
                objective.evaluate(theta)
                return Outcome(theta, objective.loss, norm, iteration, "stalled")
            theta, value, gradient = trial, new_value, new_gradient
            norm = _largest(gradient)
        return Outcome(theta, objective.loss, norm, max_iterations, "max_iterations")


class LBFGS:
    """Limited-memory BFGS (SciPy's), on value and gradient alone.

    Args:
        memory: number of stored corrections.
    """

    needs_hessian = False
    needs_prox = False

    def __init__(self, memory: int = 20) -> None:
        self.memory = memory

    def solve(
        self,
        objective: Objective,
        start: np.ndarray,
        tolerance: float,
        max_iterations: int,
        report: Report | None = None,
        prox: Prox | None = None,  # noqa: ARG002
    ) -> Outcome:
        """See :class:`Solver`."""
        last: dict[str, Any] = {}

        def evaluate(theta: np.ndarray) -> tuple[float, np.ndarray]:
            value, gradient = objective.evaluate(theta)
            last.update(theta=theta.copy(), loss=objective.loss, norm=_largest(gradient))
            return value, gradient

        iteration = 0
        stopped = False

        def callback(intermediate_result: Any) -> None:
            nonlocal iteration, stopped
            iteration += 1
            if report is None:
                return
            theta = np.asarray(intermediate_result.x)
            if not np.array_equal(theta, last["theta"]):
                evaluate(theta)
            if report(iteration, last["theta"], last["loss"], last["norm"]):
                stopped = True
                raise StopIteration

        options = {"maxiter": max_iterations, "maxfun": 20 * max_iterations, "gtol": tolerance, "ftol": 0.0}
        options["maxcor"] = self.memory
        result = minimize(evaluate, start, jac=True, method="L-BFGS-B", callback=callback, options=options)
        theta = np.asarray(result.x)
        if not np.array_equal(theta, last["theta"]):
            evaluate(theta)
        if stopped:
            status = "stopped"
        elif last["norm"] <= tolerance:
            status = "converged"
        else:
            status = "max_iterations" if iteration >= max_iterations else "stalled"
        return Outcome(theta, last["loss"], last["norm"], iteration, status)


class GradientDescent:
    r"""Gradient descent with a fixed step, :math:`\theta \leftarrow \theta - \alpha \nabla f(\theta)`.

    In the free basis this is descent along the purified gradient. It is slow and is here to reproduce published runs;
    a step that is too large makes it diverge, and it does not look.

    Args:
        step: the learning rate alpha.

    References:
        James Enouen and Mahito Sugiyama, A Complete Decomposition of KL Error using Refined Information and Mode
        Interaction Selection, 2024, equation (9) and algorithm 2, where alpha is 0.5.
    """

    needs_hessian = False
    needs_prox = False

    def __init__(self, step: float = 0.5) -> None:
        self.step = step

    def solve(
        self,
        objective: Objective,
        start: np.ndarray,
        tolerance: float,
        max_iterations: int,
        report: Report | None = None,
        prox: Prox | None = None,  # noqa: ARG002
    ) -> Outcome:
        """See :class:`Solver`."""
        theta = start
        _, gradient = objective.evaluate(theta)
        for iteration in range(1, max_iterations + 1):
            theta = theta - self.step * gradient
            _, gradient = objective.evaluate(theta)
            norm = _largest(gradient)
            if report is not None and report(iteration, theta, objective.loss, norm):
                return Outcome(theta, objective.loss, norm, iteration, "stopped")
            if norm <= tolerance:
                return Outcome(theta, objective.loss, norm, iteration, "converged")
        return Outcome(theta, objective.loss, _largest(gradient), max_iterations, "max_iterations")


class ProximalGradient:
    """Accelerated proximal gradient with backtracking and restart, for penalties that are not smooth.

    References:
        Amir Beck and Marc Teboulle, A fast iterative shrinkage-thresholding algorithm, 2009, section 4; Brendan
        O'Donoghue and Emmanuel Candes, Adaptive restart for accelerated gradient schemes, 2015, section 3.2.
    """

    needs_hessian = False
    needs_prox = True

    def solve(
        self,
        objective: Objective,
        start: np.ndarray,
        tolerance: float,
        max_iterations: int,
        report: Report | None = None,
        prox: Prox | None = None,
    ) -> Outcome:
        """See :class:`Solver`; ``prox`` is the proximal map of the penalty per row."""
        assert prox is not None
        shrink = prox
        theta, ahead, momentum, step = start, start, 1.0, 1.0
        norm = float("inf")
        for iteration in range(1, max_iterations + 1):
            value, gradient = objective.evaluate(ahead)
            while True:
                trial = shrink(ahead - step * gradient, step)
                move = trial - ahead
                smooth, _ = objective.evaluate(trial)
                if smooth <= value + float(gradient @ move) + float(move @ move) / (2 * step) + 1e-15 * abs(value):
                    break
                step /= 2
            loss = objective.loss
            norm = _largest(move) / step
            if report is not None and report(iteration, trial, loss, norm):
                return Outcome(trial, loss, norm, iteration, "stopped")
            if norm <= tolerance:
                return Outcome(trial, loss, norm, iteration, "converged")
            if float((ahead - trial) @ (trial - theta)) > 0:
                momentum = 1.0
            following = (1 + (1 + 4 * momentum**2) ** 0.5) / 2
            ahead = trial + (momentum - 1) / following * (trial - theta)
            theta, momentum = trial, following
            step *= 1.1
        objective.evaluate(theta)
        return Outcome(theta, objective.loss, norm, max_iterations, "max_iterations")


SOLVERS: dict[str, type[Newton | LBFGS | ProximalGradient | GradientDescent]] = {
    "newton": Newton,
    "lbfgs": LBFGS,
    "proximal-gradient": ProximalGradient,
    "gradient": GradientDescent,
}
