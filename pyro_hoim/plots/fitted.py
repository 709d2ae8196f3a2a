"""Observed beside expected counts, and the residuals between them."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from ..errors import out_of_range, wrong_shape
from .drawing import BLUE, FAINT, ORANGE, SLATE, Target, axes_for, legend_below, plain_axes

LARGE = 2.0
"""Size of a residual from which it is emphasised."""


def pearson_residuals(observed: Any, expected: Any) -> np.ndarray:
    r"""Residuals :math:`(n - \hat m) / \sqrt{\hat m}` of cells, NaN where the expected count is 0.

    Args:
        observed: counts, of any shape.
        expected: expected counts of the same shape.

    Raises:
        InputError: shapes that differ, or counts that are negative or not finite.

    Example:
        >>> pearson_residuals([12, 4], [9, 4]).tolist()
        [1.0, 0.0]
    """
    n, m = np.asarray(observed, dtype=float), np.asarray(expected, dtype=float)
    if n.shape != m.shape:
        raise wrong_shape("expected", n.shape, m)
    for argument, counts in (("observed", n), ("expected", m)):
        if not (np.isfinite(counts) & (counts >= 0)).all():
            raise out_of_range(argument, "finite counts of at least 0", received="other values")
    return np.divide(n - m, np.sqrt(m), out=np.full(n.shape, np.nan), where=m > 0)


def plot_fitted(observed: Any, expected: Any, *, residuals: Any = None, ax: Target = None) -> Axes:
    """Observed against expected counts of cells on square-root axes; a model that fits puts them on the diagonal.

    Args:
        observed: counts, of any shape.
        expected: expected counts of the same shape.
        residuals: residuals of the same shape, those beyond 2 in size are emphasised; Pearson residuals when None.
        ax: axes to draw into, an empty figure, or None for a new figure of pyplot.

    Returns:
        The axes.

    Raises:
        InputError: shapes that differ, or counts that are negative or not finite.
        InputTypeError: ``ax`` is neither axes nor a figure.

    Example:
        >>> from matplotlib.figure import Figure
        >>> axes = plot_fitted([30, 10], [20, 20], ax=Figure())
        >>> axes.get_legend().get_texts()[0].get_text()
        'more than expected, beyond 2'
    """
    standard = pearson_residuals(observed, expected)
    n, m, r = _flat(observed, expected, standard if residuals is None else residuals)
    axes = axes_for(ax, 4.4, 4.2)
    top = float(max(n.max(initial=0), m.max(initial=0), 1.0)) * 1.3
    axes.plot([0, top], [0, top], color=FAINT, linewidth=1)
    signs = _signs(r)
    _points(axes, m, n, signs)
    _root_scale(axes, top)
    axes.set_yscale("function", functions=_ROOT)
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.set_ylim(0, top)
    plain_axes(axes, "expected count", "observed count")
    legend_below(ax, axes, [*_meanings(signs), Line2D([], [], color=FAINT, linewidth=1, label="perfect fit")])
    return axes


def plot_residuals(expected: Any, residuals: Any, *, label: str = "Pearson residual", ax: Target = None) -> Axes:
    """Residuals of cells against expected counts on a square-root axis, with lines at plus and minus 2.

    Args:
        expected: expected counts, of any shape.
        residuals: residuals of the same shape, NaN where undefined.
        label: which residuals these are.
        ax: axes to draw into, an empty figure, or None for a new figure of pyplot.

    Returns:
        The axes.

    Raises:
        InputError: shapes that differ.
        InputTypeError: ``ax`` is neither axes nor a figure.

    Example:
        >>> from matplotlib.figure import Figure
        >>> plot_residuals([20, 20], [2.5, -1.0], ax=Figure()).get_ylabel()
        'Pearson residual'
    """
    m, r = _flat(expected, residuals)
    axes = axes_for(ax, 4.4, 4.2)
    signs = _signs(r)
    axes.axhline(0, color=FAINT, linewidth=1)
    for bound in (-LARGE, LARGE):
        axes.axhline(bound, color=FAINT, linewidth=1, linestyle=(0, (4, 3)))
    _points(axes, m, r, signs)
    _root_scale(axes, float(max(m.max(initial=0), 1.0)) * 1.3)
    plain_axes(axes, "expected count", label)
    line = Line2D([], [], color=FAINT, linewidth=1, linestyle=(0, (4, 3)), label="±2")
    legend_below(ax, axes, [*_meanings(signs), line])
    return axes


_ROOT = (lambda x: np.sqrt(np.maximum(x, 0.0)), np.square)


def _flat(first: Any, *others: Any) -> list[np.ndarray]:
    """Arrays of one shape as vectors."""
    arrays = [np.asarray(values, dtype=float) for values in (first, *others)]
    for array in arrays[1:]:
        if array.shape != arrays[0].shape:
            raise wrong_shape("residuals", arrays[0].shape, array)
    return [array.ravel() for array in arrays]


def _signs(residuals: np.ndarray) -> np.ndarray:
    """1 and -1 of residuals that are large, 0 of others."""
    sizes = np.nan_to_num(residuals)
    return np.sign(sizes) * (np.abs(sizes) > LARGE)


_KINDS = ((1, "^", BLUE, f"more than expected, beyond {LARGE:g}"), (-1, "v", ORANGE, f"fewer, beyond −{LARGE:g}"))
_WITHIN = (0, "o", SLATE, f"residual within ±{LARGE:g}")


def _points(axes: Axes, x: np.ndarray, y: np.ndarray, signs: np.ndarray) -> None:
    """Cells, those with large residuals in other colours and shapes."""
    for sign, marker, colour, _ in (_WITHIN, *_KINDS):
        axes.plot(x[signs == sign], y[signs == sign], marker, color=colour, markersize=5, alpha=0.8)


def _root_scale(axes: Axes, top: float) -> None:
    """Expected counts on a square-root axis with few numbers."""
    axes.set_xscale("function", functions=_ROOT)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.set_xlim(0, top)


def _meanings(signs: np.ndarray) -> list[Any]:
    """A legend of the points that occur."""
    return [
        Line2D([], [], marker=marker, color=colour, label=label, linestyle="", markersize=5)
        for sign, marker, colour, label in (*_KINDS, _WITHIN)
        if (signs == sign).any()
    ]
