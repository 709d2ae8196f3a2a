"""Leave-one-out once per cell equals leave-one-out over all rows, for both generations of ArviZ."""

import inspect
import warnings

import numpy as np
import pytest
import torch
import xarray
from pandas.testing import assert_frame_equal

from pyro_hoim import Domain, InteractionHypergraph
from pyro_hoim.interop import (
    CELL_GROUP,
    choose_backend,
    compare_by_cell,
    get_group,
    loo_by_cell,
    loo_figures,
    summarise,
    to_arviz,
)
from pyro_hoim.log_linear import cell_log_likelihood
from pyro_hoim.testing import raises

pytestmark = pytest.mark.filterwarnings("ignore::pandas.errors.Pandas4Warning")
COUNTS = np.array([40, 3, 0, 17, 1, 9])
NAMES = {False: {"elpd": "elpd_loo", "p": "p_loo", "each": "loo_i"}, True: {"elpd": "elpd", "p": "p", "each": "elpd_i"}}


def _draws(order, chains=3):
    """A normal approximation to a posterior of a 2 x 3 table, and its per-cell terms."""
    domain = Domain.from_cardinalities({"a": 2, "b": 3})
    graph = InteractionHypergraph.from_order(domain, order)
    rng = np.random.default_rng(order)
    theta = rng.normal(0.1, 0.12, size=(chains, 300, graph.num_parameters))
    states = torch.tensor([[i, j] for i in range(2) for j in range(3)])
    return graph, theta, cell_log_likelihood(graph, torch.as_tensor(theta), states).numpy()


def _data(order, backend, chains=3, **options):
    graph, theta, terms = _draws(order, chains)
    return to_arviz(
        {"theta": theta}, hypergraph=graph, log_likelihood={"x": terms}, cell_count=COUNTS, backend=backend, **options
    )


@pytest.mark.parametrize("chains", [1, 3])
def test_by_cell_equals_expanded(backend, chains):
    data, names = _data(2, backend, chains), NAMES[choose_backend(backend).is_tree]
    stats = choose_backend(data=data).stats
    rows, cells = stats.loo(data, pointwise=True), loo_by_cell(data)
    assert rows["n_data_points"] == cells["n_data_points"] == COUNTS.sum()
    for key in (names["elpd"], names["p"], "se"):
        assert abs(float(rows[key]) - float(cells[key])) < 1e-8, key
    np.testing.assert_allclose(cells[names["each"]].values, rows[names["each"]].values, atol=1e-10)
    np.testing.assert_allclose(cells["pareto_k"].values, rows["pareto_k"].values, atol=1e-8)
    assert rows["warning"] == cells["warning"]
    assert cells["good_k"] == rows["good_k"] and cells["n_samples"] == rows["n_samples"]
    assert str(COUNTS.sum()) in str(cells) or str(cells["n_samples"]) in str(cells)


def test_unweighted_cells_are_another_number(backend):
    """The control: one vote per cell instead of per row."""
    data, names = _data(2, backend), NAMES[choose_backend(backend).is_tree]
    _, theta, terms = _draws(2)
    unweighted = to_arviz({"theta": theta}, log_likelihood={"x": terms}, backend=backend)
    wrong = choose_backend(data=data).stats.loo(unweighted)
    assert abs(float(wrong[names["elpd"]]) - float(loo_by_cell(data)[names["elpd"]])) > 10


def _rows_of(data, engine):
    """Leave-one-out of every row of the expanded data, by ArviZ itself."""
    result = engine.stats.loo(data, pointwise=True)
    return result, result[NAMES[engine.is_tree]["each"]].values


