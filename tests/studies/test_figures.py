"""Figures of the papers show the entries, bounds and means that they name."""

import io
import itertools
import math

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_hex

from pyro_hoim.errors import InputError
from pyro_hoim.generalized_root import ExponentialFamily, GaussianFamily, PoissonFamily, node_bounds
from pyro_hoim.log_linear import multiplicity, slice_coefficient
from pyro_hoim.plots.drawing import BLUE, INK, ORANGE

from studies.bias_variance_figures import (
    against_complexity,
    against_parameters,
    against_rows,
    drawings,
    grids,
    read_table,
)
from studies.node_bounds_figure import node_bounds_figure
from studies.tensor_figures import _SHADES, ball_figure, slices_figure, symmetric_ball_figure, triangle_figure

# Tensors


def faces(axes):
    """Colours of all faces of the cubes of a panel."""
    return [to_hex(colour) for part in axes.collections for colour in part.get_facecolor()]


def test_slices_show_how_often_entries_hold_the_index():
    figure = slices_figure(4, 1)
    whole, parts, twice = figure.axes
    assert whole.get_title() == "entries with index 2, n = 4"
    slices = faces(parts)
    flat = [sum(index == 1 for index in (1, j, k)) for j, k in itertools.product(range(4), repeat=2)]
    counts = {times: flat.count(times) for times in (1, 2, 3)}  # 9, 6 and 1 of the 16 entries of a slice
    for times, colour in zip((1, 2, 3), (BLUE, ORANGE, _SHADES[3]), strict=True):
        edges = {1: 4 + 4 + 2, 2: 2 + 2, 3: 0}[times]  # faces on the rim
        assert slices.count(colour) <= 3 * (2 * counts[times] + 2 * edges)
        assert slices.count(colour) >= 3 * 2 * counts[times]
    assert set(faces(twice)) == {ORANGE, _SHADES[3]}
    assert faces(twice).count(_SHADES[3]) == 6  # one cube, the entry that is in all three slices
    assert {BLUE, ORANGE, _SHADES[0]} <= set(faces(whole))


@pytest.mark.parametrize("coefficient", [multiplicity, slice_coefficient])
def test_triangles_show_every_coefficient(coefficient):
    (axes,) = triangle_figure(coefficient, num_rows=5, symbol="a").axes
    shown = [text.get_text() for text in axes.texts if "K" not in text.get_text()]
    assert shown == [str(coefficient(order, m)) for order in range(1, 6) for m in range(1, order + 1)]
    assert axes.get_title() == "$a$"


def test_balls_and_contours():
    def value(points):
        return ((points - np.array([1.5, 0.4])) ** 2).sum(-1)

    (axes,) = ball_figure(value, np.array([1.5, 0.4]), np.array([1.0, 0.0]), 1.0).axes
    assert [line.get_xydata().tolist() for line in axes.get_lines()[:2]] == [[[1.5, 0.4]], [[1.0, 0.0]]]
    assert axes.patches[0].get_xy().tolist()[:4] == [[1, 0], [0, 1], [-1, 0], [0, -1]]
    left, right = symmetric_ball_figure(2.0).axes
    assert left.get_lines()[0].get_xydata().tolist() == [[2, 0], [0, 2], [-2, 0], [0, -2]]
    assert right.get_lines()[0].get_xydata().tolist() == [[1, 1], [-1, -1]]


@pytest.mark.parametrize(
    ("draw", "text"),
    [
        (lambda: slices_figure(7), "num_variables: expected a whole number from 2 to 6"),
        (lambda: slices_figure(3, 3), "variable: expected a whole number from 0 to 2"),
        (lambda: triangle_figure(multiplicity, num_rows=0), "num_rows: expected a whole number from 1 to 12"),
        (lambda: symmetric_ball_figure(0), "radius: expected a positive finite number"),
        (lambda: ball_figure(np.sum, np.zeros(3), np.zeros(2), 1.0), "free: expected shape"),
    ],
)
def test_bad_input(draw, text):
    with pytest.raises(InputError, match=text):
        draw()


# Bounds of a node


