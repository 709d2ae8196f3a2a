"""Observations and their readers: encoded rows of finite variables, and rows of counts or real numbers."""

from .bins import Bins, bin_columns, find_bins
from .counts import LARGEST_COUNT, CountTable
from .files.table_file import read_table_file
from .information import InformationTable
from .observations import Observations

__all__ = [
    "LARGEST_COUNT",
    "Bins",
    "CountTable",
    "InformationTable",
    "Observations",
    "bin_columns",
    "find_bins",
    "read_table_file",
]
