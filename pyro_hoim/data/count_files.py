"""Reading a sparse matrix and its column names from files, with every fault found and nothing executed."""

from __future__ import annotations

import io
import math
import os
import struct
import tokenize
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from .. import budgets
from ..errors import HoimError, check_unique, out_of_reach, refused, size_text, unexpected
from .files.source_file import DAMAGED, check_bytes, check_ratio, read_file
from .files.text_format import read_text

__all__ = ["read_matrix", "read_names", "repeated_rows"]

_SAVED = "a sparse matrix of scipy.sparse.save_npz"
_MOST_BYTES = 2**31
_MOST_TEXT = 256  # bytes of an array of text
_DAMAGED = (*DAMAGED, TypeError, LookupError, MemoryError, SyntaxError, struct.error, tokenize.TokenError)
"""What NumPy, zipfile and zlib raise on bytes that are no array."""
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
_PARTS = {"csr": ("data", "indices", "indptr"), "csc": ("data", "indices", "indptr"), "coo": ("data", "row", "col")}
_MOST_ROWS = 2**27  # and columns: a GiB of places where each begins
_MOST_CELLS = 2**25


def read_matrix(file: str | os.PathLike[str]) -> Any:
    """The sparse matrix in a file of ``scipy.sparse.save_npz``; arrays that hold Python objects are refused unread.

    Entries of one place are added up, as SciPy does.
    """
    arrays = _ArrayFile(file)
    form, size = arrays.read(format="SU", shape="iu")
    kind = form.tobytes().decode("ascii", "replace") if form.dtype.kind == "S" else str(form)
    if kind not in _PARTS:
        raise unexpected(file, "a sparse matrix of format csr, csc or coo", kind, code="unknown-choice")
    shape = tuple(map(int, size.reshape(-1)[:3]))
    if len(shape) != 2 or min(shape) < 0 or max(shape) > 2**31 - 1:
        raise unexpected(file, "a matrix of rows by columns", received=f"shape {shape}", code="wrong-shape")
    budgets.check_size(max(shape), _MOST_ROWS, "rows or columns", file, "leave out those that are empty")
    first, second = _PARTS[kind][1:]
    data, first, second = arrays.read(**{"data": "biuf", first: "iu", second: "iu"})
    if not data.ndim == first.ndim == second.ndim == 1:
        raise refused(file, "its arrays make no matrix (one is not a list of numbers)", code="damaged-file")
    data = data.astype(np.float64)  # small integers of one place would be added up beyond their range
    if kind != "coo" and ((second[1:] < second[:-1]).any() or (second < 0).any()):
        raise refused(file, "its arrays make no matrix (indptr falls)", code="damaged-file")  # SciPy misses the last
    try:
        if kind == "coo":
            return sparse.csr_matrix((data, (first, second)), shape=shape)
        maker = sparse.csr_matrix if kind == "csr" else sparse.csc_matrix
        matrix = maker((data, first, second), shape=shape)
        matrix.check_format(full_check=True)  # every index, before anything is moved by it
    except (ValueError, TypeError, OverflowError, IndexError) as error:
        problem = f"its arrays make no matrix ({' '.join(str(error).split())})"
        raise refused(file, problem, code="damaged-file") from None
    return sparse.csr_matrix(matrix)


def read_names(file: str | os.PathLike[str], vocab: str | os.PathLike[str] | None, num_columns: int) -> tuple[str, ...]:
    """Column names of a matrix, one a line; blanks around them are removed, and empty lines at the end do not count.

    Without ``vocab`` they are in the file of the same name with ``_vocab.txt``.
    """
    path = Path(file).with_name(f"{Path(file).stem}_vocab.txt") if vocab is None else Path(vocab)
    if vocab is None and not path.exists():
        problem = f"its column names are missing; expected them in {path}, one a line, or another vocab"
        raise refused(file, problem, code="missing-part")
    lines = read_text(path, "a text file of column names").rstrip().split("\n")
    names = tuple(line.strip() for line in lines)
    if "" in names:
        where = f"{path} line {names.index('') + 1}"
        raise unexpected(where, "a name", received="an empty line", code="missing-part")
    if len(names) != num_columns:
        raise unexpected(path, f"{num_columns} names, one a column of {file}", received=len(names), code="wrong-shape")
    check_unique(names, str(path))
    return names


class _ArrayFile:
    """Arrays of at most one dimension in a ``.npz`` file; nothing in it is executed."""

    def __init__(self, file: Any) -> None:
        self.file = file
        raw = read_file(file, "a .npz file")
        self._size = len(raw)
        try:
            self._zip = zipfile.ZipFile(io.BytesIO(raw))
        except _DAMAGED:
            raise refused(file, f"damaged or no .npz file; expected {_SAVED}", code="damaged-file") from None
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
            problem = f"expected {_SAVED}, received arrays {shown} and no {absent[0]!r}"
            raise refused(self.file, problem, code="missing-part")
        try:
            needed = sum(self._judged(*pair) for pair in kinds.items())
            check_bytes(self.file, needed, _MOST_BYTES)
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
            problem = f"holds Python objects, which are never read; expected numbers of {_SAVED}"
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


def repeated_rows(times: np.ndarray, matrix: Any, source: str) -> np.ndarray:
    """Positions of rows, each as often as its count says, refused where they would hold too many values."""
    width = np.diff(matrix.indptr) if sparse.issparse(matrix) else np.full(len(times), matrix.shape[1])
    needed = float(times @ (width + 1.0))
    if needed > _MOST_CELLS:
        made = size_text(int(needed), "values")
        problem = f"repeating the rows as their counts say makes {made}, more than {_MOST_CELLS}"
        raise out_of_reach(source, problem, "give fewer rows")
    return np.repeat(np.arange(len(times)), times.astype(np.int64))
