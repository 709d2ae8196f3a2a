"""Model files with a right checksum and other contents: one refusal before anything is built, or what they say."""

import contextlib
import math

import pytest
import torch
from forged_files import change

from pyro_hoim import load
from pyro_hoim.boltzmann import MachineFile, MachineStructure, load_machine, save_machine
from pyro_hoim.data import Observations
from pyro_hoim.dependency_network import (
    DecisionGraph,
    DependencyConditionals,
    LeafConditional,
    NetworkFile,
    Split,
    TableConditional,
    load_network,
    save_network,
)
from pyro_hoim.errors import InputError, ModelFileError
from pyro_hoim.families import add_info
from pyro_hoim.generalized_root import PoissonFamily, RootFile, RootStructure, load_roots, save_roots
from pyro_hoim.inference import enumerate_structures, load_structure_posterior, save_structure_posterior
from pyro_hoim.log_linear import HierarchicalLogLinear, ModelFile, load_model, save_model
from pyro_hoim.runs import container
from pyro_hoim.runs.container import read_kind
from pyro_hoim.runs.rules import MOST_DEPTH, MOST_VALUES, parsed
from pyro_hoim.schema import Domain, Variable
from pyro_hoim.structure import InteractionHypergraph
from pyro_hoim.testing import raises

LABELS = Domain.from_labels({"a": ["no", "yes"], "b": ["no", "yes"]})
COUNTS = Domain([Variable("a", kind="count"), Variable("b", kind="count")])
NUMBERS = torch.tensor([0.5, -0.25, 1.0, -1.0, 0.125], dtype=torch.float64)


def write(path, kind, info=None):
    """A good file of a kind, with what its fit would say."""
    shares = {"a": [0.5, 0.5], "b": [0.25, 0.75]}
    if kind == "log-linear":
        held = {"independent": shares, "seed": 1, "rows": 12.0, "uncertainty": [{"edge": ["a"], "std_error": None}]}
        held["infinite_combinations"] = [{"edge": ["a", "b"], "levels": ["no", "yes"]}]
        save_model(path, ModelFile(InteractionHypergraph.saturated(LABELS), NUMBERS[:3], "corner", info or held))
    elif kind == "network":
        held = {"independent": shares, "edges": [["b", "a", 0.25]]}
        leaves = torch.tensor([[0.5, 0.5], [0.25, 0.75]], dtype=torch.float64)
        nodes = [LeafConditional(DecisionGraph(LABELS, "a").split(0, "b"), leaves)]
        nodes += [TableConditional(LABELS, "b", [], leaves[1])]
        save_network(path, NetworkFile(DependencyConditionals(nodes), info or held))
    elif kind == "roots":
        held = {"columns": ["a", "c", "b"], "fixed_columns": {"c": 0.0}, "scales": {"a": 1.5}}
        save_roots(path, RootFile(RootStructure.complete(COUNTS, 2), NUMBERS, PoissonFamily(), info or held))
    elif kind == "machine":
        structure = MachineStructure.restricted(LABELS, ["mood"])
        save_machine(path, MachineFile(structure, NUMBERS, info or {"independent": [0.5, 0.75]}))
    else:
        save_structure_posterior(path, enumerate_structures(Observations.from_table(LABELS, [[9, 1], [1, 9]])), info)
    return path


READERS = {"log-linear": load, "network": load, "roots": load, "machine": load, "posterior": load_structure_posterior}
NESTED = []
for _ in range(900):
    NESTED = [NESTED]


def put(*path_and_value):
    """An edit that puts a value at a place in the header."""
    *path, last, value = path_and_value

    def edit(header, _):
        for name in path:
            header = header[name]
        header[last] = value

    return edit


def tensor(name, function):
    return lambda _, tensors: tensors.update({name: function(tensors[name])})


