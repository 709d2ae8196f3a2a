"""Numbers and dates cut into levels: shares and borders by pandas, the same cut points for new rows."""

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

from pyro_hoim import Observations
from pyro_hoim.data import Bins, bin_columns, find_bins
from pyro_hoim.testing import raises

VALUES = np.random.default_rng(1).gamma(2.0, 10.0, 400)


@pytest.mark.parametrize("rule", ["quantile:4", "quantile:7", "width:5", "width:0.5", "edges:3,10,50"])
def test_levels_are_those_of_pandas(rule):
    bins = find_bins(VALUES, rule)
    levels = pd.cut(VALUES, [-np.inf, *bins.cuts, np.inf], right=False, labels=list(bins.labels))
    assert bins.apply(VALUES) == list(levels)
    assert [bins.label(value) for value in VALUES[:50]] == list(levels[:50])
    control = pd.cut(VALUES, [-np.inf, *(cut + 1 for cut in bins.cuts), np.inf], right=False, labels=list(bins.labels))
    assert bins.apply(VALUES) != list(control)


@pytest.mark.parametrize("parts", [2, 4, 10])
def test_quantiles_leave_equal_shares(parts):
    shares = pd.Series(find_bins(VALUES, f"quantile:{parts}").apply(VALUES)).value_counts()
    assert (shares == 400 // parts).all()


def test_quantiles_of_repeated_values_respect_weights():
    values, times = [0, 1, 2, 3], [60, 20, 10, 10]
    expanded = np.repeat(values, times)
    assert find_bins(values, "quantile:4", times) == find_bins(expanded, "quantile:4")
    assert find_bins(expanded, "quantile:4").cuts == (1.0, 2.0)
    assert find_bins(values, "quantile:4").cuts == (1.0, 2.0, 3.0)  # control: cells are not rows


def test_a_frequent_value_is_a_level_of_its_own_and_the_others_share_what_is_left():
    numbers = np.concatenate([np.zeros(900), np.arange(1, 101)])
    assert find_bins(numbers, "spread:5").cuts == (1.0, 26.0, 51.0, 76.0)
    assert find_bins(numbers, "quantile:5").cuts == (1.0,)  # control
    assert find_bins(np.arange(100.0), "spread:4").cuts == find_bins(np.arange(100.0), "quantile:4").cuts
    rng = np.random.default_rng(1)
    for levels in (2, 5, 30):
        values, weights = rng.integers(40, size=500) ** 2, rng.integers(1, 4, size=500)
        cuts = find_bins(values, f"spread:{levels}", weights).cuts
        assert cuts == find_bins(np.repeat(values, weights), f"spread:{levels}").cuts
        assert list(cuts) == sorted({*cuts}) and {*cuts} <= {*values.tolist()} and len(cuts) < 2 * levels


def test_widths_begin_at_multiples():
    assert find_bins([-3, 12], "width:5").labels == ("<0", "[0, 5)", "[5, 10)", ">=10")
    assert find_bins([0.05, 0.35], "width:0.1").cuts == (0.1, 0.2, 0.3)
    with raises("out-of-range", "bins"):
        find_bins([0, 1e9], "width:1")


def test_dates_are_cut_at_months_and_years():
    dates = ["2023-11-30", "2023-12-01", "2024-02-29", "", "2024-03-01"]
    bins = find_bins(dates, "width:month")
    starts = ["2023-12-01", "2024-01-01", "2024-02-01", "2024-03-01"]
    assert bins.labels == ("<2023-12-01", *(f"[{a}, {b})" for a, b in pairwise(starts)), ">=2024-03-01")
    assert bins.apply(dates) == [bins.labels[0], bins.labels[1], bins.labels[3], "", bins.labels[4]]
    assert find_bins(pd.to_datetime(pd.Series(dates)), "width:year").labels == ("<2024-01-01", ">=2024-01-01")
    assert find_bins(["31.12.2023", "01.02.2024"], "edges:2024-01-01").apply(["31.12.2023"]) == ["<2024-01-01"]
    with raises("invalid-value", "column 'day'"):
        find_bins(["01/02/2024", "03/04/2024"], "width:year", name="day")
    assert find_bins(["13/02/2024", "03/04/2025"], "width:year").labels[0] == "<2025-01-01"


@pytest.mark.parametrize(
    "kind", [pd.Timestamp, lambda day: pd.Timestamp(day).date(), lambda day: pd.Period(day, "D"), str]
)
def test_dates_of_every_type_are_cut_alike(kind):
    dates = ["2023-11-30", "2023-12-01", None, "2024-02-29"]
    cells = [None if day is None else kind(day) for day in dates]
    bins = find_bins(cells, "width:month")
    assert bins == find_bins(pd.to_datetime(pd.Series(dates)), "width:month")
    assert bins.apply(cells) == bins.apply(["2023-11-30", "2023-12-01", "", "2024-02-29"])
    frame = pd.DataFrame({"day": cells, "ill": [0, 1, 0, 1]})
    days = pd.to_datetime(pd.Series(dates))
    for column in (frame["day"], days, days.dt.to_period("D"), days.astype("date32[pyarrow]")):
        rows = Observations.from_pandas(frame.assign(day=column), bins={"day": "width:month"})
        assert rows.domain["day"].labels == tuple(bins.labels[i] for i in (0, 1, 3))
        assert rows.codes[:, 0].tolist() == [0, 1, -1, 2]


def test_cut_points_are_kept_and_serve_other_rows():
    frame = pd.DataFrame({"age": [18, 25, None, 70], "who": list("abcd")}, index=[3, 1, 4, 2])
    cut = bin_columns(frame, {"age": "edges:20,65"})
    assert (cut["age"].tolist()[:2], cut["age"].isna().tolist()) == (["<20", "[20, 65)"], [False, False, True, False])
    assert cut["age"].cat.ordered and cut.index.equals(frame.index) and frame["age"].iloc[0] == 18
    bins = cut.attrs["bins"]["age"]
    assert Bins.from_json(bins.to_json()) == bins
    assert bin_columns(pd.DataFrame({"age": [99]}), cut.attrs["bins"])["age"].tolist() == [">=65"]


@pytest.mark.parametrize(
    ("values", "rule", "code"),
    [
        ([1, 2], "quarter:4", "unknown-choice"),
        ([1, 2], "quantile:1", "invalid-value"),
        ([1, 2], "quantile:2.5", "invalid-value"),
        ([1, 2], "width:-1", "invalid-value"),
        ([1, 2], "width:", "invalid-value"),
        ([1, 2], "edges:3,2", "invalid-value"),
        ([1, 2], "edges:3,x", "invalid-value"),
        ([1, "x"], "quantile:2", "invalid-value"),
        (["", None], "quantile:2", "empty"),
        ([7, 7], "quantile:2", "invalid-value"),
    ],
)
def test_bad_rules_are_refused(values, rule, code):
    with raises(code):
        find_bins(values, rule)


def test_unknown_columns_are_refused():
    with raises("unknown-name", "bins"):
        bin_columns(pd.DataFrame({"a": [1]}), {"b": "quantile:2"})


def test_dates_of_any_century_and_rules_of_any_size_end_at_once():
    bins = find_bins(["9999-12-31", "0001-01-01", "2024-01-01T12:00:00+02:00"], "edges:2024-01-01")
    assert bins.apply(["9999-12-31", "0001-01-01", "2024-01-01T12:00:00+02:00"]) == [*bins.labels[::-1], bins.labels[1]]
    assert bins.labels == ("<2024-01-01", ">=2024-01-01")
    with raises("out-of-range", "bins"):
        find_bins(["9999-12-31", "2024-01-01"], "width:week")
    for rule in ("quantile:1e300", "width:1e-300", "width:5e-324"):
        with pytest.raises(ValueError, match="at most 1000 levels"):
            find_bins([1, 2, 1e308, -1e308], rule)
