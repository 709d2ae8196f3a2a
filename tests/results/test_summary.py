"""Tables of coefficients against statsmodels, closed forms and limits, and how they are printed."""

import math
import re

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
import statsmodels.formula.api as smf
import torch
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

import pyro_hoim as hoim
from pyro_hoim import CountTable, Domain, InteractionHypergraph, Observations, fit, fit_roots, learn_network, load_table
from pyro_hoim.boltzmann import LearningOptions, fit_machine
from pyro_hoim.core.operations import signed_strengths, strengths
from pyro_hoim.data.counts import digest
from pyro_hoim.errors import InputError, UnknownNameError
from pyro_hoim.families import load
from pyro_hoim.log_linear import L1, L2
from pyro_hoim.plots.drawing import BLUE, ORANGE
from pyro_hoim.results import SummaryTable
from pyro_hoim.results.table import html_of

PAIR = Domain.from_cardinalities({"a": 2, "b": 2})


def saturated(counts):
    return fit(InteractionHypergraph.saturated(PAIR), Observations.from_table(PAIR, counts))


def test_coefficients_errors_and_tests_are_those_of_a_poisson_regression():
    data = load_table("hair_eye_color")
    graph = InteractionHypergraph.from_order(data.domain, 2)
    table = fit(graph, data).summary(level=0.9)
    cells = data.to_pandas()
    names = data.domain.names
    terms = " + ".join(f"C({a}):C({b})" for i, a in enumerate(names) for b in names[i + 1 :])
    formula = f"count ~ {' + '.join(f'C({name})' for name in names)} + {terms}"
    full = pd.DataFrame(
        [[*labels, 0.0] for labels in pd.MultiIndex.from_product([v.labels for v in data.domain])],
        columns=[*names, "count"],
    )
    counted = cells.groupby(list(names), observed=True)["count"].sum()
    full["count"] = [float(counted.get(tuple(row), 0.0)) for row in full[list(names)].to_numpy()]
    for variable in data.domain:
        full[variable.name] = pd.Categorical(full[variable.name], categories=list(variable.labels))
    oracle = smf.glm(formula, full, family=sm.families.Poisson()).fit(tol=1e-12)
    limits = oracle.conf_int(alpha=0.1)
    for row in table.to_dict("records"):
        pieces = zip(row["term"].split(":"), row["levels"].split(", "), strict=True)
        name = ":".join(f"C({n})[T.{label}]" for n, label in pieces)
        assert row["estimate"] == pytest.approx(oracle.params[name], abs=1e-7)
        assert row["std_error"] == pytest.approx(oracle.bse[name], rel=1e-6)
        assert row["z"] == pytest.approx(oracle.tvalues[name], abs=1e-6)
        assert row["p_value"] == pytest.approx(oracle.pvalues[name], abs=1e-8)
        assert [row["lower"], row["upper"]] == pytest.approx(limits.loc[name].tolist(), abs=1e-6)
        if ":" in row["term"]:
            expected = np.exp([oracle.params[name], *limits.loc[name]])
            assert [row[c] for c in ("odds_ratio", "or_lower", "or_upper")] == pytest.approx(expected, rel=1e-6)
    assert len(table) == graph.num_parameters == len(oracle.params) - 1
    # Control: the other interval is another one.
    assert abs(fit(graph, data).summary()["lower"].iloc[-1] - table["lower"].iloc[-1]) > 1e-3


def test_the_log_odds_ratio_of_a_two_by_two_table_has_the_error_of_woolf():
    counts = np.array([[30.0, 10.0], [20.0, 40.0]])
    row = saturated(counts).summary().iloc[0]
    assert row["estimate"] == pytest.approx(math.log(30 * 40 / (10 * 20)), rel=1e-9)
    assert row["std_error"] == pytest.approx(math.sqrt((1 / counts).sum()), rel=1e-9)
    assert row["odds_ratio"] == pytest.approx(6.0, rel=1e-9)
    for coding in ("balanced", "free"):  # the odds ratio does not depend on the coding
        other = saturated(counts).summary(coding=coding)
        assert len(other) == 3 and other["odds_ratio"].iloc[0] == pytest.approx(6.0, rel=1e-9)
        assert other["z"].iloc[0] == pytest.approx(row["z"], rel=1e-9)
        assert abs(other["estimate"].iloc[0] - row["estimate"]) > 0.1  # control


