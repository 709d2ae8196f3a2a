"""P-values of adding an interaction to a collection, good to the smallest counts."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array
from scipy.special import chdtrc, chdtri, log_softmax

from ...data.counting import marginal_tables
from ...data.observations import Observations
from ...data.sources.sourced import held_rows
from ...results.confirmation import Asked, EdgeTest, saddle_point_log_tail
from ...structure.hypergraph import Edge
from ..fitting.design import cell_numbers
from .conditional_fits import Design, Maximum, evidence_strength, is_large, level_contrasts, maximised

Floats = NDArray[np.float64]
Ints = NDArray[Any]
Term = tuple[str, ...]
_LEAST_EXPECTED = 1.0  # rows in a cell of the chi-square tests, of which the more careful one counts
_CELLS_TRIED = 3  # of the most extreme ones, whose tails are computed
_MOST, _SMALL = 0.5, 1e-3  # ridges of tests of subsets of what is kept: of the larger sets at most, and of all else
_RIDGE = 0.5  # of both fits whose predictions are compared
_CERTAIN = 1e-100  # variance of a number of rows that nothing moves
_STEP = 0.5  # half of the distance of whole numbers
_MOST_FITS = 128  # of nuisance alone that are kept
_MOST_LAWS = 4  # of a response with a ridge
_ROWS = 5  # for each of many parameters: of fewer the chi-square law is too far away
_PLAIN = math.log(0.5)  # a score test of many parameters above it is taken at its word
_WHOLE = Asked()


@dataclass(frozen=True)
class _Patterns:
    """Distinct values of the variables that a response depends on, and how often each of its levels came with them."""

    response: str
    names: tuple[str, ...]  # the variables, without the response
    codes: Ints  # (P, len(names))
    counts: Floats  # (P, r)

    def design(self, tables: Iterable[Mapping[str, Floats]], of_response: Floats) -> Design:
        """Statistics of tables by contrasts (r, c) of the levels of their variables, and of the response."""
        cells: list[Ints] = []
        columns: list[Floats] = []
        begin = 0
        for contrasts in tables:
            sizes = [len(by_level) for by_level in contrasts.values()]
            where = [self.names.index(name) for name in contrasts]
            numbers = cell_numbers(self.codes[:, where], range(len(where)), sizes)
            is_seen = np.zeros(math.prod(sizes), np.bool_)
            is_seen[numbers] = True
            cells.append((np.cumsum(is_seen) - 1)[numbers] + begin)
            products = np.asarray(reduce(np.kron, contrasts.values() or [np.ones((1, 1))]))
            columns.append(products[is_seen].astype(np.float64, copy=False))
            begin += int(is_seen.sum())
        return Design(np.stack(cells, 1), ((tuple(columns), of_response),))


class _Fit(NamedTuple):
    """What is kept of a fit of nuisance alone."""

    parameters: dict[Term, Floats]
    value: float
    eigen: tuple[Floats, Floats] | None  # of laws of few parameters


class EdgeTester:
    r"""Tests of single interactions beside others by the law of one of their variables given all the rest.

    Given all others, a variable i of a log-linear model has a multinomial logistic law in the tables that contain it,
    without log Z. The statistic of S in it is the number of rows in a cell of S; the tables of the others and of the
    proper subsets of S are nuisance. The tail of that number, *conditional on the statistics of the nuisance*, is the
    double saddle-point approximation with the correction for whole numbers:

    .. math:: r = \operatorname{sign}(\hat\psi) \sqrt{2 (\hat\ell - \tilde\ell)}, \quad
        v = 2 \sinh(\hat\psi / 2) \sqrt{|\hat J| / |\tilde J_{\lambda\lambda}|}, \quad
        P(T \ge t) \approx \Phi\left(-r - \tfrac1r \log \tfrac vr\right)

    with both fits at :math:`t - \tfrac12`. Without nuisance this is the tail of Fisher's test, within some percent of
    its value at any expected count. The p-value of S is that of its most extreme cell times the number of cells that
    the nuisance leaves free. Where S has more than one degree of freedom, and levels are left after those too rare for
    one expected row were pooled, the pooled levels are tested by the likelihood ratio and by the score, of which the
    first is too large on average in cells of few rows and the second in their tails, so that the larger of their
    p-values is taken. The smaller of both kinds counts twice. Which levels are pooled depends on the frequencies of
    single levels alone.

    Beside a superset T the pooled likelihood ratio alone decides. In few rows the many parameters of T, left free,
    imitate nearly all that S does, so they are effects of a mixed model: normal around zero, with a ridge in both fits
    of half the strength that the rows choose by the evidence, and of 0.5 at most. Both are on the careful side.

    Beside more than 300 parameters of nuisance, single cells are not tested: the pooled levels decide alone, and count
    twice all the same. Where the score test says more than 0.5, that is their p-value. A set is then tested beside the
    others without its supersets, as in an analysis of variance of type II. Of fewer than five rows for each of more
    than 300 parameters the p-value is one. Steps of more than 1,000 parameters need no matrix of them.

    Args:
        rows: complete rows. Of rows beyond memory the sample that stands in for them. Weights count as Kish's effective
            number of rows, :math:`(\sum_i w_i)^2 / \sum_i w_i^2`.
        more: further rows over the same domain.

    References:
        Ib Skovgaard, Saddlepoint expansions for conditional distributions, 1987; Anthony Davison, Approximate
        conditional inference in generalized linear models, 1988; David MacKay, Bayesian interpolation, 1992, of the
        evidence.

    Example:
        >>> from pyro_hoim import load_table
        >>> tester = EdgeTester(load_table("hair_eye_color"))
        >>> tester.test(("Hair", "Sex"), [("Hair", "Eye")]).p_value < 0.1
        True
    """

    def __init__(self, rows: Observations, *more: Observations) -> None:
        parts = [held_rows(part) for part in (rows, *more)]
        is_whole = len(parts) == 1 and parts[0].has_whole_counts  # their distinct rows may be known already
        every = parts[0] if is_whole else Observations.concatenated(parts)
        if not every.has_whole_counts:  # fractions of every kind are weights of one observation each
            every = Observations(every.domain, every.narrow, every.counts, True, every.squares).in_effective_rows()
        self._rows = every.unique()
        self.cardinalities = dict(zip(rows.domain.names, rows.domain.cardinalities, strict=True))
        self.total = float(self._rows.total_count)
        self._codes = np.ascontiguousarray(self._rows.narrow.numpy().T)  # by column
        self._weights = self._rows.counts.numpy()
        self._places = {name: i for i, name in enumerate(rows.domain.names)}
        self._singles = {
            name: np.bincount(self._codes[i], self._weights, minlength=self.cardinalities[name])
            for name, i in self._places.items()
        }

        self._fits: dict[tuple[str, frozenset[frozenset[str]]], _Fit] = {}
        self._laws: dict[str, dict[frozenset[frozenset[str]], dict[Term, Floats]]] = {}

    @property
    def num_distinct(self) -> int:
        """Number of distinct rows."""
        return self._codes.shape[1]

    def positions(self, edges: Sequence[Edge], size: int) -> Ints:
        """The variables of sets of one size by their number (len(edges), size)."""
        names = itertools.chain.from_iterable(edges)
        return np.fromiter(map(self._places.__getitem__, names), np.int64).reshape(-1, size)

    def tables(self, sets: Ints) -> Floats:
        """Counts (len(sets), *shape) of sets of one shape, by the numbers of their variables."""
        sizes = [*self.cardinalities.values()]
        counts = marginal_tables(self._codes.T, self._weights, sizes, sets)
        return counts.reshape(len(sets), *(sizes[i] for i in sets[0]))

    def num_parameters(self, edge: Iterable[str]) -> int:
        """Free parameters of a set."""
        return math.prod(self.cardinalities[name] - 1 for name in edge)

    def response(self, edge: Edge, others: Iterable[Edge]) -> str:
        """The variable of a set whose law has the fewest nuisance parameters, the first of equals."""
        variables, sums = set(edge), dict.fromkeys(edge, 0)
        # Of a wide structure nearly every set has none of the variables.
        for other in others:
            if not variables.isdisjoint(other) and variables != set(other):
                count = self.num_parameters(other)
                for name in variables.intersection(other):
                    sums[name] += count
        return min(edge, key=sums.__getitem__)

    def law_size(self, edge: Edge, others: Iterable[Edge], response: str) -> int:
        """Parameters of the law of a variable of a set, with it, beside others."""
        return self.num_parameters(edge) + self._size(response, conditional_terms(response, edge, others))

    def _size(self, response: str, terms: Iterable[Term]) -> int:
        return sum(self.num_parameters((*term, response)) for term in terms)

    def test(self, edge: Edge, others: Iterable[Edge], response: str | None = None, asked: Asked = _WHOLE) -> EdgeTest:
        """The p-value of adding a set to a collection, or of leaving it there where it is part of it.

        Args:
            edge: the set.
            others: the collection.
            response: the variable of the set whose law given the rest is used; default that of :meth:`response`.
            asked: what is asked of the p-value and the gain, by default both.
        """
        # The law of one variable given what it depends on.
        others = list(others)
        response = response or self.response(edge, others)
        nuisance, rest, names = _conditional(response, edge, others)
        pooled = self.pooled(edge)
        is_inside = pooled is not None and any(set(rest) < set(term) for term in nuisance)
        if is_inside and is_large(self._size(response, nuisance)):
            nuisance, is_inside = [term for term in nuisance if not set(rest) < set(term)], False
            names = tuple(dict.fromkeys(itertools.chain(rest, *nuisance)))
        num = self.num_parameters(edge) + self._size(response, nuisance)
        if is_large(num) and num * _ROWS > self.total:
            return EdgeTest(edge, 0.0, 0.0, "chi-square")
        patterns = self._patterns(response, names)
        cell = cell_numbers(patterns.codes, range(len(rest)), [self.cardinalities[name] for name in rest])
        if pooled is not None and is_inside:
            return self._test_inside(edge, patterns, pooled, nuisance, asked)
        # The set as a whole with its rare levels pooled, and its most extreme cells where they could say more.
        null = self._without(patterns, nuisance)
        is_twice = null.design.is_large or pooled is not None
        each = asked._replace(low=asked.low - math.log(2), high=asked.high - math.log(2)) if is_twice else asked
        if null.design.is_large:
            test = self._pooled_test(edge, patterns, pooled, null, each)
            return smallest([test, replace(test, log_p_value=0.0)])
        tests = [] if pooled is None else [self._pooled_test(edge, patterns, pooled, null, each)]
        if tests and tests[0].log_p_value <= each.low:
            return smallest([*tests, replace(tests[0], log_p_value=0.0)])
        free = math.log(math.prod(self.cardinalities[n] if self.cardinalities[n] > 2 else 1 for n in edge))
        r, num = patterns.counts.shape[1], math.prod(self.cardinalities[name] for name in rest)
        best = min(0.0, each.high - free, *(test.log_p_value - free for test in tests))
        gain, log_tail = 0.0, 0.0
        for z, level, seen in self._extreme_cells(edge, patterns, null, cell, num):
            inside = (cell == z)[:, None]
            columns = (((np.ones((1, 1)),), np.eye(r)[:, [level]]),)
            log_p, rise = _log_tail(null, Design(np.zeros_like(inside, np.int64), columns, inside * 1.0), seen, -best)
            log_tail, best, gain = min(log_tail, log_p), min(best, log_p), max(gain, rise)
        by_cell = EdgeTest(edge, min(0.0, log_tail + free), gain, "saddle point")
        if pooled is not None and by_cell.log_p_value <= each.high < tests[0].log_p_value:  # its gain counts now
            tests = [self._pooled_test(edge, patterns, pooled, null, each._replace(high=math.inf))]
        return smallest([*tests, by_cell])

    def _extreme_cells(
        self, edge: Edge, patterns: _Patterns, null: Maximum, cell: Ints, num: int
    ) -> list[tuple[int, int, float]]:
        """The cells of a set whose rows are the furthest from those expected, and the numbers of these rows."""
        sums = csc_array((np.ones(len(cell)), cell, np.arange(len(cell) + 1)), shape=(num, len(cell)))
        by_pattern = patterns.counts.sum(1)[:, None] * null.probs
        seen, expected, spread = sums @ patterns.counts, sums @ by_pattern, sums @ (by_pattern * (1 - null.probs))
        nearer = np.sign(seen - expected) * np.maximum(np.abs(seen - expected) - _STEP, 0.0)
        size = np.abs(_root_deviance(expected + nearer, expected)) * np.sqrt(
            np.divide(expected, spread, out=np.zeros_like(spread), where=spread > _CERTAIN)
        )
        r = patterns.counts.shape[1]
        chosen = [divmod(int(i), r) for i in np.argsort(-size.ravel(), kind="stable")[:_CELLS_TRIED]]
        if all(self.cardinalities[name] == 2 for name in edge):
            chosen = [(num - 1, 1)]  # all cells say the same
        return [(z, level, float(seen[z, level])) for z, level in chosen]

    def held_out(self, edge: Edge, others: Iterable[Edge], judging: EdgeTester) -> tuple[float, float]:
        """Mean rise of the conditional log-likelihood of held-out rows with a set, and its error; nats a row.

        Both laws are fitted to the rows of this tester with a ridge of half a unit.
        """
        others = list(others)
        response = self.response(edge, others)
        nuisance, rest, names = _conditional(response, edge, others)
        judges, logs = judging._patterns(response, names), list[Floats]()
        for terms in ([*nuisance, rest], nuisance):
            parameters = self._held_back(response, terms)
            design = self._design(judges, list(parameters))
            logs.append(log_softmax(design.scores(np.concatenate([*parameters.values()])), 1))
        change, counts = logs[0] - logs[1], judges.counts
        total = counts.sum()
        gain = float((counts * change).sum() / total)
        return gain, math.sqrt(float((counts * (change - gain) ** 2).sum()) / total / total)

    def _held_back(self, response: str, terms: Sequence[Term]) -> dict[Term, Floats]:
        """The parameters of a law with a ridge, which serves for many sets; it starts from the last one."""
        laws = self._laws.setdefault(response, {})
        key = frozenset(map(frozenset, terms))
        if key not in laws:
            patterns = self._patterns(response, tuple(dict.fromkeys(itertools.chain(*terms))))
            start = self._placed(next(reversed(laws.values()), {}), response, terms)
            fit = maximised(self._design(patterns, terms), patterns.counts, _RIDGE, start)
            if len(laws) >= _MOST_LAWS:
                del laws[next(iter(laws))]
            laws[key] = self._by_term(fit, response, terms)
        return laws[key]

    def _patterns(self, response: str, names: Sequence[str]) -> _Patterns:
        places = [self._places[name] for name in names]
        sizes = [self.cardinalities[name] for name in names]
        r, y = self.cardinalities[response], self._codes[self._places[response]]
        columns, space = self._codes[places].T, math.prod(sizes)
        # Numbers of the rows' patterns: of all that there could be where these are few, else of those that occur.
        numbers = cell_numbers(columns, range(len(sizes)), sizes) if space < 2**62 else columns
        codes = None
        if space > max(1024, len(columns)):
            _, first, inverse = np.unique(numbers, return_index=True, return_inverse=True, axis=0)
            codes, numbers, space = columns[first], inverse.reshape(-1), len(first)
        counts = np.bincount(numbers * r + y, self._weights, minlength=space * r)
        counts = counts.astype(np.float64, copy=False).reshape(space, r)
        if codes is None:
            occupied = np.flatnonzero(counts.any(1))
            codes = np.stack(np.unravel_index(occupied, sizes), 1) if sizes else np.zeros((len(occupied), 0), np.int64)
            counts = counts[occupied]
        return _Patterns(response, tuple(names), codes, counts)

    def _without(self, patterns: _Patterns, nuisance: Sequence[Term]) -> Maximum:
        """The fit of the nuisance alone, which depends on its variables alone and serves for many sets."""
        key = patterns.response, frozenset(map(frozenset, nuisance))
        if key not in self._fits:
            coarse = self._patterns(patterns.response, tuple(dict.fromkeys(itertools.chain(*nuisance))))
            start = self._start(patterns.response, nuisance)
            if len(self._fits) >= _MOST_FITS:
                del self._fits[next(iter(self._fits))]
            fit = maximised(self._seen_design(coarse, nuisance), coarse.counts, start=start)
            eigen = None if fit.design.is_large else fit.eigen
            self._fits[key] = _Fit(self._by_term(fit, patterns.response, nuisance), fit.value, eigen)
        fitted = self._fits[key] = self._fits.pop(key)
        design, parameters = self._seen_design(patterns, list(fitted.parameters)), [*fitted.parameters.values()]
        return Maximum.of(design, patterns.counts, np.concatenate(parameters), fitted.value, fitted.eigen)

    def _by_term(self, fit: Maximum, response: str, terms: Sequence[Term]) -> dict[Term, Floats]:
        """The parameters of every term."""
        ends = np.cumsum([self.num_parameters((*term, response)) for term in terms])
        return dict(zip(terms, np.split(fit.parameters, ends[:-1]), strict=True))

    def _start(self, response: str, nuisance: Sequence[Term]) -> Floats:
        """The parameters of the fit of most of some terms; what is infinite there is so beside more terms."""
        wanted = set(map(frozenset, nuisance))
        fits = [fit.parameters for (name, terms), fit in self._fits.items() if name == response and terms < wanted]
        most = max(fits, key=lambda parameters: sum(map(len, parameters.values()))) if fits else {}
        return self._placed(most, response, nuisance)

    def _placed(self, parameters: Mapping[Term, Floats], response: str, terms: Sequence[Term]) -> Floats:
        """Parameters of terms as one vector, with zeros where there are none."""
        sizes = [self.num_parameters((*term, response)) for term in terms]
        return np.concatenate([parameters.get(term, np.zeros(n)) for term, n in zip(terms, sizes, strict=True)])

    def _design(self, patterns: _Patterns, terms: Iterable[Term]) -> Design:
        """Statistics of the tables that contain the response, each given by its other variables."""
        tables = [{name: level_contrasts(self.cardinalities[name]) for name in term} for term in terms]
        return patterns.design(tables, level_contrasts(self.cardinalities[patterns.response]))

    def _seen_design(self, patterns: _Patterns, terms: Sequence[Term]) -> Design:
        """The same without levels that no row has in a cell of a table all of whose subsets are there."""
        given = set[frozenset[str]]()
        for term in sorted(map(frozenset, terms), key=len):
            if all(term - {name} in given for name in term):
                given.add(term)
        is_given = np.array([frozenset(term) in given for term in terms])
        return self._design(patterns, terms).of_seen(patterns.counts, is_given)

    def pooled(self, edge: Edge) -> dict[str, Ints] | None:
        """Groups of the levels, the rare ones in one; None where one group is left, or a set has one parameter.

        A level is rare when independent levels as frequent as it had less than a row together.
        """
        if self.num_parameters(edge) == 1:
            return None
        least = self.total * min(1.0, _LEAST_EXPECTED / self.total) ** (1 / len(edge))
        groups_of: dict[str, Ints] = {}
        for name in edge:
            counts = self._singles[name]
            order = np.argsort(counts, kind="stable")
            rare = int((counts < least).sum())
            if rare and counts[order[:rare]].sum() < least:
                rare += 1  # they take the next one in
            if rare >= len(counts):
                return None
            groups = np.zeros(len(counts), dtype=np.int64)
            groups[order[rare:]] = np.arange(len(counts) - rare) + (rare > 0)
            groups_of[name] = groups
        return groups_of

    def _added(self, edge: Edge, patterns: _Patterns, pooled: dict[str, Ints]) -> Design:
        """Statistics of a set with its levels pooled."""
        contrasts = {name: level_contrasts(int(pooled[name].max()) + 1)[pooled[name]] for name in edge}
        of_response = contrasts.pop(patterns.response)
        return patterns.design([contrasts], of_response)

    def _test_inside(
        self,
        edge: Edge,
        patterns: _Patterns,
        pooled: dict[str, Ints],
        nuisance: Sequence[Term],
        asked: Asked,
    ) -> EdgeTest:
        """The likelihood-ratio test of a set inside larger ones that are kept, whose parameters a ridge holds back."""
        rest, response = set(edge) - {patterns.response}, patterns.response
        design, added = self._seen_design(patterns, nuisance), self._added(edge, patterns, pooled)
        both = design + added
        is_larger = np.zeros(len(both), dtype=bool)
        sizes = [self.num_parameters((*term, response)) for term in nuisance]
        is_larger[: sum(sizes)] = np.repeat([rest < set(term) for term in nuisance], sizes)
        strength, start = evidence_strength(both, patterns.counts, is_larger, _SMALL)
        ridge = np.where(is_larger, min(_MOST, strength / 2), _SMALL)
        null = maximised(design, patterns.counts, ridge[: len(design)], start[: len(design)])
        until = null.penalised + max(_least_rise(len(added), asked.low), asked.least_gain)
        whole = maximised(both, patterns.counts, ridge, start, until=until)
        gain = max(0.0, whole.penalised - null.penalised)
        return by_chi_square(edge, gain, 2 * gain, len(added))

    def _pooled_test(
        self,
        edge: Edge,
        patterns: _Patterns,
        pooled: dict[str, Ints] | None,
        null: Maximum,
        asked: Asked,
    ) -> EdgeTest:
        """The likelihood-ratio or score test of a set with its rare levels pooled, whichever has the larger p-value."""
        if pooled is None and self.num_parameters(edge) > 1:
            return EdgeTest(edge, 0.0, 0.0, "chi-square")  # one group of levels is left
        rest = [name for name in edge if name != patterns.response]
        added = self._design(patterns, [tuple(rest)]) if pooled is None else self._added(edge, patterns, pooled)
        start, design = np.concatenate([null.parameters, np.zeros(len(added))]), null.design + added
        information, high = None, asked.high
        if design.has_matrix or not null.design.is_large:
            information = design.information(patterns.counts.sum(1), null.probs)
        if null.design.is_large:
            high = min(high, _PLAIN)
            least = float(chdtri(len(added), math.exp(min(asked.high, 0.0))))
            score = null.score_of_large(added, information, least)
        else:
            assert information is not None
            score = null.score_statistic(added, information)
        by_score = by_chi_square(edge, score / 2, score, len(added))
        if by_score.log_p_value > high:
            return by_score
        # More than the score says, and more than is asked for, does not count.
        until = null.value + max(min(_least_rise(len(added), asked.low), by_score.gain), asked.least_gain)
        whole = maximised(design, patterns.counts, start=start, curvature=information, until=until)
        gain = max(0.0, whole.value - null.value)
        return by_chi_square(edge, gain, 2 * min(gain, by_score.gain), len(added))


def smallest(tests: Sequence[EdgeTest]) -> EdgeTest:
    """Several tests of one set as one: the smallest p-value times their number."""
    if len(tests) == 1:
        return tests[0]
    best = min(tests, key=lambda test: test.log_p_value)
    log_p_value = min(0.0, best.log_p_value + math.log(len(tests)))
    return replace(best, log_p_value=log_p_value, gain=max(test.gain for test in tests))


def _least_rise(df: int, log_p_value: float) -> float:
    """The rise of a log-likelihood with half of a p-value, so that rounding leaves it below; infinite for none."""
    return float(chdtri(df, math.exp(min(log_p_value, 0.0)) / 2)) / 2


def by_chi_square(edge: Edge, gain: float, statistic: float, df: int) -> EdgeTest:
    """The test of a set by a statistic that follows the chi-square law in the limit."""
    log_p_value = float(chi_square_log_tail(np.array(max(statistic, 0.0)), df))
    return EdgeTest(edge, log_p_value, gain, "chi-square")


def chi_square_log_tail(value: Floats, df: int) -> Floats:
    """Logarithm of the tail of the chi-square law, also where the tail underflows."""
    with np.errstate(divide="ignore"):
        near = np.log(chdtrc(df, np.asarray(value, dtype=np.float64)))
    a, x = df / 2, np.maximum(value, 1.0) / 2
    far = (a - 1) * np.log(x) - x - math.lgamma(a) + np.log1p(np.maximum((a - 1) / x, -0.5))
    return np.where(np.isfinite(near), near, far)


def conditional_terms(response: str, edge: Edge, others: Iterable[Edge]) -> list[Term]:
    """Nuisance of a test: tables with the response, of the others and of subsets, each by its other variables."""
    rest = [name for name in edge if name != response]
    parts = [part for size in range(len(rest)) for part in itertools.combinations(rest, size)]
    terms = {frozenset(part): part for part in parts}
    for other in others:
        if response in other and set(other) != set(edge):
            part = tuple(name for name in other if name != response)
            terms.setdefault(frozenset(part), part)
    return list(terms.values())


def _conditional(response: str, edge: Edge, others: Iterable[Edge]) -> tuple[list[Term], Term, Term]:
    """The nuisance, the set without the response, and all variables that the response depends on, those first."""
    nuisance = conditional_terms(response, edge, others)
    rest = tuple(name for name in edge if name != response)
    return nuisance, rest, tuple(dict.fromkeys(itertools.chain(rest, *nuisance)))


def two_by_two_log_tail(seen: Floats, row: Floats, column: Floats, total: Floats | float) -> tuple[Floats, Floats]:
    r"""Two-sided log p-values of cells of tables with given margins, and log-likelihood ratios, of any equal shape.

    The double saddle-point tail of the hypergeometric law in closed form: at :math:`t \mp \tfrac12` all four cells are
    known.
    """
    expected = row * column / total
    side = np.sign(seen - expected)
    at = seen - side * _STEP
    cells = np.stack([at, row - at, column - at, total - row - column + at])
    is_out = ((at - expected) * side <= 0) | (cells <= 0).any(0)
    with np.errstate(divide="ignore", invalid="ignore"):
        means = np.stack([expected, row - expected, column - expected, total - row - column + expected])
        gain = (cells * np.log(cells / means)).sum(0)
        root = np.sqrt(2 * np.maximum(gain, 0.0))
        psi = np.abs(np.log(cells[0] * cells[3] / (cells[1] * cells[2])))
        margins = np.log(row) + np.log(total - row) + np.log(column) + np.log(total - column)
        ratio = np.log(cells).sum(0) + np.log(total) - margins
        log_tail = saddle_point_log_tail(root, psi, np.exp(ratio / 2))
    return np.where(is_out, 0.0, log_tail), np.where(is_out, 0.0, gain)


def _log_tail(null: Maximum, direction: Design, seen: float, promise: float) -> tuple[float, float]:
    """Two-sided log p-value of a statistic conditional on the nuisance, and the rise of the log-likelihood.

    Both are zero where the rise cannot be as large as is asked for.
    """
    expected = float(direction.totals(null.counts.sum(1)[:, None] * null.probs)[0])
    side = math.copysign(1.0, seen - expected)
    target = seen - side * _STEP
    if (target - expected) * side <= 1e-9:
        return 0.0, 0.0
    moved = null.tilted(direction, target, promise)
    if moved is None:
        return 0.0, 0.0
    gain, psi, information = moved
    root = math.sqrt(2 * max(gain, 0.0))
    return float(saddle_point_log_tail(np.array(root), np.array(abs(psi)), np.array(information))), gain


def _root_deviance(seen: Floats, expected: Floats) -> Floats:
    """Signed root of the Poisson deviance."""
    with np.errstate(divide="ignore", invalid="ignore"):
        part = np.where(seen > 0, seen * np.log(seen / expected), 0.0) - seen + expected
    return np.sign(seen - expected) * np.sqrt(2 * np.maximum(np.nan_to_num(part, nan=0.0, posinf=0.0), 0.0))
