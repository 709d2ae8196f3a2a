"""Picture of a dependency network: what is predicted from what, as arrows on a circle or as a matrix."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch

from ...errors import out_of_range
from ...plots.drawing import BLUE, FONT, INK, ORANGE, figure_of, legend_below, wrapped
from ...plots.hypergraph import circle_axes, circle_labels, circle_order, circle_places, draw_variables
from ...plots.pairs import plot_pairs
from ...schema import Domain
from ...structure.hypergraph import InteractionHypergraph

__all__ = ["dependency_figure", "dependency_matrix_figure"]

Arrows = Mapping[tuple[str, str], float]


def _checked(domain: Domain, values: Arrows) -> dict[tuple[str, str], float]:
    """The arrows, the strongest first; negative values, NaN, other names and arrows to themselves are refused."""
    for edge, value in values.items():
        domain.indices(edge)
        if not 0 <= value < math.inf:
            raise out_of_range("values", "finite numbers of at least 0", received=f"{value} for {edge}")
    return dict(sorted(values.items(), key=lambda item: (-item[1], *map(domain.index, item[0]))))


def _order(domain: Domain, values: Arrows) -> tuple[str, ...]:
    """Variables so that those that tell much of each other stand side by side."""
    both: dict[tuple[str, ...], float] = {}
    for edge, value in values.items():
        pair = domain.project(edge).names
        both[pair] = both.get(pair, 0.0) + value
    return circle_order(InteractionHypergraph(domain, list(both), hierarchical=False), both)


def dependency_figure(
    domain: Domain,
    values: Arrows,
    *,
    target: str | None = None,
    top: int | None = 80,
) -> Figure:
    """Variables on a circle, an arrow from every variable to those that are predicted from it.

    Arrows of two variables that are predicted from each other bend to different sides.

    Args:
        domain: the variables.
        values: non-negative weight of every arrow by (from, to), such as the information gained; widths and
            depths of colour are relative to the largest.
        target: arrows into and out of this variable are orange.
        top: at most so many arrows, the strongest; all when None.

    Raises:
        InputError: a negative or infinite value, or an arrow from a variable to itself.
        UnknownNameError: a name that is no variable.

    Example:
        >>> domain = Domain.from_cardinalities({"a": 2, "b": 2, "c": 2})
        >>> len(dependency_figure(domain, {("a", "b"): 0.4, ("b", "a"): 0.4, ("a", "c"): 0.1}).axes[0].patches)
        3
    """
    found = _checked(domain, values)
    order = _order(domain, found)
    place = circle_places(order)
    shown = list(found)[:top]
    highest = max(found.values(), default=0.0) or 1.0
    handles = _legend(found, shown, target, len(order))
    texts, key = circle_labels(domain.names)
    figure = Figure()
    axes = circle_axes(figure, texts)
    for edge in reversed(shown):
        _arrow(axes, place[edge[0]], place[edge[1]], found[edge] / highest, target in edge, len(order))
    draw_variables(axes, dict(zip(domain.names, texts, strict=True)), {}, place)
    legend_below(None, axes, handles, key)
    return figure


def _arrow(axes: Axes, start: np.ndarray, end: np.ndarray, share: float, is_target: bool, size: int) -> None:
    """One arrow, bent to the right of its direction."""
    room = 5.0 if size > 30 else 7.0 if size > 8 else 10.0  # points between an arrow and the middle of its variables
    scale = 0.55 if size > 30 else 1.0
    axes.add_patch(
        FancyArrowPatch(
            (float(start[0]), float(start[1])),
            (float(end[0]), float(end[1])),
            connectionstyle="arc3,rad=0.16",
            arrowstyle=f"-|>,head_length={scale * (4 + 3.5 * share):.2f},head_width={scale * (2 + 2.2 * share):.2f}",
            shrinkA=room,
            shrinkB=room,
            linewidth=_width(share, size),
            color=ORANGE if is_target else BLUE,
            alpha=0.38 + 0.57 * share,
            zorder=2 + share + (1 if is_target else 0),
        )
    )


def _width(share: float, size: int) -> float:
    """Points of a line, thinner where many variables stand close."""
    return 0.6 + (1.5 if size > 30 else 3.4) * share


def _legend(values: Arrows, shown: Sequence[tuple[str, str]], target: str | None, size: int) -> list[Any]:
    """What arrows mean, how many there are, and the scale of widths."""
    if not values:
        return []
    count = f"{len(values)}" if len(shown) == len(values) else f"strongest {len(shown)} of {len(values)}"
    lines = [
        Line2D([], [], linestyle="", label="a → b: b is predicted from a"),
        Line2D([], [], color=BLUE, linewidth=0, label=f"arrows: {count}"),
    ]
    highest = max(values.values()) or 1.0
    for share in (1.0, 0.5, 0.25):
        label = f"{highest * share:.2g} nats a row"
        lines.append(Line2D([], [], color=BLUE, linewidth=_width(share, size), alpha=0.38 + 0.57 * share, label=label))
    if target is not None and any(target in edge for edge in shown):
        lines.append(Line2D([], [], color=ORANGE, linewidth=3, label=wrapped(f"into or out of {target}", 40)))
    return lines


def dependency_matrix_figure(domain: Domain, values: Arrows) -> Figure:
    """What is predicted from what as a matrix: a row is a variable, its columns are those it is predicted from.

    Arguments, errors and the order of variables are those of :func:`dependency_figure`; up to eight variables have the
    numbers written into their cells.

    Example:
        >>> domain = Domain.from_cardinalities({"a": 2, "b": 2, "c": 2})
        >>> figure = dependency_matrix_figure(domain, {("a", "b"): 0.4, ("b", "a"): 0.4, ("a", "c"): 0.1})
        >>> figure.axes[0].get_xlabel(), [label.get_text() for label in figure.axes[0].get_yticklabels()]
        ('predicted from', ['a', 'b', 'c'])
    """
    found = _checked(domain, values)
    order = list(_order(domain, found))
    at = {name: k for k, name in enumerate(order)}
    values_of = np.full((len(order), len(order)), np.nan)
    for (parent, child), value in found.items():
        values_of[at[child], at[parent]] = value
    matrix = pd.DataFrame(values_of, index=order, columns=order)
    figure = figure_of(plot_pairs, matrix, label="information, nats a row", absent="not used")
    if order:
        figure.axes[0].set_xlabel("predicted from", color=INK, fontsize=FONT)
        figure.axes[0].set_ylabel("predicted", color=INK, fontsize=FONT)
    return figure
