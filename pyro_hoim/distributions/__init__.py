"""Models as Pyro distributions: log-linear laws of rows and of sufficient statistics, priors, dependency networks."""

from . import kl as kl  # registers the divergences
from .dependency_network import DependencyNetwork
from .generalized_root import GeneralizedRoot
from .log_linear import HierarchicalLogLinear
from .normal import normal_prior
from .priors import DiaconisYlvisaker
from .reparam import StateIndexReparam
from .statistics import LogLinearStatistics, statistics_of
from .support import MarginalCounts, StateSpace

__all__ = [
    "DependencyNetwork",
    "DiaconisYlvisaker",
    "GeneralizedRoot",
    "HierarchicalLogLinear",
    "LogLinearStatistics",
    "MarginalCounts",
    "StateIndexReparam",
    "StateSpace",
    "normal_prior",
    "statistics_of",
]
