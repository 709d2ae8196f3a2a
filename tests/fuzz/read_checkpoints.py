"""What an interrupted run is continued from: checkpoints of every kind with wrong bytes or contents."""

import functools
import sys
import tempfile
from pathlib import Path

import torch
from harness import ROOT, Reader
from mutations import mutate_bytes, mutate_json

sys.path.append(str(ROOT / "tests" / "crash"))

import test_damage as damage
from read_models import mutate_tensors, signed

from pyro_hoim.runs import RunOptions
from pyro_hoim.runs.checkpoint import RunFile

RunFile.SECONDS = 0.0
EVERY = [kind for kind in damage.KINDS if kind != "posterior"]  # chains of Hamiltonian Monte Carlo take seconds


@functools.cache
def good(kind):
    """The files of a finished run by name."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder, "run")
        damage.KINDS[kind](RunOptions(place))
        return {path.name: path.read_bytes() for path in (place.iterdir() if place.is_dir() else [place])}


def draw_bytes(rng):
    kind = rng.choice(EVERY)
    name = rng.choice(sorted(good(kind)))
    return kind, name, mutate_bytes(rng, good(kind)[name])


def draw_contents(rng):
    """Other arrays or settings with a right checksum."""
    kind = rng.choice(EVERY)
    name = rng.choice(sorted(good(kind)))
    with tempfile.NamedTemporaryFile() as file:
        Path(file.name).write_bytes(good(kind)[name])
        header, tensors = damage.parts(file.name)
    header.pop("sha256")
    if rng.random() < 0.6:
        tensors = mutate_tensors(rng, tensors)
    else:
        header["settings"] = mutate_json(rng, header["settings"])
    return kind, name, signed(header, tensors, damage.KEY)


def read_bytes(case, folder):
    """A run that goes on ends as one that was never stopped."""
    assert _numbers(read_contents(case, folder)) == _numbers(_whole(case[0]))


def read_contents(case, folder):
    """The result of a run that goes on from a checkpoint."""
    kind, name, data = case
    place = folder / "run"
    for path in [*folder.glob("run/*"), place]:
        if path.is_file():
            path.unlink()
    held = {**good(kind), name: data}
    if kind in damage.FOLDERS:
        place.mkdir(exist_ok=True)
    elif place.is_dir():
        place.rmdir()
    for other, content in held.items():
        (place / other if kind in damage.FOLDERS else place).write_bytes(content)
    return damage.KINDS[kind](RunOptions(place, resume=True))


@functools.cache
def _whole(kind):
    return damage.KINDS[kind](RunOptions())


def _numbers(result):
    """Every tensor of a result."""
    held = {name: value for name, value in vars(result).items() if isinstance(value, torch.Tensor)}
    return {name: value.nan_to_num().tolist() for name, value in held.items() if "second" not in name}


READERS = [
    Reader("checkpoints, bytes", read_bytes, draw_bytes, 0.3),
    Reader("checkpoints, contents with a right checksum", read_contents, draw_contents, 0.2),
]
