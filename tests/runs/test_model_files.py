"""Model files of every kind: exact round trips, how they are written, who reads them, and what is refused."""

import json
import os
from dataclasses import dataclass
from functools import partial
from typing import ClassVar
from unittest.mock import Mock

import pytest
import torch
from forged_files import forged

from pyro_hoim import DependencyConditionals, Domain, InteractionHypergraph, LogLinearEnergy, Variable
from pyro_hoim.dependency_network import (
    DecisionGraph,
    LeafConditional,
    NetworkFile,
    TableConditional,
    load_network,
    save_network,
)
from pyro_hoim.errors import InputError, InputTypeError, ModelFileError
from pyro_hoim.generalized_root import PoissonFamily, RootFile, RootStructure, load_roots, node_family, save_roots
from pyro_hoim.log_linear import ModelFile, load_model, save_model
from pyro_hoim.runs import FORMAT_VERSION
from pyro_hoim.runs.container import read_kind
from pyro_hoim.testing import raises

DOMAIN = Domain.from_cardinalities({"a": 2, "b": 3})
TWO_COUNTS = Domain([Variable("größe", kind="count"), Variable("b", kind="count")])
NUMBERS = torch.linspace(-1, 1, 5)


def log_linear(*notes):
    return ModelFile(InteractionHypergraph.saturated(DOMAIN), NUMBERS, "free", *notes)


def small_network(*notes):
    tables = [TableConditional(DOMAIN, v.name, [], torch.ones(v.cardinality) / v.cardinality) for v in DOMAIN]
    return NetworkFile(DependencyConditionals(tables), *notes)


def roots(*notes):
    return RootFile(RootStructure.complete(TWO_COUNTS, 2), NUMBERS, PoissonFamily(), *notes)


# What makes the contents of a file, writes and reads them, and the name of a tensor that it takes itself.
KINDS = {
    "hierarchical-log-linear": (log_linear, save_model, load_model, "theta"),
    "dependency-network": (small_network, save_network, load_network, "probs.0"),
    "generalized-root": (roots, save_roots, load_roots, "psi"),
}
EVERY = pytest.mark.parametrize("kind", KINDS)
INFO = {"rows": 12, "nested": {"ünï": [1, 2.5, None, True, "x"]}, "pair": (1, 2), "large": 2**70}


@pytest.fixture
def good(kind, tmp_path):
    """A good file of the kind."""
    make, save, *_ = KINDS[kind]
    save(tmp_path / "good", make())
    return tmp_path / "good"


# Writing


@EVERY
def test_notes_and_tensors_are_kept_to_the_bytes(kind, tmp_path):
    make, save, load, _ = KINDS[kind]
    extra = torch.arange(6).reshape(2, 3).T
    save(tmp_path / "m", make(INFO, {"draws": extra}))
    found, written = load(tmp_path / "m"), (tmp_path / "m").read_bytes()
    assert found.info == {**INFO, "pair": [1, 2]}
    assert torch.equal(found.tensors["draws"], extra)
    (tmp_path / "m").write_bytes(b"\xff" * 4096)  # what was read does not hold the file
    save(str(tmp_path / "again"), found)
    assert (tmp_path / "again").read_bytes() == written
    assert sorted(os.listdir(tmp_path)) == ["again", "m"]


@EVERY
def test_writing_replaces_in_one_step(kind, good, monkeypatch):
    make, save, *_ = KINDS[kind]
    old = good.read_bytes()
    save(good, make(INFO))
    new = good.read_bytes()
    assert new != old and os.listdir(good.parent) == ["good"]

    monkeypatch.setattr(os, "fsync", Mock(side_effect=OSError(28, "No space left on device")))
    with pytest.raises(ModelFileError, match=r"No space left"):
        save(good, make())
    assert good.read_bytes() == new and os.listdir(good.parent) == ["good"]


@EVERY
def test_writing_refuses_a_missing_folder_a_folder_and_something_else(kind, tmp_path):
    make, save, *_ = KINDS[kind]
    with pytest.raises(ModelFileError, match=r"folder .*absent does not exist"):
        save(tmp_path / "absent" / "m", make())
    with pytest.raises(ModelFileError, match=r"is a folder"):
        save(tmp_path, make())
    with pytest.raises(InputTypeError, match=rf"expected a {type(make()).__name__}, received dict"):
        save(tmp_path / "m", {})
    assert os.listdir(tmp_path) == []


