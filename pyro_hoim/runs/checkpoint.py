"""Files that a long run continues from, and leaving such a run in order when it is interrupted."""

from __future__ import annotations

import errno
import json
import math
import operator
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, ClassVar, Protocol, Self

import safetensors
import safetensors.torch
import torch
from tqdm import tqdm

from .._version import __version__
from ..atomic import draft_of, unwritable
from ..errors import HoimError, InputError, check_type, check_whole, refused, unexpected
from .container import bytes_of, read_sealed, sealed

# A time at which work that can be given up is given up; what was finished before it stays.

_until: ContextVar[float] = ContextVar("until", default=math.inf)


class TimeUp(Exception):  # noqa: N818 (not an error: the caller goes on with what it has)
    """The time is over; raised between two steps of a computation that changes nothing before its end."""


@contextmanager
def ending_at(until: float) -> Generator[None]:
    """Inside, :func:`check_time` raises once the monotonic clock is beyond ``until``; the earlier end counts."""
    token = _until.set(min(until, _until.get()))
    try:
        yield
    finally:
        _until.reset(token)


def check_time() -> None:
    """Give up where the time is over; outside :func:`ending_at` there is no end."""
    if time.monotonic() > _until.get():
        raise TimeUp


_FORMAT = "pyro-hoim-run"
_FORMAT_VERSION = 3
_LARGEST_SHARE = 0.1
_ANEW = "delete it to start again"


