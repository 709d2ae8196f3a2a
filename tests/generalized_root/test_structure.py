"""Structures of generalized root models: order, equality, constructors, and one clear refusal for everything else."""

import itertools
import math
import pickle

import numpy as np
import pytest
import torch

from pyro_hoim import Domain, InputError, RootStructure, Variable
from pyro_hoim.testing import raises


def counts(names="abcd"):
    return Domain([Variable(name, kind="count") for name in names])


TERMS = {
    (3, 3): [("d", "a", "b")],
    (1, 1): [("c",), ("a",)],
    (2, 2): [("b", "a"), ("a", "d"), ("c", "b")],
    (3, 2): [("b", "a")],
    (2, 1): [],
}


def test_terms_are_sorted_by_key_and_then_by_schema_positions():
    structure = RootStructure(counts(), TERMS)
    assert structure.keys == ((1, 1), (2, 2), (3, 2), (3, 3))
    assert structure.names == (
        ((1, 1), ("a",)),
        ((1, 1), ("c",)),
        ((2, 2), ("a", "b")),
        ((2, 2), ("a", "d")),
        ((2, 2), ("b", "c")),
        ((3, 2), ("a", "b")),
        ((3, 3), ("a", "b", "d")),
    )
    assert (structure.num_terms, structure.order) == (7, 3)
    assert structure.slices == {(1, 1): slice(0, 2), (2, 2): slice(2, 5), (3, 2): slice(5, 6), (3, 3): slice(6, 7)}
    assert structure.multiplicity.tolist() == [1, 1, 2, 2, 2, 2, 6]
    assert structure.positions((2, 2)).tolist() == [[0, 1], [0, 3], [1, 2]]
    assert (structure.positions((2, 1)).shape, structure.tuples((2, 1))) == ((0, 1), ())
    assert structure.components() == (("a", "b", "c", "d"),)


def test_schema_order_decides_not_the_alphabet():
    structure = RootStructure(counts("dcba"), {(2, 2): [("a", "d"), ("c", "d")]})
    assert structure.tuples((2, 2)) == (("d", "c"), ("d", "a"))


def test_value_semantics():
    structure = RootStructure(counts(), TERMS)
    again = RootStructure(counts(), {key: [names[::-1] for names in TERMS[key]][::-1] for key in reversed(TERMS)})
    assert structure == again
    assert hash(structure) == hash(again)
    for other in (structure.without({(1, 1): [("a",)]}), RootStructure(counts("abce"), {(1, 1): [("a",)]}), "x"):
        assert structure != other
    copy = pickle.loads(pickle.dumps(structure))
    assert copy == structure
    assert copy.names == structure.names
    with pytest.raises(AttributeError):
        structure.domain = counts()
    structure.positions((1, 1))[:] = 3
    assert structure.positions((1, 1)).tolist() == [[0], [2]]


def test_index():
    structure = RootStructure(counts(), TERMS)
    for place, ((root, _), names) in enumerate(structure.names):
        for given in itertools.permutations(names):
            assert structure.index(given, root) == place
    assert structure.index(("d", "b", "a")) == 6
    with pytest.raises(InputError, match="roots 2, 3; say which"):
        structure.index(("a", "b"))
    for code, arguments in (
        ("unknown-name", (("a", "c"),)),
        ("unknown-name", (("a",), 3)),
        ("unknown-name", (("e",),)),
        ("wrong-type", ("ab",)),
    ):
        with raises(code):
            structure.index(*arguments)


def test_constructors():
    domain = counts()
    independent = RootStructure.independent(domain)
    assert independent == RootStructure(domain, {(1, 1): [(name,) for name in domain.names]})
    assert independent.is_independent
    assert RootStructure.simplified(domain) == independent
    simplified = RootStructure.simplified(domain, [("c", "a"), ("a",), ("d", "b", "a")])
    ones = {(1, 1): [(name,) for name in domain.names]}
    assert simplified == RootStructure(domain, {**ones, (2, 2): [("a", "c")], (3, 3): [("a", "b", "d")]})
    assert not simplified.is_independent


