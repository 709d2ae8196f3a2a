"""The page and the text of a learned model say what the analysis holds."""

import base64
import re
import time
from dataclasses import replace
from xml.etree import ElementTree as ET

import numpy as np
import pytest
import torch

from pyro_hoim import Domain, InteractionHypergraph, Observations
from pyro_hoim.core import Verdict
from pyro_hoim.core.words import plural
from pyro_hoim.information import RemovalValue
from pyro_hoim.log_linear import AnnealedImportance, SampledTraining, fit_collection, learn
from pyro_hoim.report import plain_text, render_page, write_page
from pyro_hoim.study import analyse_learned


def coins(number, seed):
    """Four coins; the second follows the first, the fourth is mostly the exclusive or of the first and third."""
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 2, (number, 4))
    x[:, 1] = np.where(rng.random(number) < 0.9, x[:, 0], 1 - x[:, 0])
    x[:, 3] = np.where(rng.random(number) < 0.9, x[:, 0] ^ x[:, 2], 1 - (x[:, 0] ^ x[:, 2]))
    domain = Domain.from_labels({name: ["no", "yes"] for name in ("rain", "wet", "wind", "storm & <hail>")})
    return Observations.from_tensor(torch.from_numpy(x), domain)


@pytest.fixture(scope="module")
def analysis():
    train, validation, test = (coins(n, s) for n, s in ((400, 0), (200, 1), (400, 2)))
    learned = learn(train, validation)
    parts = {"train": train, "validation": validation, "test": test}
    return analyse_learned(learned, parts, target="wet", title="weather", about=["Read from the sky."], seed=3)


@pytest.fixture(scope="module")
def sampled():
    train = coins(300, 0)
    graph = InteractionHypergraph.from_order(train.domain, 2)
    sampling = SampledTraining(num_chains=500, num_iterations=100, refresh_every=None)
    learned = fit_collection(train, graph, trainer="sampled", sampling=sampling)
    return analyse_learned(learned, {"train": train, "validation": None, "test": None}, title="weather")


def test_page_holds_pictures_numbers_and_names(analysis):
    page = render_page(analysis.page())
    assert "What was learned from weather" in page and "Read from the sky." in page
    assert "rain:wet" in page and "storm &amp; &lt;hail&gt;" in page and "<hail>" not in page
    assert "http" not in re.sub(r'src="data:[^"]*"', "", page)
    pictures = re.findall(r'src="data:image/svg\+xml;base64,([^"]+)"', page)
    assert len(pictures) == 3  # capacity curve, hypergraph, pair matrix
    for picture in pictures:
        svg = ET.fromstring(base64.b64decode(picture))
        assert float(svg.attrib["height"].removesuffix("pt")) > 60 and len(list(svg.iter())) > 50
    test = analysis.parts["test"]
    for value in (test.scores.nll, test.scores.kl, test.gain, test.scores.pseudo_nll):
        assert f"{value:.4f}" in page


@pytest.mark.usefixtures("words_alone")
def test_times_of_all_stages_are_shown_and_add_up(analysis):
    seconds = {"earlier_sessions": 100.0, "search": 20.0, "training": 3.0, "tests": 0.5}
    model = replace(analysis.model, seconds=seconds)
    page = render_page(replace(analysis, learned=replace(analysis.learned, structure=model)).page())
    assert "Time: earlier sessions 100.0 s, search 20.0 s, training 3.0 s, tests 0.5 s; together 123.5 s." in page
    covered = 0.0
    for _ in range(3):  # a machine with other work may pause between two stages, hardly three times
        begin = time.perf_counter()
        found = learn(coins(400, 0), coins(200, 1))
        elapsed = time.perf_counter() - begin
        assert found.structure is not None and found.structure.seconds == found.seconds
        assert {"search", "training", "tests", "log_z"} <= set(found.seconds)
        assert sum(found.seconds.values()) <= elapsed
        covered = max(covered, sum(found.seconds.values()) / elapsed)
    assert covered > 0.7


