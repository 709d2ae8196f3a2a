"""Tables of Arrow as data frames of pandas: whole numbers stay exact, and dictionaries keep their levels."""

import re
import warnings
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import pandas as pd

from ..errors import DataWarning, caller_level, check_unique, refused, unexpected

_ROW_NAMES = re.compile(r"__index_level_\d+__")  # what pandas calls an index without a name in a file
_WIDE = ("string_view", "binary_view")  # not every function of Arrow takes them


def arrow_library() -> Any:
    """The package pyarrow, to which types of pandas are known; they are numbers otherwise."""
    import pyarrow as pa

    pa.array(pd.array(["2020"], dtype="period[Y]"))
    return pa


def frame_of(where: Any, table: Any) -> pd.DataFrame:
    """A table of Arrow as a data frame of pandas; ``where`` says in messages what it is.

    Whole numbers with missing cells get a type of pandas that holds both, categorical columns the levels of their
    dictionaries, and an index that was saved is the index again.

    Warns:
        DataWarning: columns that were categorical when pandas saved them, and whose levels were not.
    """
    import pyarrow as pa

    whole: dict[Any, Any] = {}
    try:
        # Types that pandas would change get one that holds the same values.
        for i, field in enumerate(table.schema):
            column = plain = table.column(i)
            if pa.types.is_dictionary(field.type):
                plain = plain_dictionary(column)
            elif getattr(field.type, "extension_name", "") == "arrow.bool8":
                plain = column.cast(pa.bool_())
            elif pa.types.is_integer(field.type) and column.null_count:
                sign = "U" * pa.types.is_unsigned_integer(field.type)
                whole[field.type] = pd.api.types.pandas_dtype(f"{sign}Int{field.type.bit_width}")
            if plain is not column:
                table = table.set_column(i, field.with_type(plain.type), plain)
        _warn_of_lost_levels(where, table.schema)
        return table.to_pandas(types_mapper=whole.get)
    except (pa.ArrowException, ArithmeticError, ValueError, TypeError, NotImplementedError) as error:
        # The message names the column that holds lists or mappings, where one does.
        named = next((field for field in table.schema if pa.types.is_nested(field.type)), None)
        argument = where if named is None else f"{where} column {named.name!r}"
        problem = f"expected a text, number, date or boolean in every cell ({' '.join(str(error).split())[:120]})"
        raise refused(argument, problem, "turn its columns into text or numbers first", code="wrong-type") from None


def fields_of(where: Any, schema: Any) -> tuple[dict[str, str], frozenset[str], list[str]]:
    """The columns of a table in a file: their fields by their names, those whose type says levels, and those of text.

    Names of an index come first, as pandas puts them; an index without a name numbers the rows, and is left out. It
    warns as :func:`frame_of` does.
    """
    import pyarrow as pa

    _warn_of_lost_levels(where, schema)
    # pandas says in the metadata which fields are its index, and what they are called.
    metadata = schema.pandas_metadata or {}
    names = {column["field_name"]: column["name"] for column in metadata.get("columns", ())}
    index = [field for field in metadata.get("index_columns", ()) if isinstance(field, str)]
    fields = [field for field in index if names.get(field) is not None]
    fields += [field for field in schema.names if field not in index and not _ROW_NAMES.fullmatch(field)]
    header = [str(names[field] if field in index else field).strip() for field in fields]
    check_unique(header, f"{where} columns")
    by_name = dict(zip(header, fields, strict=True))
    # Types that say levels, and those of text, which may be read as codes.
    levels = frozenset(name for name, field in by_name.items() if pa.types.is_dictionary(schema.field(field).type))
    return by_name, levels, [f.name for f in schema if _is_text(f.type) or pa.types.is_binary(f.type)]


