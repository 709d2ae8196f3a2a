"""Penalised convex regressions on rows of natural parameters, of one node or all: objective and Newton steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, cast

import joblib
import numpy as np
import scipy.linalg
import scipy.sparse
import torch
from typing_extensions import override

from ...errors import out_of_reach, size_text
from ..nodes.bound_kernels import bound_counts
from ..nodes.families import NodeFamily, TruncatedPoissonFamily
from ..nodes.kernels import evaluate_nodes
from ._kernels import descend, descend_groups, descend_matrix, feature_columns, feature_gradients, feature_products
from .rows import Category, Floats, Integers, JointTerm, RootRows

Status = Literal["converged", "fixed", "max_iterations", "stalled", "stopped"]

_ARMIJO = 1e-4
_SMALLEST_STEP = 2.0**-40
_SWEEPS = 1000
_LONG, _MOST_EXACT = 50, 300  # sweeps, and features, of models that are solved exactly
_LEAST_ROWS, _TABLE = 64, 2**24  # of features that are made dense, and their most cells
_DENSE, _CELLS = 0.05, 2**21  # share of entries of rows that are multiplied as dense ones, so many cells at a time
_FEW, _MOST_GROUPED, _NEWTON = 10, 1000, 5  # sweeps, features and steps of models of groups solved by their matrix
_ROUNDING, _JUMPS = 1e-14, 1e-9  # share of the objective; bounds jump where a subdomain moves
_RIDGE = 1e-13  # of the diagonal; covariances at large means are singular within rounding
_IDLE = 10  # steps that lower neither objective nor violation beyond rounding
_CREEPING, _SHARE = 40, 1e-4  # steps that lower it by less than this share of their promise, as at a kink

_MOST_PUBLISHED, _MOST_SIZES, _SHORTER, _SUFFICIENT = 30, 20, 0.25, 1e-6  # of the authors' program
_LEAST_FALL, _LEAST_EIGENVALUE = 1e-5, 1e-4


@dataclass(frozen=True, eq=False)
class Point:
    """Coefficients (F,), objective, gradients (F,), and mean (rows, k) and covariance (rows, k, k) of the roots."""

    coefficients: Floats
    objective: float
    gradients: Floats
    mean: Floats
    covariance: Floats


class NewtonEnd(NamedTuple):
    """Where Newton steps ended, how many there were, and why they stopped."""

    point: Point
    num_steps: int
    status: Status


def units(linear: Floats) -> Floats:
    """Unit of a subgradient: 1, but for linear terms beyond 10^4 their 10^-4 part, because of rounding."""
    return np.maximum(1.0, 1e-4 * np.abs(linear))


@dataclass(frozen=True, eq=False)
class Groups:
    r"""Features whose coefficients enter together, one group behind the other: ends of all, and what a norm costs.

    The penalty is the sum over groups of :math:`\lambda_g \lVert c_g\rVert`; of groups of one it is the l1 penalty.
    """

    starts: Integers
    penalties: Floats

    def norms(self, values: Floats) -> Floats:
        """Euclidean norms of the groups of some values."""
        return np.sqrt(np.add.reduceat(np.square(values), self.starts[:-1]))

    def cost(self, coefficients: Floats) -> float:
        """The penalty of some coefficients."""
        return float(self.penalties @ self.norms(coefficients))

    def rise(self, coefficients: Floats, step: Floats) -> float:
        """Change of the penalty by a step, without the loss of digits of a difference."""
        norms = self.norms(coefficients + step) + self.norms(coefficients)
        products = np.add.reduceat((2 * coefficients + step) * step, self.starts[:-1])
        return float(self.penalties @ (products / np.where(norms > 0, norms, 1.0)))

    def violations(self, coefficients: Floats, gradients: Floats) -> Floats:
        """Distance of the subgradient of every group from zero."""
        norms = self.norms(coefficients)
        pull = np.repeat(self.penalties / np.where(norms > 0, norms, 1.0), np.diff(self.starts))
        outside = np.maximum(self.norms(gradients) - self.penalties, 0.0)
        return np.where(norms > 0, self.norms(gradients + pull * coefficients), outside)

    def largest(self, values: Floats) -> Floats:
        """The largest value of every group."""
        return np.maximum.reduceat(values, self.starts[:-1])


@dataclass(frozen=True, eq=False)
class CategoryLaw:
    """Law of a category: a softmax over its levels of natural parameter times contrasts; it has no scales."""

    category: Category

    def evaluate(
        self, eta: Floats, derivatives: int, value: Floats, mean: Floats, covariance: Floats, num_subdomains: int = 0
    ) -> None:
        """As :meth:`NodeLaw.evaluate`, of contrasts in place of roots; a joint regression may have more columns."""
        assert not num_subdomains
        table = self.category.contrasts[self.category.shares > 0]
        q = table.shape[1]
        scores = eta[:, :q] @ table.T
        top = scores.max(1, keepdims=True)
        weights = np.exp(scores - top)
        sums = weights.sum(1, keepdims=True)
        value[:] = (top + np.log(sums))[:, 0]
        if not derivatives:
            return
        probs = weights / sums
        mean[:] = 0.0
        mean[:, :q] = probs @ table
        if derivatives == 2:
            covariance[:] = 0.0
            second = probs @ (table[:, :, None] * table[:, None, :]).reshape(len(table), q * q)
            covariance[:, :q, :q] = second.reshape(-1, q, q) - mean[:, :q, None] * mean[:, None, :q]


def evaluate_binary(eta: Floats, derivatives: int, value: Floats, mean: Floats, covariance: Floats) -> None:
    """As :func:`~pyro_hoim.generalized_root.nodes.kernels.evaluate_nodes` of a 0/1 column, whose roots are itself."""
    total = eta.sum(1)
    rarer = np.exp(-np.abs(total))
    value[:] = np.maximum(total, 0.0) + np.log1p(rarer)
    if derivatives:
        mean[:] = (np.where(total >= 0.0, 1.0, rarer) / (1.0 + rarer))[:, None]
    if derivatives == 2:
        covariance[:] = (rarer / (1.0 + rarer) ** 2)[:, None, None]


@dataclass(frozen=True, eq=False)
class NodeLaw:
    """Law of a node whose roots are divided by scales (k,), as natural parameters are multiplied by them."""

    family: NodeFamily
    scales: Floats | None = None

    @classmethod
    def of(cls, rows: RootRows, node: int) -> NodeLaw | CategoryLaw:
        """The law of a column of some rows; of the first indicator of a category that of all of them."""
        if node in rows.category_of:
            return CategoryLaw(rows.category_of[node])
        return cls(rows.families[node], None if rows.scales is None else rows.scales[node])

    def evaluate(
        self, eta: Floats, derivatives: int, value: Floats, mean: Floats, covariance: Floats, num_subdomains: int = 0
    ) -> None:
        """Write A (rows,), or its bound, with means (rows, k) and covariances (rows, k, k) as far as asked for."""
        if self.scales is not None and eta.shape[1] > len(self.scales):  # beside a category of more contrasts
            k = len(self.scales)
            means, covariances = np.empty((len(mean), k)), np.empty((len(covariance), k, k))
            self.evaluate(eta[:, :k], derivatives, value, means, covariances)
            mean[:], covariance[:] = 0.0, 0.0
            mean[:, :k], covariance[:, :k, :k] = means, covariances
            return
        eta = eta if self.scales is None else eta / self.scales
        if num_subdomains:
            bound_counts(eta, self.family.largest_value, num_subdomains, derivatives, value, mean, covariance)
        elif type(self.family) is TruncatedPoissonFamily and self.family.maximum == 1:
            evaluate_binary(eta, derivatives, value, mean, covariance)
        else:
            evaluate_nodes(self.family, eta, derivatives, value, mean, covariance)
        if self.scales is not None and derivatives:
            mean /= self.scales
            if derivatives == 2:
                covariance /= self.scales[:, None] * self.scales


class Regression:
    """Weighted mean of A(eta) over rows, less a linear term, plus an l1 penalty.

    Feature f adds coefficient x value to the natural parameter of one order in the rows of its column; its entries are
    at ``starts[f] : starts[f + 1]`` of ``places`` (rows) and ``values``; ``orders`` count from 0. Weights (rows,),
    linear terms and penalties (F,); offset (rows, k) and constant are those of natural parameters and linear term. With
    subdomains A is its upper bound on so many of them. Where there are groups, their norms are penalised in place of
    single coefficients.
    """

    law: NodeLaw | CategoryLaw
    order: int
    weights: Floats
    starts: Integers
    places: Integers
    values: Floats
    orders: Integers
    linear: Floats
    l1: Floats
    offset: Floats | None = None
    constant: float = 0.0
    num_subdomains: int = 0
    groups: Groups | None = None

    def __len__(self) -> int:
        return len(self.orders)

    def natural(self, coefficients: Floats) -> Floats:
        """Natural parameters (rows, k)."""
        eta = np.zeros((len(self.weights), self.order)) if self.offset is None else self.offset.copy()
        feature_products(*self._columns, coefficients, eta if self.groups is None else eta.reshape(-1, 1))
        return eta

    @property
    def lines(self) -> Integers:
        """Row times k plus order of every entry, for features of groups, which may have several orders."""
        return self.places * self.order + np.repeat(self.orders, np.diff(self.starts))

    @property
    def _columns(self) -> tuple[Integers, Integers, Floats, Integers]:
        """Columns of the features; where there are groups in natural parameters one behind the other."""
        if self.groups is None:
            return self.starts, self.places, self.values, self.orders
        return self.starts, self.lines, self.values, np.zeros_like(self.orders)

    def moments(self, coefficients: Floats, derivatives: int) -> tuple[Floats, Floats, Floats]:
        """A (rows,), means (rows, k) and covariances (rows, k, k) of the roots; what is not asked for is empty."""
        count, k = len(self.weights), self.order
        value = np.empty(count)
        mean = np.empty((count, k) if derivatives else (0, k))
        covariance = np.empty((count, k, k) if derivatives == 2 else (0, k, k))
        self._evaluate(self.natural(coefficients), derivatives, value, mean, covariance)
        return value, mean, covariance

    def _evaluate(self, eta: Floats, derivatives: int, value: Floats, mean: Floats, covariance: Floats) -> None:
        self.law.evaluate(eta, derivatives, value, mean, covariance, self.num_subdomains)

    def objective(self, coefficients: Floats) -> float:
        """Mean of A(eta) - eta . T over rows, plus the penalty; +inf where a row cannot be normalised."""
        return self._total(self.moments(coefficients, 0)[0], coefficients)

    def _total(self, value: Floats, coefficients: Floats) -> float:
        return self._smooth(value, coefficients) + self.penalty(coefficients)

    def penalty(self, coefficients: Floats) -> float:
        """What coefficients cost."""
        if self.groups is not None:
            return self.groups.cost(coefficients)
        return float(self.l1 @ np.abs(coefficients))

    def _smooth(self, value: Floats, coefficients: Floats) -> float:
        return float(self.weights @ value - self.linear @ coefficients) - self.constant

    def loss(self, coefficients: Floats) -> float:
        """The objective without the penalty."""
        return self._smooth(self.moments(coefficients, 0)[0], coefficients)

    def point(self, coefficients: Floats) -> Point:
        """Objective with gradient and moments; where the objective is infinite the rest means nothing."""
        value, mean, covariance = self.moments(coefficients, 2)
        return Point(coefficients, self._total(value, coefficients), self._gradients(mean), mean, covariance)

    def _gradients(self, mean: Floats) -> Floats:
        """Gradients of the smooth part (F,) where the roots have these means."""
        gradients, weighted = np.empty(len(self)), self.weights[:, None] * mean
        feature_gradients(*self._columns, weighted if self.groups is None else weighted.reshape(-1, 1), gradients)
        return gradients - self.linear

    def slope(self, point: Point, step: Floats) -> float:
        """Change of the objective by a step, of its smooth part to first order."""
        c = point.coefficients
        if self.groups is not None:
            return float(point.gradients @ step) + self.groups.rise(c, step)
        return float(point.gradients @ step + self.l1 @ (np.abs(c + step) - np.abs(c)))

    def violations(self, point: Point) -> Floats:
        """Distance of every feature's (or group's) subgradient from zero, in :func:`units`."""
        c, g = point.coefficients, point.gradients
        if self.groups is not None:
            return self.groups.violations(c, g) / self.groups.largest(units(self.linear))
        distance = np.where(c != 0, np.abs(g + self.l1 * np.sign(c)), np.maximum(np.abs(g) - self.l1, 0.0))
        return distance / units(self.linear)


def newton(
    regression: Regression,
    point: Point,
    tolerance: float,
    max_steps: int,
    advance: Callable[[Point, int], None] | None = None,
) -> NewtonEnd:
    """Proximal Newton steps, each of which lowers the objective, until the violations are within the tolerance."""
    steps = idle = creeping = 0
    best, least = point, np.inf  # the point of least violation
    table = _dense(regression)
    while True:
        violation = float(regression.violations(point).max())
        if violation <= tolerance:
            return NewtonEnd(point, steps, "converged")
        if steps >= max_steps:
            return NewtonEnd(point, steps, "max_iterations")
        # A step along the minimum of the quadratic model, as exact as the violation is worth.
        steps += 1
        step = _direction(regression, point, max(0.01 * violation, 0.1 * tolerance), table)
        gain = regression.slope(point, step)
        next_point = _line_search(regression, point, step, gain)
        if next_point is None:
            return NewtonEnd(point, steps, "stalled")
        # Steps that bring no more than rounding, or creep along a kink, end the search.
        decrease = point.objective - next_point.objective
        is_nearer = violation < 0.5 * least
        idle = 0 if is_nearer or decrease > _noise(regression, point) else idle + 1
        creeping = 0 if is_nearer or decrease > -_SHARE * gain else creeping + 1
        if violation < least:
            best, least = point, violation
        if idle == _IDLE or creeping == _CREEPING:
            return NewtonEnd(best, steps, "stalled")
        point = next_point
        if advance is not None:
            advance(point, steps)


def published_newton(
    regression: Regression, point: Point, extend: Callable[[Point], Point], max_steps: int
) -> NewtonEnd:
    """Steps as in the authors' public program, which ends where a step would lower the objective by less than 1e-5.

    That last step is not taken. Free features are those with a coefficient or with a gradient beyond the penalty;
    ``extend`` adds the latter. Eigenvalues of the Hessian below 1e-4 are raised to it, and steps are shortened by 0.25.

    References:
        David I. Inouye, SQR graphical models (program, MIT licence), function ``fitnodereg``, 2017.
    """
    for steps in range(min(max_steps, _MOST_PUBLISHED)):
        point = extend(point)
        lower = _published_step(regression, point)
        if lower is None or point.objective - lower.objective < _LEAST_FALL * abs(lower.objective):
            return NewtonEnd(point, steps, "stopped")
        point = lower
    return NewtonEnd(point, min(max_steps, _MOST_PUBLISHED), "max_iterations")


def _published_step(regression: Regression, point: Point) -> Point | None:
    """The point after one step, or None where no length of it lowers the objective."""
    # The quadratic model over free features, its eigenvalues raised.
    c, g = point.coefficients, point.gradients
    free = np.flatnonzero((c != 0.0) | (np.abs(g) > regression.l1))
    hessians = regression.weights[:, None, None] * point.covariance
    whole = curvature_matrix(regression.starts, regression.lines, regression.values, hessians)
    values, vectors = np.linalg.eigh(whole[np.ix_(free, free)])
    curvature = (vectors * np.maximum(values, _LEAST_EIGENVALUE)) @ vectors.T
    step: Floats = np.zeros(len(c))
    step[free] = penalised_minimum(g[free], curvature, regression.l1[free], c[free], np.zeros(len(free)), 1e-12)
    # Shorter and shorter steps along its minimum.
    size = 1.0
    for _ in range(_MOST_SIZES):
        trial = c + size * step
        if regression.objective(trial) < point.objective + min(size * _SUFFICIENT * float(g @ step), 0.0):
            return regression.point(trial)
        size *= _SHORTER
    return None


def _noise(regression: Regression, point: Point) -> float:
    """What rounding, or a moved subdomain, makes of the objective."""
    return (_JUMPS if regression.num_subdomains else _ROUNDING) * (1.0 + abs(point.objective))


def _dense(regression: Regression) -> Floats | None:
    """Features (F, rows) of a regression without groups, where these are few and their entries many, else None."""
    shape = len(regression), len(regression.weights)
    is_small = shape[0] <= _MOST_EXACT and shape[1] >= _LEAST_ROWS and math.prod(shape) <= _TABLE
    if regression.groups is not None or not is_small or len(regression.values) < _DENSE * math.prod(shape):
        return None
    table = np.zeros(shape)
    table[np.repeat(np.arange(shape[0]), np.diff(regression.starts)), regression.places] = regression.values
    return table


def _curvature(table: Floats, orders: Integers, hessians: Floats) -> Floats:
    """Hessian (F, F) of an objective in the coefficients of dense features."""
    total = np.empty((len(table), len(table)))
    which = [(j, np.flatnonzero(orders == j)) for j in np.unique(orders)]
    for i, one in which:
        for j, two in which:
            if i == j:  # a matrix times its transpose, which is half the work; a variance is negative by rounding alone
                half = table[one] * np.sqrt(np.maximum(hessians[:, i, i], 0.0))
                total[np.ix_(one, one)] = half @ half.T
            elif i < j:
                block = (table[one] * hessians[:, i, j]) @ table[two].T
                total[np.ix_(one, two)], total[np.ix_(two, one)] = block, block.T
    return total


def _direction(regression: Regression, point: Point, tolerance: float, table: Floats | None) -> Floats:
    """Minimum of the quadratic model: by coordinate descent, and exactly where that takes long.

    The descent goes through the rows, or where there is a dense table of the features, through their Hessian.
    """
    # Coordinate descent settles most models in a few sweeps.
    step = np.empty(len(regression))
    hessians = regression.weights[:, None, None] * point.covariance
    if (groups := regression.groups) is not None:
        lines = regression.starts, regression.lines, regression.values
        is_small = len(regression) <= _MOST_GROUPED
        sweeps = descend_groups(
            *lines, groups.starts, groups.penalties, point.gradients, hessians, point.coefficients, tolerance,
            _FEW if is_small else _SWEEPS, step,
        )  # fmt: skip
        if is_small and sweeps == _FEW:
            curvature = curvature_matrix(*lines, hessians)
            return grouped_minimum(point.gradients, curvature, groups, point.coefficients, step, tolerance)
        return step
    if table is not None:
        quadratic = _curvature(table, regression.orders, hessians), regression.l1, point.coefficients
        if descend_matrix(quadratic[0], point.gradients, *quadratic[1:], tolerance, _SWEEPS, step) == _SWEEPS:
            return penalised_minimum(point.gradients, *quadratic, step, tolerance)
        return step
    columns = regression.starts, regression.places, regression.values, regression.orders
    is_small = len(regression) <= _MOST_EXACT
    sweeps = descend(
        *columns, point.gradients, hessians, regression.l1, point.coefficients, tolerance,
        _LONG if is_small else _SWEEPS, step,
    )  # fmt: skip
    if is_small and sweeps == _LONG:
        curvature = curvature_matrix(regression.starts, regression.lines, regression.values, hessians)
        return penalised_minimum(point.gradients, curvature, regression.l1, point.coefficients, step, tolerance)
    return step


def _line_search(regression: Regression, point: Point, step: Floats, gain: float) -> Point | None:
    # The whole step if rounding lets it, else halves of it.
    c = point.coefficients
    if gain >= 0.0:
        return None
    new = regression.point(c + step)
    if new.objective <= point.objective + _ARMIJO * gain + _noise(regression, point):
        return new
    size = 0.5
    while size > _SMALLEST_STEP:
        trial = c + size * step
        if regression.objective(trial) <= point.objective + _ARMIJO * size * gain:
            return regression.point(trial)
        size *= 0.5
    return None


def curvature_matrix(starts: Integers, lines: Integers, values: Floats, hessians: Floats) -> Floats:
    """Hessian (F, F) of an objective in its coefficients; lines are row times k plus order of every entry."""
    rows, k, _ = hessians.shape
    num = len(starts) - 1
    features: Any = scipy.sparse.csc_matrix((values, lines, starts), shape=(rows * k, num))
    if len(values) < _DENSE * rows * k * num:
        blocks: Any = scipy.sparse.bsr_matrix((hessians, np.arange(rows), np.arange(rows + 1)), shape=(rows * k,) * 2)
        return cast("Floats", (features.T @ (blocks @ features)).toarray())
    # Products of dense rows, some at a time.
    by_row, total = features.tocsr(), np.zeros((num, num))
    most = max(1, _CELLS // (k * num))
    for first in range(0, rows, most):
        dense = by_row[first * k : (first + most) * k].toarray()
        bent = hessians[first : first + most] @ dense.reshape(-1, k, num)
        total += dense.T @ bent.reshape(-1, num)
    return total


def penalised_minimum(
    gradients: Floats, curvature: Floats, l1: Floats, coefficients: Floats, start: Floats, tolerance: float
) -> Floats:
    r"""Step s that minimises :math:`g \cdot s + \tfrac12 s^T H s + \sum_f \lambda_f |c_f + s_f|`.

    Signs are guessed and corrected one change at a time (feature-sign search): given the signs the minimum is that of a
    quadratic; on the way to it the best of the points where a coefficient becomes zero is taken. Ends at the minimum
    whatever the condition of H, to which 1e-13 of its diagonal is added.

    References:
        Honglak Lee, Alexis Battle, Rajat Raina and Andrew Y. Ng, Efficient sparse coding algorithms, 2006.
    """
    # In coordinates of unit curvature; what has none stays.
    scale = np.sqrt(np.maximum(np.diag(curvature), 0.0))
    is_free = scale > 0.0
    scale[~is_free] = 1.0
    matrix = curvature / scale[:, None] / scale
    matrix[np.diag_indices_from(matrix)] += _RIDGE
    slopes, penalties = gradients / scale, l1 / scale
    origin = coefficients * scale
    point = np.where(is_free, (coefficients + start) * scale, origin)
    limits = tolerance / scale

    def value(at: Floats) -> float:
        move = at - origin
        return float(slopes @ move + 0.5 * move @ (matrix @ move) + penalties @ np.abs(at))

    signs = np.sign(point)
    active = is_free & ((point != 0.0) | (l1 == 0.0))
    for _ in range(20 * len(point) + 20):
        # The minimum of the quadratic at these signs.
        inside = np.flatnonzero(active)
        wanted = -(slopes + penalties * signs) + matrix[:, ~active] @ (origin - point)[~active]
        target = point.copy()
        target[inside] = origin[inside] + _solved(matrix[np.ix_(inside, inside)], wanted[inside])
        # Where coefficients change sign on the way to it, the best of the points at which one is zero.
        crossing = inside[(penalties[inside] > 0.0) & (target[inside] * signs[inside] < 0.0)]
        if len(crossing):
            shares = np.unique(np.clip(point[crossing] / (point[crossing] - target[crossing]), 0.0, 1.0))
            trials = [_between(point, target, share, crossing) for share in (*shares, 1.0)]
            point = min(trials, key=value)
        else:
            point = target
        signs = np.sign(point)
        active = is_free & ((point != 0.0) | (l1 == 0.0))
        if len(crossing):
            continue
        # Else the coefficient that violates its condition most becomes active.
        slope = slopes + matrix @ (point - origin)
        excess = np.where(active | ~is_free, -np.inf, np.abs(slope) - penalties - limits)
        if not len(excess) or excess.max() <= 0.0:
            break
        new = int(np.argmax(excess))
        active[new] = True
        signs[new] = -np.sign(slope[new])
    return np.where(is_free, point / scale - coefficients, 0.0)


def grouped_minimum(
    gradients: Floats, curvature: Floats, groups: Groups, coefficients: Floats, start: Floats, tolerance: float
) -> Floats:
    r"""Step s that minimises :math:`g \cdot s + \tfrac12 s^T H s + \sum_g \lambda_g \lVert (c + s)_g\rVert`.

    Sweeps over groups find those that are not zero, and in turn with them Newton's steps their coefficients, for which
    sweeps alone take long where features are nearly collinear. As :func:`penalised_minimum`, which is that of groups of
    one.
    """
    # Sweeps read features: those whose products are the matrix.
    num = len(gradients)
    root = np.ascontiguousarray(_square_root(curvature).T).reshape(-1)
    starts, lines = np.arange(num + 1) * num, np.tile(np.arange(num), num)
    ones, move = np.ones((num, 1, 1)), np.empty(num)
    point = coefficients + start
    for _ in range(_SWEEPS // _LONG):
        slopes = gradients + curvature @ (point - coefficients)
        sweeps = descend_groups(
            starts, lines, root, groups.starts, groups.penalties, slopes, ones, point, tolerance, _LONG, move
        )
        point = point + move
        if sweeps < _LONG:
            break
        for _ in range(_NEWTON):
            slopes = gradients + curvature @ (point - coefficients)
            if groups.violations(point, slopes).max() <= tolerance:
                return point - coefficients
            point = point + _smooth_step(slopes, curvature, groups, point)
    return point - coefficients


def _square_root(matrix: Floats) -> Floats:
    """A matrix R with R^T R equal to a positive semidefinite one."""
    try:
        return scipy.linalg.cholesky(matrix + _RIDGE * np.diag(np.diag(matrix)))
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(matrix)
        return np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T


def _smooth_step(slopes: Floats, curvature: Floats, groups: Groups, point: Floats) -> Floats:
    """Newton's step of the groups that are not zero, or the best part of it; 0 where none lowers the model."""
    norms, sizes = groups.norms(point), np.diff(groups.starts)
    inside = np.flatnonzero(np.repeat((norms > 0) | (groups.penalties == 0), sizes) & (np.diag(curvature) > 0))
    # The penalty of a group bends across its direction alone.
    pull = groups.penalties / np.where(norms > 0, norms, 1.0)
    units = point / np.repeat(np.where(norms > 0, norms, 1.0), sizes)
    matrix = curvature.copy()
    for g in np.flatnonzero(pull * norms).tolist():
        part = slice(groups.starts[g], groups.starts[g + 1])
        matrix[part, part] += pull[g] * (np.eye(sizes[g]) - np.outer(units[part], units[part]))
    matrix = matrix[np.ix_(inside, inside)]
    scale = np.sqrt(np.diag(matrix))
    matrix = matrix / scale[:, None] / scale
    matrix[np.diag_indices_from(matrix)] += _RIDGE
    wanted = -(slopes + np.repeat(pull, sizes) * point)[inside]
    step = np.zeros(len(point))
    step[inside] = _solved(matrix, wanted / scale) / scale
    # The whole step, halves of it, and where groups would turn round those at which one becomes zero.
    moves = [size * step for size in 0.5 ** np.arange(5.0)]
    along = np.add.reduceat(units * step, groups.starts[:-1])
    for g in np.flatnonzero((pull * norms > 0) & (along < -norms)).tolist():
        move, part = -norms[g] / along[g] * step, slice(groups.starts[g], groups.starts[g + 1])
        move[part] = -point[part]
        moves.append(move)
    changes = [slopes @ move + 0.5 * move @ (curvature @ move) + groups.rise(point, move) for move in moves]
    best = int(np.argmin(changes))
    return moves[best] if changes[best] < 0.0 else np.zeros(len(point))


