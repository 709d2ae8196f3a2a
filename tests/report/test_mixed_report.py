"""Pages of root models of several kinds of columns: columns and levels in place of variables, and what was observed."""

from functools import lru_cache

import numpy as np
import pandas as pd
import pytest

from pyro_hoim.generalized_root import analyse_roots, choose_families, fit_roots
from pyro_hoim.generalized_root.mixed_table import table_of
from pyro_hoim.generalized_root.study.mixed_page import FittedColumn, fitted_figure, limits
from pyro_hoim.report import plain_text


def made_frame(num=500):
    """A category, a 0/1 column, a count, and a positive and a real number, of which some go together."""
    rng = np.random.default_rng(21)
    region = rng.integers(0, 3, num)
    age = 45 + 8 * (region == 1) + rng.normal(0, 10, num)
    smoker = rng.random(num) < 1 / (1 + np.exp(-0.08 * (age - 45)))
    return pd.DataFrame(
        {
            "region": np.array(["north", "south", "west"])[region],
            "age": age.round(1),
            "smoker": np.where(smoker, "yes", "no"),
            "visits": rng.poisson(np.exp(0.3 + 0.8 * smoker)),
            "cost": rng.exponential(20, num).round(2) + 0.01,
        }
    )


@lru_cache
def analysis():
    frame = made_frame()
    columns = choose_families(frame, {"visits": "count"})
    rows = table_of(columns, frame, "made").split((0.7, 0.0, 0.3), 1)
    parts = dict(zip(("train", "validation", "test"), rows, strict=True))
    return analyse_roots(parts, columns, order=2, l1=0.05, title="made")


def section(page, title):
    return next(part for part in page.sections if part.title == title)


def test_the_page_speaks_of_columns_and_levels():
    page = analysis().page()
    assert page.names == ("region", "age", "smoker", "visits", "cost")
    text = plain_text(page)
    assert "smoker and visits rise together" in text
    table = next(block for block in section(page, "What varies together").blocks if block.kind == "table")
    shown = {row[0].shown: row[1].shown for row in table.rows}
    assert shown["region + age"] == "differ by level" and "region=south + age" not in shown
    headings = [block.text for block in section(page, "What varies together").blocks if block.kind == "heading"]
    assert "region and age, by level of region" in headings
    # A line for every column, with its kind and the reason.
    columns = next(block for block in section(page, "The columns").blocks if block.kind == "table")
    assert [row[0].shown for row in columns.rows] == list(page.names)
    assert columns.rows[0][1].shown == "category of 3 levels" and columns.rows[3][3].shown == "it was said to be one"
    assert any("exponential given the other columns" in words for words in page.warnings)
    assert section(page, "In words").blocks[0].text.endswith(".")


def test_figures_of_fit_json(tmp_path):
    found = analysis().to_json(tmp_path)
    assert found["num_variables"] == 5 and found["num_states"] is None
    assert [column["name"] for column in found["columns"]] == ["region", "age", "smoker", "visits", "cost"]
    assert found["baselines"].keys() == {"independent", "negative-binomial"}


def test_observed_shares_are_those_of_the_rows():
    found = {column.name: column for column in analysis().fitted}
    rows = made_frame()
    assert {name: column.kind for name, column in found.items()} == {
        "region": "labels",
        "age": "numbers",
        "smoker": "labels",
        "visits": "counts",
        "cost": "numbers",
    }
    visits = found["visits"]
    assert visits.observed.sum() == pytest.approx(1) and visits.expected.sum() == pytest.approx(1, abs=0.05)
    # Fitted shares of a count whose law the model has, within four standard errors; not so those of another one.
    error = 4 * np.sqrt(visits.expected * (1 - visits.expected) / 150) + 0.02
    assert (np.abs(visits.observed - visits.expected) < error).all()
    assert not (np.abs(np.roll(visits.observed, 2) - visits.expected) < error).all()
    smoker = found["smoker"]
    assert set(smoker.level) == {"yes"} and np.corrcoef(smoker.at, smoker.observed)[0, 1] > 0.8
    assert 0.3 < rows["smoker"].eq("yes").mean() < 0.8


def test_a_panel_for_every_column():
    figure = fitted_figure(analysis().fitted)
    shown = [axes for axes in figure.axes if axes.get_visible()]
    assert [axes.get_title() for axes in shown] == ["region", "age", "smoker", "visits", "cost"]
    assert shown[2].get_xlabel() == "fitted share of yes" and shown[0].get_legend() is not None
    bars = [patch.get_height() for patch in shown[3].patches]
    visits = next(column for column in analysis().fitted if column.name == "visits")
    assert bars == pytest.approx(visits.observed.tolist())
    alone = fitted_figure([FittedColumn("x", "numbers", np.arange(3.0), np.ones(2) / 2, np.ones(2) / 2)], across=1)
    assert len(alone.axes) == 1


def test_the_origin_of_real_numbers_is_a_limit_beside_roots_alone():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"ill": rng.integers(0, 2, 120), "weight": rng.normal(70.0, 9.0, 120)})
    words = "measured from a rounded mean"
    assert not any(words in sentence for sentence in limits(fit_roots(frame, order=2)))
    counts = frame.assign(visits=rng.poisson(3.0, 120))
    assert any(words in sentence for sentence in limits(fit_roots(counts, {"visits": "count"}, order=2)))
