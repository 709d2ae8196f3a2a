"""A univariate exponential family that a user states as functions of arrays, and sums and quadrature over it (NumPy).

Nothing of it is compiled, which is slower than the kernels of the built-in families. Rows of natural parameters are
worked on together: a table of points of every row, with the log of what each point stands for, gives the log partition
by a sum, moments by weighted means and draws by inversion.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.distributions import constraints
from typing_extensions import override

from ...errors import (
    ErrorCode,
    check_choice,
    check_type,
    check_whole,
    conflict,
    out_of_range,
    refused,
    unexpected,
    wrong_shape,
    wrong_type,
)
from ...schema import NumberKind
from .families import NodeFamily

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
_LARGEST = 1e150  # value of a statistic: products of two are numbers
_BISECTIONS, _DOUBLINGS = 60, 40
_BUILT_IN = ("poisson", "truncated-poisson", "exponential", "gaussian", "indicator")

Function = Callable[[Floats], Any]


def _itself(x: Floats) -> Floats:
    return x


@dataclass(frozen=True, repr=False)
class UserFamily(NodeFamily):
    r"""Any univariate exponential family, from its statistic T and its log base measure B.

    .. math:: p(x \mid \eta) = \exp\Bigl(\sum_{j=1}^k \eta_j T(x)^{1/j} + B(x) - A(\eta)\Bigr)

    Counts are summed one by one until what is left, continued as a geometric series, is below 1e-17 of the sum; real
    numbers are integrated by trapezoidal sums in the log of :math:`|x|` (of :math:`x / (m - x)` below a maximum m),
    refined until they stand still to 1e-12. Both are as exact as the built-in families where B is smooth; sums took 15
    times as long as those of the compiled Poisson family, integrals 2.5 times as long as those of the exponential. What
    is too narrow to be met by the first points, an eighth apart in that log, is not seen.

    Whether a joint model can be normalised is left undecided, so that backends need ``allow_undecided=True``, unless
    you say that all can. Not offered: certified bounds, the law along rays, model files and the command line.

    Args:
        name: what messages call it; not that of a built-in family.
        kind: ``count``, ``positive`` or ``real``, which fixes the domain.
        log_measure: B of an array of values, in nats; minus infinity where a value is impossible.
        statistic: T of an array of values, from 0 upwards; x itself unless given. Regressions need T(0) = 0.
        maximum: largest value of the domain, for counts or positive numbers.
        signed_roots: j-th roots :math:`T_j(x)` as a function of an array and j, for roots with a sign, as those of the
            Gaussian family; then :math:`|T_j|^j = T`. The positive roots of T when None.
        is_normalizable: you know that every model of this family that you use has a finite constant.

    Functions take float64 arrays of any shape and return the same shape: plain NumPy, :class:`numpy.ufunc` or compiled
    by Numba. Families are equal if their functions are the same objects. Give named functions of a module where a
    family has to be pickled.

    Raises:
        InputError: a name that is taken, a maximum that does not fit, or functions whose values at some probes are not
            what is said above.
        InputTypeError: an argument of another type.

    Example:
        >>> import numpy as np
        >>> from pyro_hoim.generalized_root import node_moments
        >>> geometric = UserFamily("geometric", "count", np.zeros_like)  # p(x) is proportional to exp(eta x)
        >>> found = node_moments(geometric, torch.tensor([[0.5]]).log())
        >>> found.value.exp(), found.mean  # 1 / (1 - 0.5), and 0.5 / (1 - 0.5)
        (tensor([2.]), tensor([[1.]]))
    """

    name: str  # pyright: ignore[reportIncompatibleVariableOverride]
    kind: NumberKind  # pyright: ignore[reportIncompatibleVariableOverride]
    log_measure: Function
    statistic: Function = _itself
    maximum: float = math.inf
    signed_roots: Callable[[Floats, int], Any] | None = None
    is_normalizable: bool = False

    code = -1  # pyright: ignore[reportAssignmentType]

    def __post_init__(self) -> None:
        # Name, domain and functions.
        check_type(self.name, str, "name", "a string")
        if self.name in _BUILT_IN:
            raise conflict("name", f"{self.name!r} is that of a built-in family")
        check_choice(self.kind, ("count", "positive", "real"), "kind")
        check_type(self.is_normalizable, bool, "is_normalizable")
        if self.maximum != math.inf:
            if self.kind == "real":
                raise conflict("maximum", "real numbers have none")
            if self.kind == "count":
                check_whole(self.maximum, "maximum", 1, 2**20)
            elif not (isinstance(self.maximum, float) and 0 < self.maximum < math.inf):
                raise out_of_range("maximum", "a positive number", self.maximum)
        for argument in ("log_measure", "statistic", "signed_roots"):
            given = getattr(self, argument)
            if not callable(given) and (given is not None or argument != "signed_roots"):
                raise wrong_type(argument, "a function of an array", given)
        # Refuse functions whose values at the probes do not make a family
        x = self._probes
        measure, top = self.measured(x), self.rooted(x, 1)
        if np.isnan(measure).any() or (measure == np.inf).any() or not np.isfinite(measure).any():
            raise refused("log_measure", "it is NaN, infinite, or minus infinity at all probes", code="not-finite")
        is_possible = np.isfinite(measure)
        if not (np.isfinite(top[is_possible]).all() and (top[is_possible] >= 0).all()):
            where = x[is_possible][~(np.isfinite(top) & (top >= 0))[is_possible]][0]
            raise out_of_range("statistic", "finite values from 0 upwards", received=f"another one at {where:g}")
        for j in (2, 3):
            if not np.allclose(np.abs(self.rooted(x, j)[is_possible]) ** j, top[is_possible], 1e-9, 1e-9):
                raise refused("signed_roots", f"the {j}-th power of its roots of order {j} is not the statistic")

    @property
    def _probes(self) -> Floats:
        if self.is_discrete:
            return np.arange(min(64.0, self.maximum + 1))
        sizes = np.geomspace(1e-3, 1e3, 61)
        sizes = self.maximum * sizes / (1 + sizes) if math.isfinite(self.maximum) else sizes
        return np.concatenate([-sizes[::-1], sizes]) if self.kind == "real" else sizes

    def __repr__(self) -> str:
        content = hashlib.sha256()
        for values in (self.measured(self._probes), *(self.rooted(self._probes, j) for j in (1, 2, 3))):
            content.update(" ".join(f"{value:.9g}" for value in values).encode())
        known = ", is_normalizable=True" if self.is_normalizable else ""
        most = "" if self.maximum == math.inf else f", maximum={self.maximum:g}"
        return f"UserFamily({self.name!r}, kind={self.kind!r}{most}, digest={content.hexdigest()[:8]!r}{known})"

    def _values(self, function: Callable[[Floats], Any], x: Floats, argument: str) -> Floats:
        with np.errstate(all="ignore"):
            values = np.asarray(function(x))
        if values.shape != x.shape:
            raise wrong_shape(argument, x.shape, values, "return one number for every value of the array")
        if values.dtype.kind not in "fiu":
            raise wrong_type(argument, "an array of numbers", received=f"dtype {values.dtype}")
        return values.astype(np.float64)

    def measured(self, x: Floats) -> Floats:
        """B of an array, float64."""
        return self._values(self.log_measure, x, "log_measure")

    def rooted(self, x: Floats, j: int) -> Floats:
        """T_j of an array, float64, cut off at 1e150."""
        roots = self.signed_roots
        if roots is not None:
            numbers = self._values(lambda values: roots(values, j), x, "signed_roots")
        else:
            numbers = self._values(self.statistic, x, "statistic")
            with np.errstate(invalid="ignore"):
                numbers = numbers if j == 1 else np.sqrt(numbers) if j == 2 else numbers ** (1.0 / j)
        return np.clip(numbers, -_LARGEST, _LARGEST)

    @property
    def is_discrete(self) -> bool:  # type: ignore[override] # pyright: ignore[reportIncompatibleVariableOverride]
        """Whether values are counts."""
        return self.kind == "count"

    @property
    @override
    def largest_value(self) -> float:
        return float(self.maximum)

    @property
    @override
    def support(self) -> constraints.Constraint:
        if self.maximum == math.inf:
            return super().support
        if self.is_discrete:
            return constraints.integer_interval(0, int(self.maximum))
        return cast("constraints.Constraint", constraints.interval(0.0, self.maximum))

    @override
    def root(self, x: Tensor, j: int) -> Tensor:
        check_whole(j, "j")
        return _like(x, lambda values: self.rooted(values, j))

    @override
    def log_base(self, x: Tensor) -> Tensor:
        return _like(x, self.measured)

    @override
    def check_values(self, x: Tensor, argument: str) -> None:
        super().check_values(x, argument)
        bad = ~torch.isfinite(self.log_base(x.double()))
        if bool(bad.any()):
            shown = f"{x[bad].reshape(-1)[0].item():g} ({int(bad.sum())} such values)"
            expected = f"values of finite base measure of the {self.name} family"
            code: ErrorCode = "impossible" if self.is_discrete else "out-of-range"
            raise unexpected(argument, expected, received=shown, code=code)

    @override
    def base_natural(self, mean: Tensor) -> Tensor:
        """Found by bisection; where no parameter gives the mean, the largest or smallest tried."""
        # Bracket every mean, then halve.
        wanted = mean.detach().double().reshape(-1).numpy()
        low, high = np.full(len(wanted), -1.0), np.full(len(wanted), 1.0)
        for _ in range(_DOUBLINGS):
            is_far = ~(self._base_means(low) <= wanted)
            if not is_far.any():
                break
            low[is_far] *= 2
        for _ in range(_DOUBLINGS):
            is_far = self._base_means(high) < wanted
            if not is_far.any():
                break
            high[is_far] *= 2
        for _ in range(_BISECTIONS):
            middle = 0.5 * (low + high)
            is_below = self._base_means(middle) <= wanted
            low, high = np.where(is_below, middle, low), np.where(is_below, high, middle)
        return torch.from_numpy(low).reshape(mean.shape).to(mean if mean.is_floating_point() else torch.float64)

    def _base_means(self, eta: Floats) -> Floats:
        """E T at k = 1, infinite where the parameter has no law."""
        value, mean = np.empty(len(eta)), np.empty((len(eta), 1))
        user_moments(self, eta[:, None], 1, value, mean, np.empty((0, 1, 1)))
        return np.where(np.isfinite(value), mean[:, 0], np.inf)


def _like(x: Tensor, function: Callable[[Floats], Floats]) -> Tensor:
    """A function of arrays of a tensor, in its floating dtype and on its device."""
    dtype = x.dtype if x.is_floating_point() else torch.get_default_dtype()
    values = function(x.detach().cpu().double().numpy())
    return torch.from_numpy(values).to(x.device, dtype)


class _Table(NamedTuple):
    """Counts (m,), or points (n, m) by their u, of some rows; log terms (n, m) of Z, roots (..., k) and errors (n,)."""

    rows: Integers
    points: Floats
    logs: Floats
    roots: Floats
    error: Floats


def user_moments(family: UserFamily, eta: Floats, order: int, value: Floats, mean: Floats, cov: Floats) -> Floats:
    """What :func:`.kernels.evaluate_nodes` does, with the same arguments, for a user's family; the errors (n,)."""
    value[:], error = np.inf, np.full(len(eta), np.nan)
    for part in (mean, cov)[:order]:
        part[:] = np.nan
    # Weighted means over tables of points, for all rows of a table at once.
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