@pytest.mark.parametrize("order", [1, 2, 3, 5])
@pytest.mark.parametrize("names", ["", "a", "abc", "abcdef"])
def test_complete_structure_counts(order, names):
    structure = RootStructure.complete(counts(names), order)
    expected = {
        (j, size): math.comb(len(names), size)
        for j in range(1, order + 1)
        for size in range(1, j + 1)
        if size <= len(names)
    }
    assert {key: len(structure.tuples(key)) for key in structure.keys} == {k: n for k, n in expected.items() if n}


def test_terms_are_taken_away():
    structure = RootStructure(counts(), TERMS)
    more = {(4, 4): [("a", "b", "c", "d")]}
    assert RootStructure(counts(), {**TERMS, **more}).without(more) == structure
    with pytest.raises(InputError, match="d is no term"):
        structure.without({(1, 1): [("d",)]})


def test_empty():
    for structure in (RootStructure(Domain(), {}), RootStructure.complete(Domain(), 3), RootStructure(counts(), {})):
        assert (structure.num_terms, structure.order, structure.keys) == (0, 1, ())
        assert (structure.multiplicity.shape, structure.multiplicity.dtype) == ((0,), torch.float64)
        assert structure.is_independent
        assert pickle.loads(pickle.dumps(structure)) == structure
        assert RootStructure.from_json(structure.to_json()) == structure


def test_positions_and_json_round_trip():
    structure = RootStructure(counts(), TERMS)
    assert RootStructure.from_json(structure.to_json()) == structure
    rows = {key: structure.positions(key) for key in structure.keys}
    assert RootStructure.from_positions(counts(), rows) == structure
    shuffled = {key: value.flip(0).flip(1).numpy() for key, value in rows.items()}
    assert RootStructure.from_positions(counts(), shuffled) == structure


def test_large_structures_are_cheap():
    rng = np.random.default_rng(0)
    d = 5_000
    domain = Domain([Variable(f"v{i}", kind="count") for i in range(d)])
    rows = np.unique(np.sort(rng.integers(0, d, (200_000, 3)), axis=1), axis=0)
    rows = rows[(np.diff(rows, axis=1) > 0).all(axis=1)]
    structure = RootStructure.from_positions(domain, {(3, 3): rows})
    assert structure.num_terms == len(rows)
    assert np.array_equal(structure.positions((3, 3)).numpy(), rows)


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ((1, 2), "1 <= l <= j"),
        ((1, 0), "1 <= l <= j"),
        ((2,), "two whole numbers"),
        ((2.0, 2), "two whole numbers"),
        (2, "two whole numbers"),
    ],
)
def test_wrong_keys_are_refused(key, words):
    with pytest.raises(InputError, match=f"^terms: .*{words}"):
        RootStructure(counts(), {key: [("a", "b")]})


@pytest.mark.parametrize(
    ("terms", "code"),
    [
        ({(2, 2): [("a",)]}, "wrong-shape"),
        ({(2, 2): [("a", "a")]}, "repeated-name"),
        ({(2, 2): [("a", "b"), ("b", "a")]}, "repeated-name"),
        ({(1, 1): ["ab"]}, "wrong-type"),
        ({(1, 1): "ab"}, "wrong-type"),
        ({(1, 1): 3}, "wrong-type"),
        ({(1, 1): [("e",)]}, "unknown-name"),
        ([("a",)], "wrong-type"),
    ],
)
def test_wrong_terms_are_refused(terms, code):
    with raises(code):
        RootStructure(counts(), terms)


def test_wrong_arguments_are_refused():
    domain = counts()
    with raises("wrong-type", "domain"):
        RootStructure("ab", {})
    with raises("other-domain", "domain"):
        RootStructure(Domain.from_cardinalities([2]), {})
    for order in (0, -1, 1.0, True, "2"):
        with raises("out-of-range", "order"):
            RootStructure.complete(domain, order)
    with raises("over-budget", "order"):
        RootStructure.complete(Domain([Variable(f"v{i}", kind="count") for i in range(1000)]), 3)
    with raises("empty", "tuples"):
        RootStructure.simplified(domain, [()])
    for rows, code in (
        ([[0, 4]], "out-of-range"),
        ([[-1, 0]], "out-of-range"),
        ([[1, 1]], "repeated-name"),
        ([[0.5, 1]], "wrong-type"),
        ([[0, 1, 2]], "wrong-shape"),
        ([0, 1], "wrong-shape"),
    ):
        with raises(code):
            RootStructure.from_positions(domain, {(2, 2): rows})