@pytest.mark.filterwarnings("ignore::pyro_hoim.NonexistentEstimateWarning")
@pytest.mark.parametrize(
    ("counts", "signs"),
    [
        ([[30, 10], [20, 0]], [-math.inf, -0.405, -1.099]),  # -inf: the pair alone meets the empty cell
        ([[30, 0], [20, 40]], [math.inf, -0.405, -math.inf]),
        ([[0, 10], [20, 40]], [-math.inf, math.inf, math.inf]),
        ([[30, 10], [0, 0]], [math.nan, -math.inf, -1.099]),  # nothing tells the odds ratio of an empty row
    ],
)
def test_what_the_rows_send_to_infinity_has_its_sign_where_it_is_certain(counts, signs):
    table = saturated(counts).summary()
    np.testing.assert_allclose(table["estimate"], signs, atol=1e-3)
    gone = ~np.isfinite(np.array(signs))
    assert table.loc[gone, ["lower", "upper", "z", "p_value"]].isna().to_numpy().all()
    ratio = saturated(counts).odds_ratios().iloc[0]  # of which one end is finite
    names = {"odds_ratio": "odds_ratio", "or_lower": "lower", "or_upper": "upper"}
    np.testing.assert_array_equal(
        table.reindex(columns=[*names]).iloc[0].to_numpy(dtype=float), ratio[[*names.values()]].to_numpy(dtype=float)
    )
    text = str(table)
    assert ("not identified" in text) == bool(np.isnan(signs).any())
    assert f"{gone.sum()} coefficient" in text and "a prior makes them finite" in text


def test_tables_of_penalised_fits_and_of_loaded_models(tmp_path):
    data = load_table("rochdale")
    graph = InteractionHypergraph.from_order(data.domain, 1)
    ridge, lasso = (fit(graph, data, penalty=penalty(2.0)) for penalty in (L2, L1))
    assert "drawn towards zero by L2" in str(ridge.summary()) and "std_error" in ridge.summary()
    assert "normal approximation of the posterior at its mode" in str(ridge.summary())
    assert "p_value" not in ridge.summary() and "Wald" not in str(ridge.summary())
    assert "p_value" in fit(graph, data).summary()
    assert "std_error" not in lasso.summary() and "no standard errors: " in str(lasso.summary())
    from pyro_hoim import load

    ridge.save(tmp_path / "m.safetensors")
    loaded = load(tmp_path / "m.safetensors").summary()
    pd.testing.assert_frame_equal(loaded, ridge.summary(), check_exact=True)


def test_a_printed_table_fits_a_terminal_and_a_notebook():
    names = {f"a rather long name of a question number {i}": 3 for i in range(5)}
    domain = Domain.from_cardinalities(names)
    rows = Observations.from_tensor(torch.randint(3, (400, 5), generator=torch.Generator().manual_seed(0)), domain)
    table = fit(InteractionHypergraph.from_order(domain, 2), rows).summary()
    lines = str(table).split("\n")
    assert max(map(len, lines)) <= 110 and len(table) == 50 and len(lines) == 54
    assert lines[-1] == "(columns that are not printed: lower, upper, z)" and "lower" in table._repr_html_()
    assert isinstance(table, SummaryTable) and isinstance(table.head(), SummaryTable)
    page = table._repr_html_()
    assert page.count("<tr>") == 21 and "... 30 more" in page and "overflow-x:auto" in page
    assert "a rather long name of a question number 0:a rather" in page  # a notebook shows all of it


