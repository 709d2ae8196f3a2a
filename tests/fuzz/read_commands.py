"""Command lines: every command with values of its options by their types, and with words that no option expects."""

import contextlib
import functools
import io
import json
import shutil
import tempfile
from pathlib import Path

import click
from harness import ROOT, Reader
from mutations import TEXTS, dumped, hostile, mutate_bytes, mutate_json
from read_models import sealed

from pyro_hoim.cli import cli, output as progress, run
from pyro_hoim.errors import refused

progress.PERIOD = 3600.0
ROWS = "a,b,c\nx,1,u\ny,2,v\nx,2,u\ny,1,u\nx,1,v\n" * 4
FILES = {
    "t.csv": ROWS.encode(),
    "n.csv": b"a,b\n0,1\n2,0\n1,1\n3,2\n" * 5,
    "bad.csv": b"a,b\n1\n",
    "empty": b"",
    "levels.json": b'{"a": ["x", "y", "z"]}',
    "junk": bytes(range(256)),
}
MODELS = ["log_linear_czech", "network_tables", "root_poisson", "log_linear_weak"]
WORDS = [
    *TEXTS, "nan", "1e400", "-5", "1e15", "9" * 50, "2", "0.8,0.1,0.1", "unit", "drop", "--", "-h", ".", "a", "a,b",
]  # fmt: skip
WORDS += ["-h", "a=x", "x=", "=", "a=quantile:2", "a:b", "a*b", ".^2", "t.csv", "junk", "/dev/null", "/nonexistent/x"]
SLOW = {"--posterior", "learn", "structures", "--model", "--jobs", "--tests"}


@functools.cache
def good():
    """A folder of inputs."""
    folder = Path(tempfile.mkdtemp())
    for name, content in FILES.items():
        (folder / name).write_bytes(content)
    for name in MODELS:
        shutil.copy(ROOT / "tests" / "golden" / "model_files" / name, folder / name)
    return folder


def _value(rng, param):
    """A word for an option or argument, mostly of its type."""
    kind = param.type
    if rng.random() < 0.25:
        return rng.choice(WORDS)
    if isinstance(kind, click.Choice):
        return rng.choice(kind.choices)
    if isinstance(kind, click.IntRange | click.types.IntParamType):
        low = getattr(kind, "min", None) or 0
        return str(rng.choice([low, low - 1, low + 1, 2, 100, 2**31 - 1, 2**31, 10**12, 10**30]))
    if isinstance(kind, click.FloatRange | click.types.FloatParamType):
        return str(rng.choice([0, -1, 0.5, 1, 1e-300, 1e300, 2]))
    if isinstance(kind, click.Path):
        return rng.choice([*FILES, *MODELS, "titanic", "absent", "new"])
    return rng.choice(WORDS)


@functools.cache
def commands():
    """Every command with its parameters."""
    with click.Context(cli) as context:
        found = {name: cli.get_command(context, name) for name in cli.list_commands(context)}
        return {name: found[name].get_params(click.Context(found[name])) for name in found}


def draw(rng):
    name = rng.choice(list(commands()))
    words, params = [name], commands()[name]
    for param in params:
        if isinstance(param, click.Argument):
            times = rng.choice([0, 2]) if param.nargs < 0 else rng.random() < 0.95
            good_words = ["t.csv", *MODELS]
            words += [_value(rng, param) if rng.random() < 0.6 else rng.choice(good_words) for _ in range(times)]
    options = [param for param in params if isinstance(param, click.Option) and not {*param.opts} & SLOW]
    for param in rng.sample(options, min(len(options), rng.choice([0, 1, 1, 2, 3]))):
        words.append(rng.choice([*param.opts, *param.secondary_opts]))
        if not param.is_flag:
            words.append(_value(rng, param))
    if rng.random() < 0.1:
        words.insert(rng.randrange(len(words) + 1), rng.choice(WORDS))
    return words


def run_words(words):
    """Run a command line; what it refuses is raised, after a look at what was printed."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = run(words)
    lines = err.getvalue().splitlines()
    assert "Traceback" not in err.getvalue() and len(lines) <= 12, lines[:5]
    assert status in (0, 2), status
    errors = [line for line in lines if line.startswith("pyro-hoim: error: ")]
    assert len(errors) == (status == 2), lines
    assert all(character.isprintable() for line in lines for character in line), lines
    if errors:
        raise refused("command", errors[0][:1900])
    return out.getvalue()


def read(words, folder):
    """A command that ends well prints something, and JSON where it was asked for."""
    for path in folder.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    for path in good().iterdir():
        shutil.copy(path, folder)
    found = run_words(words)
    if "--json" in words and "-h" not in words and "--help" not in words and words[0] != "--":
        json.loads(found, parse_constant=lambda word: 1 / 0)


# The record of a fit that was stopped, and of one that has ended

RECORD = {"options": {"--order": "1"}, "rows": "0" * 32, "seconds": 3.5, "since": 1.7e9}


def draw_record(rng):
    if rng.random() < 0.3:
        return mutate_bytes(rng, sealed(RECORD, {}).encode())
    return sealed(mutate_json(rng, RECORD), {}).encode() if rng.random() < 0.8 else dumped(hostile(rng)).encode()


def read_record(data, folder):
    """The fit goes on, starts anew, or says in one line why not; its record is whole afterwards."""
    shutil.rmtree(folder / "out", ignore_errors=True)
    held = folder / "out" / "checkpoint"
    held.mkdir(parents=True)
    (held / "run.json").write_bytes(data)
    (held / "else").write_bytes(b"")
    (folder / "t.csv").write_text(ROWS)
    run_words(["fit", "t.csv", "--order", "1", "--out", "out", "--resume"])
    assert json.loads((folder / "out" / "fit.json").read_text())["rows"]


READERS = [Reader("command lines", read, draw, 0.15), Reader("run.json", read_record, draw_record, 0.03)]
