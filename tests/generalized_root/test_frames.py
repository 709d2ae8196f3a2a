"""Columns of data frames as variables of root models: the rules of the choice, and the way there and back."""

import json
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from pyro_hoim.errors import InputError, InputTypeError, MissingDataError, UnknownNameError
from pyro_hoim.generalized_root import (
    ExponentialFamily,
    GaussianFamily,
    IndicatorFamily,
    NodeFamily,
    PoissonFamily,
    RootColumns,
    TruncatedPoissonFamily,
    choose_families,
)

_N = 400
_RNG = np.random.default_rng(5)
_CYCLE = np.arange(_N)

# What a statistician would take every column for; None is a question, a text the reason of leaving it out.
_BINARY, _POISSON, _EXPONENTIAL, _GAUSSIAN = (
    TruncatedPoissonFamily(1),
    PoissonFamily(),
    ExponentialFamily(),
    GaussianFamily(),
)
_CATEGORY = IndicatorFamily("x")
_TABLE: dict[str, tuple[Any, NodeFamily | str | None]] = {
    "bool": (_CYCLE % 3 == 0, _BINARY),
    "0/1": (_CYCLE % 2, _BINARY),
    "0/1 as text": ((_CYCLE % 2).astype(str), _BINARY),
    "-1/1": (2 * (_CYCLE % 2) - 1, _BINARY),
    "1/2 as floats": (1.0 + _CYCLE % 2, _BINARY),
    "yes/no": (np.where(_CYCLE % 5, "no", "yes"), _BINARY),
    "two categories": (pd.Categorical(np.where(_CYCLE % 5, "no", "yes")), _BINARY),
    "regions": (np.array(["north", "south", "west"])[_CYCLE % 3], _CATEGORY),
    "grades": (
        pd.Categorical(np.array(["low", "mid", "top"])[_CYCLE % 3], ["low", "mid", "top"], ordered=True),
        _CATEGORY,
    ),
    "categories of numbers": (pd.Categorical(_CYCLE % 5), _CATEGORY),
    "digits as text": ((_CYCLE % 5).astype(str), _CATEGORY),
    "50 towns": (np.array([f"town {i}" for i in _CYCLE % 50]), None),
    "codes 0..7": (_CYCLE % 8, None),
    "likert 1..5": (1 + _CYCLE % 5, None),
    "likert as floats": (1.0 + _CYCLE % 5, None),
    "likert -2..2": (_CYCLE % 5 - 2, None),
    "rating 0..10": (_CYCLE % 11, None),
    "years of 6": (2010 + _CYCLE % 6, None),
    "years of 60": (1960 + _CYCLE % 60, _GAUSSIAN),
    "doses": (np.array([0.5, 1.0, 2.0])[_CYCLE % 3], None),
    "zip codes": (_RNG.integers(1000, 99_999, _N), None),
    "percentages": (_RNG.integers(0, 101, _N), None),
    "shares": (_RNG.random(_N), _GAUSSIAN),
    "ages of adults": (np.clip(_RNG.normal(46, 16, _N), 18, 95).round().astype(int), _GAUSSIAN),
    "ages of all": (_RNG.integers(0, 90, _N), None),
    "counts": (_RNG.poisson(8.0, _N), _POISSON),
    "counts as floats": (_RNG.poisson(8.0, _N).astype(float), _POISSON),
    "skewed counts": (_RNG.negative_binomial(1, 0.1, _N), _POISSON),
    "few counts": (_RNG.poisson(1.0, _N), None),
    "huge counts": ((10 ** _RNG.uniform(1, 6, _N)).round(), None),
    "negative integers": (_RNG.integers(-50, 50, _N), _GAUSSIAN),
    "money": (_RNG.exponential(900.0, _N).round(2), _EXPONENTIAL),
    "narrow positive": (_RNG.normal(20.0, 3.0, _N), _GAUSSIAN),
    "real": (_RNG.normal(size=_N), _GAUSSIAN),
    "negative and skewed": (_RNG.exponential(size=_N) - 1.0, _GAUSSIAN),
    "constant": (np.ones(_N), "has one value"),
    "constant text": (np.full(_N, "a"), "has one value"),
    "identifiers": (np.array([f"p{i}" for i in _CYCLE]), "identifier"),
    "row numbers": (_CYCLE, "identifier"),
    "dates": (pd.date_range("2020-01-01", periods=_N), "dates"),
    "empty": (np.full(_N, np.nan), "missing cells only"),
}


