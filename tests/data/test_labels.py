"""One function makes labels: the same value has the same label whatever holds it.

The oracle is written down by hand for every value: the text that a person would write for it.
"""

import datetime as dt
import uuid
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from pyro_hoim.data.encoding import code_reader, encode_column, label_of, labels_of_values, level_order, levels_of
from pyro_hoim.errors import InputError
from pyro_hoim.schema import Variable
from pyro_hoim.testing import raises

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
