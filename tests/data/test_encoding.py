"""Values to labels, labels to codes, numbers to counts."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, strategies as st

from pyro_hoim.data.encoding import encode_column, label_of, level_order, parse_counts, select_columns
from pyro_hoim.errors import InputError, UnknownNameError
from pyro_hoim.schema import Variable
from pyro_hoim.testing import raises


def where(row):
    return f"row {row}"


def encode(values, **options):
    variable, codes = encode_column("v", values, where=where, **options)
    return variable, codes.tolist()


@given(st.lists(st.sampled_from(["a", "b", "10", "9", "?", "", "é"]), min_size=1))
def test_decoding_gives_the_labels_back(values):
    if not any(values):
        with pytest.raises(InputError, match="missing cells only"):
            encode(values)
        return
    variable, codes = encode(values)
    assert [variable.labels[c] if c >= 0 else "" for c in codes] == values
    assert set(variable.labels) == set(values) - {""}


@pytest.mark.parametrize(
    "values",
    [
        [3, 1, 20],
        np.array([3.0, 1.0, 20.0]),
        pd.Series([3, 1, 20], dtype="Int64"),
        np.array([3, 1, 20], dtype=np.uint8),
        ["3", "1", "20"],
        pd.Series(["3", "1", "20"], dtype="string"),
    ],
)
def test_numbers_are_in_numeric_order_whatever_their_type(values):
    variable, codes = encode(values)
    assert variable.labels == ("1", "3", "20")
    assert codes == [1, 0, 2]
    assert variable.kind == "nominal"


@pytest.mark.parametrize(
    "values", [["b", None, "a"], [2.0, math.nan, 1.0], pd.Series([2, None, 1], dtype="Int64"), pd.Series([2, None, 1])]
)
def test_none_and_nan_are_missing(values):
    assert encode(values)[1] == [1, -1, 0]


def test_missing_values_are_a_choice():
    assert encode(["?", "", "a"])[0].labels == ("?", "a")
    variable, codes = encode(["?", "", "a"], missing_values=("", "?"))
    assert (variable.labels, codes) == (("a",), [-1, -1, 0])
    variable, codes = encode(["?", "", "a"], missing_values=())
    assert (variable.labels, codes) == (("", "?", "a"), [1, 0, 2])


def test_categories_keep_their_order_and_unused_levels():
    series = pd.Series(pd.Categorical(["lo", "hi", None], categories=["mid", "lo", "hi"], ordered=True))
    variable, codes = encode(series)
    assert variable == Variable("v", ("mid", "lo", "hi"), "ordinal")
    assert codes == [1, 2, -1]
    assert encode(series.cat.as_unordered())[0].kind == "nominal"


def test_unused_category_outside_a_known_domain_is_no_error():
    series = pd.Series(pd.Categorical(["a", "b"], categories=["a", "b", "c"]))
    known = Variable("v", ("b", "a"))
    assert encode(series, variable=known) == (known, [1, 0])


def test_one_number_of_two_types_is_one_level_and_its_text_is_refused():
    assert encode(np.array([1, 1.0], dtype=object)) == (Variable("v", ("1",)), [0, 0])
    with pytest.raises(InputError, match="1 and '1' are of two types"):
        encode(np.array([1, "1", 1.0], dtype=object))


def test_booleans():
    assert encode(np.array([True, False])) == (Variable("v", ("False", "True")), [1, 0])


def test_unknown_label_names_row_column_and_closest():
    known = Variable("v", ("young", "old"))
    assert encode(["old", "", "young"], variable=known)[1] == [1, -1, 0]
    with pytest.raises(UnknownNameError, match=r"row 2, column 'v': unknown label 'yuong'; did you mean 'young'"):
        encode(["old", "young", "yuong", "yuong"], variable=known)


def test_infinite_value():
    with pytest.raises(InputError, match=r"column 'v': expected a finite value, received -inf"):
        encode([1.0, -math.inf])


def test_labels_and_order():
    assert [label_of(v) for v in (1e300, 0.1, np.float32(0.5), np.int8(-3))] == ["1e+300", "0.1", "0.5", "-3"]
    assert sorted(["b", "2", "inf", "-1.5", "10", "nan"], key=level_order) == ["-1.5", "2", "10", "b", "inf", "nan"]


@pytest.mark.parametrize("value", ["", "x", "nan", "inf", "-1", math.nan, math.inf, -1, -0.5, None])
@pytest.mark.parametrize("fractional", [True, False])
def test_bad_counts(value, fractional):
    with raises("out-of-range", "row 1, column 'count'"):
        parse_counts([1, value], name="column 'count'", where=where, fractional=fractional)


@pytest.mark.parametrize("values", [[1, 2.0**53 - 1], [1e308, 1e308], [0, 10**30], ["1", "9e15", "9e15"]])
@pytest.mark.parametrize("fractional", [True, False])
def test_totals_are_bounded(values, fractional):
    with raises("out-of-range", "column 'count'"):
        parse_counts(values, name="column 'count'", where=where, fractional=fractional)
    assert parse_counts(["0", "9007199254740991"], name="c", where=where, fractional=fractional)[1] == 2**53 - 1


def test_complex_counts_are_refused():
    with raises("wrong-type", "column 'count'"):
        parse_counts([1, 1 + 2j], name="column 'count'", where=where, fractional=False)


def test_fractional_counts_only_as_weights():
    assert parse_counts(["1", "2.5", "1e3"], name="c", where=where, fractional=True).tolist() == [1, 2.5, 1000]
    assert parse_counts(["1", "2.0", "0"], name="c", where=where, fractional=False).tolist() == [1, 2, 0]
    with pytest.raises(
        InputError, match=r"row 1, c: expected a non-negative whole number, received '2\.5'; .*weights="
    ):
        parse_counts(["1", "2.5"], name="c", where=where, fractional=False)


def select(columns):
    return select_columns(["a", "b", "count", "d"], columns, exclude=("count",), source="t.csv")


def test_select_columns():
    assert select(None) == select(3) == ["a", "b", "d"]
    assert select(2) == ["a", "b"]
    assert select(["d", "a"]) == ["d", "a"]


@pytest.mark.parametrize(
    ("columns", "code"),
    [
        *((wrong, "out-of-range") for wrong in (0, 4, -1)),
        *((wrong, "wrong-type") for wrong in ("a", True, 1.5)),
        ([], "empty"),
        (["a", "a"], "repeated-name"),
        (["cuont"], "unknown-name"),
        (["a", "count"], "conflict"),
    ],
)
def test_columns_that_cannot_be_selected(columns, code):
    with raises(code):
        select(columns)
