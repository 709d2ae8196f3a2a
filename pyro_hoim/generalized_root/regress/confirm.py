"""The last step of root regressions: which of the sets that they found all rows confirm, each beside the others.

Sets are tested whatever the columns' own laws are.
"""

from __future__ import annotations

import itertools
import math
import time
import warnings
from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, cast, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import get_lapack_funcs
from scipy.special import log_ndtr
from scipy.stats import chi2
from typing_extensions import override

from ...errors import CostWarning, caller_level, check_choice, check_fraction, check_not_negative, check_type
from ...results.confirmation import (
    PROMISING,
    Asked,
    EdgeTest,
    Hypotheses,
    StepwiseSearch,
    kept_first,
    saddle_point_log_tail,
)
from ...structure.hypergraph import Edge
from ._regression import Floats, Integers
from .options import Refit, RootSettings, checked_candidates, checked_settings
from .refit import refit_rows, warn_refits
from .result import RootConfirmation, RootFitResult
from .rows import RootRows

# Law of one column given all others with a free base measure: maximum likelihood, and with one statistic moved.
#
# The base measure is one parameter for every value that the column takes, so that the column's own law is any law; a
# feature of the other columns tilts it by a coefficient times feature times root of the value.

_STEPS, _HALVINGS = 60, 30
_DONE = 1e-5  # nats that another step would bring
_FLAT = 1e-3  # rows of information: a direction of an infinite estimate has less by then
_RANK = 1e-10  # of the largest diagonal element
_solve_positive: Any = get_lapack_funcs("posv", dtype=np.float64)  # without the checks of cho_factor, which take longer


class Moments(NamedTuple):
    """Mean (s,) and covariance (s, s) of the statistics of a law."""

    mean: Floats
    covariance: Floats


class Tilted(NamedTuple):
    """What the log-likelihood rises by, the parameter of the statistic, and the root of the ratio of informations."""

    rise: float
    psi: float
    information: float