def test_interactions_come_before_single_columns_and_the_strongest_first():
    data = load_table("czech_autoworkers")
    result = fit(InteractionHypergraph.from_order(data.domain, 3), data)
    table, ratios = result.summary(), result.odds_ratios()
    is_joint = table["term"].str.contains(":")
    assert is_joint.sum() == len(ratios) == 35 and is_joint.iloc[:35].all()
    assert table["term"].iloc[:35].tolist() == ratios["term"].tolist()
    assert table["term"].iloc[35:].tolist() == list(data.domain.names)
    for ours, theirs in (("odds_ratio", "odds_ratio"), ("or_lower", "lower"), ("or_upper", "upper")):
        np.testing.assert_allclose(table[ours].iloc[:35], ratios[theirs], rtol=1e-12)
    np.testing.assert_allclose(table["p_value"].iloc[:35], ratios["p_value"], rtol=1e-12)


def test_levels_and_options_are_checked():
    result = saturated([[30, 10], [20, 40]])
    with pytest.raises(InputError, match="level"):
        result.summary(level=1.5)
    with pytest.raises(UnknownNameError, match="coding"):
        result.summary(codin="corner")
    with pytest.raises(InputError, match="corner"):
        result.summary(coding="corners")


def test_the_page_of_a_result_tells_the_sha256_of_the_rows_it_keeps(tmp_path):
    data = load_table("hair_eye_color")
    result = fit(InteractionHypergraph.from_order(data.domain, 1), data)
    assert digest(data) in result.report(tmp_path / "a").read_text(encoding="utf-8")
    result.save(tmp_path / "m")  # control: the file of a model keeps no rows
    assert digest(data) not in load(tmp_path / "m").report(tmp_path / "b").read_text(encoding="utf-8")


# What a person reads of a result: notes in full, whose models are nested, signs in pictures, gains, and one repr.


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
    machine = fit_machine(frame, 1, LearningOptions("pcd", iterations=20))
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


# Interactions stand before single columns, the strongest first, and a list that is cut says how many are left out.


def of_labels():
    return fit("smoke*mental*phys + systol*protein + family", load_table("czech_autoworkers"))


def of_a_network():
    return learn_network(load_table("czech_autoworkers"))


def of_a_machine():
    return fit_machine(load_table("czech_autoworkers"), 1, LearningOptions("exact", iterations=300, decay=0.01))


def of_roots():
    random = np.random.default_rng(5)
    kind = random.random(240) < 0.5
    counts = {name: random.poisson(np.where(kind, 3.0, 1.0)) for name in ("x", "y", "z")}
    return fit_roots(CountTable.from_pandas(pd.DataFrame(counts)), "poisson", order=3, l1=0.001)


@pytest.mark.parametrize("make", [of_labels, of_a_network, of_a_machine, of_roots])
def test_top_counts_interactions_and_not_their_entries_nor_single_columns(make):
    result = make()
    everything, names = result.interactions(), {frozenset(t.split(":")) for t in result.interactions()["term"]}
    joint = [name for name in names if len(name) > 1]
    for top in (1, 2, len(joint), len(joint) + 3):
        table = result.interactions(top=top)
        shown = [frozenset(term.split(":")) for term in table["term"]]
        assert len(set(shown)) == min(top, len(joint)) and all(len(edge) > 1 for edge in shown)
        assert isinstance(table, SummaryTable)
        left_out = len(joint) - len(set(shown))
        said = re.search(r"\.\.\. (\d+) more interactions?", str(table))
        assert (int(said[1]) if said else 0) == left_out
        # All entries of these, in the order of the whole table.
        kept = everything[[frozenset(t.split(":")) in set(shown) for t in everything["term"]]]
        assert kept["term"].tolist() == table["term"].tolist()


def test_single_columns_come_last_and_are_there_without_a_limit():
    orders = of_labels().interactions()["order"].tolist()
    first = orders.index(1)
    assert min(orders[:first]) >= 2 and set(orders[first:]) == {1} and orders.count(1) == 6
    values = of_labels().interactions()["value"]
    assert values[:first].is_monotonic_decreasing and values[first:].is_monotonic_decreasing
