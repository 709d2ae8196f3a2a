"""to_arviz for both generations of ArviZ, from one call, on programs with and without our models."""

import contextlib
import importlib
import json
from dataclasses import replace
from functools import cache
from types import SimpleNamespace

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
import xarray
from pyro.infer import HMC, MCMC, NUTS, Predictive
from pyro.infer.autoguide import init_to_value

from pyro_hoim import Domain, InputError, InteractionHypergraph, Observations
from pyro_hoim.inference import (
    ChainSettings,
    RecordingNUTS,
    StructurePosterior,
    StructurePrior,
    average_decomposable,
    enumerate_structures,
    pointwise_log_likelihood,
    sample_structures,
)
from pyro_hoim.inference.structure import posterior as posterior_module
from pyro_hoim.interop import ArvizNames, choose_backend, get_group, loo_by_cell, loo_figures, summarise, to_arviz
from pyro_hoim.interop.backend import _quiet_import
from pyro_hoim.log_linear import LogLinearStatistics, parametrization, theta_coords
from pyro_hoim.testing import assert_exact_law, raises


def assert_kept(result, backend, path, groups):
    """What is saved and opened by its own generation is the same."""
    engine = choose_backend(backend)
    result.to_netcdf(str(path))
    opened = xarray.open_datatree(path) if engine.is_tree else engine.data.from_netcdf(str(path))
    for group in groups:
        xarray.testing.assert_identical(get_group(result, group).load(), get_group(opened, group).load())
    opened.close()


@pytest.mark.parametrize(("failures", "succeeds"), [(1, True), pytest.param(2, False, id="control: it fails twice")])
def test_an_import_disturbed_by_another_process_is_made_once_more(failures, succeeds, monkeypatch):
    """Two first imports of ArviZ 0.23 on one day: the loser of the race for its stamp finds no file to rename."""
    attempts = []

    def disturbed(name):
        attempts.append(name)
        if len(attempts) <= failures:
            raise FileNotFoundError("daily_warning.tmp")
        return importlib.import_module(name)

    monkeypatch.setattr("pyro_hoim.interop.backend.import_module", disturbed)
    with contextlib.nullcontext() if succeeds else pytest.raises(FileNotFoundError):
        assert _quiet_import("arviz").__name__ == "arviz"
    assert len(attempts) == 2


@pytest.fixture
def graph():
    domain = Domain.from_labels({"smoke": ["y", "n"], "age": ["old", "mid", "new"]})
    return InteractionHypergraph(domain, [["smoke", "age"]], closure=True)


def _normal_model(data):
    mu = pyro.sample("mu", dist.Normal(0.0, 2.0))
    with pyro.plate("rows", len(data)):
        pyro.sample("y", dist.Normal(mu, 1.0), obs=data)


def _run(kernel, *args, num_samples=60, warmup_steps=60, num_chains=1, **options):
    pyro.set_rng_seed(3)
    mcmc = MCMC(
        kernel,
        num_samples=num_samples,
        warmup_steps=warmup_steps,
        num_chains=num_chains,
        disable_progbar=True,
        **options,
    )
    mcmc.run(*args)
    return mcmc


@cache  # both generations of ArviZ get the same draws
def _recorded(num_chains, max_tree_depth=10):
    kernel = RecordingNUTS(_normal_model, max_tree_depth=max_tree_depth)
    return _run(kernel, torch.linspace(-1, 2, 8), num_chains=num_chains)


@cache
def _plain():
    return [_run(kernel, torch.zeros(4)) for kernel in (NUTS(_normal_model), HMC(_normal_model, num_steps=3))]


