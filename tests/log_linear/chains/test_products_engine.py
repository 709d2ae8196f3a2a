"""The compiled engine of binary variables against enumeration, and the laws every engine obeys."""

import itertools
import math

import numpy as np
import pytest
import torch

from pyro_hoim.compute.engine import Wanted
from pyro_hoim.log_linear import LogLinearEnergy
from pyro_hoim.log_linear.chains.products_engine import ProductsEngine
from pyro_hoim.schema import Domain
from pyro_hoim.structure.hypergraph import InteractionHypergraph
from pyro_hoim.testing import assert_close, assert_exact_law, required_draws
from pyro_hoim.testing.oracles import count_states, enumerate_codes, exact_table, random_tables

DTYPES = [torch.float32, torch.float64]
SITES = ((0,), (1,), (2,), (3,), (4,))
SCHEDULES = {
    "sites": SITES,
    "pairs": ((0, 1), (1, 2), (3, 4)),
    "triples": ((0, 1, 2), (2, 3, 4)),
    "mixed": ((0,), (1, 3), (0, 2, 4), (4,)),
    "all": ((0, 1, 2, 3, 4),),
}


def structure(*edges, size=5):
    return InteractionHypergraph(Domain.from_cardinalities([2] * size), edges, hierarchical=False)


def third_order():
    """Edges of orders 1 to 4, some without their subsets."""
    edges = [
        ["x0"],
        ["x3"],
        ["x0", "x1"],
        ["x3", "x4"],
        ["x0", "x1", "x2"],
        ["x1", "x2", "x3"],
        ["x1", "x2", "x3", "x4"],
    ]
    return structure(*edges)


def log_law(hypergraph, tables, reference, beta):
    """Log probabilities of all states at an inverse temperature, by enumeration."""
    codes = enumerate_codes(hypergraph.domain.cardinalities)
    log_weights = beta * np.asarray(exact_table(hypergraph, tables, normalised=False)).reshape(-1)
    start = np.cumsum([0, *hypergraph.domain.cardinalities])[:-1]
    log_weights = log_weights + (1 - beta) * np.asarray(reference)[start + codes].sum(axis=1)
    return log_weights, log_weights - np.logaddexp.reduce(log_weights)


def start_exactly(log_probs, cardinalities, num_chains, rng):
    index = rng.choice(len(log_probs), size=num_chains, p=np.exp(log_probs))
    return torch.from_numpy(enumerate_codes(cardinalities)[index])[None]


def in_order(blocks):
    return np.arange(len(blocks), dtype=np.int32)[None]


def engine_of(hypergraph, tables, *, blocks=SITES, chains=64, groups=1, dtype=torch.float32, seed=0, reference=None):
    engine = ProductsEngine(hypergraph, blocks, groups, chains, seed, dtype)
    tables = torch.as_tensor(np.atleast_2d(tables))
    if reference is None:
        reference = np.zeros(sum(hypergraph.domain.cardinalities))
    engine.set_weights(tables, torch.as_tensor(np.atleast_2d(reference)))
    start = np.random.default_rng(seed).integers(
        0, hypergraph.domain.cardinalities, (groups, chains, len(hypergraph.domain))
    )
    engine.set_codes(torch.from_numpy(start))
    return engine


@pytest.fixture
def model():
    hypergraph = third_order()
    rng = np.random.default_rng(0)
    return hypergraph, random_tables(hypergraph, rng, scale=0.8, balanced=False), rng.normal(size=10)


def test_supports_binary_structures_only():
    assert ProductsEngine.supports(third_order())
    assert ProductsEngine.supports(
        InteractionHypergraph(Domain.from_cardinalities([1, 2]), [["x0", "x1"]], hierarchical=False)
    )
    assert not ProductsEngine.supports(InteractionHypergraph(Domain.from_cardinalities([3, 2]), [["x0"]]))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("balanced", [True, False])
