"""Picture of what removing interactions changes: groups of a sensitive variable, and the price in likelihood."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..core.figures.drawing import BLUE, FAINT, INK, ORANGE, plain_axes
from .removal import RemovalEffect

__all__ = ["removal_figure"]

_COLOURS = {"before": FAINT, "zeroed": ORANGE, "refitted": BLUE}


def removal_figure(effect: RemovalEffect) -> Figure:
    """Mean predicted probability in every group before and after, beside the change of the log-likelihood.

    Args:
        effect: what was measured.

    Returns:
        The figure: one panel, or two where there are groups. Error bars are one standard error, rows and log Z
        together.
    """
    groups = effect.groups
    has_groups = groups is not None
    figure = Figure(figsize=(9.4 if has_groups else 4.6, 3.9), layout="constrained")
    panels = figure.subplots(1, 2 if has_groups else 1, squeeze=False, width_ratios=[1.5, 1] if has_groups else [1])[0]
    if groups is not None:
        _groups(panels[0], effect)
    _likelihood(panels[-1], effect)
    removed = [":".join(e) for e in effect.removed]
    shown = ", ".join(removed[:3]) + (f" and {len(removed) - 3} more" if len(removed) > 3 else "")
    figure.suptitle(f"without {shown}", color=INK, fontsize=11)
    return figure


def _groups(axes: Axes, effect: RemovalEffect) -> None:
    """One row a group: a dot for every model, joined by a line."""
    assert effect.groups is not None
    assert effect.target is not None
    table = effect.groups[effect.groups["rows"] > 0]
    names = list(effect.models)
    rows = np.arange(len(table))[::-1]
    values = np.stack([np.asarray(table[name], dtype=float) for name in names], 1)
    for row, line in zip(rows, values, strict=True):
        axes.plot([line.min(), line.max()], [row, row], color=FAINT, linewidth=1.5, zorder=1)
    for k, name in enumerate(names):
        gap = effect.parity_difference[name]
        axes.plot(
            values[:, k],
            rows,
            "o",
            color="white" if name == "before" else _COLOURS.get(name, INK),
            markersize=12 if name == "before" else 7,
            markeredgecolor=INK if name == "before" else "white",
            label=f"{name} (range {gap:.3f})",
            zorder=2 + k,
        )
    axes.set_yticks(rows, [f"{label} (n = {n:g})" for label, n in zip(table.index, table["rows"], strict=True)])
    axes.set_ylim(-0.6, len(table) - 0.4)
    low, high = float(values.min()), float(values.max())
    pad = 0.08 * max(high - low, 1e-3)
    axes.set_xlim(max(0.0, low - pad), min(1.0, high + pad) if high + pad < 1 else 1.0 + 0.02)
    axes.set_xlabel(f"mean P({effect.target[0]} = {effect.target[1]})", color=INK)
    axes.set_ylabel(effect.sensitive or "", color=INK)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), frameon=False, fontsize=9, ncols=len(names))
    plain_axes(axes)


def _likelihood(axes: Axes, effect: RemovalEffect) -> None:
    """Change of the mean log-likelihood by part and model."""
    table = effect.log_likelihood
    rows = np.arange(len(table))[::-1]
    error = np.hypot(table["row_error"], table["log_z_error"])
    axes.axvline(0, color=FAINT, linewidth=1)
    for row, line, size in zip(rows, table.to_dict("records"), error, strict=True):
        colour = _COLOURS.get(str(line["model"]), INK)
        bar = float(size) if np.isfinite(size) else 0.0
        axes.errorbar(float(line["change"]), row, xerr=bar, fmt="o", color=colour, markersize=7, capsize=3)
    axes.set_yticks(rows, [f"{a}, {b}" for a, b in zip(table["model"], table["part"], strict=True)])
    axes.set_ylim(-0.6, len(table) - 0.4)
    axes.margins(x=0.15)
    axes.set_xlabel("change of log-likelihood (nats a row)", color=INK)
    plain_axes(axes)