def coded_texts(texts: Sequence[str], file: Any) -> list[str]:
    """Those columns of text that Arrow can read as codes: none is told apart by DELTA encodings in a file of Parquet.

    ``file`` are the metadata of the file.
    """
    plain_texts = set(texts)
    for group in map(file.row_group, range(file.num_row_groups)):
        columns = [group.column(i) for i in range(group.num_columns)]
        plain_texts -= {c.path_in_schema for c in columns if any(word.startswith("DELTA") for word in c.encodings)}
    return [name for name in texts if name in plain_texts]


def coded_column(where: Any, column: Any) -> tuple[np.ndarray, Any, bool | None] | pd.Series:
    """Positions (N,) of the cells of a column of Arrow in its levels, -1 where missing, these, and their order.

    It is None where the type says no levels. A series of pandas where Arrow does not tell levels apart.
    """
    import pyarrow as pa

    column = pa.array(column) if isinstance(column, pd.Series) else column
    kind = column.type
    order = kind.ordered if pa.types.is_dictionary(kind) else None
    if order is None:
        if pa.types.is_float16(kind) or not (_is_text(kind) or pa.types.is_primitive(kind)):
            return frame_of(where, pa.table({"": column})).iloc[:, 0]
        column = column.dictionary_encode()
    # Whole numbers stand for missing cells, too, so that no cell becomes a float.
    coded = plain_dictionary(column)
    levels, indices = coded.dictionary, coded.indices
    indices = indices.cast(pa.int64()).fill_null(-1) if indices.null_count else indices
    labels = levels.to_pylist() if _is_text(levels.type) else frame_of(where, pa.table({"": levels})).iloc[:, 0]
    return indices.to_numpy(zero_copy_only=False).astype(np.int64), labels, order


def _is_text(kind: Any) -> bool:
    import pyarrow as pa

    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def plain_dictionary(column: Any) -> Any:
    """A column of dictionaries as one array, whose levels are different and not missing.

    Levels of several dictionaries stand in the order in which they come; a cell of a missing level is missing.
    """
    import pyarrow as pa

    column = pa.array(column) if isinstance(column, pd.Series) else column
    chunks: Sequence[Any] = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    plain = [_plain(chunk) for chunk in chunks]
    if not plain:
        return pa.array([], column.type)
    return pa.chunked_array(plain).unify_dictionaries().combine_chunks() if len(plain) > 1 else plain[0]


def _plain(chunk: Any) -> Any:
    import pyarrow as pa
    from pyarrow import compute

    do = cast(Any, compute)
    levels = chunk.dictionary
    if str(levels.type) in _WIDE:
        levels = levels.cast(pa.large_string() if "string" in str(levels.type) else pa.large_binary())
    if isinstance(levels, pa.ExtensionArray):  # of pandas, which writes no such levels twice
        return chunk
    # Levels that are missing or repeated get one code each.
    known = do.unique(levels.drop_null())
    if len(known) == len(chunk.dictionary) and levels is chunk.dictionary:
        return chunk
    codes = do.index_in(levels, value_set=known).take(chunk.indices)
    return pa.DictionaryArray.from_arrays(codes, known, ordered=chunk.type.ordered)


def not_plain(place: str) -> Exception:
    """The error about a column of lists or mappings."""
    expected = "a text, number, date or boolean in every cell"
    hint = "leave the column out when the file is saved, or write one column for each part"
    return unexpected(place, expected, received="lists or mappings", hint=hint, code="damaged-file")


def _warn_of_lost_levels(where: Any, schema: Any) -> None:
    import pyarrow as pa

    saved_columns = (schema.pandas_metadata or {}).get("columns", ())
    saved = {column["field_name"] for column in saved_columns if column.get("pandas_type") == "categorical"}
    lost = [repr(field.name) for field in schema if field.name in saved and not pa.types.is_dictionary(field.type)]
    if lost:
        shown = ", ".join(lost[:6]) + ", ..." * (len(lost) > 6)
        problem = (
            f"{where}: the categories of {shown} were no text, and Parquet keeps the levels of text alone: their "
            "order, and levels without a row, are lost; give the domain, or save them as text or as Feather"
        )
        warnings.warn(DataWarning(problem), stacklevel=caller_level())