@dataclass(frozen=True, eq=False)
class ConditionalLaw:
    """Rows of a column given patterns of its features.

    Args:
        counts: rows of every pattern and value (P, r).
        features: of the patterns (P, q).
        scores: root of every value, for each feature (q, r).
    """

    counts: Floats
    features: Floats
    scores: Floats

    @cached_property
    def _groups(self) -> list[NDArray[np.intp]]:
        """Places of the features of equal scores."""
        groups: dict[bytes, list[int]] = {}
        for i, score in enumerate(self.scores):
            groups.setdefault(score.tobytes(), []).append(i)
        return [np.array(places) for places in groups.values()]

    @cached_property
    def totals(self) -> Floats:
        """Rows of every pattern (P,)."""
        return self.counts.sum(1)

    @cached_property
    def statistics(self) -> Floats:
        """Rows of every value but the first, and sums of feature times root over the rows, (r - 1 + q,)."""
        products = (self.features * (self.counts @ self.scores.T)).sum(0)
        return np.concatenate([self.counts.sum(0)[1:], products])

    @property
    def start(self) -> Floats:
        """Parameters of the column's own law, without features."""
        levels = np.log(self.counts.sum(0))
        return np.concatenate([levels[1:] - levels[0], np.zeros(len(self.scores))])

    def log_weights(self, parameters: Floats) -> tuple[Floats, float]:
        """Probabilities of the values in every pattern (P, r), and the sum over rows of the log of their sum."""
        free = self.counts.shape[1] - 1
        eta = (self.features * parameters[free:]) @ self.scores
        eta[:, 1:] += parameters[:free]
        top = eta.max(1)
        weights = np.exp(eta - top[:, None])
        sums = weights.sum(1)
        return weights / sums[:, None], float(self.totals @ (top + np.log(sums)))

    def moments(self, probs: Floats) -> Moments:
        """Mean (s,) and covariance (s, s) of the statistics."""
        # Levels of the base measure.
        totals, free = self.totals, probs.shape[1] - 1
        weighted = totals[:, None] * probs
        inner = probs @ self.scores.T  # (P, q)
        levels = weighted.sum(0)[1:]
        mean = np.concatenate([levels, (self.features * inner * totals[:, None]).sum(0)])
        covariance = np.zeros((len(mean), len(mean)))
        covariance[:free, :free] = np.diag(levels) - probs[:, 1:].T @ weighted[:, 1:]
        # Levels beside features, then features beside each other by equal scores.
        crossed = weighted[:, 1:].T @ self.features * self.scores[:, 1:].T
        crossed -= weighted[:, 1:].T @ (self.features * inner)
        covariance[:free, free:], covariance[free:, :free] = crossed, crossed.T
        for rows, columns in itertools.product(self._groups, repeat=2):
            a, b = rows[0], columns[0]
            spread = (probs @ (self.scores[a] * self.scores[b]) - inner[:, a] * inner[:, b]) * totals
            block = self.features[:, rows].T @ (spread[:, None] * self.features[:, columns])
            covariance[free + rows[:, None], free + columns] = block
        return Moments(mean, covariance)

    def maximised(self, statistics: Floats, start: Floats, basis: Floats | None = None) -> tuple[Floats, float]:
        """Parameters of largest likelihood for some totals of the statistics, on a linear space through the start.

        Also that log-likelihood.
        """
        parameters = start
        probs, log_sum = self.log_weights(parameters)
        value = float(parameters @ statistics) - log_sum
        for _ in range(_STEPS):
            # Newton's direction, on the space that the basis spans.
            mean, curvature = self.moments(probs)
            slope = statistics - mean
            if basis is not None:
                slope, curvature = basis.T @ slope, basis.T @ curvature @ basis
            step = _solved(curvature, slope)
            gain = float(slope @ step) / 2
            if not _DONE < gain < math.inf:
                break
            # As much of it as raises the likelihood.
            step = step if basis is None else basis @ step
            for _ in range(_HALVINGS):
                trial = parameters + step
                probs, log_sum = self.log_weights(trial)
                new = float(trial @ statistics) - log_sum
                if new >= value:
                    break
                step = step / 2
            else:
                break
            rise, value, parameters = new - value, new, trial
            if rise < _DONE:
                break
        return parameters, value

    def is_inside(self, parameters: Floats) -> bool:
        """Whether the statistics vary in every direction at some parameters, so that Newton's steps may start there."""
        return bool(np.linalg.eigvalsh(self.moments(self.log_weights(parameters)[0]).covariance)[0] > _FLAT)

    def tilted(self, parameters: Floats, null: Moments, target: float, start: Floats | None = None) -> Tilted:
        """The last statistic's total moved to a target, from parameters without it; with parameters to start from."""
        # Directions of infinite estimates stay where they are.
        before = null.covariance[:-1, :-1]
        values, vectors = np.linalg.eigh(before)
        moving = vectors[:, values > _FLAT]
        basis = np.zeros((len(parameters), moving.shape[1] + 1))
        basis[:-1, :-1], basis[-1, -1] = moving, 1.0
        statistics = np.append(self.statistics[:-1], target)
        value = float(parameters @ statistics) - self.log_weights(parameters)[1]
        is_near = start is not None and moving.shape[1] == len(before) and self.is_inside(start)
        # The law of the target, and the ratio of both informations.
        moved, most = self.maximised(statistics, start if start is not None and is_near else parameters, basis)
        _, after = self.moments(self.log_weights(moved)[0])
        ratio = np.linalg.slogdet(basis.T @ after @ basis)[1] - np.linalg.slogdet(moving.T @ before @ moving)[1]
        return Tilted(most - value, float(moved[-1]), math.exp(min(ratio, 1400.0) / 2))


def _solved(curvature: Floats, slope: Floats) -> Floats:
    scale = max(float(curvature.diagonal().max(initial=0.0)), 1e-300)
    curvature = curvature + _RANK * scale * np.eye(len(slope))
    _, solution, info = _solve_positive(curvature, slope)
    return cast("Floats", np.linalg.lstsq(curvature, slope, rcond=None)[0] if info else solution)


