"""Observations of counts and of real numbers: rows by variables, sparse where most counts are zero."""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import struct
import tokenize
import zipfile
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, cast, get_args

import numpy as np
import pandas as pd
import torch
from scipy import sparse

from .. import budgets
from ..checks import array_of
from ..errors import (
    HoimError,
    check_unique,
    none_received,
    other_domain,
    out_of_range,
    out_of_reach,
    refused,
    size_text,
    unexpected,
    wrong_shape,
    wrong_type,
)
from ..schema import Domain, NumberKind, Variable
from .counting import check_split, split_rows
from .encoding import LARGEST_COUNT, parse_counts, parse_numbers, select_columns
from .files.source_file import DAMAGED, check_bytes, check_ratio, read_file
from .files.table_file import CsvColumns, read_table_file
from .files.text_format import read_text
from .observations import Observations
from .readers import Source, row_position

# Reading a sparse matrix and its column names from files, with every fault found and nothing executed.

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
    # Format and shape first: what they say limits what is read at all.
    arrays = _ArrayFile(file)
    form, size = arrays.read(format="SU", shape="iu")
    kind = form.tobytes().decode("ascii", "replace") if form.dtype.kind == "S" else str(form)
    if kind not in _PARTS:
        raise unexpected(file, "a sparse matrix of format csr, csc or coo", kind, code="unknown-choice")
    shape = tuple(map(int, size.reshape(-1)[:3]))
    if len(shape) != 2 or min(shape) < 0 or max(shape) > 2**31 - 1:
        raise unexpected(file, "a matrix of rows by columns", received=f"shape {shape}", code="wrong-shape")
    budgets.check_size(max(shape), _MOST_ROWS, "rows or columns", file, "leave out those that are empty")
    # The entries, judged before SciPy moves anything by them.
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
    # One name a line, each of them there and different.
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
        """Arrays by their names, each of one of some kinds of NumPy's types; all headers are read before any number."""
        # Every array has to be there before one is read.
        if absent := [name for name in kinds if f"{name}.npy" not in self._times]:
            names = sorted(" ".join(name.removesuffix(".npy").split()) for name in self._times)
            shown = ", ".join(name if name.isprintable() else repr(name) for name in names[:6]) or "nothing"
            problem = f"expected {_SAVED}, received arrays {shown} and no {absent[0]!r}"
            raise refused(self.file, problem, code="missing-part")
        try:
            # Sizes are judged by the headers, before memory is taken for them.
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
        # One plain array by that name, packed as NumPy packs.
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
        # Its type and size are what the format asks for, and what the file holds.
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
            array = np.lib.format.read_array(stream, allow_pickle=False)
            if stream.read(1):  # and the checksum is verified
                raise ValueError(f"{name!r} holds more than it says")
        return array.astype(array.dtype.newbyteorder("="), copy=False)  # in the order of bytes of this machine


def repeated_rows(times: np.ndarray, matrix: Any, source: str) -> np.ndarray:
    """Positions of rows, each as often as its count says, refused where they would hold too many values."""
    width = np.diff(matrix.indptr) if sparse.issparse(matrix) else np.full(len(times), matrix.shape[1])
    needed = float(times @ (width + 1.0))
    if needed > _MOST_CELLS:
        made = size_text(int(needed), "values")
        problem = f"repeating the rows as their counts say makes {made}, more than {_MOST_CELLS}"
        raise out_of_reach(source, problem, "give fewer rows")
    return np.repeat(np.arange(len(times)), times.astype(np.int64))


