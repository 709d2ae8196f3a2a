"""Report of a generalized root model: pictures from known numbers, the page and the text from an analysis."""

import math
from dataclasses import replace
from functools import lru_cache, partial

import numpy as np
import pytest

from pyro_hoim.cli.output import written
from pyro_hoim.core import Scores
from pyro_hoim.core.words import options_written
from pyro_hoim.data import CountTable
from pyro_hoim.errors import InputError
from pyro_hoim.generalized_root import (
    GaussianFamily,
    PathStep,
    PoissonFamily,
    RootTerm,
    analyse_roots,
    fit_root_path,
    penalty_path_figure,
    root_network_figure,
    root_scores_figure,
)
from pyro_hoim.report import plain_text, render_page


def html(found):
    return render_page(found.page())


def plain(found):
    return plain_text(found.page())


def strongest_pair(found):
    return max(found.fit.terms((2, 2)), key=lambda term: term.coefficient)


NAMES = ["flow", "heat", "<b>wing</b>", "$x$", "never"]


@lru_cache
def analysis():
    generator = np.random.default_rng(5)
    rate = generator.gamma(0.7, 1.5, size=(200, 1))
    rows = generator.poisson(rate * np.array([1.0, 0.8, 0.6]))
    apart = generator.poisson(1.5 / (1 + rows[:, :1]))
    table = CountTable.from_matrix(np.hstack([rows, apart, np.zeros((200, 1))]), NAMES)
    parts = dict(zip(("train", "validation", "test"), table.split((0.6, 0.2, 0.2), 0), strict=True))
    return analyse_roots(parts, PoissonFamily(), l1=[0.05, 0.01], title="made_words", about=["Made up."])


# Pictures


def test_network_of_strongest_tuples():
    terms = [
        RootTerm((2, 2), ("a", "b"), 2.0),
        RootTerm((2, 2), ("c", "d"), -1.0),
        RootTerm((3, 3), ("a", "b", "c"), 0.5),
        RootTerm((2, 2), ("e", "f"), 0.25),
    ]
    figure = root_network_figure(terms, max_variables=4)
    assert sorted(text.get_text() for text in figure.axes[0].texts) == ["a", "b", "c", "d"]
    legend = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert legend[0] == "pairs: 2"
    assert "sets of 3: 1, up to 0.5" in legend
    assert {"rise together", "avoid each other"} <= set(legend)
    alike = root_network_figure([term for term in terms if term.coefficient > 0])
    words = [text.get_text() for text in alike.axes[0].get_legend().get_texts()]
    assert "rise together" in words and "avoid each other" not in words
    assert "pairs: heaviest 1 of 3" in [
        text.get_text() for text in root_network_figure(terms, max_pairs=1).axes[0].get_legend().get_texts()
    ]
    with pytest.raises(InputError, match="two or more"):
        root_network_figure([RootTerm((1, 1), ("a",), 2.0)])


def _scores(pseudo_nll, error):
    return Scores(rows=5, pseudo_nll=pseudo_nll, pseudo_nll_std_error=error)


def test_bars_are_as_long_as_the_scores():
    scores = {"test": {"one": _scores(3.0, 0.1), "two": _scores(math.inf, math.inf)}}
    figure = root_scores_figure(scores)
    assert [bar.get_width() for bar in figure.axes[0].patches] == [3.0]
    assert [text.get_text().strip() for text in figure.axes[0].texts] == ["infinite"]
    with pytest.raises(InputError, match="finite"):
        root_scores_figure({"test": {"two": scores["test"]["two"]}})


def test_path_of_penalties():
    steps = [PathStep(0.1, 3, 5.0, 5.5, 1e-7), PathStep(0.01, 9, 4.0, 5.0, 1e-7)]
    figure = penalty_path_figure(steps, 0.01)
    left, right = figure.axes
    assert [line.get_label() for line in left.lines] == ["training", "validation", "kept"]
    assert left.lines[1].get_ydata().tolist() == [5.0, 5.5]
    assert right.lines[0].get_ydata().tolist() == [9, 3]
    with pytest.raises(InputError, match="at least two"):
        penalty_path_figure(steps[:1], 0.1)


# The page


