"""Encoded observations: rows or cells of finite variables with counts or weights, and readers for them."""

from .information import InformationTable
from .observations import Observations

__all__ = ["InformationTable", "Observations"]
