"""The joint states of blocks that are possible, where others are not: blocks of few states are drawn from a list."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from ...runs.schedule import MAX_BLOCK_STATES, Blocks
from ..energy import LogLinearEnergy

Flags = NDArray[np.bool_]
Codes = NDArray[np.int64]
States = tuple[tuple[int, ...], ...]
"""Codes of the members of a block in each of its possible joint states, the last member changing fastest."""

Lists = tuple[States | None, ...]
"""Those of every block, None where all joint states are possible or too many are."""

_MOST_ROWS = 2**18  # on the way to a list of possible states


def grown_states(
    excluded: Mapping[tuple[int, ...], Flags], members: Sequence[int], cards: Mapping[int, int], most: int
) -> Codes | None:
    """Joint states (states, members) that no table excludes, grown variable by variable; None of more than ``most``.

    Args:
        excluded: which combinations are impossible, by the variables that they are of.
        members: the variables, in the order of the columns.
        cards: numbers of levels.
        most: of the states in the end; on the way there may be 2^18 rows.
    """
    touching = {v: [part for part in excluded if v in part] for v in members}
    states, known = np.zeros((1, 0), dtype=np.int64), dict[int, int]()  # and their columns

    def gain(v: int) -> tuple[int, int]:
        """Sets that are known as a whole with a variable, and sets of which a part is known."""
        unknown = [sum(u not in known for u in part) for part in touching[v]]
        pairs = zip(unknown, touching[v], strict=True)
        return unknown.count(1), sum(number < len(part) for number, part in pairs)

    while len(known) < len(members):
        v = max((v for v in members if v not in known), key=gain)
        if len(states) * cards[v] > _MOST_ROWS:
            return None
        known[v] = len(known)
        states = np.column_stack([np.repeat(states, cards[v], 0), np.tile(np.arange(cards[v]), len(states))])
        for part in touching[v]:
            if all(u in known for u in part):
                states = states[~excluded[part][tuple(states[:, known[u]] for u in part)]]
    return states[:, [known[v] for v in members]] if len(states) <= most else None


class Listing:
    """Lists of the possible joint states of blocks of models (B,) of zeros and minus infinities.

    A state is left out where it is impossible whatever the other variables are, in every model of the batch. What
    other variables or single models exclude is up to the weights of the states.
    """

    def __init__(self, support: LogLinearEnergy) -> None:
        graph = support.hypergraph
        always = torch.isneginf(support.tables).reshape(-1, graph.num_terms).all(0).cpu().numpy()
        pieces = zip(graph.edge_indices, graph.term_slices.values(), graph.edge_shapes, strict=True)
        self._tables = {m: always[where].reshape(shape) for m, where, shape in pieces if always[where].any()}
        self._domain = support.domain
        self._cards = dict(enumerate(self._domain.cardinalities))
        self._states_of = lru_cache(4096)(self._states)

    def states(self, names: Sequence[str]) -> States | None:
        """The possible states of a block; None where all or none are, or more than 4,096 or too many on the way."""
        return self._states_of(tuple(names))

    def has(self, names: Sequence[str]) -> bool:
        """Whether there is a list of the possible states of a block."""
        return self.states(names) is not None

    def groups(self) -> list[tuple[str, ...]]:
        """Sets of variables that excluded combinations join, of those of which there is a list."""
        pairs = [(members[0], v) for members in self._tables for v in members]
        first, second = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        size = len(self._domain)
        graph = sparse.coo_matrix((np.ones(len(pairs), dtype=bool), (first, second)), shape=(size, size))
        label = sparse.csgraph.connected_components(graph, directed=False)[1]
        joined = dict[int, list[str]]()
        for v in sorted({v for members in self._tables for v in members}):
            joined.setdefault(int(label[v]), []).append(self._domain.names[v])
        return [tuple(group) for group in joined.values() if self.has(group)]

    def _states(self, names: tuple[str, ...]) -> States | None:
        if len(names) < 2:  # variables have tables of their levels
            return None
        members = self._domain.indices(names)
        block = set(members)
        # What is left of the excluded combinations once the other variables may be anything.
        excluded = dict[tuple[int, ...], Flags]()
        for table_members, table in self._tables.items():
            inside = tuple(v for v in table_members if v in block)
            if not inside:
                continue
            flags = table.all(tuple(k for k, v in enumerate(table_members) if v not in block))
            if flags.any():
                excluded[inside] = flags | excluded.get(inside, np.zeros(1, dtype=bool))
        if not excluded:
            return None
        codes = grown_states(excluded, members, self._cards, MAX_BLOCK_STATES)
        if codes is None or len(codes) in (0, math.prod(self._cards[v] for v in members)):
            return None
        return tuple(map(tuple, codes[np.lexsort(codes.T[::-1])].tolist()))


def listed_states(listing: Listing | None, blocks: Blocks, names: Sequence[str]) -> Lists | None:
    """The lists of possible states of blocks of schema positions, None of those without; None if there is no list."""
    if listing is None:
        return None
    lists = tuple(listing.states([names[v] for v in block]) for block in blocks)
    return None if all(states is None for states in lists) else lists
