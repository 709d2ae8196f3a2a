"""The first screen of a page: at most five sentences with the numbers of ``odds_ratios()``, a picture, and limits."""

import math
import re
import warnings

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.text import Text

from pyro_hoim import Domain, NonexistentEstimateWarning, Observations, fit, learn, learn_network, load, load_table
from pyro_hoim.boltzmann import LearningOptions, fit_machine
from pyro_hoim.core.page import Block, Page, Section
from pyro_hoim.plots.drawing import BLUE, FAINT, ORANGE, SLATE, WIDTH, figure_of
from pyro_hoim.plots.intervals import plot_forest
from pyro_hoim.report import plain_text, render_page
from pyro_hoim.results.answer import CAUTION, Ratio, interaction_tests, odds_answer, ratio_text
from pyro_hoim.results.contrasts import pair_odds_ratios
from pyro_hoim.results.pictures import ResultStudy

UCB = load_table("ucb_admissions")
SMOKE = Domain.from_labels({"smoke": ["n", "y"], "ill": ["n", "y"]})
TRIPLE = "b and c go together differently by a: their odds ratio is"
TABLE = Observations.from_table(SMOKE, [[30, 10], [20, 40]])


def row(term, levels, value, lower=math.nan, upper=math.nan):
    return {"term": term, "levels": levels, "odds_ratio": value, "lower": lower, "upper": upper}


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (
            row("smoke:ill", "smoke=y vs n, ill=y vs n", 6.0, 2.45, 14.68),
            "The odds of ill = y (not n) are 6.00 times as high with smoke = y as with n (95 % CI 2.45 to 14.7).",
        ),
        (
            row("a:b", "a=x, or y vs z, b=1 vs 0", 0.052, 0.03, 0.085),
            "The odds of b = 1 (not 0) are 0.052 times as high with a = x, or y as with z (95 % CI 0.030 to 0.085).",
        ),
        (
            row("a:b", "a=1 vs 0, b=1 vs 0", math.inf, 4.88, math.inf),
            "The odds of b = 1 (not 0) are infinitely many times as high with a = 1 as with 0 (95 % CI from 4.88).",
        ),
        (
            row("a:b", "a=1 vs 0, b=1 vs 0", 0.0, 0.0, 0.2),
            "The odds of b = 1 (not 0) are zero times as high with a = 1 as with 0 (95 % CI up to 0.20).",
        ),
        (
            row("a:b:c", "a=1 vs 0, b=1 vs 0, c=1 vs 0", 2.0, 1.5, 3.0),
            f"{TRIPLE} 2.00 times as large with a = 1 as with 0 (95 % CI 1.50 to 3.00).",
        ),
        (row("a:b", "linear(a):linear(b)", 2.0), "a and b: odds ratio 2.00 for linear(a):linear(b)."),
        (row("a:b", "a=1 vs 0 vs x, b=1 vs 0", 2.0), "a and b: odds ratio 2.00 for a=1 vs 0 vs x, b=1 vs 0."),
        (
            row("a:b", "a=1 vs 0, b=1 vs 0", 126.4),
            "The odds of b = 1 (not 0) are 126 times as high with a = 1 as with 0.",
        ),
        (
            row("age:bmi", "age=>=9 vs <3, bmi=[22, 25) vs <22", 2.0),
            "The odds of bmi 22 to below 25 (not below 22) are 2.00 times as high with age 9 or more as with below 3.",
        ),
        (
            row("a:b", "a=<lod vs >=lod, b=1 vs 0", 2.0),
            "The odds of b = 1 (not 0) are 2.00 times as high with a = <lod as with >=lod.",
        ),
    ],
    ids=[
        "pair",
        "comma in a label",
        "infinite",
        "zero",
        "triple",
        "formula",
        "ambiguous",
        "no interval",
        "ranges",
        "words",
    ],
)
def test_an_odds_ratio_in_words(line, sentence):
    ratio = Ratio(tuple(line["term"].split(":")), line["levels"], line["odds_ratio"], line["lower"], line["upper"])
    assert ratio.sentence() == sentence


