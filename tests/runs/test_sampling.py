"""Long runs of chains of every family: records, estimates and their errors, interruption and resuming, checkpoints."""

import json
import os
import signal
import textwrap
import threading
import time
import warnings
import zlib
from contextlib import suppress
from pathlib import Path
from statistics import NormalDist

import forkserver
import numpy as np
import pytest
import safetensors.torch
import torch
from scipy.stats import chi2

from pyro_hoim import ConvergenceWarning, Domain, InputError, InteractionHypergraph, Variable, load
from pyro_hoim.dependency_network import DependencyConditionals, PseudoGibbsChains, TableConditional
from pyro_hoim.generalized_root import GeneralizedRootEnergy, PoissonFamily, RootChains, RootStructure
from pyro_hoim.log_linear import GibbsChains, LogLinearEnergy, load_model
from pyro_hoim.runs import GibbsSchedule, RunOptions, sample_chains
from pyro_hoim.runs.checkpoint import DeferredInterrupt, RunFile, check_equal
from pyro_hoim.testing import FALSE_ALARM_RATE, assert_close, exact_statistics, exact_table, raises, random_tables

from support.calls import interrupt_signal, noted

DOMAIN = Domain.from_cardinalities({"a": 2, "b": 3, "c": 2})


def small_model(seed=0, scale=0.7):
    hypergraph = InteractionHypergraph.from_order(DOMAIN, 2)
    return LogLinearEnergy(
        hypergraph, torch.from_numpy(random_tables(hypergraph, np.random.default_rng(seed), scale=scale))
    )


def gibbs(num_chains=8, *, other=0, **options):
    return GibbsChains(small_model(other), num_chains, **{"seed": 9, **options})


def network(num_chains=8, *, other=0, **options):
    """Every variable reads the two others; no joint law."""
    rng = np.random.default_rng(other)

    def table(name):
        parents = [parent for parent in DOMAIN.names if parent != name]
        shape = [DOMAIN[parent].cardinality for parent in parents]
        probs = torch.from_numpy(rng.dirichlet([1.0] * DOMAIN[name].cardinality, shape))
        return TableConditional(DOMAIN, name, parents, probs)

    conditionals = DependencyConditionals(map(table, DOMAIN.names))
    return PseudoGibbsChains(conditionals, num_chains, **{"seed": 9, "engine": "torch", **options})


def roots(num_chains=8, *, other=0, **options):
    domain = Domain([Variable(name, kind="count") for name in "abc"])
    structure = RootStructure.simplified(domain, [("a", "b"), ("a", "b", "c")])
    psi = torch.tensor([0.5, 0.0, -0.5, 0.3 + 0.1 * other, -0.1], dtype=torch.float64)
    energy = GeneralizedRootEnergy(structure, psi, PoissonFamily())
    return RootChains(energy, num_chains, **{"seed": 9, **options})


FAMILIES = {"gibbs": gibbs, "network": network, "roots": roots}
families = pytest.mark.parametrize("family", FAMILIES)


def pair(strength, batch=None):
    """Two spins with a coupling: single-site chains change mode about once in exp(2 * strength) sweeps."""
    hypergraph = InteractionHypergraph.saturated(Domain.from_cardinalities({"a": 2, "b": 2}))
    theta = torch.tensor([0.0, 0.0, strength], dtype=torch.float64)
    model = LogLinearEnergy.from_theta(hypergraph, theta)
    return model if batch is None else LogLinearEnergy(hypergraph, model.tables.expand(batch, -1))


def exact_eta(model):
    return exact_statistics(model.hypergraph, exact_table(model.hypergraph, model.tables))


def assert_equal_runs(first, second):
    """Bit for bit, except for the time taken."""
    for name in ("eta", "std_error", "between_chains", "energies", "draws"):
        left, right = getattr(first, name), getattr(second, name)
        assert (left is None) == (right is None)
        assert left is None or torch.equal(left, right), name
    for name, value in first.chains.state_dict().items():
        assert torch.equal(value, second.chains.state_dict()[name]), name


def short_calls(family, sweeps, monkeypatch):
    """So many sweeps a call of the chains."""
    kind = type(FAMILIES[family](1))
    monkeypatch.setattr(kind, "sweeps_per_call", property(lambda chains: sweeps))


# Records


