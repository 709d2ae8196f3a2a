"""The two ways in which a partial order is kept: as the list of its comparable pairs, or as subsets in binary."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import cached_property, lru_cache
from typing import Literal

import networkx as nx
import numpy as np
import torch

from ..._modes import plain_mode
from ...errors import out_of_reach, refused, size_text

Direction = Literal["below", "above"]
_LARGEST = 2**53
_BLOCK = 5  # variables of one matrix


class ListedOrder:
    """A finite order as its comparable pairs (lower, upper), reflexive ones included, sorted by upper element.

    ``relation`` (num_pairs, 2) are positions; its reflexive and transitive closure is the order. ``names`` are for
    messages.
    """

    def __init__(self, names: Sequence[Hashable], relation: np.ndarray, max_pairs: int) -> None:
        self.size = len(names)
        graph: nx.DiGraph[int] = nx.DiGraph()
        graph.add_nodes_from(range(self.size))
        graph.add_edges_from((int(i), int(j)) for i, j in relation if i != j)
        self._sorted = _sorted_elements(graph, names)
        below: list[np.ndarray] = [np.zeros(0, dtype=np.int64)] * self.size
        total = 0
        for upper in self._sorted:
            parts = [below[lower] for lower in graph.predecessors(upper)]
            below[upper] = np.unique(np.concatenate([*parts, np.array([upper])]))
            total += len(below[upper])
            if total > max_pairs:
                problem = f"the order has more than max_pairs={max_pairs} comparable pairs"
                raise out_of_reach("relation", problem, "raise max_pairs, or use Poset.boolean_lattice for subsets")
        self._below = below
        self.lower = np.concatenate([*below, np.zeros(0, dtype=np.int64)])
        self.upper = np.repeat(np.arange(self.size), [len(part) for part in below])

    def zeta(self, lower: int, upper: int) -> int:
        """1 where the first element is below or equal to the second, else 0."""
        part = self._below[upper]
        place = int(np.searchsorted(part, lower))
        return int(place < len(part) and part[place] == lower)

    def moebius(self, lower: int, upper: int) -> int:
        """Value of the Moebius function, exact."""
        low, high, values = self._moebius
        start, stop = np.searchsorted(high, [upper, upper + 1])
        place = int(start + np.searchsorted(low[start:stop], lower))
        return int(values[place]) if place < stop and low[place] == lower else 0

    @cached_property
    def _moebius(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        r"""The pairs where the Moebius function is not zero and its values, by its recursion along the order.

        .. math:: \mu(x, y) = -\sum_{x \le s < y} \mu(x, s)
        """
        empty = np.zeros(0, dtype=np.int64)
        columns = [(empty, empty)] * self.size
        for upper in self._sorted:
            below = self._below[upper]
            parts = [columns[s] for s in below if s != upper]
            rows = np.concatenate([*(rows for rows, _ in parts), [upper]]).astype(np.int64)
            values = np.concatenate([*(-values for _, values in parts), [1]]).astype(np.int64)
            places = np.searchsorted(below, rows)
            if np.bincount(places, weights=np.abs(values)).max() > _LARGEST:
                raise out_of_reach("poset", "its Moebius function has values beyond 2^53")
            sums = np.bincount(places, weights=values, minlength=len(below)).astype(np.int64)
            columns[upper] = (below[sums != 0], sums[sums != 0])
        low = np.concatenate([*(rows for rows, _ in columns), empty])
        high = np.repeat(np.arange(self.size), [len(rows) for rows, _ in columns])
        return low, high, np.concatenate([*(values for _, values in columns), empty])

    def sums(self, values: torch.Tensor, direction: Direction) -> torch.Tensor:
        """Sums over the elements below (above) or equal to every element, along the last dimension."""
        return self._summed(values, direction, self.lower, self.upper, None)

    def differences(self, values: torch.Tensor, direction: Direction) -> torch.Tensor:
        """Inverse of :meth:`sums`."""
        return self._summed(values, direction, *self._moebius)

    @staticmethod
    def _summed(
        values: torch.Tensor, direction: Direction, low: np.ndarray, high: np.ndarray, weights: np.ndarray | None
    ) -> torch.Tensor:
        source, target = (torch.from_numpy(part).to(values.device) for part in (low, high))
        if direction == "above":
            source, target = target, source
        terms = values[..., source]
        if weights is not None:
            terms = terms * torch.from_numpy(weights).to(values)
        return torch.zeros_like(values).index_add(-1, target, terms)

    @cached_property
    def covers(self) -> np.ndarray:
        """Pairs (num_covers, 2) with nothing between them, by lower element."""
        found: list[tuple[int, int]] = []
        place = np.argsort(self._sorted)
        for upper in range(self.size):
            left = self._below[upper][np.argsort(-place[self._below[upper]])][1:]
            while len(left):  # the highest is covered by it, and hides all below
                found.append((int(left[0]), upper))
                left = left[~np.isin(left, self._below[left[0]])]
        return np.array(sorted(found), dtype=np.int64).reshape(-1, 2)

    @cached_property
    def heights(self) -> np.ndarray:
        """Length of the longest chain that ends at every element; 0 at the minimal ones."""
        heights = np.zeros(self.size, dtype=np.int64)
        for upper in self._sorted:
            strictly = self._below[upper][self._below[upper] != upper]
            heights[upper] = heights[strictly].max() + 1 if len(strictly) else 0
        return heights


class SubsetOrder:
    """Subsets of some variables under inclusion; the last variable is the lowest bit of a position."""

    def __init__(self, num_variables: int, max_elements: int) -> None:
        self.num_variables = num_variables
        self.size = 2**num_variables
        if self.size > max_elements:
            problem = (
                f"the Boolean lattice of {num_variables} variables has {size_text(self.size, 'elements')}, the budget "
                f"is max_elements={max_elements}"
            )
            hint = "raise max_elements, or train a machine of small order by variable elimination or Gibbs chains"
            raise out_of_reach("variables", problem, hint)

    def zeta(self, lower: int, upper: int) -> int:
        """1 where the first subset is in the second, else 0."""
        return int(lower & ~upper == 0)

    def moebius(self, lower: int, upper: int) -> int:
        """(-1) to the difference of the sizes where the first subset is in the second, else 0."""
        return self.zeta(lower, upper) * (-1) ** (upper & ~lower).bit_count()

    def sums(self, values: torch.Tensor, direction: Direction) -> torch.Tensor:
        """Sums over the subsets (supersets) of every subset."""
        return self._along(values, direction, 1)

    def differences(self, values: torch.Tensor, direction: Direction) -> torch.Tensor:
        """Inverse of :meth:`sums`."""
        return self._along(values, direction, -1)

    def _along(self, values: torch.Tensor, direction: Direction, sign: int) -> torch.Tensor:
        """Five variables at a time by a product with their matrix, which is faster than one after another."""
        shape = values.shape
        for first in range(0, self.num_variables, _BLOCK):
            width = min(_BLOCK, self.num_variables - first)
            matrix = _inclusions(width, sign).to(values)
            if direction == "above":
                matrix = matrix.T
            if first == 0:
                values = (values.reshape(-1, 2**width) @ matrix).reshape(shape)
            else:
                values = (matrix.T @ values.reshape(-1, 2**width, 2**first)).reshape(shape)
        return values

    @cached_property
    def covers(self) -> np.ndarray:
        """Pairs of subsets (num_covers, 2) that differ by one variable, by lower subset."""
        every = np.arange(self.size)
        pairs = [np.stack((every, every | 1 << k), -1)[every >> k & 1 == 0] for k in range(self.num_variables)]
        found = np.concatenate([*pairs, np.zeros((0, 2), dtype=np.int64)])
        return found[np.lexsort((found[:, 1], found[:, 0]))]

    @cached_property
    def heights(self) -> np.ndarray:
        """Sizes of the subsets."""
        every = np.arange(self.size)
        return np.sum([every >> k & 1 for k in range(self.num_variables)], axis=0, dtype=np.int64) * np.ones_like(every)


def _sorted_elements(graph: nx.DiGraph[int], names: Sequence[Hashable]) -> list[int]:
    """Positions with lower elements first; InputError that names a cycle."""
    try:
        return list(nx.topological_sort(graph))
    except nx.NetworkXUnfeasible as error:
        cycle = [edge[0] for edge in nx.find_cycle(graph)]
        text = " <= ".join(repr(names[i]) for i in (*cycle, cycle[0]))
        problem = f"expected an antisymmetric relation, received the cycle {text}"
        raise refused(
            "relation", problem, "merge these elements, or drop one of these pairs", code="conflict"
        ) from error


@lru_cache(maxsize=16)
@plain_mode()
def _inclusions(num_variables: int, sign: int) -> torch.Tensor:
    """Zeta matrix (sign 1) or Moebius matrix (sign -1) of a small Boolean lattice, float64."""
    every = torch.arange(2**num_variables)
    sizes = torch.stack([every >> k & 1 for k in range(num_variables)]).sum(0)
    signs = float(sign) ** (sizes - sizes[:, None]).abs()
    return (every[:, None] & ~every == 0) * signs.double()
