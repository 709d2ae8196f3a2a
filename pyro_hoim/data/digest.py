"""One number that says whether two tables hold the same rows."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np
from scipy import sparse

from .counts import CountTable
from .observations import Observations

__all__ = ["digest"]


def digest(rows: Observations | CountTable) -> str:
    """SHA-256 of names, labels, cells and counts of a table in their order, as 64 hexadecimal digits."""
    if isinstance(rows, Observations):
        head: list[Any] = [[variable.name, list(variable.labels)] for variable in rows.domain]
        cells = [rows.codes.numpy().astype(np.int64), rows.counts.numpy().astype(np.float64)]
    else:
        head = list(rows.domain.names)
        matrix = sparse.csr_array(rows.matrix)
        matrix.sum_duplicates()
        cells = [matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64), matrix.data.astype(np.float64)]
    content = hashlib.sha256(json.dumps(head).encode())
    for values in cells:
        content.update(np.ascontiguousarray(values).tobytes())
    return content.hexdigest()
