"""Which interactions rows confirm: tests on all rows of sets beside each other, with a false discovery rate."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from scipy.special import ndtri_exp

from ...core.rows import check_count
from ...data.frames import DataLike
from ...errors import check_fraction, check_not_negative
from ...schema import Domain
from ...structure.hypergraph import Edge, InteractionHypergraph
from .edge_tests import EdgeTest, EdgeTester, conditional_terms
from .rounds import checked_pair, rows_digest, singles
from .screening import lone_pairs, promising_triples

__all__ = ["Confirmation", "InteractionTest", "confirm"]

_MAX_ORDER = 3
_LEAST_GAIN = 2.0  # nats over all rows
_PROMISING = math.log(0.01)  # of pairs that enter before the sweep
_SWEPT, _PER_VARIABLE = 1_000, 20  # pairs that are tested beside others: the strongest ones, and those of a variable
_CYCLES = 8  # of adding and removing
_ADDED = 3  # times that a set may come back


@dataclass(frozen=True)
class InteractionTest:
    """What rows say about one interaction.

    Attributes:
        edge: the interaction.
        gain: held-out log-likelihood, of the variable that was tested given the others, with the interaction less that
            without it; in nats a row. It measures prediction and decides nothing.
        gain_std_error: sampling error of the gain over the held-out rows.
        z: size of a standard normal variable with the same two-sided p-value.
        p_value: of the interaction beside the others of the structure; of all rows, see :func:`confirm`.
        is_kept: whether it is in the structure.
        is_confirmed: whether its test beside its subsets alone confirms it; so one that is not kept is replaced.
        rise: nats over all rows, train and held-out, that it raises the log-likelihood by in that test.
        replaced_by: of one that is confirmed alone but not kept, interactions of the structure beside which it is not.

    Example:
        >>> from pyro_hoim import Domain, Observations
        >>> rows = Observations.from_table(Domain.from_cardinalities({"a": 2, "b": 2}), [[30, 10], [20, 40]])
        >>> test = confirm(rows, rows).tests[0]
        >>> test.edge, test.is_kept, round(test.gain, 2), test.p_value < 0.001
        (('a', 'b'), True, 0.09, True)
    """

    edge: Edge
    gain: float
    gain_std_error: float
    z: float
    p_value: float
    is_kept: bool
    is_confirmed: bool
    rise: float | None = None
    replaced_by: tuple[Edge, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """JSON-ready description, inverse of :meth:`from_json`."""
        return {
            **asdict(self),
            "edge": list(self.edge),
            "z": self.z if math.isfinite(self.z) else None,
            "replaced_by": [list(edge) for edge in self.replaced_by],
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> InteractionTest:
        """Inverse of :meth:`to_json`; of what older files hold beside, nothing is kept."""
        names = {field.name for field in fields(cls)}
        found = {name: entry for name, entry in value.items() if name in names}
        found["edge"] = tuple(found["edge"])
        found["replaced_by"] = tuple(tuple(edge) for edge in found.get("replaced_by", ()))
        if found["z"] is None:
            found["z"] = math.inf if found["p_value"] < 0.5 else -math.inf
        return cls(**found)


@dataclass(frozen=True)
class Confirmation:
    """Interactions that rows confirm, and their tests.

    Attributes:
        hypergraph: those that are confirmed, with all single variables.
        tests: of the interactions of the collection given and of those kept; the kept ones first, then by p-value.
        false_discovery_rate: as asked.

    Example:
        >>> from pyro_hoim import Domain, Observations
        >>> domain = Domain.from_cardinalities({"a": 2, "b": 2, "c": 2})
        >>> rows = Observations.from_table(domain, [[[40, 41], [10, 9]], [[11, 10], [39, 40]]])
        >>> found = confirm(rows, rows, InteractionHypergraph.saturated(domain))
        >>> found.hypergraph.edges[-1], [test.edge for test in found.rejected]
        (('a', 'b'), [('a', 'c'), ('b', 'c'), ('a', 'b', 'c')])
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
    So what is kept is confirmed beside the rest, and what is not kept has a p-value beside the structure.

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
    train, validation = checked_pair(train, validation, None if hypergraph is None else hypergraph.domain)
    check_fraction(false_discovery_rate, "false_discovery_rate")
    check_not_negative(least_gain, "least_gain")
    check_count(max_order, "max_order", 2)
    start = singles(train.domain) if hypergraph is None else hypergraph
    allowed = None if candidates is None else {frozenset(edge) for edge in candidates}
    hypotheses = _Hypotheses(train.domain, max(max_order, start.order), allowed, false_discovery_rate)
    given = [edge for edge in start.edges if edge in hypotheses]
    is_same = rows_digest(train) == rows_digest(validation)
    search = _Search(EdgeTester(*([train] if is_same else [train, validation])), hypotheses, least_gain, given)
    search.run()
    train_tester, held = EdgeTester(train), EdgeTester(validation)
    tests = [search.verdict(edge, train_tester, held) for edge in dict.fromkeys([*given, *search.kept])]
    tests.sort(key=lambda test: (not test.is_kept, -test.z))
    graph = singles(train.domain).add_edges(search.kept, hierarchical=False)
    return Confirmation(graph, tuple(tests), float(false_discovery_rate))


