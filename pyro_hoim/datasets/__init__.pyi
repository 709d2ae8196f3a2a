from .embedded import TableInfo as TableInfo, load_table as load_table, table_info as table_info, tables as tables
from .files import FileInfo as FileInfo, data_file as data_file, dataset_files as dataset_files
from .public import (
    adult_domain as adult_domain,
    classic3_info as classic3_info,
    load_adult as load_adult,
    load_breast_cancer as load_breast_cancer,
    load_classic3 as load_classic3,
    load_mushroom as load_mushroom,
)