@pytest.mark.parametrize("schedule", ["sites", "mixed"])
def test_energies_equal_those_of_the_model(dtype, balanced, schedule):
    hypergraph = third_order()
    rng = np.random.default_rng(1)
    tables, reference = random_tables(hypergraph, rng, balanced=balanced), rng.normal(size=10)
    blocks = SCHEDULES[schedule]
    engine = engine_of(hypergraph, tables, blocks=blocks, chains=70, dtype=dtype, reference=reference)
    energy = LogLinearEnergy(hypergraph, torch.as_tensor(tables))
    for thin in (1, 2, 5):
        record = engine.sweep(in_order(blocks), 10, np.array([0.7]), Wanted(thin=thin, energies=True, states=True))
        assert record.num_records == 10 // thin
        assert_close(record.energies, energy.energy(record.states.long()), absolute=1e-9)
        model, by_reference = engine.energies()
        codes = engine.get_codes()
        assert torch.equal(codes, record.states[-1].long()) or 10 % thin
        assert_close(model, energy.energy(codes), absolute=1e-9)
        start = torch.arange(5) * 2
        assert_close(by_reference, -torch.as_tensor(reference)[start + codes].sum(-1), absolute=1e-9)


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e6])
def test_recorded_energies_are_those_of_float64_for_many_products(scale):
    """Over a thousand products of orders 1 to 5, in groups of which one lacks the pairs; rounding is relative."""
    size = 12
    names = [f"x{i}" for i in range(size)]
    edges = [e for k in (1, 2, 3, 4) for e in itertools.combinations(names, k)]
    hypergraph = structure(*edges, tuple(names[:5]), size=size)
    tables = scale * random_tables(hypergraph, np.random.default_rng(5), batch_shape=(2,))
    for edge in itertools.combinations(names, 2):
        tables[1, hypergraph.term_slices[edge]] = 0
    blocks = tuple((i,) for i in range(size))
    engine = engine_of(hypergraph, tables, blocks=blocks, chains=70, groups=2)
    record = engine.sweep(in_order(blocks), 3, np.zeros(2), Wanted(thin=1, energies=True, states=True))
    tolerance = 1e-14 * float(np.abs(tables).sum(axis=1).max())
    for group in range(2):
        energy = LogLinearEnergy(hypergraph, torch.as_tensor(tables[group])).energy(record.states[:, group].long())
        assert_close(record.energies[:, group], energy, relative=0.0, absolute=tolerance)
        with pytest.raises(AssertionError):  # single precision would show
            assert_close(energy.float().double(), energy, relative=0.0, absolute=tolerance)
    assert len(engine._kept.chunks) > 4  # more than one chunk of a size


def test_energies_by_differences_stay_exact_over_many_sweeps(model):
    hypergraph, tables, _ = model
    engine = engine_of(hypergraph, tables, dtype=torch.float64)
    record = engine.sweep(in_order(SITES), 400, np.ones(1), Wanted(thin=1, energies=True, states=True))
    energy = LogLinearEnergy(hypergraph, torch.as_tensor(tables)).energy(record.states.long())
    assert_close(record.energies, energy, absolute=1e-9)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("beta", [1.0, 0.5, 0.0])
def test_chains_keep_the_exact_law(model, dtype, schedule, beta):
    hypergraph, tables, reference = model
    blocks = SCHEDULES[schedule]
    _, law = log_law(hypergraph, tables, reference, beta)
    num_chains = required_draws(32, 0.02)
    engine = engine_of(hypergraph, tables, blocks=blocks, chains=num_chains, dtype=dtype, reference=reference, seed=3)
    engine.set_codes(start_exactly(law, [2] * 5, num_chains, np.random.default_rng(4)))
    before = engine.get_codes()
    engine.sweep(in_order(blocks), 2, np.array([beta]))
    assert (before != engine.get_codes()).any(dim=-1).float().mean() > 0.5
    assert_exact_law(count_states(engine.get_codes()[0], [2] * 5), np.exp(law))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_chains_reach_the_law_from_any_state(model, dtype, schedule):
    hypergraph, tables, reference = model
    blocks = SCHEDULES[schedule]
    num_chains = required_draws(32, 0.02)
    engine = engine_of(hypergraph, tables, blocks=blocks, chains=num_chains, dtype=dtype, reference=reference, seed=5)
    engine.set_codes(torch.zeros(1, num_chains, 5, dtype=torch.long))
    engine.sweep(in_order(blocks), 200, np.ones(1))
    _, law = log_law(hypergraph, tables, reference, 1.0)
    assert_exact_law(count_states(engine.get_codes()[0], [2] * 5), np.exp(law))


