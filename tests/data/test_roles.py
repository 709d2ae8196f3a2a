"""Columns of counts, weights and responses, whatever one cell of them holds.

Oracle of estimates: the log odds ratio of the table 20, 10, 10, 40 in closed form, log 8; of a table of many cells
statsmodels' Poisson regression. Oracle of counting rows: the same rows written out one by one.
"""

import contextlib
import io
import re
import warnings

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from statsmodels.formula.api import glm

import pyro_hoim as hoim
from pyro_hoim.cli import main
from pyro_hoim.data import open_rows
from pyro_hoim.data.frames import as_observations, check_columns
from pyro_hoim.errors import DataWarning, InputError

from support.figures import figures_of_one_pixel
from support.verbs import verb_first

CELLS = pd.DataFrame({"a": list("xxyy"), "b": list("nono")})
GOOD = [20, 10, 10, 40]
KINDS = {
    "whole": (GOOD, ""),
    "text": (list(map(str, GOOD)), ""),
    "NaN": ([20, 10, 10, np.nan], "row 3 (counted from 0) holds nan"),
    "NA": (pd.array([20, 10, None, 40], dtype="Int64"), "row 2 (counted from 0) holds <NA>"),
    "blank": (["20", " ", "10", "40"], "row 1 (counted from 0) holds ' '"),
    "negative": ([20, -1, 10, 40], "row 1 (counted from 0) holds -1"),
    "fraction": ([20, 10, 10.5, 40], "row 2 (counted from 0) holds 10.5"),
    "fractions": ([20.5, 10.5, 10.5, 40.5], "row 0 (counted from 0) holds 20.5"),
    "thousands": (["20", "10", "10", "1,040"], "row 3 (counted from 0) holds '1,040'; write 1040"),
    "decimal commas": (["20,5", "10,25", "10,0", "40,5"], "row 0 (counted from 0) holds '20,5'; write 20.5"),
    "percent": (["20%", "10%", "10 %", "40%"], "row 0 (counted from 0) holds '20%'; write 20"),
    "word": (["20", "10", "ten", "40"], "row 2 (counted from 0) holds 'ten'"),
    "infinite": ([20, 10, 10, np.inf], "row 3 (counted from 0) holds inf"),
}
COUNTS = ["Freq", " Frequency", "COUNTS", "n", "N", "total", "cases", "num", "nobs", "_freq", "size", "0"]
COUNTS += ["num_rows", "Number of persons", "n.patients"]
WEIGHTS = ["weight", "WEIGHTS ", "wt", "wgt", "perwt", "sample_weight"]
WEIGHTS += ["weight_norm", "dweight", "pspwght", "_LLCPWT", "ASECWT", "wtssall"]
WEIGHTS += ["Post-stratification weight", "sampling.wt"]


