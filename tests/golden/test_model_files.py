"""Model files of version 0.1 open, and give the numbers and draws that they gave when they were written.

The files in ``model_files`` were written by release 0.1; what they hold is never replaced: it stands for what users
have. Only their headers were written anew, for the checksum of format 3.
``model_files.json`` holds their numbers. Run as a script, this module writes the files and entries that are absent,
and leaves all others as they are::

    python tests/golden/test_model_files.py

A row is made from positions alone; log-probabilities are in nats. Draws of categories and counts are equal, real ones
and all other numbers equal to 1e-12.
"""

import json
import os
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from forged_files import change

import pyro_hoim
from pyro_hoim import (
    DependencyConditionals,
    DependencyNetwork,
    Domain,
    GeneralizedRoot,
    HierarchicalLogLinear,
    InteractionHypergraph,
    LogLinearEnergy,
    RootStructure,
    Variable,
)
from pyro_hoim.dependency_network import NetworkFile, PseudoGibbsChains, TableConditional, load_network, save_network
from pyro_hoim.errors import ModelFileError
from pyro_hoim.generalized_root import RootChains, RootFile, load_roots, node_family, save_roots
from pyro_hoim.log_linear import GibbsChains, ModelFile, load_model, save_model
from pyro_hoim.runs.container import read_kind

from support.verbs import verb_first

HERE = Path(__file__).resolve().parent
FILES = HERE / "model_files"
NUMBERS = HERE / "model_files.json"
GOLDEN = json.loads(NUMBERS.read_text()) if NUMBERS.exists() else {}
TOLERANCE = 1e-12

pytestmark = pytest.mark.fixed_seed


# Numbers of a file


def log_linear_numbers(path):
    file = load_model(path)
    law = HierarchicalLogLinear(file.hypergraph, file.theta, coding=file.coding)
    codes = torch.arange(5)[:, None] + torch.arange(len(law.domain)) % torch.tensor(law.domain.cardinalities)
    codes %= torch.tensor(law.domain.cardinalities)
    rows = codes.reshape(5, *[1] * len(law.batch_shape), -1)
    chains = GibbsChains(LogLinearEnergy.from_theta(file.hypergraph, file.theta, file.coding), 4, seed=3)
    chains.sweep(6)
    return {
        "coding": file.coding,
        "edges": [list(edge) for edge in file.hypergraph.edges],
        "info": file.info,
        "theta": file.theta.tolist(),
        "log_partition": law.log_partition.value.tolist(),
        "log_prob": law.log_prob(rows).tolist(),
        "log_pseudo_prob": law.log_pseudo_prob(rows).tolist(),
        "eta": law.eta.tolist(),
        "draws": seeded(lambda: law.sample(torch.Size([6]))),
        "chains": chains.states.tolist(),
    }


def network_numbers(path):
    file = load_network(path)
    law = DependencyNetwork(file.conditionals)
    cards = torch.tensor(law.domain.cardinalities)
    rows = (torch.arange(5)[:, None] + torch.arange(len(cards))) % cards
    chains = PseudoGibbsChains(file.conditionals, 4, seed=3)
    chains.sweep(6)
    return {
        "info": file.info,
        "log_prob": law.log_prob(rows).tolist(),
        "log_pseudo_prob": law.log_pseudo_prob(rows).tolist(),
        "draws": seeded(lambda: law.sample(torch.Size([6]))),
        "chains": chains.states.tolist(),
    }


def root_numbers(path):
    file = load_roots(path)
    law = GeneralizedRoot(file.structure, file.psi, file.family)
    steps = torch.arange(5)[:, None] + torch.arange(len(law.domain))
    rows = (steps % 4).double() if file.family.kind == "count" else 0.25 * (1 + steps.double())
    chains = RootChains(file.energy(torch.float64), 4, seed=torch.Generator().manual_seed(3))
    chains.sweep(6)
    return {
        "family": repr(file.family),
        "terms": file.structure.to_json()["terms"],
        "info": file.info,
        "psi": file.psi.tolist(),
        "log_partition": law.log_partition.value.tolist(),
        "log_prob": law.log_prob(rows).tolist(),
        "log_pseudo_prob": law.log_pseudo_prob(rows).tolist(),
        "chains": chains.states.tolist(),
    }


