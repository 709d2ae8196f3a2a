"""Five tables of statsmodels and scikit-learn with columns of several kinds, beside statsmodels' own regressions.

The node law of a 0/1 column is its logistic regression on the others, and that of a real column its linear
regression, so that effects without the penalty are near the coefficients there. They are not equal, for a coefficient
is shared by the laws of both columns of a pair, and sets that are not confirmed are left out. Other columns act on the
root of a count, so that its rate ratios agree in sign and rough size.
"""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from sklearn import datasets

import pyro_hoim as hoim
from pyro_hoim.generalized_root import (
    GaussianFamily,
    IndicatorFamily,
    PoissonFamily,
    TruncatedPoissonFamily,
    choose_families,
)

_SAID: dict[str, dict[str, str]] = {
    "randhie": {},
    "fair": {"rate_marriage": "category", "religious": "category", "educ": "real"},
    "wine": {"proline": "real"},
    "iris": {},
    "diabetes": {"progression": "real"},
}


pytestmark = pytest.mark.usefixtures("words_alone")


@cache
def _table(name: str) -> pd.DataFrame:
    loaded: Any
    if name == "randhie":
        loaded = sm.datasets.randhie.load_pandas()
        frame = loaded.data.sample(2000, random_state=0)
        frame = frame[["mdvis", "lncoins", "disea", "physlm", "hlthp", "idp"]]
        return frame.assign(physlm=(frame["physlm"] > 0).astype(int)).reset_index(drop=True)
    if name == "fair":
        loaded = sm.datasets.fair.load_pandas()
        frame = loaded.data.sample(2000, random_state=0)
        columns = ["rate_marriage", "age", "yrs_married", "children", "religious", "educ", "affair"]
        return frame.assign(affair=frame["affairs"] > 0)[columns].reset_index(drop=True)
    loaded = getattr(datasets, f"load_{name}")(as_frame=True)
    frame = loaded.frame.rename(columns={"target": "progression" if name == "diabetes" else "class"})
    if name == "diabetes":
        sex = np.where(frame["sex"] > 0, "second", "first")
        return frame.assign(sex=sex)[["age", "sex", "bmi", "bp", "s5", "progression"]]
    names = np.array([str(target) for target in loaded.target_names])
    frame["class"] = pd.Categorical(names[frame["class"]])
    return frame if name == "iris" else frame[["alcohol", "flavanoids", "color_intensity", "hue", "proline", "class"]]


