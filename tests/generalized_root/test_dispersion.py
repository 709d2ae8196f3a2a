"""Counts and positive numbers that vary otherwise than a root model says, and rows that say nothing of an error."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats

import pyro_hoim as hoim
from pyro_hoim import Domain, Variable
from pyro_hoim.errors import DataWarning
from pyro_hoim.generalized_root import (
    GeneralizedRootEnergy,
    RootFitResult,
    RootSettings,
    RootStructure,
    TruncatedPoissonFamily,
    dispersions,
)

pytestmark = pytest.mark.usefixtures("words_alone")

_SAID = {"visits": "count", "cost": "positive", "ill": "binary", "weight": "real"}
_ROWS = 800


def _frame(is_even: bool, seed: int = 3) -> pd.DataFrame:
    """Columns of the families that are said, or with a variance of count and cost that these do not have."""
    rng = np.random.default_rng(seed)
    ill = rng.integers(0, 2, _ROWS)
    mean = np.where(ill, 9.0, 5.0)
    visits = rng.poisson(mean if is_even else mean * rng.gamma(0.7, 1 / 0.7, _ROWS))
    cost = rng.exponential(20.0, _ROWS) if is_even else rng.gamma(5.0, 4.0, _ROWS)
    return pd.DataFrame({"visits": visits, "cost": cost, "ill": ill, "weight": rng.normal(70, 8, _ROWS)})


def _fit(frame: pd.DataFrame, interactions: str | list[str] = "ill:visits + ill:cost") -> RootFitResult:
    return hoim.fit_roots(frame, family=_SAID, interactions=interactions, settings=RootSettings(jobs=1))


def test_ratios_are_those_of_pearsons_statistic_and_none_is_told_of_a_law_that_holds() -> None:
    frame = _frame(is_even=False)
    model = _fit(frame, [])
    visits, cost = frame["visits"].to_numpy(), frame["cost"].to_numpy()
    found = model.dispersion
    assert found.keys() == {"visits", "cost"}
    assert found["visits"] == pytest.approx(visits.var() / visits.mean(), rel=1e-5)
    assert found["cost"] == pytest.approx(cost.var() / cost.mean() ** 2, rel=1e-5)
    # Negative control.
    assert not _fit(_frame(is_even=True)).dispersion
    # Rows that were seen twice are two rows.
    assert model.columns is not None
    law, rows = model.energy(), torch.from_numpy(model.columns.encode(frame))
    twice = dispersions(law, rows, torch.full((_ROWS,), 2.0))
    assert twice == pytest.approx(dispersions(law, rows.repeat(2, 1)), rel=1e-12)


def test_columns_of_two_values_are_labels_and_have_no_variance_of_their_own() -> None:
    names = [Variable("ill", kind="count"), Variable("tests", kind="count")]
    families, psi = [TruncatedPoissonFamily(1), TruncatedPoissonFamily(2)], torch.full((2,), -3.0, dtype=torch.float64)
    law = GeneralizedRootEnergy(RootStructure.independent(Domain(names)), psi, families)
    rows = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64).repeat(100, 1)  # ones far too often
    assert dispersions(law, rows).keys() == {"tests"}  # a count up to two is the control


def test_summaries_say_it_also_of_a_loaded_model_and_intervals_are_as_narrow_as_they_say(tmp_path: Path) -> None:
    frame = _frame(is_even=False)
    model = _fit(frame)
    model.save(tmp_path / "model.safetensors")
    for one in (model, hoim.load(tmp_path / "model.safetensors")):
        notes = " ".join(one.summary().attrs["notes"])
        assert "vary more than the model says" in notes and "visits" in notes and "too narrow" in notes
        assert "vary less than the model says" in notes and "cost" in notes and "too wide" in notes
        page = one.report(tmp_path / "page").read_text(encoding="utf-8")
        assert "Numbers vary more than the model says" in page.partition("What limits this")[2]
    even = _fit(_frame(is_even=True))
    assert "than the model says" not in " ".join(even.summary().attrs["notes"])
    assert "than the model says" not in even.report(tmp_path / "even").read_text(encoding="utf-8")
    # What the sentences say, by counting: shares inside intervals of 80 %.
    shares = {}
    for name in ("visits", "cost"):
        for is_even, fitted in ((True, even), (False, model)):
            new = _frame(is_even, seed=4)
            ends = fitted.predict(new, name, level=0.8)
            shares[name, is_even] = ((ends["lower"] <= new[name]) & (new[name] <= ends["upper"])).mean()
    bound = stats.norm.isf(5e-7) * np.sqrt(0.8 * 0.2 / _ROWS) + 0.02
    assert shares["visits", True] > 0.8 - bound > shares["visits", False]
    assert abs(shares["cost", True] - 0.8) < bound and shares["cost", False] > 0.8 + bound


def test_an_effect_that_is_infinite_or_not_identified_has_no_interval_and_a_note() -> None:
    frame = _frame(is_even=True).head(200)
    frame["region"] = np.random.default_rng(6).choice(["east", "south", "west"], len(frame))
    frame.loc[frame["region"] == "south", "ill"] = 1  # of which all are ill
    model = hoim.fit_roots(
        frame,
        family={**_SAID, "region": "category"},
        interactions="ill:region + ill:weight",
        settings=RootSettings(jobs=1),
    )
    for table, what in ((model.effects(), "effect"), (model.odds_ratios(), "ratio")):
        lost = "s have no errors" if what == "effect" else " has no error"
        limits = table[["lower", "upper"]].to_numpy(dtype=float)
        assert not np.isinf(limits).any() and np.isnan(limits).any() and np.isfinite(limits).all(1).any()
        assert f"{what}{lost}: not identified by the rows, or infinite" in " ".join(table.attrs["notes"])


def test_scores_that_are_equal_in_all_rows_make_no_standard_error() -> None:
    # Both rows are one standard deviation from the mean, so that nothing is known of how well it is known.
    model = _fit(pd.DataFrame({"weight": [60.0, 70.0], "ill": [0, 1], "visits": [3, 5], "cost": [1.0, 2.0]}), [])
    square = model.summary().query("term == 'weight' and root == 1").iloc[0]
    assert np.isnan(square["std_error"]) and np.isnan(square["lower"]) and np.isfinite(square["estimate"])
    others = model.summary().query("term in ('ill', 'visits', 'cost')")
    assert np.min(others["std_error"].to_numpy(dtype=float)) > 1e-3


def test_a_count_that_one_row_alone_has_is_warned_of_and_two_rows_are_not() -> None:
    frame = _frame(is_even=True).head(300)
    with pytest.warns(DataWarning, match="all rows but one have the same value of 'visits'"):
        _fit(frame.assign(visits=[1] + [0] * 299), "ill:weight")
    _fit(frame.assign(visits=[1, 1] + [0] * 298), "ill:weight")
