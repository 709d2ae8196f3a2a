"""Files of rows that are read piece by piece, with pyarrow: which files a path stands for, and their pieces.

Columns of pieces are those of the files read whole.
"""

import csv
import importlib
import os
import warnings
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote

from ...budgets import check_size
from ...errors import DataWarning, HoimError, conflict, none_received, refused, unexpected
from ..arrow_tables import arrow_library, coded_texts, fields_of
from ..files.safe_cells import restored
from ..files.source_file import DAMAGED, open_unpacked
from ..files.table_file import CsvColumns, comma_note, is_text_name, read_table_file
from ..files.text_format import TextFormat, comma_numbers, named_columns, text_format
from ..wide import long_cells
from .chunked import Piece

_ENDS = {".parquet": "parquet", ".pq": "parquet", ".csv": "text", ".tsv": "text", ".txt": "text"}
_PACKED = (".gz", ".bz2", ".xz", ".zip", ".zst", ".lz4")
_MOST_WIDE, _MOST_ROWS = 2**20, 1000  # bytes and rows of a table of counts in wide form
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
_MAX_GROUP = 2**32
_BLOCK = 2**22


@dataclass(frozen=True)
class FilePiece(Piece):
    """Some rows of a file."""

    path: str  # of the file
    keys: Mapping[str, str | None]  # values of columns that the names of folders say (``year=2024``), None for missing
    fields: Mapping[str, Any]  # for the name of every other column, where it lies in the file

    @property
    def header(self) -> tuple[str, ...]:
        """Names of the columns."""
        return (*self.fields, *(name for name in self.keys if name not in self.fields))

    def num_rows(self) -> int:
        """Number of rows; of a file of text it costs a pass."""
        return sum(len(column) for (column,) in self.read(self.header[:1], 2**20))

    def read(self, names: Sequence[str], chunk_rows: int) -> Iterator[list[Any]]:
        """Batches of some columns, in order."""
        import pyarrow as pa

        own_names = [name for name in names if name in self.fields]
        keys = {name: pa.scalar(self.keys[name], pa.string()) for name in names if name not in self.fields}
        batches = _guarded(self.path, partial(self._columns, own_names or list(self.fields)[:1], chunk_rows))
        while (columns := _guarded(self.path, partial(next, batches, None))) is not None:
            if num_rows := len(columns[0]):
                of_file = iter(columns)
                yield [pa.repeat(keys[name], num_rows) if name in keys else next(of_file) for name in names]

    @abstractmethod
    def _columns(self, names: Sequence[str], chunk_rows: int) -> Iterator[list[Any]]:
        """Columns of the file, batch after batch."""


def _guarded(path: str, function: Any) -> Any:
    """What a function gives that reads a file; its faults are those of the file."""
    import pyarrow as pa

    try:
        return function()
    except HoimError:
        raise
    except UnicodeError as error:
        raise refused(path, f"cannot be read ({error})", code="wrong-encoding") from None
    except (pa.ArrowException, csv.Error, *DAMAGED) as error:
        text = " ".join(str(error).split()).rpartition("file?: ")[2]  # behind what is tried to be read
        raise refused(path, f"cannot be read ({text[:200]})", code="damaged-file") from None


@dataclass(frozen=True)
class ParquetPiece(FilePiece):
    """A group of rows of a file of Parquet."""

    fragment: Any  # of a data set of pyarrow
    with_levels: frozenset[str]  # columns whose type says their levels

    @property
    def categorical(self) -> frozenset[str]:
        """Columns whose type says their levels."""
        return self.with_levels

    def num_rows(self) -> int:
        """Number of rows."""
        return _guarded(self.path, self.fragment.count_rows)

    def _columns(self, names: Sequence[str], chunk_rows: int) -> Iterator[list[Any]]:
        options = {"batch_size": chunk_rows, "batch_readahead": 1, "fragment_readahead": 1, "use_threads": False}
        fields = [self.fields[name] for name in names]
        for batch in self.fragment.to_batches(schema=self.fragment.physical_schema, columns=fields, **options):
            yield [*map(_plain, batch.columns)]


def _plain(column: Any) -> Any:
    """Whole numbers as an array of NumPy, where none is missing."""
    import pyarrow as pa

    return column.to_numpy() if pa.types.is_integer(column.type) and not column.null_count else column