class _Hypotheses:
    """The sets that may be interactions, counted by size, and the step-up procedure over all of them."""

    def __init__(self, domain: Domain, max_order: int, allowed: set[frozenset[str]] | None, level: float) -> None:
        self.names = [name for name, size in zip(domain.names, domain.cardinalities, strict=True) if size > 1]
        usable = frozenset(self.names)
        self.allowed = None if allowed is None else {s for s in allowed if 2 <= len(s) <= max_order and s <= usable}
        sizes = range(2, min(max_order, len(self.names)) + 1)
        if self.allowed is None:
            self._counts = {size: math.comb(len(self.names), size) for size in sizes}
        else:
            counts = {size: sum(len(s) == size for s in self.allowed) for size in sizes}
            self._counts = {size: count for size, count in counts.items() if count}
        self.level = level

    def __contains__(self, edge: Edge) -> bool:
        if self.allowed is not None and frozenset(edge) not in self.allowed:
            return False
        return len(edge) in self._counts and set(edge) <= set(self.names)

    @property
    def largest(self) -> int:
        """Variables of the largest set."""
        return max(self._counts, default=0)

    def weighted(self, test: EdgeTest) -> float:
        """Log p-value times the number of sizes and of sets of this size."""
        return test.log_p_value + math.log(len(self._counts) * self._counts[len(test.edge)])

    def limit(self, tests: Iterable[EdgeTest], num_certain: int = 0) -> float:
        """The largest weighted log p-value that is confirmed, beside so many that are in any case."""
        values = sorted(self.weighted(test) for test in tests)
        found = math.log(self.level * max(num_certain, 1))
        for rank, value in enumerate(values, start=num_certain + 1):
            if value <= math.log(self.level * rank):
                found = math.log(self.level * rank)
        return found


def _strongest(ranked: Sequence[EdgeTest]) -> list[EdgeTest]:
    """The pairs that are among the strongest, of all or of one of their variables."""
    found: list[EdgeTest] = []
    taken: dict[str, int] = defaultdict(int)
    for number, test in enumerate(ranked):
        if number < _SWEPT or min(taken[name] for name in test.edge) < _PER_VARIABLE:
            found.append(test)
            for name in test.edge:
                taken[name] += 1
    return found


class _Testable:
    """Sets whose tests beside a structure may differ from those alone.

    Not so pairs without promise of two variables that nothing kept links: where their parts of the structure are
    independent, the test alone is one beside them.
    """

    def __init__(self, kept: list[Edge], alone: Mapping[Edge, EdgeTest]) -> None:
        self.kept, self._alone = kept, alone
        self._part: dict[str, str] = {}
        for edge in kept:
            roots = {self._root(name) for name in edge}
            top = min(roots)
            self._part.update(dict.fromkeys(roots, top))

    def _root(self, name: str) -> str:
        while (above := self._part.get(name, name)) != name:
            name = above
        return name

    def __contains__(self, edge: Edge) -> bool:
        found = self._alone.get(edge)
        return found is None or found.log_p_value <= _PROMISING or len({self._root(name) for name in edge}) == 1


