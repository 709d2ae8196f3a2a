"""Selection of interactions: candidates under heredity, their scores, greedy search and pruning."""

from .candidates import CandidatePool, Heredity, next_available
from .prune import prune
from .result import Selection, SelectionRound
from .scores import Gain, GainEstimate, InteractionInformation, Refined, Score, ScoreContext
from .search import select

__all__ = [
    "CandidatePool",
    "Gain",
    "GainEstimate",
    "Heredity",
    "InteractionInformation",
    "Refined",
    "Score",
    "ScoreContext",
    "Selection",
    "SelectionRound",
    "next_available",
    "prune",
    "select",
]
