"""Diagnostics of chains against ArviZ, direct computation and chains whose faults are known."""

import math
import warnings

import numpy as np
import pytest
import torch

from pyro_hoim.errors import InputError
from pyro_hoim.generalized_root import GeneralizedRootEnergy, PoissonFamily, RootChains, RootStructure
from pyro_hoim.inference import BlockGibbs, run_mcmc
from pyro_hoim.interop import choose_backend, diagnose_chains
from pyro_hoim.log_linear import GibbsChains, HierarchicalLogLinear
from pyro_hoim.runs import sample_chains
from pyro_hoim.schema import Domain, Variable
from pyro_hoim.structure import InteractionHypergraph
from pyro_hoim.testing import assert_close, raises, random_tables

DOMAIN = Domain.from_labels({"smoke": ["y", "n"], "age": ["old", "mid", "new"], "site": ["A", "B"]})
HYPERGRAPH = InteractionHypergraph.from_order(DOMAIN, 2)
LAW = HierarchicalLogLinear.from_tables(
    HYPERGRAPH, torch.from_numpy(random_tables(HYPERGRAPH, np.random.default_rng(0), scale=0.5))
)
FIGURES = ["mcse_mean", "ess_bulk", "ess_tail", "r_hat"]


@pytest.fixture(autouse=True)
def no_warnings():
    with warnings.catch_warnings(action="error"):
        yield


def independent(chains=4, draws=200, seed=0):
    rng = np.random.default_rng(seed)
    return np.stack([rng.integers(0, n, (chains, draws)) for n in DOMAIN.cardinalities], axis=-1)


def chains_of(num_chains=4, model=LAW.energy_model):
    return GibbsChains(model, num_chains, seed=1, engine="torch")


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
        expected = (
            values.mean(),
            values.std(ddof=1),
            np.squeeze(arviz.mcse(values)),
            np.squeeze(arviz.ess(values)),
            np.squeeze(arviz.ess(values, method="tail", prob=(0.05, 0.95))),
            np.squeeze(arviz.rhat(values)),
        )
        found = report.loc[name, ["mean", "sd", *FIGURES]].to_numpy(float)
        assert_close(found, np.array(expected, dtype=float), relative=1e-8)
    assert not report["is_constant"].any()
    assert list(report["kind"]) == ["energy"] + ["cell"] * 6 + ["level"] * 7 + ["function"]


def test_constant_statistics_are_constant_and_not_nan(backend):
    codes = independent()
    codes[..., 2] = 1
    report = diagnose_chains(HYPERGRAPH, codes, edges="all", energies=np.full((4, 200), 3.5), backend=backend)
    constants = report[report["is_constant"]]
    assert constants["mean"][["energy", "site[A]", "site[B]", "smoke:site[y,A]"]].tolist() == [3.5, 0.0, 1.0, 0.0]
    assert "smoke[y]" not in constants.index
    assert (constants["sd"] == 0).all() and constants[FIGURES].isna().all().all()
    assert report["r_hat"].isna().sum() == len(constants)
    assert not any(math.isnan(v) for v in report["r_hat"].dropna())
    everything = diagnose_chains(HYPERGRAPH, np.zeros((2, 10, 3), dtype=int), backend=backend)
    assert len(everything) == 7 and everything["is_constant"].all()


def test_stuck_chains_have_infinite_r_hat(backend):
    codes = independent()
    codes[..., 0] = np.array([0, 1, 0, 1])[:, None]
    r_hat = diagnose_chains(HYPERGRAPH, codes, backend=backend)["r_hat"]
    assert r_hat["smoke[y]"] == r_hat.max() == math.inf and r_hat["age[old]"] < 1.05


def test_chains_that_disagree_are_seen_and_one_chain_has_no_r_hat(backend):
    codes = independent()
    codes[0, :150, 1] = 0
    r_hat = diagnose_chains(HYPERGRAPH, codes, backend=backend)["r_hat"]
    assert r_hat["age[old]"] > 1.1 and r_hat["smoke[y]"] < 1.05
    single = diagnose_chains(HYPERGRAPH, codes[1:2], backend=backend)
    assert single["r_hat"].isna().all() and single.loc["smoke[y]", "ess_bulk"] > 10


def test_rare_levels_leak_no_warning(backend):
    codes = np.zeros((4, 100, 3), dtype=int)
    codes[0, 50, 1] = 1
    codes[1, 20, 2] = 1
    report = diagnose_chains(HYPERGRAPH, codes, edges="all", backend=backend)
    moving = report[~report["is_constant"]]
    assert not np.isnan(moving[["mean", "sd", *FIGURES]].to_numpy(float)).any()


