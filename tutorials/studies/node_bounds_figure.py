"""Figure 2 of paper 2: the terms of a node's mass and the straight lines that bound them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pyro_hoim.core.words import plural
from pyro_hoim.errors import conflict, none_received, refused
from pyro_hoim.generalized_root.nodes.bounds import NodeBounds
from pyro_hoim.generalized_root.nodes.families import NodeFamily
from pyro_hoim.generalized_root.nodes.log_partition import node_moments
from pyro_hoim.plots.drawing import BLUE, FAINT, INK, ORANGE, plain_axes

__all__ = ["node_bounds_figure"]

_SPREADS = 6.0
_POINTS = 400


def node_bounds_figure(family: NodeFamily, natural: Sequence[float], bounds: Sequence[NodeBounds]) -> Figure:
    """Terms of M(a) above, g with its linear bounds below, for each number of subdomains (figure 2 of paper 2).

    Subdomains meet at dashed lines; the true terms x^a exp(f + g) (bars for counts) lie between those of the bounds.

    Args:
        family: the node family.
        natural: natural parameters that the bounds belong to.
        bounds: results of :func:`~pyro_hoim.generalized_root.node_bounds` for these parameters and one power, from 0.

    Raises:
        InputError: no bounds, bounds of different powers, or a family of two half lines.
    """
    if not bounds:
        raise none_received("bounds", "at least one result of node_bounds")
    if len({b.power for b in bounds}) > 1:
        raise conflict("bounds", f"expected one power, received {sorted({b.power for b in bounds})}")
    if any([half.lead for half in b.halves] != [1.0] for b in bounds):
        problem = "expected those of one half line with eta_1 not zero (no Gaussian family)"
        raise refused("bounds", problem, code="no-method")
    right = _right_end(family, natural, bounds[0].power)
    figure = Figure(figsize=(4.7 * len(bounds), 6.2), layout="constrained")
    panels = figure.subplots(2, len(bounds), squeeze=False, sharex=True, sharey="row", height_ratios=[1, 1.15])
    for column, bound in enumerate(bounds):
        top, bottom = panels[0, column], panels[1, column]
        _terms(top, family, bound, right)
        _lines(bottom, family, bound, right)
        for axes in (top, bottom):
            for part in _shown(bound, right)[1:]:
                place = part.low - 0.5 * family.is_discrete
                axes.axvline(place, color=FAINT, linewidth=0.8, linestyle=(0, (4, 3)), zorder=0)
            plain_axes(axes)
        count = len(bound.subdomains)
        words = f"{plural(count, 'subdomain')}: {bound.lower:.3f} ≤ M({bound.power:g}) ≤ {bound.upper:.3f}"
        top.set_title(words, color=INK, fontsize=10)
        bottom.set_xlabel("x", color=INK)
    panels[0, 0].set_ylabel("terms of the sum" if family.is_discrete else "integrand", color=INK)
    panels[1, 0].set_ylabel("g(x) and its linear bounds", color=INK)
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    figure.suptitle(f"{family.name}, η = ({', '.join(f'{e:g}' for e in natural)})", color=INK, fontsize=11)
    return figure


def _right_end(family: NodeFamily, natural: Sequence[float], power: float) -> float:
    """Where the terms have become invisible."""
    found = node_moments(family, torch.tensor(list(natural), dtype=torch.float64))
    assert found.covariance is not None
    spread = float(found.covariance[0, 0]) ** 0.5
    return min(float(np.ceil(float(found.mean[0]) + _SPREADS * spread * (1 + 0.25 * power))), family.largest_value)


def _shown(bound: NodeBounds, right: float) -> list[Any]:
    """The subdomains that begin before the right end."""
    return [part for part in bound.subdomains if part.low <= right]


def _grid(family: NodeFamily, low: float, high: float) -> np.ndarray:
    return np.arange(low, np.floor(high) + 1) if family.is_discrete else np.linspace(low, high, _POINTS)


def _terms(axes: Axes, family: NodeFamily, bound: NodeBounds, right: float) -> None:
    """The integrand and what bounds it."""
    half = bound.halves[0]

    def base(x: np.ndarray) -> np.ndarray:
        return half.linear * x + family.log_base(torch.from_numpy(x)).numpy()

    x = _grid(family, half.first, right)
    true = np.exp(base(x) + np.array([half.g(v) for v in x]))
    if family.is_discrete:
        axes.bar(x, true, width=0.72, color=FAINT, alpha=0.55, label="exact")
    else:
        axes.fill_between(x, true, color=FAINT, alpha=0.55, label="exact")
    for i, part in enumerate(_shown(bound, right)):
        at = _grid(family, part.low, min(part.high, right))
        for name, line, colour in (("upper", part.upper_line, ORANGE), ("lower", part.lower_line, BLUE)):
            values = np.exp(np.minimum(base(at) + line.slope * at + line.intercept, 700.0))
            label, marker = f"{name} bound" if i == 0 else None, "o" if family.is_discrete else ""
            axes.plot(at, values, color=colour, linewidth=1.4, marker=marker, markersize=3.5, label=label)
    axes.set_ylim(0, 1.6 * float(true.max()))


def _lines(axes: Axes, family: NodeFamily, bound: NodeBounds, right: float) -> None:
    """The curve g and its lines."""
    half = bound.halves[0]
    x = np.linspace(half.first if half.logarithm == 0 else max(half.first, right / _POINTS), right, _POINTS)
    g = np.array([half.g(v) for v in x])
    axes.plot(x, g, color=INK, linewidth=1.8, zorder=3)
    for part in _shown(bound, right):
        high = min(part.high, right)
        ends = np.array([part.low, high])
        if part.low == high:  # one count: the bounds are exact
            axes.plot(ends, part.upper_line.slope * ends + part.upper_line.intercept, "o", color=INK, markersize=4)
            continue
        for line, colour in ((part.upper_line, ORANGE), (part.lower_line, BLUE)):
            axes.plot(ends, line.slope * ends + line.intercept, color=colour, linewidth=1.4, zorder=2)
    pad = 0.15 * float(np.ptp(g)) + 0.1
    axes.set_ylim(float(g.min()) - pad, float(g.max()) + pad)
    axes.set_xlim(-0.02 * right - 0.4 * family.is_discrete, right * 1.02)
