"""Parquet, Feather and Stata: what their headers say of rows and bytes is judged before a column is read."""

from __future__ import annotations

import io
import re
import struct
from collections.abc import Callable
from typing import Any, cast

import pandas as pd

from ...errors import HoimError, refused, unexpected
from .source_file import check_cells, check_size

__all__ = ["ROW_NAMES", "TYPED", "read_frame"]

ROW_NAMES = re.compile(r"__index_level_\d+__")
"""What pandas calls an index without a name in a file."""


def read_frame(path: Any, raw: bytes, kind: str) -> tuple[pd.DataFrame, frozenset[str]]:
    """The rows in the bytes of a file of a kind of ``TYPED``, and the names of its categorical columns.

    Raises:
        InputError: a damaged file, columns of lists or mappings, or pyarrow is not installed.
        IntractableError: more bytes or cells than are read.
    """
    try:
        frame, categorical = TYPED[kind](path, raw)
        frame = _with_index(frame)
    except HoimError:
        raise
    except ImportError:
        hint = "pip install 'pyro-hoim[parquet]'"
        raise refused(path, f"a {kind} file needs pyarrow", hint, code="no-method") from None
    except Exception as error:  # noqa: BLE001 (a damaged file raises what its reader raises)
        problem = f"damaged {kind} file ({' '.join(str(error).split())[:80]})"
        raise refused(path, problem, "save it again, or as CSV", code="damaged-file") from None
    return frame, frozenset(name.strip() for name in categorical)


def _with_index(frame: pd.DataFrame) -> pd.DataFrame:
    """A frame whose first columns are those of an index with names; others, and counted rows, are row names."""
    names = [] if isinstance(frame.index, pd.RangeIndex) else frame.index.names
    named = [place for place, name in enumerate(names) if name is not None]
    frame = frame.reset_index(level=named) if named else frame
    return frame.loc[:, [ROW_NAMES.fullmatch(str(name)) is None for name in frame.columns]]


def _parquet(path: Any, raw: bytes) -> tuple[pd.DataFrame, list[str]]:
    """A Parquet file; texts are read as the codes that they mostly are in it, not one by one."""
    import pyarrow as pa
    from pyarrow import parquet

    held = parquet.ParquetFile(pa.BufferReader(raw))
    size, schema = held.metadata, held.schema_arrow
    _check_flat(path, schema)
    groups = [size.row_group(i) for i in range(size.num_row_groups)]
    check_cells(path, max(size.num_rows, sum(group.num_rows for group in groups)), size.num_columns)
    check_size(path, sum(max(0, group.total_byte_size) for group in groups))
    texts = [field.name for field in schema if _is_text(field.type)]
    categorical = [field.name for field in schema if pa.types.is_dictionary(field.type)]
    return pd.read_parquet(io.BytesIO(raw), engine="pyarrow", read_dictionary=texts), categorical


def _is_text(kind: Any) -> bool:
    import pyarrow as pa

    return any(judge(kind) for judge in (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary))


def _feather(path: Any, raw: bytes) -> tuple[pd.DataFrame, list[str]]:
    """A Feather file of version 2, which is a file of Arrow."""
    import pyarrow as pa

    if not raw.startswith(b"ARROW1"):
        raise ValueError("no Feather file of version 2")
    held = pa.ipc.open_file(pa.BufferReader(raw))
    _check_flat(path, held.schema)
    rows, size, batches = 0, 0, 0
    for message in pa.ipc.MessageReader.open_stream(pa.BufferReader(pa.py_buffer(raw).slice(8))):
        if message.type in ("record batch", "dictionary"):
            length, needed = _batch_size(message.metadata.to_pybytes(), message.body)
            size += needed
            if message.type == "record batch":
                rows, batches = rows + length, batches + 1
    if held.num_record_batches != batches:
        raise ValueError(f"{held.num_record_batches} parts in its directory, {batches} in the file")
    check_cells(path, rows, len(held.schema))
    check_size(path, size)
    held.read_all().validate(full=True)  # pandas follows wrong offsets and codes out of its memory
    categorical = [field.name for field in held.schema if pa.types.is_dictionary(field.type)]
    return pd.read_feather(io.BytesIO(raw)), categorical


