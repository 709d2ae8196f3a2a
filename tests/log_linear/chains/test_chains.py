"""Chains as an object: caches, batches, records, checkpoints, clamped variables, edge cases and bad input."""

import itertools
import math
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.stats import norm

from pyro_hoim import Domain, GibbsChains, InputError, InteractionHypergraph, IntractableError, LogLinearEnergy
from pyro_hoim.runs import GibbsSchedule
from pyro_hoim.testing import (
    FALSE_ALARM_RATE,
    assert_close,
    assert_exact_law,
    assert_stationary,
    count_states,
    enumerate_codes,
    exact_log_partition,
    exact_table,
    raises,
    random_tables,
    required_draws,
)

from support.transitions import recompute_counts, recompute_energy, slice_states, sweep_matrix, tempered_law

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


@pytest.fixture(params=["products", "tables", "torch"])
def engine(request):
    return request.param


@pytest.fixture(params=SCHEDULES, ids=["sites", "random", "emphasised"])
def schedule(request):
    return request.param


def _graph(engine):
    return BINARY if engine == "products" else MIXED


def _model(engine, *batch, seed=0, scale=1.0):
    rng = np.random.default_rng(seed)
    tables = random_tables(_graph(engine), rng, scale=scale, batch_shape=batch, balanced=False)
    return LogLinearEnergy(_graph(engine), torch.as_tensor(tables))


def _chains(engine, *batch, num_chains=30, **arguments):
    return GibbsChains(_model(engine, *batch), num_chains, engine=engine, **{"seed": 3, **arguments})


def _assert_energy(chains, model, reference=None):
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


def test_energies_are_right_after_every_operation(engine, schedule):
    first, second = _model(engine, 2, 3), _model(engine, 2, 3, seed=1)
    reference = torch.randn(2, 3, sum(_graph(engine).domain.cardinalities), generator=torch.Generator().manual_seed(1))
    clamped = {"b": torch.arange(30) % 2}
    options = {"schedule": schedule, "clamped": clamped, "reference": reference, "seed": 5}
    chains = GibbsChains(first, 30, engine=engine, **options)
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


def test_energies_under_other_tables(engine):
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


def test_annealing_between_two_models(engine, schedule):
    """Exact draws of the first model are weighted to the constant of the second; a product law would not be."""
    first, last = (_model(engine, seed=s, scale=2.0) for s in (0, 1))
    graph, num_chains = first.hypergraph, 4000
    law = np.exp(exact_table(graph, first.tables)).reshape(-1)
    picked = np.random.default_rng(0).choice(len(law), size=num_chains, p=law / law.sum())
    states = torch.from_numpy(enumerate_codes(graph.domain.cardinalities)[picked])
    reference = torch.randn(sum(graph.domain.cardinalities), generator=torch.Generator().manual_seed(2))
    exact = float(exact_log_partition(graph, last.tables)) - float(exact_log_partition(graph, first.tables))

    def errors(start):
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


def test_a_path_between_two_models_has_equal_bits_in_pieces_of_any_size(schedule, monkeypatch):
    """A batch of two, for the rows of weights; controls: another path, and a batch whose elements change places."""
    models = [_model("products", seed=s, scale=2.0) for s in range(4)]
    graph = models[0].hypergraph
    first, last = (LogLinearEnergy(graph, torch.stack([a.tables, b.tables])) for a, b in (models[:2], models[2:]))
    swapped = LogLinearEnergy(graph, first.tables.flip(0))

    def moved(start=first, steps=17):
        chains = GibbsChains(last, 70, schedule=schedule, seed=3, engine="products")
        return chains.anneal(torch.linspace(0, 1, steps + 1), 2, start=start), chains.states

    whole = moved()
    monkeypatch.setattr("pyro_hoim.log_linear.chains.products_engine._BATCH", 1)
    assert all(map(torch.equal, whole, moved()))
    assert not torch.equal(whole[0], moved(steps=18)[0])
    assert not torch.equal(whole[0], moved(swapped)[0])


