"""Model files of log-linear models: exact round trips, and one clear refusal for edges and numbers that do not fit."""

import json

import numpy as np
import pytest
import safetensors
import torch
from forged_files import forged

from pyro_hoim import Domain, InputError, InteractionHypergraph, Variable, __version__
from pyro_hoim.errors import InputTypeError, ModelFileError
from pyro_hoim.log_linear import LogLinearEnergy, ModelFile, load_model, parametrization, save_model, synthesise
from pyro_hoim.runs import FORMAT_VERSION
from pyro_hoim.testing import assert_exact_law, count_states, exact_table, raises, random_tables, required_draws

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
    assert (found.hypergraph, found.hypergraph.domain, found.coding) == (GRAPH, DOMAIN, coding)
    assert torch.equal(found.theta, values)
    assert found.theta.dtype == torch.float64
    save_model(tmp_path / "again", found)
    assert (tmp_path / "again").read_bytes() == (tmp_path / "m").read_bytes()


@pytest.mark.parametrize("graph", [WEAK, EMPTY])
def test_round_trip_of_unusual_structures(tmp_path, graph):
    save_model(tmp_path / "m", ModelFile(graph, torch.ones(graph.num_parameters)))
    found = load_model(tmp_path / "m")
    assert (found.hypergraph, found.hypergraph.is_hierarchical) == (graph, graph.is_hierarchical)
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
    assert (stored["format"], stored["format_version"]) == ("pyro-hoim", FORMAT_VERSION)
    assert (stored["library_version"], stored["edges"]) == (__version__, [["größe"], ["b"], ["c"], ["größe", "b"]])


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


# Synthetic rows


OF_THREE = Domain.from_cardinalities({"a": 2, "b": 3, "c": 2})
PAIRS = InteractionHypergraph.from_order(OF_THREE, 2)
MODEL = LogLinearEnergy(PAIRS, torch.from_numpy(random_tables(PAIRS, np.random.default_rng(0), scale=0.5)))


@pytest.mark.parametrize("method", ["auto", "gibbs"])
def test_rows_have_the_law_of_the_model(method):
    number = required_draws(12, 0.05)
    found = synthesise(MODEL, number, 3, method=method)
    counts = count_states(found.codes.numpy(), OF_THREE.cardinalities)
    law = np.exp(exact_table(PAIRS, MODEL.tables.numpy()))
    assert_exact_law(counts, law.reshape(counts.shape))
    with pytest.raises(AssertionError):
        assert_exact_law(counts, np.full(counts.shape, 1 / 12))
    assert torch.equal(found.codes, synthesise(MODEL, number, 3, method=method).codes)
    assert list(found.to_pandas(count=None).columns) == ["a", "b", "c"]


def test_bad_arguments_are_refused():
    large = InteractionHypergraph.from_order(Domain.from_cardinalities([2] * 60), 2)
    for model, number, method, code, argument in (
        (MODEL, 0, "auto", "out-of-range", "num_rows"),
        (MODEL, 2.0, "auto", "wrong-type", "num_rows"),
        (MODEL, True, "auto", "wrong-type", "num_rows"),
        (MODEL, 1, "best", "unknown-choice", "method"),
        (LogLinearEnergy(large, torch.zeros(large.num_terms)), 1, "exact", "over-budget", "method"),
    ):
        with raises(code, argument):
            synthesise(model, number, method=method)
    with pytest.raises(InputError, match="expected one model"):
        synthesise(MODEL.expand([2]), 1)
