"""Long names are shortened where they are read, counts and nouns agree, and every part has its rows."""

import io
import math
import re
from dataclasses import replace

import pytest
import torch

from pyro_hoim import Domain, InteractionHypergraph, Observations
from pyro_hoim.core.words import plain
from pyro_hoim.log_linear import SelectionOptions, learn
from pyro_hoim.plots import figure_of, pair_matrix, plot_hypergraph, plot_pairs
from pyro_hoim.report import plain_text, render_page
from pyro_hoim.study import analyse, analyse_learned

LONG = "how satisfied are you, all things considered, with the service that you received from our staff (1)"
OTHER = LONG.replace("(1)", "(2)")
LEVEL = "neither satisfied nor dissatisfied with anything that was said or done on that day"
DOMAIN = Domain.from_labels({LONG: ["no", LEVEL], OTHER: ["no", LEVEL], "price in $ or $": ["low", "high"]})
ROWS = Observations.from_table(DOMAIN, [[[30, 8], [4, 9]], [[5, 9], [8, 31]]])


@pytest.fixture(scope="module")
def learned():
    parts = {"train": ROWS, "validation": ROWS, "test": None}
    return analyse_learned(learn(ROWS, ROWS), parts, target=LONG, title="survey")


def test_terminal_lines_stay_short(learned):
    structures = {"all pairs": InteractionHypergraph.from_order(DOMAIN, 2)}
    for page in (learned.page(), analyse({"train": ROWS}, structures, title="survey").page()):
        lines = plain_text(page).split("Odds ratios:")[1].splitlines()
        sentences = {block.text for section in page.sections for block in section.blocks if block.text}
        table = [line for line in lines if line.strip("()") not in {plain(words) for words in sentences}]
        assert any("…" in line for line in table) and max(map(len, table)) <= 110


@pytest.mark.usefixtures("words_alone")
def test_page_shows_names_in_full(learned):
    page = re.sub(r'src="data:[^"]*"', "", render_page(learned.page()))
    assert f">{LONG}:{OTHER}</td>" in page
    (lead,) = re.findall(r'<p class="lead"([^>]*)>([^<]*)</p>', page)
    assert LONG in lead[0] and lead[1].startswith(f"104 train and 104 validation rows of 3 columns: {LONG}, ")
    other = render_page(
        analyse({"train": ROWS}, {"pairs": InteractionHypergraph.from_order(DOMAIN, 2)}, title="survey").page()
    )
    assert f"104 rows of 3 columns: {LONG}" in other and f">{LONG}:{OTHER}</td>" in other


def test_pictures_have_a_size_that_does_not_depend_on_names():
    long = InteractionHypergraph.from_order(DOMAIN, 3)
    for figure in (figure_of(plot_hypergraph, long), figure_of(plot_pairs, pair_matrix(long))):
        assert max(figure.get_size_inches()) < 13
        figure.savefig(io.BytesIO())
    labels = [tick.get_text() for tick in figure_of(plot_pairs, pair_matrix(long)).axes[0].get_yticklabels()]
    assert len(set(labels)) == 3 and max(map(len, labels)) <= 22 and r"price in \$ or \$" in labels


def test_counts_and_nouns_agree(learned):
    domain = Domain.from_labels({"a": ["x", "y"], "b": ["x", "y"]})
    rows = Observations.from_tensor(torch.tensor([[0, 0], [1, 1]]), domain, torch.tensor([1.0, 0.0]))
    found = analyse_learned(
        learn(rows, rows, SelectionOptions(max_rounds=1)), {"train": rows, "validation": rows, "test": None}
    )
    text = plain_text(found.page())
    assert "In 1 row, the model has no interaction." in text
    assert not re.search(r"\b1 (rows|pairs|triples|interactions|collections)", text + render_page(found.page()))
    graph = InteractionHypergraph.saturated(DOMAIN)
    tables = torch.zeros(sum(math.prod(shape) for shape in graph.edge_shapes), dtype=torch.float64)
    three = replace(learned.learned, structure=None, hypergraph=graph, tables=tables)
    whole = replace(learned, learned=three, num_parameters_fitted=7)
    assert "3 pairs and 1 triple and 7 parameters, estimated from " in render_page(whole.page())


@pytest.mark.usefixtures("words_alone")
def test_no_minus_zero(learned):
    part = learned.parts["train"]
    assert part is not None and part.scores.kl is not None
    tiny = replace(part, scores=replace(part.scores, nll=part.independent.nll + 1e-9, kl=-1e-12))
    shown = replace(learned, parts={"train": tiny, "validation": None, "test": None})
    for words in (plain_text(shown.page()), render_page(shown.page())):
        plain = re.sub(r'src="data:[^"]*"|title="[^"]*"', "", words)
        assert not re.search(r"[-−]0\.0*(?![0-9.e])", plain)
        assert "0.0000" in plain
    worse = replace(part, scores=replace(part.scores, nll=part.independent.nll + 0.5))  # control: a loss is shown
    assert "-0.5000" in plain_text(replace(learned, parts={"train": worse, "validation": None, "test": None}).page())