def test_recorded_chains_and_runs_fit(backend):
    record = chains_of().sweep(200, thin=2, states=True, energies=True)
    codes, energies = record.states.transpose(0, 1), record.energies.transpose(0, 1)
    given = diagnose_chains(HYPERGRAPH, codes, energies=energies, backend=backend)
    computed = diagnose_chains(LAW, codes, backend=backend)
    assert_close(given.loc["energy", "mean"], computed.loc["energy", "mean"], relative=1e-9)
    stored = sample_chains(chains_of(), 100, thin=2, record=("draws", "energies"))
    report = diagnose_chains(LAW, stored, backend=backend)  # the axes of a run are turned
    turned = diagnose_chains(LAW, stored.draws.transpose(0, 1), backend=backend)
    assert_close(report.loc["energy", "ess_bulk"], turned.loc["energy", "ess_bulk"], relative=1e-9)
    run = run_mcmc(BlockGibbs(LAW, engine="torch"), 300, burn_in=20, num_chains=4, seed=1, progress=False)
    report = diagnose_chains(LAW, run.samples["x"], energies=run.sample_stats["energy"], edges="all", backend=backend)
    cells = report[report["kind"] == "cell"]
    assert ((cells["mean"] - LAW.eta.numpy()).abs() < 6 * cells["mcse_mean"]).all()
    assert report["r_hat"].max() < 1.1
    assert 0 < report[["ess_bulk", "ess_tail"]].min().min() <= 4 * 300 * 3


# Runs of numbers


def run_of(num_draws=30, num_chains=4, record=None, **options):
    structure = RootStructure.simplified(
        Domain([Variable(name, kind="count") for name in "abc"]), [("a", "b"), ("a", "b", "c")]
    )
    psi = torch.tensor([0.5, 0.0, -0.5, 0.3, -0.1], dtype=torch.float64)
    model = GeneralizedRootEnergy(structure, psi, PoissonFamily())
    chains = RootChains(model, num_chains, seed=torch.Generator().manual_seed(5), **options)
    return sample_chains(chains, num_draws, burn_in=7, thin=3, record=record)


def test_arviz_diagnoses_a_run_of_numbers():
    run = run_of(200, clamped={"c": 2.0})
    report = diagnose_chains(run, functions={"total": lambda x: x.sum(-1)})
    assert list(report.index) == ["log_q", "a", "b", "c", "total"]
    assert report["mean"][report["is_constant"]].to_dict() == {"c": 2.0} and report["r_hat"].max() < 1.05
    assert report[["ess_bulk", "ess_tail"]].min().min() > 100
    assert_close(report.loc["a", "mean"], run.values("a").mean())
    assert_close(report.loc["log_q", "mean"], -run.energies.mean())
    assert list(diagnose_chains(run, variables=["b"]).index) == ["log_q", "b"]


def test_diagnostics_see_chains_of_numbers_that_do_not_mix():
    start = torch.tensor([[0.0, 0.0, 0.0], [0.0, 0.0, 60.0]], dtype=torch.float64)
    r_hat = diagnose_chains(run_of(50, num_chains=2, init=start, clamped={"c": start[:, 2]}))["r_hat"]
    assert r_hat["c"] == math.inf and r_hat.drop("c").max() > 1.5


# Bad input

CODES = independent(2, 10)
BATCH = LAW.energy_model.expand([2])


@pytest.mark.parametrize(
    ("options", "code", "argument"),
    [
        ({"model": 3}, "wrong-type", "model"),
        ({"codes": CODES[0]}, "wrong-shape", "codes"),
        ({"codes": CODES[:, :3]}, "out-of-range", "codes"),
        ({"codes": CODES + 2}, "out-of-range", "codes"),
        ({"codes": CODES + 0.5}, "out-of-range", "codes"),
        ({"energies": np.zeros((10, 2))}, "wrong-shape", "energies"),
        ({"energies": np.full((2, 10), np.nan)}, "not-finite", "energies"),
        ({"edges": [("smoke", "agee")]}, "unknown-name", "edges"),
        ({"edges": [("smoke", "age", "site")]}, "unknown-name", "edges"),
        ({"edges": "none"}, "wrong-type", "edges"),
        ({"edges": ["smoke"]}, "wrong-type", "edges"),
        ({"variables": ["agee"]}, "unknown-name", "variables"),
        ({"variables": "age"}, "wrong-type", "variables"),
        ({"variables": ()}, "missing-part", "variables"),
        ({"functions": {"f": lambda x: x}}, "wrong-shape", "functions['f']"),
        ({"functions": {"energy": lambda x: x.sum(-1)}}, "repeated-name", "functions"),
        ({"backend": "other"}, "unknown-choice", "backend"),
        ({"model": "run", "codes": None}, "wrong-type", "model"),
        ({"model": run_of(record="draws"), "codes": None}, "conflict", "model"),
        ({"model": run_of(3), "codes": None}, "out-of-range", "model"),
        ({"model": run_of(10), "codes": None, "variables": ["z"]}, "unknown-name", "variables"),
        ({"model": run_of(10), "codes": None, "functions": {"a": lambda x: x[..., 0]}}, "repeated-name", "functions"),
        ({"codes": sample_chains(chains_of(), 8)}, "conflict", "codes"),
        (
            {"codes": sample_chains(chains_of(model=LAW.energy_model.expand([2])), 8, record="draws")},
            "wrong-shape",
            "codes",
        ),
    ],
)
def test_bad_input(options, code, argument):
    with raises(code, argument):
        diagnose_chains(**{"model": HYPERGRAPH, "codes": CODES, **options})


def test_a_run_without_draws_says_what_to_record():
    with pytest.raises(InputError, match="the run recorded no draws; run sample_chains with record="):
        diagnose_chains(LAW, sample_chains(chains_of(), 8))