@pytest.mark.filterwarnings("ignore:num_chains=.* is more than available_cpu")
@pytest.mark.filterwarnings("ignore:Estimated shape parameter of Pareto distribution")
@pytest.mark.filterwarnings("ignore::pandas.errors.Pandas4Warning")
@pytest.mark.parametrize("num_chains", [1, 2])
@pytest.mark.fixed_seed  # ArviZ divides by zero where most of the draws in a tail are one rejected draw
def test_plain_pyro_program(backend, num_chains, tmp_path):
    data = torch.linspace(-1, 2, 8)
    mcmc = _recorded(num_chains)
    samples = mcmc.get_samples()
    pyro.set_rng_seed(4)
    predictive = Predictive(_normal_model, samples)(data)
    drawn = {"y": dist.Normal(samples["mu"][:, None], 1.0).expand([len(samples["mu"]), 8]).sample()}
    assert predictive["y"].shape == drawn["y"].shape
    result = to_arviz(
        mcmc,
        log_likelihood=lambda draws: pointwise_log_likelihood(_normal_model, draws, data),
        posterior_predictive=drawn,
        prior=Predictive(_normal_model, num_samples=7)(data),
        prior_predictive={"y": torch.zeros(7, 8)},
        observed_data={"y": data},
        names=ArvizNames({"y": ["row"]}, {"row": list("abcdefgh")}),
        backend=backend,
    )
    assert isinstance(result, xarray.DataTree) == choose_backend(backend).is_tree
    groups = ["posterior", "sample_stats", "log_likelihood", "posterior_predictive", "prior", "prior_predictive"]
    for group in [*groups, "observed_data"]:
        assert get_group(result, group) is not None, group
    assert dict(result.posterior["mu"].sizes) == {"chain": num_chains, "draw": 60}
    assert np.array_equal(result.posterior["mu"].values, mcmc.get_samples(group_by_chain=True)["mu"].numpy())
    assert result.log_likelihood["y"].dims == ("chain", "draw", "row")
    assert (result.posterior_predictive["y"].shape, result.prior["mu"].shape) == ((num_chains, 60, 8), (1, 7))
    assert result.observed_data["y"].dims == ("row",)
    mu = result.posterior["mu"].values[..., None]
    exact = -0.5 * (data.numpy() - mu) ** 2 - 0.5 * np.log(2 * np.pi)
    np.testing.assert_allclose(result.log_likelihood["y"].values, exact, rtol=1e-5)

    stats = choose_backend(data=result).stats
    assert list(stats.summary(result, var_names=["mu"]).index) == ["mu"]
    loo = stats.loo(result)
    assert np.isfinite(loo["elpd" if choose_backend(backend).is_tree else "elpd_loo"])
    table = stats.compare({"one": stats.loo(result, pointwise=True), "two": stats.loo(result, pointwise=True)})
    assert list(table["rank"]) == [0, 1]

    assert_kept(result, backend, tmp_path / "draws.nc", [*groups, "observed_data"])


def test_recorded_statistics(backend):
    stats = get_group(to_arviz(_recorded(1, 5), backend=backend), "sample_stats")
    assert set(stats.data_vars) == {
        *("diverging", "energy", "lp", "tree_depth", "n_steps"),
        *("acceptance_rate", "step_size", "reached_max_treedepth"),
    }
    assert stats["diverging"].dtype == bool and stats["tree_depth"].dtype == np.int64
    assert (stats["n_steps"] >= 1).all() and (stats["n_steps"] <= 2 ** stats["tree_depth"] - 1).all()
    assert (stats["energy"] > -stats["lp"].min() - 1e3).all() and (stats["acceptance_rate"] >= 0).all()
    assert len(np.unique(stats["step_size"])) == 1


def test_plain_nuts_and_hmc_have_what_pyro_keeps(backend):
    for mcmc in _plain():
        result = to_arviz(mcmc, backend=backend)
        stats = get_group(result, "sample_stats")
        assert {"diverging", "step_size"} <= set(stats.data_vars)
        assert 0 <= json.loads(result.posterior.attrs["chain_acceptance_rate"])[0] <= 1


def test_divergences_are_marked_at_their_draws(backend):
    fake = SimpleNamespace(
        get_samples=lambda group_by_chain: {"x": torch.randn(2, 5)},
        _diagnostics=[{"divergences": [1, 4]}, {"divergences": []}],
    )
    diverging = to_arviz(fake, backend=backend).sample_stats["diverging"].values
    assert diverging.tolist() == [[False, True, False, False, True], [False] * 5]