@pytest.mark.parametrize("method", ["stacking", "pseudo-bma", "bb-pseudo-bma"])
def test_comparison_is_that_of_all_rows_beyond_the_limit_too(backend, monkeypatch, method):
    """Against NumPy on ArviZ's values of every row, and ArviZ's own table where it has the same definition."""
    models = {"one": _data(1, backend), "two": _data(2, backend), "again": _data(2, backend, chains=2)}
    engine, total = choose_backend(backend), COUNTS.sum()
    table = compare_by_cell(models, method=method)
    rows = {name: _rows_of(models[name], engine) for name in table.index}
    best = rows[table.index[0]][1]
    raw = {"round_to": "none"} if "round_to" in inspect.signature(engine.stats.compare).parameters else {}
    theirs = engine.stats.compare({name: result for name, (result, _) in rows.items()}, method=method, **raw)
    assert list(table["rank"]) == [0, 1, 2] and list(table.index) == list(theirs.index)
    for name, (result, each) in rows.items():
        row, gaps = table.loc[name], best - each
        expected = loo_figures(result)
        assert row["elpd"] == pytest.approx(expected["elpd"], abs=1e-8)
        assert row["p"] == pytest.approx(expected["p"], abs=1e-8)
        assert row["elpd_diff"] == pytest.approx(gaps.sum(), abs=1e-8) == abs(theirs["elpd_diff"][name])
        assert row["dse"] == pytest.approx(np.sqrt(total * gaps.var(ddof=1)), abs=1e-8)
        assert row["se"] == pytest.approx(np.sqrt(total * each.var(ddof=1)), abs=1e-8)
        # A bootstrap of other random numbers: a standard deviation of at most 1/2 over 1,000, on either side.
        tolerance = {"stacking": 1e-3, "pseudo-bma": 1e-8, "bb-pseudo-bma": 5 * np.sqrt(2 / 4 / 1000)}[method]
        assert row["weight"] == pytest.approx(theirs["weight"][name], abs=tolerance)
    assert table["weight"].sum() == pytest.approx(1.0, abs=1e-12)
    assert not np.allclose(table["se"], [np.sqrt(total * each.var()) for _, each in rows.values()])  # control
    monkeypatch.setattr("pyro_hoim.interop.loo._MOST_ROWS", 10)
    assert_frame_equal(compare_by_cell(models, method=method), table, check_exact=True)


FEW = {
    "every term varies": lambda terms, rng: terms,
    "a constant term": lambda terms, rng: np.where(np.arange(terms.shape[2]) == 1, -2.0, terms),
    "all terms constant": lambda terms, rng: np.broadcast_to(-1.0 - np.arange(terms.shape[2]), terms.shape),
    "terms of two values": lambda terms, rng: np.where(rng.random(terms.shape) < 0.3, -2.0, -1.0),
}


@pytest.mark.parametrize("shape", [(1, 3), (2, 2), (2, 10), (4, 6), (2, 13), (4, 100)])
@pytest.mark.parametrize("kind", FEW)
def test_few_draws_and_few_values_have_a_leave_one_out(backend, shape, kind):
    """The oracle is importance sampling without smoothing, 1 / mean(1 / likelihood), where k is infinite."""
    rng = np.random.default_rng(shape[1])
    terms = FEW[kind](-1 + 0.3 * rng.normal(size=(*shape, 4)), rng)
    counts = np.array([5, 1, 4, 20])
    data = to_arviz({"mu": rng.normal(size=shape)}, log_likelihood={"y": terms}, cell_count=counts, backend=backend)
    with warnings.catch_warnings(action="ignore", category=UserWarning):  # of large Pareto k
        result = loo_by_cell(data)
    first = np.cumsum(counts) - counts
    each = result[NAMES[choose_backend(backend).is_tree]["each"]].values[first]
    is_raw = np.isinf(result["pareto_k"].values[first])
    raw = -np.log(np.exp(-terms).mean((0, 1)))
    np.testing.assert_allclose(each[is_raw], raw[is_raw], rtol=1e-10)
    is_flat = terms.min((0, 1)) == terms.max((0, 1))
    assert is_raw[is_flat].all() and (is_raw.all() or np.prod(shape) >= 24) and not np.isnan(each).any()
    assert bool(result["warning"]) == bool((result["pareto_k"].values > result["good_k"]).any())
    if kind == "every term varies" and shape == (4, 100):
        assert not is_raw.any() and not np.allclose(each, raw, atol=1e-6)  # the control: smoothed weights


