"""The compiled engines against enumeration: what the conformance suite does not ask, or asks of small models."""

import itertools
import math
import time
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from pyro_hoim.compute.engine import Wanted
from pyro_hoim.log_linear import LogLinearEnergy
from pyro_hoim.log_linear.chains._tables_structure import tables_structure
from pyro_hoim.log_linear.chains.products_engine import ProductsEngine
from pyro_hoim.log_linear.chains.tables_engine import TablesEngine
from pyro_hoim.log_linear.chains.torch_engine import TorchEngine
from pyro_hoim.schema import Domain
from pyro_hoim.structure.hypergraph import InteractionHypergraph
from pyro_hoim.testing import assert_close, assert_exact_law, recompute_counts, required_draws
from pyro_hoim.testing.oracles import count_states, enumerate_codes, exact_table, random_tables

DTYPES = [torch.float32, torch.float64]
ENGINES: dict[str, Any] = {"products": ProductsEngine, "tables": TablesEngine, "torch": TorchEngine}
CARDS = {"products": (2,) * 5, "tables": (2, 3, 1, 5, 2)}
# orders 1 to 4, some without their subsets, with a variable of one state and one in no large edge
EDGES = {
    "products": ((0,), (3,), (0, 1), (3, 4), (0, 1, 2), (1, 2, 3), (1, 2, 3, 4)),
    "tables": ((0,), (3,), (0, 1), (0, 2), (3, 4), (0, 1, 3), (1, 2, 3, 4)),
}
SCHEDULES = {
    "sites": {"products": ((0,), (1,), (2,), (3,), (4,)), "tables": ((0,), (1,), (3,), (4,))},
    "pairs": {"products": ((0, 1), (1, 2), (3, 4)), "tables": ((0, 1), (3, 4))},
    "triples": {"products": ((0, 1, 2), (2, 3, 4)), "tables": ((0, 1, 3), (1, 3, 4))},
    "mixed": {"products": ((0,), (1, 3), (0, 2, 4), (4,)), "tables": ((4,), (0, 3), (1, 3, 4), (0, 1))},
    "all": {"products": ((0, 1, 2, 3, 4),), "tables": ((0, 1, 3, 4),)},
}
both = pytest.mark.parametrize("name", ["products", "tables"])
dtypes = pytest.mark.parametrize("dtype", DTYPES)
two_schedules = pytest.mark.parametrize("schedule", ["sites", "mixed"])
EVERYTHING = {"counts": True, "energies": True, "states": True}


def structure(cardinalities, *edges):
    names = [[f"x{i}" for i in edge] for edge in edges]
    return InteractionHypergraph(Domain.from_cardinalities(cardinalities), names, hierarchical=False)


class Model(NamedTuple):
    """A structure with tables and reference log weights, one row or one per group."""

    hypergraph: InteractionHypergraph
    tables: Any
    reference: Any

    @property
    def cards(self):
        return self.hypergraph.domain.cardinalities

    def log_weights(self, beta):
        """Of all states at an inverse temperature, by enumeration."""
        start = np.cumsum([0, *self.cards])[:-1]
        by_reference = np.asarray(self.reference)[start + enumerate_codes(self.cards)].sum(axis=1)
        table = np.asarray(exact_table(self.hypergraph, self.tables, normalised=False)).reshape(-1)
        return beta * table + (1 - beta) * by_reference

    def law(self, beta=1.0):
        log_weights = self.log_weights(beta)
        return np.exp(log_weights - np.logaddexp.reduce(log_weights))

    def energy(self, codes):
        return LogLinearEnergy(self.hypergraph, torch.as_tensor(self.tables)).energy(codes.long())

    def reference_energy(self, codes):
        start = torch.tensor(np.cumsum([0, *self.cards])[:-1])
        return -torch.as_tensor(self.reference)[start + codes].sum(-1)

    def engine(self, name, blocks=None, chains=64, groups=1, *, dtype=torch.float32, seed=0, start=None):
        blocks = SCHEDULES["sites"][name] if blocks is None else blocks
        engine = ENGINES[name](self.hypergraph, blocks, groups, chains, seed, dtype)
        engine.set_weights(*(torch.as_tensor(np.atleast_2d(part)) for part in (self.tables, self.reference)))
        if start is None:
            drawn = [
                np.random.default_rng((seed, c)).integers(0, self.cards, (groups, len(self.cards)))
                for c in range(chains)
            ]
            start = torch.from_numpy(np.stack(drawn, axis=1))
        engine.set_codes(torch.as_tensor(start).expand(groups, chains, -1))
        return engine

    def exact_start(self, law, num, seed=4):
        index = np.random.default_rng(seed).choice(len(law), size=num, p=law)
        return torch.from_numpy(enumerate_codes(self.cards)[index])[None]

    def histogram(self, engine, group=0):
        return count_states(engine.get_codes()[group], self.cards)


