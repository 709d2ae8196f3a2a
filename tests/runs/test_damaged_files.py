"""Damaged model files, one table for every kind: wrong bytes, headers of others, contents that no model has.

What is not equal to the file that was written is refused in one sentence before anything is built from it; with a
right checksum a file is what it says.
"""

import contextlib
import hashlib
import json
import math
import pickle
import random
import re
import struct

import pytest
import safetensors.torch
import torch
from forged_files import change, contents, forged

from pyro_hoim import Domain, InteractionHypergraph, Observations, Variable, load
from pyro_hoim.boltzmann import MachineFile, MachineStructure, load_machine, save_machine
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
from pyro_hoim.runs import FORMAT_VERSION, container
from pyro_hoim.runs.container import is_intact, read_kind, sealed
from pyro_hoim.runs.rules import MOST_DEPTH, MOST_VALUES, parsed
from pyro_hoim.testing import raises

LABELS = Domain.from_labels({"a": ["no", "yes"], "b": ["no", "yes"]})
COUNTS = Domain([Variable("a", kind="count"), Variable("b", kind="count")])
NUMBERS = torch.tensor([0.5, -0.25, 1.0, -1.0, 0.125], dtype=torch.float64)


def write(path, kind, info=None, numbers=NUMBERS):
    """A good file of a kind, with what its fit would say."""
    shares = {"a": [0.5, 0.5], "b": [0.25, 0.75]}
    if kind == "log-linear":
        notes = {"independent": shares, "seed": 1, "rows": 12.0, "uncertainty": [{"edge": ["a"], "std_error": None}]}
        notes["infinite_combinations"] = [{"edge": ["a", "b"], "levels": ["no", "yes"]}]
        save_model(path, ModelFile(InteractionHypergraph.saturated(LABELS), numbers[:3], "corner", info or notes))
    elif kind == "network":
        notes = {"independent": shares, "edges": [["b", "a", 0.25]]}
        leaves = torch.stack([torch.full((2,), 0.5, dtype=torch.float64), numbers[3:].softmax(0)])
        nodes = [LeafConditional(DecisionGraph(LABELS, "a").split(0, "b"), leaves)]
        nodes += [TableConditional(LABELS, "b", [], leaves[1])]
        save_network(path, NetworkFile(DependencyConditionals(nodes), info or notes))
    elif kind == "roots":
        notes = {"columns": ["a", "c", "b"], "fixed_columns": {"c": 0.0}, "scales": {"a": 1.5}}
        save_roots(path, RootFile(RootStructure.complete(COUNTS, 2), numbers, PoissonFamily(), info or notes))
    elif kind == "machine":
        structure = MachineStructure.restricted(LABELS, ["mood"])
        save_machine(path, MachineFile(structure, numbers, info or {"independent": [0.5, 0.75]}))
    else:
        rows = Observations.from_table(LABELS, [[9, 1], [1, round(9 + float(4 * numbers[0]))]])
        save_structure_posterior(path, enumerate_structures(rows), info)
    return path


OPENED = {"log-linear": load, "network": load, "roots": load, "machine": load, "posterior": load_structure_posterior}
# Where an edit of the contents is refused, a reader of one family says so as `load` does.
READERS = {
    "log-linear": load_model,
    "network": load_network,
    "roots": load_roots,
    "machine": load_machine,
    "posterior": load_structure_posterior,
}
EVERY = pytest.mark.parametrize("kind", READERS)


@pytest.fixture
def good(kind, tmp_path):
    """A good file of the kind."""
    return write(tmp_path / "good", kind)


def refusal(path, read, data=None):
    """What is said of a file, or of one with these bytes; nothing where it is read."""
    if data is not None:
        path.write_bytes(data)
    try:
        read(path)
    except ModelFileError as error:
        message = str(error)
    else:
        return ""
    assert "\n" not in message and str(path) in message
    return message


# Wrong bytes