@pytest.mark.parametrize(
    "diagnostics",
    [
        {"_diagnostics": [None, None]},
        {"_diagnostics": [{}, {}]},
        {"_diagnostics": [{"something": 1}, {"divergences": []}]},
        {"diagnostics": lambda: None},
        {},
    ],
)
def test_missing_diagnostics_are_left_out(backend, diagnostics):
    fake = SimpleNamespace(get_samples=lambda group_by_chain: {"x": torch.randn(2, 5)}, **diagnostics)
    result = to_arviz(fake, backend=backend)
    assert get_group(result, "sample_stats") is None
    assert result.posterior["x"].shape == (2, 5)


def test_public_diagnostics_are_enough(backend):
    both = {"divergences": {"chain 0": [0], "chain 1": []}, "x": {"r_hat": 1.0}}
    fake = SimpleNamespace(get_samples=lambda group_by_chain: {"x": torch.randn(2, 5)}, diagnostics=lambda: both)
    assert int(to_arviz(fake, backend=backend).sample_stats["diverging"].sum()) == 1


# --- faults of Pyro --------------------------------------------------------------------------------------------------


class _MixedKernel(pyro.infer.mcmc.mcmc_kernel.MCMCKernel):
    """An integer site beside floating ones, one of them constant."""

    transforms = {}  # noqa: RUF012
    initial_params = {"k": torch.zeros(2, dtype=torch.long), "x": torch.zeros(3), "c": torch.ones(2)}  # noqa: RUF012

    def setup(self, warmup_steps, *args, **kwargs):
        pass

    def cleanup(self):
        pass

    def sample(self, params):
        return {"k": torch.randint(0, 5, (2,)), "x": torch.randn(3), "c": torch.ones(2)}

    def diagnostics(self):
        return {}

    def logging(self):
        return {}


def test_integer_sites_come_back_as_integers(backend):
    mcmc = _run(_MixedKernel())
    assert mcmc.get_samples()["k"].dtype == torch.float32, "the fault is gone from Pyro"
    posterior = to_arviz(mcmc, backend=backend).posterior
    assert posterior["k"].dtype == np.int64
    assert posterior["x"].dtype == np.float32 and posterior["c"].dtype == np.float32
    assert to_arviz(mcmc, integer_sites=["k", "c"], backend=backend).posterior["c"].dtype == np.int64
    assert to_arviz(mcmc, integer_sites=(), backend=backend).posterior["k"].dtype == np.float32
    for name, code in (("x", "out-of-range"), ("z", "unknown-name")):
        with raises(code, "integer_sites"):
            to_arviz(mcmc, integer_sites=[name], backend=backend)


def test_constant_entries_are_counted(backend):
    posterior = to_arviz(_run(_MixedKernel()), backend=backend).posterior
    assert json.loads(posterior.attrs["constant_sites"]) == {"c": 2}


def _ordered_model():
    pyro.sample("b", dist.LogNormal(torch.full((2,), 3.0), 0.01).to_event(1))
    pyro.sample("a", dist.Normal(-5.0, 0.01))
    pyro.sample("c", dist.Dirichlet(torch.tensor([500.0, 300.0, 200.0])))


@pytest.mark.parametrize("names", [["b", "a"], ["c", "b", "a"], ["a", "b"], ["c", "a", "b"]])
def test_values_of_save_params_go_to_their_own_names(names):
    expected = {"a": [-5.0], "b": [np.exp(3)] * 2, "c": [0.5, 0.3, 0.2]}
    values = {"a": torch.tensor(-5.0), "b": torch.tensor(expected["b"]).float(), "c": torch.tensor(expected["c"])}
    # Short steps from there, for what is asked is whose the values are.
    start = init_to_value(values=values)
    kernel = NUTS(_ordered_model, step_size=1e-3, adapt_step_size=False, max_tree_depth=1, init_strategy=start)
    mcmc = _run(kernel, save_params=names, num_samples=10, warmup_steps=0)
    posterior = to_arviz(mcmc).posterior
    assert set(posterior.data_vars) == set(names)
    for name in names:
        mean = np.atleast_1d(posterior[name].mean(("chain", "draw")).values)
        np.testing.assert_allclose(mean, expected[name], rtol=0.05, err_msg=name)
    raw = mcmc.get_samples()
    if names == ["b", "a"]:  # the control: Pyro itself hands out the wrong values
        assert abs(float(raw["a"].mean()) + 5.0) > 1.0
    assert ("repaired_save_params" in posterior.attrs) == (names != sorted(names))


