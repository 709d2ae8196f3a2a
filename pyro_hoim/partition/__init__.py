"""Partition functions and expectations of log-linear models, exact where the structure allows it."""

from .auto import Auto
from .base import Cost, LogPartition, PartitionBackend
from .elimination import VariableElimination
from .enumeration import Enumeration
from .matrix import MatrixEnumeration

__all__ = [
    "Auto",
    "Cost",
    "Enumeration",
    "LogPartition",
    "MatrixEnumeration",
    "PartitionBackend",
    "VariableElimination",
]