def _between(start: Floats, end: Floats, share: float, crossing: Integers) -> Floats:
    """A point on the way; what crosses zero just there is zero."""
    point = start + share * (end - start)
    distance = np.abs(end - start)[crossing]
    point[crossing[np.abs(point[crossing]) <= 1e-14 * distance]] = 0.0
    return point


def _solved(matrix: Floats, right: Floats) -> Floats:
    """Solution of a system with a unit diagonal; by least squares where rounding has made it indefinite."""
    if not len(right):
        return right
    try:
        factor = scipy.linalg.cho_factor(matrix)
    except np.linalg.LinAlgError:
        return cast("Floats", np.linalg.lstsq(matrix, right, rcond=1e-12)[0])
    solution = scipy.linalg.cho_solve(factor, right)
    return cast("Floats", solution + scipy.linalg.cho_solve(factor, right - matrix @ solution))


class WorkingSet(Regression):
    """Features of one node that may be nonzero; rows that no feature touches are held once, with their number."""

    def __init__(self, rows: RootRows, node: int, orders: Integers, l1: Floats, width: int) -> None:
        self.rows, self.node = rows, node
        self.law, self.order = NodeLaw.of(rows, node), rows.num_statistics(node)
        self.num_constants = len(orders)
        self.targets = rows.column_roots(node)
        self.orders = self.roots = orders
        self.sizes = np.zeros(len(orders), np.int64)
        self.others = np.full((len(orders), width), -1, np.int64)
        self.keys = np.arange(len(orders))
        self.l1 = l1
        self._counted = rows.counted(self.targets)
        self.means = self._counted.mean(0) * (rows.num_rows / rows.total)
        self.linear = self.means[orders]
        self._starts = np.zeros(1, np.int64)
        self._rows = np.empty(0, np.int64)
        self._values = np.empty(0)
        self.members: set[tuple[int, ...]] = set()
        self._compress()

    def columns(self, roots: Integers, sizes: Integers, others: Integers) -> tuple[Integers, Integers, Floats]:
        """Columns of further features, by root (from 0), number of other variables and their places."""
        rows = self.rows
        return feature_columns(rows.indptr, rows.rows, rows.roots, rows.num_rows, roots, sizes, others)

    def linear_terms(self, columns: tuple[Integers, Integers, Floats], orders: Integers) -> Floats:
        """Mean over rows of feature x root of the node, for each feature."""
        sums = np.empty(len(orders))
        feature_gradients(*columns, orders, self._counted, sums)
        return sums / self.rows.total

    def add(
        self,
        keys: Integers,
        orders: Integers,
        sizes: Integers,
        others: Integers,
        l1: Floats,
        roots: Integers | None = None,
    ) -> None:
        """Append features that are not members yet; roots are the orders where the node is no category."""
        # What the features add to every array of the regression.
        roots = orders if roots is None else roots
        columns = self.columns(roots, sizes, others)
        self.roots = np.concatenate([self.roots, roots])
        self.linear = np.concatenate([self.linear, self.linear_terms(columns, orders)])
        self.keys = np.concatenate([self.keys, keys])
        self.orders = np.concatenate([self.orders, orders])
        self.sizes = np.concatenate([self.sizes, sizes])
        self.others = np.concatenate([self.others, others])
        self.l1 = np.concatenate([self.l1, l1])
        self._starts = np.concatenate([self._starts, self._starts[-1] + columns[0][1:]])
        self._rows = np.concatenate([self._rows, columns[1]])
        self._values = np.concatenate([self._values, columns[2]])
        self.members.update((int(k), *o) for k, o in zip(keys, others.tolist(), strict=True))
        self._compress()

    def _compress(self) -> None:
        # Rows that no feature touches are one row.
        n = self.rows.num_rows
        is_touched = np.zeros(n, dtype=bool)
        is_touched[self._rows] = True
        touched = int(is_touched.sum())
        count = touched + (touched < n)
        self.row_map = np.where(is_touched, np.cumsum(is_touched) - 1, touched)
        if self.rows.counts is not None:
            self.weights = np.bincount(self.row_map, self.rows.counts) / self.rows.total
        else:
            self.weights = np.full(count, 1.0 / n)
            if touched < n:
                self.weights[touched] = (n - touched) / n
        # Constants touch every row.
        c = self.num_constants
        self.starts = np.concatenate([np.arange(c) * count, c * count + self._starts])
        self.places = np.concatenate([np.tile(np.arange(count), c), self.row_map[self._rows]])
        self.values = np.concatenate([np.ones(c * count), self._values])

    def extended(self, point: Point, before: Integers) -> Point:
        """A point of the features without the last ones, whose coefficients are 0; ``before`` is the row map then."""
        place = np.empty(len(self.weights), np.int64)
        place[self.row_map] = before
        mean, covariance = point.mean[place], point.covariance[place]
        coefficients = np.concatenate([point.coefficients, np.zeros(len(self) - len(point.coefficients))])
        return Point(coefficients, point.objective, self._gradients(mean), mean, covariance)

    def log_density(self, coefficients: Floats) -> Floats:
        """Log density eta . T - A(eta) of the node in all rows, without the base measure, (n,)."""
        value, _, _ = self.moments(coefficients, 0)
        eta = self.natural(coefficients)
        return (eta[self.row_map] * self.targets).sum(1) - value[self.row_map]

    def residuals(self, point: Point) -> Floats:
        """(mean - root of the node) / n for all rows, times their counts, (n, k)."""
        return self.rows.counted(point.mean[self.row_map] - self.targets) / self.rows.total