def test_page_holds_what_the_analysis_found():
    found = analysis()
    page = html(found)
    assert page.count("data:image/svg+xml;base64,") == page.count("<img") > 0
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "<b>wing</b>" not in page
    assert "&lt;b&gt;wing&lt;/b&gt;" in page
    assert "Made up." in page
    parts = found.page().sections
    titles = [part.title for part in parts]
    assert titles[:2] == ["How well it predicts rows", "What varies together"]
    assert "Pairs" in titles
    assert titles[-2:] == ["The penalty", "How it was estimated"]
    strongest = strongest_pair(found)
    cells = next(b for p in parts if p.title == "Pairs" for b in p.blocks if b.kind == "table").rows
    shown = (" + ".join(strongest.names), f"{strongest.coefficient:+.4f}", f"{strongest.coefficient / 2:+.4f}")
    assert tuple(cell.shown for cell in cells[0]) == shown and cells[0][1].value == strongest.coefficient
    singles = next(b for p in parts if p.title == "Single columns" for b in p.blocks if b.kind == "table").rows
    values = sorted((term.coefficient for term in found.fit.terms((1, 1))), reverse=True)
    assert [row[1].value for row in singles] == values
    assert all(f">{value:+.4f}<".replace("-", "−") in page for value in values)
    chosen = next(b for p in parts if p.title == "The penalty" for b in p.blocks if b.kind == "table")
    assert chosen.rows[chosen.chosen][0].value == found.l1


def test_sentences():
    found = analysis()
    summary = " ".join(found.page().summary)
    assert "120 rows of 5 columns" in summary
    assert f"{found.parts['test'].scores.pseudo_nll:.4f}" in summary
    assert "new rows will gain less" not in summary
    test = found.parts["test"]
    assert test is not None and found.page().summary[0] == (
        f"On the test rows the model gains {test.gain:.3f} nats per row in log pseudo-likelihood (every cell given all "
        f"others) over independent columns (standard error {test.gain_std_error:.3f})."
    )
    assert any("never" in sentence and "minus infinity" in sentence for sentence in found.page().warnings)
    only = replace(found, parts={"train": found.parts["train"], "validation": None, "test": None})
    assert "new rows will gain less" in " ".join(only.page().summary)
    test = found.parts["test"]
    bad = replace(test, scores=replace(test.scores, impossible_rows=2, pseudo_nll=math.inf))
    broken = replace(found, parts={**found.parts, "test": bad}, no_log_partition="the model cannot be normalised: x")
    warnings = " ".join(broken.page().warnings)
    assert "2 rows of test" in warnings
    assert "cannot be normalised" in warnings
    assert "∞" in html(broken)


def test_text():
    found = analysis()
    text = plain(found)
    assert "independent negative binomial" in text
    strongest = strongest_pair(found)
    assert f"{' + '.join(strongest.names)}" in text
    assert f"{strongest.coefficient:+.4f}" in text


def test_roots_of_single_columns_are_listed():
    rows = np.random.default_rng(0).negative_binomial(0.5, 0.3, size=(80, 2))
    found = analyse_roots(
        {"train": CountTable.from_matrix(rows, ["a", "b"])},
        PoissonFamily(),
        order=2,
        learn=partial(fit_root_path, full=True, refit="all"),
    )
    part = next(p for p in found.page().sections if p.title == "Single columns")
    assert part.blocks[0].columns == ("column", "coefficient", "of its square root")
    values = {term.names[0]: term.coefficient for term in found.fit.terms((2, 1))}
    for name, _, shown in part.blocks[0].rows:
        assert shown.value == values[name.shown]


def test_independent_columns_have_a_report():
    table = CountTable.from_matrix([[0, 1], [2, 0], [1, 1]], ["a", "b"])
    found = analyse_roots({"train": table}, PoissonFamily(), order=1)
    assert "no interactions" in found.page().summary[1]
    assert "columns are independent" in html(found)
    assert "\ntest " not in plain(found)


def test_penalties_of_independent_columns_are_not_compared():
    table = CountTable.from_matrix([[0, 1], [2, 0], [1, 1]], ["a", "b"])
    found = analyse_roots({"train": table, "validation": table}, PoissonFamily(), order=1, l1=[0.1, 0.01])
    assert found.l1 is None
    assert "The penalty" not in [part.title for part in found.page().sections]