@EVERY
@pytest.mark.parametrize(
    ("info", "tensors", "code", "argument"),
    [
        ([1], {}, "wrong-type", "info"),
        ({"a": float("inf")}, {}, "invalid-value", "info['a']"),
        ({"a": float("nan")}, {}, "invalid-value", "info['a']"),
        ({"a": torch.zeros(1)}, {}, "invalid-value", "info['a']"),
        ({"a": [{1: 2}]}, {}, "wrong-type", "info['a'][0]"),
        ({}, {"x": [1.0]}, "wrong-type", "tensors['x']"),
        ({}, None, "repeated-name", "tensors"),
    ],
)
def test_unsuitable_notes_are_refused(kind, info, tensors, code, argument):
    make, *_, taken = KINDS[kind]
    with raises(code, argument):
        make(info, {taken: NUMBERS} if tensors is None else tensors)


# Reading


@EVERY
def test_control_the_whole_file_is_read_by_its_reader_alone(kind, good):
    KINDS[kind][2](good)
    assert read_kind(str(good)) == kind
    for other, (_, _, wrong, _) in KINDS.items():
        if other != kind:
            with pytest.raises(ModelFileError, match=f"kind '{kind}', expected '{other}'; read it with load_[a-z]+$"):
                wrong(good)


@EVERY
def test_the_kind_is_read_without_the_tensors(kind, good, monkeypatch):
    monkeypatch.setattr(torch.Tensor, "clone", lambda *_: pytest.fail("a tensor was read"))
    assert read_kind(good) == kind


# Root models


COUNTS = Domain(
    [Variable("größe", kind="count", unit="m"), Variable('b, "b"', kind="count"), Variable("c", kind="count")]
)
REALS, POSITIVE = (Domain([Variable(name, kind=kind) for name in "abc"]) for kind in ("real", "positive"))
DOMAINS = {"count": COUNTS, "real": REALS, "positive": POSITIVE}
STRUCTURE = RootStructure.complete(COUNTS, 3)


