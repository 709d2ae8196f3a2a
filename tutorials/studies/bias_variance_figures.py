"""Pictures for figures 1 to 9 of Luo and Sugiyama (2019), from the table of means that the experiment writes."""

import itertools
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from studies.bias_variance import FIGURE_9

__all__ = [
    "WHOLE_RUN",
    "against_complexity",
    "against_parameters",
    "against_rows",
    "drawings",
    "grids",
    "read_table",
    "save_all",
]

PARTS = {"total": "#222222", "bias": "#2166ac", "variance": "#b2182b"}
KINDS = {"rbm": ("RBM", "hidden units", "#7570b3"), "hbm": ("HBM", "order", "#d95f02")}


WHOLE_RUN = Path(__file__).with_name("bias_variance.csv")


def read_table(path: str | Path = WHOLE_RUN) -> pd.DataFrame:
    """The table of means, that of the whole run if no other is named."""
    return pd.read_csv(path)


def _plain(axes: Any) -> None:
    axes.spines[["top", "right"]].set_visible(False)


def drawings() -> dict[str, Any]:
    """Figures 1 and 2: the two machines, and the decomposition as a right-angled triangle of divergences."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    visible, hidden = [(x, 0.0) for x in range(4)], [(x + 0.5, 1.0) for x in range(3)]
    for a, b in itertools.product(visible, hidden):
        left.plot(*zip(a, b, strict=True), color="#999999", linewidth=0.8, zorder=1)
    _nodes(left, visible, [f"$v_{i + 1}$" for i in range(4)], ["#ffffff"] * 4)
    _nodes(left, hidden, [f"$h_{j + 1}$" for j in range(3)], ["#dddddd"] * 3)
    left.set_title("(a) restricted Boltzmann machine, 4 visible and 3 hidden units", fontsize=9)
    sets = [s for size in range(5) for s in itertools.combinations(range(1, 5), size)]
    place = {}
    for size, group in itertools.groupby(sets, key=len):
        level = list(group)
        place |= {s: (1.15 * (i - (len(level) - 1) / 2), size) for i, s in enumerate(level)}
    for a, b in itertools.product(sets, sets):
        if len(b) == len(a) + 1 and set(a) < set(b):
            right.plot(*zip(place[a], place[b], strict=True), color="#999999", linewidth=0.8, zorder=1)
    colours = ["#222222", "#a6d96a", "#92c5de", "#f4a582", "#ffffff"]
    names = ["".join(map(str, s)) or "\N{UP TACK}" for s in sets]
    _nodes(right, list(place.values()), names, [colours[len(s)] for s in sets])
    right.set_title("(b) outcomes of a higher-order Boltzmann machine, 4 variables", fontsize=9)
    for axes in (left, right):
        axes.axis("off")
        axes.margins(0.12)
    triangle, axes = plt.subplots(figsize=(5.2, 3.4), layout="constrained")
    corners = {r"$P^*$": (0, 1.15), r"$P^*_B$": (0, 0), r"$\hat P_B$": (2.0, 0.0), r"$\hat P$": (2.0, 1.5)}
    truth, best, found, data = corners.values()
    axes.plot([-0.5, 2.7], [0, 0], color="#999999", linewidth=2)
    axes.text(2.72, -0.04, r"$\mathcal{S}(B)$", fontsize=12, va="center")
    for a, b, colour, style in (
        (truth, best, PARTS["bias"], "-"),
        (best, found, PARTS["variance"], "-"),
        (truth, found, PARTS["total"], "-"),
        (data, found, "#999999", "--"),
    ):
        axes.plot(*zip(a, b, strict=True), color=colour, linestyle=style, linewidth=2)
    axes.text(-0.08, 0.55, "bias", ha="right", color=PARTS["bias"])
    axes.text(1.0, -0.2, "variance", ha="center", color=PARTS["variance"])
    axes.text(1.05, 0.66, "total error", color=PARTS["total"])
    axes.plot([0, 0.12, 0.12], [0.12, 0.12, 0], color="black", linewidth=0.8)
    for name, (x, y) in corners.items():
        axes.plot(x, y, "o", color="black", markersize=5)
        axes.text(x - 0.3 if x == y == 0 else x + 0.07, y + 0.09, name, fontsize=12)
    axes.set_xlim(-0.7, 3.2)
    axes.set_ylim(-0.35, 1.75)
    axes.axis("off")
    return {"figure_1": figure, "figure_2": triangle}


def _nodes(axes: Any, places: Sequence[tuple[float, float]], names: Iterable[str], colours: Iterable[str]) -> None:
    for (x, y), name, colour in zip(places, names, colours, strict=True):
        ink = "white" if colour == "#222222" else "black"
        axes.text(x, y, name, ha="center", va="center", fontsize=9, color=ink, zorder=3)
        axes.scatter([x], [y], s=520, color=colour, edgecolor="black", linewidth=0.8, zorder=2)


def grids(table: pd.DataFrame) -> dict[str, Any]:
    """Figures 3 and 4: total error, bias and variance over complexity and number of rows."""
    made = {}
    for number, kind in ((3, "rbm"), (4, "hbm")):
        name, complexity, _ = KINDS[kind]
        chosen = table[table["kind"] == kind]
        figure, row = plt.subplots(1, 3, figsize=(10.5, 3.4), sharey=True, layout="constrained")
        values = {part: chosen.pivot_table(index="complexity", columns="num_rows", values=part) for part in PARTS}
        shared = np.log10(np.concatenate([v.to_numpy().ravel() for v in values.values()]).clip(1e-5))
        for axes, (part, frame) in zip(row, values.items(), strict=True):
            image = axes.imshow(
                np.log10(frame.clip(lower=1e-5)), origin="lower", aspect="auto", vmin=shared.min(), vmax=shared.max()
            )
            axes.set_xticks(range(len(frame.columns)), [f"{n:,}" for n in frame.columns], rotation=90, fontsize=8)
            axes.set_yticks(range(len(frame.index)), frame.index, fontsize=8)
            axes.set_title(f"{name}, {part}" + (" error" if part == "total" else ""), fontsize=10)
            axes.set_xlabel("rows")
        row[0].set_ylabel(complexity)
        bar = figure.colorbar(image, ax=row)
        ticks = np.arange(math.ceil(shared.min()), math.floor(shared.max()) + 1)
        bar.set_ticks(ticks, labels=[f"{10.0**t:g}" for t in ticks])
        bar.set_label("nats")
        made[f"figure_{number}"] = figure
    return made


def _curves(axes: Any, frame: pd.DataFrame, across: str) -> None:
    """Total, bias and variance with two standard errors."""
    frame = frame.sort_values(across)
    for part, colour in PARTS.items():
        shown = frame[frame[part] > 1e-9]
        errors = None if part == "bias" else 2 * shown[f"{part}_error"]
        axes.errorbar(shown[across], shown[part], errors, marker="o", markersize=3, color=colour, label=part)
    axes.set_yscale("log")
    _plain(axes)


def against_rows(table: pd.DataFrame) -> dict[str, Any]:
    """Figures 5 and 6: the errors against the number of rows, at four complexities."""
    made = {}
    for number, kind, levels in ((5, "rbm", (0, 5, 10, 15)), (6, "hbm", (1, 4, 7, 10))):
        figure, row = plt.subplots(1, 4, figsize=(10.5, 3), sharey=True, sharex=True, layout="constrained")
        for axes, level in zip(row, levels, strict=True):
            _curves(axes, table[(table["kind"] == kind) & (table["complexity"] == level)], "num_rows")
            axes.set_xscale("log")
            axes.set_title(f"{level} hidden units" if kind == "rbm" else f"order {level}", fontsize=10)
            axes.set_xlabel("rows")
        row[0].set_ylabel(f"{KINDS[kind][0]}: error, nats")
        row[0].legend(frameon=False, fontsize=8)
        made[f"figure_{number}"] = figure
    return made


def against_complexity(table: pd.DataFrame, sizes: Sequence[int] = FIGURE_9) -> dict[str, Any]:
    """Figures 7 and 8: the errors against hidden units or order, at four numbers of rows."""
    made = {}
    for number, kind in ((7, "rbm"), (8, "hbm")):
        figure, row = plt.subplots(1, len(sizes), figsize=(10.5, 3), sharey=True, layout="constrained", squeeze=False)
        for axes, size in zip(row[0], sizes, strict=True):
            _curves(axes, table[(table["kind"] == kind) & (table["num_rows"] == size)], "complexity")
            axes.set_title(f"{size:,} rows", fontsize=10)
            axes.set_xlabel(KINDS[kind][1])
        row[0, 0].set_ylabel(f"{KINDS[kind][0]}: error, nats")
        row[0, 0].legend(frameon=False, fontsize=8)
        made[f"figure_{number}"] = figure
    return made


def against_parameters(table: pd.DataFrame, sizes: Sequence[int] = FIGURE_9) -> dict[str, Any]:
    """Figure 9: total error (above), bias and variance (below) of both machines against the number of parameters."""
    figure, grid = plt.subplots(
        2, len(sizes), figsize=(10.5, 5.6), sharex=True, sharey="row", layout="constrained", squeeze=False
    )
    for column, size in enumerate(sizes):
        for kind, (name, _, colour) in KINDS.items():
            frame = table[(table["kind"] == kind) & (table["num_rows"] == size)].sort_values("num_parameters")
            x = frame["num_parameters"]
            grid[0, column].errorbar(
                x, frame["total"], 2 * frame["total_error"], marker="o", markersize=3, color=colour, label=name
            )
            lower = grid[1, column]
            lower.plot(x, frame["variance"], marker="o", markersize=3, color=colour, label=f"{name}, variance")
            shown = frame["bias"] > 1e-9
            lower.plot(x[shown], frame["bias"][shown], ":", color=colour, label=f"{name}, bias")
        grid[0, column].set_title(f"{size:,} rows", fontsize=10)
        grid[1, column].set_xlabel("parameters")
        for axes in grid[:, column]:
            axes.set_xscale("log")
            axes.set_yscale("log")
            axes.set_xticks([10, 55, 175, 385, 1023], ["10", "55", "175", "385", "1,023"], fontsize=8)
            axes.minorticks_off()
            _plain(axes)
    grid[0, 0].set_ylabel("total error, nats")
    grid[1, 0].set_ylabel("bias and variance, nats")
    for axes in grid[:, 0]:
        axes.legend(frameon=False, fontsize=8)
    return {"figure_9": figure}


def save_all(table: pd.DataFrame, folder: str | Path) -> None:
    """Write figures 1 to 9 as pictures."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    made = drawings() | grids(table) | against_rows(table) | against_complexity(table) | against_parameters(table)
    for name, figure in made.items():
        figure.savefig(Path(folder) / f"bias_variance_{name}.png", dpi=80)
        plt.close(figure)