def test_sentences_have_the_numbers_of_the_result():
    result = fit("Admit*Dept + Gender*Dept + Admit*Gender", UCB)
    table = result.odds_ratios()
    answer = odds_answer(table, "4,526 rows")
    assert (
        answer.sentences[0]
        == "In 4,526 rows, 2 of the 3 interactions in the model are beyond chance (adjusted p at most 0.05)."
    )
    assert (
        answer.sentences[-1] == "These rows show no clear association of Admit with Gender."
        and len(answer.sentences) == 4
    )
    firsts = table.drop_duplicates("term")
    for sentence, (_, line) in zip(answer.sentences[1:], firsts.iterrows(), strict=False):
        if line["lower"] <= 1 <= line["upper"]:
            break
        numbers = [ratio_text(line[name]) for name in ("odds_ratio", "lower", "upper")]
        assert re.findall(r"are (\S+) times|CI (\S+) to (\S+)\)", sentence) == [
            (numbers[0], "", ""),
            ("", *numbers[1:]),
        ]
        levels = re.match(r"(\w+)=(.+) vs (.+), (\w+)=(.+) vs (.+)", line["levels"]).groups()
        assert all(word in sentence for word in levels)
    shown = [[cell.value for cell in cells[1:4]] for cells in answer.section.blocks[0].rows]
    np.testing.assert_allclose(shown, table[["odds_ratio", "lower", "upper"]].to_numpy())
    assert answer.limits == (CAUTION,)


def test_at_most_five_sentences_and_where_a_pair_is_modified():
    names = "abcdef"
    lines = [row(f"{a}:{b}", f"{a}=1 vs 0, {b}=1 vs 0", 3.0, 2.0, 4.0) for a in names for b in names if a < b]
    lines += [row("a:b:c", "a=1 vs 0, b=1 vs 0, c=1 vs 0", 2.0, 0.9, 3.0)]
    for most in (3, 5):
        assert len(odds_answer(pd.DataFrame(lines), "10 rows", most).sentences) == most
    first = odds_answer(pd.DataFrame(lines), "10 rows").sentences[1]
    assert "as with 0, where c = 0 (95 % CI" in first
    assert "where" not in odds_answer(pd.DataFrame(lines[:-1]), "10 rows").sentences[1]  # control


def test_what_cannot_be_estimated_is_not_called_absent():
    known = row("a:b", "a=1 vs 0, b=1 vs 0", 3.0, 2.0, 4.0)
    lost = [
        row("a:c", "a=1 vs 0, c=1 vs 0", math.nan),
        row("a:d", "a=1 vs 0, d=1 vs 0", math.inf, math.nan, math.inf),
        row("b:c:d", "b=1 vs 0, c=1 vs 0, d=1 vs 0", 0.0, 0.0, math.nan),
    ]
    answer = odds_answer(pd.DataFrame([known, *lost]), "10 rows")
    words = "a with c, a with d and b, c and d together"
    assert answer.sentences[-1] == f"The odds ratios of {words} cannot be estimated."
    assert "no clear association" not in " ".join(answer.sentences)
    unclear = row("c:d", "c=1 vs 0, d=1 vs 0", 1.1, 0.9, 1.3)
    answer = odds_answer(pd.DataFrame([known, *lost, unclear]), "10 rows")
    assert answer.sentences[-1] == "These rows show no clear association of c with d."  # control


