"""Fits of data frames against fits of hypergraphs and observations, and what is said of wrong arguments."""

import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
import statsmodels.api as sm
import torch

import pyro_hoim as hoim
from pyro_hoim import InputError, InteractionHypergraph, Observations, load_table, log_linear
from pyro_hoim.data.frames import as_observations
from pyro_hoim.errors import DataWarning, InputTypeError, MissingDataError, NonexistentEstimateWarning, UnknownNameError
from pyro_hoim.log_linear import L2, Prior
from pyro_hoim.testing import raises

NAMES = ("smoke", "mental", "phys", "systol")


@pytest.fixture(scope="module")
def frame():
    """Rows of the autoworkers, shuffled, with an identifier and columns in another order."""
    cells = load_table("czech_autoworkers").project(NAMES).to_pandas()
    rows = cells.loc[cells.index.repeat(cells["count"])].drop(columns="count")
    rows = rows.sample(frac=1.0, random_state=1).astype(str).reset_index(drop=True)
    return rows.assign(id=[f"p{i}" for i in range(len(rows))])[["systol", "id", "mental", "smoke", "phys"]]


def _same(found, graph, data, **options):
    expected = log_linear.fit(graph, data, **options)
    assert found.hypergraph == graph and found.num_rows == expected.num_rows
    assert found.log_likelihood == pytest.approx(expected.log_likelihood, rel=1e-12)
    torch.testing.assert_close(found.theta, expected.theta, rtol=0, atol=1e-9)


def _graph(frame, names, formula):
    data = Observations.from_pandas(frame[list(names)])
    return InteractionHypergraph.from_formula(data.domain, formula, closure=True), data


@pytest.mark.parametrize(
    ("call", "names", "formula"),
    [
        (lambda f: hoim.fit("smoke*mental + phys", f), ("mental", "smoke", "phys"), "smoke*mental + phys"),
        (lambda f: hoim.fit("smoke:mental", f), ("mental", "smoke"), "smoke*mental"),
        (lambda f: hoim.fit("~ .^2 - id - smoke:phys", f), ("systol", "mental", "smoke", "phys"), ".^2 - smoke:phys"),
        (lambda f: hoim.fit(f.drop(columns="id"), order=2), ("systol", "mental", "smoke", "phys"), ".^2"),
        (lambda f: hoim.fit(2, f.drop(columns="id")), ("systol", "mental", "smoke", "phys"), ".^2"),
        (lambda f: hoim.fit(f, edges=["smoke:mental", ("phys",)]), ("mental", "smoke", "phys"), "smoke*mental + phys"),
        (lambda f: hoim.fit([("smoke", "mental")], f), ("mental", "smoke"), "smoke*mental"),
        (lambda f: hoim.fit("smoke*mental", pl.from_pandas(f)), ("mental", "smoke"), "smoke*mental"),
    ],
)
def test_fits_of_frames_are_those_of_their_observations(frame, call, names, formula):
    _same(call(frame), *_graph(frame, names, formula))


def test_a_hypergraph_reads_its_own_columns(frame):
    graph, data = _graph(frame, ("phys", "smoke"), "phys*smoke")
    _same(hoim.fit(graph, frame), graph, data)
    _same(hoim.fit(graph, data), graph, data)
    margins = data.marginal_counts(graph.edges)
    assert hoim.fit(graph, margins).log_likelihood == pytest.approx(hoim.fit(graph, data).log_likelihood, rel=1e-9)
    _same(hoim.fit("phys*smoke", load_table("czech_autoworkers")), *_graph_of_table())
    _same(hoim.fit(load_table("czech_autoworkers"), order=1), *_graph_of_table(".", None))


def _graph_of_table(formula="phys*smoke", names=("phys", "smoke")):
    data = load_table("czech_autoworkers")
    data = data if names is None else data.project(names)
    return InteractionHypergraph.from_formula(data.domain, formula), data


def test_counts_weights_and_the_left_side(frame):
    cells = frame.groupby(["smoke", "mental", "phys"], observed=True).size().rename("Freq").reset_index()
    graph, data = _graph(frame, ("smoke", "mental", "phys"), ".^2")
    _same(hoim.fit(".^2", cells, count="Freq"), graph, data)
    _same(hoim.fit("Freq ~ .^2", cells), graph, data)
    _same(hoim.fit(cells.rename(columns={"Freq": "count"}), order=2), graph, data)
    halves = cells.assign(w=cells.pop("Freq") / 2)
    found = hoim.fit(".^2", halves, weights="w")
    assert found.num_rows == data.total_count / 2
    torch.testing.assert_close(found.theta, hoim.fit(graph, data).theta, rtol=0, atol=1e-9)
    control = hoim.fit(".^2", halves.drop(columns="w"))  # cells as rows: nothing is associated
    assert float((control.theta - found.theta).abs().max()) > 0.1


