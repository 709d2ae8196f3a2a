"""A cheap score that picks the candidates which an expensive one then ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ...errors import check_whole
from ...structure.hypergraph import Edge
from .scores import Gain, InteractionInformation, Score, ScoreContext

__all__ = ["Screened"]


@dataclass(frozen=True)
class Screened:
    """The score of the ``keep`` most promising candidates by a cheaper score; the others get minus infinity.

    With hundreds of variables heredity admits hundreds of thousands of triples. The interaction information of the data
    costs microseconds each, a gain at the present model needs a margin of the model.
    """

    score: Score = field(default_factory=Gain)
    first: Score = field(default_factory=InteractionInformation)
    keep: int = 20_000

    def __post_init__(self) -> None:
        check_whole(self.keep, "keep")

    def __call__(self, candidates: Sequence[Edge], context: ScoreContext) -> np.ndarray:
        """Scores (num_candidates,), nats; of equal candidates the earlier pass."""
        if len(candidates) <= self.keep:
            return self.score(candidates, context)
        passed = np.sort(np.argsort(-self.first(candidates, context), kind="stable")[: self.keep])
        values = np.full(len(candidates), -np.inf)
        values[passed] = self.score([candidates[i] for i in passed], context)
        return values
