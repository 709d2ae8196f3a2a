"""Descent within balanced tables, with a look at what goes wrong. Private to training.

The free basis is orthonormal, so descent in free coordinates and descent in balanced tables along centred gradients
make the same steps; no change of coordinates is needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ...core.trainer import TrainingReport
from ...errors import check_choice, check_positive, check_whole, wrong_type
from ._limited_memory import Point, Precondition, minimise

Evaluate = Callable[[np.ndarray], tuple[float, float, np.ndarray]]
"""Of balanced tables (num_terms,): loss without penalty, loss with it, and the centred gradient of the latter."""

HeldOutLoss = Callable[[np.ndarray, float], float]
"""Loss of validation rows of (balanced tables, loss of the training rows without penalty)."""


class _Patience:
    """Best point by validation loss, the start included, and when to stop looking for a better one."""

    def __init__(self, held_out: HeldOutLoss | None, patience: int) -> None:
        self._held_out = held_out
        self._patience = patience
        self._best_loss = math.inf
        self.best: Point | None = None
        self.best_iteration = 0

    def __call__(self, iteration: int, point: Point) -> bool:
        """Whether to stop after this step."""
        if self._held_out is None:
            return False
        value = self._held_out(point.theta, point.loss)
        if value < self._best_loss or self.best is None:
            self._best_loss, self.best, self.best_iteration = value, point, iteration
        return iteration - self.best_iteration >= self._patience


@dataclass(frozen=True)
class Descent:
    """How balanced tables are moved.

    Attributes:
        method: ``lbfgs``, or ``gradient`` with a fixed step (paper 1, equation 9 and algorithm 2).
        max_iterations: most steps of one call.
        tolerance: largest entry of the gradient per row at which a call is done.
        step: of the method ``gradient``.
        patience: steps without a better validation loss after which a call ends, where validation rows are given.

    Raises:
        InputError: an option that has no meaning.
        InputTypeError: a step or tolerance that is no number.
    """

    method: Literal["lbfgs", "gradient"] = "lbfgs"
    max_iterations: int = 1000
    tolerance: float = 1e-6
    step: float = 0.5
    patience: int = 20

    def __post_init__(self) -> None:
        check_choice(self.method, ("lbfgs", "gradient"), "method")
        for name in ("max_iterations", "patience"):
            value = getattr(self, name)
            check_whole(value, name)
        for name in ("tolerance", "step"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise wrong_type(name, "a number", received=repr(value))
            check_positive(value, name)

    def run(
        self,
        evaluate: Evaluate,
        start: np.ndarray,
        held_out: HeldOutLoss | None = None,
        precondition: Precondition | None = None,
    ) -> tuple[np.ndarray, TrainingReport]:
        """Minimise from a start; the tables that come back are sound, whatever happened on the way."""

        def point(tables: np.ndarray) -> Point:
            return Point(tables, *evaluate(tables))

        first = point(start)
        if not first.is_sound:
            note = "the loss of the tables that training began with is infinite or NaN"
            return start, TrainingReport("diverged", 0, math.inf, (note,))
        patience = _Patience(held_out, self.patience)
        patience(0, first)
        if self.method == "lbfgs":
            last, report = self._lbfgs(point, first, patience, precondition)
        else:
            last, report = self._gradient(point, first, patience)
        if patience.best is not None and report.status != "diverged":
            steps = report.num_iterations
            note = f"the loss of the validation rows was lowest at step {patience.best_iteration} of {steps}"
            last = patience.best
            report = TrainingReport(report.status, steps, last.norm, (*report.notes, note))
        return last.theta, report

    def _lbfgs(
        self,
        point: Callable[[np.ndarray], Point],
        first: Point,
        patience: _Patience,
        precondition: Precondition | None,
    ) -> tuple[Point, TrainingReport]:
        last, steps, status = minimise(point, first, self.tolerance, self.max_iterations, patience, precondition)
        notes: tuple[str, ...] = ()
        if status == "stalled":
            notes = (f"no further decrease; the largest entry of the gradient is {last.norm:.2g} per row",)
        ended = "converged" if status == "converged" else "max_iterations"
        return last, TrainingReport(ended, steps, last.norm, notes)

    def _gradient(
        self, point: Callable[[np.ndarray], Point], first: Point, patience: _Patience
    ) -> tuple[Point, TrainingReport]:
        here = best = first
        for iteration in range(1, self.max_iterations + 1):
            if here.norm <= self.tolerance:
                return here, TrainingReport("converged", iteration - 1, here.norm)
            here = point(here.theta - self.step * here.gradient)
            is_high = here.value > first.value + 1 + abs(first.value)
            is_last = iteration == self.max_iterations
            if not here.is_sound or is_high or (is_last and here.value > first.value):
                note = (
                    f"the loss rose from {first.value:.4g} to {here.value:.4g} nats per row; reduce step={self.step:g}"
                )
                return best, TrainingReport("diverged", iteration, best.norm, (note,))
            if here.value < best.value:
                best = here
            if patience(iteration, here):
                return here, TrainingReport("max_iterations", iteration, here.norm)
        status = "converged" if here.norm <= self.tolerance else "max_iterations"
        return here, TrainingReport(status, self.max_iterations, here.norm)