def test_estimates_and_errors_are_those_of_a_poisson_regression(frame):
    """Peer: statsmodels, the log-linear model with treatment coding of the three-way table."""
    result = hoim.fit("smoke*mental + phys", frame)
    table = pd.crosstab([frame["smoke"], frame["mental"]], frame["phys"]).to_numpy().reshape(-1)
    first, second, third = (np.indices((2, 2, 2))[i].reshape(-1) for i in range(3))
    design = np.column_stack([np.ones(8), first, second, third, first * second])
    peer = sm.GLM(table, design, sm.families.Poisson()).fit(tol=1e-13)
    found = log_linear.coefficient_table(result, coding="corner").iloc[-1]
    assert found["estimate"] == pytest.approx(float(peer.params[-1]), abs=1e-7)
    assert found["std_error"] == pytest.approx(float(peer.bse[-1]), rel=1e-6)


@pytest.mark.parametrize("text", ["unit", "unit:4", "normal:0.5", "ridge:4", "conjugate:2", "none"])
def test_priors_in_words_are_their_penalties(frame, text):
    graph, data = _graph(frame, ("mental", "smoke"), "mental*smoke")
    penalty = Prior.parse(text).penalty(graph)
    _same(hoim.fit("smoke*mental", frame, prior=text), graph, data, penalty=penalty)
    _same(hoim.fit("smoke*mental", frame, prior=Prior.parse(text)), graph, data, penalty=penalty)


def test_a_penalty_is_a_prior_and_shrinks(frame):
    graph, data = _graph(frame, ("mental", "smoke"), "mental*smoke")
    found = hoim.fit("smoke*mental", frame, prior=L2(50.0))
    _same(found, graph, data, penalty=L2(50.0))
    assert float(found.theta.norm()) < 0.95 * float(hoim.fit("smoke*mental", frame).theta.norm())


@pytest.mark.filterwarnings("ignore:levels like others")
def test_missing_cells_are_dropped_or_summed_over_as_asked(frame):
    gaps = frame[["smoke", "mental"]].copy()
    gaps.iloc[:200, 0] = None
    gaps.iloc[100:150, 1] = None
    hint = "pass missing='drop' to leave these rows out, or missing='marginalise' to sum over the missing cells"
    with pytest.raises(MissingDataError, match=rf"data: missing cells in 'smoke' \(200\), 'mental' \(50\); {hint}"):
        hoim.fit("smoke*mental", gaps)
    data = Observations.from_pandas(gaps)
    graph = InteractionHypergraph.from_order(data.domain, 2)
    _same(hoim.fit("smoke*mental", gaps, missing="drop"), graph, data.drop_missing())
    found = hoim.fit("smoke*mental", gaps, missing="marginalise", prior="unit")
    expected = log_linear.fit_incomplete(graph, data, penalty=Prior.parse("unit").penalty(graph))
    torch.testing.assert_close(found.theta, expected.theta, rtol=0, atol=1e-12)
    assert found.log_likelihood == expected.log_likelihood and found.num_rows == len(frame)
    marked = gaps.fillna("?")
    _same(hoim.fit("smoke*mental", marked, missing="drop", missing_values=("?",)), graph, data.drop_missing())
    assert hoim.fit("smoke", marked).hypergraph.domain["smoke"].labels == ("?", "n", "y")  # a level unless told