@pytest.mark.parametrize("schedule", ["sites", "triples"])
def test_law_check_notices_another_temperature(model, schedule):
    hypergraph, tables, reference = model
    blocks = SCHEDULES[schedule]
    _, law = log_law(hypergraph, tables, reference, 1.0)
    num_chains = required_draws(32, 0.02)
    engine = engine_of(hypergraph, tables, blocks=blocks, chains=num_chains, reference=reference, seed=3)
    engine.set_codes(start_exactly(law, [2] * 5, num_chains, np.random.default_rng(4)))
    engine.sweep(in_order(blocks), 4, np.array([0.9]))
    with pytest.raises(AssertionError):
        assert_exact_law(count_states(engine.get_codes()[0], [2] * 5), np.exp(law))


@pytest.mark.parametrize("dtype", DTYPES)
def test_rare_values_are_drawn_as_often_as_they_should(dtype):
    """Both tails of a single site; probabilities far below the spacing of floats near one stay unbiased."""
    hypergraph = structure(["x0"], ["x1"], ["x2"], size=3)
    odds = 14.0
    tables = np.array([0.0, odds, odds, 0.0, 0.0, 1e4])
    engine = engine_of(hypergraph, tables, blocks=((0,), (1,), (2,)), chains=1024, dtype=dtype)
    record = engine.sweep(in_order("abc"), 10_000, np.ones(1), Wanted(thin=1, counts=True))
    total = 1024 * 10_000
    mean = total / (1 + math.exp(odds))
    for rare in (record.counts[0, 0].item(), record.counts[0, 3].item()):
        assert abs(rare - mean) < 5 * math.sqrt(mean)
    assert record.counts[0, 4] == 0


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("chains", [1, 20, 40, 200])
def test_counts_equal_those_of_recorded_states(model, dtype, chains):
    hypergraph, tables, _ = model
    engine = engine_of(hypergraph, np.stack([tables, -tables]), chains=chains, groups=2, dtype=dtype)
    record = engine.sweep(in_order(SITES), 12, np.array([1.0, 0.5]), Wanted(thin=3, counts=True, states=True))
    assert record.states.shape == (4, 2, chains, 5)
    for group in range(2):
        expected = cell_counts(hypergraph, record.states[:, group].reshape(-1, 5))
        np.testing.assert_array_equal(record.counts[group], expected)
        np.testing.assert_array_equal(engine.statistics()[group], cell_counts(hypergraph, record.states[-1, group]))


def cell_counts(hypergraph, codes, weights=None):
    codes = np.asarray(codes)
    parts = []
    for edge, shape in zip(hypergraph.edge_indices, hypergraph.edge_shapes, strict=True):
        cell = np.ravel_multi_index(tuple(codes[:, i] for i in edge), shape)
        parts.append(np.bincount(cell, weights=weights, minlength=math.prod(shape)))
    return np.concatenate(parts)


def test_weighted_statistics(model):
    hypergraph, tables, _ = model
    engine = engine_of(hypergraph, tables, chains=150, groups=2)
    weights = torch.from_numpy(np.random.default_rng(8).random((2, 150)))
    found, codes = engine.statistics(weights), engine.get_codes()
    for group in range(2):
        expected = cell_counts(hypergraph, codes[group], weights[group].numpy())
        assert_close(found[group], expected, absolute=1e-10)


def run_of(engine, blocks=SITES):
    groups = engine._shape[0]
    record = engine.sweep(
        in_order(blocks), 7, np.linspace(1, 0.6, groups), Wanted(thin=2, counts=True, energies=True, states=True)
    )
    return record, engine.get_codes(), *engine.energies()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("schedule", ["sites", "mixed"])
