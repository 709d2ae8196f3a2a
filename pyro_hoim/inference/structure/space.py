"""Spaces of collections of interactions: candidates, membership, moves to neighbours, lists of all members.

A member is written as a vector of indicators over all candidates, or as a *mask*: an integer whose bit j is the
indicator of free candidate j. Main effects always belong to a collection and are no candidates.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import cached_property
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from ...errors import (
    check_choice,
    check_type,
    check_whole,
    conflict,
    is_real,
    none_received,
    other_domain,
    out_of_range,
    out_of_reach,
    refused,
    size_text,
)
from ...schema import Domain
from ...structure.hypergraph import Edge, InteractionHypergraph

SpaceName = Literal["hierarchical", "graphical", "decomposable", "pairwise"]
Flags = NDArray[np.bool_]

MAX_LISTED = 2**16
"""Largest number of collections (of graphs, for graphical and decomposable ones) that are listed."""
_MAX_CANDIDATES = 20_000
_MAX_VARIABLES = 62  # sets of variables are the bits of one signed integer
_HIERARCHICAL = {6: 7_785_062, 7: 2_414_627_396_434}
"""Hierarchical collections of any order with all main effects of so many variables (sequence A006126 of the OEIS)."""


class StructureSpace:
    r"""The collections that a structure may be (see :class:`~.prior.StructurePrior`), of 2 to ``max_order`` variables.

    A graphical or decomposable member is fixed by its pairs. *Free* candidates are those that may be chosen: the pairs
    in these two spaces, all candidates in the others. A birth or death changes one free candidate; a swap is a death
    and a birth. What else has to change with it, changes.

    Raises:
        InputError: numbers out of range, or options that exclude each other.
        IntractableError: more than 20,000 candidates.
    """

    def __init__(
        self,
        domain: Domain,
        *,
        max_order: int | None = None,
        heredity: float = 1.0,
        space: SpaceName = "hierarchical",
    ) -> None:
        check_type(domain, Domain, "domain")
        check_choice(space, get_args(SpaceName), "space")
        cards = domain.cardinalities  # refuses variables that are not finite
        if not cards:
            raise none_received("domain", "at least one variable")
        if space != "hierarchical" and heredity != 1:
            raise conflict("heredity", f"space={space!r} has rules of its own", "leave it out, or use 'hierarchical'")
        if not is_real(heredity) or not 0 <= heredity <= 1:
            raise out_of_range("heredity", "a number from 0 to 1", heredity)
        # The order is at least that of pairs, and in a space of pairs no more.
        least = min(2, len(cards))
        if max_order is None:
            max_order = least if space == "pairwise" else len(cards)
        max_order = check_whole(max_order, "max_order", least, len(cards))
        if space == "pairwise" and max_order > 2:
            raise conflict("max_order", f"space='pairwise' has pairs alone, received {max_order}", "use 'hierarchical'")
        if len(cards) > _MAX_VARIABLES and space in ("graphical", "decomposable"):
            problem = f"space={space!r} takes up to {_MAX_VARIABLES} variables, received {len(cards)}"
            raise out_of_reach("domain", problem, "use space='pairwise'")
        # Candidates are counted before they are listed.
        num = sum(math.comb(len(cards), k) for k in range(2, max_order + 1))
        if num > _MAX_CANDIDATES:
            problem = f"{size_text(num, 'candidates')}, the limit is {_MAX_CANDIDATES}"
            raise out_of_reach("max_order", problem, "lower max_order or take fewer variables")
        self.domain, self.max_order, self.heredity, self.name = domain, max_order, float(heredity), space
        orders = range(2, max_order + 1)
        self.candidate_indices = tuple(e for k in orders for e in itertools.combinations(range(len(cards)), k))
        self.candidates: tuple[Edge, ...] = tuple(tuple(domain.names[i] for i in e) for e in self.candidate_indices)
        self.position = {e: j for j, e in enumerate(self.candidate_indices)}
        self.num_pairs = math.comb(len(cards), 2)

    def __repr__(self) -> str:
        return f"StructureSpace({self.name}, {len(self.domain)} variables, {len(self.candidates)} candidates)"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StructureSpace):
            return NotImplemented
        return self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key[1:])

    @property
    def _key(self) -> tuple[object, ...]:
        return self.domain, self.max_order, self.heredity, self.name

    # Parts

    @property
    def is_graphical(self) -> bool:
        """Whether pairs fix the rest."""
        return self.name in ("graphical", "decomposable")

    @property
    def is_free(self) -> bool:
        """Whether any vector of indicators is a member."""
        return not self.is_graphical and not any(self.needed)

    @cached_property
    def largest(self) -> InteractionHypergraph:
        """Main effects and all candidates: the collection in which every member is a mask."""
        singles = ((name,) for name in self.domain.names)
        return InteractionHypergraph(self.domain, itertools.chain(singles, self.candidates))

    @property
    def num_free(self) -> int:
        """Number of free candidates, the first ones."""
        return self.num_pairs if self.is_graphical else len(self.candidates)

    @cached_property
    def facets(self) -> tuple[int, ...]:
        """Bits of the facets of every candidate; none for pairs, whose facets are always there."""
        return tuple(
            sum(1 << self.position[f] for f in itertools.combinations(e, len(e) - 1)) if len(e) > 2 else 0
            for e in self.candidate_indices
        )

    @cached_property
    def needed(self) -> tuple[int, ...]:
        """How many facets every candidate needs."""
        return tuple(math.ceil(self.heredity * len(e) - 1e-9) if len(e) > 2 else 0 for e in self.candidate_indices)

    @cached_property
    def _above(self) -> tuple[tuple[int, ...], ...]:
        """Candidates with one variable more than each, of which it is a facet."""
        supersets: list[list[int]] = [[] for _ in self.candidates]
        for j, facets in enumerate(self.facets):
            for f in bits_of(facets):
                supersets[f].append(j)
        return tuple(map(tuple, supersets))

    @cached_property
    def pair_bits(self) -> tuple[int, ...]:
        """Bits of the pairs inside every candidate."""
        return tuple(sum(1 << self.position[p] for p in itertools.combinations(e, 2)) for e in self.candidate_indices)

    # Members in two writings

    def flags_of(self, masks: Sequence[int]) -> Flags:
        """Indicators (M, candidates) of masks."""
        return self.completed(self.unpacked(masks))

    def unpacked(self, masks: Sequence[int]) -> Flags:
        """Indicators (M, num_free) of the free candidates."""
        num_bytes = (self.num_free + 7) // 8
        packed = np.frombuffer(b"".join(mask.to_bytes(num_bytes, "little") for mask in masks), dtype=np.uint8)
        array = packed.reshape(len(masks), num_bytes)
        return np.unpackbits(array, axis=1, bitorder="little", count=self.num_free).astype(bool)

    def masks_of(self, flags: Flags) -> list[int]:
        """Masks of indicators (M, candidates)."""
        packed = np.packbits(flags[:, : self.num_free], axis=1, bitorder="little")
        return [int.from_bytes(row.tobytes(), "little") for row in packed]

    def completed(self, free: Flags) -> Flags:
        """Indicators of all candidates from those of the free ones (M, num_free): cliques follow from pairs."""
        if not self.is_graphical:
            return free
        whole = np.empty((len(free), len(self.candidates)), dtype=np.bool_)
        whole[:, : self.num_pairs] = free
        for j in range(self.num_pairs, len(self.candidates)):
            whole[:, j] = free[:, bits_of(self.pair_bits[j])].all(1)
        return whole

    def edges_of(self, mask: int) -> list[Edge]:
        """The interactions of a member, main effects left out."""
        if not self.is_graphical:
            return [self.candidates[j] for j in bits_of(mask)]
        return [e for e, inner in zip(self.candidates, self.pair_bits, strict=True) if mask & inner == inner]

    def hypergraph_of(self, mask: int) -> InteractionHypergraph:
        """The collection of a member, main effects included."""
        edges = [*((name,) for name in self.domain.names), *self.edges_of(mask)]
        return InteractionHypergraph(self.domain, edges, hierarchical=self.heredity == 1)

    def mask_of(self, hypergraph: InteractionHypergraph) -> int:
        """The mask of a collection; InputError for one of another domain or outside the space."""
        check_type(hypergraph, InteractionHypergraph, "hypergraph")
        if hypergraph.domain != self.domain:
            raise other_domain("hypergraph", "a collection over the same domain", received="one over another domain")
        # Main effects are always there; what is larger has to be a member.
        larger = [e for e in hypergraph.edge_indices if len(e) > 1]
        if len(hypergraph) - len(larger) < len(self.domain):
            raise refused("hypergraph", "a main effect is missing", "add all single variables", "missing-part")
        flags = np.zeros((1, len(self.candidates)), dtype=np.bool_)
        for e in larger:
            if e not in self.position:
                raise out_of_range("hypergraph", f"interactions of up to {self.max_order} variables", received=len(e))
            flags[0, self.position[e]] = True
        if not bool(self.are_members(flags).all()):
            raise refused("hypergraph", f"it is not in the space {self.name!r}", code="impossible")
        return self.masks_of(flags)[0]

    # Membership

    def contains(self, mask: int) -> bool:
        """Whether a mask is that of a member."""
        if mask < 0 or mask >> self.num_free:
            return False
        if self.is_graphical:
            return bool(self._allows(self.unpacked([mask]))[0])
        return all((mask & self.facets[j]).bit_count() >= self.needed[j] for j in bits_of(mask))

    def are_members(self, flags: Flags) -> Flags:
        """Which vectors of indicators (M, candidates) are members, (M,)."""
        if self.is_graphical:
            free = flags[:, : self.num_free]
            return (self.completed(free) == flags).all(1) & self._allows(free)
        inside = np.ones(len(flags), dtype=bool)
        for j in range(self.num_pairs, len(self.candidates)):
            present = flags[:, bits_of(self.facets[j])].sum(1)
            inside &= ~flags[:, j] | (present >= self.needed[j])
        return inside

    def _allows(self, pairs: Flags) -> Flags:
        """Which graphs (M, num_pairs) have no clique above ``max_order`` and, where asked for, are chordal."""
        if self.name == "decomposable":
            largest = self.eliminate(pairs)[0]
            return (largest >= 0) & (largest <= self.max_order)
        allowed = np.ones(len(pairs), dtype=bool)
        for e in itertools.combinations(range(len(self.domain)), self.max_order + 1):
            allowed &= ~pairs[:, [self.position[p] for p in itertools.combinations(e, 2)]].all(1)
        return allowed

    def eliminate(self, pairs: Flags) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        r"""Largest cliques of chordal graphs (M,), -1 for others, and their sets :math:`v \cup \mathrm{later}(v)`.

        With vertices taken away one by one, each while its remaining neighbours are a clique, a product over cliques
        divided by that over separators is the product over v of :math:`f(v \cup \mathrm{later}(v)) /
        f(\mathrm{later}(v))`. Sets of variables are integers, (M, d); pairs are (M, num_pairs).
        """
        from ._kernels import eliminate_graphs

        closed = np.empty((len(pairs), len(self.domain)), dtype=np.int64)
        largest = eliminate_graphs(np.ascontiguousarray(pairs), self._ends, len(self.domain), closed)
        return largest, closed

    @cached_property
    def _ends(self) -> NDArray[np.int64]:
        return np.array(self.candidate_indices[: self.num_pairs], dtype=np.int64).reshape(-1, 2)

    # Neighbours

    def moves(self, mask: int) -> tuple[list[int], list[int]]:
        """Members that differ by a birth, and by a death, of one free candidate; ascending by that candidate."""
        if self.is_graphical:
            changed = np.repeat(self.unpacked([mask]), self.num_free, 0)
            changed[np.diag_indices(self.num_free)] ^= True
            inside = self._allows(changed)
            possible = [j for j in range(self.num_free) if inside[j]]
        else:
            possible = [j for j in range(self.num_free) if self.may_flip(mask, j)]
        births = [mask | 1 << j for j in possible if not mask >> j & 1]
        return births, [mask ^ 1 << j for j in possible if mask >> j & 1]

    def may_flip(self, mask: int, j: int) -> bool:
        """Whether a member with the indicator of free candidate j turned round is a member."""
        if self.is_graphical:
            return self.contains(mask ^ 1 << j)
        # A birth needs its own facets, a death must leave enough to those above.
        if not mask >> j & 1:
            return (mask & self.facets[j]).bit_count() >= self.needed[j]
        rest = mask ^ 1 << j
        return all(not mask >> k & 1 or (rest & self.facets[k]).bit_count() >= self.needed[k] for k in self._above[j])

    # Lists

    @cached_property
    def members(self) -> Flags | None:
        """Indicators of all members (M, candidates), ascending by mask; None beyond :data:`MAX_LISTED`."""
        # Candidate by candidate: every member so far with it absent, and present where its facets allow that.
        rows = np.zeros((1, 0), dtype=bool)
        for j in range(self.num_free):
            grown = rows
            if not self.is_graphical:
                grown = rows[rows[:, bits_of(self.facets[j])].sum(1) >= self.needed[j]]
            if len(rows) + len(grown) > MAX_LISTED:
                return None
            absent, present = np.zeros((len(rows), 1), dtype=bool), np.ones((len(grown), 1), dtype=bool)
            rows = np.concatenate([np.hstack([rows, absent]), np.hstack([grown, present])])
        if self.is_graphical:
            rows = self.completed(rows[self._allows(rows)])
        rows.flags.writeable = False
        return rows

    @property
    def size_text(self) -> str:
        """How many members there are, in words."""
        if self.members is not None:
            return str(len(self.members))
        if self.is_graphical:
            return f"those of {size_text(2**self.num_pairs)} graphs that qualify"
        if self.max_order == 2:
            return size_text(2**self.num_pairs)
        is_whole = self.max_order == len(self.domain) and self.heredity == 1
        known = _HIERARCHICAL.get(len(self.domain)) if is_whole else None
        return f"more than {MAX_LISTED}" if known is None else size_text(known)


def bits_of(mask: int) -> list[int]:
    """Positions of the bits that are set, ascending."""
    return [j for j in range(mask.bit_length()) if mask >> j & 1]