def test_gather_takes_states_of_the_same_element(engine):
    chains = _chains(engine, 2)
    chains.sweep(3)
    before = chains.states
    index = torch.stack([torch.arange(30).flip(0), torch.zeros(30, dtype=torch.long)])
    chains.gather(index)
    assert torch.equal(chains.states[0], before[0].flip(0))
    assert torch.equal(chains.states[1], before[1, :1].expand(30, -1))
    _assert_energy(chains, _model(engine, 2))


def test_new_weights_change_the_law(engine):
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


def test_batch_has_the_laws_of_its_members(engine):
    """A total variation of 0.05 is found in four laws at once; blocks of all variables are independent draws."""
    graph, states = _graph(engine), enumerate_codes(_graph(engine).domain.cardinalities)
    size, schedule = required_draws(len(states), 0.05), GibbsSchedule([("a", "b", "d")])
    chains = _chains(engine, 2, 2, num_chains=size, schedule=schedule)
    assert (chains.batch_shape, chains.states.shape) == ((2, 2), (2, 2, size, 4))
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
def test_first_chains_start_alike_whatever_the_number_of_chains(engine):
    reference = torch.arange(sum(_graph(engine).domain.cardinalities)) / 3
    few, many = (_chains(engine, 2, num_chains=n, reference=reference) for n in (5, 80))
    assert torch.equal(few.states, many.states[:, :5])
    more = _chains(engine, 3, num_chains=5, reference=reference)
    assert torch.equal(few.states, more.states[:2])


def test_equal_seeds_give_equal_bits_on_any_number_of_threads(engine, schedule, monkeypatch):
    monkeypatch.setattr("pyro_hoim.log_linear.chains.tables_engine.SMALL", 0)  # so few visits would take one thread

    def run(threads, seed):
        torch.set_num_threads(threads)
        chains = _chains(engine, 3, num_chains=300, seed=seed, schedule=schedule)
        record = chains.sweep(6, thin=2, counts=True, energies=True, states=True)
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


def test_global_random_numbers_are_left_alone(engine):
    torch_state, numpy_state = torch.random.get_rng_state(), np.random.get_state()  # noqa: NPY002
    chains = _chains(engine, schedule=GibbsSchedule("sites", "random"))
    chains.sweep(3, thin=1, counts=True)
    chains.anneal([1.0, 0.5])
    assert torch.equal(torch_state, torch.random.get_rng_state())
    after = np.random.get_state()  # noqa: NPY002
    np.testing.assert_array_equal(numpy_state[1], after[1])


def test_initial_states_follow_the_reference_law():
    reference = torch.tensor([0.0, 1.0, -1.0, 0.0, 1.0, 5.0, 0.3, -0.3], dtype=torch.float64)
    states = enumerate_codes(MIXED.domain.cardinalities)
    chains = _chains("torch", num_chains=required_draws(len(states), 0.03), reference=reference)
    law = tempered_law(MIXED, _model("torch").tables, beta=0.0, reference=reference)
    counts = count_states(chains.states, MIXED.domain.cardinalities)
    assert_exact_law(counts, law)
    with pytest.raises(AssertionError):
        assert_exact_law(counts, np.full(len(law), 1 / len(law)))


# Records


