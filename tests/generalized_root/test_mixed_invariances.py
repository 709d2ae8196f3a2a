"""What units, origins, names, orders, types and repeated rows may not change in a model of several kinds of columns."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

import pyro_hoim as hoim
from pyro_hoim.generalized_root import RootFitResult, RootSettings

_SAID = {"visits": "count", "cost": "positive", "weight": "real", "age": "real", "region": "category", "ill": "binary"}
_ROWS = 250


def _frame() -> Any:
    rng = np.random.default_rng(5)
    ill, region = rng.random(_ROWS) < 0.4, rng.choice(["n", "s", "w"], _ROWS, p=[0.5, 0.3, 0.2])
    return pd.DataFrame(
        {
            "ill": np.where(ill, "yes", "no"),
            "region": region,
            "visits": rng.poisson(np.where(ill, 7.0, 4.0)),
            "weight": 70 + 6 * ill + rng.normal(0, 8, _ROWS),
            "cost": rng.exponential(np.where(region == "w", 60.0, 20.0)),
            "age": rng.normal(40, 12, _ROWS),
        }
    )


def _fit(frame: Any) -> RootFitResult:
    names = set(frame.columns)
    said = {name: family for name, family in _SAID.items() if name in names}
    settings = RootSettings(jobs=1, tolerance=1e-9)
    fitted = hoim.fit_roots(frame, family=said, order=2, l1=0.05, refit="all", settings=settings).confirmed
    assert fitted is not None
    return fitted


@pytest.fixture(scope="module")
def plain() -> RootFitResult:
    return _fit(_frame())


def _kept(model: RootFitResult) -> set[frozenset[str]]:
    assert model.confirmation is not None
    return {frozenset(edge) for edge in model.confirmation.kept}


def _tests(model: RootFitResult) -> Any:
    assert model.confirmation is not None
    return model.confirmation.tests


_CHANGES: Mapping[str, tuple[Callable[[Any], Any], float]] = {
    # The change of the table, and the log of the factor of densities for every row.
    "kilograms to grams": (lambda f: f.assign(weight=1000 * f["weight"]), np.log(1000)),
    "dollars to thousands": (lambda f: f.assign(cost=f["cost"] / 1000), -np.log(1000)),
    "dollars to billionths": (lambda f: f.assign(cost=f["cost"] * 1e9), np.log(1e9)),
    "another origin": (lambda f: f.assign(weight=f["weight"] + 273.15), 0.0),
    "a far origin": (lambda f: f.assign(weight=f["weight"] - 1e6), 0.0),
    "columns turned": (lambda f: f[f.columns[::-1]], 0.0),
    "rows turned": (lambda f: f.iloc[::-1], 0.0),
    "rows of an index of their own": (lambda f: f.set_index(pd.Index([7] * len(f))), 0.0),
    "levels renamed and so reordered": (
        lambda f: f.assign(region=f["region"].map({"n": "z", "s": "a", "w": "b"})),
        0.0,
    ),
    "levels of a type": (lambda f: f.assign(region=pd.Categorical(f["region"], ["w", "n", "s"])), 0.0),
    "levels that do not occur": (lambda f: f.assign(region=pd.Categorical(f["region"], list("wnsx"))), 0.0),
    "bool": (lambda f: f.assign(ill=f["ill"] == "yes"), 0.0),
    "nullable bool": (lambda f: f.assign(ill=(f["ill"] == "yes").astype("boolean")), 0.0),
    "small whole numbers": (lambda f: f.assign(ill=(f["ill"] == "yes").astype("int8")), 0.0),
    "floats": (lambda f: f.assign(visits=f["visits"].astype(float), ill=(f["ill"] == "yes") * 1.0), 0.0),
    "nullable counts": (lambda f: f.assign(visits=f["visits"].astype("Int64")), 0.0),
    "counts as text": (lambda f: f.assign(visits=f["visits"].astype(str)), 0.0),
    "polars": (lambda f: pl.from_pandas(f), 0.0),
}


@pytest.mark.parametrize("change", _CHANGES)
def test_sets_p_values_likelihoods_and_predictions_stay(plain: RootFitResult, change: str) -> None:
    changed, log_factor = _CHANGES[change]
    frame, other = _frame(), changed(_frame())
    model = _fit(other)
    assert _kept(model) == _kept(plain) and len(_kept(plain)) >= 3
    # Tests, as far as rounding of a far origin lets them.
    p_values = [{frozenset(t.edge): t.p_value for t in _tests(one)} for one in (plain, model)]
    assert p_values[0].keys() == p_values[1].keys()
    for edge, p_value in p_values[0].items():
        assert np.log(p_values[1][edge]) == pytest.approx(np.log(p_value), abs=1e-5)
    found = float(model.log_pseudo_prob(other).sum()) + _ROWS * log_factor
    assert found == pytest.approx(float(plain.log_pseudo_prob(frame).sum()), abs=1e-4)
    # The law of a 0/1 column and of a count do not know of units, nor of names of other columns.
    order = slice(None, None, -1) if change == "rows turned" else slice(None)
    pairs = ((plain, frame), (model, other))
    chance, again = (one.predict(rows, "ill").filter(like="p(").iloc[:, -1].to_numpy() for one, rows in pairs)
    np.testing.assert_allclose(again[order], chance, rtol=1e-4)
    counts = plain.predict(frame, "visits")["mean"].to_numpy()
    np.testing.assert_allclose(model.predict(other, "visits")["mean"].to_numpy()[order], counts, rtol=1e-4)


def test_effects_are_those_of_the_unit(plain: RootFitResult) -> None:
    frame = _frame()
    other = _fit(frame.assign(weight=1000 * frame["weight"] + 5, cost=frame["cost"] / 1000))
    given = {"weight": 72.0, "cost": 16.0, "age": 40.0, "visits": 4, "ill": "no", "region": "n"}
    change = {"weight": (70.0, 75.0), "cost": (10.0, 20.0)}
    before: Any = plain.effects(given=given, change=change)
    turned = {"weight": 72_005.0, "cost": 0.016}
    after: Any = other.effects(given={**given, **turned}, change={"weight": (70_005.0, 75_005.0), "cost": (0.01, 0.02)})
    assert before[["response", "column"]].equals(after[["response", "column"]])
    # Differences of weights are in grams, ratios in nothing.
    factor = np.where(before["effect"] == "mean difference", 1000.0, 1.0)
    for name in ("estimate", "std_error", "lower", "upper"):
        np.testing.assert_allclose(after[name], before[name] * factor, rtol=2e-3)
    assert (before["effect"] == "mean difference").any() and (before["effect"] != "mean difference").any()


def test_counts_of_rows_are_rows_repeated(plain: RootFitResult) -> None:
    frame = _frame()
    times = np.random.default_rng(1).integers(1, 4, _ROWS)
    counted, repeated = _fit(frame.assign(count=times)), _fit(frame.loc[frame.index.repeat(times)])
    assert _kept(counted) == _kept(repeated)
    pd.testing.assert_frame_equal(counted.summary(), repeated.summary(), rtol=1e-5, atol=1e-7)
    pd.testing.assert_frame_equal(counted.effects(), repeated.effects(), rtol=1e-5, atol=1e-7)
    # Negative control: they are not the rows as they are.
    assert abs(float(counted.coefficients[0]) - float(plain.coefficients[0])) > 1e-4


def test_exchanged_labels_change_nothing_but_what_a_0_1_column_does_to_roots(plain: RootFitResult) -> None:
    frame = _frame()
    turned = frame.assign(ill=frame["ill"].map({"yes": "a", "no": "b"}))
    # Tests are by contrasts, and the same; beside real numbers and categories so is the model.
    assert _kept(_fit(turned)) == _kept(plain)
    names = ["ill", "region", "weight", "age"]
    models = [_fit(one[names]) for one in (frame, turned)]
    likelihoods = [float(m.log_pseudo_prob(one).sum()) for m, one in zip(models, (frame, turned), strict=True)]
    assert likelihoods[0] == pytest.approx(likelihoods[1], abs=0.02 * abs(likelihoods[0]) / _ROWS)
    np.testing.assert_allclose(
        models[0].predict(frame, "ill")["p(yes)"], models[1].predict(turned, "ill")["p(a)"], atol=5e-3
    )