# The pseudo-likelihood of one joint model as one regression, and that of a column's own terms alone.

MOST_BYTES = 2**33
"""Most memory of the rows and features of one joint regression."""
_ROWS_AT_A_TIME = 2**16
LEAST_SHARED = 2**13
"""Rows of all columns below which threads take longer to start than the rows do."""


def jobs_worth(jobs: int | None, num_rows: int) -> int | None:
    """The workers for a number of rows of all columns; None leaves them to a surrounding parallel_config."""
    return jobs if jobs is None or num_rows >= LEAST_SHARED else 1


def base_measure(rows: RootRows, nodes: Sequence[int]) -> float:
    """Mean over rows of minus the log base measure of some columns, nats."""
    total = 0.0
    for node in nodes:
        total -= float(rows.counted(rows.families[node].log_base(torch.from_numpy(rows.column(node))).numpy()).sum())
    return total / rows.total


def statistic(rows: RootRows, node: int, term: JointTerm) -> int:
    """Which natural parameter of a node a term adds to, from 1: its root; of a category one of its contrasts."""
    category = rows.category_of.get(node)
    if category is None:
        return term.key[0]
    return 1 + next(i for i, place in enumerate(category.columns.tolist()) if place in term.positions)


def interactions(rows: RootRows, node: int, terms: Sequence[JointTerm], singles: Sequence[int]) -> WorkingSet:
    """Rows of one node with constants of some statistics and the features of tuples that hold the node."""
    # Constants first, then tuples without the node itself.
    width = max([1, *(len(term.positions) - 1 for term in terms)])
    orders = np.array([j - 1 for j in singles], dtype=np.int64)
    working = WorkingSet(rows, node, orders, np.zeros(len(orders)), width)
    if terms:
        others = np.full((len(terms), width), -1, np.int64)
        inside = {node} if node not in rows.category_of else set(rows.category_of[node].places.tolist())
        for i, term in enumerate(terms):
            others[i, : len(term.positions) - 1] = [t for t in term.positions if t not in inside]
        working.add(
            np.arange(len(orders), len(orders) + len(terms)),
            np.array([statistic(rows, node, term) - 1 for term in terms], dtype=np.int64),
            np.array([term.key[1] - 1 for term in terms], dtype=np.int64),
            others,
            np.zeros(len(terms)),
            np.array([term.key[0] - 1 for term in terms], dtype=np.int64),
        )
    return working


