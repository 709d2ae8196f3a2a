"""Every plot: axes in, axes out, no state of pyplot, nothing clipped, labels apart, a legend for what is drawn."""

import math

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from pyro_hoim import Domain, InteractionHypergraph, load_table, plots
from pyro_hoim.errors import InputError, InputTypeError, UnknownNameError
from pyro_hoim.plots.intervals import plot_forest

LONG = "how satisfied are you, all things considered, with the service that you received from our staff"
RNG = np.random.default_rng(0)
ODD = Domain.from_cardinalities(
    {f"{LONG} (1)": 2, "neither satisfied nor dissatisfied": 2, "price in $ or $": 3, "a": 2}
)
PAIRS = InteractionHypergraph.from_order(ODD, 2)
SIGNED = {edge: float(k - 2) for k, edge in enumerate(e for e in PAIRS.edges if len(e) == 2)}
SIGNED |= {PAIRS.edges[-1]: math.inf, PAIRS.edges[-2]: -math.inf}
MANY = InteractionHypergraph.from_order(
    Domain.from_cardinalities({f"stalk-surface-below-ring {i}": 2 for i in range(40)}), 2
)
TERMS = pd.DataFrame(
    {
        "term": [f"{LONG}:{LONG}", "a:b", "c:d", "e", "f"],
        "levels": ["yes, no", "x, y", "u, v", None, ""],
        "estimate": [0.5, -0.2, math.inf, math.nan, -3.0],
        "lower": [0.2, -0.5, math.nan, math.nan, -4.0],
        "upper": [0.8, 0.1, math.nan, math.nan, -2.0],
    }
)
TABLE = load_table("hair_eye_color")
CHANCE, HAPPENED = RNG.random(60), RNG.random(60) < 0.5

PLOTS = {
    "hypergraph": lambda ax: plots.plot_hypergraph(PAIRS, SIGNED, ax=ax, unit="nats", title="A title"),
    "many": lambda ax: plots.plot_hypergraph(MANY, ax=ax),
    "one": lambda ax: plots.plot_hypergraph(InteractionHypergraph.from_order(Domain.from_cardinalities([2]), 1), ax=ax),
    "none": lambda ax: plots.plot_hypergraph(InteractionHypergraph(Domain()), ax=ax),
    "pairs": lambda ax: plots.plot_pairs(plots.pair_matrix(PAIRS, SIGNED), ax=ax),
    "many pairs": lambda ax: plots.plot_pairs(plots.pair_matrix(MANY), ax=ax),
    "interactions": lambda ax: plots.plot_interactions(TERMS, ax=ax, label="coefficient (nats)"),
    "no interactions": lambda ax: plots.plot_interactions(TERMS[:0], ax=ax),
    "comparison": lambda ax: plots.plot_comparison([LONG, "b", "c"], [1.0, 3.0, math.nan], [0.5, 0.5, 1.0], ax=ax),
    "mosaic": lambda ax: plots.plot_mosaic(TABLE, ax=ax),
    "association": lambda ax: plots.plot_association(TABLE, ax=ax),
    "fitted": lambda ax: plots.plot_fitted([4, 9, 100], [5, 8, 70], ax=ax),
    "residuals": lambda ax: plots.plot_residuals([5, 8, 70], [0.1, -3, np.nan], ax=ax),
    "calibration": lambda ax: plots.plot_calibration(CHANCE, HAPPENED, ax=ax),
    "roc": lambda ax: plots.plot_roc(CHANCE, HAPPENED, ax=ax),
}


@pytest.mark.parametrize("name", PLOTS)
def test_a_plot_is_whole_and_legible_and_leaves_pyplot_alone(name, misplaced):
    before = plt.get_fignums()
    figure = Figure()
    axes = PLOTS[name](figure)
    assert figure.axes == [axes] and plt.get_fignums() == before
    assert misplaced(figure) == ([], [])
    texts = [text for text in figure.findobj(lambda a: hasattr(a, "get_fontsize")) if text.get_text().strip()]
    assert all("…" not in text.get_text() for text in texts)
    smallest = min((text.get_fontsize() for text in texts), default=9.0)
    assert smallest >= 8.0 and figure.get_size_inches()[0] < 10.5
    given = Figure(layout="constrained").subplots()
    assert PLOTS[name](given) is given and plt.get_fignums() == before


def test_control_labels_that_run_together_are_found(misplaced):
    figure = plots.figure_of(plots.plot_interactions, TERMS)
    figure.set_size_inches(6.0, 0.8)
    figure.set_layout_engine("none")
    assert all(misplaced(figure))


def test_without_axes_a_new_figure_of_pyplot_is_shown():
    before = set(plt.get_fignums())
    axes = plots.plot_roc(CHANCE, HAPPENED)
    (new,) = set(plt.get_fignums()) - before
    assert plt.gcf() is axes.figure and plt.figure(new) is axes.figure
    plt.close(axes.figure)
    with pytest.raises(InputTypeError, match="ax: expected matplotlib axes"):
        plots.plot_roc(CHANCE, HAPPENED, ax=1)