def test_chains_do_not_depend_on_their_number_nor_on_threads(model, dtype, schedule):
    hypergraph, tables, reference = model
    blocks = SCHEDULES[schedule]
    threads = torch.get_num_threads()
    try:
        found = []
        for groups, chains, workers in ((1, 1, 1), (1, 5, 1), (2, 33, 1), (2, 200, 1), (2, 200, 3)):
            torch.set_num_threads(workers)
            engine = engine_of(
                hypergraph, tables, blocks=blocks, chains=chains, groups=groups, dtype=dtype, reference=reference
            )
            engine.set_codes(torch.ones(groups, chains, 5, dtype=torch.long))
            record, codes, model_energy, _ = run_of(engine, blocks)
            found.append((record.energies[:, :1], record.states[:, :1], codes[:1], model_energy[:1]))
            log_weights = engine.anneal(in_order(blocks), np.linspace(0, 1, 30), 1)
            found[-1] = (*found[-1], log_weights[:1])
    finally:
        torch.set_num_threads(threads)
    axes = (2, 2, 1, 1, 1)
    for other in found[:-1]:
        for left, right, axis in zip(other, found[-1], axes, strict=True):
            assert torch.equal(left, right.narrow(axis, 0, left.shape[axis]))


@pytest.mark.parametrize("dtype", DTYPES)
def test_resumed_chains_continue_with_equal_bits(model, dtype):
    hypergraph, tables, _ = model
    first = engine_of(hypergraph, tables, chains=50, groups=2, dtype=dtype)
    run_of(first)
    state = {name: value.clone() for name, value in first.state().items()}
    second = engine_of(hypergraph, tables, chains=50, groups=2, dtype=dtype, seed=99)
    second.load_state(state)
    for left, right in zip(run_of(first), run_of(second), strict=True):
        if isinstance(left, torch.Tensor):
            assert torch.equal(left, right)
        else:
            assert torch.equal(left.counts, right.counts)
            assert torch.equal(left.energies, right.energies)


def test_seeds_give_different_chains(model):
    hypergraph, tables, _ = model
    one, two = (engine_of(hypergraph, tables, chains=50, seed=s) for s in (0, 1))
    two.set_codes(one.get_codes())
    run_of(one), run_of(two)
    assert not torch.equal(one.get_codes(), two.get_codes())
    assert len(torch.unique(one.state()["random"].reshape(-1, 4), dim=0)) == 50


def test_gather(model):
    hypergraph, tables, reference = model
    engine = engine_of(hypergraph, tables, chains=100, groups=3, reference=reference)
    run_of(engine)
    codes, (energy, by_reference) = engine.get_codes(), engine.energies()
    random = engine.state()["random"]
    index = torch.from_numpy(np.random.default_rng(0).integers(0, 100, (3, 100)))
    engine.gather(index)
    assert torch.equal(engine.get_codes(), torch.gather(codes, 1, index[..., None].expand(-1, -1, 5)))
    assert torch.equal(engine.energies()[0], torch.gather(energy, 1, index))
    assert torch.equal(engine.energies()[1], torch.gather(by_reference, 1, index))
    assert torch.equal(engine.state()["random"], random)


def test_new_weights_replace_the_old_ones(model):
    hypergraph, tables, reference = model
    engine = engine_of(hypergraph, np.zeros_like(tables), reference=reference)
    for new in (tables, random_tables(hypergraph, np.random.default_rng(2)), tables):
        engine.set_weights(torch.as_tensor(new)[None], torch.as_tensor(reference)[None])
        expected = LogLinearEnergy(hypergraph, torch.as_tensor(new)).energy(engine.get_codes())
        assert_close(engine.energies()[0], expected, absolute=1e-9)
    num_chains = required_draws(32, 0.02)
    engine = engine_of(hypergraph, np.zeros_like(tables), chains=num_chains, reference=reference, seed=2)
    engine.sweep(in_order(SITES), 1, np.ones(1))
    engine.set_weights(torch.as_tensor(tables)[None], torch.as_tensor(reference)[None])
    engine.sweep(in_order(SITES), 200, np.ones(1))
    _, law = log_law(hypergraph, tables, reference, 1.0)
    assert_exact_law(count_states(engine.get_codes()[0], [2] * 5), np.exp(law))


def test_groups_have_their_own_weights_and_temperatures():
    hypergraph = structure(["x0"], ["x0", "x1"], size=2)
    rng = np.random.default_rng(3)
    tables, reference = random_tables(hypergraph, rng, batch_shape=(3,), balanced=False), rng.normal(size=(3, 4))
    betas = np.array([1.0, 0.3, 0.0])
    num_chains = required_draws(4, 0.02)
    engine = engine_of(
        hypergraph, tables, blocks=((0,), (1,)), chains=num_chains, groups=3, reference=reference, dtype=torch.float64
    )
    engine.sweep(in_order("ab"), 60, betas)
    for group in range(3):
        _, law = log_law(hypergraph, tables[group], reference[group], betas[group])
        assert_exact_law(count_states(engine.get_codes()[group], [2, 2]), np.exp(law))