class ColumnRegression(Regression):
    """A column's own terms, with the coefficients of all tuples that hold it fixed."""

    def __init__(
        self,
        rows: RootRows,
        node: int,
        singles: Sequence[int],
        l1: Floats,
        terms: Sequence[JointTerm],
        coefficients: Floats,
    ) -> None:
        working = interactions(rows, node, terms, singles)
        count = len(singles)
        self.law, self.order, self.weights = working.law, working.order, working.weights
        self.offset = working.natural(np.concatenate([np.zeros(count), coefficients]))
        self.starts = working.starts[: count + 1]
        self.places, self.values = working.places[: self.starts[-1]], working.values[: self.starts[-1]]
        self.orders, self.linear, self.l1 = working.orders[:count], working.linear[:count], l1
        self.constant = float(working.linear[count:] @ coefficients)


class JointRegression(Regression):
    """All columns at once: the rows of all nodes below each other, and one feature for every term of the model."""

    def __init__(
        self, rows: RootRows, terms: Sequence[JointTerm], l1: Floats, jobs: int | None, groups: Groups | None = None
    ) -> None:
        self.order, self.l1, self.groups = max(map(rows.num_statistics, rows.nodes), default=rows.order), l1, groups
        self.orders = np.array([term.key[0] - 1 for term in terms], dtype=np.int64)
        self.linear = np.zeros(len(terms))
        self._jobs = jobs
        # Rows of all nodes below each other; a term has entries at those of each of its members.
        members: dict[int, list[int]] = {}
        node_of = [rows.nodes[unit] for unit in rows.unit_of.tolist()]
        for m, term in enumerate(terms):
            for s in term.positions:
                members.setdefault(node_of[s], []).append(m)
        weights: list[Floats] = []
        features: list[Integers] = []
        places: list[Integers] = []
        lines: list[Integers] = []
        values: list[Floats] = []
        laws: list[tuple[NodeLaw | CategoryLaw, slice]] = []
        num_rows = num_entries = 0
        for node, terms_of_node in members.items():
            singles = [m for m in terms_of_node if terms[m].key[1] == 1]
            tuples = [m for m in terms_of_node if terms[m].key[1] > 1]
            working = interactions(
                rows, node, [terms[m] for m in tuples], [statistic(rows, node, terms[m]) for m in singles]
            )
            index = np.array([*singles, *tuples], dtype=np.int64)
            self.linear[index] += working.linear
            features.append(np.repeat(index, np.diff(working.starts)))
            places.append(working.places + num_rows)
            if groups is not None:
                orders = np.repeat(working.orders, np.diff(working.starts))
                lines.append(places[-1] * self.order + orders)
            values.append(working.values)
            weights.append(working.weights)
            laws.append((working.law, slice(num_rows, num_rows + len(working.weights))))
            num_rows += len(working.weights)
            num_entries += len(working.places)
            needed = 8 * (num_rows * (2 * self.order**2 + 4 * self.order) + 6 * num_entries)
            if needed > MOST_BYTES:
                raise out_of_reach(
                    "refit 'all'",
                    f"the rows of the columns' conditionals need more than {size_text(needed, 'bytes')}; the limit is "
                    f"{MOST_BYTES}. Refit 'singles', raise l1, or take fewer rows or columns",
                )
        # One family evaluates the rows of all nodes together.
        if rows.families.common is not None:
            laws = [(laws[0][0], slice(0, num_rows))]
        self._parts = [
            (law, slice(first, min(first + _ROWS_AT_A_TIME, block.stop)))
            for law, block in laws
            for first in range(block.start, block.stop, _ROWS_AT_A_TIME)
        ]
        # From entries by node to entries by feature, as solvers read them.
        self.weights = np.concatenate(weights)
        feature = np.concatenate(features)
        order = np.argsort(feature, kind="stable")
        self.starts = np.concatenate([[0], np.cumsum(np.bincount(feature, minlength=len(terms)))]).astype(np.int64)
        self.places, self.values = np.concatenate(places)[order], np.concatenate(values)[order]
        self._lines = np.concatenate(lines)[order] if lines else super().lines

    @property
    @override
    def lines(self) -> Integers:
        return self._lines

    def _evaluate(self, eta: Floats, derivatives: int, value: Floats, mean: Floats, covariance: Floats) -> None:
        jobs = jobs_worth(self._jobs, len(self.weights)) if len(self._parts) > 1 else 1
        joblib.Parallel(n_jobs=jobs, require="sharedmem")(
            joblib.delayed(law.evaluate)(eta[p], derivatives, value[p], mean[p], covariance[p])
            for law, p in self._parts
        )