ALL = [
    *(put("domain", 0, "labels", value) for value in ("no", {"no": 1, "yes": 2}, [0, 1], [["no"], "yes"], None, 3)),
    *(put("domain", 0, "name", value) for value in ("b", "", 1, None, ["a"])),
    *(put("domain", 0, "unit", value) for value in (3, ["cm"])),
    *(put("domain", value) for value in (None, {}, "ab", [None], [["a"]], [])),
    put("domain", 0, "kind", "odd"),
    put("domain", 0, "more", 1),
    put("info", NESTED),
    put("info", {"deep": NESTED}),
    put("info", None),
    put("info", [1]),
    put("strange", 1),
    put("sha512", "0"),
    lambda header, _: header.pop("domain"),
]
INFO = [
    *(put("info", "rows", value) for value in (-1, "many", [3])),
    *(put("info", "seed", value) for value in (1.5, "x", None)),
    *(put("info", "split", value) for value in (3, {"fractions": [1]}, {"fractions": [1, 0, 0], "seed": 0, "rows": 1})),
    *(put("info", "reading", value) for value in (3, {"bins": 3}, {"bins": {"a": {"cuts": [], "kind": "numbers"}}})),
]
SHARES = [
    *(put("info", "independent", value) for value in (3, [], {"a": [0.5, 0.5]}, {"a": [1.0], "b": [0.5, 0.5]})),
    put("info", "independent", {"a": [0.5, "x"], "b": [0.5, 0.5]}),
    put("info", "independent", {"a": [0.5, 7], "b": [0.5, 0.5]}),
]
CELLS = ("infinite_combinations", "infinite_interactions")
BAD = {
    "log-linear": [
        *ALL,
        *INFO,
        *SHARES,
        *(put("edges", value) for value in (None, "ab", [None], ["a", "b"], [["a"], [1]], [[]], {"a": 1}, [["z"]])),
        put("edges", [["a"], ["b"], ["a", "b"], ["a", "b"]]),
        put("edges", [["b"], ["a"], ["a", "b"]]),
        *(put("coding", value) for value in ("odd", None, 1, ["free"], "balanced")),
        *(put("info", name, value) for name in CELLS for value in (3, [3], [{"edge": ["a"]}])),
        *(put("info", CELLS[0], [{"edge": e, "levels": v}]) for e, v in (("a", "n"), (["z"], ["no"]), (["a"], ["?"]))),
        put("info", CELLS[0], [{"edge": ["a"], "levels": ["no", "yes"]}]),
        *(put("info", "uncertainty", value) for value in (3, [3], [{"std_error": 1}], [{"edge": ["a"], "df": "x"}])),
        *(put("info", "learned_edges", value) for value in (None, ["a"], [[1]])),
        *(put("info", name, "x") for name in ("num_parameters", "log_likelihood", "is_maximum", "is_restricted")),
        *(put("info", "log_partition", value) for value in (3, {}, {"value": "x"})),
        *(tensor("theta", lambda t, v=v: t * v) for v in (math.nan, math.inf)),
        tensor("theta", lambda t: t.float()),
        tensor("theta", lambda t: t.expand(3, -1)),
        tensor("theta", lambda t: t.expand(0, 3)),
        tensor("theta", lambda t: t[:2]),
    ],
    "network": [
        *ALL,
        *INFO,
        *SHARES,
        *(put("info", "edges", value) for value in (None, 3, [3], [["a", "b"]], [["a", "b", "x"]], [["a", "z", 1.0]])),
        *(put("nodes", value) for value in (None, {}, [], [None], ["leaves"])),
        *(put("nodes", 0, "operations", value) for value in (None, "split", [["split", 0]], [["merge", 0, "b"]], [0])),
        *(put("nodes", 1, "parents", value) for value in (None, "a", [1], {"a": 1})),
        lambda _, tensors: tensors.update({"counts.0": torch.ones(4)}),
        lambda _, tensors: tensors.update({"counts.1": torch.full((2,), math.nan)}),
        *(tensor("probs.0", lambda t, v=v: t * v) for v in (math.nan, math.inf, -1.0, 2.0)),
        tensor("probs.1", lambda t: t.expand(3, -1)),
        tensor("probs.1", lambda t: t.expand(0, -1)),
    ],
    "roots": [
        *ALL,
        *INFO,
        *(put("family", value) for value in (None, "poisson", {"name": "odd", "maximum": None}, {"name": "poisson"})),
        *(put("terms", 0, "root", value) for value in (0, True, 1001, 10**9, 10**30, "1", None, 1.0)),
        *(put("terms", 0, "positions", value) for value in (None, [[2], [0]], [[0], [0]], [[10**30], [1]], [])),
        *(put("info", "columns", value) for value in (None, 3, "abc", ["a", "b"], ["a", "c", "b", "b"], [1, 2, 3])),
        *(put("info", "fixed_columns", value) for value in (None, 3, {"z": 0.0}, {"c": "x"}, {"c": None})),
        *(put("info", "scales", value) for value in (None, 3, {"z": 1.0}, {"a": 0}, {"a": "x"})),
        lambda _, tensors: tensors.update({"independent.first": torch.ones(2)}),
        *(tensor("psi", lambda t, v=v: t * v) for v in (math.nan, math.inf)),
        tensor("psi", lambda t: t.expand(3, -1)),
        tensor("psi", lambda t: t.expand(0, -1)),
    ],
    "machine": [
        *ALL,
        *INFO,
        *(put("hidden", value) for value in (None, 1, "mood", ["a"], ["x", "x"], [""], [1])),
        *(put("edges", value) for value in (None, "odd", [["a"]], [["a", "a"]], [["a", "z"]], [["a", 1]], 3)),
        *(put("info", "independent", value) for value in (3, [0.5], [0.5, 2.0], {"a": [0.5, 0.5]}, ["x", 0.5])),
        *(put("info", "log_partition", value) for value in (3, {}, {"value": "x"})),
        *(tensor("theta", lambda t, v=v: t * v) for v in (math.nan, math.inf)),
        tensor("theta", lambda t: t.expand(3, -1)),
        tensor("theta", lambda t: t.expand(0, -1)),
    ],
    "posterior": [
        *ALL,
        *(put("space", name, None) for name in ("space", "max_order", "heredity")),
        put("space", {"space": "hierarchical", "max_order": 10**9, "heredity": 1.0}),
        *(put("inclusion", value) for value in (None, "half", [], ["beta", 1], ["beta", "x", 1], 2.0)),
        *(put("evidence", name, value) for name in ("prior", "method", "seed") for value in (None, 3.5, "odd", [])),
        *(tensor(name, lambda t: t[:0]) for name in ("codes", "counts", "log_evidence", "gamma")),
    ],
}


