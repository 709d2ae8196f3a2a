"""Chains as an object: caches, batches, records, checkpoints, clamped variables, edge cases and bad input."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import norm

from pyro_hoim.errors import InputError, InputTypeError, IntractableError, UnknownNameError
from pyro_hoim.log_linear import GibbsChains, LogLinearEnergy
from pyro_hoim.runs import GibbsSchedule
from pyro_hoim.schema import Domain
from pyro_hoim.structure import InteractionHypergraph
from pyro_hoim.testing import (
    FALSE_ALARM_RATE,
    assert_close,
    assert_exact_law,
    count_states,
    enumerate_codes,
    exact_log_partition,
    exact_table,
    raises,
    random_tables,
    recompute_counts,
    recompute_energy,
    required_draws,
    tempered_law,
)

ENGINES = ("products", "tables", "torch")
COMPILED = ("products", "tables")
SCHEDULES = [
    GibbsSchedule(),
    GibbsSchedule("interactions", "random"),
    GibbsSchedule("colours", emphasised=[("a", "b")]),
]
MIXED = InteractionHypergraph(
    Domain.from_labels({"a": ["no", "yes"], "b": ["x", "y", "z"], "c": ["only"], "d": ["0", "1"]}),
    [("a", "b", "d"), ("c",)],
    closure=True,
)
BINARY = InteractionHypergraph(
    Domain.from_labels({"a": ["no", "yes"], "b": ["x", "y"], "c": ["only"], "d": ["0", "1"]}),
    [("a", "b", "d"), ("c",)],
    closure=True,
)


def _graph(engine: Any) -> InteractionHypergraph:
    return BINARY if engine == "products" else MIXED


def _model(engine: Any, *batch: int, seed: int = 0, scale: float = 1.0) -> LogLinearEnergy:
    rng = np.random.default_rng(seed)
    tables = random_tables(_graph(engine), rng, scale=scale, batch_shape=batch, balanced=False)
    return LogLinearEnergy(_graph(engine), torch.as_tensor(tables))


def _chains(engine: Any, *batch: int, num_chains: int = 30, **arguments: Any) -> GibbsChains:
    return GibbsChains(_model(engine, *batch), num_chains, engine=engine, **{"seed": 3, **arguments})


def _assert_energy(chains: GibbsChains, model: LogLinearEnergy, reference: torch.Tensor | None = None) -> None:
    """Cached energies equal recomputed ones for every element of the batch."""
    codes, size = chains.states, sum(chains.domain.cardinalities)
    weights = torch.zeros(size) if reference is None else reference
    starts = np.cumsum([0, *chains.domain.cardinalities])[:-1]
    for index in itertools.product(*map(range, chains.batch_shape)):
        energy = recompute_energy(chains.hypergraph, model.tables[index], codes[index])
        assert_close(chains.energy[index], energy, relative=1e-9, what="cached energy")
        row = weights.expand(*chains.batch_shape, size)[index].double().numpy()
        expected = -row[codes[index].numpy() + starts].sum(-1)
        assert_close(chains.reference_energy[index], expected, relative=1e-9, what="cached reference energy")


# Energy cache


@pytest.mark.parametrize("schedule", SCHEDULES, ids=["sites", "random", "emphasised"])
@pytest.mark.parametrize("engine", ENGINES)
def test_energies_are_right_after_every_operation(engine: Any, schedule: GibbsSchedule) -> None:
    first, second = _model(engine, 2, 3), _model(engine, 2, 3, seed=1)
    reference = torch.randn(2, 3, sum(_graph(engine).domain.cardinalities), generator=torch.Generator().manual_seed(1))
    clamped = {"b": torch.arange(30) % 2}
    chains = GibbsChains(
        first,
        30,
        schedule=schedule,
        clamped=clamped,
        reference=reference,
        engine=engine,
        seed=5,
    )
    _assert_energy(chains, first, reference)
    chains.sweep(4, 0.5)
    _assert_energy(chains, first, reference)
    chains.sweep(3, torch.tensor([[0.0, 0.5, 1.0], [1.0, 0.2, 0.7]]), thin=2, counts=True, energies=True, states=True)
    _assert_energy(chains, first, reference)
    saved = chains.state_dict()
    chains.gather(torch.randint(30, (2, 3, 30), generator=torch.Generator().manual_seed(2)))
    _assert_energy(chains, first, reference)
    chains.anneal([0.0, 0.4, 1.0], 2)
    _assert_energy(chains, first, reference)
    chains.load_state_dict(saved)
    _assert_energy(chains, first, reference)
    chains.set_model(second)
    _assert_energy(chains, second, reference)
    chains.sweep(1)
    _assert_energy(chains, second, reference)
    chains.set_states(torch.zeros(4, dtype=torch.long))
    _assert_energy(chains, second, reference)
    with pytest.raises(AssertionError, match="cached energy"):  # control: weights that changed behind the cache
        _assert_energy(chains, first, reference)


@pytest.mark.parametrize("engine", ENGINES)
def test_energies_under_other_tables(engine: Any) -> None:
    model, other = _model(engine, 2, 3), _model(engine, 2, 3, seed=1)
    reference = torch.randn(sum(_graph(engine).domain.cardinalities), generator=torch.Generator().manual_seed(1))
    chains = GibbsChains(model, 30, engine=engine, reference=reference, seed=5)
    chains.sweep(2)
    found, codes = chains.energy_of(other), chains.states
    for index in itertools.product(range(2), range(3)):
        expected = recompute_energy(chains.hypergraph, other.tables[index], codes[index])
        assert_close(found[index], expected, relative=1e-9)
    _assert_energy(chains, model, reference)  # the tables of the chains stayed
    twin = GibbsChains(model, 30, engine=engine, reference=reference, seed=5)
    twin.sweep(2)
    for each in (chains, twin):
        each.sweep(3)
    assert torch.equal(chains.states, twin.states)
    with pytest.raises(InputError, match="tables"):
        chains.energy_of(_model(engine, 2))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("schedule", SCHEDULES, ids=["sites", "random", "emphasised"])
def test_annealing_between_two_models(engine: Any, schedule: GibbsSchedule) -> None:
    """Exact draws of the first model are weighted to the constant of the second; a product law would not be."""
    first, last = (_model(engine, seed=s, scale=2.0) for s in (0, 1))
    graph, num_chains = first.hypergraph, 4000
    law = np.exp(exact_table(graph, first.tables)).reshape(-1)
    picked = np.random.default_rng(0).choice(len(law), size=num_chains, p=law / law.sum())
    states = torch.from_numpy(enumerate_codes(graph.domain.cardinalities)[picked])
    reference = torch.randn(sum(graph.domain.cardinalities), generator=torch.Generator().manual_seed(2))
    exact = float(exact_log_partition(graph, last.tables)) - float(exact_log_partition(graph, first.tables))

    def errors(start: LogLinearEnergy | None) -> float:
        chains = GibbsChains(last, num_chains, schedule=schedule, init=states, reference=reference, engine=engine)
        log_weights = chains.anneal(torch.linspace(0, 1, 21), 2, start=start)
        _assert_energy(chains, last, reference)
        weights = (log_weights - exact).exp()
        return abs(float(weights.mean()) - 1) / (float(weights.std()) / math.sqrt(num_chains))

    assert errors(first) < norm.isf(FALSE_ALARM_RATE / 2)
    assert errors(None) > norm.isf(FALSE_ALARM_RATE / 2)  # control: the path from the reference has other constants
    chains = GibbsChains(last, num_chains, init=states, engine=engine)
    before = chains.energy_of(first) - chains.energy
    assert_close(chains.anneal([0.0, 1.0], start=first), before, relative=1e-9)
    before = chains.energy_of(first) - chains.energy
    assert_close(chains.anneal([1.0, 0.25], start=first, reverse_order=True), -0.75 * before, relative=1e-9)
    assert_close(chains.anneal(torch.linspace(0, 1, 9), start=last), torch.zeros(num_chains), absolute=1e-12)
    with pytest.raises(InputError, match="tables"):
        chains.anneal([0.0, 1.0], start=_model(engine, 2))


@pytest.mark.parametrize("engine", ENGINES)
def test_gather_takes_states_of_the_same_element(engine: Any) -> None:
    chains = _chains(engine, 2)
    before = chains.states
    index = torch.stack([torch.arange(30).flip(0), torch.zeros(30, dtype=torch.long)])
    chains.gather(index)
    assert torch.equal(chains.states[0], before[0].flip(0))
    assert torch.equal(chains.states[1], before[1, :1].expand(30, -1))


@pytest.mark.parametrize("engine", ENGINES)
def test_new_weights_change_the_law(engine: Any) -> None:
    """Chains that were made for other tables follow the new ones."""
    graph, states = _graph(engine), enumerate_codes(_graph(engine).domain.cardinalities)
    size, schedule = required_draws(len(states), 0.05), GibbsSchedule([("a", "b", "d")])
    chains = _chains(engine, num_chains=size, schedule=schedule)
    model = _model(engine, seed=8)
    old = tempered_law(graph, _model(engine).tables)
    chains.sweep(2)
    assert_exact_law(count_states(chains.states, graph.domain.cardinalities), old)
    chains.set_model(model)
    chains.sweep(1)
    counts = count_states(chains.states, graph.domain.cardinalities)
    assert_exact_law(counts, tempered_law(graph, model.tables))
    with pytest.raises(AssertionError, match="chi-square"):
        assert_exact_law(counts, old)


# Batches, seeds, threads


@pytest.mark.parametrize("engine", ENGINES)
def test_batch_has_the_laws_of_its_members(engine: Any) -> None:
    """A total variation of 0.05 is found in four laws at once; blocks of all variables are independent draws."""
    graph, states = _graph(engine), enumerate_codes(_graph(engine).domain.cardinalities)
    size, schedule = required_draws(len(states), 0.05), GibbsSchedule([("a", "b", "d")])
    chains = _chains(engine, 2, 2, num_chains=size, schedule=schedule)
    assert chains.batch_shape == (2, 2)
    assert chains.states.shape == (2, 2, size, 4)
    beta = torch.tensor([[0.2, 1.0], [0.6, 0.0]])
    chains.sweep(1, beta)
    counts, laws = [], []
    for i, j in itertools.product(range(2), range(2)):
        counts.append(count_states(chains.states[i, j], graph.domain.cardinalities))
        laws.append(tempered_law(graph, _model(engine, 2, 2).tables[i, j], beta=float(beta[i, j])))
    assert_exact_law(np.stack(counts), np.stack(laws) / 4)
    with pytest.raises(AssertionError):
        assert_exact_law(np.stack(counts), np.stack(laws[::-1]) / 4)


@pytest.mark.parametrize("engine", COMPILED)
def test_first_element_and_first_chains_have_the_same_bits_in_larger_runs(engine: Any) -> None:
    model = _model(engine, 3)
    single = LogLinearEnergy(model.hypergraph, model.tables[0])
    init = torch.zeros(4, dtype=torch.long)
    small = GibbsChains(single, 10, init=init, engine=engine, seed=4)
    for batch, num_chains in ((model, 10), (model, 70), (single, 300)):
        large = GibbsChains(batch, num_chains, init=init, engine=engine, seed=4)
        small.set_states(init)
        small = GibbsChains(single, 10, init=init, engine=engine, seed=4)
        small.sweep(5)
        large.sweep(5)
        codes = large.states[0] if large.batch_shape else large.states
        assert torch.equal(codes[:10], small.states)


@pytest.mark.parametrize("engine", COMPILED)
def test_first_chains_start_alike_whatever_the_number_of_chains(engine: Any) -> None:
    reference = torch.arange(sum(_graph(engine).domain.cardinalities)) / 3
    few, many = (_chains(engine, 2, num_chains=n, reference=reference) for n in (5, 80))
    assert torch.equal(few.states, many.states[:, :5])
    more = _chains(engine, 3, num_chains=5, reference=reference)
    assert torch.equal(few.states, more.states[:2])


@pytest.mark.parametrize("schedule", SCHEDULES, ids=["sites", "random", "emphasised"])
@pytest.mark.parametrize("engine", ENGINES)
def test_equal_seeds_give_equal_bits_on_any_number_of_threads(engine: Any, schedule: GibbsSchedule) -> None:
    def run(threads: int, seed: int) -> tuple[torch.Tensor, ...]:
        torch.set_num_threads(threads)
        chains = _chains(engine, 3, num_chains=300, seed=seed, schedule=schedule)
        record = chains.sweep(6, thin=2, counts=True, energies=True, states=True)
        assert record.counts is not None
        assert record.energies is not None
        assert record.states is not None
        weights = chains.anneal([1.0, 0.3, 0.8])
        parts = chains.states, chains.energy, record.counts, record.energies, record.states
        return *parts, weights, chains.statistics(weights)

    before = torch.get_num_threads()
    try:
        one, two, other = run(1, 5), run(2, 5), run(1, 6)
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))
    assert not torch.equal(one[0], other[0])


@pytest.mark.parametrize("engine", ENGINES)
def test_global_random_numbers_are_left_alone(engine: Any) -> None:
    torch_state, numpy_state = torch.random.get_rng_state(), np.random.get_state()  # noqa: NPY002
    chains = _chains(engine, schedule=GibbsSchedule("sites", "random"))
    chains.sweep(3, thin=1, counts=True)
    chains.anneal([1.0, 0.5])
    assert torch.equal(torch_state, torch.random.get_rng_state())
    after: Any = np.random.get_state()  # noqa: NPY002
    np.testing.assert_array_equal(numpy_state[1], after[1])


def test_initial_states_follow_the_reference_law() -> None:
    reference = torch.tensor([0.0, 1.0, -1.0, 0.0, 1.0, 5.0, 0.3, -0.3], dtype=torch.float64)
    states = enumerate_codes(MIXED.domain.cardinalities)
    chains = _chains("torch", num_chains=required_draws(len(states), 0.03), reference=reference)
    law = tempered_law(MIXED, _model("torch").tables, beta=0.0, reference=reference)
    counts = count_states(chains.states, MIXED.domain.cardinalities)
    assert_exact_law(counts, law)
    with pytest.raises(AssertionError):
        assert_exact_law(counts, np.full(len(law), 1 / len(law)))


# Records


@pytest.mark.parametrize("schedule", SCHEDULES, ids=["sites", "random", "emphasised"])
@pytest.mark.parametrize("engine", ENGINES)
def test_records_agree_with_recorded_states(engine: Any, schedule: GibbsSchedule) -> None:
    chains, silent = (_chains(engine, 2, num_chains=25, schedule=schedule) for _ in range(2))
    record = chains.sweep(11, 0.8, thin=4, counts=True, energies=True, states=True)
    assert record.num_records == 2
    assert record.states is not None
    assert record.energies is not None
    assert record.counts is not None
    assert record.states.shape == (2, 2, 25, 4)
    assert record.energies.shape == (2, 2, 25)
    silent.sweep(8, 0.8)
    assert torch.equal(silent.states, record.states[1].long())
    silent.sweep(3, 0.8)
    assert torch.equal(silent.states, chains.states)
    assert chains.num_sweeps == silent.num_sweeps == 11
    for b in range(2):
        tables = _model(engine, 2).tables[b]
        energy = recompute_energy(chains.hypergraph, tables, record.states[:, b])
        assert_close(record.energies[:, b], energy, relative=1e-9, what="recorded energies")
        assert_close(record.counts[b], recompute_counts(chains.hypergraph, record.states[:, b]), relative=0.0)
        assert_close(chains.statistics()[b], recompute_counts(chains.hypergraph, chains.states[b]), relative=0.0)


@pytest.mark.parametrize("engine", ENGINES)
def test_no_sweeps_and_no_records(engine: Any) -> None:
    chains = _chains(engine, num_chains=4, schedule=GibbsSchedule("sites", "random"))
    before = chains.states
    for num_sweeps, thin in ((0, 1), (2, 3)):
        record = chains.sweep(num_sweeps, thin=thin, counts=True, energies=True, states=True)
        assert record.num_records == 0
        assert record.counts is not None
        assert not record.counts.any()
        assert record.energies is not None
        assert record.energies.shape == (0, 4)
        assert record.states is not None
        assert record.states.shape == (0, 4, 4)
        if not num_sweeps:
            assert torch.equal(chains.states, before)
    assert chains.anneal([0.3]).tolist() == [0.0] * 4
    empty = chains.sweep(2, thin=1)
    assert (empty.num_records, empty.counts, empty.energies, empty.states) == (2, None, None, None)


@pytest.mark.parametrize("engine", ENGINES)
def test_weighted_statistics(engine: Any) -> None:
    chains = _chains(engine, 2, num_chains=40)
    weights = torch.rand(2, 40, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    for b in range(2):
        expected = recompute_counts(chains.hypergraph, chains.states[b], weights[b])
        assert_close(chains.statistics(weights)[b], expected, relative=1e-12)
        shared = recompute_counts(chains.hypergraph, chains.states[b], weights[0])
        assert_close(chains.statistics(weights[0])[b], shared, relative=1e-12)


# Checkpoints


@pytest.mark.parametrize("schedule", SCHEDULES, ids=["sites", "random", "emphasised"])
@pytest.mark.parametrize("engine", ENGINES)
def test_reloaded_chains_continue_with_equal_bits(engine: Any, schedule: GibbsSchedule) -> None:
    whole, first, second = (_chains(engine, 2, num_chains=33, schedule=schedule) for _ in range(3))
    whole.sweep(12)
    first.sweep(5)
    state = {name: value.clone() for name, value in first.state_dict().items()}
    first.sweep(2)  # must not change the saved state
    second.sweep(1)
    second.load_state_dict(state)
    assert second.num_sweeps == 5
    second.sweep(7)
    assert torch.equal(second.states, whole.states)
    assert torch.equal(second.energy, whole.energy)
    assert torch.equal(second.sweep(2, thin=1, states=True).states, whole.sweep(2, thin=1, states=True).states)


@pytest.mark.parametrize("engine", ENGINES)
def test_saved_state_is_a_copy(engine: Any) -> None:
    chains = _chains(engine)
    state = chains.state_dict()
    kept = {name: value.clone() for name, value in state.items()}
    chains.sweep(3)
    chains.gather(torch.zeros(30, dtype=torch.long))
    assert all(torch.equal(state[name], kept[name]) for name in kept)


@pytest.mark.parametrize(
    "other",
    [
        lambda: GibbsChains(_model("torch", seed=1), 30, seed=3, engine="torch"),
        lambda: _chains("torch", num_chains=29),
        lambda: _chains("torch", seed=4),
        lambda: _chains("torch", schedule=GibbsSchedule("colours")),
        lambda: _chains("torch", clamped={"a": 1}),
        lambda: _chains("torch", 1),
        lambda: _chains("torch", reference=torch.ones(8)),
        lambda: _chains("tables"),
    ],
    ids=["tables", "chains", "seed", "schedule", "clamped", "batch", "reference", "engine"],
)
def test_checkpoint_of_other_chains_is_refused(other: Callable[[], GibbsChains]) -> None:
    chains = _chains("torch")
    before = chains.states
    with pytest.raises(InputError, match="state: the checkpoint belongs to chains of another model"):
        chains.load_state_dict(other().state_dict())
    with pytest.raises(InputError, match="state: the checkpoint belongs to chains of another model"):
        chains.load_state_dict({})
    assert torch.equal(chains.states, before)


# Clamped variables


@pytest.mark.parametrize("kind", ["sites", "interactions"])
@pytest.mark.parametrize("engine", ENGINES)
def test_clamped_values_never_change(engine: Any, kind: Any) -> None:
    """One by label, one per chain; the law of the rest is conditional (total variation 0.05)."""
    graph = _graph(engine)
    size = 2 * required_draws(4, 0.05)
    values = torch.arange(size) % 2
    clamped = {"a": "yes", "b": values}
    chains = _chains(engine, num_chains=size, schedule=GibbsSchedule(kind), clamped=clamped)
    assert chains.clamped == ("a", "b")
    record = chains.sweep(4, thin=1, states=True)
    chains.anneal([1.0, 0.5, 1.0])
    assert record.states is not None
    for codes in (*record.states, chains.states):
        assert (codes[:, 0] == 1).all()
        assert torch.equal(codes[:, 1].long(), values)
    counts = np.stack([count_states(chains.states[values == v], graph.domain.cardinalities) for v in range(2)])
    laws = [tempered_law(graph, _model(engine).tables, clamped={"a": 1, "b": v}) for v in range(2)]
    assert_exact_law(counts, np.stack(laws) / 2)
    with pytest.raises(AssertionError):
        assert_exact_law(counts, np.stack(laws[::-1]) / 2)


@pytest.mark.parametrize("engine", ENGINES)
def test_everything_clamped(engine: Any) -> None:
    chains = _chains(engine, clamped={"a": 1, "b": 0, "c": "only", "d": 1})
    assert chains.blocks == ()
    chains.sweep(3, thin=1, counts=True)
    chains.anneal([0.0, 1.0])
    assert chains.states.unique(dim=0).tolist() == [[1, 0, 0, 1]]
    _assert_energy(chains, _model(engine))


# Edge cases


@pytest.mark.parametrize("num_chains", [1, 17, 65])
@pytest.mark.parametrize(
    ("cardinalities", "edges"),
    [([2, 2], []), ([2], [("x0",)]), ([2], []), ([1, 1], [("x0", "x1")]), ([1, 2, 1], [("x0", "x1", "x2")]), ([], [])],
    ids=["no edges", "one variable", "one free variable", "one state", "one-state variables", "empty"],
)
@pytest.mark.parametrize("engine", ENGINES)
def test_small_models(engine: Any, cardinalities: list[int], edges: list[tuple[str, ...]], num_chains: int) -> None:
    graph = InteractionHypergraph(Domain.from_cardinalities(cardinalities), edges, closure=True)
    model = LogLinearEnergy(graph, torch.arange(graph.num_terms, dtype=torch.float64).expand(2, -1))
    chains = GibbsChains(model, num_chains, engine=engine, seed=2)
    record = chains.sweep(3, thin=1, counts=True, energies=True, states=True)
    assert chains.states.shape == (2, num_chains, len(cardinalities))
    assert record.counts is not None
    assert record.counts.shape == (2, graph.num_terms)
    assert record.counts.sum() == 2 * 3 * num_chains * len(graph.edges)
    assert chains.anneal([0.0, 0.5, 1.0]).shape == (2, num_chains)
    chains.gather(torch.zeros(2, num_chains, dtype=torch.long))
    chains.load_state_dict(chains.state_dict())
    _assert_energy(chains, model)
    if cardinalities == [2, 2] and num_chains > 60:
        assert len(chains.sweep(20, thin=1, states=True).states.flatten(0, 2).unique(dim=0)) == 4


@pytest.mark.parametrize("engine", ["tables", "torch"])
def test_more_levels_than_a_byte_holds(engine: Any) -> None:
    graph = InteractionHypergraph(Domain.from_cardinalities([257, 2]), [("x0", "x1")], closure=True)
    tables = torch.zeros(graph.num_terms, dtype=torch.float64)
    tables[256] = 6.0  # the last level of x0
    model = LogLinearEnergy(graph, tables)
    size = required_draws(3, 0.03)
    chains = GibbsChains(model, size, engine=engine, seed=2)
    record = chains.sweep(1, thin=1, states=True, energies=True, counts=True)
    assert record.states is not None
    assert record.states.dtype == torch.int32
    assert torch.equal(record.states[0].long(), chains.states)
    top, total = math.exp(6.0), 256 + math.exp(6.0)
    first = chains.states[:, 0]
    counts = [int((first < 128).sum()), int(((first >= 128) & (first < 256)).sum()), int((first == 256).sum())]
    assert_exact_law(counts, np.array([128, 128, top]) / total)
    _assert_energy(chains, model)


@pytest.mark.parametrize("scale", [0.0, 1.0, 30.0])
@pytest.mark.parametrize("engine", ENGINES)
def test_scales_of_theta(engine: Any, scale: float) -> None:
    """Blocks of everything draw from the law at any scale (total variation 0.05)."""
    model = _model(engine, scale=scale)
    graph, states = _graph(engine), enumerate_codes(_graph(engine).domain.cardinalities)
    size = required_draws(len(states), 0.05)
    schedule = GibbsSchedule([("a", "b", "d")])
    chains = GibbsChains(model, size, schedule=schedule, engine=engine, seed=9)
    chains.sweep(1)
    law = tempered_law(graph, model.tables)
    assert_exact_law(count_states(chains.states, graph.domain.cardinalities), law)
    _assert_energy(chains, model)


def test_auto_picks_an_engine_by_cardinalities() -> None:
    binary = GibbsChains(_model("products"), 10, seed=1)
    products = GibbsChains(_model("products"), 10, seed=1, engine="products")
    mixed = GibbsChains(_model("tables"), 10, seed=1)
    tables = GibbsChains(_model("tables"), 10, seed=1, engine="tables")
    for a, b in ((binary, products), (mixed, tables)):
        assert a.fingerprint == b.fingerprint
        a.sweep(3)
        b.sweep(3)
        assert torch.equal(a.states, b.states)


def test_tables_in_single_precision_and_with_a_gradient() -> None:
    tables = _model("torch").tables.float().requires_grad_()
    chains = GibbsChains(LogLinearEnergy(MIXED, tables), 20, engine="torch")
    chains.sweep(2)
    assert chains.energy.dtype == torch.float64
    assert not chains.energy.requires_grad
    _assert_energy(chains, LogLinearEnergy(MIXED, tables.detach()))


# Annealing


@pytest.mark.parametrize("engine", ENGINES)
def test_reversed_order_visits_backwards(engine: Any) -> None:
    """Blocks a, b, d backwards: the last visit of the reversed run is a's."""
    schedule = GibbsSchedule([("d",), ("a",), ("b",)])
    chains = _chains(engine, num_chains=10, schedule=schedule)
    rows: list[Any] = []
    inner: Any = chains._engine  # the order that the engine gets is all that changes
    chains._engine = SimpleNamespace(anneal=lambda order, betas, steps, start: rows.append(order) or torch.zeros(1, 10))
    chains.anneal([1.0, 0.5], reverse_order=False)
    chains.anneal([0.5, 1.0], reverse_order=True)
    chains._engine = inner
    assert rows[0].tolist() == [[0, 1, 2]]
    assert rows[1].tolist() == [[2, 1, 0]]


