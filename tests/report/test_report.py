"""Reports: figures show what they are given, pages hold what the analysis says, numbers read well."""

import io
import re
from dataclasses import replace

import numpy as np
import pytest
from matplotlib import image
from matplotlib.colors import to_hex
from matplotlib.patches import PathPatch

from pyro_hoim import Domain, InteractionHypergraph, Observations, load_table
from pyro_hoim.core.words import num_states_text, number
from pyro_hoim.log_linear.fitting.existence import MLEExistence
from pyro_hoim.plots import plot_comparison, plot_fitted, plot_forest
from pyro_hoim.plots.drawing import BLUE, ORANGE, figure_of
from pyro_hoim.report import plain_text, render_page, write_page
from pyro_hoim.study import Analysis, PosteriorSettings, analyse
from pyro_hoim.study.model import rank_figure, trace_figure

pytestmark = pytest.mark.fixed_seed  # of the short chains below, whose convergence is not what is tested


@pytest.fixture(scope="module")
def analysis():
    """Two small models of the admissions table with short chains."""
    data = load_table("ucb_admissions")
    structures = {f"order {k}": InteractionHypergraph.from_order(data.domain, k) for k in (1, 2)}
    settings = PosteriorSettings(2, 20, 20)
    return analyse({"train": data}, structures, posterior=settings, seed=1, title="admissions", target="Admit")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "–"),
        (float("nan"), "–"),
        (float("inf"), "∞"),
        (-float("inf"), "−∞"),
        (12, "12"),
        (1841000, "1,841,000"),
        (-7071.28, "−7,071.3"),
        (116.588, "116.59"),
        (0.26342, "0.263"),
        (0.01234, "0.012"),
        (1.6e-140, "1.6e−140"),
        ("word", "word"),
        (True, "yes"),
    ],
)
def test_number(value, shown):
    assert number(value) == shown


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (64, "64"),
        (829_440, "829440"),
        (243_799_621_632_000, "2.4e14"),
        (10**6, "1.0e6"),
        (99_999_999, "1.0e8"),
        (2**4000, "1.3e1204"),
        pytest.param(2**20_000, "4.0e6020", id="more digits than an int prints"),
    ],
)
def test_num_states_text(count, shown):
    assert num_states_text(count) == shown


def pixels(figure):
    """Decoded picture of a figure."""
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=40, bbox_inches="tight", facecolor="white")
    stream.seek(0)
    return image.imread(stream, format="png")


def test_an_infinite_estimate_is_an_arrow():
    centre, lower, upper = np.array([-np.inf, 0.5]), np.array([-np.inf, 0.2]), np.array([-np.inf, 0.8])
    (axes,) = figure_of(plot_forest, ["x", "y"], centre, lower, upper, label="nats").axes
    (arrow,) = [text for text in axes.texts if text.arrow_patch is not None]
    assert arrow.xy == pytest.approx((-0.92, 2))
    assert axes.get_xlim()[0] < -0.92


def test_other_figures_hold_their_data_and_render():
    rng = np.random.default_rng(0)
    centre = np.array([0.5, -0.2, 0.0])
    figure = figure_of(plot_forest, ["p", "q", "r"], centre, centre - 0.1, centre + 0.1, label="nats")
    assert [t.get_text() for t in figure.axes[0].get_yticklabels()] == ["p", "q", "r"]
    points = [float(line.get_xdata()[0]) for line in figure.axes[0].lines if line.get_marker() == "o"]
    assert points == centre.tolist()
    draws = {"x": rng.normal(size=(2, 50)), "constant": np.ones((2, 50))}
    observed = rng.poisson(9.0, 30).astype(float)
    for drawing in (
        figure,
        trace_figure(draws),
        rank_figure(draws),
        figure_of(plot_comparison, ["one", "two"], np.array([-5.0, -4.0]), np.array([1.0, 1.0])),
        figure_of(plot_fitted, observed, np.full(30, 9.0)),
    ):
        assert pixels(drawing).std() > 0
    (key,) = trace_figure(draws).legends
    chains = next(iter(draws.values()))
    assert [text.get_text() for text in key.get_texts()] == [f"chain {k}" for k in range(len(chains))]
    assert pixels(trace_figure({})).std() == pixels(rank_figure({})).std() == 0


def test_rank_bars_tell_agreeing_from_shifted_chains():
    def spread(values):
        (axes,) = rank_figure({"x": values}).axes[:1]
        return float(np.std([patch.get_height() for patch in axes.patches]))

    draws = np.random.default_rng(1).normal(size=(4, 1000))
    assert spread(draws) < 0.3 < spread(draws + np.arange(4)[:, None])


def test_page_holds_the_numbers_of_the_analysis(analysis, tmp_path):
    analysis.save(tmp_path)
    write_page(analysis.page(), tmp_path)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    test = analysis.models[1].goodness
    assert test is not None and number(test.deviance) == "20.204"
    plain = re.sub(r"<[^>]+>", " ", page)
    for value in ("20.204", "order 1", "order 2", "Admit:Gender", "Posterior", "chain"):
        assert value in plain
    assert page.count("<img") + page.count("<source") == page.count("data:image/svg+xml;base64,") == 7
    assert page.count("<section") == page.count("</section>")
    names = {p.name for p in tmp_path.iterdir()}
    assert names == {
        "report.html",
        "tables",
        "figures",
        "model.safetensors",
        "posterior.nc",
        *(f"{stem}-order-{k}.{end}" for k in (1, 2) for stem, end in (("model", "safetensors"), ("posterior", "nc"))),
    }


