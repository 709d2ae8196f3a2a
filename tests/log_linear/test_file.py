"""Model files of log-linear models: exact round trips, and one clear refusal for edges and numbers that do not fit."""

import json

import pytest
import safetensors
import torch
from forged_files import forged

from pyro_hoim import __version__
from pyro_hoim.errors import InputError, InputTypeError, ModelFileError
from pyro_hoim.log_linear import ModelFile, load_model, parametrization, save_model
from pyro_hoim.runs import FORMAT_VERSION
from pyro_hoim.schema import Domain, Variable
from pyro_hoim.structure import InteractionHypergraph

DOMAIN = Domain(
    [
        Variable("größe", ("klein", 'groß, "sehr"'), "ordinal", "cm"),
        Variable("b", ("0", "1", "2")),
        Variable("c", ("only",)),
    ]
)
GRAPH = InteractionHypergraph(DOMAIN, [["größe", "b"], ["c"]], closure=True)
WEAK = InteractionHypergraph(DOMAIN, [["größe", "b"]], hierarchical=False)
EMPTY = InteractionHypergraph(Domain())


def write(path, metadata, **tensors):
    """A safetensors file with any contents."""
    path.write_bytes(forged(tensors, metadata))
    return path


def metadata(**changes):
    """Metadata of a good file of GRAPH, with changes; None removes an entry."""
    good = {
        "format": "pyro-hoim",
        "format_version": FORMAT_VERSION,
        "library_version": "0.1.0",
        "kind": "hierarchical-log-linear",
        **GRAPH.to_json(),
        "coding": "free",
        "info": {},
    }
    return {"pyro-hoim": json.dumps({k: v for k, v in {**good, **changes}.items() if v is not None})}


def theta(*batch):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(*batch, GRAPH.num_parameters, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("coding", ["free", "corner", "balanced"])
@pytest.mark.parametrize("batch", [(), (2, 3), (0,)])
def test_round_trip_is_exact(tmp_path, coding, batch):
    values = parametrization(GRAPH).convert(theta(*batch), "free", coding)
    save_model(tmp_path / "m", ModelFile(GRAPH, values, coding))
    found = load_model(tmp_path / "m")
    assert found.hypergraph == GRAPH
    assert found.hypergraph.domain == DOMAIN
    assert found.coding == coding
    assert torch.equal(found.theta, values)
    assert found.theta.dtype == torch.float64
    save_model(tmp_path / "again", found)
    assert (tmp_path / "again").read_bytes() == (tmp_path / "m").read_bytes()


@pytest.mark.parametrize("graph", [WEAK, EMPTY])
def test_round_trip_of_unusual_structures(tmp_path, graph):
    save_model(tmp_path / "m", ModelFile(graph, torch.ones(graph.num_parameters)))
    found = load_model(tmp_path / "m")
    assert found.hypergraph == graph
    assert found.hypergraph.is_hierarchical == graph.is_hierarchical
    assert torch.equal(found.theta, torch.ones(graph.num_parameters, dtype=torch.float64))


def test_float32_and_gradients_are_stored_as_plain_float64(tmp_path):
    values = theta().float().requires_grad_()
    model = ModelFile(GRAPH, values)
    with torch.no_grad():
        values.zero_()
    save_model(tmp_path / "m", model)
    found = load_model(tmp_path / "m").theta
    assert torch.equal(found, theta().float().double())
    assert not found.requires_grad


def test_file_is_readable_without_this_library(tmp_path):
    save_model(tmp_path / "m", ModelFile(GRAPH, theta()))
    with safetensors.safe_open(str(tmp_path / "m"), framework="pt") as file:
        stored = json.loads(file.metadata()["pyro-hoim"])
        assert torch.equal(file.get_tensor("theta"), theta())
    assert stored["format"] == "pyro-hoim"
    assert stored["format_version"] == FORMAT_VERSION
    assert stored["library_version"] == __version__
    assert stored["edges"] == [["größe"], ["b"], ["c"], ["größe", "b"]]


# Writing


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((GRAPH, torch.zeros(4)), InputError, r"\(\.\.\., 5\), received \(4,\)"),
        ((GRAPH, torch.full((5,), torch.nan)), InputError, r"finite"),
        ((GRAPH, torch.zeros(5, dtype=torch.long)), InputTypeError, r"int64"),
        ((GRAPH, [0.0] * 5), InputTypeError, r"list"),
        ((GRAPH, torch.zeros(5), "effects"), InputError, r"'effects'"),
        ((WEAK.in_coding("corner"), torch.zeros(2)), InputError, r"closure"),
    ],
)
def test_unsuitable_contents_are_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        ModelFile(*arguments)


# Reading


def test_control_good_file_is_read(tmp_path):
    assert torch.equal(load_model(write(tmp_path / "m", metadata(), theta=theta())).theta, theta())


EDGES = GRAPH.to_json()["edges"]
BAD_METADATA = {
    "other coding": (metadata(coding="effects"), "'effects'"),
    "no coding": (metadata(coding=None), "'coding' is missing"),
    "no edges": (metadata(edges=None), "'edges' is missing"),
    "domain repeated": (metadata(domain=[*GRAPH.to_json()["domain"], *GRAPH.to_json()["domain"]]), "repeated"),
    "edges odd": (metadata(edges=[1, 2]), "do not fit"),
    "edges unknown": (metadata(edges=[["z"]]), "'z'"),
    "edges reordered": (metadata(edges=EDGES[::-1]), "not in the order"),
    "edges repeated": (metadata(edges=[*EDGES, EDGES[-1]]), "not in the order"),
    "edges transposed": (metadata(edges=[*EDGES[:-1], EDGES[-1][::-1]]), "not in the order"),
}


@pytest.mark.parametrize("case", BAD_METADATA)
def test_bad_metadata_is_refused_in_one_sentence(tmp_path, case):
    found, message = BAD_METADATA[case]
    with pytest.raises(ModelFileError, match=message) as caught:
        load_model(write(tmp_path / "m", found, theta=theta()))
    assert "\n" not in str(caught.value)
    assert str(tmp_path / "m") in str(caught.value)


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({}, "found none"),
        ({"other": theta()}, "found none"),
        ({"theta": theta().float()}, r"found torch\.float32"),
        ({"theta": theta()[:-1]}, r"received \(4,\)"),
        ({"theta": torch.tensor(1.0, dtype=torch.float64)}, r"received \(\)"),
        ({"theta": torch.where(theta() > 0, torch.nan, theta())}, "finite"),
        ({"theta": torch.where(theta() > 0, torch.inf, theta())}, "finite"),
    ],
)
def test_bad_tensors_are_refused(tmp_path, tensors, message):
    with pytest.raises(ModelFileError, match=message):
        load_model(write(tmp_path / "m", metadata(), **tensors))
