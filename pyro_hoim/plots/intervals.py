"""Estimates with their intervals as a forest, and models compared with the best one emphasised."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import offset_copy

from ..core.words import number
from ..errors import check_names, check_type, check_whole, none_received, wrong_shape
from .drawing import BLUE, FAINT, FONT, INK, ORANGE, SLATE, WIDTH, Target, axes_for, legend_below, plain_axes, wrapped

_LABEL_WIDTH = 52  # characters
_LINE = 0.16  # inches
_BESIDE = 2  # characters between a label and the words at its right
_ARROW = 1.15  # of the reach of all finite ends
_WIDEST = 18  # powers of ten, beyond which ticks are some of them


def plot_interactions(
    table: pd.DataFrame, *, ax: Target = None, top: int | None = 20, reference: float = 0.0, label: str = ""
) -> Axes:
    """Estimates of interactions with their intervals, one line a term, in the order of the table.

    Args:
        table: columns ``term``, ``estimate``, ``lower`` and ``upper``, and ``levels`` where a term has several numbers;
            what ``summary()`` of a result gives. Rows without an estimate are left out.
        ax: axes to draw into, an empty figure, or None for a new figure of pyplot.
        top: at most so many rows, those with the largest sizes of estimates; all when None.
        reference: number that means no effect, drawn as a line.
        label: what the estimates are, with their unit.

    Returns:
        The axes.

    Raises:
        UnknownNameError: a column is missing.
        InputTypeError: ``ax`` is neither axes nor a figure.

    Example:
        >>> from matplotlib.figure import Figure
        >>> rows = [("a:b", 0.5, 0.2, 0.8), ("a", 0.1, -0.2, 0.4)]
        >>> frame = pd.DataFrame(rows, columns=["term", "estimate", "lower", "upper"])
        >>> [tick.get_text() for tick in plot_interactions(frame, ax=Figure()).get_yticklabels()]
        ['a:b', 'a']
    """
    check_type(table, pd.DataFrame, "table")
    check_names(("term", "estimate", "lower", "upper"), [str(c) for c in table.columns], "table", noun="column")
    table = table.loc[table["estimate"].notna(), :]
    if top is not None:
        check_whole(top, "top")
        sizes = table["estimate"].to_numpy(dtype=float) - reference
        table = table.iloc[np.sort(np.argsort(-np.abs(sizes), kind="stable")[:top])]
    labels = [str(term) for term in table["term"]]
    if "levels" in table.columns:
        levels = ["" if pd.isna(level) else str(level) for level in table["levels"]]
        labels = [f"{term}  ({level})" if level else term for term, level in zip(labels, levels, strict=True)]
    centre, lower, upper = (table[name].to_numpy(dtype=float) for name in ("estimate", "lower", "upper"))
    return plot_forest(labels, centre, lower, upper, ax=ax, reference=reference, label=label)


def plot_forest(
    labels: Sequence[str],
    centre: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
    *,
    ax: Target = None,
    reference: float | None = 0.0,
    label: str = "",
    beside: Sequence[str] = (),
    is_ratio: bool = False,
    legend: bool = True,
) -> Axes:
    """Estimates with their intervals, the first label on top; an infinite estimate is an arrow.

    A label stands above its interval, so that the picture can be as narrow as the screen of a phone. Intervals above
    the reference are blue, below it orange.

    Args:
        labels: what is estimated, wrapped where long; a line of its own where one says so.
        centre: estimates (num_labels,).
        lower: lower ends (num_labels,), NaN where there is no interval.
        upper: upper ends (num_labels,).
        ax: axes to draw into, an empty figure, or None for a new figure of pyplot.
        reference: drawn as a line; intervals that hold it are grey. None for amounts without a sign, which begin at 0.
        label: what the estimates are, with their unit.
        beside: words at the right of every label, such as the numbers drawn.
        is_ratio: whether the numbers are ratios, which have a logarithmic axis; an estimate of 0 is an arrow.
        legend: whether the colours are explained below, which a small picture may leave to the text beside it.

    Raises:
        InputError: arrays of other shapes.
        InputTypeError: ``ax`` is neither axes nor a figure.

    Example:
        >>> from matplotlib.figure import Figure
        >>> axes = plot_forest(["a"], np.array([0.5]), np.array([0.2]), np.array([0.8]), ax=Figure())
        >>> axes.get_legend().get_texts()[0].get_text()
        'above 0'
    """
    lower, centre, upper = (np.asarray(values, dtype=float) for values in (lower, centre, upper))
    for values in (centre, lower, upper):
        if values.shape != (len(labels),):
            raise wrong_shape("centre, lower, upper", f"({len(labels)},)", values)
    # A logarithmic axis is drawn as one of logarithms, whose zeros are infinite.
    is_signed, reference = reference is not None, reference or 0.0
    mark = reference
    if is_ratio:
        with np.errstate(divide="ignore"):
            lower, centre, upper = (np.log(values) for values in (lower, centre, upper))
            reference = float(np.log(reference))
    width = max(map(len, beside), default=-_BESIDE) + _BESIDE
    axes, rows, texts = _lines_axes(ax, labels, width)
    axes.axvline(reference, color=FAINT, linewidth=1)
    # Where an infinite end or estimate leaves the picture.
    ends = np.concatenate([lower, centre, upper])
    reach = float(np.abs(ends[np.isfinite(ends)] - reference).max(initial=0.0)) or 1.0
    edges = reference - _ARROW * reach, reference + _ARROW * reach
    signs = np.where(lower > reference, 1, np.where(upper < reference, -1, 0))
    signs = np.where(np.isinf(centre) | np.isnan(lower) & np.isnan(upper), np.sign(centre - reference), signs)
    for row, mid, low, high, sign in zip(rows, centre, lower, upper, signs, strict=True):
        colour = BLUE if sign > 0 else ORANGE if sign < 0 else FAINT
        colour = colour if is_signed else SLATE
        if np.isinf(mid):
            tip = edges[int(mid > 0)]
            start = low if mid > 0 and np.isfinite(low) else high if mid < 0 and np.isfinite(high) else reference
            style = {"arrowstyle": "-|>", "color": colour, "linewidth": 2.4}
            axes.annotate("", (tip, row), (float(start), row), arrowprops=style)
            axes.plot(tip, row, alpha=0)  # the limits of the axes do not see annotations
            continue
        if not is_signed:
            axes.plot([0.0, mid], [row, row], color=colour, linewidth=2.4)
        axes.plot(np.clip([low, high], *edges), [row, row], color=colour, linewidth=2.4, solid_capstyle="round")
        filled = "none" if is_signed and np.isnan(low) and np.isnan(high) else "full"
        axes.plot(mid, row, "o", color=colour, markersize=6, fillstyle=filled, markeredgewidth=1.6)
    _write_beside(axes, rows, beside)
    if is_ratio:
        _ratio_ticks(axes, edges)
    _name_lines(axes, rows, texts)
    axes.set_xlabel(wrapped(label, 50), color=INK, fontsize=FONT)
    is_bare = bool(np.isnan(lower).all() and np.isnan(upper).all())
    legend_below(ax, axes, _meanings(centre, signs, mark, is_bare) if is_signed and legend else [])
    return axes


_BEHIND: dict[str, Any] = {"facecolor": "white", "edgecolor": "none", "pad": 0.4}
_RAISED = 4.0  # points from the middle of an interval to the words above it
_FEWEST_TICKS, _MOST_TICKS = 3, 6
_TICKS = tuple(step * 10.0**power for power in range(-9, 9) for step in (1, 2, 5))


def _ratio_ticks(axes: Axes, edges: tuple[float, float]) -> None:
    """Round ratios on an axis of their logarithms, at most six of them."""
    axes.set_xlim(min(edges[0], axes.get_xlim()[0]), max(edges[1], axes.get_xlim()[1]))
    low, high = axes.get_xlim()
    first, last = low / math.log(10), high / math.log(10)
    if last - first > _WIDEST:
        step = 3 * math.ceil((last - first) / (3 * (_MOST_TICKS - 1)))
        powers = range(step * math.ceil(first / step), step * math.floor(last / step) + 1, step)
        axes.set_xticks([power * math.log(10) for power in powers], [f"{10.0**power:g}" for power in powers])
        return
    ticks = [value for value in _TICKS if low <= np.log(value) <= high]
    if len(ticks) < _FEWEST_TICKS:  # a range within one step
        steps = MaxNLocator(5).tick_values(float(np.exp(low)), float(np.exp(high)))
        ticks = [float(value) for value in steps if value > 0 and low <= np.log(value) <= high]
    shown = ticks
    for step in (1, 2, 3, 6, 9):
        shown = (
            [t for k, t in enumerate(ticks) if (k - ticks.index(1.0)) % step == 0] if 1.0 in ticks else ticks[::step]
        )
        if len(shown) <= _MOST_TICKS:
            break
    axes.set_xticks(np.log(shown), [f"{value:g}" for value in shown])


def _lines_axes(ax: Target, labels: Sequence[str], beside: int = 0) -> tuple[Axes, np.ndarray, list[str]]:
    """Axes with a line for every label, its place from the top down, and the wrapped labels; the last one is at 0."""
    texts = ["\n".join(wrapped(line, _LABEL_WIDTH - beside) for line in text.split("\n")) for text in labels]
    heights = np.array([text.count("\n") + 2.0 for text in texts])  # a label above its interval
    total = float(heights.sum())
    axes = axes_for(ax, WIDTH, 0.6 + _LINE * total)
    rows = total - np.cumsum(heights)
    axes.set_ylim(-1.0, total) if texts else axes.set_ylim(-0.7, 0.7)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    return axes, rows, texts


def _name_lines(axes: Axes, rows: np.ndarray, texts: Sequence[str]) -> None:
    """Labels at the left, each above its line."""
    plain_axes(axes)
    axes.set_yticks(rows, texts)
    axes.tick_params(axis="y", length=0, pad=0)
    axes.spines["left"].set_visible(False)
    figure = axes.get_figure(root=True)
    axes.set_axisbelow(False)  # words lie above the line of no effect
    for text in axes.get_yticklabels():
        text.set(horizontalalignment="left", verticalalignment="bottom", bbox=_BEHIND)
        text.set_transform(offset_copy(text.get_transform(), figure, y=_RAISED, units="points"))


def _write_beside(axes: Axes, rows: np.ndarray, words: Sequence[str]) -> None:
    """Words at the right, each above its line."""
    shift = offset_copy(axes.get_yaxis_transform(), axes.get_figure(root=True), y=_RAISED, units="points")
    for row, text in zip(rows, words, strict=False):
        axes.text(1.0, row, text, transform=shift, ha="right", va="bottom", color=INK, fontsize=FONT, bbox=_BEHIND)


def _meanings(centre: np.ndarray, signs: np.ndarray, reference: float, is_bare: bool) -> list[Any]:
    """A legend of the colours that occur; ``is_bare`` where no estimate has an interval."""
    style: dict[str, Any] = {"marker": "o", "linewidth": 0.0 if is_bare else 2.4, "markersize": 6}
    style |= {"fillstyle": "none", "markeredgewidth": 1.6} if is_bare else {}
    words = ((1, BLUE, f"above {reference:g}"), (-1, ORANGE, f"below {reference:g}"))
    is_known = ~np.isnan(centre)
    handles = [Line2D([], [], color=colour, label=text, **style) for sign, colour, text in words if sign in signs]
    if (is_known & (signs == 0)).any():
        handles.append(Line2D([], [], color=FAINT, label=f"interval with {reference:g}", **style))
    if np.isinf(centre).any():
        handles.append(Line2D([], [], color=SLATE, linewidth=2.4, marker=">", label="infinite"))
    return handles


def plot_comparison(
    names: Sequence[str],
    values: np.ndarray,
    std_errors: np.ndarray | None = None,
    *,
    ax: Target = None,
    label: str = "",
    lower_is_better: bool = False,
) -> Axes:
    """Scores of models with one standard error, the best on top and emphasised.

    Args:
        names: of the models.
        values: scores (num_models,), NaN where a model has none.
        std_errors: standard errors (num_models,), None or NaN for none.
        ax: axes to draw into, an empty figure, or None for a new figure of pyplot.
        label: what the scores are, with their unit.
        lower_is_better: whether the smallest score wins, as with AIC.

    Returns:
        The axes.

    Raises:
        InputError: no model, or arrays of other shapes.
        InputTypeError: ``ax`` is neither axes nor a figure.

    Example:
        >>> from matplotlib.figure import Figure
        >>> axes = plot_comparison(["pairs", "independent"], np.array([-310.0, -325.0]), ax=Figure())
        >>> [tick.get_text() for tick in axes.get_yticklabels()]
        ['pairs', 'independent']
    """
    if not len(names):
        raise none_received("names", "at least one model")
    values = np.asarray(values, dtype=float)
    errors = np.full(len(names), np.nan) if std_errors is None else np.asarray(std_errors, dtype=float)
    for array in (values, errors):
        if array.shape != (len(names),):
            raise wrong_shape("values, std_errors", f"({len(names)},)", array)
    # Best first, with a line through it that the others are seen against.
    order = np.argsort(values if lower_is_better else -values, kind="stable")  # NaN last
    axes, rows, texts = _lines_axes(ax, [str(names[int(k)]) for k in order])
    values, errors = values[order], errors[order]
    axes.axvline(values[0], color=FAINT, linewidth=1, linestyle=(0, (4, 3)))
    for row, mid, error in zip(rows, values, np.nan_to_num(errors), strict=True):
        colour, marker, size = (INK, "D", 8) if row == rows[0] else (SLATE, "o", 6)
        axes.plot([mid - error, mid + error], [row, row], color=colour, linewidth=2.4, solid_capstyle="round")
        axes.plot(mid, row, marker, color=colour, markersize=size)
    _name_lines(axes, rows, texts)
    axes.get_yticklabels()[0].set_fontweight("bold")
    side = "left" if lower_is_better else "right"
    axes.set_xlabel(wrapped(f"{label or 'score'}; further {side} is better", 50), color=INK, fontsize=FONT)
    bars = ", bars: one standard error" if np.isfinite(errors).any() else ""
    handles = [Line2D([], [], color=INK, marker="D", markersize=8, linewidth=2.4, label=f"best{bars}")]
    if len(texts) > 1:
        handles.append(Line2D([], [], color=SLATE, marker="o", markersize=6, linewidth=2.4, label="other models"))
    legend_below(ax, axes, handles)
    return axes


def plot_gaps(labels: Sequence[str], observed: np.ndarray, expected: np.ndarray, *, ax: Target = None) -> Axes:
    """Observed beside expected counts of cells, one line a cell: blue where there are more rows than expected.

    Args:
        labels: of the cells, wrapped where long.
        observed: counts (num_labels,).
        expected: expected counts (num_labels,).
        ax: axes to draw into, an empty figure, or None for a new figure of pyplot.

    Raises:
        InputError: arrays of other shapes.
        InputTypeError: ``ax`` is neither axes nor a figure.

    Example:
        >>> from matplotlib.figure import Figure
        >>> axes = plot_gaps(["sex male, ill yes"], np.array([30]), np.array([20.0]), ax=Figure())
        >>> [text.get_text() for text in axes.get_legend().get_texts()]
        ['expected by the model', 'observed: more']
    """
    counts = [np.asarray(values, dtype=float) for values in (observed, expected)]
    for values in counts:
        if values.shape != (len(labels),):
            raise wrong_shape("observed, expected", f"({len(labels)},)", values)
    beside = [f"{n:,.6g} (expected {number(m)})" for n, m in zip(*counts, strict=True)]
    axes, rows, texts = _lines_axes(ax, labels, max(map(len, beside), default=0) + _BESIDE)
    for row, n, m in zip(rows, *counts, strict=True):
        colour = BLUE if n > m else ORANGE
        axes.plot([m, n], [row, row], color=colour, linewidth=2.4)
        axes.plot(n, row, "o", color=colour, markersize=6)
        axes.plot(m, row, "|", color=INK, markersize=9, markeredgewidth=1.6)
    _write_beside(axes, rows, beside)
    _name_lines(axes, rows, texts)
    axes.set_xlim(left=0)
    axes.set_xlabel("rows", color=INK, fontsize=FONT)
    is_more = counts[0] > counts[1]
    handles = [Line2D([], [], color=INK, marker="|", linestyle="", markersize=9, label="expected by the model")]
    for colour, words, occurs in (
        (BLUE, "observed: more", is_more.any()),
        (ORANGE, "observed: fewer", (~is_more).any()),
    ):
        handles += [Line2D([], [], color=colour, marker="o", linewidth=2.4, label=words)] if occurs else []
    legend_below(ax, axes, handles)
    return axes
