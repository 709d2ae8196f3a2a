"""What a person reads of a result: notes in full, whose models are nested, signs in pictures, gains, and one repr."""

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

import pyro_hoim as hoim
from pyro_hoim.boltzmann import fit_machine
from pyro_hoim.core.operations import signed_strengths, strengths
from pyro_hoim.plots.drawing import BLUE, ORANGE
from pyro_hoim.results.table import SummaryTable, html_of


@pytest.fixture(scope="module")
def frame():
    """Rows in which a and b rise together, b and c avoid each other."""
    generator = np.random.default_rng(4)
    a = generator.integers(0, 2, 600)
    b = np.where(generator.random(600) < 0.8, a, 1 - a)
    c = np.where(generator.random(600) < 0.8, 1 - b, b)
    return pd.DataFrame({"a": a, "b": b, "c": c})


def test_notes_of_rows_stand_below_a_table_in_full():
    long = "small expected counts: the smallest is 0.02, below the limit of 1 for degrees of freedom such as these"
    table = SummaryTable({"term": ["a:b", "b:c", "c:d"], "p_value": [0.1, 0.2, 0.3], "note": [long, "", long]})
    assert repr(table).endswith(f"\n(a:b, c:d: {long})") and html_of(table).count(long) == 1
    assert "note" not in repr(table).splitlines()[0] and "note" in table
    assert f"(all: {long})" in repr(table.assign(note=long))
    assert repr(table.assign(note="")).count("\n") == 3


def test_models_that_are_not_nested_are_told_by_what_they_hold(frame):
    table = hoim.fit("a*b + c", frame).compare(hoim.fit("a*c + b*c", frame))
    assert "model 2 is not tested against model 1: the models are not nested: a:b is in model 1 alone" in repr(table)


def test_pictures_show_the_signs_of_pairs_of_two_levels(frame):
    result = hoim.fit("a*b + b*c", frame)
    found, signs = strengths(result)
    odds = {("a", "b"): 1, ("b", "c"): -1}
    for (one, two), sign in odds.items():
        table = pd.crosstab(frame[one], frame[two]).to_numpy()
        assert np.sign(table[0, 0] * table[1, 1] - table[0, 1] * table[1, 0]) == sign == np.sign(found[one, two])
    axes = result.plot_hypergraph(Figure())
    assert {to_hex(patch.get_edgecolor()) for patch in axes.patches} == {BLUE, ORANGE}
    texts = [text.get_text() for legend in [*axes.figure.legends, axes.get_legend()] if legend for text in legend.texts]
    assert signs is not None and set(signs) <= set(texts)
    more = hoim.fit("a*b + b*c", frame.assign(c=frame["c"] + (frame.index % 3 == 0)))
    assert strengths(more)[1] is None and all(value >= 0 for value in strengths(more)[0].values())


def test_signs_follow_the_cell_of_a_coefficient():
    """The same interaction of three by any of its eight entries."""
    domain = hoim.Domain.from_cardinalities({"a": 2, "b": 2, "c": 2})
    table = torch.tensor([[[-1.0, 1.0], [1.0, -1.0]], [[1.0, -1.0], [-1.0, 1.0]]]).flatten().tolist()
    for position, value in enumerate(table):
        row = {"edge": ["a", "b", "c"], "value": 1.0, "coefficient": value, "position": position}
        assert signed_strengths(domain, [row])[0] == {("a", "b", "c"): 1.0}


def test_a_learned_network_knows_its_gain_over_independent_columns(frame):
    learned = hoim.learn_network(frame, alpha=1.0)
    found = learned.score(frame)
    columns = sum(
        float(np.log((frame[name].map(frame[name].value_counts()) + 0.5) / (len(frame) + 1)).mean()) for name in frame
    )
    assert found["gain"] == pytest.approx(-columns - found["pseudo_nll"], abs=1e-9) and found["gain"] > 0.1
    assert hoim.learn_network(frame[["a"]]).score(frame)["gain"] == pytest.approx(0, abs=1e-12)


def test_results_of_all_families_begin_alike(frame):
    machine = fit_machine(frame, 1)
    roots = hoim.fit_roots(pd.DataFrame(np.random.default_rng(1).poisson(3, (40, 3)), columns=list("xyz")))
    for result, family in ((hoim.learn_network(frame), "dependency network"), (machine, "machine"), (roots, "root")):
        first, second = repr(result).split("\n")
        assert first.startswith(f"{type(result).__name__}: ") and family in first and "3 variables" in first
        assert "row" in second


def test_words_are_not_shortened_for_lines_that_do_not_get_fewer():
    level = "Independent-Democrat vs Strong Democrat"
    table = SummaryTable({"response": ["party"], "levels": [level], "column": ["education"], "effect": ["odds ratio"]})
    numbers = {name: [1234.5678] for name in ("estimate", "std_error", "lower", "upper", "unpenalised", "other")}
    wide = table.assign(**numbers)
    assert level in repr(wide) and max(map(len, repr(wide).splitlines())) <= 110
    # One line that holds all is worth shortening, and what may be hidden goes first.
    narrow = table.assign(**dict(list(numbers.items())[:4]))
    assert level not in repr(narrow) and len(repr(narrow).splitlines()) == 2
    narrow.attrs["hidden"] = ["lower"]
    assert level in repr(narrow) and "not printed: lower" in repr(narrow)
