r"""Certified lower and upper bounds of node integrals (paper 2, section 4.2 and appendices C and D).

.. math:: M(a) = \log \int x^a \exp\Bigl(\sum_{j=1}^k \eta_j T_j(x) + B(x)\Bigr) d\mu(x)

is split into :math:`f(x) = \eta_1 x + B(x)`, whose integrals are known, and
:math:`g(x) = \sum_{j \ge 2} \eta_j x^{1/j} + a \log x`. On intervals where g is convex or concave, its secant and a
tangent are linear bounds, so that integrals of the base family bound the mass there.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from scipy import special
from torch import Tensor

from ...errors import check_not_negative, check_type, check_whole, out_of_reach, wrong_shape
from .bound_kernels import sum_zeros
from .families import GaussianFamily, NodeFamily
from .log_partition import node_moments
from .user_family import UserFamily

# Half lines, linear bounds on them and the masses under the lines: the parts of certified node bounds.
#
# Everything here is a pair of numbers that hold a true one between them: rounding errors are bounded and added
# outwards.

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
        # Sign of the second derivative at an inner point
        if low == 0:
            inner = 0.5 * high if math.isfinite(high) else 1.0
        else:
            inner = math.sqrt(low) * math.sqrt(high) if math.isfinite(high) else 2 * low
        is_concave = self.bend(inner) <= 0
        if self.is_flat or low == high:
            level = 0.0 if self.is_flat else self.g(low)
            slack = 16 * _EPSILON * self.size(low)
            below, above = Line(0.0, level - slack), Line(0.0, level + slack)
            return self._made(low, high, is_concave, [below], [above])
        # A secant on one side, the best of several tangents on the other.
        secant = self._secant(low, high, is_concave)
        points = {low, high} | {min(max(t, low), high) for t in tangents}
        lines = [self._tangent(t, high, is_concave) for t in sorted(points) if 0 < t < math.inf]
        return self._made(low, high, is_concave, *((secant, lines) if is_concave else (lines, secant)))

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
    # Ratios of neighbouring terms, up and down from the largest.
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
    # Standardised ends.
    scale = math.sqrt(-quadratic)
    z1, z2 = scale * low - slope / (2 * scale), scale * high - slope / (2 * scale)

    def exponent(x: float) -> float:
        return (quadratic * x + slope) * x

    size = abs(slope * low) + abs(quadratic) * low * low + slope * slope / (4 * scale * scale)
    # A short piece by Gauss-Legendre quadrature.
    if math.isfinite(high) and (z2 - z1) * (1 + max(abs(z1), abs(z2))) < 1.0:
        x = 0.5 * (low + high) + 0.5 * (high - low) * _NODES
        peak = max(exponent(low), exponent(high))
        values = np.exp((quadratic * x + slope) * x - peak)
        width = (high + low) / (high - low)
        return peak + math.log(0.5 * (high - low) * float(_WEIGHTS @ values)), size + width + abs(peak)
    # Else by error functions, scaled where both ends lie on one side of the mode.
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


@dataclass(frozen=True)
class NodeBounds:
    """Certified bounds of M(a) for a power a, in nats, with the lines that show it, from left to right.

    Attributes:
        halves: the integrands that the subdomains divide: one, or two for the Gaussian family.
    """

    lower: float
    upper: float
    power: float
    subdomains: tuple[Subdomain, ...]
    halves: tuple[HalfLine, ...]

    @property
    def error(self) -> float:
        """Upper less lower bound, nats."""
        return self.upper - self.lower


def node_bounds(
    family: NodeFamily, natural: Tensor | Sequence[float], power: float = 0.0, num_subdomains: int = 9
) -> NodeBounds:
    r"""Certified bounds of M(a); a = 0 gives bounds of the log partition function.

    The subdomain with the largest gap is split in two until there are enough, at the best of several places. The gap
    falls with about the square of the number of subdomains. The mean of :math:`|x|^a` is
    :math:`\exp(M(a) - M(0))`, so that bounds of both bound moments too. The bounds hold in floating point: lines and
    masses are moved outwards by a bound of their rounding errors. Where the highest powers are absent the root of the
    highest power present takes the place of x; for the Gaussian family each half line is bounded by itself.

    Args:
        family: the node family.
        natural: natural parameters :math:`\eta_1, ..., \eta_k` of one row, (k,).
        power: a, from 0; the power of \|x\|.
        num_subdomains: number of parts, from 1; there are never fewer than intervals of constant concavity.

    Raises:
        InputTypeError, InputError: an argument that cannot be used, or parameters whose density cannot be normalised.
        IntractableError: a mean count above 1e11.

    References:
        Inouye, Ravikumar, Dhillon (2016), Generalized root models, equations 15 to 18, section 4.2, appendix D. There
        E x^a = exp(M(a) - M(1)) is misprinted for M(0).

    Example:
        >>> from pyro_hoim.generalized_root import PoissonFamily
        >>> bounds = node_bounds(PoissonFamily(), [3.0232, -4.4966], num_subdomains=5)
        >>> round(bounds.lower, 2), round(bounds.upper, 2)
        (3.16, 3.4)
    """
    check_type(family, NodeFamily, "family")
    if isinstance(family, UserFamily):
        raise out_of_reach("family", f"there are no bounds for the {family.name} family, a user's", code="no-method")
    row = torch.as_tensor(natural, dtype=torch.float64).detach()
    if row.dim() != 1:
        raise wrong_shape("natural", "(k,) with k from 1", row)
    check_not_negative(power, "power")
    check_whole(num_subdomains, "num_subdomains")
    # Where the mass lies, for tangents and splits.
    moments = node_moments(family, row)
    eta: list[float] = row.tolist()
    halves = _half_lines(family, eta, float(power))
    assert moments.covariance is not None
    if family.is_discrete and moments.mean[0] > LARGEST_COUNT:
        problem = f"expected a mean count up to {LARGEST_COUNT:g}, received {float(moments.mean[0]):.3g}"
        raise out_of_reach("natural", problem, code="out-of-range")
    centre, spread = float(moments.mean[0]), math.sqrt(float(moments.covariance[0, 0]))
    if isinstance(family, GaussianFamily):
        centre, spread = math.sqrt(centre), math.sqrt(spread)
    # Intervals of constant concavity, split where the gap is largest.
    marks = {half: _marks(half, centre, spread) for half in halves}
    parts = [(half, half.subdomain(a, b, marks[half])) for half in halves for a, b in _regions(half)]
    while len(parts) < num_subdomains and (split := _split(parts, marks)):
        parts = split
    # Masses add up, rounded outwards.
    lower = _total([part.log_lower for _, part in parts], down=True)
    upper = _total([part.log_upper for _, part in parts], down=False)
    ordered = sorted((part for _, part in parts), key=lambda p: p.sign * p.high if p.sign < 0 else p.low)
    return NodeBounds(lower, upper, float(power), tuple(ordered), halves)


def _half_lines(family: NodeFamily, eta: list[float], power: float) -> tuple[HalfLine, ...]:
    """The integrand on x >= 0 (and on x <= 0, mirrored) in the standard form."""
    if family.is_discrete:
        rest = _powers(eta, 1, 1.0)
        return (HalfLine("count", eta[0], 0.0, *rest, power, last=family.largest_value),)
    # With a square term both half lines hold it and the linear one.
    is_gaussian = isinstance(family, GaussianFamily)
    top = 2.0 if is_gaussian else 1.0
    if is_gaussian and eta[0] != 0:
        rest = _powers(eta, 2, top)
        slope = eta[1] if len(eta) > 1 else 0.0
        return tuple(HalfLine("real", s * slope, eta[0], *rest, power, sign=s) for s in (-1, 1))
    # With u = x^q for the highest power q present, x^a dx = u^((a + 1) / q - 1) du / q, and eta u is linear.
    lead = next(j for j, e in enumerate(eta, 1) if e != 0)
    q = top / lead
    rest, logarithm = _powers(eta, lead, top, q), (power + 1) / q - 1
    return tuple(
        HalfLine("real", eta[lead - 1], 0.0, *rest, logarithm, -math.log(q), sign=s, lead=q)
        for s in ((-1, 1) if is_gaussian else (1,))
    )


def _powers(eta: list[float], lead: int, top: float, scale: float = 1.0) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Parameters behind a leading one that are not zero, and their powers."""
    rest = [(e, top / j / scale) for j, e in enumerate(eta, 1) if j > lead and e != 0]
    return tuple(e for e, _ in rest), tuple(p for _, p in rest)