def user_value_moments(family: UserFamily, eta: Floats) -> tuple[Floats, Floats]:
    """Mean and variance (n,) of the value itself, which need not be the statistic; NaN where a row has no law."""
    mean, variance = np.full(len(eta), np.nan), np.full(len(eta), np.nan)
    # Points of numbers are logs of sizes on either side of 0.
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


def user_has_law(family: UserFamily, eta: Floats) -> bool:
    """Whether the sum or integral at natural parameters (k,) is finite, as far as it is looked at."""
    value = np.empty(1)
    user_moments(family, eta[None], 0, value, eta[None], eta[None, None])
    return bool(np.isfinite(value[0]))


def user_draws(family: UserFamily, eta: Floats, uniforms: Callable[[Integers], Floats]) -> Floats:
    """A draw (n,) from each row; NaN where a row has no law. ``uniforms`` gives new numbers in (0, 1) for some rows.

    Equal rows share one table.
    """
    # Rows with the same parameters share a table.
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


def _tables(family: UserFamily, eta: Floats, is_for_draws: bool = False) -> Iterator[_Table]:
    """Tables of all rows that have a finite sum."""
    good = np.flatnonzero(np.isfinite(eta).all(1))
    if family.is_discrete:
        yield from _count_tables(family, eta, good)
    else:
        yield from _real_tables(family, eta, good, is_for_draws)


