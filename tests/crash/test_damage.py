"""Every kind of checkpoint: a wrong bit, a lost or short array or another file is one error, and the file stays."""

import json
import re
import struct
from functools import partial
from unittest import mock

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from pyro_hoim import CountTable, Domain, GibbsChains, InputError, InteractionHypergraph, Observations, load_table
from pyro_hoim.boltzmann import LearningOptions, fit_machine
from pyro_hoim.dependency_network import PseudoGibbsChains, learn_network
from pyro_hoim.generalized_root import RootSettings, fit_roots
from pyro_hoim.inference import ChainSettings, sample_structures
from pyro_hoim.log_linear import (
    ExactTrainer,
    L1Norm,
    LogLinearEnergy,
    MachineTraining,
    PseudoLikelihoodLoss,
    Regularisation,
    SelectionOptions,
    fit,
    learn,
    penalty_grid,
    select,
    solution_path,
    train_machine,
)
from pyro_hoim.runs import RunOptions, container, sample_chains
from pyro_hoim.runs.checkpoint import RunFile
from pyro_hoim.runs.container import sealed
from pyro_hoim.study import PosteriorSettings, constrained as record, run_posterior
from pyro_hoim.study.constrained import Constraint, fit_constrained

pytestmark = pytest.mark.filterwarnings("ignore::pyro_hoim.errors.ConvergenceWarning")

ROWS = Observations.from_table(Domain.from_cardinalities({"a": 2, "b": 2}), [[30, 10], [12, 40]])
GRAPH = InteractionHypergraph.from_order(ROWS.domain, 2)
COUNTS = CountTable.from_matrix(np.random.default_rng(0).poisson(1.0, (40, 3)).astype(float), ["x", "y", "z"])
KEY = "pyro-hoim-run"
SETTINGS = {"kind": "chains", "thin": 2, "share": 0.5}


def gibbs(run, engine):
    model = LogLinearEnergy(GRAPH, torch.full((GRAPH.num_terms,), 0.3))
    record = ("statistics", "energies", "draws")
    return sample_chains(GibbsChains(model, 3, seed=1, engine=engine), 20, record=record, run=run)


def pseudo_gibbs(run):
    return sample_chains(PseudoGibbsChains(learn_network(ROWS).conditionals, 3, seed=1), 20, run=run)


def learned(run):
    search = SelectionOptions(max_rounds=2, per_round=1)
    rows = load_table("czech_autoworkers").project(["smoke", "mental", "phys"])
    return learn(rows, rows, search, regularisation=Regularisation(evidence_rounds=1), run=run)


def in_balls(run):
    with mock.patch.object(record, "_CHUNK", 1):  # the last piece is not kept
        return fit_constrained(ROWS, 2, Constraint.parse("l1:1", "penalty"), run)


KINDS = {
    "chains": partial(gibbs, engine="auto"),
    "chains of PyTorch": partial(gibbs, engine="torch"),
    "pseudo-Gibbs chains": pseudo_gibbs,
    "posterior": lambda run: run_posterior(GRAPH, ROWS, PosteriorSettings(2, 10, 10, jobs=1), seed=1, run=run),
    "structures": lambda run: sample_structures(ROWS, "unit", None, ChainSettings(2, 10, 10), seed=1, run=run),
    "jumps": lambda run: sample_structures(
        ROWS, "unit", None, ChainSettings(2, 10, 10), collapsed=False, seed=1, run=run
    ),
    "exact machine": lambda run: train_machine(
        ROWS, 2, method="gradient", training=MachineTraining(num_iterations=5), run=run
    ),
    "sampled machine": lambda run: train_machine(
        ROWS, 2, training=MachineTraining(num_iterations=2, num_chains=5, burn_in=1, num_temperatures=2), run=run
    ),
    "Boltzmann machine": lambda run: fit_machine(
        ROWS, 1, LearningOptions("pcd", iterations=5, num_chains=4, batch_size=4), run=run
    ),
    "fit": lambda run: fit(GRAPH, ROWS, run=run),
    "fit in balls": in_balls,
    "path": lambda run: solution_path(
        PseudoLikelihoodLoss(ROWS, 2),
        PseudoLikelihoodLoss(ROWS, 2),
        {"sparse": penalty_grid(PseudoLikelihoodLoss(ROWS, 2), L1Norm(), 3)},
        run=run,
    ),
    "search": lambda run: select(ROWS, ROWS, ExactTrainer(ROWS, GRAPH), SelectionOptions(max_rounds=1), run=run),
    "learning": learned,
    "network": lambda run: learn_network(ROWS, run=run),
    "roots": lambda run: fit_roots(COUNTS, order=2, refit="all", settings=RootSettings(jobs=1), run=run),
}
FOLDERS = ("posterior", "learning")
OPEN = re.compile(r"(short|one of) trace\d*|no trainer\.strengths|(no|type of) stats\..*")
"""What a right checksum makes another run: records of any length, a trainer without strengths, statistics of draws."""


