"""Report of a dependency network: pictures from known graphs, the page and the text from an analysis."""

import math
import re
from functools import partial

import pytest
import torch
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

from pyro_hoim import Domain, Observations, load_table
from pyro_hoim.core.words import shorten
from pyro_hoim.dependency_network import (
    DecisionGraph,
    LeafConditional,
    TableConditional,
    analyse_network,
    decision_graph_figure,
    dependency_figure,
    dependency_matrix_figure,
    learn_network,
)
from pyro_hoim.errors import InputError, InputTypeError, UnknownNameError
from pyro_hoim.report import plain_text, render_page

DOMAIN = Domain.from_labels({"a": ["no", "yes"], "b": ["x", "y", "z"], "c": ["low", "high"], "$d$": ["1", "2"]})


def texts(figure):
    return [text.get_text() for text in figure.axes[0].texts]


# Who reads whom


def test_arrows_are_as_wide_as_their_values_and_the_target_is_marked():
    values = {("a", "b"): 0.4, ("b", "a"): 0.1, ("c", "$d$"): 0.2}
    figure = dependency_figure(DOMAIN, values, target="c")
    arrows = sorted(figure.axes[0].patches, key=lambda arrow: arrow.get_linewidth())
    assert [arrow.get_linewidth() for arrow in arrows] == pytest.approx([0.6 + 3.4 * s for s in (0.25, 0.5, 1.0)])
    colours = [to_hex(arrow.get_edgecolor()) for arrow in arrows]
    assert colours[1] != colours[0] == colours[2]
    legend = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert legend[1:] == ["arrows: 3", *(f"{v} nats a row" for v in (0.4, 0.2, 0.1)), "into or out of c"]


def test_only_the_strongest_arrows_are_drawn_where_there_are_many():
    figure = dependency_figure(DOMAIN, {("a", "b"): 0.4, ("b", "a"): 0.1, ("c", "a"): 0.2}, top=2)
    assert sorted(arrow.get_linewidth() for arrow in figure.axes[0].patches) == pytest.approx([2.3, 4.0])
    assert figure.axes[0].get_legend().get_texts()[1].get_text() == "arrows: strongest 2 of 3"


def test_the_matrix_has_readers_in_rows():
    figure = dependency_matrix_figure(DOMAIN, {("a", "b"): 0.4, ("c", "a"): 0.2})
    image = figure.axes[0].images[0].get_array().filled(math.nan)
    names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert names == [label.get_text() for label in figure.axes[0].get_xticklabels()]
    at = {name: k for k, name in enumerate(names)}
    assert (image[at["b"], at["a"]], image[at["a"], at["c"]]) == (0.4, 0.2)
    assert (~(image != image)).sum() == 2
    assert sorted(texts(figure)) == ["0.2", "0.4"]


@pytest.mark.parametrize("draw", [dependency_figure, dependency_matrix_figure])
def test_wrong_arrows_are_refused(draw):
    for arrow, value, error, words in (
        ("ab", -1.0, InputError, "values: expected finite numbers of at least 0, received -1"),
        ("aa", 1.0, InputError, "a"),
        ("ae", 1.0, UnknownNameError, "'e'"),
    ):
        with pytest.raises(error, match=words):
            draw(DOMAIN, {tuple(arrow): value})
    assert draw(DOMAIN, {}).axes[0].images is not None


# Decision graphs


def merged_node():
    """Asks b, then c where b is x; the leaves of b = y and of (x, high) are one."""
    graph = DecisionGraph(DOMAIN, "a").split(0, "b").split(0, "c").merge(0, 3)
    return LeafConditional(graph, torch.tensor([[0.9, 0.1], [0.3, 0.7], [0.5, 0.5]], dtype=torch.float64))


def test_questions_answers_laws_and_rows_are_drawn():
    counts = torch.tensor([[1800.0, 200.0], [3.0, 7.0], [20.0, 20.0]], dtype=torch.float64)
    figure = decision_graph_figure(merged_node(), counts)
    shown = texts(figure)
    assert {"b", "c", "x", "y", "z", "low", "high"} <= set(shown)
    assert {"2,000", "10", "40", "rows"} <= set(shown)
    assert figure.axes[0].get_title() == "a: 3 leaves"
    bars = [patch for patch in figure.axes[0].patches if isinstance(patch, Rectangle)]
    widths = sorted(round(bar.get_width() / 0.9, 9) for bar in bars)
    assert widths == pytest.approx([0.1, 0.3, 0.5, 0.5, 0.7, 0.9])
    assert [t.get_text() for t in figure.axes[0].get_legend().get_texts()] == ["no", "yes"]