# Counts


@lru_cache(maxsize=32)
def _listed(family: UserFamily, size: int, k: int) -> tuple[Floats, Floats, Floats]:
    """Counts below a size (m,), their roots (m, k) and log base measures (m,)."""
    x = np.arange(float(size))
    return x, np.stack([family.rooted(x, j) for j in range(1, k + 1)], -1), family.measured(x)


def _count_tables(family: UserFamily, eta: Floats, rows: Integers) -> Iterator[_Table]:
    # Twice as many counts at a time, for rows whose sum is not over.
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
    # The last two quarters show how fast terms fall.
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


def _placed(family: UserFamily, u: Floats, side: int) -> tuple[Floats, Floats]:
    """Values at u on one side of 0, and the log of their derivative."""
    if math.isfinite(family.largest_value):
        lower, upper = -np.logaddexp(0.0, -u), -np.logaddexp(0.0, u)
        return family.largest_value * np.exp(lower), lower + upper + math.log(family.largest_value)
    return side * np.exp(u), u


def _scored(family: UserFamily, eta: Floats, u: Floats, side: int) -> tuple[Floats, Floats, Floats]:
    """Values (n, m), log densities in u, and roots (n, m, k), at u (n, m) or (1, m)."""
    x, jacobian = _placed(family, u, side)
    roots = np.stack([family.rooted(x, j) for j in range(1, eta.shape[1] + 1)], -1)
    with np.errstate(over="ignore", invalid="ignore"):
        logs = np.matmul(roots, eta[:, :, None])[..., 0] + (family.measured(x) + jacobian)
    return x, np.where(np.isnan(logs), -np.inf, logs), roots


