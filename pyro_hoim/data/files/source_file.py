"""Bytes of what a caller names, up to a size and a time: files, pipes, and what is packed by a common program."""

import bz2
import gzip
import io
import lzma
import os
import stat
import time
import zipfile
import zlib
from functools import partial
from typing import Any, BinaryIO, cast

from ... import budgets
from ...errors import HoimError, out_of_reach, refused, size_text, unexpected


def _arrow_stream(packing: str, source: Any) -> BinaryIO:
    """What pyarrow unpacks."""
    try:
        from pyarrow import input_stream
    except ImportError:
        hint = "pip install 'pyro-hoim[parquet]', or give the file inside"
        raise refused(packing, f"a file packed by {packing} needs pyarrow", hint, code="no-method") from None
    return cast(BinaryIO, input_stream(source, compression=packing))


MOST_BYTES = 2**30
"""Bytes of a file, and of what it holds where it is packed."""
MOST_CELLS = 2**27
"""Cells of a table: a GiB of pointers to their texts."""
_PIECE = 2**20
FEWER = "give fewer rows or columns"
_LARGE, _MOST_TIMES = 2**27, 200  # bytes that are read of any packed file, and times its size that others may hold
_PATIENCE, _WAIT = 60.0, 2.0  # seconds between two pieces of a pipe, and until somebody writes to it
_NO_FILES = {stat.S_IFSOCK: "a socket", stat.S_IFBLK: "a device", stat.S_IFCHR: "a device or a terminal"}
_BLOCK = 2**12
_ZIP = b"PK\x03\x04"
_MARKS = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\x00": lzma.open,
    b"\x28\xb5\x2f\xfd": partial(_arrow_stream, "zstd"),
    b"\x04\x22\x4d\x18": partial(_arrow_stream, "lz4"),
}
DAMAGED = (OSError, EOFError, lzma.LZMAError, zlib.error, zipfile.BadZipFile, ValueError, RuntimeError)


def check_bytes(path: Any, size: int, most: int = MOST_BYTES) -> None:
    """Refuse more bytes than are read."""
    budgets.check_size(size, most, "bytes", path, FEWER, "holds")


def check_cells(path: Any, rows: int, columns: int) -> None:
    """Refuse a table of more cells than are read, before any of them is."""
    what = f"{rows:,} rows of {columns:,} columns hold"
    budgets.check_size(rows * columns, MOST_CELLS, "cells", path, FEWER, what)


def check_ratio(path: Any, size: int, packed: int) -> None:
    """Refuse a file that would become so much larger than it is that it must be made for it."""
    if size > max(_LARGE, _MOST_TIMES * packed):
        problem = f"holds {size_text(size, 'bytes')} or more in {packed}, above {_MOST_TIMES} times its own size"
        raise out_of_reach(path, problem, "unpack it, or save it unpacked, if that is meant")


def not_empty(path: Any, raw: bytes, expected: str = "a header and rows") -> bytes:
    """The bytes, refused where they are blanks alone."""
    if not raw or raw.isspace():
        raise unexpected(path, expected, received="an empty file", code="empty")
    return raw


def read_file(path: str | os.PathLike[str], expected: str, most: int = MOST_BYTES) -> bytes:
    """Bytes of a file, or of a pipe such as ``/dev/stdin``; InputError says what cannot be read, and why.

    Folders, sockets, devices and terminals are refused, and so is a pipe that nobody writes to, or that gives nothing
    for a minute. ``expected`` says in messages what the file should be.
    """
    try:
        # What is no file gives nothing, or never ends.
        mode = os.stat(path).st_mode
        if stat.S_ISDIR(mode):
            raise unexpected(path, expected, received="a folder", code="no-file")
        if (kind := _NO_FILES.get(stat.S_IFMT(mode))) is not None:
            hint = "save what it gives as a file, or pipe it"
            raise unexpected(path, f"{expected} or a pipe", received=kind, hint=hint, code="no-file")
        # Without waiting for somebody who writes to a pipe.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        try:
            check_bytes(path, os.fstat(descriptor).st_size, most)
            return _content(path, descriptor, stat.S_ISFIFO(mode), most)
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        hint = "name /dev/stdin to read a pipe" if str(path) == "-" else None
        raise refused(path, "no such file", hint, code="no-file") from None
    except HoimError:
        raise
    except (OSError, ValueError) as error:  # ValueError: a zero character in the path
        reason = getattr(error, "strerror", None) or error
        raise refused(path, f"cannot be read ({reason})", code="damaged-file") from None


