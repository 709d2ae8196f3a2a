"""Grids of values for every variable of a generalized root model: windows of counts, or nodes of a quadrature."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ...errors import IntractableError, out_of_reach, size_text
from ..nodes.families import NodeFamily
from ._envelope import Bounds, Floats, Terms, bounds_of, product_below

_MAX_POINTS = 2**22  # values of one count that are looked at
_POINTS = 4096  # of a profile of a real variable
_DEPTH = 300.0  # nats below its largest value down to which a profile is followed at first


@dataclass(frozen=True)
class Window:
    """Values of a variable that matter: whole numbers lower..upper, or the interval in u with x = u^power."""

    lower: float
    upper: float
    power: int
    splits: tuple[float, ...] = ()

    @property
    def num_values(self) -> int:
        """Number of whole numbers inside."""
        return int(self.upper - self.lower) + 1


class Grid(NamedTuple):
    """Values (n,) of a variable with the log of base measure times weight of each (n,)."""

    values: Floats
    log_weights: Floats


def windows_of(terms: Terms, tolerance: float) -> tuple[list[Window], float]:
    """Windows of all variables outside of which less than ``tolerance`` of Z lies, and a lower bound of log Z."""
    is_bounded = math.isfinite(terms.family.largest_value)
    if is_bounded and not terms.family.is_discrete:
        problem = f"no grid for interacting numbers up to a maximum, as those of the {terms.family.name} family"
        raise out_of_reach("RootEnumeration", problem, "use RootAnnealed()", code="no-method")
    if is_bounded and terms.family.largest_value < 64:
        top = terms.family.largest_value  # all values of a short range: nothing is left out
        return [Window(0.0, top, 1)] * terms.size, -math.inf
    below, means = product_below(terms)
    candidates = bounds_of(terms, means)
    if not candidates:
        problem = "found no product law above the model, near the edge of normalisability, to end the grid"
        raise out_of_reach("RootEnumeration", problem, "use RootAnnealed()", code="no-method")
    found: list[tuple[float, list[_Profile], Bounds]] = []
    failures: list[IntractableError] = []
    for bounds in candidates:
        try:
            profiles = [_profile(terms, bounds, s, _DEPTH) for s in range(terms.size)]
        except IntractableError as error:  # another product may be narrower
            failures.append(error)
        else:
            found.append((sum(p.log_total for p in profiles), profiles, bounds))
    if not found:
        raise failures[0]
    _, best, chosen = min(found, key=lambda item: item[0])
    excess = sum(p.log_total for p in best) - below
    if excess + 60 > _DEPTH:
        best = [_profile(terms, chosen, s, excess + 60) for s in range(terms.size)]
        excess = sum(p.log_total for p in best) - below
    cut = math.log(tolerance / (2 * max(terms.size, 1))) - max(excess, 0.0)
    return [profile.cut(cut) for profile in best], below


@dataclass(frozen=True)
class _Profile:
    """Function of one variable on points (n,): log of its value times the length that each point stands for."""

    points: Floats
    log_values: Floats
    log_total: float
    spacing: float
    power: int
    splits: tuple[float, ...]

    def cut(self, log_share: float) -> Window:
        """The window that leaves out at most this share of the total at either end."""
        relative = self.log_values - self.log_total
        ahead = np.logaddexp.accumulate(relative)
        behind = np.logaddexp.accumulate(relative[::-1])[::-1]
        first = max(int(np.searchsorted(ahead, log_share)) - 1, 0)
        last = min(int(np.searchsorted(-behind, -log_share)) + 1, len(relative) - 1)
        lower = float(self.points[first]) - self.spacing / 2
        upper = float(self.points[last]) + self.spacing / 2
        return Window(lower, upper, self.power, tuple(s for s in self.splits if lower < s < upper))


def _profile(terms: Terms, bounds: Bounds, variable: int, depth: float) -> _Profile:
    if terms.family.is_discrete:
        return _count_profile(terms.family, bounds, variable, depth)
    return _real_profile(terms, bounds, variable, depth)


def _count_profile(family: NodeFamily, bounds: Bounds, variable: int, depth: float) -> _Profile:
    """Every count up to one after which the function, at coarse points, stays ``depth`` nats below its top."""
    limit = family.largest_value
    probes = np.unique(np.concatenate([np.arange(64.0), np.floor(np.geomspace(64, 1e15, 600))]))
    probes = probes[probes <= limit]
    values = bounds.log_above(family, variable, probes)
    if not math.isfinite(values.max()):
        problem = f"the weights of variable number {variable} exceed the largest floating-point number"
        raise out_of_reach("RootEnumeration", problem, "use RootAnnealed(), or smaller psi")
    last = float(probes[min(int(np.flatnonzero(values >= values.max() - depth)[-1]) + 1, len(probes) - 1)])
    if last >= _MAX_POINTS:
        problem = f"counts up to {last:.3g} matter for variable number {variable}, more than {size_text(_MAX_POINTS)}"
        raise out_of_reach("RootEnumeration", problem, "use RootAnnealed()")
    x = np.arange(min(last, limit) + 1)
    values = bounds.log_above(family, variable, x)
    return _Profile(x, values, float(np.logaddexp.reduce(values)), 0.0, 1, ())


def _real_profile(terms: Terms, bounds: Bounds, variable: int, depth: float) -> _Profile:
    family, signed = terms.family, terms.is_two_sided
    power, splits = smooth_power(family, tuple(sorted({j for j, _, _ in terms.parts})))

    def log_value(u: Floats) -> Floats:
        values = np.sign(u) * np.abs(u) ** power
        with np.errstate(divide="ignore"):
            jacobian = np.log(power) + (power - 1) * np.log(np.abs(u)) if power > 1 else np.zeros_like(u)
        return bounds.log_above(family, variable, values) + jacobian

    sizes = np.geomspace(1e-15, 1e15, 2000) ** (1 / power)  # a thirtieth apart in x; a narrow top may be missed,
    probes = log_value(np.concatenate([-sizes[::-1], sizes]) if signed else sizes)  # which takes the ends further out
    high = probes > probes.max() - depth
    high = high[len(sizes) :] | high[: len(sizes)][::-1] if signed else high
    last = int(np.flatnonzero(high)[-1]) + 1
    if last >= len(sizes):
        problem = f"variable number {variable} has a law too wide for a grid"
        raise out_of_reach("RootEnumeration", problem, "use RootAnnealed()", code="no-method")
    edge = float(sizes[last])
    lower, upper = (-edge if signed else 0.0), edge
    points, values = np.zeros(0), np.zeros(0)
    for _ in range(12):
        points = lower + (upper - lower) * (np.arange(_POINTS) + 0.5) / _POINTS
        values = log_value(points)
        inside = np.flatnonzero(values > values.max() - depth)
        first, last = max(int(inside[0]) - 1, 0), min(int(inside[-1]) + 1, _POINTS - 1)
        if last - first > _POINTS // 2:
            break
        half = (upper - lower) / _POINTS / 2
        lower, upper = float(points[first]) - half, float(points[last]) + half
    spacing = (upper - lower) / _POINTS
    scaled = np.asarray(values + math.log(spacing))
    return _Profile(points, scaled, float(np.logaddexp.reduce(scaled)), spacing, power, splits)


@lru_cache(maxsize=64)
def smooth_power(family: NodeFamily, roots: tuple[int, ...]) -> tuple[int, tuple[float, ...]]:
    """Power m of x = u^m that makes all roots analytic in u, and where two pieces have to meet all the same.

    With T_1 = x the roots are whole powers of u for m the least common multiple of the orders. With T_1 = x squared
    they are :math:`|u|^{2 m / j}`, and an odd m with every 2 m / j even leaves nothing to split.
    """
    if family.name != "gaussian":
        splits = (0.0,) if family.kind == "real" else ()
        return (math.lcm(*roots) if roots else 1), splits
    power = math.lcm(*(j // math.gcd(2, j) for j in roots)) if roots else 1
    is_smooth = power % 2 == 1 and all(j <= 2 or (2 * power // j) % 2 == 0 for j in roots)
    return power, () if is_smooth else (0.0,)


def grid_of(family: NodeFamily, window: Window, num_nodes: int) -> Grid:
    """All whole numbers of a window, or Gauss-Legendre nodes, ``num_nodes`` over all its pieces."""
    if family.is_discrete:
        values = np.arange(window.lower, window.upper + 1)
        return Grid(values, np.zeros_like(values))
    ends = [window.lower, *window.splits, window.upper]
    nodes, weights = _legendre(max(num_nodes // (len(ends) - 1), 2))
    left, width = np.array(ends[:-1])[:, None], np.diff(ends)[:, None]
    u, weight = (left + width * (nodes + 1) / 2).ravel(), (width / 2 * weights).ravel()
    jacobian = window.power * np.abs(u) ** (window.power - 1)
    return Grid(np.sign(u) * np.abs(u) ** window.power, np.log(weight * np.maximum(jacobian, 1e-300)))


@lru_cache(maxsize=64)
def _legendre(count: int) -> tuple[Floats, Floats]:
    """Nodes and weights of Gauss and Legendre on [-1, 1]."""
    return np.polynomial.legendre.leggauss(count)
