"""Diagnostics of discrete chains against ArviZ, direct computation and chains whose faults are known."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import torch

from pyro_hoim.errors import InputError, InputTypeError, UnknownNameError
from pyro_hoim.inference import BlockGibbs, run_mcmc
from pyro_hoim.interop import (
    ChainDiagnostics,
    chains_to_arviz,
    choose_backend,
    diagnose_chains,
    get_group,
)
from pyro_hoim.log_linear import GibbsChains, HierarchicalLogLinear
from pyro_hoim.runs import sample_chains
from pyro_hoim.schema import Domain
from pyro_hoim.structure import InteractionHypergraph
from pyro_hoim.testing import assert_close, random_tables

DOMAIN = Domain.from_labels({"smoke": ["y", "n"], "age": ["old", "mid", "new"], "site": ["A", "B"]})
HYPERGRAPH = InteractionHypergraph.from_order(DOMAIN, 2)
LAW = HierarchicalLogLinear.from_tables(
    HYPERGRAPH, torch.from_numpy(random_tables(HYPERGRAPH, np.random.default_rng(0), scale=0.5))
)


@pytest.fixture(params=["arviz", "arviz_base"])
def backend(request) -> str:
    return request.param


@pytest.fixture(autouse=True)
def no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def independent(chains: int = 4, draws: int = 200, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.stack([rng.integers(0, n, (chains, draws)) for n in DOMAIN.cardinalities], axis=-1)


def test_figures_are_those_of_arviz_on_the_statistic(backend):
    codes = independent()
    report = diagnose_chains(
        LAW, codes, edges=[("age", "smoke")], functions={"sum": lambda x: x.sum(-1)}, backend=backend
    )
    arviz = choose_backend(backend).stats
    columns = {
        "energy": LAW.energy(torch.from_numpy(codes)).numpy(),
        "smoke:age[n,mid]": ((codes[..., 0] == 1) & (codes[..., 1] == 1)).astype(float),
        "age[new]": (codes[..., 1] == 2).astype(float),
        "sum": codes.sum(-1).astype(float),
    }
    for name, values in columns.items():
        row = report[name]
        assert_close(row.mean, values.mean())
        assert_close(row.sd, values.std(ddof=1))
        assert_close(row.r_hat, np.squeeze(arviz.rhat(values)), relative=1e-8)
        assert_close(row.ess_bulk, np.squeeze(arviz.ess(values)), relative=1e-8)
        assert_close(row.ess_tail, np.squeeze(arviz.ess(values, method="tail", prob=(0.05, 0.95))), relative=1e-8)
        assert_close(row.mcse_mean, np.squeeze(arviz.mcse(values)), relative=1e-8)
        assert not row.is_constant
    assert len(report) == 1 + 6 + 7 + 1
    assert [row.kind for row in report] == ["energy"] + ["cell"] * 6 + ["level"] * 7 + ["function"]


def test_constant_statistics_are_constant_and_not_nan(backend):
    codes = independent()
    codes[..., 2] = 1
    report = diagnose_chains(HYPERGRAPH, codes, edges="all", energies=np.full((4, 200), 3.5), backend=backend)
    assert report["energy"].is_constant
    assert report.constants["energy"] == 3.5
    assert report.constants["site[A]"] == 0.0
    assert report.constants["site[B]"] == 1.0
    assert report.constants["smoke:site[y,A]"] == 0.0
    assert not report["smoke[y]"].is_constant
    row = report["site[B]"]
    assert (row.mcse_mean, row.ess_bulk, row.ess_tail, row.r_hat, row.sd) == (None, None, None, None, 0.0)
    frame = report.to_frame()
    assert frame.index.name == "statistic"
    assert bool(frame.loc["site[B]", "is_constant"])
    assert frame["r_hat"].isna().sum() == len(report.constants)
    assert not any(isinstance(v, float) and math.isnan(v) for v in frame["r_hat"].dropna())
    text = str(report)
    assert "site[B]" in text
    assert "constant" in text
    assert "nan" not in text.lower()


def test_everything_constant(backend):
    report = diagnose_chains(HYPERGRAPH, np.zeros((2, 10, 3), dtype=int), backend=backend)
    assert len(report.constants) == len(report) == 7
    assert report.max_r_hat is None
    assert report.min_ess is None


def test_stuck_chains_have_infinite_r_hat(backend):
    codes = independent()
    codes[..., 0] = np.array([0, 1, 0, 1])[:, None]
    report = diagnose_chains(HYPERGRAPH, codes, backend=backend)
    assert report["smoke[y]"].r_hat == math.inf
    assert report.max_r_hat == math.inf
    assert "inf" in str(report)
    assert report["age[old]"].r_hat < 1.05


def test_chains_that_disagree_are_seen_and_one_chain_has_no_r_hat(backend):
    codes = independent()
    codes[0, :150, 1] = 0
    report = diagnose_chains(HYPERGRAPH, codes, backend=backend)
    assert report["age[old]"].r_hat > 1.1
    assert report["smoke[y]"].r_hat < 1.05
    single = diagnose_chains(HYPERGRAPH, codes[1:2], backend=backend)
    assert all(row.r_hat is None for row in single)
    assert single.max_r_hat is None
    assert single["smoke[y]"].ess_bulk > 10
    assert "no R-hat" in str(single)


def test_rare_levels_leak_no_warning(backend):
    codes = np.zeros((4, 100, 3), dtype=int)
    codes[0, 50, 1] = 1
    codes[1, 20, 2] = 1
    report = diagnose_chains(HYPERGRAPH, codes, edges="all", backend=backend)
    for row in report:
        for value in (row.mean, row.sd, row.ess_bulk, row.ess_tail, row.mcse_mean, row.r_hat):
            assert value is None or not math.isnan(value), row


def test_recorded_chains_and_runs_fit(backend):
    chains = GibbsChains(LAW.energy_model, 4, seed=1, engine="torch")
    record = chains.sweep(200, thin=2, states=True, energies=True)
    codes, energies = record.states.transpose(0, 1), record.energies.transpose(0, 1)
    given = diagnose_chains(HYPERGRAPH, codes, energies=energies, backend=backend)
    computed = diagnose_chains(LAW, codes, backend=backend)
    assert_close(given["energy"].mean, computed["energy"].mean, relative=1e-9)
    chains = GibbsChains(LAW.energy_model, 4, seed=1, engine="torch")
    stored = sample_chains(chains, 100, thin=2, record=("draws", "energies"))
    report = diagnose_chains(LAW, stored, backend=backend)  # the axes of a run are turned
    assert (report.num_chains, report.num_draws) == (4, 100)
    turned = diagnose_chains(LAW, stored.draws.transpose(0, 1), backend=backend)
    assert_close(report["energy"].ess_bulk, turned["energy"].ess_bulk, relative=1e-9)
    assert chains_to_arviz(LAW, stored, backend=backend).posterior.sizes["chain"] == 4
    run = run_mcmc(BlockGibbs(LAW, engine="torch"), 300, burn_in=20, num_chains=4, seed=1, progress=False)
    report = diagnose_chains(LAW, run.samples["x"], energies=run.sample_stats["energy"], edges="all", backend=backend)
    exact = LAW.eta.numpy()
    cells = [row.mean for row in report if row.kind == "cell"]
    errors = [row.mcse_mean for row in report if row.kind == "cell"]
    assert np.all(np.abs(np.array(cells) - exact) < 6 * np.array(errors))
    assert report.max_r_hat < 1.1
    assert 0 < report.min_ess <= 4 * 300 * 3


def test_arviz_data_have_named_coordinates(backend):
    codes = independent()
    data = chains_to_arviz(
        LAW,
        codes,
        edges=[("smoke", "site")],
        variables=["age"],
        functions={"sum": lambda x: x.sum(-1)},
        backend=backend,
    )
    posterior = get_group(data, "posterior")
    assert set(posterior.data_vars) == {"energy", "cell", "level", "sum"}
    assert list(posterior["cell_name"].values) == [f"smoke:site[{a},{b}]" for a in "yn" for b in "AB"]
    assert np.array_equal(posterior["level"].sel(level_name="age[mid]").values, (codes[..., 1] == 1).astype(float))
    assert posterior["energy"].dims == ("chain", "draw")
    assert choose_backend(data=data).is_tree == choose_backend(backend).is_tree


CODES = independent(2, 10)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"model": 3}, InputTypeError, "model: expected a hypergraph"),
        ({"codes": CODES[0]}, InputError, r"codes: expected shape \(chains, draws, 3\)"),
        ({"codes": CODES[:, :3]}, InputError, "at least 4 draws"),
        ({"codes": CODES + 2}, InputError, "codes: expected whole numbers from 0 to"),
        ({"codes": CODES + 0.5}, InputError, "codes: expected whole numbers"),
        ({"energies": np.zeros((10, 2))}, InputError, r"energies: expected shape \(2, 10\)"),
        ({"energies": np.full((2, 10), np.nan)}, InputError, "energies: expected finite"),
        ({"edges": [("smoke", "agee")]}, UnknownNameError, "'age'"),
        ({"edges": [("smoke", "age", "site")]}, InputError, "no interaction of the hypergraph"),
        ({"edges": "none"}, InputTypeError, "or 'all'"),
        ({"edges": ["smoke"]}, InputTypeError, "sequences of names"),
        ({"variables": ["agee"]}, UnknownNameError, "'age'"),
        ({"variables": "age"}, InputTypeError, "variables: expected a sequence"),
        ({"variables": ()}, InputError, "nothing to look at"),
        ({"functions": {"f": lambda x: x}}, InputError, r"functions\['f'\]: expected shape"),
        ({"functions": {"energy": lambda x: x.sum(-1)}}, InputError, "are taken"),
        ({"backend": "other"}, InputError, "backend: expected"),
    ],
)
def test_bad_input(options, error, message):
    with pytest.raises(error, match=message):
        diagnose_chains(**{"model": HYPERGRAPH, "codes": CODES, **options})


def test_runs_without_codes_or_of_a_batch_are_refused():
    with pytest.raises(InputError, match="the run recorded no draws"):
        diagnose_chains(LAW, sample_chains(GibbsChains(LAW.energy_model, 4, engine="torch"), 8))
    batch = LAW.energy_model.expand([2])
    with pytest.raises(InputError, match="one of a batch"):
        diagnose_chains(LAW, sample_chains(GibbsChains(batch, 4, engine="torch"), 8, record="draws"))


def test_unknown_statistic():
    report = diagnose_chains(HYPERGRAPH, CODES)
    assert isinstance(report, ChainDiagnostics)
    with pytest.raises(UnknownNameError, match=r"smoke\[y\]"):
        _ = report["smoke[z]"]
