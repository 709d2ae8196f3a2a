"""Chains of the PyTorch engine on a device that is not the CPU: a pretended one here, CUDA where there is one."""

import numpy as np
import pytest
import torch
from other_device import AWAY, pretend

from pyro_hoim import Domain, GibbsChains, InteractionHypergraph, LogLinearEnergy
from pyro_hoim.log_linear.chains import torch_engine
from pyro_hoim.log_linear.chains.gibbs import reference_draws
from pyro_hoim.runs import GibbsSchedule
from pyro_hoim.testing import assert_exact_law, exact_table, random_tables, required_draws

GRAPH = InteractionHypergraph(
    Domain.from_cardinalities({"a": 2, "b": 3, "c": 2, "d": 2}),
    [("a", "b"), ("b", "c"), ("c", "d"), ("a", "d")],
    closure=True,
)
TABLES = torch.as_tensor(random_tables(GRAPH, np.random.default_rng(3), batch_shape=(2,), balanced=False))
SCHEDULES = [GibbsSchedule("colours"), GibbsSchedule("interactions"), GibbsSchedule("sites", "random")]


def _chains(device, schedule=None, **options):
    states = torch.arange(2 * 30 * 4).reshape(2, 30, 4) % 2
    model = LogLinearEnergy(GRAPH, TABLES.to(device))
    return GibbsChains(model, 30, schedule=schedule, init=states.to(device), seed=5, engine="torch", **options)


def _moved(chains, device):
    """What chains come to, by all that moves them."""
    record = chains.sweep(6, thin=2, counts=True, energies=True, states=True)
    found = [record.counts, record.energies, record.states]
    found.append(chains.anneal(torch.linspace(0, 1, 7), 2))
    chains.gather(torch.arange(30, device=device).flip(0).expand(2, 30))
    found += [chains.statistics(torch.linspace(0, 1, 30, device=device)), chains.states, chains.energy]
    chains.set_model(LogLinearEnergy(GRAPH, (2 * TABLES).to(device)))
    found.append(chains.anneal([1.0, 0.5, 0.0], reverse_order=True))
    chains.load_state_dict(chains.state_dict())
    chains.sweep(3, torch.tensor([0.3, 0.8]))
    return [*found, chains.states, chains.reference_energy, chains.energy_of(LogLinearEnergy(GRAPH, TABLES.to(device)))]


@pytest.mark.parametrize("schedule", SCHEDULES, ids=repr)
def test_chains_on_a_device_do_what_they_do_on_the_cpu(schedule):
    wanted = _moved(_chains("cpu", schedule), "cpu")
    with pretend():
        found = _moved(_chains(AWAY, schedule), AWAY)
        assert all(part.device == AWAY for part in found)
        found = [part.cpu() for part in found]
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def test_sweeps_wait_for_nothing():
    """After the first sweep nothing is sent to the device or back, however much is recorded."""
    with pretend() as waits:
        chains = _chains(AWAY)
        for num_sweeps in (1, 20):
            waits.clear()
            chains.sweep(num_sweeps, 0.5, thin=1, counts=True, energies=True, states=True)
            chains.anneal(torch.linspace(0, 1, num_sweeps + 1))
            chains.statistics(chains.energy)
        assert not waits
        float(chains.energy[0, 0])  # control
        chains.statistics().cpu()
        assert sum(waits.values()) == 2


def test_counts_of_large_tables_take_little_memory(monkeypatch):
    """Cells have fewer buckets where all of them would be many; the counts are the same."""
    with pretend():
        chains = _chains(AWAY)
        wanted = chains.statistics().cpu()
        for limit in (1, 3 * 2 * (GRAPH.num_terms + 1)):
            monkeypatch.setattr(torch_engine, "_MAX_BUCKETS", limit)
            assert torch.equal(chains.statistics().cpu(), wanted)
    assert float(wanted[0, :2].sum()) == 30


def test_control_device_refuses_what_a_device_refuses():
    with pretend():
        away = torch.zeros(3, device=AWAY)
        with pytest.raises(RuntimeError, match="same device"):
            away + torch.ones(3)
        with pytest.raises(RuntimeError, match="generator"):
            torch.rand(3, generator=torch.Generator("cpu"), device=AWAY)
        with pytest.raises((TypeError, RuntimeError), match=r"numpy\(\)"):
            away.numpy()
        assert (away + 1 + torch.tensor(1.0)).tolist() == [2, 2, 2]


def test_default_schedule_of_a_device_is_by_colours():
    with pretend():
        assert repr(_chains(AWAY)._schedule) == repr(GibbsSchedule("colours"))
    assert repr(_chains("cpu")._schedule) == repr(GibbsSchedule("sites"))


@pytest.mark.cuda
@pytest.mark.parametrize("schedule", SCHEDULES, ids=repr)
def test_captured_sweeps_of_cuda_equal_plain_ones(schedule):
    device = torch.device("cuda", 0)
    captured, plain = _chains(device, schedule), _chains(device, schedule)
    plain._engine._graphs.is_on = False
    for _ in range(3):
        for one, other in zip(_moved(captured, device), _moved(plain, device), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)
    assert captured._engine._graphs.is_on


def _counts_after_a_sweep(device, count, beta=1.0):
    """Numbers of chains (2, 24) in every state after one sweep from the exact law, and that law."""
    law = np.exp(exact_table(GRAPH, TABLES.numpy())).reshape(2, 24)
    states = np.stack([np.random.default_rng(g).choice(24, count, p=law[g]) for g in range(2)])
    codes = torch.as_tensor(np.stack(np.unravel_index(states, GRAPH.domain.cardinalities), -1)).to(device)
    chains = GibbsChains(LogLinearEnergy(GRAPH, TABLES.to(device)), count, init=codes, seed=8, engine="torch")
    chains.sweep(1, beta)
    cells = chains.states.cpu() @ torch.tensor([12, 4, 2, 1])
    return torch.stack([torch.bincount(row, minlength=24) for row in cells]).numpy(), law


@pytest.mark.parametrize("where", ["away", pytest.param("cuda", marks=pytest.mark.cuda)])
def test_a_sweep_on_a_device_keeps_the_law(where):
    count = required_draws(24, 0.05)
    if where == "away":
        with pretend():
            (counts, law), (wrong, _) = (_counts_after_a_sweep(AWAY, count, beta) for beta in (1.0, 0.7))
    else:
        (counts, law), (wrong, _) = (_counts_after_a_sweep("cuda:0", count, beta) for beta in (1.0, 0.7))
    assert_exact_law(counts, law / 2, what="states after a sweep, of two models")
    with pytest.raises(AssertionError):
        assert_exact_law(wrong, law / 2, what="states after a sweep at another beta")


@pytest.mark.parametrize("is_wrong", [False, True])
def test_first_states_follow_the_reference_law(is_wrong):
    reference = torch.tensor([[0.0, 1.0, -1.0, 0.5, 0.0, 2.0, 0.0, -0.5, 0.5]], dtype=torch.float64)
    used = reference * 0.8 if is_wrong else reference
    states = reference_draws(GRAPH.domain, used, (1, 60_000), 4)[0]
    parts = [part.softmax(-1) for part in reference[0].split(GRAPH.domain.cardinalities)]
    law = torch.einsum("a,b,c,d->abcd", *parts).reshape(1, -1).numpy()
    cells = states @ torch.tensor([12, 4, 2, 1])
    counts = torch.bincount(cells, minlength=24)[None].numpy()
    if is_wrong:
        with pytest.raises(AssertionError):
            assert_exact_law(counts, law, what="first states")
        return
    assert_exact_law(counts, law, what="first states")
