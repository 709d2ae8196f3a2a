"""Selection of interactions: candidates under heredity, their scores, greedy search and pruning."""

from .candidates import CandidatePool, Heredity, next_available
from .elimination import Elimination, InteractionTest, eliminate, rejected_hypotheses
from .prune import loss_of_refit, prune, table_variance
from .result import Selection, SelectionRound
from .rounds import StopRule
from .scores import Gain, GainEstimate, InteractionInformation, Refined, Score, ScoreContext
from .screening import Screened
from .search import select

__all__ = [
    "CandidatePool",
    "Elimination",
    "Gain",
    "GainEstimate",
    "Heredity",
    "InteractionInformation",
    "InteractionTest",
    "Refined",
    "Score",
    "ScoreContext",
    "Screened",
    "Selection",
    "SelectionRound",
    "StopRule",
    "eliminate",
    "loss_of_refit",
    "next_available",
    "prune",
    "rejected_hypotheses",
    "select",
    "table_variance",
]
