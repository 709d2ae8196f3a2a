"""Sums and quadrature over a user's family: moments of node conditionals, and draws from them (NumPy).

Rows of natural parameters are worked on together: a table of points of every row, with the log of what each point
stands for, gives the log partition by a sum, moments by weighted means and draws by inversion.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["FamilyOfFunctions", "user_draws", "user_has_law", "user_moments", "user_value_moments"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

MOST_VALUES = 2**20
"""Most counts of one sum."""
_CELLS = 2**19  # entries of a table of points that are made at once
_DEPTH = 46.0  # nats below the largest term down to which terms are kept
_NEGLIGIBLE = -39.0  # log share of what is left of a sum
_LOWEST, _HIGHEST, _COARSE = -300.0, 150.0, 0.125  # log sizes that are looked at, and their distance
_FIRST, _LAST = 64, 2**13  # intervals of a quadrature
_STILL, _USELESS = 1e-13, 1e-6  # changes of a log partition: at rest, and no answer
_EPSILON = 2.220446049250313e-16
_ENVELOPE = 1.01  # largest ratio of a density to its linear interpolation


class FamilyOfFunctions(Protocol):
    """What sums and quadrature ask of :class:`.user.UserFamily`."""

    @property
    def kind(self) -> str:
        """``count``, ``positive`` or ``real``."""
        ...

    @property
    def is_discrete(self) -> bool:
        """Whether values are counts."""
        ...

    @property
    def largest_value(self) -> float:
        """Largest possible value."""
        ...

    def measured(self, x: Floats) -> Floats:
        """B of an array."""
        ...

    def rooted(self, x: Floats, j: int) -> Floats:
        """T_j of an array."""
        ...


class _Table(NamedTuple):
    """Counts (m,), or points (n, m) by their u, of some rows; log terms (n, m) of Z, roots (..., k) and errors (n,)."""

    rows: Integers
    points: Floats
    logs: Floats
    roots: Floats
    error: Floats


def user_moments(
    family: FamilyOfFunctions, eta: Floats, order: int, value: Floats, mean: Floats, cov: Floats
) -> Floats:
    """What :func:`.kernels.evaluate_nodes` does, with the same arguments, for a user's family; the errors (n,)."""
    value[:], error = np.inf, np.full(len(eta), np.nan)
    for part in (mean, cov)[:order]:
        part[:] = np.nan
    for table in _tables(family, eta):
        rows, logs = table.rows, table.logs
        height = logs.max(1, keepdims=True)
        share = np.exp(logs - height)
        total = share.sum(1, keepdims=True)
        value[rows] = (height + np.log(total))[:, 0]
        scale = np.abs(height[:, 0]) + np.abs(eta[rows]).sum(1)
        error[rows] = table.error + _EPSILON * (8.0 + scale / (1 + np.abs(value[rows])))
        if order == 0:
            continue
        share /= total
        centre = np.einsum("nm,nmk->nk", share, table.roots)
        mean[rows] = centre
        if order > 1:
            steps = table.roots - centre[:, None, :]
            cov[rows] = np.einsum("nm,nmi,nmj->nij", share, steps, steps, optimize=True)
    return error


def user_value_moments(family: FamilyOfFunctions, eta: Floats) -> tuple[Floats, Floats]:
    """Mean and variance (n,) of the value itself, which need not be the statistic; NaN where a row has no law."""
    mean, variance = np.full(len(eta), np.nan), np.full(len(eta), np.nan)
    for table in _tables(family, eta):
        share = np.exp(table.logs - table.logs.max(1, keepdims=True))
        share /= share.sum(1, keepdims=True)
        x = np.broadcast_to(table.points, share.shape)
        if not family.is_discrete:
            halves = np.split(x, 2 if family.kind == "real" else 1, 1)
            x = np.concatenate([side * _placed(family, u, 1)[0] for u, side in zip(halves, (1, -1), strict=False)], 1)
        mean[table.rows] = (share * x).sum(1)
        variance[table.rows] = (share * (x - mean[table.rows, None]) ** 2).sum(1)
    return mean, variance


def user_has_law(family: FamilyOfFunctions, eta: Floats) -> bool:
    """Whether the sum or integral at natural parameters (k,) is finite, as far as it is looked at."""
    value = np.empty(1)
    user_moments(family, eta[None], 0, value, eta[None], eta[None, None])
    return bool(np.isfinite(value[0]))


