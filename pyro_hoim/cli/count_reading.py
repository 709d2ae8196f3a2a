"""The rows of counts that ``fit --model grm`` and the commands on its model files work on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from ..data.count_files import read_matrix, read_names
from ..data.counts import CountTable
from ..data.csv_file import read_csv
from ..datasets.classic3 import classic3_info, load_classic3
from ..errors import check_names, conflict, none_received, refused
from ..generalized_root.nodes.families import NodeFamily
from ..report.words import listed, plural
from .reading import parse_columns

__all__ = ["CountSource", "check_support", "read_counts_for", "read_counts_without"]

_LOADERS: dict[str, Callable[[], CountTable]] = {"classic3": load_classic3}


@dataclass(frozen=True)
class CountSource:
    """A table of counts or real numbers and where it comes from.

    Attributes:
        name: short name.
        rows: what is fitted.
        about: sentences on where it comes from.
    """

    name: str
    rows: CountTable
    about: tuple[str, ...] = ()

    @classmethod
    def read(cls, source: str, columns: str | None, vocab: Path | None, family: NodeFamily) -> CountSource:
        """A table by path or name; a file of that name wins.

        Raises:
            InputError: neither a known name nor a readable file, or values that the family does not take.
        """
        path, chosen = Path(source), parse_columns(columns)
        if not path.exists() and source in _LOADERS:
            if vocab is not None:
                raise conflict("--vocab", f"belongs to a .npz file, received the data set {source}")
            rows = _LOADERS[source]()
            rows = rows if chosen is None else rows.columns(chosen)
            found = cls(source, rows, (f"The public data set {source}. Source: {classic3_info().source}.",))
        elif not path.exists():
            problem = f"no such file, nor one of the data sets of counts {', '.join(_LOADERS)}"
            raise refused(source, problem, code="no-file")
        else:
            if path.suffix == ".npz":
                rows = CountTable.from_npz(path, vocab, kind=family.kind, columns=chosen)
            elif vocab is not None:
                raise conflict("--vocab", f"belongs to a .npz file, received {source}, whose header names its columns")
            else:
                rows = CountTable.from_csv(path, kind=family.kind, columns=chosen)
            found = cls(path.stem, rows, (f"Read from {source}.",))
        if not found.rows.num_rows:
            raise none_received(source, "at least one observation")
        check_support(found.rows, family)
        return found

    def told(self) -> tuple[str, ...]:
        """Sentences on what a reader may not expect of the rows."""
        found: list[str] = []
        zero, constant = self.rows.zero_columns, self.rows.constant_columns
        if zero:
            found.append(f"{plural(len(zero), 'column')} without a count, left out of the model: {listed(zero)}.")
        if constant:
            found.append(f"Constant column{'s' * (len(constant) > 1)}: {listed(constant)}.")
        return tuple(found)

    def facts(self) -> dict[str, Any]:
        """Nothing that the fit does not tell."""
        return {}


def check_support(rows: CountTable, family: NodeFamily) -> None:
    """Refuse values that a family does not take, by their place.

    Raises:
        InputError: a value outside the family's support.
    """
    if family.name == "truncated-poisson":
        rows.check_range(0, family.largest_value, f"--family {family.name} with --maximum {family.largest_value:.0f}")
    elif family.name != "gaussian":
        rows.check_range(0, np.inf, f"--family {family.name}")


def read_counts_for(names: tuple[str, ...], file: Path, vocab: Path | None, family: NodeFamily) -> CountTable:
    """Rows of a file with the columns of a model, in their order; other columns are ignored.

    Raises:
        UnknownNameError: a column that the file lacks.
        InputError: an unreadable file, or values that the family does not take.
    """
    table, absent, header = _read(names, file, vocab, family)
    if absent:
        check_names(absent[:1], header, str(file), noun="column")
    return table


def read_counts_without(
    names: tuple[str, ...], file: Path, vocab: Path | None, family: NodeFamily, target: str
) -> tuple[CountTable, bool]:
    """The same of a file that may leave the target out, and whether it holds it; a missing target is all zero.

    Raises:
        UnknownNameError: another column that the file lacks.
        InputError: as :func:`read_counts_for`.
    """
    table, absent, header = _read(names, file, vocab, family)
    others = [name for name in absent if name != target]
    if others:
        check_names(others[:1], header, str(file), noun="column")
    return table, target not in absent


def _read(
    names: tuple[str, ...], file: Path, vocab: Path | None, family: NodeFamily
) -> tuple[CountTable, list[str], tuple[str, ...]]:
    """Rows with the columns that a file has and zero for the others, the names of these, and all that it has."""
    kind = family.kind
    if file.suffix == ".npz":
        matrix = read_matrix(file)
        header = read_names(file, vocab, int(matrix.shape[1]))
        read = partial(CountTable.from_matrix, matrix, header, source=str(file))
    elif vocab is not None:
        raise conflict("--vocab", f"belongs to a .npz file, received {file}, whose header names its columns")
    else:
        cells = read_csv(file)
        header = cells.header
        read = partial(CountTable.from_csv, cells)
    known = set(header)
    held = [name for name in names if name in known]
    absent = [name for name in names if name not in known]
    if not held:
        return CountTable.from_matrix(np.zeros((0, len(names))), names, kind=kind), absent, header
    table = read(kind=kind, columns=held)
    check_support(table, family)
    if absent:
        empty = np.zeros((table.num_rows, len(absent)))
        joined = (
            sparse.hstack([sparse.csr_matrix(table.matrix), empty])
            if kind == "count"
            else np.hstack([table.matrix, empty])
        )
        table = CountTable.from_matrix(joined, [*held, *absent], kind=kind, source=str(file)).columns(names)
    return table, absent, header
