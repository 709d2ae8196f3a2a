"""Report of a generalized root model: pictures from known numbers, the page and the text from an analysis."""

import math
from dataclasses import replace
from functools import lru_cache, partial

import numpy as np
import pytest

from pyro_hoim import CountTable, InputError
from pyro_hoim.cli.output import written
from pyro_hoim.core import Scores
from pyro_hoim.core.words import options_written
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

from support.figures import made_figures

pytestmark = pytest.mark.usefixtures("words_alone")  # pictures are drawn where the files of a fit are read


def strongest_pair(found):
    return max(found.fit.terms((2, 2)), key=lambda term: term.coefficient)


def joint(table, family=None, full=False, **options):
    """The analysis of training rows whose coefficients were all fitted again."""
    learn = partial(fit_root_path, full=full, refit="all")
    return analyse_roots({"train": table}, family or PoissonFamily(), learn=learn, **options)


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


def with_test(found, **changes):
    """The analysis with other scores of the test rows."""
    test = found.parts["test"]
    return replace(found, parts={**found.parts, "test": replace(test, scores=replace(test.scores, **changes))})


# Pictures


def legend_of(figure):
    return [text.get_text() for text in figure.axes[0].get_legend().get_texts()]


@made_figures()
def test_network_of_strongest_tuples():
    terms = [
        RootTerm((2, 2), ("a", "b"), 2.0),
        RootTerm((2, 2), ("c", "d"), -1.0),
        RootTerm((3, 3), ("a", "b", "c"), 0.5),
        RootTerm((2, 2), ("e", "f"), 0.25),
    ]
    figure = root_network_figure(terms, max_variables=4)
    assert sorted(text.get_text() for text in figure.axes[0].texts) == ["a", "b", "c", "d"]
    legend = legend_of(figure)
    assert legend[0] == "pairs: 2"
    assert {"sets of 3: 1, up to 0.5", "rise together", "avoid each other"} <= set(legend)
    alike = legend_of(root_network_figure([term for term in terms if term.coefficient > 0]))
    assert "rise together" in alike and "avoid each other" not in alike
    assert "pairs: strongest 1 of 3" in legend_of(root_network_figure(terms, max_pairs=1))
    with pytest.raises(InputError, match="two or more"):
        root_network_figure([RootTerm((1, 1), ("a",), 2.0)])


def _scores(pseudo_nll, error):
    return Scores(rows=5, pseudo_nll=pseudo_nll, pseudo_nll_std_error=error)


@made_figures()
def test_bars_are_as_long_as_the_scores():
    scores = {"test": {"one": _scores(3.0, 0.1), "two": _scores(math.inf, math.inf)}}
    figure = root_scores_figure(scores)
    assert [bar.get_width() for bar in figure.axes[0].patches] == [3.0]
    assert [text.get_text().strip() for text in figure.axes[0].texts] == ["infinite"]
    with pytest.raises(InputError, match="finite"):
        root_scores_figure({"test": {"two": scores["test"]["two"]}})


@made_figures()
def test_path_of_penalties():
    steps = [PathStep(0.1, 3, 5.0, 5.5, 1e-7), PathStep(0.01, 9, 4.0, 5.0, 1e-7)]
    figure = penalty_path_figure(steps, 0.01)
    left, right = figure.axes
    assert [line.get_label() for line in left.lines] == ["training", "held out", "kept"]
    assert left.lines[1].get_ydata().tolist() == [5.0, 5.5]
    assert right.lines[0].get_ydata().tolist() == [9, 3]
    with pytest.raises(InputError, match="at least two"):
        penalty_path_figure(steps[:1], 0.1)


# The page


def test_page_holds_what_the_analysis_found():
    found = analysis()
    made = found.page()
    page = render_page(made)
    assert page.count("data:image/svg+xml;base64,") == page.count("<img") + page.count("<source") > 0
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "<b>wing</b>" not in page and "&lt;b&gt;wing&lt;/b&gt;" in page and "Made up." in page
    titles = [part.title for part in made.sections]
    assert titles[:2] == ["All interactions at a glance", "Pairs"] and made.picture is not None
    assert titles[-3:] == ["The penalty", "How it was estimated", "How well it predicts rows"]
    tables = {p.title: b for p in reversed(made.sections) for b in reversed(p.blocks) if b.kind == "table"}
    strongest, cells = strongest_pair(found), tables["Pairs"].rows
    shown = (" + ".join(strongest.names), f"{strongest.coefficient:+.4f}", f"{strongest.coefficient / 2:+.4f}")
    assert tuple(cell.shown for cell in cells[0]) == shown and cells[0][1].value == strongest.coefficient
    values = sorted((term.coefficient for term in found.fit.terms((1, 1))), reverse=True)
    assert [row[1].value for row in tables["Single columns"].rows] == values
    assert all(f">{value:+.4f}<".replace("-", "−") in page for value in values)
    chosen = tables["The penalty"]
    assert chosen.rows[chosen.chosen][0].value == found.l1