def test_leaves_of_the_picture_are_those_of_the_graph():
    node = merged_node()
    figure = decision_graph_figure(node)
    ends = {round(bar.get_y(), 6) for bar in figure.axes[0].patches if isinstance(bar, Rectangle)}
    assert len(ends) == node.graph.num_leaves


def test_large_graphs_are_cut_and_say_so():
    domain = Domain.from_cardinalities({f"x{i}": 2 for i in range(8)})
    graph = DecisionGraph(domain, "x0")
    for i in range(1, 8):
        graph = graph.split(0, f"x{i}")
        graph = graph.split(0, f"x{i % 7 + 1}") if i < 3 else graph
    node = LeafConditional(graph, torch.full((graph.num_leaves, 2), 0.5))
    figure = decision_graph_figure(node, max_ends=3)
    assert "questions)" in figure.axes[0].get_title()
    assert any(text.endswith(tuple(f"behind x{i}" for i in range(8))) for text in texts(figure))
    whole = decision_graph_figure(node, max_ends=30, max_questions=30, max_depth=9)
    assert "questions" not in whole.axes[0].get_title()


def test_wrong_nodes_are_refused():
    table = TableConditional(DOMAIN, "a", [], torch.tensor([0.5, 0.5]))
    with pytest.raises(InputTypeError, match="node: expected a LeafConditional"):
        decision_graph_figure(table)
    with pytest.raises(InputError, match=r"counts: expected one row per leaf \(3\), received 2"):
        decision_graph_figure(merged_node(), torch.ones(2))
    with pytest.raises(InputError, match="max_ends: expected at least 2"):
        decision_graph_figure(merged_node(), max_ends=1)


# The page


@pytest.fixture(scope="module")
def analysis():
    train, _, test = load_table("czech_autoworkers").split((0.6, 0.0, 0.4), 0)
    return analyse_network(
        {"train": train, "test": test}, target="smoke", title="workers <1>", about=["A <b>note</b>."]
    )


def test_the_page_holds_everything_and_loads_nothing(analysis):
    page = render_page(analysis.page())
    assert page.count("data:image/svg+xml;base64,") == page.count("<img") + page.count("<source") == 9
    assert "http" not in page.split("<body>")[1].replace("http-equiv", "")
    assert "workers &lt;1&gt;" in page
    assert "<b>note</b>" not in page
    part = analysis.parts["test"]
    for value in (part.scores.pseudo_nll, part.gain, part.scores.nll, part.scores.kl, part.independent.kl):
        assert f"{value:.4f}" in page
    titles = ["Odds ratios", "Which variables predict which", "What predicts each column", "Decision graphs"]
    titles += ["How well it predicts rows"]
    assert all(f"<h2>{title}</h2>" in page for title in [*titles, "How it was estimated"])
    assert "which other columns may explain, not causes." in page


@pytest.mark.usefixtures("words_alone")
def test_the_text_holds_the_scores_and_the_strongest_arrows(analysis):
    text = plain_text(analysis.page())
    part, first = analysis.parts["test"], analysis.edges[0]
    assert re.search(rf"{first.parent} +{first.child} +{first.value:.4f}", text)
    assert f"{part.scores.pseudo_nll:.4f}" in text
    assert (
        f"On the test rows the network gains {part.gain:.3f} nats per row in log pseudo-likelihood (every cell given "
        f"all others) over independent columns (standard error {part.scores.gain_std_error:.3f})."
    ) in text
    assert re.search(rf"test +{part.accuracy['accuracy']:.4f}", text)


@pytest.mark.usefixtures("words_alone")
def test_independent_variables_make_a_page_too():
    rows = load_table("czech_autoworkers")
    page = render_page(analyse_network({"train": rows}, learn=partial(learn_network, max_leaves=1)).page())
    assert "No variable predicts another one well enough" in page
    assert "Every graph has a single leaf" in page
    assert page.count("data:image") == 0


@pytest.mark.usefixtures("words_alone")
def test_of_many_variables_the_strongest_are_drawn_and_long_names_are_told_apart():
    generator = torch.Generator().manual_seed(0)
    names = [f"how satisfied are you with item {k} of the list" for k in range(61)]
    codes = torch.randint(0, 2, (400, 61), generator=generator)
    codes[:, 1] = codes[:, 0]
    rows = Observations.from_tensor(codes, Domain.from_cardinalities(dict.fromkeys(names, 2)))
    shown = analyse_network({"train": rows}, target=names[5]).page()
    page, text = render_page(shown), plain_text(shown)
    assert f'>{names[0]}</td><td class="long">{names[1]}</td>' in page
    assert "variables of the strongest arrows, and the arrows between them" in page
    assert shorten(names[1], 36) in text
