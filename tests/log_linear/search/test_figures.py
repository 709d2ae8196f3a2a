"""The capacity figure shows what it is given."""

import numpy as np
import pandas as pd
import pytest

from pyro_hoim.errors import InputError
from pyro_hoim.log_linear.search.figures import DARK, LIGHT, capacity_figure


def curve(validation, best):
    number = np.arange(len(validation))
    return pd.DataFrame(
        {
            "num_interactions": 4 + 2 * number,
            "num_parameters": 10 * 2.0**number,
            "train_kl": 4.0 / (1 + number),
            "validation_kl": validation,
            "is_best": number == best,
        }
    )


def test_panels_hold_the_curves():
    curves = {"weak": curve([4.0, 2.0, np.inf, 1.0], 3), "strong": curve([4.0, 3.0, 3.5], 1)}
    figure = capacity_figure(curves, references={"all pairs": 2.5}, columns=1)
    assert [axes.get_title() for axes in figure.axes] == ["weak", "strong"]
    for axes, frame in zip(figure.axes, curves.values(), strict=True):
        lines = {line.get_color(): line for line in axes.get_lines()}
        assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
        np.testing.assert_array_equal(lines[DARK].get_ydata(), frame["train_kl"])
        shown = np.isfinite(frame["validation_kl"])
        np.testing.assert_array_equal(lines[LIGHT].get_ydata(), frame["validation_kl"][shown])
        np.testing.assert_array_equal(lines[LIGHT].get_xdata(), frame["num_parameters"][shown])
        assert [text.get_text() for text in axes.texts] == [f"{frame['validation_kl'][frame['is_best']].iloc[0]:.3f}"]
        assert 2.5 in [line.get_ydata()[0] for line in axes.get_lines()]
    assert [text.get_text() for text in figure.legends[0].get_texts()][-1] == "all pairs"


@pytest.mark.parametrize(("kind", "label"), [("exact", "NLL"), ("pseudo-likelihood", "pseudo-NLL")])
def test_losses_in_place_of_divergences(kind, label):
    frame = curve([np.nan, np.nan], 1).assign(train_loss=[9.0, 7.0], validation_loss=[9.5, 8.0], loss_kind=kind)
    (axes,) = capacity_figure({"one": frame}, measure="loss").axes
    lines = {line.get_color(): line for line in axes.get_lines()}
    np.testing.assert_array_equal(lines[DARK].get_ydata(), [9.0, 7.0])
    np.testing.assert_array_equal(lines[LIGHT].get_ydata(), [9.5, 8.0])
    assert axes.get_ylabel() == f"{label}, nats per row" and axes.texts[0].get_text() == "8.000"


def test_nothing_to_draw():
    with pytest.raises(InputError, match="at least one capacity curve"):
        capacity_figure({})
    with pytest.raises(InputError, match="'x' has no positive, finite"):
        capacity_figure({"x": curve([np.nan, np.nan], 0)})


def test_rounds_of_one_size_stand_beside_the_line():
    frame = curve([4.0, 3.0, 2.0, 1.0], 3)
    frame["num_parameters"] = [10.0, 30.0, 30.0, 90.0]
    (axes,) = capacity_figure({"one": frame}).axes
    for colour, name in ((DARK, "train_kl"), (LIGHT, "validation_kl")):
        line, beside = (line for line in axes.get_lines() if line.get_color() == colour)
        assert (
            line.get_xdata().tolist() == [10, 30, 90] and line.get_ydata().tolist() == frame[name][[0, 2, 3]].tolist()
        )
        assert (beside.get_xdata().tolist(), beside.get_ydata().tolist()) == ([30], [frame[name][1]])
        assert beside.get_linestyle() != "-" or len(beside.get_xdata()) == 1
    assert axes.get_xticks().tolist() == [10, 30, 90]


def test_one_size_and_a_narrow_range_have_ticks():
    frame = curve([0.52, 0.5], 1).assign(num_parameters=40.0, train_kl=[0.51, 0.49])
    figure = capacity_figure({"one": frame})
    figure.canvas.draw()
    (axes,) = figure.axes
    assert axes.get_xticks().tolist() == [40] and axes.get_xlim() == (20, 80)
    low, high = axes.get_ylim()
    assert sum(low < tick < high for tick in axes.get_yticks()) >= 3
    assert not len(axes.xaxis.get_minorticklocs()) and not len(axes.yaxis.get_minorticklocs())
    wide = capacity_figure({"one": curve([4.0, 3.0, 2.0, 1.0, 0.5], 4)}).axes[0]
    assert {10, 20, 50, 100} <= set(wide.get_xticks().tolist())  # control: decades have round ticks
