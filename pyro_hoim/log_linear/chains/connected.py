"""Whether Gibbs chains reach every possible state of a model from every other one, and blocks by which they do."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from ...runs.schedule import MAX_BLOCK_STATES, Blocks
from ..energy import LogLinearEnergy

# Possible states form a product over the connected components of the sets of variables that exclude combinations.
# Chains with given blocks connect the product if and only if they connect the states of every component, in which two
# states are neighbours where they differ within one block. A variable with a level that no combination excludes can
# always be moved there, after which the combinations that hold it exclude nothing: it and they can be left out.

Flags = NDArray[np.bool_]
Codes = NDArray[np.int64]

_MOST_STATES = 2**16  # of a component that are listed
_MOST_ROWS = 2**18  # on the way there
_MOST_PATTERNS = 64  # of excluded combinations, over a batch and the values of clamped variables


class Connectedness(NamedTuple):
    """Whether chains connect all possible states; of "refuted" two states that no chain connects, codes (2, names)."""

    verdict: Literal["proved", "refuted", "untested"]
    names: tuple[str, ...] = ()
    states: Codes | None = None


class _Excluding(NamedTuple):
    """A set of variables, the combinations that it excludes, as bytes, and the shape of these."""

    members: tuple[int, ...]
    excluded: bytes
    shape: tuple[int, ...]

    @property
    def table(self) -> Flags:
        return np.frombuffer(self.excluded, dtype=bool).reshape(self.shape)


_Component = tuple[_Excluding, ...]


def connectedness(support: LogLinearEnergy, blocks: Sequence[Sequence[str]]) -> Connectedness:
    """Whether chains that draw these blocks connect the possible states of every element of a batch.

    Args:
        support: models (B,) of zeros and minus infinities, over the variables that are free.
        blocks: names of variables that are drawn together; together they hold every variable.
    """
    patterns = _patterns(support)
    names, places = support.domain.names, _positions(support, blocks)
    verdicts = {"proved"} if len(patterns) <= _MOST_PATTERNS else {"untested"}
    for component in _components(support, patterns):
        verdict, states = _examined(component, places)
        if verdict == "refuted":
            members = _members(component)
            return Connectedness(verdict, tuple(names[v] for v in members), states)
        verdicts.add(verdict)
    return Connectedness("untested" if "untested" in verdicts else "proved")


def joined_blocks(support: LogLinearEnergy, blocks: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
    """Further blocks by which chains connect components that they would not connect else; arguments as above.

    Tried are the sets of variables that exclude combinations, small ones first, then the whole component, as far as a
    block has at most 4,096 joint states; a component that none of these connects gets none.
    """
    cards, names = support.domain.cardinalities, support.domain.names
    before = _positions(support, blocks)
    places = before
    for component in _components(support, _patterns(support)):
        if _examined(component, places)[0] != "refuted":
            continue
        edges = sorted({part.members for part in component if len(part.members) > 1}, key=lambda e: (len(e), e))
        sizes = sorted({len(edge) for edge in edges})
        for added in [*([e for e in edges if len(e) <= size] for size in sizes), [_members(component)]]:
            small = (edge for edge in added if math.prod(cards[v] for v in edge) <= MAX_BLOCK_STATES)
            more = tuple(dict.fromkeys([*places, *small]))
            if _examined(component, more)[0] == "proved":
                places = more
                break
    return [tuple(names[v] for v in block) for block in places[len(before) :]]


def _positions(support: LogLinearEnergy, blocks: Sequence[Sequence[str]]) -> Blocks:
    """Distinct blocks as positions."""
    return tuple(dict.fromkeys(tuple(sorted(support.domain.indices(block))) for block in blocks))


def _patterns(support: LogLinearEnergy) -> Flags:
    """Distinct excluded combinations (patterns, num_terms)."""
    return torch.isneginf(support.tables).reshape(-1, support.hypergraph.num_terms).unique(dim=0).cpu().numpy()


def _members(component: _Component) -> tuple[int, ...]:
    return tuple(sorted({v for part in component for v in part.members}))


def _components(support: LogLinearEnergy, patterns: Flags) -> Iterator[_Component]:
    """Distinct components of the first patterns, less the variables with a level that nothing excludes."""
    graph, seen = support.hypergraph, set[_Component]()
    pieces = list(zip(graph.edge_indices, graph.term_slices.values(), graph.edge_shapes, strict=True))
    for row in patterns[:_MOST_PATTERNS]:
        parts = [(members, row[where].reshape(shape)) for members, where, shape in pieces if row[where].any()]
        for component in _joined(_without_free(parts, graph.domain.cardinalities)):
            if component not in seen:
                seen.add(component)
                yield component


def _without_free(
    parts: list[tuple[tuple[int, ...], Flags]], cards: Sequence[int]
) -> list[tuple[tuple[int, ...], Flags]]:
    """The parts that are left when every variable with a level that none of them excludes is taken out, in turn."""
    incident = dict[int, set[int]]()
    for k, (members, _) in enumerate(parts):
        for v in members:
            incident.setdefault(v, set()).add(k)
    # Combinations of levels that are excluded alone exclude nothing more.
    allowed = {v: np.ones(cards[v], dtype=bool) for v in incident}
    for members, table in parts:
        if len(members) == 1:
            allowed[members[0]] &= ~table
    left, waiting = set(range(len(parts))), sorted(incident)
    while waiting:
        v = waiting.pop()
        is_safe = allowed[v].copy()
        for k in incident[v] & left:
            members, table = parts[k]
            inside = table[np.ix_(*(allowed[u] for u in members))]
            axes = tuple(a for a, u in enumerate(members) if u != v)
            is_safe[allowed[v]] &= ~inside.any(axes)
        if is_safe.any():
            gone = {k for k in incident[v] & left if len(parts[k][0]) > 1}
            left -= gone
            waiting += sorted({u for k in gone for u in parts[k][0]} - {v} - set(waiting))
    return [parts[k] for k in sorted(left)]


def _joined(parts: list[tuple[tuple[int, ...], Flags]]) -> list[_Component]:
    """Parts that share variables together."""
    size = 1 + max((v for members, _ in parts for v in members), default=-1)
    pairs = [(members[0], v) for members, _ in parts for v in members]
    first, second = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    graph = coo_matrix((np.ones(len(pairs), dtype=bool), (first, second)), shape=(size, size))
    label = connected_components(graph, directed=False)[1]
    components = dict[int, list[_Excluding]]()
    for members, table in parts:
        components.setdefault(int(label[members[0]]), []).append(_Excluding(members, table.tobytes(), table.shape))
    return [tuple(component) for component in components.values()]


@lru_cache(maxsize=1024)
def _examined(component: _Component, blocks: Blocks) -> tuple[Literal["proved", "refuted", "untested"], Codes | None]:
    """Whether the blocks connect the states of a component, and two states (2, members) that they do not."""
    members = _members(component)
    inside = {frozenset(block) & frozenset(members) for block in blocks}
    if frozenset(members) in inside:
        return "proved", None
    states = _listed(component, members)
    if states is None:
        return "untested", None
    # States and what they hold outside of a block are the two sides of a graph.
    first, second, count = list[Codes](), list[Codes](), len(states)
    for block in inside - {frozenset[int]()}:
        outside = [column for column, v in enumerate(members) if v not in block]
        group = np.unique(states[:, outside], axis=0, return_inverse=True)[1].reshape(-1)
        first.append(np.arange(len(states)))
        second.append(count + group)
        count += len(states)
    rows, columns = (np.concatenate([*part, np.zeros(0, dtype=np.int64)]) for part in (first, second))
    graph = coo_matrix((np.ones(len(rows), dtype=bool), (rows, columns)), shape=(count, count))
    label = connected_components(graph, directed=False)[1][: len(states)]
    apart = np.flatnonzero(label != label[0]) if len(label) else label
    if not len(apart):
        return "proved", None
    return "refuted", states[[0, apart[0]]]


@lru_cache(maxsize=256)
def _listed(component: _Component, members: tuple[int, ...]) -> Codes | None:
    """The possible states of a component (states, members), grown variable by variable; None of too many."""
    column = {v: k for k, v in enumerate(members)}
    cards = {v: n for part in component for v, n in zip(part.members, part.shape, strict=True)}
    # A variable comes where the most sets are then known as a whole.
    order, left = list[int](), set(members)
    while left:
        known = set(order)
        chosen = max(
            sorted(left),
            key=lambda v: (
                sum(set(part.members) <= known | {v} for part in component),
                sum(v in part.members and not known.isdisjoint(part.members) for part in component),
            ),
        )
        order.append(chosen)
        left.remove(chosen)
    states, done = np.zeros((1, len(members)), dtype=np.int64), set[int]()
    for v in order:
        if len(states) * cards[v] > _MOST_ROWS:
            return None
        states = np.repeat(states, cards[v], 0)
        states[:, column[v]] = np.tile(np.arange(cards[v]), len(states) // cards[v])
        done.add(v)
        for part in component:
            if v in part.members and done.issuperset(part.members):
                states = states[~part.table[tuple(states[:, column[u]] for u in part.members)]]
    return states if len(states) <= _MOST_STATES else None