@cache
def _parts(name: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Three quarters of the rows, and the rest."""
    frame = _table(name)
    order = np.random.default_rng(0).permutation(len(frame))
    end = 3 * len(frame) // 4
    return frame.iloc[order[:end]].reset_index(drop=True), frame.iloc[order[end:]].reset_index(drop=True)


@cache
def _fitted(name: str) -> Any:
    return hoim.fit_roots(_parts(name)[0], _SAID[name], l1=0.05, refit="all")


@pytest.mark.parametrize(
    ("name", "asked", "advised"),
    [
        ("randhie", [], {}),
        ("fair", ["rate_marriage", "religious", "educ"], {"rate_marriage": "category", "religious": "category"}),
        ("wine", ["proline"], {"proline": "real"}),
        ("iris", [], {}),
        ("diabetes", ["progression"], {"progression": "real"}),
    ],
)
def test_what_is_asked_of_the_columns_and_what_is_advised(name: str, asked: list[str], advised: dict[str, str]) -> None:
    frame = _table(name)
    if not asked:
        assert choose_families(frame).names == tuple(frame.columns)
        return
    with pytest.raises(hoim.InputError) as caught:
        choose_families(frame)
    text = str(caught.value)
    assert [column for column in frame.columns if f"{column!r} holds" in text] == asked
    assert all(f"{column!r}: {word!r}" in text for column, word in advised.items())


def test_families_are_those_that_the_tables_describe() -> None:
    def families(name: str) -> dict[str, Any]:
        return {column.name: column.family for column in _fitted(name).columns.columns}

    visits = families("randhie")
    assert visits["mdvis"] == PoissonFamily() and visits["idp"] == visits["hlthp"] == TruncatedPoissonFamily(1)
    assert families("fair")["affair"] == TruncatedPoissonFamily(1)
    assert families("wine")["class"] == IndicatorFamily("class") and families("wine")["hue"] == GaussianFamily()
    # Visits to doctors vary far more than Poisson counts, which the reason says; of other counts it says nothing.
    table, reason = _parts("randhie")[0]["mdvis"], _fitted("randhie").columns["mdvis"].reason
    assert f"variance is {table.var(ddof=0) / table.mean():.2g} times the mean" in reason
    counts = pd.DataFrame({"x": np.random.default_rng(0).poisson(8.0, 500)})
    assert "wider" not in choose_families(counts)["x"].reason


@pytest.mark.parametrize("name", list(_SAID))
def test_held_out_rows_are_likelier_than_under_independent_columns(name: str) -> None:
    train, test = _parts(name)
    alone = hoim.fit_roots(train, _SAID[name], interactions="1")
    model = _fitted(name).confirmed
    # The pseudo-likelihood, and the likelihood by an exact log Z.
    there, without = model.score(test), alone.score(test)
    assert there["log_z_kind"] == without["log_z_kind"] == "exact"
    assert there["pseudo_nll"] < without["pseudo_nll"] - 0.03 and there["nll"] < without["nll"] - 0.01
    # Columns put in an order of their own say nothing of each other: no set is confirmed.
    rng = np.random.default_rng(1)
    shuffled = pd.DataFrame({column: train[column].to_numpy()[rng.permutation(len(train))] for column in train})
    shuffled = shuffled.astype(train.dtypes.to_dict())
    none = hoim.fit_roots(shuffled, _SAID[name], l1=0.05)
    assert not (none.confirmed or none).sets


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("randhie", [("mdvis", "disea"), ("mdvis", "idp"), ("mdvis", "lncoins"), ("disea", "physlm")]),
        ("fair", [("rate_marriage", "affair"), ("religious", "affair"), ("age", "yrs_married")]),
        ("wine", [("flavanoids", "class"), ("color_intensity", "hue"), ("proline", "class")]),
        ("iris", [("petal length (cm)", "petal width (cm)"), ("petal width (cm)", "class")]),
        ("diabetes", [("bmi", "progression"), ("s5", "progression"), ("bp", "progression"), ("age", "bp")]),
    ],
)
def test_sets_that_any_analyst_knows_are_confirmed(name: str, known: list[tuple[str, ...]]) -> None:
    assert set(known) <= set(_fitted(name).confirmed.sets)


def _effects(name: str, response: str, **change: Any) -> pd.DataFrame:
    table = _fitted(name).confirmed.effects(response, change=change)
    return table.assign(value=table.get("unpenalised", table["estimate"]))


def test_odds_ratios_of_affairs_are_those_of_a_logistic_regression() -> None:
    train = _parts("fair")[0]
    dummies = pd.get_dummies(train[["rate_marriage", "religious"]].astype(int).astype(str), drop_first=True)
    design = sm.add_constant(dummies.join(train[["age", "yrs_married", "children", "educ"]]).astype(float))
    expected = sm.Logit(train["affair"].astype(float), design).fit(disp=0).params
    found = _effects("fair", "affair", age=1, yrs_married=1, children=1, educ=1)
    assert set(found["effect"]) == {"odds ratio"} and len(found) >= 8
    for row in found.to_dict("records"):
        name = row["column"] if row["column"] in design else f"{row['column']}_{row['after']}"
        assert abs(np.log(row["value"]) - expected[name]) < max(0.5 * abs(expected[name]), row["std_error"])
        assert np.log(row["value"]) * expected[name] > 0
    # The happier the marriage is called, the fewer say that they have had an affair.
    marriage = found.loc[found["column"] == "rate_marriage", "value"].to_numpy(dtype=float)
    assert len(marriage) == 4 and (np.diff(marriage) < 0).all()


def test_slopes_of_the_progression_of_diabetes_are_those_of_least_squares() -> None:
    train = _parts("diabetes")[0]
    design = train.drop(columns="progression").assign(sex=(train["sex"] == "second").astype(float))
    expected = sm.OLS(train["progression"], sm.add_constant(design)).fit().params
    found = _effects("diabetes", "progression", bmi=0.05, bp=0.05, s5=0.05)
    assert list(found["column"]) == ["bmi", "bp", "s5"]
    np.testing.assert_allclose(found["value"] / 0.05, expected[["bmi", "bp", "s5"]], rtol=0.15)
    # Intervals hold the coefficients, which the wrong sign would not be in.
    lower, upper = found[["lower", "upper"]].to_numpy(dtype=float).T
    slopes = 0.05 * expected[["bmi", "bp", "s5"]].to_numpy()
    assert (lower > 0).all() and (lower < slopes).all() and (slopes < upper).all()


def test_rate_ratios_of_visits_have_the_signs_of_a_poisson_regression() -> None:
    train = _parts("randhie")[0]
    design = sm.add_constant(train.drop(columns="mdvis").astype(float))
    fit = sm.GLM(train["mdvis"], design, family=sm.families.Poisson()).fit(cov_type="HC0")
    found = _effects("randhie", "mdvis", lncoins=1, disea=1).set_index("column")
    for name in ("lncoins", "disea", "idp"):
        assert abs(fit.tvalues[name]) > 2
        assert np.log(found.loc[name, "value"]) * fit.params[name] > 0
        assert 0.3 < np.log(found.loc[name, "value"]) / fit.params[name] < 1.5
    # What one row more or fewer says is not that of a Poisson law: errors are as wide as robust ones.
    plain = sm.GLM(train["mdvis"], design, family=sm.families.Poisson()).fit()
    assert fit.bse["disea"] > 2 * plain.bse["disea"] and found.loc["disea", "std_error"] > plain.bse["disea"]


def test_classes_are_predicted_and_intervals_of_real_columns_hold_their_share() -> None:
    for name, least in (("wine", 0.85), ("iris", 0.9)):
        test, model = _parts(name)[1], _fitted(name).confirmed
        predicted = model.predict(test.drop(columns="class"), "class")
        assert (predicted["predicted"].astype(str).to_numpy() == test["class"].astype(str).to_numpy()).mean() >= least
    test = _parts("diabetes")[1]
    predicted = _fitted("diabetes").confirmed.predict(test, "progression", level=0.9)
    share = ((predicted["lower"] <= test["progression"]) & (test["progression"] <= predicted["upper"])).mean()
    assert 0.8 < share < 0.97


def test_draws_look_like_the_table_but_for_the_spread_of_wide_counts() -> None:
    numbers = {
        "fair": ["age", "yrs_married", "children", "educ"],
        "diabetes": ["age", "bmi", "bp", "s5", "progression"],
        "randhie": ["lncoins", "disea", "physlm", "hlthp", "idp"],
    }
    drawn = {name: _fitted(name).confirmed.sample(4000, seed=1) for name in numbers}
    for name, columns in numbers.items():
        seen, made = _parts(name)[0][columns].astype(float), drawn[name][columns].astype(float)
        assert (abs(made.mean() - seen.mean()) < 0.15 * seen.std()).all()
        assert (abs(made.std() / seen.std() - 1) < 0.1).all()
        correlations = np.corrcoef(made.to_numpy(), rowvar=False), np.corrcoef(seen.to_numpy(), rowvar=False)
        np.testing.assert_allclose(*correlations, atol=0.2)
    # A Poisson column has no parameter for its spread, which the reason for its family says.
    assert drawn["randhie"]["mdvis"].std() < 0.6 * _parts("randhie")[0]["mdvis"].std()


def test_the_page_of_a_fit_names_columns_and_no_indicators(tmp_path: Path) -> None:
    text = _fitted("fair").confirmed.report(tmp_path).read_text(encoding="utf-8")
    assert "1,500 rows of 7 columns" in text and "Generalized root model of rate_marriage, age" in text