def _content(path: Any, descriptor: int, is_pipe: bool, most: int) -> bytes:
    """All bytes of an open file, or of a pipe until its writers close it."""
    pieces: list[bytes] = []
    size, last = 0, time.monotonic()
    while True:
        # A pipe may be empty for a while, or not have been opened by its writer yet.
        try:
            piece = os.read(descriptor, _PIECE)
        except BlockingIOError:
            if time.monotonic() - last > _PATIENCE:
                problem = f"a pipe that gave nothing for {_PATIENCE:g} seconds"
                raise refused(path, problem, "save what it gives as a file first", code="no-file") from None
            time.sleep(0.01)
            continue
        if not piece:
            if is_pipe and not pieces and time.monotonic() - last < _WAIT:
                time.sleep(0.01)
                continue
            return b"".join(pieces)
        pieces.append(piece)
        size, last = size + len(piece), time.monotonic()
        check_bytes(path, size, most)


def is_excel(raw: bytes) -> bool:
    """Whether bytes are an Excel workbook."""
    try:
        return raw.startswith(_ZIP) and "xl/workbook.xml" in zipfile.ZipFile(io.BytesIO(raw)).namelist()
    except DAMAGED:
        return False


def unpacked(path: Any, raw: bytes) -> bytes:
    """The bytes themselves, or what they hold where they are packed; InputError where that is damaged or empty.

    It is unpacked piece by piece, up to a size and a multiple of the packed one.
    """
    try:
        stream = _opened(path, io.BytesIO(raw), raw)
        if stream is None:
            return raw
        # Piece by piece, so that a bomb is noticed before it fills the memory.
        pieces, size = list[bytes](), 0
        while piece := stream.read(_BLOCK):  # of any length in other packings than gzip, hence the small pieces
            pieces.append(piece)
            size += len(piece)
            check_bytes(path, size)
            check_ratio(path, size, len(raw))
    except HoimError:
        raise
    except DAMAGED as error:
        problem = f"damaged packed file ({' '.join(str(error).split())})"
        raise refused(path, problem, "pack it again, or give the file inside", code="damaged-file") from None
    content = not_empty(path, b"".join(pieces))
    if content.startswith((_ZIP, *_MARKS)):
        hint = "unpack it once and give the file inside"
        raise unexpected(path, "a packed table", received="a packed file in a packed file", hint=hint)
    return content


def _opened(path: Any, source: Any, head: bytes) -> BinaryIO | None:
    """What a packed file holds, of a zip archive its one file, beside folders and what macOS adds; None for others."""
    if not head.startswith(_ZIP):
        opener = next((opener for mark, opener in _MARKS.items() if head.startswith(mark)), None)
        return None if opener is None else cast(BinaryIO, opener(source))
    archive = zipfile.ZipFile(source)
    files = [i for i in archive.infolist() if not i.filename.startswith("__MACOSX") and i.filename[-1:] != "/"]
    if len(files) != 1:
        hint = "unpack it and give one of them"
        raise unexpected(path, "one file in the archive", received=len(files), hint=hint)
    return cast(BinaryIO, archive.open(files[0]))


def open_unpacked(path: str) -> BinaryIO:
    """A file as it is, or what it holds where it is packed, which is unpacked as it is read."""
    with open(path, "rb") as stream:
        packed = _opened(path, path, stream.read(8))
    return packed or open(path, "rb")
