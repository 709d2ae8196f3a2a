"""Model files of dependency networks: exact round trips, and one clear refusal for tables that do not fit."""

import json

import pytest
import torch
from forged_files import forged
from network_oracles import pair

from pyro_hoim import Domain, InteractionHypergraph, LogLinearEnergy, Variable
from pyro_hoim.dependency_network import (
    DecisionGraph,
    DependencyConditionals,
    LeafConditional,
    NetworkFile,
    TableConditional,
    load_network,
    save_network,
)
from pyro_hoim.errors import InputError, InputTypeError, ModelFileError
from pyro_hoim.runs import FORMAT_VERSION

DOMAIN = Domain(
    [
        Variable("größe", ("klein", 'groß, "sehr"'), "ordinal", "cm"),
        Variable("b", ("0", "1", "2")),
        Variable("c", ("only",)),
    ]
)
GRAPH = DecisionGraph(DOMAIN, "größe").split(0, "b").merge(0, 2)


def network(dtype=torch.float64):
    """A leaf table, a table with two parents and one without any."""
    leaves = torch.tensor([[0.1, 0.9], [1.0, 0.0]], dtype=torch.float64)
    table = torch.tensor([[[0.1, 0.2, 0.7]], [[1 / 3, 1 / 3, 1 / 3]]], dtype=torch.float64)
    nodes = [
        LeafConditional(GRAPH, leaves.to(dtype)),
        TableConditional(DOMAIN, "b", ["größe", "c"], table.to(dtype)),
        TableConditional(DOMAIN, "c", [], torch.ones(1, dtype=dtype)),
    ]
    return DependencyConditionals(nodes)


def probs(node):
    assert isinstance(node, (LeafConditional, TableConditional))
    return node.probs


def tensors(**changes):
    """Tensors of a good file, with changes by "probs_0" and so on; None removes one."""
    good = {f"probs.{i}": probs(node) for i, node in enumerate(network().nodes)}
    found = {**good, **{name.replace("_", "."): value for name, value in changes.items()}}
    return {name: value.contiguous() for name, value in found.items() if value is not None}


NODES = [
    {"type": "leaves", "variable": "größe", "operations": [["split", 0, "b"], ["merge", 0, 2]]},
    {"type": "table", "variable": "b", "parents": ["größe", "c"]},
    {"type": "table", "variable": "c", "parents": []},
]


def metadata(**changes):
    """Metadata of a good file, with changes; None removes an entry."""
    good = {
        "format": "pyro-hoim",
        "format_version": FORMAT_VERSION,
        "library_version": "0.1.0",
        "kind": "dependency-network",
        "domain": DOMAIN.to_json(),
        "nodes": NODES,
        "info": {},
    }
    return {"pyro-hoim": json.dumps({k: v for k, v in {**good, **changes}.items() if v is not None})}


def write(path, header, contents=None):
    path.write_bytes(forged(tensors() if contents is None else contents, header))
    return path


def assert_same(found, expected):
    assert found.domain == expected.domain
    for left, right in zip(found.nodes, expected.nodes, strict=True):
        assert type(left) is type(right)
        assert torch.equal(probs(left), probs(right))
        assert probs(left).dtype == probs(right).dtype
        assert getattr(left, "graph", None) == getattr(right, "graph", None)
        assert getattr(left, "parents", None) == getattr(right, "parents", None)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_round_trip_is_exact_down_to_the_bytes(tmp_path, dtype):
    save_network(tmp_path / "m", NetworkFile(network(dtype)))
    found = load_network(tmp_path / "m")
    assert_same(found.conditionals, network(dtype))
    save_network(tmp_path / "again", found)
    assert (tmp_path / "again").read_bytes() == (tmp_path / "m").read_bytes()


def test_round_trip_of_the_empty_network_and_of_a_long_graph(tmp_path):
    save_network(tmp_path / "m", NetworkFile(DependencyConditionals([])))
    assert load_network(tmp_path / "m").conditionals.domain == Domain()
    domain = Domain.from_cardinalities([2] * 9)
    graph = DecisionGraph(domain, "x8")
    for name in domain.names[:8]:
        for _ in range(graph.num_leaves):
            graph = graph.split(0, name)
    generator = torch.Generator().manual_seed(0)
    nodes = [TableConditional(domain, name, [], torch.tensor([0.5, 0.5])) for name in domain.names[:8]]
    leaf = LeafConditional(graph, torch.rand(256, 2, generator=generator, dtype=torch.float64).softmax(-1))
    saved = DependencyConditionals([*nodes, leaf])
    save_network(tmp_path / "m", NetworkFile(saved))
    assert_same(load_network(tmp_path / "m").conditionals, saved)


def test_stored_tables_are_plain_copies(tmp_path):
    table = torch.tensor([[0.25, 0.75], [0.5, 0.5]], dtype=torch.float64, requires_grad=True)
    file = NetworkFile(pair(table.T.T, table))
    with torch.no_grad():
        table.fill_(0.5)
    save_network(tmp_path / "m", file)
    found = probs(load_network(tmp_path / "m").conditionals.node("b"))
    assert found.tolist() == [[0.25, 0.75], [0.5, 0.5]]
    assert not found.requires_grad


# Writing


