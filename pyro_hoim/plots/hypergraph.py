"""Interactions of many variables at once: a hypergraph around a circle."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, PathPatch, Polygon
from matplotlib.path import Path
from matplotlib.transforms import offset_copy

from ..budgets import check_size
from ..errors import check_type, out_of_range, refused
from ..structure.hypergraph import InteractionHypergraph
from .drawing import BLUE, FONT, INK, KINDS, ORANGE, SLATE, WIDTH, Target, axes_for, label_lines, legend_below, wrapped

ORDERS = {3: KINDS[0], 4: KINDS[1], 5: KINDS[2]}
HIGHER = KINDS[4]
WIDEST = 6.6
"""Width of the strongest pair of a picture, in points."""
FINITE_SHARE = 0.6
"""Width of the strongest finite pair beside an infinite one, of the widest."""
_MAX_HULLS = 6
_MOST_VARIABLES = 500  # whose order on the circle takes about ten seconds
_MAX_HORIZONTAL = 8  # variables whose labels are not turned
_CROWDED = 24  # variables from which on a label has one line
_LETTER, _CLEAR = 0.0085, 0.18  # inches a point of type, and between a variable and its label
_SMALLEST = 0.7  # inches of the radius, beyond which a picture grows
_MIDDLE = 1e-6
_DASHES = (0, (1.2, 0.35))

Weights = Mapping[tuple[str, ...], float]
"""A number for some of the interactions; its sign, where it has one, becomes a colour."""
_Edges = Sequence[tuple[str, ...]]
_Places = Mapping[str, np.ndarray]


def edge_weights(hypergraph: InteractionHypergraph, weights: Weights | None) -> dict[tuple[str, ...], float]:
    """Weight of every edge, 1 without weights, 0 where none is given, looked up in schema order.

    Raises:
        InputError: NaN, or a weight for a set that is no edge.
        UnknownNameError: a name that is no variable.
    """
    check_type(hypergraph, InteractionHypergraph, "hypergraph")
    if weights is None:
        return dict.fromkeys(hypergraph.edges, 1.0)
    known = dict.fromkeys(hypergraph.edges, 0.0)
    for names, value in weights.items():
        edge = hypergraph.domain.project(names).names
        if edge not in known:
            raise refused("weights", f"{':'.join(edge)} is no interaction of the hypergraph", code="unknown-name")
        if math.isnan(value):
            raise out_of_range("weights", "numbers", received=f"{value} for {':'.join(edge)}")
        known[edge] = float(value)
    return known


def _share(value: float, top: float) -> float:
    """Size of a weight relative to the largest finite one; infinite weights count as the largest."""
    return 1.0 if math.isinf(value) else abs(value) / top


def top_weight(values: Sequence[float]) -> float:
    """Largest finite size of a weight, 1 where there is none."""
    return max((abs(v) for v in values if math.isfinite(v)), default=0.0) or 1.0


def circle_order(hypergraph: InteractionHypergraph, weights: Weights | None = None) -> tuple[str, ...]:
    """Variables in an order around the circle that puts strongly bound ones next to each other.

    Single linkage by pair weight, greedily: the two open paths with the strongest bond between their ends are joined
    until one path is left; up to six variables keep the order of the schema. Deterministic.

    Args:
        hypergraph: the interactions.
        weights: weights of some of them, whose signs do not matter; all equal when None. A pair has
            its own weight plus that of the larger sets that hold it, each divided by its number of pairs.

    Example:
        >>> from pyro_hoim import Domain
        >>> graph = InteractionHypergraph.from_order(Domain.from_cardinalities([2] * 7), 2)
        >>> circle_order(graph, {("x0", "x5"): 3.0, ("x5", "x2"): 2.0})[:3]
        ('x0', 'x5', 'x2')
    """
    names = hypergraph.domain.names
    strengths = edge_weights(hypergraph, weights)
    if len(names) <= 6:
        return names
    hint, what = "draw hypergraph.project(names) of fewer", "there are"
    check_size(len(names), _MOST_VARIABLES, "variables on the circle", "hypergraph", hint, what)
    # Symmetric matrix of pair weights, larger sets shared out over their pairs.
    bond = np.zeros((len(names), len(names)))
    top = top_weight(list(strengths.values()))
    for edge, members in zip(hypergraph.edges, hypergraph.edge_indices, strict=True):
        if len(members) > 1:
            share = _share(strengths[edge], top) / math.comb(len(members), 2)
            for i, j in permutations(members, 2):
                bond[i, j] += share
    # Paths grow by the strongest bond between two of their ends, turned where that helps.
    paths = [[i] for i in range(len(names))]
    while len(paths) > 1:
        ends = np.array([(path[-1], path[0]) for path in paths])  # as a path ends, not turned and turned
        values = bond[ends[:, None, :, None], ends[None, :, None, ::-1]]  # of two paths, each not turned and turned
        values[np.tril_indices(len(paths))] = -1.0
        a, b, flip_a, flip_b = np.unravel_index(np.argmax(values >= values.max() - 1e-12), values.shape)
        first = paths[a][::-1] if flip_a else paths[a]
        second = paths[b][::-1] if flip_b else paths[b]
        paths[a] = first + second
        del paths[b]
    # The first variable stands on top, its stronger neighbour to the right.
    path = paths[0]
    start = path.index(0)
    turned = path[start:] + path[:start]
    if bond[0, turned[-1]] > bond[0, turned[1]]:
        turned = [turned[0], *turned[:0:-1]]
    return tuple(names[i] for i in turned)


def plot_hypergraph(
    hypergraph: InteractionHypergraph,
    weights: Weights | None = None,
    *,
    ax: Target = None,
    top: int | None = 60,
    max_sets: int = 12,
    full: float | None = None,
    unit: str = "",
    signs: tuple[str, str] | None = None,
    title: str = "",
    max_variables: int | None = 24,
) -> Axes:
    """Interactions of many variables on a circle.

    Pairs are arcs, wider and darker the heavier they are. Sets of three or more are translucent hulls when at most six
    are shown, otherwise stars: a node with a spoke to every member. Circles of variables grow with the weight of their
    own term. Without signs pairs are grey and larger sets have a colour for their size; with signs blue is positive and
    orange negative.
    Widths are relative to the heaviest shown of the same order; the legend gives the scale of widths, the meaning of
    colours, and says how many of how many are drawn.

    Args:
        hypergraph: the interactions.
        weights: weights of some of them, for instance strengths, refined information, or coefficients with their signs;
            1 for all when None, 0 where not given. An infinite pair is dashed, wider than all finite ones and marked
            with the sign of infinity.
        ax: axes to draw into; an empty :class:`~matplotlib.figure.Figure` takes the size of the picture; None makes a
            new figure of pyplot.
        top: draw at most this many pairs, the heaviest first; all when None.
        max_sets: draw at most this many sets of three or more, the heaviest first.
        full: weight that has the full width, for pictures that are compared; None for the heaviest shown of an order.
        unit: unit of the weights, for the legend.
        signs: what a positive and what a negative weight mean, such as ``("rise together", "one rises, one falls")``;
            None for "positive" and "negative", shown where some weight is negative.
        title: text above.
        max_variables: draw at most this many variables where there are more: those of the heaviest interactions; all
            when None.

    Returns:
        The axes.

    Raises:
        InputError: NaN, a weight for a set that is no edge, or negative limits.
        InputTypeError: ``ax`` is neither axes nor a figure.
        UnknownNameError: a weight with a name that is no variable.

    Example:
        >>> from matplotlib.figure import Figure
        >>> from pyro_hoim import Domain
        >>> graph = InteractionHypergraph.from_order(Domain.from_cardinalities([2] * 4), 2)
        >>> axes = plot_hypergraph(graph, {("x0", "x1"): 0.4, ("x1", "x2"): -0.2}, ax=Figure(), unit="nats")
        >>> [text.get_text() for text in axes.get_legend().get_texts()]
        ['pairs: 2', '0.4 nats', '0.2 nats', '0.08 nats', 'positive', 'negative']
    """
    if max_sets < 0 or (top is not None and top < 0):
        raise out_of_range("top, max_sets", "numbers of at least 0", received=f"{top}, {max_sets}")
    strengths = edge_weights(hypergraph, weights)
    total = len(hypergraph.domain)
    if max_variables is not None and total > max_variables:
        # The interactions among the variables of the heaviest, as long as these are few enough.
        names = set[str]()
        for edge in sorted((e for e in strengths if len(e) > 1 and strengths[e]), key=lambda e: -abs(strengths[e])):
            if len(names.union(edge)) <= max_variables:
                names.update(edge)
        inside = {edge: weight for edge, weight in strengths.items() if names.issuperset(edge)}
        domain = hypergraph.domain.project(name for name in hypergraph.domain.names if name in names)
        hypergraph, strengths = InteractionHypergraph(domain, list(inside), hierarchical=False), inside
    points = circle_places(circle_order(hypergraph, strengths))
    # The strongest of each kind are drawn; the legend says how many are left out.
    heaviest = sorted((e for e in strengths if strengths[e]), key=lambda e: -abs(strengths[e]))
    pairs, sets = [e for e in heaviest if len(e) == 2], [e for e in heaviest if len(e) > 2]
    shown = (pairs[:top], sets[:max_sets])
    is_signed = signs is not None or any(strengths[e] < 0 for e in (*pairs, *sets))
    is_weighted = weights is not None
    handles = _legend(
        strengths, (pairs, sets), shown, full=full, is_weighted=is_weighted, is_signed=is_signed, unit=unit
    )
    handles += _signs(signs or ("positive", "negative"), [strengths[e] for e in (*shown[0], *shown[1])]) * is_signed
    if len(hypergraph.domain) < total:
        label = f"{len(hypergraph.domain)} of {total:,} columns, those of the strongest"
        handles.insert(0, Line2D([], [], linestyle="", label=label))
    # Labels need room before anything is drawn.
    names = hypergraph.domain.names
    labels, key = circle_labels(names)
    axes = circle_axes(ax, labels, points)
    _draw_sets(axes, shown[1], strengths, points, full, is_signed)
    _draw_pairs(axes, shown[0], strengths, points, full, is_signed)
    draw_variables(axes, labels, strengths, points)
    if title:
        axes.set_title(wrapped(title, 60), color=INK, fontsize=12)
    legend_below(ax, axes, handles, key)
    return axes


def circle_places(order: Sequence[str]) -> dict[str, np.ndarray]:
    """Places on the unit circle, the first on top, the others clockwise."""
    angles = [math.pi / 2 - 2 * math.pi * k / max(len(order), 1) for k in range(len(order))]
    return {name: np.array([math.cos(a), math.sin(a)]) for name, a in zip(order, angles, strict=True)}


def circle_labels(names: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Labels around the circle by their names, and a key of those that are numbered."""
    many, crowded = len(names) > _MAX_HORIZONTAL, len(names) > _CROWDED
    labels, key = label_lines(names, 18 if crowded else 14, 1 if crowded else 2 if many else 3)
    return dict(zip(names, labels, strict=True)), key


