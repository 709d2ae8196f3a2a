"""Partition functions and expectations of log-linear models: exact where the structure allows it, else estimated."""

from .annealed import AnnealedImportance, log_frequencies
from .auto import Auto
from .base import Cost, LogPartition, PartitionBackend, Sandwich
from .elimination import VariableElimination
from .enumeration import Enumeration
from .matrix import MatrixEnumeration

__all__ = [
    "AnnealedImportance",
    "Auto",
    "Cost",
    "Enumeration",
    "LogPartition",
    "MatrixEnumeration",
    "PartitionBackend",
    "Sandwich",
    "VariableElimination",
    "log_frequencies",
]
