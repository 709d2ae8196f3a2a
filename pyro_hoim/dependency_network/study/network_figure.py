"""Picture of a dependency network: who reads whom, as arrows on a circle or as a matrix."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch

from ...core.figures.drawing import BLUE, INK, ORANGE
from ...core.figures.hypergraph_figure import circle_order, draw_variables, new_canvas
from ...core.figures.pair_matrix_figure import matrix_figure
from ...core.words import literal, short_labels
from ...errors import out_of_range
from ...schema import Domain
from ...structure.hypergraph import InteractionHypergraph

__all__ = ["dependency_figure", "dependency_matrix_figure"]

_LABEL_WIDTH = 20  # characters

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
    labels: Mapping[str, str] | None = None,
) -> Figure:
    """Variables on a circle, an arrow from every variable to those whose conditionals read it.

    Arrows of two variables that read each other bend to different sides.

    Args:
        domain: the variables.
        values: non-negative weight of every arrow by (from, to), such as the information the reader gains; widths and
            depths of colour are relative to the largest.
        target: arrows into and out of this variable are orange.
        top: at most so many arrows, the strongest; all when None.
        labels: what is written for every name; by default the names, shortened where they are long.

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
    angle = {name: math.pi / 2 - 2 * math.pi * k / max(len(order), 1) for k, name in enumerate(order)}
    place = {name: np.array([math.cos(a), math.sin(a)]) for name, a in angle.items()}
    labels = {name: labels[name] for name in domain.names} if labels else short_labels(domain.names)
    figure, axes = new_canvas(list(labels.values()))
    shown = list(found)[:top]
    highest = max(found.values(), default=0.0) or 1.0
    for edge in reversed(shown):
        _arrow(axes, place[edge[0]], place[edge[1]], found[edge] / highest, target in edge, len(order))
    draw_variables(axes, labels, {}, place, angle)
    _legend(axes, found, shown, target, len(order))
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


def _legend(axes: Axes, values: Arrows, shown: Sequence[tuple[str, str]], target: str | None, size: int) -> None:
    """What arrows mean, how many there are, and the width of the strongest."""
    if not values:
        return
    count = f"{len(values)}" if len(shown) == len(values) else f"strongest {len(shown)} of {len(values)}"
    lines = [
        Line2D([], [], linestyle="", label="a → b: the conditional of b reads a"),
        Line2D([], [], color=BLUE, linewidth=0, label=f"arrows: {count}"),
    ]
    highest = max(values.values()) or 1.0
    for share in (1.0, 0.25):
        label = f"{highest * share:.2g} nats a row"
        lines.append(Line2D([], [], color=BLUE, linewidth=_width(share, size), alpha=0.38 + 0.57 * share, label=label))
    if target is not None and any(target in edge for edge in shown):
        lines.append(Line2D([], [], color=ORANGE, linewidth=3, label=f"with {literal(short_labels([target])[target])}"))
    axes.legend(handles=lines, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize=9, labelcolor=INK)


def dependency_matrix_figure(domain: Domain, values: Arrows, *, labels: Mapping[str, str] | None = None) -> Figure:
    """Who reads whom as a matrix: a row is a reader, a column what it reads; white where nothing is read.

    Arguments, errors and the order of variables are those of :func:`dependency_figure`; up to eight variables have the
    numbers written into their cells.
    """
    found = _checked(domain, values)
    order = _order(domain, found)
    at = {name: k for k, name in enumerate(order)}
    matrix = np.full((len(order), len(order)), np.nan)
    for (parent, child), value in found.items():
        matrix[at[child], at[parent]] = value
    names = [labels[name] for name in order] if labels else list(short_labels(order, _LABEL_WIDTH).values())
    figure = matrix_figure(matrix, names, "information, nats a row")
    if names:
        figure.axes[0].set_xlabel("is read", color=INK, fontsize=9)
        figure.axes[0].set_ylabel("reader", color=INK, fontsize=9)
    return figure
