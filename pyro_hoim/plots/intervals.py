"""Estimates with their intervals as a forest, and models compared with the best one emphasised."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from ..errors import check_names, check_type, check_whole, none_received, wrong_shape
from .drawing import BLUE, FAINT, FONT, INK, ORANGE, Target, axes_for, legend_below, plain_axes, wrapped

__all__ = ["plot_comparison", "plot_forest", "plot_interactions"]

_LABEL_WIDTH = 34  # characters
_LINE = 0.17  # inches
_ARROW = 1.15  # of the reach of all finite ends


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
    reference: float = 0.0,
    label: str = "",
) -> Axes:
    """Estimates with their intervals, the first label on top; an infinite estimate is an arrow.

    Args:
        labels: what is estimated, wrapped where long.
        centre: estimates (num_labels,).
        lower: lower ends (num_labels,), NaN where there is no interval.
        upper: upper ends (num_labels,).
        ax: axes to draw into, an empty figure, or None for a new figure of pyplot.
        reference: drawn as a line; intervals that hold it are grey.
        label: what the estimates are, with their unit.

    Raises:
        InputError: arrays of other shapes.
        InputTypeError: ``ax`` is neither axes nor a figure.

    Example:
        >>> from matplotlib.figure import Figure
        >>> axes = plot_forest(["a"], np.array([0.5]), np.array([0.2]), np.array([0.8]), ax=Figure())
        >>> axes.get_legend().get_texts()[0].get_text()
        'interval without 0'
    """
    lower, centre, upper = (np.asarray(values, dtype=float) for values in (lower, centre, upper))
    for values in (centre, lower, upper):
        if values.shape != (len(labels),):
            raise wrong_shape("centre, lower, upper", f"({len(labels)},)", values)
    axes, rows, texts = _lines_axes(ax, labels)
    axes.axvline(reference, color=FAINT, linewidth=1)
    # Intervals that exclude the reference stand out.
    is_clear = (lower > reference) | (upper < reference)
    finite = np.concatenate([lower, centre, upper])
    reach = float(np.abs(finite[np.isfinite(finite)] - reference).max(initial=0.0)) or 1.0
    for row, mid, low, high, clear in zip(rows, centre, lower, upper, is_clear, strict=True):
        # An infinite estimate is an arrow that leaves the picture.
        if np.isinf(mid):
            tip = reference + _ARROW * reach * np.sign(mid)
            style = {"arrowstyle": "-|>", "color": ORANGE, "linewidth": 2.4}
            axes.annotate("", (tip, row), (reference, row), arrowprops=style)
            axes.plot(tip, row, alpha=0)  # the limits of the axes do not see annotations
            continue
        colour = BLUE if clear else FAINT
        axes.plot([low, high], [row, row], color=colour, linewidth=2.4, solid_capstyle="round")
        axes.plot(mid, row, "o", color=colour, markersize=6)
    axes.set_yticks(rows, texts)
    axes.set_xlabel(wrapped(label, 50), color=INK, fontsize=FONT)
    plain_axes(axes)
    legend_below(ax, axes, _meanings(centre, lower, is_clear, reference))
    return axes


def _lines_axes(ax: Target, labels: Sequence[str]) -> tuple[Axes, np.ndarray, list[str]]:
    """Axes with a line for every label, its place from the top down, and the wrapped labels; the last one is at 0."""
    texts = [wrapped(text, _LABEL_WIDTH) for text in labels]
    heights = np.array([max(1.0, (text.count("\n") + 1.7) / 1.7) for text in texts])
    total = float(heights.sum())
    axes = axes_for(ax, 6.0, 0.7 + 1.7 * _LINE * total)
    rows = total - np.cumsum(heights) + heights / 2 - (heights[-1] / 2 if texts else 0.0)
    axes.set_ylim(rows[-1] - heights[-1] / 2 - 0.2, rows[0] + heights[0] / 2 + 0.2) if texts else axes.set_ylim(
        -0.7, 0.7
    )
    axes.xaxis.set_major_locator(MaxNLocator(5))
    return axes, rows, texts


def _meanings(centre: np.ndarray, lower: np.ndarray, clear: np.ndarray, reference: float) -> list[Any]:
    """A legend of the colours that occur."""
    drawn = np.isfinite(centre) & ~np.isnan(lower)
    style: dict[str, Any] = {"marker": "o", "linewidth": 2.4, "markersize": 6}
    handles = list[Any]()
    if (drawn & clear).any():
        handles.append(Line2D([], [], color=BLUE, label=f"interval without {reference:g}", **style))
    if (drawn & ~clear).any():
        handles.append(Line2D([], [], color=FAINT, label=f"interval with {reference:g}", **style))
    if np.isinf(centre).any():
        handles.append(Line2D([], [], color=ORANGE, linewidth=2.4, marker=">", label="infinite"))
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
    axes.axvline(values[0], color=ORANGE, linewidth=1, linestyle=(0, (4, 3)))
    for row, mid, error in zip(rows, values, np.nan_to_num(errors), strict=True):
        colour, marker, size = (ORANGE, "D", 8) if row == rows[0] else (BLUE, "o", 6)
        axes.plot([mid - error, mid + error], [row, row], color=colour, linewidth=2.4, solid_capstyle="round")
        axes.plot(mid, row, marker, color=colour, markersize=size)
    axes.set_yticks(rows, texts)
    axes.get_yticklabels()[0].set_fontweight("bold")
    side = "left" if lower_is_better else "right"
    axes.set_xlabel(wrapped(f"{label or 'score'}; further {side} is better", 50), color=INK, fontsize=FONT)
    plain_axes(axes)
    bars = ", bars: one standard error" if np.isfinite(errors).any() else ""
    handles = [Line2D([], [], color=ORANGE, marker="D", markersize=8, linewidth=2.4, label=f"best{bars}")]
    if len(texts) > 1:
        handles.append(Line2D([], [], color=BLUE, marker="o", markersize=6, linewidth=2.4, label="other models"))
    legend_below(ax, axes, handles)
    return axes
