"""Model files of every family and posteriors over structure: wrong bytes, and contents that have a right checksum."""

import functools
import json
import shutil
import tempfile
from pathlib import Path

import pandas as pd
import safetensors
import safetensors.torch
import torch
from harness import ROOT, Reader
from mutations import dumped, mutate_bytes, mutate_json

import pyro_hoim as hoim
from pyro_hoim.boltzmann import MachineFile, MachineStructure, save_machine
from pyro_hoim.generalized_root import RootFile, RootStructure, choose_families, save_roots
from pyro_hoim.inference import enumerate_structures, load_structure_posterior, save_structure_posterior
from pyro_hoim.runs import container as seal
from pyro_hoim.runs.container import read_container, read_kind, with_info

KEY, POSTERIOR = "pyro-hoim", "structure-posterior"
GOLDEN = ROOT / "tests" / "golden" / "model_files"
NAMES = [*sorted(path.name for path in GOLDEN.iterdir()), "machine", "mixed", "posterior"]


def mixed_file():
    """A root model of a category, labels and two kinds of numbers, with what a data frame said of its columns."""
    frame = pd.DataFrame(
        {
            "region": pd.Categorical(["north", "south", "west"] * 6),
            "ill": ["no", "yes"] * 9,
            "age": [30.5 + i for i in range(18)],
            "visits": [0, 1, 3] * 6,
            "batch": ["one"] * 18,
        }
    )
    columns = choose_families(frame, {"age": "real", "visits": "count"})
    structure = RootStructure.mixed(columns.domain, [("region=north", "ill"), ("region=south", "age")])
    psi = torch.tensor(
        [-0.02 if names == ("age",) and key == (1, 1) else 0.1 for key, names in structure.names], dtype=torch.float64
    )
    info = {"frame": columns.to_json(), "scales": {"age": 5.0}, "typical": {"age": 1.0}, "rows": 18, "l1": 0.1}
    return RootFile(structure, psi, columns.families, info)


@functools.cache
def good(name):
    """The bytes of a good file as the library writes it now, its header and its tensors."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "m")
        if name == "machine":
            structure = MachineStructure.restricted(hoim.Domain.from_cardinalities({"a": 2, "b": 2}), 2)
            save_machine(path, MachineFile(structure, torch.linspace(-1, 1, 8, dtype=torch.float64)))
        elif name == "mixed":
            save_roots(path, mixed_file())
        elif name == "posterior":
            table = hoim.Domain.from_cardinalities({"a": 2, "b": 2, "c": 2})
            rows = hoim.Observations.from_table(table, [[[9, 1], [1, 9]], [[4, 4], [2, 7]]])
            save_structure_posterior(path, enumerate_structures(rows))
        else:
            shutil.copy(GOLDEN / name, path)
            path.write_bytes(with_info(path, {})[1])  # also of a batch of models, which no family loads as one
        with safetensors.safe_open(path, framework="pt") as file:
            header = json.loads(file.metadata()[KEY])
        header.pop("sha256", None)
        return path.read_bytes(), header, safetensors.torch.load(path.read_bytes())


def sealed(header, tensors):
    """JSON text of an object with a right checksum, even of what JSON cannot hold."""
    text = dumped(header)
    return text[:-1] + seal._LAST_ENTRY.format(seal.checksum(tensors, text))


def signed(header, tensors, key=KEY):
    """The bytes of a file with a right checksum over what it holds."""
    tensors = {name: tensor.contiguous() for name, tensor in tensors.items()}
    return safetensors.torch.save(tensors, {key: sealed(header, tensors)})


def mutate_tensors(rng, tensors):
    """The tensors with one of them of another type, shape or content, or missing, or renamed."""
    tensors = dict(tensors)
    name = rng.choice(list(tensors))
    held = tensors.pop(name)
    how = rng.randrange(8)
    if how == 0:
        tensors[rng.choice(["x", "theta", "probs.9", "psi", ""])] = held
    elif how == 1:
        tensors[name] = held.to(rng.choice([torch.float32, torch.float16, torch.int64, torch.uint8, torch.bool]))
    elif how == 2:
        tensors[name] = held.reshape(-1)[: rng.randrange(held.numel() + 1)]
    elif how == 3:
        others = [held[None], held.reshape(-1), held.expand(3, *held.shape), held.reshape(-1)[:0], held[None][:0]]
        tensors[name] = rng.choice(others)
    elif how == 4:
        tensors[name] = torch.cat([held.reshape(-1)] * 2)
    elif how >= 5 and held.numel():
        changed = held.clone()
        value = rng.choice(
            [0, -1, 1, 2, 200] if not held.is_floating_point() else [float("nan"), 1e308, -1e9, 0.0, 2.0]
        )
        changed.reshape(-1)[rng.randrange(held.numel())] = torch.tensor(float(value)).to(held.dtype)
        tensors[name] = changed
    return tensors


def draw_contents(rng):
    name = rng.choice(NAMES)
    _, header, tensors = good(name)
    how = rng.randrange(4)
    changed = header if how == 1 else mutate_json(rng, header)
    odd = mutate_tensors(rng, tensors) if how <= 1 else tensors
    told = {key: changed.get(key, "absent") for key in [*header, *changed] if changed.get(key) != header.get(key)}
    return name, told, {key: value for key, value in odd.items() if value is not tensors.get(key)}, signed(changed, odd)


def draw_bytes(rng):
    name = rng.choice(NAMES)
    return name, mutate_bytes(rng, good(name)[0])


def read_damaged(case, folder):
    """What loads has the contents that were written."""
    name, data = case
    path = folder / "m"
    path.write_bytes(data)
    _, header, tensors = good(name)
    found, held = read_container(path, read_kind(path))
    assert {key: found[key] for key in header} == header
    assert held.keys() == tensors.keys() and all(torch.equal(held[key], tensors[key]) for key in held)


def read_contents(case, folder):
    """What loads can be used, or says why not."""
    path = folder / "m"
    path.write_bytes(case[-1])
    if read_kind(path) == POSTERIOR:
        posterior = load_structure_posterior(path)
        assert 0 <= posterior.inclusion[posterior.structure_prior.space.domain.names[:2]] <= 1 + 1e-9
        return
    model = hoim.load(path)
    assert len(repr(model)) > 10
    model.interactions(top=3)
    rows = hoim.sample(model, 2, seed=0)
    assert len(rows) == 2
    assert "nll" in model.score(rows)


READERS = [
    Reader("model files, bytes", read_damaged, draw_bytes),
    Reader("model files, contents with a right checksum", read_contents, draw_contents),
]