def user_draws(family: FamilyOfFunctions, eta: Floats, uniforms: Callable[[Integers], Floats]) -> Floats:
    """A draw (n,) from each row; NaN where a row has no law. ``uniforms`` gives new numbers in (0, 1) for some rows.

    Equal rows share one table.
    """
    distinct, kind = np.unique(eta, axis=0, return_inverse=True)
    by_kind = np.argsort(kind.reshape(-1), kind="stable")
    ends = np.searchsorted(kind.reshape(-1)[by_kind], np.arange(len(distinct) + 1))
    drawn = np.full(len(eta), np.nan)
    for table in _tables(family, distinct, is_for_draws=True):
        mine = np.concatenate([by_kind[ends[i] : ends[i + 1]] for i in table.rows])
        row_of_table = np.repeat(np.arange(len(table.rows)), np.diff(ends)[table.rows])
        step = max(1, _CELLS // table.logs.shape[1])
        for first in range(0, len(mine), step):
            rows, places = mine[first : first + step], row_of_table[first : first + step]
            drawn[rows] = _drawn(family, distinct, table, places, lambda i, rows=rows: uniforms(rows[i]))
    return drawn


def _tables(family: FamilyOfFunctions, eta: Floats, is_for_draws: bool = False) -> Iterator[_Table]:
    """Tables of all rows that have a finite sum."""
    good = np.flatnonzero(np.isfinite(eta).all(1))
    if family.is_discrete:
        yield from _count_tables(family, eta, good)
    else:
        yield from _real_tables(family, eta, good, is_for_draws)


# Counts


@lru_cache(maxsize=32)
def _listed(family: FamilyOfFunctions, size: int, k: int) -> tuple[Floats, Floats, Floats]:
    """Counts below a size (m,), their roots (m, k) and log base measures (m,)."""
    x = np.arange(float(size))
    return x, np.stack([family.rooted(x, j) for j in range(1, k + 1)], -1), family.measured(x)


def _count_tables(family: FamilyOfFunctions, eta: Floats, rows: Integers) -> Iterator[_Table]:
    most = int(min(family.largest_value + 1, MOST_VALUES))
    size = min(256, most)
    while len(rows):
        x, roots, measure = _listed(family, size, eta.shape[1])
        left: list[Integers] = []
        step = max(1, _CELLS // (size * eta.shape[1]))
        for first in range(0, len(rows), step):
            chunk = rows[first : first + step]
            with np.errstate(over="ignore", invalid="ignore"):
                logs = np.nan_to_num(eta[chunk] @ roots.T + measure, nan=np.inf, posinf=np.inf, neginf=-np.inf)
            is_whole = np.isfinite(logs.max(1))
            if size <= family.largest_value:
                is_whole &= _ends(logs, roots[:, 0], measure)
                left.append(chunk[~is_whole & np.isfinite(logs.max(1))])
            if is_whole.any():
                yield _Table(chunk[is_whole], x, logs[is_whole], roots[None], np.zeros(int(is_whole.sum())))
        rows = np.concatenate(left) if left and size < most else np.zeros(0, np.int64)
        size = min(2 * size, most)


def _ends(logs: Floats, top: Floats, measure: Floats) -> NDArray[np.bool_]:
    """Whether sums of terms, and of their squares by the statistic, are over: what is left as a geometric series."""
    quarter = logs.shape[1] // 4
    squares = logs + 2.0 * np.log1p(np.maximum(top, 0.0))
    before, last = squares[:, -2 * quarter : -quarter].max(1), squares[:, -quarter:].max(1)
    if not np.isfinite(measure[-2 * quarter :]).any():  # nothing is possible there: a domain that has ended
        return np.ones(len(logs), np.bool_)
    with np.errstate(invalid="ignore", divide="ignore"):
        slope = (last - before) / quarter
        rest = last - np.log(-np.expm1(np.minimum(slope, 0.0)))
    return (slope < 0) & (rest < squares.max(1) + _NEGLIGIBLE)


# Real numbers


def _placed(family: FamilyOfFunctions, u: Floats, side: int) -> tuple[Floats, Floats]:
    """Values at u on one side of 0, and the log of their derivative."""
    if math.isfinite(family.largest_value):
        lower, upper = -np.logaddexp(0.0, -u), -np.logaddexp(0.0, u)
        return family.largest_value * np.exp(lower), lower + upper + math.log(family.largest_value)
    return side * np.exp(u), u


def _scored(family: FamilyOfFunctions, eta: Floats, u: Floats, side: int) -> tuple[Floats, Floats, Floats]:
    """Values (n, m), log densities in u, and roots (n, m, k), at u (n, m) or (1, m)."""
    x, jacobian = _placed(family, u, side)
    roots = np.stack([family.rooted(x, j) for j in range(1, eta.shape[1] + 1)], -1)
    with np.errstate(over="ignore", invalid="ignore"):
        logs = np.matmul(roots, eta[:, :, None])[..., 0] + (family.measured(x) + jacobian)
    return x, np.where(np.isnan(logs), -np.inf, logs), roots


def _windows(family: FamilyOfFunctions, eta: Floats, side: int) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    """Ends (n,) in u of where each density matters, and whether it ends there."""
    u = np.arange(_LOWEST, _HIGHEST, _COARSE)[None]
    low, high, is_over = np.empty(len(eta)), np.empty(len(eta)), np.empty(len(eta), np.bool_)
    step = max(1, _CELLS // (u.size * eta.shape[1]))
    for first in range(0, len(eta), step):
        part = slice(first, first + step)
        logs = _scored(family, eta[part], u, side)[1]
        low[part], high[part], is_over[part] = _inside(logs, np.broadcast_to(u, logs.shape))
    return low, high, is_over


def _inside(logs: Floats, u: Floats) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    """Ends of where log terms are near their largest, one point further, and whether that leaves points outside."""
    is_in = logs > logs.max(1, keepdims=True) - _DEPTH
    is_in[~is_in.any(1), 0] = True
    size, every = logs.shape[1], np.arange(len(logs))
    first, last = is_in.argmax(1), size - 1 - is_in[:, ::-1].argmax(1)
    is_over = (first > 0) & (last < size - 1) & np.isfinite(logs.max(1))
    return u[every, np.maximum(first - 1, 0)], u[every, np.minimum(last + 1, size - 1)], is_over


def _real_tables(family: FamilyOfFunctions, eta: Floats, rows: Integers, is_for_draws: bool) -> Iterator[_Table]:
    sides = (1, -1) if family.kind == "real" else (1,)
    ends: list[tuple[Floats, Floats]] = []
    is_over = np.ones(len(rows), np.bool_)
    for side in sides:
        low, high, is_side_over = _windows(family, eta[rows], side)
        is_over &= is_side_over
        ends.append(_narrowed(family, eta[rows], low, high, side))
    rows, ends = rows[is_over], [(low[is_over], high[is_over]) for low, high in ends]
    size, before = _FIRST, np.full(len(rows), np.nan)
    while len(rows):
        left, step = np.zeros(len(rows), np.bool_), max(1, _CELLS // (2 * size * eta.shape[1]))
        for first in range(0, len(rows), step):
            part = slice(first, first + step)
            table = _quadrature(family, eta, rows[part], [(low[part], high[part]) for low, high in ends], size)
            height = table.logs.max(1)
            value = height + np.log(np.exp(table.logs - height[:, None]).sum(1))
            change = np.abs(value - before[part]) / (1 + np.abs(value))
            before[part] = value
            is_still = change <= _STILL
            if is_for_draws:
                is_still &= _is_dense(table, len(sides))
            if size >= _LAST:
                is_still |= change <= _USELESS
            left[part] = ~is_still & (size < _LAST)
            if is_still.any():
                settled = table._replace(
                    rows=table.rows[is_still], points=table.points[is_still], error=change[is_still]
                )
                yield settled._replace(logs=table.logs[is_still], roots=table.roots[is_still])
        rows, before, ends = rows[left], before[left], [(low[left], high[left]) for low, high in ends]
        size *= 2


def _narrowed(family: FamilyOfFunctions, eta: Floats, low: Floats, high: Floats, side: int) -> tuple[Floats, Floats]:
    """Windows of which a good part matters, from those that a narrow density fills a little of."""
    pending = np.arange(len(low))
    shares = np.linspace(0.0, 1.0, _FIRST + 1)
    for _ in range(12):
        if not len(pending):
            break
        u = low[pending, None] + (high - low)[pending, None] * shares
        logs = _scored(family, eta[pending], u, side)[1]
        new_low, new_high, _ = _inside(logs, u)
        is_wide = new_high - new_low > 0.5 * (high - low)[pending]
        low[pending], high[pending] = new_low, new_high
        pending = pending[~is_wide]
    return low, high


def _quadrature(
    family: FamilyOfFunctions, eta: Floats, rows: Integers, ends: list[tuple[Floats, Floats]], size: int
) -> _Table:
    """Trapezoidal sums with a number of intervals on each side."""
    columns: list[tuple[Floats, Floats, Floats]] = []
    weights = np.ones(size + 1)
    weights[[0, -1]] = 0.5
    for (low, high), side in zip(ends, (1, -1), strict=False):
        u = low[:, None] + (high - low)[:, None] * np.linspace(0.0, 1.0, size + 1)
        _, logs, roots = _scored(family, eta[rows], u, side)
        columns.append((u, logs + np.log(weights) + np.log((high - low) / size)[:, None], roots))
    u, logs, roots = (np.concatenate(parts, 1) for parts in zip(*columns, strict=True))
    return _Table(rows, u, logs, roots, np.zeros(len(rows)))


def _is_dense(table: _Table, num_sides: int) -> NDArray[np.bool_]:
    """Whether every density at every second point is near the linear interpolation of its neighbours."""
    halves = np.split(table.logs, num_sides, 1)
    height = table.logs.max(1, keepdims=True)
    is_good = np.ones(len(table.rows), np.bool_)
    for logs in halves:
        logs = logs.copy()
        logs[:, [0, -1]] += math.log(2.0)
        middle, around = logs[:, 1::2], np.logaddexp(logs[:, :-1:2], logs[:, 2::2]) - math.log(2.0)
        is_low = np.maximum(middle, around) < height - 0.75 * _DEPTH
        with np.errstate(invalid="ignore"):
            is_good &= (is_low | (middle - around < 0.5 * math.log(_ENVELOPE))).all(1)
    return is_good


def _drawn(
    family: FamilyOfFunctions, eta: Floats, table: _Table, places: Integers, uniforms: Callable[[Integers], Floats]
) -> Floats:
    """One draw (n,) from each of some rows of a table; a row may come several times.

    Counts are drawn by inversion; reals by inversion of the piecewise linear density in u, and kept with the ratio of
    the density to it.
    """
    pending = np.arange(len(places))
    heights = table.logs.max(1)
    density = np.exp(table.logs - heights[:, None])
    if family.is_discrete:
        mass = density.cumsum(1)[places]
        return (mass <= (uniforms(pending) * mass[:, -1])[:, None]).sum(1).astype(np.float64)
    density = density.reshape(len(density), 2 if family.kind == "real" else 1, -1)
    density[..., [0, -1]] *= 2.0  # the ends have half a weight
    u = table.points.reshape(density.shape)
    cumulative = (density[..., 1:] + density[..., :-1]).reshape(len(density), -1).cumsum(1)
    drawn = np.empty(len(places))
    while len(pending):
        at = places[pending]
        target = uniforms(pending) * cumulative[at, -1]
        cell = np.minimum((cumulative[at] <= target[:, None]).sum(1), cumulative.shape[1] - 1)
        side, cell = np.divmod(cell, u.shape[2] - 1)
        left, right = density[at, side, cell], density[at, side, cell + 1]
        v = uniforms(pending) * (left + right)
        share = v / (left + np.sqrt(np.maximum(left * left + v * (right - left), 0.0)))
        width = u[at, side, 1] - u[at, side, 0]
        x, jacobian = _placed(family, u[at, side, cell] + width * share, 1)
        x = x * np.where(side == 1, -1.0, 1.0)
        score = family.measured(x) + jacobian + np.log(width)
        for j in range(eta.shape[1]):
            score += eta[table.rows[at], j] * family.rooted(x, j + 1)
        line = left + (right - left) * share
        is_kept = uniforms(pending) * _ENVELOPE * line <= np.exp(score - heights[at])
        drawn[pending[is_kept]] = x[is_kept]
        pending = pending[~is_kept]
    return drawn
