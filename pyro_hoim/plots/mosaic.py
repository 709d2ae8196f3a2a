"""Contingency tables as areas and bars: mosaics shaded by residuals, and association plots."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from ..budgets import check_size
from ..data.frames import DataLike, as_observations
from ..errors import none_received, refused, unexpected, wrong_shape
from ..schema import Domain
from .drawing import BLUE, FAINT, FONT, INK, ORANGE, Target, axes_for, label_lines, legend_below, wrapped
from .fitted import pearson_residuals

_MOST = 4  # variables: one a side
_MOST_TILES = 2**12
_GAPS = (0.03, 0.03, 0.06, 0.06)  # of a block that is split, all gaps of it together at most half
_CUTS = (2.0, 4.0)
_SHADES = (ORANGE, "#f0c3ac", "#f4f5f7", "#b5d0e0", BLUE)
_WORDS = ("below −4", "−4 to −2", "−2 to 2", "2 to 4", "above 4")
_LINE = 0.17  # inches
_LETTER = 0.078  # inches


def independent_counts(counts: np.ndarray) -> np.ndarray:
    """Counts that independent variables with the same margins would give, of the shape of the table.

    Example:
        >>> independent_counts(np.array([[8.0, 2.0], [4.0, 6.0]])).tolist()
        [[6.0, 4.0], [6.0, 4.0]]
    """
    total = counts.sum()
    found = np.full(counts.shape, float(total))
    for axis in range(counts.ndim) if total > 0 else ():
        margin = counts.sum(tuple(k for k in range(counts.ndim) if k != axis)) / total
        found = found * margin.reshape([-1 if k == axis else 1 for k in range(counts.ndim)])
    return found


def mosaic_tiles(counts: np.ndarray) -> np.ndarray:
    """Tiles of a table as left, bottom, width and height (*counts.shape, 4) inside the unit square.

    The first axis splits the square from left to right, the second every piece from the top down, the third from left
    to right again, and so on. Gaps are shares of the piece that is split, so that areas are exactly proportional to
    counts.

    Example:
        >>> tiles = mosaic_tiles(np.array([[3.0, 1.0], [2.0, 2.0]]))
        >>> areas = tiles[..., 2] * tiles[..., 3]
        >>> (areas / areas.sum() * 8).round(12).tolist()
        [[3.0, 1.0], [2.0, 2.0]]
    """
    tiles = np.zeros((*counts.shape, 4))
    tiles[...] = (0.0, 0.0, 1.0, 1.0)
    for axis, size in enumerate(counts.shape):
        margin = counts.sum(tuple(range(axis + 1, counts.ndim)), keepdims=True)
        whole = margin.sum(axis, keepdims=True)
        share = np.divide(margin, whole, out=np.full(margin.shape, 1.0 / size), where=whole > 0)
        gap = min(_GAPS[axis % len(_GAPS)], 0.5 / max(size - 1, 1))
        length = share * (1 - gap * (size - 1))
        before = np.cumsum(length, axis) - length
        before = before + gap * np.arange(size).reshape([-1 if k == axis else 1 for k in range(counts.ndim)])
        at = axis % 2
        start = before if at == 0 else 1 - before - length  # from the top down
        tiles[..., at] += start * tiles[..., 2 + at]
        tiles[..., 2 + at] *= length
    return tiles


def _table(data: DataLike, names: Sequence[str] | None, most: int) -> tuple[Domain, np.ndarray]:
    """The variables in the order of the names, and their table of counts."""
    rows = as_observations(data)
    wanted = rows.domain.names if names is None else tuple(names)
    if not wanted:
        raise none_received("names", "at least one variable")
    if len(set(wanted)) < len(wanted) or len(wanted) > most:
        hint = "name the variables to draw" if names is None else None
        raise unexpected("names", f"at most {most} different variables", received=len(wanted), hint=hint)
    num = rows.domain.project(wanted).num_states
    check_size(num, _MOST_TILES, "tiles", "names", "merge levels, or name fewer variables", "there are")
    chosen = rows.project(wanted).drop_missing()
    counts = chosen.table().numpy()
    domain = Domain(rows.domain[name] for name in wanted)
    return domain, counts.transpose([chosen.domain.index(name) for name in wanted])


def _against(counts: np.ndarray, expected: Any) -> np.ndarray:
    """Expected counts, those of independent variables where none are given."""
    if not counts.sum() > 0:
        raise none_received("data", "at least one row without missing cells")
    found = independent_counts(counts) if expected is None else np.asarray(expected, dtype=float)
    if found.shape != counts.shape:
        raise wrong_shape("expected", counts.shape, found)
    return found


def shade(residual: float) -> str:
    """Colour of a residual, with cuts at 2 and 4 on both sides; NaN is as 0."""
    steps = sum(abs(residual) > cut for cut in _CUTS)
    return _SHADES[2 + steps if residual > 0 else 2 - steps]


def plot_mosaic(
    data: DataLike,
    names: Sequence[str] | None = None,
    *,
    expected: Any = None,
    residuals: Any = None,
    ax: Target = None,
) -> Axes:
    """A mosaic: every cell of a table as a tile whose area is its count, shaded by its Pearson residual.

    The first variable splits the square from left to right (names of its levels above), the second from the top down
    (left), the third from left to right again (below), the fourth from the top down (right). Blue cells hold more rows
    than expected, orange ones fewer; shades begin at residuals of 2 and 4. A cell without rows is a short line.

    Args:
        data: a data frame or :class:`~pyro_hoim.Observations`; rows with missing cells among the names are left out.
        names: one to four variables in the order of the splits; all when None.
        expected: expected counts, an axis a name in this order, such as those of a model; of independent variables
            when None.
        residuals: residuals of the same shape instead of Pearson's.
        ax: axes to draw into, an empty figure, or None for a new figure of pyplot.

    Returns:
        The axes.

    Raises:
        InputError: no row, more than four names, or expected counts of another shape.
        InputTypeError: data of another type, or ``ax`` is neither axes nor a figure.
        UnknownNameError: a name that is no variable.

    References:
        Friendly (1994), Mosaic displays for multi-way contingency tables.

    Example:
        >>> import pandas as pd
        >>> from matplotlib.figure import Figure
        >>> axes = plot_mosaic(pd.DataFrame({"a": list("xxyy"), "b": list("uvvv")}), ax=Figure())
        >>> len(axes.patches)  # the cell of x and v is there, that of y and u is empty
        3
    """
    domain, counts = _table(data, names, _MOST)
    expected = _against(counts, expected)
    shown = pearson_residuals(counts, expected) if residuals is None else np.asarray(residuals, dtype=float)
    if shown.shape != counts.shape:
        raise wrong_shape("residuals", counts.shape, shown)
    tiles = mosaic_tiles(counts)
    labels, key = _labels(domain)
    # Inches that hold a line of text for every label.
    num = [len(each) for each in labels] + [1] * (_MOST - len(labels))
    lines = [max(text.count("\n") + 1 for text in each) for each in labels] + [1] * (_MOST - len(labels))
    reach = [_letters(each) * _LETTER for each in labels] + [0.0] * (_MOST - len(labels))
    width = max(4.0, 1.3 * _LINE * max(num[0] * lines[0], num[0] * num[2] * lines[2])) + reach[1] + reach[3]
    height = max(3.6, 1.3 * _LINE * max(num[1] * lines[1], num[1] * num[3] * lines[3])) + reach[0] + reach[2]
    axes = axes_for(ax, width + 0.8, height + 0.6)
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    axes.set_axis_off()
    for index in np.ndindex(*counts.shape):
        x, y, width, height = tiles[index]
        if counts[index] > 0:
            style: dict[str, Any] = {"facecolor": shade(float(shown[index])), "edgecolor": INK, "linewidth": 0.7}
            axes.add_patch(Rectangle((x, y), width, height, clip_on=False, **style))
        else:
            axes.plot([x, x + width], [y, y + height], color=FAINT, linewidth=1.2, solid_capstyle="butt")
    for axis in range(len(domain)):
        _name_levels(axes, domain.names[axis], labels[axis], counts, axis)
    # Shades, from the top down
    shades = list(zip(_SHADES, _WORDS, strict=True))[::-1]
    handles: list[Any] = [Patch(facecolor=c, edgecolor=INK, linewidth=0.7, label=w) for c, w in shades]
    handles.append(Line2D([], [], color=FAINT, linewidth=1.2, label="no row"))
    legend_below(ax, axes, handles, key, title="Pearson residual")
    return axes


def _letters(texts: Sequence[str]) -> int:
    """Characters of the longest line."""
    return max((len(line) for text in texts for line in text.split("\n")), default=0)


def spread(places: Sequence[float] | np.ndarray, apart: float, low: float = 0.0, high: float = 1.0) -> np.ndarray:
    """Places in rising order moved so that neighbours are this far apart, inside the bounds where there is room."""
    found = np.asarray(places, dtype=float)
    if not len(found):
        return found
    apart = min(apart, (high - low) / max(len(found) - 1, 1))
    steps = apart * np.arange(len(found))
    from scipy.optimize import isotonic_regression  # takes a moment to import

    moved = isotonic_regression(found - steps).x
    return np.clip(moved, low, max(high - steps[-1], low)) + steps


def _labels(domain: Domain) -> tuple[list[list[str]], list[str]]:
    """Labels of the levels of every variable, and a key of those that are numbered."""
    found, key = list[list[str]](), list[str]()
    for variable in domain.variables:
        labels, numbered = label_lines(variable.labels, 22, 2)
        found.append(labels)
        key += [f"{variable.name} {line}" for line in numbered]
    return found, key


def _name_levels(axes: Axes, name: str, labels: Sequence[str], counts: np.ndarray, axis: int) -> None:
    """Labels of a variable on its side, apart from one another, and its name."""
    blocks = mosaic_tiles(counts.sum(tuple(range(axis + 1, counts.ndim))))
    outer: list[Any] = [slice(None), 0, (slice(None), -1), (-1, slice(None), -1)]
    tiles = blocks[outer[axis]].reshape(-1, 4)  # those at the side where the labels stand
    across = axis % 2
    # Labels stand beside the middle of their tiles.
    centres = tiles[:, across] + tiles[:, 2 + across] / 2
    texts = list(labels) * (len(tiles) // len(labels))
    extent = axes.get_window_extent()
    inches = 0.72 * (extent.width, extent.height)[across] / axes.figure.dpi
    order = np.argsort(centres, kind="stable")
    letters = _letters(texts)
    # They are turned where they would touch, and moved apart where even that does not help.
    lines = max((text.count("\n") + 1 for text in texts), default=1)
    gaps = np.diff(centres[order])
    is_flat = across == 1 or bool((gaps * inches > letters * _LETTER + 0.05).all())
    apart = _LINE * lines / inches if across == 1 or not is_flat else 0.0
    moved = spread(centres[order], apart)
    for moved_to, k in zip(moved, order.tolist(), strict=True):
        _label(axes, texts[k], (float(centres[k]), float(moved_to)), axis, is_flat)
    # The name of a variable beyond its labels
    points = letters * FONT * 0.6 if across == 1 or not is_flat else lines * FONT * 1.25
    away = points + 16.0
    at = ((0.5, 1.0), (0.0, 0.5), (0.5, 0.0), (1.0, 0.5))[axis]
    offset = ((0, away), (-away, 0), (0, -away), (away, 0))[axis]
    align = ("center", "right", "center", "left")[axis]
    vertical = ("bottom", "center", "top", "center")[axis]
    axes.annotate(
        wrapped(name, 40), at, offset, textcoords="offset points", ha=align, va=vertical, fontsize=FONT + 1,
        fontweight="bold", color=INK, rotation=0 if axis % 2 == 0 else 90, annotation_clip=False,
    )  # fmt: skip


def _label(axes: Axes, text: str, at: tuple[float, float], axis: int, is_flat: bool) -> None:
    """One label outside the square with a line to the middle of its tile."""
    true, shifted = at
    side = {0: (1.0, 1), 1: (0.0, -1), 2: (0.0, -1), 3: (1.0, 1)}[axis]
    start, direction = side
    reach = 0.03 * direction
    line = [start, start + reach * 0.8]
    if axis % 2 == 0:
        axes.plot([true, shifted], line, color=FAINT, linewidth=0.7, clip_on=False)
        vertical = "bottom" if direction > 0 else "top"
        style: dict[str, Any] = {"ha": "center", "va": vertical, "rotation": 0 if is_flat else 90}
        axes.text(shifted, start + reach, text, color=INK, fontsize=FONT, **style)
        return
    axes.plot(line, [true, shifted], color=FAINT, linewidth=0.7, clip_on=False)
    align = "left" if direction > 0 else "right"
    axes.text(start + reach, shifted, text, color=INK, fontsize=FONT, ha=align, va="center")


def plot_association(
    data: DataLike, names: Sequence[str] | None = None, *, expected: Any = None, ax: Target = None
) -> Axes:
    """An association plot: a bar a cell, its height the Pearson residual, its width the root of the expected count.

    The first variable has a row of bars for each level, the others a column for each of their combinations. The area of
    a bar is the difference of observed and expected count. Dotted lines stand at residuals of plus and minus 2.

    Args:
        data: a data frame or :class:`~pyro_hoim.Observations`; rows with missing cells among the names are left out.
        names: two to four variables, the first for the rows of the picture; all when None.
        expected: expected counts in the order of the names; those of independent variables when None.
        ax: axes to draw into, an empty figure, or None for a new figure of pyplot.

    Returns:
        The axes.

    Raises:
        InputError: no row, fewer than two or more than four names, or expected counts of another shape.
        InputTypeError: data of another type, or ``ax`` is neither axes nor a figure.
        UnknownNameError: a name that is no variable.

    References:
        Cohen (1980), On the graphical display of the significant components in two-way contingency tables;
        Friendly (1992), Graphical methods for categorical data.

    Example:
        >>> import pandas as pd
        >>> from matplotlib.figure import Figure
        >>> axes = plot_association(pd.DataFrame({"a": list("xxyy"), "b": list("uvvv")}), ax=Figure())
        >>> [round(float(bar.get_height()), 3) for bar in axes.patches]
        [0.707, -0.408, -0.707, 0.408]
    """
    domain, counts = _table(data, names, _MOST)
    if len(domain) < 2:
        raise refused("names", "an association needs at least two variables")
    expected = _against(counts, expected)
    residual = np.nan_to_num(pearson_residuals(counts, expected)).reshape(counts.shape[0], -1)
    # Slots are as wide as the widest tile of their column.
    width = np.sqrt(expected).reshape(residual.shape)
    slots = width.max(0)
    gap = 0.25 * float(slots.mean())
    centres = np.cumsum(slots + gap) - gap - slots / 2
    reach = max(float(np.abs(residual).max()), _CUTS[0]) * 1.15
    # Rows of tiles one above the other: height is the residual, width the root of the expected count.
    bases = -2 * reach * np.arange(len(residual))
    combinations = [", ".join(labels) for labels in itertools.product(*(v.labels for v in domain.variables[1:]))]
    texts = [wrapped(words, 22) for words in combinations]
    rows = [wrapped(label, 18) for label in domain.variables[0].labels]
    axes = axes_for(ax, max(5.0, 1.8 + 0.45 * len(texts)), 1.0 + (0.9 if len(rows) <= 6 else 0.65) * len(rows))
    for base, heights, widths in zip(bases, residual, width, strict=True):
        axes.axhline(base, color=INK, linewidth=0.8)
        for bound in _CUTS[:1]:
            for sign in (1, -1):
                axes.axhline(base + sign * bound, color=FAINT, linewidth=0.8, linestyle=":")
        for centre, height, wide in zip(centres, heights, widths, strict=True):
            style: dict[str, Any] = {"facecolor": BLUE if height > 0 else ORANGE, "edgecolor": INK, "linewidth": 0.6}
            axes.add_patch(Rectangle((centre - wide / 2, base), wide, height, **style))
    # Labels that would overlap stand upright.
    axes.set_xlim(-gap, float(centres[-1] + slots[-1] / 2 + gap))
    axes.set_ylim(bases[-1] - reach, reach)
    is_flat = all(len(line) * _LETTER < 0.4 for text in texts for line in text.split("\n"))
    axes.set_xticks(centres, texts, rotation=0 if is_flat else 90)
    axes.set_yticks(bases, rows)
    axes.tick_params(length=0, colors=INK, labelsize=FONT)
    axes.spines[:].set_visible(False)
    axes.set_xlabel(wrapped(", ".join(domain.names[1:]), 60), color=INK, fontsize=FONT + 1, fontweight="bold")
    axes.set_ylabel(wrapped(domain.names[0], 40), color=INK, fontsize=FONT + 1, fontweight="bold")
    handles = [
        Patch(facecolor=BLUE, label="more rows than expected"),
        Patch(facecolor=ORANGE, label="fewer"),
        Line2D([], [], color=FAINT, linestyle=":", label="residual of ±2"),
        Line2D([], [], linestyle="", label="width: √expected"),
    ]
    axes.xaxis.set_label_position("top")
    axes.xaxis.tick_top()
    legend_below(ax, axes, handles)
    return axes
