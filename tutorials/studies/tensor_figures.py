"""The figures of paper 3: slices of a cube, coefficients as triangles, l1 balls."""

from collections.abc import Callable
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from pyro_hoim.errors import check_positive, check_whole, wrong_shape
from pyro_hoim.plots.drawing import BLUE, FAINT, INK, ORANGE, plain_axes

__all__ = ["ball_figure", "slices_figure", "symmetric_ball_figure", "triangle_figure"]

_SHADES = ("#e4e9ee", BLUE, ORANGE, "#8f5ea2")  # of entries that hold the index no times, once, twice, three times


def slices_figure(num_variables: int = 4, variable: int = 1) -> Figure:
    """A tensor of order 3: the entries with one index, the three slices they form, and those in several slices.

    Colours say how many of the three indices are the given one: one blue, two orange, three violet.

    Args:
        num_variables: n, from 2 to 6.
        variable: position of the index, from 0.

    Raises:
        InputError: an argument is out of its range.

    References:
        Paper 3, figures 2.1 to 2.3.
    """
    n = check_whole(num_variables, "num_variables", 2, 6)
    r = check_whole(variable, "variable", 0, n - 1)
    index = np.stack(np.meshgrid(*[np.arange(n)] * 3, indexing="ij"))
    times = (index == r).sum(0)
    figure = Figure(figsize=(10.5, 3.9), layout="constrained")
    grid = figure.add_gridspec(1, 3, width_ratios=(1, 1.7, 1))
    whole, parts, twice = (figure.add_subplot(place, projection="3d") for place in grid)
    _cubes(whole, times >= 0, times)
    shift = n + 1
    apart = np.full((n + 2 * shift, n, n), -1)
    for axis in range(3):  # every slice upright, beside the others
        turned = np.moveaxis(times, axis, 0)[r]
        apart[axis * shift + n // 2] = turned
    _cubes(parts, apart >= 0, apart)
    _cubes(twice, times == 2, times, "70")
    _cubes(twice, times == 3, times)
    for axes, title in zip(
        (whole, parts, twice),
        (f"entries with index {r + 1}, n = {n}", "its three slices, all equal", "in two slices, and in three"),
        strict=True,
    ):
        axes.set_title(title, color=INK, fontsize=10)
        axes.set_axis_off()
        axes.view_init(elev=22, azim=-58)
    return figure


def _cubes(axes: Any, is_drawn: np.ndarray, times: np.ndarray, alpha_of_two: str = "ff") -> None:
    colours = np.array(_SHADES, dtype=object)[np.clip(times, 0, 3)]
    alpha = np.array(("40", "ff", alpha_of_two, "ff"), dtype=object)[np.clip(times, 0, 3)]
    axes.voxels(is_drawn, facecolors=colours + alpha, edgecolor="#ffffff", linewidth=0.4, shade=False)
    axes.set_box_aspect(is_drawn.shape)


def triangle_figure(coefficient: Callable[[int, int], int], *, num_rows: int = 7, symbol: str = "") -> Figure:
    """Coefficients of every order as a triangle, order K in the K-th row.

    Args:
        coefficient: a function of order and position, such as ``multiplicity``.
        num_rows: number of orders, from 1 to 12.
        symbol: what is shown, in TeX without dollars.

    Raises:
        InputError: a number of rows out of range.

    References:
        Paper 3, figures 2.4 to 2.6.
    """
    rows = check_whole(num_rows, "num_rows", 1, 12)
    widest = max(len(str(coefficient(rows, m))) for m in range(1, rows + 1))
    step = 0.13 * (widest + 2)
    figure = Figure(figsize=(max(3.0, (rows + 1.5) * step), 0.34 * rows + 0.6), layout="constrained")
    axes = figure.add_subplot()
    for order in range(1, rows + 1):
        axes.text(-(rows + 1) / 2, -order, f"$K = {order}$", color=FAINT, fontsize=9, ha="center", va="center")
        for m in range(1, order + 1):
            number = coefficient(order, m)
            colour = ORANGE if number < 0 else INK
            axes.text(m - (order + 1) / 2, -order, str(number), color=colour, fontsize=10, ha="center", va="center")
    axes.set(xlim=(-(rows + 2) / 2, (rows + 1) / 2), ylim=(-rows - 0.6, -0.4))
    axes.set_axis_off()
    if symbol:
        axes.set_title(f"${symbol}$", color=INK, fontsize=11)
    return figure


def ball_figure(value: Callable[[np.ndarray], np.ndarray], free: np.ndarray, best: np.ndarray, radius: float) -> Figure:
    """Contours of a function of two parameters, its minimum, and its minimum in the l1 ball.

    Args:
        value: the function, from points (..., 2) to values (...).
        free: its minimum, (2,).
        best: its minimum in the ball, (2,).
        radius: of the ball.

    Raises:
        InputError: points of other shapes, a radius that is not positive.

    References:
        Paper 3, figure 3.1.
    """
    free, best = np.asarray(free, dtype=float), np.asarray(best, dtype=float)
    check_positive(radius, "radius")
    for name, point in (("free", free), ("best", best)):
        if point.shape != (2,):
            raise wrong_shape(name, (2,), point)
    reach = 1.25 * max(radius, *np.abs(free))
    x, y = np.meshgrid(*[np.linspace(-reach, reach, 201)] * 2)
    heights = np.asarray(value(np.stack([x, y], -1)))
    low, at_best = float(value(free)), float(value(best))
    levels = low + (at_best - low) * np.array([0.04, 0.25, 1.0, 2.25, 4.0, 6.25, 9.0])
    figure = Figure(figsize=(4.4, 4.2), layout="constrained")
    axes = figure.add_subplot()
    corners = radius * np.array([[1, 0], [0, 1], [-1, 0], [0, -1]])
    axes.fill(*corners.T, facecolor="#fbe9df", edgecolor=ORANGE, linewidth=1.5, zorder=1)
    axes.contour(x, y, heights, levels=np.unique(levels), colors=BLUE, linewidths=0.9, zorder=2)
    plate = {"boxstyle": "square,pad=0.1", "facecolor": "#ffffffb0", "edgecolor": "none"}
    for point, text in ((free, "free minimum"), (best, "minimum in the ball")):
        axes.plot(*point, "o", color=INK, markersize=4.5, zorder=3)
        axes.annotate(
            text, (float(point[0]), float(point[1])), xytext=(-4, 6), textcoords="offset points", ha="right",
            color=INK, fontsize=9, zorder=4, bbox=plate,
        )  # fmt: skip
    axes.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal")
    axes.axhline(0, color=FAINT, linewidth=0.6, zorder=0)
    axes.axvline(0, color=FAINT, linewidth=0.6, zorder=0)
    plain_axes(axes)
    return figure


def symmetric_ball_figure(radius: float = 1.0) -> Figure:
    """The l1 ball of two entries that must be equal: a square, cut to a segment with vertices of its own.

    Args:
        radius: of the ball.

    Raises:
        InputError: a radius that is not positive.

    References:
        Paper 3, figure 4.1 and lemma 4.1.
    """
    check_positive(radius, "radius")
    figure = Figure(figsize=(7.2, 3.6), layout="constrained")
    corners = radius * np.array([[1, 0], [0, 1], [-1, 0], [0, -1]])
    ends = radius / 2 * np.array([[1, 1], [-1, -1]])
    for axes, vertices in zip(figure.subplots(1, 2, sharey=True), (corners, ends), strict=True):
        is_cut = len(vertices) == 2
        axes.fill(
            *corners.T, facecolor="none" if is_cut else "#fbe9df", edgecolor=FAINT if is_cut else ORANGE, linewidth=1.2
        )
        axes.plot(*vertices.T, "o", color=ORANGE, markersize=6, zorder=3)
        if is_cut:
            axes.plot(*vertices.T, color=ORANGE, linewidth=2.2, zorder=2)
        for vertex in vertices:
            text = f"({vertex[0]:g}, {vertex[1]:g})"
            axes.annotate(text, vertex, xytext=(7, 5), textcoords="offset points", color=INK, fontsize=9)
        axes.set(xlim=(-1.3 * radius, 1.6 * radius), ylim=(-1.3 * radius, 1.3 * radius), aspect="equal", xlabel="$x_2$")
        axes.set_title("$x_2 = x_3$" if is_cut else "any entries", color=INK, fontsize=10)
        plain_axes(axes)
    figure.axes[0].set_ylabel("$x_3$", rotation=0)
    return figure
