"""Which rows of a file a model has seen: ``fit`` leaves its split in the model file, other commands read it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

from ..core.command.rows import Fractions
from ..core.family import Source, families
from ..core.words import whole
from ..data.counts import CountTable, digest
from ..data.observations import Observations
from ..families import add_info
from ..runs.container import read_kind

__all__ = ["keep_split", "score_seen", "seen_lines"]

_Rows = TypeVar("_Rows", Observations, CountTable)
_DIGITS = 32  # of the digest in a model file
_TOLD = {"train": "fitted to", "validation": "that chose between models", "test": "not seen"}


def keep_split(folder: Path, source: Source, fractions: Fractions, seed: int) -> None:
    """Add to every model file of a folder how all rows, in the order of the file, were read and split."""
    rows = source.rows
    split = {
        "fractions": list(fractions),
        "seed": seed,
        "rows": whole(rows.total_count),
        "digest": digest(rows)[:_DIGITS],
    }
    kinds = {family.kind for family in families()}
    for path in sorted(folder.glob("*.safetensors")):
        if read_kind(path) in kinds:  # a posterior over structure is not the file of a model
            add_info(path, {"split": split, **source.kept})


def score_seen(
    info: Mapping[str, Any], rows: _Rows, score: Callable[[_Rows], dict[str, float | None]]
) -> dict[str, dict[str, float | None]] | None:
    """``rows`` and figures of the parts that rows fell into when the model was fitted; None for rows of another file.

    Where rows with missing cells are not those of the split, the complete ones are tried.
    """
    split: dict[str, Any] | None = info.get("split")
    if split is None:
        return None
    if isinstance(rows, Observations) and rows.has_missing and digest(rows)[:_DIGITS] != split["digest"]:
        is_complete = (rows.codes >= 0).all(1)
        rows = cast(_Rows, rows.rows(is_complete))
    if digest(rows)[:_DIGITS] != split["digest"]:
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