_MOST_LEVELS = 24  # values of a column that have a parameter of their own; of more, groups of neighbours have
_HELD = 512  # columns
_MOST_VALUES = 512  # of a feature, the commonest, that the step of its statistic is judged by
_MOST_KEYS = 2**62
_ROUNDING = 1e-9
_APART = 1e-7  # of the largest variance of a group: what varies less is not told from the rest


class _Column(NamedTuple):
    """One column: number of the value of every row, values' roots, and levels: groups of values with their roots.

    A category has its contrasts in place of roots.
    """

    codes: Integers
    num_values: int
    roots: Floats  # (k, n)
    levels: Integers
    level_roots: Floats  # (k, r)
    shares: Floats  # (r,)

    def scores(self, statistic: int) -> Floats:
        """A root, or contrast, of the levels, of mean zero and unit spread over the rows (r,)."""
        values = self.level_roots[statistic - 1]
        centred = values - self.shares @ values
        return centred / math.sqrt(max(float(self.shares @ centred**2), 1e-300))


class _Feature(NamedTuple):
    """A product of roots of other columns, beside a root of the column itself; of categories contrasts.

    Statistics count from 1; those of the others are with the node of each.
    """

    statistic: int
    others: tuple[tuple[int, int], ...]


_Group = tuple[_Feature, ...]
"""What one set adds to the law of a member by one key: several features where categories have several contrasts."""


class _Scale(NamedTuple):
    """Mean and spread of a feature over the rows; of counts its values in units of the spread, the commonest first."""

    mean: float
    spread: float
    values: Floats
    shares: Floats

    @property
    def step(self) -> float:
        """Distance of the two commonest values."""
        return float(self.values[1] - self.values[0])


