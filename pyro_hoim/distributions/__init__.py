"""Log-linear models as Pyro distributions: the rows, their sufficient statistics, and priors on theta."""

from . import kl as kl  # registers the divergences
from .log_linear import HierarchicalLogLinear
from .statistics import LogLinearStatistics, statistics_of
from .support import MarginalCounts, StateSpace

__all__ = [
    "HierarchicalLogLinear",
    "LogLinearStatistics",
    "MarginalCounts",
    "StateSpace",
    "statistics_of",
]
