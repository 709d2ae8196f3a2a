"""Log-linear models as Pyro distributions: the rows, their sufficient statistics, and priors on theta."""

from . import kl as kl  # registers the divergences
from .log_linear import HierarchicalLogLinear
from .priors import DiaconisYlvisaker, normal_prior
from .reparam import StateIndexReparam
from .statistics import LogLinearStatistics, statistics_of
from .support import MarginalCounts, StateSpace

__all__ = [
    "DiaconisYlvisaker",
    "HierarchicalLogLinear",
    "LogLinearStatistics",
    "MarginalCounts",
    "StateIndexReparam",
    "StateSpace",
    "normal_prior",
    "statistics_of",
]
