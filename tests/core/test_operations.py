"""Score, predict, impute and sample of every family on data frames, against the same rows as observations."""

import ast
import re
from pathlib import Path

import pandas as pd
import polars as pl
import pytest
import torch

import pyro_hoim as hoim
from pyro_hoim import CountTable, InteractionHypergraph, Observations, load_table
from pyro_hoim.testing import raises

from support import sources

BELOW_THE_CORE = {"structure", "datasets", "data", "schema", "checks", "budgets", "atomic", "errors", "compute"}
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef)
NAMES = ("smoke", "mental", "phys", "systol")


def _rows():
    return load_table("czech_autoworkers").project(NAMES)


def _frame(seed=3):
    """Single rows in the order of a shuffled file, with an index of their own and columns that no model knows."""
    held = _rows()
    frame = held.to_pandas().loc[lambda f: f.index.repeat(f["count"])].drop(columns="count")
    frame = frame.sample(150, random_state=seed).set_axis([f"p{i}" for i in range(150)])
    frame = frame.assign(smoke=frame["smoke"] == "y", mental=(frame["mental"] == "y").astype(int))
    frame.insert(0, "id", range(150))
    return frame[["systol", "id", "mental", "smoke", "phys"]]


@pytest.fixture(scope="module")
def models():
    rows = hoim.Observations.from_pandas(_frame().drop(columns="id"))
    graph = InteractionHypergraph.from_order(rows.domain, 2)
    counts = CountTable.from_matrix(
        torch.poisson(torch.full((90, 3), 2.0), generator=torch.Generator().manual_seed(0)), names=["a", "b", "c"]
    )
    return {
        "log-linear": hoim.fit(graph, rows),
        "network": hoim.learn_network(rows),
        "roots": hoim.fit_roots(counts, "poisson", order=2, l1=0.3),
    }


@pytest.mark.parametrize("kind", ["log-linear", "network"])
def test_frames_are_scored_and_predicted_like_their_observations(models, kind):
    model, frame = models[kind], _frame()
    rows = Observations.from_pandas(frame.drop(columns="id"))
    assert hoim.score(model, frame) == hoim.score(model, rows) == hoim.score(model, pl.from_pandas(frame))
    weighted = frame.assign(n=range(150))
    assert hoim.score(model, weighted, count="n")["rows"] == sum(range(150))
    assert hoim.score(model, weighted, weights="n")["rows"] == sum(range(150))
    found, plain = hoim.predict(model, frame, "smoke"), hoim.predict(model, rows, "smoke")
    assert found.index.equals(frame.index) and found["predicted"].dtype == bool
    assert found["predicted"].astype(str).tolist() == plain["predicted"].tolist()
    pd.testing.assert_frame_equal(found.iloc[:, 1:].reset_index(drop=True), plain.iloc[:, 1:])
    absent = hoim.predict(model, frame.drop(columns="smoke"), "smoke")
    assert absent["predicted"].tolist() == plain["predicted"].tolist() and absent.index.equals(frame.index)
    assert hoim.predict(model, frame, "mental")["predicted"].isin([0, 1]).all()
    assert isinstance(hoim.predict(model, frame, "phys")["predicted"].dtype, pd.CategoricalDtype)
    with raises(code="unknown-name", argument="rows"):
        hoim.predict(model, frame.drop(columns="phys"), "smoke")


@pytest.mark.parametrize("kind", ["log-linear", "network"])
def test_completed_frames_keep_columns_index_and_types(models, kind):
    model, frame = models[kind], _frame()
    gaps = frame.astype({"smoke": "boolean"})
    gaps.iloc[:20, 3] = pd.NA
    gaps.iloc[10:30, 0] = None
    found = hoim.impute(model, gaps, seed=1)
    assert list(found) == list(frame) and found.index.equals(frame.index)
    assert found.dtypes.astype(str).tolist() == gaps.dtypes.astype(str).tolist() and not found.isna().any(axis=None)
    pd.testing.assert_frame_equal(found.iloc[30:], gaps.iloc[30:])
    pd.testing.assert_frame_equal(found[["id", "mental", "phys"]], gaps[["id", "mental", "phys"]])
    rows = Observations.from_pandas(
        gaps.drop(columns="id"), domain=Observations.from_pandas(frame.drop(columns="id")).domain
    )
    same = hoim.impute(model, rows, seed=1)
    assert found["smoke"].astype(str).tolist() == same["smoke"].tolist()
    twice = hoim.impute(model, gaps, 2, seed=1)
    assert twice["imputation"].tolist() == [1] * 150 + [2] * 150 and twice.index.tolist() == [*frame.index] * 2
    assert not twice[twice["imputation"] == 1].drop(columns="imputation").equals(frame)
    with raises(code="repeated-name", argument="rows"):
        hoim.impute(model, gaps.assign(imputation=1), 2)


def test_labels_of_the_caller_hold_columns_of_draws(models):
    model = models["log-linear"]
    drawn = hoim.sample(model, 20, {"smoke": True, "mental": 1})
    assert set(drawn["smoke"]) == {"True"} and set(drawn["mental"]) == {"1"}
    with raises(code="unknown-name"):
        hoim.sample(model, 1, {"mental": 2})


def test_numbers_of_a_data_frame(models):
    model = models["roots"]
    frame = pd.DataFrame(
        {"x": list("pqrs"), "c": [0, 1, 2, 3], "a": [1, 0, 4, 2], "b": [2, 2, 1, 0]}, index=[9, 7, 5, 3]
    )
    table = CountTable.from_matrix(frame[["a", "b", "c"]].to_numpy(), names=["a", "b", "c"])
    assert hoim.score(model, frame) == hoim.score(model, table)
    found = hoim.predict(model, frame, "a")
    pd.testing.assert_frame_equal(found.reset_index(drop=True), hoim.predict(model, table, "a"))
    assert found.index.tolist() == [9, 7, 5, 3]
    for unknown in (frame.drop(columns="a"), frame.assign(a=[1, None, 2, 3])):
        pd.testing.assert_series_equal(hoim.predict(model, unknown, "a")["mean"], found["mean"])
    with raises(code="conflict", argument="weights"):
        hoim.score(model, frame, weights="b")


def test_the_core_names_nothing_above_it():
    """Not in an import, and not in a string that names a module."""
    package = Path(hoim.__file__).parent
    above = {path.stem for path in package.iterdir()} - {"core", *BELOW_THE_CORE}
    named = re.compile(rf"\bpyro_hoim\.({'|'.join(sorted(above))})\b")
    for path, tree in sources.trees().items():
        if not path.startswith("core/"):
            continue
        first = [node.body[0] for node in sources.nodes(tree) if isinstance(node, DOCUMENTED) and node.body]
        documented = {id(line.value) for line in first if isinstance(line, ast.Expr)}
        texts = [n.value for n in sources.nodes(tree) if isinstance(n, ast.Constant) and id(n) not in documented]
        assert not [text for text in texts if isinstance(text, str) and named.search(text)], path
    assert named.search("pyro_hoim.log_linear.energy") and not named.search("pyro_hoim.schema")  # control


def test_a_fit_knows_its_gain_over_independent_columns():
    rows = _rows()
    pairs, singles = (hoim.fit(InteractionHypergraph.from_order(rows.domain, order), rows) for order in (2, 1))
    gain = (pairs.log_likelihood - singles.log_likelihood) / rows.total_count
    assert hoim.score(pairs, rows)["gain"] == pytest.approx(gain, rel=1e-10)
    assert hoim.score(singles, rows)["gain"] == pytest.approx(0.0, abs=1e-12)
