"""What a command prints and leaves: JSON that any parser accepts, number formats, progress, the folder of a fit."""

import hashlib
import json
import math
import os
import re
import shlex
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from threading import Condition, Thread
from types import TracebackType
from typing import Any, Self, cast

import click
from tqdm import tqdm

from ..core.words import listed
from ..errors import refused, visible

# How options are written on a command line; nothing here imports torch.


def flag(name: str) -> str:
    """How an option is written."""
    return f"--{name.replace('_', '-')}"


def written(name: str, value: object) -> str:
    """An option in a sentence, with a value that is not None, quoted as a shell needs it; True is that of a switch.

    Several names are separated by commas, and rules by column are written ``COLUMN=RULE``.
    """
    own = flag(name)
    if isinstance(value, Mapping):
        value = [f"{column}={rule}" for column, rule in value.items()]
    value = ",".join(value) if isinstance(value, list) else value
    return own if value is None or value is True else f"{own} {shlex.quote(str(value))}"


# What a run says of its progress on standard error, so that it is never silent for long.

PERIOD = 10.0
"""Seconds after which a command says that it goes on."""


class Progress:
    """Announces the stages of a run with the time since it began, and that a stage goes on where it takes long.

    The latter is left out while a progress bar moves.

    Args:
        begin: of the run, as ``time.perf_counter`` tells it.
        period: longest silence, seconds; by default ten.

    Attributes:
        opening: said before the first stage, so that a run that is refused says nothing else.
        stage: what is being done; empty before the first.
    """

    def __init__(self, begin: float, period: float | None = None) -> None:
        self._begin, self._period = begin, PERIOD if period is None else period
        self.opening: str | None = None
        self.stage, self._said = "", time.perf_counter()
        self._change = Condition()
        self._is_over = False
        self._thread = Thread(target=self._remind, daemon=True)

    def __call__(self, words: str) -> None:
        """Announce a stage."""
        with self._change:
            self.stage = words.split(";", maxsplit=1)[0]
            self._say(words)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with self._change:
            self._is_over = True
            self._change.notify()
        self._thread.join()

    def _say(self, words: str) -> None:
        if self.opening is not None:
            opening, self.opening = self.opening, None
            self._say(opening)
        self._said = time.perf_counter()
        click.echo(f"[{self._said - self._begin:6.1f} s] {visible(words)}", err=True)

    def _remind(self) -> None:
        """Say at every period without a word that the stage goes on."""
        with self._change:
            while not self._is_over:
                silent = time.perf_counter() - self._said
                if silent < self._period:
                    self._change.wait(self._period - silent)
                elif getattr(tqdm, "_instances", ()):
                    self._change.wait(self._period)
                else:
                    self._say(f"still {self.stage}" if self.stage else "still at work")


# The folder of a fit: whether the run in it is complete, and whether its files are those that were written.

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


# What the commands share: JSON that any parser accepts, number formats, output folders.


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
    # A folder that was named is new, or holds the run that is continued.
    if out is not None:
        if out.exists() and not out.is_dir():
            raise refused("--out", f"{out} is a file; expected a folder", code="no-file")
        if out.is_dir() and any(out.iterdir()) and not resume:
            problem = f"folder {out} exists and is not empty"
            raise refused("--out", problem, "choose another or pass --resume", code="existing-file")
        if not out.absolute().parent.is_dir():
            raise refused("--out", f"the folder {out.absolute().parent} does not exist", code="no-file")
        return _unfinished(out) if resume else out
    # Else the first free one of numbered names, or the last of them.
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
