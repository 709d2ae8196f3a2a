"""Sums over grids: generalized root models of few variables, or whose interactions form a thin graph."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from typing_extensions import override

from ...core.partition import Cost, LogPartition
from ...core.words import in_python
from ...errors import ErrorCode, InputError, IntractableError, check_whole, out_of_range, out_of_reach, size_text
from ..energy import GeneralizedRootEnergy
from ..nodes.columns import Families, NodeFamilies, root_range
from ..nodes.families import NodeFamily
from ..nodes.integrability_kernels import decays
from ..nodes.log_partition import node_moments
from ..nodes.user_family import UserFamily
from ..normalizability.form import Form, ascend, local_maximum
from ..structure import RootStructure, TermGroup, terms_where
from .base import ExactRoot, checked_psi, element_rows, joined_states, root_result, split_moments

# A product law above and a product law below a generalized root model: how far out its grid has to reach.
#
# Below: the mean-field bound :math:`\log Z \ge \mathrm{E}_p \log q + H(p)` of a product p of node laws. Above: an
# interaction is at most a sum over its variables, by the weighted inequality of the means,
#
# .. math:: c \prod_{s \in S} y_s^{1/j} \le \frac{c^+}{\ell} \Bigl(\prod_{t \in S} w_t\Bigr)^{r / \ell}
#           \sum_{s \in S} (y_s / w_s)^r, \qquad r = \ell / j, \quad y = T_1(x), \quad w > 0,
#
# so that q is at most a product of functions of one variable. What lies outside a box then weighs at most what the
# product does there, over the lower bound. Equality holds along y = w. Members with a short range of values, which is
# taken whole, give way to their largest value before; what is left of a term then has a lower power, or is a number.

Floats = NDArray[np.float64]

_SWEEPS = 30
_SMALL_GAIN = 1e-2  # nats


@dataclass(frozen=True)
class Terms:
    """Terms of one element of a batch: those of one variable (d, k), and those that are not zero by key."""

    families: NodeFamilies
    size: int
    singles: Floats
    parts: tuple[TermGroup, ...]

    @classmethod
    def of(cls, structure: RootStructure, families: NodeFamilies, psi: torch.Tensor) -> Terms:
        """Terms of psi (num_terms,)."""
        coefficients = psi.detach().double().cpu() * structure.multiplicity
        singles, parts = structure.single_natural(coefficients).numpy(), structure.nonzero(coefficients.numpy())
        return cls(families, len(structure.domain), singles, tuple(parts))

    @functools.cached_property
    def is_signed(self) -> NDArray[np.bool_]:
        """Whether values lie on the whole line and T_1 is their square, by variable."""
        return np.array([family.name == "gaussian" for family in self.families], dtype=bool)

    @functools.cached_property
    def is_short(self) -> NDArray[np.bool_]:
        """Whether all values of a variable are taken."""
        return np.array([f.is_discrete and f.largest_value < _SHORT for f in self.families], dtype=bool)

    @functools.cached_property
    def is_number(self) -> NDArray[np.bool_]:
        """Whether a variable is real, of a family of the library."""
        return np.array([not (f.is_discrete or isinstance(f, UserFamily)) for f in self.families], dtype=bool)

    def interactions(self) -> list[TermGroup]:
        """The parts with two or more variables."""
        return [part for part in self.parts if part.size > 1]


@dataclass(frozen=True)
class Bounds:
    """A product above q, by variable: singles (d, k) as they are, and ``slopes`` (d, R) of powers ``ratios`` of y.

    ``constant`` is the log of a further factor.
    """

    singles: Floats
    ratios: tuple[float, ...]
    slopes: Floats
    constant: float = 0.0

    def log_above(self, family: NodeFamily, variable: int, x: Floats) -> Floats:
        """Logarithm of the function of one variable, base measure included, at values (n,)."""
        # Terms of the variable itself, then what interactions are bounded by.
        values = torch.from_numpy(x)
        total = (family.roots(values, self.singles.shape[1]).numpy() @ self.singles[variable]).astype(np.float64)
        total += family.log_base(values).numpy()
        y = family.root(values, 1).numpy()
        for ratio, slope in zip(self.ratios, self.slopes[variable], strict=True):
            if slope:
                total += slope * y**ratio
        return total

    def decays(self, terms: Terms) -> bool:
        """Whether every function of one variable is integrable: its highest power with a coefficient is negative."""
        powers = sorted({*self.ratios, *(1 / j for j in range(1, self.singles.shape[1] + 1))}, reverse=True)
        for s, natural in enumerate(self.singles):
            if not terms.is_number[s]:  # whose profiles show whether they end
                continue
            slope = dict.fromkeys(powers, 0.0)
            for j, value in enumerate(natural, 1):
                slope[1 / j] += abs(value) if terms.is_signed[s] and j == 2 else value
            for ratio, value in zip(self.ratios, self.slopes[s], strict=True):
                slope[ratio] += value
            if not decays(np.array([slope[r] for r in powers])):
                return False
        return True


def product_below(terms: Terms) -> tuple[float, Floats]:
    """Lower bound of log Z by coordinate ascent over products of node laws, and their means of T_1 (d,)."""
    # Interactions by variable, and the node laws without them.
    natural = terms.singles
    adjacent: list[list[tuple[int, NDArray[np.int64], float]]] = [[] for _ in range(terms.size)]
    for j, rows, values in terms.interactions():
        for row, value in zip(rows, values, strict=True):
            for s in row:
                adjacent[s].append((j, row[row != s], float(value)))
    field = natural.copy()
    first = _nodes(terms, field)
    if first is None:
        problem = "the terms of single variables alone have no finite constant, and the search for a grid starts there"
        raise out_of_reach("RootEnumeration", problem, "give every variable terms of its own", code="no-method")
    value, means = first

    # The mean-field bound, and its ascent in one node law at a time.
    def bound() -> float:
        total = float((value - ((field - natural) * means).sum(1)).sum())
        return total + sum(
            float((values * means[rows, j - 1].prod(1)).sum()) for j, rows, values in terms.interactions()
        )

    best = bound()
    for _ in range(_SWEEPS if terms.interactions() else 0):
        for s, interactions in enumerate(adjacent):
            if not interactions:
                continue
            row = natural[s].copy()
            for j, others, coefficient in interactions:
                row[j - 1] += coefficient * means[others, j - 1].prod()
            if not np.isfinite(row).all():
                return best, means[:, 0]
            field[s] = row
            if terms.families.is_category(unit := terms.families.block_of(s)):  # all levels of a category move together
                node = terms.families.at(unit.tolist()).moments(torch.from_numpy(field[unit]), False)
                value[unit], means[unit] = node.value.numpy(), node.mean.numpy()
                continue
            if (law := _nodes(terms, row[None], s)) is None:
                return best, means[:, 0]
            value[s : s + 1], means[s : s + 1] = law
        bound_now = bound()
        if not bound_now > best + _SMALL_GAIN:
            best = max(best, bound_now)
            break
        best = bound_now
    return best, means[:, 0]


def _nodes(terms: Terms, natural: Floats, s: int | None = None) -> tuple[Floats, Floats] | None:
    """Log partitions (n,) and means of roots (n, k) of node laws at (n, k), of one variable or all; None: infinite."""
    eta = torch.from_numpy(np.ascontiguousarray(natural))
    try:
        laws = terms.families.moments(eta, False) if s is None else node_moments(terms.families[s], eta, hessian=False)
    except InputError:
        return None
    return laws.value.numpy().copy(), laws.mean.numpy().copy()


def bounds_of(terms: Terms, means: Floats) -> list[Bounds]:
    """Products above q, those that decay only: tight near the means, and tight where the leading power is largest."""
    weights = [np.maximum(means, 1e-3 * max(float(means.max(initial=0.0)), 1e-300)) + 1e-300]
    form = _leading(terms).upper()  # signs made positive
    if form.sets:  # by Euler's identity no slope of the weights that maximise it exceeds it
        weights.append(np.maximum(ascend(form, np.full(terms.size, 1 / terms.size)), 1e-12))
    weights.append(np.ones(terms.size))
    # The factorial of an unbounded count bears what would be too much for a real number.
    if terms.is_number.any() and not (terms.is_number | terms.is_short).all():
        weights += [np.where(terms.is_number, w, share * w) for w in weights for share in (0.1, 0.01, 1e-3)]
    candidates = [_separated(terms, w) for w in weights]
    good = [bounds for bounds in candidates if bounds.decays(terms)]
    if not good and terms.is_number.any():
        shifted = (_with_signs(terms, w) for w in weights)
        good = list(itertools.islice((b for b in shifted if b is not None and b.decays(terms)), 1))
    return good


def _separated(terms: Terms, weights: Floats, has_leading: bool = True) -> Bounds:
    """The product by the weighted inequality of the means, of all terms or of those outside the leading form."""
    # A power of y for every ratio of size to root.
    groups, constant = _above(terms)
    ratios = tuple(sorted({rows.shape[1] / j for j, rows, _ in groups}, reverse=True))
    slopes = np.zeros((terms.size, len(ratios)))
    for j, rows, largest in groups:
        length = rows.shape[1]
        ratio = length / j
        if ratio == 1 and not has_leading:
            is_other = ~terms.is_number[rows].all(1)
            rows, largest = rows[is_other], largest[is_other]
        logs = np.log(weights[rows])
        share = largest[:, None] / length * np.exp(ratio * (logs.mean(1, keepdims=True) - logs))
        np.add.at(slopes[:, ratios.index(ratio)], rows, share)
    return Bounds(terms.singles, ratios, slopes, constant)


def _above(terms: Terms) -> tuple[list[TermGroup], float]:
    """Interactions with weights (m,) from 0 that are no smaller, short members at their largest values; a constant."""
    groups, constant = list[TermGroup](), 0.0
    for j, rows, values in terms.interactions():
        is_signed = terms.is_signed.copy() if j == 2 else np.zeros(terms.size, dtype=bool)
        for family, places in terms.families.groups:
            if isinstance(family, UserFamily) and family.signed_roots is not None:
                is_signed[places] = True
        largest = np.where(np.any(is_signed[rows], axis=1), np.abs(values), np.maximum(values, 0))  # whatever the signs
        is_short = terms.is_short[rows]
        if not is_short.any():
            groups.append(TermGroup(j, rows, largest))
            continue
        factor = np.zeros(terms.size)
        for s in np.flatnonzero(terms.is_short):
            factor[s] = max(map(abs, root_range(terms.families[int(s)], j)))
        largest = largest * np.where(is_short, factor[rows], 1.0).prod(1)
        # By the number of members that are left.
        for left in range(rows.shape[1] + 1):
            chosen = (~is_short).sum(1) == left
            if left == 0:
                constant += float(largest[chosen].sum())
            elif chosen.any():
                members = rows[chosen][~is_short[chosen]].reshape(-1, left)
                groups.append(TermGroup(j, members, largest[chosen]))
    return groups, constant


def _leading(terms: Terms) -> Form:
    """The form of the leading power in real numbers, whose maximum the slopes of a product have to reach."""
    is_inner = terms.is_number if terms.is_number.any() else np.ones(terms.size, dtype=bool)
    parts = terms_where([part for part in terms.parts if part.power == 1], lambda rows: is_inner[rows].all(1))
    return Form.of_terms(parts, np.full(terms.size, terms.is_signed.any()))


def _with_signs(terms: Terms, weights: Floats) -> Bounds | None:
    r"""Bounds of leading power :math:`\lambda \sum_s y_s`, with its largest value from many starts, no certificate."""
    numbers = np.flatnonzero(terms.is_number)
    form = _leading(terms).restricted(numbers)
    largest = max(local_maximum(form)[0], float(terms.singles[numbers, 0].max()))
    if largest >= 0:
        return None
    bounds = _separated(terms, weights, has_leading=False)
    singles = bounds.singles.copy()
    singles[numbers, 0] = 0.99 * largest
    return Bounds(singles, bounds.ratios, bounds.slopes, bounds.constant)


# Grids of values for every variable of a generalized root model: windows of counts, or nodes of a quadrature.

_MAX_POINTS = 2**22  # values of one count that are looked at
_POINTS = 4096  # of a profile of a real variable
_SHORT = 64  # largest count up to which all are taken
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
    """Points (n, m) of variables that are summed together, usually one, with the log of the weight of each (n,)."""

    values: Floats
    log_weights: Floats
    places: tuple[int, ...]


def _refusal(problem: str, hint: str = "use RootAnnealed()", code: ErrorCode | None = None) -> IntractableError:
    """Why a sum is out of reach, with what to do about it in Python."""
    return out_of_reach(in_python("RootEnumeration", "exact sums"), problem, in_python(hint) or None, code=code)


@lru_cache(maxsize=1024)
def windows_of(
    structure: RootStructure, families: NodeFamilies, content: bytes, tolerance: float
) -> tuple[list[Window], float]:
    """Windows of all variables outside of which less than ``tolerance`` of Z lies, and a lower bound of log Z.

    Psi is given as bytes, for planning and computing ask for the same windows.
    """
    psi = torch.frombuffer(bytearray(content), dtype=torch.float64) if content else torch.zeros(0).double()
    terms = Terms.of(structure, families, psi)
    # Short ranges of counts are taken whole: nothing is left out.
    for family, _ in families.groups:
        if math.isfinite(family.largest_value) and not family.is_discrete:
            problem = f"no grid for interacting numbers up to a maximum, as those of the {family.name} family"
            raise _refusal(problem, code="no-method")
    if terms.is_short.all():
        return [Window(0.0, top, 1) for top in families.largest_values], -math.inf
    # Else the narrowest of several products above says how far out to go.
    below, means = product_below(terms)
    candidates = bounds_of(terms, means)
    if not candidates:
        problem = "found no product law above the model, near the edge of normalisability, to end the grid"
        raise _refusal(problem, code="no-method")
    profiled: list[tuple[float, list[_Profile], Bounds]] = []
    failures: list[IntractableError] = []
    for bounds in candidates:
        try:
            profiles = [_profile(terms, bounds, s, _DEPTH) for s in range(terms.size)]
        except IntractableError as error:  # another product may be narrower
            failures.append(error)
        else:
            profiled.append((bounds.constant + sum(p.log_total for p in profiles), profiles, bounds))
    if not profiled:
        raise failures[0]
    # Profiles that reach deep enough are cut where too little is left.
    above, best, chosen = min(profiled, key=lambda item: item[0])
    excess = above - below
    if excess + 60 > _DEPTH:
        best = [_profile(terms, chosen, s, excess + 60) for s in range(terms.size)]
        excess = chosen.constant + sum(p.log_total for p in best) - below
    cut = math.log(tolerance / (2 * max(terms.size, 1))) - max(excess, 0.0)
    windows = [profile.cut(cut) for profile in best]
    for s in np.flatnonzero(terms.is_short).tolist():
        windows[s] = Window(0.0, families.largest_values[s], 1)
    return windows, below


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
    family = terms.families[variable]
    if family.is_discrete:
        # Every count up to one after which the function, at coarse points, stays `depth` nats below its top
        limit = family.largest_value
        probes = np.unique(np.concatenate([np.arange(64.0), np.floor(np.geomspace(64, 1e15, 600))]))
        probes = probes[probes <= limit]
        values = bounds.log_above(family, variable, probes)
        if not math.isfinite(values.max()):
            problem = f"the weights of variable number {variable} exceed the largest floating-point number"
            raise _refusal(problem, "use RootAnnealed(), or smaller psi")
        last = float(probes[min(int(np.flatnonzero(values >= values.max() - depth)[-1]) + 1, len(probes) - 1)])
        if last >= _MAX_POINTS:
            problem = (
                f"counts up to {last:.3g} matter for variable number {variable}, more than {size_text(_MAX_POINTS)}"
            )
            raise _refusal(problem)
        x = np.arange(min(last, limit) + 1)
        values = bounds.log_above(family, variable, x)
        return _Profile(x, values, float(np.logaddexp.reduce(values)), 0.0, 1, ())
    return _real_profile(terms, bounds, variable, depth)


def _real_profile(terms: Terms, bounds: Bounds, variable: int, depth: float) -> _Profile:
    family = terms.families[variable]
    signed = family.kind == "real"
    power, splits = smooth_power(family, tuple(sorted({j for j, _, _ in terms.parts})))

    def log_value(u: Floats) -> Floats:
        values = np.sign(u) * np.abs(u) ** power
        with np.errstate(divide="ignore"):
            jacobian = np.log(power) + (power - 1) * np.log(np.abs(u)) if power > 1 else np.zeros_like(u)
        return bounds.log_above(family, variable, values) + jacobian

    # The sizes that matter at all.
    sizes = np.geomspace(1e-15, 1e15, 2000) ** (1 / power)  # a thirtieth apart in x; a narrow top may be missed,
    probes = log_value(np.concatenate([-sizes[::-1], sizes]) if signed else sizes)  # which takes the ends further out
    high = probes > probes.max() - depth
    high = high[len(sizes) :] | high[: len(sizes)][::-1] if signed else high
    last = int(np.flatnonzero(high)[-1]) + 1
    if last >= len(sizes):
        problem = f"variable number {variable} has a law too wide for a grid"
        raise _refusal(problem, code="no-method")
    # An interval of which a good part is above the depth.
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
    # For squares an odd power may make all roots whole.
    power = math.lcm(*(j // math.gcd(2, j) for j in roots)) if roots else 1
    is_smooth = power % 2 == 1 and all(j <= 2 or (2 * power // j) % 2 == 0 for j in roots)
    return power, () if is_smooth else (0.0,)


def grid_of(family: NodeFamily, window: Window, num_nodes: int) -> tuple[Floats, Floats]:
    """Points and log weights (n,): the whole numbers of a window, or Gauss-Legendre nodes, so many over all pieces."""
    if family.is_discrete:
        values = np.arange(window.lower, window.upper + 1)
        return values, np.zeros_like(values)
    # Pieces between places where roots are not smooth.
    ends = [window.lower, *window.splits, window.upper]
    nodes, weights = _legendre(max(num_nodes // (len(ends) - 1), 2))
    left, width = np.array(ends[:-1])[:, None], np.diff(ends)[:, None]
    u, weight = (left + width * (nodes + 1) / 2).ravel(), (width / 2 * weights).ravel()
    jacobian = window.power * np.abs(u) ** (window.power - 1)
    return np.sign(u) * np.abs(u) ** window.power, np.log(weight * np.maximum(jacobian, 1e-300))


_legendre = lru_cache(maxsize=64)(np.polynomial.legendre.leggauss)


# Sums over grids, one variable after the other, in logarithms and differentiable.

Scope = tuple[int, ...]

_DRAW_CELLS = 2**22


class Contraction(NamedTuple):
    """Order of elimination, cells of the largest table and of all tables together."""

    order: tuple[int, ...]
    largest: int
    total: int


class _Step(NamedTuple):
    """Joint log table over a variable (last axis) and those that it was tied to when it was summed out."""

    variable: int
    others: Scope
    table: torch.Tensor


def elimination(scopes: Sequence[Scope], sizes: Sequence[int], limit: int | None = None) -> Contraction:
    """A greedy order: always the variable whose table is smallest; it ends early at a table above the limit."""
    # Who shares a term with whom.
    neighbours: dict[int, set[int]] = {v: set() for v in range(len(sizes))}
    for scope in scopes:
        for v in scope:
            neighbours[v].update({*scope} - {v})
    order: list[int] = []
    largest, total = 1, 0

    def cells(v: int) -> int:
        return math.prod(sizes[w] for w in neighbours[v]) * sizes[v]

    # The cheapest variable next; its neighbours are tied to each other then.
    costs = {v: cells(v) for v in neighbours}
    while costs:
        v = min(costs, key=lambda w: (costs[w], w))
        num_cells = costs.pop(v)
        largest, total = max(largest, num_cells), total + num_cells
        if limit is not None and num_cells > limit:
            break
        near = neighbours.pop(v)
        for w in near:
            neighbours[w] = (neighbours[w] | near) - {v, w}
        costs.update({w: cells(w) for w in near})
        order.append(v)
    return Contraction(tuple(order), largest, total)


def contract(
    factors: Sequence[tuple[Scope, torch.Tensor]], order: Sequence[int], keep: bool = False
) -> tuple[torch.Tensor, list[_Step]]:
    """Log of the sum of exp of the sum of log tables (axes by scope), and with ``keep`` the tables that draws need."""
    # Add what holds a variable, and sum it out.
    live = list(factors)
    steps: list[_Step] = []
    for v in order:
        inside = [factor for factor in live if v in factor[0]]
        live = [factor for factor in live if v not in factor[0]]
        others = tuple(sorted({w for scope, _ in inside for w in scope if w != v}))
        axes = (*others, v)
        parts: list[torch.Tensor] = []
        for scope, values in inside:
            shape = [values.shape[scope.index(w)] if w in scope else 1 for w in axes]
            parts.append(values.permute([scope.index(w) for w in axes if w in scope]).reshape(shape))
        table = functools.reduce(torch.add, parts)
        if keep:
            steps.append(_Step(v, others, table))
        live.append((others, torch.logsumexp(table, -1)))
    return sum((values for _, values in live), torch.zeros((), dtype=torch.float64)), steps


def draw(steps: Sequence[_Step], num_draws: int, size: int, generator: torch.Generator | None) -> torch.Tensor:
    """Independent places on the grids, long (num_draws, size), from the last variable summed out to the first."""
    # Backwards: every variable given those that it was tied to.
    places = torch.zeros(num_draws, size, dtype=torch.long)
    for variable, others, table in reversed(steps):
        length = table.shape[-1]
        chunk = max(1, _DRAW_CELLS // length)
        uniform = torch.rand(num_draws, dtype=torch.float64, generator=generator)
        for first in range(0, num_draws, chunk):
            part = slice(first, min(first + chunk, num_draws))
            rows = table[tuple(places[part, w] for w in others)].expand(part.stop - part.start, length)
            weights = torch.softmax(rows, -1).cumsum(-1)
            target = (uniform[part] * weights[:, -1]).unsqueeze(-1)
            places[part, variable] = torch.searchsorted(weights, target, right=True).clamp_(max=length - 1)[:, 0]
    return places


_METHOD = "enumeration"
_NOMINAL = 64  # values of a variable that plans reckon with before the parameters are known
_NODES = (20, 30, 45, 68, 102, 153, 230, 345, 518, 777, 1166, 1749)
_OPERATIONS = 100  # elementary operations behind a cell of a table


@dataclass(frozen=True)
class RootEnumeration(ExactRoot):
    r"""Log Z (paper 2, equation 2) by sums over counts or product quadrature over reals, variable after variable.

    .. math:: Z = \sum_{x_1} \sum_{x_2} \cdots \sum_{x_d} q(x), \qquad
        \int q(x) \, dx \approx \sum_{u} q(x(u)) \prod_s \omega_s(u_s), \quad x_s = u_s^m

    For models of few variables, or whose interactions form a thin graph, such as chains and trees: a variable is summed
    out together with those that it is tied to, so the cost is the largest such table. Counts are summed over windows;
    what lies outside is bounded by a product law above the model and a mean-field bound of log Z below it. Reals are
    integrated by more and more Gauss-Legendre nodes in u, in which all roots are analytic. Twice differentiable in psi.

    *Error.* The absolute error of log Z is at most ``tolerance``, times its size over 1,000 where it is beyond 1,000
    nats; the notes of a result tell the number. What windows leave out is bounded, a two-hundredth of it; the rest is
    for quadrature, judged by the last step of refinement and by a lower bound of log Z. Where a model of reals is
    normalisable only by its negative interactions, its window rests on a maximum over directions that was found by
    search from many starts, not on a bound.

    Args:
        max_cells: most cells of a table, each 8 bytes; log Z with a gradient keeps a few tables.
        tolerance: see *Error*; from 1e-14.
        allow_undecided: go on where it is not known whether the model has a finite constant.

    Example:
        >>> from pyro_hoim import Domain, Variable
        >>> from pyro_hoim.generalized_root import PoissonFamily
        >>> domain = Domain([Variable("a", kind="count"), Variable("b", kind="count")])
        >>> structure = RootStructure.simplified(domain, [("a", "b")])
        >>> energy = GeneralizedRootEnergy(structure, torch.tensor([0.0, 0.0, 0.0]), PoissonFamily())
        >>> RootEnumeration().log_partition(energy).value  # two Poisson laws of mean one: log Z is 1 + 1
        tensor(2.)
    """

    max_cells: int = 2**23
    tolerance: float = 1e-10
    allow_undecided: bool = False

    def __post_init__(self) -> None:
        check_whole(self.max_cells, "RootEnumeration max_cells")
        if not isinstance(self.tolerance, float) or not 1e-14 <= self.tolerance < 1:
            raise out_of_range("RootEnumeration tolerance", "a number from 1e-14 to below 1", self.tolerance)

    @override
    def plan(self, structure: RootStructure, family: Families) -> Cost:
        families = NodeFamilies.of(family, structure.domain)
        values = [int(min(_NOMINAL, largest + 1)) for largest in families.largest_values]
        sizes = families.sizes(values)
        order = self._order(structure, families, sizes)
        up_to = "up to " if len(set(sizes)) > 1 else ""
        return self._cost(order, f"at {up_to}{max(sizes, default=1)} values of every variable, the largest table")

    def _order(self, structure: RootStructure, families: NodeFamilies, sizes: Sequence[int]) -> Contraction:
        """An order for grids of these sizes, found as far as the budget allows."""
        return elimination(_scopes(structure, _unit_of(families)), sizes, self.max_cells)

    @override
    def plan_energy(self, energy: GeneralizedRootEnergy) -> Cost:
        psi = checked_psi(energy.detach(), self.allow_undecided)
        # A graph that is too thick for any parameters needs no windows.
        worst = self._least(energy)
        if not worst.feasible:
            return worst
        for row in element_rows(energy, psi):
            try:
                windows, _ = self._windows(energy, row)
            except IntractableError as error:
                return Cost(0, 0, 0, 0, False, str(error), _METHOD)
            sizes = _sizes(energy, windows, _NODES[3])
            cost = self._cost(self._order(energy.structure, energy.families, sizes), "the largest table")
            worst = max(worst, cost, key=lambda c: c.cells)
        return worst

    def _least(self, energy: GeneralizedRootEnergy) -> Cost:
        """Cost with two values of every variable: a quick refusal of graphs that are too thick for any parameters."""
        sizes = energy.families.sizes([2] * len(energy.families))
        order = self._order(energy.structure, energy.families, sizes)
        return self._cost(order, "with two values, the largest table")

    def _cost(self, order: Contraction, what: str) -> Cost:
        feasible = order.largest <= self.max_cells
        verdict = "within" if feasible else "or more, above"
        limit = in_python(f"max_cells={self.max_cells}", f"the limit of {self.max_cells:,}")
        reason = f"{what} has {size_text(order.largest, 'cells')}, {verdict} {limit}"
        if not feasible:
            reason += in_python("; raise it, or estimate with RootAnnealed()")
        memory = 8 * 4 * order.largest
        return Cost(order.largest, order.total, _OPERATIONS * order.total, memory, feasible, reason, _METHOD)

    def _windows(self, energy: GeneralizedRootEnergy, psi: torch.Tensor) -> tuple[list[Window], float]:
        content = psi.detach().double().numpy().tobytes()
        return windows_of(energy.structure, energy.families, content, self.tolerance / 200)

    def _grids(self, energy: GeneralizedRootEnergy, psi: torch.Tensor) -> tuple[list[Grid], Contraction]:
        """Grids on which one element of the batch, psi (num_terms,), is summed, and the order."""
        self._least(energy).check()
        windows, below = self._windows(energy, psi)
        if energy.families.is_discrete:
            order = self._order(energy.structure, energy.families, _sizes(energy, windows, 0))
            self._cost(order, "the largest table").check()
            return _grids_of(energy, windows, 0), order
        # Quadrature nodes at which log Z stands still to half the tolerance, and is no less than a lower bound.
        psi, before, moved = psi.detach(), math.nan, ""
        for count in _NODES:
            contraction = self._order(energy.structure, energy.families, _sizes(energy, windows, count))
            cost = self._cost(contraction, f"with {count} quadrature nodes, the largest table")
            if not cost.feasible:
                raise _refusal(f"{cost.reason}; quadrature {moved or 'has not begun'}", "")
            grids = _grids_of(energy, windows, count)
            with torch.no_grad():
                value = float(contract(_factors(energy, psi, grids), contraction.order)[0])
            change = abs(value - before)
            allowed = in_python(f"tolerance={self.tolerance:g}", "too much for an exact value")
            moved = f"moved log Z by {change:.2g} at the last step, {allowed}"
            is_seen = value >= below - 1e-6 * max(1.0, abs(below))  # nodes that miss the law stand still below a bound
            if is_seen and change <= self._allowed(value) / 2:
                return grids, contraction
            before = value
        raise _refusal(f"quadrature with {_NODES[-1]} nodes {moved}")

    def _allowed(self, log_z: float) -> float:
        """Relative error of Z, the absolute error of log Z, that is allowed at a value of log Z."""
        return self.tolerance * max(1.0, 1e-3 * abs(log_z))

    @override
    def log_partition(self, energy: GeneralizedRootEnergy) -> LogPartition:
        psi = checked_psi(energy, self.allow_undecided)
        values: list[torch.Tensor] = []
        worst = Contraction((), 1, 0)
        for row in element_rows(energy, psi):
            grids, contraction = self._grids(energy, row)
            worst = max(worst, contraction, key=lambda c: c.largest)
            values.append(contract(_factors(energy, row, grids), contraction.order)[0])
        value = torch.stack(values) if values else psi.sum(-1).reshape(0)
        largest = float(value.detach().abs().max()) if values else 0.0
        note = f"relative error of Z at most {self._allowed(largest):g}"
        return root_result(value, energy, self._cost(worst, "the largest table"), note)

    @override
    def moments(self, energy: GeneralizedRootEnergy) -> tuple[torch.Tensor, torch.Tensor]:
        psi = checked_psi(energy.detach(), self.allow_undecided)
        pairs = [_marginal_moments(energy, row, *self._grids(energy, row)) for row in element_rows(energy, psi)]
        return split_moments(energy, pairs)

    @override
    def _sample(self, energy: GeneralizedRootEnergy, shape: torch.Size, random: torch.Generator | None) -> torch.Tensor:
        if not energy.families.is_discrete:
            problem = "draws of counts only; quadrature nodes are no sample"
            raise out_of_reach("RootEnumeration sample", problem, code="no-method")
        psi = checked_psi(energy.detach(), self.allow_undecided)
        parts: list[torch.Tensor] = []
        for row in element_rows(energy, psi):
            grids, contraction = self._grids(energy, row)
            steps = contract(_factors(energy, row, grids), contraction.order, keep=True)[1]
            places = draw(steps, math.prod(shape), len(grids), random)
            drawn = torch.empty(len(places), len(energy.domain), dtype=torch.float64)
            for grid, index in zip(grids, places.unbind(1), strict=True):
                drawn[:, grid.places] = torch.from_numpy(grid.values)[index]
            parts.append(drawn)
        return joined_states(energy, shape, parts)


@lru_cache(maxsize=256)
def _scopes(structure: RootStructure, unit_of: tuple[int, ...] | None) -> tuple[tuple[int, ...], ...]:
    """Places of the units of every term of two or more variables, once each."""
    scopes = {tuple(row) for key in structure.keys if key[1] > 1 for row in structure.rows(key).tolist()}
    if unit_of is not None:
        scopes = {tuple(sorted(unit_of[s] for s in scope)) for scope in scopes}
    return tuple(sorted(scopes))


def _unit_of(families: NodeFamilies) -> tuple[int, ...] | None:
    """Place of the unit of every variable; None where every variable is its own."""
    if not families.blocks:
        return None
    places = {int(s): number for number, unit in enumerate(families.units) for s in unit}
    return tuple(places[s] for s in range(len(families)))


def _sizes(energy: GeneralizedRootEnergy, windows: Sequence[Window], num_nodes: int) -> list[int]:
    """Number of points of every unit, of counts all values of their windows."""
    both = zip(energy.families, windows, strict=True)
    return energy.families.sizes([window.num_values if family.is_discrete else num_nodes for family, window in both])


def _grids_of(energy: GeneralizedRootEnergy, windows: Sequence[Window], num_nodes: int) -> list[Grid]:
    """Grid of every unit."""
    families, grids = energy.families, list[Grid]()
    for unit in families.units:
        places = tuple(unit.tolist())
        if families.blocks and families.is_category(unit):
            grids.append(Grid(np.eye(len(places)), np.zeros(len(places)), places))
            continue
        values, log_weights = grid_of(families.each[places[0]], windows[places[0]], num_nodes)
        grids.append(Grid(values[:, None], log_weights, places))
    return grids


def _factors(
    energy: GeneralizedRootEnergy, psi: torch.Tensor, grids: Sequence[Grid]
) -> list[tuple[tuple[int, ...], torch.Tensor]]:
    """Log tables of base measure and terms on grids, for psi (num_terms,); in the graph of psi."""
    # Base measures of single variables, then a table for every term.
    structure, families = energy.structure, energy.families
    coefficients = psi * structure.multiplicity
    points = _points(grids)
    factors: list[tuple[tuple[int, ...], torch.Tensor]] = []
    for u, grid in enumerate(grids):
        base = torch.from_numpy(grid.log_weights)
        for s in grid.places:
            base = base + families.each[s].log_base(points[s])
        factors.append(((u,), base))
    unit_of = _unit_of(families)
    for key in structure.keys:
        roots = [family.root(values, key[0]) for family, values in zip(families, points, strict=True)]
        for row, coefficient in zip(structure.rows(key).tolist(), coefficients[structure.slices[key]], strict=True):
            table = coefficient
            for s in row:
                table = table.unsqueeze(-1) * roots[s]
            factors.append((tuple(row if unit_of is None else [unit_of[s] for s in row]), table))
    return factors


def _points(grids: Sequence[Grid]) -> list[torch.Tensor]:
    """Values of every variable (n,) on the grid of its unit."""
    columns = [(s, torch.from_numpy(grid.values[:, i])) for grid in grids for i, s in enumerate(grid.places)]
    return [values for _, values in sorted(columns, key=lambda column: column[0])]


def _marginal_moments(
    energy: GeneralizedRootEnergy, psi: torch.Tensor, grids: Sequence[Grid], path: Contraction
) -> torch.Tensor:
    """Means and variances (2, d) from the marginal probabilities of all grids, which are a gradient of log Z."""
    if not grids:
        return psi.new_zeros((2, 0))
    # Marginal probabilities are the slope of log Z in a tilt of every grid point.
    factors = _factors(energy, psi.detach(), grids)
    with torch.enable_grad():
        tilts = [torch.zeros(len(grid.values), dtype=torch.float64, requires_grad=True) for grid in grids]
        total, _ = contract([*factors, *(((s,), tilt) for s, tilt in enumerate(tilts))], path.order)
        marginals = torch.autograd.grad(total, tilts)
    points = _points(grids)
    by_variable = {s: marginal for grid, marginal in zip(grids, marginals, strict=True) for s in grid.places}
    probs = [by_variable[s] for s in range(len(points))]
    means = torch.stack([(p * x).sum() for p, x in zip(probs, points, strict=True)])
    squares = [(p * (x - m).square()).sum() for p, x, m in zip(probs, points, means, strict=True)]
    return torch.stack([means, torch.stack(squares)])