@dataclass(frozen=True, eq=False)
class CountTable:
    r"""Rows of counts (or of real numbers), one column a variable; complete, every row one observation.

    Counts are a SciPy CSR matrix of float64 with sorted indices and no stored zero; real numbers are a dense float64
    array. Of zero columns (:attr:`zero_columns`) the Poisson estimate is :math:`\psi_s = -\infty`. Do not write to it.

    Args:
        domain: the variables, all of one kind: ``count``, ``positive`` or ``real``.
        matrix: a SciPy sparse matrix, an array or a tensor, (N, d); N may be 0.
        source: what the rows were read from, for messages.
        lines: line of every row in a file, for messages.

    Raises:
        InputError: wrong shape; NaN or an infinity; a count that is negative, fractional or above 2^53 - 1, with its
            row and column; variables of mixed or finite kinds.
        InputTypeError: ``matrix`` holds no numbers; MissingDataError: masked cells.

    Example:
        >>> table = CountTable.from_matrix([[2, 0], [1, 0], [0, 0]], names=["word", "rare"])
        >>> table.num_rows, table.totals.tolist(), table.zero_columns
        (3, [3.0, 0.0], ('rare',))
    """

    domain: Domain
    matrix: Any
    source: str = "the table"
    lines: Sequence[int] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        kinds = {variable.kind for variable in self.domain}
        if len(kinds) > 1 or not kinds <= set(get_args(NumberKind)):
            expected = "variables of kind 'count', all of kind 'positive' or all of kind 'real'"
            raise other_domain("CountTable domain", expected, received=sorted(kinds))
        matrix: Any = _as_numbers(self.matrix, self.source)
        if sparse.issparse(matrix):
            matrix = cast(Any, _as_counts(matrix))
        if matrix.shape[1] != len(self.domain):
            raise wrong_shape("CountTable matrix", f"(rows, {len(self.domain)})", matrix)
        self._check_cells(matrix)
        object.__setattr__(self, "matrix", _as_counts(matrix) if self.kind == "count" else _as_dense(matrix))

    def _check_cells(self, matrix: Any) -> None:
        """Raise :class:`InputError` for the first cell that is no value of its variable."""
        values: np.ndarray = matrix.data if sparse.issparse(matrix) else matrix
        with np.errstate(invalid="ignore"):
            bad = ~np.isfinite(values)
            if self.kind != "real":
                bad |= values < 0
            if self.kind == "count":
                bad |= (values > LARGEST_COUNT) | (values != np.floor(values))
        # The first bad cell is named by its row and column.
        if bad.any():
            first = int(np.flatnonzero(bad)[0])
            row, column = _place(matrix, first)
            value = values.reshape(-1)[first]
            more = f" ({bad.sum()} such cells)" if bad.sum() > 1 else ""
            expected = {"count": f"a whole number from 0 to {LARGEST_COUNT}", "positive": "a finite number from 0"}
            wanted = expected.get(self.kind, "a finite number")
            raise out_of_range(self.where(row, column), wanted, received=f"{value:.17g}{more}")

    def where(self, row: int, column: int) -> str:
        """Words for the position of a cell."""
        name = self.domain.names[column]
        if self.lines is not None:
            return f"{self.source} line {self.lines[row]}, column {name!r}"
        return f"{self.source}, {row_position(row)}, column {name!r}"

    @classmethod
    def from_matrix(
        cls,
        matrix: Any,
        names: Sequence[str] | None = None,
        *,
        kind: NumberKind = "count",
        columns: Sequence[str] | int | None = None,
        source: str = "the matrix",
    ) -> CountTable:
        """Rows from a SciPy sparse matrix, an array or a tensor (N, d); refused as in the constructor.

        Args:
            matrix: the numbers.
            names: of the columns, all different; ``x0``, ``x1``, ... when left out.
            kind: ``count``, ``positive`` or ``real``.
            columns: names to keep, or how many from the left; default all.
            source: what is read, for messages.
        """
        numbers = _as_numbers(matrix, source)
        header = [f"x{i}" for i in range(numbers.shape[1])] if names is None else [str(name) for name in names]
        if len(header) != numbers.shape[1]:
            expected = f"{numbers.shape[1]}, one a column"
            raise unexpected(f"{source} names", expected, received=len(header), code="wrong-shape")
        check_unique(header, f"{source} names")
        chosen = select_columns(header, columns, exclude=(), source=source)
        if chosen != header:
            position = {name: i for i, name in enumerate(header)}
            numbers = numbers[:, [position[name] for name in chosen]]
        return cls(Domain(Variable(name, kind=kind) for name in chosen), numbers, source)

    @classmethod
    def from_npz(
        cls,
        file: str | os.PathLike[str],
        vocab: str | os.PathLike[str] | None = None,
        *,
        kind: NumberKind = "count",
        columns: Sequence[str] | int | None = None,
    ) -> CountTable:
        """Rows from a file that ``scipy.sparse.save_npz`` wrote; other arguments as :meth:`from_matrix`.

        The column names are in the text file ``vocab``, one a line; by default ``FILE_vocab.txt`` for ``FILE.npz``.
        Nothing in the file is executed: pickled arrays are refused, as are damaged files and names of another number.
        """
        matrix = read_matrix(file)
        names = read_names(file, vocab, int(matrix.shape[1]))
        return cls.from_matrix(matrix, names, kind=kind, columns=columns, source=str(file))

    @classmethod
    def from_csv(
        cls,
        path: str | os.PathLike[str] | CsvColumns,
        *,
        kind: NumberKind = "count",
        count: str | None = "count",
        columns: Sequence[str] | int | None = None,
        sep: str | None = None,
        encoding: str | None = None,
    ) -> CountTable:
        r"""Rows from a file (see :func:`~pyro_hoim.data.read_table_file`) with a header and numbers below it.

        A column named ``count`` says how often its row was seen, and the row is repeated as often.

        Args:
            path: the file, or its cells where they have been read already.
            kind: ``count``, ``positive`` or ``real``.
            count: name of the column of repetitions; the default may be absent; None for no such column.
            columns: names to keep, or how many from the left.
            sep: the character between cells; None finds it.
            encoding: of the text; None finds it.

        Raises:
            MissingDataError: empty cells, with their number.
            InputError: an unreadable file, text among the numbers, or cells that are refused, with line and column.
        """
        read = path if isinstance(path, CsvColumns) else read_table_file(path, sep=sep, encoding=encoding)
        return cls._from_columns(Source.of_csv(read), kind, count, columns, read.lines)

    @classmethod
    def from_pandas(
        cls,
        frame: pd.DataFrame,
        *,
        kind: NumberKind = "count",
        count: str | None = "count",
        columns: Sequence[str] | int | None = None,
    ) -> CountTable:
        """Rows from a data frame of numbers; arguments and errors as :meth:`from_csv`."""
        return cls._from_columns(Source.of_frame(frame), kind, count, columns)

    @classmethod
    def _from_columns(
        cls,
        table: Source,
        kind: NumberKind,
        count: str | None,
        columns: Sequence[str] | int | None,
        lines: Sequence[int] | None = None,
    ) -> CountTable:
        header, column, source, where, _ = table
        if count == "count" and count not in header:
            count = None
        names = select_columns(header, columns, exclude=() if count is None else (count,), source=source)
        if not names:
            raise none_received(source, "at least one variable besides the counts")
        # Numbers first; repetitions are written out once all cells are known to be good.
        cells = parse_numbers({name: column(name) for name in names}, source=source, where=where)
        domain = Domain(Variable(name, kind=kind) for name in names)
        if count is None:
            return cls(domain, cells, source, lines)
        times = parse_counts(column(count), name=f"column {count!r}", where=where, fractional=False)
        whole = cls(domain, cells, source, lines)  # cells are judged before rows are repeated
        return whole.rows(repeated_rows(times, whole.matrix, source))

    @property
    def kind(self) -> NumberKind:
        """Kind of the variables: ``count`` (also without any), ``positive`` or ``real``."""
        return cast(NumberKind, next((variable.kind for variable in self.domain), "count"))

    @property
    def num_rows(self) -> int:
        """Number of observations."""
        return int(self.matrix.shape[0])

    @property
    def total_count(self) -> float:
        """Number of observations, as :class:`~pyro_hoim.data.Observations` names it."""
        return float(self.num_rows)

    @cached_property
    def totals(self) -> np.ndarray:
        """Sum of every column, (d,) float64."""
        return np.asarray(self.matrix.sum(axis=0), dtype=np.float64).reshape(-1)

    def entropy(self) -> float | None:
        """Entropy of the empirical law of counts, nats; None for no rows, and for numbers, whose law has a density."""
        if self.kind != "count" or not self.num_rows:
            return None
        matrix = self.matrix
        times: dict[tuple[bytes, bytes], int] = {}
        for start, stop in zip(matrix.indptr[:-1], matrix.indptr[1:], strict=True):
            key = (matrix.indices[start:stop].tobytes(), matrix.data[start:stop].tobytes())
            times[key] = times.get(key, 0) + 1
        probs = np.array(list(times.values())) / self.num_rows
        return -math.fsum(probs * np.log(probs)) + 0.0

    @cached_property
    def _extremes(self) -> tuple[np.ndarray, np.ndarray]:
        if not self.num_rows:
            return np.zeros(len(self.domain)), np.zeros(len(self.domain))
        low, high = self.matrix.min(axis=0), self.matrix.max(axis=0)
        return _as_dense(low).reshape(-1), _as_dense(high).reshape(-1)

    @property
    def zero_columns(self) -> tuple[str, ...]:
        """Variables that are zero in every row."""
        return tuple(name for name, *ends in zip(self.domain.names, *self._extremes, strict=True) if ends == [0, 0])

    @property
    def constant_columns(self) -> tuple[str, ...]:
        """Variables with one value in every row, zero columns left out."""
        low, high = self._extremes
        return tuple(self.domain.names[i] for i in np.flatnonzero((low == high) & (low != 0)))

    def __repr__(self) -> str:
        non_zero = f", {self.matrix.nnz} non-zero" if sparse.issparse(self.matrix) else ""
        return f"CountTable({len(self.domain)} variables of kind {self.kind}, {self.num_rows} rows{non_zero})"

    def columns(self, chosen: Iterable[str] | int) -> CountTable:
        """Some variables only: names, or how many from the left."""
        wanted: Any = chosen if isinstance(chosen, (int, np.integer, str)) else list(chosen)
        names = select_columns(self.domain.names, wanted, exclude=(), source=self.source)
        positions = list(self.domain.indices(names))
        domain = Domain(self.domain[name] for name in names)
        return CountTable(domain, self.matrix[:, positions], self.source, self.lines)

    def rows(self, index: Any) -> CountTable:
        """Rows at the given positions (M,), which may repeat, or where a mask (N,) is true."""
        positions = np.asarray(index)
        if positions.dtype == bool:
            positions = np.flatnonzero(positions)
        lines = None if self.lines is None else tuple(np.asarray(self.lines, dtype=np.int64)[positions].tolist())
        return CountTable(self.domain, self.matrix[positions], self.source, lines)

    def split(self, fractions: Sequence[float], seed: int) -> tuple[CountTable, ...]:
        """Random disjoint parts of the rows; arguments, errors and randomness as :meth:`Observations.split`."""
        shares = check_split(fractions, seed)
        return tuple(self.rows(positions) for positions, _ in split_rows(np.ones(self.num_rows), shares, int(seed)))

    def check_range(self, low: float, high: float, reason: str) -> None:
        """Raise :class:`InputError` for a value below ``low`` or above ``high``, which ``reason`` asks for."""
        least, most = self._extremes
        outside = np.flatnonzero((least < low) | (most > high))
        if self.num_rows and len(outside):
            column = int(outside[0])
            values = self.column(self.domain.names[column])
            row = int(np.flatnonzero((values < low) | (values > high))[0])
            bounds = f"of at least {low:g}" if math.isinf(high) else f"from {low:g} to {high:g}"
            problem = f"{reason} takes numbers {bounds}, received {values[row]:.15g}"
            raise refused(self.where(row, column), problem, code="out-of-range")

    def column(self, name: str) -> np.ndarray:
        """Values of one variable, (N,) float64."""
        position = self.domain.index(name)
        if sparse.issparse(self.matrix):
            return self.matrix[:, [position]].toarray().reshape(-1)
        return self.matrix[:, position].copy()

    def to_array(self, *, max_cells: int = 2**28) -> np.ndarray:
        """All values as a dense array (N, d) float64; IntractableError for more than ``max_cells`` cells."""
        needed = self.num_rows * len(self.domain)
        if needed > max_cells:
            problem = f"{size_text(needed, 'cells')} are needed, more than max_cells={max_cells}"
            raise out_of_reach("to_array", problem, "take fewer columns or rows, or raise max_cells")
        return self.matrix.toarray() if sparse.issparse(self.matrix) else self.matrix.copy()

    def to_tensor(self, *, max_cells: int = 2**28) -> torch.Tensor:
        """All values as a dense tensor, (N, d) float64; errors as :meth:`to_array`."""
        return torch.from_numpy(self.to_array(max_cells=max_cells))

    def to_pandas(self) -> pd.DataFrame:
        """Data frame with a column a variable; counts are integers."""
        values = self.to_array().astype(np.int64 if self.kind == "count" else np.float64)
        return pd.DataFrame(values, columns=list(self.domain.names))