# --- shapes and groups -----------------------------------------------------------------------------------------------


def test_grouped_and_flat_dicts_are_the_same(backend):
    grouped = np.random.default_rng(0).standard_normal((4, 25, 3))
    one = to_arviz({"x": grouped}, backend=backend)
    two = to_arviz({"x": torch.as_tensor(grouped.reshape(100, 3))}, num_chains=4, backend=backend)
    assert np.array_equal(one.posterior["x"].values, two.posterior["x"].values)
    assert one.posterior["x"].dims[:2] == ("chain", "draw")


def test_flat_groups_follow_the_posterior(backend):
    posterior = {"x": np.zeros((2, 5))}
    flat = np.arange(30.0).reshape(10, 3)
    result = to_arviz(
        posterior,
        posterior_predictive={"y": flat},
        log_likelihood={"y": flat.reshape(2, 5, 3)},
        sample_stats={"lp": flat[:, 0]},
        backend=backend,
    )
    assert np.array_equal(result.posterior_predictive["y"].values, flat.reshape(2, 5, 3))
    assert result.sample_stats["lp"].shape == (2, 5)


def test_one_group_is_enough_and_none_is_an_error(backend):
    result = to_arviz(prior={"x": torch.zeros(9, 2)}, backend=backend)
    assert result.prior["x"].shape == (1, 9, 2)
    assert get_group(result, "posterior") is None


GROUPED = {"x": np.zeros((2, 5))}


@pytest.mark.parametrize(
    ("posterior", "options", "code", "argument"),
    [
        ({"x": np.zeros(10)}, {}, "wrong-shape", "posterior['x']"),
        ({"x": np.zeros(10)}, {"num_chains": 3}, "wrong-shape", "posterior['x']"),
        ({"x": np.zeros((2, 5)), "y": np.zeros((5, 2))}, {}, "wrong-shape", "posterior"),
        (SimpleNamespace(get_samples=lambda group_by_chain: {}, _samples=None), {}, "missing-part", "posterior"),
        (SimpleNamespace(get_samples=lambda group_by_chain: GROUPED), {"num_chains": 2}, "conflict", "num_chains"),
        (GROUPED, {"backend": "stan"}, "unknown-choice", "backend"),
        (GROUPED, {"posterior_predictive": {"y": np.zeros(7)}}, "wrong-shape", "posterior_predictive['y']"),
        (GROUPED, {"log_likelihood": np.zeros(3)}, "wrong-type", "log_likelihood"),
        ([1, 2], {}, "wrong-type", "posterior"),
        ({"a": np.broadcast_to(0.0, (4, 10**12))}, {}, "over-budget", "draws"),
        ({"a": np.zeros(4)}, {"num_chains": "4"}, "out-of-range", "num_chains"),
        ({"a": np.ma.array(np.zeros((2, 4)), mask=True)}, {}, "missing-cells", "draws"),
        (None, {}, "missing-part", "to_arviz"),
    ],
)
def test_bad_input(posterior, options, code, argument):
    with raises(code, argument):
        to_arviz(posterior, **options)


# --- theta -----------------------------------------------------------------------------------------------------------


def test_theta_names(graph):
    free = theta_coords(graph)
    assert free["interaction_level"] == ["smoke[n]", "age[mid]", "age[new]", "smoke:age[n,mid]", "smoke:age[n,new]"]
    assert theta_coords(graph, "corner") == free
    balanced = theta_coords(graph, "balanced")
    assert len(balanced["level"]) == graph.num_terms
    assert balanced["interaction_level"][5:7] == ["smoke:age[y,old]", "smoke:age[y,mid]"]
    with raises("unknown-choice", "coding"):
        theta_coords(graph, "tables")


def test_free_names_are_the_coordinates_of_their_interaction(graph):
    """The named coordinate moves the table of its own interaction and no other."""
    maps, names = parametrization(graph), theta_coords(graph)["interaction"]
    for i, name in enumerate(names):
        tables = maps.split(maps.to_tables(torch.eye(len(names), dtype=torch.float64)[i]))
        assert [":".join(edge) for edge, table in tables.items() if bool(table.abs().max() > 1e-9)] == [name]


