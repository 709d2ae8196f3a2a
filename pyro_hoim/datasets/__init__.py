"""Published contingency tables, typed in, and loaders for public data files with pinned checksums."""

from .files import FileInfo, data_file, dataset_files
from .public import adult_domain, classic3_info, load_adult, load_breast_cancer, load_classic3, load_mushroom
from .tables import TableInfo, load_table, table_info, tables

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