@pytest.mark.usefixtures("words_alone")
def test_a_count_of_the_family_is_named(analysis, monkeypatch):
    ratios = analysis.odds_ratios()
    monkeypatch.setattr(Analysis, "odds_ratios", lambda *_: ratios)
    kept = analysis.models[analysis.chosen_index]
    pages = []
    for exists in (True, None):
        fit = replace(kept.fit, existence=MLEExistence(exists, "interior" if exists else "unknown"), _face=None)
        model = replace(kept, fit=fit)
        models = tuple(model if i == analysis.chosen_index else other for i, other in enumerate(analysis.models))
        page = replace(analysis, models=models).page()
        pages.append(plain_text(page))
    decided, undecided = pages
    assert "It was not counted how many parameters the rows identify" in undecided
    assert "not counted" not in decided  # control: the estimate exists, and all are identified


@pytest.mark.usefixtures("words_alone")
def test_a_single_chain_is_not_praised(analysis):
    run = analysis.models[1].posterior
    assert run is not None and not any("One chain" in s for s in analysis.page().warnings)  # control: two chains
    single = replace(run, theta=run.theta[:1], max_r_hat=float("nan"), min_ess_bulk=float("nan"))
    models = (analysis.models[0], replace(analysis.models[1], posterior=single))
    alone = replace(analysis, models=models, chosen_index=1).page()
    assert any("order 2: One chain cannot show" in s for s in alone.warnings)
    assert "1 chain of 20 draws: the largest R-hat is –" in render_page(alone)


@pytest.mark.usefixtures("words_alone")
def test_html_is_escaped(analysis):
    assert "<script>" not in render_page(replace(analysis, title="<script>alert(1)</script>").page())


@pytest.mark.usefixtures("words_alone")
def test_text(analysis):
    text = plain_text(analysis.page())
    assert "order 2" in text and "20.204" in text and "accuracy" in text
    lines = text.split("Odds ratios:")[1].splitlines()[1:12]
    assert max(map(len, lines)) <= 110 and lines[0].startswith("compared ")


@pytest.mark.usefixtures("words_alone")
def test_the_held_out_gain_stands_above_the_scores():
    train, _, test = load_table("ucb_admissions").split((0.6, 0.0, 0.4), 0)
    structure = {"pairs": InteractionHypergraph.from_order(train.domain, 2)}
    found = analyse({"train": train, "test": test}, structure)
    scores = found.chosen.parts["test"]
    gain, error = scores.gain, scores.gain_std_error
    assert gain is not None and error is not None and gain > 0.1
    page = found.page()
    assert (
        f"On the test rows the model kept gains {gain:.3f} nats per row over independent columns "
        f"(standard error {error:.3f})."
    ) in plain_text(page)
    assert not any("KL" in sentence for sentence in page.summary)
    assert "gain" in plain_text(page) and "says nothing about fit" not in render_page(page)
    # Without held-out rows the fit is judged by its test, and no gain is claimed.
    alone = analyse({"train": train}, structure).page()
    assert not any("independent columns" in sentence for sentence in alone.summary)
    cells = Observations.from_tensor(test.codes.unique(dim=0), test.domain)
    distinct = analyse({"train": train, "test": cells}, structure).page()
    sentence = "All rows of test are distinct: KL is then NLL - log(rows) and says nothing about fit."
    assert sentence in render_page(distinct) and sentence in plain_text(distinct)


def test_pairs_of_two_levels_show_their_signs():
    """Of a table made from theta: the picture has the signs of the coefficients at the second levels."""
    domain = Domain.from_cardinalities({"a": 2, "b": 2, "c": 2})
    a, b, c = np.meshgrid([-1, 1], [-1, 1], [-1, 1], indexing="ij")
    rows = Observations.from_table(domain, np.round(1000 * np.exp(0.5 * a * b - 0.4 * b * c)))
    page = analyse({"train": rows}, {"pairs": InteractionHypergraph.from_order(domain, 2)}).page()
    blocks = {section.title: section.blocks for section in page.sections}
    (picture,) = [block for block in blocks["All interactions at a glance"] if block.kind == "figure"]
    words = [text.get_text() for text in picture.drawing.axes[0].get_legend().get_texts()]
    assert words[-2:] == ["second levels together: more frequent", "less frequent"]
    arcs = [arc for arc in picture.drawing.axes[0].patches if isinstance(arc, PathPatch)]
    colours = [to_hex(arc.get_edgecolor()) for arc in sorted(arcs, key=lambda arc: -arc.get_linewidth())]
    assert colours[:2] == [BLUE, ORANGE]  # a:b is the strongest, then b:c
    (table, *_) = [block for block in blocks["Strengths and independences of pairs"] if block.kind == "table"]
    shown = {row[0].shown: (row[2].shown[0], row[3].shown) for row in table.rows}
    assert shown["a:b"] == ("+", "0, 0") and shown["b:c"] == ("\N{MINUS SIGN}", "0, 0")
