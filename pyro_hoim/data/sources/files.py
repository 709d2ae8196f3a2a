"""Files of rows that are read piece by piece: which files a path stands for, and the pieces of them (pyarrow)."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ...budgets import check_size
from ...errors import HoimError, InputError, check_unique, conflict, none_received, refused, unexpected
from ..csv_file import check_header
from ..files.table_file import SAY_ENCODING, found_delimiter, found_header, header_end, lines_above
from .pieces import Piece

__all__ = ["Fragment", "fragments_of", "row_files"]

_ENDS = {".parquet": "parquet", ".pq": "parquet", ".csv": "text", ".tsv": "text", ".txt": "text"}
_PACKED = (".gz", ".bz2", ".zst", ".lz4")
_MAX_GROUP = 2**32
_SAMPLE = 2**18


def row_files(path: Any) -> tuple[str, list[str]]:
    """Kind (``parquet`` or ``text``) and paths of the files of rows that a path, or a list of paths, stands for.

    Of a folder these are all files in it, also in folders below, in the order of their paths, but those that begin with
    a point or an underscore, or lie in a folder that does.

    Raises:
        InputError: no such file, a folder without files, files of several kinds, or of one that is not read.
    """
    if isinstance(path, str | os.PathLike):
        held = Path(path)
        if not held.exists():
            raise refused(path, "no such file or folder", code="no-file")
        found = [*filter(Path.is_file, sorted(held.rglob("*")))] if held.is_dir() else [held]
        if held.is_dir():
            parts = {file: file.relative_to(held).parts for file in found}
            found = [file for file in found if not any(part.startswith((".", "_")) for part in parts[file])]
    else:
        found = [Path(one) for one in path]
        for file in found:
            if not file.is_file():
                raise refused(file, "no such file", code="no-file")
    if not found:
        raise none_received(path, "at least one file of rows (.parquet or .csv)")
    kinds = {_kind(file): file for file in reversed(found)}
    if None in kinds:
        expected = "files of rows, .parquet or .csv"
        raise unexpected(path, expected, received=kinds[None].name, hint="move other files away", code="damaged-file")
    if len(kinds) > 1:
        names = " and ".join(sorted(file.name for file in kinds.values()))
        raise conflict(path, f"holds files of several kinds, such as {names}", "give a folder with files of one kind")
    return str(next(iter(kinds))), [str(file) for file in found]


def _kind(file: Path) -> str | None:
    ends = [end for end in file.suffixes[-2:] if end.lower() not in _PACKED]
    return _ENDS.get(ends[-1].lower()) if ends else None


@dataclass(frozen=True)
class Fragment(Piece):
    """Some rows of a file: a group of rows of Parquet, or all rows of a file of text.

    Args:
        fragment: of a data set of pyarrow.
        path: of the file, for messages.
        keys: values of columns that the names of folders say (``year=2024``).
        categorical: columns whose type says their levels.
    """

    fragment: Any
    path: str
    keys: dict[str, Any]
    categorical: frozenset[str]

    @property
    def header(self) -> tuple[str, ...]:
        """Names of the columns."""
        return (*self.fragment.physical_schema.names, *self.keys)

    def num_rows(self) -> int:
        """Number of rows; of a file of text it costs a pass."""
        return self._guarded(self.fragment.count_rows)

    def read(self, names: Sequence[str], chunk_rows: int) -> Iterator[Any]:
        """Batches of Arrow of some columns, in order."""
        import pyarrow as pa

        held = [name for name in names if name not in self.keys]
        schema = self.fragment.physical_schema
        options = {"batch_size": chunk_rows, "batch_readahead": 1, "fragment_readahead": 1, "use_threads": False}
        batches = self._guarded(partial(self.fragment.to_batches, schema=schema, columns=held, **options))
        while True:
            batch = self._guarded(partial(next, batches, None))
            if batch is None:
                return
            if not batch.num_rows:
                continue
            columns = {name: batch.column(i) for i, name in enumerate(held)}
            for name in set(names) - set(held):
                value = None if self.keys[name] is None else str(self.keys[name])
                columns[name] = pa.repeat(pa.scalar(value, pa.string()), batch.num_rows)
            yield pa.RecordBatch.from_arrays([columns[name] for name in names], names=list(names))

    def _guarded(self, function: Any) -> Any:
        """What a function of pyarrow gives; its faults are those of the file."""
        import pyarrow as pa

        try:
            return function()
        except HoimError:
            raise
        except (pa.ArrowException, OSError, ValueError) as error:
            raise _damaged(self.path, error) from None


def _damaged(path: str, error: Exception) -> InputError:
    """What pyarrow says of a file, without the long way there."""
    text = " ".join(str(error).split())
    if "invalid UTF8" in text:
        return refused(path, "not UTF-8", SAY_ENCODING, code="wrong-encoding")
    return refused(path, f"cannot be read ({text[max(0, text.find('CSV parse error')) :][:200]})", code="damaged-file")


def fragments_of(path: Any, delimiter: str | None, encoding: str | None) -> list[Fragment]:
    """The pieces of the files that a path stands for, in order.

    Raises:
        InputError: as :func:`row_files`; a damaged file; files of other columns than the first one; no pyarrow.
    """
    kind, paths = row_files(path)
    try:
        import pyarrow.dataset
    except ImportError:
        hint = "pip install 'pyro-hoim[large]'"
        raise refused(path, "rows in files are read piece by piece with pyarrow", hint, code="no-method") from None
    make = _parquet if kind == "parquet" else partial(_text, delimiter=delimiter, encoding=encoding)
    folder = str(path) if isinstance(path, str | os.PathLike) and Path(path).is_dir() else None
    found = [fragment for file in paths for fragment in make(pyarrow.dataset, file, folder)]
    if not found:
        raise none_received(path, "at least one row")
    first = found[0]
    check_unique(first.header, f"{first.path} header")
    for other in found:
        lacking = sorted({*first.header} ^ {*other.header})
        if lacking:
            has = first.path if lacking[0] in first.header else other.path
            lacks = other.path if has == first.path else first.path
            raise conflict(path, f"column {lacking[0]!r} is in {has} and not in {lacks}", "give files of one header")
    return found


def _opened(dataset: Any, file: str, folder: str | None, form: Any) -> Any:
    """The one file as a data set, whose folders may say values."""
    import pyarrow as pa

    try:
        return dataset.dataset(
            [file], format=form, partitioning=dataset.partitioning(flavor="hive"), partition_base_dir=folder
        )
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _damaged(file, error) from None


def _parquet(dataset: Any, file: str, folder: str | None) -> Iterator[Fragment]:
    """The groups of rows of a file of Parquet; texts are read as the codes that they mostly are in it."""
    import pyarrow as pa

    plain = _opened(dataset, file, folder, "parquet")
    schema = next(plain.get_fragments()).physical_schema
    categorical = frozenset(field.name for field in schema if pa.types.is_dictionary(field.type))
    texts = {f.name for f in schema if pa.types.is_string(f.type) or pa.types.is_large_string(f.type)}
    form = dataset.ParquetFileFormat(dictionary_columns=texts)
    for whole in _opened(dataset, file, folder, form).get_fragments():
        keys = dataset.get_partition_keys(whole.partition_expression)
        for part in whole.split_by_row_group():
            size = max(0, part.row_groups[0].total_byte_size)
            check_size(size, _MAX_GROUP, "bytes", file, "write it in smaller groups of rows", "a group of rows holds")
            if part.row_groups[0].num_rows:
                yield Fragment(part, file, keys, categorical)


def _text(
    dataset: Any, file: str, folder: str | None, delimiter: str | None, encoding: str | None
) -> Iterator[Fragment]:
    """A file of text, all of whose cells are read as text."""
    import pyarrow as pa
    from pyarrow import csv

    try:
        with pa.input_stream(file, compression="detect") as stream:
            head = stream.read(_SAMPLE)
        text = head.decode(encoding or "utf-8-sig", errors="ignore")
    except (pa.ArrowException, OSError, LookupError) as error:
        raise _damaged(file, error) from None
    if not text.strip():
        raise unexpected(file, "a header and rows", received="an empty file", code="empty")
    above = lines_above(text)
    if above.is_safe:
        problem = "its first line says that apostrophes stand before cells, which is read in a file that is read whole"
        raise conflict(file, problem, "write it without safe cells")
    below = text[above.end :]
    mark = {"tab": "\t", "\\t": "\t"}.get(str(delimiter), delimiter) or above.sep or found_delimiter(below)
    header = found_header(below, mark)
    check_header(file, header, mark)
    check_unique(header, f"{file} header")
    form = dataset.CsvFileFormat(
        parse_options=csv.ParseOptions(delimiter=mark, newlines_in_values=True),
        read_options=csv.ReadOptions(
            column_names=list(header), skip_rows=header_end(text, above.end, mark), encoding=encoding or "utf8"
        ),
        convert_options=csv.ConvertOptions(
            column_types=dict.fromkeys(header, pa.string()), strings_can_be_null=False, quoted_strings_can_be_null=False
        ),
    )
    for whole in _opened(dataset, file, folder, form).get_fragments():
        yield Fragment(whole, file, dataset.get_partition_keys(whole.partition_expression), frozenset())
