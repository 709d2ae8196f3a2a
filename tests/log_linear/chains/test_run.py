"""Long runs: estimates and their errors against enumeration, records, interruption and resuming."""

from __future__ import annotations

import os
import signal
import textwrap
import time
import warnings
from contextlib import suppress
from pathlib import Path
from statistics import NormalDist
from typing import Any

import forkserver
import numpy as np
import pytest
import torch
from scipy.stats import chi2

from pyro_hoim.errors import ConvergenceWarning, InputError, InputTypeError
from pyro_hoim.log_linear import GibbsChains, LogLinearEnergy, sample_chains
from pyro_hoim.log_linear.chains import run as run_module
from pyro_hoim.runs import ChainRun, GibbsSchedule
from pyro_hoim.schema import Domain
from pyro_hoim.structure import InteractionHypergraph
from pyro_hoim.testing import FALSE_ALARM_RATE, assert_close, exact_statistics, exact_table, random_tables

ENGINE: Any = "auto"


def small_model(seed: int = 0, scale: float = 0.7) -> LogLinearEnergy:
    hypergraph = InteractionHypergraph.from_order(Domain.from_cardinalities({"a": 2, "b": 3, "c": 2}), 2)
    return LogLinearEnergy(
        hypergraph, torch.from_numpy(random_tables(hypergraph, np.random.default_rng(seed), scale=scale))
    )


def pair(strength: float, batch: int | None = None) -> LogLinearEnergy:
    """Two spins with a coupling: single-site chains change mode about once in exp(2 * strength) sweeps."""
    hypergraph = InteractionHypergraph.saturated(Domain.from_cardinalities({"a": 2, "b": 2}))
    theta = torch.tensor([0.0, 0.0, strength], dtype=torch.float64)
    model = LogLinearEnergy.from_theta(hypergraph, theta)
    return model if batch is None else LogLinearEnergy(hypergraph, model.tables.expand(batch, -1))


def exact_eta(model: LogLinearEnergy) -> np.ndarray:
    return exact_statistics(model.hypergraph, exact_table(model.hypergraph, model.tables))


def assert_equal_runs(first: ChainRun, second: ChainRun) -> None:
    """Bit for bit, except for the time taken."""
    for name in ("eta", "std_error", "between_chains", "energies", "codes"):
        left, right = getattr(first, name), getattr(second, name)
        assert (left is None) == (right is None)
        assert left is None or torch.equal(left, right), name
    for name, value in first.chains.state_dict().items():
        assert torch.equal(value, second.chains.state_dict()[name]), name


# Records


@pytest.mark.parametrize("thin", [1, 3])
def test_statistics_and_traces_are_those_of_the_states(thin: int) -> None:
    model = small_model()
    run = sample_chains(
        model, 5, 30 * thin, burn_in=7, thin=thin, record=("codes", "energy", "statistics"), seed=3, engine=ENGINE
    )
    assert run.codes is not None and run.energies is not None and run.eta is not None
    assert run.codes.shape == (30, 5, 3) and run.codes.dtype == torch.uint8
    assert (run.num_records, run.num_sweeps, run.burn_in, run.thin) == (30, 30 * thin, 7, thin)
    assert run.chains.num_sweeps == 7 + 30 * thin
    flat = [tuple(row) for row in run.codes.reshape(-1, 3).tolist()]
    counted = np.zeros((2, 3, 2))
    for row in flat:
        counted[row] += 1
    with np.errstate(divide="ignore"):
        log_frequency = np.log(counted / len(flat))
    assert_close(run.eta, exact_statistics(model.hypergraph, log_frequency))
    table = exact_table(model.hypergraph, model.tables, normalised=False)
    energies = np.array([-table[row] for row in flat]).reshape(30, 5)
    assert_close(run.energies, energies, relative=1e-5)  # float32 differences within a call
    assert torch.equal(run.codes[-1].long(), run.chains.codes)

    chains = GibbsChains(model, 5, seed=3, engine=ENGINE)
    chains.sweep(7)
    reference = chains.sweep(30 * thin, thin=thin, codes=True)
    assert reference.codes is not None and torch.equal(reference.codes, run.codes)


