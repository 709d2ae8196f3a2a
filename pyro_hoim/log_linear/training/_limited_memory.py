"""Limited-memory BFGS for smooth convex losses whose gradients are more accurate than their values. Private.

Near an optimum, differences of values drown in rounding long before gradients do. The line search therefore also
accepts a step by its slopes alone, where the value has not risen beyond rounding, so that gradients can be driven to
small tolerances; a step at which the loss is not finite is merely too long.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Precondition = Callable[[np.ndarray], np.ndarray]
"""Rough inverse Hessian times a vector, symmetric and positive."""

_ARMIJO, _CURVATURE, _ROUNDING = 1e-4, 0.9, 1e-13
_MEMORY, _MAX_TRIALS = 20, 40


@dataclass
class Point:
    """Parameters with the loss (without and with penalty) and the gradient there.

    Attributes:
        theta: parameters.
        loss: without penalty.
        value: with penalty.
        gradient: of ``value``.
    """

    theta: np.ndarray
    loss: float
    value: float
    gradient: np.ndarray

    @property
    def norm(self) -> float:
        """Largest absolute entry of the gradient."""
        return float(np.abs(self.gradient).max()) if self.gradient.size else 0.0

    @property
    def is_sound(self) -> bool:
        """Whether value and gradient are finite."""
        return math.isfinite(self.value) and math.isfinite(self.norm)


def minimise(
    evaluate: Callable[[np.ndarray], Point],
    start: Point,
    tolerance: float,
    max_iterations: int,
    report: Callable[[int, Point], bool],
    precondition: Precondition | None = None,
) -> tuple[Point, int, str]:
    """Minimise a convex function from a sound point.

    Args:
        evaluate: the function.
        start: a sound point.
        tolerance: largest entry of the gradient at the end.
        max_iterations: most steps.
        report: called after every step; True ends the run.
        precondition: rough inverse Hessian times a vector; the identity by default.

    Returns:
        The last point, the number of steps, and ``converged``, ``max_iterations``, ``stopped`` or ``stalled``.

    References:
        William Hager and Hongchao Zhang, A new conjugate gradient method with guaranteed descent and an efficient line
        search, 2005, equation (4.1) on approximate Wolfe conditions; Jorge Nocedal and Stephen Wright, Numerical
        Optimization, 2006, algorithm 7.4.
    """
    here = start
    pairs: deque[tuple[np.ndarray, np.ndarray, float]] = deque(maxlen=_MEMORY)
    for iteration in range(max_iterations + 1):
        if here.norm <= tolerance:
            return here, iteration, "converged"
        if iteration == max_iterations:
            break
        direction = _direction(here.gradient, pairs, precondition)
        slope = float(here.gradient @ direction)
        if not slope < 0:
            pairs.clear()
            direction = _direction(here.gradient, pairs, precondition)
            slope = float(here.gradient @ direction)
        first = 1.0 if pairs else min(1.0, 1.0 / float(np.abs(direction).sum()))
        there = _search(evaluate, here, direction, slope, first)
        if there is None:
            if not pairs:
                return here, iteration, "stalled"
            pairs.clear()  # the curvature that was gathered misleads; begin anew from here
            continue
        move, change = there.theta - here.theta, there.gradient - here.gradient
        bend = float(move @ change)
        if bend > 1e-300 and bend > 1e-14 * float(change @ change):
            pairs.append((move, change, 1 / bend))
        here = there
        if report(iteration + 1, here):
            return here, iteration + 1, "stopped"
    return here, max_iterations, "max_iterations"


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


def _search(
    evaluate: Callable[[np.ndarray], Point], here: Point, direction: np.ndarray, slope: float, first: float
) -> Point | None:
    """A point along the direction with enough decrease and curvature; None where there is none to be found."""
    low, low_slope, high, high_slope = 0.0, slope, math.inf, math.nan
    slack = _ROUNDING * (1 + abs(here.value))
    step = first
    for _ in range(_MAX_TRIALS):
        there = evaluate(here.theta + step * direction)
        new_slope = float(there.gradient @ direction) if there.is_sound else math.nan
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
