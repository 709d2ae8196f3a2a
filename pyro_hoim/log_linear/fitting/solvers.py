"""Solvers of convex fits: Newton, L-BFGS, proximal gradient and gradient descent. None of them knows a model.

A solver goes from a sound point to one whose gradient is small, and reports every iterate, at which it may be stopped.
What it reports with it, its state, is all that it goes on from: a solver that takes up a state makes the same steps.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np
import scipy

from ...errors import check_positive, check_whole

_ARMIJO, _CURVATURE, _ROUNDING = 1e-4, 0.9, 1e-13
_MEMORY, _MAX_TRIALS = 20, 40


@dataclass(frozen=True)
class Stopping:
    """When a fit ends.

    Attributes:
        tolerance: largest entry of the gradient per row at which it is done; None for the default of the method.
        max_iterations: most iterations; None for the default of the method.
        patience: iterations without a better loss of the validation rows after which it ends early; None for the
            default of what is fitted.

    Raises:
        InputError: a tolerance that is not positive and finite, or a number that is no whole number from 1.

    Example:
        >>> from pyro_hoim import Domain, InteractionHypergraph, Observations, fit
        >>> rows = Observations.from_table(Domain.from_cardinalities({"a": 2, "b": 2}), [[30, 10], [20, 40]])
        >>> graph = InteractionHypergraph.saturated(rows.domain)
        >>> fits = [fit(graph, rows, method="lbfgs", stopping=Stopping(tolerance=1e-2**k)) for k in (1, 4)]
        >>> [round(result.gradient_norm, 4) for result in fits]
        [0.0089, 0.0]
    """

    tolerance: float | None = None
    max_iterations: int | None = None
    patience: int | None = None

    def __post_init__(self) -> None:
        checks = {"tolerance": check_positive, "max_iterations": check_whole, "patience": check_whole}
        for name, check in checks.items():
            if getattr(self, name) is not None:
                check(getattr(self, name), name)


@dataclass(frozen=True, eq=False)
class Point:
    """Parameters with the loss there, without and with the penalty, and the gradient of the latter."""

    theta: np.ndarray
    loss: float
    value: float
    gradient: np.ndarray

    @cached_property
    def norm(self) -> float:
        """Largest absolute entry of the gradient."""
        return float(np.abs(self.gradient).max()) if self.gradient.size else 0.0

    @property
    def is_sound(self) -> bool:
        """Whether value and gradient are finite."""
        return math.isfinite(self.value) and math.isfinite(self.norm)


class Outcome(NamedTuple):
    """Where a solver ended; ``norm`` is the largest entry of the gradient, or of the step by a proximal map.

    The status is ``converged``, ``max_iterations``, ``stopped`` by the report, ``stalled`` (no further decrease) or
    ``diverged``.
    """

    point: Point
    norm: float
    num_iterations: int
    status: str
    notes: tuple[str, ...] = ()


Evaluate = Callable[[np.ndarray], Point]

State = Mapping[str, np.ndarray]
"""What a solver goes on from beside the point itself; empty at the start."""

Report = Callable[[int, Point, float, Callable[[], State]], bool]
"""Called with (iteration, point, norm, what makes the state there, also later); True stops the solver."""

_ANEW: State = {}


def kept_shapes(method: str, size: int) -> dict[str, tuple[int | None, ...]]:
    """Shapes of the state of a method for so many parameters; None is any length."""
    extra: dict[str, dict[str, tuple[int | None, ...]]] = {
        "newton": {},
        "lbfgs": {"pairs": (None, 2, size)},
        "proximal-gradient": {"ahead": (size,), "pace": (2,)},
        "gradient": {"best": (size,), "first": ()},
    }
    return {"iteration": (), **extra[method]}


def _state(iteration: int, **others: np.ndarray | float) -> State:
    return {name: np.asarray(value, np.float64) for name, value in {"iteration": iteration, **others}.items()}


def _state_of_pairs(iteration: int, size: int, pairs: Sequence[tuple[np.ndarray, np.ndarray, float]]) -> State:
    """Copies the pairs, which takes as long as a small step."""
    return _state(iteration, pairs=np.array([pair[:2] for pair in pairs]).reshape(-1, 2, size))


Precondition = Callable[[np.ndarray], np.ndarray]
"""Rough inverse Hessian times a vector, symmetric and positive."""

HeldOut = Callable[[np.ndarray, float], float]
"""Mean loss of held-out rows as a function of (parameters, training loss without penalty)."""


class Patience:
    """The best point by the loss of held-out rows, and whether to stop looking for a better one."""

    def __init__(self, held_out: HeldOut, patience: int | None) -> None:
        self._held_out = held_out
        self.limit = patience
        self.value = self.best_value = math.inf
        self.best: Point | None = None
        self.best_iteration = 0

    def __call__(self, iteration: int, point: Point) -> bool:
        """Whether to stop after this iterate."""
        self.value = self._held_out(point.theta, point.loss)
        if self.value < self.best_value or self.best is None:
            self.best_value, self.best, self.best_iteration = self.value, point, iteration
        return self.limit is not None and iteration - self.best_iteration >= self.limit

    def state(self) -> State:
        """What :meth:`take_up` goes on from."""
        assert self.best is not None
        return {"best theta": self.best.theta, "patience": np.array([self.value, self.best_value, self.best_iteration])}

    @staticmethod
    def shapes(size: int) -> dict[str, tuple[int, ...]]:
        """Shapes of the state for so many parameters."""
        return {"best theta": (size,), "patience": (3,)}

    def take_up(self, state: State, evaluate: Evaluate) -> None:
        """Go on from a state."""
        self.value, self.best_value, iteration = map(float, state["patience"])
        self.best, self.best_iteration = evaluate(state["best theta"]), int(iteration)


def newton(
    evaluate: Evaluate,
    start: Point,
    tolerance: float,
    max_iterations: int,
    report: Report,
    hessian: Callable[[], np.ndarray],
    goal: float = math.inf,
    state: State = _ANEW,
) -> Outcome:
    """Newton's method with a backtracking line search; of the Hessian at the last point the upper triangle is read.

    Within the tolerance, full steps go on to a smaller ``goal`` as long as each halves the gradient.
    """
    here, first = start, int(state.get("iteration", 0))
    for iteration in range(first, max_iterations + 1):
        if iteration > first and report(iteration, here, here.norm, partial(_state, iteration)):
            return Outcome(here, here.norm, iteration, "stopped")
        is_near = here.norm <= tolerance
        if here.norm <= min(tolerance, goal) or (is_near and iteration == max_iterations):
            return Outcome(here, here.norm, iteration, "converged")
        if iteration == max_iterations:
            break
        _, direction, info = scipy.linalg.lapack.dposv(hessian(), here.gradient, lower=0)
        if info != 0:  # singular to rounding: the step of least norm
            full = hessian()
            full = np.triu(full) + np.triu(full, 1).T
            direction = np.linalg.lstsq(full, here.gradient, rcond=1e-12)[0]
        if is_near:
            there = evaluate(here.theta - direction)
            if not there.norm <= 0.5 * here.norm:
                return Outcome(here, here.norm, iteration, "converged")
            here = there
            continue
        decrease = float(here.gradient @ direction)
        step, slack = 1.0, 1e-14 * (1 + abs(here.value))
        for _ in range(_MAX_TRIALS):
            there = evaluate(here.theta - step * direction)
            if there.value <= here.value - _ARMIJO * step * decrease + slack:
                break
            step /= 2
        else:
            return Outcome(here, here.norm, iteration, "stalled")
        here = there
    return Outcome(here, here.norm, max_iterations, "max_iterations")


def lbfgs(
    evaluate: Evaluate,
    start: Point,
    tolerance: float,
    max_iterations: int,
    report: Report,
    precondition: Precondition | None = None,
    state: State = _ANEW,
) -> Outcome:
    """Limited-memory BFGS for losses whose gradients are more accurate than their values.

    Near an optimum, differences of values drown in rounding long before gradients do. The line search therefore also
    accepts a step by its slopes alone, where the value has not risen beyond rounding, so that gradients can be driven
    to small tolerances; a step at which the loss is not finite is merely too long.

    References:
        William Hager and Hongchao Zhang, A new conjugate gradient method with guaranteed descent and an efficient line
        search, 2005, equation (4.1) on approximate Wolfe conditions; Jorge Nocedal and Stephen Wright, Numerical
        Optimization, 2006, algorithm 7.4.
    """
    here = start
    pairs: deque[tuple[np.ndarray, np.ndarray, float]] = deque(maxlen=_MEMORY)
    for move, change in state.get("pairs", ()):
        pairs.append((move.copy(), change.copy(), 1 / float(move @ change)))
    for iteration in range(int(state.get("iteration", 0)), max_iterations + 1):
        if here.norm <= tolerance:
            return Outcome(here, here.norm, iteration, "converged")
        if iteration == max_iterations:
            break
        direction = _direction(here.gradient, pairs, precondition)
        # A direction that does not descend: the curvature gathered is of no use.
        slope = float(here.gradient @ direction)
        if not slope < 0:
            pairs.clear()
            direction = _direction(here.gradient, pairs, precondition)
            slope = float(here.gradient @ direction)
        first = 1.0 if pairs else min(1.0, 1.0 / float(np.abs(direction).sum()))
        there = _search(evaluate, here, direction, slope, first)
        if there is None:
            if not pairs:
                note = f"no further decrease; the largest entry of the gradient is {here.norm:.2g} per row"
                return Outcome(here, here.norm, iteration, "stalled", (note,))
            pairs.clear()  # the curvature that was gathered misleads; begin anew from here
            continue
        # Gather the curvature along the step, where there is any.
        move, change = there.theta - here.theta, there.gradient - here.gradient
        bend = float(move @ change)
        if bend > 1e-300 and bend > 1e-14 * float(change @ change):
            pairs.append((move, change, 1 / bend))
        here = there
        if report(
            iteration + 1, here, here.norm, partial(_state_of_pairs, iteration + 1, here.theta.size, tuple(pairs))
        ):
            return Outcome(here, here.norm, iteration + 1, "stopped")
    return Outcome(here, here.norm, max_iterations, "max_iterations")


def _direction(
    gradient: np.ndarray, pairs: deque[tuple[np.ndarray, np.ndarray, float]], precondition: Precondition | None
) -> np.ndarray:
    """Minus the inverse Hessian's estimate times the gradient."""
    result = -gradient
    weights: list[float] = []
    for move, change, inverse in reversed(pairs):
        weights.append(inverse * float(move @ result))
        result -= weights[-1] * change
    if precondition is not None:
        result = precondition(result)
    if pairs:
        _, change, inverse = pairs[-1]
        scaled = change if precondition is None else precondition(change)
        result *= 1 / (inverse * float(change @ scaled))
    for (move, change, inverse), weight in zip(pairs, reversed(weights), strict=True):
        result += (weight - inverse * float(change @ result)) * move
    return result


