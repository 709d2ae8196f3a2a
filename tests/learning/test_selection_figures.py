"""The capacity figure shows what it is given."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from pyro_hoim.errors import InputError
from pyro_hoim.report.selection_figures import DARK, LIGHT, capacity_figure


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


def test_one_curve_against_interactions():
    figure = capacity_figure({"one": curve([4.0, 2.0], 1)}, against="num_interactions")
    assert figure.axes[0].get_xlabel() == "interactions"
    assert list(figure.axes[0].get_lines()[0].get_xdata()) == [4, 6]


def test_nothing_to_draw():
    with pytest.raises(InputError, match="at least one capacity curve"):
        capacity_figure({})
    with pytest.raises(InputError, match="'x' has no positive, finite"):
        capacity_figure({"x": curve([np.nan, np.nan], 0)})