def seeded(draw):
    """Draws from the global generator, which is put back as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return draw().tolist()


READERS = {
    "hierarchical-log-linear": log_linear_numbers,
    "dependency-network": network_numbers,
    "generalized-root": root_numbers,
}


def numbers_of(path):
    kind = read_kind(path)
    return {"kind": kind, **READERS[kind](path)}


# Comparison


def differences(found, expected, where=""):
    """Places where two JSON values differ: whole numbers and words at all, others by more than the tolerance."""
    if isinstance(expected, dict) and isinstance(found, dict) and set(found) == set(expected):
        return [line for key in expected for line in differences(found[key], expected[key], f"{where}.{key}")]
    if isinstance(expected, list) and isinstance(found, list) and len(found) == len(expected):
        pairs = enumerate(zip(found, expected, strict=True))
        return [line for i, (one, other) in pairs for line in differences(one, other, f"{where}[{i}]")]
    if isinstance(expected, float) and isinstance(found, float):
        is_same = found == pytest.approx(expected, rel=TOLERANCE, abs=TOLERANCE)
    else:
        is_same = type(found) is type(expected) and found == expected
    return [] if is_same else [f"{where}: {found!r} instead of {expected!r}"]


@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_file_opens_and_gives_its_numbers(name):
    assert differences(json.loads(json.dumps(numbers_of(FILES / name))), GOLDEN[name]) == []


def test_every_kind_has_a_file_and_every_file_its_numbers():
    assert {numbers["kind"] for numbers in GOLDEN.values()} == set(READERS)
    assert sorted(path.name for path in FILES.iterdir()) == sorted(GOLDEN)


@pytest.mark.parametrize("name", ["log_linear_czech", "root_poisson", "network_czech"])
def test_control_a_changed_number_is_seen(name, tmp_path):
    """The last byte of a file is the sign and exponent of its last parameter."""
    (tmp_path / name).write_bytes((FILES / name).read_bytes())

    def change_last_parameter(_, tensors):
        last = list(tensors.values())[-1].flatten()
        last.view(torch.uint8)[-2] ^= 1

    change(tmp_path / name, change_last_parameter)
    try:
        found = differences(numbers_of(tmp_path / name), GOLDEN[name])
    except ModelFileError:  # probabilities that no longer sum to one
        assert name == "network_czech"
        return
    assert any(".log_prob" in line for line in found)
    assert differences([1, 0.5], [1, 0.5 + 1e-11]) == ["[1]: 0.5 instead of 0.50000000001"]
    assert differences([[1]], [[2]]) and differences({"a": 1}, {}) and differences([1], [1, 1])


# Writing


def write_rows(path, rows, digits):
    lines = [",".join(f"{value:.{digits}f}" for value in row) for row in rows]
    path.write_text("\n".join(["a,b,c", *lines]) + "\n")


def write_files(target):
    """Write every model file into a folder: fits by the command line, and structures that no fit gives."""
    from pyro_hoim.cli import run

    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        rng = np.random.default_rng(0)
        shared = rng.gamma(2, 0.5, (150, 1))
        means = np.concatenate([shared, 1.5 * shared, rng.gamma(2, 0.5, (150, 1))], 1)
        write_rows(Path("counts.csv"), rng.poisson(means), 0)
        write_rows(Path("few.csv"), np.minimum(rng.poisson(means), 4), 0)
        write_rows(Path("positive.csv"), rng.exponential(1, (150, 3)) * means**0.5, 3)
        write_rows(Path("real.csv"), rng.normal(0, 1, (150, 3)) @ (np.eye(3) + 0.4 * np.eye(3, k=1)), 3)
        commands = {
            "log_linear_czech": "czech_autoworkers --order 2",
            "log_linear_conjugate": "hair_eye_color --edges Hair*Eye+Sex --prior conjugate:2",
            "learned_hair_eye_color": "hair_eye_color learn",
            "network_czech": "czech_autoworkers --model dependency-network",
            "root_poisson": "counts.csv --model grm --order 3 --split 1,0,0",
            "root_truncated": "few.csv --model grm --family truncated-poisson --maximum 4 --order 2",
            "root_exponential": "positive.csv --model grm --family exponential --order 2 --full",
            "root_gaussian": "real.csv --model grm --family gaussian --order 2",
        }
        for name, words in commands.items():
            jobs = ["--jobs", "1"] if "--model" in words else []
            if run(verb_first(*words.split(), "--out", name, *jobs)) != 0:
                raise SystemExit(f"{name}: the fit failed")
            for path in sorted(Path(name).glob("*.safetensors")):
                (target / (name if path.stem == "model" else f"{name}_{path.stem}")).write_bytes(path.read_bytes())
        os.chdir(before)
    domain = Domain([Variable("größe", ("klein", "groß"), "ordinal", "cm"), Variable("b", ("0", "1", "2"))])
    weak = InteractionHypergraph(domain, [["größe", "b"]], hierarchical=False)
    save_model(target / "log_linear_weak", ModelFile(weak, torch.linspace(-1, 1 / 3, weak.num_parameters)))
    full = InteractionHypergraph.saturated(domain)
    batch = torch.linspace(-1, 1 / 3, 2 * full.num_parameters, dtype=torch.float64).reshape(2, -1)
    extra = {"draws": torch.arange(6).reshape(2, 3)}
    save_model(target / "log_linear_corner_batch", ModelFile(full, batch, "corner", {"rows": 12}, extra))
    tables = [
        TableConditional(domain, "größe", ["b"], torch.tensor([[0.25, 0.75], [0.5, 0.5], [0.875, 0.125]]).double()),
        TableConditional(domain, "b", ["größe"], torch.tensor([[0.25, 0.25, 0.5], [0.5, 0.375, 0.125]]).double()),
    ]
    save_network(target / "network_tables", NetworkFile(DependencyConditionals(tables), {"rows": 12}))
    counts = RootStructure.complete(Domain([Variable(name, kind="count") for name in "abc"]), 3)
    entries = torch.linspace(-1, -1 / 3, counts.num_terms)
    save_roots(target / "root_complete_float32", RootFile(counts, entries, node_family("poisson")))


def main():
    """Write the absent files and the absent entries of the numbers."""
    assert pyro_hoim.__version__ == "0.1.0", "the files stand for release 0.1"
    FILES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        write_files(Path(folder))
        for path in Path(folder).iterdir():
            if not (FILES / path.name).exists():
                (FILES / path.name).write_bytes(path.read_bytes())
    numbers = {path.name: GOLDEN.get(path.name) or numbers_of(path) for path in sorted(FILES.iterdir())}
    entries = [f"{json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}" for name, value in numbers.items()]
    NUMBERS.write_text("{\n" + ",\n".join(entries) + "\n}\n")


if __name__ == "__main__":
    main()
