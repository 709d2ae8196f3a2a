"""Whether Gibbs chains reach every possible state of a model from every other one, and blocks by which they do."""

import math
from collections import deque
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

import networkx as nx
import numpy as np
import torch
from scipy import sparse

from ...core.partition import state_text
from ...runs.schedule import MAX_BLOCK_STATES, Blocks, GibbsSchedule
from ...schema import Domain
from ...structure.hypergraph import InteractionHypergraph
from ..energy import LogLinearEnergy
from .inside import Codes, Flags, Listing, grown_states

# Possible states form a product over the connected components of the sets of variables that exclude combinations.
# Chains with given blocks connect the product if and only if they connect the states of every component, in which two
# states are neighbours where they differ within one block.

_MOST_STATES = 2**16  # of a component that are listed
_MOST_LOCAL, _MOST_PAIRS = 2**14, 2**22  # states of a variable and those that it shares combinations with, and pairs
_MOST_PATTERNS = 64  # of excluded combinations, over a batch and the values of clamped variables


class Connectedness(NamedTuple):
    """Whether chains connect all possible states; of "refuted" two states that no chain connects, codes (2, names)."""

    verdict: Literal["proved", "refuted", "untested"]
    names: tuple[str, ...] = ()
    states: Codes | None = None

    def words(self, domain: Domain) -> str:
        """What is known in a sentence; empty where chains connect all possible states."""
        if self.verdict == "proved":
            return ""
        if self.states is None:
            return "whether the chains reach every possible state was not tested, as there is too much to look at"
        return f"the chains do not reach every possible state: none leads {self.apart(domain)}"

    def apart(self, domain: Domain) -> str:
        """The two states in words."""
        assert self.states is not None
        labels = (
            [domain[name].labels[code] for name, code in zip(self.names, row, strict=True)] for row in self.states
        )
        first, second = (state_text(self.names, row) for row in labels)
        return f"from {first} to {second}"


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
        for part in _left_of(component, places):
            verdict, states = _examined(part, places)
            if verdict == "refuted":
                return Connectedness(verdict, tuple(names[v] for v in _members(part)), states)
            verdicts.add(verdict)
    return Connectedness("untested" if "untested" in verdicts else "proved")


def connection_of(support: LogLinearEnergy, schedule: GibbsSchedule, graph: InteractionHypergraph) -> Connectedness:
    """Whether chains of models connect the possible states, where no variable is clamped."""
    has_list = Listing(support).has
    blocks = [tuple(graph.domain.names[v] for v in block) for block in schedule.resolve(graph, has_list=has_list)]
    return connectedness(support, [*blocks, *joined_blocks(support, schedule, blocks)])


def joined_blocks(
    support: LogLinearEnergy, schedule: GibbsSchedule, blocks: Sequence[Sequence[str]]
) -> list[tuple[str, ...]]:
    """Further blocks by which chains connect components that they would not connect else; arguments as above.

    There are none for a schedule whose blocks were chosen: tuples of names, or interactions. Tried are the sets of
    variables that exclude combinations, small ones first, then all variables together, first of what is left of a
    component and then of the whole of it, as far as a block has at most 4,096 possible joint states. A component that
    none of these connects gets none.
    """
    if schedule.blocks not in ("sites", "colours") and schedule.width is None:
        return []
    cards, names, listing = support.domain.cardinalities, support.domain.names, Listing(support)

    def is_small(block: tuple[int, ...]) -> bool:
        return math.prod(cards[v] for v in block) <= MAX_BLOCK_STATES or listing.has([names[v] for v in block])

    before = places = _positions(support, blocks)
    for component in _components(support, _patterns(support)):
        refuted = [part for part in _left_of(component, places) if _examined(part, places)[0] == "refuted"]
        tried = [*_candidates(refuted), *_candidates([component])] if refuted else []
        for added in tried:
            more = tuple(dict.fromkeys([*places, *filter(is_small, added)]))
            # Variables that followed single moves need not follow those of blocks, so all is looked at anew.
            if all(_examined(part, more)[0] == "proved" for part in _left_of(component, more)):
                places = more
                break
    return [tuple(names[v] for v in block) for block in places[len(before) :]]


def _candidates(parts: Sequence[_Component]) -> Iterator[list[tuple[int, ...]]]:
    """Lists of blocks that may connect parts: sets that exclude combinations, up to a size that grows, then all."""
    edges = sorted(
        {each.members for part in parts for each in part if len(each.members) > 1}, key=lambda e: (len(e), e)
    )
    for size in sorted({len(edge) for edge in edges}):
        yield [edge for edge in edges if len(edge) <= size]
    yield [_members(part) for part in parts]


def _positions(support: LogLinearEnergy, blocks: Sequence[Sequence[str]]) -> Blocks:
    """Distinct blocks as positions."""
    return tuple(dict.fromkeys(tuple(sorted(support.domain.indices(block))) for block in blocks))


def _patterns(support: LogLinearEnergy) -> Flags:
    """Distinct excluded combinations (patterns, num_terms)."""
    return torch.isneginf(support.tables).reshape(-1, support.hypergraph.num_terms).unique(dim=0).cpu().numpy()