def run(*words):
    """Status and what the command wrote."""
    out = io.StringIO()
    with figures_of_one_pixel(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        try:
            main([str(word) for word in words])
        except SystemExit as end:
            return int(end.code or 0), out.getvalue()
    return 0, out.getvalue()


DOORS = {
    "formula": lambda d: hoim.fit("a*b", d),
    "order": lambda d: hoim.fit(d, order=2, missing="drop"),
    "Observations": hoim.Observations.from_pandas,
    "as_observations": as_observations,
    "open_rows": open_rows,
    "learn": hoim.learn,
    "network": hoim.learn_network,
}


@pytest.mark.parametrize("name", COUNTS + WEIGHTS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_column_named_so_is_recognised_by_most_of_its_cells(name, kind, tmp_path):
    cells, words = KINDS[kind]
    frame = CELLS.assign(**{name: cells})
    doors = DOORS if name in ("Freq", "n", "weight") else {"formula": DOORS["formula"]}
    for door in doors.values():
        with pytest.raises(InputError, match=f"column '{name}' seems to hold") as caught:
            door(frame)
        told = str(caught.value)
        is_weight = name in WEIGHTS
        assert f"{'weights' if is_weight or kind.startswith('fraction') else 'count'}={name!r}" in told
        assert "count=None" in told and (words in told or (is_weight and kind.startswith("fraction")))
    if name in ("Freq", "n", "weight"):
        frame.to_csv(tmp_path / "d.csv", index=False)
        status, told = run("fit", tmp_path / "d.csv", "--order", "2", "--out", tmp_path / "m")
        assert status == 2 and f"column '{name}' seems to hold" in told and "--missing" not in told
        row = 2 + next((i for i in range(4) if f"row {i} " in words), 0)
        assert not words or (is_weight and kind.startswith("fraction")) or f"d.csv line {row} holds" in told


@pytest.mark.parametrize("kind", KINDS)
def test_named_as_counts_an_odd_cell_is_refused_and_others_give_the_closed_form(kind):
    cells, words = KINDS[kind]
    for name, options in (("Freq", {"count": "Freq"}), ("count", {})):  # said, and by default
        frame = CELLS.assign(**{name: cells})
        if not words:
            assert hoim.fit("a*b", frame, **options).coefficients("corner")[-1] == pytest.approx(np.log(8), abs=1e-6)
            continue
        with pytest.raises(InputError) as caught:
            hoim.fit("a*b", frame, missing="drop", **options)
        row, _, value = words.partition(" holds ")
        assert f"{row}, column '{name}'" in str(caught.value) and value.partition(";")[0] in str(caught.value)
    weighted = hoim.fit("a*b", CELLS.assign(Freq=KINDS["fractions"][0]), weights="Freq")
    odds = np.log(20.5 * 40.5 / 10.5**2)
    assert weighted.coefficients("corner")[-1] == pytest.approx(odds, abs=1e-6)


@pytest.mark.parametrize(
    "cells",
    [
        pytest.param({"birth weight": [1, 2, 3, 1] * 25}, id="weights that are measured"),
        pytest.param({"n": [1, 2, 3, 1] * 25}, id="a vague name on rows that repeat"),
        pytest.param({"size": list("smls") * 25}, id="words"),
        pytest.param({"Freq": ["often", "never", "7", "often"] * 25}, id="a number among words"),
        pytest.param({"weight": pd.Categorical([1, 2, 1, 2] * 25)}, id="declared levels"),
        pytest.param({"weight": [-1.0, -2.0, 1.0, -2.0] * 25}, id="mostly below zero"),
        pytest.param({"total": [True, False, True, True] * 25}, id="truth values"),
    ],
)
def test_control_variables_of_such_names_are_variables(cells):
    frame = pd.concat([CELLS] * 25, ignore_index=True).assign(**cells)
    (name,) = cells
    assert hoim.fit(".", frame).hypergraph.domain.names == ("a", "b", name)


WAYS = pd.MultiIndex.from_product([list("fm"), list("ABC")], names=["sex", "ward"]).to_frame(index=False)
PERSON_ROWS = WAYS.loc[WAYS.index.repeat([134, 22, 45, 93, 63, 43])]


@pytest.mark.parametrize("name", ["deaths", "value", "Personen", "y"])
@pytest.mark.parametrize("kind", [int, float, str])
def test_counts_of_all_cells_are_recognised_by_any_name(name, kind, tmp_path):
    """Oracle: the rows that were counted."""
    frame = WAYS.assign(**{name: np.array([134, 22, 45, 93, 63, 43]).astype(kind)})
    words = (
        f"column '{name}' seems to hold how often each row was seen, as the other columns hold every combination once"
    )
    for door in (DOORS["formula"], *DOORS.values()):
        with pytest.raises(InputError, match=words):
            door(frame.rename(columns={"sex": "a", "ward": "b"}))
    expected = hoim.fit("sex*ward", PERSON_ROWS.reset_index(drop=True)).log_likelihood
    assert hoim.fit("sex*ward", frame, count=name).log_likelihood == pytest.approx(expected, abs=1e-8)
    assert hoim.fit(f"sex*{name}", frame, prior="unit").num_rows == 6  # a variable that is asked for
    frame.to_csv(tmp_path / "d.csv", index=False)
    status, told = run("fit", tmp_path / "d.csv", "--order", "2", "--out", tmp_path / "m")
    assert status == 2 and words in told


@pytest.mark.filterwarnings("ignore:.*parameters for")
@pytest.mark.parametrize(
    "values",
    [
        pytest.param([0, 1, 1, 0, 1, 1], id="a truth table"),
        pytest.param([1990, 1991, 1990, 1991, 1990, 1991], id="years"),
        pytest.param([1, 2, 3, 4, 5, 6], id="ranks"),
        pytest.param([13.4, 22.1, 45, 93, 63, 43], id="measurements"),
    ],
)
def test_control_other_numbers_beside_all_cells_are_variables(values):
    assert hoim.fit(WAYS.assign(y=values), order=1).num_rows == 6
    several = pd.concat([WAYS] * 2, ignore_index=True).assign(y=range(100, 112))
    assert hoim.fit(several, order=1).num_rows == 12


def test_estimators_tell_of_such_columns():
    from pyro_hoim.estimators import InteractionDensity

    with pytest.warns(DataWarning, match=r"column 'Freq' seems to hold how often .* pass it as sample_weight"):
        InteractionDensity().fit(CELLS.assign(Freq=GOOD))


RANDOM = np.random.default_rng(0)
PERSONS = pd.DataFrame({"a": RANDOM.choice(["u", "v"], 300), "g": RANDOM.choice(["m", "f"], 300)})
MANY = PERSONS.assign(**{f"z{i}": RANDOM.integers(0, 9, 300).astype(str) for i in range(5)})


@pytest.mark.parametrize("codes", [(0, 1), (1, 2), tuple(range(1, 6)), tuple(range(4)), (10, 20, 30)])
@pytest.mark.parametrize("kind", [int, float, str, "category", "Int64"])
@pytest.mark.parametrize("others", [PERSONS, PERSONS.assign(id=np.arange(300)), MANY], ids=["alone", "id", "many"])
def test_a_response_on_the_left_is_refused(codes, kind, others):
    frame = others.assign(y=pd.Series(RANDOM.choice(codes, 300)).astype(kind))
    told = r"a log-linear model has no response, and 'y' on the left of ~ .*predict"
    with pytest.raises(InputError, match=told) as caught:
        hoim.fit("y ~ a*g", frame)
    if "which repeat in" in str(caught.value):  # not said of categories, and of 0 and 1
        assert f"in the {'columns of the formula' if others is MANY else 'other columns'})" in str(caught.value)


@pytest.mark.filterwarnings("ignore:Perfect separation")
@pytest.mark.parametrize("name", ["y", "n", "deaths"])
@pytest.mark.parametrize("low", [0, 40])
@pytest.mark.parametrize("formula", ["a*b*c", "a*b"])
def test_control_counts_of_cells_on_the_left_are_those_of_statsmodels(name, low, formula):
    cells = pd.MultiIndex.from_product([list("xy"), list("pqr"), list("uv")], names=list("abc")).to_frame(index=False)
    cells[name] = np.random.default_rng(1).integers(1, 5, 12) + low
    found = hoim.fit(f"{name} ~ {formula}", cells)
    rows = cells.groupby(["a", "b", "c"] if "c" in formula else ["a", "b"], as_index=False)[name].sum()
    with np.errstate(all="ignore"):  # a saturated model has a deviance of zero
        expected = glm(f"{name} ~ {formula}", rows, family=sm.families.Poisson()).fit()
    assert np.sort(found.coefficients("corner")) == pytest.approx(np.sort(expected.params[1:]), abs=1e-5)


def test_a_response_of_the_command_line_is_refused(tmp_path):
    PERSONS.assign(y=RANDOM.choice([1, 2], 300)).to_csv(tmp_path / "d.csv", index=False)
    status, told = run("fit", tmp_path / "d.csv", "--edges", "y ~ a*g", "--out", tmp_path / "m")
    assert status == 2 and "a log-linear model has no response" in told


TABLE = pd.DataFrame([(f"o{i:02d}", s) for i in range(30) for s in "fm"], columns=["occ", "sex"])
SIZES = np.random.default_rng(5).integers(20, 400, 60)


@pytest.mark.parametrize("total", [1, 20, 21, 25, 30, 31, 60, 100, SIZES.sum()])
def test_weights_of_any_scale_give_the_same_estimate(total):
    expected = hoim.fit("occ*sex", TABLE.assign(n=SIZES), count="n").coefficients("corner")
    found = hoim.fit("occ*sex", TABLE.assign(w=SIZES / SIZES.sum() * total), weights="w")
    assert found.coefficients("corner") == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("size", [50, 1500])
@pytest.mark.parametrize(
    ("role", "cells"),
    [(None, None), *(("count", n) for n in (1, 2, [1, 2])), *(("weights", w) for w in (1e-3, 1000.0, [500, 2000]))],
)
def test_identifiers_are_counted_in_rows(size, role, cells, tmp_path):
    frame = pd.DataFrame({"id": [f"p{i}" for i in range(size)], "sex": RANDOM.choice(["f", "m"], size)})
    options = {}
    if role is not None:
        frame["held"] = np.resize(cells, size)
        options = {role: "held"}
    with pytest.raises(InputError, match=rf"'id' \({size:,} levels in {size:,} rows\) is \(almost\) unique per row"):
        hoim.fit("id*sex", frame, **options)
    frame.to_csv(tmp_path / "d.csv", index=False)
    said = {None: [], "count": ["--count", "held"], "weights": ["--weights", "held"]}[role]
    status, told = run("fit", tmp_path / "d.csv", *said, "--edges", "id*sex", "--out", tmp_path / "m")
    assert status == 2 and "'id'" in told and f"{size:,} levels in {size:,} rows" in told
    if role != "weights":
        with pytest.warns(DataWarning, match=r"left out: 'id' .* is \(almost\) unique per row"):
            assert "id" not in open_rows(tmp_path / "d.csv", count=options.get("count", "count")).domain


@pytest.mark.parametrize("counts", [np.full(30, 100), SIZES[:30]])
def test_control_a_table_of_one_way_is_that_of_its_rows(counts):
    table = pd.DataFrame({"word": [f"w{i:02d}" for i in range(30)], "count": counts})
    rows = table.loc[table.index.repeat(table["count"])].drop(columns="count")
    check_columns(hoim.Observations.from_pandas(rows))
    found, expected = hoim.fit("word", table), hoim.fit("word", rows)
    assert found.coefficients("corner") == pytest.approx(expected.coefficients("corner"), abs=1e-8)


@pytest.mark.parametrize(
    ("weight", "options"), [(25 / 300, []), (2.0, []), (2.0, ["learn"]), (2.0, ["--model", "dependency-network"])]
)
def test_sums_of_weights_are_no_rows(tmp_path, weight, options):
    frame, total = PERSONS.assign(w=np.full(300, weight)), f"{300 * weight:g}"
    found = hoim.fit("a*g", frame, weights="w")
    assert f"weights that add up to {total}," in repr(found) and f"{total} rows" not in repr(found)
    frame.to_csv(tmp_path / "d.csv", index=False)
    with warnings.catch_warnings(action="ignore"):
        status, told = run(*verb_first(tmp_path / "d.csv", "--weights", "w", "--out", tmp_path / "m", *options))
    page = (tmp_path / "m" / "report.html").read_text()
    assert status == 0 and f"300 rows with weights that add up to {total}" in told, told
    assert "weights that add up to" in page and not re.search(r"\d rows of|\d (train|test) rows", told + page)
    assert not re.search(r"(?m)^(part|model) .*\brows\b", told) and "<th>rows" not in page
    assert ("sum of weights" in told) == ("sum of weights" in page) == bool(options)  # a column of a table of scores
    assert "300 rows," in repr(hoim.fit("a*g", PERSONS))  # control
