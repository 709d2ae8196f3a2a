"""Search space of root regressions: the keys (j, l), their penalties, and which tuples a node may have."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from ...errors import (
    check_not_negative,
    is_whole,
    out_of_range,
    out_of_reach,
    refused,
    size_text,
    unexpected,
    wrong_type,
)
from ...schema import Domain
from ..structure import Key

SCANNED_SIZE = 3
_MOST_LISTED = 2 * 10**7

Penalty = float | Mapping[int, float]


@dataclass(frozen=True, eq=False)
class SearchSpace:
    """Keys (j, l) by l, then j, the penalty of each, and tuples (m, l) of the sizes that are not searched whole."""

    keys: tuple[Key, ...]
    l1: tuple[float, ...]
    listed: Mapping[int, NDArray[np.int64]]
    _others: dict[int, tuple[NDArray[np.int64], NDArray[np.int64]]] = field(default_factory=dict, repr=False)

    @property
    def width(self) -> int:
        """Most other variables of one feature, at least 1."""
        return max(1, *(size - 1 for _, size in self.keys))

    def prepare(self, num_variables: int) -> None:
        """Lay the listed tuples out by node; to be called before the space is shared between threads."""
        # Every tuple once for each of its members, sorted by node.
        for size, tuples in self.listed.items():
            nodes = tuples.reshape(-1)
            order = np.argsort(nodes, kind="stable")
            starts = np.searchsorted(nodes[order], np.arange(num_variables + 1)).astype(np.int64)
            repeated = tuples[order // size]
            others = repeated[repeated != nodes[order][:, None]].reshape(-1, size - 1)
            self._others[size] = (starts, np.ascontiguousarray(others))

    def others(self, size: int, node: int) -> NDArray[np.int64] | None:
        """The other variables of a node's listed tuples (m, size - 1), or None where all are searched."""
        if size not in self.listed:
            return None
        starts, others = self._others[size]
        return others[starts[node] : starts[node + 1]]

    def with_l1(self, l1: Mapping[int, float]) -> SearchSpace:
        """The same features under other penalties of the root orders."""
        return replace(self, l1=_key_penalties(self.keys, l1))


def search_space(
    num_variables: int, order: int, l1: Mapping[int, float], full: bool, listed: Mapping[int, NDArray[np.int64]]
) -> SearchSpace:
    """Search space up to some order; sizes beyond 3 that are not listed must have few enough tuples to be."""
    # Keys by size, then by root.
    keys = sorted(
        ((j, size) for j in range(1, order + 1) for size in (range(1, j + 1) if full else (j,))),
        key=lambda key: (key[1], key[0]),
    )
    # Refuse before anything is listed, so that no memory is taken in vain.
    lists = dict(listed)
    for size in range(SCANNED_SIZE + 1, order + 1):
        if size in lists:
            continue
        count = math.comb(num_variables, size)
        if count > _MOST_LISTED:
            needed = size_text(count * size * 8, "bytes")
            raise out_of_reach(
                "order",
                f"{size_text(count, 'sets')} of {size} variables would be searched, which needs {needed} for their "
                f"list alone; the limit is {_MOST_LISTED} sets",
                f"give candidates={{{size}: [...]}}, or pass stagewise=True to search the cliques of the pairs only",
            )
    for size in range(SCANNED_SIZE + 1, order + 1):
        if size in lists:
            continue
        count = math.comb(num_variables, size)
        combinations = itertools.chain.from_iterable(itertools.combinations(range(num_variables), size))
        lists[size] = np.fromiter(combinations, np.int64, count * size).reshape(count, size)
    lists = {size: tuples for size, tuples in lists.items() if 2 <= size <= order}
    space = SearchSpace(tuple(keys), _key_penalties(keys, l1), lists)
    space.prepare(num_variables)
    return space


def _key_penalties(keys: Iterable[Key], l1: Mapping[int, float]) -> tuple[float, ...]:
    return tuple(0.0 if key == (1, 1) else l1[key[0]] for key in keys)


def checked_l1(l1: Any, order: int, argument: str = "l1") -> dict[int, float]:
    """Penalty of each root order from 2 on."""
    # One penalty for each root order, or one for all.
    if isinstance(l1, Mapping):
        given = cast("Mapping[Any, Any]", l1)
        wrong = [j for j in given if not is_whole(j) or not 2 <= j <= order]
        if wrong:
            raise out_of_range(argument, f"root orders from 2 to {order} as keys", wrong[0])
        missing = [j for j in range(2, order + 1) if j not in given]
        if missing:
            problem = f"no penalty for root order {missing[0]}"
            raise refused(argument, problem, f"give one for each of 2 to {order}", code="missing-part")
        for j in range(2, order + 1):
            check_not_negative(given[j], f"{argument}[{j}]")
        return {j: float(given[j]) for j in range(2, order + 1)}
    check_not_negative(l1, argument)
    return dict.fromkeys(range(2, order + 1), float(l1))


def checked_candidates(candidates: Any, domain: Domain, order: int) -> dict[int, NDArray[np.int64]]:
    """Positions (m, size), sorted and distinct, of the tuples given for each size."""
    if candidates is None:
        return {}
    if isinstance(candidates, str) or not isinstance(candidates, Iterable):
        raise wrong_type("candidates", "tuples of variable names", received=repr(candidates))
    # By size: as a mapping says, else as each tuple is.
    groups: dict[int, set[tuple[int, ...]]] = {}
    by_size = cast("Mapping[Any, Iterable[Any]]", candidates if isinstance(candidates, Mapping) else {None: candidates})
    for size, tuples in by_size.items():
        if size is not None:
            if not is_whole(size) or not 2 <= size <= order:
                raise out_of_range("candidates", f"sizes from 2 to {order} as keys", size)
            groups[size] = set()
        for names in tuples:
            positions = _checked_tuple(names, domain, order)
            if size not in (None, len(positions)):
                expected, shown = f"tuples of {size} variables", tuple(domain.names[i] for i in positions)
                raise unexpected(f"candidates[{size}]", expected, received=shown, code="wrong-shape")
            groups.setdefault(len(positions), set()).add(positions)
    return {size: np.array(sorted(sets), dtype=np.int64).reshape(-1, size) for size, sets in groups.items()}


def _checked_tuple(names: Any, domain: Domain, order: int) -> tuple[int, ...]:
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise wrong_type("candidates", "a tuple of variable names", received=repr(names))
    positions = tuple(sorted(domain.indices(cast("Iterable[str]", names))))
    if not 2 <= len(positions) <= order:
        shown = tuple(domain.names[i] for i in positions)
        raise out_of_range("candidates", f"2 to {order} variables in a tuple (the order)", received=shown)
    return positions


def clique_candidates(pairs: NDArray[np.int64], size: int, limit: int = _MOST_LISTED) -> NDArray[np.int64]:
    """All cliques of some size in a graph of pairs (m, 2), as sorted rows (count, size)."""
    # Cliques come by size.
    graph: Any = nx.Graph()
    graph.add_edges_from(pairs.tolist())
    cliques: list[tuple[int, ...]] = []
    for clique in nx.enumerate_all_cliques(graph):  # by size
        if len(clique) > size:
            break
        if len(clique) == size:
            cliques.append(tuple(sorted(clique)))
            if len(cliques) > limit:
                problem = f"more than {limit} cliques of {size} variables in the graph of {len(pairs)} pairs"
                raise out_of_reach("stagewise", problem, "raise l1 or give candidates")
    return np.array(sorted(cliques), dtype=np.int64).reshape(-1, size)