def _pieces_of(
    kind: str, path: str, keys: Mapping[str, str | None], sep: str | None, encoding: str | None
) -> list[FilePiece]:
    """The groups of rows of a file of Parquet, or the one piece of a file of text."""
    if kind == "parquet":
        return _guarded(path, lambda: [*_parquet_pieces(path, keys)])
    return _guarded(path, lambda: [_text_piece(path, keys, sep, encoding)])


def _parquet_pieces(path: str, keys: Mapping[str, str | None]) -> Iterator[ParquetPiece]:
    """The groups of rows of a file; texts are read as the codes that they mostly are in it."""
    from pyarrow import dataset

    arrow_library()
    # Columns of text that the file holds as codes are read as codes.
    first = next(dataset.dataset([path], format="parquet").get_fragments())
    fields, categorical, texts = fields_of(path, first.physical_schema)
    form = dataset.ParquetFileFormat(dictionary_columns=coded_texts(texts, first.metadata))
    # Every group of rows is a piece, and has to fit the memory.
    for whole in dataset.dataset([path], format=form).get_fragments():
        for part in whole.split_by_row_group():
            size = max(0, part.row_groups[0].total_byte_size)
            check_size(size, _MAX_GROUP, "bytes", path, "write it in smaller groups of rows", "a group of rows holds")
            if part.row_groups[0].num_rows:
                yield ParquetPiece(path, keys, fields, part, categorical)


@dataclass(frozen=True)
class TextPiece(FilePiece):
    """All rows of a file of text, whose cells are read as text; the fields are places of columns."""

    form: TextFormat  # how it is written
    notes: tuple[str, ...]  # what is to be said of it
    commas: frozenset[str] = frozenset()  # columns of numbers with decimal commas, which are read as points
    others: frozenset[str] = frozenset()  # columns in which something else stands

    def _columns(self, names: Sequence[str], chunk_rows: int) -> Iterator[list[Any]]:
        from pyarrow import compute

        replaced = partial(cast(Any, compute).replace_substring, pattern=",", replacement=".")
        for cells in _text_cells(self.path, self.form, [self.fields[name] for name in names], chunk_rows):
            yield [replaced(cell) if name in self.commas else cell for name, cell in zip(names, cells, strict=True)]


def _text_cells(path: str, form: TextFormat, places: Sequence[int], chunk_rows: int) -> Iterator[list[Any]]:
    """Cells of some columns of a file of text as they stand there, batch after batch."""
    if form.has_rows:
        read = _cells_between_blanks if form.delimiter == " " else _cells_of_arrow
        for cells in read(path, form, places, chunk_rows):
            yield [_restored(cell) for cell in cells] if form.is_safe else cells


def _cells_of_arrow(path: str, form: TextFormat, places: Sequence[int], chunk_rows: int) -> Iterator[list[Any]]:
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    # Columns by their places, all cells as text.
    names = [*map(str, range(len(form.header)))]
    asked = [names[position] for position in places]
    encoding = "utf8" if form.encoding.startswith("utf-8") else form.encoding
    layout = arrow_csv.ReadOptions(
        column_names=names, skip_rows=form.last_line, encoding=encoding, block_size=_BLOCK, use_threads=False
    )
    parsing = arrow_csv.ParseOptions(delimiter=form.delimiter, newlines_in_values=True)
    texts = arrow_csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.string()), include_columns=asked, quoted_strings_can_be_null=False
    )
    try:
        # What Arrow cannot read is read again as a whole is, whose message names the line.
        with open_unpacked(path) as stream:
            for block in arrow_csv.open_csv(stream, layout, parsing, texts):
                for start in range(0, block.num_rows, chunk_rows):
                    yield block.slice(start, chunk_rows).columns
    except pa.ArrowInvalid:
        _check_rows(path, form)
        raise


def _cells_between_blanks(path: str, form: TextFormat, places: Sequence[int], chunk_rows: int) -> Iterator[list[Any]]:
    """Cells between any number of blanks, of which Arrow takes every one for an end of a cell."""
    import pyarrow as pa

    rows = form.rows(path, open_unpacked(path))
    while part := [*islice(rows, chunk_rows)]:
        yield [pa.array([row[position] for _, row in part], pa.string()) for position in places]


def _restored(cells: Any) -> Any:
    import pyarrow as pa

    coded = cells.dictionary_encode()
    return pa.array(map(restored, coded.dictionary.to_pylist()), pa.string()).take(coded.indices)


