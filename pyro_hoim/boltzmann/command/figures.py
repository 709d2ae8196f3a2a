"""Pictures of a machine: its weights, and how it was learned."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure

from ...core.words import literal, short_labels
from ...plots.drawing import BLUE, INK, ORANGE, plain_axes

__all__ = ["curve_figure", "weights_figure"]

_SIGNED = LinearSegmentedColormap.from_list("signed", [ORANGE, "#ffffff", BLUE])
_LABEL = 20  # characters
_MOST = 60  # columns with their names


def weights_figure(weights: np.ndarray, visible: Sequence[str], hidden: Sequence[str]) -> Figure:
    """Weights (n, m) as a heat map, hidden units by the size of their weights: blue ties, orange repels."""
    order: list[int] = np.argsort(-np.square(weights).sum(0), kind="stable").tolist()
    shown = weights[:, order].T
    limit = max(float(np.abs(weights).max(initial=0.0)), 1e-12)
    is_small = len(visible) <= _MOST
    width = 1.8 + min(11.0, 0.3 * len(visible))
    figure = Figure(figsize=(max(width, 3.0), 1.2 + min(8.0, 0.3 * max(len(hidden), 2))), layout="constrained")
    axes, scale = figure.add_subplot(), Normalize(-limit, limit)
    axes.imshow(shown, cmap=_SIGNED, norm=scale, aspect="auto", interpolation="nearest")
    axes.set_yticks(
        range(len(hidden)), [literal(hidden[i]) for i in order] if len(hidden) <= _MOST else [""] * len(hidden)
    )
    names = [literal(name) for name in short_labels(visible, _LABEL).values()]
    axes.set_xticks(range(len(visible)) if is_small else [], names if is_small else [], rotation=90)
    axes.tick_params(length=0, colors=INK, labelsize=8)
    for spine in axes.spines.values():
        spine.set_visible(False)
    bar = figure.colorbar(ScalarMappable(scale, _SIGNED), ax=axes, shrink=0.8, pad=0.02)
    bar.set_label("weight (nats)", color=INK, fontsize=9)
    bar.ax.tick_params(colors=INK, labelsize=8)
    bar.outline.set_visible(False)
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
