"""Rows wherever they lie: in memory, in files read piece by piece, and on a cluster of Dask."""

from .chunked import ChunkedRows
from .cluster import DaskRows
from .folds import RowBatch
from .opening import open_rows
from .rows import Fold, MemoryRows, RowSource, Sum

__all__ = ["ChunkedRows", "DaskRows", "Fold", "MemoryRows", "RowBatch", "RowSource", "Sum", "open_rows"]