def _windows(family: UserFamily, eta: Floats, side: int) -> tuple[Floats, Floats, NDArray[np.bool_]]:
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


def _real_tables(family: UserFamily, eta: Floats, rows: Integers, is_for_draws: bool) -> Iterator[_Table]:
    # Windows in u of every row; rows that do not end within what is looked at have no law.
    sides = (1, -1) if family.kind == "real" else (1,)
    ends: list[tuple[Floats, Floats]] = []
    is_over = np.ones(len(rows), np.bool_)
    for side in sides:
        low, high, is_side_over = _windows(family, eta[rows], side)
        is_over &= is_side_over
        ends.append(_narrowed(family, eta[rows], low, high, side))
    rows, ends = rows[is_over], [(low[is_over], high[is_over]) for low, high in ends]
    # Twice as many intervals at a time, for rows whose sum still moves.
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
            # Draws need points that are close enough for interpolation, too.
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


def _narrowed(family: UserFamily, eta: Floats, low: Floats, high: Floats, side: int) -> tuple[Floats, Floats]:
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
    family: UserFamily, eta: Floats, rows: Integers, ends: list[tuple[Floats, Floats]], size: int
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
    # Middles of neighbouring points against the points between them.
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
    family: UserFamily, eta: Floats, table: _Table, places: Integers, uniforms: Callable[[Integers], Floats]
) -> Floats:
    """One draw (n,) from each of some rows of a table; a row may come several times.

    Counts are drawn by inversion; reals by inversion of the piecewise linear density in u, and kept with the ratio of
    the density to it.
    """
    # Counts by inversion.
    pending = np.arange(len(places))
    heights = table.logs.max(1)
    density = np.exp(table.logs - heights[:, None])
    if family.is_discrete:
        mass = density.cumsum(1)[places]
        return (mass <= (uniforms(pending) * mass[:, -1])[:, None]).sum(1).astype(np.float64)
    # Numbers: the piecewise linear density, inverted and thinned.
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
