"""Files that are written whole or not at all: beside their place first, then moved there in one step."""

import errno
import os
import secrets
import shutil
import stat
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from .errors import InputError

__all__ = ["draft_of", "made_folder", "new_file", "unwritable", "write_file"]

_FULL = (errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC))


def write_file(path: str | os.PathLike[str], content: str | bytes, kind: type[InputError] = InputError) -> None:
    r"""Write a file whole, text as UTF-8 with its own line ends; errors as :func:`draft_of`."""
    with new_file(path, kind) as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextmanager
def new_file(path: str | os.PathLike[str], kind: type[InputError] = InputError) -> Generator[BinaryIO]:
    """An open binary file that takes the place of ``path`` when the block ends well; errors as :func:`draft_of`."""
    with draft_of(path, kind) as place, place.open("wb") as file:
        yield file


@contextmanager
def draft_of(path: str | os.PathLike[str], kind: type[InputError] = InputError) -> Generator[Path]:
    """The name of an empty hidden file in the folder of ``path`` that takes its place when the block ends well.

    After any exception, also KeyboardInterrupt, that file is removed and ``path`` is as it was. A file that is replaced
    passes its permissions on, a symbolic link stays one. What is no ordinary file, such as ``/dev/stdout`` or a named
    pipe, is not replaced: then the name is ``path`` itself.

    Args:
        path: the file to write; its folder must exist.
        kind: class of the error.

    Raises:
        InputError: the system refuses to write: no such folder, no permission, a full disk; of ``kind``. A pipe whose
            reader has gone is a BrokenPipeError.
    """
    target = Path(path)
    draft: Path | None = None
    try:
        mode = _mode(target)
        if mode is not None and not stat.S_ISREG(mode):
            if stat.S_ISDIR(mode):
                raise kind("is a folder", argument=target, hint="give the name of a file in it", code="no-file")
            yield target
            return
        final = Path(os.path.realpath(target))
        if not final.parent.is_dir():
            problem = f"the folder {final.parent if target.is_symlink() else target.parent} does not exist"
            raise kind(problem, argument=target, hint="create it first", code="no-file")
        if mode is not None and not os.access(final, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        draft = final.with_name(f".pyro-hoim-{secrets.token_hex(8)}.part")
        os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))  # less what the umask takes away
        if mode is not None:
            draft.chmod(stat.S_IMODE(mode))
        yield draft
        with draft.open("rb+") as file:
            os.fsync(file.fileno())
        draft.replace(final)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise unwritable(target, error, kind) from error
    finally:
        if draft is not None:
            draft.unlink(missing_ok=True)


@contextmanager
def made_folder(path: str | os.PathLike[str]) -> Generator[Path]:
    """A folder, made with those above it where there is none; one that was made is removed after any exception.

    InputError where the system refuses to make it.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with made_folder(folder + "/tables") as made:
        ...         write_file(made / "cells.csv", "a,count")
        ...     print(made.is_dir())
        True
    """
    target = Path(path)
    try:
        is_new = not target.is_dir()
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(target, error) from error
    try:
        yield target
    except BaseException:
        if is_new:
            shutil.rmtree(target)
        raise


def unwritable(path: str | os.PathLike[str], error: OSError, kind: type[InputError] = InputError) -> InputError:
    """The library's error for a file or folder that the system refuses to write."""
    hint = "free space there, or choose another folder" if error.errno in _FULL else "choose another folder"
    reason = os.strerror(error.errno) if error.errno else str(error)  # libraries write whole reports into theirs
    return kind(f"cannot be written ({reason})", argument=Path(path), hint=hint, code="no-file")


def _mode(target: Path) -> int | None:
    """Kind and permissions of what is there, behind links; None for nothing."""
    try:
        return target.stat().st_mode
    except FileNotFoundError:
        return None
    except ValueError as error:  # a zero character in the path
        raise OSError(errno.EINVAL, str(error)) from error