def make(name, seed=0, scale=0.8, balanced=False):
    hypergraph, rng = structure(CARDS[name], *EDGES[name]), np.random.default_rng(seed)
    tables = random_tables(hypergraph, rng, scale=scale, balanced=balanced)
    return Model(hypergraph, tables, rng.normal(size=sum(CARDS[name])))


def num_draws(name):
    return required_draws(32, 0.02) if name == "products" else required_draws(60, 0.03)


def in_order(blocks):
    return np.arange(len(blocks), dtype=np.int32)[None]


# Energies and records


@both
@dtypes
@two_schedules
@pytest.mark.parametrize("balanced", [True, False])
def test_energies_equal_those_of_the_model(name, dtype, schedule, balanced):
    model, blocks = make(name, 1, 1.0, balanced), SCHEDULES[schedule][name]
    engine = model.engine(name, blocks, 70, dtype=dtype)
    for thin in (1, 2, 5):
        record = engine.sweep(in_order(blocks), 10, np.array([0.7]), Wanted(thin, energies=True, states=True))
        assert record.num_records == 10 // thin and record.states.dtype == torch.uint8
        assert_close(record.energies, model.energy(record.states), absolute=1e-9)
        by_model, by_reference = engine.energies()
        codes = engine.get_codes()
        assert torch.equal(codes, record.states[-1].long())
        assert_close(by_model, model.energy(codes), absolute=1e-9)
        assert_close(by_reference, model.reference_energy(codes), absolute=1e-9)


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e6])
def test_recorded_energies_are_those_of_float64_for_many_products(scale):
    """Over a thousand products of orders 1 to 5, in groups of which one lacks the pairs; rounding is relative."""
    size = 12
    edges = [e for k in (1, 2, 3, 4) for e in itertools.combinations(range(size), k)]
    hypergraph = structure([2] * size, *edges, tuple(range(5)))
    tables = scale * random_tables(hypergraph, np.random.default_rng(5), batch_shape=(2,))
    for edge in itertools.combinations(hypergraph.domain.names, 2):
        tables[1, hypergraph.term_slices[edge]] = 0
    blocks = tuple((i,) for i in range(size))
    engine = Model(hypergraph, tables, np.zeros(2 * size)).engine("products", blocks, 70, 2)
    record = engine.sweep(in_order(blocks), 3, np.zeros(2), Wanted(1, energies=True, states=True))
    tolerance = 1e-14 * float(np.abs(tables).sum(axis=1).max())
    for group in range(2):
        energy = Model(hypergraph, tables[group], None).energy(record.states[:, group])
        assert_close(record.energies[:, group], energy, relative=0.0, absolute=tolerance)
        with pytest.raises(AssertionError):  # single precision would show
            assert_close(energy.float().double(), energy, relative=0.0, absolute=tolerance)
    assert len(engine._kept.chunks) > 4  # more than one chunk of a size


@both
def test_energies_stay_exact_over_many_sweeps(name):
    model = make(name)
    order = in_order(SCHEDULES["sites"][name])
    record = model.engine(name, dtype=torch.float64).sweep(
        order, 400, np.ones(1), Wanted(1, energies=True, states=True)
    )
    assert_close(record.energies, model.energy(record.states), absolute=1e-9)