@pytest.fixture(autouse=True)
def kept_at_once(monkeypatch):
    """Write checkpoints whenever that is possible."""
    monkeypatch.setattr(RunFile, "SECONDS", 0.0)


def refused(make, place, path):
    """One error that names the file, which is left as it is; its code."""
    before = path.read_bytes()
    with pytest.raises(InputError) as caught:
        make(RunOptions(place, resume=True))
    assert path.name in str(caught.value) and "\n" not in str(caught.value) and path.read_bytes() == before
    return caught.value.code


def parts(path):
    """The header and the tensors of a checkpoint."""
    with safe_open(str(path), framework="pt") as file:
        header = json.loads(file.metadata()[KEY])
        return header, {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118


def write(path, header, tensors, *, seal=True):
    """The file with other contents, and a checksum of them or the former one."""
    text = json.dumps(header)
    if seal:
        text = sealed({name: value for name, value in header.items() if name != "sha256"}, tensors)
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, str(path), metadata={KEY: text})


def damages(tensors):
    """Tensors without one, with one that is short, of one value, or of another type, and with one more."""
    for name, tensor in tensors.items():
        others = {key: value for key, value in tensors.items() if key != name}
        yield f"no {name}", others
        if tensor.ndim and len(tensor) > 1:
            yield f"short {name}", {**others, name: tensor[:-1]}
            yield f"one of {name}", {**others, name: tensor[:1]}
        other = torch.float32 if tensor.dtype != torch.float32 else torch.float64
        yield f"type of {name}", {**others, name: tensor.to(other)}
    yield "one more", {**tensors, "more": torch.zeros(2)}


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_checkpoints_are_refused(kind, tmp_path):
    make, place = KINDS[kind], tmp_path / "run"
    make(RunOptions(place))
    paths = sorted(place.iterdir()) if kind in FOLDERS else [place]
    assert paths
    random, share = np.random.default_rng(0), -(-12 // len(paths))
    for path in paths:
        data = path.read_bytes()
        end = 8 + struct.unpack("<Q", data[:8])[0]
        positions = [*random.integers(0, end, share), *random.integers(end, len(data), share // 2)]
        for position in positions:
            wrong = bytearray(data)
            wrong[position] ^= 1 << int(random.integers(8))
            path.write_bytes(wrong)
            assert refused(make, place, path) in ("damaged-file", "file-version"), position
        for wrong in (b"", data[:7], data[:end], data[:-1], data + b"\0", b"PK\3\4" + data):
            path.write_bytes(wrong)
            assert refused(make, place, path) == "damaged-file"
        path.write_bytes(data)
        header, tensors = parts(path)
        for what, found in damages(tensors):
            for seal in (False, True)[: 1 + (OPEN.fullmatch(what) is None)]:
                write(path, header, found, seal=seal)
                assert refused(make, place, path) == "damaged-file", (what, seal)
        for settings in (None, [], "x", {**header["settings"], "more": 1}):
            write(path, {**header, "settings": settings}, tensors, seal=False)
            assert refused(make, place, path) == "damaged-file", settings
        path.write_bytes(data)
    make(RunOptions(place, resume=True))  # control


def test_control_without_the_checksum_a_wrong_bit_is_another_result(tmp_path, monkeypatch):
    make, path = KINDS["exact machine"], tmp_path / "run"
    right = make(RunOptions(path))
    data = bytearray(path.read_bytes())
    data[-2] ^= 16  # of the last entry of theta
    path.write_bytes(data)
    assert refused(make, path, path) == "damaged-file"
    monkeypatch.setattr(container, "is_intact", lambda text, tensors: True)
    path.write_bytes(data)
    wrong = make(RunOptions(path, resume=True))
    assert not torch.equal(wrong.theta, right.theta)


def test_every_byte_of_a_file_is_protected(tmp_path):
    def make(run):
        file = run.file()
        file.start(SETTINGS)

    file = RunFile(path := tmp_path / "run")
    file.start(SETTINGS)
    file.write({"a": torch.arange(3), "b": torch.zeros(0, 2), "c": torch.tensor(True)})
    data = path.read_bytes()
    for position in range(len(data)):
        wrong = bytearray(data)
        wrong[position] ^= 1 << position % 8
        path.write_bytes(wrong)
        assert refused(make, path, path) in ("damaged-file", "file-version"), position
    path.write_bytes(data)
    make(RunOptions(path, resume=True))  # control