def test_flat_layout(backend, graph, tmp_path):
    theta = np.random.default_rng(1).standard_normal((2, 30, 5))
    result = to_arviz({"theta": theta, "tau": theta[..., 0]}, hypergraph=graph, backend=backend)
    posterior = result.posterior
    assert posterior["theta"].dims == ("chain", "draw", "interaction_level")
    part = posterior["theta"].sel(interaction_level=posterior["interaction"] == "smoke:age")
    assert np.array_equal(part.values, theta[..., 3:])
    assert np.array_equal(posterior["theta"].sel(interaction_level="age[new]").values, theta[..., 2])
    index = list(choose_backend(data=result).stats.summary(result, var_names=["theta"]).index)
    assert index[0] == "theta[smoke[n]]"
    assert_kept(result, backend, tmp_path / "theta.nc", ["posterior"])


def test_interaction_and_level_make_an_index(backend, graph):
    posterior = to_arviz(
        {"theta": np.zeros((1, 4, 5))}, hypergraph=graph, names=ArvizNames(coding="corner"), backend=backend
    ).posterior
    indexed = posterior["theta"].set_index(interaction_level=["interaction", "level"])
    assert indexed.sel(interaction="smoke:age", level="n,mid").shape == (1, 4)


def test_tables_layout(backend, graph, tmp_path):
    theta = np.random.default_rng(1).standard_normal((2, 30, 5))
    result = to_arviz({"theta": theta}, hypergraph=graph, names=ArvizNames(layout="tables"), backend=backend)
    posterior = result.posterior
    assert set(posterior.data_vars) == {"theta[smoke]", "theta[age]", "theta[smoke:age]"}
    pair = posterior["theta[smoke:age]"]
    assert pair.dims == ("chain", "draw", "smoke_level", "age_level")
    np.testing.assert_allclose(pair.sum("age_level").values, 0, atol=1e-12)
    tables = parametrization(graph).split(parametrization(graph).to_tables(torch.as_tensor(theta)))
    np.testing.assert_allclose(
        pair.sel(smoke_level="n", age_level="mid").values, tables[("smoke", "age")][..., 1, 1].numpy(), rtol=1e-12
    )
    assert_kept(result, backend, tmp_path / "tables.nc", ["posterior"])


def test_prior_theta_is_named_too(backend, graph):
    result = to_arviz(
        {"theta": np.zeros((1, 4, 5))}, prior={"theta": np.zeros((6, 5))}, hypergraph=graph, backend=backend
    )
    assert list(result.prior["theta"]["interaction"].values) == list(result.posterior["theta"]["interaction"].values)


# Names of sites, and where each stands: those of ArviZ, of the coordinates of theta, of other dimensions, with slashes.
NAMED = {
    "other": "other",
    "level": "level",
    "interaction": "interaction",
    "interaction_level": "interaction_level",
    "theta_level": "theta_level",
    "chain": "chain (site)",
    "draw": "draw (site)",
    "pair_dim_0": "pair_dim_0 (site)",
    "city": "city (site)",
    "scope/x": "scope|x",
    "a/b": "a|b (site)",
}


