"""Fixed point of a map of laws: plain iteration, with Krylov steps where it is slow."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator, gmres

Floats = NDArray[Any]

_BLOCK = 16  # steps between two looks at the residual
_TAIL = 4  # of them, the last ones give the rate of convergence
_SLOW = 8 * _BLOCK  # with more steps than that to go, Krylov steps are tried
_ROUNDING = 4e-16  # residual (total mass that moves) that rounding leaves
_ALLOWED = 1e-9  # error that is accepted where rounding ends the iteration
_SETTLED = 1e-10  # change of a cell relative to itself at which it has settled
_MAX_SETTLING = 1024
_KRYLOV = (30, 60, 120)  # steps of a Krylov run, longer each time


class FixedPoint(NamedTuple):
    """A fixed law (num_states,), the mass that one more step moves, its error, steps, and how it ended."""

    law: Floats
    residual: float
    error: float
    num_iterations: int
    is_converged: bool
    is_settled: bool = False


def fixed_point(
    step: Callable[[Floats], Floats], is_recurrent: NDArray[Any], tolerance: float, max_iterations: int
) -> FixedPoint:
    """Law with ``step(law) == law`` of a stochastic map with one fixed law, to which plain iteration must converge.

    A map that hardly ever moves mass between some sets of states leaves nearly fixed any mixture of their laws, so a
    small residual alone says nothing. Hence two runs, from the uniform law and from the most probable state of its
    result; what they differ by counts as error. At the end plain steps settle small cells, for they subtract nothing.
    """
    uniform = is_recurrent / is_recurrent.sum()
    first = _run(step, uniform, uniform, tolerance, max_iterations)
    if not first.is_converged:
        return first
    start = np.zeros(len(uniform))
    start[first.law.argmax()] = 1.0
    second = _run(step, start, uniform, tolerance, max_iterations)
    error = max(first.error, second.error, float(np.abs(first.law - second.law).sum()))
    is_converged = second.is_converged and error <= max(_ALLOWED, 2 * tolerance)
    residual = max(first.residual, second.residual)
    law, used, is_settled = _settle_cells(step, first.law, is_recurrent)
    used += first.num_iterations + second.num_iterations
    return FixedPoint(law, residual, error, used, is_converged, is_settled)


def _settle_cells(
    step: Callable[[Floats], Floats], law: Floats, is_recurrent: NDArray[Any]
) -> tuple[Floats, int, bool]:
    """Plain steps until no cell changes by more than a small share of itself; steps made, and whether that was met."""
    for used in range(1, _MAX_SETTLING + 1):
        after = step(law)
        after /= after.sum()
        if used % _BLOCK == 0 and bool((np.abs(after - law) <= _SETTLED * after).all()):
            return after, used, bool((after[is_recurrent] > 0).all())
        law = after
    return law, _MAX_SETTLING, False


def _run(
    step: Callable[[Floats], Floats], law: Floats, uniform: Floats, tolerance: float, max_iterations: int
) -> FixedPoint:
    """One run from a law.

    The error is what is left of a geometric series with the slowest rate seen. Krylov steps solve (identity - map +
    uniform law x sum) law = uniform law, which has the fixed law as its only solution.
    """
    used = runs = 0
    rate, residual, error = 0.0, math.inf, math.inf
    while used < max_iterations:
        law, before, residual = _iterate(step, law)
        used += _BLOCK
        if residual > 100 * _ROUNDING:
            rate = max(rate, (residual / before) ** (1 / _TAIL))
        error = residual * rate / (1 - rate) if rate < 1 else math.inf
        if error <= tolerance or (residual <= _ROUNDING and error <= _ALLOWED):
            return FixedPoint(law, residual, error, used, True)
        to_go = math.log(tolerance / error) / math.log(rate) if rate < 1 else math.inf
        if to_go > _SLOW and used < max_iterations:
            length = _KRYLOV[min(runs, len(_KRYLOV) - 1)]
            found = _krylov(step, law, uniform, length)
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


def _krylov(step: Callable[[Floats], Floats], law: Floats, uniform: Floats, length: int) -> Floats:
    """Improve a law by one run of GMRES; negative entries are cut off."""
    n = len(law)
    make: Any = LinearOperator  # its factory takes other arguments than the class that SciPy annotates
    operator = make((n, n), matvec=lambda x: x - step(x) + x.sum() * uniform, dtype=np.float64)
    found, _ = gmres(operator, uniform, x0=law, rtol=0.0, atol=1e-17, restart=length, maxiter=1)
    found = np.maximum(found, 0.0)
    return found / found.sum()