@pytest.mark.parametrize("thin", [1, 3])
def test_statistics_and_traces_are_those_of_the_states(thin):
    model = small_model()
    run = sample_chains(gibbs(5), 30, burn_in=7, thin=thin, record=("draws", "energies", "statistics"))
    assert run.draws is not None and run.energies is not None and run.eta is not None
    assert run.draws.shape == (30, 5, 3) and run.draws.dtype == torch.uint8
    assert (run.num_draws, run.burn_in, run.thin, run.chains.num_sweeps) == (30, 7, thin, 7 + 30 * thin)
    flat = [tuple(row) for row in run.draws.reshape(-1, 3).tolist()]
    counted = np.zeros((2, 3, 2))
    for row in flat:
        counted[row] += 1
    with np.errstate(divide="ignore"):
        log_frequency = np.log(counted / len(flat))
    assert_close(run.eta, exact_statistics(model.hypergraph, log_frequency))
    table = exact_table(model.hypergraph, model.tables, normalised=False)
    energies = np.array([-table[row] for row in flat]).reshape(30, 5)
    assert_close(run.energies, energies, relative=1e-5)  # float32 differences within a call
    assert torch.equal(run.draws[-1].long(), run.chains.states)


@families
@pytest.mark.parametrize("unit", [1, 20, 10**9])
def test_records_of_a_run_are_those_of_its_chains(family, unit, monkeypatch):
    chains = FAMILIES[family](4)
    short_calls(family, unit, monkeypatch)
    run = sample_chains(FAMILIES[family](4), 30, burn_in=7, thin=3, record=chains.recordable)
    chains.sweep(7)
    for t in range(30):
        chains.sweep(3)
        assert torch.equal(run.draws[t].to(chains.states), chains.states)
    if run.eta is not None and run.draws is not None:
        probs, errors = run.probs(["b", "a"] if family == "gibbs" else "b")
        levels = run.values("b").long()
        assert_close(probs.sum(0) if family == "gibbs" else probs, torch.bincount(levels.flatten()).double() / 120)
        assert errors.shape == probs.shape
    if isinstance(chains, RootChains):
        assert_close(run.energies, chains.energy.energy(run.draws))


@pytest.mark.parametrize("engine", ["torch", "auto"])
@pytest.mark.parametrize("scan", ["sequential", "random"])
def test_length_of_calls_changes_nothing(engine, scan, monkeypatch):
    def run():
        chains = gibbs(6, schedule=GibbsSchedule("interactions", scan=scan), engine=engine)
        return sample_chains(chains, 30, burn_in=11, thin=4, record=("draws", "statistics"))

    whole = run()
    for sweeps in (1, 3, 4, 9):
        short_calls("gibbs", sweeps, monkeypatch)
        assert_equal_runs(whole, run())


@families
def test_parts_that_were_not_asked_for_are_none_and_chains_can_be_continued(family):
    run = sample_chains(FAMILIES[family](4), 10, record=())
    assert run.eta is None and run.std_error is None and run.energies is None and run.draws is None
    assert run.is_mixed is None
    again = sample_chains(run.chains, 10, record="draws")
    assert again.chains is run.chains and again.chains.num_sweeps == 20
    assert again.draws is not None and again.draws.shape == (10, 4, 3)
    one_go = sample_chains(FAMILIES[family](4), 20, record=())
    assert torch.equal(one_go.chains.states, again.chains.states)
    default = sample_chains(FAMILIES[family](4), 10)
    assert (default.eta is None, default.draws is None) == (family == "roots", family != "roots")


def test_batches():
    model = small_model()
    both = LogLinearEnergy(model.hypergraph, torch.stack([model.tables, 0 * model.tables]))
    run = sample_chains(GibbsChains(both, 400), 64, burn_in=20, record=("statistics", "energies", "draws"))
    assert run.eta.shape == (2, model.hypergraph.num_terms) and run.energies.shape == (64, 2, 400)
    assert run.draws.shape == (64, 2, 400, 3) and run.probs(["a", "b"])[0].shape == (2, 2, 3)
    flat = exact_statistics(model.hypergraph, exact_table(model.hypergraph, 0 * model.tables))
    expected = np.stack([exact_eta(model), flat])
    error = np.abs(run.eta.numpy() - expected) / run.std_error.numpy()
    assert error.max() < 10  # at 1e-6 for each of 32 cells Student's t with 15 degrees of freedom gives 10.0


# Estimates and errors