@pytest.mark.filterwarnings("ignore:Estimated shape parameter of Pareto distribution")
@pytest.mark.parametrize("layout", ["flat", "tables"])
@pytest.mark.parametrize(("name", "stored"), NAMED.items())
def test_no_site_is_dropped_whatever_its_name(backend, name, stored, layout):
    """The oracle is the array that was given, and the same call with a name that nothing has; the names a|b and a/b
    are both sites and columns."""
    rng = np.random.default_rng(4)
    values = {key: rng.normal(size=(2, 5, *shape)) for key, shape in (("theta", (3,)), ("pair", (2,)), ("bus", (1,)))}
    values |= {"a|b": rng.normal(size=(2, 5)), name: rng.normal(size=(2, 5))}
    terms = {f"{name}/terms": -rng.random((2, 5, 3))}
    graph = InteractionHypergraph.from_order(Domain.from_cardinalities({"a/b": 2, "a|b": 2}), 2)
    names = ArvizNames(dims={"bus": ["city"]}, coords={"city": ["one"]}, layout=layout)
    options = {"hypergraph": graph, "names": names, "log_likelihood": terms, "cell_count": [2, 1, 3]}
    data = to_arviz(values, **options, backend=backend)
    plain = to_arviz({"other" if k == name else k: v for k, v in values.items()}, **options, backend=backend)
    posterior = get_group(data, "posterior")
    assert len(posterior.data_vars) == len(get_group(plain, "posterior").data_vars)
    for key, array in values.items():
        if key != "theta":
            found = posterior[stored if key == name else key]
            assert np.array_equal(found.values, array) and found.attrs.get("original_name", found.name) == key
    theta = get_group(plain, "posterior").filter_by_attrs(original_name=None).get("theta")
    if layout == "flat":
        assert theta is not None and np.array_equal(posterior["theta"].values, values["theta"])
        names_of = posterior[posterior["theta"].dims[2]]
        assert list(names_of.values) == theta_coords(graph)["interaction_level"]
        assert len(posterior["theta"].coords) == len(theta.coords)
    else:
        tables = parametrization(graph).split(parametrization(graph).to_tables(torch.as_tensor(values["theta"])))
        for edge, table in tables.items():
            called = f"theta[{':'.join(edge)}]"
            (found,) = (v for k, v in posterior.data_vars.items() if v.attrs.get("original_name", k) == called)
            np.testing.assert_allclose(found.values, table.numpy(), rtol=1e-12)
    plain_loo, loo = (loo_by_cell(one, var_name=f"{name}/terms") for one in (plain, data))
    assert loo_figures(loo) == loo_figures(plain_loo)


@pytest.mark.parametrize("layout", ["flat", "tables"])
def test_files_keep_sites_of_all_these_names(backend, tmp_path, layout):
    rng = np.random.default_rng(4)
    values = {
        "theta": rng.normal(size=(2, 5, 3)),
        "pair": rng.normal(size=(2, 5, 2)),
        "bus": rng.normal(size=(2, 5, 1)),
    }
    values |= {name: rng.normal(size=(2, 5)) for name in ("a|b", *NAMED)}
    graph = InteractionHypergraph.from_order(Domain.from_cardinalities({"a/b": 2, "a|b": 2}), 2)
    data = to_arviz(
        values,
        hypergraph=graph,
        names=ArvizNames(dims={"bus": ["city"]}, coords={"city": ["one"]}, layout=layout),
        log_likelihood={f"{name}/terms": -rng.random((2, 5, 3)) for name in NAMED},
        cell_count={f"{name}/terms": [2, 1, 3] for name in NAMED},
        backend=backend,
    )
    posterior = get_group(data, "posterior")
    assert all(np.array_equal(posterior[stored].values, values[name]) for name, stored in NAMED.items())
    assert_kept(data, backend, tmp_path / "names.nc", ["posterior", "log_likelihood", "constant_data"])


@pytest.mark.parametrize(
    ("site", "size", "coding", "code"),
    [
        ("tehta", 5, "free", "unknown-name"),
        ("theta", 5, "balanced", "wrong-shape"),
        ("theta", 6, "free", "wrong-shape"),
    ],
)
def test_theta_that_does_not_fit(backend, graph, site, size, coding, code):
    with raises(code, "theta"):
        to_arviz({site: np.zeros((1, 4, size))}, hypergraph=graph, names=ArvizNames(coding=coding), backend=backend)


def test_posterior_of_a_log_linear_model(backend, graph):
    counts = torch.tensor([3.0, 1.0, 2.0, 2.0, 5.0, 7.0], dtype=torch.float64)
    codes = torch.tensor([[i, j] for i in range(2) for j in range(3)])
    statistics = (parametrization(graph).statistics(codes) * counts[:, None]).sum(0)

    def model():
        theta = pyro.sample("theta", dist.Normal(torch.zeros(5, dtype=torch.float64), 1.0).to_event(1))
        pyro.sample("t", LogLinearStatistics(graph, theta, counts.sum()), obs=statistics)

    mcmc = _run(RecordingNUTS(model), num_samples=10, warmup_steps=10)
    result = to_arviz(mcmc, hypergraph=graph, backend=backend)
    assert result.posterior["theta"].dims == ("chain", "draw", "interaction_level")
    assert result.posterior["theta"].dtype == np.float64