@pytest.mark.parametrize("case", _TABLE)
def test_families_are_those_a_statistician_would_name(case: str) -> None:
    values, expected = _TABLE[case]
    frame = pd.DataFrame({"x": values, "beside": _CYCLE % 2})
    if expected is None:
        with pytest.raises(InputError, match=r"families: .*'x' .*such as \{'x': '") as caught:
            choose_families(frame)
        assert caught.value.code == "missing-part"
        return
    columns = choose_families(frame)
    if isinstance(expected, str):
        assert expected in columns.left_out["x"] and columns.names == ("beside",)
    else:
        assert columns["x"].family == expected


def test_one_error_names_all_columns_that_have_to_be_said_and_how() -> None:
    frame = pd.DataFrame({"region": _CYCLE % 4, "visits": _CYCLE % 9, "ill": _CYCLE % 2 == 0})
    with pytest.raises(InputError) as caught:
        choose_families(frame)
    text = str(caught.value)
    assert "'region' holds 4 different whole numbers from 0 to 3" in text and "'visits'" in text and "ill" not in text
    assert "such as {'region': 'category', 'visits': 'category'}" in text
    columns = choose_families(frame, {"region": "category", "visits": "bounded:8"})
    assert [column.family for column in columns.columns] == [
        IndicatorFamily("region"),
        TruncatedPoissonFamily(8),
        _BINARY,
    ]


def test_a_star_stands_for_all_columns_whose_values_do_not_say_it() -> None:
    frame = pd.DataFrame({"region": _CYCLE % 4, "visits": _CYCLE % 9, "ill": _CYCLE % 2 == 0, "cost": _CYCLE / 3})
    columns = choose_families(frame, {"*": "count", "region": "category"})
    assert [column.family for column in columns.columns] == [IndicatorFamily("region"), _POISSON, _BINARY, _GAUSSIAN]


@pytest.mark.parametrize(
    ("word", "family"),
    [
        ("bernoulli", None),
        ("category", _CATEGORY),
        ("count", _POISSON),
        ("poisson", _POISSON),
        ("bounded:9", TruncatedPoissonFamily(9)),
        ("positive", _EXPONENTIAL),
        ("exponential", _EXPONENTIAL),
        ("real", _GAUSSIAN),
        (GaussianFamily(), _GAUSSIAN),
        (IndicatorFamily("other"), _CATEGORY),
        ("ordinal", None),
        ("bounded:2", None),
    ],
)
def test_families_are_said_by_words_or_objects(word: Any, family: NodeFamily | None) -> None:
    frame = pd.DataFrame({"x": _CYCLE % 4})
    if family is None:
        with pytest.raises(InputError, match="'x'"):
            choose_families(frame, {"x": word})
    else:
        assert choose_families(frame, {"x": word})["x"].family == family


def test_a_value_outside_the_support_is_named_with_column_and_row() -> None:
    frame = pd.DataFrame({"x": [0.5, 2.0, -1.0, 3.0], "y": ["a", "b", "a", "b"]})
    with pytest.raises(InputError, match=r"row 2 \(counted from 0\), column 'x'.*received -1"):
        choose_families(frame, {"x": "positive"})
    with pytest.raises(InputError, match=r"column 'y'.*numbers for the poisson family.*'a'"):
        choose_families(frame, {"x": "real", "y": "count"})
    columns = choose_families(frame, {"x": "real"})
    with pytest.raises(UnknownNameError, match=r"row 1 \(counted from 0\), column 'y'.*'c'"):
        columns.encode(pd.DataFrame({"x": [0.0, 1.0], "y": ["a", "c"]}))
    with pytest.raises(InputError, match=r"row 1 \(counted from 0\), column 'x'.*'much'"):
        columns.encode(pd.DataFrame({"x": [0.0, "much"], "y": ["a", "b"]}))
    with pytest.raises(UnknownNameError, match="lacks column 'y'"):
        columns.encode(pd.DataFrame({"x": [0.0]}))


