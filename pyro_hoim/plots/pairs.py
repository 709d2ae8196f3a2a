"""A matrix of all pairs: weights with or without signs, in the order of the circle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from ..errors import check_type, wrong_shape
from ..structure.hypergraph import InteractionHypergraph
from .drawing import AMOUNTS, BLUE, FAINT, FONT, INK, ORANGE, SIGNED, Target, axes_for, ends, label_lines, legend_below
from .hypergraph import Weights, circle_order, edge_weights

_NUMBERS = 8  # rows up to which the numbers are written into the cells


def pair_matrix(hypergraph: InteractionHypergraph, weights: Weights | None = None) -> pd.DataFrame:
    """Weights of all pairs (d, d), NaN for those that are no interaction, in the order of :func:`circle_order`.

    Args:
        hypergraph: the interactions.
        weights: weights of some of them; 1 for all when None, 0 where not given.

    Raises:
        InputError: NaN, or a weight for a set that is no edge.
        UnknownNameError: a weight with a name that is no variable.

    Example:
        >>> from pyro_hoim import Domain
        >>> graph = InteractionHypergraph.from_order(Domain.from_cardinalities([2] * 2), 2)
        >>> pair_matrix(graph, {("x0", "x1"): -0.5}).loc["x0", "x1"].item()
        -0.5
    """
    order = list(circle_order(hypergraph, weights))
    at = {name: k for k, name in enumerate(order)}
    matrix = np.full((len(order), len(order)), np.nan)
    for edge, value in edge_weights(hypergraph, weights).items():
        if len(edge) == 2:
            matrix[at[edge[0]], at[edge[1]]] = matrix[at[edge[1]], at[edge[0]]] = value
    return pd.DataFrame(matrix, index=order, columns=order)


def plot_pairs(
    matrix: pd.DataFrame, *, ax: Target = None, label: str = "weight", absent: str = "not in the model", title: str = ""
) -> Axes:
    """A square matrix of pairs as colours, with a bar of them.

    Colours run from white to black, or from orange over white to blue where some number is negative. NaN off the
    diagonal is a small cross, an infinite number is hatched; up to eight rows have their numbers written into their
    cells.

    Args:
        matrix: numbers with the names of rows and columns (n, n), as :func:`pair_matrix` gives them.
        ax: axes to draw into, an empty figure, or None for a new figure of pyplot.
        label: what the numbers are, with their unit.
        absent: what a cross means.
        title: text above.

    Returns:
        The axes of the matrix.

    Raises:
        InputError: a matrix that is not square.
        InputTypeError: ``ax`` is neither axes nor a figure.

    Example:
        >>> from matplotlib.figure import Figure
        >>> values = pd.DataFrame([[np.nan, -0.5], [-0.5, np.nan]], index=["a", "b"], columns=["a", "b"])
        >>> [text.get_text() for text in plot_pairs(values, ax=Figure()).texts]
        ['-0.5', '-0.5']
    """
    check_type(matrix, pd.DataFrame, "matrix")
    values = matrix.to_numpy(dtype=float)
    size = len(values)
    if values.shape != (size, size):
        raise wrong_shape("matrix", "(n, n)", values)
    few = size <= _NUMBERS
    labels, key = label_lines([str(name) for name in matrix.index], 20 if few else 28, 2 if few else 1)
    axes = _matrix_axes(ax, labels)
    if size:
        # The scale has zero in its middle where there are negative values.
        limit = ends(values)
        is_signed = bool((values[np.isfinite(values)] < 0).any())
        scale = Normalize(-limit if is_signed else 0.0, limit)
        colours = SIGNED if is_signed else AMOUNTS
        finite = np.where(np.isfinite(values), values, np.nan)
        axes.imshow(finite, cmap=colours, norm=scale, interpolation="nearest", aspect="equal")
        _mark_cells(axes, values, limit)
        # Names beside rows and under columns, and white lines between cells.
        size = len(labels)
        axes.set_xticks(range(size), labels, rotation=90)
        axes.set_yticks(range(size), labels)
        axes.tick_params(length=0, colors=INK, labelsize=FONT)
        axes.spines[:].set_visible(False)
        axes.set_xticks(np.arange(-0.5, size), minor=True)
        axes.set_yticks(np.arange(-0.5, size), minor=True)
        axes.grid(which="minor", color="white", linewidth=0.8)
        axes.tick_params(which="minor", length=0)
        axes.set_anchor("N")
        bar = axes.figure.colorbar(ScalarMappable(scale, colours), cax=axes.inset_axes((1.03, 0.1, 0.035, 0.8)))
        bar.set_label(label, color=INK, fontsize=FONT)
        bar.ax.tick_params(colors=INK, labelsize=FONT)
        bar.outline.set_visible(False)  # pyright: ignore[reportAttributeAccessIssue, reportCallIssue]
        # What crosses and hatched cells mean
        handles = list[Any]()
        if np.isnan(values[~np.eye(len(values), dtype=bool)]).any():
            handles.append(Line2D([], [], marker="x", linestyle="", color=FAINT, markersize=5, label=absent))
        for sign, words in ((1, "infinite"), (-1, "minus infinite")):
            if (values == sign * np.inf).any():
                handles.append(Patch(**_infinite(sign), label=words))
        legend_below(ax, axes, handles, key)
    if title:
        axes.set_title(title, color=INK, fontsize=11)
    return axes


def _matrix_axes(ax: Target, labels: Sequence[str]) -> Axes:
    """Axes whose cells hold their numbers or, where there are many, a line of text."""
    size = len(labels)
    label_width = 0.1 + (0.08 * max((len(line) for label in labels for line in label.split("\n")), default=0))
    cells = max(size * (0.55 if size <= _NUMBERS else 0.24 if size <= 20 else 0.17), 1.0)
    axes = axes_for(ax, cells + label_width + 1.4, cells + label_width + 0.3)
    if not size:
        axes.set_axis_off()
    return axes


def _mark_cells(axes: Axes, values: np.ndarray, limit: float) -> None:
    """The diagonal, crosses, infinite cells and, in small matrices, numbers."""
    size = len(values)
    for i in range(size):
        if np.isnan(values[i, i]):
            axes.add_patch(Rectangle((i - 0.5, i - 0.5), 1, 1, color="#eef1f4"))
    absent = np.argwhere(np.isnan(values) & ~np.eye(size, dtype=bool))
    axes.plot(absent[:, 1], absent[:, 0], "x", color=FAINT, markersize=3, markeredgewidth=0.7)
    for i, j in np.argwhere(np.isinf(values)):
        axes.add_patch(Rectangle((j - 0.5, i - 0.5), 1, 1, **_infinite(float(values[i, j]))))
    for i, j in np.argwhere(np.isfinite(values)) if size <= _NUMBERS else ():
        dark = abs(values[i, j]) > 0.55 * limit
        axes.text(j, i, f"{values[i, j]:.2g}", ha="center", va="center", fontsize=FONT, color="white" if dark else INK)


def _infinite(value: float) -> dict[str, Any]:
    """How an infinite cell is filled."""
    return {"facecolor": ORANGE if value < 0 else BLUE, "edgecolor": "white", "hatch": "///", "linewidth": 0.0}