@pytest.mark.filterwarnings("ignore::matplotlib.MatplotlibDeprecationWarning")
def test_plots(graph):
    """The plots of the installed package ``arviz``; arviz-base alone has none."""
    import matplotlib.pyplot as plt

    engine = choose_backend("arviz")
    az = engine.data if not engine.is_tree else importlib.import_module("arviz")
    result = to_arviz(
        {"theta": np.random.default_rng(2).standard_normal((2, 50, 5))}, hypergraph=graph, backend="arviz"
    )
    plots = (
        az.plot_forest(result, var_names=["theta"], combined=True),
        az.plot_trace(result, **({} if engine.is_tree else {"compact": True})),
        az.plot_rank(result),
    )
    assert all(plot is not None for plot in plots) and plt.get_fignums()
    plt.close("all")


@pytest.mark.parametrize(
    ("installed", "name", "is_tree"),
    [
        ({"arviz": "0.23.4"}, None, False),
        ({"arviz": "0.23.4"}, "arviz", False),
        ({"arviz": "1.0.0", "arviz-base": "1.0", "arviz-stats": "1.0"}, None, True),
        ({"arviz": "1.2.0", "arviz-base": "1.0", "arviz-stats": "1.0"}, "arviz", True),
        ({"arviz-base": "0.8.2", "arviz-stats": "0.8.0"}, None, True),
        ({"arviz-base": "0.8.2"}, "arviz_base", True),
        ({"arviz": "0.23.4"}, "arviz_base", None),
        ({"arviz-base": "0.8.2"}, "arviz", None),
        ({}, None, None),
    ],
)
def test_choice_follows_what_is_installed(monkeypatch, installed, name, is_tree):
    monkeypatch.setattr("pyro_hoim.interop.backend.installed_version", installed.get)
    if is_tree is None:
        with pytest.raises(InputError, match="not installed"):
            choose_backend(name)
    else:
        assert choose_backend(name).is_tree is is_tree


def test_default_backend_is_arviz():
    assert choose_backend() == choose_backend("arviz")
    is_tree = choose_backend().is_tree
    assert type(to_arviz({"x": np.zeros((1, 4))})).__name__ == ("DataTree" if is_tree else "InferenceData")
    assert choose_backend("arviz_base").is_tree


# Posteriors over structure in both generations of ArviZ: named interactions, theta, constants, stuck chains.

DOMAIN = Domain.from_labels({"smoke": ["n", "y"], "age": ["old", "mid", "new"], "sex": ["f", "m"]})
ROWS = Observations.from_table(DOMAIN, np.array([[[20, 9], [6, 4], [3, 3]], [[5, 6], [8, 4], [14, 9]]]))
PRIOR = StructurePrior(DOMAIN, inclusion=0.4)
NAMES = ["smoke:age", "smoke:sex", "age:sex", "smoke:age:sex"]


@pytest.fixture(scope="module")
def listed():
    return enumerate_structures(ROWS, "unit", PRIOR)


