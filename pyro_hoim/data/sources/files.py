"""Files of rows that are read piece by piece: which files a path stands for, and the pieces of them."""

from __future__ import annotations

import importlib
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from ...errors import DataWarning, conflict, none_received, refused, unexpected
from ..csv_file import CsvColumns, comma_note
from ..files.table_file import is_text_name, read_table_file
from ..wide import long_cells
from .file_pieces import FilePiece, TextPiece, guarded, pieces_of, with_commas

__all__ = ["RowFiles", "open_files"]

_ENDS = {".parquet": "parquet", ".pq": "parquet", ".csv": "text", ".tsv": "text", ".txt": "text"}
_PACKED = (".gz", ".bz2", ".xz", ".zip", ".zst", ".lz4")
_MOST_WIDE, _MOST_ROWS = 2**20, 1000  # bytes and rows of a table of counts in wide form
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"


def row_files(path: Any) -> tuple[str, list[str]]:
    """Kind (``parquet`` or ``text``) and paths of the files of rows that a path, or a list of paths, stands for.

    Of a folder these are all files in it, also in folders below, in the order of their paths, but those that begin with
    a point or an underscore, or lie in a folder that does.

    Raises:
        InputError: no such file, a folder without files, files of several kinds, or of one that is not read.
    """
    is_one = isinstance(path, str | os.PathLike)
    is_named = not (is_one and Path(path).is_dir())
    found = [Path(one) for one in ([path] if is_one else path)] if is_named else sorted(Path(path).rglob("*"))
    for file in found if is_named else ():
        if not (file.exists() if is_one else file.is_file()):
            raise refused(path if is_one else file, f"no such file{' or folder' * is_one}", code="no-file")
    if not is_named:
        parts = {file: file.relative_to(path).parts for file in found if file.is_file()}
        found = [file for file in parts if not any(part.startswith((".", "_")) for part in parts[file])]
    if not found:
        raise none_received(path, "at least one file of rows (.parquet or .csv)")
    kinds = {_kind(file, is_named): file for file in reversed(found)}
    if None in kinds:
        expected = "files of rows, .parquet or .csv"
        hint = "read it whole, or save it so" if is_named else "move other files away"
        raise unexpected(path, expected, received=kinds[None].name, hint=hint, code="damaged-file")
    if len(kinds) > 1:
        names = " and ".join(sorted(file.name for file in kinds.values()))
        raise conflict(path, f"holds files of several kinds, such as {names}", "give a folder with files of one kind")
    return str(next(iter(kinds))), [str(file) for file in found]


def _kind(file: Path, is_named: bool) -> str | None:
    """How a file is read: Parquet by its first bytes, others by their names; one that was named is text by default."""
    if file.is_file() and guarded(str(file), lambda: _begins(file, b"PAR1")):
        return "parquet"
    ends = [end for end in file.suffixes[-2:] if end.lower() not in _PACKED]
    found = _ENDS.get(ends[-1].lower()) if ends else None
    return "text" if found is None and is_named and file.is_file() and is_text_name(file) else found


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
        is_alone = all(piece.path == path for piece in self.pieces) and not path.lower().endswith((".zst", ".lz4"))
        is_small = is_alone and os.path.getsize(path) < _MOST_WIDE
        if not (is_small and 0 < sum(piece.num_rows() for piece in self.pieces) <= _MOST_ROWS):
            return None
        form = getattr(self.pieces[0], "form", None)
        sep, encoding = (None, None) if form is None else (form.delimiter, form.encoding)
        with warnings.catch_warnings():  # what is to be said of the columns is said where they are read
            warnings.simplefilter("ignore", DataWarning)
            cells = read_table_file(path, sep=sep, encoding=encoding)
        found = long_cells(cells, keep)
        return None if found is cells else found

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
    """The pieces of the files that a path stands for, in order; ``run`` gives what a function makes of some tasks.

    Raises:
        InputError: as :func:`row_files`; a damaged file; files of other columns than the first one; no pyarrow.
    """
    kind, paths = row_files(path)
    try:
        importlib.import_module("pyarrow.dataset")
    except ImportError:
        hint = "pip install 'pyro-hoim[large]'"
        raise refused(path, "rows in files are read piece by piece with pyarrow", hint, code="no-method") from None
    if len(paths) > 1:
        paths = [file for file in paths if os.path.getsize(file)] or paths[:1]
    keys = _keys(path, paths)
    parts = run(pieces_of, [(kind, *pair, delimiter, encoding) for pair in zip(paths, keys, strict=True)])
    found = with_commas([piece for part in parts for piece in part])
    if not found:
        raise none_received(path, "at least one row")
    first = found[0]
    for other in found:
        lacking = sorted({*first.header} ^ {*other.header})
        if lacking:
            has = first.path if lacking[0] in first.header else other.path
            lacks = other.path if has == first.path else first.path
            raise conflict(path, f"column {lacking[0]!r} is in {has} and not in {lacks}", "give files of one header")
    return RowFiles("the rows" if isinstance(path, list | tuple) else str(path), tuple(found), client)


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