def _as_numbers(matrix: Any, source: str) -> Any:
    """A copy as two-dimensional array or SciPy CSR matrix of float64, checked for being numbers only."""
    numbers = matrix if sparse.issparse(matrix) else array_of(matrix, source)
    if numbers.dtype.kind not in "biuf":
        raise wrong_type(source, "numbers", received=f"an array of {numbers.dtype}")
    if numbers.ndim != 2:
        raise wrong_shape(source, "(rows, variables)", numbers)
    if sparse.issparse(numbers):
        return sparse.csr_matrix(numbers).astype(np.float64)
    return numbers.astype(np.float64)


def _place(matrix: Any, position: int) -> tuple[int, int]:
    """Row and column of a stored value."""
    if sparse.issparse(matrix):
        row = int(np.searchsorted(matrix.indptr, position, side="right")) - 1
        return row, int(matrix.indices[position])
    return int(position // matrix.shape[1]), int(position % matrix.shape[1])


def _as_counts(matrix: Any) -> sparse.csr_matrix:
    """CSR matrix without repeated or zero entries, indices sorted; a CSR matrix is changed in place."""
    counts = sparse.csr_matrix(matrix)
    counts.sum_duplicates()
    counts.eliminate_zeros()
    return counts


def _as_dense(matrix: Any) -> np.ndarray:
    """The numbers of a sparse or dense matrix as an array."""
    return matrix.toarray() if sparse.issparse(matrix) else matrix


# One number that says whether two tables hold the same rows.


def kind_of_table(domain: Domain) -> NumberKind:
    """The kind as which a table with the columns of a model is read: theirs, or of several the one that holds all.

    Without any they are counts.

    Example:
        >>> kind_of_table(Domain([Variable("visits", kind="count"), Variable("weight", kind="positive")]))
        'real'
    """
    kinds = list(dict.fromkeys(variable.kind for variable in domain))
    return "real" if len(kinds) > 1 else cast(NumberKind, kinds[0] if kinds else "count")


def digest(rows: Observations | CountTable) -> str:
    """SHA-256 of names, labels, cells and counts of a table in their order, as 64 hexadecimal digits."""
    if isinstance(rows, Observations):
        head: list[Any] = [[variable.name, list(variable.labels)] for variable in rows.domain]
        cells = chain(rows.code_bytes(), [rows.counts.numpy().tobytes()])
    else:
        head = list(rows.domain.names)
        matrix = sparse.csr_array(rows.matrix)
        matrix.sum_duplicates()
        arrays = matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64), matrix.data.astype(np.float64)
        cells = (values.tobytes() for values in arrays)
    content = hashlib.sha256(json.dumps(head).encode())
    for part in cells:
        content.update(part)
    return content.hexdigest()