def test_missing_cells_are_refused_in_one_error() -> None:
    frame = pd.DataFrame({"a": [True, None, False], "b": [0.5, np.nan, np.nan], "c": ["u", "v", "w"]})
    with pytest.raises(MissingDataError, match=r"'a' \(1\), 'b' \(2\)") as caught:
        choose_families(frame)
    assert "'c'" not in str(caught.value)


def _mixed() -> pd.DataFrame:
    rng = np.random.default_rng(3)
    return pd.DataFrame(
        {
            "ill": rng.random(60) < 0.4,
            "region": pd.Categorical(rng.choice(["west", "east", "north"], 60), ["west", "east", "north", "sea"]),
            "visits": rng.poisson(9.0, 60).astype("int32"),
            "cost": rng.exponential(50.0, 60),
            "weight": rng.normal(71.0, 9.0, 60),
            "smoker": rng.choice(["yes", "no"], 60),
            "class": pd.array(rng.integers(1, 4, 60), dtype="Int64"),
        }
    )


_SAID = {"class": "category", "visits": "count"}


def test_rows_come_back_from_their_values_with_labels_and_types() -> None:
    frame = _mixed()
    columns = choose_families(frame, _SAID)
    values = columns.encode(frame)
    assert columns.domain.names == (
        *("ill", "region=west", "region=east", "region=north", "visits", "cost", "weight", "smoker"),
        *("class=1", "class=2", "class=3"),
    )
    assert columns.units["region"] == (1, 2, 3) and columns.set_of(["class=2", "ill"]) == ("ill", "class")
    assert [len(unit) for unit in columns.families.units] == [1, 3, 1, 1, 1, 1, 3]
    assert columns["weight"].origin == round(columns["weight"].origin) and abs(values[:, 6].mean()) < 3
    back = columns.decode(values)
    back["region"] = back["region"].cat.add_categories("sea")  # a level that no row has is none
    pd.testing.assert_frame_equal(back, frame)
    # A frame of polars, its columns in another order, gives the same values.
    shuffled = pl.from_pandas(frame[list(reversed(frame.columns))])
    np.testing.assert_array_equal(columns.encode(shuffled), values)
    of_polars = choose_families(pl.from_pandas(frame), _SAID)  # whose categories are in the order of appearance
    assert set(of_polars.domain.names) == set(columns.domain.names)
    pd.testing.assert_frame_equal(of_polars.decode(of_polars.encode(frame)).astype(str), frame.astype(str))


def test_an_absent_column_takes_a_value_that_is_possible() -> None:
    frame = _mixed()
    columns = choose_families(frame, _SAID)
    values = columns.encode(frame.drop(columns="region"), absent=["region"])
    assert (values[:, 1:4] == [1.0, 0.0, 0.0]).all()
    some = frame.assign(weight=frame["weight"].where(frame.index % 2 == 0))
    values = columns.encode(some, absent=["weight"])
    np.testing.assert_array_equal(values[::2], columns.encode(frame)[::2])
    assert (values[1::2, 6] == 0.0).all()
    with pytest.raises(MissingDataError, match="'weight'"):
        columns.encode(some)


