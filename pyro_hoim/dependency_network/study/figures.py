"""Pictures of a dependency network: its arrows, and the decision graph of one variable."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch, Patch, Rectangle

from ...core.words import plural
from ...errors import check_type, out_of_range, unexpected
from ...plots.drawing import FAINT, FONT, INK, KINDS, SLATE, axes_for, figure_of, label_lines, legend_below, wrapped
from ...plots.hypergraph import circle_axes, circle_labels, circle_order, circle_places, draw_variables
from ...plots.pairs import plot_pairs
from ...schema import Domain
from ...structure.hypergraph import InteractionHypergraph
from ..node_conditionals import LeafConditional

# Picture of a decision graph: questions from left to right, at the end the law of every leaf as a bar.

_COLOURS = KINDS
_ARROWS = ("#6b7585", "#22303c", "#9aa5b1")
_OTHER = "#c3ccd4"
_ROW = 0.32  # inches between two lines
_STEP = 1.95  # inches between two questions
_BAR = 0.9  # width of a bar, in steps
_START, _BENT = 0.46, 0.56  # where an arrow leaves its question, and where it has reached its line, in steps
_ANSWERS = 12  # characters on an arrow
_NAME = 13  # characters of a line of a question


@dataclass
class _Layout:
    """What is drawn, by number of the node: where it stands and which answers lead on."""

    children: dict[int, list[tuple[int, list[int]]]]
    ends: list[int]
    depth: dict[int, int]
    height: dict[int, float] = field(default_factory=dict[int, float])


def decision_graph_figure(
    node: LeafConditional,
    counts: torch.Tensor | None = None,
    *,
    max_ends: int = 12,
    max_questions: int = 7,
    max_depth: int = 3,
) -> Figure:
    """The questions of a decision graph from left to right, and the law of the variable at every leaf.

    Answers that lead to the same place share an arrow. Arrows of different questions in one column differ in colour;
    where they meet, leaves were merged. The legend names the levels, the eight most probable by their colours; names
    and answers that are too long are numbered there. Large graphs are folded: questions are opened from the first on,
    in the order of their distance, while there is room; an end that is no leaf is grey and says how many lie behind.

    Args:
        node: the conditional.
        counts: weights of the rows in the leaves, (num_leaves, cardinality) or (num_leaves,), whose sums are written
            beside the bars.
        max_ends: most ends drawn.
        max_questions: most questions drawn.
        max_depth: most questions on the way to an end.

    Raises:
        InputTypeError: no decision graph with leaf tables.
        InputError: counts of another number of leaves, or ``max_ends`` below 2.

    Example:
        >>> from pyro_hoim import Domain
        >>> from pyro_hoim.dependency_network import DecisionGraph
        >>> domain = Domain.from_cardinalities({"rain": 2, "wet": 2})
        >>> graph = DecisionGraph(domain, "wet").split(0, "rain")
        >>> figure = decision_graph_figure(LeafConditional(graph, torch.tensor([[0.9, 0.1], [0.2, 0.8]])))
        >>> figure.axes[0].get_title()
        'wet: 2 leaves'
    """
    check_type(node, LeafConditional, "node")
    if counts is not None and len(counts) != node.graph.num_leaves:
        expected = f"one row per leaf ({node.graph.num_leaves})"
        raise unexpected("counts", expected, received=len(counts), code="wrong-shape")
    if max_ends < 2:
        raise out_of_range("max_ends", "at least 2", received=max_ends)
    # Where questions and ends stand, and the colours of the levels by their frequency.
    layout = _laid_out(node, max_ends, max_questions, max_depth)
    steps = max(layout.depth.values())
    variable = node.domain[node.variable]
    probs = node.probs.detach().double().cpu().numpy()
    weights = None if counts is None else counts.double().reshape(len(counts), -1).sum(-1).numpy()
    mean = probs.mean(0) if weights is None or not weights.sum() else weights @ probs / weights.sum()
    ranks = np.argsort(-mean, kind="stable")
    colour = {int(level): _COLOURS[k] if k < len(_COLOURS) else _OTHER for k, level in enumerate(ranks)}
    lines = len(layout.height)
    figure = Figure()
    axes = axes_for(figure, (steps + _BAR + 0.35) * _STEP, lines * _ROW + 0.6)
    axes.set_axis_off()
    axes.set_xlim(-0.03, steps + _BAR + 0.32)
    axes.set_ylim(-0.8, lines + 0.2)
    graph = node.graph.compiled
    names, answers, key = _words(node, layout)

    def question(at: int) -> str:
        return names[node.domain.names[graph.variables[at]]]

    # Arrows first, so that boxes and bars lie above them.
    taken: dict[tuple[int, int], int] = {}
    asked: dict[int, int] = {}
    for at in sorted(layout.children, key=lambda at: -layout.height[at]):
        number = asked[layout.depth[at]] = asked.get(layout.depth[at], -1) + 1
        for child, levels in layout.children[at]:
            _answer(axes, layout, (at, child), answers[_said(node, at, levels)], taken, _ARROWS[number % len(_ARROWS)])
    for at in layout.children:
        box = {"boxstyle": "round,pad=0.3", "facecolor": "white", "edgecolor": INK, "linewidth": 1.0}
        point = (layout.depth[at] + 0.04, layout.height[at])
        axes.text(*point, question(at), va="center", fontsize=FONT, color=INK, bbox=box)
    # An end is the bar of a leaf, or a note on what is not drawn behind it.
    for at in layout.ends:
        x, y = layout.depth[at], layout.height[at]
        if graph.variables[at] >= 0:
            behind = len(graph.leaves_behind(node.domain.cardinalities, at))
            sentence = f"… {plural(behind, 'leaf', 'leaves')} behind {question(at)}".replace("\n", " ")
            axes.add_patch(Rectangle((x, y - 0.36), _BAR, 0.72, facecolor="#eef1f4", edgecolor=FAINT, linewidth=0.6))
            axes.text(x + _BAR / 2, y, wrapped(sentence, 30), ha="center", va="center", fontsize=FONT - 1, color=INK)
            continue
        leaf = int(graph.offsets[at])
        _bar(axes, x, y, probs[leaf], ranks, colour)
        if weights is not None:
            axes.text(x + _BAR + 0.03, y, f"{weights[leaf]:,.6g}", va="center", fontsize=FONT, color=INK)
    if weights is not None:
        axes.text(steps + _BAR + 0.03, lines - 0.35, "rows", fontsize=FONT, color=INK)
    total = int((graph.variables >= 0).sum())
    count = plural(node.graph.num_leaves, "leaf", "leaves")
    if total > len(layout.children):
        count += f" (the first {len(layout.children)} of {total} questions)"
    axes.set_title(wrapped(f"{node.variable}: {count}", 44), color=INK, fontsize=11)
    # Colours of the levels, and the key.
    named = [int(level) for level in ranks[: len(_COLOURS)]]
    handles = [Patch(facecolor=colour[level], label=wrapped(variable.labels[level], 40)) for level in named]
    if len(variable.labels) > len(named):
        handles.append(Patch(facecolor=_OTHER, label=f"{len(variable.labels) - len(named)} other levels"))
    legend_below(None, axes, handles, key, title=wrapped(node.variable, 50))
    return figure


def _laid_out(node: LeafConditional, max_ends: int, max_questions: int, max_depth: int) -> _Layout:
    """Open questions while there is room, then give every node its place."""
    graph = node.graph.compiled
    children: dict[int, list[tuple[int, list[int]]]] = {}
    # Questions are opened in the order of their distance while there is room for their answers.
    front = [(0, 0)]
    while front:
        at, distance = front.pop(0)
        if graph.variables[at] < 0 or at in children:
            continue
        # Children of a question with the levels that lead to them, in the order of their first levels.
        levels_of: dict[int, list[int]] = {}
        for level in range(node.domain.cardinalities[graph.variables[at]]):
            levels_of.setdefault(int(graph.children[graph.offsets[at] + level]), []).append(level)
        below = list(levels_of.items())
        ends = {c for kids in children.values() for c, _ in kids} | {c for c, _ in below} | {0}
        is_full = len(ends - set(children) - {at}) > max_ends or len(children) >= max_questions
        if children and (is_full or distance >= max_depth):
            continue
        children[at] = below
        front.extend((child, distance + 1) for child, _ in below)
    # A question stands to the right of all that lead to it, and ends stand in one column.
    depth = {0: 0}
    for at in sorted(children):  # a child has a greater number than its parents
        for child, _ in children[at]:
            depth[child] = max(depth.get(child, 0), depth[at] + 1)
    order: list[int] = []
    _visit(children, 0, order, set())
    ends = [at for at in order if at not in children]
    for at in ends:
        depth[at] = max(depth.values())
    return _Layout(children, ends, depth, {at: float(len(order) - 1 - k) for k, at in enumerate(order)})


def _visit(children: dict[int, list[tuple[int, list[int]]]], at: int, order: list[int], seen: set[int]) -> None:
    """All nodes, a question in the middle of what lies behind it; every node has a line of its own."""
    seen.add(at)
    below = [child for child, _ in children.get(at, ())]
    for child in (*below[: len(below) // 2], at, *below[len(below) // 2 :]):
        if child == at:
            order.append(at)
        elif child not in seen:
            _visit(children, child, order, seen)


def _said(node: LeafConditional, at: int, levels: Sequence[int]) -> str:
    """Answers to a question that lead the same way."""
    variable = node.domain.variables[node.graph.compiled.variables[at]]
    if len(levels) == variable.cardinality - 1 > 2:
        return f"not {next(label for k, label in enumerate(variable.labels) if k not in levels)}"
    return ", ".join(variable.labels[level] for level in levels)


def _words(node: LeafConditional, layout: _Layout) -> tuple[dict[str, str], dict[str, str], list[str]]:
    """Labels of the questions and of their answers, and a key of those that are numbered."""
    asked = [at for at in sorted(layout.height) if node.graph.compiled.variables[at] >= 0]
    names = list(dict.fromkeys(node.domain.names[node.graph.compiled.variables[at]] for at in asked))
    said = {_said(node, at, levels): None for at, below in sorted(layout.children.items()) for _, levels in below}
    labels, key = label_lines(names, _NAME, 2, "[{}]")
    answers, more = label_lines(list(said), _ANSWERS, 1, "({})")
    return dict(zip(names, labels, strict=True)), dict(zip(said, answers, strict=True)), [*key, *more]


def _answer(
    axes: Axes, layout: _Layout, arrow: tuple[int, int], words: str, taken: dict[tuple[int, int], int], colour: str
) -> None:
    """A curve from a question to the line of what some answers lead to, with the answers on that line."""
    at, child = arrow
    x0, y0, x1, y1 = layout.depth[at], layout.height[at], layout.depth[child], layout.height[child]
    # A smooth bend between two lines, then straight on to the child.
    bend = np.linspace(0, 1, 24)
    eased = bend * bend * (3 - 2 * bend)
    x = np.concatenate([[x0 + 0.04], x0 + _START + bend * (_BENT - _START), [x1]])
    y = np.concatenate([[y0], y0 + eased * (y1 - y0), [y1]])
    axes.plot(x, y, color=colour, linewidth=0.9, alpha=0.8, zorder=0)
    # Answers of several questions on one line stand above and below it, then beside each other.
    number = taken.get((x0, child), 0)  # answers of other questions of this column on the same line
    taken[x0, child] = number + 1
    side = number % 2
    point = (x0 + _BENT + 0.01, y1 + (0.02, -0.06)[side])
    aside = 0.0 if number < 2 else len(words) * FONT * 0.7  # points, beside the answers that stand there already
    axes.annotate(
        words, point, (aside, 0.0), textcoords="offset points", va=("bottom", "top")[side], fontsize=FONT - 1,
        color=colour, zorder=1,
    )  # fmt: skip


def _bar(axes: Axes, x: float, y: float, law: np.ndarray, ranks: np.ndarray, colour: dict[int, str]) -> None:
    """A law as pieces of a bar, the levels in the order of the legend."""
    left = x
    for level in ranks.tolist():
        piece = float(law[level]) * _BAR
        axes.add_patch(Rectangle((left, y - 0.36), piece, 0.72, facecolor=colour[level], edgecolor="none"))
        if law[level] > 0.17 and colour[level] != _OTHER:
            style: dict[str, Any] = {
                "ha": "center",
                "va": "center",
                "fontsize": FONT - 1,
                "color": "white",
                "zorder": 3,
            }
            axes.text(left + piece / 2, y, f"{law[level]:.2f}", **style)
        left += piece


# Picture of a dependency network: what is predicted from what, as arrows on a circle or as a matrix.

Arrows = Mapping[tuple[str, str], float]


def _checked(domain: Domain, values: Arrows) -> dict[tuple[str, str], float]:
    """The arrows, the strongest first; negative values, NaN, other names and arrows to themselves are refused."""
    for edge, value in values.items():
        domain.indices(edge)
        if not 0 <= value < math.inf:
            raise out_of_range("values", "finite numbers of at least 0", received=f"{value} for {edge}")
    return dict(sorted(values.items(), key=lambda item: (-item[1], *map(domain.index, item[0]))))


def _order(domain: Domain, values: Arrows) -> tuple[str, ...]:
    """Variables so that those that tell much of each other stand side by side."""
    both: dict[tuple[str, ...], float] = {}
    for edge, value in values.items():
        pair = domain.project(edge).names
        both[pair] = both.get(pair, 0.0) + value
    return circle_order(InteractionHypergraph(domain, list(both), hierarchical=False), both)


def dependency_figure(domain: Domain, values: Arrows, *, target: str | None = None, top: int | None = 80) -> Figure:
    """Variables on a circle, an arrow from every variable to those that are predicted from it.

    Arrows of two variables that are predicted from each other bend to different sides.

    Args:
        domain: the variables.
        values: non-negative weight of every arrow by (from, to), such as the information gained; widths and
            depths of colour are relative to the largest.
        target: arrows into and out of this variable are darker.
        top: at most so many arrows, the strongest; all when None.

    Raises:
        InputError: a negative or infinite value, or an arrow from a variable to itself.
        UnknownNameError: a name that is no variable.

    Example:
        >>> domain = Domain.from_cardinalities({"a": 2, "b": 2, "c": 2})
        >>> len(dependency_figure(domain, {("a", "b"): 0.4, ("b", "a"): 0.4, ("a", "c"): 0.1}).axes[0].patches)
        3
    """
    # Strong arrows last, so that they lie above the others.
    strengths = _checked(domain, values)
    order = _order(domain, strengths)
    points = circle_places(order)
    shown = list(strengths)[:top]
    highest = max(strengths.values(), default=0.0) or 1.0
    handles = _legend(strengths, shown, target, len(order))
    texts, key = circle_labels(domain.names)
    figure = Figure()
    axes = circle_axes(figure, texts, points)
    for edge in reversed(shown):
        _arrow(axes, points[edge[0]], points[edge[1]], strengths[edge] / highest, target in edge, len(order))
    draw_variables(axes, texts, {}, points)
    legend_below(None, axes, handles, key)
    return figure


_CROWDED = 16  # variables between which arrows are short


def _arrow(axes: Axes, start: np.ndarray, end: np.ndarray, share: float, is_target: bool, size: int) -> None:
    """One arrow, bent to the right of its direction."""
    # Many variables leave less room for heads and gaps.
    room = (
        5.0 if size > _CROWDED else 7.0 if size > 8 else 10.0
    )  # points between an arrow and the middle of its variables
    scale = 0.55 if size > _CROWDED else 1.0
    axes.add_patch(
        FancyArrowPatch(
            (float(start[0]), float(start[1])),
            (float(end[0]), float(end[1])),
            connectionstyle="arc3,rad=0.16",
            arrowstyle=f"-|>,head_length={scale * (4 + 3.5 * share):.2f},head_width={scale * (2 + 2.2 * share):.2f}",
            shrinkA=room,
            shrinkB=room,
            linewidth=_width(share, size),
            color=INK if is_target else SLATE,
            alpha=0.38 + 0.57 * share,
            zorder=2 + share + (1 if is_target else 0),
        )
    )


def _width(share: float, size: int) -> float:
    """Points of a line, thinner where many variables stand close."""
    return 0.6 + (1.5 if size > _CROWDED else 3.4) * share


def _legend(values: Arrows, shown: Sequence[tuple[str, str]], target: str | None, size: int) -> list[Any]:
    """What arrows mean, how many there are, and the scale of widths."""
    if not values:
        return []
    count = f"{len(values)}" if len(shown) == len(values) else f"strongest {len(shown)} of {len(values)}"
    lines = [
        Line2D([], [], linestyle="", label="a → b: b is predicted from a"),
        Line2D([], [], color=SLATE, linewidth=0, label=f"arrows: {count}"),
    ]
    highest = max(values.values()) or 1.0
    for share in (1.0, 0.5, 0.25):
        label = f"{highest * share:.2g} nats a row"
        lines.append(Line2D([], [], color=SLATE, linewidth=_width(share, size), alpha=0.38 + 0.57 * share, label=label))
    if target is not None and any(target in edge for edge in shown):
        lines.append(Line2D([], [], color=INK, linewidth=3, label=wrapped(f"into or out of {target}", 40)))
    return lines


def dependency_matrix_figure(domain: Domain, values: Arrows) -> Figure:
    """What is predicted from what as a matrix: a row is a variable, its columns are those it is predicted from.

    Arguments, errors and the order of variables are those of :func:`dependency_figure`; up to eight variables have the
    numbers written into their cells.

    Example:
        >>> domain = Domain.from_cardinalities({"a": 2, "b": 2, "c": 2})
        >>> figure = dependency_matrix_figure(domain, {("a", "b"): 0.4, ("b", "a"): 0.4, ("a", "c"): 0.1})
        >>> figure.axes[0].get_xlabel(), [label.get_text() for label in figure.axes[0].get_yticklabels()]
        ('predicted from', ['a', 'b', 'c'])
    """
    strengths = _checked(domain, values)
    order = list(_order(domain, strengths))
    at = {name: k for k, name in enumerate(order)}
    values_of = np.full((len(order), len(order)), np.nan)
    for (parent, child), value in strengths.items():
        values_of[at[child], at[parent]] = value
    matrix = pd.DataFrame(values_of, index=order, columns=order)
    figure = figure_of(plot_pairs, matrix, label="information, nats a row", absent="not used")
    if order:
        figure.axes[0].set_xlabel("predicted from", color=INK, fontsize=FONT)
        figure.axes[0].set_ylabel("predicted", color=INK, fontsize=FONT)
    return figure