def refusal(read, path):
    """What is said of a file; nothing where it is read."""
    try:
        read(path)
    except ModelFileError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("kind", BAD)
def test_contents_that_no_model_has_are_refused(kind, tmp_path):
    path = write(tmp_path / "good", kind)
    whole = path.read_bytes()
    change(path, lambda header, tensors: None)
    READERS[kind](path)  # control: the file was written anew
    for number, edit in enumerate(BAD[kind]):
        path.write_bytes(whole)
        change(path, edit)
        error = refusal(READERS[kind], path)
        assert error and "\n" not in error and len(error) < 700 and "its checksum" not in error, (number, error)


def entries(kind):
    """The edits of the information alone: what they put there."""
    for edit in BAD[kind]:
        header = {"info": {}}
        with contextlib.suppress(KeyError):
            edit(header, {})
        if list(header) == ["info"] and isinstance(header["info"], dict) and header["info"]:
            yield header["info"]


@pytest.mark.parametrize("kind", ["log-linear", "network", "roots", "machine"])
def test_information_that_no_model_has_is_refused_before_it_is_written(kind, tmp_path):
    path = write(tmp_path / "model", kind)
    add_info(path, {"note": ["kept"]})  # control
    whole, tried = path.read_bytes(), 0
    assert load(path).info["note"] == ["kept"]
    for info in entries(kind):
        with pytest.raises(InputError) as caught:
            add_info(path, info)
        assert caught.value.argument.startswith("info") and "\n" not in str(caught.value)
        assert ".part" not in str(caught.value)
        tried += 1
    assert tried > 15 and path.read_bytes() == whole and [file.name for file in tmp_path.iterdir()] == ["model"]