def test_chains_are_the_draws_with_theta_zero_where_absent(backend, tmp_path):
    drawn = sample_structures(ROWS, "unit", PRIOR, ChainSettings(3, 300, 20), seed=2)
    state = torch.get_rng_state()
    data = to_arviz(drawn, backend=backend)
    assert torch.equal(torch.get_rng_state(), state)
    found = get_group(data, "posterior")
    assert found["inclusion"].dims == ("chain", "draw", "interaction")
    assert list(found["interaction"].values) == NAMES and np.issubdtype(found["inclusion"].dtype, np.integer)
    gamma = drawn.gamma[drawn.index]
    assert np.array_equal(found["inclusion"].values, gamma.numpy())
    assert found["theta"].dims == ("chain", "draw", "interaction_level")
    assert np.array_equal(found["theta"].values != 0, PRIOR.parameter_mask(gamma.double()).numpy() != 0)
    assert str(found["theta"].sel(interaction_level="smoke:age[y,mid]")["theta_interaction"].values) == "smoke:age"
    stats, constants = get_group(data, "sample_stats"), get_group(data, "constant_data")
    assert np.array_equal(stats["log_evidence"].values, drawn.log_evidence[drawn.index].numpy())
    assert (stats["temperature"].values == 1).all()
    assert constants["prior_inclusion"].dims == ("interaction",)
    assert constants["prior_inclusion"].values.tolist() == pytest.approx(PRIOR.marginal_inclusion.tolist())
    assert json.loads(found.attrs["status"]) == drawn.status and not json.loads(found.attrs["independent_draws"])
    own = replace(drawn, theta=PRIOR.parameter_mask(gamma.double()))  # chains that draw theta themselves
    assert np.array_equal(get_group(to_arviz(own, backend=backend), "posterior")["theta"].values, own.theta.numpy())
    data.to_netcdf(str(tmp_path / "posterior.nc"))
    with xarray.open_dataset(tmp_path / "posterior.nc", group="posterior") as kept:
        assert np.array_equal(kept["inclusion"].values, found["inclusion"].values)
    with raises("out-of-range", "num_chains"):
        to_arviz(drawn, num_chains=2)


def test_lists_and_weights_are_shown_by_independent_draws(listed, backend):
    found = get_group(to_arviz(listed, backend=backend), "posterior")
    assert found["inclusion"].shape == (4, 1000, 4) and json.loads(found.attrs["independent_draws"])
    places = {mask: k for k, mask in enumerate(PRIOR.space.masks_of(listed.gamma.numpy()))}
    masks = PRIOR.space.masks_of(found["inclusion"].values.reshape(-1, 4) == 1)
    counts = np.bincount([places[mask] for mask in masks], minlength=len(places))
    assert_exact_law(counts, listed.probabilities.numpy())
    with pytest.raises(AssertionError):
        assert_exact_law(counts, np.full(len(places), 1 / len(places)))  # control
    trees = average_decomposable(ROWS, num_draws=500, seed=1)
    assert get_group(to_arviz(trees, num_chains=2, backend=backend), "posterior")["inclusion"].shape == (2, 1000, 4)


@pytest.mark.parametrize(("ends", "r_hat"), [((0, -1), np.inf), pytest.param((-1, -1), np.nan, id="control: alike")])
def test_stuck_indicators_have_an_infinite_r_hat(listed, backend, ends, r_hat):
    index = torch.tensor(ends)[:, None].expand(2, 50) % listed.num_structures
    stuck = StructurePosterior(
        listed.evidence, PRIOR, listed.gamma, listed.log_evidence, listed.probabilities, index=index
    )
    table = summarise(to_arviz(stuck, backend=backend), var_names=["inclusion", "theta"], kind="diagnostics")
    found = table["r_hat"][[f"inclusion[{name}]" for name in NAMES]].to_numpy(float)
    assert np.array_equal(found, [r_hat] * 4, equal_nan=True) and np.isfinite(table["r_hat"]["theta[smoke[y]]"])


@pytest.mark.filterwarnings("ignore::pyro_hoim.errors.ConvergenceWarning")  # of thirty draws
def test_odd_sizes(backend, listed, monkeypatch):
    monkeypatch.setattr(posterior_module, "_MAX_THETA", 1000)
    assert list(get_group(to_arviz(listed, backend=backend), "posterior").data_vars) == ["inclusion"]
    one = enumerate_structures(Observations.from_table(Domain.from_cardinalities([2]), np.array([5, 2])))
    assert get_group(to_arviz(one, backend=backend), "posterior")["inclusion"].shape == (4, 1000, 0)
    seven = Domain.from_cardinalities([2] * 7)
    rows = Observations.from_tensor(torch.zeros(0, 7, dtype=torch.long), seven)
    free = sample_structures(rows, "unit", StructurePrior(seven, max_order=3), ChainSettings(2, 30, 2), seed=1)
    data = to_arviz(free, backend=backend)  # the space is not listed, so that the prior is known up to a constant
    assert get_group(data, "constant_data") is None and get_group(data, "posterior")["inclusion"].shape == (2, 30, 56)
    assert choose_backend(data=data) == choose_backend(backend)
