"""The folder of a fit: whether the run in it is complete, and whether its files are those that were written."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, cast

from ..core.words import listed
from ..errors import refused

__all__ = ["LOCK", "OPEN", "RECORD", "SUMMARY", "check_unfinished", "files_in", "kept_in", "model_in"]

SUMMARY = "fit.json"
"""What is written last."""

RECORD, LOCK, OPEN = "run.json", "lock", "open"
"""Files beside the checkpoints; the last one where a time limit has ended a run that is otherwise complete."""


def files_in(folder: Path) -> dict[str, dict[str, Any]]:
    """Sizes and SHA-256 of the files that a fit has written, by name: what ``fit.json`` belongs with."""
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if path.is_file() and name.parts[0] not in ("checkpoint", SUMMARY) and not path.name.startswith("."):
            with path.open("rb") as file:
                content = hashlib.file_digest(file, "sha256").hexdigest()
            found[name.as_posix()] = {"bytes": path.stat().st_size, "sha256": content}
    return found


def kept_in(folder: Path) -> list[Path]:
    """What an interrupted run is continued from."""
    return [path for path in (folder / "checkpoint").glob("*") if path.name not in (RECORD, LOCK, OPEN)]


def check_unfinished(folder: Path) -> None:
    """Refuse to continue a run that is complete, or was before something happened to its files."""
    if not (folder / SUMMARY).exists() or (folder / "checkpoint" / OPEN).exists():
        return
    hint = "leave out --resume to start another"
    wrong = _changed(folder)
    if not wrong:
        raise refused("--resume", f"the run in {folder} is complete", hint, code="existing-file")
    problem = f"the run in {folder} was complete, but {listed(wrong, width=100)}"
    raise refused("--resume", problem, f"{hint}; nothing here was changed", code="damaged-file")


def model_in(folder: Path) -> Path:
    """The model file of a folder that ``fit`` left; refused where it was there and is no more."""
    path = folder / "model.safetensors"
    if not path.exists() and (folder / SUMMARY).exists():
        problem = f"{folder} holds a complete fit, but {path.name} is missing"
        raise refused(folder, problem, "fit again, or put the file back", code="damaged-file")
    return path


def _changed(folder: Path) -> list[str]:
    """What is not as ``fit.json`` says, in words."""
    try:
        summary = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
        wanted = cast("dict[str, dict[str, Any]]", dict(summary.get("files", {})))
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return [f"{SUMMARY} cannot be read"]
    found = files_in(folder)
    missing = [f"{name} is missing" for name in wanted if name not in found]
    return missing + [f"{name} was changed" for name in wanted if name in found and found[name] != wanted[name]]
