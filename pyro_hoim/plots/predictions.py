"""How good predicted probabilities are: calibration, and the trade-off of hits and false alarms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from ..errors import check_fraction, check_whole, none_received, out_of_range, refused, wrong_shape
from .drawing import FAINT, FONT, INK, SLATE, Target, axes_for, legend_below, plain_axes


def _checked(values: Any, outcomes: Any, argument: str) -> tuple[np.ndarray, np.ndarray]:
    """Numbers (n,) and whether the event happened (n,)."""
    numbers, happened = np.asarray(values, dtype=float), np.asarray(outcomes)
    if numbers.ndim != 1 or happened.shape != numbers.shape:
        raise wrong_shape(f"{argument}, outcomes", "(n,) both", received(numbers, happened))
    if not len(numbers):
        raise none_received(argument, "at least one row")
    if not np.isin(happened, (0, 1)).all():
        hint = "compare the column with the level: df['smoke'] == 'yes'"
        raise out_of_range("outcomes", "True or False (1 or 0) for every row", received="other values", hint=hint)
    if np.isnan(numbers).any():
        raise out_of_range(argument, "numbers", received="NaN")
    return numbers, happened.astype(bool)


def received(*arrays: np.ndarray) -> tuple[int, ...]:
    """All sizes of several arrays, for a message."""
    return tuple(size for array in arrays for size in array.shape)


def calibration_table(probabilities: Any, outcomes: Any, *, bins: int = 10, level: float = 0.95) -> pd.DataFrame:
    r"""Predicted probabilities in bins of equal width beside how often the event happened.

    .. math:: \frac{k + z^2/2 \pm z \sqrt{k (n - k)/n + z^2/4}}{n + z^2}

    are the ends of the interval for k events in n rows.

    Args:
        probabilities: predicted probabilities of the event (n,), from 0 to 1.
        outcomes: whether it happened (n,), True and False or 1 and 0.
        bins: number of bins from 0 to 1; those without rows are left out.
        level: coverage of the intervals.

    Returns:
        A row a bin: ``lower_edge``, ``upper_edge``, ``count``, ``predicted`` (mean probability), ``observed`` (share of
        events), ``lower`` and ``upper`` (of the interval).

    Raises:
        InputError: no row, shapes that differ, NaN, probabilities outside 0 and 1, or other outcomes.

    References:
        Wilson (1927), Probable inference, the law of succession, and statistical inference.

    Example:
        >>> calibration_table([0.1, 0.2, 0.9, 0.8], [False, False, True, True], bins=2)["observed"].tolist()
        [0.0, 1.0]
    """
    chance, happened = _checked(probabilities, outcomes, "probabilities")
    check_whole(bins, "bins")
    check_fraction(level, "level")
    if chance.min() < 0 or chance.max() > 1:
        raise out_of_range("probabilities", "numbers from 0 to 1", received=f"{chance.min():g} to {chance.max():g}")
    at = np.minimum((chance * bins).astype(int), bins - 1)
    count = np.bincount(at, minlength=bins)
    is_filled = count > 0
    n = count[is_filled]
    events = np.bincount(at, happened, bins)[is_filled]
    from scipy.special import ndtri  # takes a moment to import

    # Wilson's interval, which has its level in small bins, too.
    z = float(ndtri(0.5 + level / 2))
    half = z * np.sqrt(events * (n - events) / n + z * z / 4)
    edges = np.arange(bins + 1) / bins
    return pd.DataFrame(
        {
            "lower_edge": edges[:-1][is_filled],
            "upper_edge": edges[1:][is_filled],
            "count": n,
            "predicted": np.bincount(at, chance, bins)[is_filled] / n,
            "observed": events / n,
            "lower": np.clip((events + z * z / 2 - half) / (n + z * z), 0.0, 1.0),
            "upper": np.clip((events + z * z / 2 + half) / (n + z * z), 0.0, 1.0),
        }
    )


def plot_calibration(
    probabilities: Any, outcomes: Any, *, bins: int = 10, level: float = 0.95, ax: Target = None
) -> Axes:
    """Share of events against the predicted probability, with intervals of Wilson and the rows of every bin.

    Points on the diagonal mean that predicted probabilities can be taken at their word. Arguments and errors are those
    of :func:`calibration_table`; the numbers above the axes are rows.

    Args:
        probabilities: predicted probabilities of the event (n,).
        outcomes: whether it happened (n,).
        bins: number of bins from 0 to 1.
        level: coverage of the intervals.
        ax: axes to draw into, an empty figure, or None for a new figure of pyplot.

    Returns:
        The axes.

    Raises:
        InputError: no row, shapes that differ, NaN, probabilities outside 0 and 1, or other outcomes.
        InputTypeError: ``ax`` is neither axes nor a figure.

    Example:
        >>> from matplotlib.figure import Figure
        >>> axes = plot_calibration([0.1, 0.2, 0.9, 0.8], [False, False, True, True], bins=2, ax=Figure())
        >>> [text.get_text() for text in axes.texts]
        ['2', '2']
    """
    # The diagonal is what forecasts of the right frequency lie on.
    table = calibration_table(probabilities, outcomes, bins=bins, level=level)
    axes = axes_for(ax, 4.4, 4.2)
    axes.plot([0, 1], [0, 1], color=FAINT, linewidth=1)
    predicted, observed = table["predicted"].to_numpy(), table["observed"].to_numpy()
    axes.vlines(predicted, table["lower"], table["upper"], color=SLATE, linewidth=2.0)
    axes.plot(predicted, observed, "o", color=SLATE, markersize=6)
    # How many rows a bin has, above it.
    size = FONT if bins <= 10 else FONT - 1
    for x, count in zip((table["lower_edge"] + table["upper_edge"]) / 2, table["count"], strict=True):
        style: dict[str, Any] = {
            "ha": "center",
            "va": "bottom",
            "color": INK,
            "fontsize": size,
            "rotation": 0 if bins <= 5 else 90,
        }
        axes.text(x, 1.03, f"{count:,}", **style)
    # Both axes are shares, and equally long.
    axes.set_xlim(-0.02, 1.02)
    axes.set_ylim(-0.02, 1.02)
    axes.set_aspect("equal")
    plain_axes(axes, "predicted probability", "share of events")
    handles = [
        Line2D([], [], color=SLATE, marker="o", linewidth=2.0, label=f"share with {level:.0%} interval; rows above"),
        Line2D([], [], color=FAINT, linewidth=1, label="perfect calibration"),
    ]
    legend_below(ax, axes, handles)
    return axes


def roc_points(scores: Any, outcomes: Any) -> tuple[np.ndarray, np.ndarray, float]:
    """The receiver operating characteristic: every threshold between different scores, ties passed in one step.

    Args:
        scores: larger where the event is more probable (n,), such as its predicted probability.
        outcomes: whether it happened (n,), True and False or 1 and 0.

    Returns:
        Share of non-events above the threshold, share of events above it, both from 0 to 1, and the area under the
        curve: the probability that a random event scores higher than a random non-event, ties counting one half.

    Raises:
        InputError: no row, shapes that differ, NaN, other outcomes, or outcomes that are all alike.

    References:
        Hanley and McNeil (1982), The meaning and use of the area under a receiver operating characteristic curve.

    Example:
        >>> roc_points([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1])[2]
        0.75
    """
    values, happened = _checked(scores, outcomes, "scores")
    events = int(happened.sum())
    if events in (0, len(happened)):
        raise refused("outcomes", "some rows with the event and some without are needed", code="empty")
    order = np.argsort(-values, kind="stable")
    ranked = values[order]
    last = np.flatnonzero(np.append(ranked[1:] != ranked[:-1], True))  # the last of every run of equal scores
    hits = np.cumsum(happened[order])[last]
    alarms = last + 1 - hits
    false, true = np.append(0.0, alarms / (len(values) - events)), np.append(0.0, hits / events)
    return false, true, math.fsum(0.5 * np.diff(false) * (true[1:] + true[:-1]))


def plot_roc(scores: Any, outcomes: Any, *, ax: Target = None, name: str = "", colour: str = SLATE) -> Axes:
    """Share of events found against the share of false alarms, for every threshold, with the area under the curve.

    Several curves may be drawn into the same axes, each with a name and a colour. Errors are those of
    :func:`roc_points`.

    Args:
        scores: larger where the event is more probable (n,).
        outcomes: whether it happened (n,).
        ax: axes to draw into, an empty figure, or None for a new figure of pyplot.
        name: of the curve in the legend.
        colour: of the curve.

    Returns:
        The axes.

    Raises:
        InputError: no row, shapes that differ, NaN, other outcomes, or outcomes that are all alike.
        InputTypeError: ``ax`` is neither axes nor a figure.

    Example:
        >>> from matplotlib.figure import Figure
        >>> axes = plot_roc([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1], ax=Figure())
        >>> axes.get_legend().get_texts()[0].get_text()
        'area under the curve 0.750'
    """
    false, true, area = roc_points(scores, outcomes)
    axes = axes_for(ax, 4.4, 4.2)
    label = f"{name}: area {area:.3f}" if name else f"area under the curve {area:.3f}"
    if not any(line.get_label() == "guessing" for line in axes.lines):
        axes.plot([0, 1], [0, 1], color=FAINT, linewidth=1, label="guessing")
    axes.plot(false, true, color=colour, linewidth=2.0, label=label)
    axes.set_xlim(-0.02, 1.02)
    axes.set_ylim(-0.02, 1.02)
    axes.set_aspect("equal")
    plain_axes(axes, "share of non-events called events", "share of events found")
    legend_below(ax, axes, [*axes.lines[1:], axes.lines[0]])
    return axes