def test_records_agree_with_recorded_states(engine, schedule):
    chains, silent = (_chains(engine, 2, num_chains=25, schedule=schedule) for _ in range(2))
    record = chains.sweep(11, 0.8, thin=4, counts=True, energies=True, states=True)
    assert (record.num_records, record.states.shape, record.energies.shape) == (2, (2, 2, 25, 4), (2, 2, 25))
    silent.sweep(8, 0.8)
    assert torch.equal(silent.states, record.states[1].long())
    empty = silent.sweep(3, 0.8, thin=4, counts=True, energies=True, states=True)
    assert (empty.num_records, bool(empty.counts.any())) == (0, False)
    assert (empty.energies.shape, empty.states.shape) == ((0, 2, 25), (0, 2, 25, 4))
    assert torch.equal(silent.states, chains.states)
    assert chains.num_sweeps == silent.num_sweeps == 11
    for b in range(2):
        tables = _model(engine, 2).tables[b]
        energy = recompute_energy(chains.hypergraph, tables, record.states[:, b])
        assert_close(record.energies[:, b], energy, relative=1e-9, what="recorded energies")
        assert_close(record.counts[b], recompute_counts(chains.hypergraph, record.states[:, b]), relative=0.0)
        assert_close(chains.statistics()[b], recompute_counts(chains.hypergraph, chains.states[b]), relative=0.0)


