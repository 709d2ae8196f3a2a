"""Data frames of pandas and polars read as rows, and labels given back as values of the caller's columns."""

import sys

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch

from pyro_hoim import CountTable, Domain, InputError, Observations, Variable
from pyro_hoim.data import bin_columns
from pyro_hoim.data.encoding import code_reader
from pyro_hoim.data.frames import as_counts, as_frame, as_observations, codes_of, is_frame, labels_like
from pyro_hoim.errors import InputTypeError, MissingDataError, UnknownNameError
from pyro_hoim.testing import raises

DOMAIN = Domain(
    [Variable("age", ("1", "2", "10"), "ordinal"), Variable("smoke", ("no", "yes")), Variable("wet", ("False", "True"))]
)
CODES = [[0, 1, 1], [2, -1, 0], [-1, 0, -1]]
SPELLINGS = {
    "age": [
        [1, 10, None],
        ["1", "10", None],
        ["1.0", "10.0", ""],
        pd.array([1, 10, None], dtype="Int64"),
        pd.Categorical([1, 10, None], categories=[10, 1]),
        pd.array(["1", "10", None], dtype="string"),
        np.array([1.0, 10.0, np.nan], dtype=np.float32),
    ],
    "smoke": [["yes", None, "no"], ["yes", np.nan, "no"], ["yes", pd.NaT, "no"], ["yes", pd.NA, "no"]],
    "wet": [
        [True, False, None],
        pd.array([True, False, None], dtype="boolean"),
        ["True", "False", None],
        ["TRUE", "FALSE", ""],
        [1, 0, None],
        ["1", "0", pd.NA],
        pd.Categorical([True, False, None]),
    ],
}


def _frame(**columns):
    held = {name: spellings[0] for name, spellings in SPELLINGS.items()} | columns
    return pd.DataFrame(held)[["wet", "age", "smoke"]].assign(note=["a", "b", "c"])


@pytest.mark.parametrize(("name", "values"), [(n, v) for n, held in SPELLINGS.items() for v in held], ids=str)
def test_every_spelling_of_a_column_is_read_as_the_labels_of_the_model(name, values):
    frame = _frame(**{name: values})
    assert as_observations(frame, domain=DOMAIN).codes.tolist() == CODES
    renamed = frame.rename(columns={name: name + "s"})
    with raises(code="unknown-name", argument="data"):
        as_observations(renamed, domain=DOMAIN)
    found = as_observations(renamed, domain=DOMAIN, absent=(name,))
    assert (found.codes[:, DOMAIN.index(name)] == -1).all() and found.domain == DOMAIN


@pytest.mark.parametrize(
    ("labels", "value", "code"),
    [
        (("0", "1"), True, 1),
        (("true", "false"), False, 1),
        (("1.5", "2.5"), 2.5, 1),
        (("1.0", "2.0"), 2, 1),
        (("1", "1.0"), 1.0, 0),  # the label comes first
        (("01", "02"), 1, None),  # digits that are a name, not a number
        (("1", "2"), "01", None),
        (("1", "True"), "1.0", None),  # two labels of one meaning
        (("no", "yes"), True, None),
        (("a", "b"), float("nan"), None),
    ],
)
def test_values_and_labels_of_one_meaning(labels, value, code):
    assert code_reader(Variable("v", labels))(value) == code


def test_an_unknown_label_ends_in_one_error_with_the_nearest():
    with pytest.raises(UnknownNameError, match=r"row 1 .*, column 'smoke': unknown label 'yess'; did you mean 'yes'"):
        as_observations(_frame(smoke=["yes", "yess", "no"]), domain=DOMAIN)
    with pytest.raises(
        UnknownNameError, match=r"rows: the data frame lacks column 'smoke' of the model; did you mean 'smokes'"
    ):
        as_observations(_frame().rename(columns={"smoke": "smokes"}), domain=DOMAIN, argument="rows")
    with pytest.raises(InputTypeError, match="column 'smoke': expected text, numbers, booleans or categories"):
        as_observations(_frame(smoke=[["a"], ["b"], ["c"]]), domain=DOMAIN)


def test_observations_and_tables_stay_what_they_are():
    rows = Observations(DOMAIN, torch.tensor(CODES))
    assert as_observations(rows) is rows and as_observations(rows, domain=Domain()) is rows
    table = CountTable.from_matrix([[1, 2]])
    assert as_counts(table) is table
    assert not is_frame(rows) and not is_frame(table) and not is_frame([[1]]) and not is_frame(np.ones((1, 1)))
    for call, wrong in ((as_observations, table), (as_counts, rows), (as_observations, [[1]]), (as_counts, None)):
        with raises(code="wrong-type", argument="data"):
            call(wrong)


def test_counts_and_weights_are_columns():
    frame = _frame().assign(count=[1, 2, 3], w=[0.5, 0.25, 1.0])
    assert as_observations(frame, domain=DOMAIN).counts.tolist() == [1, 2, 3]
    assert as_observations(frame, domain=DOMAIN, count=None, weights="w").counts.tolist() == [0.5, 0.25, 1.0]
    assert as_observations(frame, domain=DOMAIN, count=None).counts.tolist() == [1, 1, 1]
    domain = Domain([Variable("count", ("1", "2", "3"))])
    assert as_observations(frame, domain=domain).codes.tolist() == [[0], [1], [2]]
    with raises(code="conflict"):
        as_observations(frame, domain=DOMAIN, weights="w")
    with raises(code="unknown-name"):
        as_observations(frame, count="n")