def _check_rows(path: str, form: TextFormat) -> None:
    """Refuse what a reading as a whole refuses, in its words."""
    deque(form.rows(path, open_unpacked(path)), maxlen=0)


def _text_piece(path: str, keys: Mapping[str, str | None], sep: str | None, encoding: str | None) -> TextPiece:
    """The rows of a file of text, which is judged as one that is read whole."""
    # The format, and the columns as a reading of the whole file has them.
    form = text_format(path, partial(open_unpacked, path), sep, encoding)
    # Quotation marks that do not end, or end inside a cell: other readers would go on to the end of the file.
    with open_unpacked(path) as raw:
        if any(b'"' in piece for piece in iter(partial(raw.read, _BLOCK), b"")):
            _check_rows(path, form)
    cells = partial(_text_cells, path, form)

    def cells_of(place: int) -> Iterator[str]:
        return chain.from_iterable(part.to_pylist() for (part,) in cells([place], 2**16))

    fields, left_out = named_columns(path, form.header, cells_of)
    piece = TextPiece(path, keys, fields, form, (*form.notes, *left_out))
    if form.delimiter == ",":
        return piece
    # Decimal commas are told by all cells of a column, which takes a pass.
    comma_states: dict[str, bool | None] = dict.fromkeys(fields, False)
    for columns in cells([*fields.values()], 2**16):
        for name, column in zip(fields, columns, strict=True):
            if (before := comma_states[name]) is not None:
                has_commas = comma_numbers(cell.strip() for cell in column.unique().to_pylist())
                comma_states[name] = None if has_commas is None else before or has_commas
        if {*comma_states.values()} == {None}:
            break
    commas = frozenset(name for name, has_commas in comma_states.items() if has_commas)
    others = frozenset(name for name, has_commas in comma_states.items() if has_commas is None)
    return replace(piece, commas=commas, others=others)


def _row_files(path: Any) -> tuple[str, list[str]]:
    """Kind (``parquet`` or ``text``) and paths of the files of rows that a path, or a list of paths, stands for.

    Of a folder these are all files in it, also in folders below, in the order of their paths, but those that begin with
    a point or an underscore, or lie in a folder that does.
    """
    # Files that are named have to exist; of a folder all that are not hidden.
    is_one = isinstance(path, str | os.PathLike)
    is_named = not (is_one and Path(path).is_dir())
    files = [Path(one) for one in ([path] if is_one else path)] if is_named else sorted(Path(path).rglob("*"))
    for file in files if is_named else ():
        if not (file.exists() if is_one else file.is_file()):
            raise refused(path if is_one else file, f"no such file{' or folder' * is_one}", code="no-file")
    if not is_named:
        parts = {file: file.relative_to(path).parts for file in files if file.is_file()}
        files = [file for file in parts if not any(part.startswith((".", "_")) for part in parts[file])]
    if not files:
        raise none_received(path, "at least one file of rows (.parquet or .csv)")
    # All files have to be of one kind, which is read.
    kinds = {_kind(file, is_named): file for file in reversed(files)}
    if None in kinds:
        expected = "files of rows, .parquet or .csv"
        hint = "read it whole, or save it so" if is_named else "move other files away"
        raise unexpected(path, expected, received=kinds[None].name, hint=hint, code="damaged-file")
    if len(kinds) > 1:
        names = " and ".join(sorted(file.name for file in kinds.values()))
        raise conflict(path, f"holds files of several kinds, such as {names}", "give a folder with files of one kind")
    return str(next(iter(kinds))), [str(file) for file in files]


def _kind(file: Path, is_named: bool) -> str | None:
    """How a file is read: Parquet by its first bytes, others by their names; one that was named is text by default."""
    if file.is_file() and _guarded(str(file), lambda: _begins(file, b"PAR1")):
        return "parquet"
    ends = [end for end in file.suffixes[-2:] if end.lower() not in _PACKED]
    kind = _ENDS.get(ends[-1].lower()) if ends else None
    return "text" if kind is None and is_named and file.is_file() and is_text_name(file) else kind


def _begins(file: Path, mark: bytes) -> bool:
    with file.open("rb") as stream:
        return stream.read(len(mark)) == mark


