"""Pictures of a posterior over structure: probabilities by chain or by prior, and averaged cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from ...core.words import literal
from ...plots.drawing import BLUE, CHAINS, FAINT, INK, ORANGE, axes_for, legend_below, plain_axes, wrapped

__all__ = ["cells_figure", "dots_figure"]


def dots_figure(labels: Sequence[str], series: Mapping[str, np.ndarray], axis_label: str) -> Figure:
    """Probabilities (num_labels,) of several series as dots on one line a label, the first label on top."""
    figure = Figure()
    texts = [wrapped(label, 34) for label in labels]
    num_lines = max((text.count("\n") + 1 for text in texts), default=1)
    axes = axes_for(figure, 6.0, 0.8 + (0.14 + 0.16 * num_lines) * max(len(labels), 1))
    rows = np.arange(len(labels))[::-1]
    values = np.array(list(series.values())).reshape(len(series), len(labels))
    for row, column in zip(rows, values.T, strict=True):
        axes.plot([column.min(), column.max()], [row, row], color=FAINT, linewidth=2.0, zorder=1)
    offsets = np.linspace(0.16, -0.16, len(series)) if len(series) > 1 else [0.0]
    for number, (name, points) in enumerate(zip(series, values, strict=True)):
        colour = CHAINS[number % len(CHAINS)]
        axes.plot(points, rows + offsets[number], "o", color=colour, markersize=5, label=literal(name), zorder=2)
    axes.set_yticks(rows, texts)
    axes.set_ylim(-0.7, len(labels) - 0.3)
    axes.set_xlim(-0.03, 1.03)
    axes.set_xlabel(axis_label, color=INK)
    plain_axes(axes)
    handles, _ = axes.get_legend_handles_labels()
    span = Line2D([], [], color=FAINT, linewidth=2.0, label="from the least to the greatest")
    legend_below(None, axes, [*handles, span])
    return figure


def cells_figure(observed: np.ndarray, averaged: np.ndarray, single: np.ndarray) -> Figure:
    """Expected counts of cells (num_cells,): averaged against observed ones, and against those of one collection."""
    figure = Figure(figsize=(8.6, 3.9), layout="constrained")
    pairs = ((observed, "observed count", BLUE), (single, "expected count, most probable collection", ORANGE))
    root = (lambda x: np.sqrt(np.maximum(x, 0.0)), np.square)
    for axes, (other, label, colour) in zip(figure.subplots(1, 2), pairs, strict=True):
        top = float(max(other.max(initial=0), averaged.max(initial=0), 1.0)) * 1.15
        axes.plot([0, top], [0, top], color=FAINT, linewidth=1)
        axes.plot(other, averaged, "o", color=colour, markersize=5, alpha=0.75)
        axes.set_xscale("function", functions=root)
        axes.set_yscale("function", functions=root)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(MaxNLocator(5))
        axes.set_xlim(0, top)
        axes.set_ylim(0, top)
        axes.set_xlabel(label, color=INK)
        axes.set_ylabel("expected count, averaged", color=INK)
        plain_axes(axes)
    return figure