def test_an_odds_ratio_that_cannot_be_estimated_hides_no_other_one():
    lines = [
        row("a:b", "a=1 vs 0, b=1 vs 0", math.inf, math.nan, math.inf),
        row("a:b", "a=2 vs 0, b=1 vs 0", 1.1, 0.9, 1.3),
        row("a:c", "a=1 vs 0, c=1 vs 0", math.nan),
        row("a:c", "a=2 vs 0, c=1 vs 0", math.nan),
    ]
    answer = odds_answer(pd.DataFrame(lines), "10 rows")
    assert answer.sentences[1:] == (
        "The odds ratios of a with c cannot be estimated.",
        "These rows show no clear association of a with b.",
    )
    # Of those that compare what is declared impossible it is not the rows that cannot tell.
    declared = pd.DataFrame(lines)
    declared.attrs["absent"] = [(line["term"], line["levels"]) for line in lines[2:]]
    told = "Odds ratios across declared impossible combinations do not exist, here all 2 of a with c; all others do."
    assert odds_answer(declared, "10 rows").sentences[1:] == (told, answer.sentences[-1])
    declared.attrs["absent"].pop()  # what is left of a with c the rows do not tell
    told = told.replace("all 2 of a with c", "1 of the 2 of a with c (a=1 vs 0, c=1 vs 0)")
    assert odds_answer(declared, "10 rows").sentences[1:3] == (told, answer.sentences[1])


def test_a_pair_of_a_real_triple_is_not_called_absent():
    pair = row("a:b", "a=1 vs 0, b=1 vs 0", 1.1, 0.9, 1.3)
    triple = row("a:b:c", "a=1 vs 0, b=1 vs 0, c=1 vs 0", 3.0, 2.0, 4.0)
    assert "no clear association" not in " ".join(odds_answer(pd.DataFrame([triple, pair]), "9 rows").sentences)
    alone = odds_answer(pd.DataFrame([triple | {"lower": 0.5}, pair]), "9 rows")
    assert "no clear association of a, b and c together or a with b" in " ".join(alone.sentences)  # control


def test_beyond_chance_counts_how_many_comparisons_were_made():
    generator = np.random.default_rng(0)
    noise = pd.DataFrame({f"c{k}": generator.choice(list("uvw"), 400) for k in range(8)})
    noise["c1"] = noise["c0"].where(generator.random(400) < 0.5, noise["c1"])
    table = fit(".^2", noise).odds_ratios()
    by_interval = table[(table["lower"] > 1) | (table["upper"] < 1)]["term"].nunique()
    answer = odds_answer(table, "400 rows")
    assert by_interval > 1  # control: of 28 pairs one is real
    assert answer.sentences[0].startswith("In 400 rows, 1 of the 28 interactions in the model is beyond chance")
    assert answer.sentences[-1].endswith("or 24 others.")


def test_a_label_of_the_picture_breaks_between_columns():
    ratio = Ratio(("item_000", "item_003"), "item_000=1 vs 0, item_003=1 vs 0", 38.5, 23.3, 63.4)
    assert ratio.label(40) == "item_000 1 / 0 and item_003 1 / 0"
    assert ratio.label(20) == "item_000 1 / 0\nitem_003 1 / 0"
    (axes,) = figure_of(plot_forest, [ratio.label(20)], *(np.array([x]) for x in (38.5, 23.3, 63.4))).axes
    assert axes.get_yticklabels()[0].get_text() == ratio.label(20)


def test_ratios_close_to_one_have_numbers_on_their_axis():
    centre, lower, upper = np.array([0.85, 0.9]), np.array([0.83, 0.88]), np.array([0.87, 0.93])
    (axes,) = figure_of(plot_forest, ["a", "b"], centre, lower, upper, reference=1.0, is_ratio=True).axes
    assert len(axes.get_xticklabels()) >= 3


def test_without_interactions_or_intervals():
    none = odds_answer(pd.DataFrame({"term": [], "levels": [], "odds_ratio": []}), "7 rows")
    assert none.sentences == ("In 7 rows, the model has no interaction.",) and none.picture is None
    assert none.limits == ("A model without interactions does not show that the columns are independent.",)
    bare = pd.DataFrame([row("a:b", "a=1 vs 0, b=1 vs 0", 3.0)]).drop(columns=["lower", "upper"])
    answer = odds_answer(bare, "7 rows")
    assert "CI" not in " ".join(answer.sentences) and answer.limits[0] == "The odds ratios have no intervals."