@dataclass(frozen=True)
class RowFiles:
    """The files that a path stands for, in pieces."""

    source: str  # the path, for messages
    pieces: tuple[FilePiece, ...]  # of the files, in order
    client: Any = None  # of the cluster that reads them; None reads them here

    @property
    def header(self) -> tuple[str, ...]:
        """Names of the columns."""
        return self.pieces[0].header

    def wide_table(self, keep: str = "count=None") -> CsvColumns | None:
        """The cells of a small table of counts in wide form, which is made long as where it is read whole.

        None for anything else; ``keep`` says in messages what makes its columns variables.
        """
        path = self.pieces[0].path
        is_alone = all(piece.path == path for piece in self.pieces)
        is_small = is_alone and os.path.getsize(path) < _MOST_WIDE
        if not (is_small and 0 < sum(piece.num_rows() for piece in self.pieces) <= _MOST_ROWS):
            return None
        # As a whole, with the format that was found.
        form = getattr(self.pieces[0], "form", None)
        sep, encoding = (None, None) if form is None else (form.delimiter, form.encoding)
        with warnings.catch_warnings():  # what is to be said of the columns is said where they are read
            warnings.simplefilter("ignore", DataWarning)
            cells = read_table_file(path, sep=sep, encoding=encoding)
        long = long_cells(cells, keep)
        return None if long is cells else long

    @property
    def is_text(self) -> bool:
        """Whether they are files of text."""
        return isinstance(self.pieces[0], TextPiece)

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences on how the files were read, where that is not as it stands there."""
        texts = [piece for piece in self.pieces if isinstance(piece, TextPiece)]
        notes = dict.fromkeys(note for piece in texts for note in piece.notes)
        commas = sorted({name for piece in texts for name in piece.commas})
        return (*notes, *comma_note(commas))


def open_files(
    path: Any,
    delimiter: str | None,
    encoding: str | None,
    run: Callable[[Callable[..., Any], Sequence[tuple[Any, ...]]], Iterator[Any]],
    client: Any = None,
) -> RowFiles:
    """The pieces of the files that a path stands for, in order; ``run`` gives what a function makes of some tasks."""
    kind, paths = _row_files(path)
    try:
        importlib.import_module("pyarrow.dataset")
    except ImportError:
        hint = "pip install 'pyro-hoim[large]'"
        raise refused(path, "rows in files are read piece by piece with pyarrow", hint, code="no-method") from None
    # Empty files among others hold no rows; folders may say columns.
    if len(paths) > 1:
        paths = [file for file in paths if os.path.getsize(file)] or paths[:1]
    keys = _keys(path, paths)
    parts = run(_pieces_of, [(kind, *pair, delimiter, encoding) for pair in zip(paths, keys, strict=True)])
    # Pieces take decimal commas alike: where all of their cells are numbers.
    pieces = [piece for part in parts for piece in part]
    texts = [piece for piece in pieces if isinstance(piece, TextPiece)]
    others = frozenset[str]().union(*(piece.others for piece in texts))
    commas = frozenset[str]().union(*(piece.commas for piece in texts)) - others
    pieces = [replace(p, commas=commas) if isinstance(p, TextPiece) and p.form.delimiter != "," else p for p in pieces]
    if not pieces:
        raise none_received(path, "at least one row")
    # All files have one header, in whatever order.
    first = pieces[0]
    for other in pieces:
        lacking = sorted({*first.header} ^ {*other.header})
        if lacking:
            has = first.path if lacking[0] in first.header else other.path
            lacks = other.path if has == first.path else first.path
            raise conflict(path, f"column {lacking[0]!r} is in {has} and not in {lacks}", "give files of one header")
    return RowFiles("the rows" if isinstance(path, list | tuple) else str(path), tuple(pieces), client)


def _keys(path: Any, paths: Sequence[str]) -> list[dict[str, str | None]]:
    """Values that the names of folders say (``year=2024``), below the one that is read or that all files lie in."""
    if isinstance(path, str | os.PathLike):
        top = Path(path) if Path(path).is_dir() else Path(paths[0]).parent
    else:
        top = Path(os.path.commonpath([Path(file).absolute().parent for file in paths]))
        paths = [str(Path(file).absolute()) for file in paths]
    parts = [[part.partition("=") for part in Path(file).relative_to(top).parts[:-1]] for file in paths]
    return [
        {unquote(name): None if value == _NO_VALUE else unquote(value) for name, sign, value in part if sign}
        for part in parts
    ]
