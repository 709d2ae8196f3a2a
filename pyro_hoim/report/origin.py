"""Where a page comes from: command, data, split, seed, versions and date, without any path of the machine."""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from ..data.counts import CountTable, digest
from ..data.observations import Observations

_PACKAGES = ("pyro-hoim", "pyro-ppl", "torch", "numpy", "arviz")
_BYTES = "sha256 of the file"
_ROWS = "sha256 of the encoded rows"


def provenance(
    rows: Observations | CountTable | None = None,
    *,
    name: str = "",
    source: str | os.PathLike[str] | None = None,
    command: str = "",
    split: Mapping[str, float] | None = None,
    seed: int | None = None,
) -> dict[str, Any]:
    """What a reader needs to make a page again, as a mapping that JSON can hold.

    The date is that of ``SOURCE_DATE_EPOCH`` (seconds since 1970) where this environment variable is set, so that the
    same run can leave the same bytes.

    Args:
        rows: all rows of the data, whose names, labels, cells and counts are hashed in their order.
        name: of the data.
        source: file that they were read from, whose bytes are hashed; only the last part of its path is kept.
        command: what was typed, without paths of the machine.
        split: fraction of the rows by part.
        seed: of everything random.

    Example:
        >>> provenance(name="survey", seed=3)["seed"]
        3
    """
    data: dict[str, str] = {"name": name} if name else {}
    if source is not None and Path(source).is_file():
        with open(source, "rb") as file:
            data |= {"file": Path(source).name, _BYTES: hashlib.file_digest(file, "sha256").hexdigest()}
    if rows is not None:
        data[_ROWS] = digest(rows)
    record: dict[str, Any] = {"command": command, "data": data, "split": dict(split or {}), "seed": seed}
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    now = datetime.now(UTC) if epoch is None else datetime.fromtimestamp(int(epoch), UTC)
    record["date"] = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    record["versions"] = {"Python": platform.python_version(), **{name: _version(name) for name in _PACKAGES}}
    return {key: value for key, value in record.items() if value not in ("", None, {})}


def provenance_lines(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The same for a reader, a name and words for every line."""
    split = ", ".join(f"{part} {share:g}" for part, share in found.get("split", {}).items() if share)
    lines = {
        "command": found.get("command"),
        **{"data" if key == "name" else key: value for key, value in found.get("data", {}).items()},
        "split": f"{split} (fractions of the rows, shuffled by the seed)" if split else None,
        "seed": found.get("seed"),
        "date": found.get("date"),
        "versions": ", ".join(f"{name} {number}" for name, number in found.get("versions", {}).items()),
    }
    return [(name, str(value)) for name, value in lines.items() if value not in ("", None)]


@lru_cache(maxsize=64)  # of a process, which has imported what is installed
def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