def test_standard_errors_allow_for_autocorrelation():
    """Variance of estimates between 150 equal runs over the variance that they claim."""
    run = sample_chains(GibbsChains(pair(3.0, batch=150), 8, seed=11, engine="torch"), 900, burn_in=100)
    actual = float((run.eta[:, 0] - 0.5).square().mean())
    # The autocorrelation time is 10 sweeps, so that batches of 30 claim 17 % too little; the mean of 150 squares has a
    # standard deviation of 12 %, 4.9 of them are 1e-6.
    assert 0.5 < actual / float(run.std_error[:, 0].square().mean()) < 1.9
    assert actual / (0.25 / (8 * 900)) > 5  # control: errors as if records were independent


def test_few_records_of_many_chains_have_errors_from_the_chains():
    model = small_model()
    for num_draws in (1, 5, 40):
        run = sample_chains(GibbsChains(model, 4000, seed=num_draws), num_draws, burn_in=30)
        assert run.eta is not None and run.std_error is not None and run.is_mixed is None
        assert np.abs((run.eta.numpy() - exact_eta(model)) / run.std_error.numpy()).max() < 9.5
        independent = np.sqrt(exact_eta(model) * (1 - exact_eta(model)) / (4000 * num_draws))
        ratio = run.std_error.numpy() / independent
        assert 0.8 < np.sqrt((ratio**2).mean()) < 2


def test_one_chain_has_errors_and_one_record_has_none():
    model = small_model()
    run = sample_chains(GibbsChains(model, 1), 4000, burn_in=30)
    assert run.eta is not None and run.std_error is not None and run.between_chains is None and run.is_mixed is None
    assert np.abs((run.eta.numpy() - exact_eta(model)) / run.std_error.numpy()).max() < 7
    single = sample_chains(GibbsChains(model, 1), 1)
    assert single.eta is not None and single.std_error is not None
    assert bool(single.std_error[(single.eta > 0) & (single.eta < 1)].isnan().all())


def test_constant_cells_keep_an_error():
    run = sample_chains(GibbsChains(small_model(), 10, clamped={"a": 1}), 100)
    assert run.eta[:2].tolist() == [0.0, 1.0]
    assert run.std_error[:2].tolist() == [2e-2, 2e-2]  # ten chains were looked at ten times


def test_chains_that_never_moved_claim_no_more_than_one_state_each():
    """A ferromagnet that single-site moves do not turn round: both values of a spin are equally likely."""
    hypergraph = InteractionHypergraph.from_order(Domain.from_cardinalities([2] * 6), 2)
    theta = torch.tensor([0.0] * 6 + [4.0] * 15, dtype=torch.float64)
    model = LogLinearEnergy.from_theta(hypergraph, theta)
    assert np.allclose(exact_eta(model)[:2], 0.5)
    verdicts = set()
    for seed in range(8):
        with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
            run = sample_chains(GibbsChains(model, 3, seed=seed), 1000, burn_in=50)
        verdicts.add(run.is_mixed)
        assert abs(float(run.eta[0]) - 0.5) < 2 * float(run.std_error[0])
        if run.is_mixed is None:
            assert run.std_error.unique().tolist() == [1 / 3]
    assert verdicts == {None, False}  # all in one mode, or in both
    moving = sample_chains(GibbsChains(small_model(), 3), 1000, burn_in=50)  # the control
    assert moving.is_mixed is True and moving.std_error is not None and float(moving.std_error.max()) < 0.05


def rare(logit):
    """Fifty independent binary variables."""
    hypergraph = InteractionHypergraph.from_order(Domain.from_cardinalities([2] * 50), 1)
    return LogLinearEnergy(hypergraph, torch.tensor([0.0, logit] * 50, dtype=torch.float64))


@pytest.mark.parametrize("logit", [-9.0, -6.0])
def test_rare_cells_raise_no_false_alarm(logit):
    """Visits of a block are Poisson variables with a mean of about 0.1 or 2, far from normal ones."""
    over = 0
    for seed in range(30):
        run = sample_chains(GibbsChains(rare(logit), 512, seed=seed), 1000, burn_in=10)
        assert run.is_mixed is True and run.between_chains is not None
        over += float(run.between_chains.max()) > chi2.isf(1e-6 / 50, 15) / 15
    assert over or logit > -9  # the control: the law of frequent cells alarms


