"""Picture of the weights of all pairs: a matrix in the order of the circle."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from ...structure.hypergraph import InteractionHypergraph
from ..words import literal, short_labels
from .drawing import BLUE, FAINT, INK, ORANGE
from .hypergraph_figure import _MAX_HORIZONTAL, Weights, _top, _weights, circle_order

__all__ = ["BLUES", "matrix_figure", "pair_matrix_figure"]

BLUES = LinearSegmentedColormap.from_list("strength", ["#ffffff", "#bcd4e2", BLUE, "#0f2c40"])
_LABEL_WIDTH = 20  # characters
_MAX_LEVEL = 1.0  # inches of a label that is not turned


def pair_matrix_figure(
    hypergraph: InteractionHypergraph, weights: Weights | None = None, *, label: str = "weight", title: str = ""
) -> Figure:
    """Weights of all pairs as a matrix, variables in the order of :func:`circle_order`.

    Pairs without a weight are white, pairs that are no interaction carry a small cross, infinite ones are orange; up to
    eight variables have the numbers written into their cells. Errors are those of :func:`hypergraph_figure`.

    Args:
        hypergraph: the interactions.
        weights: non-negative weights of some of them; 1 for all when None.
        label: what the weights are, with their unit.
        title: text above.
    """
    found = _weights(hypergraph, weights)
    order = circle_order(hypergraph, weights)
    at = {name: k for k, name in enumerate(order)}
    matrix = np.full((len(order), len(order)), np.nan)
    for edge, value in found.items():
        if len(edge) == 2:
            matrix[at[edge[0]], at[edge[1]]] = matrix[at[edge[1]], at[edge[0]]] = value
    figure = matrix_figure(matrix, list(short_labels(order, _LABEL_WIDTH).values()), label)
    axes = figure.axes[0]
    for i, j in np.argwhere(np.isinf(matrix)):
        axes.add_patch(Rectangle((j - 0.5, i - 0.5), 1, 1, color=ORANGE))
    for i, j in np.argwhere(np.isnan(matrix)):
        if i != j:
            axes.plot(j, i, marker="x", color=FAINT, markersize=3, markeredgewidth=0.7)
    if title:
        axes.set_title(title, color=INK, fontsize=11)
    return figure


def matrix_figure(matrix: np.ndarray, names: Sequence[str], label: str) -> Figure:
    """A square matrix (n, n) of non-negative numbers, white where it is not finite, with a bar of colours.

    ``names`` are those of rows and columns, ``label`` is that of the bar; up to eight rows have their numbers written
    into the cells.
    """
    size = len(names)
    if not size:
        figure = Figure(figsize=(2.0, 1.0))
        figure.add_subplot().set_axis_off()
        return figure
    finite = np.where(np.isfinite(matrix), matrix, np.nan)
    limit = _top([float(v) for v in finite[np.isfinite(finite)]])
    many = size > _MAX_HORIZONTAL
    label_width = 0.1 + 0.085 * max(map(len, names))  # inches
    is_turned = many or label_width > _MAX_LEVEL
    cells = size * 0.26 if many else max(size, 2) * (0.75 if is_turned else max(0.6, label_width + 0.08))
    height = cells * (1.0 if many else 0.75)
    figure = Figure(
        figsize=(cells + label_width + 1.2, height + (label_width if is_turned else 0.3) + 0.35), layout="constrained"
    )
    axes = figure.add_subplot()
    scale = Normalize(0.0, limit)
    axes.imshow(finite, cmap=BLUES, norm=scale, interpolation="nearest", aspect="equal" if many else "auto")
    for i in range(size):
        axes.add_patch(Rectangle((i - 0.5, i - 0.5), 1, 1, color="#eef1f4"))
    if not many:
        for i, j in np.argwhere(np.isfinite(matrix)):
            dark = matrix[i, j] > 0.55 * limit
            axes.text(j, i, f"{matrix[i, j]:.2g}", ha="center", va="center", fontsize=9, color="white" if dark else INK)
    labels = [literal(name) for name in names]
    axes.set_xticks(range(size), labels, rotation=90 if is_turned else 0)
    axes.set_yticks(range(size), labels)
    axes.tick_params(length=0, colors=INK, labelsize=9 if size <= 30 else 6)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.set_xticks(np.arange(-0.5, size), minor=True)
    axes.set_yticks(np.arange(-0.5, size), minor=True)
    axes.grid(which="minor", color="white", linewidth=0.8)
    axes.tick_params(which="minor", length=0)
    bar = figure.colorbar(ScalarMappable(scale, BLUES), ax=axes, shrink=0.7, pad=0.02)
    bar.set_label(label, color=INK, fontsize=9)
    bar.ax.tick_params(colors=INK, labelsize=8)
    bar.outline.set_visible(False)
    return figure
