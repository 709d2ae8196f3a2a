"""Long runs of generalized root chains: records, checkpoints, interruption and ArviZ."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from pyro_hoim.errors import InputError, InputTypeError, UnknownNameError
from pyro_hoim.generalized_root import (
    GeneralizedRootEnergy,
    PoissonFamily,
    RootChains,
    RootRun,
    RootStructure,
    sample_root_chains,
)
from pyro_hoim.generalized_root.chains import run as module
from pyro_hoim.interop import chains_to_arviz, diagnose_chains, get_group
from pyro_hoim.schema import Domain, Variable
from pyro_hoim.testing import assert_close


def model(pair: float = 0.3) -> GeneralizedRootEnergy:
    domain = Domain([Variable(name, kind="count") for name in "abc"])
    structure = RootStructure.simplified(domain, [("a", "b"), ("a", "b", "c")])
    return GeneralizedRootEnergy(
        structure, torch.tensor([0.5, 0.0, -0.5, pair, -0.1], dtype=torch.float64), PoissonFamily()
    )


def run_of(num_draws: int = 30, **options: Any) -> RootRun:
    settings = {"num_chains": 4, "warmup": 7, "thin": 3, "generator": torch.Generator().manual_seed(5), **options}
    return sample_root_chains(model(), num_draws, **settings)


def assert_equal_runs(first: RootRun, second: RootRun) -> None:
    assert torch.equal(first.draws, second.draws)
    assert torch.equal(first.log_q, second.log_q)
    assert torch.equal(first.chains.states, second.chains.states)


@pytest.mark.parametrize("unit", [1, 20, 10**9])
def test_draws_are_those_of_the_chains(unit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_UPDATES_PER_CALL", unit)
    run = run_of()
    chains = RootChains(model(), 4, generator=torch.Generator().manual_seed(5))
    chains.sweep(7)
    for t in range(30):
        chains.sweep(3)
        assert torch.equal(run.draws[:, t], chains.states)
        assert torch.equal(run.log_q[:, t], chains.log_q())
    assert (run.num_chains, run.num_draws, run.warmup, run.thin) == (4, 30, 7, 3)
    assert torch.equal(run.values("b"), run.draws[..., 1])
    assert_close(run.log_q, -model().energy(run.draws))
    with pytest.raises(UnknownNameError):
        run.values("z")


@pytest.mark.parametrize("stop_after", [1, 3])
def test_an_interrupted_run_continues_with_the_same_bits(
    stop_after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_UPDATES_PER_CALL", 12 * 5)
    whole = run_of()
    file = tmp_path / "run.safetensors"
    advance, steps = module._RootJob.advance, []

    def interrupted(job: Any) -> int:
        steps.append(1)
        if len(steps) == stop_after:
            os.kill(os.getpid(), signal.SIGINT)
        return advance(job)

    with monkeypatch.context() as patch:
        patch.setattr(module._RootJob, "advance", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run_of(checkpoint=file)
    assert file.exists()
    assert_equal_runs(run_of(checkpoint=file, resume=True), whole)
    assert_equal_runs(run_of(checkpoint=file, resume=True), whole)  # a finished run gives its result


def test_checkpoints_of_other_runs_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "run.safetensors"
    run_of(checkpoint=file)
    with pytest.raises(InputError, match="exists"):
        run_of(checkpoint=file)
    others = [{"warmup": 8}, {"thin": 1}, {"num_chains": 3}, {"given": {"a": 1.0}}, {"start": torch.zeros(3)}]
    for other in [*others, {"generator": torch.Generator().manual_seed(6)}]:
        with pytest.raises(InputError, match="belongs to a run"):
            run_of(checkpoint=file, resume=True, **other)
    with pytest.raises(InputError, match="belongs to a run"):
        sample_root_chains(
            model(0.4),
            30,
            num_chains=4,
            warmup=7,
            thin=3,
            generator=torch.Generator().manual_seed(5),
            checkpoint=file,
            resume=True,
        )
    with pytest.raises(InputError, match="resume"):
        run_of(resume=True)


def test_a_progress_bar(capsys: pytest.CaptureFixture[str]) -> None:
    run_of(progress=True)
    assert "sweep" in capsys.readouterr().err


def test_arviz_diagnoses_a_run() -> None:
    run = run_of(200, given={"c": 2.0})
    report = diagnose_chains(run, functions={"total": lambda x: x.sum(-1)})
    assert [row.name for row in report] == ["log_q", "a", "b", "c", "total"]
    assert report.constants == {"c": 2.0}
    assert report.max_r_hat is not None and report.max_r_hat < 1.05
    assert report.min_ess is not None and report.min_ess > 100
    assert_close(report["a"].mean, run.values("a").mean())
    assert [row.name for row in diagnose_chains(run, variables=["b"])] == ["log_q", "b"]
    data = chains_to_arviz(run)
    posterior = get_group(data, "posterior")
    assert posterior["value"].dims == ("chain", "draw", "value_name")
    assert posterior["value_name"].values.tolist() == ["a", "b", "c"]
    assert_close(posterior["value"].values, run.draws)
    assert_close(posterior["log_q"].values, run.log_q)


def test_diagnostics_see_chains_that_do_not_mix() -> None:
    start = torch.tensor([[0.0, 0.0, 0.0], [0.0, 0.0, 60.0]], dtype=torch.float64)
    given = {"c": start[:, 2]}
    run = run_of(50, num_chains=2, start=start, given=given)
    report = diagnose_chains(run)
    assert report["c"].r_hat == float("inf")
    assert report.max_r_hat is not None and report.max_r_hat > 1.5


def test_bad_input() -> None:
    with pytest.raises(InputError, match="num_draws"):
        run_of(0)
    with pytest.raises(InputError, match="thin"):
        run_of(thin=0)
    with pytest.raises(InputError, match="warmup"):
        run_of(warmup=-1)
    with pytest.raises(InputTypeError, match="model"):
        diagnose_chains("run")  # type: ignore[arg-type]
    with pytest.raises(InputTypeError, match="model"):
        chains_to_arviz("run")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="at least 4 draws"):
        diagnose_chains(run_of(3))
    run = run_of(10)
    with pytest.raises(UnknownNameError):
        diagnose_chains(run, variables=["z"])
    with pytest.raises(InputError, match="taken"):
        diagnose_chains(run, functions={"a": lambda x: x[..., 0]})
