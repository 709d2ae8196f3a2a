"""What all pictures share: colours, axes to draw into, labels that are whole, and a figure as text for a page."""

from __future__ import annotations

import base64
import io
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
from ..errors import wrong_type

__all__ = [
    "BLUE",
    "BLUES",
    "CHAINS",
    "FAINT",
    "FONT",
    "INK",
    "LABELLED",
    "ORANGE",
    "SETS",
    "SIGNED",
    "Target",
    "as_data_uri",
    "axes_for",
    "ends",
    "figure_of",
    "label_lines",
    "legend_below",
    "plain_axes",
    "wrapped",
]

INK = "#22303c"
FAINT = "#9aa5b1"
BLUE = "#2a6f97"
ORANGE = "#d1662f"
CHAINS = ("#2a6f97", "#d1662f", "#5b8c5a", "#8f5ea2", "#b08d2f", "#5c677d", "#a23e48", "#3d9a9b")
SETS = ("#d1662f", "#5b8c5a", "#8f5ea2", "#b08d2f", "#3d9a9b", "#a23e48", "#5c677d", "#7a9e2f")
BLUES = LinearSegmentedColormap.from_list("strength", ["#ffffff", "#bcd4e2", BLUE, "#0f2c40"])
SIGNED = LinearSegmentedColormap.from_list("signed", [ORANGE, "#ffffff", BLUE])
FONT = 9.0
"""Smallest type of a picture, in points."""
LABELLED = 36.0
"""Distance of a legend from axes with numbers and a name below them, in points."""

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
    """A figure, unknown to pyplot, that holds one plot and has its size: ``figure_of(plot_roc, scores, outcomes)``."""
    figure = Figure()
    plot(*args, ax=figure, **options)
    return figure


def as_data_uri(figure: Figure, dpi: int = 120) -> str:
    """PNG of a figure as a ``data:`` address."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=dpi, bbox_inches="tight", facecolor="white", metadata={"Software": None})
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def plain_axes(axes: Axes) -> None:
    """Remove the box and soften the ticks."""
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(FAINT)
    axes.tick_params(colors=INK, labelsize=FONT)


def wrapped(words: str, width: int) -> str:
    """Text in lines of at most ``width`` characters, nothing left out; dollar signs stand for themselves."""
    lines = textwrap.wrap(words, max(width, 1), break_on_hyphens=True) or [words]
    return literal("\n".join(lines))


def label_lines(names: Sequence[str], width: int, lines: int = 2) -> tuple[list[str], list[str]]:
    """Labels of at most so many lines of so many characters, and what a key says of the others, which are numbered.

    Example:
        >>> label_lines(["sex", "how satisfied are you with the food and the service"], 12)
        (['sex', '1'], ['1  how satisfied are you with the food and the service'])
    """
    labels = list[str]()
    key = list[str]()
    for name in names:
        label = wrapped(name, width)
        if label.count("\n") >= lines:
            label = str(len(key) + 1)
            while label in names:
                label += "*"
            key.append(f"{label}  {name}")
        labels.append(label)
    return labels, key


def legend_below(
    axes: Axes, handles: Sequence[Any], key: Sequence[str] = (), *, columns: int = 2, gap: float = 4.0
) -> None:
    """A legend so many points under the axes, with the key of numbered labels at its end; nothing for nothing."""
    figure = axes.get_figure(root=True)
    assert figure is not None
    width = max(24, int(figure.get_size_inches()[0] * 12))
    named = [Line2D([], [], linestyle="", label=wrapped(line, width)) for line in key]
    if handles or named:
        axes.legend(
            handles=[*handles, *named], loc="upper center", bbox_to_anchor=(0.5, 0.0), frameon=False, fontsize=FONT,
            bbox_transform=offset_copy(axes.transAxes, fig=figure, y=-gap, units="points"), labelcolor=INK,
            ncols=1 if named else min(columns, len(handles)), borderaxespad=0.0,
        )  # fmt: skip


def ends(values: np.ndarray) -> float:
    """Largest finite size of numbers, 1 where there is none."""
    sizes = np.abs(values[np.isfinite(values)])
    return float(sizes.max(initial=0.0)) or 1.0