def circle_axes(ax: Target, labels: Mapping[str, str], points: _Places) -> Axes:
    """Axes for a circle that is as large as its labels leave room for, and for these."""
    many = len(labels) > _MAX_HORIZONTAL
    size = FONT if many else FONT + 1.0
    # What a label takes beyond its variable: outward, or from left to right where there are few.
    beyond = list[tuple[float, float, float, float]]()
    for name, label in labels.items():
        lines = label.split("\n")
        x, y = (abs(float(coordinate)) for coordinate in points[name])
        length, height = max(map(len, lines)) * size * _LETTER, len(lines) * size / 60
        if many:
            beyond.append((x, y, (_CLEAR + length) * x + height / 2, (_CLEAR + length) * y + height / 2))
        else:
            beyond.append((x, y, _CLEAR * x + length * (1.0 if x > _MIDDLE else 0.5), _CLEAR * y + height))
    room = [(WIDTH / 2 - width) / x for x, _, width, _ in beyond if x > _MIDDLE]
    radius = max(min([1.6 if many else 1.25, *room]), _SMALLEST)
    half_width = max((radius * x + width for x, _, width, _ in beyond), default=radius)
    half_height = max((radius * y + height for _, y, _, height in beyond), default=radius)
    axes = axes_for(ax, 2 * half_width + 0.1, 2 * half_height + 0.1)
    axes.set_axis_off()
    axes.set_aspect("equal", anchor="N")
    axes.set_xlim(-half_width / radius, half_width / radius)
    axes.set_ylim(-half_height / radius, half_height / radius)
    return axes


