"""Observations and their readers: encoded rows of finite variables, and rows of counts or real numbers."""

from .counts import LARGEST_COUNT, CountTable
from .information import InformationTable
from .observations import Observations

__all__ = ["LARGEST_COUNT", "CountTable", "InformationTable", "Observations"]
