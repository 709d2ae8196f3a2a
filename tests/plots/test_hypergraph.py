"""Pictures of hypergraphs: what is drawn, in which order and how wide, and that every size can be rendered."""

import io
import itertools
import math

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.patches import PathPatch, Polygon
from scipy.spatial.distance import cdist

from pyro_hoim import Domain, InteractionHypergraph
from pyro_hoim.errors import InputError, UnknownNameError
from pyro_hoim.plots import circle_order, pair_matrix, plot_hypergraph, plot_pairs
from pyro_hoim.plots.drawing import ORANGE, SLATE, figure_of

FIVE = InteractionHypergraph.from_order(Domain.from_cardinalities(dict.fromkeys("abcde", 2)), 3)
MANY = InteractionHypergraph.from_order(
    Domain.from_cardinalities({f"stalk-surface-below-{i}": 2 for i in range(23)}), 2
)


def hypergraph_figure(*args, **options):
    return figure_of(plot_hypergraph, *args, **options)


def pair_matrix_figure(graph, weights=None, **options):
    return figure_of(plot_pairs, pair_matrix(graph, weights), **options)


def arcs(figure):
    return [p for p in figure.axes[0].patches if isinstance(p, PathPatch)]


def legend_texts(figure):
    legend = figure.axes[0].get_legend()
    return [] if legend is None else [t.get_text() for t in legend.get_texts()]


def test_pairs_are_as_wide_as_they_are_heavy():
    weights = {("a", "b"): 4.0, ("c", "a"): 2.0, ("b", "c"): 0.0, ("d", "e"): 1.0}
    whole = hypergraph_figure(FIVE, weights)
    assert sorted(arc.get_linewidth() for arc in arcs(whole)) == pytest.approx(
        [0.5 + 5.5 * s for s in (0.25, 0.5, 1.0)]
    )
    alone = hypergraph_figure(FIVE, weights, top=1)
    (heaviest,) = arcs(alone)
    assert heaviest.get_linewidth() == pytest.approx(6.0) and to_hex(heaviest.get_edgecolor()) == SLATE
    assert "pairs: strongest 1 of 3" in legend_texts(alone)
    assert "pairs: 3" in legend_texts(whole)
    assert len(arcs(hypergraph_figure(FIVE))) == 10 and not arcs(hypergraph_figure(FIVE, {}))


def test_widths_may_be_absolute():
    weights = {("a", "b"): 0.5, ("c", "a"): 0.25, ("a", "b", "c"): 0.5}
    figure = hypergraph_figure(FIVE, weights, full=1.0)
    assert sorted(arc.get_linewidth() for arc in arcs(figure)) == pytest.approx([0.5 + 5.5 * s for s in (0.25, 0.5)])
    hulls = [p for p in figure.axes[0].patches if isinstance(p, Polygon)]
    assert {hull.get_linewidth() for hull in hulls} == {0.6 + 1.6 * 0.5}
    widest = max(arc.get_linewidth() for arc in arcs(hypergraph_figure(FIVE, weights)))
    assert widest == pytest.approx(6.0)  # control: relative to the heaviest


def test_larger_sets_are_hulls_when_few_and_stars_when_many():
    few = hypergraph_figure(FIVE, max_sets=4)
    hulls = [p for p in few.axes[0].patches if isinstance(p, Polygon)]
    assert len(hulls) == 8  # a face and an outline each
    assert "sets of 3: strongest 4 of 10" in legend_texts(few)
    many = hypergraph_figure(FIVE, max_sets=10)
    assert not [p for p in many.axes[0].patches if isinstance(p, Polygon)]
    hubs = [line for line in many.axes[0].lines if line.get_marker() == "o" and line.get_markeredgecolor() == "white"]
    spokes = [line for line in many.axes[0].lines if len(line.get_xdata()) == 2]
    assert (len(hubs), len(spokes)) == (10, 30)
    assert {"and 4 more", "a : b : c"} <= set(legend_texts(many))
    weights = {("c", "d", "e"): 3.0, ("a", "b", "c"): 1.0}
    heaviest = legend_texts(hypergraph_figure(FIVE, weights, max_sets=1))
    assert "c : d : e" in heaviest and "a : b : c" not in heaviest


def test_infinite_pairs_are_dashed_marked_and_the_widest():
    figure = hypergraph_figure(FIVE, {("a", "b"): math.inf, ("c", "d"): 2})
    (finite,) = arcs(figure)
    (infinite,) = [line for line in figure.axes[0].lines if line.get_linestyle() == "--"]
    assert to_hex(infinite.get_color()) == SLATE == to_hex(finite.get_edgecolor())
    assert finite.get_linewidth() < infinite.get_linewidth()
    assert "∞" in {text.get_text() for text in figure.axes[0].texts}
    assert "infinite" in legend_texts(hypergraph_figure(FIVE, {("a", "b"): math.inf}))
    below = hypergraph_figure(FIVE, {("a", "b"): -math.inf})
    (infinite,) = [line for line in below.axes[0].lines if line.get_linestyle() == "--"]
    assert to_hex(infinite.get_color()) == ORANGE and "−∞" in {text.get_text() for text in below.axes[0].texts}


