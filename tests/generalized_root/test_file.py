"""Model files of generalized root models: exact round trips, and one clear refusal for terms that do not fit."""

import json
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from forged_files import forged

from pyro_hoim.errors import ModelFileError
from pyro_hoim.generalized_root import PoissonFamily, RootFile, RootStructure, load_roots, node_family, save_roots
from pyro_hoim.runs import FORMAT_VERSION
from pyro_hoim.schema import Domain, Variable
from pyro_hoim.testing import raises

COUNTS = Domain(
    [Variable("größe", kind="count", unit="m"), Variable('b, "b"', kind="count"), Variable("c", kind="count")]
)
REALS, POSITIVE = (Domain([Variable(name, kind=kind) for name in "abc"]) for kind in ("real", "positive"))
DOMAINS = {"count": COUNTS, "real": REALS, "positive": POSITIVE}
STRUCTURE = RootStructure.complete(COUNTS, 3)


def psi(structure=STRUCTURE, dtype=torch.float64):
    return torch.linspace(-1, 1 / 3, structure.num_terms, dtype=dtype)


def metadata(**changes):
    """Metadata of a good file, with changes; None removes an entry."""
    good = {
        "format": "pyro-hoim",
        "format_version": FORMAT_VERSION,
        "library_version": "0.1.0",
        "kind": "generalized-root",
        "family": {"name": "poisson", "maximum": None},
        **STRUCTURE.to_json(),
        "info": {},
    }
    return {"pyro-hoim": json.dumps({k: v for k, v in {**good, **changes}.items() if v is not None})}


def write(path, header, contents=None):
    path.write_bytes(forged({"psi": psi()} if contents is None else contents, header))
    return path


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


# Writing


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
def test_unsuitable_contents_are_refused(arguments, code, argument):
    with raises(code, argument):
        RootFile(*arguments)


# Reading


def test_control_good_file_is_read(tmp_path):
    found = load_roots(write(tmp_path / "m", metadata()))
    assert found.structure == STRUCTURE
    assert torch.equal(found.psi, psi())


def terms(position, **entries):
    """The terms with one entry changed; None removes a part."""
    good = STRUCTURE.to_json()["terms"]
    entry = {k: v for k, v in {**good[position], **entries}.items() if v is not None}
    return [*good[:position], entry, *good[position + 1 :]]


BAD_METADATA = {
    "domain shorter": (metadata(domain=COUNTS.to_json()[:2]), "expected 0 to 1, received 2"),
    "a nominal variable": (metadata(domain=Domain.from_cardinalities([2, 2, 2]).to_json()), "log-linear model"),
    "reals": (metadata(domain=REALS.to_json()), "needs variables of kind 'count'"),
    "no terms": (metadata(terms=None), "'terms'"),
    "terms a number": (metadata(terms=3), "do not fit"),
    "terms numbers": (metadata(terms=[3]), "do not fit"),
    "one key too few": (metadata(terms=STRUCTURE.to_json()["terms"][:-1]), "psi: expected shape"),
    "one key too many": (metadata(terms=[*terms(0), {"root": 4, "size": 1, "positions": [[0]]}]), "psi: expected"),
    "a key twice": (metadata(terms=[*terms(0), terms(0)[0]]), "repeated or not in order"),
    "keys reordered": (metadata(terms=terms(0)[::-1]), "repeated or not in order"),
    "an empty key": (metadata(terms=[*terms(0), {"root": 9, "size": 1, "positions": []}]), "received a list of 0"),
    "a term above its root": (metadata(terms=terms(1, root=0)), "whole number from 1"),
    "a root that is a string": (metadata(terms=terms(1, root="2")), "whole number from 1, received '2'"),
    "a root that is a list": (metadata(terms=terms(1, root=[2])), "do not fit"),
    "no positions": (metadata(terms=terms(1, positions=None)), "'positions'"),
    "positions out of order": (metadata(terms=terms(2, positions=[[0, 2], [0, 1], [1, 2]])), "not in order"),
    "positions swapped": (metadata(terms=terms(2, positions=[[1, 0], [0, 2], [1, 2]])), "not in order"),
    "positions repeated": (metadata(terms=terms(2, positions=[[0, 1], [0, 1], [1, 2]])), "is repeated"),
    "positions of one variable": (metadata(terms=terms(2, positions=[[0, 0], [0, 1], [1, 2]])), "distinct"),
    "positions negative": (metadata(terms=terms(2, positions=[[-1, 0], [0, 1], [1, 2]])), "received -1"),
    "positions fractional": (metadata(terms=terms(2, positions=[[0.5, 1], [0, 1], [1, 2]])), "received 0.5"),
    "positions ragged": (metadata(terms=terms(2, positions=[[0], [0, 1], [1, 2]])), "whole numbers"),
    "positions huge": (metadata(terms=terms(2, positions=[[0, 2**70], [0, 1], [1, 2]])), "do not fit"),
    "no family": (metadata(family=None), "'family' is missing"),
    "family a string": (metadata(family="poisson"), "family: expected an object with 'name', 'maximum'"),
    "family without maximum": (metadata(family={"name": "poisson"}), "'maximum' is missing"),
    "family unknown": (metadata(family={"name": "poison", "maximum": None}), "poison"),
    "family odd": (metadata(family={"name": ["poisson"], "maximum": None}), "do not fit"),
    "maximum missing": (metadata(family={"name": "truncated-poisson", "maximum": None}), "largest count"),
    "maximum wrong": (metadata(family={"name": "truncated-poisson", "maximum": 0}), "whole number from 1"),
    "maximum fractional": (metadata(family={"name": "truncated-poisson", "maximum": 2.5}), "whole number"),
}


@pytest.mark.parametrize("case", BAD_METADATA)
def test_bad_metadata_is_refused_in_one_sentence(tmp_path, case):
    header, message = BAD_METADATA[case]
    with pytest.raises(ModelFileError, match=message) as caught:
        load_roots(write(tmp_path / "m", header))
    assert "\n" not in str(caught.value)
    assert str(tmp_path / "m") in str(caught.value)


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        ({"theta": psi()}, "float32 or float64 tensor 'psi', found none"),
        ({"psi": psi().long()}, r"found torch\.int64"),
        ({"psi": psi()[1:].clone()}, r"psi: expected shape \(\.\.\., 16\)"),
        ({"psi": torch.tensor(1.0)}, "psi: expected shape"),
        ({"psi": BAD}, "received -inf"),
    ],
)
def test_bad_tensors_are_refused(tmp_path, contents, message):
    with pytest.raises(ModelFileError, match=message):
        load_roots(write(tmp_path / "m", metadata(), contents))