@pytest.mark.parametrize("engine", ["torch", "auto"])
@pytest.mark.parametrize("scan", ["sequential", "random"])
def test_length_of_calls_changes_nothing(engine: Any, scan: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def run() -> ChainRun:
        return sample_chains(
            small_model(),
            6,
            120,
            burn_in=11,
            thin=4,
            record=("codes", "statistics"),
            tempered_burn_in=True,
            schedule=GibbsSchedule("interactions", scan=scan),
            engine=engine,
        )

    whole = run()
    for sweeps in (1, 3, 4, 9):
        monkeypatch.setattr(run_module, "sweeps_per_call", lambda chains, sweeps=sweeps: sweeps)
        assert_equal_runs(whole, run())


def test_parts_that_were_not_asked_for_are_none_and_chains_can_be_continued() -> None:
    run = sample_chains(small_model(), 4, 10, record=(), engine=ENGINE)
    assert run.eta is None and run.std_error is None and run.energies is None and run.codes is None
    assert run.is_mixed is None
    again = sample_chains(run.chains, num_sweeps=10, record="energy")
    assert again.chains is run.chains and again.chains.num_sweeps == 20
    assert again.energies is not None and again.energies.shape == (10, 4)
    one_go = sample_chains(small_model(), 4, 20, record="codes", engine=ENGINE)
    assert torch.equal(one_go.chains.codes, again.chains.codes)


def test_batches_and_one_beta_per_element() -> None:
    model = small_model()
    both = LogLinearEnergy(model.hypergraph, torch.stack([model.tables, 2 * model.tables]))
    beta = torch.tensor([1.0, 0.0], dtype=torch.float64)
    run = sample_chains(
        both, 400, 64, burn_in=20, beta=beta, tempered_burn_in=True, record=("statistics", "energy"), engine=ENGINE
    )
    assert run.eta is not None and run.std_error is not None and run.energies is not None
    assert run.eta.shape == (2, model.hypergraph.num_terms) and run.energies.shape == (64, 2, 400)
    flat = exact_statistics(model.hypergraph, exact_table(model.hypergraph, 0 * model.tables))
    expected = np.stack([exact_eta(model), flat])
    error = np.abs(run.eta.numpy() - expected) / run.std_error.numpy()
    assert error.max() < 10  # at 1e-6 for each of 32 cells Student's t with 15 degrees of freedom gives 10.0


# Estimates and errors


def test_standard_errors_allow_for_autocorrelation() -> None:
    """Variance of estimates between 150 equal runs over the variance that they claim."""
    run = sample_chains(pair(3.0, batch=150), 8, 900, burn_in=100, seed=11, engine="torch")
    assert run.eta is not None and run.std_error is not None
    actual = float((run.eta[:, 0] - 0.5).square().mean())
    # The autocorrelation time is 10 sweeps, so that batches of 30 claim 17 % too little; the mean of 150 squares has a
    # standard deviation of 12 %, 4.9 of them are 1e-6.
    assert 0.5 < actual / float(run.std_error[:, 0].square().mean()) < 1.9
    assert actual / (0.25 / (8 * 900)) > 5  # control: errors as if records were independent


def test_few_records_of_many_chains_have_errors_from_the_chains() -> None:
    model = small_model()
    for num_sweeps in (1, 5, 40):
        run = sample_chains(model, 4000, num_sweeps, burn_in=30, seed=num_sweeps, engine=ENGINE)
        assert run.eta is not None and run.std_error is not None and run.is_mixed is None
        assert np.abs((run.eta.numpy() - exact_eta(model)) / run.std_error.numpy()).max() < 9.5
        independent = np.sqrt(exact_eta(model) * (1 - exact_eta(model)) / (4000 * num_sweeps))
        ratio = run.std_error.numpy() / independent
        assert 0.8 < np.sqrt((ratio**2).mean()) < 2


def test_one_chain_has_errors_and_one_record_has_none() -> None:
    model = small_model()
    run = sample_chains(model, 1, 4000, burn_in=30, engine=ENGINE)
    assert run.eta is not None and run.std_error is not None and run.between_chains is None and run.is_mixed is None
    assert np.abs((run.eta.numpy() - exact_eta(model)) / run.std_error.numpy()).max() < 7
    single = sample_chains(model, 1, 1, engine=ENGINE)
    assert single.eta is not None and single.std_error is not None
    assert bool(single.std_error[(single.eta > 0) & (single.eta < 1)].isnan().all())


def test_constant_cells_keep_an_error() -> None:
    run = sample_chains(small_model(), 10, 100, clamped={"a": 1}, engine=ENGINE)
    assert run.eta is not None and run.std_error is not None
    assert run.eta[:2].tolist() == [0.0, 1.0]
    assert run.std_error[:2].tolist() == [2e-2, 2e-2]  # ten chains were looked at ten times


def test_chains_that_never_moved_claim_no_more_than_one_state_each() -> None:
    """A ferromagnet that single-site moves do not turn round: both values of a spin are equally likely."""
    hypergraph = InteractionHypergraph.from_order(Domain.from_cardinalities([2] * 6), 2)
    theta = torch.tensor([0.0] * 6 + [4.0] * 15, dtype=torch.float64)
    model = LogLinearEnergy.from_theta(hypergraph, theta)
    assert np.allclose(exact_eta(model)[:2], 0.5)
    verdicts = set()
    for seed in range(8):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            run = sample_chains(model, 3, 1000, burn_in=50, seed=seed, engine=ENGINE)
        assert run.eta is not None and run.std_error is not None
        verdicts.add(run.is_mixed)
        assert abs(float(run.eta[0]) - 0.5) < 2 * float(run.std_error[0])
        if run.is_mixed is None:
            assert run.std_error.unique().tolist() == [1 / 3]
    assert verdicts == {None, False}  # all in one mode, or in both
    moving = sample_chains(small_model(), 3, 1000, burn_in=50, engine=ENGINE)  # the control
    assert moving.is_mixed is True and moving.std_error is not None and float(moving.std_error.max()) < 0.05


def rare(logit: float) -> LogLinearEnergy:
    """Fifty independent binary variables."""
    hypergraph = InteractionHypergraph.from_order(Domain.from_cardinalities([2] * 50), 1)
    return LogLinearEnergy(hypergraph, torch.tensor([0.0, logit] * 50, dtype=torch.float64))


@pytest.mark.parametrize("logit", [-9.0, -6.0])
def test_rare_cells_raise_no_false_alarm(logit: float) -> None:
    """Visits of a block are Poisson variables with a mean of about 0.1 or 2, far from normal ones."""
    over = 0
    for seed in range(30):
        run = sample_chains(rare(logit), 512, 1000, burn_in=10, seed=seed, engine=ENGINE)
        assert run.is_mixed is True and run.between_chains is not None
        over += float(run.between_chains.max()) > chi2.isf(1e-6 / 50, 15) / 15
    assert over or logit > -9  # the control: the law of frequent cells alarms


def test_few_chains_stuck_in_a_rare_state_are_found_out() -> None:
    init = torch.zeros(512, 2, dtype=torch.long)
    init[0] = 1
    with pytest.warns(ConvergenceWarning, match="have not mixed"):
        run = sample_chains(pair(16.0), 512, 400, init=init, engine=ENGINE)
    assert run.is_mixed is False


def test_chains_that_do_not_mix_are_found_out() -> None:
    """Three quarters of the chains start in one of two equal modes and stay there."""
    init = torch.zeros(64, 2, dtype=torch.long)
    init[:16] = 1
    with pytest.warns(ConvergenceWarning, match="have not mixed"):
        run = sample_chains(pair(16.0), 64, 400, init=init, engine=ENGINE)
    assert run.is_mixed is False and run.between_chains is not None and run.eta is not None
    assert run.std_error is not None
    assert float(run.between_chains.min()) > 10  # the 20 looks at a chain count as one
    assert float(run.std_error[0]) > 0.03  # binomial, of 64 chains: 0.054
    mixed = sample_chains(pair(0.5), 64, 400, init=init, engine=ENGINE)  # control
    assert mixed.is_mixed is True


def test_the_rate_of_false_alarms_is_as_stated() -> None:
    run = sample_chains(pair(0.0, batch=500), 32, 100, burn_in=1, engine=ENGINE)
    assert run.is_mixed is True and run.between_chains is not None
    # Edges a and b are independent: chi-square with 15 degrees of freedom, divided by it.
    ratio = run.between_chains[:, :2].numpy()
    limit = NormalDist().inv_cdf(1 - FALSE_ALARM_RATE / 2) * np.sqrt(2 / 15 / ratio.size)
    assert abs(ratio.mean() - 1) < limit
    assert abs(2 * ratio.mean() - 1) > limit  # control


def test_tempered_burn_in_starts_at_the_reference_law() -> None:
    """Chains that start in the wrong mode of a frozen law leave it when beta rises from 0, and stay without that."""
    hypergraph = InteractionHypergraph.saturated(Domain.from_cardinalities({"a": 2, "b": 2}))
    theta = torch.tensor([2.0, 2.0, 14.0], dtype=torch.float64)
    model = LogLinearEnergy.from_theta(hypergraph, theta)
    wrong = int(exact_eta(model)[0] > 0.5)
    init = torch.full((200, 2), wrong)
    options: dict[str, Any] = {"burn_in": 50, "init": init, "engine": ENGINE, "record": "codes"}
    tempered = sample_chains(model, 200, 1, tempered_burn_in=True, **options)
    plain = sample_chains(model, 200, 1, **options)
    assert tempered.codes is not None and plain.codes is not None
    assert float((tempered.codes == wrong).float().mean()) < 0.5
    assert float((plain.codes == wrong).float().mean()) > 0.9


# Progress, interruption, resuming


def test_progress_is_shown_on_standard_error_only_if_asked_for(capfd: pytest.CaptureFixture[str]) -> None:
    sample_chains(small_model(), 4, 50, engine=ENGINE)
    shown = capfd.readouterr()
    assert shown.out == "" and shown.err == ""
    sample_chains(small_model(), 4, 50, burn_in=10, progress=True, engine=ENGINE)
    shown = capfd.readouterr()
    assert shown.out == "" and "sweep" in shown.err


SETTINGS: dict[str, Any] = {
    "burn_in": 200,
    "thin": 2,
    "record": ("statistics", "energy", "codes"),
    "tempered_burn_in": True,
    "seed": 9,
    "engine": ENGINE,
}


def interrupt_after(calls: int, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Ctrl-C within the given call of the engine."""
    count = [0]
    original = GibbsChains.sweep

    def sweep(self: GibbsChains, *args: Any, **options: Any) -> Any:
        count[0] += 1
        if count[0] == calls:
            os.kill(os.getpid(), signal.SIGINT)
        return original(self, *args, **options)

    monkeypatch.setattr(GibbsChains, "sweep", sweep)
    return count


def test_interrupt_leaves_a_checkpoint_and_a_resumed_run_has_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_module, "sweeps_per_call", lambda chains: 20)  # many calls
    whole = sample_chains(small_model(), 8, 400, **SETTINGS)
    path = tmp_path / "run.safetensors"
    before = signal.getsignal(signal.SIGINT)
    with monkeypatch.context() as patch:
        count = interrupt_after(5, patch)
        with pytest.raises(KeyboardInterrupt):
            sample_chains(small_model(), 8, 400, checkpoint=path, **SETTINGS)
        assert count[0] == 5  # the call was finished, no other was made
    assert signal.getsignal(signal.SIGINT) is before
    assert [p.name for p in tmp_path.iterdir()] == ["run.safetensors"]
    with pytest.raises(InputError, match=r"exists; pass resume=True"):
        sample_chains(small_model(), 8, 400, checkpoint=path, **SETTINGS)
    resumed = sample_chains(small_model(), 8, 400, checkpoint=path, resume=True, **SETTINGS)
    assert_equal_runs(whole, resumed)
    # A finished run is read back without a sweep.
    with monkeypatch.context() as patch:
        patch.setattr(GibbsChains, "sweep", None)
        assert_equal_runs(whole, sample_chains(small_model(), 8, 400, checkpoint=path, resume=True, **SETTINGS))


def test_interrupt_without_a_checkpoint_is_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    interrupt_after(1, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        sample_chains(small_model(), 8, 400, engine=ENGINE)


def test_chains_passed_in_are_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module, "sweeps_per_call", lambda chains: 20)
    path = tmp_path / "run.safetensors"

    def chains() -> GibbsChains:
        return GibbsChains(small_model(), 8, clamped={"b": 2}, seed=4, engine=ENGINE)

    whole = sample_chains(chains(), num_sweeps=400)
    moved = chains()
    with monkeypatch.context() as patch:
        interrupt_after(3, patch)
        with pytest.raises(KeyboardInterrupt):
            sample_chains(moved, num_sweeps=400, checkpoint=path)
    other = GibbsChains(small_model(), 8, clamped={"b": 1}, seed=4, engine=ENGINE)
    with pytest.raises(InputError, match="clamped value"):
        sample_chains(other, num_sweeps=400, checkpoint=path, resume=True)
    assert_equal_runs(whole, sample_chains(moved, num_sweeps=400, checkpoint=path, resume=True))


PROGRAM = """
    import sys
    from pathlib import Path
    sys.path.insert(0, {folder!r})
    from test_run import SETTINGS, small_model
    from pyro_hoim.log_linear import sample_chains
    sample_chains(small_model(), 50, 20_000, checkpoint={path!r}, checkpoint_every=0.01, **SETTINGS)
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_killed_run_is_resumed_with_the_same_bits(how: signal.Signals, tmp_path: Path) -> None:
    path = tmp_path / "run.safetensors"
    program = textwrap.dedent(PROGRAM.format(folder=str(Path(__file__).parent), path=str(path)))
    for pause in (0.3, 0.1, 0.03, 0.0):  # a busy machine may let the run end before the signal is sent
        path.unlink(missing_ok=True)
        process = forkserver.start(program, tmp_path / "output")
        deadline = time.monotonic() + 120
        while not path.exists() and process.is_alive() and time.monotonic() < deadline:
            time.sleep(0.005)
        time.sleep(pause)
        with suppress(ProcessLookupError):
            os.kill(process.pid, how)
        process.join(60)
        if process.exitcode:
            break
    assert process.exitcode == -how, (tmp_path / "output").read_text()
    short = sample_chains(small_model(), 50, 20_000, checkpoint=path, resume=True, **SETTINGS)
    whole = sample_chains(small_model(), 50, 20_000, **SETTINGS)
    assert_equal_runs(whole, short)


# Bad input


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_sweeps": 0}, "num_sweeps: expected a whole number from 1"),
        ({"num_sweeps": 2.5}, "num_sweeps: expected a whole number from 1"),
        ({"num_sweeps": 10, "thin": 3}, "num_sweeps: expected a multiple of thin=3, received 10"),
        ({"thin": 0}, "thin: expected a whole number from 1"),
        ({"burn_in": -1}, "burn_in: expected a whole number"),
        ({"num_chains": 0}, "num_chains: expected a whole number from 1"),
        ({"num_chains": None}, "num_chains: expected a whole number from 1"),
        ({"record": "all"}, "record: expected 'statistics', 'energy' or 'codes', received 'all'"),
        ({"record": ["energy", 3]}, "record: expected .* received 3"),
        ({"beta": 1.5}, r"beta: expected inverse temperatures within \[0, 1\]"),
        ({"beta": float("nan")}, "beta: expected"),
        ({"beta": torch.tensor([0.5, 0.5])}, "beta: expected one number per element"),
        ({"tempered_burn_in": True}, "tempered_burn_in: expected a burn-in"),
        ({"resume": True}, "resume: expected a checkpoint"),
        ({"checkpoint": "/no/such/folder/run"}, "checkpoint: the folder /no/such/folder does not exist"),
        ({"checkpoint": "run", "checkpoint_every": 0}, "checkpoint_every: expected a positive number"),
        ({"seed": -1}, "seed: expected"),
        ({"engine": "fast"}, "engine: expected"),
        ({"clamped": {"a": 7}}, "a"),
        ({"num_sweeps": 10**14, "record": "codes", "thin": 1}, "record: a trace of .* records needs .* GB"),
    ],
)
def test_bad_input_is_refused_before_work(
    options: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(GibbsChains, "sweep", None)
    with pytest.raises(InputError, match=message):
        sample_chains(small_model(), **{"num_chains": 3, "num_sweeps": 100, "engine": ENGINE, **options})
    assert not list(tmp_path.iterdir())


def test_wrong_types_and_arguments_that_chains_fix() -> None:
    with pytest.raises(InputTypeError, match="record: expected names"):
        sample_chains(small_model(), 3, record=5, engine=ENGINE)  # type: ignore[arg-type]
    with pytest.raises(InputTypeError, match="model: expected a log-linear"):
        sample_chains("model", 3)  # type: ignore[arg-type]
    with pytest.raises(InputTypeError, match="checkpoint: expected the name"):
        sample_chains(small_model(), 3, checkpoint=5, engine=ENGINE)  # type: ignore[arg-type]
    chains = GibbsChains(small_model(), 3, engine=ENGINE)
    for options in ({"num_chains": 3}, {"seed": 0}, {"schedule": GibbsSchedule()}, {"engine": "torch"}):
        with pytest.raises(InputError, match="is fixed in the chains"):
            sample_chains(chains, **options)  # type: ignore[arg-type]