def test_scores_of_ordered_columns(frame):
    found = hoim.fit("linear(smoke):linear(mental)", frame)
    graph, data = _graph(frame, ("mental", "smoke"), "mental*smoke")
    assert found.log_likelihood == pytest.approx(log_linear.fit(graph, data).log_likelihood, rel=1e-12)  # binary


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda f: hoim.fit("smoke", f, order=2), "one of them says the interactions, not several"),
        (lambda f: hoim.fit("smke*mental", f), "unknown variable 'smke'; did you mean 'smoke'"),
        (lambda f: hoim.fit([("smoke", "hat")], f), "edges: unknown column 'hat'"),
        (lambda f: hoim.fit("id*smoke", f), r"'id' \(1,841 levels in 1,841 rows\) is \(almost\) unique per row"),
        (lambda f: hoim.fit("n ~ smoke", f), "left side of the formula: unknown column 'n'"),
        (lambda f: hoim.fit("smoke ~ phys", f), r"no response, and .smoke. .* holds no counts; write smoke\*"),
        (lambda f: hoim.fit("smoke ~ phys", f.assign(smoke=f["smoke"] == "y")), "holds no counts"),
        (lambda f: hoim.fit("smoke ~ phys", f.assign(smoke=(f["smoke"] == "y") * 1)), "holds no counts"),
        (lambda f: hoim.fit("smoke ~ phys", f.astype({"smoke": "category"})), "holds no counts"),
        (lambda f: hoim.fit("id ~ smoke", f, count="phys"), "names the counts, 'id', already"),
        (lambda f: hoim.fit("smoke", f, count="n"), "count of the frame: unknown column 'n'"),
        (lambda f: hoim.fit("smoke", f, weights="phys"), "column 'phys'"),
        (lambda f: hoim.fit("smoke", f, prior="flat"), "prior: expected none, unit"),
        (lambda f: hoim.fit("smoke", f, prior="unit", penalty=L2(1.0)), "prior, penalty: at most one of them"),
        (lambda f: hoim.fit("smoke", f, penlty=L2(1.0)), "fit: unknown option 'penlty'; did you mean 'penalty'"),
        (lambda f: hoim.fit("smoke", f, missing="ignore"), "missing: expected 'drop' or 'marginalise'"),
        (lambda f: hoim.fit("smoke", load_table("titanic"), count="n"), "can only be said of a data frame"),
        (lambda f: hoim.fit("smoke", f.assign(smoke=None)), "column 'smoke': expected at least one level"),
    ],
)
def test_wrong_arguments_end_in_one_clear_error(frame, call, message):
    with pytest.raises(InputError, match=message):
        call(frame)


def test_wrong_types(frame):
    for call in (lambda: hoim.fit("a", 3), lambda: hoim.fit(3.5, frame), lambda: hoim.fit("smoke", frame, prior=3)):
        with raises(code="wrong-type"):
            call()
    graph, _ = _graph(frame, ("phys", "smoke"), "phys*smoke")
    with pytest.raises(UnknownNameError, match="the data frame lacks column 'smoke' of the model"):
        hoim.fit(graph, frame.drop(columns="smoke"))


def test_functions_of_a_formula_are_fitted_to_rows_with_missing_cells():
    rng = np.random.default_rng(4)
    frame = pd.DataFrame({name: rng.integers(0, 3, 200) for name in "ab"}).astype("Int64")
    frame["a"] = frame["a"].mask(rng.random(200) < 0.2)
    formula = "a + b + linear(a):linear(b)"
    found = hoim.fit(formula, frame, missing="marginalise")
    rows = as_observations(frame)
    direct = log_linear.fit_incomplete(log_linear.restricted_interactions(rows.domain, formula), rows)
    assert found.num_rows == 200 and found.log_likelihood == pytest.approx(direct.log_likelihood, rel=1e-12)
    dropped = hoim.fit(formula, frame, missing="drop")
    assert dropped.num_rows < 200 and dropped.log_likelihood > found.log_likelihood  # control: fewer rows


# What a person who brings a first data frame gets wrong: one clear answer each, before any work.

CELLS = pd.DataFrame({"wet": list("yynn"), "cold": list("ynyn"), "Freq": [30, 10, 20, 40]})


@pytest.fixture
def rows():
    return CELLS.loc[CELLS.index.repeat(CELLS["Freq"])].drop(columns="Freq").reset_index(drop=True)


@pytest.mark.parametrize("say", ["wet*cold", ".^2", 2, [("wet", "cold")]])
def test_counts_that_were_not_named_stop_a_fit(say):
    with pytest.raises(InputError, match="column 'Freq' seems to hold how often each row was seen; say count='Freq'"):
        hoim.fit(say, CELLS)


def test_what_the_message_says_to_say_is_right(rows):
    expected = hoim.fit("wet*cold", rows).log_likelihood
    assert hoim.fit("wet*cold", CELLS, count="Freq").log_likelihood == pytest.approx(expected, rel=1e-12)
    weighted = CELLS.rename(columns={"Freq": "weight"})
    assert hoim.fit("wet*cold", weighted, weights="weight").log_likelihood == pytest.approx(expected, rel=1e-12)
    assert hoim.fit("wet*cold", CELLS, count=None).num_rows == 4


