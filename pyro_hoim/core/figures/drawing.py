"""Pictures without pyplot and without global style: colours, axes and the text that a page holds of a picture."""

from __future__ import annotations

import base64
import io

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

__all__ = [
    "BLUE",
    "CHAINS",
    "FAINT",
    "FINITE_SHARE",
    "INK",
    "ORANGE",
    "SETS",
    "WIDEST",
    "as_data_uri",
    "draw_infinite",
    "plain_axes",
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


def plain_axes(axes: Axes) -> None:
    """Remove the box and soften the ticks."""
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(FAINT)
    axes.tick_params(colors=INK, labelsize=9)


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
