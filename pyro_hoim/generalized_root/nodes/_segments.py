"""Half lines, linear bounds on them and the masses under the lines: the parts of certified node bounds.

Everything here is a pair of numbers that hold a true one between them: rounding errors are bounded and added outwards.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import special

from ._window_kernels import sum_zeros

_EPSILON = 2.220446049250313e-16
LARGEST_COUNT = 1e11
"""Means of counts beyond this are not bounded."""
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(20)


@dataclass(frozen=True)
class Line:
    """The function slope * x + intercept."""

    slope: float
    intercept: float


@dataclass(frozen=True)
class Subdomain:
    """A part of the domain, ends included, on which g is convex or concave, with lines below and above g.

    Attributes:
        sign: -1 for the negative half line of the Gaussian family, else 1.
        log_lower: log of a number below the mass; may be minus infinity.
        log_upper: log of a number above the mass.
    """

    low: float
    high: float
    sign: int
    is_concave: bool
    lower_line: Line
    upper_line: Line
    log_lower: float
    log_upper: float


@dataclass(frozen=True)
class HalfLine:
    """The integrand of M(a) on x from 0, exp(f + g).

    f(x) = quadratic x^2 + linear x + B(x) and g(x) = sum of coefs x^powers + logarithm log x, powers descending between
    0 and 1. ``constant`` is the log of a factor of the whole; ``lead`` is the power of the variable that x stands for.
    """

    kind: Literal["count", "real"]
    linear: float
    quadratic: float
    coefs: tuple[float, ...]
    powers: tuple[float, ...]
    logarithm: float
    constant: float = 0.0
    last: float = math.inf
    sign: int = 1
    lead: float = 1.0

    @property
    def first(self) -> float:
        """Left end; a count of 0 has no mass where g holds a logarithm."""
        return 1.0 if self.kind == "count" and self.logarithm > 0 else 0.0

    @property
    def is_flat(self) -> bool:
        """Whether g is zero."""
        return not self.coefs and self.logarithm == 0

    @property
    def terms(self) -> list[tuple[float, float]]:
        """Coefficients and powers of g."""
        return list(zip(self.coefs, self.powers, strict=True))

    def g(self, x: float) -> float:
        """Value of g."""
        if x == 0:
            return -math.inf if self.logarithm > 0 else 0.0
        return math.fsum(c * x**p for c, p in self.terms) + (self.logarithm * math.log(x) if self.logarithm else 0.0)

    def size(self, x: float) -> float:
        """Sum of the moduli of g's terms, to which its rounding error is proportional."""
        return sum(abs(c) * x**p for c, p in self.terms) + abs(self.logarithm * math.log(x)) if x else 0.0

    def slope(self, x: float) -> float:
        """Derivative of g at x > 0."""
        return math.fsum(c * p * x ** (p - 1) for c, p in self.terms) + self.logarithm / x

    def bend(self, x: float) -> float:
        """x^2 times the second derivative of g."""
        return math.fsum(c * p * (p - 1) * x**p for c, p in self.terms) - self.logarithm

    def inflections(self) -> list[float]:
        """Places where g changes from convex to concave or back, ascending."""
        if self.is_flat:
            return []
        bends = np.array([-self.logarithm, *(c * p * (p - 1) for c, p in self.terms)])
        powers, out = np.array([0.0, *self.powers]), np.empty(len(bends) + 3)
        order = np.argsort(powers)
        count = sum_zeros(bends[order], powers[order], 0.0, -600.0, 600.0, out)
        return [math.exp(y) for y in out[:count]]

    def subdomain(self, low: float, high: float, tangents: Iterable[float]) -> Subdomain:
        """Linear bounds of g on an interval of constant concavity, the tightest of those at some tangent points."""
        is_concave = self._is_concave(low, high)
        if self.is_flat or low == high:
            level = 0.0 if self.is_flat else self.g(low)
            slack = 16 * _EPSILON * self.size(low)
            below, above = Line(0.0, level - slack), Line(0.0, level + slack)
            return self._made(low, high, is_concave, [below], [above])
        secant = self._secant(low, high, is_concave)
        points = {low, high} | {min(max(t, low), high) for t in tangents}
        lines = [self._tangent(t, high, is_concave) for t in sorted(points) if 0 < t < math.inf]
        return self._made(low, high, is_concave, *((secant, lines) if is_concave else (lines, secant)))

    def _is_concave(self, low: float, high: float) -> bool:
        """Sign of the second derivative at an inner point."""
        if low == 0:
            inner = 0.5 * high if math.isfinite(high) else 1.0
        else:
            inner = math.sqrt(low) * math.sqrt(high) if math.isfinite(high) else 2 * low
        return self.bend(inner) <= 0

    def _secant(self, low: float, high: float, is_concave: bool) -> list[Line]:
        """Line through both ends, or the constant at the left end of a tail; moved to the safe side."""
        side = -1.0 if is_concave else 1.0
        left = self.g(low)
        if left == -math.inf:
            return []  # no line lies below a logarithm at 0
        if math.isinf(high):
            return [Line(0.0, left + side * 16 * _EPSILON * self.size(low))]
        right = self.g(high)
        slope = (right - left) / (high - low)
        slack = 32 * _EPSILON * (self.size(low) + self.size(high) + abs(slope) * high)
        return [Line(slope, left - slope * low + side * slack)]

    def _tangent(self, at: float, high: float, is_concave: bool) -> Line:
        """Tangent at a point, moved to the safe side; in a tail it is turned too."""
        side = 1.0 if is_concave else -1.0
        slope = self.slope(at)
        reach = high if math.isfinite(high) else at
        slack = 32 * _EPSILON * (self.size(at) + abs(slope) * (reach + at))
        if math.isinf(high):
            slope += side * 8 * _EPSILON * self.size(at) / at
        return Line(slope, self.g(at) - slope * at + side * slack)

    def _made(self, low: float, high: float, is_concave: bool, below: list[Line], above: list[Line]) -> Subdomain:
        """The subdomain with the best of several lines on either side."""
        lower, upper = [(-math.inf, Line(0.0, -math.inf))], [(math.inf, Line(0.0, math.inf))]
        for side, lines, found in ((-1, below, lower), (1, above, upper)):
            for line in lines:
                mass, error = log_mass(self, line, low, high)
                found.append((mass + side * error, line))
        lowest, highest = max(lower, key=operator.itemgetter(0)), min(upper, key=operator.itemgetter(0))
        return Subdomain(low, high, self.sign, is_concave, lowest[1], highest[1], lowest[0], highest[0])


