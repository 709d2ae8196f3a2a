"""What the benchmark scripts share: timing, models as energies, peers' environments and the report."""

import argparse
import datetime
import inspect
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
import venv
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch

from pyro_hoim import Domain, InteractionHypergraph, LogLinearEnergy
from pyro_hoim.datasets import load_adult, load_breast_cancer, load_mushroom

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "benchmarks.md"
PEERS = Path(__file__).resolve().parent / "peers"
MUSHROOM = [2, 6, 4, 10, 2, 9, 2, 2, 2, 12, 2, 5, 4, 4, 9, 9, 1, 4, 3, 5, 9, 6, 7]
CORES = os.cpu_count() or 1
LOADERS = {"mushroom": load_mushroom, "adult": load_adult, "breast_cancer": load_breast_cancer}
# What tests share with benchmarks: laws and tables, and the package `support`.
sys.path += [str(ROOT / "tests" / folder) for folder in ("log_linear/goodness", "inference/structure", "")]


PARTS = {}
BEYOND = "ABOVE the limit"
"""Words of a line about a figure that is not to be so large; the script ends with status 1 then."""


def part(title, *, is_default=True):
    """Register a function as a part of a script, one that runs only where it is named if it is no default.

    Its keywords are the options of the part, and the lines that it returns stand under the title in the page.
    """

    def registered(function):
        PARTS[function.__name__.replace("_", "-")] = title, function, is_default
        return function

    return registered


def add_option(parser, name, default):
    """An option of a part: a tuple takes several values, False is a switch, and the type is that of the default."""
    flag = f"--{name.replace('_', '-')}"
    if isinstance(default, bool):
        parser.add_argument(flag, action="store_true")
    elif isinstance(default, list | tuple):
        parser.add_argument(flag, nargs="+", type=type(default[0]), default=default)
    else:
        parser.add_argument(flag, type=str if default is None else type(default), default=default)


def main(doc):
    """Run one part of a script with its options, or all default parts."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=doc, formatter_class=raw)
    parser.add_argument("--append", action="store_true", help="append the tables to docs/benchmarks.md")
    commands = parser.add_subparsers(dest="part", metavar="PART")
    parts = {name: entry for name, entry in PARTS.items() if entry[1].__module__ == "__main__"}
    for name, (title, function, _) in parts.items():
        command = commands.add_parser(name, help=title, description=function.__doc__, formatter_class=raw)
        for option in inspect.signature(function).parameters.values():
            add_option(command, option.name, option.default)
    options = vars(parser.parse_args())
    chosen, append = options.pop("part"), options.pop("append")
    torch.set_num_threads(1)
    is_beyond = False
    for name in [chosen] if chosen else [name for name, entry in parts.items() if entry[2]]:
        title, function, _ = parts[name]
        start = time.process_time()
        lines = function(**options)
        words = " ".join([Path(sys.argv[0]).name, *(sys.argv[1:] if chosen else [name])])
        head = f"`python tests/benchmarks/{words}`. {about()} {time.process_time() - start:.0f} s of processor time."
        publish(title, "\n".join([head, "", *lines]), append)
        is_beyond |= any(BEYOND in line for line in lines)
    if is_beyond:  # told in the tables, and to whatever runs the script
        sys.exit(1)


def stamp():
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")


def about():
    """Machine and versions."""
    versions = ", ".join(f"{name} {version(name)}" for name in ("torch", "numba", "pyro-ppl"))
    return f"{CORES} cores ({platform.machine()}), Python {platform.python_version()}, {versions}."


def markdown(head, rows=()):
    """Lines of a table."""
    return [f"| {' | '.join(map(str, cells))} |" for cells in (head, ["---"] * len(head), *rows)]


def reported(head, rows):
    """Lines of a report whose rows are shown as they come."""
    report = Report(head)
    for row in rows:
        report.row(*row)
    return report.lines()


def publish(title, text, append):
    """Print a section; append it to docs/benchmarks.md."""
    print(text)
    if append:
        with PAGE.open("a", encoding="utf-8") as file:
            file.write(f"\n## {title}, {stamp()}\n\n{text}\n")


def median(call, repeats, warm=2, clock=time.perf_counter):
    """Median and fastest time in seconds."""
    for _ in range(warm):
        call()
    times = []
    for _ in range(repeats):
        start = clock()
        call()
        times.append(clock() - start)
    return float(np.median(times)), min(times)


def in_turns(calls, rounds=7):
    """Medians over rounds of elapsed and of processor time of every call, in seconds; the first round compiles."""
    times = {name: [] for name in calls}
    for k in range(rounds + 1):
        for name, call in calls.items():
            start, used = time.perf_counter(), time.process_time()
            call()
            if k:
                times[name].append((time.perf_counter() - start, time.process_time() - used))
    return {name: np.median(found, axis=0) for name, found in times.items()}


def peak_mb():
    """Largest resident set of this process so far, in units of 10^6 bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def grid_pairs(size):
    """Neighbours in a square grid, sorted."""
    index = np.arange(size * size).reshape(size, size)
    right, below = (index[:, :-1], index[:, 1:]), (index[:-1], index[1:])
    return sorted(tuple(pair) for ends in (right, below) for pair in np.stack(ends, -1).reshape(-1, 2).tolist())