def _search(evaluate: Evaluate, here: Point, direction: np.ndarray, slope: float, first: float) -> Point | None:
    """A point along the direction with enough decrease and curvature; None where there is none to be found."""
    low, low_slope, high, high_slope = 0.0, slope, math.inf, math.nan
    slack = _ROUNDING * (1 + abs(here.value))
    step = first
    for _ in range(_MAX_TRIALS):
        there = evaluate(here.theta + step * direction)
        new_slope = float(there.gradient @ direction) if there.is_sound else math.nan
        # Enough decrease, by the gradient where values differ by rounding alone.
        is_low = there.is_sound and (
            there.value <= here.value + _ARMIJO * step * slope
            or (there.value <= here.value + slack and new_slope <= (2 * _ARMIJO - 1) * slope)
        )
        if is_low and new_slope >= _CURVATURE * slope:
            return there
        if is_low:
            low, low_slope = step, new_slope
        else:
            high, high_slope = step, new_slope
        # Widen until there is a bracket, then narrow it.
        if math.isinf(high):
            step *= 4
            continue
        step = (low + high) / 2
        if high_slope > 0 > low_slope:  # the zero of the slope by linear interpolation, well inside the bracket
            zero = low + (high - low) * low_slope / (low_slope - high_slope)
            step = min(max(zero, low + 0.05 * (high - low)), high - 0.05 * (high - low))
        if high - low <= 1e-16 * high:
            return None
    return None


