"""Calibration and the receiver operating characteristic, against scikit-learn and statsmodels."""

import numpy as np
import pytest
from matplotlib.figure import Figure
from sklearn.calibration import calibration_curve
from sklearn.metrics import roc_auc_score, roc_curve
from statsmodels.stats.proportion import proportion_confint

from pyro_hoim.errors import InputError
from pyro_hoim.plots import calibration_table, figure_of, plot_calibration, plot_roc, roc_points

RNG = np.random.default_rng(0)
CHANCE = np.round(RNG.random(400), 2)  # with ties
HAPPENED = RNG.random(400) < CHANCE**1.5


def test_area_and_curve_are_those_of_scikit_learn():
    false, true, area = roc_points(CHANCE, HAPPENED)
    theirs = roc_curve(HAPPENED, CHANCE, drop_intermediate=False)
    assert false == pytest.approx(theirs[0], abs=1e-15) and true == pytest.approx(theirs[1], abs=1e-15)
    assert area == pytest.approx(roc_auc_score(HAPPENED, CHANCE), abs=1e-12)
    noisy = roc_points(np.where(HAPPENED, CHANCE - 0.1, CHANCE), HAPPENED)[2]
    assert noisy < area - 0.01  # control: worse scores have a smaller area


def test_ties_count_one_half():
    assert roc_points([0.5] * 6, [0, 1, 0, 1, 1, 0])[2] == 0.5
    assert roc_points([0.2, 0.5, 0.5, 0.9], [0, 0, 1, 1])[2] == 0.875
    ranks = [2, 2, 1, 0, 0]
    infinite = [np.inf, np.inf, 0.0, -np.inf, -np.inf]  # log odds of certain predictions
    assert roc_points(infinite, [1, 0, 0, 1, 0])[2] == roc_auc_score([1, 0, 0, 1, 0], ranks) == 0.5
    assert roc_points([1.0, 2.0], [0, 1])[2] == 1.0 and roc_points([1.0, 2.0], [1, 0])[2] == 0.0


def test_bins_are_those_of_scikit_learn_and_intervals_those_of_wilson():
    table = calibration_table(CHANCE, HAPPENED, bins=7)
    share, predicted = calibration_curve(HAPPENED, CHANCE, n_bins=7)
    assert table["observed"].to_numpy() == pytest.approx(share, rel=1e-12)
    assert table["predicted"].to_numpy() == pytest.approx(predicted, rel=1e-12)
    events = (table["observed"] * table["count"]).round()
    low, high = proportion_confint(events, table["count"], 0.05, method="wilson")
    assert table["lower"].to_numpy() == pytest.approx(np.asarray(low), abs=1e-12)
    assert (table["upper"].to_numpy(), table["count"].sum()) == (pytest.approx(np.asarray(high), abs=1e-12), 400)
    assert calibration_table([1.0, 0.0], [1, 0])["lower_edge"].tolist() == [0.0, 0.9]


def test_pictures_hold_the_numbers(misplaced):
    table = calibration_table(CHANCE, HAPPENED)
    figure = figure_of(plot_calibration, CHANCE, HAPPENED)
    (axes,) = figure.axes
    (points,) = [line for line in axes.lines if line.get_marker() == "o"]
    assert points.get_xydata() == pytest.approx(table[["predicted", "observed"]].to_numpy())
    assert [text.get_text() for text in axes.texts] == [str(n) for n in table["count"]]
    ends = np.array([segment[:, 1] for segment in axes.collections[0].get_segments()])
    assert ends == pytest.approx(table[["lower", "upper"]].to_numpy())
    assert misplaced(figure) == ([], [])
    figure = figure_of(plot_roc, CHANCE, HAPPENED, name="tree")
    axes = plot_roc(1 - CHANCE, HAPPENED, ax=figure.axes[0], name="reverse", colour="red")
    area = roc_points(CHANCE, HAPPENED)[2]
    words = [text.get_text() for text in axes.get_legend().get_texts()]
    assert words == [f"tree: area {area:.3f}", f"reverse: area {1 - area:.3f}", "guessing"]
    assert misplaced(figure) == ([], [])


def test_bad_predictions_are_refused():
    with pytest.raises(InputError, match=r"scores, outcomes: expected shape \(n,\) both"):
        roc_points([0.1, 0.2], [1])
    with pytest.raises(InputError, match="some rows with the event and some without"):
        roc_points([0.1, 0.2], [1, 1])
    with pytest.raises(InputError, match=r"outcomes: expected True or False .* compare the column with the level"):
        plot_roc([0.1, 0.2], ["yes", "no"], ax=Figure())
    with pytest.raises(InputError, match=r"probabilities: expected numbers from 0 to 1, received 0\.5 to 1\.5"):
        plot_calibration([0.5, 1.5], [0, 1], ax=Figure())
    with pytest.raises(InputError, match="scores: expected numbers, received NaN"):
        roc_points([np.nan, 1.0], [0, 1])
    with pytest.raises(InputError, match="at least one row"):
        calibration_table([], [])
