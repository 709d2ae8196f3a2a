"""Observations and their readers: encoded rows of finite variables, and rows of counts or real numbers."""

from .bins import Bins, bin_columns, find_bins
from .columns import ColumnReading, read_columns
from .counts import LARGEST_COUNT, CountTable
from .files.table_file import read_table_file
from .information import InformationTable
from .joined import (
    BrokenLaw,
    ColumnGroup,
    JoinedColumns,
    JoinedRows,
    find_determined_groups,
    find_exclusive_groups,
    join_columns,
)
from .observations import Observations
from .sources import ChunkedRows, DaskRows, Fold, MemoryRows, RowBatch, RowSource, Sum, open_rows

__all__ = [
    "LARGEST_COUNT",
    "Bins",
    "BrokenLaw",
    "ChunkedRows",
    "ColumnGroup",
    "ColumnReading",
    "CountTable",
    "DaskRows",
    "Fold",
    "InformationTable",
    "JoinedColumns",
    "JoinedRows",
    "MemoryRows",
    "Observations",
    "RowBatch",
    "RowSource",
    "Sum",
    "bin_columns",
    "find_bins",
    "find_determined_groups",
    "find_exclusive_groups",
    "join_columns",
    "open_rows",
    "read_columns",
    "read_table_file",
]
