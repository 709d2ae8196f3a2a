"""What a root model of a data frame answers about data frames, and what its file does: labels, units and intervals."""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import pyro_hoim as hoim
from pyro_hoim.errors import MissingDataError, UnknownNameError
from pyro_hoim.generalized_root import RootFitResult, RootSettings
from pyro_hoim.testing import FALSE_ALARM_RATE

_SAID = {"visits": "count"}


def _frame(num_rows: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    ill = rng.random(num_rows) < 0.4
    return pd.DataFrame(
        {
            "ill": np.where(ill, "yes", "no"),
            "visits": rng.poisson(np.where(ill, 9.0, 5.0)),
            "weight": 70 + 5 * ill + rng.normal(0, 8, num_rows),
            "cost": rng.exponential(np.where(ill, 50.0, 20.0)),
        }
    )


@pytest.fixture(scope="module")
def model() -> RootFitResult:
    return hoim.fit_roots(
        _frame(2000, 1), family=_SAID, interactions="ill*(visits + weight + cost)", settings=RootSettings(jobs=1)
    )


def _one(model: RootFitResult, *names: str) -> float:
    """The coefficient of a term; of one column of its value."""
    root = 2 if names == ("weight",) or len(names) == 2 else 1
    return next(term.coefficient for term in model.terms((root, len(names))) if term.names == names)


def test_predictions_are_those_of_the_conditional_laws_in_labels_and_units(model: RootFitResult) -> None:
    rows = pd.DataFrame({"ill": ["no", "yes"], "visits": [4, 7], "weight": [71.0, 80.0], "cost": [4.0, 100.0]})
    origin = model.columns["weight"].origin
    is_ill = np.array([0.0, 1.0])
    # A column of labels: the log odds are linear in the roots.
    score = _one(model, "ill") + _one(model, "ill", "visits") * np.sqrt(rows["visits"])
    score += _one(model, "ill", "weight") * (rows["weight"] - origin) + _one(model, "ill", "cost") * np.sqrt(
        rows["cost"]
    )
    found = model.predict(rows.drop(columns="ill"), "ill")
    np.testing.assert_allclose(found["p(yes)"], 1 / (1 + np.exp(-score)), rtol=1e-10)
    assert found["predicted"].tolist() == np.where(score > 0, "yes", "no").tolist()
    # A normal column, in its units.
    square = next(term.coefficient for term in model.terms((1, 1)) if term.names == ("weight",))
    std = math.sqrt(-0.5 / square)
    mean = origin + (_one(model, "weight") + _one(model, "ill", "weight") * is_ill) * std**2
    found = model.predict(rows, "weight", level=0.8)
    np.testing.assert_allclose(found["mean"], mean, rtol=1e-10)
    np.testing.assert_allclose(found[["lower", "upper"]], np.stack(stats.norm(mean, std).interval(0.8), 1), rtol=1e-10)
    assert found["weight"].tolist() == rows["weight"].tolist()
    # A count by summing its law, and a positive column of which one group is exponential.
    values = np.arange(200.0)
    for row, ill in enumerate(is_ill):
        log_law = _one(model, "visits") * values + _one(model, "ill", "visits") * ill * np.sqrt(values)
        law = np.exp(log_law + stats.poisson(1.0).logpmf(values))
        share = np.cumsum(law / law.sum())
        found = model.predict(rows, "visits", level=0.9)
        assert found["lower"][row] == np.argmax(share >= 0.05) and found["upper"][row] == np.argmax(share >= 0.95)
        np.testing.assert_allclose(found["mean"][row], (law * values).sum() / law.sum(), rtol=1e-8)
    law = stats.expon(scale=-1 / _one(model, "cost"))
    found = model.predict(rows, "cost")
    np.testing.assert_allclose(found.loc[0, ["lower", "upper"]].astype(float), law.interval(0.95), rtol=2e-3)


def test_intervals_hold_their_share_of_new_rows_and_those_of_another_model_do_not(model: RootFitResult) -> None:
    new = _frame(20_000, 2)
    bound = math.sqrt(math.log(2 / FALSE_ALARM_RATE) / (2 * len(new)))
    for name in ("weight", "cost", "visits"):
        found = model.predict(new, name, level=0.8)
        share = ((found["lower"] <= new[name]) & (new[name] <= found["upper"])).mean()
        assert share > 0.8 - bound - 0.02  # the model was estimated from 2,000 rows
        if name != "visits":  # whose intervals, of whole numbers, hold more
            assert share < 0.8 + bound + 0.02
    # Negative control: with the labels exchanged the shares are too small.
    turned = new.assign(ill=np.where(new["ill"] == "yes", "no", "yes"))
    found = model.predict(turned, "visits", level=0.8)
    assert ((found["lower"] <= new["visits"]) & (new["visits"] <= found["upper"])).mean() < 0.8 - bound - 0.02


def test_a_loaded_model_reads_and_draws_the_same_frames(model: RootFitResult, tmp_path: Path) -> None:
    model.save(tmp_path / "model.safetensors")
    loaded = hoim.load(tmp_path / "model.safetensors")
    new = _frame(50, 3)
    for name in new.columns:
        pd.testing.assert_frame_equal(loaded.predict(new, name), model.predict(new, name))
        without = loaded.predict(new.drop(columns=name), name)
        pd.testing.assert_frame_equal(without, model.predict(new, name)[without.columns])
    assert loaded.score(new)["pseudo_nll"] == pytest.approx(-float(model.log_pseudo_prob(new).mean()), rel=1e-12)
    drawn = loaded.sample(2000, given={"ill": "yes"}, seed=4)
    assert set(drawn["ill"]) == {"yes"} and drawn["visits"].dtype == np.int64
    assert abs(drawn["weight"].mean() - 75) < 1.5 and abs(drawn["visits"].mean() - 9) < 0.8
    pd.testing.assert_frame_equal(drawn, model.sample(2000, given={"ill": "yes"}, seed=4))


def test_labels_that_are_not_known_and_gaps_are_named(model: RootFitResult) -> None:
    new = _frame(5, 3)
    with pytest.raises(UnknownNameError, match=r"row 0 \(counted from 0\), column 'ill'.*'maybe'"):
        model.predict(new.assign(ill="maybe"), "visits")
    with pytest.raises(MissingDataError, match=r"'weight' \(5\)"):
        model.predict(new.assign(weight=np.nan), "visits")
    with pytest.raises(UnknownNameError, match="did you mean 'visits'"):
        model.predict(new, "visit")
    with pytest.raises(UnknownNameError, match="'maybe'"):
        model.sample(3, given={"ill": "maybe"})
    counted = new.assign(count=[2, 0, 1, 1, 1])
    repeated = new.loc[[0, 0, 2, 3, 4]]
    assert model.score(counted)["pseudo_nll"] == pytest.approx(model.score(repeated)["pseudo_nll"], rel=1e-12)
