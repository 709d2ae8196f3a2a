"""Many sets at once, each by its own table: the p-values of pairs alone, and triples that promise something."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from ...structure.hypergraph import Edge
from .edge_tests import EdgeTest, EdgeTester, chi_square_log_tail, smallest, two_by_two_log_tail
from .scores import fitted_margins

__all__ = ["lone_pairs", "promising_triples"]

_LOOK_UPS = 2**31  # of rows in sets
_CELLS = 2**21  # of a batch
_KEPT = 100  # triples, and two for every variable beyond fifty
_PROMISING = math.log(0.05)
_PAIR_FACETS = ((0, 1), (0, 2), (1, 2))


def lone_pairs(tester: EdgeTester, pairs: Sequence[Edge]) -> list[EdgeTest]:
    """The tests of pairs beside nothing else, as :meth:`EdgeTester.test` makes them, in the order of the pairs."""
    found: dict[Edge, EdgeTest] = {}
    for shape, batch in _batches(tester, pairs):
        tables, total = tester.tables(batch), tester.total
        row, column = tables.sum(2, keepdims=True), tables.sum(1, keepdims=True)
        tails, gains = (part.reshape(len(batch), -1) for part in two_by_two_log_tail(tables, row, column, total))
        at = tails.argmin(1), np.arange(len(batch))
        free = math.log(math.prod(size if size > 2 else 1 for size in shape))
        for i, edge in enumerate(batch):
            log_p, gain = min(0.0, float(tails[i, at[0][i]]) + free), float(gains[i, at[0][i]])
            tests = [EdgeTest(edge, log_p, gain, "saddle point")]
            groups = tester.pooled(edge)
            if groups is not None:
                first, second = (np.eye(int(group.max()) + 1)[group] for group in groups.values())
                tests.append(_pooled(edge, first.T @ tables[i] @ second))
            found[edge] = smallest(tests)
    return [found[edge] for edge in pairs]


def promising_triples(tester: EdgeTester, names: Sequence[str], pairs: Sequence[Edge]) -> list[Edge]:
    """The triples whose own tables are the furthest from the law without a triple, by the chi-square p-value.

    All triples where that costs seconds at most, else those that hold one of some pairs.
    """
    rows, num = tester.num_distinct, math.comb(len(names), 3)
    if rows * num <= _LOOK_UPS:
        sets = list(itertools.combinations(names, 3))
    else:
        place = {name: i for i, name in enumerate(names)}
        joined = {frozenset((*pair, name)) for pair in pairs if len(pair) == 2 for name in names}
        sets = [tuple(sorted(found, key=place.__getitem__)) for found in joined if len(found) == 3]
        if rows * len(sets) > _LOOK_UPS:
            return []
    values: dict[Edge, float] = {}
    for _, batch in _batches(tester, sets):
        tables = tester.tables(batch) / tester.total
        laws = fitted_margins(np.full_like(tables, 1.0 / tables[0].size), tables, _PAIR_FACETS)
        with np.errstate(divide="ignore", invalid="ignore"):
            parts = np.where(tables > 0, tables * np.log(tables / laws), 0.0)
        gain = np.maximum(parts.reshape(len(batch), -1).sum(1), 0.0) * tester.total
        degrees = tester.num_parameters(batch[0])
        values.update(zip(batch, chi_square_log_tail(2 * gain, degrees).tolist(), strict=True))
    found = [edge for edge, log_p in values.items() if log_p <= _PROMISING]
    return sorted(found, key=values.__getitem__)[: max(_KEPT, 2 * len(names))]


def _pooled(edge: Edge, table: np.ndarray) -> EdgeTest:
    """The likelihood-ratio or score test of a table of a pair, whichever has the larger p-value."""
    law = table.sum(1, keepdims=True) * table.sum(0) / table.sum()
    gain = max(0.0, float((table[table > 0] * np.log(table[table > 0] / law[table > 0])).sum()))
    least = min(2 * gain, float(((table - law) ** 2 / law).sum()))
    log_p = chi_square_log_tail(np.array(least), (table.shape[0] - 1) * (table.shape[1] - 1))
    return EdgeTest(edge, float(log_p), gain, "chi-square")


def _batches(tester: EdgeTester, sets: Sequence[Edge]) -> Iterator[tuple[tuple[int, ...], list[Edge]]]:
    """Sets of one shape at a time, so many that their tables stay small."""
    found: dict[tuple[int, ...], list[Edge]] = defaultdict(list)
    for edge in sets:
        found[tuple(tester.cardinalities[name] for name in edge)].append(edge)
    for shape, members in found.items():
        size = max(1, _CELLS // math.prod(shape))
        for begin in range(0, len(members), size):
            yield shape, members[begin : begin + size]