def test_variables_of_such_names_are_taken_where_they_are_meant(rows):
    """Spelled out, not whole, with labels, or of a vague name while rows repeat."""
    assert hoim.fit("n*wet", rows.assign(n=[1, 2] * 50)).num_rows == 100
    assert hoim.fit(".^2", rows.assign(n=[1, 2] * 50)).hypergraph.domain.names == ("wet", "cold", "n")
    assert hoim.fit(".^2", rows.assign(Freq=["often", "never"] * 50)).num_rows == 100
    assert hoim.fit(".^2", rows.assign(weight=pd.Categorical([1, 2] * 50))).num_rows == 100
    assert hoim.fit(rows.assign(weight=[1, 2] * 50), edges=["wet:weight"]).num_rows == 100


def test_the_data_may_be_named_as_an_argument(rows):
    expected = hoim.fit("wet*cold", rows)
    for found in (hoim.fit(data=rows, order=2), hoim.fit(order=2, data=rows), hoim.fit(data=rows, edges=["wet:cold"])):
        torch.testing.assert_close(found.theta, expected.theta, rtol=0, atol=0)
    for call in (lambda: hoim.fit("wet*cold"), lambda: hoim.fit(order=2)):
        with pytest.raises(InputError, match=r"data: expected a data frame or observations, received none"):
            call()


def test_fits_with_a_prior_are_shown_shortly_whatever_their_columns():
    rows = pd.DataFrame(np.random.default_rng(0).integers(0, 2, (100, 30)), columns=[f"x{i}" for i in range(30)])
    shown = repr(hoim.fit(rows, order=2, prior="unit", objective="pseudo-likelihood"))
    assert len(shown) < 400 and "(465 sets)" in shown


def test_learners_refuse_counts_that_were_not_named():
    for learn in (hoim.learn, hoim.learn_network):
        with pytest.raises(InputError, match=r"from_pandas\(frame, count='Freq'\)"):
            learn(CELLS)
    assert hoim.learn_network(CELLS.rename(columns={"Freq": "count"})).num_observations == 100


def test_constant_columns_and_too_many_parameters_warn_at_the_line_that_called(rows):
    with pytest.warns(DataWarning, match="constant column.*place") as told:
        hoim.fit(".^2", rows.assign(place="here"))
    assert [Path(warning.filename).name for warning in told] == [Path(__file__).name]
    few = pd.DataFrame(np.random.default_rng(1).integers(0, 3, (12, 4)), columns=list("abcd"))
    with pytest.warns() as told:
        hoim.fit(".^2", few)
    assert {warning.category for warning in told} == {DataWarning, NonexistentEstimateWarning}
    assert {Path(warning.filename).name for warning in told} == {Path(__file__).name}
    assert "32 parameters for 12 rows" in str(told[0].message) and "prior='unit'" in str(told[0].message)
    with warnings.catch_warnings(action="error"):
        hoim.fit(".^2", few, prior="unit")
        hoim.fit(".", rows.assign(w=1e-3), weights="w")


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda f: hoim.fit(f, "wet*cold"), InputError, "the data frame comes second"),
        (lambda f: hoim.fit("wet*cold", f["wet"]), InputTypeError, "expected Observations or a data frame"),
        (lambda f: hoim.fit("wet*cold", f, weights=np.ones(100)), InputTypeError, "weights: expected the name of a"),
        (lambda f: hoim.fit("wet*cold", f, count=f["wet"]), InputTypeError, "count: expected the name of a column"),
        (lambda f: hoim.fit("wet*cold", f, weight="w"), UnknownNameError, "did you mean 'weights'"),
        (lambda f: hoim.fit("WET*cold", f), UnknownNameError, "did you mean 'wet'"),
        (lambda f: hoim.fit("wet*count", f.assign(count=1)), UnknownNameError, "say count=None"),
        (lambda f: hoim.fit("wet*cold", f).predict(f, ["wet"]), InputTypeError, "target: expected the name of a"),
        (
            lambda f: hoim.fit("wet*cold", f).sample(1, given=["wet"]),
            InputTypeError,
            "given: expected values by column",
        ),
        (lambda f: hoim.fit("wet*cold", f).report(__file__), InputError, "is a file; name a folder"),
    ],
)
def test_wrong_arguments_are_named(rows, call, error, words):
    with pytest.raises(error) as caught:
        call(rows)
    assert words in str(caught.value)


@pytest.mark.parametrize("given", [CELLS, None, "wet*cold"], ids=["frame", "none", "formula"])
def test_what_is_no_fit_is_refused_where_one_is_tested(given):
    for call in (hoim.goodness_of_fit, lambda one: hoim.log_linear.likelihood_ratio_test(one, one)):
        with pytest.raises(InputTypeError, match=r"(result|small): expected the result of fit, received "):
            call(given)
