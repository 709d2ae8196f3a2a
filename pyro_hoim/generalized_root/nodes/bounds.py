r"""Certified lower and upper bounds of node integrals (paper 2, section 4.2 and appendices C and D).

.. math:: M(a) = \log \int x^a \exp\Bigl(\sum_{j=1}^k \eta_j T_j(x) + B(x)\Bigr) d\mu(x)

is split into :math:`f(x) = \eta_1 x + B(x)`, whose integrals are known, and
:math:`g(x) = \sum_{j \ge 2} \eta_j x^{1/j} + a \log x`. On intervals where g is convex or concave, its secant and a
tangent are linear bounds, so that integrals of the base family bound the mass there.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ...errors import check_not_negative, check_type, check_whole, out_of_reach, wrong_shape
from ._segments import LARGEST_COUNT, HalfLine, Line, Subdomain
from .families import GaussianFamily, NodeFamily
from .log_partition import node_moments
from .user import UserFamily

__all__ = ["Line", "NodeBounds", "Subdomain", "node_bounds"]


@dataclass(frozen=True)
class NodeBounds:
    """Certified bounds of M(a) for a power a, in nats, with the lines that show it, from left to right.

    Attributes:
        halves: the integrands that the subdomains divide: one, or two for the Gaussian family.

    Example:
        >>> from pyro_hoim.generalized_root import PoissonFamily
        >>> bounds = node_bounds(PoissonFamily(), [3.0, -4.5], num_subdomains=5)
        >>> finer = node_bounds(PoissonFamily(), [3.0, -4.5], num_subdomains=20)
        >>> round(bounds.error, 2), round(finer.error, 2)
        (0.31, 0.0)
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
    marks = {half: _marks(half, centre, spread) for half in halves}
    parts = [(half, half.subdomain(a, b, marks[half])) for half in halves for a, b in _regions(half)]
    while len(parts) < num_subdomains and (split := _split(parts, marks)):
        parts = split
    lower = _total([part.log_lower for _, part in parts], down=True)
    upper = _total([part.log_upper for _, part in parts], down=False)
    ordered = sorted((part for _, part in parts), key=lambda p: p.sign * p.high if p.sign < 0 else p.low)
    return NodeBounds(lower, upper, float(power), tuple(ordered), halves)


def _half_lines(family: NodeFamily, eta: list[float], power: float) -> tuple[HalfLine, ...]:
    """The integrand on x >= 0 (and on x <= 0, mirrored) in the standard form."""
    if family.is_discrete:
        rest = _powers(eta, 1, 1.0)
        return (HalfLine("count", eta[0], 0.0, *rest, power, last=family.largest_value),)
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
    by_gap = sorted(range(len(parts)), key=lambda i: -_log_gap(parts[i][1]))
    for i in by_gap:
        half, part = parts[i]
        best: tuple[float, Subdomain, Subdomain] | None = None
        for place in _places(half, part, marks[half]):
            next_low = place + 1 if half.kind == "count" else place
            left = half.subdomain(part.low, place, marks[half])
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
