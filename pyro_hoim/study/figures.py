"""Pictures of a study of a table: intervals, cells, comparison and chains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ..core.figures.drawing import BLUE, CHAINS, FAINT, INK, ORANGE, plain_axes
from ..core.words import literal

__all__ = ["comparison_figure", "fitted_figure", "forest_figure", "rank_figure", "trace_figure"]

_BINS = 20


def forest_figure(
    labels: Sequence[str],
    centre: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
    *,
    axis_label: str,
    reference: float = 0.0,
) -> Figure:
    """Estimates (num_labels,) with their intervals, the first label on top; an infinite estimate is an arrow."""
    figure = Figure(figsize=(7.0, 0.6 + 0.3 * max(len(labels), 1)))
    axes = figure.add_subplot()
    rows = np.arange(len(labels))[::-1]
    clear = (np.asarray(lower) > reference) | (np.asarray(upper) < reference)
    axes.axvline(reference, color=FAINT, linewidth=1)
    ends = np.concatenate([np.asarray(lower), np.asarray(upper), [reference]])
    reach = float(np.abs(ends[np.isfinite(ends)] - reference).max()) or 1.0
    for row, mid, low, high, is_clear in zip(rows, centre, lower, upper, clear, strict=True):
        if np.isinf(mid):
            tip = reference + 1.15 * reach * np.sign(mid)
            axes.annotate(
                "", (tip, row), (reference, row), arrowprops={"arrowstyle": "-|>", "color": ORANGE, "linewidth": 2.4}
            )
            axes.plot(tip, row, alpha=0)  # the limits of the axes do not see annotations
            continue
        colour = BLUE if is_clear else FAINT
        axes.plot([low, high], [row, row], color=colour, linewidth=2.4, solid_capstyle="round")
        axes.plot(mid, row, "o", color=colour, markersize=6)
    axes.set_yticks(rows, [literal(label) for label in labels])
    axes.set_ylim(-0.7, len(labels) - 0.3)
    axes.set_xlabel(axis_label, color=INK)
    plain_axes(axes)
    return figure


def fitted_figure(observed: np.ndarray, expected: np.ndarray, residuals: np.ndarray) -> Figure:
    """Observed against expected counts (num_cells,), beside them the adjusted residuals, NaN where undefined."""
    figure = Figure(figsize=(8.6, 3.9), layout="constrained")
    left, right = figure.subplots(1, 2)
    large = np.abs(np.nan_to_num(residuals)) > 2
    top = float(max(observed.max(initial=0), expected.max(initial=0), 1.0)) * 1.3
    left.plot([0, top], [0, top], color=FAINT, linewidth=1)
    left.plot(expected[~large], observed[~large], "o", color=BLUE, markersize=5, alpha=0.75)
    left.plot(expected[large], observed[large], "o", color=ORANGE, markersize=5, alpha=0.9)
    root = (lambda x: np.sqrt(np.maximum(x, 0.0)), np.square)
    left.set_xscale("function", functions=root)
    left.set_yscale("function", functions=root)
    left.set_xlim(0, top)
    left.set_ylim(0, top)
    left.set_xlabel("expected count", color=INK)
    left.set_ylabel("observed count", color=INK)
    right.axhline(0, color=FAINT, linewidth=1)
    for bound in (-2, 2):
        right.axhline(bound, color=FAINT, linewidth=1, linestyle=(0, (4, 3)))
    right.plot(expected[~large], residuals[~large], "o", color=BLUE, markersize=5, alpha=0.75)
    right.plot(expected[large], residuals[large], "o", color=ORANGE, markersize=5, alpha=0.9)
    right.set_xscale("function", functions=root)
    right.set_xlim(0, top)
    right.set_xlabel("expected count", color=INK)
    right.set_ylabel("adjusted residual", color=INK)
    for axes in (left, right):
        plain_axes(axes)
    return figure


def comparison_figure(names: Sequence[str], elpd: np.ndarray, std_error: np.ndarray) -> Figure:
    """Expected log predictive density (num_models,) of each model in nats with one standard error, best on top."""
    order = np.argsort(-elpd)
    return forest_figure(
        [str(names[int(i)]) for i in order],
        elpd[order],
        (elpd - std_error)[order],
        (elpd + std_error)[order],
        axis_label="expected log predictive density (nats), one standard error; further right is better",
        reference=float(elpd.max()),
    )


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
