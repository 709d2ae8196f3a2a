r"""Finite partially ordered sets with their zeta and Moebius functions (paper 4, section 2.3)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import cached_property, lru_cache
from typing import Any, Literal, get_args

import networkx as nx
import numpy as np
import torch
from typing_extensions import override

from ..._modes import plain_mode
from ...checks import check_finite, check_shape, checked_floating
from ...errors import (
    UnknownNameError,
    check_choice,
    check_names,
    check_type,
    check_whole,
    none_received,
    out_of_range,
    out_of_reach,
    refused,
    size_text,
    unexpected,
    wrong_shape,
    wrong_type,
)
from ...schema import Domain

Direction = Literal["below", "above"]
_LARGEST = 2**53
_MAX_PAIRS = 2**22
_MAX_ELEMENTS = 2**24
_BLOCK = 5  # variables of one matrix of a Boolean lattice


class Poset:
    r"""A finite partially ordered set, with sums along its order and their inverses.

    .. math::
        \zeta(s, x) = [s \le x], \qquad \mu(x, x) = 1, \quad \mu(x, y) = -\sum_{x \le s < y} \mu(x, s), \qquad
        g(x) = \sum_{s \le x} f(s) \iff f(x) = \sum_{s \le x} \mu(s, x)\, g(s)

    The order is the reflexive and transitive closure of the given pairs. Sums are linear in the number of comparable
    pairs, differences (the inverse) in the number of pairs whose Moebius value is not zero. The Boolean lattice
    (:meth:`boolean_lattice`) lists no pairs: there both take :math:`O(n 2^n)` operations. Both are exact up to
    rounding, differentiable and vectorised over leading dimensions; dtype and device are the argument's.

    Args:
        elements: distinct hashable labels, in the order of every vector over the poset.
        relation: pairs (x, y) of elements with x <= y, such as covers; pairs (x, x) may be left out.
        max_pairs: most comparable pairs that are listed.

    Raises:
        InputError: no element, a repeated one, a pair that is none, or a cycle, which is named.
        UnknownNameError: a pair with an unknown element; the closest ones are listed.
        IntractableError: more comparable pairs than ``max_pairs``.

    References:
        Paper 4, section "Information geometric formulation"; Rota (1964), On the foundations of combinatorial theory I.

    Example:
        >>> poset = Poset("abcd", [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")])
        >>> poset.bottom, poset.zeta("a", "d"), poset.zeta("b", "c"), poset.moebius("a", "d")
        ('a', 1, 0, 1)
        >>> poset.sums(torch.tensor([1.0, 2.0, 3.0, 4.0])).tolist()
        [1.0, 3.0, 4.0, 10.0]
    """

    def __init__(
        self, elements: Iterable[Hashable], relation: Iterable[Sequence[Hashable]], *, max_pairs: int = _MAX_PAIRS
    ) -> None:
        self._elements = _checked_elements(elements)
        check_type(relation, Iterable, "relation", "pairs of elements")
        self._close([self._pair(pair) for pair in relation], max_pairs)

    @classmethod
    def _from_positions(cls, labels: tuple[Any, ...], relation: Iterable[Sequence[int]], max_pairs: int) -> Poset:
        new = cls.__new__(cls)
        new._elements = labels
        new._close(relation, max_pairs)
        return new

    def _close(self, relation: Iterable[Sequence[int]], max_pairs: int) -> None:
        """List all comparable pairs: the reflexive and transitive closure of pairs of positions (lower, upper)."""
        check_whole(max_pairs, "max_pairs")
        graph: nx.DiGraph[int] = nx.DiGraph()
        graph.add_nodes_from(range(len(self)))
        graph.add_edges_from((int(i), int(j)) for i, j in relation if i != j)
        # Lower elements first; what is below an element is known from those that it covers.
        try:
            self._sorted = list(nx.topological_sort(graph))
        except nx.NetworkXUnfeasible as error:
            cycle = [edge[0] for edge in nx.find_cycle(graph)]
            text = " <= ".join(repr(self._elements[i]) for i in (*cycle, cycle[0]))
            problem = f"expected an antisymmetric relation, received the cycle {text}"
            hint = "merge these elements, or drop one of these pairs"
            raise refused("relation", problem, hint, code="conflict") from error
        self._below: list[np.ndarray] = [np.zeros(0, dtype=np.int64)] * len(self)
        rank, total = {element: k for k, element in enumerate(self._sorted)}, 0
        for upper in self._sorted:
            below = {upper}
            for lower in sorted(graph.predecessors(upper), key=rank.__getitem__, reverse=True):
                if lower not in below:
                    below.update(self._below[lower].tolist())
            self._below[upper] = np.array(sorted(below))
            total += len(below)
            if total > max_pairs:
                problem = f"the order has more than max_pairs={max_pairs} comparable pairs"
                raise out_of_reach("relation", problem, "raise max_pairs, or use Poset.boolean_lattice for subsets")

    @classmethod
    def from_matrix(
        cls, matrix: Any, elements: Iterable[Hashable] | None = None, *, max_pairs: int = _MAX_PAIRS
    ) -> Poset:
        """Poset of a square matrix of zeros and ones: entry (i, j) is 1 where element i is below or equal to j.

        ``elements`` are 0, 1, ... when left out. The diagonal, and what follows from other pairs, may be left out.

        Example:
            >>> Poset.from_matrix([[0, 1], [0, 0]]).bottom
            0
        """
        table = np.asarray(matrix)
        if table.ndim != 2 or table.shape[0] != table.shape[1]:
            raise wrong_shape("matrix", "(n, n)", table)
        if not np.isin(table, (0, 1)).all():
            raise out_of_range("matrix", "zeros and ones")
        labels = _checked_elements(range(len(table)) if elements is None else elements)
        if len(labels) != len(table):
            raise wrong_shape("matrix", (len(labels), len(labels)), table)
        return cls._from_positions(labels, np.argwhere(table), max_pairs)

    @classmethod
    def from_comparison(
        cls, elements: Iterable[Hashable], is_below: Callable[[Any, Any], bool], *, max_pairs: int = _MAX_PAIRS
    ) -> Poset:
        """Poset of a function that says whether its first argument is below or equal to its second; n^2 calls.

        Example:
            >>> Poset.from_comparison([1, 2, 3, 6], lambda x, y: y % x == 0).moebius(1, 6)
            1
        """
        labels = _checked_elements(elements)
        pairs = [(i, j) for i, x in enumerate(labels) for j, y in enumerate(labels) if is_below(x, y)]
        return cls._from_positions(labels, pairs, max_pairs)

    @classmethod
    def divisibility(cls, numbers: Iterable[int], *, max_pairs: int = _MAX_PAIRS) -> Poset:
        """Positive whole numbers ordered by divisibility.

        Example:
            >>> Poset.divisibility([1, 2, 3, 4, 6, 12]).moebius(1, 12)
            0
        """
        values = [check_whole(number, "numbers") for number in numbers]
        return cls.from_comparison(values, lambda x, y: y % x == 0, max_pairs=max_pairs)

    @classmethod
    def boolean_lattice(cls, variables: Domain | Iterable[str] | int, *, max_elements: int = _MAX_ELEMENTS) -> Poset:
        r"""All subsets of some binary variables under inclusion: the outcome space of a machine.

        A subset is the tuple of its names in schema order, and stands for the state that is 1 in just these variables.
        Subsets are in the order of the cells of a table, the last variable fastest.

        Args:
            variables: a domain of binary variables, names, or their number n (named x0, x1, ...).
            max_elements: most elements, :math:`2^n`.

        Raises:
            InputError: a variable that is not binary.
            IntractableError: more than ``max_elements`` subsets; their number is named.

        Example:
            >>> lattice = Poset.boolean_lattice(["a", "b"])
            >>> lattice.elements, lattice.moebius((), ("a", "b"))
            (((), ('b',), ('a',), ('a', 'b')), 1)
        """
        if isinstance(variables, str):
            raise wrong_type("variables", "a collection of names", received=f"the string {variables!r}")
        if isinstance(variables, Domain):
            wide = [variable.name for variable in variables if variable.cardinality != 2]
            if wide:
                raise unexpected("variables", "binary variables", received=f"{wide[0]!r} with other levels")
            names: tuple[Any, ...] = variables.names
        elif isinstance(variables, Iterable):
            names = _checked_elements(variables, "variables", least=0)
        else:
            names = tuple(f"x{i}" for i in range(check_whole(variables, "variables", least=0)))
        return _BooleanLattice(names, check_whole(max_elements, "max_elements"))

    def __len__(self) -> int:
        return len(self._elements)

    def __repr__(self) -> str:
        return f"Poset({len(self)} elements, {len(self._covers)} covers)"

    def __contains__(self, element: object) -> bool:
        try:
            self.index(element)  # pyright: ignore[reportArgumentType]
        except (UnknownNameError, TypeError):
            return False
        return True

    @property
    def variables(self) -> tuple[str, ...] | None:
        """Names of the variables of a Boolean lattice; None of another poset."""
        return None

    @property
    def elements(self) -> tuple[Any, ...]:
        """The labels, in the order of every vector over the poset."""
        return self._elements

    @cached_property
    def _index(self) -> dict[Hashable, int]:
        return {element: i for i, element in enumerate(self._elements)}

    def index(self, element: Hashable) -> int:
        """Position of an element; of a Boolean lattice, names in any order."""
        return self._position(element, "element")

    def _position(self, element: Hashable, argument: str) -> int:
        if element not in self._index:
            check_names([element], self._elements, argument, "element")  # pyright: ignore[reportArgumentType]
        return self._index[element]

    def indices(self, elements: Iterable[Hashable]) -> torch.Tensor:
        """Positions of some elements, long."""
        return torch.tensor([self.index(element) for element in elements], dtype=torch.long)

    def _pair(self, pair: Sequence[Hashable]) -> tuple[int, int]:
        if not isinstance(pair, Sequence) or len(pair) != 2:
            raise unexpected("relation", "pairs of elements (lower, upper)", pair)
        return self._position(pair[0], "relation"), self._position(pair[1], "relation")

    @cached_property
    def minimal(self) -> tuple[Any, ...]:
        """Elements with none below them."""
        return tuple(self.elements[i] for i in np.flatnonzero(self._heights == 0))

    @property
    def bottom(self) -> Any:
        """The element below all others; InputError where there is none."""
        return self.elements[self.bottom_index]

    @cached_property
    def bottom_index(self) -> int:
        """Position of :attr:`bottom`."""
        first, *others = self.minimal
        if others:
            problem = f"it has no bottom: nothing is below both {first!r} and {others[0]!r}"
            raise refused("poset", problem, "add an element below all others", code="missing-part")
        return self.index(first)

    def is_below(self, lower: Hashable, upper: Hashable) -> bool:
        """Whether the first element is below or equal to the second."""
        return bool(self.zeta(lower, upper))

    def zeta(self, lower: Hashable, upper: Hashable) -> int:
        """Zeta function: 1 where the first element is below or equal to the second, else 0."""
        first, below = self.index(lower), self._below[self.index(upper)]
        at = int(np.searchsorted(below, first))
        return int(at < len(below) and below[at] == first)

    def moebius(self, lower: Hashable, upper: Hashable) -> int:
        """Moebius function, the inverse of the zeta function; exact up to 2^53."""
        first, last = self.index(lower), self.index(upper)
        low, high, values = self._moebius_pairs
        start, stop = np.searchsorted(high, [last, last + 1])
        at = int(start + np.searchsorted(low[start:stop], first))
        return int(values[at]) if at < stop and low[at] == first else 0

    @cached_property
    def _moebius_pairs(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The pairs where the Moebius function is not zero and its values, by its recursion along the order."""
        empty = np.zeros(0, dtype=np.int64)
        columns = [(empty, empty)] * len(self)
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
        high = np.repeat(np.arange(len(self)), [len(rows) for rows, _ in columns])
        return low, high, np.concatenate([*(values for _, values in columns), empty])

    @property
    def covers(self) -> tuple[tuple[Any, Any], ...]:
        """Pairs (lower, upper) with nothing between them: the edges of the Hasse diagram."""
        return tuple((self.elements[i], self.elements[j]) for i, j in self._covers)

    @cached_property
    def _covers(self) -> np.ndarray:
        """Positions (num_covers, 2) of :attr:`covers`, by lower element."""
        covering: list[tuple[int, int]] = []
        rank = np.argsort(self._sorted)
        for upper, below in enumerate(self._below):
            left = below[np.argsort(-rank[below])][1:]
            while len(left):  # the highest is covered by it, and hides all below
                covering.append((int(left[0]), upper))
                left = left[~np.isin(left, self._below[left[0]])]
        return np.array(sorted(covering), dtype=np.int64).reshape(-1, 2)

    @property
    def heights(self) -> np.ndarray:
        """Length of the longest chain from a minimal element up to every element, (n,)."""
        return self._heights.copy()

    @cached_property
    def _heights(self) -> np.ndarray:
        heights = np.zeros(len(self), dtype=np.int64)
        for upper in self._sorted:
            strictly = self._below[upper][self._below[upper] != upper]
            heights[upper] = heights[strictly].max() + 1 if len(strictly) else 0
        return heights

    def up_to(self, height: int) -> tuple[Any, ...]:
        """Elements above the bottom of at most this height: the collection B of a machine of order ``height``.

        By height, then by position; on a Boolean lattice the non-empty subsets of at most so many variables, in the
        order of the sets of ``InteractionHypergraph.from_order``.
        """
        check_whole(height, "height", least=0)
        wanted = np.flatnonzero((self._heights > 0) & (self._heights <= height))
        _ = self.bottom_index
        if self.variables is not None:
            wanted = wanted[::-1]  # the larger position has the variables that come first
        return tuple(self.elements[i] for i in wanted[np.argsort(self._heights[wanted], kind="stable")])

    def sums(self, values: torch.Tensor, direction: Direction = "below") -> torch.Tensor:
        r"""Zeta transform: for every element the sum over all below it, itself included, or above.

        .. math:: g(x) = \sum_{s \le x} f(s) \quad\text{or}\quad g(x) = \sum_{s \ge x} f(s)

        Shape:
            (*batch, n) to (*batch, n), floating and finite.
        """
        self._check(values, direction)
        return self._sums(values, direction)

    def differences(self, values: torch.Tensor, direction: Direction = "below") -> torch.Tensor:
        """Moebius transform, the inverse of :meth:`sums`; shapes as there."""
        self._check(values, direction)
        return self._differences(values, direction)

    def _check(self, values: torch.Tensor, direction: Direction) -> None:
        check_choice(direction, get_args(Direction), "direction")
        check_shape(checked_floating(values, "values"), (len(self),), "values")
        check_finite(values, "values")

    def _sums(self, values: torch.Tensor, direction: Direction) -> torch.Tensor:
        source, target = self._pairs_below if direction == "below" else self._pairs_below[::-1]
        terms = values[..., source.to(values.device)]
        return torch.zeros_like(values).index_add(-1, target.to(values.device), terms)

    @cached_property
    @plain_mode()
    def _pairs_below(self) -> tuple[torch.Tensor, torch.Tensor]:
        """All comparable pairs (lower, upper), by upper element."""
        lower = np.concatenate([*self._below, np.zeros(0, dtype=np.int64)])
        upper = np.repeat(np.arange(len(self)), [len(below) for below in self._below])
        return torch.from_numpy(lower), torch.from_numpy(upper)

    def _differences(self, values: torch.Tensor, direction: Direction) -> torch.Tensor:
        low, high, weights = (torch.from_numpy(part).to(values.device) for part in self._moebius_pairs)
        source, target = (low, high) if direction == "below" else (high, low)
        return torch.zeros_like(values).index_add(-1, target, values[..., source] * weights.to(values))

    def zeta_matrix(self) -> torch.Tensor:
        """Dense matrix (n, n) of the zeta function in float64, row the lower element; for small posets."""
        return self._matrix(self._sums)

    def moebius_matrix(self) -> torch.Tensor:
        """Dense matrix (n, n) of the Moebius function in float64, the inverse of :meth:`zeta_matrix`."""
        return self._matrix(self._differences)

    def _matrix(self, transform: Callable[[torch.Tensor, Direction], torch.Tensor]) -> torch.Tensor:
        if len(self) ** 2 > _MAX_ELEMENTS:
            problem = f"the matrix has {size_text(len(self) ** 2, 'entries')}, the limit is {_MAX_ELEMENTS}"
            raise out_of_reach("poset", problem, "use sums and differences")
        return transform(torch.eye(len(self), dtype=torch.float64), "below")


class _BooleanLattice(Poset):
    """Subsets of some variables under inclusion, of which no pair is listed; the last variable is the lowest bit."""

    def __init__(self, names: tuple[str, ...], max_elements: int) -> None:
        self._names = names
        if len(self) > max_elements:
            problem = (
                f"the Boolean lattice of {len(names)} variables has {size_text(len(self), 'elements')}, the budget "
                f"is max_elements={max_elements}"
            )
            hint = "raise max_elements, or train a machine of small order by variable elimination or Gibbs chains"
            raise out_of_reach("variables", problem, hint)

    def __len__(self) -> int:
        return 2 ** len(self._names)

    def __repr__(self) -> str:
        return f"Poset.boolean_lattice({len(self._names)} variables)"

    @property
    @override
    def variables(self) -> tuple[str, ...]:
        return self._names

    @cached_property
    @override
    def elements(self) -> tuple[Any, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        subsets: list[tuple[Any, ...]] = [()]
        for name in reversed(self._names):
            subsets += [(name, *subset) for subset in subsets]
        return tuple(subsets)

    @cached_property
    def _bits(self) -> dict[str, int]:
        return {name: 1 << k for k, name in enumerate(reversed(self._names))}

    @override
    def index(self, element: Hashable) -> int:
        if isinstance(element, str) or not isinstance(element, Iterable):
            raise UnknownNameError(f"unknown element {element!r}", argument="element", hint="give a tuple of names")
        subset: set[Any] = set(element)
        if not subset <= self._bits.keys():
            check_names(subset, self._names, "element")
        return sum(self._bits[name] for name in subset)

    @property
    @override
    def bottom_index(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return 0

    @override
    def zeta(self, lower: Hashable, upper: Hashable) -> int:
        return int(self.index(lower) & ~self.index(upper) == 0)

    @override
    def moebius(self, lower: Hashable, upper: Hashable) -> int:
        return self.zeta(lower, upper) * (-1) ** (self.index(upper) & ~self.index(lower)).bit_count()

    @cached_property
    def _covers(self) -> np.ndarray:
        """Pairs of subsets that differ by one variable."""
        every = np.arange(len(self))
        pairs = [np.stack((every, every | 1 << k), -1)[every >> k & 1 == 0] for k in range(len(self._names))]
        covering = np.concatenate([*pairs, np.zeros((0, 2), dtype=np.int64)])
        return covering[np.lexsort((covering[:, 1], covering[:, 0]))]

    @cached_property
    def _heights(self) -> np.ndarray:
        return np.bitwise_count(np.arange(len(self))).astype(np.int64)

    def _sums(self, values: torch.Tensor, direction: Direction) -> torch.Tensor:
        return self._along(values, direction, 1)

    def _differences(self, values: torch.Tensor, direction: Direction) -> torch.Tensor:
        return self._along(values, direction, -1)

    def _along(self, values: torch.Tensor, direction: Direction, sign: int) -> torch.Tensor:
        """Five variables at a time by a product with their matrix, which is faster than one after another."""
        shape = values.shape
        for first in range(0, len(self._names), _BLOCK):
            width = min(_BLOCK, len(self._names) - first)
            matrix = _inclusions(width, sign).to(values)
            if direction == "above":
                matrix = matrix.T
            if first == 0:
                values = (values.reshape(-1, 2**width) @ matrix).reshape(shape)
            else:
                values = (matrix.T @ values.reshape(-1, 2**width, 2**first)).reshape(shape)
        return values


@lru_cache(maxsize=16)
@plain_mode()
def _inclusions(num_variables: int, sign: int) -> torch.Tensor:
    """Zeta matrix (sign 1) or Moebius matrix (sign -1) of a small Boolean lattice, float64."""
    every = torch.arange(2**num_variables)
    sizes = torch.stack([every >> k & 1 for k in range(num_variables)]).sum(0)
    signs = float(sign) ** (sizes - sizes[:, None]).abs()
    return (every[:, None] & ~every == 0) * signs.double()


def _checked_elements(elements: Iterable[Any], argument: str = "elements", least: int = 1) -> tuple[Any, ...]:
    """Distinct hashable labels."""
    check_type(elements, Iterable, argument, "a collection of labels")
    labels = tuple(elements)
    if len(labels) < least:
        raise none_received(argument, "at least one element")
    seen: set[Hashable] = set()
    for label in labels:
        try:
            repeated = label in seen
        except TypeError as error:
            raise wrong_type(argument, "hashable labels", label) from error
        if repeated:
            raise refused(argument, f"elements must be distinct, but {label!r} is repeated", code="repeated-name")
        seen.add(label)
    return labels


# Second moments of the indicators of being above elements, and these indicators as a matrix.


def second_moments(poset: Poset, probs: torch.Tensor, where: torch.Tensor) -> torch.Tensor:
    """Probability of being above or equal to both of two elements, (*batch, m, m), for all pairs of positions (m,)."""
    if poset.variables is not None:
        return poset.sums(probs, "above")[..., where[:, None] | where[None, :]]
    rows = indicators(poset, where).to(probs)
    return (rows * probs.unsqueeze(-2)) @ rows.T


def indicators(poset: Poset, where: torch.Tensor) -> torch.Tensor:
    """Rows (m, n) in float64: 1 at the elements above or equal to each of some positions."""
    units = torch.zeros(len(where), len(poset), dtype=torch.float64)
    units[torch.arange(len(where)), where] = 1.0
    return poset.sums(units)