def test_rows_of_an_order_follow_each_other():
    """Row s % rows is used in sweep s: variables not yet visited keep their values."""
    hypergraph = structure(["x0"], ["x1"], ["x2"], size=3)
    tables = np.tile([0.0, 200.0], 3)
    engine = engine_of(hypergraph, tables, blocks=((0,), (1,), (2,)), chains=3)
    engine.set_codes(torch.zeros(1, 3, 3, dtype=torch.long))
    order = np.array([[0], [2]], dtype=np.int32)
    record = engine.sweep(order, 3, np.ones(1), Wanted(thin=1, states=True))
    assert record.states[:, 0, 0].tolist() == [[1, 0, 0], [1, 0, 1], [1, 0, 1]]


def test_one_level_clamped_and_unconnected_variables():
    domain = Domain.from_cardinalities([2, 1, 2, 2])
    hypergraph = InteractionHypergraph(domain, [["x1"], ["x0", "x1"], ["x0", "x1", "x2"]], hierarchical=False)
    tables = random_tables(hypergraph, np.random.default_rng(0), balanced=False)
    reference = np.random.default_rng(1).normal(size=7)
    num_chains = required_draws(4, 0.02)
    engine = engine_of(hypergraph, tables, blocks=((0,), (3,)), chains=num_chains, reference=reference)
    engine.set_codes(torch.tensor([0, 0, 1, 0]).expand(1, num_chains, 4))
    record = engine.sweep(in_order("ab"), 20, np.array([0.5]), Wanted(thin=20, counts=True, energies=True))
    codes = engine.get_codes()
    assert (codes[0, :, 1] == 0).all() and (codes[0, :, 2] == 1).all()
    log_weights, _ = log_law(hypergraph, tables, reference, 0.5)
    law = np.exp(log_weights.reshape(2, 1, 2, 2)[:, 0, 1]).reshape(-1)
    assert_exact_law(count_states(codes[0][:, [0, 3]], [2, 2]), law / law.sum())
    assert_close(record.energies[0], LogLinearEnergy(hypergraph, torch.as_tensor(tables)).energy(codes))
    np.testing.assert_array_equal(record.counts[0], cell_counts(hypergraph, codes[0]))


@pytest.mark.parametrize("size", [0, 2])
def test_nothing_to_draw(size):
    hypergraph = structure(*([["x0", "x1"]] if size else []), size=size)
    tables = random_tables(hypergraph, np.random.default_rng(0), balanced=False)
    engine = engine_of(hypergraph, tables, blocks=(), chains=3)
    before = engine.get_codes()
    record = engine.sweep(
        np.zeros((1, 0), dtype=np.int32), 4, np.ones(1), Wanted(thin=2, counts=True, energies=True, states=True)
    )
    assert torch.equal(engine.get_codes(), before)
    assert record.states.shape == (2, 1, 3, size)
    assert record.energies.shape == (2, 1, 3)
    np.testing.assert_array_equal(record.counts[0], 2 * cell_counts(hypergraph, before[0]) if size else [])
    expected = np.zeros((1, 3)) if not size else engine.energies()[0] * -1
    assert_close(
        engine.anneal(np.zeros((1, 0), dtype=np.int32), np.array([0.0, 0.25, 1.0]), 1), expected, absolute=1e-9
    )


def test_records_without_thinning_are_empty(model):
    hypergraph, tables, _ = model
    engine = engine_of(hypergraph, tables, chains=3)
    record = engine.sweep(in_order(SITES), 3, np.ones(1), Wanted(thin=5, counts=True, energies=True, states=True))
    assert record.num_records == 0
    assert record.energies.shape == (0, 1, 3)
    assert record.states.shape == (0, 1, 3, 5)
    assert record.counts.sum() == 0
    record = engine.sweep(in_order(SITES), 3, np.ones(1))
    assert (record.num_records, record.counts, record.energies, record.states) == (0, None, None, None)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("schedule", ["sites", "mixed"])
