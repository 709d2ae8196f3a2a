"""Which interactions may be added to a collection: heredity, kept up to date as the collection changes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ...core.prediction import check_count
from ...errors import is_real, out_of_range, refused, unexpected, wrong_type
from ...schema import Domain
from ...structure.hypergraph import Edge

Heredity = float | Literal["semi-strong"]
Ints = NDArray[Any]
_ROUNDING = 1e-9  # a threshold such as 2/3 written with few digits still admits two of three


class CandidatePool:
    r"""The sets of variables that heredity admits beside a collection, counted up as the collection grows.

    .. math:: \omega(S) = |\{i \in S : S - i \in \mathcal I \cup \{\emptyset\}\}|, \qquad
        S \text{ is admitted when } \omega(S) / |S| \ge \tau

    With ``"semi-strong"`` :math:`\omega(S) \ge |S| - 1` is asked instead. Every admitted set has a facet in the
    collection, so a change of one edge costs O(d). The paper's algorithm 2 writes ">", which nothing passes at 100 %.

    Args:
        domain: the variables.
        heredity: :math:`\tau` in (0, 1], or ``"semi-strong"``; None only together with ``allowed``.
        max_order: largest set admitted; default the number of variables.
        allowed: admit these sets only, such as known pathways.

    Raises:
        InputError: a threshold outside (0, 1], another word, an order below 1, or no heredity and no allowed sets.
        InputTypeError: an order that is not a whole number.
        UnknownNameError: an allowed set with an unknown variable.

    References:
        Paper 1, equations (8) and (23), algorithm 2, NEXTAVAILABLEINTERACTIONS.

    Example:
        >>> pool = CandidatePool(Domain.from_cardinalities({"a": 2, "b": 2, "c": 2}), heredity=0.3)
        >>> pool.add([("a",), ("b",), ("a", "b")])
        >>> pool.available()
        (('c',), ('a', 'c'), ('b', 'c'), ('a', 'b', 'c'))
    """

    def __init__(
        self,
        domain: Domain,
        heredity: Heredity | None = 0.3,
        max_order: int | None = None,
        allowed: Iterable[Sequence[str]] | None = None,
    ) -> None:
        self.domain = domain
        self._threshold: Heredity | None = checked_heredity(heredity, allowed is not None)
        self._largest = len(domain) if max_order is None else max_order
        if max_order is not None:
            check_count(max_order, "max_order")
        cards = np.array(domain.cardinalities, dtype=np.int64)
        self._positions = np.flatnonzero(cards > 1)
        self._present: set[tuple[int, ...]] = set()
        self._facets: dict[int, tuple[Ints, Ints]] = {}
        self._allowed = None if allowed is None else _index_sets(domain, allowed)
        self._count([()])

    def add(self, edges: Iterable[Sequence[str]]) -> None:
        """Take note of edges that the collection now has; those known already change nothing."""
        new = _index_sets(self.domain, edges) - self._present
        self._present |= new
        for size in sorted({len(edge) for edge in new}):
            self._count([edge for edge in new if len(edge) == size])

    def _count(self, facets: Sequence[tuple[int, ...]]) -> None:
        """One more present facet, all of one size, of every set that is one variable larger."""
        size = len(facets[0])
        usable = set(self._positions.tolist())
        facets = [facet for facet in facets if usable.issuperset(facet)]
        if size >= self._largest or not facets:
            return
        known, counts = self._facets.get(size + 1, (np.zeros((0, size + 1), dtype=np.int64), np.zeros(0, np.int64)))
        inside = np.array(facets, dtype=np.int64).reshape(len(facets), size)
        others = np.broadcast_to(self._positions, (len(facets), len(self._positions)))
        is_new = ~(inside[:, :, None] == others[:, None]).any(1)
        rows = np.broadcast_to(np.arange(len(facets))[:, None], others.shape)[is_new]
        larger = np.sort(np.concatenate([inside[rows], others[is_new][:, None]], axis=1), axis=1)
        if self._allowed is not None:
            is_allowed = [tuple(edge) in self._allowed for edge in larger.tolist()]
            larger = larger[np.array(is_allowed, dtype=bool)]
        sets, inverse = distinct_rows(np.concatenate([known, larger]))
        weights = np.concatenate([counts, np.ones(len(larger), dtype=np.int64)])
        self._facets[size + 1] = sets, np.bincount(inverse, weights, len(sets)).astype(np.int64)

    def available(self) -> tuple[Edge, ...]:
        """Admitted sets that are not in the collection, in the order of edges: by size, then by schema positions."""
        names = np.array(self.domain.names, dtype=object)
        if self._threshold is None:
            assert self._allowed is not None
            usable = set(self._positions.tolist())
            sets = [e for e in self._allowed if len(e) <= self._largest and usable.issuperset(e)]
            ordered = sorted((e for e in sets if e not in self._present), key=lambda e: (len(e), e))
            return tuple(tuple(names[list(e)]) for e in ordered)
        edges: list[Edge] = []
        for size, (sets, counts) in sorted(self._facets.items()):
            is_enough = np.array([is_admitted(self._threshold, size, count) for count in range(size + 1)])
            admitted = sets[is_enough[counts]]
            present = np.array([e for e in self._present if len(e) == size], dtype=np.int64).reshape(-1, size)
            inverse = distinct_rows(np.concatenate([admitted, present]))[1]
            is_free = ~np.isin(inverse[: len(admitted)], inverse[len(admitted) :])
            edges += zip(*(names[column].tolist() for column in admitted[is_free].T), strict=True)
        return tuple(edges)


def distinct_rows(sets: Ints) -> tuple[Ints, Ints]:
    """Distinct rows (m, k) in lexicographic order, and which of them every row is."""
    if sets.shape[1] == 1 or not len(sets):
        distinct, inverse = np.unique(sets[:, 0], return_inverse=True)
        return distinct[:, None].reshape(-1, sets.shape[1]), inverse
    base = int(sets.max()) + 1
    if base ** sets.shape[1] >= 2**62:
        distinct, inverse = np.unique(sets, axis=0, return_inverse=True)
        return distinct, inverse.reshape(-1)
    keys = np.zeros(len(sets), dtype=np.int64)
    for column in sets.T:
        keys = keys * base + column
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    return sets[first], inverse


def is_admitted(heredity: Heredity, size: int, present: int) -> bool:
    """Whether so many facets of a set in the collection are enough for heredity."""
    if isinstance(heredity, str):
        return present >= max(size - 1, 1)
    return present >= heredity * size - _ROUNDING


def checked_heredity(heredity: Heredity | None, has_allowed: bool) -> Heredity | None:
    """The heredity, refused unless it is one; None where the sets are given."""
    if heredity is None:
        if has_allowed:
            return None
        hint = "without one the sets must be given: candidates="
        raise unexpected("heredity", "a threshold", hint=hint, received="None", code="missing-part")
    if isinstance(heredity, str):
        if heredity == "semi-strong":
            return heredity
    elif is_real(heredity) and 0 < heredity <= 1:
        return float(heredity)
    raise out_of_range("heredity", "a number in (0, 1] or 'semi-strong'", heredity)


def _index_sets(domain: Domain, edges: Iterable[Sequence[str]]) -> set[tuple[int, ...]]:
    """Sorted schema positions of sets of names."""
    sets: set[tuple[int, ...]] = set()
    for edge in edges:
        if isinstance(edge, str):
            raise wrong_type("candidates", "sets of names", hint=f"write ({edge!r},)", received=f"the string {edge!r}")
        positions = tuple(sorted(domain.indices(edge)))
        if not positions:
            raise refused("candidates", "the empty set is not an interaction", code="unknown-name")
        sets.add(positions)
    return sets