@both
@dtypes
@pytest.mark.parametrize("chains", [1, 20, 40, 200])
def test_counts_and_statistics_equal_those_of_recorded_states(name, dtype, chains):
    model = make(name)
    engine = model._replace(tables=np.stack([model.tables, -model.tables])).engine(name, None, chains, 2, dtype=dtype)
    order = in_order(SCHEDULES["sites"][name])
    record = engine.sweep(order, 12, np.array([1.0, 0.5]), Wanted(3, counts=True, states=True))
    assert record.states.shape == (4, 2, chains, 5)
    weights = torch.rand(2, chains, dtype=torch.float64, generator=torch.Generator().manual_seed(8))
    weighted = engine.statistics(weights)
    for group in range(2):
        states, last = record.states[:, group], record.states[-1, group]
        np.testing.assert_array_equal(record.counts[group], recompute_counts(model.hypergraph, states))
        np.testing.assert_array_equal(engine.statistics()[group], recompute_counts(model.hypergraph, last))
        expected = recompute_counts(model.hypergraph, last, weights[group])
        assert_close(weighted[group], expected, absolute=1e-10)


@both
def test_records_without_thinning_are_empty(name):
    engine, order = make(name).engine(name, chains=3), in_order(SCHEDULES["sites"][name])
    record = engine.sweep(order, 3, np.ones(1), Wanted(5, **EVERYTHING))
    assert record.num_records == 0
    assert (record.energies.shape, record.states.shape) == ((0, 1, 3), (0, 1, 3, 5))
    assert record.counts.sum() == 0
    for wanted, number in ((Wanted(), 0), (Wanted(1), 3)):
        record = engine.sweep(order, 3, np.ones(1), wanted)
        assert (record.num_records, record.counts, record.energies, record.states) == (number, None, None, None)


# Laws


@both
@dtypes
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("beta", [1.0, 0.5, 0.0])
def test_chains_keep_the_exact_law(name, dtype, schedule, beta):
    model, blocks, num = make(name), SCHEDULES[schedule][name], num_draws(name)
    law = model.law(beta)
    engine = model.engine(name, blocks, num, dtype=dtype, seed=3, start=model.exact_start(law, num))
    before = engine.get_codes()
    engine.sweep(in_order(blocks), 1, np.array([beta]))
    assert (before != engine.get_codes()).any(dim=-1).double().mean() > 0.5
    assert_exact_law(model.histogram(engine), law)


@both
@dtypes
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_chains_reach_the_law_from_one_state_under_new_weights(name, dtype, schedule):
    model, blocks, num = make(name), SCHEDULES[schedule][name], num_draws(name)
    other = model._replace(tables=np.zeros_like(model.tables))
    engine = other.engine(name, blocks, num, dtype=dtype, seed=5, start=torch.zeros(5, dtype=torch.long))
    engine.sweep(in_order(blocks), 1, np.ones(1))
    for tables in (-model.tables, model.tables):
        engine.set_weights(torch.as_tensor(tables)[None], torch.as_tensor(model.reference)[None])
        assert_close(engine.energies()[0], model._replace(tables=tables).energy(engine.get_codes()), absolute=1e-9)
    engine.sweep(in_order(blocks), 200, np.ones(1))
    assert_exact_law(model.histogram(engine), model.law())


@both
@two_schedules
@pytest.mark.parametrize("fault", ["beta", "reference", "tables"])
def test_another_law_is_noticed(name, schedule, fault):
    """Negative control: a wrong temperature, no reference, or one table dropped."""
    model, blocks, num = make(name), SCHEDULES[schedule][name], num_draws(name)
    law, wrong = model.law(0.8), model.tables.copy()
    if fault == "tables":
        wrong[model.hypergraph.term_slices["x0", "x1"]] = 0
    base = 0 * model.reference if fault == "reference" else model.reference
    start = model.exact_start(law, num)
    engine = Model(model.hypergraph, wrong, base).engine(name, blocks, num, seed=3, start=start)
    engine.sweep(in_order(blocks), 5, np.array([0.6 if fault == "beta" else 0.8]))
    with pytest.raises(AssertionError):
        assert_exact_law(model.histogram(engine), law)