@pytest.mark.parametrize("sweeps", [1, 2])
def test_annealing_estimates_the_partition_function(model, dtype, schedule, sweeps):
    hypergraph, tables, reference = model
    blocks = SCHEDULES[schedule]
    num_chains = 4000
    ends = [log_law(hypergraph, tables, reference, beta)[0] for beta in (0.0, 1.0)]
    difference = np.logaddexp.reduce(ends[1]) - np.logaddexp.reduce(ends[0])
    engine = engine_of(hypergraph, tables, blocks=blocks, chains=num_chains, reference=reference, dtype=dtype, seed=6)
    for betas, sign in ((np.linspace(0, 1, 41), 1), (np.linspace(1, 0, 41), -1)):
        _, law = log_law(hypergraph, tables, reference, betas[0])
        engine.set_codes(start_exactly(law, [2] * 5, num_chains, np.random.default_rng(7)))
        log_weights = engine.anneal(in_order(blocks), betas, sweeps)[0].numpy()
        ratio = np.exp(log_weights - sign * difference)
        assert abs(ratio.mean() - 1) < 5 * ratio.std() / math.sqrt(num_chains)
        assert 0 < ratio.std() < 1


def test_annealing_adds_the_gains_of_the_states_it_visits(model):
    hypergraph, tables, reference = model
    betas = np.linspace(0, 1, 301)
    one, two = (engine_of(hypergraph, tables, reference=reference, dtype=torch.float64) for _ in range(2))
    found = one.anneal(in_order(SITES), betas, 1)
    expected = torch.zeros_like(found)
    for low, high in itertools.pairwise(betas):
        model_energy, by_reference = two.energies()
        expected += (high - low) * (by_reference - model_energy)
        two.sweep(in_order(SITES), 1, np.array([high]))
    assert torch.equal(one.get_codes(), two.get_codes())
    assert_close(found, expected, absolute=1e-9)


@pytest.mark.parametrize("dtype", DTYPES)
def test_annealing_between_equal_laws_has_constant_weights(dtype):
    hypergraph = structure(["x0"], ["x1"], ["x2"], ["x0", "x1"], size=3)
    reference = np.array([0.3, -0.2, 1.0, 0.0, 0.5, 0.7])
    tables = np.concatenate([reference + 0.1, np.full(4, 1.5)])
    engine = engine_of(hypergraph, tables, blocks=((0,), (1,), (2,)), chains=37, dtype=dtype, reference=reference)
    log_weights = engine.anneal(in_order("abc"), np.linspace(0, 1, 50), 1)
    assert_close(log_weights, torch.full_like(log_weights, 1.8), absolute=1e-6 if dtype == torch.float32 else 1e-12)


def test_large_blocks():
    """Twelve variables at once, by their first and second moments."""
    size = 12
    hypergraph = structure(*[[f"x{i}", f"x{(i + 1) % size}"] for i in range(size)], size=size)
    tables = random_tables(hypergraph, np.random.default_rng(0), scale=0.7, balanced=False)
    engine = engine_of(hypergraph, tables, blocks=(tuple(range(size)),), chains=4000, dtype=torch.float32)
    engine.sweep(in_order("a"), 1, np.ones(1))
    _, law = log_law(hypergraph, tables, np.zeros(2 * size), 1.0)
    codes = enumerate_codes([2] * size)
    found = engine.get_codes()[0].numpy()
    expected = codes.T @ (codes * np.exp(law)[:, None])
    error = found.T @ found / 4000 - expected
    assert (np.abs(error) < 5.5 * np.sqrt(expected * (1 - expected) / 4000)).all()


def test_structure_without_interactions():
    hypergraph = structure(size=2)
    reference = np.array([0.0, 1.0, 0.5, 0.0])
    num_chains = required_draws(4, 0.02)
    engine = engine_of(hypergraph, np.zeros(0), blocks=((0,), (1,)), chains=num_chains, reference=reference)
    record = engine.sweep(in_order("ab"), 1, np.array([0.5]), Wanted(thin=1, counts=True, energies=True))
    _, law = log_law(hypergraph, np.zeros(0), reference, 0.5)
    assert_exact_law(count_states(engine.get_codes()[0], [2, 2]), np.exp(law))
    assert record.counts.shape == (1, 0)
    assert (record.energies == 0).all()