def psi(structure=STRUCTURE, dtype=torch.float64):
    return torch.linspace(-1, 1 / 3, structure.num_terms, dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("family", ["poisson", "truncated-poisson", "exponential", "gaussian"])
def test_round_trip_is_exact_down_to_the_bytes(tmp_path, family, dtype):
    chosen = node_family(family, 2**40 + 1 if family == "truncated-poisson" else None)
    structure = RootStructure.complete(DOMAINS[chosen.kind], 3)
    values = psi(structure, dtype)
    save_roots(tmp_path / "m", RootFile(structure, values, chosen))
    found = load_roots(tmp_path / "m")
    assert (found.structure, found.family) == (structure, chosen)
    assert torch.equal(found.psi, values)
    assert (found.psi.dtype, found.energy().dtype, found.energy(torch.float32).dtype) == (dtype, dtype, torch.float32)
    assert torch.equal(found.energy(torch.float64).psi, values.double())
    save_roots(tmp_path / "again", found)
    assert (tmp_path / "again").read_bytes() == (tmp_path / "m").read_bytes()


def test_equal_models_give_equal_bytes_whatever_the_order_of_their_terms(tmp_path):
    keys = {key: STRUCTURE.tuples(key)[::-1] for key in reversed(STRUCTURE.keys)}
    save_roots(tmp_path / "a", RootFile(STRUCTURE, psi(), PoissonFamily()))
    save_roots(tmp_path / "b", RootFile(RootStructure(COUNTS, keys), psi(), PoissonFamily()))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    other = psi()
    other[3] += 1e-15
    save_roots(tmp_path / "c", RootFile(STRUCTURE, other, PoissonFamily()))
    assert (tmp_path / "a").read_bytes() != (tmp_path / "c").read_bytes()


@pytest.mark.parametrize("batch", [(2,), (0,), (2, 3)])
def test_batches_and_the_empty_model(tmp_path, batch):
    values = torch.randn(*batch, STRUCTURE.num_terms, generator=torch.Generator().manual_seed(0))
    save_roots(tmp_path / "m", RootFile(STRUCTURE, values, PoissonFamily()))
    assert torch.equal(load_roots(tmp_path / "m").psi, values)
    for empty in (RootStructure(Domain(), {}), RootStructure(COUNTS, {})):
        save_roots(tmp_path / "m", RootFile(empty, torch.zeros(*batch, 0), PoissonFamily()))
        assert (load_roots(tmp_path / "m").structure, load_roots(tmp_path / "m").psi.shape) == (empty, (*batch, 0))


def test_stored_values_are_plain_copies_and_odd_precisions_become_float64(tmp_path):
    values = psi().requires_grad_()
    file = RootFile(STRUCTURE, values, PoissonFamily())
    with torch.no_grad():
        values.fill_(0.5)
    save_roots(tmp_path / "m", file)
    assert torch.equal(load_roots(tmp_path / "m").psi, psi())
    assert not load_roots(tmp_path / "m").psi.requires_grad
    half = RootFile(STRUCTURE, psi().to(torch.bfloat16), PoissonFamily())
    assert half.psi.dtype == torch.float64
    assert torch.equal(half.psi, psi().to(torch.bfloat16).double())


@dataclass(frozen=True)
class OwnFamily(PoissonFamily):
    name: ClassVar[str] = "own"


@dataclass(frozen=True)
class Lookalike(PoissonFamily):
    """Has the name of another family."""


BAD = psi()
BAD[0] = -torch.inf


@pytest.mark.parametrize(
    ("arguments", "code", "argument"),
    [
        (([], psi(), PoissonFamily()), "wrong-type", "structure"),
        ((STRUCTURE, psi().tolist(), PoissonFamily()), "wrong-type", "psi"),
        ((STRUCTURE, psi()[1:], PoissonFamily()), "wrong-shape", "psi"),
        ((STRUCTURE, BAD, PoissonFamily()), "not-finite", "psi"),
        ((STRUCTURE, BAD.nan_to_num() * torch.nan, PoissonFamily()), "not-finite", "psi"),
        ((STRUCTURE, psi(), "poisson"), "wrong-type", "family"),
        ((STRUCTURE, psi(), node_family("gaussian")), "conflict", "structure"),
        ((STRUCTURE, psi(), OwnFamily()), "unknown-choice", "family"),
        ((STRUCTURE, psi(), Lookalike()), "unknown-choice", "family"),
    ],
)
def test_unsuitable_root_models_are_refused(arguments, code, argument):
    with raises(code, argument):
        RootFile(*arguments)


# Networks


LABELS = Domain(
    [
        Variable("größe", ("klein", 'groß, "sehr"'), "ordinal", "cm"),
        Variable("b", ("0", "1", "2")),
        Variable("c", ("only",)),
    ]
)
GRAPH = DecisionGraph(LABELS, "größe").split(0, "b").merge(0, 2)


def three_nodes(dtype=torch.float64):
    """A leaf table, a table with two parents and one without any."""
    leaves = torch.tensor([[0.1, 0.9], [1.0, 0.0]], dtype=torch.float64)
    table = torch.tensor([[[0.1, 0.2, 0.7]], [[1 / 3, 1 / 3, 1 / 3]]], dtype=torch.float64)
    nodes = [
        LeafConditional(GRAPH, leaves.to(dtype)),
        TableConditional(LABELS, "b", ["größe", "c"], table.to(dtype)),
        TableConditional(LABELS, "c", [], torch.ones(1, dtype=dtype)),
    ]
    return DependencyConditionals(nodes)


def probs(node):
    assert isinstance(node, (LeafConditional, TableConditional))
    return node.probs


def tensors(**changes):
    """Tensors of a good file, with changes by "probs_0" and so on; None removes one."""
    good = {f"probs.{i}": probs(node) for i, node in enumerate(three_nodes().nodes)}
    found = {**good, **{name.replace("_", "."): value for name, value in changes.items()}}
    return {name: value.contiguous() for name, value in found.items() if value is not None}


NODES = [
    {"type": "leaves", "variable": "größe", "operations": [["split", 0, "b"], ["merge", 0, 2]]},
    {"type": "table", "variable": "b", "parents": ["größe", "c"]},
    {"type": "table", "variable": "c", "parents": []},
]


def assert_same(found, expected):
    assert found.domain == expected.domain
    for left, right in zip(found.nodes, expected.nodes, strict=True):
        assert type(left) is type(right)
        assert torch.equal(probs(left), probs(right))
        assert probs(left).dtype == probs(right).dtype
        assert getattr(left, "graph", None) == getattr(right, "graph", None)
        assert getattr(left, "parents", None) == getattr(right, "parents", None)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_round_trip_of_a_network_is_exact_down_to_the_bytes(tmp_path, dtype):
    save_network(tmp_path / "m", NetworkFile(three_nodes(dtype)))
    found = load_network(tmp_path / "m")
    assert_same(found.conditionals, three_nodes(dtype))
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
    domain = Domain.from_cardinalities({"a": 2, "b": 2})
    nodes = [TableConditional(domain, name, [parent], table) for name, parent in ("ab", "ba")]
    file = NetworkFile(DependencyConditionals(nodes))
    with torch.no_grad():
        table.fill_(0.5)
    save_network(tmp_path / "m", file)
    found = probs(load_network(tmp_path / "m").conditionals.node("b"))
    assert found.tolist() == [[0.25, 0.75], [0.5, 0.5]]
    assert not found.requires_grad


def test_unsuitable_networks_are_refused():
    with pytest.raises(InputTypeError, match=r"DependencyConditionals, received list"):
        NetworkFile([])
    with pytest.raises(InputError, match=r"the name 'probs\.7' is taken"):
        NetworkFile(three_nodes(), {}, {"probs.7": torch.ones(1)})


def test_conditionals_of_models_are_refused_by_name_and_tabulated_ones_are_taken(tmp_path):
    hypergraph = InteractionHypergraph.from_order(Domain.from_cardinalities({"a": 2, "b": 3}), 2)
    model = LogLinearEnergy(hypergraph, torch.linspace(-1, 1, hypergraph.num_terms, dtype=torch.float64))
    found = DependencyConditionals.from_model(model)
    with pytest.raises(InputTypeError, match=r"that of 'a' is a ModelConditional; the network's tabulated\(\)"):
        NetworkFile(found)
    save_network(tmp_path / "m", NetworkFile(found.tabulated()))
    x = torch.tensor([[0, 2], [1, 1]])
    torch.testing.assert_close(load_network(tmp_path / "m").conditionals.log_pseudo_prob(x), model.log_pseudo_prob(x))


# Contents that do not fit


def changed_in(entries, position, **changes):
    """The entries with one of them changed; None removes a part."""
    entry = {name: value for name, value in {**entries[position], **changes}.items() if value is not None}
    return [*entries[:position], entry, *entries[position + 1 :]]


terms, changed = partial(changed_in, STRUCTURE.to_json()["terms"]), partial(changed_in, NODES)
GOOD = {
    "generalized-root": ({"psi": psi()}, {"family": {"name": "poisson", "maximum": None}, **STRUCTURE.to_json()}),
    "dependency-network": (tensors(), {"domain": LABELS.to_json(), "nodes": NODES}),
}


def write(path, kind, contents=None, **changes):
    """A good file of the kind with other tensors or changed entries; None removes an entry."""
    header = {"format": "pyro-hoim", "format_version": FORMAT_VERSION, "library_version": "0.1.0", "kind": kind}
    header |= {**GOOD[kind][1], "info": {}, **changes}
    header = {name: value for name, value in header.items() if value is not None}
    path.write_bytes(forged(GOOD[kind][0] if contents is None else contents, {"pyro-hoim": json.dumps(header)}))
    return path


def test_control_good_files_are_read(tmp_path):
    found = load_roots(write(tmp_path / "m", "generalized-root"))
    assert found.structure == STRUCTURE and torch.equal(found.psi, psi())
    assert_same(load_network(write(tmp_path / "m", "dependency-network")).conditionals, three_nodes())


BAD_ENTRIES = {
    "generalized-root": {
        "domain shorter": ({"domain": COUNTS.to_json()[:2]}, "expected 0 to 1, received 2"),
        "a nominal variable": ({"domain": Domain.from_cardinalities([2, 2, 2]).to_json()}, "log-linear model"),
        "reals": ({"domain": REALS.to_json()}, "needs variables of kind 'count'"),
        "no terms": ({"terms": None}, "'terms'"),
        "terms a number": ({"terms": 3}, "do not fit"),
        "terms numbers": ({"terms": [3]}, "do not fit"),
        "one key too few": ({"terms": STRUCTURE.to_json()["terms"][:-1]}, "psi: expected shape"),
        "one key too many": ({"terms": [*terms(0), {"root": 4, "size": 1, "positions": [[0]]}]}, "psi: expected"),
        "a key twice": ({"terms": [*terms(0), terms(0)[0]]}, "repeated or not in order"),
        "keys reordered": ({"terms": terms(0)[::-1]}, "repeated or not in order"),
        "an empty key": ({"terms": [*terms(0), {"root": 9, "size": 1, "positions": []}]}, "received a list of 0"),
        "a term above its root": ({"terms": terms(1, root=0)}, "whole number from 1"),
        "a root that is a string": ({"terms": terms(1, root="2")}, "whole number from 1, received '2'"),
        "a root that is a list": ({"terms": terms(1, root=[2])}, "do not fit"),
        "no positions": ({"terms": terms(1, positions=None)}, "'positions'"),
        "positions out of order": ({"terms": terms(2, positions=[[0, 2], [0, 1], [1, 2]])}, "not in order"),
        "positions swapped": ({"terms": terms(2, positions=[[1, 0], [0, 2], [1, 2]])}, "not in order"),
        "positions repeated": ({"terms": terms(2, positions=[[0, 1], [0, 1], [1, 2]])}, "is repeated"),
        "positions of one variable": ({"terms": terms(2, positions=[[0, 0], [0, 1], [1, 2]])}, "distinct"),
        "positions negative": ({"terms": terms(2, positions=[[-1, 0], [0, 1], [1, 2]])}, "received -1"),
        "positions fractional": ({"terms": terms(2, positions=[[0.5, 1], [0, 1], [1, 2]])}, "received 0.5"),
        "positions ragged": ({"terms": terms(2, positions=[[0], [0, 1], [1, 2]])}, "whole numbers"),
        "positions of text": ({"terms": terms(1, positions=[["a"]])}, "do not fit"),
        "positions huge": ({"terms": terms(2, positions=[[0, 2**70], [0, 1], [1, 2]])}, "do not fit"),
        "no family": ({"family": None}, "'family' is missing"),
        "family a string": ({"family": "poisson"}, "family: expected an object with 'name', 'maximum'"),
        "family without maximum": ({"family": {"name": "poisson"}}, "'maximum' is missing"),
        "family unknown": ({"family": {"name": "poison", "maximum": None}}, "poison"),
        "family odd": ({"family": {"name": ["poisson"], "maximum": None}}, "do not fit"),
        "maximum missing": ({"family": {"name": "truncated-poisson", "maximum": None}}, "largest count"),
        "maximum wrong": ({"family": {"name": "truncated-poisson", "maximum": 0}}, "whole number from 1"),
        "maximum fractional": ({"family": {"name": "truncated-poisson", "maximum": 2.5}}, "whole number"),
    },
    "dependency-network": {
        "a count among the variables": (
            {"domain": [{**LABELS.to_json()[0], "labels": [], "kind": "count"}, *LABELS.to_json()[1:]]},
            "no cardinality",
        ),
        "no nodes": ({"nodes": None}, "'nodes' is missing"),
        "nodes odd": ({"nodes": [1, 2, 3]}, "do not fit"),
        "one node too few": ({"nodes": NODES[:2]}, "not in the order of the variables"),
        "one node too many": ({"nodes": [*NODES, NODES[0]]}, r"'probs\.3' is missing"),
        "nodes reordered": ({"nodes": [NODES[1], NODES[0], NODES[2]]}, "do not fit"),
        "node twice": ({"nodes": [NODES[2], NODES[1], NODES[2]]}, "do not fit"),
        "other type": ({"nodes": changed(2, type="tree")}, "'leaves' or 'table', received 'tree'"),
        "no type": ({"nodes": changed(2, type=None)}, "'type' is missing"),
        "no parents": ({"nodes": changed(1, parents=None)}, "'parents' is missing"),
        "unknown parent": ({"nodes": changed(1, parents=["größe", "z"])}, "unknown variable 'z'"),
        "own parent": ({"nodes": changed(1, parents=["größe", "b"])}, "other variables than 'b'"),
        "parents swapped": ({"nodes": changed(1, parents=["c", "größe"])}, r"shape \(\.\.\., 1, 2, 3\)"),
        "parents a number": ({"nodes": changed(1, parents=3)}, "do not fit"),
        "parents nested": ({"nodes": changed(1, parents=[["größe"], "c"])}, "do not fit"),
        "no operations": ({"nodes": changed(0, operations=None)}, "variable and operations"),
        "operation odd": ({"nodes": changed(0, operations=[["grow", 0, "b"]])}, "grow"),
        "operation a number": ({"nodes": changed(0, operations=[5])}, "do not fit"),
        "leaf unknown": ({"nodes": changed(0, operations=[["split", 1, "b"]])}, "leaf from 0 to 0, received 1"),
        "leaf true": ({"nodes": changed(0, operations=[["split", False, "b"]])}, "received False"),
        "split on itself": ({"nodes": changed(0, operations=[["split", 0, "größe"]])}, "other variable than"),
        "merge with itself": ({"nodes": changed(0, operations=[["split", 0, "b"], ["merge", 0, 0]])}, "increasing"),
        "leaves missing": ({"nodes": changed(0, operations=[["split", 0, "b"]])}, r"shape \(3, 2\)"),
    },
}


@pytest.mark.parametrize(("kind", "case"), [(kind, case) for kind, cases in BAD_ENTRIES.items() for case in cases])
def test_bad_metadata_is_refused_in_one_sentence(kind, case, tmp_path):
    changes, message = BAD_ENTRIES[kind][case]
    with pytest.raises(ModelFileError, match=message) as caught:
        KINDS[kind][2](write(tmp_path / "m", kind, **changes))
    assert "\n" not in str(caught.value) and str(tmp_path / "m") in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "contents", "message"),
    [
        ("generalized-root", {"theta": psi()}, "float32 or float64 tensor 'psi', found none"),
        ("generalized-root", {"psi": psi().long()}, r"found torch\.int64"),
        ("generalized-root", {"psi": psi()[1:].clone()}, r"psi: expected shape \(\.\.\., 16\)"),
        ("generalized-root", {"psi": torch.tensor(1.0)}, "psi: expected shape"),
        ("generalized-root", {"psi": BAD}, "received -inf"),
        ("dependency-network", tensors(probs_1=None), r"'probs\.1' is missing"),
        ("dependency-network", tensors(probs_3=torch.ones(1)), r"the name 'probs\.3'"),
        ("dependency-network", tensors(probs_0=torch.tensor([[0.1, 0.9], [0.5, 0.4]])), r"leaf 1 sums to 0\.9"),
        ("dependency-network", tensors(probs_0=torch.tensor([[0.1, 0.9], [1.5, -0.5]])), r"-0\.5 at index \(1, 1\)"),
        ("dependency-network", tensors(probs_2=torch.tensor([torch.nan])), r"received nan"),
        ("dependency-network", tensors(probs_2=torch.ones(1, dtype=torch.long)), r"int64"),
        ("dependency-network", tensors(probs_2=torch.ones(1, 1)), r"batch of shape \(1,\)"),
    ],
)
def test_bad_tensors_are_refused(kind, contents, message, tmp_path):
    with pytest.raises(ModelFileError, match=message):
        KINDS[kind][2](write(tmp_path / "m", kind, contents))


TABLE = "a,b\n" + "yes,no\n" * 5000


@pytest.mark.parametrize(
    ("name", "content", "is_table"),
    [
        ("rows.csv", TABLE.encode(), True),
        ("rows.txt", TABLE.replace(",", "\t").encode(), True),
        ("rows", TABLE.replace(",", ";").encode("utf-8-sig"), True),
        ("rows.csv.gz", b"\x1f\x8b\0\xff", True),
        ("rows.parquet", b"PAR1\0", True),
        ("rows.safetensors", b"\x10\0\0\0\0\0\0\0{}", False),
        ("empty", b"", False),
        ("letter.txt", b"One line of words\nand another, of more\n", False),
    ],
)
def test_a_table_in_the_place_of_a_model_is_called_a_table(name, content, is_table, tmp_path):
    """With the command that makes a model of it; the control are files that are no table."""
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ModelFileError) as caught:
        read_kind(tmp_path / name)
    assert ("looks like a table of rows" in str(caught.value)) == is_table
    assert ("pyro-hoim fit " in str(caught.value)) == is_table
    assert ("damaged or truncated" in str(caught.value)) != is_table