@pytest.mark.parametrize(("num_chains", "num_others"), [(512, 1), (64, 16)])
def test_chains_that_do_not_mix_are_found_out(num_chains, num_others):
    """One chain, or a quarter of the chains, starts in the other of two equal modes, and all stay where they are."""
    init = torch.zeros(num_chains, 2, dtype=torch.long)
    init[:num_others] = 1
    with pytest.warns(ConvergenceWarning, match="have not mixed"):
        run = sample_chains(GibbsChains(pair(16.0), num_chains, init=init), 400)
    assert run.is_mixed is False and run.between_chains is not None and run.eta is not None
    if num_others == 1:
        return
    assert float(run.between_chains.min()) > 10  # the 20 looks at a chain count as one
    assert float(run.std_error[0]) > 0.03  # binomial, of 64 chains: 0.054
    mixed = sample_chains(GibbsChains(pair(0.5), 64, init=init), 400)  # control
    assert mixed.is_mixed is True


def test_the_rate_of_false_alarms_is_as_stated():
    run = sample_chains(GibbsChains(pair(0.0, batch=500), 32), 100, burn_in=1)
    assert run.is_mixed is True and run.between_chains is not None
    # Edges a and b are independent: chi-square with 15 degrees of freedom, divided by it.
    ratio = run.between_chains[:, :2].numpy()
    limit = NormalDist().inv_cdf(1 - FALSE_ALARM_RATE / 2) * np.sqrt(2 / 15 / ratio.size)
    assert abs(ratio.mean() - 1) < limit
    assert abs(2 * ratio.mean() - 1) > limit  # control


# Progress, interruption, resuming


@families
def test_progress_is_shown_on_standard_error_only_if_asked_for(family, capfd):
    sample_chains(FAMILIES[family](4), 10)
    shown = capfd.readouterr()
    assert shown.out == "" and shown.err == ""
    sample_chains(FAMILIES[family](4), 10, burn_in=10, run=RunOptions(progress=True))
    shown = capfd.readouterr()
    assert shown.out == "" and "sweep" in shown.err


SETTINGS = {"burn_in": 100, "thin": 2}


def long_run(family, chains=None, **options):
    chains = FAMILIES[family]() if chains is None else chains
    return sample_chains(chains, 100, record=chains.recordable, **SETTINGS, **options)


@families
def test_interrupt_leaves_a_checkpoint_and_a_resumed_run_has_the_same_bits(family, tmp_path, monkeypatch):
    short_calls(family, 10, monkeypatch)
    kind = type(FAMILIES[family]())
    whole = long_run(family)
    path = tmp_path / "run.safetensors"
    before = signal.getsignal(signal.SIGINT)
    for stop in (5, 13):  # in burn-in and after it
        path.unlink(missing_ok=True)
        moved = FAMILIES[family]()
        with monkeypatch.context() as patch:
            calls = noted(patch, kind, "sweep", stop, interrupt_signal)
            with pytest.raises(KeyboardInterrupt):
                long_run(family, moved, run=RunOptions(path))
            assert len(calls) == stop  # the call was finished, no other was made
        assert signal.getsignal(signal.SIGINT) is before
        assert [p.name for p in tmp_path.iterdir()] == ["run.safetensors"]
        with pytest.raises(InputError, match=r"exists; pass resume=True"):
            long_run(family, run=RunOptions(path))
        again = () if stop == 5 else (moved,)
        assert_equal_runs(whole, long_run(family, *again, run=RunOptions(path, resume=True)))
    # A finished run is read back without a sweep.
    with monkeypatch.context() as patch:
        patch.setattr(kind, "sweep", None)
        assert_equal_runs(whole, long_run(family, FAMILIES[family](), run=RunOptions(path, resume=True)))


def test_interrupt_without_a_checkpoint_is_an_interrupt(monkeypatch):
    noted(monkeypatch, GibbsChains, "sweep", 1, interrupt_signal)
    with pytest.raises(KeyboardInterrupt):
        sample_chains(gibbs(), 400)


