"""Feeds many damaged inputs to a reader in child processes of bounded memory and time, and judges what it does.

A reader may refuse with the library's own error of one line, or give the right result. Anything else is a failure:
another exception, a wrong result (the reader's ``read`` asserts what is right), more memory or processor time than it
may use, the end of the process. Run as a script, this module prints the table of ``docs/benchmarks.md``::

    python tests/fuzz/harness.py 100000 --seed 0
"""

import argparse
import contextlib
import importlib
import json
import os
import platform
import random
import re
import resource
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

import hypothesis
import pandas as pd
from hypothesis.configuration import set_hypothesis_home_dir

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(folder) for folder in (HERE, HERE.parent / "guard", ROOT) if str(folder) not in sys.path]

import forkserver  # noqa: E402

from pyro_hoim.errors import ErrorCode, HoimError  # noqa: E402

MODULES = (
    "read_tables", "read_packed", "read_words", "read_models", "read_checkpoints", "read_frames", "read_tensors",
    "read_commands",
)  # fmt: skip
os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"  # the others reserve a gigabyte of addresses at once

MEMORY = 2**30  # bytes of address space beyond what the child has at its start
SECONDS = 10  # of processor time for a case
SILENCE = 90  # of the clock, after which a child that says nothing and does nothing is ended
START = 240  # of the clock, before the first case
CHUNK = 50  # cases that a strategy draws at a time
LONGEST = 2000  # characters of an error


@dataclass(frozen=True)
class Reader:
    """Something that reads what comes from outside.

    Attributes:
        name: as in the table.
        read: reads a case in a folder of its own and asserts that the result is right.
        draw: a case from a generator of random numbers, a strategy of hypothesis, or a list of cases.
        share: of the cases of a table; a slow reader has less than 1.
        asks: whether another library may ask for memory that a damaged file names, be refused it and say so; it fills
            none.
    """

    name: str
    read: Callable[[Any, Path], object]
    draw: Callable[[random.Random], Any] | hypothesis.strategies.SearchStrategy[Any] | list[Any]
    share: float = 1.0
    asks: bool = False

    def cases(self, seed: int, first: int, last: int) -> Iterable[tuple[int, Any]]:
        """Numbered cases, the same for the same seed wherever one begins."""
        if isinstance(self.draw, list):
            yield from ((number, self.draw[number % len(self.draw)]) for number in range(first, last))
            return
        if not isinstance(self.draw, hypothesis.strategies.SearchStrategy):
            for number in range(first, last):
                yield number, self.draw(random.Random(f"{self.name} {seed} {number}"))
            return
        for start in range(first - first % CHUNK, last, CHUNK):
            bits = random.Random(f"{self.name} {seed} {start}").getrandbits(64)
            drawn = _drawn(self.draw, bits, min(CHUNK, last - start))
            yield from ((n, case) for n, case in enumerate(drawn, start) if first <= n < last)


class _EnoughError(Exception):
    """As many cases were drawn as are wanted."""


def _drawn(strategy: hypothesis.strategies.SearchStrategy[Any], seed: int, number: int) -> list[Any]:
    """The first cases of a chunk of a strategy."""
    found: list[Any] = []

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=CHUNK,
        database=None,
        deadline=None,
        derandomize=False,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(strategy)
    def keep(case: Any) -> None:
        found.append(case)
        if len(found) >= number < CHUNK:
            raise _EnoughError

    with contextlib.suppress(_EnoughError):
        keep()
    return found[:number]


@dataclass
class Outcome:
    """What became of the cases of a reader."""

    refused: int = 0
    right: int = 0
    failed: list[dict[str, Any]] = field(default_factory=list)

    @property
    def cases(self) -> int:
        return self.refused + self.right + len(self.failed)


class _TooLongError(BaseException):
    """A case used up its processor time."""


def judge(reader: Reader, case: Any, folder: Path) -> str:
    """Whether a case was ``refused`` or ``right``; raises what is a failure."""
    with warnings.catch_warnings(action="ignore"):
        try:
            reader.read(case, folder)
        except HoimError as error:  # let go at the end of the block: with it the frames of the reader, and their bytes
            _check_refusal(reader, error)
            return "refused"
    return "right"


