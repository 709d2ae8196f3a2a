"""States of probability zero: structural zeros, and the combinations that an infinite estimate excludes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import compress

import numpy as np
import torch

from ..checks import check_exact_shape, is_hidden
from ..errors import unexpected, wrong_type
from ..schema import Domain
from ..structure.hypergraph import Edge, InteractionHypergraph
from .energy import LogLinearEnergy

__all__ = ["ImpossibleStates"]

_WALL = 200.0


@dataclass(frozen=True, eq=False)
class ImpossibleStates:
    r"""Combinations of levels that no state may hold; a state that holds one of them has probability zero.

    In an energy these are entries of minus infinity, see :meth:`applied`, which exact backends leave out of their sums.

    Attributes:
        structure: the sets of variables that have such combinations.
        excluded: which entries of their tables these are, booleans (num_terms,) in the layout of
            ``structure.term_slices``.

    Raises:
        InputError: another shape of ``excluded``.
        InputTypeError: ``excluded`` is no tensor of booleans.
    """

    structure: InteractionHypergraph
    excluded: torch.Tensor

    def __post_init__(self) -> None:
        if not isinstance(self.excluded, torch.Tensor) or self.excluded.dtype != torch.bool:
            raise wrong_type("excluded", "a tensor of booleans", self.excluded)
        check_exact_shape(self.excluded, (self.structure.num_terms,), "excluded")

    @classmethod
    def _of_tables(cls, domain: Domain, tables: Mapping[Edge, np.ndarray]) -> ImpossibleStates | None:
        """From a mask for every set of variables; None where nothing is excluded."""
        if not tables:
            return None
        structure = InteractionHypergraph(domain, tables, hierarchical=False)
        return cls(structure, torch.from_numpy(np.concatenate([tables[edge].ravel() for edge in structure.edges])))

    @classmethod
    def of_cells(cls, hypergraph: InteractionHypergraph, cells: np.ndarray) -> ImpossibleStates | None:
        """From a mask of impossible cells, (num_states,) or of the table's shape; None where all are possible.

        The mask is taken apart into combinations of the model's interactions, so that these stay all that it has, and
        what is left into combinations of as few further variables as hold it.
        """
        domain = hypergraph.domain
        cells = cells.reshape(domain.cardinalities)
        left, tables = cells.copy(), dict[Edge, np.ndarray]()

        def empty(members: Iterable[int]) -> np.ndarray:
            """Combinations of some variables all of whose cells are impossible; axes of length 1 for the others."""
            others = tuple(set(range(cells.ndim)) - set(members))
            return np.asarray(cells.all(axis=others, keepdims=True))

        # Combinations of interactions, the small ones first.
        for edge, members in zip(hypergraph.edges, hypergraph.edge_indices, strict=True):
            empty_cells = empty(members)
            if (left & empty_cells).any():
                tables[edge] = empty_cells
                left &= ~empty_cells
        # What is left, by as few variables as hold it.
        if left.any():
            members = list(range(cells.ndim))
            for variable in range(cells.ndim):
                fewer = [other for other in members if other != variable]
                if not (left & ~empty(fewer)).any():
                    members = fewer
            tables[tuple(domain.names[i] for i in members)] = empty(members)
        return cls._of_tables(domain, tables)

    @classmethod
    def of_combinations(cls, domain: Domain, combinations: Iterable[Mapping[str, int]]) -> ImpossibleStates | None:
        """From codes of some variables by name; None where there is no combination."""
        tables = dict[Edge, np.ndarray]()
        for codes in combinations:
            edge = tuple(sorted(codes, key=domain.index))
            if edge not in tables:
                tables[edge] = np.zeros([domain[name].cardinality for name in edge], dtype=bool)
            tables[edge][tuple(codes[name] for name in edge)] = True
        return cls._of_tables(domain, tables)

    @classmethod
    def of_energy(cls, energy: LogLinearEnergy) -> ImpossibleStates | None:
        """The entries of minus infinity of one model's tables; None where there is none, and of a batch."""
        if energy.batch_shape or is_hidden(energy.tables):
            return None
        lost = torch.isneginf(energy.tables)
        if not bool(lost.any()):
            return None
        graph = energy.hypergraph
        parts = [lost[where] for where in graph.term_slices.values()]
        is_held = [bool(part.any()) for part in parts]
        structure = InteractionHypergraph(graph.domain, compress(graph.edges, is_held), hierarchical=False)
        return cls(structure, torch.cat(list(compress(parts, is_held))))

    def applied(self, energy: LogLinearEnergy) -> LogLinearEnergy:
        """The model without these states: entries of minus infinity, in tables of their own where it has none."""
        graph = energy.hypergraph
        added = [edge for edge in self.structure.edges if edge not in graph]
        if added:
            graph = graph.add_edges(added, hierarchical=False)
        tables = energy.tables.new_zeros(*energy.batch_shape, graph.num_terms)
        for edge, where in energy.hypergraph.term_slices.items():
            tables[..., graph.term_slices[edge]] = energy.tables[..., where]
        for edge, where in self.structure.term_slices.items():
            tables[..., graph.term_slices[edge]].masked_fill_(self.excluded[where].to(tables.device), -math.inf)
        return LogLinearEnergy._trusted(graph, tables)


def check_possible(energy: LogLinearEnergy, argument: str) -> None:
    """Raise :class:`InputError` for a model with impossible states, where these cannot be dealt with."""
    if bool(torch.isneginf(energy.tables).any()):
        hint = "LogLinearEnergy(result.hypergraph, result.tables) has finite tables, in which they are improbable"
        raise unexpected(argument, "a model without impossible states", hint=hint, received="-inf", code="impossible")


def walled(energy: LogLinearEnergy) -> LogLinearEnergy:
    """The same with impossible states made so improbable that chains, which need finite tables, do not enter them."""
    lost = torch.isneginf(energy.tables)
    if not bool(lost.any()):
        return energy
    return LogLinearEnergy._trusted(energy.hypergraph, energy.tables.masked_fill(lost, -_WALL))