def _marks(half: HalfLine, centre: float, spread: float) -> list[float]:
    """Places near which most of the mass lies, for tangents and splits; no bound depends on them."""
    places = [centre + t * spread for t in (-4.0, -2.0, -1.0, 0.0, 1.0, 2.0, 4.0, 8.0)]
    places += [centre * 10.0**t for t in (-4, -3, -2, -1, -0.5, 0.5, 1)]
    return sorted({min(p**half.lead, half.last) for p in places if p > 0})


def _regions(half: HalfLine) -> list[tuple[float, float]]:
    """Intervals of constant concavity; of counts, with whole numbers at their ends."""
    edges = [x for x in half.inflections() if half.first < x < half.last]
    if half.kind == "real":
        knots = [half.first, *edges, half.last]
        return list(itertools.pairwise(knots))
    starts = sorted({half.first, *(math.floor(edge) + 1.0 for edge in edges)})
    ends = [start - 1 for start in starts[1:]]
    return [(a, b) for a, b in zip(starts, [*ends, half.last], strict=True) if a <= b]


def _split(
    parts: list[tuple[HalfLine, Subdomain]], marks: dict[HalfLine, list[float]]
) -> list[tuple[HalfLine, Subdomain]] | None:
    """Split the subdomain with the largest gap where that leaves the smallest one; None if none can be split."""
    # The largest gap that can be split at all, at the place that leaves the smallest.
    by_gap = sorted(range(len(parts)), key=lambda i: -_log_gap(parts[i][1]))
    for i in by_gap:
        half, part = parts[i]
        best: tuple[float, Subdomain, Subdomain] | None = None
        for cut in _places(half, part, marks[half]):
            next_low = cut + 1 if half.kind == "count" else cut
            left = half.subdomain(part.low, cut, marks[half])
            right = half.subdomain(next_low, part.high, marks[half])
            gap = float(np.logaddexp(_log_gap(left), _log_gap(right)))
            if best is None or gap < best[0]:
                best = (gap, left, right)
        if best is not None:
            return [*parts[:i], (half, best[1]), (half, best[2]), *parts[i + 1 :]]
    return None


