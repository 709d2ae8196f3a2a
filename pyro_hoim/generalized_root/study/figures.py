"""Pictures of a generalized root model: who varies with whom, scores, penalties, and bounds of a node's mass."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from ...core.words import plural
from ...errors import conflict, none_received, refused, unexpected
from ...plots.drawing import BLUE, FAINT, FONT, INK, ORANGE, figure_of, plain_axes, wrapped
from ...plots.hypergraph import plot_hypergraph
from ...schema import Domain
from ...structure.hypergraph import InteractionHypergraph
from ..nodes.bounds import NodeBounds
from ..nodes.families import NodeFamily
from ..nodes.log_partition import node_moments
from ..regress.result import RootTerm
from .analysis import PathStep
from .scores import RootScores

__all__ = ["node_bounds_figure", "penalty_path_figure", "root_network_figure", "root_scores_figure"]

_LIGHT = "#7db4d6"
_SPREADS = 6.0
_POINTS = 400


def root_network_figure(
    terms: Sequence[RootTerm], *, max_variables: int = 40, max_pairs: int = 60, max_sets: int = 12
) -> Figure:
    """The strongest tuples on a circle: pairs as arcs, larger sets as hulls or stars, coloured by their signs.

    Args:
        terms: tuples of two and more variables, strongest first; the coefficients of several roots of a set add up.
        max_variables: most variables, those of the strongest tuples, that are drawn.
        max_pairs: most pairs that are drawn.
        max_sets: most sets of three and more that are drawn.

    Raises:
        InputError: no tuple of two or more variables.

    Example:
        >>> figure = root_network_figure([RootTerm((2, 2), ("skin", "friction"), 2.87)])
        >>> [text.get_text() for text in figure.axes[0].texts]
        ['skin', 'friction']
    """
    shown = [term for term in terms if len(term.names) > 1]
    if not shown:
        raise none_received("terms", "at least one tuple of two or more variables")
    names: dict[str, None] = {}
    weights: dict[tuple[str, ...], float] = {}
    for term in shown:
        wider = dict.fromkeys([*names, *term.names])
        if len(wider) <= max_variables:
            names = wider
            weights[term.names] = weights.get(term.names, 0.0) + term.coefficient
    edges = [*((name,) for name in names), *weights]
    domain = Domain.from_cardinalities(dict.fromkeys(names, 2))
    graph = InteractionHypergraph(domain, edges, hierarchical=False)
    found = {domain.project(edge).names: value for edge, value in weights.items()}
    signs = ("rise together", "avoid each other")
    return figure_of(plot_hypergraph, graph, found, top=max_pairs, max_sets=max_sets, signs=signs)


def root_scores_figure(scores: Mapping[str, Mapping[str, RootScores]]) -> Figure:
    """Pseudo-NLL of several laws as bars, one panel a part, with one standard error over the rows.

    Args:
        scores: by part, then by law.

    Raises:
        InputError: no part, or none with a finite score.

    Example:
        >>> scores = {"independent": RootScores(50, 0, 3.1, 0.2), "model": RootScores(50, 0, 2.7, 0.2)}
        >>> figure = root_scores_figure({"train": scores, "test": scores})
        >>> [axes.get_title() for axes in figure.axes]
        ['train', 'test']
    """
    if not scores or not any(math.isfinite(s.pseudo_nll) for part in scores.values() for s in part.values()):
        raise none_received("scores", "at least one part with a finite pseudo-NLL")
    laws = list(next(iter(scores.values())))
    figure = Figure(figsize=(2.6 + 2.6 * len(scores), 1.2 + 0.42 * len(laws)), layout="constrained")
    grid = figure.subplots(1, len(scores), squeeze=False, sharex=True, sharey=True)[0]
    for axes, (part, found) in zip(grid, scores.items(), strict=True):
        values = np.array([found[law].pseudo_nll for law in laws])
        errors = np.array([found[law].pseudo_nll_std_error for law in laws])
        finite = np.isfinite(values)
        place = np.arange(len(laws))[::-1]
        colours = [ORANGE if law == laws[-1] else BLUE for law in laws]
        axes.barh(
            place[finite],
            values[finite],
            color=[c for c, keep in zip(colours, finite, strict=True) if keep],
            xerr=np.nan_to_num(errors[finite]),
            error_kw={"ecolor": INK, "elinewidth": 1.0, "capsize": 2},
            height=0.62,
        )
        for at, value in zip(place[~finite], values[~finite], strict=True):
            words = "infinite" if value > 0 else "–"
            axes.text(0.02, at, words, va="center", fontsize=9, color=INK, transform=axes.get_yaxis_transform())
        axes.set_yticks(place, [wrapped(law, 24) for law in laws])
        axes.set_title(part, color=INK, fontsize=10)
        axes.set_xlabel("pseudo-NLL, nats per row", color=INK, fontsize=9)
        axes.xaxis.set_major_locator(MaxNLocator(4))
        plain_axes(axes)
    handles: list[Any] = [Patch(facecolor=ORANGE, label="this model"), Patch(facecolor=BLUE, label="simpler models")]
    handles.append(Line2D([], [], color=INK, linewidth=1.0, label="one standard error"))
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False, fontsize=FONT, labelcolor=INK)
    return figure


def penalty_path_figure(path: Sequence[PathStep], chosen: float) -> Figure:
    """Pseudo-NLL and number of tuples against the penalty.

    Args:
        path: penalties that were tried.
        chosen: the one that was kept, marked.

    Raises:
        InputError: fewer than two penalties above zero.

    Example:
        >>> path = [PathStep(0.1, 2, 3.0, 3.2, 1e-7), PathStep(0.01, 5, 2.8, 3.1, 1e-7)]
        >>> figure = penalty_path_figure(path, 0.01)
        >>> [axes.get_ylabel() for axes in figure.axes]
        ['pseudo-NLL, nats per row', 'tuples of two and more']
    """
    steps = sorted((step for step in path if step.l1 > 0), key=lambda step: step.l1)
    if len(steps) < 2:
        raise unexpected("path", "at least two penalties above 0", received=len(steps), code="empty")
    l1 = [step.l1 for step in steps]
    figure = Figure(figsize=(7.6, 3.0), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.plot(l1, [step.train for step in steps], "o-", color=_LIGHT, markersize=4, label="training")
    if all(step.validation is not None for step in steps):
        left.plot(l1, [step.validation or 0.0 for step in steps], "o-", color=BLUE, markersize=4, label="validation")
    right.plot(l1, [step.num_terms for step in steps], "o-", color=BLUE, markersize=4)
    left.set_ylabel("pseudo-NLL, nats per row", color=INK, fontsize=9)
    right.set_ylabel("tuples of two and more", color=INK, fontsize=9)
    for axes in (left, right):
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(FixedLocator(l1))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.set_xlabel("penalty, nats per row", color=INK, fontsize=9)
        if chosen > 0:
            axes.axvline(chosen, color=ORANGE, linestyle=(0, (4, 3)), linewidth=1.2, label="kept")
        axes.grid(axis="y", color=FAINT, alpha=0.25)
        plain_axes(axes)
    left.legend(frameon=False, fontsize=8.5, labelcolor=INK)
    return figure


def node_bounds_figure(family: NodeFamily, natural: Sequence[float], bounds: Sequence[NodeBounds]) -> Figure:
    """Terms of M(a) above, g with its linear bounds below, for each number of subdomains (figure 2 of paper 2).

    Subdomains meet at dashed lines; the true terms x^a exp(f + g) (bars for counts) lie between those of the bounds.

    Args:
        family: the node family.
        natural: natural parameters that the bounds belong to.
        bounds: results of :func:`~pyro_hoim.generalized_root.node_bounds` for these parameters and one power, from 0.

    Raises:
        InputError: no bounds, bounds of different powers, or a family of two half lines.

    Example:
        >>> from pyro_hoim.generalized_root import PoissonFamily, node_bounds
        >>> found = [node_bounds(PoissonFamily(), [1.0, -2.0], num_subdomains=n) for n in (2, 4)]
        >>> figure = node_bounds_figure(PoissonFamily(), [1.0, -2.0], found)
        >>> [axes.get_title().split(":")[0] for axes in figure.axes[:2]]
        ['2 subdomains', '4 subdomains']
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
