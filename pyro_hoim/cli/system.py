"""What the system refuses or asks of a command, in one line: full disks, closed pipes, too little memory, signals."""

import os
import signal
import sys
import threading
import traceback
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import click

_BROKEN_PIPE = 141  # 128 and the number of SIGPIPE, as shells say it of programs that it ended
_SOON = 0.01  # seconds
_NO_MEMORY = ("can't allocate memory", "not enough memory", "CUDA out of memory", "bad_alloc", "bad allocation")
_LESS = {
    "fit": "use fewer --columns, a lower --order or fewer --num-chains",
    "sample": "draw fewer rows at once with -n",
    "score": "score fewer rows at once, or use fewer --num-chains",
    "predict": "predict fewer rows at once",
    "log-z": "use fewer --num-chains or --max-cells",
    "interactions": "leave the loss out with --no-information",
    "margins": "name fewer columns, or use fewer --num-draws",
    "compare": "compare fewer models, or on fewer rows",
}


@contextmanager
def one_line(command: str | None, stage: Any) -> Generator[None]:
    """Turn what the system refuses while a command runs into an error of one line, other errors pass.

    A pipe whose reader has gone ends the command without a word.

    Args:
        command: name of the command.
        stage: its ``stage`` is what is being done, in words, or empty.
    """
    try:
        yield
    except BrokenPipeError as error:
        raise click.exceptions.Exit(_BROKEN_PIPE) from error
    # What the system refuses is one line, not a traceback.
    except OSError as error:
        raise click.ClickException(reason(error)) from error
    except UnicodeEncodeError as error:
        part = ascii(error.object[error.start : error.end])
        raise click.ClickException(f"{command}: names or labels with {part} cannot be written as UTF-8") from error
    except RecursionError as error:
        raise click.ClickException(f"{command}: the input is nested too deeply; simplify it") from error
    # Torch says a lack of memory as a RuntimeError.
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and not any(words in str(error) for words in _NO_MEMORY):
            raise
        during = f" while {stage.stage}" if stage.stage else ""
        hint = _LESS.get(str(command), "use a machine with more memory")
        raise click.ClickException(f"{command}: not enough memory{during}; {hint}") from error


def reason(error: OSError) -> str:
    """What the system refused, with the file, the folder or the stream where that is known."""
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    printing = [frame for frame in frames if frame.f_code is click.echo.__code__]
    if printing:
        where = "standard error" if printing[0].f_locals["err"] else "standard output"
        return f"{where}: cannot be written ({error.strerror or error})"
    named = error.filename if error.filename or _is_somewhere() else "the working directory"
    return ": ".join(str(part) for part in (named, error.strerror or error) if part)


def _is_somewhere() -> bool:
    """Whether the working directory still exists."""
    try:
        return bool(os.getcwd())
    except OSError:
        return False


@contextmanager
def signals_received() -> Generator[list[int]]:
    """Let SIGTERM, and the end of the terminal, interrupt a command as Ctrl-C does; the numbers that came.

    Elsewhere than in the main thread, and where they are ignored as by ``nohup``, signals keep their meaning. An
    interrupt that came while compiled code called Python, which loses exceptions, is repeated soon after. What
    finalizers say after a signal is not shown: they find objects that it left half made.
    """
    received: list[int] = []
    hook = sys.unraisablehook

    # An interrupt inside a callback of C code is lost there: it is sent again soon.
    def repeat(lost: Any) -> None:
        if isinstance(lost.exc_value, KeyboardInterrupt):
            number = received[-1] if received else signal.SIGINT
            threading.Timer(_SOON, _wake, (number,)).start()
        elif not received:
            hook(lost)

    def interrupt(number: int, _: object) -> None:
        received.append(number)
        raise KeyboardInterrupt

    # Only signals that would end the process are taken over, and only in the main thread.
    former: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for name in ("SIGTERM", "SIGHUP"):
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) == signal.SIG_DFL:
                former[number] = signal.signal(number, interrupt)
        sys.unraisablehook = repeat
    try:
        yield received
    finally:
        sys.unraisablehook = hook
        for number, handler in former.items():
            signal.signal(number, handler)


def _wake(number: int) -> None:
    """Send a signal to the main thread, which may be asleep; where there is no such call it is seen on awakening."""
    main = threading.main_thread().ident
    if sys.platform == "win32" or main is None:
        signal.raise_signal(number)
    else:
        signal.pthread_kill(main, number)


def open_streams() -> None:
    """Give a process without standard streams some that refuse, or swallow messages, so that no file takes their place.

    What is printed to a closed standard output is refused, as on a full disk; messages without a place are lost.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_WRONLY if name == "stderr" else os.O_RDONLY)
            if opened != number:
                os.dup2(opened, number)
            setattr(sys, name, open(number, "r" if name == "stdin" else "w", closefd=False))  # noqa: SIM115


def close_streams() -> None:
    """Drop what a standard stream still holds and cannot be written, which was said already or has no reader."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