# Bad input


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"num_chains": 0}, InputError, "num_chains: expected a whole number from 1, received 0"),
        ({"num_chains": -3}, InputError, "num_chains: expected a whole number from 1, received -3"),
        ({"num_chains": 2.5}, InputError, r"num_chains: expected a whole number from 1, received 2\.5"),
        ({"num_chains": True}, InputError, "num_chains: expected a whole number from 1, received True"),
        ({"clamped": {"b": 3}}, InputError, "b.*3"),
        ({"clamped": {"b": -1}}, InputError, "b.*-1"),
        ({"clamped": {"b": "w"}}, InputError, "b.*'w'"),
        ({"clamped": {"b": torch.tensor(3)}}, InputError, r"clamped\['b'\]: expected whole numbers from 0 to 2"),
        ({"clamped": {"b": torch.tensor(0.5)}}, InputError, r"clamped\['b'\]: expected whole numbers.*received 0\.5"),
        ({"clamped": {"b": torch.zeros(7)}}, InputError, r"clamped\['b'\]: expected a shape that.*\(5,\).*\(7,\)"),
        ({"clamped": {"bb": 1}}, UnknownNameError, "'bb'.*'b'"),
        ({"clamped": {"bb": torch.tensor(1)}}, UnknownNameError, "'bb'.*'b'"),
        ({"clamped": ["b"]}, InputTypeError, "clamped: expected a mapping from names to values, received list"),
        ({"schedule": "sites"}, InputTypeError, "schedule: expected a GibbsSchedule, received str"),
        ({"schedule": GibbsSchedule([("a", "bb")])}, UnknownNameError, "blocks: unknown variable 'bb'"),
        ({"schedule": GibbsSchedule([("a",)])}, InputError, "'b', 'd' is in none"),
        ({"init": torch.zeros(5, 3)}, InputError, r"init: expected shape \(\.\.\., 4\), received \(5, 3\)"),
        ({"init": torch.zeros(6, 4)}, InputError, r"init: expected a shape that broadcasts to \(5, 4\)"),
        ({"init": torch.full((4,), 2)}, InputError, "init: expected whole numbers from 0 to 1, received 2"),
        ({"init": torch.full((4,), -1)}, InputError, "init: expected whole numbers from 0 to 1, received -1"),
        ({"init": torch.full((4,), math.nan)}, InputError, "init: expected whole numbers from 0 to 1, received nan"),
        ({"init": [0, 0, 0, 0]}, InputTypeError, "init: expected a tensor of level codes, received list"),
        ({"reference": torch.zeros(7)}, InputError, r"reference: expected shape \(\.\.\., 8\).*received \(7,\)"),
        ({"reference": torch.full((8,), math.inf)}, InputError, "reference: expected finite numbers, received inf"),
        ({"reference": torch.zeros(3, 8)}, InputError, r"reference: expected a shape that broadcasts to \(8,\)"),
        ({"reference": [0.0] * 8}, InputTypeError, "reference: expected a floating-point tensor, received list"),
        ({"seed": -1}, InputError, "seed: expected a whole number from 0 to 2.63 - 1, received -1"),
        ({"seed": 1.5}, InputTypeError, r"seed: expected a whole number.*received 1\.5"),
        ({"engine": "jax"}, InputError, "engine: expected 'auto', 'products', 'tables' or 'torch', received 'jax'"),
        ({"engine": "products"}, InputError, "engine: 'products' needs variables with at most two levels"),
        (
            {"precision": torch.float16},
            InputError,
            "precision: expected torch.float32 or torch.float64, received",
        ),
    ],
)
def test_bad_arguments_are_refused(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        GibbsChains(_model("torch"), **{"num_chains": 5, "engine": "torch", **arguments})


def _replaced(value: float) -> SimpleNamespace:
    tables = _model("torch").tables.clone()
    tables[2] = value
    return SimpleNamespace(hypergraph=MIXED, tables=tables)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_tables_that_are_not_finite_are_refused(value: float) -> None:
    chains = _chains("torch")
    before = chains.energy
    with pytest.raises(InputError, match=f"tables: expected finite numbers, received {value}"):
        GibbsChains(_replaced(value), 5)
    with pytest.raises(InputError, match=f"tables: expected finite numbers, received {value}"):
        chains.set_model(_replaced(value))
    assert torch.equal(chains.energy, before)


@pytest.mark.parametrize(
    ("model", "error", "message"),
    [
        (None, InputTypeError, "model: expected a log-linear energy model, received NoneType"),
        (torch.zeros(3), InputTypeError, "model: expected a log-linear energy model, received Tensor"),
        (SimpleNamespace(hypergraph=MIXED, tables=torch.zeros(2)), InputError, r"model: expected tables .*\(2,\)"),
        (SimpleNamespace(hypergraph=MIXED, tables=torch.zeros(0, 27)), InputError, "model: expected"),
    ],
)
def test_bad_models_are_refused(model: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        GibbsChains(model, 5)


def test_models_of_another_structure_are_refused() -> None:
    chains = _chains("torch")
    with raises("other-domain", "model"):
        chains.set_model(_model("products"))
    with raises("wrong-shape", "model: tables"):
        chains.set_model(_model("torch", 2))


def test_too_large_blocks_are_refused() -> None:
    graph = InteractionHypergraph.from_order(Domain.from_cardinalities([70, 70]), 1)
    model = LogLinearEnergy(graph, torch.zeros(140))
    with pytest.raises(IntractableError, match="4900 joint states, more than the limit of 4096"):
        GibbsChains(model, 5, schedule=GibbsSchedule([("x0", "x1")]))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda c: c.sweep(-1), "num_sweeps: expected a whole number from 0, received -1"),
        (lambda c: c.sweep(1.5), r"num_sweeps: expected a whole number from 0, received 1\.5"),
        (lambda c: c.sweep(1, thin=-2), "thin: expected a whole number from 0, received -2"),
        (lambda c: c.sweep(1, counts=True), "thin: expected 1 or more where something is recorded, received 0"),
        (lambda c: c.sweep(1, 1.1), r"beta: expected inverse temperatures within \[0, 1\], received 1\.1"),
        (lambda c: c.sweep(1, -0.1), r"beta: expected inverse temperatures within \[0, 1\], received -0\.1"),
        (lambda c: c.sweep(1, math.nan), r"beta: expected inverse temperatures within \[0, 1\], received nan"),
        (lambda c: c.sweep(1, torch.ones(3)), r"beta: expected a shape that broadcasts to \(2,\), received \(3,\)"),
        (lambda c: c.anneal([]), r"betas: expected a sequence of inverse temperatures within \[0, 1\]"),
        (lambda c: c.anneal([0.0, 1.2]), r"betas: expected a sequence of inverse temperatures within \[0, 1\]"),
        (lambda c: c.anneal([0.0, math.nan]), r"betas: expected a sequence of inverse temperatures within \[0, 1\]"),
        (lambda c: c.anneal([[0.0, 1.0]]), r"betas: expected a sequence of inverse temperatures within \[0, 1\]"),
        (lambda c: c.anneal([0.0, 1.0], 0), "sweeps_per_step: expected a whole number from 1, received 0"),
        (lambda c: c.set_states(torch.zeros(3)), r"states: expected shape \(\.\.\., 4\), received \(3,\)"),
        (lambda c: c.set_states(torch.full((4,), 5)), "states: expected whole numbers from 0 to 1, received 5"),
        (lambda c: c.gather(torch.zeros(2, 4, dtype=torch.long)), r"index: expected integers of shape \(2, 5\)"),
        (lambda c: c.gather(torch.zeros(2, 5)), r"index: expected integers of shape \(2, 5\), received torch.float32"),
        (lambda c: c.gather(torch.full((2, 5), 5)), "index: expected whole numbers from 0 to 4, received 5"),
        (lambda c: c.gather(torch.full((2, 5), -1)), "index: expected whole numbers from 0 to 4, received -1"),
        (lambda c: c.statistics(torch.ones(3)), r"weights: expected a shape that broadcasts to \(2, 5\)"),
    ],
)
def test_bad_calls_are_refused_and_change_nothing(call: Callable[[Any], Any], message: str) -> None:
    chains = _chains("torch", 2, num_chains=5)
    codes, energy = chains.states, chains.energy
    with pytest.raises(InputError, match=message):
        call(chains)
    assert torch.equal(chains.states, codes)
    assert torch.equal(chains.energy, energy)
    assert chains.num_sweeps == 0