def _members(component: _Component) -> tuple[int, ...]:
    return tuple(sorted({v for part in component for v in part.members}))


def _components(support: LogLinearEnergy, patterns: Flags) -> Iterator[_Component]:
    """Distinct components of the first patterns."""
    graph, seen = support.hypergraph, set[_Component]()
    pieces = list(zip(graph.edge_indices, graph.term_slices.values(), graph.edge_shapes, strict=True))
    for row in patterns[:_MOST_PATTERNS]:
        parts = {members: row[where].reshape(shape) for members, where, shape in pieces if row[where].any()}
        for component in _joined(parts):
            if component not in seen:
                seen.add(component)
                yield component


def _left_of(component: _Component, blocks: Blocks) -> list[_Component]:
    """Components of one, less the variables that do not matter to chains with these blocks."""
    parts = {part.members: part.table for part in component}
    # A variable goes where every move of the others leaves it a level that is possible before and after: chains can
    # then make the moves of the others at any level of it. What others may not be, as it leaves it none, is excluded.
    cards = {v: n for members, table in parts.items() for v, n in zip(members, table.shape, strict=True)}
    touching: dict[int, set[tuple[int, ...]]] = {v: set() for v in cards}
    for members in parts:
        for v in members:
            touching[v].add(members)
    drawn_with: dict[int, list[tuple[int, ...]]] = {v: [b for b in blocks if v in b] for v in cards}
    waiting = deque(sorted(cards, key=lambda v: (len(touching[v]), v)))
    while waiting:
        v = waiting.popleft()
        others = tuple(sorted({u for members in touching[v] for u in members} - {v}))
        shape = (*(cards[u] for u in others), cards[v])
        if not touching[v] or math.prod(shape) > _MOST_LOCAL:
            continue
        levels = np.ones(shape, dtype=bool)
        for members in touching[v]:
            levels &= ~_spread(parts[members], members, (*others, v), shape)
        is_left = np.asarray(levels.any(-1))
        is_state = is_left.copy()
        for members in {members for u in others for members in touching[u] if set(members) <= set(others)}:
            is_state &= ~_spread(parts[members], members, others, shape[:-1])
        moves = {tuple(u in block for u in others) for u in others for block in drawn_with[u] if v not in block}
        if not is_left.any() or not all(_is_followed(levels, is_state, move) for move in moves):
            continue
        for members in list(touching[v]):
            del parts[members]
            for u in members:
                touching[u].remove(members)
        if not is_left.all():
            parts[others] = ~is_left | parts.get(others, np.zeros(1, dtype=bool))
            for u in others:
                touching[u].add(others)
        waiting.extend(u for u in others if u not in waiting)
    return _joined(parts)


def _spread(table: Flags, members: Sequence[int], axes: Sequence[int], shape: Sequence[int]) -> Flags:
    """A table over sorted members along the axes of more variables."""
    order = sorted(range(len(members)), key=lambda k: axes.index(members[k]))
    sizes = [shape[k] if axes[k] in members else 1 for k in range(len(axes))]
    return table.transpose(order).reshape(sizes)


def _is_followed(levels: Flags, is_state: Flags, move: Sequence[bool]) -> bool:
    """Whether any two states (*others) that differ in what moves share a level of a variable, (*others, levels)."""
    moving, still = np.flatnonzero(move).tolist(), np.flatnonzero(~np.array(move)).tolist()
    size = math.prod(levels.shape[k] for k in moving)
    if levels.size * size > _MOST_PAIRS:
        return False
    several = levels.transpose([*still, *moving, len(move)]).reshape(-1, size, levels.shape[-1]).astype(np.float32)
    flags = is_state.transpose([*still, *moving]).reshape(-1, size)
    shares = several @ several.swapaxes(1, 2) > 0
    return bool((shares | ~flags[:, :, None] | ~flags[:, None, :]).all())


def _joined(parts: dict[tuple[int, ...], Flags]) -> list[_Component]:
    """Parts that share variables together."""
    graph: nx.Graph[int] = nx.Graph()
    for members in parts:
        nx.add_path(graph, members)
    label = {v: k for k, joined in enumerate(nx.connected_components(graph)) for v in joined}
    components = dict[int, list[_Excluding]]()
    for members, table in parts.items():
        components.setdefault(label[members[0]], []).append(_Excluding(members, table.tobytes(), table.shape))
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
    graph = sparse.coo_matrix((np.ones(len(rows), dtype=bool), (rows, columns)), shape=(count, count))
    label = sparse.csgraph.connected_components(graph, directed=False)[1][: len(states)]
    apart = np.flatnonzero(label != label[0]) if len(label) else label
    if not len(apart):
        return "proved", None
    return "refuted", states[[0, apart[0]]]


@lru_cache(maxsize=256)
def _listed(component: _Component, members: tuple[int, ...]) -> Codes | None:
    """The possible states of a component (states, members); None of too many."""
    cards = {v: n for part in component for v, n in zip(part.members, part.shape, strict=True)}
    return grown_states({part.members: part.table for part in component}, members, cards, _MOST_STATES)