def test_sentences():
    found = analysis()
    page, test = found.page(), found.parts["test"]
    summary = " ".join(page.summary)
    assert "In 120 rows, " in summary and f"{test.scores.pseudo_nll:.4f}" in plain_text(page)
    assert "new rows will gain less" not in plain_text(page)
    assert (
        f"On the test rows the model gains {test.gain:.3f} nats per row in log pseudo-likelihood (every cell given all "
        f"others) over independent columns (standard error {test.gain_std_error:.3f})."
    ) in plain_text(page)
    assert any("never" in sentence and "minus infinity" in sentence for sentence in page.warnings)
    only = replace(found, parts={"train": found.parts["train"], "validation": None, "test": None})
    assert "new rows will gain less" in plain_text(only.page())
    broken = with_test(found, impossible_rows=2, pseudo_nll=math.inf)
    broken = replace(broken, no_log_partition="the model cannot be normalised: x").page()
    warnings = " ".join(broken.warnings)
    assert "2 rows of test" in warnings and "cannot be normalised" in warnings and "∞" in render_page(broken)


def test_text():
    text, strongest = plain_text(analysis().page()), strongest_pair(analysis())
    for words in ("independent negative binomial", " + ".join(strongest.names), f"{strongest.coefficient:+.4f}"):
        assert words in text


def test_roots_of_single_columns_are_listed():
    rows = np.random.default_rng(0).negative_binomial(0.5, 0.3, size=(80, 2))
    found = joint(CountTable.from_matrix(rows, ["a", "b"]), full=True, order=2)
    part = next(p for p in found.page().sections if p.title == "Single columns")
    assert part.blocks[0].columns == ("column", "coefficient", "of its square root")
    values = {term.names[0]: term.coefficient for term in found.fit.terms((2, 1))}
    for name, _, shown in part.blocks[0].rows:
        assert shown.value == values[name.shown]


def test_independent_columns_have_a_report():
    table = CountTable.from_matrix([[0, 1], [2, 0], [1, 1]], ["a", "b"])
    page = analyse_roots({"train": table}, PoissonFamily(), order=1).page()
    assert "no set of the 2 columns varies together" in page.summary[0] and page.picture is None
    assert "\ntest " not in plain_text(page)
    # Their penalties are not compared.
    found = analyse_roots({"train": table, "validation": table}, PoissonFamily(), order=1, l1=[0.1, 0.01])
    assert found.l1 is None
    assert "The penalty" not in [part.title for part in found.page().sections]


def test_a_model_worse_than_independent_columns_is_told():
    found = analysis()
    test = found.parts["test"]
    assert test.gain > 0
    assert not any("worse than independent" in sentence for sentence in found.page().warnings)
    bad = with_test(found, pseudo_nll=test.independent.pseudo_nll + 0.25)
    (told,) = [s for s in bad.page().warnings if "worse than" in s]
    assert all(words in told for words in ("On the test rows", "0.2500 nats a row", "does not hold on these"))
    (told,) = [s for s in replace(bad, fit=found.fit.joined()).page().warnings if "worse than" in s]
    assert "refit='all' mends that" in told


def test_a_refit_is_told():
    found = analysis()
    refit = found.fit.refit
    page = render_page(found.page())
    for words in (
        "all coefficients were fitted again, together under 50 % of the penalties",
        f"{refit.joined_pseudo_nll:.4f} before, {refit.pseudo_nll:.4f} after",
        "it was fitted together with all others",
    ):
        assert words in page
    joined = render_page(replace(found, fit=found.fit.joined()).page())
    assert "were fitted again" not in joined and "it is the mean over the columns" in joined
    short = replace(found.fit, refit=replace(refit, status="shortened", way=0.25))
    assert any("25 % of the way" in sentence for sentence in replace(found, fit=short).page().warnings)


def test_a_pair_is_named_once():
    """Under full models a pair may have roots with coefficients of both signs."""
    rows = np.random.default_rng(1).poisson(np.random.default_rng(2).gamma(0.5, 2.0, (200, 1)) * np.ones(3))
    found = joint(CountTable.from_matrix(rows, ["a", "b", "c"]), full=True, l1=0.002)
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
        found = joint(table, GaussianFamily(), full, order=2)
        assert any("mean zero" in sentence for sentence in found.page().warnings) is not full


@lru_cache
def counts_of_one_spread(size):
    """Independent counts: negative binomial of this size, close to Poisson where it is large."""
    rows = np.random.default_rng(8).negative_binomial(size, size / (size + 2.0), size=(300, 3))
    return CountTable.from_matrix(rows, ["a", "b", "c"])


def test_counts_more_spread_than_poisson_ones_are_told():
    def words(size, full):
        return " ".join(joint(counts_of_one_spread(size), full=full, order=2, l1=0.05).page().warnings)

    assert "full=True adds terms" in words(0.5, full=False)
    assert "full=True" not in words(0.5, full=True)
    assert "full=True" not in words(1000.0, full=False)  # control: nearly Poisson


def test_advice_is_in_the_words_of_the_caller():
    found = analyse_roots({"train": counts_of_one_spread(0.5)}, PoissonFamily(), order=2, l1=0.05)
    with options_written(written):
        page = plain_text(found.page()) + render_page(found.page())
    assert "--full adds terms" in page and "full=True" not in page
    assert "--full" not in plain_text(found.page())
