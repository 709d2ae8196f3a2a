"""The compiled engine of tables over any domain against enumeration, and the laws every engine obeys."""

import math
import time

import numpy as np
import pytest
import torch

from pyro_hoim.compute.engine import Wanted
from pyro_hoim.log_linear import LogLinearEnergy
from pyro_hoim.log_linear.chains._tables_structure import tables_structure
from pyro_hoim.log_linear.chains.tables_engine import TablesEngine
from pyro_hoim.schema import Domain
from pyro_hoim.structure.hypergraph import InteractionHypergraph
from pyro_hoim.testing import assert_close, assert_exact_law, required_draws
from pyro_hoim.testing.oracles import count_states, enumerate_codes, exact_log_partition, exact_table, random_tables

DTYPES = [torch.float32, torch.float64]
CARDS = (2, 3, 1, 5, 2)
SITES = ((0,), (1,), (3,), (4,))
SCHEDULES = {
    "sites": SITES,
    "pairs": ((0, 1), (3, 4)),
    "triples": ((0, 1, 3), (1, 3, 4)),
    "overlapping": ((4,), (0, 3), (1, 3, 4), (0, 1)),
    "all": ((0, 1, 3, 4),),
}


def structure(cardinalities, *edges):
    names = [[f"x{i}" for i in edge] for edge in edges]
    return InteractionHypergraph(Domain.from_cardinalities(cardinalities), names, hierarchical=False)


def mixed():
    """Edges of orders 1 to 4, some without their subsets, with a variable of one state and one in no large edge."""
    return structure(CARDS, (0,), (3,), (0, 1), (0, 2), (3, 4), (0, 1, 3), (1, 2, 3, 4))


def log_law(hypergraph, tables, reference, beta):
    """Log weights and log probabilities of all states at an inverse temperature, by enumeration."""
    codes = enumerate_codes(hypergraph.domain.cardinalities)
    start = np.cumsum([0, *hypergraph.domain.cardinalities])[:-1]
    log_weights = beta * np.asarray(exact_table(hypergraph, tables, normalised=False)).reshape(-1)
    log_weights = log_weights + (1 - beta) * np.asarray(reference)[start + codes].sum(axis=1)
    return log_weights, log_weights - np.logaddexp.reduce(log_weights)


def in_order(blocks):
    return np.arange(len(blocks), dtype=np.int32)[None]


def engine_of(hypergraph, tables, *, blocks=SITES, chains=64, groups=1, dtype=torch.float32, seed=0, reference=None):
    cards = hypergraph.domain.cardinalities
    engine = TablesEngine(hypergraph, blocks, groups, chains, seed, dtype)
    reference = np.zeros(sum(cards)) if reference is None else reference
    engine.set_weights(torch.as_tensor(np.atleast_2d(tables)), torch.as_tensor(np.atleast_2d(reference)))
    start = [np.random.default_rng((seed, c)).integers(0, cards, (groups, len(cards))) for c in range(chains)]
    engine.set_codes(torch.from_numpy(np.stack(start, axis=1)))
    return engine


def exact_start(engine, law, cards, num_chains, seed=4):
    index = np.random.default_rng(seed).choice(len(law), size=num_chains, p=np.exp(law))
    engine.set_codes(torch.from_numpy(enumerate_codes(cards)[index])[None])


def assert_same(first, second):
    for name, value in first.state().items():
        assert torch.equal(value, second.state()[name]), name