def test_a_choice_survives_json_and_hostile_json_is_refused() -> None:
    columns = choose_families(_mixed(), _SAID, exclude=["smoker"])
    stated = json.loads(json.dumps(columns.to_json()))
    assert RootColumns.from_json(stated) == columns
    for key, wrong in [
        ("dtype", "__import__('os')"),
        ("levels", ["a", "a"]),
        ("levels", "ab"),
        ("family", {"name": "poisson", "maximum": 3}),
        ("family", {"name": "indicator", "maximum": None, "category": "other"}),
        ("level_type", "code"),
        ("origin", float("nan")),
        ("spread", 0),
        ("name", ""),
    ]:
        bad = json.loads(json.dumps(columns.to_json()))
        bad["columns"][1][key] = wrong
        with pytest.raises(InputError):
            RootColumns.from_json(bad)
    with pytest.raises(InputError):
        RootColumns.from_json({"columns": []})
    # Earlier files do not say how far a column spreads.
    for column in stated["columns"]:
        del column["spread"]
    assert {column.step for column in RootColumns.from_json(stated).columns} == {1.0}


def test_counted_rows_are_chosen_for_as_rows_repeated() -> None:
    rng = np.random.default_rng(0)
    times = rng.integers(0, 4, 200)
    frame = pd.DataFrame({"weight": rng.normal(70.0, 9.0, 200) + 9 * times, "visits": rng.poisson(9, 200)})
    counted, repeated = choose_families(frame, counts=times), choose_families(frame.loc[frame.index.repeat(times)])
    for one, other in zip(counted.columns, repeated.columns, strict=True):
        assert (one.name, one.family, one.reason, one.origin) == (other.name, other.family, other.reason, other.origin)
        assert one.spread == pytest.approx(other.spread, rel=1e-12)
    assert choose_families(frame)["weight"].origin != counted["weight"].origin  # control
    for wrong in ([1], [-1, *times[1:]], [0.5, *times[1:]]):
        with pytest.raises(InputError, match="counts"):
            choose_families(frame, counts=wrong)


def test_a_step_is_a_standard_deviation_of_one_digit_and_one_of_counts_and_labels() -> None:
    rng = np.random.default_rng(0)
    units = rng.normal(size=500)
    units = (units - units.mean()) / units.std()
    cost = rng.exponential(size=500)
    frame = pd.DataFrame({"far": 1e6 + 34.6 * units, "near": 0.0476 * units, "cost": 12.0 * cost / cost.std()})
    frame = frame.assign(ill=frame["near"] > 0, visits=rng.poisson(9, 500))
    columns = choose_families(frame, {"cost": "positive", "visits": "count"})
    assert [columns[name].step for name in frame] == [30.0, 0.05, 10.0, 1.0, 1.0]
    assert columns["near"].spread == np.std(frame["near"]) and columns["visits"].spread == 1.0


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("region", {"dtype": "float64"}),
        ("region", {"dtype": "bool"}),
        ("region", {"level_type": "whole"}),
        ("region", {"level_type": "number"}),
        ("ill", {"dtype": "Int8"}),
        ("size", {"dtype": "int8"}),
        ("size", {"dtype": "bool"}),
        ("size", {"levels": ["1", "1.0", "300"]}),
        ("size", {"level_type": "bool"}),
    ],
)
def test_a_type_that_cannot_hold_the_levels_is_refused(name: str, wrong: dict[str, Any]) -> None:
    frame = pd.DataFrame({"region": ["n", "s", "w"] * 9, "ill": ["no", "yes", "no"] * 9, "size": [1, 20, 300] * 9})
    stated = choose_families(frame, {"size": "category"}).to_json()
    assert RootColumns.from_json(stated).decode([[0, 1, 0, 1, 0, 0, 1]]).values.tolist() == [["s", "yes", 300]]
    next(column for column in stated["columns"] if column["name"] == name).update(wrong)
    with pytest.raises(InputError, match=r"levels .* are no"):
        RootColumns.from_json(stated)