ETA = (3.0232, -4.4966)


def lines(axes, colour):
    return [line for line in axes.lines if line.get_color() == colour]


def test_figure_two_of_the_paper():
    poisson = PoissonFamily()
    bounds = [node_bounds(poisson, ETA, num_subdomains=n) for n in (2, 5)]
    figure = node_bounds_figure(poisson, ETA, bounds)
    assert len(figure.axes) == 4
    for column, bound in enumerate(bounds):
        top, bottom = figure.axes[column], figure.axes[2 + column]
        heights = np.array([bar.get_height() for bar in top.patches])
        x = np.arange(heights.size)
        expected = [math.exp(ETA[0] * v + ETA[1] * math.sqrt(v) - math.lgamma(v + 1)) for v in x]
        np.testing.assert_allclose(heights, expected, rtol=1e-12)
        assert expected[-1] < 1e-3 * max(expected)
        above = np.concatenate([line.get_ydata() for line in lines(top, ORANGE)])
        below = np.concatenate([line.get_ydata() for line in lines(top, BLUE)])
        assert (above >= heights * (1 - 1e-9)).all() and (below <= heights * (1 + 1e-9)).all()
        assert np.log(below.sum()) == pytest.approx(bound.lower, abs=1e-3)
        (curve,) = lines(bottom, INK)
        np.testing.assert_allclose(curve.get_ydata(), ETA[1] * np.sqrt(curve.get_xdata()), rtol=1e-12, atol=1e-12)
        assert len(lines(bottom, ORANGE)) == len(lines(bottom, BLUE)) == len(bound.subdomains)
        for line in lines(bottom, ORANGE):
            assert (line.get_ydata() >= ETA[1] * np.sqrt(line.get_xdata()) - 1e-9).all()
        assert f"{len(bound.subdomains)} subdomains" in top.get_title()
        assert f"{bound.lower:.3f}" in top.get_title()
    figure.savefig(io.BytesIO())


def test_reals_and_powers():
    eta = (-1.0, 2.0, -3.0)
    bound = node_bounds(ExponentialFamily(), eta, 1.0, 5)
    figure = node_bounds_figure(ExponentialFamily(), eta, [bound])
    assert len(figure.axes) == 2
    figure.savefig(io.BytesIO())


def test_what_cannot_be_drawn_is_refused():
    poisson = PoissonFamily()
    with pytest.raises(InputError, match="at least one"):
        node_bounds_figure(poisson, ETA, [])
    with pytest.raises(InputError, match="expected one power"):
        node_bounds_figure(poisson, ETA, [node_bounds(poisson, ETA, p) for p in (0.0, 1.0)])
    gaussian = GaussianFamily()
    with pytest.raises(InputError, match="one half line"):
        node_bounds_figure(gaussian, (-1.0, 2.0), [node_bounds(gaussian, (-1.0, 2.0))])


# Bias and variance


@pytest.fixture
def figures():
    """Figures 1 to 9."""
    table = read_table()
    made = drawings() | grids(table) | against_rows(table) | against_complexity(table) | against_parameters(table)
    yield made
    for figure in made.values():
        plt.close(figure)


def test_nine_pictures_with_the_numbers_of_the_table(figures):
    assert sorted(figures) == [f"figure_{number}" for number in range(1, 10)]
    table = read_table().set_index(["kind", "num_rows"])
    for column, size in enumerate((50, 500, 5000, 50_000)):  # figure 9, its upper row
        shown = [line for line in figures["figure_9"].axes[column].lines if len(line.get_xdata()) > 2]
        for line, kind in zip(shown, ("rbm", "hbm"), strict=True):
            rows = table.loc[(kind, size)].sort_values("num_parameters")
            assert np.array_equal(line.get_xdata(), rows["num_parameters"])
            assert np.array_equal(line.get_ydata(), rows["total"])
    image = figures["figure_4"].axes[0].images[0].get_array()  # log10 of the total error, orders by sizes
    errors = read_table().query("kind == 'hbm'").pivot_table(index="complexity", columns="num_rows", values="total")
    assert np.allclose(image, np.log10(errors))
