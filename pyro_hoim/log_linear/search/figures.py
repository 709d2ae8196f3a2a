"""Pictures of a search of interactions: capacity curves, what it cost and where it was best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator

from ...core.words import literal, shorten
from ...errors import none_received, refused
from ...plots.drawing import FAINT, INK, KINDS, WIDTH, plain_axes

DARK, LIGHT = KINDS[:2]
_NARROW = 12  # largest size over smallest, up to which the sizes themselves are the ticks
_MEASURES = {"kl": "KL", "loss": "NLL"}


def capacity_figure(
    curves: Mapping[str, pd.DataFrame],
    *,
    references: Mapping[str, float] | None = None,
    columns: int = 4,
    measure: Literal["kl", "loss"] = "kl",
) -> Figure:
    """Divergence or loss against size on logarithmic axes, one panel a search (paper 1, figures 4 to 6).

    Training is dark, validation light; the best round is ringed, and its validation value written beside it. Of rounds
    in a row with equally many parameters, which differ in how strongly these are held back, the line passes through the
    best on validation; the others are open circles. Rounds without a finite positive value are left out. All
    panels have the same axes.

    Args:
        curves: panel titles and the frames of ``SelectionResult.capacity_curve()``.
        references: values drawn as dashed lines across every panel, such as those of other models, by label.
        columns: panels side by side.
        measure: what is counted upwards: divergence, or the loss, which says more where all rows are distinct.

    Returns:
        The figure.

    Raises:
        InputError: no curve, or one without a finite positive value.

    Example:
        >>> curve = pd.DataFrame({"num_interactions": [0, 1], "num_parameters": [3, 4], "train_kl": [0.3, 0.1]})
        >>> curve = curve.assign(validation_kl=[0.4, 0.2], is_best=[False, True])
        >>> axes = capacity_figure({"greedy": curve}).axes[0]
        >>> axes.get_title(), axes.get_xscale(), [text.get_text() for text in axes.texts]
        ('greedy', 'log', ['0.200'])
    """
    if not curves:
        raise none_received("curves", "at least one capacity curve")
    # What is shown, refused where nothing of it can be drawn.
    name = _MEASURES[measure]
    if measure == "loss" and any((curve["loss_kind"] == "pseudo-likelihood").any() for curve in curves.values()):
        name = "pseudo-NLL"
    parts = ("train", "validation")
    curves = {
        title: curve.assign(**{part: curve[f"{part}_{measure}"] for part in parts}) for title, curve in curves.items()
    }
    for title, curve in curves.items():
        if not _shown(curve, "validation").any():
            problem = f"{title!r} has no positive, finite validation {name}; nothing can be drawn"
            raise refused("curves", problem, code="not-finite")
    # One panel a curve, all with the same axes.
    across = min(columns, len(curves))
    down = -(-len(curves) // across)
    size = (WIDTH, 3.6) if len(curves) == 1 else (2.9 * across + 0.4, 2.5 * down + 0.7)
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(down, across, squeeze=False, sharex=True, sharey=True)
    for axes in grid.ravel()[len(curves) :]:
        axes.set_axis_off()
    for axes, (title, curve) in zip(grid.ravel(), curves.items(), strict=False):
        _panel(axes, title, curve, references or {})
    _ticks(grid[0, 0], list(curves.values()), references or {})
    # Words on the rim only, and one legend for all panels.
    for axes in grid[:, 0]:
        axes.set_ylabel(f"{name}, nats per row", color=INK, fontsize=9)
    for axes in grid[-1]:
        axes.set_xlabel("parameters of the family", color=INK, fontsize=9)
    handles = [
        Line2D([], [], color=DARK, marker="o", markersize=4, linewidth=1.4, label="training"),
        Line2D([], [], color=LIGHT, marker="o", markersize=4, linewidth=1.4, label="validation"),
        Line2D([], [], color=INK, marker="o", markersize=9, fillstyle="none", linestyle="none", label="best round"),
        *(
            Line2D([], [], color=FAINT, linestyle=(0, (4, 3 + 3 * i)), label=label)
            for i, label in enumerate(references or {})
        ),
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=len(handles), frameon=False, fontsize=9)
    return figure


def _shown(curve: pd.DataFrame, name: str) -> np.ndarray:
    """Rounds whose value can stand on a logarithmic axis."""
    values = curve[name].to_numpy(dtype=float)
    return np.isfinite(values) & (values > 0)


def _ticks(axes: Axes, curves: Sequence[pd.DataFrame], references: Mapping[str, float]) -> None:
    """Ticks of the axes that all panels share: round numbers, or where the range is narrow the sizes themselves."""
    # Sizes to the right, and what all panels show upwards.
    sizes = np.unique(np.concatenate([c["num_parameters"].to_numpy(dtype=float) for c in curves]))
    sizes = sizes[sizes > 0]
    values = [c[name].to_numpy(dtype=float)[_shown(c, name)] for c in curves for name in ("train", "validation")]
    heights = np.concatenate([*values, [v for v in references.values() if v > 0]])
    if len(sizes) and sizes[-1] < _NARROW * sizes[0]:
        least = 0.12 * np.log(sizes[-1] / sizes[0])
        marks = [float(sizes[-1])]
        for size in sizes[-2::-1]:
            if np.log(marks[-1] / size) > least:
                marks.append(float(size))
        axes.xaxis.set_major_locator(FixedLocator(marks[::-1]))
        if len(sizes) == 1:
            axes.set_xlim(sizes[0] / 2, sizes[0] * 2)
    else:
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    # Linear ticks upwards where the values are close.
    is_narrow = heights.max() < 4 * heights.min()
    axes.yaxis.set_major_locator(MaxNLocator(5) if is_narrow else LogLocator(subs=(1.0, 2.0, 5.0)))
    if is_narrow:
        span = max(float(heights.max() / heights.min()), 1.05) ** 0.12
        axes.set_ylim(heights.min() / span, heights.max() * span)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))


def _panel(axes: Axes, title: str, curve: pd.DataFrame, references: Mapping[str, float]) -> None:
    size = curve["num_parameters"].to_numpy(dtype=float)
    for i, value in enumerate(references.values()):
        axes.axhline(value, color=FAINT, linewidth=1, linestyle=(0, (4, 3 + 3 * i)))
    # Of rounds of one size the best is on the line, the others are open circles.
    # Rounds on the line: of every run of rounds of one size the best, else the one with the least validation
    # loss
    loss = curve["validation"].to_numpy(dtype=float)
    loss = np.where(np.isfinite(loss), loss, np.inf)
    loss = np.where(curve["is_best"].to_numpy(dtype=bool), -np.inf, loss)
    on_line = np.zeros(len(size), dtype=bool)
    start = 0
    for stop in range(1, len(size) + 1):
        if stop == len(size) or size[stop] != size[start]:
            on_line[start + int(np.argmin(loss[start:stop]))] = True
            start = stop
    for name, colour in (("train", DARK), ("validation", LIGHT)):
        shown, values = _shown(curve, name), curve[name].to_numpy(dtype=float)
        line, beside = shown & on_line, shown & ~on_line
        axes.plot(size[line], values[line], "o-", color=colour, markersize=3, linewidth=1.4)
        if beside.any():
            axes.plot(size[beside], values[beside], "o", color=colour, markersize=3.5, fillstyle="none")
    values = curve["validation"].to_numpy(dtype=float)
    # The best round, ringed, with its value.
    best = np.flatnonzero(curve["is_best"].to_numpy(dtype=bool) & _shown(curve, "validation"))
    for i in best:
        axes.plot(size[i], values[i], "o", color=INK, markersize=10, fillstyle="none", markeredgewidth=1.8)
        axes.annotate(
            f"{values[i]:.3f}",
            (size[i], values[i]),
            xytext=(1, 9),
            textcoords="offset points",
            ha="left",
            color=INK,
            fontsize=9,
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_title(literal(shorten(title, 40)), fontsize=10, color=INK)
    axes.grid(visible=True, which="major", color=FAINT, alpha=0.25, linewidth=0.6)
    plain_axes(axes)