def assert_refused(kind, good, number):
    """Flip single bits, so many of them or all."""
    load, data = READERS[kind], good.read_bytes()
    bits = range(8 * len(data))
    for position in bits if number is None else random.Random(kind).sample(bits, number):
        damaged = bytearray(data)
        damaged[position // 8] ^= 1 << position % 8
        assert refusal(good, load, damaged), position
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
    assert "its checksum" not in refusal(good, READERS[kind], good.read_bytes())


@EVERY
def test_truncated_extended_and_mixed_files_are_refused(kind, good, tmp_path):
    load, data = READERS[kind], good.read_bytes()
    other = write(tmp_path / "other", kind, None, NUMBERS.flip(0) / 2).read_bytes()
    assert data != other and not refusal(good, load, other)  # control
    start = 8 + struct.unpack("<Q", data[:8])[0]
    mixed = other[: 8 + struct.unpack("<Q", other[:8])[0]] + data[start:]  # the header of the other
    swapped = data[: len(data) - 16] + data[len(data) - 8 :] + data[len(data) - 16 : len(data) - 8]
    ends = (data[:-1], data[:start], data[: start - 1], data[:7], b"", data + b"\0", data + data, data[1:])
    for damaged in (*ends, mixed, swapped):
        assert damaged == data or refusal(good, load, damaged)
    for length in range(0, len(data), 37):
        for read in (load, read_kind):
            assert "damaged or truncated" in refusal(good, read, data[:length])


@EVERY
def test_exchanged_renamed_and_retyped_tensors_are_refused(kind, good):
    """The bytes of a file whose header is right for safetensors, and whose checksum is of another content."""
    header, tensors = contents(good)
    text = safetensors.safe_open(str(good), "pt").metadata()["pyro-hoim"]
    first, *_ = tensors
    renamed = {("x" if name == first else name): value for name, value in tensors.items()}
    retyped = {**tensors, first: tensors[first].float()}
    emptied = {**tensors, first: tensors[first][..., :0]}
    for others in (renamed, retyped, emptied, {**tensors, "more": torch.zeros(1)}):
        others = {name: value.contiguous() for name, value in others.items()}
        data = safetensors.torch.save(others, {"pyro-hoim": text})
        assert "its checksum" in refusal(good, READERS[kind], data)
    assert not refusal(good, READERS[kind], forged(tensors, {"pyro-hoim": text}))  # control
    assert header["format_version"] == 3


class _Exploit:
    def __reduce__(self):
        return pytest.fail, ("code from a file was executed",)


@EVERY
def test_pickles_folders_and_nothing_are_refused_and_never_executed(kind, tmp_path):
    (tmp_path / "pickle").write_bytes(pickle.dumps(_Exploit()))
    torch.save({"theta": torch.zeros(3), "psi": torch.zeros(3), "probs.0": torch.zeros(2)}, tmp_path / "torch")
    said = {"pickle": "damaged", "torch": "damaged", "absent": "no such file", ".": "not a file"}
    for read in (READERS[kind], read_kind):
        for name, message in said.items():
            assert message in refusal(tmp_path / name, read)
    with pytest.raises(ModelFileError, match="no such file") as caught:
        load(tmp_path / "absent")
    assert caught.value.code == "no-file"


# Headers of others


# Metadata as they stand in a file, or what is changed in good ones: None takes an entry out.
BAD_METADATA = {
    "no metadata": (None, "not a pyro-hoim model"),
    "foreign": ({"format": "pt"}, "not a pyro-hoim model"),
    "no JSON": ({"pyro-hoim": "{"}, "not readable JSON"),
    "deep": ({"pyro-hoim": "[" * 100_000}, "nested more than 64 levels deep"),
    "huge number": ({"pyro-hoim": '{"format_version": ' + "9" * 5000 + "}"}, "not readable JSON"),
    "list": ({"pyro-hoim": "[]"}, "not a JSON object"),
}
BAD_ENTRIES = {
    "other format": ({"format": "other"}, "format 'other'"),
    "newer": ({"format_version": FORMAT_VERSION + 1, "library_version": "9.1"}, r"version '4'.*9\.1.*version 3"),
    "older": ({"format_version": 1, "library_version": "0.0.9"}, r"version '1'.*version 3; fit the model again"),
    "version zero": ({"format_version": 0}, "version '0'"),
    "version text": ({"format_version": "1"}, "version '1'"),
    "version true": ({"format_version": True}, "version 'True'"),
    "no version": ({"format_version": None}, "version 'None'"),
    "other kind": ({"kind": "root-model"}, "kind 'root-model', expected '[a-z-]+'$"),
    "no domain": ({"domain": None}, r"'domain' is missing|expected an object with domain and terms \('domain'\)"),
    "domain odd": ({"domain": 3}, "do not fit"),
    "info a number": ({"info": 1}, "info: expected an object, received 1"),
    "info not a number": ({"info": {"a": float("nan")}}, "not readable JSON .NaN is no number"),
}


@EVERY
@pytest.mark.parametrize("case", [*BAD_METADATA, *BAD_ENTRIES])
def test_bad_metadata_is_refused_in_one_sentence(kind, case, good):
    header, message = BAD_METADATA.get(case) or BAD_ENTRIES[case]
    with safetensors.safe_open(str(good), framework="pt") as file:
        metadata = {**json.loads(file.metadata()["pyro-hoim"]), **(header or {})}
    if case in BAD_ENTRIES:
        header = {"pyro-hoim": json.dumps({name: value for name, value in metadata.items() if value is not None})}
    good.write_bytes(forged(safetensors.torch.load(good.read_bytes()), header))
    assert re.search(message, refusal(good, READERS[kind]))
    if case == "other kind":
        assert read_kind(good) == "root-model"  # a family that is registered elsewhere may read it


@EVERY
def test_a_kind_that_is_no_word_is_refused(kind, good):
    listed = {"pyro-hoim": json.dumps({"format": "pyro-hoim", "format_version": FORMAT_VERSION, "kind": [kind]})}
    good.write_bytes(forged({}, listed))
    with pytest.raises(ModelFileError, match=rf"kind \"\['{kind}'\]\", expected"):
        read_kind(good)


# Contents that no model has


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


@pytest.mark.parametrize("kind", BAD)
def test_contents_that_no_model_has_are_refused(kind, tmp_path):
    path = write(tmp_path / "good", kind)
    whole = path.read_bytes()
    change(path, lambda header, tensors: None)
    OPENED[kind](path)  # control: the file was written anew
    for number, edit in enumerate(BAD[kind]):
        path.write_bytes(whole)
        change(path, edit)
        error = refusal(path, OPENED[kind])
        assert error and len(error) < 700 and "its checksum" not in error, (number, error)


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


# The checksum of headers and tensors, against one written here from its description with hashlib alone


HEADER = {"rows": 12, "größe": [1.5e-7, None, True, "\ud800"], "nested": {"b": {}, "a": []}}
TENSORS = {
    "theta": torch.linspace(-1, 1, 7, dtype=torch.float64),
    "ü": torch.arange(6).reshape(2, 3).T,
    "bits": torch.tensor([True, False]),
    "half": torch.tensor([1.5], dtype=torch.bfloat16),
    "scalar": torch.tensor(2.0),
    "none": torch.zeros(0, 3),
}


def test_the_checksum_is_the_described_one():
    text = sealed(HEADER, TENSORS)
    found = json.loads(text)
    checksum = found.pop("sha256")
    assert found == HEADER and text.isascii()
    digest = hashlib.sha256(text.replace(f', "sha256": "{checksum}"', "").encode())
    for name, dtype, shape, values in (
        ("bits", "bool", "[2]", b"\1\0"),
        ("half", "bfloat16", "[1]", b"\xc0\x3f"),
        ("none", "float32", "[0, 3]", b""),
        ("scalar", "float32", "[]", TENSORS["scalar"].numpy().tobytes()),
        ("theta", "float64", "[7]", TENSORS["theta"].numpy().tobytes()),
        ("\\u00fc", "int64", "[3, 2]", TENSORS["ü"].contiguous().numpy().tobytes()),
    ):
        digest.update(f'["{name}", "{dtype}", {shape}]'.encode() + values)
    assert digest.hexdigest() == checksum and is_intact(text, TENSORS)


def changed(**tensors):
    return {name: value for name, value in {**TENSORS, **tensors}.items() if value is not None}


@pytest.mark.parametrize(
    "tensors",
    [
        changed(theta=TENSORS["theta"].flip(0)),
        changed(theta=TENSORS["theta"].view(torch.int64)),
        changed(theta=TENSORS["theta"].reshape(1, 7)),
        changed(none=torch.zeros(3, 0)),
        changed(none=None),
        changed(more=torch.zeros(0)),
        changed(theta=None, thetb=TENSORS["theta"]),
        changed(bits=torch.tensor([False, True])),
    ],
)
def test_other_tensors_are_noticed(tensors):
    text = sealed(HEADER, TENSORS)
    assert is_intact(text, changed()) and not is_intact(text, tensors)


def test_every_other_text_is_noticed():
    text = sealed(HEADER, TENSORS)
    for i, letter in enumerate(text):
        for other in {chr(ord(letter) ^ 1), letter.swapcase(), ""} - {letter}:
            assert not is_intact(text[:i] + other + text[i + 1 :], TENSORS), (i, other)
    for other in ("", "{}", "null", text + " ", " " + text, text.replace("12", "12 ")):
        assert not is_intact(other, TENSORS)