def as_energy(model, dtype=torch.float32):
    cards, tables = model
    domain = Domain.from_cardinalities({f"v{i}": c for i, c in enumerate(cards)})
    edges = [tuple(f"v{i}" for i in scope) for scope, _ in tables]
    hypergraph = InteractionHypergraph(domain, edges, hierarchical=False)
    flat = torch.zeros(hypergraph.num_terms, dtype=dtype)
    for edge, (_, table) in zip(edges, tables, strict=True):
        flat[hypergraph.term_slices[edge]] = torch.as_tensor(table, dtype=dtype).reshape(-1)
    return LogLinearEnergy(hypergraph, flat)


def peer_python(package):
    """Python of the peer's own environment; made on first use."""
    named = os.environ.get(f"PYRO_HOIM_PEER_{package.upper()}")
    if named:
        return named
    folder = Path(tempfile.gettempdir()) / "pyro_hoim_peers" / package
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        venv.create(folder, with_pip=True)
        pins = [f"torch=={torch.__version__.split('+')[0]}"] if package == "pgmpy" else []
        subprocess.run([str(python), "-m", "pip", "install", "-q", package, *pins], check=True)
        (folder / "ready").touch()
    return str(python)


def printed(command, **variables):
    """The JSON objects that a command prints, one a line, with further environment variables."""
    environment = {**os.environ, **variables}
    done = subprocess.run(list(map(str, command)), check=True, stdout=subprocess.PIPE, text=True, env=environment)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def apart(function, *arguments, **variables):
    """What a function of a script returns as JSON in a process of its own, with further environment variables."""
    path = Path(function.__code__.co_filename)
    program = f"import json, sys; sys.path.insert(0, {str(path.parent)!r}); import {path.stem} as script; "
    program += f"print(json.dumps(script.{function.__name__}(*json.loads(sys.argv[1]))))"
    return printed([sys.executable, "-c", program, json.dumps(arguments)], **variables)[-1]


def run_peer(name, *arguments, **variables):
    """What the script of a peer prints in the environment of the peer."""
    return printed([peer_python(name.rpartition("_")[2]), PEERS / f"{name}.py", *arguments], **variables)


def first_call(program, *arguments):
    """Seconds that a program prints, in processes with an empty and then a filled cache of compiled code."""
    with tempfile.TemporaryDirectory() as cache:
        command = [sys.executable, "-c", program, *arguments]
        environment = {**os.environ, "NUMBA_CACHE_DIR": cache}
        for _ in range(2):
            yield float(subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment).stdout)


def write_models(folder, models):
    """A file of named arrays of every model, of which those called ``tables`` are numbered."""
    arrays = {"names": json.dumps(list(models))}
    for name, parts in models.items():
        arrays |= {f"{name}/{i}": table for i, table in enumerate(parts.pop("tables", ()))}
        arrays |= {f"{name}/{part}": value for part, value in parts.items()}
    path = Path(folder) / "models.npz"
    np.savez(path, **arrays)
    return path


def spread(values, digits=3):
    """Mean and standard deviation, in words."""
    return f"{np.mean(values):.{digits}f} ± {np.std(values):.{digits}f}"


class Report:
    """Rows of a table, shown as they come; times in milliseconds, the ratio the peer's time over ours.

    The columns may be one text with bars between them.
    """

    def __init__(self, columns=("what", "who", "ms", "ratio", "note"), legend=""):
        self.columns = columns.split("|") if isinstance(columns, str) else columns
        self.legend, self.rows = legend, []

    def add(self, what, who, seconds, ratio="", note=""):
        self.row(what, who, f"{seconds * 1e3:.3g}", f"{ratio:.1f}" if ratio else "", note)

    def row(self, *cells):
        self.rows.append(cells)
        print(*cells, sep=" | ", file=sys.stderr, flush=True)

    def lines(self):
        return [*([self.legend, ""] if self.legend else []), *markdown(self.columns, self.rows)]
