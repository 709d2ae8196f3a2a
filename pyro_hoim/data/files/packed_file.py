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
from .source_file import check_ratio, check_size, not_empty

__all__ = ["DAMAGED", "is_excel", "open_unpacked", "unpacked"]

_PIECE = 2**12
_ZIP = b"PK\x03\x04"
_MARKS = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\x00": lzma.open}
DAMAGED = (OSError, EOFError, lzma.LZMAError, zlib.error, zipfile.BadZipFile, ValueError, RuntimeError)


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
        pieces, size = list[bytes](), 0
        while piece := stream.read(_PIECE):  # of any length in other packings than gzip, hence the small pieces
            pieces.append(piece)
            size += len(piece)
            check_size(path, size)
            check_ratio(path, size, len(raw))
    except HoimError:
        raise
    except DAMAGED as error:
        problem = f"damaged packed file ({' '.join(str(error).split())})"
        raise refused(path, problem, "pack it again, or give the file inside", code="damaged-file") from None
    found = not_empty(path, b"".join(pieces))
    if found.startswith((_ZIP, *_MARKS)):
        hint = "unpack it once and give the file inside"
        raise unexpected(path, "a packed table", received="a packed file in a packed file", hint=hint)
    return found


def _opened(path: Any, source: Any, head: bytes) -> BinaryIO | None:
    """What a packed file holds, of a zip archive its one file, beside folders and what macOS adds; None for others."""
    if not head.startswith(_ZIP):
        opener = next((opener for mark, opener in _MARKS.items() if head.startswith(mark)), None)
        return None if opener is None else cast(BinaryIO, opener(source))
    held = zipfile.ZipFile(source)
    files = [i for i in held.infolist() if not i.filename.startswith("__MACOSX") and i.filename[-1:] != "/"]
    if len(files) != 1:
        hint = "unpack it and give one of them"
        raise unexpected(path, "one file in the archive", received=len(files), hint=hint)
    return cast(BinaryIO, held.open(files[0]))


def open_unpacked(path: str) -> BinaryIO:
    """A file as it is, or what it holds where it is packed, which is unpacked as it is read."""
    with open(path, "rb") as stream:
        packed = _opened(path, path, stream.read(8))
    if packed is None and path.lower().endswith((".zst", ".lz4")):
        from pyarrow import input_stream

        return cast(BinaryIO, input_stream(path, compression="detect"))
    return packed or open(path, "rb")
