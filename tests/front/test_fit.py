"""Fits of data frames against fits of hypergraphs and observations, and what is said of wrong arguments."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
import statsmodels.api as sm
import torch

import pyro_hoim as hoim
from pyro_hoim import InputError, InteractionHypergraph, Observations, load_table, log_linear
from pyro_hoim.data.frames import as_observations
from pyro_hoim.errors import MissingDataError, UnknownNameError
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
