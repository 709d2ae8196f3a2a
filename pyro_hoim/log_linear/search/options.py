"""Options that all searches for interactions share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from ...core.rows import check_count
from ...errors import check_not_negative, check_positive, wrong_type
from ...schema import Domain
from .candidates import CandidatePool, Heredity
from .scores import Score, ScoreName, checked_score

__all__ = ["SelectionOptions"]

_HEREDITY: Heredity = 0.3


@dataclass(frozen=True)
class SelectionOptions:
    """Which interactions a search may add, how it ranks them, and when it ends.

    Attributes:
        heredity: share of the facets of a candidate that must be in the collection, such as 0.3, 0.5 or 1.0;
            ``"semi-strong"`` for all but one; None for 0.3, or no condition where ``candidates`` are given.
        score: ``"gain"`` (leave-one-out gain at the present model), ``"J"`` (the paper's), each with
            ``"-per-parameter"``; ``"refined"`` (a fit of every candidate); or a function of candidates and a
            :class:`~pyro_hoim.log_linear.ScoreContext`.
        candidates: add no sets of two variables or more but these, such as known pathways; None for all.
        max_order: variables of the largest interaction; None for the default of the search.
        per_round: interactions added in a round; None for the default of the search.
        patience: rounds without a better validation loss after which the search stops.
        least_gain: nats, over all validation rows together, that every interaction added by a round must bring on
            average for the search to go on; None for the default of the search, which is 0, no such end, but for
            :func:`~pyro_hoim.log_linear.learn` of 50 columns or more.
        max_rounds: rounds after the first; a resumed search may have a larger number.
        time_limit: seconds after which the search ends with its best model so far; None for no limit. A round that is
            under way is given up. A resumed search has its time anew, and may have another limit.

    Raises:
        InputError: a number out of range.
        InputTypeError: numbers that are not whole, or candidates that are strings.

    Example:
        >>> from pyro_hoim import Domain
        >>> options = SelectionOptions(candidates=[("a", "b"), ("b", "c")], max_order=2)
        >>> pool = options.pool(Domain.from_cardinalities({"a": 2, "b": 2, "c": 2}))
        >>> pool.add([("a",), ("b",), ("c",)])
        >>> pool.available()
        (('a', 'b'), ('b', 'c'))
    """

    heredity: Heredity | None = None
    score: ScoreName | Score = "gain"
    candidates: Iterable[Sequence[str]] | None = None
    max_order: int | None = None
    per_round: int | None = None
    patience: int = 1
    least_gain: float | None = None
    max_rounds: int | None = None
    time_limit: float | None = None

    def __post_init__(self) -> None:
        if self.candidates is not None:
            given = [self.candidates] if isinstance(self.candidates, str) else list(self.candidates)
            for edge in given:
                if isinstance(edge, str):
                    raise wrong_type("candidates", "sets of names", hint=f"write ({edge!r},)", received=repr(edge))
            object.__setattr__(self, "candidates", tuple(tuple(edge) for edge in given))
        check_count(self.patience, "patience")
        if self.per_round is not None:
            check_count(self.per_round, "per_round")
        if self.max_rounds is not None:
            check_count(self.max_rounds, "max_rounds", 0)
        if self.least_gain is not None:
            check_not_negative(self.least_gain, "least_gain")
        if self.time_limit is not None:
            check_positive(self.time_limit, "time_limit")

    def filled(self, per_round: int, max_order: int | None = None) -> Self:
        """These options with what is None replaced by the defaults of a search."""
        heredity = _HEREDITY if self.heredity is None and self.candidates is None else self.heredity
        order = max_order if self.max_order is None else self.max_order
        return replace(self, heredity=heredity, per_round=self.per_round or per_round, max_order=order)

    def pool(self, domain: Domain) -> CandidatePool:
        """What may be added beside a collection."""
        return CandidatePool(domain, self.heredity, self.max_order, self.candidates)

    def settings(self, domain: Domain) -> dict[str, Any]:
        """What a resumed search must repeat, JSON-ready."""
        sets = self.candidates
        return {
            "heredity": self.heredity,
            "score": checked_score(self.score)[0],
            "per_round": self.per_round,
            "max_order": self.max_order,
            "candidates": None if sets is None else sorted(sorted(domain.indices(edge)) for edge in sets),
            "patience": self.patience,
        }
