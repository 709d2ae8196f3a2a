"""Parallel tempering: the swap against enumeration, exact starts, several modes, ladders that adapt, resuming."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pyro_hoim.errors import InputError, InputTypeError
from pyro_hoim.log_linear import LogLinearEnergy, ParallelTempering, TemperedRun, sample_chains, sample_tempered
from pyro_hoim.log_linear.chains import ladder as ladder_module
from pyro_hoim.runs import GibbsSchedule
from pyro_hoim.schema import Domain
from pyro_hoim.structure import InteractionHypergraph
from pyro_hoim.testing import (
    assert_close,
    assert_exact_law,
    assert_stationary,
    count_states,
    enumerate_codes,
    exact_statistics,
    exact_table,
    random_tables,
    required_draws,
)

ENGINE: Any = "auto"
BETAS = [0.0, 0.45, 1.0]


def tiny_model() -> tuple[LogLinearEnergy, torch.Tensor]:
    """Four states, and a reference law that is not uniform."""
    hypergraph = InteractionHypergraph.saturated(Domain.from_cardinalities([2, 2]))
    tables = torch.from_numpy(random_tables(hypergraph, np.random.default_rng(1), scale=1.5))
    return LogLinearEnergy(hypergraph, tables), torch.tensor([0.9, -0.4, -1.0, 0.7], dtype=torch.float64)


def law_at(model: LogLinearEnergy, reference: torch.Tensor, beta: float) -> np.ndarray:
    """Flat probabilities of exp(-beta E + (1 - beta) r), by enumeration."""
    cards = model.hypergraph.domain.cardinalities
    minus_energy = exact_table(model.hypergraph, model.tables, normalised=False).reshape(-1)
    starts = np.cumsum([0, *cards[:-1]])
    log_reference = reference.numpy()[enumerate_codes(cards) + starts].sum(-1)
    weights = np.exp(beta * minus_energy + (1 - beta) * log_reference)
    return weights / weights.sum()


def ising(side: int, coupling: float, field: float) -> LogLinearEnergy:
    """Spins -1 and +1 on a grid with free boundary; the two modes differ by the field."""
    index = np.arange(side * side).reshape(side, side)
    pairs = [*zip(index[:, :-1].flat, index[:, 1:].flat, strict=True)]
    pairs += [*zip(index[:-1].flat, index[1:].flat, strict=True)]
    domain = Domain.from_cardinalities({f"s{i}": 2 for i in range(side * side)})
    edges = [(f"s{i}",) for i in range(side * side)] + [(f"s{i}", f"s{j}") for i, j in pairs]
    hypergraph = InteractionHypergraph(domain, edges)
    tables = torch.zeros(hypergraph.num_terms, dtype=torch.float64)
    spin = torch.tensor([-1.0, 1.0], dtype=torch.float64)
    for edge, where in hypergraph.term_slices.items():
        tables[where] = field * spin if len(edge) == 1 else coupling * (spin[:, None] * spin).reshape(-1)
    return LogLinearEnergy(hypergraph, tables)


def mixture() -> LogLinearEnergy:
    """Three variables of three levels, saturated, with two heavy states that differ in every variable."""
    hypergraph = InteractionHypergraph.saturated(Domain.from_cardinalities([3, 3, 3]))
    tables = torch.zeros(hypergraph.num_terms, dtype=torch.float64)
    top = tables[hypergraph.term_slices["x0", "x1", "x2"]].reshape(3, 3, 3)
    top[0, 0, 0], top[2, 2, 2] = 9.0, 8.5
    return LogLinearEnergy(hypergraph, tables)


# The swap


def swap_matrix(ladder: ParallelTempering, parity: int, log_ratio: np.ndarray) -> np.ndarray:
    """Transition matrix (64, 64) of a round of swaps on the states of three rungs, from the ratios (2, 64)."""
    states = list(itertools.product(range(4), repeat=3))
    matrix = np.zeros((64, 64))
    for k, state in enumerate(states):
        accept = min(1.0, float(np.exp(log_ratio[parity, k])))
        swapped = list(state)
        swapped[parity], swapped[parity + 1] = state[parity + 1], state[parity]
        matrix[k, states.index(tuple(swapped))] += accept
        matrix[k, k] += 1 - accept
    return matrix


def redraw_matrix(laws: list[np.ndarray]) -> np.ndarray:
    """Every rung drawn afresh with probability one half, so that the whole chain mixes."""
    single = [0.5 * np.eye(4) + 0.5 * law for law in laws]
    return np.kron(np.kron(single[0], single[1]), single[2])


@pytest.mark.parametrize("parity", [0, 1])
def test_swap_leaves_the_product_of_tempered_laws_invariant(parity: int) -> None:
    model, reference = tiny_model()
    codes = torch.from_numpy(enumerate_codes([2, 2]))
    states = torch.tensor(list(itertools.product(range(4), repeat=3))).T  # (rungs, 64)
    ladder = ParallelTempering(model, 64, BETAS, reference=reference, init=codes[states], engine=ENGINE)
    laws = [law_at(model, reference, beta) for beta in BETAS]
    product = np.kron(np.kron(laws[0], laws[1]), laws[2])
    ratio = ladder.log_ratio().numpy()
    redraw = redraw_matrix(laws)
    assert_stationary(redraw @ swap_matrix(ladder, parity, ratio), product)
    betas = ladder.betas.numpy()
    energy, base = ladder.chains.energy.numpy(), ladder.chains.reference_energy.numpy()
    wrong_sign = -ratio
    no_reference = np.diff(betas)[:, None] * np.diff(energy, axis=0)
    sum_of_both = np.diff(betas)[:, None] * np.diff(energy + base, axis=0)
    for control in (wrong_sign, no_reference, sum_of_both):
        with pytest.raises(AssertionError, match="the law moves"):
            assert_stationary(redraw @ swap_matrix(ladder, parity, control), product)


def test_swaps_happen_at_the_stated_rate_and_keep_energies() -> None:
    model, reference = tiny_model()
    codes = torch.from_numpy(enumerate_codes([2, 2]))
    combos = list(itertools.product(range(4), repeat=3))
    rounds = 4000
    states = torch.tensor(combos).T.repeat(1, rounds)
    ladder = ParallelTempering(model, 64 * rounds, BETAS, reference=reference, init=codes[states], engine=ENGINE)
    ratio = ladder.log_ratio()[0].exp().clamp(max=1).reshape(rounds, 64)[0].numpy()
    ladder.swap()
    after = ladder.chains.codes
    assert torch.equal(after[2], codes[states[2]])
    stayed = (after[0] == codes[states[0]]).all(-1)
    exchanged = (after[0] == codes[states[1]]).all(-1) & (after[1] == codes[states[0]]).all(-1)
    assert bool((stayed | exchanged).all())
    different = states[0] != states[1]
    swapped = (exchanged & different).reshape(rounds, 64).sum(0).numpy()
    for k in np.flatnonzero([a != b for a, b, _ in combos])[::5]:
        assert_exact_law([swapped[k], rounds - swapped[k]], [ratio[k], 1 - ratio[k]])
    energy = ladder.chains.energy.clone()
    ladder.chains.set_codes(after)
    assert_close(energy, ladder.chains.energy, relative=1e-9)


def joint_counts(model: LogLinearEnergy, reference: torch.Tensor, num_chains: int, rounds: int) -> np.ndarray:
    """States of all rungs after some rounds from an exact start, counted (64,)."""
    rng = np.random.default_rng(20)
    codes = torch.from_numpy(enumerate_codes([2, 2]))
    start = torch.stack(
        [codes[torch.from_numpy(rng.choice(4, num_chains, p=law_at(model, reference, beta)))] for beta in BETAS]
    )
    ladder = ParallelTempering(model, num_chains, BETAS, reference=reference, init=start, seed=5, engine=ENGINE)
    for _ in range(rounds):
        ladder.sweep()
    return count_states(ladder.chains.codes.transpose(0, 1).reshape(num_chains, 6), [2] * 6)


def test_exact_start_stays_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    model, reference = tiny_model()
    laws = [law_at(model, reference, beta) for beta in BETAS]
    product = np.kron(np.kron(laws[0], laws[1]), laws[2])
    num_chains = required_draws(64, 0.05)
    assert_exact_law(joint_counts(model, reference, num_chains, 5), product)

    def without_reference(self: ParallelTempering) -> torch.Tensor:
        return self.betas.diff()[:, None] * self.chains.energy.diff(dim=0)

    for control in (without_reference, lambda self: torch.full((2, num_chains), 1.0)):
        with monkeypatch.context() as patch:
            patch.setattr(ParallelTempering, "log_ratio", control)
            with pytest.raises(AssertionError):
                assert_exact_law(joint_counts(model, reference, num_chains, 5), product)


# Several modes


@pytest.mark.parametrize(("name", "start"), [("ising", 0), ("mixture", 2)])
def test_tempering_visits_all_modes_where_plain_chains_do_not(name: str, start: int) -> None:
    """All chains start in the lighter mode; last states of 10,000 independent chains against the exact law."""
    model = ising(3, 0.9, 0.05) if name == "ising" else mixture()
    d = len(model.hypergraph.domain)
    law = np.exp(exact_table(model.hypergraph, model.tables))
    num_chains = 10_000
    init = torch.full((num_chains, d), start)
    options: dict[str, Any] = {"init": init, "burn_in": 160, "seed": 2, "engine": ENGINE}
    run = sample_tempered(model, num_chains, 40, betas=6, record="statistics", **options)
    cards = model.hypergraph.domain.cardinalities
    assert_exact_law(count_states(run.states, cards), law.reshape(-1), what="tempered chains")
    assert float(run.swap_rates.min()) > 0.2 and int(run.round_trips.sum()) > num_chains
    assert run.eta is not None and run.std_error is not None
    eta = exact_statistics(model.hypergraph, np.log(law))
    assert np.abs((run.eta.numpy() - eta) / run.std_error.numpy()).max() < 10  # 15 degrees of freedom, 60 cells

    plain = sample_chains(model, num_chains, 40, record=(), **options)
    with pytest.raises(AssertionError):
        assert_exact_law(count_states(plain.chains.codes, cards), law.reshape(-1), what="plain chains")


# The ladder


def test_adapted_ladder_has_equal_swap_rates() -> None:
    model = ising(4, 0.6, 0.1)
    options: dict[str, Any] = {"betas": np.linspace(0, 1, 7) ** 3, "burn_in": 320, "seed": 1, "engine": ENGINE}
    fixed = sample_tempered(model, 200, 100, **options)
    assert_close(fixed.betas, np.linspace(0, 1, 7) ** 3)
    adapted = sample_tempered(model, 200, 100, adapt=True, **options)
    assert float(adapted.betas[0]) == 0 and float(adapted.betas[-1]) == 1 and bool((adapted.betas.diff() > 0).all())
    assert float(adapted.swap_rates.max() - adapted.swap_rates.min()) < 0.1
    assert float(fixed.swap_rates.max() - fixed.swap_rates.min()) > 0.4  # control
    assert float(adapted.round_trips.double().mean()) > 1.5 * float(fixed.round_trips.double().mean())


def test_round_trips_are_those_of_labelled_states(monkeypatch: pytest.MonkeyPatch) -> None:
    model, reference = tiny_model()
    num_chains, rounds = 7, 60
    masks = np.random.default_rng(3).random((rounds, 2, num_chains)) < 0.7
    drawn = iter(np.where(masks, np.inf, -np.inf))
    monkeypatch.setattr(ladder_module, "_exponentials", lambda *_: next(drawn))
    ladder = ParallelTempering(model, num_chains, BETAS, reference=reference, engine=ENGINE)
    label = np.arange(3)[:, None].repeat(num_chains, 1)
    history = [label.copy()]
    for k in range(rounds):
        ladder.sweep()
        i = k % 2
        label[i : i + 2, masks[k, i]] = label[i : i + 2, masks[k, i]][::-1]
        history.append(label.copy())
    expected = np.zeros(num_chains, dtype=int)
    for c, name in itertools.product(range(num_chains), range(3)):
        path = [int(np.flatnonzero(h[:, c] == name)[0]) for h in history]
        ends = [p for p in path if p in (0, 2)]
        turns = [p for p, _ in itertools.groupby(ends)]
        expected[c] += sum(turns[j : j + 3] == [2, 0, 2] for j in range(len(turns)))
    assert ladder.round_trips.tolist() == expected.tolist() and expected.sum() > 10
    assert_close(ladder.swap_rates, [masks[k::2, k].mean() for k in (0, 1)])
    ladder.reset_statistics()
    assert bool(ladder.swap_rates.isnan().all()) and int(ladder.round_trips.sum()) == 0


def test_records_are_those_of_the_target() -> None:
    model, reference = tiny_model()
    run = sample_tempered(
        model,
        6,
        40,
        betas=BETAS,
        burn_in=4,
        thin=4,
        swap_every=2,
        record=("statistics", "energy", "codes"),
        reference=reference,
        clamped={"x0": torch.tensor([0, 1, 0, 1, 1, 0])},
        engine=ENGINE,
    )
    assert run.codes is not None and run.energies is not None and run.eta is not None
    assert run.codes.shape == (10, 6, 2) and run.energies.shape == (10, 3, 6) and run.states.shape == (6, 2)
    assert bool((run.codes[..., 0] == torch.tensor([0, 1, 0, 1, 1, 0])).all())
    table = torch.from_numpy(exact_table(model.hypergraph, model.tables, normalised=False))
    rows = run.codes.long()
    assert_close(run.energies[:, -1], -table[rows[..., 0], rows[..., 1]], relative=1e-6)
    counted = count_states(rows, [2, 2]).reshape(2, 2)
    with np.errstate(divide="ignore"):
        assert_close(run.eta, exact_statistics(model.hypergraph, np.log(counted / counted.sum())))
    assert run.chains.num_sweeps == 44 and run.ladder.chains is run.chains


# Resuming

SETTINGS: dict[str, Any] = {
    "burn_in": 64,
    "thin": 2,
    "betas": 4,
    "record": ("statistics", "energy", "codes"),
    "schedule": GibbsSchedule("interactions", scan="random"),
    "seed": 9,
    "engine": ENGINE,
}


def assert_equal_runs(first: TemperedRun, second: TemperedRun) -> None:
    for name in ("eta", "std_error", "energies", "codes", "betas", "swap_rates", "round_trips"):
        assert torch.equal(getattr(first, name), getattr(second, name)), name
    for name, value in first.ladder.state_dict().items():
        assert torch.equal(value, second.ladder.state_dict()[name]), name


@pytest.mark.parametrize("when", [20, 80])
def test_interrupted_run_is_resumed_with_the_same_bits(
    when: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, _ = tiny_model()
    path = tmp_path / "run"
    whole = sample_tempered(model, 8, 100, **SETTINGS)
    original, count = ParallelTempering.swap, [0]

    def swap(self: ParallelTempering) -> None:
        count[0] += 1
        if count[0] == when:
            os.kill(os.getpid(), signal.SIGINT)
        original(self)

    with monkeypatch.context() as patch:
        patch.setattr(ParallelTempering, "swap", swap)
        with pytest.raises(KeyboardInterrupt):
            sample_tempered(model, 8, 100, checkpoint=path, **SETTINGS)
    assert count[0] == when
    with pytest.raises(InputError, match="kind='tempered chains', not 'chains'"):
        sample_chains(model, 8, 100, checkpoint=path, resume=True, engine=ENGINE)
    with pytest.raises(InputError, match=r"swap_every=1, not 2"):
        sample_tempered(model, 8, 100, checkpoint=path, resume=True, **{**SETTINGS, "swap_every": 2})
    with pytest.raises(InputError, match="another model, schedule, clamped value, engine, seed or number of chains"):
        sample_tempered(model, 8, 100, checkpoint=path, resume=True, **{**SETTINGS, "seed": 8})
    assert_equal_runs(whole, sample_tempered(model, 8, 100, checkpoint=path, resume=True, **SETTINGS))


PROGRAM = """
    import sys
    sys.path.insert(0, {folder!r})
    from test_tempering import SETTINGS, tiny_model
    from pyro_hoim.log_linear import sample_tempered
    sample_tempered(tiny_model()[0], 8, 2000, checkpoint={path!r}, checkpoint_every=0.01, **SETTINGS)
