"""Which sets of variables tests confirm, each beside the others, with a false discovery rate; of any family."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtri_exp

from ..core.page import Cell, Section, cell
from ..core.words import fixed, plural
from ..structure.hypergraph import Edge

Floats = NDArray[np.float64]
Method = Literal["saddle point", "chi-square"]
PROMISING = math.log(0.01)
"""Log p-value alone of sets that enter first, and that are tested beside others of which nothing links them."""
_ADDED = 3  # times that a set may come back
_NEAR = 0.05  # signed roots below it have no tail worth a correction


@dataclass(frozen=True)
class EdgeTest:
    """What rows say for one interaction beside others.

    Attributes:
        edge: the interaction.
        log_p_value: logarithm of the two-sided p-value.
        gain: log-likelihood of one variable given the others that it brings, in nats over all rows.
        method: ``saddle point`` or ``chi-square``, whichever gave the smaller p-value.
    """

    edge: Edge
    log_p_value: float
    gain: float
    method: Method

    @property
    def p_value(self) -> float:
        """The p-value; zero where it underflows."""
        return math.exp(self.log_p_value)


class Asked(NamedTuple):
    """What a test is asked for, so that it may end where that is sure.

    Attributes:
        low: log p-values up to here are alike.
        high: those above are alike, whatever the gain.
        least_gain: gains from here on are alike.
    """

    low: float = -math.inf
    high: float = math.inf
    least_gain: float = math.inf

    def covers(self, other: Asked) -> bool:
        """Whether an answer to this question answers another one."""
        return self.low <= other.low and self.high >= other.high and self.least_gain >= other.least_gain


@dataclass(frozen=True)
class InteractionTest:
    """What rows say about one interaction.

    Attributes:
        edge: the interaction.
        gain: held-out log-likelihood, of the variable that was tested given the others, with the interaction less that
            without it; in nats a row. It measures prediction and decides nothing. None where no rows were held out.
        gain_std_error: sampling error of the gain over the held-out rows.
        z: size of a standard normal variable with the same two-sided p-value.
        p_value: of the interaction beside the others of the structure, of all rows.
        is_kept: whether it is in the structure.
        is_confirmed: whether its test beside its subsets alone confirms it; so one that is not kept is replaced. False
            where rows are too few for it to be kept.
        rise: nats over all rows, train and held-out, that it raises the log-likelihood by in that test.
        replaced_by: of one that is confirmed alone but not kept, interactions of the structure beside which it is not.
    """

    edge: Edge
    gain: float | None
    gain_std_error: float | None
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


class Hypotheses:
    """The sets that may be interactions, counted by size, and the step-up procedure over all of them.

    Args:
        names: of the variables that vary.
        max_order: variables of the largest set.
        allowed: the sets that may be; None for all.
        level: the false discovery rate.
    """

    def __init__(
        self, names: Iterable[str], max_order: int, allowed: Iterable[frozenset[str]] | None, level: float
    ) -> None:
        self.names = list(names)
        self._usable = frozenset(self.names)
        fits = [s for s in allowed or () if 2 <= len(s) <= max_order and s <= self._usable]
        self.allowed = None if allowed is None else set(fits)
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
        return len(edge) in self._counts and self._usable.issuperset(edge)

    @property
    def largest(self) -> int:
        """Variables of the largest set."""
        return max(self._counts, default=0)

    def weighted(self, test: EdgeTest) -> float:
        """Log p-value times the number of sizes and of sets of this size."""
        return test.log_p_value + self.weight(test.edge)

    def weight(self, edge: Edge) -> float:
        """Logarithm of the number of sizes and of sets of the size of this one."""
        return math.log(len(self._counts) * self._counts[len(edge)])

    def limit(self, tests: Iterable[EdgeTest], num_certain: int = 0) -> float:
        """The largest weighted log p-value that is confirmed, beside so many that are in any case."""
        values = sorted(self.weighted(test) for test in tests)
        found = math.log(self.level * max(num_certain, 1))
        for rank, value in enumerate(values, start=num_certain + 1):
            if value <= math.log(self.level * rank):
                found = math.log(self.level * rank)
        return found


class _Structure:
    """Kept sets, with those whose tests beside them may differ from those alone.

    Not so sets without promise of variables that nothing kept links: where their parts of the structure are
    independent, the test alone is one beside them.
    """

    def __init__(self, kept: list[Edge], alone: Mapping[Edge, EdgeTest]) -> None:
        self.kept, self._alone = kept, alone
        self._part: dict[str, str] = {}
        self._numbers: dict[str, list[int]] = defaultdict(list)
        for number, edge in enumerate(kept):
            for name in edge:
                self._numbers[name].append(number)
            roots = {self._root(name) for name in edge}
            top = min(roots)
            self._part.update(dict.fromkeys(roots, top))

    def _root(self, name: str) -> str:
        while (above := self._part.get(name, name)) != name:
            name = above
        return name

    def __contains__(self, edge: Edge) -> bool:
        found = self._alone.get(edge)
        if found is None or found.log_p_value <= PROMISING:
            return True
        return len({self._root(name) for name in edge}) < len(edge)

    def around(self, edge: Edge) -> list[Edge]:
        """The kept sets that share a variable with a set, in their order."""
        return [self.kept[i] for i in sorted({i for name in edge for i in self._numbers.get(name, ())})]


class StepwiseSearch(ABC):
    """Sets that are confirmed beside each other, found by adding and removing; a family says how one is tested.

    Attributes:
        kept: the structure so far.
        hypotheses, least_gain: as given.

    Args:
        hypotheses: the sets that may be interactions, with the rate.
        least_gain: nats over all rows that a kept set must bring.
        alone: tests of sets beside nothing else.
    """

    def __init__(self, hypotheses: Hypotheses, least_gain: float, alone: Iterable[EdgeTest]) -> None:
        self.hypotheses, self.least_gain = hypotheses, least_gain
        self.alone = {test.edge: test for test in alone}
        self.kept: list[Edge] = []
        self._times: dict[Edge, int] = defaultdict(int)
        self._limit = math.log(hypotheses.level)
        self._structure: _Structure | None = None
        self._waiting: set[Edge] = set()
        self._certain: set[Edge] = set()

    @abstractmethod
    def tested(self, edge: Edge, others: Sequence[Edge], response: str | None, asked: Asked) -> EdgeTest:
        """The test of a set beside others, by the law of one of its variables, or of those that the family takes.

        Others that share no variable with it do not count.
        """

    def can_enter(self, edge: Edge, others: Sequence[Edge]) -> bool:
        """Whether a set leaves tests of all that has a variable of it possible; True unless a family says otherwise."""
        del edge, others
        return True

    def num_tried(self, edge: Edge, others: Sequence[Edge]) -> int:
        """Of how many others, at most, it is looked whether they replace a set; all unless a family says otherwise."""
        del edge
        return len(others)

    def responses(self, edge: Edge) -> tuple[str | None, ...]:
        """The variables whose tests must all fail where a set is replaced; None for those that the family takes."""
        return edge

    def test(
        self,
        edge: Edge,
        others: Sequence[Edge] | None = None,
        response: str | None = None,
        limits: tuple[float, float] | None = None,
    ) -> EdgeTest:
        """The test of a set beside others, by default those kept.

        With limits of weighted log p-values it may say any that is below the first where the set is, with enough gain,
        and any above the second where it is above.
        """
        asked = Asked()
        if limits is not None:
            low, high = (limit - self.hypotheses.weight(edge) for limit in limits)
            asked = Asked(low, high, self.least_gain)
        if others is not None:
            return self.tested(edge, others, response, asked)
        if self._structure is None or self._structure.kept != self.kept:
            self._structure = _Structure(list(self.kept), self.alone)
        if edge not in self._structure:
            return self.alone[edge]
        return self.tested(edge, self._structure.around(edge), response, asked)

    def _judged(self, test: EdgeTest) -> EdgeTest:
        """The test, with a p-value of one where the set gains too little."""
        return test if test.gain >= self.least_gain else replace(test, log_p_value=0.0)

    def settle(self, pool: Sequence[Edge]) -> None:
        """Add and remove sets until nothing changes, then look at those that have waited, too.

        It ends since no set comes back more than a few times.
        """
        while True:
            before, is_whole = self._state(), not (self._waiting or self._certain)
            self.grow(pool)
            self.shrink()
            if self._state() == before:
                if is_whole:
                    return
                self._waiting.clear()
                self._certain.clear()

    def _state(self) -> tuple[set[Edge], int]:
        """The structure, and how often a set has entered."""
        return set(self.kept), sum(self._times.values())

    def grow(self, pool: Sequence[Edge]) -> None:
        """Add confirmed sets that are the strongest of one of their variables.

        What is not confirmed waits.
        """
        while True:
            # The free sets by their tests beside those kept.
            present = set(self.kept)
            free = [edge for edge in pool if edge not in present and self._times[edge] < _ADDED]
            # However many of them are confirmed, what is above the limit for all of them is not.
            most = math.log(self.hypotheses.level * max(len(self.kept) + len(free), 1))
            asked = [edge for edge in free if edge not in self._waiting]
            tests = [self._judged(self.test(edge, limits=(-math.inf, most))) for edge in asked]
            tests.sort(key=self.hypotheses.weighted)
            limit = self.hypotheses.limit(tests, len(self.kept))
            self._waiting.update(test.edge for test in tests if self.hypotheses.weighted(test) > limit)
            seen: set[str] = set()
            added: list[Edge] = []
            # Sets that share no variable are added together, since each changes the tests of its neighbours.
            for test in tests:
                if self.hypotheses.weighted(test) > limit:
                    break
                if not self.can_enter(test.edge, [*self.kept, *added]):
                    self._waiting.add(test.edge)
                    continue
                if not seen.issuperset(test.edge):
                    added.append(test.edge)
                seen.update(test.edge)
            if not added:
                return
            for edge in added:
                self._times[edge] += 1
            self.kept += added

    def shrink(self) -> None:
        """Remove sets that are not confirmed beside the others, the weakest first, of every variable one at a time.

        What is confirmed, whatever else is, waits until nothing else changes.
        """
        least = math.log(self.hypotheses.level)
        while True:
            asked = [edge for edge in self.kept if edge not in self._certain]
            tests = [self._judged(self.test(edge, limits=(least, math.inf))) for edge in asked]
            self._limit = self.hypotheses.limit(tests, len(self.kept) - len(asked))
            self._certain.update(test.edge for test in tests if self.hypotheses.weighted(test) <= least)
            weak = [test for test in tests if self.hypotheses.weighted(test) > self._limit]
            if not weak:
                return
            touched: set[str] = set()
            gone: set[Edge] = set()
            for test in sorted(weak, key=lambda test: -self.hypotheses.weighted(test)):
                if touched.isdisjoint(test.edge):
                    gone.add(test.edge)
                touched.update(test.edge)
            self.kept = [edge for edge in self.kept if edge not in gone]

    def lone(self, edge: Edge) -> EdgeTest:
        """The test of a set beside nothing."""
        return self.alone[edge] if edge in self.alone else self.tested(edge, (), None, Asked())

    def _ties(self, edge: Edge, other: Edge) -> float:
        """Minus the log p-value of the weaker tie of a way through another set, from column to column of a set."""
        # From the columns that only one set has to those that only the other has.
        outer, inner = [set(first) - set(second) for first, second in ((edge, other), (other, edge))]
        if not outer or not inner:
            return math.inf if not outer else -self.lone(other).log_p_value
        pairs = [tuple(sorted((a, b), key=self.hypotheses.names.index)) for a in outer for b in inner]
        strongest = min(self.lone(pair).log_p_value for pair in pairs)
        return min(-strongest, -self.lone(other).log_p_value)

    def verdict(self, edge: Edge, gain: float | None = None, error: float | None = None) -> InteractionTest:
        """The test of a set beside the structure, and what replaces it, with its gain on held-out rows."""
        is_kept, test = edge in self.kept, self.test(edge)
        beside_none = self.test(edge, [], limits=(self._limit, self._limit))
        alone = self.hypotheses.weighted(self._judged(beside_none)) <= self._limit
        alone = alone and (is_kept or self.can_enter(edge, self.kept))  # else rows are too few to say what replaces it
        replaced_by = self._replacement(edge) if alone and not is_kept else ()
        z = -float(ndtri_exp(test.log_p_value - math.log(2)))
        return InteractionTest(edge, gain, error, z, test.p_value, is_kept, alone, test.gain, replaced_by)

    def _replacement(self, edge: Edge) -> tuple[Edge, ...]:
        """Kept sets beside which a set is confirmed for none of its variables, of which none can be left out.

        Those through which its columns are tied the most, by tests beside nothing, are preferred. None where those that
        are tried do not suffice.
        """
        every = [other for other in self.kept if not set(edge).isdisjoint(other)]
        names = list(self.responses(edge))

        def explains(sets: Sequence[Edge]) -> bool:
            for name in names:
                test = self._judged(self.test(edge, sets, name, (self._limit, self._limit)))
                if self.hypotheses.weighted(test) <= self._limit:
                    names.sort(key=lambda other: other != name)  # the first to be asked the next time
                    return False
            return True

        # The last of the first ones that do, beside those that are needed already, is needed too. Few are tried first:
        # tests beside many take long.
        rest = sorted(every, key=lambda other: -self._ties(edge, other))[: self.num_tried(edge, every)]
        needed = list[Edge]()

        def suffices(count: int) -> bool:
            return explains([*rest[:count], *needed])

        if len(rest) < len(every) and not suffices(len(rest)):
            return ()
        while rest and not explains(needed):
            most = next((2**k for k in range(len(rest).bit_length()) if suffices(2**k)), len(rest))
            if most == len(every) and not explains(every):
                break
            last = bisect_left(range(1, most), True, lo=most // 2, key=suffices)
            needed.append(rest[last])
            rest = rest[:last]
        return tuple(needed if explains(needed) else every)


def kept_first(tests: Iterable[InteractionTest]) -> tuple[InteractionTest, ...]:
    """Tests in the order in which they are shown: the kept ones first, then by p-value."""
    return tuple(sorted(tests, key=lambda test: (not test.is_kept, -test.z)))


def saddle_point_log_tail(root: Floats, psi: Floats, information: Floats, step: float = 1.0) -> Floats:
    r"""Two-sided log p-value of a statistic in steps, conditional on those of the nuisance.

    The double saddle-point tail :math:`\Phi(-r - \log(v / r) / r)` with
    :math:`v = 2 \sinh(\delta \hat\psi / 2) / \delta` times the ratio of informations, both fits at half a step towards
    the expectation; step 0 is the limit of continuous statistics.

    Args:
        root: size of the signed root of twice the log-likelihood ratio.
        psi: size of the parameter of the statistic.
        information: root of the ratio of the determinants of both informations.
        step: distance of the values of the statistic.

    References:
        Ib Skovgaard, Saddlepoint expansions for conditional distributions, 1987.
    """
    wide = 2 * np.sinh(np.minimum(step * psi, 700.0) / 2) / step if step else psi
    v = wide * information
    is_near = (root < _NEAR) | ~(v > 0)
    safe = np.where(is_near, 1.0, root)
    shifted = np.where(is_near, root, safe + np.log(np.where(is_near, 1.0, v) / safe) / safe)
    return np.minimum(0.0, math.log(2) + log_ndtr(-shifted))


# What reports and commands say of tests of interactions, the same in every family.

_SHOWN = 20
_LEAST = 1e-16  # below it a normal tail is no more than a name for a large z


def kept_sentence(tests: Sequence[InteractionTest], rate: float, rows: str, noun: str = "interaction") -> str:
    """How many were tested on some rows, and how many are kept; why the others are not."""
    rejected = [test for test in tests if not test.is_kept]
    replaced = sum(test.is_confirmed for test in rejected)
    absent = len(rejected) - replaced
    num = len(tests) - len(rejected)
    verb = "is" if num == 1 else "are"
    tested = f"Of {plural(len(tests), noun)} tested on the {rows} rows"
    sentences = [f"{tested}, {num} {verb} kept (false discovery rate {rate:g})."]
    if absent:
        sentences.append(f"{absent} did not pass, which does not show that they are absent.")
    if replaced:
        sentences.append(
            f"{replaced} more passed a test of {'its' if replaced == 1 else 'their'} own, but not beside the kept "
            "ones, which explain the same association."
        )
    return " ".join(sentences)


def add_tests(section: Section, tests: Sequence[InteractionTest]) -> None:
    """The table of tests, with held-out gains where there are some."""
    has_gains = any(test.gain is not None for test in tests)
    lines = [
        [
            ":".join(test.edge),
            *([cell(test.gain, _signed, test.gain_std_error)] if has_gains else []),
            cell(test.z, "{:.1f}".format),
            Cell(f"{test.p_value:.1g}" if test.p_value >= _LEAST else f"< {_LEAST:g}", test.p_value),
            _decision(test),
        ]
        for test in tests
    ]
    columns = ["interaction", *(["held-out gain"] if has_gains else []), "z", "p", "decision"]
    section.table(columns, lines, first=_SHOWN, further="Further interactions")


def confirmation_json(tests: Sequence[InteractionTest], rate: float) -> dict[str, Any]:
    """The tests that a structure was decided by, for ``fit.json``."""
    kept = sum(test.is_kept for test in tests)
    return {
        "false_discovery_rate": rate,
        "num_kept": kept,
        "num_rejected": len(tests) - kept,
        "tests": [test.to_json() for test in tests],
    }


def _signed(value: float) -> str:
    return fixed(value, 4, True)


def _decision(test: InteractionTest) -> str:
    """What became of an interaction, in words."""
    if test.is_kept:
        return "kept"
    if test.replaced_by:
        return "replaced by " + ", ".join(":".join(edge) for edge in test.replaced_by)
    return "replaced by others" if test.is_confirmed else "not confirmed"
