"""Parquet, Arrow (Feather) and Stata, judged by what their libraries report, or decoded part by part up to a limit."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, cast

import numpy as np
import pandas as pd

from ...errors import HoimError, check_unique, refused, unexpected
from ..arrow_tables import arrow_library, coded_texts, fields_of, not_plain
from ..csv_file import CsvColumns
from ..encoding import factorise, label_of, labels_of_values
from .source_file import check_cells, check_size

__all__ = ["TYPED", "read_typed"]

_Typed = tuple[Mapping[str, Any], Collection[str], Sequence[str]]
"""Columns of pandas or Arrow, names of those whose levels the file says, and notes."""
_CHUNK = 2**16  # rows of Stata that are decoded at a time
_MISSING = 2147483621  # of Stata: this and the 26 codes above it are missing cells


def read_typed(path: Any, raw: bytes, kind: str) -> CsvColumns:
    """The columns in the bytes of a file of a kind of ``TYPED``; categorical ones keep their levels.

    Raises:
        InputError: a damaged file, columns of lists or mappings, or pyarrow is not installed.
        IntractableError: more bytes or cells than are read.
    """
    try:
        return _cells(path, *TYPED[kind](path, raw))
    except HoimError:
        raise
    except ImportError:
        hint = "pip install 'pyro-hoim[parquet]'"
        raise refused(path, f"a {kind} file needs pyarrow", hint, code="no-method") from None
    except NotImplementedError as error:  # also of Arrow
        problem = f"holds what its reader does not know ({' '.join(str(error).split())[:80]})"
        raise refused(path, problem, "save these columns as text or numbers", code="wrong-type") from None
    except Exception as error:  # noqa: BLE001 (a damaged file raises what its reader raises)
        if isinstance(error, TypeError) and b"pandas.interval" in raw:
            problem = "holds categories that are intervals, which pandas writes to Feather and nothing reads there"
            raise refused(path, problem, "save them as text, such as frame[name].astype(str)", "wrong-type") from None
        problem = f"damaged {kind} file ({' '.join(str(error).split())[:80]})"
        raise refused(path, problem, "save it again, or as CSV", code="damaged-file") from None


def _cells(path: Any, held: Mapping[str, Any], categorical: Collection[str], notes: Sequence[str] = ()) -> CsvColumns:
    num_rows = max(map(len, held.values()), default=0)
    if not num_rows:
        raise unexpected(path, "columns and rows", received=f"{len(held)} and {num_rows}", code="empty")
    columns: list[tuple[str, ...]] = []
    levels: dict[str, pd.CategoricalDtype] = {}
    for name, column in held.items():
        place = f"{path} column {name!r}"
        codes, distinct, dtype = factorise(column, place)
        labels = labels_of_values(place, distinct)
        columns.append(tuple(map([*labels, ""].__getitem__, codes.tolist())))
        if dtype is not None and name in categorical:
            check_unique(labels, f"{place} categories")
            levels[name] = pd.CategoricalDtype(labels, dtype.ordered)
    return CsvColumns(str(path), (*held,), tuple(columns), range(1, num_rows + 1), tuple(notes), levels, "row")


def _parquet(path: Any, raw: bytes) -> _Typed:
    from pyarrow import parquet

    pa = arrow_library()
    held = parquet.ParquetFile(pa.BufferReader(raw))
    size, schema = held.metadata, held.schema_arrow
    _check_flat(path, schema)
    groups = [size.row_group(i) for i in range(size.num_row_groups)]
    check_cells(path, max(size.num_rows, sum(group.num_rows for group in groups)), size.num_columns)
    check_size(path, sum(max(0, group.total_byte_size) for group in groups))
    *_, texts = found = fields_of(path, schema)  # which are codes in the file mostly, and need not become more
    return _rows(parquet.ParquetFile(pa.BufferReader(raw), read_dictionary=coded_texts(texts, size)).read(), *found)


def _arrow(path: Any, raw: bytes) -> _Typed:
    """A file or a stream of Arrow, decoded batch by batch up to the limits; Feather of version 2 is such a file."""
    pa = arrow_library()
    if raw.startswith(b"FEA1"):
        raise refused(path, "a Feather file of version 1", "save it again, or as Parquet", code="file-version")
    if raw.startswith(b"ARROW1"):
        held = pa.ipc.open_file(pa.BufferReader(raw))
        check_cells(path, held.count_rows(), len(held.schema))
        batches: Iterable[Any] = map(held.get_batch, range(held.num_record_batches))
    else:
        batches = held = pa.ipc.open_stream(pa.BufferReader(raw))
    _check_flat(path, held.schema)
    parts: list[Any] = []
    rows, sizes = 0, dict[int, int]()
    for batch in batches:
        rows += batch.num_rows
        check_cells(path, rows, len(held.schema))
        for column in batch.columns:
            parted = column.dictionary.buffers() if pa.types.is_dictionary(column.type) else ()
            sizes |= {buffer.address: buffer.size for buffer in (*column.buffers(), *parted) if buffer is not None}
        check_size(path, sum(sizes.values()))
        batch.validate(full=True)  # pandas follows wrong offsets and codes out of its memory
        parts.append(batch)
    return _rows(pa.Table.from_batches(parts, held.schema), *fields_of(path, held.schema))


def _rows(table: Any, fields: Mapping[str, str], categorical: frozenset[str], _: Any) -> _Typed:
    return {name: table.column(field) for name, field in fields.items()}, categorical, ()


def _check_flat(path: Any, schema: Any) -> None:
    """Refuse columns whose cells hold several values, of which a few bytes may say billions."""
    pa = arrow_library()
    for field in schema:
        kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        if getattr(kind, "extension_name", "") == "pandas.interval":  # two numbers, which are one label
            continue
        kind = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
        if pa.types.is_nested(kind) or pa.types.is_run_end_encoded(kind):
            raise not_plain(f"{path} column {field.name!r}")


def _stata(path: Any, raw: bytes) -> _Typed:
    """A Stata file; columns with value labels get them as levels, in the order of their codes, which asserts none."""
    parts, rows = list[pd.DataFrame](), 0
    with cast(Any, pd.read_stata(io.BytesIO(raw), chunksize=_CHUNK, convert_categoricals=False)) as reader:
        for part in reader:
            rows += len(part)
            check_cells(path, rows, part.shape[1])
            parts.append(part)
        labels, names = reader.value_labels(), vars(reader)["_lbllist"]
    frame = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
    categorical, notes = list[str](), list[str]()
    for name, key in zip([*frame.columns], names[: frame.shape[1]], strict=True):
        known = {code: text for code, text in labels.get(key, {}).items() if code < _MISSING}
        if known and frame[name].dtype.kind in "iuf":
            frame[name], apart = _labelled(cast(pd.Series, frame[name]), known)
            categorical.append(str(name).strip())
            if apart:
                notes.append(f"codes of {name!r} that share a label are kept apart, such as {apart!r}")
    header = [str(name).strip() for name in frame.columns]
    check_unique(header, f"{path} columns")
    columns = {name: frame.iloc[:, i] for i, name in enumerate(header)}
    return columns, categorical, notes


def _labelled(codes: pd.Series, known: Mapping[int, str]) -> tuple[pd.Series, str]:
    """Codes as levels, also those without a row or without a label, and the first that bears its code behind its text.

    So do all of several codes with one text.
    """
    values = sorted({*codes.dropna().unique().tolist(), *known})
    told = [label_of(value) for value in values]
    texts = [known.get(value, "") or code for value, code in zip(values, told, strict=True)]
    apart = ""
    while repeated := {text for text, times in Counter(texts).items() if times > 1}:
        apart = apart or next(f"{text} ({code})" for text, code in zip(texts, told, strict=True) if text in repeated)
        texts = [f"{text} ({code})" if text in repeated else text for text, code in zip(texts, told, strict=True)]
    places = np.where(codes.isna(), -1, np.searchsorted(values, codes.to_numpy(dtype=float, na_value=0)))
    return pd.Series(pd.Categorical.from_codes(places, texts)), apart


TYPED: dict[str, Callable[[Any, bytes], _Typed]] = {
    **dict.fromkeys((".parquet", ".pq"), _parquet),
    **dict.fromkeys((".feather", ".arrow", ".arrows", ".ipc"), _arrow),
    ".dta": _stata,
}
"""Readers by the ends of names of files."""
