"""One run of ``fit`` in its folder: options and time of an interrupted run are kept beside its checkpoints."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import click
from click.core import ParameterSource

from ..data.counts import CountTable
from ..data.digest import digest
from ..data.observations import Observations
from ..errors import HoimError, InputError, refused
from .options import option_of

__all__ = ["Session", "command_line", "session"]

_FILE = "run.json"
_FREE = ("source", "target", "out", "resume", "as_json", "jobs")  # may differ when a run is continued


class Session:
    """The present part of a run, and how long the parts before it took.

    Attributes:
        folder: what is written to.
        checkpoint: folder of what an interrupted run is continued from.
        earlier_seconds: time of the sessions before; one that was killed counts up to its last checkpoint.
    """

    def __init__(self, folder: Path, started: float, rows: Observations | CountTable) -> None:
        self.folder = folder
        self.checkpoint = folder / "checkpoint"
        self._file = self.checkpoint / _FILE
        self._started = started
        self._options, self._rows = _options(), digest(rows)
        held = [path for path in self.checkpoint.glob("*") if path.name != _FILE]
        self._then = self._read() if held else None
        self.earlier_seconds = self._seconds_before(held)
        self._write()

    @property
    def seconds(self) -> float:
        """Time of the whole run so far."""
        return self.earlier_seconds + time.perf_counter() - self._started

    def pause(self) -> None:
        """Keep the time so far; called when a run ends before it is complete."""
        if self._file.exists():
            self.earlier_seconds, self._started = self.seconds, time.perf_counter()
            self._write()

    def explain(self, error: InputError) -> InputError:
        """The error of a checkpoint that belongs to another run, with the options that differ."""
        then = self._then
        if then is None or error.code != "other-run":
            return error
        before = cast("dict[str, str]", then.get("options", {}))
        options = self._options
        differ = [name for name in dict.fromkeys([*before, *options]) if before.get(name) != options.get(name)]
        if differ:
            was, now = (", ".join(_said(name, them.get(name)) for name in differ) for them in (before, options))
            problem = f"was started with {was}, and received {now}"
            hint = "repeat its options to continue it, or choose another folder"
        elif then.get("rows") != self._rows:
            problem = "was started with other rows"
            hint = "continue it with the same table, or choose another folder"
        else:
            detail = f" ({error.received})" if error.received else ""
            problem = f"has the same options and rows but was started by another release of the library{detail}"
            hint = "start again in another folder"
        return refused("--resume", f"the run in {self.folder} {problem}", hint, code="other-run")

    def _read(self) -> dict[str, Any] | None:
        try:
            found: object = json.loads(self._file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return cast("dict[str, Any]", found) if isinstance(found, dict) else None

    def _seconds_before(self, held: list[Path]) -> float:
        then = self._then or {}
        seconds, since = then.get("seconds"), then.get("since")
        if not isinstance(seconds, int | float) or not isinstance(since, int | float):
            return 0.0
        return float(seconds) + max(0.0, max(path.stat().st_mtime for path in held) - float(since))

    def _write(self) -> None:
        self.checkpoint.mkdir(parents=True, exist_ok=True)
        content = {
            **(self._then or {"options": self._options, "rows": self._rows}),
            "seconds": self.earlier_seconds,
            "since": time.time(),
        }
        draft = self._file.with_suffix(".part")
        draft.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
        os.replace(draft, self._file)


@contextmanager
def session(folder: Path, started: float, rows: Observations | CountTable) -> Generator[Session]:
    """Make the folder, keep the record of the run in it, and leave nothing behind where nothing was computed."""
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        problem = f"the folder {folder} cannot be made ({error.strerror or error})"
        raise refused("--out", problem, "choose another folder", code="no-file") from error
    run = Session(folder, started, rows)
    try:
        yield run
    except HoimError as error:
        if not any(path.is_file() and path.name != _FILE for path in folder.rglob("*")):
            shutil.rmtree(folder)
        if isinstance(error, InputError):
            raise run.explain(error) from error
        raise
    finally:
        run.pause()


def _options() -> dict[str, str]:
    """The options of the command that runs, as text."""
    context = click.get_current_context(silent=True)
    if context is None:
        return {}
    found: dict[str, str] = {}
    for param in context.command.get_params(context):
        value = context.params.get(str(param.name))
        if param.name not in _FREE and value is not None and value is not False and value != ():
            words = [str(v) for v in value] if isinstance(value, tuple) else [] if value is True else [str(value)]
            found[option_of(param)] = " ".join(words)
    return found


def _said(name: str, value: str | None) -> str:
    return f"no {name}" if value is None else f"{name} {value}".rstrip()


def command_line() -> str:
    """The command that runs with what was typed; of a path from the root of the machine only the last part."""
    context = click.get_current_context()
    words = ["pyro-hoim", str(context.info_name)]
    for param in context.command.get_params(context):
        if context.get_parameter_source(str(param.name)) is not ParameterSource.COMMANDLINE:
            continue
        value = context.params[str(param.name)]
        for part in value if isinstance(value, tuple) else (value,):
            is_flag = isinstance(part, bool)
            if isinstance(param, click.Option):
                words.append(param.secondary_opts[0] if part is False else param.opts[-1 if not is_flag else 0])
            words += [] if is_flag else [_without_root(str(part))]
    return shlex.join(words)


def _without_root(word: str) -> str:
    return Path(word).name if Path(word).is_absolute() else word
