"""Log Z and expectations of log-linear and generalized root models, and the exact laws of dependency networks."""

from .annealed import AnnealedImportance, log_frequencies
from .auto import Auto
from .base import Cost, LogPartition, PartitionBackend, Sandwich, Verdict
from .elimination import VariableElimination
from .enumeration import Enumeration
from .matrix import MatrixEnumeration
from .root_annealed import RootAnnealed
from .root_auto import RootAuto
from .root_base import RootBackend
from .root_closed_form import GaussianClosedForm, IndependentClosedForm
from .root_enumeration import RootEnumeration
from .stationary import CyclicLaws, StationaryLaw, cyclic_laws, stationary_law
from .weights import WeightEstimate, acceptance_ratio, log_mean_weight, one_sided_limits

__all__ = [
    "AnnealedImportance",
    "Auto",
    "Cost",
    "CyclicLaws",
    "Enumeration",
    "GaussianClosedForm",
    "IndependentClosedForm",
    "LogPartition",
    "MatrixEnumeration",
    "PartitionBackend",
    "RootAnnealed",
    "RootAuto",
    "RootBackend",
    "RootEnumeration",
    "Sandwich",
    "StationaryLaw",
    "VariableElimination",
    "Verdict",
    "WeightEstimate",
    "acceptance_ratio",
    "cyclic_laws",
    "log_frequencies",
    "log_mean_weight",
    "one_sided_limits",
    "stationary_law",
]