def _batch_size(flat: bytes, body: Any) -> tuple[int, int]:
    """Rows of a batch of Arrow, and bytes of its buffers once they are unpacked.

    The header is a FlatBuffer (Message.fbs of Arrow): field 1 of Message is the type of header, field 2 the header; of
    DictionaryBatch field 1 is a RecordBatch, whose fields are length, nodes, buffers and compression.
    """

    def number(kind: str, place: int) -> int:
        return struct.unpack_from(f"<{kind}", flat, place)[0]

    def field(table: int, index: int) -> int | None:
        """Place of a field of a table; None where it is left out."""
        found = table - number("i", table)
        place = number("H", found + 4 + 2 * index) if 4 + 2 * index < number("H", found) else 0
        return table + place if place else None

    def followed(place: int | None) -> int:
        """Where an offset leads."""
        if place is None:
            raise ValueError("a batch without a part")
        return place + number("I", place)

    message = followed(0)
    kind = field(message, 1)
    batch = followed(field(message, 2))
    if kind is not None and number("B", kind) == 2:  # a dictionary
        batch = followed(field(batch, 1))
    length, buffers = field(batch, 0), followed(field(batch, 2))
    is_packed = field(batch, 3) is not None
    needed = 0
    for i in range(number("I", buffers)):
        start, size = struct.unpack_from("<qq", flat, buffers + 4 + 16 * i)
        if is_packed and size >= 8:
            size = max(struct.unpack_from("<q", body, start)[0], size - 8)
        needed += max(0, size)
    return max(0, number("q", length)) if length is not None else 0, needed


def _check_flat(path: Any, schema: Any) -> None:
    """Refuse columns whose cells hold several values, of which a few bytes may say billions."""
    import pyarrow as pa

    for field in schema:
        kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        kind = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
        if pa.types.is_nested(kind) or pa.types.is_run_end_encoded(kind):
            raise not_plain(f"{path} column {field.name!r}")


def not_plain(place: str) -> Exception:
    """The error about a column of lists or mappings."""
    expected = "a text, number, date or boolean in every cell"
    hint = "leave the column out when the file is saved, or write one column for each part"
    return unexpected(place, expected, received="lists or mappings", hint=hint, code="damaged-file")


def _stata(path: Any, raw: bytes) -> tuple[pd.DataFrame, list[str]]:
    """A Stata file, which is not packed: every cell has a byte at least."""
    if raw.startswith(b"<"):
        release, order = int(raw[28:31]), ">" if raw[52:55] == b"MSF" else "<"
        kinds, places = ("H" if release < 119 else "I", "Q" if release > 117 else "I"), (70, 79 + 2 * (release > 118))
    else:
        order, kinds, places = ">" if raw[1] == 1 else "<", ("H", "I"), (4, 6)
    columns, rows = (struct.unpack_from(order + kind, raw, place)[0] for kind, place in zip(kinds, places, strict=True))
    if columns * max(1, rows) > len(raw):
        raise ValueError(f"{rows} rows of {columns} columns in {len(raw)} bytes")
    check_cells(path, rows, columns)
    frame = cast(pd.DataFrame, pd.read_stata(io.BytesIO(raw)))
    return frame, [str(name) for name, dtype in frame.dtypes.items() if isinstance(dtype, pd.CategoricalDtype)]


TYPED: dict[str, Callable[[Any, bytes], tuple[pd.DataFrame, list[str]]]] = {
    ".parquet": _parquet,
    ".pq": _parquet,
    ".feather": _feather,
    ".arrow": _feather,
    ".dta": _stata,
}
"""Readers by the ends of names of files."""
