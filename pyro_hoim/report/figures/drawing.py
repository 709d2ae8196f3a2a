"""Figures of a report: matplotlib drawings from plain arrays, without pyplot and without global style.

Every function returns a :class:`matplotlib.figure.Figure`; :func:`as_data_uri` turns it into text that a single HTML
page can hold.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence

import networkx as nx
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Polygon
from matplotlib.ticker import MaxNLocator

from ...structure.hypergraph import InteractionHypergraph
from ..words import literal, short_edge, short_labels

__all__ = [
    "as_data_uri",
    "comparison_figure",
    "fitted_figure",
    "forest_figure",
    "hypergraph_figure",
    "rank_figure",
    "trace_figure",
]

INK = "#22303c"
FAINT = "#9aa5b1"
BLUE = "#2a6f97"
ORANGE = "#d1662f"
WIDEST = 6.6
"""Width of the strongest pair of a picture, in points."""
FINITE_SHARE = 0.6
"""Width of the strongest finite pair beside an infinite one, of the widest."""
CHAINS = ("#2a6f97", "#d1662f", "#5b8c5a", "#8f5ea2", "#b08d2f", "#5c677d", "#a23e48", "#3d9a9b")
SETS = ("#d1662f", "#5b8c5a", "#8f5ea2", "#b08d2f", "#3d9a9b", "#a23e48", "#5c677d", "#7a9e2f")


def as_data_uri(figure: Figure, dpi: int = 120) -> str:
    """PNG of a figure as a ``data:`` address."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=dpi, bbox_inches="tight", facecolor="white", metadata={"Software": None})
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def _plain(axes: Axes) -> None:
    """Remove the box and soften the ticks."""
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(FAINT)
    axes.tick_params(colors=INK, labelsize=9)


def _positions(hypergraph: InteractionHypergraph) -> dict[str, tuple[float, float]]:
    """Circle for up to twelve variables, otherwise a deterministic spring layout of the interaction graph."""
    names = hypergraph.domain.names
    graph = nx.Graph()
    graph.add_nodes_from(names)
    graph.add_edges_from((a, b) for a in names for b in hypergraph.neighbours(a))
    place = (
        nx.circular_layout(graph) if len(names) <= 12 else nx.spring_layout(graph, seed=0, k=1.8 / len(names) ** 0.5)
    )
    return {name: (float(x), float(y)) for name, (x, y) in place.items()}


def _hull(points: np.ndarray, pad: float) -> np.ndarray:
    """Points pushed outward from their centre, in angular order, so that the polygon encloses its corners."""
    centre = points.mean(0)
    offset = points - centre
    length = np.maximum(np.hypot(offset[:, 0], offset[:, 1]), 1e-9)[:, None]
    grown = centre + offset * (1 + pad / length)
    return grown[np.argsort(np.arctan2(offset[:, 1], offset[:, 0]))]


def draw_infinite(axes: Axes, points: np.ndarray, mark: np.ndarray) -> None:
    """An infinite pair along points (k, 2): wide, dashed, with the sign of infinity at a point (2,)."""
    axes.plot(
        points[:, 0], points[:, 1], color=ORANGE, linewidth=WIDEST, linestyle=(0, (1.2, 0.35)), dash_capstyle="butt",
        zorder=2,
    )  # fmt: skip
    axes.annotate(
        "∞", (float(mark[0]), float(mark[1])), ha="center", va="center", color=INK, fontsize=12, zorder=4,
        bbox={"boxstyle": "circle,pad=0.12", "facecolor": "white", "edgecolor": ORANGE, "linewidth": 1.0},
    )  # fmt: skip