def gradient_descent(
    evaluate: Evaluate,
    start: Point,
    tolerance: float,
    max_iterations: int,
    report: Report,
    step: float = 0.5,
    state: State = _ANEW,
) -> Outcome:
    r"""Gradient descent with a fixed step, :math:`\theta \leftarrow \theta - \alpha \nabla f(\theta)`.

    In the free basis and within balanced tables this is descent along the purified gradient. Where the value rises far
    above that of the start, or ends above it, the best point comes back with the status ``diverged``.

    References:
        Paper 1, equation (9) and algorithm 2, where alpha is 0.5.
    """
    here, best = start, evaluate(state["best"]) if state else start
    first = float(state.get("first", start.value))
    for iteration in range(int(state.get("iteration", 0)) + 1, max_iterations + 1):
        if here.norm <= tolerance:
            return Outcome(here, here.norm, iteration - 1, "converged")
        here = evaluate(here.theta - step * here.gradient)
        is_high = here.value > first + 1 + abs(first)
        is_last = iteration == max_iterations
        if not here.is_sound or is_high or (is_last and here.value > first):
            note = f"the loss rose from {first:.4g} to {here.value:.4g} nats per row; reduce step={step:g}"
            return Outcome(best, best.norm, iteration, "diverged", (note,))
        if here.value < best.value:
            best = here
        if report(iteration, here, here.norm, partial(_state, iteration, best=best.theta, first=first)):
            return Outcome(here, here.norm, iteration, "stopped")
    status = "converged" if here.norm <= tolerance else "max_iterations"
    return Outcome(here, here.norm, max_iterations, status)