def test_positions_of_the_forest_are_those_of_the_table():
    axes = plots.plot_interactions(TERMS[1:], ax=Figure())
    held = TERMS[TERMS["term"].isin(["a:b", "f"])]
    drawn = [list(line.get_xdata()) for line in axes.lines if len(line.get_xdata()) == 2][1:]
    assert drawn == held[["lower", "upper"]].to_numpy().tolist()
    points = [float(line.get_xdata()[0]) for line in axes.lines if line.get_marker() == "o"]
    assert points == held["estimate"].tolist()
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["a:b  (x, y)", "c:d  (u, v)", "f"]
    words = [text.get_text() for text in axes.get_legend().get_texts()]
    assert words == ["above 0", "below 0", "interval with 0", "infinite"]
    strongest = plots.plot_interactions(TERMS, top=2, ax=Figure())
    assert [tick.get_text() for tick in strongest.get_yticklabels()] == ["c:d  (u, v)", "f"]
    with pytest.raises(UnknownNameError, match="table: unknown column 'lower'"):
        plots.plot_interactions(TERMS.drop(columns="lower"), ax=Figure())


def test_the_best_model_is_on_top_and_emphasised():
    for lower, best in ((False, "second"), (True, "first")):
        axes = plots.plot_comparison(["first", "second"], [1.0, 3.0], [0.5, 0.25], lower_is_better=lower, ax=Figure())
        top = axes.get_yticklabels()[0]
        assert (top.get_text(), top.get_fontweight()) == (best, "bold")
        assert axes.get_yticklabels()[1].get_fontweight() != "bold"
        (winner,) = [line for line in axes.lines if line.get_marker() == "D"]
        assert winner.get_xdata()[0] == (1.0 if lower else 3.0) and winner.get_ydata()[0] == max(axes.get_yticks())
    with pytest.raises(InputError, match="at least one model"):
        plots.plot_comparison([], [], ax=Figure())


def test_widths_and_colours_of_a_hypergraph_have_a_scale():
    weights = {("a", "price in $ or $"): 0.8, ("a", "neither satisfied nor dissatisfied"): -0.4}
    axes = plots.plot_hypergraph(PAIRS, weights, unit="nats", signs=("rise together", "avoid each other"), ax=Figure())
    legend = axes.get_legend()
    words = [text.get_text() for text in legend.get_texts()]
    assert words[:6] == ["pairs: 2", "0.8 nats", "0.4 nats", "0.16 nats", "rise together", "avoid each other"]
    widths = [line.get_linewidth() for line in legend.get_lines()[1:4]]
    arcs = sorted((patch.get_linewidth() for patch in axes.patches), reverse=True)
    assert widths[:2] == pytest.approx(arcs)  # the legend's lines of 0.8 and 0.4 are as wide as the arcs of 0.8 and 0.4
    assert {patch.get_edgecolor()[:3] for patch in axes.patches} == {
        tuple(int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)) for colour in ("#2a6f97", "#d1662f")
    }
    alike = plots.plot_hypergraph(PAIRS, dict.fromkeys(weights, 0.8), ax=Figure(), unit="nats")
    assert [text.get_text() for text in alike.get_legend().get_texts()][:3][1] == "0.8 nats"  # one width, one line


def test_signed_pairs_have_a_diverging_scale():
    axes = plots.plot_pairs(plots.pair_matrix(PAIRS, SIGNED), ax=Figure())
    (image,) = axes.images
    low, high = image.get_clim()
    assert low == -high and high == 2.0
    words = [text.get_text() for text in axes.get_legend().get_texts()]
    assert words[:2] == ["infinite", "minus infinite"]
    plain = plots.plot_pairs(plots.pair_matrix(PAIRS), ax=Figure())
    assert plain.images[0].get_clim() == (0.0, 1.0)  # control: without signs it begins at zero
    with pytest.raises(InputError, match=r"matrix: expected shape \(n, n\)"):
        plots.plot_pairs(pd.DataFrame(np.ones((2, 3))), ax=Figure())


@pytest.mark.parametrize("top", [1e3, 1e19, 1e27, 1e120])
def test_ticks_of_ratios_are_few_and_apart_however_far_they_reach(top):
    figure = Figure(figsize=(4.6, 3.0))
    axes = plot_forest(
        ["a", "b"], np.array([20.0, 0.1]), np.array([2.0, 1e-3]), np.array([top, 0.5]),
        ax=figure, reference=1.0, is_ratio=True,
    )  # fmt: skip
    figure.canvas.draw()
    ticks = np.array(axes.get_xticks())
    assert 3 <= len(ticks) <= 6 and np.isclose(ticks, 0.0).any()
    assert [float(text.get_text()) for text in axes.get_xticklabels()] == pytest.approx(np.exp(ticks).tolist())
    low, high = axes.get_xlim()
    assert np.diff(ticks).min() > 0.12 * (high - low)