class RootSetTester:
    """Tests of single sets of a root model beside others, by the law of each member given all the rest.

    The tail of a set's statistic is as :func:`confirm_roots` says; without others it is that of the permutation test.
    Sets are of categories, by their names, and of other variables.

    Args:
        rows: prepared rows, their roots up to the largest key.
        keys: roots of the terms of every set, by names in schema order; a set that is not listed has one key, its size.
        least_p_value: p-values beyond it are those of the score test, which needs no further fit.

    References:
        John Robinson, Saddlepoint approximations for permutation tests and confidence intervals, 1982.
    """

    def __init__(self, rows: RootRows, keys: Mapping[Edge, Sequence[int]], least_p_value: float = 1.0) -> None:
        self.rows, self._keys = rows, keys
        self._weights = np.ones(rows.num_rows) if rows.counts is None else rows.counts
        self._names = dict(zip(rows.nodes, rows.units.names, strict=True))
        self._places = {name: node for node, name in self._names.items()}
        self._columns: OrderedDict[int, _Column] = OrderedDict()
        self._features: dict[_Feature, _Scale] = {}
        self._nulls: dict[tuple[int, tuple[_Feature, ...]], Floats] = {}
        self._last: dict[int, dict[_Feature, float]] = {}
        self._least = math.log(least_p_value)
        self._memory: dict[tuple[Edge, int, tuple[_Feature, ...], bool], tuple[float, float]] = {}

    def test(
        self, edge: Edge, others: Iterable[Edge], response: str | None = None, *, is_rough: bool = False
    ) -> EdgeTest:
        """The test of a set beside others and its own subsets.

        Args:
            edge: names in schema order.
            others: sets.
            response: the member whose law given the rest is used; by default all of them, of which the one with the
                largest p-value counts, and the least gain.
            is_rough: take the score test, whose limit is the chi-square law, without a further fit.
        """
        others = [other for other in others if not set(edge).isdisjoint(other)]
        members = edge if response is None else (response,)
        tests = [self._member_test(edge, others, self._places[name], is_rough) for name in members]
        method = "chi-square" if is_rough else "saddle point"
        return EdgeTest(edge, max(log_p for log_p, _ in tests), min(gain for _, gain in tests), method)

    def _member_test(self, edge: Edge, others: Sequence[Edge], node: int, is_rough: bool) -> tuple[float, float]:
        """Log p-value and gain by the law of one member; of several terms the smallest one times their number."""
        # Features of the other sets, and of the proper subsets of a set, that hold a member; constant ones are not.
        name = self._names[node]
        subsets = [part for size in range(2, len(edge)) for part in itertools.combinations(edge, size)]
        sets = {other for other in (*others, *subsets) if name in other and other != edge}
        terms = {term for other in sets for group in self._groups(other, node) for term in group}
        nuisance = tuple(sorted(term for term in terms if self._scale(term).spread > 0))
        key = edge, node, nuisance, is_rough
        if key not in self._memory:
            tests = [self._group_test(group, nuisance, node, is_rough) for group in self._groups(edge, node)]
            log_p = min(0.0, min(log_p for log_p, _ in tests) + math.log(len(tests)))
            self._memory[key] = log_p, max(gain for _, gain in tests)
        return self._memory[key]

    def _groups(self, edge: Edge, node: int) -> list[_Group]:
        """Features of a set in the law of a member, those of one key together."""
        others = sorted(self._places[name] for name in edge if self._places[name] != node)
        groups: list[_Group] = []
        for root in self._keys.get(edge, (len(edge),)):
            products = itertools.product(*(self._statistics(other, root) for other in others))
            inside = [tuple(zip(others, some, strict=True)) for some in products]
            groups.append(tuple(_Feature(one, some) for some in inside for one in self._statistics(node, root)))
        return groups

    def _statistics(self, node: int, root: int) -> Sequence[int]:
        """The contrasts of a category, or the root of another variable."""
        return range(1, 1 + self.rows.num_statistics(node)) if node in self.rows.category_of else (root,)

    def _group_test(
        self, group: _Group, nuisance: tuple[_Feature, ...], node: int, is_rough: bool
    ) -> tuple[float, float]:
        """Log p-value of all coefficients of a group together, and their gain.

        The larger one of the p-values of the score and of the likelihood ratio, by the chi-square law of as many
        degrees of freedom as coefficients that the rows tell apart; of a single one the saddle point.
        """
        varying = tuple(term for term in group if self._scale(term).spread > 0)
        if len(varying) == 1 or not varying:
            return self._term_test((*varying, *group)[0], nuisance, node, is_rough)
        # What the rows say of the group beside the rest.
        law, count = self._law(node, (*nuisance, *varying)), len(varying)
        parameters = np.concatenate([self._null(node, nuisance), np.zeros(count)])
        null = law.moments(law.log_weights(parameters)[0])
        before, inside = null.covariance[:-count, :-count], null.covariance[-count:, -count:]
        crossed = null.covariance[:-count, -count:]
        values, vectors = np.linalg.eigh(inside - crossed.T @ np.linalg.lstsq(before, crossed, rcond=_RANK)[0])
        is_known = values > _APART * max(float(inside.diagonal().max()), 1e-300)
        free = int(is_known.sum())
        if not free:
            return 0.0, 0.0
        score = vectors[:, is_known].T @ (law.statistics[-count:] - null.mean[-count:])
        square = float((score**2 / values[is_known]).sum())
        log_p = float(chi2.logsf(square, free))
        if is_rough or log_p > self._least:
            return log_p, square / 2
        # The rise of the log-likelihood, from a law with the group that may be known already.
        start = self._known(node, nuisance, varying)
        start = start if start is not None and law.is_inside(start) else parameters
        value = float(parameters @ law.statistics) - law.log_weights(parameters)[1]
        rise = max(0.0, law.maximised(law.statistics, start)[1] - value)
        return max(log_p, float(chi2.logsf(2 * rise, free))), rise

    def _known(self, node: int, nuisance: tuple[_Feature, ...], group: _Group) -> Floats | None:
        """Parameters of a column's law with all features, those of the group last, where they were found before."""
        features = sorted((*nuisance, *group))
        whole = self._nulls.get((node, tuple(features)))
        if whole is None:
            return None
        free = len(whole) - len(features)
        return np.concatenate([whole[:free], [whole[free + features.index(term)] for term in (*nuisance, *group)]])

    def _term_test(
        self, term: _Feature, nuisance: tuple[_Feature, ...], node: int, is_rough: bool
    ) -> tuple[float, float]:
        """Log p-value of a term in the law of a column given the others, and its gain."""
        # The score test, which is the answer where it is far from a decision.
        scale, column = self._scale(term), self._column(node)
        if not scale.spread > 0 or len(column.shares) < 2:
            return 0.0, 0.0
        law = self._law(node, (*nuisance, term))
        parameters = np.append(self._null(node, nuisance), 0.0)
        null = law.moments(law.log_weights(parameters)[0])
        before = null.covariance
        along = before[-1, -1] - before[-1, :-1] @ _solved(before[:-1, :-1], before[:-1, -1])
        square = float((law.statistics[-1] - null.mean[-1]) ** 2 / max(along, 1e-300))
        log_p = math.log(2) + float(log_ndtr(-math.sqrt(square)))
        if is_rough or log_p > self._least:
            return log_p, square / 2
        # Half a step of the lattice towards the mean, for a tail that includes what was seen.
        seen, mean = float(law.statistics[-1]), float(null.mean[-1])
        side = math.copysign(1.0, seen - mean)
        step = self._step(node, term, scale)
        target = seen - side * step / 2
        if (target - mean) * side <= _ROUNDING * (1.0 + abs(seen)):
            return 0.0, 0.0
        # The law tilted to there, from one with this term that may be known already.
        whole = self._known(node, nuisance, (term,))
        moved = law.tilted(parameters, null, target, whole)
        root = math.sqrt(2 * max(moved.rise, 0.0))
        tail = saddle_point_log_tail(np.array(root), np.array(abs(moved.psi)), np.array(moved.information), step)
        return float(tail), moved.rise

    def _step(self, node: int, term: _Feature, scale: _Scale) -> float:
        """Distance of the values of a statistic: that of the lattice of the commonest values, as far as they are on it.

        The share is the modulus of the characteristic function at the frequency of the lattice, were the column and
        the feature independent and the sum Poisson: one where all values are on it, such as zero and one, and next to
        zero where many are not.
        """
        if not len(scale.values) or not self.rows.families[node].is_discrete:
            return 0.0
        column = self._column(node)
        first, second = np.argsort(-column.shares, kind="stable")[:2]
        roots = column.scores(term.statistic)
        width = float(roots[second] - roots[first])
        steps = np.outer((roots - roots[first]) / width, (scale.values - scale.values[0]) / scale.step)
        missed = column.shares @ (1 - np.cos(2 * math.pi * steps)) @ scale.shares
        return abs(width * scale.step) * math.exp(-float(self._weights.sum() * missed))

    def _null(self, node: int, nuisance: tuple[_Feature, ...]) -> Floats:
        """Parameters of a column's law with the features of the nuisance alone."""
        key = node, nuisance
        if key not in self._nulls:
            law = self._law(node, nuisance)
            parameters = law.start
            if nuisance:
                free, last = len(parameters) - len(nuisance), self._last.get(node, {})
                start = np.append(parameters[:free], [last.get(feature, 0.0) for feature in nuisance])
                parameters = law.maximised(law.statistics, start if last and law.is_inside(start) else parameters)[0]
                self._last[node] = dict(zip(nuisance, parameters[free:].tolist(), strict=True))
            self._nulls[key] = parameters
        return self._nulls[key]

    def _law(self, node: int, features: Sequence[_Feature]) -> ConditionalLaw:
        """The column's rows by the patterns of the columns of the features, both sides of unit spread."""
        # Rows with the same values of the features' columns are one pattern.
        column = self._column(node)
        keys, space = np.zeros(self.rows.num_rows, dtype=np.int64), 1
        for position in sorted({position for feature in features for position, _ in feature.others}):
            other = self._column(position)
            if space > _MOST_KEYS // other.num_values:
                values, keys = np.unique(keys, return_inverse=True)
                space = len(values)
            keys, space = keys * other.num_values + other.codes, space * other.num_values
        _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
        r = len(column.shares)
        cells = np.bincount(inverse.reshape(-1) * r + column.levels, self._weights, minlength=len(first) * r)
        # Features of the patterns, and scores of the levels, in units of their spread.
        values = np.empty((len(first), len(features)))
        for i, feature in enumerate(features):
            scale = self._scale(feature)
            values[:, i] = (self._product(feature, first) - scale.mean) / scale.spread
        scores = np.array([column.scores(feature.statistic) for feature in features]).reshape(len(features), r)
        return ConditionalLaw(cells.reshape(len(first), r).astype(np.float64, copy=False), values, scores)

    def _product(self, feature: _Feature, rows: slice | Integers) -> Floats:
        return np.prod([self._column(node).roots[one - 1, rows] for node, one in feature.others], axis=0)

    def _scale(self, feature: _Feature) -> _Scale:
        scale = self._features.get(feature)
        if scale is None:
            values = self._product(feature, slice(None))
            # A feature that rounding alone moves has no spread.
            mean = float(np.average(values, weights=self._weights))
            spread = math.sqrt(float(np.average((values - mean) ** 2, weights=self._weights)))
            spread = spread if spread > _ROUNDING * (1.0 + abs(mean)) else 0.0
            distinct, shares = np.empty(0), np.empty(0)
            if spread and all(self.rows.families[position].is_discrete for position, _ in feature.others):
                distinct, inverse = np.unique(values, return_inverse=True)
                shares = np.bincount(inverse, self._weights) / self._weights.sum()
                common = np.argsort(-shares, kind="stable")[:_MOST_VALUES]
                distinct, shares = distinct[common] / spread, shares[common]
            scale = self._features[feature] = _Scale(mean, spread, distinct, shares)
        return scale

    def _column(self, variable: int) -> _Column:
        column = self._columns.get(variable)
        if column is None:
            if len(self._columns) >= _HELD:
                self._columns.popitem(last=False)
            # Levels of the column, with the mean roots of each.
            weights = self._weights
            category = self.rows.category_of.get(variable)
            numbers = self.rows.column(variable) if category is None else category.codes
            values, codes = np.unique(numbers, return_inverse=True)
            roots = np.ascontiguousarray(self.rows.column_roots(variable).T)
            groups = np.arange(len(values))
            if category is None:
                groups = _groups(np.bincount(codes, weights).astype(np.float64, copy=False))
            levels = groups[codes]
            counts = np.bincount(levels, weights)
            level_roots = np.stack([np.bincount(levels, weights * root) / counts for root in roots])
            column = self._columns[variable] = _Column(
                codes, len(values), roots, levels, level_roots, counts / counts.sum()
            )
        else:
            self._columns.move_to_end(variable)
        return column


