"""Mosaics and association plots: areas, heights and shades are those of the table; labels are whole and apart."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from scipy.stats import chi2_contingency

from pyro_hoim import Domain, Observations, load_table
from pyro_hoim.errors import InputError, InputTypeError, UnknownNameError
from pyro_hoim.plots import (
    figure_of,
    independent_counts,
    mosaic_tiles,
    pearson_residuals,
    plot_association,
    plot_fitted,
    plot_mosaic,
    plot_residuals,
)
from pyro_hoim.plots.drawing import BLUE, ORANGE
from pyro_hoim.plots.mosaic import shade, spread

HAIR = load_table("hair_eye_color")
NAMES = ["Eye", "Sex", "Hair"]
LONG = [f"region number {k} of the north-western part, where it rains" for k in range(9)]


def counts_of(names):
    """The table with its axes in the order of the names."""
    table = HAIR.project(names)
    axes = [table.domain.index(name) for name in names]
    return table.table().numpy().transpose(axes)


def tiles_of(axes):
    return [patch for patch in axes.patches if isinstance(patch, Rectangle)]


@pytest.mark.parametrize("names", [["Hair"], ["Eye", "Hair"], NAMES])
def test_areas_of_tiles_are_proportional_to_counts(names):
    counts = counts_of(names)
    drawn = tiles_of(plot_mosaic(HAIR, names, ax=Figure()))
    areas = np.array([tile.get_width() * tile.get_height() for tile in drawn])
    assert areas / areas.sum() == pytest.approx(counts.ravel() / counts.sum(), rel=1e-12)
    assert np.ptp(areas / counts.ravel()) < 1e-12  # control: areas of another table are not
    assert np.ptp(areas / counts.ravel()[::-1]) > 1e-4


def test_tiles_fill_the_square_and_do_not_overlap():
    counts = counts_of(NAMES)
    tiles = mosaic_tiles(counts).reshape(-1, 4)
    assert tiles.min() >= 0 and (tiles[:, :2] + tiles[:, 2:]).max() <= 1 + 1e-12
    assert tiles[:, 0].min() == 0 and (tiles[:, 0] + tiles[:, 2]).max() == pytest.approx(1, abs=1e-12)
    for i in range(len(tiles)):
        for j in range(i):
            low, high = (
                np.maximum(tiles[i, :2], tiles[j, :2]),
                np.minimum(tiles[i, :2] + tiles[i, 2:], tiles[j, :2] + tiles[j, 2:]),
            )
            assert (high - low).min() <= 1e-12


def test_shades_are_those_of_residuals_from_independence():
    counts = counts_of(["Hair", "Eye"])
    expected = chi2_contingency(counts, correction=False).expected_freq
    assert independent_counts(counts) == pytest.approx(expected, rel=1e-12)
    residual = (counts - expected) / np.sqrt(expected)
    assert pearson_residuals(counts, expected) == pytest.approx(residual, rel=1e-12)
    axes = plot_mosaic(HAIR, ["Hair", "Eye"], ax=Figure())
    assert [to_hex(tile.get_facecolor()) for tile in tiles_of(axes)] == [shade(r) for r in residual.ravel()]
    assert shade(4.1) == BLUE and shade(-4.1) == ORANGE and shade(1.9) == shade(-1.9) == shade(np.nan)
    assert len({shade(r) for r in (-5.0, -3.0, 0.0, 3.0, 5.0)}) == 5
    words = [text.get_text() for text in axes.get_legend().get_texts()]
    assert words == ["above 4", "2 to 4", "−2 to 2", "−4 to −2", "below −4", "no row"]
    flat = plot_mosaic(HAIR, ["Hair", "Eye"], expected=counts, ax=Figure())  # control: a model that fits exactly
    assert {to_hex(tile.get_facecolor()) for tile in tiles_of(flat)} == {shade(0.0)}


def test_cells_without_rows_are_lines_and_missing_cells_are_left_out():
    frame = pd.DataFrame({"a": ["x", "x", "y", None], "b": ["u", "v", "v", "u"]})
    axes = plot_mosaic(frame, ax=Figure())
    assert len(tiles_of(axes)) == 3
    areas = [tile.get_width() * tile.get_height() for tile in tiles_of(axes)]
    assert np.ptp(areas) < 1e-12


def test_bars_of_associations_are_residuals_and_roots():
    counts = counts_of(["Hair", "Eye"])
    expected = independent_counts(counts)
    axes = plot_association(HAIR, ["Hair", "Eye"], ax=Figure())
    bars = tiles_of(axes)
    residual = ((counts - expected) / np.sqrt(expected)).ravel()
    assert [bar.get_height() for bar in bars] == pytest.approx(residual, rel=1e-12)
    assert [bar.get_width() for bar in bars] == pytest.approx(np.sqrt(expected).ravel(), rel=1e-12)
    area = [bar.get_height() * bar.get_width() for bar in bars]
    assert area == pytest.approx((counts - expected).ravel(), rel=1e-9)
    colours = [to_hex(bar.get_facecolor()) for bar in bars]
    assert colours == [BLUE if r > 0 else ORANGE for r in residual]
    bases = np.array([bar.get_y() for bar in bars]).reshape(counts.shape)
    assert np.ptp(bases, axis=1).max() == 0 and (np.diff(bases[:, 0]) < 0).all()
    assert [tick.get_text() for tick in axes.get_yticklabels()] == list(HAIR.domain["Hair"].labels)


def test_points_of_fitted_cells():
    observed, expected = np.array([30.0, 10.0, 21.0, 0.0]), np.array([20.0, 20.0, 20.0, 0.0])
    axes = plot_fitted(observed, expected, ax=Figure())
    points = {line.get_marker(): line.get_xydata().tolist() for line in axes.lines if line.get_linestyle() == "None"}
    assert points == {"o": [[20.0, 21.0], [0.0, 0.0]], "^": [[20.0, 30.0]], "v": [[20.0, 10.0]]}
    axes = plot_residuals(expected, pearson_residuals(observed, expected), ax=Figure())
    points = {line.get_marker(): line.get_ydata().tolist() for line in axes.lines if line.get_linestyle() == "None"}
    assert [*points["^"], *points["v"]] == pytest.approx([10 / 20**0.5, -10 / 20**0.5])


def test_labels_of_many_long_levels_are_whole_and_apart(misplaced):
    rng = np.random.default_rng(0)
    levels = ["strongly agree", "agree", "neither agree nor disagree", "disagree", "strongly disagree"]
    frame = pd.DataFrame(
        {"where do you live": rng.choice(LONG, 500), "answer": rng.choice(levels, 500, p=[0.6, 0.3, 0.08, 0.01, 0.01])}
    )
    for plot, names in ((plot_mosaic, ["where do you live", "answer"]), (plot_mosaic, ["answer", "where do you live"])):
        figure = figure_of(plot, frame, names)
        assert misplaced(figure) == ([], [])
        words = " ".join(text.get_text() for text in figure.findobj(lambda a: hasattr(a, "get_fontsize")))
        assert all(" ".join(label.split()) in " ".join(words.split()) for label in LONG)
    figure = figure_of(plot_mosaic, load_table("titanic"))
    assert misplaced(figure) == ([], [])
    figure.set_layout_engine("none")
    figure.set_size_inches(2.0, 2.0)  # control: the checks see labels that do not fit
    assert any(misplaced(figure))


def test_spread_keeps_the_order_and_the_distance():
    places = np.array([0.1, 0.11, 0.12, 0.9, 0.99])
    moved = spread(places, 0.05)
    assert (np.diff(moved) >= 0.05 - 1e-12).all() and moved.min() >= 0 and moved.max() <= 1
    assert spread(places, 0.0) == pytest.approx(places)
    assert np.diff(spread(places, 9.0)) == pytest.approx(0.25)  # no room: as far apart as it goes


def test_bad_tables_are_refused():
    rows = Observations.from_table(Domain.from_cardinalities([2] * 5), np.ones((2,) * 5))
    with pytest.raises(InputError, match="names: expected at most 4 different variables, received 5; name the variab"):
        plot_mosaic(rows, ax=Figure())
    with pytest.raises(InputError, match="names"):
        plot_mosaic(rows, ["x0", "x0"], ax=Figure())
    with pytest.raises(UnknownNameError, match="x1"):
        plot_mosaic(rows, ["x11"], ax=Figure())
    with pytest.raises(InputError, match=r"expected: expected shape \(2, 2\), received \(2, 3\)"):
        plot_mosaic(rows, ["x0", "x1"], expected=np.ones((2, 3)), ax=Figure())
    with pytest.raises(InputError, match="at least two variables"):
        plot_association(rows, ["x0"], ax=Figure())
    with pytest.raises(InputError, match="data: expected at least one row"):
        plot_mosaic(Observations.from_table(Domain.from_cardinalities([2]), np.zeros(2)), ax=Figure())
    with pytest.raises(InputTypeError, match="ax: expected matplotlib axes, an empty figure or None, received str"):
        plot_mosaic(rows, ["x0"], ax="left")
    with pytest.raises(InputError, match="observed: expected finite counts"):
        pearson_residuals([-1.0], [1.0])