def log_mass(half: HalfLine, line: Line, low: float, high: float) -> tuple[float, float]:
    """Log of the integral of exp(f + line) from low to high, and a bound of its error."""
    slope = half.linear + line.slope
    constant = half.constant + line.intercept
    if half.kind == "count":
        value, size = _count_mass(slope, low, high)
    elif half.quadratic == 0:
        value, size = _exponential_mass(slope, low, high)
    else:
        value, size = _gaussian_mass(half.quadratic, slope, low, high)
    return constant + value, _EPSILON * (64 + 8 * (abs(constant) + size))


def _count_mass(slope: float, low: float, high: float) -> tuple[float, float]:
    """Log of the sum of exp(slope x) / x! over low, ..., high: terms beside the largest until they are negligible."""
    rate = math.exp(min(slope, 700.0))
    top = min(max(math.floor(rate), low), high)
    if top > LARGEST_COUNT:
        return 0.0, math.inf  # a steep tangent: it says nothing
    reach = math.ceil(10 * math.sqrt(top) + 60)
    up = np.arange(1.0, min(reach, high - top) + 1)
    down = np.arange(0.0, min(reach, top - low))
    above = np.exp(np.cumsum(slope - np.log(top + up)))
    below = np.exp(np.cumsum(np.log(top - down) - slope)) if slope > -700 else np.zeros(0)
    total = 1.0 + above.sum() + below.sum()
    value = slope * top - math.lgamma(top + 1) + math.log(total)
    terms = (above.size + below.size) * (abs(slope) + math.log(top + reach))
    left_out = 1e-17 / _EPSILON if (above.size == reach or below.size == reach) else 0.0
    return value, abs(slope) * top + math.lgamma(top + 1) + terms + left_out


def _exponential_mass(slope: float, low: float, high: float) -> tuple[float, float]:
    """Log of the integral of exp(slope x)."""
    if math.isinf(high):
        return (slope * low - math.log(-slope), abs(slope * low)) if slope < 0 else (math.inf, 0.0)
    t = slope * (high - low)
    if abs(t) < 1e-8:
        value = slope * low + math.log(high - low) + t / 2
    elif t < 0:
        value = slope * low + math.log(-math.expm1(t)) - math.log(-slope)
    else:
        value = slope * high + math.log(-math.expm1(-t)) - math.log(slope)
    return value, abs(slope) * max(abs(low), abs(high)) * 2 + (high + low) / (high - low)


def _gaussian_mass(quadratic: float, slope: float, low: float, high: float) -> tuple[float, float]:
    """Log of the integral of exp(quadratic x^2 + slope x) with a negative quadratic term."""
    scale = math.sqrt(-quadratic)
    z1, z2 = scale * low - slope / (2 * scale), scale * high - slope / (2 * scale)

    def exponent(x: float) -> float:
        return (quadratic * x + slope) * x

    size = abs(slope * low) + abs(quadratic) * low * low + slope * slope / (4 * scale * scale)
    if math.isfinite(high) and (z2 - z1) * (1 + max(abs(z1), abs(z2))) < 1.0:
        x = 0.5 * (low + high) + 0.5 * (high - low) * _NODES
        peak = max(exponent(low), exponent(high))
        values = np.exp((quadratic * x + slope) * x - peak)
        width = (high + low) / (high - low)
        return peak + math.log(0.5 * (high - low) * float(_WEIGHTS @ values)), size + width + abs(peak)
    if z2 < 0:  # mirrored: the larger end comes first
        near, far, start = -z2, -z1, exponent(high)
    elif z1 > 0:
        near, far, start = z1, z2, exponent(low)
    else:
        inner = math.erf(-z1) + math.erf(z2)
        value = math.log(0.5 * math.sqrt(math.pi) / scale * inner)
        return slope * slope / (4 * scale * scale) + value, size + 16
    gap = min((far - near) * (far + near), 800.0)  # beyond, the far end is nothing
    whole = float(special.erfcx(near))
    rest = whole - (float(special.erfcx(far)) * math.exp(-gap) if math.isfinite(far) else 0.0)
    size += (16 + 2 * gap * math.exp(-gap)) * whole / rest
    return start + math.log(0.5 * math.sqrt(math.pi) / scale * rest), size
