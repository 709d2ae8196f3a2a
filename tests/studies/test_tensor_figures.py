"""Pictures of tensors show the entries, coefficients and vertices that they name."""

import itertools

import numpy as np
import pytest
from matplotlib.colors import to_hex

from pyro_hoim.errors import InputError
from pyro_hoim.log_linear import multiplicity, slice_coefficient
from pyro_hoim.plots.drawing import BLUE, ORANGE

from studies.tensor_figures import _SHADES, ball_figure, slices_figure, symmetric_ball_figure, triangle_figure


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
