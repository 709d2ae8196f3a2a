"""Files that a long run continues from, and leaving such a run in order when it is interrupted."""

from __future__ import annotations

import json
import operator
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, ClassVar, Self, cast

import safetensors
import safetensors.torch
import torch

from .._version import __version__
from ..atomic import draft_of, unwritable
from ..errors import HoimError, InputError, check_type, refused
from .seal import bytes_of, is_intact, sealed

__all__ = [
    "DeferredInterrupt",
    "RunFile",
    "check_alike",
    "check_arrays",
    "check_equal",
    "packed",
    "part_of",
    "unpacked",
]

_FORMAT = "pyro-hoim-run"
_FORMAT_VERSION = 3
_LARGEST_SHARE = 0.1


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
            self._check_place()
        except OSError as error:
            raise unwritable(self.path, error) from error

    def _check_place(self) -> None:
        """Refuse a path at which there is something else."""
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

    def start(self, settings: Mapping[str, Any]) -> dict[str, torch.Tensor] | None:
        """Tensors to continue from, or None where there is no file yet.

        Args:
            settings: what a continued run must have in common with the first one, JSON values (or NumPy integers) by
                name; values of names that end in "digest" are not shown in messages.

        Raises:
            InputError: the file is damaged, of another program or newer, or of a run with other settings.
        """
        text = json.dumps({**settings, "library version": __version__}, default=operator.index)
        self._settings = json.loads(text, parse_constant=str)  # no NaN, which differs from itself
        if not self.path.exists():
            return None
        try:
            with safetensors.safe_open(str(self.path), framework="pt", device="cpu") as file:
                header = (file.metadata() or {}).get(_FORMAT)
                # Copies, because the tensors of an open file are views of it.
                tensors: dict[str, torch.Tensor] = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
        except (safetensors.SafetensorError, OSError) as error:
            raise self._damaged(str(error)) from error
        found = cast("dict[str, Any]", self._header(header, tensors)["settings"])
        for name in dict.fromkeys([*self._settings, *found]):
            here, there = self._settings.get(name), found.get(name)
            if here != there:
                wanted = (
                    f"another {name.removesuffix(' digest')}"
                    if name.endswith("digest")
                    else f"{name}={there!r}, not {here!r}"
                )
                hint = "repeat that run's arguments to continue it, or choose another name"
                error = refused("checkpoint", f"{self.path} belongs to a run with {wanted}", hint, code="other-run")
                error.received = wanted
                raise error
        return tensors

    def _header(self, text: str | None, tensors: Mapping[str, torch.Tensor]) -> dict[str, Any]:
        """The JSON header of a file that this version wrote, and that is as it was written."""
        try:
            header: object = json.loads("null" if text is None else text)
        except (ValueError, RecursionError) as error:
            raise self._damaged("its header is not readable") from error
        if text is None or not isinstance(header, dict):
            problem = f"{self.path} is a safetensors file, but not the checkpoint of a run"
            raise refused("checkpoint", problem, "choose another name", code="damaged-file")
        entries = cast("dict[str, Any]", header)
        if entries.get("format_version") != _FORMAT_VERSION:
            problem = (
                f"{self.path} has format version {str(entries.get('format_version'))[:20]}, expected "
                f"{_FORMAT_VERSION}; it was written by another release"
            )
            raise refused("checkpoint", problem, "delete it to start again", code="file-version")
        if not is_intact(text, tensors):
            raise self._damaged("the checksum differs")
        if not isinstance(entries.get("settings"), dict):
            raise self._damaged("it has no settings")
        return entries

    @contextmanager
    def taking_up(self) -> Generator[None]:
        """While a run takes up the tensors of the file: whatever does not fit is one error that names the file."""
        try:
            yield
        except (HoimError, LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RuntimeError) as error:
            reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            raise self._damaged(f"its contents do not fit together: {reason}") from error

    def _damaged(self, reason: str) -> InputError:
        shown = " ".join(reason.split())[:200]
        return refused(
            "checkpoint",
            f"{self.path} cannot be read, it is damaged ({shown})",
            "delete it to start again",
            code="damaged-file",
        )

    @property
    def is_due(self) -> bool:
        """Whether the next checkpoint should be written."""
        return time.monotonic() >= self._due

    def write(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Replace the file; InputError where it cannot be written."""
        start = time.monotonic()
        stored = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        header = sealed({"format_version": _FORMAT_VERSION, "settings": self._settings}, stored)
        with draft_of(self.path) as draft:
            try:
                safetensors.torch.save_file(stored, str(draft), metadata={_FORMAT: header})
            except safetensors.SafetensorError as error:
                code = re.search(r"code: (\d+)", str(error))
                raise OSError(*((int(code[1]), "") if code else (str(error),))) from error
        now = time.monotonic()
        self._due = now + max(self.SECONDS, (now - start) / _LARGEST_SHARE)


def check_alike(found: Mapping[str, torch.Tensor], fresh: Mapping[str, torch.Tensor]) -> None:
    """ValueError unless tensors have the names, types and shapes of a run that begins.

    JSON values (see :func:`packed`) have any length, and so has what a fresh run has no entries of.
    """
    wanted: dict[str, tuple[object, ...]] = {}
    for name, tensor in fresh.items():
        is_open = (tensor.ndim == 1 and tensor.dtype == torch.uint8) or (tensor.ndim > 0 and not len(tensor))
        wanted[name] = (tensor.dtype, *((None, *tensor.shape[1:]) if is_open else tensor.shape))
    check_arrays(found, wanted)


def check_arrays(found: Mapping[str, torch.Tensor], wanted: Mapping[str, Sequence[object]]) -> None:
    """ValueError unless tensors have these names, with type and shape as (dtype, *shape); None is any length."""
    for name in sorted({*found, *wanted}):
        if name not in wanted:
            raise ValueError(f"an entry {name!r} that is not of this run")
        tensor = found[name]
        here = (tensor.dtype, *tensor.shape)
        if len(here) != len(wanted[name]) or any(b not in (None, a) for a, b in zip(here, wanted[name], strict=True)):
            raise ValueError(f"the entry {name!r} is {tensor.dtype} of shape {tuple(tensor.shape)}")


def check_equal(found: Mapping[str, torch.Tensor], wanted: Mapping[str, torch.Tensor]) -> None:
    """ValueError unless tensors have the same names, types, shapes and bytes."""
    for name in sorted({*found, *wanted}):
        if name not in wanted:
            raise ValueError(f"an entry {name!r} that is not of this run")
        one, other = found[name], wanted[name]
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