def test_odds_ratios_of_two_columns_are_woolfs():
    table = pair_odds_ratios(TABLE, [("ill", "smoke"), ("smoke", "ill")])
    width = 1.959963984540054 * math.sqrt(1 / 30 + 1 / 10 + 1 / 20 + 1 / 40)
    expected = [6.0, 6 * math.exp(-width), 6 * math.exp(width)]
    np.testing.assert_allclose(table[["odds_ratio", "lower", "upper"]].to_numpy(), [expected], rtol=1e-12)
    assert table["levels"].tolist() == ["smoke=y vs n, ill=y vs n"]
    fitted = fit("smoke*ill", TABLE).odds_ratios()  # the saturated model of two columns is the same
    np.testing.assert_allclose(fitted[["odds_ratio", "lower", "upper"]].to_numpy(), [expected], rtol=1e-6)
    weighted = TABLE.replaced(codes=TABLE.codes, counts=TABLE.counts * 0.5)
    assert pair_odds_ratios(weighted, [("smoke", "ill")])["odds_ratio"].tolist() == pytest.approx([6.0])


def test_without_odds_ratios_a_result_says_what_goes_together():
    bits = pd.DataFrame(np.random.default_rng(0).integers(0, 2, (300, 3)), columns=list("abc")).astype(str)
    bits["b"] = bits["a"].where(np.random.default_rng(1).random(300) < 0.8, bits["b"])
    machine = fit_machine(bits, 2, LearningOptions("exact", iterations=300, scale=0.5))
    shown = ResultStudy.of(machine).page()
    value = dict(zip(*[machine.summary()[name] for name in ("term", "estimate")], strict=True))["a:b"]
    assert shown.title == "Boltzmann machine of a, b and 1 more" and len(shown.summary) <= 5
    assert shown.summary[0] == "In 300 rows, 3 pairs and 1 larger set of the 3 columns are associated."
    assert shown.summary[1].startswith(f"Those whose second levels go together most are a with b (+{value:.4f})")
    assert shown.warnings[0] == "The strengths have no intervals."


def test_strengths_without_a_sign_are_slate_and_named_once():
    table = pd.DataFrame({"a": list("xxyy") * 40, "b": list("xxyy") * 40, "c": list("xyxy") * 40})
    axes = learn_network(table).plot_interactions(ax=Figure())
    (point,) = [line for line in axes.lines if line.get_marker() == "o"]
    assert to_hex(point.get_color()) == SLATE and axes.get_legend() is None
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a:b"]  # not b:a, too


def test_the_page_of_a_result_says_what_limits_it():
    titanic = load_table("titanic")
    with warnings.catch_warnings(action="ignore", category=NonexistentEstimateWarning):
        shown = ResultStudy.of(fit(".^2", titanic)).page()
    assert shown.warnings[0].startswith("No row has Class=Crew, Age=Child, so odds ratios there are infinite or 0")
    assert shown.warnings[1].startswith("The model misses something (G² = 116.59 on 10 degrees of freedom")
    assert shown.warnings[-1] == CAUTION
    assert ResultStudy.of(fit("smoke*ill", TABLE)).page().warnings == [CAUTION]  # control: saturated


def test_the_page_of_single_columns_speaks_of_no_odds_ratios():
    """The independence model of Titanic has none, and a level that no row has leaves none infinite."""
    titanic = load_table("titanic")
    empty = Observations(titanic.domain, titanic.codes, titanic.counts * (titanic.codes[:, 0] != 3))
    with warnings.catch_warnings(action="ignore", category=NonexistentEstimateWarning):
        shown = ResultStudy.of(fit(empty, order=1)).page()
    text = " ".join(shown.warnings)
    assert "No row has Class=Crew, so such rows have probability zero." in text
    assert "The model misses something (G² = " in text and "odds ratio" not in text


