"""Step lengths between 0 and 1: by exact search in one or more of them, on a grid, on nested grids, and 2 / (i + 2)."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from .losses import Derivatives, Restriction

__all__ = ["StepRule", "best_steps", "grid_step", "nested_step", "step_lengths"]

Floats = NDArray[np.float64]
StepRule = Literal["exact", "two-variable", "nested", "grid", "diminishing"]
_GRID, _DEPTH = 20, 8
_ITERATIONS, _TRIALS, _ARMIJO, _FLAT = 50, 40, 1e-4, 1e-13


def best_steps(plane: Restriction, upper: NDArray[np.float64]) -> Floats:
    """Minimiser (k,) of a convex function over the box from 0 to ``upper``, by projected Newton steps from 0.

    Steps that would leave the box are cut off, coordinate by coordinate; a step is halved until the function falls, and
    a direction along which Newton does not help is replaced by the gradient.
    """
    steps = np.zeros(len(upper))
    here = plane.derivatives(steps)
    scale = max(1e-300, float(np.abs(here.gradient) @ upper))
    for _ in range(_ITERATIONS):
        is_free = ((steps > 0) | (here.gradient < 0)) & ((steps < upper) | (here.gradient > 0)) & (upper > 0)
        if float(np.abs(here.gradient * is_free) @ upper) <= _FLAT * scale:
            break
        found = None
        for direction in (_newton(here, is_free), -here.gradient * is_free * (upper @ upper) / scale):
            found = _searched(plane, steps, here, direction, upper)
            if found is not None:
                break
        if found is None:
            break
        steps, here = found
    return steps


def _newton(here: Derivatives, is_free: NDArray[np.bool_]) -> Floats:
    """Minus the inverse Hessian of the free coordinates times their gradient, the Hessian slightly raised."""
    direction = np.zeros(len(is_free))
    free = np.flatnonzero(is_free)
    hessian = here.hessian[np.ix_(free, free)]
    raised = hessian + np.eye(len(free)) * max(1e-300, 1e-12 * float(np.trace(hessian)))
    direction[free] = -np.linalg.solve(raised, here.gradient[free])
    return direction


def _searched(
    plane: Restriction, steps: Floats, here: Derivatives, direction: Floats, upper: Floats
) -> tuple[Floats, Derivatives] | None:
    """The first of ever shorter steps within the box at which the function falls enough; None if none does."""
    length = 1.0
    for _ in range(_TRIALS):
        trial = np.clip(steps + length * direction, 0.0, upper)
        fall = float(here.gradient @ (trial - steps))
        if not np.isfinite(trial).all() or fall >= 0:
            return None
        there = plane.derivatives(trial)
        # Where values differ by rounding alone, the slope tells: of a convex function it must not have turned round.
        is_lower = there.value <= here.value + _ARMIJO * fall
        if is_lower or (fall > -1e-12 * abs(here.value) and there.gradient @ (trial - steps) <= -0.5 * fall):
            return trial, there
        length /= 2
    return None


def grid_step(plane: Restriction, moves: int, points: int = _GRID) -> Floats:
    """The best common step of an equidistant grid with 0 and 1, as in paper 3, section 4.5."""
    grid = np.linspace(0.0, 1.0, points + 1)
    values = [plane.value(np.full(moves, step)) for step in grid]
    return np.full(moves, grid[int(np.argmin(values))])


def nested_step(plane: Restriction, moves: int, points: int = 4, depth: int = _DEPTH) -> Floats:
    r"""A common step by ever finer grids: each is scanned until the function rises, then the next one lies around.

    With :math:`a_i` the best point of a grid, the minimiser of a convex function is between :math:`a_{i-1}` and
    :math:`a_{i+1}`. (Paper 3, section 4.5, continues between :math:`a_{i-1}` and :math:`a_i`, which can miss it.)
    """
    low, high, found = 0.0, 1.0, 0.0
    for _ in range(depth):
        grid = np.linspace(low, high, points + 1)
        best, value = 0, plane.value(np.full(moves, grid[0]))
        for index in range(1, points + 1):
            other = plane.value(np.full(moves, grid[index]))
            if other > value:
                break
            best, value = index, other
        low, high, found = grid[max(0, best - 1)], grid[min(points, best + 1)], grid[best]
    return np.full(moves, found)


class _Together:
    """A restriction to the sum of its directions."""

    def __init__(self, plane: Restriction, moves: int) -> None:
        self._plane, self._ones = plane, np.ones(moves)

    def value(self, steps: NDArray[np.float64]) -> float:
        return self._plane.value(steps[0] * self._ones)

    def derivatives(self, steps: NDArray[np.float64]) -> Derivatives:
        found = self._plane.derivatives(steps[0] * self._ones)
        slope, bend = found.gradient.sum(keepdims=True), found.hessian.sum(keepdims=True)
        return Derivatives(found.value, slope, bend)


def step_lengths(rule: StepRule, plane: Restriction, moves: int, iteration: int) -> Floats:
    """Steps (moves,) along as many directions by a rule; all but those of "two-variable" are equal."""
    if rule == "diminishing":
        return np.full(moves, 2.0 / (iteration + 2))
    if rule == "two-variable":
        return best_steps(plane, np.ones(moves))
    if rule == "exact":
        return best_steps(_Together(plane, moves), np.ones(1)).repeat(moves)
    return nested_step(plane, moves) if rule == "nested" else grid_step(plane, moves)
