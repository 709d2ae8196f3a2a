"""What the commands share: JSON that any parser accepts, number formats, output folders."""

from __future__ import annotations

import json
import math
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from ..errors import refused, visible
from .folder import check_unfinished

__all__ = ["echo_json", "is_terminal", "new_folder", "peak_memory_mb", "say", "to_json_text", "without_folder"]


def _finite(value: Any) -> Any:
    """Replace NaN and infinities, which JSON lacks, by null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    return value


def to_json_text(value: Mapping[str, Any], indent: int | None = None) -> str:
    """Strict JSON text of a mapping, in which controls of terminals and of the direction of writing are escaped."""
    text = json.dumps(_finite(value), allow_nan=False, ensure_ascii=False, indent=indent)
    return re.sub(r"[^\n -~]", lambda held: held[0] if held[0].isprintable() else json.dumps(held[0])[1:-1], text)


def say(*lines: str, err: bool = False) -> None:
    """Print lines with what a terminal would obey or hide in them shown escaped."""
    click.echo("\n".join(map(visible, lines)), err=err)


def echo_json(value: Mapping[str, Any]) -> None:
    """Print one JSON object on standard output."""
    click.echo(to_json_text(value))


def without_folder(value: Any, folder: Path) -> Any:
    """The same with paths inside a folder told from there, for a file in it that may be moved or passed on."""
    if isinstance(value, Mapping):
        return {k: without_folder(v, folder) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [without_folder(v, folder) for v in value]
    return value.removeprefix(f"{folder}{os.sep}") if isinstance(value, str) else value


def is_terminal() -> bool:
    """Whether a person may be looking at progress on standard error."""
    return sys.stderr.isatty()


def peak_memory_mb() -> float | None:
    """Largest resident size of this process so far, in MiB; None where the system does not tell (Windows)."""
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1024.0**2 if sys.platform == "darwin" else 1024.0)


def new_folder(out: Path | None, stem: str, resume: bool) -> Path:
    """The folder a command writes to; it is not created here.

    Without ``out`` the first free of ``pyro-hoim-<stem>``, ``-2``, ``-3``, ...; with ``resume`` the last that exists.
    """
    if out is not None:
        if out.exists() and not out.is_dir():
            raise refused("--out", f"{out} is a file; expected a folder", code="no-file")
        if out.is_dir() and any(out.iterdir()) and not resume:
            problem = f"folder {out} exists and is not empty"
            raise refused("--out", problem, "choose another or pass --resume", code="existing-file")
        if not out.absolute().parent.is_dir():
            raise refused("--out", f"the folder {out.absolute().parent} does not exist", code="no-file")
        return _unfinished(out) if resume else out
    safe = re.sub(r"[^\w.-]+", "-", stem)
    base, number = Path(f"pyro-hoim-{safe}"), 1
    folder = base
    previous: Path | None = None
    while folder.exists():
        previous, number = folder, number + 1
        folder = base.with_name(f"{base.name}-{number}")
    if resume:
        if previous is None:
            raise refused("--resume", f"no folder {base} here to resume from", "name one with --out", code="no-file")
        return _unfinished(previous)
    return folder


def _unfinished(folder: Path) -> Path:
    """The folder itself, refused when the run in it was completed or never started."""
    if not folder.exists() or not any(folder.iterdir()):
        state = "is empty" if folder.exists() else "does not exist"
        problem = f"{folder} {state}, so there is nothing to resume"
        raise refused("--resume", problem, "leave out --resume to start there", code="missing-part")
    check_unfinished(folder)
    if not (folder / "checkpoint").is_dir():
        problem = f"{folder} holds no checkpoint"
        raise refused("--resume", problem, "choose the folder of an interrupted run", code="no-file")
    return folder