def test_frames_of_polars_are_read_like_those_of_pandas(monkeypatch):
    held = {"age": [1, 10, None], "smoke": ["yes", None, "no"], "wet": [True, False, None], "note": ["a", "b", "c"]}
    frame = pl.DataFrame(held)
    assert is_frame(frame) and as_observations(frame, domain=DOMAIN).codes.tolist() == CODES
    frame = frame.with_columns(smoke=pl.Series(held["smoke"], dtype=pl.Enum(["no", "yes"])))
    read = as_observations(frame, columns=["age", "smoke", "wet"])
    assert read.domain["smoke"].labels == ("no", "yes") and read.domain["wet"].labels == ("False", "True")
    assert read.codes.tolist() == [[0, 1, 1], [1, -1, 0], [-1, 0, -1]]
    numbers = as_counts(pl.DataFrame({"a": [1, 0], "b": [2, 3]}))
    assert numbers.to_array().tolist() == [[1, 2], [0, 3]]
    kept = pd.DataFrame({"a": [1]})
    assert as_frame(kept) is kept
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(
        InputError, match=r"a data frame of polars is read through pyarrow.*pip install 'pyro-hoim\[parquet\]'"
    ):
        as_observations(frame)


def test_numbers_of_a_known_model():
    domain = Domain(Variable(name, kind="count") for name in ("a", "b"))
    frame = pd.DataFrame({"note": ["x", "y"], "b": [1, 0], "a": pd.array([2, 5], dtype="Int64")}, index=[7, 9])
    found = as_counts(frame, domain=domain)
    assert found.domain == domain and found.to_array().tolist() == [[2, 1], [5, 0]]
    assert as_counts(frame[["a"]], domain=domain, absent=("b",)).to_array().tolist() == [[2, 0], [5, 0]]
    with raises(code="unknown-name", argument="data"):
        as_counts(frame[["a"]], domain=domain)
    with pytest.raises(MissingDataError):
        as_counts(frame.assign(a=[1, None]), domain=domain)
    with raises(code="other-domain"):
        as_counts(frame, domain=DOMAIN)


def test_codes_of_labels_in_any_spelling():
    assert codes_of({"age": 10, "wet": True, "smoke": "no"}, DOMAIN, "given") == {"age": 2, "wet": 1, "smoke": 0}
    for bad, code in (({"age": 3}, "unknown-name"), ({"hat": 1}, "unknown-name"), ({"age": None}, "invalid-value")):
        with raises(code=code):
            codes_of(bad, DOMAIN, "given")
    with pytest.raises(TypeError, match="given, column 'age': expected one label"):
        codes_of({"age": [1, 2]}, DOMAIN, "given")


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pd.Series([1, 2, 1]), pd.Series([1, 2, 10])),
        (pd.Series([1.0, 2.0, np.nan]), pd.Series([1.0, 2.0, 10.0])),
        (pd.Series([1, None, 2], dtype="Int64"), pd.Series([1, 2, 10], dtype="Int64")),
        (pd.Series(["1", "2", "2"]), pd.Series(["1", "2", "10"])),
        (pd.Series(["1.0", "2", ""], dtype=object), pd.Series(["1.0", "2", "10"], dtype=object)),
        (
            pd.Series(pd.Categorical([1, 2, None], categories=[2, 10, 1, 77], ordered=True)),
            pd.Series(pd.Categorical([1, 2, 10], categories=[2, 10, 1, 77], ordered=True)),
        ),
        (pd.Series(pd.Categorical(["1", "2", "2"])), pd.Series(pd.Categorical(["1", "2", "10"], ["1", "2", "10"]))),
    ],
    ids=["int", "float", "Int64", "str", "object", "categories", "new category"],
)
def test_labels_come_back_as_values_of_the_column(column, expected):
    found = labels_like([0, 1, 2], DOMAIN["age"], column)
    pd.testing.assert_series_equal(found, expected)
    again = code_reader(DOMAIN["age"])
    assert [again(value) for value in found] == [0, 1, 2]


def test_missing_labels_keep_the_type_where_it_can_be():
    assert labels_like([0, -1], DOMAIN["age"], pd.Series([1, 2])).dtype == "Int64"
    assert labels_like([0, -1], DOMAIN["wet"], pd.Series([True, False])).dtype == "boolean"
    found = labels_like([0, -1, 1], DOMAIN["wet"], pd.Series([True, True]))
    assert found.tolist() == [False, pd.NA, True]
    assert labels_like([1, 0], DOMAIN["smoke"], pd.Series([1, 0]).head(0)).tolist() == ["yes", "no"]  # no number
    pd.testing.assert_series_equal(labels_like([1, 0], DOMAIN["wet"], pd.Series([1, 1])), pd.Series([1, 0]))


def test_lists_of_polars_and_repeated_columns_to_cut_are_refused_in_one_line():
    frame = pl.DataFrame({"a": ["x", "y"], "c": [["y", "z"], ["x"]]})
    with raises("wrong-type", "data column 'c'"):
        as_observations(frame)
    twice = pd.DataFrame([[1, 2], [3, 4]], columns=["a", "a"])
    with raises("repeated-name", "frame columns"):
        bin_columns(twice, {"a": "quantile:2"})