def test_arguments_of_wrong_types_are_refused() -> None:
    chains = _chains("torch", 2, num_chains=5)
    with raises("wrong-type", "beta"):
        chains.sweep(1, "warm")  # pyright: ignore[reportArgumentType]
    with raises("wrong-type", "weights"):
        chains.statistics([1.0])  # pyright: ignore[reportArgumentType]
    with raises("out-of-range", "emphasis"):
        GibbsSchedule(emphasis="x")  # pyright: ignore[reportArgumentType]


def test_clamps_per_chain_may_be_sequences() -> None:
    chains = _chains("torch", num_chains=5, clamped={"b": [0, 1, 2, 1, 0], "a": np.array([1, 0, 1, 0, 1])})
    chains.sweep(3)
    assert chains.states[:, 1].tolist() == [0, 1, 2, 1, 0]
    assert chains.states[:, 0].tolist() == [1, 0, 1, 0, 1]


@pytest.mark.parametrize("engine", ENGINES)
def test_tables_near_the_end_of_float32_need_float64(engine: Any) -> None:
    graph = InteractionHypergraph(Domain.from_cardinalities([2, 2]), [("x0", "x1")], closure=True)
    model = LogLinearEnergy(graph, torch.full((graph.num_terms,), 1e39, dtype=torch.float64))
    with pytest.raises(InputError, match=r"received 1e\+39; use precision=torch.float64"):
        GibbsChains(model, 3, engine=engine)
    chains = GibbsChains(model, 3, engine=engine, precision=torch.float64)
    chains.sweep(2)
    assert bool(torch.isfinite(chains.energy).all())