def _places(half: HalfLine, part: Subdomain, marks: list[float]) -> list[float]:
    """Places to split a subdomain at: near the mass, or half way."""
    wanted = [m for m in marks if part.low < m < part.high]
    if math.isfinite(part.high):
        wanted.append(0.5 * (part.low + part.high))
        wanted.append(math.sqrt(part.low * part.high) if part.low > 0 else 0.1 * part.high)
    else:
        wanted.append(2 * part.low + 1)
    if half.kind == "count":
        wanted = [float(math.floor(w)) for w in wanted]
        return sorted({w for w in wanted if part.low <= w < part.high})
    return sorted({w for w in wanted if part.low < w < part.high})


def _log_gap(part: Subdomain) -> float:
    """Log of upper mass less lower mass."""
    if part.log_lower == -math.inf or math.isinf(part.log_upper):
        return part.log_upper
    gap = -math.expm1(part.log_lower - part.log_upper)
    return part.log_upper + math.log(gap) if gap > 0 else -math.inf


def _total(logs: list[float], down: bool) -> float:
    """Log of the sum of masses, moved down or up by its rounding error."""
    total = float(np.logaddexp.reduce(logs))
    if not math.isfinite(total):
        return total
    slack = 8 * 2.3e-16 * (len(logs) + abs(total))
    return total - slack if down else total + slack