def _width(share: float, some_infinite: bool = False) -> float:
    """Points of an arc."""
    return 0.5 + (WIDEST - 1.1) * share * (FINITE_SHARE if some_infinite else 1.0)


def _draw_pairs(
    axes: Axes, pairs: _Edges, weights: Weights, centres: _Places, full: float | None, is_signed: bool
) -> None:
    """Arcs bent towards the centre, the heaviest on top."""
    heaviest = full or top_weight([weights[e] for e in pairs])
    some_infinite = any(math.isinf(weights[e]) for e in pairs)
    for edge in reversed(pairs):
        share = _share(weights[edge], heaviest)
        start, end = centres[edge[0]], centres[edge[1]]
        middle = 0.5 * (start + end)
        far = float(np.linalg.norm(end - start)) / 2
        # The nearer two variables stand, the flatter their arc.
        bend = middle * (0.35 + 0.4 * (1 - far))
        colour = _colour(edge, weights[edge], is_signed)
        if math.isinf(weights[edge]):
            step = np.linspace(0, 1, 41)[:, None]
            points = (1 - step) ** 2 * start + 2 * step * (1 - step) * bend + step**2 * end
            # An infinite pair along points (k, 2): wide, dashed, with the sign of infinity on it
            words = "−∞" if weights[edge] < 0 else "∞"
            style: dict[str, Any] = {"linewidth": WIDEST, "linestyle": _DASHES, "dash_capstyle": "butt", "zorder": 2}
            axes.plot(points[:, 0], points[:, 1], color=colour, **style)
            x, y = points[len(points) * 2 // 5]
            axes.annotate(
                words, (float(x), float(y)), ha="center", va="center", color=INK, fontsize=12, zorder=4,
                bbox={"boxstyle": "circle,pad=0.12", "facecolor": "white", "edgecolor": colour, "linewidth": 1.0},
            )  # fmt: skip
            continue
        arc = PathPatch(
            Path(np.array([start, bend, end]), [Path.MOVETO, Path.CURVE3, Path.CURVE3]),
            facecolor="none",
            edgecolor=colour,
            linewidth=_width(share, some_infinite),
            alpha=0.18 + 0.72 * share,
            capstyle="round",
            zorder=2 + share,
        )
        axes.add_patch(arc)


def _colour(edge: tuple[str, ...], value: float, is_signed: bool) -> str:
    if is_signed:
        return ORANGE if value < 0 else BLUE
    return SLATE if len(edge) == 2 else ORDERS.get(len(edge), HIGHER)


def _draw_sets(
    axes: Axes, sets: _Edges, weights: Weights, points: _Places, full: float | None, is_signed: bool
) -> None:
    """Hulls where there are few sets, stars where there are many."""
    heaviest = {k: full or top_weight([weights[e] for e in sets if len(e) == k]) for k in {len(e) for e in sets}}
    as_hulls = len(sets) <= _MAX_HULLS
    for edge in reversed(sets):
        share = _share(weights[edge], heaviest[len(edge)])
        colour = _colour(edge, weights[edge], is_signed)
        corners = np.array([points[n] for n in edge])
        # A few sets are regions; many would cover each other.
        if as_hulls:
            middle = corners.mean(0)
            outline = corners[np.argsort(np.arctan2(*(corners - middle).T[::-1]))]
            style: dict[str, Any] = {"linewidth": 0.6 + 1.6 * share, "joinstyle": "round", "zorder": 1}
            for fill, edgecolour, alpha in ((colour, "none", 0.06 + 0.2 * share), ("none", colour, 0.7)):
                axes.add_patch(Polygon(outline, facecolor=fill, edgecolor=edgecolour, alpha=alpha, **style))
            continue
        # Many are stars around a hub inside the circle.
        hub = corners.mean(0) * 0.82
        style: dict[str, Any] = {
            "linewidth": 0.7 + 2.2 * share,
            "alpha": 0.3 + 0.6 * share,
            "solid_capstyle": "round",
            "zorder": 4,
        }
        for corner in corners:
            axes.plot(*np.stack([hub, corner], 1), color=colour, **style)
        axes.plot(*hub, marker="o", markersize=4 + 5 * share, color=colour, markeredgecolor="white", zorder=4.5)


def draw_variables(axes: Axes, labels: Mapping[str, str], weights: Weights, points: _Places) -> None:
    """Circles with labels that point outward."""
    heaviest = top_weight([w for e, w in weights.items() if len(e) == 1])
    many = len(points) > _MAX_HORIZONTAL
    figure, clear = axes.get_figure(root=True), 0.11 if many else 0.16
    for name, label in labels.items():
        x, y = points[name]
        share = _share(weights.get((name,), 0.0), heaviest)
        size = (6.5 if many else 11) + 5 * share
        axes.plot(x, y, "o", color="white", markeredgecolor=INK, markersize=size, markeredgewidth=1.5, zorder=5)
        degrees = math.degrees(math.atan2(y, x)) % 360
        is_middle = abs(x) < _MIDDLE
        turn = 0.0
        # Many names stand like spokes, none upside down.
        if many:
            turn = 90.0 if is_middle else degrees - 180 if 90 < degrees < 270 else degrees
            align, vertical = "right" if x < -_MIDDLE or (is_middle and y < 0) else "left", "center"
        elif is_middle:
            align, vertical = "center", "bottom" if y > 0 else "top"
        else:
            align, vertical = "right" if x < 0 else "left", "center"
        style: dict[str, Any] = {"rotation_mode": "anchor", "color": INK, "zorder": 6, "linespacing": 1.05}
        style["transform"] = offset_copy(axes.transData, figure, x * clear, y * clear, units="inches")
        size = FONT if many else FONT + 1.0
        axes.text(x, y, label, rotation=turn, ha=align, va=vertical, fontsize=size, **style)


def _counted(what: str, drawn: int, total: int) -> str:
    """How many there are, and how many of them are drawn."""
    return f"{what}: {total}" if drawn == total else f"{what}: strongest {drawn} of {total}"


def _scale(values: Sequence[float], full: float | None, unit: str) -> list[Any]:
    """Three widths of arcs with their numbers, one where all weights are alike."""
    finite = [abs(v) for v in values if math.isfinite(v)]
    some_infinite = len(finite) < len(values)
    top = full or top_weight(values)
    shares = () if not finite else (1.0,) if min(finite) == max(finite) == top else (1.0, 0.5, 0.2)
    return [
        Line2D(
            [], [], color=SLATE, linewidth=_width(share, some_infinite), alpha=0.18 + 0.72 * share,
            label=f"{top * share:.2g} {unit}".rstrip(),
        )
        for share in shares
    ]  # fmt: skip


def _legend(
    weights: Weights,
    every: tuple[_Edges, _Edges],
    shown: tuple[_Edges, _Edges],
    *,
    full: float | None,
    is_weighted: bool,
    is_signed: bool,
    unit: str,
) -> list[Any]:
    """Counts, the scale of widths, and the names of the heaviest sets."""
    handles = list[Any]()
    (pairs, sets), (shown_pairs, shown_sets) = every, shown
    if pairs:
        values = [weights[e] for e in shown_pairs]
        label = _counted("pairs", len(shown_pairs), len(pairs))
        handles.append(Line2D([], [], color=SLATE, linewidth=0 if is_weighted else 3, label=label))
        handles += _scale(values, full, unit) if is_weighted else []
        if any(math.isinf(v) for v in values):
            handles.append(Line2D([], [], color=SLATE, linewidth=4, linestyle=_DASHES, label="infinite"))
    # Sets by their size, each size with its own scale.
    for size in sorted({len(e) for e in sets}):
        drawn = [e for e in shown_sets if len(e) == size]
        label = _counted(f"sets of {size}", len(drawn), sum(len(e) == size for e in sets))
        if is_weighted and drawn:
            label += f", up to {top_weight([weights[e] for e in drawn]):.2g} {unit}".rstrip()
        colour = SLATE if is_signed else ORDERS.get(size, HIGHER)
        handles.append(Patch(facecolor=colour, alpha=0.6, label=label))
    for edge in shown_sets[:_MAX_HULLS]:
        colour = _colour(edge, weights[edge], is_signed)
        text = wrapped(" : ".join(edge), 36)
        handles.append(Line2D([], [], marker="o", linestyle="", markersize=4, color=colour, label=text))
    if len(shown_sets) > _MAX_HULLS:
        handles.append(Line2D([], [], linestyle="", label=f"and {len(shown_sets) - _MAX_HULLS} more"))
    # Rings around single variables.
    singles = [abs(w) for e, w in weights.items() if len(e) == 1 and math.isfinite(w)]
    if is_weighted and max(singles, default=0.0) > 0:
        label = f"own term, up to {max(singles):.2g} {unit}".rstrip()
        style: dict[str, Any] = {"markerfacecolor": "white", "markeredgecolor": INK, "markersize": 10}
        handles.append(Line2D([], [], marker="o", linestyle="", label=label, **style))
    return handles


def _signs(signs: tuple[str, str], values: Sequence[float]) -> list[Any]:
    """Colours of the signs that occur."""
    held = ((signs[0], BLUE, any(v > 0 for v in values)), (signs[1], ORANGE, any(v < 0 for v in values)))
    return [Line2D([], [], color=colour, linewidth=3, label=words) for words, colour, occurs in held if occurs]
