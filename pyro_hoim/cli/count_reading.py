"""The rows of counts that ``fit --model grm`` and the commands on its model files work on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
from scipy import sparse

from ..core.words import listed, plural
from ..data.count_files import read_matrix, read_names
from ..data.counts import CountTable
from ..data.csv_file import read_csv
from ..datasets.classic3 import classic3_info, load_classic3
from ..errors import check_names, conflict, none_received, refused
from ..generalized_root.nodes.families import NodeFamily
from ..schema import Domain, NumberKind
from .reading import parse_columns

__all__ = ["CountSource", "check_support", "read_counts"]

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
        """A table by path or name; a file of that name wins."""
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
    """Refuse values that a family does not take, by their place."""
    if family.name == "truncated-poisson":
        rows.check_range(0, family.largest_value, f"--family {family.name} with --maximum {family.largest_value:.0f}")
    elif family.name != "gaussian":
        rows.check_range(0, np.inf, f"--family {family.name}")


def read_counts(domain: Domain, file: Path, vocab: Path | None, optional: str | None = None) -> tuple[CountTable, bool]:
    """Rows of a file with the columns of a model, in their order, and whether the optional one is among them.

    Args:
        domain: of the model; other columns of the file are ignored.
        file: the rows.
        vocab: names of the columns of a ``.npz`` file.
        optional: a column that the file may leave out; it is zero then.
    """
    kind = cast(NumberKind, next((v.kind for v in domain), "count"))
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
    absent = [name for name in domain.names if name not in known]
    wanted = [name for name in absent if name != optional]
    if wanted:
        check_names(wanted[:1], header, str(file), noun="column")
    held = [name for name in domain.names if name in known]
    if not held:
        return CountTable.from_matrix(np.zeros((0, len(domain))), domain.names, kind=kind), False
    table = read(kind=kind, columns=held)
    if not absent:
        return table, True
    empty = np.zeros((table.num_rows, len(absent)))
    is_sparse = kind == "count"
    joined = sparse.hstack([sparse.csr_matrix(table.matrix), empty]) if is_sparse else np.hstack([table.matrix, empty])
    return CountTable.from_matrix(joined, [*held, *absent], kind=kind, source=str(file)).columns(domain.names), False