def test_counts_of_any_size_take_the_memory_of_their_cells(backend):
    """Figures of counts times 10^12 are those of the counts, with standard errors of independent rows."""
    graph, theta, terms = _draws(2)
    options = {"hypergraph": graph, "log_likelihood": {"x": terms}, "backend": backend}
    few, many = (to_arviz({"theta": theta}, cell_count=COUNTS * scale, **options) for scale in (1, 10**12))
    small, large = loo_figures(loo_by_cell(few)), loo_figures(loo_by_cell(many))
    assert (large["num_rows"], large["elpd"]) == (COUNTS.sum() * 10**12, pytest.approx(small["elpd"] * 1e12, rel=1e-12))
    assert large["se"] == pytest.approx(small["se"] * 1e6, rel=1e-2)
    other, theirs, values = _draws(1)
    options = {"hypergraph": other, "log_likelihood": {"x": values}, "backend": backend}
    table = compare_by_cell({"two": many, "one": to_arviz({"theta": theirs}, cell_count=COUNTS * 10**12, **options)})
    assert table["weight"].sum() == pytest.approx(1.0)
    with raises("over-budget", "expand_cells"):
        to_arviz({"theta": theirs}, cell_count=COUNTS * 10**12, expand_cells=True, **options)
    with raises("out-of-range", "cell_count['x']"):
        to_arviz({"theta": theirs}, cell_count=COUNTS * 1e300, **options)


def test_per_cell_terms_never_pose_as_rows(backend):
    data = _data(2, backend, expand_cells=False)
    assert get_group(data, "log_likelihood") is None
    assert get_group(data, CELL_GROUP)["x"].dims == ("chain", "draw", "x_cell")
    assert list(get_group(data, "constant_data")["x_count"].values) == list(COUNTS)
    full = loo_by_cell(_data(2, backend))
    assert float(loo_by_cell(data)["se"]) == float(full["se"])


def test_rows_beyond_the_budget_are_not_expanded(backend):
    graph, theta, terms = _draws(2, 1)
    options = {"hypergraph": graph, "log_likelihood": {"x": terms}, "backend": backend}
    large = to_arviz({"theta": theta}, cell_count=COUNTS * 10_000, **options)
    assert get_group(large, "log_likelihood") is None
    assert int(loo_by_cell(large)["n_data_points"]) == 10_000 * COUNTS.sum()
    small = to_arviz({"theta": theta}, cell_count=COUNTS, **options)
    assert get_group(small, "log_likelihood")["x"].shape == (1, 300, COUNTS.sum())


def test_round_trip_keeps_cells(backend, tmp_path):
    data = _data(2, backend)
    path = tmp_path / "cells.nc"
    data.to_netcdf(str(path))
    # A saved data object, opened by its own generation.
    engine = choose_backend(backend)
    opened = xarray.open_datatree(path) if engine.is_tree else engine.data.from_netcdf(str(path))
    assert float(loo_by_cell(opened)["se"]) == pytest.approx(float(loo_by_cell(data)["se"]), rel=1e-12)
    opened.close()


def test_figures_have_one_set_of_names(backend):
    data, names = _data(2, backend), NAMES[choose_backend(backend).is_tree]
    result = loo_by_cell(data)
    figures = loo_figures(result)
    assert figures["elpd"] == result[names["elpd"]] and figures["p"] == result[names["p"]]
    assert figures["num_rows"] == COUNTS.sum() and figures["max_pareto_k"] == float(result["pareto_k"].max())
    assert np.isnan(loo_figures(choose_backend(data=data).stats.loo(data, pointwise=False))["max_pareto_k"])


@pytest.mark.parametrize(
    ("count", "names", "code"),
    [
        (COUNTS[:3], "x", "out-of-range"),
        (COUNTS + 0.5, "x", "out-of-range"),
        (-COUNTS, "x", "out-of-range"),
        (COUNTS * np.nan, "x", "out-of-range"),
        ({"y": COUNTS}, "x", "unknown-name"),
        (COUNTS, "xy", "missing-part"),
    ],
)
def test_counts_are_checked(count, names, code):
    _, theta, terms = _draws(1)
    with raises(code):
        to_arviz({"theta": theta}, log_likelihood=dict.fromkeys(names, terms), cell_count=count)


