"""Observations and their readers: encoded rows of finite variables, and rows of counts or real numbers."""

from .bins import Bins, bin_columns, find_bins
from .counts import LARGEST_COUNT, CountTable
from .files.table_file import read_table_file
from .information import InformationTable
from .observations import Observations
from .sources import ChunkedRows, DaskRows, Fold, MemoryRows, RowBatch, RowSource, Sum, open_rows

__all__ = [
    "LARGEST_COUNT",
    "Bins",
    "ChunkedRows",
    "CountTable",
    "DaskRows",
    "Fold",
    "InformationTable",
    "MemoryRows",
    "Observations",
    "RowBatch",
    "RowSource",
    "Sum",
    "bin_columns",
    "find_bins",
    "open_rows",
    "read_table_file",
]
