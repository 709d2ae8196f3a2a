"""Tables of counts in wide form, and variables in an index, wherever rows are read.

Oracle: the rows that pandas counted, one by one, and the table of their counts by numpy.histogramdd over the codes.
"""

import re

import numpy as np
import pandas as pd
import pytest

import pyro_hoim as hoim
from pyro_hoim.data import open_rows
from pyro_hoim.data.frames import as_observations
from pyro_hoim.errors import DataWarning, InputError

from .test_roles import run

RANDOM = np.random.default_rng(0)
ROWS = pd.DataFrame({name: RANDOM.choice(list(levels), 500) for name, levels in (("sex", "fm"), ("ward", "ABC"))})
DEPT = ROWS.assign(dept=RANDOM.choice(["x", "y"], 500, p=[0.3, 0.7]))
EXPECTED = hoim.fit("sex*ward", ROWS)
SUMS = "ignore:.*read as a cross-tabulation"


def crosstab(**options):
    return pd.crosstab(ROWS.sex, ROWS.ward, **options)


READ = {
    "crosstab": crosstab,
    "margins": lambda: crosstab(margins=True),
    "margins by another name": lambda: crosstab(margins=True, margins_name="Zusammen"),
    "reset_index": lambda: crosstab().reset_index(),
    "margins and reset_index": lambda: crosstab(margins=True).reset_index(),
    "pivot_table": lambda: ROWS.assign(one=1).pivot_table("one", "sex", "ward", aggfunc="sum"),
    "unstack": lambda: ROWS.groupby(["sex", "ward"]).size().unstack(),  # noqa: PD010
    "transposed": lambda: crosstab().T,
    "size": lambda: ROWS.groupby(["sex", "ward"]).size(),
    "value_counts": lambda: ROWS.value_counts(),
    "value_counts in a frame": lambda: ROWS.value_counts().to_frame(),
    "size in a frame": lambda: ROWS.groupby(["sex", "ward"]).size().to_frame("count"),
    "categories": lambda: pd.crosstab(ROWS.sex.astype("category"), ROWS.ward.astype("category"), margins=True),
    "float counts": lambda: crosstab().astype(float),
    "pivot_table of a list": lambda: ROWS.assign(one=1).pivot_table(["one"], "sex", "ward", aggfunc="count"),
    "unstacked frame": lambda: ROWS.assign(one=1).groupby(["sex", "ward"])[["one"]].count().unstack(),  # noqa: PD010
}


@pytest.mark.filterwarnings(SUMS)
@pytest.mark.parametrize("kind", READ)
def test_unmistakable_tables_are_read_as_their_rows(kind):
    data = READ[kind]()
    for found in (hoim.fit("sex*ward", data), hoim.fit(".^2", data), hoim.fit(data=data, order=2)):
        domain = found.hypergraph.domain
        assert set(domain.names) == {"sex", "ward"} and found.num_rows == 500
        counts = found.data.project(["sex", "ward"]).table()
        axes = [EXPECTED.hypergraph.domain.names.index(name) for name in domain.names]
        assert counts.permute(axes).tolist() == EXPECTED.data.table().tolist()
    for door in (as_observations, open_rows):
        assert door(data).total_count == 500
    assert EXPECTED.score(data)["nll"] == pytest.approx(EXPECTED.score(ROWS)["nll"], abs=1e-12)


@pytest.mark.parametrize("index", [["dept"], ["dept", "sex"]])
def test_several_levels_in_rows_or_columns(index):
    columns = [name for name in DEPT if name not in index]
    table = pd.crosstab([DEPT[name] for name in index], [DEPT[name] for name in columns])
    expected = hoim.fit("dept*sex*ward", DEPT)
    for data in (table, table.reset_index()):
        found = hoim.fit("dept*sex*ward", data)
        assert found.num_rows == 500 and found.log_likelihood == pytest.approx(expected.log_likelihood, abs=1e-9)


def test_names_in_an_index_are_found_where_a_formula_names_them():
    grouped = DEPT.groupby(["sex", "ward"]).agg(n=("dept", "size"), last=("dept", "last"))
    found = hoim.fit("sex*ward", grouped, count="n")
    assert found.log_likelihood == pytest.approx(EXPECTED.log_likelihood, abs=1e-9)
    persons = ROWS.rename_axis("person")  # control: an index that nobody asks for is none
    assert hoim.fit(".^2", persons).hypergraph.domain.names == ("sex", "ward")


def test_sums_that_are_left_out_and_names_that_are_made_up_are_told():
    with pytest.warns(DataWarning, match="500 rows in 6 cells, without the sums under 'All' and 'All'"):
        hoim.fit(".^2", crosstab(margins=True))
    plain = pd.DataFrame(crosstab().to_numpy(), index=["f", "m"], columns=list("ABC"))
    with pytest.warns(DataWarning, match="cross-tabulation of 'row' and 'column'"):
        assert hoim.fit("row*column", plain).log_likelihood == pytest.approx(EXPECTED.log_likelihood, abs=1e-9)


def wrong_sums():
    table = crosstab(margins=True)
    table.loc["All", "A"] += 1
    return table


