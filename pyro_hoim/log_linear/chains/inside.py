"""Where chains of a model with impossible states begin: states of a product law restricted to the possible ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from ...core.model import Chains
from ...errors import out_of_reach
from ...runs.schedule import MAX_BLOCK_STATES, Blocks
from ..energy import LogLinearEnergy
from ..impossible import ProductInside, walled

_CELLS = 2**24  # of states that are drawn at once
_ROUNDS, _SWEEPS = 10, 200  # of a search where no exact method is within reach
_LOWEST = -3.5  # decimal logarithm of the inverse temperature at which a search begins


@dataclass(frozen=True)
class InsideChains:
    """What chains (groups, chains) may not enter: combinations of free variables, given the values of clamped ones.

    Attributes:
        law: reference laws restricted to the support, (rows,): one for every group, or for every group and combination
            of clamped values.
        row: that of every chain, (groups, chains).
        columns: schema positions of the variables of ``law.names``.
    """

    law: ProductInside
    row: torch.Tensor
    columns: list[int]

    @classmethod
    def of(
        cls,
        support: LogLinearEnergy,
        reference: torch.Tensor,
        clamped: Mapping[int, torch.Tensor | int],
        lead: tuple[int, int],
    ) -> InsideChains | None:
        """From models (groups,) of zeros and minus infinities; None where clamped values leave no combination out.

        Args:
            support: the models.
            reference: log weights of the reference laws, (groups or 1, levels).
            clamped: codes of fixed variables by position, numbers or tensors (groups, chains).
            lead: groups and chains.

        Raises:
            InputError: clamped values that are impossible together.
        """
        domain, (groups, chains) = support.domain, lead
        inside = {v for members in support.hypergraph.edge_indices for v in members}
        fixed = {domain.names[v]: code for v, code in clamped.items() if v in inside}
        row = torch.arange(groups, device=support.device)[:, None].expand(lead)
        law: ProductInside | None = ProductInside(support, reference.expand(groups, -1))
        if fixed:
            # One row for every group and combination of clamped values.
            columns = [row, *(torch.as_tensor(code, device=row.device).expand(lead) for code in fixed.values())]
            distinct, index = torch.stack(columns, -1).reshape(groups * chains, -1).unique(dim=0, return_inverse=True)
            of_rows = LogLinearEnergy._trusted(support.hypergraph, support.tables[distinct[:, 0]])
            law = ProductInside(of_rows, reference.expand(groups, -1)[distinct[:, 0]])
            law, row = law.condition(dict(zip(fixed, distinct[:, 1:].unbind(1), strict=True))), index.reshape(lead)
        return None if law is None else cls(law, row, list(domain.indices(law.names)))

    def draw(self, seed: int, chains_of: Callable[..., Chains]) -> torch.Tensor:
        """States (groups, chains, columns) of the laws of the chains; ``chains_of`` makes those of a search.

        They are exact draws where an exact method is within reach; else what a search finds that leads chains through
        walls which rise. InputError where no state is possible, IntractableError where the search ends without one.
        """
        if not self.law.is_exact:
            return self._searched(seed, chains_of)
        random = torch.Generator(self.row.device).manual_seed(seed)
        flat = self.row.reshape(-1)
        states = flat.new_zeros(len(flat), len(self.columns))
        counts = flat.bincount(minlength=len(self.law.model.tables))
        # Rows that as many chains share are drawn together.
        for number in counts.unique().tolist():
            rows = (counts == number).nonzero().squeeze(1)
            most = min(self.law.num_at_once, max(1, _CELLS // max(1, number * len(self.columns))))
            for part in rows.split(most) if number else ():
                drawn = self.law.at(part).sample(number, random)
                where = torch.isin(flat, part).nonzero().squeeze(1)
                where = where[flat[where].argsort(stable=True)]
                states[where] = drawn.reshape(-1, len(self.columns))
        return states.reshape(*self.row.shape, -1)

    def _searched(self, seed: int, chains_of: Callable[..., Chains]) -> torch.Tensor:
        """The same by chains of the laws whose impossible states are improbable, and ever more so."""
        model = self.law.model
        most = int(self.row.reshape(-1).bincount().max())
        chains: Any = chains_of(walled(model), most, seed=seed)
        path = torch.logspace(_LOWEST, 0, _SWEEPS, dtype=torch.float64).clamp(max=1)
        chains.anneal(torch.cat([path.new_zeros(1), path]))
        for _ in range(_ROUNDS):
            states = chains.states
            energies = LogLinearEnergy._trusted(model.hypergraph, model.tables[:, None]).energy(states, validate=False)
            is_inside = torch.isfinite(energies)
            if bool(is_inside.any(-1).all()):
                break
            chains.sweep(_SWEEPS)
        else:
            problem = (
                f"no possible state was found in {(_ROUNDS + 1) * _SWEEPS} sweeps of {most} chains, and exact methods "
                "are out of reach for the combinations that are impossible"
            )
            raise out_of_reach("model", problem, "give first states (init=), or clamp some variables")
        # Chains that are still outside begin where others are.
        inside = (~is_inside).sort(dim=-1, stable=True).indices
        turn = torch.arange(most, device=inside.device) % is_inside.sum(-1, keepdim=True)
        index = torch.where(is_inside, torch.arange(most, device=inside.device), inside.gather(-1, turn))
        states = states.gather(-2, index[..., None].expand_as(states))
        # As many of each row as it has chains.
        flat = self.row.reshape(-1)
        order = flat.argsort(stable=True)
        counts = flat.bincount(minlength=len(states))
        number = torch.arange(len(flat), device=flat.device) - (counts.cumsum(0) - counts)[flat[order]]
        result = flat.new_zeros(len(flat), states.shape[-1])
        result[order] = states[flat[order], number]
        return result.reshape(*self.row.shape, -1)


# The joint states of blocks that are possible, where others are not: blocks of few states are drawn from a list.

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