def test_unsuitable_contents_are_refused():
    with pytest.raises(InputTypeError, match=r"DependencyConditionals, received list"):
        NetworkFile([])
    with pytest.raises(InputError, match=r"the name 'probs\.7' is taken"):
        NetworkFile(network(), {}, {"probs.7": torch.ones(1)})


def test_conditionals_of_models_are_refused_by_name_and_tabulated_ones_are_taken(tmp_path):
    hypergraph = InteractionHypergraph.from_order(Domain.from_cardinalities({"a": 2, "b": 3}), 2)
    model = LogLinearEnergy(hypergraph, torch.linspace(-1, 1, hypergraph.num_terms, dtype=torch.float64))
    found = DependencyConditionals.from_model(model)
    with pytest.raises(InputTypeError, match=r"that of 'a' is a ModelConditional; the network's tabulated\(\)"):
        NetworkFile(found)
    save_network(tmp_path / "m", NetworkFile(found.tabulated()))
    x = torch.tensor([[0, 2], [1, 1]])
    torch.testing.assert_close(load_network(tmp_path / "m").conditionals.log_pseudo_prob(x), model.log_pseudo_prob(x))


# Reading


def test_control_good_file_is_read(tmp_path):
    assert_same(load_network(write(tmp_path / "m", metadata())).conditionals, network())


def changed(position, **entries):
    """The nodes with one of them changed; None removes an entry."""
    node = {k: v for k, v in {**NODES[position], **entries}.items() if v is not None}
    return [*NODES[:position], node, *NODES[position + 1 :]]


BAD_METADATA = {
    "a count among the variables": (
        metadata(domain=[{**DOMAIN.to_json()[0], "labels": [], "kind": "count"}, *DOMAIN.to_json()[1:]]),
        "no cardinality",
    ),
    "no nodes": (metadata(nodes=None), "'nodes' is missing"),
    "nodes odd": (metadata(nodes=[1, 2, 3]), "do not fit"),
    "one node too few": (metadata(nodes=NODES[:2]), "not in the order of the variables"),
    "one node too many": (metadata(nodes=[*NODES, NODES[0]]), r"'probs\.3' is missing"),
    "nodes reordered": (metadata(nodes=[NODES[1], NODES[0], NODES[2]]), "do not fit"),
    "node twice": (metadata(nodes=[NODES[2], NODES[1], NODES[2]]), "do not fit"),
    "other type": (metadata(nodes=changed(2, type="tree")), "'leaves' or 'table', received 'tree'"),
    "no type": (metadata(nodes=changed(2, type=None)), "'type' is missing"),
    "no parents": (metadata(nodes=changed(1, parents=None)), "'parents' is missing"),
    "unknown parent": (metadata(nodes=changed(1, parents=["größe", "z"])), "unknown variable 'z'"),
    "own parent": (metadata(nodes=changed(1, parents=["größe", "b"])), "other variables than 'b'"),
    "parents swapped": (metadata(nodes=changed(1, parents=["c", "größe"])), r"shape \(\.\.\., 1, 2, 3\)"),
    "parents a number": (metadata(nodes=changed(1, parents=3)), "do not fit"),
    "parents nested": (metadata(nodes=changed(1, parents=[["größe"], "c"])), "do not fit"),
    "no operations": (metadata(nodes=changed(0, operations=None)), "variable and operations"),
    "operation odd": (metadata(nodes=changed(0, operations=[["grow", 0, "b"]])), "grow"),
    "operation a number": (metadata(nodes=changed(0, operations=[5])), "do not fit"),
    "leaf unknown": (metadata(nodes=changed(0, operations=[["split", 1, "b"]])), "leaf from 0 to 0, received 1"),
    "leaf true": (metadata(nodes=changed(0, operations=[["split", False, "b"]])), "received False"),
    "split on itself": (metadata(nodes=changed(0, operations=[["split", 0, "größe"]])), "other variable than"),
    "merge with itself": (metadata(nodes=changed(0, operations=[["split", 0, "b"], ["merge", 0, 0]])), "increasing"),
    "leaves missing": (metadata(nodes=changed(0, operations=[["split", 0, "b"]])), r"shape \(3, 2\)"),
}


@pytest.mark.parametrize("case", BAD_METADATA)
def test_bad_metadata_is_refused_in_one_sentence(tmp_path, case):
    header, message = BAD_METADATA[case]
    with pytest.raises(ModelFileError, match=message) as caught:
        load_network(write(tmp_path / "m", header))
    assert "\n" not in str(caught.value)
    assert str(tmp_path / "m") in str(caught.value)


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        (tensors(probs_1=None), r"'probs\.1' is missing"),
        (tensors(probs_3=torch.ones(1)), r"the name 'probs\.3'"),
        (tensors(probs_0=torch.tensor([[0.1, 0.9], [0.5, 0.4]])), r"leaf 1 sums to 0\.9"),
        (tensors(probs_0=torch.tensor([[0.1, 0.9], [1.5, -0.5]])), r"received -0\.5 at index \(1, 1\)"),
        (tensors(probs_2=torch.tensor([torch.nan])), r"received nan"),
        (tensors(probs_2=torch.ones(1, dtype=torch.long)), r"int64"),
        (tensors(probs_2=torch.ones(1, 1)), r"batch of shape \(1,\)"),
    ],
)
def test_bad_tensors_are_refused(tmp_path, contents, message):
    with pytest.raises(ModelFileError, match=message):
        load_network(write(tmp_path / "m", metadata(), contents))
