"""One process at a time at work in a folder."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from ..errors import refused

_HELD = (errno.EACCES, errno.EAGAIN, errno.EDEADLK)


@contextmanager
def one_process(path: Path, argument: str, hint: str) -> Generator[None]:
    """Hold a lock on a file while a block runs; the file is made, with its folder, and left there.

    The system releases the lock of a process that ends in whatever way, so that the file alone is no obstacle. A file
    system without locks has none.

    Raises:
        InputError: another process holds it.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with one_process(Path(folder, "lock"), "folder", "wait for it"):
        ...         print(Path(folder, "lock").exists())
        True
    """
    while True:
        # The file may vanish between two steps of ours when its owner ends: then begin again.
        path.parent.mkdir(exist_ok=True)
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)  # no link is emptied
        except FileNotFoundError:  # the folder of a run that has just ended was removed
            continue
        if not _is_free(handle):
            who = "" if sys.platform == "win32" else os.pread(handle, 20, 1).decode(errors="replace").strip()
            os.close(handle)
            problem = f"another process{f' ({who})' if who.isdigit() else ''} is at work in {path.parent.parent}"
            raise refused(argument, problem, hint, code="conflict")
        if sys.platform == "win32" or _is_same(handle, path):
            break
        os.close(handle)  # removed by its owner between our two steps
    try:
        os.ftruncate(handle, 0)
        os.write(handle, f"\n{os.getpid()}\n".encode())
        yield
    finally:
        os.close(handle)


def _is_free(handle: int) -> bool:
    """Whether this process now has the lock of an open file."""
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in _HELD
    return True


def _is_same(handle: int, path: Path) -> bool:
    """Whether an open file is the one of this name."""
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False
