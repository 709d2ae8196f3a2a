"""Which rows of a file a model has seen: ``fit`` leaves its split in the model file, other commands read it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
from scipy import sparse

from ..core.command.rows import Fractions
from ..core.words import whole
from ..data.counts import CountTable
from ..data.observations import Observations
from ..runs.container import add_info

__all__ = ["digest", "keep_split", "score_seen", "seen_lines"]

_Rows = TypeVar("_Rows", Observations, CountTable)
_TOLD = {"train": "fitted to", "validation": "that chose between models", "test": "not seen"}


def keep_split(folder: Path, rows: Observations | CountTable, fractions: Fractions, seed: int) -> None:
    """Add to every model file of a folder how all rows, in the order of the file, were split, and their digest."""
    split = {"fractions": list(fractions), "seed": seed, "rows": whole(rows.total_count), "digest": digest(rows)}
    for path in sorted(folder.glob("*.safetensors")):
        add_info(path, {"split": split})


def score_seen(
    info: Mapping[str, Any], rows: _Rows, score: Callable[[_Rows], dict[str, float | None]]
) -> dict[str, dict[str, float | None]] | None:
    """``rows`` and figures of the parts that rows fell into when the model was fitted; None for rows of another file.

    Where rows with missing cells are not those of the split, the complete ones are tried.
    """
    split: dict[str, Any] | None = info.get("split")
    if split is None:
        return None
    if isinstance(rows, Observations) and rows.has_missing and digest(rows) != split["digest"]:
        is_complete = (rows.codes >= 0).all(1)
        rows = cast(_Rows, Observations(rows.domain, rows.codes[is_complete], rows.counts[is_complete]))
    if digest(rows) != split["digest"]:
        return None
    parts = zip(_TOLD, cast("tuple[_Rows, ...]", rows.split(split["fractions"], split["seed"])), strict=True)
    return {name: {"rows": whole(part.total_count), **score(part)} for name, part in parts if part.total_count > 0}


def seen_lines(parts: Mapping[str, Mapping[str, float | None]] | None, *labels: str) -> list[str]:
    """Lines for a reader: which rows the model has seen, with some of their figures; none for another file."""
    if parts is None:
        return []
    lines = ["this is the file that the model was fitted from:"]
    for name, found in parts.items():
        shown = ", ".join(_figure(found, label) for label in labels)
        lines.append(f"  {found['rows']:,} rows {_TOLD[name]}: {shown}")
    return lines


def _figure(found: Mapping[str, float | None], label: str) -> str:
    value, error = found[label], found.get(f"{label}_std_error")
    shown = "not available" if value is None else f"{value:.4f}"
    return f"{label.replace('_', '-')} {shown}" + ("" if error is None else f" (standard error {error:.2g})")


def digest(rows: Observations | CountTable) -> str:
    """Digest of names, labels and cells of a table in their order."""
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
    return content.hexdigest()[:32]
