"""Pictures of posets: the Hasse diagram, figure 1(b) of paper 4."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ...errors import check_type, out_of_reach, size_text
from ...plots.drawing import FAINT, INK, KINDS
from .poset import Poset

_MAX_ELEMENTS = 256
_LEVELS = ("#5b8c5a", "#2a6f97", "#a23e48", "#ffffff", *KINDS)  # green, blue, red and white as in the paper
_SMALLEST = 5.5  # size of letters within a circle, in points
_ROUNDS = 8  # of placing every element under or over the mean of its neighbours


def hasse_figure(poset: Poset, *, members: Iterable[Hashable] | None = None) -> Figure:
    """Hasse diagram: elements in layers by height, lines between an element and those that cover it.

    Colours are those of the paper's picture of a machine: the bottom black, then green, blue, red, white for the first
    to the fourth layer. With ``members`` only the elements of a collection B are filled.

    Args:
        poset: a poset of at most 256 elements.
        members: a collection, such as the sets of a machine; everything when left out.

    Raises:
        UnknownNameError: an unknown member.
        IntractableError: more elements than can be told apart.

    Example:
        >>> figure = hasse_figure(Poset.boolean_lattice(["a", "b"]))
        >>> [text.get_text() for text in figure.axes[0].texts][1:]  # above the empty set
        ['b', 'a', 'ab']
    """
    check_type(poset, Poset, "poset")
    if len(poset) > _MAX_ELEMENTS:
        problem = f"a diagram of {size_text(len(poset), 'elements')} cannot be read, the limit is {_MAX_ELEMENTS}"
        raise out_of_reach("poset", problem)
    heights, covers = poset.heights, poset._covers
    is_member = np.ones(len(poset), dtype=bool)
    if members is not None:
        is_member[:] = False
        is_member[poset.indices(members).numpy()] = True
    # Layers of elements, and letters of one size in every layer.
    points = _places(heights, covers, is_lattice=poset.variables is not None)
    widest = int(np.bincount(heights).max())
    figure = Figure(figsize=(max(4.0, min(1.1 * widest + 1, 16.0)), max(2.5, 1.25 * (heights.max() + 1))))
    axes = figure.add_axes((0.02, 0.02, 0.96, 0.9))
    axes.add_collection(LineCollection(list(points[covers]), colors=FAINT, linewidths=0.8, zorder=1))
    size = min(26.0, 320.0 / widest)
    labels = [_label(element) for element in poset.elements]
    letters = [min(9.0, 0.4 * size, 1.2 * size / len(label)) for label in labels]
    letters = [min(height for height, h in zip(letters, heights, strict=True) if h == level) for level in heights]
    # Circles with their names.
    for i, label in enumerate(labels):
        level = int(heights[i])
        colour = INK if level == 0 else _LEVELS[(level - 1) % len(_LEVELS)]
        is_shown = bool(is_member[i]) or (level == 0 and len(poset.minimal) == 1)
        axes.plot(
            *points[i], "o", markersize=size, color=colour if is_shown else "white", zorder=2,
            markeredgecolor=INK if is_shown else FAINT, markeredgewidth=0.9,
        )  # fmt: skip
        dark = is_shown and colour != "#ffffff"
        if letters[i] >= _SMALLEST:
            style: dict[str, Any] = {
                "va": "center",
                "fontsize": letters[i],
                "color": "white" if dark else INK if is_shown else FAINT,
            }
        else:  # no room within: below, one name a line, over the lines of the diagram
            label = label.replace(",", "\n")
            style = {"va": "top", "fontsize": 7.0, "color": INK if is_shown else FAINT}
            style |= {"xytext": (0, -size / 2 - 2), "textcoords": "offset points", "linespacing": 1.1}
            style["bbox"] = {"facecolor": "white", "edgecolor": "none", "pad": 0.6, "alpha": 0.85}
        axes.annotate(label, points[i], ha="center", zorder=3, **style)
    # Limits by hand, as circles have a size in points, not in units of the axes.
    axes.set_xlim(-0.6, widest - 0.4)
    axes.set_ylim(-0.5, heights.max() + 0.5)
    axes.axis("off")
    if members is not None and not is_member.all():
        styles = {"in the collection": INK, "not in it": FAINT}
        handles = [
            Line2D([], [], marker="o", linestyle="", markeredgecolor=c, markerfacecolor=c if c == INK else "white")
            for c in styles.values()
        ]
        figure.legend(handles, styles, loc="upper right", frameon=False, fontsize=9)
    return figure


def _label(element: Hashable) -> str:
    """An element as it is written into its circle; the empty set as such."""
    if isinstance(element, tuple):
        return ("" if all(len(str(part)) == 1 for part in element) else ",").join(map(str, element)) or "∅"
    return str(element)


def _places(heights: np.ndarray, covers: np.ndarray, *, is_lattice: bool) -> np.ndarray:
    """Points (n, 2): layers by height, within one in the order of the variables or of the neighbours' means."""
    layers = [np.flatnonzero(heights == level) for level in range(int(heights.max()) + 1)]
    x = np.zeros(len(heights))
    widest = max(map(len, layers))
    # Sets in the order of their variables.
    if is_lattice:
        layers = [layer[::-1] for layer in layers]

    def spread(layer: np.ndarray) -> None:
        x[layer] = np.arange(len(layer)) + (widest - len(layer)) / 2

    for layer in layers:
        spread(layer)
    # Others move under the mean of those above them, then over that of those below.
    for step in range(0 if is_lattice else _ROUNDS):
        mine, theirs = (1, 0) if step % 2 == 0 else (0, 1)
        for layer in layers if step % 2 == 0 else layers[::-1]:
            means = [
                x[covers[covers[:, mine] == i, theirs]].mean() if (covers[:, mine] == i).any() else x[i] for i in layer
            ]
            spread(layer[np.argsort(means, kind="stable")])
    return np.stack((x, heights.astype(float)), -1)