def _check_refusal(reader: Reader, refusal: HoimError) -> None:
    """An error is one line with a code of the library, and not the end of the memory in other words."""
    text = str(refusal)
    assert refusal.code in get_args(ErrorCode), refusal.code
    assert "\n" not in text and 0 < len(text) <= LONGEST, f"the error is no line: {text[:300]!r}"
    is_out = any(isinstance(cause, MemoryError) for cause in _causes(refusal))
    assert reader.asks or not is_out, f"refused after the memory was used up: {text[:300]}"


def _causes(error: BaseException) -> Iterable[BaseException]:
    """What an exception was raised from, or while."""
    cause = error.__cause__ or error.__context__
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__


def _shown(case: Any) -> str:
    """Enough of a case to know it again."""
    return repr(case)[:400] if not hasattr(case, "dtypes") else f"{dict(case.dtypes)}\n{case}"[:600]


_PROGRAM = "import sys; sys.path.insert(0, sys.argv[1]); import harness; harness.child(*sys.argv[2:])"


def child(jobs: str, seed: str, log: str, seconds: str) -> None:
    """Run cases one after another; the log has a line for each, begun before the case."""

    def stop(*_: object) -> None:
        raise _TooLongError

    signal.signal(signal.SIGPROF, stop)
    pd.Series(["x"]).str.strip()  # loads what pandas loads late
    found = [(*_reader(module, name), first, last) for module, name, first, last in json.loads(jobs)]
    # Its table of characters takes a second to make, and would be made anew in each folder.
    set_hypothesis_home_dir(ROOT / ".hypothesis")
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    most = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    with tempfile.TemporaryDirectory() as folder, open(log, "a", encoding="utf-8", buffering=1) as out:
        os.chdir(folder)
        for _, reader, first, last in found:
            for number, case in reader.cases(int(seed), first, last):
                out.write(f"{reader.name}\t{number}\t")
                out.flush()
                out.write(f"{_result(reader, case, Path(folder), float(seconds))}\n")


def _result(reader: Reader, case: Any, folder: Path, seconds: float) -> str:
    """What :func:`judge` says, or the failure as JSON."""
    try:
        signal.setitimer(signal.ITIMER_PROF, seconds)
        return judge(reader, case, folder)
    except _TooLongError:
        problem = f"more than {seconds:g} seconds of processor time"
    except MemoryError:
        problem = f"more than {MEMORY >> 20} MiB"
    except BaseException as error:  # noqa: BLE001 (that is what is looked for)
        problem = f"{type(error).__name__}: {' '.join(str(error).split())[:300]} [{_place(error)}]"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return json.dumps({"problem": problem, "case": _shown(case)})


def _reader(module: str, name: str) -> tuple[str, Reader]:
    return module, next(r for r in importlib.import_module(module).READERS if r.name == name)


def _place(error: BaseException) -> str:
    """The lines of the library and of the tests that raised an exception, innermost last."""
    places, trace = [], error.__traceback__
    while trace is not None:
        file = Path(trace.tb_frame.f_code.co_filename)
        if ROOT in file.parents:
            places.append(f"{file.name}:{trace.tb_lineno}")
        trace = trace.tb_next
    return " ".join(places[-4:])


def run(chosen: Iterable[tuple[str, Reader, int]], seed: int) -> dict[str, Outcome]:
    """Outcomes of so many cases of each reader; a case that ends its process is a failure, and another goes on."""
    jobs = [[module, reader.name, 0, number] for module, reader, number in chosen]
    found = {str(name): Outcome() for _, name, _, _ in jobs}
    with tempfile.TemporaryDirectory() as folder:
        log, output = Path(folder, "log"), Path(folder, "output")
        while jobs:
            log.write_text("", encoding="utf-8")
            _wait(
                forkserver.start(_PROGRAM, output, str(HERE), json.dumps(jobs), str(seed), str(log), str(SECONDS)), log
            )
            told = output.read_text(encoding="utf-8", errors="replace")[-600:]
            seen = _read(log, found, told)
            if not seen and any(first < last for _, _, first, last in jobs):
                raise RuntimeError(f"no case was run: {told}")
            jobs = [
                [m, name, seen.get(name, first), last] for m, name, first, last in jobs if seen.get(name, first) < last
            ]
    return found


