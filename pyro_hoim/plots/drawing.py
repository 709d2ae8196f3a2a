"""What all pictures share: colours, axes to draw into, labels that are whole, and a figure as text for a page."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.transforms import offset_copy

from ..core.words import literal
from ..errors import visible, wrong_type

# One meaning for a colour in all pictures: blue is more (together, than expected), orange is less, pale grey is not
# shown by the rows or only a line to look along, and slate and ink are amounts that have no sign.
INK = "#22303c"
SLATE = "#5c6f80"
FAINT = "#9aa5b1"
BLUE = "#2a6f97"
ORANGE = "#d1662f"
KINDS = ("#5b8c5a", "#8f5ea2", "#b08d2f", "#3d9a9b", "#a23e48", "#7a9e2f", "#b56a9c", "#7d6b5d")
"""Colours of things that differ in kind, such as chains and levels; neither of them is more or less."""
AMOUNTS = LinearSegmentedColormap.from_list("strength", ["#ffffff", "#cdd5dc", SLATE, INK])
SIGNED = LinearSegmentedColormap.from_list("signed", [ORANGE, "#ffffff", BLUE])
FONT = 9.0
"""Smallest type of a picture, in points."""
WIDTH = 4.4
"""Widest picture whose type stays at ten pixels on a screen that is 400 pixels wide, in inches."""
_NARROW, _WIDE = 4.2, 4.3
"""Width that a legend may have in narrower figures, without and with a key, in inches."""
_GAP = 7.0  # points above a legend
_LONG = 6  # lines of a key in one column

Target = Axes | Figure | None
"""Where a plot is drawn: axes, an empty figure that takes the picture's size, or None for a new figure of pyplot."""


def axes_for(ax: Target, width: float, height: float) -> Axes:
    """The axes to draw into; a new or an empty figure gets this size in inches.

    Pyplot is imported only where nothing is given, so that a notebook shows the picture.

    Raises:
        InputTypeError: neither axes nor a figure.
    """
    if isinstance(ax, Axes):
        return ax
    if ax is None:
        from matplotlib import pyplot as plt

        ax = plt.figure()
    if not isinstance(ax, Figure):
        raise wrong_type("ax", "matplotlib axes, an empty figure or None", ax)
    ax.set_size_inches(width, height)
    ax.set_layout_engine("constrained")
    return ax.add_subplot()


def figure_of(plot: Callable[..., Axes], *args: Any, **options: Any) -> Figure:
    """A figure, unknown to pyplot, that holds one plot and has its size: ``figure_of(plot_roc, scores, outcomes)``.

    Example:
        >>> from pyro_hoim.plots import plot_fitted
        >>> figure = figure_of(plot_fitted, [30, 10], [20, 20])
        >>> figure.axes[0].get_xlabel()
        'expected count'
    """
    figure = Figure()
    plot(*args, ax=figure, **options)
    return figure


def plain_axes(axes: Axes, across: str = "", up: str = "") -> None:
    """Remove the box, soften the ticks, and say what the axes show."""
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(FAINT)
    axes.tick_params(colors=INK, labelsize=FONT)
    for say, words in ((axes.set_xlabel, across), (axes.set_ylabel, up)):
        if words:
            say(words, color=INK, fontsize=FONT)


def wrapped(words: str, width: int) -> str:
    r"""Text in lines of at most ``width`` characters, nothing left out; dollar signs stand for themselves.

    Words that are too long break behind a mark inside them where they have one.

    Example:
        >>> wrapped("high_blood_pressure of adults", 14).split("\n")
        ['high_blood_', 'pressure of', 'adults']
    """
    width = max(width, 1)
    text = " ".join(part for word in visible(words).split(" ") for part in _parts(word, width))
    lines = textwrap.wrap(text, width, break_on_hyphens=True) or [words]
    return "\n".join(map(literal, lines))


def _parts(word: str, width: int) -> list[str]:
    """A word that is longer than a line in parts that fill one."""
    if len(word) <= width:
        return [word]
    parts = [""]
    for piece in re.findall(r"[^_.:/-]*[_.:/-]*", word):
        if parts[-1] and len(parts[-1]) + len(piece) > width:
            parts.append("")
        parts[-1] += piece
    return parts


def label_lines(names: Sequence[str], width: int, lines: int = 2, mark: str = "{}") -> tuple[list[str], list[str]]:
    """Labels of at most so many lines of so many characters, and what a key says of the others, which are numbered.

    ``mark`` is how a number is written.

    Example:
        >>> label_lines(["sex", "how satisfied are you with the food and the service"], 12)
        (['sex', '1'], ['1  how satisfied are you with the food and the service'])
    """
    labels = list[str]()
    key = list[str]()
    for name in names:
        label = wrapped(name, width)
        if label.count("\n") >= lines:
            label = mark.format(len(key) + 1)
            while label in names:
                label += "*"
            key.append(f"{label}  {name}")
        labels.append(label)
    return labels, key


def legend_below(ax: Target, axes: Axes, handles: Sequence[Any], key: Sequence[str] = (), *, title: str = "") -> None:
    """A legend below all that the axes hold, with the key of numbered labels at its end; nothing for nothing.

    It has two columns where they fit. A figure that is not the caller's (``ax`` is no axes) grows by it.
    """
    figure = axes.get_figure(root=True)
    assert figure is not None
    if not handles and not key:
        return
    extent = axes.get_tightbbox()
    assert extent is not None
    gap = (axes.bbox.y0 - extent.y0) * 72 / figure.dpi + _GAP  # points
    room = max(float(figure.get_size_inches()[0]), _WIDE if key else _NARROW)
    style: dict[str, Any] = {
        "loc": "upper center", "bbox_to_anchor": (0.5, 0.0), "borderaxespad": 0.0, "frameon": False, "fontsize": FONT,
        "bbox_transform": offset_copy(axes.transAxes, fig=figure, y=-gap, units="points"), "labelcolor": INK,
        "title": title or None, "title_fontsize": FONT,
    }  # fmt: skip
    # Two columns where there is room for them, else one.
    width = height = 0.0
    for columns in (2, 1) if len(key) > _LONG or (handles and not key) else (1,):
        named = [Line2D([], [], linestyle="", label=wrapped(line, int(room * 12) // columns)) for line in key]
        every = [*handles, *named]
        legend = axes.legend(handles=every, ncols=min(columns, len(every)), **style)
        box = legend.get_window_extent()
        width, height = box.width / figure.dpi, box.height / figure.dpi
        if width < room - 0.1:
            break
    # A figure of our own grows by what the legend takes; one that was given keeps its size.
    if not isinstance(ax, Axes):
        before = figure.get_size_inches()
        figure.set_size_inches(max(float(before[0]), width + 0.2), float(before[1]) + height + _GAP / 72)
        engine = figure.get_layout_engine()
        if engine is not None:  # cheaper than drawing everything
            engine.execute(figure)
        axes.apply_aspect()
        legend = axes.get_legend()
        assert legend is not None
        below = -float(legend.get_window_extent().y0) / figure.dpi
        if below > 0:  # axes of equal scales do not fill the room that the layout gives them
            width, height = figure.get_size_inches()
            figure.set_size_inches(width, height + below + _GAP / 72)


def ends(values: np.ndarray) -> float:
    """Largest finite size of numbers, 1 where there is none."""
    sizes = np.abs(values[np.isfinite(values)])
    return float(sizes.max(initial=0.0)) or 1.0