@pytest.mark.parametrize("schedule", ["sites", "triples"])
def test_a_temperature_a_tenth_off_is_noticed(schedule):
    model, blocks, num = make("products"), SCHEDULES[schedule]["products"], num_draws("products")
    law = model.law()
    engine = model.engine("products", blocks, num, seed=3, start=model.exact_start(law, num))
    engine.sweep(in_order(blocks), 4, np.array([0.9]))
    with pytest.raises(AssertionError):
        assert_exact_law(model.histogram(engine), law)


@both
def test_groups_have_their_own_weights_and_temperatures(name):
    model, num, betas = make(name), num_draws(name), np.array([1.0, 0.3, 0.0])
    parts = [np.stack([part, -part, 0.5 * part]) for part in (model.tables, model.reference)]
    groups = [Model(model.hypergraph, *row) for row in zip(*parts, strict=True)]
    laws = [group.law(beta) for group, beta in zip(groups, betas, strict=True)]
    start = torch.cat([model.exact_start(law, num, seed) for seed, law in enumerate(laws)])
    engine = Model(model.hypergraph, *parts).engine(name, None, num, 3, seed=6, start=start)
    engine.sweep(in_order(SCHEDULES["sites"][name]), 2, betas)
    for g, law in enumerate(laws):
        assert_exact_law(model.histogram(engine, g), law)


@dtypes
def test_rare_values_are_drawn_as_often_as_they_should(dtype):
    """Both tails of a single site; probabilities far below the spacing of floats near one stay unbiased."""
    odds = 14.0
    model = Model(structure([2] * 3, (0,), (1,), (2,)), np.array([0.0, odds, odds, 0.0, 0.0, 1e4]), np.zeros(6))
    engine = model.engine("products", ((0,), (1,), (2,)), 1024, dtype=dtype)
    record = engine.sweep(in_order("abc"), 10_000, np.ones(1), Wanted(1, counts=True))
    mean = 1024 * 10_000 / (1 + math.exp(odds))
    for rare in (record.counts[0, 0].item(), record.counts[0, 3].item()):
        assert abs(rare - mean) < 5 * math.sqrt(mean)
    assert record.counts[0, 4] == 0


@pytest.mark.parametrize("name", ["tables", "torch"])
@pytest.mark.parametrize("blocks", [((0,), (1,)), ((0, 1),)])
def test_a_variable_of_300_levels(name, blocks):
    """Codes need more than a byte, and the pair has more joint states than are drawn with all lanes at once."""
    hypergraph, num = structure((300, 3), (0,), (0, 1)), 30_000
    tables = random_tables(hypergraph, np.random.default_rng(8), scale=0.7, balanced=False)
    model = Model(hypergraph, tables, np.zeros(303))
    engine = model.engine(name, blocks, num, seed=9, start=model.exact_start(model.law(), num))
    record = engine.sweep(in_order(blocks), 1, np.ones(1), Wanted(1, states=True, counts=True))
    counts = model.histogram(engine)
    assert record.states.dtype == torch.int32 and int(record.states.max()) > 256
    assert_exact_law(counts, model.law())
    assert_exact_law(counts.reshape(300, 3).sum(1), model.law().reshape(300, 3).sum(1))
    assert torch.equal(record.counts[0, hypergraph.term_slices["x0", "x1"]], torch.from_numpy(counts).double())


@both
@dtypes
def test_large_tables_do_not_overflow(name, dtype):
    model = make(name)
    for blocks in (SCHEDULES["sites"][name], SCHEDULES["all"][name]):
        engine = model._replace(tables=1000 * model.tables).engine(name, blocks, 20, dtype=dtype)
        engine.sweep(in_order(blocks), 30, np.ones(1))
        if len(blocks) == 1:
            best = int(np.argmax(exact_table(model.hypergraph, model.tables, normalised=False)))
            assert (engine.get_codes()[0].numpy() == enumerate_codes(model.cards)[best]).all()
        assert torch.isfinite(engine.energies()[0]).all()


