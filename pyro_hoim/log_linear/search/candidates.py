"""Which interactions may be added to a collection: heredity, kept up to date as the collection changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal

from ...core.rows import check_count
from ...errors import out_of_range, refused, unexpected, wrong_type
from ...schema import Domain
from ...structure.hypergraph import Edge

__all__ = ["CandidatePool", "Heredity"]

Heredity = float | Literal["semi-strong"]
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
        self._positions = tuple(i for i, n in enumerate(domain.cardinalities) if n > 1)
        self._present: set[tuple[int, ...]] = set()
        self._facets: Counter[tuple[int, ...]] = Counter()
        self._allowed = None if allowed is None else _index_sets(domain, allowed)
        self._count(())

    def add(self, edges: Iterable[Sequence[str]]) -> None:
        """Take note of edges that the collection now has; those known already change nothing."""
        for edge in _index_sets(self.domain, edges) - self._present:
            self._present.add(edge)
            self._count(edge)

    def _count(self, facet: tuple[int, ...]) -> None:
        """One more present facet of every set that is one variable larger."""
        inside = set(facet)
        if len(facet) >= self._largest or not inside.issubset(self._positions):
            return
        for i in self._positions:
            if i not in inside:
                larger = tuple(sorted((*facet, i)))
                if self._allowed is None or larger in self._allowed:
                    self._facets[larger] += 1

    def available(self) -> tuple[Edge, ...]:
        """Admitted sets that are not in the collection, in the order of edges: by size, then by schema positions."""
        if self._threshold is None:
            assert self._allowed is not None
            usable = set(self._positions)
            found = [e for e in self._allowed if len(e) <= self._largest and usable.issuperset(e)]
        else:
            counts = self._facets.items()
            found = [e for e, present in counts if present and is_admitted(self._threshold, len(e), present)]
        names = self.domain.names
        ordered = sorted((e for e in found if e not in self._present), key=lambda e: (len(e), e))
        return tuple(tuple(names[i] for i in e) for e in ordered)


def is_admitted(heredity: Heredity, size: int, present: int) -> bool:
    """Whether so many facets of a set in the collection are enough for heredity."""
    if isinstance(heredity, str):
        return present >= max(size - 1, 1)
    return present >= heredity * size - _ROUNDING


def checked_heredity(heredity: Heredity | None, has_allowed: bool) -> Heredity | None:
    if heredity is None:
        if has_allowed:
            return None
        hint = "without one the sets must be given: candidates="
        raise unexpected("heredity", "a threshold", hint=hint, received="None", code="missing-part")
    if isinstance(heredity, str):
        if heredity == "semi-strong":
            return heredity
    elif isinstance(heredity, int | float) and not isinstance(heredity, bool) and 0 < heredity <= 1:
        return float(heredity)
    raise out_of_range("heredity", "a number in (0, 1] or 'semi-strong'", heredity)


def _index_sets(domain: Domain, edges: Iterable[Sequence[str]]) -> set[tuple[int, ...]]:
    """Sorted schema positions of sets of names."""
    found: set[tuple[int, ...]] = set()
    for edge in edges:
        if isinstance(edge, str):
            raise wrong_type("candidates", "sets of names", hint=f"write ({edge!r},)", received=f"the string {edge!r}")
        positions = tuple(sorted(domain.indices(edge)))
        if not positions:
            raise refused("candidates", "the empty set is not an interaction", code="unknown-name")
        found.add(positions)
    return found
