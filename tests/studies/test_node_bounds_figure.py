"""The picture of node bounds shows the terms, g, and lines on their sides."""

import io
import math

import numpy as np
import pytest

from pyro_hoim.errors import InputError
from pyro_hoim.generalized_root import ExponentialFamily, GaussianFamily, PoissonFamily, node_bounds
from pyro_hoim.plots.drawing import BLUE, INK, ORANGE

from studies.node_bounds_figure import node_bounds_figure

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