def test_counts_of_a_sparse_table_are_no_stripes():
    generator = np.random.default_rng(0)
    wide = pd.DataFrame({f"c{k}": generator.choice(list("uvwx"), 600, p=[0.6, 0.2, 0.15, 0.05]) for k in range(6)})
    result = fit(order=1, data=wide)
    axes = result.plot_fitted(ax=Figure())
    points = [line.get_xydata() for line in axes.lines if line.get_linestyle() == "None"]
    expected, observed = np.concatenate(points).T
    assert observed.sum() == pytest.approx(600) and expected.sum() == pytest.approx(600)  # every row is in one group
    assert len(np.unique(observed)) > 8 and expected.min() >= 1
    assert (np.abs(observed - expected) < 5 * np.sqrt(expected)).all()  # columns are independent


def test_a_model_of_single_columns_draws_no_circle():
    alone = ResultStudy.of(fit("smoke + ill", TABLE)).page()
    assert [section.title for section in alone.sections] == ["What the model consists of"]


def test_a_table_of_twelve_columns_has_intervals():
    generator = np.random.default_rng(0)
    wide = pd.DataFrame({f"c{k:02d}": generator.integers(0, 2 + (k < 7), 500) for k in range(12)}).astype(str)
    table = fit(".^2", wide).odds_ratios()  # 69,984 cells
    assert table[["lower", "upper"]].notna().to_numpy().all()
    by_pairs = fit(".^2", wide, objective="pseudo-likelihood").odds_ratios()
    logs = [np.log(of.set_index("levels")[["lower", "upper"]]).sort_index() for of in (table, by_pairs)]
    widths = [of["upper"] - of["lower"] for of in logs]
    assert float((widths[0] / widths[1]).sub(1).abs().max()) < 0.1  # of another estimator of the same effects


def page(**changes):
    answer = odds_answer(fit("smoke*ill", TABLE).odds_ratios(), "100 rows")
    folded = Section("For experts", is_folded=True)
    folded.text("Details.", brief=True)
    content = {"summary": answer.sentences, "warnings": answer.limits, "sections": [answer.section, folded]}
    content |= {"picture": answer.picture, "title": "Survey", "rows": {"train": 100.0}, "names": ["smoke", "ill"]}
    return Page(about=[], seed=0, **(content | changes))


def test_the_page_begins_with_sentences_picture_and_limits():
    html = render_page(page())
    first, rest = html.split('<section class="answer"')[1].split("</section>", 1)
    assert first.count("<img") == 1 and first.index("In short") < first.index("<img") < first.index("What limits this")
    assert "6.00 times as high with smoke = y" in first and CAUTION in first
    assert '<section id="odds-ratios">' in rest and rest.index("odds-ratios") < rest.index("<details")
    assert '<details class="card"><summary><h2>For experts</h2></summary>' in rest
    text = plain_text(page())
    assert text.splitlines()[:2] == list(page().summary) and "What limits this:" in text
    assert "Details." in html and "Details." not in text  # the terminal shows what is not folded


def test_more_than_three_limits_are_folded():
    html = render_page(page(warnings=[f"Limit {k}." for k in range(5)]))
    assert "<summary>2 more</summary>" in html and all(f"Limit {k}." in html for k in range(5))
    assert "What limits this" not in render_page(page(warnings=[]))


def effective(figure, screen=352):
    """Smallest type of a figure in pixels on a screen of a phone."""
    figure.draw_without_rendering()
    size = min(text.get_fontsize() for text in figure.findobj(Text) if text.get_text().strip() and text.get_visible())
    width = figure.get_size_inches()[0] * 96
    return size * 4 / 3 * min(1.0, screen / width)