def test_weighted_statistics(engine):
    chains = _chains(engine, 2, num_chains=40)
    weights = torch.rand(2, 40, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    for b in range(2):
        expected = recompute_counts(chains.hypergraph, chains.states[b], weights[b])
        assert_close(chains.statistics(weights)[b], expected, relative=1e-12)
        shared = recompute_counts(chains.hypergraph, chains.states[b], weights[0])
        assert_close(chains.statistics(weights[0])[b], shared, relative=1e-12)


# Checkpoints


def test_reloaded_chains_continue_with_equal_bits(engine, schedule):
    whole, first, second = (_chains(engine, 2, num_chains=33, schedule=schedule) for _ in range(3))
    whole.sweep(12)
    first.sweep(5)
    state = first.state_dict()
    first.sweep(2)  # must not change the saved state
    first.gather(torch.zeros(2, 33, dtype=torch.long))
    second.sweep(1)
    second.load_state_dict(state)
    assert second.num_sweeps == 5
    second.sweep(7)
    assert torch.equal(second.states, whole.states)
    assert torch.equal(second.energy, whole.energy)
    assert torch.equal(second.sweep(2, thin=1, states=True).states, whole.sweep(2, thin=1, states=True).states)


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
def test_checkpoint_of_other_chains_is_refused(other):
    chains = _chains("torch")
    before = chains.states
    with pytest.raises(InputError, match="state: the checkpoint belongs to chains of another model"):
        chains.load_state_dict(other().state_dict())
    with pytest.raises(InputError, match="state: the checkpoint belongs to chains of another model"):
        chains.load_state_dict({})
    assert torch.equal(chains.states, before)


# Clamped variables


@pytest.mark.parametrize("kind", ["sites", "interactions"])
def test_clamped_values_never_change(engine, kind):
    """One by label, one per chain; the law of the rest is conditional (total variation 0.05)."""
    graph = _graph(engine)
    size = 2 * required_draws(4, 0.05)
    values = torch.arange(size) % 2
    clamped = {"a": "yes", "b": values}
    chains = _chains(engine, num_chains=size, schedule=GibbsSchedule(kind), clamped=clamped)
    assert chains.clamped == ("a", "b")
    record = chains.sweep(4, thin=1, states=True)
    chains.anneal([1.0, 0.5, 1.0])
    for codes in (*record.states, chains.states):
        assert (codes[:, 0] == 1).all()
        assert torch.equal(codes[:, 1].long(), values)
    counts = np.stack([count_states(chains.states[values == v], graph.domain.cardinalities) for v in range(2)])
    laws = [tempered_law(graph, _model(engine).tables, clamped={"a": 1, "b": v}) for v in range(2)]
    assert_exact_law(counts, np.stack(laws) / 2)
    with pytest.raises(AssertionError):
        assert_exact_law(counts, np.stack(laws[::-1]) / 2)


def test_everything_clamped(engine):
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
def test_small_models(engine, cardinalities, edges, num_chains):
    graph = InteractionHypergraph(Domain.from_cardinalities(cardinalities), edges, closure=True)
    model = LogLinearEnergy(graph, torch.arange(graph.num_terms, dtype=torch.float64).expand(2, -1))
    chains = GibbsChains(model, num_chains, engine=engine, seed=2)
    record = chains.sweep(3, thin=1, counts=True, energies=True, states=True)
    assert chains.states.shape == (2, num_chains, len(cardinalities))
    assert (record.counts.shape, record.counts.sum()) == ((2, graph.num_terms), 2 * 3 * num_chains * len(graph.edges))
    assert chains.anneal([0.0, 0.5, 1.0]).shape == (2, num_chains)
    assert not chains.anneal([0.3]).any()
    chains.gather(torch.zeros(2, num_chains, dtype=torch.long))
    chains.load_state_dict(chains.state_dict())
    _assert_energy(chains, model)
    if cardinalities == [2, 2] and num_chains > 60:
        assert len(chains.sweep(20, thin=1, states=True).states.flatten(0, 2).unique(dim=0)) == 4


def test_auto_picks_an_engine_by_cardinalities():
    binary = GibbsChains(_model("products"), 10, seed=1)
    products = GibbsChains(_model("products"), 10, seed=1, engine="products")
    mixed = GibbsChains(_model("tables"), 10, seed=1)
    tables = GibbsChains(_model("tables"), 10, seed=1, engine="tables")
    for a, b in ((binary, products), (mixed, tables)):
        assert a.fingerprint == b.fingerprint
        a.sweep(3)
        b.sweep(3)
        assert torch.equal(a.states, b.states)


def test_tables_in_single_precision_and_with_a_gradient():
    tables = _model("torch").tables.float().requires_grad_()
    chains = GibbsChains(LogLinearEnergy(MIXED, tables), 20, engine="torch")
    chains.sweep(2)
    assert chains.energy.dtype == torch.float64
    assert not chains.energy.requires_grad
    _assert_energy(chains, LogLinearEnergy(MIXED, tables.detach()))


# Annealing


def test_reversed_order_visits_backwards(engine):
    """Blocks a, b, d backwards: the last visit of the reversed run is a's."""
    schedule = GibbsSchedule([("d",), ("a",), ("b",)])
    chains = _chains(engine, num_chains=10, schedule=schedule)
    rows = []
    inner = chains._engine  # the order that the engine gets is all that changes
    chains._engine = SimpleNamespace(anneal=lambda order, betas, steps, start: rows.append(order) or torch.zeros(1, 10))
    chains.anneal([1.0, 0.5], reverse_order=False)
    chains.anneal([0.5, 1.0], reverse_order=True)
    chains._engine = inner
    assert (rows[0].tolist(), rows[1].tolist()) == ([[0, 1, 2]], [[2, 1, 0]])


# Bad input


BAD_ARGUMENTS = [
    *(({"num_chains": value}, "out-of-range", "num_chains") for value in (0, -3, 2.5, True)),
    *(({"clamped": {"b": value}}, "out-of-range", None) for value in (3, -1)),
    ({"clamped": {"b": "w"}}, "unknown-name", None),
    *(({"clamped": {"b": torch.tensor(value)}}, "out-of-range", "clamped['b']") for value in (3, 0.5)),
    ({"clamped": {"b": torch.zeros(7)}}, "wrong-shape", "clamped['b']"),
    *(({"clamped": {"bb": value}}, "unknown-name", None) for value in (1, torch.tensor(1))),
    ({"clamped": ["b"]}, "wrong-type", "clamped"),
    ({"schedule": "sites"}, "wrong-type", "schedule"),
    ({"schedule": GibbsSchedule([("a", "bb")])}, "unknown-name", "blocks"),
    ({"schedule": GibbsSchedule([("a",)])}, "missing-part", "blocks"),
    *(({"init": torch.zeros(shape)}, "wrong-shape", "init") for shape in ((5, 3), (6, 4))),
    *(({"init": torch.full((4,), code)}, "out-of-range", "init") for code in (2, -1, math.nan)),
    ({"init": [0, 0, 0, 0]}, "wrong-type", "init"),
    *(({"reference": torch.zeros(shape)}, "wrong-shape", "reference") for shape in (7, (3, 8))),
    ({"reference": torch.full((8,), math.inf)}, "not-finite", "reference"),
    ({"reference": [0.0] * 8}, "wrong-type", "reference"),
    ({"seed": -1}, "out-of-range", "seed"),
    ({"seed": 1.5}, "wrong-type", "seed"),
    ({"engine": "jax"}, "unknown-choice", "engine"),
    ({"engine": "products"}, "conflict", "engine"),
    ({"precision": torch.float16}, "unknown-choice", "precision"),
]


@pytest.mark.parametrize(("arguments", "code", "argument"), BAD_ARGUMENTS)
def test_bad_arguments_are_refused(arguments, code, argument):
    with raises(code, argument):
        GibbsChains(_model("torch"), **{"num_chains": 5, "engine": "torch", **arguments})


def _replaced(value):
    tables = _model("torch").tables.clone()
    tables[2] = value
    return SimpleNamespace(hypergraph=MIXED, tables=tables)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_tables_that_are_not_finite_are_refused(value):
    chains = _chains("torch")
    before = chains.energy
    for call in (partial(GibbsChains, num_chains=5), chains.set_model):
        with raises("not-finite", "model: tables"):
            call(_replaced(value))
    assert torch.equal(chains.energy, before)


@pytest.mark.parametrize(
    ("model", "code"),
    [
        (None, "wrong-type"),
        (torch.zeros(3), "wrong-type"),
        (SimpleNamespace(hypergraph=MIXED, tables=torch.zeros(2)), "wrong-shape"),
        (SimpleNamespace(hypergraph=MIXED, tables=torch.zeros(0, 27)), "wrong-shape"),
    ],
)
def test_bad_models_are_refused(model, code):
    with raises(code, "model"):
        GibbsChains(model, 5)


def test_models_of_another_structure_and_too_large_blocks_are_refused():
    chains = _chains("torch")
    with raises("other-domain", "model"):
        chains.set_model(_model("products"))
    with raises("wrong-shape", "model: tables"):
        chains.set_model(_model("torch", 2))
    graph = InteractionHypergraph.from_order(Domain.from_cardinalities([1100, 1100]), 2)
    model = LogLinearEnergy(graph, torch.zeros(graph.num_terms))
    with pytest.raises(IntractableError, match=r"1210000 joint states .* more than the limit of 1048576"):
        GibbsChains(model, 5, schedule=GibbsSchedule([("x0", "x1")]))


BAD_CALLS = [
    *(("sweep", (value,), {}, "out-of-range", "num_sweeps") for value in (-1, 1.5)),
    ("sweep", (1,), {"thin": -2}, "out-of-range", "thin"),
    ("sweep", (1,), {"counts": True}, "out-of-range", "thin"),
    *(("sweep", (1, beta), {}, "out-of-range", "beta") for beta in (1.1, -0.1, math.nan)),
    ("sweep", (1, torch.ones(3)), {}, "wrong-shape", "beta"),
    ("sweep", (1, "warm"), {}, "wrong-type", "beta"),
    *(("anneal", (path,), {}, "out-of-range", "betas") for path in ([], [0.0, 1.2], [0.0, math.nan], [[0.0, 1.0]])),
    ("anneal", ([0.0, 1.0], 0), {}, "out-of-range", "sweeps_per_step"),
    ("set_states", (torch.zeros(3),), {}, "wrong-shape", "states"),
    ("set_states", (torch.full((4,), 5),), {}, "out-of-range", "states"),
    *(("gather", (index,), {}, "wrong-shape", "index") for index in (torch.zeros(2, 4).long(), torch.zeros(2, 5))),
    *(("gather", (torch.full((2, 5), place),), {}, "out-of-range", "index") for place in (5, -1)),
    ("statistics", (torch.ones(3),), {}, "wrong-shape", "weights"),
    ("statistics", ([1.0],), {}, "wrong-type", "weights"),
]


@pytest.mark.parametrize(("method", "arguments", "keywords", "code", "argument"), BAD_CALLS)
def test_bad_calls_are_refused_and_change_nothing(method, arguments, keywords, code, argument):
    chains = _chains("torch", 2, num_chains=5)
    codes, energy = chains.states, chains.energy
    with raises(code, argument):
        getattr(chains, method)(*arguments, **keywords)
    assert torch.equal(chains.states, codes)
    assert torch.equal(chains.energy, energy)
    assert chains.num_sweeps == 0


def test_clamps_per_chain_may_be_sequences():
    chains = _chains("torch", num_chains=5, clamped={"b": [0, 1, 2, 1, 0], "a": np.array([1, 0, 1, 0, 1])})
    chains.sweep(3)
    assert (chains.states[:, 1].tolist(), chains.states[:, 0].tolist()) == ([0, 1, 2, 1, 0], [1, 0, 1, 0, 1])


def test_tables_near_the_end_of_float32_need_float64(engine):
    graph = InteractionHypergraph(Domain.from_cardinalities([2, 2]), [("x0", "x1")], closure=True)
    model = LogLinearEnergy(graph, torch.full((graph.num_terms,), 1e39, dtype=torch.float64))
    with pytest.raises(InputError, match=r"received 1e\+39; use precision=torch.float64"):
        GibbsChains(model, 3, engine=engine)
    chains = GibbsChains(model, 3, engine=engine, precision=torch.float64)
    chains.sweep(2)
    assert bool(torch.isfinite(chains.energy).all())


# Hard mixing: a categorical table in one-hot binary coding


COLOURS, SHAPES = ("red", "green", "blue"), ("round", "square")
NAMES = (*COLOURS, *SHAPES)
PENALTY = 14.0
PAIRS = [*itertools.combinations(COLOURS, 2), SHAPES]
SITES = [(n,) for n in NAMES]


def _one_hot():
    """Graph and tables of a 3 x 2 table of probabilities in binary coding, and the table.

    Every two levels of a group exclude each other by a large penalty, and every level is wanted by as much, so that
    states with exactly one level per group carry all but 1e-5 of the probability.
    """
    table = np.array([[0.30, 0.05], [0.10, 0.20], [0.05, 0.30]])
    domain = Domain.from_cardinalities(dict.fromkeys(NAMES, 2))
    cross = list(itertools.product(COLOURS, SHAPES))
    graph = InteractionHypergraph(domain, [*PAIRS, *cross], closure=True)
    tables = np.zeros(graph.num_terms)
    for edge, where in graph.term_slices.items():
        if len(edge) == 1:
            tables[where] = [0.0, PENALTY]
        elif edge in PAIRS:
            tables[where] = [0.0, 0.0, 0.0, -2 * PENALTY]
        else:
            tables[where.stop - 1] = np.log(table[COLOURS.index(edge[0]), SHAPES.index(edge[1])])
    return graph, tables, table


GRAPH, TABLES, TABLE = _one_hot()
LAW = tempered_law(GRAPH, TABLES)
START = int(np.ravel_multi_index((1, 0, 0, 1, 0), (2,) * 5))


def _one_hot_chains(engine, blocks, num_chains):
    init = torch.tensor([1, 0, 0, 1, 0])
    schedule = GibbsSchedule(blocks)
    model = LogLinearEnergy(GRAPH, torch.as_tensor(TABLES))
    return GibbsChains(model, num_chains, schedule=schedule, init=init, engine=engine, seed=5)


def test_binary_law_is_the_table():
    codes = enumerate_codes((2,) * 5)
    valid = (codes[:, :3].sum(1) == 1) & (codes[:, 3:].sum(1) == 1)
    assert LAW[~valid].sum() < 1e-4
    for i, j in itertools.product(range(3), range(2)):
        state = np.ravel_multi_index((*np.eye(3, dtype=int)[i], *np.eye(2, dtype=int)[j]), (2,) * 5)
        assert abs(LAW[state] - TABLE[i, j]) < 1e-4


def test_single_sites_are_frozen_and_blocks_of_a_group_are_not():
    """Second eigenvalues: sites within 1e-4 of one; pairs, whose draws swap two levels, and groups far below."""
    sites = assert_stationary(sweep_matrix(GRAPH, TABLES, SITES), LAW)
    pairs = assert_stationary(sweep_matrix(GRAPH, TABLES, PAIRS), LAW)
    groups = assert_stationary(sweep_matrix(GRAPH, TABLES, [COLOURS, SHAPES]), LAW)
    assert 1 - 1e-4 < sites < 1 - 1e-9
    assert pairs < 0.6
    assert groups < 0.5
    law = np.linalg.matrix_power(sweep_matrix(GRAPH, TABLES, SITES), 200)[START]
    assert np.abs(law - LAW).sum() / 2 > 0.5  # still far after 200 sweeps
    law = np.linalg.matrix_power(sweep_matrix(GRAPH, TABLES, PAIRS), 30)[START]
    assert np.abs(law - LAW).sum() / 2 < 1e-4


def test_single_sites_miss_the_law(engine):
    """Twenty sweeps of sites follow their matrix, and so fail the test of the exact law that blocks pass."""
    size = required_draws(32, 0.05)
    frozen = _one_hot_chains(engine, "sites", size)
    frozen.sweep(20)
    counts = count_states(frozen.states, (2,) * 5)
    assert_exact_law(counts, np.linalg.matrix_power(sweep_matrix(GRAPH, TABLES, SITES), 20)[START])
    with pytest.raises(AssertionError, match="chi-square"):
        assert_exact_law(counts, LAW)
    assert counts[START] > 0.99 * size


@pytest.mark.parametrize(
    "blocks",
    ["interactions", PAIRS, [COLOURS, SHAPES], [NAMES]],
    ids=["whole interactions", "swaps", "groups", "everything"],
)
def test_blocks_reach_the_law(engine, blocks):
    """A total variation of 0.05 is found after as many sweeps as bring the matrix within 1e-4 of the law."""
    chains = _one_hot_chains(engine, blocks, required_draws(32, 0.05))
    matrix, law, num_sweeps = sweep_matrix(GRAPH, TABLES, chains.blocks), np.eye(32)[START], 0
    while np.abs(law - LAW).sum() / 2 > 1e-4:
        law, num_sweeps = law @ matrix, num_sweeps + 1
        assert num_sweeps < 30
    chains.sweep(num_sweeps)
    assert_exact_law(count_states(chains.states, (2,) * 5), LAW)


def test_blocks_reach_the_law_of_a_clamped_group(engine):
    """With the shape observed the colours follow their conditional law."""
    fixed = {"round": 0, "square": 1}
    model = LogLinearEnergy(GRAPH, torch.as_tensor(TABLES))
    size = required_draws(8, 0.03)
    schedule = GibbsSchedule("interactions")
    chains = GibbsChains(model, size, schedule=schedule, clamped=fixed, engine=engine, seed=6)
    chains.sweep(30)
    law = tempered_law(GRAPH, TABLES, clamped=fixed)
    kept = slice_states(GRAPH, fixed)
    matrix = sweep_matrix(GRAPH, TABLES, chains.blocks)[np.ix_(kept, kept)]
    assert assert_stationary(matrix, law[kept]) < 0.7
    assert_exact_law(count_states(chains.states, (2,) * 5), law)