@families
def test_checkpoint_of_another_run_is_refused(family, tmp_path):
    made, path = FAMILIES[family], tmp_path / "run"
    sample_chains(made(3), 40, run=RunOptions(path))
    before = path.read_bytes()
    init = torch.zeros(3, dtype=torch.float64 if family == "roots" else torch.long)
    chains = [made(4), made(3, seed=1), made(3, other=1), made(3, init=init), made(3, clamped={"b": 1})]
    if family != "roots":
        chains.append(made(3, precision=torch.float64))
    if family == "network":
        chains += [made(3, scan="sequential"), made(3, edges=[("a", "b")])]
    if family == "gibbs":
        chains += [made(3, schedule=GibbsSchedule("interactions")), made(3, engine="torch")]
    for other in chains:
        with pytest.raises(InputError, match=r"belongs to a run with another (model|network|initial)"):
            sample_chains(other, 40, run=RunOptions(path, resume=True))
    for change in ({"num_draws": 60}, {"burn_in": 1}, {"thin": 2}, {"record": ()}):
        with raises("other-run", "checkpoint"):
            sample_chains(made(3), **{"num_draws": 40, **change}, run=RunOptions(path, resume=True))
    assert path.read_bytes() == before
    path.unlink()
    sample_chains(made(3, clamped={"b": 2}), 40, run=RunOptions(path))
    with pytest.raises(InputError, match="clamped value"):
        sample_chains(made(3, clamped={"b": 1}), 40, run=RunOptions(path, resume=True))


PROGRAM = """
    import sys
    sys.path.insert(0, {folder!r})
    from pyro_hoim.runs.checkpoint import RunFile
    from test_sampling import RunOptions, killed_run
    RunFile.SECONDS = 0.01
    killed_run(RunOptions({path!r}))
"""


def killed_run(run):
    return sample_chains(gibbs(50), 10_000, record=("statistics", "energies", "draws"), run=run, **SETTINGS)


