"""Data that would be changed in silence: masks, values of several types in a column, cells that are no labels."""

import datetime as dt
import warnings
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
import torch

from pyro_hoim import Domain, Observations, Variable
from pyro_hoim.data import CountTable, find_bins
from pyro_hoim.data.frames import as_observations
from pyro_hoim.errors import DataWarning, InputError, InputTypeError, MissingDataError

DOMAIN = Domain.from_cardinalities({"a": 2, "b": 2})
MASKED = np.ma.array([[1, 0], [0, 1]], mask=[[False, True], [False, False]])


def column(cells):
    """Observations of one column of any objects."""
    return Observations.from_pandas(pd.DataFrame({"c": pd.Series(cells, dtype=object)}))


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.uint16, np.uint32, np.int64])
def test_masked_codes_are_missing(kind):
    masked = MASKED.astype(kind)
    for read in (Observations(DOMAIN, masked), Observations.from_tensor(masked, DOMAIN)):
        assert read.codes.tolist() == [[1, -1], [0, 1]]
    assert Observations(DOMAIN, masked.data).codes.tolist() == [[1, 0], [0, 1]]


def test_masked_labels_are_missing():
    labels = np.ma.array([["x", "yes"], ["x", "no"]], mask=MASKED.mask)
    read = Observations.from_numpy(labels)
    assert read.domain["x1"].labels == ("no",) and read.codes.tolist() == [[0, -1], [0, 0]]
    assert Observations.from_numpy(MASKED).codes.tolist() == [[1, -1], [0, 0]]


@pytest.mark.parametrize(
    "read",
    [
        lambda: Observations.from_table(DOMAIN, MASKED),
        lambda: Observations.from_table(DOMAIN, weights=MASKED * 0.5),
        lambda: Observations.from_numpy(np.array([["x"], ["y"]]), weights=np.ma.array([1.0, 2.0], mask=[False, True])),
        lambda: Observations(DOMAIN, torch.zeros((2, 2), dtype=torch.long), np.ma.array([1, 2], mask=[False, True])),
        lambda: CountTable.from_matrix(MASKED),
        lambda: CountTable(Domain([]), np.ma.array(np.zeros((1, 1)), mask=True)),
    ],
)
def test_masked_counts_and_numbers_are_refused(read):
    with pytest.raises(MissingDataError, match=r"1 of . cells of the array are masked"):
        read()


def test_a_mask_that_hides_nothing_changes_nothing():
    plain = np.ma.array(MASKED.data, mask=False)
    assert CountTable.from_matrix(plain).to_array().tolist() == MASKED.data.tolist()
    assert Observations.from_table(DOMAIN, plain).counts.tolist() == [1.0, 0.0, 0.0, 1.0]


@pytest.mark.parametrize(
    ("cells", "named"),
    [
        ([1, "1", 2], "1 and '1'"),
        ([1, "1", 1.0, True], "True and 1"),
        ([True, 1, 2], "True and 1"),
        ([2.0, 0.0, np.bool_(False)], "False and 0.0"),
        (["True", True], "'True' and True"),
        ([Decimal("0.1"), 0.1], r"Decimal\('0.1'\) and 0.1"),
        ([dt.date(2020, 1, 1), "2020-01-01"], r"datetime.date\(2020, 1, 1\) and '2020-01-01'"),
        ([pd.Timestamp("2020-01-01"), "2020-01-01"], r"Timestamp\('2020-01-01 00:00:00'\) and '2020-01-01'"),
    ],
)
def test_values_of_two_types_that_would_become_one_level_are_refused(cells, named):
    with pytest.raises(InputError, match=f"column 'c': {named} are of two types and would become one level") as told:
        column(cells)
    assert told.value.code == "conflict"


def test_categories_of_two_types_are_refused():
    frame = pd.DataFrame({"c": pd.Categorical([1, "1"], categories=[1, "1"])})
    with pytest.raises(InputError, match="1 and '1' are of two types"):
        Observations.from_pandas(frame)


@pytest.mark.filterwarnings("ignore:levels like others")
@pytest.mark.parametrize(
    ("cells", "labels", "codes"),
    [
        ([1, 1.0, 2], ("1", "2"), [0, 0, 1]),
        ([Decimal("1.0"), 1, Decimal("2.50")], ("1", "2.5"), [0, 0, 1]),
        ([1, "one", True], None, None),
        ([2, "one", True], ("2", "True", "one"), [0, 2, 1]),
        ([float("nan"), "nan", None], ("nan",), [-1, 0, -1]),
        ([None, "", "a"], ("a",), [-1, -1, 0]),
        ([2**53, 2**53 + 1, 10**400], (str(2**53), str(2**53 + 1), str(10**400)), [0, 1, 2]),
    ],
)
def test_values_that_stay_apart_or_are_the_same(cells, labels, codes):
    if labels is None:
        with pytest.raises(InputError, match="True and 1"):
            column(cells)
        return
    read = column(cells)
    assert read.domain["c"].labels == labels and read.codes[:, 0].tolist() == codes


def test_a_known_variable_reads_one_meaning_in_several_types():
    frame = pd.DataFrame({"c": pd.Series([1, "1", 1.0, True, Decimal(1)], dtype=object)})
    known = as_observations(frame, domain=Domain.from_labels({"c": ["0", "1"]}))
    assert known.codes[:, 0].tolist() == [1, 1, 1, 1, 1]
    with pytest.raises(InputError, match="True and 1 are of two types"):
        as_observations(frame, domain=Domain.from_labels({"c": ["1", "True"]}))


def test_whole_numbers_beyond_float64_are_told_apart_by_a_known_variable():
    domain = Domain.from_labels({"c": [str(2**53), "0"]})
    with pytest.raises(InputError, match=str(2**53 + 1)):
        as_observations(pd.DataFrame({"c": [2**53 + 1, 0]}), domain=domain)