def test_large_blocks():
    """Twelve binary variables at once, by their first and second moments."""
    size = 12
    hypergraph = structure([2] * size, *[(i, (i + 1) % size) for i in range(size)])
    tables = random_tables(hypergraph, np.random.default_rng(0), scale=0.7, balanced=False)
    model = Model(hypergraph, tables, np.zeros(2 * size))
    engine = model.engine("products", (tuple(range(size)),), 4000)
    engine.sweep(in_order("a"), 1, np.ones(1))
    codes, found = enumerate_codes([2] * size), engine.get_codes()[0].numpy()
    expected = codes.T @ (codes * model.law()[:, None])
    error = found.T @ found / 4000 - expected
    assert (np.abs(error) < 5.5 * np.sqrt(expected * (1 - expected) / 4000)).all()


# Order, and what is not drawn


@both
def test_rows_of_an_order_follow_each_other(name):
    """Row s % rows is used in sweep s: variables not yet visited keep their values."""
    model = Model(structure([2] * 3, (0,), (1,), (2,)), np.tile([0.0, 200.0], 3), np.zeros(6))
    engine = model.engine(name, ((0,), (1,), (2,)), 3, start=torch.zeros(3, dtype=torch.long))
    record = engine.sweep(np.array([[0], [2]], dtype=np.int32), 3, np.ones(1), Wanted(1, states=True))
    assert record.states[:, 0, 0].tolist() == [[1, 0, 0], [1, 0, 1], [1, 0, 1]]


@both
def test_one_level_clamped_and_unconnected_variables(name):
    hypergraph, rng = structure([2, 1, 2, 2], (1,), (0, 1), (0, 1, 2)), np.random.default_rng(0)
    model = Model(hypergraph, random_tables(hypergraph, rng, balanced=False), rng.normal(size=7))
    num = required_draws(4, 0.02)
    engine = model.engine(name, ((0,), (3,)), num, start=torch.tensor([0, 0, 1, 0]))
    record = engine.sweep(in_order("ab"), 20, np.array([0.5]), Wanted(20, counts=True, energies=True))
    codes = engine.get_codes()
    assert (codes[0, :, 1] == 0).all() and (codes[0, :, 2] == 1).all()
    law = np.exp(model.log_weights(0.5).reshape(2, 1, 2, 2)[:, 0, 1]).reshape(-1)
    assert_exact_law(count_states(codes[0][:, [0, 3]], [2, 2]), law / law.sum())
    assert_close(record.energies[0], model.energy(codes))
    np.testing.assert_array_equal(record.counts[0], recompute_counts(hypergraph, codes[0]))


@both
@pytest.mark.parametrize("edges", [(), ((1,),)])
def test_variables_without_interactions(name, edges):
    hypergraph = structure((2, 2 if name == "products" else 3, 1, 2), *edges)
    size, num = sum(hypergraph.domain.cardinalities), required_draws(24, 0.03)
    model = Model(hypergraph, np.arange(hypergraph.num_terms, dtype=np.float64), np.linspace(-1, 1, size))
    for blocks, beta in itertools.product((((0,), (1,), (3,)), ((0, 3), (1,))), (1.0, 0.25)):
        engine = model.engine(name, blocks, num, seed=10, start=torch.zeros(4, dtype=torch.long))
        record = engine.sweep(in_order(blocks), 1, np.array([beta]), Wanted(1, counts=True, energies=True))
        assert record.counts.shape == (1, hypergraph.num_terms)
        assert edges or (record.energies == 0).all()
        assert_exact_law(model.histogram(engine), model.law(beta))