def hypergraph_figure(
    hypergraph: InteractionHypergraph, strength: Mapping[tuple[str, ...], float], max_sets: int = 5
) -> Figure:
    """Variables as points, pairs as lines as wide as they are strong, larger edges as tinted regions.

    Args:
        hypergraph: the structure to draw.
        strength: non-negative strength of every edge; those of one size are scaled to their strongest. An infinite
            pair is a dashed line, wider than all finite ones, and an infinite region is hatched; both are marked with
            the sign of infinity and count in no scale.
        max_sets: draw at most this many edges of three or more variables, the strongest first.

    Returns:
        The figure; its legend names the regions.
    """
    figure = Figure(figsize=(6.2, 4.6))
    axes = figure.add_subplot()
    axes.set_axis_off()
    axes.set_aspect("equal")
    place = _positions(hypergraph)
    labels = short_labels(hypergraph.domain.names)
    large = sorted((e for e in hypergraph.edges if len(e) > 2), key=lambda e: -strength.get(e, 0.0))
    maximal = set(hypergraph.maximal_edges)
    shown = [e for e in large if e in maximal][:max_sets]
    handles = []
    top = max((s for s in (strength.get(e, 0.0) for e in shown) if np.isfinite(s)), default=0.0) or 1.0
    for number, edge in enumerate(shown):
        colour = SETS[number % len(SETS)]
        alpha = 0.06 + 0.2 * min(strength.get(edge, 0.0) / top, 1.0)
        outline = _hull(np.array([place[n] for n in edge]), 0.11 + 0.012 * number)
        hatch, mark = ("//", "  ∞") if np.isinf(strength.get(edge, 0.0)) else (None, "")
        axes.add_patch(
            Polygon(
                outline, facecolor=colour, edgecolor=colour, alpha=alpha, linewidth=2, joinstyle="round", hatch=hatch
            )
        )
        label = literal(short_edge([labels[n] for n in edge], 44, " : ")) + mark
        handles.append(Patch(facecolor=colour, alpha=0.55, hatch=hatch, label=label))
    pairs = [e for e in hypergraph.edges if len(e) == 2]
    top = max((s for s in (strength.get(e, 0.0) for e in pairs) if np.isfinite(s)), default=0.0) or 1.0
    some_infinite = any(np.isinf(strength.get(e, 0.0)) for e in pairs)
    for a, b in sorted(pairs, key=lambda e: strength.get(e, 0.0)):
        share = strength.get((a, b), 0.0) / top
        (x0, y0), (x1, y1) = place[a], place[b]
        if np.isfinite(share):
            width = 0.6 + (WIDEST - 0.6) * share * (FINITE_SHARE if some_infinite else 1.0)
            axes.plot([x0, x1], [y0, y1], color=BLUE, linewidth=width, alpha=0.25 + 0.7 * share, zorder=2)
        else:
            draw_infinite(axes, np.array([[x0, y0], [x1, y1]]), np.array([0.6 * x0 + 0.4 * x1, 0.6 * y0 + 0.4 * y1]))
    for name, (x, y) in place.items():
        axes.plot(x, y, "o", color="white", markeredgecolor=INK, markersize=13, markeredgewidth=1.6, zorder=3)
        outward = 1.0 if np.hypot(x, y) > 1e-6 else 0.0
        align = "left" if x > 0.15 else "right" if x < -0.15 else "center"
        axes.annotate(
            literal(labels[name]),
            (x, y),
            xytext=(13 * np.sign(x) * (align != "center"), 14 * outward * (1 if y >= 0 else -1) * (align == "center")),
            textcoords="offset points",
            ha=align,
            va="center" if align != "center" else ("bottom" if y >= 0 else "top"),
            color=INK,
            fontsize=11,
            zorder=4,
            bbox={"boxstyle": "round,pad=0.1", "facecolor": "white", "edgecolor": "none", "alpha": 0.7},
        )
    axes.margins(0.22)
    if handles:
        title = "regions" if len(shown) == len(large) else f"{len(shown)} strongest of {len(large)} larger edges"
        axes.legend(
            handles=handles, title=title, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize=9
        )
    return figure


def forest_figure(
    labels: Sequence[str],
    centre: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
    *,
    axis_label: str,
    reference: float = 0.0,
) -> Figure:
    """Estimates with intervals, the first label on top; an infinite estimate is an arrow.

    Shape:
        ``centre``, ``lower``, ``upper``: (num_labels,).
    """
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
    _plain(axes)
    return figure


def fitted_figure(observed: np.ndarray, expected: np.ndarray, residuals: np.ndarray, title: str = "") -> Figure:
    """Observed against expected counts, one point a cell, with the adjusted residuals beside them.

    Shape:
        ``observed``, ``expected``, ``residuals``: (num_cells,); residuals may hold NaN where undefined.
    """
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
        _plain(axes)
    if title:
        figure.suptitle(title, color=INK, fontsize=11)
    return figure


def comparison_figure(names: Sequence[str], elpd: np.ndarray, std_error: np.ndarray) -> Figure:
    """Expected log predictive density of each model with one standard error, best on top.

    Shape:
        ``elpd``, ``std_error``: (num_models,), in nats.
    """
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
    """Density and trace of each quantity, one colour a chain.

    Shape:
        Every value of ``draws``: (num_chains, num_draws).
    """
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
            _plain(axes)
            axes.tick_params(labelsize=7)
    return figure


def rank_figure(draws: Mapping[str, np.ndarray], num_bins: int = 20) -> Figure:
    """Rank histograms of every chain; level bars mean that the chains agree.

    Shape:
        Every value of ``draws``: (num_chains, num_draws).
    """
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
        edges = np.linspace(0.5, values.size + 0.5, num_bins + 1)
        level = num_draws / num_bins
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
        _plain(axes)
        axes.tick_params(labelsize=7)
    return figure
