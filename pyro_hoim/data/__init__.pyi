from .bins import Bins as Bins, bin_columns as bin_columns, find_bins as find_bins
from .columns import ColumnReading as ColumnReading, read_columns as read_columns
from .counts import LARGEST_COUNT as LARGEST_COUNT, CountTable as CountTable
from .files.table_file import read_table_file as read_table_file
from .information import InformationTable as InformationTable
from .joined import (
    BrokenLaw as BrokenLaw,
    ColumnGroup as ColumnGroup,
    JoinedColumns as JoinedColumns,
    JoinedRows as JoinedRows,
    find_determined_groups as find_determined_groups,
    find_exclusive_groups as find_exclusive_groups,
    join_columns as join_columns,
)
from .observations import Observations as Observations
from .sources import (
    ChunkedRows as ChunkedRows,
    DaskRows as DaskRows,
    Fold as Fold,
    MemoryRows as MemoryRows,
    RowBatch as RowBatch,
    RowSource as RowSource,
    Sum as Sum,
    open_rows as open_rows,
)