def test_a_model_worse_than_independent_columns_is_told():
    found = analysis()
    test = found.parts["test"]
    assert test.gain > 0
    assert not any("worse than independent" in sentence for sentence in found.page().warnings)
    bad = replace(test, scores=replace(test.scores, pseudo_nll=test.independent.pseudo_nll + 0.25))
    told = [s for s in replace(found, parts={**found.parts, "test": bad}).page().warnings if "worse than" in s]
    assert len(told) == 1
    assert "On the test rows" in told[0]
    assert "0.2500 nats a row" in told[0]
    assert "does not hold on these" in told[0]
    parts = {**found.parts, "test": bad}
    (told,) = [s for s in replace(found, parts=parts, fit=found.fit.joined()).page().warnings if "worse than" in s]
    assert "refit='all' mends that" in told


@pytest.mark.usefixtures("words_alone")
def test_a_refit_is_told():
    found = analysis()
    refit = found.fit.refit
    page = html(found)
    assert "all coefficients were fitted again, together under 50 % of the penalties" in page
    assert f"{refit.joined_pseudo_nll:.4f} before, {refit.pseudo_nll:.4f} after" in page
    assert "it was fitted together with all others" in page
    joined = html(replace(found, fit=found.fit.joined()))
    assert "were fitted again" not in joined
    assert "it is the mean over the columns" in joined
    short = replace(found.fit, refit=replace(refit, status="shortened", way=0.25))
    assert any("25 % of the way" in sentence for sentence in replace(found, fit=short).page().warnings)


def test_a_pair_is_named_once():
    """Under full models a pair may have roots with coefficients of both signs."""
    rows = np.random.default_rng(1).poisson(np.random.default_rng(2).gamma(0.5, 2.0, (200, 1)) * np.ones(3))
    table = CountTable.from_matrix(rows, ["a", "b", "c"])
    found = analyse_roots(
        {"train": table}, PoissonFamily(), l1=0.002, learn=partial(fit_root_path, full=True, refit="all")
    )
    signs = {}
    for term in found.fit.terms():
        if term.key[1] == 2:
            signs.setdefault(term.names, set()).add(term.coefficient > 0)
    assert any(len(both) == 2 for both in signs.values())
    sentences = [s for s in found.page().summary if s.startswith("The pairs that")]
    named = [pair for s in sentences for pair in s.partition(": ")[2].rstrip(".").split("; ")]
    assert sorted(named) == sorted(set(named))


def test_means_of_gaussian_columns_are_told():
    rows = np.random.default_rng(0).normal(3.0, 1.0, (50, 2))
    table = CountTable.from_matrix(rows, ["a", "b"], kind="real")
    for full in (False, True):
        found = analyse_roots(
            {"train": table}, GaussianFamily(), order=2, learn=partial(fit_root_path, full=full, refit="all")
        )
        assert any("mean zero" in sentence for sentence in found.page().warnings) is not full


@lru_cache
def counts_of_one_spread(size):
    """Independent counts: negative binomial of this size, close to Poisson where it is large."""
    rows = np.random.default_rng(8).negative_binomial(size, size / (size + 2.0), size=(300, 3))
    return CountTable.from_matrix(rows, ["a", "b", "c"])


def test_counts_more_spread_than_poisson_ones_are_told():
    def words(size, full):
        parts = {"train": counts_of_one_spread(size)}
        found = analyse_roots(
            parts, PoissonFamily(), order=2, l1=0.05, learn=partial(fit_root_path, full=full, refit="all")
        )
        return " ".join(found.page().summary)

    assert "full=True adds roots of single columns" in words(0.5, full=False)
    assert "full=True" not in words(0.5, full=True)
    assert "full=True" not in words(1000.0, full=False)  # control: nearly Poisson


@pytest.mark.usefixtures("words_alone")
def test_advice_is_in_the_words_of_the_caller():
    found = analyse_roots({"train": counts_of_one_spread(0.5)}, PoissonFamily(), order=2, l1=0.05)
    with options_written(written):
        page = plain(found) + html(found)
    assert "--full adds roots" in page and "full=True" not in page
    assert "--full" not in plain(found)