"""


@pytest.mark.slow
def test_killed_run_is_resumed_with_the_same_bits(tmp_path: Path) -> None:
    path = tmp_path / "run"
    program = textwrap.dedent(PROGRAM.format(folder=str(Path(__file__).parent), path=str(path)))
    for pause in (0.2, 0.05, 0.0):  # a busy machine may let the run end before the signal is sent
        path.unlink(missing_ok=True)
        process = subprocess.Popen([sys.executable, "-c", program], env={**os.environ, "OMP_NUM_THREADS": "1"})
        deadline = time.monotonic() + 120
        while not path.exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)
        time.sleep(pause)
        process.kill()
        if process.wait(60):
            break
    assert process.returncode == -signal.SIGKILL
    resumed = sample_tempered(tiny_model()[0], 8, 2000, checkpoint=path, resume=True, **SETTINGS)
    assert_equal_runs(sample_tempered(tiny_model()[0], 8, 2000, **SETTINGS), resumed)
    assert [p.name for p in tmp_path.iterdir()] == ["run"]


def test_state_of_another_ladder_is_refused() -> None:
    model, reference = tiny_model()
    ladder = ParallelTempering(model, 4, BETAS, engine=ENGINE)
    other = ParallelTempering(model, 4, BETAS, reference=reference, engine=ENGINE)
    with pytest.raises(InputError, match="another model"):
        other.load_state_dict(ladder.state_dict())


# Bad input


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"betas": 1}, "betas: expected at least 2 rungs, received 1"),
        ({"betas": [1.0]}, "betas: expected at least two"),
        ({"betas": [0.0, 0.5]}, "betas: expected inverse temperatures that rise from at least 0 to 1"),
        ({"betas": [0.5, 0.2, 1.0]}, "betas: expected inverse temperatures that rise"),
        ({"betas": [-0.1, 1.0]}, "betas: expected inverse temperatures that rise"),
        ({"betas": [float("nan"), 1.0]}, "betas: expected inverse temperatures that rise"),
        ({"betas": [0.0, 1.0, 1.5]}, "betas: expected inverse temperatures that rise"),
        ({"swap_every": 0}, "swap_every: expected a positive"),
        ({"swap_every": 7, "burn_in": 70}, "thin: expected a multiple of swap_every=7"),
        ({"swap_every": 7, "thin": 7, "num_sweeps": 7}, "burn_in: expected a multiple of swap_every=7"),
        ({"burn_in": 10}, "burn_in: expected at least 16 sweeps to adapt the ladder, received 10"),
        ({"num_chains": 0}, "num_chains: expected a positive"),
        ({"record": "states"}, "record: expected"),
        ({"resume": True}, "resume: expected a checkpoint"),
        ({"model": LogLinearEnergy(tiny_model()[0].hypergraph, torch.zeros(2, 8))}, "model: expected one model"),
    ],
)
def test_bad_input_is_refused_before_work(
    options: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ParallelTempering, "sweep", None)
    with pytest.raises(InputError, match=message):
        sample_tempered(**{"model": tiny_model()[0], "num_chains": 3, "num_sweeps": 100, "engine": ENGINE, **options})


def test_wrong_types() -> None:
    with pytest.raises(InputTypeError, match="betas: expected numbers"):
        sample_tempered(tiny_model()[0], 3, betas="five", engine=ENGINE)  # type: ignore[arg-type]
    with pytest.raises(InputTypeError, match="model: expected a log-linear"):
        sample_tempered("model", 3, engine=ENGINE)  # type: ignore[arg-type]
