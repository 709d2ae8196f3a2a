r"""Decision graphs: partitions of the states of all other variables, kept as a sequence of splits and merges."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch

from ..errors import check_type, other_domain, out_of_range, unexpected, wrong_type
from ..schema import Domain
from ..structure.hypergraph import check_codes


@dataclass(frozen=True)
class Split:
    r"""One leaf is replaced by one leaf per level of the variable ``on`` (equation 19).

    Leaves after it move up by one place, and the new leaves stand at the end in the order of the levels.
    """

    leaf: int
    on: str


@dataclass(frozen=True)
class Merge:
    r"""Two leaves become one (equation 20), which keeps the smaller number; leaves after the second move up by one."""

    first: int
    second: int


@dataclass(frozen=True, eq=False)
class CompiledGraph:
    """The directed acyclic graph of a decision graph as flat arrays, merges resolved; for loops that walk it.

    From node 0, the root, ``node = children[offsets[node] + x[variables[node]]]`` is repeated until a node asks
    nothing (-1); then ``offsets[node]`` is the number of the leaf. A child has a greater number than its parents.
    All arrays are int32 and read-only.

    Attributes:
        variables: schema position of the variable that a node asks, -1 at a leaf, (num_nodes,).
        offsets: where the children of a node begin, or the number of the leaf, (num_nodes,).
        children: nodes, one per level of the variable that is asked.
    """

    variables: np.ndarray
    offsets: np.ndarray
    children: np.ndarray

    def leaves_behind(self, cards: Sequence[int], start: int = 0, known: Sequence[int] | None = None) -> set[int]:
        """Numbers of the leaves that a node leads to, where some levels may be known; -1 for the others."""
        # Every node is visited once, however many ways lead to it.
        front, seen, leaves = [start], {start}, set[int]()
        while front:
            here = front.pop()
            variable, first = int(self.variables[here]), int(self.offsets[here])
            if variable < 0:
                leaves.add(first)
                continue
            level = -1 if known is None else int(known[variable])
            chosen = range(cards[variable]) if level < 0 else (level,)
            below = {int(self.children[first + k]) for k in chosen} - seen
            seen |= below
            front += below
        return leaves

    def leaves(self, codes: torch.Tensor) -> torch.Tensor:
        """Leaf numbers (*sample,) of codes (*sample, d) by walking the graph; the codes are not checked."""
        flat = codes.reshape(-1, codes.shape[-1])
        variables, offsets, children = (
            torch.from_numpy(a.astype(np.int64)).to(codes.device) for a in (self.variables, self.offsets, self.children)
        )
        # All states go down one question at a time; those at a leaf stop.
        node = torch.zeros(len(flat), dtype=torch.long, device=codes.device)
        active = torch.arange(len(flat), device=codes.device) if self.variables[0] >= 0 else node[:0]
        while len(active):
            here = node[active]
            level = flat[active, variables[here]]
            below = children[offsets[here] + level]
            node[active] = below
            active = active[variables[below] >= 0]
        return offsets[node].reshape(codes.shape[:-1])


class DecisionGraph:
    r"""The information source :math:`Y_i` of one variable: a function of all others, which takes few values.

    It begins with one leaf, which holds every state. A split replaces a leaf by one leaf per level of another variable,
    a merge unites two leaves. The operations are recorded, and no table over all states is ever made. Immutable; equal
    operations on equal domains make equal graphs.

    Args:
        domain: the variables.
        variable: name of the variable whose conditional law reads the graph; it is never asked.
        operations: :class:`Split` and :class:`Merge`, in order. All are attributes, as is ``num_leaves``, from 1.

    Raises:
        UnknownNameError: an unknown variable.
        InputError: a leaf that does not exist, a split on the variable itself, a merge of a leaf with itself or of
            leaves that are not in order.
        InputTypeError: an operation of another type, or a number of a leaf that is not whole.

    References:
        Paper 5, section 4.5, equations (19, 20). Chickering, Heckerman and Meek, A Bayesian Approach to Learning
        Bayesian Networks with Local Structure, 1997.

    Example:
        >>> domain = Domain.from_cardinalities({"a": 2, "b": 3, "c": 2})
        >>> graph = DecisionGraph(domain, "a").split(0, "b").split(1, "c").merge(0, 2)
        >>> graph.num_leaves, graph.reads
        (3, ('b', 'c'))
        >>> graph.leaves(torch.tensor([[0, 0, 0], [1, 1, 0], [0, 1, 1], [0, 2, 1]])).tolist()
        [0, 0, 2, 1]
    """

    def __init__(self, domain: Domain, variable: str, operations: Iterable[Split | Merge] = ()) -> None:
        check_type(domain, Domain, "domain")
        domain.index(variable)
        self.domain, self.variable = domain, variable
        self.num_leaves = 1
        self.operations: tuple[Split | Merge, ...] = tuple(
            self._checked(operation, f"operations[{number}]") for number, operation in enumerate(tuple(operations))
        )
        _ = domain.cardinalities  # refuses variables without levels

    @property
    def num_parameters(self) -> int:
        r"""Free probabilities of the leaf tables, :math:`k_i = |Y_i| (|X_i| - 1)`."""
        return self.num_leaves * (self.domain[self.variable].cardinality - 1)

    @cached_property
    def reads(self) -> tuple[str, ...]:
        """Names of the variables that are asked, in schema order."""
        asked = {operation.on for operation in self.operations if isinstance(operation, Split)}
        return tuple(name for name in self.domain.names if name in asked)

    def split(self, leaf: int, on: str) -> DecisionGraph:
        """The graph with one more split of ``leaf`` on another variable; errors as those of the class."""
        return self._with(Split(leaf, on))

    def merge(self, first: int, second: int) -> DecisionGraph:
        """The graph with leaf ``second`` united into ``first``, which is smaller; errors as those of the class."""
        return self._with(Merge(first, second))

    def _with(self, operation: Split | Merge) -> DecisionGraph:
        graph = DecisionGraph(self.domain, self.variable)
        graph.num_leaves = self.num_leaves
        graph.operations = (*self.operations, graph._checked(operation, ""))
        return graph

    def _checked(self, operation: Split | Merge, where: str) -> Split | Merge:
        """An operation on the leaves that there are, which are counted anew."""
        lead = f"{where} " if where else ""
        # A split asks another variable than the one whose law the graph conditions.
        if isinstance(operation, Split):
            leaf = self._leaf(operation.leaf, f"{lead}leaf")
            self.domain.index(operation.on)
            if operation.on == self.variable:
                expected = f"another variable than {self.variable!r}, whose law the graph conditions"
                raise other_domain(f"{lead}on", expected)
            operation, gained = Split(leaf, operation.on), self.domain[operation.on].cardinality - 1
        elif isinstance(operation, Merge):
            first, second = (
                self._leaf(n, f"{lead}{name}") for n, name in ((operation.first, "first"), (operation.second, "second"))
            )
            if first >= second:
                expected = "two leaves in increasing order"
                raise out_of_range(f"{lead}first, second", expected, received=f"{first} and {second}")
            operation, gained = Merge(first, second), -1
        else:
            raise wrong_type(f"{lead}operation", "a Split or a Merge", operation)
        self.num_leaves += gained
        return operation

    def _leaf(self, number: object, argument: str) -> int:
        try:
            leaf = operator.index(number)  # type: ignore[arg-type]
        except TypeError:
            raise wrong_type(argument, "the number of a leaf", received=repr(number)) from None
        if not 0 <= leaf < self.num_leaves or isinstance(number, bool):
            raise out_of_range(argument, f"a leaf from 0 to {self.num_leaves - 1}", number)
        return leaf

    def leaves(self, x: torch.Tensor) -> torch.Tensor:
        """Leaves (*sample,) of states (*sample, d), of which :attr:`reads` are read; O(depth) per state."""
        return self.compiled.leaves(check_codes(x, self.domain, columns=list(self.domain.indices(self.reads))))

    @cached_property
    def compiled(self) -> CompiledGraph:
        """The directed acyclic graph as flat arrays, made once; walking it costs O(depth) per state."""
        # Replay the operations on nodes: a split opens a leaf, a merge lets one node stand for two.
        asks: list[int] = [-1]
        below: list[list[int]] = [[]]
        united: list[int] = [0]  # the node that took a node's place; the later one, so that children come after parents
        at_leaf = [0]
        for operation in self.operations:
            if isinstance(operation, Split):
                node = at_leaf.pop(operation.leaf)
                asks[node] = self.domain.index(operation.on)
                new = range(len(asks), len(asks) + self.domain.cardinalities[asks[node]])
                below[node] = list(new)
                at_leaf.extend(new)
                asks.extend(-1 for _ in new)
                below.extend([] for _ in new)
                united.extend(new)
            else:
                first, second = at_leaf[operation.first], at_leaf.pop(operation.second)
                united[min(first, second)] = max(first, second)
                at_leaf[operation.first] = max(first, second)
        # A node may have been united several times: the last one stands for all.
        for node in reversed(range(len(united))):
            united[node] = united[united[node]]
        # The nodes that are left, numbered anew, parents before children.
        nodes = [node for node in range(len(asks)) if united[node] == node]
        number = {node: k for k, node in enumerate(nodes)}
        leaf_of = {node: leaf for leaf, node in enumerate(at_leaf)}
        offsets: list[int] = []
        children: list[int] = []
        for node in nodes:
            offsets.append(leaf_of[node] if asks[node] < 0 else len(children))
            children.extend(number[united[child]] for child in below[node])
        arrays = [np.array(a, dtype=np.int32) for a in ([asks[node] for node in nodes], offsets, children)]
        for array in arrays:
            array.flags.writeable = False
        return CompiledGraph(*arrays)

    def condition(self, evidence: Mapping[str, int | str]) -> tuple[DecisionGraph, tuple[int, ...]]:
        """The graph over the remaining variables when some are fixed by ``{name: code or label}``, and its origin.

        That is, for each leaf of the result, the leaf of this graph with the same states. An unknown name or label, a
        bad code, and the variable of the graph itself are refused.
        """
        codes = self.domain.encode_state(evidence)
        if self.variable in codes:
            raise other_domain("evidence", f"other variables than {self.variable!r}, whose law is conditioned")
        rest = self.domain.project(name for name in self.domain.names if name not in codes)
        # Replay the operations where the evidence leads; splits on it choose one child.
        graph: list[Split | Merge] = []
        now: list[int | None] = [0]  # the new number of every old leaf, None where the evidence never leads
        count = 1
        for operation in self.operations:
            if isinstance(operation, Split):
                old, size = now.pop(operation.leaf), self.domain[operation.on].cardinality
                if old is None:
                    now.extend([None] * size)
                elif operation.on in codes:
                    now.extend(old if level == codes[operation.on] else None for level in range(size))
                else:
                    graph.append(Split(old, operation.on))
                    now = [n - 1 if n is not None and n > old else n for n in now]
                    now.extend(range(count - 1, count - 1 + size))
                    count += size - 1
            else:
                first, second = now[operation.first], now.pop(operation.second)
                if first is None or second is None:
                    now[operation.first] = second if first is None else first
                else:
                    low, high = min(first, second), max(first, second)
                    graph.append(Merge(low, high))
                    now[operation.first] = low
                    now = [n - 1 if n is not None and n > high else n for n in now]
                    count -= 1
        # Several old leaves may have become one, of which any tells its law.
        source = {new: old for old, new in enumerate(now) if new is not None}
        return DecisionGraph(rest, self.variable, graph), tuple(source[leaf] for leaf in range(count))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DecisionGraph):
            return NotImplemented
        return (self.variable, self.operations, self.domain) == (other.variable, other.operations, other.domain)

    def __hash__(self) -> int:
        return hash((self.variable, self.operations, self.domain))

    def __repr__(self) -> str:
        return f"DecisionGraph({self.variable!r}, num_leaves={self.num_leaves}, reads={self.reads})"

    def to_json(self) -> dict[str, Any]:
        """JSON-ready description without the domain, inverse of :meth:`from_json`."""
        operations = [
            ["split", o.leaf, o.on] if isinstance(o, Split) else ["merge", o.first, o.second] for o in self.operations
        ]
        return {"variable": self.variable, "operations": operations}

    @classmethod
    def from_json(cls, domain: Domain, value: Mapping[str, Any]) -> DecisionGraph:
        """Rebuild a graph from :meth:`to_json`; InputError for anything else."""
        try:
            variable, operations = value["variable"], [tuple(entry) for entry in value["operations"]]
        except (KeyError, TypeError) as error:
            expected = "an object with variable and operations"
            raise unexpected("decision graph", expected, value, code="wrong-type") from error
        return cls(domain, variable, [_operation(entry) for entry in operations])


def _operation(entry: Sequence[Any]) -> Split | Merge:
    match entry:
        case ("split", int(leaf), str(on)):
            return Split(leaf, on)
        case ("merge", int(first), int(second)):
            return Merge(first, second)
        case _:
            expected = "['split', leaf, name] or ['merge', first, second]"
            raise unexpected("operations", expected, list(entry), code="unknown-choice")
