"""What rows hold beside what a mixed root model expects of every column given all others: pictures of a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from ...core.prediction import Prediction
from ...data.counts import CountTable
from ...plots.drawing import BLUE, FAINT, FONT, INK, KINDS, SLATE, WIDTH, plain_axes, wrapped
from .prediction import RootPrediction, conditional_law, predict_roots
from .scores import RootModel

Floats = NDArray[np.float64]

_MOST_ROWS = 1000
_MOST_COLUMNS = 10
_GROUPS = 8  # of rows by their fitted shares
_FLAT = 0.05  # fitted shares that hardly differ
_BARS = 15  # of counts
_CELLS = 24  # of a histogram
_LEVELS = 5  # of a category, in one panel


@dataclass(frozen=True, eq=False)
class FittedColumn:
    """One column of some rows beside its conditional laws given all others.

    Attributes:
        name: of the column.
        kind: ``labels``; ``counts`` of a few values; ``numbers`` in cells of equal width.
        at: of labels the mean fitted share of every group of rows; of counts the values, of numbers the edges of cells.
        observed: share of the rows.
        expected: mean share over the conditional laws; of labels the same as ``at``.
        level: of labels, the level of every group.
    """

    name: str
    kind: Literal["labels", "counts", "numbers"]
    at: Floats
    observed: Floats
    expected: Floats
    level: tuple[str, ...] = ()


def fitted_columns(model: RootModel, table: CountTable, names: Sequence[str]) -> tuple[FittedColumn, ...]:
    """Columns of at most 1,000 rows, evenly spaced, beside what the model expects of them; at most 10 columns."""
    places = np.arange(min(_MOST_ROWS, table.num_rows)) * table.num_rows // max(min(_MOST_ROWS, table.num_rows), 1)
    rows, fitted = table.rows(places), list[FittedColumn]()
    for name in [name for name in names if name not in model.fixed][:_MOST_COLUMNS]:
        prediction = predict_roots(model, rows, name)
        if isinstance(prediction, Prediction):
            fitted.append(_labels(prediction))
        elif prediction.family is not None and float(prediction.std.max(initial=0.0)) > 0:
            fitted.append(_numbers(prediction))
    return tuple(fitted)


def _labels(prediction: Prediction) -> FittedColumn:
    """Observed shares of levels in groups of rows with about the same fitted share; of two levels the second alone."""
    probs, truth = prediction.probs.numpy(), prediction.truth.numpy()
    shares = probs.mean(0)
    levels = [1] if len(prediction.labels) == 2 else np.argsort(-shares, kind="stable")[:_LEVELS].tolist()
    at, observed, level = list[float](), list[float](), list[str]()
    for code in levels:
        spread = float(np.ptp(np.quantile(probs[:, code], [0.05, 0.95])))
        groups = min(_GROUPS, len(truth)) if spread > _FLAT else 1  # groups of equal probabilities differ by chance
        for group in np.array_split(np.argsort(probs[:, code], kind="stable"), groups):
            at.append(float(probs[group, code].mean()))
            observed.append(float((truth[group] == code).mean()))
            level.append(prediction.labels[code])
    return FittedColumn(prediction.target, "labels", np.array(at), np.array(observed), np.array(at), tuple(level))


def _numbers(prediction: RootPrediction) -> FittedColumn:
    """Shares of values, or of cells, among the rows and in the mean of their conditional laws."""
    assert prediction.family is not None
    assert prediction.natural is not None
    assert prediction.values is not None
    points, probs = conditional_law(
        prediction.family, prediction.natural, prediction.mean - prediction.origin, prediction.std
    )
    values, points = prediction.values, points + prediction.origin
    top = float(values.max())
    if prediction.family.is_discrete and top < _BARS:
        at = np.arange(top + 1)
        observed = np.array([(values == value).mean() for value in at])
        expected = np.array([probs[points == value].sum() / len(values) for value in at])
        return FittedColumn(prediction.target, "counts", at, observed, expected)
    # Cells that hold nearly all rows; of counts their edges are between whole numbers.
    low, high = np.quantile(values, [0.005, 0.995])
    edges = np.linspace(low, max(high, low + 1e-12), _CELLS + 1)
    if prediction.family.is_discrete:
        edges = np.unique(np.round(edges)) - 0.5
        edges = np.append(edges, edges[-1] + 1)
    observed = np.histogram(values, edges)[0] / len(values)
    expected = np.histogram(points, edges, weights=probs)[0] / len(values)
    return FittedColumn(prediction.target, "numbers", edges, observed, expected)


def fitted_figure(columns: Sequence[FittedColumn], *, across: int = 2) -> Figure:
    """A panel for every column: shares of labels along a diagonal, counts as bars, numbers as a histogram.

    Args:
        columns: what is drawn.
        across: panels in a row.

    Example:
        >>> half = np.array([0.5, 0.5])
        >>> figure = fitted_figure([FittedColumn("visits", "counts", np.arange(2.0), half, half)])
        >>> figure.axes[0].get_title()
        'visits'
    """
    across = min(across, len(columns))
    down = -(-len(columns) // across)
    figure = Figure(figsize=(WIDTH, 0.55 + 2.05 * down), layout="constrained")
    grid = figure.subplots(down, across, squeeze=False).ravel()
    for axes in grid[len(columns) :]:
        axes.set_visible(False)
    draw = {"labels": _draw_labels, "counts": _draw_counts, "numbers": _draw_numbers}
    handles: dict[str, Any] = {}
    for axes, column in zip(grid, columns, strict=False):
        draw[column.kind](axes, column)
        axes.set_title(wrapped(column.name, 26), color=INK, fontsize=FONT + 0.5)
        if column.kind != "labels":
            axes.set_ylim(bottom=0)
            handles |= dict(zip(*axes.get_legend_handles_labels()[::-1], strict=True))
        axes.xaxis.set_major_locator(MaxNLocator(4, integer=column.kind == "counts"))
        axes.yaxis.set_major_locator(MaxNLocator(3))
    if handles:
        options = {"frameon": False, "fontsize": FONT, "labelcolor": INK, "ncols": 2}
        figure.legend(handles.values(), handles.keys(), loc="outside lower center", **options)
    return figure


def _draw_labels(axes: Any, column: FittedColumn) -> None:
    """Observed against fitted shares."""
    axes.plot([0, 1], [0, 1], color=FAINT, linewidth=1.0, zorder=1)
    levels = list(dict.fromkeys(column.level))
    for number, level in enumerate(levels):
        inside = np.array([one == level for one in column.level])
        colour = SLATE if len(levels) == 1 else KINDS[number % len(KINDS)]
        axes.plot(column.at[inside], column.observed[inside], "o", color=colour, markersize=4, label=wrapped(level, 14))
    most = min(1.0, 1.08 * float(max(column.at.max(), column.observed.max(), 0.05)))
    least = max(0.0, float(min(column.at.min(), column.observed.min())) - 0.05)
    axes.set_xlim(least, most)
    axes.set_ylim(least, most)
    plain_axes(axes, f"fitted share of {levels[0]}" if len(levels) == 1 else "fitted share", "observed share")
    if len(levels) > 1:
        axes.legend(frameon=False, fontsize=FONT - 1.5, labelcolor=INK, handletextpad=0.1, loc="upper left")


def _draw_counts(axes: Any, column: FittedColumn) -> None:
    """Bars of the rows, and points of the model."""
    axes.bar(column.at, column.observed, color=FAINT, width=0.8, label="observed")
    axes.plot(column.at, column.expected, "o", color=BLUE, markersize=4, label="fitted")
    plain_axes(axes, "value", "share of rows")


def _draw_numbers(axes: Any, column: FittedColumn) -> None:
    """A histogram of the rows, and the mean density of the model."""
    width = np.diff(column.at)
    middle = column.at[:-1] + width / 2
    axes.bar(middle, column.observed / width, color=FAINT, width=width, label="observed")
    axes.plot(middle, column.expected / width, "o-", color=BLUE, markersize=2.5, linewidth=1.2, label="fitted")
    axes.ticklabel_format(axis="both", style="plain", useOffset=False)
    plain_axes(axes, "value", "density")
