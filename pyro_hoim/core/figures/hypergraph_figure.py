"""Picture of many interactions at once: a hypergraph around a circle."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations, permutations, product
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, PathPatch, Polygon
from matplotlib.path import Path

from ...errors import out_of_range, refused
from ...structure.hypergraph import InteractionHypergraph
from ..words import literal, short_edge, short_labels
from .drawing import BLUE, FINITE_SHARE, INK, ORANGE, WIDEST, draw_infinite

__all__ = ["circle_order", "hypergraph_figure"]

ORDERS = {3: "#d1662f", 4: "#5b8c5a", 5: "#8f5ea2"}
HIGHER = "#a23e48"
_MAX_HULLS = 6
_MAX_HORIZONTAL = 8  # variables whose labels are not turned
_LEGEND_WIDTH = 3.1  # inches
_LEGEND_LINE = 44  # characters

Weights = Mapping[tuple[str, ...], float]
_Edges = Sequence[tuple[str, ...]]
_Places = Mapping[str, np.ndarray]


def _weights(hypergraph: InteractionHypergraph, weights: Weights | None) -> dict[tuple[str, ...], float]:
    """Weight of every edge, 1 without weights, 0 where none is given, looked up in schema order.

    Raises:
        InputError: a negative weight or NaN, or a weight for a set that is no edge.
        UnknownNameError: a name that is no variable.
    """
    if weights is None:
        return dict.fromkeys(hypergraph.edges, 1.0)
    found = dict.fromkeys(hypergraph.edges, 0.0)
    for names, value in weights.items():
        edge = hypergraph.domain.project(names).names
        if edge not in found:
            raise refused("weights", f"{':'.join(edge)} is no interaction of the hypergraph", code="unknown-name")
        if not value >= 0:
            raise out_of_range("weights", "numbers of at least 0", received=f"{value} for {':'.join(edge)}")
        found[edge] = float(value)
    return found


def _share(value: float, top: float) -> float:
    """Weight relative to the largest finite one; infinite weights count as the largest."""
    return 1.0 if math.isinf(value) else value / top


def _top(values: Sequence[float]) -> float:
    """Largest finite weight, 1 where there is none."""
    return max((v for v in values if math.isfinite(v)), default=0.0) or 1.0


def circle_order(hypergraph: InteractionHypergraph, weights: Weights | None = None) -> tuple[str, ...]:
    """Variables in an order around the circle that puts strongly bound ones next to each other.

    Single linkage by pair weight, greedily: the two open paths with the strongest bond between their ends are joined
    until one path is left; up to six variables keep the order of the schema. Deterministic.

    Args:
        hypergraph: the interactions.
        weights: non-negative weights of some of them; all equal when None. A pair has its own weight plus that of the
            larger sets that hold it, each divided by its number of pairs.

    Example:
        >>> from pyro_hoim import Domain
        >>> graph = InteractionHypergraph.from_order(Domain.from_cardinalities([2] * 7), 2)
        >>> circle_order(graph, {("x0", "x5"): 3.0, ("x5", "x2"): 2.0})[:3]
        ('x0', 'x5', 'x2')
    """
    names = hypergraph.domain.names
    found = _weights(hypergraph, weights)
    if len(names) <= 6:
        return names
    bond = _bonds(hypergraph, found)
    paths = [[i] for i in range(len(names))]
    while len(paths) > 1:
        best, pick = -1.0, (0, 1, False, False)
        for a, b in combinations(range(len(paths)), 2):
            for flip_a, flip_b in product((False, True), repeat=2):
                end = paths[a][0] if flip_a else paths[a][-1]
                start = paths[b][-1] if flip_b else paths[b][0]
                if bond[end, start] > best + 1e-12:
                    best, pick = float(bond[end, start]), (a, b, flip_a, flip_b)
        a, b, flip_a, flip_b = pick
        first = paths[a][::-1] if flip_a else paths[a]
        second = paths[b][::-1] if flip_b else paths[b]
        paths[a] = first + second
        del paths[b]
    path = paths[0]
    start = path.index(0)
    turned = path[start:] + path[:start]
    if bond[0, turned[-1]] > bond[0, turned[1]]:
        turned = [turned[0], *turned[:0:-1]]
    return tuple(names[i] for i in turned)


def _bonds(hypergraph: InteractionHypergraph, weights: Weights) -> np.ndarray:
    """Symmetric matrix of pair weights, larger sets shared out over their pairs, (d, d)."""
    size = len(hypergraph.domain)
    bond = np.zeros((size, size))
    top = _top(list(weights.values()))
    for edge, members in zip(hypergraph.edges, hypergraph.edge_indices, strict=True):
        if len(members) > 1:
            share = _share(weights[edge], top) / math.comb(len(members), 2)
            for i, j in permutations(members, 2):
                bond[i, j] += share
    return bond


def hypergraph_figure(
    hypergraph: InteractionHypergraph,
    weights: Weights | None = None,
    *,
    top: int | None = 60,
    max_sets: int = 12,
    full: float | None = None,
    title: str = "",
) -> Figure:
    """Interactions of many variables on a circle.

    Pairs are arcs, wider and darker the heavier they are. Sets of three or more are translucent hulls when at most six
    are shown, otherwise stars: a node with a spoke to every member. Their colour tells their order. Circles of
    variables grow with the weight of their own term. Widths are relative to the heaviest shown of the same order; the
    legend says how many of how many are drawn.

    Args:
        hypergraph: the interactions.
        weights: non-negative weights of some of them, for instance strengths or refined information; 1 for all when
            None, 0 where not given. An infinite pair is dashed, wider than all finite ones and marked with the sign
            of infinity.
        top: draw at most this many pairs, the heaviest first; all when None.
        max_sets: draw at most this many sets of three or more, the heaviest first.
        full: weight that has the full width, for pictures that are compared; None for the heaviest shown of an order.
        title: text above.

    Raises:
        InputError: a negative weight or NaN, a weight for a set that is no edge, or negative limits.
        UnknownNameError: a weight with a name that is no variable.

    Example:
        >>> from pyro_hoim import Domain
        >>> graph = InteractionHypergraph.from_order(Domain.from_cardinalities([2] * 4), 3)
        >>> len(hypergraph_figure(graph, max_sets=2).axes)
        1
    """
    if max_sets < 0 or (top is not None and top < 0):
        raise out_of_range("top, max_sets", "numbers of at least 0", received=f"{top}, {max_sets}")
    found = _weights(hypergraph, weights)
    order = circle_order(hypergraph, weights)
    num = len(order)
    angle = {name: math.pi / 2 - 2 * math.pi * k / max(num, 1) for k, name in enumerate(order)}
    place = {name: np.array([math.cos(a), math.sin(a)]) for name, a in angle.items()}
    labels = short_labels(hypergraph.domain.names)
    figure, axes = new_canvas(list(labels.values()))
    pairs = sorted((e for e in found if len(e) == 2 and found[e] > 0), key=lambda e: -found[e])
    sets = sorted((e for e in found if len(e) > 2 and found[e] > 0), key=lambda e: -found[e])
    shown_pairs, shown_sets = pairs[:top], sets[:max_sets]
    _draw_sets(axes, shown_sets, found, place, full)
    _draw_pairs(axes, shown_pairs, found, place, full)
    draw_variables(axes, labels, found, place, angle)
    _legend(axes, labels, found, pairs, shown_pairs, sets, shown_sets)
    if title:
        axes.set_title(title, color=INK, fontsize=12)
    return figure


def new_canvas(labels: Sequence[str]) -> tuple[Figure, Axes]:
    """A figure whose circle has the same size whatever the labels, with room for them and for a legend."""
    many = len(labels) > _MAX_HORIZONTAL
    radius = 2.3 if many else 1.5  # inches
    font = _font_size(len(labels))
    label = max((len(n) for n in labels), default=0) * font * 0.0080 + 0.1
    half_width = radius * 1.1 + label
    half_height = half_width if many else radius * 1.1 + 0.4
    width, height = 2 * half_width + _LEGEND_WIDTH, 2 * half_height + 0.4
    figure = Figure(figsize=(width, height))
    axes = figure.add_axes((0.0, 0.0, 2 * half_width / width, 2 * half_height / height))
    axes.set_axis_off()
    axes.set_aspect("equal")
    axes.set_xlim(-half_width / radius, half_width / radius)
    axes.set_ylim(-half_height / radius, half_height / radius)
    return figure, axes


def _font_size(num: int) -> float:
    return 11.0 if num <= _MAX_HORIZONTAL else 9.5 if num <= 30 else 7.0


def _draw_pairs(axes: Axes, pairs: _Edges, weights: Weights, place: _Places, full: float | None) -> None:
    """Arcs bent towards the centre, the heaviest on top."""
    heaviest = full or _top([weights[e] for e in pairs])
    some_infinite = any(math.isinf(weights[e]) for e in pairs)
    for edge in reversed(pairs):
        share = _share(weights[edge], heaviest)
        start, end = place[edge[0]], place[edge[1]]
        middle = 0.5 * (start + end)
        far = float(np.linalg.norm(end - start)) / 2
        bend = middle * (0.35 + 0.4 * (1 - far))
        if math.isinf(weights[edge]):
            step = np.linspace(0, 1, 41)[:, None]
            points = (1 - step) ** 2 * start + 2 * step * (1 - step) * bend + step**2 * end
            draw_infinite(axes, points, points[16])
            continue
        arc = PathPatch(
            Path(np.array([start, bend, end]), [Path.MOVETO, Path.CURVE3, Path.CURVE3]),
            facecolor="none",
            edgecolor=BLUE,
            linewidth=0.5 + (WIDEST - 1.1) * share * (FINITE_SHARE if some_infinite else 1.0),
            alpha=0.18 + 0.72 * share,
            capstyle="round",
            zorder=2 + share,
        )
        axes.add_patch(arc)


def _colour(edge: tuple[str, ...]) -> str:
    return ORDERS.get(len(edge), HIGHER)


def _draw_sets(axes: Axes, sets: _Edges, weights: Weights, place: _Places, full: float | None) -> None:
    """Hulls where there are few sets, stars where there are many."""
    heaviest = {k: full or _top([weights[e] for e in sets if len(e) == k]) for k in {len(e) for e in sets}}
    as_hulls = len(sets) <= _MAX_HULLS
    for edge in reversed(sets):
        share = _share(weights[edge], heaviest[len(edge)])
        corners = np.array([place[n] for n in edge])
        if as_hulls:
            middle = corners.mean(0)
            outline = corners[np.argsort(np.arctan2(*(corners - middle).T[::-1]))]
            style: dict[str, Any] = {"linewidth": 0.6 + 1.6 * share, "joinstyle": "round", "zorder": 1}
            for fill, edgecolour, alpha in ((_colour(edge), "none", 0.06 + 0.2 * share), ("none", _colour(edge), 0.7)):
                axes.add_patch(Polygon(outline, facecolor=fill, edgecolor=edgecolour, alpha=alpha, **style))
            continue
        hub = corners.mean(0) * 0.82
        style: dict[str, Any] = {
            "linewidth": 0.7 + 2.2 * share,
            "alpha": 0.3 + 0.6 * share,
            "solid_capstyle": "round",
            "zorder": 4,
        }
        for corner in corners:
            axes.plot(*np.stack([hub, corner], 1), color=_colour(edge), **style)
        axes.plot(*hub, marker="o", markersize=4 + 5 * share, color=_colour(edge), markeredgecolor="white", zorder=4.5)


def draw_variables(
    axes: Axes, labels: Mapping[str, str], weights: Weights, place: _Places, angle: Mapping[str, float]
) -> None:
    """Circles with labels that point outward."""
    heaviest = _top([w for e, w in weights.items() if len(e) == 1])
    many = len(place) > _MAX_HORIZONTAL
    for name, label in labels.items():
        x, y = place[name]
        share = _share(weights.get((name,), 0.0), heaviest)
        size = (6.5 if many else 11) + 5 * share
        axes.plot(x, y, "o", color="white", markeredgecolor=INK, markersize=size, markeredgewidth=1.5, zorder=5)
        degrees = math.degrees(angle[name]) % 360
        out = 1.08 if many else 1.13
        is_left = math.cos(angle[name]) < -1e-6
        is_middle = abs(math.cos(angle[name])) < 1e-6
        turn = (degrees - 180 if 90 < degrees < 270 else degrees) if many else 0.0
        if many and is_middle:
            align, vertical = ("left", "center") if y > 0 else ("right", "center")
        elif is_middle:
            align, vertical = "center", "bottom" if y > 0 else "top"
        else:
            align, vertical = "right" if is_left else "left", "center"
        style: dict[str, Any] = {
            "rotation_mode": "anchor",
            "color": INK,
            "fontsize": _font_size(len(place)),
            "zorder": 6,
        }
        turn = 90.0 if is_middle and many else turn
        axes.text(x * out, y * out, literal(label), rotation=turn, ha=align, va=vertical, **style)


def _counted(what: str, drawn: int, total: int) -> str:
    """How many there are, and how many of them are drawn."""
    return f"{what}: {total}" if drawn == total else f"{what}: heaviest {drawn} of {total}"


def _legend(
    axes: Axes,
    labels: Mapping[str, str],
    weights: Weights,
    pairs: _Edges,
    shown_pairs: _Edges,
    sets: _Edges,
    shown_sets: _Edges,
) -> None:
    """Counts, colours, and the names of the heaviest sets."""
    handles: list[Line2D | Patch] = []
    if pairs:
        handles.append(Line2D([], [], color=BLUE, linewidth=3, label=_counted("pairs", len(shown_pairs), len(pairs))))
        if any(math.isinf(weights[e]) for e in shown_pairs):
            handles.append(Line2D([], [], color=ORANGE, linewidth=4, linestyle=(0, (1.2, 0.35)), label="infinite"))
    for size in sorted({len(e) for e in sets}):
        total = sum(len(e) == size for e in sets)
        drawn = sum(len(e) == size for e in shown_sets)
        label = _counted(f"sets of {size}", drawn, total)
        handles.append(Patch(facecolor=ORDERS.get(size, HIGHER), alpha=0.6, label=label))
    for edge in shown_sets[:_MAX_HULLS]:
        text = literal(short_edge([labels[name] for name in edge], _LEGEND_LINE, " : "))
        handles.append(Line2D([], [], marker="o", linestyle="", markersize=4, color=_colour(edge), label=text))
    if len(shown_sets) > _MAX_HULLS:
        handles.append(Line2D([], [], linestyle="", label=f"and {len(shown_sets) - _MAX_HULLS} more"))
    if handles:
        axes.legend(
            handles=handles, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize=8.5, labelcolor=INK
        )
