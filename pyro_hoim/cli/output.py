"""What the commands share: JSON that any parser accepts, number formats, output folders."""

from __future__ import annotations

import json
import math
import re
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import click

from ..data import CountTable, Observations
from ..errors import InputError
from ..partition import LogPartition
from .count_reading import CountSource
from .reading import Fractions, Table
from .seen import keep_split
from .session import Session

__all__ = ["Output", "echo_json", "log_partition_json", "new_folder", "peak_memory_mb", "to_json_text", "whole"]


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
    """Strict JSON text of a mapping."""
    return json.dumps(_finite(value), allow_nan=False, ensure_ascii=False, indent=indent)


def echo_json(value: Mapping[str, Any]) -> None:
    """Print one JSON object on standard output."""
    click.echo(to_json_text(value))


def whole(value: float) -> float:
    """A whole number as an int, so that JSON shows it without a decimal point."""
    return int(value) if float(value).is_integer() else value


def log_partition_json(result: LogPartition | None) -> dict[str, Any] | None:
    """The keys of a normalising constant, or None where there is none."""
    if result is None:
        return None
    found = result.to_json()
    return {name: found[name] for name in ("value", "std_error", "kind", "lower", "upper", "lower_bound", "verdict")}


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

    Raises:
        InputError: ``out`` is a file, or a folder that holds something while ``resume`` is False, or its parent is
            missing, or there is nothing to resume or the run is complete.
    """
    if out is not None:
        if out.exists() and not out.is_dir():
            raise InputError(f"--out: {out} is a file; expected a folder")
        if out.is_dir() and any(out.iterdir()) and not resume:
            raise InputError(f"--out: folder {out} exists and is not empty; choose another or pass --resume")
        if not out.absolute().parent.is_dir():
            raise InputError(f"--out: the folder {out.absolute().parent} does not exist")
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
            raise InputError(f"--resume: no folder {base} here to resume from; name one with --out")
        return _unfinished(previous)
    return folder


def _unfinished(folder: Path) -> Path:
    """The folder itself, refused when the run in it was completed or never started.

    A run that was stopped before it kept anything is started anew, and that is said on standard error.
    """
    if not folder.exists() or not any(folder.iterdir()):
        state = "is empty" if folder.exists() else "does not exist"
        raise InputError(
            f"--resume: {folder} {state}, so there is nothing to resume; leave out --resume to start there"
        )
    if (folder / "fit.json").exists():
        raise InputError(f"--resume: the run in {folder} is complete; leave out --resume to start another")
    if not (folder / "checkpoint").is_dir():
        raise InputError(f"--resume: {folder} holds no checkpoint; choose the folder of an interrupted run")
    if not any(path.name != "run.json" for path in (folder / "checkpoint").glob("*")):
        click.echo(f"--resume: the run in {folder} was stopped before its first checkpoint; it starts anew", err=True)
    return folder


_Source = TypeVar("_Source", Table, CountSource)


@dataclass(frozen=True)
class Output(Generic[_Source]):
    """What a fit is told about its table and about what to print and write.

    Attributes:
        table: name, rows and where they come from.
        as_read: the rows before any were left out.
        target: column to predict.
        seed: of everything random.
        out: folder to write; a new one by default.
        resume: continue in it.
        as_json: print JSON instead of text.
        started: ``time.perf_counter()`` when the command began.
        fractions: of training, validation and test rows.
        prior: text of ``--prior``; None where it was not given.
    """

    table: _Source
    as_read: Observations | CountTable
    target: str | None
    seed: int
    out: Path | None
    resume: bool
    as_json: bool
    started: float
    fractions: Fractions
    prior: str | None = None

    def folder(self) -> Path:
        """The folder to write to, not made here.

        Raises:
            InputError: as :func:`new_folder`.
        """
        return new_folder(self.out, self.table.name, self.resume)

    def write(self, summary: Mapping[str, Any], run: Session) -> None:
        """Leave ``fit.json`` in the folder of a run, print it where JSON is wanted, and remove the checkpoints."""
        keep_split(run.folder, self.table.rows, self.fractions, self.seed)
        (run.folder / "fit.json").write_text(to_json_text(summary, indent=2) + "\n", encoding="utf-8")
        shutil.rmtree(run.checkpoint)
        if self.as_json:
            echo_json(summary)

    def echo(self, report: str) -> None:
        """Print a report, after what is to be said of the rows."""
        told = self.table.told()
        click.echo("\n".join([*told, *([""] if told else []), report]))
