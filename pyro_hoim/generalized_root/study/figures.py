"""Pictures of a generalized root model: who varies with whom, scores and penalties."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from ...errors import none_received, unexpected
from ...plots.drawing import BLUE, FAINT, FONT, INK, ORANGE, figure_of, plain_axes, wrapped
from ...plots.hypergraph import plot_hypergraph
from ...schema import Domain
from ...structure.hypergraph import InteractionHypergraph
from ..regress.result import RootTerm
from .analysis import PathStep
from .scores import RootScores

__all__ = ["penalty_path_figure", "root_network_figure", "root_scores_figure"]

_LIGHT = "#7db4d6"


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