@pytest.mark.usefixtures("words_alone")
def test_parts_in_reading_order(analysis, sampled):
    titles = [part.title for part in analysis.page().sections]
    first = ["Odds ratios", "All interactions at a glance", "Which interactions the rows confirm"]
    lacking = "What limits the fit: missing interactions or too few rows?"
    assert titles == [*first, lacking, "The search", "How it was estimated", "How well it predicts rows"]
    folded = [part.title for part in analysis.page().sections if part.is_folded]
    assert folded == titles[2:-1]
    assert "The search" not in [part.title for part in sampled.page().sections]


@pytest.mark.usefixtures("words_alone")
def test_summary_judges_on_rows_the_model_has_not_seen(analysis, sampled):
    test, train = analysis.parts["test"], sampled.parts["train"]
    page = analysis.page()
    words = " ".join(page.summary)
    assert (
        f"On the test rows the model gains {test.gain:.3f} nats per row over independent columns "
        f"(standard error {test.gain_std_error:.3f})."
    ) in plain_text(page)
    assert "KL" not in words and "says nothing about fit" not in plain_text(page)
    other = plain_text(sampled.page())
    assert f"On the train rows the model gains {train.gain:.3f}" in other and "new rows will gain less" in other
    assert not any("estimate of log Z" in sentence for sentence in page.warnings)
    assert any("estimate of log Z" in sentence for sentence in sampled.page().warnings)


@pytest.mark.usefixtures("words_alone")
def test_estimates_are_shown_with_their_sandwich(sampled):
    page = render_page(sampled.page())
    log_z = sampled.learned.log_partition
    for value in (log_z.value, log_z.sandwich.forward, log_z.sandwich.reverse):
        assert f"{float(value):.4f} ±" in page
    assert "The estimate is consistent: every check that could be made agrees" in page


@pytest.mark.usefixtures("words_alone")
def test_numbers_say_what_they_rest_on(analysis, sampled):
    exact, page = render_page(analysis.page()), render_page(sampled.page())
    values = [line["removal"].value for line in analysis.interactions]
    many = sum(value >= 0.01 for value in values)
    assert f"{many} of {plural(len(values), 'interaction')} matter: without any one of these the model loses" in exact
    assert "upper bound" not in exact and "which their standard errors over rows leave out" not in exact
    # Bounds show which interactions are worth little, never that one is worth much.
    removal = RemovalValue(("rain", "wet"), (("rain", "wet"),), 0.5, "estimated upper bound", 0.01)
    lines = tuple({**line, "removal": replace(removal, value=0.5 * k)} for k, line in enumerate(sampled.interactions))
    bounded = render_page(replace(sampled, interactions=lines).page())
    assert f"1 of the {len(lines)} interactions matter less than 0.01 nats a row, by an" in bounded
    lines = tuple({**line, "removal": removal} for line in sampled.interactions)
    none = render_page(replace(sampled, interactions=lines).page())
    assert f"None of the {len(lines)} interactions could be shown to matter less than 0.01 nats a row." in none
    assert "or more" not in bounded and "which their standard errors over rows leave out" in bounded
    assert f"one-sided limits, {AnnealedImportance.level:.0%} each" in page


def page_of_tests(analysis, **changes):
    """The page where every test of the structure has these figures."""
    model = analysis.model
    tests = tuple(replace(test, **changes) for test in model.confirmation.tests)
    changed = replace(model, confirmation=replace(model.confirmation, tests=tests))
    return render_page(replace(analysis, learned=replace(analysis.learned, structure=changed)).page())


@pytest.mark.usefixtures("words_alone")
def test_a_small_p_value_is_not_zero(analysis):
    assert "&lt; 1e-16" in page_of_tests(analysis, z=40.0, p_value=0.0)
    assert "&lt; 1e-16" not in page_of_tests(analysis, z=40.0, p_value=0.04)


@pytest.mark.usefixtures("words_alone")
def test_what_replaces_an_interaction_is_named(analysis):
    gone = {"is_kept": False, "is_confirmed": True}
    assert "replaced by rain:wet" in page_of_tests(analysis, **gone, replaced_by=(("rain", "wet"),))
    assert "replaced by others" in page_of_tests(analysis, **gone)  # of older files
    assert "not confirmed" in page_of_tests(analysis, is_kept=False, is_confirmed=False)


