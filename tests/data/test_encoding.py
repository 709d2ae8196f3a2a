"""Values to labels, labels to codes, numbers to counts."""

import datetime as dt
import math
import uuid
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from pyro_hoim.data.encoding import (
    code_reader,
    encode_column,
    label_of,
    labels_of_values,
    level_order,
    levels_of,
    parse_counts,
    select_columns,
)
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
    assert select(None) == select(3) == ["a", "b", "d"] and select(2) == ["a", "b"] and select(["d", "a"]) == ["d", "a"]


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


# One function makes labels: the same value has the same label whatever holds it.
#
# The oracle is written down by hand for every value: the text that a person would write for it.

DAY, NOON = dt.datetime(2020, 1, 3), dt.datetime(2020, 1, 3, 12, 0, 0, 500)
ZONE = dt.datetime(2020, 1, 3, tzinfo=dt.UTC)
ID = uuid.UUID(int=3)


@pytest.mark.parametrize(
    ("label", "values"),
    [
        ("2020-01-03", [DAY, DAY.date(), pd.Timestamp(DAY), np.datetime64(DAY, "D"), np.datetime64(DAY, "ns")]),
        ("2020-01-03 12:00:00.000500", [NOON, pd.Timestamp(NOON), np.datetime64(NOON)]),
        ("2020-01-03 00:00:00+00:00", [ZONE, pd.Timestamp(ZONE)]),
        ("9999-12-31", [dt.date(9999, 12, 31), np.datetime64("9999-12-31")]),
        ("12:30:00", [dt.time(12, 30)]),
        ("2020-10", [pd.Period("2020-10", "M")]),
        ("1 days 00:00:01", [dt.timedelta(1, 1), pd.Timedelta(dt.timedelta(1, 1)), np.timedelta64(86401, "s")]),
        ("0.1", [0.1, np.float64(0.1), np.float32(0.1), np.float16(0.1), Decimal("0.10"), "0.1", b"0.1"]),
        ("-3", [-3, np.int8(-3), -3.0, np.float32(-3), Decimal("-3.00"), "-3"]),
        ("0", [0, -0.0, np.float16(-0.0), Decimal("-0")]),
        ("1000000000000001", [10**15 + 1, float(10**15 + 1), np.int64(10**15 + 1)]),
        ("999000031000000106", [999000031000000106, np.uint64(999000031000000106)]),
        ("1e+300", [1e300]),
        ("True", [True, np.True_]),
        (str(ID), [ID]),
        ("(0, 3]", [pd.Interval(0, 3)]),
        (" x ", [" x ", np.str_(" x ")]),
    ],
)
def test_a_value_has_one_label_whatever_its_type(label, values):
    assert [label_of(value) for value in values] == [label] * len(values)
    known = code_reader(Variable("v", ("other", label)))
    assert [known(value) for value in values] == [1] * len(values)


@pytest.mark.parametrize(
    ("kind", "labels", "values"),
    [
        (pa.float32(), ["0.1", "2"], [0.1, 2.0]),
        (pa.float16(), ["0.1", "2"], [np.float16(0.1), np.float16(2)]),
        (pa.timestamp("s"), ["2020-01-03", "2020-01-03 12:00:00"], [DAY, DAY.replace(hour=12)]),
        (pa.duration("s"), ["0 days 00:00:01", "0 days 00:00:10"], [dt.timedelta(0, 1), dt.timedelta(0, 10)]),
        (pa.date32(), ["2020-01-03", "2020-01-04"], [DAY.date(), dt.date(2020, 1, 4)]),
        (pa.int64(), ["5", "999000031000000106"], [5, 999000031000000106]),
        (pa.bool_(), ["False", "True"], [False, True]),
        (pa.decimal128(3, 2), ["0.5", "2"], [Decimal("0.50"), Decimal("2.00")]),
    ],
    ids=str,
)
def test_columns_of_numpy_of_pandas_and_of_arrow_have_the_same_labels(kind, labels, values):
    array = pa.array(values, kind)
    plain = array.to_pandas()
    held = [pd.Series(pd.arrays.ArrowExtensionArray(array)), plain]
    held += [] if kind == pa.float16() else [plain.astype("category")]  # pandas has no index of them
    for column in held:
        assert encode_column("v", column, where=str)[0].labels == tuple(labels), column.dtype
    assert labels_of_values("v", array) == labels
    assert labels_of_values("v", [*values, None, np.nan, pd.NaT, pd.NA])[2:] == [""] * 4


def test_extension_types_of_pandas_are_their_values():
    periods = pa.array(pd.period_range("2020-10", periods=2, freq="M"))
    spans = pa.array(pd.arrays.IntervalArray.from_breaks([0, 3, 6]))
    assert labels_of_values("v", periods) == ["2020-10", "2020-11"]
    assert labels_of_values("v", spans) == ["(0, 3]", "(3, 6]"]


def test_times_in_other_forms_are_read_where_they_are_one_level():
    known = code_reader(Variable("v", ("2020-01-03", "2020-01-03 12:00:00", "2020-01-03 12:00:00+00:00")))
    texts = ["2020-01-03T00:00:00.000", "2020-01-03T12:00:00", "2020-01-03 12:00:00.000000000", "2020-01-03T12:00:00Z"]
    assert [known(text) for text in texts] == [0, 1, 1, 2]
    assert [known(text) for text in ("2020-01-04T00:00:00", "2020-13-03T12:00:00", "20200103")] == [None] * 3


@pytest.mark.parametrize(
    ("texts", "labels"),  # as polars, Arrow, R and Java write them in CSV files
    [
        (["1e-7", "0.1", "1e+16"], ["1e-07", "0.1", "1e+16"]),
        (["1e+05", "2.5e+05"], ["100000", "250000"]),
        (["2020-01-04T00:00:00.000000", "2020-01-03T12:30:00.000000"], ["2020-01-03 12:30:00", "2020-01-04"]),
        (["2020-01-03T00:00:00.000000+0000"], ["2020-01-03 00:00:00+00:00"]),
        (["2020-01-03 00:00:00.000000Z"], ["2020-01-03 00:00:00+00:00"]),
        (["12:30:00.000000000", "01:00:00.000500000"], ["01:00:00.000500", "12:30:00"]),
        *[  # control: codes, and what people write, stay as they stand
            ([text, "2"], ["2", text])
            for text in ("1e5", "1.50e-7", "1e-700", "1e+999", "2020-01-03 10:00", "12:30:00.5", "25e-7")
        ],
    ],
)
def test_numbers_and_times_of_text_have_the_labels_of_their_values(texts, labels):
    assert levels_of(texts) == sorted(labels, key=level_order)
    known = code_reader(Variable("v", (*labels, "other")))
    assert sorted(map(str, map(known, texts))) == [*map(str, range(len(labels)))]


def test_what_is_no_label_is_refused():
    for value, code in ((np.float32("inf"), "not-finite"), (10**2000, "not-finite"), (b"\xff", "wrong-encoding")):
        with raises(code, "column 'v'"):
            labels_of_values("column 'v'", [value])
    with pytest.raises(InputError, match="expected a finite value, received -Infinity"):
        label_of(Decimal("-inf"))