@pytest.mark.parametrize("cell", [[1], (1,), {1: 2}, frozenset({1}), np.array([1]), b"a", bytearray(b"a"), 1j])
def test_cells_that_are_no_labels_are_refused_with_their_column(cell):
    with pytest.raises(
        InputTypeError, match=r"row 1 \(counted from 0\), column 'c': expected text, numbers, booleans or categories"
    ):
        column(["x", cell, cell])


@pytest.mark.parametrize(
    "cells",
    [
        pd.to_datetime(["2020-01-01", "2020-01-02"]),
        pd.to_timedelta([1, 2], unit="D"),
        pd.period_range("2020-01", periods=2, freq="M"),
        np.array([1j, 2]),
    ],
)
def test_dates_durations_and_complex_numbers_are_no_counts(cells):
    frame = pd.DataFrame({"a": [1, 2], "count": cells})
    with pytest.raises(InputTypeError, match=r"column 'count': expected .*numbers"):
        Observations.from_pandas(frame)
    with pytest.raises(InputTypeError, match=r"column 'count': expected .*numbers"):
        CountTable.from_pandas(frame, kind="real", count=None)


@pytest.mark.parametrize("pair", [("\u00e9", "e\u0301"), ("a", "a "), (" a", "a"), ("No", "no")])
def test_labels_and_names_that_look_alike_are_told(pair):
    with pytest.warns(DataWarning, match="column 'c': .* look alike and are kept apart"):
        assert len(column(list(pair)).domain["c"].labels) == 2
    with pytest.warns(DataWarning, match="names of the frame: .* look alike"):
        Observations.from_pandas(pd.DataFrame([[1, 2]], columns=list(pair)))


def test_single_letters_in_two_cases_are_symbols():
    with warnings.catch_warnings(action="error"):
        assert column(["A", "a", "A"]).domain["c"].labels == ("A", "a")


def test_text_of_missing_cells_in_an_array_is_told():
    with pytest.warns(DataWarning, match="levels like others are 'nan' of 'x0'"):
        read = Observations.from_numpy(np.array([["a"], [np.nan]]))
    assert read.domain["x0"].labels == ("a", "nan")
    assert Observations.from_numpy(np.array([["a"], [np.nan]]), missing_values=("", "nan")).num_missing_cells == 1
    assert Observations.from_numpy([["a", 1], [None, 2]]).codes.tolist() == [[0, 0], [-1, 1]]


def test_names_of_a_frame_are_not_lost():
    with pytest.raises(InputTypeError, match=r"use Observations.from_pandas"):
        Observations.from_numpy(pd.DataFrame({"u": ["x"]}))


def test_tensors_with_a_gradient_or_of_half_precision_are_counts():
    labels = np.array([["x"], ["y"]])
    for weights in (torch.ones(2, requires_grad=True), torch.ones(2, dtype=torch.bfloat16)):
        assert Observations.from_numpy(labels, weights=weights).counts.tolist() == [1.0, 1.0]
        assert CountTable.from_matrix(weights.reshape(1, 2)).to_array().tolist() == [[1.0, 1.0]]


def test_labels_are_plain_text():
    read = Observations.from_numpy(np.array([["x"], ["y"]]))
    assert {type(label) for label in read.domain["x0"].labels} == {str}


def test_arrays_among_numbers_are_refused():
    with pytest.raises(InputError, match="column 'a': expected a number"):
        CountTable.from_pandas(pd.DataFrame({"a": [np.zeros(2)]}))


@pytest.mark.parametrize(
    "read",
    [
        lambda: column([10**5000, 1]),
        lambda: Observations.from_table(DOMAIN, [[10**400, 1], [1, 1]]),
        lambda: Observations.from_table(DOMAIN, [[1, 2], [3]]),
        lambda: Observations(DOMAIN, None),
    ],
)
def test_numbers_without_a_float_and_codes_that_are_none_are_refused(read):
    with pytest.raises((InputError, InputTypeError)):
        read()


@pytest.mark.parametrize("cell", [str, "\ud800", [1], {}, "x"])
def test_cells_that_are_no_numbers_are_refused_in_one_line(cell):
    frame = pd.DataFrame({"a": [0, 1], "b": pd.Series([2, cell], dtype=object)})
    for kind in ("count", "real"):
        with pytest.raises(InputError, match=r"row 1 .*, column 'b': expected a number, received ") as caught:
            CountTable.from_pandas(frame, kind=kind)
        assert "\n" not in str(caught.value) and str(caught.value).encode()


def test_numbers_of_categories_are_read_and_their_gaps_are_counted():
    frame = pd.DataFrame({"a": [0, 1], "b": pd.Categorical([2, 3])})
    assert CountTable.from_pandas(frame).to_array().tolist() == [[0, 2], [1, 3]]
    with pytest.raises(MissingDataError, match="1 empty cell in column 'b'"):
        CountTable.from_pandas(frame.assign(b=pd.Categorical([2, None])))
    with pytest.raises(InputError, match="column 'b': expected a number, received 'x'"):
        CountTable.from_pandas(frame.assign(b=pd.Categorical(["2", "x"])))


def test_halves_of_surrogate_pairs_are_neither_names_nor_labels():
    for broken in (lambda: Variable("\ud800"), lambda: Variable("a", ("x", "\udfff")), lambda: column(["x", "\ud800"])):
        with pytest.raises(InputError, match="names and labels that UTF-8 can hold") as caught:
            broken()
        assert str(caught.value).encode()
    assert Variable("\U0001f600", ("\u00fc",)).cardinality == 1
    with pytest.raises(InputError, match="expected a number in column"):
        find_bins([1, 2, 3], "edges:\ud800")