def test_the_picture_is_legible_on_a_phone_and_as_wide_as_its_screen():
    block = odds_answer(fit("Admit*Dept + Gender*Dept + Admit*Gender", UCB).odds_ratios(), "rows").picture
    assert isinstance(block, Block)
    for figure in filter(None, (block.drawing, block.narrow)):
        assert figure.get_size_inches()[0] <= WIDTH and effective(figure) >= 9.9
    wide = figure_of(plot_forest, ["a"], np.array([1.0]), np.array([0.5]), np.array([2.0]))
    wide.set_size_inches(6.0, 1.0)
    assert effective(wide) < 9.9  # control


def test_blue_is_above_one_orange_below_and_grey_not_shown():
    centre, lower, upper = (
        np.array([2.0, 0.5, 1.1, np.inf]),
        np.array([1.5, 0.3, 0.8, 3.0]),
        np.array([3, 0.7, 1.5, np.inf]),
    )
    options = {"reference": 1.0, "is_ratio": True}
    (axes,) = figure_of(plot_forest, list("abcd"), centre, lower, upper, **options).axes
    points = [line for line in axes.lines if line.get_marker() == "o"]
    assert [to_hex(line.get_color()) for line in points] == [BLUE, ORANGE, FAINT]
    assert np.exp([line.get_xdata()[0] for line in points]) == pytest.approx(centre[:3])
    (arrow,) = [text.arrow_patch for text in axes.texts if text.arrow_patch is not None]
    assert to_hex(arrow.get_edgecolor()) == BLUE  # what is infinite is above one, too
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [
        "above 1",
        "below 1",
        "interval with 1",
        "infinite",
    ]
    ticks = {text.get_text(): x for text, x in zip(axes.get_xticklabels(), axes.get_xticks(), strict=True)}
    assert ticks["1"] == 0.0 and all(math.log(float(text)) == pytest.approx(x) for text, x in ticks.items())


def test_tests_of_all_levels_say_what_is_beyond_chance():
    rng = np.random.default_rng(3)
    frame = pd.DataFrame({name: rng.integers(0, 2, 3000) for name in ("smoke", "drink", "sex")})
    both = frame["smoke"] & frame["drink"]
    frame["ill"] = (rng.random(3000) < 0.1 + 0.3 * both).astype(int)  # at the reference of drink smoking does nothing
    result = fit("smoke*drink*ill + sex*ill", frame)
    tests = result.test_terms().set_index("term")["p_value_adjusted"]
    assert tests["smoke:drink:ill"] < 1e-4 and tests["sex:ill"] > 0.05
    answer = odds_answer(result.odds_ratios(), "3,000 rows", tests=result.test_terms(), target="ill")
    assert answer.sentences[0].startswith("In 3,000 rows, 4 of the 5 interactions in the model are beyond chance")
    assert answer.sentences[1].startswith("drink and ill go together differently by smoke")
    assert "These rows show no clear association of sex with ill." in answer.sentences
    # The control: where there is no triple, its pairs are judged by themselves.
    pairs = fit("smoke*drink + sex*ill", frame)
    none = odds_answer(pairs.odds_ratios(), "3,000 rows", tests=pairs.test_terms())
    assert none.sentences[0].startswith("In 3,000 rows, none of the 2 interactions")


@pytest.mark.parametrize(("target", "outcome", "other"), [("ill", "ill", "smoke"), ("smoke", "smoke", "ill")])
def test_the_odds_are_those_of_the_column_asked_about(target, outcome, other):
    table = fit("smoke*ill", TABLE).odds_ratios()
    sentence = odds_answer(table, "100 rows", target=target).sentences[1]
    assert sentence.startswith(f"The odds of {outcome} = y (not n) are 6.00 times as high with {other} = y as with n")