class RunFile:
    """A checkpoint: one safetensors file, always whole, because it is replaced in a single step.

    The file holds the tensors of the run and, as JSON, the settings that a continued run must repeat, with one checksum
    over both. Reading it never executes code from it.

    Args:
        path: the file; its folder must exist.
        resume: continue from the file if it is there.

    Raises:
        InputError: there is no folder for it, or the file exists and ``resume`` is false.
        InputTypeError: a path that is none.
    """

    SECONDS: ClassVar[float] = 30.0
    """Least time between two writes. Those of large files are spaced further, to take at most a tenth of the time."""

    def __init__(self, path: str | os.PathLike[str], resume: bool = False) -> None:
        check_type(path, str | os.PathLike, "checkpoint", "the name of a file")
        self.path = Path(path)
        self.resume = bool(resume)
        self._due = time.monotonic() + self.SECONDS
        self._settings: dict[str, Any] = {}
        try:
            # What else may stand at the path is left alone.
            if not self.path.parent.is_dir():
                problem = f"the folder {self.path.parent} does not exist"
                raise refused("checkpoint", problem, "create it first", code="no-file")
            if self.path.is_dir():
                raise refused("checkpoint", f"{self.path} is a folder", "give the name of a file in it", code="no-file")
            if self.path.exists() and not self.path.is_file():
                raise refused("checkpoint", f"{self.path} is not a file", "choose another name", code="no-file")
            if self.path.exists() and not self.resume:
                hint = "pass resume=True to continue that run, or choose another name"
                raise refused("checkpoint", f"{self.path} exists", hint, code="existing-file")
        except OSError as error:
            raise unwritable(self.path, error) from error

    def start(self, settings: Mapping[str, Any]) -> dict[str, torch.Tensor] | None:
        """Tensors to continue from, or None where there is no file yet.

        Args:
            settings: what a continued run must have in common with the first one, JSON values (or NumPy integers) by
                name; values of names that end in "digest" are not shown in messages.

        Raises:
            InputError: the file is damaged, of another program or newer, or of a run with other settings.
        """
        # Settings as a file would give them back.
        text = json.dumps({**settings, "library version": __version__}, default=operator.index)
        self._settings = json.loads(text, parse_constant=str)  # no NaN, which differs from itself
        if not self.path.exists():
            return None
        try:
            # Damage and other versions are told apart: only the latter could be continued elsewhere.
            header, tensors = read_sealed(self.path, _FORMAT, "checkpoint", _FORMAT_VERSION)
        except InputError as error:
            code = error.code if error.code == "file-version" else "damaged-file"
            raise refused("checkpoint", f"{self.path} {error.problem}", _ANEW, code=code) from error
        stored = header.get("settings")
        if not isinstance(stored, dict):
            raise refused("checkpoint", f"{self.path} is damaged: it has no settings", _ANEW, code="damaged-file")
        # The first setting that differs names the run that the file belongs to.
        for name in dict.fromkeys([*self._settings, *stored]):
            here, there = self._settings.get(name), stored.get(name)
            if here != there:
                wanted = f"{name}={there!r}, not {here!r}"
                wanted = f"another {name.removesuffix(' digest')}" if name.endswith("digest") else wanted
                hint = "repeat that run's arguments to continue it, or choose another name"
                error = refused("checkpoint", f"{self.path} belongs to a run with {wanted}", hint, code="other-run")
                error.received = wanted
                raise error
        return tensors

    @contextmanager
    def taking_up(self) -> Generator[None]:
        """While a run takes up the tensors of the file: whatever does not fit is one error that names the file."""
        try:
            yield
        except (HoimError, LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RuntimeError) as error:
            reason = " ".join((f"{error} is missing" if isinstance(error, KeyError) else str(error)).split())[:200]
            problem = f"{self.path} is damaged: its contents do not fit together ({reason})"
            raise refused("checkpoint", problem, _ANEW, code="damaged-file") from error

    @property
    def is_due(self) -> bool:
        """Whether the next checkpoint should be written."""
        return time.monotonic() >= self._due

    def write(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Replace the file; InputError where it cannot be written."""
        start = time.monotonic()
        # The new file stands beside the old one until it is whole.
        stored = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        header = sealed({"format_version": _FORMAT_VERSION, "settings": self._settings}, stored)
        with draft_of(self.path) as draft:
            try:
                safetensors.torch.save_file(stored, str(draft), metadata={_FORMAT: header})
            except safetensors.SafetensorError as error:
                code = re.search(r"code: (\d+)", str(error))
                raise OSError(*((int(code[1]), "") if code else (str(error),))) from error
        # Large files are written more rarely.
        now = time.monotonic()
        self._due = now + max(self.SECONDS, (now - start) / _LARGEST_SHARE)


def check_alike(stored: Mapping[str, torch.Tensor], fresh: Mapping[str, torch.Tensor]) -> None:
    """ValueError unless tensors have the names, types and shapes of a run that begins.

    JSON values (see :func:`packed`) have any length, and so has what a fresh run has no entries of.
    """
    # Entries without a fixed length are packed JSON, or begin empty.
    wanted: dict[str, tuple[object, ...]] = {}
    for name, tensor in fresh.items():
        is_open = (tensor.ndim == 1 and tensor.dtype == torch.uint8) or (tensor.ndim > 0 and not len(tensor))
        wanted[name] = (tensor.dtype, *((None, *tensor.shape[1:]) if is_open else tensor.shape))
    check_arrays(stored, wanted)


def check_arrays(stored: Mapping[str, torch.Tensor], wanted: Mapping[str, Sequence[object]]) -> None:
    """ValueError unless tensors have these names, with type and shape as (dtype, *shape); None is any length."""
    for name in sorted({*stored, *wanted}):
        if name not in wanted:
            raise ValueError(f"an entry {name!r} that is not of this run")
        tensor = stored[name]
        here = (tensor.dtype, *tensor.shape)
        if len(here) != len(wanted[name]) or any(b not in (None, a) for a, b in zip(here, wanted[name], strict=True)):
            raise ValueError(f"the entry {name!r} is {tensor.dtype} of shape {tuple(tensor.shape)}")


def check_equal(stored: Mapping[str, torch.Tensor], wanted: Mapping[str, torch.Tensor]) -> None:
    """ValueError unless tensors have the same names, types, shapes and bytes."""
    for name in sorted({*stored, *wanted}):
        if name not in wanted:
            raise ValueError(f"an entry {name!r} that is not of this run")
        one, other = stored[name], wanted[name]
        if one.dtype != other.dtype or one.shape != other.shape or not torch.equal(bytes_of(one), bytes_of(other)):
            raise ValueError(f"the entry {name!r} is not of this run")


def packed(value: Any) -> torch.Tensor:
    """A JSON value as a tensor of bytes, which a checkpoint can hold."""
    return torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)


def unpacked(tensor: torch.Tensor) -> Any:
    """Inverse of :func:`packed`."""
    return json.loads(tensor.numpy().tobytes().decode())


def part_of(state: Mapping[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    """Entries with a prefix, without it."""
    return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}


class DeferredInterrupt:
    """Hold back Ctrl-C until the run is between two steps; a second Ctrl-C acts at once.

    SIGTERM and SIGHUP are held back alike where they interrupt, as in a command. Only the main thread can do this, and
    only where a signal calls a Python function; elsewhere nothing changes. The former handlers are put back at the end.
    """

    def __init__(self) -> None:
        self._former: dict[int, Callable[[int, FrameType | None], Any]] = {}
        self._number: int = signal.SIGINT
        self.is_pending = False

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            numbers = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
            for number in numbers:
                former = signal.getsignal(number)
                if callable(former):
                    self._former[number] = former
                    signal.signal(number, self._note)
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.is_pending:
            self._former[number](number, frame)
        self.is_pending, self._number = True, number

    def deliver(self) -> None:
        """Now let a signal that came in between have its effect: by default, raise KeyboardInterrupt."""
        if self.is_pending and self._number in self._former:
            self.is_pending = False
            self._former[self._number](self._number, None)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, former in self._former.items():
            signal.signal(number, former)
        if kind is None:
            self.deliver()


# Long runs in steps: progress, interruption, checkpoints, and the arguments that such runs share.


class Job(Protocol):
    """A run in steps.

    Where the steps end depends on the arguments alone, never on time, so that a run in parts makes the same calls as a
    run in one go, and thereby has the same bits.
    """

    done: int
    burn_in: int
    total: int

    def advance(self) -> int:
        """Make one step; sweeps made."""
        ...

    def state(self) -> dict[str, torch.Tensor]:
        """Everything to continue from."""
        ...

    def load_state(self, state: Mapping[str, torch.Tensor]) -> None:
        """Continue from :meth:`state`."""
        ...


def follow(
    job: Job,
    settings: Mapping[str, Any],
    file: RunFile | None,
    progress: bool,
    words: tuple[str, str] = ("sampling", "sweep"),
) -> float:
    """Run to the end, with a progress bar and checkpoints; seconds, those of earlier parts included.

    ``words`` say on the bar what is done after burn-in, and what a step is. Ctrl-C ends the current step, writes a
    checkpoint and raises KeyboardInterrupt.
    """
    # The run goes on where the file left it.
    before = 0.0
    stored = None if file is None else file.start(settings)
    if file is not None and stored is not None:
        with file.taking_up():
            check_alike(
                stored, {**job.state(), "done": torch.tensor(0), "seconds": torch.zeros((), dtype=torch.float64)}
            )
            before = float(stored.pop("seconds"))
            job.done = check_whole(int(stored.pop("done")), "done", 0, job.total)
            job.load_state(stored)
            check_equal(stored, job.state())  # short arrays are not spread, nor others converted
    start = time.monotonic()

    # What a continued run starts from, with the time spent so far.
    def save() -> None:
        if file is not None:
            spent = torch.tensor(before + time.monotonic() - start, dtype=torch.float64)
            file.write({**job.state(), "done": torch.tensor(job.done), "seconds": spent})

    # Signals wait for the end of a step, when the state is whole.
    bar = tqdm(total=job.total, initial=job.done, unit=words[1], leave=False) if progress else None
    try:
        with DeferredInterrupt() as interrupt:
            while job.done < job.total:
                if bar is not None:
                    bar.set_description_str("burn-in" if job.done < job.burn_in else words[0], refresh=False)
                made = job.advance()
                job.done += made
                if bar is not None:
                    bar.update(made)
                if interrupt.is_pending or job.done == job.total or (file is not None and file.is_due):
                    save()
                    interrupt.deliver()
    finally:
        if bar is not None:
            bar.close()
    return before + time.monotonic() - start


# Where a long run is kept and whether it tells of its progress, for every function that takes minutes or more.


@dataclass(frozen=True)
class RunOptions:
    """How a long run is kept and shown.

    Attributes:
        checkpoint: file (of what learns whole models: folder) from which an interrupted run can be continued.
        resume: continue from ``checkpoint``, which must be given, if it exists; the other arguments must be the same.
        progress: show on standard error how far the run has come.

    Example:
        >>> RunOptions(resume=True)
        Traceback (most recent call last):
        pyro_hoim.errors.InputError: resume: expected the path of a checkpoint, received none; pass checkpoint=...
    """

    checkpoint: str | os.PathLike[str] | None = None
    resume: bool = False
    progress: bool = False

    def __post_init__(self) -> None:
        if self.resume and self.checkpoint is None:
            expected = "the path of a checkpoint"
            raise unexpected("resume", expected, hint="pass checkpoint=...", received="none", code="conflict")

    def folder(self) -> Path | None:
        """The checkpoint of what learns whole models, a folder that is made inside an existing one."""
        if self.checkpoint is None:
            return None
        folder = Path(self.checkpoint).absolute()
        try:
            folder.mkdir(exist_ok=True)
        except FileNotFoundError as error:
            problem = f"the folder {folder.parent} does not exist"
            raise refused("checkpoint", problem, "create it first", code="no-file") from error
        except FileExistsError as error:
            raise refused("checkpoint", f"{folder} is a file; expected a folder", code="no-file") from error
        except OSError as error:
            problem = f"the folder {folder} cannot be made ({error.strerror or error})"
            raise refused("checkpoint", problem, "choose another", code="no-file") from error
        return folder

    def file(self) -> RunFile | None:
        """The checkpoint, if there is to be one; refused as :class:`~pyro_hoim.runs.checkpoint.RunFile` says."""
        return None if self.checkpoint is None else RunFile(self.checkpoint, self.resume)


def checked_run(run: RunOptions | None) -> RunOptions:
    """The options, or those by default."""
    if run is None:
        return RunOptions()
    check_type(run, RunOptions, "run")
    return run


# One process at a time at work in a folder.

_HELD = (errno.EACCES, errno.EAGAIN, errno.EDEADLK)


@contextmanager
def one_process(path: Path, argument: str, hint: str) -> Generator[None]:
    """Hold a lock on a file while a block runs; the file is made, with its folder, and left there.

    The system releases the lock of a process that ends in whatever way, so that the file alone is no obstacle. A file
    system without locks has none.

    Raises:
        InputError: another process holds it.
    """
    while True:
        # The file may vanish between two steps of ours when its owner ends: then begin again.
        path.parent.mkdir(exist_ok=True)
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)  # no link is emptied
        except FileNotFoundError:  # the folder of a run that has just ended was removed
            continue
        if not _is_free(handle):
            who = "" if sys.platform == "win32" else os.pread(handle, 20, 1).decode(errors="replace").strip()
            os.close(handle)
            problem = f"another process{f' ({who})' if who.isdigit() else ''} is at work in {path.parent.parent}"
            raise refused(argument, problem, hint, code="conflict")
        if sys.platform == "win32" or _is_same(handle, path):
            break
        os.close(handle)  # removed by its owner between our two steps
    try:
        os.ftruncate(handle, 0)
        os.write(handle, f"\n{os.getpid()}\n".encode())
        yield
    finally:
        os.close(handle)


def _is_free(handle: int) -> bool:
    """Whether this process now has the lock of an open file."""
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in _HELD
    return True


def _is_same(handle: int, path: Path) -> bool:
    """Whether an open file is the one of this name."""
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False