def _wait(process: Any, log: Path) -> None:
    """Until a child ends; one that is silent for long, and no longer on the way to its limit of time, is ended.

    On a busy machine a case may wait for a processor much longer than it computes, and must have its time. What no
    signal reaches gets twice that time and no more.
    """
    size, before, last, since = -1, 0.0, 0.0, time.monotonic()
    while process.is_alive():
        process.join(0.05)
        now, used = log.stat().st_size, _processor_time(process.pid)
        if now != size:
            size, before, last, since = now, used, used, time.monotonic()
        elif last < used < before + 2 * SECONDS:
            last, since = used, time.monotonic()
        elif time.monotonic() - since > (SILENCE if size else START):
            process.kill()
            process.join()


def _processor_time(process: int) -> float:
    """Seconds that a process has computed, 0 where it is no more."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _read(log: Path, found: dict[str, Outcome], told: str) -> dict[str, int]:
    """Count the lines of a log; the number of the next case of each reader in it."""
    seen: dict[str, int] = {}
    for line in log.read_text(encoding="utf-8").splitlines():
        name, number, result = line.split("\t")
        seen[name] = int(number) + 1
        outcome = found[name]
        if result in ("refused", "right"):
            setattr(outcome, result, getattr(outcome, result) + 1)
        else:
            lost = {"problem": f"the process ended: {told}", "case": "?"}
            outcome.failed.append({"number": int(number), **(json.loads(result) if result else lost)})
    return seen


def readers(names: Iterable[str] = ()) -> list[tuple[str, Reader]]:
    """Modules and readers, all or those of the names."""
    wanted = set(names)
    every = [(module, r) for module in MODULES for r in importlib.import_module(module).READERS]
    return [(module, r) for module, r in every if not wanted or r.name in wanted or module in wanted]


def table(cases: int, seed: int, names: Iterable[str] = (), tell: Callable[[str], object] = print) -> list[str]:
    """Run about so many cases over all readers; the failures, after lines of a table."""
    chosen, failures, total = readers(names), list[str](), [0, 0, 0, 0]
    shares = sum(r.share for _, r in chosen)
    tell("| reader | cases | refused | right | failed |")
    tell("|---|---|---|---|---|")
    for module, reader in chosen:
        found = run([(module, reader, max(1, round(cases * reader.share / shares)))], seed)[reader.name]
        row = [found.cases, found.refused, found.right, len(found.failed)]
        total = [a + b for a, b in zip(total, row, strict=True)]
        tell(f"| {reader.name} | {' | '.join(f'{n:,}' for n in row)} |")
        failures += told(reader, found, seed)
    tell(f"| all | {' | '.join(f'{n:,}' for n in total)} |")
    return failures


def told(reader: Reader, found: Outcome, seed: int) -> list[str]:
    """Of every kind of failure the shortest case, and how many there are."""
    kinds: dict[str, list[dict[str, Any]]] = {}
    for failure in found.failed:
        kinds.setdefault(re.sub(r"\d+|'[^']*'|tmp\w+", "#", failure["problem"])[-90:], []).append(failure)
    shortest = [(len(kind), min(kind, key=lambda f: len(f["case"]))) for kind in kinds.values()]
    return [
        f"{reader.name}, seed {seed}, case {f['number']} ({n} alike): {f['problem']}\n    {f['case']}"
        for n, f in shortest
    ]


def main() -> None:
    """Print the table, and the failures on standard error."""
    parser = argparse.ArgumentParser()
    parser.add_argument("cases", type=int)
    parser.add_argument("names", nargs="*", help="readers or modules, by default all")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    machine = f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, Python {platform.python_version()}"
    print(
        f"Command: `python tests/fuzz/harness.py {' '.join(sys.argv[1:])}` ({datetime.now(UTC):%Y-%m-%d}, {machine})\n"
    )
    failures = table(arguments.cases, arguments.seed, arguments.names, lambda line: print(line, flush=True))
    sys.exit("\n".join(failures) if failures else 0)


if __name__ == "__main__":
    sys.modules["harness"] = sys.modules["__main__"]
    main()