REFUSED = {
    "shares": (lambda: crosstab(normalize=True), "holds shares"),
    "shares of rows": (lambda: crosstab(normalize="index"), "holds shares"),
    "shares of columns": (lambda: crosstab(normalize="columns").reset_index(), "holds shares"),
    "shares in a series": (lambda: ROWS.value_counts(normalize=True), "fractions"),
    "gaps": (lambda: crosstab().astype(float).mask(crosstab() == crosstab().iloc[0, 0]), "fillna"),
    "wrong sums": (wrong_sums, "expected sums under 'All'"),
    "no name of the columns": (lambda: crosstab().rename_axis(columns=None).reset_index(), "'sex' and 'column'"),
    "sums, but no name of the columns": (
        lambda: crosstab(margins=True).rename_axis(columns=None).reset_index(),
        r"iloc\[:-1, :-1\]",
    ),
    "shares with sums": (lambda: crosstab(normalize=True, margins=True), r"frame\.iloc\[:-1, :-1\]"),
    "gaps without names": (
        lambda: crosstab().astype(float).mask(crosstab() < 90).set_axis(list("ABC"), axis=1),
        "fillna",
    ),
    "a named index alone": (lambda: crosstab().rename_axis(columns=None), "'sex' and 'column'"),
    "small numbers": (lambda: pd.crosstab(ROWS.index[:40] % 20, ROWS.ward[:40]), "may be a cross-tabulation"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_may_be_another_table_is_refused_with_what_makes_it_long(kind):
    make, words = REFUSED[kind]
    for door in (lambda d: hoim.fit(".^2", d), as_observations, open_rows):
        with pytest.raises(InputError, match=words):
            door(make())


LINES = ["shares", "no name of the columns", "a named index alone", "small numbers", "shares with sums"]


@pytest.mark.parametrize("kind", [*LINES, "sums, but no name of the columns"])
def test_the_line_that_makes_it_long_does(kind):
    data = REFUSED[kind][0]()
    with pytest.raises(InputError) as caught:
        as_observations(data)
    (line,) = re.findall(r"frame\.[a-z_]+[(\[].*reset_index\(\)", str(caught.value))
    long = eval(line, {"frame": data})
    total = data.select_dtypes("number").to_numpy().sum() / (4 if "sums" in kind else 1)
    last = {"weights": "weight"} if "weight" in long else {}
    last["allow"] = [name for name in long if str(name).startswith("row")]  # twenty numbers, where rows have no names
    assert as_observations(long, **last).total_count == pytest.approx(total, abs=1e-9)


@pytest.mark.parametrize(
    ("frame", "names"),
    [
        pytest.param(
            pd.DataFrame(RANDOM.integers(0, 5, (40, 3)), columns=pd.Index(list("pqr"), name="item")),
            "pqr",
            id="no index",
        ),
        pytest.param(pd.DataFrame({"a": list("xyxy"), "b": [1, 2, 2, 1], "c": [0, 1, 1, 1]}), "abc", id="few rows"),
        pytest.param(
            pd.DataFrame({"a": list("uvuvuv"), "y": [1990, 1991] * 3, "z": [30, 41] * 3}), "ayz", id="rows that repeat"
        ),
        pytest.param(pd.get_dummies(ROWS).rename_axis(columns="which"), None, id="truth values"),
    ],
)
def test_control_rows_of_variables_stay_rows(frame, names):
    found = as_observations(frame)
    assert found.domain.names == tuple(names or frame.columns) and found.total_count == len(frame)


def test_control_items_of_persons_are_variables_where_they_are_named():
    items = pd.DataFrame(RANDOM.integers(0, 3, (60, 2)), columns=pd.Index(["p", "q"], name="item"))
    items.index.name = "person"
    assert hoim.fit("p*q", items).num_rows == 60
    with pytest.raises(InputError, match="may be a cross-tabulation of 'person' and 'item'"):
        hoim.fit(".^2", items)
    assert hoim.fit(".^2", items, count=None).num_rows == 60


@pytest.mark.parametrize("sums", [False, True])
def test_files_as_r_and_pandas_write_tables(sums, tmp_path):
    table = crosstab(margins=sums, margins_name="Sum").rename_axis(index=None, columns=None)
    table.to_csv(tmp_path / "r.csv")  # as R's write.csv(table)
    read = hoim.Observations.from_csv(tmp_path / "r.csv")
    assert read.domain.names == ("row", "column") and read.table().tolist() == EXPECTED.data.table().tolist()
    status, told = run("fit", tmp_path / "r.csv", "--order", "2", "--out", tmp_path / "m")
    assert status == 0 and "cross-tabulation of 'row' and 'column', 500 rows in 6 cells" in told
    crosstab().to_csv(tmp_path / "p.csv")
    status, told = run("fit", tmp_path / "p.csv", "--order", "2", "--out", tmp_path / "n")
    assert status == 2 and "frame.set_index('sex').stack()" in told and "--count none" in told
    ROWS.to_csv(tmp_path / "rows.csv")  # control: numbers of rows
    assert hoim.Observations.from_csv(tmp_path / "rows.csv").domain.names == ("sex", "ward")