def _groups(counts: Floats) -> Integers:
    """Groups of neighbouring values, where they are many; frequent values stay alone."""
    if len(counts) <= _MOST_LEVELS:
        return np.arange(len(counts))
    # Rare neighbours share groups of about equal weight.
    is_alone = counts * _MOST_LEVELS >= counts.sum()
    rest = np.where(is_alone, 0.0, counts)
    share = (np.cumsum(rest) - rest / 2) / rest.sum()
    groups = (share * (_MOST_LEVELS - is_alone.sum())).astype(np.int64)
    groups[is_alone] = _MOST_LEVELS + np.arange(int(is_alone.sum()))
    return np.unique(groups, return_inverse=True)[1]


class RootSearch(StepwiseSearch):
    """Sets of a model of roots that all rows confirm, of those proposed."""

    def __init__(
        self, tester: RootSetTester, hypotheses: Hypotheses, least_gain: float, proposed: Sequence[Edge]
    ) -> None:
        super().__init__(hypotheses, least_gain, [tester.test(edge, []) for edge in proposed])
        self._tester, self.proposed, self._is_rough = tester, proposed, False

    def run(self) -> None:
        """Sets that promise something alone first, then all, back and forth until nothing changes."""
        self._is_rough = True
        self.grow([edge for edge in self.proposed if self.alone[edge].log_p_value <= PROMISING])
        self._is_rough = False
        self.shrink()
        self.settle(self.proposed)

    @override
    def tested(self, edge: Edge, others: Sequence[Edge], response: str | None, asked: Asked) -> EdgeTest:
        return self._tester.test(edge, others, response, is_rough=self._is_rough)

    @override
    def responses(self, edge: Edge) -> tuple[str | None, ...]:
        return (None,)

    @override
    def lone(self, edge: Edge) -> EdgeTest:
        return self._tester.test(edge, (), is_rough=True)