def test_bound_variables_are_neighbours_on_the_circle():
    names = MANY.domain.names
    chain = [names[i] for i in (0, 7, 3, 19, 11)]
    weights = dict.fromkeys(itertools.pairwise(chain), 5.0)
    order = circle_order(MANY, weights)
    assert sorted(order) == sorted(names) and order == circle_order(MANY, weights)
    at = [order.index(n) for n in chain]
    steps = {(b - a) % 23 for a, b in itertools.pairwise(at)}
    assert steps in ({1}, {22})
    assert circle_order(FIVE) == FIVE.domain.names


def overlapping(figure):
    """Pairs of labels of one figure whose boxes on the canvas overlap."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    area = figure.bbox
    boxes = []
    for label in figure.axes[0].texts:
        label.set_bbox(None)
        turned = label.get_rotation()
        label.set_rotation(0)
        box = label.get_window_extent(canvas.get_renderer())
        label.set_rotation(turned)
        whole = label.get_window_extent(canvas.get_renderer())
        assert area.x0 <= whole.x0 and whole.x1 <= area.x1 and area.y0 <= whole.y0 and whole.y1 <= area.y1
        boxes.append((label, box.width, box.height))
    corners = []
    for label, width, height in boxes:
        anchor = figure.axes[0].transData.transform(label.get_position())
        angle = math.radians(label.get_rotation())
        along = np.array([math.cos(angle), math.sin(angle)])
        start = {"left": 0.0, "right": -width, "center": -width / 2}[label.get_ha()]
        corners.append((anchor + np.linspace(start, start + width, 30)[:, None] * along, height))
    return sum(
        bool(cdist(one, other).min() < 0.8 * min(height, other_height))
        for (one, height), (other, other_height) in itertools.combinations(corners, 2)
    )


def test_labels_of_many_variables_are_inside_and_apart():
    assert (overlapping(hypergraph_figure(MANY)), overlapping(hypergraph_figure(FIVE))) == (0, 0)
    crowded = InteractionHypergraph.from_order(Domain.from_cardinalities([2] * 220), 1)
    assert overlapping(hypergraph_figure(crowded, max_variables=None)) > 0  # control: the check sees labels that touch


def test_matrix_holds_the_weights_in_circle_order():
    weights = {("a", "b"): 4.0, ("c", "d"): 2.0, ("a", "e"): math.inf}
    figure = pair_matrix_figure(FIVE, weights, label="nats", title="pairs")
    axes = figure.axes[0]
    values = np.ma.filled(axes.images[0].get_array(), np.nan)
    assert values[0, 1] == values[1, 0] == 4 and values[2, 3] == 2 and values[1, 2] == 0
    assert np.isnan(values[0, 4]) and np.isnan(np.diag(values)).all()
    assert [t.get_text() for t in axes.get_yticklabels()] == list("abcde")
    assert [t.get_text() for t in axes.texts].count("4") == 2
    assert axes.child_axes[0].get_ylabel() == "nats"
    assert not pair_matrix_figure(MANY).axes[0].texts
    loose = InteractionHypergraph.from_formula(FIVE.domain, "a*b + c")
    (crosses,) = [line for line in pair_matrix_figure(loose).axes[0].lines if line.get_marker() == "x"]
    assert len(crosses.get_xdata()) == 18


@pytest.mark.parametrize("num", [0, 1, 2, 3, 9, 23, 40])
def test_any_size_can_be_rendered(num):
    graph = InteractionHypergraph.from_order(Domain.from_cardinalities([2] * num), min(2, num)) if num else None
    graph = graph or InteractionHypergraph(Domain())
    for figure in (hypergraph_figure(graph, title="t"), pair_matrix_figure(graph)):
        figure.savefig(io.BytesIO(), dpi=30)


def test_sets_of_every_order_can_be_rendered():
    graph = InteractionHypergraph.saturated(Domain.from_cardinalities([2] * 6))
    for max_sets in (0, 5, 50):
        hypergraph_figure(graph, max_sets=max_sets).savefig(io.BytesIO(), dpi=30)


def test_bad_weights_are_refused():
    with pytest.raises(InputError, match="weights: expected numbers, received nan"):
        hypergraph_figure(FIVE, {("a", "b"): math.nan})
    with pytest.raises(InputError, match="a:b:c:d is no interaction"):
        pair_matrix_figure(FIVE, {("a", "b", "c", "d"): 1.0})
    with pytest.raises(UnknownNameError):
        circle_order(FIVE, {("a", "z"): 1.0})
    with pytest.raises(InputError, match="max_sets"):
        hypergraph_figure(FIVE, max_sets=-1)
