"""Pictures of solution paths: losses against radius or strength, and the held-out loss over two of them."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ...errors import refused
from ...plots.drawing import INK, ORANGE, plain_axes

__all__ = ["path_figure"]

DARK = "#17405a"
LIGHT = "#7db4d6"


def path_figure(frame: pd.DataFrame) -> Figure:
    """Losses in nats per row against radius or strength on logarithmic axes; of two parts a map of the held-out loss.

    The frame is that of ``SolutionPath.to_frame``. Training is dark, held-out light; the best is ringed in orange.

    Raises:
        InputError: more than two parts.
    """
    names = [name for name in frame.columns if name.endswith(("_radius", "_strength"))]
    if len(names) > 2:
        raise refused("path", f"it has {len(names)} parts, and a picture has two axes", code="out-of-range")
    figure = Figure(figsize=(6.2, 4.2), layout="constrained")
    axes = figure.subplots()
    best = frame[frame["is_best"]].iloc[0]
    if len(names) == 1:
        ordered = frame.sort_values(names[0])
        axes.plot(ordered[names[0]], ordered["loss"], "o-", color=DARK, markersize=3, linewidth=1.4, label="training")
        axes.plot(
            ordered[names[0]], ordered["held_out"], "o-", color=LIGHT, markersize=3, linewidth=1.4, label="held out"
        )
        height, up = best["held_out"], "loss, nats per row"
    else:
        wide = frame.pivot_table(index=names[1], columns=names[0], values="held_out")
        map_ = axes.pcolormesh(
            _edges(wide.columns.to_numpy(dtype=float)),
            _edges(wide.index.to_numpy(dtype=float)),
            wide.to_numpy(),
            cmap="Blues_r",
        )
        figure.colorbar(map_, ax=axes, label="held-out loss, nats per row")
        axes.set_yscale("log")
        height, up = best[names[1]], names[1].replace("_", " ")
    axes.plot(
        best[names[0]], height, "o", color=ORANGE, markersize=10, fillstyle="none", markeredgewidth=1.8, label="best"
    )
    axes.set_xscale("log")
    axes.set_xlabel(names[0].replace("_", " "), color=INK, fontsize=9)
    axes.set_ylabel(up, color=INK, fontsize=9)
    axes.legend(frameon=False, fontsize=9)
    plain_axes(axes)
    return figure


def _edges(values: np.ndarray) -> np.ndarray:
    """Borders of cells around positive values, halfway between them on a logarithmic axis."""
    logs = np.log(values)
    inner = (logs[1:] + logs[:-1]) / 2
    first, last = (
        (logs[0] - 0.5, logs[-1] + 0.5) if len(logs) == 1 else (2 * logs[0] - inner[0], 2 * logs[-1] - inner[-1])
    )
    return np.exp(np.concatenate([[first], inner, [last]]))
