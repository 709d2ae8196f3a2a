"""The rows of counts or real numbers that the commands on a model file work on."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import cast

import numpy as np
from scipy import sparse

from ..data.count_files import read_matrix, read_names
from ..data.counts import CountTable
from ..data.csv_file import read_csv
from ..errors import check_names, conflict
from ..schema import Domain, NumberKind

__all__ = ["read_counts"]


def read_counts(domain: Domain, file: Path, vocab: Path | None, optional: str | None = None) -> tuple[CountTable, bool]:
    """Rows of a file with the columns of a model, in their order, and whether the optional one, else zero, is there.

    Other columns of the file are ignored; ``vocab`` names those of a ``.npz`` file.
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
