"""Damage to model files of every kind: what is not equal to the file that was written is refused, bit by bit."""

import random
import struct

import pytest
import safetensors.torch
import torch
from forged_files import change, contents, forged

from pyro_hoim.boltzmann import MachineFile, MachineStructure, load_machine, save_machine
from pyro_hoim.data import Observations
from pyro_hoim.dependency_network import (
    DecisionGraph,
    DependencyConditionals,
    LeafConditional,
    NetworkFile,
    TableConditional,
    load_network,
    save_network,
)
from pyro_hoim.errors import ModelFileError
from pyro_hoim.generalized_root import PoissonFamily, RootFile, RootStructure, load_roots, save_roots
from pyro_hoim.inference import enumerate_structures, load_structure_posterior, save_structure_posterior
from pyro_hoim.log_linear import ModelFile, load_model, save_model
from pyro_hoim.schema import Domain, Variable
from pyro_hoim.structure import InteractionHypergraph

DOMAIN = Domain.from_labels({"größe": ["klein", "groß"], "b": ["0", "1", "2"]})
BINARY = Domain.from_cardinalities({"a": 2, "b": 2})
COUNTS = Domain([Variable("x", kind="count"), Variable("y", kind="count")])
NUMBERS = torch.linspace(-1, 1, 5, dtype=torch.float64)
INFO = {"data": "pilot", "rows": 12, "seed": 3}
EXTRA = {"draws": torch.arange(6).reshape(2, 3)}


def log_linear(path, numbers=NUMBERS):
    save_model(path, ModelFile(InteractionHypergraph.saturated(DOMAIN), numbers, "free", INFO, EXTRA))


def network(path, numbers=NUMBERS):
    graph = DecisionGraph(DOMAIN, "größe").split(0, "b").merge(0, 2)
    leaves = torch.stack([numbers[:2].exp(), numbers[3:].exp()])
    table = TableConditional(DOMAIN, "b", [], torch.tensor([0.25, 0.25, 0.5], dtype=torch.float64))
    nodes = [LeafConditional(graph, leaves / leaves.sum(1, keepdim=True)), table]
    save_network(path, NetworkFile(DependencyConditionals(nodes), INFO, EXTRA))


def roots(path, numbers=NUMBERS):
    save_roots(path, RootFile(RootStructure.complete(COUNTS, 2), numbers, PoissonFamily(), INFO, EXTRA))


def machine(path, numbers=NUMBERS):
    save_machine(path, MachineFile(MachineStructure.restricted(BINARY, ["mood"]), numbers, INFO, EXTRA))


def posterior(path, numbers=NUMBERS):
    rows = Observations.from_table(BINARY, [[9, 1], [1, round(20 + float(numbers[0]))]])
    save_structure_posterior(path, enumerate_structures(rows), INFO)


KINDS = {
    "log-linear": (log_linear, load_model),
    "network": (network, load_network),
    "roots": (roots, load_roots),
    "machine": (machine, load_machine),
    "posterior": (posterior, load_structure_posterior),
}
EVERY = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture
def good(kind, tmp_path):
    """A good file of the kind."""
    KINDS[kind][0](tmp_path / "good")
    KINDS[kind][1](tmp_path / "good")  # control: it is read
    return tmp_path / "good"


def refusal(path, load, data):
    """What is said of a file with these bytes; nothing where it is read."""
    path.write_bytes(data)
    try:
        load(path)
    except ModelFileError as error:
        return str(error)
    return ""


def assert_refused(kind, good, number):
    """Flip single bits, so many of them or all."""
    load, data = KINDS[kind][1], good.read_bytes()
    bits = range(8 * len(data))
    for position in bits if number is None else random.Random(kind).sample(bits, number):
        damaged = bytearray(data)
        damaged[position // 8] ^= 1 << position % 8
        error = refusal(good, load, damaged)
        assert error and "\n" not in error, position
    assert not refusal(good, load, data)  # control


@EVERY
def test_flipped_bits_are_refused(kind, good):
    assert_refused(kind, good, 200)


@pytest.mark.slow
@EVERY
def test_every_flipped_bit_is_refused(kind, good):
    assert_refused(kind, good, None)


@EVERY
def test_control_numbers_with_a_checksum_made_anew_are_taken_at_their_word(kind, good):
    def flip(_, tensors):
        next(iter(tensors.values())).view(torch.uint8)[..., -1:].bitwise_xor_(128)

    change(good, flip)
    assert "its checksum" not in refusal(good, KINDS[kind][1], good.read_bytes())


@EVERY
def test_truncated_extended_and_mixed_files_are_refused(kind, good, tmp_path):
    make, load = KINDS[kind]
    data = good.read_bytes()
    make(tmp_path / "other", NUMBERS.flip(0) / 2)
    other = (tmp_path / "other").read_bytes()
    assert data != other and not refusal(good, load, other)  # control
    start = 8 + struct.unpack("<Q", data[:8])[0]
    mixed = other[: 8 + struct.unpack("<Q", other[:8])[0]] + data[start:]  # the header of the other
    swapped = data[: len(data) - 16] + data[len(data) - 8 :] + data[len(data) - 16 : len(data) - 8]
    ends = (data[:-1], data[:start], data[: start - 1], data[:7], b"", data + b"\0", data + data, data[1:])
    for damaged in (*ends, mixed, swapped):
        assert damaged == data or refusal(good, load, damaged)


@EVERY
def test_exchanged_renamed_and_retyped_tensors_are_refused(kind, good):
    """The bytes of a file whose header is right for safetensors, and whose checksum is of another content."""
    header, tensors = contents(good)
    text = safetensors.safe_open(str(good), "pt").metadata()["pyro-hoim"]
    first, *_ = tensors
    renamed = {("x" if name == first else name): value for name, value in tensors.items()}
    retyped = {**tensors, first: tensors[first].float()}
    emptied = {**tensors, first: tensors[first][..., :0]}
    for held in (renamed, retyped, emptied, {**tensors, "more": torch.zeros(1)}):
        held = {name: value.contiguous() for name, value in held.items()}
        data = safetensors.torch.save(held, {"pyro-hoim": text})
        assert "its checksum" in refusal(good, KINDS[kind][1], data)
    assert not refusal(good, KINDS[kind][1], forged(tensors, {"pyro-hoim": text}))  # control
    assert header["format_version"] == 3