def test_a_file_is_what_it_says(tmp_path):
    """Corner theta over closed sets, the header changed by hand to the free coding: another model, and it is that."""
    path = write(tmp_path / "m", "log-linear")
    change(path, put("coding", "free"))
    found = load_model(path)
    assert found.coding == "free" and torch.equal(found.theta, NUMBERS[:3])
    law = HierarchicalLogLinear(found.hypergraph, found.theta, coding=found.coding)
    corner = HierarchicalLogLinear(found.hypergraph, found.theta, coding="corner")
    assert abs(float(law.log_prob(torch.tensor([0, 0])) - corner.log_prob(torch.tensor([0, 0])))) > 0.1
    closed = InteractionHypergraph(LABELS, [["a"], ["b"], ["a", "b"]], coding="corner")
    assert closed.coding == "balanced" and closed == found.hypergraph  # the same family in both codings


def test_batches_are_read_by_their_own_readers(tmp_path):
    graph = InteractionHypergraph.saturated(LABELS)
    for batch in ((0,), (3,), (2, 3)):
        save_model(tmp_path / "m", ModelFile(graph, torch.zeros(*batch, 3)))
        assert load_model(tmp_path / "m").theta.shape == (*batch, 3)
        with pytest.raises(ModelFileError, match=r"a batch of models of shape \(.*read it with load_model") as caught:
            load(tmp_path / "m")
        assert caught.value.code == "wrong-shape"


def test_sizes_are_compared_before_anything_of_that_size_is_built(tmp_path):
    wide = Domain.from_cardinalities([2] * 34)

    def widen(header, tensors):
        header.update(domain=wide.to_json(), edges=[list(wide.names)], info={}, coding="free")
        tensors["theta"] = tensors["theta"][:1]  # one parameter is right for one edge of binary variables

    change(write(tmp_path / "m", "log-linear"), widen)
    assert (tmp_path / "m").stat().st_size < 4000
    with pytest.raises(ModelFileError, match=r"17,179,869,184 entries.* the budget of") as caught:
        load_model(tmp_path / "m")
    assert caught.value.code == "over-budget"
    names = [f"h{k}" for k in range(30_000)]
    write(tmp_path / "machine", "machine")

    def enlarge(header, _):
        header["hidden"] = names
        header["domain"] = Domain.from_cardinalities([2] * 30_000).to_json()
        header["info"] = {}

    change(tmp_path / "machine", enlarge)
    with pytest.raises(ModelFileError, match="900060000"):
        load_machine(tmp_path / "machine")


def test_long_graphs_take_time_in_proportion(tmp_path):
    """20,000 splits; when every one copied the others this took eight seconds, and 100,000 three minutes."""
    graph = DecisionGraph(LABELS, "a", [Split(k, "b") for k in range(20_000)])
    probs = torch.full((graph.num_leaves, 2), 0.5)
    table = TableConditional(LABELS, "b", [], probs[0])
    save_network(tmp_path / "m", NetworkFile(DependencyConditionals([LeafConditional(graph, probs), table])))
    assert load_network(tmp_path / "m").conditionals.node("a").graph.num_leaves == 20_001


def test_headers_of_too_many_values_or_bytes_are_refused_on_both_sides(monkeypatch, tmp_path):
    with raises("over-budget", "header"):
        parsed("[" + "," * (MOST_VALUES + 1) + "]", "header")
    assert parsed("[[1]]", "header") == [[1]]  # control
    with pytest.raises(InputError, match=f"more than {MOST_DEPTH} levels"):
        ModelFile(InteractionHypergraph.saturated(LABELS), NUMBERS[:3], "free", {"deep": NESTED})
    monkeypatch.setattr(container, "_MOST_BYTES", 1000)
    write(tmp_path / "m", "log-linear", {"note": "x"})
    with pytest.raises(ModelFileError, match=r"header would take 9\d{3} bytes, the limit is 1000"):
        write(tmp_path / "m", "log-linear", {"note": "x" * 9500})
    assert load(tmp_path / "m").info == {"note": "x"}


def test_repeated_names_in_the_text_are_refused(tmp_path):
    for text in ('{"a": 1, "a": 1}', '[{"b": {"a": 1, "a": 2}}]', '{"a": NaN}', '{"a": -Infinity}'):
        with raises("damaged-file", "header"):
            parsed(text, "header")


def test_paths_without_a_file_say_so(tmp_path):
    for read in (load_model, load_network, load_roots, load_machine, load_structure_posterior, load, read_kind):
        with pytest.raises(ModelFileError, match="no such file") as caught:
            read(tmp_path / "absent")
        assert caught.value.code == "no-file"
