"""Tables of Arrow as data frames of pandas: whole numbers stay exact, and dictionaries keep their levels."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, cast

import pandas as pd

from ..errors import DataWarning, caller_level, refused

__all__ = ["frame_of", "plain_dictionary", "warn_of_lost_levels"]

_WIDE = ("string_view", "binary_view")  # not every function of Arrow takes them
_NULLABLE = {
    name.lower(): pd.api.types.pandas_dtype(name) for bits in (8, 16, 32, 64) for name in (f"Int{bits}", f"UInt{bits}")
}


def frame_of(place: Any, table: Any) -> pd.DataFrame:
    """A table of Arrow as a data frame of pandas; ``place`` says in messages what it is.

    Whole numbers with missing cells get a type of pandas that holds both, categorical columns the levels of their
    dictionaries, and an index that was saved is the index again.

    Raises:
        InputError: cells that pandas cannot hold.

    Warns:
        DataWarning: columns that were categorical when pandas saved them, and whose levels were not.
    """
    import pyarrow as pa

    whole: dict[Any, Any] = {}
    try:
        for i, field in enumerate(table.schema):
            column = plain = table.column(i)
            if pa.types.is_dictionary(field.type):
                plain = plain_dictionary(column)
            elif getattr(field.type, "extension_name", "") == "arrow.bool8":
                plain = column.cast(pa.bool_())
            elif pa.types.is_integer(field.type) and column.null_count:
                whole[field.type] = _NULLABLE[str(field.type)]
            if plain is not column:
                table = table.set_column(i, field.with_type(plain.type), plain)
        warn_of_lost_levels(place, table.schema)
        return table.to_pandas(types_mapper=whole.get)
    except (pa.ArrowException, ArithmeticError, ValueError, TypeError, NotImplementedError) as error:
        named = next((field for field in table.schema if pa.types.is_nested(field.type)), None)
        where = place if named is None else f"{place} column {named.name!r}"
        problem = f"expected a text, number, date or boolean in every cell ({' '.join(str(error).split())[:120]})"
        raise refused(where, problem, "turn its columns into text or numbers first", code="wrong-type") from None


def plain_dictionary(column: Any) -> Any:
    """A column of dictionaries, of Arrow or in a series, as one array, whose levels are different and not missing.

    Levels of several dictionaries stand in the order in which they come; a cell of a missing level is missing.
    """
    import pyarrow as pa

    if isinstance(column, pd.Series):
        column = pa.array(column)
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
    known = do.unique(levels.drop_null())
    if len(known) == len(chunk.dictionary) and levels is chunk.dictionary:
        return chunk
    codes = do.index_in(levels, value_set=known).take(chunk.indices)
    return pa.DictionaryArray.from_arrays(codes, known, ordered=chunk.type.ordered)


def warn_of_lost_levels(place: Any, schema: Any) -> None:
    """Say which columns were categorical in pandas and are not any more, as Parquet keeps levels of text alone."""
    import pyarrow as pa

    told = (schema.pandas_metadata or {}).get("columns", ())
    saved = {column["field_name"] for column in told if column.get("pandas_type") == "categorical"}
    lost = [repr(field.name) for field in schema if field.name in saved and not pa.types.is_dictionary(field.type)]
    if lost:
        shown = ", ".join(lost[:6]) + ", ..." * (len(lost) > 6)
        problem = (
            f"{place}: the categories of {shown} were no text, and Parquet keeps the levels of text alone: their "
            "order, and levels without a row, are lost; give the domain, or save them as text or as Feather"
        )
        warnings.warn(DataWarning(problem), stacklevel=caller_level())