@pytest.mark.parametrize(
    "values",
    [
        pd.Series([0.1, 0.25, 7.0] * 5, dtype="float32"),
        pd.Series([0.1, 0.25, 7.0] * 5, dtype="Float32"),
        pd.Series([2**60, 2**60 + 1, 5] * 5),
        pd.Series([1, 2, 3] * 5, dtype="UInt8"),
        pd.Series([True, False, True] * 5, dtype="boolean"),
        pd.Series(["a", "b", "c"] * 5, dtype="string"),
        pd.Series(pd.Categorical([3, 1, 2] * 5)),
        pd.Series(["01", "1", "x"] * 5),
        pd.Series([1, "a", 2.5] * 5, dtype=object),
        pd.Series(pd.to_datetime(["2020-01-01", "2021-01-01", "2022-01-01"] * 5)),
    ],
    ids=lambda values: str(values.dtype),
)
def test_levels_of_every_type_survive_a_file(values: pd.Series) -> None:
    columns = choose_families(values.to_frame("x"), {"x": "category"})
    again = RootColumns.from_json(json.loads(json.dumps(columns.to_json())))
    encoded = again.encode(values.to_frame("x"))
    assert again.encode(again.decode(encoded)).tolist() == encoded.tolist()
    assert [str(value) for value in again.decode(encoded)["x"]] == [
        str(value) for value in columns.decode(encoded)["x"]
    ]


def test_counts_beyond_the_type_of_the_frame_are_not_wrapped() -> None:
    frame = pd.DataFrame({"n": np.arange(90, dtype="int8")})
    columns = choose_families(frame, {"n": "count"})
    assert columns.decode([[127.0]])["n"].dtype == np.int8
    assert columns.decode([[127.0], [130.0]])["n"].tolist() == [127, 130]


def test_the_choice_reads_as_sentences() -> None:
    columns = choose_families(_mixed(), _SAID, exclude=["smoker"])
    text = repr(columns)
    assert "region: category of 3 levels (west, east, north), as its type declares categories" in text
    assert "smoker: left out, as it was excluded" in text
    table = columns.table()
    assert list(table["column"]) == ["ill", "region", "visits", "cost", "weight", "class", "smoker"]
    assert "category of 3 levels" in columns._repr_html_()


def test_names_that_collide_and_options_of_other_types_are_refused() -> None:
    frame = pd.DataFrame({"a": list("uvw") * 4, "a=u": [0, 1] * 6})
    with pytest.raises(InputError, match="'a=u' is repeated"):
        choose_families(frame)
    with pytest.raises(InputTypeError, match="data frame"):
        choose_families(np.zeros((3, 2)))  # type: ignore[arg-type]
    with pytest.raises(UnknownNameError, match="did you mean 'a'"):
        choose_families(frame[["a"]], {"A": "category"})
    with pytest.raises(InputError, match="no column is left"):
        choose_families(pd.DataFrame({"a": ["u"] * 30}))


def test_bounded_counts_have_a_plural_and_amounts_far_from_zero_are_advised_to_be_real() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"news": rng.integers(0, 8, 200), "papers": rng.integers(0, 8, 200), "visits": 1})
    frame["visits"] = rng.poisson(9.0, 200)
    columns = choose_families(frame, {"news": "bounded:7", "papers": "bounded:7"})
    assert columns.overview == "counts from 0 to 7: news, papers; counts: visits"
    # Ages of adults begin far from 0, numbers of things near it, and sales span powers of ten.
    unclear = {
        "age": 20 + rng.gamma(1.6, 7.0, 200).round(),
        "things": rng.triangular(0, 0, 60, 200).round(),
        "sales": (10 ** rng.uniform(1, 6, 200)).round(),
    }
    with pytest.raises(InputError, match="'age': 'real', 'things': 'count', 'sales': 'positive'"):
        choose_families(pd.DataFrame(unclear))


def test_a_category_whose_levels_are_mostly_alone_is_refused_before_any_work() -> None:
    frame = pd.DataFrame({"age": np.arange(300) % 262 + 0.5, "region": np.arange(300) % 90, "ill": [0, 1] * 150})
    with pytest.raises(InputError, match="at most half as many levels as rows, received 262 levels in 300 rows"):
        choose_families(frame, {"age": "category", "region": "category"})
    columns = choose_families(frame, {"age": "real", "region": "category"})  # control: 90 levels of three rows and more
    assert len(columns["region"].levels) == 90
    assert len(choose_families(frame.head(25), {"age": "category", "region": "real"})["age"].levels) == 25
