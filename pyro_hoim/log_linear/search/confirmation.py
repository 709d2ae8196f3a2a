"""Which interactions rows confirm: tests on all rows of sets beside each other, with a false discovery rate."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm
from typing_extensions import override

from ...core.prediction import check_count
from ...data.frames import DataLike
from ...errors import check_fraction, check_not_negative
from ...results.confirmation import PROMISING, Asked, EdgeTest, Hypotheses, InteractionTest, StepwiseSearch, kept_first
from ...structure.hypergraph import Edge, InteractionHypergraph
from ..fitting.design import fitted_margins
from .conditional_fits import is_large
from .edge_tests import EdgeTester, by_chi_square, chi_square_log_tail, conditional_terms, smallest, two_by_two_log_tail
from .rounds import checked_pair, rows_digest, singles

Floats = NDArray[np.float64]
Longs = NDArray[np.int64]

# Many sets at once, each by its own table: the p-values of pairs alone, and triples that promise something.

_LOOK_UPS = 2**31  # of rows in sets
_CELLS = 2**21  # of a batch
_KEPT = 100  # triples, and two for every variable beyond fifty
_PROMISING = math.log(0.05)
_PAIR_FACETS = ((0, 1), (0, 2), (1, 2))


def lone_pairs(tester: EdgeTester, pairs: Sequence[Edge]) -> list[EdgeTest]:
    """The tests of pairs beside nothing else, as :meth:`EdgeTester.test` makes them, in the order of the pairs."""
    tests: dict[int, EdgeTest] = {}
    for numbers, tables in _batches(tester, tester.positions(pairs, 2)):
        # All pairs of one shape at once, by the tail in closed form.
        total, shape = tester.total, tables.shape[1:]
        row, column = tables.sum(2, keepdims=True), tables.sum(1, keepdims=True)
        tails, gains = (part.reshape(len(tables), -1) for part in two_by_two_log_tail(tables, row, column, total))
        best = tails.argmin(1)
        free = math.log(math.prod(size if size > 2 else 1 for size in shape))
        for i, number in enumerate(numbers.tolist()):
            # The most extreme cell, and beside it the table without rare levels.
            edge = pairs[number]
            log_p, gain = min(0.0, float(tails[i, best[i]]) + free), float(gains[i, best[i]])
            each = [EdgeTest(edge, log_p, gain, "saddle point")]
            groups = tester.pooled(edge)
            if groups is not None:
                first, second = (np.eye(int(group.max()) + 1)[group] for group in groups.values())
                table = first.T @ tables[i] @ second
                law = table.sum(1, keepdims=True) * table.sum(0) / table.sum()
                gain = max(0.0, float((table[table > 0] * np.log(table[table > 0] / law[table > 0])).sum()))
                least, num_free = min(2 * gain, float(((table - law) ** 2 / law).sum())), np.array(table.shape) - 1
                each.append(by_chi_square(edge, gain, least, int(num_free.prod())))
            tests[number] = smallest(each)
    return [tests[number] for number in range(len(pairs))]


def promising_triples(tester: EdgeTester, names: Sequence[str], pairs: Sequence[Edge]) -> list[Edge]:
    """The triples whose own tables are the furthest from the law without a triple, by the chi-square p-value.

    All triples where that costs seconds at most, else those that hold one of some pairs.
    """
    # All triples, or those around pairs where all would take too long.
    rows, places = tester.num_distinct, tester.positions([(name,) for name in names], 1)[:, 0]
    if rows * math.comb(len(names), 3) <= _LOOK_UPS:
        numbers = np.fromiter(itertools.chain.from_iterable(itertools.combinations(range(len(names)), 3)), np.int64)
        sets = places[numbers.reshape(-1, 3)]
    else:
        around = tester.positions([pair for pair in pairs if len(pair) == 2], 2)
        third = np.tile(places, len(around))[:, None]
        sets = np.sort(np.concatenate([np.repeat(around, len(places), axis=0), third], 1), axis=1)
        sets = np.unique(sets[(np.diff(sets, axis=1) > 0).all(1)], axis=0)
        if rows * len(sets) > _LOOK_UPS:
            return []
    # How far the own table of each is from a law without a triple.
    log_p = np.zeros(len(sets))
    for numbers, counts in _batches(tester, sets):
        tables = counts / tester.total
        laws = fitted_margins(np.full_like(tables, 1.0 / tables[0].size), tables, _PAIR_FACETS)
        with np.errstate(divide="ignore", invalid="ignore"):
            parts = np.where(tables > 0, tables * np.log(tables / laws), 0.0)
        gain = np.maximum(parts.reshape(len(tables), -1).sum(1), 0.0) * tester.total
        log_p[numbers] = chi_square_log_tail(2 * gain, math.prod(size - 1 for size in tables.shape[1:]))
    best = np.argsort(log_p, kind="stable")[: max(_KEPT, 2 * len(names))]
    every = list(tester.cardinalities)
    return [tuple(every[i] for i in sets[number]) for number in best if log_p[number] <= _PROMISING]


def _batches(tester: EdgeTester, sets: Longs) -> Iterator[tuple[Longs, Floats]]:
    """The numbers of sets of one shape, and their tables, so many at a time that these stay small."""
    shapes = np.array([*tester.cardinalities.values()], np.int64)[sets]
    keys = shapes @ (shapes.max(initial=0) + 1) ** np.arange(shapes.shape[1])
    _, first, kinds = np.unique(keys, return_index=True, return_inverse=True)
    for kind, shape in enumerate(shapes[first]):
        members = np.flatnonzero(kinds == kind)
        for part in np.array_split(members, -(-len(members) * int(shape.prod()) // _CELLS)):
            yield part, tester.tables(sets[part])


_MAX_ORDER = 3
_LEAST_GAIN = 2.0  # nats over all rows
_ROWS_TO_ENTER = 6  # for each of many parameters of a law: more than its tests ask for, which may have further subsets
_TRIED = 8  # sets that may replace one whose law beside all of them has many parameters
_SWEPT, _PER_VARIABLE = 1_000, 20  # pairs that are tested beside others: the strongest ones, and those of a variable


@dataclass(frozen=True)
class Confirmation:
    """Interactions that rows confirm, and their tests.

    Attributes:
        hypergraph: those that are confirmed, with all single variables.
        tests: of the interactions of the collection given and of those kept; the kept ones first, then by p-value.
        false_discovery_rate: as asked.
    """

    hypergraph: InteractionHypergraph
    tests: tuple[InteractionTest, ...]
    false_discovery_rate: float

    @property
    def rejected(self) -> tuple[InteractionTest, ...]:
        """The tests of the interactions that are not kept."""
        return tuple(test for test in self.tests if not test.is_kept)


def confirm(
    train: DataLike,
    validation: DataLike,
    hypergraph: InteractionHypergraph | None = None,
    *,
    false_discovery_rate: float = 0.1,
    least_gain: float = _LEAST_GAIN,
    max_order: int = _MAX_ORDER,
    candidates: Iterable[Sequence[str]] | None = None,
    progress: bool = False,
) -> Confirmation:
    r"""Find the interactions that all rows together confirm, each beside the others.

    .. math:: \tilde p_S = p_S \, K m_{|S|}, \qquad
        \text{confirmed: } \tilde p_S \le \alpha R, \quad R = \max\{k : \#\{S : \tilde p_S \le \alpha k\} \ge k\}

    where :math:`m_k` is the number of sets of k variables, whether looked at or not, and K the number of sizes, so that
    pairs and larger sets share the rate :math:`\alpha` equally: the procedure of Benjamini and Hochberg with weights.
    Sets that were not looked at count with a p-value of one; this pays for looking at the promising ones alone, so
    that no rows need to be set aside for tests. :math:`p_S` is the conditional p-value of
    :class:`~pyro_hoim.log_linear.EdgeTester` beside the other sets of the structure and the subsets of S.

    All pairs are tested alone first; beside others the thousand strongest are, and the twenty strongest of every
    variable. Confirmed ones that are the strongest of one of their variables enter, and the
    others are tested again beside them, until none is confirmed. Then come triples: those of the collection given, and
    those whose own tables promise most. What is not confirmed beside all others goes, the weakest first; everything
    that is left out is tested again beside the structure and put back where it is confirmed, until nothing changes.
    So what is kept is confirmed beside the rest, and what is not kept has a p-value beside the structure. Sets that are
    not confirmed wait, and are tested again once nothing else changes. A set enters only while the law of each of its
    variables has at most 300 parameters, or six rows for each.

    Args:
        train: complete rows.
        validation: further rows over the same domain, complete; tests count both, gains are those of these rows. The
            same rows once more are not counted twice.
        hypergraph: a collection whose larger sets are tested in any case; default none.
        false_discovery_rate: share of the kept interactions that are absent from the law of the rows, on average at
            most, where p-values are not adversely dependent; between 0 and 1.
        least_gain: nats over all rows that a kept interaction must raise the log-likelihood by.
        max_order: variables of the largest set that is a hypothesis, unless ``hypergraph`` has larger ones.
        candidates: the hypotheses; default all sets.
        progress: count the tests on standard error.

    Returns:
        The structure and the tests. Single variables are always kept.

    Raises:
        InputError: arguments out of range, or rows over different variables.
        MissingDataError: missing cells.

    References:
        Yoav Benjamini and Yosef Hochberg, Controlling the false discovery rate, 1995; Christopher Genovese, Kathryn
        Roeder and Larry Wasserman, False discovery control with p-value weighting, 2006.

    Example:
        >>> from pyro_hoim import Domain, Observations
        >>> domain = Domain.from_cardinalities({"a": 2, "b": 2, "c": 2})
        >>> rows = Observations.from_table(domain, [[[40, 41], [10, 9]], [[11, 10], [39, 40]]])
        >>> [test.edge for test in confirm(rows, rows).tests if test.is_kept]
        [('a', 'b')]
    """
    # The hypotheses: all sets of varying variables, or those that are allowed.
    train, validation = checked_pair(train, validation, None if hypergraph is None else hypergraph.domain)
    check_fraction(false_discovery_rate, "false_discovery_rate")
    check_not_negative(least_gain, "least_gain")
    check_count(max_order, "max_order", 2)
    start = singles(train.domain) if hypergraph is None else hypergraph
    allowed = None if candidates is None else {frozenset(edge) for edge in candidates}
    varying = [name for name, size in zip(train.domain.names, train.domain.cardinalities, strict=True) if size > 1]
    hypotheses = Hypotheses(varying, max(max_order, start.order), allowed, false_discovery_rate)
    given = [edge for edge in start.edges if edge in hypotheses]
    # The search is on all rows together; the same rows given twice count once.
    is_same = rows_digest(train) == rows_digest(validation)
    tester = EdgeTester(*([train] if is_same else [train, validation]))
    with tqdm(desc="tests of interactions", unit=" tests", disable=not progress) as bar:
        search = _Search(tester, hypotheses, least_gain, given, bar)
        search.run()
        # Verdicts beside what is kept, with the gain on validation rows.
        train_tester, held_out = EdgeTester(train), EdgeTester(validation)
        edges = dict.fromkeys([*given, *search.kept])
        tests = [search.verdict(edge, *train_tester.held_out(edge, search.kept, held_out)) for edge in edges]
    graph = singles(train.domain).add_edges(search.kept, hierarchical=False)
    return Confirmation(graph, kept_first(tests), float(false_discovery_rate))


def _strongest(ranked: Sequence[EdgeTest]) -> list[EdgeTest]:
    """The pairs that are among the strongest, of all or of one of their variables."""
    strongest: list[EdgeTest] = []
    taken: dict[str, int] = defaultdict(int)
    for number, test in enumerate(ranked):
        if number < _SWEPT or min(taken[name] for name in test.edge) < _PER_VARIABLE:
            strongest.append(test)
            for name in test.edge:
                taken[name] += 1
    return strongest


class _Search(StepwiseSearch):
    """The structure so far and all tests that were made, by what they depend on."""

    def __init__(
        self, tester: EdgeTester, hypotheses: Hypotheses, least_gain: float, given: Sequence[Edge], bar: tqdm[NoReturn]
    ) -> None:
        pairs = [edge for edge in itertools.combinations(hypotheses.names, 2) if edge in hypotheses]
        super().__init__(hypotheses, least_gain, lone_pairs(tester, pairs))
        self._tester, self._bar = tester, bar
        self._memory: dict[Any, tuple[Asked, EdgeTest]] = {}
        ranked = sorted(self.alone.values(), key=lambda test: test.log_p_value)
        self._swept = [test.edge for test in _strongest(ranked)]
        self._promising = [edge for edge in self._swept if self.alone[edge].log_p_value <= PROMISING]
        self._larger = [edge for edge in given if len(edge) > 2]

    def run(self) -> None:
        """Pairs, larger sets, and back and forth until nothing changes."""
        self.grow(self._promising)
        self.shrink()
        if self.hypotheses.largest > 2:
            triples = promising_triples(self._tester, self.hypotheses.names, self.kept)
            self._larger = list(dict.fromkeys([*self._larger, *(e for e in triples if e in self.hypotheses)]))
        self.settle([*self._swept, *self._larger])

    @override
    def can_enter(self, edge: Edge, others: Sequence[Edge]) -> bool:
        sizes = [self._tester.law_size(edge, others, name) for name in edge]
        return all(not is_large(size) or size * _ROWS_TO_ENTER <= self._tester.total for size in sizes)

    @override
    def num_tried(self, edge: Edge, others: Sequence[Edge]) -> int:
        response = self._tester.response(edge, others)
        return min(len(others), _TRIED if is_large(self._tester.law_size(edge, others, response)) else len(others))

    @override
    def tested(self, edge: Edge, others: Sequence[Edge], response: str | None, asked: Asked) -> EdgeTest:
        response = response or self._tester.response(edge, others)
        terms = conditional_terms(response, edge, others)
        key = edge, response, frozenset(map(frozenset, terms))
        before = self._memory.get(key)
        if before is not None and before[0].covers(asked):
            return before[1]
        self._bar.set_postfix_str(f"{len(self.kept)} kept", refresh=False)
        self._bar.update()
        is_alone = edge in self.alone and len(terms) == 1
        test = self.alone[edge] if is_alone else self._tester.test(edge, others, response, asked)
        # What lies between is as the whole test says, and each side answers all that ask for no more of it.
        if test.log_p_value <= asked.low:
            asked = asked._replace(high=math.inf)
        elif test.log_p_value <= asked.high:
            asked = asked._replace(low=-math.inf, high=math.inf)
        else:
            asked = asked._replace(low=-math.inf)
        self._memory[key] = asked, test
        return test