def proximal_gradient(
    evaluate: Evaluate,
    start: Point,
    tolerance: float,
    max_iterations: int,
    report: Report,
    prox: Callable[[np.ndarray, float], np.ndarray],
    state: State = _ANEW,
) -> Outcome:
    """Accelerated proximal gradient with backtracking and restart; ``prox`` is that of the penalty per row.

    References:
        Amir Beck and Marc Teboulle, A fast iterative shrinkage-thresholding algorithm, 2009, section 4; Brendan
        O'Donoghue and Emmanuel Candes, Adaptive restart for accelerated gradient schemes, 2015, section 3.2.
    """
    here, ahead, momentum, step = start, start, 1.0, 1.0
    if state:
        ahead, (momentum, step) = evaluate(state["ahead"]), map(float, state["pace"])
    norm = math.inf
    for iteration in range(int(state.get("iteration", 0)) + 1, max_iterations + 1):
        # Backtrack until the quadratic bound holds.
        while True:
            there = evaluate(prox(ahead.theta - step * ahead.gradient, step))
            move = there.theta - ahead.theta
            linear = ahead.value + float(ahead.gradient @ move)
            if there.value <= linear + float(move @ move) / (2 * step) + 1e-15 * abs(ahead.value):
                break
            step /= 2
        norm = (float(np.abs(move).max()) if move.size else 0.0) / step
        # Momentum begins anew where it points uphill.
        if float((ahead.theta - there.theta) @ (there.theta - here.theta)) > 0:
            momentum = 1.0
        following = (1 + (1 + 4 * momentum**2) ** 0.5) / 2
        target = there.theta + (momentum - 1) / following * (there.theta - here.theta)
        here, momentum, step = there, following, 1.1 * step
        if report(iteration, here, norm, partial(_state, iteration, ahead=target, pace=np.array([momentum, step]))):
            return Outcome(here, norm, iteration, "stopped")
        if norm <= tolerance:
            return Outcome(here, norm, iteration, "converged")
        ahead = evaluate(target)
    return Outcome(here, norm, max_iterations, "max_iterations")
