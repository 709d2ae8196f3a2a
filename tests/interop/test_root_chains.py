"""Long runs of generalized root chains in ArviZ."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from pyro_hoim.errors import InputError, InputTypeError, UnknownNameError
from pyro_hoim.generalized_root import GeneralizedRootEnergy, PoissonFamily, RootChains, RootStructure
from pyro_hoim.interop import chains_to_arviz, diagnose_chains, get_group
from pyro_hoim.runs import ChainRun, sample_chains
from pyro_hoim.schema import Domain, Variable
from pyro_hoim.testing import assert_close


def model(pair: float = 0.3) -> GeneralizedRootEnergy:
    domain = Domain([Variable(name, kind="count") for name in "abc"])
    structure = RootStructure.simplified(domain, [("a", "b"), ("a", "b", "c")])
    return GeneralizedRootEnergy(
        structure, torch.tensor([0.5, 0.0, -0.5, pair, -0.1], dtype=torch.float64), PoissonFamily()
    )


def run_of(num_draws: int = 30, num_chains: int = 4, record: Any = None, **options: Any) -> ChainRun[RootChains]:
    chains = RootChains(model(), num_chains, seed=torch.Generator().manual_seed(5), **options)
    return sample_chains(chains, num_draws, burn_in=7, thin=3, record=record)


def test_arviz_diagnoses_a_run() -> None:
    run = run_of(200, clamped={"c": 2.0})
    report = diagnose_chains(run, functions={"total": lambda x: x.sum(-1)})
    assert [row.name for row in report] == ["log_q", "a", "b", "c", "total"]
    assert report.constants == {"c": 2.0}
    assert report.max_r_hat is not None and report.max_r_hat < 1.05
    assert report.min_ess is not None and report.min_ess > 100
    assert_close(report["a"].mean, run.values("a").mean())
    assert [row.name for row in diagnose_chains(run, variables=["b"])] == ["log_q", "b"]
    data = chains_to_arviz(run)
    assert run.energies is not None
    posterior = get_group(data, "posterior")
    assert posterior["value"].dims == ("chain", "draw", "value_name")
    assert posterior["value_name"].values.tolist() == ["a", "b", "c"]
    assert_close(posterior["value"].values.swapaxes(0, 1), run.draws)
    assert_close(posterior["log_q"].values.T, -run.energies)


def test_diagnostics_see_chains_that_do_not_mix() -> None:
    start = torch.tensor([[0.0, 0.0, 0.0], [0.0, 0.0, 60.0]], dtype=torch.float64)
    given = {"c": start[:, 2]}
    run = run_of(50, num_chains=2, init=start, clamped=given)
    report = diagnose_chains(run)
    assert report["c"].r_hat == float("inf")
    assert report.max_r_hat is not None and report.max_r_hat > 1.5


def test_bad_input() -> None:
    with pytest.raises(InputTypeError, match="model"):
        diagnose_chains("run")  # type: ignore[arg-type]
    with pytest.raises(InputTypeError, match="model"):
        chains_to_arviz("run")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="the run recorded no draws or no energies"):
        diagnose_chains(run_of(record="draws"))
    with pytest.raises(InputError, match="at least 4 draws"):
        diagnose_chains(run_of(3))
    run = run_of(10)
    with pytest.raises(UnknownNameError):
        diagnose_chains(run, variables=["z"])
    with pytest.raises(InputError, match="taken"):
        diagnose_chains(run, functions={"a": lambda x: x[..., 0]})