@pytest.fixture
def threads():
    """Restore the number of threads after the test."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def model():
    hypergraph = mixed()
    rng = np.random.default_rng(0)
    return hypergraph, random_tables(hypergraph, rng, scale=0.8, balanced=False), rng.normal(size=sum(CARDS))


# Energies and records


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("balanced", [True, False])
@pytest.mark.parametrize("schedule", ["sites", "overlapping"])
def test_energies_equal_those_of_the_model(dtype, balanced, schedule):
    hypergraph, blocks = mixed(), SCHEDULES[schedule]
    rng = np.random.default_rng(1)
    tables, reference = random_tables(hypergraph, rng, balanced=balanced), rng.normal(size=sum(CARDS))
    engine = engine_of(hypergraph, tables, blocks=blocks, chains=70, dtype=dtype, reference=reference)
    energy = LogLinearEnergy(hypergraph, torch.as_tensor(tables))
    for thin in (1, 4):
        record = engine.sweep(in_order(blocks), 9, np.array([0.7]), Wanted(thin=thin, energies=True, states=True))
        assert record.num_records == 9 // thin
        assert_close(record.energies, energy.energy(record.states.long()), absolute=1e-9)
        by_model, by_reference = engine.energies()
        codes = engine.get_codes()
        assert_close(by_model, energy.energy(codes), absolute=1e-9)
        start = torch.tensor(np.cumsum([0, *CARDS])[:-1])
        assert_close(by_reference, -torch.as_tensor(reference)[start + codes].sum(-1), absolute=1e-9)
    assert record.states.dtype == torch.uint8


def test_counts_are_those_of_the_recorded_codes(model):
    hypergraph, tables, _ = model
    engine = engine_of(hypergraph, tables, chains=70, groups=2)
    record = engine.sweep(in_order(SITES), 12, np.ones(2), Wanted(thin=3, counts=True, states=True))
    expected = torch.zeros(2, hypergraph.num_terms, dtype=torch.float64)
    for edge, where in hypergraph.term_slices.items():
        members = list(hypergraph.domain.indices(edge))
        cards = [CARDS[i] for i in members]
        for g in range(2):
            expected[g, where] = torch.from_numpy(count_states(record.states[:, g][..., members], cards)).double()
    assert torch.equal(record.counts, expected)
    share = torch.rand(2, 70, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    last = engine.sweep(in_order(SITES), 1, np.ones(2), Wanted(thin=1, counts=True))
    assert torch.equal(engine.statistics(), last.counts)
    sums = engine.statistics(share)
    for edge, where in hypergraph.term_slices.items():
        members = list(hypergraph.domain.indices(edge))
        place = np.ravel_multi_index(
            engine.get_codes()[..., members].permute(2, 0, 1).numpy(), [CARDS[i] for i in members]
        )
        for g in range(2):
            size = where.stop - where.start
            assert_close(sums[g, where], np.bincount(place[g], share[g].numpy(), size), relative=1e-12)


def test_nothing_is_recorded_that_was_not_asked_for(model):
    record = engine_of(*model[:2]).sweep(in_order(SITES), 3, np.ones(1), Wanted(thin=1))
    assert record.num_records == 3
    assert record.counts is None and record.energies is None and record.states is None


# Laws


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("beta", [1.0, 0.5, 0.0])
def test_chains_keep_the_exact_law(model, dtype, schedule, beta):
    hypergraph, tables, reference = model
    blocks = SCHEDULES[schedule]
    _, law = log_law(hypergraph, tables, reference, beta)
    num_chains = required_draws(60, 0.03)
    engine = TablesEngine(hypergraph, blocks, 1, num_chains, 3, dtype)
    engine.set_weights(torch.as_tensor(tables)[None], torch.as_tensor(reference)[None])
    exact_start(engine, law, CARDS, num_chains)
    before = engine.get_codes()
    engine.sweep(in_order(blocks), 1, np.array([beta]))
    assert (before != engine.get_codes()).any(dim=-1).double().mean() > 0.5
    assert_exact_law(count_states(engine.get_codes()[0], CARDS), np.exp(law))


@pytest.mark.parametrize("schedule", ["sites", "overlapping"])
@pytest.mark.parametrize("fault", ["beta", "reference", "tables"])
def test_another_law_is_noticed(model, schedule, fault):
    """Negative control: a wrong temperature, no reference, or one table dropped."""
    hypergraph, tables, reference = model
    blocks = SCHEDULES[schedule]
    _, law = log_law(hypergraph, tables, reference, 0.8)
    num_chains = required_draws(60, 0.03)
    engine = TablesEngine(hypergraph, blocks, 1, num_chains, 3)
    wrong = tables.copy()
    if fault == "tables":
        wrong[hypergraph.term_slices["x0", "x1"]] = 0
    base = np.zeros_like(reference) if fault == "reference" else reference
    engine.set_weights(torch.as_tensor(wrong)[None], torch.as_tensor(base)[None])
    exact_start(engine, law, CARDS, num_chains)
    engine.sweep(in_order(blocks), 5, np.array([0.6 if fault == "beta" else 0.8]))
    with pytest.raises(AssertionError):
        assert_exact_law(count_states(engine.get_codes()[0], CARDS), np.exp(law))


@pytest.mark.parametrize("schedule", ["sites", "triples"])
def test_chains_reach_the_law_from_one_state(model, schedule):
    hypergraph, tables, _ = model
    blocks = SCHEDULES[schedule]
    num_chains = required_draws(60, 0.03)
    engine = TablesEngine(hypergraph, blocks, 1, num_chains, 5)
    engine.set_weights(torch.as_tensor(tables)[None], torch.zeros(1, sum(CARDS)))
    engine.set_codes(torch.zeros(1, num_chains, 5, dtype=torch.long))
    engine.sweep(in_order(blocks), 150, np.ones(1))
    _, law = log_law(hypergraph, tables, np.zeros(sum(CARDS)), 1.0)
    assert_exact_law(count_states(engine.get_codes()[0], CARDS), np.exp(law))


def test_every_group_has_its_own_tables_and_temperature(model):
    hypergraph, tables, reference = model
    num_chains = required_draws(60, 0.03)
    many = np.stack([tables, -tables, 0.5 * tables])
    betas = np.array([1.0, 0.3, 0.7])
    engine = TablesEngine(hypergraph, SITES, 3, num_chains, 6)
    engine.set_weights(torch.as_tensor(many), torch.as_tensor(reference)[None])
    laws = [log_law(hypergraph, row, reference, b)[1] for row, b in zip(many, betas, strict=True)]
    rng = np.random.default_rng(7)
    states = enumerate_codes(CARDS)
    start = np.stack([states[rng.choice(len(law), size=num_chains, p=np.exp(law))] for law in laws])
    engine.set_codes(torch.from_numpy(start))
    engine.sweep(in_order(SITES), 2, betas)
    for g, law in enumerate(laws):
        assert_exact_law(count_states(engine.get_codes()[g], CARDS), np.exp(law))


@pytest.mark.parametrize("blocks", [((0,), (1,)), ((0, 1),)])
def test_a_variable_of_300_levels(blocks):
    """Codes need more than a byte, and the pair has more joint states than are drawn with all lanes at once."""
    hypergraph = structure((300, 3), (0,), (0, 1))
    rng = np.random.default_rng(8)
    tables = random_tables(hypergraph, rng, scale=0.7, balanced=False)
    _, law = log_law(hypergraph, tables, np.zeros(303), 1.0)
    num_chains = 30_000
    engine = TablesEngine(hypergraph, blocks, 1, num_chains, 9)
    engine.set_weights(torch.as_tensor(tables)[None], torch.zeros(1, 303))
    exact_start(engine, law, (300, 3), num_chains)
    record = engine.sweep(in_order(blocks), 1, np.ones(1), Wanted(thin=1, states=True, counts=True))
    counts = count_states(engine.get_codes()[0], (300, 3))
    assert record.states.dtype == torch.int32 and int(record.states.max()) > 256
    assert_exact_law(counts, np.exp(law))
    assert_exact_law(counts.reshape(300, 3).sum(1), np.exp(law).reshape(300, 3).sum(1))
    assert torch.equal(record.counts[0, hypergraph.term_slices["x0", "x1"]], torch.from_numpy(counts).double())


def test_large_tables_do_not_overflow(model):
    hypergraph, tables, _ = model
    for blocks in (SITES, SCHEDULES["all"]):
        engine = engine_of(hypergraph, 1000 * tables, blocks=blocks, chains=20)
        engine.sweep(in_order(blocks), 30, np.ones(1))
        if len(blocks) == 1:
            best = int(np.argmax(exact_table(hypergraph, tables, normalised=False)))
            assert (engine.get_codes()[0].numpy() == enumerate_codes(CARDS)[best]).all()
        assert torch.isfinite(engine.energies()[0]).all()


@pytest.mark.parametrize("edges", [(), ((1,),)])
def test_variables_without_interactions(edges):
    hypergraph = structure((2, 3, 1, 4), *edges)
    tables, reference = np.arange(hypergraph.num_terms, dtype=np.float64), np.linspace(-1, 1, 10)
    num_chains = required_draws(24, 0.03)
    for blocks in (((0,), (1,), (3,)), ((0, 3), (1,))):
        for beta in (1.0, 0.25):
            engine = TablesEngine(hypergraph, blocks, 1, num_chains, 10)
            engine.set_weights(torch.as_tensor(tables)[None], torch.as_tensor(reference)[None])
            engine.set_codes(torch.zeros(1, num_chains, 4, dtype=torch.long))
            record = engine.sweep(in_order(blocks), 1, np.array([beta]), Wanted(thin=1, counts=True))
            assert record.counts.shape == (1, hypergraph.num_terms)
            _, law = log_law(hypergraph, tables, reference, beta)
            assert_exact_law(count_states(engine.get_codes()[0], (2, 3, 1, 4)), np.exp(law))


def test_variables_in_no_block_stay(model):
    hypergraph, tables, _ = model
    engine = engine_of(hypergraph, tables, blocks=((1,), (3,)))
    before = engine.get_codes()
    engine.sweep(np.array([[0, 1], [1, 1]], dtype=np.int32), 20, np.ones(1))
    after = engine.get_codes()
    assert torch.equal(after[..., [0, 2, 4]], before[..., [0, 2, 4]])
    assert (after[..., [1, 3]] != before[..., [1, 3]]).any()


# Equal state, equal calls, equal bits


@pytest.mark.parametrize("schedule", ["sites", "overlapping"])
def test_results_do_not_depend_on_threads(model, threads, schedule):
    hypergraph, tables, reference = model
    blocks = SCHEDULES[schedule]
    seen = []
    for number in (1, 2, 5):
        threads(number)
        engine = engine_of(hypergraph, tables, blocks=blocks, chains=500, reference=reference)
        record = engine.sweep(in_order(blocks), 90, np.array([0.9]), Wanted(thin=2, counts=True, energies=True))
        weights = engine.anneal(in_order(blocks), np.linspace(0, 1, 60), 2)
        seen.append((engine, record, weights, engine.statistics(weights)))
    for engine, record, weights, sums in seen[1:]:
        assert_same(engine, seen[0][0])
        assert torch.equal(record.counts, seen[0][1].counts) and torch.equal(record.energies, seen[0][1].energies)
        assert torch.equal(weights, seen[0][2]) and torch.equal(sums, seen[0][3])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("schedule", ["sites", "overlapping"])
def test_chains_do_not_depend_on_other_chains(model, dtype, schedule):
    hypergraph, tables, reference = model
    blocks = SCHEDULES[schedule]
    runs = []
    for groups, chains in ((1, 1), (1, 5), (1, 200), (3, 40)):
        engine = TablesEngine(hypergraph, blocks, groups, chains, 11, dtype)
        engine.set_weights(torch.as_tensor(tables)[None], torch.as_tensor(reference)[None])
        engine.set_codes(torch.zeros(groups, chains, 5, dtype=torch.long))
        record = engine.sweep(in_order(blocks), 20, np.full(groups, 0.6), Wanted(thin=1, states=True))
        weights = engine.anneal(in_order(blocks), np.linspace(0, 1, 20), 1)
        runs.append((chains, record.states[:, 0], weights[0]))
    for chains, codes, weights in runs:
        shared = min(chains, 40)
        assert torch.equal(codes[:, :shared], runs[2][1][:, :shared])
        assert torch.equal(weights[:shared], runs[2][2][:shared])
    assert (runs[2][1][-1, 0] != runs[2][1][-1, 1:]).any()


def test_a_run_continues_from_its_state(model):
    hypergraph, tables, _ = model
    order = np.array([[0, 1, 2, 3], [3, 2, 1, 0]], dtype=np.int32)
    engine = engine_of(hypergraph, tables, chains=37)
    engine.sweep(order, 6, np.ones(1))
    kept = {name: value.clone() for name, value in engine.state().items()}
    other = engine_of(hypergraph, tables, chains=37, seed=99)
    other.load_state(kept)
    assert_same(engine, other)
    for run in (engine, other):
        run.sweep(order, 4, np.ones(1))
    assert_same(engine, other)
    assert not torch.equal(kept["codes"], engine.state()["codes"])


def test_new_weights_refresh_energies(model):
    hypergraph, tables, _ = model
    engine = engine_of(hypergraph, tables, chains=30)
    engine.set_weights(torch.as_tensor(2 * tables)[None], torch.ones(1, sum(CARDS)))
    assert_close(
        engine.energies()[0], LogLinearEnergy(hypergraph, torch.as_tensor(2 * tables)).energy(engine.get_codes())
    )
    assert torch.equal(engine.energies()[1], torch.full((1, 30), -5.0, dtype=torch.float64))


def test_gather_takes_energies_along(model):
    hypergraph, tables, reference = model
    engine = engine_of(hypergraph, tables, chains=70, groups=3, reference=reference)
    model_energy = LogLinearEnergy(hypergraph, torch.as_tensor(tables))
    before = engine.get_codes()
    index = torch.randint(70, (3, 70), generator=torch.Generator().manual_seed(0))
    random = engine.state()["random"]
    engine.gather(index)
    after = engine.get_codes()
    assert torch.equal(after, before.gather(1, index[..., None].expand(-1, -1, 5)))
    assert_close(engine.energies()[0], model_energy.energy(after), absolute=1e-12)
    start = torch.tensor(np.cumsum([0, *CARDS])[:-1])
    assert_close(engine.energies()[1], -torch.as_tensor(reference)[start + after].sum(-1), absolute=1e-12)
    assert torch.equal(random, engine.state()["random"])


# Annealed importance sampling


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("schedule", ["sites", "overlapping"])
def test_annealing_estimates_the_ratio_of_constants(model, dtype, schedule):
    hypergraph, tables, reference = model
    blocks, num_chains = SCHEDULES[schedule], 4000
    engine = TablesEngine(hypergraph, blocks, 1, num_chains, 12, dtype)
    engine.set_weights(torch.as_tensor(tables)[None], torch.as_tensor(reference)[None])
    at_zero, law = log_law(hypergraph, tables, reference, 0.0)
    exact_start(engine, law, CARDS, num_chains)
    weights = engine.anneal(in_order(blocks), np.linspace(0, 1, 41), 1)[0].numpy()
    exact = float(exact_log_partition(hypergraph, tables)) - float(np.logaddexp.reduce(at_zero))
    scaled = np.exp(weights - exact)
    assert abs(scaled.mean() - 1) < 4 * scaled.std() / math.sqrt(num_chains)
    assert scaled.std() < 1
    assert_close(engine.energies()[0], LogLinearEnergy(hypergraph, torch.as_tensor(tables)).energy(engine.get_codes()))


def test_annealing_of_one_long_step_is_importance_sampling(model):
    hypergraph, tables, reference = model
    engine = engine_of(hypergraph, tables, reference=reference)
    by_model, by_reference = engine.energies()
    weights = engine.anneal(in_order(SITES), np.array([0.0, 1.0]), 3)
    assert_close(weights, by_reference - by_model, absolute=1e-12)
    by_model, by_reference = engine.energies()
    assert_close(
        engine.anneal(in_order(SITES), np.array([1.0, 0.25]), 1), -0.75 * (by_reference - by_model), absolute=1e-12
    )


def test_annealing_between_equal_laws_has_no_variance():
    hypergraph = structure(CARDS, *[(i,) for i in range(5)])
    tables = np.random.default_rng(13).normal(size=sum(CARDS))
    engine = engine_of(hypergraph, tables, reference=tables)
    assert_close(engine.anneal(in_order(SITES), np.linspace(0, 1, 30), 1), np.zeros((1, 64)), absolute=1e-12)


# Structure


def test_large_structures_are_laid_out_quickly():
    rng = np.random.default_rng(14)
    edges = {tuple(sorted(rng.choice(300, k, replace=False).tolist())) for k in (2, 3) for _ in range(1000)}
    hypergraph = structure([4] * 300, *edges)
    began = time.process_time()
    found = tables_structure(hypergraph, tuple((i,) for i in range(300)))
    assert time.process_time() - began < 2
    assert tables_structure(hypergraph, tuple((i,) for i in range(300))) is found
    assert found.num_cells <= hypergraph.num_terms + 4 * 300


def test_smaller_edges_are_folded_into_larger_ones():
    hypergraph = structure((2, 3, 4), (0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2))
    assert tables_structure(hypergraph, ((0,), (1,), (2,))).num_cells == 24
