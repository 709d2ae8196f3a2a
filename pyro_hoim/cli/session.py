"""One run of ``fit`` in its folder: options and time of an interrupted run are kept beside its checkpoints."""

import json
import shlex
import shutil
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import click
from click.core import ParameterSource

from ..atomic import write_file
from ..data.counts import CountTable, digest
from ..data.observations import Observations
from ..errors import HoimError, InputError, refused
from ..runs.checkpoint import one_process
from ..runs.container import is_intact, sealed
from .options import option_of
from .output import LOCK, OPEN, RECORD, check_unfinished, kept_in, say

_FREE = ("source", "target", "out", "resume", "as_json", "jobs", "time_limit")  # may differ when a run is continued


class Session:
    """The present part of a run, and how long the parts before it took.

    Attributes:
        folder: what is written to.
        checkpoint: folder of what an interrupted run is continued from.
        earlier_seconds: time of the sessions before; one that was killed counts up to its last checkpoint.
        is_complete: whether everything was written.
        is_open: whether it can be continued all the same, because a time limit has ended it.
    """

    def __init__(self, folder: Path, started: float, rows: Observations | CountTable) -> None:
        self.folder = folder
        self.checkpoint = folder / "checkpoint"
        self._file = self.checkpoint / RECORD
        self.is_complete = self.is_open = False
        self._started = started
        self._options, self._rows = _options(), digest(rows)
        held = kept_in(folder)
        self._then = self._read() if held else None
        self.earlier_seconds = self._seconds_before(held)
        self._write()

    @property
    def seconds(self) -> float:
        """Time of the whole run so far."""
        return self.earlier_seconds + time.perf_counter() - self._started

    def finish(self, *, is_open: bool = False) -> None:
        """Everything was written; an open run keeps its checkpoint, and the time so far."""
        self.is_complete, self.is_open = True, is_open
        if is_open:
            write_file(self.checkpoint / OPEN, "")
            self.pause()

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
        # Options that differ are named before rows that do, for rows follow from options.
        before = cast("dict[str, str]", then.get("options", {}))
        options = self._options
        differ = [name for name in dict.fromkeys([*before, *options]) if before.get(name) != options.get(name)]
        differ = ["pyro-hoim"] if "pyro-hoim" in differ else differ  # another command has other options
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
        """The record of the sessions before; None without one, refused where it is not as it was written."""
        if not self._file.exists():
            return None
        # A record that cannot be read is refused, for its options are what protects from mixing two runs.
        try:
            text = self._file.read_text(encoding="ascii")
        except (OSError, UnicodeDecodeError):
            text = ""
        try:
            record = cast("dict[str, Any]", json.loads(text, parse_constant=str)) if is_intact(text, {}) else {}
        except (ValueError, RecursionError):
            record = {}
        times: list[Any] = [record.get(name) for name in ("seconds", "since")]
        if not (
            isinstance(record.get("options"), dict) and all(type(t) in (int, float) and abs(t) < 1e12 for t in times)
        ):
            problem = f"{self._file} cannot be read, it is damaged"
            hint = "delete it to continue without what it says of options and time, or start in another folder"
            raise refused("--resume", problem, hint, code="damaged-file")
        del record["sha256"]
        return record

    def _seconds_before(self, held: list[Path]) -> float:
        if self._then is None:
            return 0.0
        last = max(path.stat().st_mtime for path in held)
        return self._then["seconds"] + max(0.0, last - self._then["since"])

    def _write(self) -> None:
        self.checkpoint.mkdir(parents=True, exist_ok=True)
        content = {
            **(self._then or {"options": self._options, "rows": self._rows}),
            "seconds": self.earlier_seconds,
            "since": time.time(),
        }
        write_file(self._file, sealed(content, {}))


@contextmanager
def session(folder: Path, started: float, rows: Observations | CountTable, resume: bool = False) -> Generator[Session]:
    """Make the folder, keep the record of the run in it, and leave nothing behind where nothing was computed.

    While it runs no other process may.
    """
    run = None
    try:
        # One process at a time works in a folder.
        with _locked(folder):
            check_unfinished(folder)
            if resume and not kept_in(folder):
                problem = f"the run in {folder} was stopped before its first checkpoint; it starts anew"
                say(f"--resume: {problem}", err=True)
            run = Session(folder, started, rows)
            try:
                yield run
            except InputError as error:
                raise run.explain(error) from error
            finally:
                if not run.is_complete:
                    run.pause()
            for path in folder.rglob(".*.part"):  # left by a process that was killed
                path.unlink(missing_ok=True)
    except HoimError:
        # A folder that was made for a run that could not begin is removed again.
        records = (RECORD, LOCK)
        if run is not None and not any(path.is_file() and path.name not in records for path in folder.rglob("*")):
            shutil.rmtree(folder)
        raise
    if run.is_complete and not run.is_open:
        shutil.rmtree(run.checkpoint, ignore_errors=True)  # a process that looks whether it may work here has it open


@contextmanager
def _locked(folder: Path) -> Generator[None]:
    """The folder, made where it is missing, for this process alone."""
    try:
        folder.mkdir(exist_ok=True)
        (folder / "checkpoint").mkdir(exist_ok=True)
    except OSError as error:
        problem = f"the folder {folder} cannot be made ({error.strerror or error})"
        raise refused("--out", problem, "choose another folder", code="no-file") from error
    with one_process(folder / "checkpoint" / LOCK, "--out", "wait for it to end, or choose another folder"):
        yield


def _options() -> dict[str, str]:
    """The options of the command that runs, as text."""
    context = click.get_current_context(silent=True)
    if context is None:
        return {}
    found = {"pyro-hoim": str(context.info_name)}
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
            path = Path(str(part))
            words += [] if is_flag else [path.name if path.is_absolute() else str(part)]
    return shlex.join(words)