def test_noise_is_not_called_beyond_chance():
    noise = pd.DataFrame(np.random.default_rng(1).integers(0, 2, (500, 12)), columns=list("abcdefghijkl"))
    table = fit(".^2", noise).odds_ratios()
    first = odds_answer(table, "500 rows").sentences[0]
    assert first.startswith("In 500 rows, none of the 66 interactions in the model are beyond chance")
    assert ((table["lower"] > 1) | (table["upper"] < 1)).sum() >= 2  # the control: single intervals do exclude one
    # Pairs that a search chose count among all pairs.
    rows = Observations.from_pandas(noise)
    chosen = table["term"].head(3).map(lambda term: tuple(term.split(":"))).tolist()
    assert pair_odds_ratios(rows, chosen)["p_value_adjusted"].min() < 0.05
    searched = pair_odds_ratios(rows, chosen, is_searched=True)
    assert searched["p_value_adjusted"].min() > 0.05
    assert odds_answer(searched, "500 rows").limits[-1].startswith("The pairs were chosen in these rows")
    # The second control: what was planted remains.
    planted = noise.assign(m=np.where(np.random.default_rng(2).random(500) < 0.8, noise["a"], 1 - noise["a"]))
    found = pair_odds_ratios(Observations.from_pandas(planted), [*chosen, ("a", "m")], is_searched=True)
    assert found["term"][0] == "a:m" and found["p_value_adjusted"][0] < 1e-6


def test_without_tests_nothing_is_called_real():
    table = pd.DataFrame(
        [row("a:b", "a=1 vs 0, b=1 vs 0", 2.0, 1.5, 3.0), row("a:c", "a=1 vs 0, c=1 vs 0", 1.1, 0.8, 1.5)]
    )
    first, *others = odds_answer(table, "90 rows").sentences
    assert first == "In 90 rows, the model has 2 interactions. These are the strongest."
    assert not any(word in line for line in (first, *others) for word in ("beyond chance", "confirm"))
    confirmed = odds_answer(table, "90 rows", confirmed_at=0.1).sentences  # the control: tests chose them
    assert confirmed[0].startswith("In 90 rows, tests confirm 2 interactions (at most 10 % of")
    assert confirmed[-1] == "Also beyond chance, by their tests: a with c."


def test_the_page_of_a_learned_model_is_that_of_what_tests_confirm(tmp_path):
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(rng.integers(0, 2, (3000, 8)), columns=list("abcdefgh"))
    frame["b"] = np.where(rng.random(3000) < 0.7, frame["a"], 1 - frame["a"])
    learned = learn(frame, seed=1)
    assert learned.structure is not None and learned.hypergraph != learned.structure.hypergraph
    pages = [model.report(tmp_path / name).read_text() for name, model in (("l", learned), ("s", learned.structure))]
    answers = [re.findall(r"tests confirm \d+ interactions? \(at most 10 % of", page) for page in pages]
    assert answers[0] and answers[0] == answers[1]


@pytest.mark.filterwarnings("ignore")  # of the estimate, and of levels that look alike
def test_a_column_with_a_colon_in_its_name_has_tests_of_infinite_estimates(tmp_path):
    frame = pd.DataFrame({"a:b": list("xxyyz") * 40, "c": list("uvuvu") * 40, "d": list("pppqq") * 40})
    result = fit([["a:b", "c"], ["c", "d"]], frame)
    wald = result.test_terms(method="wald")
    assert wald["p_value"].isna().any() and interaction_tests(result, wald)["p_value"].notna().all()
    assert result.report(tmp_path).exists()