@pytest.mark.parametrize("how", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_killed_run_is_resumed_with_the_same_bits(how, tmp_path):
    path = tmp_path / "run.safetensors"
    program = textwrap.dedent(PROGRAM.format(folder=str(Path(__file__).parent), path=str(path)))
    for pause in (0.3, 0.1, 0.03, 0.0):  # a busy machine may let the run end before the signal is sent
        path.unlink(missing_ok=True)
        process = forkserver.start(program, tmp_path / "output")
        forkserver.wait_for(path.exists, process)
        time.sleep(pause)
        with suppress(ProcessLookupError):
            os.kill(process.pid, how)
        process.join(60)
        if process.exitcode:
            break
    assert process.exitcode == -how, (tmp_path / "output").read_text()
    assert_equal_runs(killed_run(None), killed_run(RunOptions(path, resume=True)))


# Bad input


@families
@pytest.mark.parametrize(
    ("options", "code", "argument"),
    [
        ({"num_draws": 0}, "out-of-range", "num_draws"),
        ({"num_draws": 2.5}, "out-of-range", "num_draws"),
        ({"thin": 0}, "out-of-range", "thin"),
        ({"burn_in": -1}, "out-of-range", "burn_in"),
        ({"record": "all"}, "unknown-choice", "record"),
        ({"record": ["draws", 3]}, "unknown-choice", "record"),
        ({"record": 5}, "wrong-type", "record"),
        ({"run": RunOptions("/no/such/folder/run")}, "no-file", "checkpoint"),
        ({"run": RunOptions(5)}, "wrong-type", "checkpoint"),
        ({"num_draws": 10**14, "record": "draws", "thin": 1}, "over-budget", "record"),
    ],
)
def test_bad_input_is_refused_before_work(family, options, code, argument, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    chains = FAMILIES[family](3)
    monkeypatch.setattr(type(chains), "sweep", None)
    with raises(code, argument):
        sample_chains(chains, **{"num_draws": 100, **options})
    assert not list(tmp_path.iterdir())


def test_parts_that_chains_do_not_have():
    with raises("wrong-type", "chains"):
        sample_chains(small_model(), 3)
    with pytest.raises(InputError, match="record: expected 'statistics' or 'draws', received 'energies'"):
        sample_chains(network(3), 5, record="energies")
    with raises("unknown-choice", "record"):
        sample_chains(roots(3), 5, record="statistics")


def test_what_a_run_did_not_record_is_refused():
    run, draws = sample_chains(network(3), 10), sample_chains(network(3), 10, record="draws")
    for call, code, argument in (
        (lambda: run.probs(["b", "a"]), "conflict", "probs"),
        (lambda: run.probs("e"), "unknown-name", "domain"),
        (lambda: run.values("a"), "conflict", "values"),
        (lambda: run.values("z"), "unknown-name", "name"),
        (lambda: draws.probs("a"), "conflict", "probs"),
    ):
        with raises(code, argument):
            call()


# Checkpoints: whole or absent, never another run's, one clear error for each fault


TENSORS = {
    "a": torch.arange(6).reshape(2, 3),
    "b": torch.tensor([0.5, float("nan")], dtype=torch.float64),
    "none": torch.zeros(0, 4),
    "one": torch.tensor(7, dtype=torch.uint8),
}
WRITTEN = {"kind": "chains", "thin": 2, "record": ("energy",), "model digest": "aa"}


def written(path):
    file = RunFile(path)
    assert file.start(WRITTEN) is None
    file.write(TENSORS)
    return path


def model():
    hypergraph = InteractionHypergraph.from_order(Domain.from_cardinalities({"a": 2, "b": 3}), 2)
    return LogLinearEnergy(hypergraph, torch.full((hypergraph.num_terms,), 0.3))


# Files


def test_tensors_come_back_and_nothing_else_is_left(tmp_path):
    path = written(tmp_path / "run")
    found = RunFile(path, resume=True).start(WRITTEN)
    assert found is not None and found.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert found[name].dtype == tensor.dtype and found[name].shape == tensor.shape
        assert torch.equal(found[name].nan_to_num(), tensor.nan_to_num())
    assert [p.name for p in tmp_path.iterdir()] == ["run"]


def test_a_file_that_is_not_there_starts_a_run(tmp_path):
    assert RunFile(tmp_path / "run", resume=True).start(WRITTEN) is None


def test_a_fault_while_writing_keeps_the_last_file(tmp_path, monkeypatch):
    path = written(tmp_path / "run")
    before = path.read_bytes()
    file = RunFile(path, resume=True)
    file.start(WRITTEN)

    def broken(tensors, name, metadata):
        Path(name).write_bytes(b"half")
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(safetensors.torch, "save_file", broken)
        with pytest.raises(InputError, match=r"run: cannot be written .*No space left"):
            file.write({"a": torch.zeros(2)})
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["run"]
    file.write({"a": torch.ones(2)})
    assert [p.name for p in tmp_path.iterdir()] == ["run"]


def test_large_files_are_written_less_often(tmp_path, monkeypatch):
    monkeypatch.setattr(RunFile, "SECONDS", 1e-6)
    file = RunFile(tmp_path / "run")
    file.start(WRITTEN)
    time.sleep(1e-3)
    assert file.is_due
    original = safetensors.torch.save_file

    def slow(*args, **options):
        time.sleep(0.2)
        original(*args, **options)

    monkeypatch.setattr(safetensors.torch, "save_file", slow)
    file.write(TENSORS)
    assert not file.is_due
    assert 1.9 < file._due - time.monotonic() < 60


@pytest.mark.parametrize("keep", [0, 4, 100, -1])
def test_truncated_file_is_named(keep, tmp_path):
    path = written(tmp_path / "run")
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(InputError, match=r"run is not a readable .*truncated; delete it to start again"):
        RunFile(path, resume=True).start(WRITTEN)


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        (None, "is a safetensors file, but not a pyro-hoim checkpoint"),
        ({"pyro-hoim": "{}"}, "is a safetensors file, but not a pyro-hoim checkpoint"),
        ({"pyro-hoim-run": "[1]"}, "entry 'pyro-hoim-run' is not a JSON object"),
        ({"pyro-hoim-run": "{"}, "entry 'pyro-hoim-run' is not readable JSON"),
        ({"pyro-hoim-run": json.dumps({"format_version": 2})}, "format version '2' .*reads version 3; delete it"),
        ({"pyro-hoim-run": json.dumps({"format_version": 3})}, "is damaged: its contents"),
    ],
)
def test_files_of_other_programs_and_releases_are_refused(metadata, message, tmp_path):
    path = tmp_path / "run"
    safetensors.torch.save_file(TENSORS, str(path), metadata=metadata)
    with pytest.raises(InputError, match=message):
        RunFile(path, resume=True).start(WRITTEN)


def test_other_settings_are_refused(tmp_path):
    path = written(tmp_path / "run")
    for change in ({"record": ("energy", "codes")}, {"model digest": "bb"}, {"new": 5}):
        with raises("other-run", "checkpoint"):
            RunFile(path, resume=True).start({**WRITTEN, **change})
    with pytest.raises(InputError, match="a run with thin=2, not 1; repeat that run's arguments"):
        RunFile(path, resume=True).start({**WRITTEN, "thin": 1})


