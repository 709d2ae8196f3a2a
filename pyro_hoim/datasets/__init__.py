"""Published contingency tables, typed in, and loaders for public data files with pinned checksums."""

from .classic3 import classic3_info, load_classic3
from .files import FileInfo, data_file, dataset_files
from .tables import TableInfo, load_table, table_info, tables
from .uci import adult_domain, load_adult, load_breast_cancer, load_mushroom

__all__ = [
    "FileInfo",
    "TableInfo",
    "adult_domain",
    "classic3_info",
    "data_file",
    "dataset_files",
    "load_adult",
    "load_breast_cancer",
    "load_classic3",
    "load_mushroom",
    "load_table",
    "table_info",
    "tables",
]
