"""Variables and domains."""

import itertools
import json
import pickle

import pytest
from hypothesis import given, strategies as st

from pyro_hoim.errors import InputError, InputTypeError, UnknownNameError
from pyro_hoim.schema import Domain, Variable

DOMAIN = Domain(
    [Variable("smoke", ("y", "n")), Variable("age", ("young", "old", "older"), "ordinal"), Variable("one", ("x",))]
)


def test_sizes_and_order():
    assert (DOMAIN.names, DOMAIN.cardinalities) == (("smoke", "age", "one"), (2, 3, 1))
    assert DOMAIN.num_states == len(list(itertools.product(*(v.labels for v in DOMAIN)))) == 6 and len(DOMAIN) == 3
    assert "age" in DOMAIN
    assert "Age" not in DOMAIN
    assert (DOMAIN["age"].code("old"), DOMAIN.indices(("one", "smoke"))) == (1, (2, 0))


def test_empty_domain_has_one_state():
    assert (Domain().num_states, Domain()) == (1, Domain([]))


def test_num_states_is_exact_beyond_machine_integers():
    assert Domain.from_cardinalities([10] * 30).num_states == 10**30


def test_project_keeps_schema_order():
    assert DOMAIN.project(["one", "smoke"]).names == ("smoke", "one")


def test_equality_hash_and_copies():
    copy = pickle.loads(pickle.dumps(DOMAIN))
    assert copy == DOMAIN
    assert hash(copy) == hash(DOMAIN)
    assert DOMAIN.project(["age", "smoke"]) != DOMAIN


@given(st.lists(st.integers(1, 5), max_size=5), st.sampled_from(["nominal", "ordinal"]))
def test_json_round_trip(cardinalities, kind):
    domain = Domain(Variable(v.name, v.labels, kind, "cm") for v in Domain.from_cardinalities(cardinalities))
    assert Domain.from_json(json.loads(json.dumps(domain.to_json()))) == domain


def test_json_round_trip_of_infinite_kinds():
    domain = Domain([Variable("n", kind="count"), Variable("r", kind="real", unit="m")])
    assert Domain.from_json(domain.to_json()) == domain
    with pytest.raises(InputError, match="'n' is of kind 'count' and has no cardinality"):
        _ = domain.cardinalities


def test_encode_state():
    assert DOMAIN.encode_state({"age": "older", "smoke": 1}) == {"age": 2, "smoke": 1}
    with pytest.raises(UnknownNameError, match="unknown label 'yuong'; did you mean 'young'"):
        DOMAIN.encode_state({"age": "yuong"})
    for wrong in (3, -1, True):
        with pytest.raises(InputError, match="expected a label or a code from 0 to 2"):
            DOMAIN.encode_state({"age": wrong})
    for wrong in (None, 3, "age", [("age", 1)]):
        with pytest.raises(InputTypeError, match="state: expected a mapping from names to labels or codes"):
            DOMAIN.encode_state(wrong)


def test_unknown_and_repeated_names():
    with pytest.raises(UnknownNameError, match="unknown variable 'smok'; did you mean 'smoke'"):
        DOMAIN.index("smok")
    with pytest.raises(UnknownNameError, match="unknown variable 'smok'"):
        DOMAIN["smok"]
    with pytest.raises(InputError, match="'age' is repeated"):
        DOMAIN.indices(("age", "age"))
    with pytest.raises(InputError, match="'a' is repeated"):
        Domain([Variable("a", ("0",)), Variable("a", ("1",))])


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (("",), InputError, "non-empty string"),
        (("a", ("x", "x")), InputError, "'x' is repeated"),
        (("a", ("x",), "other"), InputError, "kind: expected '"),
        (("a", ()), InputError, "needs at least one label"),
        (("a", ("x",), "count"), InputError, "takes no labels"),
        (("a", "xy"), InputTypeError, "received a string"),
        (("a", (1, 2)), InputTypeError, "expected strings, received 1"),
    ],
)
def test_bad_variables(arguments, error, message):
    with pytest.raises(error, match=message):
        Variable(*arguments)


def test_bad_domain():
    with pytest.raises(InputTypeError, match="expected Variable objects"):
        Domain(["a"])


def test_codes_may_be_any_whole_number():
    import numpy as np
    import torch

    domain = Domain.from_labels({"a": ("x", "y"), "b": ("0", "1", "2")})
    for value in (2, np.int64(2), torch.tensor(2), "2"):
        assert domain.encode_state({"b": value}) == {"b": 2}
    for value in (3, -1, True, 1.0, None, np.float64(1), torch.tensor([0, 1])):
        with pytest.raises(InputError, match="expected a label or a code from 0 to 2"):
            domain.encode_state({"b": value})


def test_cardinalities_must_be_whole():
    with pytest.raises(InputTypeError, match=r"cardinality of 'a': expected a whole number, received 2\.5"):
        Domain.from_cardinalities({"a": 2.5})
    with pytest.raises(InputError, match="at least one label"):
        Domain.from_cardinalities({"a": 0})


@pytest.mark.parametrize("value", ["x", 3, [{"nam": 1}], [3], [{"name": "a"}]])
def test_wrong_json_is_refused(value):
    with pytest.raises(InputError, match="expected"):
        Domain.from_json(value)
