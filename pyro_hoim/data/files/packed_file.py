"""Files inside files: what gzip, bzip2, xz and zip hold, up to a size."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zipfile
import zlib
from typing import Any

from ...errors import out_of_reach, refused, unexpected

__all__ = ["is_excel", "unpacked"]

_MOST_BYTES = 2**31
_MARKS = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\x00": lzma.open}
_DAMAGED = (OSError, EOFError, lzma.LZMAError, zlib.error, zipfile.BadZipFile, NotImplementedError, RuntimeError)


def _is_zip(raw: bytes) -> bool:
    return raw.startswith(b"PK\x03\x04")


def is_excel(raw: bytes) -> bool:
    """Whether bytes are an Excel workbook."""
    if not _is_zip(raw):
        return False
    try:
        with zipfile.ZipFile(io.BytesIO(raw)) as held:
            return "xl/workbook.xml" in held.namelist()
    except _DAMAGED:
        return False


def unpacked(path: Any, raw: bytes) -> bytes:
    """The bytes themselves, or what they hold where they are packed; InputError where that is damaged or empty."""
    opener = next((opener for mark, opener in _MARKS.items() if raw.startswith(mark)), None)
    if opener is None and not _is_zip(raw):
        return raw
    try:
        if opener is not None:
            with opener(io.BytesIO(raw)) as stream:
                found = stream.read(_MOST_BYTES + 1)
        else:
            found = _only_file(path, raw)
    except _DAMAGED as error:
        problem = f"damaged packed file ({' '.join(str(error).split())})"
        raise refused(path, problem, "pack it again, or give the file inside", code="damaged-file") from None
    if len(found) > _MOST_BYTES:
        raise out_of_reach(path, f"holds more than {_MOST_BYTES} bytes", "unpack it and give fewer rows")
    if not found.strip():
        raise unexpected(path, "a header and rows", received="an empty file", code="empty")
    return found


def _only_file(path: Any, raw: bytes) -> bytes:
    """Content of the one file of a zip archive; folders and what macOS adds do not count."""
    with zipfile.ZipFile(io.BytesIO(raw)) as held:
        names = [name for name in held.namelist() if not name.endswith("/") and not name.startswith("__MACOSX")]
        if len(names) != 1:
            raise unexpected(
                path, "one file in the archive", received=len(names), hint="unpack it and give one of them"
            )
        with held.open(names[0]) as stream:
            return stream.read(_MOST_BYTES + 1)