def test_bad_places_are_refused(tmp_path):
    written(tmp_path / "run")
    with pytest.raises(InputError, match="exists; pass resume=True to continue that run, or choose another name"):
        RunFile(tmp_path / "run")
    places = [(tmp_path, "no-file"), (tmp_path / "none" / "run", "no-file"), (3, "wrong-type")]
    for place, code in places:
        with raises(code, "checkpoint"):
            RunFile(place, resume=True)


@pytest.mark.parametrize("opened", [RunFile, load, load_model])
def test_what_the_system_refuses_of_a_name_is_an_error_of_the_library(opened):
    with pytest.raises(InputError, match=r"x: cannot be (read|written) \(File name too long\)"):
        opened("x" * 300)


@pytest.mark.parametrize("place", ["os.fsync", "safetensors.torch.save_file"])
def test_a_second_interrupt_while_saving_keeps_the_last_file(place, tmp_path, monkeypatch):
    """The first is held back, and answered by a checkpoint; the second acts at once, within that."""
    before = written(tmp_path / "run").read_bytes()
    file = RunFile(tmp_path / "run", resume=True)
    file.start(WRITTEN)

    def interrupt(*_, **__):
        os.kill(os.getpid(), signal.SIGINT)

    def save():
        with DeferredInterrupt() as held:
            interrupt()
            assert held.is_pending
            file.write({"a": torch.ones(1000)})

    monkeypatch.setattr(place, interrupt)
    with pytest.raises(KeyboardInterrupt):
        save()
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    assert file.path.read_bytes() == before


def test_arrays_are_compared_by_their_bytes():
    check_equal(TENSORS, {name: tensor.clone() for name, tensor in TENSORS.items()})  # NaN is equal to itself
    one = torch.zeros(8, dtype=torch.uint8)
    other = torch.tensor([*bytes.fromhex("410671db01"), 0, 0, 0], dtype=torch.uint8)
    assert zlib.crc32(one.numpy()) == zlib.crc32(other.numpy())  # a checksum of 32 bits would take both for equal
    wrong = [(one, other), (torch.tensor(0.0), torch.tensor(-0.0)), (one, one[:-1]), (one, one.view(torch.int8))]
    for a, b in wrong:
        with pytest.raises(ValueError, match="the entry 'x' is not of this run"):
            check_equal({"x": a}, {"x": b})
    with pytest.raises(KeyError):
        check_equal({}, {"x": one})


# Interruption


def test_interrupt_is_held_back_and_then_delivered():
    before = signal.getsignal(signal.SIGINT)
    steps = []

    def work():
        with DeferredInterrupt() as interrupt:
            os.kill(os.getpid(), signal.SIGINT)
            steps.append("still running")
            assert interrupt.is_pending
            interrupt.deliver()
            steps.append("never")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert steps == ["still running"] and signal.getsignal(signal.SIGINT) is before


def test_interrupt_in_the_last_step_is_not_lost():
    with pytest.raises(KeyboardInterrupt), DeferredInterrupt():
        os.kill(os.getpid(), signal.SIGINT)


def test_second_interrupt_acts_at_once():
    steps = []

    def work():
        with DeferredInterrupt():
            for k in range(3):
                os.kill(os.getpid(), signal.SIGINT)
                steps.append(k)

    with pytest.raises(KeyboardInterrupt):
        work()
    assert steps == [0]


def test_handlers_of_others_are_called_and_put_back():
    called = []
    former = signal.signal(signal.SIGINT, lambda number, frame: called.append(number))
    try:
        with DeferredInterrupt() as interrupt:
            os.kill(os.getpid(), signal.SIGINT)
            assert called == []
            interrupt.deliver()
            assert called == [signal.SIGINT] and not interrupt.is_pending
        assert signal.getsignal(signal.SIGINT) is not interrupt._note
    finally:
        signal.signal(signal.SIGINT, former)


def test_runs_in_other_threads_leave_handlers_alone():
    results = []
    thread = threading.Thread(target=lambda: results.append(sample_chains(GibbsChains(model(), 3), 20)))
    thread.start()
    thread.join(60)
    assert len(results) == 1
