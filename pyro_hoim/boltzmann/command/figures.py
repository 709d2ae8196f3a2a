"""Pictures of a machine: its weights, and how it was learned."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from ...core.words import literal
from ...plots.drawing import BLUE, FONT, INK, ORANGE, SIGNED, axes_for, ends, label_lines, legend_below, plain_axes

__all__ = ["curve_figure", "weights_figure"]

_MOST = 60  # columns with their names


def weights_figure(weights: np.ndarray, visible: Sequence[str], hidden: Sequence[str]) -> Figure:
    """Weights (n, m) as a heat map, hidden units by the size of their weights: blue ties, orange repels."""
    order: list[int] = np.argsort(-np.square(weights).sum(0), kind="stable").tolist()
    shown = weights[:, order].T
    limit = ends(weights)
    is_small = len(visible) <= _MOST
    names, key = label_lines(visible if is_small else (), 24, 1)
    figure, scale = Figure(), Normalize(-limit, limit)
    width, height = max(2.2 + min(11.0, 0.2 * len(visible)), 4.0), 1.6 + min(8.0, 0.2 * max(len(hidden), 2))
    axes = axes_for(figure, width, height + 0.08 * max(map(len, names), default=0))
    axes.imshow(shown, cmap=SIGNED, norm=scale, aspect="auto", interpolation="nearest")
    axes.set_yticks(
        range(len(hidden)), [literal(hidden[i]) for i in order] if len(hidden) <= _MOST else [""] * len(hidden)
    )
    axes.set_xticks(range(len(names)), names, rotation=90)
    axes.tick_params(length=0, colors=INK, labelsize=FONT)
    for spine in axes.spines.values():
        spine.set_visible(False)
    bar = figure.colorbar(ScalarMappable(scale, SIGNED), ax=axes, shrink=0.8, pad=0.02)
    bar.set_label("weight (nats)", color=INK, fontsize=FONT)
    bar.ax.tick_params(colors=INK, labelsize=FONT)
    bar.outline.set_visible(False)
    signs = [Patch(facecolor=BLUE, label="above 0: ties"), Patch(facecolor=ORANGE, label="below 0: repels")]
    legend_below(None, axes, signs, key)
    return figure


def curve_figure(curve: Sequence[tuple[int, float, float | None]], name: str) -> Figure:
    """Scores along the run, of training rows and of validation rows where there are any."""
    figure = Figure(figsize=(6.6, 3.0), layout="constrained")
    axes = figure.add_subplot()
    at = [entry[0] for entry in curve]
    axes.plot(at, [entry[1] for entry in curve], color=BLUE, label="training rows")
    if curve[0][2] is not None:
        axes.plot(
            at, [np.nan if entry[2] is None else entry[2] for entry in curve], color=ORANGE, label="validation rows"
        )
        axes.legend(frameon=False, fontsize=9)
    axes.set_xlabel("iteration", color=INK, fontsize=9)
    axes.set_ylabel(f"{name} (nats a row)", color=INK, fontsize=9)
    plain_axes(axes)
    return figure