# The sets of a fit that pass.

_LEAST_GAIN = 2.0  # nats over all rows
_MOST_SECONDS = 60.0  # of tests that are made by default
_SECONDS = 5e-7  # of a row and two sets of one column, very roughly


def confirm_roots(
    fit: RootFitResult,
    data: Any,
    *,
    false_discovery_rate: float = 0.1,
    least_gain: float = _LEAST_GAIN,
    refit: Refit | None = None,
    settings: RootSettings | None = None,
) -> RootFitResult:
    r"""Find which sets of a learned root model all rows confirm, each beside the others.

    .. math:: p(x_s \mid x_{-s}) \propto \exp\Bigl(h_s(x_s) + \sum_j T_j(x_s)
        \sum_{S \ni s} c_S \prod_{t \in S \setminus s} T_j(x_t)\Bigr)

    An l1 penalty that predicts well keeps many sets that are absent. Here the sets that the regressions found are
    tested on all rows. The base measure :math:`h_s` is free, one parameter for every value that the column takes (of
    more than 24 values, for groups of neighbours): columns of any law, overdispersed ones as well, are independent
    under the null, those of a table with families of their own too. The tail of the sum over rows of the set's product
    of roots, *conditional on how often each value occurs and on the statistics of the other sets and of the subsets of
    the set*, is a double saddle-point approximation, good to the smallest counts. A set with categories of more than
    two levels has several coefficients, which are tested together: the larger one of the p-values of the score and of
    the likelihood ratio, by the chi-square law of as many degrees of freedom as free coefficients. Each member's law
    gives a p-value, and the largest of them counts, so that one member's law alone, where it does not hold, confirms
    nothing.

    The procedure of Benjamini and Hochberg, with sizes sharing the rate equally, is over all sets of the columns that
    vary, whether they were found or not, or over those of ``settings.candidates`` where every size is listed: this pays
    for the regressions having looked at the same rows. Sets enter, the strongest of their columns first, and leave
    where they are not confirmed beside the others, until nothing changes, as in :func:`~pyro_hoim.log_linear.confirm`.

    Roots of three columns stand in for those of two, so that regressions find triples where there are pairs. With the
    refit ``all`` subsets of the sets that they found are tested, too.

    Args:
        fit: the model whose sets are tested; with ``symmetrize='mean'`` it proposes more of them than with ``'and'``.
        data: the rows that it was learned from, or others with the same columns.
        false_discovery_rate: share of the kept sets that are absent from the law of the rows, on average at most,
            where p-values are not adversely dependent; between 0 and 1.
        least_gain: nats over all rows that a kept set must raise the log-likelihood of each member given the rest by.
        refit: how the model of the confirmed sets is estimated, as of :func:`~pyro_hoim.generalized_root.refit_roots`;
            by default as ``fit`` was.
        settings: ``candidates``, and how a refit is done.

    Returns:
        The model of the confirmed sets, with :attr:`RootFitResult.confirmation`.

    Raises:
        InputError: numbers out of range, other columns, or values outside the support.
        InputTypeError: arguments of the wrong type.

    Warns:
        ConvergenceWarning: as :func:`~pyro_hoim.generalized_root.refit_roots`.

    References:
        Yoav Benjamini and Yosef Hochberg, Controlling the false discovery rate, 1995; Ib Skovgaard, Saddlepoint
        expansions for conditional distributions, 1987; Zhuoran Yang, Yang Ning and Han Liu, On semiparametric
        exponential family graphical models, 2018 (the free base measure).

    Example:
        >>> import numpy as np
        >>> from pyro_hoim import fit_roots
        >>> x = np.random.default_rng(0).poisson(1.0, (300, 3))
        >>> x[:, 1] += x[:, 0]
        >>> found = fit_roots(x, order=2)
        >>> found.num_interactions, confirm_roots(found, x).num_interactions
        (2, 1)
    """
    # The door; the tolerance is that of the fit.
    check_type(fit, RootFitResult, "fit")
    check_fraction(false_discovery_rate, "false_discovery_rate")
    check_not_negative(least_gain, "least_gain")
    if refit is not None:
        check_choice(refit, get_args(Refit), "refit")
    settings = replace(checked_settings(settings), tolerance=fit.tolerance, false_discovery_rate=false_discovery_rate)
    rows = fit.rows(data, fit.order)
    listed = checked_candidates(settings.candidates, rows.units, fit.order)
    confirmed = confirm_rows(fit, rows, listed, settings, least_gain, refit)
    warn_refits([confirmed])
    return confirmed