class _Search:
    """The structure so far and all tests that were made, by what they depend on."""

    def __init__(self, tester: EdgeTester, hypotheses: _Hypotheses, least_gain: float, given: Sequence[Edge]) -> None:
        self._tester, self._hypotheses, self._least_gain = tester, hypotheses, least_gain
        self.kept: list[Edge] = []
        self._memory: dict[Any, EdgeTest] = {}
        self._times: dict[Edge, int] = defaultdict(int)
        pairs = [edge for edge in itertools.combinations(hypotheses.names, 2) if edge in hypotheses]
        self._alone = {test.edge: test for test in lone_pairs(tester, pairs)}
        ranked = sorted(self._alone.values(), key=lambda test: test.log_p_value)
        self._swept = [test.edge for test in _strongest(ranked)]
        self._promising = [edge for edge in self._swept if self._alone[edge].log_p_value <= _PROMISING]
        self._larger = [edge for edge in given if len(edge) > 2]
        self._limit = math.log(hypotheses.level)
        self._linked: _Testable | None = None

    def run(self) -> None:
        """Pairs, larger sets, and back and forth until nothing changes."""
        self._grow(self._promising)
        self._shrink()
        if self._hypotheses.largest > 2:
            found = promising_triples(self._tester, self._hypotheses.names, self.kept)
            self._larger = list(dict.fromkeys([*self._larger, *(e for e in found if e in self._hypotheses)]))
        for _ in range(_CYCLES):
            before = set(self.kept)
            self._grow([*self._swept, *self._larger])
            self._shrink()
            if set(self.kept) == before:
                return

    @property
    def _testable(self) -> _Testable:
        """What is to be tested beside the present structure."""
        if self._linked is None or self._linked.kept != self.kept:
            self._linked = _Testable(list(self.kept), self._alone)
        return self._linked

    def test(self, edge: Edge, others: Sequence[Edge] | None = None, response: str | None = None) -> EdgeTest:
        """The test of a set beside others, by default those kept."""
        if others is None and edge not in self._testable:
            return self._alone[edge]
        beside = self.kept if others is None else others
        response = response or self._tester.response(edge, beside)
        terms = conditional_terms(response, edge, beside)
        key = edge, response, frozenset(map(frozenset, terms))
        found = self._memory.get(key)
        if found is None:
            is_alone = edge in self._alone and len(terms) == 1
            found = self._alone[edge] if is_alone else self._tester.test(edge, beside, response)
            self._memory[key] = found
        return found

    def _judged(self, edge: Edge, others: Sequence[Edge] | None = None, response: str | None = None) -> EdgeTest:
        """The test, with a p-value of one where the set gains too little."""
        found = self.test(edge, others, response)
        return found if found.gain >= self._least_gain else replace(found, log_p_value=0.0)

    def _grow(self, pool: Sequence[Edge]) -> None:
        """Add confirmed sets that are the strongest of one of their variables."""
        while True:
            present = set(self.kept)
            free = [edge for edge in pool if edge not in present and self._times[edge] < _ADDED]
            tests = sorted((self._judged(edge) for edge in free), key=self._hypotheses.weighted)
            limit = self._hypotheses.limit(tests, len(self.kept))
            seen: set[str] = set()
            added: list[Edge] = []
            for test in tests:
                if self._hypotheses.weighted(test) > limit:
                    break
                if not seen.issuperset(test.edge):
                    added.append(test.edge)
                seen.update(test.edge)
            if not added:
                return
            for edge in added:
                self._times[edge] += 1
            self.kept += added

    def _shrink(self) -> None:
        """Remove sets that are not confirmed beside the others, the weakest first, of every variable one at a time."""
        while True:
            tests = [self._judged(edge) for edge in self.kept]
            self._limit = self._hypotheses.limit(tests)
            weak = [test for test in tests if self._hypotheses.weighted(test) > self._limit]
            if not weak:
                return
            touched: set[str] = set()
            gone: set[Edge] = set()
            for test in sorted(weak, key=lambda test: -self._hypotheses.weighted(test)):
                if touched.isdisjoint(test.edge):
                    gone.add(test.edge)
                touched.update(test.edge)
            self.kept = [edge for edge in self.kept if edge not in gone]

    def verdict(self, edge: Edge, train: EdgeTester, held: EdgeTester) -> InteractionTest:
        """The test of a set beside the structure, what replaces it, and its gain on held-out rows."""
        is_kept, test = edge in self.kept, self.test(edge)
        alone = self._hypotheses.weighted(self._judged(edge, [])) <= self._limit
        replaced_by = self._replacement(edge) if alone and not is_kept else ()
        gain, error = train.held_out(edge, self.kept, held)
        z = -float(ndtri_exp(test.log_p_value - math.log(2)))
        return InteractionTest(edge, gain, error, z, test.p_value, is_kept, alone, test.gain, replaced_by)

    def _replacement(self, edge: Edge) -> tuple[Edge, ...]:
        """Kept sets beside which a set is confirmed for none of its variables, as few as steps forth and back find."""
        rest = [other for other in self.kept if not set(edge).isdisjoint(other)]
        found: list[Edge] = []

        def values(sets: Sequence[Edge]) -> list[float]:
            return [self._hypotheses.weighted(self._judged(edge, sets, name)) for name in edge]

        while rest and min(values(found)) <= self._limit:
            best = max(rest, key=lambda other: (max(v := values([*found, other])), sum(v)))
            rest.remove(best)
            found.append(best)
        for other in found[:-1]:
            fewer = [kept for kept in found if kept != other]
            if min(values(fewer)) > self._limit:
                found = fewer
        return tuple(found)