@both
@pytest.mark.parametrize("size", [0, 2])
def test_nothing_to_draw(name, size):
    hypergraph, order = structure([2] * size, *([(0, 1)] if size else [])), np.zeros((1, 0), dtype=np.int32)
    model = Model(hypergraph, random_tables(hypergraph, np.random.default_rng(0), balanced=False), np.zeros(2 * size))
    engine = model.engine(name, (), 3)
    before = engine.get_codes()
    record = engine.sweep(order, 4, np.ones(1), Wanted(2, **EVERYTHING))
    assert torch.equal(engine.get_codes(), before)
    assert (record.states.shape, record.energies.shape) == ((2, 1, 3, size), (2, 1, 3))
    np.testing.assert_array_equal(record.counts[0], 2 * recompute_counts(hypergraph, before[0]) if size else [])
    assert_close(engine.anneal(order, np.array([0.0, 0.25, 1.0]), 1), -engine.energies()[0], absolute=1e-9)


@both
def test_variables_in_no_block_stay(name):
    engine = make(name).engine(name, ((1,), (3,)))
    before = engine.get_codes()
    engine.sweep(np.array([[0, 1], [1, 1]], dtype=np.int32), 20, np.ones(1))
    after = engine.get_codes()
    assert torch.equal(after[..., [0, 2, 4]], before[..., [0, 2, 4]])
    assert (after[..., [1, 3]] != before[..., [1, 3]]).any()


# Equal state, equal calls, equal bits


@both
@dtypes
@two_schedules
def test_chains_do_not_depend_on_their_number_nor_on_threads(name, dtype, schedule):
    model, order, found = make(name), in_order(SCHEDULES[schedule][name]), []
    threads = torch.get_num_threads()
    try:
        for groups, chains, workers in ((1, 1, 1), (1, 5, 1), (2, 33, 1), (2, 500, 1), (2, 500, 3)):
            torch.set_num_threads(workers)
            start = torch.zeros(5, dtype=torch.long)
            engine = model.engine(name, SCHEDULES[schedule][name], chains, groups, dtype=dtype, start=start)
            record = engine.sweep(order, 90, np.linspace(1, 0.6, groups), Wanted(2, **EVERYTHING))
            parts = [record.energies[:, 0].T, record.states[:, 0].transpose(0, 1), engine.get_codes()[0]]
            parts += [engine.energies()[0][0], engine.anneal(order, np.linspace(0, 1, 60), 2)[0]]
            found.append([*parts, record.counts, engine.statistics()])
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(*pair) for pair in zip(*found[-2:], strict=True))
    for other in found[:-2]:
        for left, right in zip(other[:-2], found[-1], strict=False):
            assert torch.equal(left, right[: len(left)])


@both
@dtypes
def test_a_run_continues_from_its_state(name, dtype):
    model, order = make(name), in_order(SCHEDULES["sites"][name])
    first, second = (model.engine(name, None, 50, 2, dtype=dtype, seed=seed) for seed in (0, 99))
    first.sweep(order, 6, np.ones(2))
    kept = {part: value.clone() for part, value in first.state().items()}
    second.load_state(kept)
    records = [engine.sweep(order, 7, np.array([1.0, 0.6]), Wanted(2, **EVERYTHING)) for engine in (first, second)]
    for left, right in zip(*(vars(record).values() for record in records), strict=True):
        assert torch.equal(torch.as_tensor(left), torch.as_tensor(right))
    for part, value in first.state().items():
        assert torch.equal(value, second.state()[part]), part
    assert not torch.equal(kept["codes"], first.state()["codes"])


@both
def test_gather_takes_energies_along(name):
    model = make(name)
    engine = model.engine(name, None, 100, 3)
    engine.sweep(in_order(SCHEDULES["sites"][name]), 7, np.ones(3), Wanted(2, energies=True))
    index = torch.randint(100, (3, 100), generator=torch.Generator().manual_seed(0))
    for look in (True, False):
        codes, random = engine.get_codes(), engine.state()["random"]
        before = engine.energies() if look else ()
        engine.gather(index)
        for left, right in zip(before, engine.energies(), strict=look):
            assert torch.equal(left.gather(1, index), right)
        after = engine.get_codes()
        assert torch.equal(after, codes.gather(1, index[..., None].expand(-1, -1, 5)))
        assert_close(engine.energies()[0], model.energy(after), absolute=1e-12)
        assert_close(engine.energies()[1], model.reference_energy(after), absolute=1e-12)
        assert torch.equal(engine.state()["random"], random)
        engine.set_codes(after)


