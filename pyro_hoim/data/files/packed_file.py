"""Files inside files: what gzip, bzip2, xz and zip hold, up to a size."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zipfile
import zlib
from typing import Any, BinaryIO, cast

from ...errors import HoimError, refused, unexpected
from .source_file import check_ratio, check_size, is_blank

__all__ = ["DAMAGED", "is_excel", "open_unpacked", "unpacked"]

_PIECE = 2**12
_MARKS = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\x00": lzma.open}
DAMAGED: tuple[type[Exception], ...] = (
    OSError,
    EOFError,
    lzma.LZMAError,
    zlib.error,
    zipfile.BadZipFile,
    ValueError,
    RuntimeError,
)


def _is_zip(raw: bytes) -> bool:
    return raw.startswith(b"PK\x03\x04")


def is_excel(raw: bytes) -> bool:
    """Whether bytes are an Excel workbook."""
    if not _is_zip(raw):
        return False
    try:
        with zipfile.ZipFile(io.BytesIO(raw)) as held:
            return "xl/workbook.xml" in held.namelist()
    except DAMAGED:
        return False


def unpacked(path: Any, raw: bytes) -> bytes:
    """The bytes themselves, or what they hold where they are packed; InputError where that is damaged or empty.

    It is unpacked piece by piece, up to a size and a multiple of the packed one.
    """
    opener = next((opener for mark, opener in _MARKS.items() if raw.startswith(mark)), None)
    if opener is None and not _is_zip(raw):
        return raw
    try:
        if opener is not None:
            with opener(io.BytesIO(raw)) as stream:
                found = _content(path, stream, len(raw))
        else:
            found = _only_file(path, raw)
    except HoimError:
        raise
    except DAMAGED as error:
        problem = f"damaged packed file ({' '.join(str(error).split())})"
        raise refused(path, problem, "pack it again, or give the file inside", code="damaged-file") from None
    if is_blank(found):
        raise unexpected(path, "a header and rows", received="an empty file", code="empty")
    if _is_zip(found) or found.startswith(tuple(_MARKS)):
        hint = "unpack it once and give the file inside"
        raise unexpected(path, "a packed table", received="a packed file in a packed file", hint=hint)
    return found


def _content(path: Any, stream: Any, packed: int) -> bytes:
    """All bytes of a packed stream."""
    pieces: list[bytes] = []
    size = 0
    while piece := stream.read(_PIECE):  # of any length in other packings than gzip, hence the small pieces
        pieces.append(piece)
        size += len(piece)
        check_size(path, size)
        check_ratio(path, size, packed)
    return b"".join(pieces)


def _only_file(path: Any, raw: bytes) -> bytes:
    """Content of the one file of a zip archive, under any name; folders and what macOS adds do not count."""
    with zipfile.ZipFile(io.BytesIO(raw)) as held:
        member = _only_member(path, held)
        check_size(path, member.file_size)
        with held.open(member) as stream:
            return _content(path, stream, len(raw))


def _only_member(path: Any, held: zipfile.ZipFile) -> zipfile.ZipInfo:
    files = [i for i in held.infolist() if not i.filename.startswith("__MACOSX") and i.filename[-1:] != "/"]
    if len(files) != 1:
        hint = "unpack it and give one of them"
        raise unexpected(path, "one file in the archive", received=len(files), hint=hint)
    return files[0]


def open_unpacked(path: str) -> BinaryIO:
    """A file as it is, or what it holds where it is packed, which is unpacked as it is read."""
    with open(path, "rb") as stream:
        head = stream.read(8)
    if (opener := next((opener for mark, opener in _MARKS.items() if head.startswith(mark)), None)) is not None:
        return cast(BinaryIO, opener(path))
    if _is_zip(head):
        held = zipfile.ZipFile(path)
        return cast(BinaryIO, held.open(_only_member(path, held)))
    if path.lower().endswith((".zst", ".lz4")):
        from pyarrow import input_stream

        return cast(BinaryIO, input_stream(path, compression="detect"))
    return open(path, "rb")