def test_loo_needs_cells_rows_and_a_name(backend):
    _, theta, terms = _draws(1)

    def data_of(names, *counts):
        cell_count = dict(zip(names, counts, strict=False)) or None
        terms_of = dict.fromkeys(names, terms) or None
        return to_arviz({"theta": theta}, log_likelihood=terms_of, cell_count=cell_count, backend=backend)

    both, single = data_of("xy", COUNTS, COUNTS), data_of("x", COUNTS * [1, 0, 0, 0, 0, 0])
    assert int(loo_by_cell(both, var_name="y")["n_data_points"]) == COUNTS.sum()
    one = _data(1, backend)
    of_one_draw = to_arviz({"mu": np.zeros((1, 1))}, log_likelihood={"x": terms[:1, :1]}, cell_count=COUNTS)
    for ask, code, argument in (
        (lambda: loo_by_cell(data_of("")), "missing-part", "data"),
        (lambda: loo_by_cell(both), "unknown-choice", "var_name"),
        (lambda: loo_by_cell(both, var_name="z"), "unknown-name", "var_name"),
        (lambda: loo_by_cell(single), "missing-part", "'x'"),
        (lambda: loo_by_cell(data_of("x", 0 * COUNTS)), "conflict", "'x'"),
        (lambda: compare_by_cell({"a": one, "b": single}), "other-domain", "models"),
        (lambda: compare_by_cell({"a": one}), "missing-part", "models"),
        (lambda: compare_by_cell({"a": one, "b": one}, method="waic"), "unknown-choice", "method"),
        (lambda: loo_by_cell(of_one_draw), "conflict", "'x'"),
    ):
        with raises(code, argument):
            ask()


def _summed(backend):
    """Draws of a moving site, of one with a constant entry, of chains that are stuck, and of truth values."""
    rng = np.random.default_rng(0)
    partly = rng.normal(size=(2, 100, 2))
    partly[..., 1] = 3.0
    draws = {"free": rng.normal(size=(2, 100)), "partly": partly, "stuck": np.repeat([[0.0], [1.0]], 100, 1)}
    return to_arviz({**draws, "draw": rng.random((2, 100)) < 0.5}, backend=backend)


def test_summary_names_constants(backend):
    """Of what moves every figure is ArviZ's own; the rest is by definition, printed and in numbers."""
    data, stats = _summed(backend), choose_backend(backend).stats
    table = summarise(data)
    names = ["free", "partly[0]", "partly[1]", "stuck", "draw (site)"]
    assert table.index.tolist() == names and table["is_constant"].tolist() == [False, False, True, False, False]
    assert table["r_hat"].isna().tolist() == [False, False, True, False, False] and table["r_hat"]["stuck"] == np.inf
    assert table[["ess_bulk", "ess_tail"]].isna().all(axis=1).tolist() == [False, False, True, False, False]
    assert all(np.issubdtype(table[name].dtype, np.number) for name in table.columns[:-1])
    constant = next(line for line in table[["ess_bulk", "r_hat"]].to_string().splitlines() if "partly[1]" in line)
    assert constant.split()[1:] == ["NaN", "NaN"]
    assert table["mean"]["draw (site)"] == pytest.approx(data.posterior["draw (site)"].values.mean(), abs=5e-4)
    theirs = stats.summary(data, var_names=["free"], round_to="none")
    exact = summarise(data, round_to="none").loc[["free"], theirs.columns]
    np.testing.assert_allclose(exact.to_numpy(float), theirs.to_numpy(float))
    assert summarise(data, var_names=["free"])["is_constant"].tolist() == [False]
    assert summarise(data, var_names="draw").index.tolist() == ["draw (site)"]
    table = summarise(data, var_names=["partly", "free"])
    assert [index for index, flag in table["is_constant"].items() if flag] == ["partly[1]"]
    with raises("unknown-name", "data"):
        summarise(to_arviz(prior={"x": np.zeros(5)}, backend=backend))
    with raises("unknown-name", "var_names"):
        summarise(data, var_names=["freee"])
    with raises("unknown-choice", "fmt"):
        summarise(data, fmt="narrow")


def test_summaries_of_every_format_hold_the_same_figures(backend):
    data = _summed(backend)
    wide = summarise(data, round_to="none")
    cube, long = (summarise(data, round_to="none", fmt=fmt) for fmt in ("xarray", "long"))
    (dim,) = {"summary", "metric"} & set(cube.dims)
    for figure in wide.columns:
        one = cube.sel({dim: figure})
        found = [one["free"], *one["partly"], one["stuck"], one["draw (site)"]]
        np.testing.assert_allclose([float(value) for value in found], wide[figure].to_numpy(float), err_msg=figure)
        np.testing.assert_array_equal(long.loc[figure, "partly"].to_numpy(float), one["partly"].values)