def with_confirmed(
    fit: RootFitResult, rows: RootRows, listed: Mapping[int, Integers], settings: RootSettings
) -> RootFitResult:
    """A fit with its confirmed model, unless none is asked for or tests would take much longer than the regressions."""
    # Tests take a time that grows with rows and with pairs of sets at a column.
    if settings.false_discovery_rate is None:
        return fit
    degrees = Counter(name for edge, roots in fit.sets.items() for name in edge for _ in roots)
    seconds = _SECONDS * rows.num_rows * sum(degree**2 for degree in degrees.values())
    if seconds > _MOST_SECONDS:
        problem = (
            f"the {fit.num_interactions:,} sets that the regressions found were not tested, which would take up to "
            f"{seconds / 60:.2g} minutes or so; call confirm_roots(fit, data), raise l1, or pass "
            "RootSettings(false_discovery_rate=None)"
        )
        warnings.warn(CostWarning(problem), stacklevel=caller_level())
        return fit
    return replace(fit, confirmed=confirm_rows(fit, rows, listed, settings))


def confirm_rows(
    fit: RootFitResult,
    rows: RootRows,
    listed: Mapping[int, Integers],
    settings: RootSettings,
    least_gain: float = _LEAST_GAIN,
    refit: Refit | None = None,
) -> RootFitResult:
    """The confirmed model of prepared rows of the same columns, at the rate of the settings.

    Candidates are listed by size, as positions (m, size).
    """
    begin, rate = time.perf_counter(), settings.false_discovery_rate or 0.0
    # Hypotheses: all sets of the columns that vary, or the candidates where those of every size are listed.
    keys, constant = fit.sets, set(rows.constant_columns)
    free = {fit.unit_names[name] for name in fit.structure.domain.names if name not in constant}
    varying = [name for name in rows.units.names if name in free]
    allowed: list[frozenset[str]] | None = None
    if set(listed) == set(range(2, fit.order + 1)):
        names_of = rows.units.names
        allowed = [frozenset(names_of[i] for i in positions) for sets in listed.values() for positions in sets]
    hypotheses = Hypotheses(varying, fit.order, allowed, rate)
    # The search among the sets that were found, and the model of those that it keeps.
    method = refit or ("none" if fit.refit is None else cast("Refit", fit.refit.method))
    sets = list(keys)
    if method == "all":  # which gives further sets their coefficients
        smaller = (part for edge in keys for size in range(2, len(edge)) for part in itertools.combinations(edge, size))
        sets = list(dict.fromkeys([*keys, *smaller]))
    proposed = [names for names in sets if names in hypotheses]
    search = RootSearch(RootSetTester(rows, keys, min(1.0, 2 * rate)), hypotheses, least_gain, proposed)
    search.run()
    confirmation = RootConfirmation(kept_first(search.verdict(edge) for edge in proposed), rate)
    refitted = refit_rows(fit.restricted(search.kept), rows, method, settings)
    return replace(refitted, confirmation=confirmation, seconds=fit.seconds + time.perf_counter() - begin)