# Annealed importance sampling


@both
@dtypes
@two_schedules
@pytest.mark.parametrize("sweeps", [1, 2])
def test_annealing_estimates_the_partition_function(name, dtype, schedule, sweeps):
    model, blocks, num = make(name), SCHEDULES[schedule][name], 4000
    difference = np.logaddexp.reduce(model.log_weights(1.0)) - np.logaddexp.reduce(model.log_weights(0.0))
    engine = model.engine(name, blocks, num, dtype=dtype, seed=6)
    for betas, sign in ((np.linspace(0, 1, 41), 1), (np.linspace(1, 0, 41), -1)):
        engine.set_codes(model.exact_start(model.law(betas[0]), num, 7))
        ratio = np.exp(engine.anneal(in_order(blocks), betas, sweeps)[0].numpy() - sign * difference)
        assert abs(ratio.mean() - 1) < (5 if name == "products" else 4) * ratio.std() / math.sqrt(num)
        assert 0 < ratio.std() < 1
        assert_close(engine.energies()[0], model.energy(engine.get_codes()))


@both
def test_annealing_adds_the_gains_of_the_states_it_visits(name):
    model, order, betas = make(name), in_order(SCHEDULES["sites"][name]), np.linspace(0, 1, 301)
    one, two = (model.engine(name, dtype=torch.float64) for _ in range(2))
    for path in (betas, np.array([0.0, 1.0]), np.array([1.0, 0.25])):
        found = one.anneal(order, path, 1)
        expected = torch.zeros_like(found)
        for low, high in itertools.pairwise(path):
            by_model, by_reference = two.energies()
            expected += (high - low) * (by_reference - by_model)
            two.sweep(order, 1, np.array([high]))
        assert torch.equal(one.get_codes(), two.get_codes())
        assert_close(found, expected, absolute=1e-9 if len(path) > 2 else 1e-12)


@both
@dtypes
def test_annealing_between_equal_laws_has_constant_weights(name, dtype):
    reference = np.array([0.3, -0.2, 1.0, 0.0, 0.5, 0.7])
    tables = np.concatenate([reference + 0.1, np.full(4, 1.5)])
    model = Model(structure([2] * 3, (0,), (1,), (2,), (0, 1)), tables, reference)
    found = model.engine(name, ((0,), (1,), (2,)), 37, dtype=dtype).anneal(in_order("abc"), np.linspace(0, 1, 50), 1)
    assert_close(found, torch.full_like(found, 1.8), absolute=1e-6 if dtype == torch.float32 else 1e-12)
    tables = np.random.default_rng(13).normal(size=sum(CARDS[name]))
    model = Model(structure(CARDS[name], *((i,) for i in range(5))), tables, tables)
    found = model.engine(name, dtype=dtype).anneal(in_order(SCHEDULES["sites"][name]), np.linspace(0, 1, 30), 1)
    assert_close(found, torch.zeros_like(found), absolute=1e-12)


# Structure


def test_products_need_binary_structures():
    assert ProductsEngine.supports(structure(CARDS["products"], *EDGES["products"]))
    assert ProductsEngine.supports(structure([1, 2], (0, 1)))
    assert not ProductsEngine.supports(structure([3, 2], (0,)))


def test_large_structures_are_laid_out_quickly():
    rng = np.random.default_rng(14)
    edges = {tuple(sorted(rng.choice(300, k, replace=False).tolist())) for k in (2, 3) for _ in range(1000)}
    hypergraph, sites = structure([4] * 300, *edges), tuple((i,) for i in range(300))
    began = time.process_time()
    found = tables_structure(hypergraph, sites)
    assert time.process_time() - began < 2
    assert tables_structure(hypergraph, sites) is found
    assert found.num_cells <= hypergraph.num_terms + 4 * 300


def test_smaller_edges_are_folded_into_larger_ones():
    hypergraph = structure((2, 3, 4), (0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2))
    assert tables_structure(hypergraph, ((0,), (1,), (2,))).num_cells == 24
