"""Log Z and expectations of log-linear models, exact or estimated, and the exact laws of dependency networks."""

from .annealed import AnnealedImportance, log_frequencies
from .auto import Auto
from .base import Cost, LogPartition, PartitionBackend, Sandwich
from .elimination import VariableElimination
from .enumeration import Enumeration
from .matrix import MatrixEnumeration
from .stationary import CyclicLaws, StationaryLaw, cyclic_laws, stationary_law
from .weights import WeightEstimate, acceptance_ratio, log_mean_weight, one_sided_limits

__all__ = [
    "AnnealedImportance",
    "Auto",
    "Cost",
    "CyclicLaws",
    "Enumeration",
    "LogPartition",
    "MatrixEnumeration",
    "PartitionBackend",
    "Sandwich",
    "StationaryLaw",
    "VariableElimination",
    "WeightEstimate",
    "acceptance_ratio",
    "cyclic_laws",
    "log_frequencies",
    "log_mean_weight",
    "one_sided_limits",
    "stationary_law",
]