@pytest.mark.usefixtures("words_alone")
def test_text_has_the_table_of_scores(analysis):
    text = plain_text(analysis.page())
    test = analysis.parts["test"]
    lines = [re.split(r"  +", entry) for entry in text.splitlines() if entry.startswith("test ")]
    assert len(lines) == 4  # three laws, and below them the accuracy
    for line, (law, scores) in zip(lines, {**test.baselines, "model": test.scores}.items(), strict=False):
        gain = f"{round(test.gain_of(scores), 4) + 0.0:.4f}"
        gain = f"{test.gain:.4f} +- {test.gain_std_error:.1g}" if law == "model" else gain
        figures = [f"{value:.4f}" for value in (scores.nll, scores.pseudo_nll, scores.kl)]
        assert line[1:] == [law, "400", gain, *figures]
    assert (
        re.search(rf"test +{test.accuracy['accuracy']:.4f}", text)
        and "The prediction of wet is better than always" in text
    )


@pytest.mark.usefixtures("words_alone")
def test_kl_of_distinct_rows_is_said_to_say_nothing(analysis):
    rows = coins(400, 2)
    codes = torch.unique(rows.codes, dim=0)
    parts = {"train": coins(400, 0), "validation": None, "test": Observations.from_tensor(codes, rows.domain)}
    found = analyse_learned(analysis.learned, parts)
    sentence = "All rows of test are distinct: KL is then NLL - log(rows) and says nothing about fit."
    page = found.page()
    text_of_parts, page_of_parts = plain_text(page), render_page(page)
    assert sentence in text_of_parts and sentence in page_of_parts
    test = found.parts["test"]
    assert test.scores.kl == pytest.approx(test.scores.nll - np.log(len(codes)), abs=1e-12)
    # Where no part has rows that are alike, KL is left out, and the figure of the search shows the NLL.
    alone = analyse_learned(analysis.learned, {**parts, "train": None})
    sentence = "All rows are distinct: KL, which then is NLL - log(rows) and says nothing about fit, is left out."
    page = alone.page()
    text, page = plain_text(page), render_page(page)
    assert sentence in text and sentence in page and "Mean loss of training" in page
    for words in (text, re.sub('base64,[^"]*', "", page)):
        assert "KL" not in words.replace(sentence, "")
    for law in test.baselines.values():
        assert f"{law.kl:.4f}" in text_of_parts and f"{law.kl:.4f}" in page_of_parts
    assert "Divergence from training" in page_of_parts


@pytest.mark.usefixtures("words_alone")
def test_warnings_only_where_there_is_something_to_warn_of(analysis):
    tested, *caution = analysis.page().warnings
    kept = sum(test.is_kept for test in analysis.model.confirmation.tests)
    assert f"tested on the training and validation rows, {kept} are kept" in tested
    assert caution and all("not causes" in sentence for sentence in caution)
    learned = replace(analysis.learned, structure=None)
    unreliable = {"kind": "unbiased", "verdicts": torch.tensor(Verdict.UNRELIABLE), "notes": ("few chains",)}
    for words, changed in (
        ("only the test rows show", {"refit": True}),
        ("diverged", {"training": replace(learned.training, status="diverged")}),
        ("few chains", {"log_partition": replace(learned.log_partition, **unreliable)}),
    ):
        assert words in replace(analysis, learned=replace(learned, **changed)).page().warnings[0]


def test_model_without_interactions(tmp_path):
    domain = Domain.from_labels({"a": ["x"], "b": ["y"]})
    rows = Observations.from_tensor(torch.zeros(5, 2, dtype=torch.long), domain)
    found = analyse_learned(learn(rows, rows), {"train": rows, "validation": rows, "test": None}, title="nothing")
    found.save(tmp_path)
    write_page(found.page(), tmp_path)
    assert (tmp_path / "model.safetensors").exists()
    assert "no interaction" in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "no interaction" in plain_text(found.page())
