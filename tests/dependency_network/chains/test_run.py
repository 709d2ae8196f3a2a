"""Long runs of pseudo-Gibbs chains: estimates against exact laws, records, checkpoints and ArviZ."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import t as student

from pyro_hoim.dependency_network import (
    DependencyConditionals,
    PseudoGibbsChains,
    PseudoGibbsRun,
    TableConditional,
    sample_pseudo_gibbs,
    stationary_law,
)
from pyro_hoim.dependency_network.chains import run as module
from pyro_hoim.errors import ConvergenceWarning, InputError, UnknownNameError
from pyro_hoim.interop import chains_to_arviz, diagnose_chains, get_group
from pyro_hoim.schema import Domain
from pyro_hoim.testing import FALSE_ALARM_RATE

DOMAIN = Domain.from_labels({"a": ["no", "yes"], "b": ["x", "y", "z"], "c": ["0", "1"]})
ENGINE = "torch"  # needs no compiler; the engines have tests of their own


def network(seed: int = 0) -> DependencyConditionals:
    """Every variable reads the two others; no joint law."""
    rng = np.random.default_rng(seed)

    def table(name: str) -> TableConditional:
        parents = [other for other in DOMAIN.names if other != name]
        shape = [DOMAIN[other].cardinality for other in parents]
        return TableConditional(
            DOMAIN, name, parents, torch.from_numpy(rng.dirichlet([1.0] * DOMAIN[name].cardinality, shape))
        )

    return DependencyConditionals(map(table, DOMAIN.names))


def sticky(probability: float) -> DependencyConditionals:
    """Two variables that agree with a probability."""
    domain = Domain.from_cardinalities({"a": 2, "b": 2})
    probs = torch.tensor([[probability, 1 - probability], [1 - probability, probability]], dtype=torch.float64)
    return DependencyConditionals(
        [TableConditional(domain, "a", ["b"], probs), TableConditional(domain, "b", ["a"], probs)]
    )


SETTINGS: dict[str, Any] = {
    "burn_in": 20,
    "thin": 2,
    "record": ("statistics", "codes"),
    "edges": [("a", "b")],
    "seed": 9,
    "engine": ENGINE,
}


def assert_equal_runs(first: PseudoGibbsRun, second: PseudoGibbsRun) -> None:
    for name in ("eta", "std_error", "between_chains", "codes"):
        assert torch.equal(getattr(first, name), getattr(second, name)), name
    assert first.is_mixed == second.is_mixed
    assert torch.equal(first.chains.codes, second.chains.codes)


def limit(num_batches: int, num_cells: int) -> float:
    """Standard errors, from that many batches of records, that one of the cells exceeds at the rate of the library."""
    return float(student.isf(FALSE_ALARM_RATE / 2 / num_cells, num_batches - 1))


def test_marginals_are_those_of_the_stationary_law() -> None:
    exact = stationary_law(network()).probs
    run = sample_pseudo_gibbs(network(), 64, 600, burn_in=40, edges=[("c", "a")], seed=1, engine=ENGINE)
    assert run.is_mixed
    for names, axes in (("b", (0, 2)), (("a", "c"), (1,))):
        probs, errors = run.marginal(names)
        wanted = exact.sum(axes)
        assert probs.shape == wanted.shape
        assert float(((probs - wanted).abs() / errors).max()) < limit(24, 4)
        assert float(errors.max()) < 0.01
    uniform = torch.full((3,), 1 / 3, dtype=torch.float64)
    probs, errors = run.marginal("b")
    assert float(((probs - uniform).abs() / errors).max()) > limit(24, 4)  # control


def test_clamped_runs_estimate_the_law_of_the_clamped_network() -> None:
    exact = stationary_law(network(), clamped={"b": "z"}).probs
    run = sample_pseudo_gibbs(network(), 64, 400, burn_in=40, clamped={"b": "z"}, seed=2, engine=ENGINE)
    probs, errors = run.marginal("c")
    assert float(((probs - exact.sum(0)).abs() / errors).max()) < limit(20, 2)
    whole = stationary_law(network()).probs[:, 2]
    assert float(((probs - whole.sum(0) / whole.sum()).abs() / errors).max()) > limit(20, 2)  # not its conditional
    assert run.marginal("b")[0].tolist() == [0.0, 0.0, 1.0]


def test_records_of_a_run_are_those_of_its_chains() -> None:
    run = sample_pseudo_gibbs(network(), 8, 30, **SETTINGS)
    chains = PseudoGibbsChains(network(), 8, scan="random", edges=[("a", "b")], seed=9, engine=ENGINE)
    chains.sweep(20)
    record = chains.sweep(30, thin=2, counts=True, codes=True)
    assert (run.num_records, run.num_sweeps, run.burn_in, run.thin, run.energies) == (15, 30, 20, 2, None)
    assert run.codes is not None and run.eta is not None
    assert record.codes is not None and record.counts is not None
    assert torch.equal(run.codes, record.codes)
    assert torch.equal(run.eta, record.counts / 120)
    assert torch.equal(run.chains.codes, chains.codes)
    held = sample_pseudo_gibbs(network(), 3, 10, clamped={"a": 0, "b": 1, "c": 1}, engine=ENGINE)
    assert held.eta is not None
    assert held.eta.tolist() == [1, 0, 0, 1, 0, 0, 1]


def test_arviz_diagnoses_a_run() -> None:
    run = sample_pseudo_gibbs(
        network(), 4, 300, burn_in=30, record=("statistics", "codes"), edges=[("a", "c")], seed=3, engine=ENGINE
    )
    report = diagnose_chains(run.chains, run, edges=[("a", "c")])
    assert (report.num_chains, report.num_draws) == (4, 300)
    assert [row.name for row in report][:4] == ["a:c[no,0]", "a:c[no,1]", "a:c[yes,0]", "a:c[yes,1]"]
    assert report.max_r_hat is not None and report.max_r_hat < 1.05
    assert report.min_ess is not None and report.min_ess > 200
    assert report["b[x]"].mean == pytest.approx(float(run.marginal("b")[0][0]), abs=1e-12)
    data = chains_to_arviz(run.chains, run)
    assert get_group(data, "posterior")["level"].shape == (4, 300, 7)


def test_chains_that_do_not_mix_are_found_out() -> None:
    init = torch.zeros(64, 2, dtype=torch.long)
    init[:16] = 1
    with pytest.warns(ConvergenceWarning, match="have not mixed; make longer runs, or smooth the conditionals"):
        run = sample_pseudo_gibbs(sticky(1 - 1e-7), 64, 100, init=init, engine=ENGINE)
    assert run.is_mixed is False
    assert sample_pseudo_gibbs(sticky(0.6), 64, 100, init=init, engine=ENGINE).is_mixed is True  # control


def test_an_interrupted_run_is_resumed_with_the_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_UPDATES_PER_CALL_TORCH", 3 * 2048 * 10)  # ten sweeps a call
    whole = sample_pseudo_gibbs(network(), 8, 100, **SETTINGS)
    path, calls, original = tmp_path / "run.safetensors", [0], PseudoGibbsChains.sweep

    def sweep(self: PseudoGibbsChains, *args: Any, **options: Any) -> Any:
        calls[0] += 1
        if calls[0] == 5:
            os.kill(os.getpid(), signal.SIGINT)
        return original(self, *args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(PseudoGibbsChains, "sweep", sweep)
        with pytest.raises(KeyboardInterrupt):
            sample_pseudo_gibbs(network(), 8, 100, checkpoint=path, **SETTINGS)
    assert calls[0] == 5
    with pytest.raises(InputError, match="exists; pass resume=True"):
        sample_pseudo_gibbs(network(), 8, 100, checkpoint=path, **SETTINGS)
    for changed, message in (
        ({"seed": 10}, "another network, scan, clamped value, engine, seed or number of chains"),
        ({"scan": "sequential"}, "another network, scan"),
        ({"burn_in": 10}, "burn_in=20, not 10"),
    ):
        with pytest.raises(InputError, match=message):
            sample_pseudo_gibbs(network(), 8, 100, checkpoint=path, resume=True, **{**SETTINGS, **changed})
    with pytest.raises(InputError, match="another network"):
        sample_pseudo_gibbs(network(1), 8, 100, checkpoint=path, resume=True, **SETTINGS)
    resumed = sample_pseudo_gibbs(network(), 8, 100, checkpoint=path, resume=True, **SETTINGS)
    assert_equal_runs(whole, resumed)
    with monkeypatch.context() as patch:
        patch.setattr(PseudoGibbsChains, "sweep", None)  # a finished run is read back
        assert_equal_runs(whole, sample_pseudo_gibbs(network(), 8, 100, checkpoint=path, resume=True, **SETTINGS))


def test_progress_is_shown_on_standard_error_only_if_asked_for(capfd: pytest.CaptureFixture[str]) -> None:
    sample_pseudo_gibbs(network(), 4, 10, engine=ENGINE)
    shown = capfd.readouterr()
    assert shown.out == "" and shown.err == ""
    sample_pseudo_gibbs(network(), 4, 10, burn_in=5, progress=True, engine=ENGINE)
    shown = capfd.readouterr()
    assert shown.out == "" and "sweep" in shown.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_sweeps": 7, "thin": 2}, "num_sweeps: expected a multiple of thin=2, received 7"),
        ({"burn_in": -1}, "burn_in: expected a whole number from 0"),
        ({"record": "energy"}, "record: expected 'statistics' or 'codes', received 'energy'"),
        ({"record": "states"}, "record: expected"),
        ({"resume": True}, "resume: expected a checkpoint to continue from"),
        ({"selection": {"a": 1.0}}, "selection: expected a positive probability for 'b', received None"),
    ],
)
def test_bad_arguments_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        sample_pseudo_gibbs(network(), 4, **{"num_sweeps": 10, "engine": ENGINE, **arguments})


def test_marginals_that_were_not_counted_are_refused() -> None:
    run = sample_pseudo_gibbs(network(), 4, 10, engine=ENGINE)
    with pytest.raises(InputError, match=r"marginal: \('a', 'b'\) were not counted together; pass edges="):
        run.marginal(["b", "a"])
    with pytest.raises(UnknownNameError, match="'e'"):
        run.marginal("e")
    run = sample_pseudo_gibbs(network(), 4, 10, record="codes", engine=ENGINE)
    with pytest.raises(InputError, match="marginal: the run recorded no statistics"):
        run.marginal("a")
