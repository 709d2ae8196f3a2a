"""NumPy's files of several arrays, whose sizes and types are judged before any number is read."""

from __future__ import annotations

import io
import math
import struct
import tokenize
import zipfile
from collections import Counter
from typing import Any

import numpy as np

from ...errors import HoimError, refused, unexpected
from .packed_file import DAMAGED
from .source_file import check_ratio, check_size, read_file

__all__ = ["ArrayFile"]

_MOST_BYTES = 2**31
_MOST_TEXT = 256  # bytes of an array of text
_DAMAGED = (*DAMAGED, TypeError, LookupError, MemoryError, SyntaxError, struct.error, tokenize.TokenError)
"""What NumPy, zipfile and zlib raise on bytes that are no array."""
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


class ArrayFile:
    """Arrays of at most one dimension in a ``.npz`` file (what is ``expected``); nothing in it is executed."""

    def __init__(self, file: Any, expected: str) -> None:
        self.file, self.expected = file, expected
        raw = read_file(file, "a .npz file")
        self._size = len(raw)
        try:
            self._zip = zipfile.ZipFile(io.BytesIO(raw))
        except _DAMAGED:
            raise refused(file, f"damaged or no .npz file; expected {expected}", code="damaged-file") from None
        self._times = Counter(self._zip.namelist())

    def read(self, **kinds: str) -> list[np.ndarray]:
        """Arrays by their names, each of one of some kinds of NumPy's types; all headers are read before any number.

        Raises:
            InputError: an array is absent, of another kind, or not as long as it says.
            IntractableError: the arrays are too large, or so much larger than the file that it must be a bomb.
        """
        if absent := [name for name in kinds if f"{name}.npy" not in self._times]:
            names = sorted(" ".join(name.removesuffix(".npy").split()) for name in self._times)
            shown = ", ".join(name if name.isprintable() else repr(name) for name in names[:6]) or "nothing"
            problem = f"expected {self.expected}, received arrays {shown} and no {absent[0]!r}"
            raise refused(self.file, problem, code="missing-part")
        try:
            needed = sum(self._judged(*pair) for pair in kinds.items())
            check_size(self.file, needed, _MOST_BYTES)
            check_ratio(self.file, needed, self._size)
            return [self._array(name) for name in kinds]
        except HoimError:
            raise
        except _DAMAGED as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            raise refused(self.file, f"damaged .npz file ({reason})", code="damaged-file") from None

    def _judged(self, name: str, kinds: str) -> int:
        """Bytes of an array, refused unless it is plain and as long as it says."""
        info = self._zip.getinfo(f"{name}.npy")
        if self._times[info.filename] > 1:
            raise refused(self.file, f"holds {name!r} several times", code="repeated-name")
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ValueError(f"{name!r} is packed as NumPy does not")
        with self._zip.open(info) as stream:
            shape, _, dtype = _HEADERS[np.lib.format.read_magic(stream)](stream)
            start = stream.tell()
        if dtype.hasobject:
            problem = f"holds Python objects, which are never read; expected numbers of {self.expected}"
            raise refused(self.file, problem, code="damaged-file")
        needed = math.prod(shape) * dtype.itemsize
        if dtype.kind not in kinds or len(shape) > 1 or ("S" in kinds and needed > _MOST_TEXT):
            expected = "a word" if "S" in kinds else "numbers" if "f" in kinds else "whole numbers"
            expected, received = f"{expected} in one row as {name}", f"{dtype} of shape {shape}"
            raise unexpected(self.file, expected, received=received, code="wrong-type")
        if min(shape, default=0) < 0 or start + needed != info.file_size:
            raise ValueError(f"{name!r} says {needed} bytes and holds {info.file_size - start}")
        return needed

    def _array(self, name: str) -> np.ndarray:
        with self._zip.open(f"{name}.npy") as stream:
            found = np.lib.format.read_array(stream, allow_pickle=False)
            if stream.read(1):  # and the checksum is verified
                raise ValueError(f"{name!r} holds more than it says")
        return found.astype(found.dtype.newbyteorder("="), copy=False)  # in the order of bytes of this machine