@pytest.mark.filterwarnings("ignore")  # of the estimate, and of levels that look alike
def test_a_rare_first_level_hides_nothing(tmp_path):
    rng = np.random.default_rng(4)
    frame = pd.DataFrame({"smoker": rng.choice(["no", "yes"], 2000), "sex": rng.choice(["f", "m"], 2000)})
    frame["ill"] = np.where(rng.random(2000) < np.where(frame["smoker"] == "yes", 0.5, 0.25), "y", "n")
    frame.loc[0, ["smoker", "ill"]] = "No", "y"  # one row: all odds ratios against it are infinite
    result = fit(".^2", frame)
    page = result.report(tmp_path).read_text()
    assert "1 of the 3 interactions in the model is beyond chance" in page
    assert "by a test of all levels: smoker with ill" in page
    wald = result.test_terms(method="wald").set_index("term")
    ratio = result.test_terms(method="likelihood-ratio", p_value="chi-square").set_index("term")
    merged = interaction_tests(result, wald.reset_index()).set_index("term")
    assert math.isnan(wald["p_value"]["smoker:ill"])
    assert merged["p_value"]["smoker:ill"] == ratio["p_value"]["smoker:ill"] < 1e-6
    assert merged["p_value"]["sex:ill"] == wald["p_value"]["sex:ill"]  # the control: known ones stay


@pytest.mark.parametrize("weights", [None, "w"])
def test_pages_of_rows_with_missing_cells_are_judged_by_their_odds_ratios(weights, tmp_path):
    rng = np.random.default_rng(4)
    frame = pd.DataFrame({"smoker": rng.choice(["no", "yes"], 2000), "sex": rng.choice(["f", "m"], 2000)})
    frame["ill"] = np.where(rng.random(2000) < np.where(frame["smoker"] == "yes", 0.5, 0.25), "y", "n")
    frame.loc[5:40, "sex"] = None
    frame = frame if weights is None else frame.assign(w=rng.uniform(0.5, 2, 2000))
    page = fit(".^2", frame, missing="marginalise", weights=weights).report(tmp_path).read_text()
    assert "1 of the 3 interactions in the model is beyond chance" in page
    (unclear,) = re.findall(r"These rows show no clear association of ([^<.]*)", page)
    assert set(unclear.split(" or ")) == {"smoker with sex", "sex with ill"}


def noise_of_many_comparisons():
    """Columns a and b of four levels are independent; the best of their nine odds ratios looks real, by chance."""
    rng = np.random.default_rng(68)
    a, b = rng.integers(0, 4, 600), rng.integers(0, 4, 600)
    c = (rng.random(600) < np.where(a > 1, 0.75, 0.25)).astype(int)
    return pd.DataFrame({"a": a, "b": b, "c": c}).astype(str)


def test_the_page_of_a_loaded_model_claims_what_that_of_its_fit_does(tmp_path):
    """Both rest on the test of all levels, by which noise stays noise; its best odds ratio alone would pass."""
    result = fit("a*b + a*c", noise_of_many_comparisons())
    ratios, tests = result.odds_ratios(), result.test_terms(method="wald").set_index("term")["p_value_adjusted"]
    assert ratios.loc[ratios["term"] == "a:b", "p_value_adjusted"].min() < 0.05 < tests["a:b"]  # else no control
    result.save(tmp_path / "model.safetensors")
    claims = []
    for name, of in (("fit", result), ("file", load(tmp_path / "model.safetensors"))):
        of.report(tmp_path / name)
        text = re.sub("<[^>]+>", "", (tmp_path / name / "report.html").read_text(encoding="utf-8"))
        claims.append("1 of the 2 interactions in the model is beyond chance" in text)
    assert claims == [True, True]


def test_without_a_test_of_all_levels_the_best_of_several_ratios_has_to_pass_for_all():
    """Bonferroni's inequality, for rows with missing cells, whose interactions have no test."""
    lines = [row("a:b", f"a={k} vs 0, b=1 vs 0", 1.5, 1.1, 2.1) | {"p_value_adjusted": 0.03} for k in (1, 2)]
    lines += [row("a:c", "a=1 vs 0, c=1 vs 0", 2.0, 1.1, 3.0) | {"p_value_adjusted": 0.03}]
    said = odds_answer(pd.DataFrame(lines), "9 rows").sentences
    assert said[0].startswith("In 9 rows, 1 of the 2 interactions in the model is beyond chance")
    assert any("no clear association of a with b" in sentence for sentence in said)
