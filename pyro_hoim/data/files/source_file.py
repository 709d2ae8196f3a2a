"""Bytes of what a caller names: files, and pipes that somebody writes to, up to a size and a time."""

from __future__ import annotations

import os
import stat
import time
from typing import Any

from ... import budgets
from ...errors import HoimError, out_of_reach, refused, size_text, unexpected

__all__ = ["FEWER", "MOST_BYTES", "MOST_CELLS", "check_cells", "check_ratio", "check_size", "not_empty", "read_file"]

MOST_BYTES = 2**30
"""Bytes of a file, and of what it holds where it is packed."""
MOST_CELLS = 2**27
"""Cells of a table: a GiB of pointers to their texts."""
_PIECE = 2**20
FEWER = "give fewer rows or columns"
_LARGE, _MOST_TIMES = 2**27, 200  # bytes that are read of any packed file, and times its size that others may hold
_PATIENCE, _WAIT = 60.0, 2.0  # seconds between two pieces of a pipe, and until somebody writes to it
_NO_FILES = {stat.S_IFSOCK: "a socket", stat.S_IFBLK: "a device", stat.S_IFCHR: "a device or a terminal"}


def check_size(path: Any, size: int, most: int = MOST_BYTES) -> None:
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

    Raises:
        IntractableError: more than ``most`` bytes; a file that says so is not read at all.
    """
    try:
        mode = os.stat(path).st_mode
        if stat.S_ISDIR(mode):
            raise unexpected(path, expected, received="a folder", code="no-file")
        if (kind := _NO_FILES.get(stat.S_IFMT(mode))) is not None:
            hint = "save what it gives as a file, or pipe it"
            raise unexpected(path, f"{expected} or a pipe", received=kind, hint=hint, code="no-file")
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        try:
            check_size(path, os.fstat(descriptor).st_size, most)
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
        check_size(path, size, most)
