"""Pictures of chains: densities, traces and ranks."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from ..core.words import literal
from ..plots.drawing import CHAINS, FONT, INK, plain_axes

__all__ = ["rank_figure", "trace_figure"]

_BINS = 20


def trace_figure(draws: Mapping[str, np.ndarray]) -> Figure:
    """Density and trace of each quantity (num_chains, num_draws), one colour a chain."""
    figure = Figure(figsize=(9.0, 1.5 * max(len(draws), 1) + 0.3), layout="constrained")
    grid = figure.subplots(max(len(draws), 1), 2, squeeze=False, width_ratios=[1, 2.4])
    for axes in grid.ravel() if not draws else ():
        axes.set_axis_off()
    for (left, right), (name, values) in zip(grid, draws.items(), strict=False):
        low, high = float(values.min()), float(values.max())
        bins = np.linspace(low, high if high > low else low + 1.0, 31)
        for number, chain in enumerate(values):
            colour = CHAINS[number % len(CHAINS)]
            height, _ = np.histogram(chain, bins=bins, density=True)
            left.stairs(height, bins, color=colour, linewidth=1.2, alpha=0.9)
            right.plot(chain, color=colour, linewidth=0.5, alpha=0.75)
        left.set_yticks([])
        left.xaxis.set_major_locator(MaxNLocator(4))
        left.set_title(literal(name), fontsize=9, color=INK, loc="left")
        right.set_xlim(0, values.shape[1] - 1)
        for axes in (left, right):
            plain_axes(axes)
            axes.tick_params(labelsize=7)
    if draws:
        lines = grid[0, 1].get_lines()
        figure.legend(
            [Line2D([], [], color=line.get_color()) for line in lines],
            [f"chain {number}" for number in range(len(lines))],
            loc="outside lower center", ncols=min(len(lines), 8), frameon=False, fontsize=FONT, labelcolor=INK,
        )  # fmt: skip
    return figure


def rank_figure(draws: Mapping[str, np.ndarray]) -> Figure:
    """Rank histograms of every chain of each quantity (num_chains, num_draws); level bars mean that chains agree."""
    columns = min(3, max(len(draws), 1))
    rows = -(-max(len(draws), 1) // columns)
    figure = Figure(figsize=(9.0, 1.9 * rows + 0.2), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes in grid[len(draws) :]:
        axes.set_axis_off()
    for axes, (name, values) in zip(grid, draws.items(), strict=False):
        num_chains, num_draws = values.shape
        from scipy.stats import rankdata  # takes a second to import

        ranks = rankdata(values).reshape(values.shape)
        edges = np.linspace(0.5, values.size + 0.5, _BINS + 1)
        level = num_draws / _BINS
        for number, chain in enumerate(ranks):
            height, _ = np.histogram(chain, bins=edges)
            base = number * 2.0
            axes.bar(
                edges[:-1],
                height / level,
                width=np.diff(edges),
                bottom=base,
                align="edge",
                color=CHAINS[number % len(CHAINS)],
                edgecolor="white",
                linewidth=0.4,
                alpha=0.85,
            )
            axes.axhline(base + 1, color=INK, linewidth=0.7, linestyle=(0, (3, 3)))
        axes.set_xlim(edges[0], edges[-1])
        axes.set_ylim(0, 2.0 * num_chains)
        axes.set_yticks(np.arange(num_chains) * 2.0 + 1, [f"chain {c}" for c in range(num_chains)])
        axes.set_xticks([])
        axes.set_title(literal(name), fontsize=9, color=INK, loc="left")
        plain_axes(axes)
        axes.tick_params(labelsize=7)
    return figure
