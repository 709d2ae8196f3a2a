"""Fixed point of a map of laws: plain iteration, with Krylov steps where it is slow."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator, gmres

__all__ = ["FixedPoint", "fixed_point"]

Floats = NDArray[Any]

_BLOCK = 16  # steps between two looks at the residual
_TAIL = 4  # of them, the last ones give the rate of convergence
_SLOW = 8 * _BLOCK  # with more steps than that to go, Krylov steps are tried
_ROUNDING = 4e-16  # residual (total mass that moves) that rounding leaves
_KRYLOV = (30, 60, 120)  # steps of a Krylov run, longer each time


class FixedPoint(NamedTuple):
    """A fixed law (num_states,), the mass that one more step moves, estimated error, steps, and whether it is done."""

    law: Floats
    residual: float
    error: float
    num_iterations: int
    is_converged: bool


def fixed_point(step: Callable[[Floats], Floats], num_states: int, tolerance: float, max_iterations: int) -> FixedPoint:
    """Law with ``step(law) == law`` of a stochastic map with one fixed law, to which plain iteration must converge.

    The estimated error is what is left of a geometric series with the slowest rate seen. It is judged as met, too,
    where a step moves no more than rounding does and the estimate is below 1e-9. Krylov steps solve
    (identity - map + uniform law x sum) law = uniform law, which has the fixed law as its only solution; plain steps
    after them take away negative entries and settle small probabilities.
    """
    law = np.full(num_states, 1.0 / num_states)
    used = runs = 0
    rate, residual, error = 0.0, math.inf, math.inf
    while used < max_iterations:
        law, before, residual = _iterate(step, law)
        used += _BLOCK
        if residual > 100 * _ROUNDING:
            rate = max(rate, (residual / before) ** (1 / _TAIL))
        error = residual * rate / (1 - rate) if rate < 1 else math.inf
        if error <= tolerance or (residual <= _ROUNDING and error <= 1e-9):
            return FixedPoint(law, residual, error, used, True)
        to_go = math.log(tolerance / error) / math.log(rate) if rate < 1 else math.inf
        if to_go > _SLOW and used < max_iterations:
            length = _KRYLOV[min(runs, len(_KRYLOV) - 1)]
            found = _krylov(step, law, length)
            used += length
            runs += 1
            if float(np.abs(step(found) - found).sum()) < residual:
                law = found
    return FixedPoint(law, residual, error, used, False)


def _iterate(step: Callable[[Floats], Floats], law: Floats) -> tuple[Floats, float, float]:
    """A block of plain steps; the mass moved by the step ``_TAIL`` before the last, and by the last."""
    before = last = 0.0
    for k in range(_BLOCK):
        after = step(law)
        after /= after.sum()
        if k >= _BLOCK - 1 - _TAIL:
            last = float(np.abs(after - law).sum())
            before = last if k == _BLOCK - 1 - _TAIL else before
        law = after
    return law, before, last


def _krylov(step: Callable[[Floats], Floats], law: Floats, length: int) -> Floats:
    """Improve a law by one run of GMRES; negative entries are cut off."""
    n = len(law)
    make: Any = LinearOperator  # its factory takes other arguments than the class that SciPy annotates
    operator = make((n, n), matvec=lambda x: x - step(x) + x.sum() / n, dtype=np.float64)
    found, _ = gmres(operator, np.full(n, 1.0 / n), x0=law, rtol=0.0, atol=1e-17, restart=length, maxiter=1)
    found = np.maximum(found, 0.0)
    return found / found.sum()
