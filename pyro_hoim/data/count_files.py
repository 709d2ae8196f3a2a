"""Reading a sparse matrix and its column names from files, with every fault found and nothing executed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from ..budgets import check_size
from ..errors import check_unique, out_of_reach, refused, size_text, unexpected
from .files.array_file import ArrayFile
from .files.text_format import read_text

__all__ = ["read_matrix", "read_names", "repeated_rows"]

_PARTS = {"csr": ("data", "indices", "indptr"), "csc": ("data", "indices", "indptr"), "coo": ("data", "row", "col")}
_MOST_ROWS = 2**27  # and columns: a GiB of places where each begins
_MOST_CELLS = 2**25


def read_matrix(file: str | os.PathLike[str]) -> Any:
    """The sparse matrix in a file of ``scipy.sparse.save_npz``; arrays that hold Python objects are refused unread.

    Entries of one place are added up, as SciPy does.
    """
    held = ArrayFile(file, "a sparse matrix of scipy.sparse.save_npz")
    form, size = held.read(format="SU", shape="iu")
    kind = form.tobytes().decode("ascii", "replace") if form.dtype.kind == "S" else str(form)
    if kind not in _PARTS:
        raise unexpected(file, "a sparse matrix of format csr, csc or coo", kind, code="unknown-choice")
    shape = tuple(map(int, size.reshape(-1)[:3]))
    if len(shape) != 2 or min(shape) < 0 or max(shape) > 2**31 - 1:
        raise unexpected(file, "a matrix of rows by columns", received=f"shape {shape}", code="wrong-shape")
    check_size(max(shape), _MOST_ROWS, "rows or columns", file, "leave out those that are empty")
    first, second = _PARTS[kind][1:]
    data, first, second = held.read(**{"data": "biuf", first: "iu", second: "iu"})
    if not data.ndim == first.ndim == second.ndim == 1:
        raise refused(file, "its arrays make no matrix (one is not a list of numbers)", code="damaged-file")
    data = data.astype(np.float64)  # small integers of one place would be added up beyond their range
    if kind != "coo" and ((second[1:] < second[:-1]).any() or (second < 0).any()):
        raise refused(file, "its arrays make no matrix (indptr falls)", code="damaged-file")  # SciPy misses the last
    try:
        if kind == "coo":
            return sparse.csr_matrix((data, (first, second)), shape=shape)
        maker = sparse.csr_matrix if kind == "csr" else sparse.csc_matrix
        found = maker((data, first, second), shape=shape)
        found.check_format(full_check=True)  # every index, before anything is moved by it
    except (ValueError, TypeError, OverflowError, IndexError) as error:
        problem = f"its arrays make no matrix ({' '.join(str(error).split())})"
        raise refused(file, problem, code="damaged-file") from None
    return sparse.csr_matrix(found)


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


def repeated_rows(times: np.ndarray, matrix: Any, source: str) -> np.ndarray:
    """Positions of rows, each as often as its count says, refused where they would hold too many values."""
    width = np.diff(matrix.indptr) if sparse.issparse(matrix) else np.full(len(times), matrix.shape[1])
    needed = float(times @ (width + 1.0))
    if needed > _MOST_CELLS:
        made = size_text(int(needed), "values")
        problem = f"repeating the rows as their counts say makes {made}, more than {_MOST_CELLS}"
        raise out_of_reach(source, problem, "give fewer rows")
    return np.repeat(np.arange(len(times)), times.astype(np.int64))
